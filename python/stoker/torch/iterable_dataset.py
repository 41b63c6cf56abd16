"""IterableDataset: a rank's samples, shared among the workers of a DataLoader."""

from __future__ import annotations

import multiprocessing.context
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch.utils.data

from .._options import count
from ..distributed import ranks, sharing
from ..errors import ArgumentError, Error, StateError
from ..fields import all_exact
from ..loader import UNOPENED, Loader
from ..mix import Mix
from ..state import POSITION, exactness, state_values
from .workers import Here, Source, Turns, items_of, length_of, opened, seed_of

__all__ = ["IterableDataset"]


class IterableDataset(Source, torch.utils.data.IterableDataset[Any]):
    """The samples of this rank, decoded and augmented, shared among a DataLoader's workers.

    Each worker opens the data by itself, at its first sample, with an engine of one thread; what
    is sent to it is paths and options. Workers take turns by whole batches, which is what the
    DataLoader expects: with its ``batch_size`` given here too, it gives exactly the batches of
    ``stoker.Loader(...)``, in its order, whatever the number of workers; and over all ranks and
    workers each sample comes once an epoch, as far as ``tail`` says so.

    Accelerate's ``prepare()``, and Hugging Face's Trainer with its ``train_dataset``, share out
    what a DataLoader of an iterable data set gives by themselves, and skip what a resumed run has
    had by reading it. The data set sees that, and gives them all samples to share; each comes once.
    :class:`MapDataset` is what suits them: ranks read their own samples only, and skip for nothing.

    Under torchdata's ``StatefulDataLoader``, ``state_dict()`` is exact: batches that workers had
    made ahead, but the loop had not got, come again.

    Args:
        source: a class folder, a tar, a glob, braces, or a list of them; or a
            :class:`stoker.Mix` (see :meth:`set_weights`).
        batch_size: the DataLoader's (1 for a DataLoader with ``batch_size=None``).
        transform: called with each sample, in the worker; the loop gets its result. With workers
            that are spawned it must be picklable.
        output: of images and arrays: ``"torch"`` or ``"numpy"``.
        rank, world_size: default: torch.distributed if it is initialised, else the environment's
            RANK and WORLD_SIZE, else 0 of 1; asked when workers are started.
        threads, memory, sandbox: of each worker's engine. Default: 1 thread; the machine's share
            divided by the workers.
        index: as of :class:`stoker.Dataset`; with an index file workers read no headers.
        engine, dataset: more options of each worker's :class:`stoker.Engine` and
            :class:`stoker.Dataset`, as dicts.
        **options: those of :class:`stoker.Loader`, with its defaults: ``seed``, ``image`` or
            ``fields``, ``shuffle``, ``tail``, ``dtype``, ``layout``, ``on_error``, ``window`` ...
            ``quarantine`` is a file for each worker then: ``PATH.workerN`` (``.rankM``), and
            limits are those of one worker.

    A sample is a dict with the names of ``fields``, or a pair (image, label). Images, masks and
    arrays are tensors; numbers, text, bytes and JSON are Python's; ``Boxes`` with labels are a pair
    (boxes, labels). What differs in length needs a ``collate_fn``. Beside the Loader's words
    ``"__key__"``, ``"__id__"`` and ``"__mask__"`` there is ``"__seed__"``: a number drawn from
    (seed, epoch, position), to seed random Python code with, so that it too is the same after a
    resume and with any number of workers.

    Each loop over the DataLoader is the next epoch, also when the last was left in its middle;
    :meth:`set_epoch` says which. Workers that persist are told too.

    Attributes:
        batch_size, rank, world_size: as given; rank and world_size None: found when needed.
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
        self._keep(
            "IterableDataset",
            source,
            transform=transform,
            engine=({"threads": threads, "memory": memory, "sandbox": sandbox}, engine),
            dataset=({"index": index}, dataset),
            options={"output": output, **options},
        )
        # What is wrong with the options is said here, and not by a worker later.
        Loader(UNOPENED, batch_size, rank=rank, world_size=world_size, **self._options)
        self._found: tuple[int, int] | None = None
        self._turns = Turns()

    # ---- what the training loop asks ----

    @property
    def epoch(self) -> int:
        """The epoch that the next loop gives."""
        return self._turns.next[0]

    def set_epoch(self, epoch: int, batches_done: int = 0) -> None:
        """The next loop gives this epoch, and each loop after it the next one.

        Args:
            batches_done: of that epoch, left out from its beginning: a run goes on where it had
                got so many, with any DataLoader and any number of workers.

        A loop that goes on after ``StatefulDataLoader.load_state_dict`` gives the rest of the
        state's epoch whatever was set here.
        """
        where = "set_epoch"
        self._turns.set(
            count(epoch, where, high=2**63 - 1), count(batches_done, f"{where} batches_done")
        )

    def set_weights(self, weights: Sequence[Any], at: int | None = None) -> int:
        """Other weights for a :class:`stoker.Mix` that repeats: from the next epoch on, or from a
        position of the run. Called where the loop is, also while it goes on.

        Workers are ahead of the loop, by as much as they had time for. So that each run has the
        same samples, where the weights change is a number that all ranks know, and never depends on
        how far workers are: they look before each batch whether weights changed, and a change that
        would begin in what one of them has begun is refused.

        A state that a batch brought which was made before this call does not know of it. So save
        :attr:`changes` beside the state, and give them to the Mix of the run that goes on.

        Args:
            at: a position of the run, in samples of all ranks: they hold from the end of its frame.

        Returns:
            The position from which they hold. All before it stays as it was.

        Raises:
            StateError: a worker of this rank is behind it already: take a later one.
        """
        where, mix = "set_weights", self._mixing("set_weights")
        if mix.end != "repeat":
            raise ArgumentError(
                f"weights of a Mix with end={mix.end!r}", where, "give the Mix changes="
            )
        mix._numbers(weights, "weights")
        place = None if at is None else count(at, f"{where} at", high=2**62)
        with self._opening() as here, self._turns.mixing(here.mixed) as shared:
            with here.make(self.batch_size, self._all_options(quarantine=None)) as loader:
                if place is None:
                    place = self._next_epoch(loader, int(shared["next"]))
                position = int(loader._native.mix_change_position(place))
            if position < shared["horizon"]:
                raise StateError(
                    f"weights from position {place} on",
                    where,
                    f"what workers have begun stays: they can change at {shared['horizon']}, or "
                    "later; take the same position on all ranks",
                )
            here.mixed.change(position, weights)
        return position

    @property
    def changes(self) -> list[tuple[int, list[int]]]:
        """All changes of the weights of a :class:`stoker.Mix`, those that were given to it and
        those set since, as its ``changes=`` takes them."""
        self._mixing("changes")
        with self._opening() as here, self._turns.mixing(here.mixed):
            return here.mixed.changes()

    def _mixing(self, where: str) -> Mix:
        if self._mix is None:
            raise ArgumentError("no Mix", where, "give the IterableDataset a Mix as its source")
        return self._mix

    def _all_options(self, **more: Any) -> dict[str, Any]:
        rank, world, _ = self._share()
        return {**self._options, "rank": rank, "world_size": world, **more}

    def _next_epoch(self, loader: Loader, epoch: int) -> int:
        """Where it begins, and what a wrapped step of the one before may take of it."""
        step = self.batch_size * loader.world_size if self._tail == "wrap" else 0
        return epoch * int(loader._native.samples()) + step

    def __len__(self) -> int:
        """Samples of the next epoch for this rank; ``len(DataLoader)`` is its batches.

        Where no worker has told it yet, the data set is opened for a moment.
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
        """The rank whose samples are given, of how many, and the samples of its batches."""
        shared = sharing()
        if shared.processes <= 1:
            return *(self._found or ranks(self.rank, self.world_size)), self.batch_size
        if self.rank is not None and (self.rank, self.world_size) != (0, 1):
            raise ArgumentError(
                f"rank {self.rank} of {self.world_size}, whose samples Accelerate is going to "
                "share out among ranks again",
                "IterableDataset",
                "leave out rank= and world_size=, or do not prepare() the DataLoader",
            )
        return 0, 1, self.batch_size * shared.batches

    # ---- what a worker does ----

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
        epoch, done = turn  # batches of the loop: of all who share a step
        done *= self.batch_size * options["world_size"] * sharing().step
        return Samples(self, here, (batch, options), epoch, done)

    def __getstate__(self) -> dict[str, Any]:
        state = {**self.__dict__, "_here": None}
        if multiprocessing.context.get_spawning_popen() is not None:
            state["_found"] = self._share()[:2]  # a spawned worker has no torch.distributed to ask
        return state


class Samples(Iterator[Any]):
    """One epoch of one worker, sample by sample. It can say where it stands, and go there."""

    def __init__(
        self,
        dataset: IterableDataset,
        here: Here,
        share: tuple[int, dict[str, Any]],
        epoch: int,
        done: int,
    ) -> None:
        """share: samples of a batch, and the loader's options. done: samples that are left out."""
        self._dataset, self._here = dataset, here
        self._batch, self._options = share
        self._loader: Loader | None = here.take(*share)
        self._agreed = -1  # the number of what the loader's Mix was agreed upon
        self._mix: dict[str, Any] = {}
        self._agree(False)
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
        """No batch is in hand; the next one begins at the place, `skip` of its samples given."""
        self._before = self._after = place  # of the loader, around the batch in hand
        self._columns: list[Any] = []
        self._names: tuple[str, ...] | None = None
        self._slot = self._slots = 0
        self._skip, self._ended = skip, False
        self._last: tuple[Any, ...] = ()  # the state at the end

    def __iter__(self) -> Samples:
        return self

    def __next__(self) -> Any:
        while self._slot >= self._slots:
            if self._ended or not self._fetch():
                raise StopIteration
        slot = self._slot
        self._slot += 1
        value = self._row(slot)
        return self._dataset._transformed(value)

    def _agree(self, is_next: bool) -> None:
        """The loader gets the weights that hold now. is_next: a batch is going to be made, so they
        cannot change in it any more."""
        loader = self._loader
        if loader is None or loader._mixed is None:
            return
        mixed = loader._mixed
        before = mixed.told()
        with self._dataset._turns.mixing(mixed, self._agreed) as shared:
            if mixed.told() != before:
                try:
                    # One that has begun nothing goes nowhere: blocks may be a longer run's, too.
                    mixed.renew(loader, loader._native.state() if is_next else None)
                except BaseException:
                    mixed.take(before)
                    raise
            if self._agreed != shared["agreed"]:
                self._mix, self._agreed = mixed.values(loader), shared["agreed"]
            if is_next and mixed.mix.end == "repeat":
                shared["horizon"] = max(shared["horizon"], self._border(loader))

    def _border(self, loader: Loader) -> int:
        """The end of the frame in which the next batch ends; 0 where there is none."""
        samples = int(loader._native.samples())
        epoch, first = loader._native.position()
        end = first + loader.batch_size * loader.world_size
        if first >= samples or (end > samples and loader.tail == "drop"):
            return 0
        end = end if loader.tail == "wrap" else min(end, samples)
        return int(loader._native.mix_change_position(epoch * samples + end))

    def _fetch(self) -> bool:
        """The next batch of the loader; False at the end. A failure leaves all as it was."""
        assert self._loader is not None
        self._agree(True)
        native = self._loader._native
        before = native.position()
        try:
            value, _ = self._loader._produce()
        except Error:
            if native.position() != before:  # found in the batch that it gave
                native.set_state(native.state(*before))
            raise
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
        """63 bits of (seed, epoch, position). Positions are counted as the order does it: a step
        is cut into equal slices for the ranks, and runs on past the data set's end where it is
        padded or wrapped."""
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
        """Where this worker stands: a few numbers, fit for JSON, the same on every rank."""
        within = self._slot < self._slots
        state = self._last
        if self._loader is not None:
            state = self._loader._native.state(*(self._before if within else self._after))
        values = state_values(state)
        values["slot"] = self._slot if within else self._skip
        exact = all_exact(self._options.get("fields"), self._options.get("exact", True))
        return {**values, **self._mix, **self._shares(), **exactness(exact)}

    def _shares(self) -> dict[str, int]:
        """What says which positions are this worker's."""
        options = self._options
        return {
            "batch_size": self._batch,
            "world_size": options["world_size"],
            "worker": options["worker"],
            "worker_count": options["worker_count"],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes to where the state stands.

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
            raise StateError(f"slot {slot!r}", where, "give what state_dict() gave")
        if self._loader is None:
            self._loader = self._here.take(self._batch, self._options)
        self._load(self._loader, state)
        self._samples = self._loader._native.samples()
        self._stand(self._loader._native.position(), slot)
        self._dataset._turns.set(int(state["epoch"]) + 1)

    def _load(self, loader: Loader, state: dict[str, Any]) -> None:
        if loader._mixed is None:
            loader.load_state_dict(state)
            return
        with self._dataset._turns.mixing(loader._mixed, self._agreed) as shared:
            loader.load_state_dict(state)
        self._mix, self._agreed = loader._mixed.values(loader), shared["agreed"]
