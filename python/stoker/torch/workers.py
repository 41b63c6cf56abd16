"""The open objects of a DataLoader's processes, and their shared state. Imports no torch."""

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

from .. import _stoker
from .._options import paths_of
from ..dataset import Dataset
from ..engine import Engine
from ..errors import ArgumentError, ChangedError, StateError
from ..loader import Loader
from ..mix import Mix, Mixed
from ..state import BLOCK_SAMPLES, ORDER_VERSION, SHUFFLE, WINDOW

__all__ = [
    "Here",
    "Source",
    "Turns",
    "adopt_order",
    "items_of",
    "length_of",
    "opened",
    "order_of",
    "seed_of",
]

SEED = "__seed__"
"""The word of a field with a number for each sample, to seed random code."""

OUTPUTS = ("torch", "numpy")
_NOT_HERE = {
    "pin_memory": "give pin_memory to the DataLoader",
    "refresh": "a loop with new workers uses the data that exists at that time",
    "worker": "the DataLoader numbers its workers",
    "worker_count": "the DataLoader numbers its workers",
}


CHOOSING = {"subset", "weights", "balance", "replacement", "repeats", "curriculum", "epoch"}
"""Options of a Loader that affect the number of samples of an epoch."""


def items_of(column: Any) -> Any:
    """A field of a batch as an object that returns a sample's value by index."""
    if getattr(column, "ndim", 0) > 1:  # a tensor: views of it
        return column
    if hasattr(column, "offsets") and hasattr(column, "shapes"):  # ragged: views, and their labels
        labels = column.labels
        return column if labels is None else list(zip(column, labels, strict=True))
    if hasattr(column, "tolist"):  # numbers and bytes as Python objects
        return column.tolist()
    return column


def length_of(samples: int, batch: int, rank: int, world: int, tail: str, epoch: int) -> int:
    """Samples of an epoch for a rank; the rules are those of the C library's partition.c."""
    step = batch * world
    if tail == "drop":
        return samples // step * batch
    if tail == "keep":
        rest = samples % step
        return samples // step * batch + rest // world + (rank < rest % world)
    first = -(epoch * samples) % step if tail == "wrap" else 0
    return max(0, -((first - samples) // step)) * batch


class Source:
    """Base of :mod:`stoker.torch`'s data sets: paths and options, which each worker opens
    itself."""

    _here: Here | None = None
    batch_size: int

    def _store_arguments(
        self,
        where: str,
        source: Any,
        *,
        transform: Callable[[Any], Any] | None,
        engine: tuple[dict[str, Any], Any],
        dataset: tuple[dict[str, Any], Any],
        options: dict[str, Any],
    ) -> None:
        """Checks and stores them. engine, dataset: options, with their names in messages."""
        for name, advice in _NOT_HERE.items():
            if name in options:
                raise ArgumentError(f"{name}= is not supported here", where, advice)
        output = options["output"]
        if output not in OUTPUTS:
            raise ArgumentError(
                f"unknown output {output!r}", where, f"pass one of {', '.join(OUTPUTS)}"
            )
        if transform is not None and not callable(transform):
            raise ArgumentError(
                f"transform {transform!r} cannot be called", where, "pass a function of one sample"
            )
        if isinstance(source, Dataset):
            raise ArgumentError(
                "the source is an opened stoker.Dataset",
                where,
                "pass its paths: each worker opens them",
            )
        for name, (_, given) in (("engine", engine), ("dataset", dataset)):
            if given is not None and not isinstance(given, Mapping):
                raise ArgumentError(
                    f"{name} {given!r} is not a dict of options",
                    where,
                    "pass its options as a dict: each worker opens its own",
                )
        self._mix = source if isinstance(source, Mix) else None
        self._paths = tuple(paths_of(source) if self._mix is None else self._mix.urls())
        self._transform = transform
        self._engine = {**engine[0], **(engine[1] or {})}
        self._dataset = {**dataset[0], **(dataset[1] or {})}
        self._options = options
        fields = options.get("fields")
        self._seeds: tuple[str, ...] = ()
        if isinstance(fields, dict):
            self._seeds = tuple(name for name, field in fields.items() if field == SEED)
            self._options["fields"] = {k: v for k, v in fields.items() if k not in self._seeds}

    def _transformed(self, value: Any) -> Any:
        if self._transform is None:
            return value
        try:
            return self._transform(value)
        except StopIteration as error:  # the DataLoader would take it for the end of the epoch
            raise RuntimeError("transform raised StopIteration") from error

    @contextlib.contextmanager
    def _opening(self) -> Iterator[Here]:
        """The objects of this process; opens them for a moment if needed."""
        here = opened(self, 1)
        try:
            yield here
        finally:
            if here is not self._here:
                here.close()

    def close(self) -> None:
        """Closes the data set in this process; it is open here only if this process iterated
        (``num_workers=0``)."""
        if self._here is not None and self._here.pid == os.getpid():
            self._here.close()
        self._here = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_here": None}

    def __repr__(self) -> str:
        paths = ", ".join(repr(os.fsdecode(_stoker.url_redact(path))) for path in self._paths)
        sizes = f", batches of {self.batch_size}" if hasattr(self, "batch_size") else ""
        return f"<stoker.torch.{type(self).__name__} of {paths}{sizes}>"


_ORDER = (ORDER_VERSION, SHUFFLE, WINDOW, BLOCK_SAMPLES)


def order_of(loader: Loader) -> list[int]:
    """The settings of the order that a loader adopts from a state."""
    state = loader._native.state()
    return [state[place] for place in _ORDER]


def adopt_order(loader: Loader, order: Sequence[int] | None) -> None:
    """Sets the settings of :func:`order_of`. None: no state was loaded, nothing changes."""
    if order is None or order_of(loader) == order:
        return
    state = list(loader._native.state())
    for place, value in zip(_ORDER, order, strict=True):
        if place != BLOCK_SAMPLES or loader._mixed is None:  # those of a mix are shared with it
            state[place] = value
    loader._native.set_state(tuple(state))


def seed_of(seed: int, epoch: int, position: int) -> int:
    """63 bits of (seed, epoch, position)."""
    numbers = struct.pack("<QQQ", seed, epoch % 2**64, position)
    digest = hashlib.blake2b(numbers, digest_size=8, person=b"stoker.seed").digest()
    return int.from_bytes(digest, "little") >> 1


class Here:
    """The open objects of one process: an engine, the data set, and loaders between two epochs."""

    def __init__(self, dataset: Source, workers: int) -> None:
        self.pid = os.getpid()
        options = dict(dataset._engine)
        if options["memory"] is None and workers > 1:
            with Engine(**options) as probe:
                options["memory"] = max(1, probe.info()["memory_bytes_max"] // workers)
        self.engine = Engine(**options)
        try:
            self._mixed: Mixed | None = None
            if dataset._mix is not None:
                self._mixed = Mixed.of(dataset._mix, self.engine, **dataset._dataset)
                self.dataset = self._mixed.dataset
            else:
                self.dataset = Dataset(list(dataset._paths), engine=self.engine, **dataset._dataset)
        except BaseException:
            self.engine.close()
            raise
        self._free: list[tuple[dict[str, Any], Loader]] = []

    def take(self, batch_size: int, options: dict[str, Any]) -> Loader:
        """A loader with these options: one that finished an earlier epoch, and already prefetches,
        or a new one."""
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

    def samples(self, batch_size: int, options: dict[str, Any], turns: Turns) -> int:
        """Samples of an epoch, of all ranks, for a loader with these options."""
        if self._mixed is not None:
            with turns.mixing(self._mixed):
                return self._mixed.samples(batch_size * int(options["world_size"]))
        if CHOOSING.isdisjoint(options):
            return len(self.dataset)
        loader = self.take(batch_size, options)
        self.give(loader, options)
        return int(loader._native.samples())

    def give(self, loader: Loader, options: dict[str, Any]) -> None:
        if not self._free:
            self._free.append((options, loader))
        else:
            loader.close()

    def close(self) -> None:
        for _, loader in self._free:
            loader.close()
        self._free.clear()
        (self._mixed or self.dataset).close()
        self.engine.close()


def opened(dataset: Source, workers: int) -> Here:
    """The objects of this process; never those of its parent, whose threads do not exist here."""
    here = dataset._here
    return here if here is not None and here.pid == os.getpid() else Here(dataset, workers)


class Turns:
    """The next epoch, shared by all processes that use a data set, and the order of a loaded state.

    A DataLoader gives each loop a number, its base seed, which all its workers know; persistent
    workers keep one number for all loops. So the n-th time that a worker begins with a number is
    the n-th loop with it, in every worker and in any order of arrival. The state is a few hundred
    bytes of JSON in a memfd, which children inherit or receive; other copies (pickle, copy) have
    their own state.
    """

    LOOPS_MAX = 16  # numbers of loops that are stored

    def __init__(self, content: bytes | None = None, fd: int | None = None) -> None:
        self._fd = os.memfd_create("stoker-epochs") if fd is None else fd
        if fd is None:
            first: dict[str, Any] = {"next": 0, "done": 0, "samples": None, "loops": []}
            first.update(mix=None, agreed=0, horizon=0, order=None)
            os.pwrite(self._fd, content or json.dumps(first).encode(), 0)

    def __del__(self, _close: Callable[[int], None] = os.close) -> None:
        # Needs no global: when a script ends, modules are cleared before objects in globals.
        fd = self.__dict__.pop("_fd", None)
        try:
            if fd is not None:
                _close(fd)
        except OSError:
            pass

    @contextlib.contextmanager
    def _locked(self) -> Iterator[dict[str, Any]]:
        """Yields the shared state, to read and change. After an exception it is unchanged."""
        # Opens the file again, since a lock belongs to an open file, which children inherit.
        with open(f"/proc/self/fd/{self._fd}", "r+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            # If a writer was killed, the rest of a longer text may follow.
            shared, _ = json.JSONDecoder().raw_decode(file.readall().decode())
            yield shared
            text = json.dumps(shared).encode()
            file.seek(0)
            file.write(text)
            file.truncate(len(text))

    @contextlib.contextmanager
    def mixing(self, mixed: Mixed, agreed: int = -1) -> Iterator[dict[str, Any]]:
        """Inside the block, the mix has the shared weights; after it, all processes have the
        weights that the mix has then. agreed: the number of changes that the mix already has.

        ``mix`` is that of :meth:`Mixed.shared_values`, ``agreed`` counts its changes, and before
        ``horizon``, a position of the run, weights cannot change any more.
        """
        with self._locked() as shared:
            if shared["mix"] is not None and shared["agreed"] != agreed:
                mixed.take(shared["mix"])
            before = mixed.shared_values()
            yield shared
            if mixed.shared_values() != before:
                _check_shared(before, mixed.shared_values(), shared["horizon"])
                shared.update(mix=mixed.shared_values(), agreed=shared["agreed"] + 1)

    @property
    def next(self) -> tuple[int, int]:
        """The next epoch, and the number of its batches to skip."""
        with self._locked() as shared:
            return int(shared["next"]), int(shared["done"])

    def set(self, epoch: int, done: int = 0) -> None:
        with self._locked() as shared:
            shared["next"], shared["done"] = epoch, done

    def set_loaded(self, epoch: int, order: list[int]) -> None:
        """A worker loaded a state: sets the next epoch, and the order of later loops."""
        with self._locked() as shared:
            shared.update(next=epoch, done=0, order=order)

    @property
    def order(self) -> list[int] | None:
        """The settings of :func:`order_of` of the state that was loaded last."""
        with self._locked() as shared:
            order: list[int] | None = shared["order"]
            return order

    @property
    def samples(self) -> int | None:
        """Samples of an epoch, when the data set was last opened."""
        with self._locked() as shared:
            return None if shared["samples"] is None else int(shared["samples"])

    @samples.setter
    def samples(self, samples: int) -> None:
        with self._locked() as shared:
            shared["samples"] = samples

    def take(self, number: int | None, worker: int, samples: int, identity: str) -> tuple[int, int]:
        """The epoch of the loop that a worker begins, and the number of its batches to skip. number
        None: a loop without workers."""
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
                    "do not change the data set while a loop starts; start the loop again",
                )
            mine["workers"].append(worker)
            return int(mine["epoch"]), int(mine["done"])

    def __reduce__(self) -> tuple[Any, ...]:
        if multiprocessing.context.get_spawning_popen() is not None:
            return _adopted, (multiprocessing.reduction.DupFd(self._fd),)
        with self._locked() as shared:
            return Turns, (json.dumps(shared).encode(),)


def _check_shared(before: dict[str, Any], after: dict[str, Any], horizon: int) -> None:
    """Raises StateError if weights differ in what workers have begun."""
    histories = before["history"], after["history"]
    both = itertools.zip_longest(*histories, fillvalue=None)
    differ = [min(it[0] for it in pair if it) for pair in both if pair[0] != pair[1]]
    is_same = all(before[name] == after[name] for name in ("epoch", "block_samples"))
    if horizon > 0 and (not is_same or any(position < horizon for position in differ)):
        raise StateError(
            "the state has other weights than the batches that workers have begun",
            f"load_state_dict: other weights before {horizon}",
            "load a state before the first loop over the data set",
        )


def _adopted(fd: Any) -> Turns:
    return Turns(fd=fd.detach())
