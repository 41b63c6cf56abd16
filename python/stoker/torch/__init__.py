"""Data sets for a ``torch.utils.data.DataLoader`` with workers, for Python code on each sample.

:class:`stoker.Loader` needs no worker processes. If slow Python code must run on each sample (a
tokenizer, an augmentation of another library), worker processes use several cores for it; this
module runs stoker inside them::

    import stoker
    import stoker.torch
    from torch.utils.data import DataLoader

    def prepare(sample):                     # your Python code, one sample at a time
        sample["tokens"] = tokenize(sample.pop("text"))
        return sample

    dataset = stoker.torch.IterableDataset(
        "train-{000..099}.tar", batch_size=64, seed=0, transform=prepare,
        fields={"image": stoker.Image("jpg", [stoker.RandomResizedCrop(224)]),
                "text": stoker.Text("txt")})
    batches = DataLoader(dataset, batch_size=64, num_workers=4)   # or StatefulDataLoader
    for epoch in range(90):
        dataset.set_epoch(epoch)
        for batch in batches:
            ...

This module imports torch; ``import stoker`` does not.
"""

from __future__ import annotations

from .iterable_dataset import IterableDataset
from .map_dataset import MapDataset

__all__ = ["IterableDataset", "MapDataset"]
