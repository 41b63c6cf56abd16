"""What a loader is to training frameworks, beside its batches: iterators, sampler, ranks."""

from __future__ import annotations

import importlib
import importlib.util
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from ._options import count
from .distributed import ranks
from .errors import ArgumentError
from .mix import Mixed
from .pickling import Given, Portable, refuse_workers
from .state import MIX, POSITION, state_values

__all__ = ["Epoch", "Stream"]


class Epoch(Iterator[Any]):
    """The iterator of one epoch. It keeps no batch.

    Its state is its loader's: what the loop has got is behind it. The names are torchdata's and
    Grain's.
    """

    def __init__(self, loader: Stream) -> None:
        self._loader, self._turn, self._ended = loader, loader._turn, False

    def __next__(self) -> Any:
        value = None if self._ended else self._loader._next(self._turn)
        if value is None:
            self._ended = True
            raise StopIteration
        return value

    def state_dict(self) -> dict[str, Any]:
        """See :meth:`stoker.Loader.state_dict`."""
        return self._loader.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The iterator goes on where the state stands, to the end of the state's epoch."""
        self._loader.load_state_dict(state)
        self._turn, self._ended = self._loader._turn, False

    def get_state(self) -> dict[str, Any]:
        """Grain's name for :meth:`state_dict`."""
        return self.state_dict()

    def set_state(self, state: dict[str, Any]) -> None:
        """Grain's name for :meth:`load_state_dict`."""
        self.load_state_dict(state)


class Stream(Portable):
    """What :class:`stoker.Loader` and :class:`stoker.TokenLoader` have in common.

    Frameworks look at a loader's ``sampler`` to tell it the epoch, and to see whether it is shared
    out among the ranks already. They find one that says so: none of them shares it out again.
    """

    _native: Any
    _native_options: dict[str, Any]
    _follows: bool  # the rank is what the process says
    _taken: bool  # batches of this epoch were given to an iterator
    _turn: int  # grows when the iterator in use becomes stale
    _epoch: int
    _delivered: Any = None  # the place behind the batch last given, if others were taken ahead
    _closed: bool
    _turning: threading.Lock
    _mixed: Mixed | None = None
    _pinner: Any = None
    transform: Any  # called with each batch, or None
    batch_size: int
    rank: int
    world_size: int
    seed: int
    shuffle: str
    tail: str
    num_workers, prefetch_factor = 0, None  # a DataLoader's names: there are no worker processes

    def _keep(
        self,
        where: str,
        *,
        batch_size: int,
        seed: int,
        shuffle: str,
        tail: str,
        rank: int | None,
        world_size: int | None,
        transform: Any,
    ) -> None:
        """Checks and keeps what every loader is given; it is not open yet."""
        self._closed = True
        self.batch_size = count(batch_size, f"{where} batch_size", low=1)
        self.seed = count(seed, f"{where} seed", high=2**64 - 1)
        self.shuffle, self.tail = shuffle, tail
        self.rank, self.world_size = ranks(rank, world_size)
        self._follows = rank is None
        if transform is not None and not callable(transform):
            raise ArgumentError(
                f"transform {transform!r} cannot be called", where, "give a function of one batch"
            )
        self.transform = transform

    def _next(self, turn: int) -> Any:
        raise NotImplementedError

    def _again(self, width: int | None = None, state: tuple[Any, ...] = ()) -> Any:
        """A native loader of the present options and the mix as it is; width: of so many sources
        of it, the first ones, as the run of that state had them."""
        raise NotImplementedError

    def _replace(self, native: Any) -> None:
        """It takes the place of the native loader in use."""
        raise NotImplementedError

    def _reload(self) -> None:
        native = self._again()
        state = self._native.state()
        if self._mixed is not None and state[POSITION] == 0:
            # At an epoch's start other steps are no other run, also if each is of one source.
            state = (*state[:MIX], native.state()[MIX], *state[MIX + 1 :])
        native.set_state(state)
        self._replace(native)

    @property
    def _step(self) -> int:
        """Samples of a global batch."""
        return self.batch_size * self.world_size

    def _follow(self) -> None:
        """Takes the rank that the process has now: its group is often made after the loader."""
        if not self._follows or self._taken:
            return
        found = ranks(None, None)
        if found != (self.rank, self.world_size):
            self.rank, self.world_size = found
            self._native_options.update(rank=self.rank, world_size=self.world_size)
            self._reload()

    def _is_over(self) -> bool:
        """Whether all batches of the epoch were given, though the end was not asked for."""
        _, position = self._delivered or self._native.place()
        left = int(self._native.samples()) - int(position)
        return left < (self.batch_size * self.world_size if self.tail == "drop" else 1)

    def _state(self) -> tuple[Any, ...]:
        """The native state behind the batch last given."""
        state: tuple[Any, ...] = self._native.state(*(self._delivered or ()))
        return state

    # ---- being sent ----

    def _check_open(self) -> None:
        raise NotImplementedError

    def _sending(self) -> Given:
        self._check_open()
        return super()._sending()

    def _standing(self) -> Any:
        return self.state_dict(), self._taken and self._is_over()

    def _arrive(self, standing: Any) -> None:
        state, is_over = standing
        if self._native_options.get("worker_count", 1) == 1:
            refuse_workers(type(self).__name__)
        self.load_state_dict(state)
        self._taken = is_over  # then the next loop is that of the next epoch

    # ---- a mix ----

    def set_weights(self, weights: Sequence[Any], at: int | None = None) -> int:
        """Other weights for a :class:`Mix`, also in the middle of a loop; what was given stays.

        They hold from the end of the frame that the stream is in (see :class:`Mix`), for ever, and
        are part of the state. All ranks call it after the same batch. Of a mix with an end, which
        goes through them in every epoch, they can change while the first one runs.

        Args:
            at: a position of the run, in samples of all ranks: they hold from the end of its frame.

        Returns:
            The position from which they hold. All before it stays as it was.
        """
        self._check_open()
        mixed = self._mixed
        if mixed is None:
            raise ArgumentError("no Mix", "set_weights", "give the loader a Mix as its source")
        if at is not None:
            at = count(at, "set_weights at", high=2**62)
        with self._turning:
            return mixed.set_weights(self, weights, at)

    def _values(self, state: tuple[Any, ...]) -> dict[str, Any]:
        """A native state as JSON has it."""
        mix = {} if self._mixed is None else self._mixed.values(self)
        return {**state_values(state), **mix}

    def _load_values(self, state: dict[str, Any], values: tuple[Any, ...]) -> None:
        """Goes to a state; values: its native part."""
        if self._mixed is not None and values[MIX] != 0:
            self._mixed.load(self, state, values)
        else:
            self._native.set_state(values)  # says it, if only one of both is of a mix

    # ---- what frameworks ask ----

    def __len__(self) -> int:
        raise NotImplementedError

    def set_epoch(self, epoch: int) -> None:
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        raise NotImplementedError

    def load_state_dict(self, state: dict[str, Any]) -> None:
        raise NotImplementedError

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
        """A ``torch.utils.data.DistributedSampler`` whose ``set_epoch()`` is the loader's; None
        without torch."""
        return _samplers().LoaderSampler(self) if _has_torch() else None

    @property
    def batch_sampler(self) -> Any:
        """A ``torch.utils.data.BatchSampler`` of :attr:`sampler` that refuses to be iterated;
        None without torch."""
        return _samplers().LoaderBatchSampler(self) if _has_torch() else None


def _has_torch() -> bool:
    return importlib.util.find_spec("torch") is not None


def _samplers() -> Any:
    return importlib.import_module("stoker.torch.samplers")
