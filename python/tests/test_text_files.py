"""Files that a TextLoader reads: recognised by their first bytes, decompressed, named in errors."""

from __future__ import annotations

import bz2
import concurrent.futures
import errno
import fcntl
import gzip
import json
import lzma
import os
import shutil
import subprocess
import time

import object_server
import pytest
import stoker
from stoker import text_files

numpy = pytest.importorskip("numpy")

LINE = b'{"text":"a"}\n'
BAD = LINE * 4 + b'{"text": \n' + LINE * 2


def ids(texts):
    return [list(text.encode()) for text in texts]


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def docs(tmp_path):
    """A function: the documents of a new file with this name and content."""

    def read(name, data, **options):
        (tmp_path / name).write_bytes(data)
        return texts_of(tmp_path / name, **options)

    return read


def texts_of(source, **options):
    options = {"rows": "documents", "shuffle": "none", "tail": "keep", "labels": False, **options}
    with stoker.TextLoader(source, ids, 1, output="numpy", **options) as loader:
        return [bytes(int(x) for x in batch[0]) for batch in loader]


def test_a_byte_order_mark_is_no_text(docs):
    mark = b"\xef\xbb\xbf"
    assert docs("b.txt", mark + b"a\n") == [b"a"]
    assert docs("b.jsonl", mark + LINE) == [b"a"]
    assert docs("b", mark + LINE) == [b"a"]
    assert docs("whole.txt", mark + b"a\nb\n", documents="files") == [b"a\nb\n"]


@pytest.mark.parametrize(
    "name", ["part-00000", "x.jl", "x.txt", "x.jsonl.zstd", "x.JSONL", "x.ndjson", "x.log"]
)
def test_json_lines_are_known_by_their_content(docs, name):
    data = LINE * 2
    if name.endswith(".zstd"):
        if not shutil.which("zstd"):
            pytest.skip("zstd is not installed")
        data = subprocess.run(["zstd", "-c"], input=data, capture_output=True, check=True).stdout
    assert docs(name, data) == [b"a", b"a"]


def test_text_stays_text(docs):
    assert docs("a", b"{ not JSON\n") == [b"{ not JSON"]
    assert docs("b.txt", b"[section]\nkey = 1\n") == [b"[section]", b"key = 1"]
    assert docs("c.txt", b'"text"\n12\n') == [b'"text"', b"12"]
    assert docs("d.txt", LINE, documents="lines") == [LINE.strip()]
    long = b'{"text": "' + b"x" * 200_000 + b'"}\n'  # longer than the first bytes that are read
    assert docs("long", long) == [b"x" * 200_000]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("c.json", b'[{"text":"a"}]'),
        ("d.jsonl", b'[\n{"text":"a"},\n{"text":"b"}]\n'),
        ("e", b'[{"text": "a"}, {"text": "b"}]\n'),
    ],
)
def test_an_array_is_not_lines(docs, name, data):
    with pytest.raises(stoker.FormatError, match="a JSON array, not lines") as caught:
        docs(name, data)
    assert name in str(caught.value)


PACKERS = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


@pytest.mark.parametrize("ending", PACKERS)
def test_compressed_files(docs, tmp_path, cache, ending):
    data = LINE * 3 + b'{"text": "the last"}\n'
    assert docs(f"c.jsonl{ending}", PACKERS[ending](data)) == [b"a"] * 3 + [b"the last"]
    (plain,) = cache.glob("text-*.txt")
    assert plain.read_bytes() == data and not list(cache.glob("*.part"))
    before = plain.stat().st_mtime_ns
    assert len(texts_of(tmp_path / f"c.jsonl{ending}")) == 4
    assert plain.stat().st_mtime_ns == before  # decompressed once
    assert docs(f"named-wrongly{ending}.txt", PACKERS[ending](LINE)) == [b"a"]
    two = PACKERS[ending](LINE) + PACKERS[ending](LINE)  # concatenated, as `cat` does
    assert docs(f"two{ending}", two) == [b"a", b"a"]


def wait_for(is_so):
    end = time.monotonic() + 20
    while not is_so() and time.monotonic() < end:
        time.sleep(0.01)
    assert is_so()


def test_a_part_of_another_owner_is_not_taken(docs, tmp_path, cache, monkeypatch):
    """A waits for a lock; its owner fails and removes the file, and another process creates a new
    one."""
    packed = gzip.compress(LINE * 3)
    assert docs("x.jsonl.gz", packed) == [b"a"] * 3
    (plain,) = cache.glob("text-*.txt")
    plain.unlink()
    part = plain.with_name(f"{plain.name}.part")
    flock, calls = fcntl.flock, []

    def recorded(file, operation):
        if file not in calls:
            calls.append(file)
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", recorded)
    with open(part, "wb") as first, concurrent.futures.ThreadPoolExecutor() as pool:
        flock(first, fcntl.LOCK_EX)
        future = pool.submit(texts_of, tmp_path / "x.jsonl.gz")
        wait_for(lambda: len(calls) == 1)
        part.unlink()
        with open(part, "wb") as second:
            flock(second, fcntl.LOCK_EX)
            second.write(b"unfinished\n")
            second.flush()
            first.close()
            wait_for(lambda: future.done() or len(calls) == 2)
            opened = list(cache.glob("text-*.txt"))
        assert not opened
        assert future.result(timeout=60) == [b"a"] * 3
    assert plain.read_bytes() == LINE * 3 and not part.exists()


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_cache_without_locks(docs, tmp_path, cache, monkeypatch, code):
    """Each process then writes a part of its own, also if a killed process left one."""

    def no_locks(file, operation):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    name = "x.jsonl.gz"
    assert docs(name, gzip.compress(LINE)) == [b"a"]
    (plain,) = cache.glob("text-*.txt")
    plain.unlink()
    plain.with_name(f"{plain.name}.part").write_bytes(b"of another process")
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        read = [pool.submit(texts_of, tmp_path / name) for _ in range(8)]
        assert [each.result(timeout=60) for each in read] == [[b"a"]] * 8
    assert plain.read_bytes() == LINE
    options = {"rows": "windows", "context": 1, "counts": tmp_path / "counts"}
    assert len(texts_of(tmp_path / name, **options)) == 1
    assert len(list((tmp_path / "counts").glob("*.bin"))) == 1
    with pytest.raises(stoker.TruncatedError):
        docs("cut.gz", gzip.compress(LINE * 99)[:-9])
    left = [*cache.glob("*.*.*.part"), *(tmp_path / "counts").glob("*.*.*.part")]
    assert not left and len(list(cache.glob("text-*.txt"))) == 1


def test_a_cache_that_cannot_be_written(docs, tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path / "file" / "below"))
    with pytest.raises(stoker.Error, match="into the cache: Not a directory") as caught:
        docs("x.jsonl.gz", gzip.compress(LINE))
    assert "x.jsonl.gz" in str(caught.value) and "set STOKER_CACHE" in str(caught.value)


def test_a_source_that_cannot_be_read_is_no_damage(docs, monkeypatch):
    """The error of the storage stays as it is: the cache and the compression are not its cause."""
    failure = stoker.ChangedError("the object changed", "'x'", "open it again")
    read, calls = text_files._Ranges.readinto, []

    def fail(self, buffer):
        calls.append(len(buffer))
        if len(calls) > 1:
            raise failure
        return read(self, buffer)

    monkeypatch.setattr(text_files._Ranges, "readinto", fail)
    for error in (stoker.ChangedError, stoker.FormatError, stoker.IOError):
        failure = error("cannot read", "'x'", "look there", status=-5)
        calls.clear()
        with pytest.raises(error) as caught:
            docs("x.jsonl.gz", gzip.compress(LINE))
        assert caught.value is failure


def test_plain_files_without_use_are_removed(docs, tmp_path, cache):
    docs("old.jsonl.gz", gzip.compress(LINE))
    (old,) = cache.glob("text-*.txt")
    docs("used.jsonl.gz", gzip.compress(LINE * 2))
    (used,) = set(cache.glob("text-*.txt")) - {old}
    part = cache / f"text-{'0' * 32}.txt.part"
    part.write_bytes(b"")
    other = cache / "text-of-mine.txt"
    other.write_bytes(b"")
    for path in (old, used, part, other):
        os.utime(path, (time.time() - 31 * 86400,) * 2)
    assert texts_of(tmp_path / "used.jsonl.gz") == [b"a"] * 2
    assert used.stat().st_mtime < time.time() - 30 * 86400  # it was not written to
    docs("new.jsonl.gz", gzip.compress(LINE * 3))
    assert used.exists() and other.exists()
    assert not old.exists() and not part.exists()
    assert len(list(cache.glob("text-*.txt"))) == 3


def test_no_cache_folder(docs, monkeypatch):
    for name in ("STOKER_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(stoker.ArgumentError, match="STOKER_CACHE"):
        docs("x.jsonl.gz", gzip.compress(LINE))


@pytest.mark.parametrize("ending", PACKERS)
def test_damaged_compressed_files(docs, cache, ending):
    import random

    noise = bytes(random.Random(1).choices(b"abcdefgh", k=20_000))
    packed = PACKERS[ending](b'{"text": "' + noise + b'"}\n')
    with pytest.raises((stoker.TruncatedError, stoker.CorruptError), match=f"cut{ending}"):
        docs(f"cut{ending}", packed[: len(packed) // 2])
    broken = bytearray(packed)
    broken[len(broken) // 2] ^= 0xFF
    with pytest.raises(stoker.CorruptError, match=f"broken{ending}"):
        docs(f"broken{ending}", bytes(broken))
    assert not list(cache.glob("text-*"))


def zstd_pack(data):
    return subprocess.run(["zstd", "-q", "-c"], input=data, capture_output=True, check=True).stdout


@pytest.mark.parametrize("rows", ["padded", "windows"])
@pytest.mark.parametrize("ending", [".zst", ".frames.zst", *PACKERS])
def test_damaged_compressed_files_are_left_out(tmp_path, cache, ending, rows):
    """on_error="skip": as one bad document each, which names the file."""
    text = b"".join(b'{"text": "%040d"}\n' % n for n in range(2000))
    pack = PACKERS.get(ending, zstd_pack)
    parts = [text[i : i + 42000] for i in range(0, len(text), 42000)]
    data = bytearray(b"".join(map(pack, parts if ending == ".frames.zst" else [text])))
    (tmp_path / "good.jsonl").write_bytes(LINE * 20)
    (tmp_path / f"whole.jsonl{ending}").write_bytes(data)
    (tmp_path / f"cut.jsonl{ending}").write_bytes(data[: len(data) // 2])
    data[len(data) // 2] ^= 0xFF
    (tmp_path / f"broken.jsonl{ending}").write_bytes(data)
    options = {"rows": rows, "labels": False, "shuffle": "none", "tail": "keep", "context": 8}
    options["output"] = "numpy"
    names = [f"broken.jsonl{ending}", "good.jsonl", f"cut.jsonl{ending}", f"whole.jsonl{ending}"]
    files = [tmp_path / name for name in names]
    with pytest.raises((stoker.TruncatedError, stoker.CorruptError), match=r"broken\.jsonl"):
        list(stoker.TextLoader(files, ids, 64, **options))
    with stoker.TextLoader(files, ids, 64, on_error="skip", **options) as loader:
        with stoker.TextLoader([files[1], files[3]], ids, 64, **options) as wanted:
            assert [batch.tolist() for batch in loader] == [batch.tolist() for batch in wanted]
        assert loader.stats()["bad_samples"] == 2
        assert [os.path.basename(bad.shard) for bad in loader.quarantine] == [names[0], names[2]]
        assert all("compressed by" in bad.reason for bad in loader.quarantine)
        state = loader.state_dict()
    with stoker.TextLoader(files, ids, 64, on_error="skip", **options) as loader:
        loader.load_state_dict(state)
    with pytest.raises(stoker.LimitError, match="bad_samples_max=1"):
        stoker.TextLoader(files, ids, 64, on_error="skip", bad_samples_max=1, **options)
    with pytest.raises((stoker.TruncatedError, stoker.CorruptError)):
        stoker.TextLoader([files[0]], ids, 64, on_error="skip", **options)


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"PAR1" + bytes(100), "Parquet"),
        (b"PK\3\4" + bytes(100), "zip"),
        (b"\xff\xd8\xff\xe0" + bytes(100), "JPEG"),
        (b"\x93NUMPY\1\0" + bytes(100), "NumPy"),
        (bytes(257) + b"ustar" + bytes(200), "tar"),
        ("ab\n".encode("utf-16"), "UTF-16"),
        (b"text\0text\n", "binary"),
    ],
)
def test_files_that_are_no_text(docs, data, name):
    with pytest.raises(stoker.FormatError, match=name) as caught:
        docs("x.jsonl", data)
    assert "x.jsonl" in str(caught.value)


@pytest.mark.parametrize("name", ["x.jsonl", "x.txt", "x", "x.jsonl.gz"])
def test_pointers_and_pages_are_no_documents(docs, name):
    """An LFS pointer is never text; a page is text, but not in a file that is named as JSON."""
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 3\n"
    page = b"\n<!DOCTYPE html>\n<html>log in</html>\n"
    pack = gzip.compress if name.endswith(".gz") else bytes
    with pytest.raises(stoker.FormatError, match="Git LFS pointer.*\n.*git lfs pull"):
        docs(name, pack(pointer))
    if "json" in name:
        with pytest.raises(stoker.FormatError, match="page of HTML.*\n.*download"):
            docs(name, pack(page))
    else:
        assert docs(name, page)[-1] == b"<html>log in</html>"


def test_an_error_names_file_line_and_byte(docs, tmp_path):
    with pytest.raises(stoker.CorruptError) as caught:
        docs("bad.jsonl", BAD)
    assert "bad.jsonl' line 5, byte 52" in str(caught.value)
    assert caught.value.offset == 52 and caught.value.shard.endswith("bad.jsonl")
    (tmp_path / "a.jsonl").write_bytes(LINE * 3)
    for rows in ("documents", "packed", "padded", "windows"):
        context = {} if rows == "documents" else {"context": 8}
        files = [tmp_path / "a.jsonl", tmp_path / "bad.jsonl"]
        with pytest.raises(stoker.CorruptError, match=r"bad.jsonl' line 5, byte 52"):
            list(stoker.TextLoader(files, ids, 1, rows=rows, tail="keep", **context))
    packed = tmp_path / "bad.jsonl.gz"
    packed.write_bytes(gzip.compress(BAD))
    with pytest.raises(stoker.CorruptError, match=r"bad.jsonl.gz' line 5, byte 52"):
        texts_of(packed)


@pytest.mark.parametrize(
    "line",
    [
        b'{"other": "a"}',
        b'{"text": 1}',
        b'{"text": null}',
        b"[1]",
        b"{",
        b'{"text": "\\ud800"}',
        b'{"text": "\xff"}',
        b'{"text": "a"} x',
    ],
)
def test_each_fault_of_a_line(docs, tmp_path, line):
    data = LINE + line + b"\n" + LINE
    with pytest.raises(stoker.CorruptError, match=r"line 2, byte 13"):
        docs("x.jsonl", data)
    assert docs("x.jsonl", data, on_error="skip") == [b"a", b"", b"a"]


def test_a_surrogate_pair_is_text(docs):
    assert docs("x.jsonl", b'{"text": "\\ud83d\\ude00"}\n') == ["\U0001f600".encode()]
    # In another field it is not judged.
    line = b'{"text": "a", "more": "\\ud800", "n": 12345678901234567890}\n'
    assert docs("x.jsonl", line) == [b"a"]


def test_bad_documents_are_skipped_and_listed(tmp_path):
    (tmp_path / "x.jsonl").write_bytes(BAD)
    options = {"shuffle": "none", "tail": "keep", "output": "numpy", "on_error": "skip"}
    for rows, context in (("packed", 8), ("padded", 8), ("documents", None), ("windows", 1)):
        with stoker.TextLoader(
            tmp_path / "x.jsonl", ids, 1, context, rows=rows, labels=False, **options
        ) as loader:
            for _ in loader:
                pass
            stats = loader.stats()
            assert stats["bad_samples"] == 1
            (bad,) = loader.quarantine
            assert bad.shard.endswith("x.jsonl")
            assert (bad.key, bad.offset, bad.sample) == ("5", 52, 4)
            assert bad.name == "STOKER_ERROR_CORRUPT" and "JSONDecodeError" in bad.reason
            if rows == "windows":
                assert loader.rows == 6
    (tmp_path / "x.jsonl").write_bytes(LINE + b"1\n2\n3\n")
    with pytest.raises(stoker.LimitError, match="bad_samples_max=2"):
        texts_of(tmp_path / "x.jsonl", on_error="skip", bad_samples_max=2)
    with pytest.raises(stoker.ArgumentError, match="on_error"):
        texts_of(tmp_path / "x.jsonl", on_error="ignore")


def test_each_bad_document_counts_once(tmp_path, monkeypatch):
    """Also those that the list has no space for."""
    monkeypatch.setattr(text_files, "BAD_LISTED_MAX", 2)
    (tmp_path / "x.jsonl").write_bytes(LINE + b"1\n" * 5)
    options = {"rows": "documents", "labels": False, "tail": "keep", "output": "numpy"}
    with stoker.TextLoader(
        tmp_path / "x.jsonl", ids, 1, on_error="skip", bad_samples_max=5, **options
    ) as loader:
        for _ in range(3):
            for _ in loader:
                pass
            assert loader.stats()["bad_samples"] == 5
            assert len(loader.quarantine) == 2


def test_the_state_knows_whether_documents_are_skipped(tmp_path):
    (tmp_path / "x.jsonl").write_bytes(LINE * 8)
    options = {"context": 8, "labels": False}
    with stoker.TextLoader(tmp_path / "x.jsonl", ids, 2, **options) as loader:
        state = loader.state_dict()
    assert "on_error" not in state["text"]  # as in states of older versions
    with stoker.TextLoader(tmp_path / "x.jsonl", ids, 2, on_error="skip", **options) as loader:
        with pytest.raises(stoker.StateError, match="on_error: None in the state, 'skip' here"):
            loader.load_state_dict(state)
        state = loader.state_dict()
    with stoker.TextLoader(tmp_path / "x.jsonl", ids, 2, **options) as loader:
        with pytest.raises(stoker.StateError, match="on_error: 'skip' in the state, None here"):
            loader.load_state_dict(state)


def test_braces_globs_and_folders(tmp_path):
    for number in range(4):
        (tmp_path / f"part-{number}.jsonl").write_bytes(
            json.dumps({"text": str(number)}).encode() + b"\n"
        )
    assert texts_of(str(tmp_path / "part-{1..3}.jsonl")) == [b"1", b"2", b"3"]
    assert texts_of(str(tmp_path / "part-{3,0}.jsonl")) == [b"3", b"0"]
    assert texts_of(str(tmp_path / "part-[01].jsonl")) == [b"0", b"1"]
    with pytest.raises(stoker.ArgumentError, match="FOLDER/\\*.jsonl"):
        texts_of(tmp_path)
    with pytest.raises(stoker.EmptyError, match="part-9"):
        texts_of(str(tmp_path / "part-9*.jsonl"))
    for name in "ab":
        numpy.save(tmp_path / f"{name}.npy", numpy.arange(9, dtype="uint16"))
    assert len(stoker.Tokens(str(tmp_path / "{a,b}.npy"))) == 18
    (tmp_path / "x{1}.jsonl").write_bytes(LINE)  # a file with exactly that name
    assert texts_of(str(tmp_path / "x{1}.jsonl")) == [b"a"]


def test_text_and_tokens_in_a_store(tmp_path, monkeypatch):
    """Globs and braces of URLs, plain and compressed."""
    numpy.save(tmp_path / "a.npy", numpy.arange(9, dtype="uint16"))
    objects = {("data", f"x/part-{n}.jsonl"): LINE * (n + 1) for n in range(3)}
    objects["data", "x/part-0.jsonl.gz"] = gzip.compress(LINE * 5)
    for name in ("a.npy", "b.npy"):
        objects["data", f"t/{name}"] = (tmp_path / "a.npy").read_bytes()
    server = object_server.s3(objects, {"id": ("secret", "", float("inf"))})
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    try:
        with stoker.Engine(threads=1) as engine:
            assert len(texts_of("s3://data/x/part-*.jsonl", engine=engine)) == 6
            assert len(texts_of("s3://data/x/part-{1..2}.jsonl", engine=engine)) == 5
            assert len(texts_of("s3://data/x/*.gz", engine=engine)) == 5
            assert len(stoker.Tokens("s3://data/t/*.npy", engine=engine)) == 18
            with pytest.raises(stoker.EmptyError, match="t/z"):
                stoker.Tokens("s3://data/t/z*.npy", engine=engine)
    finally:
        server.close()


def test_wait_share(tmp_path):
    (tmp_path / "x.jsonl").write_bytes(LINE * 64)
    with stoker.TextLoader(tmp_path / "x.jsonl", ids, 2, 8, labels=False) as loader:
        count = sum(1 for _ in loader)
        stats = loader.stats()
    assert stats["batches"] == count == 32 and stats["samples"] == 64
    assert 0 < stats["wait_share"] <= 1
    assert stats["wait_seconds"] <= stats["run_seconds"] + 1e-9


def test_packed_batches_with_a_fixed_number_of_rows(tmp_path):
    """Rows that are not needed are padding; a batch that needs more is an error, or is cut."""
    import random

    r = random.Random(3)
    lengths = [r.randint(1, 20) for _ in range(64)]
    lines = [json.dumps({"text": "x" * length}) + "\n" for length in lengths]
    (tmp_path / "x.jsonl").write_text("".join(lines))
    options = {"shuffle": "none", "tail": "keep", "output": "numpy", "pad": 7, "seed": 1}

    def batches(**more):
        with stoker.TextLoader(tmp_path / "x.jsonl", ids, 8, 20, **options, **more) as loader:
            return list(loader), loader.stats()

    free, _ = batches()
    needed = max(len(batch["input_ids"]) for batch in free)
    fixed, stats = batches(batch_rows=needed)
    assert {batch["input_ids"].shape for batch in fixed} == {(needed, 20)}
    assert stats["left_out"] == 0
    for one, other in zip(free, fixed, strict=True):
        rows = len(one["input_ids"])
        assert (one["input_ids"] == other["input_ids"][:rows]).all()
        assert (one["labels"] == other["labels"][:rows]).all()
        assert (other["input_ids"][rows:] == 7).all() and (other["labels"][rows:] == -100).all()
        bounds = other["cu_seqlens"].tolist()
        assert bounds == sorted(set(bounds)) and bounds[-1] == needed * 20
    reported = f"{needed} rows are needed, a batch has {needed - 1}"
    with pytest.raises(stoker.LimitError, match=reported):
        batches(batch_rows=needed - 1)
    cut, stats = batches(batch_rows=needed - 1, on_error="skip")
    assert {batch["input_ids"].shape for batch in cut} == {(needed - 1, 20)}
    assert 0 < stats["left_out"] < 64
    tokens = sum(int((batch["input_ids"] == ord("x")).sum()) for batch in cut)
    assert tokens < sum(lengths)
    with pytest.raises(stoker.ArgumentError, match="batch_rows"):
        batches(rows="padded", batch_rows=4)
