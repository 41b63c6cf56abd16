"""Mix: several sources in one stream, in shares that are kept exactly."""

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

_SAMPLES, _MIX, _SUBSET, _DRAWS, _IDENTITY = 8, 10, 11, 12, -1  # places in a native state
_WEIGHTS_MAX = 2**56  # their sum, as whole numbers
_WEIGHTS_FINE = 2**48  # their sum where they are rounded
_ADVICE = "give one number for each source, or name: none below 0, not all 0"

History = list[tuple[int, list[int]]]  # (position, weights of all leaves), the first at 0


class Source:
    """A source of a :class:`Mix` with settings of its own: chosen samples of it, or drawn ones, in
    place of all::

        mix = stoker.Mix([stoker.Source("web-*.tar", subset="json.score > 0.5"),
                          stoker.Source("photos/", balance="label")], weights=[3, 1])

    The source then has as many samples as are chosen: its default weight, its epochs and its
    ``repeats`` count them. Drawn ones have no epochs; what ends such a source is its count.

    Args:
        source: a class folder or tars, as a :class:`Loader` takes them.
        subset, weights, balance, replacement, tables: see :class:`Loader`; they look at this source
            alone, and a list of ids counts its samples from 0.
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
            raise ArgumentError(f"{source!r}", "Source", "give the paths of one source")
        self.urls, self.index = paths_of(source), index
        self._settings = (subset, None, (weights, balance, replacement), (None, None, None), tables)
        self.is_chosen = Sampling(*self._settings).is_there

    def sampling(self) -> Sampling:
        """For one opened mix."""
        return Sampling(*self._settings)

    def __repr__(self) -> str:
        shown = [os.fsdecode(_stoker.url_redact(url)) for url in self.urls]
        return f"<stoker.Source {shown!r:.200}>"


class Mix:
    """Sources for a :class:`Loader` or :class:`TokenLoader`, to be mixed by weight::

        mix = stoker.Mix(["web-{000..999}.tar", "wiki.tar", "code-{00..99}.tar"],
                         weights=[0.6, 0.3, 0.1])
        loader = stoker.Loader(mix, batch_size=256, tail="wrap", fields={...})
        ...
        loader.set_weights([0.5, 0.3, 0.2])    # from here on; what was given stays

    Of each stretch of about a thousand samples (a frame: longer where a weight is small) every
    source has its share to within one sample, in a sequence drawn anew each time. A source goes
    through its own shuffled order, in epochs of its own: at a frame's end each of its samples has
    come as often as any other, or once more (but for what a dropped tail leaves out). Which sample
    stands where depends on seed, sources and weights alone, not on ranks or threads.

    Of tokens a sample is a row: a window, a packed sequence or a document, as the loader says.

    Args:
        sources: class folders or tars, as a :class:`Loader` takes them, each; or token files, as a
            :class:`TokenLoader` does; or a :class:`Source`, with settings of its own; or another
            ``Mix`` (with weights), whose share is then divided by its own.
        weights: one a source, in any unit; 0 leaves it out. Decimals are taken as they are written
            (0.1 is a tenth), unless they need more than 56 bits: then to within 2^-48 of the whole.
            Default: the numbers of samples.
        repeats: instead: how often each source comes in an epoch: ``[1, 2, 0.5]``.
        counts: instead: how many samples of each source an epoch has.
        changes: ``[(position, weights), ...]``: from these positions on (of the run, in samples of
            all ranks; under another ``end`` than ``"repeat"``: of each epoch) other weights hold.
            A source that joins later has the weight 0 before.
        end: ``"repeat"``: the stream has no end (an epoch is ``epoch`` samples of it); ``"stop"``:
            an epoch ends with the first source that is through; ``"renormalise"``: then the others
            go on in their proportions, until all are through. Sources go on in the next epoch where
            they were. With ``repeats`` and ``counts`` an epoch ends when all have come.
        batches: ``"mixed"``, or ``"single"``: each global batch is of one source.
        epoch: samples of an epoch under ``"repeat"``: a multiple of the loader's ``groups``, and of
            a global batch of one source, or the next one. Default: as many as all sources have.

    Fields are looked up in every source: in folders the picture and its label, in tars members by
    extension. Where labels are asked for, all class folders must have the same classes. Folders
    are put together with the other sources in memory (10 bytes a member).

    With the loader's ``groups`` a rank meets mostly blocks of its home groups, of every source that
    has 4 blocks a group.
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
            raise ArgumentError(f"sources: a {type(sources).__name__}", "Mix", "give a list")
        if sum(given is not None for given in (weights, repeats, counts)) > 1:
            raise ArgumentError(
                "more than one of weights, repeats and counts", "Mix", "give one of them"
            )
        self.sources = list(sources)
        self.weights = None if weights is None else self._numbers(weights, "weights")
        self.repeats = None if repeats is None else self._numbers(repeats, "repeats")
        self.counts = None if counts is None else self._numbers(counts, "counts")
        self.is_counted = repeats is not None or counts is not None
        if self.is_counted and end not in (None, "stop"):
            raise ArgumentError(f"end={end!r} beside repeats or counts", "Mix", "leave it out")
        self.end = end or ("stop" if self.is_counted else "repeat")
        word(self.end, ENDS, "Mix end")
        if batches not in BATCHES:
            raise ArgumentError(f"{batches!r}", "Mix batches", f"give one of {', '.join(BATCHES)}")
        self.batches = batches
        self.epoch = count(epoch, "Mix epoch", low=1, high=_WEIGHTS_MAX)
        if epoch is not None and self.end != "repeat":
            raise ArgumentError(
                f"epoch= beside end={self.end!r}", "Mix", "an epoch ends where the mix ends"
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
            raise ArgumentError(f"{where} {values!r}", "Mix", _ADVICE)
        return numbers

    def _check_inner(self, inner: Any) -> None:
        if not isinstance(inner, Mix):
            if isinstance(inner, Dataset):
                raise ArgumentError("an opened stoker.Dataset", "Mix", "give its paths")
            if not isinstance(inner, Source):
                paths_of(inner)
        elif self.is_counted:
            raise ArgumentError(
                "a Mix beside repeats or counts", "Mix", "give its sources one by one"
            )
        elif (inner.end, inner.batches, inner.epoch) != ("repeat", "mixed", 0) or (
            inner.weights is None or inner.changes
        ):
            raise ArgumentError(
                "a Mix inside another one with more than weights",
                "Mix",
                "give end, batches, epoch and changes to the outer one, and the inner one weights",
            )

    def _changes(self, changes: Iterable[Any]) -> list[tuple[int, list[Fraction]]]:
        advice = "give pairs (position, weights), in the sequence of their positions, above 0"
        read: list[tuple[int, list[Fraction]]] = []
        try:
            pairs = [(position, weights) for position, weights in changes]
        except (TypeError, ValueError):
            raise ArgumentError(f"changes {changes!r}", "Mix", advice) from None
        for position, weights in pairs:
            place = count(position, "Mix changes", low=1, high=2**62)
            if read and place <= read[-1][0]:
                raise ArgumentError(f"changes {pairs!r}", "Mix", advice)
            read.append((place, self._numbers(weights, "changes")))
        if read and self.is_counted:
            raise ArgumentError("changes beside repeats or counts", "Mix", "give weights instead")
        return read

    def __repr__(self) -> str:
        return f"<stoker.Mix of {len(self.leaves())} sources, end={self.end!r}>"

    # ---- what the loader asks ----

    def parts_of(self) -> list[Source]:
        """The sources, those of inner mixes in place of them."""
        found: list[Source] = []
        for inner in self.sources:
            if isinstance(inner, Mix):
                found += inner.parts_of()
            else:
                found.append(inner if isinstance(inner, Source) else Source(inner))
        return found

    def leaves(self) -> list[list[bytes]]:
        """The urls of each source."""
        return [list(source.urls) for source in self.parts_of()]

    def urls(self) -> list[bytes]:
        return [url for leaf in self.leaves() for url in leaf]

    def parts(self, weights: list[Fraction]) -> list[Fraction]:
        """The weight of each leaf when these are the weights of the sources."""
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
        """Samples of each source; lengths: of the leaves."""
        sizes, first = [], 0
        for inner in self.sources:
            end = first + (len(inner.leaves()) if isinstance(inner, Mix) else 1)
            sizes.append(Fraction(sum(lengths[first:end])))
            first = end
        return sizes


class Mixed:
    """A mix of opened sources: where each of them ends in the data set that they make together,
    and the history of weights."""

    dataset: Dataset  # of :meth:`of`
    _parts: list[Dataset]  # which it is put together of; else none

    def __init__(
        self, mix: Mix, ends: list[int], samplers: Sequence[_stoker.Sampler | None] = ()
    ) -> None:
        """ends: in samples, one for each of the mix's leaves, as samplers."""
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
        self.history += [(p, whole(mix.parts(weights))) for p, weights in mix.changes]
        # Of the order; 0: the data set's. Those of a run that had fewer sources are kept.
        self.epoch, self.block_samples = mix.epoch, 0

    @classmethod
    def of(cls, mix: Mix, engine: Engine, index: Any = "auto", **options: Any) -> Mixed:
        """Opens the sources; options: of a Dataset."""
        sources = mix.parts_of()
        own = any(source.index != "auto" for source in sources)
        alone: list[Dataset] = []
        try:
            if own or any(os.path.isdir(url) for source in sources for url in source.urls):
                alone = [_opened(source, engine, index, options) for source in sources]
            joins = own or any(part.kind == "imagefolder" for part in alone)
            if joins:
                dataset = alone[0]._like(
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
        """Of what opened it: copies have the same data set."""
        self.dataset.close()
        for part in self._parts:
            part.close()

    def part(self, width: int, state: tuple[Any, ...]) -> Dataset:
        """The data set of the first sources, as the run of that state had it."""
        if not self._parts:
            return self.dataset._as_of(state)
        others = tuple(part._native for part in self._parts[1:width])
        return self._parts[0]._like(self._parts[0]._native.join(others))

    def check_labels(self) -> None:
        """A label is a number of a class: all folders must have the same."""
        first: tuple[Source, list[str]] | None = None
        for source, part in zip(self.mix.parts_of(), self._parts, strict=False):
            if part.kind != "imagefolder":
                continue
            if not part.classes:
                raise ArgumentError(
                    f"{source!r} has no class folders, so its pictures have no label",
                    "Mix",
                    "leave the label out, or put the pictures into one folder a class",
                )
            if first is None:
                first = source, part.classes
            elif part.classes != first[1]:
                here, there = set(part.classes), set(first[1])
                name = min(here ^ there)
                has, lacks = (source, first[0]) if name in here else (first[0], source)
                raise ArgumentError(
                    f"sources have other classes: {has!r} has {name!r}, and {lacks!r} has not",
                    "Mix labels",
                    "give all folders the same classes, or leave the label out",
                )

    @property
    def tables(self) -> list[dict[str, Any]]:
        return [sampler.info() for sampler in self._samplers if sampler is not None]

    def copy(self) -> Mixed:
        """For another loader."""
        other = copy.copy(self)
        other.history = list(self.history)
        return other

    def _first(self) -> list[int]:
        mix = self.mix
        if mix.repeats is not None:
            pairs = list(zip(mix.repeats, self.lengths, strict=True))
            if any(times > 0 and round(times * length) == 0 for times, length in pairs):
                raise ArgumentError(
                    "repeats of less than a sample", "Mix", "leave the source out, or repeat more"
                )
            return [round(times * length) for times, length in pairs]
        if mix.counts is not None:
            if any(number.denominator != 1 for number in mix.counts):
                raise ArgumentError("counts that are not whole", "Mix", "give whole numbers")
            return [int(number) for number in mix.counts]
        return whole(mix.parts(mix.weights or mix.sizes(self.lengths)))

    def native(self, step: int, width: int | None = None) -> dict[str, Any]:
        """Options of _stoker.Loader. step: samples of a global batch; width: of so many sources."""
        mix, weights = self.mix, self.history[0][1]
        limits = [0] * len(self.ends)
        if mix.is_counted:  # whole batches of each, where a batch is of one source
            unit = self.unit(step)
            if any(0 < n < unit for n in weights):
                raise ArgumentError(
                    f"a source of fewer samples an epoch than a batch has: {weights}",
                    f"Mix, batches of {unit} samples of one source each",
                    'leave it out, give more of it, smaller batches, or batches="mixed"',
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
        """Of an epoch, over all ranks."""
        return _stoker.mix_samples(self.ends[-1], self.native(step)["mix"])

    def unit(self, step: int) -> int:
        """So many neighbours are of one source."""
        return step if self.mix.batches == "single" else 1

    def values(self, loader: Any) -> dict[str, Any]:
        """What a state has beside the native one, fit for JSON."""
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

    # ---- what the processes of a run agree upon ----

    def told(self) -> dict[str, Any]:
        """What another process needs to have the same run, fit for JSON."""
        history = [[position, list(weights)] for position, weights in self.history]
        return {"history": history, "epoch": self.epoch, "block_samples": self.block_samples}

    def take(self, told: dict[str, Any]) -> None:
        self.history = [(position, list(weights)) for position, weights in told["history"]]
        self.epoch, self.block_samples = told["epoch"], told["block_samples"]

    def change(self, position: int, values: Sequence[Any]) -> None:
        """From a position on, a frame's end, other weights hold."""
        weights = whole(self.mix.parts(self.mix._numbers(values, "weights")))
        earlier = [change for change in self.history if change[0] < position]
        self.history = [*earlier, (position, weights)]

    def changes(self) -> list[tuple[int, list[int]]]:
        """The history behind its beginning as a Mix takes it: a weight for each of its sources."""
        found = []
        for position, weights in self.history[1:]:
            rest = iter(weights)
            parts = [
                sum(next(rest) for _ in (inner.leaves() if isinstance(inner, Mix) else [0]))
                for inner in self.mix.sources
            ]
            found.append((position, parts))
        return found

    # ---- other weights: the loader's native part is made anew ----

    def set_weights(self, loader: Any, values: Sequence[Any], at: int | None) -> int:
        """See :meth:`Loader.set_weights`. The iterator in use goes on with the new weights."""
        self.mix._numbers(values, "weights")
        state = loader._state()
        self._check_change(loader, state)
        if loader._pinner is not None:  # what its thread took ahead is given up
            loader._pinner.stop()
            loader._pinner = loader._delivered = None
            loader._native.set_state(state)
        before = self.history
        try:
            border = loader._native.mix_change_position(0)
            if at is not None and at < border:
                raise ArgumentError(
                    f"weights from position {at} on",
                    "set_weights",
                    f"what was given stays: they can change at {border}, or later",
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
                "workers that share a rank stand at different places",
                "set_weights",
                "give the Mix changes=, the same for all of them",
            )
        if self.mix.is_counted:
            raise StateError(
                "an epoch of repeats or counts has no other weights",
                "set_weights",
                "give the Mix weights, and an end",
            )
        if self.mix.end != "repeat" and state[6] > 0:
            raise StateError(
                "the weights of a mix with an end change in its first epoch only",
                "set_weights",
                "begin the next epoch with another Loader, or take end='repeat'",
            )

    def renew(self, loader: Any, state: tuple[Any, ...] | None) -> None:
        """The loader goes on from there, or begins, with the history that holds now."""
        loader._replace(loader._again() if state is None else self._with_all(loader, state))

    def load(self, loader: Any, values: dict[str, Any], state: tuple[Any, ...]) -> None:
        """Goes to a state, with the weights that were in force until then. values: the state."""
        before = self.history, self.epoch, self.block_samples
        theirs = self._read(values.get("weights"))
        width = len(theirs[0][1])
        try:
            self._adopt(loader, values, state)
            own, self.history = self.history, theirs
            # First as the state has it: so all else that differs is found, and the place known.
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
        if not isinstance(epoch, int) or not 1 <= epoch <= _WEIGHTS_MAX:
            raise StateError(f"epoch_samples {epoch!r}", where, "give what state_dict() gave")
        if self.mix.end == "repeat" and epoch != here["epoch_samples"]:
            self.epoch = epoch
        if block != loader._native.state()[_MIX - 1]:
            self.block_samples = block

    def _as_it_was(self, loader: Any, state: tuple[Any, ...], width: int) -> Any:
        """The native loader of the run that the state is of, standing there."""
        native = loader._again(width if width < len(self.ends) else None, state)
        try:
            native.set_state(state)
        except BaseException:
            native.close()
            raise
        return native

    def _join(self, own: History, theirs: History, border: int) -> None:
        """One history must go on where the other ends, and none change what was given."""
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
            f"give the Mix the state's weights and changes; new ones can hold from {border} on",
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
                "the state has no weights that can be read",
                "load_state_dict",
                "give what state_dict() of a loader of a Mix gave",
            )
        width = len(read[0][1])
        if width > len(self.ends):
            raise StateError(
                f"the state is of {width} sources, here are {len(self.ends)}",
                "load_state_dict",
                "keep all sources, and give one that is not wanted any more the weight 0; new ones "
                "join behind the others",
            )
        return read

    def _with_all(self, loader: Any, state: tuple[Any, ...]) -> Any:
        """A native loader with the history that holds now, at a state whose own history it goes on
        from: position and fingerprint are the state's."""
        native = loader._again()
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
    elif index not in INDEXES:  # the file of all sources in one
        index = "auto"
    return Dataset(list(source.urls), engine=engine, index=index, **options)


@contextlib.contextmanager
def _one(
    alone: list[Dataset], number: int, source: Source, engine: Engine, options: dict[str, Any]
) -> Iterator[Dataset]:
    """The data set of one source; it is there already, or only now."""
    if alone:
        yield alone[number]
        return
    with _opened(source, engine, "auto", options) as part:
        yield part


def whole(parts: list[Fraction]) -> list[int]:
    """Whole numbers in these proportions: the smallest, or rounded to within 2^-48 of their sum."""
    scale = math.lcm(*(part.denominator for part in parts))
    numbers = [int(part * scale) for part in parts]
    if sum(numbers) // math.gcd(*numbers) > _WEIGHTS_MAX:
        total = sum(numbers)
        numbers = [max(1, round(Fraction(n * _WEIGHTS_FINE, total))) if n else 0 for n in numbers]
    divisor = math.gcd(*numbers)
    return [number // divisor for number in numbers]
