"""Copies to URLs of fsspec (``sftp://``, ``ftp://``, ``smb://``, ``memory://`` ...): a part of
:func:`stoker.cp` and ``sync``; ``rm`` uses its threads.

The library reads the sources (``fsspec_source.py``), so a source may be any path or URL. Threads
write one file at a time, each with its own connection::

    lead: finds names --bounded queue--> threads: write, compare, rename --all done--> lead: finish

A file is first written to the same folder under a hidden name (``.stoker-....part``). It is renamed
if the server reports the expected size; so a name never refers to an incomplete file. With
``check`` the file is read back before, and its hash compared. A killed run may leave hidden files
(``rm(..., unfinished_uploads=True)`` removes them); the next run skips complete files (``update``).
"""

from __future__ import annotations

import collections
import errno
import hashlib
import importlib
import os
import posixpath
import threading
import time
import unicodedata
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from . import _stoker, fsspec_source
from .errors import (
    ArgumentError,
    ChangedError,
    CorruptError,
    EmptyError,
    Error,
    TimeoutError,
    TruncatedError,
    UnsupportedError,
    from_native,
)

__all__ = ["CopyRequest", "copy"]

_TICK_S = 0.2
_CLEANUP_S = 1.0  # time for threads to remove unfinished files after a stop
_REQUEST_S = 120.0  # longest time of one request
_BYTES_PER_S_MIN = 1e6  # bytes per second; adds to that time for the bytes that a request copies
_READ_BYTES = 4 << 20  # bytes of one read
_WRITE_BYTES = 256 << 10  # bytes of one write
_PAGE = 1000
_QUEUE_MAX = 4096
_FAILURES_MAX = 100  # then the other files are not copied
_DEPTH_MAX = 200
_NAME_MAX = 255
_STORES = tuple(name + b"://" for name in fsspec_source.OWN if name != b"file")
_HIDDEN, _PART = ".stoker-", ".part"  # walks of the library skip such names
# Errors that a retry with a new connection cannot cure.
_NOT_RETRIED = (Error, FileExistsError, FileNotFoundError, IsADirectoryError, NotADirectoryError,
            NotImplementedError, PermissionError)


class CopyRequest(NamedTuple):
    """Options of a copy; check: the name of a hash of hashlib, or None."""

    sync: bool
    recursive: bool
    update: bool
    no_clobber: bool
    delete: bool
    check: str | None
    workers: int
    by_size: bool = False
    dry_run: bool = False
    skip_system_files: bool = False


class _Item(NamedTuple):
    """A file to copy from source to `to`, or to remove; link: it is a symbolic link."""

    source: bytes
    to: str
    bytes: int = 0
    mtime_ns: int = 0
    link: bool = False


class _Stopped(Exception):
    pass


_SYSTEM_FILES = frozenset(
    (".ds_store", "thumbs.db", "desktop.ini", ".ipynb_checkpoints", "__macosx", ".spotlight-v100",
     ".trashes", ".fseventsd")
)


def _is_system_file(name: str) -> bool:
    """As stk_system_file_in_path in src/base/text/system_file.c."""
    return any(
        (part.startswith("._") and len(part) > 2) or part.lower() in _SYSTEM_FILES
        for part in name.split("/")
    )


def copy(
    engine: _stoker.Engine,
    sources: Sequence[bytes],
    destination: bytes,
    request: CopyRequest,
    progress: Callable[[dict[str, Any]], object],
) -> None:
    """Sources and destination are aliases. progress: called with the counts of a CopyReport."""
    _Copy(engine, sources, os.fsdecode(destination), request).run(progress)


# ---- threads ----


class _Job:
    """A queue of items, the thread that finds them, and the threads that process them."""

    def __init__(self, engine: _stoker.Engine, workers: int) -> None:
        self.engine, self.workers = engine, workers
        self.begun = time.monotonic()
        self.counts: collections.Counter[str] = collections.Counter()
        self.changed = threading.Condition()  # its lock guards all following fields
        self.waiting: collections.deque[_Item] = collections.deque()
        self.busy = 0
        self.steps: dict[int, tuple[float, str]] = {}  # requests by thread: deadline, alias
        self.planned = self.over = self.stopped = False
        self.failure: BaseException | None = None
        self.entries: list[tuple[Any, ...]] = []  # arguments of files.CopyEntry

    def note(self, kind: str, name: str, to: str = "", error: BaseException | None = None) -> None:
        with self.changed:
            self.entries.append((kind, name, to, error))

    def plan(self, client: fsspec_source.Client) -> None:
        """Finds the items; calls put for each."""
        raise NotImplementedError

    def do(self, client: fsspec_source.Client, item: _Item) -> None:
        raise NotImplementedError

    def again(self, client: fsspec_source.Client, item: _Item) -> None:
        """Processes the item again after a lost connection."""
        self.do(client, item)

    def finish(self, client: fsspec_source.Client) -> None:
        """Called after all items, unless one failed."""

    def run(self, progress: Callable[[dict[str, Any]], object]) -> None:
        threads = [threading.Thread(target=self._find_items, name="stoker-copy", daemon=True)]
        threads += [
            threading.Thread(target=self._process_items, name=f"stoker-copy-{number}", daemon=True)
            for number in range(self.workers)
        ]
        for thread in threads:
            thread.start()
        try:
            while not self._tick(progress):
                pass
            if self.failure is not None:
                raise self.failure
        finally:
            with self.changed:
                self.stopped = True
                self.changed.notify_all()
            until = time.monotonic() + _CLEANUP_S
            for thread in threads:
                thread.join(max(0.0, until - time.monotonic()))
            self.failure = None  # its traceback refers to this frame: avoids a reference cycle

    def _tick(self, progress: Callable[[dict[str, Any]], object]) -> bool:
        with self.changed:
            self.changed.wait_for(lambda: self.over, _TICK_S)
            now = time.monotonic()
            for until, alias in self.steps.values():
                if now > until and not self.over:
                    self.failure = self.failure or TimeoutError(
                        f"no response to fsspec within {_REQUEST_S:.0f} s", repr(alias),
                        "check the server; the same command continues the copy",
                    )
                    self.over = True
            progress_now = {**self.counts, "listed": self.planned, "seconds": now - self.begun}
            over = self.over
            if over:
                progress_now["entries"] = list(self.entries)
        progress(progress_now)
        return over

    # ---- used by the threads ----

    def check_running(self) -> None:
        if self.stopped:
            raise _Stopped

    @contextmanager
    def step(self, alias: str, size: int = 0, *, ending: bool = False) -> Iterator[None]:
        """Sets a deadline for a request to fsspec, which may never return. size: bytes that it
        transfers; ending: it may run after a stop, to clean up."""
        if not ending:
            self.check_running()
        me = threading.get_ident()
        with self.changed:
            self.steps[me] = (time.monotonic() + _REQUEST_S + size / _BYTES_PER_S_MIN, alias)
        try:
            yield
        finally:
            with self.changed:
                del self.steps[me]

    def system(
        self, client: fsspec_source.Client, alias: str, *, ending: bool = False
    ) -> tuple[Any, str]:
        with self.step(alias, ending=ending):  # this may connect
            return client.system(alias)

    def writable(self, client: fsspec_source.Client, alias: str) -> tuple[Any, str]:
        if fsspec_source.is_chain(alias):
            raise UnsupportedError("files in an archive or behind a cache are read-only",
                                   repr(alias), "write to the underlying file system")
        system, path = self.system(client, alias)
        if getattr(system, "local_file", False):
            raise ArgumentError("the URL is a path of this machine", repr(alias),
                                "pass the path without file://")
        return system, path

    def info(self, system: Any, path: str, alias: str) -> dict[str, Any] | None:
        with self.step(alias):
            return _info(system, path)

    def count(self, **more: int) -> None:
        with self.changed:
            self.counts.update(more)

    def put(self, item: _Item) -> None:
        with self.changed:
            self.changed.wait_for(lambda: len(self.waiting) < _QUEUE_MAX or self.stopped)
            self.check_running()
            self.waiting.append(item)
            self.changed.notify_all()

    def fail(self, error: BaseException, alias: str) -> None:
        """Records the failure of one item. Others continue, unless they would fail likewise."""
        error = fsspec_source.error_for(error, alias)
        with self.changed:
            self.failure = self.failure or error
            self.entries.append(("failed", alias, "", error))
            self.counts["files_failed"] += 1
            if isinstance(error, UnsupportedError) or self.counts["files_failed"] >= _FAILURES_MAX:
                self.stopped = True
            self.changed.notify_all()

    def _find_items(self) -> None:
        client = fsspec_source.Client()
        try:
            self.plan(client)
        except _Stopped:
            pass
        except BaseException as error:
            with self.changed:
                self.failure = self.failure or fsspec_source.error_for(error, self._subject())
        with self.changed:
            self.planned = True
            self.changed.notify_all()
            self.changed.wait_for(lambda: not self.busy and (not self.waiting or self.stopped))
        client.forget()  # the server may have closed an idle connection
        try:
            if self.failure is None and not self.stopped:
                self.finish(client)
        except _Stopped:
            pass
        except BaseException as error:
            self.failure = fsspec_source.error_for(error, self._subject())
        with self.changed:
            self.over = True
            self.changed.notify_all()
        client.forget()

    def _subject(self) -> str:
        raise NotImplementedError

    def _next_item(self) -> _Item | None:
        with self.changed:
            self.changed.wait_for(lambda: self.waiting or self.planned or self.stopped)
            if self.stopped or not self.waiting:
                return None
            self.busy += 1
            item = self.waiting.popleft()
            self.changed.notify_all()
            return item

    def _process_items(self) -> None:
        client = fsspec_source.Client()
        while (item := self._next_item()) is not None:
            try:
                self._do_with_retry(client, item)
            except _Stopped:
                pass
            except BaseException as error:
                self.fail(error, item.to)
            with self.changed:
                self.busy -= 1
                self.changed.notify_all()
        client.forget()

    def _do_with_retry(self, client: fsspec_source.Client, item: _Item) -> None:
        try:
            return self.do(client, item)
        except (_Stopped, *_NOT_RETRIED):
            raise
        except Exception:
            self.check_running()
        client.forget()  # the connection may be lost: retries once with a new one
        self.again(client, item)


# ---- copying ----


class _Copy(_Job):
    def __init__(
        self, engine: _stoker.Engine, sources: Sequence[bytes], to: str, request: CopyRequest
    ) -> None:
        super().__init__(engine, request.workers)
        self.sources, self.to, self.request = sources, to, request
        self.names: set[str] = set()  # names of copied files
        self.left: set[str] = set()  # names of links and others, which are not copied
        self.making = threading.Lock()
        self.folders: set[str] = set()  # existing folders; guarded by `making`

    def _subject(self) -> str:
        return self.to

    def plan(self, client: fsspec_source.Client) -> None:
        system, path = self.writable(client, self.to)
        there = self.info(system, path, self.to)
        fsspec_source.warn_once(self.to, "written")
        for source in self.sources:
            self._check_nesting(client, source)
        below = self._is_folder_destination(there)
        if below and there is not None and there["type"] != "directory":
            raise _error(errno.ENOTDIR, "the destination is a file, but a folder is copied",
                           self.to, "name a folder")
        for source in self.sources:
            for name, kind, size, mtime_ns, *_ in self.walk(source, 2 * self.request.recursive):
                if self.request.skip_system_files and _is_system_file(name):
                    self.left.add(name)
                    if kind != "directory":
                        self.note("system file", _join(fsspec_source.shown(source), name))
                        self.count(system_files_left_out=1)
                elif kind == "other":
                    self.left.add(name)
                    self.note("left out", _join(fsspec_source.shown(source), name))
                    self.count(links_left_out=1)
                else:
                    self._plan_item(source, name, kind, below, size, mtime_ns)
        if self.request.delete and not self.counts["files"]:
            raise EmptyError(
                "the source is empty, so nothing was removed",
                repr(fsspec_source.shown(self.sources[0])),
                "check the source; use stoker.rm to remove everything",
            )

    def walk(self, path: bytes, deep: int) -> Iterator[tuple[Any, ...]]:
        walk = _stoker.Walk(self.engine, path, deep)
        try:
            while (page := walk.next(_PAGE)) is not None:
                self.check_running()
                yield from page
        finally:
            walk.close()

    def _is_folder_destination(self, there: dict[str, Any] | None) -> bool:
        """True if the destination is a folder for the names."""
        if len(self.sources) > 1 or self.request.sync or self.to.endswith("/"):
            return True
        if there is not None and there["type"] == "directory":
            return True
        return self.request.recursive and any(
            _stoker.stat(self.engine, source)[1] == "folder" for source in self.sources
        )

    def _check_nesting(self, client: fsspec_source.Client, source: bytes) -> None:
        """ArgumentError if source and destination contain each other: the copy would not end, or
        would remove the source."""
        if not self.request.recursive or not fsspec_source.is_external(source):
            return
        a, b = (_tree_key(*self.system(client, alias)) for alias in (os.fsdecode(source), self.to))
        if a[0] != b[0]:
            return
        where = f"{fsspec_source.shown(source)!r} and {self.to!r}"
        if _is_in(b[1], a[1]):
            raise ArgumentError("the destination is inside the source", where,
                                "copy to a path outside the source")
        if self.request.delete and _is_in(a[1], b[1]):
            raise ArgumentError("the source is inside the destination, and would be removed", where,
                                "use a destination outside the source")

    def _plan_item(
        self, source: bytes, name: str, kind: str, below: bool, size: int, mtime_ns: int
    ) -> None:
        shown = fsspec_source.shown(source)
        if self.request.sync and not name:
            raise _error(errno.ENOTDIR, "the source is a file, but sync copies folders", shown,
                           "copy a file with stoker.cp")
        if kind != "file" or (name and not self.request.recursive):
            raise _error(errno.EISDIR, "this is a folder", shown, "copy it with recursive=True")
        base = os.fsdecode(source)
        path = os.fsencode(_join(base, name)) if name else source
        name = name or _base(base)
        if not _is_path(name):
            error: Error = ArgumentError("the name cannot be a path", f"{shown!r} name {name!r}",
                                         "copy it alone, and pass a destination name")
            return self.fail(error, shown)
        if below and name in self.names:
            error = ArgumentError("two sources have the same name", f"{shown!r} name {name!r}",
                                  "copy them to different folders")
            return self.fail(error, shown)
        self.names.add(name)
        self.count(files=1, bytes=size)
        signed = mtime_ns - (1 << 64) if mtime_ns >> 63 else mtime_ns  # a time before 1970
        self.put(_Item(path, _join(self.to, name) if below else self.to, size, signed))

    def do(self, client: fsspec_source.Client, item: _Item) -> None:
        system, path = self.system(client, item.to)
        there = self.info(system, path, item.to)
        if there is not None and there["type"] == "directory":
            raise _error(errno.EISDIR, "a folder has this name", item.to, "use another name")
        if there is not None and self.request.update and (
            there.get("size") == item.bytes if self.request.by_size
            else _is_up_to_date(there, item)
        ):
            self.count(files_done=1, files_kept=1, bytes_done=item.bytes, bytes_kept=item.bytes)
            return
        if there is not None and self.request.no_clobber:
            raise _exists_error(item.to)
        if self.request.dry_run:
            self.note("would copy", fsspec_source.shown(item.source), item.to)
            self.count(files_done=1, bytes_done=item.bytes)
            return
        self._make_folder(system, path.rpartition("/")[0], item.to)
        hidden = f"{path[: path.rfind('/') + 1]}{_HIDDEN}{os.urandom(8).hex()}{_PART}"
        done = 0
        try:
            for bytes_written in self._write(system, hidden, item):
                done += bytes_written
                self.count(bytes_done=bytes_written)
            self._rename(system, hidden, path, item, there is not None)
        except BaseException:
            self.count(bytes_done=-done)
            self._remove_unfinished(client, hidden, item.to)
            raise
        self.count(files_done=1)

    def _make_folder(self, system: Any, folder: str, alias: str) -> None:
        with self.making:  # the next thread finds it
            if folder.strip("/") and folder not in self.folders:
                with self.step(alias):
                    system.makedirs(folder, exist_ok=True)
                self.folders.add(folder)

    def _write(self, system: Any, hidden: str, item: _Item) -> Iterator[int]:
        """Writes the file, and compares its size with the server's; returns the bytes written."""
        source = _stoker.File(self.engine, item.source)
        try:
            begun = source.info()
            size, digest = begun[2], hashlib.new(self.request.check or "md5", usedforsecurity=False)
            if size != item.bytes:
                raise _changed(item)
            with self.step(item.to):
                out = system.open(hidden, "wb")
            try:
                if hasattr(out, "set_pipelined"):  # paramiko: else each 32 KiB needs a round trip
                    out.set_pipelined(True)
                yield from self._transfer(source, out, item, digest)
            except BaseException:
                with suppress(Exception), self.step(item.to, ending=True):
                    out.close()
                raise
            with self.step(item.to, item.bytes):
                out.close()
            # All ranges of a store's object come from the version that was opened.
            if not item.source.lower().startswith(_STORES):
                if begun[1:4] != _stoker.stat(self.engine, item.source)[1:4]:
                    raise _changed(item)
        finally:
            source.close()
        self._compare(system, hidden, item, digest)

    def _transfer(self, source: _stoker.File, out: Any, item: _Item, digest: Any) -> Iterator[int]:
        buffer = memoryview(bytearray(max(1, min(item.bytes, _READ_BYTES))))
        offset = 0
        while offset < item.bytes:
            got = source.readinto(offset, buffer[: item.bytes - offset])
            if got == 0:
                raise _changed(item)
            if self.request.check:
                digest.update(buffer[:got])
            for begin in range(0, got, _WRITE_BYTES):
                piece = bytes(buffer[begin : min(got, begin + _WRITE_BYTES)])
                with self.step(item.to):
                    out.write(piece)
                yield len(piece)
            offset += got

    def _compare(self, system: Any, hidden: str, item: _Item, digest: Any) -> None:
        there = self.info(system, hidden, item.to)
        if there is None or there.get("size") != item.bytes:
            size = "none" if there is None else there.get("size")
            raise TruncatedError(
                f"{item.bytes} bytes were written, but the server has {size}", repr(item.to),
                "check the server, then copy it again",
            )
        if not self.request.check:
            return
        arrived = hashlib.new(self.request.check, usedforsecurity=False)
        with self.step(item.to):
            file = system.open(hidden, "rb")
        with file:
            data = b"-"
            while data:
                with self.step(item.to):
                    data = file.read(_READ_BYTES)
                arrived.update(data)
        if arrived.digest() != digest.digest():
            raise CorruptError(
                f"the server's bytes differ from those written: {self.request.check} "
                f"{arrived.hexdigest()}, not {digest.hexdigest()}", repr(item.to),
                "check the server, then copy it again",
            )

    def _rename(self, system: Any, hidden: str, path: str, item: _Item, there: bool) -> None:
        alias = item.to
        if self.request.no_clobber and self.info(system, path, alias) is not None:
            raise _exists_error(alias)  # another process was faster
        with self.step(alias, item.bytes):
            if _moves(system, hidden, path):
                return
        if not there:
            raise OSError("fsspec could not rename the temporary file")
        # SMB and HDFS do not replace files. The old file stays until the new one has its name.
        aside = f"{hidden.removesuffix(_PART)}-old{_PART}"
        moved = False
        with self.step(alias, item.bytes):
            if _moves(system, path, aside):
                try:
                    moved = _moves(system, hidden, path)
                finally:
                    if not moved:
                        _moves(system, aside, path)
            if not moved:
                raise OSError("fsspec could not rename the temporary file: the destination exists")
            system.rm_file(aside)

    def _remove_unfinished(self, client: fsspec_source.Client, hidden: str, alias: str) -> None:
        """Tries to remove an unfinished file; once more if the connection was lost."""
        for _ in range(2):
            try:
                system = self.system(client, alias, ending=True)[0]
                with self.step(alias, ending=True):
                    if _info(system, hidden) is not None:
                        system.rm_file(hidden)
                return
            except Exception:
                client.forget()

    def finish(self, client: fsspec_source.Client) -> None:
        if not self.request.delete:
            return
        # Servers may return names in another case or Unicode form (SMB, macOS): compares folded
        # names, so that copied files are not removed.
        names, left = ({_folded(name) for name in group} for group in (self.names, self.left))
        for name, kind, *_ in self.walk(os.fsencode(self.to), 1):
            folded = _folded(name)
            if kind != "file" or folded in names:
                continue
            if self.request.skip_system_files and _is_system_file(name):
                continue
            if any(part in left for part in _with_parents(folded)):
                self.note("not deleted", _join(self.to, name))
                self.count(files_spared=1)
                continue
            alias = _join(self.to, name)
            if self.request.dry_run:
                self.note("would remove", alias)
                self.count(files_removed=1)
                continue
            system, path = self.system(client, alias)
            with self.step(alias):
                system.rm_file(path)
            self.count(files_removed=1)


def _moves(system: Any, old: str, new: str) -> bool:
    """Returns False if it failed, for example because the name exists."""
    spec = importlib.import_module("fsspec.spec")
    try:
        if type(system).mv is spec.AbstractFileSystem.mv:  # which interprets names as patterns
            system.cp_file(old, new)
            system.rm_file(old)
            return True
        system.mv(old, new)
    except NotImplementedError:
        raise UnsupportedError(
            "the file system cannot rename a file, and an interrupted copy would leave a part under"
            " the name", repr(new), "copy to another file system",
        ) from None
    except Exception:
        if _info(system, old) is None:
            raise
        return False
    return _info(system, old) is None


def _tree_key(system: Any, path: str) -> tuple[Any, str]:
    """A tuple that begins with another one's elements is below it."""
    options = system.storage_options
    return (type(system), options.get("host")), posixpath.normpath(f"/{path.strip('/')}")


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def _info(system: Any, path: str) -> dict[str, Any] | None:
    invalidate = getattr(system, "invalidate_cache", None)
    if invalidate:
        invalidate(system._parent(path))
    try:
        found: dict[str, Any] = system.info(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found


def _entries(system: Any, path: str) -> list[tuple[str, dict[str, Any]]]:
    invalidate = getattr(system, "invalidate_cache", None)
    if invalidate:
        invalidate(path)
    found = []
    for entry in system.ls(path, detail=True):
        base = entry["name"].rstrip("/")
        name = base.rpartition("/")[2]
        if base != path.rstrip("/") and name not in ("", ".", ".."):  # not the folder
            found.append((name, entry))
    return found


def _is_up_to_date(there: dict[str, Any], item: _Item) -> bool:
    """True for the same size and newer. Without a time: False. A time in seconds may be of a file
    that was written before the source changed in the same second: then it must be later."""
    if there.get("size") != item.bytes:
        return False
    there_ns = fsspec_source.mtime_ns(there)
    fine = there_ns % 1_000_000_000 != 0
    return item.bytes == 0 or (
        item.mtime_ns != 0 and (there_ns > item.mtime_ns or (fine and there_ns == item.mtime_ns))
    )


def _join(folder: str, name: str) -> str:
    return f"{folder}{'' if folder.endswith('/') else '/'}{name}"


def _base(text: str) -> str:
    """The name that a copy gets. That of a web address is decoded once, as the library does
    (stk_copy_entry_name), unless it would be no name or have control characters."""
    last = text.rpartition("::")[2]
    web = last.lower().startswith(("http://", "https://")) and "!/" not in last
    if web:
        text = text.partition("?")[0].partition("#")[0]
    name = text.rstrip("/").rpartition("/")[2]
    decoded = os.fsdecode(urllib.parse.unquote_to_bytes(name)) if web else name
    odd = "/" in decoded or not _is_path(decoded) or any(c < " " or c == "\x7f" for c in decoded)
    return name if odd else decoded


def _is_path(name: str) -> bool:
    return all(
        part not in ("", ".", "..") and len(os.fsencode(part)) <= _NAME_MAX
        for part in name.split("/")
    )


def _with_parents(name: str) -> Iterator[str]:
    """The folder, and those above it."""
    while name:
        yield name
        name = name.rpartition("/")[0]


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def _error(number: int, what: str, alias: str, advice: str) -> Error:
    return from_native(-number, errno.errorcode[number], what, repr(alias), advice, alias, "", None)


def _exists_error(alias: str) -> Error:
    return _error(errno.EEXIST, "the destination exists", alias, "use another destination")


def _changed(item: _Item) -> ChangedError:
    name = repr(fsspec_source.shown(item.source))
    return ChangedError("the file changed while it was read", name,
                        "copy it again while no program writes to it")
