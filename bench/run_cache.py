#!/usr/bin/env python3
"""Measure the node cache (docs/cache.md) with a store on this machine.

usage: run_cache.py [FOLDER]      default: a temporary folder; it should be on the disk to measure

Prints one row for each number: reads of cached blocks against reads of a local file, the
first and the second reading of an object with and without a cache, downloads of a block by eight
processes, the time to open a cache with a million slots, and the share of hits of a cache for half
of the data.
"""
import argparse
import collections
import contextlib
import io
import http.server
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

import stoker

OBJECT = os.urandom(1 << 20) * 512
PROCESSES = 8
BLOCK = 256 << 10
SHARDS, SAMPLES, SAMPLE_BYTES, EPOCHS = 32, 64, 31 << 10, 5


class Store(http.server.BaseHTTPRequestHandler):
    """One object, by ranges."""

    protocol_version = "HTTP/1.1"
    ranges = collections.Counter()
    shards: dict[str, bytes] = {}

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        data = OBJECT if self.path == "/object" else self.shards.get(self.path)
        if data is None:
            self.send_error(404)
            return
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        first = int(match[1]) if match else 0
        last = int(match[2] or len(data) - 1) if match else len(data) - 1
        if (first, last) != (0, 0):
            self.ranges[first, last] += 1
        self.send_response(206 if match else 200)
        self.send_header("ETag", '"1"')
        self.send_header("Content-Length", str(last + 1 - first))
        if match:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(memoryview(data)[first : last + 1])


def row(name, value, unit, note=""):
    print(f"{name:44} {value:10.3f} {unit:6} {note}", flush=True)


def drop_page_cache(*paths):
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def seconds(work, clock=time.perf_counter):
    start = clock()
    work()
    return clock() - start


def read_object(url, **options):
    with stoker.Engine(**options) as engine:
        assert len(stoker.cat(url, engine=engine)) == len(OBJECT)


def measure(folder, url):
    gigabytes = len(OBJECT) / 1e9
    cache = folder / "cache"
    without = min(seconds(lambda: read_object(url)) for _ in range(3))
    row("read from the store, without a cache", gigabytes / without, "GB/s")
    filling = seconds(lambda: read_object(url, cache=cache, cache_bytes="4GiB"))
    row("first read, while the cache is filled", gigabytes / filling, "GB/s",
        f"{100 * without / filling:.0f} % of the read without a cache")
    plain = folder / "plain"
    plain.write_bytes(OBJECT)
    for name, clock in (("", time.perf_counter), (", CPU time", time.process_time)):
        pairs = [(seconds(lambda: read_object(url, cache=cache), clock),
                  seconds(lambda: read_object(str(plain)), clock)) for _ in range(5)]
        cached, local = (min(times) for times in zip(*pairs, strict=True))
        row(f"second read, from the page cache{name}", gigabytes / cached, "GB/s",
            f"{100 * local / cached:.0f} % of a local file ({gigabytes / local:.3f} GB/s)")
    drop_page_cache(plain, *cache.iterdir())
    cold = seconds(lambda: read_object(url, cache=cache))
    local = seconds(lambda: read_object(str(plain)))
    row("second read, from the disk", gigabytes / cold, "GB/s",
        f"{100 * local / cold:.0f} % of a local file ({gigabytes / local:.3f} GB/s)")


def measure_processes(folder, url):
    program = "import stoker, sys; e = stoker.Engine(threads=1, cache=sys.argv[1]); " \
              "stoker.cat(sys.argv[2], engine=e)"
    stoker.Cache(folder / "shared", bytes="4GiB").close()
    Store.ranges.clear()
    running = [subprocess.Popen([sys.executable, "-c", program, folder / "shared", url])
               for _ in range(PROCESSES)]
    assert all(process.wait() == 0 for process in running)
    row(f"downloads of a block by {PROCESSES} processes", max(Store.ranges.values()), "",
        f"{len(Store.ranges)} blocks, {sum(Store.ranges.values())} downloads")


def measure_open(folder):
    """A quota of 4 TB has 1,999,872 slots: the index is as large for an empty cache."""
    stoker.Cache(folder / "large", bytes="4TiB", free=1).close()
    took = min(seconds(lambda: stoker.Cache(folder / "large").close()) for _ in range(5))
    row("open, 1,999,872 slots", took * 1e3, "ms",
        f"{(folder / 'large' / 'stoker-cache.index').stat().st_size / 1e6:.1f} MB mapped")


def make_shards():
    for number in range(SHARDS):
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode="w") as archive:
            for i in range(SAMPLES):
                info = tarfile.TarInfo(f"{number:02}-{i:03}.bin")
                info.size = SAMPLE_BYTES
                archive.addfile(info, io.BytesIO(os.urandom(SAMPLE_BYTES)))
        Store.shards[f"/s{number:02}.tar"] = file.getvalue()


def blocks_of(samples):
    """The blocks that a list of samples reads, in order."""
    step = SAMPLE_BYTES + 512 + -SAMPLE_BYTES % 512
    for sample in samples:
        shard, i = divmod(sample, SAMPLES)
        for block in range(i * step // BLOCK, (i * step + 512 + SAMPLE_BYTES - 1) // BLOCK + 1):
            yield shard, block


def simulate(trace, first, capacity, policy):
    """The share of hits from number `first` of a trace on."""
    later, upcoming = {}, [0] * len(trace)
    for at in range(len(trace) - 1, -1, -1):
        upcoming[at] = later.get(trace[at], len(trace) + at)
        later[trace[at]] = at
    cached, hits = {}, 0
    for at, block in enumerate(trace):
        hits += block in cached and at >= first
        if block in cached or policy != "keep" or len(cached) < capacity:
            cached[block] = at if policy == "lru" else -upcoming[at]
        if len(cached) > capacity:
            del cached[min(cached, key=cached.get)]
    return hits / (len(trace) - first)


def measure_eviction(folder, base):
    """A cache of half the data: hits of a loader, whose order the cache knows."""
    make_shards()
    count = sum((len(data) + BLOCK - 1) // BLOCK for data in Store.shards.values())
    quota = 4096 + 1024 * 32 + count // 2 * (BLOCK + 16384) + 32768
    cache = stoker.Cache(folder / "half", bytes=quota, block=BLOCK)
    trace, first = [], 0
    with stoker.Loader([f"{base}{name}" for name in Store.shards], batch_size=16, seed=3,
                       fields={"x": stoker.Bytes("bin"), "id": "__id__"}, shuffle="two-level",
                       memory="8MiB", threads=2, cache=cache) as loader:
        for epoch in range(EPOCHS):
            for batch in loader:
                trace += blocks_of(int(sample) for sample in batch["id"])
            if epoch == 0:
                first, before = len(trace), cache.stats()
    after = cache.stats()
    hits = after["hits"] - before["hits"]
    reads = hits + after["misses"] - before["misses"]
    known = {policy: simulate(trace, first, count // 2, policy)
             for policy in ("lru", "keep", "optimum")}
    row(f"hits, cache of half the data, {EPOCHS} epochs", hits / reads, "",
        f"simulated: LRU {known['lru']:.2f}, keep {known['keep']:.2f}, "
        f"Belady's optimum {known['optimum']:.2f}; {after['blocks_evicted']} blocks evicted")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?")
    folder = parser.parse_args().folder
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Store)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}/object"
    with contextlib.ExitStack() as stack:
        place = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(dir=folder)))
        measure(place, url)
        measure_processes(place, url)
        measure_open(place)
        measure_eviction(place, url.removesuffix("/object"))
    server.shutdown()


if __name__ == "__main__":
    main()
