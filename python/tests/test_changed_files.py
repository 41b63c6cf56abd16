"""Files that another process overwrites or truncates while they are open: the index, the JPEG
index, sampling tables, token files and Megatron indexes. A loader continues with what it has, or
raises ChangedError; it never ends the process and never returns wrong bytes."""

from __future__ import annotations

import os
import random
import struct
import subprocess
import sys
import time

import make
import numpy as np
import pytest
import stoker


def _await_idle():
    """File times have steps of some milliseconds."""
    time.sleep(0.03)


def _overwrite(path, how):
    _await_idle()
    size = os.path.getsize(path)
    with open(path, "r+b") as file:
        if how == "truncate":
            file.truncate(size // 3)
        elif how == "empty":
            file.truncate(0)
        elif how == "zeros":
            file.write(bytes(size))
        else:
            file.write(random.Random(how).randbytes(size))


HOWS = ["truncate", "empty", "zeros", 1, 2]


@pytest.fixture
def tars(tmp_path):
    """200 samples in 4 tars with an index and a JPEG index next to them."""
    for shard in range(4):
        members = []
        for sample in range(shard * 50, shard * 50 + 50):
            members.append((f"{sample:06}.jpg", make.encoded(make.pixels(sample))))
            members.append((f"{sample:06}.cls", str(sample).encode()))
        make.tar(tmp_path / f"s-{shard}.tar", members)
    subprocess.run(
        [os.environ.get("STOKER_COMMAND", "stoker"), "index", "--jpeg-index", str(tmp_path)],
        check=True,
        capture_output=True,
    )
    return tmp_path


def _drain(loader, overwrite):
    """Reads epochs; overwrites the file after the third batch. Returns the samples of good batches
    and the error."""
    seen, error = [], None
    try:
        for _ in range(3):
            for number, batch in enumerate(loader):
                seen += list(zip(batch["id"].tolist(), batch["cls"].tolist(), strict=True))
                if number == 2 and overwrite:
                    overwrite()
                    overwrite = None
    except stoker.Error as raised:
        error = raised
    return seen, error


@pytest.mark.parametrize("how", HOWS)
def test_index(tars, how):
    index = tars / "stoker.index"
    fields = {"id": "__id__", "cls": stoker.Label()}
    with stoker.Loader(tars, 8, fields=fields, threads=2) as loader:
        seen, error = _drain(loader, lambda: _overwrite(index, how))
    assert all(number == label for number, label in seen)
    assert isinstance(error, stoker.ChangedError), error
    assert "stoker.index" in str(error)


def test_touched_index(tars):
    """Another time with the same bytes is no change; nor is a file that was replaced."""
    index = tars / "stoker.index"

    def replace():
        _await_idle()
        os.utime(index)
        copy = tars / "copy"
        copy.write_bytes(index.read_bytes()[:100])
        os.replace(copy, index)

    fields = {"id": "__id__", "cls": stoker.Label()}
    for change in (lambda: os.utime(index, (1, 1)), replace):
        with stoker.Loader(tars, 8, fields=fields, threads=2) as loader:
            seen, error = _drain(loader, change)
        assert error is None and len(seen) == 600
        assert all(number == label for number, label in seen)


@pytest.mark.parametrize("how", HOWS)
def test_jpeg_index(tars, how):
    """Entry points of the decoder: other ones change no pixel, or are an error."""
    (path,) = (path for path in tars.iterdir() if "marks" in path.name)
    image = stoker.Image(transforms=[stoker.transforms.CenterCrop(16)])
    fields = {"id": "__id__", "image": image}
    options = {"fields": fields, "threads": 2, "output": "numpy"}
    with stoker.Loader(tars, 8, **options) as loader:
        wanted = {i: x.copy() for batch in loader for i, x in _pairs(batch)}
    with stoker.Loader(tars, 8, **options) as loader:
        try:
            for epoch in range(3):
                for number, batch in enumerate(loader):
                    assert all(np.array_equal(x, wanted[i]) for i, x in _pairs(batch))
                    if epoch == 0 and number == 2:
                        _overwrite(path, how)
        except stoker.ChangedError as error:
            assert "marks" in str(error)


def _pairs(batch):
    return zip(batch["id"].tolist(), batch["image"], strict=True)


@pytest.mark.parametrize("how", HOWS)
def test_table(tars, how, tmp_path):
    chosen = {"subset": "label > 20", "weights": "label"}
    fields = {"id": "__id__", "cls": stoker.Label()}
    engine = stoker.Engine(threads=2)
    dataset = stoker.Dataset(tars, engine=engine)
    with stoker.Loader(dataset, 8, fields=fields, **chosen):
        pass  # makes the table
    tables = [path for path in tars.iterdir() if "table" in path.name]
    with stoker.Loader(dataset, 8, fields=fields, **chosen) as loader:
        seen, error = _drain(loader, lambda: [_overwrite(path, how) for path in tables])
    assert tables
    assert all(number == label and label > 20 for number, label in seen)
    assert error is None or isinstance(error, stoker.ChangedError)


@pytest.mark.parametrize("chosen", [{"weights": "label"}, {"balance": "label"}])
def test_explain_of_a_damaged_table(tars, chosen):
    """An error that names the table, never sample 0 everywhere."""
    with stoker.Loader(tars, 8, fields={"id": "__id__"}, **chosen) as loader:
        wanted = [slot.sample for slot in loader.explain(3)]
        assert len(set(wanted)) > 1
        (table,) = (path for path in tars.iterdir() if "table" in path.name)
        _overwrite(table, 1)
        with pytest.raises(stoker.CorruptError, match="table of chosen samples is damaged"):
            loader.explain(3)


# ---- tokens ----


def _megatron(prefix, documents, length):
    """Documents of `length` tokens: token i of document d is d * length + i."""
    count = documents * length
    np.arange(count, dtype=np.int32).tofile(f"{prefix}.bin")
    with open(f"{prefix}.idx", "wb") as idx:
        idx.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 4, documents, documents + 1))
        idx.write(np.full(documents, length, np.int32).tobytes())
        idx.write((np.arange(documents, dtype=np.int64) * length * 4).tobytes())
        idx.write(np.arange(documents + 1, dtype=np.int64).tobytes())


ROWS = ["windows", "packed", "documents"]


def _tokens(batch):
    if isinstance(batch, dict):
        batch = batch["input_ids"]
    return np.concatenate([np.asarray(row) for row in batch])


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("part", ["bin", "idx"])
@pytest.mark.parametrize("how", HOWS)
def test_tokens(tmp_path, rows, part, how):
    _megatron(tmp_path / "set", 3000, 64)
    error = None
    options = {"rows": rows, "labels": False, "output": "numpy"}
    with stoker.TokenLoader(tmp_path / "set.bin", 4, 64, **options) as loader:
        try:
            for _ in range(3):
                for number, batch in enumerate(loader):
                    tokens = _tokens(batch)
                    gaps = np.diff(tokens)
                    # Tokens of a document follow each other; documents begin at multiples of 64.
                    assert np.all((gaps == 1) | (tokens[1:] % 64 == 0) | (tokens[:-1] % 64 == 0))
                    if number == 2 and error is None:
                        _overwrite(tmp_path / f"set.{part}", how)
                        error = "overwritten"
        except stoker.ChangedError as raised:
            error = raised
    assert isinstance(error, stoker.ChangedError)
    assert f"set.{part}" in str(error)


@pytest.mark.parametrize("later", ["", "faulthandler.enable()"])
def test_truncated_in_a_script(tmp_path, later):
    """Without pytest's handlers: the process continues, and a SIGBUS of its own still ends it. Also
    if a handler is installed over the library's."""
    _megatron(tmp_path / "set", 4000, 64)
    script = f"""
import ctypes, faulthandler, mmap, os, stoker
loader = stoker.TokenLoader({str(tmp_path / "set.bin")!r}, 4, 64)
batches = iter(loader)
next(batches)
{later}
os.truncate({str(tmp_path / "set.bin")!r}, 0)
try:
    next(batches)
except stoker.ChangedError:
    print("changed", flush=True)
with open({str(tmp_path / "own")!r}, "w+b") as own:
    own.truncate(4096)
    view = mmap.mmap(own.fileno(), 4096)
    own.truncate(0)
view[0]
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "changed\n", done.stderr
    assert done.returncode == -7
