"""Faults while `stoker cp` writes to a store, through `stoker fault-proxy`.

Goal: whatever happens to a writing request, a name holds the complete old object or the complete
new one; success is never reported for an object that does not exist; an error names the request;
nothing that costs money is left behind; and all ends by its deadline. Method: Ceph's S3 gateway
behind one proxy, a rule for each scenario; a small file (one PUT) and one of two parts are copied
over old objects, side by side, and boto3 reads the result.
"""

from __future__ import annotations

import concurrent.futures
import json
import os
import subprocess
import time

import make
import pytest
import servers
from test_cli import COMMAND
from test_copy import PART, bucket, random_bytes  # noqa: F401 (a fixture)
from test_fault_proxy import Proxy

TIMEOUT = 9  # seconds: --read-timeout
UNNOTICED = 20  # seconds
HANG = 150  # seconds: work that takes as long would never have ended
TURNS = 16
LARGE = PART + 12_345  # two parts
OLD = b"what was there before"

# Which requests.
PUT = {"method": "PUT"}
SMALL = {"method": "PUT", "path": "plain"}
PART_1, PART_2 = ({"method": "PUT", "query": f"*partNumber={number}*"} for number in (1, 2))
CREATE = {"method": "POST", "query": "*uploads*"}
COMPLETE = {"method": "POST", "query": "*uploadId*"}
ABORT = {"method": "DELETE"}
PARTS = {"method": "GET", "query": "*uploadId*"}
ONCE, TWICE, THRICE = {"count": 1}, {"count": 2}, {"count": 3}
YEAR = 365 * 86400  # seconds
DONE, FAILS, EITHER = "done", "fails", "either"


def status(code, word="", **more):
    return {"fault": "status", "status": code, **({"code": word} if word else {}), **more}


def fault(name, **more):
    return {"fault": name, **more}


def answer(code, body="", **more):
    return {"fault": "answer", "status": code, "body": body, **more}


def xml(root, *fields):
    inner = "".join(f"<{name}>{value}</{name}>" for name, value in fields)
    return answer(200, f"<?xml version=\"1.0\"?><{root}>{inner}</{root}>")


NO_ETAG = {"fault": "etag", "value": ""}
ETAG = {"ETag": '"11111111111111111111111111111111"'}
OTHERS = {**ETAG, "x-amz-checksum-crc64nvme": "AAAAAAAAAAE="}
FAULTS = {
    # Any request that puts.
    "clean": (PUT, fault("pass"), DONE),
    "reset": (PUT, fault("reset", **THRICE), DONE),
    "reset, answer lost": (PUT, fault("reset", at=-1, **THRICE), DONE),
    "cut": (PUT, fault("truncate", **TWICE), DONE),
    "cut, answer lost": (PUT, fault("truncate", at=-1, **TWICE), DONE),
    "stall": (PUT, fault("stall", **TWICE), DONE),
    "stall, answer lost": (PUT, fault("stall", at=-1, **ONCE), DONE),
    "503": (PUT, status(503, count=4), DONE),
    "503 of a proxy": (PUT, answer(503, "<html>busy</html>", **TWICE), DONE),
    "503 with Retry-After": (PUT, status(503, retry_after=1, **TWICE), DONE),
    "503 with a Retry-After of a year: small": (SMALL, status(503, retry_after=YEAR), FAILS),
    "503 with a Retry-After of a year: part 1": (PART_1, status(503, retry_after=YEAR), FAILS),
    "503 with a Retry-After of a year: part 2": (PART_2, status(503, retry_after=YEAR), FAILS),
    "429": (PUT, status(429, **THRICE), DONE),
    "500": (PUT, status(500, **THRICE), DONE),
    "502": (PUT, answer(502, "bad gateway", **TWICE), DONE),
    "504": (PUT, answer(504, **TWICE), DONE),
    "408": (PUT, status(408, "RequestTimeout", **ONCE), DONE),
    "400 RequestTimeout": (PUT, status(400, "RequestTimeout", **ONCE), DONE),
    "400 InvalidDigest": (PUT, status(400, "InvalidDigest"), FAILS),
    "401": (PUT, status(401, "Unauthorized"), FAILS),
    "403": (PUT, status(403), FAILS),
    "403, small": (SMALL, status(403), FAILS),
    "404 NoSuchBucket": (PUT, status(404, "NoSuchBucket"), FAILS),
    "405": (PUT, status(405, "MethodNotAllowed"), FAILS),
    "409": (PUT, status(409, "OperationAborted", **ONCE), DONE),
    "413": (PUT, status(413, "EntityTooLarge"), FAILS),
    "always 503": (PUT, status(503), FAILS),
    "always reset": (PUT, fault("reset"), FAILS),
    "expired, once": (PUT, fault("expired", **ONCE), DONE),
    "expired": (PUT, fault("expired"), FAILS),
    "too skewed, once": (PUT, fault("too-skewed", **ONCE), EITHER),
    "clock an hour behind": (PUT, fault("skew"), DONE),
    "redirect to a link-local address": (PUT, fault("redirect"), FAILS),
    "301 without a place": (PUT, answer(301, "<Error><Code>PermanentRedirect</Code></Error>"),
                            FAILS),
    "garbage, once": (PUT, fault("garbage", **ONCE), EITHER),
    "headers without an end, once": (PUT, fault("endless-head", **ONCE), EITHER),
    "a body without an end": (PUT, fault("endless-body"), FAILS),
    "delay": (PUT, fault("delay", delay_ms=300), DONE),
    "close, unannounced": (PUT, fault("close"), DONE),
    "503 for 30 %": (PUT, status(503, probability=0.3, count=10), DONE),
    # 10 of them, so that no sequence of random numbers uses up the 12 tries of a request.
    "reset of 50 %": (PUT, fault("reset", probability=0.5, count=10), DONE),
    # Reads, or answers, one byte now and then.
    "slow loris reads": (PUT, fault("slow-read", **TWICE), DONE),
    "trickle: reads, always": (PUT, fault("slow-read"), FAILS),
    "a slow reader": (PUT, fault("slow-read", rate=4_000_000), DONE),
    "slow loris answers": (PUT, fault("slow", **TWICE), DONE),
    "trickle: answers, always": (PUT, fault("slow"), FAILS),
    "a slow answer": (PUT, fault("slow", rate=200), DONE),
    "trickle: the end is read": (COMPLETE, fault("slow-read", **ONCE), EITHER),
    "trickle: the end is answered": (COMPLETE, fault("slow", **ONCE), EITHER),
    "a slow answer to the end": (COMPLETE, fault("slow", rate=500, at=1), DONE),
    "trickle: begin, once": (CREATE, fault("slow", at=40, **ONCE), EITHER),
    "trickle: begin": (CREATE, fault("slow", at=40), FAILS),
    "left, trickle: parts": (PARTS, fault("slow", at=40, **ONCE), EITHER),
    "trickle: part 403, abort": (PART_2, status(403), FAILS, ABORT, fault("slow")),
    # Answers to other requests, as proxies mix them up.
    "put, another's answer": (SMALL, answer(200, headers=OTHERS), FAILS),
    "part, another's answer": (PART_2, answer(200, headers=OTHERS), FAILS),
    "part, another's answer without a checksum": (PART_2, answer(200, headers=ETAG), FAILS),
    "begin, another's answer": (CREATE, xml("InitiateMultipartUploadResult", ("Key", "another"),
                                            ("UploadId", "2~another")), FAILS),
    "begin, other bytes": (CREATE, fault("swap", **ONCE), EITHER),
    "end, another's answer": (COMPLETE, xml("CompleteMultipartUploadResult", ("Key", "another"),
                                            ("ETag", "another")), FAILS),
    "end, done, and other bytes": (COMPLETE, fault("swap", **ONCE), DONE),
    "left, parts of other bytes": (PARTS, fault("swap", **ONCE), DONE),
    # A small object.
    "put, 200 of another server": (SMALL, answer(200, "<html>welcome</html>"), FAILS),
    "put, 204": (SMALL, answer(204), FAILS),
    "put, 200 with an error": (SMALL, fault("error-body"), FAILS),
    # A part.
    "part, another ETag": (PART_2, fault("etag", value='"' + "0" * 32 + '"'), FAILS),
    "part, no ETag": (PART_2, NO_ETAG, FAILS),
    "part, a huge ETag": (PART_2, fault("etag", value='"' + "e" * 3000 + '"'), FAILS),
    "part, 200 of another server": (PART_2, answer(200, "<html>welcome</html>"), FAILS),
    "part 1, 403": (PART_1, status(403), FAILS),
    "part, 403": (PART_2, status(403), FAILS),
    "part, 404 NoSuchUpload": (PART_2, status(404, "NoSuchUpload"), FAILS),
    "part, 412": (PART_2, status(412), FAILS),
    "part, answer lost": (PART_2, fault("reset", at=-1, **TWICE), DONE),
    # The beginning of an upload.
    "begin, 500": (CREATE, status(500, **TWICE), DONE),
    "begin, 403": (CREATE, status(403), FAILS),
    "begin, too skewed, once": (CREATE, fault("too-skewed", **ONCE), EITHER),
    "begin, 400 RequestTimeout": (CREATE, status(400, "RequestTimeout", **TWICE), DONE),
    "begin, answer lost": (CREATE, fault("reset", at=-1, **ONCE), DONE),
    "begin, answer lost twice, end 403": (CREATE, fault("reset", at=-1, **TWICE), FAILS, COMPLETE,
                                          status(403)),
    "begin, answer cut": (CREATE, fault("truncate", at=40, **ONCE), DONE),
    "begin, answer stalls": (CREATE, fault("stall", at=40, **ONCE), DONE),
    "begin, 200 with an error": (CREATE, fault("error-body", **ONCE), DONE),
    "begin, 200 and nothing": (CREATE, answer(200), FAILS),
    "begin, no id": (CREATE, xml("InitiateMultipartUploadResult"), FAILS),
    "begin, a huge id": (CREATE, xml("InitiateMultipartUploadResult", ("UploadId", "i" * 5000)),
                         FAILS),
    "begin, another's id": (CREATE, xml("InitiateMultipartUploadResult", ("UploadId", "none")),
                            FAILS),
    "begin, another document": (CREATE, xml("ListBucketResult", ("UploadId", "id")), FAILS),
    "begin, an XML bomb": (CREATE, fault("xml-bomb"), FAILS),
    "begin, deep XML": (CREATE, fault("deep-xml"), FAILS),
    "begin, a body without an end": (CREATE, fault("endless-body"), FAILS),
    "begin, garbage": (CREATE, fault("garbage"), FAILS),
    # Its end.
    "end, answer lost": (COMPLETE, fault("reset", at=-1, **ONCE), DONE),
    "end, answer stalls": (COMPLETE, fault("stall", at=-1, **ONCE), EITHER),
    "end, answer cut": (COMPLETE, fault("truncate", at=20, **ONCE), DONE),
    "end, 200 with InternalError": (COMPLETE, fault("error-body", **TWICE), DONE),
    "end, always InternalError": (COMPLETE, fault("error-body"), FAILS),
    "end, 200 with AccessDenied": (COMPLETE, fault("error-body", code="AccessDenied"), FAILS),
    "end, 200 and nothing": (COMPLETE, answer(200), FAILS),
    "end, 200 of another server": (COMPLETE, answer(200, "<html>welcome</html>"), FAILS),
    "end, 503": (COMPLETE, status(503, **TWICE), DONE),
    "end, 403": (COMPLETE, status(403), FAILS),
    "end, 404 NoSuchUpload": (COMPLETE, status(404, "NoSuchUpload"), FAILS),
    "end, 412": (COMPLETE, status(412), FAILS),
    "end, an XML bomb": (COMPLETE, fault("xml-bomb"), FAILS),
    # An aborted upload is removed; if that fails as well, the first failure is reported.
    "part and abort, 403": (PART_2, status(403), FAILS, ABORT, status(403)),
    "part late, abort": (PART_2, fault("stall", at=-1, **ONCE), FAILS, COMPLETE, status(403)),
    "part 403, abort late": (PART_2, status(403), FAILS, ABORT, fault("stall", at=-1, **ONCE)),
    "part 403, abort lost": (PART_2, status(403), FAILS, ABORT, fault("reset", **TWICE)),
    "part 403, abort 503 twice": (PART_2, status(403), FAILS, ABORT, status(503, **TWICE)),
    # Parts of an earlier run may be reused; wrong information about them changes nothing.
    "left, well": (PARTS, fault("pass"), DONE),
    "left, parts 404": (PARTS, status(404, "NoSuchUpload"), DONE),
    "left, parts 500, once": (PARTS, status(500, **ONCE), DONE),
    "left, parts deep XML": (PARTS, fault("deep-xml"), DONE),
    "left, parts of another size": (PARTS, answer(200, "<ListPartsResult><Part><PartNumber>1"
                                    "</PartNumber><Size>7</Size><ETag>&quot;x&quot;</ETag></Part>"
                                    "</ListPartsResult>"), DONE),
    "left, parts that are none": (PARTS, answer(200, "<ListPartsResult>" + "".join(
        f"<Part><PartNumber>{number}</PartNumber><Size>{size}</Size><ETag>&quot;{'0' * 32}&quot;"
        "</ETag></Part>" for number in (0, 1, 2, 3, 10001, -1)
        for size in (PART, LARGE - PART, -1)) + "</ListPartsResult>"), DONE),
}
# The removal was forbidden, or the same command would resume it, because the failure may be
# temporary; or a list of parts did not arrive in time, and another upload began.
MAY_LEAVE = {"always 503", "always reset", "part and abort, 403", "left, parts 404",
             "end, answer stalls", "trickle: reads, always", "trickle: answers, always",
             "trickle: the end is read", "trickle: the end is answered", "left, trickle: parts",
             "503 with a Retry-After of a year: part 1", "503 with a Retry-After of a year: part 2"}


def waits(name):
    """Long scenarios begin first, in parallel with the rest."""
    return not any(word in name for word in ("always", "stall", "trickle", "loris"))


def timeout_of(name):
    return 1 if "trickle" in name else TIMEOUT  # a document may take 10 times as long


@pytest.fixture
def files(tmp_path):
    want = {"plain": random_bytes(1000, 0), "large": random_bytes(LARGE, 1)}
    for name, data in want.items():
        (tmp_path / name).write_bytes(data)
    return tmp_path, want


def leave(client, key, data, cache):
    """The remains of a killed run: one part that is right, and one of another file."""
    upload = client.create_multipart_upload(Bucket=client.name, Key=key)["UploadId"]
    for number, part in ((1, data[:PART]), (2, data[:LARGE - PART])):
        client.upload_part(Bucket=client.name, Key=key, UploadId=upload, PartNumber=number,
                           Body=part)
    make.upload_record(cache, "s3", client.name, key, upload)


class Scenarios:
    """Copies of both files to keys of a prefix of their own for each scenario, through a proxy that
    makes its faults; `turns` of them side by side. failures: (name, kind, details...)."""

    def __init__(self, ceph, bucket, files, names, turns, letter):  # noqa: F811
        self.bucket, (self.folder, self.want) = bucket, files
        self.prefixes = {name: f"{letter}{number:03}" for number, name in enumerate(names)}
        log = self.folder / f"log-{letter}"
        rules = [rule for name in names for rule in self.prepare(name)]
        with Proxy("--to", ceph.url, "--connections", 1024, "--log", log, rules=rules,
                   seed=1) as proxy:
            with concurrent.futures.ThreadPoolExecutor(turns) as pool:
                found = list(pool.map(lambda name: self.meet(name, proxy.port),
                                      sorted(names, key=waits)))
            # An exchange is logged when the proxy sees its end.
            until = time.monotonic() + UNNOTICED
            while time.monotonic() < until and not all(self.was_met(log, name) for name in names):
                time.sleep(0.2)
            proxy.stop()
        self.lines = log.read_text().splitlines()
        left = {item["Key"].split("/")[0] for item in
                bucket.list_multipart_uploads(Bucket=bucket.name).get("Uploads", [])}
        self.failures = [what for what in found if what]
        self.failures += [(name, "was not met", *self.requested(name)) for name in names
                          if not self.was_met(log, name)]
        self.failures += [(name, "leaves an upload", *self.requested(name)) for name in names
                          if self.prefixes[name] in left and name not in MAY_LEAVE]

    def prepare(self, name):
        """Makes the old objects, and returns the rules of the proxy."""
        prefix, row = self.prefixes[name], FAULTS[name]
        for key in self.want:
            self.bucket.put_object(Bucket=self.bucket.name, Key=f"{prefix}/{key}", Body=OLD)
        if name.startswith("left,"):
            leave(self.bucket, f"{prefix}/large", self.want["large"], self.folder / "cache")
        for where, what in zip(row[0:1] + row[3::2], row[1:2] + row[4::2], strict=True):
            rule = {**where, **what}
            path = f"/{self.bucket.name}/{prefix}/{rule.pop('path', '*')}"
            yield {"name": prefix, "path": path, **rule}

    def meet(self, name, port):
        prefix, due = self.prefixes[name], FAULTS[name][2]
        start = time.monotonic()
        process = subprocess.run(
            [COMMAND, "cp", "--part-size", "5M", "--read-timeout", str(timeout_of(name)),
             self.folder / "plain", self.folder / "large", f"{self.bucket.url}/{prefix}/"],
            capture_output=True, text=True, timeout=HANG + 30,
            env={**os.environ, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
                 "STOKER_CACHE": str(self.folder / "cache")})
        seconds = time.monotonic() - start
        found = {key: self.bucket.get_object(Bucket=self.bucket.name, Key=f"{prefix}/{key}")[
            "Body"].read() for key in self.want}
        done = process.returncode == 0
        if seconds > HANG:
            return name, "hangs", seconds
        if not all(found[key] in (OLD, data) for key, data in self.want.items()):
            return name, "other bytes", {key: len(value) for key, value in found.items()}
        if done and found != self.want:
            return name, "success is reported, and the old object is there"
        if (due == DONE and not done) or (due == FAILS and done):
            return name, due, process.returncode, process.stderr
        if not done and (prefix not in process.stderr or servers.SECRET in process.stderr):
            return name, "an error without a place", process.stderr
        return None

    def was_met(self, log, name):
        return f'"rule":"{self.prefixes[name]}"' in log.read_text().replace(" ", "")

    def requested(self, name):
        """The proxy's log of a scenario, to explain a failure."""
        return [line for line in self.lines if f"/{self.prefixes[name]}/" in line]

    def is_slow(self, name):
        """Whether a request without a slow fault took about the read timeout, since the machine was
        busy: then the scenario was another one."""
        return any(line["end"] == "client left" and line["ms"] >= 500 * timeout_of(name) and
                   line.get("fault") not in ("slow", "slow-read", "stall")
                   for line in map(json.loads, self.requested(name)))


def test_scenarios_of_put(ceph, bucket, files):  # noqa: F811
    assert len(FAULTS) >= 60
    first = Scenarios(ceph, bucket, files, list(FAULTS), TURNS, "s")
    # What a busy machine may change: a failure that was not due, and its left-overs. These
    # scenarios run once more, two at a time.
    again = {what[0] for what in first.failures if first.is_slow(what[0]) and
             what[1] in (DONE, "was not met", "leaves an upload")}
    wrong = [what for what in first.failures if what[0] not in again]
    if again:
        wrong += Scenarios(ceph, bucket, files, sorted(again), 2, "r").failures
    assert not wrong, "\n".join(map(str, wrong))


LATER, REFUSED, WELL = status(503, retry_after=YEAR), status(403), fault("pass")
PAIRS = {"later, well": (LATER, WELL), "later, later": (LATER, LATER),
         "refused, well": (REFUSED, WELL), "refused, later": (REFUSED, LATER),
         "refused, refused": (REFUSED, REFUSED)}


def test_an_upload_stays_or_ends_whichever_part_fails_first(ceph, bucket, files):  # noqa: F811
    """Each pair of faults at both parts, in both orders of the answers. A part that may arrive
    later keeps the upload; a part that was refused ends it, since it would be refused again. (If a
    part fails before the other one begins, that one is not sent: the proxy's log tells.) An upload
    that stays is continued by the same command, which sends only the parts that failed."""
    folder, want = files
    rows, rules = [], []
    for pair, faults in PAIRS.items():
        for parts in ((PART_1, PART_2), (PART_2, PART_1)):
            for delays in ((100, 500), (500, 100)):
                for part, what, delay in zip(parts, faults, delays, strict=True):
                    rules.append({"path": f"/{bucket.name}/o{len(rows):03}/large", **part, **what,
                                  "delay_ms": delay})
                rows.append(f"{pair}, part {1 + (parts[0] is PART_2)} before the other: {delays}")

    def copy(number, endpoint):
        return subprocess.run(
            [COMMAND, "cp", "--json", "--part-size", "5M", folder / "large",
             f"{bucket.url}/o{number:03}/large"], capture_output=True, text=True, timeout=HANG,
            env={**os.environ, "AWS_ENDPOINT_URL": endpoint, "STOKER_CACHE": str(folder / "cache")})

    def uploads(number):
        return bucket.list_multipart_uploads(Bucket=bucket.name,
                                             Prefix=f"o{number:03}/").get("Uploads", [])

    with Proxy("--to", ceph.url, "--connections", 1024, rules=rules) as proxy:
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            done = list(pool.map(lambda number: copy(number, f"http://127.0.0.1:{proxy.port}"),
                                 range(len(rows))))
        log = proxy.stop()
    for number, (name, first) in enumerate(zip(rows, done, strict=True)):
        codes = [line["status"] for line in log
                 if f"/o{number:03}/" in line["path"] and line["method"] == "PUT"]
        assert first.returncode == 3 and 1 <= len(codes) <= 2, (name, codes, first.stderr)
        assert bool(uploads(number)) == (403 not in codes), (name, codes, first.stderr)
        again = copy(number, ceph.url)
        assert again.returncode == 0, (name, again.stderr)
        kept = json.loads(again.stdout)["bytes_kept"]
        assert (kept > 0) == (200 in codes and 403 not in codes), (name, codes, kept)
        assert not uploads(number), name
        got = bucket.get_object(Bucket=bucket.name, Key=f"o{number:03}/large")["Body"].read()
        assert got == want["large"], name
