"""Reads URLs that the library has no client for through fsspec: ``sftp://``, ``ftp://``,
``smb://``, ``memory://``, ``zip://folder::https://host/a.zip``, ``simplecache::sftp://...`` and all
other installed protocols.

The library sends requests for sizes, names and bytes; a few threads of this process serve them with
fsspec. This is slower than the library's clients, since all bytes pass through Python. Order,
states, timeouts and retries are the same. Credentials come from fsspec's configuration
(https://filesystem-spec.readthedocs.io, "Configuration") or from the URL; errors never show its
password.

The library uses an alias of the URL, without a password. The alias of a chain, such as
``zip://folder::sftp://host/a.zip``, is ``zip::sftp://host/a.zip!/folder``, so that paths grow at
the end. Errors show aliases.
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


def _threads() -> int:
    text = os.environ.get("STOKER_FSSPEC_THREADS") or "8"
    if not (text.isascii() and text.isdigit()):
        raise ArgumentError(
            "an environment variable is not a number",
            f"STOKER_FSSPEC_THREADS={text!r}",
            "set it to 1 to 64, or remove it",
        )
    return max(1, min(64, int(text)))


THREADS = _threads()
"""Threads that call fsspec; each has its own connections."""
_OPEN_MAX = 16  # open files of a thread
_STAT_TIMES_MAX = 4096  # files with a time of their last stat
_SFTP_BYTES = 255 << 10  # most bytes in a response of OpenSSH's sftp-server; others send fewer
_INSIDE = "!/"
# Most file systems of fsspec parse names with urllib, which drops these characters or stops at
# them. So they are replaced by others before, and restored after.
_SPECIAL = "?#\t\n\r"
_SUBSTITUTES = "".join(chr(0xE000 + number) for number in range(len(_SPECIAL)))
_ESCAPE, _UNESCAPE = str.maketrans(_SPECIAL, _SUBSTITUTES), str.maketrans(_SUBSTITUTES, _SPECIAL)
_STAT, _LIST, _READ = 1, 2, 3
NOTE = "through fsspec: slower than s3://, gs://, az://, hf:// and http(s)://"

_lock = threading.Lock()
_memory_lock = threading.Lock()
_external_fs: tuple[int, _stoker.ExternalFs] | None = None
_serving = 0  # process id, once its threads run
_logins: dict[str, str] = {}  # scheme and host of an alias -> the same with the password
_counts: dict[str, dict[str, float]] = {}
_warned: set[str] = set()
_stat_clock = 0  # incremented by each stat of a file
_stat_times: dict[str, int] = {}  # clock at the last stat of a file
_stat_times_cleared = 0  # clock when the times were cleared


def _forget_lock() -> None:
    global _lock, _memory_lock
    _lock = threading.Lock()  # a thread of the parent may hold the old one
    _memory_lock = threading.Lock()


os.register_at_fork(after_in_child=_forget_lock)


def external_fs() -> _stoker.ExternalFs:
    """The queue of this process's engines for requests; it uses no threads until it is needed."""
    global _external_fs
    with _lock:
        if _external_fs is None or _external_fs[0] != os.getpid():
            _external_fs = (os.getpid(), _stoker.ExternalFs())
        return _external_fs[1]


def stats() -> dict[str, Any] | None:
    """Requests of this process to fsspec by protocol; None: there were none."""
    with _lock:
        found = {name: dict(row) for name, row in _counts.items() if row["requests"]}
    return {**found, "note": NOTE} if found else None


def warn_once(alias: str, what: str) -> None:
    """Logs once for each protocol that fsspec is slow."""
    message = f"{'::'.join(_schemes(alias))}:// is {what}"
    with _lock:
        if message in _warned:
            return
        _warned.add(message)
    logging.getLogger("stoker").warning("%s %s", message, NOTE)


# ---- names ----


def native_paths(paths: Any) -> tuple[bytes, ...]:
    """The aliases of paths. Starts the threads if they are needed."""
    return tuple(native(path) for path in paths)


def is_external(path: bytes) -> bool:
    """True for a URL that the library has no client for."""
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
    return len(head) > 1 and _has_scheme(path)  # else the name of a file


def native(path: bytes) -> bytes:
    if not is_external(path):
        return path
    url = os.fsdecode(path)
    alias = url if _is_nested(url) else _alias_of(url)
    _check_installed(alias)
    _start_threads()
    return os.fsencode(alias)


def _is_scheme(head: bytes) -> bool:
    return head.replace(b"+", b"").replace(b"-", b"").replace(b".", b"").isalnum()


def _has_scheme(path: bytes) -> bool:
    """True for scheme://..., and a::b::scheme://..."""
    parts = path.split(b"://", 1)
    return len(parts) == 2 and all(map(_is_scheme, parts[0].split(b"::")))


def is_chain(alias: str) -> bool:
    return "::" in alias.partition("://")[0]


def _is_nested(alias: str) -> bool:
    """True for the alias of a chain, whose path is inside an archive."""
    return is_chain(alias) and (_INSIDE in alias or alias.endswith("!"))


def _http_alias(url: str) -> str:
    """The native alias of http://, or of a chain to it; requests have the complete URL."""
    return os.fsdecode(_stoker.url_alias(os.fsencode(url)))


def shown(name: bytes) -> str:
    """A URL without credentials, for messages."""
    return os.fsdecode(_stoker.url_redact(name))


def _alias_of(url: str) -> str:
    """The alias of a URL: the path at its end, and no password."""
    bits = url.split("::")
    index = next((i for i, bit in enumerate(bits) if "://" in bit), len(bits) - 1)
    if "://" not in bits[index]:  # a chain ends in a local path, as in fsspec
        bits[index] = "file://" + os.path.abspath(bits[index])
        url = "::".join(bits)
    if index == len(bits) - 1:
        scheme, _, rest = url.partition("://")
        if bits[index].lower().startswith(("http://", "https://")):
            return _http_alias(url)
        login, slash, path = rest.partition("/")
        user, at, host = login.rpartition("@")
        if ":" in user:
            name = f"{scheme}://{user.partition(':')[0]}@{host}"
            with _lock:
                _logins[name] = f"{scheme}://{login}"
            return f"{name}{slash}{path}"
        return url
    scheme, _, inside = bits[index].partition("://")
    base = _alias_of("::".join(bits[index + 1 :]))
    return "::".join([*bits[:index], scheme, base]) + _INSIDE + inside.lstrip("/")


def _resolve(alias: str) -> str:
    """The URL of an alias, for fsspec."""
    base, inside, path = alias.partition(_INSIDE) if _is_nested(alias) else (alias, "", "")
    if not inside and _is_nested(alias):
        base, inside = alias[:-1], _INSIDE
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
    index = next(i for i, bit in enumerate(bits) if "://" in bit)
    bits[index - 1] += f"://{path}"
    return "::".join(bits)


def _schemes(alias: str) -> list[str]:
    return alias.split("://", 1)[0].split("::")


def _check_installed(alias: str) -> None:
    """Raises UnsupportedError unless fsspec and its packages for this URL are installed."""
    try:
        registry = importlib.import_module("fsspec.registry")
    except ImportError:
        raise UnsupportedError(
            "the library has no client for this URL, and the package fsspec is not installed",
            repr(alias), "pip install fsspec; or use s3, gs, az, hf, http, https, or a path",
        ) from None
    for scheme in _schemes(alias):
        try:
            registry.get_filesystem_class(scheme)
        except ImportError as error:
            raise UnsupportedError(
                f"fsspec lacks a package for {scheme}://: {error}", repr(alias),
                f"pip install {_package(scheme, error)}",
            ) from None
        except ValueError:
            raise UnsupportedError(
                f"neither the library nor fsspec knows {scheme}://", repr(alias),
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


def _note_stat(alias: str) -> None:
    """Marks open files with this name as old: the stat may have been of a newer file."""
    global _stat_clock, _stat_times_cleared
    with _lock:
        if len(_stat_times) >= _STAT_TIMES_MAX:
            _stat_times.clear()
            _stat_times_cleared = _stat_clock
        _stat_clock += 1
        _stat_times[alias] = _stat_clock


class Client:
    """Open files of one thread, since fsspec's file systems are not thread-safe."""

    def __init__(self) -> None:
        self._systems: dict[str, Any] = {}
        self._files: collections.OrderedDict[str, tuple[Any, int]] = collections.OrderedDict()

    def run(self, kind: int, alias: str, offset: int, memory: Any) -> dict[str, Any]:
        """The arguments of the reply. Never raises."""
        begun = time.monotonic()
        try:
            answer = self._with_retry(kind, alias, offset, memory)
        except BaseException as error:
            answer = _failure(error)
        finally:
            if memory is not None:
                memory.release()
        self._count(kind, alias, answer, time.monotonic() - begun)
        return answer

    def _count(self, kind: int, alias: str, answer: dict[str, Any], seconds: float) -> None:
        scheme = "::".join(_schemes(alias))
        with _lock:
            first = scheme not in _counts
            row = _counts.setdefault(
                scheme, {"requests": 0, "lists": 0, "bytes": 0, "seconds": 0.0})
            row["requests"] += 1
            row["lists"] += kind == _LIST
            row["bytes"] += answer.get("bytes", 0) if kind == _READ else 0
            row["seconds"] += seconds
        if first:
            warn_once(alias, "read")

    def _with_retry(self, kind: int, alias: str, offset: int, memory: Any) -> dict[str, Any]:
        try:
            answer = self._serve_serialised(kind, alias, offset, memory)
            # paramiko reports a lost connection as the end of the file.
            if kind != _READ or answer["bytes"] == len(memory):
                return answer
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError):
            raise
        except Exception:
            pass
        self.forget()  # the connection may be lost: retries once with a new one
        return self._serve_serialised(kind, alias, offset, memory)

    def _serve_serialised(self, kind: int, alias: str, offset: int, memory: Any) -> dict[str, Any]:
        if "memory" in _schemes(alias):  # its files have one position for all threads
            with _memory_lock:
                return self._serve(kind, alias, offset, memory)
        return self._serve(kind, alias, offset, memory)

    def _serve(self, kind: int, alias: str, offset: int, memory: Any) -> dict[str, Any]:
        system, path = self.system(alias)
        if kind == _READ:
            return {"status": 0, "bytes": self._read(system, path, alias, offset, memory)}
        invalidate = getattr(system, "invalidate_cache", None)
        if kind == _LIST:
            if invalidate:
                invalidate(path)
            return _names(system, path)
        if invalidate and not _is_archive(system):
            invalidate(system._parent(path))
        found = _stat_reply(system.info(path))
        _note_stat(alias)
        return found

    def _read(self, system: Any, path: str, alias: str, offset: int, memory: Any) -> int:
        wanted = len(memory)
        if getattr(system, "async_impl", False):  # a range is one request
            data = system.cat_file(path, start=offset, end=offset + wanted)[:wanted]
            memory[: len(data)] = data
            return len(data)
        file = self._opened(system, path, alias)
        if hasattr(file, "MAX_REQUEST_SIZE"):  # paramiko: else each 32 KiB needs a round trip
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

    def _opened(self, system: Any, path: str, alias: str) -> Any:
        """Opens the file. Reuses an open one unless a later stat may have been of a newer file."""
        file, since = self._files.pop(alias, (None, 0))
        with _lock:
            now, looked = _stat_clock, _stat_times.get(alias, _stat_times_cleared)
        if file is not None and since < looked:
            with suppress(Exception):  # the connection may be lost
                file.close()
            file = None
        if file is None:
            while len(self._files) >= _OPEN_MAX:
                self._files.popitem(last=False)[1][0].close()
            file, since = system.open(path, "rb", cache_type="none"), now
        self._files[alias] = file, since
        return file

    def system(self, alias: str) -> tuple[Any, str]:
        """The file system of an alias, and the path in it."""
        core = importlib.import_module("fsspec.core")
        if _is_nested(alias):
            base, _, inside = alias.partition(_INSIDE)
            key = base.removesuffix("!")
            if key not in self._systems:
                self._systems[key] = core.url_to_fs(_resolve(key + _INSIDE))[0]
            return self._systems[key], inside.strip("/")
        scheme, _, rest = alias.partition("://")
        rest = rest if "/" in rest else f"{rest}/"  # the root, not the home folder
        escaped = f"{scheme}://{rest}".translate(_ESCAPE)
        key = f"{scheme}://{rest.partition('/')[0]}"
        if key not in self._systems:
            self._systems[key] = core.url_to_fs(_resolve(escaped))[0]
        system = self._systems[key]
        path = system._strip_protocol(escaped.removeprefix(scheme[: scheme.rfind(":") + 1]))
        return system, path.translate(_UNESCAPE)

    def forget(self) -> None:
        """Closes all connections; the next call opens new ones."""
        for file, _ in self._files.values():
            with suppress(Exception):  # the connection may be lost
                file.close()
        self._files.clear()
        for system in self._systems.values():
            while system is not None:
                cached = getattr(type(system), "_cache", {})
                cached.pop(getattr(system, "_fs_token", None), None)
                client = getattr(system, "client", None)
                if hasattr(client, "open_sftp"):  # paramiko's thread keeps the connection open
                    client.close()
                system = getattr(system, "__dict__", {}).get("fs")
        self._systems.clear()


def _is_archive(system: Any) -> bool:
    """True for archives: their listing cannot become stale."""
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
        first_name = entries[0]["name"].rstrip("/")
        if first_name == path.rstrip("/"):
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


def _stat_reply(info: dict[str, Any]) -> dict[str, Any]:
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
    """Time of modification; 0: unknown."""
    for name in ("mtime", "modified", "LastModified", "last_modified", "updated", "date_time",
                 "modify", "modificationTime", "created"):
        value = info.get(name)
        try:
            if isinstance(value, tuple) and len(value) >= 6:
                value = datetime.datetime(*value[:6], tzinfo=datetime.timezone.utc)
            elif name == "modify" and isinstance(value, str):  # FTP, RFC 3659
                value = datetime.datetime.strptime(value[:14] + "Z", "%Y%m%d%H%M%S%z")
        except ValueError:
            continue
        if name == "modificationTime" and isinstance(value, int):  # HDFS, in ms
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


def error_for(error: BaseException, alias: str) -> Error:
    """The exception of this package for an exception of fsspec, which may show a password."""
    if isinstance(error, Error):
        return error
    answer = _failure(error)
    status = answer["status"]
    return from_native(status, errno.errorcode.get(-status, ""), answer["what"], repr(alias),
                       answer["advice"], alias, "", None)


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
        "advice": "check the server, and fsspec's settings for it",
    }
