"""Malicious data: bombs, wrong lengths, and names that lead out of the folder.

Goal: every tool that reads untrusted data ends soon, with little memory, and reports what and
where; none reads or writes outside of its arguments. Method: the command in a process of its own,
whose peak memory and time are measured, over each of the sources below; a secret next to the data
that must not be printed. Rows in tables.
"""

from __future__ import annotations

import bz2
import functools
import io
import json
import lzma
import resource
import struct
import subprocess
import sys
import tarfile
import zipfile
import zlib

import make
import numpy as np
import pytest
import stoker
from test_cli import COMMAND

pytestmark = pytest.mark.skipif(COMMAND is None, reason="the stoker command is not built")

SECONDS = 20  # seconds of CPU time; each command takes a few at most
BYTES = 700 << 20  # bytes of memory: decoders of xz may take 256 MiB, and a budget is set below
SECRET = b"secret bytes of another file"


def run(*words):
    """Like a shell user with limits: status, stdout, stderr, MiB at most."""
    script = (
        "import resource, subprocess, sys\n"
        f"resource.setrlimit(resource.RLIMIT_CPU, ({SECONDS}, {SECONDS}))\n"
        "done = subprocess.run(sys.argv[1:], capture_output=True)\n"
        "sys.stdout.buffer.write(done.stdout)\n"
        "sys.stderr.buffer.write(done.stderr)\n"
        "peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024\n"
        f"assert peak < {BYTES}, f'{{peak >> 20}} MiB'\n"
        "sys.exit(done.returncode if done.returncode >= 0 else 100 - done.returncode)\n"
    )
    words = [sys.executable, "-c", script, COMMAND, *map(str, words)]
    return subprocess.run(words, capture_output=True, timeout=120, check=False)


# ---- bombs ------------------------------------------------------------------------------------


def zeros_tar(megabytes):
    """The start of a tar with one member of zeros, and the member's bytes in pieces."""
    info = tarfile.TarInfo("zeros.bin")
    info.size = megabytes << 20
    yield info.tobuf()
    for _ in range(megabytes):
        yield b"\0" * (1 << 20)
    yield b"\0" * 1024


def packed(path, compressor, megabytes):
    with open(path, "wb") as file:
        for piece in zeros_tar(megabytes):
            file.write(compressor.compress(piece))
        file.write(compressor.flush())
    return path


def xz_bomb(folder):
    return packed(folder / "bomb.tar.xz", lzma.LZMACompressor(), 40)


def bzip2_bomb(folder):
    return packed(folder / "bomb.tar.bz2", bz2.BZ2Compressor(), 40)


def zstd_window(folder):
    """A frame whose header needs a window of 2 GiB."""
    header = b"\x28\xb5\x2f\xfd" + b"\x00" + bytes([(31 - 10) << 3])
    block = struct.pack("<I", 1 | (0 << 1) | (10 << 3))[:3] + b"0123456789"
    return make.write(folder / "window.tar.zst", header + block)


def png_chunk(kind, data):
    check = struct.pack(">I", zlib.crc32(kind + data))
    return struct.pack(">I", len(data)) + kind + data + check


def png(width, height, *chunks, depth=8, colour=2):
    head = png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + b"".join(chunks) + png_chunk(b"IEND", b"")


@functools.cache
def deflated_zeros(megabytes):
    compressor = zlib.compressobj(6)
    out = b"".join(compressor.compress(b"\0" * (1 << 20)) for _ in range(megabytes))
    return out + compressor.flush()


def in_tar(folder, name, data):
    stem = name.partition(".")[0]
    members = [(name, data), (f"{stem}.cls", b"1"), ("ok.jpg", make.encoded(make.pixels(1)))]
    return make.tar(folder / "bomb.tar", [*members, ("ok.cls", b"1")])


def huge_png(folder):
    """A gigapixel in a few hundred kB."""
    return in_tar(folder, "a.png", png(40_000, 25_000, png_chunk(b"IDAT", deflated_zeros(100))))


def long_png(folder):
    """A small image, followed by 100 MB of zeros."""
    return in_tar(folder, "a.png", png(8, 8, png_chunk(b"IDAT", deflated_zeros(100))))


def text_in_png(folder):
    text = png_chunk(b"zTXt", b"Comment\0\0" + deflated_zeros(100))
    pixels = png_chunk(b"IDAT", zlib.compress(b"\0" * (8 * (8 * 3 + 1))))
    return in_tar(folder, "a.png", png(8, 8, text, pixels))


def profile_in_png(folder):
    profile = png_chunk(b"iCCP", b"p\0\0" + deflated_zeros(100))
    pixels = png_chunk(b"IDAT", zlib.compress(b"\0" * (8 * (8 * 3 + 1))))
    return in_tar(folder, "a.png", png(8, 8, profile, pixels))


def jpeg_of_scans(folder):
    """A progressive image whose last scan is repeated many times: each costs all of its blocks."""
    data = make.encoded(np.full((1000, 1000, 3), 77, np.uint8), progressive=True)
    at = data.rindex(b"\xff\xda")
    return in_tar(folder, "a.jpg", data[:-2] + data[at:-2] * 3000 + data[-2:])


def jpeg_of_nothing(folder):
    """65,500 x 65,500 by its header, and no data."""
    data = bytearray(make.encoded(make.pixels(1, 16, 16)))
    at = data.index(b"\xff\xc0")
    data[at + 5 : at + 9] = struct.pack(">HH", 65_500, 65_500)
    return in_tar(folder, "a.jpg", bytes(data))


def pax_bomb(folder):
    """A header of 1 GB that is not there."""
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, 1 << 30
    return make.write(folder / "bomb.tar", info.tobuf() + b"\0" * 4096)


def many_headers(folder):
    """200,000 members of nothing: each costs, none may cost much."""
    block = tarfile.TarInfo("a/0000000.b").tobuf()
    blocks = (block.replace(b"0000000.b", b"%07d.b" % i, 1) for i in range(200_000))
    data = b"".join(make.checksummed(block) for block in blocks)
    return make.write(folder / "many.tar", data + b"\0" * 1024)


UNPACKED = [xz_bomb, bzip2_bomb, zstd_window]
PICTURES = [huge_png, long_png, text_in_png, profile_in_png, jpeg_of_scans, jpeg_of_nothing]


def names(rows):
    return [row.__name__ for row in rows]


@pytest.mark.parametrize("maker", UNPACKED, ids=names(UNPACKED))
@pytest.mark.parametrize("command", ["ls", "index", "pack", "verify"])
def test_unpacking_is_bounded(tmp_path, maker, command):
    path = maker(tmp_path)
    words = [command, path, *([tmp_path / "out"] if command == "pack" else [])]
    done = run(*words, "--memory", "256M")
    said = (done.stdout + done.stderr).decode()
    assert done.returncode == 1, done
    assert "unpack" in said or "window" in said or "LIMIT" in said, said
    assert path.name in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("maker", PICTURES, ids=names(PICTURES))
def test_pictures_are_bounded(tmp_path, maker):
    """Some are fine (a comment is passed over), none is expensive."""
    path = maker(tmp_path)
    for words in [
        ["verify", "--deep", path],
        ["bench", "data", "--epochs", "1", "--batch", "1", "--image", "32", path],
        ["pack", "--short-side", "10", path, tmp_path / "out"],
    ]:
        done = run(*words, "--memory", "256M", "--threads", "1")
        assert done.returncode in (0, 1), (words, done)
        assert done.returncode == 0 or b"a" in done.stdout + done.stderr


def test_huge_pictures_are_findings(tmp_path):
    for maker in (huge_png, jpeg_of_nothing, jpeg_of_scans):
        done = run("verify", "--deep", "--json", "--memory", "256M", maker(tmp_path))
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        assert done.returncode == 1 and any(row.get("key") == "a" for row in rows), (maker, done)


def test_headers_are_bounded(tmp_path):
    done = run("ls", pax_bomb(tmp_path), "--memory", "64M")
    assert done.returncode == 1 and b"header_bytes_max" in done.stderr
    done = run("ls", "--shards", "--json", many_headers(tmp_path), "--memory", "64M")
    assert json.loads(done.stdout)["samples"] == 200_000


# ---- names that lead out ----------------------------------------------------------------------

OUTSIDE = ["../secret.jpg", "a/../../secret.jpg", "/secret.jpg", "./../secret.jpg"]


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("command", ["pack", "index", "verify", "verify --repair"])
def test_members_stay_inside(tmp_path, name, command):
    data = tmp_path / "data"
    path = make.tar(data / "a.tar", [("ok.jpg", b"1"), (name, b"overwritten")])
    secret = make.write(tmp_path / "secret.jpg", SECRET)
    words = [*command.split(), path, *([data / "out"] if command == "pack" else [])]
    done = run(*words)
    assert done.returncode == 1 and b"secret" in done.stdout + done.stderr
    assert secret.read_bytes() == SECRET
    assert not (data / "out").exists()
    before = {"data", "secret.jpg"}
    assert {entry.name for entry in tmp_path.iterdir()} == before


@pytest.mark.parametrize("name", ["../secret.tar", "/etc/hostname", "..", "a/b.tar", ".", ""])
def test_manifests_stay_inside(tmp_path, name):
    folder = tmp_path / "data"
    make.tar(tmp_path / "source.tar", [("a.txt", b"1"), ("b.txt", b"2")])
    make.tar(tmp_path / "secret.tar", [("secret.txt", SECRET)])
    assert run("pack", tmp_path / "source.tar", folder).returncode == 0
    manifest = json.loads((folder / "stoker.manifest.json").read_text())
    manifest["shards"][0]["name"] = name
    (folder / "stoker.manifest.json").write_text(json.dumps(manifest))
    for words in (["verify", folder], ["verify", "--repair", folder], ["diff", folder, folder]):
        done = run(*words)
        assert b"secret.txt" not in done.stdout + done.stderr
    assert b"manifest" in run("verify", folder).stdout
    with tarfile.open(tmp_path / "secret.tar") as tar:
        assert tar.extractfile("secret.txt").read() == SECRET


@pytest.mark.parametrize("url", ["../secret.tar", "/etc/hostname", "http://x/secret.tar"])
def test_foreign_indexes_stay_inside(tmp_path, url):
    """wids JSON names its shards: only those that were given are read."""
    folder = tmp_path / "data"
    make.tar(folder / "a.tar", [("a.txt", b"1")])
    make.tar(tmp_path / "secret.tar", [("secret.txt", SECRET)])
    shards = [{"url": url, "nsamples": 1, "filesize": 10240}]
    make.write(
        folder / "index.json",
        json.dumps({"wids_version": 1, "name": "x", "shardlist": shards}).encode(),
    )
    with stoker.Dataset(folder) as dataset:
        assert [dataset.sample(i).key for i in range(len(dataset))] == ["a"]


# ---- wrong lengths ------------------------------------------------------------------------------


def member(size_field, data=b"1"):
    info = tarfile.TarInfo("a.jpg")
    info.size = len(data)
    block = bytearray(info.tobuf())
    block[124:136] = size_field
    return make.checksummed(bytes(block)) + data + b"\0" * (-len(data) % 512) + b"\0" * 1024


LIES = {
    "more than there is": b"00000100000\0",
    "all of 2^64": b"\x80\0\0\0" + b"\xff" * 8,
    "2^63": b"\x80\0\0\0\x80" + b"\0" * 7,
    "negative": b"\xff" * 12,
    "rounds up past 2^64": b"\x80\0\0\0" + b"\xff" * 7 + b"\x01",
}


@pytest.mark.parametrize("name", LIES)
@pytest.mark.parametrize("command", ["ls", "index", "pack", "verify"])
def test_sizes_that_lie(tmp_path, name, command):
    path = make.write(tmp_path / "lie.tar", member(LIES[name]))
    done = run(command, path, *([tmp_path / "out"] if command == "pack" else []))
    assert done.returncode == 1 and b"lie.tar" in done.stdout + done.stderr, done
    assert not (tmp_path / "out").exists()


# ---- fields -------------------------------------------------------------------------------------


def npy(shape, data=b"", dtype="<f4"):
    head = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    head += b" " * (-(len(head) + 11) % 64) + b"\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head + data


def npz(name, data, compression=zipfile.ZIP_DEFLATED):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        archive.writestr(name, data)
    return stream.getvalue()


def npz_that_lies(size):
    """The directory has another size than the member."""
    data = bytearray(npz("a.npy", npy("(4,)", b"1" * 16)))
    for at in (data.index(b"PK\3\4") + 22, data.index(b"PK\1\2") + 24):
        data[at : at + 4] = struct.pack("<I", size)
    return bytes(data)


# name: member's name, its bytes, the field.
FIELDS = {
    "npy of 2^60": ("a.npy", npy("(1152921504606846976,)"), stoker.Array("npy", shape=(4,))),
    "npy that wraps": ("a.npy", npy("(4294967296, 4294967296)"), stoker.Array("npy", shape=(4,))),
    "npy negative": ("a.npy", npy("(-1,)"), stoker.Array("npy", shape=(4,))),
    "npy of objects": ("a.npy", npy("(1,)", b"cos\nsystem\n", "|O"), stoker.Array("npy", shape=1)),
    "npy any length": ("a.npy", npy("(1099511627776,)"), stoker.Array("npy", shape=None)),
    "npz bomb": (
        "a.npz",
        npz("a.npy", npy("(52428800,)", b"\0" * (200 << 20))),
        stoker.Array("npz", shape=(4,), path="a"),
    ),
    "npz less": ("a.npz", npz_that_lies(3), stoker.Array("npz", shape=(4,), path="a")),
    "npz more": ("a.npz", npz_that_lies(2**32 - 2), stoker.Array("npz", shape=(4,), path="a")),
    "deep JSON": ("a.json", b"[" * 1_000_000, stoker.Array("json", shape=(4,), path="a")),
    "JSON number": ("a.json", b'{"a": ' + b"9" * 100_000 + b"}", stoker.Int("json:a")),
    "JSON not UTF-8": ("a.json", b'{"a": "\xff"}', stoker.Text("json:a")),
    "deep MessagePack": ("a.mp", b"\x91" * 1_000_000, stoker.Int("mp:0")),
    "MessagePack array": (
        "a.mp",
        b"\x81\xa1a\xdd\xff\xff\xff\xff",
        stoker.Array("mp", path="a", shape=4),
    ),
    "MessagePack text": ("a.mp", b"\x81\xa1a\xdb\xff\xff\xff\xffx", stoker.Text("mp:a")),
    "number of 1 MB": ("a.cls", b"1" * 1_000_000, stoker.Int("cls")),
    "mask of a gigapixel": (
        "a.png",
        png(40_000, 25_000, png_chunk(b"IDAT", deflated_zeros(20)), colour=0),
        stoker.Mask("png"),
    ),
}


@pytest.mark.parametrize("name", FIELDS)
def test_fields_are_bounded(tmp_path, name):
    """An error for the sample, in an instant, within a small budget."""
    member, data, field = FIELDS[name]
    fields = {"x": field}
    members = [(member, data)]
    if isinstance(field, stoker.Mask):
        members.append(("a.jpg", make.encoded(make.pixels(1))))
        fields["image"] = stoker.Image("jpg", [stoker.CenterCrop(8)])
    path = make.tar(tmp_path / "a.tar", members)
    begin = resource.getrusage(resource.RUSAGE_SELF)
    with stoker.Engine(threads=1, memory="256MiB") as engine:
        loader = stoker.Loader(path, 1, fields=fields, engine=engine, output="numpy")
        with pytest.raises(stoker.Error) as caught:
            next(iter(loader))
    end = resource.getrusage(resource.RUSAGE_SELF)
    assert caught.value.key == "a" and caught.value.shard == str(path)
    assert caught.value.what and caught.value.advice
    assert end.ru_utime - begin.ru_utime < 5
    assert end.ru_maxrss - begin.ru_maxrss < 256 << 10


# ---- tables -------------------------------------------------------------------------------------


def test_tables_name_only_pictures(tmp_path):
    """A table may name any file, but only images are packed."""
    make.write(tmp_path / "secret.txt", SECRET)
    make.jpeg(tmp_path / "data" / "a.jpg", 1)
    rows = ["../secret.txt", "/etc/passwd", "/dev/zero", "file:///etc/passwd", "..", "a.jpg"]
    table = make.write(
        tmp_path / "data" / "table.csv",
        b"path,label\n" + b"".join(b"%s,1\n" % row.encode() for row in rows),
    )
    options = {"label": "label", "bytes_max": 1 << 20}
    with pytest.raises(stoker.Error) as caught:
        stoker.pack_table(table, tmp_path / "none", **options)
    assert "secret.txt" in caught.value.where and not (tmp_path / "none").exists()
    stoker.pack_table(table, tmp_path / "out", on_error="skip", **options)
    with stoker.Dataset(tmp_path / "out") as dataset:
        assert len(dataset) == 1
    for path in (tmp_path / "out").iterdir():
        assert SECRET not in path.read_bytes() and b"root:" not in path.read_bytes()


TABLES = {
    "NUL in a path": b"path,label\na\0b.jpg,1\n",
    "no such column": b"what,ever\n1,2\n",
    "cells too few": b"path,label\na.jpg\n",
    "open quote": b'path,label\n"a.jpg,1\n' + b"x" * 200_000,
    "a key that leads out": b"path,key\na.jpg,../../up\n",
    "an absolute key": b"path,key\na.jpg,/up\n",
    "no UTF-8": b"path,label\n\xff\xfe.jpg,1\n",
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_that_lie(tmp_path, name):
    make.jpeg(tmp_path / "data" / "a.jpg", 1)
    table = make.write(tmp_path / "data" / "table.csv", TABLES[name])
    key = "key" if b"key" in TABLES[name] else None
    with pytest.raises(stoker.Error) as caught:
        stoker.pack_table(table, tmp_path / "out", key=key)
    assert caught.value.what and caught.value.where and caught.value.advice
    assert {path.name for path in tmp_path.iterdir()} <= {"data", "out.part"}
