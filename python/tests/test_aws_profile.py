"""Settings of ~/.aws/config, checked at servers: the requests follow the profile.

Goal: number of attempts, hosts, URL styles, checksums and certificates follow the profile, and
invalid settings give an error that names them. Method: a small server that counts requests, named
as the endpoint, or as a proxy so that hosts which this machine cannot resolve are seen; nginx with
TLS for ca_bundle. src/storage/object/settings_test.c compares thousands of profiles with botocore.
"""

import os
import subprocess

import pytest
import servers
from test_cli import COMMAND


ROLE = ["role_arn = arn:aws:iam::123456789012:role/r", "source_profile = base",
        "[profile base]", "aws_access_key_id = a", "aws_secret_access_key = b"]


class Handler(servers.Handler):
    """Answers all requests with 503, or with the same ten bytes; records the requests."""

    def answer(self):
        self.server.seen.append((self.command, self.path, dict(self.headers)))
        length = int(self.headers.get("Content-Length") or 0)
        self.rfile.read(length)
        if self.command == "CONNECT" or self.server.refusing:
            body, status = b"<Error><Code>SlowDown</Code></Error>", 503
        else:
            body, status = b"0123456789", 200
        self.say(status, body, ETag='"e"')

    do_GET = do_HEAD = do_PUT = do_CONNECT = answer


def serving(refusing=False):
    return servers.serving(Handler, refusing=refusing)


def run(folder, lines, *words, **environment):
    """The command, by a profile of these lines."""
    config = folder / "config"
    region = [] if any(line.startswith("region") for line in lines) else ["region = us-west-2"]
    config.write_text("\n".join(["[profile team]", *region, *lines, ""]))
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith("AWS_") and not name.lower().endswith("_proxy")
            and name not in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")}
    return subprocess.run(
        [COMMAND, *words], capture_output=True, check=False, timeout=120,
        env={**kept, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_PROFILE": "team",
             "AWS_CONFIG_FILE": str(config), "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
             **{name: str(value) for name, value in environment.items()}})


@pytest.mark.parametrize("lines, environment, tries", [
    (["max_attempts = 1"], {}, 1),
    (["max_attempts = 3"], {}, 3),
    (["max_attempts = 3"], {"AWS_MAX_ATTEMPTS": "2"}, 2),
])
def test_attempts(tmp_path, lines, environment, tries):
    with serving(refusing=True) as server:
        done = run(tmp_path, [*lines, f"endpoint_url = {server.url}"], "cat", "s3://bucket/key",
                   **environment)
        assert done.returncode == 3, done.stderr
        assert len(server.seen) == tries


@pytest.mark.parametrize("lines, url", [
    ([], "http://store.example/bucket/key"),
    (["s3 =", "  addressing_style = virtual"], "http://bucket.store.example/key"),
    (["s3 =", "  addressing_style = path"], "http://store.example/bucket/key"),
])
def test_addressing_style(tmp_path, lines, url):
    with serving() as server:
        done = run(tmp_path, ["services = ours", *lines, "[services ours]", "s3 =",
                              "  endpoint_url = http://store.example"],
                   "cat", "s3://bucket/key", http_proxy=server.url)
        assert done.returncode == 0 and done.stdout == b"0123456789", done.stderr
        assert {path for _, path, _ in server.seen} == {url}


@pytest.mark.parametrize("lines, url, host", [
    ([], "s3://bucket/key", "bucket.s3.us-west-2.amazonaws.com"),
    (["use_fips_endpoint = true"], "s3://bucket/key", "bucket.s3-fips.us-west-2.amazonaws.com"),
    (["use_dualstack_endpoint = true"], "s3://bucket/key",
     "bucket.s3.dualstack.us-west-2.amazonaws.com"),
    (["s3 =", "  use_accelerate_endpoint = true"], "s3://bucket/key",
     "bucket.s3-accelerate.amazonaws.com"),
    ([], "s3://arn:aws:s3:eu-west-1:123456789012:accesspoint/point/a/key",
     "point-123456789012.s3-accesspoint.eu-west-1.amazonaws.com"),
])
def test_hosts(tmp_path, lines, url, host):
    with serving() as server:
        done = run(tmp_path, ["max_attempts = 1", *lines], "cat", url, https_proxy=server.url)
        assert done.returncode != 0
        assert {(way, path) for way, path, _ in server.seen} == {("CONNECT", f"{host}:443")}


@pytest.mark.parametrize("lines, host", [
    ([], "sts.us-west-2.amazonaws.com"),
    (["use_fips_endpoint = true"], "sts-fips.us-west-2.amazonaws.com"),
    (["use_dualstack_endpoint = true"], "sts.us-west-2.api.aws"),
    (["region = fips-us-west-2"], "sts-fips.us-west-2.amazonaws.com"),
    (["region = us-west-2-fips"], "sts-fips.us-west-2.amazonaws.com"),
    (["use_fips_endpoint = true", "region = us-gov-west-1"], "sts.us-gov-west-1.amazonaws.com"),
    (["use_dualstack_endpoint = true", "region = cn-north-1"],
     "sts.cn-north-1.api.amazonwebservices.com.cn"),
])
def test_roles(tmp_path, lines, host):
    """The hosts that are contacted to assume a role; they are botocore's."""
    with serving() as server:
        done = run(tmp_path, [*lines, *ROLE], "creds", "explain", "s3://bucket/key",
                   https_proxy=server.url, AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY="")
        assert done.returncode != 0
        assert {(way, path) for way, path, _ in server.seen} == {("CONNECT", f"{host}:443")}


def test_checksums(tmp_path):
    for value, sent in (("when_supported", True), ("when_required", False)):
        with serving() as server:
            done = run(tmp_path, [f"endpoint_url = {server.url}",
                                  f"response_checksum_validation = {value}"],
                       "cat", "s3://bucket/key")
            assert done.returncode == 0, done.stderr
            assert any("x-amz-checksum-mode" in headers for _, _, headers in server.seen) == sent


@pytest.mark.parametrize("line, word", [
    ("use_fips_endpoint = on", "config:3"),
    ("max_attempts = many", "config:3"),
    ("services = nowhere", "nowhere"),
    ("ca_bundle = " + "x" * 5000, "too long"),
])
def test_mistakes(tmp_path, line, word):
    """The error is reported without a request; requests to another store are not delayed."""
    (tmp_path / "file").write_bytes(b"x")
    with serving() as server:
        done = run(tmp_path, [line], "cat", "s3://bucket/key", https_proxy=server.url)
        assert done.returncode != 0 and word in done.stderr.decode()
        assert not server.seen
        done = run(tmp_path, [line], "cat", f"{server.url}/key")
        assert done.returncode == 0 and done.stdout == b"0123456789", done.stderr


def test_ca_bundle(tmp_path):
    data = tmp_path / "data" / "bucket"
    data.mkdir(parents=True)
    (data / "key").write_bytes(b"abc" * 1000)
    home = tmp_path / "tls"
    home.mkdir()
    try:
        server = servers.Nginx(home, data.parent, tls=True)
    except servers.Absent as why:
        pytest.skip(str(why))
    try:
        named = [f"endpoint_url = {server.tls_url}"]
        bundle = f"ca_bundle = {server.certificate}"
        for lines, environment in (
                ([*named, bundle], {}),
                (named, {"REQUESTS_CA_BUNDLE": server.certificate}),
                ([*named, bundle], {"REQUESTS_CA_BUNDLE": os.devnull}),
                ([*named, f"ca_bundle = {os.devnull}"], {"AWS_CA_BUNDLE": server.certificate})):
            done = run(tmp_path, lines, "cat", "s3://bucket/key", **environment)
            assert done.returncode == 0 and done.stdout == b"abc" * 1000, (lines, done.stderr)
        for lines, url in ((named, "s3://bucket/key"),  # the profile's is of S3 alone
                           ([*named, bundle], f"{server.tls_url}/bucket/key")):
            done = run(tmp_path, lines, "cat", url)
            assert done.returncode == 3 and b"certificate is not trusted" in done.stderr
        for lines, environment, trusted in (
                (ROLE, {}, False), ([bundle, *ROLE], {}, True),
                (ROLE, {"REQUESTS_CA_BUNDLE": server.certificate}, True)):
            done = run(tmp_path, lines, "creds", "explain", "s3://bucket/key", AWS_ACCESS_KEY_ID="",
                       AWS_SECRET_ACCESS_KEY="", AWS_ENDPOINT_URL_STS=server.tls_url, **environment)
            assert done.returncode != 0  # it is no STS
            assert (b"STS: status 40" in done.stderr) == trusted, done.stderr
        for lines, trusted in ((named, False), ([*named, bundle], True)):
            done = run(tmp_path, lines, "cat", "s3://name--usw2-az1--x-s3/key")
            assert done.returncode != 0  # it has no sessions, either
            assert (b"localhost" in done.stderr and b"status 40" in done.stderr) == trusted, (
                done.stderr)
    finally:
        server.close()
