"""Listings of servers whose pages form a circle, or lead nowhere.

Goal: a listing ends, with an error that says so, whatever a server reports as its next page; and a
listing that only has many pages is complete. Method: one server that answers as S3, Google, Azure
and the hub would: pages by their numbers, and the start of the next one as each case defines it.
"""

import bisect
import hashlib
import itertools
import json
import os
import subprocess
import threading
import urllib.parse
from xml.sax.saxutils import escape

import pytest
import servers
from test_cli import COMMAND

STORES = {"s3": "s3://bucket/set/", "gs": "gs://bucket/set/", "az": "az://bucket/set/",
          "hf": "hf://datasets/org/name/set/"}


class Pages(servers.Handler):
    """`server.page(n)`: names, or None, and the number of the next page, or None."""

    disable_nagle_algorithm = True

    def do_HEAD(self):
        self.say(404)

    def do_GET(self):
        path, _, text = self.path.partition("?")
        query = dict(urllib.parse.parse_qsl(text, keep_blank_values=True))
        given = (query.get("continuation-token") or query.get("marker") or query.get("cursor")
                 or "0")
        self.server.requested += 1
        names, following = self.server.page(int(given), self.server.requested)
        headers = {}
        if path.startswith("/api/"):
            body = json.dumps([{"type": "directory" if name.endswith("/") else "file", "size": 1,
                                "path": "set/" + name.rstrip("/")} for name in names])
            if following is not None:
                link = f"{self.server.url}{path}?cursor={following}"
                headers["Link"] = f'<{link}>; rel="{self.server.word}"'
        elif "restype" in query:
            marker = "" if following is None else following
            body = "".join(f"<BlobPrefix><Name>set/{name}</Name></BlobPrefix>"
                           if name.endswith("/") else
                           f"<Blob><Name>set/{name}</Name><Properties><Content-Length>1"
                           "</Content-Length></Properties></Blob>"
                           for name in names)
            body = (f"<EnumerationResults><Blobs>{body}</Blobs><NextMarker>{marker}</NextMarker>"
                    "</EnumerationResults>")
        else:
            more = "" if following is None else (
                f"<IsTruncated>true</IsTruncated><NextContinuationToken>{following}"
                "</NextContinuationToken>")
            body = "".join(f"<CommonPrefixes><Prefix>set/{name}</Prefix></CommonPrefixes>"
                           if name.endswith("/") else
                           f"<Contents><Key>set/{name}</Key><Size>1</Size></Contents>"
                           for name in names)
            body = f"<ListBucketResult>{more}{body}</ListBucketResult>"
        self.say(200, body.encode(), **headers)


@pytest.fixture
def server(monkeypatch, tmp_path):
    for name in [name for name in os.environ
                 if name.startswith(("AWS_", "GS_", "AZURE_", "GOOGLE_", "STORAGE_", "HF_"))]:
        monkeypatch.delenv(name)
    with servers.serving(Pages, requested=0, word="next") as server:
        for name, value in {
                "HOME": tmp_path, "CLOUDSDK_CONFIG": tmp_path, "NO_GCE_CHECK": "true",
                "AWS_ENDPOINT_URL": server.url, "AWS_NO_SIGN_REQUEST": "true",
                "AWS_EC2_METADATA_DISABLED": "true", "GS_NO_SIGN_REQUEST": "true",
                "STORAGE_EMULATOR_HOST": server.url, "AZURE_NO_SIGN_REQUEST": "true",
                "AZURE_STORAGE_CONNECTION_STRING":
                    f"BlobEndpoint={server.url}/acc;AccountName=acc",
                "HF_ENDPOINT": server.url, "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}.items():
            monkeypatch.setenv(name, str(value))
        yield server


def ls(url, *words):
    return subprocess.run([COMMAND, "ls", "--files", *words, url], capture_output=True, timeout=120,
                          check=False, text=True)


ENDLESS = {  # how the listing continues, and the largest number of pages that are requested
    "the page itself": (lambda n, requested: ([f"{n:06}"], 0 if n == 0 else n), 4),
    "two in turn": (lambda n, requested: ([f"{n:06}"], {0: 1, 1: 2, 2: 1}[n]), 8),
    "a circle of 37": (lambda n, requested: ([f"{n:06}"], n + 1 if n < 100 else 64), 400),
    "the same page by ever other words": (lambda n, requested: (["a", "b"], requested), 8),
    "a circle by ever other words": (lambda n, requested: ([f"{requested % 3}"], requested), 16),
    "two of folders in turn": (lambda n, requested: ([f"{n}/"], {0: 1, 1: 2, 2: 1}[n]), 8),
    "pages of nothing": (lambda n, requested: ([], requested), 2100),
    "the same folder": (lambda n, requested: (["a/"], requested), 2100),
}


@pytest.mark.parametrize("case,deep", [(case, deep) for case in ENDLESS for deep in (False, True)
                                       if not (deep and "folder" in case)])
@pytest.mark.parametrize("store", STORES)
def test_a_listing_without_an_end(server, store, case, deep):
    server.page, most = ENDLESS[case]
    done = ls(STORES[store], *["--recursive"][:deep])
    assert done.returncode not in (0, -9), done.stdout
    assert server.requested <= most
    assert f"{store}://" in done.stderr
    if not (deep and store == "s3"):  # S3 is held to its order, which is broken first
        assert "repeats a page" in done.stderr or "has no end" in done.stderr


@pytest.mark.parametrize("store", STORES)
def test_names_without_an_end(server, store, monkeypatch):
    """Always different entries, in order: only a limited number of them are kept in memory."""
    monkeypatch.setenv("STOKER_LIST_NAMES_MAX", "50")
    server.page = lambda n, requested: ([f"{n:09}.tar"], n + 1)
    done = subprocess.run([COMMAND, "ls", STORES[store]], capture_output=True, timeout=120,
                          check=False, text=True)
    assert done.returncode != 0 and "STOKER_LIST_NAMES_MAX" in done.stderr, done.stderr
    assert STORES[store] in done.stderr and server.requested <= 60


@pytest.mark.parametrize("store", STORES)
def test_a_long_way(server, store):
    """Empty pages, as stores return them for removed objects; folders that are listed twice."""

    def page(n, requested):
        names = {1200: ["a", "b/"], 1201: ["b/"], 1202: ["b/"], 1800: ["c"]}.get(n, [])
        return names, n + 1 if n < 2500 else None

    server.page = page
    done = ls(STORES[store])
    assert done.returncode == 0, done.stderr
    assert [line.split()[-1].rstrip("/").rsplit("/", 1)[-1] for line in
            dict.fromkeys(done.stdout.splitlines())] == ["a", "b", "c"]


def test_a_next_page_that_cannot_be_had(server):
    """It is not the end: the entries after it would be missed."""
    server.page = lambda n, requested: ([f"{n:06}"], "1" * 5000 if n == 0 else None)
    done = ls(STORES["hf"])
    assert done.returncode != 0 and "has no link to its next page" in done.stderr
    server.page = lambda n, requested: ([f"{n:06}"], n + 1 if n < 2 else None)
    server.word = "Next"
    done = ls(STORES["hf"])
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 3


@pytest.mark.parametrize("store", ["gs", "az", "hf"])
def test_an_order_of_ones_own(server, store):
    """Only S3 defines the order of its listings: Azure's with folders sorts '/' first."""
    server.page = lambda n, requested: ((["a/b", "a-b"], 1) if n == 0 else (["Z", "0"], None))
    done = ls(STORES[store], "--recursive")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 4


LETTERS = [chr(code) for code in range(33, 127) if chr(code) not in "/\\\\"]
KEYS = sorted([*LETTERS, *map("".join, itertools.product(LETTERS, repeat=2))])


class Ordered(Pages):
    """S3, with KEYS: after start-after or the token, 1,000 a page, and each page is slow."""

    def do_GET(self):
        query = dict(urllib.parse.parse_qsl(self.path.partition("?")[2], keep_blank_values=True))
        after = query.get("continuation-token") or query.get("start-after") or ""
        begin = bisect.bisect_right(KEYS, after.removeprefix("set/"))
        names, more = KEYS[begin:begin + 1000], begin + 1000 < len(KEYS)
        with self.server.lock:
            self.server.starts.add(query.get("start-after", ""))
        threading.Event().wait(0.05)
        self.say(200, ("<ListBucketResult><EncodingType>url</EncodingType>"
                       f"<IsTruncated>{str(more).lower()}</IsTruncated>"
                       + (f"<NextContinuationToken>{escape('set/' + names[-1])}"
                          "</NextContinuationToken>" if more else "")
                       + "".join("<Contents><Key>set/" + urllib.parse.quote(name)
                                 + "</Key><Size>1</Size></Contents>" for name in names)
                       + "</ListBucketResult>").encode())


def test_stretches_side_by_side(server):
    """Each key once, whatever cuts the stretches: also the key that a cut is named by. Some times,
    for it was wrong in one of four only."""
    server.RequestHandlerClass, server.lock, server.starts = Ordered, threading.Lock(), set()
    for _ in range(8):
        done = ls(STORES["s3"], "--recursive")
        assert done.returncode == 0, done.stderr
        found = [line.split(maxsplit=2)[2] for line in done.stdout.splitlines()]
        assert len(found) == len(KEYS) and sorted(found) == KEYS
    assert {start.removeprefix("set/") for start in server.starts} & set(KEYS)  # it was cut there


class Damaged(Pages):
    """An S3 object whose ETag is its MD5; `server.bodies` are sent in turn, the last one
    repeatedly."""

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        bodies = self.server.bodies
        probe = self.headers.get("Range") == "bytes=0-0" or self.command == "HEAD"
        body = bodies[0] if probe or len(bodies) == 1 else bodies.pop(0)
        self.say(206 if "Range" in self.headers else 200, body[:1] if probe else body,
                 ETag=f'"{self.server.etag}"',
                 Content_Range=f"bytes 0-{0 if probe else len(body) - 1}/{len(body)}")


def test_an_object_that_comes_damaged(server, tmp_path):
    """Checked by its ETag: read again; complete, or an error. An ETag that only looks like an MD5
    does not prevent the read."""
    good, bad, worse = b"a" * 5000, b"b" * 5000, b"c" * 5000
    server.RequestHandlerClass = Damaged
    for name, bodies, etag, want in [
            ("once", [bad, good], hashlib.md5(good).hexdigest(), good),
            ("each time another", [bad, worse, b"d" * 5000, b"e" * 5000, b"f" * 5000] * 4,
             hashlib.md5(good).hexdigest(), None),
            ("no MD5", [good], "0" * 32, good)]:
        server.bodies, server.etag = bodies, etag
        done = subprocess.run([COMMAND, "cp", "s3://bucket/set/x", tmp_path / name],
                              capture_output=True, timeout=120, check=False, text=True)
        assert (done.returncode == 0) == (want is not None), (name, done.stderr)
        assert (tmp_path / name).exists() == (want is not None), name
        assert not want or (tmp_path / name).read_bytes() == want, name
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".stoker-")]
