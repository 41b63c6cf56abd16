"""Two runs into one place: the second is refused, and its error names the first; a kill leaves no
lock.

Goal: `stoker pack`, `stoker index`, `stoker verify --repair` and a ShardWriter have exclusive use
of their output. Method: real processes. The first is stopped (SIGSTOP) while it holds the lock, as
its file shows; then it continues to its end, or is killed.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time

import make
import pytest
import stoker
from test_cli import COMMAND

pytestmark = pytest.mark.skipif(COMMAND is None, reason="the stoker command is not built")
SHARDS = 40


@pytest.fixture
def data(tmp_path):
    r = random.Random(3)
    for shard in range(SHARDS):
        members = [(f"{shard}/{i:03}.bin", r.randbytes(20_000)) for i in range(60)]
        make.tar(tmp_path / "data" / f"s-{shard:03}.tar", members)
    damaged = tmp_path / "data" / "s-000.tar"
    text = bytearray(damaged.read_bytes())
    text[512 + 20_480 : 512 + 20_480 + 512] = b"\xff" * 512  # the second header
    damaged.write_bytes(text)
    return tmp_path / "data"


def words_of(job, data):
    out = data.parent / "out"
    return {
        "pack": ([COMMAND, "pack", data.parent / "good", out], out.with_name("out.lock")),
        "index": (
            [COMMAND, "index", "--checksums", "--out", out, data.parent / "good"],
            out.with_name("out.lock"),
        ),
        "repair": ([COMMAND, "verify", "--repair", data], data / "stoker.repair.lock"),
    }[job]


def holder(lock):
    """The holder that the file names; it may be empty for a moment, or missing."""
    try:
        return lock.read_bytes()
    except FileNotFoundError:
        return b""


def start(words, lock):
    """A process that was stopped while it has the lock; None: it was too fast each time."""
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        if holder(lock):
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            if holder(lock):
                return process
            process.send_signal(signal.SIGCONT)
        time.sleep(0.0005)
    return None


@pytest.mark.parametrize("end", ["goes on", "kill -9"])
@pytest.mark.parametrize("job", ["pack", "index", "repair"])
def test_two_at_once(data, job, end):
    (data.parent / "good").mkdir()
    for path in sorted(data.iterdir())[1:]:
        os.link(path, data.parent / "good" / path.name)
    words, lock = words_of(job, data)
    first = start(words, lock)
    assert first is not None, "the first was never seen at work"
    second = subprocess.run(words, capture_output=True, timeout=60)
    try:
        assert second.returncode == 3, second.stderr
        assert b"another process has the lock" in second.stderr
        assert f"process {first.pid} on {os.uname().nodename}".encode() in second.stderr
    finally:
        first.send_signal(signal.SIGKILL if end == "kill -9" else signal.SIGCONT)
    status = first.wait(60)
    assert status == (-signal.SIGKILL if end == "kill -9" else 1 if job == "repair" else 0)
    if end == "kill -9":
        assert lock.exists()  # and no process holds it
        third = subprocess.run(words, capture_output=True, timeout=60)
        assert third.returncode == (1 if job == "repair" else 0), third.stderr
    assert not lock.exists()
    if job == "repair":
        assert (data / "s-000.tar.original").exists()


def test_two_writers(tmp_path):
    """Also in one process; and a child of fork does not keep it."""
    first = stoker.ShardWriter(tmp_path / "out")
    first.write({"__key__": "a", "txt": "a"})
    with pytest.raises(OSError, match=f"process {os.getpid()} "):
        stoker.ShardWriter(tmp_path / "out")
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writer)
        os.read(reader, 1)  # until the parent closes its end
        os._exit(0)
    os.close(reader)
    first.close()
    second = stoker.ShardWriter(tmp_path / "out")
    second.close()
    os.close(writer)
    assert os.waitpid(child, 0)[1] == 0
