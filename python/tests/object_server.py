"""Object stores that this machine does not have, as test servers: S3, Google Cloud Storage, Azure,
and the services that issue credentials.

They hold objects in memory and are as strict as the real stores: the server computes each signature
again from the received request, refuses expired tokens, and honours If-Match. `Store.said` counts
the answers by kind; requests are recorded. `Store.sums` names the checksums that the store keeps
and reports as the real stores do."""

from __future__ import annotations

import base64
import collections
import email.utils
import functools
import hashlib
import hmac
import itertools
import json
import re
import threading
import time
import urllib.parse
import zlib
from xml.sax.saxutils import escape

import numpy as np
import servers

MODIFIED = 1_700_000_000


@functools.cache
def crc_table(poly):
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (poly if value & 1 else 0)
        table.append(value)
    return np.array(table, np.uint64)


def crc(data, poly, bits):
    """CRC for a reflected polynomial: 0x82f63b78 is CRC32C, 0x9a6c9329ac4bc9b5 CRC64NVME.

    For long data it computes 2,048 pieces at once, each from zero, and then combines them in order:
    the CRC of the bytes before a piece is advanced over as many zero bytes as the piece has, which
    is a sum over the CRC's bits."""
    table, ones = crc_table(poly), (1 << bits) - 1
    length = len(data) >> 11
    pieces = np.frombuffer(data, np.uint8, length << 11).reshape(-1, max(length, 1)).T.copy()
    states = np.zeros(pieces.shape[1], np.uint64)
    shifts = np.uint64(1) << np.arange(bits, dtype=np.uint64)
    low, eight = np.uint64(255), np.uint64(8)
    for row in pieces:
        states = states >> eight ^ table[(states ^ row) & low]
        shifts = shifts >> eight ^ table[shifts & low]
    value, moved = ones, [int(shift) for shift in shifts]
    for state in states.tolist():
        value, before = state, value
        for bit in range(bits):
            if before >> bit & 1:
                value ^= moved[bit]
    words = table.tolist()
    for byte in data[length << 11:]:
        value = value >> 8 ^ words[(value ^ byte) & 255]
    return value ^ ones


@functools.lru_cache(4096)
def checksum(name, data):
    """As the stores write it: base64 of the number with its highest byte first."""
    if name in ("sha1", "sha256", "md5"):
        raw = hashlib.new(name, data).digest()
    elif name == "crc32":
        raw = zlib.crc32(data).to_bytes(4, "big")
    elif name == "crc32c":
        raw = crc(data, 0x82F63B78, 32).to_bytes(4, "big")
    else:
        raw = crc(data, 0x9A6C9329AC4BC9B5, 64).to_bytes(8, "big")
    return base64.b64encode(raw).decode()


def iso(seconds):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


class Store(servers.Small):
    """Any dialect: `objects` by (bucket, key)."""

    def __init__(self, handler, objects):
        super().__init__(handler)
        self.objects = objects
        self.said = collections.Counter()
        self.lines = []  # the answers: (method, path with query)
        self.lock = threading.Lock()
        self.page = 1000
        self.attributes = {}  # of objects that were written: path -> headers
        self.sums = ()  # names of the checksums that the store keeps


class Handler(servers.Handler):
    quoted = True  # ETags in listings

    @staticmethod
    def now():
        """By this server's clock."""
        return time.time()

    def date_time_string(self, timestamp=None):
        return email.utils.formatdate(self.now() if timestamp is None else timestamp, usegmt=True)

    def say(self, code, body=b"", **headers):
        with self.server.lock:
            self.server.said[code] += 1
        self.server.lines.append((self.command, self.path))
        super().say(code, body, **headers)

    def keep_attributes(self):
        """Keeps the headers of a request that writes an object."""
        kept = {}
        for name, value in self.headers.items():
            name = name.lower()
            if name.startswith(("x-amz-meta-", "x-goog-meta-", "x-ms-meta-")):
                kept[name] = value
            name = name.removeprefix("x-ms-blob-")
            if name in ("content-type", "content-encoding", "content-language",
                        "content-disposition", "cache-control"):
                kept[name] = value
        self.server.attributes[self.path.partition("?")[0]] = kept

    def body(self):
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def refuse(self, code, name, **headers):
        self.say(code, f"<Error><Code>{name}</Code><Message>no</Message></Error>".encode(),
                 **headers)

    def split(self):
        """Path parts and query, decoded; the path is taken as it is sent."""
        path, _, query = self.path.partition("?")
        bucket, _, key = path.lstrip("/").partition("/")
        pairs = urllib.parse.parse_qsl(query, keep_blank_values=True)
        return urllib.parse.unquote(bucket), urllib.parse.unquote(key), dict(pairs)

    @staticmethod
    def etag(data):
        return hashlib.md5(data).hexdigest()

    def give(self, data, **more):
        """Sends a body, or a range of it, of the requested version."""
        etag = f'"{self.etag(data)}"'
        wanted = self.headers.get("If-Match")
        headers = {"ETag": etag, "Last-Modified": email.utils.formatdate(MODIFIED, usegmt=True),
                   "Accept-Ranges": "bytes", **more,
                   **self.server.attributes.get(self.path.partition("?")[0], {})}
        if wanted not in (None, "*", etag):
            self.refuse(412, "PreconditionFailed")
            return
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or
                             self.headers.get("x-ms-range", ""))
        if not match:
            self.say(200, data, **headers, **self.seals(data, data))
            return
        first, last = int(match[1]), min(int(match[2] or len(data) - 1), len(data) - 1)
        if first >= len(data):
            self.refuse(416, "InvalidRange", Content_Range=f"bytes */{len(data)}")
            return
        self.say(206, data[first : last + 1],
                 Content_Range=f"bytes {first}-{last}/{len(data)}", **headers,
                 **self.seals(data, data[first : last + 1], True))

    def seals(self, data, body, ranged=False):
        """Headers that tell checksums."""
        return {}

    def names(self, bucket, prefix, delimiter):
        """The entries below a prefix, in order: (name, data), or (prefix, None)."""
        found = {}
        for (place, key), data in self.server.objects.items():
            if place == bucket and key.startswith(prefix):
                rest, cut, _ = key[len(prefix):].partition(delimiter) if delimiter else (key, "", 0)
                found[prefix + rest + cut if cut else key] = None if cut else data
        return sorted(found.items(), key=lambda item: item[0].encode())


def signing_key(secret, *scope):
    key = ("AWS4" + secret).encode()
    for part in scope:
        key = hmac.digest(key, part.encode(), "sha256")
    return key


def signature(handler, secret):
    """The signature that the Authorization header of a request must have, by the definition of
    Signature V4."""
    head = handler.headers
    scope = re.search(r"Credential=[^/]+/([^,]+)", head["Authorization"])[1]
    names = re.search(r"SignedHeaders=([^,]+)", head["Authorization"])[1]
    path, _, query = handler.path.partition("?")
    pairs = sorted(pair if "=" in pair else pair + "=" for pair in query.split("&") if pair)
    lines = [f"{name}:{' '.join(head[name].split())}\n" for name in names.split(";")]
    canonical = "\n".join([handler.command, path, "&".join(pairs), "".join(lines), names,
                           head["x-amz-content-sha256"]])
    text = "\n".join(["AWS4-HMAC-SHA256", head["x-amz-date"], scope,
                      hashlib.sha256(canonical.encode()).hexdigest()])
    return hmac.new(signing_key(secret, *scope.split("/")), text.encode(), "sha256").hexdigest()


class S3(Handler):
    """Path style. `server.keys`: key -> (secret, token, expiry time). `server.retry_every`: one of
    so many requests is answered with "retry in a second"; the client must sign the retry again."""

    def who(self):
        """True if the request may proceed; else the refusal was sent."""
        head = self.headers.get("Authorization", "")
        key = re.search(r"Credential=([^/]+)/", head)
        keys = self.server.keys
        if keys is None and not head:
            return True
        if keys is None or not key or key[1] not in keys:
            self.refuse(403, "InvalidAccessKeyId")
            return False
        secret, token, ends = keys[key[1]]
        if self.headers.get("x-amz-security-token", "") != token:
            self.refuse(400, "InvalidToken")
        elif time.time() >= ends:
            self.refuse(400, "ExpiredToken")
        elif not head.endswith("Signature=" + signature(self, secret)):
            self.refuse(403, "SignatureDoesNotMatch")
        else:
            with self.server.lock:
                self.server.seen.append(key[1])
            return True
        return False

    def throttled(self):
        """Answers one of `retry_every` requests with "retry later", and records whether the client
        signs it again."""
        server, every = self.server, getattr(self.server, "retry_every", 0)
        name = (self.path, self.headers.get("Range"))
        with server.lock:
            before = server.reported.pop(name, None)
            if before:
                server.again.append((before, self.headers.get("x-amz-date")))
            server.count += 1
            if before or not every or server.count % every:
                return False
            server.reported[name] = self.headers.get("x-amz-date")
        self.refuse(503, "SlowDown", Retry_After="1")
        return True

    def seals(self, data, body, ranged=False):
        """None for a range, unless it is a part: `server.parts` is the part size, or a list of all
        sizes."""
        if self.headers.get("x-amz-checksum-mode") != "ENABLED":
            return {}
        kind, spans = "FULL_OBJECT", self.spans(data, getattr(self.server, "parts", 0))
        if spans:
            kind = "COMPOSITE"
        if ranged:
            first = int(re.match(r"bytes=(\d+)-", self.headers["Range"])[1])
            if (first, first + len(body)) not in spans:
                return {}
        make = ((lambda name: self.joined(name, data, spans)) if spans and not ranged
                else (lambda name: checksum(name, body)))
        reported = {f"x-amz-checksum-{name}": make(name) for name in self.server.sums}
        return {**reported, "x-amz-checksum-type": kind} if reported else {}

    @staticmethod
    def spans(data, sizes):
        """The start and end of each part; None if the object was written at once."""
        if isinstance(sizes, int):
            sizes = [sizes] * -(-len(data) // sizes) if sizes else []
        ends = [min(end, len(data)) for end in itertools.accumulate(sizes)]
        return list(zip([0, *ends], ends, strict=False))

    @staticmethod
    def joined(name, data, spans):
        sums = b"".join(base64.b64decode(checksum(name, data[begin:end])) for begin, end in spans)
        return f"{checksum(name, sums)}-{len(spans)}"

    def give_part(self, data, number):
        spans = self.spans(data, getattr(self.server, "parts", 0))
        if not 1 <= number <= max(len(spans), 1):
            self.refuse(416, "InvalidPartNumber")
            return
        begin, end = spans[number - 1] if spans else (0, len(data))
        reported = {f"x-amz-checksum-{name}": checksum(name, data[begin:end])
                for name in self.server.sums}
        self.say(206, data[begin:end], ETag=f'"{self.etag(data)}"',
                 Content_Range=f"bytes {begin}-{end - 1}/{len(data)}",
                 x_amz_mp_parts_count=str(len(spans)), **reported)

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        if not self.who() or self.throttled():
            return
        bucket, key, query = self.split()
        if "list-type" in query:
            self.list(bucket, query)
        elif (bucket, key) not in self.server.objects:
            self.refuse(404, "NoSuchKey")
        elif "partNumber" in query:
            self.give_part(self.server.objects[bucket, key], int(query["partNumber"]))
        else:
            self.give(self.server.objects[bucket, key])

    def list(self, bucket, query):
        quote = urllib.parse.quote
        items = self.names(bucket, query.get("prefix", ""), query.get("delimiter", ""))
        after = base64.b64decode(query.get("continuation-token", "")).decode()
        items = [item for item in items if item[0] > after]
        most = min(int(query.get("max-keys", 1000)), self.server.page)
        more = len(items) > most
        items = items[:most]
        text = [f"<IsTruncated>{str(more).lower()}</IsTruncated><EncodingType>url</EncodingType>"]
        if more:
            token = base64.b64encode(items[-1][0].encode()).decode()
            text.append(f"<NextContinuationToken>{token}</NextContinuationToken>")
        for name, data in items:
            if data is None:
                text.append(f"<CommonPrefixes><Prefix>{quote(name)}</Prefix></CommonPrefixes>")
            else:
                text.append(f"<Contents><Key>{quote(name)}</Key><Size>{len(data)}</Size>"
                            f"<ETag>&quot;{self.etag(data)}&quot;</ETag>"
                            f"<LastModified>{iso(MODIFIED)}</LastModified>"
                            f"<StorageClass>{self.class_of(bucket, name)}</StorageClass>"
                            "</Contents>")
        self.say(200, f"<ListBucketResult>{''.join(text)}</ListBucketResult>".encode())

    def class_of(self, bucket, key):
        return "STANDARD"


class Google(S3):
    """The XML interface, for a bearer token (`server.token`) or HMAC keys (`server.keys`)."""

    def who(self):
        head = self.headers.get("Authorization", "")
        if self.server.token is None:
            return super().who()
        if head != f"Bearer {self.server.token}":
            self.refuse(401, "AuthenticationRequired")
            return False
        return True

    def give(self, data, **more):
        if self.headers.get("Accept-Encoding") != "gzip":
            self.refuse(400, "ItWouldBeUnpacked")
            return
        super().give(data, x_goog_generation="1700000000000001",
                     x_goog_stored_content_encoding="identity", **more)

    def fits(self, data):
        """True if the body matches the headers of the request."""
        header = self.headers.get("x-goog-hash", "")
        reported = dict(part.split("=", 1) for part in header.split(",") if part)
        if not reported or any(checksum(name, data) != value for name, value in reported.items()):
            self.refuse(400, "BadDigest")
            return False
        return True

    def generation(self, place):
        """True if the existing object may be replaced."""
        wanted = self.headers.get("x-goog-if-generation-match")
        if wanted == "0" and place in self.server.objects:
            self.refuse(412, "PreconditionFailed")
            return False
        return True

    def do_PUT(self):
        data, server = self.body(), self.server
        bucket, key, query = self.split()
        if not self.who() or self.throttled():
            return
        if "x-goog-copy-source" in self.headers:
            source = urllib.parse.unquote(self.headers["x-goog-copy-source"]).partition("/")[::2]
            if self.generation((bucket, key)):
                server.objects[bucket, key] = server.objects[source]
                server.attributes[self.path] = server.attributes.get(
                    "/" + self.headers["x-goog-copy-source"], {})
                self.say(200, b"<CopyObjectResult><ETag>\"x\"</ETag></CopyObjectResult>")
        elif not self.fits(data):
            return
        elif "uploadId" in query:
            if query["uploadId"] not in server.uploads:
                self.refuse(404, "NoSuchUpload")
                return
            server.uploads[query["uploadId"]][1][int(query["partNumber"])] = data
            self.say(200, ETag=f'"{self.etag(data)}"')
        elif self.generation((bucket, key)):
            server.objects[bucket, key] = data
            self.keep_attributes()
            self.say(200, ETag=f'"{self.etag(data)}"')

    def do_POST(self):
        data, server = self.body(), self.server
        bucket, key, query = self.split()
        if not self.who() or self.throttled():
            return
        if "x-goog-if-generation-match" in self.headers:
            self.refuse(400, "InvalidArgument")  # no condition is known here
        elif "uploads" in query:
            self.keep_attributes()
            name = f"upload-{next(server.numbers)}"
            server.uploads[name] = ((bucket, key), {})
            self.say(200, f"<InitiateMultipartUploadResult><UploadId>{name}</UploadId>"
                          "</InitiateMultipartUploadResult>".encode())
        elif query.get("uploadId") not in server.uploads:
            self.refuse(404, "NoSuchUpload")
        else:
            place, parts = server.uploads.pop(query["uploadId"])
            numbers = [int(n) for n in re.findall(rb"<PartNumber>(\d+)<", data)]
            server.objects[place] = b"".join(parts[number] for number in numbers)
            self.say(200, b"<CompleteMultipartUploadResult><ETag>\"x-2\"</ETag>"
                          b"</CompleteMultipartUploadResult>")

    def do_DELETE(self):
        bucket, key, query = self.split()
        if not self.who():
            return
        gone = (self.server.uploads.pop(query["uploadId"], None) if "uploadId" in query
                else self.server.objects.pop((bucket, key), None))
        if gone is None:
            self.refuse(404, "NoSuchUpload" if "uploadId" in query else "NoSuchKey")
        else:
            self.say(204)

    def do_GET(self):
        bucket, key, query = self.split()
        if not self.who():
            return
        if "uploads" in query:
            text = "".join(f"<Upload><Key>{urllib.parse.quote(place[1])}</Key><UploadId>{name}"
                           "</UploadId><Initiated>2026-11-21T10:00:00.000Z</Initiated></Upload>"
                           for name, (place, _) in self.server.uploads.items()
                           if place[1].startswith(query.get("prefix", "")))
            text = f"<ListMultipartUploadsResult>{text}</ListMultipartUploadsResult>"
            self.say(200, text.encode())
        elif "uploadId" in query:
            parts = self.server.uploads[query["uploadId"]][1]
            text = "".join(f"<Part><PartNumber>{number}</PartNumber><ETag>\"{self.etag(data)}\""
                           f"</ETag><Size>{len(data)}</Size></Part>"
                           for number, data in sorted(parts.items())
                           if number > int(query.get("part-number-marker", 0)))
            self.say(200, f"<ListPartsResult>{text}</ListPartsResult>".encode())
        else:
            super().do_GET()

    def seals(self, data, body, ranged=False):
        """Checksum of the whole object, also if a range of it is sent."""
        reported = ",".join(f"{name}={checksum(name, data)}" for name in self.server.sums)
        return {"x-goog-hash": reported} if reported else {}


class Azure(Handler):
    """Azure Blob Storage: `server.keys`: account -> key in base64; `server.token`; `server.sas`. An
    entry of `server.folders` (place -> "type" or "metadata") is an empty blob that represents a
    folder, as an account with a hierarchical namespace has it, or as Hadoop writes it."""

    def do_PUT(self):
        self.data = self.body()
        self.do_GET()

    def do_DELETE(self):
        self.do_GET()

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        head = self.headers.get("Authorization", "")
        server = self.server
        path, _, query = self.path.partition("?")
        if self.headers.get("x-ms-version", "") < "2017-11-09":
            self.refuse(400, "UnsupportedHeader")
        elif server.sas is not None and server.sas not in query:
            self.refuse(403, "AuthenticationFailed")
        elif server.token is not None and head != f"Bearer {server.token}":
            self.refuse(401, "InvalidAuthenticationInfo")
        elif server.keys is not None and head != self.shared_key(path, query):
            self.refuse(403, "AuthenticationFailed")
        else:
            self.answer()

    def seals(self, data, body, ranged=False):
        if self.headers.get("x-ms-range-get-content-crc64") != "true" or not self.server.sums:
            return {}
        if len(body) > 4 << 20:
            raise ValueError("InvalidHeaderValue")
        turned = base64.b64decode(checksum("crc64nvme", body))[::-1]
        return {"x-ms-content-crc64": base64.b64encode(turned).decode()}

    def shared_key(self, path, query):
        """By the definition: https://learn.microsoft.com/rest/api/storageservices."""
        account = next(iter(self.server.keys))
        head = self.headers
        words = [self.command] + [head.get(name, "") for name in (
            "Content-Encoding", "Content-Language", "Content-Length", "Content-MD5", "Content-Type",
            "Date", "If-Modified-Since", "If-Match", "If-None-Match", "If-Unmodified-Since",
            "Range")]
        words[3] = "" if words[3] == "0" else words[3]  # since 2015-02-21
        own = sorted((name.lower(), value) for name, value in head.items()
                     if name.lower().startswith("x-ms-"))
        words += [f"{name}:{value}" for name, value in own]
        resource = f"/{account}{path}"
        for name, value in sorted(urllib.parse.parse_qsl(query, keep_blank_values=True)):
            resource += f"\n{name.lower()}:{value}"
        key = base64.b64decode(self.server.keys[account])
        made = hmac.digest(key, "\n".join([*words, resource]).encode(), "sha256")
        return f"SharedKey {account}:{base64.b64encode(made).decode()}"

    def answer(self):
        account, _, rest = urllib.parse.unquote(self.path.partition("?")[0]).lstrip("/").partition(
            "/")
        container, _, key = rest.partition("/")
        query = dict(urllib.parse.parse_qsl(self.path.partition("?")[2], keep_blank_values=True))
        data = self.server.objects.get((container, key))
        if account != self.server.account:
            self.refuse(400, "InvalidUri")
        elif self.command == "PUT":
            self.put((container, key), query)
        elif self.command == "DELETE":
            if self.server.objects.pop((container, key), None) is None:
                self.refuse(404, "BlobNotFound", x_ms_error_code="BlobNotFound")
            else:
                self.say(202)
        elif query.get("comp") == "blocklist":
            self.blocks((container, key), query["blocklisttype"])
        elif query.get("comp") == "list" and query.get("restype") == "container":
            self.list(container, query)
        elif (container, key) in self.server.archived:
            self.refuse(409, "BlobArchived", x_ms_error_code="BlobArchived")
        elif data is None:
            self.refuse(404, "BlobNotFound", x_ms_error_code="BlobNotFound")
        else:
            kind = self.server.folders.get((container, key))
            self.give(data, x_ms_blob_type="BlockBlob", **{
                "type": {"x-ms-resource-type": "directory", "x-ms-meta-hdi_isfolder": "true"},
                "metadata": {"x-ms-meta-Hdi_isfolder": "true"}}.get(kind, {}))

    def put(self, place, query):
        """A blob, a block of one, or the list of its blocks."""
        crc = base64.b64decode(checksum("crc64nvme", self.data))
        reported = base64.b64encode(crc[::-1]).decode()
        if self.headers.get("x-ms-content-crc64") != reported:
            self.refuse(400, "Crc64Mismatch", x_ms_error_code="Crc64Mismatch")
        elif query.get("comp") == "block":
            there = self.server.blocks.setdefault(place, {})
            if any(len(name) != len(query["blockid"]) for name in there):
                self.refuse(400, "InvalidBlobOrBlock", x_ms_error_code="InvalidBlobOrBlock")
                return
            there[query["blockid"]] = self.data
            self.say(201, x_ms_content_crc64=reported)
        elif self.headers.get("If-None-Match") == "*" and place in self.server.objects:
            self.refuse(409, "BlobAlreadyExists", x_ms_error_code="BlobAlreadyExists")
        elif query.get("comp") == "blocklist":
            names = re.findall(r"<Latest>([^<]*)</Latest>", self.data.decode())
            there = {**self.server.committed.get(place, {}), **self.server.blocks.pop(place, {})}
            if any(name not in there for name in names):
                self.refuse(400, "InvalidBlockList", x_ms_error_code="InvalidBlockList")
                return
            self.keep_attributes()
            self.server.committed[place] = {name: there[name] for name in names}
            self.server.objects[place] = b"".join(there[name] for name in names)
            self.say(201, ETag='"0x1"')
        elif self.headers.get("x-ms-blob-type") != "BlockBlob":
            self.refuse(400, "MissingRequiredHeader", x_ms_error_code="MissingRequiredHeader")
        else:
            self.keep_attributes()
            self.server.objects[place] = self.data
            self.say(201, ETag='"0x1"')

    def blocks(self, place, kind):
        there = (self.server.blocks if kind == "uncommitted" else self.server.committed).get(place)
        if there is None:
            self.refuse(404, "BlobNotFound", x_ms_error_code="BlobNotFound")
            return
        text = "".join(f"<Block><Name>{name}</Name><Size>{len(data)}</Size></Block>"
                       for name, data in there.items())
        kind = kind.capitalize() + "Blocks"
        self.say(200, f"<BlockList><{kind}>{text}</{kind}></BlockList>".encode())

    def list(self, container, query):
        items = self.names(container, query.get("prefix", ""), query.get("delimiter", ""))
        after = base64.b64decode(query.get("marker", "")).decode()
        items = [item for item in items if item[0] > after]
        most = min(int(query.get("maxresults", 5000)), self.server.page)
        marker = base64.b64encode(items[most - 1][0].encode()) if len(items) > most else b""
        text = []
        for name, data in items[:most]:
            if re.search("[\x00-\x1f]", name):
                shown = f'<Name Encoded="true">{urllib.parse.quote(name)}</Name>'
            else:
                shown = f"<Name>{escape(name)}</Name>"
            if data is None:
                text.append(f"<BlobPrefix>{shown}</BlobPrefix>")
            else:
                date = email.utils.formatdate(MODIFIED, usegmt=True)
                kind = self.server.folders.get((container, name))
                folder = "<ResourceType>directory</ResourceType>" if kind == "type" else ""
                more = ("<Metadata><hdi_isfolder>true</hdi_isfolder></Metadata>"
                        if kind == "metadata" and query.get("include") == "metadata" else
                        "<Metadata><ResourceType>directory</ResourceType></Metadata>")
                text.append(f"<Blob>{shown}<Properties><Last-Modified>{date}</Last-Modified>"
                            f"<Etag>{self.etag(data)}</Etag><Content-Length>{len(data)}"
                            f"</Content-Length><BlobType>BlockBlob</BlobType>{folder}</Properties>"
                            f"{more}<OrMetadata /></Blob>")
        self.say(200, ('<?xml version="1.0" encoding="utf-8"?><EnumerationResults '
                       f'ServiceEndpoint="x" ContainerName="{container}"><Blobs>{"".join(text)}'
                       f"</Blobs><NextMarker>{marker.decode()}</NextMarker></EnumerationResults>"
                       ).encode(), Content_Type="application/xml")


class Hub(Handler):
    """Hugging Face: `server.token`; files by (repository@revision, path), also of
    "models/org/name". Large files are at another host (`server.far`), behind signed URLs that work
    for a limited number of uses; a file named *.json is on this host, behind a redirect."""

    def do_GET(self):
        server = self.server
        path, _, query = self.path.partition("?")
        server.seen.append((path, self.headers.get("Authorization")))
        if server.token and self.headers.get("Authorization") != f"Bearer {server.token}":
            self.fail(401, "RepoNotFound", "Repository not found")
            return
        parts = [urllib.parse.unquote(part) for part in path.lstrip("/").split("/")]
        if parts[0] == "api" and parts[4] == "tree":
            self.tree("/".join(parts[1:4]) + "@" + parts[5], "/".join(parts[6:]), query)
        elif parts[0] == "here":
            self.give(server.objects[parts[1].replace("|", "/"), "/".join(parts[2:])])
        elif parts[2] == "resolve":
            self.resolve("models/" + "/".join(parts[:2]) + "@" + parts[3], "/".join(parts[4:]))
        elif parts[3] == "resolve":
            self.resolve("/".join(parts[:3]) + "@" + parts[4], "/".join(parts[5:]))
        else:
            self.fail(404, "EntryNotFound", "no")

    def fail(self, code, name, message):
        self.say(code, b'{"error": "no"}', X_Error_Code=name, X_Error_Message=message)

    def resolve(self, repository, path):
        server, linked = self.server, {}
        if server.linked and (repository, path) in server.objects:
            reported = self.reported(path, server.objects[repository, path])
            linked = {"X_Linked_ETag": f'"{reported.get("lfs", reported)["oid"]}"',
                      "X_Repo_Commit": "c" * 40}
        if (repository, path) not in server.objects:
            self.fail(404, "EntryNotFound", f"{path} is not there")
        elif server.elsewhere:
            self.say(302, Location=server.elsewhere)
        elif path.endswith(".json"):
            name = repository.replace("/", "|")
            self.say(307, Location="/" + urllib.parse.quote(f"here/{name}/{path}"), **linked)
        else:
            with server.lock:
                server.signed += 1
                lost = server.lost[path] < server.lose
                server.lost[path] += lost
                server.far.uses[str(server.signed)] = 0 if lost else server.uses
            quoted = urllib.parse.quote(f"{repository.replace('/', '|')}/{path}")
            self.say(302, Location=f"{server.far.url}/{quoted}?Signature={server.signed}",
                     **linked)

    @staticmethod
    def reported(name, data):
        """Small files are in git itself; for others git has a pointer."""
        item = {"type": "file", "size": len(data), "path": name}
        if name.endswith(".json"):
            blob = b"blob %d\0" % len(data) + data
            return {**item, "oid": hashlib.sha1(blob).hexdigest()}
        return {**item, "oid": "0" * 40, "lfs": {"oid": hashlib.sha256(data).hexdigest(),
                                                 "size": len(data), "pointerSize": 134}}

    def tree(self, repository, folder, query):
        prefix = folder + "/" if folder else ""
        items = self.names(repository, prefix, "" if "recursive=true" in query else "/")
        after = urllib.parse.unquote(dict(urllib.parse.parse_qsl(query)).get("cursor", ""))
        items = [item for item in items if item[0] > after]
        more = len(items) > self.server.page
        items = items[:self.server.page]
        if not items:
            self.fail(404, "EntryNotFound", "no such folder")
            return
        reported = [{"type": "directory", "oid": "x", "size": 0, "path": name.rstrip("/")}
                if data is None else self.reported(name, data) for name, data in items]
        link = {}
        if more:
            cursor = urllib.parse.quote(items[-1][0], safe="")
            path = self.path.partition("?")[0]
            link["Link"] = f'<{self.server.url}{path}?cursor={cursor}>; rel="next"'
        self.say(200, json.dumps(reported).encode(), Content_Type="application/json", **link)


class Far(Handler):
    """The host of the hub's large files: a request with a valid signature may read, a limited
    number of times."""

    def do_GET(self):
        server = self.server
        path, _, query = self.path.partition("?")
        server.seen.append((path, self.headers.get("Authorization")))
        number = query.partition("=")[2]
        with server.lock:
            good = server.uses.get(number, 0) > 0
            server.uses[number] = server.uses.get(number, 0) - 1
        repository, _, key = urllib.parse.unquote(path)[1:].partition("/")
        if good:
            self.give(server.objects[repository.replace("|", "/"), key])
        else:
            self.refuse(403, "AccessDenied")


class Keeper(Handler):
    """STS and an instance's metadata: issues keys that live for `server.life` seconds and adds them
    to the dictionary that the store checks. `server.most` records the
    largest number of concurrent requests."""

    def make(self):
        server = self.server
        with server.lock:
            server.given += 1
            key = f"ASIA{server.given:016}"
        ends = int(time.time()) + server.life
        server.keys[key] = (f"secret-{key}", f"token/+={key}", ends)
        return key, *server.keys[key]

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        with self.server.lock:
            self.server.now += 1
            self.server.most = max(self.server.most, self.server.now)
        time.sleep(0.05)
        key, secret, token, ends = self.make()
        self.say(200, f"<R><AccessKeyId>{key}</AccessKeyId><SecretAccessKey>{secret}"
                 f"</SecretAccessKey><SessionToken>{token}</SessionToken>"
                 f"<Expiration>{iso(ends)}</Expiration></R>".encode())
        with self.server.lock:
            self.server.now -= 1

    def do_PUT(self):
        self.say(200, b"metadata-token")

    def do_GET(self):
        if self.headers.get("x-aws-ec2-metadata-token") != "metadata-token":
            self.say(401)
        elif self.path.endswith("/security-credentials/"):
            self.say(200, b"a-role")
        else:
            key, secret, token, ends = self.make()
            self.say(200, json.dumps({
                "Code": "Success", "AccessKeyId": key, "SecretAccessKey": secret, "Token": token,
                "Expiration": iso(ends)}).encode())


def s3(objects, keys=None, retry_every=0):
    store = Store(S3, objects)
    store.keys, store.retry_every = keys, retry_every
    store.reported, store.again, store.count = {}, [], 0
    return store


def keeper(keys, life):
    server = Store(Keeper, {})
    server.keys, server.life, server.given, server.now, server.most = keys, life, 0, 0, 0
    return server


def google(objects, keys=None, token=None):
    store = Store(Google, objects)
    store.keys, store.token = keys, token
    store.reported, store.again, store.count = {}, [], 0
    store.uploads, store.numbers = {}, itertools.count()
    return store


def azure(objects, keys=None, token=None, sas=None, account="acc"):
    store = Store(Azure, objects)
    store.keys, store.token, store.sas, store.account = keys, token, sas, account
    store.archived = set()
    store.blocks, store.committed, store.folders = {}, {}, {}
    return store


def hub(objects, token=None, uses=10):
    far = Store(Far, objects)
    far.uses = {}
    store = Store(Hub, objects)
    store.far, store.token, store.uses, store.signed = far, token, uses, 0
    store.elsewhere, store.linked = None, True  # the server reports checksums of files
    # number of signatures for a file that do not work
    store.lose, store.lost = 0, collections.Counter()
    return store
