#!/usr/bin/env python3
"""webdataset without decoding: its samples, dicts of bytes, in the process that wants them."""
import itertools

import webdataset

import common


def open_stream(options):
    while True:
        dataset = iter(webdataset.WebDataset(common.tars(options), shardshuffle=False))
        while samples := list(itertools.islice(dataset, options.batch)):
            yield samples


def check(samples, options):
    assert len(samples) == options.batch and all(type(each["jpg"]) is bytes for each in samples)


common.run("webdataset", webdataset.__version__, open_stream, modes=("tars",), check=check)
