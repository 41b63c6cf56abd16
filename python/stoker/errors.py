"""Exceptions: each says what failed, where, and what to do next.

Every exception is a :class:`Error` and, where Python has a word for it, that one too: a
:class:`CorruptError` is a ``ValueError``, a :class:`MissingError` a ``KeyError``, and so on.
Failures of the operating system are :class:`IOError` (an ``OSError`` with its ``errno``; a missing
file is also a ``FileNotFoundError``).
"""

from __future__ import annotations

import builtins
import errno as _errno
import os
from typing import Any

from ._stoker import STATUSES

__all__ = [
    "ArgumentError",
    "BudgetError",
    "ChangedError",
    "ClosedError",
    "CorruptError",
    "EmptyError",
    "Error",
    "ForkedError",
    "FormatError",
    "IOError",
    "LimitError",
    "MissingError",
    "ScatteredError",
    "StateError",
    "TimeoutError",
    "TruncatedError",
    "UnsupportedError",
]


class Error(Exception):
    """Base of all exceptions of this package.

    Attributes:
        status: the number that the C library gave (-5001 ... or ``-errno``).
        name: its name: ``"STOKER_ERROR_CORRUPT"``, ``"ENOENT"``.
        what: what failed: ``"cannot read member header"``.
        where: ``"'train-0042.tar' offset 1048576 key 'a/17'"``.
        advice: the next step.
        shard: path of the file; ``None`` if it has no meaning.
        key: key of the sample; ``None`` if it has no meaning.
        offset: byte offset in the shard; ``None`` if it has no meaning.
    """

    status: int = 0
    name: str = ""

    def __init__(
        self,
        what: str = "",
        where: str = "",
        advice: str = "",
        *,
        status: int | None = None,
        name: str | None = None,
        shard: str | None = None,
        key: str | None = None,
        offset: int | None = None,
    ) -> None:
        self.what, self.where, self.advice = what, where, advice
        self.shard, self.key, self.offset = shard, key, offset
        if status is not None:
            self.status = status
        if name is not None:
            self.name = name
        message = ", ".join(part for part in (what, where) if part)
        self.message = f"{message}; {advice}" if advice else message
        self._init_base()

    def _init_base(self) -> None:
        Exception.__init__(self, self.message)

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        return from_native, (
            self.status,
            self.name,
            self.what,
            self.where,
            self.advice,
            self.shard or "",
            self.key or "",
            self.offset,
        )


class CorruptError(Error, ValueError):
    """The data is damaged."""


class TruncatedError(Error, ValueError):
    """The data ends too early."""


class FormatError(Error, ValueError):
    """The data is not of the expected format."""


class UnsupportedError(Error, ValueError):
    """The data uses a feature that stoker does not read."""


class LimitError(Error, ValueError):
    """A limit named in the options was passed."""


class MissingError(Error, KeyError):
    """A field or a label is missing."""


class ScatteredError(Error, ValueError):
    """Members of one sample do not lie together."""


class ArgumentError(Error, ValueError):
    """An argument or option is not usable."""


class StateError(Error, ValueError):
    """A state belongs to another data set, setting or order version."""


class BudgetError(Error, builtins.MemoryError):
    """The memory budget is used up: most often batches that are kept."""


class TimeoutError(Error, builtins.TimeoutError):
    """A deadline passed."""

    def _init_base(self) -> None:
        OSError.__init__(self, _errno.ETIMEDOUT, self.message)


class ForkedError(Error, RuntimeError):
    """The object was made in another process."""


class ClosedError(Error, RuntimeError):
    """The object is closed."""


class EmptyError(Error, ValueError):
    """There is nothing to read."""


class ChangedError(Error, RuntimeError):
    """The data changed while it was in use."""


class IOError(Error, OSError):
    """The operating system refused: an ``OSError`` with its ``errno``."""

    def _init_base(self) -> None:
        number = -self.status
        OSError.__init__(self, number, os.strerror(number), self.shard)


class _NotFoundError(IOError, FileNotFoundError):
    """ENOENT."""


class _ExistsError(IOError, FileExistsError):
    """EEXIST."""


class _PermissionError(IOError, PermissionError):
    """EACCES, EPERM."""


class _NotADirectoryError(IOError, NotADirectoryError):
    """ENOTDIR."""


class _NoMemoryError(Error, builtins.MemoryError):
    """ENOMEM."""


_CLASSES: dict[int, type[Error]] = {
    STATUSES["CORRUPT"]: CorruptError,
    STATUSES["TRUNCATED"]: TruncatedError,
    STATUSES["FORMAT"]: FormatError,
    STATUSES["UNSUPPORTED"]: UnsupportedError,
    STATUSES["LIMIT"]: LimitError,
    STATUSES["MISSING"]: MissingError,
    STATUSES["SCATTERED"]: ScatteredError,
    STATUSES["ARGUMENT"]: ArgumentError,
    STATUSES["STATE"]: StateError,
    STATUSES["BUDGET"]: BudgetError,
    STATUSES["TIMEOUT"]: TimeoutError,
    STATUSES["FORKED"]: ForkedError,
    STATUSES["CLOSED"]: ClosedError,
    STATUSES["EMPTY"]: EmptyError,
    STATUSES["CHANGED"]: ChangedError,
    -_errno.ENOENT: _NotFoundError,
    -_errno.EEXIST: _ExistsError,
    -_errno.EACCES: _PermissionError,
    -_errno.EPERM: _PermissionError,
    -_errno.ENOTDIR: _NotADirectoryError,
    -_errno.ENOMEM: _NoMemoryError,
}

for _status_name, _status in STATUSES.items():
    if _status in _CLASSES:
        _CLASSES[_status].status = _status
        _CLASSES[_status].name = "STOKER_ERROR_" + _status_name


def from_native(
    status: int,
    name: str,
    what: str,
    where: str,
    advice: str,
    shard: str,
    key: str,
    offset: int | None,
) -> Error:
    """The exception of a status of the C library. Empty text means "not known"."""
    if status in _CLASSES:
        kind = _CLASSES[status]
    else:
        kind = IOError if -4096 < status < 0 else Error
    return kind(
        what,
        where,
        advice,
        status=status,
        name=name,
        shard=shard or None,
        key=key or None,
        offset=offset,
    )
