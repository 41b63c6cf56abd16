#!/usr/bin/env python3
"""Validation accuracy of a small network after three epochs, by order and decoding, 5 seeds each,
beside PyTorch's own loader with the same augmentation (RandomResizedCrop, flip).

    accuracy.py    # makes its data in a temporary folder; minutes on two cores

The data are JPEGs of noisy prototypes, sorted by class, in numbers that no block divides. Prints
one JSON line for each setting: mean and spread over the seeds, in percent.
"""
import argparse
import json
import pathlib
import statistics
import tempfile

import numpy as np
import torch
from PIL import Image
from torchvision import transforms

import stoker

CLASSES, EACH, SIDE, CROP, BATCH = 100, 61, 64, 24, 32
EPOCHS, SEEDS, SIGNAL, NOISE = 3, 5, 3.5, 60.0
SCALE = (0.4, 1.0)


def write(root, each, seed):
    random = np.random.default_rng(seed)
    shapes = np.random.default_rng(7).normal(0, 1, (CLASSES, 4, 4, 3))
    for number, shape in enumerate(shapes):
        folder = root / f"c{number:03}"
        folder.mkdir(parents=True)
        base = 128 + SIGNAL * np.kron(shape, np.ones((SIDE // 4, SIDE // 4, 1)))
        for image in range(each):
            pixels = np.clip(base + random.normal(0, NOISE, base.shape), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"{image:04}.jpg", quality=90)


def network(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 4, 4), torch.nn.BatchNorm2d(16), torch.nn.ReLU(),
        torch.nn.Flatten(), torch.nn.Linear(16 * 6 * 6, CLASSES))


class FullImages(torch.utils.data.Dataset):
    """Whole images by PIL, with torchvision's transforms, as its training script has them."""

    def __init__(self, root):
        self.paths = sorted(root.glob("*/*.jpg"))
        self.transform = transforms.Compose([
            transforms.RandomResizedCrop(CROP, scale=SCALE), transforms.RandomHorizontalFlip(),
            transforms.PILToTensor()])

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, number):
        image = Image.open(self.paths[number]).convert("RGB")
        return self.transform(image), int(self.paths[number].parent.name[1:])


def batches(loader, epoch):
    if hasattr(loader, "set_epoch"):
        loader.set_epoch(epoch)
    for images, labels in loader:
        yield (images.float() - 128) / 64, labels


def train(loader, seed):
    net = network(seed)
    optimizer = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)
    for epoch in range(EPOCHS):
        for images, labels in batches(loader, epoch):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(images), labels).backward()
            optimizer.step()
    return net


def accuracy(net, loader):
    right = total = 0
    net.eval()
    with torch.no_grad():
        for images, labels in batches(loader, 0):
            right += (net(images).argmax(1) == labels).sum().item()
            total += len(labels)
    return 100 * right / total


def crops():
    return [stoker.RandomResizedCrop(CROP, scale=SCALE), stoker.RandomHorizontalFlip()]


def settings(folder, halves, packed, in_order):
    """Name, and the loader for a seed."""
    def ours(source, **options):
        return lambda seed: stoker.Loader(source, BATCH, seed=seed, image=crops(), output="torch",
                                          **options)

    yield "PyTorch, whole images", lambda seed: torch.utils.data.DataLoader(
        FullImages(folder), BATCH, shuffle=True, drop_last=True,
        generator=torch.Generator().manual_seed(seed))
    yield "folder, default", ours(folder)
    yield "folder, exact=False", ours(folder, exact=False)
    yield "mix of two halves", ours(stoker.Mix(halves))
    yield "packed, default", ours(packed)
    yield "packed, block", ours(packed, shuffle="block")
    yield "kept order, default", ours(in_order)
    yield "folder, block, version 1", ours(folder, shuffle="block", order_version=1)
    yield "folder, block, window 2", ours(folder, shuffle="block", window=2)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        root = pathlib.Path(scratch)
        write(root / "train", EACH, 1)
        write(root / "validation", 20, 2)
        for half in range(2):
            for number in range(CLASSES):
                folder = root / f"half{half}" / f"c{number:03}"
                folder.mkdir(parents=True)
                for path in sorted((root / "train" / f"c{number:03}").glob("*.jpg"))[half::2]:
                    (folder / path.name).hardlink_to(path)
        stoker.pack(root / "train", root / "packed")
        stoker.pack(root / "train", root / "kept", keep_order=True)
        check = stoker.Loader(root / "validation", 100, shuffle="none", tail="keep", output="torch",
                              image=[stoker.Resize((CROP, CROP))])
        halves = [root / "half0", root / "half1"]
        for name, make in settings(root / "train", halves, root / "packed", root / "kept"):
            found = []
            for seed in range(SEEDS):
                loader = make(seed)
                torch.manual_seed(100 + seed)
                found.append(accuracy(train(loader, seed), check))
                if hasattr(loader, "close"):
                    loader.close()
            print(json.dumps({"case": name, "accuracy %": statistics.mean(found),
                              "spread %": statistics.stdev(found), "lowest %": min(found)}),
                  flush=True)


if __name__ == "__main__":
    main()
