"""Checkpoints of Lightning: hashed, atomic, written in the background, without pickle.

::

    trainer = lightning.Trainer(plugins=[stoker.lightning.CheckpointIO()],
                                callbacks=[ModelCheckpoint("s3://bucket/run7", save_last=True)])
    trainer.fit(model, ckpt_path="last")

Each checkpoint is one safetensors file at the path that Lightning chooses. A save returns when the
tensors are copied; threads of the library hash and write them. ``stoker.load(path)`` and ``stoker
ckpt inspect`` read it; ``stoker ckpt convert x.ckpt y.pt --to torch`` makes the file that
``LightningModule.load_from_checkpoint`` reads.

This module needs Lightning when a ``CheckpointIO`` is made, not before.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from . import _stoker, files
from ._options import count, parse_bytes, path_of, require
from .checkpoint_file import begin, load, split
from .checkpoint_pieces import Pins
from .checkpoint_reader import finish
from .engine import engine_of

__all__ = ["CheckpointIO"]


class CheckpointIO:
    """The plugin of Lightning that writes and reads checkpoints.

    Parameters:
        wait: a save returns when its file is complete, not when the tensors are copied.
        memory: for bytes that are not written yet; a larger state is copied in waves. Default: a
            quarter of the memory that this process may use.
        threads: that hash and write; default one a core, at most 8.
        bandwidth: bytes a second, at most; None: no limit.
        cpu_percent: CPU time of these threads, in percent of all cores of this process; None: no
            limit.

    Lightning calls it on rank 0. An error of a save in the background is raised by the next call,
    and by ``teardown()``, which waits for the save. A file that Lightning replaces by a newer one
    is removed when the newer one is complete. Values that would need pickle, such as
    hyperparameters that are objects, are an ArgumentError with their path.

    Loads also read what ``torch.save`` wrote, without unpickling: a run can be continued from
    earlier checkpoints of Lightning, if they contain only tensors, numbers and text.
    """

    def __init__(
        self,
        *,
        wait: bool = False,
        memory: int | str | None = None,
        threads: int | None = None,
        bandwidth: int | str | None = None,
        cpu_percent: int | None = None,
    ) -> None:
        _register()
        self._wait = wait
        self._options = (
            parse_bytes(memory, "memory"),
            count(threads, "threads", high=64),
            parse_bytes(bandwidth, "bandwidth"),
            count(cpu_percent, "cpu_percent", low=1, high=100),
        )
        self._forget()

    def _forget(self) -> None:
        self._process = os.getpid()
        self._root: bytes | None = None
        self._writer: Any = None
        self._pins = Pins()
        self._thread: ThreadPoolExecutor | None = None
        self._jobs: list[Future[None]] = []

    def __getstate__(self) -> dict[str, Any]:
        return {"_wait": self._wait, "_options": self._options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        _register()
        self.__dict__.update(state)
        self._forget()

    def save_checkpoint(self, checkpoint: Any, path: Any, storage_options: Any = None) -> None:
        """Writes a checkpoint; returns when its tensors are copied. Replaces an older file."""
        self._complete()
        root, name = split(path)
        running = begin(self._open(root), checkpoint, name, self._pins)

        def write() -> None:
            try:
                finish(running)
            finally:
                running.close()

        self._later(write)
        if self._wait:
            self._complete()

    def _open(self, root: bytes) -> Any:
        """The writer of a folder."""
        if self._root != root:
            self._close()
            engine = engine_of(None, "engine")._native
            self._writer = _stoker.CheckpointWriter(engine, root, *self._options)
            self._root = root
        return self._writer

    def _close(self) -> None:
        if self._writer is not None:
            self._pins.close()
            self._writer.close()
            self._writer = self._root = None

    def _later(self, job: Callable[[], None]) -> None:
        """Runs jobs one after the other; after one that failed, none."""
        before = self._jobs[-1] if self._jobs else None

        def run() -> None:
            if before is None or before.exception() is None:
                job()

        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "stoker-save")
        self._jobs.append(self._thread.submit(run))

    def _complete(self) -> None:
        """Waits for the jobs, and raises the error of one."""
        if self._process != os.getpid():  # the threads of a parent do not exist after a fork
            self._forget()
        jobs, self._jobs = self._jobs, []
        for job in jobs:
            job.exception()
        for job in jobs:
            job.result()

    def load_checkpoint(
        self, path: Any, map_location: Any = None, weights_only: bool | None = None
    ) -> Any:
        """Reads a checkpoint, and verifies all hashes. Nothing is unpickled."""
        self._complete()
        found = load(path)
        return found if map_location is None else _moved(found, map_location)

    def remove_checkpoint(self, path: Any) -> None:
        """Removes a checkpoint, when all saves that began before are complete."""
        name = os.fsdecode(path_of(path, "path"))
        self._later(lambda: _remove(name))
        if self._wait:
            self._complete()

    def teardown(self) -> None:
        """Waits for the last save, and raises its error."""
        try:
            self._complete()
        finally:
            self._close()
            if self._thread is not None:
                self._thread.shutdown()
                self._thread = None


def _register() -> None:
    """Lightning accepts the plugin as one of its own: its two packages have one class each."""
    modules = [name for name in ("lightning", "lightning_fabric") if name in sys.modules]
    for name in modules or ["lightning"]:
        where = "stoker.lightning.CheckpointIO"
        module = require(f"{name}.fabric" if name == "lightning" else name, "lightning", where)
        module.plugins.CheckpointIO.register(CheckpointIO)


def _remove(name: str) -> None:
    if "://" in name:
        files.rm(name)
    elif os.path.isdir(name) and not os.path.islink(name):  # of another plugin
        shutil.rmtree(name)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.remove(name)


def _moved(value: Any, where: Any) -> Any:
    """Moves tensors to the device of ``map_location``, as torch.load() understands it."""
    if isinstance(value, dict):
        return {key: _moved(item, where) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)([_moved(item, where) for item in value])
    if not hasattr(value, "untyped_storage"):
        return value
    if callable(where):
        storage = where(value.untyped_storage(), "cpu")
        return value if storage is None else value.to(storage.device)
    return value.to(where.get("cpu", "cpu") if isinstance(where, dict) else where)
