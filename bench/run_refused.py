#!/usr/bin/env python3
"""Measure a minute in which 30 % of a store's answers are 503, and write a table and
bench/results/refused.json.

usage: run_refused.py [--seconds N] [--share P] [--runs N] [--delay MS] [--name NAME]

One loader reads the samples of a tar one by one (it has an index, so each is a request),
epoch after epoch, from `stoker fault-proxy` with a folder: first a minute without a fault, then one
in which a share of all requests is answered 503 SlowDown at once, and the rest DELAY ms later. The
server counts requests and refusals: amplification is requests over those not refused (0.3: 1.43 by
chance alone). Limits: amplification 1.5, samples a second 60 % of the clean minute. Each minute has
a node of its own (STOKER_NODE_DIR), so that it does not use the limits of the one before.
"""
import argparse
import collections
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

from measure import build_folder

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "python" / "tests"))
import make  # noqa: E402

SAMPLES, SAMPLE_BYTES = 4000, 20_000
BUILD = build_folder("stoker")


def child(url, seconds):
    """Samples of each second, and the ledger."""
    import stoker

    each, begin = collections.Counter(), time.monotonic()
    with stoker.Engine(io_gap_bytes=1) as engine:
        with stoker.Loader(stoker.Dataset(url, engine=engine), 64, seed=3, shuffle="full",
                           fields={"bin": stoker.Bytes("bin")}, output="numpy") as loader:
            while time.monotonic() < begin + seconds:
                for batch in loader:
                    each[int(time.monotonic() - begin)] += len(batch["bin"])
                    if time.monotonic() >= begin + seconds:
                        break
        ledger = engine.store_stats()
    print(json.dumps({"each_second": [each[i] for i in range(seconds)],
                      "manners": ledger["manners"]}))


class Server:
    """`stoker fault-proxy` with a folder; its log is counted when it stopped."""

    def __init__(self, folder, log, rules):
        self.log = log
        self.process = subprocess.Popen(
            [BUILD / "stoker", "fault-proxy", "--folder", folder, "--connections", "1024",
             "--log", log, "--rules", json.dumps({"rules": rules, "seed": 5})],
            stdout=subprocess.PIPE, text=True)
        self.url = "http://" + json.loads(self.process.stdout.readline())["listening"]

    def statuses(self):
        self.process.terminate()
        self.process.communicate(timeout=60)
        with open(self.log, encoding="utf-8") as lines:
            return collections.Counter(json.loads(line)["status"] for line in lines)


def minute(home, share, arguments):
    refuse = {"probability": share, "fault": "status", "status": 503, "code": "SlowDown"}
    rules = [refuse] * (share > 0) + [{"fault": "pass", "delay_ms": arguments.delay}]
    (home / f"log{share}").unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as node:
        server = Server(home / "stores", home / f"log{share}", rules)
        try:
            done = subprocess.run(
                [sys.executable, __file__, "--child", f"{server.url}/bucket/a.tar",
                 "--seconds", str(arguments.seconds)], check=True, text=True,
                stdout=subprocess.PIPE, env={**os.environ, "STOKER_NODE_DIR": node})
        finally:
            statuses = server.statuses()
    report = json.loads(done.stdout)
    requests = statuses.total()
    return {"samples_per_s": sum(report["each_second"]) / arguments.seconds, "requests": requests,
            "refused": statuses[503], "amplification": requests / (requests - statuses[503]),
            **report}


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1][7:])
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--share", type=float, default=0.3)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--delay", type=int, default=20)
    parser.add_argument("--name", default="refused")
    parser.add_argument("--child")
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child, arguments.seconds)
        return
    rounds = []
    with tempfile.TemporaryDirectory() as text:
        home = pathlib.Path(text)
        (home / "stores/bucket").mkdir(parents=True)
        import stoker

        tar = home / "stores/bucket/a.tar"
        make.tar(tar, [(f"s{i:05}.bin", (b"%05d" % i) * (SAMPLE_BYTES // 5))
                       for i in range(SAMPLES)])
        stoker.index(tar, out=tar.parent / "stoker.index")
        for _ in range(arguments.runs):
            rounds.append({"clean": minute(home, 0, arguments),
                           "refused": minute(home, arguments.share, arguments)})
            one = rounds[-1]
            print(f"clean {one['clean']['samples_per_s']:,.0f}/s; {arguments.share:.0%} refused "
                  f"{one['refused']['samples_per_s']:,.0f}/s: "
                  f"{one['refused']['samples_per_s'] / one['clean']['samples_per_s']:.2f}; "
                  f"amplification {one['refused']['amplification']:.3f}")
    medians = {
        "amplification": statistics.median(one["refused"]["amplification"] for one in rounds),
        "of_clean": statistics.median(one["refused"]["samples_per_s"]
                                      / one["clean"]["samples_per_s"] for one in rounds)}
    out = HERE / "results" / f"{arguments.name}.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps({"machine": platform.platform(), "seconds": arguments.seconds,
                               "share": arguments.share, "delay_ms": arguments.delay,
                               "limits": {"amplification": 1.5, "of_clean": 0.6},
                               "medians": medians, "rounds": rounds}, indent=1) + "\n")
    print(f"| amplification | {medians['amplification']:.3f} | at most 1.5 |\n"
          f"| of the clean minute | {medians['of_clean']:.2f} | at least 0.6 |")


if __name__ == "__main__":
    main()
