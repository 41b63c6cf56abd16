"""Emergency steps: a signal or the notice of a spot instance has the state saved."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

from .errors import ArgumentError

__all__ = ["SignalWatch", "notice_of"]

Make = Callable[[], "tuple[Any, ...] | None"]
_POLL_S = 5.0
_REQUEST_S = 2.0


class SignalWatch:
    """Handles signals for a Checkpointer until its emergency step is committed.

    ``emergency(step, state, metrics, until)`` commits a step, or raises. ``make``: a function that
    returns step and state when the handler runs; None: the training loop calls :meth:`reached`.
    ``busy()``: whether the main thread is inside a save now.
    """

    def __init__(
        self,
        emergency: Callable[[int, Any, Any, float], None],
        busy: Callable[[], bool],
        ranks: Any,
        make: Make | None,
        signals: Iterable[int],
        deadline: float,
        notice: Callable[[], bool] | None,
    ) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise ArgumentError(
                "signals are handled by the main thread", "save_on_signal", "call it there"
            )
        self._emergency, self._busy, self._make = emergency, busy, make
        self._deadline = deadline
        self._process = os.getpid()
        self._received: float | None = None  # when
        self._signal = signal.Signals(next(iter(signals), signal.SIGTERM))
        self._begun = threading.Event()  # the emergency save, or the end of this watch
        self._expired = self._deferred = self._saved = False
        self._agreement = None if ranks is None else _Agreement(ranks)
        self._old: dict[int, Any] = {}
        for number in signals:
            if signal.getsignal(number) is None:
                self.close()
                raise ArgumentError(
                    "the handler was not set by Python, so that it cannot be called afterwards",
                    f"signal {number}",
                    "call save_on_signal() before the other handler is set",
                )
            self._old[number] = signal.signal(number, self._handle)
        if notice is not None:
            threading.Thread(
                target=self._poll, args=(notice,), name="stoker-notice", daemon=True
            ).start()

    def close(self) -> None:
        """Sets the old handlers again, unless others were set meanwhile."""
        self._begun.set()
        if threading.current_thread() is not threading.main_thread():
            return
        for number, old in self._old.items():
            if signal.getsignal(number) == self._handle:
                signal.signal(number, old)

    # ---- a signal ----

    def _handle(self, number: int, frame: Any) -> None:
        if os.getpid() != self._process:
            self._chain(number, frame)  # a child after a fork
            return
        if self._begun.is_set():
            return  # the emergency save is running
        if self._expired:
            warnings.warn(
                "no emergency step was saved: the training loop did not call stopping() within "
                f"{self._deadline:g} s after signal {number}",
                RuntimeWarning,
                stacklevel=2,
            )
            self._chain(number, frame)
            return
        self._receive(number)
        if self._make is not None:
            if self._busy():
                self._deferred = True
            else:
                self._save(frame)

    def _receive(self, number: int) -> None:
        if self._received is None:
            self._received, self._signal = time.monotonic(), signal.Signals(number)
            threading.Thread(target=self._expire, name="stoker-deadline", daemon=True).start()

    def _expire(self) -> None:
        """After the deadline the old handler is called, though no step was saved."""
        if not self._begun.wait(self._deadline):
            self._expired = True
            self._wake()

    def _wake(self) -> None:
        """Makes the main thread call the handler."""
        ident = threading.main_thread().ident
        if ident is not None:
            with contextlib.suppress(OSError):
                signal.pthread_kill(ident, self._signal)

    def _poll(self, notice: Callable[[], bool]) -> None:
        warned = False
        while not self._begun.is_set():
            noticed = False
            try:
                noticed = notice()
            except Exception as error:
                if not warned:
                    warned = True
                    warnings.warn(
                        f"the notice of a spot instance cannot be read; it is requested again: "
                        f"{error}",
                        RuntimeWarning,
                        stacklevel=1,
                    )
            if noticed and self._make is not None:
                self._wake()
                return
            if noticed:
                self._receive(self._signal)
                return
            self._begun.wait(_POLL_S)

    def _chain(self, number: int, frame: Any) -> None:
        self.close()
        old = self._old.get(number)
        if callable(old):
            old(number, frame)
        elif old == signal.SIG_DFL:
            if signal.getsignal(number) == self._handle:
                signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    # ---- the save ----

    def _until(self) -> float:
        return (self._received or time.monotonic()) + self._deadline

    def _save(self, frame: Any) -> None:
        """In the handler: saves what the function of the user returns, then chains."""
        assert self._make is not None
        until = self._until()
        self._begun.set()
        try:
            made = self._make()
            if made is not None:
                step, state, *more = made
                self._emergency(step, state, more[0] if more else None, until)
        except Exception as error:
            warnings.warn(
                f"no emergency step was saved after signal {int(self._signal)}: {error}",
                RuntimeWarning,
                stacklevel=3,
            )
        self._chain(self._signal, frame)

    def run_deferred(self) -> None:
        """After a save: handles a signal that came during it."""
        if self._deferred and not self._begun.is_set():
            self._deferred = False
            self._save(None)

    def reached(self, step: int, state: Any, metrics: Any) -> bool:
        """At the end of a step: saves it if a signal came, on all ranks."""
        if self._saved:
            return True
        received = self._received is not None
        if self._agreement is not None:
            received = self._agreement.any(received)
        if not received or self._expired:
            return False
        mine = self._received is not None
        until = self._until()
        self._begun.set()
        self._saved = True
        try:
            self._emergency(step, state, metrics, until)
        finally:
            self.close()
        old = self._old.get(self._signal)
        if mine and callable(old):
            old(int(self._signal), None)
        return True


class _Agreement:
    """Whether a rank received a signal: all ranks get the same answer at the same step.

    The answer at a step is that of the step before, so that no rank waits for the network.
    """

    def __init__(self, ranks: Any) -> None:
        self._ranks = ranks
        self._group = ranks.new_group()
        self._before: tuple[Any, Any] | None = None

    def any(self, mine: bool) -> bool:
        import torch

        before = self._before
        flag = torch.tensor([int(mine)], dtype=torch.int32)
        dist = self._ranks.dist
        work = self._ranks.run(
            "exchanged signals",
            lambda: dist.all_reduce(flag, dist.ReduceOp.MAX, group=self._group, async_op=True),
        )
        self._before = work, flag
        if before is None:
            return False
        self._ranks.run("exchanged signals", before[0].wait)
        return bool(before[1].item())


# ---- notices of spot instances ----


def notice_of(notice: Any) -> Callable[[], bool] | None:
    """A function that tells whether this instance will be taken away."""
    if notice is None or callable(notice):
        return notice
    if notice in _SERVICES:
        return _SERVICES[notice]
    raise ArgumentError(
        f"unknown value {notice!r}",
        "notice",
        "pass 'ec2', 'gce', 'azure', or a function that returns whether there is a notice",
    )


def _get(url: str, headers: dict[str, str], method: str = "GET") -> bytes | None:
    """The answer of a metadata service, without a proxy; None: 404."""
    import urllib.error  # here: the modules of HTTP and TLS take a third of the import of stoker
    import urllib.request

    request = urllib.request.Request(url, headers=headers, method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_REQUEST_S) as answer:
            return bytes(answer.read(1 << 20))
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise


def _ec2() -> bool:
    base = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://169.254.169.254").rstrip("/")
    ttl = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    token = _get(f"{base}/latest/api/token", ttl, "PUT") or b""
    headers = {"X-aws-ec2-metadata-token": token.decode()}
    return _get(f"{base}/latest/meta-data/spot/instance-action", headers) is not None


def _gce() -> bool:
    host = os.environ.get("GCE_METADATA_HOST", "metadata.google.internal")
    url = f"http://{host}/computeMetadata/v1/instance/preempted"
    return _get(url, {"Metadata-Flavor": "Google"}) == b"TRUE"


def _azure() -> bool:
    host = os.environ.get("AZURE_METADATA_HOST", "169.254.169.254")
    url = f"http://{host}/metadata/scheduledevents?api-version=2020-07-01"
    events = json.loads(_get(url, {"Metadata": "true"}) or b"{}").get("Events", [])
    return any(event.get("EventType") == "Preempt" for event in events)


_SERVICES = {"ec2": _ec2, "gce": _gce, "azure": _azure}
