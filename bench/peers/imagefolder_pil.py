#!/usr/bin/env python3
"""The loader that most people have: class folders, PIL, torch's DataLoader with processes."""
import torch
from PIL import Image

import common
import torch_common

used = {}


class ImageFolder(torch.utils.data.Dataset):
    def __init__(self, options):
        self.files = common.folder_files(options)
        self.transform = torch_common.pil_transform(options.dtype)

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        path, label = self.files[index]
        with open(path, "rb") as file:
            image = Image.open(file).convert("RGB")
        return self.transform(image), label


def open_stream(options):
    dataset = ImageFolder(options)
    used["transform"] = dataset.transform.name
    return torch_common.endless(torch_common.data_loader(
        dataset, options, batch_size=options.batch, shuffle=True, drop_last=True))


common.run("imagefolder", f"torch {torch.__version__}", open_stream, modes=("folder",),
           notes=lambda: used["transform"])
