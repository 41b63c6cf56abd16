"""A second reader and writer of stoker.index, written from docs/formats.md alone.

It shares only XXH3-64 with libstoker, and takes that from libxxhash.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import hashlib
import pathlib
import struct
from dataclasses import dataclass, field

PAGE = 16384
BYTES, SUMS, LABELS, DIGEST = 1, 2, 4, 8
GROUP, NEAR = 32, 3  # the first three columns are near columns


def xxh3(data: bytes) -> int:
    return _xxh3(bytes(data), len(data))


_xxh3 = ctypes.CDLL(ctypes.util.find_library("xxhash") or "libxxhash.so.0").XXH3_64bits
_xxh3.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
_xxh3.restype = ctypes.c_uint64


@dataclass
class Member:
    extension: str
    offset: int
    bytes: int
    sum: int | None = None


@dataclass
class Sample:
    key: bytes
    members: list[Member]
    label: int = -1


@dataclass
class Shard:
    path: bytes
    bytes: int
    samples: list[Sample]
    packing: int = 0
    digest: bytes | None = None

    def members(self) -> list[Member]:
        return [member for sample in self.samples for member in sample.members]

    def identity(self) -> bytes:
        sha = hashlib.sha256()
        for sample in self.samples:
            sha.update(sample.key + b"\0" + struct.pack("<Q", len(sample.members)))
            for m in sample.members:
                sha.update(m.extension.encode() + b"\0" + struct.pack("<QQ", m.offset, m.bytes))
        return sha.digest()


@dataclass
class File:
    path: bytes
    extension: str
    label: int
    sum: int | None = None


@dataclass
class Index:
    shards: list[Shard] = field(default_factory=list)
    files: list[File] = field(default_factory=list)
    classes: list[bytes] = field(default_factory=list)
    block_samples: int = 0
    member_gap_max: int = 0
    key_bytes_max: int = 4096
    identity: bytes = b""


# ---- reading --------------------------------------------------------------------------------


def read(content: bytes) -> Index:
    """Raises ValueError where a sum is wrong."""
    if content[:16] != b"STOKERIX" + struct.pack("<II", 2, PAGE):
        raise ValueError("head")
    foot = content[-232:]
    if foot[:16] != b"XIREKOTS" + struct.pack("<II", 2, PAGE):
        raise ValueError("foot")
    if struct.unpack_from("<Q", foot, 224)[0] != xxh3(foot[:224]):
        raise ValueError("sum of the foot")
    size, pages_at, pages_sum, kind, _, count = struct.unpack_from("<QQQIIQ", foot, 16)
    if size != len(content):
        raise ValueError("size")
    sums = content[pages_at:-232]
    if xxh3(sums) != pages_sum:
        raise ValueError("sum of the sums")
    for page, (want,) in enumerate(struct.iter_unpack("<Q", sums)):
        if xxh3(content[page * PAGE : min((page + 1) * PAGE, pages_at)]) != want:
            raise ValueError(f"page {page}")
    section = {
        name: content[at : at + length]
        for name, (at, length) in zip(
            ("records", "paths", "extensions", "classes", "sums"),
            struct.iter_unpack("<QQ", foot[128:208]),
            strict=True,
        )
    }
    extensions = section["extensions"].decode("utf-8", "surrogateescape").split("\0")[:-1]
    index = Index(classes=section["classes"].split(b"\0")[:-1], identity=foot[96:128])
    index.block_samples, index.member_gap_max, index.key_bytes_max = struct.unpack_from(
        "<QII", foot, 80
    )
    if kind == 1:
        for number in range(count):
            record = section["records"][136 * number : 136 * (number + 1)]
            index.shards.append(read_shard(content, record, section["paths"], extensions))
    else:
        file_sums = [value for (value,) in struct.iter_unpack("<Q", section["sums"])]
        for number, (at, length, ext, label) in enumerate(
            struct.iter_unpack("<QHHi", section["records"])
        ):
            path = section["paths"][at : at + length]
            file_sum = file_sums[number] if file_sums else None
            index.files.append(File(path, extensions[ext], label, file_sum))
    return index


def read_shard(content: bytes, record: bytes, paths: bytes, extensions: list[str]) -> Shard:
    path_at, size, _, _, at = struct.unpack_from("<QQQQQ", record, 0)
    path_bytes, samples, members, keys_bytes = struct.unpack_from("<IIII", record, 40)
    packing, flags, widths = record[56], record[57], record[58:64]
    counts = [members, samples + 1, samples + 1, members, members, samples * bool(flags & LABELS)]

    def take(width: int, number: int) -> list[int]:
        nonlocal at
        values = [
            int.from_bytes(content[at + i * width : at + (i + 1) * width], "little")
            for i in range(number)
        ]
        at += width * number
        return values

    sums = take(8, members) if flags & SUMS else [None] * members
    bases = [take(8, -(-count // GROUP)) for count in counts[:NEAR]]
    columns = [take(width, count) for width, count in zip(widths, counts, strict=True)]
    for column, base in zip(columns, bases, strict=False):
        column[:] = [value + base[i // GROUP] for i, value in enumerate(column)]
    units, firsts, starts, sizes, numbers, labels = columns
    labels = [(label - 1) if label <= 1 << 63 else label - 1 - (1 << 64) for label in labels]
    keys = content[at : at + keys_bytes]
    found = [
        Member(extensions[n], unit * (1 if flags & BYTES else 512), length, value)
        for n, unit, length, value in zip(numbers, units, sizes, sums, strict=True)
    ]
    return Shard(
        paths[path_at : path_at + path_bytes],
        size,
        [
            Sample(
                keys[starts[i] : starts[i + 1]],
                found[firsts[i] : firsts[i + 1]],
                labels[i] if labels else -1,
            )
            for i in range(samples)
        ],
        packing,
        record[104:136] if flags & DIGEST else None,
    )


# ---- writing --------------------------------------------------------------------------------


class Output:
    def __init__(self) -> None:
        self.content = bytearray()

    def put(self, data: bytes) -> tuple[int, int]:
        at = len(self.content)
        self.content += data
        return at, len(data)

    def align(self) -> None:
        self.content += bytes(-len(self.content) % 8)


def write(index: Index) -> bytes:
    out = Output()
    out.put(b"STOKERIX" + struct.pack("<II", 2, PAGE))
    members = [m for shard in index.shards for m in shard.members()]
    words = sorted(
        {m.extension.encode() for m in members} | {f.extension.encode() for f in index.files}
    )
    number = {word.decode(): n for n, word in enumerate(words)}
    file_sums = (len(out.content), 0)
    if index.files:
        paths = out.put(b"".join(f.path for f in index.files))
        out.align()
        at, entries = 0, b""
        for f in index.files:
            entries += struct.pack("<QHHi", at, len(f.path), number[f.extension], f.label)
            at += len(f.path)
        records = out.put(entries)
        if index.files[0].sum is not None:
            file_sums = out.put(b"".join(struct.pack("<Q", f.sum) for f in index.files))
        samples = member_count = len(index.files)
    else:
        table, at, samples = b"", 0, 0
        for shard in index.shards:
            table += write_block(out, shard, number, at, samples)
            at += len(shard.path)
            samples += len(shard.samples)
        out.align()
        records = out.put(table)
        paths = out.put(b"".join(shard.path for shard in index.shards))
        member_count = len(members)
    extensions = out.put(b"".join(word + b"\0" for word in words))
    classes = out.put(b"".join(name + b"\0" for name in index.classes))
    out.align()
    if not index.files or index.files[0].sum is None:
        file_sums = (0, 0)
    pages_at = len(out.content)
    sums = b"".join(
        struct.pack("<Q", xxh3(out.content[at : at + PAGE])) for at in range(0, pages_at, PAGE)
    )
    size = sum(m.bytes for m in members)
    foot = b"XIREKOTS" + struct.pack("<II", 2, PAGE)
    foot += struct.pack("<QQQ", pages_at + len(sums) + 232, pages_at, xxh3(sums))
    foot += struct.pack("<II", 2 if index.files else 1, any(s.packing for s in index.shards))
    foot += struct.pack("<QQQ", len(index.shards) + len(index.files), samples, member_count)
    foot += struct.pack("<QQ", size, index.block_samples or block_samples(size, samples))
    foot += struct.pack("<II", index.member_gap_max, index.key_bytes_max) + identity(index)
    for section in (records, paths, extensions, classes, file_sums):
        foot += struct.pack("<QQ", *section)
    foot += bytes(16)
    return bytes(out.content) + sums + foot + struct.pack("<Q", xxh3(foot))


def write_block(out: Output, shard: Shard, number: dict[str, int], path_at: int, before: int):
    """Puts the block, answers the record."""
    members = shard.members()
    count, samples = len(members), len(shard.samples)
    in_bytes = any(m.offset % 512 for m in members)
    flags = BYTES * in_bytes | DIGEST * (shard.digest is not None)
    flags |= SUMS * (count > 0 and members[0].sum is not None)
    flags |= LABELS * any(s.label != -1 for s in shard.samples)
    firsts, starts = [0], [0]
    for sample in shard.samples:
        firsts.append(firsts[-1] + len(sample.members))
        starts.append(starts[-1] + len(sample.key))
    keys = b"".join(sample.key for sample in shard.samples)
    columns = [
        [m.offset // (1 if in_bytes else 512) for m in members],
        firsts,
        starts,
        [m.bytes for m in members],
        [number[m.extension] for m in members],
        [(s.label + 1) % (1 << 64) for s in shard.samples] if flags & LABELS else [],
    ]
    out.align()
    block_at = len(out.content)
    if flags & SUMS:
        out.put(struct.pack(f"<{count}Q", *(m.sum for m in members)))
    for column in columns[:NEAR]:
        bases = [min(column[i : i + GROUP]) for i in range(0, len(column), GROUP)]
        out.put(struct.pack(f"<{len(bases)}Q", *bases))
        column[:] = [value - bases[i // GROUP] for i, value in enumerate(column)]
    widths = [-(-max(column, default=0).bit_length() // 8) for column in columns]
    for column, width in zip(columns, widths, strict=True):
        out.put(b"".join(value.to_bytes(width, "little") for value in column))
    out.put(keys)
    record = struct.pack(
        "<QQQQQ", path_at, shard.bytes, sum(m.bytes for m in members), before, block_at
    )
    record += struct.pack("<IIII", len(shard.path), samples, count, len(keys))
    record += bytes([shard.packing, flags, *widths]) + bytes(8) + shard.identity()
    return record + (shard.digest or bytes(32))


def block_samples(size: int, samples: int) -> int:
    return max((2**23 * samples + size // 2) // size, 1) if size and samples else 256


def identity(index: Index) -> bytes:
    sha = hashlib.sha256(b"stoker index 1\0")
    for shard in index.shards:
        sha.update(pathlib.PurePosixPath(shard.path.decode()).name.encode() + b"\0")
        sha.update(shard.identity() + b"\1" + struct.pack("<Q", shard.bytes))
    for f in index.files:
        sha.update(f.path + b"\0\2" + struct.pack("<q", f.label))
    return sha.digest()
