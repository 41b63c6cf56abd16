"""Counters of native loaders that a loader has replaced."""

from __future__ import annotations

from . import _stoker

__all__ = ["PastStats"]


class PastStats:
    """Sums of the counters of native loaders that a loader used before."""

    NOW = ("threads", "batches_ahead", "memory_bytes_peak", "bad_samples")  # present values

    def __init__(self) -> None:
        self.stats: dict[str, int] = {}

    def add(self, native: _stoker.Loader) -> None:
        self.stats = self.sum(native.stats())

    def sum(self, stats: dict[str, int]) -> dict[str, int]:
        if not self.stats:
            return stats
        total = {n: v if n in self.NOW else v + self.stats[n] for n, v in stats.items()}
        total["first_batch_ns"] = self.stats["first_batch_ns"] or stats["first_batch_ns"]
        return total
