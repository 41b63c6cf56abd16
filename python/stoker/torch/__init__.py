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

``save`` and ``load`` are those of stoker, in the place of ``torch.save`` and ``torch.load``: one
safetensors file, hashed and replaced atomically. ``StorageWriter`` and ``StorageReader`` store the
checkpoints of ``torch.distributed.checkpoint``.

This module imports torch; ``import stoker`` does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..checkpoint_file import load, save
from .iterable_dataset import IterableDataset
from .map_dataset import MapDataset

if TYPE_CHECKING:
    from .storage import StorageReader, StorageWriter

__all__ = ["IterableDataset", "MapDataset", "StorageReader", "StorageWriter", "load", "save"]


def __getattr__(name: str) -> Any:
    """Imports torch.distributed.checkpoint, which is slow, when it is needed."""
    if name in ("StorageReader", "StorageWriter"):
        from . import storage

        return getattr(storage, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
