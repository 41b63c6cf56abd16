"""What every peer's script shares: the command line, the clock, and the one JSON line.

A script names its peer, imports it, and hands over open_stream(options): an iterator of image
batches that never ends (epoch after epoch). Here the stream is opened, checked and timed:

    t0 -- open_stream() -- first batch -- --warmup -- ...... batches for --seconds ...... -- end
    |----- first_batch_s -------------|             |--- images, seconds, CPU of the tree ---|

The counted part begins and ends with a batch, and this loop asks faster than any loader answers:
the queues are as empty at its beginning as at its end.
"""
import argparse
import glob
import json
import os
import pathlib
import random
import sys
import time

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
SIDE = 224
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


def parse_options(peer, modes, more_options=None):
    parser = argparse.ArgumentParser(description=f"Time {peer}, and print one JSON line.")
    parser.add_argument("--data", type=pathlib.Path, required=True, help="made by photos.py")
    parser.add_argument("--mode", choices=["tars", "folder"], default=modes[0])
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--dtype", choices=["float32", "uint8"], default="float32")
    parser.add_argument("--threads", type=int, default=2, help="threads or worker processes")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--warmup", type=float, default=0, help="seconds that do not count")
    parser.add_argument("--batches", type=int, help="stop after so many, the first included")
    parser.add_argument("--ahead", type=int, default=0, help="batches in flight; 0: its default")
    parser.add_argument("--seed", type=int, default=0)
    if more_options:
        more_options(parser)
    parser.add_argument("--idle", action="store_true", help="import, say so, sleep: for memory")
    options = parser.parse_args()
    if options.mode not in modes:
        options.mode = modes[0]
    return options


def tars(options):
    """The tars of the set, in order."""
    paths = sorted(glob.glob(str(options.data / "tars" / "*.tar")))
    if not paths:
        sys.exit(f"no tars under {options.data}: make them with bench/photos.py")
    return paths


def folder_files(options):
    """[(path, class)] of the class folders: the list of torchvision's ImageFolder."""
    root = options.data / "folder"
    classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
    return [(str(path), number) for number, name in enumerate(classes)
            for path in sorted((root / name).iterdir())]


def process_tree(pid):
    """The process and its descendants that are alive."""
    found, todo = [], [pid]
    while todo:
        pid = todo.pop()
        found.append(pid)
        for path in glob.glob(f"/proc/{pid}/task/*/children"):
            try:
                todo += [int(child) for child in pathlib.Path(path).read_text().split()]
            except OSError:
                pass  # that thread ended meanwhile
    return found


def cpu_seconds(pid):
    """User and system time of a process tree, ended children that were waited for included."""
    ticks = 0
    for each in process_tree(pid):
        try:
            after_name = pathlib.Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(int(field) for field in after_name[11:15])
    return ticks / TICKS_A_SECOND


def check_batch(images, options):
    """Refuse to time a peer that does not deliver what the options require."""
    shape, dtype = tuple(images.shape), str(images.dtype).rpartition(".")[2]
    wanted = (options.batch, 3, SIDE, SIDE)
    if shape != wanted or dtype != options.dtype:
        sys.exit(f"the first batch is {shape} {dtype}, not {wanted} {options.dtype}")


def thread_times():
    """{thread: (seconds on a core, seconds ready but without one)} of this process."""
    times = {}
    for path in glob.glob("/proc/self/task/*/schedstat"):
        try:
            on_core, ready, _ = pathlib.Path(path).read_text().split()
        except OSError:
            continue
        times[path] = int(on_core) / 1e9, int(ready) / 1e9
    return times


def asleep_share(before, after, seconds, threads):
    """The share of the busiest threads' time in which they were neither on a core nor ready for
    one: they waited for work or for a lock."""
    spent = [(on_core - before.get(thread, (0, 0))[0], ready - before.get(thread, (0, 0))[1])
             for thread, (on_core, ready) in after.items()]
    spent = sorted(spent, reverse=True)[:threads]
    return 1 - sum(map(sum, spent)) / (seconds * threads)


def measure(stream, options, count_of):
    """Read the stream for a while; return what was counted after the first batch and warm-up."""
    start = time.monotonic()
    while time.monotonic() - start < options.warmup:
        next(stream)
    images, batches, threads = 0, 1, thread_times()
    cpu_start, start = cpu_seconds(os.getpid()), time.monotonic()
    now = start
    while now - start < options.seconds and batches != options.batches:
        images += count_of(next(stream))
        batches += 1
        now = time.monotonic()
    seconds, cpu = now - start, cpu_seconds(os.getpid()) - cpu_start
    asleep = asleep_share(threads, thread_times(), seconds, options.threads or 1)
    return {"images": images, "seconds": round(seconds, 4),
            "images_per_s": round(images / seconds, 2),
            "cpu_ms_per_image": round(cpu * 1000 / images, 4), "asleep": round(asleep, 4)}


def run(peer, version, open_stream, modes=("tars", "folder"), check=check_batch, count_of=len,
        notes=None, more_options=None):
    """The main function of a script. notes() is called at the end; it returns a string, or a dict
    for the programs that run this one."""
    options = parse_options(peer, modes, more_options)
    random.seed(options.seed)
    if options.idle:
        print("idle", flush=True)
        time.sleep(3600)
    start = time.monotonic()
    stream = open_stream(options)
    first = next(stream)
    first_batch_s = time.monotonic() - start
    check(first, options)
    del first
    line = {"peer": peer, "version": version, "mode": options.mode, "dtype": options.dtype,
            "threads": options.threads, "first_batch_s": round(first_batch_s, 4)}
    if options.batches != 1:
        line |= measure(stream, options, count_of)
    line["notes"] = notes() if notes else ""
    print(json.dumps(line), flush=True)
    # Some peers take seconds to join their threads, or hang in it: the numbers are out.
    os._exit(0)
