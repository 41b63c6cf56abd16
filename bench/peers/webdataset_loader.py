#!/usr/bin/env python3
"""webdataset as its readme shows it: shuffled shards, a shuffle buffer, batches in the workers."""
import torch
import webdataset

import common
import torch_common

SHUFFLE_SAMPLES = 1000
used = {}


def open_stream(options):
    transform = torch_common.pil_transform(options.dtype)
    used["transform"] = transform.name
    dataset = (webdataset.WebDataset(common.tars(options), shardshuffle=100, seed=options.seed)
               .shuffle(SHUFFLE_SAMPLES)
               .decode("pilrgb")
               .to_tuple("jpg", "cls")
               .map_tuple(transform)
               .batched(options.batch, partial=False))
    loader = torch_common.data_loader(dataset, options, batch_size=None)
    return torch_common.endless(loader)


common.run("webdataset", webdataset.__version__, open_stream, modes=("tars",),
           notes=lambda: f"{used['transform']}, shuffle({SHUFFLE_SAMPLES})")
