"""Shards in a store that are rewritten with the same size: on nginx and on Ceph's S3 gateway, plain
and compressed, before they are opened and while they are open. Indexes, JPEG indexes and tables of
the old shards are not used for the new ones."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import tarfile
import time

import make
import numpy as np
import pytest
import stoker
from test_cli import COMMAND
from test_store import run

assert COMMAND
MEMBER = 1 << 20
ZSTD_BLOCK = 100_000  # raw blocks


class Objects:
    """A folder of shards in a store: write() replaces an object, source names the data set."""

    def __init__(self, url, put, shards):
        self.url, self._put, self.shards = url, put, shards

    def write(self, name, data):
        self._put(name, data)

    @property
    def source(self):
        return [f"{self.url}/{name}" for name in self.shards]


@pytest.fixture(params=["nginx", "ceph"])
def objects(request, shelf, tmp_path, monkeypatch):
    """Returns a function: names of shards to Objects in a folder of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    name = f"changing-{os.urandom(8).hex()}"
    if request.param == "nginx":
        server = request.getfixturevalue("nginx")
        folder = shelf / name
        folder.mkdir()

        def put(key, data):
            # nginx's Last-Modified and ETag have whole seconds.
            path = folder / key
            before = path.stat().st_mtime if path.exists() else time.time() - 100
            path.write_bytes(data)
            os.utime(path, (before + 1, before + 1))

        yield lambda shards: Objects(f"{server.url}/{name}", put, shards)
        shutil.rmtree(folder)
    else:
        client = request.getfixturevalue("ceph").client()
        client.create_bucket(Bucket=name)
        yield lambda shards: Objects(
            f"s3://{name}",
            lambda key, data: client.put_object(Bucket=name, Key=key, Body=data), shards)


def tar(samples):
    """The bytes of a tar of (key, extension, data)."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for key, extension, data in samples:
            info = tarfile.TarInfo(f"{key}.{extension}")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return file.getvalue()


def labels(numbers, first=0):
    return tar([(f"{first + i:04}", "cls", b"%d" % number) for i, number in enumerate(numbers)])


def values(source, *, index="auto", **options):
    """The labels, by an engine of its own: as another process reads them."""
    with stoker.Engine(threads=2, memory="256MiB") as engine:
        dataset = stoker.Dataset(source, engine=engine, index=index)
        with stoker.Loader(dataset, 1, fields={"y": stoker.Int("cls")}, shuffle="none",
                           tail="keep", output="numpy", **options) as loader:
            return [int(batch["y"][0]) for batch in loader]


def index(source, *words):
    run("index", *words, *source)


def test_an_index_of_shards_that_were_rewritten(objects):
    """With the same names and headers, and with others."""
    there = objects(["a.tar", "b.tar"])
    there.write("a.tar", labels([1, 2, 3]))
    there.write("b.tar", labels([4, 5, 6], 10))
    index(there.source)
    assert values(there.source, index="require") == [1, 2, 3, 4, 5, 6]
    there.write("b.tar", labels([7, 8, 9], 10))
    assert values(there.source) == [1, 2, 3, 7, 8, 9]
    with pytest.raises(stoker.ChangedError, match=r"b\.tar"):
        values(there.source, index="require")
    index(there.source)
    assert values(there.source, index="require") == [1, 2, 3, 7, 8, 9]
    there.write("a.tar", labels([9, 1, 2], 20))
    assert values(there.source) == [9, 1, 2, 7, 8, 9]


@pytest.mark.parametrize("words", [None, [], ["--seek-points"]], ids=["scan", "index", "points"])
@pytest.mark.parametrize("form", ["tar", "tar.gz", "tar.zst"])
def test_a_shard_that_is_rewritten_after_it_was_opened(objects, form, words):
    """With an index: before the first sample is delivered. A scan may have read a small shard as a
    whole: then its samples are those of the old version."""
    there = objects([f"a.{form}"])
    name = there.shards[0]
    there.write(name, packed(form, labels(range(1000, 1100))))
    if words is not None:
        index(there.source, *words)
    with stoker.Engine(threads=2, memory="256MiB") as engine:
        dataset = stoker.Dataset(there.source, engine=engine)
        there.write(name, packed(form, labels(range(2000, 2100))))
        with stoker.Loader(dataset, 1, fields={"y": stoker.Int("cls")}, shuffle="none",
                           output="numpy") as loader:
            found = []
            try:
                for batch in loader:
                    found.append(int(batch["y"][0]))
                error = None
            except stoker.ChangedError as raised:
                error = str(raised)
    assert found == list(range(1000, 1000 + len(found)))
    assert error is None or name in error
    assert (error and not found) if words is not None else (error or len(found) == 100)
    assert values(there.source) == list(range(2000, 2100))


@pytest.mark.parametrize("form", ["tar", "tar.gz", "tar.zst"])
def test_a_shard_that_is_rewritten_while_it_is_read(objects, form):
    """A loader delivers bytes of the version that it opened, then raises ChangedError."""
    there = objects([f"{i}.{form}" for i in range(12)])
    body = [np.random.default_rng(i).integers(0, 256, MEMBER, np.uint8).tobytes()
            for i in range(36)]

    def shard(number, flip):
        return packed(form, tar([(f"{i:04}", "bin", body[i][::-1] if flip else body[i])
                                 for i in range(number * 3, number * 3 + 3)]))

    for number, name in enumerate(there.shards):
        there.write(name, shard(number, False))
    count = 0
    with stoker.Engine(threads=1, memory="64MiB") as engine:
        dataset = stoker.Dataset(there.source, engine=engine)
        with stoker.Loader(dataset, 1, fields={"id": "__id__", "bin": stoker.Bytes("bin")},
                           shuffle="none", output="numpy", batches_ahead=1) as loader:
            with pytest.raises(stoker.ChangedError):
                for epoch in range(2):
                    for batch in loader:
                        assert bytes(batch["bin"][0]) == body[int(batch["id"][0])]
                        count += 1
                        if count == 3:
                            for number, name in enumerate(there.shards):
                                there.write(name, shard(number, True))
    assert count >= 3


def packed(form, data):
    """Stored, so that other values have the same size."""
    if form == "tar":
        return data
    if form == "tar.gz":
        return gzip.compress(data, 0)
    blocks = [data[at:at + ZSTD_BLOCK] for at in range(0, len(data), ZSTD_BLOCK)]
    return b"\x28\xb5\x2f\xfd\x00\x58" + b"".join(
        (len(block) << 3 | (number == len(blocks) - 1)).to_bytes(3, "little") + block
        for number, block in enumerate(blocks))


def test_tables_of_shards_that_were_rewritten(objects):
    there = objects(["a.tar"])
    chosen = {"subset": "cls > 4", "weights": "cls", "seed": 1}
    there.write("a.tar", labels([1, 5, 2, 6]))
    index(there.source)
    assert values(there.source, subset="cls > 4") == [5, 6]
    assert set(values(there.source, **chosen)) <= {5, 6}
    there.write("a.tar", labels([9, 1, 8, 2]))
    assert values(there.source, subset="cls > 4") == [9, 8]
    assert set(values(there.source, **chosen)) <= {9, 8}
    index(there.source)
    assert values(there.source, subset="cls > 4") == [9, 8]


def test_jpeg_indexes_of_shards_that_were_rewritten(objects):
    """Entry points of the old images are not used for the new ones."""
    there = objects(["a.tar"])

    def write(first):
        images = [make.encoded(make.pixels(first + i, 320, 480)) for i in range(6)]
        there.write("a.tar", tar([(f"{i}", "jpg", image.ljust(300_000, b"\0"))
                                  for i, image in enumerate(images)]))

    def pixels():
        with stoker.Engine(threads=2, memory="256MiB") as engine:
            dataset = stoker.Dataset(there.source, engine=engine)
            field = stoker.Image(transforms=[stoker.transforms.CenterCrop(64)])
            with stoker.Loader(dataset, 1, fields={"x": field}, shuffle="none", tail="keep",
                               output="numpy") as loader:
                return [batch["x"][0].copy() for batch in loader]

    write(0)
    plain = pixels()
    index(there.source, "--jpeg-index")
    assert np.array_equal(pixels(), plain)
    write(100)
    found = pixels()
    assert not np.array_equal(found, plain)
    shutil.rmtree(os.environ["XDG_CACHE_HOME"])
    assert np.array_equal(found, pixels())
