#!/usr/bin/env python3
"""Write samples one by one as tars of 256 MiB, by webdataset's ShardWriter or stoker's.

Both get the same dicts of bytes: pictures of class folders, or the members of tars. Prints one JSON
line: wall and CPU seconds after the imports, and the bytes of the samples.
"""
import argparse
import json
import os
import pathlib
import tarfile
import time

SHARD_BYTES = 256 << 20


def of_folder(root):
    """Class folders: {"__key__", "jpg", "cls"}."""
    for label, folder in enumerate(sorted(entry for entry in root.iterdir() if entry.is_dir())):
        for path in sorted(folder.iterdir()):
            yield {"__key__": f"{folder.name}/{path.stem}", "jpg": path.read_bytes(),
                   "cls": str(label).encode()}


def of_tars(root):
    """Tars whose samples have one member each."""
    for path in sorted(root.glob("*.tar")):
        with tarfile.open(path) as archive:
            for member in archive:
                key, _, extension = member.name.partition(".")
                yield {"__key__": key, extension: archive.extractfile(member).read()}


def open_writer(peer, target):
    if peer == "webdataset":
        import webdataset

        return webdataset.__version__, lambda: webdataset.ShardWriter(
            f"{target}/shard-%06d.tar", maxcount=10**9, maxsize=SHARD_BYTES, verbose=0)
    import stoker

    stoker.default_engine()
    return stoker.__version__, lambda: stoker.ShardWriter(target / "shards")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("peer", choices=["webdataset", "stoker"])
    parser.add_argument("source", type=pathlib.Path, help="class folders, or a folder of tars")
    parser.add_argument("target", type=pathlib.Path)
    args = parser.parse_args()
    version, writer = open_writer(args.peer, args.target)
    samples = of_tars if next(args.source.glob("*.tar"), None) else of_folder
    # In memory before the clock starts: only the writing is timed.
    samples = list(samples(args.source))
    size = sum(len(data) for sample in samples for name, data in sample.items() if name[0] != "_")
    start, before = time.perf_counter(), os.times()
    with writer() as sink:
        for sample in samples:
            sink.write(sample)
    wall, after = time.perf_counter() - start, os.times()
    cpu = after.user - before.user + after.system - before.system
    print(json.dumps({"version": version, "seconds": wall, "cpu_s": cpu, "bytes": size}))


if __name__ == "__main__":
    main()
