"""Files compressed by gzip, bzip2 or xz: recognised by their first bytes, whatever their names."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["ENDINGS", "ERRORS", "HEAD_BYTES", "Compression", "compression_of", "is_damage"]

ENDINGS = (".gz", ".bz2", ".xz")
HEAD_BYTES = 10
"""First bytes that :func:`compression_of` needs."""
ERRORS = (EOFError, OSError, zlib.error, lzma.LZMAError)
"""Exceptions of readers. An OSError is caused by damage if :func:`is_damage` returns True."""
_BZIP2_STARTS = (b"1AY&SY", b"\x17\x72\x45\x38\x50\x90")  # a first block; the end of an empty file


class Compression(NamedTuple):
    name: str
    magic: bytes
    open: Callable[[Any], Any]
    """Opens a path, or a binary file, to read the plain bytes."""


_ALL = (
    Compression("gzip", b"\x1f\x8b\x08", gzip.open),
    Compression("bzip2", b"BZh", bz2.open),
    Compression("xz", b"\xfd7zXZ\0", lzma.open),
)


def compression_of(head: bytes) -> Compression | None:
    """The compression of a file that begins with these bytes; None: it is not compressed by these
    programs."""
    for each in _ALL:
        if head.startswith(each.magic):
            return each if each.name != "bzip2" or head[4:10] in _BZIP2_STARTS else None
    return None


def is_damage(error: BaseException) -> bool:
    """True if the error of a reader means that the file is damaged; False: it could not be read."""
    # gzip and bz2 raise OSError without a number for damaged data.
    return isinstance(error, ERRORS) and getattr(error, "errno", None) is None
