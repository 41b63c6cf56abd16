"""A whole data set written as tars: ``pack``."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from typing import Any

from . import _stoker, files
from ._options import ON_ERRORS, count, parse_bytes, retries_of, share, word
from .dataset import BadSample, Dataset
from .engine import Engine
from .errors import ArgumentError, UnsupportedError, from_native

__all__ = ["file_name", "pack", "pattern_name"]

_SLICE_MS = 50  # between two looks at Ctrl-C
_PHASES = {1: "listing", 2: "writing", 3: "committing", 4: "done"}


def file_name(path: Any, where: str) -> bytes:
    """A path as bytes; one that is empty or has a NUL is refused."""
    try:
        name = os.fsencode(path)
    except TypeError:
        name = b""
    if not name or b"\0" in name:
        raise ArgumentError(f"{path!r} is not a path", where, "give the path of a folder")
    return name


def pattern_name(pattern: Any, where: str) -> str | None:
    """A pattern for the names of shards, or None; the library looks at what is in it."""
    if pattern is not None and not (
        isinstance(pattern, str) and pattern.isprintable()  # so no NUL, and no lone surrogate
    ):
        raise ArgumentError(f"pattern {pattern!r}", where, "give text such as 'train-%06d.tar'")
    return pattern


def pack(
    source: Any,
    destination: Any,
    *,
    shard_bytes: int | str | None = None,
    pattern: str | None = None,
    shuffle: int | None = None,
    short_side: int | None = None,
    quality: int | None = None,
    on_error: str = "raise",
    quarantine: str | os.PathLike[str] | None = None,
    bad_samples_max: int | None = None,
    bad_share_max: float | None = None,
    io_retries: int | None = None,
    stage: str | os.PathLike[str] | None = None,
    engine: Engine | None = None,
    progress: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """Writes a data set as tars of one size, with ``stoker.index`` and ``stoker.manifest.json``.

    What the command ``stoker pack`` does. The same source and arguments give the same bytes,
    whatever the threads. All work is done in ``destination.part``; one rename ends it. Interrupted
    at any point, the same call goes on there.

    A picture of a class folder becomes ``KEY.jpg`` and ``KEY.cls`` (the number of its class), and
    each file beside it that has its name and another extension (``.json``, ``.txt``) goes along, as
    ``KEY.json`` its line of a ``metadata.jsonl`` there or in the root. A folder of pictures without
    sub-folders has no labels. Samples of tars keep all their members.

    Args:
        source: a folder, tars, or a Dataset.
        destination: a folder that is not there yet, or is empty; not in a folder of the source. Or
            a prefix in a store, ``s3://bucket/prefix``, where nothing is: it is packed in ``stage``
            then, and sent, the manifest last; no object is ever replaced.
        stage: a folder with room for all of it. Default: the cache (``STOKER_CACHE``).
        shard_bytes: no shard is larger, unless one sample is. Default 256 MiB.
        pattern: names of the shards. Default ``"shard-%06d.tar"``.
        shuffle: the seed of a shuffle; ``None``: the order of the source.
        short_side: JPEGs whose short side is longer are made smaller; all else is copied.
        quality: of JPEGs made smaller. Default 90.
        on_error: ``"raise"``; or ``"skip"``: samples with damage in their data are left out: what
            cannot be read or unpacked, does not fit the checksums of an index, or is a JPEG that
            should be made smaller and does not decode; of a tar that is cut short or has damaged
            headers, what is not surely whole (of a Dataset: as it was opened). Failures of the
            machine are always raised. The bytes are the same whatever the threads and however often
            it was interrupted, also by the other policy.
        quarantine: a file that becomes the list of what was left out, a line of JSON each, as of a
            Loader, before the destination has its name. It may be there only when unfinished work
            is gone on with.
        bad_samples_max, bad_share_max: :class:`LimitError` when more samples, or a larger share of
            the source's, are damaged. What was found is listed; the same call with higher limits
            goes on.
        io_retries: of a read that fails for the system's reasons. Default 3.
        engine: default: the process's. A Dataset has its own.
        progress: is called with what was done so far, some 20 times a second.

    Returns:
        ``shards``, ``samples``, ``bytes``, each with ``_done`` and ``_kept`` (of those done: by an
        earlier run), ``resized``, ``copied``, ``samples_left_out``, ``retries``, ``run_ns`` and
        ``phase``; and ``bad``: what was left out as :class:`BadSample`, at most 10,000 of them.
    """
    where = "pack"
    options: dict[str, Any] = {
        "shard_bytes": parse_bytes(shard_bytes, f"{where} shard_bytes"),
        "shuffle": 0 if shuffle is None else _stoker.SHUFFLE_FULL,
        "seed": count(shuffle, f"{where} shuffle", high=2**64 - 1),
        "short_side": count(short_side, f"{where} short_side", low=1, high=2**16),
        "quality": count(quality, f"{where} quality", low=1, high=100),
        "on_error": word(on_error, ON_ERRORS, f"{where} on_error"),
        "bad_samples_max": count(bad_samples_max, f"{where} bad_samples_max", low=1),
        "bad_share_max": share(bad_share_max, f"{where} bad_share_max"),
        "io_retries": retries_of(io_retries, f"{where} io_retries"),
    }
    if quarantine is not None:
        options["quarantine"] = file_name(quarantine, f"{where} quarantine")
    name = file_name(destination, f"{where} destination")
    form = pattern_name(pattern, where)
    if isinstance(source, Dataset):
        if engine is not None and engine is not source.engine:
            raise ArgumentError("a Dataset has its own engine", where, "leave out engine=")
        return _run_to(source, name, form, options, progress, stage)
    with Dataset(source, engine=engine, foreign_index="never", on_error=on_error) as dataset:
        return _run_to(dataset, name, form, options, progress, stage)


def _run_to(
    dataset: Dataset,
    name: bytes,
    form: str | None,
    options: dict[str, Any],
    progress: Callable[[dict[str, Any]], None] | None,
    stage: str | os.PathLike[str] | None,
) -> dict[str, Any]:
    """To a folder; or to a URL, by way of the stage."""
    url = os.fsdecode(name)
    if "://" in url and url.rstrip("/").endswith(":"):
        raise ArgumentError("the URL names no bucket", f"'{url}'", "name s3://bucket/prefix")
    url = url.rstrip("/")
    if "://" not in url or url.startswith("file://"):
        return _run(dataset, name, form, options, progress)
    if url.startswith(("http:", "https:", "hf:")):
        raise UnsupportedError("this can only be read", f"'{url}'", "pack to s3:// or to a folder")
    settings = [url, dataset.identity, form, sorted(options.items())]
    mark = hashlib.sha256(repr(settings).encode()).hexdigest()[:16]
    folder = os.path.join(os.fsdecode(stage or _cache()), f"pack-{mark}")
    data, sending = os.path.join(folder, "data"), os.path.join(folder, "sending")
    if not os.path.exists(sending):
        for there in files.ls(f"{url}/", engine=dataset.engine):
            raise from_native(
                -errno.EEXIST, "EEXIST", "there are objects already", f"'{url}/{there.name}'",
                "name another prefix, remove it (stoker.rm), or give the settings that it was "
                "begun with, to go on", url, "", None,
            )
    os.makedirs(folder, exist_ok=True)
    ready = os.path.join(folder, "told.json")
    if os.path.exists(data) and os.path.exists(ready):
        with open(ready, encoding="utf-8") as file:
            done = json.load(file)
        done["bad"] = [BadSample(*entry) for entry in done["bad"]]
    else:
        shutil.rmtree(data, ignore_errors=True)  # it was whole, but not what was told of it
        done = _run(dataset, os.fsencode(data), form, options, progress)
        with open(ready + ".part", "w", encoding="utf-8") as file:
            json.dump(done, file)
        os.replace(ready + ".part", ready)
    _send(dataset.engine, data, sending, url)
    shutil.rmtree(folder)
    return done


def _send(engine: Engine, data: str, sending: str, url: str) -> None:
    """What was packed: the manifest comes last, and says that all is there."""
    with open(sending, "wb") as mark:  # from here on, what lies there is ours
        os.fsync(mark.fileno())
    last = ["stoker.index", "stoker.manifest.json"]
    shards = [os.path.join(data, name) for name in os.listdir(data) if name not in last]
    if shards:
        files.cp(shards, f"{url}/", update=True, no_clobber=True, engine=engine)
    for name in last:
        files.cp(os.path.join(data, name), f"{url}/", no_clobber=True, engine=engine)


def _cache() -> str:
    for name, below in (("STOKER_CACHE", ""), ("XDG_CACHE_HOME", "stoker")):
        if os.environ.get(name):
            return os.path.join(os.environ[name], below)
    return os.path.expanduser("~/.cache/stoker")


def _run(
    dataset: Dataset,
    name: bytes,
    form: str | None,
    options: dict[str, Any],
    progress: Callable[[dict[str, Any]], None] | None,
) -> dict[str, Any]:
    work = _stoker.Pack(dataset._native, name, form, **options)
    try:
        while True:
            running, numbers = work.next(_SLICE_MS)
            done: dict[str, Any] = {**numbers, "phase": _PHASES.get(numbers["phase"], "listing")}
            if progress is not None:
                progress(dict(done))
            if not running:
                return {**done, "bad": [BadSample(*entry) for entry in work.quarantine()]}
    finally:
        work.close()
