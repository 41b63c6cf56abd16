"""Which parts of a damaged compressed shard verify which data: ends, blocks, frames, and seek
tables.

Goal: damage to a checksum alone costs no sample that another check verifies, and is reported if
none does; blocks of bzip2 are found after damage; a wrong seek table is a finding and costs no
byte; samples that are kept unverified are counted. Method: shards by the gzip, zstd, bzip2 and xz
commands, with one thing changed; repaired, and read back by the commands and by Python's tarfile.
bzip2recover as the oracle for blocks.
"""

from __future__ import annotations

import gzip
import io
import random
import shutil
import struct
import subprocess
import tarfile
import zlib

import pytest
import stoker
from test_repair_compressed import UNPACK, find, pieces, seekable, tool
from test_index import run

SAMPLES = 24


def png(seed, side=24):
    """A grey picture."""
    rows = b"".join(b"\0" + random.Random(1000 * seed + y).randbytes(side) for y in range(side))

    def chunk(name, data):
        body = name + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    head = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        chunk(*part) for part in ((b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    )


def make_tar(values):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, value in values.items():
            info = tarfile.TarInfo(name)
            info.size = len(value)
            archive.addfile(info, io.BytesIO(value))
    return out.getvalue()


@pytest.fixture(scope="module")
def values():
    """Samples of a picture and a text."""
    r, values = random.Random(3), {}
    for i in range(SAMPLES):
        values[f"{i:03}.png"] = png(i)
        words = [str(r.random()) for _ in range(r.randrange(50, 400))]
        values[f"{i:03}.txt"] = " ".join(words).encode()
    return values


def read(path, ending=None):
    """The members of a shard, by the command of its packing."""
    text = UNPACK[ending or path.suffix[1:]](path.read_bytes())
    with tarfile.open(fileobj=io.BytesIO(text), mode="r:") as archive:
        return {info.name: archive.extractfile(info).read() for info in archive}


def flip(data, at, bit=0):
    changed = bytearray(data)
    changed[at] ^= 1 << bit
    return bytes(changed)


def frame(*options):
    return tool("zstd", "-q", "-c", *options)


# name: how to pack, the ending, the byte that is damaged, whether the bytes stay proved.
ENDS = {
    "gzip, CRC": (tool("gzip", "-c"), "gz", -8, False),
    "gzip, size": (tool("gzip", "-c"), "gz", -1, True),
    "zstd": (lambda d: frame(f"--stream-size={len(d)}")(d), "zst", -2, False),
    "zstd, size unknown": (frame(), "zst", -2, False),
    "bzip2": (tool("bzip2", "-1", "-c"), "bz2", -3, True),
    "zstd seekable": (lambda d: seekable(d, 50_000, True), "zst", None, True),
    "gzip members": (pieces(lambda d: gzip.compress(d, mtime=0), 30_000), "gz", None, False),
}


def damage_end(name, tar):
    pack, _, at, _ = ENDS[name]
    if name == "gzip members":
        parts = [gzip.compress(tar[i : i + 30_000], mtime=0) for i in range(0, len(tar), 30_000)]
        parts[2] = flip(parts[2], -8)
        return b"".join(parts)
    data = pack(tar)
    if name == "zstd seekable":  # the end of the third frame, whose sum the table has
        count = struct.unpack("<I", data[-9:-5])[0]
        first = len(data) - 9 - 12 * count
        at = sum(struct.unpack_from("<I", data, first + 12 * i)[0] for i in range(3)) - 1
    return flip(data, at)


@pytest.mark.parametrize("name", ENDS)
def test_a_wrong_end(tmp_path, engine, values, name):
    """All bytes exist, and the checksum or the size after them is wrong."""
    _, ending, _, proved = ENDS[name]
    tar = make_tar(values)
    damaged = damage_end(name, tar)
    path = tmp_path / f"a.tar.{ending}"
    path.write_bytes(damaged)
    found = find(path, engine, repair=True)
    kinds = [f.kind for f in found]
    if proved:
        assert kinds == ["packing"], found
        assert read(path) == values
        assert find(path, engine) == []
        return
    if name == "gzip members":  # only the sample under that checksum is lost
        assert kinds == ["packing"]
        left = read(path)
        assert left.items() <= values.items() and 0 < len(values) - len(left) < len(values) // 2
        path.with_name(path.name + ".original").unlink()
        path.write_bytes(damaged)
    else:
        assert kinds == ["packing", "unrepaired"], found
        assert path.read_bytes() == damaged
        assert "--keep-unverified" in found[1].advice
    with stoker.verify(path, engine=engine, repair=True, keep_unverified=True) as check:
        found = list(check)
        progress = check.progress()
    if name == "zstd, size unknown":  # how long the damaged frame was is not known
        assert [f.kind for f in found] == ["packing", "unproven"] and progress["unproven"] > 0
        assert read(path).items() <= values.items()
        return
    assert [(f.kind, f.note) for f in found] == [("packing", False), ("unproven", True)]
    assert progress["dropped"] == 0 and 0 < progress["unproven"] <= SAMPLES
    assert f"{progress['unproven']} of {SAMPLES}" in found[1].what
    assert read(path) == values
    assert find(path, engine) == []


def test_png_proves_itself(tmp_path, engine, values):
    """By the CRCs of its chunks; a sample that includes a text is not verified by them."""
    mixed = {n: v for n, v in values.items() if n.endswith("png") or int(n[:3]) % 2}
    path = tmp_path / "a.tar.gz"
    path.write_bytes(flip(gzip.compress(make_tar(mixed)), -7))
    assert [f.kind for f in find(path, engine, repair=True)] == ["packing"]
    assert read(path) == {n: v for n, v in values.items() if int(n[:3]) % 2 == 0 and "png" in n}


def test_damage_inside_is_not_taken_for_its_end(tmp_path, engine, values):
    """A changed byte of a stored block: without the option no sample with wrong bytes is kept."""
    path = tmp_path / "a.tar.gz"
    tar = make_tar(values)
    data = bytearray(gzip.compress(tar, 0, mtime=0))
    data[data.index(values["007.txt"][:40]) + 5] ^= 1
    path.write_bytes(data)
    assert [f.kind for f in find(path, engine, repair=True)] == ["packing", "unrepaired"]
    for line in ("gz", "png"):  # all proved: the picture that was changed is found by its CRC
        pictures = {n: v for n, v in values.items() if n.endswith("png")}
        data = bytearray(gzip.compress(make_tar(pictures), 0, mtime=0))
        data[data.index(pictures["007.png"][60:90]) + 5] ^= 1
        path.write_bytes(data)
        kinds = [f.kind for f in find(path, engine, repair=True)]
        assert kinds == ["picture", "packing"], line
        assert read(path) == {n: v for n, v in pictures.items() if n != "007.png"}
        path.with_name("a.tar.gz.original").unlink()


def test_command(tmp_path, values):
    path = tmp_path / "a.tar.gz"
    path.write_bytes(flip(gzip.compress(make_tar(values)), -7))
    done = run("verify", "--keep-unverified", path)
    assert done.returncode == 2 and b"repair" in done.stderr
    done = run("verify", "--repair", "--keep-unverified", path)
    assert done.returncode == 1
    assert b"0 samples left out, 24 kept unverified" in done.stdout, done.stdout
    with pytest.raises(stoker.ArgumentError):
        stoker.verify(path, keep_unverified=True)


# ---- blocks of bzip2 ----------------------------------------------------------------------


def noisy(seed, count):
    r = random.Random(seed)
    return {f"{i:04}.bin": r.randbytes(r.randrange(500, 9000)) for i in range(count)}


def texts(seed, count):
    r = random.Random(seed)
    return {
        f"{i:04}.txt": " ".join(str(r.random()) for _ in range(r.randrange(20, 400))).encode()
        for i in range(count)
    }


def recovered(path, home):
    """The output of bzip2recover: the text of each complete block."""
    home.mkdir()
    shutil.copy(path, home / "x.bz2")
    subprocess.run(["bzip2recover", "x.bz2"], cwd=home, capture_output=True, check=True)
    texts = []
    for block in sorted(home.glob("rec*x.bz2")):
        done = subprocess.run(["bzip2", "-dc", block], capture_output=True, check=False)
        texts.append(done.stdout if done.returncode == 0 else None)
    return texts


@pytest.mark.parametrize("damage", ["flip", "burst", "two", "magic", "cut out"])
def test_blocks_of_bzip2(tmp_path, engine, damage):
    if not shutil.which("bzip2recover"):
        pytest.skip("bzip2recover is not installed")
    members = noisy(5, 200)
    tar = make_tar(members)
    whole = tool("bzip2", "-1", "-c")(tar)
    r, data = random.Random(damage), bytearray(whole)
    places = [len(data) // 3, len(data) * 2 // 3] if damage == "two" else [len(data) // 3]
    for at in places:
        if damage == "burst":
            data[at : at + 3000] = r.randbytes(3000)
        elif damage == "cut out":
            del data[at : at + 5000]
        elif damage == "magic":  # the third block's, which begins at any bit
            bits = f"{int.from_bytes(whole, 'big'):0{8 * len(whole)}b}"
            begins = [i for i in range(len(bits)) if bits.startswith(f"{0x314159265359:048b}", i)]
            data[begins[2] // 8 + 2] ^= 0x40
        else:
            data[at] ^= 4
    path = tmp_path / "a.tar.bz2"
    path.write_bytes(data)
    texts = recovered(path, tmp_path / "oracle")
    found = find(path, engine, repair=True)
    assert "packing" in {f.kind for f in found}, found
    left = read(path)
    assert left.items() <= members.items()
    # Each member inside adjacent blocks that bzip2recover has is found; at a gap one more sample
    # may be lost on each side, and two samples after it may lack members.
    held, run_of = set(), b""
    for text in [*texts, None]:
        if text is not None:
            run_of += text
            continue
        held |= {n for n, v in members.items() if v in run_of}
        run_of = b""
    assert len(held) > len(members) // 2
    assert len(held - set(left)) <= 6 * len(places), sorted(held - set(left))
    assert find(path, engine) == []


# ---- seek tables --------------------------------------------------------------------------


def entries(data, entry=8):
    count = struct.unpack("<I", data[-9:-5])[0]
    return len(data) - 9 - entry * count, count


def shift_bytes(data):
    """A byte of one frame's text is attributed to the next one."""
    at, _ = entries(data)
    data[at + 12] ^= 1  # the second entry's unpacked size
    return data


def shift_frames(data):
    at, _ = entries(data)
    for i, by in ((0, 1), (1, -1)):
        size = struct.unpack_from("<I", data, at + 8 * i)[0]
        struct.pack_into("<I", data, at + 8 * i, size + by)
    return data


def fewer(data):
    """The table has a frame less than there are."""
    at, count = entries(data)
    del data[at : at + 8]
    struct.pack_into("<I", data, at - 4, 8 * (count - 1) + 9)
    struct.pack_into("<I", data, len(data) - 9, count - 1)
    return data


def wrong_count(data):
    struct.pack_into("<I", data, len(data) - 9, 3)
    return data


def reserved(data):
    data[-5] = 0x7C
    return data


LIES = {
    "bytes": shift_bytes,
    "frames": shift_frames,
    "fewer": fewer,
    "count": wrong_count,
    "reserved": reserved,
}


@pytest.mark.parametrize("name", LIES)
def test_a_seek_table_that_lies(tmp_path, engine, values, name):
    path = tmp_path / "a.tar.zst"
    tar = make_tar(values)
    data = LIES[name](bytearray(seekable(tar, 20_000)))
    path.write_bytes(data)
    (found,) = find(path, engine)
    assert (found.kind, found.note) == ("table", False) and found.offset is not None, found
    dataset = stoker.Dataset(path, engine=engine)  # costs nothing but the reads
    assert [dataset[i]["txt"] for i in range(3)] == [values[f"{i:03}.txt"] for i in range(3)]
    assert [f.kind for f in find(path, engine, repair=True)] == ["table"]
    assert read(path) == values and find(path, engine) == []


def test_a_seek_table_that_is_true(tmp_path, engine, values):
    """With and without checksums, as zstd's own seekable format has them; frames that pzstd or a
    program joined count as well."""
    tar = make_tar(values)
    for checksum in (False, True):
        path = tmp_path / f"{checksum}.tar.zst"
        path.write_bytes(seekable(tar, 20_000, checksum))
        assert find(path, engine) == []
    # An entry that spans two frames is a place to begin as well.
    data = bytearray(seekable(tar, 20_000))
    at, count = entries(data)
    (a, b), (c, d) = struct.unpack_from("<II", data, at), struct.unpack_from("<II", data, at + 8)
    struct.pack_into("<II", data, at + 8, a + c, b + d)
    del data[at : at + 8]
    struct.pack_into("<I", data, at - 4, 8 * (count - 1) + 9)
    struct.pack_into("<I", data, len(data) - 9, count - 1)
    path.write_bytes(data)
    assert find(path, engine) == []


def test_a_checksum_of_the_table(tmp_path, engine, values):
    """A wrong table for frames that have their own checksums; the only check for frames that have
    none."""
    tar = make_tar(values)
    path = tmp_path / "a.tar.zst"
    data = bytearray(seekable(tar, 20_000, True))
    at, _ = entries(data, 12)
    data[at + 8] ^= 1
    path.write_bytes(data)
    (found,) = find(path, engine)
    assert found.kind == "table" and "checksum" in found.what


# ---- frames without checksums -------------------------------------------------------------


def test_frames_without_checksums(tmp_path, engine):
    """The samples that repair keeps of them are counted: it is unknown whether they are right."""
    members = texts(8, 120)
    tar = make_tar(members)
    pack = pieces(frame("--no-check"), 100_000)
    data = bytearray(pack(tar))
    at = len(data) // 2
    data[at : at + 500] = random.Random(1).randbytes(500)
    path = tmp_path / "a.tar.zst"
    path.write_bytes(data)
    with stoker.verify(path, engine=engine, repair=True) as check:
        found = list(check)
        progress = check.progress()
    left = read(path)
    assert found[-1].kind == "unproven" and found[-1].note
    assert progress["unproven"] == len(left) > 0
    # A complete file: no damage, and no finding.
    path.write_bytes(pack(tar))
    assert find(path, engine) == []


def test_one_frame_without_a_checksum(tmp_path, engine):
    """The structure shows the damage: the data before it is kept, and reported as unverified."""
    members = texts(9, 160)
    data = bytearray(frame("--no-check", "-1")(make_tar(members)))
    at = len(data) * 3 // 5
    data[at : at + 70_000] = b"\xff" * 70_000  # at least one block's header
    path = tmp_path / "a.tar.zst"
    path.write_bytes(data)
    found = find(path, engine, repair=True)
    packing = next(f for f in found if f.kind == "packing")
    assert "no checksum verifies the" in packing.what
    left = read(path)
    assert left.items() <= members.items() and len(left) > len(members) // 3
    assert found[-1].kind == "unproven" and f"{len(left)} of " in found[-1].what
