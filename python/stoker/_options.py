"""Options that callers give: checked, and as the extension has them."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

from . import _stoker
from .errors import ArgumentError

T = TypeVar("T")

_UNITS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}

SHUFFLES = {
    "block": _stoker.SHUFFLE_BLOCK,
    "full": _stoker.SHUFFLE_FULL,
    "none": _stoker.SHUFFLE_NONE,
    "two-level": _stoker.SHUFFLE_TWO_LEVEL,
}
INDEXES = {
    "auto": _stoker.INDEX_AUTO,
    "never": _stoker.INDEX_NEVER,
    "require": _stoker.INDEX_REQUIRE,
}

ON_ERRORS = {"raise": _stoker.ON_ERROR_RAISE, "skip": _stoker.ON_ERROR_SKIP}

FOREIGN_INDEXES = {
    "auto": _stoker.FOREIGN_INDEX_AUTO,
    "never": _stoker.FOREIGN_INDEX_NEVER,
}
TAILS = {
    "drop": _stoker.TAIL_DROP,
    "pad": _stoker.TAIL_PAD,
    "wrap": _stoker.TAIL_WRAP,
    "keep": _stoker.TAIL_KEEP,
}


def word(value: Any, words: dict[str, int], where: str) -> int:
    """The number of a word."""
    try:
        return words[value]
    except (KeyError, TypeError):
        raise ArgumentError(f"{value!r}", where, f"give one of {', '.join(words)}") from None


def count(value: Any, where: str, low: int = 0, high: int = 2**32 - 1) -> int:
    """A whole number within bounds; None is 0, the library's default."""
    if value is None:
        return 0
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ArgumentError(f"{value!r} is not a whole number", where, f"give {low} to {high}")
    number = int(value.__index__())
    if not low <= number <= high:
        raise ArgumentError(f"{number} is out of bounds", where, f"give {low} to {high}")
    return number


_NO_RETRIES = 2**32 - 1


def retries_of(value: Any, where: str) -> int:
    """0 means the default to the library: its word for none is another."""
    return count(value, where, high=100) or (0 if value is None else _NO_RETRIES)


def parse_bytes(value: Any, where: str) -> int:
    """Bytes of an int or of text such as "2GiB" or "512 MB"; None is 0."""
    if not isinstance(value, str):
        return count(value, where, low=1, high=2**63)
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", value)
    unit = match[2].lower() if match else "?"
    if not match or unit not in _UNITS or float(match[1]) <= 0:
        raise ArgumentError(f"{value!r} is not a number of bytes", where, "give '2GiB' or an int")
    return count(int(float(match[1]) * _UNITS[unit]), where, low=1, high=2**63)


def milliseconds(value: float | None, where: str) -> int:
    """Whole milliseconds of seconds, at least one; None and 0 are 0: no limit, or the default."""
    if value is None or value == 0:
        return 0
    if not 0 < value < 4_000_000:
        raise ArgumentError(f"{value!r} seconds", where, "give a positive number of seconds")
    return max(1, int(value * 1000))


def refuse_pickle(thing: str) -> NoReturn:
    raise TypeError(
        f"a stoker.{thing} cannot be pickled: it holds threads and memory of this process; "
        "make it in the process that uses it, and send its arguments"
    )


def interruptible(function: Callable[[], T]) -> T:
    """Runs a call that may wait long, so that Ctrl-C in the main thread is answered at once.

    The call goes on in its thread then, and what it made is let go when it ends.
    """
    if threading.current_thread() is not threading.main_thread():
        return function()
    result: list[T] = []
    failure: list[BaseException] = []
    done = threading.Event()

    def work() -> None:
        try:
            result.append(function())
        except BaseException as error:
            failure.append(error)
        finally:
            done.set()

    threading.Thread(target=work, name="stoker-open", daemon=True).start()
    try:
        done.wait()
        if failure:
            raise failure[0]
        return result.pop()
    finally:
        failure.clear()  # a traceback refers to this frame: no cycle is left


def share(value: float | None, where: str) -> float:
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 1:
        raise ArgumentError(f"{value!r} is no share", where, "give more than 0, at most 1")
    return float(value)


def paths_of(source: Any) -> Sequence[bytes]:
    """The urls of a source as bytes: one path or several."""
    many = [source] if isinstance(source, (str, bytes, os.PathLike)) else source
    try:
        urls = [os.fsencode(path) for path in many]
    except TypeError:
        raise ArgumentError(
            f"source {source!r}", "source", "give a path, or a list of paths"
        ) from None
    if not urls or any(not url or b"\0" in url for url in urls):
        raise ArgumentError(
            f"source {source!r} has an empty path, or one with a NUL",
            "source",
            "give a folder, tars, braces or a list of them",
        )
    return urls


def index_words(value: Any, where: str) -> dict[str, Any]:
    """index= as _stoker.Dataset parses it: a word, or a path."""
    if isinstance(value, str) and value in INDEXES:
        return {"index": INDEXES[value]}
    if isinstance(value, (str, os.PathLike)) and os.fspath(value):
        return {"index_path": paths_of(value)[0]}
    raise ArgumentError(f"{value!r}", where, f"give one of {', '.join(INDEXES)}, or a path")
