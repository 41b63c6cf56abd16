"""Work that is cancelled while the server does not answer ends soon and sends no more requests.

Goal: the first Ctrl-C ends `stoker cp`, `sync` and `rm`, whatever they wait for; the same command
can resume from what they leave; a loader that is closed cancels its reads. Method: a scripted S3
behind `stoker fault-proxy` whose answers stall; deadlines are so long that only cancellation can
end the command in time.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time

import make
import object_server
import pytest
import stoker
from processes import thread_names
from test_cli import COMMAND
from test_copy import PART, await_true, random_bytes, run
from test_providers import clean  # noqa: F401
from test_fault_proxy import Proxy
from test_sse_keys import Sealing

FAR = 60  # seconds: how long all would wait for answers
SOON = 15  # for work that takes 1 s on an idle machine


class Counting(Sealing):
    """Records the requests."""

    def parse_request(self):
        good = super().parse_request()
        if good:
            self.server.came.append(self.requestline)
        return good

    def do_GET(self):
        while self.server.silent:
            time.sleep(0.05)
        super().do_GET()

    def do_DELETE(self):
        name = self.split()[2].get("uploadId")
        if name:
            self.server.uploads.pop(name, None)
            self.say(204)
        else:
            super().do_DELETE()


@pytest.fixture
def server(clean):  # noqa: F811
    server = object_server.s3({}, {"a": ("b", "", float("inf"))})
    server.RequestHandlerClass = Counting
    server.sealed, server.kms, server.uploads, server.requested = {}, {}, {}, []
    server.classes, server.came, server.silent = {}, [], False
    for name, value in {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b",
                        "AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
                        }.items():
        clean.setenv(name, value)
    yield server
    server.close()


def behind(server, clean, *rules):  # noqa: F811
    proxy = Proxy("--to", server.url, "--connections", 1024, "--log", os.devnull, rules=rules)
    clean.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
    return proxy


STALLS = {
    "put": ("small", "s3://data/to/small", {"method": "PUT"}),
    "begin": ("large", "s3://data/to/large", {"method": "POST", "query": "*uploads*"}),
    "first parts": ("large", "s3://data/to/large", {"method": "PUT"}),
    "end": ("large", "s3://data/to/large", {"method": "POST", "query": "*uploadId*"}),
    "get": ("s3://data/from/small", "back", {"method": "GET", "path": "*small"}),
    "get by parts": ("s3://data/from/large", "back", {"method": "GET", "path": "*large"}),
    "list": ("s3://data/from/", "back", {"method": "GET", "query": "*list-type*"}),
    "within": ("s3://data/from/small", "s3://data/to/x", {"method": "PUT"}),
}


@pytest.mark.parametrize("case", STALLS)
def test_interrupted(server, clean, tmp_path, case):  # noqa: F811
    data = {"small": random_bytes(1000, 1), "large": random_bytes(3 * PART, 2)}
    for name, body in data.items():
        (tmp_path / name).write_bytes(body)
        server.objects["data", f"from/{name}"] = body
    source, target, where = STALLS[case]
    names = [str(tmp_path / path) if "://" not in path else path for path in (source, target)]
    with behind(server, clean, {**where, "fault": "stall", "at": -1}):
        process = subprocess.Popen(
            [COMMAND, "cp", "-r", "--part-size", "5M", "--read-timeout", str(FAR), *names],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wanted = where.get("query", "").strip("*")
        await_true(lambda: any(line.startswith(where["method"]) and wanted in line
                               for line in list(server.came)))
        time.sleep(0.3)  # so that they wait; sooner it is stopped in another place
        begun, came = time.monotonic(), len(server.came)
        process.send_signal(signal.SIGINT)
        _, text = process.communicate(timeout=2 * FAR)
        assert time.monotonic() - begun < SOON
    assert process.returncode == 128 + signal.SIGINT
    assert "interrupted" in text and "continues from here" in text
    assert len(server.came) <= came + 3, server.came[came:]  # cleaning up
    assert not [line for line in server.came[came:] if line.startswith("GET")]
    if case == "first parts":  # their answers never arrived: there is nothing to resume from
        assert server.uploads == {}
    clean.setenv("AWS_ENDPOINT_URL", server.url)
    run("cp", "-r", "--part-size", "5M", *names)


@pytest.mark.parametrize("where", [{"query": "*list-type*"}, {"path": "*.tar"}],
                         ids=["list", "headers"])
def test_interrupted_index(server, clean, tmp_path, where):  # noqa: F811
    for shard in range(3):
        path = make.tar(tmp_path / f"{shard}.tar", [("0.jpg", b"x" * 300_000)])
        server.objects["data", f"set/{shard}.tar"] = path.read_bytes()
    with behind(server, clean, {**where, "fault": "stall", "at": -1}):
        process = subprocess.Popen(
            [COMMAND, "index", "--read-timeout", str(FAR), "--out", tmp_path / "index",
             "s3://data/set"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wanted = next(iter(where.values())).strip("*")
        await_true(lambda: any(wanted in line for line in list(server.came)))
        time.sleep(0.3)
        begun = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(2 * FAR) == 128 + signal.SIGINT
        assert time.monotonic() - begun < SOON


def test_interrupted_upload_goes_on(server, clean, tmp_path):  # noqa: F811
    """Parts that were sent stay for the same command."""
    (tmp_path / "large").write_bytes(random_bytes(4 * PART, 2))
    with behind(server, clean, {"method": "PUT", "query": "*partNumber=3*", "fault": "stall"}):
        process = subprocess.Popen(
            [COMMAND, "cp", "--part-size", "5M", "--read-timeout", str(FAR), tmp_path / "large",
             "s3://data/large"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        await_true(lambda: server.uploads and len(server.uploads["u"][2]) == 3)
        time.sleep(0.3)
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(2 * FAR) == 128 + signal.SIGTERM
        assert time.monotonic() - begun < SOON
    assert len(server.uploads["u"][2]) == 3


def threads():
    return [name for name in thread_names() if name.startswith("stoker")]


@pytest.mark.parametrize("kind", ["tars", "objects"])
def test_closed_loader(server, clean, tmp_path, kind):  # noqa: F811
    """Reads in flight end, retries are not made; with the loader all threads of the engine end."""
    for shard in range(4):
        data = {f"{i:03}.jpg": random_bytes(300_000, i) for i in range(60)}
        if kind == "objects":
            server.objects |= {("data", f"set/{shard}/{name}"): data[name] for name in data}
        else:
            path = make.tar(tmp_path / f"{shard}.tar", list(data.items()))
            server.objects["data", f"set/{shard}.tar"] = path.read_bytes()
    clean.setenv("AWS_ENDPOINT_URL", server.url)
    before = len(threads())
    engine = stoker.Engine(threads=2, memory="64MiB", read_timeout=FAR, process_sharing=False)
    dataset = stoker.Dataset("s3://data/set/", engine=engine, index="never")
    assert len(dataset) == 240
    server.silent, came = True, len(server.came)
    loader = stoker.Loader(dataset, 16, fields={"jpg": stoker.Bytes("jpg")}, seed=1)
    await_true(lambda: len(server.came) >= came + 2)
    begun = time.monotonic()
    for one in (loader, dataset, engine):
        one.close()
    while len(threads()) > before and time.monotonic() < begun + FAR:
        time.sleep(0.05)
    assert time.monotonic() - begun < SOON, threads()
    came, server.silent = len(server.came), False
    time.sleep(1)
    assert len(server.came) - came <= 16  # that were on their way; none is tried again
