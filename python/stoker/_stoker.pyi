"""The extension module: a thin binding of libstoker. stoker is the package to use."""

from collections.abc import Iterator, Sequence
from typing import Any, overload

__version__: str
ORDER_VERSION: int
STATUSES: dict[str, int]

RANDOM_RESIZED_CROP: int
RESIZE: int
CENTER_CROP: int
RANDOM_CROP: int
RANDOM_HORIZONTAL_FLIP: int
RANDOM_VERTICAL_FLIP: int
COLOR_JITTER: int
NORMALIZE: int
BILINEAR: int
TRANSFORM_SIDE_MAX: int
BICUBIC: int
NEAREST: int
UINT8: int
FLOAT32: int
FLOAT16: int
BFLOAT16: int
INT64: int
FLOAT64: int
BOOL: int
INT8: int
INT16: int
UINT16: int
INT32: int
UINT32: int
UINT64: int
NCHW: int
NHWC: int
IO_AUTO: int
IO_URING: int
IO_THREADS: int
DIRECT_AUTO: int
DIRECT_NEVER: int
DIRECT_ALWAYS: int
SIMD_AUTO: int
SIMD_NONE: int
SIMD_AVX2: int
SHUFFLE_BLOCK: int
SHUFFLE_FULL: int
SHUFFLE_NONE: int
SHUFFLE_TWO_LEVEL: int
MIX_REPEAT: int
MIX_STOP: int
MIX_RENORMALISE: int
TAIL_DROP: int
TAIL_PAD: int
TAIL_WRAP: int
TAIL_KEEP: int
CHECK_DECODED: int
CHECK_WHOLE: int
CHECK_TOLERANT: int
COPY: int
SYNC: int
REMOVE: int
MOVE: int
COMPARE_TIME: int
COMPARE_SIZE: int
COMPARE_CHECKSUM: int
NOTE_FAILED: int
NOTE_LEFT_OUT: int
NOTE_SYSTEM_FILE: int
NOTE_NOT_DELETED: int
NOTE_WOULD_COPY: int
NOTE_WOULD_REMOVE: int
CHECK_AUTO: int
CHECK_CRC64NVME: int
CHECK_CRC32C: int
CHECK_SHA256: int
CHECK_MD5: int
FIELD_IMAGE: int
FIELD_LABEL: int
FIELD_BYTES: int
FIELD_KEY: int
FIELD_FLOAT: int
FIELD_SAMPLE: int
FIELD_TEXT: int
FIELD_INT: int
FIELD_ARRAY: int
FIELD_MASK: int
FIELD_BOXES: int
FIELD_BOX_LABELS: int
FIELD_JSON: int
FIELD_MSGPACK: int
XYXY: int
XYWH: int
CXCYWH: int
ON_ERROR_RAISE: int
ON_ERROR_SKIP: int
INDEX_AUTO: int
INDEX_NEVER: int
FOREIGN_INDEX_AUTO: int
FOREIGN_INDEX_NEVER: int
INDEX_REQUIRE: int
LABELS_SHIFTED: int
LABELS_NONE: int
LABELS_UNSHIFTED: int
ROWS_WINDOWS: int
ROWS_PACKED: int
ROWS_DOCUMENTS: int
ROWS_PADDED: int
BOUNDARY_MASKED: int
BOUNDARY_NEXT: int
POSITIONS_NONE: int
POSITIONS_RESET: int
POSITIONS_ROW: int

def order_at(
    sample_count: int,
    block_samples: int,
    window_blocks: int,
    group_count: int,
    shuffle: int,
    seed: int,
    epoch: int,
    position: int,
    /,
) -> int: ...

def mix_samples(sample_count: int, mix: tuple[Any, ...], /) -> int: ...

class ExternalFs:
    def __new__(cls) -> ExternalFs: ...
    def start(self) -> None: ...
    def next(
        self, timeout_ms: int, /
    ) -> tuple[int, int, str, int, memoryview | None] | None: ...
    def reply(
        self,
        number: int,
        status: int,
        *,
        bytes: int = ...,
        mtime_ns: int = ...,
        version: int = ...,
        is_folder: bool = ...,
        names: bytes = ...,
        name_count: int = ...,
        what: str = ...,
        advice: str = ...,
    ) -> None: ...

class Cache:
    def __new__(
        cls,
        paths: tuple[bytes, ...],
        *,
        bytes_max: int = ...,
        free_bytes: int = ...,
        block_bytes: int = ...,
        must_exist: bool = ...,
    ) -> Cache: ...
    def stats(self) -> dict[str, int]: ...
    def folders(self) -> list[dict[str, Any]]: ...
    def report(self, action: int, url_prefix: str, /) -> list[dict[str, Any]]: ...
    def collect(self) -> int: ...
    def close(self) -> None: ...

class Engine:
    def __new__(
        cls,
        *,
        sandbox_helper: str | None = ...,
        external_fs: ExternalFs = ...,
        cache: Cache = ...,
        **options: int,
    ) -> Engine: ...
    def cache_stats(self) -> dict[str, int] | None: ...
    def info(self) -> dict[str, Any]: ...
    def store_stats(self) -> dict[str, Any]: ...
    def close(self) -> None: ...

class Dataset:
    def __new__(cls, engine: Engine, urls: tuple[bytes, ...], **options: Any) -> Dataset: ...
    def info(self) -> dict[str, Any]: ...
    def classes(self) -> list[str]: ...
    def path_classes(self) -> list[str]: ...
    def sample(self, index: int, /) -> tuple[str, list[tuple[str, str, int, int | None]]]: ...
    def read(self, index: int, extension: str, /) -> bytes: ...
    def refresh(self, shard_count: int, /) -> Dataset | None: ...
    def as_of(self, state: tuple[Any, ...], /) -> Dataset | None: ...
    def join(self, others: tuple[Dataset, ...], /) -> Dataset: ...
    def url_end(self, url: int, /) -> int: ...
    def quarantine(self) -> list[tuple[str, str, int | None, int, str, str, int | None]]: ...
    def close(self) -> None: ...

def token_rows_batch(
    source: tuple[Engine, int],
    options: dict[str, Any],
    epoch: int,
    tokens: Any,
    ends: Any,
    ids: Any,
    rows: int = ...,
    /,
) -> Batch: ...

class Tokens:
    def __new__(
        cls,
        engine: Engine,
        paths: tuple[bytes, ...],
        dtype: int,
        cache_bytes: int = ...,
        virtual_tokens: int = ...,
        identity: bytes = ...,
        vocab_size: int = ...,
    ) -> Tokens: ...
    def info(self) -> dict[str, Any]: ...
    def close(self) -> None: ...

class TokenLoader:
    def __new__(cls, source: Tokens, context: int, **options: Any) -> TokenLoader: ...
    def next(self) -> Batch | None: ...
    def set_epoch(self, epoch: int, /) -> None: ...
    def batches(self, epoch: int, /) -> int: ...
    def samples(self) -> int: ...
    def file_end(self, file: int, /) -> int: ...
    def first_token(self, sample: int, /) -> int: ...
    def bad_samples(self) -> int: ...
    def quarantine(self) -> list[tuple[str, str, int | None, int, str, str, int | None]]: ...
    def mix_change_position(self, least: int, /) -> int: ...
    def state(self, epoch: int = ..., position: int = ..., /) -> tuple[Any, ...]: ...
    def position(self) -> tuple[int, int]: ...
    def set_state(self, state: tuple[Any, ...], /) -> None: ...
    def close(self) -> None: ...

class Indexer:
    def __new__(cls, engine: Engine, urls: tuple[bytes, ...], **options: Any) -> Indexer: ...
    def next(self, timeout_ms: int, /) -> tuple[bool, dict[str, Any]]: ...
    def close(self) -> None: ...

_FileInfo = tuple[str, str, int, int, str, str, str, int]

def url_alias(url: bytes, /) -> bytes: ...
def url_redact(url: bytes, /) -> bytes: ...
def stat(engine: Engine, path: bytes, /) -> _FileInfo: ...
def location(engine: Engine, url: bytes, /) -> dict[str, Any]: ...
def buckets_list(engine: Engine, url: bytes, /) -> list[str]: ...
def presign(engine: Engine, url: bytes, expires_s: int, put: bool, /) -> str: ...
def paths_expand(
    engine: Engine, path: bytes, no_links: bool = False, /
) -> tuple[bool, list[bytes]]: ...
def files_forget_metadata(engine: Engine, /) -> None: ...
def files_prefetch_metadata(engine: Engine, paths: tuple[bytes, ...], /) -> None: ...
def read_ranges(
    ranges: list[tuple[File, int, int]], gap: int, /
) -> list[bytes | BaseException]: ...

class File:
    def __new__(cls, engine: Engine, path: bytes, /) -> File: ...
    def info(self) -> _FileInfo: ...
    def readinto(self, offset: int, buffer: Any, /) -> int: ...
    def close(self) -> None: ...

class Walk:
    def __new__(cls, engine: Engine, path: bytes, recursive: int, /) -> Walk: ...
    def next(self, most: int, /) -> list[_FileInfo] | None: ...
    def close(self) -> None: ...

class Copy:
    def __new__(
        cls,
        engine: Engine,
        kind: int,
        sources: tuple[bytes, ...],
        destination: bytes,
        **options: Any,
    ) -> Copy: ...
    def next(self, timeout_ms: int, /) -> tuple[bool, dict[str, Any], BaseException | None]: ...
    def notes(self) -> list[tuple[int, str, str, Exception | None]]: ...
    def close(self) -> None: ...

class CheckpointWriter:
    def __new__(
        cls,
        engine: Engine,
        path: bytes,
        memory_bytes_max: int = ...,
        threads: int = ...,
        bytes_per_s_max: int = ...,
        cpu_percent_max: int = ...,
        call_timeout_ms: int = ...,
    ) -> CheckpointWriter: ...
    def set_limits(self, bytes_per_s_max: int, cpu_percent_max: int, /) -> None: ...
    def save(
        self,
        step: int,
        tensors: list[tuple[bytes, str, tuple[int, ...], int]],
        tree: str | None,
        values: str | None,
        rank: int,
        ranks: int,
        save_id: str | None,
        file: str | None,
        /,
    ) -> CheckpointSave: ...
    def commit(
        self, step: int, values: str | None, ranks: int, save_id: str, parts: bytes, /
    ) -> None: ...
    def close(self) -> None: ...

class CheckpointSave:
    def copy(
        self, timeout_ms: int, /
    ) -> None | bool | tuple[int, int, int, int, int, int]: ...
    def next(self, timeout_ms: int, /) -> tuple[bool, int, int, int, int, int]: ...
    def part(self) -> bytes: ...
    def close(self) -> None: ...

class Checkpoint:
    def __new__(cls, engine: Engine, path: bytes, step: int | None = ...) -> Checkpoint: ...
    def info(self) -> tuple[int | None, str, str, int, int, bool]: ...
    def files(self) -> list[tuple[str, str | None, int, bytes]]: ...
    def tensors(self) -> list[tuple[str, str, tuple[int, ...], int, int]]: ...
    def load(
        self, ranges: list[tuple[int, int, int, int]], buffers: object, /
    ) -> CheckpointLoad: ...
    def close(self) -> None: ...

class CheckpointLoad:
    def next(self, timeout_ms: int, /) -> tuple[bool, int, int, int, int, int]: ...
    def close(self) -> None: ...

def checkpoint_list(
    engine: Engine, path: bytes, /
) -> list[
    tuple[int, int, bool, int, int, int, str | None, str | None, int | None, int | None]
]: ...
def checkpoint_pin(engine: Engine, path: bytes, step: int, on: bool, /) -> None: ...
def checkpoint_remove(engine: Engine, path: bytes, step: int, /) -> None: ...
def checkpoint_gc(
    engine: Engine,
    path: bytes,
    keep_last: int,
    keep_every: int,
    best_metric: str | None,
    keep_best: int,
    best_is_max: bool,
    dry_run: bool,
    /,
) -> tuple[int, int, int]: ...

class Pack:
    def __new__(
        cls, dataset: Dataset, destination: bytes, pattern: str | None, **options: Any
    ) -> Pack: ...
    def next(self, timeout_ms: int, /) -> tuple[bool, dict[str, int]]: ...
    def quarantine(self) -> list[tuple[str, str, int | None, int, str, str, int | None]]: ...
    def close(self) -> None: ...

class ShardWriter:
    def __new__(
        cls,
        engine: Engine,
        destination: bytes,
        pattern: str | None,
        classes: tuple[bytes, ...],
        *,
        source: bytes = ...,
        shard_bytes: int = ...,
    ) -> ShardWriter: ...
    def add(self, key: bytes, members: tuple[tuple[bytes, Any], ...], /) -> None: ...
    def position(self) -> int: ...
    def resume_key(self) -> str | None: ...
    def commit(self) -> None: ...
    def close(self) -> None: ...

class Verify:
    def __new__(cls, engine: Engine, urls: tuple[bytes, ...], **options: Any) -> Verify: ...
    def next(
        self,
    ) -> tuple[str, str, int | None, str, str, str, str, int, str, bool] | None: ...
    def progress(self) -> dict[str, int]: ...
    def close(self) -> None: ...

class Diff:
    def __new__(cls, a: Dataset, b: Dataset, *, reread: bool = ...) -> Diff: ...
    def next(self) -> tuple[str, str, int | None, int | None, str, str, str] | None: ...
    def progress(self) -> dict[str, int]: ...
    def close(self) -> None: ...

class Loader:
    def __new__(
        cls, dataset: Dataset, fields: tuple[Any, ...], batch_size: int = ..., **options: Any
    ) -> Loader: ...
    def next(self, timeout_ms: int, /) -> Batch | None: ...
    def set_epoch(self, epoch: int, /) -> None: ...
    def batches(self, epoch: int, /) -> int: ...
    def state(self, epoch: int = ..., position: int = ..., /) -> tuple[Any, ...]: ...
    def position(self) -> tuple[int, int]: ...
    def set_state(self, state: tuple[Any, ...], /) -> None: ...
    def samples(self) -> int: ...
    def mix_change_position(self, least: int, /) -> int: ...
    def explain(
        self, epoch: int, step: int, rank: int, mix: tuple[Any, ...] | None, /
    ) -> list[tuple[int, int, int, int, int, bool]]: ...
    def mixing(
        self, dataset: Dataset, labels: Any, mix: tuple[Any, ...] | None, /
    ) -> dict[str, Any]: ...
    def stats(self) -> dict[str, int]: ...
    def quarantine(self) -> list[tuple[str, str, int | None, int, str, str, int | None]]: ...
    def close(self) -> None: ...

class Sampler:
    def __new__(cls, dataset: Dataset, **options: Any) -> Sampler: ...
    def next(self, timeout_ms: int, /) -> bool: ...
    def info(self) -> dict[str, Any]: ...

class Batch:
    @property
    def samples(self) -> int: ...
    @property
    def ids(self) -> Array: ...
    @property
    def mask(self) -> Array: ...
    def array(self, field: int, /) -> Any: ...
    def close(self) -> None: ...

class Array:
    """Memory of a batch, shown without a copy by DLPack and the buffer protocol.

    It keeps the batch's memory until it and all that was made of it are gone.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next, as in NumPy."""
    @property
    def dtype(self) -> str:
        """ "uint8", "float32", "float16", "bfloat16", "float64", "bool", or "int8" to "uint64"."""
    @property
    def nbytes(self) -> int: ...
    @property
    def address(self) -> int:
        """Address of the first element."""
    def tolist(self) -> list[Any]: ...
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __dlpack__(
        self,
        *,
        stream: None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

class Bytes(Sequence[memoryview]):
    """A field of variable length: a sequence of read-only views of the batch, no copy.

    Each view keeps the batch's memory.
    """

    @property
    def values(self) -> Array:
        """uint8: all values, one after the other; read-only."""
    @property
    def offsets(self) -> Array:
        """int64 [items + 1]: offset of each item in values; read-only."""
    def tolist(self) -> list[bytes]:
        """A list of copies."""
    def text(self, errors: str, /) -> list[str]:
        """A list of texts, decoded from UTF-8."""
    @overload
    def __getitem__(self, index: int, /) -> memoryview: ...
    @overload
    def __getitem__(self, index: slice, /) -> list[memoryview]: ...
    def __iter__(self) -> Iterator[memoryview]: ...
    def __len__(self) -> int: ...
