"""pack(): writes a complete data set as tars."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from typing import Any

from . import _stoker, files
from ._options import bad_sample_options, count, parse_bytes, path_of
from .dataset import BadSample, Dataset
from .engine import Engine
from .errors import ArgumentError, UnsupportedError, from_native

__all__ = ["pack", "pattern_name"]

_COMPARE = 8 << 20  # bytes at a time
_SLICE_MS = 50  # between two checks for Ctrl-C
_PHASES = {1: "listing", 2: "writing", 3: "committing", 4: "done"}


def pattern_name(pattern: Any, where: str) -> str | None:
    """A pattern for the names of shards, or None; the library checks its contents."""
    if pattern is not None and not (
        isinstance(pattern, str) and pattern.isprintable()  # so no NUL, and no lone surrogate
    ):
        raise ArgumentError(
            f"pattern {pattern!r} is not printable text", where, "pass one like 'train-%06d.tar'"
        )
    return pattern


def pack(
    source: Any,
    destination: Any,
    *,
    shard_bytes: int | str | None = None,
    pattern: str | None = None,
    shuffle: int | None = None,
    keep_order: bool = False,
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

    The function behind ``stoker pack``. The same source and arguments give the same bytes, for any
    number of threads. All work is done in ``destination.part``, which is renamed at the end. If the
    work was interrupted, the same call continues it.

    An image of a class folder becomes ``KEY.jpg`` and ``KEY.cls`` (the number of its class). Files
    in its folder with its name and another extension (``.json``, ``.txt``) are included; a line of
    a ``metadata.jsonl`` there or in the root becomes ``KEY.json``. A folder of images without
    sub-folders has no labels. Samples of tars keep all their members.

    Args:
        source: a folder, tars, or a Dataset.
        destination: a folder that does not exist, or is empty; not inside the source. Or an empty
            prefix in a store, ``s3://bucket/prefix``: the data set is packed in ``stage`` and then
            uploaded, the manifest last; no object is ever replaced.
        stage: a folder with space for the complete result. Default: the cache (``STOKER_CACHE``).
        shard_bytes: largest shard, unless one sample is larger. Default: 256 MiB.
        pattern: names of the shards. Default: ``"shard-%06d.tar"``.
        shuffle: seed of the shuffle of the samples; default 0. Neighbours in a class folder have
            one class, which a loader would have to mix.
        keep_order: keep the order of the source instead; compressed tars without seek points are
            packed in it anyway. The manifest says which order was used.
        short_side: JPEGs with a longer short side are resized to it; all other members are copied.
        quality: quality of resized JPEGs. Default: 90.
        on_error: ``"raise"``; or ``"skip"``: leaves out damaged samples: those that cannot be read
            or decompressed, that do not match the checksums of an index, JPEGs that should be
            resized and cannot be decoded; and, from a tar that ends early or has damaged headers,
            samples that may be incomplete (for a Dataset: as it was opened). I/O failures of the
            machine are always raised. The bytes do not depend on threads and interruptions, also
            under the other policy.
        quarantine: a file that lists the samples left out, a line of JSON for each, as for a
            Loader; it is complete before the destination has its name. It may exist only if
            unfinished work is continued.
        bad_samples_max, bad_share_max: if more samples, or a larger share of the source, are
            damaged, :class:`LimitError` is raised. The samples found are listed; the same call with
            higher limits continues.
        io_retries: retries of a read that fails with a transient error. Default: 3.
        engine: default: the process's engine; not with a Dataset, which has its own.
        progress: called with the present counts about 20 times a second.

    Returns:
        ``shards``, ``samples``, ``bytes``, each with ``_done`` and ``_kept`` (of those done: by an
        earlier run), ``resized``, ``copied``, ``samples_left_out``, ``retries``, ``run_ns`` and
        ``phase``, ``shuffled`` and ``seed``; and ``bad``: the samples left out as
        :class:`BadSample`, at most 10,000.
    """
    where = "pack"
    options: dict[str, Any] = {
        "shard_bytes": parse_bytes(shard_bytes, f"{where} shard_bytes"),
        "shuffle": _pack_order(shuffle, keep_order, where),
        "seed": count(shuffle, f"{where} shuffle", high=2**64 - 1),
        "short_side": count(short_side, f"{where} short_side", low=1, high=2**16),
        "quality": count(quality, f"{where} quality", low=1, high=100),
        **bad_sample_options(
            where,
            on_error=on_error,
            bad_samples_max=bad_samples_max,
            bad_share_max=bad_share_max,
            io_retries=io_retries,
        ),
    }
    if quarantine is not None:
        options["quarantine"] = path_of(quarantine, f"{where} quarantine")
    name = path_of(destination, f"{where} destination")
    form = pattern_name(pattern, where)
    if isinstance(source, Dataset):
        if engine is not None and engine is not source.engine:
            raise ArgumentError("a Dataset has its own engine", where, "leave engine= out")
        return _run_to(source, name, form, options, progress, stage)
    with Dataset(source, engine=engine, foreign_index="never", on_error=on_error) as dataset:
        return _run_to(dataset, name, form, options, progress, stage)


def _pack_order(shuffle: int | None, keep_order: bool, where: str) -> int:
    """0: the library's default, a shuffle where the source can be read in any order."""
    if keep_order and shuffle is not None:
        raise ArgumentError(
            "shuffle= and keep_order= exclude each other", where, "pass one of them"
        )
    if keep_order:
        return _stoker.SHUFFLE_NONE
    return 0 if shuffle is None else _stoker.SHUFFLE_FULL


def _run_to(
    dataset: Dataset,
    name: bytes,
    form: str | None,
    options: dict[str, Any],
    progress: Callable[[dict[str, Any]], None] | None,
    stage: str | os.PathLike[str] | None,
) -> dict[str, Any]:
    """Packs to a folder, or to a URL by way of the stage."""
    url = os.fsdecode(name)
    if "://" in url and url.rstrip("/").endswith(":"):
        raise ArgumentError("the URL names no bucket", f"'{url}'", "pass s3://bucket/prefix")
    url = url.rstrip("/")
    if "://" not in url or url.lower().startswith("file://"):
        return _run(dataset, name, form, options, progress)
    if url.startswith(("http:", "https:", "hf:")):
        raise UnsupportedError("the URL is read-only", f"'{url}'", "pack to s3:// or to a folder")
    settings = [url, dataset.identity, form, sorted(options.items())]
    mark = hashlib.sha256(repr(settings).encode()).hexdigest()[:16]
    folder = os.path.join(os.fsdecode(stage or _cache()), f"pack-{mark}")
    data, sending = os.path.join(folder, "data"), os.path.join(folder, "sending")
    if not os.path.exists(sending):
        _check_bucket(dataset.engine, url)
        there = _first_below(url, dataset.engine)
        if there is not None:
            raise from_native(
                -errno.EEXIST, "EEXIST", "the prefix has objects already", f"'{url}/{there.name}'",
                "use another prefix, remove it (stoker.rm), or repeat the settings of the "
                "unfinished run to continue it", url, "", None,
            )
    os.makedirs(folder, exist_ok=True)
    ready = os.path.join(folder, "told.json")
    if os.path.exists(data) and os.path.exists(ready):
        with open(ready, encoding="utf-8") as file:
            done = json.load(file)
        done["bad"] = [BadSample(*entry) for entry in done["bad"]]
    else:
        shutil.rmtree(data, ignore_errors=True)  # complete, but not the counts reported for it
        done = _run(dataset, os.fsencode(data), form, options, progress)
        with open(ready + ".part", "w", encoding="utf-8") as file:
            json.dump(done, file)
        os.replace(ready + ".part", ready)
    _send(dataset.engine, data, sending, url)
    shutil.rmtree(folder)
    return done


def _first_below(url: str, engine: Engine) -> files.FileInfo | None:
    try:
        return next(iter(files.ls(f"{url}/", engine=engine)), None)
    except FileNotFoundError:
        return None


def _send(engine: Engine, data: str, sending: str, url: str) -> None:
    """Uploads the result. The manifest comes last, and shows that it is complete."""
    with open(sending, "wb") as mark:  # from here on, objects in the destination are from this call
        os.fsync(mark.fileno())
    last = ["stoker.index", "stoker.manifest.json"]
    shards = [os.path.join(data, name) for name in os.listdir(data) if name not in last]
    if shards:
        files.cp(shards, f"{url}/", update=True, no_clobber=True, engine=engine)
    for name in last:
        path = os.path.join(data, name)
        if not _is_sent(engine, path, f"{url}/{name}"):
            files.cp(path, f"{url}/", no_clobber=True, engine=engine)


def _is_sent(engine: Engine, path: str, url: str) -> bool:
    """Whether an earlier call, whose work this one continues, has sent a file: the object has its
    bytes."""
    size = os.path.getsize(path)
    try:
        if files.stat(url, engine=engine).bytes != size:
            return False
    except FileNotFoundError:
        return False
    with open(path, "rb") as file:
        for at in range(0, size, _COMPARE):
            part = files.cat(url, at, min(at + _COMPARE, size), engine=engine)
            if file.read(_COMPARE) != part:
                return False
    return True


def _check_bucket(engine: Engine, url: str) -> None:
    """Raises FileNotFoundError if there is no such bucket: a listing of a prefix does not say. A
    bucket that may not be listed is taken to exist."""
    root = "/".join(url.split("/", 3)[:3])
    with contextlib.suppress(PermissionError):
        next(iter(files.ls(f"{root}/", engine=engine)), None)


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
