"""The cache folder of this user, and files in it that several processes make."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable
from typing import BinaryIO

from .errors import TimeoutError

__all__ = ["cache_dir", "is_named", "make_once"]

STALLED_S = 600.0
"""Longest wait for another process that makes a file, while the file does not grow."""
POLL_S = 0.05


def cache_dir() -> str | None:
    """The folder for tables, indexes and locks that cannot be stored in the data's folder. None:
    there is no home folder. The library uses the same rules."""
    homes = {"STOKER_CACHE": "", "XDG_CACHE_HOME": "stoker", "HOME": ".cache/stoker"}
    for name, below in homes.items():
        value = os.environ.get(name, "")
        if os.path.isabs(value):
            return os.path.join(value, below) if below else value
    return None


def make_once(path: str, make: Callable[[BinaryIO], None], work: str) -> None:
    """Makes a file that may exist: ``make`` writes ``PATH.part``, which is then renamed. Processes
    that need it at the same time wait for the one that makes it: look again after the call.

    If a process is killed, the next one continues in its part. Where the file system has no locks,
    each process makes the file in a part of its own.

    Raises:
        TimeoutError: another process makes the file, but no progress. work: "counts the tokens".
    """
    with open(f"{path}.part", "ab+") as part:
        if _lock(part, work):
            if not is_named(part.fileno(), part.name):
                return
            if os.path.exists(path):  # the previous owner of the lock finished it
                os.unlink(part.name)
                return
            make(part)
            os.rename(part.name, path)
            return
    own = f"{path}.{os.urandom(8).hex()}.part"
    try:
        with open(own, "xb+") as part:
            make(part)
        os.rename(own, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(own)
        raise


def _lock(file: BinaryIO, work: str) -> bool:
    """Waits for the lock, which ends with its process, while its owner makes progress. False: the
    file system has no locks."""
    seen, since = -1, time.monotonic()
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            pass
        except OSError:  # ENOLCK, EOPNOTSUPP and others
            return False
        size = os.fstat(file.fileno()).st_size
        if size != seen:
            seen, since = size, time.monotonic()
        if time.monotonic() - since > STALLED_S:
            raise TimeoutError(
                f"another process {work}, but makes no progress",
                repr(file.name),
                "find that process, and stop it",
            )
        time.sleep(POLL_S)


def is_named(file: int, path: str) -> bool:
    """Whether an open file has this path. Not if the owner of its lock renamed or removed it while
    this process waited for the lock."""
    try:
        named = os.stat(path)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(file), named)
