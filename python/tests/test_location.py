"""The location of buckets and of this machine.

Goal: `stoker info` and stoker.location report both, and the cost if they differ; without metadata
about a second is lost, once; custom endpoints are not probed; a bucket in another region than the
configured one is read, and reported as being there. Method: a proxy of the test that plays Amazon
and Google: it takes CONNECT for any host and answers by TLS with an authority of this test, as each
region's endpoint would: 301, 400 AuthorizationHeaderMalformed, 403 or the object. Metadata services
are scripted servers here.
"""

from __future__ import annotations

import json
import os
import re
import socket
import ssl
import subprocess
import time

import make
import object_server
import pytest
import servers
import stoker
from test_cli import COMMAND

HOSTS = ("*.s3.us-west-2.amazonaws.com,*.s3.eu-central-1.amazonaws.com,"
         "*.s3express-usw2-az1.us-west-2.amazonaws.com,storage.googleapis.com")
WAIT = 120


class Cloud(servers.Handler):
    """The stores' side, behind the proxy: one object, "a.tar", in each bucket."""

    def do_CONNECT(self):
        self.server.seen.append(self.path)
        self.send_response(200)
        self.end_headers()
        with self.server.tls.wrap_socket(self.connection, server_side=True) as inner:
            self.rfile, self.wfile = inner.makefile("rb"), inner.makefile("wb")
            self.close_connection = False
            while not self.close_connection:
                self.handle_one_request()
                self.wfile.flush()
        self.close_connection = True

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        host, home = self.headers["Host"], self.server.home
        self.server.seen.append(f"{self.command} {host}{self.path}")
        path, _, query = self.path.partition("?")
        more = {"x-amz-bucket-region": home} if "amazonaws" in host else {}
        if "location" in query:
            self.say(200, f"<LocationConstraint>{home.upper()}</LocationConstraint>".encode())
        elif "amazonaws" in host and "s3express" not in host and home not in host:
            error = self.server.refusal
            self.say(error[0], f"<Error><Code>{error[1]}</Code><Region>{home}</Region></Error>"
                     .encode(), **more)
        elif not path.endswith("a.tar"):
            self.say(self.server.list_code, b"<Error><Code>AccessDenied</Code></Error>"
                     if self.server.list_code != 200 else b"", **more)
        else:
            data = self.server.data
            ends = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            first, last = map(int, ends.groups()) if ends else (0, len(data) - 1)
            last = min(last, len(data) - 1)
            self.say(206 if ends else 200, data[first:last + 1], ETag='"a"', **(
                {"Content-Range": f"bytes {first}-{last}/{len(data)}"} if ends else {}))


class Machine(servers.Handler):
    """Its metadata: Amazon's, version 2 only, or Google's."""

    def do_PUT(self):
        self.server.seen.append(self.path)
        good = self.server.zone and self.path == "/latest/api/token"
        self.say(200 if good else 404, b"the token")

    def do_GET(self):
        self.server.seen.append(self.path)
        result = {"/latest/meta-data/placement/region": self.server.region,
                "/latest/meta-data/placement/availability-zone-id": self.server.zone}
        google = "/computeMetadata/v1/instance/zone"
        if self.path == google and self.headers["Metadata-Flavor"] == "Google" and (
                not self.server.zone):
            self.say(200, f"projects/1/zones/{self.server.region}-b".encode(),
                     Metadata_Flavor="Google")
        elif self.headers.get("x-aws-ec2-metadata-token") == "the token" and self.path in result:
            self.say(200, result[self.path].encode())
        else:
            self.say(404)


@pytest.fixture(scope="module")
def identity(tmp_path_factory):
    home = tmp_path_factory.mktemp("authority")
    names = ",".join(f"DNS:{name}" for name in HOSTS.split(","))
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
                    "-subj", "/CN=clouds", "-addext", f"subjectAltName={names}",
                    "-keyout", home / "key.pem", "-out", home / "certificate.pem"],
                   check=True, capture_output=True)
    make.tar(home / "a.tar", make.sample(0) + make.sample(1))
    return home


@pytest.fixture
def clouds(identity, monkeypatch, tmp_path):
    for name in [n for n in os.environ if n.startswith(("AWS_", "GS_", "GOOGLE_", "GCE_", "NO_"))]:
        monkeypatch.delenv(name)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(identity / "certificate.pem", identity / "key.pem")
    with servers.serving(Cloud, tls=tls, home="us-west-2", refusal=(301, "PermanentRedirect"),
                         list_code=200, data=(identity / "a.tar").read_bytes()) as cloud, \
            servers.serving(Machine, region="us-west-2", zone="usw2-az1") as machine:
        for name, value in {
                "https_proxy": cloud.url, "HOME": str(tmp_path),
                "AWS_CA_BUNDLE": str(identity / "certificate.pem"), "AWS_ACCESS_KEY_ID": "id",
                "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-west-2",
                "GS_ACCESS_KEY_ID": "id", "GS_SECRET_ACCESS_KEY": "secret",
                "STOKER_CACHE": str(tmp_path), "STOKER_NODE_DIR": str(tmp_path),
                "AWS_EC2_METADATA_SERVICE_ENDPOINT": machine.url,
                "GCE_METADATA_HOST": machine.host}.items():
            monkeypatch.setenv(name, value)
        yield cloud, machine, monkeypatch


def info(*words):
    done = subprocess.run([COMMAND, "info", "--json", *words], capture_output=True, text=True,
                          timeout=WAIT, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads(done.stdout)["where"]


def test_local_bucket(clouds):
    cloud, machine, _ = clouds
    code, (result,) = info("s3://bucket/a.tar")
    assert (code, result["kind"], result["what"], result["gigabyte"]) == (0, "near", "", 0)
    assert (result["bucket_region"], result["machine_region"]) == ("us-west-2", "us-west-2")
    assert result["machine_zone"] == "usw2-az1" and result["machine_cloud"] == "Amazon"
    assert "HEAD bucket.s3.us-west-2.amazonaws.com/" in cloud.seen
    assert machine.seen[0] == "/latest/api/token" and len(machine.seen) == 3


@pytest.mark.parametrize("refusal", [(301, "PermanentRedirect"),
                                     (400, "AuthorizationHeaderMalformed")])
def test_other_region(clouds, refusal):
    """Also if another region was configured: the data is read, and reported as being elsewhere."""
    cloud, machine, monkeypatch = clouds
    cloud.home, cloud.refusal, machine.region = "eu-central-1", refusal, "us-west-2"
    code, (result,) = info("s3://bucket/a.tar")
    assert (code, result["kind"], result["bucket_region"]) == (1, "other region", "eu-central-1")
    assert result["what"] == "the bucket is in eu-central-1, this machine in us-west-2"
    assert "$0.02" in result["reason"] and result["gigabyte"] == 0.02
    assert result["advice"] == "stoker sync s3://bucket/a.tar s3://BUCKET-IN-us-west-2/"
    text = subprocess.run([COMMAND, "info", "s3://bucket/a.tar"], capture_output=True, text=True,
                          timeout=WAIT, check=False)
    assert text.returncode == 1 and f"FINDING     {result['what']}" in text.stdout
    assert "eu-central-1" in text.stdout.partition("machine")[0]
    for word in ("cat", "ls", "stat"):
        done = subprocess.run([COMMAND, word, "s3://bucket/a.tar"], capture_output=True,
                              timeout=WAIT, check=False)
        assert done.returncode == 0, (word, done.stderr)


def test_a_bucket_that_may_not_be_listed(clouds):
    cloud, machine, _ = clouds
    cloud.list_code, machine.region = 403, "eu-central-1"
    code, (result,) = info("s3://bucket/a.tar")
    assert (code, result["kind"], result["bucket_region"]) == (1, "other region", "us-west-2")


def test_zones(clouds):
    """By the bucket's name: without a request."""
    cloud, machine, monkeypatch = clouds
    monkeypatch.setenv("AWS_S3_DISABLE_EXPRESS_SESSION_AUTH", "true")
    bucket = "train--usw2-az1--x-s3"
    code, (result,) = info(f"s3://{bucket}/a.tar")
    assert (code, result["kind"], result["bucket_region"]) == (0, "near", "us-west-2")
    assert result["bucket_zone"] == result["machine_zone"] == "usw2-az1"
    machine.zone = "usw2-az3"
    code, (result,) = info(f"s3://{bucket}/a.tar")
    assert (code, result["kind"], result["gigabyte"]) == (1, "other zone", 0)
    assert result["what"] == "the bucket is in zone usw2-az1, this machine in usw2-az3"
    assert not [line for line in cloud.seen if line.startswith("HEAD")]


@pytest.mark.parametrize("region", ["eu-central-1", "us-east-1", ""])
def test_a_zone_is_in_its_region(clouds, region):
    """Whatever region is configured, or none: requests to an S3 Express bucket go to its zone."""
    cloud, _, monkeypatch = clouds
    monkeypatch.setenv("AWS_S3_DISABLE_EXPRESS_SESSION_AUTH", "true")
    monkeypatch.setenv("AWS_REGION", region)
    bucket = "train--usw2-az1--x-s3"
    done = subprocess.run([COMMAND, "cat", f"s3://{bucket}/a.tar"], capture_output=True,
                          timeout=WAIT, check=False)
    assert (done.returncode, done.stdout) == (0, cloud.data), done.stderr
    requested = [line for line in cloud.seen if bucket in line]
    assert requested and all(".s3express-usw2-az1.us-west-2." in line for line in requested)
    if not region:  # a zone whose name does not tell its region is not guessed
        done = subprocess.run([COMMAND, "cat", "s3://train--xyz-az1--x-s3/a.tar"],
                              capture_output=True, text=True, timeout=WAIT, check=False)
        assert done.returncode == 2 and "set AWS_REGION" in done.stderr, done.stderr


def test_google(clouds):
    cloud, machine, _ = clouds
    cloud.home, machine.region, machine.zone = "us-central1", "us-central1", ""
    code, (result,) = info("gs://bucket/a.tar")
    assert (code, result["kind"]) == (0, "near"), result
    assert (result["machine_cloud"], result["machine_zone"]) == ("Google", "us-central1-b")
    cloud.home = "us"  # of several regions
    assert info("gs://bucket/a.tar")[1][0]["kind"] == "near"
    cloud.home = "eu"
    code, (result,) = info("gs://bucket/a.tar")
    assert (code, result["kind"], result["gigabyte"]) == (1, "other region", 0.02)
    machine.region, machine.zone = "us-west-2", "usw2-az1"  # Amazon's, then
    code, (result,) = info("gs://bucket/a.tar")
    assert (code, result["kind"], result["gigabyte"]) == (1, "other cloud", 0.12)
    assert result["what"] == "the bucket is in eu of Google, this machine in us-west-2 of Amazon"


def test_buckets_of_one_command(clouds):
    """Each bucket is looked up once, the machine once for all."""
    cloud, machine, _ = clouds
    code, result = info("s3://one/a.tar", "s3://two/a.tar", "s3://one/a.tar")
    assert [row["bucket"] for row in result] == ["s3://one", "s3://two"] and code == 0
    assert len([line for line in cloud.seen if line.startswith("HEAD")]) == 2
    assert len(machine.seen) == 3


@pytest.mark.parametrize("way", ["off", "silent", "refused", "nonsense"])
def test_no_metadata(clouds, way):
    """Unknown, without an error; a service that does not answer costs about its deadline, once."""
    _, machine, monkeypatch = clouds
    silent = socket.create_server(("127.0.0.1", 0))
    monkeypatch.delenv("GCE_METADATA_HOST")
    if way == "off":
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        monkeypatch.setenv("NO_GCE_CHECK", "true")
    elif way == "nonsense":
        monkeypatch.setenv("NO_GCE_CHECK", "true")
        machine.region = "us west\r\n2"
    else:
        port = silent.getsockname()[1]
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"http://127.0.0.1:{port}")
        if way == "refused":
            silent.close()
    begun = time.monotonic()
    code, result = info("s3://one/a.tar", "s3://two/a.tar")
    passed = time.monotonic() - begun
    silent.close()
    assert code == 0 and {row["kind"] for row in result} == {"unknown"}
    assert {row["bucket_region"] for row in result} == {"us-west-2"}
    assert passed < 60  # the machine is shared; alone it is 1.1 s
    if way == "off":
        assert machine.seen == [] and "DISABLED" in result[0]["machine_from"]


def test_an_endpoint_of_ones_own(clouds):
    """No request for the location of the bucket or the machine."""
    cloud, machine, monkeypatch = clouds
    server = object_server.s3({("data", "a.tar"): cloud.data}, {"id": ("secret", "", 2e10)})
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    code, (result,) = info("s3://data/a.tar")
    server.close()
    assert (code, result["kind"], result["bucket_region"]) == (0, "unknown", "")
    assert "endpoint of one's own (AWS_ENDPOINT_URL" in result["bucket_from"]
    assert machine.seen == []


def test_amazons_own_endpoint_by_hand(clouds):
    _, machine, monkeypatch = clouds
    machine.region = "eu-central-1"
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://x.s3.us-west-2.amazonaws.com")
    assert info("s3://bucket/a.tar")[1][0]["kind"] == "other region"


def test_python(clouds, monkeypatch, tmp_path):
    """The same, with dollars of the table that the ledger takes."""
    _, machine, _ = clouds
    machine.region = "eu-central-1"
    with stoker.Engine(threads=1, memory="64MiB") as engine:
        result = stoker.location("s3://bucket/a.tar", engine=engine)
        assert (result.kind, result.dollars_per_gb) == ("other region", 0.02)
        assert result.advice.startswith("stoker sync s3://bucket/a.tar")
        table = tmp_path / "prices.json"
        table.write_text('{"stores": {"s3": {"other_region": 0.5}}}')
        monkeypatch.setenv("STOKER_PRICES", str(table))
        assert stoker.location("s3://bucket/a.tar", engine=engine).dollars_per_gb == 0.5
        assert stoker.location("https://example.com/x", engine=engine).kind == "unknown"
        with pytest.raises(stoker.ArgumentError):
            stoker.location("/a/path", engine=engine)


def test_prices_are_those_of_the_table():
    """The prices that the library reports are those in the package's file."""
    table = stoker.engine.prices()
    assert (table["s3"]["other_region"], table["s3"]["outside"]) == (0.02, 0.09)
    assert (table["gs"]["other_region"], table["gs"]["outside"]) == (0.02, 0.12)
