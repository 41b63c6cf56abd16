"""Mix: several sources in one stream, in exact proportions."""

from __future__ import annotations

import contextlib
import copy
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import accumulate
from typing import Any

from . import _stoker
from ._options import INDEXES, count, paths_of, word
from .dataset import Dataset
from .engine import Engine
from .errors import ArgumentError, StateError
from .sampling import Sampling

__all__ = ["Mix", "Source"]

ENDS = {
    "repeat": _stoker.MIX_REPEAT,
    "stop": _stoker.MIX_STOP,
    "renormalise": _stoker.MIX_RENORMALISE,
}
BATCHES = ("mixed", "single")

_SAMPLES, _MIX, _SUBSET, _DRAWS, _IDENTITY = 8, 10, 11, 12, -1  # indexes into a native state
_WEIGHTS_MAX = 2**56  # largest sum of integer weights
_WEIGHTS_FINE = 2**48  # their sum if they are rounded
_ADVICE = "give one number for each source, or name: none below 0, not all 0"

History = list[tuple[int, list[int]]]  # (position, weights of all leaves), the first at 0


class Source:
    """A source of a :class:`Mix` with its own settings, which select or draw samples of it::

        mix = stoker.Mix([stoker.Source("web-*.tar", subset="json.score > 0.5"),
                          stoker.Source("photos/", balance="label")], weights=[3, 1])

    The number of selected samples then is the number of samples of the source: its default weight,
    its epochs and ``repeats`` count them. Drawn samples have no epochs; such a source ends after
    its number of samples.

    Args:
        source: a class folder or tars, as in :class:`Loader`.
        subset, weights, balance, replacement, tables: see :class:`Loader`; they apply to this
            source only, and a list of ids counts its samples from 0.
        index: see :class:`Dataset`.
    """

    def __init__(
        self,
        source: Any,
        *,
        subset: Any = None,
        weights: Any = None,
        balance: str | None = None,
        replacement: bool = False,
        tables: str = "auto",
        index: str | os.PathLike[str] = "auto",
    ) -> None:
        if isinstance(source, (Mix, Source, Dataset)):
            raise ArgumentError(
                f"source {source!r} is not a path", "Source", "pass the paths of one source"
            )
        self.urls, self.index = paths_of(source), index
        self._settings = (subset, None, (weights, balance, replacement), (None, None, None), tables)
        self.is_chosen = Sampling(*self._settings).is_there

    def sampling(self) -> Sampling:
        """The sampling of an opened mix."""
        return Sampling(*self._settings)

    def __repr__(self) -> str:
        shown = [os.fsdecode(_stoker.url_redact(url)) for url in self.urls]
        return f"<stoker.Source {shown!r:.200}>"


class Mix:
    """Sources for a :class:`Loader` or :class:`TokenLoader`, mixed by weight::

        mix = stoker.Mix(["web-{000..999}.tar", "wiki.tar", "code-{00..99}.tar"],
                         weights=[0.6, 0.3, 0.1])
        loader = stoker.Loader(mix, batch_size=256, tail="wrap", fields={...})
        ...
        loader.set_weights([0.5, 0.3, 0.2])    # from now on; earlier batches do not change

    In each frame of about a thousand samples (more if a weight is small) the number of samples of
    every source equals its share to within one sample, in a random sequence. Frames end where
    epochs end (unless an epoch is too short for the share of a source), so an epoch has the share
    of each source, too. Each source has its own shuffled order and its own epochs: at the end of a
    frame, the numbers of uses of any two of its samples differ by at most one (apart from samples
    that a dropped tail leaves out). So if an epoch has as many samples of a source as the source,
    it has each of them once. With ``shuffle="none"`` each source stays in its storage order, and
    the sources alternate evenly. The position of a sample depends only on seed, sources, weights
    and the length of an epoch, not on ranks or threads.

    For tokens, a sample is a row: a window, a packed row or a document.

    Args:
        sources: a list. Each item is a class folder or tars, as in :class:`Loader`; or token files,
            as in :class:`TokenLoader`; or a :class:`Source` with its own settings; or another
            ``Mix`` (with weights), which divides its share by its own weights.
        weights: one for each source, in any unit; 0 leaves it out. Decimals are exact (0.1 is a
            tenth), unless they need more than 56 bits: then they are exact to within 2^-48 of the
            sum. Default: the numbers of samples.
        repeats: instead of weights: uses of each source in an epoch: ``[1, 2, 0.5]``.
        counts: instead of weights: samples of each source in an epoch.
        changes: ``[(position, weights), ...]``: weights that apply from these positions on (of the
            run, in samples of all ranks; with another ``end`` than ``"repeat"``: of each epoch). A
            source that joins later has the weight 0 before.
        end: ``"repeat"``: the stream has no end (an epoch is ``epoch`` samples of it); ``"stop"``:
            an epoch ends with the first source that ends; ``"renormalise"``: the other sources
            continue in their proportions, until all have ended. In the next epoch sources continue
            at their positions. With ``repeats`` and ``counts`` an epoch ends after all samples.
        batches: ``"mixed"``, or ``"single"``: each global batch comes from one source.
        epoch: samples of an epoch with ``end="repeat"``; rounded up to a multiple of the loader's
            ``groups``, and with ``"single"`` of a global batch. Default: the sum of all sources.

    Fields are looked up in every source: the image and its label in folders, members by extension
    in tars. If labels are used, all class folders must have the same classes. Folders are joined
    with the other sources in memory (10 bytes for each member).

    With the loader's ``groups`` a rank reads mostly blocks of its home groups, from each source
    with at least 4 blocks for each group.
    """

    def __init__(
        self,
        sources: Sequence[Any],
        weights: Sequence[Any] | None = None,
        *,
        repeats: Sequence[Any] | None = None,
        counts: Sequence[int] | None = None,
        changes: Iterable[tuple[int, Sequence[Any]]] = (),
        end: str | None = None,
        batches: str = "mixed",
        epoch: int | None = None,
    ) -> None:
        if isinstance(sources, (str, bytes)) or not isinstance(sources, Sequence) or not sources:
            raise ArgumentError(
                f"sources is no list of sources but a {type(sources).__name__}",
                "Mix",
                "pass a list with at least one",
            )
        if sum(given is not None for given in (weights, repeats, counts)) > 1:
            raise ArgumentError(
                "more than one of weights, repeats and counts is set", "Mix", "pass one of them"
            )
        self.sources = list(sources)
        self.weights = None if weights is None else self._numbers(weights, "weights")
        self.repeats = None if repeats is None else self._numbers(repeats, "repeats")
        self.counts = None if counts is None else self._numbers(counts, "counts")
        self.is_counted = repeats is not None or counts is not None
        if self.is_counted and end not in (None, "stop"):
            raise ArgumentError(
                f"end={end!r} cannot be combined with repeats or counts", "Mix", "leave it out"
            )
        self.end = end or ("stop" if self.is_counted else "repeat")
        word(self.end, ENDS, "Mix end")
        if batches not in BATCHES:
            raise ArgumentError(
                f"unknown value {batches!r}", "Mix batches", f"pass one of {', '.join(BATCHES)}"
            )
        self.batches = batches
        self.epoch = count(epoch, "Mix epoch", low=1, high=_WEIGHTS_MAX)
        if epoch is not None and self.end != "repeat":
            raise ArgumentError(
                f"epoch= cannot be combined with end={self.end!r}",
                "Mix",
                "leave epoch out: an epoch ends where the mix ends",
            )
        for inner in self.sources:
            self._check_inner(inner)
        self.changes = self._changes(changes)

    def _numbers(self, values: Sequence[Any], where: str) -> list[Fraction]:
        try:
            numbers = [v if isinstance(v, Fraction) else Fraction(str(v)) for v in values]
        except (TypeError, ValueError, ZeroDivisionError):
            numbers = []
        if len(numbers) != len(self.sources) or min(numbers) < 0 or not any(numbers):
            raise ArgumentError(f"{where} {values!r} are not valid", "Mix", _ADVICE)
        return numbers

    def _check_inner(self, inner: Any) -> None:
        if not isinstance(inner, Mix):
            if isinstance(inner, Dataset):
                raise ArgumentError("a source is an opened stoker.Dataset", "Mix", "pass its paths")
            if not isinstance(inner, Source):
                paths_of(inner)
        elif self.is_counted:
            raise ArgumentError(
                "a Mix with repeats or counts contains another Mix",
                "Mix",
                "pass the sources of the inner Mix",
            )
        elif (inner.end, inner.batches, inner.epoch) != ("repeat", "mixed", 0) or (
            inner.weights is None or inner.changes
        ):
            raise ArgumentError(
                "the inner Mix has more settings than weights",
                "Mix",
                "pass end, batches, epoch and changes to the outer Mix",
            )

    def _changes(self, changes: Iterable[Any]) -> list[tuple[int, list[Fraction]]]:
        advice = "give pairs (position, weights), in the sequence of their positions, above 0"
        read: list[tuple[int, list[Fraction]]] = []
        try:
            pairs = [(position, weights) for position, weights in changes]
        except (TypeError, ValueError):
            raise ArgumentError(f"changes {changes!r} are not pairs", "Mix", advice) from None
        for position, weights in pairs:
            place = count(position, "Mix changes", low=1, high=2**62)
            if read and place <= read[-1][0]:
                raise ArgumentError(f"changes {pairs!r} are not in order", "Mix", advice)
            read.append((place, self._numbers(weights, "changes")))
        if read and self.is_counted:
            raise ArgumentError(
                "changes cannot be combined with repeats or counts", "Mix", "pass weights instead"
            )
        return read

    def __repr__(self) -> str:
        return f"<stoker.Mix of {len(self.leaves())} sources, end={self.end!r}>"

    # ---- used by loaders ----

    def parts_of(self) -> list[Source]:
        """The sources; an inner mix is replaced by its sources."""
        found: list[Source] = []
        for inner in self.sources:
            if isinstance(inner, Mix):
                found += inner.parts_of()
            else:
                found.append(inner if isinstance(inner, Source) else Source(inner))
        return found

    def leaves(self) -> list[list[bytes]]:
        """The URLs of each source."""
        return [list(source.urls) for source in self.parts_of()]

    def urls(self) -> list[bytes]:
        return [url for leaf in self.leaves() for url in leaf]

    def parts(self, weights: list[Fraction]) -> list[Fraction]:
        """The weight of each leaf for these weights of the sources."""
        parts: list[Fraction] = []
        for inner, weight in zip(self.sources, weights, strict=True):
            if isinstance(inner, Mix):
                assert inner.weights is not None
                own = inner.parts(inner.weights)
                parts += [weight * part / sum(own) for part in own]
            else:
                parts.append(weight)
        return parts

    def sizes(self, lengths: list[int]) -> list[Fraction]:
        """Samples of each source in an epoch; lengths: samples of the leaves."""
        sizes, first = [], 0
        for inner in self.sources:
            end = first + (len(inner.leaves()) if isinstance(inner, Mix) else 1)
            sizes.append(Fraction(sum(lengths[first:end])))
            first = end
        return sizes


class Mixed:
    """A mix of opened sources: the end of each source in the joined data set, and the history of
    weights."""

    dataset: Dataset  # the joined data set, set by :meth:`of`
    _parts: list[Dataset]  # the data sets that were joined; else empty

    def __init__(
        self, mix: Mix, ends: list[int], samplers: Sequence[_stoker.Sampler | None] = ()
    ) -> None:
        """ends: in samples, for each leaf of the mix; samplers: the same."""
        self.mix, self.ends = mix, ends
        self._samplers = tuple(samplers) if any(samplers) else ()
        self._parts = []
        starts = [0, *self.ends[:-1]]
        for leaf, start, end in zip(mix.leaves(), starts, ends, strict=True):
            if start == end:
                raise ArgumentError(f"source {leaf!r} has no samples", "Mix", "leave it out")
        self.lengths = [end - start for start, end in zip(starts, self.ends, strict=True)]
        for source, sampler in enumerate(self._samplers):
            if sampler is not None:
                self.lengths[source] = sampler.info()["count"]
        self.history: History = [(0, self._first())]
        self.history += [(p, to_integers(mix.parts(weights))) for p, weights in mix.changes]
        # Samples of a block; 0: those of the data set. Kept from runs that had fewer sources.
        self.epoch, self.block_samples = mix.epoch, 0

    @classmethod
    def of(cls, mix: Mix, engine: Engine, index: Any = "auto", **options: Any) -> Mixed:
        """Opens the sources; options: those of a Dataset."""
        sources = mix.parts_of()
        own = any(source.index != "auto" for source in sources)
        alone: list[Dataset] = []
        try:
            if own or any(os.path.isdir(url) for source in sources for url in source.urls):
                alone = [_opened(source, engine, index, options) for source in sources]
            joins = own or any(part.kind == "imagefolder" for part in alone)
            if joins:
                dataset = alone[0]._wrap(
                    alone[0]._native.join(tuple(part._native for part in alone[1:]))
                )
                ends = [dataset._native.url_end(number) for number in range(len(sources))]
            else:
                dataset = Dataset(mix.urls(), engine=engine, index=index, **options)
                urls = accumulate(len(source.urls) for source in sources)
                ends = [dataset._native.url_end(url - 1) for url in urls]
            samplers: list[_stoker.Sampler | None] = [None] * len(sources)
            for number, source in enumerate(sources):
                if source.is_chosen:
                    with _one(alone, number, source, engine, options) as part:
                        ((_, samplers[number]),) = source.sampling().native(part)[0]
            self = cls(mix, ends, samplers)
        except BaseException:
            for part in alone:
                part.close()
            raise
        self.dataset = dataset
        self._parts = alone if joins else []
        for part in [] if joins else alone:
            part.close()
        return self

    def close(self) -> None:
        """Closes the data set, for the object that opened it: copies share it."""
        self.dataset.close()
        for part in self._parts:
            part.close()

    def part(self, width: int, state: tuple[Any, ...]) -> Dataset:
        """The data set of the first sources, as the run of that state had it."""
        if not self._parts:
            return self.dataset._as_of(state)
        others = tuple(part._native for part in self._parts[1:width])
        return self._parts[0]._wrap(self._parts[0]._native.join(others))

    def check_labels(self) -> None:
        """ArgumentError: class folders have different classes, so labels differ in meaning."""
        first: tuple[Source, list[str]] | None = None
        for source, part in zip(self.mix.parts_of(), self._parts, strict=False):
            if part.kind != "imagefolder":
                continue
            if not part.classes:
                raise ArgumentError(
                    f"{source!r} has no class folders, so its images have no label",
                    "Mix",
                    "leave the label out, or put the images into one folder for each class",
                )
            if first is None:
                first = source, part.classes
            elif part.classes != first[1]:
                here, there = set(part.classes), set(first[1])
                name = min(here ^ there)
                has, lacks = (source, first[0]) if name in here else (first[0], source)
                raise ArgumentError(
                    f"the sources have different classes: {has!r} has {name!r}, {lacks!r} does not",
                    "Mix labels",
                    "use the same classes in all folders, or leave the label out",
                )

    @property
    def tables(self) -> list[dict[str, Any]]:
        return [sampler.info() for sampler in self._samplers if sampler is not None]

    def copy(self) -> Mixed:
        """A copy for another loader."""
        other = copy.copy(self)
        other.history = list(self.history)
        return other

    def _first(self) -> list[int]:
        mix = self.mix
        if mix.repeats is not None:
            pairs = list(zip(mix.repeats, self.lengths, strict=True))
            if any(times > 0 and round(times * length) == 0 for times, length in pairs):
                raise ArgumentError(
                    "repeats select less than one sample",
                    "Mix",
                    "leave the source out, or repeat more",
                )
            return [round(times * length) for times, length in pairs]
        if mix.counts is not None:
            if any(number.denominator != 1 for number in mix.counts):
                raise ArgumentError("counts are not integers", "Mix", "pass integers")
            return [int(number) for number in mix.counts]
        return to_integers(mix.parts(mix.weights or mix.sizes(self.lengths)))

    def native(self, step: int, width: int | None = None) -> dict[str, Any]:
        """Options of _stoker.Loader. step: samples of a global batch; width: number of sources."""
        mix, weights = self.mix, self.history[0][1]
        limits = [0] * len(self.ends)
        if mix.is_counted:  # complete batches of each source, if a batch has one source
            unit = self.unit(step)
            if any(0 < n < unit for n in weights):
                raise ArgumentError(
                    f"a source has fewer samples in an epoch than a batch: {weights}",
                    f"Mix, batches of {unit} samples of one source each",
                    'leave it out, use more of it, smaller batches, or batches="mixed"',
                )
            limits = weights = [n // unit * unit for n in weights]
        elif mix.end != "repeat":
            limits = self.lengths
        own = (
            tuple(self.ends[:width]),
            tuple(weights[:width]),
            tuple(limits[:width]),
            tuple((position, tuple(weights[:width])) for position, weights in self.history[1:]),
            ENDS[mix.end],
            self.unit(step),
            self.epoch,
            self._samplers[:width],
        )
        return {"mix": own, "block_samples": self.block_samples}

    def samples(self, step: int) -> int:
        """Samples of an epoch, of all ranks."""
        return _stoker.mix_samples(self.ends[-1], self.native(step)["mix"])

    def unit(self, step: int) -> int:
        """Number of consecutive samples that come from one source."""
        return step if self.mix.batches == "single" else 1

    def values(self, loader: Any) -> dict[str, Any]:
        """The part of a state besides the native one, for JSON."""
        return {
            **self._settings(loader),
            "weights": [[position, list(weights)] for position, weights in self.history],
        }

    def _settings(self, loader: Any) -> dict[str, Any]:
        return {
            "mix_end": self.mix.end,
            "unit_samples": self.unit(loader._step),
            "epoch_samples": loader._native.samples(),
        }

    # ---- shared by the processes of a run ----

    def shared_values(self) -> dict[str, Any]:
        """The values that another process needs for the same run, for JSON."""
        history = [[position, list(weights)] for position, weights in self.history]
        return {"history": history, "epoch": self.epoch, "block_samples": self.block_samples}

    def take(self, values: dict[str, Any]) -> None:
        self.history = [(position, list(weights)) for position, weights in values["history"]]
        self.epoch, self.block_samples = values["epoch"], values["block_samples"]

    def change(self, position: int, values: Sequence[Any]) -> None:
        """Other weights apply from a position on, which is the end of a frame."""
        weights = to_integers(self.mix.parts(self.mix._numbers(values, "weights")))
        earlier = [change for change in self.history if change[0] < position]
        self.history = [*earlier, (position, weights)]

    def changes(self) -> list[tuple[int, list[int]]]:
        """The history after its beginning, as the argument of a Mix: weights of its sources."""
        found = []
        for position, weights in self.history[1:]:
            rest = iter(weights)
            parts = [
                sum(next(rest) for _ in (inner.leaves() if isinstance(inner, Mix) else [0]))
                for inner in self.mix.sources
            ]
            found.append((position, parts))
        return found

    # ---- other weights: the native loader is opened again ----

    def set_weights(self, loader: Any, values: Sequence[Any], at: int | None) -> int:
        """See :meth:`Loader.set_weights`. The iterator in use continues with the new weights."""
        self.mix._numbers(values, "weights")
        state = loader._state()
        self._check_change(loader, state)
        if loader._pinner is not None:  # drops the batches that its thread prefetched
            loader._pinner.stop()
            loader._pinner = loader._delivered_position = None
            loader._native.set_state(state)
        before = self.history
        try:
            border = loader._native.mix_change_position(0)
            if at is not None and at < border:
                raise ArgumentError(
                    f"weights cannot change at position {at}",
                    "set_weights",
                    f"use position {border} or later: earlier samples are scheduled",
                )
            position = border if at is None else loader._native.mix_change_position(at)
            self.change(position, values)
            self.renew(loader, state)
        except BaseException:
            self.history = before
            raise
        return int(position)

    def _check_change(self, loader: Any, state: tuple[Any, ...]) -> None:
        if loader._native_options.get("worker_count", 1) > 1:
            raise ArgumentError(
                "workers that share a rank are at different positions",
                "set_weights",
                "pass changes= to the Mix, the same for all workers",
            )
        if self.mix.is_counted:
            raise StateError(
                "the weights of a Mix with repeats or counts cannot change",
                "set_weights",
                "pass weights= and end= to the Mix",
            )
        if self.mix.end != "repeat" and state[6] > 0:
            raise StateError(
                "the weights of a mix with an end change in its first epoch only",
                "set_weights",
                "use another Loader for the next epoch, or end='repeat'",
            )

    def renew(self, loader: Any, state: tuple[Any, ...] | None) -> None:
        """The loader continues at the state, or begins, with the present history."""
        loader._replace(loader._reopen() if state is None else self._with_all(loader, state))

    def load(self, loader: Any, values: dict[str, Any], state: tuple[Any, ...]) -> None:
        """Continues at a state, with the weights that applied until then. values: the state."""
        before = self.history, self.epoch, self.block_samples
        theirs = self._read(values.get("weights"))
        width = len(theirs[0][1])
        try:
            self._adopt(loader, values, state)
            own, self.history = self.history, theirs
            # First with the history of the state: this finds other differences, and the position.
            was = self._as_it_was(loader, state, width)
            try:
                theirs = [(p, [*w, *[0] * (len(self.ends) - width)]) for p, w in theirs]
                self._join(own, theirs, was.mix_change_position(0))
                if width < len(self.ends) or self.history != theirs:
                    was.close()
                    was = self._with_all(loader, state)
            except BaseException:
                was.close()
                raise
        except BaseException:
            self.history, self.epoch, self.block_samples = before
            raise
        loader._replace(was)

    def _adopt(self, loader: Any, values: dict[str, Any], state: tuple[Any, ...]) -> None:
        """Lengths of blocks and epochs follow from the data, and stay when sources are added."""
        where, here = "load_state_dict", self._settings(loader)
        for name, own in here.items():
            theirs = values.get(name)
            if theirs != own and (name != "epoch_samples" or self.mix.epoch):
                raise StateError(
                    "the state belongs to another stream",
                    f"{where}: {name} {theirs} in the state, {own} here",
                    "open the loader with the Mix and the settings of the saved run",
                )
        epoch, block = values.get("epoch_samples"), state[_MIX - 1]
        if type(epoch) is not int or not 1 <= epoch <= _WEIGHTS_MAX:
            raise StateError(
                f"epoch_samples {epoch!r} is not valid", where, "pass what state_dict() returned"
            )
        if self.mix.end == "repeat" and epoch != here["epoch_samples"]:
            self.epoch = epoch
        if block != loader._native.state()[_MIX - 1]:
            self.block_samples = block

    def _as_it_was(self, loader: Any, state: tuple[Any, ...], width: int) -> Any:
        """The native loader of the run that saved the state, at that state."""
        native = loader._reopen(width if width < len(self.ends) else None, state)
        try:
            native.set_state(state)
        except BaseException:
            native.close()
            raise
        return native

    def _join(self, own: History, theirs: History, border: int) -> None:
        """Raises StateError unless one history continues the other and changes nothing before."""
        same = 0
        while same < min(len(own), len(theirs)) and own[same] == theirs[same]:
            same += 1
        if same == len(theirs) and (same == len(own) or own[same][0] >= border):
            self.history = own
            return
        if same == len(own):
            self.history = theirs
            return
        here = f"{own[same][1]} from {own[same][0]} on" if same < len(own) else "none"
        there = f"{theirs[same][1]} from {theirs[same][0]} on" if same < len(theirs) else "none"
        raise StateError(
            "the state has other weights than the Mix",
            f"load_state_dict: {there} in the state, {here} here",
            f"pass the state's weights and changes to the Mix; new ones can apply from {border} on",
        )

    def _read(self, history: Any) -> History:
        try:
            read = [(int(p), [int(w) for w in weights]) for p, weights in history]
            places = [p for p, _ in read]
            widths = {len(weights) for _, weights in read}
            sound = places[0] == 0 and places == sorted(set(places)) and len(widths) == 1
            sound &= all(0 <= w <= _WEIGHTS_MAX for _, weights in read for w in weights)
        except (TypeError, ValueError, IndexError):
            sound = False
        if not sound:
            raise StateError(
                "the weights in the state cannot be read",
                "load_state_dict",
                "pass what state_dict() of a loader with a Mix returned",
            )
        width = len(read[0][1])
        if width > len(self.ends):
            raise StateError(
                f"the state has {width} sources, the Mix has {len(self.ends)}",
                "load_state_dict",
                "keep all sources; set the weight of an unwanted one to 0, and append new ones "
                "at the end",
            )
        return read

    def _with_all(self, loader: Any, state: tuple[Any, ...]) -> Any:
        """A native loader with the present history, at a state whose history it continues: position
        and fingerprint are the state's."""
        native = loader._reopen()
        try:
            own, parts = native.state(), list(state)
            for place in (_SAMPLES, _MIX, _SUBSET, _DRAWS, _IDENTITY):
                parts[place] = own[place]
            native.set_state(tuple(parts))
        except BaseException:
            native.close()
            raise
        return native


def _opened(source: Source, engine: Engine, index: Any, options: dict[str, Any]) -> Dataset:
    if source.index != "auto":
        index = source.index
    elif index not in INDEXES:  # one file for all sources
        index = "auto"
    return Dataset(list(source.urls), engine=engine, index=index, **options)


@contextlib.contextmanager
def _one(
    alone: list[Dataset], number: int, source: Source, engine: Engine, options: dict[str, Any]
) -> Iterator[Dataset]:
    """The data set of one source; opens it unless it is open."""
    if alone:
        yield alone[number]
        return
    with _opened(source, engine, "auto", options) as part:
        yield part


def to_integers(parts: list[Fraction]) -> list[int]:
    """Integers in these proportions: the smallest, or rounded to within 2^-48 of their sum."""
    scale = math.lcm(*(part.denominator for part in parts))
    numbers = [int(part * scale) for part in parts]
    if sum(numbers) // math.gcd(*numbers) > _WEIGHTS_MAX:
        total = sum(numbers)
        numbers = [max(1, round(Fraction(n * _WEIGHTS_FINE, total))) if n else 0 for n in numbers]
    divisor = math.gcd(*numbers)
    return [number // divisor for number in numbers]
