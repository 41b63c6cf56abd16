"""Listings of servers that lead round in a circle, or nowhere.

Goal: a listing ends, with an error that says so, whatever a server tells of its next page; and one
that only takes many pages is whole.
Method: one server that answers as S3, Google, Azure and the hub would: pages by their numbers, and
where the next one begins, as each case has it.
"""

import http.server
import json
import os
import subprocess
import threading
import urllib.parse

import pytest
from test_cli import COMMAND

STORES = {"s3": "s3://bucket/set/", "gs": "gs://bucket/set/", "az": "az://bucket/set/",
          "hf": "hf://datasets/org/name/set/"}


class Pages(http.server.BaseHTTPRequestHandler):
    """`server.page(n)`: names, or None, and the number of the next page, or None."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.say(404, b"", {})

    def do_GET(self):
        path, _, text = self.path.partition("?")
        query = dict(urllib.parse.parse_qsl(text, keep_blank_values=True))
        given = (query.get("continuation-token") or query.get("marker") or query.get("cursor")
                 or "0")
        self.server.asked += 1
        names, following = self.server.page(int(given), self.server.asked)
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
                           if name.endswith("/") else f"<Blob><Name>set/{name}</Name></Blob>"
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
        self.say(200, body.encode(), headers)

    def say(self, code, body, headers):
        self.send_response_only(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@pytest.fixture
def server(monkeypatch, tmp_path):
    for name in [name for name in os.environ
                 if name.startswith(("AWS_", "GS_", "AZURE_", "GOOGLE_", "STORAGE_", "HF_"))]:
        monkeypatch.delenv(name)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        server.daemon_threads = True
        server.asked, server.word = 0, "next"
        server.url = f"http://127.0.0.1:{server.server_address[1]}"
        for name, value in {
                "HOME": tmp_path, "CLOUDSDK_CONFIG": tmp_path, "NO_GCE_CHECK": "true",
                "AWS_ENDPOINT_URL": server.url, "AWS_NO_SIGN_REQUEST": "true",
                "AWS_EC2_METADATA_DISABLED": "true", "GS_NO_SIGN_REQUEST": "true",
                "STORAGE_EMULATOR_HOST": server.url, "AZURE_NO_SIGN_REQUEST": "true",
                "AZURE_STORAGE_CONNECTION_STRING":
                    f"BlobEndpoint={server.url}/acc;AccountName=acc",
                "HF_ENDPOINT": server.url, "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}.items():
            monkeypatch.setenv(name, str(value))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def ls(url, *words):
    return subprocess.run([COMMAND, "ls", "--files", *words, url], capture_output=True, timeout=120,
                          check=False, text=True)


ENDLESS = {  # how it goes on, and how many pages are asked for at most
    "the page itself": (lambda n, asked: ([f"{n:06}"], 0 if n == 0 else n), 4),
    "two in turn": (lambda n, asked: ([f"{n:06}"], {0: 1, 1: 2, 2: 1}[n]), 8),
    "a circle of 37": (lambda n, asked: ([f"{n:06}"], n + 1 if n < 100 else 64), 400),
    "the same page by ever other words": (lambda n, asked: (["a", "b"], asked), 8),
    "a circle by ever other words": (lambda n, asked: ([f"{asked % 3}"], asked), 16),
    "pages of nothing": (lambda n, asked: ([], asked), 2100),
    "the same folder": (lambda n, asked: (["a/"], asked), 2100),
}


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("case", ENDLESS)
@pytest.mark.parametrize("store", STORES)
def test_a_listing_without_an_end(server, store, case, deep):
    server.page, most = ENDLESS[case]
    if deep and case == "the same folder":
        pytest.skip("there are none")
    done = ls(STORES[store], *["--recursive"][:deep])
    assert done.returncode not in (0, -9), done.stdout
    assert server.asked <= most
    assert f"{store}://" in done.stderr
    if not (deep and store == "s3"):  # S3 is held to its order, which is broken first
        assert "comes back to a page" in done.stderr or "has no end" in done.stderr


@pytest.mark.parametrize("store", STORES)
def test_a_long_way(server, store):
    """Pages of nothing, as stores give them for what was removed; folders that are told twice."""

    def page(n, asked):
        names = {1200: ["a", "b/"], 1201: ["b/"], 1202: ["b/"], 1800: ["c"]}.get(n, [])
        return names, n + 1 if n < 2500 else None

    server.page = page
    done = ls(STORES[store])
    assert done.returncode == 0, done.stderr
    assert [line.split()[-1].rstrip("/").rsplit("/", 1)[-1] for line in
            dict.fromkeys(done.stdout.splitlines())] == ["a", "b", "c"]


def test_a_next_page_that_cannot_be_had(server):
    """It is no end: what lies behind it would be missed."""
    server.page = lambda n, asked: ([f"{n:06}"], "1" * 5000 if n == 0 else None)
    done = ls(STORES["hf"])
    assert done.returncode != 0 and "does not tell how it goes on" in done.stderr
    server.page = lambda n, asked: ([f"{n:06}"], n + 1 if n < 2 else None)
    server.word = "Next"
    done = ls(STORES["hf"])
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 3


@pytest.mark.parametrize("store", ["gs", "az", "hf"])
def test_an_order_of_ones_own(server, store):
    """Only S3 says in which order it lists: Azure's with folders sorts '/' first."""
    server.page = lambda n, asked: ((["a/b", "a-b"], 1) if n == 0 else (["Z", "0"], None))
    done = ls(STORES[store], "--recursive")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 4
