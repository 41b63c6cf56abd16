"""stoker as an fsspec file system: it returns what boto3 wrote, by every method; the engine's
ledger counts the requests."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
import pathlib
import pickle
import subprocess
import sys
import tomllib

import numpy as np
import pytest
import stoker

fsspec = pytest.importorskip("fsspec")
LARGE = 23_456_789
FILES = {"plain": 1000, "empty": 0, "sub/ü +%41.bin": 70_000, "sub/deep/large": LARGE,
         "sub/text": 0}
TEXT = "".join(f"line {number} ä\n" for number in range(20_000)).encode()
WAIT = 120
CHILD = """
import fsspec, sys
assert "stoker" not in sys.modules
assert fsspec.open("stoker://s3/files/plain").open().read() == fsspec.get_filesystem_class(
    "stoker")().cat("stoker://s3/files/plain")
import stoker.fsspec_filesystem
assert fsspec.get_filesystem_class("stoker") is stoker.fsspec_filesystem.StokerFileSystem
"""


@pytest.fixture(scope="module")
def data(ceph_server):
    random = np.random.default_rng(7)
    made = {name: random.integers(0, 256, size, np.uint8).tobytes()
            for name, size in FILES.items()} | {"sub/text": TEXT}
    client = ceph_server.client()
    client.create_bucket(Bucket="files")
    for name, value in made.items():
        client.put_object(Bucket="files", Key=name, Body=value)
    return made


@pytest.fixture
def fs(ceph, data, engine):
    from stoker.fsspec_filesystem import StokerFileSystem

    fsspec.register_implementation("stoker", StokerFileSystem, clobber=True)
    return StokerFileSystem(engine=engine, skip_instance_cache=True)


def test_found_by_its_name(ceph, data, tmp_path):
    """By the entry point that the package declares, in a process that imports nothing else."""
    project = pathlib.Path(__file__).parents[2] / "pyproject.toml"
    points = tomllib.loads(project.read_text())["project"]["entry-points"]["fsspec.specs"]
    about = tmp_path / "stoker-0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: stoker\nVersion: 0\n")
    (about / "entry_points.txt").write_text(
        "[fsspec.specs]\n" + "".join(f"{name} = {value}\n" for name, value in points.items()))
    path = os.pathsep.join([str(tmp_path), *sys.path])
    subprocess.run([sys.executable, "-c", CHILD], check=True, timeout=WAIT,
                   env={**os.environ, "PYTHONPATH": path})
    code = ("import stoker, sys; "
            "assert not {'fsspec', 'stoker.fsspec_filesystem'} & set(sys.modules)")
    subprocess.run([sys.executable, "-c", code], check=True, timeout=WAIT,
                   env={**os.environ, "PYTHONPATH": path})


def test_find_and_info(fs, data, nginx, shelf):
    root = "stoker://s3/files"
    assert fs.find(root) == sorted(f"s3/files/{name}" for name in data)
    found = fs.find(f"{root}/sub/", detail=True)
    assert {name: entry["size"] for name, entry in found.items()} == {
        f"s3/files/{name}": len(value) for name, value in data.items() if name.startswith("sub/")}
    assert fs.find(f"{root}/plain") == ["s3/files/plain"]
    assert fs.find(f"{root}/none") == []
    assert fs.find(root, maxdepth=1) == ["s3/files/empty", "s3/files/plain"]
    assert fs.find(f"{root}/sub", withdirs=True) == [
        "s3/files/sub", "s3/files/sub/deep", "s3/files/sub/deep/large", "s3/files/sub/text",
        "s3/files/sub/ü +%41.bin"]
    assert fs.ls(root, detail=False) == ["s3/files/empty", "s3/files/plain", "s3/files/sub"]
    assert [entry["type"] for entry in fs.ls(root)] == ["file", "file", "directory"]
    assert fs.ls(f"{root}/plain", detail=False) == ["s3/files/plain"]
    assert fs.glob(f"{root}/s*/*e*") == ["s3/files/sub/deep", "s3/files/sub/text"]
    assert fs.glob(f"{root}/**/large") == ["s3/files/sub/deep/large"]
    assert fs.info(f"{root}/plain")["size"] == 1000 and fs.isdir(f"{root}/sub")
    assert fs.exists(f"{root}/plain") and not fs.exists(f"{root}/plai") and not fs.exists(
        "stoker://s3/no-such-bucket/x")
    assert fs.du(root) == sum(map(len, data.values()))
    assert fs.modified(f"{root}/plain").year >= 2026
    for missing in (lambda: fs.ls(f"{root}/none"), lambda: fs.info(f"{root}/none"),
                    lambda: fs.cat(f"{root}/none"), lambda: fs.open(f"{root}/none")):
        with pytest.raises(FileNotFoundError, match="none"):
            missing()
    path = f"stoker://{nginx.url.replace('://', '/')}/tars/train-000.tar"
    assert fs.cat(path) == (shelf / "tars/train-000.tar").read_bytes()
    with pytest.raises(stoker.Error):
        fs.ls(path.rpartition("/")[0])
    for wrong in ("stoker://ftp/x", "stoker://s3", "stoker:///x"):
        with pytest.raises(stoker.ArgumentError, match="STORE"):
            fs.cat_file(wrong)


def requested(engine):
    """Requests of the store; a request that was repeated because it was slow counts once."""
    ledger = engine.store_stats()
    return ledger["s3"]["requests"] - ledger["manners"]["hedges"]


def test_reads(fs, data, engine):
    root = "stoker://s3/files/"
    assert fs.cat(root, recursive=True) == {
        f"s3/files/{name}": value for name, value in data.items()}
    assert fs.cat([root + "plain", root + "sub/text"], start=-5) == {
        "s3/files/plain": data["plain"][-5:], "s3/files/sub/text": TEXT[-5:]}
    assert fs.cat_file(root + "sub/deep/large", 10, -10) == data["sub/deep/large"][10:-10]
    assert fs.head(root + "plain", 7) == data["plain"][:7]
    names = ["plain", "none", "sub/text", "empty", "plain"]
    found = fs.cat_ranges([root + name for name in names], [1, 0, None, 0, 990],
                          [5, 4, 3, 8, 2000])
    assert found[0] == data["plain"][1:5] and found[2:] == [TEXT[:3], b"", data["plain"][990:]]
    assert isinstance(found[1], FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges([root + "plain", root + "none"], 0, 3, on_error="raise")
    large = data["sub/deep/large"]
    begins = list(range(0, LARGE, 50_000))
    for gap, most in ((None, 10), (0, len(begins) + 1)):
        before = requested(engine)
        assert fs.cat_ranges([root + "sub/deep/large"] * len(begins), begins,
                             [begin + 2000 for begin in begins], max_gap=gap) == [
            large[begin:begin + 2000] for begin in begins]
        assert requested(engine) - before <= most


def test_a_changed_object_is_read_anew(fs, ceph, engine):
    """The cached metadata of the old object does no harm."""
    client = ceph.client()
    for body in (b"first", b"the second"):
        client.put_object(Bucket="files", Key="changing", Body=body)
        assert fs.cat("stoker://s3/files/changing") in (body, body[:5])
    client.delete_object(Bucket="files", Key="changing")


@pytest.mark.parametrize("way", ["order", "lines", "back", "random"])
def test_open_files(fs, data, way):
    large, random = data["sub/deep/large"], np.random.default_rng(11)
    with fs.open("stoker://s3/files/sub/deep/large") as file:
        assert file.size == LARGE and file.seekable() and file.readable()
        if way == "order":
            sizes = iter(random.integers(1, 600_000, 10_000).tolist())
            parts = list(iter(lambda: file.read(next(sizes)), b""))
            assert b"".join(parts) == large
        elif way == "lines":
            assert b"".join(file) == large
        elif way == "back":
            for at in range(LARGE - 1000, 0, -3_000_000):
                file.seek(at)
                assert file.read(1000) == large[at:at + 1000]
        else:
            for _ in range(60):
                at, size = int(random.integers(0, LARGE)), int(random.integers(0, 400_000))
                file.seek(at)
                assert file.read(size) == large[at:at + size]
    with pytest.raises(ValueError):
        file.read(1)


def test_reading_ahead(fs, data, engine):
    """In order many small reads are few requests; out of order no more is fetched than needed."""
    fs.exists("stoker://s3/files/sub/deep/large")
    before = engine.store_stats()["s3"]
    with fs.open("stoker://s3/files/sub/deep/large") as file:
        while file.read(10_000):
            pass
    after = engine.store_stats()["s3"]
    assert after["requests"] - before["requests"] < 25
    assert after["bytes"] - before["bytes"] < LARGE * 1.01
    with fs.open("stoker://s3/files/sub/deep/large") as file:
        for at in range(20_000_000, 0, -2_000_000):
            file.seek(at)
            file.read(300_000)
    assert engine.store_stats()["s3"]["bytes"] - after["bytes"] <= 10 * 300_000 + 1000


def test_text_and_lines(fs):
    with fs.open("stoker://s3/files/sub/text", "r", encoding="utf-8") as file:
        assert file.read().encode() == TEXT
    with fs.open("stoker://s3/files/sub/text", "rt", encoding="utf-8") as file:
        assert [line for line in file] == TEXT.decode().splitlines(keepends=True)


def test_writes(fs, ceph, data, tmp_path):
    root, client = "stoker://s3/files/w", ceph.client()

    def get(name):
        return client.get_object(Bucket="files", Key=f"w/{name}")["Body"].read()

    large = data["sub/deep/large"]
    with fs.open(f"{root}/large", "wb") as file:
        for at in range(0, LARGE, 1_000_000):
            file.write(large[at:at + 1_000_000])
        assert not fs.exists(f"{root}/large")  # no name holds half an object
    assert get("large") == large
    with fs.open(f"{root}/text", "w", encoding="utf-8") as file:
        file.write("ä\n")
    assert get("text") == "ä\n".encode()
    fs.pipe({f"{root}/1": b"one", f"{root}/2": b"", f"{root}/1b": b"x"})
    assert get("1") == b"one" and get("2") == b""
    fs.pipe(f"{root}/1", b"uno")
    assert fs.cat(f"{root}/1") == b"uno" == get("1")
    with pytest.raises(FileExistsError):
        fs.pipe(f"{root}/1", b"another", mode="create")
    assert get("1") == b"uno"
    with pytest.raises(ZeroDivisionError), fs.open(f"{root}/half", "wb") as file:
        file.write(large)
        1 / 0
    assert not fs.exists(f"{root}/half")
    left = fs.open(f"{root}/half", "wb")
    left.write(large)
    del left  # was never closed
    assert not fs.exists(f"{root}/half")
    with pytest.raises(stoker.UnsupportedError):
        fs.open(f"{root}/1", "ab")
    with fs.transaction:
        with fs.open(f"{root}/later", "wb") as file:
            file.write(b"later")
        assert not fs.exists(f"{root}/later")
    assert get("later") == b"later"
    (tmp_path / "up/sub").mkdir(parents=True)
    (tmp_path / "up/a").write_bytes(b"a" * 100)
    (tmp_path / "up/sub/b").write_bytes(large)
    fs.put(str(tmp_path / "up"), f"{root}/up", recursive=True)
    assert get("up/a") == b"a" * 100 and get("up/sub/b") == large
    fs.get(f"{root}/up", str(tmp_path / "down"), recursive=True)
    assert (tmp_path / "down/sub/b").read_bytes() == large
    fs.cp(f"{root}/up/sub/b", f"{root}/copied")
    fs.mv(f"{root}/copied", f"{root}/moved")
    assert get("moved") == large and not fs.exists(f"{root}/copied")
    fs.rm(f"{root}/1")
    assert not fs.exists(f"{root}/1") and fs.exists(f"{root}/1b")
    with pytest.raises(FileNotFoundError):
        fs.rm(f"{root}/1")
    fs.rm([f"{root}/2", f"{root}/1b"])
    fs.rm(root, recursive=True)
    assert fs.find(root) == [] and set(fs.find("stoker://s3/files")) >= {
        f"s3/files/{name}" for name in data}


def test_threads(fs, data):
    """One file system, and one open file, of many threads."""
    large = data["sub/deep/large"]
    shared = fs.open("stoker://s3/files/sub/deep/large")
    random = np.random.default_rng(4)
    begins = random.integers(0, LARGE - 5000, 60).tolist()

    def read(begin):
        with fs.open("stoker://s3/files/sub/deep/large") as file:
            file.seek(begin)
            own = file.read(5000)
        return own, fs.cat_file("s3/files/sub/deep/large", begin, begin + 5000), \
            shared.cache._fetch(begin, begin + 5000)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for begin, found in zip(begins, pool.map(read, begins)):
            assert set(found) == {large[begin:begin + 5000]}


def in_child(fs, file, out):
    out.put((fs.cat("stoker://s3/files/plain"), file.read(3_000_000), file.tell()))


def test_forks(ceph, data):
    """A child continues to read at its parent's file position; the parent's file continues, too."""
    from stoker.fsspec_filesystem import StokerFileSystem

    fs, large = StokerFileSystem(), data["sub/deep/large"]
    context = multiprocessing.get_context("fork")
    with fs.open("stoker://s3/files/sub/deep/large") as file:
        for _ in range(5):  # in order: some of it is on its way
            file.read(100_000)
        out = context.SimpleQueue()
        child = context.Process(target=in_child, args=(fs, file, out))
        child.start()
        assert out.get() == (data["plain"], large[500_000:3_500_000], 3_500_000)
        child.join(WAIT)
        assert child.exitcode == 0 and file.read() == large[500_000:]


def test_pickles(fs, data):
    again = pickle.loads(pickle.dumps(fs))
    assert again.cat("stoker://s3/files/plain") == data["plain"] and again.gap == fs.gap
    with fs.open("stoker://s3/files/sub/deep/large") as file:
        file.seek(1_000_000)
        sent = pickle.loads(pickle.dumps(file))
        assert sent.read(5) == file.read(5) == data["sub/deep/large"][1_000_000:1_000_005]
    opened = pickle.loads(pickle.dumps(fsspec.open("stoker://s3/files/plain")))
    with opened as file:
        assert file.read() == data["plain"]
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        assert pool.apply(read_there, (fs,)) == data["plain"]


def read_there(fs):
    return fs.cat("stoker://s3/files/plain")


def test_parquet(fs, ceph, engine, tmp_path):
    """pyarrow reads and writes tables; of a table with many columns only the requested ones are
    read."""
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    random = np.random.default_rng(2)
    table = arrow.table({f"c{i}": random.random(200_000) for i in range(10)})
    parquet.write_table(table, "files/p/x.parquet", row_group_size=50_000,
                        filesystem=arrow.fs.PyFileSystem(arrow.fs.FSSpecHandler(Below(fs))))
    with fs.open("stoker://s3/files/p/y.parquet", "wb") as file:
        parquet.write_table(table, file, row_group_size=50_000)
    for name in "xy":
        with fs.open(f"stoker://s3/files/p/{name}.parquet") as file:
            assert parquet.read_table(file).equals(table)
    before = engine.store_stats()["s3"]["bytes"]
    found = parquet.read_table("stoker://s3/files/p/x.parquet", columns=["c3"], filesystem=fs)
    assert found.equals(table.select(["c3"]))
    assert engine.store_stats()["s3"]["bytes"] - before < 0.25 * table.nbytes
    dataset = pytest.importorskip("pyarrow.dataset")
    both = dataset.dataset("s3/files/p", filesystem=fs, format="parquet")
    assert both.count_rows() == 400_000
    fs.rm("stoker://s3/files/p", recursive=True)


def test_pandas(fs):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": np.arange(1000), "b": np.arange(1000) / 7})
    frame.to_csv("stoker://s3/files/p.csv", index=False)
    assert pandas.read_csv("stoker://s3/files/p.csv")["a"].tolist() == list(range(1000))
    pytest.importorskip("pyarrow")
    frame.to_parquet("stoker://s3/files/p.parquet")
    again = pandas.read_parquet("stoker://s3/files/p.parquet", columns=["b"])
    assert again["b"].tolist() == frame["b"].tolist()
    fs.rm(["stoker://s3/files/p.csv", "stoker://s3/files/p.parquet"])


def Below(fs):
    """The file system below stoker://s3/."""
    from fsspec.implementations.dirfs import DirFileSystem

    return DirFileSystem("s3", fs)


def test_beside_s3fs(fs, ceph, data):
    s3fs = pytest.importorskip("s3fs")
    other = s3fs.S3FileSystem(endpoint_url=ceph.url)
    for name in data:
        assert other.cat(f"files/{name}") == fs.cat(f"stoker://s3/files/{name}")
    assert [f"s3/{name}" for name in other.find("files")] == fs.find("stoker://s3/files")
    fs.pipe("stoker://s3/files/by/stoker", b"12345")
    other.invalidate_cache()
    assert other.cat("files/by/stoker") == b"12345"
    fs.rm("stoker://s3/files/by/stoker")
