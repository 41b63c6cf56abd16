"""hf://, as a loader and the command read it.

Goal: the same samples as from a folder; a file's signed URL is used until it is refused and then
requested again; the token is sent only to the hub; refusals of the hub are named. Method: a test
hub and, as another host, its storage, which accepts each signature a few times and records the
requests.
"""

import hashlib
import os
import subprocess

import object_server
import make
import pytest
import stoker
from test_cli import COMMAND
from test_composite_checksum import faulty

FIELDS = {"id": "__id__", "key": "__key__", "jpg": stoker.Bytes("jpg"), "bin": stoker.Bytes("bin")}
TOKEN = "hf_canary0secret0value"
REPOSITORY = "datasets/org/name"


def rows(source, engine):
    """Reads two epochs: the first from the data that came with the headers, the second by
    ranges."""
    found = []
    with make.loader(stoker.Dataset(source, engine=engine), 8, fields=FIELDS, output="numpy",
                       tail="keep", seed=3) as loader:
        for batch in (*loader, *loader):
            columns = [[bytes(value) for value in column] if name in ("jpg", "bin")
                       else list(column) for name, column in batch.items()]
            found += zip(*columns, strict=True)
    return found


def fails(*words, code=3):
    done = subprocess.run([COMMAND, *words], capture_output=True, timeout=120, check=False)
    text = (done.stdout + done.stderr).decode()
    assert done.returncode == code, text
    assert TOKEN not in text and "Signature" not in text
    return text


@pytest.fixture
def engine():
    with stoker.Engine(threads=2) as engine:
        yield engine


@pytest.fixture
def hub(tars, monkeypatch, tmp_path):
    for name in [name for name in os.environ if name.startswith(("HF_", "HUGGING"))]:
        monkeypatch.delenv(name)
    objects = {(f"{REPOSITORY}@{revision}", f"data/{path.name}"): path.read_bytes()
               for path in tars.glob("*.tar") for revision in ("main", "refs/pr/1")}
    objects[f"{REPOSITORY}@main", "small.json"] = b"not a tar"
    server = object_server.hub(objects, TOKEN)
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    (tmp_path / "token").write_text(TOKEN + "\n")
    monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "token"))
    yield server
    server.close()
    server.far.close()


@pytest.mark.parametrize("revision,uses", [("", 1), ("@refs/pr/1", 1000)])
def test_samples_are_those_of_a_folder(hub, engine, tars, revision, uses):
    base = f"hf://{REPOSITORY}{revision}"
    hub.page, hub.uses = 2, uses
    want = rows(str(tars), engine)
    assert len(want) == 2 * 103
    assert rows(f"{base}/data", engine) == want
    assert rows(f"{base}/data/train-00{{0..4}}.tar", engine) == want
    if uses > 1:
        assert hub.far.said[403] == 0
    # The token was sent to the hub only.
    assert {token for _, token in hub.seen} == {f"Bearer {TOKEN}"}
    assert {token for _, token in hub.far.seen} == {None}


@pytest.mark.parametrize("revision", ["", "@v1.0"])
def test_models(hub, engine, tars, tmp_path, revision):
    """Model repositories: their URLs have no kind (such as datasets/) before the name."""
    at, other = ("v1.0", "main") if revision else ("main", "v1.0")
    for path in tars.glob("*.tar"):
        hub.objects[f"models/org/model@{at}", f"data/{path.name}"] = path.read_bytes()
    hub.objects[f"models/org/model@{at}", "config.json"] = b"{}"
    hub.objects[f"models/org/model@{other}", "config.json"] = b"of another revision"
    base = f"hf://org/model{revision}"
    assert rows(f"{base}/data", engine) == rows(str(tars), engine)
    for words in (["cat", f"{base}/config.json"], ["ls", "--files", "-r", base]):
        done = subprocess.run([COMMAND, *words], capture_output=True, timeout=120, check=True)
        assert done.stdout == b"{}" or b"config.json" in done.stdout
    assert {token for _, token in hub.seen} == {f"Bearer {TOKEN}"}


@pytest.mark.parametrize("uses", [1, 1000])
def test_a_signature_is_used_until_it_ends(hub, engine, uses):
    """If a signed URL is refused the second time, the client requests another one from the hub."""
    hub.uses = uses
    pytest.importorskip("fsspec")
    from stoker.fsspec_filesystem import StokerFileSystem

    fs = StokerFileSystem(engine=engine, skip_instance_cache=True)
    name = f"{REPOSITORY}@main", "data/train-000.tar"
    signed = []
    with fs.open(f"stoker://hf/{REPOSITORY}/data/train-000.tar", cache_type="none") as file:
        for offset in (0, 9000, 3000, 6000):
            file.seek(offset)
            assert file.read(100) == hub.objects[name][offset:offset + 100]
            signed.append(hub.signed)
    if uses == 1:
        assert hub.far.said[403] >= 3 and signed[-1] >= 4
    else:
        assert hub.far.said[403] == 0 and signed[0] == signed[-1]


def test_a_signature_that_is_refused_at_once(hub, engine, tars):
    """The client requests a new URL from the hub, a limited number of times."""
    hub.lose = 2
    assert rows(f"hf://{REPOSITORY}/data", engine) == rows(str(tars), engine)
    assert hub.far.said[403] >= 10
    hub.lose = 10**9
    requested = hub.signed
    assert "AccessDenied" in fails("ls", f"hf://{REPOSITORY}/data/train-000.tar")
    assert hub.signed - requested < 100


def test_a_file_that_lies_at_the_hub(hub, engine):
    with pytest.raises(stoker.Error):
        rows(f"hf://{REPOSITORY}/small.json", engine)
    assert any(path.startswith("/here/") and token for path, token in hub.seen)
    assert not hub.far.seen


def test_complete_files_are_verified(hub, engine, tars):
    """Checksums as the hub reports them: damaged data is read again, or it is an error."""
    url = f"hf://{REPOSITORY}/data/train-000.tar"
    want = rows(str(tars / "train-000.tar"), engine)
    body = hub.objects[f"{REPOSITORY}@main", "data/train-000.tar"]
    far = faulty(hub.far)
    far.at, far.flips = len(body) // 2, 2
    assert rows(url, engine) == want and far.flips == 0
    with make.loader(url, 8, fields=FIELDS, output="numpy", engine=engine) as loader:
        reported = loader.stats()["store"]  # of all that the engine read
    assert reported["hf"]["checked"] >= len(body) and reported["damaged"] == 2
    far.flips = 10**9
    with stoker.Engine(threads=1) as other, pytest.raises(stoker.Error, match="checksum") as error:
        rows(url, other)
    assert f"sha256 {hashlib.sha256(body).hexdigest()}" in str(error.value)


def test_a_file_that_is_replaced(hub, engine):
    name = f"{REPOSITORY}@main", "data/train-000.tar"
    dataset = stoker.Dataset(f"hf://{REPOSITORY}/data/train-000.tar", engine=engine)
    data = hub.objects[name]
    hub.objects[name] = data[:1000] + b"?" + data[1001:]
    with pytest.raises(stoker.Error, match="replaced"), make.loader(
            dataset, 4, fields=FIELDS, output="numpy", tail="keep") as loader:
        # the bytes that were prefetched with the headers are those of the old version
        for _ in range(3):
            list(loader)


def test_refusals_name_the_cause(hub, monkeypatch):
    text = fails("ls", f"hf://{REPOSITORY}/none.tar")
    assert "none.tar" in text and "no such object" in text and "check repository" in text
    assert "repository" in fails("ls", "hf://datasets/org", code=2)
    hub.elsewhere = "http://169.254.169.254/latest/meta-data"
    assert "redirect" in fails("ls", f"hf://{REPOSITORY}/data/train-000.tar", code=1)
    hub.elsewhere = None
    monkeypatch.setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")
    text = fails("ls", f"hf://{REPOSITORY}/data/train-000.tar")
    assert "RepoNotFound" in text and "creds explain" in text
    monkeypatch.delenv("HF_HUB_DISABLE_IMPLICIT_TOKEN")
    monkeypatch.setenv("HF_ENDPOINT", "http://192.0.2.1")
    assert "plain text" in fails("ls", f"hf://{REPOSITORY}/data/train-000.tar", code=2)
