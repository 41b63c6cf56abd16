#!/usr/bin/env python3
"""Measure stoker beside its peers, in turns, and write a table and bench/results/NAME.json.

usage: run.py images|marks|workers|jpeg|png|raw|cold|first-batch|scaling|tuning --data DIR [options]
       run.py tokens --data DIR [options]
       run.py order|sampling|simulate|resume|shuffle|mixing|accuracy [options]

  images       images/s, CPU an image and peak memory: random resized crops of 224, flip, normalise
  marks        stoker's loader with a side index of JPEGs, and with exact=False, beside DALI
  workers      the same of what works inside the worker processes of torch's DataLoader
  jpeg         decode and resize of a random crop on one core, stage by stage, beside libjpeg-turbo
               and the prototype; JPEGs of four kinds; and without vectors
  png          decode of a random crop of PNGs of four kinds on one core, beside libpng
  raw          samples/s without decoding
  cold         O_DIRECT reads of tars from the disk, beside fio
  first-batch  from Loader() to its first batch, page cache warm and cold
  scaling      one thread to two, and the time that threads sleep
  tuning       settings found by themselves, beside a sweep by hand
  tokens       batches of 32 windows of 2,049 tokens, beside numpy.memmap and mosaicml-streaming
  order        nanoseconds for one position of the order and of a mix of 8 sources, beside grain's
               index_shuffle
  sampling     the same of chosen samples (a half, drawn, by weight, by class, two-level) of 10^9,
               and their tables, beside torch's samplers and NumPy's draws of a hundredth of them
  simulate     an epoch of 10^9 samples on 4,096 nodes of 8 ranks: each sample once, and the memory
               of each node's windows within its bound; beside streaming's order of such an epoch
  resume       from a loader's constructor to its batch at sample 10^9 of 10^10, and the memory of
               the process; beside streaming's order of a hundredth of them
  shuffle      how well orders mix (chi-squares, batch mates), beside a full permutation,
               streaming's py1e and shuffle buffers of the same memory
  mixing       classes of batches, runs of one class and chi-square by position, for data sorted by
               class whose size no block divides; beside torch's RandomSampler, webdataset's buffer
               and py1e
  accuracy     validation accuracy of a small network by order and decoding, 5 seeds each, beside
               PyTorch's own loader

Every round runs each candidate once (A B C A B C ...), so that a machine that slows down slows
all of them; ratios are taken within a round. The table shows medians, and the lowest and highest.
"""
import argparse
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import measure

WARMUP_S = 3  # compilers, first touch of memory, workers that start together and finish together
IMAGE_PEERS = "stoker,dali,ffcv,torchvision,imagefolder,spdl,webdataset"
# Not in the tree: unsafe, and written to find out the possible speed.
PROTOTYPE = measure.ROOT.parent / "shared" / "prototypes" / "jpeg" / "jpeg_prototype.c"
WINDOW_TOKENS = 2049  # of bench/peers/tokens_common.py
WORKER_PEERS = "stoker-torch,stoker,imagefolder,webdataset"


def say(text):
    print(f"run: {text}", file=sys.stderr, flush=True)


class Table:
    """Values by row, column and round; rows and columns in the order of their first value."""

    def __init__(self):
        self.values = {}

    def add(self, row, turn, **columns):
        for column, value in columns.items():
            self.values.setdefault(row, {}).setdefault(column, {})[turn] = value

    def add_ratios(self, column, base, name):
        """Add a column: each value over that of the row `base` in the same round."""
        theirs = self.values.get(base, {}).get(column, {})
        for row in list(self.values):
            for turn, value in self.values[row].get(column, {}).items():
                if turn in theirs:
                    self.add(row, turn, **{name: value / theirs[turn]})

    def text(self):
        columns = list(dict.fromkeys(c for row in self.values.values() for c in row))
        lines = [["", *columns]]
        for row, values in self.values.items():
            lines.append([row, *(self.cell([*values.get(column, {}).values()])
                                for column in columns)])
        widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
        return "\n".join("  ".join(cell.ljust(width) if i == 0 else cell.rjust(width)
                                   for i, (cell, width) in enumerate(zip(line, widths)))
                         for line in lines)

    @staticmethod
    def cell(values):
        if not values:
            return "-"

        def short(value):
            return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"

        if len(values) == 1:
            return short(values[0])
        low, high = short(min(values)), short(max(values))
        return f"{short(statistics.median(values))} ({low} - {high})"


def attempt(table, row, action):
    """Run one candidate; one that fails is reported once a round and left out."""
    try:
        say(row)
        return action()
    except measure.PeerFailed as failure:
        say(f"{row} left out: {failure}")
        return None


def peer_arguments(args, **more):
    given = {"data": args.data, "mode": args.mode, "dtype": args.dtype, "threads": args.threads,
             "batch": args.batch, "seconds": args.seconds} | more
    return [text for name, value in given.items() for text in (f"--{name}", str(value))]


# ---- images ----

def bench_images(args, table):
    workers = args.bench == "workers"
    peers = (args.peers or (WORKER_PEERS if workers else IMAGE_PEERS)).split(",")
    facts = {}
    measure.warm_up(measure.data_files(args.data, "tars/*.tar"))
    measure.warm_up(measure.data_files(args.data, "folder/*/*.jpg"))
    for turn in range(args.runs):
        say(f"round {turn + 1} of {args.runs}")
        for seed, peer in enumerate(peers, turn * 100):
            arguments = peer_arguments(args, seed=seed, warmup=WARMUP_S)
            result = attempt(table, peer, lambda: measure.run_peer(peer, arguments))
            if result:
                facts[peer] = {key: result[key] for key in ("version", "mode", "notes")}
                table.add(peer, turn, **{"images/s": result["images_per_s"],
                                         "CPU ms/image": result["cpu_ms_per_image"]})
        for peer in peers if args.memory_seconds else []:
            arguments = peer_arguments(args, seconds=args.memory_seconds)
            result = attempt(table, peer, lambda: measure.peak_memory_mb(peer, arguments))
            if result:
                table.add(peer, turn, **{"memory MB": result["peak"],
                                         "no files MB": result["own_peak"]})
    if workers:
        table.add_ratios("images/s", "webdataset", "x webdataset")
        table.add_ratios("images/s", "imagefolder", "x ImageFolder")
    else:
        table.add_ratios("images/s", "dali", "x DALI")
    return facts


# ---- marks ----

MARKS = {"": None, "marks of rows": "--jpeg-index", "marks of 4 MCUs": "--jpeg-index=4"}


def marked_indexes(args, folder):
    """{name of the marks: options of stoker's script}; the seconds that each took to be made."""
    build = measure.build_folder("stoker")
    tars = measure.data_files(args.data, "tars/*.tar")
    data_bytes = sum(os.path.getsize(path) for path in tars)
    given, facts = {"": []}, {}
    for name, option in MARKS.items():
        if option:
            index = pathlib.Path(folder, name.replace(" ", "-"), "stoker.index")
            index.parent.mkdir()
            before = os.times()
            subprocess.run([build / "stoker", "index", option, "--out", index, "--force", *tars],
                           check=True, capture_output=True)
            after = os.times()
            cpu_s = (after.children_user + after.children_system - before.children_user -
                     before.children_system)
            marks = index.with_name(index.name + ".marks").stat().st_size
            facts[name] = {"percent of the data": round(100 * marks / data_bytes, 3),
                           "CPU s": round(cpu_s, 2), "s": round(after.elapsed - before.elapsed, 2)}
            given[name] = ["--index", str(index)]
    return given, facts


def bench_marks(args, table):
    """Whole loaders from tars: float32 with and without marks, and uint8 with exact=False."""
    with tempfile.TemporaryDirectory() as folder:
        given, facts = marked_indexes(args, folder)
        rows = []
        for dtype, inexact in (("float32", []), ("uint8", []), ("uint8", ["--inexact"])):
            rows += [(f"{dtype}, dali", dtype, "dali", [])] if not inexact else []
            rows += [(", ".join(filter(None, (dtype, "stoker", marks,
                                              "exact=False" if inexact else ""))),
                      dtype, "stoker", options + inexact)
                     for marks, options in given.items()
                     if dtype == "float32" or inexact or not options]
        for turn in range(args.runs):
            say(f"round {turn + 1} of {args.runs}")
            for seed, (row, dtype, peer, more) in enumerate(rows, turn * 100):
                arguments = peer_arguments(args, dtype=dtype, seed=seed, warmup=WARMUP_S) + more
                result = attempt(table, row, lambda: measure.run_peer(peer, arguments))
                if result:
                    table.add(row, turn, **{"images/s": result["images_per_s"],
                                            "CPU ms/image": result["cpu_ms_per_image"]})
                    add_dali(table, row, f"{dtype}, dali", turn)
    return facts


def add_dali(table, row, base, turn):
    """Relative to DALI of the same type in the same round, by wall time and by CPU time."""
    ours, theirs = table.values[row], table.values.get(base, {})
    if turn in theirs.get("images/s", {}):
        table.add(row, turn, **{
            "x DALI": ours["images/s"][turn] / theirs["images/s"][turn],
            "x DALI CPU ms": theirs["CPU ms/image"][turn] / ours["CPU ms/image"][turn]})


# ---- raw ----

def bench_raw(args, table):
    measure.warm_up(measure.data_files(args.data, "tars/*.tar"))
    candidates = [("webdataset, dicts of bytes", "raw-webdataset", []),
                  ("stoker, bytes", "raw-stoker", ["--give", "bytes"]),
                  ("stoker, borrowed views", "raw-stoker", ["--give", "views"])]
    for turn in range(args.runs):
        say(f"round {turn + 1} of {args.runs}")
        for row, peer, more in candidates:
            arguments = peer_arguments(args, mode="tars", seed=turn) + more
            result = attempt(table, row, lambda: measure.run_peer(peer, arguments))
            if result:
                table.add(row, turn, **{"samples/s": result["images_per_s"],
                                        "CPU us/sample": result["cpu_ms_per_image"] * 1000})
    table.add_ratios("samples/s", candidates[0][0], "x webdataset")
    return {}


# ---- tokens ----

def bench_tokens(args, table):
    """Batches of 32 windows of 2,049 tokens as int64, shuffled over the set; and packed rows."""
    measure.warm_up([args.data / "tokens.bin"])
    candidates = [("numpy.memmap in the process", "tokens-memmap", []),
                  ("numpy.memmap, DataLoader with 2 workers", "tokens-memmap", ["--workers", "2"]),
                  ("streaming, MDS, in the process", "tokens-streaming", ["--workers", "0"]),
                  ("streaming, MDS, DataLoader with 2 workers", "tokens-streaming", []),
                  ("stoker", "tokens-stoker", []),
                  ("stoker, packed documents: ids, labels, positions", "tokens-stoker",
                   ["--rows", "packed"])]
    for turn in range(args.runs):
        say(f"round {turn + 1} of {args.runs}")
        for row, peer, more in candidates:
            arguments = peer_arguments(args, mode="tars", batch=32, seed=turn) + more
            result = attempt(table, row, lambda: measure.run_peer(peer, arguments))
            if result:
                tokens = WINDOW_TOKENS - ("packed" in more)  # packed rows have separate labels
                rate = result["images_per_s"] * tokens / 1e6
                table.add(row, turn, **{"M tokens/s": rate,
                                        "CPU us/window": result["cpu_ms_per_image"] * 1000})
    table.add_ratios("M tokens/s", candidates[0][0], "x memmap")
    return {}


# ---- cold ----

def run_fio(files, seconds):
    """Sequential O_DIRECT reads of 4 MiB, 16 in flight, over the files: MB/s."""
    command = ["fio", "--name=cold", "--readonly", "--rw=read", "--bs=4M", "--direct=1",
               "--ioengine=io_uring", "--iodepth=16", "--file_service_type=sequential",
               f"--filename={':'.join(files)}", "--output-format=json"]
    command += ["--time_based", f"--runtime={seconds}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise measure.PeerFailed(done.stderr.strip() or "fio failed")
    return json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]["read"]["bw_bytes"] / 1e6


def bench_cold(args, table):
    files = measure.data_files(args.data, "tars/*.tar")
    args.batch = args.batch if args.extension == "jpg" else 4
    for turn in range(args.runs):
        say(f"round {turn + 1} of {args.runs}")
        measure.drop_caches()
        rate = attempt(table, "fio", lambda: run_fio(files, args.seconds))
        if rate:
            table.add("fio", turn, **{"MB/s": rate})
        measure.drop_caches()
        arguments = peer_arguments(args, seed=turn, extension=args.extension,
                                   shuffle="none", direct="always")
        result = attempt(table, "stoker", lambda: measure.run_peer("raw-stoker", arguments))
        if result:
            rate = result["images_per_s"] * result["notes"]["bytes_a_sample"] / 1e6
            table.add("stoker", turn, **{"MB/s": rate,
                                         "cold reads %": 100 * cold_share(result["notes"])})
    table.add_ratios("MB/s", "fio", "x fio")
    return {"files": len(files), "block": "4 MiB"}


def cold_share(stats):
    reads = stats["cold_reads"] + stats["warm_reads"]
    return stats["cold_reads"] / reads if reads else 0


# ---- first batch ----

def bench_first_batch(args, table):
    peers = (args.peers or "stoker,dali,webdataset,imagefolder").split(",")
    files = measure.data_files(args.data, "tars/*.tar")
    files += measure.data_files(args.data, "folder/*/*.jpg")
    for turn in range(args.runs):
        say(f"round {turn + 1} of {args.runs}")
        for cache in ("warm", "cold"):
            for dtype in ("float32", "uint8"):
                for peer in peers:
                    measure.warm_up(files) if cache == "warm" else measure.drop_caches()
                    arguments = peer_arguments(args, dtype=dtype, batches=1, seed=turn)
                    result = attempt(table, peer, lambda: measure.run_peer(peer, arguments))
                    if result:
                        table.add(peer, turn,
                                  **{f"{cache} {dtype} s": result["first_batch_s"]})
    return {}


# ---- scaling ----

def bench_scaling(args, table):
    measure.warm_up(measure.data_files(args.data, "tars/*.tar"))
    for turn in range(args.runs):
        say(f"round {turn + 1} of {args.runs}")
        for threads in (1, 2):
            row = f"{threads} thread{'s' if threads > 1 else ''}"
            arguments = peer_arguments(args, threads=threads, warmup=WARMUP_S, seed=turn)
            result = attempt(table, row, lambda: measure.run_peer("stoker", arguments))
            if result:
                stats = result["notes"]
                thread_s = stats["run_seconds"] * threads
                table.add(row, turn, **{"images/s": result["images_per_s"],
                                        "asleep %": 100 * result["asleep"],
                                        "locks %": 100 * stats["lock_wait_seconds"] / thread_s,
                                        "no work %": 100 * stats["idle_seconds"] / thread_s})
    table.add_ratios("images/s", "1 thread", "x 1 thread")
    return {}


# ---- tuning ----

def tuning_workloads(args):
    """(name, peer, arguments) of the three workloads."""
    common = {"seconds": args.seconds, "warmup": 4}
    tiny = peer_arguments(args, data=args.tiny, extension="txt", batch=1024, **common)
    jpeg = peer_arguments(args, **common)
    huge = peer_arguments(args, data=args.huge, extension="bin", batch=4, **common)
    return [("tiny", "raw-stoker", tiny), ("jpeg", "stoker", jpeg), ("huge", "raw-stoker", huge)]


def sweep(args, table, name, peer, arguments):
    """One run of every setting; return the best (threads, ahead) by hand."""
    best, best_rate = None, 0
    for threads in range(1, len(os.sched_getaffinity(0)) + 1):
        for ahead in (1, 2, 3, 4, 6, 8):
            row = f"{name}, {threads} threads, {ahead} ahead"
            more = ["--threads", threads, "--ahead", ahead]
            result = attempt(table, row, lambda: measure.run_peer(peer, arguments + more))
            if result:
                table.add(row, 0, **{"samples/s": result["images_per_s"]})
                if result["images_per_s"] > best_rate:
                    best, best_rate = (threads, ahead), result["images_per_s"]
    return best


def bench_tuning(args, table):
    """The best of a sweep is the luckiest too: it is run again, in turns with the tuned one."""
    found = {}
    for name, peer, arguments in tuning_workloads(args):
        if name not in args.workloads.split(","):
            continue
        measure.warm_up(measure.data_files(pathlib.Path(arguments[1]), "tars/*.tar"))
        best = sweep(args, table, name, peer, arguments)
        if not best:
            continue
        found[name] = {"threads": best[0], "ahead": best[1]}
        for turn in range(args.runs):
            for row, threads, ahead in ((f"{name}, best by hand", *best), (f"{name}, auto", 0, 0)):
                more = ["--threads", threads, "--ahead", ahead, "--seed", turn]
                result = attempt(table, row, lambda: measure.run_peer(peer, arguments + more))
                if result:
                    table.add(row, turn, **{"samples/s": result["images_per_s"]})
        table.add_ratios("samples/s", f"{name}, best by hand", f"x {name}")
    return found


# ---- order ----

def compile_bench(name, folder, libraries=()):
    """bench/NAME.c against the build's library; the program's path."""
    build = measure.build_folder("libstoker-all.a")
    program = f"{folder}/{name}"
    subprocess.run(["cc", "-O2", "-D_GNU_SOURCE", f"-I{measure.ROOT}/include",
                    f"-I{measure.ROOT}/src", str(measure.HERE / f"{name}.c"),
                    str(build / "libstoker-all.a"), "-lcrypto", "-lxxhash", "-pthread",
                    *libraries, "-o", program], check=True)
    return program


def bench_order(args, table):
    """order.c and mix.c are compiled against the build's library; the first also calls grain's if
    that is installed."""
    grain = sorted(measure.peers_folder().glob("torch/lib/python*/site-packages/grain/**/"
                                               "libindex_shuffle.so"))
    with tempfile.TemporaryDirectory() as folder:
        commands = []
        for name in ("order", "mix"):
            program = compile_bench(name, folder)
            commands.append([program, *(map(str, grain[:1]) if name == "order" else [])])
        for turn, command in itertools.product(range(args.runs), commands):
            lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            for case in map(json.loads, lines.splitlines()):
                table.add(case["case"], turn, ns=case["ns"])
    return {}


# ---- sampling ----

CHOICES = ("each", "subset", "replacement", "weights", "classes", "two-level")
SAMPLERS = (("RandomSampler", "each"), ("SubsetRandomSampler", "subset"),
            ("RandomSampler(replacement)", "replacement"), ("WeightedRandomSampler", "weights"),
            ("WeightedRandomSampler, by class", "classes"),
            ("numpy permutation", "numpy each"), ("numpy choice(p)", "numpy weights"))


def bench_sampling(args, table):
    """A process for each row, so that memory is its own."""
    few = args.samples // 100
    with tempfile.TemporaryDirectory() as folder:
        program = compile_bench("choice", folder)
        for turn in range(args.runs):
            say(f"round {turn + 1} of {args.runs}")
            for case in CHOICES:
                done = subprocess.run([program, case, str(args.samples)], capture_output=True,
                                      text=True)
                if done.returncode:
                    say(done.stderr.strip())
                for line in map(json.loads, done.stdout.splitlines()):
                    row = f"stoker, {case}, {line['way']}, {line['samples']:,}"
                    table.add(row, turn, **{"ns": line["ns"], "table MB": line["table_mb"],
                                            "bytes/sample": line["table_mb"] * 1e6 / args.samples,
                                            "made s": line["made_s"]})
            for name, case in SAMPLERS:
                result = attempt(table, name, lambda: measure.run_peer(
                    "sampling-torch", ["--case", case, "--samples", few]))
                if result:
                    each = result["memory_mb"] * 1e6 / result["samples"]
                    table.add(f"{name}, {result['samples']:,}", turn,
                              **{"ns": result["ns"], "table MB": result["memory_mb"],
                                 "bytes/sample": each, "made s": result["first_s"]})
    return {}


# ---- jpeg ----

def jpeg_round(row, kind, program, arguments, table, turn):
    """One round of bench/jpeg.c, its own first round thrown away."""
    environment = None if arguments[-1] == "auto" else dict(os.environ, JSIMD_FORCENONE="1")
    lines = subprocess.run([program, *arguments], capture_output=True, text=True, check=True,
                           env=environment).stdout.splitlines()
    for case in map(json.loads, lines[1:]):
        table.add(f"{row}, {case['case']}", turn,
                  **{"us": case["us"], "img/s": 1e6 / case["us"], "ns/pixel": case["ns_pixel"]})
    stages = ("header", "+ bits", "+ transform", "+ upsampling", "+ colours, the crop")
    for before, stage in itertools.pairwise(stages):  # each case includes those before it
        took = [table.values[f"{row}, ours: {name}"] for name in (before, stage)]
        table.add(f"{row}, stage {stage.removeprefix('+ ').removesuffix(', the crop')}", turn,
                  **{unit: took[1][unit][turn] - took[0][unit][turn]
                     for unit in ("us", "ns/pixel")})
    for marks in ("", ", marks of rows", ", marks of 4 MCUs"):
        theirs = table.values[f"{row}, libjpeg-turbo, region, resized"]["us"][turn]
        name = f"{row}, ours{marks}, planes resized"
        table.add(name, turn, **{"x region": theirs / table.values[name]["us"][turn]})
    for ours, resized in itertools.product(("", ", marks of rows", ", marks of 4 MCUs"),
                                           ("", ", resized")):
        name = f"{row}, ours{(ours + resized) or ': + colours, the crop'}"
        for extent in ("whole", "region"):
            theirs = table.values[f"{row}, libjpeg-turbo, {extent}{resized}"]["us"][turn]
            table.add(name, turn, **{f"x {extent}": theirs / table.values[name]["us"][turn]})
    return {kind: json.loads(lines[0])}


# Rows of the prototype that correspond to rows of ours.
PROTOTYPE_ROWS = {f"ours {theirs}E2E {how}": f"ours{ours}, {resized}"
                  for theirs, ours in (("", ""), ("rowidx ", ", marks of rows"),
                                       ("4idx ", ", marks of 4 MCUs"))
                  for how, resized in (("exact", "resized"), ("planar", "planes resized"))}


def prototype_round(row, program, folder, table, turn):
    """Its own table: a name, 'median', pictures a second, microseconds."""
    text = subprocess.run([program, folder, "final"], capture_output=True, text=True,
                          check=True).stdout
    for line in text.splitlines():
        name, found, numbers = line.partition(" median ")
        if found:
            name, us = name.strip(), float(numbers.split()[2])
            table.add(f"{row}, prototype: {name}", turn,
                      **{"us": us, "img/s": float(numbers.split()[0])})
            if name in PROTOTYPE_ROWS:
                ours = f"{row}, {PROTOTYPE_ROWS[name]}"
                table.add(ours, turn, **{"x prototype": us / table.values[ours]["us"][turn]})


def compile_prototype(source, folder):
    """None where it is not, or cannot run. It counts the time of its thread, as ours does."""
    if not source.exists():
        say(f"prototype left out: no {source}")
        return None
    if "avx512bw" not in pathlib.Path("/proc/cpuinfo").read_text():
        say("prototype left out: it needs AVX-512")
        return None
    text = source.read_text().replace("CLOCK_MONOTONIC", "CLOCK_THREAD_CPUTIME_ID")
    pathlib.Path(folder, "prototype.c").write_text(text)
    subprocess.run(["cc", "-O3", "-march=native", "-w", f"{folder}/prototype.c", "-l:libjpeg.a",
                    "-lm", "-o", f"{folder}/prototype"], check=True)
    return f"{folder}/prototype"


def bench_jpeg(args, table):
    """Pictures of four kinds, made once under --data (jpeg_sets.py)."""
    import jpeg_sets  # needs PIL, as the other benches do not

    sets = jpeg_sets.make(args.data, args.pictures)
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    facts = {}
    with tempfile.TemporaryDirectory() as folder:
        program = compile_bench("jpeg", folder, ["-ljpeg", "-lm"])
        prototype = compile_prototype(args.prototype, folder)
        for turn, (kind, files) in itertools.product(range(args.runs), sets.items()):
            for vector, without in (("auto", ""), ("sse2", ", no AVX2"), ("none", ", plain C")):
                row = kind + without
                say(f"round {turn + 1} of {args.runs}: {row}")
                facts |= jpeg_round(row, kind, program,
                                    [files, "1", str(args.pictures), vector], table, turn)
            if prototype and "4:4:4" not in kind:
                prototype_round(kind, prototype, files, table, turn)
    return facts


# ---- png ----

def bench_png(args, table):
    """Pictures of four kinds, made once under --data (png_sets.py), by libpng and us in turns."""
    import png_sets  # needs PIL, as the other benches do not

    sets = png_sets.make(args.data, args.pictures)
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as folder:
        program = compile_bench("png", folder,
                                ["-lpng", "-ljpeg", "-lwebp", "-lisal", "-lm"])
        for turn, (kind, files) in itertools.product(range(args.runs), sets.items()):
            say(f"round {turn + 1} of {args.runs}: {kind}")
            lines = subprocess.run([program, files, "2", str(args.pictures)], capture_output=True,
                                   text=True, check=True).stdout.splitlines()
            theirs, ours = map(json.loads, lines[2:])  # the first round warms up
            for case in (theirs, ours):
                table.add(f"{kind}, {case['case']}, the crop", turn,
                          **{"us": case["us"], "img/s": 1e6 / case["us"],
                             "ns/pixel": case["ns_pixel"]})
            table.add(f"{kind}, stoker, the crop", turn, **{"x libpng": theirs["us"] / ours["us"]})
    return {}


# ---- simulate ----

def bench_simulate(args, table):
    """The program exits with 1 where a sample is missing or a bound is passed."""
    with tempfile.TemporaryDirectory() as folder:
        program = compile_bench("simulate", folder)
        for turn in range(args.runs):
            row = f"stoker, {args.samples:,} samples"
            command = [program, str(args.samples), "4096", str(args.threads)]
            line = json.loads(subprocess.run(command, capture_output=True, text=True,
                                             check=True).stdout)
            table.add(row, turn, **{"s": line["seconds"], "memory MB": line["memory_mb"],
                                    "node's windows MB": line["step_mb"],
                                    "bound MB": line["step_bound_mb"]})
            few = args.samples // 10  # 8 bytes a sample, several times over
            row = f"streaming, order only, {few:,} samples"
            result = attempt(table, row, lambda: measure.run_peer(
                "streaming-order", ["--samples", few, "--nodes", 4096, "--ranks", 8]))
            if result:
                table.add(row, turn, **{"s": result["seconds"],
                                        "memory MB": result["memory_mb"]})
    return {}


# ---- resume ----

def bench_resume(args, table):
    """In memory, because the read-ahead of a disk at a distant place is the disk's, and the same
    for all."""
    position = args.samples // 10
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        for turn in range(args.runs):
            row = f"stoker, sample {position:,} of {args.samples:,}"
            arguments = ["--file", f"{folder}/tokens.bin", "--samples", args.samples,
                         "--position", position, "--batch", args.batch]
            result = attempt(table, row, lambda: measure.run_peer("resume-stoker", arguments))
            if result:
                table.add(row, turn, **{"s": result["seconds"], "memory MB": result["memory_mb"]})
            few = args.samples // 100  # 8 bytes a sample, several times over
            row = f"streaming, order only, sample {few // 10:,} of {few:,}"
            arguments = ["--samples", few, "--position", few // 10, "--batch", args.batch,
                         "--sample-bytes", 32]
            result = attempt(table, row, lambda: measure.run_peer("streaming-order", arguments))
            if result:
                table.add(row, turn, **{"s": result["seconds"], "memory MB": result["memory_mb"]})
    return {}


# ---- shuffle ----

def bench_shuffle(args, table):
    """One round is enough: seeds are fixed."""
    with tempfile.TemporaryDirectory() as folder:
        return run_cases("shuffle-quality", ["--program", compile_bench("shuffle", folder)], table)


def bench_mixing(args, table):
    with tempfile.TemporaryDirectory() as folder:
        return run_cases("mixing", ["--program", compile_bench("mixing", folder)], table)


def bench_accuracy(args, table):
    return run_cases("accuracy", [], table)


def run_cases(peer, arguments, table):
    """A script that prints one line of JSON for each row of the table."""
    process = measure.start(measure.command_of(peer, arguments))
    out, err = process.communicate()
    if process.returncode:
        raise measure.PeerFailed(err)
    for line in map(json.loads, out.splitlines()):
        row = line.pop("case")
        say(f"{row}: {line.get('missing', 'counted')}")
        if "missing" not in line:
            table.add(row, 0, **line)
    return {}


BENCHES = {"images": bench_images, "marks": bench_marks, "workers": bench_images,
           "jpeg": bench_jpeg, "png": bench_png, "raw": bench_raw, "cold": bench_cold,
           "first-batch": bench_first_batch, "scaling": bench_scaling, "tuning": bench_tuning,
           "order": bench_order, "sampling": bench_sampling,
           "tokens": bench_tokens, "simulate": bench_simulate,
           "resume": bench_resume, "shuffle": bench_shuffle,
           "mixing": bench_mixing, "accuracy": bench_accuracy}
SECONDS = {"images": 30, "marks": 10, "workers": 30, "jpeg": 1, "png": 1, "raw": 5, "cold": 5,
           "first-batch": 1,
           "scaling": 15, "tuning": 6, "order": 1, "sampling": 1, "tokens": 5,
           "simulate": 1, "resume": 1, "shuffle": 1, "mixing": 1, "accuracy": 1}
WITHOUT_DATA = ("order", "sampling", "simulate", "resume", "shuffle", "mixing", "accuracy")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("bench", choices=BENCHES)
    parser.add_argument("--data", type=pathlib.Path,
                        help="made by photos.py --kind bench; for cold: any folder with tars/")
    parser.add_argument("--peers", help=f"of {IMAGE_PEERS}")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, help="a run, without its first batch")
    parser.add_argument("--memory-seconds", type=float, default=10, help="0: no memory runs")
    parser.add_argument("--mode", choices=["tars", "folder"], default="tars")
    parser.add_argument("--dtype", choices=["float32", "uint8"], default="float32")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--extension", default="jpg", help="of the members that cold reads")
    parser.add_argument("--tiny", type=pathlib.Path, help="records.py --kind tiny, for tuning")
    parser.add_argument("--huge", type=pathlib.Path, help="records.py --kind huge, for tuning")
    parser.add_argument("--workloads", default="tiny,jpeg,huge", help="of tuning: one or more")
    parser.add_argument("--samples", type=int, help="of sampling, simulate and resume")
    parser.add_argument("--pictures", type=int, default=300, help="of each kind, for jpeg and png")
    parser.add_argument("--prototype", type=pathlib.Path, default=PROTOTYPE, help="for jpeg")
    parser.add_argument("--name", help="of the file under bench/results")
    args = parser.parse_args()
    if args.bench not in WITHOUT_DATA and not args.data:
        parser.error("--data is missing: see bench/README.md")
    if args.bench == "tuning" and not (args.tiny and args.huge):
        parser.error("tuning needs --tiny and --huge: see bench/README.md")
    args.seconds = args.seconds or SECONDS[args.bench]
    args.samples = args.samples or (10**10 if args.bench == "resume" else 10**9)
    args.name = args.name or args.bench
    return args


def write_results(args, table, facts):
    folder = measure.HERE / "results"
    folder.mkdir(exist_ok=True)
    options = {key: str(value) if isinstance(value, pathlib.Path) else value
               for key, value in vars(args).items() if value is not None}
    medians = {row: {column: statistics.median(values.values())
                     for column, values in columns.items()}
               for row, columns in table.values.items()}
    result = {"machine": measure.machine(), "options": options, "facts": facts,
              "medians": medians, "rounds": table.values}
    with tempfile.NamedTemporaryFile("w", dir=folder, delete=False) as part:
        json.dump(result, part, indent=1)
    os.chmod(part.name, 0o644)
    os.rename(part.name, folder / f"{args.name}.json")
    return folder / f"{args.name}.json"


def main():
    args = parse_arguments()
    load = os.getloadavg()[0]
    if load > 0.5:
        say(f"load average {load:.1f}: other programs run, which moves the absolute numbers")
    table = Table()
    facts = BENCHES[args.bench](args, table)
    path = write_results(args, table, facts)
    print(f"\n{args.bench}: {args.runs} rounds of {args.seconds:g} s, batches of {args.batch}, "
          f"{args.dtype}, {args.threads} threads\n{measure.machine()}\n\n{table.text()}\n")
    for row, each in facts.items():
        if isinstance(each, dict) and isinstance(each.get("notes"), str):
            print(f"{row}: {each['version']}, from {each['mode']}; {each['notes']}")
    say(f"wrote {path}")


if __name__ == "__main__":
    main()
