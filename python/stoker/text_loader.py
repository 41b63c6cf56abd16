"""TextLoader: lines of text and JSON, tokenised by threads on the fly, as training batches."""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import os
import threading
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from . import _stoker
from ._cache_dir import cache_dir
from ._options import count, interruptible, paths_of
from .dataset import BadSample
from .engine import Engine, engine_of
from .errors import (
    ArgumentError,
    CorruptError,
    FormatError,
    LimitError,
    StateError,
    TruncatedError,
)
from .fim import Middle
from .mix import Mix
from .state import EPOCH, POSITION
from .token_counts import Counts, Reading, TokenCache, open_counts
from .text_files import (
    NEWLINE,
    BadDocuments,
    kind_of,
    plain_paths,
    readable_files,
    strip_mark,
)
from .token_files import Tokens, token_paths
from .token_loader import TokenLoader
from .token_rows import FIM, LABELS, POSITIONS, fields_of, row_options
from .tokenizers import Encoder, HuggingFace, digest, encoder, fim_with_ids, name_of

__all__ = ["TextLoader"]

OPTIONAL = {"batch_rows", "on_error"}
"""Settings in the state that are left out if they have their defaults."""
NEVER = 256
"""Ends of documents; no byte equals 256."""
WINDOW_BLOCK_BYTES, WINDOW_BLOCKS = 1 << 20, 64
"""The order of windows: about 256 Ki tokens in a block, and the number of blocks mixed."""
CACHE_BYTES_MAX = 1 << 30
"""Limit of cached tokenised documents, for windows."""


class TextLoader(TokenLoader):
    """A stream of batches of documents, tokenised on the fly, in an exact order.

    Each document is a line of a JSONL file, a line of text, or a text file::

        loader = stoker.TextLoader("c4/*.jsonl", "tokenizer.json", batch_size=64, context=2048,
                                   eod="<|endoftext|>", seed=0)
        for batch in loader: ...    # input_ids, labels, position_ids, cu_seqlens

    ``batch_size`` counts documents, so the contents of a batch depend only on its position: the
    global batches have the same documents for every number of ranks, and a state is one position.
    Threads read, parse and tokenise batches ahead; the number of threads does not change batches or
    their order.

    ``rows="windows"`` returns the windows that :class:`TokenLoader` cuts from the same tokens in
    one file, and ``batch_size`` counts them. Windows can only be numbered if the number of tokens
    of each document is known: the first loader of a text tokenises all of it once to count, and
    stores 8 bytes for each document (see ``counts``); later loaders begin at once, at any position.
    If a text is read many times, tokenise it once (Megatron's ``preprocess_data``) and use
    :class:`TokenLoader`.

    Args:
        source: a file or URL, braces, a glob, or a list of them; in UTF-8, plain or compressed by
            zstd. Files compressed by gzip, bzip2 or xz are decompressed into the cache folder
            (``$STOKER_CACHE``) when they are opened for the first time. Opening reads all files
            once to find the lines.
        tokenizer: a ``tokenizers.Tokenizer``, the path of its ``tokenizer.json``, a fast tokenizer
            of ``transformers``, or a function: list of texts -> list of lists of ids.
        batch_size: documents in a batch of this rank; rows for windows.
        context: tokens of a row.
        field: the text in a line of JSON: a name, names separated by dots, or a function of the
            parsed line.
        documents: ``"json"``: lines of JSON; ``"lines"``: lines of text; ``"files"``: each file is
            a document. Default: ``"json"`` if the first line is a JSON object, whatever the name,
            or the name ends with ``.jsonl``, ``.ndjson``, ``.jl`` or ``.json``; else ``"lines"``.
        rows: ``"packed"``: the documents of the batch, packed by best fit, in as many rows as
            needed, or in ``batch_rows``; ``"padded"``: a row for each document, cut or padded;
            ``"documents"``: pairs of :class:`Ragged`; ``"windows"``: windows over the sequence of
            all documents. Default: ``"packed"``; without context ``"documents"``.
        batch_rows: of packed rows: exactly so many in each batch, for compiled models; rows that
            are not needed are padding. A batch that needs more raises LimitError, or with
            ``on_error="skip"`` its last documents are left out and counted in :meth:`stats`.
        stride: tokens from one window to the next. Default: ``context``.
        counts: for windows: folder of the tables of counts, which processes may share. Default:
            ``$STOKER_CACHE``, else ``$XDG_CACHE_HOME/stoker`` or ``~/.cache/stoker``. If the
            tokenizer is a function, which only its name identifies, no table is stored by default.
        block_bytes: size of a block of the order. Default: 8 MiB of text; for windows 1 MiB of
            tokens with 4 bytes: the documents of a window of blocks are cached as tokens (up to
            1 GiB), so that each is tokenised about once in an epoch.
        eod: the token at the end of documents, by id or by name. Default: none.
        append_eod: append the token to documents. Default: True if there is one.
        special: let the tokenizer add its own special tokens.
        on_error: ``"raise"``; or ``"skip"``: a document that cannot be read (no JSON, no text in
            the field, not UTF-8) is empty, is counted in ``stats()["bad_samples"]``, and is listed
            in :attr:`quarantine`. So is a damaged compressed file, as one bad document: all of its
            documents are left out. Errors of disks and stores are raised.
        bad_samples_max: if more documents cannot be read, LimitError is raised. Default: no limit.
        vocab: number of token ids of the model; an id that is not below it raises FormatError.
        threads: threads that tokenise. Default: one for each available core.
        ahead: number of prefetched batches. Default: twice the threads.
        names, labels, flash_attention, mask_ends, positions, fim, pad, dtype, seed, shuffle, tail,
            rank, world_size, window, groups, transform, output, engine: see :class:`TokenLoader`.
            Fill in the middle is drawn from (seed, epoch, document); in a wrapped tail the epoch
            is that of the step. With ``tail="pad"`` packed rows leave the repeats out.

    The state contains a digest of the tokenizer and all settings that affect batches: a state with
    others is rejected, and the error names the differences. Only the name identifies a function.
    """

    def __init__(
        self,
        source: Any,
        tokenizer: Any,
        batch_size: int,
        context: int | None = None,
        *,
        field: str | Callable[[Any], str] = "text",
        documents: str | None = None,
        rows: str | None = None,
        batch_rows: int | None = None,
        stride: int | None = None,
        counts: str | os.PathLike[str] | None = None,
        seed: int = 0,
        labels: bool | str = True,
        names: Sequence[str] | None = None,
        flash_attention: bool = False,
        eod: int | str | None = None,
        append_eod: bool | None = None,
        mask_ends: bool | None = None,
        positions: str | None = None,
        fim: FIM | None = None,
        pad: int = 0,
        special: bool = False,
        on_error: str = "raise",
        bad_samples_max: int | None = None,
        vocab: int | None = None,
        dtype: Any = "int64",
        threads: int | None = None,
        ahead: int | None = None,
        shuffle: str | None = None,
        tail: str = "drop",
        rank: int | None = None,
        world_size: int | None = None,
        window: int | None = None,
        groups: int | None = None,
        order_version: int | None = None,
        block_bytes: int | str | None = None,
        transform: Callable[[Any], Any] | None = None,
        output: str = "auto",
        engine: Engine | None = None,
    ) -> None:
        where = "TextLoader"
        self._store_arguments(
            where,
            batch_size=batch_size,
            seed=seed,
            shuffle=shuffle,
            tail=tail,
            rank=rank,
            world_size=world_size,
            window=window,
            groups=groups,
            order_version=order_version,
            transform=transform,
        )
        if isinstance(source, Mix):
            raise ArgumentError(
                "a Mix of text is not supported",
                where,
                "tokenise its sources once, and mix them in a TokenLoader",
            )
        rows = rows if rows is not None else "packed" if context is not None else "documents"
        self._store_row_arguments(
            where,
            context,
            rows,
            fields_of(names, rows, labels, positions, flash_attention),
            block_bytes,
            output,
        )
        if rows != "windows" and (stride is not None or counts is not None):
            raise ArgumentError(
                f"stride= and counts= do not apply to rows={rows!r}", where, "use rows='windows'"
            )
        if rows != "packed" and batch_rows is not None:
            raise ArgumentError(
                f"batch_rows= does not apply to rows={rows!r}", where, "use rows='packed'"
            )
        encode = encoder(tokenizer, special)
        end = encode.id_of(eod) if isinstance(eod, str) else eod
        append = end is not None if append_eod is None else bool(append_eod)
        if append and end is None:
            raise ArgumentError("append_eod needs eod", where, "pass the token as eod=")
        fim = fim_with_ids(fim, encode)
        by_text = isinstance(fim, FIM) and fim.level == "characters"
        if by_text and rows == "windows":
            raise ArgumentError(
                "fim with level='characters' does not apply to windows", where, "use rows='packed'"
            )
        options = row_options(
            where,
            rows=rows,
            labels=self._fields.labels,
            dtype=dtype,
            pad=pad,
            eod=end,
            append_eod=append and rows != "windows",
            mask_ends=mask_ends,
            positions=positions,
            fim=None if by_text else fim,
        )
        engine = engine_of(engine, where)
        bad_max = count(bad_samples_max, f"{where} bad_samples_max", low=1)

        def build(files: list[bytes], damaged: list[BadSample]) -> None:
            self.files = files
            self.tokens = Tokens(plain_paths(files, engine), stored="uint8", engine=engine)
            self._owned.append(self.tokens)
            kind = kind_of(documents, self.files, self.tokens, where)
            self._bad = BadDocuments(self.files, kind, on_error, bad_max, damaged)
            self._text = {
                "tokenizer": encode.identity,
                "documents": kind,
                "field": name_of(field) if kind == "json" else "",
                "context": self.context,
                "rows": rows,
                "labels": LABELS[self._fields.labels],
                "positions": next(k for k, v in POSITIONS.items() if v == options["positions"]),
                "pad": options["pad"],
                "eod": None if end is None else options["eod"],
                "append_eod": append,
                "mask_ends": rows != "windows" if mask_ends is None else bool(mask_ends),
                "fim": _fim_digest(options, fim if by_text else None),
            }
            self._batch_rows = count(batch_rows, f"{where} batch_rows", low=1, high=2**24)
            if self._batch_rows:
                self._text["batch_rows"] = self._batch_rows
            if self._bad.skips:
                self._text["on_error"] = "skip"
            cores = len(os.sched_getaffinity(0))
            self._threads = count(threads, f"{where} threads", low=1) or cores
            self._depth = count(ahead, f"{where} ahead", low=1) or 2 * self._threads
            self._eod = NEVER if kind == "files" else NEWLINE
            tokenise = _Tokenise(_reader(kind, field), encode, self._bad)
            tokenise.vocab = count(vocab, f"{where} vocab", low=1)
            made = _RowBuilder(
                self.tokens.engine, self.context, {**options, "batch_size": 1, "seed": self.seed}
            )
            made.batch_rows, made.skips = self._batch_rows, self._bad.skips
            self._row_builder = made
            middle = Middle(fim, encode, self.seed, self.context - append) if by_text else None
            self._row_maker: _DocumentRows | _WindowRows = _DocumentRows(made, tokenise, middle)
            if rows == "windows":
                last = () if end is None or not append else (end,)
                self._row_maker = self._open_windows(made, tokenise, last, stride, counts)
            self._owned.append(self._row_maker)
            self._native: Any = self._load()

        files = token_paths(paths_of(source), engine)
        try:
            damaged: list[BadSample] = []
            is_late = documents == "files"  # they are not read before their turn
            if is_late and on_error == "skip":
                files = readable_files(files, engine, damaged) or files
            try:
                build(files, damaged)
            except (CorruptError, TruncatedError):
                self._close_owned()
                if is_late or on_error != "skip":
                    raise
                left = readable_files(files, engine, damaged)
                if not left or not damaged:
                    raise
                build(left, damaged)
        except BaseException:
            self._close_owned()
            raise
        self._reset()

    def _open_windows(
        self,
        made: _RowBuilder,
        tokenise: _Tokenise,
        tail: tuple[int, ...],
        stride: int | None,
        folder: str | os.PathLike[str] | None,
    ) -> _WindowRows:
        step = count(stride, "TextLoader stride", low=1) or self.context
        if not self.context:
            raise ArgumentError("rows='windows' needs context", "TextLoader", "pass context=")
        parts = {name: self._text[name] for name in ("tokenizer", "documents", "field")}
        if self._bad.skips:
            parts["on_error"] = "skip"
        digest = hashlib.sha256(
            repr((sorted(parts.items()), bool(tail), self.tokens.identity)).encode()
        ).digest()
        folder_path = None if folder is None else os.fspath(folder)
        if folder is None and tokenise.is_exact:
            folder_path = cache_dir()
        reading = Reading(self.tokens._native, self._eod)
        self._bad.native = reading._native
        with_eod = _AppendEod(tokenise, tail)
        try:
            counts = open_counts(folder_path, digest, reading, with_eod, self._threads)
        except BaseException:
            reading.close()
            raise
        return _WindowRows(made, with_eod, reading, counts, step)

    def _reopen(self, width: int | None = None, state: tuple[Any, ...] = ()) -> Any:
        return self._load()

    def _load(self, tokens: Tokens | None = None, **more: Any) -> Any:
        source: Any = self.tokens._native
        if isinstance(self._row_maker, _WindowRows):
            source, made = self._row_maker.order_source(self._native_options)
        else:
            made = {
                "rows": _stoker.ROWS_DOCUMENTS,
                "labels": _stoker.LABELS_NONE,
                "dtype": _stoker.UINT8,
                "has_eod": 1,
                "eod": self._eod,
            }
        context, options = self._row_maker.context, self._native_options | made
        native = interruptible(lambda: _stoker.TokenLoader(source, context, **options))
        if not isinstance(self._row_maker, _WindowRows):
            self._bad.native = native
        return _Prefetcher(native, self._row_maker, self._threads, self._depth)

    def _more_state(self) -> dict[str, Any]:
        return {"text": dict(self._text)}

    def _check_state(self, state: dict[str, Any]) -> None:
        text = state.get("text") if isinstance(state, dict) else None
        if not isinstance(text, dict):
            raise StateError(
                "the state does not belong to a TextLoader",
                "load_state_dict",
                "pass what state_dict() returned",
            )
        names = dict.fromkeys((*self._text, *(OPTIONAL & text.keys())))
        differences = [
            f"{name}: {text.get(name)!r} in the state, {self._text.get(name)!r} here"
            for name in names
            if text.get(name) != self._text.get(name)
        ]
        if differences:
            raise StateError(
                "the state belongs to another stream",
                "; ".join(differences),
                "open the loader with the tokenizer and settings of the saved run",
            )

    @property
    def counts(self) -> str | None:
        """Path of the table of counts; for windows only."""
        return self._row_maker.counts.path if isinstance(self._row_maker, _WindowRows) else None

    @property
    def quarantine(self) -> list[BadSample]:
        """Documents that could not be read so far: file, line (as ``key``), offset and reason."""
        return self._bad.quarantine

    def stats(self) -> dict[str, Any]:
        """See :meth:`TokenLoader.stats`; and ``bad_samples``: documents that could not be read;
        ``left_out``: documents that did not fit in ``batch_rows``."""
        left_out = self._row_builder.left_out
        return {**super().stats(), "left_out": left_out}

    def _bad_samples(self) -> int:
        return self._bad.count

    def __repr__(self) -> str:
        unit = "windows" if isinstance(self._row_maker, _WindowRows) else "documents"
        return (
            f"<stoker.TextLoader of {len(self.tokens.files)} files, batches of {self.batch_size} "
            f"{unit}, rank {self.rank} of {self.world_size}>"
        )


# ---- prefetched batches ----


class _RowBatch:
    """A batch of rows, with ids and mask of the batch of documents that they come from."""

    def __init__(self, rows: _stoker.Batch, source: _stoker.Batch) -> None:
        self.array, self.ids, self.mask = rows.array, source.ids, source.mask
        self.samples = source.samples


class _Queued(NamedTuple):
    # None: the end of the epoch; an exception: reading the documents of the batch failed.
    made: concurrent.futures.Future[_RowBatch] | BaseException | None
    state: tuple[Any, ...]  # the state after it


class _Prefetcher:
    """Has the methods of a native loader; threads make its batches ahead of the caller.

    The caller's thread reads batches of documents in order. To drop prefetched batches, the native
    loader goes back to the state after the last batch that was returned.
    """

    def __init__(
        self,
        native: _stoker.TokenLoader,
        maker: _DocumentRows | _WindowRows,
        threads: int,
        depth: int,
    ) -> None:
        self._native, self._row_maker, self._depth = native, maker, depth
        self._pool = concurrent.futures.ThreadPoolExecutor(threads, "stoker-text")
        self._queue: deque[_Queued] = deque()
        self._delivered_state = self._earlier_state = native.state()
        self.batches, self.samples = native.batches, native.samples

    def next(self) -> _RowBatch | None:
        value = None
        try:
            while len(self._queue) < self._depth and not self._is_last_queued():
                self._queue.append(self._begin())
            first = self._queue[0]
            if isinstance(first.made, BaseException):
                raise first.made
            if first.made is not None:
                value = first.made.result()
        except BaseException:
            self._drop()  # the stream stays before this batch
            self._native.set_state(self._delivered_state)
            raise
        self._queue.popleft()
        self._earlier_state, self._delivered_state = self._delivered_state, first.state
        return value

    def _begin(self) -> _Queued:
        """Reads the next batch of documents, and starts its rows. An error waits for its turn: the
        batches before it are good."""
        epoch = self._native.state()[EPOCH]
        try:
            source = self._native.next()
        except Exception as error:
            return _Queued(error, self._native.state())
        made = None if source is None else self._pool.submit(self._row_maker, source, epoch)
        return _Queued(made, self._native.state())

    def _is_last_queued(self) -> bool:
        """True if nothing follows the last queued item: the end, or an error."""
        return bool(self._queue) and not isinstance(
            self._queue[-1].made, concurrent.futures.Future
        )

    def _drop(self) -> None:
        for waiting in self._queue:
            if isinstance(waiting.made, concurrent.futures.Future):
                waiting.made.cancel()
        self._queue.clear()

    def state(self, *place: int) -> tuple[Any, ...]:
        """The state after the last batch, or after the one before it."""
        earlier = self._earlier_state
        if place == (earlier[EPOCH], earlier[POSITION]):
            return earlier
        return self._delivered_state

    def position(self) -> tuple[int, int]:
        return self._delivered_state[EPOCH], self._delivered_state[POSITION]

    def set_state(self, state: tuple[Any, ...]) -> None:
        self._native.set_state(state)  # if it raises, nothing has changed
        self._drop()
        self._delivered_state = self._earlier_state = self._native.state()

    def set_epoch(self, epoch: int) -> None:
        self._drop()
        self._native.set_state(self._delivered_state)
        self._native.set_epoch(epoch)
        self._delivered_state = self._earlier_state = self._native.state()

    def close(self) -> None:
        self._drop()
        self._pool.shutdown(wait=True)
        self._native.close()


class _RowBuilder:
    """Makes a batch of rows from tokens of documents."""

    def __init__(self, engine: Engine, context: int, options: dict[str, Any]) -> None:
        self.engine, self.context, self.options = engine, context, options
        self.batch_rows, self.skips = 0, False
        self.left_out = 0  # documents that did not fit
        self._lock = threading.Lock()

    def __call__(
        self, source: _stoker.Batch, epoch: int, documents: Sequence[array[int]], ids: array[int]
    ) -> _RowBatch:
        used = len(documents)
        while True:
            try:
                rows = self._rows(epoch, documents[:used], ids[:used])
                break
            except LimitError as error:
                if not self.batch_rows or not self.skips or used <= 1:
                    raise
                used = self._fitting(documents, used, error)
        with self._lock:
            self.left_out += len(documents) - used
        return _RowBatch(rows, source)

    def _fitting(self, documents: Sequence[array[int]], used: int, error: LimitError) -> int:
        """The number of documents to try next: without the last ones, as many as are too many."""
        needed = int(error.where.split()[0])
        excess = (needed - self.batch_rows) * self.context
        while used > 1 and excess > 0:
            used -= 1
            excess -= max(len(documents[used]), 1)
        return used

    def _rows(
        self, epoch: int, documents: Sequence[array[int]], ids: array[int]
    ) -> _stoker.Batch:
        tokens, ends, options = array("i"), array("Q"), self.options
        for document in documents:
            tokens.extend(document)
            ends.append(len(tokens))
        if not tokens and options["rows"] == _stoker.ROWS_PACKED:
            # All documents are empty, or there is none: one row of padding.
            tokens, ends, ids = array("i", [options["pad"]]), array("Q", [1]), array("Q", [0])
            options = options | {"append_eod": 0, "fim_rate": 0.0}
        return _stoker.token_rows_batch(
            (self.engine._native, self.context), options, epoch, tokens, ends, ids, self.batch_rows
        )


class _DocumentRows:
    """Makes rows from documents: texts, ids, rows. Has no reference to a loader, so that its
    threads keep none alive."""

    context = 0  # of the batches of documents: no limit

    def __init__(self, rows: _RowBuilder, tokenise: _Tokenise, middle: Middle | None) -> None:
        self._rows, self._tokenise, self._middle = rows, tokenise, middle

    def __call__(self, source: _stoker.Batch, epoch: int) -> _RowBatch:
        """Packed rows leave out the padding of the batch."""
        values, offsets, *_ = source.array(0)
        stored, bounds = memoryview(values).cast("B"), memoryview(offsets).tolist()
        all_real = self._rows.options["rows"] != _stoker.ROWS_PACKED
        parts, ids = [], array("Q")
        for number, (document, real) in enumerate(
            zip(source.ids.tolist(), source.mask.tolist(), strict=True)
        ):
            if all_real or real:
                parts.append(bytes(stored[bounds[number] : bounds[number + 1]]))
                ids.append(document)
        if self._middle is None:
            return self._rows(source, epoch, self._tokenise(ids, parts), ids)
        texts = self._tokenise.texts(ids, parts)
        return self._rows(source, epoch, self._middle(texts, ids, epoch, self._tokenise.ids), ids)

    def close(self) -> None:
        pass


class _Tokenise:
    """Makes ids from documents: (numbers, bytes) -> ids."""

    def __init__(
        self, read: Callable[[bytes], str], encode: Encoder, bad: BadDocuments
    ) -> None:
        self._read, self._encode, self._bad = read, encode, bad
        self.vocab = 0  # 0: no bound
        self.is_exact = isinstance(encode, HuggingFace)  # its digest covers its behaviour

    def __call__(self, numbers: Sequence[int], stored: Sequence[bytes]) -> list[array[int]]:
        return self.ids(self.texts(numbers, stored))

    def texts(self, numbers: Sequence[int], stored: Sequence[bytes]) -> list[str]:
        return [self._text(*each) for each in zip(numbers, stored, strict=True)]

    def ids(self, texts: list[str]) -> list[array[int]]:
        found = []
        for ids in self._encode(texts) if texts else ():
            try:
                found.append(array("i", ids))
                self._check(found[-1])
            except (OverflowError, TypeError) as error:
                raise FormatError(
                    f"the tokenizer returned a value that is not an id: {error}",
                    "TextLoader",
                    "return ids of 32 bits",
                ) from error
        if len(found) != len(texts):
            raise FormatError(
                f"the tokenizer returned {len(found)} lists of ids for {len(texts)} texts",
                "TextLoader",
                "return one list for each text",
            )
        return found

    def _check(self, ids: array[int]) -> None:
        if self.vocab and len(ids) and not 0 <= min(ids) <= max(ids) < self.vocab:
            foreign = next(each for each in ids if not 0 <= each < self.vocab)
            raise FormatError(
                "a token is not an id of the vocabulary",
                f"token {foreign}, vocab is {self.vocab}",
                "pass the number of ids of the tokenizer as vocab=",
            )

    def _text(self, number: int, stored: bytes) -> str:
        try:
            return self._read(strip_mark(stored))
        except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
            self._bad.add(number, error)
            return ""


# ---- windows ----


class _AppendEod:
    """The same, and appends the token at the end of documents that are not empty."""

    def __init__(self, tokenise: _Tokenise, tail: tuple[int, ...]) -> None:
        self._tokenise, self._tail = tokenise, tail

    def __call__(self, numbers: Sequence[int], stored: Sequence[bytes]) -> list[array[int]]:
        found = self._tokenise(numbers, stored)
        for ids in found:
            if ids:
                ids.extend(self._tail)
        return found


class _WindowRows:
    """Makes windows from their numbers: documents that they overlap, ids, rows.

    The result depends only on the numbers; the cache only saves time.
    """

    def __init__(
        self, rows: _RowBuilder, tokenise: _AppendEod, reading: Reading, counts: Counts, stride: int
    ) -> None:
        self._rows, self._tokenise, self._reading, self.counts = rows, tokenise, reading, counts
        self.context, self._stride = rows.context, stride
        self._length = self.context + (rows.options["labels"] == _stoker.LABELS_SHIFTED)
        self._cache = TokenCache(0)

    def order_source(self, given: dict[str, Any]) -> tuple[_stoker.Tokens, dict[str, Any]]:
        """Virtual tokens for the order of the windows, and options of the native loader."""
        block = given["block_bytes"] or WINDOW_BLOCK_BYTES
        self._cache = TokenCache(
            min((given["window_blocks"] or WINDOW_BLOCKS) * block, CACHE_BYTES_MAX)
        )
        tokens = _stoker.Tokens(
            self._rows.engine._native, (), 0, 0, self.counts.tokens, self.counts.identity
        )
        return tokens, {
            "block_bytes": block,
            "rows": _stoker.ROWS_WINDOWS,
            "stride": self._stride,
            "labels": self._rows.options["labels"],
        }

    def __call__(self, source: _stoker.Batch, epoch: int) -> _RowBatch:
        ids = array("Q", source.ids.tolist())
        spans = [(number * self._stride, number * self._stride + self._length) for number in ids]
        touched = {number for span in spans for number in self.counts.touched(*span)}
        documents = self._documents(sorted(touched))
        windows = [self._window(documents, *span) for span in spans]
        return self._rows(source, epoch, windows, ids)

    def _documents(self, numbers: Sequence[int]) -> dict[int, array[int]]:
        found = self._cache.find(numbers)
        missing = [number for number in numbers if number not in found]
        made = self._tokenise(missing, self._reading.read(missing))
        for number, ids in zip(missing, made, strict=True):
            self.counts.check(number, len(ids))
            self._cache.add(number, ids)
            found[number] = ids
        return found

    def _window(self, documents: dict[int, array[int]], first: int, end: int) -> array[int]:
        window = array("i")
        for number in self.counts.touched(first, end):
            before = self.counts.first(number)
            window.extend(documents[number][max(first - before, 0) : end - before])
        return window

    def close(self) -> None:
        self._reading.close()
        self.counts.close()


# ---- texts ----


def _reader(kind: str, field: str | Callable[[Any], str]) -> Callable[[bytes], str]:
    """A function from a document's bytes to its text; it raises the errors of json and str."""

    def line(stored: bytes) -> str:
        return stored.decode().removesuffix("\n").removesuffix("\r")

    def parsed(stored: bytes) -> str:
        if not stored.strip():
            return ""  # an empty line, for example at the end of a file
        value = json.loads(stored)
        if callable(field):
            value = field(value)
        else:
            for name in field.split("."):
                value = value[name]
        if not isinstance(value, str):
            raise TypeError(f"{name_of(field)} is not text but {type(value).__name__}")
        if callable(field) or b"\\ud" in stored or b"\\uD" in stored:
            value.encode()  # a lone surrogate is no text: UnicodeEncodeError
        return value

    if kind == "json" and not callable(field) and not (isinstance(field, str) and field):
        raise ArgumentError(
            f"field {field!r} is not a name", "TextLoader", "pass a name, or a function"
        )
    return {"json": parsed, "lines": line, "files": bytes.decode}[kind]


def _fim_digest(options: dict[str, Any], fim: FIM | None) -> str | None:
    """Digest of the options of fill in the middle; fim: by characters. None: not used."""
    used = sorted(item for item in options.items() if "fim_" in item[0])
    return digest([*used, *([fim] if fim else [])]) if used or fim else None
