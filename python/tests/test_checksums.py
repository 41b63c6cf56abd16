"""Checksums of the data that stores send: bytes that do not match the server's checksum never reach
the caller.

Method: test servers that report checksums as the real ones do (Ceph's gateway of Debian 12
reports only MD5s as ETags), behind `stoker fault-proxy`, which flips a bit of a body or of a
checksum. The data is exact, or the error names the URL, the range and both checksums; verified
bytes are counted."""

import json
import os
import subprocess

import numpy as np
import object_server
import pytest
import stoker
from test_cli import COMMAND
from test_copy import PART, random_bytes
from test_providers import clean, run  # noqa: F401
from test_fault_proxy import Proxy

FILES = {f"set/{label}/{i}.jpg": random_bytes(3000 + 17 * i, i) for i, label in
         enumerate("aabbcc")}
FIELDS = {"key": "__key__", "jpg": stoker.Bytes("jpg")}
SUMS = ["crc64nvme", "crc32c", "crc32", "sha256", "sha1"]


def reach(clean, kind, proxy):
    """Sets the environment for a store behind the proxy; returns the prefix of its URLs."""
    url = f"http://{proxy.host}:{proxy.port}"
    if kind == "s3":
        for name, value in {"AWS_ENDPOINT_URL": url, "AWS_ACCESS_KEY_ID": "a",
                            "AWS_SECRET_ACCESS_KEY": "b", "AWS_CONFIG_FILE": os.devnull,
                            "AWS_SHARED_CREDENTIALS_FILE": os.devnull}.items():
            clean.setenv(name, value)
    elif kind == "gs":
        clean.setenv("STORAGE_EMULATOR_HOST", url)
    else:
        clean.setenv("AZURE_STORAGE_ACCOUNT", "acc")
        clean.setenv("AZURE_STORAGE_ENDPOINT", f"{url}/acc")
        clean.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", "http://127.0.0.1:9")
    return f"{kind}://data"


def serve(kind, objects, sums):
    there = {("data", name): data for name, data in objects.items()}
    server = {"s3": lambda: object_server.s3(there, {"a": ("b", "", float("inf"))}),
              "gs": lambda: object_server.google(there),
              "az": lambda: object_server.azure(there)}[kind]()
    server.sums = sums
    return server


def read(source, io_retries=0, **options):
    with stoker.Engine(threads=1, memory="128MiB", read_timeout=5.0, **options) as engine:
        with stoker.Loader(stoker.Dataset(source, engine=engine, index="never"), 2, fields=FIELDS,
                           shuffle="none", tail="keep", output="numpy",
                           io_retries=io_retries) as loader:
            found = {f"set/{key}": bytes(value) for batch in loader
                     for key, value in zip(batch["key"], batch["jpg"], strict=True)}
            return found, loader.stats()["store"]


CASES = [*(("s3", [name]) for name in SUMS), ("s3", ["crc32", "sha256"]),
         ("gs", ["crc32c", "md5"]), ("az", ["crc64nvme"])]


@pytest.mark.parametrize(("kind", "sums"), CASES, ids=str)
def test_complete_objects(clean, kind, sums):  # noqa: F811
    server = serve(kind, FILES, sums)
    size = sum(map(len, FILES.values()))
    target = "*/set/b/*"
    try:
        with Proxy("--to", server.url) as proxy:
            found, reported = read(f"{reach(clean, kind, proxy)}/set")
            assert found == FILES and reported["damaged"] == 0
            assert reported[kind]["checked"] >= size  # a loader may request a slow read twice
        for fault in ({"fault": "flip", "at": 100}, {"fault": "checksum"}):
            rule = {**fault, "method": "GET", "path": target}
            with Proxy("--to", server.url, rules=[{**rule, "count": 2}]) as proxy:
                found, reported = read(f"{reach(clean, kind, proxy)}/set")
                assert found == FILES and reported["damaged"] == 2  # and the second answer was good
                assert reported[kind]["checked"] >= size and reported["retries"]["transient"] >= 2
            with Proxy("--to", server.url, rules=[rule]) as proxy:
                with pytest.raises(stoker.Error) as caught:
                    read(f"{reach(clean, kind, proxy)}/set")
                text = str(caught.value)
                assert f"{kind}://data/set/b/" in text and "bytes 0-30" in text, text
                assert text.count(f"{sums[0]} ") == 2, text
    finally:
        server.close()


def test_turned_off(clean):  # noqa: F811
    server = serve("s3", FILES, ["crc32"])
    try:
        with Proxy("--to", server.url) as proxy:
            base = reach(clean, "s3", proxy)
            clean.setenv("AWS_RESPONSE_CHECKSUM_VALIDATION", "when_required")
            found, reported = read(f"{base}/set")
            assert found == FILES and reported["s3"]["checked"] == 0
    finally:
        server.close()


@pytest.mark.parametrize("sums", [[], ["crc32"]], ids=["no sums", "crc32"])
def test_etags(clean, sums):  # noqa: F811
    """If the option asks for it and the server reports nothing better, an ETag that is an MD5 is
    checked."""
    server = serve("s3", FILES, sums)
    size = sum(map(len, FILES.values()))
    rule = {"fault": "flip", "at": 100, "method": "GET", "path": "*/set/b/*"}
    try:
        with Proxy("--to", server.url, rules=[{**rule, "count": 1}]) as proxy:
            found, reported = read(f"{reach(clean, 's3', proxy)}/set", check_etags=True)
            assert found == FILES and reported["damaged"] == 1
            assert reported["s3"]["checked"] >= size
        if not sums:
            with Proxy("--to", server.url) as proxy:
                found, reported = read(f"{reach(clean, 's3', proxy)}/set")
                assert found == FILES and reported["s3"]["checked"] == 0
    finally:
        server.close()


@pytest.mark.parametrize("more", [
    {"x-amz-server-side-encryption": "aws:kms"},
    {"x-amz-server-side-encryption": "aws:kms:dsse"},
    {"x-amz-server-side-encryption-customer-algorithm": "AES256"},
], ids=str)
def test_etags_of_encrypted_objects(clean, more):  # noqa: F811
    """These ETags look like MD5s and are not: they cause no repeated request."""
    class Sealed(object_server.S3):
        etag = staticmethod(lambda data: object_server.hashlib.md5(data + b"!").hexdigest())

        def seals(self, data, body, ranged=False):
            return more

    server = serve("s3", FILES, [])
    server.RequestHandlerClass = Sealed
    try:
        with Proxy("--to", server.url) as proxy:
            found, reported = read(f"{reach(clean, 's3', proxy)}/set", check_etags=True)
            assert found == FILES and reported["damaged"] == 0
            assert reported["s3"]["checked"] == 0 and reported["retries"]["transient"] == 0
    finally:
        server.close()


LARGE = random_bytes(4 * PART + 777, 5)  # three ranges of 8 MiB


def copy(base, target, ok=0):
    return run("cp", *(["--json"] if ok == 0 else []), f"{base}/large", target, ok=ok)


@pytest.mark.parametrize("parts", [0, 8 << 20], ids=["of the whole", "of the parts"])
def test_by_ranges(clean, tmp_path, parts):  # noqa: F811
    """S3 reports the checksum of the whole object on request, and checksums of parts with it. A
    copy that does not match does not get its name."""
    server = serve("s3", {"large": LARGE}, ["crc32"])
    server.parts = parts
    rule = {"fault": "flip", "at": 5, "method": "GET", "range": True, "path": "/data/large",
            "nth": 3}
    try:
        with Proxy("--to", server.url) as proxy:
            base = reach(clean, "s3", proxy)
            assert json.loads(copy(base, tmp_path / "well"))["files"] == 1
            assert (tmp_path / "well").read_bytes() == LARGE
        with Proxy("--to", server.url, rules=[rule]) as proxy:
            base = reach(clean, "s3", proxy)
            if parts:
                copy(base, tmp_path / "copy")  # the part is requested again
                assert (tmp_path / "copy").read_bytes() == LARGE
            else:
                text = copy(base, tmp_path / "copy", ok=1)
                assert "s3://data/large" in text and text.count("crc32 ") == 2, text
                assert f"bytes 0-{len(LARGE) - 1}" in text, text
                assert not (tmp_path / "copy").exists()
    finally:
        server.close()


@pytest.mark.parametrize("kind", ["s3", "gs", "az", "http"])
def test_ranges_of_one_version(clean, tmp_path, kind):  # noqa: F811
    """A large object is read in ranges of 8 to 16 MiB (Azure: 4 MiB, the largest that has a
    checksum), each requested once; all ranges after the first answer name the version of that
    answer."""
    server = serve("s3" if kind == "http" else kind, {"large": LARGE}, [])
    requested = []

    class Recording(server.RequestHandlerClass):
        def give(self, data, **more):
            span = self.headers.get("Range") or self.headers.get("x-ms-range")
            requested.append((span, self.headers.get("If-Match")))
            super().give(data, **more)

    server.RequestHandlerClass = Recording
    if kind == "http":
        server.keys = None
    least = (4 if kind == "az" else 8) << 20
    etag = f'"{object_server.Handler.etag(LARGE)}"'
    try:
        with Proxy("--to", server.url) as proxy:
            base = reach(clean, kind, proxy) if kind != "http" else f"{server.url}/data"
            for words in (["cp", f"{base}/large", tmp_path / "copy"], ["cat", f"{base}/large"]):
                requested.clear()
                done = subprocess.run([COMMAND, *words], capture_output=True, timeout=120,
                                      check=True)
                assert words[0] == "cp" or done.stdout == LARGE
                first, *others = [condition for _, condition in requested]
                assert set(others) == {etag} and first in (None, etag)
                spans = sorted(tuple(map(int, span.removeprefix("bytes=").split("-")))
                               for span, _ in requested if span not in (None, "bytes=0-0"))
                sizes = [last + 1 - first for first, last in spans]
                assert all(least <= size <= 16 << 20 for size in sizes[:-1]), sizes
                assert sizes[-1] <= 16 << 20 and sum(sizes) == len(LARGE) and spans[0][0] == 0
                assert [first for first, _ in spans[1:]] == [last + 1 for _, last in spans[:-1]]
        assert (tmp_path / "copy").read_bytes() == LARGE
    finally:
        server.close()


def test_some_of_an_object(clean, tmp_path):  # noqa: F811
    """Members of a tar: all read bytes are verified if the whole tar was read, else none."""
    import io
    import tarfile

    text = io.BytesIO()
    with tarfile.open(fileobj=text, mode="w") as tar:
        for name, data in FILES.items():
            about = tarfile.TarInfo(name.replace("set/", "").replace("/", "_"))
            about.size = len(data)
            tar.addfile(about, io.BytesIO(data))
    server = serve("gs", {"t/a.tar": text.getvalue()}, ["crc32c"])
    try:
        with Proxy("--to", server.url) as proxy:
            base = reach(clean, "gs", proxy)
            found, reported = read(f"{base}/t")
            assert sorted(found.values()) == sorted(FILES.values())
            assert reported["gs"]["checked"] in (0, len(text.getvalue()))
            assert run("cp", f"{base}/t/a.tar", tmp_path) is not None
            assert (tmp_path / "a.tar").read_bytes() == text.getvalue()
    finally:
        server.close()


def test_sums_of_other_bytes(clean, tmp_path):  # noqa: F811
    """A server that reports the checksum of the whole object with each range: a range that was
    received twice with the same bytes is accepted, and after a few such answers these checksums are
    ignored."""
    class Odd(object_server.S3):
        def seals(self, data, body, ranged=False):
            return {"x-amz-checksum-crc32": object_server.checksum("crc32", data)}

    data = np.arange(40 << 20, dtype=np.uint8).tobytes()
    server = serve("s3", {"large": data}, [])
    server.RequestHandlerClass = Odd
    try:
        with Proxy("--to", server.url) as proxy:
            base = reach(clean, "s3", proxy)
            run("cp", f"{base}/large", tmp_path / "copy")
            assert (tmp_path / "copy").read_bytes() == data
            log = proxy.stop()
        gets = [line for line in log if line["method"] == "GET" and line["status"] == 206]
        assert 5 <= len(gets) <= 12
    finally:
        server.close()
