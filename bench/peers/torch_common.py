"""Transforms for the peers that leave them to PyTorch users: PIL's antialiased resize of a box."""
import math
import random

import numpy
import torch
from PIL import Image

import common


def random_crop_box(width, height):
    """torchvision's RandomResizedCrop.get_params with its defaults, as (x, y, w, h)."""
    area = width * height
    for _ in range(10):
        target = area * random.uniform(0.08, 1)
        aspect = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(target * aspect)), round(math.sqrt(target / aspect))
        if 0 < w <= width and 0 < h <= height:
            return random.randint(0, width - w), random.randint(0, height - h), w, h
    w, h = min(width, round(height * 4 / 3)), min(height, round(width * 4 / 3))
    return (width - w) // 2, (height - h) // 2, w, h


class OwnTransform:
    """The same steps without torchvision, for where it does not import beside a CPU torch."""

    name = "own crop and flip on PIL (torchvision does not import)"

    def __init__(self, dtype):
        self.as_float = dtype == "float32"
        self.mean = torch.tensor(common.MEAN).view(3, 1, 1)
        self.std = torch.tensor(common.STD).view(3, 1, 1)

    def __call__(self, image):
        x, y, w, h = random_crop_box(*image.size)
        image = image.resize((common.SIDE, common.SIDE), Image.Resampling.BILINEAR,
                             box=(x, y, x + w, y + h))
        if random.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = torch.from_numpy(numpy.array(image)).permute(2, 0, 1).contiguous()
        if not self.as_float:
            return pixels
        return pixels.to(torch.float32).div_(255).sub_(self.mean).div_(self.std)


def pil_transform(dtype):
    """torchvision's transforms where it imports, else our own; .name says which."""
    try:
        from torchvision import transforms
    except (ImportError, RuntimeError):
        return OwnTransform(dtype)
    steps = [transforms.RandomResizedCrop(common.SIDE), transforms.RandomHorizontalFlip()]
    if dtype == "float32":
        steps += [transforms.ToTensor(), transforms.Normalize(common.MEAN, common.STD)]
    else:
        steps += [transforms.PILToTensor()]
    transform = transforms.Compose(steps)
    transform.name = "torchvision.transforms on PIL"
    return transform


def endless(loader):
    """Images of every epoch, one after the other."""
    while True:
        for images, _ in loader:
            yield images


def data_loader(dataset, options, **more):
    """A torch DataLoader as its users write it: workers that outlive the epoch."""
    return torch.utils.data.DataLoader(dataset, num_workers=options.threads,
                                       persistent_workers=True,
                                       prefetch_factor=options.ahead or 2, **more)
