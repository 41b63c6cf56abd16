"""The folder of this user's cache."""

from __future__ import annotations

import os

__all__ = ["cache_dir"]


def cache_dir() -> str | None:
    """Where tables, indexes and locks are kept that have no place beside the data; None: there is
    no home. The library finds it in the same way."""
    homes = {"STOKER_CACHE": "", "XDG_CACHE_HOME": "stoker", "HOME": ".cache/stoker"}
    for name, below in homes.items():
        value = os.environ.get(name, "")
        if os.path.isabs(value):
            return os.path.join(value, below) if below else value
    return None
