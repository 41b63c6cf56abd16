"""Engine and Dataset: the machine's part and the data's part of a loader."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn, TypeVar

from . import _stoker, fsspec_source
from .errors import ArgumentError
from .pickling import Portable
from .tensors import paths_of

__all__ = [
    "BadSample",
    "Dataset",
    "Engine",
    "IndexReport",
    "Member",
    "Sample",
    "default_engine",
    "index",
    "order_at",
]

T = TypeVar("T")

_UNITS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}

IO_BACKENDS = {"auto": _stoker.IO_AUTO, "io_uring": _stoker.IO_URING, "threads": _stoker.IO_THREADS}
DIRECTS = {
    "auto": _stoker.DIRECT_AUTO,
    "never": _stoker.DIRECT_NEVER,
    "always": _stoker.DIRECT_ALWAYS,
}
VECTORS = {"auto": _stoker.VECTOR_AUTO, "none": _stoker.VECTOR_NONE, "avx2": _stoker.VECTOR_AVX2}
SHUFFLES = {
    "block": _stoker.SHUFFLE_BLOCK,
    "full": _stoker.SHUFFLE_FULL,
    "none": _stoker.SHUFFLE_NONE,
    "two-level": _stoker.SHUFFLE_TWO_LEVEL,
}


INDEXES = {
    "auto": _stoker.INDEX_AUTO,
    "never": _stoker.INDEX_NEVER,
    "require": _stoker.INDEX_REQUIRE,
}

ON_ERRORS = {"raise": _stoker.ON_ERROR_RAISE, "skip": _stoker.ON_ERROR_SKIP}

FOREIGN = {
    "auto": _stoker.FOREIGN_AUTO,
    "never": _stoker.FOREIGN_NEVER,
}


def word(value: Any, words: dict[str, int], where: str) -> int:
    """The number of a word."""
    try:
        return words[value]
    except (KeyError, TypeError):
        raise ArgumentError(f"{value!r}", where, f"give one of {', '.join(words)}") from None


def count(value: Any, where: str, low: int = 0, high: int = 2**32 - 1) -> int:
    """A whole number within bounds; None is 0, the library's default."""
    if value is None:
        return 0
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ArgumentError(f"{value!r} is not a whole number", where, f"give {low} to {high}")
    number = int(value.__index__())
    if not low <= number <= high:
        raise ArgumentError(f"{number} is out of bounds", where, f"give {low} to {high}")
    return number


_NO_RETRIES = 2**32 - 1


def retries_of(value: Any, where: str) -> int:
    """0 means the default to the library: its word for none is another."""
    return count(value, where, high=100) or (0 if value is None else _NO_RETRIES)


def parse_bytes(value: Any, where: str) -> int:
    """Bytes of an int or of text such as "2GiB" or "512 MB"; None is 0."""
    if not isinstance(value, str):
        return count(value, where, low=1, high=2**63)
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", value)
    unit = match[2].lower() if match else "?"
    if not match or unit not in _UNITS or float(match[1]) <= 0:
        raise ArgumentError(f"{value!r} is not a number of bytes", where, "give '2GiB' or an int")
    return count(int(float(match[1]) * _UNITS[unit]), where, low=1, high=2**63)


def milliseconds(value: float | None, where: str) -> int:
    """Whole milliseconds of seconds, at least one; None and 0 are 0: no limit, or the default."""
    if value is None or value == 0:
        return 0
    if not 0 < value < 4_000_000:
        raise ArgumentError(f"{value!r} seconds", where, "give a positive number of seconds")
    return max(1, int(value * 1000))


def refuse_pickle(thing: str) -> NoReturn:
    raise TypeError(
        f"a stoker.{thing} cannot be pickled: it holds threads and memory of this process; "
        "make it in the process that uses it, and send its arguments"
    )


def interruptible(function: Callable[[], T]) -> T:
    """Runs a call that may wait long, so that Ctrl-C in the main thread is answered at once.

    The call goes on in its thread then, and what it made is let go when it ends.
    """
    if threading.current_thread() is not threading.main_thread():
        return function()
    result: list[T] = []
    failure: list[BaseException] = []
    done = threading.Event()

    def work() -> None:
        try:
            result.append(function())
        except BaseException as error:
            failure.append(error)
        finally:
            done.set()

    threading.Thread(target=work, name="stoker-open", daemon=True).start()
    try:
        done.wait()
        if failure:
            raise failure[0]
        return result.pop()
    finally:
        failure.clear()  # a traceback refers to this frame: no cycle is left


def share(value: float | None, where: str) -> float:
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 1:
        raise ArgumentError(f"{value!r} is no share", where, "give more than 0, at most 1")
    return float(value)


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
        vector: ``"auto"``, ``"none"`` or ``"avx2"``: the pixels are the same.
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
        node_shared: whether connections, and the rate below each prefix of a bucket, are shared
            with this user's other processes here: by a file in ``/dev/shm``, or in the folder that
            ``STOKER_NODE_DIR`` names. ``ledger()["manners"]["alone"]`` says why they are not.
        hedge_percent_max: reads whose first byte is late are asked for once more, at most so many
            of 100 requests, and none while a store throttles. 0: none. Default 3, at most 10.
        check_etags: of objects that come whole, and of which the store tells no checksum, an ETag
            that is an MD5 is checked, for 1.5 to 2 s of CPU a GB. Those of SSE-KMS, SSE-C, S3
            Express and of objects that were written by parts are no MD5, and left alone.
        far_threads: threads that open, list and read by themselves on network file systems and
            FUSE at once (headers, files that are mapped). Default 8, at most 256.
        turn_timeout: seconds that an opening waits for another process of this user which lists the
            same path here (see docs/decisions/0041); then it lists by itself. Default 600.
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
        vector: str = "auto",
        open_files_max: int | None = None,
        sandbox: bool = False,
        decode_timeout: float | None = None,
        sandbox_helper: str | os.PathLike[str] | None = None,
        connections_max: int | None = None,
        node_connections_max: int | None = None,
        node_shared: bool = True,
        hedge_percent_max: int | None = None,
        check_etags: bool = False,
        far_threads: int | None = None,
        turn_timeout: float | None = None,
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
            vector=word(vector, VECTORS, f"{where} vector"),
            open_files_max=count(open_files_max, f"{where} open_files_max", low=1),
            sandbox=bool(sandbox),
            decode_timeout_ms=milliseconds(decode_timeout, f"{where} decode_timeout"),
            sandbox_helper=None if sandbox_helper is None else os.fspath(sandbox_helper),
            connections_max=count(connections_max, f"{where} connections_max", low=1, high=1024),
            node_connections_max=count(
                node_connections_max, f"{where} node_connections_max", low=1, high=1024
            ),
            node_alone=not node_shared,
            no_hedges=hedge_percent_max == 0,
            hedge_percent_max=count(hedge_percent_max, f"{where} hedge_percent_max", high=10),
            desk=fsspec_source.desk(),
            check_etags=bool(check_etags),
            far_threads_max=count(far_threads, f"{where} far_threads", low=1, high=256),
            turn_timeout_ms=milliseconds(turn_timeout, f"{where} turn_timeout"),
        )

    def info(self) -> dict[str, Any]:
        """What the engine has and uses: ``threads``, ``cores``, ``memory_bytes``,
        ``memory_bytes_max``, ``memory_bytes_peak``, ``lost_bytes`` (buffers of reads that never
        came back), ``io_backend``, ``io_reason``, ``vector``, ``sandbox`` (``"off"``, or what the
        kernel enforces)."""
        return self._native.info()

    def ledger(self) -> dict[str, Any]:
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
        ledger = self._native.ledger()
        table = prices()
        result: dict[str, Any] = {
            "retries": ledger.pop("retries"),
            "damaged": ledger.pop("damaged"),
            "manners": ledger.pop("manners"),
            "cost": 0.0,
        }
        for name, row in ledger.items():
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


def _forget_lock() -> None:
    global _default_lock
    _default_lock = threading.Lock()  # the parent's may be held by a thread that is not here


os.register_at_fork(after_in_child=_forget_lock)


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
        join_distance: members that may lie between two parts of one sample.
        unpacked_bytes_max, unpacked_ratio_max: bounds of a compressed shard.
        block_bytes: aim for a block of the order. Default: 8 MiB, or what the index says.
        index: ``"auto"``: what of an index is fresh is used, the rest is read; ``"never"``; or
            ``"require"``: :class:`ChangedError` names what differs from the index, and nothing is
            read. Or the path of the index file, used as with ``"auto"``. Default place:
            ``stoker.index`` beside the data, then one in the cache.
        foreign: ``"auto"``: what DALI's ``wds2idx`` tells of a shard is used instead of reading its
            headers, and proved whenever a sample is read; from where Energon's ``.tar.idx`` says
            that samples begin, headers are read side by side, which proves it; or ``"never"``.
        access_cache_bytes: unpacked pieces that are kept of compressed shards with access points
            (``stoker.index(access=...)``), within the budget. Default: 512 MiB, a quarter of the
            budget at most.
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
        join_distance: int | None = None,
        unpacked_bytes_max: int | str | None = None,
        unpacked_ratio_max: int | None = None,
        block_bytes: int | str | None = None,
        index: str | os.PathLike[str] = "auto",
        foreign: str = "auto",
        access_cache_bytes: int | str | None = None,
        on_error: str = "raise",
    ) -> None:
        where = "Dataset"
        if engine is not None and not isinstance(engine, Engine):
            raise ArgumentError(f"engine {engine!r}", where, "give a stoker.Engine, or none")
        self.engine = engine if engine is not None else default_engine()
        native, urls = self.engine._native, fsspec_source.native_paths(paths_of(source))
        options: dict[str, Any] = {
            "key_bytes_max": count(key_bytes_max, f"{where} key_bytes_max", low=1),
            "header_bytes_max": parse_bytes(header_bytes_max, f"{where} header_bytes_max"),
            "join_distance": count(join_distance, f"{where} join_distance"),
            "unpacked_bytes_max": parse_bytes(unpacked_bytes_max, f"{where} unpacked_bytes_max"),
            "unpacked_ratio_max": count(unpacked_ratio_max, f"{where} unpacked_ratio_max", low=1),
            "block_bytes": parse_bytes(block_bytes, f"{where} block_bytes"),
            **index_words(index, f"{where} index"),
            "foreign": word(foreign, FOREIGN, f"{where} foreign"),
            "access_cache_bytes": parse_bytes(access_cache_bytes, f"{where} access_cache_bytes"),
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
    def marks(self) -> int | None:
        """MCUs from one mark of its JPEGs to the next (``stoker index --jpeg-rows``); 0: one a row
        of them; ``None``: no marks are used."""
        mcus = self._info["marks"]
        return None if mcus is None else int(mcus)

    @property
    def marks_note(self) -> str:
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


def index_words(value: Any, where: str) -> dict[str, Any]:
    """index= as _stoker.Dataset parses it: a word, or a path."""
    if isinstance(value, str) and value in INDEXES:
        return {"index": INDEXES[value]}
    if isinstance(value, (str, os.PathLike)) and os.fspath(value):
        return {"index_path": paths_of(value)[0]}
    raise ArgumentError(f"{value!r}", where, f"give one of {', '.join(INDEXES)}, or a path")


class IndexReport(NamedTuple):
    """What :func:`index` did, or has done so far."""

    path: str
    """Of the index file."""
    shards: int
    """Shards, or files of a folder."""
    shards_kept: int
    """Of those: not read, as an earlier run knew them."""
    shards_done: int
    """Of those: read."""
    bytes: int
    """Of shards to be read."""
    bytes_done: int
    bytes_read: int
    samples: int
    members: int
    index_bytes: int
    seconds: float
    shards_packed: int = 0
    """Compressed shards."""
    shards_sequential: int = 0
    """Of those: can only be read front to back, and make the whole data set so."""
    sequential_shard: str | None = None
    """The first such shard."""
    sequential_reason: str | None = None
    """Why, and what to do."""


def index(
    source: Any,
    *,
    checksums: bool = False,
    labels: bool = False,
    access: bool | int | str = False,
    force: bool = False,
    out: str | os.PathLike[str] | None = None,
    engine: Engine | None = None,
    key_bytes_max: int | None = None,
    header_bytes_max: int | str | None = None,
    join_distance: int | None = None,
    progress: Callable[[IndexReport], object] | None = None,
) -> IndexReport:
    """Makes the index file of a data set, or brings it up to date, so that it opens at once.

    Entries of shards that did not change are kept; a run that was stopped, also by a kill, goes on
    where it was. The file has the same bytes whatever the threads.

    Args:
        source: as of :class:`Dataset`.
        checksums: read all bytes, once, and keep a checksum (XXH3-64) of each member and the
            SHA-256 of each shard.
        labels: keep the numbers in ``.cls`` members.
        access: note places in gz and zstd shards where unpacking can begin, so that they are read
            in any order and shuffled: a number of unpacked bytes from one to the next (at least
            64 KiB), or ``True`` for 1 MiB. zstd can be entered at its frames only; those are noted
            unasked. ``shards_sequential`` of the report counts what cannot be had.
        force: read everything again.
        out: where the file goes. Default: ``stoker.index`` in the folder above all shards; in
            the cache where nothing can be written there.
        progress: called with an :class:`IndexReport` about four times a second.
    """
    where = "index"
    if engine is not None and not isinstance(engine, Engine):
        raise ArgumentError(f"engine {engine!r}", where, "give a stoker.Engine, or none")
    engine = engine if engine is not None else default_engine()
    native = _stoker.Indexer(
        engine._native,
        fsspec_source.native_paths(paths_of(source)),
        checksums=bool(checksums),
        labels=bool(labels),
        force=bool(force),
        key_bytes_max=count(key_bytes_max, f"{where} key_bytes_max", low=1),
        header_bytes_max=parse_bytes(header_bytes_max, f"{where} header_bytes_max"),
        join_distance=count(join_distance, f"{where} join_distance"),
        access_bytes=_access_bytes(access, f"{where} access"),
        **({} if out is None else {"out": paths_of(out)[0]}),
    )
    try:
        goes_on, report = native.next(0)
        while goes_on:
            if progress is not None:
                progress(_report(report))
            goes_on, report = native.next(250)
    finally:
        native.close()
    return _report(report)


def _access_bytes(value: Any, where: str) -> int:
    if isinstance(value, bool):
        return int(value)  # 1: the library's default
    number = parse_bytes(value, where)
    if number < 65536:
        raise ArgumentError(f"{value!r}", where, "give at least 65536 bytes, or True")
    return number


def _report(native: dict[str, Any]) -> IndexReport:
    values = {name: native[name] for name in IndexReport._fields if name in native}
    values["path"] = values["path"] or ""
    return IndexReport(**values, seconds=native["elapsed_ns"] / 1e9)


def order_at(
    sample_count: int,
    position: int,
    *,
    seed: int = 0,
    epoch: int = 0,
    shuffle: str = "block",
    block_samples: int = 1,
    window: int = 64,
    groups: int = 1,
) -> int:
    """The sample at a position of an epoch: the pure function behind every loader."""
    return _stoker.order_at(
        sample_count,
        block_samples,
        window,
        groups,
        word(shuffle, SHUFFLES, "shuffle"),
        seed,
        epoch,
        position,
    )
