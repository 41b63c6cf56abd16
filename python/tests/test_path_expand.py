"""Braces and globs in the arguments of commands and Python, on this machine and in stores.

Goal: they expand as a shell would expand them; a file whose name equals the pattern is used itself;
and removal is limited to matches, after a "yes"."""

from __future__ import annotations

import json
import subprocess

import pytest
import stoker
from test_cli import COMMAND
from test_copy_between_stores import fails, reported, world  # noqa: F401
from test_providers import clean  # noqa: F401

NAMES = ["a0.tar", "a1.tar", "a2.txt", "b/c0.tar", "b/c1.tar", "literal[0].tar", "{a0,a1}.tar",
         "literal0.tar"]
WAYS = ["local", "s3", "gs", "az"]


@pytest.fixture(params=WAYS)
def place(request, world, tmp_path):  # noqa: F811
    """The base of the names, and a function that returns which exist."""
    if request.param == "local":
        for name in NAMES:
            (tmp_path / "x/b").mkdir(parents=True, exist_ok=True)
            (tmp_path / "x" / name).write_bytes(name.encode())
        return str(tmp_path / "x"), lambda: {
            str(path.relative_to(tmp_path / "x")) for path in (tmp_path / "x").rglob("*")
            if path.is_file()}
    for name in NAMES:
        world.put(request.param, f"x/{name}", name.encode())
    return f"{request.param}://data/x", lambda: set(world.below(request.param, "x/"))


def copied(base, pattern, to):
    reported("cp", f"{base}/{pattern}", f"{to}/")
    return {path.name: path.read_bytes().decode() for path in to.iterdir()}


PATTERNS = [
    ("a?.tar", ["a0.tar", "a1.tar"]),
    ("a{0..1}.tar", ["a0.tar", "a1.tar"]),
    ("{a2.txt,b/c*.tar}", ["a2.txt", "b/c0.tar", "b/c1.tar"]),
    ("*/c[!0].tar", ["b/c1.tar"]),
    ("literal[0].tar", ["literal[0].tar"]),  # there is one of this name
    ("literal[0]*.tar", ["literal0.tar"]),
    ("literal[[]0].tar", ["literal[0].tar"]),
    ("{a0,a1}.tar", ["{a0,a1}.tar"]),
]


def test_cp_and_cat(place, tmp_path):
    base, _ = place
    for i, (pattern, names) in enumerate(PATTERNS):
        assert copied(base, pattern, tmp_path / f"to{i}") == {
            name.rpartition("/")[2]: name for name in names}
    assert reported("cat", f"{base}/{{a2.txt,b/c*.tar}}") == "a2.txtb/c0.tarb/c1.tar"


def test_in_python(place, tmp_path):
    base, there = place
    with stoker.Engine(threads=2) as engine:
        assert stoker.cp([f"{base}/a?.tar", f"{base}/b/c{{0..1}}.tar"], f"{tmp_path}/to/",
                         engine=engine).files_done == 4
        with pytest.raises(ValueError, match="recursive"):
            stoker.rm(f"{base}/a?.tar", engine=engine)
        assert there() == set(NAMES)
        assert stoker.rm(f"{base}/literal[0].tar", engine=engine).files_removed == 1
        assert there() == set(NAMES) - {"literal[0].tar"}
        assert stoker.rm(f"{base}/a?.tar", recursive=True, engine=engine).files_removed == 2
        assert there() == set(NAMES) - {"literal[0].tar", "a0.tar", "a1.tar"}


def test_rm_asks_and_removes_matches(place):
    base, there = place
    done = subprocess.run([COMMAND, "rm", f"{base}/a*.tar"], stdin=subprocess.DEVNULL, timeout=120,
                          capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "no terminal for a prompt" in done.stderr
    assert "no path matches" in fails("rm", "--yes", f"{base}/none*", codes=(1, 2, 3))
    assert there() == set(NAMES)
    reported("rm", "--yes", f"{base}/a*.tar")
    assert there() == set(NAMES) - {"a0.tar", "a1.tar"}
    reported("rm", f"{base}/{{a0,a1}}.tar")  # a file has this very name: no question is needed
    reported("rm", f"{base}/literal[0].tar")
    assert there() == {"a2.txt", "b/c0.tar", "b/c1.tar", "literal0.tar"}
    assert "--recursive" in fails("rm", "--yes", f"{base}/b*", codes=(1, 2, 3))
    reported("rm", "--yes", "--recursive", f"{base}/b*")
    assert there() == {"a2.txt", "literal0.tar"}


def test_other_commands(world):  # noqa: F811
    for name in NAMES:
        world.put("s3", f"x/{name}", name.encode())
    base = "s3://data/x"
    for words in (("stat", f"{base}/a{{0,1}}.tar"), ("ls", "--files", f"{base}/a?.tar")):
        text = reported(*words)
        assert "a0.tar" in text and "a1.tar" in text and "a2.txt" not in text
    assert json.loads(reported("prewarm", "--json", f"{base}/a?.tar"))["files"] == 2
    world.s3.objects["data", "x/large0"] = bytes(70_000)
    world.s3.objects["data", "x/large1"] = bytes(70_000)
    reported("bench", "store", f"{base}/large{{0..1}}", "--sizes", "64K", "--concurrency", "1",
         "--bytes", "128K")
    web = {f"d{i}.tar": b"%d" % i for i in range(3)}
    for name, data in web.items():
        world.put("web", name, data)
    assert reported("cat", f"{world.web.base}/d{{0..2}}.tar") == "012"
    assert "no such object" in fails("cat", f"{world.web.base}/d?.tar")  # a query begins there


def test_a_glob_is_looked_up_once(world, tmp_path):  # noqa: F811
    """No request is sent per name for what the listing has shown."""
    for i in range(40):
        world.put("s3", f"x/many{i}", b"%d" % i)
    reported("cp", "s3://data/x/many*", f"{tmp_path}/to/")
    assert len(list((tmp_path / "to").iterdir())) == 40
    assert world.s3.said[404] + world.s3.said[200] + world.s3.said[206] <= 40 + 6


def test_fsspec_removes_patterns(world):  # noqa: F811
    pytest.importorskip("fsspec")
    from stoker.fsspec_filesystem import StokerFileSystem

    for name in NAMES:
        world.put("s3", f"x/{name}", name.encode())
    with stoker.Engine(threads=2) as engine:
        fs = StokerFileSystem(engine=engine, skip_instance_cache=True)
        fs.rm("stoker://s3/data/x/literal[0].tar")
        assert set(world.below("s3", "x/")) == set(NAMES) - {"literal[0].tar"}
        requested, info = [], fs.info
        fs.info = lambda path, **more: requested.append(path) or info(path, **more)
        fs.rm("stoker://s3/data/x/a?.tar")
        assert not [name for name in requested if "a0" in name], requested  # which was just listed
        fs.info = info
        assert set(world.below("s3", "x/")) == set(NAMES) - {"literal[0].tar", "a0.tar", "a1.tar"}
        fs.rm("stoker://s3/data/x/{a0,a1}.tar")
        assert "{a0,a1}.tar" not in world.below("s3", "x/")
        with pytest.raises(FileNotFoundError):
            fs.rm("stoker://s3/data/x/none*")
        with pytest.raises(FileNotFoundError):  # an explicit name that is missing is an error
            fs.rm("stoker://s3/data/x/a0.tar")
