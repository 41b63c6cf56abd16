"""Repair of compressed shards: the same compression again, without the damaged samples, and no
wrong byte.

Goal: the samples that `stoker verify --repair` keeps of a damaged gz, zstd, bz2 or xz shard are
complete and have their original bytes; the rest of the shard is found again after the damage if the
compression, its seek table or the index allow it; samples that nothing verifies are not kept.
Method: shards by the gzip, zstd, pzstd, bzip2 and xz commands and Python's modules, damaged at
random places (STOKER_SEED), repaired, and read back by those tools and Python's tarfile.
STOKER_TEST_LONG: each compressor with each damage, 8 times.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import lzma
import os
import random
import shutil
import struct
import subprocess
import tarfile

import pytest
import stoker

SEED = int(os.environ.get("STOKER_SEED", "1"))
SAMPLES = 60
ENDINGS = ("txt", "bin", "cls")


def tool(*words):
    def run(data):
        if not shutil.which(words[0]):
            pytest.skip(f"{words[0]} is not installed")
        return subprocess.run(words, input=data, stdout=subprocess.PIPE, check=True).stdout

    return run


def pieces(pack, size):
    return lambda data: b"".join(pack(data[i : i + size]) for i in range(0, len(data), size))


def seekable(data, size=100_000, checksum=False):
    """zstd's seekable format, as its specification has it. A checksum in it is that of the frame:
    the lower half of XXH64, which ends a frame of the zstd command too."""
    frames = [tool("zstd", "-q", "-c")(data[i : i + size]) for i in range(0, len(data), size)]
    sizes = [min(size, len(data) - i) for i in range(0, len(data), size)]
    table = b"".join(
        struct.pack("<II", len(f), n) + (f[-4:] if checksum else b"")
        for f, n in zip(frames, sizes, strict=True)
    )
    foot = struct.pack("<IBI", len(frames), 0x80 if checksum else 0, 0x8F92EAB1)
    head = struct.pack("<II", 0x184D2A5E, len(table) + len(foot))
    return b"".join(frames) + head + table + foot


def by_zstandard(data):
    zstandard = pytest.importorskip("zstandard")
    pack = zstandard.ZstdCompressor(level=3, write_checksum=True)
    return b"".join(pack.compress(data[i : i + 50_000]) for i in range(0, len(data), 50_000))


UNPACK = {
    "gz": gzip.decompress,
    "zst": tool("zstd", "-q", "-d", "-c"),
    "bz2": bz2.decompress,
    "xz": lzma.decompress,
}
# name: how to pack, the ending, whether there are places to begin again.
PACKERS = {
    "gzip": (tool("gzip", "-c"), "gz", False),
    "gzip -1": (tool("gzip", "-1", "-c"), "gz", False),
    "gzip members": (pieces(lambda d: gzip.compress(d, mtime=0), 65_280), "gz", True),
    "bgzip": (tool("bgzip", "-c"), "gz", True),
    "zstd": (tool("zstd", "-q", "-c"), "zst", False),
    "zstd frames": (pieces(tool("zstd", "-q", "-c"), 100_000), "zst", True),
    "zstd frames without checksums": (
        pieces(tool("zstd", "-q", "-c", "--no-check"), 100_000),
        "zst",
        True,
    ),
    "zstd seekable": (seekable, "zst", True),
    "zstd seekable, checksums": (lambda d: seekable(d, checksum=True), "zst", True),
    "pzstd": (tool("pzstd", "-q", "-p", "2", "-c"), "zst", False),
    "python zstandard": (by_zstandard, "zst", True),
    "bzip2": (tool("bzip2", "-1", "-c"), "bz2", True),
    "bzip2 streams": (pieces(bz2.compress, 100_000), "bz2", True),
    "xz": (tool("xz", "-1", "-c"), "xz", False),
    "xz streams": (pieces(lzma.compress, 100_000), "xz", False),
}


def cut(data, r):
    return data[: r.randrange(len(data) // 4, len(data) * 3 // 4)]


def flip(data, r):
    at = r.randrange(len(data) // 4, len(data) * 3 // 4)
    return data[:at] + bytes([data[at] ^ 1 << r.randrange(8)]) + data[at + 1 :]


def burst(data, r):
    at = r.randrange(len(data) // 4, len(data) * 3 // 4)
    return data[:at] + r.randbytes(2000) + data[at + 2000 :]


DAMAGE = {"cut": cut, "flip": flip, "burst": burst}


@pytest.fixture(scope="module")
def tar():
    """Its bytes and its members."""
    r, values = random.Random(7), {}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for i in range(SAMPLES):
            text = " ".join(str(r.random()) for _ in range(r.randrange(5, 400))).encode()
            for ending, value in zip(
                ENDINGS, (text, r.randbytes(r.randrange(1, 12_000)), b"%d" % i), strict=True
            ):
                info = tarfile.TarInfo(f"{i:03}.{ending}")
                info.size = len(value)
                archive.addfile(info, io.BytesIO(value))
                values[info.name] = value
    return out.getvalue(), values


def find(root, engine, **options):
    with stoker.verify(root, engine=engine, **options) as check:
        return list(check)


def kept_of(path, values):
    """The keys that are left; each has all its members, with the bytes that they had."""
    text = UNPACK[path.suffix[1:]](path.read_bytes())
    with tarfile.open(fileobj=io.BytesIO(text), mode="r:") as archive:
        got = {info.name: archive.extractfile(info).read() for info in archive}
    assert got.items() <= values.items()
    keys = {name.partition(".")[0] for name in got}
    assert set(got) == {f"{key}.{ending}" for key in keys for ending in ENDINGS}
    return keys


LONG = bool(os.environ.get("STOKER_TEST_LONG"))
# Each packer with each damage; in short one of them each, in turns.
CASES = [
    (name, damage)
    for i, name in enumerate(PACKERS)
    for j, damage in enumerate(DAMAGE)
    if LONG or (i + SEED) % len(DAMAGE) == j
]


@pytest.mark.parametrize(("name", "damage"), CASES)
def test_repair(tmp_path, engine, tar, name, damage):
    pack, ending, again = PACKERS[name]
    r = random.Random(f"{SEED} {name} {damage}")
    whole = pack(tar[0])
    path = tmp_path / f"a.tar.{ending}"
    for _ in range(8 if LONG else 1):
        damaged = DAMAGE[damage](whole, r)
        path.write_bytes(damaged)
        found = find(tmp_path, engine, repair=True)
        kinds = [f.kind for f in found]
        if not found:
            assert name == "zstd frames without checksums"  # then it cannot be known
        elif kinds[-1] == "unrepaired":
            assert path.read_bytes() == damaged and not again, found
            assert list(tmp_path.iterdir()) == [path]
        else:
            original = path.with_name(path.name + ".original")
            assert original.read_bytes() == damaged
            assert find(tmp_path, engine) == []
            left = kept_of(path, tar[1])
            assert left, found
            if again and damage != "cut":
                assert len(left) >= SAMPLES // 2 and "000" in left and f"{SAMPLES - 1:03}" in left
            assert len(stoker.Dataset(path, engine=engine)) == len(left)
            original.unlink()


def test_a_cut_shard_keeps_its_begin(tmp_path, engine, tar):
    for name in ("gzip", "zstd", "bzip2", "xz"):
        pack, ending, _ = PACKERS[name]
        path = tmp_path / f"a.tar.{ending}"
        whole = pack(tar[0])
        path.write_bytes(whole[: len(whole) * 3 // 4])
        found = find(path, engine, repair=True)
        # The data before the cut is covered by a checksum that is missing, except for bzip2, whose
        # blocks have their own.
        kinds = ["packing"] if name == "bzip2" else ["packing", "unproven"]
        assert [f.kind for f in found] == kinds, found
        left = kept_of(path, tar[1])
        # Up to where the cut is: nothing but the sample at it is missing.
        assert left == {f"{i:03}" for i in range(len(left))} and len(left) > SAMPLES // 3


def test_places_to_begin_stay(tmp_path, engine, tar):
    """Places where decompression could begin are kept; zstd's frames are found by a seek table."""
    for name, most in (("gzip members", 70_000), ("zstd seekable", 110_000)):
        pack, ending, _ = PACKERS[name]
        root = tmp_path / ending
        root.mkdir()
        path = root / f"a.tar.{ending}"
        path.write_bytes(burst(pack(tar[0]), random.Random(3)))
        find(root, engine, repair=True)
        assert len(kept_of(path, tar[1])) > SAMPLES * 3 // 4
        data = path.read_bytes()
        if ending == "gz":
            count = data.count(b"\x1f\x8b\x08\x00\x00\x00\x00\x00")
            assert count >= len(tar[0]) * 3 // 4 // most
        else:
            count, flags, magic = struct.unpack("<IBI", data[-9:])
            assert magic == 0x8F92EAB1 and flags == 0 and count > 3
            at = len(data) - 9 - 8 * count
            sizes = [struct.unpack_from("<II", data, at + 8 * i) for i in range(count)]
            assert sum(size for size, _ in sizes) + 8 == at
            first, plain = sizes[0]
            assert len(UNPACK["zst"](data[:first])) == plain <= most
        assert b"\x00\x00\x00\x00\x00" not in data[4:9] or ending == "gz"  # no time in gzip's head


@pytest.mark.parametrize("requested", [{"checksums": True}, {"seek_points": "64KiB"}, {}])
def test_requests_saved_by_an_index(tmp_path, engine, tar, requested):
    """One gzip member. With seek points: the data between two points has a checksum, and
    decompression resumes after the damage. With checksums: each member is verified, so a wrong
    checksum of the whole file costs one sample. Without both: nothing can be verified."""
    path = tmp_path / "a.tar.gz"
    whole = gzip.compress(tar[0], 0, mtime=0)  # stored: a flip changes a byte
    path.write_bytes(whole)
    if requested:
        stoker.index(tmp_path, engine=engine, **requested)
    times = path.stat()
    data = bytearray(whole)
    if "seek_points" in requested:  # the block's header, so that unpacking stops there
        data[len(data) // 2 : len(data) // 2 + 3000] = b"\xff" * 3000
    else:
        at = data.index(tar[1]["030.txt"][:30])
        data[at + 3] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    found = find(tmp_path, engine, repair=True)
    kinds = [f.kind for f in found]
    if "checksums" in requested:
        assert kinds == ["checksum", "packing", "digest"]
        assert kept_of(path, tar[1]) == {f"{i:03}" for i in range(SAMPLES)} - {"030"}
        assert not (tmp_path / "stoker.index").exists()  # of the old bytes
    elif requested:
        assert {"packing", "checksum"} & set(kinds) and "unrepaired" not in kinds, found
        assert f"{SAMPLES - 1:03}" in kept_of(path, tar[1])
    else:
        assert kinds == ["packing", "unrepaired"]
        assert "only the checksum" in found[1].what and path.read_bytes() == data


def test_the_manifest_comes_along(tmp_path, engine, tar):
    path = tmp_path / "a.tar.gz"
    whole = PACKERS["gzip members"][0](tar[0])
    manifest = {
        "kind": "stoker-manifest",
        "version": 1,
        "classes": [],
        "samples": SAMPLES,
        "pack": {},
        "shards": [
            {
                "name": path.name,
                "bytes": len(whole),
                "samples": SAMPLES,
                "sha256": hashlib.sha256(whole).hexdigest(),
            }
        ],
    }
    (tmp_path / "stoker.manifest.json").write_text(json.dumps(manifest))
    path.write_bytes(whole)
    assert find(tmp_path, engine) == []
    path.write_bytes(burst(whole, random.Random(1)))
    kinds = [f.kind for f in find(tmp_path, engine, repair=True)]
    assert kinds[-1] == "digest" and "packing" in kinds
    assert find(tmp_path, engine) == []
    (row,) = json.loads((tmp_path / "stoker.manifest.json").read_text())["shards"]
    assert row["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert row["samples"] == len(kept_of(path, tar[1])) < SAMPLES


def test_a_limit_is_no_damage(tmp_path, engine):
    """Zeros that unpack to more than the limit allows: nothing of the shard is thrown away."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for i in range(3):
            info = tarfile.TarInfo(f"{i}.bin")
            info.size = 40 << 20
            archive.addfile(info, io.BytesIO(bytes(info.size)))
    path = tmp_path / "a.tar.zst"
    path.write_bytes(tool("zstd", "-q", "-c")(out.getvalue()))
    before = path.read_bytes()
    kinds = [f.kind for f in find(tmp_path, engine, repair=True)]
    assert kinds == ["packing", "unrepaired"] and path.read_bytes() == before
