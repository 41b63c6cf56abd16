"""stoker.cp, sync, rm, ls, stat and cat of URLs that only fsspec supports.

Goal: they keep the guarantees of the library's own stores: complete files under their names or
none, nothing removed that was not named, an end at Ctrl-C. Method: OpenSSH's server, fsspec's own
memory and zip, and file systems that fail, hang or lack what fsspec lets them lack."""

from __future__ import annotations

import os
import subprocess
import threading
import time
import traceback
import zipfile

import make
import pytest
import servers
import stoker
from stoker import fsspec_source
from test_cli import COMMAND
from test_copy import below
from test_copy_between_stores import world  # noqa: F401
from test_providers import clean  # noqa: F401
from test_fsspec_source import sftp  # noqa: F401

fsspec = pytest.importorskip("fsspec")

ODD = ["what?#+%41&=.bin", "ü [0] {1}*", "end!", "in!/side", "a/b/c"]
FILES = {"plain": 1000, "empty": 0, "large": 6_000_001, **dict.fromkeys(ODD, 11)}
WAIT_S = 60


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    return make.tree(tmp_path_factory.mktemp("tree"), FILES)


@pytest.fixture
def memory():
    system = fsspec.filesystem("memory")
    system.store.clear()
    system.pseudo_dirs[:] = [""]
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]


def held(memory, root):
    """The files below a folder of memory://, hidden ones too."""
    return {name.removeprefix(f"{root}/"): memory.cat_file(name) for name in memory.find(root)}


@pytest.fixture(params=["memory", "sftp"])
def place(request, tmp_path):
    """A URL, and the path below it."""
    if request.param == "memory":
        system = request.getfixturevalue("memory")
        return "memory://far", lambda: held(system, "/far")
    server = request.getfixturevalue("sftp")
    # Each has to log in.
    request.getfixturevalue("monkeypatch").setattr(fsspec_source, "THREADS", 2)
    return f"{server.url}{tmp_path}/far", lambda: below(tmp_path / "far")


def test_there_and_back(place, tree, tmp_path, engine):
    url, there = place
    seen = []
    report = stoker.cp(tree, url, recursive=True, progress=seen.append, engine=engine)
    assert there() == below(tree)
    assert report == seen[-1] and report.listed and report.files == report.files_done == len(FILES)
    assert report.bytes == report.bytes_done == sum(FILES.values()) and report.seconds > 0
    found = {item.name: item for item in stoker.ls(url, recursive=True, engine=engine)}
    assert {name: item.bytes for name, item in found.items()} == FILES
    flat = {item.name: item.kind for item in stoker.ls(f"{url}/", engine=engine)}
    folders = {name.partition("/")[0] for name in FILES if "/" in name}
    assert flat == {name.partition("/")[0]: "folder" if name.partition("/")[0] in folders
                    else "file" for name in FILES}
    for name, data in below(tree).items():
        item = stoker.stat(f"{url}/{name}", engine=engine)
        assert item == found[name]._replace(name=f"{url}/{name}") and item.modified
        assert stoker.cat(f"{url}/{name}", 3, -2, engine=engine) == data[3:-2]
    assert next(stoker.ls(f"{url}/plain", engine=engine)).name == ""

    for name in FILES:  # a file that changed in the second before its copy is copied again
        if (tmp_path / "far" / name).exists():
            os.utime(tmp_path / "far" / name, (1.6e9, 1.6e9))
    report = stoker.sync(url, tmp_path / "back", part_bytes="5MiB", engine=engine)
    assert report.files_done == len(FILES)
    assert below(tmp_path / "back") == below(tree)
    assert stoker.sync(url, tmp_path / "back", engine=engine).files_kept == len(FILES)
    # Equal files are kept, others are copied again, and extra files are removed if the option
    # allows it.
    (tmp_path / "back/plain").write_bytes(b"another")
    (tmp_path / "back/empty").unlink()
    for name in below(tmp_path / "back"):
        os.utime(tmp_path / "back" / name, (1e9, 1e9))
    report = stoker.sync(tmp_path / "back", url, engine=engine)
    assert (report.files_kept, report.files_removed) == (len(FILES) - 2, 0)
    assert there() == {**below(tree), "plain": b"another"}
    report = stoker.sync(tmp_path / "back", url, delete=True, engine=engine)
    assert (report.files_kept, report.files_removed) == (len(FILES) - 1, 1)
    assert there() == below(tmp_path / "back")

    assert stoker.rm(f"{url}/plain", engine=engine).files_removed == 1
    with pytest.raises(OSError, match="recursive"):
        stoker.rm(url, engine=engine)
    assert stoker.rm(url, recursive=True, engine=engine).files_removed == len(FILES) - 2
    assert there() == {}
    for gone in (url, f"{url}/large"):
        with pytest.raises(FileNotFoundError):
            stoker.stat(gone, engine=engine)
        with pytest.raises(FileNotFoundError):
            stoker.rm(gone, recursive=True, engine=engine)


def test_to_stores_and_archives(world, memory, tree, tmp_path):  # noqa: F811
    with stoker.Engine(threads=2) as engine:
        stoker.cp(tree, "s3://data/t/", recursive=True, engine=engine)
        stoker.cp("s3://data/t/", "memory://far/", recursive=True, engine=engine)
        assert held(memory, "/far") == below(tree)
        stoker.sync("memory://far", "gs://data/u", engine=engine)
        assert world.below("gs", "u/") == below(tree)
        with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
            for name in FILES:
                file.write(tree / name, f"in/{name}")
        stoker.cp(f"zip://in::file://{tmp_path}/a.zip", "memory://z", recursive=True,
                  engine=engine)
        assert held(memory, "/z") == below(tree)
        assert stoker.cat(f"zip://in/plain::file://{tmp_path}/a.zip") == below(tree)["plain"]
        # Keys that would lead out of where they are copied to.
        world.put("s3", "v/a/../../evil", b"evil")
        world.put("s3", "v/good", b"good")
        with pytest.raises(stoker.ArgumentError, match="evil"):
            stoker.cp("s3://data/v/", "memory://far/v", recursive=True, engine=engine)
        assert held(memory, "/far/v") == {"good": b"good"} and not memory.exists("/far/evil")


def test_patterns(world, memory):  # noqa: F811
    for base in ("memory://data/x", "s3://data/x"):
        for name in ("a0", "a1", "b/a2", "c[0]", "c0"):
            world.put("s3", f"x/{name}", name.encode())
            memory.pipe_file(f"/data/x/{name}", name.encode())
        with stoker.Engine(threads=2) as engine:
            def names(pattern, base=base, engine=engine, **options):
                listed = stoker.ls(f"{base}/{pattern}", engine=engine, **options)
                return sorted(item.name.removeprefix(base) for item in listed)

            assert names("a?") == names("a{0..1}") == ["/a0", "/a1"]
            assert names("[ab]*") == ["/a0", "/a1", "/b/a2"]
            assert names("{b,a0}", recursive=True) == ["/a0", "/b/a2"]
            assert names("c[0]") == [""]  # there is one of this name
            assert stoker.cat(f"{base}/c[0]", engine=engine) == b"c[0]"
            assert stoker.cat(f"{base}/*/a?", engine=engine) == b"b/a2"
            assert stoker.stat(f"{base}/*/a?", engine=engine).name == f"{base}/b/a2"
            for one in (stoker.cat, stoker.stat):
                with pytest.raises(stoker.ArgumentError, match="2 names match"):
                    one(f"{base}/a?", engine=engine)
                with pytest.raises(FileNotFoundError, match="none"):
                    one(f"{base}/none*", engine=engine)
            with pytest.raises(FileNotFoundError, match="none"):
                names("none*")
            assert stoker.cp(f"{base}/a?", "memory://to/", engine=engine).files_done == 2
    assert held(memory, "/to") == {"a0": b"a0", "a1": b"a1"}
    with pytest.raises(stoker.ArgumentError, match="recursive"):
        stoker.rm("memory://data/x/a?")
    assert stoker.rm("memory://data/x/a?", recursive=True).files_removed == 2
    assert set(held(memory, "/data/x")) == {"b/a2", "c[0]", "c0"}


# ---- files that must not be lost ----


def test_links_are_never_followed(sftp, tmp_path, engine):  # noqa: F811
    (tmp_path / "out").mkdir()
    (tmp_path / "out/kept").write_bytes(b"kept")
    (tmp_path / "in/sub").mkdir(parents=True)
    (tmp_path / "in/sub/file").write_bytes(b"file")
    (tmp_path / "in/circle").symlink_to(".")
    (tmp_path / "in/folder").symlink_to(tmp_path / "out")
    (tmp_path / "in/link").symlink_to(tmp_path / "out/kept")
    url = f"{sftp.url}{tmp_path}"
    assert sorted(item.name for item in stoker.ls(f"{url}/in", recursive=True,
                                                  engine=engine)) == ["link", "sub/file"]
    report = stoker.cp(f"{url}/in", tmp_path / "copy", recursive=True, engine=engine)
    assert below(tmp_path / "copy") == {"sub/file": b"file", "link": b"kept"}
    assert report.links_left_out == 2
    assert stoker.rm(f"{url}/in", recursive=True, engine=engine).files_removed == 4
    assert not (tmp_path / "in").exists() and below(tmp_path / "out") == {"kept": b"kept"}


def test_rm_of_a_link_removes_the_link(sftp, tmp_path, engine):  # noqa: F811
    (tmp_path / "out").mkdir()
    (tmp_path / "out/kept").write_bytes(b"kept")
    for name, target in (("folder", "out"), ("file", "out/kept"), ("gone", "none")):
        (tmp_path / name).symlink_to(target)
        assert stoker.rm(f"{sftp.url}{tmp_path}/{name}", recursive=True,
                         engine=engine).files_removed == 1
        assert not os.path.lexists(tmp_path / name)
    (tmp_path / "folder").symlink_to("out")
    with pytest.raises(OSError, match="symbolic link"):
        stoker.rm(f"{sftp.url}{tmp_path}/folder/", recursive=True, engine=engine)
    stoker.rm(f"{sftp.url}{tmp_path}/fold*", recursive=True, engine=engine)
    assert below(tmp_path / "out") == {"kept": b"kept"}


def test_sync_removes_nothing_in_doubt(memory, tree, tmp_path, engine):
    def put():
        for name in ("a", "sub/b", "sub/deep/c"):
            memory.pipe_file(f"/far/{name}", name.encode())

    put()
    want = held(memory, "/far")
    (tmp_path / "empty").mkdir()
    for source, to, why in [
        (tmp_path / "empty", "memory://far", "empty"),
        (tmp_path / "none", "memory://far", "none"),
        ("memory://far/sub", "memory://far", "would be removed"),
        ("memory://far/sub/../sub", "memory://far/", "would be removed"),
        ("memory://far", "memory://far/sub", "is inside the source"),
        (tree / "plain", "memory://far", "is a file"),
        (tree, "memory://far/a", "destination is a file"),
    ]:
        with pytest.raises(stoker.Error, match=why):
            stoker.sync(source, to, delete=True, engine=engine)
        assert held(memory, "/far") == want
    # One fails: nothing is removed, and the rest is there.
    source = tmp_path / "source"
    source.mkdir()
    (source / "x").write_bytes(b"x")
    (source / "sub").write_bytes(b"a folder has this name")
    with pytest.raises(stoker.Error, match="folder has this name"):
        stoker.sync(source, "memory://far", delete=True, engine=engine)
    assert held(memory, "/far") == {**want, "x": b"x"}


def test_sync_keeps_names_that_are_links_in_the_source(memory, tmp_path, engine):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a").write_bytes(b"a")
    (tmp_path / "in/out").symlink_to("/etc")
    for name in ("a", "out/kept", "out2/gone"):
        memory.pipe_file(f"/far/{name}", b"far")
    report = stoker.sync(tmp_path / "in", "memory://far", delete=True, engine=engine)
    assert (report.links_left_out, report.files_spared, report.files_removed) == (1, 1, 1)
    assert held(memory, "/far") == {"a": b"a", "out/kept": b"far"}


class Broken(fsspec.AbstractFileSystem):
    """memory://, with methods that a test replaces."""

    protocol = "broken"
    cachable = False
    behind = fsspec.filesystem("memory")

    @classmethod
    def _strip_protocol(cls, path):
        return "/" + path.removeprefix("broken://").strip("/")

    def __getattribute__(self, name):
        if name in ("info", "ls", "cp_file", "rm_file", "makedirs", "rmdir", "exists"):
            return getattr(Broken.behind, name)
        return super().__getattribute__(name)

    def _open(self, path, mode="rb", **_):
        return Broken.behind.open(path, mode)


class Writer:
    def __init__(self, path, write):
        self.file, self.write_next = Broken.behind.open(path, "wb"), write

    def write(self, data):
        return self.file.write(self.write_next(data))

    def close(self):
        self.file.close()


@pytest.fixture
def broken(memory, monkeypatch):
    fsspec.register_implementation("broken", Broken, clobber=True)

    def writes(write):
        reads = Broken._open
        monkeypatch.setattr(Broken, "_open", lambda self, path, mode="rb", **_: (
            Writer(path, write) if mode == "wb" else reads(self, path, mode)))

    return writes


def refuse(data):
    raise PermissionError("no")


def test_no_half_file(broken, memory, tree, engine, monkeypatch):
    memory.pipe_file("/far/large", b"before")
    wrong = [
        (refuse, {}, PermissionError, "no"),
        (lambda data: data[:-1], {}, stoker.TruncatedError, "the server has 59999[0-9]+"),
        (lambda data: b"\0" * len(data), {"check": "sha256"}, stoker.CorruptError, "sha256"),
        (lambda data: b"\0" * len(data), {"check": "md5"}, stoker.CorruptError, "md5"),
    ]
    for write, options, kind, why in wrong:
        with monkeypatch.context():
            broken(write)
            with pytest.raises(kind, match=why):
                stoker.cp(tree / "large", "broken://far/large", engine=engine, **options)
            assert held(memory, "/far") == {"large": b"before"}
        monkeypatch.undo()
    stoker.cp(tree / "large", "broken://far/large", check="sha256", engine=engine)
    assert held(memory, "/far") == {"large": (tree / "large").read_bytes()}
    for options in ({"check": "crc32c"}, {"storage_class": "X"}, {"encryption": "AES256"}):
        with pytest.raises(stoker.ArgumentError):
            stoker.cp(tree / "large", "broken://far/large", engine=engine, **options)
    with pytest.raises(FileExistsError):
        stoker.cp(tree / "plain", "broken://far/large", no_clobber=True, engine=engine)
    for chain in ("zip://in::memory://far/a.zip", "simplecache::memory://far/x"):
        with pytest.raises(stoker.UnsupportedError, match="read-only"):
            stoker.cp(tree / "plain", chain, engine=engine)
    with pytest.raises(stoker.ArgumentError, match="path of this machine"):
        stoker.cp(tree / "plain", "local:///tmp/none", engine=engine)
    assert held(memory, "/far") == {"large": (tree / "large").read_bytes()}


def test_a_source_that_changes(broken, memory, tmp_path, engine, monkeypatch):
    source = tmp_path / "source"
    source.write_bytes(b"1234")

    def write(data):
        source.write_bytes(b"5678")
        return data

    broken(write)
    with pytest.raises(stoker.ChangedError, match="source"):
        stoker.cp(source, "broken://far/x", engine=engine)
    assert held(memory, "/far") == {}

    def change(self, path, mode="rb", **_):
        memory.pipe_file("/far/x", b"9012")  # with another time
        return memory.open(path, mode)

    memory.pipe_file("/far/x", b"1234")
    monkeypatch.setattr(Broken, "_open", change)
    with pytest.raises(stoker.ChangedError, match="broken://far/x"):
        stoker.cp("broken://far/x", tmp_path / "y", engine=engine)
    assert os.listdir(tmp_path) == ["source"]


def test_a_connection_that_breaks_off(broken, memory, tree, engine):
    """Once: the file is written again, by another one."""
    failures = [ConnectionResetError("broken off")]

    def write(data):
        if failures:
            raise failures.pop()
        return data

    broken(write)
    report = stoker.cp(tree / "large", "broken://far/x", engine=engine)
    assert report.bytes_done == FILES["large"] and report.files_failed == 0
    assert held(memory, "/far") == {"x": (tree / "large").read_bytes()}


def test_no_answer_is_not_absence(broken, memory, tree, engine, monkeypatch):
    """fsspec's exists takes each failure for it."""
    failing, info = [], memory.info

    def fails(path, **options):
        if any(part in path for part in failing):
            failing.clear()
            raise ConnectionResetError("broken off")
        return info(path, **options)

    def write(data):  # another process is faster
        memory.pipe_file("/far/x", b"theirs")
        failing.append("/far/x")
        return data

    monkeypatch.setattr(memory, "info", fails, raising=False)
    broken(write)
    with pytest.raises(FileExistsError):
        stoker.cp(tree / "plain", "broken://far/x", no_clobber=True, engine=engine)
    assert held(memory, "/far") == {"x": b"theirs"}
    broken(refuse)
    failing.append(".stoker-")  # the unfinished copy, which must be removed
    with pytest.raises(PermissionError):
        stoker.cp(tree / "plain", "broken://far/y", engine=engine)
    assert held(memory, "/far") == {"x": b"theirs"} and not failing


def test_a_removal_whose_answer_is_lost(broken, memory, engine, monkeypatch):
    memory.pipe_file("/far/x", b"1")
    remove = memory.rm_file

    def lost(path):
        remove(path)
        raise ConnectionResetError("broken off")

    monkeypatch.setattr(memory, "rm_file", lost, raising=False)
    assert stoker.rm("broken://far/x", engine=engine).files_removed == 1
    assert held(memory, "/far") == {}


def test_systems_that_replace_nothing(broken, memory, tree, engine, monkeypatch):
    """SMB's rename fails if the target exists; HDFS's does nothing and reports no error."""
    for raises in (True, False):
        memory.pipe_file("/far/x", b"before")

        def mv(self, old, new, raises=raises, **_):
            if not memory.exists(new):
                memory.mv(old, new)
            elif raises:
                raise OSError("STATUS_OBJECT_NAME_COLLISION")

        monkeypatch.setattr(Broken, "mv", mv)
        stoker.cp(tree / "plain", "broken://far/x", engine=engine)
        assert held(memory, "/far") == {"x": (tree / "plain").read_bytes()}

    def never(self, old, new, **_):  # the new one gets no name: the old one has it again
        if ".stoker-" not in old or "-old" in old:
            memory.mv(old, new)

    memory.pipe_file("/far/x", b"before")
    monkeypatch.setattr(Broken, "mv", never)
    with pytest.raises(stoker.Error):
        stoker.cp(tree / "plain", "broken://far/x", engine=engine)
    assert held(memory, "/far") == {"x": b"before"}
    monkeypatch.delattr(Broken, "mv")

    # The same for a rename that copies, in a folder whose name could be a pattern.
    copies = memory.cp_file

    def refuses(old, new, **options):
        if ".stoker-" in old and "-old" not in old:
            raise OSError("in use")
        copies(old, new, **options)

    memory.pipe_file("/odd[0]/x", b"before")
    with monkeypatch.context() as patch:
        patch.setattr(memory, "cp_file", refuses, raising=False)
        with pytest.raises(stoker.Error):
            stoker.cp(tree / "plain", "broken://odd[0]/x", engine=engine)
    assert held(memory, "/odd[0]") == {"x": b"before"}

    def cannot(*_, **__):
        raise NotImplementedError

    monkeypatch.setattr(memory, "cp_file", cannot, raising=False)
    with pytest.raises(stoker.UnsupportedError, match="cannot rename"):
        stoker.cp(tree, "broken://far/y", recursive=True, engine=engine)
    assert held(memory, "/far") == {"x": b"before"}


def test_names_in_another_case_are_not_removed(broken, memory, tmp_path, engine, monkeypatch):
    """As SMB lists them: a file just written as A is listed as a."""
    memory.pipe_file("/far/b", b"too much")
    (tmp_path / "A").write_bytes(b"1")
    monkeypatch.setattr(Broken, "mv", lambda self, old, new: memory.mv(
        old, new.lower() if new.endswith("/A") else new))
    report = stoker.sync(tmp_path, "broken://far", delete=True, engine=engine)
    assert held(memory, "/far") == {"a": b"1"} and report.files_removed == 1


def test_leftovers(memory, engine):
    for name in (".stoker-12.part", "a", "sub/.stoker-34.part"):
        memory.pipe_file(f"/far/{name}", b"1")
    assert [item.name for item in stoker.ls("memory://far", recursive=True)] == ["a"]
    # They are of today.
    assert stoker.rm("memory://far", unfinished_uploads=True, engine=engine).files_removed == 0
    memory.store["/far/a"].created = memory.store["/far/.stoker-12.part"].created = (
        memory.store["/far/a"].created.replace(year=2001))
    assert stoker.rm("memory://far", unfinished_uploads=True, engine=engine).files_removed == 1
    assert set(held(memory, "/far")) == {"a", "sub/.stoker-34.part"}


# ---- an end ----


def test_stopped(broken, memory, tree, tmp_path, monkeypatch):
    """At Ctrl-C, while a server is silent: in either direction, and nothing has the name."""
    go, held_up = threading.Event(), threading.Event()

    def wait(data):
        held_up.set()
        go.wait(WAIT_S)
        return data

    def stop(report):
        if held_up.wait(WAIT_S):
            raise KeyboardInterrupt

    monkeypatch.setattr(stoker.fsspec_copy, "_CLEANUP_S", 0.1)
    broken(wait)
    memory.pipe_file("/silent", b"12345")
    begun = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            stoker.cp(tree, "broken://far", recursive=True, progress=stop)
        found = set(held(memory, "/far"))
        assert {name for name in found if not name.endswith(".part")} <= {"empty"}
        held_up.clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Broken, "_open", lambda *_, **__: wait(None))
            with stoker.Engine(threads=2, read_timeout=WAIT_S) as engine:
                with pytest.raises(KeyboardInterrupt):
                    stoker.cp("broken://silent", tmp_path / "x", progress=stop, engine=engine)
        assert os.listdir(tmp_path) == []
        assert time.monotonic() - begun < WAIT_S / 2
    finally:
        go.set()


@pytest.mark.parametrize("where", ["connect", "write", "close", "take away"])
def test_a_silent_server(where, broken, memory, tree, monkeypatch):
    """The copy does not wait for it for ever."""
    go = threading.Event()
    monkeypatch.setattr(stoker.fsspec_copy, "_REQUEST_S", 0.3)
    monkeypatch.setattr(stoker.fsspec_copy, "_CLEANUP_S", 0.1)

    def wait(*_, **__):
        go.wait(WAIT_S)
        return b""

    broken(wait if where == "write" else refuse)
    if where == "connect":
        monkeypatch.setattr(Broken, "__init__", wait)
    elif where == "close":
        monkeypatch.setattr(Writer, "close", wait)
    elif where == "take away":
        monkeypatch.setattr(memory, "rm_file", wait, raising=False)
    try:
        with pytest.raises(stoker.TimeoutError, match="broken://far"):
            stoker.cp(tree / "plain", "broken://far/x")
    finally:
        go.set()


def test_the_first_failure_is_reported(engine):
    """Not that nothing answered later."""
    job = stoker.fsspec_copy._Job(engine._native, 1)
    first = job.failure = stoker.CorruptError("first", "x", "")
    job.steps[1] = 0.0, "x"
    assert job._tick(lambda seen: None) and job.failure is first


def test_idle_connections_are_reopened(engine):
    class Job(stoker.fsspec_copy._Job):
        def plan(self, client):
            client._systems["x"] = None

        def finish(self, client):
            assert not client._systems
            self.count(files_done=1)

        def _subject(self):
            return "x"

    seen = []
    Job(engine._native, 1).run(seen.append)
    assert seen[-1]["files_done"] == 1


def test_connections_are_closed(sftp, tmp_path, engine):  # noqa: F811
    paramiko = pytest.importorskip("paramiko")

    def connections():
        return {one for one in threading.enumerate() if isinstance(one, paramiko.Transport)}

    before = connections()
    (tmp_path / "a").write_bytes(b"1")
    stoker.cp(tmp_path / "a", f"{sftp.url}{tmp_path}/b", engine=engine, workers=1)
    stoker.rm(f"{sftp.url}{tmp_path}/b", engine=engine)
    assert below(tmp_path) == {"a": b"1"}
    until = time.monotonic() + WAIT_S
    while connections() - before and time.monotonic() < until:
        time.sleep(0.01)
    assert not connections() - before


def test_passwords_are_not_shown(monkeypatch, caplog, tree, engine):
    monkeypatch.setattr(fsspec_source, "_check_installed", lambda seen: None)
    url = f"ftp://user:canary0secret@127.0.0.1:{servers.free_port()}"
    for call in (lambda: stoker.cp(tree / "plain", f"{url}/x", engine=engine),
                 lambda: stoker.rm(f"{url}/x", engine=engine),
                 lambda: stoker.stat(f"{url}/{{a,b}}", engine=engine),
                 lambda: stoker.cat(f"{url}/x", engine=engine)):
        with pytest.raises(stoker.Error) as info:
            call()
        text = "".join(traceback.format_exception(info.value)) + repr(info.value) + caplog.text
        assert "ftp://user@127.0.0.1" in text and "canary" not in text


def test_signatures_of_sources_are_not_shown(memory, engine):
    class Handler(servers.Handler):
        def do_GET(self):
            self.say(200, b"1234", ETag='"1"')

        do_HEAD = do_GET

    with servers.serving(Handler) as server:
        def url(name):
            return f"{server.url}/{name}?X-Amz-Signature=canary{len(name)}"

        calls = [
            ("same name", lambda: stoker.cp([url("a/x"), url("bb/x")], "memory://far/",
                                            engine=engine)),
            ("cannot be a path", lambda: stoker.cp(url("n" * 256), "memory://far/",
                                                   engine=engine)),
            ("is a file", lambda: stoker.sync(url("a/x"), "memory://far", engine=engine)),
        ]
        for why, call in calls:
            with pytest.raises(stoker.Error, match=why) as info:
                call()
            assert server.host in str(info.value)
            text = "".join(traceback.format_exception(info.value)) + repr(vars(info.value))
            assert "canary" not in text
        item = stoker.fsspec_copy._Item(url("x").encode(), "memory://far/x")
        changed = stoker.fsspec_copy._changed(item)
        assert "/x'" in str(changed) and "canary" not in str(changed)


def test_the_command_names_python(tmp_path):
    (tmp_path / "a").write_bytes(b"1")
    for words in ([tmp_path / "a", "sftp://host/x"], ["sftp://host/x", tmp_path / "b"],
                  ["-r", tmp_path, "memory://x/"]):
        done = subprocess.run([COMMAND, "cp", *words], capture_output=True, text=True,
                              timeout=WAIT_S)
        assert done.returncode == 2 and "no store is known" in done.stderr
        assert "stoker.cp('sftp://" in done.stderr
