"""Compressed shards with seek points, and the indexes of other tools.

Goal: compressed shards stream like the same tars; a correct index of another tool is used, a false
one is refused or detected; pack and diff never trust it.
Method: tars by Python's tarfile, compressed by Python and by the gzip, pzstd and zstd commands
where they are installed; the text of wds2idx by its rule, and by wds2idx itself where
STOKER_WDS2IDX names it; the package and the command.
"""

import bz2
import gzip
import io
import json
import lzma
import os
import pathlib
import random
import shutil
import struct
import subprocess
import tarfile

import make
import pytest
import stoker
from test_index import cache, run  # noqa: F401
from test_repair_compressed import seekable

SHARDS, SAMPLES = 4, 30


@pytest.fixture
def data(tmp_path):
    """Tars with a text and a number a sample, and some bytes that do not compress."""
    root = tmp_path / "tars"
    root.mkdir()
    for number in range(SHARDS):
        source = random.Random(number)
        with tarfile.open(root / f"s-{number}.tar", "w", format=tarfile.USTAR_FORMAT) as archive:
            for i in range(SAMPLES):
                key = f"{number}/{i:03}"
                text = (f"{key} " * source.randrange(50, 4000)).encode()
                for ending, value in (
                    ("txt", text),
                    ("cls", str(i).encode()),
                    ("bin", source.randbytes(source.randrange(1, 60000))),
                ):
                    info = tarfile.TarInfo(f"{key}.{ending}")
                    info.size = len(value)
                    archive.addfile(info, io.BytesIO(value))
    return root


def by_python(path, out):
    out.write_bytes(gzip.compress(path.read_bytes(), 6, mtime=0))


def by_members(path, out):
    """Many gzip members, as bgzip makes them."""
    text = path.read_bytes()
    out.write_bytes(
        b"".join(gzip.compress(text[i : i + 65280]) for i in range(0, len(text), 65280))
    )


def by_command(*words):
    def pack(path, out):
        if not shutil.which(words[0]):
            pytest.skip(f"{words[0]} is not installed")
        with open(path, "rb") as source, open(out, "wb") as sink:
            subprocess.run(words, stdin=source, stdout=sink, check=True, timeout=60)

    return pack


def by_frames(path, out):
    """A zstd frame each 200,000 bytes."""
    pack = by_command("zstd", "-q", "-c")
    text, frames = path.read_bytes(), b""
    for i in range(0, len(text), 200_000):
        part, packed = out.with_suffix(".part"), out.with_suffix(".packed")
        part.write_bytes(text[i : i + 200_000])
        pack(part, packed)
        frames += packed.read_bytes()
        part.unlink()
        packed.unlink()
    out.write_bytes(frames)


def by_table(path, out):
    """Frames, followed by zstd's seek table."""
    by_command("zstd", "--version")(path, out)  # or it is skipped
    out.write_bytes(seekable(path.read_bytes(), 70_000))


def by_zstandard(path, out):
    zstandard = pytest.importorskip("zstandard")
    text, pack = path.read_bytes(), zstandard.ZstdCompressor().compress
    out.write_bytes(b"".join(pack(text[i : i + 90_000]) for i in range(0, len(text), 90_000)))


PACKERS = {
    "python's gzip": (by_python, "gz"),
    "gzip -1": (by_command("gzip", "-1", "-c"), "gz"),
    "gzip --rsyncable": (by_command("gzip", "--rsyncable", "-c"), "gz"),
    "many members": (by_members, "gz"),
    "zstd frames": (by_frames, "zst"),
    "pzstd": (by_command("pzstd", "-q", "-p", "2", "-c"), "zst"),
    "zstd seekable": (by_table, "zst"),
    "python zstandard": (by_zstandard, "zst"),
}


def packed(data, name):
    pack, ending = PACKERS[name]
    root = data.parent / "packed"
    root.mkdir()
    for path in sorted(data.glob("*.tar")):
        pack(path, root / f"{path.name}.{ending}")
    return root


def stream(source, engine, **options):
    fields = {"key": "__key__", "n": stoker.Int("cls"), "b": stoker.Bytes("bin")}
    options = {"fields": fields, "seed": 3, "tail": "keep", "output": "numpy"} | options
    loader = make.loader(source, 7, engine=engine, **options)
    epochs = [batch for _ in range(2) for batch in loader]
    return [(list(batch["key"]), [bytes(b) for b in batch["b"]]) for batch in epochs]


@pytest.mark.parametrize("name", PACKERS)
def test_packed_shards_stream_like_tars(data, engine, name):
    root = packed(data, name)
    frames = PACKERS[name][1] == "zst"  # noted unasked
    assert stoker.Dataset(root, engine=engine).sequential == (not frames)
    if frames:
        assert stream(root, engine) == stream(data, engine)
    report = stoker.index(root, seek_points="64KiB", engine=engine)
    plain, dataset = stoker.Dataset(data, engine=engine), stoker.Dataset(root, engine=engine)
    assert not dataset.sequential and dataset.index_path == report.path
    assert [dataset[i] for i in range(len(plain))] == [plain[i] for i in range(len(plain))]
    for shuffle in ("block", "full", "none"):
        assert stream(dataset, engine, shuffle=shuffle) == stream(plain, engine, shuffle=shuffle)
    # The cache is bounded; the values are the same without a cache.
    small = stoker.Dataset(root, segment_cache_bytes=1, engine=engine)
    assert stream(small, engine) == stream(plain, engine)
    # A run without the option keeps the points; the file has the same bytes whatever made it.
    first = pathlib.Path(report.path).read_bytes()
    assert stoker.index(root, engine=engine).shards_kept == SHARDS
    stoker.index(root, seek_points="64KiB", force=True, engine=engine)
    assert pathlib.Path(report.path).read_bytes() == first


def noise(seed, size):
    return random.Random(seed).randbytes(size)


def test_one_zstd_frame_is_one_segment(tmp_path, engine):
    """No place to enter: a small shard is unpacked as one, a large one front to back."""
    for name, size in (("small", 1 << 20), ("large", 40 << 20)):
        root = tmp_path / name
        root.mkdir()
        plain = tmp_path / f"{name}.tar"
        with tarfile.open(plain, "w") as archive:
            for i in range(4):
                info = tarfile.TarInfo(f"{i}.bin")
                info.size = size // 4
                archive.addfile(info, io.BytesIO(noise(i, info.size)))
        by_command("zstd", "-q", "-c")(plain, root / "a.tar.zst")
        report = stoker.index(root, seek_points=True, engine=engine)
        dataset = stoker.Dataset(root, engine=engine)
        assert dataset.sequential == (name == "large")
        assert dataset[3]["bin"] == noise(3, size // 4)
        assert (report.shards_packed, report.shards_sequential) == (1, int(name == "large"))
        if name == "large":
            assert report.sequential_shard == str(root / "a.tar.zst")
            assert "frames" in report.sequential_reason
            done = run("index", "--seek-points", root)
            assert done.returncode == 1 and b"1 of 1 compressed shards" in done.stdout
            assert b"pzstd" in done.stdout
        assert run("index", root).returncode == 0  # nothing was requested


def test_missing_seek_points_are_reported(data, engine):
    root = data.parent / "packed"
    root.mkdir()
    for path, (pack, ending) in zip(
        sorted(data.glob("*.tar")),
        ((gzip.compress, "gz"), (bz2.compress, "bz2"), (lzma.compress, "xz"), (bytes, "x")),
        strict=True,
    ):
        name = path.name if ending == "x" else f"{path.name}.{ending}"
        (root / name).write_bytes(pack(path.read_bytes()))
    done = run("index", "--seek-points", "--json", root)
    reported = json.loads(done.stdout)
    assert done.returncode == 1
    assert (reported["shards_packed"], reported["shards_sequential"]) == (3, 2)
    assert reported["sequential_shard"].endswith("s-1.tar.bz2")
    assert "bzip2 and xz" in reported["sequential_reason"]
    report = stoker.index(root, engine=engine, force=True)
    assert report.shards_sequential == 3 and "--seek-points" in report.sequential_reason
    plain = stoker.index(data, seek_points=True, engine=engine)
    assert (plain.shards_packed, plain.shards_sequential, plain.sequential_shard) == (0, 0, None)


@pytest.mark.parametrize("lie", ["count", "sizes", "magic", "reserved"])
def test_a_seek_table_is_verified(data, engine, lie):
    """Frames count as they are; a table that contradicts them changes nothing."""
    root = packed(data, "zstd seekable")
    for path in root.iterdir():
        text = bytearray(path.read_bytes())
        if lie == "count":
            text[-9:-5] = (3).to_bytes(4, "little")
        elif lie == "sizes":
            text[-30:-9] = bytes(21)
        elif lie == "magic":
            text[-1] ^= 1
        else:
            text[-5] = 0x7C
        path.write_bytes(text)
    dataset = stoker.Dataset(root, engine=engine)
    assert not dataset.sequential
    assert stream(dataset, engine) == stream(data, engine)


def test_a_changed_shard_is_never_read_as_the_old_one(data, engine):
    root = packed(data, "zstd frames")
    stoker.index(root, seek_points="64KiB", engine=engine)
    path = root / "s-1.tar.zst"
    text = bytearray(path.read_bytes())
    for i in range(len(text) // 3, len(text), 500):
        text[i] ^= 1
    path.write_bytes(text)
    (root / "stoker.index.stamp").unlink()  # as after a copy: only the size is known
    dataset = stoker.Dataset(root, engine=engine)
    with pytest.raises(stoker.Error) as caught:
        for i in range(SAMPLES, 2 * SAMPLES):
            assert dataset[i] == stoker.Dataset(data, engine=engine)[i]
    assert "s-1.tar.zst" in str(caught.value)


@pytest.mark.parametrize("value", [0, 100, -1, "1", "x", None])
def test_access_argument(data, engine, value):
    with pytest.raises(stoker.ArgumentError):
        stoker.index(data, seek_points=value, engine=engine)


def test_command(data):
    root = packed(data, "python's gzip")
    assert run("index", "--seek-points=64K", root).returncode == 0
    info = json.loads(run("info", "--json", root).stdout)
    assert not info["sequential"] and info["shuffle"] == "block"
    assert run("index", "--seek-points", data).returncode == 0  # nothing to do in plain tars
    assert run("index", "--seek-points=1K", root).returncode == 2
    wanted = run("cat", data, "2/017.bin").stdout
    assert wanted and run("cat", root, "2/017.bin").stdout == wanted
    assert b"--seek-points[=BYTES]" in run("help", "index").stdout


# ---- indexes of other tools ----


def reported(path, rename=None):
    """The output of wds2idx: from the tool itself if it is installed, else by its rule."""
    tool = os.environ.get("STOKER_WDS2IDX")
    out = path.parent / f"{path.name.split('.')[0]}.idx"
    if tool and not rename:
        subprocess.run([tool, path, out], check=True, timeout=60, stdout=subprocess.DEVNULL)
        return
    samples = {}
    with tarfile.open(path) as archive:
        for member in archive:
            key, ending = member.name.split(".", 1)
            key = (rename or {}).get(key, key)
            samples.setdefault(key, []).append(
                f"{ending} {member.offset_data} {member.size} {key}.{ending}"
            )
    lines = [f"v1.2 {len(samples)}", *(" ".join(parts) for parts in samples.values())]
    out.write_text("\n".join(lines) + "\n")


def test_dali(data, engine):
    plain = stoker.Dataset(data, engine=engine)
    assert plain.shards_foreign == 0 and plain.foreign_note == ""
    for path in sorted(data.glob("*.tar")):
        reported(path)
    dataset = stoker.Dataset(data, engine=engine)
    assert dataset.shards_foreign == SHARDS and dataset.foreign_note == ""
    assert dataset.identity == plain.identity
    assert stream(dataset, engine) == stream(plain, engine)
    assert [dataset[i] for i in range(SAMPLES)] == [plain[i] for i in range(SAMPLES)]
    for options in ({"foreign_index": "never"}, {"index": "never"}):
        assert stoker.Dataset(data, engine=engine, **options).shards_foreign == 0
    with pytest.raises(stoker.ArgumentError):
        stoker.Dataset(data, foreign_index="perhaps", engine=engine)
    # An index of our own is made by reading, and then the other is ignored.
    stoker.index(data, engine=engine)
    assert stoker.Dataset(data, engine=engine).shards_foreign == 0


def test_dali_that_lies(data, engine):
    """No probe meets the renamed sample: it is found out when it is read, by everyone."""
    reported(data / "s-2.tar", rename={"2/011": "2/999"})
    dataset = stoker.Dataset(data, engine=engine)
    assert dataset.shards_foreign == 1
    number = next(i for i in range(len(dataset)) if dataset.sample(i).key == "2/999")
    with pytest.raises(stoker.ChangedError, match=r"s-2\.tar"):
        dataset[number]
    with pytest.raises(stoker.ChangedError, match=r"s-2\.tar"):
        stream(dataset, engine)
    alone = stoker.Dataset(data, foreign_index="never", engine=engine)
    assert dataset[number - 1] == alone[number - 1]


def test_dali_that_is_old(data, engine):
    reported(data / "s-0.tar")
    os.utime(data / "s-0.idx", (1, 1))
    dataset = stoker.Dataset(data, engine=engine)
    assert dataset.shards_foreign == 0 and "older" in dataset.foreign_note


def energon(path, change=None):
    """The output of `energon prepare`: the start of each sample, and the end of the last; `change`
    modifies it."""
    offsets, last = [], None
    with tarfile.open(path) as archive:
        for member in archive:
            key = member.name.split(".", 1)[0]
            if key != last:
                offsets.append(member.offset)
            last = key
        offsets.append(archive.offset)
    offsets = change(offsets) if change else offsets
    path.with_name(f"{path.name}.idx").write_bytes(struct.pack(f"<{len(offsets)}Q", *offsets))


def test_energon(data, engine):
    """Headers are read from many places at once: the data set is the same, and the headers verify
    the index."""
    plain = stoker.Dataset(data, engine=engine)
    for path in data.glob("*.tar"):
        energon(path)
    dataset = stoker.Dataset(data, engine=engine)
    assert dataset.shards_foreign == SHARDS and dataset.foreign_note == ""
    assert dataset.identity == plain.identity
    assert stream(dataset, engine) == stream(plain, engine)
    assert stoker.Dataset(data, engine=engine, foreign_index="never").shards_foreign == 0
    stoker.pack(dataset, data.parent / "packed")  # nothing of it is hearsay


LIES = {
    "inside of members": (lambda o: [o[0]] + [at + 512 for at in o[1:]], "begins at byte"),
    "samples left out": (lambda o: o[::2], "samples, not"),
    "as text": (lambda o: o[:-1] + [o[0]], "not used"),
}


@pytest.mark.parametrize("lie", LIES)
def test_energon_that_lies(data, engine, lie):
    plain = stoker.Dataset(data, engine=engine)
    change, note = LIES[lie]
    energon(data / "s-1.tar", change)
    dataset = stoker.Dataset(data, engine=engine)
    assert dataset.identity == plain.identity
    assert stream(dataset, engine) == stream(plain, engine)
    assert dataset.shards_foreign == 0
    assert note in dataset.foreign_note and "s-1.tar" in dataset.foreign_note


def test_pack_and_diff_verify_their_input(data, engine, tmp_path):
    for path in data.glob("*.tar"):
        reported(path, rename={"1/011": "1/999"})
    stoker.pack(data, tmp_path / "out", engine=engine)
    assert "1/011" in [s.key for s in map(stoker.Dataset(tmp_path / "out").sample, range(120))]
    assert not list(stoker.diff(data, tmp_path / "out", engine=engine))
    with pytest.raises(stoker.UnsupportedError, match="another tool"):
        stoker.pack(stoker.Dataset(data, engine=engine), tmp_path / "out2")


def test_wids_beside(data, engine):
    """A folder with the JSON of widsindex in it: its statements about the shards are compared."""
    plain = stoker.Dataset(data, engine=engine)
    shards = [
        {"url": path.name, "nsamples": SAMPLES, "filesize": path.stat().st_size}
        for path in sorted(data.glob("*.tar"))
    ]

    def note(shards):
        document = {"__kind__": "wids-shard-index-v1", "wids_version": 1, "shardlist": shards}
        (data / "shardindex.json").write_text(json.dumps(document))
        dataset = stoker.Dataset(data, engine=engine)
        assert dataset.identity == plain.identity
        return dataset.foreign_note

    assert note(shards[::-1]) == ""
    assert "s-1.tar" in note([shards[0], {**shards[1], "filesize": 512}, *shards[2:]])
    assert "s-0.tar" in note([{**shards[0], "nsamples": 1}, *shards[1:]])
    assert "does not name" in note(shards[1:]) and "s-0.tar" in note(shards[1:])
    assert "1 shards that are not there" in note([*shards, {"url": "x.tar", "nsamples": 1}])
    assert "twice" in note([*shards, shards[0]])
    assert "not used" in note([])
    assert stoker.Dataset(data, engine=engine, foreign_index="never").foreign_note == ""


def test_wids(data, engine):
    shards = [
        {"url": f"s-{i}.tar", "nsamples": SAMPLES, "filesize": (data / f"s-{i}.tar").stat().st_size}
        for i in (2, 0)
    ]
    path = data / "shardindex.json"
    path.write_text(
        json.dumps({"__kind__": "wids-shard-index-v1", "wids_version": 1, "shardlist": shards})
    )
    dataset = stoker.Dataset(path, engine=engine)
    assert len(dataset) == 2 * SAMPLES and dataset.foreign_note == ""
    assert dataset.sample(0).key == "2/000"
    shards[1]["nsamples"] += 1
    path.write_text(json.dumps({"wids_version": 1, "shardlist": shards}))
    assert "s-0.tar" in stoker.Dataset(path, engine=engine).foreign_note
    path.write_text(json.dumps({"shards": shards}))
    with pytest.raises(stoker.Error, match="wids"):
        stoker.Dataset(path, engine=engine)
