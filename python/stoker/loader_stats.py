"""Counters of loaders: of replaced native loaders, and the time that a loop waits for batches."""

from __future__ import annotations

import time
from typing import Any

from . import _stoker

__all__ = ["PastStats", "WaitTimes"]


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


class WaitTimes:
    """Measures how long a training loop waits for the batches of a loader without own counters."""

    def __init__(self) -> None:
        self._opened = time.monotonic()
        self._first = self._last = 0.0  # the first request, the end of the last one
        self._waited = self._first_batch = 0.0
        self.batches = self.samples = 0

    def add(self, began: float, ended: float, samples: int | None) -> None:
        """A request for a batch, by time.monotonic(). samples: of the batch of this rank; None:
        there was no batch."""
        self._first = self._first or began
        self._last = ended
        self._waited += ended - began
        if samples is not None:
            self.batches += 1
            self.samples += samples
            self._first_batch = self._first_batch or self._last - self._opened

    def stats(self) -> dict[str, Any]:
        run = self._last - self._first
        return {
            "batches": self.batches,
            "samples": self.samples,
            "run_seconds": run,
            "wait_seconds": self._waited,
            "first_batch_seconds": self._first_batch,
            "wait_share": min(1.0, self._waited / run) if run > 0 else 0.0,
            "samples_per_second": self.samples / run if run > 0 else 0.0,
        }
