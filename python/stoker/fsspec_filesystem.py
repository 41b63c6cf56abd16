"""stoker as a file system of fsspec: ``stoker://s3/bucket/key``.

The store (``s3``, ``gs``, ``az``, ``hf``, ``http``, ``https``) follows ``stoker://``, then the rest
of its own URL. libstoker reads with many concurrent requests, all of the version that was opened,
and with retries::

    import fsspec
    with fsspec.open("stoker://s3/bucket/table.parquet") as file:
        ...
    fs = fsspec.filesystem("stoker")
    parts = fs.cat_ranges(paths, starts, ends)     # in parallel; near ranges are joined

Needs the package fsspec, which finds this module by an entry point; ``import stoker`` does not
import it.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import errno
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable
from glob import has_magic
from typing import Any

from fsspec.caching import BaseCache, register_cache
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from . import _stoker, files
from ._options import count, interruptible, parse_bytes
from .engine import Engine
from .errors import ArgumentError, ChangedError, LimitError, UnsupportedError
from .fsspec_wrappers import CompressedFile, TextFile

__all__ = ["StokerFile", "StokerFileSystem"]

STORES = ("s3", "gs", "az", "hf", "http", "https")
_FIRST = 256 << 10  # smallest fetch: fewer bytes would not be faster
_STEP = 8 << 20  # largest fetch of the read-ahead
_THREADS = 16  # threads for read-ahead of all files of the process
_LINE = 64 << 10
_FRAMES = 16  # callers of close() that are checked for an exception


class StokerFileSystem(AbstractFileSystem):
    """Objects of stores and web servers, read and written by libstoker.

    Thread-safe. Can be pickled and forked: a child process opens its own connections.

    Args:
        engine: its connections and memory are used. Default: the process's engine.
        ahead: bytes of read-ahead of an open file, if it is read in order.
        gap: :meth:`cat_ranges` joins ranges of an object with fewer bytes between them.
        spool: largest file to write, in bytes: until it is closed, its bytes are in the folder for
            temporary files (``TMPDIR``). More raises :class:`stoker.LimitError`.
    """

    protocol = "stoker"
    root_marker = ""
    cachable = True

    def __init__(
        self,
        engine: Engine | None = None,
        ahead: int | str = "32MiB",
        gap: int | str = "256KiB",
        spool: int | str = "64GiB",
        **options: Any,
    ) -> None:
        super().__init__(**options)
        if engine is not None:
            files.native_of(engine, "StokerFileSystem")
        self.engine = engine
        self.ahead = parse_bytes(ahead, "StokerFileSystem ahead")
        self.gap = parse_bytes(gap, "StokerFileSystem gap")
        self.spool = parse_bytes(spool, "StokerFileSystem spool")

    @property
    def _native(self) -> _stoker.Engine:
        return files.native_of(self.engine, "StokerFileSystem")

    @property
    def fsid(self) -> str:
        return "stoker"

    # ---- names ----

    @classmethod
    def url_of(cls, path: str) -> str:
        """``"s3://bucket/key"`` from ``"stoker://s3/bucket/key"`` or ``"s3/bucket/key"``."""
        store, _, rest = cls._strip_protocol(path).partition("/")
        if store not in STORES or not rest:
            raise ArgumentError(
                f"{path!r} does not name a store",
                "stoker://",
                f"write stoker://STORE/..., STORE one of {', '.join(STORES)}",
            )
        return f"{store}://{rest}"

    @classmethod
    def _shown(cls, path: str) -> str:
        """The URL without password and signature; this process can still use it."""
        store, _, rest = path.partition("/")
        if not store.startswith("http"):
            return path
        name = os.fsdecode(_stoker.url_alias(os.fsencode(f"{store}://{rest}")))
        return name.replace("://", "/", 1)

    @classmethod
    def _parent(cls, path: str) -> str:
        return cls._strip_protocol(path).rpartition("/")[0]

    # ---- metadata ----

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        if path == "" or path in STORES:
            return {"name": path, "size": 0, "type": "directory"}
        return _entry(self._shown(path), files.look(self._native, os.fsencode(self.url_of(path))))

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        path = self._strip_protocol(path)
        if path == "":
            found = [{"name": name, "size": 0, "type": "directory"} for name in STORES]
        elif path in STORES:
            raise UnsupportedError(
                "buckets cannot be listed", f"stoker://{path}", "add a bucket to the path"
            )
        else:
            found = self._below(path, False)
        found.sort(key=lambda entry: entry["name"])
        return found if detail else [entry["name"] for entry in found]

    def _below(self, path: str, recursive: bool) -> list[dict[str, Any]]:
        walk = files.walk(self._native, os.fsencode(self.url_of(path)), recursive)
        found = [
            _entry(f"{path}/{item.name}" if item.name else self._shown(path), item)
            for item in walk
        ]
        if not found and self.url_of(path).count("/") > 2:
            self.info(path)  # FileNotFoundError
        return found

    def find(
        self,
        path: str,
        maxdepth: int | None = None,
        withdirs: bool = False,
        detail: bool = False,
        **options: Any,
    ) -> Any:
        path = self._strip_protocol(path)
        if maxdepth is not None or options.get("prefix") or path == "" or path in STORES:
            return super().find(path, maxdepth, withdirs, detail, **options)
        try:
            entries = {entry["name"]: entry for entry in self._below(path, True)}
        except FileNotFoundError:
            entries = {}
        if withdirs and path not in entries:
            names = {path} if entries else set()
            for name in entries:
                while len(name := name.rpartition("/")[0]) > len(path):
                    names.add(name)
            entries |= {name: {"name": name, "size": 0, "type": "directory"} for name in names}
        names = sorted(entries)
        return {name: entries[name] for name in names} if detail else names

    def glob(self, path: str, maxdepth: int | None = None, **options: Any) -> Any:
        if "?versionId=" in path and self.exists(path):  # no pattern
            return {path: self.info(path)} if options.get("detail") else [path]
        return super().glob(path, maxdepth, **options)

    def exists(self, path: str, **_: Any) -> bool:
        try:
            self.info(path)
        except FileNotFoundError:
            return False
        return True

    def created(self, path: str) -> Any:
        return self.modified(path)  # objects are written at once

    def modified(self, path: str) -> Any:
        import datetime

        seconds = self.info(path).get("mtime")
        return None if seconds is None else datetime.datetime.fromtimestamp(
            seconds, datetime.timezone.utc
        )

    def checksum(self, path: str) -> int:
        info = self.info(path)
        return hash((info["name"], info["size"], info.get("ETag"), info.get("mtime")))

    def ukey(self, path: str) -> str:
        info = self.info(path)
        return str((info["name"], info["size"], info.get("ETag"), info.get("mtime")))

    def invalidate_cache(self, path: str | None = None) -> None:
        """Drops the metadata that listings and earlier requests left. :meth:`info` and
        :meth:`exists` always ask the store."""
        _stoker.files_forget_metadata(self._native)
        super().invalidate_cache(path)

    # ---- reading ----

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **_: Any
    ) -> bytes:
        return self.cat_ranges([path], [start], [end], on_error="raise")[0]

    def cat_ranges(
        self,
        paths: list[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        on_error: str = "return",
        **_: Any,
    ) -> list[Any]:
        """The bytes of many ranges, read in parallel; near ranges of an object are joined.

        Args:
            starts, ends: for each path, or one number for all; as in a slice.
            max_gap: joins ranges with at most so many bytes between them. Default: ``gap``.
            on_error: ``"return"``: returns an exception for a range that failed; ``"raise"``.
        """
        if not isinstance(paths, (list, tuple)):
            raise TypeError("cat_ranges takes a list of paths")
        starts = list(starts) if isinstance(starts, Iterable) else [starts] * len(paths)
        ends = list(ends) if isinstance(ends, Iterable) else [ends] * len(paths)
        if len(starts) != len(paths) or len(ends) != len(paths):
            raise ValueError("cat_ranges takes as many starts and ends as paths")
        gap = self.gap if max_gap is None else count(max_gap, "cat_ranges max_gap") + 1
        found = interruptible(lambda: self._ranges(paths, starts, ends, min(gap, 2**32 - 1)))
        for one in found:
            if isinstance(one, BaseException) and on_error == "raise":
                raise one
        return found

    def cat(
        self, path: Any, recursive: bool = False, on_error: str = "raise", **options: Any
    ) -> Any:
        paths = self.expand_path(path, recursive=recursive)
        if recursive:
            below = {name for one in ([path] if isinstance(path, str) else path)
                     for name in self.find(one)}
            paths = [name for name in paths if name in below]  # no folders
        found = self.cat_ranges(
            paths, options.get("start"), options.get("end"),
            on_error="raise" if on_error == "raise" else "return",
        )
        if len(paths) == 1 and isinstance(path, str) and paths[0] == self._strip_protocol(path):
            return found[0]
        return {
            name: data
            for name, data in zip(paths, found)
            if on_error != "omit" or not isinstance(data, BaseException)
        }

    def _ranges(self, paths: Any, starts: Any, ends: Any, gap: int) -> list[Any]:
        found = self._ranges_once(paths, starts, ends, gap)
        again = [i for i, one in enumerate(found) if isinstance(one, ChangedError)]
        if again:  # the metadata were those of an earlier object: reads them again
            chosen = ([of[i] for i in again] for of in (paths, starts, ends))
            fresh = self._ranges_once(*chosen, gap)
            for i, one in zip(again, fresh):
                found[i] = one
        return found

    def _ranges_once(self, paths: Any, starts: Any, ends: Any, gap: int) -> list[Any]:
        native = self._native
        urls = [os.fsencode(self.url_of(path)) for path in paths]
        _stoker.files_prefetch_metadata(native, tuple(dict.fromkeys(urls)))
        opened: dict[bytes, Any] = {}
        for url in urls:
            if url not in opened:
                try:
                    opened[url] = _stoker.File(native, url)
                except (OSError, ValueError, RuntimeError) as error:
                    opened[url] = error
        try:
            places, ranges = [], []
            for i, url in enumerate(urls):
                file = opened[url]
                if not isinstance(file, BaseException):
                    first, last, _ = slice(starts[i], ends[i]).indices(file.info()[2])
                    places.append(i)
                    ranges.append((file, first, max(0, last - first)))
            found = [opened[url] for url in urls]
            for i, one in zip(places, _stoker.read_ranges(ranges, gap)):
                found[i] = one
            return found
        finally:
            for file in opened.values():
                if not isinstance(file, BaseException):
                    file.close()

    def open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        cache_options: Any = None,
        compression: str | None = None,
        **options: Any,
    ) -> Any:
        """Like fsspec's open; its wrappers for text and compression also forward exceptions and
        close()."""
        settings = {"block_size": block_size, "cache_options": cache_options}
        if "b" not in mode:
            words = {k: options.pop(k) for k in ("encoding", "errors", "newline") if k in options}
            mode = mode.replace("t", "") + "b"
            return TextFile(
                self.open(path, mode, compression=compression, **settings, **options), **words)
        file = super().open(path, mode, **settings, **options)
        if compression is not None:
            from fsspec.compression import compr
            from fsspec.core import get_compression

            pack = compr[get_compression(path, compression)]
            file = CompressedFile(pack(file, mode=mode[0]), file)
        return file

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: Any = None,
        **options: Any,
    ) -> StokerFile:
        options.setdefault("cache_type", "stoker")
        if options["cache_type"] == "stoker":
            cache_options = {"ahead": self.ahead, **(cache_options or {})}
        return StokerFile(
            self, path, mode, block_size or "default", autocommit,
            cache_options=cache_options, **options,
        )

    # ---- writing ----

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        with self.open(path, "xb" if mode == "create" else "wb") as file:
            file.write(value)

    def put_file(
        self, lpath: str, rpath: str, callback: Any = None, mode: str = "overwrite", **_: Any
    ) -> None:
        if not os.path.isdir(lpath):
            self._copy(lpath, self.url_of(rpath), callback, no_clobber=mode == "create")

    def get(
        self, rpath: Any, lpath: Any, recursive: bool = False, callback: Any = None,
        maxdepth: int | None = None, **options: Any,
    ) -> Any:
        """As in fsspec; refuses keys that would be written outside of ``lpath``, and symbolic links
        in ``lpath`` that lead out of it."""
        if recursive or not isinstance(rpath, (str, os.PathLike)) or has_magic(os.fspath(rpath)):
            given = [rpath] if isinstance(rpath, (str, os.PathLike)) else list(rpath)
            for one in given:
                root = self._strip_protocol(os.fspath(one))
                names = self.find(root, maxdepth) if recursive else (
                    self.glob(root) if has_magic(root) and not self.exists(root) else [root])
                for name in names:
                    _check_key(name)
        more = {} if callback is None else {"callback": callback}
        if isinstance(lpath, (str, os.PathLike)):
            options["root"] = os.path.abspath(lpath)
        return super().get(rpath, lpath, recursive=recursive, maxdepth=maxdepth, **more, **options)

    def get_file(
        self, rpath: str, lpath: Any, callback: Any = None, outfile: Any = None,
        root: str | None = None, **_: Any,
    ) -> None:
        """root: no symbolic link below this folder leads out of it."""
        if outfile is None and hasattr(lpath, "write"):
            outfile = lpath
        if outfile is not None:
            with self.open(rpath) as file:
                shutil.copyfileobj(file, outfile, _STEP)
            return
        url = self.url_of(rpath)
        name = "" if root is None else os.path.relpath(os.path.abspath(lpath), root)
        below = name != "." and name.split("/")[0] not in ("", "..")
        if self.isdir(rpath):
            _make_folder(root if below else os.path.abspath(lpath), name if below else "")
        elif below and url.endswith(f"/{name}"):
            self._copy(url[: -len(name) - 1], root, callback, names=(os.fsencode(name),))
        else:
            os.makedirs(os.path.dirname(os.path.abspath(lpath)), exist_ok=True)
            self._copy(url, lpath, callback)

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        if not self.isdir(path1):
            self._copy(self.url_of(path1), self.url_of(path2), None)

    def mv(
        self, path1: Any, path2: Any, recursive: bool = False, maxdepth: int | None = None,
        **options: Any,
    ) -> None:
        """As in fsspec; but removes each object right after its own copy, and only the version that
        was copied: an object that is new, or replaced, meanwhile stays."""
        if path1 == path2:
            return
        AbstractFileSystem.copy(
            _Mover(self), path1, path2, recursive=recursive, maxdepth=maxdepth,  # type: ignore
            on_error="raise", **options)

    def _copy(self, source: Any, destination: Any, callback: Any, **options: Any) -> None:
        def tell(report: files.CopyReport) -> None:
            callback.set_size(report.bytes)
            callback.absolute_update(report.bytes_done)

        files.run(  # exactly these names: they are no patterns
            self._native, _stoker.COPY, [os.fsencode(source)], os.fsencode(destination),
            None if callback is None else tell, workers=8, **options,
        )

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        if maxdepth is not None:
            return super().rm(path, recursive, maxdepth)
        given = [path] if isinstance(path, str) else path
        names: list[str] = []
        for name in given:  # a file with exactly that name; else, as in fsspec, a glob
            if has_magic(name) and not self.exists(name):
                matches = self.glob(name)
                if not matches:
                    raise FileNotFoundError(errno.ENOENT, "no path matches the glob", name)
                names += matches
            else:
                if not recursive:
                    self.info(name)  # S3 reports success for missing objects
                names.append(name)
        urls = [os.fsencode(self.url_of(name)) for name in names]
        files.run(self._native, _stoker.REMOVE, urls, b"", recursive=bool(recursive))

    def rm_file(self, path: str) -> None:
        self.rm(path)

    _rm = rm_file

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        """Does nothing: stores have no folders."""

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Does nothing: stores have no folders."""

    def rmdir(self, path: str) -> None:
        """Does nothing: stores have no folders."""


class _Mover:
    """A file system whose copies are moves."""

    def __init__(self, fs: StokerFileSystem) -> None:
        self._fs = fs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fs, name)

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        if self._fs.isdir(path1):
            return
        names = [os.fsencode(self._fs.url_of(path)) for path in (path1, path2)]
        files.run(self._fs._native, _stoker.MOVE, names[:1], names[1], workers=8)


def _make_folder(root: str, name: str) -> None:
    """Creates root/name, but nothing below a symbolic link: the copy of a file checks it."""
    os.makedirs(root, exist_ok=True)
    folder = os.open(root, os.O_PATH | os.O_DIRECTORY)
    try:
        for part in filter(None, name.split("/")):
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, dir_fd=folder)
            flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW
            try:
                below = os.open(part, flags, dir_fd=folder)
            except NotADirectoryError:
                return
            os.close(folder)
            folder = below
    finally:
        os.close(folder)


def _check_key(name: str) -> None:
    """Raises ArgumentError for a key that leaves the folder that it is written below."""
    if any(part in (".", "..") for part in name.split("/")[2:]):
        raise ArgumentError("an object key is not a valid local path", f"stoker://{name}",
                            "copy it alone with get_file, to a name that you choose")


def _entry(name: str, info: files.FileInfo) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": name,
        "size": info.bytes,
        "type": "directory" if info.kind == "folder" else info.kind,
    }
    if info.kind == "file":
        entry |= {"ETag": info.etag, "mtime": info.modified}
    return entry


def _pool() -> concurrent.futures.ThreadPoolExecutor:
    """The threads of this process for read-ahead."""
    global _threads
    with _pool_lock:
        if _threads is None or _threads[0] != os.getpid():
            made = concurrent.futures.ThreadPoolExecutor(_THREADS, "stoker-ahead")
            _threads = (os.getpid(), made)
        return _threads[1]


_threads: tuple[int, concurrent.futures.ThreadPoolExecutor] | None = None
_pool_lock = threading.Lock()


def _forget_lock() -> None:
    global _pool_lock
    _pool_lock = threading.Lock()  # a thread of the parent may hold the old one


os.register_at_fork(after_in_child=_forget_lock)


class _Part:
    """Bytes of a file from `begin` up to `end`, fetched or in flight."""

    def __init__(self, begin: int, end: int, data: Any) -> None:
        self.begin, self.end, self.data = begin, end, data

    def bytes(self) -> Any:
        if isinstance(self.data, concurrent.futures.Future):
            self.data = self.data.result()
        return self.data


class _Ahead(BaseCache):
    """Read-ahead, which grows while a file is read in order; for other reads fetches only the
    requested bytes. Any thread may use it."""

    name = "stoker"

    def __init__(self, blocksize: int, fetcher: Any, size: int, ahead: int = 32 << 20) -> None:
        super().__init__(blocksize, fetcher, size)
        self._most = ahead
        self._anew()

    def _anew(self) -> None:
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._parts: collections.deque[_Part] = collections.deque()  # without gaps
        self._end = -1  # end of the previous read
        self._step = _FIRST

    def _fetch(self, start: int | None, stop: int | None) -> bytes:
        first = 0 if start is None else start
        last = self.size if stop is None else min(stop, self.size)
        if first >= last:
            return b""
        if self._process != os.getpid():
            self._anew()  # a child after fork has no reads in flight
        with self._lock:
            try:
                return self._take(first, last)
            except BaseException:
                self._parts.clear()
                raise

    def _take(self, first: int, last: int) -> bytes:
        parts, in_order = self._parts, first == self._end
        while parts and parts[0].end <= first:
            parts.popleft()
        if parts and parts[0].begin > first:
            parts.clear()
        known = parts[-1].end if parts else first
        self._step = min(2 * self._step, _STEP) if in_order else _FIRST
        self._end = last
        if known < last:
            missing = _Part(known, min(max(last, known + _FIRST), self.size), b"")
            parts.append(missing)
            if in_order:
                self._read_on(missing.end, last)  # in parallel
            missing.data = interruptible(lambda: self.fetcher(known, missing.end))
        elif in_order:
            self._read_on(parts[-1].end, last)
        return b"".join(
            bytes(part.bytes()[max(first - part.begin, 0) : last - part.begin])
            if first > part.begin or last < part.end
            else part.bytes()
            for part in parts
            if part.begin < last
        )

    def _read_on(self, begin: int, last: int) -> None:
        """Starts fetches from `begin` on, while the reader is at `last`."""
        until = min(self.size, last + min(self._most, 4 * self._step))
        while begin < until and until - begin >= min(self._step, self.size - begin):
            end = min(begin + self._step, self.size)
            self._parts.append(_Part(begin, end, _pool().submit(self.fetcher, begin, end)))
            begin = end

    def close(self) -> None:
        self._parts.clear()


register_cache(_Ahead, clobber=True)


class StokerFile(AbstractBufferedFile):
    """An open object: read, always in the version that was opened, or written.

    Written bytes go to a temporary file, and to the store on close: a name never refers to an
    incomplete object. After an exception nothing is written, also if another object closes the file
    because of the exception, as ``with fsspec.open(...)`` does.
    """

    def __init__(self, fs: StokerFileSystem, path: str, mode: str = "rb", *args: Any,
                 **options: Any) -> None:
        if mode not in ("rb", "wb", "xb"):
            raise UnsupportedError(
                f"unsupported mode {mode!r}", f"stoker://{path}", "use 'rb', 'wb' or 'xb'"
            )
        self.fs, self._url = fs, fs.url_of(path)
        self._native: _stoker.File | None = None
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._spool: Any = None
        self._left = False
        self._given = False  # bytes were returned
        self._during = sys.exc_info()[1]  # set if it is opened in an except block
        if mode == "xb" and fs.exists(path):
            raise FileExistsError(errno.EEXIST, "the object exists", f"stoker://{path}")
        if mode == "rb":
            options["size"] = self._handle().info()[2]
        super().__init__(fs, path, mode, *args, **options)

    def __str__(self) -> str:
        return f"<StokerFile {self.fs._shown(self.fs._strip_protocol(self.path))}>"

    __repr__ = __str__

    def _handle(self) -> _stoker.File:
        """The open object; after a fork opens the same version again."""
        if self._process != os.getpid():
            self._lock = threading.Lock()  # a thread of the parent may hold it
        with self._lock:
            if self._native is None or self._process != os.getpid():
                before = self._native
                native = _stoker.File(self.fs._native, os.fsencode(self._url))
                if before is not None and before.info()[2:5:2] != native.info()[2:5:2]:
                    raise ChangedError(
                        "the object changed since the fork", f"'{self._url}'",
                        "open it again",
                    )
                self._native, self._process = native, os.getpid()
            return self._native

    def read(self, length: int = -1) -> bytes:
        try:
            data = super().read(length)
        except ChangedError:
            if self._given or self.mode != "rb":
                raise
            self._reopen()  # the metadata were those of an earlier object
            data = super().read(length)
        self._given = self._given or bool(data)
        return data

    def _reopen(self) -> None:
        with self._lock:
            native, self._native = self._native, None
        if native is not None:
            native.close()
        self._details = None
        self.size = self._handle().info()[2]
        self.cache.close()
        self.cache.size = self.size

    def _fetch_range(self, start: int, end: int) -> bytes:
        (found,) = _stoker.read_ranges([(self._handle(), start, end - start)], 0)
        if isinstance(found, BaseException):
            raise found
        return found

    @property
    def details(self) -> dict[str, Any]:
        if self._details is None:
            item = self._handle().info()
            self._details = _entry(self.path, files.FileInfo(
                self.path, "file", item[2], item[3] / 1e9 if item[3] else None, item[4]))
        return self._details

    def _initiate_upload(self) -> None:
        self._spool = tempfile.NamedTemporaryFile(prefix="stoker-", suffix=".part")

    def _upload_chunk(self, final: bool = False) -> bool:
        if self._left:
            return True
        try:
            self._keep(self.buffer.getbuffer())
        except BaseException:
            self._drop()  # an incomplete write is not repeated or sent
            raise
        if final and self.autocommit:
            self.commit()
        return True

    def _keep(self, data: memoryview) -> None:
        held = self._spool.tell() + len(data)
        if held > self.fs.spool:
            raise LimitError(
                f"the file is larger than the spool of {self.fs.spool} bytes", f"'{self._url}'",
                "raise spool of StokerFileSystem, or storage_options={'spool': ...}",
            )
        try:
            self._spool.write(data)
            self._spool.flush()
        except OSError as error:
            if error.errno == errno.ENOSPC:
                error.add_note("the written data is in the folder for temporary files until it "
                               f"is closed; let TMPDIR name another than {tempfile.gettempdir()}")
            raise

    def commit(self) -> None:
        if self._spool is not None:
            self._spool.flush()
            with self._spool:
                self.fs._copy(self._spool.name, self._url, None, no_clobber="x" in self.mode)
            self._spool = None

    def discard(self) -> None:
        if self._spool is not None:
            self._spool.close()
            self._spool = None

    def readline(self) -> bytes:
        return self.readuntil(b"\n", _LINE)

    def close(self) -> None:
        if not self.closed and self.mode != "rb" and (self._left or self._is_left()):
            self._drop()
        try:
            super().close()
        finally:
            self._during = None
            if self.autocommit:
                self.discard()
            if self._native is not None and self._process == os.getpid():
                self._native.close()

    def __exit__(self, kind: Any, *_: object) -> None:
        self._leave(kind)
        self.close()

    def _leave(self, kind: Any) -> None:
        self._left = self._left or kind is not None

    def _is_left(self) -> bool:
        """True if an exception is the reason for close(): a caller is an ``__exit__`` with an
        exception. Other objects, fsspec's among them, close the file without passing it on."""
        why, frame = sys.exc_info()[1], sys._getframe(1)
        if why is None or why is self._during:
            return False
        for _ in range(_FRAMES):
            if frame.f_code.co_name == "__exit__":
                for value in frame.f_locals.values():
                    if value is why or (isinstance(value, tuple) and any(x is why for x in value)):
                        return True
            if frame.f_back is None:
                break
            frame = frame.f_back
        return False

    def __del__(self, _is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not self.closed and not _is_ending():
            if self.mode != "rb":
                self._drop()
            self.close()

    def _drop(self) -> None:
        """Drops the bytes written so far."""
        self.discard()
        self.closed = True
