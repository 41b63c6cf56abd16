"""Processes of a machine that open the same path at once: who waits for another hears Ctrl-C, and
waits no longer than it was told."""

from __future__ import annotations

import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

WAIT = 120
OPEN = """
import sys, stoker
engine = stoker.Engine(threads=1, memory="64MiB", read_timeout=float(sys.argv[2]),
                       turn_timeout=float(sys.argv[3]))
stoker.Dataset(sys.argv[1], engine=engine)
"""


class Silent:
    """A web server that tells sizes, has no index, and gives no bytes."""

    def __init__(self) -> None:
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}/a.tar"
        self.taken: list[socket.socket] = []
        threading.Thread(target=self.take, daemon=True).start()

    def take(self) -> None:
        while True:
            try:
                connection = self.socket.accept()[0]
            except OSError:
                return
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection: socket.socket) -> None:
        while asked := connection.recv(65536):
            if b"index" in asked.partition(b"\r\n")[0]:
                connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            elif b"bytes=0-0" in asked:  # how large it is
                connection.sendall(b"HTTP/1.1 206 Partial Content\r\nContent-Length: 1\r\n"
                                   b"Content-Range: bytes 0-0/10240\r\nETag: \"a\"\r\n\r\n0")
            else:
                self.taken.append(connection)
                return

    def close(self) -> None:
        self.socket.close()
        for connection in self.taken:
            connection.close()


def until(true) -> None:
    end = time.monotonic() + WAIT
    while not true():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.02)


@pytest.fixture
def started(tmp_path):
    server, processes = Silent(), []

    def start(read: float, turn: float) -> subprocess.Popen:
        process = subprocess.Popen(
            [sys.executable, "-c", OPEN, server.url, str(read), str(turn)],
            env={**os.environ, "STOKER_NODE_DIR": str(tmp_path)}, stderr=subprocess.PIPE, text=True)
        processes.append(process)
        return process

    yield server, start
    for process in processes:
        process.kill()
        process.wait()
    server.close()


def files(tmp_path: pathlib.Path, ending: str) -> list[pathlib.Path]:
    return list(tmp_path.glob(f"stoker-turns-*/*.{ending}"))


def test_waiting_for_another(started, tmp_path):
    server, start = started
    first = start(600, 0)
    until(lambda: files(tmp_path, "lock") and server.taken)
    second = start(600, 0)
    until(lambda: files(tmp_path, "wait"))
    second.send_signal(signal.SIGINT)
    _, told = second.communicate(timeout=WAIT)  # 600 s would be too long
    assert "KeyboardInterrupt" in told and second.returncode != 0
    third = start(1, 0.1)  # which then asks by itself, and hears nothing
    _, told = third.communicate(timeout=WAIT)
    assert "TimeoutError" in told and server.url in told
    assert first.poll() is None
