#!/usr/bin/env python3
"""stoker inside the workers of torch's DataLoader, a Python function called for each sample."""
import stoker
import stoker.torch
import torch

import common
import torch_common


def per_sample(sample):
    """Where users have their transforms; the cost is that of the call."""
    return sample


def open_stream(options):
    image = [stoker.RandomResizedCrop(common.SIDE), stoker.RandomHorizontalFlip()]
    if options.dtype == "float32":
        image.append(stoker.Normalize(common.MEAN, common.STD))
    source = options.data / ("folder" if options.mode == "folder" else "tars/*.tar")
    dataset = stoker.torch.IterableDataset(str(source), options.batch, seed=options.seed,
                                           image=image, transform=per_sample)
    return torch_common.endless(torch_common.data_loader(dataset, options,
                                                         batch_size=options.batch))


common.run("stoker-torch", stoker.__version__, open_stream,
           notes=lambda: f"torch {torch.__version__}, DataLoader(stoker.torch.IterableDataset)")
