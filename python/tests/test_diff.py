"""stoker.diff and the command: the differences of two data sets.

Goal: every added, removed and changed sample is reported once, with the members that changed;
shards, order and packing do not count; an index with checksums is used instead of the data. Method:
data sets by tarfile, changed at random, compared with dicts in Python; `stoker pack`.
"""

import gzip
import json
import os
import pickle
import random
import shutil

import make
import pytest
import stoker
import test_cli

needs_command = pytest.mark.skipif(test_cli.COMMAND is None, reason="the command is not built")


def write(root, samples, shards=3, order=None, pack=False):
    """samples: {key: {extension: bytes}} as tars."""
    keys = list(samples)
    if order is not None:
        random.Random(order).shuffle(keys)
    for shard in range(shards):
        members = [
            (f"{key}.{extension}", data)
            for key in keys[shard::shards]
            for extension, data in samples[key].items()
        ]
        path = make.tar(root / f"{shard}.tar", members)
        if pack:
            (root / f"{shard}.tar.gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
    return root


def samples_of(count, seed=0):
    draw = random.Random(seed)
    return {
        f"dir{i % 3}/k{i:04}": {"bin": draw.randbytes(draw.randrange(2000)), "cls": b"%d" % i}
        for i in range(count)
    }


def differ(a, b, **options):
    with stoker.diff(a, b, **options) as comparison:
        found = list(comparison)
    return found, comparison.progress()


def compared(a, b):
    """Python's comparison of two dicts of samples: {key: (kind, members)}."""
    result = {}
    for key in a.keys() | b.keys():
        if key not in b:
            result[key] = ("removed", ())
        elif key not in a:
            result[key] = ("added", ())
        elif a[key] != b[key]:
            one, other = a[key], b[key]
            changed = [e for e in one if e in other and one[e] != other[e]]
            gone = [f"-{e}" for e in one if e not in other]
            new = [f"+{e}" for e in other if e not in one]
            result[key] = ("changed", tuple(sorted([*changed, *gone, *new])))
    return result


@pytest.mark.parametrize("pack", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("seed", range(3))
def test_random_changes(tmp_path, engine, seed, pack):
    draw = random.Random(seed)
    a, b = samples_of(120), samples_of(120)
    for key in draw.sample(sorted(b), 40):
        action = draw.randrange(6)
        if action == 0:
            del b[key]
        elif action == 1:
            data = bytearray(b[key]["bin"] or b"x")
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
            b[key]["bin"] = bytes(data)
        elif action == 2:
            b[key]["bin"] += b"\0"
        elif action == 3:
            b[key]["json"] = b"{}"
        elif action == 4:
            del b[key]["cls"]
        else:
            b[f"new{key}"] = b.pop(key)
    write(tmp_path / "a", a)
    write(tmp_path / "b", b, shards=5, order=seed, pack=pack)
    found, progress = differ(tmp_path / "a", tmp_path / "b", engine=engine)
    got = {f.key: (f.kind, tuple(sorted(m.rstrip("?") for m in f.members))) for f in found}
    want = compared(a, b)
    if pack:  # members of the same size are not read again: named with '?', also those unchanged
        assert got.keys() == want.keys()
        for key, (kind, members) in want.items():
            assert got[key][0] == kind and set(members) <= set(got[key][1])
    else:
        assert got == want
    assert len(found) == len(got)
    kinds = [f.kind for f in found]
    assert progress["added"] == kinds.count("added")
    assert progress["removed"] == kinds.count("removed")
    assert progress["changed"] == kinds.count("changed")
    assert progress["same"] + progress["changed"] + progress["removed"] == len(a)
    assert progress["same"] + progress["changed"] + progress["added"] == len(b)
    assert progress["finished"] and progress["bytes"] > 0
    assert sorted(kinds, key=lambda kind: kind == "added") == kinds


def test_numbers_are_those_of_the_data_sets(tmp_path, engine):
    a, b = samples_of(20), samples_of(20)
    del b["dir1/k0004"], a["dir2/k0005"]
    b["dir0/k0006"]["cls"] = b"other"
    one = stoker.Dataset(write(tmp_path / "a", a), engine=engine)
    other = stoker.Dataset(write(tmp_path / "b", b), engine=engine)
    found, _ = differ(one, other)
    assert len(found) == 3
    for f in found:
        for dataset, number, shard in (
            (one, f.sample_a, f.shard_a),
            (other, f.sample_b, f.shard_b),
        ):
            if number is None:
                assert shard == ""
            else:
                sample = dataset.sample(number)
                assert sample.key == f.key and sample.members[0].shard == shard
    assert one.read(0)  # still open
    assert {f.kind for f in found} == {"added", "removed", "changed"}


def test_with_itself(tars, folder, engine):
    for source, count in ((tars, 103), (folder, 40)):
        found, progress = differ(source, source, engine=engine)
        assert found == [] and progress["same"] == count


def test_folder(folder, tmp_path, engine):
    copy = shutil.copytree(folder, tmp_path / "copy")
    pictures = sorted(copy.rglob("*.jpg"))
    data = bytearray(pictures[3].read_bytes())
    data[-9] ^= 1
    pictures[3].write_bytes(data)
    pictures[5].unlink()
    make.jpeg(copy / "class0" / "more.jpg", 7)
    found, _ = differ(folder, copy, engine=engine)
    keys = [str(p.relative_to(copy)) for p in pictures]
    assert [(f.kind, f.key, f.members) for f in found] == [
        ("changed", keys[3], ("jpg",)),
        ("removed", keys[5], ()),
        ("added", "class0/more.jpg", ()),
    ]
    assert found[0].shard_a == str(folder / keys[3]) and found[0].shard_b == str(pictures[3])


@needs_command
def test_packed_is_the_same(folder, tmp_path, engine):
    """A folder and the shards packed from it, shuffled; then one image changes."""
    done = test_cli.stoker("pack", "--shuffle", 5, "--shard-size", "30K", folder, tmp_path / "p")
    assert done.returncode == 0, done.stderr
    for a, b in ((folder, tmp_path / "p"), (tmp_path / "p", folder)):
        found, progress = differ(a, b, engine=engine)
        assert found == [] and progress["same"] == 40
    copy = shutil.copytree(folder, tmp_path / "copy")
    make.jpeg(copy / "class1" / "001.jpg", 77)
    found, _ = differ(copy, tmp_path / "p", engine=engine)
    assert [(f.kind, f.key, f.members) for f in found] == [("changed", "class1/001", ("jpg",))]


@needs_command
def test_indexes_with_checksums(tmp_path, engine):
    """No data is read if both have checksums: a change that the index has not seen is not found,
    and reread finds it. With one index only the other side is read."""
    a, b = samples_of(60), samples_of(60)
    b["dir0/k0006"]["cls"] = b"66"
    paths = [write(tmp_path / "a", a), write(tmp_path / "b", b)]
    total = sum(p.stat().st_size for p in paths[0].iterdir())
    for path, read in zip([None, *paths], (2 * total, total, 0), strict=True):
        if path:
            done = test_cli.stoker("index", "--checksums", path)
            assert done.returncode == 0, done.stderr
        found, progress = differ(*paths, engine=engine)
        assert [(f.key, f.members) for f in found] == [("dir0/k0006", ("cls",))]
        assert abs(progress["bytes"] - read) <= 6 * 10240  # ends of tars need not be read
        assert progress["bytes"] > 0 or path == paths[1]
    assert progress["bytes"] == 0
    result = test_cli.stoker("diff", *paths)
    assert b"1 changed, 59 the same; no data read" in result.stdout
    shard = paths[0] / "0.tar"
    times = shard.stat()
    data = bytearray(shard.read_bytes())
    data[512 + 20] ^= 1
    shard.write_bytes(data)
    os.utime(shard, ns=(times.st_atime_ns, times.st_mtime_ns))  # as a disk changes it
    assert len(differ(*paths, engine=engine)[0]) == 1
    found, progress = differ(*paths, engine=engine, reread=True)
    assert len(found) == 2 and progress["bytes"] > 0
    assert test_cli.stoker("diff", "--reread", *paths).stdout.count(b"changed") == 3


@needs_command
def test_a_shard_that_one_side_has_twice(tmp_path, engine):
    """Shards with one SHA-256 are paired one to one, as their samples are when all is read."""
    a = write(tmp_path / "a", samples_of(20))
    b = shutil.copytree(a, tmp_path / "b")
    shutil.copy(a / "0.tar", a / "9.tar")
    for path in (a, b):
        assert test_cli.stoker("index", "--checksums", path).returncode == 0
    found, progress = differ(a, b, engine=engine)
    assert progress["bytes"] == 0 and progress["same"] == 20
    assert found and {f.kind for f in found} == {"removed"}
    again, _ = differ(a, b, engine=engine, reread=True)
    assert sorted(f.key for f in found) == sorted(f.key for f in again)


@needs_command
def test_folder_with_an_index(folder, tmp_path, engine):
    copies = [shutil.copytree(folder, tmp_path / name) for name in ("a", "b")]
    make.jpeg(copies[1] / "class2" / "002.jpg", 99)
    for copy in copies:
        assert test_cli.stoker("index", "--checksums", copy).returncode == 0
    found, progress = differ(*copies, engine=engine)
    assert [(f.kind, f.key) for f in found] == [("changed", "class2/002.jpg")]
    assert progress["bytes"] == 0 and progress["same"] == 39


def test_keys_that_come_twice(tmp_path, engine):
    """The same key in several shards: those with one content go together."""
    for name, contents in (("a", [b"1", b"2", b"2"]), ("b", [b"2", b"3", b"1", b"1"])):
        for shard, data in enumerate(contents):
            make.tar(tmp_path / name / f"{shard}.tar", [("k.x", data)])
    found, progress = differ(tmp_path / "a", tmp_path / "b", engine=engine)
    assert [f.kind for f in found] == ["changed", "added"]
    assert progress["same"] == 2


def test_names_that_are_no_utf8(tmp_path, engine):
    name = os.fsdecode(b"caf\xe9")
    make.tar(tmp_path / "a.tar", [(f"{name}.x", b"1")])
    make.tar(tmp_path / "b.tar", [(f"{name}.x", b"2")])
    (found,), _ = differ(tmp_path / "a.tar", tmp_path / "b.tar", engine=engine)
    assert found.key == name


def test_damage_is_an_error(tmp_path, engine):
    path = make.tar(tmp_path / "a.tar", [("k.x", b"1")])
    (tmp_path / "b.tar").write_bytes(path.read_bytes()[:700])
    with pytest.raises(stoker.TruncatedError):
        stoker.diff(path, tmp_path / "b.tar", engine=engine)
    with stoker.Dataset(path, engine=engine) as one:
        os.truncate(path, 512)
        with pytest.raises(stoker.TruncatedError) as caught:
            list(stoker.diff(one, one))
        assert caught.value.key == "k" and "a.tar" in str(caught.value)


def test_arguments(tars, engine):
    with pytest.raises(stoker.ArgumentError):
        stoker.diff(tars, tars, engine=3)
    with pytest.raises(FileNotFoundError):
        stoker.diff(tars, tars / "absent", engine=engine)
    comparison = stoker.diff(tars, tars, engine=engine)
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(comparison)
    comparison.close()
    assert list(comparison) == []
    with pytest.raises(stoker.ClosedError):
        comparison._native.next()
    closed = stoker.Dataset(tars, engine=engine)
    closed.close()
    with pytest.raises(stoker.ClosedError):
        stoker.diff(closed, closed)


def test_memory(tmp_path):
    """24 bytes a sample are not granted: an error, not a crash."""
    path = make.tar(tmp_path / "a.tar", [(f"{i:06}.x", b"") for i in range(30000)])
    with stoker.Engine(threads=1, memory="1750KiB") as small:  # enough for the index
        with stoker.Dataset(path, engine=small) as data, pytest.raises(stoker.BudgetError):
            list(stoker.diff(data, data))


# ---- the command ----------------------------------------------------------------------------


@needs_command
def test_command(tmp_path):
    a, b = samples_of(30), samples_of(30)
    del b["dir1/k0004"], a["dir2/k0005"]
    b["dir0/k0006"]["cls"] = b"other"
    b["dir0/k0006"]["txt"] = b"new"
    write(tmp_path / "a", a, shards=1)
    write(tmp_path / "b", b, shards=1)
    same = test_cli.stoker("diff", tmp_path / "a", tmp_path / "a")
    assert same.returncode == 0 and same.stderr == b""
    assert same.stdout.startswith(b"the same: 29 samples; ")
    result = test_cli.stoker("diff", tmp_path / "a", tmp_path / "b")
    assert result.returncode == 1 and result.stderr == b""
    one, other = f"{tmp_path}/a/0.tar", f"{tmp_path}/b/0.tar"
    *lines, last = result.stdout.decode().splitlines()
    assert lines == [
        f"removed  dir1/k0004  {one}",
        f"changed  dir0/k0006  {one} -> {other}  cls +txt",
        f"added    dir2/k0005  {other}",
    ]
    assert last.startswith("differ: 1 added, 1 removed, 1 changed, 27 the same; ")
    few = test_cli.stoker("diff", "--limit", 1, tmp_path / "a", tmp_path / "b")
    assert len(few.stdout.splitlines()) == 2 and b"(1 shown)" in few.stdout
    assert few.returncode == 1
    rows = [
        json.loads(line)
        for line in test_cli.stoker("diff", "--json", tmp_path / "a", tmp_path / "b")
        .stdout.decode()
        .splitlines()
    ]
    assert [row["kind"] for row in rows] == ["removed", "changed", "added", "summary"]
    assert rows[1]["members"] == "cls +txt" and rows[1]["shard_b"] == other
    assert "shard_b" not in rows[0] and rows[3]["same"] == 27 and rows[3]["bytes_read"] > 0
    assert test_cli.stoker("diff", tmp_path / "a").returncode == 2
    assert test_cli.stoker("diff", tmp_path / "a", tmp_path / "absent").returncode == 3


@needs_command
def test_progress_on_a_terminal(tmp_path):
    members = [(f"{i:04}.bin", os.urandom(1 << 20)) for i in range(5)]
    path = make.tar(tmp_path / "a.tar.bz2", members, mode="w:bz2")  # slow to read
    words = ["diff", "--threads", 1, path, path]
    screen, status, out, _ = test_cli.on_terminal(words, 0, {})
    assert status == 0 and out.startswith("the same: 5 samples; ")
    assert b"%" in screen and b"/s" in screen
