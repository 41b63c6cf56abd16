"""A save in the background: its handle, and the thread that waits for it."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import warnings
from typing import Any

from . import checkpoint_ranks
from .checkpoint_reader import finish
from .errors import ForkedError, TimeoutError

__all__ = ["Commit", "Save", "run", "unfinished"]


class Save:
    """A save that was started. Any thread may use it."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.skipped = False
        """Another save was running, and ``on_busy`` is ``"skip"``."""
        self._process = os.getpid()
        self._done = threading.Event()
        self._error: BaseException | None = None
        self._reported = False
        self._progress = (0, 0)
        self.nan = 0
        """Values of this rank that are NaN, in all tensors; 0 until it ended."""
        self.inf = 0
        """Values of this rank that are infinite."""

    @property
    def done(self) -> bool:
        """Whether it ended: committed, skipped or failed."""
        return self._done.is_set()

    @property
    def error(self) -> BaseException | None:
        """The error of a failed save."""
        return self._error if self.done else None

    @property
    def progress(self) -> tuple[int, int]:
        """Bytes that are written, and all bytes."""
        return self._progress

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until it ended. Returns False after ``timeout`` seconds. Raises its error."""
        if self._process != os.getpid() and not self.done:
            raise ForkedError(
                "the save runs in the process that this one was forked from",
                f"step {self.step}",
                "wait for it there",
            )
        if not self._done.wait(timeout):
            return False
        if self._error is not None:
            self._reported = True
            raise self._error
        return True

    def _end(self, error: BaseException | None = None) -> None:
        self._error = error
        self._done.set()

    def __repr__(self) -> str:
        state = "running" if not self.done else "failed" if self._error else "done"
        return f"<stoker.Save step {self.step}: {state}>"


class Commit:
    """The end of a save of several ranks."""

    def __init__(self, ranks: checkpoint_ranks.Ranks, writer: Any) -> None:
        self.ranks, self.writer = ranks, writer
        self.step = checkpoint_ranks.NO_STEP
        self.values: str | None = None
        self.save_id = ranks.next_id()
        self.digest = b"\0" * 32
        self.save: Any = None

    def __call__(self, failure: BaseException | None) -> None:
        part = b""
        if failure is None:
            try:
                part = self.save.part()
            except BaseException as error:  # the other ranks wait for this one
                failure = error
        self.ranks.commit(self.step, self.save_id, part, self.digest, failure, self._commit)

    def _commit(self, parts: bytes) -> None:
        self.writer.commit(self.step, self.values, self.ranks.count, self.save_id, parts)


def run(owner: Any, handle: Save, save: Any, commit: Any) -> None:
    """Waits for a save; the library works without the GIL."""
    failure: BaseException | None = None
    try:
        finish(save, handle)
    except BaseException as error:
        failure = error
    if commit is not None:
        try:
            commit(failure)
        except BaseException as error:
            failure = failure or error
    if failure is None:
        try:
            owner._retain(handle.step)
        except BaseException as error:
            failure = error
    with contextlib.suppress(Exception):
        save.close()
    handle._error = failure
    owner._ended(handle, failure)
    handle._end(failure)


# Checkpointers with running saves, or with failed ones that were not reported: referenced until the
# end of the process.
unfinished: set[Any] = set()


@atexit.register
def _finish_all() -> None:
    """Completes running saves at the end of the process, and warns of those that failed."""
    for checkpointer in list(unfinished):
        if checkpointer._process != os.getpid():
            continue  # the threads of a parent do not exist after a fork
        checkpointer._wait_for_running()
        if checkpointer._tier is not None:
            with contextlib.suppress(TimeoutError):  # the next process goes on with the upload
                checkpointer._tier.end(checkpointer._timeout)
        for handle in checkpointer._failed:
            if not handle._reported:
                warnings.warn(
                    f"the save of step {handle.step} failed: {handle._error}",
                    RuntimeWarning,
                    stacklevel=1,
                )
