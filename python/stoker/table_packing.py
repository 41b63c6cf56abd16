"""pack_table(): packs images that a table names by path or URL as tars."""

from __future__ import annotations

import concurrent.futures
import contextlib
import csv
import errno
import hashlib
import io
import itertools
import json
import os
import re
import sys
import time
import urllib.parse
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any

from . import _stoker
from ._options import count, parse_bytes
from .compressed import ENDINGS as COMPRESSED_ENDINGS
from .compressed import ERRORS as DECOMPRESSION_ERRORS
from .compressed import HEAD_BYTES, compression_of, is_damage
from .engine import Engine, engine_of
from .errors import (
    ArgumentError,
    Error,
    FormatError,
    LimitError,
    StateError,
    UnsupportedError,
    from_native,
)
from .shard_writer import ShardWriter
from .table_quarantine import BadRow, Quarantine, listed_rows, os_error

__all__ = ["BadRow", "pack_table"]

Row = Mapping[str, Any]

_AHEAD = 4  # rows in flight for each thread
_IMAGE_COLUMNS = ("file_name", "path", "image", "url")
_RETRY_WAIT_S = 0.1  # before the first retry; doubles
_TELL_S = 0.05  # between two calls of progress
# The row's path or URL cannot be a file here: an error of the row, which stays in the table.
_ROW_ERRORS = (
    errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.ELOOP, errno.ENAMETOOLONG,
    errno.ENXIO,
)  # fmt: skip


class _RowFailed(Exception):
    """The error concerns this row only; the next ones may be fine."""

    def __init__(self, error: Error) -> None:
        super().__init__(str(error))
        self.error = error


# ---- tables ----


def _fail_table(path: str, place: str, problem: object) -> Error:
    if isinstance(problem, OSError) and not is_damage(problem):
        return os_error(problem, path, "look whether it is there")
    return FormatError(
        f"the table cannot be read: {problem}", f"'{path}' {place}", "correct the table"
    )


def _open_table(path: str) -> Any:
    """The bytes of a table, decompressed."""
    with open(path, "rb") as file:
        compression = compression_of(file.read(HEAD_BYTES))
    return open(path, "rb") if compression is None else compression.open(path)


def _read_csv(path: str, delimiter: str) -> Iterator[Row]:
    number, table = 0, None
    try:
        with io.TextIOWrapper(_open_table(path), encoding="utf-8-sig", newline="") as file:
            table = csv.DictReader(file, delimiter=delimiter, strict=True)
            for row in table:
                if None in row or None in row.values():
                    raise _fail_table(
                        path,
                        f"row {number}, line {table.line_num}",
                        "a row has not as many cells as the first line",
                    )
                yield row
                number += 1
    except (csv.Error, UnicodeDecodeError, *DECOMPRESSION_ERRORS) as problem:
        line = table.line_num if table else 1
        raise _fail_table(path, f"row {number}, line {line}", problem) from None


def _read_jsonl(path: str) -> Iterator[Row]:
    number, line_number, at = 0, 0, 0
    line = b""
    try:
        with _open_table(path) as file:
            for line in file:
                line_number += 1
                text = line.removeprefix(b"\xef\xbb\xbf")
                if text.strip():
                    row = json.loads(text)
                    if not isinstance(row, dict):
                        raise ValueError("a line is not an object")
                    yield row
                    number += 1
                at += len(line)
    except (ValueError, RecursionError, *DECOMPRESSION_ERRORS) as problem:
        raise _fail_table(path, f"row {number}, line {line_number}, byte {at}", problem) from None


def _read_parquet(path: str) -> Iterator[Row]:
    try:
        import pyarrow  # type: ignore[import-untyped, import-not-found, unused-ignore]
        from pyarrow import (  # type: ignore[import-untyped, import-not-found, unused-ignore]
            parquet,
        )
    except ImportError:
        raise UnsupportedError(
            "a Parquet table needs pyarrow, which is not installed",
            f"'{path}'",
            "run: pip install pyarrow",
        ) from None
    number = 0
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=4096):
                yield from batch.to_pylist()
                number += len(batch)
    except pyarrow.ArrowException as problem:
        raise _fail_table(path, f"row {number}", problem) from None


_READERS: dict[str, Callable[[str], Iterator[Row]]] = {
    ".csv": lambda path: _read_csv(path, ","),
    ".tsv": lambda path: _read_csv(path, "\t"),
    ".jsonl": _read_jsonl,
    ".parquet": _read_parquet,
}


def _reader_of(path: str) -> Callable[[str], Iterator[Row]] | None:
    name = path.lower()
    for ending in COMPRESSED_ENDINGS:
        name = name.removesuffix(ending)
    reader = _READERS.get(os.path.splitext(name)[1])
    return None if reader is _read_parquet and name != path.lower() else reader


def _table_files(table: Any) -> list[str] | None:
    """Paths of the tables; None: the rows themselves."""
    if isinstance(table, (str, bytes, os.PathLike)):
        table = [table]
    elif not isinstance(table, (list, tuple)) or not table:
        return None
    if not all(isinstance(each, (str, bytes, os.PathLike)) for each in table):
        return None
    native = engine_of(None, "pack_table")._native
    files: list[str] = []
    for each in table:
        path = os.fsdecode(each)
        if os.path.isdir(path):
            files += _tables_below(path)
        elif any(sign in path for sign in "{*?[") and not os.path.exists(path):
            found = _stoker.paths_expand(native, os.fsencode(path))[1]
            files += [os.fsdecode(name) for name in found]
        else:
            files.append(path)
    for path in files:
        if _reader_of(path) is None:
            endings = ", ".join(_READERS)
            raise ArgumentError("not a table", f"'{path}'", f"pass {endings} or rows of dicts")
    return files


def _tables_below(folder: str) -> list[str]:
    """All tables in a folder, in the order of their paths."""
    found = [
        os.path.join(root, name)
        for root, _, names in os.walk(folder)
        for name in names
        if _reader_of(name) is not None and not name.startswith((".", "_"))
    ]
    if not found:
        endings = ", ".join(_READERS)
        raise ArgumentError("the folder has no table", f"'{folder}'", f"tables end with {endings}")
    return sorted(found)


class _FileRow(dict[str, Any]):
    """A row of one of several tables."""

    folder = ""  # of its table
    place = ""  # its table and number there


class _Table:
    """Rows that can be read several times, and a hash of them."""

    def __init__(self, table: Any) -> None:
        sha = hashlib.sha256()
        self.folder = ""
        self.files = _table_files(table)
        if self.files is not None:
            for path in self.files:
                try:
                    with open(path, "rb") as file:
                        while part := file.read(1 << 20):
                            sha.update(part)
                except OSError as problem:
                    raise os_error(problem, path, "look whether it is there") from None
                if len(self.files) > 1:
                    sha.update(b"\0end of a table\0")
            self.folder = os.path.dirname(self.files[0]) if self.files else ""
            self.rows: Callable[[], Iterator[Row]] = self._rows_of_files
        else:
            try:
                rows = [dict(row) for row in table]
            except (TypeError, ValueError):
                raise ArgumentError(
                    f"{type(table).__name__} is not a table",
                    "pack_table",
                    "pass rows of dicts, a path, or a list of paths",
                ) from None
            sha.update(repr(rows).encode("utf-8", "backslashreplace"))
            self.rows = lambda: iter(rows)
        self.digest = sha.hexdigest()
        first = next(self.rows(), None)
        if first is None:
            raise ArgumentError("the table has no rows", "pack_table", "pass a table with rows")
        self.columns = list(first)

    def _rows_of_files(self) -> Iterator[Row]:
        assert self.files is not None
        columns: list[str] | None = None
        for path in self.files:
            read = _reader_of(path)
            assert read is not None
            if len(self.files) == 1:
                yield from read(path)
                return
            folder, is_first = os.path.dirname(path), True
            for number, row in enumerate(read(path)):
                if is_first and columns is not None and read is not _read_jsonl:
                    # Lines of JSON may leave out fields.
                    self._check_columns(path, columns, list(row))
                columns, is_first = columns or list(row), False
                of_file = _FileRow(row)
                of_file.folder, of_file.place = folder, f" ({path!r} row {number})"
                yield of_file

    @staticmethod
    def _check_columns(path: str, want: list[str], found: list[str]) -> None:
        if sorted(want) != sorted(found):
            raise FormatError(
                "the tables have different columns",
                f"'{path}' has {', '.join(found)}, the first one has {', '.join(want)}",
                "pack them one by one",
            )

    def check(self, columns: Iterable[str]) -> None:
        for column in columns:
            if column not in self.columns:
                raise ArgumentError(
                    f"the table has no column {column!r}",
                    "pack_table",
                    f"it has {', '.join(map(str, self.columns))}",
                )


class _Labels:
    """Numbers of labels: whole numbers stay as they are; names become classes, in sorted order.

    A row without a label (None, an empty cell, NaN) has none: it changes no other label.
    """

    def __init__(
        self, column: str | None, table: _Table, classes: Sequence[str] | None = None
    ) -> None:
        self.column = column
        self.classes: list[str] = []
        if column is not None and classes is None:
            self.classes = self._find(column, table)
        elif classes is not None:
            self.classes = [str(name) for name in classes]
        self.numbers = {name: number for number, name in enumerate(self.classes)}
        if len(self.numbers) != len(self.classes):
            raise ArgumentError("classes has a name twice", "pack_table", "pass each name once")

    @staticmethod
    def _find(column: str, table: _Table) -> list[str]:
        """The names of the classes; [] if the labels are numbers."""
        names: dict[str, int] = {}  # and the first row of each
        number: tuple[int, Any] | None = None
        for row_number, row in enumerate(table.rows()):
            value = row.get(column)
            if _is_missing(value):
                continue
            if _integer(value) is None and not hasattr(value, "is_integer"):
                names.setdefault(str(value), row_number)
            elif number is None:
                number = row_number, value
        if names and number is not None:
            name = min(names, key=lambda each: names[each])
            raise FormatError(
                "a column of labels has both numbers and names",
                f"column {column!r}: {number[1]!r} in row {number[0]}, {name!r} in row "
                f"{names[name]}",
                "correct the table, or pass classes=, the names of all classes in order",
            )
        return sorted(names)

    def number(self, row: Row) -> int:
        value = row.get(self.column) if self.column else None
        if _is_missing(value):
            raise _RowFailed(
                FormatError("the row has no label", f"column {self.column!r}", "correct the table")
            )
        if self.classes:
            found = self.numbers.get(str(value))
            text = "the label is not one of classes"
        else:
            found, text = _integer(value), "the label is not a whole number"
        if found is None:
            raise _RowFailed(
                FormatError(text, f"column {self.column!r}: {value!r}", "correct the table")
            )
        return found


def _is_missing(value: Any) -> bool:
    if isinstance(value, str):
        return not value.strip()
    return value is None or (hasattr(value, "is_integer") and value != value)  # NaN


def _integer(value: Any) -> int | None:
    """The whole number of a cell, also written 10.0 or -1; None: it is none, or over 63 bits."""
    if isinstance(value, str):
        if not re.fullmatch(r"\s*[+-]?[0-9]{1,19}(\.0*)?\s*", value, re.ASCII):
            return None
        found = int(value.partition(".")[0])
    elif hasattr(value, "__index__"):
        found = int(value)
    elif hasattr(value, "is_integer") and value.is_integer():  # also NumPy's float32
        found = int(value)
    else:
        return None
    return found if -(2**63) <= found < 2**63 else None


# ---- images ----


def _kind(data: bytes, place: Any) -> str:
    """The extension of an image, by its first bytes."""
    if data[:3] == b"\xff\xd8\xff":
        return "jpg"
    if data[:8] == b"\x89PNG\r\n\x1a\n":
        return "png"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "webp"
    raise _RowFailed(FormatError("not a JPEG, PNG or WebP", _shown(place), "check the file"))


def _shown(place: Any) -> str:
    """The path or URL of a row, for messages."""
    if isinstance(place, Mapping):
        place = place.get("path")
    return f"'{place}'" if isinstance(place, str) else f"a {type(place).__name__}"


class _Reader:
    """The bytes of the image of a row, up to a limit."""

    def __init__(
        self, base: str | None, fetch: Callable[[str], Any] | None, retries: int, bytes_max: int
    ) -> None:
        self.base, self.fetch, self.retries, self.bytes_max = base, fetch, retries, bytes_max

    def read(self, place: Any, folder: str | None = None) -> bytes:
        """folder: of relative paths, if base= was not passed."""
        base = self.base if self.base is not None else folder or ""
        if isinstance(place, Mapping):  # the form in which Hugging Face stores images in Parquet
            place = place["bytes"] if place.get("bytes") is not None else place.get("path")
        if isinstance(place, bytes):
            return self._bounded(place, "bytes of the row")
        if not isinstance(place, str) or not place or "\0" in place:
            raise _RowFailed(
                FormatError("the row has no image", _shown(place), "correct the table")
            )
        scheme, colon, _ = place.partition("://")
        if not colon:
            return self._file(os.path.join(base, place))
        if scheme.lower() == "file":
            return self._file(urllib.parse.unquote(urllib.parse.urlsplit(place).path))
        if self.fetch is None:
            raise UnsupportedError(
                f"{scheme}:// URLs are not fetched automatically",
                _shown(place),
                "pass fetch=, a function from a URL to its bytes, or download the files first",
            )
        return self._fetched(self.fetch, place)

    def _bounded(self, data: bytes, place: str) -> bytes:
        if len(data) > self.bytes_max:
            what = f"more than {self.bytes_max} bytes"
            raise _RowFailed(LimitError(what, f"'{place}'", "raise bytes_max"))
        return data

    def _file(self, path: str) -> bytes:
        attempt = 0
        while True:
            try:
                with open(path, "rb") as file:
                    return self._bounded(file.read(self.bytes_max + 1), path)
            except OSError as problem:
                failure = os_error(problem, path, "repair the table, or give base=")
                if problem.errno in _ROW_ERRORS:
                    raise _RowFailed(failure) from None
                if attempt == self.retries:
                    raise failure from None
            time.sleep(_RETRY_WAIT_S * 2**attempt)
            attempt += 1

    def _fetched(self, fetch: Callable[[str], Any], url: str) -> bytes:
        attempt = 0
        while True:
            try:
                return self._bounded(bytes(fetch(url)), url)
            except _RowFailed:
                raise
            except Exception as problem:
                if attempt == self.retries:
                    what = f"cannot be fetched: {type(problem).__name__}: {problem}"
                    failure = from_native(
                        -errno.EIO, "EIO", what, f"'{url}'", "look there", "", "", None
                    )
                    raise _RowFailed(failure) from problem
            time.sleep(_RETRY_WAIT_S * 2**attempt)
            attempt += 1


# ---- packing ----


def _ahead(
    work: Callable[[Any], Any], items: Iterator[Any], threads: int
) -> Generator[Any, None, None]:
    """work(item) in threads; yields results in order, with a bounded number in flight."""
    pool = concurrent.futures.ThreadPoolExecutor(threads, "stoker-table")
    flight: deque[concurrent.futures.Future[Any]] = deque()
    try:
        for item in items:
            flight.append(pool.submit(work, item))
            if len(flight) >= threads * _AHEAD:
                yield flight.popleft().result()
        while flight:
            yield flight.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


class _Maker:
    """Makes samples from rows."""

    def __init__(self, table: _Table, reader: _Reader, **columns: Any) -> None:
        self.reader, self.folder = reader, table.folder
        self.image, self.text = columns["image"], columns["text"]
        self.key, self.extra = columns["key"], columns["extra"]
        self.labels = _Labels(columns["label"], table, columns["classes"])

    def key_of(self, number: int, row: Row) -> str:
        return str(row.get(self.key)) if self.key else f"{number:09d}"

    def make(self, numbered: tuple[int, Row]) -> tuple[int, Row, dict[str, Any] | Error]:
        number, row = numbered
        place = row.get(self.image)
        try:
            if self.key is not None and row.get(self.key) is None:
                raise _RowFailed(
                    FormatError("the row has no key", f"column {self.key!r}", "correct the table")
                )
            data = self.reader.read(place, getattr(row, "folder", self.folder))
            sample: dict[str, Any] = {
                "__key__": self.key_of(number, row),
                _kind(data, place): data,
            }
            if self.labels.column is not None:
                sample["cls"] = self.labels.number(row)
        except _RowFailed as failed:
            return number, row, failed.error
        if self.text is not None and row.get(self.text) is not None:
            sample["txt"] = str(row[self.text])
            try:
                sample["txt"].encode()
            except UnicodeEncodeError as problem:
                return number, row, FormatError(
                    f"the text is not Unicode: {problem.reason}",
                    f"column {self.text!r}, character {problem.start}",
                    "correct the table",
                )
        if self.extra:
            sample["json"] = {column: row.get(column) for column in self.extra}
        return number, row, sample

    def rows_after(
        self, table: _Table, key: str | None, done: int, listed: set[int] | None
    ) -> Iterator[tuple[int, Row]]:
        """Numbered rows after the one that was written with this key. None: none; "": all."""
        if key is None:
            return
        rows = enumerate(table.rows())
        if key:
            last = self._row_of(table, key, done, listed)
            rows = itertools.dropwhile(lambda item: item[0] <= last, rows)
        yield from rows

    def _row_of(self, table: _Table, key: str, done: int, listed: set[int] | None) -> int:
        """The row that was written as the last of `done` samples. Several rows may have its key: of
        these one was written, the first that was good, and `done` - 1 rows or more are before it.
        listed: the bad rows, if there is a list of them."""
        found = None
        for number, row in enumerate(table.rows()):
            if number < done - 1 or self.key_of(number, row) != key:
                continue
            found = number if found is None else found
            if listed is None and isinstance(self.make((number, row))[2], Error):
                continue
            if listed is None or number not in listed:
                return number
        if found is None:
            raise StateError(
                "the unfinished shards in the destination belong to another table",
                f"key '{key}'",
                "remove the .part folder to start again",
            )
        return found


def _columns(
    table: _Table, image: str | None, label: str | None, text: str | None,
    extra: Sequence[str] | str, key: str | None,
) -> dict[str, Any]:  # fmt: skip
    """The columns by their use, found in the table."""
    if image is None:
        found = [name for name in _IMAGE_COLUMNS if name in table.columns]
        if len(found) != 1:
            raise ArgumentError(
                f"{len(found)} columns may contain the image",
                f"columns {', '.join(map(str, table.columns))}",
                "pass the column: image=",
            )
        image = found[0]
    used = [name for name in (image, label, text, key) if name is not None]
    if extra == "rest":
        extra = [name for name in table.columns if name not in used]
    elif isinstance(extra, str):
        raise ArgumentError(
            f"extra {extra!r} is not a list of columns", "pack_table", "pass a list, or 'rest'"
        )
    table.check([*used, *extra])
    return {"image": image, "label": label, "text": text, "extra": list(extra), "key": key}


def pack_table(
    table: Any,
    destination: Any,
    *,
    image: str | None = None,
    label: str | None = None,
    classes: Sequence[str] | None = None,
    text: str | None = None,
    extra: Sequence[str] | str = (),
    key: str | None = None,
    base: Any = None,
    fetch: Callable[[str], Any] | None = None,
    shard_bytes: int | str | None = None,
    pattern: str | None = None,
    threads: int = 8,
    io_retries: int = 3,
    bytes_max: int | str = "256MiB",
    on_error: str = "raise",
    quarantine: Any = None,
    bad_samples_max: int | None = None,
    engine: Engine | None = None,
    progress: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """Packs the images of a table in its order, as ``pack`` and ``ShardWriter`` do.

    If the work was interrupted, the same call continues after the last finished shard; with another
    table or other columns it is rejected. A table of Hugging Face's imagefolder
    (``metadata.jsonl`` or ``metadata.csv`` in the folder of the images) only needs
    ``extra="rest"``.

    Args:
        table: path of a ``.csv``, ``.tsv``, ``.jsonl`` or ``.parquet`` (needs pyarrow), a folder of
            such files, braces, a glob, a list of all these, or rows as dicts. The first three kinds
            may be compressed (``.csv.gz``, ``.bz2``, ``.xz``). Read twice if there are labels.
        destination: a folder that does not exist, or is empty.
        image: the column with a path, a ``file://`` URL, or the bytes of the image. Default: the
            one of ``file_name``, ``path``, ``image``, ``url`` that the table has.
        label: a column of whole numbers, which stay as they are (also ``-1`` and ``10.0``), or of
            names, which become classes in sorted order. Both together are an error. Stored as
            ``cls``. A row without a label is a failed row.
        classes: names of the classes; a label is the index of its name. Other names are failed
            rows.
        text: a column of captions, stored as ``txt``.
        extra: columns stored together as ``json``; ``"rest"``: all columns without another use.
        key: a column of keys. Default: the number of the row, as ``000000000``.
        base: folder of relative paths. Default: the folder of the table.
        fetch: a function from a URL to its bytes, called from several threads. Without it, rows
            with ``http://`` and other URLs raise UnsupportedError: nothing is downloaded
            automatically.
        shard_bytes, pattern, engine: see ``ShardWriter``.
        threads: threads that read.
        bytes_max: largest image, in bytes.
        io_retries: retries of a read that fails with a transient error, or of ``fetch``. After them
            the read error is raised, regardless of ``on_error``; a failed fetch is a failed row.
        on_error: ``"raise"``, or ``"skip"`` rows without an image (missing, not a JPEG, PNG or
            WebP, too large), without a label, or with a duplicate key.
        quarantine: a file that gets a line of JSON for each failed row.
        bad_samples_max: most failed rows; more raise LimitError.
        progress: called with the present result about 20 times a second.

    Returns:
        ``samples``: all; ``samples_kept``: of an earlier run; ``bad``: a list of BadRow.
    """
    where = "pack_table"
    if on_error not in ("raise", "skip"):
        raise ArgumentError(f"unknown on_error {on_error!r}", where, "pass 'raise' or 'skip'")
    if fetch is not None and not callable(fetch):
        raise ArgumentError(
            f"fetch {fetch!r} cannot be called", where, "pass a function from URL to bytes"
        )
    threads = count(threads, f"{where} threads", low=1, high=1024)
    retries = count(io_retries, f"{where} io_retries", high=30)
    rows_max = count(bad_samples_max, f"{where} bad_samples_max", low=1)
    largest = parse_bytes(bytes_max, f"{where} bytes_max")
    source = _Table(table)
    columns = _columns(source, image, label, text, extra, key)
    folder = None if base is None else os.fsdecode(base)
    reader = _Reader(folder, fetch, retries, largest)
    maker = _Maker(source, reader, **columns, classes=classes)
    with ShardWriter(
        destination,
        shard_bytes=shard_bytes,
        pattern=pattern,
        classes=maker.labels.classes,
        source=f"table {source.digest} {json.dumps(columns)}",
        engine=engine,
    ) as writer:
        listed = listed_rows(quarantine)
        rows = maker.rows_after(source, writer.resume_key, writer.samples_done, listed)
        head = next(rows, None)
        bad = Quarantine(quarantine, rows_max, head[0] if head else sys.maxsize)
        result = {"samples_kept": writer.samples_done, "samples": writer.samples_done}
        reported = 0.0
        rows = itertools.chain([head] if head else [], rows)
        try:
            with contextlib.closing(_ahead(maker.make, rows, threads)) as made:
                for number, row, sample in made:
                    failure = sample if isinstance(sample, Error) else _write(writer, sample)
                    result["samples"] += failure is None
                    if failure is not None:
                        failure = _in_row(failure, number, row)
                        bad.add(number, _shown(row.get(columns["image"])), failure)
                        if on_error == "raise":
                            raise failure
                    if progress is not None and time.monotonic() - reported > _TELL_S:
                        reported = time.monotonic()
                        progress({"row": number, **result, "bad": list(bad.rows)})
        finally:
            bad.close()
    return {**result, "bad": bad.rows}


def _write(writer: ShardWriter, sample: dict[str, Any]) -> Error | None:
    """The reason why the row cannot be a sample; or None."""
    try:
        writer.write(sample)
    except ArgumentError as error:
        return error
    return None


def _in_row(error: Error, number: int, row: Row) -> Error:
    """The error with the number of the row; of several tables also with its place in one."""
    where = f"row {number}{getattr(row, 'place', '')}, {error.where}"
    return from_native(error.status, error.name, error.what, where, error.advice, "", "", None)
