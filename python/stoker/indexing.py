"""The index file of a data set: made, or brought up to date."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

from . import _stoker, fsspec_source
from ._options import count, parse_bytes, paths_of
from .engine import Engine, engine_of
from .errors import ArgumentError

__all__ = ["IndexReport", "index"]


class IndexReport(NamedTuple):
    """What :func:`index` did, or has done so far."""

    path: str
    """Of the index file."""
    shards: int
    """Shards, or files of a folder."""
    shards_kept: int
    """Of those: not read, as an earlier run knew them."""
    shards_done: int
    """Of those: read."""
    bytes: int
    """Of shards to be read."""
    bytes_done: int
    bytes_read: int
    samples: int
    members: int
    index_bytes: int
    seconds: float
    shards_packed: int = 0
    """Compressed shards."""
    shards_sequential: int = 0
    """Of those: can only be read front to back, and make the whole data set so."""
    sequential_shard: str | None = None
    """The first such shard."""
    sequential_reason: str | None = None
    """Why, and what to do."""


def index(
    source: Any,
    *,
    checksums: bool = False,
    labels: bool = False,
    seek_points: bool | int | str = False,
    force: bool = False,
    out: str | os.PathLike[str] | None = None,
    engine: Engine | None = None,
    key_bytes_max: int | None = None,
    header_bytes_max: int | str | None = None,
    member_gap_max: int | None = None,
    progress: Callable[[IndexReport], object] | None = None,
) -> IndexReport:
    """Makes the index file of a data set, or brings it up to date, so that it opens at once.

    Entries of shards that did not change are kept; a run that was stopped, also by a kill, goes on
    where it was. The file has the same bytes whatever the threads.

    Args:
        source: as of :class:`Dataset`.
        checksums: read all bytes, once, and keep a checksum (XXH3-64) of each member and the
            SHA-256 of each shard.
        labels: keep the numbers in ``.cls`` members.
        seek_points: note places in gz and zstd shards where unpacking can begin, so that they are
            read in any order and shuffled: a number of unpacked bytes from one to the next (at
            least 64 KiB), or ``True`` for 1 MiB. zstd can be entered at its frames only; those are
            noted unasked. ``shards_sequential`` of the report counts what cannot be had.
        force: read everything again.
        out: where the file goes. Default: ``stoker.index`` in the folder above all shards; in
            the cache where nothing can be written there.
        progress: called with an :class:`IndexReport` about four times a second.
    """
    where = "index"
    engine = engine_of(engine, where)
    native = _stoker.Indexer(
        engine._native,
        fsspec_source.native_paths(paths_of(source)),
        checksums=bool(checksums),
        labels=bool(labels),
        force=bool(force),
        key_bytes_max=count(key_bytes_max, f"{where} key_bytes_max", low=1),
        header_bytes_max=parse_bytes(header_bytes_max, f"{where} header_bytes_max"),
        member_gap_max=count(member_gap_max, f"{where} member_gap_max"),
        seek_interval_bytes=_seek_interval(seek_points, f"{where} seek_points"),
        **({} if out is None else {"out": paths_of(out)[0]}),
    )
    try:
        goes_on, report = native.next(0)
        while goes_on:
            if progress is not None:
                progress(_report(report))
            goes_on, report = native.next(250)
    finally:
        native.close()
    return _report(report)


def _seek_interval(value: Any, where: str) -> int:
    if isinstance(value, bool):
        return int(value)  # 1: the library's default
    number = parse_bytes(value, where)
    if number < 65536:
        raise ArgumentError(f"{value!r}", where, "give at least 65536 bytes, or True")
    return number


def _report(native: dict[str, Any]) -> IndexReport:
    values = {name: native[name] for name in IndexReport._fields if name in native}
    values["path"] = values["path"] or ""
    return IndexReport(**values, seconds=native["elapsed_ns"] / 1e9)
