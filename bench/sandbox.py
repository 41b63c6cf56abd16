#!/usr/bin/env python3
"""What decoding in helper processes costs: the same epoch with and without, in turns.

usage: sandbox.py --data TARS [--pairs 20] [--out bench/results/sandbox.json]

Every pair is one epoch of each (which comes first changes from pair to pair), each with a new
loader; CPU is that of this process and of its helpers, from open to close. Ratios are taken
within a pair; the table shows medians, and the lowest and highest.
"""
import argparse
import json
import os
import pathlib
import resource
import statistics
import time

import stoker

CHAIN = [stoker.RandomResizedCrop(224), stoker.RandomHorizontalFlip(), stoker.Normalize()]


def cpu_seconds():
    total = 0.0
    for who in resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN:
        used = resource.getrusage(who)
        total += used.ru_utime + used.ru_stime
    return total


def settle():
    """Wait until the last threads of an engine, and its helpers, are gone and counted."""
    for _ in range(1000):
        try:
            tasks = list(pathlib.Path("/proc/self/task").iterdir())
            children = [task for task in tasks if (task / "children").read_text()]
        except OSError:
            continue  # a thread that ended meanwhile
        if len(tasks) == 1 and not children:
            return
        time.sleep(0.005)
    raise SystemExit("sandbox: the engine does not end")


def run(data, batch_size, sandbox):
    cpu, wall = cpu_seconds(), time.monotonic()
    images = 0
    with stoker.Loader(data, batch_size, seed=1, image=CHAIN, tail="keep", sandbox=sandbox,
                       threads=os.cpu_count(), output="array", cached=True) as loader:
        for batch in loader:
            images += batch[0].shape[0]
            del batch
    wall = time.monotonic() - wall
    settle()
    return {"images_per_s": images / wall, "cpu_ms": (cpu_seconds() - cpu) * 1000 / images}


def spread(values):
    return f"{statistics.median(values):8.3f} ({min(values):.3f} - {max(values):.3f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", required=True, help="tars of pictures, as for Loader")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--out", help="also write the numbers as JSON")
    arguments = parser.parse_args()
    run(arguments.data, arguments.batch_size, False)  # page cache and first touch
    run(arguments.data, arguments.batch_size, True)
    pairs = []
    for turn in range(arguments.pairs):
        pair = {}
        for sandbox in (False, True) if turn % 2 == 0 else (True, False):
            pair["sandbox" if sandbox else "plain"] = run(arguments.data, arguments.batch_size,
                                                          sandbox)
        pairs.append(pair)
    ratios = {}
    for name in "images_per_s", "cpu_ms":
        for kind in "plain", "sandbox":
            print(f"{name:14} {kind:8} {spread([pair[kind][name] for pair in pairs])}")
        ratios[name] = [pair["sandbox"][name] / pair["plain"][name] for pair in pairs]
        print(f"{name:14} {'ratio':8} {spread(ratios[name])}")
    if arguments.out:
        medians = {name: statistics.median(values) for name, values in ratios.items()}
        out = pathlib.Path(arguments.out)
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps({"pairs": pairs, "median": medians}, indent=1) + "\n")


if __name__ == "__main__":
    main()
