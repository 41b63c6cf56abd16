"""How a store verifies uploads: `--check`, and buckets with object lock, which require it.

Goal: the requested checksum is sent with each body, and of the whole object as well if it can be
combined; a body that arrives damaged does not become an object. If a bucket refuses requests
without a checksum, the client sends one; a locked object stays, and the error says that it is
locked. Method: S3 as a test server, which compares the checksums."""

from __future__ import annotations

import os
import subprocess

import pytest
import stoker
import write_server
from object_server import checksum
from test_cli import COMMAND

PART = 5 << 20
LARGE = bytes(range(256)) * (5 << 12) + b"the second part"
SMALL = b"small" * 100
KINDS = {"crc64nvme": "FULL_OBJECT", "crc32c": "FULL_OBJECT", "sha256": "COMPOSITE", "md5": None}


class Bucket(write_server.Writing):
    """Records the headers of each writing request, and damages a given number of bodies."""

    def begin(self):
        answered = super().begin()
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.received.append((self.command, self.query, headers, self.data))
        if self.command == "PUT" and self.data and self.server.damage > 0:
            self.server.damage -= 1
            self.data = b"?" + self.data[1:]
        return answered


@pytest.fixture
def store(monkeypatch):
    server = write_server.serve(handler=Bucket)
    server.received, server.damage = [], 0
    write_server.lead_to(server, monkeypatch)
    yield server
    server.close()


@pytest.fixture
def files(tmp_path):
    (tmp_path / "small").write_bytes(SMALL)
    (tmp_path / "large").write_bytes(LARGE)
    return tmp_path


def run(*words):
    return subprocess.run([COMMAND, *map(str, words)], capture_output=True, text=True, timeout=120,
                          env=dict(os.environ))


def copy(files, *names, words=()):
    return run("cp", "--part-size", "5M", *words, *(files / name for name in names), "s3://b/d/")


def objects(store):
    return {key: data for (_, key), data in store.objects.items()}


@pytest.mark.parametrize("check", KINDS)
def test_requested_checksums_are_sent(store, files, check):
    done = copy(files, "small", "large", words=("--check", check))
    assert done.returncode == 0, done.stderr
    assert objects(store) == {"d/small": SMALL, "d/large": LARGE}
    name = "content-md5" if check == "md5" else f"x-amz-checksum-{check}"
    bodies = [(headers, data) for method, query, headers, data in store.received if method == "PUT"]
    assert len(bodies) == 3 and sorted(len(data) for _, data in bodies) == [15, 500, PART]
    assert all(headers[name] == checksum(check, data) for headers, data in bodies)
    begin = next(headers for method, query, headers, _ in store.received if "uploads" in query
                 and method == "POST")
    end, body = next((headers, data) for method, query, headers, data in store.received
                     if method == "POST" and "uploadId" in query)
    assert begin.get("x-amz-checksum-algorithm") == (None if check == "md5" else check.upper())
    assert begin.get("x-amz-checksum-type") == KINDS[check]
    assert end.get(name) == (checksum(check, LARGE) if KINDS[check] == "FULL_OBJECT" else None)
    sums = body.count(f"<Checksum{check.upper()}>".encode())
    assert sums == (0 if check == "md5" else 2)


@pytest.mark.parametrize("check", ["crc64nvme", "md5"])
def test_a_damaged_upload_creates_no_object(store, files, check):
    store.damage = 1000
    done = copy(files, "small", words=("--check", check))
    assert done.returncode == 3 and "BadDigest" in done.stderr and not store.objects


def test_an_unknown_check(files):
    done = copy(files, "small", words=("--check", "crc16"))
    assert done.returncode == 2 and "crc64nvme|crc32c|sha256|md5" in done.stderr


# ---- object lock ----------------------------------------------------------------------------


def test_a_bucket_that_wants_checksums(store, files):
    """A request that was refused for lack of a checksum is sent again with an MD5; later ones have
    it at once."""
    store.locked = True
    done = copy(files, "small", "large", words=("--workers", "1"))
    assert done.returncode == 0, done.stderr
    assert objects(store) == {"d/small": SMALL, "d/large": LARGE} and not store.uploads
    bare = [headers for method, _, headers, _ in store.received
            if method == "PUT" and "content-md5" not in headers]
    assert len(bare) == 1 and store.said[400] == 1


def test_a_bucket_that_wants_checksums_by_check(store, files):
    store.locked = True
    assert copy(files, "small", "large", words=("--check", "crc32c")).returncode == 0
    assert objects(store) == {"d/small": SMALL, "d/large": LARGE} and store.said[400] == 0


def test_refused_for_another_reason(store, files):
    """A checksum does not help: the server's own error text is reported."""
    store.script = lambda request: request.command == "PUT" and (
        request.refuse(400, "InvalidRequest", "the moon is full") or True)
    done = copy(files, "small")
    assert done.returncode == 3 and "the moon is full" in done.stderr and store.said[400] == 2


def test_locked_objects_stay(store, files):
    store.objects.update({("b", f"d/{name}"): b"old" for name in ("small", "x", "y")})
    store.held = {("b", "d/small"), ("b", "d/x")}
    done = copy(files, "small")
    assert done.returncode == 3 and "the object is locked" in done.stderr
    assert "s3://b/d/small" in done.stderr and "retention" in done.stderr
    for words in (("s3://b/d/x",), ("-r", "s3://b/d/")):
        done = run("rm", "--yes", *words)
        assert done.returncode == 3 and "lock" in done.stderr and "d/" in done.stderr, done.stderr
    assert objects(store) == {"d/small": b"old", "d/x": b"old"}
    with stoker.Engine(threads=1, process_sharing=False) as engine, \
            pytest.raises(PermissionError, match="object lock"):
        stoker.rm("s3://b/d/x", engine=engine)
