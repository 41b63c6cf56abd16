"""Engine: threads, reading and memory of this process."""

from __future__ import annotations

import json
import os
import threading
from typing import Any

from . import _stoker, fsspec_source
from ._options import count, milliseconds, parse_bytes, word
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
    """Dollars of a request (``get``, ``list``, ``put``, ``delete``) and of a ``gigabyte``
    received, by store."""
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
        raise ArgumentError(f"no table of prices: {error!r}", where, advice) from None


class Engine(Portable):
    """Threads, reading and memory of this process, shared by its loaders.

    Args:
        memory: the budget, as bytes or text (``"2GiB"``), never passed. Default: half of what
            the cgroup grants.
        threads: decoder threads. Default: the granted cores less ``cores_reserved``, tuned
            while running.
        cores_reserved: cores left for the training loop.
        io_backend: ``"auto"``, ``"io_uring"`` or ``"threads"``.
        direct: O_DIRECT for cold reads: ``"auto"``, ``"never"`` or ``"always"``.
        io_depth: reads in flight.
        io_bytes_max, io_gap_bytes: cold samples that lie so near each other are one read of at most
            so many bytes. Default: on disks 4 MiB and 64 KiB, on network file systems and FUSE what
            suits the mount (``stoker info PATH`` tells both), and of more than 16 KiB no more is
            read along than is wanted. What is given counts as it is, everywhere.
        read_timeout: seconds after which a read is given up. Default 30.
        simd: ``"auto"``, ``"none"`` or ``"avx2"``: the pixels are the same.
        open_files_max: files kept open at once.
        sandbox: decode pictures, and parse JSON, MessagePack and npz, in helper processes that have
            no files and no network, under seccomp and Landlock. A picture that crashes its decoder,
            or keeps it busy for longer than ``decode_timeout`` seconds of CPU time (default 10), is
            a damaged sample (:class:`stoker.CorruptError`, or skipped), and no more.
            ``info()["sandbox"]`` says what the kernel enforces. tar headers, indexes and npy are
            read in this process, by bounded code of this package.
        sandbox_helper: path of the program ``stoker-decode``; default: the installed one.
        connections_max: to stores and web servers at once, at most 1,024. It begins with 256,
            or 128 beside other engines of this user (answers of 2 MiB and more: 16 a core), and
            uses as many as bring more. Default 256.
        node_connections_max: of all engines of this user on this machine together, shared fairly;
            the least of those that run holds. Default 256.
        process_sharing: whether connections, and the rate below each prefix of a bucket, are shared
            with this user's other processes here: by a file in ``/dev/shm``, or in the folder that
            ``STOKER_NODE_DIR`` names. ``store_stats()["manners"]["alone"]`` says why they are not.
        hedge_percent_max: reads whose first byte is late are asked for once more, at most so many
            of 100 requests, and none while a store throttles. 0: none. Default 3, at most 10.
        check_etags: of objects that come whole, and of which the store tells no checksum, an ETag
            that is an MD5 is checked, for 1.5 to 2 s of CPU a GB. Those of SSE-KMS, SSE-C, S3
            Express and of objects that were written by parts are no MD5, and left alone.
        network_fs_threads: threads that open, list and read by themselves on network file systems
            and FUSE at once (headers, files that are mapped). Default 8, at most 256.
        single_flight_timeout: seconds that an opening waits for another process of this user which
            lists the same path here (see docs/decisions/0041); then it lists by itself. Default
            600.
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
    ) -> None:
        where = "Engine"
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
        )

    def info(self) -> dict[str, Any]:
        """What the engine has and uses: ``threads``, ``cores``, ``memory_bytes``,
        ``memory_bytes_max``, ``memory_bytes_peak``, ``lost_bytes`` (buffers of reads that never
        came back), ``io_backend``, ``io_reason``, ``vector``, ``sandbox`` (``"off"``, or what the
        kernel enforces)."""
        return self._native.info()

    def store_stats(self) -> dict[str, Any]:
        """What was asked of object stores and web servers since the engine was made.

        For each of ``http``, ``s3``, ``gs``, ``az`` and ``hf`` that was asked a dict: ``requests``
        sent (those sent again count again), of them ``lists`` (pages of listings), ``puts`` (what
        writes: objects, parts, copies, beginning and end of an upload) and ``deletes`` (what
        removes: objects, many at once, uploads), ``bytes`` received,
        ``checked`` (of them: proven by a checksum that the server told, of the body, or of the
        whole object when all of its ranges had come), and ``cost`` in US dollars. ``damaged``:
        bodies that were not as the server's checksum says, and were asked for again. ``retries``:
        a dict of ``throttled`` (after 429 and 503),
        ``transient`` (after resets, stalls, other 5xx and wrong answers) and ``other``
        (credentials, region or clock were put right). ``cost``: of all.

        ``manners``: ``throttles`` (answers 429, 503, SlowDown), ``hedges`` and ``hedges_won``
        (reads asked for twice, those whose second answer came first), ``waits_connections`` and
        ``waits_rate`` (requests that waited for a connection of the node, for their prefix's rate),
        ``rate_max`` (requests a second, the least of the prefixes that are limited now; 0: none),
        ``connections``, ``connections_peak``, ``connections_max`` (open, at most, used at once as
        tuned), ``node_connections``, ``node_connections_max``, ``node_engines`` (of all that
        share), ``alone`` (None: nothing was asked yet; "": shared; else why not).

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
        """Lets go. Its threads end when its last loader is closed."""
        self._native.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """As its options; a process's own engine is the own one of where it comes to."""
        if _default is not None and _default[1] is self:
            return default_engine, ()
        return super().__reduce__()


_default: tuple[int, Engine] | None = None
_default_lock = threading.Lock()


def default_engine() -> Engine:
    """The engine of this process's loaders that name none; made at its first use."""
    global _default
    with _default_lock:
        if _default is None or _default[0] != os.getpid():
            _default = (os.getpid(), Engine())  # a fork's child gets its own
        return _default[1]


def engine_of(engine: Any, where: str) -> Engine:
    """The engine that a caller passed; ``None``: the process's. ArgumentError: it is none."""
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
    _default_lock = threading.Lock()  # the parent's may be held by a thread that is not here


os.register_at_fork(after_in_child=_forget_lock)
