#!/usr/bin/env python3
"""torch's samplers and NumPy's draws, as they are used for chosen samples: all of an epoch is drawn
before its first, in each process.

    sampling_torch.py --case CASE --samples N

prints one JSON line: nanoseconds a draw of the whole epoch, seconds to its first draw, and the
memory that the process took for it.
"""
import argparse
import collections
import json
import resource
import time

import numpy
import torch
from torch.utils.data import RandomSampler, SubsetRandomSampler, WeightedRandomSampler

WEIGHTED_MAX = 1 << 24  # torch.multinomial takes no more


def samplers(samples):
    """Case -> a function that makes the iterable of an epoch."""
    def weights():
        return numpy.random.default_rng(0).random(samples, dtype=numpy.float32)

    def balanced():
        labels = numpy.random.default_rng(0).integers(0, 1000, samples)
        return WeightedRandomSampler(torch.from_numpy(1.0 / numpy.bincount(labels)[labels]),
                                     samples)

    def numpy_weighted():
        parts = weights().astype(numpy.float64)
        return numpy.random.default_rng(1).choice(samples, samples, p=parts / parts.sum())

    return {
        "each": lambda: RandomSampler(range(samples)),
        "replacement": lambda: RandomSampler(range(samples), replacement=True),
        "subset": lambda: SubsetRandomSampler(
            torch.nonzero(torch.from_numpy(weights()) < 0.5).flatten()),
        "weights": lambda: WeightedRandomSampler(torch.from_numpy(weights()), samples),
        "classes": balanced,
        "numpy each": lambda: numpy.random.default_rng(1).permutation(samples),
        "numpy weights": numpy_weighted,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--case", required=True)
    parser.add_argument("--samples", type=int, required=True)
    args = parser.parse_args()
    samples = args.samples
    if args.case in ("weights", "classes"):
        samples = min(samples, WEIGHTED_MAX)
    torch.set_num_threads(1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.process_time()
    draws = samplers(samples)[args.case]()
    if isinstance(draws, numpy.ndarray):
        count, first = len(draws), time.process_time() - begin
    else:
        iterator = iter(draws)
        next(iterator)
        first, count = time.process_time() - begin, len(draws)
        collections.deque(iterator, 0)
    print(json.dumps({
        "case": args.case, "samples": samples,
        "ns": (time.process_time() - begin) / count * 1e9, "first_s": first,
        "memory_mb": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e3,
        "version": f"torch {torch.__version__}, NumPy {numpy.__version__}"}))


if __name__ == "__main__":
    main()
