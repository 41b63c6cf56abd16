#!/usr/bin/env python3
"""NVIDIA DALI on the CPU: its tar reader, region decode, antialiased resize, fused normalise.

Batches are taken as they are in DALI's memory; its PyTorch iterator would copy them once more.
"""
import numpy
import nvidia.dali
from nvidia.dali import fn, pipeline_def, types

import common


@pipeline_def
def pipeline(options):
    if options.mode == "tars":
        jpegs, _ = fn.readers.webdataset(paths=common.tars(options), ext=["jpg", "cls"],
                                         random_shuffle=True, name="reader")
    else:
        jpegs, _ = fn.readers.file(file_root=str(options.data / "folder"), random_shuffle=True,
                                   name="reader")
    images = fn.decoders.image_random_crop(jpegs, device="cpu")
    images = fn.resize(images, size=(common.SIDE, common.SIDE), antialias=True,
                       interp_type=types.INTERP_LINEAR)
    if options.dtype == "uint8":
        return fn.crop_mirror_normalize(images, mirror=fn.random.coin_flip(), dtype=types.UINT8,
                                        output_layout="CHW", mean=[0.0], std=[1.0])
    return fn.crop_mirror_normalize(images, mirror=fn.random.coin_flip(), dtype=types.FLOAT,
                                    output_layout="CHW", mean=[255 * m for m in common.MEAN],
                                    std=[255 * s for s in common.STD])


def open_stream(options):
    pipe = pipeline(options, batch_size=options.batch, num_threads=options.threads, device_id=None,
                    seed=options.seed, prefetch_queue_depth=options.ahead or 2)
    pipe.build()
    while True:
        images, = pipe.run()
        yield numpy.asarray(images.as_tensor())


common.run("dali", nvidia.dali.__version__, open_stream,
           notes=lambda: "CPU operators, shuffle buffer 1024")
