#!/usr/bin/env python3
"""How orders mix data that is sorted by class, and whose size no block divides: stoker's default
(a full permutation), its block shuffle in versions 1 and 2, torch's RandomSampler, webdataset's
shuffle buffer, and py1e of mosaicml-streaming.

    mixing.py --program MIXING    # bench/mixing.c, compiled

prints one JSON line for each data set, ranks and order. Classes and the largest share of one class
are of the batches of a rank; "in band": the mean of classes is within the 99 % band of 30 full
permutations. chi-square: of classes by eighth of the epoch, divided by its degrees of freedom.
"""
import argparse
import json
import subprocess
import sys

import numpy as np

SETS = {  # samples of a class, classes; samples of a block
    "10 x 600": (10, 600, 256),
    "200 x 500": (200, 500, 256),
    "1000 x 61": (1000, 61, 64),
}
EXTRA = 37  # samples more than all classes have: no block divides the sum
BATCH = 256
RANKS = (1, 8, 64)
GROUPS = (1, 8, 64)
FULLS = 30
BUFFER = 5000  # samples, of webdataset's shuffle; py1e has as many
PARTS = 8


def labels_of(classes, each):
    return np.minimum(np.arange(classes * each + EXTRA) // each, classes - 1)


def measures(order, labels, ranks, groups):
    """For the batches of ranks, as stoker divides steps: by home group, then by position."""
    classes = labels[order]
    step = BATCH if ranks == 1 else BATCH // 4 * ranks
    steps = len(order) // step
    counts, most = [], 0
    for number in range(steps):
        place = np.arange(number * step, (number + 1) * step)
        place = place[np.lexsort((place, place % groups))].reshape(ranks, -1)
        for rank in classes[place]:
            found = np.bincount(rank)
            counts.append((found > 0).sum())
            most = max(most, found.max() / len(rank))
    turns = np.flatnonzero(np.diff(classes)) + 1
    runs = np.diff(np.concatenate(([0], turns, [len(classes)])))
    stretch = 20 * step
    kinds = [len(np.unique(classes[i:i + stretch]))
             for i in range(0, max(len(classes) - stretch, 1), stretch)]
    part = np.arange(len(classes)) * PARTS // len(classes)
    table = np.zeros((labels.max() + 1, PARTS))
    np.add.at(table, (classes, part), 1)
    want = table.sum(1, keepdims=True) * table.sum(0, keepdims=True) / len(classes)
    chi = ((table - want) ** 2 / want).sum() / (labels.max() * (PARTS - 1))
    return {"classes": float(np.mean(counts)), "fewest": int(min(counts)),
            "share %": 100 * float(most), "longest run": int(runs.max()),
            "in 20 steps": int(min(kinds)), "chi-square": float(chi)}


def by_stoker(program, size, block, window, groups, shuffle, version, seed=1):
    words = [program, size, block, window, groups, shuffle, seed, 0, version]
    done = subprocess.run([*map(str, words)], capture_output=True)
    if done.returncode:
        raise RuntimeError(done.stderr.decode().strip())
    return np.frombuffer(done.stdout, np.uint32)


def by_torch(size):
    import torch

    generator = torch.Generator().manual_seed(1)
    sampler = torch.utils.data.RandomSampler(range(size), generator=generator)
    return np.array(list(sampler))


def by_webdataset(size):
    import random

    from webdataset.filters import shuffle

    return np.array(list(shuffle(BUFFER, initial=BUFFER, rng=random.Random(1))(iter(range(size)))))


def by_streaming(size, shard):
    from streaming_order import enter

    shards = np.full(size // shard, shard, np.int64)
    if size % shard:
        shards = np.append(shards, size % shard)
    return np.asarray(enter()[0]("py1e", shards, 1, 1, 0, BUFFER))


def candidates(program, size, block):
    """Name, home groups, and the function that makes the order."""
    yield "stoker, default", 1, lambda: by_stoker(program, size, block, 64, 1, 2, 2)
    for groups in GROUPS:
        for version in (2, 1):
            yield (f"stoker, block, window 64, {groups} groups, version {version}", groups,
                   lambda g=groups, v=version: by_stoker(program, size, block, 64, g, 1, v))
    yield ("stoker, block, window 8", 1, lambda: by_stoker(program, size, block, 8, 1, 1, 2))
    yield "torch RandomSampler", 1, lambda: by_torch(size)
    yield f"webdataset, buffer of {BUFFER}", 1, lambda: by_webdataset(size)
    yield f"streaming py1e, {BUFFER}", 1, lambda: by_streaming(size, 8 * block)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", required=True)
    program = parser.parse_args().program
    for name, (classes, each, block) in SETS.items():
        labels = labels_of(classes, each)
        for ranks in RANKS:
            if BATCH // 4 * ranks * 4 > len(labels):
                continue
            fulls = [measures(np.random.default_rng(seed).permutation(len(labels)), labels, ranks,
                              1) for seed in range(FULLS)]
            means = np.array([full["classes"] for full in fulls])
            low, high = means.mean() - 2.576 * means.std(), means.mean() + 2.576 * means.std()
            case = f"{name}, {ranks} ranks: "
            middle = {key: float(np.median([full[key] for full in fulls])) for key in fulls[0]}
            print(json.dumps({"case": case + "full permutations", **middle, "in band": 1}),
                  flush=True)
            for kind, groups, make in candidates(program, len(labels), block):
                try:
                    found = measures(make(), labels, ranks, groups)
                except Exception as error:
                    print(json.dumps({"case": case + kind, "missing": str(error)[:200]}),
                          flush=True)
                    continue
                found["in band"] = int(low <= found["classes"] <= high)
                print(json.dumps({"case": case + kind, **found}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
