#!/usr/bin/env python3
"""Measure copies to and from an object store, and write a table and bench/results/copy.json.

usage: run_copy.py [--runs N] [--files N] [--file-bytes N] [--large BYTES] [--home DIR] [--only ...]

  small-up, small-down   --files files of --file-bytes (6,000 of 16,000) to Ceph's gateway, and back
  large-up, large-down   one file of --large bytes (4 GiB)

Compared with stoker cp: aws s3 cp, rclone with its defaults, and rclone with 32 transfers and 16
streams a file; large-down also with the system's calls alone (recv and pwrite, nothing checked:
store_floor.c), the minimum of any program.
The server (python/tests/servers.py; root) keeps objects in memory and shares the cores with the
program under test; files are in --home (/dev/shm if it has space for three times --large, else
TMPDIR). Each direction has a server of its own.
Every round runs each program once, to a place of its own that is removed at once; the table has
medians, and the ratio of each program's wall time to stoker's. The received files are compared,
once a program. CPU is of the program alone.
"""
import argparse
import filecmp
import json
import os
import pathlib
import platform
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from measure import build_folder

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "python" / "tests"))
import servers  # noqa: E402

BUCKET = "bench"
RANGE = 8 << 20
FLOOR_CONNECTIONS = 4
WAYS = ("small-up", "small-down", "large-up", "large-down")


def programs(stoker):
    """Names, and commands for (source, destination, whether a folder)."""
    def rclone(*more):
        def command(source, destination, folder):
            names = [str(one).replace("s3://", "bench:") for one in (source, destination)]
            # With a bundle of certificates in AWS_CA_BUNDLE its library refuses its own transport.
            return ["env", "-u", "AWS_CA_BUNDLE", "rclone", "copy" if folder else "copyto", *names,
                    "--s3-no-check-bucket", "-q", *more]
        return command

    found = {"stoker": lambda source, destination, folder:
             [stoker, "cp", *(["-r"] if folder else []), source, destination]}
    if shutil.which("aws"):
        found["aws s3 cp"] = lambda source, destination, folder: [
            "aws", "s3", "cp", "--only-show-errors", *(["--recursive"] if folder else []), source,
            destination]
    if shutil.which("rclone"):
        found["rclone"] = rclone()
        found["rclone, 32 transfers"] = rclone("--transfers", "32", "--checkers", "32",
                                               "--s3-upload-concurrency", "16",
                                               "--multi-thread-streams", "16")
    return found


def calls_alone(home, ceph, size):
    """A program of recv and pwrite for the source's ranges, at FLOOR_CONNECTIONS at once."""
    program, listed = home / "store_floor", home / "ranges"
    subprocess.run(["cc", "-O2", "-D_GNU_SOURCE", str(HERE / "store_floor.c"), "-o", program,
                    "-lcurl"], check=True)
    url = ceph.client().generate_presigned_url(
        "get_object", Params={"Bucket": BUCKET, "Key": "source/large.bin"}, ExpiresIn=36000)
    listed.write_text("".join(f"{url} {at}-{min(at + RANGE, size) - 1}\n"
                              for at in range(0, size, RANGE)))
    return lambda source, destination, folder: [
        "sh", "-c", 'exec "$0" save "$1" "$2" <"$3"', program, FLOOR_CONNECTIONS, destination,
        listed]


def environment(ceph):
    return {**os.environ, **ceph.environment(), "RCLONE_CONFIG": os.devnull,
            "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
            "RCLONE_CONFIG_BENCH_TYPE": "s3", "RCLONE_CONFIG_BENCH_PROVIDER": "Ceph",
            "RCLONE_CONFIG_BENCH_ACCESS_KEY_ID": servers.ACCESS,
            "RCLONE_CONFIG_BENCH_SECRET_ACCESS_KEY": servers.SECRET,
            "RCLONE_CONFIG_BENCH_ENDPOINT": ceph.url}


def run(command, env):
    before, start = os.times(), time.perf_counter()
    done = subprocess.run([str(word) for word in command], env=env, capture_output=True, text=True)
    wall, after = time.perf_counter() - start, os.times()
    if done.returncode != 0:
        return {"failed": (done.stderr.strip().splitlines() or ["no message"])[-1]}
    return {"wall": wall, "cpu": after.children_user + after.children_system
            - before.children_user - before.children_system}


def make_files(folder, count, size):
    rng = random.Random(1)
    for number in range(count):
        path = folder / f"{number // 1000}" / f"{number:05}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(rng.randbytes(size))


def make_large(path, size):
    rng = random.Random(2)
    with path.open("wb") as out:
        for at in range(0, size, 1 << 24):
            out.write(rng.randbytes(min(1 << 24, size - at)))


def same(source, destination):
    if source.is_file():
        return filecmp.cmp(source, destination, shallow=False)
    names = sorted(path.relative_to(source) for path in source.rglob("*.bin"))
    there = sorted(path.relative_to(destination) for path in destination.rglob("*.bin"))
    return names == there and all(filecmp.cmp(source / name, destination / name, shallow=False)
                                  for name in names)


def remove(path):
    if path.exists():
        (shutil.rmtree if path.is_dir() else os.unlink)(path)


def one_round(way, name, command, place, env, first):
    """Up to a place of its own, or down from the source; then it is removed."""
    source, home, stoker, ceph = place
    folder = way.startswith("small")
    if way.endswith("up"):
        there = f"s3://{BUCKET}/up/{way}"
        result = run(command(source, there, folder), env)
        if first and "failed" not in result:
            check = home / "check"
            back = run([stoker, "cp", *(["-r"] if folder else []), there, check], env)
            result["right"] = "failed" not in back and same(source, check)
            remove(check)
        subprocess.run([stoker, "rm", "-r", "--yes", there], env=env, capture_output=True)
        ceph.collect()
        return result
    to = home / "down"
    result = run(command(f"s3://{BUCKET}/source/{source.name}", to, folder), env)
    if first and "failed" not in result:
        result["right"] = same(source, to)
    remove(to)
    return result


def measure(way, source, home, stoker, runs, memory):
    """With a server of its own: memory that one program leaves behind would slow the next, or end
    it."""
    folder = home / way
    folder.mkdir()
    ceph = servers.Ceph(folder, memory=memory)
    try:
        env = environment(ceph)
        ceph.client().create_bucket(Bucket=BUCKET)
        if way.endswith("down"):
            subprocess.run([stoker, "cp", *(["-r"] if source.is_dir() else []), source,
                            f"s3://{BUCKET}/source/{source.name}"], env=env, check=True,
                           stdout=subprocess.DEVNULL)
        results, beside = {}, programs(stoker)
        if way.endswith("up"):  # memory that the server has never had takes it twice as long
            one_round(way, "warm", beside["stoker"], (source, home, stoker, ceph), env, False)
        if way == "large-down":
            beside["system calls alone"] = calls_alone(folder, ceph, source.stat().st_size)
        for number in range(runs):
            found = list(beside.items())
            turn = number % len(found)  # the first program would find the server idle
            for name, command in found[turn:] + found[:turn]:
                rounds = results.setdefault(name, [])
                if rounds and "failed" in rounds[0]:
                    continue
                rounds.append(one_round(way, name, command, (source, home, stoker, ceph),
                                        env, number == 0))
        return results
    finally:
        ceph.close()


def show(way, found, files, size):
    own = statistics.median(one.get("wall", 0) for one in found["stoker"])
    for name, rounds in found.items():
        if "failed" in rounds[0]:
            print(f"| {way} | {name} | {rounds[0]['failed'][:60]} | | | | |", flush=True)
            continue
        wall = statistics.median(one["wall"] for one in rounds)
        cpu = statistics.median(one["cpu"] for one in rounds)
        wrong = "" if rounds[0]["right"] else " WRONG BYTES"
        print(f"| {way} | {name}{wrong} | {wall:.2f} "
              f"({min(one['wall'] for one in rounds):.2f}-"
              f"{max(one['wall'] for one in rounds):.2f}) | {size / 1e6 / wall:,.0f} "
              f"| {files / wall:,.0f} | {cpu:.2f} | {wall / own if own else 0:.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--files", type=int, default=6000)
    parser.add_argument("--file-bytes", type=int, default=16_000)
    parser.add_argument("--large", type=int, default=4 << 30)
    parser.add_argument("--home", type=pathlib.Path)
    parser.add_argument("--only", default=",".join(WAYS))
    args = parser.parse_args()
    build = build_folder("stoker")
    room = shutil.disk_usage("/dev/shm").free > 3 * args.large
    place = args.home or (pathlib.Path("/dev/shm") if room else None)
    ways = [way for way in WAYS if way in args.only.split(",")]
    sizes = {"small": (args.files, args.files * args.file_bytes), "large": (1, args.large)}
    results = {}
    print("| what | program | wall s | MB/s | files/s | CPU s | stoker is faster by |\n"
          "| --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory(dir=place) as temporary:
        home = pathlib.Path(temporary)
        sources = {"small": home / "small", "large": home / "large.bin"}
        make_files(sources["small"], args.files, args.file_bytes)
        if any(way.startswith("large") for way in ways):
            make_large(sources["large"], args.large)
        for way in ways:
            kind = way.split("-")[0]
            results[way] = measure(way, sources[kind], home, build / "stoker", args.runs,
                                   max(2 << 30, 3 * args.large))
            show(way, results[way], *sizes[kind])
            (HERE / "results").mkdir(exist_ok=True)
            (HERE / "results" / "copy.json").write_text(json.dumps({
                "machine": platform.platform(), "cores": os.cpu_count(), **{
                    name: str(value) for name, value in vars(args).items()}, "results": results},
                indent=1) + "\n")


if __name__ == "__main__":
    main()
