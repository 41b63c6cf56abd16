"""The list of rows that pack_table could not pack: a file of JSON lines, and its limit."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from .errors import ArgumentError, Error, LimitError, from_native

__all__ = ["BadRow", "Quarantine", "listed_rows", "os_error"]


def os_error(problem: OSError, place: str, advice: str) -> Error:
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


_LINE_BEGIN = b'{"row": '  # of each line of a quarantine file


class Quarantine:
    """The rows that failed: a list, a file of JSON lines, and their limit."""

    def __init__(self, path: Any, rows_max: int, first: int) -> None:
        """first: the row at which to continue. Lines of the file about later rows stay there, and
        are not written again."""
        self.rows_max = rows_max
        self.rows: list[BadRow] = []
        self.later: set[BadRow] = set()
        self.file: Any = None
        if path is None:
            return
        try:
            self._keep(path, first)
            self.file = open(path, "a", encoding="utf-8", buffering=1)  # noqa: SIM115
        except OSError as problem:
            raise os_error(problem, os.fsdecode(path), "name another quarantine file") from None

    def _keep(self, path: Any, first: int) -> None:
        """Only an incomplete last line, which a kill left, is removed: a file that has other lines,
        also those of another table, loses nothing."""
        if not os.path.isfile(path):
            return
        end = 0
        for row, row_end in _read_quarantine(path):
            if row.row < first:
                self.rows.append(row)
            else:
                self.later.add(row)
            end = row_end
        os.truncate(path, end)

    def _line(self, row: BadRow) -> None:
        if self.file is not None:
            self.file.write(json.dumps(row._asdict()) + "\n")

    def add(self, number: int, place: str, error: Error) -> None:
        self.rows.append(BadRow(number, place, error.name, str(error)))
        if self.rows[-1] not in self.later:
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
            if not line.endswith(b"\n") and _LINE_BEGIN.startswith(line[: len(_LINE_BEGIN)]):
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


def listed_rows(path: Any) -> set[int] | None:
    """The rows that an earlier run listed as bad; None: there is no list."""
    if path is None or not os.path.isfile(path):
        return None
    try:
        return {row.row for row, _ in _read_quarantine(path)}
    except OSError as problem:
        raise os_error(problem, os.fsdecode(path), "name another quarantine file") from None
