"""gs:// and az://, as a loader and the command read them.

Goal: the same samples, order and bytes as from a folder, with each kind of credentials: HMAC keys,
bearer token, shared key, SAS, anonymous; listings of many pages, names of any bytes; an object that
is replaced is not mixed; a secret is never sent in plain text. Method: test servers that compute
signatures by their definition and refuse all others; if azure-storage-blob is installed, it reads
from the same server, which verifies the server against an independent client.
"""

import base64
import io
import json
import os
import subprocess
import sys
import tarfile
import threading

import object_server
import make
import pytest
import servers
import stoker
from test_cli import COMMAND

FIELDS = {"id": "__id__", "key": "__key__", "jpg": stoker.Bytes("jpg"), "bin": stoker.Bytes("bin")}
CANARY = "canary0secret0value"
KEY = base64.b64encode(b"a key of an account").decode()
SAS = f"sv=2022-11-02&ss=b&srt=co&sp=rl&sig=ab%2B{CANARY}%3D"
NAMES = ["b c+d%41.tar", "ü&<>'\".tar", "x=y;z.tar", "control\1.tar", "sub/x.tar"]


def rows(source, engine, **options):
    found = []
    with make.loader(stoker.Dataset(source, engine=engine), 8, fields=FIELDS, output="numpy",
                       tail="keep", seed=3, **options) as loader:
        for batch in loader:
            columns = [[bytes(value) for value in column] if name in ("jpg", "bin")
                       else list(column) for name, column in batch.items()]
            found += zip(*columns, strict=True)
    return found


def run(*words, ok=0):
    done = subprocess.run([COMMAND, *words], capture_output=True, timeout=120, check=False)
    assert done.returncode == ok, done.stderr.decode()
    assert CANARY.encode() not in done.stdout + done.stderr
    return (done.stdout if ok == 0 else done.stderr).decode()


@pytest.fixture
def clean(monkeypatch, tmp_path):
    for name in [name for name in os.environ
                 if name.startswith(("AWS_", "GS_", "AZURE_", "GOOGLE_", "STORAGE_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    return monkeypatch


@pytest.fixture
def engine(clean):
    with stoker.Engine(threads=2) as engine:
        yield engine


def objects(tars):
    found = {("data", f"t/{path.name}"): path.read_bytes() for path in tars.glob("*.tar")}
    small = io.BytesIO()
    with tarfile.open(fileobj=small, mode="w") as tar:
        for name in ("s.jpg", "s.bin"):
            info = tarfile.TarInfo(name)
            info.size = 5
            tar.addfile(info, io.BytesIO(b"bytes"))
    found |= {("data", f"names/{name}"): small.getvalue() for name in NAMES}
    return found


def google_user(clean, tmp_path, token):
    """Application default credentials whose token service issues this token."""
    class Tokens(servers.Handler):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            body = json.dumps({"access_token": token, "expires_in": 3600}).encode()
            self.say(200, body)

    server = servers.Small(Tokens)
    (tmp_path / "user.json").write_text(json.dumps({
        "type": "authorized_user", "client_id": "a", "client_secret": CANARY, "refresh_token": "r",
        "token_uri": f"{server.url}/token"}))
    clean.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "user.json"))
    return server


WAYS = ["gs anonymous", "gs hmac", "gs bearer", "az anonymous", "az key", "az connection string",
        "az sas"]


@pytest.fixture(params=WAYS)
def store(request, clean, tars, tmp_path):
    """A store of one kind, and its credentials; its URLs begin with `server.base`."""
    kind, _, way = request.param.partition(" ")
    tokens = None
    if kind == "gs":
        keys = {"GOOG1E": (CANARY, "", float("inf"))} if way == "hmac" else None
        token = f"ya29.{CANARY}" if way == "bearer" else None
        server = object_server.google(objects(tars), keys, token)
        clean.setenv("STORAGE_EMULATOR_HOST", server.url)
        if keys:
            clean.setenv("GS_ACCESS_KEY_ID", "GOOG1E")
            clean.setenv("GS_SECRET_ACCESS_KEY", CANARY)
        if token:
            tokens = google_user(clean, tmp_path, token)
    else:
        server = object_server.azure(objects(tars),
                                     {"acc": KEY} if way in ("key", "connection string") else None,
                                     sas=SAS if way == "sas" else None)
        endpoint = f"{server.url}/acc"
        if way == "connection string":
            clean.setenv("AZURE_STORAGE_CONNECTION_STRING",
                         f"BlobEndpoint={endpoint};AccountName=acc;AccountKey={KEY}")
        else:
            clean.setenv("AZURE_STORAGE_ACCOUNT", "acc")
            clean.setenv("AZURE_STORAGE_ENDPOINT", endpoint)
        clean.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", "http://127.0.0.1:9")
        if way == "key":
            clean.setenv("AZURE_STORAGE_KEY", KEY)
        elif way == "sas":
            clean.setenv("AZURE_STORAGE_SAS_TOKEN", SAS)
    server.base = f"{kind}://data"
    yield server
    server.close()
    if tokens:
        tokens.shutdown()
        tokens.server_close()


def test_samples_are_those_of_a_folder(store, engine, tars):
    want = rows(str(tars), engine)
    assert len(want) == 103
    assert rows(f"{store.base}/t", engine) == want
    assert rows(f"{store.base}/t/train-*.tar", engine) == want
    assert not store.said[401] and not store.said[403]
    assert store.said[206] or store.base.startswith("gs")  # where small objects are read at once


some = pytest.mark.parametrize("store", ["gs hmac", "az key"], indirect=True)


@some
def test_names_of_any_bytes(store, engine):
    store.page = 2
    assert len(rows(f"{store.base}/names", engine)) == len(NAMES)
    assert store.said[200] >= 3


@some
def test_an_object_that_is_replaced(store, engine, tars):
    name = "t/train-000.tar"
    dataset = stoker.Dataset(f"{store.base}/{name}", engine=engine)
    data = store.objects["data", name]
    store.objects["data", name] = data[:1000] + b"?" + data[1001:]
    with pytest.raises(stoker.Error, match="replaced"), make.loader(
            dataset, 4, fields=FIELDS, output="numpy", tail="keep") as loader:
        # the bytes that were prefetched with the headers are those of the old version
        for _ in range(3):
            list(loader)


@some
def test_refusals_name_the_cause(store, tars):
    text = run("ls", f"{store.base}/none/x.tar", ok=3)
    assert "none/x.tar" in text and "no such object" in text
    if hasattr(store, "archived"):
        store.archived.add(("data", "t/train-000.tar"))
        text = run("ls", f"{store.base}/t/train-000.tar", ok=3)
        assert "archived" in text and "set-tier" in text
    if store.base.startswith("az"):
        store.keys = {"acc": base64.b64encode(b"another").decode()}
        store.sas = None
        assert "AuthenticationFailed" in run("ls", f"{store.base}/t/train-001.tar", ok=3)


def test_no_secret_in_plain_text(clean, tmp_path):
    """192.0.2.1 belongs to no host: the request must be refused before it is sent."""
    clean.setenv("AZURE_STORAGE_ACCOUNT", "acc")
    clean.setenv("AZURE_STORAGE_ENDPOINT", "http://192.0.2.1/acc")
    clean.setenv("AZURE_STORAGE_SAS_TOKEN", SAS)
    assert "plain text" in run("ls", "az://data/x.tar", ok=2)
    clean.setenv("STORAGE_EMULATOR_HOST", "http://192.0.2.1")
    tokens = google_user(clean, tmp_path, f"ya29.{CANARY}")
    assert "plain text" in run("ls", "gs://data/x.tar", ok=2)
    tokens.close()


def test_no_account(clean):
    clean.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", "http://127.0.0.1:9")
    assert "AZURE_STORAGE_ACCOUNT" in run("ls", "az://data/x.tar", ok=2)


def test_azure_itself_reads_from_the_server(tars):
    blob = pytest.importorskip("azure.storage.blob")
    server = object_server.azure(objects(tars), {"acc": KEY})
    try:
        client = blob.ContainerClient(f"{server.url}/acc", "data", credential={
            "account_name": "acc", "account_key": KEY})
        names = {item.name for item in client.list_blobs(name_starts_with="names/")}
        assert names == {f"names/{name}" for name in NAMES}
        for name in names:
            assert client.download_blob(name).readall() == server.objects["data", name]
    finally:
        server.close()


class Together(object_server.S3):
    """Answers the listing of a class folder only when three such requests wait at the same time."""

    def list(self, bucket, query):
        if query.get("prefix", "").count("/") == 2:
            try:
                self.server.barrier.wait(15)
                self.server.together += 1
            except threading.BrokenBarrierError:
                pass
        super().list(bucket, query)


def test_class_folders_are_listed_side_by_side(clean, engine):
    """A thousand folders one after the other are a thousand round trips."""
    there = {("data", f"set/{label}/{i}.jpg"): b"%d" % i for label in range(3) for i in range(4)}
    server = object_server.Store(Together, there)
    server.keys, server.reported, server.again, server.count = None, {}, [], 0
    server.barrier, server.together = threading.Barrier(3), 0
    for name, value in {"AWS_ENDPOINT_URL": server.url, "AWS_CONFIG_FILE": os.devnull,
                        "AWS_SHARED_CREDENTIALS_FILE": os.devnull, "AWS_NO_SIGN_REQUEST": "1",
                        "AWS_EC2_METADATA_DISABLED": "true"}.items():
        clean.setenv(name, value)
    dataset = stoker.Dataset("s3://data/set", engine=engine, index="never")
    assert len(dataset) == 12
    assert server.together == 3
    dataset.close()
    server.close()


class Slow(object_server.S3):
    """Lists below the root only if the account says so."""

    def list(self, bucket, query):
        if query.get("prefix") == "set/" and query.get("max-keys") != "1":
            self.server.requested.set()
            self.server.go.wait(60)
        super().list(bucket, query)


def test_the_same_name_at_two_servers_is_two_data_sets(clean, engine):
    """Processes share the listing of a data set, but not one that another server returned."""
    servers = []
    for count in (3, 5):
        there = {("data", f"set/a/{i}.jpg"): b"%d" % i for i in range(count)}
        server = object_server.Store(Slow, there)
        server.keys, server.reported, server.again, server.count = None, {}, [], 0
        server.requested, server.go = threading.Event(), threading.Event()
        servers.append(server)
    for name, value in {"AWS_CONFIG_FILE": os.devnull, "AWS_NO_SIGN_REQUEST": "1",
                        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
                        "AWS_EC2_METADATA_DISABLED": "true"}.items():
        clean.setenv(name, value)
    text = ("import stoker; "
            "print(len(stoker.Dataset('s3://data/set', index='never')))")
    first = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True,
                             env={**os.environ, "AWS_ENDPOINT_URL": servers[0].url})
    wait = threading.Timer(20, servers[0].go.set)
    try:
        assert servers[0].requested.wait(60)  # it has its turn now
        servers[1].go.set()
        clean.setenv("AWS_ENDPOINT_URL", servers[1].url)
        wait.start()  # so that waiting for it would end
        with stoker.Dataset("s3://data/set", engine=engine, index="never") as dataset:
            assert len(dataset) == 5
        servers[0].go.set()
        assert first.communicate(timeout=60)[0].startswith("3")
    finally:
        wait.cancel()
        first.kill()
        first.wait()
        for server in servers:
            server.close()
