"""Wrappers of an open file of stoker's fsspec file system: for text and for compression.

Unlike fsspec's, they close the file, and forward the exception by which it is left: then nothing is
written."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["CompressedFile", "TextFile"]


class TextFile(io.TextIOWrapper):
    """A text wrapper of an open file."""

    def __exit__(self, kind: Any, *_: object) -> None:
        self.buffer._leave(kind)
        self.close()


class CompressedFile(io.BufferedIOBase):
    """A compression wrapper of an open file that also closes it."""

    def __init__(self, outer: Any, file: Any) -> None:
        self._outer, self._file = outer, file

    def readable(self) -> bool:
        return self._file.readable()

    def writable(self) -> bool:
        return self._file.writable()

    def seekable(self) -> bool:
        return self._outer.seekable()

    def read(self, size: int | None = -1, /) -> bytes:
        return self._outer.read(-1 if size is None else size)

    def read1(self, size: int = -1, /) -> bytes:
        return self.read(size)

    def readline(self, size: int | None = -1, /) -> bytes:
        return self._outer.readline(-1 if size is None else size)

    def write(self, data: Any, /) -> int:
        return self._outer.write(data)

    def flush(self) -> None:
        if not self.closed and not self._outer.closed:
            self._outer.flush()

    def seek(self, place: int, whence: int = 0, /) -> int:
        return self._outer.seek(place, whence)

    def tell(self) -> int:
        return self._outer.tell()

    def close(self) -> None:
        if self.closed:
            return
        try:
            self._file._leave(True if self._file.mode != "rb" and self._file._is_left() else None)
            self._outer.close()
        except BaseException:
            self._file._leave(True)
            raise
        finally:
            self._file.close()
            super().close()

    def _leave(self, kind: Any) -> None:
        self._file._leave(kind)

    def __exit__(self, kind: Any, *_: object) -> None:
        self._leave(kind)
        self.close()

    def __del__(self, _is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not self.closed and not _is_ending():  # at the end of Python, modules are cleared
            self._leave(True)  # it was never closed, so nothing is written
            self.close()
