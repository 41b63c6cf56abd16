"""The number of tokens of each document of a text: counted once, and stored in a file.

    documents --tokenised by threads, once--> counts-DIGEST.bin: end of each document, in tokens
    window -----------look-up in that table-> documents that it overlaps --tokenised--> its tokens

With the table, windows can be numbered, shuffled and divided among ranks before they are made. It
has 8 bytes for each document, is memory-mapped, and shared by all processes of a machine. If the
process that counts is killed, the next one continues its work.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
import threading
from array import array
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import BinaryIO, NamedTuple, TypeAlias

from . import _stoker
from ._cache_dir import make_once
from ._options import interruptible
from .errors import CorruptError, EmptyError
from .state import EPOCH, POSITION

__all__ = ["Counts", "Reading", "TokenCache", "open_counts"]

MAGIC = b"stoker counts 1\n"
HEADER = struct.Struct("<16s32sQQ")  # magic, identity, documents, 0
END_BYTES = 8
GROUP_DOCUMENTS, GROUP_BYTES = 256, 1 << 20
"""Bytes of documents that are tokenised together, at most (one may be longer)."""

Tokenise: TypeAlias = "Callable[[Sequence[int], Sequence[bytes]], list[array[int]]]"
"""(numbers of documents, their bytes) -> their tokens, all of which are in windows."""


class Reading:
    """Reads documents by number, as bytes."""

    def __init__(self, tokens: _stoker.Tokens, eod: int) -> None:
        self._native = interruptible(
            lambda: _stoker.TokenLoader(
                tokens,
                0,
                batch_size=1,
                shuffle=_stoker.SHUFFLE_NONE,
                tail=_stoker.TAIL_KEEP,
                rows=_stoker.ROWS_DOCUMENTS,
                labels=_stoker.LABELS_NONE,
                dtype=_stoker.UINT8,
                has_eod=1,
                eod=eod,
            )
        )
        self._lock = threading.Lock()
        self._start = self._native.state()
        self.documents = self._native.samples()

    def read(self, numbers: Iterable[int]) -> list[bytes]:
        with self._lock:
            return [self._one(number) for number in numbers]

    def _one(self, number: int) -> bytes:
        state = self._native.state()
        if (state[EPOCH], state[POSITION]) != (0, number):
            there = list(self._start)
            there[POSITION] = number
            self._native.set_state(tuple(there))
        batch = self._native.next()
        assert batch is not None
        values, _, *_ = batch.array(0)
        return bytes(memoryview(values))

    def close(self) -> None:
        self._native.close()


class Counts:
    """A complete table."""

    def __init__(self, file: BinaryIO, path: str, identity: bytes) -> None:
        self.path, self.identity = path, identity
        self._map = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        self._ends = memoryview(self._map)[HEADER.size :].cast("Q")
        self.tokens = self._ends[-1]

    def document_at(self, token: int) -> int:
        """The document that contains the token; token < tokens."""
        return bisect_right(self._ends, token)

    def first(self, document: int) -> int:
        """Number of tokens before the document."""
        return self._ends[document - 1] if document else 0

    def touched(self, first: int, end: int) -> Iterator[int]:
        """Documents with tokens in [first, end)."""
        document = self.document_at(first)
        while document < len(self._ends) and self.first(document) < end:
            if self._ends[document] > self.first(document):
                yield document
            document += 1

    def check(self, document: int, count: int) -> None:
        want = self._ends[document] - self.first(document)
        if count != want:
            raise CorruptError(
                f"document {document} has {count} tokens, but had {want} when they were counted",
                repr(self.path),
                "the text or the tokenizer has changed: delete the table, and it is computed again",
            )

    def close(self) -> None:
        self._ends.release()
        self._map.close()


class TokenCache:
    """A cache of tokenised documents with a limit in bytes: drops the least recently used ones."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max, self._bytes = bytes_max, 0
        self._lock = threading.Lock()
        self._documents: OrderedDict[int, array[int]] = OrderedDict()

    def find(self, numbers: Iterable[int]) -> dict[int, array[int]]:
        """The documents that are cached."""
        found = {}
        with self._lock:
            for number in numbers:
                if number in self._documents:
                    self._documents.move_to_end(number)
                    found[number] = self._documents[number]
        return found

    def add(self, number: int, ids: array[int]) -> None:
        with self._lock:
            if number not in self._documents:
                self._documents[number] = ids
                self._bytes += ids.itemsize * len(ids)
            while self._bytes > self._bytes_max:
                _, oldest = self._documents.popitem(last=False)
                self._bytes -= oldest.itemsize * len(oldest)


# ---- counting ----


class _Source(NamedTuple):
    """The text to count."""

    reading: Reading
    tokenise: Tokenise
    threads: int


def open_counts(
    folder: str | None,
    identity: bytes,
    reading: Reading,
    tokenise: Tokenise,
    threads: int,
) -> Counts:
    """The table in the folder; counts if it does not exist. folder None: counts, stores nothing.

    Raises:
        TimeoutError: another process counts, but makes no progress.
    """
    source = _Source(reading, tokenise, threads)
    header = HEADER.pack(MAGIC, identity, reading.documents, 0)
    if folder is None:
        with tempfile.TemporaryFile() as file:
            _make(file, header, source)
            return _opened(file, header, "a table of counts")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"counts-{identity.hex()[:32]}.bin")
    while True:
        try:
            with open(path, "rb") as file:
                return _opened(file, header, path)
        except FileNotFoundError:
            pass
        make_once(path, lambda file: _make(file, header, source), "counts the tokens")


def _opened(file: BinaryIO, header: bytes, path: str) -> Counts:
    _, identity, documents, _ = HEADER.unpack(header)
    file.seek(0)
    size = os.fstat(file.fileno()).st_size
    if file.read(HEADER.size) != header or size != HEADER.size + END_BYTES * documents:
        raise CorruptError(
            "the file is not a table of counts of this text", repr(path), "delete it"
        )
    counts = Counts(file, path, identity)
    if counts.tokens == 0:
        counts.close()
        raise EmptyError("no document has a token", repr(path), "check the text")
    return counts


def _make(file: BinaryIO, header: bytes, source: _Source) -> None:
    """Continues after the documents in the file, and writes it to the disk."""
    total, done = _had(file, header)
    groups = _groups(source.reading, done)
    waiting: deque[Future[list[int]]] = deque()
    with ThreadPoolExecutor(source.threads, "stoker-count") as pool:
        try:
            for numbers, stored in groups:
                waiting.append(pool.submit(_count, source, numbers, stored))
                if len(waiting) > 2 * source.threads:
                    total = _append(file, total, waiting.popleft().result())
            while waiting:
                total = _append(file, total, waiting.popleft().result())
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
    file.flush()
    os.fsync(file.fileno())


def _had(file: BinaryIO, header: bytes) -> tuple[int, int]:
    """(tokens, documents) of the file of a killed process; (0, 0) if it is of another text."""
    file.seek(0)
    had = array("Q")
    if file.read(HEADER.size) == header:
        rest = file.read()
        had.frombytes(rest[: len(rest) // END_BYTES * END_BYTES])
        if any(low > high for low, high in pairwise(had)):
            had = array("Q")
    file.truncate(HEADER.size + END_BYTES * len(had) if had else 0)
    file.seek(0, os.SEEK_END)
    if not had:
        file.write(header)
    return (had[-1] if had else 0), len(had)


def _groups(reading: Reading, first: int) -> Iterator[tuple[list[int], list[bytes]]]:
    numbers, stored, size = [], [], 0
    for number in range(first, reading.documents):
        found = reading.read((number,))
        numbers.append(number)
        stored += found
        size += len(found[0])
        if len(numbers) == GROUP_DOCUMENTS or size >= GROUP_BYTES:
            yield numbers, stored
            numbers, stored, size = [], [], 0
    if numbers:
        yield numbers, stored


def _count(source: _Source, numbers: list[int], stored: list[bytes]) -> list[int]:
    return [len(ids) for ids in source.tokenise(numbers, stored)]


def _append(file: BinaryIO, total: int, counts: list[int]) -> int:
    ends = array("Q")
    for count in counts:
        total += count
        ends.append(total)
    file.write(ends.tobytes())
    file.flush()  # waiting processes see progress
    return total
