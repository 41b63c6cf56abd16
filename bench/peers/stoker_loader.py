#!/usr/bin/env python3
"""stoker's own loader, with the defaults that its users get."""
import stoker
import torch

import common

used = {}


def more_options(parser):
    parser.add_argument("--index", default="auto", help="an index file, and its .marks beside it")
    parser.add_argument("--inexact", action="store_true", help="exact=False: planes are resized")


def open_stream(options):
    image = [stoker.RandomResizedCrop(common.SIDE), stoker.RandomHorizontalFlip()]
    if options.dtype == "float32":
        image.append(stoker.Normalize(common.MEAN, common.STD))
    source = options.data / ("folder" if options.mode == "folder" else "tars/*.tar")
    loader = stoker.Loader(str(source), batch_size=options.batch, seed=options.seed, image=image,
                           threads=options.threads or None, batches_ahead=options.ahead or None,
                           index=options.index, exact=not options.inexact)
    used["loader"] = loader
    epoch = 0
    while True:
        loader.set_epoch(epoch)
        for images, _ in loader:
            yield images
        epoch += 1


def notes():
    return {**used["loader"].stats(), **used["loader"].engine.info(), "torch": torch.__version__}


common.run("stoker", stoker.__version__, open_stream, notes=notes,
           more_options=more_options)
