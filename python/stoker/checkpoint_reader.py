"""Reads a step or a file of checkpoints into trees of values."""

from __future__ import annotations

import errno
import json
import math
import os
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from . import _stoker, checkpoint_ranks, checkpoint_tree
from .checkpoint_pieces import Pieces, Pins
from .engine import Engine
from .errors import (
    ArgumentError,
    CorruptError,
    FormatError,
    MissingError,
    TimeoutError,
    TruncatedError,
)
from .notices import StokerWarning

DAMAGE = (CorruptError, TruncatedError, FormatError, MissingError, FileNotFoundError)
_TICK_MS = 100
WAVE_BYTES = 256 << 20  # temporary memory of a load for tensors that it cannot read into


class MissingKeyError(MissingError):
    """A key that the caller wants is not in the checkpoint: no damage."""


def copy(
    save: Any, tensors: Any, pins: Pins | None = None, until: float | None = None
) -> None:
    """Copies the tensors; Ctrl-C is possible while memory is awaited.

    Parameters:
        tensors: the SaveTensors of the save.
        pins: pins the memory of the writer for copies of a GPU.
        until: a time of time.monotonic().
    """
    pieces = Pieces(tensors.owners, pins)
    while True:
        found = save.copy(_TICK_MS)
        if found is True:
            return
        if found is not None:
            pieces.fill(*found)
        elif until is not None and time.monotonic() > until:
            raise TimeoutError(
                "the tensors were not copied before the deadline",
                "save",
                "give the Checkpointer more memory, or allow a longer deadline",
            )


def finish(save: Any, handle: Any = None) -> None:
    running = True
    while running:
        running, total, done, _, nan, inf = save.next(_TICK_MS)
        if handle is not None:
            handle._progress = (done, total)
            handle.nan, handle.inf = nan, inf


def verify(checkpoint: Any) -> None:
    """Reads all tensors of an open step, and compares all hashes."""
    ranges = _all_ranges(checkpoint)
    if ranges:
        _load(checkpoint, ranges, None)


def _all_ranges(checkpoint: Any) -> list[tuple[int, int, int, int]]:
    """All bytes of all tensors, to be read without a target."""
    sizes = [size for _, _, _, size, _ in checkpoint.tensors()]
    return [(index, 0, size, 0) for index, size in enumerate(sizes) if size]


def _load(checkpoint: Any, ranges: list[tuple[int, int, int, int]], memory: Any) -> None:
    load = checkpoint.load(ranges, memory)
    try:
        finish(load)
    finally:
        load.close()


class _Part(NamedTuple):
    """A box of a stored tensor, and the tensor of torch that it is copied to."""

    target: Any
    name: str
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    path: str
    bytes: int
    """Of its rows: temporary memory, unless they are read into the target."""


class ParameterState(Mapping[Any, Any]):
    """The state that an optimizer will have for a parameter that is a DTensor."""

    def __init__(self, parameter: Any) -> None:
        self._parameter = parameter

    def __getitem__(self, key: Any) -> Any:
        return self

    def __iter__(self) -> Any:
        return iter(())

    def __len__(self) -> int:
        return 0

    def make(self, kind: str, content: Any) -> Any:
        """New memory for a stored tensor, with the placements of the parameter; else None."""
        if kind != "dtensor" or tuple(content[2]) != tuple(self._parameter.shape):
            return None
        import torch

        dtype = getattr(torch, checkpoint_tree.dtype_name(content[1]))
        return torch.empty_like(self._parameter.detach(), dtype=dtype)


def is_damage(error: BaseException | None) -> bool:
    """Whether another copy of the step may be good: hashes, lengths, files, and a failing disk."""
    return isinstance(error, DAMAGE) or (isinstance(error, OSError) and error.errno == errno.EIO)


class Reader:
    """An open step or file, and its tensors by name.

    other: a place with the same files, from which tensors are read that are damaged in the first.
    """

    def __init__(
        self, engine: Engine, path: bytes, step: int | None, other: bytes | None = None
    ) -> None:
        self._engine, self._other = engine, other
        self.checkpoint = _stoker.Checkpoint(engine._native, path, step)
        self.step, self.path, self.values, _, self.ranks, _ = self.checkpoint.info()
        self.tensors: dict[str, tuple[int, str, tuple[int, ...], int]] = {}
        for index, (name, dtype, shape, size, _) in enumerate(self.checkpoint.tensors()):
            self.tensors.setdefault(name, (index, dtype, shape, size))

    def tree(self, rank: int = 0) -> Any:
        files = self.checkpoint.files()
        text = files[rank if rank < self.ranks else 0][1]  # behind them are shared files
        if text is None:  # a file of another tool: its tensors by name
            return {"dict": {name: {"torch": name} for name in self.tensors}}
        return json.loads(text)

    def decode(self, tree: Any, like: Any = None) -> Any:
        """The values of the tree; its tensors are read and verified."""
        ranges: list[tuple[int, int, int, int]] = []
        made: dict[tuple[str, int], Any] = {}
        after: list[_Part] = []

        def make(name: Any, kind: str, like: Any, path: str) -> Any:
            if isinstance(like, ParameterState):
                like = like.make(kind, name)
            if kind == "dtensor":
                return self._dtensor(name, like, path, ranges, after)
            index, dtype, shape, size = self.find(name, path)
            key = (name, id(like) if like is not None else 0)
            if key not in made and checkpoint_tree.is_elsewhere(like):
                checkpoint_tree.check_form(like, dtype, shape, path)
                target = made[key] = like.detach()
                zeros = (0,) * len(shape)
                after.append(_Part(target, name, zeros, shape, path, size))
            elif key not in made:
                memory = checkpoint_tree.memory_for(kind, dtype, shape, like, path)
                ranges.append((index, 0, size, checkpoint_tree.address_of(memory) if size else 0))
                made[key] = memory
            return made[key]

        result = checkpoint_tree.decode(tree, make, like)
        self.read(ranges, made)
        self._read_parts(after)
        return _convert(tree, result)

    def _read_parts(self, parts: list[_Part]) -> None:
        """Reads parts into temporary memory and copies them: as many at a time as it may have."""
        at = 0
        while at < len(parts):
            ranges, copies, held = [], [], 0
            while at < len(parts) and (held == 0 or held + parts[at].bytes <= WAVE_BYTES):
                part = parts[at]
                source, span = self.rows(*part[1:3], part.sizes, part.target, part.path)
                ranges.append(span)
                copies.append((part.target, source))
                held += part.bytes if source is not part.target else 0
                at += 1
            self.read(ranges, copies)
            for target, source in copies:
                if source is not target:
                    target.copy_(source)

    def find(self, name: str, path: str) -> tuple[int, str, tuple[int, ...], int]:
        """A tensor by its name: number, dtype, shape, bytes. path: of the value in its tree."""
        if name not in self.tensors:
            raise MissingError(
                "a tensor of the tree is missing",
                f"'{path}' in '{self.path}'",
                "use another step or file, or replace its files: 'stoker ckpt repair'",
            )
        return self.tensors[name]

    def rows(
        self, name: str, offsets: Sequence[int], box: tuple[int, ...], target: Any, path: str
    ) -> tuple[Any, tuple[int, int, int, int]]:
        """The rows of a stored tensor that hold a box of it, to be read for a tensor of torch.

        Returns the box in their memory, and the range to be read. The box is the target itself if
        the rows can be read into it directly; else its memory is new, and the caller copies it.
        """
        index, dtype, sizes, _ = self.find(name, path)
        shape = (box[0], *sizes[1:]) if sizes else ()
        same = shape == box == tuple(target.shape) and checkpoint_tree.torch_dtype(target) == dtype
        if same and checkpoint_tree.is_plain(target):
            memory = part = target
        else:
            memory = part = checkpoint_tree.memory_for("torch", dtype, shape, None, path)
            for axis in range(1, len(box)):
                part = part.narrow(axis, offsets[axis], box[axis])
        row_bytes = math.prod(sizes[1:]) * memory.element_size()
        count = memory.numel() * memory.element_size()
        begin = offsets[0] * row_bytes if sizes else 0
        return part, (index, begin, count, memory.data_ptr() if count else 0)

    def read(self, ranges: list[tuple[int, int, int, int]], memory: Any) -> None:
        """Reads and verifies ranges. memory: an object that keeps their memory alive."""
        ranges = [item for item in ranges if item[2]]
        if not ranges:
            return
        try:
            _load(self.checkpoint, ranges, memory)
        except (*DAMAGE, OSError) as error:
            if self._other is None or not is_damage(error):
                raise
            self._read_both(ranges, memory, error)

    def _read_both(self, ranges: list[Any], memory: Any, error: BaseException) -> None:
        """Reads each range from the place where it is not damaged."""
        assert self._other is not None
        other = _stoker.Checkpoint(self._engine._native, self._other, self.step)
        taken = []
        names = self.checkpoint.tensors()
        try:
            for item in ranges:
                try:
                    _load(self.checkpoint, [item], memory)
                except (*DAMAGE, OSError) as damage:
                    if not is_damage(damage):
                        raise
                    _load(other, [item], memory)
                    taken.append(names[item[0]][0])
        finally:
            other.close()
        warnings.warn(
            f"step {self.step}: {len(taken)} tensors ({', '.join(taken[:5])}"
            f"{', ...' if len(taken) > 5 else ''}) are damaged in '{self.path}' and were read from "
            f"'{os.fsdecode(self._other)}': {error}",
            StokerWarning,
            stacklevel=2,
        )

    def _dtensor(
        self,
        node: list[Any],
        like: Any,
        path: str,
        ranges: list[tuple[int, int, int, int]],
        after: list[_Part],
    ) -> Any:
        """The part that a DTensor has on this rank; without one, the full tensor."""
        name, dtype, shape = node[0], node[1], tuple(node[2])
        if type(like).__name__ == "DTensor":
            checkpoint_tree.check_form(like, dtype, shape, path)
            local, box = like.to_local().detach(), checkpoint_ranks.box_of(like)
        else:
            local = checkpoint_tree.memory_for("torch", dtype, shape, like, path)
            box = (0,) * len(shape), shape
        left = local.numel()
        for stored, offsets in checkpoint_ranks.parts_of(name, self.tensors):
            shared = checkpoint_ranks.overlap(box, (offsets, self.tensors[stored][2]))
            if shared is None:
                continue
            low, wanted = shared
            target = local
            for axis in range(len(wanted)):
                target = target.narrow(axis, low[axis] - box[0][axis], wanted[axis])
            begin = tuple(a - b for a, b in zip(low, offsets, strict=True))
            sizes = self.tensors[stored][2]
            row_bytes = self.tensors[stored][3] // max(1, math.prod(sizes[:1]))
            after.append(_Part(target, stored, begin, wanted, path, row_bytes * wanted[0]
                               if wanted else row_bytes))
            left -= target.numel()
        if left != 0:
            raise MissingError(
                "parts of a tensor are missing",
                f"'{path}' in '{self.path}'",
                "use another step, or replace its files: 'stoker ckpt repair'",
            )
        return like if type(like).__name__ == "DTensor" else local

    def verify(self) -> None:
        """Reads all tensors, and compares all hashes."""
        self.read(_all_ranges(self.checkpoint), None)

    def close(self) -> None:
        self.checkpoint.close()


def _convert(node: Any, value: Any) -> Any:
    """Makes JAX arrays and NumPy scalars of arrays that were filled."""
    if isinstance(node, list):
        return [_convert(a, b) for a, b in zip(node, value, strict=True)]
    if not isinstance(node, dict):
        return value
    ((kind, content),) = node.items()
    if kind == "scalar" and type(value).__name__ == "ndarray":
        return value[()]
    if kind == "jax" and type(value).__name__ == "ndarray":
        import jax.numpy

        return jax.numpy.asarray(value)
    if kind == "tuple":
        items = [_convert(a, b) for a, b in zip(content, value, strict=True)]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if kind == "dict":
        return {key: _convert(content[key], item) for key, item in value.items()}
    if kind == "pairs":
        return {
            key: _convert(pair[1], item)
            for pair, (key, item) in zip(content, value.items(), strict=True)
        }
    return value


def select(tree: Any, keys: Mapping[Any, Any], path: str) -> Any:
    """The part of a tree that has these keys."""
    content = tree.get("dict") if isinstance(tree, dict) else None
    if content is None:
        raise ArgumentError(
            "the checkpoint was not saved from a dict with text keys",
            f"'{path}'",
            "read it with load()",
        )
    missing = [key for key in keys if key not in content]
    if missing:
        raise MissingKeyError(
            f"the checkpoint has no {', '.join(map(repr, missing))}",
            f"'{path}' has {', '.join(map(repr, content))}",
            "restore without it, or another step",
        )
    return {"dict": {key: content[key] for key in keys}}
