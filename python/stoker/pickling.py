"""Pickling of objects by their arguments and position; the receiving process opens them."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from .errors import StateError

__all__ = ["Portable"]

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
T = TypeVar("T", bound="Portable")


class Portable:
    """Base of objects that can be pickled although they hold threads and memory of their process.

    The pickle contains the arguments of the constructor, and the result of :meth:`_pickled_state`.
    Unpickling returns an object that opens on first use. Until then it holds no resources, so it
    may be created, pickled again and forked freely. This module itself unpickles nothing.
    """

    _arguments: Arguments

    def __init_subclass__(cls, **words: Any) -> None:
        super().__init_subclass__(**words)
        if "__init__" in cls.__dict__:
            cls.__init__ = _storing_arguments(cls.__init__)  # type: ignore[method-assign]

    def _pickled_arguments(self) -> Arguments:
        """The arguments to construct the object again."""
        return self._arguments

    def _pickled_state(self) -> Any:
        """The position of the object, for :meth:`_restore`."""
        return None

    def _restore(self, saved: Any) -> None:
        """Restores the position of an object that was constructed again."""

    def __reduce__(self) -> tuple[Any, ...]:
        return sent, (type(self), self._pickled_arguments(), self._pickled_state())


def _storing_arguments(init: Callable[..., None]) -> Callable[..., None]:
    """The same constructor, which also stores its arguments; if it calls the constructor of a base
    class, only the first call does."""

    @functools.wraps(init)
    def keep(self: Any, *args: Any, **options: Any) -> None:
        if "_arguments" not in self.__dict__:
            self.__dict__["_arguments"] = (args, options)
        init(self, *args, **options)

    return keep


class _Unpickled:
    """Arguments and position of an unpickled object that is not open yet."""

    def __init__(self, of: type[Portable], arguments: Arguments, saved: Any) -> None:
        self.of, self.arguments, self.saved = of, arguments, saved
        self.lock = threading.RLock()
        self.is_opening = False


class _Unopened:
    """Class of an unpickled object: its first use opens the object, and sets its class to the real
    one."""

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("__"):
            _open(self)
        return object.__getattribute__(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        _open(self)
        object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        unpickled = self.__dict__.get("_unpickled")
        if unpickled is None:  # another thread opened it
            return self.__reduce__()
        return sent, (unpickled.of, unpickled.arguments, unpickled.saved)

    def __repr__(self) -> str:
        unpickled = self.__dict__.get("_unpickled")
        return (
            repr(self) if unpickled is None else f"<stoker.{unpickled.of.__name__}, not open yet>"
        )

    def __del__(self) -> None:
        pass


def sent(of: type[T], arguments: Arguments, saved: Any) -> T:
    """The function with which pickle and copy restore a Portable."""
    unopened = _unopened(of)
    thing = unopened.__new__(unopened)
    thing.__dict__["_unpickled"] = _Unpickled(of, arguments, saved)
    return thing


@functools.cache
def _unopened(of: type[T]) -> type[T]:
    return type(of.__name__, (_Unopened, of), {"__module__": of.__module__})


def _open(thing: Any) -> None:
    unpickled = thing.__dict__.get("_unpickled")
    if unpickled is None:
        return
    with unpickled.lock:
        if unpickled.is_opening or "_unpickled" not in thing.__dict__:
            return  # this thread is opening it, or another one opened it
        unpickled.is_opening = True
        args, options = unpickled.arguments
        try:
            unpickled.of.__init__(thing, *args, **options)
            thing._restore(unpickled.saved)
        except BaseException:
            thing.__dict__.clear()
            thing.__dict__["_unpickled"] = unpickled
            raise
        finally:
            unpickled.is_opening = False
        object.__setattr__(thing, "__class__", unpickled.of)
        del thing.__dict__["_unpickled"]


def refuse_workers(thing: str) -> None:
    """StateError in one of several workers of a DataLoader: each would return all batches."""
    data = sys.modules.get("torch.utils.data")
    info = None if data is None else data.get_worker_info()
    if info is not None and info.num_workers > 1:
        raise StateError(
            f"a stoker.{thing} in one of {info.num_workers} workers of a DataLoader: each would "
            "return all of its batches",
            "DataLoader",
            "iterate it without a DataLoader (it has its own threads), or use "
            "stoker.torch.IterableDataset, whose workers share the samples",
        )
