"""stoker.cp, sync, rm, ls, stat and cat: what the commands do, from Python; and many ranges.

test_copy.py tests the guarantees of copies; this file tests that Python offers every option, and
what it returns."""

from __future__ import annotations

import os

import make
import numpy as np
import pytest
import stoker
from stoker import _stoker
from test_copy import below

FILES = {"plain": 1000, "empty": 0, "sub/ü +%41&=?#.bin": 70_000, "sub/deep/large": 12_345_678}


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    return make.tree(tmp_path_factory.mktemp("tree"), FILES)


@pytest.fixture
def url(ceph, request):
    name = "files-" + request.node.name.lower().replace("_", "-").split("[")[0]
    ceph.client().create_bucket(Bucket=name)
    return f"s3://{name}"


def test_there_and_back(url, tree, tmp_path, engine):
    seen = []
    report = stoker.cp(tree, f"{url}/a", recursive=True, part_bytes="5MiB", progress=seen.append,
                       engine=engine)
    assert report == seen[-1] and report.listed and report.files == report.files_done == len(FILES)
    assert report.bytes_done == sum(FILES.values()) and report.files_failed == 0
    assert [one.files_done for one in seen] == sorted(one.files_done for one in seen)
    found = {item.name: item for item in stoker.ls(f"{url}/a", recursive=True, engine=engine)}
    assert {name: item.bytes for name, item in found.items()} == FILES
    assert all(item.kind == "file" and item.etag and item.modified for item in found.values())
    flat = {item.name: item.kind for item in stoker.ls(f"{url}/a/", engine=engine)}
    assert flat == {"plain": "file", "empty": "file", "sub": "folder"}
    for name, data in below(tree).items():
        assert stoker.stat(f"{url}/a/{name}").bytes == len(data)
        assert stoker.cat(f"{url}/a/{name}", engine=engine) == data
        assert stoker.cat(f"{url}/a/{name}", -500, -3, engine=engine) == data[-500:-3]
        assert stoker.cat(f"{url}/a/{name}", 7, 10**9, engine=engine) == data[7:]
    stoker.cp([f"{url}/a/plain", f"{url}/a/empty"], tmp_path / "two", engine=engine)
    assert set(os.listdir(tmp_path / "two")) == {"plain", "empty"}
    assert stoker.sync(f"{url}/a", tmp_path / "back", engine=engine).files_done == len(FILES)
    assert below(tmp_path / "back") == below(tree)
    again = stoker.sync(f"{url}/a", tmp_path / "back", delete=True, engine=engine)
    assert again.files_kept == len(FILES) and again.files_removed == 0
    (tmp_path / "back/more").write_bytes(b"1")
    assert stoker.sync(f"{url}/a", tmp_path / "back", delete=True).files_removed == 1
    assert stoker.rm(f"{url}/a/plain").files_removed == 1
    assert stoker.rm(f"{url}/a", recursive=True).files_removed == len(FILES) - 1
    for name in ("", *FILES):  # cached metadata of the old object is dropped
        with pytest.raises(FileNotFoundError):
            stoker.stat(f"{url}/a/{name}".rstrip("/"))


def test_failures(url, tree, tmp_path):
    seen = []
    with pytest.raises(FileNotFoundError, match="none"):
        stoker.cp([tree / "plain", f"{url}/none"], tmp_path / "to", progress=seen.append)
    assert (tmp_path / "to/plain").exists() and seen[-1].files_done == 1
    with pytest.raises(FileExistsError):
        stoker.cp(tree / "empty", tmp_path / "to/plain", no_clobber=True)
    assert (tmp_path / "to/plain").read_bytes() == (tree / "plain").read_bytes()
    for wrong in (lambda: stoker.cp(tree, tmp_path / "x", workers=10**6),
                  lambda: stoker.cp(tree, tmp_path / "x", check="none"),
                  lambda: stoker.cp(tree, tmp_path / "x", part_bytes=1),
                  lambda: stoker.cp([], tmp_path / "x"),
                  lambda: stoker.cat("", engine=7)):
        with pytest.raises(stoker.ArgumentError):
            wrong()
    with pytest.raises(stoker.UnsupportedError, match="http://"):
        stoker.cp(tree / "plain", "http://127.0.0.1/plain")


def test_local(tree, tmp_path):
    assert {item.name for item in stoker.ls(tree, recursive=True)} == set(FILES)
    assert next(stoker.ls(tree / "plain")).name == ""
    assert stoker.stat(tree).kind == "folder"
    assert stoker.cat(tree / "plain", 10, 20) == (tree / "plain").read_bytes()[10:20]
    with pytest.raises(FileNotFoundError):
        list(stoker.ls(tree / "none"))
    with pytest.raises(FileNotFoundError):
        stoker.cat(tree / "none")


def test_ranges(ceph, tree, engine):
    """Ranges of several objects, local and remote, overlapping, empty, and past the end, against
    slices."""
    client = ceph.client()
    client.create_bucket(Bucket="ranges")
    names = ["sub/deep/large", "plain", "empty"]
    for name in names:
        client.put_object(Bucket="ranges", Key=name, Body=(tree / name).read_bytes())
    data = [(tree / name).read_bytes() for name in names]
    urls = tuple(f"s3://ranges/{name}".encode() for name in names)
    _stoker.files_prefetch_metadata(engine._native, urls)
    files = [_stoker.File(engine._native, url) for url in urls]
    random = np.random.default_rng(3)
    for gap in (0, 1, 2**32 - 1):
        requested = []
        for _ in range(300):
            which = int(random.choice([0, 0, 0, 1, 2]))
            size = len(data[which])
            begin = int(random.integers(0, max(1, size + 10)))
            requested.append((which, begin, int(random.choice([0, 1, 100, 5000, 200_000]))))
        requested += [(0, 0, 10**8), (0, 5, 10**7)]  # larger than a request
        before = engine.store_stats()["s3"]["requests"]
        found = _stoker.read_ranges([(files[w], begin, n) for w, begin, n in requested], gap)
        assert found == [data[w][begin:begin + n] for w, begin, n in requested]
        sent = engine.store_stats()["s3"]["requests"] - before
        assert sent < (30 if gap > 1 else 60 if gap == 0 else 302), gap
    client.put_object(Bucket="ranges", Key="plain", Body=b"another")
    found = _stoker.read_ranges([(files[0], 0, 10), (files[1], 0, 10), (files[2], 0, 10)], 0)
    assert found[0] == data[0][:10] and found[2] == b""
    assert isinstance(found[1], stoker.ChangedError) and "ranges/plain" in str(found[1])
    files[0].close()
    with pytest.raises(stoker.ClosedError):
        _stoker.read_ranges([(files[1], 0, 10), (files[0], 0, 10)], 0)


def test_memory_is_of_the_budget(ceph, tree):
    """Ranges are joined in buffers of the engine's, or read one by one where there is no room."""
    client = ceph.client()
    client.create_bucket(Bucket="small")
    data = (tree / "sub/deep/large").read_bytes()
    client.put_object(Bucket="small", Key="x", Body=data)
    with stoker.Engine(threads=1, memory="20MiB") as small:
        file = _stoker.File(small._native, b"s3://small/x")
        requested = [(file, begin, 1000) for begin in range(0, len(data) - 1000, 100_000)]
        found = _stoker.read_ranges(requested, 0)
        assert found == [data[begin:begin + 1000] for _, begin, _ in requested]
        assert small.info()["memory_bytes_peak"] <= 20 << 20
