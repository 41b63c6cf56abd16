"""`stoker fault-proxy`, as clients see it: each fault once, seen by http.client and by curl.

For faults of timing only the order is checked: what precedes the fault, and that it ends."""

from __future__ import annotations

import http.client
import json
import shutil
import signal
import socket
import subprocess
import threading
from contextlib import contextmanager

import pytest
import servers
from test_cli import COMMAND

BODY = bytes(range(256)) * 1024  # 256 KiB
WAIT = 60  # seconds: a bound for work that ends much sooner


class Proxy:
    def __init__(self, *words, rules=(), seed=None):
        script = json.dumps({"rules": list(rules), **({"seed": seed} if seed else {})})
        self.process = subprocess.Popen([COMMAND, "fault-proxy", "--rules", script,
                                         *map(str, words)],
                                        stdout=subprocess.PIPE, text=True)
        self.first = json.loads(self.process.stdout.readline())
        self.host, _, port = self.first["listening"].rpartition(":")
        self.port = int(port)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.stop()
        self.process.stdout.close()

    def stop(self):
        """The proxy's log."""
        self.process.send_signal(signal.SIGTERM)
        out = self.process.stdout.read()
        assert self.process.wait(WAIT) == 0
        return [json.loads(line) for line in out.splitlines()]

    def connect(self):
        return http.client.HTTPConnection(self.host, self.port, timeout=WAIT)

    def ask(self, path="/b/k", method="GET", headers=None, body=None):
        connection = self.connect()
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer, answer.read()
        finally:
            connection.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("store")
    (root / "b").mkdir()
    (root / "b/k").write_bytes(BODY)
    (root / "b/other").write_bytes(BODY[::-1])
    return root


class Behind(servers.Handler):
    """A server for the proxy to stand before."""

    def do_GET(self):
        self.server.seen.append(("GET", self.path, dict(self.headers)))
        if self.path == "/chunks":
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for start in range(0, len(BODY), 5000):
                piece = BODY[start:start + 5000]
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.write(b"0\r\n\r\n")
        elif self.path == "/end":
            self.send_response(200)
            self.end_headers()
            self.wfile.write(BODY)
            self.close_connection = True
        else:
            self.say(200, BODY, ETag='"one"', x_amz_checksum_crc32c="BAAAAA==")

    def do_PUT(self):
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.seen.append(("PUT", self.path, body))
        self.say(200)


@contextmanager
def behind():
    with servers.serving(Behind) as server:
        yield server, server.url


def test_passes_everything():
    with behind() as (server, url), Proxy("--to", url) as proxy:
        connection = proxy.connect()
        for path in ("/a", "/chunks", "/a?x=1", "/end", "/a"):
            connection.request("GET", path, headers={"X-Mine": "kept", "Host": "bucket.example"})
            assert connection.getresponse().read() == BODY
        connection.request("PUT", "/p", BODY)
        assert connection.getresponse().read() == b""
        connection.request("PUT", "/q", iter([BODY, b"x"]), encode_chunked=True,
                           headers={"Transfer-Encoding": "chunked"})
        assert connection.getresponse().read() == b""
        connection.close()
        log = proxy.stop()
    assert [seen[2]["Host"] for seen in server.seen[:5]] == ["bucket.example"] * 5
    assert [seen[2]["X-Mine"] for seen in server.seen[:5]] == ["kept"] * 5
    assert server.seen[2][1] == "/a?x=1"
    assert server.seen[5:] == [("PUT", "/p", BODY), ("PUT", "/q", BODY + b"x")]
    assert [line["status"] for line in log] == [200] * 7
    assert [line["path"] for line in log] == ["/a", "/chunks", "/a", "/end", "/a", "/p", "/q"]
    assert all(line["end"] == "done" and "fault" not in line for line in log)


def test_many_clients(folder):
    with Proxy("--folder", folder, "--connections", 4) as proxy:  # fewer than clients: they wait
        results = []

        def client():
            connection = proxy.connect()
            for _ in range(5):
                connection.request("GET", "/b/k", headers={"Range": "bytes=100-99999"})
                results.append(connection.getresponse().read() == BODY[100:100000])
            connection.close()

        threads = [threading.Thread(target=client) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == [True] * 60
        assert len(proxy.stop()) == 60


@pytest.mark.parametrize("server", ["proxy", "folder"])
@pytest.mark.parametrize("fault, error", [
    ("reset", ConnectionResetError), ("truncate", http.client.IncompleteRead)])
def test_ends_at_byte(folder, server, fault, error):
    rules = [{"fault": fault, "at": 100_000, "nth": 1}]
    with behind() as (_, url):
        words = ("--to", url) if server == "proxy" else ("--folder", folder)
        with Proxy(*words, rules=rules) as proxy:
            connection = proxy.connect()
            connection.request("GET", "/b/k")
            answer = connection.getresponse()
            assert answer.status == 200 and int(answer.headers["Content-Length"]) == len(BODY)
            got = b""
            with pytest.raises(error) as raised:
                while piece := answer.read1(1000):
                    got += piece
                raise http.client.IncompleteRead(got)
            assert got == BODY[:100_000], raised
            connection.close()
            assert proxy.ask()[1] == BODY  # the second answer is complete
            log = proxy.stop()
    assert log[0]["fault"] == fault and log[0]["body_bytes"] == 100_000
    assert log[0]["end"] == {"reset": "reset", "truncate": "truncated"}[fault]


@pytest.mark.parametrize("fault, error", [
    ("reset", ConnectionResetError), ("truncate", http.client.RemoteDisconnected)])
def test_ends_before(fault, error):
    rules = [{"fault": fault, "method": "PUT"}, {"fault": fault, "at": -1, "path": "/lost"}]
    with behind() as (server, url), Proxy("--to", url, rules=rules) as proxy:
        with pytest.raises((error, BrokenPipeError)):
            proxy.ask("/p", "PUT", body=b"x")
        assert server.seen == []  # it did not get through
        with pytest.raises(error):
            proxy.ask("/lost")
        assert [seen[1] for seen in server.seen] == ["/lost"]  # it did: only the answer is lost


def test_stall(folder):
    with Proxy("--folder", folder, rules=[{"fault": "stall", "at": 10}]) as proxy:
        with socket.create_connection((proxy.host, proxy.port)) as client:
            client.sendall(b"GET /b/k HTTP/1.1\r\nHost: x\r\n\r\n")
            got = b""
            client.settimeout(WAIT)
            while not got.endswith(b"\r\n\r\n" + BODY[:10]):
                got += client.recv(1000)
            client.settimeout(0.3)
            with pytest.raises(TimeoutError):
                client.recv(1)
        assert "stalled" in proxy.stop()[0]["end"]


def test_stall_that_goes_on(folder):
    with Proxy("--folder", folder, rules=[{"fault": "stall", "at": 10, "ms": 50}]) as proxy:
        assert proxy.ask()[1] == BODY
        assert proxy.stop()[0]["ms"] >= 50


def test_slow_and_delay(folder):
    rules = [{"fault": "slow", "rate": 4000, "path": "/b/slow"},
             {"fault": "delay", "delay_ms": 80}]
    (folder / "b/slow").write_bytes(b"x" * 400)
    with Proxy("--folder", folder, rules=rules) as proxy:
        assert proxy.ask("/b/slow")[1] == b"x" * 400
        assert proxy.ask()[1] == BODY
        slow, delayed = proxy.stop()
    assert slow["ms"] >= 100 and delayed["ms"] >= 80  # at least: a busy machine takes longer


def test_slow_from_a_byte_on(folder):
    """The bytes before `at` are sent at once."""
    (folder / "b/late").write_bytes(b"x" * 100_000)
    rules = [{"fault": "slow", "rate": 100, "at": 99_990, "path": "/b/late"}]
    with Proxy("--folder", folder, rules=rules) as proxy:
        assert proxy.ask("/b/late")[1] == b"x" * 100_000
        assert 100 <= proxy.stop()[0]["ms"] < 1000 * WAIT  # the whole body would take 1,000 s


@pytest.mark.parametrize("behind_it", [True, False])
def test_slow_read(behind_it):
    """The request body is limited to the rate; the answer and the next request are not."""
    rules = [{"fault": "slow-read", "rate": 1000, "count": 1}]
    with behind() as (server, url), \
            Proxy(*(("--to", url) if behind_it else ()), rules=rules) as proxy:
        connection = proxy.connect()
        for name in "pq":
            connection.request("PUT", f"/{name}", b"x" * 200)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == (200 if behind_it else 404)
        connection.close()
        slow, plain = proxy.stop()
    assert slow["fault"] == "slow-read" and slow["ms"] >= 190 and "fault" not in plain
    assert server.seen == ([("PUT", f"/{name}", b"x" * 200) for name in "pq"] if behind_it else [])


def test_close_unannounced(folder):
    with Proxy("--folder", folder, rules=[{"fault": "close", "nth": 2}]) as proxy:
        connection = proxy.connect()
        for number in range(2):
            connection.request("GET", "/b/k")
            answer = connection.getresponse()
            assert answer.read() == BODY and "Connection" not in answer.headers, number
        with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
            connection.request("GET", "/b/k")
            connection.getresponse()
        connection.close()


ANSWERS = [
    ({"fault": "status", "retry_after": 3}, 503, b"<Code>SlowDown</Code>"),
    ({"fault": "status", "status": 429}, 429, b"<Code>TooManyRequests</Code>"),
    ({"fault": "status", "status": 500}, 500, b"<Code>InternalError</Code>"),
    ({"fault": "status", "status": 403, "code": "SignatureDoesNotMatch"}, 403,
     b"<Code>SignatureDoesNotMatch</Code>"),
    ({"fault": "error-body"}, 200, b"<Error><Code>InternalError</Code>"),
    ({"fault": "expired"}, 400, b"<Code>ExpiredToken</Code>"),
    ({"fault": "too-skewed"}, 403, b"<Code>RequestTimeTooSkewed</Code>"),
    ({"fault": "xml-bomb"}, 200, b"<!ENTITY"),
    ({"fault": "deep-xml"}, 200, b"<a><a><a>"),
    ({"fault": "answer", "status": 404, "body": "no", "headers": {"A": "b"}}, 404, b"no"),
]


@pytest.mark.parametrize("rule, status, part", ANSWERS, ids=[str(row[0]) for row in ANSWERS])
def test_answers(rule, status, part):
    with behind() as (server, url), Proxy("--to", url, rules=[rule]) as proxy:
        connection = proxy.connect()
        for _ in range(2):  # also with keep-alive
            connection.request("PUT", "/p", BODY)
            answer = connection.getresponse()
            assert answer.status == status and part in answer.read()
            for name, value in rule.get("headers", {}).items():
                assert answer.headers[name] == value
            assert answer.headers.get("Retry-After") == ("3" if "retry_after" in rule else None)
        connection.close()
        assert server.seen == []


def test_redirect():
    with Proxy(rules=[{"fault": "redirect"}, ]) as proxy:
        answer, _ = proxy.ask()
        assert answer.status == 307
        assert answer.headers["Location"].startswith("http://169.254.169.254/")


def test_lists():
    rules = [{"fault": "endless-list", "path": "/new"}, {"fault": "stuck-list"}]
    with Proxy(rules=rules) as proxy:
        new = [proxy.ask("/new?list-type=2")[1] for _ in range(3)]
        same = [proxy.ask("/same?list-type=2")[1] for _ in range(3)]
    assert len(set(new)) == 3 and len(set(same)) == 1
    assert all(b"<IsTruncated>true</IsTruncated>" in page for page in new + same)


def test_without_an_end():
    rules = [{"fault": "endless-head", "path": "/head"}, {"fault": "endless-body"}]
    with Proxy(rules=rules) as proxy:
        with pytest.raises(http.client.HTTPException):
            proxy.ask("/head")
        connection = proxy.connect()
        connection.request("GET", "/body")
        assert len(connection.getresponse().read(3_000_000)) == 3_000_000
        connection.close()


def test_raw():
    """The effect of a rule, byte by byte; and endless interim answers."""
    text = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc"
    with Proxy(rules=[{"fault": "raw", "body": text, "path": "/raw"},
                      {"fault": "endless-interim"}]) as proxy:
        for path, want in (("/raw", text.encode()), ("/", b"HTTP/1.1 100 Continue\r\n\r\n" * 9999)):
            with socket.create_connection((proxy.host, proxy.port), WAIT) as client:
                client.sendall(f"GET {path} HTTP/1.1\r\nHost: h\r\n\r\n".encode())
                got = b""
                while len(got) < len(want) and (more := client.recv(65536)):
                    got += more
                assert got[:len(want)] == want
                assert path == "/" or client.recv(1) == b""


def test_a_log_without_a_reader():
    """Answers are sent all the same; a client that reads on gets the number of missing lines."""
    with Proxy(rules=[{"fault": "status"}]) as proxy:
        connection = proxy.connect()
        requested = 3000
        for i in range(requested):  # far more than a pipe can hold
            connection.request("GET", f"/{i}/" + "x" * 200)
            connection.getresponse().read()
        line = {}
        while "lost_before" not in line:  # first the lines that were written before
            line = json.loads(proxy.process.stdout.readline())
            connection.request("GET", "/on")
            connection.getresponse().read()
        connection.close()
        assert line["lost_before"] > 0
        proxy.stop()


def test_garbage():
    with Proxy(rules=[{"fault": "garbage"}]) as proxy, \
            pytest.raises(http.client.BadStatusLine):
        proxy.ask()


@pytest.mark.parametrize("server", ["proxy", "folder"])
def test_bodies_and_heads(folder, server):
    rules = [{"fault": "flip", "at": 1000, "path": "/b/k"}, {"fault": "swap", "path": "/b/swap"},
             {"fault": "etag", "value": '"two"', "path": "/b/other", "count": 1},
             {"fault": "checksum", "path": "/b/other", "count": 1},
             {"fault": "skew", "seconds": 86400, "path": "/b/other"}]
    (folder / "b/swap").write_bytes(BODY)
    with behind() as (_, url):
        words = ("--to", url) if server == "proxy" else ("--folder", folder)
        with Proxy(*words, rules=rules) as proxy:
            got = proxy.ask("/b/k")[1]
            assert [i for i in range(len(BODY)) if got[i] != BODY[i]] == [1000]
            got = proxy.ask("/b/swap")[1]
            assert len(got) == len(BODY) and not any(map(int.__eq__, got, BODY))
            assert proxy.ask("/b/other")[0].headers["ETag"] == '"two"'
            checksum = proxy.ask("/b/other")[0].headers["x-amz-checksum-crc32c"]
            assert checksum == "AAAAAA=="
            proxy.ask("/b/other")


def test_ranges(folder):
    rules = [{"fault": "wrong-range", "count": 1, "range": True},
             {"fault": "no-range", "count": 1, "range": True},
             {"fault": "swap", "with": "/b/other", "count": 1, "range": True}]
    wanted = {"Range": "bytes=1000-1999"}
    with Proxy("--folder", folder, rules=rules) as proxy:
        etag = proxy.ask(method="HEAD")[0].headers["ETag"]
        answer, body = proxy.ask(headers=wanted)
        assert answer.status == 206 and body == BODY[1000:2000]
        assert answer.headers["Content-Range"] == f"bytes 1001-2000/{len(BODY)}"
        answer, body = proxy.ask(headers=wanted)
        assert answer.status == 200 and body == BODY
        answer, body = proxy.ask(headers={**wanted, "If-Match": etag})  # no client received it
        assert answer.status == 206 and body == BODY[::-1][1000:2000]
        assert answer.headers["ETag"] != etag
        assert [line["range"] for line in proxy.stop()[1:]] == ["bytes=1000-1999"] * 3


def test_share_of_requests_by_seed():
    def statuses(seed):
        with Proxy(rules=[{"fault": "status", "probability": 0.3}], seed=seed) as proxy:
            connection, seen = proxy.connect(), []
            for _ in range(100):
                connection.request("GET", "/")
                answer = connection.getresponse()
                answer.read()
                seen.append(answer.status)
            connection.close()
        return seen

    first = statuses(5)
    assert first == statuses(5) != statuses(6)
    assert 15 <= first.count(503) <= 45


def test_log_has_no_query_and_no_headers(folder):
    secret = "canary0secret"
    with Proxy("--folder", folder) as proxy:
        proxy.ask(f"/b/k?X-Amz-Signature={secret}", headers={"Authorization": f"Bearer {secret}"})
        log = proxy.stop()
    assert log and secret not in json.dumps(log)


def test_requests_that_are_none(folder):
    for text in (b"\x16\x03\x01\r\n\r\n", b"GET / HTTP/1.1\r\nA : b\r\n\r\n",
                 b"PUT / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
                 b"a" * 70_000):
        with Proxy("--folder", folder) as proxy, \
                socket.create_connection((proxy.host, proxy.port), timeout=WAIT) as client:
            client.sendall(text)
            assert client.recv(100).startswith(b"HTTP/1.1 400 ")


def test_a_server_that_is_not_there():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    with Proxy("--to", f"http://127.0.0.1:{port}") as proxy:
        assert proxy.ask()[0].status == 502


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not installed")
def test_curl(folder, tmp_path):
    rules = [{"fault": "truncate", "at": 5000, "count": 1}, {"fault": "status", "count": 1}]
    with Proxy("--folder", folder, rules=rules) as proxy:
        out = tmp_path / "out"
        url = f"http://{proxy.host}:{proxy.port}/b/k"
        run = subprocess.run(["curl", "-sS", "-o", out, url], capture_output=True, text=True)
        assert run.returncode == 18, run.stderr  # CURLE_PARTIAL_FILE
        assert out.read_bytes() == BODY[:5000]
        subprocess.run(["curl", "-sSf", "--retry", "1", "--retry-delay", "1", "-o", out, url],
                       check=True)
        assert out.read_bytes() == BODY


def test_usage(tmp_path):
    def run(*words):
        return subprocess.run([COMMAND, "fault-proxy", *words], capture_output=True, text=True)

    help_text = run("--help")
    assert help_text.returncode == 0 and "xml-bomb" in help_text.stdout
    for words, part in ((["fault-proxy"], help_text.stdout), ([], "fault-proxy ")):
        shown = subprocess.run([COMMAND, "help", *words], capture_output=True, text=True).stdout
        assert shown == part if words else part in shown
    bad = tmp_path / "bad.json"
    bad.write_text('{"rules": [{"fault": "none such"}]}')
    for words, status in ((("--nothing",), 2), (("--seed", "x"), 2), (("--listen",), 2),
                          (("--script", str(bad)), 3), (("--script", "/none"), 3),
                          (("--to", "https://x:1"), 3), (("--folder", "/none"), 3),
                          (("--listen", "nowhere"), 3)):
        result = run(*words)
        assert result.returncode == status and result.stderr, words
