"""stoker.pack(on_error="skip") and `stoker pack --on-error skip` on a real file system.

Goal: damaged samples are left out, listed once each and counted; all else is unchanged; the bytes
and the list are the same whatever the threads, the policy of an earlier run, and kills. Method:
images of which some are truncated or not images, resized on the way; tars whose index has
checksums, changed afterwards; the results of diff, verify and a Loader on them. STOKER_SEED makes
the same kills; STOKER_TEST_LONG: 250.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import subprocess
import tarfile
import time

import make
import pytest
import stoker
from test_cli import COMMAND
from test_kill import KILLS, SEED, clear, digests, is_whole, one_round, run_whole

COUNT = 48
BAD = {3: "cut", 4: "cut", 11: "text", 20: "text", 31: "empty", 47: "cut"}
BAD_KEYS = [f"c{number % 2}/{number:02}" for number in sorted(BAD, key=lambda n: (n % 2, n))]
SIZES = {"short_side": 60, "shard_bytes": 20_000}


def spoil(data, how):
    return {"cut": data[: len(data) // 2], "text": b"no picture at all", "empty": b""}[how]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Pictures of two classes with captions; some are damaged."""
    root = tmp_path_factory.mktemp("bad") / "src"
    for number in range(COUNT):
        path = root / f"c{number % 2}" / f"{number:02}.jpg"
        data = make.encoded(make.pixels(number, 90, 120 + number))
        make.write(path, spoil(data, BAD[number]) if number in BAD else data)
        path.with_suffix(".txt").write_text(f"number {number}")
    return root


def pack(source, destination, **options):
    return stoker.pack(source, destination,
                       **{**SIZES, "on_error": "skip", "keep_order": True, **options})


def removed(a, b):
    """The samples that b lacks, by `stoker diff`."""
    lines = list(stoker.diff(a, b))
    assert all(line.kind in ("removed", "changed") for line in lines)
    return [line.key for line in lines if line.kind == "removed"]


def test_skip(source, tmp_path):
    listed = tmp_path / "bad.jsonl"
    done = pack(source, tmp_path / "dst", quarantine=listed)
    assert done["samples"] == COUNT and done["samples_done"] == COUNT - len(BAD)
    assert done["samples_left_out"] == len(BAD) and done["retries"] == 0
    assert [bad.key.rpartition(".")[0] for bad in done["bad"]] == BAD_KEYS
    assert all(isinstance(bad, stoker.BadSample) for bad in done["bad"])
    assert all(bad.shard.endswith(f"{bad.key}") and bad.reason for bad in done["bad"])
    lines = [json.loads(line) for line in listed.read_text().splitlines()]
    assert [line["sample"] for line in lines] == [bad.sample for bad in done["bad"]]
    manifest = json.loads((tmp_path / "dst" / "stoker.manifest.json").read_text())
    assert manifest["samples"] == COUNT - len(BAD) and manifest["left_out"] == len(BAD)
    with stoker.Dataset(tmp_path / "dst") as dataset:
        samples = [dataset[number] for number in range(len(dataset))]
    assert sum(sample["__key__"] in BAD_KEYS for sample in samples) == 0
    for sample in samples:
        assert sample["txt"].decode() == f"number {int(sample['__key__'][-2:])}"
    assert not list(stoker.verify(tmp_path / "dst", deep=True))
    assert removed(source, tmp_path / "dst") == BAD_KEYS
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.jsonl", "dst"]


def test_the_list_is_as_a_loaders(source, tmp_path):
    """The same samples, the same keys of JSON."""
    pack(source, tmp_path / "dst", quarantine=tmp_path / "packed.jsonl")
    loader = stoker.Loader(
        source,
        image=[stoker.Resize((32, 32))],
        batch_size=8,
        shuffle="none",
        tail="keep",
        on_error="skip",
        quarantine=tmp_path / "loaded.jsonl",
    )
    for _ in loader:
        pass
    loader.close()
    lists = []
    for name in ("packed.jsonl", "loaded.jsonl"):
        lines = [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]
        lists.append({line["sample"]: (line["shard"], line["key"]) for line in lines})
        assert all(list(line) == list(lines[0]) for line in lines)
    assert lists[0] == lists[1] and len(lists[0]) == len(BAD)


def test_raise_copies_undecodable_images(source, tmp_path):
    """As ever."""
    done = pack(source, tmp_path / "raise", on_error="raise")
    assert done["samples_left_out"] == 0 and done["bad"] == []
    assert removed(source, tmp_path / "raise") == []


def test_the_policy_is_no_part_of_the_plan(tmp_path):
    """Half of the images do not decode: raise copies them, until it reaches bytes that rotted. Skip
    resumes there, to the same result that it has alone."""
    members = []
    for number in range(48):
        data = make.encoded(make.pixels(number, 90, 120))
        members.append((f"{number:02}.jpg", data[: len(data) // (1 + number % 2)]))
    tar = make.tar(tmp_path / "src" / "a.tar", members)
    stoker.index(tmp_path / "src", checksums=True)
    with tarfile.open(tar) as file:
        offset = file.getmember("47.jpg").offset_data
    times = os.stat(tar)
    with open(tar, "r+b") as file:
        file.seek(offset + 30)
        file.write(b"rot")
    os.utime(tar, ns=(times.st_atime_ns, times.st_mtime_ns))
    with stoker.Engine(threads=1) as engine:
        with pytest.raises(stoker.CorruptError) as caught:
            pack(tmp_path / "src", tmp_path / "dst", engine=engine, on_error="raise")
    assert caught.value.key == "47"
    assert len(list((tmp_path / "dst.part").glob("*.done"))) > 5
    for name in ("want", "dst"):
        pack(tmp_path / "src", tmp_path / name)
    assert digests(tmp_path / "dst") == digests(tmp_path / "want")


@pytest.mark.skipif(COMMAND is None, reason="the stoker command is not built")
def test_threads(source, tmp_path):
    """The command, by 1, 2 and 7 threads: the same bytes, the same list, the same report."""
    reports = []
    for threads in (1, 2, 7):
        out = tmp_path / str(threads)
        out.mkdir()
        words = [COMMAND, "pack", "--keep-order", "--json",
                 "--threads", str(threads), "--short-side", "60"]
        words += ["--shard-size", "20000", "--on-error", "skip", "--quarantine", out / "bad.jsonl"]
        status, _, text = run_words([*words, source, out / "dst"])
        assert status == 0
        report = json.loads(text)
        assert [bad["key"].rpartition(".")[0] for bad in report["bad"]] == BAD_KEYS
        del report["seconds"], report["destination"]
        reports.append((report, digests(out)))
    assert reports[0] == reports[1] == reports[2]
    assert reports[0][0]["samples_left_out"] == len(BAD)


def run_words(words):
    words = [str(word) for word in words]
    done = subprocess.run(words, capture_output=True, timeout=120, text=True)
    return done.returncode, done.stderr, done.stdout


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"bad_samples_max": len(BAD) - 1}, "bad_samples_max"),
        ({"bad_share_max": 0.1}, "bad_share_max"),
    ],
)
def test_limits(source, tmp_path, options, reason):
    """The list exists; the same call with higher limits resumes."""
    listed = tmp_path / "bad.jsonl"
    with pytest.raises(stoker.LimitError, match=reason):
        pack(source, tmp_path / "dst", quarantine=listed, **options)
    assert not (tmp_path / "dst").exists()
    assert 1 < len(listed.read_text().splitlines()) <= len(BAD)
    done = pack(source, tmp_path / "dst", quarantine=listed, bad_samples_max=len(BAD))
    assert done["samples_left_out"] == len(BAD)
    assert len(listed.read_text().splitlines()) == len(BAD)


@pytest.mark.skipif(COMMAND is None, reason="the stoker command is not built")
def test_limit_of_the_command(source, tmp_path):
    words = [COMMAND, "pack", "--short-side", "60", "--on-error", "skip", "--bad-samples-max", "2"]
    status, errors, text = run_words([*words, source, tmp_path / "dst"])
    assert status == 1 and "bad_samples_max" in errors
    assert "damaged samples" in text and any(key in text for key in BAD_KEYS)
    status, errors, text = run_words([*words[:-1], "6", source, tmp_path / "dst"])
    assert status == 0 and "left out   6 damaged samples" in text
    assert all(key in text for key in BAD_KEYS)
    for wrong in (["--on-error", "maybe"], ["--bad-share-max", "2"], ["--bad-samples-max", "0"]):
        assert run_words([COMMAND, "pack", *wrong, source, tmp_path / "other"])[0] == 2


def test_a_list_that_is_there_is_not_written_over(source, tmp_path):
    listed = tmp_path / "bad.jsonl"
    listed.write_text("a loader's\n")
    with pytest.raises(FileExistsError, match=r"bad\.jsonl"):
        pack(source, tmp_path / "dst", quarantine=listed)
    assert listed.read_text() == "a loader's\n" and not (tmp_path / "dst.part").exists()


def test_a_list_that_cannot_be_written_is_said_at_once(source, tmp_path):
    """Not when the work of a day is done."""
    with pytest.raises(FileNotFoundError, match="absent"):
        pack(source, tmp_path / "dst", quarantine=tmp_path / "absent" / "bad.jsonl")
    assert not list((tmp_path / "dst.part").glob("*.tar*"))


def test_bytes_that_rotted(tmp_path):
    """An index with checksums detects it; without one the sample is copied unchecked."""
    members = [[(f"s{n}.bin", bytes([n]) * 5000), (f"s{n}.cls", b"1")] for n in range(20)]
    tar = make.tar(tmp_path / "src" / "a.tar", [pair for sample in members for pair in sample])
    with tarfile.open(tar) as file:
        offset = file.getmember("s7.bin").offset_data
    stoker.index(tmp_path / "src", checksums=True)
    times = os.stat(tar)
    with open(tar, "r+b") as file:
        file.seek(offset + 100)
        file.write(b"x")
    os.utime(tar, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(stoker.CorruptError, match="checksum") as caught:
        stoker.pack(tmp_path / "src", tmp_path / "dst")
    assert caught.value.key == "s7"
    done = stoker.pack(tmp_path / "src", tmp_path / "dst", on_error="skip")
    assert [(bad.key, bad.sample, bad.offset) for bad in done["bad"]] == [("s7", 7, offset)]
    os.remove(tmp_path / "src" / "stoker.index")
    assert removed(tmp_path / "src", tmp_path / "dst") == ["s7"]
    assert not list(stoker.verify(tmp_path / "dst"))


def shards(folder, gz=False):
    """Three tars of ten pairs each; returns the start of the second's fifth pair."""
    tars, r = [], random.Random(3)
    for shard in range(3):
        members = []
        for number in range(10):
            members += [(f"s{shard}-{number}.bin", r.randbytes(6000))]
            members += [(f"s{shard}-{number}.cls", b"%d" % number)]
        tars.append(make.tar(folder / f"{shard}.tar", members))
    with tarfile.open(tars[1]) as file:
        place = file.getmember("s1-4.bin").offset
    if not gz:
        return tars[1], place
    for tar in tars:
        tar.with_suffix(".tar.gz").write_bytes(gzip.compress(tar.read_bytes(), mtime=0))
        tar.unlink()
    return tars[1].with_suffix(".tar.gz"), 0


ALL = [f"s{shard}-{n}" for shard in range(3) for n in range(10)]


@pytest.mark.parametrize(
    ("how", "gz", "left_out", "listed"),
    [
        ("cut", False, [f"s1-{n}" for n in range(4, 10)], ["s1-4"]),
        ("a header", False, ["s1-4"], ["", "s1-4"]),
        ("no bytes", False, [f"s1-{n}" for n in range(10)], [""]),
        ("a page of HTML", False, [f"s1-{n}" for n in range(10)], [""]),
        ("cut", True, None, None),
        ("flipped", True, [f"s1-{n}" for n in range(10)], None),
    ],
)
def test_damaged_tars(tmp_path, how, gz, left_out, listed):
    """Raise refuses them; skip packs the samples that are certainly complete, the same for any
    number of threads."""
    tar, at = shards(tmp_path / "src", gz)
    data = bytearray(tar.read_bytes())
    if how == "cut":
        del data[(at + 2000 if at else len(data) * 2 // 3) :]
    elif how == "a header":
        data[at + 20] ^= 1
    elif how == "flipped":
        data[len(data) // 2] ^= 1
    else:
        data = bytearray(b"" if how == "no bytes" else b"<html>not found</html>" * 100)
    tar.write_bytes(data)
    with pytest.raises(stoker.Error):
        stoker.pack(tmp_path / "src", tmp_path / "dst")
    wanted = None
    for threads in (1, 2, 7):
        out = tmp_path / str(threads)
        out.mkdir()
        with stoker.Engine(threads=threads) as engine:
            done = stoker.pack(
                tmp_path / "src",
                out / "dst",
                engine=engine,
                shard_bytes=20_000,
                on_error="skip",
                quarantine=out / "bad.jsonl",
            )
        assert wanted in (None, digests(out))
        wanted = digests(out)
    with stoker.Dataset(out / "dst") as dataset:
        keys = [dataset.sample(number).key for number in range(len(dataset))]
    assert done["samples_left_out"] == len(done["bad"]) >= 1
    assert done["samples_done"] == len(keys) == done["samples"] - len(done["bad"])
    assert not list(stoker.verify(out / "dst", deep=True))
    lost = [key for key in ALL if key not in keys]
    assert lost == left_out if left_out is not None else 0 < len(lost) < 10
    assert all(key.startswith("s1-") for key in lost)
    if listed is not None:
        assert [bad.key for bad in done["bad"]] == listed
    assert all(bad.shard == str(tar) and bad.reason for bad in done["bad"])
    lines = [json.loads(line) for line in (out / "bad.jsonl").read_text().splitlines()]
    assert [line["key"] for line in lines] == [bad.key for bad in done["bad"]]


@pytest.mark.skipif(COMMAND is None, reason="the stoker command is not built")
def test_damaged_tars_by_the_command(tmp_path):
    tar, at = shards(tmp_path / "src")
    os.truncate(tar, at + 2000)
    words = [COMMAND, "pack", tmp_path / "src", tmp_path / "dst"]
    assert run_words(words)[0] == 1
    status, _, text = run_words([*words, "--on-error", "skip"])
    assert status == 0 and "s1-4" in text and "left out   1 damaged sample" in text
    status, errors, _ = run_words([*words[:-1], tmp_path / "b", "--on-error", "skip",
                                   "--bad-samples-max", "1"])  # fmt: skip
    assert status == 0, errors


def test_a_data_set_that_is_opened_though_damaged(tmp_path):
    tar, at = shards(tmp_path / "src")
    os.truncate(tar, at + 2000)
    with pytest.raises(stoker.TruncatedError):
        stoker.Dataset(tmp_path / "src")
    with pytest.raises(stoker.ArgumentError):
        stoker.Dataset(tmp_path / "src", on_error="maybe")
    with stoker.Dataset(tmp_path / "src", on_error="skip") as dataset:
        assert len(dataset) == 24
        assert [(bad.key, bad.sample) for bad in dataset.quarantine] == [("s1-4", None)]
        with pytest.raises(stoker.TruncatedError):
            stoker.pack(dataset, tmp_path / "dst")
        assert stoker.pack(dataset, tmp_path / "dst", on_error="skip")["samples_left_out"] == 1
    with pytest.raises(stoker.TruncatedError):  # an index lists them all
        stoker.index(tmp_path / "src")


@pytest.mark.skipif(COMMAND is None, reason="the stoker command is not built")
@pytest.mark.parametrize("kind", ["pictures", "tars"])
def test_kill(source, tmp_path, kind):
    """kill -9 at random instants: the same bytes, and the same list."""
    out = tmp_path / "out" / "result"
    out.parent.mkdir()
    words = [COMMAND, "pack", "--shard-size", "20000", "--on-error", "skip"]
    words += ["--quarantine", str(out.parent / "bad.jsonl")]
    if kind == "pictures":
        words += ["--short-side", "60", str(source), str(out)]
    else:
        tar, at = shards(tmp_path / "src")
        os.truncate(tar, at + 2000)
        words += ["--shuffle", "3", str(tmp_path / "src"), str(out)]
    begin = time.monotonic()
    status, text = run_whole(words)
    seconds = time.monotonic() - begin
    assert status == 0, text
    wanted = digests(out.parent)
    assert is_whole(out) and wanted["bad.jsonl"] is not None
    r = random.Random(f"{SEED}/{kind}")
    killed = 0
    for number in range(KILLS):
        clear(out)
        killed += one_round(r, words, out, seconds)
        assert digests(out.parent) == wanted, f"STOKER_SEED={SEED}, round {number}"
    assert killed >= KILLS / 3  # else it was not tested


@pytest.mark.parametrize(
    "options",
    [
        {"on_error": "maybe"},
        {"on_error": 1},
        {"bad_samples_max": 0},
        {"bad_share_max": 1.5},
        {"io_retries": -1},
        {"quarantine": ""},
    ],
)
def test_arguments(source, tmp_path, options):
    with pytest.raises(stoker.ArgumentError):
        pack(source, tmp_path / "dst", **options)
    assert not (tmp_path / "dst.part").exists()
