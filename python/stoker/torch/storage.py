"""Storage of ``torch.distributed.checkpoint``: hashed, committed atomically, without pickle.

::

    import torch.distributed.checkpoint as dcp

    dcp.save(state_dict, checkpoint_id="s3://bucket/run/1000",
             storage_writer=stoker.torch.StorageWriter("s3://bucket/run/1000"))
    dcp.load(state_dict, checkpoint_id="s3://bucket/run/1000",
             storage_reader=stoker.torch.StorageReader("s3://bucket/run/1000"))

Each rank writes one safetensors file; the coordinator commits all of them by one rename or one
conditional request (docs/checkpoints.md). A checkpoint can be loaded on another number of ranks:
each rank reads and verifies the ranges that it needs. Saving again into the same place adds a
step, and removes the one before it once the new one is committed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import secrets
from typing import Any

import torch
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    LoadItemType,
    LoadPlan,
    LoadPlanner,
    SavePlan,
    SavePlanner,
    WriteItemType,
)
from torch.distributed.checkpoint.storage import StorageReader as _Reader
from torch.distributed.checkpoint.storage import StorageWriter as _Writer
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from .. import _stoker, checkpoint_tree
from .._options import parse_bytes, path_of
from ..checkpoint_reader import Reader, copy, finish
from ..engine import engine_of
from ..errors import ArgumentError, CorruptError, FormatError, MissingError, TruncatedError

__all__ = ["StorageReader", "StorageWriter"]

_COMMITTED = 1
_TREE = '{"dcp"'  # how the tree of each file begins
_STREAM = "bytes stream"  # an io.BytesIO, as its bytes; no kind of node of checkpoint_tree
_PIECE = 1 << 30  # bytes of temporary memory for one tensor part


@dataclasses.dataclass
class _Save:
    """A message of the coordinator to each rank, and, as a result, of each rank to it."""

    step: int
    save_id: str
    rank: int
    ranks: int
    part: bytes = b""


def _done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


class _Place:
    """A place that can be pickled; its engine is opened at the first use."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path_of(path, "checkpoint_id")

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        if checkpoint_id is not None:
            self._path = path_of(checkpoint_id, "checkpoint_id")

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return isinstance(checkpoint_id, (str, os.PathLike)) and bool(os.fspath(checkpoint_id))

    @staticmethod
    def _engine() -> Any:
        return engine_of(None, "engine")._native


class StorageWriter(_Place, _Writer):
    """Writes checkpoints of ``torch.distributed.checkpoint``.

    Parameters:
        path: a folder, ``s3://``, ``gs://`` or ``az://``; a ``checkpoint_id`` replaces it.
        memory: for bytes that are not written yet; default: a quarter of the memory that this
            process may use.

    Can be pickled, and starts no threads before it writes.
    """

    def __init__(self, path: str | os.PathLike[str], *, memory: int | str | None = None) -> None:
        _Place.__init__(self, path)
        self._memory = parse_bytes(memory, "memory")
        self._save: _Save | None = None
        self._open: tuple[Any, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_path": self._path, "_memory": self._memory, "_save": None, "_open": None}

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        self._close()  # a save that another rank failed was never finished
        self._save = None

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        with contextlib.suppress(FileNotFoundError):  # what dead and failed saves left
            _stoker.checkpoint_gc(self._engine(), self._path, 0, 0, None, 0, False, False)
        step = max((found[0] + 1 for found in self._steps()), default=0)
        save_id = secrets.token_hex(8)
        return [
            dataclasses.replace(plan, storage_data=_Save(step, save_id, rank, len(plans)))
            for rank, plan in enumerate(plans)
        ]

    def _steps(self) -> list[Any]:
        try:
            return list(_stoker.checkpoint_list(self._engine(), self._path))
        except FileNotFoundError:
            return []

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        save = plan.storage_data
        if not isinstance(save, _Save):
            raise ArgumentError(
                "the plan was not prepared by this writer",
                "write_data",
                "save with torch.distributed.checkpoint, and without plan caching",
            )
        self._save = save
        encoder = checkpoint_tree._Encoder()
        tensors: list[checkpoint_tree.Tensor] = []
        rows: list[Any] = []
        objects: dict[str, Any] = {}
        sizes: list[int] = []
        for item in plan.items:
            fqn = item.index.fqn
            if item.type == WriteItemType.BYTE_IO:
                value = planner.lookup_object(item.index)  # type: ignore[attr-defined]
                objects[fqn] = (
                    {_STREAM: encoder.value(value.getvalue(), fqn)}
                    if isinstance(value, io.BytesIO)
                    else encoder.value(value, fqn)
                )
                sizes.append(0)
                continue
            value = planner.resolve_data(item)
            data = item.tensor_data
            assert data is not None and isinstance(value, torch.Tensor)
            part = f"@{','.join(map(str, data.chunk.offsets))}" if _is_part(data) else ""
            name = encoder.name_of(fqn + part)
            encoder.names.add(name)
            tensors.append(checkpoint_tree.torch_tensor(name, value, fqn))
            sizes.append(value.numel() * value.element_size())
            rows.append(
                [
                    fqn,
                    name,
                    str(data.properties.dtype).removeprefix("torch."),
                    list(data.size),
                    list(data.chunk.offsets),
                    list(data.chunk.sizes),
                    bool(data.properties.requires_grad),
                ]
            )
        flat = plan.planner_data if isinstance(plan.planner_data, dict) else {}
        tree = {
            "dcp": {
                "tensors": rows,
                "objects": objects,
                "planner": {fqn: list(path) for fqn, path in flat.items()},
            }
        }
        save.part = self._write(save, json.dumps(tree), tensors + encoder.tensors)
        return _done(
            [
                WriteResult(item.index, size, save)
                for item, size in zip(plan.items, sizes, strict=True)
            ]
        )

    def _write(self, save: _Save, tree: str, tensors: list[checkpoint_tree.Tensor]) -> bytes:
        writer = _stoker.CheckpointWriter(self._engine(), self._path, self._memory)
        items = checkpoint_tree.SaveTensors(tensors)
        # Several files even on one rank: finish() commits.
        running = writer.save(
            save.step, items, tree, None, save.rank, max(save.ranks, 2), save.save_id, None
        )
        self._open = writer, running  # its lock shows that the save lives, until finish()
        copy(running, items)
        finish(running)
        part: bytes = running.part()
        if save.rank != 0:
            self._close()
        return part

    def _close(self) -> None:
        if self._open is not None:
            writer, running = self._open
            self._open = None
            running.close()
            writer.close()

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        saves = {rank: result[0].storage_data for rank, result in enumerate(results) if result}
        if self._save is None or self._open is None:
            raise ArgumentError("nothing was written", "finish", "call write_data() first")
        saves.setdefault(self._save.rank, self._save)
        parts = [saves[rank].part for rank in sorted(saves)]
        try:
            self._open[0].commit(
                self._save.step, None, len(parts), self._save.save_id, b"".join(parts)
            )
        finally:
            self._close()
        self._remove_before(self._save.step)

    def _remove_before(self, step: int) -> None:
        """Removes the save that this one replaces; never what others stored in this place."""
        before = [
            number
            for number, status, pinned, *_ in self._steps()
            if number < step and status == _COMMITTED and not pinned
        ]
        if before and self._is_own(before[-1]):
            _stoker.checkpoint_remove(self._engine(), self._path, before[-1])

    def _is_own(self, step: int) -> bool:
        """Whether a step is one of torch.distributed.checkpoint, and not damaged."""
        try:
            checkpoint = _stoker.Checkpoint(self._engine(), self._path, step)
        except (CorruptError, FormatError, MissingError, TruncatedError, FileNotFoundError):
            return False
        try:
            ranks = checkpoint.info()[4]  # behind their files are those that steps share
            trees = [tree for _, tree, _, _ in checkpoint.files()[:ranks]]
            return all(tree and tree.startswith(_TREE) for tree in trees)
        finally:
            checkpoint.close()


def _is_part(data: Any) -> bool:
    return tuple(data.chunk.sizes) != tuple(data.size)


class StorageReader(_Place, _Reader):
    """Reads checkpoints of :class:`StorageWriter`, on any number of ranks.

    Can be pickled, and opens nothing before it reads.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        _Place.__init__(self, path)
        self._forget()

    def __getstate__(self) -> dict[str, Any]:
        return {"_path": self._path}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._path = state["_path"]
        self._forget()

    def _forget(self) -> None:
        self._reader: Any = None
        self._places: dict[tuple[str, tuple[int, ...]], str] = {}
        self._objects: dict[str, Any] = {}

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        _Place.reset(self, checkpoint_id)
        self._forget()

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        self._forget()
        self._reader = Reader(engine_of(None, "engine"), self._path, None)
        entries: dict[str, Any] = {}
        planner: dict[str, tuple[Any, ...]] = {}
        for name, tree, _, _ in self._reader.checkpoint.files()[: self._reader.ranks]:
            part = json.loads(tree)["dcp"] if tree and tree.startswith(_TREE) else None
            if part is None:
                raise FormatError(
                    "this is not a checkpoint of torch.distributed.checkpoint",
                    f"'{name}'",
                    "read it with stoker.load(), or a Checkpointer",
                )
            for row in part["tensors"]:
                self._add(entries, row)
            for fqn, node in part["objects"].items():
                entries[fqn] = BytesStorageMetadata()
                self._objects[fqn] = node
            planner.update((fqn, tuple(path)) for fqn, path in part["planner"].items())
        return Metadata(state_dict_metadata=entries, planner_data=planner or None)

    def _add(self, entries: dict[str, Any], row: list[Any]) -> None:
        fqn, name, dtype, size, offsets, sizes, requires_grad = row
        entry = entries.get(fqn)
        if entry is None:
            properties = TensorProperties(
                dtype=getattr(torch, dtype), requires_grad=requires_grad
            )
            entry = entries[fqn] = TensorStorageMetadata(properties, torch.Size(size), [])
        entry.chunks.append(ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes)))
        self._places[fqn, tuple(offsets)] = name

    def set_up_storage_reader(
        self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        if self._reader is None:
            self.read_metadata()

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        waiting: list[tuple[Any, Any, Any]] = []  # (item, target, part that was read)
        ranges: list[tuple[int, int, int, int]] = []
        held = 0
        for item in plan.items:
            if item.type == LoadItemType.BYTE_IO:
                planner.load_bytes(item, self._object(item.storage_index.fqn))
                continue
            target = planner.resolve_tensor(item).detach()
            part, span = self._range(item, target)
            ranges.append(span)
            waiting.append((item, target, part))
            held += 0 if part is target else span[2]
            if held >= _PIECE:
                self._read(planner, waiting, ranges)
                held = 0
        self._read(planner, waiting, ranges)
        return _done(None)

    def _range(self, item: Any, target: Any) -> tuple[Any, tuple[int, int, int, int]]:
        """What Reader.rows() returns for an item of a plan."""
        index: MetadataIndex = item.storage_index
        offsets = tuple(index.offset) if index.offset is not None else None
        key = (index.fqn, offsets if offsets is not None else (0,) * len(item.lengths))
        if key not in self._places:
            raise MissingError(
                "a part of a tensor is missing",
                f"'{index.fqn}' at {key[1]}",
                "use another checkpoint",
            )
        return self._reader.rows(
            self._places[key], item.storage_offsets, tuple(item.lengths), target, index.fqn
        )

    def _read(self, planner: LoadPlanner, waiting: list[Any], ranges: list[Any]) -> None:
        self._reader.read(ranges, list(waiting))
        for item, target, part in waiting:
            if part is not target:
                target.copy_(part)
            planner.commit_tensor(item, target)
        waiting.clear()
        ranges.clear()

    def _object(self, fqn: str) -> io.BytesIO:
        """The planner wants what torch.save() writes: it is made here, in memory, of data."""
        stream = io.BytesIO()
        node = self._objects[fqn]
        if isinstance(node, dict) and _STREAM in node:
            torch.save(io.BytesIO(self._reader.decode(node[_STREAM])), stream)
        else:
            torch.save(self._reader.decode(node), stream)
        stream.seek(0)
        return stream
