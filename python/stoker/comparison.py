"""Which samples of two data sets differ. They are read in native threads, by an iterator::

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
    """A sample that two data sets do not have in common."""

    kind: str
    """``"added"``, ``"removed"`` or ``"changed"``."""
    key: str
    sample_a: int | None
    """Its number in each data set; ``None``: it is not there."""
    sample_b: int | None
    shard_a: str
    """Path of its shard or file; empty: it is not there."""
    shard_b: str
    members: tuple[str, ...]
    """Of a changed one: ``"jpg"`` differs, ``"+txt"`` is new, ``"-json"`` is gone; ``"cls?"``: in
    packed shards, perhaps."""


class Diff:
    """The differences of :func:`diff`: first what was removed or changed, as it lies in ``a``, then
    what was added, as it lies in ``b``. It is a context manager; ``close`` ends the work."""

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
        """Counts so far, and after ``close`` those at its time: ``samples_a``, ``samples_b``,
        ``samples_done`` (of both), ``bytes`` (read; 0 where indexes have all checksums),
        ``bytes_total``; once ``finished``: ``same``, ``added``, ``removed``, ``changed``."""
        return self._native.progress() if self._progress is None else dict(self._progress)

    def close(self) -> None:
        """Ends the work in hand. Leaving the ``with`` does it too."""
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
    """Iterates over the samples that two data sets, or two versions of one, do not have in common.

    Samples are matched by key and compared by the XXH3-64 of each member: an index's checksums,
    and where there are none the bytes. It finds changes, not forgery. Shards and the order of
    samples and members do not count. Of a folder beside tars only pictures are compared, and a
    file's name is split as a tar's.

    Args:
        a, b: each a :class:`Dataset`, or what one is made of.
        reread: read all bytes, whatever an index says.
        engine: of data sets that are opened here. Default: the process's.
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
                side.close()  # the comparison keeps what it uses
