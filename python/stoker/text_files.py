"""Files of text: decompressed, recognised by their first bytes, and documents that cannot be read.

    paths -> plain_paths -> files that TextLoader reads     .gz, .bz2, .xz --> plain, in the cache
    first bytes of each -> kind_of -> "json" or "lines"     a file that is no text is an error
    a document that cannot be read -> BadDocuments -> an error with file, line and byte, or skipped
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import os
import re
import shutil
import threading
import time
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, BinaryIO, cast

from . import _stoker, fsspec_source
from ._cache_dir import cache_dir, make_once
from ._options import count, word
from .compressed import ENDINGS, ERRORS, Compression, compression_of, is_damage
from .dataset import BadSample
from .engine import Engine
from .errors import (
    ArgumentError,
    CorruptError,
    Error,
    FormatError,
    LimitError,
    TruncatedError,
    from_native,
)
from .state import EPOCH, POSITION
from .token_counts import Reading
from .token_files import Tokens

__all__ = ["BadDocuments", "Head", "kind_of", "plain_paths", "readable_files", "strip_mark"]

HEAD_BYTES = 65536
"""First bytes of a file by which its kind is recognised."""
PART_BYTES = 1 << 20
BAD_LISTED_MAX = 10_000
SEEN_BITS = 1024
UNUSED_DAYS = 30
"""After so many days without a use, a decompressed file in the cache is removed."""
_PLAIN = re.compile(r"text-[0-9a-f]{32}\.txt((\.\w+)?\.part)?")
MARK = b"\xef\xbb\xbf"
NEWLINE = 10
JSON_ENDINGS = (b".jsonl", b".ndjson", b".jl", b".json")
ZSTD_ENDINGS = (b".zst", b".zstd")

_FOREIGN = (
    ("a JPEG", 0, b"\xff\xd8\xff"),
    ("a PNG", 0, b"\x89PNG\r\n\x1a\n"),
    ("Parquet", 0, b"PAR1"),
    ("Arrow", 0, b"ARROW1"),
    ("a zip", 0, b"PK\3\4"),
    ("a tar", 257, b"ustar"),
    ("HDF5", 0, b"\x89HDF\r\n\x1a\n"),
    ("a NumPy array", 0, b"\x93NUMPY"),
    ("a Megatron index", 0, b"MMIDIDX\0"),
    ("a PDF", 0, b"%PDF-"),
    ("7-Zip", 0, b"7z\xbc\xaf\x27\x1c"),
    ("UTF-16 text", 0, b"\xff\xfe"),
    ("UTF-16 text", 0, b"\xfe\xff"),
)


def strip_mark(stored: bytes) -> bytes:
    """Without the byte order mark that some programs write before the text."""
    return stored.removeprefix(MARK)


# ---- compressed files ----


class _Ranges(io.RawIOBase):
    """A file or object, read in parts."""

    def __init__(self, engine: Engine, path: bytes) -> None:
        self._file = _stoker.File(engine._native, path)
        self._at = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        want = min(len(buffer), self._file.info()[2] - self._at)
        if want <= 0:
            return 0
        (found,) = _stoker.read_ranges([(self._file, self._at, want)], 0)
        if isinstance(found, BaseException):
            raise found
        buffer[: len(found)] = found
        self._at += len(found)
        return len(found)

    def identity(self) -> str:
        return repr(self._file.info()[2:5])

    def close(self) -> None:
        self._file.close()
        super().close()


def plain_paths(paths: Sequence[bytes], engine: Engine) -> list[bytes]:
    """The paths, with files compressed by gzip, bzip2 or xz replaced by plain ones in the cache."""
    return [_plain(path, engine) for path in paths]


def readable_files(
    files: Sequence[bytes], engine: Engine, damaged: list[BadSample]
) -> list[bytes]:
    """The files without those that cannot be decompressed, which are added to ``damaged``."""
    found = []
    for file in files:
        try:
            with Tokens([_plain(file, engine)], stored="uint8", engine=engine) as tokens:
                if tokens.frames:
                    Reading(tokens._native, NEWLINE).close()  # decompresses all of it
        except (CorruptError, TruncatedError) as error:
            shown = fsspec_source.shown(file)
            damaged.append(
                BadSample(shown, "", error.offset, error.status, error.name, error.what, None)
            )
        else:
            found.append(file)
    return found


def _plain(path: bytes, engine: Engine) -> bytes:
    if b"://" not in path and os.path.isdir(path):
        raise ArgumentError(
            "a folder is not a text file",
            repr(os.fsdecode(path)),
            "pass its files, or a pattern, like 'FOLDER/*.jsonl'",
        )
    with _Ranges(engine, fsspec_source.native(path)) as raw:
        head = raw.read(512) or b""
        identity = raw.identity()
    compression = compression_of(head)
    if compression is not None:
        return _decompressed(path, engine, identity, compression)
    if not (head.startswith(b"\x28\xb5\x2f\xfd") or head[1:4] == b"\x2a\x4d\x18"):  # zstd
        _refuse_foreign(head, path)
    return path


def _decompressed(
    path: bytes, engine: Engine, identity: str, compression: Compression
) -> bytes:
    """The plain file in the cache; processes that need it at the same time make it once."""
    shown = repr(fsspec_source.shown(path))
    where = path if b"://" in path else os.path.abspath(path)
    key = hashlib.sha256(repr((where, (compression.name, identity))).encode()).hexdigest()[:32]
    folder = cache_dir()
    if folder is None:
        raise ArgumentError(
            f"a text file compressed by {compression.name} needs a cache folder",
            shown,
            "set STOKER_CACHE to a folder, or compress the file by zstd, which is read without one",
        )
    target = os.path.join(folder, f"text-{key}.txt")

    def decompress(part: BinaryIO) -> None:
        try:
            _decompress(part, path, engine, compression)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(part.name)
            raise

    try:
        os.makedirs(folder, exist_ok=True)
        while not _use(target):
            make_once(target, decompress, "decompresses the file")
            _remove_unused(folder)
    except Error:
        raise
    except OSError as error:
        raise from_native(
            -(error.errno or errno.EIO),
            "",
            f"cannot decompress a text file into the cache: {error.strerror}",
            f"{shown} to {target!r}",
            "set STOKER_CACHE to a folder with more space, or compress the file by zstd, "
            "which is read without a copy",
            "",
            "",
            None,
        ) from None
    return os.fsencode(target)


def _use(plain: str) -> bool:
    """Marks a plain file as used now, by its access time. False: it does not exist."""
    try:
        written_ns = os.stat(plain).st_mtime_ns
        with contextlib.suppress(OSError):  # of another user, or read-only
            os.utime(plain, ns=(time.time_ns(), written_ns))
    except FileNotFoundError:
        return False
    return True


def _remove_unused(folder: str) -> None:
    """Removes plain files that no process has used for long. Those that are open stay readable."""
    before = time.time() - UNUSED_DAYS * 86400
    with os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if _PLAIN.fullmatch(entry.name):
                    about = entry.stat(follow_symlinks=False)
                    if max(about.st_atime, about.st_mtime) < before:
                        os.unlink(entry.path)


def _decompress(part: BinaryIO, path: bytes, engine: Engine, compression: Compression) -> None:
    """Writes the plain bytes, in place of what another process left in the part."""
    part.truncate(0)
    try:
        with _Ranges(engine, fsspec_source.native(path)) as raw:
            packed = compression.open(io.BufferedReader(raw, PART_BYTES))
            shutil.copyfileobj(cast(BinaryIO, packed), part, PART_BYTES)
        part.flush()
        os.fsync(part.fileno())
    except Error:  # the source cannot be read
        raise
    except (*ERRORS, ValueError) as error:
        if isinstance(error, OSError) and not is_damage(error):
            raise
        is_cut = isinstance(error, EOFError)
        raise (TruncatedError if is_cut else CorruptError)(
            f"a file compressed by {compression.name} "
            + ("ends too early" if is_cut else f"is damaged: {error}"),
            repr(fsspec_source.shown(path)),
            "copy the file again",
        ) from None


# ---- what a file is ----


class Head:
    """Reads the first bytes of files that are open as tokens of one byte, decompressed."""

    def __init__(self, tokens: Tokens) -> None:
        self._native = _stoker.TokenLoader(
            tokens._native,
            1,
            batch_size=1024,
            stride=1,
            shuffle=_stoker.SHUFFLE_NONE,
            tail=_stoker.TAIL_KEEP,
            rows=_stoker.ROWS_WINDOWS,
            labels=_stoker.LABELS_NONE,
            dtype=_stoker.INT32,
        )

    def read(self, file: int) -> bytes:
        first = self._native.file_end(file - 1) if file else 0
        left = min(self._native.file_end(file) - first, HEAD_BYTES)
        state = list(self._native.state())
        state[EPOCH], state[POSITION] = 0, first
        self._native.set_state(tuple(state))
        found = b""
        while len(found) < left:
            batch = self._native.next()
            assert batch is not None
            found += bytes(memoryview(batch.array(0)).cast("B"))[::4]
        return found[:left]

    def close(self) -> None:
        self._native.close()


def kind_of(documents: str | None, files: Sequence[bytes], tokens: Tokens, where: str) -> str:
    """The kind of documents, "json", "lines" or "files": by the first bytes, then by the names."""
    if documents is not None:
        word(documents, {"json": 0, "lines": 0, "files": 0}, f"{where} documents")
    head = Head(tokens) if len(tokens) else None
    found: dict[str, bytes] = {}
    try:
        for number, file in enumerate(files):
            start = head.read(number) if head else b""
            _refuse_foreign(start, file)
            if documents in (None, "json") and start:
                found.setdefault(_kind_of_file(start, file, documents == "json"), file)
    finally:
        if head:
            head.close()
    if documents is not None:
        return documents
    if len(found) > 1:
        names = ", ".join(f"{kind}: {fsspec_source.shown(file)!r}" for kind, file in found.items())
        raise ArgumentError(
            "the source contains JSON and other files", names, "pass documents='json' or 'lines'"
        )
    return next(iter(found), "json" if all(map(_is_json_name, files)) else "lines")


def _is_json_name(file: bytes) -> bool:
    name = file.lower()
    for ending in (*ZSTD_ENDINGS, *map(str.encode, ENDINGS)):
        name = name.removesuffix(ending)
    return name.endswith(JSON_ENDINGS)


def _kind_of_file(start: bytes, file: bytes, must_be_json: bool) -> str:
    text = strip_mark(start).lstrip()
    is_named = must_be_json or _is_json_name(file)
    line, newline, _ = text.partition(b"\n")
    value = _parsed(line)
    if text[:1] == b"[" and (is_named and not isinstance(value, list)) or (
        isinstance(value, list) and (is_named or any(isinstance(v, dict) for v in value))
    ):
        raise FormatError(
            "the file is a JSON array, not lines of JSON",
            repr(fsspec_source.shown(file)),
            "write one object a line: jq -c '.[]' FILE > FILE.jsonl",
        )
    if is_named or isinstance(value, dict):
        return "json"
    is_cut = not newline and len(start) == HEAD_BYTES  # the first line is longer than the head
    return "json" if is_cut and text[:1] == b"{" and text[1:].lstrip()[:1] == b'"' else "lines"


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _refuse_foreign(start: bytes, file: bytes) -> None:
    shown = fsspec_source.shown(file)
    text = strip_mark(start).lstrip().lower()
    if text.startswith(b"version https://git-lfs"):
        raise FormatError(
            "the file is a Git LFS pointer", repr(shown), "fetch the file itself: git lfs pull"
        )
    if text.startswith((b"<!doctype html", b"<html", b"<?xml")) and _is_json_name(file):
        raise FormatError(
            "the file is a page of HTML or XML, not lines of JSON",
            repr(shown),
            "it is perhaps the error page of a download: download the file again",
        )
    name = next((n for n, at, magic in _FOREIGN if start[at:].startswith(magic)), None)
    if name is None and b"\0" in start[:4096]:
        name = "binary data"
    if name is not None:
        raise FormatError(
            "the file is not UTF-8 text",
            f"{shown!r} looks like {name}",
            "pass files of text or of JSON lines; for token files use TokenLoader, and write the "
            "text column of a table as JSON lines",
        )


# ---- documents that cannot be read ----


class BadDocuments:
    """Says where a document is; raises the error of one that cannot be read, or lists it."""

    def __init__(
        self,
        files: Sequence[bytes],
        kind: str,
        on_error: str,
        bad_samples_max: int | None,
        damaged: Sequence[BadSample] = (),
    ) -> None:
        word(on_error, {"raise": 0, "skip": 0}, "TextLoader on_error")
        self.skips = on_error == "skip"
        self._files, self._kind = files, kind
        self._max = bad_samples_max
        self.native: _stoker.TokenLoader | None = None  # documents by number
        self._lock = threading.Lock()
        self._found = list(damaged)  # files
        self._seen: dict[int, int] = {}  # number // SEEN_BITS: bits of documents that were counted
        self.count = len(damaged)
        if self._max and self.count > self._max:
            raise self._over(repr(damaged[-1].shard))

    def _over(self, where: str) -> LimitError:
        return LimitError(
            f"more than bad_samples_max={self._max} documents cannot be read",
            where,
            "look at the loader's quarantine, or raise the limit",
        )

    def place(self, number: int) -> tuple[str, int, int]:
        """(file, line from 1, offset of the document in the decompressed file)"""
        assert self.native is not None
        native = self.native
        file = bisect_right(_Ends(native, len(self._files)), number)
        before = native.file_end(file - 1) if file else 0
        shown = fsspec_source.shown(self._files[file])
        return shown, number - before + 1, native.first_token(number)

    def add(self, number: int, error: BaseException) -> None:
        """Raises CorruptError, or lists the document, which is then empty."""
        file, line, first = self.place(number)
        reason = f"{type(error).__name__}: {error}"
        where = f"{file!r}" if self._kind == "files" else f"{file!r} line {line}, byte {first}"
        if not self.skips:
            raise CorruptError(
                f"a document cannot be read: {reason}",
                where,
                "look at that line, use another field, or pass on_error='skip'",
                shard=file,
                offset=first,
            ) from error
        with self._lock:
            block, bit = number // SEEN_BITS, 1 << number % SEEN_BITS
            if self._seen.get(block, 0) & bit:
                return
            self._seen[block] = self._seen.get(block, 0) | bit
            self.count += 1
            if len(self._found) < BAD_LISTED_MAX:
                bad = CorruptError
                self._found.append(
                    BadSample(file, str(line), first, bad.status, bad.name, reason, number)
                )
            over = self._max and self.count > self._max
        if over:
            raise self._over(where)

    @property
    def quarantine(self) -> list[BadSample]:
        with self._lock:
            return list(self._found)


class _Ends(Sequence[int]):
    """Numbers of documents up to the end of each file, for bisect."""

    def __init__(self, native: _stoker.TokenLoader, files: int) -> None:
        self._native, self._files = native, files

    def __len__(self) -> int:
        return self._files

    def __getitem__(self, file: Any) -> Any:
        return self._native.file_end(file)
