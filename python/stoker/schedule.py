"""The order of samples: the sample at each position of an epoch, and in each step."""

from __future__ import annotations

from typing import Any, NamedTuple

from . import _stoker
from ._options import SHUFFLES, count, word
from .dataset import Dataset
from .errors import ArgumentError

__all__ = ["ScheduledSample", "explain", "order_at"]

_ALL_RANKS = 2**32 - 1


class ScheduledSample(NamedTuple):
    """A sample in a step. Replacements of damaged samples are in ``loader.quarantine``."""

    rank: int
    slot: int
    """Index in the rank's batch."""
    epoch: int
    """Epoch of the step, or the next one in a wrapped tail."""
    position: int
    """Position in the order of that epoch."""
    sample: int
    """Number of the sample in the data set."""
    key: str
    shard: str
    """Path of its tar or file."""
    real: bool
    """False: padding, a repeat (``tail="pad"``)."""


def explain(
    native: _stoker.Loader,
    dataset: Dataset,
    place: tuple[int, int, int | str],
    mix: tuple[Any, ...] | None,
) -> list[ScheduledSample]:
    """The slots at (epoch, step, rank or "all"). mix: the option with which the loader is open."""
    where = "explain"
    epoch, step, rank = place
    if isinstance(rank, str) and rank != "all":
        raise ArgumentError(f"{rank!r} is not a rank", where, 'pass a number or "all"')
    number = _ALL_RANKS if isinstance(rank, str) else count(rank, where, high=_ALL_RANKS - 1)
    slots = native.explain(
        count(epoch, where, high=2**63 - 1), count(step, where, high=2**64 - 1), number, mix
    )
    rows = []
    for rank_, slot, epoch_, position, sample, real in slots:
        key, members = dataset._native.sample(sample)
        shard = members[0][0] if members else ""
        rows.append(ScheduledSample(rank_, slot, epoch_, position, sample, key, shard, real))
    return rows


def order_at(
    sample_count: int,
    position: int,
    *,
    seed: int = 0,
    epoch: int = 0,
    shuffle: str = "block",
    block_samples: int = 1,
    window: int = 64,
    groups: int = 1,
) -> int:
    """The sample at a position of an epoch: the pure function that all loaders use."""
    return _stoker.order_at(
        sample_count,
        block_samples,
        window,
        groups,
        word(shuffle, SHUFFLES, "shuffle"),
        seed,
        epoch,
        position,
    )
