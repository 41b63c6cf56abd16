"""Dataset: the samples of a folder or of tars."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from . import _stoker, fsspec_source
from ._options import (
    FOREIGN_INDEXES,
    ON_ERRORS,
    class_names,
    count,
    decompression_limits,
    index_words,
    interruptible,
    parse_bytes,
    paths_of,
    sample_limits,
    word,
)
from .engine import Engine, engine_of
from .pickling import Portable

__all__ = ["BadSample", "Dataset", "Member", "Sample"]


class BadSample(NamedTuple):
    """A damaged sample, found by a loader, by ``pack`` or by a data set."""

    shard: str
    key: str
    offset: int | None  # in the shard
    status: int
    name: str  # name of the status: "STOKER_ERROR_CORRUPT"
    reason: str
    sample: int | None  # its id; None: it has no id


class Member(NamedTuple):
    """One file of a sample."""

    shard: str
    """Path of the tar, or of the file."""
    extension: str
    """Lower case, without the first dot: ``"jpg"``, ``"left.jpg"``."""
    offset: int
    """Offset of its data in the (decompressed) shard, in bytes."""
    bytes: int | None
    """Its size; ``None``: the complete file, whose size was not read."""


class Sample(NamedTuple):
    """A sample as it is stored in the data set."""

    key: str
    members: list[Member]


class Dataset(Portable):
    """The samples of a class folder (torchvision's ImageFolder) or of tars (WebDataset).

    Opening reads the headers of members in parallel; with an index (see :func:`stoker.index`) it
    reads none. Several loaders and threads may share a data set.

    Args:
        source: a folder, a tar, a glob, braces (``"train-{000..099}.tar"``), a JSON file of wids
            that lists tars, or a list of them.
        engine: default: the process's engine.
        key_bytes_max: longest key, in bytes.
        header_bytes_max: longest tar name or PAX block, in bytes.
        member_gap_max: most members of other samples between two members of one sample.
        decompressed_bytes_max, decompression_ratio_max: limits of a compressed shard.
        block_bytes: target size of a block of the order. Default: 8 MiB, or the value in the index.
        index: ``"auto"``: uses the entries of an index that are up to date, and reads the other
            shards; ``"never"``; or ``"require"``: raises :class:`ChangedError` with the differences
            instead of reading shards. Or the path of an index file, used as with ``"auto"``.
            Default path: ``stoker.index`` in the folder of the data, else one in the cache.
        foreign_index: ``"auto"``: uses DALI's ``wds2idx`` files instead of reading headers, and
            verifies them when samples are read; uses Energon's ``.tar.idx`` files to read headers
            in parallel, which verifies them; or ``"never"``.
        segment_cache_bytes: cache of decompressed segments of shards with seek points
            (``stoker.index(seek_points=...)``), within the memory budget. Default: 512 MiB, at most
            a quarter of the budget.
        on_error: ``"raise"``; or ``"skip"``: from a tar with damaged headers, or that ends early,
            uses the samples that are certainly complete, and lists the others in
            :attr:`quarantine`. Meant for :func:`stoker.pack`, which writes the remaining samples:
            all processes that share an order must see the same damage.
        allow_empty: class folders without images are allowed; with classes they always are.
        classes: names of the class folders in the order of their numbers, so that a split has the
            numbers of its training set (``classes=train.classes``). Default: the folders, sorted. A
            folder that is not named raises :class:`ArgumentError`.
        skip_files: leaves out files of a folder that cannot be read (links to nothing, pipes) and
            allows empty class folders; ``stoker verify`` lists them. A Loader with
            ``on_error="skip"`` sets it.

    Raises:
        FileNotFoundError: a path does not exist.
        EmptyError: there are no tars or images.
        FormatError, CorruptError, TruncatedError: a shard is damaged; the error has shard and
            offset.
        ChangedError: with ``index="require"``: the index is not up to date.
    """

    def __init__(
        self,
        source: Any,
        *,
        engine: Engine | None = None,
        key_bytes_max: int | None = None,
        header_bytes_max: int | str | None = None,
        member_gap_max: int | None = None,
        decompressed_bytes_max: int | str | None = None,
        decompression_ratio_max: int | None = None,
        block_bytes: int | str | None = None,
        index: str | os.PathLike[str] = "auto",
        foreign_index: str = "auto",
        segment_cache_bytes: int | str | None = None,
        on_error: str = "raise",
        allow_empty: bool = False,
        classes: Sequence[str] | None = None,
        skip_files: bool = False,
    ) -> None:
        where = "Dataset"
        self.engine = engine_of(engine, where)
        native, urls = self.engine._native, fsspec_source.native_paths(paths_of(source))
        options: dict[str, Any] = {
            **sample_limits(
                where,
                key_bytes_max=key_bytes_max,
                header_bytes_max=header_bytes_max,
                member_gap_max=member_gap_max,
            ),
            **decompression_limits(
                where,
                decompressed_bytes_max=decompressed_bytes_max,
                decompression_ratio_max=decompression_ratio_max,
            ),
            "block_bytes": parse_bytes(block_bytes, f"{where} block_bytes"),
            **index_words(index, f"{where} index"),
            "foreign_index": word(foreign_index, FOREIGN_INDEXES, f"{where} foreign_index"),
            "segment_cache_bytes": parse_bytes(segment_cache_bytes, f"{where} segment_cache_bytes"),
            "on_error": word(on_error, ON_ERRORS, f"{where} on_error"),
            "allow_empty": bool(allow_empty),
            "skip_files": bool(skip_files),
        }
        if classes is not None:
            options["classes"] = class_names(classes, f"{where} classes")
        self._set_native(interruptible(lambda: _stoker.Dataset(native, urls, **options)))

    def _set_native(self, native: _stoker.Dataset) -> None:
        self._native = native
        self._info = native.info()
        self._classes: list[str] | None = None

    def _wrap(self, native: _stoker.Dataset) -> Dataset:
        """Another data set with the engine of this one."""
        other = object.__new__(Dataset)
        other.engine, other._arguments = self.engine, self._arguments
        other._set_native(native)
        return other

    @property
    def kind(self) -> str:
        """``"imagefolder"`` or ``"webdataset"``."""
        return str(self._info["kind"])

    @property
    def shard_count(self) -> int:
        return int(self._info["shard_count"])

    @property
    def member_count(self) -> int:
        return int(self._info["member_count"])

    @property
    def bytes(self) -> int:
        """Bytes of all members; 0 for a folder, where file sizes are not read."""
        return int(self._info["bytes"])

    @property
    def block_samples(self) -> int:
        """Samples in a block of the order."""
        return int(self._info["block_samples"])

    @property
    def sequential(self) -> bool:
        """True if shards are compressed without seek points: they are read front to back, in shard
        order."""
        return bool(self._info["sequential"])

    @property
    def identity(self) -> str:
        """Hash of names, sizes and members: 64 hexadecimal digits."""
        return str(self._info["identity"].hex())

    @property
    def index_path(self) -> str | None:
        """Path of the index file in use; ``None``: no index is used."""
        path = self._info["index_path"]
        return None if path is None else str(path)

    @property
    def index_note(self) -> str:
        """The reason why an index was not used, or only in part; or empty."""
        return str(self._info["index_note"] or "")

    @property
    def shards_indexed(self) -> int:
        """Number of shards (of a folder: files) that the index describes, so they were not read."""
        return int(self._info["shards_indexed"])

    @property
    def skipped(self) -> dict[str, int]:
        """Files and members that are part of no sample, of the shards that were read when this was
        opened: ``system`` (left by operating systems and notebooks), ``links`` (symbolic, or
        without their target), ``special`` (devices, pipes), ``unnamed`` (no key or extension).
        ``stoker verify`` names them."""
        return dict(self._info["skipped"])

    @property
    def quarantine(self) -> list[BadSample]:
        """With ``on_error="skip"``: damaged places in tars whose headers were read, and the samples
        that are missing for it. Contents of members are not checked."""
        return [BadSample(*entry) for entry in self._native.quarantine()]

    @property
    def shards_foreign(self) -> int:
        """Number of shards described by indexes of other tools."""
        return int(self._info["shards_foreign"])

    @property
    def foreign_note(self) -> str:
        """The reason why such an index was not used, or differences to a JSON of wids; or empty."""
        return str(self._info["foreign_note"] or "")

    @property
    def jpeg_index_mcus(self) -> int | None:
        """MCUs between two entry points of its JPEGs (``stoker index --jpeg-index``); 0: one entry
        point for each row of MCUs; ``None``: no JPEG index is used."""
        mcus = self._info["marks"]
        return None if mcus is None else int(mcus)

    @property
    def jpeg_index_note(self) -> str:
        """The reason why an existing JPEG index is not used; or empty."""
        return str(self._info["marks_note"] or "")

    def refresh(self, shard_count: int | None = None) -> Dataset:
        """A data set that includes the tars appended since this one was opened; this data set if
        there are none.

        Appended tars are those listed after all present ones. Only they are read, and blocks of the
        order keep their size. A folder of images raises :class:`UnsupportedError`.

        Args:
            shard_count: total number of shards, so that all ranks use the same.

        Raises:
            ChangedError: a present shard was changed or removed, another one is listed before it,
                or there are fewer than ``shard_count``.
        """
        number = count(shard_count, "refresh shard_count", low=1)
        newer = interruptible(lambda: self._native.refresh(number))
        return self if newer is None else self._wrap(newer)

    def _as_of(self, state: tuple[Any, ...]) -> Dataset:
        part = self._native.as_of(state)
        return self if part is None else self._wrap(part)

    @property
    def classes(self) -> list[str]:
        """Names of the classes, sorted; a label is an index into them."""
        if self._classes is None:
            self._classes = self._native.classes()
        return list(self._classes)

    @property
    def class_to_idx(self) -> dict[str, int]:
        """torchvision's name for the index of each class."""
        return {name: index for index, name in enumerate(self.classes)}

    def __len__(self) -> int:
        return int(self._info["sample_count"])

    def sample(self, index: int) -> Sample:
        """Key and members of a sample; a negative index counts from the end."""
        key, members = self._native.sample(self._index(index))
        return Sample(key, [Member(*member) for member in members])

    def read(self, index: int, extension: str | None = None) -> Any:
        """The bytes of a member; without ``extension``, of the first one."""
        number = self._index(index)
        if extension is None:
            extension = self.sample(number).members[0].extension
        return self._native.read(number, extension)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """``{"__key__": key, extension: bytes, ...}``, as webdataset returns it."""
        number = self._index(index)
        sample = self.sample(number)
        members = {m.extension: self._native.read(number, m.extension) for m in sample.members}
        return {"__key__": sample.key, **members}

    def _index(self, index: int) -> int:
        number = index.__index__()
        if number < 0:
            number += len(self)
        if not 0 <= number < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        return number

    def close(self) -> None:
        """Closes it. Loaders keep the parts that they use."""
        self._native.close()

    def __enter__(self) -> Dataset:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<stoker.Dataset {self.kind}, {len(self)} samples, {self.shard_count} shards>"

    def _pickled_state(self) -> Any:
        return self._info["sample_count"], self._info["block_samples"], self._info["identity"]

    def _restore(self, saved: Any) -> None:
        """Leaves out shards that were appended since; rejects other changes."""
        samples, block_samples, identity = saved
        part = self._native.as_of((*[0] * 8, samples, block_samples, *[0] * 7, identity))
        if part is not None:
            self._set_native(part)
