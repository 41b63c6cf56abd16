"""pack, index and verify on URLs, against Ceph's S3 gateway and nginx: the bytes are those of the
same work on this machine, killed runs resume, and nothing is ever replaced."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import time

import make
import numpy as np
import pytest
import servers
import stoker
from test_cli import COMMAND
from test_fault_proxy import Proxy

WAIT = 120
BIG = 3_000_000


def run(*words, ok=0, env=None):
    done = subprocess.run([COMMAND, *map(str, words)], capture_output=True, text=True,
                          timeout=WAIT, env={**os.environ, **(env or {})})
    assert done.returncode == ok, (words, done.returncode, done.stdout, done.stderr)
    return done.stdout if ok == 0 else done.stdout + done.stderr


@pytest.fixture
def bucket(ceph, request, monkeypatch, tmp_path):
    client, name = ceph.client(), request.node.name.lower().replace("_", "-").split("[")[0]
    client.create_bucket(Bucket=name)
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path / "cache"))

    def objects(prefix=""):
        found = client.list_objects_v2(Bucket=name, Prefix=prefix).get("Contents", [])
        return {item["Key"][len(prefix):]: client.get_object(
            Bucket=name, Key=item["Key"])["Body"].read() for item in found}

    client.objects, client.name, client.url = objects, name, f"s3://{name}"
    return client


def below(root):
    return {path.name: path.read_bytes() for path in sorted(pathlib.Path(root).iterdir())}


@pytest.fixture
def shards(bucket, tars, tmp_path):
    """A folder of tars, and the same in a store, of the test's own."""
    for path in tars.glob("*.tar"):
        shutil.copy(path, make.write(tmp_path / "tars" / path.name, b""))
    run("cp", "-r", tmp_path / "tars", f"{bucket.url}/tars")
    return tmp_path / "tars", f"{bucket.url}/tars"


LOOKS = {
    "ls": ["ls"], "order": ["order", "--shuffle", "full", "--seed", 3],
    "order --at": ["order", "--shuffle", "full", "--at", 5, "--batch", 4, "--seed", 3],
}


@pytest.mark.parametrize("words", LOOKS.values(), ids=LOOKS)
def test_remote_info_equals_local(shards, words):
    """The same as from a local folder, except for the paths."""
    folder, url = shards
    here, there = (run(*words, "--json", where) for where in shards)
    mixing = re.compile(r', "mixing": \{[^}]*\}')  # by labels, which are read here only
    assert mixing.sub("", there) == mixing.sub("", here.replace(str(folder), url))
    assert len(here) > 100


def test_the_same_data(shards, tmp_path):
    """info, prewarm, diff, and an epoch: the same from a store as from the folder that was copied
    to it."""
    folder, url = shards
    here, there, warm, beside, fast = (json.loads(run(*words)) for words in (
        ["info", "--json", folder], ["info", "--json", url], ["prewarm", "--json", url],
        ["diff", "--json", folder, url], ["bench", "data", "--json", "--epochs", 1, url]))
    for name in ("kind", "samples", "shards", "members", "bytes", "identity"):
        assert there[name] == here[name]
    size = sum(path.stat().st_size for path in folder.iterdir())
    assert warm["bytes_read"] == warm["bytes"] == size
    assert beside["same"] == here["samples"] and beside["bytes_read"] == 2 * size
    assert fast["samples"] > 0 and fast["bad_samples"] == 0
    make.write(tmp_path / "one/train-000.tar", (folder / "train-000.tar").read_bytes())
    reported = run("diff", "--json", tmp_path / "one", url, ok=1).splitlines()[-1]
    assert (json.loads(reported)["same"], json.loads(reported)["added"]) == (20, 83)


def test_tokens(ceph, bucket, tmp_path):
    np.save(tmp_path / "t.npy", np.arange(50_000, dtype=np.uint16))
    run("cp", tmp_path / "t.npy", f"{bucket.url}/t.npy")

    def rows(source):
        with stoker.TokenLoader(source, 4, 32, shuffle="block", seed=3, output="numpy") as loader:
            return [[np.asarray(rows).tolist() for rows in batch] for batch in loader]

    assert rows(f"{bucket.url}/t.npy") == rows(tmp_path / "t.npy") != []


CHOICES = [{"subset": "size > 1800"}, {"balance": "cls"}, {"weights": "size"}]


@pytest.mark.parametrize("choice", CHOICES, ids=lambda choice: next(iter(choice)))
def test_chosen_samples(shards, tmp_path, choice):
    """The same as for a folder; the table of a store's read-only data is in the cache, and is found
    there: by `stoker sample` too."""
    folder, url = shards

    def keys(where):
        with stoker.Loader(where, 4, seed=3, shuffle="full", tail="keep", output="numpy",
                           fields={"key": "__key__"}, **choice) as loader:
            return [key for batch in loader for key in batch["key"]], loader.tables[0]

    want, _ = keys(folder)
    found, table = keys(url)
    assert found == want and len(want) > 10 and table["scanned"] == 103
    assert pathlib.Path(table["table_path"]).parent == tmp_path / "cache"
    assert keys(url)[1]["scanned"] == 0
    name, value = next(iter(choice.items()))
    reported = json.loads(run("sample", "--json", f"--{name}", value, url))
    assert reported["table"] == table["table_path"] and reported["scanned"] == 0


@pytest.mark.parametrize("source", ["folder", "tars", "url"])
def test_pack(bucket, folder, tars, tmp_path, source):
    """As on this machine; read and verified in place, by its index."""
    where = {"folder": folder, "tars": tars, "url": "s3://data/tars"}[source]
    words = ["--shard-size", "100K", "--shuffle", 3]
    run("pack", *words, where, tmp_path / "here")
    reported = json.loads(run("pack", "--json", *words, where, f"{bucket.url}/{source}/"))
    assert reported["destination"] == f"{bucket.url}/{source}/" and reported["shards"] > 1
    assert bucket.objects(f"{source}/") == below(tmp_path / "here")
    assert not list((tmp_path / "cache").glob("pack-*"))  # nothing is left here
    url = f"{bucket.url}/{source}"
    with stoker.Dataset(url) as there, stoker.Dataset(tmp_path / "here") as here:
        assert there.index_path == f"{url}/stoker.index"
        assert there.shards_indexed == there.shard_count == reported["shards"]
        assert len(there) == len(here) == reported["samples"]
        assert there.read(7) == here.read(7)
    assert json.loads(run("verify", "--json", url))["findings"] == 0
    again = run("pack", *words, where, url, ok=3)
    assert "objects already" in again and bucket.objects(f"{source}/") == below(tmp_path / "here")


def test_pack_in_python(ceph, bucket, tars, tmp_path):
    """The same; a failure on the way is raised, and the same call resumes."""
    url = f"{bucket.url}/x"
    options = {"shard_bytes": 100_000, "shuffle": 3}
    here = stoker.pack(tars, tmp_path / "here", **options)
    rules = [{"method": "PUT", "path": "*stoker.manifest.json", "fault": "status", "status": 403}]
    with Proxy("--to", ceph.url, rules=rules) as proxy, stoker.Engine() as broken:
        os.environ["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{proxy.port}"
        with pytest.raises(PermissionError, match="manifest"):
            stoker.pack(tars, url, engine=broken, stage=tmp_path / "stage", **options)
        os.environ["AWS_ENDPOINT_URL"] = ceph.url
    want = below(tmp_path / "here")
    assert bucket.objects("x/") == {name: data for name, data in want.items()
                                    if name != "stoker.manifest.json"}
    with stoker.Engine() as engine:
        with pytest.raises(FileExistsError, match="objects already"):
            stoker.pack(tars, url, engine=engine, shard_bytes=50_000, stage=tmp_path / "stage")
        there = stoker.pack(tars, url, engine=engine, stage=tmp_path / "stage", **options)
        assert bucket.objects("x/") == want and not list((tmp_path / "stage").glob("pack-*/data"))
        assert {name: there[name] for name in ("shards", "samples", "bytes")} == {
            name: here[name] for name in ("shards", "samples", "bytes")}
        with pytest.raises(stoker.UnsupportedError, match="is read-only"):
            stoker.pack(tars, "https://host/x", engine=engine)
        with pytest.raises(stoker.ArgumentError, match="names no bucket"):
            stoker.pack(tars, "s3://", engine=engine)


def test_pack_where_something_is(bucket, tars, tmp_path):
    bucket.put_object(Bucket=bucket.name, Key="a/mine", Body=b"1")
    assert "objects already" in run("pack", tars, f"{bucket.url}/a", ok=3)
    assert bucket.objects() == {"a/mine": b"1"}
    run("pack", tars, f"{bucket.url}/a2")  # a longer name is another
    assert "no-such-bucket" in run("pack", tars, "s3://no-such-bucket/none", ok=3)
    assert "read-only" in run("pack", tars, "http://127.0.0.1:9/x", ok=2)
    assert not list((tmp_path / "cache").glob("pack-*/data.part"))


@pytest.mark.parametrize("stalled", ["shard-000002.tar", "stoker.index", "stoker.manifest.json"])
def test_killed_while_sending(ceph, bucket, tars, tmp_path, stalled):
    """The manifest is written last; the same command resumes, and other runs cannot interfere."""
    words = ["pack", "--json", "--shard-size", "100K", tars, f"{bucket.url}/{stalled[-8:]}"]
    run("pack", "--shard-size", "100K", tars, tmp_path / "here")
    want, prefix = below(tmp_path / "here"), f"{stalled[-8:]}/"
    rules = [{"method": "PUT", "path": f"*{stalled}", "fault": "stall"}]
    with Proxy("--to", ceph.url, rules=rules) as proxy:
        env = {**os.environ, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}"}
        process = subprocess.Popen([COMMAND, *map(str, words)], env=env,
                                   stdout=subprocess.DEVNULL)
        rest = {name for name in want if "shard" in name and name != stalled}
        if stalled == "stoker.manifest.json":
            rest.add("stoker.index")
        until = time.monotonic() + WAIT
        while not rest <= set(bucket.objects(prefix)):
            assert time.monotonic() < until and process.poll() is None
            time.sleep(0.05)
        process.kill()
        process.wait()
    found = bucket.objects(prefix)
    assert "stoker.manifest.json" not in found and found.items() <= want.items()
    for change in (["--shard-size", "50K"], ["--shard-size", "100K", "--keep-order"]):
        other = run("pack", *change, *words[4:], ok=3)  # other settings: not this work
        assert "objects already" in other and bucket.objects(prefix) == found
    sent = {item["Key"]: item["LastModified"]
            for item in bucket.list_objects_v2(Bucket=bucket.name)["Contents"]}
    reported = json.loads(run(*words))
    assert reported["samples"] == 103 and bucket.objects(prefix) == want
    now = {item["Key"]: item["LastModified"]
           for item in bucket.list_objects_v2(Bucket=bucket.name)["Contents"]}
    # the existing object was not changed
    assert all(now[key] == when for key, when in sent.items())
    assert not list((tmp_path / "cache").glob("pack-*"))


def test_pack_to_no_bucket(bucket, tars, tmp_path):
    """An error before anything is packed; nothing is left in the cache."""
    for url in ("s3://no-such-bucket-there/x", "s3://no-such-bucket-there"):
        text = run("pack", tars, url, ok=3)
        assert "no such bucket" in text and "packed" not in text
        with pytest.raises(FileNotFoundError, match="no such bucket"):
            stoker.pack(tars, url)
    assert not list((tmp_path / "cache").glob("*pack*"))
    run("pack", tars, bucket.url)  # an empty bucket is one
    assert "stoker.manifest.json" in bucket.objects()


def test_killed_while_packing(bucket, tmp_path):
    """Nothing is at the URL until all is packed."""
    make.tar(tmp_path / "src/0.tar", [(f"{i:05}.bin", os.urandom(100_000)) for i in range(300)])
    words = ["pack", "--shard-size", "1M", tmp_path / "src", f"{bucket.url}/x"]
    process = subprocess.Popen([COMMAND, *map(str, words)], stdout=subprocess.DEVNULL)
    until = time.monotonic() + WAIT
    while not list((tmp_path / "cache").glob("pack-*/data*/shard-00000[2-9].tar")):
        assert time.monotonic() < until
        time.sleep(0.001)
        if process.poll() is not None:
            break
    process.kill()
    process.wait()
    run("pack", "--shard-size", "1M", tmp_path / "src", tmp_path / "here")
    if "stoker.manifest.json" not in bucket.objects("x/"):
        run(*words)
    assert bucket.objects("x/") == below(tmp_path / "here")


def test_another_wins(ceph, bucket, tars, tmp_path):
    """A manifest that another run wrote meanwhile stays: it is never replaced."""
    words = ["pack", "--shard-size", "100K", tars, f"{bucket.url}/x"]
    rules = [{"method": "PUT", "path": "*stoker.index", "fault": "delay", "delay_ms": 3000}]
    with Proxy("--to", ceph.url, rules=rules) as proxy:
        env = {**os.environ, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}"}
        process = subprocess.Popen([COMMAND, *map(str, words)], env=env, stderr=subprocess.PIPE,
                                   text=True)
        until = time.monotonic() + WAIT
        while len(bucket.objects("x/")) < 3:
            assert time.monotonic() < until
            time.sleep(0.02)
        bucket.put_object(Bucket=bucket.name, Key="x/stoker.manifest.json", Body=b"theirs")
        _, reported = process.communicate(timeout=WAIT)
    assert process.returncode == 3 and "stoker.manifest.json" in reported
    assert bucket.objects("x/")["stoker.manifest.json"] == b"theirs"


def sent_bytes(log, path):
    lines = [line for line in log.read_text().splitlines() if f"GET {path}" in line]
    return len(lines), sum(int(re.search(r'" \d+ (\d+)', line)[1]) for line in lines)


def test_index_reads_headers(tmp_path):
    """A few per cent of large members, by the server's log; the index is that of local files."""
    random = np.random.default_rng(3)
    for shard in range(2):
        keys = [f"{shard}{i:03}" for i in range(12)]
        make.tar(tmp_path / f"d/{shard}.tar", [
            member for key in keys
            for member in ((f"{key}.bin", random.bytes(BIG)), (f"{key}.cls", b"1"))])
    (tmp_path / "nginx").mkdir()
    try:
        nginx = servers.Nginx(tmp_path / "nginx", tmp_path)
    except servers.Absent as why:
        pytest.skip(str(why))
    try:
        urls = [f"{nginx.url}/d/{shard}.tar" for shard in range(2)]
        reported = json.loads(run("index", "--json", "--out", tmp_path / "x.index", *urls))
        requests, sent = sent_bytes(nginx.log, "/d/")
        assert reported["samples"] == 24 and reported["members"] == 48
        assert sent < 0.05 * reported["bytes"] and requests < 24 * 3, (requests, sent)
        with stoker.Dataset(urls, index=tmp_path / "x.index") as there, \
                stoker.Dataset(tmp_path / "d") as here:
            assert there.shards_indexed == 2
            for sample in (0, 11, 12, 23):
                assert there[sample] == here[sample]
        assert sent_bytes(nginx.log, "/d/")[1] - sent < 4.1 * BIG
    finally:
        nginx.close()


def test_index_of_a_prefix(bucket, tmp_path):
    """In the cache, or next to the data once it is copied there; only new shards are read."""
    make.tar(tmp_path / "d/0.tar", [(f"{i}.bin", os.urandom(1000)) for i in range(50)])
    run("cp", "-r", tmp_path / "d", f"{bucket.url}/d")
    reported = json.loads(run("index", "--json", f"{bucket.url}/d"))
    assert reported["path"].startswith(str(tmp_path / "cache")) and reported["samples"] == 50
    again = json.loads(run("index", "--json", f"{bucket.url}/d"))
    assert again["shards_kept"] == 1 and again["bytes_read"] == 0
    with stoker.Dataset(f"{bucket.url}/d") as there:
        assert there.index_path == reported["path"]
    run("cp", reported["path"], f"{bucket.url}/d/stoker.index")
    with stoker.Dataset(f"{bucket.url}/d") as there:
        assert there.index_path == f"{bucket.url}/d/stoker.index" and there.shards_indexed == 1
    out = run("index", "--out", f"{bucket.url}/d/x.index", f"{bucket.url}/d", ok=1)
    assert "written to this machine" in out and f"'{bucket.url}/d/x.index'" in out
    out = run("verify", "--repair", f"{bucket.url}/d", ok=1)
    assert "cannot be repaired in place" in out and f"'{bucket.url}/d/'" in out


def test_verify(bucket, tars, tmp_path):
    """Damage in a store is found and named with its URL; nothing is repaired there."""
    run("pack", "--shard-size", "100K", tars, f"{bucket.url}/x")
    name = "x/shard-000001.tar"
    body = bytearray(bucket.objects()[name])
    body[5000] ^= 1
    bucket.put_object(Bucket=bucket.name, Key=name, Body=bytes(body))
    lines = [json.loads(line)
             for line in run("verify", "--json", f"{bucket.url}/x", ok=1).splitlines()]
    assert {line["kind"] for line in lines} >= {"digest", "summary"}
    assert {line["shard"] for line in lines if "shard" in line} == {f"{bucket.url}/{name}"}
    assert "cannot be repaired in place" in run("verify", "--repair", f"{bucket.url}/x", ok=1)
    assert bucket.objects()[name] == bytes(body)
