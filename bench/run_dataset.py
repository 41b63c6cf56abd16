#!/usr/bin/env python3
"""Measure what stoker does with whole data sets, and write a table and bench/results/NAME.json.

usage: run_dataset.py pack|verify|index|index-open --data DIR [options]

  pack    MB/s and CPU of `stoker pack` of DIR/folder, with SHA-256 and index, beside tar -c; of it
          and of stoker.ShardWriter beside webdataset's, also for the small records of --tiny

  verify  MB/s of `stoker verify` and `stoker diff`: from memory beside SHA-256 of the same files by
          sha256sum and openssl, from the disk beside fio (root)

  index   members/s of `stoker index` of cached tars, and the bytes it reads, beside tar -t
  index-open  ms and MB to open a data set whose index has 100 million members, made once in SCRATCH
          (1.5 GB) with shards that are nothing but holes; DIR is only where SCRATCH defaults beside

For verify, DIR/tars/*.tar is packed once into SCRATCH, so that there is a manifest of SHA-256 and
an index of checksums to verify. As in run.py every round runs each candidate once.
"""
import argparse
import hashlib
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import time

import measure
import run


def command():
    return str(measure.build_folder("stoker") / "stoker")


def timed(words, statuses=(0,), **options):
    """Wall seconds and CPU seconds of a command, and its standard output."""
    before, start = os.times(), time.perf_counter()
    done = subprocess.run([*map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          check=False, text=True, **options)
    wall, after = time.perf_counter() - start, os.times()
    if done.returncode not in statuses:
        raise measure.PeerFailed(f"{words[0]} ended with {done.returncode}: {done.stderr.strip()}")
    cpu = (after.children_user - before.children_user
           + after.children_system - before.children_system)
    return wall, cpu, done.stdout


def packed(args):
    """The shards of DIR as `stoker pack` writes them; made once."""
    target = args.scratch / f"packed-{args.data.resolve().name}"
    if not (target / "stoker.manifest.json").exists():
        run.say(f"packing {args.data} into {target}")
        shutil.rmtree(target, ignore_errors=True)
        timed([command(), "pack", *measure.data_files(args.data, "tars/*.tar"), target])
    return target


# ---- verify ----

def parallel(program, files):
    """A hash program over the files, one process a core at a time."""
    cores = len(os.sched_getaffinity(0))
    return ["xargs", "-0", "-n", "1", "-P", cores, *program], "\0".join(files)


def bench_verify(args, table):
    folder = packed(args)
    files = measure.data_files(folder, "*.tar")
    size = sum(os.path.getsize(path) for path in files) / 1e6
    threads = ["--threads", args.threads]
    hashers = [("sha256sum", ["sha256sum"]), ("openssl", ["openssl", "dgst", "-sha256"])]
    for turn in range(args.runs):
        run.say(f"round {turn + 1} of {args.runs}")
        measure.warm_up(files)
        for row, program in hashers:
            words, listed = parallel(program, files)
            result = run.attempt(table, row, lambda: timed(words, input=listed))
            add_rate(table, row, turn, size, "warm", result)
        result = run.attempt(table, "stoker verify",
                             lambda: timed([command(), "verify", *threads, folder]))
        add_rate(table, "stoker verify", turn, size, "warm", result)
        result = run.attempt(table, "stoker diff --reread",
                             lambda: timed([command(), "diff", "--reread", *threads, folder,
                                            folder]))
        add_rate(table, "stoker diff --reread", turn, 2 * size, "warm", result)
        measure.drop_caches()
        rate = run.attempt(table, "fio", lambda: run.run_fio(files, args.seconds))
        if rate:
            table.add("fio", turn, **{"cold MB/s": rate})
        measure.drop_caches()
        result = run.attempt(table, "stoker verify, cold",
                             lambda: timed([command(), "verify", *threads, folder]))
        add_rate(table, "stoker verify", turn, size, "cold", result)
    table.add_ratios("warm MB/s", "openssl", "x openssl")
    table.add_ratios("warm MB/s", "sha256sum", "x sha256sum")
    table.add_ratios("cold MB/s", "fio", "x fio")
    return {"files": len(files), "MB": round(size)}


def add_rate(table, row, turn, size, kind, result):
    if result:
        wall, cpu, _ = result
        table.add(row, turn, **{f"{kind} MB/s": size / wall, f"{kind} CPU s/GB": cpu / size * 1000})


# ---- index ----

def bench_index(args, table):
    files = measure.data_files(args.data, "tars/*.tar")
    size = sum(os.path.getsize(path) for path in files) / 1e6
    out = args.scratch / "bench.index"
    facts = {"files": len(files), "MB": round(size)}
    listing = "\0".join(files)
    rows = {
        "tar -t": (["xargs", "-0", "-n", "1", "tar", "-tf"], listing),
        "tar -t, all cores": parallel(["tar", "-tf"], files),
        "stoker index, 1 thread": ([command(), "index", "--json", "--force", "--threads", 1,
                                    "--out", out, *files], None),
        "stoker index": ([command(), "index", "--json", "--force", "--threads", args.threads,
                          "--out", out, *files], None),
    }
    for turn in range(args.runs):
        run.say(f"round {turn + 1} of {args.runs}")
        measure.warm_up(files)
        for row, (words, listed) in rows.items():
            result = run.attempt(table, row, lambda: timed(words, input=listed))
            if not result:
                continue
            wall, cpu, text = result
            report = json.loads(text) if row.startswith("stoker") else None
            if report:
                facts |= {"members": report["members"], "index bytes": report["index_bytes"]}
                table.add(row, turn, **{"% of bytes read": report["bytes_read"] / size / 1e4})
            table.add(row, turn, seconds=wall, **{"CPU s": cpu})
    for row, base in (("stoker index, 1 thread", "tar -t"), ("stoker index", "tar -t, all cores")):
        for turn, wall in table.values.get(row, {}).get("seconds", {}).items():
            theirs = table.values.get(base, {}).get("seconds", {}).get(turn)
            if theirs:
                table.add(row, turn, **{"x tar -t": theirs / wall})
    out.unlink(missing_ok=True)
    pathlib.Path(f"{out}.stamp").unlink(missing_ok=True)
    return facts


# ---- index-open ----

PAGE = 16384  # as all numbers here: docs/formats.md
SHARDS, MEMBERS = 1000, 100_000

LOOK = """
import json, os, random, sys, time
import stoker
def resident():
    text = open("/proc/self/smaps_rollup").read()
    return int(text.split("Rss:")[1].split()[0]) / 1e3
engine = stoker.Engine(threads=int(sys.argv[2]))
before, start = resident(), time.perf_counter()
dataset = stoker.Dataset(sys.argv[1], engine=engine, index="require")
opened, after = time.perf_counter(), resident()
dice = random.Random(1)
for _ in range(1000):
    number = dice.randrange(len(dataset))
    sample = dataset.sample(number)
    assert sample.key == f"k{number % 100000:07}", sample
print(json.dumps({"members": dataset.member_count, "open ms": (opened - start) * 1e3,
                  "open MB": after - before,
                  "1,000 look-ups ms": (time.perf_counter() - opened) * 1e3,
                  "MB after them": resident() - before}))
"""


def make_large(folder):
    """A data set of SHARDS x MEMBERS members of one sample each: shards that are sparse files, and
    their index, written as docs/formats.md describes. All blocks have the same bytes."""
    import ctypes

    import numpy

    xxh3 = ctypes.CDLL("libxxhash.so.0").XXH3_64bits
    xxh3.argtypes, xxh3.restype = [ctypes.c_char_p, ctypes.c_size_t], ctypes.c_uint64
    count, step = MEMBERS, 2  # a header and a block of data each
    shard_bytes = count * step * 512 + 1024
    numbers = numpy.arange(count, dtype="<u4")
    units = numbers * step + 1
    keys = b"".join(b"k%07d" % i for i in range(count))
    groups = {}  # the smallest of each 32, and the distance of the others from it
    for name, column in (("places", units), ("firsts", numpy.arange(count + 1)),
                         ("keys", numpy.arange(count + 1) * 8)):
        bases = column[::32].astype("<u8")
        groups[name] = bases, (column - numpy.repeat(bases, 32)[:len(column)])
    block = b"".join(bases.tobytes() for bases, _ in groups.values())
    widths = [1, 1, 1, 2, 0, 0]  # places, firsts, keys, sizes, extensions, labels
    block += b"".join(offsets.astype("<u1").tobytes() for _, offsets in groups.values())
    block += numpy.full(count, 300, "<u2").tobytes() + keys
    block += bytes(-len(block) % 8)
    own = hashlib.sha256()
    for i in range(count):
        own.update(keys[8 * i:8 * i + 8] + b"\0" + struct.pack("<Q", 1) + b"jpg\0"
                   + struct.pack("<QQ", int(units[i]) * 512, 300))
    all_of_it = hashlib.sha256(b"stoker index 1\0")
    records, paths = b"", b""
    for shard in range(SHARDS):
        name = b"s-%06d.tar" % shard
        with open(folder / name.decode(), "wb") as file:
            file.truncate(shard_bytes)
        records += struct.pack("<QQQQQIIIIBB6BQ", len(paths), shard_bytes, 300 * count,
                               shard * count, 16 + shard * len(block), len(name), count, count,
                               len(keys), 0, 0, *widths, 0) + own.digest() + bytes(32)
        paths += name
        all_of_it.update(name + b"\0" + own.digest() + b"\1" + struct.pack("<Q", shard_bytes))
    with open(folder / "making", "w+b") as file:
        file.write(b"STOKERIX" + struct.pack("<II", 2, PAGE))
        for _ in range(SHARDS):
            file.write(block)
        sections = []
        for section in (records, paths, b"jpg\0", b""):
            sections.append((file.tell(), len(section)))
            file.write(section)
        sections.append((0, 0))  # no sums of files
        file.write(bytes(-file.tell() % 8))
        pages_at = file.tell()
        file.seek(0)
        sums = b"".join(struct.pack("<Q", xxh3(page, len(page)))
                        for page in iter(lambda: file.read(min(PAGE, pages_at - file.tell())), b""))
        foot = b"XIREKOTS" + struct.pack("<IIQQQ", 2, PAGE, pages_at + len(sums) + 232, pages_at,
                                         xxh3(sums, len(sums)))
        foot += struct.pack("<IIQQQQQII", 1, 0, SHARDS, SHARDS * count, SHARDS * count,
                            300 * SHARDS * count, 27962, 0, 4096) + all_of_it.digest()
        foot += b"".join(struct.pack("<QQ", *section) for section in sections) + bytes(16)
        file.write(sums + foot + struct.pack("<Q", xxh3(foot, len(foot))))
    os.rename(folder / "making", folder / "stoker.index")


def bench_index_open(args, table):
    folder = args.scratch / "large-index-2"
    if not (folder / "stoker.index").exists():
        run.say(f"making {folder}")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        make_large(folder)
    build = pathlib.Path(command()).parent
    environment = os.environ | {"PYTHONPATH": str(build / "python")}
    facts = {"index MB": round((folder / "stoker.index").stat().st_size / 1e6)}
    for turn in range(args.runs):
        run.say(f"round {turn + 1} of {args.runs}")
        for row in ("cold", "warm"):
            if row == "cold":
                measure.drop_caches()
            result = run.attempt(table, row, lambda: timed(
                [sys.executable, "-c", LOOK, folder, args.threads], env=environment))
            if result:
                report = json.loads(result[2])
                facts["members"] = report.pop("members")
                table.add(row, turn, **report)
    return facts


# ---- pack ----

def written(target, action):
    """Times one candidate's writing; its output is removed, and no dirty page of it is left."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    os.sync()
    try:
        return action()
    finally:
        shutil.rmtree(target)
        os.sync()


def by_peer(peer, source, target):
    result = measure.run_peer("write-shards", [peer, source, target])
    return result["seconds"], result["cpu_s"], ""


def bench_pack(args, table):
    target = args.scratch / "packing"
    threads = ["--threads", args.threads]
    tar = ["tar", "-cf", target / "all.tar", "-C", args.data, "folder"]
    synced = " ".join(map(str, tar)) + f" && sync {target / 'all.tar'}"
    sets = [("", args.data / "folder", "*/*.jpg")]
    sets += [("tiny: ", args.tiny / "tars", "*.tar")] if args.tiny else []
    sizes = {}
    for turn in range(args.runs):
        run.say(f"round {turn + 1} of {args.runs}")
        for name, source, pattern in sets:
            files = measure.data_files(source, pattern)
            size = sizes[name] = sum(map(os.path.getsize, files)) / 1e6
            measure.warm_up(files)
            rows = {
                f"{name}stoker pack": lambda: timed(
                    [command(), "pack", *threads, source, target / "shards"]),
                f"{name}stoker.ShardWriter": lambda: by_peer("stoker", source, target),
                f"{name}webdataset ShardWriter": lambda: by_peer("webdataset", source, target)}
            if not name:
                rows |= {"tar -c": lambda: timed(tar),
                         "tar -c, and sync": lambda: timed(["sh", "-c", synced])}
            # Another one first each round: the one after small writes pays for cold memory.
            first = turn % len(rows)
            for row in [*rows][first:] + [*rows][:first]:
                result = run.attempt(table, row, lambda: written(target, rows[row]))
                if result:
                    table.add(row, turn, **{"MB/s": size / result[0],
                                            "CPU s/GB": result[1] / size * 1000})
            theirs = table.values.get(f"{name}webdataset ShardWriter", {}).get("CPU s/GB", {})
            for row in rows:
                own = table.values.get(row, {}).get("CPU s/GB", {})
                if turn in theirs and turn in own:
                    table.add(row, turn, **{"times less CPU": theirs[turn] / own[turn]})
    table.add_ratios("MB/s", "tar -c", "x tar -c")
    table.add_ratios("MB/s", "tar -c, and sync", "x tar and sync")
    return {f"{name or 'pictures: '}MB": round(size) for name, size in sizes.items()}


BENCHES = {"pack": bench_pack, "verify": bench_verify, "index": bench_index,
           "index-open": bench_index_open}
SECONDS = {"verify": 3}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("bench", choices=BENCHES)
    parser.add_argument("--data", type=pathlib.Path, required=True, help="a folder with tars/")
    parser.add_argument("--tiny", type=pathlib.Path, help="records.py --kind tiny, for pack")
    parser.add_argument("--scratch", type=pathlib.Path, help="default: beside DIR")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, help="of fio")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--name", help="of the file under bench/results")
    args = parser.parse_args()
    args.scratch = args.scratch or args.data.resolve().parent
    args.seconds = args.seconds or SECONDS.get(args.bench)
    args.name = args.name or args.bench
    return args


def main():
    args = parse_arguments()
    load = os.getloadavg()[0]
    if load > 0.5:
        run.say(f"load average {load:.1f}: other programs run, which moves the absolute numbers")
    table = run.Table()
    facts = BENCHES[args.bench](args, table)
    path = run.write_results(args, table, facts)
    print(f"\n{args.bench}: {args.runs} rounds, {args.threads} threads, {json.dumps(facts)}\n"
          f"{measure.machine()}\n\n{table.text()}\n")
    run.say(f"wrote {path}")


if __name__ == "__main__":
    sys.exit(main())
