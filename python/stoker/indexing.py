"""index(): writes or updates the index file of a data set."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

from . import _stoker, fsspec_source
from ._options import parse_bytes, paths_of, sample_limits
from .engine import Engine, engine_of
from .errors import ArgumentError

__all__ = ["IndexReport", "index"]


class IndexReport(NamedTuple):
    """Progress or result of :func:`index`."""

    path: str
    """Path of the index file."""
    shards: int
    """Number of shards, or of files of a folder."""
    shards_kept: int
    """Shards that were not read, because the entries of an earlier run are up to date."""
    shards_done: int
    """Shards that were read."""
    bytes: int
    """Bytes of shards to read."""
    bytes_done: int
    bytes_read: int
    samples: int
    members: int
    index_bytes: int
    seconds: float
    shards_packed: int = 0
    """Compressed shards."""
    shards_sequential: int = 0
    """Compressed shards without seek points: they make the complete data set sequential."""
    sequential_shard: str | None = None
    """The first such shard."""
    sequential_reason: str | None = None
    """The reason, and what to do."""


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
    """Writes the index file of a data set, or updates it, so that the data set opens at once.

    Entries of unchanged shards are reused. If a run was stopped or killed, the next one continues.
    The bytes of the file do not depend on the number of threads.

    Args:
        source: see :class:`Dataset`.
        checksums: read all bytes once, and store a checksum (XXH3-64) of each member and the
            SHA-256 of each shard.
        labels: store the numbers of ``.cls`` members.
        seek_points: store seek points of gz and zstd shards, where decompression can begin, so that
            they can be read in any order and shuffled: the distance in decompressed bytes (at least
            64 KiB), or ``True`` for 1 MiB. zstd can only be entered at its frames; these are always
            stored. ``shards_sequential`` of the report counts shards without seek points.
        force: read everything again.
        out: path of the index file. Default: ``stoker.index`` in the common folder of the shards,
            or in the cache if that folder cannot be written.
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
        **sample_limits(
            where,
            key_bytes_max=key_bytes_max,
            header_bytes_max=header_bytes_max,
            member_gap_max=member_gap_max,
        ),
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
        raise ArgumentError(
            f"{value!r} is not a distance of seek points",
            where,
            "pass at least 65536 bytes, or True",
        )
    return number


def _report(native: dict[str, Any]) -> IndexReport:
    values = {name: native[name] for name in IndexReport._fields if name in native}
    values["path"] = values["path"] or ""
    return IndexReport(**values, seconds=native["elapsed_ns"] / 1e9)
