"""What can go wrong between a client and a store, scenario by scenario, through `stoker fault`.

Whatever is done to requests for bytes (by S3 and by plain HTTP) and to lists: the data are exact,
or there is an error that names the URL; never other bytes, and never a wait without an end. One
proxy serves a folder with a bucket for each scenario; the scenarios run side by side."""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor

import make
import pytest
import servers
import stoker
from test_fault import Proxy

TIMEOUT = 3.0  # seconds: read_timeout of the engines
HANG = 60  # seconds: what takes as long would never have ended
TURNS = 24
SAMPLES = 12

ONCE, TWICE, SECOND = {"count": 1}, {"count": 2}, {"nth": 2}
LATER = {"from": 2, "count": 1}
OFTEN, ALWAYS = {"every": 2}, {}
WHOLE, FAILS, EITHER = "whole", "fails", "either"


def status(code, word="", **more):
    return {"fault": "status", "status": code, **({"code": word} if word else {}), **more}


PASSING = {  # what goes away when it is asked for again
    "reset": {"fault": "reset"},
    "reset at 0": {"fault": "reset", "at": 0},
    "reset at 1": {"fault": "reset", "at": 1},
    "reset at 700": {"fault": "reset", "at": 700},
    "reset, answer lost": {"fault": "reset", "at": -1},
    "truncate": {"fault": "truncate"},
    "truncate at 1": {"fault": "truncate", "at": 1},
    "truncate at 700": {"fault": "truncate", "at": 700},
    "truncate, answer lost": {"fault": "truncate", "at": -1},
    "stall": {"fault": "stall", "at": 0},
    "stall at 700": {"fault": "stall", "at": 700},
    "503": status(503, "SlowDown"),
    "503 of a proxy": {"fault": "answer", "status": 503, "body": "<html>busy</html>"},
    "429": status(429, "TooManyRequests"),
    "500": status(500, "InternalError"),
    "502": {"fault": "answer", "status": 502, "body": "bad gateway"},
    "504": {"fault": "answer", "status": 504, "body": ""},
    "408": status(408, "RequestTimeout"),
    "400 RequestTimeout": status(400, "RequestTimeout"),
}
SCENARIOS = {
    **{f"{name}, once": ({**fault, **ONCE}, WHOLE) for name, fault in PASSING.items()},
    **{f"{name}, twice": ({**fault, **TWICE}, WHOLE) for name, fault in PASSING.items()},
    **{f"{name}, of the second": ({**fault, **SECOND}, WHOLE) for name, fault in PASSING.items()},
    "503 with Retry-After": (status(503, "SlowDown", retry_after=1, **ONCE), EITHER),
    "503 for each second": (status(503, "SlowDown", **OFTEN), WHOLE),
    "500 for each second": (status(500, "InternalError", **OFTEN), WHOLE),
    "reset of each second": ({"fault": "reset", "at": 100, **OFTEN}, WHOLE),
    "close, unannounced": ({"fault": "close", **ALWAYS}, WHOLE),
    "stall that goes on": ({"fault": "stall", "at": 10, "ms": 50, **ALWAYS}, WHOLE),
    "delay": ({"fault": "delay", "delay_ms": 30, **ALWAYS}, WHOLE),
    "no range": ({"fault": "no-range", **ALWAYS}, WHOLE),
    "no range, once": ({"fault": "no-range", **LATER}, WHOLE),
    "wrong range, once": ({"fault": "wrong-range", **LATER}, EITHER),
    "wrong range": ({"fault": "wrong-range", **ALWAYS}, EITHER),
    "other ETag": ({"fault": "etag", "value": '"other"', **LATER}, EITHER),
    "clock an hour behind": ({"fault": "skew", **ALWAYS}, WHOLE),
    "always 503": (status(503, "SlowDown", **ALWAYS), FAILS),
    "always 500": (status(500, "InternalError", **ALWAYS), FAILS),
    "always 403": (status(403, "AccessDenied", **ALWAYS), FAILS),
    "always 404": (status(404, "NoSuchKey", **ALWAYS), FAILS),
    "always reset": ({"fault": "reset", **ALWAYS}, FAILS),
    "always reset at 0": ({"fault": "reset", "at": 0, **ALWAYS}, FAILS),
    "always stalled": ({"fault": "stall", "at": 0, **ALWAYS}, FAILS),
    "always cut at 0": ({"fault": "truncate", "at": 0, **ALWAYS}, FAILS),
    "403, then well": (status(403, "AccessDenied", **LATER), EITHER),
    "412, then well": (status(412, "PreconditionFailed", **LATER), EITHER),
    "416, then well": (status(416, "InvalidRange", **LATER), EITHER),
    "expired, once": ({"fault": "expired", **ONCE}, EITHER),
    "expired": ({"fault": "expired", **ALWAYS}, FAILS),
    "too skewed, once": ({"fault": "too-skewed", **ONCE}, EITHER),
    "too skewed": ({"fault": "too-skewed", **ALWAYS}, FAILS),
    "redirect to a link-local address": ({"fault": "redirect", **ALWAYS}, FAILS),
    "redirect to itself": ({"fault": "redirect", "value": "/", **ALWAYS}, FAILS),
    "200 with an error": ({"fault": "error-body", **ALWAYS}, FAILS),
    "200 with an error, once": ({"fault": "error-body", **LATER}, EITHER),
    "200 and nothing": ({"fault": "answer", "body": "", **ALWAYS}, FAILS),
    "204": ({"fault": "answer", "status": 204, **ALWAYS}, FAILS),
    "garbage": ({"fault": "garbage", **ALWAYS}, FAILS),
    "garbage, later": ({"fault": "garbage", **LATER}, EITHER),
    "headers without an end": ({"fault": "endless-head", **ALWAYS}, FAILS),
    "a body without an end": ({"fault": "endless-body", **ALWAYS}, FAILS),
    "XML bomb": ({"fault": "xml-bomb", **ALWAYS}, FAILS),
    "deep XML": ({"fault": "deep-xml", **ALWAYS}, FAILS),
    "the same list for ever": ({"fault": "stuck-list", **ALWAYS}, FAILS),
}
# What is done to bytes, where no list is meant, or the reverse, may leave the other alone.
LISTS_ONLY = {"XML bomb", "deep XML", "the same list for ever"}
BYTES_ONLY = {"other ETag", "wrong range", "wrong range, once", "no range", "no range, once"}


def scenarios(kind):
    return {name: row for name, row in SCENARIOS.items()
            if name not in (BYTES_ONLY if kind == "list" else LISTS_ONLY)}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a bucket for each scenario, and what it holds."""
    root = tmp_path_factory.mktemp("faults")
    members = [(f"s{i:02}.bin", bytes([i]) * (900 + 37 * i)) for i in range(SAMPLES)]
    original = make.tar(root / "original.tar", members)
    (root / "buckets").mkdir()
    for number in range(len(SCENARIOS)):
        for kind in ("get", "web", "list"):
            bucket = root / "buckets" / f"{kind}{number:03}"
            (bucket / "set").mkdir(parents=True)
            for shard in "ab" if kind == "list" else "a":
                os.link(original, bucket / "set" / f"{shard}.tar")
    return root / "buckets", [data for _, data in members]


def read(url):
    """The bytes of all samples; the text of the error; and seconds."""
    start = time.monotonic()
    try:
        with stoker.Engine(threads=1, memory="128MiB", read_timeout=TIMEOUT) as engine, \
                stoker.Loader(stoker.Dataset(url, engine=engine, index="never"), 4,
                              fields={"bin": stoker.Bytes("bin")}, shuffle="none", tail="keep",
                              output="numpy", io_retries=0) as loader:
            found = [bytes(value) for batch in loader for value in batch["bin"]]
        return found, None, time.monotonic() - start
    except stoker.Error as error:
        return None, str(error), time.monotonic() - start


@pytest.mark.parametrize("kind", ["get", "web", "list"])
def test_scenarios(place, kind, monkeypatch, tmp_path):
    buckets, samples = place
    rows = scenarios(kind)
    assert len(rows) >= 60
    rules = []
    for number, (name, (fault, _)) in enumerate(rows.items()):
        asked = {"query": "*list-type*"} if kind == "list" else {}
        path = f"/{kind}{number:03}/*" if kind == "list" else f"/{kind}{number:03}/set/a.tar"
        rules.append({"name": name, "path": path, **asked, **fault})
    with Proxy("--folder", buckets, "--connections", 1024, "--log", tmp_path / "log",
               rules=rules) as proxy:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            monkeypatch.delenv(name)
        for name, value in {"AWS_ENDPOINT_URL": f"http://{proxy.host}:{proxy.port}",
                            "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": servers.SECRET,
                            "AWS_CONFIG_FILE": os.devnull, "AWS_EC2_METADATA_DISABLED": "true",
                            "AWS_SHARED_CREDENTIALS_FILE": os.devnull}.items():
            monkeypatch.setenv(name, value)
        base = f"http://{proxy.host}:{proxy.port}/" if kind == "web" else "s3://"
        tail = "" if kind == "list" else "/a.tar"
        urls = [f"{base}{kind}{number:03}/set{tail}" for number in range(len(rows))]
        with ThreadPoolExecutor(TURNS) as pool:
            outcomes = list(pool.map(read, urls))
        proxy.stop()
    log = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    unmet = set(rows) - {line["rule"] for line in log if "rule" in line}
    assert not unmet  # each has met its fault
    want = samples * 2 if kind == "list" else samples
    wrong = []
    for (name, (_, due)), url, (found, error, seconds) in zip(rows.items(), urls, outcomes,
                                                              strict=True):
        if seconds > HANG:
            wrong.append((name, "hangs", seconds))
        elif found is not None and found != want:
            wrong.append((name, "other bytes", len(found)))
        elif (due == WHOLE and found is None) or (due == FAILS and error is None):
            wrong.append((name, due, error))
        elif error is not None and (url.removesuffix("/a.tar") not in error
                                    or servers.SECRET in error):
            wrong.append((name, "an error without a place", error))
    assert not wrong, "\n".join(map(str, wrong))
    slowest = max(zip((row[2] for row in outcomes), rows))
    print(f"{kind}: {len(rows)} scenarios, slowest {slowest}")
