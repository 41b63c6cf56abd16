"""Reads the first batch of a folder of images, or of tars: python examples/first_batch.py PATH"""

import sys

import stoker

loader = stoker.Loader(
    sys.argv[1],
    batch_size=16,
    seed=0,
    image=[stoker.RandomResizedCrop(96), stoker.RandomHorizontalFlip(), stoker.Normalize()],
)
images, labels = next(iter(loader))  # torch tensors if torch can be imported, else NumPy arrays
print(f"{len(loader)} batches of {tuple(images.shape)} {images.dtype}, labels {labels.tolist()}")
