"""diff(): compares two data sets. Native threads read them; the result is an iterator::

    for difference in stoker.diff("train-v1/", "train-v2/"):
        print(difference.kind, difference.key, *difference.members)
"""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn

from . import _stoker
from ._options import refuse_pickle
from .dataset import Dataset
from .engine import Engine, engine_of

__all__ = ["Diff", "Difference", "diff"]


class Difference(NamedTuple):
    """A sample that differs between two data sets."""

    kind: str
    """``"added"``, ``"removed"`` or ``"changed"``."""
    key: str
    sample_a: int | None
    """Its number in each data set; ``None``: it is missing there."""
    sample_b: int | None
    shard_a: str
    """Path of its shard or file; empty: it is missing there."""
    shard_b: str
    members: tuple[str, ...]
    """Members of a changed sample: ``"jpg"`` differs, ``"+txt"`` was added, ``"-json"`` was
    removed; ``"cls?"``: in compressed shards, may differ."""


class Diff:
    """The differences of :func:`diff`: first removed and changed samples in the order of ``a``,
    then added ones in the order of ``b``. A context manager; ``close`` stops the work."""

    def __init__(self, native: _stoker.Diff) -> None:
        self._native = native
        self._progress: dict[str, int] | None = None

    def __iter__(self) -> Diff:
        return self

    def __next__(self) -> Difference:
        if self._progress is not None:
            raise StopIteration
        found = self._native.next()
        if found is None:
            raise StopIteration
        return Difference(*found[:-1], members=tuple(found[-1].split()))

    def progress(self) -> dict[str, int]:
        """Present counts, after ``close`` those at that time: ``samples_a``, ``samples_b``,
        ``samples_done`` (of both), ``bytes`` (read; 0 if indexes have all checksums),
        ``bytes_total``; once ``finished``: ``same``, ``added``, ``removed``, ``changed``."""
        return self._native.progress() if self._progress is None else dict(self._progress)

    def close(self) -> None:
        """Stops the work, as the end of the ``with`` block does."""
        if self._progress is None:
            self._progress = self._native.progress()
        self._native.close()

    def __enter__(self) -> Diff:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        refuse_pickle("Diff")


def diff(a: Any, b: Any, *, reread: bool = False, engine: Engine | None = None) -> Diff:
    """Iterates over the samples that differ between two data sets, or two versions of one.

    Samples are matched by key, and compared by the XXH3-64 of each member: by the checksums of an
    index, or by the bytes if there are none. This finds changes, not forgery. Shards, and the order
    of samples and members, are not compared. If a folder is compared with tars, only images are
    compared, and file names are split as in tars.

    Args:
        a, b: each a :class:`Dataset`, or the source of one.
        reread: read all bytes, even if an index has checksums.
        engine: for data sets that are opened here. Default: the process's engine.
    """
    where = "diff"
    if engine is not None:
        engine_of(engine, where)
    opened = [
        side if isinstance(side, Dataset) else Dataset(side, engine=engine, foreign_index="never")
        for side in (a, b)
    ]
    try:
        return Diff(_stoker.Diff(opened[0]._native, opened[1]._native, reread=bool(reread)))
    finally:
        for given, side in zip((a, b), opened, strict=True):
            if side is not given:
                side.close()  # the comparison keeps the parts that it uses
