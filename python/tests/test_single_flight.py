"""Processes of a machine that open the same path at once: a process that waits for another reacts
to Ctrl-C, and waits no longer than its deadline."""

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
COMMAND = os.environ.get("STOKER_COMMAND", "stoker")
# Variables that select servers and identities: processes with different values never share a
# result.
IDENTITY = """AWS_ROLE_ARN AWS_WEB_IDENTITY_TOKEN_FILE AWS_NO_SIGN_REQUEST AWS_REQUEST_PAYER
AWS_DEFAULT_PROFILE AWS_DEFAULT_REGION AWS_ACCESS_KEY_ID AWS_CONTAINER_CREDENTIALS_RELATIVE_URI
AWS_CONTAINER_CREDENTIALS_FULL_URI GS_ACCESS_KEY_ID GS_NO_SIGN_REQUEST GS_USER_PROJECT
CLOUDSDK_CONFIG AZURE_STORAGE_CONNECTION_STRING AZURE_STORAGE_ACCOUNT_NAME AZURE_STORAGE_KEY
AZURE_STORAGE_SAS_TOKEN AZURE_NO_SIGN_REQUEST AZURE_CLIENT_ID AZURE_TENANT_ID HF_TOKEN HF_HOME
HF_TOKEN_PATH HF_HUB_DISABLE_IMPLICIT_TOKEN""".split()
OPEN = """
import sys, stoker
engine = stoker.Engine(threads=1, memory="64MiB", read_timeout=float(sys.argv[2]),
                       single_flight_timeout=float(sys.argv[3]))
stoker.Dataset(sys.argv[1], engine=engine, skip_files=len(sys.argv) > 4)
"""


class Silent:
    """A web server that reports sizes, has no index, and sends no bytes."""

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
        while requested := connection.recv(65536):
            if b"index" in requested.partition(b"\r\n")[0]:
                connection.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            elif b"bytes=0-0" in requested:  # how large it is
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

    def start(read: float, turn: float, *skip: str) -> subprocess.Popen:
        process = subprocess.Popen(
            [sys.executable, "-c", OPEN, server.url, str(read), str(turn), *skip],
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
    _, reported = second.communicate(timeout=WAIT)  # 600 s would be too long
    assert "KeyboardInterrupt" in reported and second.returncode != 0
    third = start(1, 0.1)  # which then opens the path by itself, and gets no answer
    _, reported = third.communicate(timeout=WAIT)
    assert "TimeoutError" in reported and server.url in reported
    assert first.poll() is None


def test_skipped_files_are_not_shared(started, tmp_path):
    """An index without the files that cannot be read is not used where they are an error."""
    server, start = started
    start(600, 0, "skip_files")
    until(lambda: files(tmp_path, "lock") and server.taken)
    start(600, 0)
    until(lambda: len(files(tmp_path, "lock")) == 2)  # it lists by itself
    assert not files(tmp_path, "wait")


def test_each_endpoint_and_login_has_its_own_turn(tmp_path):
    server, processes = Silent(), []
    plain = {name: value for name, value in os.environ.items() if name not in IDENTITY}
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "config").write_text("[profile another]\nregion = there\n")

    def start(**more: str) -> None:
        processes.append(subprocess.Popen(
            [COMMAND, "info", server.url], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env=plain | {"STOKER_NODE_DIR": str(tmp_path), "HOME": str(tmp_path)} | more))

    try:
        start()
        until(lambda: len(files(tmp_path, "lock")) == 1)
        start()
        until(lambda: files(tmp_path, "wait"))  # the same: one waits for the other
        for i, name in enumerate(IDENTITY):
            start(**{name: "another"})
            until(lambda: len(files(tmp_path, "lock")) + len(files(tmp_path, "wait")) > i + 2)
            assert len(files(tmp_path, "wait")) == 1, name
        for path in tmp_path.glob("stoker-turns-*/*"):  # the names contain a hash only
            assert "another" not in path.name and path.stat().st_size == 0
    finally:
        for process in processes:
            process.kill()
            process.wait()
        server.close()
