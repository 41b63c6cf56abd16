"""verify(): finds damage in a data set. Native threads read it; the result is an iterator::

    with stoker.verify("train/", deep=True) as check:
        for finding in check:
            print(finding.kind, finding.shard, finding.key, finding.what)
    assert check.progress()["findings"] == 0
"""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn

from . import _stoker, fsspec_source
from ._options import (
    count,
    decompression_limits,
    interruptible,
    parse_bytes,
    paths_of,
    refuse_pickle,
    sample_limits,
)
from .engine import Engine, engine_of

__all__ = ["Finding", "Verify", "verify"]


class Finding(NamedTuple):
    """Damage at one place of a data set."""

    kind: str
    """``"header"``, ``"checksum"``, ``"picture"`` ...: ``stoker help verify`` and stoker.h list
    them."""
    shard: str
    """Path of the tar or file."""
    offset: int | None
    """Offset in the (decompressed) shard; ``None``: not applicable."""
    key: str
    """Key of the sample; empty: not applicable, or unknown."""
    extension: str
    what: str
    advice: str
    status: int
    """Status of the error that a read would return."""
    name: str
    """Name of the status: ``"STOKER_ERROR_CORRUPT"``."""
    note: bool
    """True: unusual, but readable; not counted as damage."""


class Verify:
    """The findings of :func:`verify`, in the order of the shards; a finding is returned as soon as
    all earlier shards are read. A context manager; ``close`` stops the work."""

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
        """Present counts, after ``close`` those at that time: ``shards``, ``shards_total``,
        ``bytes``, ``bytes_total`` (0: unknown), ``samples``, ``members``, ``findings``,
        ``notes``, ``findings_kept`` (at most ``findings_max``), ``repaired`` (shards or files),
        ``dropped`` (samples that the repair left out), ``unproven`` (samples that it kept although
        no checksum verifies them)."""
        return self._native.progress() if self._progress is None else dict(self._progress)

    def close(self) -> None:
        """Stops the work, as the end of the ``with`` block does."""
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
    """Reads all bytes of a data set, and iterates over the damage found.

    It checks tar headers, padding and ends, keys, headers and ends of images; and compares with the
    SHA-256 of each shard in ``stoker.manifest.json`` and the checksums of each member in
    ``stoker.index``, if there are any. It continues after damage. Damage is returned as
    :class:`Finding`; exceptions mean that the work cannot continue: no memory, no data, a repair
    that cannot be written.

    Args:
        source: see :class:`Dataset`.
        deep: decode every image; any warning of the decoder counts.
        repair: write damaged shards again without the damaged samples; the old shard stays as
            ``SHARD.original``. Damaged files of a folder ``ROOT`` are moved to ``ROOT.bad``. After
            a kill the next repair finishes the work. Iterate to the end: shards are replaced after
            all are read.
        keep_unverified: with ``repair``: if only a checksum of the compression (gzip, zstd, xz) is
            wrong, either the checksum or the bytes may be damaged. By default samples under it are
            left out, unless they have their own checksums (PNG by its CRCs; an index with
            checksums). With this option they are kept; a note and ``progress()["unproven"]``
            count them.
        findings_max: number of findings to keep; more are only counted. Default: 10,000.
        engine: default: the process's engine.
        pixels_max, decode_bytes_max: limits of an image, see :class:`Loader`.
        key_bytes_max, header_bytes_max, member_gap_max, decompressed_bytes_max,
            decompression_ratio_max: see :class:`Dataset`.
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
        **sample_limits(
            where,
            key_bytes_max=key_bytes_max,
            header_bytes_max=header_bytes_max,
            member_gap_max=member_gap_max,
        ),
        **decompression_limits(
            where,
            decompressed_bytes_max=decompressed_bytes_max,
            decompression_ratio_max=decompression_ratio_max,
        ),
    }
    return Verify(interruptible(lambda: _stoker.Verify(native, urls, **options)))
