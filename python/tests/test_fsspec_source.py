"""URLs that the library has no store for, through fsspec."""

import collections
import datetime
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import types
import zipfile

import make
import numpy as np
import pytest
import servers
import stoker
from stoker import fsspec_source

fsspec = pytest.importorskip("fsspec")


@pytest.mark.parametrize(("text", "want"), [("many", None), ("-1", None), ("900", 64), ("", 8)])
def test_threads(text, want):
    """A setting that is not a number is an error that names it."""
    script = "import stoker.fsspec_source as source; print(source.THREADS)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "STOKER_FSSPEC_THREADS": text},
        capture_output=True,
        text=True,
        timeout=120,
    )
    if want is None:
        assert "ArgumentError" in done.stderr and "STOKER_FSSPEC_THREADS" in done.stderr
    else:
        assert done.stdout == f"{want}\n", done.stderr


@pytest.fixture(scope="module")
def memory(shelf):
    """The files of the test, in fsspec's memory:// and in an archive."""
    system = fsspec.filesystem("memory")
    for path in sorted(shelf.rglob("*")):
        if path.is_file() and path.stat().st_size < 10_000_000:
            system.pipe_file(f"/shelf/{path.relative_to(shelf)}", path.read_bytes())
    yield system
    system.rm("/shelf", recursive=True)


@pytest.fixture(scope="module")
def archive(tmp_path_factory, shelf):
    path = tmp_path_factory.mktemp("zip") / "shelf.zip"
    with zipfile.ZipFile(path, "w") as file:
        for tar in sorted((shelf / "tars").glob("*.tar")):
            file.write(tar, f"tars/{tar.name}")
    return path


@pytest.fixture(scope="module")
def sftp(tmp_path_factory):
    pytest.importorskip("paramiko")
    try:
        server = servers.Sftp(tmp_path_factory.mktemp("sftp"))
    except servers.Absent as why:
        pytest.skip(str(why))
    fsspec.config.conf["sftp"] = {"key_filename": str(server.folder / "key"),
                                  "allow_agent": False, "look_for_keys": False}
    yield server
    del fsspec.config.conf["sftp"]
    server.close()


def samples(source, engine, state=None, stop=None, **options):
    """Keys and bytes of an epoch, and the loader's state then."""
    with make.loader(source, 7, seed=3, engine=engine, output="numpy", tail="keep",
                       fields={"key": "__key__", "bin": stoker.Bytes("bin")}, **options) as loader:
        if state is not None:
            loader.load_state_dict(state)
        found = []
        for number, batch in enumerate(loader):
            found += [(key, bytes(data)) for key, data in zip(batch["key"], batch["bin"])]
            if number + 1 == stop:
                break
        return found, loader.state_dict(), loader.stats()


def test_tars_as_from_files(memory, shelf, engine):
    want, reported, _ = samples(shelf / "tars", engine)
    found, state, stats = samples("memory://shelf/tars", engine)
    assert found == want and len(found) == 103
    assert state == reported  # identity and fingerprint too
    row = stats["fsspec"]["memory"]
    assert row["requests"] > 0 and row["lists"] > 0 and row["bytes"] > 100_000
    assert "slower" in stats["fsspec"]["note"]
    for source in ("memory://shelf/tars/train-*.tar", "memory://shelf/tars/train-{000..004}.tar",
                   [f"memory://shelf/tars/train-{n:03}.tar" for n in range(5)]):
        assert samples(source, engine)[0] == want
    # the state of the files continues in the URLs, and the reverse
    first, middle, _ = samples(shelf / "tars", engine, stop=6)
    assert first + samples("memory://shelf/tars", engine, middle)[0] == want
    first, middle, _ = samples("memory://shelf/tars", engine, stop=6)
    assert first + samples(shelf / "tars", engine, middle)[0] == want


def test_class_folders(memory, shelf, engine):
    def look(source):
        with make.loader(source, 8, seed=1, engine=engine, output="numpy",
                           image=[stoker.Resize((16, 16))]) as loader:
            return loader.classes, [(x.copy(), y.tolist()) for x, y in loader]

    classes, batches = look("memory://shelf/pictures")
    want, pictures = look(shelf / "pictures")
    assert classes == want == ["class 0", "class 1", "class 2"] and len(batches) == 3
    for (image, label), (right, reported) in zip(batches, pictures, strict=True):
        assert np.array_equal(image, right) and label == reported


def test_chains(memory, archive, shelf, engine):
    want = samples(shelf / "tars", engine)[0]
    memory.pipe_file("/shelf/a.zip", archive.read_bytes())
    for source in (f"zip://tars::file://{archive}", f"zip://tars/*.tar::{archive.as_uri()}",
                   "zip://tars::memory://shelf/a.zip", "simplecache::memory://shelf/tars/*.tar",
                   "zip://tars::simplecache::memory://shelf/a.zip"):
        assert samples(source, engine)[0] == want, source
    with pytest.raises(FileNotFoundError, match="zip::memory://shelf/a.zip!/none"):
        stoker.Dataset("zip://none::memory://shelf/a.zip", engine=engine)
    for url in ("zip://::wrong/a.zip", "zip://*::/nonexistent/a.zip"):  # ends in a local path
        with pytest.raises((stoker.Error, OSError), match="a.zip"):
            stoker.Dataset(url, engine=engine)
    assert len(stoker.Dataset(f"zip://tars::{archive}", engine=engine)) > 0


def test_index_and_tokens(memory, shelf, engine, tmp_path):
    path = tmp_path / "kept.index"
    stoker.index("memory://shelf/tars", out=path, engine=engine)
    found = samples("memory://shelf/tars", engine, index=path)[0]
    assert found == samples(shelf / "tars", engine)[0]
    np.save(tmp_path / "t.npy", np.arange(5000, dtype=np.uint16))
    memory.pipe_file("/shelf/t.npy", (tmp_path / "t.npy").read_bytes())

    def rows(source):
        with stoker.TokenLoader(source, 4, 32, shuffle="block", window=64,
                                engine=engine, output="numpy") as loader:
            return [[np.asarray(rows).tolist() for rows in batch] for batch in loader]

    assert rows("memory://shelf/t.npy") == rows(tmp_path / "t.npy") != []


def keys_of_workers(torch, source):
    import stoker.torch

    data = stoker.torch.IterableDataset(source, 5, fields={"key": "__key__"}, seed=2,
                                        shuffle="block", window=64, output="numpy")
    loader = torch.utils.data.DataLoader(data, batch_size=None, num_workers=2,
                                         multiprocessing_context="fork", timeout=120)
    return [list(batch["key"]) for batch in loader]


def test_workers(memory, shelf, torch):
    """A child of fork, after the threads of its parent were used, gets its own."""
    with stoker.Dataset("memory://shelf/tars") as dataset:
        assert len(dataset) == 103
    want = keys_of_workers(torch, shelf / "tars")
    assert keys_of_workers(torch, "memory://shelf/tars") == want != []


def test_sftp(sftp, shelf, engine, torch):
    want, reported, _ = samples(shelf / "tars", engine)
    found, state, stats = samples(f"{sftp.url}{shelf}/tars", engine)
    assert found == want and state == reported
    assert stats["fsspec"]["sftp"]["bytes"] > 100_000
    assert samples(f"{sftp.url}{shelf}/tars/train-00[0-4].tar", engine)[0] == want
    with make.loader(f"{sftp.url}{shelf}/pictures", 8, engine=engine, output="numpy",
                       image=[stoker.Resize((16, 16))]) as loader:
        assert len(loader.classes) == 3 and sum(len(labels) for _, labels in loader) == 24
    with pytest.raises(FileNotFoundError, match=r"sftp://.*/none\.tar"):
        stoker.Dataset(f"{sftp.url}{shelf}/none.tar", engine=engine)
    requested = keys_of_workers(torch, f"{sftp.url}{shelf}/tars")
    assert requested == keys_of_workers(torch, shelf / "tars")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # paramiko's
@pytest.mark.parametrize("waiting", [False, True])
def test_sftp_comes_again(sftp, engine, tmp_path, waiting):
    """All connections are cut, between reads or while a read waits: later reads use new
    connections."""
    for shard in "01":
        make.tar(tmp_path / f"{shard}.tar",
                 [(f"{shard}{name}.bin", os.urandom(600_000)) for name in "abcde"])
    with make.loader(f"{sftp.url}{tmp_path}", 1, engine=engine, output="numpy", shuffle="none",
                       fields={"key": "__key__", "bin": stoker.Bytes("bin")},
                       batches_ahead=1) as loader:
        stream = iter(loader)
        found = [next(stream)["key"][0]]
        children = [int(pid) for pid in os.listdir("/proc") if pid.isdigit()
                    and parent_of(pid) == sftp.process.pid]
        assert children
        if waiting:
            for pid in children:
                os.kill(pid, signal.SIGSTOP)
        reader = threading.Thread(
            target=lambda: found.extend(batch["key"][0] for batch in stream), daemon=True)
        reader.start()
        reader.join(0.5 if waiting else 0)
        for pid in children:
            os.kill(pid, signal.SIGKILL)
        reader.join(60)
    assert found == [shard + name for shard in "01" for name in "abcde"]


def test_a_file_that_is_replaced(monkeypatch):
    """Replaced by another file of the same size: a thread's open file is the old one, and is not
    read once the new one was seen. Also if so many files were looked at that the time is no longer
    known."""
    monkeypatch.setattr(fsspec_source, "_STAT_TIMES_MAX", 2)
    monkeypatch.setattr(fsspec_source, "_stat_times", collections.OrderedDict())
    system = fsspec.filesystem("memory")
    reported = "memory://replaced/x"
    reader, other = fsspec_source.Client(), fsspec_source.Client()
    for number in range(6):
        want = b"%04d" % number
        system.pipe_file("/replaced/x", want)
        assert other.run(fsspec_source._STAT, reported, 0, None)["bytes"] == 4
        for _ in range(3 * (number % 2)):
            system.pipe_file(f"/replaced/{_}", b"")
            other.run(fsspec_source._STAT, f"memory://replaced/{_}", 0, None)
        for _ in range(2):
            got = bytearray(4)
            assert reader.run(fsspec_source._READ, reported, 0, memoryview(got))["bytes"] == 4
            assert got == want
    assert len(fsspec_source._stat_times) <= 2
    system.rm("/replaced", recursive=True)


def test_times_as_file_systems_tell_them():
    when = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.timezone.utc)
    for reported in ({"mtime": when.timestamp()}, {"LastModified": when},
                     {"date_time": (2026, 1, 1, 12, 0, 0)}, {"modify": "20260101120000"},
                     {"modify": "20260101120000.250"},
                     {"modificationTime": int(when.timestamp() * 1000)}):
        assert fsspec_source.mtime_ns(reported) == int(when.timestamp()) * 10**9, reported
    for reported in ({}, {"modify": "Jan 01 12:00"}, {"modify": ""},
                 {"date_time": (2026, 0, 0, 0, 0, 0)}):
        assert fsspec_source.mtime_ns(reported) == 0, reported


class Ending(fsspec.AbstractFileSystem):
    """Local files. A file that is being read when it breaks ends there, as paramiko's may if its
    connection breaks."""

    protocol = "ending"
    breaks = 0

    def ls(self, path, detail=True, **_):
        names = [f"{path}/{name}" for name in os.listdir(path)]
        return [self.info(name) for name in names] if detail else names

    def info(self, path, **_):
        found = os.stat(path)
        kind = "directory" if os.path.isdir(path) else "file"
        return {"name": path, "size": found.st_size, "type": kind, "mtime": found.st_mtime}

    def _open(self, path, mode="rb", **_):
        file, dead = open(path, mode), []

        def read(size):
            if Ending.breaks:
                Ending.breaks -= 1
                dead.append(True)
                return file.read(100)
            return b"" if dead else file.read(size)

        return types.SimpleNamespace(seek=file.seek, close=file.close, read=read)


def test_a_connection_that_ends_like_a_file(engine, tmp_path):
    """A short read is repeated once, with a new connection; if it is short again, it is an
    error."""
    fsspec.register_implementation("ending", Ending, clobber=True)
    path, body = tmp_path / "0.tar", os.urandom(60_000)
    make.tar(path, [("a.bin", body), ("b.bin", body)])
    with stoker.Dataset(f"ending://{tmp_path}", engine=engine) as dataset:
        fields = {"bin": stoker.Bytes("bin")}
        Ending.breaks = 1  # before it reads ahead
        with make.loader(dataset, 1, output="numpy", shuffle="none", fields=fields) as loader:
            assert [bytes(batch["bin"][0]) for batch in loader] == [body, body]
            assert Ending.breaks == 0
        os.truncate(path, 70_000)
        with make.loader(dataset, 1, output="numpy", shuffle="none", fields=fields) as loader:
            with pytest.raises(stoker.ChangedError, match="shorter"):
                list(loader)


def parent_of(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def test_passwords_are_not_shown(engine, monkeypatch, caplog):
    """Connection refused: the error names the host, and no password."""
    monkeypatch.setattr(fsspec_source, "_check_installed", lambda reported: None)
    port = servers.free_port()
    with pytest.raises(stoker.Error) as info:
        stoker.Dataset(f"ftp://user:canary0secret@127.0.0.1:{port}/d", engine=engine)
    shown = str(info.value) + repr(info.value) + caplog.text
    assert f"ftp://user@127.0.0.1:{port}/d" in shown and "canary" not in shown
    requested = fsspec_source._resolve(f"ftp://user@127.0.0.1:{port}/d/x")
    assert requested == f"ftp://user:canary0secret@127.0.0.1:{port}/d/x"


def test_missing_files(engine, monkeypatch):
    with pytest.raises(stoker.UnsupportedError, match="neither the library nor fsspec knows"):
        stoker.Dataset("nosuch://host/d", engine=engine)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "smbprotocol", None)
        patch.setitem(sys.modules, "smbclient", None)
        with pytest.raises(stoker.UnsupportedError, match="pip install smbprotocol"):
            stoker.Dataset("smb://host/d", engine=engine)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "fsspec.registry", None)
        with pytest.raises(stoker.UnsupportedError, match="pip install fsspec"):
            make.loader("sftp://host/d", 1, engine=engine)
    with pytest.raises(stoker.ArgumentError, match="begins with a store"):
        stoker.Dataset("s3://bucket/a.zip::simplecache::memory://x", engine=engine)


class Odd(fsspec.AbstractFileSystem):
    """A file of zeros that is shorter than its size, or never answers."""

    protocol = "odd"
    go, cachable = threading.Event(), False

    def info(self, path, **_):
        return {"name": path, "type": "file", "size": 10240, "mtime": datetime.datetime.now()}

    def _open(self, path, mode="rb", **_):
        if "hangs" in path:
            self.go.wait(60)
        import io

        return io.BytesIO(b"\0" * 600)


@pytest.fixture
def odd():
    fsspec.register_implementation("odd", Odd, clobber=True)
    Odd.go.clear()
    yield
    Odd.go.set()


def test_shorter_than_its_content_length(odd, engine):
    with pytest.raises(stoker.Error, match="shorter|too early") as info:
        stoker.Dataset("odd://x/short.tar", engine=engine)
    assert "odd://x/short.tar" in str(info.value)


def test_deadline(odd):
    """A thread that hangs is abandoned, and so is its request."""
    with stoker.Engine(threads=1, memory="64MiB", read_timeout=0.3) as engine:
        with pytest.raises(stoker.TimeoutError, match="odd://x/hangs.tar"):
            stoker.Dataset("odd://x/hangs.tar", engine=engine)
    gc.collect()
    Odd.go.set()
    until = time.monotonic() + 60
    while any(thread.name.startswith("stoker-fsspec") and not thread.is_alive()
              for thread in threading.enumerate()) and time.monotonic() < until:
        time.sleep(0.01)
    system = fsspec.filesystem("memory")
    system.pipe_file("/after/a.txt", b"x")  # they still work
    with stoker.Engine(threads=1, memory="64MiB") as engine:
        with pytest.raises(stoker.Error):
            stoker.Dataset("memory://after/none.tar", engine=engine)


def test_names(engine):
    """A string that is not a URL is still a path."""
    for path in (b"a/b", b"/x/y", b"c:d", b"s3://b/k", b"HTTP://h/p", b"file:///x", b"a::b", b"x:"):
        assert fsspec_source.native(path) == path
    assert fsspec_source.native(b"zip://in::memory://a.zip") == b"zip::memory://a.zip!/in"
    assert fsspec_source.native(b"zip::memory://a.zip!/in") == b"zip::memory://a.zip!/in"
    assert fsspec_source._resolve("zip::memory://a.zip!/in/b") == "zip://in/b::memory://a.zip"
    assert fsspec_source._resolve("zip::memory://a.zip!") == "zip://::memory://a.zip"
    requested = fsspec_source._resolve("simplecache::zip::memory://a.zip!/in/b")
    assert requested == "simplecache::zip://in/b::memory://a.zip"


def test_a_file_of_memory_is_read_by_one_thread_at_a_time(memory):
    """fsspec's memory:// opens one object for all, with one place to read at."""
    data = np.arange(1 << 18, dtype="<u4").tobytes()
    memory.pipe_file("/shelf/numbers", data)
    wrong = []

    def read(seed):
        random, client = np.random.default_rng(seed), fsspec_source.Client()
        for _ in range(400):
            offset = int(random.integers(0, len(data) - 4096))
            buffer = bytearray(4096)
            answer = client.run(
                fsspec_source._READ, "memory://shelf/numbers", offset, memoryview(buffer))
            if answer != {"status": 0, "bytes": 4096} or buffer != data[offset : offset + 4096]:
                wrong.append((offset, answer))

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(8)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not wrong
