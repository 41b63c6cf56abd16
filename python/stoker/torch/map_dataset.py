"""MapDataset: the order of an epoch as numbered items, for frameworks that divide numbers."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch.utils.data

from .._options import count
from ..distributed import ranks
from ..errors import ArgumentError, StateError
from ..loader import UNOPENED, Loader
from ..state import POSITION
from .workers import Here, Source, Turns, items_of, opened, seed_of

__all__ = ["MapDataset"]

_SCATTERED_MAX = 3
"""Number of consecutive batches whose numbers are neither consecutive nor evenly spaced."""

Run = tuple[int, int, int]
"""Epoch, first position and end."""

_NOT_OURS = {
    "rank": "the sampler shares out the positions",
    "world_size": "the sampler shares out the positions",
    "tail": "the DataLoader's drop_last says what becomes of the last batch",
    "groups": "home groups need batches of known ranks: take stoker.Loader",
    "batches_ahead": "the DataLoader's prefetch_factor says it",
}


class MapDataset(Source, torch.utils.data.Dataset[Any]):
    """The samples of an epoch in stoker's order: item ``i`` is the sample at position ``i``.

    Use it with frameworks that divide and skip *numbers*. Hugging Face's Trainer accepts it as
    ``train_dataset`` and resumes from its checkpoints at once, with any number of processes that
    divides the global batch; so do Accelerate's ``prepare()`` and ``skip_first_batches()``, and
    StatefulDataLoader::

        arguments = transformers.TrainingArguments(
            ..., train_sampling_strategy="sequential", dataloader_num_workers=4)
        dataset = stoker.torch.MapDataset(
            "train-{000..099}.tar", seed=0,
            fields={"pixel_values": stoker.Image("jpg", [stoker.RandomResizedCrop(224)]),
                    "labels": stoker.Int("cls")})
        trainer = transformers.Trainer(model, arguments, train_dataset=dataset)
        trainer.train(resume_from_checkpoint=True)

    The order is already shuffled, differently in each epoch, so the DataLoader must not shuffle
    (``shuffle=False``; ``train_sampling_strategy="sequential"``). Consecutive numbers are
    prefetched, in each worker those of its turns; after a jump the stream continues there. With a
    shuffling sampler each sample would be made alone, with random values of another position: this
    raises StateError.

    Args:
        source, transform, output, threads, memory, sandbox, index, engine, dataset: see
            :class:`IterableDataset`.
        **options: those of :class:`stoker.Loader` that define samples and their order: ``seed``,
            ``image`` or ``fields``, ``shuffle``, ``window``, ``subset``, ``weights`` ...

    :meth:`set_epoch` sets the epoch of the items; Accelerate and the Trainer call it. Your own loop
    must call it as for a DistributedSampler; it also reaches persistent workers.

    Its global batches are those of ``stoker.Loader`` with one rank; with several ranks, those of
    ``stoker.Loader`` with the slices of all ranks joined.
    """

    def __init__(
        self,
        source: Any,
        *,
        transform: Callable[[Any], Any] | None = None,
        output: str = "torch",
        threads: int = 1,
        memory: int | str | None = None,
        sandbox: bool = False,
        index: str | os.PathLike[str] = "auto",
        engine: Mapping[str, Any] | None = None,
        dataset: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        for name, advice in _NOT_OURS.items():
            if name in options:
                raise ArgumentError(f"{name}= is not supported here", "MapDataset", advice)
        self._store_arguments(
            "MapDataset",
            source,
            transform=transform,
            engine=({"threads": threads, "memory": memory, "sandbox": sandbox}, engine),
            dataset=({"index": index}, dataset),
            options={"output": output, **options, "tail": "keep", "rank": 0, "world_size": 1},
        )
        if self._mix is not None and self._mix.batches == "single":
            raise ArgumentError(
                "a Mix with batches of one source is not supported",
                "MapDataset",
                "use stoker.Loader",
            )
        Loader(UNOPENED, 1, **self._options)  # raises if options are not valid
        self._turns = Turns()
        self._walk: _Walk | None = None

    @property
    def epoch(self) -> int:
        """The epoch of the items."""
        return self._turns.next[0]

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the items."""
        self._turns.set(count(epoch, "set_epoch", high=2**63 - 1))

    def __len__(self) -> int:
        """Samples of an epoch. Opens the data set for a moment, once."""
        samples = self._turns.samples
        if samples is None:
            options = {**self._options, "quarantine": None}
            with self._opening() as here, here.make(1, options) as loader:
                samples = int(loader._native.samples())
            self._turns.samples = samples
        return samples

    def __getitem__(self, index: int) -> Any:
        number = index.__index__()
        if number < 0:
            number += len(self)
        if not 0 <= number < len(self):
            raise IndexError(f"position {index} of {len(self)}")
        return self.__getitems__([number])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """The samples at these positions; a DataLoader calls it for a batch."""
        here = opened(self, _workers()[1])
        walk = self._walk
        if self._here is not here or walk is None:
            self._here, walk = here, _Walk(self, here)
            self._walk = walk
        rows = walk.batch(self.epoch, [index.__index__() for index in indices])
        return [self._transformed(row) for row in rows]

    def close(self) -> None:
        """Closes the data set in this process; it is open here only if this process read items
        (``num_workers=0``)."""
        self._walk = None
        super().close()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_walk": None}


def _workers() -> tuple[int, int]:
    info = torch.utils.data.get_worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)


class _Walk:
    """The reader of one process: a loader at the position where the next batch probably begins.

    A DataLoader's worker receives one batch in each round of all workers and ranks. So the loader
    prefetches every n-th batch. If another position is requested, the loader continues there, and
    uses the observed distance as n.
    """

    def __init__(self, source: MapDataset, here: Here) -> None:
        self._source, self._here = source, here
        self._samples = 0
        self._loader: Loader | None = None  # makes every _stride-th batch of _size samples
        self._size = self._stride = 0
        self._guess = _workers()[1] * ranks(None, None)[1]
        self._before: Run | None = None
        self._scattered = 0

    def batch(self, epoch: int, indices: list[int]) -> list[Any]:
        runs = _runs(indices)
        even = len({b - a for a, b in zip(indices, indices[1:], strict=False)}) <= 1
        self._scattered = self._scattered + 1 if len(runs) > 1 and not even else 0
        if self._scattered >= _SCATTERED_MAX:
            raise StateError(
                f"positions are requested in random order: {indices[:4]} ...",
                "MapDataset",
                "its order is already shuffled: pass shuffle=False to the DataLoader, or "
                'train_sampling_strategy="sequential" to the Trainer',
            )
        rows: list[Any] = []
        for first, end in runs:
            is_single = len(runs) == 1
            while first < end:  # a batch of the loader may end at the end of the epoch
                made = self._run(epoch, first, end) if is_single else self._alone(epoch, first, end)
                rows += made
                first += len(made)
        return rows

    def _run(self, epoch: int, first: int, end: int) -> list[Any]:
        size = end - first
        before, self._before = self._before, (epoch, first, end)
        loader = self._loader
        is_next = loader is not None and loader._native.position() == (epoch, first)
        if not is_next or loader is None or size > self._size:
            stride = self._distance(before, epoch, first, size)
            if loader is None or (size, stride) != (self._size, self._stride):
                if loader is not None and first + size == self._samples:
                    return self._alone(epoch, first, end)  # the short end of the epoch
                if loader is not None:
                    loader.close()
                self._size, self._stride = size, stride
                loader = self._loader = self._open(size, stride)
            self._go(loader, epoch, first)
        elif size < self._size and first + size != self._samples:
            return self._alone(epoch, first, end)
        return self._made(loader, epoch, first)

    def _distance(self, before: Run | None, epoch: int, first: int, size: int) -> int:
        """The distance from one batch to the next, in batches: the last observed one, or the one
        expected from ranks and workers."""
        if before is not None and before[0] == epoch and before[2] - before[1] == size:
            seen, odd = divmod(first - before[1], size)
            if seen > 0 and not odd:
                self._guess = seen
        return self._guess

    def _alone(self, epoch: int, first: int, end: int) -> list[Any]:
        """Makes positions that are probably not followed by others."""
        with self._open(end - first, max(1, self._samples)) as loader:
            self._go(loader, epoch, first)
            return self._made(loader, epoch, first)

    def _open(self, size: int, stride: int) -> Loader:
        options = dict(self._source._options)
        worker, workers = _workers()
        if workers > 1 and options.get("quarantine") is not None:
            options["quarantine"] = f"{os.fspath(options['quarantine'])}.worker{worker}"
        stride = min(stride, 2**32 - 1)
        loader = self._here.make(size, {**options, "worker": 0, "worker_count": stride})
        self._samples = int(loader._native.samples())
        return loader

    def _go(self, loader: Loader, epoch: int, first: int) -> None:
        if not 0 <= first < self._samples:
            raise IndexError(f"position {first} of {self._samples}")
        native = loader._native
        if native.position() != (epoch, first):
            native.set_epoch(epoch)
            state = list(native.state())
            state[POSITION] += first
            native.set_state(tuple(state))

    def _made(self, loader: Loader, epoch: int, first: int) -> list[Any]:
        value, _ = loader._produce()
        named = isinstance(value, dict)
        columns = [items_of(column) for column in (value.values() if named else value)]
        rows: list[Any] = []
        for slot in range(len(columns[0])):
            values = [column[slot] for column in columns]
            row: Any = dict(zip(value, values, strict=True)) if named else tuple(values)
            for name in self._source._seeds:
                row[name] = seed_of(loader.seed, epoch, first + slot)
            rows.append(row)
        return rows


def _runs(indices: list[int]) -> list[tuple[int, int]]:
    """Splits numbers into runs of consecutive ones: (first, end)."""
    runs: list[tuple[int, int]] = []
    for index in indices:
        if runs and runs[-1][1] == index:
            runs[-1] = (runs[-1][0], index + 1)
        else:
            runs.append((index, index + 1))
    return runs
