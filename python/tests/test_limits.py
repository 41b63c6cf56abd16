"""Few open files and few threads: copies and loaders are slower, and do not fail."""

from __future__ import annotations

import os
import subprocess
import sys

import make
import pytest
from make import random_bytes
from test_cli import COMMAND
from test_copy import bucket  # noqa: F401 (a fixture)

WAIT = 200


def limited(words, limit, **environment):
    """Runs with `ulimit LIMIT`."""
    done = subprocess.run(["bash", "-c", f'ulimit {limit}; exec "$@"', "sh", *map(str, words)],
                          capture_output=True, text=True, timeout=WAIT,
                          env={**os.environ, **environment})
    assert done.returncode == 0, (limit, done.stdout, done.stderr)
    return done.stdout


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    return make.tree(tmp_path_factory.mktemp("many"),
                     {f"{number % 7}/{number:04}": 100 + number for number in range(300)})


def below(root):
    return {str(path.relative_to(root)): path.read_bytes()
            for path in sorted(root.rglob("*")) if path.is_file()}


def copy_tree(many, url, folder, limit):
    """Copies a tree to a store, back, and on the disk."""
    limited([COMMAND, "cp", "-r", many, url], limit)
    limited([COMMAND, "cp", "-r", url, folder / "down"], limit)
    assert below(folder / "down") == below(many)
    limited([COMMAND, "cp", "-r", many, folder / "here"], limit)
    assert below(folder / "here") == below(many)


@pytest.mark.parametrize("files", [24, 64, 128, 256])
def test_copies(bucket, many, tmp_path, files):  # noqa: F811
    (tmp_path / "large").write_bytes(random_bytes(30_000_000, 1))
    limit = f"-n {files}"
    copy_tree(many, f"{bucket.url}/up", tmp_path, limit)
    limited([COMMAND, "cp", "--part-size", "5M", tmp_path / "large", f"{bucket.url}/large"], limit)
    limited([COMMAND, "cp", "--part-size", "5M", f"{bucket.url}/large", tmp_path / "l"], limit)
    assert (tmp_path / "l").read_bytes() == (tmp_path / "large").read_bytes()


@pytest.mark.parametrize("kib", [300_000, 600_000, 1_200_000, 2_000_000])
def test_copies_with_little_address_space(bucket, many, tmp_path, kib):  # noqa: F811
    """A copy starts as many threads as fit, and the network thread first."""
    copy_tree(many, f"{bucket.url}/up-{kib}", tmp_path, f"-v {kib}")


LOADER = """
import stoker, sys
engines = [stoker.Engine(threads=2, process_sharing=False) for _ in range(3)]
loaders = [stoker.Loader(sys.argv[1], 7, fields={"id": "__id__"}, engine=engine, tail="keep",
                         output="numpy") for engine in engines]
seen = [sorted(int(i) for batch in loader for i in batch["id"]) for loader in loaders]
assert seen == [list(range(300))] * 3, [len(ids) for ids in seen]
print("all")
"""


@pytest.mark.parametrize("files", [48, 64, 128])
@pytest.mark.parametrize("where", ["here", "store"])
def test_loaders(bucket, tmp_path, files, where):  # noqa: F811
    """Three engines share the limit; more shards than it allows open files."""
    for shard in range(100):
        make.tar(tmp_path / f"set/{shard:03}.tar",
                 [(f"{shard}-{i}.txt", b"%d" % i) for i in range(3)])
    source = tmp_path / "set"
    if where == "store":
        subprocess.run([COMMAND, "cp", "-r", source, f"{bucket.url}/set"], check=True, timeout=WAIT)
        source = f"{bucket.url}/set"
    assert "all" in limited([sys.executable, "-c", LOADER, source], f"-n {files}")


CACHED = LOADER.replace("process_sharing=False)", "process_sharing=False, cache=sys.argv[2])")


@pytest.mark.parametrize("files", [64, 128])
def test_loaders_with_a_node_cache(bucket, tmp_path, files):  # noqa: F811
    """The second run reads the blocks that the first one wrote."""
    for shard in range(40):
        make.tar(tmp_path / f"set/{shard:03}.tar",
                 [(f"{number}.txt", b"%d" % number)
                  for number in range(300) if number % 40 == shard])
    subprocess.run([COMMAND, "cp", "-r", tmp_path / "set", f"{bucket.url}/set"], check=True,
                   timeout=WAIT)
    for _ in range(2):
        words = [sys.executable, "-c", CACHED, f"{bucket.url}/set", tmp_path / "node"]
        assert "all" in limited(words, f"-n {files}")


CHECKPOINTS = """
import numpy, stoker, sys
state = {"w": {str(i): numpy.full((1000, 50), i, numpy.float32) for i in range(20)}}
points = [stoker.Checkpointer(f"{sys.argv[1]}/{i}") for i in range(10)]
for point in points:
    point.save(1, state)
for point in points:
    point.wait()
    found = {"w": {name: numpy.zeros_like(array) for name, array in state["w"].items()}}
    point.restore(found)
    assert (found["w"]["7"] == 7).all()
    point.close()
print("all")
"""


@pytest.mark.parametrize("files", [40, 64])
@pytest.mark.parametrize("where", ["here", "store"])
def test_checkpoints(bucket, tmp_path, files, where):  # noqa: F811
    """Ten writers save at the same time; then the commands copy and verify."""
    root = tmp_path / "points" if where == "here" else f"{bucket.url}/points-{files}"
    assert "all" in limited([sys.executable, "-c", CHECKPOINTS, root], f"-n {files}")
    limited([COMMAND, "ckpt", "cp", f"{root}/3", tmp_path / "copy"], f"-n {files}")
    limited([COMMAND, "ckpt", "verify", tmp_path / "copy"], f"-n {files}")
    limited([COMMAND, "ckpt", "diff", f"{root}/3", tmp_path / "copy"], f"-n {files}")
