"""Warnings about use that is probably a mistake: each is issued once in a process."""

from __future__ import annotations

import os
import sys
import warnings

__all__ = ["StokerWarning", "warn_once"]


class StokerWarning(UserWarning):
    """The category of all warnings of this package."""


_issued: set[str] = set()
_HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "")


def warn_once(text: str) -> None:
    """Issues the warning at the line of the caller of this package, unless it was issued before."""
    if text in _issued:
        return
    _issued.add(text)
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, StokerWarning, stacklevel=level)
