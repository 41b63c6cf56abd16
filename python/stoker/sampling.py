"""Selects and draws the samples of a loader: subset=, weights=, balance= and the like."""

from __future__ import annotations

import array
import contextlib
import fcntl
import hashlib
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from . import _stoker
from ._cache_dir import cache_dir, is_named
from ._options import count, word
from .dataset import Dataset
from .errors import ArgumentError

WHERE = "Loader sampling"
SLICE_MS = 50  # between two checks for Ctrl-C
SCAN_WAIT_S = 600  # longest wait of a rank for the scan of another one
TABLES = {"auto": 0, "never": 1, "require": 2}  # enum stoker_index_use


def _plain(values: Any) -> Any:
    """Arrays of NumPy and torch as lists of Python numbers, in one call."""
    return values.tolist() if hasattr(values, "tolist") else values


def _chosen(subset: Any, size: int) -> dict[str, Any]:
    """A subset for the native Sampler."""
    if isinstance(subset, str):
        return {"where": subset}
    values = _plain(subset)
    values = list(values) if isinstance(values, Iterable) else [None]  # rejected below
    kinds = {type(value) for value in values}
    if kinds == {bool}:
        if len(values) != size:
            raise ArgumentError(
                f"{len(values)} flags for {size} samples",
                f"{WHERE} subset",
                "pass one flag for each sample",
            )
        values = [number for number, flag in enumerate(values) if flag]
    elif kinds and kinds <= {str, bytes}:
        return {"keys": tuple(os.fsencode(value) for value in values)}
    try:
        return {"samples": array.array("Q", values)}
    except (TypeError, OverflowError):
        raise ArgumentError(
            f"subset {subset!r:.80} selects no samples",
            WHERE,
            "pass a predicate, a list of ids or keys, or a flag for each sample",
        ) from None


@contextlib.contextmanager
def _scan_lock(name: str) -> Iterator[bool]:
    """A lock for the ranks of a machine: one scans, and the others find its table. Yields True
    if it did not have to wait. If there is no lock, or its owner takes too long, the rank scans
    itself."""
    folder, file, path = cache_dir(), None, ""
    with contextlib.suppress(OSError):
        if folder is not None:
            os.makedirs(folder, exist_ok=True)
            path = os.path.join(folder, f"scan-{name}.lock")
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    if file is None:
        yield True
        return
    is_locked = False
    try:
        is_first, end = True, time.monotonic() + SCAN_WAIT_S
        while time.monotonic() < end:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                is_first = False
                time.sleep(SLICE_MS / 1000)
                continue
            except OSError:
                break  # the file system has no locks
            is_locked = is_named(file, path)
            if is_locked:
                break
            # Its owner removed it when it was done.
            is_first = False
            again = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            os.close(file)
            file = again
        yield is_first
    finally:
        if is_locked:
            with contextlib.suppress(OSError):
                os.unlink(path)
        os.close(file)


class Sampling:
    """Checks the options; :meth:`native` opens samplers for a data set."""

    def __init__(
        self,
        subset: Any,
        curriculum: Sequence[tuple[int, Any]] | None,
        draws: tuple[Any, str | None, bool],
        run: tuple[int | None, int | None, int | None],
        tables: str,
    ) -> None:
        """draws: weights, balance, replacement. run: repeats, repeat_distance, epoch."""
        weights, balance, replacement = draws
        repeats, repeat_distance, epoch = run
        if (weights is not None) + (balance is not None) + bool(replacement) > 1:
            raise ArgumentError(
                "more than one of weights, balance and replacement is set",
                WHERE,
                "pass one of them",
            )
        if subset is not None and curriculum is not None:
            raise ArgumentError(
                "subset= cannot be combined with curriculum=", WHERE, "pass a subset for each stage"
            )
        if balance is not None and not isinstance(balance, str):
            raise ArgumentError(
                f"balance {balance!r} is not the name of a column", WHERE, 'pass balance="label"'
            )
        self.stages = self._stages([(0, subset)] if curriculum is None else curriculum)
        self.weights, self.balance, self.replacement = weights, balance, bool(replacement)
        self.repeats = count(repeats, f"{WHERE} repeats", low=1, high=2**16)
        self.distance = count(repeat_distance, f"{WHERE} repeat_distance", low=1, high=2**24)
        if repeats is None and repeat_distance is not None:
            raise ArgumentError("repeat_distance= needs repeats=", WHERE, "pass both")
        self.epoch = count(epoch, f"{WHERE} epoch", low=1, high=2**60)
        self.tables = word(tables, TABLES, f"{WHERE} tables")
        self._dataset: Dataset | None = None
        self._samplers: list[_stoker.Sampler | None] = []

    @staticmethod
    def _stages(curriculum: Any) -> list[tuple[int, Any]]:
        try:
            stages = [(position, subset) for position, subset in curriculum]
            for position, _ in stages:
                count(position, f"{WHERE} curriculum", high=2**62)
        except (TypeError, ValueError):
            stages = []
        if not stages or stages[0][0] != 0:
            raise ArgumentError(
                f"curriculum {curriculum!r:.80} is not a list of stages",
                WHERE,
                "pass pairs (position, subset), the first at 0: [(0, 'size < 9_000'), (300, None)]",
            )
        return stages

    @property
    def is_there(self) -> bool:
        """True if any option is set."""
        return (
            len(self.stages) > 1
            or self.stages[0][1] is not None
            or self.weights is not None
            or self.balance is not None
            or self.replacement
            or bool(self.repeats)
            or bool(self.epoch)
        )

    def native(self, dataset: Dataset) -> tuple[Any, ...]:
        """The argument of _stoker.Loader. Computes missing tables."""
        if self._dataset is not dataset:
            self._samplers = [self._sampler(subset, dataset) for _, subset in self.stages]
            self._dataset = dataset
        stages = zip(self.stages, self._samplers, strict=True)
        return (
            tuple((position, sampler) for (position, _), sampler in stages),
            self.repeats,
            self.distance,
            self.epoch,
        )

    def _sampler(self, subset: Any, dataset: Dataset) -> _stoker.Sampler | None:
        options: dict[str, Any] = {} if subset is None else _chosen(subset, len(dataset))
        if isinstance(self.weights, str):
            options["weight"] = self.weights
        elif self.weights is not None:
            options["weights"] = self._numbers(self.weights)
        elif self.balance is not None:
            options["balance"] = self.balance
        elif self.replacement:
            options["replacement"] = True
        if not options:
            return None
        columns = sorted((k, v) for k, v in options.items() if isinstance(v, str))
        if self.tables != TABLES["auto"] or not columns:
            return self._made(dataset, options)  # nothing to keep, or nothing to scan
        made = self._found(dataset, options)
        if made is not None:
            return made
        identity = repr((dataset.identity, columns)).encode()
        with _scan_lock(hashlib.sha256(identity).hexdigest()[:32]) as is_first:
            made = self._found(dataset, options)
            if made is not None or is_first:
                return made or self._made(dataset, options)
        return self._made(dataset, options)  # no table can be stored: each scans

    def _found(self, dataset: Dataset, options: dict[str, Any]) -> _stoker.Sampler | None:
        sampler = _stoker.Sampler(dataset._native, tables=self.tables, **options)
        return sampler if sampler.info()["table_path"] is not None else None

    def _made(self, dataset: Dataset, options: dict[str, Any]) -> _stoker.Sampler:
        sampler = _stoker.Sampler(dataset._native, tables=self.tables, **options)
        while sampler.next(SLICE_MS):
            pass
        return sampler

    @staticmethod
    def _numbers(weights: Any) -> array.array[float]:
        try:
            return array.array("d", _plain(weights))
        except TypeError:
            raise ArgumentError(
                f"weights {weights!r:.80} are not numbers",
                WHERE,
                "pass a column, or a number for each sample",
            ) from None

    def info(self) -> list[dict[str, Any]]:
        """Of each stage that has a table."""
        return [sampler.info() for sampler in self._samplers if sampler is not None]
