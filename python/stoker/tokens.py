"""Tokens and TokenLoader: files of tokens, as a stream of training batches for language models."""

from __future__ import annotations

import glob
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from . import _stoker
from .dataset import SHUFFLES, Engine, count, default_engine, refuse_pickle, word
from .errors import ArgumentError, ClosedError, EmptyError, ForkedError, StateError
from .loader import TAILS, parse_state, state_values
from .output import check_word, choose, converter, mask_of, paths_of
from .ranks import ranks
from .stream import EPOCH, Epoch, Stream

__all__ = ["TokenLoader", "Tokens"]

STORED = {
    "uint8": _stoker.UINT8,
    "int8": _stoker.INT8,
    "uint16": _stoker.UINT16,
    "int16": _stoker.INT16,
    "uint32": _stoker.UINT32,
    "int32": _stoker.INT32,
    "uint64": _stoker.UINT64,
    "int64": _stoker.INT64,
}
PACKED_NAMES = ("input_ids", "labels", "position_ids", "cu_seqlens")
DTYPES = {"int64": _stoker.INT64, "int32": _stoker.INT32}


class Tokens:
    """Token files, mapped: opening costs the same whatever they hold.

    What each file is, is found out: a Megatron set (named by its prefix, its ``.bin`` or its
    ``.idx``), an ``.npy`` of integers, a shard of llm.c, or else raw tokens (nanoGPT's
    ``train.bin``), which need ``stored=``. The files must not be cut while they are in use.

    Args:
        source: a file, a glob (``"fineweb/train_*.bin"``), or a list of them.
        stored: dtype of raw files: ``"uint16"``, ``"uint32"`` ...; NumPy's names and objects too.
        engine: default: the process's.

    Attributes:
        files: the paths, in the order of the tokens: globs are sorted.
    """

    def __init__(
        self,
        source: Any,
        *,
        stored: Any = None,
        engine: Engine | None = None,
    ) -> None:
        if engine is not None and not isinstance(engine, Engine):
            raise ArgumentError(f"engine {engine!r}", "Tokens", "give a stoker.Engine, or none")
        self.engine = engine if engine is not None else default_engine()
        self.files = _files(paths_of(source))
        dtype = 0 if stored is None else word(_name(stored), STORED, "Tokens stored")
        self._native = _stoker.Tokens(self.engine._native, tuple(self.files), dtype)
        self._info = self._native.info()

    def __len__(self) -> int:
        """Tokens of all files."""
        return int(self._info["tokens"])

    @property
    def bytes(self) -> int:
        """Bytes of the files that hold tokens."""
        return int(self._info["bytes"])

    @property
    def documents(self) -> int:
        """Documents of Megatron sets."""
        return int(self._info["documents"])

    @property
    def identity(self) -> str:
        """Of dtypes, counts, and both ends of each file; names do not enter it."""
        return str(self._info["identity"].hex())

    def close(self) -> None:
        """Lets go of the files; loaders on them go on."""
        self._native.close()

    def __enter__(self) -> Tokens:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<stoker.Tokens: {len(self)} tokens in {len(self.files)} files>"

    def __reduce__(self) -> NoReturn:
        refuse_pickle("Tokens")


class TokenLoader(Stream):
    """A stream of batches of token windows for one rank, exactly ordered.

    Every ``for`` over the loader is one epoch::

        loader = stoker.TokenLoader("fineweb/train_*.bin", batch_size=32, context=2048, seed=0)
        for inputs, labels in loader:   # int64 [32, 2048], labels[i] comes behind inputs[i]
            loss = cross_entropy(model(inputs).flatten(0, 1), labels.flatten())

    Each file is cut into windows of ``context + 1`` tokens, one every ``stride``: with the default
    each token is a label once an epoch. Windows do not go from one file into the next, and what a
    file has left behind its last whole window is not used. The order, ranks and states are those
    of :class:`Loader`: the same global batches for every number of ranks, and one position as
    state.

    With ``pack=True`` the rows are documents of Megatron sets instead, packed by best fit: only a
    document longer than ``context`` is cut. The loop gets dicts: ``input_ids``, ``labels`` (-100
    at each document's end and in padding), ``position_ids`` (from 0 in each document), all
    [B, context], and ``cu_seqlens``, int32: where documents begin in the batch as one row of
    ``B * context`` tokens, and that number, as FlashAttention's ``varlen`` functions want it.

    Args:
        source: :class:`Tokens`, or what it takes.
        batch_size: windows of a batch, of this rank.
        context: tokens of a row.
        seed: of the order.
        stride: tokens from one window to the next. Default: ``context``.
        labels: ``True``: pairs (inputs, labels), the labels shifted by one; ``False``: one tensor,
            of windows of ``context`` tokens.
        names: the loop gets dicts with these names instead: ``("input_ids", "labels")``, or
            ``("input_ids",)`` without labels; four with ``pack``.
        pack: rows of packed documents, see above; ``stride`` and ``labels`` are not used.
        chunk: documents that are packed with each other. Default: 4,096.
        pad: the token of padding.
        dtype: of the batches: ``"int64"`` or ``"int32"``.
        stored: dtype of raw files, see :class:`Tokens`.
        shuffle, tail, rank, world_size, window, groups, output: see :class:`Loader`.
        transform: called with each batch as the loop would get it; the loop gets its result.
        engine: default: the process's, or the Tokens'.
    """

    _native: _stoker.TokenLoader

    def __init__(
        self,
        source: Any,
        batch_size: int,
        context: int,
        *,
        seed: int = 0,
        stride: int | None = None,
        labels: bool = True,
        names: Sequence[str] | None = None,
        pack: bool = False,
        chunk: int | None = None,
        pad: int = 0,
        dtype: Any = "int64",
        stored: Any = None,
        shuffle: str = "block",
        tail: str = "drop",
        rank: int | None = None,
        world_size: int | None = None,
        window: int | None = None,
        groups: int | None = None,
        transform: Callable[[Any], Any] | None = None,
        output: str = "auto",
        engine: Engine | None = None,
    ) -> None:
        where = "TokenLoader"
        self._closed = True  # until it is open
        self.batch_size = count(batch_size, f"{where} batch_size", low=1)
        self.context = count(context, f"{where} context", low=1)
        self.seed = count(seed, f"{where} seed", high=2**64 - 1)
        self.shuffle, self.tail = shuffle, tail
        self.rank, self.world_size = ranks(rank, world_size)
        self._follows = rank is None
        if transform is not None and not callable(transform):
            raise ArgumentError(
                f"transform {transform!r} cannot be called", where, "give a function of one batch"
            )
        self.transform = transform
        if pack and (stride is not None or not labels):
            raise ArgumentError(
                "pack= beside stride= or labels=False", where, "packed rows have labels, no stride"
            )
        self._packed = bool(pack)
        self._fields = 4 if pack else 2 if labels else 1
        self._names = None if names is None else tuple(names)
        if pack and names is None:
            self._names = PACKED_NAMES
        if self._names is not None and len(self._names) != self._fields:
            raise ArgumentError(
                f"names {names!r}", where, f"give {self._fields}: one for each tensor of a batch"
            )
        self._native_options = {
            "batch_size": self.batch_size,
            "stride": count(stride, f"{where} stride", low=1),
            "seed": self.seed,
            "shuffle": word(shuffle, SHUFFLES, f"{where} shuffle"),
            "tail": word(tail, TAILS, f"{where} tail"),
            "rank": self.rank,
            "world_size": self.world_size,
            "window_blocks": count(window, f"{where} window", low=1),
            "group_count": count(groups, f"{where} groups", low=1),
            "labels": _stoker.LABELS_SHIFTED if labels else _stoker.LABELS_NONE,
            "dtype": word(_name(dtype), DTYPES, f"{where} dtype"),
            "packed": int(self._packed),
            "chunk_documents": count(chunk, f"{where} chunk", low=1),
            "pad": count(pad, f"{where} pad", high=2**31 - 1),
        }
        self._output_word = check_word(output)
        self._convert: Callable[[Any], Any] | None = None
        self._output = ""
        self._owned = not isinstance(source, Tokens)
        if isinstance(source, Tokens):
            if stored is not None or engine not in (None, source.engine):
                raise ArgumentError(
                    "stored= or another engine beside Tokens", where, "give them to the Tokens"
                )
            self.tokens = source
        else:
            self.tokens = Tokens(source, stored=stored, engine=engine)
        try:
            self._native = self._load()
        except BaseException:
            self._close_owned()
            raise
        self._closed = False
        self._pid = os.getpid()
        self._turning = threading.Lock()
        self._turn = 0  # grows when the iterator in use becomes stale
        self._epoch = 0
        self._taken = False  # batches of this epoch were given to an iterator
        self.mask: Any = None

    def _load(self) -> _stoker.TokenLoader:
        options = self._native_options
        return _stoker.TokenLoader(self.tokens._native, self.context, **options)

    def _reload(self) -> None:
        native = self._load()
        native.set_state(self._native.state())
        self._native.close()
        self._native = native

    def _close_owned(self) -> None:
        if self._owned:
            self.tokens.close()

    # ---- iterating ----

    def __iter__(self) -> Iterator[Any]:
        """One epoch. It begins where :meth:`load_state_dict` went, else at the epoch's start:
        also when an earlier ``for`` left this epoch in the middle. Until its first ``next()`` the
        iterator goes along with :meth:`set_epoch` and :meth:`load_state_dict`."""
        self._check_open()
        self._finish()
        self._turn += 1
        if self._taken:
            self._native.set_epoch(self._epoch)
            self._taken = False
        self._follow()
        return Epoch(self)

    def __len__(self) -> int:
        """Batches that an epoch holds for this rank."""
        self._follow()
        return self._native.batches(self._epoch)

    @property
    def windows(self) -> int:
        """Windows of an epoch, over all ranks."""
        return self._native.samples()

    def _check_open(self) -> None:
        if self._pid != os.getpid():
            raise ForkedError(
                "the object was made in another process",
                "token loader",
                "make it again in this process, after the fork",
            )
        if self._closed:
            raise ClosedError(
                "the loader is closed", "token loader", "make a new one; batches stay valid"
            )

    def _next(self, turn: int) -> Any:
        with self._turning:  # threads that share an iterator take turns, and end together
            value = self._take(turn)
        return value if value is None or self.transform is None else self.transform(value)

    def _take(self, turn: int) -> Any:
        self._check_open()
        if turn != self._turn:
            raise StateError(
                "this iterator is not in use any more",
                "token loader",
                "set_epoch(), load_state_dict() and a new loop end it",
            )
        self._taken = True
        batch = self._native.next()
        if batch is None:
            self._end()
            return None
        if self._convert is None:
            self._output = choose(self._output_word)
            self._convert = converter(self._output)
        self.mask = mask_of(batch, self._output) if self.tail == "pad" else None
        fields = self._fields - self._packed  # the last one is of another shape
        values = tuple(self._convert(batch.array(field)) for field in range(fields))
        if self._packed:
            values += (self._bounds(batch),)
        if self._names is not None:
            return dict(zip(self._names, values, strict=True))
        return values if self._fields > 1 else values[0]

    def _end(self) -> None:
        self._epoch, self._taken = self._native.state()[EPOCH], False
        self._turn += 1

    def _finish(self) -> None:
        """Turns to the next epoch if the loop had all of this one, and did not ask for its end."""
        if self._taken and self._is_over():
            self._native.next()
            self._end()

    def _bounds(self, batch: _stoker.Batch) -> Any:
        """cu_seqlens: where documents begin, and the end."""
        assert self._convert is not None
        starts = self._convert(batch.array(3)[0])
        end = len(batch.ids) * self.context
        if self._output == "torch":
            return starts.new_tensor([*starts.tolist(), end])
        if self._output == "numpy":
            import numpy

            return numpy.append(starts, numpy.int32(end))
        return [*memoryview(starts), end]

    # ---- state ----

    @property
    def epoch(self) -> int:
        """The epoch that runs, or that the next loop gives."""
        return self._epoch

    def set_epoch(self, epoch: int) -> None:
        """The next loop gives this epoch. Where the loader already stands before it (also in its
        middle, by :meth:`load_state_dict`), nothing changes."""
        number = count(epoch, "set_epoch", high=2**64 - 1)
        self._finish()
        if self._taken or number != self._epoch:
            self._turn += self._taken
            self._native.set_epoch(number)
            self._epoch, self._taken = number, False

    def state_dict(self) -> dict[str, int | str]:
        """Where the stream stands: a few numbers, the same on every rank, fit for JSON."""
        return state_values(self._native.state())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes to where the state stands; the next loop gives the rest of its epoch.

        Raises:
            StateError: the state belongs to other tokens, another context, stride or setting, or
                another order version.
        """
        values = parse_state(state)
        self._turn += self._taken
        self._native.set_state(values)
        self._epoch, self._taken = values[EPOCH], False

    # ---- the rest ----

    def close(self) -> None:
        """Lets go of the files. Batches in hand stay valid."""
        if not self._closed:
            self._closed = True
            self._native.close()
            self._close_owned()

    def __enter__(self) -> TokenLoader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"<stoker.TokenLoader of {self.tokens!r}, batches of {self.batch_size} x "
            f"{self.context}, rank {self.rank} of {self.world_size}>"
        )

    def __reduce__(self) -> NoReturn:
        refuse_pickle("TokenLoader")


def _files(paths: Sequence[bytes]) -> list[bytes]:
    """Globs by their files, sorted; of a Megatron set that was met twice the .bin alone."""
    files: list[bytes] = []
    for path in paths:
        if not glob.has_magic(path) or os.path.exists(path):
            files.append(path)
            continue
        found = sorted(glob.glob(path, recursive=True))
        sets = {name for name in found if name.endswith(b".bin")}
        found = [
            name
            for name in found
            if not (name.endswith(b".idx") and name.removesuffix(b".idx") + b".bin" in sets)
        ]
        if not found:
            raise EmptyError("no file has such a name", repr(os.fsdecode(path)), "look at the path")
        files += found
    return files


def _name(dtype: Any) -> Any:
    """The name of a dtype: of text, torch's ("torch.int64") and NumPy's objects."""
    text = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    return text.removeprefix("torch.")
