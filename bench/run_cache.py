#!/usr/bin/env python3
"""Measure the node cache (docs/cache.md) with a store on this machine.

usage: run_cache.py [FOLDER]      default: a temporary folder; it should be on the disk to measure

Prints one row for each number: reads of cached blocks against reads of a local file, the
first and the second reading of an object with and without a cache, downloads of a block by eight
processes, and the time to open a cache with a million slots.
"""
import argparse
import collections
import contextlib
import http.server
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time

import stoker

OBJECT = os.urandom(1 << 20) * 512
PROCESSES = 8


class Store(http.server.BaseHTTPRequestHandler):
    """One object, by ranges."""

    protocol_version = "HTTP/1.1"
    ranges = collections.Counter()

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        first = int(match[1]) if match else 0
        last = int(match[2] or len(OBJECT) - 1) if match else len(OBJECT) - 1
        if (first, last) != (0, 0):
            self.ranges[first, last] += 1
        self.send_response(206 if match else 200)
        self.send_header("ETag", '"1"')
        self.send_header("Content-Length", str(last + 1 - first))
        if match:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(OBJECT)}")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(memoryview(OBJECT)[first : last + 1])


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
    """A quota of 4 TB has 2,097,152 slots: the index is as large for an empty cache."""
    stoker.Cache(folder / "large", bytes="4TiB", free=1).close()
    took = min(seconds(lambda: stoker.Cache(folder / "large").close()) for _ in range(5))
    row("open, 2,097,152 slots", took * 1e3, "ms",
        f"{(folder / 'large' / 'stoker-cache.index').stat().st_size / 1e6:.1f} MB mapped")


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
    server.shutdown()


if __name__ == "__main__":
    main()
