"""Data in stores, read by a loader and by the command: Ceph's S3 gateway, nginx with and without
latency.

Data in a store equals data in a folder: the same samples, order, bytes and states."""

from __future__ import annotations

import json
import os
import pathlib
import random
import subprocess
import sys
import time

import conftest
import make
import numpy as np
import pytest
import servers
import stoker
from test_cli import COMMAND

FIELDS = {"id": "__id__", "key": "__key__", "jpg": stoker.Bytes("jpg"), "bin": stoker.Bytes("bin"),
          "label": stoker.Int("cls")}
LARGE = conftest.LARGE
WAIT = 120  # seconds: a bound for work that ends much sooner


def rows(source, engine, fields=FIELDS, batch_size=8, epochs=1, **options):
    """All samples, as plain values."""
    found = []
    with make.loader(stoker.Dataset(source, engine=engine), batch_size, fields=fields,
                       output="numpy", tail="keep", **options) as loader:
        for _ in range(epochs):
            for batch in loader:
                columns = [[bytes(value) for value in column]
                           if isinstance(column, stoker.Bytes) or name in ("jpg", "bin")
                           else list(column) for name, column in batch.items()]
                found += zip(*columns, strict=True)
    return found


def run(*words, ok=0, **environment):
    process = subprocess.run([COMMAND, *map(str, words)], capture_output=True, text=True,
                             timeout=WAIT, env={**os.environ, **environment})
    assert process.returncode == ok, process.stderr
    return process.stdout if ok == 0 else process.stderr


SOURCES = [
    "tars/",
    "tars",
    "tars/train-000.tar",
    "tars/train-*.tar",
    "tars/train-{000..004}.tar",
    ["tars/train-003.tar", "tars/train-00{0,1}.tar"],
]


def under(base, source):
    return [f"{base}/{part}" for part in source] if isinstance(source, list) else f"{base}/{source}"


@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_tars_in_s3(ceph, shelf, engine, source):
    want = rows(under(shelf, source), engine, seed=3, epochs=2)
    assert len(want) >= 40
    assert rows(under("s3://data", source), engine, seed=3, epochs=2) == want


@pytest.mark.parametrize("way", ["", "noranges/", "moved/", "slow/"])
@pytest.mark.parametrize("source", SOURCES[4:], ids=str)
def test_tars_by_http(nginx, shelf, engine, way, source):
    if way == "slow/" and not nginx.has_slow:
        pytest.skip("no Lua in nginx: scripts/setup --test installs it")
    want = rows(under(shelf, source), engine, seed=4)
    assert rows(under(f"{nginx.url}/{way.rstrip('/')}".rstrip("/"), source), engine,
                seed=4) == want


def test_ceph_over_a_slow_link(ceph, shelf, engine, tmp_path, monkeypatch):
    """nginx stands between: 30 to 50 ms to each first byte, signatures and bytes as without it."""
    try:
        far = servers.Nginx(tmp_path, shelf, before=ceph.url)
    except servers.Absent as why:
        pytest.skip(str(why))
    try:
        monkeypatch.setenv("AWS_ENDPOINT_URL", far.far_url)
        assert rows("s3://data/tars", engine, seed=6) == rows(shelf / "tars", engine, seed=6)
        run("cp", "--part-size", "5M", shelf / "large/0.tar", "s3://data/far/0.tar")
        run("cp", "s3://data/far/0.tar", tmp_path / "back")
        assert (tmp_path / "back").read_bytes() == (shelf / "large/0.tar").read_bytes()
        lines = far.log.read_text()
        assert "list-type=2" in lines and lines.count("partNumber=") == 5
    finally:
        far.close()


@pytest.mark.parametrize("memory", [None, 40 << 20], ids=["enough", "little"])
def test_bytes_are_requested_once(nginx, shelf, memory):
    """The first epoch without an index: the data that the header scan fetched is kept until it was
    read, if there is memory for it; if not, the bytes are the same."""
    (shelf / "once").mkdir(exist_ok=True)
    rng = random.Random(1)
    for i in range(3):
        make.tar(shelf / f"once/{i}.tar", [(f"{i}-{j:02}.bin", rng.randbytes(90_000 + j))
                                           for j in range(90)])
    size = sum(path.stat().st_size for path in (shelf / "once").iterdir())
    engine = stoker.Engine(threads=2, memory=memory) if memory else stoker.Engine(threads=2)
    fields = {"key": "__key__", "bin": stoker.Bytes("bin")}
    want = rows(f"{shelf}/once/{{0,1,2}}.tar", engine, fields, seed=2)
    dataset = stoker.Dataset(f"{nginx.url}/once/{{0,1,2}}.tar", engine=engine, index="never")
    found, requested = [], []
    with make.loader(dataset, 8, fields=fields, output="numpy", tail="keep", seed=2) as loader:
        for batch in loader:
            found += zip(batch["key"], map(bytes, batch["bin"]), strict=True)
            requested.append(loader.stats()["store"]["http"]["bytes"])
        stats = loader.stats()
    assert [tuple(row) for row in found] == want and len(want) == 270
    assert not memory or stats["memory_bytes_peak"] <= memory
    # Towards its end, reads of the next epoch are in flight, which fetch released data again.
    assert memory or requested[len(requested) // 2] <= size + 100


def test_large_members(ceph, nginx, shelf, engine):
    fields = {"key": "__key__", "bin": stoker.Bytes("bin")}
    want = rows(f"{shelf}/large", engine, fields, batch_size=2)
    assert sorted(len(row[1]) for row in want)[-2:] == [LARGE] * 2
    assert rows("s3://data/large", engine, fields, batch_size=2) == want
    for way in ("", "/noranges"):
        assert rows(f"{nginx.url}{way}/large/{{0,1}}.tar", engine, fields, batch_size=2) == want


def test_class_folders_in_s3(ceph, shelf, engine):
    """Names with blanks, plus signs, percent signs and umlauts are used unchanged."""
    fields = {"key": "__key__", "jpg": stoker.Bytes("jpg"), "label": stoker.Label()}
    want = rows(shelf / "pictures", engine, fields, seed=1)
    assert len(want) == 24 and len({row[2] for row in want}) == 3
    assert rows("s3://data/pictures", engine, fields, seed=1) == want
    image = [stoker.RandomResizedCrop(32), stoker.Normalize()]
    for source in (f"{shelf}/pictures", "s3://data/pictures"):
        with make.loader(source, 8, image=image, engine=engine, output="numpy") as loader:
            batches = [(images.copy(), labels.copy()) for images, labels in loader]
        want = batches if source.startswith("/") else want
    assert all(np.array_equal(a, b) for pair in zip(want, batches, strict=True)
               for a, b in zip(*pair, strict=True))


def test_resume(ceph, shelf, engine):
    """A state of local files continues in the store, and the reverse: it is the same data."""
    def open_at(base):
        return make.loader(f"{base}/tars", 7, fields={"id": "__id__", "bin": FIELDS["bin"]},
                             seed=9, engine=engine, output="numpy")

    def take(loader, count):
        batches = iter(loader)
        return [(batch["id"].tolist(), [bytes(value) for value in batch["bin"]])
                for _, batch in zip(range(count), batches)]

    with open_at(shelf) as loader:
        want = take(loader, 14)
    for first, second in ((shelf, "s3://data"), ("s3://data", shelf), ("s3://data",) * 2):
        with open_at(first) as loader:
            got = take(loader, 5)
            state = loader.state_dict()
        with open_at(second) as loader:
            loader.load_state_dict(json.loads(json.dumps(state)))
            assert got + take(loader, 9) == want


def test_index_of_s3(ceph, shelf, engine, tmp_path, monkeypatch):
    """A remote data set's index is in the cache; with it no header is read, and a replaced shard is
    detected."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    client = ceph.client()
    client.create_bucket(Bucket="indexed")
    for path in sorted((shelf / "tars").glob("*.tar")):
        client.put_object(Bucket="indexed", Key=f"set/{path.name}", Body=path.read_bytes())
    report = stoker.index("s3://indexed/set", engine=engine)
    assert pathlib.Path(report.path).is_relative_to(tmp_path)
    want = rows(shelf / "tars", engine)
    with stoker.Engine(threads=1, memory="256MiB") as fresh:
        dataset = stoker.Dataset("s3://indexed/set", engine=fresh, index="require")
        assert len(dataset) == len(want)
    assert rows("s3://indexed/set", engine) == want
    # The index is next to the data, as a user who uploads a folder has it.
    local = stoker.index(shelf / "tars", engine=engine)
    client.put_object(Bucket="data", Key="tars/stoker.index",
                      Body=pathlib.Path(local.path).read_bytes())
    os.unlink(local.path)
    client.put_object(Bucket="indexed", Key="set/train-002.tar",
                      Body=(shelf / "tars/train-000.tar").read_bytes())
    with stoker.Engine(threads=1, memory="256MiB") as fresh, \
            pytest.raises(stoker.ChangedError, match=r"train-002\.tar"):
        stoker.Dataset("s3://indexed/set", engine=fresh, index="require")


def test_replaced_while_it_is_read(ceph, shelf, engine):
    """Never bytes of another version: the object is another than when the data set was opened."""
    client = ceph.client()
    client.create_bucket(Bucket="fleeting")
    body = (shelf / "large/0.tar").read_bytes()
    client.put_object(Bucket="fleeting", Key="a.tar", Body=body)
    dataset = stoker.Dataset("s3://fleeting/a.tar", engine=engine)
    client.put_object(Bucket="fleeting", Key="a.tar", Body=body[:512] + body[512:][::-1])
    loader = make.loader(dataset, 1, fields={"bin": stoker.Bytes("bin")})
    with pytest.raises(stoker.ChangedError, match=r"was replaced.*s3://fleeting/a\.tar.*HTTP 412"):
        list(loader)


WRONG = [
    ("s3://nosuchbucket/a.tar", {}, stoker.IOError, ["s3://nosuchbucket/a.tar", "404"]),
    ("s3://nosuchbucket/", {}, stoker.IOError,
     ["s3://nosuchbucket", "404", "NoSuchBucket", "no such bucket"]),
    ("s3://data/no.tar", {}, stoker.IOError, ["s3://data/no.tar"]),
    ("s3://data/tars/no-*.tar", {}, stoker.Error, ["s3://data/tars/no-*.tar"]),
    ("s3://data/tars/train-000.tar", {"AWS_SECRET_ACCESS_KEY": "another0canary"}, stoker.IOError,
     ["s3://data/tars/train-000.tar", "403", "SignatureDoesNotMatch", "the server expects"]),
    ("s3://data/tars", {"AWS_ACCESS_KEY_ID": "unknown"}, stoker.IOError,
     ["s3://data/tars", "403", "InvalidAccessKeyId", "does not know"]),
    ("s3://data/tars/train-000.tar", {"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, stoker.IOError,
     ["127.0.0.1:1", "connect"]),
]


@pytest.mark.parametrize("url, environment, kind, parts", WRONG,
                         ids=[f"{row[0]} {' '.join(row[1])}" for row in WRONG])
def test_errors_name_the_cause(ceph, engine, monkeypatch, url, environment, kind, parts):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(kind) as raised:
        stoker.Dataset(url, engine=engine)
    text = str(raised.value)
    assert all(part in text for part in parts), text
    assert servers.SECRET not in text and "canary" not in text
    assert raised.value.advice


@pytest.mark.parametrize("path, code", [("no.tar", "404"), ("secret/a.tar", "403")])
def test_errors_of_http(nginx, engine, path, code):
    with pytest.raises(stoker.IOError) as raised:
        stoker.Dataset(f"{nginx.url}/{path}", engine=engine)
    assert f"{nginx.url}/{path}" in str(raised.value) and f"HTTP {code}" in str(raised.value)
    assert "stoker ls" not in raised.value.advice  # which a web server does not have


def test_globs_need_a_list(nginx, engine):
    with pytest.raises(stoker.Error, match="cannot be listed"):
        stoker.Dataset(f"{nginx.url}/tars/*.tar", engine=engine)


def test_commands(ceph, nginx, shelf, tmp_path):
    """The commands that read take URLs where they take paths."""
    local = shelf / "tars"
    s3, web = "s3://data/tars", f"{nginx.url}/tars/train-{{000..004}}.tar"
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    listed = run("ls", local)
    assert "part0/s0007" in listed
    assert run("ls", s3, **environment) == listed.replace(str(local), s3)
    assert run("ls", web, **environment) == listed.replace(str(local), f"{nginx.url}/tars")
    member = "part0/s0007.txt"
    for url in (s3, web):
        assert run("cat", url, member, **environment) == run("cat", local, member) != ""
    assert "103" in run("info", s3, **environment)
    assert json.loads(run("verify", "--json", s3, **environment).splitlines()[-1])


def test_ledger(ceph, nginx, shelf, tmp_path, monkeypatch):
    """The requests, as nginx's log has them; the cost by the named price table."""
    with stoker.Engine(threads=1, memory="128MiB") as engine:
        requested = len(nginx.log.read_text().splitlines())
        idle = engine.store_stats()
        assert idle.pop("manners")["alone"] is None  # no request was sent yet
        assert idle == {"retries": dict.fromkeys(("throttled", "transient", "other"), 0),
                        "damaged": 0, "cost": 0.0}
        rows(f"{nginx.url}/tars/train-{{000..004}}.tar", engine)
        until = time.monotonic() + 60
        # nginx logs after it has answered, and reads of the next epoch continue for a while
        while True:
            web = engine.store_stats()
            logged = nginx.log.read_text().splitlines()[requested:]
            if web["http"]["requests"] == len(logged) or time.monotonic() > until:
                break
            time.sleep(0.05)
        assert web["http"]["requests"] == len(logged) > 5 and web["cost"] == 0
        assert web["http"]["bytes"] > sum(path.stat().st_size - 10240
                                          for path in (shelf / "tars").glob("*.tar"))
        table = tmp_path / "prices.json"
        table.write_text('{"stores": {"s3": {"get": 2, "list": 100, "gigabyte": 1e9}}}')
        monkeypatch.setenv("STOKER_PRICES", str(table))
        with make.loader("s3://data/tars", 8, fields={"id": "__id__", "bin": FIELDS["bin"]},
                           engine=engine) as loader:
            list(loader)
            store = loader.stats()["store"]
        s3 = store["s3"]
        assert s3["lists"] >= 1 and s3["requests"] > s3["lists"] and s3["bytes"] > 100_000
        assert s3["puts"] == s3["deletes"] == 0
        want = (s3["requests"] - s3["lists"]) * 2 + s3["lists"] * 100 + s3["bytes"]
        assert store["cost"] == pytest.approx(want) and "gs" not in store
        table.write_text("{}")
        with pytest.raises(stoker.ArgumentError, match="prices"):
            engine.store_stats()


def test_ranks_read_their_share(ceph, shelf):
    """Independent processes read disjoint shares that together are all of it."""
    code = """
import sys, stoker
with stoker.Loader("s3://data/tars", 5, fields={"id": "__id__"}, seed=2, rank=int(sys.argv[1]),
                   world_size=3, tail="pad", output="numpy") as loader:
    print(*[i for batch in loader for i, m in zip(batch["id"],
            loader.mask if loader.mask is not None else [True] * 5) if m])
"""
    ranks = [subprocess.Popen([sys.executable, "-c", code, str(rank)], stdout=subprocess.PIPE,
                              text=True) for rank in range(3)]
    ids = [int(i) for rank in ranks for i in rank.communicate(timeout=WAIT)[0].split()]
    assert set(ids) == set(range(103))
