"""Loader: a folder of images or tars, as a stream of training batches."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import weakref
from array import array
from collections.abc import Callable, Sequence
from typing import Any

from . import _stoker, fsspec_source
from ._options import (
    IMAGE_CHECKS,
    bad_sample_options,
    count,
    milliseconds,
    parse_bytes,
    paths_of,
    word,
)
from .cache import Cache
from .dataset import BadSample, Dataset
from .engine import Engine, engine_of
from .errors import (
    ArgumentError,
    BudgetError,
    EmptyError,
    MissingError,
    StateError,
    UnsupportedError,
)
from .fields import Field, Image, Label, all_exact, resolve
from .loader_base import LoaderBase
from .loader_stats import PastStats
from .mix import Mix, Mixed
from .pickling import Arguments
from .sampling import Sampling
from .schedule import ScheduledSample, explain
from .state import FINGERPRINT, ORDER_VERSION, SHUFFLE, WINDOW, check_exactness, exactness
from .tensors import Column, Convert, check_word
from .transforms import Transform

__all__ = ["Loader"]

UNOPENED: Any = object()
"""A source that is none: the options are checked, and nothing is opened."""
"""A source that is not opened: only the options are checked."""


class Loader(LoaderBase):
    """A stream of batches for one rank: decoded, augmented, and in an exact order.

    One process with native threads. Every ``for`` over the loader is one epoch::

        loader = stoker.Loader("train/", batch_size=256, seed=0,
                               image=[stoker.RandomResizedCrop(224),
                                      stoker.RandomHorizontalFlip(), stoker.Normalize()])
        for epoch in range(90):
            loader.set_epoch(epoch)
            for images, labels in loader:   # float32 [256, 3, 224, 224], int64 [256]
                ...

    Threads: one thread at a time uses a loader; threads that share an iterator take turns. Batches
    may be used and freed in any thread.

    Args:
        source: a class folder, a tar, a glob, braces (``"train-{000..099}.tar"``), a list of
            them, a :class:`Dataset`, or a :class:`Mix` of several sources. URLs without a native
            client (``"sftp://host/train/"``) are read through fsspec, which is slower: see
            :mod:`stoker.fsspec_source`.
        batch_size: samples in a batch of this rank.
        seed: seed of the order and of random transforms.
        image: transforms of the image; the loop receives pairs (images, labels).
        fields: a dict of fields (see :mod:`stoker.fields`) instead of ``image``; the loop receives
            dicts with the same names.
        shuffle: ``"full"``: one permutation of all samples, as ``shuffle=True`` of a DataLoader;
            ``"block"``: shuffles blocks over the complete data set, then samples within a window of
            blocks; ``"two-level"``: shuffles shards, then the samples of each shard (tars only);
            ``"none"``: storage order, for validation. Default: ``"full"`` where reads in any order
            cost no more than in sequence (folders; tars on local disks), else ``"block"`` with the
            largest window that fills half of the memory budget. See :meth:`mixing`. Compressed
            shards without seek points can only be read in storage order; others are refused.
        tail: the last batch of an epoch. ``"drop"``: dropped if incomplete; ``"pad"``: filled with
            repeated samples, which :attr:`mask` (or a field ``"__mask__"``) marks; ``"wrap"``:
            filled with samples of the next epoch; ``"keep"``: short (for validation). All ranks
            have the same number of batches.
        rank, world_size: default: those of torch.distributed if it is initialised, else the
            environment's RANK and WORLD_SIZE, else 0 of 1. They are read again when a loop begins.
            With tensor or pipeline parallelism, pass those of the data-parallel group.
        dtype: dtype of images: ``"uint8"``, ``"float32"``, ``"float16"``, ``"bfloat16"``, or an
            object of torch or NumPy. Default: float32 if normalised, else uint8.
        layout: layout of images: ``"NCHW"`` [B, 3, H, W] or ``"NHWC"`` [B, H, W, 3].
        threads, memory, sandbox: create an engine for this loader with these options. ``memory``
            is in bytes, or text such as ``"2GiB"``. ``sandbox=True`` decodes untrusted images in
            restricted helper processes (see :class:`Engine`).
        on_error: ``"raise"``; or ``"skip"``: replaces a damaged sample by another one, which
            depends only on the position, counts it in ``stats()["substituted"]`` and lists it in
            :attr:`quarantine`. I/O failures of the machine are always raised.
        quarantine: path of a file. Each damaged sample adds a line of JSON (``shard``, ``key``,
            ``offset``, ``status``, ``reason``, ``sample``). With several ranks: ``PATH.rankN``.
        bad_samples_max, bad_share_max: if more samples are damaged, or a larger share of those
            delivered (after the first 1,000), :class:`LimitError` is raised. They count over the
            loader's life, also after :meth:`refresh`. Default: no limit.
        io_retries: retries of a read that fails with a transient error (EIO, ESTALE, ...), after
            0.1 s, 0.2 s, 0.4 s ... Default: 3.
        window: number of blocks (of about 8 MB) that are mixed with each other; with it ``shuffle``
            is ``"block"`` by default. Default: see ``shuffle``; 64 with ``shuffle="block"``.
        groups: number of home groups of blocks, for nodes that cache what they read; with them
            ``shuffle`` is ``"block"`` by default. Default: 1.
        order_version: version of the order, for a run that was begun with an earlier one. Default:
            the newest. Loading a state sets it, too.
        exif: apply the EXIF orientation of images.
        exact: ``True``: pixels equal those of libjpeg-turbo and torchvision. ``False``: baseline
            JPEGs may be resized (bilinear, bicubic) before chroma upsampling and colour conversion,
            which is faster; pixels then differ by about 0.4 of 255 levels on average. Both are
            deterministic. A state can only be loaded with the setting that it was saved with.
        transform: called with each batch; the loop receives its result, which must not be None.
        pin_memory: copy tensors to pinned memory, one batch ahead, in a thread. Ignored without
            CUDA.
        output: ``"torch"``, ``"numpy"``, ``"array"`` (:class:`stoker.ArrayColumn`: DLPack and the
            buffer protocol, without imports) or ``"auto"``: torch if it can be imported, else
            NumPy.
        engine: an :class:`Engine` that several loaders share. Default: the process's engine.
        cache, cache_bytes: create an engine for this loader with this cache: a :class:`Cache`, or
            the folder or folders of one and its quota (``"800GB"``). Objects that were read once
            are then read from these disks; see docs/cache.md.
        batches_ahead: number of prefetched batches. Default: tuned while running.
        no_direct_io: do not use O_DIRECT, because the data are in the page cache.
        timeout: seconds to wait for a batch before :class:`stoker.TimeoutError`. Default: no limit.
        subset: the samples of this run: a predicate over columns (``"label in (3, 7) and size >
            10_000"``; see below), a list of ids or of keys, or a flag for each sample.
        weights: draw with replacement in proportion to a column (``"json.score"``) or to a list
            with a number for each sample of the data set.
        balance: draw so that each value of this column (``"label"``) is equally frequent, and the
            samples of each value in turn.
        replacement: draw with replacement, all samples equally likely.
        repeats: repeat each sample this many times, each time with its own augmentation.
        repeat_distance: positions between the repeats of a sample. Default: 1, in a row;
            ``batch_size * world_size // repeats``: one repeat in each part of a global batch.
        curriculum: pairs (position, subset): the subset that applies from this sample of the run
            on, counted over all epochs and ranks. Each stage begins with a new pass.
        epoch: samples of an epoch, of all ranks. Default: one pass of the subset (of the largest
            stage), including repeats; for draws, the same number.
        tables: values of predicates and columns for all samples are stored in a file beside the
            index: ``"auto"``, ``"never"``, or ``"require"``: an error instead of a scan (``stoker
            sample`` writes the file). See :attr:`tables`. If several ranks of a machine start
            together, one scans and the others use its table.
        worker, worker_count: return only the batches of this rank with ``index % worker_count ==
            worker``, for processes that share a rank. (:class:`stoker.torch.IterableDataset` uses
            this.)
        check: which images are damaged, beside those that cannot be decoded. ``"decoded"``: those
            whose decoder warns about damage in the part that it decodes. A crop is decoded down to
            its last row, so damage below it stays undetected. ``"whole"``: each image is also
            decoded to its end, as ``stoker verify --deep`` does it; decoding then takes up to twice
            the time. ``"tolerant"``: none; warnings are ignored, as PIL ignores them.
        label: with ``image=``: ``"auto"``: batches are pairs of images and labels (see
            :class:`Label`), or images alone for a folder of images without class folders;
            ``"path"``: as ``Label("path")``: the folder of a sample is its class in tars, too;
            ``None``: images alone.
        allow_empty, classes: see :class:`Dataset`. With ``label="path"`` the classes of tars, too.
        pixels_max: pixels of one image; more is a damaged sample.
        decode_bytes_max: memory of one image's decoder, or of one member (npz, JSON, MessagePack)
            when decompressed and parsed; default 1 GiB. More is a :class:`LimitError`.
        index: index of the source, see :class:`Dataset`.
        refresh: ``True``: each epoch begins with the shards that exist at that time (see
            :meth:`refresh`); ``"call"``: only calls of :meth:`refresh` add shards. With either, a
            state that was saved before shards were appended is valid: its epoch continues with the
            shards that it had.

    The columns of a predicate are label, class, size, key, shard, sample, members (``cls``) and
    paths in members (``json.meta.width``). The syntax is Python's; docs/formats.md has the grammar.

    A batch owns its memory until the last tensor that views it is freed, also after :meth:`close`.
    Batches that the caller holds cost additional memory, up to the engine's budget; beyond it,
    :class:`stoker.BudgetError` is raised.

    A loader can be pickled and copied: the copy has its arguments and its position. It opens on
    first use, in the process that uses it.

    Attributes:
        batch_size, rank, world_size, seed, tail: as passed or detected.
        shuffle, window, order_version: as passed, chosen, or loaded with a state.
        dataset: the :class:`Dataset`.
        engine: the :class:`Engine`.
        quarantine: damaged samples found so far, each once, as :class:`BadSample`: at most 10,000,
            in the order of delivery.
        tables: with subset, weights or balance: a dict for each stage (for a Mix: for each source
            that has them), with ``count`` samples selected of ``sample_count``, ``scanned`` (0: a
            table was read), ``scan_ns``, ``table_bytes``, ``table_path`` (None: in memory) and
            ``table_note``.
        mask: with ``tail="pad"``: bool [B] for the last batch, False for padding; else ``None``.
    """

    _native: _stoker.Loader

    def __init__(
        self,
        source: Any,
        batch_size: int = 1,
        *,
        seed: int = 0,
        image: Sequence[Transform] | Transform | None = None,
        fields: dict[str, Field | str] | None = None,
        shuffle: str | None = None,
        tail: str = "drop",
        rank: int | None = None,
        world_size: int | None = None,
        dtype: Any = None,
        layout: str | None = None,
        threads: int | None = None,
        memory: int | str | None = None,
        sandbox: bool = False,
        on_error: str = "raise",
        quarantine: str | os.PathLike[str] | None = None,
        bad_samples_max: int | None = None,
        bad_share_max: float | None = None,
        io_retries: int | None = None,
        window: int | None = None,
        groups: int | None = None,
        order_version: int | None = None,
        exif: bool = False,
        exact: bool = True,
        transform: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        output: str = "auto",
        engine: Engine | None = None,
        cache: Cache | str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
        cache_bytes: int | str | None = None,
        batches_ahead: int | None = None,
        no_direct_io: bool = False,
        timeout: float | None = None,
        check: str = "decoded",
        label: str | None = "auto",
        allow_empty: bool = False,
        classes: Sequence[str] | None = None,
        pixels_max: int | None = None,
        decode_bytes_max: int | str | None = None,
        index: str | os.PathLike[str] = "auto",
        refresh: bool | str = False,
        subset: Any = None,
        weights: Any = None,
        balance: str | None = None,
        replacement: bool = False,
        repeats: int | None = None,
        repeat_distance: int | None = None,
        curriculum: Sequence[tuple[int, Any]] | None = None,
        epoch: int | None = None,
        tables: str = "auto",
        worker: int = 0,
        worker_count: int = 1,
    ) -> None:
        where = "Loader"
        self._store_arguments(
            where,
            batch_size=batch_size,
            seed=seed,
            shuffle=shuffle,
            tail=tail,
            rank=rank,
            world_size=world_size,
            window=window,
            groups=groups,
            order_version=order_version,
            transform=transform,
        )
        workers = count(worker_count, f"{where} worker_count", low=1) or 1
        self._native_options |= {
            **bad_sample_options(
                where,
                on_error=on_error,
                bad_samples_max=bad_samples_max,
                bad_share_max=bad_share_max,
                io_retries=io_retries,
            ),
            "batches_ahead": count(batches_ahead, f"{where} batches_ahead", low=1),
            "image_check": word(check, IMAGE_CHECKS, f"{where} check"),
            "pixels_max": count(pixels_max, f"{where} pixels_max", low=1, high=2**63),
            "decode_bytes_max": parse_bytes(decode_bytes_max, f"{where} decode_bytes_max"),
            "no_direct_io": int(bool(no_direct_io)),
            "worker_count": workers,
            "worker": count(worker, f"{where} worker", high=workers - 1),
        }
        if quarantine is not None:
            self._native_options["quarantine"] = paths_of([quarantine])[0]
        self._refresh = self._refreshes(refresh, workers)
        self._timeout_ms = milliseconds(timeout, f"{where} timeout")
        self._output_word = check_word(output)
        self._pin = pin_memory
        self._pair = fields is None
        self._label = label
        if label not in ("auto", "path", None) or (fields is not None and label != "auto"):
            raise ArgumentError(
                f"label={label!r} cannot be used" + (" with fields=" if fields is not None else ""),
                where,
                "pass 'auto', 'path' or None beside image=; in fields use stoker.Label('path')",
            )
        defaults = Image(None, [], dtype, layout, exif, exact)
        self._native_fields = self._columns(image, fields, defaults)
        self._exact = all_exact(fields, exact)
        self._past = PastStats()
        draws, run = (weights, balance, replacement), (repeats, repeat_distance, epoch)
        self._sampling = Sampling(subset, curriculum, draws, run, tables)
        if (isinstance(source, Mix) or self._sampling.is_there) and self._refresh:
            raise ArgumentError(
                "refresh= with a Mix or chosen samples is not supported",
                where,
                "make another Loader",
            )
        if isinstance(source, (Mix, Mixed)) and self._sampling.is_there:
            raise ArgumentError(
                "subset=, weights= and the like do not apply to a Mix",
                where,
                "pass them to its sources: stoker.Source(path, subset=...)",
            )
        own: dict[str, Any] = {"threads": threads, "memory": memory, "sandbox": sandbox or None}
        own |= {"cache": cache, "cache_bytes": cache_bytes}
        own = {name: value for name, value in own.items() if value is not None}
        self._dataset_options: dict[str, Any] = {
            "allow_empty": allow_empty,
            "classes": classes,
            "skip_files": on_error == "skip",
        }
        self._open(source, engine, own, index)

    # ---- opening ----

    def _refreshes(self, refresh: bool | str, workers: int) -> bool | str:
        where = f"Loader refresh={refresh!r}"
        if refresh not in (False, True, "call"):
            raise ArgumentError("unknown value of refresh", where, "pass True, False or 'call'")
        if refresh is True and self.world_size * workers > 1:
            raise ArgumentError(
                "ranks and workers would not see the same shards",
                where,
                "pass 'call', and call refresh(shard_count=) with the same number on all of them",
            )
        if refresh and self.tail == "wrap":
            raise ArgumentError(
                "tail='wrap' needs samples of the next epoch, which are not known yet",
                where,
                "use another tail",
            )
        return refresh

    def _columns(
        self,
        image: Sequence[Transform] | Transform | None,
        fields: dict[str, Field | str] | None,
        defaults: Image,
    ) -> tuple[Any, ...]:
        """Sets self._fields; returns the fields as _stoker.Loader parses them."""
        if fields is None:
            fields = {"image": Image(None, image or [])}
            if self._label is not None:
                fields["label"] = Label("path" if self._label == "path" else None)
        elif image is not None:
            raise ArgumentError(
                "image= cannot be combined with fields=",
                "Loader",
                "put the transforms in fields: Image('jpg', [...])",
            )
        elif not isinstance(fields, dict):
            raise ArgumentError(
                f"fields {fields!r} is not a dict", "Loader", "pass a dict from name to field"
            )
        native: list[Any] = []
        self._fields: list[Column] = []
        labels = [field for field in fields.values() if isinstance(field, Label)]
        self._labelled = bool(labels)
        self._by_path = any(field.by_path for field in labels)
        for name, field in resolve(fields).items():
            if field._kind == 0:
                self._fields.append(Column(name, field, -1))
            else:
                self._fields.append(Column(name, field, len(native)))
                native.append(field._native(name, defaults))
                extra = field._extra(name)
                if extra is not None:
                    self._fields[-1].labels = len(native)
                    native.append(extra)
        return tuple(native)

    def _open(
        self,
        source: Any,
        engine: Engine | None,
        own: dict[str, Any],
        index: str | os.PathLike[str],
    ) -> None:
        if source is UNOPENED:
            return
        if own and engine is not None:
            raise ArgumentError(
                f"engine= cannot be combined with {', '.join(own)}=",
                "Loader",
                "pass threads, memory, sandbox and cache to the Engine",
            )
        if isinstance(source, Mixed):
            self._mixed = source.copy()
            source = source.dataset
        if isinstance(source, Dataset):
            if own or engine not in (None, source.engine):
                raise ArgumentError(
                    "engine= differs from the Dataset's engine",
                    "Loader",
                    "pass engine= to the Dataset",
                )
            if index != "auto":
                raise ArgumentError(
                    "index= cannot be combined with a Dataset", "Loader", "pass it to the Dataset"
                )
            self.dataset, self.engine = source, source.engine
        else:
            if own:
                engine = Engine(**own)
                self._owned.append(engine)
            self.engine = engine_of(engine, "Loader")
            try:
                if isinstance(source, Mix):
                    self._mixed = Mixed.of(source, self.engine, index)
                    self._owned.append(self._mixed)
                    self.dataset = self._mixed.dataset
                else:
                    self.dataset = Dataset(
                        source, engine=self.engine, index=index, **self._dataset_options
                    )
                    self._owned.append(self.dataset)
            except BaseException:
                self._close_owned()
                raise
        try:
            if len(self.dataset) == 0:
                raise EmptyError(
                    "the data set has no samples",
                    f"source {source!r}",
                    "list it with 'stoker ls'; the base name of a sample's file must contain a dot",
                )
            is_folder = self.dataset.kind == "imagefolder"
            self._by_path = self._by_path and not is_folder
            if self._pair and self._label == "auto" and is_folder and not self.dataset.classes:
                self._fields, self._native_fields = self._fields[:1], self._native_fields[:1]
                self._labelled = False
            if self._mixed is not None and self._labelled and not self._by_path:
                self._mixed.check_labels()
            self._native = self._load(self.dataset)
        except BaseException:
            self._close_owned()
            raise
        self._reset()
        _open_loaders.add(self)

    def _load(self, dataset: Dataset, width: int | None = None, **more: Any) -> _stoker.Loader:
        """width: number of sources of the mix to use, from the first."""
        options = self._native_options | more
        if self._mixed is not None:
            options |= self._mixed.native(self._step, width)
        if self._sampling.is_there:
            options["sampling"] = self._sampling.native(dataset)
        return _stoker.Loader(dataset._native, self._native_fields, **options)

    def _reopen(self, width: int | None = None, state: tuple[Any, ...] = ()) -> _stoker.Loader:
        dataset = self.dataset
        if width is not None and self._mixed is not None:
            dataset = self._mixed.part(width, state)
        try:
            return self._load(dataset, width, continues_from=self._native)
        finally:
            if dataset is not self.dataset:
                dataset.close()

    def _replace(self, native: _stoker.Loader) -> None:
        self._past.add(self._native)
        super()._replace(native)

    def _change(self, dataset: Dataset) -> None:
        """Continues with another data set, at the start of an epoch."""
        native = self._load(dataset, continues_from=self._native)
        native.set_epoch(self._epoch)
        # The fingerprint continues, as the run does, and so do settings that a state has set.
        state, before = list(native.state()), self._native.state()
        for place in (ORDER_VERSION, SHUFFLE, WINDOW, FINGERPRINT):
            state[place] = before[place]
        native.set_state(tuple(state))
        self._replace(native)
        if self.dataset in self._owned:
            self._owned.remove(self.dataset)
            self.dataset.close()
        self._owned.append(dataset)
        self.dataset = dataset

    def _reload(self) -> None:
        self._refreshes(self._refresh, 1)
        super()._reload()

    # ---- iterating: see LoaderBase ----

    def _next_native(self) -> _stoker.Batch | None:
        try:
            return self._native.next(self._timeout_ms)
        except BudgetError:
            gc.collect()  # frees batches that reference cycles keep
            return self._native.next(self._timeout_ms)

    def _convert_batch(self, batch: _stoker.Batch, output: str, convert: Convert) -> Any:
        values = [column.take(batch, output, convert, self.dataset) for column in self._fields]
        if self._pair:
            return tuple(values) if len(values) > 1 else values[0]
        return {column.name: v for column, v in zip(self._fields, values, strict=True)}

    def _before_epoch(self) -> None:
        if self._refresh is True and self._is_at_start():
            self.refresh()

    # ---- epochs and states ----

    def _is_at_start(self) -> bool:
        return not self._started and self._native.position()[1] == 0

    def refresh(self, shard_count: int | None = None) -> int:
        """Adds the shards that were appended to the data set; returns the number of shards.

        Call it between epochs: an epoch has the shards that existed when it began, and its states
        belong to those. Appended tars are those listed after all present ones. With several ranks,
        all call it with the same ``shard_count``: the number that one of them returned.

        Raises:
            ChangedError: see :meth:`Dataset.refresh`.
            StateError: the loader is in the middle of an epoch.
        """
        self._check_open()
        if self.tail == "wrap" or not self._is_at_start():
            raise StateError(
                "the loader is in the middle of an epoch"
                if self.tail != "wrap"
                else "with tail='wrap' an epoch begins before the last one ends",
                "refresh",
                "call it between epochs, with another tail than 'wrap'",
            )
        newer = self.dataset.refresh(shard_count)
        if newer is not self.dataset:
            self._change(newer)
        return self.dataset.shard_count

    def _more_state(self) -> dict[str, Any]:
        return exactness(self._exact)

    def _check_state(self, state: dict[str, Any]) -> None:
        check_exactness(state, self._exact)

    def _before_state(self, values: tuple[Any, ...]) -> None:
        if self._refresh:
            dataset = self.dataset._as_of(values)
            if dataset is not self.dataset:
                self._change(dataset)

    def explain(
        self, step: int, *, epoch: int | None = None, rank: int | str | None = None
    ) -> list[ScheduledSample]:
        """The samples of a step, for example of the batch where the loss jumped.

        Reads nothing. Steps count from the first batch of the epoch, for the batch size and number
        of ranks of this loader.

        Args:
            step: index of the batch.
            epoch: default: the present epoch.
            rank: default: this rank; ``"all"``: the complete global batch.
        """
        self._check_open()
        self._update_rank()
        epoch = self._epoch if epoch is None else epoch
        mix = None if self._mixed is None else self._mixed.native(self._step)["mix"]
        where = epoch, step, self.rank if rank is None else rank
        return explain(self._native, self.dataset, where, mix)

    def mixing(self, labels: Sequence[Any] | None = None) -> dict[str, Any]:
        """How the order mixes classes, beside a full permutation of the same samples (``full_``),
        of the next seed if the order is a full shuffle itself.

        Measured on up to 200 steps of epoch 0, in about a second; reads labels only.

        Args:
            labels: a label for each sample of the data set, in storage order. Default: the classes
                of a folder; of tars their members ``cls``. Samples whose ``cls`` has more than
                4,096 bytes count as one class; ``note`` has their number.

        Returns:
            ``batch_classes``: different classes in a batch, on average; ``batch_classes_min``;
            ``batch_share_max``: largest share of one class in a batch; ``run_max``: longest run of
            one class; ``classes_of_20_steps_min``; ``chi_square``: of classes by eighth of the
            epoch, divided by its degrees of freedom (1 if positions do not depend on classes);
            ``better_window``: a window with 95 % of the classes of a full permutation (0: not
            needed, or none), with ``better_batch_classes`` and ``better_bytes``; and ``note``, all
            of this in a line.

        Raises:
            MissingError: the samples have no labels.
        """
        self._check_open()
        numbers: array[int] | None = None
        if labels is not None:
            found: dict[Any, int] = {}
            numbers = array("q", (found.setdefault(label, len(found)) for label in labels))
        mix = None if self._mixed is None else self._mixed.native(self._step)["mix"]
        return dict(self._native.mixing(self.dataset._native, numbers, mix))

    @property
    def note(self) -> str:
        """The order in a line, and how it mixes classes, if reading labels costs little: class
        folders, and tars on local disks with members ``cls``."""
        order = f"{self.shuffle} shuffle"
        if self.shuffle == "block":
            order += f", window={self.window}"
        info = self.dataset._native.info()
        if not info["class_count"] and not info["random_reads_free"]:
            return order
        try:
            return f"{order}; {self.mixing()['note']}"
        except (MissingError, UnsupportedError, ArgumentError):
            return order

    # ---- the rest ----

    @property
    def classes(self) -> list[str]:
        """Names of the classes; a label is an index into them."""
        return self.dataset._native.path_classes() if self._by_path else self.dataset.classes

    @property
    def tables(self) -> list[dict[str, Any]]:
        return self._sampling.info() if self._mixed is None else self._mixed.tables

    @property
    def quarantine(self) -> list[BadSample]:
        return [BadSample(*entry) for entry in self._native.quarantine()]

    def stats(self) -> dict[str, Any]:
        """Counters and times of the loader, as a dict.

        * ``batches``, ``samples``, ``bytes``: delivered.
        * ``substituted``: samples replaced under ``on_error="skip"``; ``bad_samples``: distinct
          damaged samples; ``retries``: retries of reads.
        * ``wait_share``: share (0 to 1) of the time since the first request for a batch in which
          the training loop waited for data.
        * ``run_seconds``, ``wait_seconds``, ``first_batch_seconds`` (since opening); and
          sums over all threads: ``read_seconds``, ``decode_seconds``, ``lock_wait_seconds``,
          ``ahead_seconds`` (no work: enough batches are ahead of the training loop),
          ``storage_wait_seconds`` (no work: bytes are awaited from a disk, a network or a store),
          ``idle_seconds`` (both). ``samples_per_second``.
        * ``warm_reads``, ``cold_reads``: samples read from and not from the page cache;
          ``io_requests`` of the engine, and their ``io_bytes``, including gaps between samples.
        * ``memory_bytes_peak`` of the engine; ``threads`` and ``batches_ahead``: present values of
          the tuning.
        * ``fingerprint``: hash of the samples that the order scheduled for all ranks so far (16
          digits, also in the state): ranks and runs with equal fingerprints had the same samples.
        * ``jpegs``: number decoded by ``stoker``, of these from an entry point (``marked``) and
          resized before colour conversion (``planar``), and by libjpeg-turbo for each reason;
          ``pngs``: number decoded by ``stoker`` and by ``libpng`` (interlaced, damaged or unusual).
        * ``exact``: the setting.
        * ``store``: requests of the engine to object stores (:meth:`Engine.store_stats`).
        * ``cache``: counters of its cache (:meth:`Engine.cache_stats`); None without one.
        * ``fsspec``: None, or requests of this process to fsspec by protocol (``requests``,
          ``lists``, ``bytes``, ``seconds`` of all threads), and a ``note`` that fsspec is slower.
        """
        native = self._past.sum(self._native.stats())
        stats: dict[str, Any] = {"jpegs": {}, "pngs": {}}
        for name, value in native.items():
            kind, _, who = name.partition(" ")
            if who:
                stats[kind] |= {who: value} if value else {}
            elif name.endswith("_ns"):
                stats[name.removesuffix("_ns") + "_seconds"] = value / 1e9
            else:
                stats[name] = value
        stats["exact"] = self._exact
        stats["fingerprint"] = self.state_dict()["fingerprint"]
        stats["store"] = self.engine.store_stats()
        stats["cache"] = self.engine.cache_stats()
        stats["fsspec"] = fsspec_source.stats()
        run = stats["run_seconds"]
        stats["wait_share"] = min(1.0, stats["wait_seconds"] / run) if run > 0 else 0.0
        stats["samples_per_second"] = stats["samples"] / run if run > 0 else 0.0
        return stats

    def __del__(self, _is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not getattr(self, "_closed", True) and not _is_ending():  # _close_all closed it
            self.close()

    def __repr__(self) -> str:
        return (
            f"<stoker.Loader of {self.dataset!r}, batches of {self.batch_size}, "
            f"rank {self.rank} of {self.world_size}>"
        )

    def _pickled_arguments(self) -> Arguments:
        args, options = super()._pickled_arguments()
        source = args[0] if args else options.get("source")
        if isinstance(source, Dataset):  # refresh() may have replaced it
            return ((self.dataset, *args[1:]), {n: v for n, v in options.items() if n != "source"})
        return args, options


_open_loaders: weakref.WeakSet[Loader] = weakref.WeakSet()


def _close_all() -> None:
    for loader in list(_open_loaders):
        loader.close()


atexit.register(_close_all)
