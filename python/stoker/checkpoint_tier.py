"""A local tier: steps are committed in a fast folder, and uploaded in the background."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

from . import _stoker, files
from .checkpoint_reader import DAMAGE, is_damage, verify
from .errors import (
    ArgumentError,
    Error,
    TimeoutError,
    UnsupportedError,
)
from .notices import StokerWarning

__all__ = ["Tier"]

_COMMITTED = 1
_MANIFEST = "stoker.checkpoint.json"
_NAME = 80  # bytes of a name in struct stoker_checkpoint_part


class _StoppedError(Exception):
    """The upload was stopped by the process itself."""


class Tier:
    """Uploads the steps of a local folder to the main place, one at a time, the newest first.

    Each step is verified before it is uploaded, and committed as a save commits it: it exists in
    the main place completely or not at all. Steps that wait while a newer one is saved are left
    out, unless they are multiples of ``always``. One rank uploads; the others only read.
    """

    def __init__(
        self,
        engine: Any,
        local: bytes,
        main: bytes,
        *,
        keep_last: int,
        every: int,
        always: int,
        bandwidth: int,
        uploaded: Callable[[], None],
        failed: Callable[[int, BaseException], None],
    ) -> None:
        self._engine, self.local, self.main = engine, local, main
        self._keep_last, self._every, self._always = keep_last, every, always
        self._bandwidth = bandwidth
        self._uploaded, self._failed = uploaded, failed
        self._changed = threading.Condition()
        self._waiting: list[int] = []
        self._current: int | None = None
        self._stopping = self._slow = False
        self._urgent: int | None = None  # the step that goes first, without a limit
        self._failure: tuple[int, BaseException] | None = None
        self._progress = (0, 0)
        self.newest: int | None = None  # committed step in both places, when they were listed

    def open(self, ranks: Any) -> None:
        """Checks that the ranks share the folder, and goes on with what a killed process left."""
        if ranks is None:
            self._resume()
            return
        name = os.path.join(os.fsdecode(self.local), f".stoker-shared-{ranks.nonce}")
        failure: BaseException | None = None
        try:
            if ranks.rank == 0:
                os.makedirs(self.local, exist_ok=True)
                with open(name, "wb"):
                    pass
        except OSError as error:
            failure = error
        ranks.check(failure)
        if not os.path.exists(name):
            failure = ArgumentError(
                f"rank {ranks.rank} does not see the local folder of rank 0",
                f"local='{os.fsdecode(self.local)}'",
                "the ranks of several machines have no local folder in common: leave local out",
            )
        try:
            ranks.check(failure)
        finally:
            if ranks.rank == 0:
                os.unlink(name)
        if ranks.rank == 0:
            self._resume()

    # ---- uploads ----

    def _resume(self) -> None:
        """Queues the newest local step, if the main place has no newer one."""
        local, main = self._committed(self.local), self._committed(self.main)
        self.newest = max(local + main, default=-1)
        if local and local[-1] > max(main, default=-1):
            self.saved(local[-1])

    def saved(self, step: int) -> None:
        """Queues a step that was committed in the local folder, and applies its retention."""
        if self._every == 0 or step % self._every == 0:
            with self._changed:
                self._waiting = [each for each in self._waiting if self._is_always(each)] + [step]
                self._start()
        self.retain()

    def _is_always(self, step: int) -> bool:
        return self._always > 0 and step % self._always == 0

    def _start(self) -> None:
        if self._current is None and self._waiting and not self._stopping:
            self._current = self._waiting.pop()
            threading.Thread(target=self._run, name="stoker-upload", daemon=True).start()

    def _run(self) -> None:
        while True:
            with self._changed:
                step = self._current
                assert step is not None
                self._progress = (0, 0)
            failure: BaseException | None = None
            try:
                self._upload(step)
            except BaseException as error:
                failure = error
                error.add_note(f"step {step} was not uploaded; it is in the local folder")
            try:
                if failure is None:
                    self._uploaded()
            except BaseException as error:
                failure = error
            if failure is not None and not isinstance(failure, _StoppedError):
                self._failure = step, failure
                self._failed(step, failure)
            with contextlib.suppress(Error, OSError):  # retention is tried after each save
                self.retain()
            with self._changed:
                stopped = isinstance(failure, _StoppedError)
                if stopped and not self._stopping:
                    self._waiting.insert(0, step)
                self._current = None
                self._changed.notify_all()
                if self._stopping or not self._waiting:
                    return
                self._current = self._waiting.pop()

    def _check(self, report: Any = None) -> None:
        if report is not None:
            self._progress = (report.bytes_done, report.bytes)
        urgent = self._urgent
        if self._stopping or (urgent is not None and (self._current != urgent or self._slow)):
            raise _StoppedError

    def _upload(self, step: int) -> None:
        """Copies a verified step, and commits it."""
        name = f"step-{step:010}"
        folder = os.path.join(os.fsdecode(self.local), name)
        manifest = _manifest(folder)
        self._verify(step)
        save_id = manifest["root"][:24]
        remote = b"://" in self.main
        counts = manifest.get("counts", {})
        most = 2**32 - 1
        numbers = [min(int(counts.get(name, 0)), most) for name in ("nan", "inf")]
        sent = []
        if not remote:
            _make_folder(os.fsdecode(self.main))
        for number, file in enumerate(manifest["files"]):
            there, into = file["name"], name
            if remote:  # as saves call objects: no two saves share a name
                there = f"shard-{number:05}-{save_id}.safetensors"
            else:
                into = f".stoker-{step:010}-{save_id}.part"
            self._copy(os.path.join(folder, file["name"]), into, there)
            named = there.encode().ljust(_NAME, b"\0")
            sent.append((named, int(file["bytes"]).to_bytes(8, "little"), file["root"]))
        ranks = manifest["ranks"]
        parts = b""
        for rank, (named, size, root) in enumerate(sent[:ranks]):
            parts += named + size + bytes.fromhex(root)
            parts += b"".join((n if rank == 0 else 0).to_bytes(4, "little") for n in numbers)
            unchanged = sent[ranks + rank : ranks + rank + 1]  # the files that steps share
            named, size, root = unchanged[0] if unchanged else (bytes(_NAME), bytes(8), "00" * 32)
            parts += size + bytes.fromhex(root) + named + bytes(8)  # number of tensors: unknown
        values = json.dumps(manifest["values"]) if manifest.get("values") else None
        writer = _stoker.CheckpointWriter(self._engine._native, self.main)
        try:
            writer.commit(step, values, ranks, save_id, parts)
        except FileExistsError:
            roots = [bytes.fromhex(file["root"]) for file in manifest["files"]]
            if self._roots(self.main, step) != roots:
                raise
        finally:
            writer.close()

    def _copy(self, source: str, folder: str, name: str) -> None:
        self._slow = self._bandwidth > 0 and self._urgent is None
        self._check()
        target = b"/".join([self.main.rstrip(b"/"), folder.encode(), name.encode()])
        limits = {"bytes_per_second_max": self._bandwidth} if self._slow else {}
        native = self._engine._native
        files.run(native, _stoker.COPY, [os.fsencode(source)], target, self._check, **limits)

    def _verify(self, step: int) -> None:
        """Reads a local step, and compares all its hashes."""
        checkpoint = _stoker.Checkpoint(self._engine._native, self.local, step)
        try:
            verify(checkpoint)
        finally:
            checkpoint.close()

    # ---- waits ----

    @property
    def pending(self) -> list[int]:
        """Steps that are being uploaded, or wait for it."""
        with self._changed:
            return self._waiting + ([] if self._current is None else [self._current])

    def wait(self, timeout: float) -> None:
        """Waits until no upload waits or runs. Raises TimeoutError."""
        until = time.monotonic() + timeout
        with self._changed:
            while self._current is not None or self._waiting:
                left = until - time.monotonic()
                if left <= 0:
                    self._late(timeout)
                self._changed.wait(min(left, 1.0))

    def _late(self, timeout: float) -> None:
        done, total = self._progress
        step = self._current if self._current is not None else self._waiting[-1]
        raise TimeoutError(
            f"the upload of step {step} did not end within {timeout:g} s: {done} of {total} bytes "
            f"were sent",
            f"'{os.fsdecode(self.main)}'",
            f"the step is complete in '{os.fsdecode(self.local)}', and the next Checkpointer with "
            "these places uploads it; allow more time or bandwidth",
        )

    def flush(self, step: int, until: float) -> None:
        """Uploads a step before all others, without the limit of bandwidth, before a deadline."""
        with self._changed:
            self._urgent = step
            if self._current != step:
                self._waiting = [each for each in self._waiting if each != step] + [step]
                self._start()
        try:
            timeout = max(0.0, until - time.monotonic())
            with self._changed:
                while step == self._current or step in self._waiting:
                    if time.monotonic() >= until:
                        self._late(timeout)
                    self._changed.wait(min(max(0.0, until - time.monotonic()), 1.0))
                if self._failure is not None and self._failure[0] == step:
                    raise self._failure[1]
        finally:
            self._urgent = None

    def flush_all(self, step: int, until: float, ranks: Any) -> None:
        """As flush(); all ranks wait for the one that uploads."""
        failure: BaseException | None = None
        if ranks is None or ranks.rank == 0:
            try:
                self.flush(step, until)
            except BaseException as error:
                if ranks is None:
                    raise
                failure = error
        if ranks is not None:
            ranks.check(failure)

    def end(self, timeout: float) -> None:
        """Waits for the uploads, and stops them after the timeout."""
        try:
            self.wait(timeout)
        finally:
            self.stop()

    def stop(self) -> None:
        """Stops uploads; what they sent is used again by the next ones."""
        with self._changed:
            self._stopping = True
            self._waiting.clear()
            while self._current is not None:
                self._changed.wait(1.0)

    # ---- both places ----

    def retain(self) -> None:
        """Removes local steps that are neither of the newest, nor to be uploaded, nor pinned."""
        if self._keep_last == 0:
            return
        committed = [found for found in self._list(self.local) if found[1] == _COMMITTED]
        pending = self.pending
        for step, _, pinned, *_ in committed[: -self._keep_last]:
            if not pinned and step not in pending:
                _stoker.checkpoint_remove(self._engine._native, self.local, step)
        # What dead saves left.
        _stoker.checkpoint_gc(self._engine._native, self.local, 0, 0, None, 0, False, False)

    def complete(self, step: int) -> None:
        """Copies files that a local step lacks, or that have another length, from the main place.
        A load verifies their hashes."""
        folder = os.path.join(os.fsdecode(self.local), f"step-{step:010}")
        if not os.path.isdir(folder):
            return
        try:
            manifest = _manifest(folder)
            lost = [
                number
                for number, file in enumerate(manifest["files"])
                if _size(os.path.join(folder, file["name"])) != file["bytes"]
            ]
            if not lost:
                return
            checkpoint = _stoker.Checkpoint(self._engine._native, self.main, step)
            try:
                there = [(name, root) for name, _, _, root in checkpoint.files()]
                place = os.fsencode(checkpoint.info()[1])
            finally:
                checkpoint.close()
            if [root.hex() for _, root in there] != [each["root"] for each in manifest["files"]]:
                return  # another save of this step
            for number in lost:
                name = manifest["files"][number]["name"]
                source = place.rstrip(b"/") + b"/" + os.path.basename(there[number][0]).encode()
                target = os.fsencode(os.path.join(folder, name))
                files.run(self._engine._native, _stoker.COPY, [source], target, lambda _: None)
        except (*DAMAGE, OSError, ValueError, KeyError, TypeError) as error:
            _warn(f"step {step} in '{os.fsdecode(self.local)}' was not completed: {error}")
            return
        names = ", ".join(manifest["files"][number]["name"] for number in lost)
        _warn(
            f"copied {names} of step {step} from the main place to '{folder}', "
            "which lacked them or had other lengths"
        )

    def places(self, step: int) -> tuple[list[bytes], bytes | None]:
        """Where a step is read: the local folder first, unless it has another save of it; and the
        other place, if both have the same files."""
        local = self._roots(self.local, step)
        if local is None:
            return [self.main], None
        main = self._roots(self.main, step)
        if main is None:
            return [self.local], None
        if main == local:
            return [self.local], self.main
        return [self.main, self.local], None

    def _roots(self, place: bytes, step: int) -> list[bytes] | None:
        try:
            checkpoint = _stoker.Checkpoint(self._engine._native, place, step)
        except (*DAMAGE, OSError) as error:
            if not is_damage(error):
                raise
            return None
        try:
            return [root for _, _, _, root in checkpoint.files()]
        finally:
            checkpoint.close()

    def _list(self, place: bytes) -> list[Any]:
        try:
            return list(_stoker.checkpoint_list(self._engine._native, place))
        except FileNotFoundError:
            return []

    def _committed(self, place: bytes) -> list[int]:
        return [found[0] for found in self._list(place) if found[1] == _COMMITTED]


def _warn(text: str) -> None:
    warnings.warn(text, StokerWarning, stacklevel=2)


def _size(path: str) -> int | None:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return None


def _make_folder(path: str) -> None:
    """Makes a folder and its parents, each durable."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(os.path.abspath(path))
    _make_folder(parent)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path)
    descriptor = os.open(parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _manifest(folder: str) -> dict[str, Any]:
    path = os.path.join(folder, _MANIFEST)
    with open(path, encoding="utf-8") as file:
        manifest: dict[str, Any] = json.load(file)
    if any(not {"bytes", "name", "root"} == file.keys() for file in manifest["files"]):
        raise UnsupportedError(
            "the manifest has entries that this version cannot upload",
            f"'{path}'",
            "use the version that wrote it",
        )
    return manifest
