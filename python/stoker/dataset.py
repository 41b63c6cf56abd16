"""Dataset: the samples of a folder or of tars."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from . import _stoker, fsspec_source
from ._options import (
    FOREIGN_INDEXES,
    ON_ERRORS,
    count,
    index_words,
    interruptible,
    parse_bytes,
    paths_of,
    word,
)
from .engine import Engine, engine_of
from .pickling import Portable

__all__ = ["BadSample", "Dataset", "Member", "Sample"]


class BadSample(NamedTuple):
    """A damaged sample: that a loader met, that ``pack`` left out, or that a data set lacks."""

    shard: str
    key: str
    offset: int | None  # in the shard
    status: int
    name: str  # of the status: "STOKER_ERROR_CORRUPT"
    reason: str
    sample: int | None  # its id; None: it has none


class Member(NamedTuple):
    """One file of a sample."""

    shard: str
    """Path of the tar, or of the file itself."""
    extension: str
    """Lower case, without the first dot: ``"jpg"``, ``"left.jpg"``."""
    offset: int
    """Where its data begin in the (unpacked) shard, in bytes."""
    bytes: int | None
    """Its size; ``None``: the whole file, not asked."""


class Sample(NamedTuple):
    """A sample as it lies in the data set."""

    key: str
    members: list[Member]


class Dataset(Portable):
    """The samples of a class folder (torchvision's ImageFolder) or of tars (WebDataset).

    Opening reads headers only, in parallel; with an index (see :func:`stoker.index`) not even
    those. It may be shared by loaders.

    Args:
        source: a folder, a tar, a glob, braces (``"train-{000..099}.tar"``), a JSON of wids that
            lists tars, or a list of them.
        engine: default: the process's.
        key_bytes_max: longest key. header_bytes_max: longest tar name or PAX block.
        member_gap_max: members that may lie between two parts of one sample.
        decompressed_bytes_max, decompression_ratio_max: bounds of a compressed shard.
        block_bytes: aim for a block of the order. Default: 8 MiB, or what the index says.
        index: ``"auto"``: what of an index is fresh is used, the rest is read; ``"never"``; or
            ``"require"``: :class:`ChangedError` names what differs from the index, and nothing is
            read. Or the path of the index file, used as with ``"auto"``. Default place:
            ``stoker.index`` beside the data, then one in the cache.
        foreign_index: ``"auto"``: what DALI's ``wds2idx`` tells of a shard is used instead of
            reading its headers, and proved whenever a sample is read; from where Energon's
            ``.tar.idx`` says that samples begin, headers are read side by side, which proves it;
            or ``"never"``.
        segment_cache_bytes: unpacked pieces that are kept of compressed shards with access points
            (``stoker.index(seek_points=...)``), within the budget. Default: 512 MiB, a quarter of
            the budget at most.
        on_error: ``"raise"``; or ``"skip"``: of a tar whose headers are damaged, or that ends
            early, the samples that are surely whole are taken, and the rest is in
            :attr:`quarantine`. For :func:`stoker.pack`, which writes what is left; all that share
            an order must see the same damage.
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
    ) -> None:
        where = "Dataset"
        self.engine = engine_of(engine, where)
        native, urls = self.engine._native, fsspec_source.native_paths(paths_of(source))
        options: dict[str, Any] = {
            "key_bytes_max": count(key_bytes_max, f"{where} key_bytes_max", low=1),
            "header_bytes_max": parse_bytes(header_bytes_max, f"{where} header_bytes_max"),
            "member_gap_max": count(member_gap_max, f"{where} member_gap_max"),
            "decompressed_bytes_max": parse_bytes(
                decompressed_bytes_max, f"{where} decompressed_bytes_max"
            ),
            "decompression_ratio_max": count(
                decompression_ratio_max, f"{where} decompression_ratio_max", low=1
            ),
            "block_bytes": parse_bytes(block_bytes, f"{where} block_bytes"),
            **index_words(index, f"{where} index"),
            "foreign_index": word(foreign_index, FOREIGN_INDEXES, f"{where} foreign_index"),
            "segment_cache_bytes": parse_bytes(segment_cache_bytes, f"{where} segment_cache_bytes"),
            "on_error": word(on_error, ON_ERRORS, f"{where} on_error"),
        }
        self._take(interruptible(lambda: _stoker.Dataset(native, urls, **options)))

    def _take(self, native: _stoker.Dataset) -> None:
        self._native = native
        self._info = native.info()
        self._classes: list[str] | None = None

    def _like(self, native: _stoker.Dataset) -> Dataset:
        """Another data set of this one's engine."""
        other = object.__new__(Dataset)
        other.engine, other._given = self.engine, self._given
        other._take(native)
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
        """Of all members; 0 for a folder, whose files are not asked."""
        return int(self._info["bytes"])

    @property
    def block_samples(self) -> int:
        """Samples of a block of the order."""
        return int(self._info["block_samples"])

    @property
    def sequential(self) -> bool:
        """Whether shards are compressed and without access points: read front to back, in shard
        order."""
        return bool(self._info["sequential"])

    @property
    def identity(self) -> str:
        """Hash of names, sizes and members: 64 hexadecimal digits."""
        return str(self._info["identity"].hex())

    @property
    def index_path(self) -> str | None:
        """The index file that was used; ``None``: none was."""
        path = self._info["index_path"]
        return None if path is None else str(path)

    @property
    def index_note(self) -> str:
        """Why an index was not, or not wholly, used; or empty."""
        return str(self._info["index_note"] or "")

    @property
    def shards_indexed(self) -> int:
        """Shards (of a folder: files) that the index told of: nothing of them was read."""
        return int(self._info["shards_indexed"])

    @property
    def quarantine(self) -> list[BadSample]:
        """Under ``on_error="skip"``: places of damage in tars whose headers were read, and samples
        that are not here for it. Damage in a member's own bytes is not looked for."""
        return [BadSample(*entry) for entry in self._native.quarantine()]

    @property
    def shards_foreign(self) -> int:
        """Shards that indexes of other tools told of: their headers are read with the samples."""
        return int(self._info["shards_foreign"])

    @property
    def foreign_note(self) -> str:
        """Why such an index was not used, or what a JSON of wids has otherwise; or empty."""
        return str(self._info["foreign_note"] or "")

    @property
    def jpeg_index_mcus(self) -> int | None:
        """MCUs from one mark of its JPEGs to the next (``stoker index --jpeg-index``); 0: one a row
        of them; ``None``: no marks are used."""
        mcus = self._info["marks"]
        return None if mcus is None else int(mcus)

    @property
    def jpeg_index_note(self) -> str:
        """Why marks that are there are not used; or empty."""
        return str(self._info["marks_note"] or "")

    def refresh(self, shard_count: int | None = None) -> Dataset:
        """The data set with the shards that were appended since it was opened, as another one;
        itself if there are none.

        Appended are tars listed behind all that it has. Only they are read, and blocks of the
        order keep their size. Of a folder of pictures: :class:`UnsupportedError`.

        Args:
            shard_count: that many shards in all, so that all ranks take the same.
        Raises:
            ChangedError: a shard that it has was changed or is gone, another stands before it, or
                fewer than ``shard_count`` are there.
        """
        number = count(shard_count, "refresh shard_count", low=1)
        newer = interruptible(lambda: self._native.refresh(number))
        return self if newer is None else self._like(newer)

    def _as_of(self, state: tuple[Any, ...]) -> Dataset:
        part = self._native.as_of(state)
        return self if part is None else self._like(part)

    @property
    def classes(self) -> list[str]:
        """Names of the classes of a folder, sorted; a label is an index into them."""
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
        """A member's bytes; of the first member if no extension is given."""
        number = self._index(index)
        if extension is None:
            extension = self.sample(number).members[0].extension
        return self._native.read(number, extension)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """``{"__key__": key, extension: bytes, ...}``, as webdataset gives it."""
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
        """Lets go; loaders keep what they use."""
        self._native.close()

    def __enter__(self) -> Dataset:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<stoker.Dataset {self.kind}, {len(self)} samples, {self.shard_count} shards>"

    def _standing(self) -> Any:
        return self._info["sample_count"], self._info["block_samples"], self._info["identity"]

    def _arrive(self, standing: Any) -> None:
        """Shards that were appended since are left out; other changes are refused."""
        samples, block_samples, identity = standing
        part = self._native.as_of((*[0] * 8, samples, block_samples, *[0] * 7, identity))
        if part is not None:
            self._take(part)
