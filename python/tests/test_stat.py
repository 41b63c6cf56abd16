"""stoker stat: metadata of an object, even if it cannot be read or HEAD is not allowed.

Archived objects are reported with class and state, and a read is still the error that names the
call that restores them. stat sends a GET of one byte, never of the whole object."""

from __future__ import annotations

import json
import os
import subprocess

import pytest
import servers
import stoker
import write_server
from test_cli import COMMAND

DATA = bytes(range(32, 127)) * 11
UNTIL = "Fri, 21 Dec 2029 00:00:00 GMT"
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if not name.startswith(("AWS_", "AZURE_", "STORAGE_", "GOOGLE_"))}


def run(*words, **environment):
    return subprocess.run([COMMAND, *words], capture_output=True, text=True, timeout=120,
                          env={**ENVIRONMENT, **environment})


def look(url, **environment):
    """The output of the command, as text and as JSON."""
    text, found = run("stat", url, **environment), run("stat", "--json", url, **environment)
    assert text.returncode == found.returncode == 0, text.stderr
    return text.stdout, json.loads(found.stdout)


class Bucket(write_server.Writing):
    def class_of(self, bucket, key):
        return "INTELLIGENT_TIERING" if key == "tier" else super().class_of(bucket, key)

    def give(self, data, **more):
        if self.key == "tier":  # S3 moves such by itself
            more |= {"x-amz-storage-class": "INTELLIGENT_TIERING"}
            if self.command == "HEAD":
                more |= {"x-amz-archive-status": "DEEP_ARCHIVE_ACCESS"}
            else:
                self.say(403, b"<Error><Code>InvalidObjectState</Code><StorageClass>INTELLIGENT_"
                              b"TIERING</StorageClass><AccessTier>DEEP_ARCHIVE_ACCESS</AccessTier>"
                              b"</Error>")
                return
        super().give(data, **more)


OBJECTS = {  # key: class and x-amz-restore; the output; whether it can be read
    "plain": (("", ""), {}, True),
    "rare": (("STANDARD_IA", ""), {"storage_class": "STANDARD_IA"}, True),
    "instant": (("GLACIER_IR", ""), {"storage_class": "GLACIER_IR"}, True),
    "cold": (("GLACIER", ""), {"storage_class": "GLACIER", "archive": "archived"}, False),
    "deep": (("DEEP_ARCHIVE", 'ongoing-request="true"'),
             {"storage_class": "DEEP_ARCHIVE", "archive": "being restored"}, False),
    "back": (("GLACIER", f'ongoing-request="false", expiry-date="{UNTIL}"'),
             {"storage_class": "GLACIER", "archive": "restored",
              "restored_until": "2029-12-21T00:00:00Z"}, True),
    "tier": (("", ""), {"storage_class": "INTELLIGENT_TIERING", "archive": "archived"}, False),
}


@pytest.fixture
def bucket():
    store = write_server.serve({("b", key): DATA for key in OBJECTS}, Bucket)
    store.classes = {("b", key): row[0] for key, row in OBJECTS.items()}
    yield store
    store.close()


@pytest.mark.parametrize("key", OBJECTS)
def test_archived_objects_of_s3(bucket, key):
    _, reported, readable = OBJECTS[key]
    own = write_server.environment(bucket)
    text, found = look(f"s3://b/{key}", **own)
    more = {name: found.get(name) for name in ("storage_class", "archive", "restored_until")}
    assert more == {"storage_class": None, "archive": None, "restored_until": None, **reported}
    assert found["kind"] == "file" and found["bytes"] == len(DATA) and found["etag"]
    assert found["modified"]
    assert all(value in text for value in reported.values()) and f"{len(DATA):,} bytes" in text
    assert ("storage class" in text) == bool(reported)
    read = run("cat", f"s3://b/{key}", **own)
    assert (read.returncode == 0) == readable
    assert readable or ("restore-object --bucket b --key" in read.stderr and not read.stdout)


def test_archived_objects_from_python(bucket, monkeypatch):
    write_server.lead_to(bucket, monkeypatch)
    with stoker.Engine(threads=1, process_sharing=False) as engine:
        assert len(list(stoker.ls("s3://b/", engine=engine))) == len(OBJECTS)
        for key, (_, reported, readable) in OBJECTS.items():
            found = stoker.stat(f"s3://b/{key}", engine=engine)
            assert found.bytes == len(DATA) and found.archive == reported.get("archive", "")
            assert found.storage_class == reported.get("storage_class", "STANDARD")
            assert found.restored_until == (1892505600 if key == "back" else None)
            if readable:
                assert stoker.cat(f"s3://b/{key}", engine=engine) == DATA
            else:
                with pytest.raises(PermissionError, match="restore-object"):
                    stoker.cat(f"s3://b/{key}", engine=engine)


def test_stat_without_permission_to_head(bucket):
    """Then the error is the same as before."""
    bucket.script = lambda request: request.command == "HEAD" and (request.say(403) or True)
    reported = run("stat", "s3://b/cold", **write_server.environment(bucket))
    assert reported.returncode == 3 and "restore-object" in reported.stderr and not reported.stdout


class Blobs(servers.Handler):
    """Azure's answers of a tier, `server.status` of archives."""

    def do_GET(self):
        archived = self.server.tier == "Archive"
        if archived and self.command == "GET":
            self.say(409, b"<Error><Code>BlobArchived</Code></Error>",
                     **{"x-ms-error-code": "BlobArchived"})
        else:
            more = {"x-ms-access-tier": self.server.tier, "ETag": '"0x1"',
                    **({"x-ms-archive-status": self.server.status} if self.server.status else {})}
            whole = self.command == "HEAD"
            more |= {} if whole else {"Content-Range": f"bytes 0-0/{len(DATA)}"}
            self.say(200 if whole else 206, DATA if whole else DATA[:1], **more)

    do_HEAD = do_GET


@pytest.mark.parametrize("tier, status, archive", [
    ("Cool", "", None), ("Archive", "", "archived"),
    ("Archive", "rehydrate-pending-to-hot", "being restored")])
def test_archived_blobs(tier, status, archive):
    with servers.serving(Blobs, tier=tier, status=status) as server:
        own = {"AZURE_STORAGE_ACCOUNT": "acc", "AZURE_STORAGE_ENDPOINT": f"{server.url}/acc",
               "AZURE_STORAGE_KEY": "a2V5"}
        text, found = look("az://c/b", **own)
        assert (found["storage_class"], found.get("archive"), found["bytes"]) == (
            tier, archive, len(DATA))
        assert tier in text and (archive or "storage class") in text
        if archive:
            read = run("cat", "az://c/b", **own)
            assert read.returncode == 3 and "rehydrate" in read.stderr


class Reluctant(servers.Handler):
    """No HEAD, as behind URLs that are signed for GET; maybe no ranges; and a body without end."""

    SIZE = 1 << 40

    def do_HEAD(self):
        self.say(self.server.code)

    def do_GET(self):
        self.server.seen.append(self.headers.get("Range"))
        if self.server.ranges:
            self.say(206, b"x", Content_Range=f"bytes 0-0/{self.SIZE}")
            return
        self.send_response(200)
        self.send_header("Content-Length", str(self.SIZE))
        self.end_headers()
        try:
            while True:  # until the client leaves
                self.wfile.write(bytes(1 << 16))
        except OSError:
            self.server.left.append(True)
        self.close_connection = True


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("code", [403, 405, 501])
def test_head_is_forbidden(code, ranges):
    with servers.serving(Reluctant, code=code, ranges=ranges, left=[]) as server:
        found = run("stat", "--json", f"{server.url}/a?signature=0123456789abcdef0123456789abcdef")
        assert found.returncode == 0, found.stderr
        assert json.loads(found.stdout)["bytes"] == Reluctant.SIZE
        assert server.seen == ["bytes=0-0"]
