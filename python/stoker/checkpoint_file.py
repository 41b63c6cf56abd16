"""Single files: a tree of tensors, numbers and text as one safetensors file."""

from __future__ import annotations

import os
from typing import Any

from . import _stoker, checkpoint_tree
from ._options import count, path_of
from .checkpoint_pieces import Pins
from .checkpoint_reader import Reader, copy, finish
from .checkpoint_state import like_of
from .engine import Engine, engine_of
from .errors import ArgumentError

__all__ = ["begin", "load", "save", "split"]


def split(path: str | os.PathLike[str]) -> tuple[bytes, str]:
    """The folder and the name of a single file."""
    text = os.fsdecode(path_of(path, "path"))
    folder, _, name = text.rpartition("/")
    if not name.endswith((".safetensors", ".ckpt")):
        raise ArgumentError("the name is not valid", f"'{text}'", "end it with .safetensors")
    return os.fsencode(folder or ("/" if text.startswith("/") else ".")), name


def save(tree: Any, path: str | os.PathLike[str], *, engine: Engine | None = None) -> None:
    """Writes a tree of tensors, numbers and text as one safetensors file, atomic and hashed.

    ``path``: a path or URL that ends in ``.safetensors`` or ``.ckpt``. An existing file is
    replaced. Any reader of safetensors reads its tensors; :func:`load` restores the tree.
    """
    root, name = split(path)
    writer = _stoker.CheckpointWriter(engine_of(engine, "engine")._native, root)
    try:
        running = begin(writer, tree, name)
        try:
            finish(running)
        finally:
            running.close()
    finally:
        writer.close()


def begin(writer: Any, tree: Any, name: str, pins: Pins | None = None) -> Any:
    """Starts the save of a single file, and copies its tensors.

    Returns the native save, which the caller passes to finish() and closes.
    """
    encoded, tensors, _ = checkpoint_tree.encode(tree)
    items = checkpoint_tree.SaveTensors(tensors)
    running = writer.save(0, items, encoded, None, 0, 1, None, name)
    try:
        copy(running, items, pins)
    except BaseException:
        running.close()
        raise
    return running


def load(
    path: str | os.PathLike[str],
    *,
    like: Any = None,
    step: int | None = None,
    engine: Engine | None = None,
) -> Any:
    """Reads what :func:`save` or a :class:`Checkpointer` wrote, and verifies its hashes.

    ``path``: a ``.safetensors`` file, a step, or a folder of steps (the newest one, or ``step``).
    Also reads, without unpickling, files of ``torch.save`` and folders of
    ``torch.distributed.checkpoint`` (their tree), and safetensors files and sharded models of other
    tools (a dict of tensors). ``like``: a tree whose tensors are filled in place;
    another shape or dtype is a StateError.
    """
    reader = Reader(
        engine_of(engine, "engine"),
        path_of(path, "path"),
        None if step is None else count(step, "step", high=2**53 - 1),
    )
    try:
        return reader.decode(reader.tree(), None if like is None else like_of(like))
    finally:
        reader.close()
