"""pack_table(): packs images that a table names by path or URL as tars."""

from __future__ import annotations

import concurrent.futures
import contextlib
import csv
import errno
import hashlib
import itertools
import json
import os
import re
import sys
import time
import urllib.parse
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ._options import count, parse_bytes
from .engine import Engine
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


def _os_error(problem: OSError, place: str, advice: str) -> Error:
    number = problem.errno or errno.EIO
    name, text = errno.errorcode.get(number, ""), f"cannot read: {os.strerror(number)}"
    return from_native(-number, name, text, f"'{place}'", advice, "", "", None)


class BadRow(NamedTuple):
    """A row that could not be packed."""

    row: int
    """Number of the row, from 0."""
    place: str
    """Path or URL in the row."""
    status: str
    """``"STOKER_ERROR_FORMAT"``, ``"ENOENT"``."""
    reason: str


# ---- tables ----


def _fail_table(path: str, number: int, problem: object) -> FormatError:
    return FormatError(
        f"the table cannot be read: {problem}", f"'{path}' row {number}", "correct the table"
    )


def _read_csv(path: str, delimiter: str) -> Iterator[Row]:
    number = 0
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            for row in csv.DictReader(file, delimiter=delimiter, strict=True):
                if None in row or None in row.values():
                    raise _fail_table(path, number, "a row has not as many cells as the first line")
                yield row
                number += 1
    except (csv.Error, UnicodeDecodeError) as problem:
        raise _fail_table(path, number, problem) from None


def _read_jsonl(path: str) -> Iterator[Row]:
    number = 0
    try:
        with open(path, encoding="utf-8-sig") as file:
            for line in file:
                if line.strip():
                    row = json.loads(line)
                    if not isinstance(row, dict):
                        raise _fail_table(path, number, "a line is not an object")
                    yield row
                    number += 1
    except (ValueError, RecursionError) as problem:
        if isinstance(problem, Error):
            raise
        raise _fail_table(path, number, problem) from None


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
        raise _fail_table(path, number, problem) from None


_READERS: dict[str, Callable[[str], Iterator[Row]]] = {
    ".csv": lambda path: _read_csv(path, ","),
    ".tsv": lambda path: _read_csv(path, "\t"),
    ".jsonl": _read_jsonl,
    ".parquet": _read_parquet,
}


class _Table:
    """Rows that can be read several times, and a hash of them."""

    def __init__(self, table: Any) -> None:
        sha = hashlib.sha256()
        self.folder = ""
        if isinstance(table, (str, bytes, os.PathLike)):
            path = os.fsdecode(table)
            read = _READERS.get(os.path.splitext(path)[1].lower())
            if read is None:
                endings = ", ".join(_READERS)
                raise ArgumentError("not a table", f"'{path}'", f"pass {endings} or rows of dicts")
            try:
                with open(path, "rb") as file:
                    while part := file.read(1 << 20):
                        sha.update(part)
            except OSError as problem:
                raise _os_error(problem, path, "look whether it is there") from None
            self.folder = os.path.dirname(path)
            self.rows: Callable[[], Iterator[Row]] = lambda: read(path)
        else:
            try:
                rows = [dict(row) for row in table]
            except (TypeError, ValueError):
                raise ArgumentError(
                    f"{type(table).__name__} is not a table", "pack_table", "pass rows of dicts"
                ) from None
            sha.update(repr(rows).encode("utf-8", "backslashreplace"))
            self.rows = lambda: iter(rows)
        self.digest = sha.hexdigest()
        first = next(self.rows(), None)
        if first is None:
            raise ArgumentError("the table has no rows", "pack_table", "pass a table with rows")
        self.columns = list(first)

    def check(self, columns: Iterable[str]) -> None:
        for column in columns:
            if column not in self.columns:
                raise ArgumentError(
                    f"the table has no column {column!r}",
                    "pack_table",
                    f"it has {', '.join(map(str, self.columns))}",
                )


class _Labels:
    """Numbers of labels: integers stay; names become classes, in sorted order."""

    def __init__(self, column: str | None, table: _Table) -> None:
        self.column = column
        self.classes: list[str] = []
        if column is not None:
            found = {str(row[column]) for row in table.rows() if row.get(column) is not None}
            if not all(re.fullmatch(r"[0-9]{1,18}", text) for text in found):
                self.classes = sorted(found)
        self.numbers = {name: number for number, name in enumerate(self.classes)}

    def number(self, row: Row) -> int:
        value = row.get(self.column) if self.column else None
        if value is None:
            raise _RowFailed(
                FormatError("the row has no label", f"column {self.column!r}", "correct the table")
            )
        return self.numbers[str(value)] if self.classes else int(value)


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
        self, base: str, fetch: Callable[[str], Any] | None, retries: int, bytes_max: int
    ) -> None:
        self.base, self.fetch, self.retries, self.bytes_max = base, fetch, retries, bytes_max

    def read(self, place: Any) -> bytes:
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
            return self._file(os.path.join(self.base, place))
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
                failure = _os_error(problem, path, "mend the table, or give base=")
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


# ---- failed rows ----


class _Quarantine:
    """The rows that failed: a list, a file of JSON lines, and their limit."""

    def __init__(self, path: Any, rows_max: int, first: int) -> None:
        """first: the row at which to continue; lines of the file about later rows are dropped."""
        self.rows_max = rows_max
        self.rows: list[BadRow] = []
        self.file: Any = None
        if path is None:
            return
        try:
            self._keep(path, first)
            self.file = open(path, "a", encoding="utf-8", buffering=1)  # noqa: SIM115
        except OSError as problem:
            raise _os_error(problem, os.fsdecode(path), "name another quarantine file") from None

    def _keep(self, path: Any, first: int) -> None:
        """Rows come in order, so the lines to keep are at the beginning: the file is truncated, not
        written again, so that a kill loses none of them."""
        if not os.path.isfile(path):
            return
        end = 0
        for row, row_end in _read_quarantine(path):
            if row.row >= first:
                break
            self.rows.append(row)
            end = row_end
        os.truncate(path, end)

    def _line(self, row: BadRow) -> None:
        if self.file is not None:
            self.file.write(json.dumps(row._asdict()) + "\n")

    def add(self, number: int, place: str, error: Error) -> None:
        self.rows.append(BadRow(number, place, error.name, str(error)))
        self._line(self.rows[-1])
        if self.rows_max and len(self.rows) > self.rows_max:
            raise LimitError(
                f"more than bad_samples_max={self.rows_max} rows failed",
                "; ".join(f"row {row.row}: {row.reason}" for row in self.rows[:10]),
                "correct the table, or raise the limit",
            )

    def close(self) -> None:
        if self.file is not None:
            self.file.close()


def _read_quarantine(path: Any) -> Iterator[tuple[BadRow, int]]:
    """Rows of an earlier run, each with the offset of its end; a last line without an end is
    incomplete after a kill, and is dropped."""
    end = 0
    with open(path, "rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                return
            end += len(line)
            try:
                yield BadRow(**json.loads(line)), end
            except (ValueError, TypeError):
                raise ArgumentError(
                    "the quarantine file exists, but pack_table did not write it",
                    f"'{os.fsdecode(path)}'",
                    "use another path, or remove the file",
                ) from None


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
        self.reader = reader
        self.image, self.text = columns["image"], columns["text"]
        self.key, self.extra = columns["key"], columns["extra"]
        self.labels = _Labels(columns["label"], table)

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
            data = self.reader.read(place)
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
        if self.extra:
            sample["json"] = {column: row.get(column) for column in self.extra}
        return number, row, sample

    def rows_after(self, table: _Table, key: str | None) -> Iterator[tuple[int, Row]]:
        """Numbered rows after the one with this key. None: none; "": all."""
        if key is None:
            return
        rows = enumerate(table.rows())
        if key:
            for number, row in rows:
                if self.key_of(number, row) == key:
                    break
            else:
                raise StateError(
                    "the unfinished shards in the destination belong to another table",
                    f"key '{key}'",
                    "remove the .part folder to start again",
                )
        yield from rows


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
        raise ArgumentError(f"extra {extra!r}", "pack_table", "pass a list of columns, or 'rest'")
    table.check([*used, *extra])
    return {"image": image, "label": label, "text": text, "extra": list(extra), "key": key}


def pack_table(
    table: Any,
    destination: Any,
    *,
    image: str | None = None,
    label: str | None = None,
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
        table: path of a ``.csv``, ``.tsv``, ``.jsonl`` or ``.parquet`` (needs pyarrow), or rows as
            dicts. It is read twice if there are labels.
        destination: a folder that does not exist, or is empty.
        image: the column with a path, a ``file://`` URL, or the bytes of the image. Default: the
            one of ``file_name``, ``path``, ``image``, ``url`` that the table has.
        label: a column of integers, or of names, which become classes in sorted order. Stored as
            ``cls``.
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
        raise ArgumentError(f"on_error {on_error!r}", where, "pass 'raise' or 'skip'")
    if fetch is not None and not callable(fetch):
        raise ArgumentError(f"fetch {fetch!r}", where, "pass a function from URL to bytes")
    threads = count(threads, f"{where} threads", low=1, high=1024)
    retries = count(io_retries, f"{where} io_retries", high=30)
    rows_max = count(bad_samples_max, f"{where} bad_samples_max", low=1)
    largest = parse_bytes(bytes_max, f"{where} bytes_max")
    source = _Table(table)
    columns = _columns(source, image, label, text, extra, key)
    folder = source.folder if base is None else os.fsdecode(base)
    maker = _Maker(source, _Reader(folder, fetch, retries, largest), **columns)
    with ShardWriter(
        destination,
        shard_bytes=shard_bytes,
        pattern=pattern,
        classes=maker.labels.classes,
        source=f"table {source.digest} {json.dumps(columns)}",
        engine=engine,
    ) as writer:
        rows = maker.rows_after(source, writer.resume_key)
        head = next(rows, None)
        bad = _Quarantine(quarantine, rows_max, head[0] if head else sys.maxsize)
        result = {"samples_kept": writer.samples_done, "samples": writer.samples_done}
        reported = 0.0
        rows = itertools.chain([head] if head else [], rows)
        try:
            with contextlib.closing(_ahead(maker.make, rows, threads)) as made:
                for number, row, sample in made:
                    failure = sample if isinstance(sample, Error) else _write(writer, sample)
                    result["samples"] += failure is None
                    if failure is not None:
                        failure = _in_row(failure, number)
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


def _in_row(error: Error, number: int) -> Error:
    """The error with the number of the row."""
    where = f"row {number}, {error.where}"
    return from_native(error.status, error.name, error.what, where, error.advice, "", "", None)
