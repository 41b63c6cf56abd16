"""stoker verify of data in a store: many files at once, tars by large ranges; damage in transit is
a finding that names the object and both checksums.

Method: test servers; one answers no file before others are requested as well."""

import json
import subprocess
import threading

import make
import object_server
import pytest
from test_cli import COMMAND
from test_providers import clean, run  # noqa: F401
from test_checksums import reach, serve
from test_composite_checksum import HUB

FILES = {f"set/{'ab'[i % 2]}/{i:02}.jpg": make.encoded(make.pixels(i, 40, 50)) for i in range(24)}
AT_ONCE = 8
MIB = 1 << 20


def together(server):
    """Answers no image before a number of them are requested at once, or a timeout."""
    class Together(server.RequestHandlerClass):
        def give(self, data, **more):
            own = self.server
            with own.gate:
                own.now += 1
                own.most = max(own.most, own.now)
                own.gate.notify_all()
                if self.headers.get("Range") != "bytes=0-0":
                    own.gate.wait_for(lambda: own.most >= AT_ONCE, timeout=3)
                own.now -= 1
            super().give(data, **more)

    server.RequestHandlerClass = Together
    server.gate, server.now, server.most = threading.Condition(), 0, 0
    return server


@pytest.mark.parametrize("kind", ["s3", "hf"])
def test_many_files_at_once(clean, kind):  # noqa: F811
    """Also for the hub, whose listing has too little information."""
    if kind == "s3":
        server = together(serve("s3", FILES, ["crc64nvme"]))
        server.host = "127.0.0.1"
        url, servers = f"{reach(clean, 's3', server)}/set", [server]
    else:
        hub = object_server.hub({(f"{HUB}@main", name): data for name, data in FILES.items()})
        clean.setenv("HF_ENDPOINT", hub.url)
        clean.setenv("HF_TOKEN_PATH", "/nonexistent")
        server, servers, url = together(hub.far), [hub, hub.far], f"hf://{HUB}/set"
    try:
        reported = run("verify", "--threads", "1", "--json", url)
        assert json.loads(reported.splitlines()[-1])["samples"] == len(FILES)
        assert server.most >= AT_ONCE
    finally:
        for server in servers:
            server.close()


def tar(tmp_path):
    path = tmp_path / "a.tar"
    make.tar(path, [(f"{i}.bin", bytes([i]) * MIB) for i in range(20)])
    return path.read_bytes()


def test_a_tar_by_large_ranges(clean, tmp_path):  # noqa: F811
    server = serve("s3", {"a.tar": tar(tmp_path)}, [])
    server.host = "127.0.0.1"
    try:
        reported = run("verify", "--threads", "1", "--json", f"{reach(clean, 's3', server)}/a.tar")
        assert json.loads(reported.splitlines()[-1])["samples"] == 20
        requested = sum(line == ("GET", "/data/a.tar") for line in server.lines)
        assert requested <= 6, server.lines  # not one a MiB
    finally:
        server.close()


def damaging(server, names, at):
    """Flips a byte of these files, however often they are read."""
    class Damaging(server.RequestHandlerClass):
        def say(self, code, body=b"", **headers):
            span = headers.get("Content_Range", "bytes 0-").removeprefix("bytes ")
            here = at - int(span.partition("-")[0])
            if self.path.endswith(names) and code in (200, 206) and 0 <= here < len(body) > 1:
                body = body[:here] + bytes([body[here] ^ 4]) + body[here + 1:]
            super().say(code, body, **headers)

    server.RequestHandlerClass = Damaging
    return server


@pytest.mark.parametrize(("kind", "name", "at"), [("crc32", "b/07.jpg", 100),
                                                  ("crc32c", "a.tar", 5 * MIB)])
def test_damage_on_the_way(clean, tmp_path, kind, name, at):  # noqa: F811
    """Damage that another read does not fix is a finding: the object, and both checksums. The other
    objects have none. This is damage that no other check detects: inside a member, of a tar without
    an index."""
    server = damaging(serve("s3", FILES if kind == "crc32" else {"set/a.tar": tar(tmp_path)},
                            [kind]), name, at)
    server.host = "127.0.0.1"
    try:
        url = f"{reach(clean, 's3', server)}/set"
        done = subprocess.run([COMMAND, "verify", "--threads", "1", "--json", url],
                              capture_output=True, text=True, timeout=120, check=False)
    finally:
        server.close()
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 1 and len(lines) == 2, done
    assert lines[0]["kind"] == "unreadable" and lines[0]["shard"] == f"{url}/{name}"
    assert lines[0]["what"].count(f"{kind} ") == 2, lines[0]
