"""Tokens: memory-mapped token files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from . import _stoker, fsspec_source
from ._options import count, interruptible, paths_of, word
from .dataset import BadSample
from .engine import Engine, engine_of
from .errors import ChangedError, CorruptError, EmptyError, TruncatedError
from .pickling import Portable

__all__ = ["Tokens", "dtype_name", "open_readable", "token_paths"]

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


class Tokens(Portable):
    """Token files, memory-mapped: the time to open does not depend on their size.

    The format of each file is detected: a Megatron set (named by its prefix, its ``.bin`` or its
    ``.idx``), an ``.npy`` of integers, a shard of llm.c, or else raw tokens (nanoGPT's
    ``train.bin``), which need ``stored=``. Files must not be truncated while they are in use.

    All files except ``.idx`` may be compressed by zstd, and are then read in frames: of a file of
    many frames (``pzstd``, or ``split -b 4M --filter=zstd``) only the frames in use are
    decompressed, of a file of one frame all of it.

    Args:
        source: a file or URL, a glob (``"fineweb/train_*.bin"``), braces (``"{00..09}.npy"``), or a
            list of them. Files behind URLs are read by ranges.
        stored: dtype of raw files: ``"uint16"``, ``"uint32"`` ..., or an object of NumPy.
        cache: bytes of cached decompressed frames, and of cached ranges of files behind URLs.
            Default: for frames 512 MiB, at most a quarter of the memory budget; for ranges half
            of it.
        vocab: number of token ids of the model: a token that is negative or not below it raises
            FormatError, for example if ``stored=`` is not the dtype of the file.
        engine: default: the process's engine.

    Attributes:
        files: the paths, in the order of the tokens: matches of globs are sorted.
    """

    def __init__(
        self,
        source: Any,
        *,
        stored: Any = None,
        cache: int | None = None,
        vocab: int | None = None,
        engine: Engine | None = None,
    ) -> None:
        self.engine = engine_of(engine, "Tokens")
        self.files = token_paths(paths_of(source), self.engine)
        self._dtype = 0 if stored is None else word(dtype_name(stored), STORED, "Tokens stored")
        self._cache = count(cache, "Tokens cache", low=1)
        self._vocab = count(vocab, "Tokens vocab", low=1)
        self._open()

    def _open(self) -> None:
        engine, paths = self.engine._native, fsspec_source.native_paths(self.files)
        dtype, cache, vocab = self._dtype, self._cache, self._vocab
        self._native = interruptible(
            lambda: _stoker.Tokens(engine, paths, dtype, cache, vocab_size=vocab)
        )
        self._info = self._native.info()

    def _part(self, files: list[bytes]) -> Tokens:
        """The same with some of the files."""
        part = object.__new__(Tokens)
        part.engine, part.files = self.engine, files
        part._dtype, part._cache, part._vocab = self._dtype, self._cache, self._vocab
        part._open()
        return part

    def __len__(self) -> int:
        """Tokens of all files."""
        return int(self._info["tokens"])

    @property
    def bytes(self) -> int:
        """Bytes of the files that contain tokens."""
        return int(self._info["bytes"])

    @property
    def documents(self) -> int:
        """Documents of Megatron sets."""
        return int(self._info["documents"])

    @property
    def frames(self) -> int:
        """Frames of compressed files."""
        return int(self._info["frames"])

    @property
    def identity(self) -> str:
        """Hash of dtypes, counts, and both ends of each decompressed file; names do not matter."""
        return str(self._info["identity"].hex())

    def close(self) -> None:
        """Closes it; loaders keep the files."""
        self._native.close()

    def __enter__(self) -> Tokens:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<stoker.Tokens: {len(self)} tokens in {len(self.files)} files>"

    def _pickled_state(self) -> Any:
        return self.identity

    def _restore(self, saved: Any) -> None:
        if self.identity != saved:
            raise ChangedError(
                "the token files differ from those of the pickled object",
                repr(self.files),
                "pickle the object again",
            )


def open_readable(files: list[bytes], damaged: list[BadSample], **options: Any) -> Tokens:
    """Opens the files without those whose zstd frames do not state a size and are damaged: the
    number of their tokens is unknown. They are removed from ``files`` and added to ``damaged``."""
    while True:
        try:
            return Tokens(files, **options)
        except (CorruptError, TruncatedError) as error:
            names = [fsspec_source.shown(file) for file in files]
            if "compressed by zstd" not in error.what or error.shard not in names or len(files) < 2:
                raise
            del files[names.index(error.shard)]
            damaged.append(
                BadSample(error.shard, "", error.offset, error.status, error.name, error.what, None)
            )


def token_paths(paths: Sequence[bytes], engine: Engine) -> list[bytes]:
    """Replaces braces and globs, also in URLs, by their sorted matches; of a Megatron set only the
    .bin."""
    files: list[bytes] = []
    for path in paths:
        signs = b"{*[" if b"://" in path else b"{*?["  # in a URL '?' begins a query
        if not any(sign in path for sign in signs) or _exists(path):
            files.append(path)
            continue
        found = _expand(path, engine)
        sets = {name.removesuffix(b".zst") for name in found}
        found = [
            name
            for name in found
            if not (name.endswith(b".idx") and name.removesuffix(b".idx") + b".bin" in sets)
        ]
        if not found:
            raise EmptyError(
                "no file matches the pattern", repr(os.fsdecode(path)), "check the path"
            )
        files += found
    return files


def _exists(path: bytes) -> bool:
    return b"://" not in path and os.path.exists(path)


def _expand(path: bytes, engine: Engine) -> list[bytes]:
    """Matches of a pattern; [] if there are none."""
    try:
        names = fsspec_source.native_paths([path])
        found = (_stoker.paths_expand(engine._native, name, False)[1] for name in names)
        return [each for names in found for each in names]
    except EmptyError:
        return []


def dtype_name(dtype: Any) -> Any:
    """The name of a dtype: a word, torch's ("torch.int64") or NumPy's object."""
    text = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    return text.removeprefix("torch.")
