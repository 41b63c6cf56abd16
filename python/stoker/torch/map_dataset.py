"""MapDataset: an epoch's order as numbered items, for frameworks that share out numbers."""

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
"""Batches one after the other whose numbers neither follow each other nor are evenly spaced."""

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

    It is for frameworks that share out and skip *numbers*: Hugging Face's Trainer takes it as
    ``train_dataset`` and goes on from its checkpoints by itself, at once, with any number of
    processes that divides the global batch; so do Accelerate's ``prepare()`` and
    ``skip_first_batches()``, and StatefulDataLoader::

        arguments = transformers.TrainingArguments(
            ..., train_sampling_strategy="sequential", dataloader_num_workers=4)
        dataset = stoker.torch.MapDataset(
            "train-{000..099}.tar", seed=0,
            fields={"pixel_values": stoker.Image("jpg", [stoker.RandomResizedCrop(224)]),
                    "labels": stoker.Int("cls")})
        trainer = transformers.Trainer(model, arguments, train_dataset=dataset)
        trainer.train(resume_from_checkpoint=True)

    The order is shuffled already, anew in each epoch: so the DataLoader must not shuffle
    (``shuffle=False``; ``train_sampling_strategy="sequential"``). Numbers that come one after the
    other are read ahead, of each worker those of its turns; where they jump, the stream goes there.
    A shuffled sampler would make each sample alone, with the crops of another one's place: that is
    a StateError.

    Args:
        source, transform, output, threads, memory, sandbox, index, engine, dataset: as of
            :class:`IterableDataset`.
        **options: those of :class:`stoker.Loader` that say what samples are and in which order:
            ``seed``, ``image`` or ``fields``, ``shuffle``, ``window``, ``subset``, ``weights`` ...

    :meth:`set_epoch` says which epoch the items are of; Accelerate and the Trainer call it. A loop
    of your own calls it as for a DistributedSampler; workers that persist are told too.

    Its global batches are those of ``stoker.Loader`` with one rank, and of as many ranks as there
    are, whose slices are put together.
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
                raise ArgumentError(f"{name}=", "MapDataset", advice)
        self._keep(
            "MapDataset",
            source,
            transform=transform,
            engine=({"threads": threads, "memory": memory, "sandbox": sandbox}, engine),
            dataset=({"index": index}, dataset),
            options={"output": output, **options, "tail": "keep", "rank": 0, "world_size": 1},
        )
        if self._mix is not None and self._mix.batches == "single":
            raise ArgumentError(
                "a Mix whose batches are of one source", "MapDataset", "take stoker.Loader"
            )
        Loader(UNOPENED, 1, **self._options)  # says what is wrong with the options
        self._turns = Turns()
        self._walk: _Walk | None = None

    @property
    def epoch(self) -> int:
        """The epoch that items are of."""
        return self._turns.next[0]

    def set_epoch(self, epoch: int) -> None:
        """Items are those of this epoch from here on."""
        self._turns.set(count(epoch, "set_epoch", high=2**63 - 1))

    def __len__(self) -> int:
        """Samples of an epoch. The data set is opened for a moment, once."""
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
        """The samples at these positions: what a DataLoader asks for a batch."""
        here = opened(self, _workers()[1])
        walk = self._walk
        if self._here is not here or walk is None:
            self._here, walk = here, _Walk(self, here)
            self._walk = walk
        rows = walk.batch(self.epoch, [index.__index__() for index in indices])
        return [self._transformed(row) for row in rows]

    def close(self) -> None:
        """Lets go of what this process has open: that is something only where items were asked for
        in it (``num_workers=0``)."""
        self._walk = None
        super().close()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_walk": None}


def _workers() -> tuple[int, int]:
    info = torch.utils.data.get_worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)


class _Walk:
    """What one process reads: a loader that stands where the next batch is likely to begin.

    A DataLoader's worker gets the batches of its turns: of each round of all workers and ranks one.
    So the loader makes every so many-th batch, ahead; where that was wrong it goes to the place
    that is asked for, and takes the distance that it saw.
    """

    def __init__(self, source: MapDataset, here: Here) -> None:
        self._source, self._here = source, here
        self._samples = 0
        self._loader: Loader | None = None  # that makes every _stride-th batch of _size
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
                f"positions come at random: {indices[:4]} ...",
                "MapDataset",
                "its order is shuffled already: give the DataLoader shuffle=False, the Trainer "
                'train_sampling_strategy="sequential"',
            )
        rows: list[Any] = []
        for first, end in runs:
            whole = len(runs) == 1
            while first < end:  # a batch of the loader may end at the epoch's end
                made = self._run(epoch, first, end) if whole else self._alone(epoch, first, end)
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
                    return self._alone(epoch, first, end)  # the epoch's short end
                if loader is not None:
                    loader.close()
                self._size, self._stride = size, stride
                loader = self._loader = self._open(size, stride)
            self._go(loader, epoch, first)
        elif size < self._size and first + size != self._samples:
            return self._alone(epoch, first, end)
        return self._made(loader, epoch, first)

    def _distance(self, before: Run | None, epoch: int, first: int, size: int) -> int:
        """From one batch to the next, in batches: as it was last seen, or as ranks and workers let
        expect it."""
        if before is not None and before[0] == epoch and before[2] - before[1] == size:
            seen, odd = divmod(first - before[1], size)
            if seen > 0 and not odd:
                self._guess = seen
        return self._guess

    def _alone(self, epoch: int, first: int, end: int) -> list[Any]:
        """Positions that nothing is known to follow."""
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
    """Numbers as runs of ones that follow each other: first, end."""
    runs: list[tuple[int, int]] = []
    for index in indices:
        if runs and runs[-1][1] == index:
            runs[-1] = (runs[-1][0], index + 1)
        else:
            runs.append((index, index + 1))
    return runs
