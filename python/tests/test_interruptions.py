"""Ctrl-C at each call that changes the file system: the message of the command is true.

Goal: exit status 0 is a complete result, also if the signal came before the last step was seen;
else the status is 130, the message says so, and the same command then completes the work.
Method: a preloaded library sends SIGINT at the Nth call, for each N. The results of all runs are
compared with that of a run without a signal.
"""

import os
import pathlib
import shutil
import signal
import subprocess

import make
import pytest
import stoker
from test_cli import COMMAND
from test_copy_names import below


@pytest.fixture(scope="module")
def interrupting(tmp_path_factory):
    """Sends a signal at the call of this number, and then creates a file."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    library = tmp_path_factory.mktemp("interrupting") / "interrupting.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-std=gnu17", "-O1", "-D_GNU_SOURCE", "-w", "-o",
                    library, pathlib.Path(__file__).with_name("interrupting.c")], check=True)
    return lambda call, sent: {"LD_PRELOAD": str(library),
                               "STOKER_TEST_INTERRUPT": f"{call}:{sent}"}


def run(words, folder, environment=None):
    return subprocess.run([COMMAND, *map(str, words)], cwd=folder, capture_output=True, text=True,
                          env={**os.environ, "STOKER_CACHE": str(folder / "cache"),
                               **(environment or {})}, timeout=60)


def images(folder):
    for number in range(6):
        make.jpeg(folder / f"src/class {number % 2}/{number}.jpg", number)


def tars(folder):
    for shard in range(2):
        make.tar(folder / f"src/{shard}.tar", [(f"{shard}.cls", b"1"), (f"{shard}.txt", b"a")])


def steps(folder):
    with stoker.Checkpointer(folder / "src") as checkpointer:
        checkpointer.save(7, {"weights": make.pixels(1, 50, 60)})


JOBS = {
    "pack": (images, ["pack", "src", "dst"]),
    "cp": (tars, ["cp", "-r", "src", "dst"]),
    "sync": (tars, ["sync", "src", "dst"]),
    "mv": (tars, ["mv", "src/0.tar", "src/1.tar", "dst/"]),
    "rm": (tars, ["rm", "-r", "--yes", "src"]),
    "index": (tars, ["index", "src"]),
    "convert": (steps, ["ckpt", "convert", "src", "dst.safetensors"]),
}


def result(folder):
    return {name: data for name, data in below(folder).items()
            if not name.startswith("cache/") and name != "src/stoker.index.stamp"}


@pytest.mark.parametrize("job", JOBS)
def test_interruptions(interrupting, tmp_path, job):
    prepare, words = JOBS[job]
    prepare(tmp_path / "origin")
    shutil.copytree(tmp_path / "origin", tmp_path / "want")
    done = run(words, tmp_path / "want")
    assert done.returncode == 0, done.stderr
    want = result(tmp_path / "want")
    for call in range(1, 200):
        folder, sent = tmp_path / "run", tmp_path / f"sent-{call}"
        shutil.copytree(tmp_path / "origin", folder)
        done = run(words, folder, interrupting(call, sent))
        where = (call, done.stdout, done.stderr)
        if done.returncode == 0:
            assert result(folder) == want and "interrupted" not in done.stderr, where
        else:
            assert done.returncode == 128 + signal.SIGINT, where
            assert done.stderr.startswith("stoker: interrupted"), where
            again = run(words, folder)
            # What was moved or removed is not found again: the message tells to name the rest.
            assert again.returncode == 0 or (job in ("mv", "rm") and "are left" in done.stderr or
                                             "for the rest" in done.stderr), (where, again.stderr)
            assert result(folder) == want, where
        shutil.rmtree(folder)
        if not sent.exists():
            break
    assert call > 1 and not sent.exists() and done.returncode == 0
