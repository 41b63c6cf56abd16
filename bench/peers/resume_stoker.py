#!/usr/bin/env python3
"""Resume at a far sample: from TokenLoader() and load_state_dict() to the first batch.

    resume_stoker.py --file PATH --samples N --position P

PATH is a file of uint16 tokens, of which every one begins a sample; it is made where it is missing:
sparse, so that it takes no disk. Prints one JSON line: seconds until the loader stands there and
until it gave the batch, memory of the process before and after, the batch's first tokens.
"""
import argparse
import json
import resource
import time

import numpy  # noqa: F401, the batch is one of its arrays: imports do not count
import stoker

CONTEXT = 16


def memory_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--samples", type=int, required=True)
    parser.add_argument("--position", type=int, required=True)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--file", required=True)
    args = parser.parse_args()
    with open(args.file, "ab") as file:
        file.truncate(2 * (args.samples + CONTEXT - 1))

    def loader():
        return stoker.TokenLoader(args.file, args.batch, CONTEXT, stored="uint16", stride=1,
                                  labels=False, seed=3, output="numpy")

    with loader() as before:  # its state would be saved for weeks
        state = json.dumps({**before.state_dict(), "position": args.position})
    idle = memory_mb()
    begin = time.monotonic()
    with loader() as stream:
        stream.load_state_dict(json.loads(state))
        there = time.monotonic() - begin
        batch = next(iter(stream))
        seconds = time.monotonic() - begin
        first = (batch[0] if isinstance(batch, tuple | list) else batch)[:, 0].tolist()
        after = stream.state_dict()
    assert after["position"] == args.position + args.batch, after
    assert after["sample_count"] == args.samples, after
    print(json.dumps({"peer": "stoker", "version": stoker.__version__, "seconds": seconds,
                      "there_s": there, "memory_mb": memory_mb(),
                      "grown_mb": memory_mb() - idle, "first": first, "state": after}))


if __name__ == "__main__":
    main()
