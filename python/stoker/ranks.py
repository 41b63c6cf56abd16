"""Which rank of how many this process is."""

from __future__ import annotations

import os
import sys

from .dataset import count
from .errors import ArgumentError


def ranks(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """The rank and world size: given, or torch.distributed's, or the environment's."""
    where = "Loader rank"
    if (rank is None) != (world_size is None):
        raise ArgumentError("one of rank and world_size alone", where, "give both, or none")
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
            "set both to numbers, or give rank= and world_size=",
        ) from None
