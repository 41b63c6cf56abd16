#!/usr/bin/env python3
"""Make tars, and a file of tokens, for the benches that need no pictures.

usage: records.py --kind tiny|huge|tokens --out DIR

tiny   300,000 text records of about 100 bytes in 6 tars: the cost of a record itself
huge   128 records of 16 MB in 4 tars: memory and disk bandwidth
tokens 200 million uint16 in one file without a header, and as a Megatron set of documents
"""
import argparse
import io
import struct
import pathlib
import tarfile

import numpy

KINDS = {  # extension, tars, records a tar, bytes
    "tiny": ("txt", 6, 50_000, (60, 140)),
    "huge": ("bin", 4, 32, (16_000_000, 16_000_001)),
}


def write_tar(path, rng, kind, first):
    extension, _, records, (low, high) = KINDS[kind]
    part = path.with_suffix(".part")
    with tarfile.open(part, "w", format=tarfile.USTAR_FORMAT) as tar:
        for number in range(first, first + records):
            data = rng.bytes(int(rng.integers(low, high)))
            member = tarfile.TarInfo(f"{number:08d}.{extension}")
            member.size, member.mtime = len(data), 0
            tar.addfile(member, io.BytesIO(data))
    part.rename(path)


def write_tokens(path):
    part = path.with_suffix(".part")
    rng = numpy.random.default_rng(2)
    with open(part, "wb") as file:
        for _ in range(20):
            file.write(rng.integers(0, 50257, 10_000_000, numpy.uint16).tobytes())
    part.rename(path)


def write_documents(path, tokens):
    """The same tokens as a Megatron set: documents of e^N(6, 1.2) tokens, 830 in the mean."""
    lengths = numpy.random.default_rng(3).lognormal(6, 1.2, 400_000).astype("int32") + 1
    ends = numpy.cumsum(lengths, dtype="int64")
    count = int(numpy.searchsorted(ends, 200_000_000, side="right"))
    lengths, ends = lengths[:count], ends[:count]
    part = path.with_suffix(".part")
    part.write_bytes(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, count, count + 1)
                     + lengths.astype("<i4").tobytes() + (2 * (ends - lengths)).tobytes()
                     + numpy.arange(count + 1, dtype="<i8").tobytes())
    path.with_suffix(".bin").unlink(missing_ok=True)
    path.with_suffix(".bin").hardlink_to(tokens)
    part.rename(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kind", choices=[*KINDS, "tokens"], required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args()
    if args.kind == "tokens":
        args.out.mkdir(parents=True, exist_ok=True)
        if not (args.out / "tokens.bin").exists():
            write_tokens(args.out / "tokens.bin")
        if not (args.out / "documents.idx").exists():
            write_documents(args.out / "documents.idx", args.out / "tokens.bin")
        return
    (args.out / "tars").mkdir(parents=True, exist_ok=True)
    _, tars, records, _ = KINDS[args.kind]
    for number in range(tars):
        path = args.out / "tars" / f"train-{number:06d}.tar"
        if not path.exists():
            write_tar(path, numpy.random.default_rng([1, number]), args.kind, number * records)


if __name__ == "__main__":
    main()
