"""Converts a native batch to values for the training loop: tensors, arrays, lists.

Packages are imported on first use; torch is looked up in ``sys.modules`` first.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from typing import Any

from . import _stoker
from .errors import ArgumentError, CorruptError, FormatError
from .fields import Field

__all__ = ["Column", "Ragged", "choose"]

Convert = Callable[[Any], Any]

WORDS = ("auto", "torch", "numpy", "array")


def choose(output: str) -> str:
    """Replaces "auto": torch if it can be imported, else NumPy, else "array"."""
    if output != "auto":
        return output
    for name in ("torch", "numpy"):
        if name in sys.modules:
            if sys.modules[name] is not None:
                return name
        elif importlib.util.find_spec(name) is not None:
            return name
    return "array"


def check_word(output: str) -> str:
    if output not in WORDS:
        raise ArgumentError(
            f"unknown output {output!r}", "Loader", f"pass one of {', '.join(WORDS)}"
        )
    return output


def converter(output: str) -> Convert:
    """A function that makes a tensor from a stoker.ArrayColumn without a copy."""
    if output == "torch":
        return _import("torch").from_dlpack  # type: ignore[no-any-return]
    if output == "numpy":
        return _numpy
    return _same


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ArgumentError(
            f"output={name!r} needs {name}, which cannot be imported: {error}",
            "Loader",
            f"install {name}, or pass output='array'",
        ) from error


def _numpy(array: Any) -> Any:
    result = _import("numpy").asarray(array)
    if array.dtype == "bfloat16" and "ml_dtypes" in sys.modules:
        return result.view(sys.modules["ml_dtypes"].bfloat16)
    return result  # bfloat16 without ml_dtypes: its bits, as uint16


def _same(array: Any) -> Any:
    return array


def mask_of(batch: _stoker.Batch, output: str) -> Any:
    """bool [B], a copy, because the native mask is read-only."""
    flags = batch.mask.tolist()
    if output == "torch":
        torch = _import("torch")
        return torch.tensor(flags, dtype=torch.bool)
    if output == "numpy":
        numpy = _import("numpy")
        return numpy.array(flags, dtype=bool)
    return flags


def _json_parser() -> Convert:
    return _import("json").loads  # type: ignore[no-any-return]


def _msgpack_parser() -> Convert:
    try:
        unpackb = importlib.import_module("msgpack").unpackb
    except ImportError as error:
        raise ArgumentError(
            f"MessagePack() needs msgpack, which cannot be imported: {error}",
            "Loader",
            "install msgpack, or read parts of it: Int('mp:path'), Array('mp:path')",
        ) from error
    # MessagePack allows numbers as keys, but the package rejects them by default.
    return lambda data: unpackb(data, strict_map_key=False)


PARSERS = {"json": _json_parser, "msgpack": _msgpack_parser}


class Ragged(Sequence[Any]):
    """Values of variable length, stored one after the other, with their offsets; no copy.

    Attributes:
        values: tensor of all rows: [offsets[-1], ...].
        offsets: int64 [B + 1]: sample i is ``values[offsets[i]:offsets[i + 1]]``.
        shapes: int64 [B, rank] if more than the first dimension varies: ``values`` is flat then,
            and item i has this shape. Else ``None``.
        labels: the Ragged of the labels of :class:`stoker.Boxes`, or ``None``.
    """

    def __init__(self, values: Any, offsets: Any, shapes: Any = None, labels: Any = None) -> None:
        self.values, self.offsets, self.shapes, self.labels = values, offsets, shapes, labels
        self._bounds: list[int] | None = None
        self._shape_list: list[list[int]] | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: Any) -> Any:
        """A view of one sample's values; for a slice, a list of views."""
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        number = index + len(self) if index < 0 else index
        if not 0 <= number < len(self):
            raise IndexError("index out of range")
        if self._bounds is None:
            self._bounds = self.offsets.tolist()
        values = memoryview(self.values) if isinstance(self.values, _stoker.Array) else self.values
        part = values[self._bounds[number] : self._bounds[number + 1]]
        if self.shapes is None:
            return part
        if self._shape_list is None:
            self._shape_list = self.shapes.tolist()
        shape = self._shape_list[number]
        if isinstance(part, memoryview):
            flat: Any = part.cast("B")  # mypy accepts formats and shapes as literals only
            return flat.cast(part.format, shape) if part.nbytes else part
        return part.reshape(shape)

    def nested(self) -> Any:
        """A jagged ``torch.nested`` tensor of the same memory; torch output only."""
        if self.shapes is not None:
            raise ArgumentError("more than the first dimension varies", "Ragged", "use the items")
        nested = _import("torch").nested
        return nested.nested_tensor_from_jagged(self.values, self.offsets)

    def pin_memory(self) -> Ragged:
        def pinned(value: Any) -> Any:
            return None if value is None else value.pin_memory()

        return Ragged(
            values=pinned(self.values),
            offsets=pinned(self.offsets),
            shapes=pinned(self.shapes),
            labels=pinned(self.labels),
        )

    def __repr__(self) -> str:
        return f"<stoker.Ragged of {len(self)} items>"


class Column:
    """The index of a field in a batch, and its conversion."""

    def __init__(self, name: str, field: Field, index: int) -> None:
        self.name, self.index = name, index
        self.kind = "mask" if index < 0 else field._list
        self.errors = str(getattr(field, "errors", "strict"))
        self.labels = -1  # index of the native field with the labels of boxes

    def take(self, batch: _stoker.Batch, output: str, convert: Convert, dataset: Any) -> Any:
        if self.kind == "mask":
            return mask_of(batch, output)
        array = batch.array(self.index)
        if self.kind == "text":
            return self._text(batch, array)
        if self.kind == "ragged":
            return self._ragged(batch, array, convert)
        if self.kind in PARSERS:
            return self._parsed(batch, array, dataset)
        return array if self.kind == "bytes" else convert(array)

    def _ragged(self, batch: _stoker.Batch, parts: Any, convert: Convert) -> Ragged:
        made = [None if part is None else convert(part) for part in parts]
        if self.labels >= 0:
            labels = batch.array(self.labels)
            made.append(Ragged(convert(labels[0]), convert(labels[1])))
        return Ragged(*made)

    def _parsed(self, batch: _stoker.Batch, column: Any, dataset: Any) -> list[Any]:
        """Python objects; errors have the sample."""
        parse = PARSERS[self.kind]()
        values: list[Any] = []
        for value in column.tolist():
            try:
                values.append(parse(value))
            except (ValueError, TypeError, RecursionError) as error:
                sample = dataset.sample(batch.ids.tolist()[len(values)])
                raise CorruptError(
                    f"a member is not {self.kind}: {error}",
                    f"field {self.name!r} key {sample.key!r}",
                    "look at it with 'stoker cat', or use Bytes",
                    shard=sample.members[0].shard,
                    key=sample.key,
                ) from error
        return values

    def _text(self, batch: _stoker.Batch, column: Any) -> list[str]:
        try:
            return column.text(self.errors)  # type: ignore[no-any-return]
        except UnicodeDecodeError as error:
            for sample, value in zip(batch.ids.tolist(), column.tolist(), strict=True):
                if value == error.object:
                    break
            raise FormatError(
                f"text is not UTF-8: {error.reason}",
                f"field {self.name!r} sample {sample}",
                "use Text(..., errors='replace'), or Bytes",
                offset=error.start,
            ) from error
