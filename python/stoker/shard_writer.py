"""ShardWriter: writes samples of a program one by one."""

from __future__ import annotations

import io
import json
import numbers
import os
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from . import _stoker
from ._options import parse_bytes, path_of, refuse_pickle
from .engine import Engine, engine_of
from .errors import ArgumentError
from .packing import pattern_name

__all__ = ["ShardWriter", "encode"]

_PICTURES = {"jpg": "JPEG", "jpeg": "JPEG", "png": "PNG", "webp": "WEBP"}
_QUALITY = 95  # of images that are encoded here, except PNG


def _plain(value: Any) -> Any:
    """Converts types that json does not support: numbers and arrays of NumPy, dates, and others."""
    for name in ("tolist", "isoformat"):
        if hasattr(value, name):
            return getattr(value, name)()
    raise TypeError(f"a {type(value).__name__} cannot be written as JSON")


def _json(value: Any) -> bytes:
    if isinstance(value, str):
        json.loads(value)  # as in webdataset, text must be JSON; else a ValueError
        return value.encode()
    text = json.dumps(
        value, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_plain
    )
    return text.encode()


def _array(value: Any, kind: str) -> bytes:
    import numpy as np

    if isinstance(value, str):
        raise TypeError("text is not an array")
    stream = io.BytesIO()
    if kind == "npy":
        np.lib.format.write_array(stream, np.asarray(value), allow_pickle=False)
        return stream.getvalue()
    arrays: dict[str, Any] = {
        name: np.asarray(array)
        for name, array in (value if isinstance(value, Mapping) else {"arr_0": value}).items()
    }
    if any(array.dtype.hasobject for array in arrays.values()):
        raise ValueError("an array of objects would need pickle")  # savez has no allow_pickle
    np.savez(stream, **arrays)
    return stream.getvalue()


def _picture(value: Any, kind: str) -> bytes:
    if not hasattr(value, "save"):
        from PIL import Image

        value = Image.fromarray(value)
    stream = io.BytesIO()
    value.save(stream, _PICTURES[kind], **({} if kind == "png" else {"quality": _QUALITY}))
    return stream.getvalue()


def _number(value: Any) -> bytes:
    if isinstance(value, numbers.Integral):
        return str(int(value)).encode()
    if isinstance(value, numbers.Real):
        return repr(float(value)).encode()
    raise TypeError(
        "pass bytes, text or a number, or use the extension json, npy, npz, jpg, png or webp"
    )


def encode(extension: str, value: Any) -> Any:
    """The bytes of a member, by the last part of its extension and by the type of the value."""
    if isinstance(value, (bytes, bytearray)):
        return value
    if isinstance(value, memoryview):
        return value if value.contiguous else bytes(value)
    kind = extension.rsplit(".", 1)[-1].lower()
    try:
        if kind == "json":
            return _json(value)
        if kind in ("npy", "npz"):
            return _array(value, kind)
        if kind in _PICTURES:
            return _picture(value, kind)
        return value.encode() if isinstance(value, str) else _number(value)
    except (TypeError, ValueError, AttributeError, OSError, ImportError, RecursionError) as error:
        raise ArgumentError(
            f"a {type(value).__name__} cannot be written as {extension!r}: {error}",
            f"extension {extension!r}",
            "pass its bytes",
        ) from error


class ShardWriter:
    """Writes samples one by one to tars of one size, with index and manifest::

        with stoker.ShardWriter("train/", classes=["cat", "dog"]) as writer:
            for sample in samples[writer.samples_done :]:
                writer.write({"__key__": sample.name, "jpg": sample.data, "cls": sample.label})

    The end of the block commits: all data are flushed to disk, then the manifest, then one rename
    gives the folder its name. An exception does not commit: finished shards stay in
    ``destination.part``, and a writer with the same arguments continues. ``samples_done`` is the
    number of samples to skip then; a run that was killed at any time ends with the same bytes.

    Values are converted by the last part of their extension: bytes are written unchanged; ``str``
    as UTF-8; integers (``"cls"``), booleans and floats as text; values under ``json`` as JSON (text
    must already be JSON); arrays under ``npy``, or ``npz`` (a dict of arrays); PIL images and uint8
    arrays ``[H, W, 3]`` or ``[H, W]`` under ``jpg``, ``png`` or ``webp`` (quality 95; for another
    quality pass bytes). Extensions are converted to lower case; names that begin with ``_`` are
    left out, as in webdataset.

    Threads: one at a time. Memory: 16 to 32 bytes for each key while the writer is open.

    Args:
        destination: a folder that does not exist, or is empty.
        shard_bytes: largest shard, unless one sample is larger. Default: 256 MiB.
        pattern: names of the shards. Default: ``"shard-%06d.tar"``.
        classes: names of the numbers under ``cls``, for index and manifest.
        source: text that identifies the source, such as a version: unfinished work of another
            source is rejected instead of continued. The manifest contains it.
        engine: default: the process's engine.
    """

    def __init__(
        self,
        destination: Any,
        *,
        shard_bytes: int | str | None = None,
        pattern: str | None = None,
        classes: Iterable[str] = (),
        source: str = "",
        engine: Engine | None = None,
    ) -> None:
        where = "ShardWriter"
        if isinstance(classes, (str, bytes)):
            raise ArgumentError(f"classes {classes!r} is one text", where, "pass a list of names")
        self.engine = engine_of(engine, where)
        self._committed = False
        self._native = _stoker.ShardWriter(
            self.engine._native,
            path_of(destination, f"{where} destination"),
            pattern_name(pattern, where),
            tuple(_name(name, f"{where} classes") for name in classes),
            source=_name(source, f"{where} source"),
            shard_bytes=parse_bytes(shard_bytes, f"{where} shard_bytes"),
        )

    @property
    def samples_done(self) -> int:
        """Samples in finished shards, of earlier runs and of this one."""
        return self._native.position()

    @property
    def resume_key(self) -> str | None:
        """Key of the last finished sample when the writer was opened, for samples without numbers;
        ``""``: there was none; ``None``: all samples were finished, and only commit is missing."""
        return self._native.resume_key()

    def write(self, sample: Mapping[str, Any]) -> None:
        """Writes one sample: ``{"__key__": key, extension: value, ...}``.

        Raises:
            ArgumentError: a key or value cannot be written. No part of the sample was written, and
                the next one may follow.
            Error: after another error (a full disk) the writer cannot be used any more; a new one
                with the same arguments continues at its ``samples_done``.
        """
        where = "ShardWriter.write"
        if not isinstance(sample, Mapping) or "__key__" not in sample:
            raise ArgumentError("a sample has no '__key__'", where, "pass a dict with '__key__'")
        key = _name(sample["__key__"], f"{where} __key__")
        members = []
        for extension, value in sample.items():
            name = _name(extension, f"{where} key {sample['__key__']!r}")
            if not extension.startswith("_"):
                members.append((name, encode(extension, value)))
        self._native.add(key, tuple(members))

    def commit(self) -> None:
        """Writes index and manifest after the last sample, and renames. Only close may follow."""
        self._native.commit()
        self._committed = True

    def close(self) -> None:
        """Closes it. Without commit, finished shards stay in ``destination.part``."""
        self._native.close()

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        try:
            if kind is None and not self._committed:
                self.commit()
        finally:
            self.close()

    def __reduce__(self) -> NoReturn:
        refuse_pickle("ShardWriter")


def _name(text: Any, where: str) -> bytes:
    """Text for the library: bytes without a NUL."""
    if not isinstance(text, str) or "\0" in text:
        raise ArgumentError(f"{text!r} is not a name", where, "pass text without NUL")
    try:
        return os.fsencode(text)
    except UnicodeEncodeError:
        raise ArgumentError(f"{text!r} is not a name", where, "pass text in UTF-8") from None
