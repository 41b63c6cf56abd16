"""Rank and world size of this process."""

from __future__ import annotations

import os
import sys
from typing import Any, NamedTuple

from ._options import count
from .errors import ArgumentError

_SHARERS = {
    "accelerate.data_loader": ("DataLoaderDispatcher", "IterableDatasetShard"),
    "transformers.trainer_pt_utils": ("IterableDatasetShard",),
}
"""Classes that divide the samples of an iterable data set among processes, by module."""


class Sharing(NamedTuple):
    """The way in which a framework divides the samples of an iterable data set."""

    processes: int
    """Number of processes among which it divides them; 0 or 1: it does not."""
    batches: int
    """Number of batches of a worker that are joined and cut into a slice for each process."""
    step: int
    """Number of batches of the DataLoader that make the batches of all processes."""


def sharing() -> Sharing:
    """Finds out if a framework divides the samples that its callers iterate, or count.

    Accelerate, and the Trainer with it, decide this when they prepare a DataLoader, and do not
    tell the data set. So the data set looks for their classes in its call stack. A forked worker
    has the callers of its parent, too.
    """
    frame = sys._getframe(1)
    while frame is not None:
        names = _SHARERS.get(frame.f_globals.get("__name__", ""), ())
        this: Any = frame.f_locals.get("self") if names else None
        if type(this).__name__ in names:
            is_dealt_out = type(this).__name__ == "DataLoaderDispatcher"
            processes = int(this.state.num_processes if is_dealt_out else this.num_processes)
            step = 1 if this.split_batches else processes
            return Sharing(processes, 1 if is_dealt_out else step, step)
        frame = frame.f_back  # type: ignore[assignment]
    return Sharing(0, 1, 1)


def ranks(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Rank and world size: the arguments, or torch.distributed's, or the environment's."""
    where = "Loader rank"
    if (rank is None) != (world_size is None):
        raise ArgumentError("only one of rank and world_size is set", where, "pass both, or none")
    if rank is None:
        rank, world_size = _found()
    assert world_size is not None
    world = count(world_size, "Loader world_size", low=1)
    return count(rank, where, high=world - 1), world


def _found() -> tuple[int, int]:
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    texts = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    if texts[0] is None or texts[1] is None:
        return 0, 1
    try:
        return int(texts[0]), int(texts[1])
    except ValueError:
        raise ArgumentError(
            f"RANK={texts[0]!r} WORLD_SIZE={texts[1]!r}",
            "the environment",
            "set both to numbers, or pass rank= and world_size=",
        ) from None
