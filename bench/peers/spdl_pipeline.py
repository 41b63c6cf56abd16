#!/usr/bin/env python3
"""SPDL: decode, crop and scale in FFmpeg, in threads that have let go of the GIL."""
import random
from importlib import metadata

import spdl.io
import spdl.pipeline
import torch

import common
import torch_common


def jpegs(options):
    """The bytes of every picture of every epoch, shards or files in a new order each time."""
    sources = (common.tars(options) if options.mode == "tars"
               else [path for path, _ in common.folder_files(options)])
    while True:
        random.shuffle(sources)
        for path in sources:
            with open(path, "rb") as file:
                if options.mode == "folder":
                    yield file.read()
                    continue
                for name, data in spdl.io.iter_tarfile(file):
                    if name.endswith(".jpg"):
                        yield data


def decode(jpeg):
    packets = spdl.io.demux_image(jpeg)
    x, y, w, h = torch_common.random_crop_box(packets.width, packets.height)
    flip = "hflip," if random.random() < 0.5 else ""
    return spdl.io.decode_packets(
        packets, filter_desc=f"crop={w}:{h}:{x}:{y}:exact=1,"
        f"scale={common.SIDE}:{common.SIDE}:flags=bilinear,{flip}format=pix_fmts=rgb24")


def collate(options):
    mean = torch.tensor(common.MEAN).view(1, 3, 1, 1) * 255
    std = torch.tensor(common.STD).view(1, 3, 1, 1) * 255

    def to_batch(frames):
        pixels = spdl.io.to_torch(spdl.io.convert_frames(frames)).permute(0, 3, 1, 2)
        if options.dtype == "uint8":
            return pixels.contiguous()
        pixels = pixels.to(torch.float32, memory_format=torch.contiguous_format)
        return pixels.sub_(mean).div_(std)

    return to_batch


def open_stream(options):
    torch.set_num_threads(1)
    pipeline = (spdl.pipeline.PipelineBuilder()
                .add_source(jpegs(options))
                .pipe(decode, concurrency=options.threads)
                .aggregate(options.batch)
                .pipe(collate(options))
                .add_sink(options.ahead or 3)
                .build(num_threads=options.threads))
    with pipeline.auto_stop():
        yield from pipeline


common.run("spdl", metadata.version("spdl"), open_stream,
           notes=lambda: "FFmpeg crop and bilinear scale; no shuffle within a tar")
