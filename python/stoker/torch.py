"""Samples for a ``torch.utils.data.DataLoader`` with workers, for per-sample Python code.

:class:`stoker.Loader` needs no worker processes. Where each sample has to pass through Python code
that takes long (a tokenizer, an augmentation of another library), processes are what keeps several
cores busy; this module puts stoker inside them::

    import stoker
    import stoker.torch
    from torch.utils.data import DataLoader

    def prepare(sample):                     # your Python, one sample at a time
        sample["tokens"] = tokenize(sample.pop("text"))
        return sample

    dataset = stoker.torch.IterableDataset(
        "train-{000..099}.tar", batch_size=64, seed=0, transform=prepare,
        fields={"image": stoker.Image("jpg", [stoker.RandomResizedCrop(224)]),
                "text": stoker.Text("txt")})
    batches = DataLoader(dataset, batch_size=64, num_workers=4)   # or StatefulDataLoader
    for epoch in range(90):
        dataset.set_epoch(epoch)
        for batch in batches:
            ...

This module imports torch; ``import stoker`` does not.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import itertools
import json
import multiprocessing.context
import multiprocessing.reduction
import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch.utils.data

from .dataset import Dataset, Engine, count
from .errors import ArgumentError, ChangedError, Error, StateError
from .loader import UNOPENED, Loader
from .mix import Mix, Mixed
from .output import paths_of
from .ranks import ranks
from .state import STATE_NAMES, state_values

__all__ = ["IterableDataset"]

SEED = "__seed__"
"""The word of a field that is a number of the sample's own, to seed random code with."""

_POSITION = STATE_NAMES.index("position")
_OUTPUTS = ("torch", "numpy")
_NOT_HERE = {
    "pin_memory": "give pin_memory to the DataLoader",
    "refresh": "each loop whose workers are new sees the data that are there then",
    "worker": "the DataLoader numbers its workers",
    "worker_count": "the DataLoader numbers its workers",
}


class IterableDataset(torch.utils.data.IterableDataset[Any]):
    """The samples of this rank, decoded and augmented, shared among a DataLoader's workers.

    Each worker opens the data by itself, at its first sample, with an engine of one thread; what
    is sent to it is paths and options. Workers take turns by whole batches, which is what the
    DataLoader expects: with its ``batch_size`` given here too, it gives exactly the batches of
    ``stoker.Loader(...)``, in its order, whatever the number of workers; and over all ranks and
    workers each sample comes once an epoch, as far as ``tail`` says so.

    Accelerate's ``prepare()``, and Hugging Face's Trainer with its ``train_dataset``, share out
    what a DataLoader gives by themselves: give ``rank=0, world_size=1`` there.

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
        where = "IterableDataset"
        for name, advice in _NOT_HERE.items():
            if name in options:
                raise ArgumentError(f"{name}=", where, advice)
        if output not in _OUTPUTS:
            raise ArgumentError(f"output {output!r}", where, f"give one of {', '.join(_OUTPUTS)}")
        if transform is not None and not callable(transform):
            raise ArgumentError(
                f"transform {transform!r} cannot be called", where, "give a function of one sample"
            )
        if isinstance(source, Dataset):
            raise ArgumentError(
                "an opened stoker.Dataset", where, "give its paths: each worker opens them"
            )
        for name, given in (("engine", engine), ("dataset", dataset)):
            if given is not None and not isinstance(given, Mapping):
                raise ArgumentError(
                    f"{name} {given!r}", where, "give its options as a dict: each worker opens one"
                )
        self.batch_size, self.rank, self.world_size = batch_size, rank, world_size
        self._mix = source if isinstance(source, Mix) else None
        self._paths = tuple(paths_of(source) if self._mix is None else self._mix.urls())
        self._transform = transform
        self._engine = {"threads": threads, "memory": memory, "sandbox": sandbox, **(engine or {})}
        self._dataset = {"index": index, **(dataset or {})}
        self._options = {"output": output, **options}
        fields = options.get("fields")
        self._seeds: tuple[str, ...] = ()
        if isinstance(fields, dict):
            self._seeds = tuple(name for name, field in fields.items() if field == SEED)
            self._options["fields"] = {k: v for k, v in fields.items() if k not in self._seeds}
        # What is wrong with the options is said here, and not by a worker later.
        Loader(UNOPENED, batch_size, rank=rank, world_size=world_size, **self._options)
        self._found: tuple[int, int] | None = None
        self._turns = _Turns()
        self._here: _Here | None = None

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
                position = int(loader._native.mix_border(place))
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
        rank, world = self._ranks()
        return {**self._options, "rank": rank, "world_size": world, **more}

    def _next_epoch(self, loader: Loader, epoch: int) -> int:
        """Where it begins, and what a wrapped step of the one before may take of it."""
        step = self.batch_size * loader.world_size if self._tail == "wrap" else 0
        return epoch * int(loader._native.samples()) + step

    @contextlib.contextmanager
    def _opening(self) -> Iterator[_Here]:
        """What this process has open, or opens for a moment."""
        here = _opened(self, 1)
        try:
            yield here
        finally:
            if here is not self._here:
                here.close()

    def __len__(self) -> int:
        """Samples of the next epoch for this rank; ``len(DataLoader)`` is its batches.

        Where no worker has told it yet, the data set is opened for a moment.
        """
        rank, world = self._ranks()
        samples = self._turns.samples
        if samples is None:
            with self._opening() as here:
                samples = here.samples(self.batch_size * world, self._turns)
            self._turns.samples = samples
        epoch, done = self._turns.next
        length = _length(samples, self.batch_size, rank, world, self._tail, epoch)
        return max(0, length - done * self.batch_size)

    @property
    def _tail(self) -> str:
        return str(self._options.get("tail", "drop"))

    def _ranks(self) -> tuple[int, int]:
        return self._found or ranks(self.rank, self.world_size)

    def close(self) -> None:
        """Lets go of what this process has open: that is something only where it iterated itself
        (``num_workers=0``)."""
        if self._here is not None and self._here.pid == os.getpid():
            self._here.close()
        self._here = None

    # ---- what a worker does ----

    def __iter__(self) -> Samples:
        info = torch.utils.data.get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        rank, world = self._ranks()
        here = self._here = _opened(self, workers)
        samples = here.samples(self.batch_size * world, self._turns)
        number = None if info is None else info.seed - info.id
        turn = self._turns.take(number, worker, samples, here.dataset.identity)
        options = self._all_options(worker=worker, worker_count=workers)
        if info is not None and options.get("quarantine") is not None:
            options["quarantine"] = f"{os.fspath(options['quarantine'])}.worker{worker}"
        return Samples(self, here, options, *turn)

    def __getstate__(self) -> dict[str, Any]:
        state = {**self.__dict__, "_here": None}
        if multiprocessing.context.get_spawning_popen() is not None:
            state["_found"] = self._ranks()  # a spawned worker has no torch.distributed to ask
        return state

    def __repr__(self) -> str:
        paths = ", ".join(repr(os.fsdecode(path)) for path in self._paths)
        return f"<stoker.torch.IterableDataset of {paths}, batches of {self.batch_size}>"


class Samples(Iterator[Any]):
    """One epoch of one worker, sample by sample. It can say where it stands, and go there."""

    def __init__(
        self, dataset: IterableDataset, here: _Here, options: dict[str, Any], epoch: int, done: int
    ) -> None:
        self._dataset, self._here, self._options = dataset, here, options
        self._loader: Loader | None = here.take(dataset.batch_size, options)
        self._agreed = -1  # the number of what the loader's Mix was agreed upon
        self._mix: dict[str, Any] = {}
        self._agree(False)
        native = self._loader._native
        native.set_epoch(epoch)
        if done > 0:
            state = list(native.state())
            state[_POSITION] += done * dataset.batch_size * options["world_size"]
            state[_POSITION] = min(state[_POSITION], native.samples())  # the end
            native.set_state(tuple(state))
        self._samples = native.samples()
        self._stand(native.place(), 0)

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
        transform = self._dataset._transform
        if transform is None:
            return value
        try:
            return transform(value)
        except StopIteration as error:  # to the DataLoader it would be the epoch's end
            raise RuntimeError("transform raised StopIteration") from error

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
                    mixed.renew(loader, loader._native.state())
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
        epoch, first = loader._native.place()
        end = first + loader.batch_size * loader.world_size
        if first >= samples or (end > samples and loader.tail == "drop"):
            return 0
        end = end if loader.tail == "wrap" else min(end, samples)
        return int(loader._native.mix_border(epoch * samples + end))

    def _fetch(self) -> bool:
        """The next batch of the loader; False at the end. A failure leaves all as it was."""
        assert self._loader is not None
        self._agree(True)
        native = self._loader._native
        before = native.place()
        try:
            value, _ = self._loader._produce()
        except Error:
            if native.place() != before:  # found in the batch that it gave
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
        self._before, self._after = before, native.place()
        self._names = tuple(value) if isinstance(value, dict) else None
        for column in value.values() if isinstance(value, dict) else value:
            self._columns.append(_items(column))
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
        step = self._dataset.batch_size * world
        tail = self._dataset._tail
        if tail == "keep":
            step = min(step, samples - first)
        place = first + rank * (step // world) + min(rank, step % world) + slot
        epoch = of + (place // samples if tail == "wrap" else 0)
        numbers = struct.pack("<QQQ", self._loader.seed, epoch % 2**64, place % samples)
        digest = hashlib.blake2b(numbers, digest_size=8, person=b"stoker.seed").digest()
        return int.from_bytes(digest, "little") >> 1

    # ---- torchdata's protocol ----

    def state_dict(self) -> dict[str, int | str]:
        """Where this worker stands: a few numbers, fit for JSON, the same on every rank."""
        within = self._slot < self._slots
        state = self._last
        if self._loader is not None:
            state = self._loader._native.state(*(self._before if within else self._after))
        values = state_values(state)
        values["slot"] = self._slot if within else self._skip
        return {**values, **self._mix, **self._shares()}

    def _shares(self) -> dict[str, int]:
        """What says which positions are this worker's."""
        options = self._options
        return {
            "batch_size": self._dataset.batch_size,
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
        if not isinstance(slot, int) or not 0 <= slot < self._dataset.batch_size:
            raise StateError(f"slot {slot!r}", where, "give what state_dict() gave")
        if self._loader is None:
            self._loader = self._here.take(self._dataset.batch_size, self._options)
        self._load(self._loader, state)
        self._samples = self._loader._native.samples()
        self._stand(self._loader._native.place(), slot)
        self._dataset._turns.set(int(state["epoch"]) + 1)

    def _load(self, loader: Loader, state: dict[str, Any]) -> None:
        if loader._mixed is None:
            loader.load_state_dict(state)
            return
        with self._dataset._turns.mixing(loader._mixed, self._agreed) as shared:
            loader.load_state_dict(state)
        self._mix, self._agreed = loader._mixed.values(loader), shared["agreed"]


def _items(column: Any) -> Any:
    """A field of a batch as something that gives each sample's value by its index."""
    if getattr(column, "ndim", 0) > 1:  # a tensor: views of it
        return column
    if hasattr(column, "offsets") and hasattr(column, "sides"):  # ragged: views, with their labels
        labels = column.labels
        return column if labels is None else list(zip(column, labels, strict=True))
    if hasattr(column, "tolist"):  # numbers and bytes as Python has them
        return column.tolist()
    return column


def _length(samples: int, batch: int, rank: int, world: int, tail: str, epoch: int) -> int:
    """Samples of an epoch for a rank: src/order/partition.c says how epochs are cut."""
    step = batch * world
    if tail == "drop":
        return samples // step * batch
    if tail == "keep":
        rest = samples % step
        return samples // step * batch + rest // world + (rank < rest % world)
    first = -(epoch * samples) % step if tail == "wrap" else 0
    return max(0, -((first - samples) // step)) * batch


class _Here:
    """What one process has open: an engine, the data set, and loaders between two epochs."""

    def __init__(self, dataset: IterableDataset, workers: int) -> None:
        self.pid = os.getpid()
        options = dict(dataset._engine)
        if options["memory"] is None and workers > 1:
            with Engine(**options) as whole:
                options["memory"] = max(1, whole.info()["memory_bytes_max"] // workers)
        self.engine = Engine(**options)
        try:
            self.dataset = Dataset(list(dataset._paths), engine=self.engine, **dataset._dataset)
        except BaseException:
            self.engine.close()
            raise
        self._mixed: Mixed | None = None
        if dataset._mix is not None:
            self._mixed = Mixed.of(dataset._mix, self.dataset)
        self._free: list[tuple[dict[str, Any], Loader]] = []

    def take(self, batch_size: int, options: dict[str, Any]) -> Loader:
        """A loader of these options: one that an earlier epoch has ended with, which reads ahead
        already, or a new one."""
        for place, (of, loader) in enumerate(self._free):
            if of == options:
                del self._free[place]
                return loader
        return self.make(batch_size, options)

    def make(self, batch_size: int, options: dict[str, Any]) -> Loader:
        return Loader(self._mixed or self.dataset, batch_size, **options)

    @property
    def mixed(self) -> Mixed:
        assert self._mixed is not None
        return self._mixed

    def samples(self, step: int, turns: _Turns) -> int:
        """Of an epoch, over all ranks. step: samples of a global batch."""
        if self._mixed is None:
            return len(self.dataset)
        with turns.mixing(self._mixed):
            return self._mixed.samples(step)

    def give(self, loader: Loader, options: dict[str, Any]) -> None:
        if not self._free:
            self._free.append((options, loader))
        else:
            loader.close()

    def close(self) -> None:
        for _, loader in self._free:
            loader.close()
        self._free.clear()
        self.dataset.close()
        self.engine.close()


def _opened(dataset: IterableDataset, workers: int) -> _Here:
    """What this process has open: never what its parent had, whose threads are not here."""
    here = dataset._here
    return here if here is not None and here.pid == os.getpid() else _Here(dataset, workers)


class _Turns:
    """Which epoch comes next, agreed upon by the processes that share a data set.

    A DataLoader gives each loop a number, its base seed, which all its workers know; workers that
    persist keep it for all loops. So the n-th time that a worker begins under a number is the n-th
    loop of it, for every worker, whoever comes first. A few hundred bytes of JSON in a memfd, which
    children inherit or are sent; a copy made otherwise (pickle, copy) stands apart.
    """

    LOOPS_MAX = 16  # remembered

    def __init__(self, content: bytes | None = None, fd: int | None = None) -> None:
        self._fd = os.memfd_create("stoker-epochs") if fd is None else fd
        if fd is None:
            first: dict[str, Any] = {"next": 0, "done": 0, "samples": None, "loops": []}
            first.update(mix=None, agreed=0, horizon=0)
            os.pwrite(self._fd, content or json.dumps(first).encode(), 0)

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError, OSError):
            os.close(self._fd)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[dict[str, Any]]:
        """What is agreed upon, to be read and changed. An exception leaves it as it was."""
        # Opened anew, since a lock belongs to what one open() gave, which children inherit.
        with open(f"/proc/self/fd/{self._fd}", "r+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            # Behind the text may be the rest of a longer one, where a writer was killed.
            shared, _ = json.JSONDecoder().raw_decode(file.readall().decode())
            yield shared
            text = json.dumps(shared).encode()
            file.seek(0)
            file.write(text)
            file.truncate(len(text))

    @contextlib.contextmanager
    def mixing(self, mixed: Mixed, agreed: int = -1) -> Iterator[dict[str, Any]]:
        """Inside, the mix has the weights that all processes agreed upon, and behind it, they have
        what it has then. agreed: the number of the agreement that the mix has already.

        ``mix`` is what :meth:`Mixed.told` tells, ``agreed`` counts its changes, and before
        ``horizon``, a position of the run, weights cannot change any more.
        """
        with self._locked() as shared:
            if shared["mix"] is not None and shared["agreed"] != agreed:
                mixed.take(shared["mix"])
            before = mixed.told()
            yield shared
            if mixed.told() != before:
                _check_told(before, mixed.told(), shared["horizon"])
                shared.update(mix=mixed.told(), agreed=shared["agreed"] + 1)

    @property
    def next(self) -> tuple[int, int]:
        """The next epoch, and its batches that are left out."""
        with self._locked() as shared:
            return int(shared["next"]), int(shared["done"])

    def set(self, epoch: int, done: int = 0) -> None:
        with self._locked() as shared:
            shared["next"], shared["done"] = epoch, done

    @property
    def samples(self) -> int | None:
        """Of an epoch, when the data set was last opened."""
        with self._locked() as shared:
            return None if shared["samples"] is None else int(shared["samples"])

    @samples.setter
    def samples(self, samples: int) -> None:
        with self._locked() as shared:
            shared["samples"] = samples

    def take(self, number: int | None, worker: int, samples: int, identity: str) -> tuple[int, int]:
        """The epoch of the loop that a worker begins, and its batches that are left out. number
        None: no worker, a loop of its own."""
        with self._locked() as shared:
            shared["samples"] = samples
            begun = (it for it in shared["loops"] if it["number"] == number)
            mine = next((it for it in begun if worker not in it["workers"]), None)
            if mine is None:
                mine = {"number": number, "epoch": shared["next"], "done": shared["done"]}
                mine.update(workers=[], identity=identity)
                shared.update(next=shared["next"] + 1, done=0)
                if number is not None:
                    shared["loops"] = [*shared["loops"], mine][-self.LOOPS_MAX :]
            if mine["identity"] != identity:
                raise ChangedError(
                    "the workers of one loop see different data",
                    f"worker {worker}",
                    "let the data set be while a loop starts; begin the loop anew",
                )
            mine["workers"].append(worker)
            return int(mine["epoch"]), int(mine["done"])

    def __reduce__(self) -> tuple[Any, ...]:
        if multiprocessing.context.get_spawning_popen() is not None:
            return _adopted, (multiprocessing.reduction.DupFd(self._fd),)
        with self._locked() as shared:
            return _Turns, (json.dumps(shared).encode(),)


def _check_told(before: dict[str, Any], after: dict[str, Any], horizon: int) -> None:
    """Nothing changes in what workers have begun."""
    histories = before["history"], after["history"]
    both = itertools.zip_longest(*histories, fillvalue=None)
    differ = [min(it[0] for it in pair if it) for pair in both if pair[0] != pair[1]]
    is_same = all(before[name] == after[name] for name in ("epoch", "block_samples"))
    if horizon > 0 and (not is_same or any(position < horizon for position in differ)):
        raise StateError(
            "the state has another history of weights than what workers have begun",
            f"load_state_dict: other weights before {horizon}",
            "load a state before the first loop over the data set",
        )


def _adopted(fd: Any) -> _Turns:
    return _Turns(fd=fd.detach())
