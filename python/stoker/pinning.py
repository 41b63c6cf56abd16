"""Pinned memory: a thread that copies one batch ahead of the training loop."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

__all__ = ["Item", "Pinner", "pin"]


def pin(value: Any) -> Any:
    """Copies tensors to pinned memory; dicts, tuples and lists keep their structure."""
    if isinstance(value, dict):
        return {name: pin(item) for name, item in value.items()}
    if isinstance(value, tuple):
        return tuple(pin(item) for item in value)
    if hasattr(value, "pin_memory"):
        return value.pin_memory()
    return value


Item = tuple[Any, Any, Any]  # value, mask, position; or an exception instead of the value


class Pinner:
    """A thread that prefetches one batch into pinned memory.

    It has no reference to the loader or the iterator, so both can be freed while it works.
    """

    def __init__(self, produce: Callable[[], Item]) -> None:
        self._ready: queue.Queue[Item] = queue.Queue(maxsize=1)
        self._stopped = threading.Event()
        self._thread = threading.Thread(
            target=self._work,
            args=(produce, self._ready, self._stopped),
            daemon=True,
            name="stoker-pin",
        )
        self._thread.start()

    @staticmethod
    def _work(
        produce: Callable[[], Item], ready: queue.Queue[Item], stopped: threading.Event
    ) -> None:
        while not stopped.is_set():
            try:
                item = produce()
            except BaseException as error:  # raised again in the loop's thread
                item = (error, None, None)
            last = item[0] is None or isinstance(item[0], BaseException)
            while not stopped.is_set():
                try:
                    ready.put(item, timeout=0.05)
                    break
                except queue.Full:
                    continue
            del item
            if last:
                return

    def take(self) -> Item:
        """The next item. The stream ends after an exception, or None."""
        return self._ready.get()

    def stop(self) -> None:
        """Stops the thread, within the longest wait of a native call."""
        self._stopped.set()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout=5.0)
