"""Goal: if each read is a round trip, reads are joined into few large ones of many samples, in the
mount's preferred size, without reading too many unused bytes; the user's settings are obeyed; the
samples are the same.

Method: tars behind fuse_server.py, a real mount, which logs the bytes of each read.
"""

from __future__ import annotations

import contextlib
import os

import make
import pytest
import stoker
from fuse_server import Mount
from test_filesystem_info import ground, stoker as run

fuse = pytest.mark.skipif(not Mount.is_possible(), reason="no root, or no /dev/fuse")
KIB, MIB = 1 << 10, 1 << 20
SAMPLES, BYTES = 240, 60_000
TAKES = 119 * 512  # in the tar, with its header


def put_tars(folder, samples=SAMPLES, size=BYTES, tars="a"):
    folder.mkdir()
    names = [(f"{i:05}.bin", (b"%08d" % i) * (size // 8)) for i in range(samples)]
    for tar in tars:
        make.tar(folder / f"{tar}.tar", [(tar + name, value) for name, value in names])
    stoker.index(folder, out=folder / "stoker.index")
    return folder


def values(path, options, **engine):
    """The samples in their order, and the loader's statistics of its reads."""
    got = []
    with contextlib.ExitStack() as stack:
        engine = stack.enter_context(stoker.Engine(threads=2, memory="512MiB", **engine))
        options = {"fields": {"bin": stoker.Bytes("bin")}, "output": "numpy", "seed": 5} | options
        loader = stack.enter_context(
            make.loader(stoker.Dataset(str(path), engine=engine), engine=engine, **options)
        )
        for batch in loader:
            got += [bytes(value) for value in batch["bin"]]
        return got, loader.stats()


PAGE = 4096  # the first use of a shard compares some headers of its index: reads of 1 to 4 pages


class Sent:
    """Reads of the tar: their bytes, and the number of reads for each sample that they contain
    completely. (The loader reads into the next epoch, so the number of reads alone shows
    nothing.)"""

    def __init__(self, mounted, kept, takes=TAKES, size=BYTES):
        sent = [read for read in mounted.reads(".tar") if read[1] > 4 * PAGE]
        self.sizes, self.count = [size for _, size in sent], len(sent)
        whole = sum(
            begin <= i * takes + 512 and i * takes + 512 + size <= begin + length
            for begin, length in sent
            for i in kept
        )
        assert whole >= len(kept)
        self.least, self.most = min(self.sizes), max(self.sizes)
        self.mean = sum(self.sizes) / self.count
        self.share = self.count / whole


def reads(tmp_path, options, mount=None, **engine):
    """The reads, after the samples were compared with those from a disk."""
    point = tmp_path / f"m{len(list(tmp_path.iterdir()))}"
    with Mount(tmp_path / "data", point, **(mount or {})) as mounted:
        got, stats = values(point, options, **engine)
        sent = Sent(mounted, options["subset"])
    assert got == values(tmp_path / "data", options)[0] and len(got) == stats["samples"]
    return sent, stats


def every(kept, of):
    return {"subset": [i for i in range(SAMPLES) if i % of < kept], "shuffle": "none",
            "batch_size": 60}  # fmt: skip


# gaps as large as the wanted bytes, and three times as large
DENSE, SPARSE = every(2, 4), every(1, 4)
THEN = {"io_gap_bytes": "64KiB", "io_bytes_max": "4MiB"}  # the gap of disks, set by the user
ONE, TWO = TAKES + 8 * KIB, 2 * TAKES + 8 * KIB  # the most that so many samples take, in pages


@fuse
@pytest.mark.parametrize("backend", ["auto", "threads"])
def test_joined(tmp_path, backend):
    put_tars(tmp_path / "data")
    before, _ = reads(tmp_path, DENSE, **THEN, io_backend=backend)
    assert abs(before.share - 1 / 2) < 0.05 and before.most < TWO  # pairs
    now, stats = reads(tmp_path, DENSE, io_backend=backend)
    assert now.share <= before.share / 2 and now.mean >= 2 * before.mean
    assert MIB // 2 < now.most <= MIB and now.least > BYTES  # the kernel cut nothing off
    assert now.mean * now.share <= 2 * before.mean * before.share
    assert 0 < stats["bytes"] < stats["io_bytes"]


@fuse
def test_too_much_between(tmp_path):
    """The unused bytes of a read are at most as many as the wanted ones, except for the small gap
    that disks use."""
    put_tars(tmp_path / "data")
    sent, _ = reads(tmp_path, SPARSE)
    assert sent.share > 0.95 and sent.most < ONE


@fuse
def test_given(tmp_path):
    put_tars(tmp_path / "data")
    sent, _ = reads(tmp_path, SPARSE, io_gap_bytes="256KiB")  # whatever the size of the gap
    assert sent.share <= 1 / 3 and sent.mean * sent.share > 2 * BYTES and sent.most <= MIB
    sent, _ = reads(tmp_path, DENSE, io_gap_bytes=1)
    assert sent.share > 0.95 and sent.most < ONE
    sent, _ = reads(tmp_path, DENSE, io_bytes_max="400KiB")
    assert TWO < sent.most <= 408 * KIB
    sent, stats = reads(tmp_path, DENSE, io_bytes_max="3MiB")  # larger than the mount's
    assert stats["io_bytes"] / stats["io_requests"] > MIB and sent.most == MIB


@fuse
def test_size_of_the_mount(tmp_path):
    """max_read is known: no read is larger than the size at which the kernel would split it."""
    put_tars(tmp_path / "data")
    small = {"max_read": 128 * KIB}
    sent, _ = reads(tmp_path, DENSE, mount=small)
    assert abs(sent.share - 1 / 2) < 0.05 and BYTES < sent.least and sent.most <= 128 * KIB
    sent, stats = reads(tmp_path, DENSE, mount=small, io_bytes_max="1MiB", io_gap_bytes="256KiB")
    assert sent.most == 128 * KIB < stats["io_bytes"] / stats["io_requests"]


@fuse
def test_gathered(tmp_path):
    """Waiting samples of several batches are one read: neighbours are seldom in one batch."""
    put_tars(tmp_path / "data", samples=400, size=5000)
    options = {"shuffle": "full", "batch_size": 8, "batches_ahead": 16}
    with Mount(tmp_path / "data", tmp_path / "m", delay=20) as mounted:
        got, _ = values(mounted.point, options, io_depth=1)
        sent = Sent(mounted, range(400), 11 * 512, 5000)
    assert got == values(tmp_path / "data", options)[0]
    assert sent.share <= 1 / 4, sent.share


@fuse
def test_complete_requests(tmp_path):
    """If samples are adjacent, in several tars, no read is smaller than a request and a page."""
    put_tars(tmp_path / "data", samples=400, size=5000, tars="abc")
    with Mount(tmp_path / "data", tmp_path / "m") as mounted:
        got, _ = values(mounted.point, {"shuffle": "none", "batch_size": 600})
        sizes = [size for _, size in mounted.reads(".tar") if size > PAGE]
    assert got == values(tmp_path / "data", {"shuffle": "none", "batch_size": 600})[0]
    assert max(sizes) == MIB and min(sizes) > 5000, sizes


@fuse
def test_two_mounts(tmp_path):
    """Each mount's own size, in one engine."""
    put_tars(tmp_path / "data")
    with (
        Mount(tmp_path / "data", tmp_path / "m", max_read=128 * KIB) as small,
        Mount(tmp_path / "data", tmp_path / "n") as large,
        stoker.Engine(threads=2, memory="512MiB") as engine,
    ):
        for mount, most in ((small, 128 * KIB), (large, MIB), (small, 128 * KIB)):
            mount.forget()
            dataset = stoker.Dataset(str(mount.point), engine=engine)
            with make.loader(dataset, fields={"bin": stoker.Bytes("bin")}, **DENSE) as loader:
                assert sum(len(batch["bin"]) for batch in loader) == SAMPLES // 2
            assert most // 2 < Sent(mount, DENSE["subset"]).most <= most


@fuse
def test_reported(tmp_path):
    put_tars(tmp_path / "data")
    reported = ground(tmp_path / "data")
    assert (reported["joined_gap_bytes"], reported["joined_bytes_max"]) == (64 * KIB, 4 * MIB)
    with Mount(tmp_path / "data", tmp_path / "m") as mount:
        reported = ground(mount.point / "a.tar")
        assert (reported["joined_gap_bytes"], reported["joined_bytes_max"]) == (256 * KIB, MIB)
        text = run("info", "--filesystem", mount.point).stdout.decode()
        assert "cold reads  of at most 1.0 MB, across gaps up to 262.1 kB" in text, text
    with Mount(tmp_path / "data", tmp_path / "n", max_read=128 * KIB) as mount:
        reported = ground(mount.point, 1)
        assert (reported["joined_gap_bytes"], reported["joined_bytes_max"]) == (64 * KIB, 128 * KIB)


@fuse
def test_block(tmp_path):
    """If files prefer larger blocks than FUSE requests usually have, reads have that size."""
    put_tars(tmp_path / "data")
    with Mount(tmp_path / "data", tmp_path / "m", block=4 * MIB) as mount:
        for path in (mount.point, mount.point / "a.tar"):
            reported = ground(path)
            assert (reported["joined_gap_bytes"], reported["joined_bytes_max"]) == (MIB, 4 * MIB)
    _, stats = reads(tmp_path, DENSE, mount={"block": 4 * MIB})
    assert stats["io_bytes"] / stats["io_requests"] > MIB


@fuse
def test_read_ahead(tmp_path):
    """Through the page cache the kernel splits a read into pieces of the read-ahead window: the
    window is set to twice the usual size."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.bin").write_bytes(os.urandom(MIB - 1))
    with Mount(tmp_path / "data", tmp_path / "m") as mount:
        (mount.point / "a.bin").read_bytes()
        others = [size for _, size in mount.reads("a.bin")]
    with Mount(tmp_path / "data", tmp_path / "n") as mount:
        assert run("prewarm", mount.point).returncode == 0
        sent = [size for _, size in mount.reads("a.bin")]
    assert sum(sent) == sum(others) and max(sent) == 2 * max(others), (sent, others)
    assert len(sent) <= len(others) // 2 + 1
