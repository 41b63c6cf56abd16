"""The cache folder of this user, and locked files in it."""

from __future__ import annotations

import os
from typing import IO, Any

__all__ = ["cache_dir", "is_named"]


def cache_dir() -> str | None:
    """The folder for tables, indexes and locks that cannot be stored in the data's folder. None:
    there is no home folder. The library uses the same rules."""
    homes = {"STOKER_CACHE": "", "XDG_CACHE_HOME": "stoker", "HOME": ".cache/stoker"}
    for name, below in homes.items():
        value = os.environ.get(name, "")
        if os.path.isabs(value):
            return os.path.join(value, below) if below else value
    return None


def is_named(file: IO[Any], path: str) -> bool:
    """Whether an open file has this path. Not if the owner of its lock renamed or removed it while
    this process waited for the lock."""
    try:
        named = os.stat(path)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(file.fileno()), named)
