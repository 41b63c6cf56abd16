"""A loader's order as torch samplers, which training frameworks look for. Imports torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

from torch.utils.data import BatchSampler, DistributedSampler

from ..errors import StateError
from ..loader_base import LoaderBase

__all__ = ["LoaderBatchSampler", "LoaderSampler"]


class LoaderSampler(DistributedSampler[int]):
    """A rank's order, for frameworks that check the type of a loader's sampler.

    Lightning and Ray Train add a DistributedSampler if there is none, which would divide each
    rank's share again; and Lightning sets the epoch through the sampler.
    """

    def __init__(self, loader: LoaderBase) -> None:
        # Does not call torch's constructor, which needs a data set of numbered items.
        self._loader = loader
        self.num_replicas, self.rank = loader.world_size, loader.rank
        self.shuffle, self.seed = loader.shuffle != "none", loader.seed
        self.drop_last = loader.drop_last

    @property
    def epoch(self) -> int:  # type: ignore[override] # in torch a plain attribute
        return self._loader._epoch

    def set_epoch(self, epoch: int) -> None:
        self._loader.set_epoch(epoch)

    def __len__(self) -> int:
        """Samples of the rank's epoch; a kept tail counts as a complete batch."""
        return len(self._loader) * self._loader.batch_size

    def __iter__(self) -> Iterator[int]:
        """The numbers of the samples of the rank's epoch; reads nothing."""
        explain: Any = getattr(self._loader, "explain", None)
        if explain is None:
            _refuse("its order cannot be listed")
        for step in range(len(self._loader)):
            yield from (scheduled.sample for scheduled in explain(step))


class LoaderBatchSampler(BatchSampler):
    """Exists so that a loader has all attributes of torch's DataLoader; it makes no batches.

    A caller that iterates it wants to make another DataLoader that skips the first batches
    (``accelerate.skip_first_batches``), which would read all of them, and decode none.
    """

    def __init__(self, loader: LoaderBase) -> None:
        self.sampler, self._loader = LoaderSampler(loader), loader
        self.batch_size, self.drop_last = loader.batch_size, loader.drop_last

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[list[int]]:
        _refuse("this sampler does not make batches")


def _refuse(what: str) -> NoReturn:
    raise StateError(
        what,
        "a loader's sampler",
        "iterate the loader; to continue in the middle of an epoch call its load_state_dict() (in "
        "Hugging Face's Trainer: ignore_data_skip=True and stoker.huggingface.KeepState)",
    )
