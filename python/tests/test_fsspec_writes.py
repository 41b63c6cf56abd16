"""Writes through fsspec: how much is buffered on this machine, and the result if an exception
leaves the writer's block, whichever code closes the file. A store of our own; fsspec's memory file
system, which keeps the partial file, is the oracle of "closed as if all were well"."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import os
import subprocess
import sys

import object_server
import pytest
import stoker

fsspec = pytest.importorskip("fsspec")
ROOT = "stoker://gs/b"
HALF = b"half " * 5000
FULL = """
import stoker.fsspec_filesystem
fs = stoker.fsspec_filesystem.StokerFileSystem()
file = fs.open("stoker://gs/b/full", "wb", block_size=1 << 16)
try:
    file.write(b"x" * (1 << 20))
except OSError as error:
    print(error.errno, *error.__notes__)
file.close()
"""


@pytest.fixture
def store(monkeypatch):
    from stoker.fsspec_filesystem import StokerFileSystem

    server = object_server.google({})
    for name in [name for name in os.environ if name.startswith(("GS_", "GOOGLE_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
    monkeypatch.setenv("GS_NO_SIGN_REQUEST", "YES")
    fsspec.register_implementation("stoker", StokerFileSystem, clobber=True)
    yield server
    server.close()


@pytest.fixture
def fs(store):
    from stoker.fsspec_filesystem import StokerFileSystem

    with stoker.Engine(threads=1, memory="128MiB") as engine:
        yield StokerFileSystem(engine=engine, skip_instance_cache=True)


@contextlib.contextmanager
def closes_at_the_end(file):
    try:
        yield file
    finally:
        file.close()


def fsspec_open(fs, path, mode, **options):
    return fsspec.core.OpenFile(fs, path, mode, **options)


WAYS = {
    "its own": lambda fs, path: fs.open(path, "wb"),
    "text": lambda fs, path: fs.open(path, "w"),
    "packed": lambda fs, path: fs.open(path, "wb", compression="gzip"),
    "packed text": lambda fs, path: fs.open(path, "w", compression="bz2"),
    "fsspec": lambda fs, path: fsspec_open(fs, path, "wb"),
    "fsspec text": lambda fs, path: fsspec_open(fs, path, "w"),
    "fsspec packed": lambda fs, path: fsspec_open(fs, path, "wb", compression="gzip"),
    "fsspec packed text": lambda fs, path: fsspec_open(fs, path, "w", compression="gzip"),
    "closing": lambda fs, path: contextlib.closing(fs.open(path, "wb")),
    "finally": lambda fs, path: closes_at_the_end(fs.open(path, "wb")),
}


def unpacked(way, data):
    return (bz2.decompress(data) if way == "packed text"
            else gzip.decompress(data) if "packed" in way else data)


@pytest.mark.parametrize("way", WAYS)
def test_left_by_an_exception(store, fs, way):
    """Nothing is written; and all of it if there was no exception."""
    half = HALF.decode() if "text" in way else HALF
    with pytest.raises(ZeroDivisionError), WAYS[way](fs, f"{ROOT}/half") as file:
        file.write(half)
        1 / 0
    assert store.objects == {}
    with WAYS[way](fs, f"{ROOT}/whole") as file:
        file.write(half)
        file.write(half)
    assert set(store.objects) == {("b", "whole")}
    assert unpacked(way, store.objects["b", "whole"]) == 2 * HALF


@pytest.mark.parametrize("way", WAYS)
def test_while_another_is_handled(store, fs, way):
    """An exception that was there before, or that a writer deals with, takes nothing away."""
    half = HALF.decode() if "text" in way else HALF
    try:
        1 / 0
    except ZeroDivisionError:
        with WAYS[way](fs, f"{ROOT}/report") as file:
            file.write(half)
    before = WAYS[way](fs, f"{ROOT}/before")
    try:
        1 / 0
    except ZeroDivisionError:
        with before as file:
            file.write(half)
    with WAYS[way](fs, f"{ROOT}/inside") as file:
        try:
            1 / 0
        except ZeroDivisionError:
            file.write(half)
    assert {unpacked(way, data) for data in store.objects.values()} == {HALF}
    assert {key for _, key in store.objects} == {"report", "before", "inside"}


def test_closed_in_an_except_block(store, fs):
    file = fs.open(f"{ROOT}/a", "wb")
    try:
        1 / 0
    except ZeroDivisionError:
        file.write(HALF)
        file.close()  # the writer closes it deliberately
    assert store.objects == {("b", "a"): HALF}


class Reporter:
    """Writes the result when an exception leaves its block."""

    def __init__(self, fs):
        self.fs = fs

    def __enter__(self):
        return self

    def __exit__(self, *why):
        with self.fs.open(f"{ROOT}/report", "wb") as file:
            file.write(repr(why[1]).encode())


def test_a_report_of_an_exception(store, fs):
    with pytest.raises(ZeroDivisionError), Reporter(fs):
        1 / 0
    assert b"division" in store.objects["b", "report"]


def test_pandas(store, fs):
    pandas = pytest.importorskip("pandas")

    class Bad:
        def __str__(self):
            raise ZeroDivisionError

    options = {"engine": fs.engine, "skip_instance_cache": True}
    pandas.DataFrame({"a": [1, 2]}).to_csv(f"{ROOT}/good.csv", index=False, storage_options=options)
    assert store.objects["b", "good.csv"] == b"a\n1\n2\n"
    with pytest.raises(ZeroDivisionError):
        pandas.DataFrame({"a": [1, Bad()]}).to_csv(f"{ROOT}/bad.csv", storage_options=options)
    assert ("b", "bad.csv") not in store.objects


def test_packed_files_are_read(store, fs):
    store.objects["b", "a.gz"] = gzip.compress(b"one\ntwo\n")
    with fs.open(f"{ROOT}/a.gz", compression="infer") as file:
        assert file.readline() == b"one\n" and file.read() == b"two\n"
    with fs.open(f"{ROOT}/a.gz", "rt", compression="gzip") as file:
        assert list(file) == ["one\n", "two\n"]
    left = fs.open(f"{ROOT}/left", "wb", compression="gzip")
    left.write(HALF)
    del left  # was never closed
    assert ("b", "left") not in store.objects


def test_no_more_than_spool(store, tmp_path):
    """The error names the option; nothing is written; a file that fits is."""
    with stoker.Engine(threads=1, memory="128MiB") as engine:
        options = {"engine": engine, "spool": "64KiB", "skip_instance_cache": True}
        fs = fsspec.filesystem("stoker", **options)
        with fs.open(f"{ROOT}/fits", "wb", block_size=1 << 15) as file:
            file.write(b"x" * 65536)
        with pytest.raises(stoker.LimitError, match="spool") as why:
            with fs.open(f"{ROOT}/large", "wb", block_size=1 << 15) as file:
                file.write(b"x" * 65537)
        assert "gs://b/large" in str(why.value) and "65536 bytes" in str(why.value)
        file = fs.open(f"{ROOT}/swallowed", "wb", block_size=1 << 15)
        with contextlib.suppress(stoker.LimitError):
            file.write(b"x" * 65537)
        file.close()
        with pytest.raises(stoker.ArgumentError, match="spool"):
            fsspec.filesystem("stoker", spool="much", skip_instance_cache=True)
    assert {key: len(data) for key, data in store.objects.items()} == {("b", "fits"): 65536}


def test_no_room_on_this_machine(store, tmp_path):
    """The error names the folder for temporary files, and no partial file is sent."""
    if os.geteuid() != 0 or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=128k", "none", str(tmp_path)],
            check=False, capture_output=True).returncode:
        pytest.skip("cannot mount a small tmpfs")
    try:
        done = subprocess.run([sys.executable, "-c", FULL], capture_output=True, text=True,
                              timeout=120, env={**os.environ, "TMPDIR": str(tmp_path)}, check=True)
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)
    assert done.stdout.startswith("28 ") and "TMPDIR" in done.stdout
    assert str(tmp_path) in done.stdout
    assert store.objects == {}


def test_a_move_keeps_newer_files(store, fs, monkeypatch):
    """An object that comes into the source while its other objects move is not removed."""
    from stoker import files

    fs.pipe({f"{ROOT}/from/1": b"1", f"{ROOT}/from/2": b"2"})
    run, new = files.run, [b"new"]

    def and_then(*words, **more):
        result = run(*words, **more)
        if new:
            fs.pipe(f"{ROOT}/from/3", new.pop())
        return result

    monkeypatch.setattr(files, "run", and_then)
    fs.mv(f"{ROOT}/from", f"{ROOT}/to", recursive=True)
    assert fs.cat(f"{ROOT}/to", recursive=True) == {"gs/b/to/1": b"1", "gs/b/to/2": b"2"}
    assert fs.cat(f"{ROOT}/from/3") == b"new"
    assert fs.find(f"{ROOT}/from") == ["gs/b/from/3"]
