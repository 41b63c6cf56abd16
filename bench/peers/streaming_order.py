#!/usr/bin/env python3
"""mosaicml-streaming's order of an epoch and who gets what of it, as StreamingDataset makes them at
the start of an epoch and at a resume: get_shuffle and get_partitions of the real package.

Its top-level package imports torch and clients of every cloud; the two modules need only NumPy, so
the package is entered below them.

    streaming_order.py --samples N [--nodes N --ranks N] [--position P]

prints one JSON line: seconds to the first batch at the position, peak memory.
"""
import argparse
import functools
import importlib.metadata
import importlib.util
import json
import pathlib
import resource
import sys
import time
import types

import numpy as np

SHARD_BYTES = 1 << 26  # its default size_limit
SEED = 9176  # its default


@functools.cache
def enter():
    """streaming.base.shuffle and streaming.base.partition, without streaming/__init__.py."""
    root = pathlib.Path(importlib.util.find_spec("streaming").submodule_search_locations[0])
    for name, folder in (("streaming", root), ("streaming.base", root / "base")):
        module = types.ModuleType(name)
        module.__path__ = [str(folder)]
        sys.modules[name] = module
    from streaming.base.partition import get_partitions
    from streaming.base.shuffle import get_shuffle

    return get_shuffle, get_partitions, importlib.metadata.version("mosaicml-streaming")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--samples", type=int, required=True)
    parser.add_argument("--sample-bytes", type=int, default=10**6)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=8, help="of a node")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--position", type=int, default=0, help="samples that were given before")
    args = parser.parse_args()
    get_shuffle, get_partitions, version = enter()
    shard = max(SHARD_BYTES // args.sample_bytes, 1)
    begin = time.monotonic()
    shards = np.full(-(-args.samples // shard), shard, np.int64)
    shards[-1] = args.samples - shard * (len(shards) - 1)
    block = max(4_000_000 // args.nodes, 1 << 18)  # its default
    ids = get_partitions("relaxed", args.samples, args.nodes, args.nodes, args.ranks, 1,
                         args.batch, args.position, args.nodes)
    order = get_shuffle("py1e", shards, args.nodes, SEED, 0, block)
    ids = np.where(ids != -1, order[ids], -1)
    first = ids[0, 0, 0, 0]
    seconds = time.monotonic() - begin
    assert len(first) == args.batch and (first >= 0).all()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    print(json.dumps({"peer": "streaming", "version": version, "seconds": seconds,
                      "memory_mb": memory}))


if __name__ == "__main__":
    main()
