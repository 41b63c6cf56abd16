"""TokenLoader: token files as a stream of training batches for language models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, chain
from time import monotonic
from typing import Any

from . import _stoker
from ._options import ON_ERRORS, TAILS, count, interruptible, parse_bytes, paths_of, word
from .dataset import BadSample
from .engine import Engine, engine_of
from .errors import ArgumentError, LimitError
from .loader_base import LoaderBase
from .loader_stats import WaitTimes
from .mix import Mix, Mixed
from .tensors import Convert, check_word
from .token_files import Tokens, open_readable, token_paths
from .token_rows import FIM, Fields, field_values, fields_of, row_options

__all__ = ["TokenLoader"]


class TokenLoader(LoaderBase):
    """A stream of batches of token windows, packed rows or documents for one rank, in an exact
    order.

    Every ``for`` over the loader is one epoch::

        loader = stoker.TokenLoader("fineweb/train_*.bin", batch_size=32, context=2048, seed=0)
        for inputs, targets in loader:   # int64 [32, 2048]; targets[i] follows inputs[i]
            loss = cross_entropy(model(inputs).flatten(0, 1), targets.flatten())

    Models of Transformers shift labels themselves. For them name the fields as they do: a field
    ``labels`` is not shifted (it equals ``input_ids``, with -100 where nothing is predicted)::

        loader = stoker.TokenLoader(..., names=["input_ids", "labels"])
        for batch in loader:
            loss = model(**batch).loss

    The order, ranks and states are those of :class:`Loader`: the same global batches for every
    number of ranks, and one position as state.

    ``rows="windows"``: each file is cut into windows of ``context + 1`` tokens, one every
    ``stride`` tokens: by default each token is a label once in an epoch. Windows do not cross the
    end of a file; tokens after the last complete window of a file are not used.

    ``rows="packed"``: documents, packed by best fit: only a document longer than ``context`` is
    cut. The loop receives dicts: ``input_ids``, ``labels`` (Transformers' meaning: not shifted;
    -100 at the start of each document and in padding), ``position_ids`` (from 0 in each document),
    all [B, context]; and ``cu_seqlens``,
    int32: offsets of the documents in the batch as one row of ``B * context`` tokens, and that
    number, as FlashAttention's ``varlen`` functions expect them. All batches have ``batch_size``
    rows.

    ``rows="documents"``: a document in each row, as pairs of :class:`Ragged` (inputs, targets).

    ``rows="padded"``: a document in each row, cut to ``context`` or padded, as pairs of tensors.

    Documents are those of Megatron sets; in other files a token ``eod`` ends each document. Opening
    reads all tokens once to find them.

    Args:
        source: :class:`Tokens`, or its source (a file, braces, a glob, a list);
            or a :class:`Mix` of such sources, whose weights count rows: see :meth:`set_weights`.
        batch_size: rows in a batch of this rank.
        context: tokens of a row; for documents the maximum (longer ones are cut), default: no
            limit.
        seed: seed of the order.
        rows: ``"windows"``, ``"packed"``, ``"documents"`` or ``"padded"``.
        stride: tokens from one window to the next. Default: ``context``.
        labels: ``True``: the name decides: a field called ``labels`` (also by default, in dicts)
            has Transformers' meaning, which the model shifts; any other, such as ``targets`` or
            ``shift_labels``, and the second value of a pair, is shifted by one: the next token.
            ``"model"``, ``"shifted"``: one of both, explicitly; shifted ones cannot be called
            ``labels``, and are ``targets`` by default. ``False``: no labels. Windows of shifted
            labels take one token more than ``context``.
        names: the loop receives dicts with these names, one for each of inputs, labels, positions
            and cu_seqlens that the batch has.
        flash_attention: deliver the offsets of documents as Transformers' flash attention expects
            them: ``cu_seq_lens_q``, ``cu_seq_lens_k``, ``max_length_q`` and ``max_length_k``
            instead of ``cu_seqlens``; they need no name.
        eod: the token that ends documents. In windows it is needed for ``mask_ends`` and
            ``positions``.
        append_eod: append an ``eod`` to documents of Megatron sets (not if ``--append-eod`` wrote
            the set).
        mask_ends: the label of a document's last token is -100 instead of the first token of the
            next document. Default: True except in windows. (Megatron's ``eod_mask_loss``.)
        positions: ``"reset"``: position ids from 0 in each document, and cu_seqlens; ``"row"``:
            from 0 in each row; ``"none"``. Default: ``"reset"`` for packed rows, else ``"none"``.
            (Megatron's ``reset_position_ids`` and ``reset_attention_mask``.)
        fim: :class:`FIM`: fill in the middle. Packed rows and documents reserve space for the
            sentinels; windows lose as many tokens at their end. An ``eod`` stays last.
        chunk: number of documents that are packed together. Default: 4,096.
        pad: the token of padding.
        dtype: dtype of batches: ``"int64"`` or ``"int32"``.
        stored: dtype of raw files, see :class:`Tokens`.
        vocab: number of token ids of the model; a token that is not below it raises FormatError.
        on_error: ``"raise"``; or ``"skip"``: a row that cannot be read (a damaged part of a
            compressed file or of an index, a token id beyond ``vocab``) is padding without labels,
            is counted in ``stats()["bad_samples"]``, and is listed in :attr:`quarantine`. No
            document ends in a part that cannot be read. Files whose number of tokens is unknown
            (zstd files that end too early, or with damage in a frame that does not state its size)
            are left out, counted and listed, too; without other files, and in a mix, they are
            raised. Errors of disks and stores, and files that change, are raised.
        bad_samples_max: if more rows cannot be read, LimitError is raised. Default: no limit.
        shuffle, tail, rank, world_size, window, groups, output: see :class:`Loader`.
        block_bytes: approximate size of a block of the order, in stored tokens. Default: 8 MiB.
        transform: called with each batch; the loop receives its result, which must not be None.
        engine: default: the process's engine, or that of the Tokens.
    """

    _native: _stoker.TokenLoader
    _subject = "token loader"

    def __init__(
        self,
        source: Any,
        batch_size: int,
        context: int | None = None,
        *,
        seed: int = 0,
        rows: str = "windows",
        stride: int | None = None,
        labels: bool | str = True,
        names: Sequence[str] | None = None,
        flash_attention: bool = False,
        eod: int | None = None,
        append_eod: bool = False,
        mask_ends: bool | None = None,
        positions: str | None = None,
        fim: FIM | None = None,
        chunk: int | None = None,
        pad: int = 0,
        dtype: Any = "int64",
        stored: Any = None,
        vocab: int | None = None,
        on_error: str = "raise",
        bad_samples_max: int | None = None,
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
        where = "TokenLoader"
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
        self._store_row_arguments(
            where,
            context,
            rows,
            fields_of(names, rows, labels, positions, flash_attention),
            block_bytes,
            output,
        )
        if rows != "windows" and stride is not None:
            raise ArgumentError(
                f"stride= does not apply to rows={rows!r}", where, "use rows='windows'"
            )
        self._native_options |= {
            "on_error": word(on_error, ON_ERRORS, f"{where} on_error"),
            "bad_samples_max": count(bad_samples_max, f"{where} bad_samples_max", low=1),
            "stride": count(stride, f"{where} stride", low=1),
            "chunk_documents": count(chunk, f"{where} chunk", low=1),
            **row_options(
                where,
                rows=rows,
                labels=self._fields.labels,
                dtype=dtype,
                pad=pad,
                eod=eod,
                append_eod=append_eod,
                mask_ends=mask_ends,
                positions=positions,
                fim=fim,
            ),
        }
        self._leaves: list[list[bytes]] = []  # files of each source of a mix
        self._damaged: list[BadSample] = []  # files that are left out
        if isinstance(source, Tokens):
            if (stored, vocab) != (None, None) or engine not in (None, source.engine):
                raise ArgumentError(
                    "stored=, vocab= and engine= cannot be combined with Tokens",
                    where,
                    "pass them to the Tokens",
                )
            self.tokens = source
        elif isinstance(source, Mix):
            if any(part.is_chosen for part in source.parts_of()):
                raise ArgumentError(
                    "subset=, weights= and the like do not apply to tokens",
                    where,
                    "mix complete sources",
                )
            found = engine_of(engine, where)
            self._leaves = [token_paths(leaf, found) for leaf in source.leaves()]
            source_files: Any = list(chain(*self._leaves))
            self.tokens = Tokens(source_files, stored=stored, vocab=vocab, engine=engine)
        elif on_error == "skip":
            files = token_paths(paths_of(source), engine_of(engine, where))
            self.tokens = open_readable(
                files, self._damaged, stored=stored, vocab=vocab, engine=engine
            )
        else:
            self.tokens = Tokens(source, stored=stored, vocab=vocab, engine=engine)
        if not isinstance(source, Tokens):
            self._owned.append(self.tokens)
        try:
            if bad_samples_max and len(self._damaged) > bad_samples_max:
                raise LimitError(
                    f"{len(self._damaged)} token files are damaged",
                    f"bad_samples_max={bad_samples_max}: the first is '{self._damaged[0].shard}'",
                    "compress them again, or raise bad_samples_max",
                )
            if isinstance(source, Mix):
                self._native = self._open_mix(source)
            else:
                self._native = self._load()
        except BaseException:
            self._close_owned()
            raise
        self._reset()

    def _store_row_arguments(
        self,
        where: str,
        context: int | None,
        rows: str,
        fields: Fields,
        block_bytes: int | str | None,
        output: str,
    ) -> None:
        """Checks and stores the arguments that loaders of tokens and of text have."""
        self.context = count(context, f"{where} context", low=1)  # 0: none
        self._rows = rows
        self._fields = fields
        self._times = WaitTimes()
        self._native_options["block_bytes"] = parse_bytes(block_bytes, f"{where} block_bytes")
        self._output_word = check_word(output)

    def _load(self, tokens: Tokens | None = None, **more: Any) -> Any:
        source = (tokens or self.tokens)._native
        # The call runs in another thread, where an attribute of an unpickled loader waits for the
        # thread that opens it: read all attributes here.
        context, options = self.context, self._native_options | more
        return interruptible(lambda: _stoker.TokenLoader(source, context, **options))

    def _open_mix(self, mix: Mix) -> Any:
        """Opens twice: the rows of a source are known when all rows are."""
        rows = self._load(group_count=1, tail=TAILS["keep"])  # a source alone may lack a batch
        try:
            ends = accumulate(len(leaf) for leaf in self._leaves)
            self._mixed = Mixed(mix, [rows.file_end(end - 1) for end in ends])
            return self._load(rows_of=rows, **self._mixed.native(self._step))
        finally:
            rows.close()

    def _reopen(self, width: int | None = None, state: tuple[Any, ...] = ()) -> Any:
        if self._mixed is None:
            return self._load(rows_of=self._native)
        mix = self._mixed.native(self._step, width)
        if width is None:
            return self._load(rows_of=self._native, **mix)
        files = list(chain(*self._leaves[:width]))
        with self.tokens._part(files) as tokens:
            return self._load(tokens, **mix)

    # ---- iterating: see LoaderBase ----

    def _next_native(self) -> Any:
        began = monotonic()
        batch = None
        try:
            batch = self._native.next()
            return batch
        finally:
            self._times.add(began, monotonic(), None if batch is None else batch.samples)

    def _convert_batch(self, batch: Any, output: str, convert: Convert) -> Any:
        values = field_values(batch, convert, self._rows, self._fields)
        return values if self._fields.count > 1 or isinstance(values, dict) else values[0]

    @property
    def rows(self) -> int:
        """Rows of an epoch, of all ranks together."""
        return int(self._native.samples())

    # ---- state ----

    def stats(self) -> dict[str, Any]:
        """Counters and times of the loader, with the names of :meth:`stoker.Loader.stats`.

        * ``wait_share``: share (0 to 1) of the time between the first and the last request for a
          batch in which the training loop waited for data; ``run_seconds``, ``wait_seconds``,
          ``first_batch_seconds`` (since opening).
        * ``batches``, ``samples`` (rows, or documents) of this rank; ``samples_per_second``.
        * ``bad_samples``: rows that could not be read, each time that one was due, and files that
          are left out.
        * ``epoch`` and ``position`` of the stream of all ranks, in rows.
        * ``fingerprint``: hash of all rows that the order scheduled so far: ranks and runs with
          equal fingerprints had the same rows.
        """
        state = self.state_dict()
        stream = {name: state[name] for name in ("epoch", "position", "fingerprint")}
        return {**stream, **self._times.stats(), "bad_samples": self._bad_samples()}

    def _bad_samples(self) -> int:
        return int(self._native.bad_samples()) + len(self._damaged)

    @property
    def quarantine(self) -> list[BadSample]:
        """Files that are left out, and rows that could not be read, the first 1,000: file, offset,
        reason, number of the row."""
        return self._damaged + [BadSample(*entry) for entry in self._native.quarantine()]

    # ---- the rest ----

    def __repr__(self) -> str:
        return (
            f"<stoker.TokenLoader of {self.tokens!r}, batches of {self.batch_size} x "
            f"{self.context or 'any'}, rank {self.rank} of {self.world_size}>"
        )
