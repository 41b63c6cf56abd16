"""URLs that the library has no store for, read through fsspec: ``sftp://``, ``ftp://``,
``smb://``, ``memory://``, ``zip://folder::https://host/a.zip``, ``simplecache::sftp://...`` and
what else is installed.

The library asks for sizes, names and bytes; a few threads of this process get them from fsspec. It
is slower than the library's own stores (each byte passes Python), and the same else: order, states,
deadlines, retries. What they need to log in stands in fsspec's configuration
(https://filesystem-spec.readthedocs.io, "Configuration") or in the URL, whose password no error
shows.

Of a chain, like ``zip://folder::sftp://host/a.zip``, the library is told
``zip::sftp://host/a.zip!/folder``: so paths grow at their end. Errors name it like that.
"""

from __future__ import annotations

import collections
import datetime
import errno
import hashlib
import importlib
import logging
import os
import re
import threading
import time
from contextlib import suppress
from typing import Any

from . import _stoker
from .errors import ArgumentError, ClosedError, Error, UnsupportedError, from_native

__all__ = ["Client", "external_fs", "is_external", "native", "native_paths", "shown", "stats"]

OWN = (b"s3", b"gs", b"az", b"hf", b"http", b"https", b"file")
THREADS = max(1, min(64, int(os.environ.get("STOKER_FSSPEC_THREADS") or 8)))
"""That ask fsspec at once; each has its own connection."""
_OPEN_MAX = 16  # files that a thread keeps open
_LOOKED_MAX = 4096  # files of which it is known when they were looked at last
_SFTP_BYTES = 255 << 10  # OpenSSH's sftp-server answers with so many at once, others with fewer
_INSIDE = "!/"
# What urllib, which most file systems of fsspec take names apart with, leaves out or stops at; and
# what stands for it meanwhile.
_ODD = "?#\t\n\r"
_EVEN = "".join(chr(0xE000 + number) for number in range(len(_ODD)))
_TO_EVEN, _TO_ODD = str.maketrans(_ODD, _EVEN), str.maketrans(_EVEN, _ODD)
_STAT, _LIST, _READ = 1, 2, 3
NOTE = "through fsspec: slower than s3://, gs://, az://, hf:// and http(s)://"

_lock = threading.Lock()
_memory_lock = threading.Lock()
_external_fs: tuple[int, _stoker.ExternalFs] | None = None
_serving = 0  # the process whose threads run
_logins: dict[str, str] = {}  # host as the library sees it -> with its password
_counts: dict[str, dict[str, float]] = {}
_said: set[str] = set()
_time = 0  # grows by each look at a file
_looked: dict[str, int] = {}  # the time then
_looked_before = 0  # the time when it was emptied


def _forget_lock() -> None:
    global _lock, _memory_lock
    _lock = threading.Lock()  # the parent's may be held by a thread that is not here
    _memory_lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_lock)


def external_fs() -> _stoker.ExternalFs:
    """Where this process's engines leave errands; it costs nothing until one is used."""
    global _external_fs
    with _lock:
        if _external_fs is None or _external_fs[0] != os.getpid():
            _external_fs = (os.getpid(), _stoker.ExternalFs())
        return _external_fs[1]


def stats() -> dict[str, Any] | None:
    """What this process asked fsspec for, by protocol; None: nothing."""
    with _lock:
        found = {name: dict(row) for name, row in _counts.items() if row["requests"]}
    return {**found, "note": NOTE} if found else None


def warn_once(told: str, what: str) -> None:
    """That it is slow: once for each protocol."""
    said = f"{'::'.join(_schemes(told))}:// is {what}"
    with _lock:
        if said in _said:
            return
        _said.add(said)
    logging.getLogger("stoker").warning("%s %s", said, NOTE)


# ---- names ----


def native_paths(paths: Any) -> tuple[bytes, ...]:
    """The paths as the library is told them; ready to be read."""
    return tuple(native(path) for path in paths)


def is_external(path: bytes) -> bool:
    """Whether it is a URL that the library has no store for."""
    head = path.partition(b":")[0]
    rest = path[len(head) :]
    if not rest.startswith((b"://", b"::")) or not head or not _is_scheme(head):
        return False
    if head.lower() in OWN and rest.startswith(b"://"):
        if b"::" not in rest:
            return False
        raise ArgumentError(
            "the URL chain begins with a store that the library reads itself",
            os.fsdecode(path)[:400],
            "begin the chain with fsspec's file system: simplecache::s3://..., zip://...::s3://..."
        )
    return len(head) > 1 and _has_place(path)  # else a file with an odd name


def native(path: bytes) -> bytes:
    if not is_external(path):
        return path
    url = os.fsdecode(path)
    told = url if _is_inside(url) else _turned(url)
    _driver(told)
    _start_threads()
    return os.fsencode(told)


def _is_scheme(head: bytes) -> bool:
    return head.replace(b"+", b"").replace(b"-", b"").replace(b".", b"").isalnum()


def _has_place(path: bytes) -> bool:
    """scheme://..., or a::b::scheme://..."""
    parts = path.split(b"://", 1)
    return len(parts) == 2 and all(map(_is_scheme, parts[0].split(b"::")))


def is_chain(told: str) -> bool:
    return "::" in told.partition("://")[0]


def _is_inside(told: str) -> bool:
    """Whether it is told as what lies in something else."""
    return is_chain(told) and (_INSIDE in told or told.endswith("!"))


def _named(url: str) -> str:
    """The name of one of http://, or of a chain to it: errands for it come with the whole."""
    return os.fsdecode(_stoker.url_alias(os.fsencode(url)))


def shown(name: bytes) -> str:
    """Without what opens the door: for messages."""
    return os.fsdecode(_stoker.url_redact(name))


def _turned(url: str) -> str:
    """With what grows at its end, and without a password."""
    bits = url.split("::")
    placed = next(i for i, bit in enumerate(bits) if "://" in bit)
    if placed == len(bits) - 1:
        scheme, _, rest = url.partition("://")
        if bits[placed].lower().startswith(("http://", "https://")):
            return _named(url)
        login, slash, path = rest.partition("/")
        user, at, host = login.rpartition("@")
        if ":" in user:
            name = f"{scheme}://{user.partition(':')[0]}@{host}"
            with _lock:
                _logins[name] = f"{scheme}://{login}"
            return f"{name}{slash}{path}"
        return url
    scheme, _, inside = bits[placed].partition("://")
    base = _turned("::".join(bits[placed + 1 :]))
    return "::".join([*bits[:placed], scheme, base]) + _INSIDE + inside.lstrip("/")


def _returned(told: str) -> str:
    """What fsspec is asked for."""
    base, inside, path = told.partition(_INSIDE) if _is_inside(told) else (told, "", "")
    if not inside and _is_inside(told):
        base, inside = told[:-1], _INSIDE
    with _lock:
        logins = sorted(_logins.items(), key=lambda item: -len(item[0]))
    for name, login in logins:
        end = base.find(name) + len(name)
        if end >= len(name) and base[end : end + 1] in ("", "/"):
            base = base.replace(name, login, 1)
            break
    if not inside:
        return base
    bits = base.split("::")
    placed = next(i for i, bit in enumerate(bits) if "://" in bit)
    bits[placed - 1] += f"://{path}"
    return "::".join(bits)


def _schemes(told: str) -> list[str]:
    return told.split("://", 1)[0].split("::")


def _driver(told: str) -> None:
    """Checks that fsspec and what it needs for this URL are installed."""
    try:
        registry = importlib.import_module("fsspec.registry")
    except ImportError:
        raise UnsupportedError(
            "the library has no client for this URL, and the package fsspec is not installed",
            repr(told), "pip install fsspec; or use s3, gs, az, hf, http, https, or a path",
        ) from None
    for scheme in _schemes(told):
        try:
            registry.get_filesystem_class(scheme)
        except ImportError as error:
            raise UnsupportedError(
                f"fsspec lacks a package for {scheme}://: {error}", repr(told),
                f"pip install {_package(scheme, error)}",
            ) from None
        except ValueError:
            raise UnsupportedError(
                f"neither the library nor fsspec knows {scheme}://", repr(told),
                "use s3, gs, az, hf, http, https, a path, or a protocol that fsspec lists",
            ) from None


_PACKAGES = {"sftp": "paramiko", "ssh": "paramiko", "smb": "smbprotocol", "git": "pygit2",
             "arrow_hdfs": "pyarrow", "hdfs": "pyarrow", "libarchive": "libarchive-c"}


def _package(scheme: str, error: ImportError) -> str:
    return _PACKAGES.get(scheme) or (error.name or scheme).partition(".")[0]


# ---- the threads ----


def _start_threads() -> None:
    global _serving
    requests = external_fs()
    with _lock:
        if _serving == os.getpid():
            return
        requests.start()
        _serving = os.getpid()
        _counts.clear()
    for number in range(THREADS):
        threading.Thread(
            target=_work, args=(requests,), name=f"stoker-fsspec-{number}", daemon=True
        ).start()


def _work(requests: _stoker.ExternalFs) -> None:
    client = Client()
    while True:
        try:
            request = requests.next(3_600_000)
        except ClosedError:
            return
        if request is not None:
            number = request[0]
            requests.reply(number, **client.run(*request[1:]))
            del request


def _note_look(told: str) -> None:
    """What was opened before may be another file than the one that was just looked at."""
    global _time, _looked_before
    with _lock:
        if len(_looked) >= _LOOKED_MAX:
            _looked.clear()
            _looked_before = _time
        _time += 1
        _looked[told] = _time


class Client:
    """What one thread has open: fsspec's file systems are not for several threads."""

    def __init__(self) -> None:
        self._systems: dict[str, Any] = {}
        self._files: collections.OrderedDict[str, tuple[Any, int]] = collections.OrderedDict()

    def run(self, kind: int, told: str, offset: int, memory: Any) -> dict[str, Any]:
        """The words of the answer; never raises."""
        begun = time.monotonic()
        try:
            answer = self._tried(kind, told, offset, memory)
        except BaseException as error:
            answer = _failure(error)
        finally:
            if memory is not None:
                memory.release()
        self._count(kind, told, answer, time.monotonic() - begun)
        return answer

    def _count(self, kind: int, told: str, answer: dict[str, Any], seconds: float) -> None:
        scheme = "::".join(_schemes(told))
        with _lock:
            first = scheme not in _counts
            row = _counts.setdefault(
                scheme, {"requests": 0, "lists": 0, "bytes": 0, "seconds": 0.0})
            row["requests"] += 1
            row["lists"] += kind == _LIST
            row["bytes"] += answer.get("bytes", 0) if kind == _READ else 0
            row["seconds"] += seconds
        if first:
            warn_once(told, "read")

    def _tried(self, kind: int, told: str, offset: int, memory: Any) -> dict[str, Any]:
        try:
            answer = self._ask(kind, told, offset, memory)
            # paramiko takes a connection that ends for the end of the file.
            if kind != _READ or answer["bytes"] == len(memory):
                return answer
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError):
            raise
        except Exception:
            pass
        self.forget()  # a connection that broke off? Once more, by a new one.
        return self._ask(kind, told, offset, memory)

    def _ask(self, kind: int, told: str, offset: int, memory: Any) -> dict[str, Any]:
        if "memory" in _schemes(told):  # its files are one object each, with one place to read at
            with _memory_lock:
                return self._asked(kind, told, offset, memory)
        return self._asked(kind, told, offset, memory)

    def _asked(self, kind: int, told: str, offset: int, memory: Any) -> dict[str, Any]:
        system, path = self.system(told)
        if kind == _READ:
            return {"status": 0, "bytes": self._read(system, path, told, offset, memory)}
        invalidate = getattr(system, "invalidate_cache", None)
        if kind == _LIST:
            if invalidate:
                invalidate(path)
            return _names(system, path)
        if invalidate and not _is_archive(system):
            invalidate(system._parent(path))
        found = _told(system.info(path))
        _note_look(told)
        return found

    def _read(self, system: Any, path: str, told: str, offset: int, memory: Any) -> int:
        wanted = len(memory)
        if getattr(system, "async_impl", False):  # a range is one request
            data = system.cat_file(path, start=offset, end=offset + wanted)[:wanted]
            memory[: len(data)] = data
            return len(data)
        file = self._opened(system, path, told)
        if hasattr(file, "MAX_REQUEST_SIZE"):  # paramiko's: else each 32 KiB is a round trip
            file.MAX_REQUEST_SIZE = _SFTP_BYTES
        done = 0
        file.seek(offset)
        while done < wanted:
            data = file.read(wanted - done)
            if not data:
                break
            memory[done : done + len(data)] = data
            done += len(data)
        return done

    def _opened(self, system: Any, path: str, told: str) -> Any:
        """Kept open, until somebody looks at it: what has the name since may be another file."""
        file, since = self._files.pop(told, (None, 0))
        with _lock:
            now, looked = _time, _looked.get(told, _looked_before)
        if file is not None and since < looked:
            with suppress(Exception):  # its connection may be gone
                file.close()
            file = None
        if file is None:
            while len(self._files) >= _OPEN_MAX:
                self._files.popitem(last=False)[1][0].close()
            file, since = system.open(path, "rb", cache_type="none"), now
        self._files[told] = file, since
        return file

    def system(self, told: str) -> tuple[Any, str]:
        """The file system that a URL is of, and its path there."""
        core = importlib.import_module("fsspec.core")
        if _is_inside(told):
            base, _, inside = told.partition(_INSIDE)
            key = base.removesuffix("!")
            if key not in self._systems:
                self._systems[key] = core.url_to_fs(_returned(key + _INSIDE))[0]
            return self._systems[key], inside.strip("/")
        scheme, _, rest = told.partition("://")
        rest = rest if "/" in rest else f"{rest}/"  # else it would be the folder of a login
        even = f"{scheme}://{rest}".translate(_TO_EVEN)
        key = f"{scheme}://{rest.partition('/')[0]}"
        if key not in self._systems:
            self._systems[key] = core.url_to_fs(_returned(even))[0]
        system = self._systems[key]
        path = system._strip_protocol(even.removeprefix(scheme[: scheme.rfind(":") + 1]))
        return system, path.translate(_TO_ODD)

    def forget(self) -> None:
        """All that is open: the next call connects anew."""
        for file, _ in self._files.values():
            with suppress(Exception):  # its connection may be gone
                file.close()
        self._files.clear()
        for system in self._systems.values():
            while system is not None:
                kept = getattr(type(system), "_cache", {})
                kept.pop(getattr(system, "_fs_token", None), None)
                client = getattr(system, "client", None)
                if hasattr(client, "open_sftp"):  # paramiko's thread keeps its connection alive
                    client.close()
                system = getattr(system, "__dict__", {}).get("fs")
        self._systems.clear()


def _is_archive(system: Any) -> bool:
    """Whose listing is the archive's own: it stays."""
    return hasattr(system, "_get_dirs")


def _kind(system: Any, entry: dict[str, Any]) -> str:
    kind = entry.get("type")
    if kind in ("file", "directory"):
        return "f" if kind == "file" else "d"
    try:  # a link
        kind = system.info(entry["name"]).get("type")
    except Exception:
        return "-"
    return {"file": "F", "directory": "D"}.get(str(kind), "-")


def _names(system: Any, path: str) -> dict[str, Any]:
    entries = system.ls(path, detail=True)
    if len(entries) == 1 and entries[0].get("type") == "file":
        whole = entries[0]["name"].rstrip("/")
        if whole == path.rstrip("/"):
            raise NotADirectoryError(errno.ENOTDIR, "not a folder")
    names = [
        (_kind(system, entry) + entry["name"].rstrip("/").rpartition("/")[2]).encode(
            "utf-8", "surrogateescape"
        )
        for entry in entries
    ]
    names = [name for name in names if len(name) > 1 and b"\0" not in name]
    return {
        "status": 0,
        "names": b"".join(name + b"\0" for name in names),
        "name_count": len(names),
    }


def _told(info: dict[str, Any]) -> dict[str, Any]:
    if info.get("type") == "directory":
        return {"status": 0, "is_folder": True}
    if info.get("size") is None:
        raise OSError(errno.EOPNOTSUPP, "fsspec reports no size")
    return {
        "status": 0,
        "bytes": int(info["size"]),
        "mtime_ns": mtime_ns(info),
        "version": _version(info),
    }


def mtime_ns(info: dict[str, Any]) -> int:
    """0: not told."""
    for name in ("mtime", "modified", "LastModified", "last_modified", "updated", "date_time",
                 "modify", "modificationTime", "created"):
        value = info.get(name)
        try:
            if isinstance(value, tuple) and len(value) >= 6:
                value = datetime.datetime(*value[:6], tzinfo=datetime.timezone.utc)
            elif name == "modify" and isinstance(value, str):  # FTP's, RFC 3659
                value = datetime.datetime.strptime(value[:14] + "Z", "%Y%m%d%H%M%S%z")
        except ValueError:
            continue
        if name == "modificationTime" and isinstance(value, int):  # HDFS's, in ms
            value /= 1000
        if isinstance(value, datetime.datetime):
            value = value.timestamp()
        if isinstance(value, (int, float)) and 0 < value < 1e11:
            return int(value * 1e9)
    return 0


def _version(info: dict[str, Any]) -> int:
    for name in ("ETag", "etag", "md5Hash", "CRC", "checksum"):
        value = info.get(name)
        if value:
            digest = hashlib.blake2b(repr(value).encode(), digest_size=8).digest()
            return int.from_bytes(digest, "little") or 1
    return 0


def told_error(error: BaseException, told: str) -> Error:
    """What failed, as the library would tell it; without the exception, which may show a password.
    """
    if isinstance(error, Error):
        return error
    answer = _failure(error)
    status = answer["status"]
    return from_native(status, errno.errorcode.get(-status, ""), answer["what"], repr(told),
                       answer["advice"], told, "", None)


def _failure(error: BaseException) -> dict[str, Any]:
    number = getattr(error, "errno", None)
    if isinstance(error, FileNotFoundError) or isinstance(error, KeyError):
        status = -errno.ENOENT
    elif isinstance(error, NotADirectoryError):
        status = -errno.ENOTDIR
    elif isinstance(error, PermissionError):
        status = -errno.EACCES
    elif isinstance(error, (ImportError, NotImplementedError)):
        status = _stoker.STATUSES["UNSUPPORTED"]
    elif isinstance(number, int) and 0 < number < 4096:
        status = -number
    else:
        status = -errno.EIO
    what = f"fsspec: {type(error).__name__}: {error}"
    what = re.sub(r"https?://[^\s'\"<>)]+", lambda url: shown(os.fsencode(url[0])), what)
    with _lock:
        for name, login in _logins.items():
            password = login.rpartition("@")[0].rpartition("/")[2].partition(":")[2]
            what = what.replace(login, name).replace(password, "...") if password else what
    return {
        "status": status,
        "what": what.replace("\0", " ").encode("ascii", "replace").decode()[:190],
        "advice": "look at the server, and at fsspec's settings for it",
    }
