"""S3 Express One Zone: sessions, listings in no order, ETags that are not MD5s.

Method: a server of the test that is as strict as the documentation says the real one is: sessions
are requested with SigV4 for `s3express`, all other requests are signed by a session's keys, with
its token in x-amz-s3session-token; botocore's own signers compute the signatures again; a listing
with a start, or of a prefix that ends inside a name, is refused. boto3 reads and writes on the same
server, which verifies the server against an independent client."""

import calendar
import hashlib
import html
import json
import os
import re
import time

import object_server
import pytest
import stoker
from test_copy import FILES, below, copy, random_bytes, run, tree  # noqa: F401
from test_providers import clean  # noqa: F401
from test_sse_keys import Sealing

boto3 = pytest.importorskip("boto3")
BUCKET = "train--usw2-az1--x-s3"
KEYS = ("AKBASE", "base secret")


def signed_by(handler, key, secret, token):
    """Whether botocore signs it the same way."""
    from botocore.auth import S3ExpressAuth, S3SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    head = handler.headers
    match = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=([^/]+)/\d{8}/us-west-2/s3express/"
                         r"aws4_request, ?SignedHeaders=([^,]+), ?Signature=([0-9a-f]{64})",
                         head.get("Authorization", ""))
    if not match or match[1] != key:
        return False
    names = match[2].split(";")
    kind, other = ("x-amz-s3session-token", "x-amz-security-token")[::1 if token else -1]
    if other in head or (token and (kind not in names or head[kind] != token)):
        return False
    request = AWSRequest(handler.command, f"{handler.server.url}{handler.path}",
                         headers={name: head[name] for name in names})
    request.context["timestamp"] = head["x-amz-date"]
    who = Credentials(key, secret, token)
    auth = S3ExpressAuth(who, "s3express", "us-west-2", identity_cache=None) if token else (
        S3SigV4Auth(who, "s3express", "us-west-2"))
    text = auth.string_to_sign(request, auth.canonical_request(request))
    return auth.signature(text, request) == match[3]


class Express(Sealing):
    @staticmethod
    def etag(data):  # it looks like an MD5, and is not one
        return hashlib.md5(data + b"!").hexdigest()

    def now(self):
        return time.time() + self.server.ahead

    def is_timely(self):
        """Whether it is signed by this server's clock, as Amazon's look at it: by 15 minutes."""
        reported = self.headers.get("x-amz-date", "20000101T000000Z")
        reported = calendar.timegm(time.strptime(reported, "%Y%m%dT%H%M%SZ"))
        return abs(reported - self.now()) < 900

    def session(self):
        server = self.server
        if not self.is_timely():
            self.refuse(403, "RequestTimeTooSkewed")
        elif not signed_by(self, *KEYS, None):
            self.refuse(403, "SignatureDoesNotMatch")
        elif server.mode and self.headers.get("x-amz-create-session-mode") != server.mode:
            self.refuse(403, "AccessDenied")
        else:
            with server.lock:
                server.sessions.append(0)
                number = len(server.sessions)
            self.say(200, f"""<?xml version="1.0" encoding="UTF-8"?>
<CreateSessionResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Credentials>
<SessionToken>token{number}</SessionToken><SecretAccessKey>secret{number}</SecretAccessKey>
<AccessKeyId>AK{number}</AccessKeyId><Expiration>{object_server.iso(self.now() + 300)}</Expiration>
</Credentials></CreateSessionResult>""".encode())

    def who(self):
        token = self.headers.get("x-amz-s3session-token", "token0")
        number = int(token.removeprefix("token"))
        if not self.is_timely():
            self.refuse(403, "RequestTimeTooSkewed")
            return False
        with self.server.lock:
            if number:
                self.server.sessions[number - 1] += 1
            ended = number == 1 and self.server.sessions[0] > self.server.uses
        if ended:
            self.refuse(400, "ExpiredToken")
            return False
        if not number or not signed_by(self, f"AK{number}", f"secret{number}", token):
            self.refuse(403, "SignatureDoesNotMatch")
            return False
        return True

    def do_GET(self):
        query = self.split()[2]
        self.server.requested.append((self.command, self.path))
        if "session" in query:
            self.session()
        elif "start-after" in query or query.get("delimiter", "/") != "/" or not (
                query.get("prefix", "/").endswith("/") or query["prefix"] == ""):
            self.refuse(400, "InvalidRequest")
        else:
            super().do_GET()

    def do_POST(self):
        if "delete" not in self.split()[2]:
            super().do_POST()
            return
        data = self.body()
        crc = object_server.checksum("crc32c", data)
        if not self.who():
            return
        if "Content-MD5" in self.headers or self.headers.get("x-amz-checksum-crc32c") != crc:
            self.refuse(400, "InvalidRequest")
            return
        for key in re.findall("<Key>([^<]*)</Key>", data.decode()):
            del self.server.objects[BUCKET, html.unescape(key)]
        self.say(200, b"<DeleteResult/>")

    def names(self, *words):
        """In no order, and the same each time."""
        return sorted(super().names(*words), key=lambda item: self.etag(item[0].encode()))

    def list(self, bucket, query):
        items = self.names(bucket, query.get("prefix", ""), query.get("delimiter", ""))
        first = int(query.get("continuation-token", 0))
        last = first + min(int(query.get("max-keys", 1000)), self.server.page)
        quote = object_server.urllib.parse.quote
        text = [f"<NextContinuationToken>{last}</NextContinuationToken><IsTruncated>true"
                "</IsTruncated>" if last < len(items) else "<IsTruncated>false</IsTruncated>",
                "<EncodingType>url</EncodingType>"]
        for name, data in items[first:last]:
            text.append(f"<CommonPrefixes><Prefix>{quote(name)}</Prefix></CommonPrefixes>"
                        if data is None else
                        f"<Contents><Key>{quote(name)}</Key><Size>{len(data)}</Size><ETag>&quot;"
                        f"{self.etag(data)}&quot;</ETag><LastModified>{object_server.iso(1.7e9)}"
                        "</LastModified></Contents>")
        self.say(200, f"<ListBucketResult>{''.join(text)}</ListBucketResult>".encode())


@pytest.fixture
def express(clean):  # noqa: F811
    server = object_server.s3({}, {})
    server.RequestHandlerClass = Express
    server.sealed, server.kms, server.uploads, server.requested = {}, {}, {}, []
    server.classes, server.ahead = {}, 0
    server.sessions, server.mode, server.uses, server.page = [], None, 10**9, 7
    for name, value in {"AWS_ENDPOINT_URL": server.url, "AWS_ACCESS_KEY_ID": KEYS[0],
                        "AWS_SECRET_ACCESS_KEY": KEYS[1], "AWS_REGION": "us-west-2",
                        "AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
                        "AWS_EC2_METADATA_DISABLED": "true"}.items():
        clean.setenv(name, value)
    yield server
    server.close()


def client(server):
    from botocore.config import Config

    return boto3.client("s3", endpoint_url=server.url, aws_access_key_id=KEYS[0],
                        aws_secret_access_key=KEYS[1], region_name="us-west-2",
                        config=Config(retries={"max_attempts": 0}))


def test_boto3_reads_stokers_uploads(express, tree, tmp_path):  # noqa: F811
    """And the reverse: botocore accepts the server as S3 Express."""
    assert copy("cp", "-r", tree, f"s3://{BUCKET}/x")["files"] == len(FILES)
    assert len(express.sessions) == 1
    other = client(express)
    for key in FILES:
        body = other.get_object(Bucket=BUCKET, Key=f"x/{key}")["Body"].read()
        assert body == (tree / key).read_bytes()
    other.put_object(Bucket=BUCKET, Key="x/theirs", Body=b"bytes")
    assert copy("cp", "-r", f"s3://{BUCKET}/x", tmp_path / "back")["files"] == len(FILES) + 1
    assert below(tmp_path / "back") == {**below(tree), "theirs": b"bytes"}
    assert copy("sync", f"s3://{BUCKET}/x", tmp_path / "back")["files_kept"] == len(FILES) + 1
    copy("cp", f"s3://{BUCKET}/x/plain", f"s3://{BUCKET}/y/plain")  # by the server
    assert express.objects[BUCKET, "y/plain"] == (tree / "plain").read_bytes()
    run("rm", "-r", "-y", f"s3://{BUCKET}/x")
    assert [key for _, key in express.objects] == ["y/plain"]


def objects(count):
    return {(BUCKET, f"set/{'abc'[i % 3]}/{i:03}.jpg"): random_bytes(500 + i, i)
            for i in range(count)}


def read(**options):
    fields = {"key": "__key__", "jpg": stoker.Bytes("jpg")}
    with stoker.Engine(threads=2, memory="128MiB", check_etags=True, **options) as engine:
        with stoker.Loader(stoker.Dataset(f"s3://{BUCKET}/set", engine=engine, index="never"), 8,
                           fields=fields, shuffle="none", tail="keep", output="numpy") as loader:
            found = [(key, bytes(value)) for batch in loader
                     for key, value in zip(batch["key"], batch["jpg"], strict=True)]
            return found, loader.stats()["store"]


@pytest.mark.parametrize("uses", [10**9, 25], ids=["one session", "it ends early"])
def test_loader(express, uses):
    """In the order of names, though the listing has none; of many concurrent requests one creates
    the session; a session that is refused as expired is replaced."""
    express.objects.update(objects(60))
    express.uses = uses
    found, reported = read()
    assert found == [(key.removeprefix("set/"), data)
                     for (_, key), data in sorted(express.objects.items())]
    assert reported["damaged"] == 0 and reported["s3"]["checked"] == 0  # ETags are no MD5s
    sessions = len(express.sessions)
    assert sessions == (1 if uses > 1000 else 2)
    assert not any("start-after" in path for _, path in express.requested)


@pytest.mark.parametrize("ahead", [3600, -3600], ids=["ahead", "behind"])
def test_another_clock(express, ahead):
    """The server's clock is an hour off: sessions are requested by its time and end by its time."""
    express.ahead = ahead
    express.objects.update(objects(8))
    assert len(read()[0]) == 8
    assert len(express.sessions) == 1


def test_read_only(express):
    """A client without permission for a write session gets a read session."""
    express.objects.update(objects(3))
    express.mode = "ReadOnly"
    assert len(read()[0]) == 3
    assert len(express.sessions) == 1


def test_refused(express, clean):  # noqa: F811
    express.mode = "unknown"
    text = run("cat", f"s3://{BUCKET}/x", ok=None)
    assert "s3express:CreateSession" in text and "AccessDenied" in text, text
    clean.setenv("AWS_SECRET_ACCESS_KEY", "another")
    assert "SignatureDoesNotMatch" in run("cat", f"s3://{BUCKET}/x", ok=None)
    clean.delenv("AWS_ACCESS_KEY_ID")
    clean.delenv("AWS_SECRET_ACCESS_KEY")
    assert "needs credentials" in run("cat", f"s3://{BUCKET}/x", ok=None)


def test_listed(express):
    express.objects.update(objects(20))
    lines = run("ls", "--files", "-r", "--json", f"s3://{BUCKET}/set").splitlines()
    assert sorted(f"set/{json.loads(line)['path']}" for line in lines) == sorted(
        key for _, key in express.objects)
