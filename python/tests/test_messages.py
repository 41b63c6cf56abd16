"""Texts of errors and waits: clocks, tokens, login pages, expired credentials; and the terminal
names the host for which a command waits.

A server of the test answers as stores and proxies do. Messages have two lines, in the command and
in Python: what failed and where, then what to do."""

from __future__ import annotations

import email.utils
import os
import re
import subprocess
import time

import make
import pytest
import stoker
from servers import Handler, serving
from test_cli import COMMAND, on_terminal

WAIT = 60
PAGE = b"<!DOCTYPE html><html><head><title>\n Sign in to Airport</title></head></html>"


def xml(code, message="no"):
    return f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()


class Odd(Handler):
    def date_time_string(self, timestamp=None):
        return email.utils.formatdate(time.time() + self.server.ahead, usegmt=True)

    def do_GET(self):
        server = self.server
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if server.busy:
            self.say(503)
        elif self.path.startswith("/moved"):
            self.say(302, Location=f"{server.other}/login")
        else:
            self.say(server.code, server.body, Content_Type=server.type)

    do_HEAD = do_PUT = do_POST = do_GET


@pytest.fixture
def odd(monkeypatch):
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    with serving(Odd, code=403, body=b"", type="application/xml", ahead=0, busy=False,
                 other="") as server:
        for name, value in {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b",
                            "AWS_EC2_METADATA_DISABLED": "true",
                            "AWS_ENDPOINT_URL": server.url}.items():
            monkeypatch.setenv(name, value)
        yield server


def fails(*words):
    done = subprocess.run([COMMAND, *map(str, words)], capture_output=True, text=True, timeout=WAIT)
    assert done.returncode in (1, 3), (done.returncode, done.stdout, done.stderr)
    return done.stderr


ROWS = {
    "RequestTimeTooSkewed": (403, "clock of this machine differs", "set this machine's clock"),
    "RequestInTheFuture": (403, "clock of this machine differs", "set this machine's clock"),
    "RequestExpired": (400, "clock of this machine differs", "set this machine's clock"),
    "ExpiredToken": (400, "session token has expired", "log in again"),
    "ExpiredTokenException": (400, "session token has expired", "log in again"),
    "TokenRefreshRequired": (400, "session token has expired", "log in again"),
    "InvalidToken": (400, "session token is not valid", "log in again"),
    "InvalidAccessKeyId": (403, "does not know the access key", "creds explain"),
}


@pytest.mark.parametrize("code", ROWS)
def test_refusals(odd, tmp_path, code):
    odd.code, what, advice = ROWS[code]
    odd.body = xml(code)
    (tmp_path / "x").write_bytes(b"x")
    for words in (["ls", "s3://bucket/set"], ["cat", "s3://bucket/k"],
                  ["cp", tmp_path / "x", "s3://bucket/k"]):
        first, second = fails(*words).splitlines()
        assert what in first and code in first and "s3://bucket" in first, words
        assert second.startswith("  ") and advice in second


def test_clock_difference(odd):
    odd.body, odd.ahead = xml("RequestTimeTooSkewed"), 7200
    text = fails("cat", "s3://bucket/k")
    seconds = int(re.search(r"its clock is (\d+) s ahead of this machine's", text)[1])
    assert 7100 < seconds < 7300


def test_signed_url(odd):
    odd.body = xml("AccessDenied", "Request has expired")
    assert "the signed URL has expired" in fails("cat", f"{odd.url}/x?X-Amz-Signature=1")


@pytest.mark.parametrize("code", [200, 401, 403])
@pytest.mark.parametrize("words", [["ls", "s3://bucket/set"], ["cat", "s3://bucket/k"],
                                   ["cp", __file__, "s3://bucket/k"], ["cat", "gs://bucket/k"]])
def test_login_pages(odd, monkeypatch, words, code):
    """A page of a proxy in place of the store's answer, with whatever status."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", odd.url)
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    odd.code, odd.body, odd.type = code, PAGE, "text/html; charset=utf-8"
    text = fails(*words, "--read-timeout", "2")
    assert "web page" in text and "log in to the network" in text and words[-1] in text
    assert code == 200 or "Sign in to Airport" in text


def test_login_page_after_redirect(odd, tmp_path):
    """A web server that redirects to another host's login page; a page that was requested is
    accepted."""
    odd.code, odd.body, odd.type = 200, PAGE, "text/html"
    with serving(Odd, code=200, body=PAGE, type="text/html", ahead=0, busy=False,
                 other="") as other:
        odd.other = other.url.replace("127.0.0.1", "localhost")
        text = fails("cp", f"{odd.url}/moved/x.tar", tmp_path / "x.tar", "--read-timeout", "2")
        assert "web page" in text and not (tmp_path / "x.tar").exists()
        subprocess.run([COMMAND, "cp", f"{odd.url}/moved/x.html", tmp_path / "x.html"], check=True,
                       timeout=WAIT)
        assert (tmp_path / "x.html").read_bytes() == PAGE


def test_two_lines_in_python(odd):
    odd.body = xml("ExpiredToken")
    with stoker.Engine(threads=1, process_sharing=False) as engine:
        with pytest.raises(OSError) as why:
            stoker.cat("s3://bucket/k", engine=engine)
    first, second = str(why.value).splitlines()
    assert first.startswith("the session token has expired: 's3://bucket/k': HTTP 403 ExpiredToken")
    assert second.startswith("  log in again")
    with pytest.raises(stoker.ArgumentError) as why:
        stoker.Loader("x.tar", "a")
    assert len(str(why.value).splitlines()) == 2


def test_expired_credentials(monkeypatch, tmp_path):
    for name, value in {"AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": "c4n4ry0",
                        "AWS_CREDENTIAL_EXPIRATION": "2020-01-01T00:00:00Z"}.items():
        monkeypatch.setenv(name, value)
    for words in ([], ["--json"]):
        done = subprocess.run([COMMAND, "creds", "explain", "s3://b/k", *words],
                              capture_output=True, text=True, timeout=WAIT)
        assert done.returncode == 1 and "have expired" in done.stderr
        assert "expired" in done.stdout and "2020-01-01T00:00:00Z" in done.stdout
        assert "c4n4ry0" not in done.stdout + done.stderr
    monkeypatch.setenv("AWS_CREDENTIAL_EXPIRATION", "2220-01-01T00:00:00Z")
    subprocess.run([COMMAND, "creds", "explain", "s3://b/k"], check=True, capture_output=True)


def test_every_help():
    commands = re.findall(r"^  ([a-z-]+)  ", subprocess.run(
        [COMMAND, "help"], capture_output=True, text=True, check=True).stdout, re.M)
    assert "creds" in commands and len(commands) > 15
    for words in [*([name] for name in commands if name != "help"), ["creds", "explain"]]:
        done = subprocess.run([COMMAND, *words, "--help"], capture_output=True, text=True)
        assert done.returncode == 0 and done.stdout.startswith("usage: stoker"), words


class Slow(Handler):
    """Ranges of a tar, each after half a second."""

    def do_GET(self):
        first, last = map(int, self.headers["Range"][6:].split("-"))
        time.sleep(0.5)
        data = self.server.data
        body = data[first:last + 1]
        self.say(206, body, ETag='"e"',
                 Content_Range=f"bytes {first}-{first + len(body) - 1}/{len(data)}")


def test_two_reasons_to_be_idle(tmp_path):
    """Threads without work: the loader is ahead of a slow consumer, or waits for bytes."""
    make.tar(tmp_path / "a.tar", [(f"{i:04}.bin", os.urandom(1_000_000)) for i in range(60)])

    def times(source, pause):
        options = {"fields": {"x": stoker.Bytes("bin")}, "shuffle": "none", "output": "numpy"}
        with stoker.Engine(threads=2, memory=64 << 20, process_sharing=False) as engine, \
                stoker.Loader(source, 2, engine=engine, **options) as loader:
            for _ in loader:
                time.sleep(pause)
            stats = loader.stats()
        assert stats["idle_seconds"] == pytest.approx(
            stats["ahead_seconds"] + stats["storage_wait_seconds"])
        return stats["ahead_seconds"], stats["storage_wait_seconds"]

    ahead, storage = times(tmp_path / "a.tar", 0.05)
    assert ahead > 5 * storage and ahead > 0.5
    with serving(Slow, data=(tmp_path / "a.tar").read_bytes()) as server:
        ahead, storage = times(f"{server.url}/a.tar", 0)
    assert storage > 0.3


def test_waits_are_named(odd):
    """After 3 s the terminal names the host and the attempt; no other output does."""
    odd.busy = True
    words = ["cat", "s3://bucket/k", "--read-timeout", "6"]
    screen = on_terminal(words, 0, {})[0].decode()
    found = re.search(r"waiting for (\S+), attempt (\d+), 3 s", screen)
    assert found and found[1] == odd.host and int(found[2]) > 1
    assert "waiting for" not in fails(*words)
