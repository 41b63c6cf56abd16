#!/usr/bin/env python3
"""FFCV: the same JPEG bytes in a .beton file (written once beside the set), its CPU pipeline."""
import os
from importlib import metadata

import cv2
import numpy
import torch
from ffcv.fields import IntField, RGBImageField
from ffcv.fields.decoders import IntDecoder, RandomResizedCropRGBImageDecoder
from ffcv.fields.rgb_image import IMAGE_MODES
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import (NormalizeImage, RandomHorizontalFlip, Squeeze, ToTensor, ToTorchImage)
from ffcv.writer import DatasetWriter
from PIL import Image

import common


def encode_same_bytes(self, destination, jpeg, malloc):
    """Store a JPEG as it is: FFCV's own encode would decode it and compress it a second time."""
    with Image.open(jpeg) as image:
        destination["width"], destination["height"] = image.size
    data = numpy.fromfile(jpeg, dtype=numpy.uint8)
    destination["mode"] = IMAGE_MODES["jpg"]
    destination["data_ptr"], storage = malloc(data.nbytes)
    storage[:] = data


def write_beton(options, path):
    """Write the file under another name first: a stopped run leaves nothing half made."""
    RGBImageField.encode = encode_same_bytes
    part = path.with_suffix(".part")
    writer = DatasetWriter(str(part), {"image": RGBImageField(write_mode="jpg"),
                                       "label": IntField()}, num_workers=options.threads)
    writer.from_indexed_dataset(common.folder_files(options))
    os.rename(part, path)


def open_stream(options):
    path = options.data / "ffcv.beton"
    decoder = RandomResizedCropRGBImageDecoder((common.SIDE, common.SIDE))
    image = [decoder, RandomHorizontalFlip()]
    if options.dtype == "float32":
        image.append(NormalizeImage(numpy.array(common.MEAN) * 255, numpy.array(common.STD) * 255,
                                    numpy.float32))
    image += [ToTensor(), ToTorchImage()]
    loader = Loader(str(path), batch_size=options.batch, num_workers=options.threads,
                    order=OrderOption.RANDOM, drop_last=True, os_cache=True, seed=options.seed,
                    batches_ahead=options.ahead or 3,
                    pipelines={"image": image, "label": [IntDecoder(), ToTensor(), Squeeze()]})
    while True:
        for images, _ in loader:
            yield images


def prepare_and_open(options):
    """The conversion is not FFCV's time to first batch: a user does it once."""
    if not (options.data / "ffcv.beton").exists():
        if os.fork() == 0:
            write_beton(options, options.data / "ffcv.beton")
            os._exit(0)
        os.wait()
    return open_stream(options)


cv2.setNumThreads(1)
torch.set_num_threads(1)
common.run("ffcv", metadata.version("ffcv"), prepare_and_open, modes=("folder",),
           notes=lambda: "the same JPEG bytes in a .beton, random order, os_cache")
