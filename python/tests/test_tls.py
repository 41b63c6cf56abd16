"""Stores by TLS: read, and refused where the server is not who it says.

Goal: with the authority that is named data come exactly; with another host's certificate, none that
is trusted, or none at all there is one error that says so, soon, and nothing was asked for.
Method: nginx with a certificate of this test's own for "localhost"; the command and the package.
"""

import os
import subprocess

import pytest
import servers
import stoker
from test_cli import COMMAND


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


def cat(url, **environment):
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith("AWS_") and name != "SSL_CERT_FILE"}
    return subprocess.run(
        [COMMAND, "cat", url], capture_output=True, check=False, timeout=60,
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
    asked = server.log.read_text().count("\n")
    for url, bundle in ((other, server.certificate), (server.tls_url, None)):
        for way in (f"{url}/bucket/key", "s3://bucket/key"):
            more = {"AWS_CA_BUNDLE": bundle} if bundle else {}
            done = cat(way, AWS_ENDPOINT_URL=url, **more)
            text = done.stderr.decode()
            assert done.returncode == 3 and not done.stdout
            assert "certificate is not trusted" in text and "AWS_CA_BUNDLE" in text
            assert url.partition("//")[2] in text and "tries" not in text
    assert server.log.read_text().count("\n") == asked  # no request went out


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
