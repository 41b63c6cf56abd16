#!/usr/bin/env python3
"""How well orders mix, by counting over epochs: stoker's block shuffle, mosaicml-streaming's py1e
(the real package), shuffle buffers of the same memory, and a full permutation. All seeds are fixed.

    shuffle_quality.py --program SHUFFLE    # bench/shuffle.c, compiled

prints one JSON line a candidate. chi/freedom is 1 for fair draws; "x full" is how often two samples
are in one batch beside how often they are under a full permutation.
"""
import argparse
import json
import subprocess

import numpy as np

SAMPLES = 32768
BLOCK = 64  # samples of a stoker block, or of a small shard
SHARD = 512  # of a shard of 64 MiB, if a block has 8 MiB
ROOM = 4096  # samples in memory: 64 blocks
BATCH = 256
BINS = SAMPLES // ROOM
SEED = 1


def by_stoker(program, window, groups, shuffle, epochs):
    words = [program, SAMPLES, BLOCK, window, groups, shuffle, SEED, epochs]
    done = subprocess.run([*map(str, words)], capture_output=True, check=True)
    return np.frombuffer(done.stdout, np.uint32).reshape(epochs, SAMPLES)


def by_streaming(shard, epochs):
    from streaming_order import enter

    get_shuffle = enter()[0]
    shards = np.full(SAMPLES // shard, shard, np.int64)
    return np.stack([get_shuffle("py1e", shards, 1, SEED, epoch, ROOM)
                     for epoch in range(epochs)])


def by_buffer(shard, epochs):
    """Each draw takes any sample of a full buffer. shard: shards are in random order, else as
    stored."""
    random = np.random.default_rng(SEED)
    orders = np.empty((epochs, SAMPLES), np.int64)
    for order in orders:
        coming = np.arange(SAMPLES)
        if shard:
            coming = random.permutation(coming.reshape(-1, shard)).ravel()
        buffer, draws = coming[:ROOM].copy(), random.random(SAMPLES)
        for position, draw in enumerate(draws):
            left = min(ROOM, SAMPLES - position)
            at = int(draw * left)
            order[position] = buffer[at]
            buffer[at] = coming[position + ROOM] if position + ROOM < SAMPLES else buffer[left - 1]
    return orders


def chi(bins, cells):
    """Chi-square over its freedom of values 0 .. cells - 1, a row of draws for each probe."""
    rows = np.arange(len(bins))[:, None] * cells
    seen = np.bincount((bins + rows).ravel(), minlength=len(bins) * cells).reshape(-1, cells)
    want = bins.shape[1] / cells
    return float(((seen - want) ** 2 / want).sum() / (len(bins) * (cells - 1)))


def together(places, a, b):
    """How often samples a[i] and b[i] are in one batch, relative to a full permutation."""
    share = (places[:, a] // BATCH == places[:, b] // BATCH).mean()
    return float(share / ((BATCH - 1) / (SAMPLES - 1)))


def mates_again(orders, places, random):
    """For two samples of one batch (and of two blocks): how often they share one in the next
    epoch."""
    found = many = 0
    for order, after in zip(orders[:-1], places[1:]):
        batches = order.reshape(-1, BATCH)
        a, b = (batches[:, random.permutation(BATCH)[:64]] for _ in range(2))
        apart = a // BLOCK != b // BLOCK
        found += (after[a] // BATCH == after[b] // BATCH)[apart].sum()
        many += apart.sum()
    return float(found / many / ((BATCH - 1) / (SAMPLES - 1)))


def measure(orders):
    random = np.random.default_rng(SEED)
    places = np.empty(orders.shape, np.int64)
    np.put_along_axis(places, orders.astype(np.int64), np.arange(SAMPLES)[None], 1)
    assert (np.sort(orders, axis=1) == np.arange(SAMPLES)).all(), "not each sample once"
    probes = random.choice(SAMPLES, 512, replace=False)
    bins = (places[:, probes] // ROOM).T
    distant = random.choice(SAMPLES, (2, 32768))
    distant = distant[:, distant[0] // SHARD != distant[1] // SHARD]
    one = random.choice(SAMPLES // BLOCK, 32768) * BLOCK
    inner = np.stack([random.permutation(BLOCK)[:2] for _ in one]).T
    beside = random.choice(SAMPLES - BLOCK, 32768)
    distinct = np.array([len(np.unique(batch // BLOCK)) for order in orders[:32]
                         for batch in order.reshape(-1, BATCH)])
    a, b = (places[:, pair[:512]] // ROOM for pair in distant)
    return {
        "position": chi(bins, BINS),
        "next epoch": chi(bins[:, 0::2] * BINS + bins[:, 1::2], BINS * BINS),
        "pairs": chi((a * BINS + b).T, BINS * BINS),
        "mates, far apart, x full": together(places, *distant),
        "mates, a block apart, x full": together(places, beside, beside + BLOCK),
        "mates, one block, x full": together(places, one + inner[0], one + inner[1]),
        "mates again, x full": mates_again(orders, places, random),
        "blocks in a batch": float(distinct.mean()),
        "the fewest": float(distinct.min()),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", required=True)
    parser.add_argument("--epochs", type=int, default=256)
    args = parser.parse_args()
    epochs = args.epochs
    candidates = {
        "full permutation": lambda: by_stoker(args.program, 1, 1, 2, epochs),
        "stoker, windows of 64 blocks": lambda: by_stoker(args.program, 64, 1, 1, epochs),
        "stoker, 8 groups, windows of 8": lambda: by_stoker(args.program, 8, 8, 1, epochs),
        "py1e, shards as small as blocks": lambda: by_streaming(BLOCK, epochs),
        "py1e, shards of 8 blocks": lambda: by_streaming(SHARD, epochs),
        "buffer, shards in any order": lambda: by_buffer(SHARD, epochs),
        "buffer, storage order": lambda: by_buffer(0, epochs),
    }
    for name, make in candidates.items():
        try:
            print(json.dumps({"case": name, **measure(make())}), flush=True)
        except (ImportError, AttributeError) as missing:
            print(json.dumps({"case": name, "missing": str(missing)}), flush=True)


if __name__ == "__main__":
    main()
