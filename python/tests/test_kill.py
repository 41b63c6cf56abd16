"""kill -9 at any instant: the next run ends with the same bytes, and no final name has a partial
file.

Goal: `stoker pack` and `stoker index` resume after a kill without a difference in the result.
Method: the command in a process of its own, killed after a random part of its normal time, once or
several times in a row; then it runs to its end, and every file is compared with that of an
uninterrupted run. STOKER_SEED makes the same instants; STOKER_TEST_LONG: 250 of each job.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import time

import make
import pytest
from test_cli import COMMAND

SEED = int(os.environ.get("STOKER_SEED", "1"))
KILLS = 250 if os.environ.get("STOKER_TEST_LONG") else 10  # of each job
IN_A_ROW_MAX = 3

pytestmark = pytest.mark.skipif(COMMAND is None, reason="the stoker command is not built")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Pictures in class folders with sidecars, and tars of them: some MB."""
    root = tmp_path_factory.mktemp("kill")
    r = random.Random(5)
    for number in range(60):
        path = root / "folder" / f"class{number % 3}" / f"{number:03}"
        make.write(path.with_suffix(".jpg"), r.randbytes(r.randint(0, 60_000)))
        if number % 4 == 0:
            make.write(path.with_suffix(".txt"), r.randbytes(500))
    for shard in range(8):
        members = []
        for number in range(200):
            members += [(f"{shard}/{number:04}.bin", r.randbytes(r.randint(0, 3000)))]
            members += [(f"{shard}/{number:04}.cls", b"%d" % (number % 7))]
        make.tar(root / "tars" / f"s-{shard}.tar", members)
    for number in range(12):
        make.jpeg(root / "large" / "a" / f"{number:02}.jpg", number, height=300, width=400)
    return root


# name: the words before the source, the source, the words after it.
JOBS = {
    "pack a folder": (["pack", "--shard-size", "200000"], "folder", []),
    "pack tars shuffled": (["pack", "--shard-size", "300000", "--shuffle", "3"], "tars", []),
    "pack smaller": (["pack", "--shard-size", "40000", "--short-side", "100"], "large", []),
    "index tars": (["index", "--checksums"], "tars", ["--out"]),
    "index a folder": (["index"], "folder", ["--out"]),
}


def digests(path):
    """Name to hash of all files there. A stamp contains values that a copy changes (inode, mtimes):
    only its existence is compared."""
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    return {
        str(file.relative_to(path)): file.suffix == ".stamp"
        or hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
    }


def is_whole(path):
    """A packed folder agrees with its manifest; an index, which has its final name, has a foot."""
    if path.is_file():
        return path.read_bytes()[-232:-224] == b"XIREKOTS"
    manifest = json.loads((path / "stoker.manifest.json").read_text())
    have = digests(path)
    return all(have.get(row["name"]) == row["sha256"] for row in manifest["shards"])


def is_packed(path):
    """Nothing is left to do: a further run would refuse to touch it."""
    return path.is_dir() and not (path / "stoker.plan.json").exists()


def run_killed(words, after):
    """Its exit status; -9: it was killed in time."""
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(after)
    process.send_signal(signal.SIGKILL)
    return process.wait()


def run_whole(words):
    done = subprocess.run(words, capture_output=True, timeout=120)
    return done.returncode, done.stderr


def clear(out):
    for path in out.parent.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def one_round(r, words, out, seconds):
    """Kills the command, then lets it end; returns how many kills were in time."""
    killed = 0
    for _ in range(r.randint(1, IN_A_ROW_MAX)):
        if is_packed(out):
            break
        killed += run_killed(words, r.uniform(0, seconds)) == -signal.SIGKILL
        assert not out.exists() or is_whole(out), "a final name on half a file"
    # killed after the last rename: its lock file, which no process holds, may be left
    if is_packed(out):
        out.with_name(f"{out.name}.lock").unlink(missing_ok=True)
    else:
        status, text = run_whole(words)
        assert status == 0, text
    return killed


@pytest.mark.parametrize("name", JOBS)
def test_kill(tmp_path, source, name):
    before, folder, after = JOBS[name]
    if run_whole([COMMAND, "help", before[0]])[0] != 0:
        pytest.skip(f"no command {before[0]}")
    out = tmp_path / "out" / "result"
    out.parent.mkdir()
    words = [COMMAND, *before, str(source / folder), *after, str(out)]
    begin = time.monotonic()
    status, text = run_whole(words)
    seconds = time.monotonic() - begin
    assert status == 0, text
    wanted = digests(out.parent)
    assert is_whole(out)
    r = random.Random(f"{SEED}/{name}")
    killed = 0
    for number in range(KILLS):
        clear(out)
        killed += one_round(r, words, out, seconds)
        assert digests(out.parent) == wanted, f"STOKER_SEED={SEED}, round {number}"
    print(f"{name}: {killed} kills in {KILLS} rounds of {seconds * 1000:.0f} ms")
    assert killed >= KILLS / 3  # else it was not tested
