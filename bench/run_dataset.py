#!/usr/bin/env python3
"""Measure what stoker does with whole data sets, and write a table and bench/results/NAME.json.

usage: run_dataset.py verify --data DIR [options]

  verify  MB/s of `stoker verify` and `stoker diff`: from memory beside SHA-256 of the same files by
          sha256sum and openssl, from the disk beside fio (root)

DIR/tars/*.tar is packed once into SCRATCH, so that there is a manifest of SHA-256 and an index of
checksums to verify. As in run.py every round runs each candidate once.
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import measure
import run


def command():
    build = pathlib.Path(os.environ.get("STOKER_BUILD", measure.ROOT / "build"))
    return str(build / "stoker")


def timed(words, statuses=(0,), **options):
    """Wall seconds and CPU seconds of a command, and its standard output."""
    before, start = os.times(), time.perf_counter()
    done = subprocess.run([*map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          check=False, text=True, **options)
    wall, after = time.perf_counter() - start, os.times()
    if done.returncode not in statuses:
        raise measure.PeerFailed(f"{words[0]} ended with {done.returncode}: {done.stderr.strip()}")
    cpu = (after.children_user - before.children_user
           + after.children_system - before.children_system)
    return wall, cpu, done.stdout


def packed(args):
    """The shards of DIR as `stoker pack` writes them; made once."""
    target = args.scratch / f"packed-{args.data.resolve().name}"
    if not (target / "stoker.manifest.json").exists():
        run.say(f"packing {args.data} into {target}")
        shutil.rmtree(target, ignore_errors=True)
        timed([command(), "pack", *measure.data_files(args.data, "tars/*.tar"), target])
    return target


# ---- verify ----

def parallel(program, files):
    """A hash program over the files, one process a core at a time."""
    cores = len(os.sched_getaffinity(0))
    return ["xargs", "-0", "-n", "1", "-P", cores, *program], "\0".join(files)


def bench_verify(args, table):
    folder = packed(args)
    files = measure.data_files(folder, "*.tar")
    size = sum(os.path.getsize(path) for path in files) / 1e6
    threads = ["--threads", args.threads]
    hashers = [("sha256sum", ["sha256sum"]), ("openssl", ["openssl", "dgst", "-sha256"])]
    for turn in range(args.runs):
        run.say(f"round {turn + 1} of {args.runs}")
        measure.warm_up(files)
        for row, program in hashers:
            words, listed = parallel(program, files)
            result = run.attempt(table, row, lambda: timed(words, input=listed))
            add_rate(table, row, turn, size, "warm", result)
        result = run.attempt(table, "stoker verify",
                             lambda: timed([command(), "verify", *threads, folder]))
        add_rate(table, "stoker verify", turn, size, "warm", result)
        result = run.attempt(table, "stoker diff --reread",
                             lambda: timed([command(), "diff", "--reread", *threads, folder,
                                            folder]))
        add_rate(table, "stoker diff --reread", turn, 2 * size, "warm", result)
        measure.drop_caches()
        rate = run.attempt(table, "fio", lambda: run.run_fio(files, args.seconds))
        if rate:
            table.add("fio", turn, **{"cold MB/s": rate})
        measure.drop_caches()
        result = run.attempt(table, "stoker verify, cold",
                             lambda: timed([command(), "verify", *threads, folder]))
        add_rate(table, "stoker verify", turn, size, "cold", result)
    table.add_ratios("warm MB/s", "openssl", "x openssl")
    table.add_ratios("warm MB/s", "sha256sum", "x sha256sum")
    table.add_ratios("cold MB/s", "fio", "x fio")
    return {"files": len(files), "MB": round(size)}


def add_rate(table, row, turn, size, kind, result):
    if result:
        wall, cpu, _ = result
        table.add(row, turn, **{f"{kind} MB/s": size / wall, f"{kind} CPU s/GB": cpu / size * 1000})


BENCHES = {"verify": bench_verify}
SECONDS = {"verify": 3}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("bench", choices=BENCHES)
    parser.add_argument("--data", type=pathlib.Path, required=True, help="a folder with tars/")
    parser.add_argument("--scratch", type=pathlib.Path, help="default: beside DIR")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, help="of fio")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--name", help="of the file under bench/results")
    args = parser.parse_args()
    args.scratch = args.scratch or args.data.resolve().parent
    args.seconds = args.seconds or SECONDS[args.bench]
    args.name = args.name or args.bench
    return args


def main():
    args = parse_arguments()
    load = os.getloadavg()[0]
    if load > 0.5:
        run.say(f"load average {load:.1f}: other programs run, which moves the absolute numbers")
    table = run.Table()
    facts = BENCHES[args.bench](args, table)
    path = run.write_results(args, table, facts)
    print(f"\n{args.bench}: {args.runs} rounds, {args.threads} threads, {json.dumps(facts)}\n"
          f"{measure.machine()}\n\n{table.text()}\n")
    run.say(f"wrote {path}")


if __name__ == "__main__":
    sys.exit(main())
