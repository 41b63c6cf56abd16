"""Objects that go to other processes: as what made them and where they stand, opened there."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from .errors import StateError

__all__ = ["Portable"]

Given = tuple[tuple[Any, ...], dict[str, Any]]
T = TypeVar("T", bound="Portable")


class Portable:
    """What can be pickled and copied, though it holds threads and memory of its process.

    The arguments of its constructor are sent, and what :meth:`_standing` tells. The other side
    gets an object that opens when it is first used; until then it holds nothing, so it may be made,
    sent on and forked freely. Nothing of this unpickles anything.
    """

    _given: Given

    def __init_subclass__(cls, **words: Any) -> None:
        super().__init_subclass__(**words)
        if "__init__" in cls.__dict__:
            cls.__init__ = _keeping(cls.__init__)  # type: ignore[method-assign]

    def _sending(self) -> Given:
        """The arguments that make it again."""
        return self._given

    def _standing(self) -> Any:
        """Where it stands, for :meth:`_arrive`."""
        return None

    def _arrive(self, standing: Any) -> None:
        """Goes there: it was made anew, in another place."""

    def __reduce__(self) -> tuple[Any, ...]:
        return sent, (type(self), self._sending(), self._standing())


def _keeping(init: Callable[..., None]) -> Callable[..., None]:
    """The same constructor, which keeps its arguments; of several, as of a class that calls its
    base's, the first one does."""

    @functools.wraps(init)
    def keep(self: Any, *args: Any, **options: Any) -> None:
        if "_given" not in self.__dict__:
            self.__dict__["_given"] = (args, options)
        init(self, *args, **options)

    return keep


class _Arrival:
    """What came, of an object that is not open yet."""

    def __init__(self, of: type[Portable], given: Given, standing: Any) -> None:
        self.of, self.given, self.standing = of, given, standing
        self.lock = threading.RLock()
        self.is_opening = False


class _Unopened:
    """Goes before the class of an object that came: its first use opens it, and turns it into one
    of that class."""

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("__"):
            _open(self)
        return object.__getattribute__(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        _open(self)
        object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        arrival = self.__dict__.get("_arrival")
        if arrival is None:  # another thread opened it
            return self.__reduce__()
        return sent, (arrival.of, arrival.given, arrival.standing)

    def __repr__(self) -> str:
        arrival = self.__dict__.get("_arrival")
        return repr(self) if arrival is None else f"<stoker.{arrival.of.__name__}, not open yet>"

    def __del__(self) -> None:
        pass


def sent(of: type[T], given: Given, standing: Any) -> T:
    """What pickle and copy make of a Portable."""
    unopened = _unopened(of)
    thing = unopened.__new__(unopened)
    thing.__dict__["_arrival"] = _Arrival(of, given, standing)
    return thing


@functools.cache
def _unopened(of: type[T]) -> type[T]:
    return type(of.__name__, (_Unopened, of), {"__module__": of.__module__})


def _open(thing: Any) -> None:
    arrival = thing.__dict__.get("_arrival")
    if arrival is None:
        return
    with arrival.lock:
        if arrival.is_opening or "_arrival" not in thing.__dict__:
            return  # this thread is opening it, or another one has
        arrival.is_opening = True
        args, options = arrival.given
        try:
            arrival.of.__init__(thing, *args, **options)
            thing._arrive(arrival.standing)
        except BaseException:
            thing.__dict__.clear()
            thing.__dict__["_arrival"] = arrival
            raise
        finally:
            arrival.is_opening = False
        object.__setattr__(thing, "__class__", arrival.of)
        del thing.__dict__["_arrival"]


def refuse_workers(thing: str) -> None:
    """A stream that came to one of several workers of a DataLoader would be given by each."""
    data = sys.modules.get("torch.utils.data")
    info = None if data is None else data.get_worker_info()
    if info is not None and info.num_workers > 1:
        raise StateError(
            f"a stoker.{thing} in one of {info.num_workers} workers of a DataLoader: each would "
            "give all of its batches",
            "DataLoader",
            "iterate it without a DataLoader (it has threads of its own), or take "
            "stoker.torch.IterableDataset, whose workers share out the samples",
        )
