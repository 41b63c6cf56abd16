"""IterableDataset: a rank's samples, divided among the workers of a DataLoader."""

from __future__ import annotations

import multiprocessing.context
import os
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from typing import Any

import torch.utils.data

from .._options import count
from ..distributed import ranks, sharing
from ..errors import ArgumentError, StateError
from ..fields import all_exact
from ..loader import UNOPENED, Loader
from ..mix import Mix
from ..notices import warn_once
from ..state import POSITION, exactness, state_values
from .workers import (
    Here,
    Source,
    Turns,
    adopt_order,
    items_of,
    length_of,
    opened,
    order_of,
    seed_of,
)

__all__ = ["IterableDataset"]


class IterableDataset(Source, torch.utils.data.IterableDataset[Any]):
    """The samples of this rank, decoded and augmented, divided among a DataLoader's workers.

    Each worker opens the data at its first sample, with an engine of one thread; only paths and
    options are sent to it. Workers take turns by complete batches, as the DataLoader expects: if
    its ``batch_size`` is also passed here, it returns exactly the batches of ``stoker.Loader(...)``
    in the same order, for any number of workers; and each sample occurs once in an epoch over all
    ranks and workers, apart from what ``tail`` drops.

    Accelerate's ``prepare()``, and Hugging Face's Trainer for its ``train_dataset``, divide the
    samples of an iterable data set among ranks themselves, and resume by reading and skipping. The
    data set detects this, and returns the samples of all ranks; each occurs once.
    :class:`MapDataset` suits them better: ranks read only their own samples, and skip at no cost.

    With torchdata's ``StatefulDataLoader``, ``state_dict()`` is exact: batches that workers had
    prefetched, but the loop had not received, are returned again.

    Args:
        source: a class folder, a tar, a glob, braces, or a list of them; or a
            :class:`stoker.Mix` (see :meth:`set_weights`).
        batch_size: the DataLoader's batch size (1 for a DataLoader with ``batch_size=None``). With
            another one each sample also occurs once, but in another order: a warning says so,
            unless it is 1.
        transform: called with each sample in the worker; the loop receives its result. With
            spawned workers it must be picklable.
        output: type of images and arrays: ``"torch"`` or ``"numpy"``.
        rank, world_size: default: torch.distributed if it is initialised, else the environment's
            RANK and WORLD_SIZE, else 0 of 1; read when workers are started.
        threads, memory, sandbox: of each worker's engine. Default: 1 thread; the machine's memory
            share divided by the number of workers.
        index: see :class:`stoker.Dataset`; with an index file workers read no headers.
        engine, dataset: more options of each worker's :class:`stoker.Engine` and
            :class:`stoker.Dataset`, as dicts.
        **options: those of :class:`stoker.Loader`, with its defaults: ``seed``, ``image`` or
            ``fields``, ``shuffle``, ``tail``, ``dtype``, ``layout``, ``on_error``, ``window`` ...
            ``quarantine`` is one file for each worker: ``PATH.workerN`` (``.rankM``), and limits
            apply to one worker.

    A sample is a dict with the names of ``fields``, or a pair (image, label). Images, masks and
    arrays are tensors; numbers, text, bytes and JSON are Python objects; ``Boxes`` with labels are
    pairs (boxes, labels). Values of different lengths need a ``collate_fn``. Besides the Loader's
    words ``"__key__"``, ``"__id__"`` and ``"__mask__"`` there is ``"__seed__"``: a number drawn
    from (seed, epoch, position) to seed random Python code, so that its results are the same after
    a resume and with any number of workers.

    Each loop over the DataLoader is the next epoch, also if the last loop stopped early;
    :meth:`set_epoch` sets it. It also reaches persistent workers.

    Attributes:
        batch_size, rank, world_size: as passed; rank and world_size None: found when needed.
    """

    def __init__(
        self,
        source: Any,
        batch_size: int,
        *,
        transform: Callable[[Any], Any] | None = None,
        output: str = "torch",
        rank: int | None = None,
        world_size: int | None = None,
        threads: int = 1,
        memory: int | str | None = None,
        sandbox: bool = False,
        index: str | os.PathLike[str] = "auto",
        engine: Mapping[str, Any] | None = None,
        dataset: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.batch_size, self.rank, self.world_size = batch_size, rank, world_size
        self._store_arguments(
            "IterableDataset",
            source,
            transform=transform,
            engine=({"threads": threads, "memory": memory, "sandbox": sandbox}, engine),
            dataset=({"index": index}, dataset),
            options={"output": output, **options},
        )
        # Raises here if options are not valid, not later in a worker.
        Loader(UNOPENED, batch_size, rank=rank, world_size=world_size, **self._options)
        self._found: tuple[int, int] | None = None
        self._turns = Turns()

    # ---- used by the training loop ----

    @property
    def epoch(self) -> int:
        """The epoch of the next loop."""
        return self._turns.next[0]

    def set_epoch(self, epoch: int, batches_done: int = 0) -> None:
        """Sets the epoch of the next loop; each loop after it has the next epoch.

        Args:
            batches_done: number of batches of that epoch to skip: a resumed run continues after
                them, with any DataLoader and any number of workers.

        A loop after ``StatefulDataLoader.load_state_dict`` has the rest of the state's epoch,
        regardless of this call.
        """
        where = "set_epoch"
        self._turns.set(
            count(epoch, where, high=2**63 - 1), count(batches_done, f"{where} batches_done")
        )

    def set_weights(self, weights: Sequence[Any], at: int | None = None) -> int:
        """Changes the weights of a :class:`stoker.Mix` that repeats: from the next epoch on, or
        from a position of the run. Call it in the process of the loop, also during a loop.

        Workers run ahead of the loop, by a distance that depends on time. To keep runs
        reproducible, all ranks must pass the same position, and it never depends on the progress of
        workers: before each batch they check for changes, and a change at a position that a worker
        has already begun is rejected.

        A state in a batch that was made before this call does not contain the change. So save
        :attr:`changes` with the state, and pass them to the Mix of the resumed run.

        Args:
            at: a position of the run, in samples of all ranks; the weights apply from the end of
                its frame.

        Returns:
            The position from which they apply. Samples before it do not change.

        Raises:
            StateError: a worker of this rank is already past the position: use a later one.
        """
        where, mix = "set_weights", self._mixing("set_weights")
        if mix.end != "repeat":
            raise ArgumentError(
                f"the weights of a Mix with end={mix.end!r} cannot change",
                where,
                "pass changes= to the Mix",
            )
        mix._numbers(weights, "weights")
        place = None if at is None else count(at, f"{where} at", high=2**62)
        with self._opening() as here, self._turns.mixing(here.mixed) as shared:
            with here.make(self.batch_size, self._all_options(quarantine=None)) as loader:
                adopt_order(loader, shared["order"])
                if place is None:
                    place = self._next_epoch(loader, int(shared["next"]))
                position = int(loader._native.mix_change_position(place))
            if position < shared["horizon"]:
                raise StateError(
                    f"weights cannot change at position {place}",
                    where,
                    f"what workers have begun stays: they can change at {shared['horizon']}, or "
                    "later; take the same position on all ranks",
                )
            here.mixed.change(position, weights)
        return position

    @property
    def changes(self) -> list[tuple[int, list[int]]]:
        """All changes of the weights of a :class:`stoker.Mix`, passed to it or set since, in the
        form of its ``changes=``."""
        self._mixing("changes")
        with self._opening() as here, self._turns.mixing(here.mixed):
            return here.mixed.changes()

    def _mixing(self, where: str) -> Mix:
        if self._mix is None:
            raise ArgumentError(
                "the source is not a Mix", where, "pass a Mix as the source of the IterableDataset"
            )
        return self._mix

    def _all_options(self, **more: Any) -> dict[str, Any]:
        rank, world, _ = self._share()
        return {**self._options, "rank": rank, "world_size": world, **more}

    def _next_epoch(self, loader: Loader, epoch: int) -> int:
        """Start of the epoch in the run, and the samples that a wrapped step before it may use."""
        step = self.batch_size * loader.world_size if self._tail == "wrap" else 0
        return epoch * int(loader._native.samples()) + step

    def __len__(self) -> int:
        """Samples of the next epoch for this rank; ``len(DataLoader)`` is its number of batches.

        If no worker has reported it yet, the data set is opened for a moment.
        """
        rank, world, batch = self._share()
        samples = self._turns.samples
        if samples is None:
            with self._opening() as here:
                options = self._all_options(quarantine=None)
                samples = here.samples(batch, options, self._turns)
            self._turns.samples = samples
        epoch, done = self._turns.next
        length = length_of(samples, batch, rank, world, self._tail, epoch)
        return max(0, length - done * self.batch_size)

    @property
    def _tail(self) -> str:
        return str(self._options.get("tail", "drop"))

    def _share(self) -> tuple[int, int, int]:
        """(rank, world size, samples of a batch) of the samples to return."""
        shared = sharing()
        if shared.processes <= 1:
            return *(self._found or ranks(self.rank, self.world_size)), self.batch_size
        if self.rank is not None and (self.rank, self.world_size) != (0, 1):
            raise ArgumentError(
                f"rank {self.rank} of {self.world_size}, whose samples Accelerate will "
                "share among ranks again",
                "IterableDataset",
                "leave rank= and world_size= out, or do not prepare() the DataLoader",
            )
        return 0, 1, self.batch_size * shared.batches

    # ---- used by a worker ----

    def __iter__(self) -> Samples:
        info = torch.utils.data.get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        here = self._here = opened(self, workers)
        options = self._all_options(worker=worker, worker_count=workers)
        if info is not None and options.get("quarantine") is not None:
            options["quarantine"] = f"{os.fspath(options['quarantine'])}.worker{worker}"
        batch = self._share()[2]
        samples = here.samples(batch, options, self._turns)
        number = None if info is None else info.seed - info.id
        turn = self._turns.take(number, worker, samples, here.dataset.identity)
        epoch, done = turn  # done: batches of the loop, of all processes that share a step
        done *= self.batch_size * options["world_size"] * sharing().step
        return Samples(self, here, (batch, options), epoch, done)

    def __getstate__(self) -> dict[str, Any]:
        state = {**self.__dict__, "_here": None}
        if multiprocessing.context.get_spawning_popen() is not None:
            state["_found"] = self._share()[:2]  # a spawned worker cannot use torch.distributed
        return state


def _check_batch_size(caller: types.FrameType, own: int) -> None:
    """Warns if the DataLoader that asks for samples makes batches of another size."""
    index = caller.f_locals.get("possibly_batched_index")  # of torch's _IterableDatasetFetcher
    if caller.f_code.co_name != "fetch" or not isinstance(index, Sized) or own == 1:
        return
    if getattr(caller.f_locals.get("self"), "auto_collation", False) and len(index) != own:
        warn_once(
            f"the DataLoader makes batches of {len(index)} samples, but the IterableDataset has "
            f"batch_size={own}: the order is not that of stoker.Loader, and workers take turns by "
            "other batches; pass the same batch_size to both"
        )


class Samples(Iterator[Any]):
    """One epoch of one worker, sample by sample, with torchdata's methods for its state."""

    def __init__(
        self,
        dataset: IterableDataset,
        here: Here,
        share: tuple[int, dict[str, Any]],
        epoch: int,
        done: int,
    ) -> None:
        """share: samples of a batch, and the loader's options. done: number of samples to skip."""
        self._dataset, self._here = dataset, here
        self._batch, self._options = share
        self._checked = False  # the DataLoader's batch size
        self._loader: Loader | None = here.take(*share)
        self._agreed = -1  # number of shared changes that the loader's Mix has
        self._mix: dict[str, Any] = {}
        self._agree(False)
        adopt_order(self._loader, dataset._turns.order)
        native = self._loader._native
        native.set_epoch(epoch)
        if done > 0:
            state = list(native.state())
            state[POSITION] += done
            state[POSITION] = min(state[POSITION], native.samples())  # the end
            native.set_state(tuple(state))
        self._samples = native.samples()
        self._stand(native.position(), 0)

    def _stand(self, place: tuple[int, int], skip: int) -> None:
        """Drops the present batch; the next one begins at the position, without `skip` samples."""
        self._before = self._after = place  # positions before and after the present batch
        self._columns: list[Any] = []
        self._names: tuple[str, ...] | None = None
        self._slot = self._slots = 0
        self._skip, self._ended = skip, False
        self._last: tuple[Any, ...] = ()  # the state at the end

    def __iter__(self) -> Samples:
        return self

    def __next__(self) -> Any:
        if not self._checked:
            self._checked = True
            _check_batch_size(sys._getframe(1), self._dataset.batch_size)
        while self._slot >= self._slots:
            if self._ended or not self._fetch():
                raise StopIteration
        slot = self._slot
        self._slot += 1
        value = self._row(slot)
        return self._dataset._transformed(value)

    def _agree(self, is_next: bool) -> None:
        """Sets the present weights in the loader. is_next: a batch will be made now, so its weights
        cannot change any more."""
        loader = self._loader
        if loader is None or loader._mixed is None:
            return
        mixed = loader._mixed
        before = mixed.shared_values()
        with self._dataset._turns.mixing(mixed, self._agreed) as shared:
            if mixed.shared_values() != before:
                try:
                    # Before its first batch it stays: blocks may also be those of a longer run.
                    mixed.renew(loader, loader._native.state() if is_next else None)
                except BaseException:
                    mixed.take(before)
                    raise
            if self._agreed != shared["agreed"]:
                self._mix, self._agreed = mixed.values(loader), shared["agreed"]
            if is_next and mixed.mix.end == "repeat":
                shared["horizon"] = max(shared["horizon"], self._border(loader))

    def _border(self, loader: Loader) -> int:
        """The end of the frame in which the next batch ends; 0 without a mix."""
        samples = int(loader._native.samples())
        epoch, first = loader._native.position()
        end = first + loader.batch_size * loader.world_size
        if first >= samples or (end > samples and loader.tail == "drop"):
            return 0
        end = end if loader.tail == "wrap" else min(end, samples)
        return int(loader._native.mix_change_position(epoch * samples + end))

    def _fetch(self) -> bool:
        """Takes the next batch of the loader; False at the end. After an error nothing changed."""
        assert self._loader is not None
        self._agree(True)
        native = self._loader._native
        before = native.position()
        value, _ = self._loader._produce()
        self._columns, self._slot = [], 0
        if value is None:
            self._before = self._after = before
            self._slots, self._ended = 0, True
            self._last = native.state(*before)
            self._here.give(self._loader, self._options)
            self._loader = None
            return False
        self._before, self._after = before, native.position()
        self._names = tuple(value) if isinstance(value, dict) else None
        for column in value.values() if isinstance(value, dict) else value:
            self._columns.append(items_of(column))
        self._slots = len(self._columns[0])
        self._slot, self._skip = self._skip, 0
        return True

    def _row(self, slot: int) -> Any:
        values = [column[slot] for column in self._columns]
        if self._names is None:
            return tuple(values)
        row = dict(zip(self._names, values, strict=True))
        for name in self._dataset._seeds:
            row[name] = self._seed(slot)
        return row

    def _seed(self, slot: int) -> int:
        """63 bits of (seed, epoch, position). Positions count as in the order: a step is cut into
        equal slices for the ranks, and continues after the end of the data set if it is padded or
        wrapped."""
        assert self._loader is not None
        samples, (of, first) = self._samples, self._before
        rank, world = self._options["rank"], self._options["world_size"]
        step = self._batch * world
        tail = self._dataset._tail
        if tail == "keep":
            step = min(step, samples - first)
        place = first + rank * (step // world) + min(rank, step % world) + slot
        epoch = of + (place // samples if tail == "wrap" else 0)
        return seed_of(self._loader.seed, epoch, place % samples)

    # ---- torchdata's protocol ----

    def state_dict(self) -> dict[str, int | str]:
        """The position of this worker, as a dict for JSON, the same on every rank."""
        within = self._slot < self._slots
        state = self._last
        if self._loader is not None:
            state = self._loader._native.state(*(self._before if within else self._after))
        values = state_values(state)
        values["slot"] = self._slot if within else self._skip
        exact = all_exact(self._options.get("fields"), self._options.get("exact", True))
        return {**values, **self._mix, **self._shares(), **exactness(exact)}

    def _shares(self) -> dict[str, int]:
        """The values that determine which positions belong to this worker."""
        options = self._options
        return {
            "batch_size": self._batch,
            "world_size": options["world_size"],
            "worker": options["worker"],
            "worker_count": options["worker_count"],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues at a state.

        Raises:
            StateError: the state belongs to another data set, setting, order version or worker.
        """
        where = "load_state_dict"
        for name, here in self._shares().items():
            there = state.get(name)
            if there != here:
                raise StateError(
                    "the state belongs to another stream",
                    f"{where}: {name} {there} in the state, {here} here",
                    "resume with the same batch_size, number of ranks and number of workers",
                )
        slot = state.get("slot")
        if not isinstance(slot, int) or not 0 <= slot < self._batch:
            raise StateError(
                f"slot {slot!r} is not in a batch", where, "pass what state_dict() returned"
            )
        if self._loader is None:
            self._loader = self._here.take(self._batch, self._options)
        self._load(self._loader, state)
        self._samples = self._loader._native.samples()
        self._stand(self._loader._native.position(), slot)
        self._dataset._turns.set_loaded(int(state["epoch"]) + 1, order_of(self._loader))

    def _load(self, loader: Loader, state: dict[str, Any]) -> None:
        if loader._mixed is None:
            loader.load_state_dict(state)
            return
        with self._dataset._turns.mixing(loader._mixed, self._agreed) as shared:
            loader.load_state_dict(state)
        self._mix, self._agreed = loader._mixed.values(loader), shared["agreed"]
