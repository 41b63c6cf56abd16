"""Copies, removes, lists and reads files of this machine and objects of stores.

The functions behind ``stoker cp``, ``sync``, ``rm``, ``ls --files``, ``stat`` and ``cat``::

    stoker.cp("train/", "s3://bucket/train", recursive=True)
    for file in stoker.ls("s3://bucket/train", recursive=True):
        print(file.bytes, file.name)
    head = stoker.cat("s3://bucket/train/0.tar", 0, 512)

Names are paths, ``s3://bucket/key``, ``gs://``, ``az://``, ``hf://`` and ``http(s)://``; and URLs
of fsspec (``sftp://host/path``, ``memory://``), which are slower, since their bytes pass through
Python.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from . import _stoker, fsspec_source
from ._options import count, interruptible, parse_bytes, paths_of, word
from .engine import Engine, engine_of, prices
from .errors import ArgumentError, ChangedError, EmptyError, Error, LimitError

__all__ = [
    "CopyEntry",
    "CopyReport",
    "FileInfo",
    "Location",
    "cat",
    "cp",
    "location",
    "ls",
    "mv",
    "presign",
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
_COMPARE = {
    "time": _stoker.COMPARE_TIME,
    "size": _stoker.COMPARE_SIZE,
    "checksum": _stoker.COMPARE_CHECKSUM,
}
_NOTES = {
    _stoker.NOTE_FAILED: "failed",
    _stoker.NOTE_LEFT_OUT: "left out",
    _stoker.NOTE_SYSTEM_FILE: "system file",
    _stoker.NOTE_NOT_DELETED: "not deleted",
    _stoker.NOTE_WOULD_COPY: "would copy",
    _stoker.NOTE_WOULD_REMOVE: "would remove",
}
_NOTED_FAILURES = 20  # that an exception names
_TICK_MS = 200
_DAY_S = 86400
_UNSIZED_MAX, _UNSIZED_STEP = 64 << 20, 1 << 20  # of files that report no size
_PAGE = 1000  # entries of a walk in one call


class FileInfo(NamedTuple):
    """A file, folder or object."""

    name: str
    """The name that was passed; for :func:`ls` the name relative to the listed folder."""
    kind: str
    """``"file"``, ``"folder"`` or ``"other"``."""
    bytes: int
    """Size of a file."""
    modified: float | None
    """Seconds since 1970; ``None``: unknown."""
    etag: str
    """The server's ETag, with its quotes; or empty."""
    storage_class: str = ""
    """From :func:`stat`: the store's name; empty: the default class, or not reported."""
    archive: str = ""
    """From :func:`stat`: ``"archived"``, ``"being restored"``, ``"restored"``; else empty."""
    restored_until: float | None = None
    """Seconds since 1970; ``None``: not reported."""


class CopyEntry(NamedTuple):
    """What happened to one file of a copy, or what a dry run would do."""

    kind: str
    """``"failed"``; ``"left out"``: a link out of the source or to a folder, a device or pipe;
    ``"not deleted"``: by ``delete``, because the source has such an entry there; ``"would copy"``
    and ``"would remove"``: of a dry run; ``"system file"``: left out, see ``system_files``."""
    name: str
    to: str = ""
    """The destination of ``"would copy"``."""
    error: Exception | None = None
    """The reason of ``"failed"``."""


class CopyReport(NamedTuple):
    """Progress or result of a copy."""

    files: int
    """Files found so far; all of them once ``listed`` is true."""
    bytes: int
    files_done: int
    """Files that are done, including those that were already there."""
    bytes_done: int
    files_kept: int
    """Files that were already there, from an earlier run or by ``update``."""
    bytes_kept: int
    files_removed: int
    files_failed: int
    links_left_out: int
    """Links that leave the source or lead to folders; devices, pipes."""
    files_spared: int
    """Files that ``delete`` did not remove, because the source has such a link, device or pipe at
    the same path or above it."""
    listed: bool
    seconds: float
    entries: tuple[CopyEntry, ...] = ()
    """Each file that failed, was left out or was not deleted, and all files of a dry run: of the
    last report of a run. At most 10,000 of one moment; the numbers count all."""
    system_files_left_out: int = 0
    """Files of operating systems and notebooks that ``system_files=False`` left out."""


class Location(NamedTuple):
    """The location of a bucket, and of this machine."""

    kind: str
    """``"near"``; ``"other zone"``, ``"other region"``, ``"other cloud"``; or ``"unknown"``."""
    service: str
    """``"S3"``, ``"S3 Express"``, ``"Google Cloud Storage"``; empty: a store that does not report
    it."""
    bucket_region: str
    bucket_zone: str
    bucket_from: str
    """The source of the value, or the reason why it is unknown."""
    machine_cloud: str
    machine_region: str
    machine_zone: str
    machine_from: str
    what: str
    """For the other kinds: a sentence, with reason and advice."""
    reason: str
    advice: str
    dollars_per_gb: float
    """Dollars to transfer 10^9 bytes, by ``store_prices.json`` or ``STOKER_PRICES``."""


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
    compare: str = "time",
    dry_run: bool = False,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    system_files: bool = False,
    files_from: str | os.PathLike[str] | None = None,
    bandwidth: int | str | None = None,
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
    """Copies files and objects from any source to any writable destination.

    A name never refers to an incomplete file. If a copy was interrupted, the same call continues
    it, and reuses uploaded parts of large files.

    Args:
        source: a path or URL, or several; with braces and globs (``{00..09}``, ``*.tar``), unless
            a file has exactly that name. The contents of a folder are copied, without its own name.
        destination: a name; or a folder, if it is one, ends in ``/``, or there are several sources.
        recursive: copy folders with everything below them.
        update: skip files whose destination is equal, see ``compare``.
        no_clobber: never replace a file: :class:`FileExistsError`.
        compare: how ``update`` and :func:`sync` find equal files, beside their sizes. ``"time"``:
            a local copy has the time of its source, an object is not older; in doubt their
            checksums are compared. ``"size"``: nothing else. ``"checksum"``: the checksums that a
            store reports, without reading the object, and those of local files.
        dry_run: change nothing; ``entries`` of the report lists the files to copy and to remove.
        include, exclude: patterns of files below the source: ``"*.jpg"`` matches names at any
            depth, ``"a/*.jpg"`` and ``"a/**"`` paths. With ``include`` only its matches are copied;
            matches of ``exclude`` are left out, and stay if :func:`sync` deletes.
        system_files: also copy what operating systems and notebooks leave in folders: ``._x``,
            ``.DS_Store``, ``__MACOSX``, ``Thumbs.db``, ``.ipynb_checkpoints``. By default they are
            counted and listed in the report, and not copied; :func:`sync` does not delete them.
        files_from: a file with one path below ``source`` a line (or separated by NUL bytes): only
            these files and folders are copied, and keep their paths.
        bandwidth: bytes a second of all transfers together.
        workers: concurrent files or parts. Default: 128, between local folders 2 for each core, to
            URLs of fsspec 8.
        part_bytes: size of parts of larger files. Default: 8 MiB.
        memory: memory for parts in flight. Default: 256 MiB.
        check: the checksum with which a store verifies the upload: ``"auto"``, ``"crc64nvme"``,
            ``"crc32c"``, ``"sha256"`` or ``"md5"``. For fsspec the sizes are compared, and with
            ``"sha256"`` or ``"md5"`` the copy is read back.
        storage_class: storage class of new objects.
        encryption, encryption_key, encryption_context: ``"AES256"``; or ``"aws:kms"``, its key, and
            its context, a JSON object with texts. For customer keys (SSE-C), also to read, use
            ``STOKER_SSE_C_KEY_FILE``.
        progress: called with a :class:`CopyReport` about five times a second, and at the end.

    Raises:
        Error: the first failure, with notes about the others. Files that do not depend on it were
            copied; ``progress`` received the counts, and ``entries`` that names each failure.
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
        names=_names(files_from, "cp"),
        skip_system_files=not system_files,
        **_selection("cp", compare, dry_run, include, exclude, bandwidth),
        encryption=encryption,
        encryption_key=encryption_key,
        encryption_context=encryption_context,
        **_settings("cp", workers, part_bytes, memory, check, storage_class),
    )


def mv(
    source: Any,
    destination: str | os.PathLike[str],
    *,
    recursive: bool = False,
    no_clobber: bool = False,
    dry_run: bool = False,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    files_from: str | os.PathLike[str] | None = None,
    bandwidth: int | str | None = None,
    workers: int | None = None,
    part_bytes: int | str | None = None,
    memory: int | str | None = None,
    check: str = "auto",
    storage_class: str | None = None,
    progress: Progress | None = None,
    engine: Engine | None = None,
) -> CopyReport:
    """Moves files and objects: copies each, as :func:`cp` does, then removes its source.

    A source is removed once its copy is complete, if it did not change meanwhile. On one file
    system files are renamed. Folders are removed if they are empty afterwards.

    For the arguments see :func:`cp`.
    """
    return _run(
        _stoker.MOVE,
        source,
        destination,
        progress,
        engine,
        recursive=bool(recursive),
        no_clobber=bool(no_clobber),
        names=_names(files_from, "mv"),
        **_selection("mv", "time", dry_run, include, exclude, bandwidth),
        **_settings("mv", workers, part_bytes, memory, check, storage_class),
    )


def sync(
    source: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    *,
    delete: bool = False,
    compare: str = "time",
    dry_run: bool = False,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    system_files: bool = False,
    bandwidth: int | str | None = None,
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
    """Makes a folder or prefix equal to another one: copies new and changed files.

    Files that are equal are skipped, see ``compare`` of :func:`cp`.

    Args:
        delete: remove files that the source does not have, after everything was copied; never after
            a failure.

    For the other arguments see :func:`cp`.
    """
    return _run(
        _stoker.SYNC,
        source,
        destination,
        progress,
        engine,
        delete_extra=bool(delete),
        skip_system_files=not system_files,
        **_selection("sync", compare, dry_run, include, exclude, bandwidth),
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
    dry_run: bool = False,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    progress: Progress | None = None,
    engine: Engine | None = None,
) -> CopyReport:
    """Removes files and objects, without confirmation.

    Args:
        recursive: folders and prefixes with everything below them, and all matches of patterns.
        unfinished_uploads: remove, instead of objects, unfinished uploads below the paths that are
            older than ``older_than`` seconds (default: a day).
        dry_run, include, exclude: see :func:`cp`.

    Symbolic links are removed, never their targets.
    """
    age = 0 if older_than is None else count(math.ceil(older_than), "rm older_than", low=1)
    return _run(
        _stoker.REMOVE,
        paths,
        None,
        progress,
        engine,
        recursive=bool(recursive),
        unfinished_uploads=bool(unfinished_uploads),
        unfinished_age_s=age,
        **_selection("rm", "time", dry_run, include, exclude, None),
    )


def presign(
    url: str | os.PathLike[str],
    *,
    method: str = "GET",
    expires: float = 3600,
    engine: Engine | None = None,
) -> str:
    """Signs the URL of an object of S3. The signed URL reads the object (``method="GET"``) or
    writes it (``"PUT"``) without credentials, for ``expires`` seconds, at most a week, and not
    longer than the credentials are valid. It is a secret for that time."""
    native = native_of(engine, "presign")
    put = word(method, {"GET": 0, "PUT": 1}, "presign method") == 1
    seconds = count(math.ceil(expires), "presign expires", low=1, high=604_800)
    return interruptible(lambda: _stoker.presign(native, _native(url), seconds, put))


def stat(path: str | os.PathLike[str], *, engine: Engine | None = None) -> FileInfo:
    """Kind, size and version of a path or URL, or of the only match of a pattern; also of archived
    objects. Raises FileNotFoundError if there is no such file."""
    native = native_of(engine, "stat")
    shown, name = _only(native, path, "stat")
    return look(native, name)._replace(name=os.fsdecode(shown))


def location(url: str, *, engine: Engine | None = None) -> Location:
    """The location of the bucket of a URL and of this machine, and the cost of a transfer.

    Sends requests to the bucket, and to the metadata service of the machine's cloud, which takes a
    second where there is none (``AWS_EC2_METADATA_DISABLED=true`` prevents it). For custom
    endpoints, and for stores that do not report a location, ``kind`` is ``"unknown"``. No other
    function sends these requests.
    """
    native = native_of(engine, "location")
    name = paths_of(url)[0]
    found = interruptible(lambda: _stoker.location(native, name))
    kind = _KINDS[found.pop("kind")]
    row = prices().get("gs" if found["service"].startswith("Google") else "s3", {})
    return Location(kind, **found, dollars_per_gb=row.get(_PRICES.get(kind, ""), 0.0))


def ls(
    path: str | os.PathLike[str], *, recursive: bool = False, engine: Engine | None = None
) -> Iterator[FileInfo]:
    """Lists a folder or prefix in no particular order; for a file, yields it with an empty name.
    ``recursive``: all files below it; else its direct entries, including folders.

    Braces and globs match names (``s3://bucket/{00..09}/*.tar``), unless a file has exactly that
    name: then all matches are listed with their full names: ``s3://bucket/00/a.tar``.

    Several threads list S3, each a part of the keys. ``"s3://"`` lists the buckets of the
    credentials, as folders.
    """
    native = native_of(engine, "ls")
    if os.fspath(path) in ("s3://", b"s3://"):
        names = interruptible(lambda: _stoker.buckets_list(native, b"s3://"))
        return (FileInfo(name, "folder", 0, None, "") for name in names)
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
    """The bytes of a file from ``start`` up to ``end``, as in a slice. Large ranges of objects are
    fetched as several ranges in parallel. A pattern must match one file."""
    native = native_of(engine, "cat")
    name = _only(native, path, "cat")[1]

    def read() -> bytes:
        try:
            return read_once()
        except ChangedError:  # the metadata were those of an earlier object
            return read_once()

    def read_once() -> bytes:
        file = _stoker.File(native, name)
        try:
            size = file.info()[2]
            if size == 0 and b"://" not in name:
                return _read_unsized(file)[slice(start, end)]
            first, last, _ = slice(start, end).indices(size)
            (found,) = _stoker.read_ranges([(file, first, max(0, last - first))], 0)
        finally:
            file.close()
        if isinstance(found, BaseException):
            raise found
        return found

    return interruptible(read)


def _read_unsized(file: _stoker.File) -> bytes:
    """A local file that reports no size, as those of /proc and /sys, to its end."""
    data, step = bytearray(), bytearray(_UNSIZED_STEP)
    while len(data) < _UNSIZED_MAX:
        got = file.readinto(len(data), step)
        if not got:
            return bytes(data)
        data += step[:got]
    raise LimitError("a file without a size has no end", "cat", "read at most 64 MiB of it")


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


def _selection(
    where: str,
    compare: str,
    dry_run: bool,
    include: Sequence[str],
    exclude: Sequence[str],
    bandwidth: int | str | None,
) -> dict[str, Any]:
    for name, patterns in (("include", include), ("exclude", exclude)):
        if isinstance(patterns, (str, bytes)):
            raise ArgumentError(f"{name} is one pattern, not a list", where,
                                f"pass {name}=[{patterns!r}]")
    filters = [b"+" + os.fsencode(pattern) for pattern in include]
    filters += [b"-" + os.fsencode(pattern) for pattern in exclude]
    return {
        "compare": word(compare, _COMPARE, f"{where} compare"),
        "dry_run": bool(dry_run),
        "filters": tuple(filters),
        "bytes_per_second_max": parse_bytes(bandwidth, f"{where} bandwidth"),
    }


def _names(path: str | os.PathLike[str] | None, where: str) -> tuple[bytes, ...]:
    """The paths of a list, without empty lines."""
    if path is None:
        return ()
    with open(path, "rb") as file:
        text = file.read()
    names = tuple(name for name in text.split(b"\0" if b"\0" in text else b"\n") if name)
    if not names:
        raise EmptyError("the list of names is empty", f"{where} {os.fspath(path)!r}",
                         "write one path below the source in each line")
    return names


def _run(
    kind: int,
    source: Any,
    destination: Any,
    progress: Progress | None,
    engine: Engine | None,
    **options: Any,
) -> CopyReport:
    where = {_stoker.COPY: "cp", _stoker.SYNC: "sync", _stoker.MOVE: "mv"}.get(kind, "rm")
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
    """Copies exactly these names."""
    native = _stoker.Copy(own, kind, tuple(sources), to, **options)
    entries: list[CopyEntry] = []
    try:
        while True:
            goes_on, counts, failure = native.next(_TICK_MS)
            entries += (CopyEntry(_NOTES[note], *more) for note, *more in native.notes())
            counts |= {"listed": bool(counts["listed"]), "seconds": counts.pop("run_ns") / 1e9}
            over = failure is not None or not goes_on
            report = CopyReport(**counts, entries=tuple(entries) if over else ())
            if progress is not None:
                progress(report)
            if failure is not None:
                _with_others(failure, report)
                raise failure
            if not goes_on:
                return report
    finally:
        native.close()


def _with_others(failure: BaseException, report: CopyReport) -> None:
    """Adds a note for each of the other failures to the first one."""
    others = [entry.error for entry in report.entries if entry.error is not None]
    others = [error for error in others if str(error) != str(failure)]
    for error in others[:_NOTED_FAILURES]:
        failure.add_note(f"also failed: {error}")
    if len(others) > _NOTED_FAILURES:
        failure.add_note(f"also failed: {len(others) - _NOTED_FAILURES} more files")


# The values of check= for fsspec, which has no checksums of its own.
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
    """A copy to a URL that the library cannot write."""
    where = "sync" if kind == _stoker.SYNC else "cp"
    for name in _OF_STORES:
        if options.get(name) is not None:
            raise ArgumentError(
                f"{name} applies to stores only", f"{where} {os.fsdecode(to)!r}", "leave it out"
            )
    if options["check"] not in _HASHES:
        raise ArgumentError("fsspec has no checksums of its own", f"{where} check",
                            'pass "sha256" or "md5": the copy is then read back')
    if kind == _stoker.MOVE:
        raise ArgumentError("mv cannot write through fsspec", f"{where} {os.fsdecode(to)!r}",
                            "copy with stoker.cp, then remove the source with stoker.rm")
    for name in ("filters", "names", "bytes_per_second_max"):
        if options.get(name):
            raise ArgumentError("a copy through fsspec does not select files or limit bandwidth",
                                f"{where} {os.fsdecode(to)!r}", "leave this option out")
    if options["compare"] == _stoker.COMPARE_CHECKSUM:
        raise ArgumentError("fsspec reports no checksums", f"{where} compare",
                            'pass "time" or "size"')
    sync = kind == _stoker.SYNC
    if sync and len(sources) != 1:
        raise ArgumentError("sync has more than one source", where,
                            "pass one source folder")
    from . import fsspec_copy

    request = fsspec_copy.CopyRequest(
        sync=sync,
        recursive=sync or options["recursive"],
        update=sync or options["update"],
        no_clobber=options.get("no_clobber", False),
        delete=options.get("delete_extra", False),
        check=_HASHES[options["check"]],
        workers=options["workers"] or fsspec_source.THREADS,
        by_size=options["compare"] == _stoker.COMPARE_SIZE,
        dry_run=options["dry_run"],
        skip_system_files=options.get("skip_system_files", False),
    )
    return _reported(progress, lambda tell: fsspec_copy.copy(own, sources, to, request, tell))


def _remove_out(
    own: _stoker.Engine, paths: Sequence[bytes], progress: Progress | None, **options: Any
) -> CopyReport:
    from . import fsspec_remove

    if not all(map(fsspec_source.is_external, paths)):
        raise ArgumentError("some of the paths are read through fsspec, the others are not",
                            "rm", "remove them in two calls")
    if options["filters"]:
        raise ArgumentError("a removal through fsspec does not select files", "rm",
                            "leave out include and exclude")
    age_s = (options["unfinished_age_s"] or _DAY_S) if options["unfinished_uploads"] else None
    return _reported(
        progress, lambda tell: fsspec_remove.remove(own, paths, options["recursive"], age_s, tell,
                                                    options["dry_run"]))


def _reported(
    progress: Progress | None, run: Callable[[Callable[[dict[str, Any]], object]], None]
) -> CopyReport:
    report = None

    def tell(numbers: dict[str, Any]) -> None:
        nonlocal report
        entries = tuple(CopyEntry(*entry) for entry in numbers.pop("entries", ()))
        report = CopyReport(
            **{**dict.fromkeys(CopyReport._fields, 0), **numbers, "entries": entries})
        if progress is not None:
            progress(report)

    try:
        run(tell)
    except Error as failure:
        if report is not None:
            _with_others(failure, report)
        raise
    assert report is not None
    return report


def _native(path: Any) -> bytes:
    """The path for the library."""
    return fsspec_source.native(paths_of(path)[0])


def _matched(
    native: _stoker.Engine, path: bytes, no_links: bool = False
) -> tuple[bool, list[bytes]]:
    """True and its matches for a pattern; else False and the path. no_links: wildcards do not enter
    links to folders."""
    if not any(sign in path for sign in b"{*?["):
        return False, [path]
    return interruptible(lambda: _stoker.paths_expand(native, path, no_links))


def _there(native: _stoker.Engine, path: bytes) -> tuple[bool, list[bytes]]:
    """The same; a pattern without matches is the name of a file that does not exist."""
    try:
        return _matched(native, path)
    except EmptyError:
        return False, [path]


def _only(native: _stoker.Engine, path: Any, where: str) -> tuple[bytes, bytes]:
    """The only match, for messages and for the library."""
    shown = paths_of(path)[0]
    pattern, names = _there(native, fsspec_source.native(shown))
    if len(names) != 1:
        raise ArgumentError(
            f"{len(names)} names match {fsspec_source.shown(fsspec_source.native(shown))!r}",
            where,
            f"{where} takes one file; stoker.ls lists all that match",
        )
    return (names[0] if pattern else shown), names[0]


def _matches(
    native: _stoker.Engine, paths: Sequence[bytes], where: str, exact: bool
) -> list[bytes]:
    """Expands braces and globs. exact: each match must be a file's name."""
    found: list[bytes] = []
    for path in paths:
        pattern, names = _matched(native, path, True)
        if pattern and exact:
            raise ArgumentError(
                f"no file has the name {fsspec_source.shown(path)!r}, which is a pattern", where,
                "pass recursive=True to remove all files that match",
            )
        found += names
    return found


def look(native: _stoker.Engine, name: bytes) -> FileInfo:
    """FileInfo of exactly this name."""
    info = interruptible(lambda: _stoker.stat(native, name))
    return _info((os.fsdecode(name), *info[1:]))


def walk(native: _stoker.Engine, name: bytes, recursive: bool) -> Iterator[FileInfo]:
    """Entries below exactly this name."""
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
