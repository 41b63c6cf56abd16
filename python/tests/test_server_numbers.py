"""Numbers that a server reports are checked before they are used: sizes, ranges, lengths.

A server of the test counts the bytes that it sends. It can ignore ranges, refuse them, send a body
in chunks or without any length, and list sizes that are missing, no numbers, or wrong."""

from __future__ import annotations

import os
import subprocess
import urllib.parse

import pytest
import stoker
from make import random_bytes
from servers import Handler, serving
from test_cli import COMMAND

MB = 1 << 20
WAIT = 60


class Odd(Handler):
    """server.mode: how GET of an object is answered."""

    def do_HEAD(self):
        self.do_GET()

    def send_some(self, data):
        for at in range(0, len(data), MB // 4):
            self.wfile.write(data[at:at + MB // 4])
            self.server.sent += len(data[at:at + MB // 4])

    def do_GET(self):
        server, mode, want = self.server, self.server.mode, self.headers.get("Range")
        server.seen.append((self.command, self.path, want))
        data = server.data
        if "list-type" in self.path:
            self.say(200, server.listing.encode())
        elif mode == "denied":
            self.say(403)
        elif mode == "416" and want:
            self.say(416)
        elif mode == "416 with a size" and want:
            self.say(416, Content_Range=f"bytes */{len(data)}")
        elif mode == "huge":
            self.say(206, data[:1], Content_Range=f"bytes 0-0/{server.size}", ETag='"e"')
        elif mode in ("chunked", "chunked, cut"):
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.send_header("ETag", '"e"')
            self.end_headers()
            for at in range(0, len(data), MB):
                part = data[at:at + MB]
                self.wfile.write(b"%x\r\n" % len(part))
                self.send_some(part)
                self.wfile.write(b"\r\n")
            if mode == "chunked":
                self.wfile.write(b"0\r\n\r\n")
            else:
                self.close_connection = True
        elif mode == "until the connection ends":
            self.send_response(200)
            self.end_headers()
            self.send_some(data)
            self.close_connection = True
        else:
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("ETag", '"e"')
            self.end_headers()
            self.send_some(data)


@pytest.fixture
def odd(tmp_path, monkeypatch):
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path / "cache"))
    for name, value in {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b",
                        "AWS_EC2_METADATA_DISABLED": "true"}.items():
        monkeypatch.setenv(name, value)
    with serving(Odd, mode="", data=b"", sent=0, size=0, listing="") as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        yield server


def stoker_run(*words, ok=0, **more):
    process = subprocess.run([COMMAND, *map(str, words)], capture_output=True, timeout=WAIT,
                             env={**os.environ, **more})
    assert process.returncode == ok, (process.returncode, process.stderr.decode())
    return process.stdout if ok == 0 else process.stderr.decode()


@pytest.mark.parametrize("mode", ["ignored", "416", "416 with a size", "chunked"])
def test_one_transfer(odd, tmp_path, mode):
    """A server without ranges, or without a length: each byte of a file is sent once."""
    odd.mode, odd.data = mode, random_bytes(64 * MB + 5, 1)
    stoker_run("cp", f"{odd.url}/file", tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == odd.data
    # The buffers of a connection may fill with data before the client ends a request for the first
    # byte.
    assert odd.sent <= 1.25 * len(odd.data)


@pytest.mark.parametrize("mode", ["ignored", "chunked"])
def test_reads(odd, mode):
    """Python's reads of parts, and the size, of the one copy."""
    odd.mode, odd.data = mode, random_bytes(20 * MB, 2)
    with stoker.Engine(threads=1, process_sharing=False) as engine:
        assert stoker.stat(f"{odd.url}/x", engine=engine).bytes == len(odd.data)
        assert stoker.cat(f"{odd.url}/x", engine=engine) == odd.data
    assert stoker_run("cat", f"{odd.url}/x") == odd.data


def test_empty(odd, tmp_path):
    for mode in ("416", "416 with a size", "ignored", "chunked"):
        odd.mode = mode
        stoker_run("cp", f"{odd.url}/empty", tmp_path / mode)
        assert (tmp_path / mode).read_bytes() == b""


@pytest.mark.parametrize("mode", ["chunked, cut", "until the connection ends"])
def test_an_end_that_cannot_be_seen(odd, tmp_path, mode):
    odd.mode, odd.data = mode, random_bytes(3 * MB, 3)
    text = stoker_run("cp", "--read-timeout", 2, f"{odd.url}/file", tmp_path / "file", ok=1)
    assert f"{odd.url}/file" in text and not (tmp_path / "file").exists()


@pytest.mark.parametrize("size", [36028797018963968, 36028797018963970, 1 << 62, (1 << 64) - 2])
def test_absurd_sizes(odd, tmp_path, size):
    """2**32 parts and more: an error at once, and no file."""
    odd.mode, odd.data, odd.size = "huge", b"x", size
    for url in (f"{odd.url}/file", "s3://b/file"):
        text = stoker_run("cp", url, tmp_path / "file", ok=1)
        assert url in text and "too large" in text and not (tmp_path / "file").exists()


def test_absurd_local_size(tmp_path):
    with open("/dev/shm/stoker-sparse", "wb") as file:
        try:
            os.ftruncate(file.fileno(), 36028797018963968)
            text = stoker_run("cp", file.name, tmp_path / "file", ok=1)
            assert "too large" in text and not (tmp_path / "file").exists()
        except OSError as why:
            pytest.skip(str(why))
        finally:
            os.unlink(file.name)


@pytest.mark.parametrize("size", ["", "<Size></Size>", "<Size>abc</Size>", "<Size>-5</Size>",
                                  "<Size>0</Size>", f"<Size>{1 << 64}</Size>", "<Size>8 </Size>"])
def test_listed_sizes(odd, tmp_path, size):
    """Missing: it is requested. No number: an error. 0 of an object with bytes: an error, or the
    bytes, if the copy looks at the object again; never an empty file."""
    odd.data = b"12345678"
    odd.listing = (f"<ListBucketResult><Name>b</Name><Prefix>p/</Prefix><Contents><Key>p/k</Key>"
                   f"<ETag>&quot;e&quot;</ETag>{size}</Contents></ListBucketResult>")
    process = subprocess.run([COMMAND, "cp", "-r", "s3://b/p/", tmp_path / "out"],
                             capture_output=True, timeout=WAIT)
    found = (tmp_path / "out/k")
    if "0" in size and found.exists():
        assert process.returncode == 0 and found.read_bytes() == odd.data
    elif size:
        assert process.returncode != 0 and b"s3://b/p" in process.stderr and not found.exists()
    else:
        assert process.returncode == 0, process.stderr
        assert found.read_bytes() == odd.data
    assert urllib.parse.urlsplit(odd.seen[0][1]).path.startswith("/b")


def test_size_that_is_denied(odd, tmp_path):
    """A listing without a size, whose request is refused: the error is that of the request."""
    odd.mode = "denied"
    odd.listing = ("<ListBucketResult><Name>b</Name><Prefix>p/</Prefix><Contents><Key>p/k</Key>"
                   "<ETag>&quot;e&quot;</ETag></Contents></ListBucketResult>")
    process = subprocess.run([COMMAND, "cp", "-r", "s3://b/p/", tmp_path / "out"],
                             capture_output=True, timeout=WAIT)
    assert process.returncode != 0 and b"HTTP 403" in process.stderr, process.stderr
    assert b"listing cannot be read" not in process.stderr
