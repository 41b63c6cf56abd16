"""Tokenizers: functions from texts to ids, and the digest that identifies them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from .errors import ArgumentError, FormatError
from .token_rows import FIM

__all__ = ["Encoder", "HuggingFace", "digest", "encoder", "fim_with_ids", "name_of"]

Ids = Sequence[Sequence[int]]


def fim_with_ids(fim: Any, encode: Encoder) -> Any:
    """Fill in the middle with ids instead of names of tokens. By characters, split_sample and
    no_prefix stay texts."""
    if not isinstance(fim, FIM):
        return fim
    names = ["prefix", "suffix", "middle"]
    if fim.level != "characters":
        names.append("split_sample")
        if isinstance(fim.no_prefix, str) and fim.no_prefix:
            fim = fim._replace(no_prefix=tuple(encode([fim.no_prefix])[0]))
    values = {name: getattr(fim, name) for name in names}
    return fim._replace(
        **{name: encode.id_of(v) if isinstance(v, str) else v for name, v in values.items()}
    )


class Encoder(Protocol):
    identity: str

    def __call__(self, texts: list[str]) -> Ids: ...

    def id_of(self, token: str) -> int: ...


class HuggingFace:
    """A ``tokenizers.Tokenizer``: it releases the GIL, so several threads call it."""

    def __init__(self, tokenizer: Any, special: bool) -> None:
        self._tokenizer, self._special = tokenizer, special
        self._encode = getattr(tokenizer, "encode_batch_fast", tokenizer.encode_batch)
        self.identity = digest((tokenizer.to_str(), special))

    def __call__(self, texts: list[str]) -> Ids:
        encodings = self._encode(texts, add_special_tokens=self._special)
        return [encoding.ids for encoding in encodings]

    def id_of(self, token: str) -> int:
        found = self._tokenizer.token_to_id(token)
        if found is None:
            raise ArgumentError(
                f"the tokenizer has no token {token!r}", "TextLoader eod", "check its vocabulary"
            )
        return int(found)


class _Function:
    def __init__(self, function: Callable[[list[str]], Ids]) -> None:
        self._function = function
        self.identity = name_of(function)

    def __call__(self, texts: list[str]) -> Ids:
        return self._function(texts)

    def id_of(self, token: str) -> int:
        raise ArgumentError(
            f"eod {token!r} is a name, but the tokenizer is a function",
            "TextLoader",
            "pass the token's id",
        )


def encoder(tokenizer: Any, special: bool) -> Encoder:
    if isinstance(tokenizer, (str, os.PathLike)):
        path = os.fspath(tokenizer)
        if not os.path.isfile(path):
            raise FileNotFoundError(2, "no such tokenizer", path)
        try:
            import tokenizers
        except ImportError as error:
            raise ArgumentError(
                f"a tokenizer.json needs tokenizers, which cannot be imported: {error}",
                "TextLoader",
                "install tokenizers, or pass a function",
            ) from error
        try:
            return HuggingFace(tokenizers.Tokenizer.from_file(path), special)
        except Exception as error:  # tokenizers raises nothing more specific
            raise FormatError(
                f"the tokenizer cannot be read: {error}", repr(path), "pass its tokenizer.json"
            ) from error
    inner = getattr(tokenizer, "backend_tokenizer", tokenizer)  # of fast ones of transformers
    if hasattr(inner, "encode_batch") and hasattr(inner, "to_str"):
        return HuggingFace(inner, special)
    if callable(tokenizer):
        return _Function(tokenizer)
    raise ArgumentError(
        f"tokenizer {tokenizer!r} is not supported",
        "TextLoader",
        "pass a Tokenizer, its tokenizer.json or a function",
    )


def name_of(thing: Any) -> str:
    if isinstance(thing, str):
        return thing
    return f"{getattr(thing, '__module__', '')}.{getattr(thing, '__qualname__', type(thing))}"


def digest(value: Any) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]
