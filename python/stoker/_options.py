"""Options of callers: checks them, and converts them for the extension module."""

from __future__ import annotations

import importlib
import os
import re
import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

from . import _stoker
from .errors import ArgumentError, UnsupportedError

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
SHUFFLE_WORDS = {number: name for name, number in SHUFFLES.items()}
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
IMAGE_CHECKS = {
    "decoded": _stoker.CHECK_DECODED,
    "whole": _stoker.CHECK_WHOLE,
    "tolerant": _stoker.CHECK_TOLERANT,
}
TAILS = {
    "drop": _stoker.TAIL_DROP,
    "pad": _stoker.TAIL_PAD,
    "wrap": _stoker.TAIL_WRAP,
    "keep": _stoker.TAIL_KEEP,
}


def word(value: Any, words: dict[str, int], where: str) -> int:
    """The number for a word. Raises ArgumentError with the possible words."""
    try:
        return words[value]
    except (KeyError, TypeError):
        raise ArgumentError(
            f"unknown value {value!r}", where, f"pass one of {', '.join(words)}"
        ) from None


def count(value: Any, where: str, low: int = 0, high: int = 2**32 - 1) -> int:
    """An integer within bounds; None is 0, which means the library's default."""
    if value is None:
        return 0
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ArgumentError(
            f"{value!r} is not a whole number", where, f"pass a number from {low} to {high}"
        )
    number = int(value.__index__())
    if not low <= number <= high:
        raise ArgumentError(
            f"{number} is out of bounds", where, f"pass a number from {low} to {high}"
        )
    return number


_NO_RETRIES = 2**32 - 1


def retries_of(value: Any, where: str) -> int:
    """Retries for the library, where 0 means the default, and another number none."""
    return count(value, where, high=100) or (0 if value is None else _NO_RETRIES)


def parse_bytes(value: Any, where: str) -> int:
    """Bytes from an int or text such as "2GiB" or "512 MB"; None is 0."""
    if not isinstance(value, str):
        return count(value, where, low=1, high=2**63)
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", value)
    unit = match[2].lower() if match else "?"
    if not match or unit not in _UNITS or float(match[1]) <= 0:
        raise ArgumentError(f"{value!r} is not a number of bytes", where, "pass '2GiB' or an int")
    return count(int(float(match[1]) * _UNITS[unit]), where, low=1, high=2**63)


def require(module: str, package: str, where: str) -> Any:
    """Imports a module of an optional package; the error names what to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UnsupportedError(
            f"it needs {package}, which cannot be imported: {error}",
            where,
            f"run: pip install {package}",
        ) from error


def milliseconds(value: float | None, where: str) -> int:
    """Milliseconds from seconds, at least one; None and 0 are 0: no limit, or the default."""
    if value is None or value == 0:
        return 0
    if not 0 < value < 4_000_000:
        raise ArgumentError(
            f"{value!r} is not a time in seconds", where, "pass a positive number of seconds"
        )
    return max(1, int(value * 1000))


def refuse_pickle(thing: str) -> NoReturn:
    raise TypeError(
        f"a stoker.{thing} cannot be pickled: it holds threads and memory of this process; "
        "make it in the process that uses it, and pass its arguments to that process"
    )


def interruptible(function: Callable[[], T]) -> T:
    """Runs a call that may take long, so that Ctrl-C in the main thread returns at once.

    After Ctrl-C the call continues in its thread, and its result is dropped.
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
        failure.clear()  # a traceback refers to this frame: avoids a reference cycle


def share(value: float | None, where: str) -> float:
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 1:
        raise ArgumentError(f"{value!r} is not a share", where, "pass a number above 0, at most 1")
    return float(value)


def order_options(
    where: str,
    *,
    shuffle: str | None,
    tail: str,
    window: int | None,
    groups: int | None,
    order_version: int | None = None,
) -> dict[str, Any]:
    """Native options of the order, for all loaders; 0: the library's choice."""
    return {
        "shuffle": 0 if shuffle is None else word(shuffle, SHUFFLES, f"{where} shuffle"),
        "order_version": count(
            order_version, f"{where} order_version", low=1, high=_stoker.ORDER_VERSION
        ),
        "tail": word(tail, TAILS, f"{where} tail"),
        "window_blocks": count(window, f"{where} window", low=1),
        "group_count": count(groups, f"{where} groups", low=1),
    }


def sample_limits(
    where: str,
    *,
    key_bytes_max: int | None,
    header_bytes_max: int | str | None,
    member_gap_max: int | None,
) -> dict[str, Any]:
    """Native limits of keys, headers and samples, for Dataset, index and verify."""
    return {
        "key_bytes_max": count(key_bytes_max, f"{where} key_bytes_max", low=1),
        "header_bytes_max": parse_bytes(header_bytes_max, f"{where} header_bytes_max"),
        "member_gap_max": count(member_gap_max, f"{where} member_gap_max"),
    }


def decompression_limits(
    where: str,
    *,
    decompressed_bytes_max: int | str | None,
    decompression_ratio_max: int | None,
) -> dict[str, Any]:
    """Native limits of compressed shards, for Dataset and verify."""
    return {
        "decompressed_bytes_max": parse_bytes(
            decompressed_bytes_max, f"{where} decompressed_bytes_max"
        ),
        "decompression_ratio_max": count(
            decompression_ratio_max, f"{where} decompression_ratio_max", low=1
        ),
    }


def bad_sample_options(
    where: str,
    *,
    on_error: str,
    bad_samples_max: int | None,
    bad_share_max: float | None,
    io_retries: int | None,
) -> dict[str, Any]:
    """Native options for damaged samples and failed reads, for Loader and pack."""
    return {
        "on_error": word(on_error, ON_ERRORS, f"{where} on_error"),
        "bad_samples_max": count(bad_samples_max, f"{where} bad_samples_max", low=1),
        "bad_share_max": share(bad_share_max, f"{where} bad_share_max"),
        "io_retries": retries_of(io_retries, f"{where} io_retries"),
    }


def path_of(path: Any, where: str) -> bytes:
    """A path as bytes. ArgumentError: it is empty, or has a NUL."""
    try:
        name = os.fsencode(path)
    except TypeError:
        name = b""
    if not name or b"\0" in name:
        raise ArgumentError(f"{path!r} is not a path", where, "pass a path or a URL")
    return name


def paths_of(source: Any) -> Sequence[bytes]:
    """The paths of a source as bytes: one path or several."""
    many = [source] if isinstance(source, (str, bytes, os.PathLike)) else source
    try:
        urls = [os.fsencode(path) for path in many]
    except TypeError:
        raise ArgumentError(
            f"source {source!r} is not a path", "source", "pass a path, or a list of paths"
        ) from None
    if not urls or any(not url or b"\0" in url for url in urls):
        raise ArgumentError(
            f"source {source!r} has an empty path, or one with a NUL",
            "source",
            "pass a folder, tars, braces or a list of them",
        )
    return urls


def class_names(classes: Any, where: str) -> tuple[bytes, ...]:
    """The names of classes. A string would be a list of letters."""
    names = None if isinstance(classes, (str, bytes)) else list(classes)
    if not names or not all(isinstance(name, str) for name in names):
        raise ArgumentError(
            f"{classes!r} is not a list of names", where, "pass the names of the class folders"
        )
    if len(set(names)) != len(names):
        raise ArgumentError("a class is named twice", where, "name each class once")
    return tuple(os.fsencode(name) for name in names)


def index_words(value: Any, where: str) -> dict[str, Any]:
    """index= for _stoker.Dataset: a word, or a path."""
    if isinstance(value, str) and value in INDEXES:
        return {"index": INDEXES[value]}
    if isinstance(value, (str, os.PathLike)) and os.fspath(value):
        return {"index_path": paths_of(value)[0]}
    raise ArgumentError(
        f"unknown value {value!r}", where, f"pass one of {', '.join(INDEXES)}, or a path"
    )
