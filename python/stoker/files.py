"""Files of this machine and objects of stores by their names: copied, removed, listed, read.

What the command does as ``stoker cp``, ``sync``, ``rm``, ``ls --files``, ``stat`` and ``cat``::

    stoker.cp("train/", "s3://bucket/train", recursive=True)
    for file in stoker.ls("s3://bucket/train", recursive=True):
        print(file.bytes, file.name)
    head = stoker.cat("s3://bucket/train/0.tar", 0, 512)

Names are paths, ``s3://bucket/key``, ``gs://``, ``az://``, ``hf://`` and ``http(s)://``; and URLs
that fsspec knows (``sftp://host/path``, ``memory://``), which are slower, for each byte passes
Python.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from . import _stoker, fsspec_copy, fsspec_remove, fsspec_source
from ._options import count, interruptible, parse_bytes, paths_of, word
from .engine import Engine, engine_of, prices
from .errors import ArgumentError, EmptyError

__all__ = [
    "CopyReport",
    "FileInfo",
    "Location",
    "cat",
    "cp",
    "location",
    "ls",
    "rm",
    "stat",
    "sync",
]

_CHECKS = {
    "auto": _stoker.CHECK_AUTO,
    "crc64nvme": _stoker.CHECK_CRC64NVME,
    "crc32c": _stoker.CHECK_CRC32C,
    "sha256": _stoker.CHECK_SHA256,
    "md5": _stoker.CHECK_MD5,
}
_TICK_MS = 200
_DAY_S = 86400
_PAGE = 1000  # names of a walk, brought over at a time


class FileInfo(NamedTuple):
    """A file, folder or object."""

    name: str
    """As it was asked for; of :func:`ls` its name below what is listed."""
    kind: str
    """``"file"``, ``"folder"`` or ``"other"``."""
    bytes: int
    """Of files."""
    modified: float | None
    """Seconds since 1970; ``None``: not known."""
    etag: str
    """As the server tells it, with its quotes; or empty."""
    storage_class: str = ""
    """Of :func:`stat`: as the store calls it; empty: its usual one, or not told."""
    archive: str = ""
    """Of :func:`stat`: ``"archived"``, ``"being restored"``, ``"restored"``; empty: none of it."""
    restored_until: float | None = None
    """Seconds since 1970; ``None``: not told."""


class CopyReport(NamedTuple):
    """What a copy did, or has done so far."""

    files: int
    """Found so far; all there are once ``listed`` is true."""
    bytes: int
    files_done: int
    """With those that were kept."""
    bytes_done: int
    files_kept: int
    """Were there already, by an earlier run or by ``update``."""
    bytes_kept: int
    files_removed: int
    files_failed: int
    links_left_out: int
    """Links out of the source and to folders; devices, pipes."""
    files_spared: int
    """Not removed by ``delete``: there, or above, the source has such a link, device or pipe."""
    listed: bool
    seconds: float


class Location(NamedTuple):
    """Where a bucket is, and where this machine is."""

    kind: str
    """``"near"``; ``"other zone"``, ``"other region"``, ``"other cloud"``; or ``"unknown"``."""
    service: str
    """``"S3"``, ``"S3 Express"``, ``"Google Cloud Storage"``; or empty: of none that tells."""
    bucket_region: str
    bucket_zone: str
    bucket_from: str
    """Who told it, or why nobody did."""
    machine_cloud: str
    machine_region: str
    machine_zone: str
    machine_from: str
    what: str
    """Of the others, in words; with reason and advice."""
    reason: str
    advice: str
    dollars_per_gb: float
    """Dollars that 10^9 bytes cost on their way, by ``store_prices.json`` or ``STOKER_PRICES``."""


_KINDS = ("unknown", "near", "other zone", "other region", "other cloud")
_PRICES = {"other region": "other_region", "other cloud": "outside"}
Progress = Callable[[CopyReport], object]


def cp(
    source: Any,
    destination: str | os.PathLike[str],
    *,
    recursive: bool = False,
    update: bool = False,
    no_clobber: bool = False,
    workers: int | None = None,
    part_bytes: int | str | None = None,
    memory: int | str | None = None,
    check: str = "auto",
    storage_class: str | None = None,
    encryption: str | None = None,
    encryption_key: str | None = None,
    encryption_context: str | None = None,
    progress: Progress | None = None,
    engine: Engine | None = None,
) -> CopyReport:
    """Copies files and objects, from anywhere to anywhere that can be written.

    No name ever holds half a file. A copy that was killed goes on, when it is made again, with the
    parts of large files that it had.

    Args:
        source: a path or URL, or several; with braces and globs (``{00..09}``, ``*.tar``), unless
            something has that very name. A folder comes below the destination with what is in it,
            without its own name.
        destination: a name; or a folder, if it is one, ends in ``/``, or several sources are named.
        recursive: folders are taken with all below them.
        update: leave out what is there in the same size and no older.
        no_clobber: what is there is never replaced: :class:`FileExistsError`.
        workers: files or parts at once. Default 128, between local folders 2 a core, files to
            URLs of fsspec 8.
        part_bytes: of larger files; default 8 MiB. memory: for parts in flight; default 256 MiB.
        check: how a store proves what arrives: ``"auto"``, ``"crc64nvme"``, ``"crc32c"``,
            ``"sha256"`` or ``"md5"``. What is written by fsspec is compared by its size, and with
            ``"sha256"`` or ``"md5"`` read back.
        storage_class: of new objects. encryption, encryption_key, encryption_context:
            ``"AES256"``; ``"aws:kms"``, its key, and its context, an object of JSON with texts.
            Keys of one's own (SSE-C) are named, for reading too, by ``STOKER_SSE_C_KEY_FILE``.
        progress: called with a :class:`CopyReport` about five times a second, and at the end.
    Raises:
        Error: what failed first; what did not depend on it is done. ``progress`` was told of it.
    """
    return _run(
        _stoker.COPY,
        source,
        destination,
        progress,
        engine,
        recursive=bool(recursive),
        update=bool(update),
        no_clobber=bool(no_clobber),
        encryption=encryption,
        encryption_key=encryption_key,
        encryption_context=encryption_context,
        **_settings("cp", workers, part_bytes, memory, check, storage_class),
    )


def sync(
    source: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    *,
    delete: bool = False,
    workers: int | None = None,
    part_bytes: int | str | None = None,
    memory: int | str | None = None,
    check: str = "auto",
    storage_class: str | None = None,
    encryption: str | None = None,
    encryption_key: str | None = None,
    encryption_context: str | None = None,
    progress: Progress | None = None,
    engine: Engine | None = None,
) -> CopyReport:
    """Makes a folder or prefix like another: copies what is new or changed.

    What is there in the same size and no older stays.

    Args:
        delete: remove what the source does not have, once all is copied; never after a failure.

    The others are as of :func:`cp`.
    """
    return _run(
        _stoker.SYNC,
        source,
        destination,
        progress,
        engine,
        delete_extra=bool(delete),
        encryption=encryption,
        encryption_key=encryption_key,
        encryption_context=encryption_context,
        **_settings("sync", workers, part_bytes, memory, check, storage_class),
    )


def rm(
    paths: Any,
    *,
    recursive: bool = False,
    unfinished_uploads: bool = False,
    older_than: float | None = None,
    progress: Progress | None = None,
    engine: Engine | None = None,
) -> CopyReport:
    """Removes files and objects; asks nobody.

    Args:
        recursive: folders and prefixes with all below them, and what patterns match.
        unfinished_uploads: not objects, but uploads below the paths that nobody ended and that are
            older than ``older_than`` seconds (default a day).
    """
    age = 0 if older_than is None else count(int(older_than), "rm older_than", low=1)
    return _run(
        _stoker.REMOVE,
        paths,
        None,
        progress,
        engine,
        recursive=bool(recursive),
        unfinished_uploads=bool(unfinished_uploads),
        unfinished_age_s=age,
    )


def stat(path: str | os.PathLike[str], *, engine: Engine | None = None) -> FileInfo:
    """What a path or URL names, or the only one that a pattern stands for; archived objects too.
    FileNotFoundError where there is nothing."""
    native = native_of(engine, "stat")
    shown, name = _only(native, path, "stat")
    return look(native, name)._replace(name=os.fsdecode(shown))


def location(url: str, *, engine: Engine | None = None) -> Location:
    """Where the bucket of a URL is, and where this machine is, and what it costs that they differ.

    Asks the bucket, and the metadata of the machine's cloud, which takes a second where there are
    none (``AWS_EC2_METADATA_DISABLED=true``: nobody is asked). Of an endpoint of one's own, and of
    stores that do not tell, ``kind`` is ``"unknown"``. Nothing asks this unbidden.
    """
    native = native_of(engine, "location")
    name = paths_of(url)[0]
    told = interruptible(lambda: _stoker.location(native, name))
    kind = _KINDS[told.pop("kind")]
    row = prices().get("gs" if told["service"].startswith("Google") else "s3", {})
    return Location(kind, **told, dollars_per_gb=row.get(_PRICES.get(kind, ""), 0.0))


def ls(
    path: str | os.PathLike[str], *, recursive: bool = False, engine: Engine | None = None
) -> Iterator[FileInfo]:
    """What lies below a folder or prefix, in no certain order; of a file, itself with an empty
    name. All below it (``recursive``; then only files), or what lies directly there, with folders.

    Braces and globs stand for names (``s3://bucket/{00..09}/*.tar``), unless something has that
    very name: then all that matches is listed, each in full: ``s3://bucket/00/a.tar``.

    S3 is listed by several threads, each with a part of the keys.
    """
    native = native_of(engine, "ls")
    pattern, names = _there(native, _native(path))
    if not pattern:
        return walk(native, names[0], bool(recursive))
    return _walk_all(native, names, bool(recursive))


def cat(
    path: str | os.PathLike[str],
    start: int | None = None,
    end: int | None = None,
    *,
    engine: Engine | None = None,
) -> bytes:
    """The bytes of a file from ``start`` up to ``end``, as of a slice. Large ranges of objects are
    fetched as several, side by side. A pattern may stand for one file."""
    native = native_of(engine, "cat")
    name = _only(native, path, "cat")[1]

    def read() -> bytes:
        file = _stoker.File(native, name)
        try:
            first, last, _ = slice(start, end).indices(file.info()[2])
            (found,) = _stoker.read_ranges([(file, first, max(0, last - first))], 0)
        finally:
            file.close()
        if isinstance(found, BaseException):
            raise found
        return found

    return interruptible(read)


def native_of(engine: Engine | None, where: str) -> _stoker.Engine:
    return engine_of(engine, where)._native


def _settings(
    where: str,
    workers: int | None,
    part_bytes: int | str | None,
    memory: int | str | None,
    check: str,
    storage_class: str | None,
) -> dict[str, Any]:
    return {
        "workers": count(workers, f"{where} workers", low=1, high=256),
        "part_bytes": parse_bytes(part_bytes, f"{where} part_bytes"),
        "memory_bytes": parse_bytes(memory, f"{where} memory"),
        "check": word(check, _CHECKS, f"{where} check"),
        "storage_class": storage_class,
    }


def _run(
    kind: int,
    source: Any,
    destination: Any,
    progress: Progress | None,
    engine: Engine | None,
    **options: Any,
) -> CopyReport:
    where = {_stoker.COPY: "cp", _stoker.SYNC: "sync"}.get(kind, "rm")
    to = b"" if destination is None else _native(destination)
    own = native_of(engine, where)
    sources: Sequence[bytes] = fsspec_source.native_paths(paths_of(source))
    if not options.get("unfinished_uploads"):
        sources = _matches(own, sources, where, kind == _stoker.REMOVE and not options["recursive"])
    if fsspec_source.is_external(to):
        return _copy_out(own, kind, sources, to, progress, **options)
    if kind == _stoker.REMOVE and any(map(fsspec_source.is_external, sources)):
        return _remove_out(own, sources, progress, **options)
    return run(own, kind, sources, to, progress, **options)


def run(
    own: _stoker.Engine,
    kind: int,
    sources: Sequence[bytes],
    to: bytes,
    progress: Progress | None = None,
    **options: Any,
) -> CopyReport:
    """Of these very names."""
    native = _stoker.Copy(own, kind, tuple(sources), to, **options)
    try:
        while True:
            goes_on, told, failure = native.next(_TICK_MS)
            told |= {"listed": bool(told["listed"]), "seconds": told.pop("run_ns") / 1e9}
            report = CopyReport(**told)
            if progress is not None:
                progress(report)
            if failure is not None:
                raise failure
            if not goes_on:
                return report
    finally:
        native.close()


# What a guest's check may be: it has no sums of its own.
_HASHES = {_stoker.CHECK_AUTO: None, _stoker.CHECK_SHA256: "sha256", _stoker.CHECK_MD5: "md5"}
_OF_STORES = ("storage_class", "encryption", "encryption_key", "encryption_context")


def _copy_out(
    own: _stoker.Engine,
    kind: int,
    sources: Sequence[bytes],
    to: bytes,
    progress: Progress | None,
    **options: Any,
) -> CopyReport:
    """To where the library does not write."""
    where = "sync" if kind == _stoker.SYNC else "cp"
    for name in _OF_STORES:
        if options.get(name) is not None:
            raise ArgumentError(f"{name} is of objects in stores", f"{where} {os.fsdecode(to)!r}",
                                "leave it out")
    if options["check"] not in _HASHES:
        raise ArgumentError("fsspec proves nothing by itself", f"{where} check",
                            'say "sha256" or "md5": what was written is read back')
    sync = kind == _stoker.SYNC
    if sync and len(sources) != 1:
        raise ArgumentError("to synchronise is from one folder to another", where,
                            "name one source")
    request = fsspec_copy.CopyRequest(
        sync=sync,
        recursive=sync or options["recursive"],
        update=sync or options["update"],
        no_clobber=options.get("no_clobber", False),
        delete=options.get("delete_extra", False),
        check=_HASHES[options["check"]],
        workers=options["workers"] or fsspec_source.THREADS,
    )
    return _reported(progress, lambda tell: fsspec_copy.copy(own, sources, to, request, tell))


def _remove_out(
    own: _stoker.Engine, paths: Sequence[bytes], progress: Progress | None, **options: Any
) -> CopyReport:
    if not all(map(fsspec_source.is_external, paths)):
        raise ArgumentError("some of these are of stores or of this machine, and some of fsspec",
                            "rm", "remove the ones, then the others")
    age_s = (options["unfinished_age_s"] or _DAY_S) if options["unfinished_uploads"] else None
    return _reported(
        progress, lambda tell: fsspec_remove.remove(own, paths, options["recursive"], age_s, tell))


def _reported(
    progress: Progress | None, run: Callable[[Callable[[dict[str, Any]], object]], None]
) -> CopyReport:
    report = None

    def tell(numbers: dict[str, Any]) -> None:
        nonlocal report
        report = CopyReport(**{**dict.fromkeys(CopyReport._fields, 0), **numbers})
        if progress is not None:
            progress(report)

    run(tell)
    assert report is not None
    return report


def _native(path: Any) -> bytes:
    """As the library is told it."""
    return fsspec_source.native(paths_of(path)[0])


def _matched(native: _stoker.Engine, path: bytes) -> tuple[bool, list[bytes]]:
    """Whether it is a pattern, and what it stands for."""
    if not any(sign in path for sign in b"{*?["):
        return False, [path]
    return interruptible(lambda: _stoker.paths_expand(native, path))


def _there(native: _stoker.Engine, path: bytes) -> tuple[bool, list[bytes]]:
    """The same; what matches nothing is the name of something that is not there."""
    try:
        return _matched(native, path)
    except EmptyError:
        return False, [path]


def _only(native: _stoker.Engine, path: Any, where: str) -> tuple[bytes, bytes]:
    """The only one, as it is shown and as the library is told it."""
    shown = paths_of(path)[0]
    pattern, names = _there(native, fsspec_source.native(shown))
    if len(names) != 1:
        raise ArgumentError(
            f"{len(names)} names match {fsspec_source.shown(fsspec_source.native(shown))!r}",
            where,
            f"{where} is of one; stoker.ls tells of all",
        )
    return (names[0] if pattern else shown), names[0]


def _matches(
    native: _stoker.Engine, paths: Sequence[bytes], where: str, exact: bool
) -> list[bytes]:
    """What braces and globs stand for. exact: each must be the name of something."""
    found: list[bytes] = []
    for path in paths:
        pattern, names = _matched(native, path)
        if pattern and exact:
            raise ArgumentError(
                f"nothing is named {fsspec_source.shown(path)!r}, which is a pattern", where,
                "recursive=True removes what matches it",
            )
        found += names
    return found


def look(native: _stoker.Engine, name: bytes) -> FileInfo:
    """Of this very name, as the library is told it."""
    told = interruptible(lambda: _stoker.stat(native, name))
    return _info((os.fsdecode(name), *told[1:]))


def walk(native: _stoker.Engine, name: bytes, recursive: bool) -> Iterator[FileInfo]:
    """What lies below this very name."""
    return _pages(_stoker.Walk(native, name, recursive))


def _pages(native: _stoker.Walk) -> Iterator[FileInfo]:
    try:
        while (page := native.next(_PAGE)) is not None:
            for item in page:
                yield _info(item)
    finally:
        native.close()


def _walk_all(
    native: _stoker.Engine, names: Sequence[bytes], recursive: bool
) -> Iterator[FileInfo]:
    for name in names:
        shown = os.fsdecode(name)
        for item in walk(native, name, recursive):
            slash = "/" if item.name and not shown.endswith("/") else ""
            yield item._replace(name=f"{shown}{slash}{item.name}")


def _info(item: tuple[str, str, int, int, str, str, str, int]) -> FileInfo:
    name, kind, size, mtime_ns, etag, storage_class, archive, until_ns = item
    return FileInfo(name, kind, size, mtime_ns / 1e9 if mtime_ns else None, etag, storage_class,
                    archive, until_ns / 1e9 if until_ns else None)
