"""`Engine.store_stats()`: each request in its row and its column, as the servers saw it, and its
price.

Goal: no kind of store counts in another's row, or past the last; writes, removals and listings are
counted and priced as such. Method: the same requests to every kind of store, each a test server
that records its answers; the counts are exactly equal."""

from __future__ import annotations

import base64
import json
import urllib.parse

import object_server
import pytest
import stoker
import write_server

SMALL, LARGE = b"small" * 100, bytes(range(256)) * (6 << 12)  # 6 MiB: two parts
STORES = ("http", "s3", "gs", "az", "hf")
COLUMNS = ("requests", "lists", "puts", "deletes")
PRICES = {"get": 1.0, "list": 1e3, "put": 1e6, "delete": 1e9, "gigabyte": 0.0}


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch, tmp_path):
    """No settings of this machine, and for each column a price with a digit of its own."""
    for name, value in {"AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
                        "AWS_EC2_METADATA_DISABLED": "true", "AWS_ACCESS_KEY_ID": "a",
                        "AWS_SECRET_ACCESS_KEY": "s", "AWS_REGION": "us-east-1"}.items():
        monkeypatch.setenv(name, value)
    table = tmp_path / "prices.json"
    table.write_text(json.dumps({"stores": dict.fromkeys(STORES, PRICES)}))
    monkeypatch.setenv("STOKER_PRICES", str(table))


@pytest.fixture
def files(tmp_path):
    (tmp_path / "files").mkdir()
    (tmp_path / "files/small").write_bytes(SMALL)
    return tmp_path / "files"


def sort(lines):
    """The servers' answers by kind of request."""
    counts = dict.fromkeys(COLUMNS, 0)
    for method, path in lines:
        query = dict(urllib.parse.parse_qsl(path.partition("?")[2], keep_blank_values=True))
        counts["requests"] += 1
        if method == "DELETE" or (method == "POST" and "delete" in query):
            counts["deletes"] += 1
        elif method in ("PUT", "POST"):
            counts["puts"] += 1
        elif "list-type" in query or query.get("comp") == "list" or "uploadId" in query or \
                "uploads" in query or "/tree/" in path:
            counts["lists"] += 1
    return counts


def check(engine, store, want):
    """That the ledger has this in the row of the store, nothing in another, and its price."""
    ledger = engine.store_stats()
    assert {name for name in STORES if name in ledger} == {store}
    row = ledger[store]
    assert {name: row[name] for name in COLUMNS} == want
    gets = want["requests"] - want["lists"] - want["puts"] - want["deletes"]
    cost = gets + 1e3 * want["lists"] + 1e6 * want["puts"] + 1e9 * want["deletes"]
    assert row["cost"] == ledger["cost"] == cost
    assert ledger["retries"] == {"throttled": 0, "transient": 0, "other": 0}
    assert ledger["damaged"] == 0
    return row


def engine_of():
    return stoker.Engine(threads=1, hedge_percent_max=0, process_sharing=False)


def run_commands(engine, base, files):
    """Writes, copies within the store, lists, reads and removes."""
    stoker.cp(files, f"{base}/new/", recursive=True, part_bytes=5 << 20, engine=engine)
    stoker.cp(f"{base}/new/small", f"{base}/copy", engine=engine)
    names = {item.name for item in stoker.ls(f"{base}/new/", recursive=True, engine=engine)}
    assert names == {path.name for path in files.iterdir()}
    assert stoker.cat(f"{base}/copy", engine=engine) == SMALL
    stoker.rm(f"{base}/new/", recursive=True, engine=engine)
    stoker.rm(f"{base}/copy", engine=engine)


def test_s3(files, monkeypatch):
    (files / "large").write_bytes(LARGE)
    store = write_server.serve()
    monkeypatch.setenv("AWS_ENDPOINT_URL", store.url)
    with engine_of() as engine:
        run_commands(engine, "s3://b", files)
        want = sort(store.lines)
        # One object, two parts with their beginning and end, a copy; two at once, and one removed.
        assert want["puts"] == 1 + 4 + 1 and want["deletes"] == 2 and want["lists"] >= 1
        row = check(engine, "s3", want)
        assert row["bytes"] >= len(SMALL) and not store.objects
    store.close()


def test_google(files, monkeypatch):
    store = object_server.google({}, keys={"GOOG1E": ("s", "", float("inf"))})
    store.sums = ["crc32c"]
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", store.url)
    monkeypatch.setenv("GS_ACCESS_KEY_ID", "GOOG1E")
    monkeypatch.setenv("GS_SECRET_ACCESS_KEY", "s")
    with engine_of() as engine:
        run_commands(engine, "gs://b", files)
        want = sort(store.lines)
        assert want["puts"] == 2 and want["deletes"] == 2 and want["lists"] >= 1
        check(engine, "gs", want)
    store.close()


def test_azure(files, monkeypatch):
    key = base64.b64encode(b"k" * 64).decode()
    store = object_server.azure({}, keys={"acc": key})
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "acc")
    monkeypatch.setenv("AZURE_STORAGE_KEY", key)
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", f"{store.url}/acc")
    with engine_of() as engine:
        run_commands(engine, "az://b", files)
        want = sort(store.lines)
        assert want["puts"] == 2 and want["deletes"] == 2 and want["lists"] >= 1
        check(engine, "az", want)
    store.close()


def test_http():
    store = object_server.s3({("b", "k"): LARGE, ("b", "small"): SMALL})
    with engine_of() as engine:
        assert stoker.cat(f"{store.url}/b/k", engine=engine) == LARGE
        assert stoker.stat(f"{store.url}/b/small", engine=engine).bytes == len(SMALL)
        want = sort(store.lines)
        assert want["requests"] >= 3 and want["lists"] == want["puts"] == want["deletes"] == 0
        row = check(engine, "http", want)
        assert row["bytes"] >= len(LARGE)
    store.close()


def test_hub(monkeypatch):
    """Its redirects are part of the request that met them."""
    name = "datasets/org/name"
    objects = {(f"{name}@main", "data/a.bin"): SMALL, (f"{name}@main", "data/b.bin"): LARGE}
    hub = object_server.hub(objects, uses=1000)
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")
    with engine_of() as engine:
        found = {item.name for item in stoker.ls(f"hf://{name}/data", recursive=True,
                                                 engine=engine)}
        assert found == {"a.bin", "b.bin"}
        for (_, path), data in objects.items():
            assert stoker.cat(f"hf://{name}/{path}", engine=engine) == data
        want = sort(hub.lines + hub.far.lines)
        want["requests"] -= hub.said[302]
        assert want["lists"] >= 1 and want["requests"] >= 5
        row = check(engine, "hf", want)
        assert row["bytes"] >= len(SMALL) + len(LARGE)
    hub.close()
    hub.far.close()
