"""What `cp` brings of a large object is as the whole object's checksum says, or there is no file.

Method: servers of the tests that turn a bit of the bytes that they send, or stop in the middle
until the command is killed; what a run left is damaged on the disk. Then the file is exact, or
there is an error and none; what was wrong does not stay for the next run."""

import subprocess
import threading

import object_server
import pytest
from test_cli import COMMAND
from test_copy import PART, WAIT, await_true, random_bytes
from test_dialects import clean  # noqa: F401
from test_sums import reach, serve

SIZE = 2 * PART + 777  # three parts
DATA = random_bytes(SIZE, 7)


def faulty(server):
    """Turns a bit of byte `at` so many times as `flips` says; what begins at `hold` never comes."""
    class Faulty(server.RequestHandlerClass):
        def say(self, code, body=b"", **headers):
            span = headers.get("Content_Range", "bytes 0-").removeprefix("bytes ")
            begin, own = int(span.partition("-")[0]), self.server
            if self.command == "GET" and code in (200, 206) and len(body) > 1:
                if begin == own.hold:
                    own.go_on.wait(WAIT)
                with own.lock:
                    if begin <= own.at < begin + len(body) and own.flips:
                        own.flips -= 1
                        body = bytearray(body)
                        body[own.at - begin] ^= 4
            super().say(code, body, **headers)

    server.RequestHandlerClass = Faulty
    server.at, server.flips, server.hold, server.go_on = 5, 0, None, threading.Event()
    return server


def reached(clean, kind, server):  # noqa: F811
    server.host = "127.0.0.1"
    return f"{server.url}/data" if kind == "http" else reach(clean, kind, server)


def copy(source, target, ok=0, workers=1):
    done = subprocess.run([COMMAND, "cp", "--part-size", "5M", "--workers", str(workers), source,
                           target], capture_output=True, text=True, timeout=WAIT, check=False)
    assert done.returncode == ok, (done.returncode, done.stderr)
    return done.stderr


def left(target):
    """What killed or failed runs left beside it: the file, without its note."""
    return [path for path in target.parent.glob(".stoker-*.part") if "-of" not in path.name]


def kill(server, source, target):
    """Two parts are written, the third does not come, and then there is a kill."""
    server.hold = 2 * PART
    process = subprocess.Popen([COMMAND, "cp", "--part-size", "5M", "--workers", "1", source,
                                target])
    try:
        await_true(lambda: sum(path.stat().st_size for path in left(target)) == 2 * PART)
    finally:
        process.kill()
        process.wait()
        server.hold = None
        server.go_on.set()


@pytest.fixture
def target(tmp_path):
    (tmp_path / "to").mkdir()
    return tmp_path / "to/file"


@pytest.mark.parametrize(("kind", "sums"), [("s3", ["crc32"]), ("gs", ["crc32c"])])
def test_second_run(clean, target, kind, sums):  # noqa: F811
    """What was wrong does not stay: the same command fails again, or brings the right bytes."""
    server = faulty(serve(kind, {"large": DATA}, sums))
    try:
        source = f"{reached(clean, kind, server)}/large"
        for _ in range(2):
            server.flips = 1
            text = copy(source, target, ok=1)
            assert source in text and text.count(f"{sums[0]} ") == 2, text
            assert server.flips == 0 and not list(target.parent.iterdir())
        copy(source, target)
        assert target.read_bytes() == DATA and len(list(target.parent.iterdir())) == 1
    finally:
        server.close()


@pytest.mark.parametrize("sums", [[], ["crc32"]], ids=["no sum", "crc32"])
@pytest.mark.parametrize("place", [PART - 1, PART], ids=str)
def test_damage_of_the_disk(clean, target, sums, place):  # noqa: F811
    """Between a kill and the next run."""
    server = faulty(serve("s3", {"large": DATA}, sums))
    try:
        source = f"{reached(clean, 's3', server)}/large"
        kill(server, source, target)
        with open(left(target)[0], "r+b") as file:
            file.seek(place)
            file.write(bytes([DATA[place] ^ 1]))
        copy(source, target)
        assert target.read_bytes() == DATA and len(list(target.parent.iterdir())) == 1
    finally:
        server.close()


def test_damage_before_a_kill(clean, target):  # noqa: F811
    """What came damaged and was kept is a part of the whole's sum in the next run."""
    server = faulty(serve("s3", {"large": DATA}, ["crc32"]))
    try:
        source = f"{reached(clean, 's3', server)}/large"
        server.flips = 1
        kill(server, source, target)
        assert server.flips == 0
        text = copy(source, target, ok=1)
        assert source in text and text.count("crc32 ") == 2, text
        assert not list(target.parent.iterdir())
        copy(source, target)
        assert target.read_bytes() == DATA
    finally:
        server.close()


def test_no_version(clean, target):  # noqa: F811
    """Of a server that tells neither ETag nor time nothing is kept: it may be another object."""
    class Plain(object_server.S3):
        def say(self, code, body=b"", **headers):
            headers.pop("ETag", None)
            headers.pop("Last-Modified", None)
            super().say(code, body, **headers)

    server = serve("s3", {"large": DATA}, [])
    server.keys, server.RequestHandlerClass = None, Plain
    server = faulty(server)
    try:
        source = f"{reached(clean, 'http', server)}/large"
        kill(server, source, target)
        other = DATA[::-1]
        server.objects["data", "large"] = other
        copy(source, target)
        assert target.read_bytes() == other and len(list(target.parent.iterdir())) == 1
    finally:
        server.close()
