"""stoker clean: lists and removes tables and locks, and nothing else."""

import fcntl
import gzip
import json
import os
import subprocess

import make
import stoker


def clean(*words, cache):
    run = subprocess.run(
        ["stoker", "clean", "--json", *map(str, words)],
        capture_output=True,
        text=True,
        env={**os.environ, "STOKER_CACHE": str(cache), "STOKER_NODE_DIR": str(cache.parent)},
        timeout=60,
    )
    assert run.returncode == 0, run.stderr
    return {os.path.basename(row["path"]): row for row in map(json.loads, run.stdout.splitlines())}


def test_tables_and_locks(tmp_path, engine):
    data, cache = tmp_path / "data", tmp_path / "cache"
    cache.mkdir()
    data.mkdir()
    make.tar(data / "a.tar", [(f"{n}.cls", b"%d" % n) for n in range(9)])
    stoker.index(data, engine=engine)
    for text in ("cls > 2", "cls > 3"):
        stoker.Loader(data, 1, fields={"y": stoker.Int("cls")}, subset=text, engine=engine).close()
    make.write(cache / "scan-0123.lock", b"")
    make.write(cache / "scan-4567.lock", b"")
    make.write(data / "notes.table", b"mine")
    with open(cache / "scan-4567.lock") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        listed = clean(data, cache=cache)
        tables = [name for name in listed if name.endswith(".table")]
        assert len(tables) == 2 and "notes.table" not in listed
        assert listed["scan-4567.lock"]["in_use"] and not listed["scan-0123.lock"]["in_use"]
        assert len(list(data.glob("*.table"))) == 3  # it only listed
        clean("--yes", data, cache=cache)
    assert sorted(os.listdir(cache)) == ["scan-4567.lock"]
    assert [path.name for path in data.glob("*.table")] == ["notes.table"]
    assert (data / "stoker.index").exists() and (data / "a.tar").exists()
    assert set(clean(data, cache=cache)) == {"scan-4567.lock"}
    fields = {"y": stoker.Int("cls")}
    assert len(list(stoker.Loader(data, 1, fields=fields, subset="cls > 2", engine=engine))) == 6


def test_text_and_counts(tmp_path, engine, monkeypatch):
    """Decompressed text, counts of tokens, and parts of killed processes; not those in use."""
    data, cache = tmp_path / "data", tmp_path / "cache"
    data.mkdir()
    monkeypatch.setenv("STOKER_CACHE", str(cache))
    for name in "ab":
        with gzip.open(data / f"{name}.jsonl.gz", "wt") as file:
            file.writelines('{"text": "some words %d"}\n' % n for n in range(50))
    options = dict(context=8, tokenizer=lambda texts: [list(text.encode()) for text in texts])
    options |= dict(batch_size=2, engine=engine, shuffle="none")
    stoker.TextLoader(data / "a.jsonl.gz", **options).close()
    make.write(cache / f"text-{'0' * 32}.txt.part", b"of a killed process")
    make.write(cache / "text-notes.txt", b"mine")
    with stoker.TextLoader(data / "b.jsonl.gz", **options) as loader:
        next(iter(loader))
        listed = clean(cache=cache)
        assert sorted(row["kind"] for row in listed.values()) == ["part", "text", "text"]
        assert sum(row["in_use"] for row in listed.values()) == 1
        removed = clean("--yes", cache=cache)
        assert sum(row["removed"] for row in removed.values()) == 2
        assert len(list(loader)) > 0  # the file in use can still be read
    assert len(clean("--yes", "--older-than", 3600, cache=cache)) == 0
    clean("--yes", cache=cache)
    assert os.listdir(cache) == ["text-notes.txt"]
    stoker.TextLoader(data / "a.jsonl.gz", **options).close()  # it is made again


def test_the_number_of_tables_is_bounded(tmp_path, engine):
    """The table that was not used for the longest time goes; one in use stays."""
    make.tar(tmp_path / "a.tar", [(f"{n}.cls", b"%d" % n) for n in range(9)])
    stoker.index(tmp_path, engine=engine)
    options = dict(fields={"y": stoker.Int("cls")}, engine=engine)
    first = stoker.Loader(tmp_path, 1, subset="cls > 0", **options)
    (table,) = tmp_path.glob("*.table")
    stoker.Loader(tmp_path, 1, subset="cls > 1", **options).close()
    (second,) = set(tmp_path.glob("*.table")) - {table}
    for path in (table, second):
        os.utime(path, (1, 1))
    stoker.Loader(tmp_path, 1, subset="cls > 1", **options).close()  # marks it as used now
    make.write(tmp_path / "stoker.index.notes.table", b"mine")
    for n in range(70):
        stoker.Loader(tmp_path, 1, subset=f"cls != {n + 100}", **options).close()
    assert len(list(tmp_path.glob("stoker.index.????????????????.table"))) == 64
    assert table.exists() and (tmp_path / "stoker.index.notes.table").exists()
    first.close()
    assert (tmp_path / "stoker.index").exists()


def test_scans_leave_no_locks(tmp_path, monkeypatch, engine):
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path / "cache"))
    make.tar(tmp_path / "a.tar", [(f"{n}.cls", b"%d" % n) for n in range(9)])
    stoker.Loader(
        tmp_path / "a.tar", 1, fields={"y": stoker.Int("cls")}, subset="cls > 2", engine=engine
    ).close()
    assert not list((tmp_path / "cache").glob("*.lock"))
