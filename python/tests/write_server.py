"""S3 for clients that write: objects, uploads by parts, conditions, archived objects, and a script
of failures, by request.

As strict as the real one: bodies are compared with their checksums, and so are whole objects and
the ETags of their parts when an upload ends; a part of an upload that does not exist is refused,
listings of uploads have pages. `store.requested` are the requests, as (method, key, query);
`store.script` is called before each: it may answer instead (and return so), or return a function
that is called when the request was carried out, before its answer."""

from __future__ import annotations

import hashlib
import re
import time
import urllib.parse
import xml.etree.ElementTree
from xml.sax.saxutils import escape

import object_server

QUOTE = urllib.parse.quote
HELD = 403, "AccessDenied", "Access Denied because object protected by object lock."


def now():
    return object_server.iso(time.time())


class Writing(object_server.S3):
    def who(self):
        return True

    def drop(self):
        """The connection ends, and nothing is answered."""
        self.close_connection = True
        self.connection.close()
        return True

    def say(self, code, body=b"", **headers):
        """The function that the script wants to run after the request is carried out, before the
        answer."""
        after, self.after = getattr(self, "after", None), None
        if after and code < 400 and after():
            return
        super().say(code, body, **headers)

    def refuse(self, code, name, message="no", **headers):
        self.say(code, f"<Error><Code>{name}</Code><Message>{message}</Message></Error>".encode(),
                 **headers)

    def begin(self):
        """True: the script answered."""
        self.data, self.made = self.body(), None
        bucket, self.key, self.query = self.split()
        self.spot = (bucket, self.key)
        server = self.server
        with server.lock:
            server.requested.append((self.command, self.key, self.query))
        if not self.who():
            return True
        done = server.script(self) if server.script else None
        self.after = done if callable(done) else None
        return done is True

    def sums(self):
        """The checksums that the request carries, by their names."""
        return {name[15:]: value for name, value in self.headers.items()
                if name.startswith("x-amz-checksum-") and name[15:] not in ("algorithm", "type")}

    def fits(self):
        head, data, sums = self.headers, self.data, self.sums()
        if "Content-MD5" in head:
            sums["md5"] = head["Content-MD5"]
        payload = head.get("x-amz-content-sha256", "UNSIGNED-PAYLOAD")
        if any(object_server.checksum(name, data) != value for name, value in sums.items()) or \
                payload not in ("UNSIGNED-PAYLOAD", hashlib.sha256(data).hexdigest()):
            self.refuse(400, "BadDigest")
            return False
        if self.server.locked and not sums:
            self.refuse(400, "InvalidRequest", "Content-MD5 OR x-amz-checksum- HTTP header is "
                        "required for Put Object requests with Object Lock parameters")
            return False
        return True

    def is_held(self, key):
        """Object lock: of a bucket without versions, as stores other than Amazon have it."""
        return (self.spot[0], key) in self.server.held

    def is_taken(self):
        return self.headers.get("If-None-Match") == "*" and self.spot in self.server.objects

    def do_PUT(self):
        if self.begin():
            return
        server, data = self.server, self.data
        source = self.headers.get("x-amz-copy-source")
        if source:
            data = server.objects[tuple(urllib.parse.unquote(source).lstrip("/").split("/", 1))]
            part = re.fullmatch(r"bytes=(\d+)-(\d+)",
                                self.headers.get("x-amz-copy-source-range", ""))
            data = data[int(part[1]):int(part[2]) + 1] if part else data
        elif not self.fits():
            return
        with server.lock:
            refused = self.put(data)
        if refused:
            self.refuse(*refused)
            return
        etag = f'"{self.etag(data)}"'
        kind = "CopyPartResult" if "uploadId" in self.query else "CopyObjectResult"
        body = f"<{kind}><ETag>{escape(etag)}</ETag></{kind}>".encode() if source else b""
        self.say(200, body, ETag=etag)

    def put(self, data):
        """With the lock: returns the conflict, or None."""
        if "uploadId" in self.query:
            upload = self.server.uploads.get(self.query["uploadId"])
            if not upload:
                return 404, "NoSuchUpload"
            upload[2][int(self.query["partNumber"])] = data
        elif self.is_taken():
            return 412, "PreconditionFailed"
        elif self.is_held(self.key):
            return HELD
        else:
            self.server.objects[self.spot] = data
        return None

    def do_POST(self):
        if self.begin():
            return
        server = self.server
        if "delete" in self.query:
            if self.fits():
                self.remove(re.findall(r"<Key>([^<]*)</Key>", self.data.decode()))
        elif "uploads" in self.query:
            with server.lock:
                server.begun += 1
                name = f"id-{server.begun:05}"
                server.uploads[name] = (self.spot, now(), {})
            self.say(200, f"<InitiateMultipartUploadResult><UploadId>{name}</UploadId>"
                          "</InitiateMultipartUploadResult>".encode())
        else:
            self.complete()

    def remove(self, keys):
        held = [key for key in keys if self.is_held(key)]
        for key in set(keys) - set(held):
            self.server.objects.pop((self.spot[0], key), None)
        errors = "".join(f"<Error><Key>{key}</Key><Code>AccessDenied</Code><Message>{HELD[2]}"
                         "</Message></Error>" for key in held)
        self.say(200, f"<DeleteResult>{errors}</DeleteResult>".encode())

    def complete(self):
        server = self.server
        with server.lock:
            refused = self.join(self.query.get("uploadId"))
        if refused:
            self.refuse(*refused)
            return
        self.say(200, b"<CompleteMultipartUploadResult><ETag>&quot;x&quot;</ETag>"
                      b"</CompleteMultipartUploadResult>")

    def join(self, name):
        """With the lock: makes the object of its parts; or returns the conflict."""
        server = self.server
        if name not in server.uploads:
            return 404, "NoSuchUpload"
        if self.is_taken():
            return 412, "PreconditionFailed"
        parts, bodies = server.uploads[name][2], []
        for row in xml.etree.ElementTree.fromstring(self.data).iter("Part"):
            reported = {field.tag: field.text for field in row}
            body = parts.get(int(reported.pop("PartNumber")))
            if body is None or reported.pop("ETag").strip('"') != self.etag(body):
                return 400, "InvalidPart"
            if any(object_server.checksum(kind.removeprefix("Checksum").lower(), body) != value
                   for kind, value in reported.items()):
                return 400, "InvalidPart"
            bodies.append(body)
        whole = b"".join(bodies)
        if self.headers.get("x-amz-checksum-type") == "FULL_OBJECT" and any(
                object_server.checksum(kind, whole) != value
                for kind, value in self.sums().items()):
            return 400, "BadDigest"
        del server.uploads[name]
        etag = hashlib.md5(b"".join(hashlib.md5(body).digest() for body in bodies)).hexdigest()
        server.objects[self.spot] = whole
        server.etags[self.spot] = server.etag or f"{etag}-{len(bodies)}"
        server.kept[self.spot] = {name: value for name, value in self.headers.items()
                                  if name.startswith("x-amz-checksum-")}
        return None

    def do_DELETE(self):
        if self.begin():
            return
        if "uploadId" in self.query and self.server.uploads.pop(self.query["uploadId"],
                                                                None) is None:
            self.refuse(404, "NoSuchUpload")
            return
        if "uploadId" not in self.query and self.is_held(self.key):
            self.refuse(*HELD)
            return
        if "uploadId" not in self.query:
            self.server.objects.pop(self.spot, None)
        self.say(204)

    def do_GET(self):
        if self.begin():
            return
        if "uploads" in self.query:
            self.list_uploads()
        elif "uploadId" in self.query:
            self.list_parts()
        elif "list-type" in self.query:
            self.list(self.spot[0], self.query)
        elif self.spot not in self.server.objects:
            self.refuse(404, "NoSuchKey")
        else:
            self.give(self.server.objects[self.spot])

    def class_of(self, bucket, key):
        return self.server.classes.get((bucket, key), ("",))[0] or "STANDARD"

    def give(self, data, **more):
        kind, restore = self.server.classes.get(self.spot, ("", ""))
        if kind:
            more["x-amz-storage-class"] = kind
        if restore:
            more["x-amz-restore"] = restore
        if kind in ("GLACIER", "DEEP_ARCHIVE") and self.command == "GET" and \
                "ongoing-request=\"false\"" not in restore:
            self.say(403, "<Error><Code>InvalidObjectState</Code><Message>not valid for its class"
                          f"</Message><StorageClass>{kind}</StorageClass></Error>".encode())
            return
        self.made = self.server.etags.get(self.spot) if self.spot in self.server.etags else None
        super().give(data, **more)

    def etag(self, data):
        return getattr(self, "made", None) or hashlib.md5(data).hexdigest()

    def seals(self, data, body, ranged=False):
        requested = self.headers.get("x-amz-checksum-mode") == "ENABLED" and not ranged
        return self.server.kept.get(self.spot, {}) if requested else {}

    def list_uploads(self):
        query, server = self.query, self.server
        with server.lock:
            there = list(server.uploads.items())
        rows = sorted((spot[1], name, begun) for name, (spot, begun, _) in there
                      if spot[0] == self.spot[0] and spot[1].startswith(query.get("prefix", "")))
        marker = (query.get("key-marker", ""), query.get("upload-id-marker", ""))
        rows = [row for row in rows if row[:2] > marker]
        some, more = rows[:server.upload_page], len(rows) > server.upload_page
        said = QUOTE if query.get("encoding-type") == "url" else escape
        text = "".join(f"<Upload><Key>{said(key)}</Key><UploadId>{name}</UploadId>"
                       f"<Initiated>{begun}</Initiated></Upload>" for key, name, begun in some)
        if more:
            text += (f"<NextKeyMarker>{said(some[-1][0])}</NextKeyMarker>"
                     f"<NextUploadIdMarker>{some[-1][1]}</NextUploadIdMarker>")
        self.say(200, f"<ListMultipartUploadsResult><IsTruncated>{str(more).lower()}</IsTruncated>"
                      f"{text}</ListMultipartUploadsResult>".encode())

    def list_parts(self):
        with self.server.lock:
            upload = self.server.uploads.get(self.query["uploadId"])
            parts = sorted(upload[2].items()) if upload else []
        if not upload:
            self.refuse(404, "NoSuchUpload")
            return
        some = [row for row in parts
                if row[0] > int(self.query.get("part-number-marker", 0))]
        more = len(some) > self.server.part_page
        some = some[:self.server.part_page]
        text = "".join(f"<Part><PartNumber>{number}</PartNumber><ETag>&quot;{self.etag(data)}&quot;"
                       f"</ETag><Size>{len(data)}</Size></Part>"
                       for number, data in some)
        self.say(200, f"<ListPartsResult><IsTruncated>{str(more).lower()}</IsTruncated>{text}"
                      "</ListPartsResult>".encode())


def serve(objects=None, handler=Writing):
    store = object_server.Store(handler, {} if objects is None else objects)
    store.keys, store.retry_every = None, 0
    store.reported, store.again, store.count = {}, [], 0
    store.requested, store.script = [], None
    store.uploads, store.begun, store.upload_page = {}, 0, 1000  # id -> (spot, begun, parts)
    store.part_page = 1000
    store.etags, store.classes = {}, {}  # by spot; (class, restore)
    store.etag, store.kept = None, {}  # of objects by parts; their checksums, by position
    store.locked, store.held = False, set()  # whether each body needs a checksum; spots
    return store


def lead_to(store, monkeypatch):
    """Also handles requests of this process."""
    for name, value in environment(store).items():
        monkeypatch.setenv(name, value)


def environment(store):
    """The environment that a client needs, without any configuration of this machine."""
    return {"AWS_ENDPOINT_URL": store.url, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "s",
            "AWS_REGION": "us-east-1", "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", "AWS_EC2_METADATA_DISABLED": "true"}
