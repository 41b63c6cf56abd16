"""stoker bench store: its report matches the server's log, it ends after the given time, and it
leaves nothing in the store."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import signal
import subprocess
import time
import xml.etree.ElementTree

import PIL.Image
import pytest
from test_cli import COMMAND
from test_fault_proxy import Proxy

WAIT = 120


def run(*words, ok=0, env=None):
    done = subprocess.run([COMMAND, "bench", "store", *map(str, words)], capture_output=True,
                          text=True, timeout=WAIT, env={**os.environ, **(env or {})})
    assert done.returncode == ok, (words, done.returncode, done.stderr)
    return done.stdout if ok == 0 else done.stderr


def test_reads(ceph, tmp_path):
    """Benchmarks the objects below a prefix; the page contains all results."""
    page = tmp_path / "x.html"
    info = json.loads(run("--json", "--sizes", "1000,64K,9M", "--concurrency", "1,4,16",
                          "--seconds", 3, "--plot", page, "s3://data/large"))
    assert info["objects"] == 2 and info["object_bytes"] > 40_000_000 and not info["writes"]
    rows = {(row["size"], row["at_once"]): row for row in info["reads"]}
    assert list(rows) == [(size, n) for size in (1000, 65536, 9 << 20) for n in (1, 4, 16)]
    for (size, at_once), row in rows.items():
        assert row["bytes"] == size * row["requests"] > 0 and row["failed"] == 0
        assert row["requests"] >= at_once and row["seconds"] > 0
        for name in ("first_byte_seconds", "whole_seconds"):
            assert 0 < row[name]["p50"] <= row[name]["p90"] <= row[name]["p99"] < WAIT
        assert row["first_byte_seconds"]["p50"] <= row["whole_seconds"]["p50"]
    text = page.read_text()
    assert text.count("<svg") == 4 and text.count("<tr>") == 10 and "s3://data/large" in text
    for part in text.split("<svg")[1:]:
        drawing = xml.etree.ElementTree.fromstring("<svg" + part.split("</svg>")[0] + "</svg>")
        assert len(drawing.findall("polyline")) == 3
    table = run("--sizes", "1K", "--concurrency", "2", "--seconds", 1, "s3://data/large/0.tar")
    assert "objects    1," in table and "first byte ms" in table and "1.0" in table
    assert not list(tmp_path.glob("*.part"))


def test_pictures(nginx, tmp_path):
    """The charts alone, as SVG, and as PNG where librsvg is."""
    url = f"{nginx.url}/tars/train-003.tar"
    words = ("--sizes", "1K,4K", "--concurrency", "1,2", "--bytes", 20_000, "--plot")
    run(*words, tmp_path / "x.svg", url)
    drawing = xml.etree.ElementTree.fromstring((tmp_path / "x.svg").read_text())
    lines = drawing.findall(".//{http://www.w3.org/2000/svg}polyline")
    assert len(lines) in (6, 8) and url in "".join(drawing.itertext())
    absent = run(*words, tmp_path / "y.png", url, ok=3, env={"PATH": "/nonexistent"})
    assert "librsvg2-bin" in absent and not (tmp_path / "y.png").exists()
    if shutil.which("rsvg-convert"):
        run(*words, tmp_path / "z.png", url)
        with PIL.Image.open(tmp_path / "z.png") as image:
            assert image.format == "PNG" and image.width > 1000
            assert len(image.getcolors(1 << 20)) > 9
    assert sorted(path.name for path in tmp_path.iterdir())[:1] == ["x.svg"]
    assert not list(tmp_path.glob("*.part*"))


def test_first_byte_and_bound(nginx, shelf):
    """With a slow server the time to the first byte is at least the server's delay; the requests
    are those in its log."""
    if not nginx.has_slow:
        pytest.skip("nginx without Lua")
    name = "tars/train-003.tar"
    before = nginx.log.read_text().count(f"/slow/{name}") if nginx.log.exists() else 0
    size = (shelf / name).stat().st_size
    info = json.loads(run("--json", "--sizes", "1000", "--concurrency", "1,8", "--bytes", 60_000,
                          "--seconds", 60, f"{nginx.url}/slow/{name}"))
    assert info["objects"] == 1 and info["object_bytes"] == size
    one, eight = info["reads"]
    assert one["first_byte_seconds"]["p50"] >= 0.030
    assert one["requests"] + eight["requests"] <= 60 + 16
    after = nginx.log.read_text().count(f"/slow/{name}")
    # the HEAD request for its size
    assert after - before == one["requests"] + eight["requests"] + 1


def keys(client, bucket):
    found = client.list_objects_v2(Bucket=bucket).get("Contents", [])
    return [item["Key"] for item in found]


@pytest.fixture
def client(ceph, request):
    client, name = ceph.client(), request.node.name.replace("_", "-").split("[")[0]
    client.create_bucket(Bucket=name)
    client.put_object(Bucket=name, Key="a/mine", Body=b"1")
    client.name = name
    return client


def test_writes(client):
    info = json.loads(run("--json", "--write", "--sizes", "64K,1M", "--concurrency", "4",
                          "--seconds", 2, f"s3://{client.name}/a"))
    assert [(row["size"], row["objects"]) for row in info["writes"]] == [(64 << 20, 1),
                                                                         (64 << 10, 64)]
    assert all(row["seconds"] > 0 for row in info["writes"]) and info["objects"] == 65
    assert keys(client, client.name) == ["a/mine"]
    assert not list(pathlib.Path("/tmp").glob("stoker-bench-??????/large"))


@pytest.mark.parametrize("moment", ["reading", "writing"])
def test_ctrl_c(ceph, client, moment, tmp_path):
    """The results are printed, the written objects are removed, and unfinished uploads too."""
    name = client.name
    rules = [{"method": "PUT", "fault": "delay", "delay_ms": 5000}]
    with Proxy("--to", ceph.url, rules=rules) as proxy:
        env = {**os.environ, "TMPDIR": str(tmp_path)}
        if moment == "writing":
            env["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{proxy.port}"
        process = subprocess.Popen(
            [COMMAND, "bench", "store", "--json", "--write", "--sizes", "64K", "--concurrency", "2",
             "--seconds", "100", f"s3://{name}/a"], env=env, stdout=subprocess.PIPE, text=True)

        def begun():
            if moment == "writing":
                return client.list_multipart_uploads(Bucket=name).get("Uploads")
            return len(keys(client, name)) == 1 + 65

        until = time.monotonic() + WAIT
        while not begun():
            assert time.monotonic() < until and process.poll() is None
            time.sleep(0.05)
        if moment == "reading":
            time.sleep(1)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=WAIT)
    assert process.returncode == 130
    assert keys(client, name) == ["a/mine"] and not list(tmp_path.iterdir())
    assert not client.list_multipart_uploads(Bucket=name).get("Uploads")
    if moment == "reading":
        info = json.loads(out)
        assert info["interrupted"] and info["reads"][0]["requests"] > 0
    client.delete_object(Bucket=name, Key="a/mine")
    client.delete_bucket(Bucket=name)


def test_failures(ceph, nginx, tmp_path):
    assert "no such object" in run("s3://data/none/", ok=3)
    assert "not a list of increasing" in run("--sizes", "1M,64K", "s3://data/large", ok=2)
    assert "not a list of increasing" in run("--concurrency", "0", "s3://data/large", ok=2)
    assert "not a URL" in run(tmp_path, ok=2)
    assert "no URL" in run(ok=2)
    assert "404" in run(f"{nginx.url}/none", ok=3)
    assert "ends in .html" in run("--plot", tmp_path / "x.pdf", "s3://data/large", ok=2)
    assert not list(tmp_path.iterdir())
    assert "--plot" in run("--sizes", "1K", "--concurrency", "1", "--seconds", "0.5", "--plot",
                           tmp_path / "none/x.html", "s3://data/large", ok=3)
    rules = [{"method": "GET", "fault": "status", "status": 403}]
    with Proxy("--to", ceph.url, rules=rules) as proxy:
        run("--sizes", "1K", "--seconds", 2, "s3://data/large", ok=3,
            env={"AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}"})
