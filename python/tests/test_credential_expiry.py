"""Tokens that expire during a run.

Goal: a loader over s3:// whose credentials live for seconds loses no sample: they are refreshed
before they expire, by one request at a time, and a retried request is signed again. Method: a test
store that computes each signature again, refuses expired ones, and sometimes answers "retry in a
second"; STS (web identity) and an instance's metadata that issue keys for three seconds at most;
epochs until keys have changed several times. STOKER_TEST_LONG: keys of a minute, for 15 minutes.
"""

import os
import time

import object_server
import pytest
import stoker

FIELDS = {"id": "__id__", "jpg": stoker.Bytes("jpg"), "bin": stoker.Bytes("bin")}
LONG = bool(os.environ.get("STOKER_TEST_LONG"))
LIFE, SECONDS, KEYS = (60, 900, 12) if LONG else (3, 0, 3)
WAIT = SECONDS + 120


@pytest.fixture(params=["sts", "metadata"])
def place(request, tars, tmp_path, monkeypatch):
    """A store, and the service that issues its keys."""
    keys = {}
    objects = {("data", f"t/{path.name}"): path.read_bytes() for path in tars.glob("*.tar")}
    store = object_server.s3(objects, keys, retry_every=40)
    keeper = object_server.keeper(keys, LIFE)
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    settings = {"AWS_ENDPOINT_URL_S3": store.url, "AWS_REGION": "eu-west-3",
                "AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"}
    if request.param == "sts":
        (tmp_path / "token").write_text("a.web.identity")
        settings |= {"AWS_ENDPOINT_URL_STS": keeper.url, "AWS_ROLE_ARN": "arn:aws:iam::1:role/x",
                     "AWS_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "token"),
                     "AWS_EC2_METADATA_DISABLED": "true"}
    else:
        settings |= {"AWS_EC2_METADATA_SERVICE_ENDPOINT": keeper.url}
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    yield store, keeper
    store.close()
    keeper.close()


def epoch(loader):
    """The samples of an epoch, in the order of their ids."""
    found = []
    for batch in loader:
        columns = [[bytes(value) for value in column] if name != "id" else column.tolist()
                   for name, column in batch.items()]
        found += zip(*columns, strict=True)
    return sorted(found)


def test_tokens_end_and_no_sample_fails(place, tars):
    store, keeper = place
    options = {"fields": FIELDS, "output": "numpy", "tail": "keep", "seed": 5}
    with stoker.Loader(str(tars), 8, **options) as loader:
        want = epoch(loader)
    assert len(want) == 103
    begun = time.monotonic()
    epochs = 0
    # An engine of its own: the credentials that it caches for another store end with it.
    with stoker.Engine(threads=2) as engine, stoker.Loader(
            stoker.Dataset("s3://data/t", engine=engine), 8, **options) as loader:
        while len(set(store.seen)) < KEYS or time.monotonic() - begun < SECONDS:
            assert time.monotonic() - begun < WAIT
            assert epoch(loader) == want
            epochs += 1
            time.sleep(0.5 if LONG else 0)
    print(f"{epochs} epochs, {keeper.given} keys, {dict(store.said)}")
    assert keeper.most <= 1  # single flight
    assert keeper.given <= (time.monotonic() - begun) / (LIFE / 2) + 3
    assert not store.said[403]
    assert store.again  # some requests were answered with "retry later", and were signed again
    assert all(first < second for first, second in store.again)
