"""Encryption of objects with customer keys: SSE-C, whose key is sent with each request, and
SSE-KMS.

Goal: boto3 reads with the key what stoker wrote with it, and not without; and the reverse; no key
is printed or sent in plain text. Method: Ceph's gateway for SSE-C; for what Ceph does not support,
a strict server of the test: a key that is missing, wrong or superfluous is refused."""

import base64
import hashlib
import json
import os

import object_server
import make
import pytest
import stoker
from test_copy import FILES, LARGE, PART, below, bucket, copy, random_bytes, run, tree  # noqa: F401
from test_providers import clean  # noqa: F401
from test_fault_proxy import Proxy

KEY, OTHER = bytes(range(32)), bytes(range(100, 132))
TEXT, OTHER_TEXT = (base64.b64encode(key).decode() for key in (KEY, OTHER))
CUSTOMER = {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": KEY}


def silent(text):
    assert TEXT not in text and OTHER_TEXT not in text and KEY.hex() not in text, text
    return text


@pytest.mark.parametrize("kind", ["variable", "raw file", "lines"])
def test_written(bucket, tree, tmp_path, monkeypatch, kind):  # noqa: F811
    """Objects that stoker writes with a key, at once and by parts, are read by boto3 with it, and
    not without."""
    from botocore.exceptions import ClientError

    if kind == "variable":
        monkeypatch.setenv("STOKER_SSE_C_KEY", KEY.hex())
    else:
        (tmp_path / "key").write_bytes(KEY if kind == "raw file" else
                                       f"# ours\ns3://{bucket.name}/x/ {TEXT}\n".encode())
        monkeypatch.setenv("STOKER_SSE_C_KEY_FILE", str(tmp_path / "key"))
    assert copy("cp", "-r", tree, f"{bucket.url}/x")["files"] == len(FILES)
    found = {key: bucket.get_object(Bucket=bucket.name, Key=f"x/{key}", **CUSTOMER)["Body"].read()
             for key in FILES}
    assert found == below(tree)
    for key in ("plain", "sub/deep/large"):
        with pytest.raises(ClientError):
            bucket.get_object(Bucket=bucket.name, Key=f"x/{key}")
        head = bucket.head_object(Bucket=bucket.name, Key=f"x/{key}", **CUSTOMER)
        assert head["SSECustomerAlgorithm"] == "AES256"
    copy("cp", "-r", f"{bucket.url}/x", tmp_path / "back")
    assert below(tmp_path / "back") == below(tree)
    # Objects elsewhere are written without it, where it is for a prefix.
    copy("cp", tree / "plain", f"{bucket.url}/y")
    head = bucket.head_object(Bucket=bucket.name, Key="y",
                              **({} if kind == "lines" else CUSTOMER))
    assert ("SSECustomerAlgorithm" in head) == (kind != "lines")


def test_read(bucket, tars, tmp_path, monkeypatch):  # noqa: F811
    """Objects that boto3 wrote with a key are read by the loader and the command with it; without
    it, or with another, the error names the missing key."""
    for path in sorted(tars.glob("*.tar")):
        bucket.put_object(Bucket=bucket.name, Key=f"t/{path.name}", Body=path.read_bytes(),
                          **CUSTOMER)
    data = random_bytes(LARGE, 9)
    made = bucket.create_multipart_upload(Bucket=bucket.name, Key="large", **CUSTOMER)
    ids = {"Bucket": bucket.name, "Key": "large", "UploadId": made["UploadId"]}
    parts = [{"PartNumber": i + 1, "ETag": bucket.upload_part(
        PartNumber=i + 1, Body=data[i * PART:(i + 1) * PART], **CUSTOMER, **ids)["ETag"]}
        for i in range(3)]
    bucket.complete_multipart_upload(MultipartUpload={"Parts": parts}, **ids)
    text = silent(run("cat", f"{bucket.url}/large", ok=3))
    assert "encrypted" in text and "STOKER_SSE_C_KEY" in text, text
    monkeypatch.setenv("STOKER_SSE_C_KEY", OTHER_TEXT)
    silent(run("cat", f"{bucket.url}/large", ok=3))
    monkeypatch.setenv("STOKER_SSE_C_KEY", TEXT)
    copy("cp", f"{bucket.url}/large", tmp_path / "large")
    assert (tmp_path / "large").read_bytes() == data
    assert json.loads(silent(run("stat", "--json", f"{bucket.url}/large")))["bytes"] == LARGE
    with stoker.Engine(threads=2, memory="256MiB", check_etags=True) as engine:
        def keys(source):
            with make.loader(stoker.Dataset(source, engine=engine), 8, output="numpy",
                               fields={"key": "__key__", "jpg": stoker.Bytes("jpg")}, seed=3,
                               tail="keep") as loader:
                return [(key, bytes(jpg)) for batch in loader
                        for key, jpg in zip(batch["key"], batch["jpg"], strict=True)]

        assert keys(f"{bucket.url}/t") == keys(str(tars))
        assert engine.store_stats()["damaged"] == 0  # ETags of such objects are no MD5s


class Sealing(object_server.S3):
    """Objects with their encryption: `server.sealed` by name."""

    def customer(self, before=""):
        base = f"x-amz-{before}server-side-encryption-customer-"
        algorithm, key, digest = (self.headers.get(base + name)
                                  for name in ("algorithm", "key", "key-MD5"))
        if (algorithm, key, digest) == (None, None, None):
            return None
        raw = base64.b64decode(key, validate=True)
        assert algorithm == "AES256" and len(raw) == 32
        assert digest == base64.b64encode(hashlib.md5(raw).digest()).decode()
        signed = self.headers["Authorization"].partition("SignedHeaders=")[2].partition(",")[0]
        assert {base + name for name in ("algorithm", "key", "key-md5")} <= set(signed.split(";"))
        return key

    def fits(self, place, before=""):
        if self.server.sealed.get(place) == self.customer(before):
            return True
        self.refuse(400, "InvalidRequest")
        return False

    def do_GET(self):
        bucket, key, query = self.split()
        if (bucket, key) in self.server.objects and not self.fits((bucket, key)):
            return
        super().do_GET()

    def do_DELETE(self):
        self.server.requested.append(("DELETE", self.customer()))
        self.server.objects.pop(self.split()[:2], None)
        self.say(204)

    def do_POST(self):
        self.body()
        place, query = self.split()[:2], self.split()[2]
        if not self.who():
            return
        if "uploads" in query:
            self.server.uploads["u"] = (self.customer(), self.kms(), {})
            self.server.classes[place] = self.headers.get("x-amz-storage-class")
            self.say(200, b"<InitiateMultipartUploadResult><UploadId>u</UploadId>"
                          b"</InitiateMultipartUploadResult>")
            return
        key, kms, parts = self.server.uploads[query["uploadId"]]
        assert self.customer() == key
        self.keep(place, b"".join(parts[i] for i in sorted(parts)), key, kms)
        self.say(200, b"<CompleteMultipartUploadResult><ETag>\"x-1\"</ETag>"
                      b"</CompleteMultipartUploadResult>")

    def kms(self):
        return {name.removeprefix("x-amz-server-side-encryption"): value
                for name, value in self.headers.items()
                if name.startswith("x-amz-server-side-encryption") and "customer" not in name}

    def keep(self, place, data, key, kms):
        self.server.objects[place] = data
        self.server.sealed[place] = key
        self.server.kms[place] = kms

    def do_PUT(self):
        data, (bucket, key, query) = self.body(), self.split()
        if not self.who():
            return
        source = self.headers.get("x-amz-copy-source")
        if source:
            place = tuple(object_server.urllib.parse.unquote(source).split("/", 1))
            if not self.fits(place, "copy-source-"):
                return
            data = self.server.objects[place]
            if "x-amz-copy-source-range" in self.headers:
                first, last = self.headers["x-amz-copy-source-range"][6:].split("-")
                data = data[int(first):int(last) + 1]
        if "uploadId" in query:
            assert self.customer() == self.server.uploads[query["uploadId"]][0]
            self.server.uploads[query["uploadId"]][2][int(query["partNumber"])] = data
        else:
            self.keep((bucket, key), data, self.customer(), self.kms())
            self.server.classes[bucket, key] = self.headers.get("x-amz-storage-class")
        kind = "Part" if "uploadId" in query else "Object"
        self.say(200, f"<Copy{kind}Result><ETag>\"x\"</ETag></Copy{kind}Result>".encode()
                 if source else b"", ETag='"x"')


@pytest.fixture
def sealing(clean):  # noqa: F811
    server = object_server.s3({}, {"a": ("b", "", float("inf"))})
    server.RequestHandlerClass = Sealing
    server.sealed, server.kms, server.uploads, server.requested = {}, {}, {}, []
    server.classes = {}
    for name, value in {"AWS_ENDPOINT_URL": server.url, "AWS_ACCESS_KEY_ID": "a",
                        "AWS_SECRET_ACCESS_KEY": "b", "AWS_CONFIG_FILE": os.devnull,
                        "AWS_SHARED_CREDENTIALS_FILE": os.devnull}.items():
        clean.setenv(name, value)
    yield server
    server.close()


class Within(Sealing):
    """Writes only new objects, if the request says so; ETags of objects in odd/ are not MD5s."""

    def etag(self, data):
        return Sealing.etag(data + b"!" * self.split()[1].startswith("odd/"))

    def do_PUT(self):
        if self.headers.get("If-None-Match") == "*" and self.split()[:2] in self.server.objects:
            self.body()
            self.refuse(412, "PreconditionFailed")
        else:
            super().do_PUT()


@pytest.mark.parametrize("source", ["a/x", "odd/x"])
def test_copied_within_and_no_checksum_reported(sealing, clean, source):  # noqa: F811
    """The answer to a copy that must make a new object is lost, and the next try is refused: the
    existing object is recognised as ours by ETag or by its bytes; another object of that size is
    not."""
    sealing.RequestHandlerClass = Within
    data = random_bytes(1000, 1)
    sealing.objects["data", source] = data
    with Proxy("--to", sealing.url, rules=[
            {"method": "PUT", "path": "*lost", "fault": "reset", "at": -1, "count": 1}]) as proxy:
        clean.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
        reported = copy("cp", "--no-clobber", f"s3://data/{source}", "s3://data/to/lost")
        log = proxy.stop()
    assert reported["files_done"] == 1 and sealing.objects["data", "to/lost"] == data
    assert [line["status"] for line in log if line["method"] == "PUT"][-1] == 412
    clean.setenv("AWS_ENDPOINT_URL", sealing.url)
    for other in (random_bytes(1000, 2), data[:-1]):
        sealing.objects["data", "to/other"] = other
        text = run("cp", "--no-clobber", f"s3://data/{source}", "s3://data/to/other", ok=3)
        assert "exists already" in text and sealing.objects["data", "to/other"] == other


@pytest.mark.parametrize("size", [1000, LARGE], ids=["whole", "by parts"])
def test_copied_within(sealing, clean, size):  # noqa: F811
    """A copy on the server changes the key, adds one, and removes one."""
    data = random_bytes(size, 1)
    clean.setenv("STOKER_SSE_C_KEY", f"s3://data/old {TEXT}\ns3://data/new {OTHER_TEXT}")
    sealing.objects["data", "old/x"], sealing.sealed["data", "old/x"] = data, TEXT
    for source, target, key in [("old/x", "new/x", OTHER_TEXT), ("new/x", "plain/x", None),
                                ("plain/x", "old/y", TEXT)]:
        assert copy("cp", f"s3://data/{source}", f"s3://data/{target}")["files"] == 1
        assert sealing.objects["data", target] == data and sealing.sealed["data", target] == key
    run("rm", "-y", "s3://data/old/y")
    assert sealing.requested == [("DELETE", None)]


@pytest.mark.parametrize("size", [1000, LARGE], ids=["whole", "by parts"])
def test_kms(sealing, tmp_path, size):
    (tmp_path / "file").write_bytes(random_bytes(size, 2))
    context = '{"project": "ä", "long": "%s"}' % ("x" * 100)
    copy("cp", "--sse-kms-key", "arn:aws:kms:r:1:key/k", "--sse-kms-context", context,
         tmp_path / "file", "s3://data/a")
    reported = sealing.kms["data", "a"]
    assert reported[""] == "aws:kms" and reported["-aws-kms-key-id"] == "arn:aws:kms:r:1:key/k"
    assert base64.b64decode(reported["-context"]).decode() == context
    with stoker.Engine(threads=1, memory="128MiB") as engine:
        stoker.cp(tmp_path / "file", "s3://data/b", encryption="AES256", engine=engine)
        stoker.cp(tmp_path / "file", "s3://data/c", encryption="aws:kms:dsse",
                  encryption_context="{}", engine=engine)
        stoker.sync(tmp_path, "s3://data/d", encryption="aws:kms", encryption_key="k",
                    encryption_context='{"a": "b"}', engine=engine)
    assert sealing.kms["data", "b"] == {"": "AES256"}
    assert sealing.kms["data", "d/file"] == {"": "aws:kms", "-aws-kms-key-id": "k",
                                             "-context": "eyJhIjogImIifQ=="}
    assert sealing.kms["data", "c"] == {"": "aws:kms:dsse", "-context": "e30="}


@pytest.mark.parametrize("size", [1000, LARGE], ids=["whole", "by parts"])
def test_storage_class(sealing, tmp_path, size):
    """New objects get it, also those that the server copies."""
    (tmp_path / "file").write_bytes(random_bytes(size, 2))
    copy("cp", "--storage-class", "ONEZONE_IA", tmp_path / "file", "s3://data/a")
    copy("cp", "--storage-class", "GLACIER_IR", "s3://data/a", "s3://data/b")
    copy("cp", "s3://data/a", "s3://data/c")
    assert [sealing.classes["data", key] for key in "abc"] == ["ONEZONE_IA", "GLACIER_IR", None]


def test_storage_class_of_ceph(bucket, tree):  # noqa: F811
    copy("cp", "--storage-class", "STANDARD", tree / "plain", f"{bucket.url}/a")
    assert bucket.objects() == {"a": (tree / "plain").read_bytes()}
    text = run("cp", "--storage-class", "NO_SUCH", tree / "plain", f"{bucket.url}/b", ok=None)
    assert "HTTP 400" in text and bucket.objects("b") == {}, text


class Archive(object_server.S3):
    """All is archived."""

    def give(self, data, **more):
        self.refuse(403, "InvalidObjectState</Code><StorageClass>GLACIER</StorageClass><Code>")


def test_archived(sealing):
    """The error names the class, and the call that restores the object."""
    sealing.objects["data", "x/y.tar"] = b"x"
    sealing.RequestHandlerClass = Archive
    text = run("cat", "s3://data/x/y.tar", ok=None)
    assert "the object is archived" in text and "storage class GLACIER" in text, text
    assert ("aws s3api restore-object --bucket data --key 'x/y.tar' --restore-request Days=7"
            in text), text


@pytest.mark.parametrize("context", ["", "{", "[]", '{"a": 1}', '{"a": {}}', '{"a":"b","a":"c"}',
                                     '{"a": "%s"}' % ("x" * 5000)], ids=range(7))
def test_no_context(sealing, tmp_path, context):
    (tmp_path / "file").write_bytes(b"x")
    text = run("cp", "--sse-kms-context", context, tmp_path / "file", "s3://data/a", ok=None)
    assert "encryption context" in text and not sealing.objects


@pytest.mark.parametrize(("text", "says"), [
    ("secret0", "32 bytes"), (TEXT[:-1], "32 bytes"), (f"gs://b {TEXT}", "no URL of S3"),
    (f"{TEXT}\n{TEXT}", "same objects")])
def test_no_keys(sealing, clean, tmp_path, text, says):  # noqa: F811
    clean.setenv("STOKER_SSE_C_KEY", text)
    said = silent(run("cat", "s3://data/x", ok=None))
    assert says in said and "STOKER_SSE_C_KEY" in said and "secret0" not in said
    clean.delenv("STOKER_SSE_C_KEY")
    clean.setenv("STOKER_SSE_C_KEY_FILE", str(tmp_path / "none"))
    assert str(tmp_path / "none") in run("cat", "s3://data/x", ok=None)


def test_not_in_plain_text(clean, tmp_path):  # noqa: F811
    """By plain HTTP a key is sent to this machine only."""
    for name, value in {"AWS_ENDPOINT_URL": "http://store.invalid", "AWS_ACCESS_KEY_ID": "a",
                        "AWS_SECRET_ACCESS_KEY": "b", "STOKER_SSE_C_KEY": TEXT}.items():
        clean.setenv(name, value)
    text = silent(run("cat", "s3://data/x", ok=None))
    assert "plain text" in text and "https" in text, text
    (tmp_path / "file").write_bytes(b"x")
    assert "plain text" in silent(run("cp", tmp_path / "file", "s3://data/x", ok=None))
