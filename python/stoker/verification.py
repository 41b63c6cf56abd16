"""What is damaged in a data set. It is read in native threads, by an iterator::

    with stoker.verify("train/", deep=True) as check:
        for finding in check:
            print(finding.kind, finding.shard, finding.key, finding.what)
    assert check.progress()["findings"] == 0
"""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn

from . import _stoker, fsspec_source
from ._options import count, interruptible, parse_bytes, paths_of, refuse_pickle
from .engine import Engine, engine_of

__all__ = ["Finding", "Verify", "verify"]


class Finding(NamedTuple):
    """What is wrong at one place of a data set."""

    kind: str
    """``"header"``, ``"checksum"``, ``"picture"`` ...: ``stoker help verify`` and stoker.h list
    them."""
    shard: str
    """Path of the tar or file."""
    offset: int | None
    """In the (unpacked) shard; ``None`` if it has no meaning."""
    key: str
    """Of the sample; empty if it has no meaning, or is not known."""
    extension: str
    what: str
    advice: str
    status: int
    """As of the error that reading it would give."""
    name: str
    """Of the status: ``"STOKER_ERROR_CORRUPT"``."""
    note: bool
    """Worth a look, but it reads well: not counted as damage."""


class Verify:
    """The findings of :func:`verify`, in the order of the shards; a finding is given as soon as
    all shards before it are read. It is a context manager; ``close`` ends the work."""

    def __init__(self, native: _stoker.Verify) -> None:
        self._native = native
        self._progress: dict[str, int] | None = None

    def __iter__(self) -> Verify:
        return self

    def __next__(self) -> Finding:
        if self._progress is not None:
            raise StopIteration
        found = self._native.next()
        if found is None:
            raise StopIteration
        return Finding(*found)

    def progress(self) -> dict[str, int]:
        """Counts so far, and after ``close`` those at its time: ``shards``, ``shards_total``,
        ``bytes``, ``bytes_total`` (0: not known), ``samples``, ``members``, ``findings``,
        ``notes``, ``findings_kept`` (at most ``findings_max``), ``repaired`` (shards or files),
        ``dropped`` (samples that repair left out), ``unproven`` (that it kept, though no checksum
        proves them)."""
        return self._native.progress() if self._progress is None else dict(self._progress)

    def close(self) -> None:
        """Ends the work in hand. Leaving the ``with`` does it too."""
        if self._progress is None:
            self._progress = self._native.progress()
        self._native.close()

    def __enter__(self) -> Verify:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        refuse_pickle("Verify")


def verify(
    source: Any,
    *,
    deep: bool = False,
    repair: bool = False,
    keep_unverified: bool = False,
    findings_max: int | None = None,
    engine: Engine | None = None,
    pixels_max: int | None = None,
    decode_bytes_max: int | str | None = None,
    key_bytes_max: int | None = None,
    header_bytes_max: int | str | None = None,
    member_gap_max: int | None = None,
    decompressed_bytes_max: int | str | None = None,
    decompression_ratio_max: int | None = None,
) -> Verify:
    """Reads all bytes of a data set and iterates over what is wrong with them.

    It checks tar headers, padding and ends, keys, headers and ends of pictures, and what there is
    to compare with: the SHA-256 of each shard in ``stoker.manifest.json``, the checksums of each
    member in ``stoker.index``. It goes on after damage. Damage is a :class:`Finding`; exceptions
    are for what ends the work: no memory, nothing there, a repair that cannot be written.

    Args:
        source: as of :class:`Dataset`.
        deep: every picture is decoded; any warning of its library counts.
        repair: damaged shards are written anew without the samples that have the damage; the
            old one stays as ``SHARD.original``. Damaged files of a folder ``ROOT`` move to
            ``ROOT.bad``. Killed at any instant, the next repair ends it. Iterate to the end:
            shards take their names after all are read.
        keep_unverified: with ``repair``: where a checksum of the packing (gzip, zstd, xz) is all
            that is wrong, nobody can tell whether it was damaged or the bytes were. Samples under
            it are left out, but for those that prove themselves (PNG alone, by its CRCs; an index
            with checksums). With this they are kept; a note and ``progress()["unproven"]``
            count them.
        findings_max: so many are kept, the rest is counted. Default 10,000.
        engine: default: the process's.
        pixels_max, decode_bytes_max: bounds of a picture, as of :class:`Loader`.
        key_bytes_max, header_bytes_max, member_gap_max, decompressed_bytes_max,
            decompression_ratio_max: as of :class:`Dataset`.
    """
    where = "verify"
    native = engine_of(engine, where)._native
    urls = fsspec_source.native_paths(paths_of(source))
    options = {
        "deep": bool(deep),
        "repair": bool(repair),
        "keep_unverified": bool(keep_unverified),
        "findings_max": count(findings_max, f"{where} findings_max", low=1, high=2**63),
        "pixels_max": count(pixels_max, f"{where} pixels_max", low=1, high=2**63),
        "decode_bytes_max": parse_bytes(decode_bytes_max, f"{where} decode_bytes_max"),
        "key_bytes_max": count(key_bytes_max, f"{where} key_bytes_max", low=1),
        "header_bytes_max": parse_bytes(header_bytes_max, f"{where} header_bytes_max"),
        "member_gap_max": count(member_gap_max, f"{where} member_gap_max"),
        "decompressed_bytes_max": parse_bytes(
            decompressed_bytes_max, f"{where} decompressed_bytes_max"
        ),
        "decompression_ratio_max": count(
            decompression_ratio_max, f"{where} decompression_ratio_max", low=1
        ),
    }
    return Verify(interruptible(lambda: _stoker.Verify(native, urls, **options)))
