"""Exceptions. Each has the failure, its place, and the next step: on two lines, as the command
prints them.

Every exception is an :class:`Error`, and also the matching exception of Python, if there is one: a
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
        status: status of the C library (-5001 ... or ``-errno``).
        name: name of the status: ``"STOKER_ERROR_CORRUPT"``, ``"ENOENT"``.
        what: the failure: ``"cannot read member header"``.
        where: the place: ``"'train-0042.tar' offset 1048576 key 'a/17'"``.
        advice: the next step.
        shard: path of the file; ``None``: not applicable.
        key: key of the sample; ``None``: not applicable.
        offset: byte offset in the shard; ``None``: not applicable.
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
        message = ": ".join(part for part in (what, where) if part)
        self.message = f"{message}\n  {advice}" if advice else message
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
    """The data are damaged."""


class TruncatedError(Error, ValueError):
    """The data end too early."""


class FormatError(Error, ValueError):
    """The data do not have the expected format."""


class UnsupportedError(Error, ValueError):
    """The data use a feature that stoker does not support."""


class LimitError(Error, ValueError):
    """A limit of the options was exceeded."""


class MissingError(Error, KeyError):
    """A field or a label is missing."""


class ScatteredError(Error, ValueError):
    """Members of one sample are not adjacent."""


class ArgumentError(Error, ValueError):
    """An argument or option is not valid."""


class StateError(Error, ValueError):
    """A state belongs to another data set, setting or order version."""


class BudgetError(Error, builtins.MemoryError):
    """The memory budget is used up, in most cases by batches that the caller holds."""


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
    """The data changed while they were in use."""


class IOError(Error, OSError):
    """A call of the operating system failed: an ``OSError`` with its ``errno``."""

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
    """The exception for a status of the C library. Empty text means "unknown"."""
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
