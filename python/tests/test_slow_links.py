"""A slow link is not a failure: a body that leaves this machine slowly is sent once."""

from __future__ import annotations

import os
import socket
import time

import object_server
import pytest
import stoker
from test_copy import random_bytes
from test_providers import clean  # noqa: F401
from test_sse_keys import Sealing

BYTES = 7 << 20
TIMEOUT = 6.0  # seconds; a third of it may nothing leave
# the most bytes that the kernel accepts of a sender: the value of net.ipv4.tcp_wmem
KERNEL = 4 << 20
SECONDS = 6.4  # for which they leave it


class Slow(Sealing):
    """Reads the body of the first two PUTs slowly, up to the size of the sender's kernel buffer."""

    def do_PUT(self):
        server, length = self.server, int(self.headers["Content-Length"])
        server.puts += 1
        got = self.rfile.read(max(length - KERNEL, 0))
        pieces = 160 if server.puts < 3 else 1
        while len(got) < length:
            time.sleep(SECONDS / pieces if pieces > 1 else 0)
            got += self.rfile.read(min(-(-KERNEL // pieces), length - len(got)))
        server.objects["data", "large"] = got
        self.say(200, ETag=f'"{self.etag(got)}"')


@pytest.fixture
def server(clean):  # noqa: F811
    server = object_server.s3({}, {"a": ("b", "", float("inf"))})
    server.RequestHandlerClass = Slow
    server.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 18)  # the rest is with us
    server.sealed, server.kms, server.uploads, server.requested = {}, {}, {}, []
    server.classes, server.puts = {}, 0
    for name, value in {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b",
                        "AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
                        "AWS_ENDPOINT_URL": server.url}.items():
        clean.setenv(name, value)
    yield server
    server.close()


def test_slow_upload(server, tmp_path):
    """All of a body is with the kernel long before it has left: the server is not late."""
    (tmp_path / "large").write_bytes(data := random_bytes(BYTES, 1))
    with stoker.Engine(threads=1, memory="64MiB", read_timeout=TIMEOUT) as engine:
        stoker.cp(tmp_path / "large", "s3://data/large", engine=engine)
    assert server.objects["data", "large"] == data
    assert server.puts < 3  # once; a machine that stood still for a second may do it again
