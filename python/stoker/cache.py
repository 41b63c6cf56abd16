"""Cache: blocks of objects on disks of this machine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from . import _stoker
from ._options import parse_bytes
from .errors import ArgumentError
from .pickling import Portable

__all__ = ["Cache", "cache_of"]

LIST, VERIFY, DROP, PIN, UNPIN = range(5)


class Cache(Portable):
    """Blocks of objects (``s3://``, ``gs://``, ``az://``, ``hf://``, ``https://``) in folders of
    local disks, which all processes of this user share: each block is downloaded once. It stays
    when the processes end. Pass it to :class:`Engine` or to loaders; see docs/cache.md.

    Args:
        path: a folder on a local disk, or several, one a disk. The last part of a path is made. A
            folder must belong to this user and be empty, if it is not a cache yet.
        bytes: quota of all folders together, with all metadata: ``"800GB"``. It applies to all
            processes from now on. Default: as before; of a new folder all free space but ``free``.
        free: bytes that each disk keeps free, even if others fill it. Default: 5 % of it.
        block: bytes of a block of a new folder, 32 KiB to 8 MiB. Default: 4 MiB.
        must_exist: fail if a folder is not a cache yet.

    Raises:
        ArgumentError, IOError, UnsupportedError: the folder belongs to another user, holds other
            files, is on a network file system, or was made by a newer version; the quota is below
            one block. A disk that is full, read-only or fails is no error: objects are then read
            from their stores, and :meth:`stats` counts it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        bytes: int | str | None = None,
        free: int | str | None = None,
        block: int | str | None = None,
        must_exist: bool = False,
    ) -> None:
        many = [path] if isinstance(path, (str, os.PathLike)) else list(path)
        self._native = _stoker.Cache(
            tuple(os.fsencode(each) for each in many),
            bytes_max=parse_bytes(bytes, "Cache bytes"),
            free_bytes=parse_bytes(free, "Cache free"),
            block_bytes=parse_bytes(block, "Cache block"),
            must_exist=bool(must_exist),
        )

    def stats(self) -> dict[str, int]:
        """Counters of this process: ``hits`` and ``misses`` (reads within a block),
        ``bytes_from_cache``, ``bytes_from_origin``, ``blocks_filled`` (downloaded by this process),
        ``waits`` (for a block that another process downloaded), ``bypasses`` (reads that went to
        the store, without space or with a failed disk), ``blocks_dropped`` (damaged on the disk),
        ``blocks_evicted``, ``disk_failures``. Of all processes: ``bytes_used``, ``bytes_max``."""
        return self._native.stats()

    def folders(self) -> list[dict[str, Any]]:
        """For each folder ``path``, ``bytes_used``, ``bytes_max``, ``blocks``, ``blocks_filling``,
        ``blocks_pinned``, ``block_bytes``, ``status`` (0, or the negative errno of its disk)."""
        return self._native.folders()

    def ls(self, url: str = "") -> list[dict[str, Any]]:
        """The cached versions of objects whose URLs begin with ``url``: dicts of ``url``, ``etag``,
        ``object_bytes``, ``bytes``, ``blocks``, ``blocks_pinned``, ``blocks_damaged``."""
        return self._native.report(LIST, url)

    def verify(self, url: str = "") -> list[dict[str, Any]]:
        """Reads the blocks, and drops damaged ones. Returns a list, as :meth:`ls` does."""
        return self._native.report(VERIFY, url)

    def drop(self, url: str = "") -> list[dict[str, Any]]:
        """Removes the blocks of these objects. Returns a list of them, as :meth:`ls` does."""
        return self._native.report(DROP, url)

    def pin(self, url: str, pinned: bool = True) -> list[dict[str, Any]]:
        """Protects cached blocks of these objects from eviction; ``pinned=False`` ends that."""
        return self._native.report(PIN if pinned else UNPIN, url)

    def collect(self) -> int:
        """Frees unfinished blocks of killed processes, and evicts blocks until the quota holds.

        Returns the number of freed blocks.
        """
        return self._native.collect()

    def close(self) -> None:
        """Closes the cache. Engines that use the cache keep it open."""
        self._native.close()

    def __enter__(self) -> Cache:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def cache_of(cache: Any, where: str, cache_bytes: int | str | None = None) -> Cache | None:
    """The cache for an option: a Cache, a path, or several paths."""
    if cache is None or isinstance(cache, Cache):
        if cache_bytes is not None:
            raise ArgumentError(
                "cache_bytes= needs the path of a cache", where, "pass bytes= to the Cache"
            )
        return cache
    if isinstance(cache, (str, os.PathLike)) or (
        isinstance(cache, (list, tuple))
        and cache
        and all(isinstance(each, (str, os.PathLike)) for each in cache)
    ):
        return Cache(cache, bytes=cache_bytes)
    raise ArgumentError(
        f"{cache!r} is not a cache", where, "pass a stoker.Cache, a folder, or a list of folders"
    )
