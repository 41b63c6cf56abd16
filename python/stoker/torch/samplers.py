"""A loader's order as torch's samplers, which training frameworks look for. It imports torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

from torch.utils.data import BatchSampler, DistributedSampler

from ..errors import StateError
from ..loader_base import LoaderBase

__all__ = ["LoaderBatchSampler", "LoaderSampler"]


class LoaderSampler(DistributedSampler[int]):
    """A rank's order, for those who ask what kind of sampler a loader has.

    Lightning and Ray Train put a DistributedSampler where they find none, which would share out
    each rank's share again; and Lightning tells the sampler which epoch begins.
    """

    def __init__(self, loader: LoaderBase) -> None:
        # Not torch's: it wants a data set of numbered items, and an order of its own.
        self._loader = loader
        self.num_replicas, self.rank = loader.world_size, loader.rank
        self.shuffle, self.seed = loader.shuffle != "none", loader.seed
        self.drop_last = loader.drop_last

    @property
    def epoch(self) -> int:  # type: ignore[override] # torch's is set by others
        return self._loader._epoch

    def set_epoch(self, epoch: int) -> None:
        self._loader.set_epoch(epoch)

    def __len__(self) -> int:
        """Samples of the rank's epoch; a kept tail counts as a whole batch."""
        return len(self._loader) * self._loader.batch_size

    def __iter__(self) -> Iterator[int]:
        """The sample numbers that the rank's epoch has; nothing is read."""
        explain: Any = getattr(self._loader, "explain", None)
        if explain is None:
            _refuse("its order cannot be listed")
        for step in range(len(self._loader)):
            yield from (scheduled.sample for scheduled in explain(step))


class LoaderBatchSampler(BatchSampler):
    """There, so that a loader has all names of torch's DataLoader; no batch is made by it.

    Who iterates it wants to make a DataLoader of his own that leaves out the first batches
    (``accelerate.skip_first_batches``), which would read them all, and decode nothing.
    """

    def __init__(self, loader: LoaderBase) -> None:
        self.sampler, self._loader = LoaderSampler(loader), loader
        self.batch_size, self.drop_last = loader.batch_size, loader.drop_last

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[list[int]]:
        _refuse("batches are not made by a sampler here")


def _refuse(what: str) -> NoReturn:
    raise StateError(
        what,
        "a loader's sampler",
        "iterate the loader; to go on in the middle of an epoch call its load_state_dict() (in "
        "Hugging Face's Trainer: ignore_data_skip=True and stoker.huggingface.KeepState)",
    )
