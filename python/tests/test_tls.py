"""Stores with TLS: read, and refused if the server's certificate does not match.

Goal: with the named authority data is exact; with another host's certificate, an untrusted one, or
none at all there is one error that says so, soon, and no request was sent. Method: nginx with a
certificate of this test for "localhost"; the command and the package. Then `stoker fault-proxy
--tls`, whose certificate is for any host, and whose faults are the same inside TLS: seen by
Python's ssl, and by the command.
"""

import http.client
import os
import socket
import ssl
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
import servers
import stoker
from test_cli import COMMAND
from test_fault_proxy import BODY, WAIT, Proxy, behind


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    data = tmp_path_factory.mktemp("data")
    (data / "bucket").mkdir()
    (data / "bucket" / "key").write_bytes(bytes(range(256)) * 4096)
    try:
        server = servers.Nginx(tmp_path_factory.mktemp("tls"), data, tls=True)
    except servers.Absent as why:
        pytest.skip(str(why))
    yield server, (data / "bucket" / "key").read_bytes()
    server.close()


def cat(url, *words, **environment):
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith("AWS_") and name != "SSL_CERT_FILE"}
    return subprocess.run(
        [COMMAND, "cat", *words, url], capture_output=True, check=False, timeout=60,
        env={**kept, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b",
             "AWS_CONFIG_FILE": os.devnull, **{name: str(v) for name, v in environment.items()}})


def test_trusted(place):
    server, data = place
    for name in ("AWS_CA_BUNDLE", "SSL_CERT_FILE"):
        done = cat(f"{server.tls_url}/bucket/key", **{name: server.certificate})
        assert done.returncode == 0 and done.stdout == data, done.stderr
    done = cat("s3://bucket/key", AWS_ENDPOINT_URL=server.tls_url, AWS_CA_BUNDLE=server.certificate)
    assert done.returncode == 0 and done.stdout == data, done.stderr


def test_not_trusted(place):
    server, _ = place
    other = server.tls_url.replace("localhost", "127.0.0.1")
    requested = server.log.read_text().count("\n")
    for url, bundle in ((other, server.certificate), (server.tls_url, None)):
        for way in (f"{url}/bucket/key", "s3://bucket/key"):
            more = {"AWS_CA_BUNDLE": bundle} if bundle else {}
            done = cat(way, AWS_ENDPOINT_URL=url, **more)
            text = done.stderr.decode()
            assert done.returncode == 3 and not done.stdout
            assert "certificate is not trusted" in text and "AWS_CA_BUNDLE" in text
            assert url.partition("//")[2] in text and "tries" not in text
    assert server.log.read_text().count("\n") == requested  # no request went out


def test_plain_and_tls_confused(place, monkeypatch):
    server, _ = place
    port, tls_port = server.url.rpartition(":")[2], server.tls_url.rpartition(":")[2]
    monkeypatch.setenv("AWS_CA_BUNDLE", str(server.certificate))
    for url in (f"https://localhost:{port}/bucket/key", f"http://localhost:{tls_port}/bucket/key"):
        with stoker.Engine(threads=1, read_timeout=5) as engine, \
                pytest.raises(stoker.Error) as raised:
            stoker.Dataset(url, engine=engine)
        assert url in str(raised.value) or "localhost" in str(raised.value)
        assert raised.value.advice


class TlsProxy(Proxy):
    def __init__(self, folder, *words, **more):
        self.certificate = folder / "certificate.pem"
        super().__init__("--tls", "--tls-cert-out", self.certificate, *words, **more)
        self.place = f"localhost:{self.port}"

    def connect(self):
        context = ssl.create_default_context(cafile=self.certificate)
        return http.client.HTTPSConnection("localhost", self.port, timeout=WAIT, context=context)

    def ask_raw(self, path):
        """All received bytes, and the end: closed by TLS, cut, or reset (Python's TLS sockets do
        not distinguish a reset from a cut)."""
        context = ssl.create_default_context(cafile=self.certificate)
        context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
        came, goes = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = context.wrap_bio(came, goes, server_hostname="localhost")
        got = b""
        with socket.create_connection((self.host, self.port), WAIT) as plain:

            def finish(call, *words):
                while True:
                    try:
                        return call(*words)
                    except ssl.SSLWantReadError:
                        # if nothing is sent, a reset is not detected before its time
                        if goes.pending:
                            plain.sendall(goes.read())
                        more = plain.recv(65536)
                        came.write(more) if more else came.write_eof()

            finish(client.do_handshake)
            client.write(f"GET {path} HTTP/1.1\r\nHost: h\r\n\r\n".encode())
            try:
                while more := finish(client.read, 65536):
                    got += more
                return got, "reported"
            except ConnectionResetError:
                return got, "reset"
            except ssl.SSLError as error:  # in words that differ by version
                assert "EOF" in str(error)
                return got, "cut"


def test_fault_passes_both_ways(tmp_path):
    body = BODY * 20  # far more than a socket buffers
    with behind() as (server, url), TlsProxy(tmp_path, "--to", url) as proxy:
        connection = proxy.connect()
        for path in ("/a", "/chunks", "/end"):
            connection.request("GET", path)
            assert connection.getresponse().read() == BODY
        connection.request("PUT", "/p", body)
        assert connection.getresponse().read() == b""
        connection.close()
        log = proxy.stop()
    assert server.seen[-1] == ("PUT", "/p", body)
    assert [line["end"] for line in log] == ["done"] * 4
    assert "PRIVATE" not in proxy.certificate.read_text()


def test_fault_ends(tmp_path):
    """Cut and reset as the rule says; neither is a proper end of TLS."""
    (tmp_path / "b").mkdir()
    (tmp_path / "b/k").write_bytes(BODY)
    rules = [{"path": "/b/k", "fault": "truncate", "at": 100_000, "count": 1},
             {"path": "/b/k", "fault": "reset", "at": 100_000, "count": 1},
             {"path": "/b/k", "fault": "close"}]
    with TlsProxy(tmp_path, "--folder", tmp_path, rules=rules) as proxy:
        for want, bytes_wanted in (("cut", 100_000), ("reset", 100_000), ("reported", len(BODY))):
            got, end = proxy.ask_raw("/b/k")
            assert end == want
            assert got.partition(b"\r\n\r\n")[2] == BODY[:bytes_wanted], want
        assert [line["end"] for line in proxy.stop()] == ["truncated", "reset", "done"]


FAULTS = {
    "none": {"fault": "pass"},
    "reset": {"fault": "reset", "count": 1},
    "reset later": {"fault": "reset", "at": 700_000, "count": 1},
    "truncate": {"fault": "truncate", "at": 700_000, "count": 2},
    "stall": {"fault": "stall", "at": 700_000, "count": 1},
    "503": {"fault": "status", "status": 503, "count": 2},
    "gone": {"fault": "status", "status": 404, "code": "NoSuchKey"},
}


def test_fault_within_tls(tmp_path):
    data = os.urandom(3_000_000)
    rows = [("s3", name) for name in FAULTS] + [("https", "reset"), ("https", "truncate")]
    rules = []
    for way, name in rows:
        bucket = f"{way}-{name.replace(' ', '-')}"
        (tmp_path / bucket).mkdir()
        (tmp_path / bucket / "key").write_bytes(data)
        rules.append({"path": f"/{bucket}/key", "method": "GET", **FAULTS[name]})
    with TlsProxy(tmp_path, "--folder", tmp_path, rules=rules) as proxy:

        def read(row):
            way, name = row
            bucket = f"{way}-{name.replace(' ', '-')}"
            url = f"s3://{bucket}/key" if way == "s3" else f"https://{proxy.place}/{bucket}/key"
            return cat(url, "--read-timeout=6", AWS_CA_BUNDLE=proxy.certificate,
                       AWS_ENDPOINT_URL=f"https://{proxy.place}"), url

        with ThreadPoolExecutor(len(rows)) as pool:
            for (way, name), (done, url) in zip(rows, pool.map(read, rows), strict=True):
                status, wanted = (3, b"") if name == "gone" else (0, data)
                assert done.returncode == status, (way, name, done.stderr)
                assert done.stdout == wanted, (way, name)
                assert name != "gone" or url in done.stderr.decode()
        fired = {line["path"] for line in proxy.stop() if line.get("fault")}
    assert fired == {rule["path"] for rule in rules}


def test_fault_with_a_wrong_host(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b/key").write_bytes(b"data")
    with TlsProxy(tmp_path, "--tls-name", "other.test", "--tls-name=::1", "--folder",
                  tmp_path) as proxy:
        for url in (f"https://{proxy.place}/b/key", f"https://127.0.0.1:{proxy.port}/b/key",
                    "s3://b/key"):
            done = cat(url, AWS_CA_BUNDLE=proxy.certificate,
                       AWS_ENDPOINT_URL=f"https://{proxy.place}")
            assert done.returncode == 3 and not done.stdout, url
            assert b"certificate is not trusted" in done.stderr, url
        assert not [line for line in proxy.stop() if "request" in line]  # no request was sent


def test_fault_without_a_trusted_certificate(tmp_path):
    """The log has one line for each client that failed before its first request."""
    with TlsProxy(tmp_path, "--folder", tmp_path) as proxy:
        done = cat(f"https://{proxy.place}/b/key")
        assert done.returncode == 3 and b"certificate is not trusted" in done.stderr
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            plain = http.client.HTTPConnection(proxy.host, proxy.port, timeout=WAIT)
            plain.request("GET", "/b/key")
            plain.getresponse()
        plain.close()
        refused, confused = proxy.stop()
    assert refused["end"] == confused["end"] == "no TLS"
    assert "unknown ca" in refused["reason"] and confused["reason"] == "http request"


def test_fault_with_files(tmp_path):
    certificate, key = tmp_path / "own.pem", tmp_path / "own.key"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", certificate,
                    "-subj", "/CN=x", "-addext", "subjectAltName=DNS:localhost"],
                   check=True, capture_output=True)
    (tmp_path / "b").mkdir()
    (tmp_path / "b/key").write_bytes(BODY)
    with Proxy("--tls-cert", certificate, "--tls-key", key, "--folder", tmp_path) as proxy:
        done = cat(f"https://localhost:{proxy.port}/b/key", AWS_CA_BUNDLE=certificate)
        assert done.returncode == 0 and done.stdout == BODY, done.stderr


def test_fault_options(tmp_path):
    none, there = tmp_path / "none" / "file", tmp_path / "there"
    there.write_text("no PEM\n")
    for words, status in (
            (["--tls=yes"], 2), (["--tls-name", "x"], 2), (["--tls-cert-out", there], 2),
            (["--tls", "--tls-name"], 2), (["--tls", *["--tls-name=x"] * 17], 2),
            (["--tls-cert", there], 2), (["--tls-key", there], 2),
            (["--tls", "--tls-cert", there, "--tls-key", there], 2),
            (["--tls-cert-out", there, "--tls-cert", there, "--tls-key", there], 2),
            (["--tls", "--tls-name", "a b"], 3), (["--tls", "--tls-cert-out", none], 3),
            (["--tls-cert", none, "--tls-key", there], 3),
            (["--tls-cert", there, "--tls-key", there], 3)):
        done = subprocess.run([COMMAND, "fault-proxy", *map(str, words)], capture_output=True,
                              text=True, timeout=WAIT, check=False)
        assert done.returncode == status and done.stderr and not done.stdout, (words, done)
    assert there.read_text() == "no PEM\n"
    with TlsProxy(tmp_path) as proxy, Proxy() as plain:
        assert proxy.first["tls"] is True and "tls" not in plain.first
