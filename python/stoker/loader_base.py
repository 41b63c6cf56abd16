"""Base of all loaders: iteration, epochs, states, ranks, and names that frameworks use.

    for batch in loader -> __iter__ -> Epoch -> _next -> _next_value -> [Pinner ->] _produce
                                                                    -> _next_native, _convert_batch

A subclass implements the last two, and opens the native loader.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

from ._options import SHUFFLE_WORDS, count, order_options
from .distributed import ranks
from .errors import ArgumentError, ClosedError, Error, ForkedError, StateError
from .mix import Mixed
from .notices import warn_once
from .pickling import Arguments, Portable, refuse_workers
from .pinning import Item, Pinner, pin
from .state import (
    EPOCH,
    MIX,
    ORDER_VERSION,
    POSITION,
    SHUFFLE,
    WINDOW,
    parse_state,
    state_values,
)
from .tensors import Convert, choose, converter, mask_of

__all__ = ["Epoch", "LoaderBase"]

DROPPED_SHARE = 0.1
"""An epoch that leaves out a larger share of its samples is worth a warning."""


class Epoch(Iterator[Any]):
    """The iterator of one epoch. It keeps no batch.

    Its state is the loader's state after the last batch that the loop received. The method names
    are those of torchdata and Grain.
    """

    def __init__(self, loader: LoaderBase) -> None:
        self._loader, self._generation, self._ended = loader, loader._generation, False

    def __next__(self) -> Any:
        try:
            value = None if self._ended else self._loader._next(self._generation)
        except StopIteration as error:  # a loop would take it for the end of the epoch (PEP 479)
            raise RuntimeError(
                "a function that the loader called (transform, tokenizer, field) raised "
                "StopIteration"
            ) from error
        if value is None:
            self._ended = True
            raise StopIteration
        return value

    def state_dict(self) -> dict[str, Any]:
        """See :meth:`stoker.Loader.state_dict`."""
        return self._loader.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues at the state, to the end of the state's epoch."""
        self._loader.load_state_dict(state)
        self._generation, self._ended = self._loader._generation, False

    def get_state(self) -> dict[str, Any]:
        """Grain's name for :meth:`state_dict`."""
        return self.state_dict()

    def set_state(self, state: dict[str, Any]) -> None:
        """Grain's name for :meth:`load_state_dict`."""
        self.load_state_dict(state)


class LoaderBase(Portable):
    """Base of :class:`stoker.Loader` and :class:`stoker.TokenLoader`.

    Frameworks use a loader's ``sampler`` to set the epoch, and to check whether the data are
    already divided among ranks. The sampler says that they are, so frameworks do not divide them
    again.
    """

    _subject = "loader"  # in error messages
    _native: Any
    _native_options: dict[str, Any]
    _owned: list[Any]  # closed with the loader, the last one first
    _follows_rank: bool  # rank and world_size were not passed: they are read again for each loop
    _closed: bool
    _mixed: Mixed | None = None
    _pin = False  # pin_memory was requested
    _output_word: str
    mask: Any
    transform: Any  # called with each batch; or None
    batch_size: int
    rank: int
    world_size: int
    seed: int
    shuffle: str | None  # None: chosen when the loader opens
    window: int | None
    order_version: int | None
    tail: str
    num_workers, prefetch_factor = 0, None  # a DataLoader's names: there are no worker processes

    def _store_arguments(
        self,
        where: str,
        *,
        batch_size: int,
        seed: int,
        shuffle: str | None,
        tail: str,
        rank: int | None,
        world_size: int | None,
        window: int | None,
        groups: int | None,
        order_version: int | None,
        transform: Any,
    ) -> None:
        """Checks and stores the arguments that all loaders have. The loader is not open yet."""
        self._closed = True
        self.batch_size = count(batch_size, f"{where} batch_size", low=1)
        self.seed = count(seed, f"{where} seed", high=2**64 - 1)
        self.shuffle, self.window, self.order_version = shuffle, window, order_version
        self.tail = tail
        self.rank, self.world_size = ranks(rank, world_size)
        self._follows_rank = rank is None
        if transform is not None and not callable(transform):
            raise ArgumentError(
                f"transform {transform!r} cannot be called", where, "pass a function of one batch"
            )
        self.transform = transform
        self._native_options = {
            "batch_size": self.batch_size,
            "seed": self.seed,
            "rank": self.rank,
            "world_size": self.world_size,
            **order_options(
                where,
                shuffle=shuffle,
                tail=tail,
                window=window,
                groups=groups,
                order_version=order_version,
            ),
        }
        self._owned = []

    def _reset(self) -> None:
        """Sets the state of an open loader before its first batch."""
        self._closed = False
        self._read_order()
        self._pid = os.getpid()
        self._output: str | None = None
        self._convert: Convert | None = None
        self._epoch = 0
        self._started = False  # an iterator received batches of this epoch
        self._next_lock = threading.Lock()
        self._generation = 0  # incremented when the iterator in use becomes stale
        self._warn_if_much_is_dropped()
        self._pinner: Pinner | None = None
        self._pinning = False
        self._delivered_position: Any = None  # position after the last delivered batch, if pinned
        self.mask = None

    def _read_order(self) -> None:
        """Reads the settings of the order, which the library or a state may have chosen."""
        state = self._native.state()
        self.order_version, self.window = state[ORDER_VERSION], state[WINDOW]
        self.shuffle = SHUFFLE_WORDS[state[SHUFFLE]]

    # ---- implemented by loaders ----

    def _next_native(self) -> Any:
        """The next native batch; None at the end of the epoch."""
        raise NotImplementedError

    def _convert_batch(self, batch: Any, output: str, convert: Convert) -> Any:
        """The value of a batch for the loop. convert: converts an array to that output."""
        raise NotImplementedError

    def _before_epoch(self) -> None:
        """Called when a loop begins."""

    def _check_state(self, state: dict[str, Any]) -> None:
        """Raises StateError if the loader cannot continue at the state; changes nothing."""

    def _before_state(self, values: tuple[Any, ...]) -> None:
        """Called before the loader continues at a native state."""

    def _more_state(self) -> dict[str, Any]:
        """Settings in the state besides the native ones; :meth:`_check_state` compares them."""
        return {}

    def _close_owned(self) -> None:
        while self._owned:
            self._owned.pop().close()

    def _reopen(self, width: int | None = None, state: tuple[Any, ...] = ()) -> Any:
        """A native loader with the present options and mix. width: with only this many sources of
        the mix, from the first, which the run of that state had."""
        raise NotImplementedError

    def _replace(self, native: Any) -> None:
        """Replaces the native loader in use."""
        self._native.close()
        self._native = native

    def _reload(self) -> None:
        native = self._reopen()
        state = self._native.state()
        if self._mixed is not None and state[POSITION] == 0:
            # At the start of an epoch the size of a step, which the mix includes, may change.
            state = (*state[:MIX], native.state()[MIX], *state[MIX + 1 :])
        native.set_state(state)
        self._replace(native)

    @property
    def _step(self) -> int:
        """Samples of a global batch."""
        return self.batch_size * self.world_size

    def _warn_if_much_is_dropped(self) -> None:
        samples = int(self._native.samples())
        dropped = samples % self._step
        if self.tail == "drop" and dropped > DROPPED_SHARE * samples:
            warn_once(
                f"tail='drop' leaves out {dropped} of {samples} samples in each epoch (batch_size "
                f"{self.batch_size}, {self.world_size} ranks): use tail='keep', 'pad' or 'wrap', "
                "or a smaller batch_size"
            )

    def _warn_if_repeated(self) -> None:
        if self.shuffle != "none":
            warn_once(
                f"the last loop over the {self._subject} ended early, and the next one begins at "
                f"the start of epoch {self._epoch} again, with the same batches: call "
                "set_epoch(epoch + 1) before the next loop, or continue with one iterator"
            )

    def _update_rank(self) -> None:
        """Reads the rank of the process again: its group is often made after the loader."""
        if not self._follows_rank or self._started:
            return
        found = ranks(None, None)
        if found != (self.rank, self.world_size):
            self.rank, self.world_size = found
            self._native_options.update(rank=self.rank, world_size=self.world_size)
            self._reload()
            self._warn_if_much_is_dropped()

    def _is_epoch_done(self) -> bool:
        """True if all batches of the epoch were delivered, but not yet its end."""
        _, position = self._delivered_position or self._native.position()
        left = int(self._native.samples()) - int(position)
        return left < (self._step if self.tail == "drop" else 1)

    def _state(self) -> tuple[Any, ...]:
        """The native state after the last delivered batch."""
        state: tuple[Any, ...] = self._native.state(*(self._delivered_position or ()))
        return state

    # ---- iterating ----

    def __iter__(self) -> Iterator[Any]:
        """One epoch. It begins at the loaded state after :meth:`load_state_dict`, else at the start
        of the epoch, also if an earlier ``for`` stopped in the middle of it. No batch is taken
        before the first ``next()``; until then the iterator follows :meth:`set_epoch` and
        :meth:`load_state_dict`."""
        self._check_open()
        self._finish_epoch()
        self._end_iterator()
        if self._started:
            self._warn_if_repeated()
            self._native.set_epoch(self._epoch)
            self._started = False
        self._update_rank()
        self._before_epoch()
        self._pinning = self._uses_pinning()
        return Epoch(self)

    def __len__(self) -> int:
        """Number of batches of an epoch for this rank."""
        self._update_rank()
        return int(self._native.batches(self._epoch))

    def _check_open(self) -> None:
        if self._pid != os.getpid():
            raise ForkedError(
                "the object was made in another process",
                self._subject,
                "make it again in this process, after the fork; or fork with copy.deepcopy(it), "
                "which opens where it is used",
            )
        if self._closed:
            raise ClosedError(
                "the loader is closed", self._subject, "make a new one; batches in hand stay valid"
            )

    def _end_iterator(self) -> None:
        """Ends the iterator in use."""
        self._generation += 1
        if self._pinner is not None:
            self._pinner.stop()
            self._pinner = None
            self._delivered_position = None

    def _next(self, turn: int) -> Any:
        self._check_open()
        with self._next_lock:  # threads that share an iterator take turns, and end together
            if self.transform is None:
                return self._next_value(turn)
            before = self._place()
            value = self._next_value(turn)
            after = self._place()
        if value is None:
            return value
        try:
            value = self.transform(value)
            if value is None:  # a loop would take it for the end of the epoch
                raise ArgumentError(
                    f"transform {self.transform!r} returned None",
                    self._subject,
                    "return the batch, changed or not",
                )
            return value
        except BaseException:
            with self._next_lock:
                if turn == self._generation and self._place() == after:  # no other thread went on
                    self._rewind(before)
            raise

    def _place(self) -> tuple[int, int]:
        """Epoch and position after the last delivered batch."""
        place: tuple[int, int] = self._delivered_position or self._native.position()
        return place

    def _rewind(self, place: tuple[int, int]) -> None:
        """Goes back to a place: a batch that the loop did not receive comes again."""
        if self._pinner is not None:
            self._pinner.stop()
            self._pinner, self._delivered_position = None, None
        _rewind(self._native, place)

    def _next_value(self, turn: int) -> Any:
        if turn != self._generation:
            self._check_open()
            raise StateError(
                "this iterator has ended",
                self._subject,
                "set_epoch(), load_state_dict() and a new loop end it: make a new one",
            )
        self._started = True
        if self._pinning:
            if self._pinner is None:
                self._pinner = Pinner(self._producer())
            value, mask, place = self._pinner.take()
            if isinstance(value, BaseException):
                self._pinner = Pinner(self._producer())  # the next call tries again
                raise value
            self._delivered_position = place
        else:
            value, mask = self._produce()
        if value is None:
            self._end_epoch()
        self.mask = mask
        return value

    def _end_epoch(self) -> None:
        self._pinner, self._delivered_position = None, None  # its thread has ended
        self._epoch = self._native.position()[0]
        self._started = False
        self._generation += 1

    def _finish_epoch(self) -> None:
        """Advances to the next epoch if the loop received all batches, but not the end."""
        if not self._started or not self._is_epoch_done():
            return
        self._end_iterator()
        if self._native.position()[0] == self._epoch:
            self._next_native()
        self._end_epoch()

    def _produce(self) -> tuple[Any, Any]:
        """The next batch, converted for the loop, and its mask."""
        before = self._native.position()
        try:
            batch = self._next_native()
            if batch is None:
                return None, None
            if self._convert is None:
                self._output = choose(self._output_word)
                self._convert = converter(self._output)
            assert self._output is not None
            mask = mask_of(batch, self._output) if self.tail == "pad" else None
            return self._convert_batch(batch, self._output, self._convert), mask
        except BaseException:
            _rewind(self._native, before)
            raise

    def _uses_pinning(self) -> bool:
        if not self._pin or choose(self._output_word) != "torch":
            return False
        import torch

        return bool(torch.cuda.is_available())

    def _producer(self) -> Callable[[], Item]:
        """The function that the pinning thread calls; it holds a weak reference to the loader."""
        reference = weakref.ref(self)
        self._delivered_position = self._native.position()

        def produce() -> Item:
            loader = reference()
            if loader is None:
                return None, None, None
            native = loader._native
            before = native.position()
            value, mask = loader._produce()
            place = native.position()
            del loader
            try:
                return pin(value), mask, place
            except BaseException:
                _rewind(native, before)
                raise

        return produce

    # ---- epochs and states ----

    @property
    def epoch(self) -> int:
        """The present epoch, or that of the next loop."""
        return self._epoch

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next loop.

        If the loader is already at the beginning of this epoch, or :meth:`load_state_dict` set it
        to its middle, nothing changes. So a resumed run can use ``for epoch in range(loader.epoch,
        90): loader.set_epoch(epoch); for ... in loader``.
        """
        number = count(epoch, "set_epoch", high=2**63 - 1)
        self._finish_epoch()
        if not self._started and number == self._epoch:
            return
        if self._started:
            self._end_iterator()
        self._native.set_epoch(number)
        self._epoch, self._started = number, False

    def state_dict(self) -> dict[str, Any]:
        """The position of the stream and the settings that it depends on, as a dict for JSON.

        The state is the same on every rank. The batches that the loop received are behind it. It is
        valid for any number of threads, ranks and batches ahead; it belongs to the data set, the
        seed and the settings of the order. It contains those that the library chose (``shuffle``,
        ``window``, ``order_version``).
        """
        return {**self._values(self._state()), **self._more_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues at a state: the next loop yields the rest of its epoch.

        Settings of the order that were not passed to the loader (``shuffle``, ``window``,
        ``order_version``) become those of the state. So the order stays the same if the data moved
        to another kind of storage, or if the state is of an earlier version.

        Raises:
            StateError: the state belongs to other data, settings or order version. The error names
                all differences. The position does not change, but the iterator in use ends.
        """
        self._check_state(state)
        values = parse_state(state)
        if self._started:
            self._end_iterator()  # also if the state is rejected
        self._before_state(values)
        self._load_values(state, values)
        self._read_order()
        self._epoch, self._started = values[EPOCH], False

    def close(self) -> None:
        """Stops the work within 0.2 s. Batches stay valid."""
        if self._closed:
            return
        self._closed = True
        if self._pid == os.getpid():
            self._end_iterator()
        self._native.close()
        self._close_owned()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- pickling ----

    def _pickled_arguments(self) -> Arguments:
        self._check_open()
        return super()._pickled_arguments()

    def _pickled_state(self) -> Any:
        return self.state_dict(), self._started and self._is_epoch_done()

    def _restore(self, saved: Any) -> None:
        state, is_done = saved
        if self._native_options.get("worker_count", 1) == 1:
            refuse_workers(type(self).__name__)
        self.load_state_dict(state)
        self._started = is_done  # then the next loop has the next epoch

    # ---- a mix ----

    def set_weights(self, weights: Sequence[Any], at: int | None = None) -> int:
        """Changes the weights of a :class:`Mix`, also in the middle of a loop.

        They apply from the end of the present frame (see :class:`Mix`) on, and are part of the
        state. All ranks must call it after the same batch. A mix with an end goes through the
        changes in every epoch, so its weights can change in the first epoch only.

        Args:
            at: a position of the run, in samples of all ranks; the weights apply from the end of
                its frame.

        Returns:
            The position from which they apply. Samples before it do not change.
        """
        self._check_open()
        mixed = self._mixed
        if mixed is None:
            raise ArgumentError(
                "the loader's source is not a Mix",
                "set_weights",
                "pass a Mix as the loader's source",
            )
        if at is not None:
            at = count(at, "set_weights at", high=2**62)
        with self._next_lock:
            return mixed.set_weights(self, weights, at)

    def _values(self, state: tuple[Any, ...]) -> dict[str, Any]:
        """A native state as a dict for JSON."""
        mix = {} if self._mixed is None else self._mixed.values(self)
        return {**state_values(state), **mix}

    def _load_values(self, state: dict[str, Any], values: tuple[Any, ...]) -> None:
        """Continues at a state; values: its native part."""
        if self._mixed is not None and values[MIX] != 0:
            self._mixed.load(self, state, values)
        else:
            self._native.set_state(values)  # raises if only one of both has a mix

    # ---- names that frameworks use ----

    def get_state(self) -> dict[str, Any]:
        """Grain's name for :meth:`state_dict`."""
        return self.state_dict()

    def set_state(self, state: dict[str, Any]) -> None:
        """Grain's name for :meth:`load_state_dict`."""
        self.load_state_dict(state)

    @property
    def drop_last(self) -> bool:
        """torch's name for ``tail == "drop"``."""
        return self.tail == "drop"

    @property
    def sampler(self) -> Any:
        """A ``torch.utils.data.DistributedSampler`` whose ``set_epoch()`` sets the loader's epoch;
        None without torch."""
        return _samplers().LoaderSampler(self) if _has_torch() else None

    @property
    def batch_sampler(self) -> Any:
        """A ``torch.utils.data.BatchSampler`` of :attr:`sampler` that cannot be iterated; None
        without torch."""
        return _samplers().LoaderBatchSampler(self) if _has_torch() else None


def _rewind(native: Any, place: tuple[int, int]) -> None:
    """Goes back to a place, if the present one is another. Called for an exception, which is the
    error to report."""
    if native.position() != place:
        with contextlib.suppress(Error):
            native.set_state(native.state(*place))


def _has_torch() -> bool:
    return importlib.util.find_spec("torch") is not None


def _samplers() -> Any:
    return importlib.import_module("stoker.torch.samplers")
