"""Credentials from services as moto implements them: STS, an instance's metadata (IMDSv2), with its
S3.

Goal: requests for a role by its source_profile, a role by a web identity, and the role of an
instance are understood by a server that is not ours, and its answers are used; where botocore's
answer can be the same, it is. moto serves no SSO portal: servers of our own test that
(credentials_test, test_credentials.py)."""

import importlib.util
import json
import os
import subprocess
import sys
import urllib.request

import pytest
import servers
from test_cli import COMMAND

boto3 = pytest.importorskip("boto3")
ROLE = "arn:aws:iam::123456789012:role/train"


@pytest.fixture(scope="module")
def moto(tmp_path_factory):
    if not importlib.util.find_spec("moto") or not importlib.util.find_spec("flask_cors"):
        pytest.skip("no moto here: pip install moto flask flask-cors")
    port, log = servers.free_port(), tmp_path_factory.mktemp("moto") / "log"
    try:
        servers.need("setpriv")
    except servers.Absent as why:
        pytest.skip(str(why))
    process = servers.spawn(log, sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", port)
    try:
        servers.await_port(port, process, log)
        url = f"http://127.0.0.1:{port}"
        request = urllib.request.Request(f"{url}/data", method="PUT", headers={
            "Authorization": "AWS4-HMAC-SHA256 Credential=AK/20260101/us-east-1/s3/aws4_request"})
        assert urllib.request.urlopen(request, timeout=60).status == 200
        yield url
    finally:
        process.kill()
        process.wait()


WAYS = {
    "source_profile": ({"AWS_PROFILE": "train"}, f"role '{ROLE}' of profile 'train'"),
    "web identity": ({"AWS_WEB_IDENTITY_TOKEN_FILE": "{home}/token", "AWS_ROLE_ARN": ROLE},
                     f"role '{ROLE}' by "),
    "instance": ({"AWS_EC2_METADATA_SERVICE_ENDPOINT": "{url}", "AWS_PROFILE": "none",
                  "AWS_EC2_METADATA_DISABLED": "false"}, "role 'default-role' of the EC2 instance"),
}


@pytest.mark.parametrize("way", WAYS)
def test_roles(moto, tmp_path, monkeypatch, way):
    variables, says = WAYS[way]
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    (tmp_path / "token").write_text("a.web.token")
    (tmp_path / "config").write_text(
        f"[profile train]\nrole_arn = {ROLE}\nsource_profile = base\nexternal_id = abc\n"
        "duration_seconds = 900\n[profile base]\naws_access_key_id = AKBASE\n"
        "aws_secret_access_key = secret\n[profile none]\noutput = json\n")
    for name, value in {"AWS_ENDPOINT_URL": moto, "AWS_CONFIG_FILE": f"{tmp_path}/config",
                        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
                        "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true",
                        "HOME": str(tmp_path), **variables}.items():
        monkeypatch.setenv(name, value.format(home=tmp_path, url=moto))

    def run(*words):
        done = subprocess.run([COMMAND, *map(str, words)], capture_output=True, timeout=120)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    reported = json.loads(run("creds", "explain", "--json", "s3://data/x"))
    assert reported["credentials"] == "keys" and reported["from"].startswith(says), reported
    assert reported["key"] and not reported["key"].endswith("BASE")
    theirs = boto3.Session().get_credentials()
    if way == "instance":  # one identity for all; a role's keys are new for each request
        assert theirs.access_key.endswith(reported["key"].removeprefix("..."))
    assert theirs.method.startswith({"source_profile": "assume-role", "instance": "iam-role",
                                     "web identity": "assume-role-with-web-identity"}[way])
    data = os.urandom(70_000)
    (tmp_path / "file").write_bytes(data)
    name = f"data/{way.replace(' ', '-')}"
    run("cp", tmp_path / "file", f"s3://{name}")
    assert run("cat", f"s3://{name}") == data
    client = boto3.Session().client("s3", endpoint_url=moto)  # not the cached one
    body = client.get_object(Bucket="data", Key=name[5:])["Body"]
    assert body.read() == data


def test_by_parts(moto, tmp_path, monkeypatch):
    """A body that is not a form is not sent as one: a server that parses forms would find no
    body."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in {"AWS_ENDPOINT_URL": moto, "AWS_ACCESS_KEY_ID": "AK", "HOME": str(tmp_path),
                        "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1",
                        "AWS_EC2_METADATA_DISABLED": "true"}.items():
        monkeypatch.setenv(name, value)
    data = os.urandom((5 << 20) + 1000)
    (tmp_path / "file").write_bytes(data)
    for source, name in ((tmp_path / "file", "parts"), ("s3://data/parts", "copied")):
        done = subprocess.run([COMMAND, "cp", "--part-size", "5M", source, f"s3://data/{name}"],
                              capture_output=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr.decode()
        body = boto3.Session().client("s3", endpoint_url=moto).get_object(
            Bucket="data", Key=name)["Body"]
        assert body.read() == data
