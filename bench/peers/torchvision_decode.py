#!/usr/bin/env python3
"""torchvision without PIL: decode_jpeg to a tensor, v2 transforms, torch's DataLoader."""
import torch
import torchvision
from torchvision.io import ImageReadMode, decode_jpeg, read_file
from torchvision.transforms import v2

import common
import torch_common


class ImageFolder(torch.utils.data.Dataset):
    def __init__(self, options):
        self.files = common.folder_files(options)
        steps = [v2.RandomResizedCrop(common.SIDE, antialias=True), v2.RandomHorizontalFlip()]
        if options.dtype == "float32":
            steps += [v2.ToDtype(torch.float32, scale=True), v2.Normalize(common.MEAN, common.STD)]
        self.transform = v2.Compose(steps)

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        path, label = self.files[index]
        return self.transform(decode_jpeg(read_file(path), mode=ImageReadMode.RGB)), label


def open_stream(options):
    return torch_common.endless(torch_common.data_loader(
        ImageFolder(options), options, batch_size=options.batch, shuffle=True, drop_last=True))


common.run("torchvision", torchvision.__version__, open_stream, modes=("folder",),
           notes=lambda: f"decode_jpeg, transforms.v2, torch {torch.__version__}")
