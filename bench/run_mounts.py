#!/usr/bin/env python3
"""Measure reads of a mount where each is a round trip, and write a table and
bench/results/mounts.json.

usage: run_mounts.py [--before BUILD] [--runs N] [--seconds N] [--delay MS] [--threads N]

Loads tars, and files of folders, behind python/tests/fuse_server.py (root, /dev/fuse), which
answers each request DELAY ms late, so many at once, and counts them. Builds take turns; medians of
the runs. BUILD is another build of the library (with -Dpython=true), or the word "given", the
default: this build with io_gap_bytes=64KiB and io_bytes_max=4MiB, as on a disk.
"""
import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile

from measure import build_folder

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "python" / "tests"))
import fuse_server  # noqa: E402
import make  # noqa: E402

BUILD = build_folder("stoker")
BYTES = 200 << 20  # of a data set
# name, bytes of a sample, options of the loader
CLAIMS = [
    ("4 kB, shuffled", 4000, {"shuffle": "block"}),
    ("20 kB, shuffled", 20_000, {"shuffle": "block"}),
    ("20 kB, shuffled, one rank of 4", 20_000, {"shuffle": "block", "rank": 0, "world_size": 4}),
    ("60 kB, two of each four, in order", 60_000, {"shuffle": "none", "subset": [2, 4]}),
    ("100 kB, shuffled", 100_000, {"shuffle": "block"}),
    ("files of 700 kB", 700_000, {"shuffle": "block"}),
]


def put(home, name, size):
    """Four tars with an index, or a folder of files."""
    folder = home / str(size)
    if folder.exists():
        return folder
    value = os.urandom(size)
    for part in range(4):
        count = BYTES // 4 // size
        if name.startswith("files"):
            (folder / f"class{part}").mkdir(parents=True)
            for i in range(count):
                (folder / f"class{part}" / f"{i:04}.jpg").write_bytes(value)
        else:
            folder.mkdir(parents=True, exist_ok=True)
            make.tar(folder / f"{part}.tar", [(f"{part}{i:06}.bin", value) for i in range(count)])
    subprocess.run([BUILD / "stoker", "index", folder], check=True, stdout=subprocess.DEVNULL)
    return folder


def child(point, options, seconds, given):
    import time

    import stoker

    engine = {"io_gap_bytes": "64KiB", "io_bytes_max": "4MiB"} if given else {}
    with stoker.Engine(threads=2, memory="2GiB", **engine) as engine:
        dataset = stoker.Dataset(point, engine=engine)
        if "subset" in options:
            selected, of = options["subset"]
            options["subset"] = [i for i in range(len(dataset)) if i % of < selected]
        field = {"x": stoker.Bytes(None if "700000" in point else "bin")}
        with stoker.Loader(dataset, 64, seed=3, fields=field, output="numpy", **options) as loader:
            begin, samples = time.monotonic(), 0
            while time.monotonic() < begin + seconds:
                for batch in loader:
                    samples += len(batch["x"])
                    if time.monotonic() >= begin + seconds:
                        break
            took, stats = time.monotonic() - begin, loader.stats()
    print(json.dumps({"samples_per_s": samples / took, "bytes": stats["bytes"],
                      "samples": stats["samples"]}))


def turn(build, folder, options, arguments):
    given = build == "given"
    build = BUILD if given else pathlib.Path(build)
    with tempfile.TemporaryDirectory() as text:
        point = pathlib.Path(text) / folder.name
        with fuse_server.Mount(folder, point, delay=arguments.delay,
                               threads=arguments.threads) as mount:
            done = subprocess.run(
                [sys.executable, __file__, "--child", point, "--options", json.dumps(options),
                 "--seconds", str(arguments.seconds)] + ["--given"] * given, check=True, text=True,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": build / "python", "STOKER_NODE_DIR": text})
            sent = [size for end in (".tar", ".jpg") for _, size in mount.reads(end)]
    report = json.loads(done.stdout)
    return {"samples_per_s": report["samples_per_s"], "requests": len(sent) / report["samples"],
            "kib": sum(sent) / len(sent) / 1024, "read_of_wanted": sum(sent) / report["bytes"]}


def show(results):
    print("| what | samples/s before | now | x | requests a sample before | now | KiB a request "
          "before | now | bytes read a byte wanted before | now |\n" + "| --- " * 10 + "|")
    for name, (before, now) in results.items():
        pairs = [(statistics.median(one[key] for one in before),
                  statistics.median(one[key] for one in now)) for key in before[0]]
        gain = statistics.median(b["samples_per_s"] / a["samples_per_s"]
                                 for a, b in zip(before, now))
        print(f"| {name} | {pairs[0][0]:,.0f} | {pairs[0][1]:,.0f} | {gain:.2f} | "
              f"{pairs[1][0]:.3f} | {pairs[1][1]:.3f} | {pairs[2][0]:.0f} | {pairs[2][1]:.0f} | "
              f"{pairs[3][0]:.2f} | {pairs[3][1]:.2f} |")


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1][7:])
    parser.add_argument("--before", default="given")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--delay", type=float, default=1)
    parser.add_argument("--threads", type=int, default=32)
    for word in ("--child", "--options"):
        parser.add_argument(word)
    parser.add_argument("--given", action="store_true")
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child, json.loads(arguments.options), arguments.seconds, arguments.given)
        return
    results = {}
    with tempfile.TemporaryDirectory() as text:
        for name, size, options in CLAIMS:
            folder = put(pathlib.Path(text), name, size)
            results[name] = [], []
            for _ in range(arguments.runs):
                for which, build in enumerate((arguments.before, BUILD)):
                    results[name][which].append(turn(str(build), folder, options, arguments))
                print(name, *(f"{one[-1]['samples_per_s']:,.0f}/s" for one in results[name]),
                      file=sys.stderr)
    show(results)
    (HERE / "results").mkdir(exist_ok=True)
    (HERE / "results" / "mounts.json").write_text(json.dumps({
        "machine": platform.platform(), "delay_ms": arguments.delay, "before": arguments.before,
        "threads": arguments.threads, "seconds": arguments.seconds, "results": results},
        indent=1) + "\n")


if __name__ == "__main__":
    main()
