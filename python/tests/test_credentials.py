"""`stoker creds explain` as a user runs it.

Goal: it names the credentials in use, with file and line, and why others are not used; a source
that is configured and does not work is an error; and whatever fails, no secret is printed. Method:
files, variables and a credential_process of this test, every secret with a canary in it; STS as a
server of this test, which refuses or answers with nonsense around the canary; both outputs are
searched for it.
"""

import base64
import contextlib
import hashlib
import json
import os
import re
import subprocess
import threading
import time

import pytest
import servers
from test_order import command
from test_tls import TlsProxy

CANARY = "canary0secret0value"
ROLE = "arn:aws:iam::123456789012:role/train"


@pytest.fixture
def explain(tmp_path):
    """A function: (the result, its lines) of a URL, in an environment of nothing else."""

    def run(url, *words, status=0, **variables):
        done = subprocess.run(
            [command(), "creds", "explain", url, *words],
            env={
                "HOME": str(tmp_path),
                "PATH": os.environ["PATH"],
                "LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", ""),
                "AWS_EC2_METADATA_DISABLED": "true",
                "NO_GCE_CHECK": "true",
                **{name: str(value) for name, value in variables.items()},
            },
            capture_output=True,
            check=False,
            timeout=120,
        )
        text = done.stdout.decode() + done.stderr.decode()
        assert done.returncode == status, text
        assert CANARY not in text
        return done

    return run


@pytest.fixture
def sts():
    """A server whose next answers the test lists; it records the requests."""

    class Handler(servers.Handler):
        def do_POST(self):
            code, body = self.server.answers.pop(0)
            self.rfile.read(int(self.headers["Content-Length"]))
            self.say(code, body.encode())

    with servers.serving(Handler, answers=[]) as server:
        yield server


def files(folder, credentials="", config=""):
    (folder / ".aws").mkdir()
    (folder / ".aws" / "credentials").write_text(credentials)
    (folder / ".aws" / "config").write_text(config)


def test_a_profile(explain, tmp_path):
    files(
        tmp_path,
        f"[other]\naws_access_key_id = a\n[team]\naws_access_key_id = AKIDEXAMPLE9876\n"
        f"aws_secret_access_key = {CANARY}\n",
        "[profile team]\nregion = eu-west-3\n",
    )
    info = json.loads(explain("s3://bucket/key", "--json", AWS_PROFILE="team").stdout)
    where = f"{tmp_path}/.aws/credentials:4"
    assert info["credentials"] == "keys" and info["from"] == f"profile 'team', {where}"
    assert info["region_from"] == f"{tmp_path}/.aws/config:2"
    assert info["key"] == "...9876" and info["expires"] == ""
    verdicts = [step["verdict"] for step in info["steps"]]
    assert verdicts == ["passed over"] * 4 + ["used"] + ["not asked"] * 4
    assert all(step["why"] for step in info["steps"][:5])
    text = explain("s3://bucket/key", AWS_PROFILE="team").stdout.decode()
    assert where in text and "AWS_ACCESS_KEY_ID is not set" in text


def test_a_role(explain, tmp_path, sts):
    url = f"http://127.0.0.1:{sts.server_address[1]}"
    files(
        tmp_path,
        f"[base]\naws_access_key_id = AKID\naws_secret_access_key = {CANARY}\n",
        f"[profile train]\nrole_arn = {ROLE}\nsource_profile = base\n",
    )
    sts.answers = [
        (
            200,
            "<R><Credentials><AccessKeyId>ASIAEXAMPLE0001</AccessKeyId><SecretAccessKey>"
            f"{CANARY}</SecretAccessKey><SessionToken>t-{CANARY}</SessionToken>"
            "<Expiration>2126-01-02T03:04:05Z</Expiration></Credentials></R>",
        ),
        (403, f"<E><Code>AccessDenied</Code><Message>{CANARY}</Message></E>"),
        (200, f"<R>{CANARY}"),
    ]
    words = {"AWS_PROFILE": "train", "AWS_ENDPOINT_URL_STS": url}
    info = json.loads(explain("s3://bucket/key", "--json", **words).stdout)
    assert info["expires"] == "2126-01-02T03:04:05Z" and info["key"] == "...0001"
    for part in (ROLE, url[7:], f"{tmp_path}/.aws/config:2", f"{tmp_path}/.aws/credentials:2"):
        assert part in info["from"]
    for reason in ("AccessDenied", "no credentials"):
        done = explain("s3://bucket/key", "--json", status=1, **words)
        info = json.loads(done.stdout)
        assert [step["verdict"] for step in info["steps"]] == [
            "passed over",
            "failed",
            *["not asked"] * 7,
        ]
        assert reason in info["steps"][1]["why"] and reason in done.stderr.decode()
    assert not sts.answers


@pytest.mark.parametrize(
    "output",
    [
        CANARY,
        f'{{"Version": 1, "AccessKeyId": "a", "SecretAccessKey": {{"{CANARY}": 1}}}}',
        f'{{"Version": 1, "{CANARY}": "AccessKeyId"',
        f'{{"Version": 2, "AccessKeyId": "a", "SecretAccessKey": "{CANARY}"}}',
    ],
)
def test_a_process_that_prints_nonsense(explain, tmp_path, output):
    program = tmp_path / "give"
    program.write_text(f"#!/bin/sh\necho '{CANARY}' >&2\ncat <<'END'\n{output}\nEND\n")
    program.chmod(0o755)
    files(tmp_path, config=f"[default]\ncredential_process = {program} --pin {CANARY}\n")
    done = explain("s3://bucket/key", "--json", status=1)
    assert b"credential_process" in done.stderr


@pytest.mark.parametrize(
    "text",
    [
        f"aws_secret_access_key = {CANARY}\n",
        f"[default]\n{CANARY}\n",
        f"[default]\naws_access_key_id = {CANARY}\n",
        f"[default]\na = {CANARY}\na = {CANARY}\n",
    ],
)
def test_a_file_that_is_broken(explain, tmp_path, text):
    files(tmp_path, text)
    done = explain("s3://bucket/key", status=1)
    assert b".aws/credentials" in done.stderr + done.stdout


def test_other_stores(explain, tmp_path):
    key = tmp_path / "google.json"
    key.write_text(json.dumps({"type": "service_account", "private_key": CANARY}))
    info = explain("gs://b/k", "--json", status=1, GOOGLE_APPLICATION_CREDENTIALS=key)
    assert b"google.json" in info.stdout
    text = f"AccountName=acc;AccountKey={CANARY}"
    info = json.loads(
        explain("az://c/b", "--json", AZURE_STORAGE_CONNECTION_STRING=text).stdout
    )
    assert info["endpoint"] == "https://acc.blob.core.windows.net"
    info = json.loads(explain("hf://datasets/a/b", "--json", HF_TOKEN=f"hf_{CANARY}").stdout)
    assert info["credentials"] == "bearer token" and "HF_TOKEN" in info["from"]
    info = json.loads(explain(f"https://u:{CANARY}@h/?s={CANARY}", "--json").stdout)
    assert info["credentials"] == "none"


def test_usage(explain):
    for words in (["x"], ["explain"], ["explain", "s3://a", "s3://b"], []):
        done = subprocess.run([command(), "creds", *words], capture_output=True, check=False)
        assert done.returncode == 2 and b"usage: stoker creds explain" in done.stderr
    explain(f"ftp://u:{CANARY}@h/", status=2)


# ---- what a core dump would contain ----

BODY = bytes(range(256)) * 8192
LATER = "2126-01-02T03:04:05Z"


class Held(servers.Handler):
    """Any store, an instance's metadata, and STS: answers every request; a body of more than a byte
    stalls until the test has inspected the client. Secrets are late in an answer, where the next
    answer does not overwrite them."""

    def give(self, code, body, **headers):
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:1000])
        if len(body) > 100_000:
            self.server.held.set()
            self.server.go.wait(60)
        self.wfile.write(body[1000:])

    def give_late(self, text):
        self.give(200, b" " * 8000 + text.encode())

    def do_PUT(self):
        self.give(200, self.server.secrets[0].encode())

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        key, token = self.server.secrets
        if self.path == "/token":
            self.give_late(json.dumps({"access_token": key, "expires_in": 3600}))
            return
        self.give_late(f"<R><Credentials><AccessKeyId>AK</AccessKeyId><SecretAccessKey>{key}"
                       f"</SecretAccessKey><SessionToken>{token}</SessionToken><Expiration>{LATER}"
                       "</Expiration></Credentials></R>")

    def do_GET(self):
        key, token = self.server.secrets
        if self.path.endswith("/security-credentials/"):
            self.give(200, b"role")
        elif self.path.endswith("/role"):
            self.give_late(json.dumps({"AccessKeyId": "AK", "SecretAccessKey": key, "Token": token,
                                       "Expiration": LATER}))
        elif self.path == "/moved":
            self.give(302, b"", Padding="-" * 8000, Location=f"/b/k?X-Amz-Signature={key}")
        elif "Range" not in self.headers:
            self.give(200, BODY, ETag='"e"')
        else:
            first, last = map(int, re.findall(r"\d+", self.headers["Range"]))
            last = min(last, len(BODY) - 1)
            self.give(206, BODY[first : last + 1], ETag='"e"',
                      Content_Range=f"bytes {first}-{last}/{len(BODY)}")


def memory_of(pid):
    """(whether a core dump would have it, the bytes) of each writable mapping."""
    with open(f"/proc/{pid}/smaps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for line in maps:
            if match := re.match(r"([0-9a-f]+)-([0-9a-f]+) (.{4})", line):
                begin, end = int(match[1], 16), int(match[2], 16)
                writable = match[3][1] == "w"
            elif line.startswith("VmFlags:") and writable:
                memory.seek(begin)
                with contextlib.suppress(OSError):
                    yield " dd" not in line, memory.read(end - begin)


def look(pid, secrets):
    """How often the secrets are in memory that a core dump would contain, and how often at all. The
    environment, on the first stack, is excluded: the user set it."""
    kept = seen = 0
    for is_dumped, data in memory_of(pid):
        found = sum(data.count(secret.encode()[:40]) for secret in secrets)
        kept += found if is_dumped else 0
        seen += found
    with open(f"/proc/{pid}/environ", "rb") as given:
        data = given.read()
    return kept - sum(data.count(secret.encode()[:40]) for secret in secrets), seen


WAYS = {
    "a file": ("s3://b/k", {}),
    "credential_process": ("s3://b/k", {"AWS_PROFILE": "process"}),
    "metadata": ("s3://b/k", {"AWS_PROFILE": "none", "AWS_EC2_METADATA_DISABLED": "false"}),
    "web identity": ("s3://b/k", {"AWS_PROFILE": "identity"}),
    "the hub": ("hf://datasets/o/n/k", {}),
    "a bearer token of Google": ("gs://b/k", {}),
    "a customer's key": ("s3://b/k", {"STOKER_SSE_C_KEY_FILE": "customer"}),
    "a SAS": ("az://b/k", {"AZURE_STORAGE_SAS_TOKEN": "sig"}),
    "a signed URL": ("https://", {}),
    "a redirect to a signed URL": ("https://", {}),
}


# With TLS all that plain requests leave is there, and more; metadata know only the latter.
PLAIN = ("a file", "metadata", "a redirect to a signed URL")


@pytest.mark.parametrize(("way", "tls"), [*((way, True) for way in WAYS),
                                          *((way, False) for way in PLAIN)])
def test_no_core_has_a_secret(tmp_path, way, tls):
    """While an object is received and after that, a token is only in memory that core dumps
    exclude."""
    url, more = WAYS[way]
    # Longer than the part that malloc overwrites; and the test's own memory is excluded.
    secrets = [hashlib.sha256(f"{way}{part}".encode()).hexdigest() * 2 for part in range(2)]
    if "customer" in way:
        secrets = [base64.b64encode(hashlib.sha256(way.encode()).digest()).decode(), secrets[1]]
        (tmp_path / "customer").write_text(f"s3://b/ {secrets[0]}\n")
        more = {"STOKER_SSE_C_KEY_FILE": str(tmp_path / "customer")}
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(servers.serving(Held, secrets=secrets, held=threading.Event(),
                                                     go=threading.Event()))
        own = server.url
        if tls:
            proxy = stack.enter_context(TlsProxy(tmp_path, "--to", own))
            own = f"https://{proxy.place}"
            more = {**more, "SSL_CERT_FILE": str(proxy.certificate)}
        if "SAS" in way:
            more = {**more, "AZURE_STORAGE_SAS_TOKEN": f"sv=2024&sig={secrets[0]}",
                    "AZURE_STORAGE_ACCOUNT": "acc", "AZURE_STORAGE_ENDPOINT": own}
        elif "signed" in way:
            url = own + ("/moved" if "redirect" in way else f"/b/k?X-Amz-Signature={secrets[0]}")
        files(tmp_path,
              f"[default]\naws_access_key_id = AK\naws_secret_access_key = {secrets[0]}\n"
              f"aws_session_token = {secrets[1]}\n",
              f"[profile process]\ncredential_process = cat {tmp_path}/keys\n"
              f"[profile none]\na = b\n[profile identity]\nrole_arn = {ROLE}\n"
              f"web_identity_token_file = {tmp_path}/token\n")
        (tmp_path / "keys").write_text(json.dumps(
            {"Version": 1, "AccessKeyId": "AK", "SecretAccessKey": secrets[0],
             "SessionToken": secrets[1], "Expiration": LATER}))
        (tmp_path / "token").write_text(secrets[1])
        (tmp_path / "google.json").write_text(json.dumps(
            {"type": "authorized_user", "token_uri": f"{own}/token", "client_id": "i",
             "client_secret": secrets[0], "refresh_token": secrets[1]}))
        process = subprocess.Popen(
            [command(), "cat", url], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={"HOME": str(tmp_path), "PATH": os.environ["PATH"], "AWS_ENDPOINT_URL": own,
                 "LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", ""),
                 "AWS_EC2_METADATA_SERVICE_ENDPOINT": own, "AWS_EC2_METADATA_DISABLED": "true",
                 "HF_ENDPOINT": own, "HF_TOKEN_PATH": str(tmp_path / "token"),
                 "STORAGE_EMULATOR_HOST": own, "NO_GCE_CHECK": "true",
                 "GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "google.json"), **more})
        try:
            assert server.held.wait(60), process.stderr.read() if process.poll() else "hangs"
            for _ in range(2):
                # The server may have answered before the client returns from send and wipes what it
                # sent: the test looks again for up to five seconds.
                for _ in range(100):
                    kept, seen = look(process.pid, secrets)
                    if not kept:
                        break
                    time.sleep(0.05)
                assert seen and not kept, (way, seen, kept)
                server.go.set()
            data, error = process.communicate(timeout=60)
        finally:
            process.kill()
            process.wait()
        assert data == BODY and process.returncode == 0, error


class Bearer(servers.Handler):
    """Records the sender, and has an object of one byte."""

    def do_GET(self):
        self.server.seen.append(self.headers["Authorization"])
        self.say(206, b"x", Content_Range="bytes 0-0/1")


@pytest.fixture(scope="module")
def pem():
    rsa = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.rsa")
    from cryptography.hazmat.primitives import serialization as text
    key = rsa.generate_private_key(65537, 2048)
    public = key.public_key().public_bytes(text.Encoding.PEM,
                                           text.PublicFormat.SubjectPublicKeyInfo)
    return key.private_bytes(text.Encoding.PEM, text.PrivateFormat.PKCS8,
                             text.NoEncryption()).decode(), public


def test_google_of_another_universe(explain, tmp_path, pem):
    """No token service is contacted: the account's key signs a token, which google-auth verifies;
    and the store is the universe's."""
    jwt = pytest.importorskip("google.auth.jwt")
    place = tmp_path / "google.json"
    file = {"type": "service_account", "client_email": "sa@x.iam", "private_key": pem[0],
            "private_key_id": "1", "token_uri": "http://127.0.0.1:9/token",
            "universe_domain": "x.example"}
    place.write_text(json.dumps(file))
    info = json.loads(explain("gs://b/k", "--json", GOOGLE_APPLICATION_CREDENTIALS=place).stdout)
    assert info["endpoint"] == "https://storage.x.example" and info["credentials"] == "bearer token"
    with servers.serving(Bearer) as server:
        done = subprocess.run(
            [command(), "stat", "gs://b/k"], capture_output=True, text=True, timeout=60,
            env={"HOME": str(tmp_path), "LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", ""),
                 "STORAGE_EMULATOR_HOST": server.url, "GOOGLE_APPLICATION_CREDENTIALS": str(place)})
        assert done.returncode == 0, done.stderr
        claims = jwt.decode(server.seen[0].removeprefix("Bearer "), certs=pem[1])
    assert claims["iss"] == claims["sub"] == "sa@x.iam" and "devstorage" in claims["scope"]
    assert claims["exp"] - claims["iat"] == 3600 and "aud" not in claims


@pytest.mark.parametrize("change, why", [
    ({"universe_domain": "x.example/y"}, "universe_domain is no domain"),
    ({"universe_domain": "x.example", "type": "authorized_user"}, "googleapis.com only"),
    ({"universe_domain": "googleapis.com"}, "127.0.0.1:9/token"), ({}, "127.0.0.1:9/token")])
def test_google_universes_that_are_none(explain, tmp_path, pem, change, why):
    """For Google's own domain the token service is contacted."""
    place = tmp_path / "google.json"
    place.write_text(json.dumps({
        "type": "service_account", "client_email": "sa@x.iam", "private_key": pem[0],
        "client_id": "c", "client_secret": "s", "refresh_token": "r",
        "token_uri": "http://127.0.0.1:9/token", **change}))
    info = explain("gs://b/k", status=1, GOOGLE_APPLICATION_CREDENTIALS=place)
    assert why in (info.stdout + info.stderr).decode()
