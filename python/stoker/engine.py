"""Engine: threads, I/O and memory of this process."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Sequence
from typing import Any

from . import _stoker, fsspec_source
from ._options import count, milliseconds, parse_bytes, word
from .cache import Cache, cache_of
from .errors import ArgumentError
from .pickling import Portable

__all__ = ["Engine", "default_engine", "engine_of", "prices"]

IO_BACKENDS = {"auto": _stoker.IO_AUTO, "io_uring": _stoker.IO_URING, "threads": _stoker.IO_THREADS}
DIRECTS = {
    "auto": _stoker.DIRECT_AUTO,
    "never": _stoker.DIRECT_NEVER,
    "always": _stoker.DIRECT_ALWAYS,
}
SIMDS = {"auto": _stoker.SIMD_AUTO, "none": _stoker.SIMD_NONE, "avx2": _stoker.SIMD_AVX2}


def prices() -> dict[str, dict[str, float]]:
    """Prices in dollars by store: of a request (``get``, ``list``, ``put``, ``delete``) and of a
    ``gigabyte`` received. ArgumentError: the file cannot be read."""
    own = os.path.join(os.path.dirname(__file__), "store_prices.json")
    path = os.environ.get("STOKER_PRICES") or own
    where = f"STOKER_PRICES={path}"
    try:
        with open(path, encoding="utf-8") as file:
            table = json.load(file)["stores"]
        return {
            str(store): {str(name): float(value) for name, value in row.items()}
            for store, row in table.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        advice = 'write {"stores": {"s3": {"get": 4e-7, "list": 5e-6, "gigabyte": 0}}}'
        raise ArgumentError(f"cannot read the table of prices: {error!r}", where, advice) from None


class Engine(Portable):
    """Threads, I/O and memory of this process, which its loaders share. Any thread may use it.

    Args:
        memory: memory budget, in bytes or as text (``"2GiB"``); a hard limit. Default: half of the
            cgroup's limit.
        threads: decoder threads. Default: the available cores less ``cores_reserved``, tuned while
            running.
        cores_reserved: cores for the training loop.
        io_backend: ``"auto"``, ``"io_uring"`` or ``"threads"``.
        direct: O_DIRECT for reads that are not in the page cache: ``"auto"``, ``"never"`` or
            ``"always"``.
        io_depth: concurrent reads.
        io_bytes_max, io_gap_bytes: samples on disk with at most ``io_gap_bytes`` between them are
            read together, up to ``io_bytes_max``. Default: 4 MiB and 64 KiB on disks; values for
            the mount on network file systems and FUSE (``stoker info PATH`` shows both), where
            gaps above 16 KiB are skipped if they exceed the wanted bytes. Values that are passed
            apply everywhere.
        read_timeout: timeout of a read in seconds. Default: 30.
        simd: ``"auto"``, ``"none"`` or ``"avx2"``: the pixels are the same.
        open_files_max: limit of open files.
        sandbox: decode images, and parse JSON, MessagePack and npz, in helper processes without
            access to files and network, under seccomp and Landlock. An image that crashes its
            decoder, or needs more than ``decode_timeout`` seconds of CPU time (default 10), is a
            damaged sample (:class:`stoker.CorruptError`, or skipped). ``info()["sandbox"]`` says
            what the kernel enforces. tar headers, indexes and npy are read in this process, by
            bounded code of this package.
        sandbox_helper: path of the program ``stoker-decode``. Default: the installed one.
        connections_max: connections to stores and web servers, at most 1,024. The engine starts
            with 256, or with 128 if this user has other engines (for responses of 2 MiB and more:
            16 for each core), and tunes the number by throughput. Default: 256.
        node_connections_max: connections of all engines of this user on this machine, shared
            fairly; the smallest value of the running engines applies. Default: 256.
        process_sharing: share connections, and the request rate for each prefix of a bucket, with
            this user's other processes on this machine, by a file in ``/dev/shm`` or in the folder
            of ``STOKER_NODE_DIR``. If sharing is not possible,
            ``store_stats()["manners"]["alone"]`` has the reason.
        hedge_percent_max: hedge budget: the share of requests, in percent, that may be sent twice
            if the first byte is late. No hedges are sent while a store throttles. 0: none. Default:
            3, at most 10.
        check_etags: for complete objects without a checksum from the store, verify an ETag that is
            an MD5; it costs 1.5 to 2 s of CPU for each GB. ETags of SSE-KMS, SSE-C, S3 Express and
            multipart uploads are not MD5s, and are ignored.
        network_fs_threads: threads for blocking calls on network file systems and FUSE (open, list,
            headers, mapped files). Default: 8, at most 256.
        single_flight_timeout: seconds that an opening waits for another process of this user that
            lists the same path on this machine (see docs/decisions/0041), before it lists the path
            itself. Default: 600.
        cache: where blocks of objects are kept on disks of this machine: a :class:`Cache`, or its
            folder or folders. Default: the folders of ``STOKER_CACHE_DIR``, separated by ``:``,
            with the quota of ``STOKER_CACHE_BYTES``; else none.
        cache_bytes: the quota, if ``cache`` names folders.
    """

    def __init__(
        self,
        *,
        memory: int | str | None = None,
        threads: int | None = None,
        cores_reserved: int = 0,
        io_backend: str = "auto",
        direct: str = "auto",
        io_depth: int | None = None,
        io_bytes_max: int | str | None = None,
        io_gap_bytes: int | str | None = None,
        read_timeout: float | None = None,
        simd: str = "auto",
        open_files_max: int | None = None,
        sandbox: bool = False,
        decode_timeout: float | None = None,
        sandbox_helper: str | os.PathLike[str] | None = None,
        connections_max: int | None = None,
        node_connections_max: int | None = None,
        process_sharing: bool = True,
        hedge_percent_max: int | None = None,
        check_etags: bool = False,
        network_fs_threads: int | None = None,
        single_flight_timeout: float | None = None,
        cache: Cache | str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
        cache_bytes: int | str | None = None,
    ) -> None:
        where = "Engine"
        found = cache_of(cache, where, cache_bytes)
        more = {} if found is None else {"cache": found._native}
        self._native = _stoker.Engine(
            memory_bytes_max=parse_bytes(memory, f"{where} memory"),
            threads=count(threads, f"{where} threads", low=1, high=4096),
            cores_reserved=count(cores_reserved, f"{where} cores_reserved", high=4096),
            io_backend=word(io_backend, IO_BACKENDS, f"{where} io_backend"),
            direct=word(direct, DIRECTS, f"{where} direct"),
            io_depth=count(io_depth, f"{where} io_depth", low=1),
            io_bytes_max=parse_bytes(io_bytes_max, f"{where} io_bytes_max"),
            io_gap_bytes=parse_bytes(io_gap_bytes, f"{where} io_gap_bytes"),
            read_timeout_ms=milliseconds(read_timeout, f"{where} read_timeout"),
            simd=word(simd, SIMDS, f"{where} simd"),
            open_files_max=count(open_files_max, f"{where} open_files_max", low=1),
            sandbox=bool(sandbox),
            decode_timeout_ms=milliseconds(decode_timeout, f"{where} decode_timeout"),
            sandbox_helper=None if sandbox_helper is None else os.fspath(sandbox_helper),
            connections_max=count(connections_max, f"{where} connections_max", low=1, high=1024),
            node_connections_max=count(
                node_connections_max, f"{where} node_connections_max", low=1, high=1024
            ),
            no_process_sharing=not process_sharing,
            no_hedging=hedge_percent_max == 0,
            hedge_percent_max=count(hedge_percent_max, f"{where} hedge_percent_max", high=10),
            external_fs=fsspec_source.external_fs(),
            check_etags=bool(check_etags),
            network_fs_threads_max=count(
                network_fs_threads, f"{where} network_fs_threads", low=1, high=256
            ),
            single_flight_timeout_ms=milliseconds(
                single_flight_timeout, f"{where} single_flight_timeout"
            ),
            **more,
        )

    def cache_stats(self) -> dict[str, Any] | None:
        """Counters of the engine's cache, as :meth:`Cache.stats`; None: it has no cache.

        Also ``hit_ratio`` (hits of all reads; 0 without reads) and ``saved``: an estimate, in US
        dollars, of what the requests and bytes that the cache served would have cost at the prices
        of :meth:`store_stats`, by the stores that this engine used.
        """
        stats: dict[str, Any] | None = self._native.cache_stats()
        if stats is None:
            return None
        reads = stats["hits"] + stats["misses"]
        stats["hit_ratio"] = stats["hits"] / reads if reads else 0.0
        table = prices()
        used = {name: row["requests"] for name, row in self._native.store_stats().items()
                if isinstance(row, dict) and row.get("requests", 0) > 0}
        stats["saved"] = sum(
            requests / sum(used.values()) * (
                stats["hits"] * table.get(name, {}).get("get", 0.0)
                + stats["bytes_from_cache"] / 1e9 * table.get(name, {}).get("gigabyte", 0.0))
            for name, requests in used.items())
        return stats

    def info(self) -> dict[str, Any]:
        """Threads, memory and backends: ``threads``, ``cores``, ``memory_bytes``,
        ``memory_bytes_max``, ``memory_bytes_peak``, ``lost_bytes`` (buffers of reads that never
        completed), ``io_backend``, ``io_reason``, ``vector``, ``sandbox`` (``"off"``, or what the
        kernel enforces)."""
        return self._native.info()

    def store_stats(self) -> dict[str, Any]:
        """Requests to object stores and web servers since the engine was made.

        For each of ``http``, ``s3``, ``gs``, ``az`` and ``hf`` that was used, a dict:

        * ``requests``: sent, including retries; of these ``lists`` (pages of listings), ``puts``
          (writes: objects, parts, copies, start and end of an upload) and ``deletes`` (objects,
          batches of objects, uploads).
        * ``bytes``: received; ``checked``: of these, verified by a checksum of the server, of the
          response or of the complete object.
        * ``cost``: in US dollars.

        ``damaged``: responses that did not match the server's checksum, and were requested again.
        ``retries``: a dict of ``throttled`` (after 429 and 503), ``transient`` (after resets,
        stalls, other 5xx and invalid responses) and ``other`` (after corrected credentials, region
        or clock). ``cost``: the sum.

        ``manners``: ``throttles`` (responses 429, 503, SlowDown), ``hedges`` and ``hedges_won``
        (reads sent twice; those whose second response came first), ``waits_connections`` and
        ``waits_rate`` (requests that waited for a connection of the node, or for the rate of their
        prefix), ``rate_max`` (requests per second, the lowest of all limited prefixes; 0: no
        limit), ``connections``, ``connections_peak``, ``connections_max`` (open, most, present
        value of the tuning), ``node_connections``, ``node_connections_max``, ``node_engines`` (of
        all engines that share), ``alone`` (None: no request yet; "": shared; else the reason).

        The cost is an estimate: counts times the prices in ``store_prices.json`` of this package,
        or in the file that ``STOKER_PRICES`` names.
        """
        native = self._native.store_stats()
        table = prices()
        result: dict[str, Any] = {
            "retries": native.pop("retries"),
            "damaged": native.pop("damaged"),
            "manners": native.pop("manners"),
            "cost": 0.0,
        }
        for name, row in native.items():
            if row["requests"] > 0:
                price = table.get(name, {})
                counts = {
                    "list": row["lists"],
                    "put": row["puts"],
                    "delete": row["deletes"],
                    "gigabyte": row["bytes"] / 1e9,
                }
                counts["get"] = row["requests"] - row["lists"] - row["puts"] - row["deletes"]
                row["cost"] = sum(count * price.get(name, 0.0) for name, count in counts.items())
                result[name] = row
                result["cost"] += row["cost"]
        return result

    def close(self) -> None:
        """Closes it. Its threads end when its last loader is closed."""
        self._native.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the options; the default engine becomes the default engine of the receiver."""
        if _default is not None and _default[1] is self:
            return default_engine, ()
        return super().__reduce__()


_default: tuple[int, Engine] | None = None
_default_lock = threading.Lock()


def default_engine() -> Engine:
    """The engine of loaders without ``engine=``; made on first use."""
    global _default
    with _default_lock:
        if _default is None or _default[0] != os.getpid():
            _default = (os.getpid(), Engine())  # a child after fork makes its own
        return _default[1]


def engine_of(engine: Any, where: str) -> Engine:
    """The engine that a caller passed; None: the default engine. Raises ArgumentError."""
    if engine is None:
        return default_engine()
    if not isinstance(engine, Engine):
        raise ArgumentError(
            f"engine {engine!r} is not a stoker.Engine",
            where,
            "pass a stoker.Engine, or no engine=",
        )
    return engine


def _forget_lock() -> None:
    global _default_lock
    _default_lock = threading.Lock()  # a thread of the parent may hold the old one


os.register_at_fork(after_in_child=_forget_lock)
