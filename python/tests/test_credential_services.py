"""The identity of requests to a store, if the services that issue credentials fail.

Goal: a service that does not answer for a moment does not make the process anonymous for ever.
Method: `stoker cat` of a store that refuses unsigned requests, and of services whose next answers
the test lists (a status, or None: the connection is closed), all in one server of the test; the
rest of the script shows which requests were not sent, or were sent too often.
"""

import json
import os
import subprocess
import threading

import pytest
import servers
from object_server import signature
from test_order import command

BODY = b"what lies in the store" * 100
LATER = "2126-01-02T03:04:05Z"
KEYS = json.dumps({"Code": "Success", "AccessKeyId": "AKWHO", "Token": "t", "Expiration": LATER,
                   "SecretAccessKey": "canary0secret0value"})
TOKEN = ("PUT", "/latest/api/token")
ROLES = ("GET", "/latest/meta-data/iam/security-credentials/")
ROLE = ("GET", "/latest/meta-data/iam/security-credentials/r")


class Services(servers.Handler):
    """Any store with a script: (expected request, answer) pairs."""

    def do(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = self.path.partition("?")[0]
        if path.startswith("/bucket/"):
            self.store()
            return
        with self.server.lock:
            wanted, code, text = self.server.script.pop(0) if self.server.script else (0, 599, "")
        if wanted and wanted != (self.command, path):
            self.server.wrong.append((wanted, self.command, path, body))
            code = 599
        if code is None:
            self.close_connection = True
            return
        self.say(code, text.encode(), Connection="close")
        self.close_connection = True

    do_GET = do_PUT = do_POST = do_HEAD = do

    def store(self):
        if self.server.lets_in not in self.headers.get("Authorization", ""):
            self.server.unsigned += 1
            self.say(403, b"<Error><Code>AccessDenied</Code></Error>")
        else:
            self.say(200, BODY, ETag='"e"')


@pytest.fixture
def services():
    with servers.serving(Services, lock=threading.Lock(), script=[], wrong=[], unsigned=0,
                         lets_in="Credential=AKWHO/") as server:
        yield server
        assert not server.wrong and not server.script


def stoker(*words, home, **variables):
    done = subprocess.run(
        [command(), *words], capture_output=True, check=False, timeout=120,
        env={"HOME": str(home), "PATH": os.environ["PATH"], "AWS_EC2_METADATA_DISABLED": "true",
             "LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", ""), "NO_GCE_CHECK": "true",
             **{name: str(value) for name, value in variables.items()}})
    assert b"canary0secret" not in done.stdout + done.stderr
    return done


def of_instance(server):
    return {"AWS_ENDPOINT_URL_S3": server.url, "AWS_EC2_METADATA_SERVICE_ENDPOINT": server.url,
            "AWS_METADATA_SERVICE_TIMEOUT": "30",  # silence is a closed connection here
            "AWS_EC2_METADATA_DISABLED": "false"}


GOOD = [(TOKEN, 200, "token"), (ROLES, 200, "r"), (ROLE, 200, KEYS)]


@pytest.mark.parametrize("trouble", [
    [(TOKEN, None, "")],
    [(TOKEN, 503, ""), (TOKEN, 500, "")],
    [(TOKEN, 200, "token"), (ROLES, None, ""), (ROLES, 503, "")],
], ids=["silent", "busy", "silent later"])
def test_hiccup_of_metadata(services, tmp_path, trouble):
    """The bucket is not public: a client that took the missing answer for "anonymous" would be
    refused for ever."""
    services.script = trouble + (GOOD[1:] if trouble[0][1] == 200 else GOOD)
    done = stoker("cat", "s3://bucket/key", home=tmp_path, **of_instance(services))
    assert done.stdout == BODY, done.stderr
    # Each request that was sent unsigned before credentials were found has been sent again.
    assert (services.unsigned > 0) == (trouble[0][1] is None)


def test_a_silent_service_is_reported(services, tmp_path):
    services.script = [(TOKEN, None, "")]
    done = stoker("creds", "explain", "--json", "s3://bucket/key", home=tmp_path,
                  **of_instance(services))
    reported = json.loads(done.stdout)
    assert reported["credentials"] == "anonymous" and "does not answer" in reported["from"]
    assert "queried again" in reported["steps"][-1]["why"]


class Signed(servers.Handler):
    """A store and STS that check each signature against the header Host as it arrived."""

    def do(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.hosts.add((self.command == "POST", self.headers["Host"]))
        if not self.headers.get("Authorization", "").endswith(signature(self, "canary0secret0")):
            self.server.wrong.append((self.command, self.path, self.headers["Host"]))
            self.say(403, b"<Error><Code>SignatureDoesNotMatch</Code></Error>")
        elif self.command == "POST":
            self.say(200, b"<R><Credentials><AccessKeyId>ASIAWHO1</AccessKeyId><SecretAccessKey>"
                          b"canary0secret0</SecretAccessKey><SessionToken>t</SessionToken>"
                          b"<Expiration>" + LATER.encode() + b"</Expiration></Credentials></R>")
        else:
            self.say(200, BODY, ETag='"e"')

    do_GET = do_POST = do_HEAD = do


@pytest.mark.parametrize("host", ["127.1", "0x7f000001", "2130706433", "127.0.0.1"])
@pytest.mark.parametrize("service", ["s3", "gs", "sts"])
def test_numbers_as_hosts_are_signed_as_they_are_sent(tmp_path, service, host):
    with servers.serving(Signed, hosts=set(), wrong=[]) as server:
        url = f"http://{host}:{server.server_address[1]}"
        keys = {"AWS_ACCESS_KEY_ID": "AKWHO", "AWS_SECRET_ACCESS_KEY": "canary0secret0"}
        if service == "gs":
            keys = {"GS_ACCESS_KEY_ID": "AKWHO", "GS_SECRET_ACCESS_KEY": "canary0secret0",
                    "STORAGE_EMULATOR_HOST": url}
        elif service == "sts":
            (tmp_path / ".aws").mkdir()
            (tmp_path / ".aws/config").write_text(
                "[profile role]\nrole_arn = arn:aws:iam::123456789012:role/r\n"
                "source_profile = base\n[profile base]\naws_access_key_id = AKWHO\n"
                "aws_secret_access_key = canary0secret0\n")
            keys = {"AWS_PROFILE": "role"}
        done = stoker("cat", f"{'gs' if service == 'gs' else 's3'}://bucket/key", home=tmp_path,
                      AWS_ENDPOINT_URL=url, **keys)
        assert done.stdout == BODY and not server.wrong, (done.stderr, server.wrong)
        real = f"127.0.0.1:{server.server_address[1]}"
        assert server.hosts == {(False, real)} | ({(True, real)} if service == "sts" else set())
