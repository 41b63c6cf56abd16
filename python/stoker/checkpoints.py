"""Saves and restores the state of a training: hashed, atomic, in the background.

::

    ckpt = stoker.Checkpointer("s3://bucket/run7", keep_last=3, keep_every=1000,
                               keep_best=("loss", 2))
    state = {"model": model, "optimizer": optimizer, "loader": loader, "epoch": 0}
    step = ckpt.restore(state) or 0          # in place; None: there is no checkpoint yet
    for step in range(step + 1, 100_000):
        ...
        if step % 500 == 0:
            ckpt.save(step, state, metrics={"loss": loss})   # returns when the tensors are copied
    ckpt.close()                             # waits for the last save, raises its error

docs/checkpoints.md has the format and the guarantees. Nothing is pickled.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any, NamedTuple

from . import _stoker, checkpoint_ranks, checkpoint_tree
from ._options import count, milliseconds, parse_bytes, path_of, refuse_pickle
from .checkpoint_pieces import Pins
from .checkpoint_reader import DAMAGE, MissingKeyError, Reader, copy, is_damage, select
from .checkpoint_run import Commit, Save, run, unfinished
from .checkpoint_signal import SignalWatch, notice_of
from .checkpoint_state import check_metrics, like_of, metrics_of, metrics_text, put, retention
from .checkpoint_tier import Tier
from .engine import Engine, engine_of
from .errors import ArgumentError, EmptyError, Error, ForkedError, MissingError, TimeoutError
from .notices import StokerWarning

__all__ = ["CheckpointStep", "Checkpointer", "Save"]

_STATUS = {1: "committed", 2: "incomplete", 3: "damaged"}


class CheckpointStep(NamedTuple):
    """A step of a :class:`Checkpointer`."""

    step: int
    status: str
    """``"committed"``, ``"incomplete"`` (no manifest) or ``"damaged"``."""
    pinned: bool
    bytes: int
    files: int
    ranks: int
    metrics: dict[str, Any]
    reason: str | None
    """Why it is damaged."""
    nan: int | None = None
    """Values of all tensors that are NaN; None: an earlier version of stoker did not count them."""
    inf: int | None = None
    """Values that are infinite."""


class Checkpointer:
    """Saves and restores steps in a folder or below a URL.

    Parameters:
        path: a folder, which is created, or ``s3://``, ``gs://``, ``az://``.
        keep_last: retention: the newest steps; None: all.
        keep_every: also every step that is a multiple.
        keep_best: also the best steps by a metric: ``("loss", 2)`` for the lowest,
            ``("accuracy", 2, "max")`` for the highest.
        memory: for bytes that are not written yet; a larger state is copied in waves. Default: a
            quarter of the memory that this process may use.
        threads: that hash and write; default one a core, at most 8.
        bandwidth: bytes a second, at most; None: no limit.
        cpu_percent: CPU time of the threads that hash and write, at most, in percent of all cores
            that this process may use; None: no limit.
        on_busy: what a save does while another one runs: ``"wait"``, ``"skip"``, or
            ``"supersede"``, which ends the other one. Several ranks: only ``"wait"``.
        local: a fast folder of this machine: steps are committed there, and uploaded to ``path``
            in the background; all ranks share it. ``bandwidth`` then limits the uploads.
        local_keep_last: the newest steps that stay in ``local``; None: all.
        upload_every: only steps that are a multiple are uploaded; None: all, as far as uploads keep
            up: a step that waits while a newer one is saved is left out, unless it is a multiple of
            ``keep_every``.
        timeout: seconds in which the ranks must answer each other, in which uploads must end after
            :meth:`close`, and in which the file system or store must answer each call of a save:
            else the save fails with a TimeoutError that names the file and what the save does.
        engine: default: that of the process.

    A save returns when its tensors are copied; threads of the library hash and write them without
    the GIL. An error of a save that runs in the background is raised by the next call, and by
    :meth:`Save.wait`. Retention runs when a save is committed; it never removes pinned steps, nor
    the newest one. At the end of the process, running saves are completed.

    With ``torch.distributed``, all ranks make, save, restore and close together, in a place that
    they share. Each rank writes its parts of DTensors; a tensor that all ranks have is written
    once, by one of them; so the state of DDP must be the same on all ranks. Numbers and text are
    those of each rank, if as many ranks restore. A DTensor can be restored with another number of
    ranks or other placements.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        keep_last: int | None = None,
        keep_every: int | None = None,
        keep_best: tuple[str, int] | tuple[str, int, str] | None = None,
        memory: int | str | None = None,
        threads: int | None = None,
        bandwidth: int | str | None = None,
        cpu_percent: int | None = None,
        on_busy: str = "wait",
        local: str | os.PathLike[str] | None = None,
        local_keep_last: int | None = 2,
        upload_every: int | None = None,
        timeout: float = 600,
        engine: Engine | None = None,
    ) -> None:
        if on_busy not in ("wait", "skip", "supersede"):
            raise ArgumentError(
                f"unknown value {on_busy!r}", "on_busy", "pass wait, skip or supersede"
            )
        self._path = path_of(path, "path")
        self._timeout = timeout
        self._engine = engine_of(engine, "engine")
        self._ranks = checkpoint_ranks.Ranks.find(timeout)
        if self._ranks is not None and on_busy != "wait":
            raise ArgumentError(
                "the ranks may disagree on what is busy", "on_busy", "pass 'wait' on several ranks"
            )
        self._keep = retention(keep_last, keep_every, keep_best)
        self._on_busy = on_busy
        self._process = os.getpid()
        self._lock = threading.Lock()  # held during a save
        self._saver = 0  # the thread that holds it
        self._state = threading.RLock()  # of the lists below; a signal handler may hold it again
        rate = parse_bytes(bandwidth, "bandwidth")
        self._limits = (
            rate if local is None else 0,
            count(cpu_percent, "cpu_percent", low=1, high=100),
        )
        self._tier: Tier | None = None
        if local is not None:
            self._tier = Tier(
                self._engine,
                path_of(local, "local"),
                self._path,
                keep_last=count(local_keep_last, "local_keep_last", low=1),
                every=count(upload_every, "upload_every", low=1, high=2**53),
                always=self._keep[1],
                bandwidth=rate,
                uploaded=self._retain_main,
                failed=self._upload_failed,
            )
        self._writer: Any = _stoker.CheckpointWriter(
            self._engine._native,
            self._path if self._tier is None else self._tier.local,
            parse_bytes(memory, "memory"),
            count(threads, "threads", high=64),
            *self._limits,
            milliseconds(min(timeout, 3_000_000), "timeout"),
        )
        self._pins = Pins()
        self._last: Save | None = None
        self._watch: SignalWatch | None = None
        self._running: list[tuple[Save, Any]] = []
        self._failed: list[Save] = []
        self._closed = False
        self._newest: int | None = None  # step that this process knows
        self._warned = False
        if self._tier is not None:
            self._tier.open(self._ranks)
            unfinished.add(self)

    # ---- save ----

    def save(
        self,
        step: int,
        state: Any,
        *,
        metrics: Mapping[str, Any] | None = None,
        wait: bool = False,
    ) -> Save:
        """Saves a state as a step, and returns when its tensors are copied.

        Parameters:
            state: a dict of objects with ``state_dict``, tensors, numbers, text, and dicts and
                lists of these.
            metrics: numbers and texts for the manifest, for :attr:`CheckpointStep.metrics` and
                ``keep_best``, which passes over NaN and infinity.
            wait: return when the step is committed.

        Raises ArgumentError, with the path in the tree, for a value that pickle would be needed
        for; ``FileExistsError`` from :meth:`Save.wait` or the next call if the step exists.
        """
        try:
            handle = self._save(step, state, metrics)
        finally:
            if self._watch is not None:
                self._watch.run_deferred()
        if wait:
            handle.wait()
        return handle

    def _save(self, step: int, state: Any, metrics: Any, until: float | None = None) -> Save:
        """until: when the copy of the tensors must be complete."""
        self._check_process()
        with self._hold():
            if self._closed:
                self._check()
            commit = None if self._ranks is None else Commit(self._ranks, self._writer)
            try:
                number = _number(step)
                values = metrics_text(metrics)
                if commit is not None:
                    commit.step, commit.values = number, values
                self._check()
                handle = Save(number)
                if not self._make_room(handle):
                    return handle
                save = self._copied(number, state, values, commit, until)
                self._start(handle, save, commit)
                self._last = handle
            except BaseException as error:
                if commit is not None:  # the other ranks wait for this one
                    self._wait_for_running()
                    with contextlib.suppress(Error):
                        commit(error)
                raise
        return handle

    @contextlib.contextmanager
    def _hold(self) -> Iterator[None]:
        with self._lock:
            self._saver = threading.get_ident()
            try:
                yield
            finally:
                self._saver = 0

    def _start(self, handle: Save, save: Any, commit: Commit | None) -> None:
        """Starts the thread that waits for a save."""
        with self._state:
            self._running.append((handle, save))
            unfinished.add(self)
        try:
            threading.Thread(
                target=run, args=(self, handle, save, commit), name="stoker-save", daemon=True
            ).start()
        except BaseException as error:
            handle._reported = True
            self._ended(handle, error)
            save.close()
            raise

    def _check_process(self) -> None:
        """A process that was forked has none of the threads that save."""
        if self._process != os.getpid():
            raise ForkedError(
                "the Checkpointer was made before this process was forked",
                f"'{os.fsdecode(self._path)}'",
                "make a Checkpointer in the child; the running saves are those of the parent",
            )

    def _wait_for_running(self) -> None:
        for handle, _ in list(self._running):
            handle._done.wait()

    def _copied(
        self, step: int, state: Any, values: str | None, commit: Any, until: float | None
    ) -> Any:
        """Starts a save, and copies the tensors."""
        tree, tensors, local = checkpoint_tree.encode(state)
        rank, ranks, save_id = 0, 1, None
        if commit is not None:
            rank, ranks, save_id = commit.ranks.rank, commit.ranks.count, commit.save_id
            commit.digest = checkpoint_ranks.digest(tensors, local)
            tensors = checkpoint_ranks.choose(tensors, local, rank, ranks)
        items = checkpoint_tree.SaveTensors(tensors)
        save = self._writer.save(step, items, tree, values, rank, ranks, save_id, None)
        try:
            copy(save, items, self._pins, until)
        except BaseException:
            save.close()
            raise
        if commit is not None:
            commit.save = save
        return save

    def _make_room(self, handle: Save) -> bool:
        """Applies on_busy. Returns False if the save is skipped."""
        for other, save in list(self._running):
            if other.done:
                continue
            if self._on_busy == "skip":
                handle.skipped = True
                handle._end()
                return False
            if self._on_busy == "supersede":
                other._reported = True
                save.close()
            if not other._done.wait(self._timeout if self._on_busy == "supersede" else None):
                raise TimeoutError(
                    f"the save of step {other.step} did not end within {self._timeout:g} s",
                    "on_busy='supersede'",
                    "look at the place that it writes to, or allow a longer timeout",
                )
        self._check()
        return True

    def _ended(self, handle: Save, error: BaseException | None) -> None:
        """Called by the thread that waited for a save."""
        with self._state:
            self._running = [pair for pair in self._running if pair[0] is not handle]
            if error is not None and not handle._reported:
                self._failed.append(handle)
            if not self._running and not self._failed and self._tier is None:
                unfinished.discard(self)

    def _retain(self, step: int) -> None:
        """After the commit of a step."""
        if self._ranks is not None and self._ranks.rank != 0:
            return
        if self._tier is not None:
            self._tier.saved(step)
        else:
            self._retain_main()
        self._note(step)

    def _note(self, step: int) -> None:
        """Warns if a newer step exists: a restore takes that one, and retention removes this.

        The step is committed: it does not fail if the place cannot be listed; the next save lists
        it again. The tier has listed both places when it was opened.
        """
        newest = self._newest
        if newest is None and self._tier is not None:
            newest = self._tier.newest
        if newest is None:
            try:
                newest = self.latest()
            except (Error, OSError):
                return
        self._newest = step if newest is None else newest
        if step < self._newest and not self._warned:
            self._warned = True
            warnings.warn(
                f"step {step} was saved while '{os.fsdecode(self._path)}' has step {self._newest}: "
                "restore() takes the higher number, and retention may remove the new step; remove "
                "steps that are no longer wanted, or save to another place",
                StokerWarning,
                stacklevel=2,
            )
        self._newest = max(step, self._newest)

    def _retain_main(self) -> None:
        if self._keep[0] > 0:
            _stoker.checkpoint_gc(self._engine._native, self._path, *self._keep, False)

    def _upload_failed(self, step: int, error: BaseException) -> None:
        """The next call raises it."""
        handle = Save(step)
        handle._end(error)
        with self._state:
            self._failed.append(handle)
            unfinished.add(self)

    def _check(self) -> None:
        """Raises the error of a save that failed in the background."""
        with self._state:
            failed, self._failed = self._failed, []
            if not self._running and self._tier is None:
                unfinished.discard(self)
        for handle in failed:
            if not handle._reported:
                handle.wait()
        if self._closed:
            raise ArgumentError("the checkpointer is closed", "Checkpointer", "open another one")

    def wait(self) -> None:
        """Waits until all saves and uploads ended, and raises the error of one that failed."""
        self._check_process()
        self._wait_for_running()
        if self._tier is not None:
            self._tier.wait(self._timeout)
        self._check()

    def close(self) -> None:
        """Waits for running saves, and at most ``timeout`` seconds for uploads; frees the memory,
        and raises the error of a failed save. An upload that does not end is a TimeoutError; the
        next Checkpointer with these places goes on with it. Does nothing in a forked child."""
        if self._process != os.getpid():
            return
        if self._watch is not None:
            self._watch.close()
        self._wait_for_running()
        try:
            if self._tier is not None and not self._closed:
                self._tier.end(self._timeout)
        finally:
            self._free()

    def _free(self) -> None:
        with self._hold():
            if not self._closed:
                try:
                    self._check()
                finally:
                    self._closed = True
                    self._pins.close()  # no save runs
                    self._writer.close()
                    unfinished.discard(self)

    def __enter__(self) -> Checkpointer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        refuse_pickle("Checkpointer")

    # ---- emergency steps ----

    def save_on_signal(
        self,
        state: Callable[[], tuple[Any, ...] | None] | None = None,
        *,
        signals: Iterable[int] = (signal.SIGTERM,),
        deadline: float = 30.0,
        notice: str | Callable[[], bool] | None = None,
    ) -> None:
        """Has an emergency step saved after a signal, or the notice of a spot instance.

        ::

            ckpt.save_on_signal(deadline=25)
            for step in range(...):
                train_one_step()
                if ckpt.stopping(step, state):     # saved, and committed
                    break

        Parameters:
            state: None: the step is saved by :meth:`stopping`, which the loop calls when its state
                is consistent. Or a function that returns step and state (and metrics), or None for
                no save: the signal handler calls it at once, in the main thread, between two
                Python instructions of the training; one rank only.
            signals: whose handlers this call replaces. The old handlers are called once the step
                is committed, or when the deadline has passed; with ``stopping()``, the default
                action is left to the loop, which should end.
            deadline: seconds from the signal until the step must be committed. The limits of
                bandwidth and CPU time do not hold for the emergency step. Of a save that is still
                running, half of the time is given to its end; then it is ended.
            notice: the source of the notice of a spot instance, read every 5 seconds: ``"ec2"``,
                ``"gce"``, ``"azure"``, or a function that returns whether there is one.

        Several ranks: all call it together. A signal to one rank makes all ranks save the same
        step. Call it in the main thread.
        """
        if self._ranks is not None and state is not None:
            raise ArgumentError(
                "the ranks must save the same step",
                "save_on_signal",
                "pass no function on several ranks, and call stopping() after each step",
            )
        if not deadline > 0:
            raise ArgumentError(f"{deadline!r} s is no time", "deadline", "pass seconds above 0")
        if self._watch is not None:
            self._watch.close()
        self._watch = SignalWatch(
            self._emergency,
            lambda: self._saver == threading.main_thread().ident,
            self._ranks,
            state,
            tuple(signals),
            deadline,
            notice_of(notice),
        )

    def stopping(
        self, step: int, state: Any, *, metrics: Mapping[str, Any] | None = None
    ) -> bool:
        """At the end of a step: whether the training should end.

        After a signal of :meth:`save_on_signal` it saves the step, waits until it is committed, and
        returns True; a step that was saved already is only awaited. Raises the error of the save,
        or TimeoutError if it does not end before the deadline. Several ranks: all call it after
        each step; a signal is seen one step later, so that no rank waits for the others.
        """
        if self._watch is None:
            raise ArgumentError(
                "no signal is handled", "stopping", "call save_on_signal() before the loop"
            )
        return self._watch.reached(step, state, metrics)

    def _emergency(self, step: int, state: Any, metrics: Any, until: float) -> None:
        """Commits a step before a time of time.monotonic()."""
        self._writer.set_limits(0, 0)
        try:
            handle = self._last
            if handle is None or handle.step != step or handle.error is not None:
                for other, native in list(self._running):
                    half = max(0.0, until - time.monotonic()) / 2
                    if not other._done.wait(half) and self._ranks is None:
                        other._reported = True
                        native.close()
                handle = self._save(step, state, metrics, until)
            if not handle.wait(max(0.0, until - time.monotonic())):
                done, total = handle.progress
                raise TimeoutError(
                    f"the emergency step was not committed within its deadline: {done} of {total} "
                    "bytes were written",
                    f"step {step}",
                    "allow a longer deadline, or save to a faster place",
                )
            if self._tier is not None:
                self._tier.flush_all(step, until, self._ranks)
        finally:
            self._writer.set_limits(*self._limits)

    # ---- restore ----

    def restore(
        self,
        state: MutableMapping[str, Any],
        step: int | None = None,
        *,
        check: Callable[[], Mapping[str, Any]] | None = None,
        tolerance: float | Mapping[str, float] = 1e-3,
    ) -> int | None:
        """Restores the objects of a dict in place, and returns the step.

        Waits for running saves. Without ``step``: the newest step that is complete and whose hashes
        match; a damaged one is passed over. Objects with ``load_state_dict`` get their state;
        tensors and arrays are filled; numbers and texts of the dict are replaced. Returns None if
        there is no step. If it raises, tensors may be filled in part.

        ``check``: a function that computes metrics of the restored state again, such as ``{"loss":
        ...}`` of a fixed batch. Each is compared with what ``save(metrics=)`` stored for this step;
        a difference of more than ``tolerance`` times the larger one (a dict: for each metric) is a
        StateError with both values. Texts, NaN and infinity must be equal. Several ranks: all call
        it.

        Raises StateError if a shape or dtype differs, MissingError if the checkpoint lacks a key,
        CorruptError if all steps are damaged.
        """
        metrics: dict[str, Any] = {}
        if not isinstance(state, MutableMapping):
            raise ArgumentError(
                f"a {type(state).__name__} is no dict", "restore", "pass {'model': model, ...}"
            )

        def fill(reader: Reader) -> int:
            metrics.clear()
            metrics.update(metrics_of(reader.values))
            tree = select(reader.tree(self._rank_of(reader)), state, reader.path)
            values = reader.decode(tree, {key: like_of(value) for key, value in state.items()})
            for key, value in values.items():
                if not put(state[key], value):
                    state[key] = value
            return int(reader.step)

        found: int | None = self._read(step, fill)
        if found is not None and check is not None:
            self._check_values(check, tolerance, metrics, found)
        return found

    def _check_values(self, check: Any, tolerance: Any, metrics: Any, step: int) -> None:
        failure: BaseException | None = None
        try:
            where = f"step {step} in '{os.fsdecode(self._path)}'"
            check_metrics(check, tolerance, metrics, where)
        except BaseException as error:
            if self._ranks is None:
                raise
            failure = error
        if self._ranks is not None:
            self._ranks.check(failure)

    def load(self, step: int | None = None) -> Any:
        """Reads a step into new memory, as it was saved; without ``step``, the newest one as
        :meth:`restore` does. Raises EmptyError without any step."""
        nothing = object()
        result = self._read(step, lambda reader: reader.decode(reader.tree()), nothing)
        if result is nothing:
            raise self._empty()
        return result

    def verify(self, step: int | None = None) -> int:
        """Reads all bytes of a step, compares all hashes, and returns the step.

        Without ``step``: the newest one that is complete and not damaged, which :meth:`restore`
        takes. Nothing is restored. Several ranks: all call it, and rank 0 reads. Raises
        CorruptError if the step, or every step, is damaged; EmptyError without any step.
        """

        def use(reader: Reader) -> int:
            if self._ranks is None or self._ranks.rank == 0:
                reader.verify()
            return int(reader.step)

        failure: BaseException | None = None
        found: int | None = step
        try:
            found = self._read(step, use)
        except BaseException as error:
            if self._ranks is None or step is None:
                raise
            failure = error
        if self._ranks is not None and step is not None:
            self._ranks.check(failure)
        if found is None:
            raise self._empty()
        return found

    def _empty(self) -> EmptyError:
        where = f"'{os.fsdecode(self._path)}'"
        return EmptyError("there is no committed step", where, "check the path, or save one first")

    def _rank_of(self, reader: Reader) -> int:
        """Whose numbers and text are read: those of this rank, if there are as many."""
        same = self._ranks is not None and self._ranks.count == reader.ranks
        return self._ranks.rank if self._ranks is not None and same else 0

    def _read(self, step: int | None, use: Callable[[Reader], Any], otherwise: Any = None) -> Any:
        """Calls use with a step; without a number with the newest one that is not damaged."""
        self._check_process()
        self._wait_for_running()  # a step that is being saved is the newest one at its end
        if step is not None:
            number = _number(step)
            self._complete(number)
            return self._use(number, use)
        failure: Error | None = None
        for number in self._candidates():
            self._complete(number)
            error: BaseException | None = None
            try:
                result = self._use(number, use)
            except BaseException as caught:
                error = caught
            damaged = isinstance(error, DAMAGE) and not isinstance(error, MissingKeyError)
            if self._ranks is not None:
                self._ranks.check(None if damaged else error)
                good = self._ranks.agree(error is None)
            elif error is not None and not damaged:
                raise error
            else:
                good = error is None
            if good:
                return result
            if isinstance(error, Error):
                failure = failure or error
        if failure is not None:
            raise failure
        return otherwise

    def _complete(self, step: int) -> None:
        """Raises the error of a failed save. Rank 0 copies files that the local folder lacks from
        the main place; if that fails, all ranks raise an error."""
        failure: BaseException | None = None
        try:
            self._check()
            if self._tier is not None and (self._ranks is None or self._ranks.rank == 0):
                self._tier.complete(step)
        except BaseException as error:
            if self._tier is None or self._ranks is None:
                raise
            failure = error
        if self._tier is not None and self._ranks is not None:
            self._ranks.check(failure)

    def _candidates(self) -> list[int]:
        """Steps to be tried, newest first; the same on all ranks."""
        failure: BaseException | None = None
        steps: list[int] = []
        try:
            self._check()
            found = self.steps() if self._ranks is None or self._ranks.rank == 0 else []
            steps = [each.step for each in reversed(found) if each.status != "incomplete"]
        except BaseException as error:
            if self._ranks is None:
                raise
            failure = error
        if self._ranks is not None:
            self._ranks.check(failure)
            text = json.dumps(steps[:100]).encode()
            steps = json.loads(self._ranks.share(text, 4096).rstrip(b"\0"))
        return steps

    def _use(self, step: int, use: Callable[[Reader], Any]) -> Any:
        """Calls use with a step of the first place where it is not damaged."""
        places, other = [self._path], None
        if self._tier is not None:
            places, other = self._tier.places(step)
        for index, place in enumerate(places):
            try:
                with contextlib.closing(Reader(self._engine, place, step, other)) as reader:
                    return use(reader)
            except MissingKeyError:
                raise
            except (*DAMAGE, OSError) as error:
                if index == len(places) - 1 or not is_damage(error):
                    raise
        raise AssertionError("there is a place")

    # ---- manage ----

    def steps(self) -> list[CheckpointStep]:
        """All steps, by number: of a local tier those that are committed in one of the places."""
        found = {each.step: each for each in self._steps_of(self._path)}
        if self._tier is not None:
            for each in self._steps_of(self._tier.local):
                if each.step not in found or found[each.step].status != "committed":
                    found[each.step] = each
        return [found[step] for step in sorted(found)]

    def _steps_of(self, place: bytes) -> list[CheckpointStep]:
        try:
            found = _stoker.checkpoint_list(self._engine._native, place)
        except FileNotFoundError:
            return []
        return [
            CheckpointStep(
                step,
                _STATUS[status],
                pinned,
                size,
                files,
                ranks,
                metrics_of(values),
                reason,
                nan,
                inf,
            )
            for step, status, pinned, size, files, ranks, values, reason, nan, inf in found
        ]

    def latest(self) -> int | None:
        """The newest committed step, by its manifest and the lengths of its files."""
        committed = [found.step for found in self.steps() if found.status == "committed"]
        return committed[-1] if committed else None

    def pin(self, step: int) -> None:
        """Retention never removes the step."""
        self._pin(_number(step), True)

    def unpin(self, step: int) -> None:
        """Takes the pin off."""
        self._pin(_number(step), False)

    def _pin(self, step: int, on: bool) -> None:
        self._each_place(lambda place: _stoker.checkpoint_pin(self._native(), place, step, on))

    def remove(self, step: int) -> None:
        """Removes a step that is not pinned."""
        number = _number(step)
        self._newest = None
        if self._tier is not None:
            self._tier.newest = None
        self._each_place(lambda place: _stoker.checkpoint_remove(self._native(), place, number))

    def _native(self) -> Any:
        return self._engine._native

    def _each_place(self, call: Callable[[bytes], None]) -> None:
        """Calls it for the places that have the step."""
        places = [self._path] if self._tier is None else [self._tier.local, self._path]
        failures: list[BaseException] = []
        for place in places:
            try:
                call(place)
            except (FileNotFoundError, MissingError) as error:
                failures.append(error)
        if len(failures) == len(places):
            raise failures[-1]

    def gc(self, *, dry_run: bool = False) -> tuple[int, int, int]:
        """Applies retention, and removes what dead saves left.

        Returns the number of steps that were removed, of steps that are left, and of dead saves.
        """
        found: tuple[int, int, int] = _stoker.checkpoint_gc(
            self._engine._native, self._path, *self._keep, dry_run
        )
        if self._tier is not None and not dry_run:
            self._tier.retain()
        return found


def _number(step: Any) -> int:
    if step is None:
        raise ArgumentError("None is not a whole number", "step", "pass the number of the step")
    return count(step, "step", high=2**53 - 1)
