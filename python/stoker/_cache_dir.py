"""The cache folder of this user."""

from __future__ import annotations

import os

__all__ = ["cache_dir"]


def cache_dir() -> str | None:
    """The folder for tables, indexes and locks that cannot be stored in the data's folder. None:
    there is no home folder. The library uses the same rules."""
    homes = {"STOKER_CACHE": "", "XDG_CACHE_HOME": "stoker", "HOME": ".cache/stoker"}
    for name, below in homes.items():
        value = os.environ.get(name, "")
        if os.path.isabs(value):
            return os.path.join(value, below) if below else value
    return None
