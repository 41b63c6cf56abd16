"""Python code for each sample, in a DataLoader's workers: python examples/torch_workers.py PATH

If the transforms of stoker do all the work, stoker.Loader is faster and needs no processes. With
torchdata's StatefulDataLoader instead of DataLoader, state_dict() is exact.
"""

import random
import sys

import stoker

try:
    import stoker.torch
    from torch.utils.data import DataLoader
except ImportError as error:
    print(f"nothing to show without PyTorch: {error}")
    sys.exit(0)


def prepare(sample):
    """Slow Python code. Each sample has its own seed, which is the same after a resume."""
    dice = random.Random(sample.pop("seed"))
    image = sample["image"]
    if dice.random() < 0.5:
        image[:, 8:24, 8:24] = 0  # the array is writable
    return sample


def main():
    dataset = stoker.torch.IterableDataset(
        sys.argv[1],
        batch_size=8,
        transform=prepare,
        fields={
            "image": stoker.Image(None, [stoker.RandomResizedCrop(32)]),
            "label": stoker.Label(),
            "key": "__key__",
            "seed": "__seed__",
        },
    )
    loader = DataLoader(dataset, batch_size=8, num_workers=2)
    for epoch in range(2):
        dataset.set_epoch(epoch)
        for batch in loader:
            print(epoch, tuple(batch["image"].shape), batch["label"].tolist(), batch["key"][0])


if __name__ == "__main__":
    main()
