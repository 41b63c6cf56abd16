#!/usr/bin/env python3
"""Measure checkpoints beside their peers, and write a table and bench/results/checkpoints.json.

usage: run_checkpoint.py --folder DIR --build DIR [--gb 4] [--rounds 3] [--only PART,...]
                         [--precedence] [--name NAME] [--out FILE]

  disk      save, stall and load beside torch.save, safetensors, DCP, and plain writes and reads
            (fio if it is there); verify beside sha256sum
  sha       SHA-256 of leaves of 1 MiB on one core, each kernel of this processor, beside libcrypto
  step      time of a training step of 2 ranks (DDP on the CPU) while a save is written at a CPU
            share of 10 percent, beside DCP's async_save
  memory    host memory above the state of an asynchronous save with a budget of 25 percent of the
            state, beside DCP's async_save
  ranks     bytes that 8 ranks read of a step of 4 ranks, over the bytes of the state
  lookup    open and look up one of 10^6 tensors of a step, beside DCP's metadata of 10^5
  ceph      save and load in Ceph's S3 gateway (servers.py; root, Ceph), at most 1 GB, beside
            boto3's parallel put and get, torch.save to s3fs, and s3torchconnector's DCP writer

The state is one of mixed precision: bf16 weights, fp32 master weights and two fp32 moments, in
tensors of 32 MiB; each tensor changes between two saves. Each save ends with the data on disk
(fsync). "stall" is the time until an asynchronous save returns: then the tensors may change. Two
saves before the first round map the memory of the pool. Loads are of files that are in the page
cache (warm) and that are not (cold), into new memory, and into memory that was used before
(reused); stoker verifies all hashes.

"plain" is the floor: it writes (2 threads, O_DIRECT, 16 MiB at once, then fdatasync) and reads (4
threads, O_DIRECT) bytes without hashes and without tensors, into huge pages.

Every round runs each candidate once; the table has medians, and the lowest and highest.
--precedence (root): the scheduler serves this bench before other sessions of the machine, so that
their load does not decide. Takes 10 minutes and 30 GB of disk with 4 GB; all files are removed.
"""
import argparse
import concurrent.futures
import ctypes
import json
import mmap
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

import checkpoint_parts
import torch
import torch.distributed.checkpoint as dcp

HERE = pathlib.Path(__file__).resolve().parent
TENSOR_BYTES = 32 << 20


def make_state(total_bytes):
    """2 bytes of weights to 12 of fp32 state, as mixed precision with Adam has."""
    generator = torch.Generator().manual_seed(1)
    state = {}
    for index in range(max(1, round(total_bytes / TENSOR_BYTES))):
        kind = ("weight", "master", "m", "v")[index % 4] if index % 7 else "weight"
        dtype = torch.bfloat16 if kind == "weight" else torch.float32
        count = TENSOR_BYTES // dtype.itemsize
        tensor = torch.randn(count, generator=generator).to(dtype)
        state[f"layers.{index}.{kind}"] = tensor.reshape(-1, 1024)
    return state


def change(state, turn):
    """An element of each tensor, so that no save finds an earlier file with the same tensor."""
    for tensor in state.values():
        tensor.view(-1)[turn % tensor.numel()] = turn + 1


def sync(path):
    """Syncs the files of a peer to the disk."""
    for name in [path, *pathlib.Path(path).rglob("*")] if os.path.isdir(path) else [path]:
        handle = os.open(name, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)


class Stoker:
    name = "stoker"

    def __init__(self, folder, state_bytes):
        import stoker

        self.stoker, self.folder = stoker, folder / "stoker"
        self.ckpt = stoker.Checkpointer(self.folder, keep_last=1,
                                        memory=state_bytes + state_bytes // 8)
        self.step = 0

    def save(self, state):
        self.step += 1
        self.ckpt.save(self.step, state, wait=True)

    def stall(self, state):
        self.step += 1
        begin = time.perf_counter()
        handle = self.ckpt.save(self.step, state)
        seconds = time.perf_counter() - begin
        handle.wait()
        return seconds

    def load(self):
        return self.stoker.load(self.folder)

    def drop(self):
        drop_pages(self.folder)

    def reuse(self, target):
        self.drop()
        return timed(lambda: self.ckpt.restore(target))[0]

    def verify(self):
        """Seconds and CPU seconds of `stoker ckpt verify`, and of sha256sum."""
        self.drop()
        own = run_timed([checkpoint_parts.COMMAND, "ckpt", "verify", self.folder])
        self.drop()
        shards = [str(path) for path in self.folder.rglob("*.safetensors")]
        return own, run_timed(["sha256sum", *shards])


class Plain:
    """Bytes without hashes and tensors."""

    name = "plain"
    block, threads, slots = 16 << 20, (2, 4), 16

    def __init__(self, folder, state_bytes):
        self.path = folder / self.name
        self.blocks = max(1, state_bytes // self.block)
        self.total = self.blocks * self.block
        self.memory = mmap.mmap(-1, self.slots * self.block,
                                flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.memory.madvise(mmap.MADV_HUGEPAGE)
        numbers = torch.frombuffer(self.memory, dtype=torch.int64)
        numbers.random_(generator=torch.Generator().manual_seed(2))

    def _slot(self, index):
        at = index % self.slots * self.block
        return memoryview(self.memory)[at:at + self.block]

    def _each(self, action, threads):
        with concurrent.futures.ThreadPoolExecutor(threads) as pool:
            list(pool.map(action, range(self.blocks)))

    def save(self, _):
        handle = os.open(self.path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_DIRECT)
        os.posix_fallocate(handle, 0, self.total)

        def write(index):
            assert os.pwrite(handle, self._slot(index), index * self.block) == self.block

        self._each(write, self.threads[0])
        os.fdatasync(handle)
        os.close(handle)

    def reuse(self, _):
        drop_pages(self.path)
        handle = os.open(self.path, os.O_RDONLY | os.O_DIRECT)

        def read(index):
            assert os.preadv(handle, [self._slot(index)], index * self.block) == self.block

        seconds = timed(lambda: self._each(read, self.threads[1]))[0]
        os.close(handle)
        return seconds


class Fio(Plain):
    name = "fio"

    def _run(self, mode, jobs):
        size = self.total // jobs // self.block * self.block
        out = subprocess.run(
            ["fio", f"--name={mode}", f"--rw={mode}", f"--filename={self.path}", "--direct=1",
             "--bs=1M", "--iodepth=16", "--ioengine=libaio", f"--size={size}", "--end_fsync=1",
             f"--numjobs={jobs}", f"--offset_increment={size}", "--group_reporting",
             "--output-format=json"], check=True, capture_output=True, text=True)
        job = json.loads(out.stdout)["jobs"][0][mode]
        return self.total / job["bw_bytes"]

    def save(self, _):
        self.took = self._run("write", 1)

    def reuse(self, _):
        return self._run("read", 1)


class TorchSave:
    name = "torch.save"

    def __init__(self, folder, _):
        self.path = folder / "torch.pt"

    def save(self, state):
        torch.save(state, self.path)
        sync(self.path)

    def load(self):
        return torch.load(self.path, weights_only=True)


class Safetensors:
    name = "safetensors"

    def __init__(self, folder, _):
        import safetensors.torch

        self.module, self.path = safetensors.torch, folder / "peer.safetensors"

    def save(self, state):
        self.module.save_file(state, self.path)
        sync(self.path)

    def load(self):
        return {key: value.clone() for key, value in self.module.load_file(self.path).items()}


class Dcp:
    name = "DCP, 2 threads"

    def __init__(self, folder, _):
        self.path = folder / "dcp"

    def save(self, state):
        dcp.save(state, storage_writer=dcp.FileSystemWriter(self.path, thread_count=2))

    def stall(self, state):
        begin = time.perf_counter()
        future = dcp.async_save(state, storage_writer=dcp.FileSystemWriter(
            self.path, thread_count=2))
        seconds = time.perf_counter() - begin
        future.result()
        return seconds

    def load(self):
        metadata = dcp.FileSystemReader(self.path).read_metadata().state_dict_metadata
        state = {name: torch.empty(entry.size, dtype=entry.properties.dtype)
                 for name, entry in metadata.items()}
        dcp.load(state, storage_reader=dcp.FileSystemReader(self.path))
        return state


class StokerDcp(Dcp):
    name = "DCP, stoker's storage"
    stall = None

    def __init__(self, folder, _):
        import stoker.torch

        self.module, self.path = stoker.torch, folder / "stoker-dcp"

    def save(self, state):
        dcp.save(state, storage_writer=self.module.StorageWriter(self.path))

    def load(self):
        reader = self.module.StorageReader(self.path)
        metadata = reader.read_metadata().state_dict_metadata
        state = {name: torch.empty(entry.size, dtype=entry.properties.dtype)
                 for name, entry in metadata.items()}
        dcp.load(state, storage_reader=reader)
        return state


def drop_pages(path):
    """Of the files of a folder; needs no root."""
    for name in pathlib.Path(path).rglob("*") if os.path.isdir(path) else [path]:
        if os.path.isfile(name):
            handle = os.open(name, os.O_RDONLY)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(handle)


def run_timed(command):
    """Seconds, and CPU seconds."""
    before = os.times()
    seconds = timed(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))[0]
    after = os.times()
    return seconds, (after.children_user + after.children_system - before.children_user
                     - before.children_system)


def timed(action):
    begin = time.perf_counter()
    result = action()
    return time.perf_counter() - begin, result


def memcpy_seconds(target, state):
    """Of one thread, into memory that is mapped."""
    def copy():
        for name, tensor in state.items():
            ctypes.memmove(target[name].data_ptr(), tensor.data_ptr(),
                           tensor.numel() * tensor.element_size())

    return timed(copy)[0]


class Values:
    """By row and column, in the order of the rounds."""

    def __init__(self):
        self.rows = {}

    def add(self, row, column, value):
        self.rows.setdefault(row, {}).setdefault(column, []).append(value)

    def median(self, row, column):
        found = self.rows.get(row, {}).get(column)
        return statistics.median(found) if found else None

    def text(self):
        columns = list(dict.fromkeys(column for row in self.rows.values() for column in row))
        lines = [f"{'':24}" + "".join(f"{column:>24}" for column in columns)]
        for name, row in self.rows.items():
            cells = [f"{statistics.median(row[column]):.2f} ({min(row[column]):.2f} - "
                     f"{max(row[column]):.2f})" if column in row else "-" for column in columns]
            lines.append(f"{name:24}" + "".join(f"{cell:>24}" for cell in cells))
        return "\n".join(lines)


def run_candidate(candidate, state, target, total, values):
    """One round of one candidate."""
    def add(column, value):
        values.add(candidate.name, column, value)

    seconds = timed(lambda: candidate.save(state))[0]
    add("save GB/s", total / 1e9 / getattr(candidate, "took", seconds))
    if hasattr(candidate, "reuse"):
        add("load reused GB/s", total / 1e9 / candidate.reuse(target))
    if hasattr(candidate, "verify"):
        own, other = candidate.verify()
        for name, (seconds, cpu) in (("stoker", own), ("sha256sum", other)):
            values.add(name, "verify GB/s", total / 1e9 / seconds)
            values.add(name, "verify GB/CPU s", total / 1e9 / cpu)
    if getattr(candidate, "stall", None):
        change(state, len(values.rows) + 1000)
        add("stall s", candidate.stall(state))
    for column in ("load warm GB/s", "load cold GB/s") if hasattr(candidate, "load") else ():
        if "cold" in column:
            drop_pages(candidate.folder if hasattr(candidate, "folder") else candidate.path)
        cpu = time.process_time()
        seconds, loaded = timed(candidate.load)
        add(column, total / 1e9 / seconds)
        if "cold" in column:
            add("CPU s", time.process_time() - cpu)
        assert loaded.keys() == state.keys()
        del loaded


def bench_disk(args, folder):
    state = make_state(args.gb * 1e9)
    total = sum(tensor.numel() * tensor.element_size() for tensor in state.values())
    target = {name: tensor.clone() for name, tensor in state.items()}
    kinds = (Plain, *([Fio] if shutil.which("fio") else []), Stoker, TorchSave, Safetensors, Dcp,
             StokerDcp)
    values, place = Values(), folder / "disk"
    place.mkdir()
    args.made[Stoker] = Stoker(place, total)
    for turn in range(2):  # the pool of the writer is mapped then, as in a training
        change(state, 2000 + turn)
        args.made[Stoker].stall(state)
    for turn in range(args.rounds):
        for kind in kinds[turn:] + kinds[:turn]:  # another one is first
            say(f"disk, round {turn + 1} of {args.rounds}: {kind.name}")
            change(state, turn + 1)
            if kind not in args.made:
                args.made[kind] = kind(place, total)
            candidate = args.made[kind]
            run_candidate(candidate, state, target, total, values)
            if kind not in (Plain, Fio, Stoker):  # the others free the disk for the next one
                shutil.rmtree(candidate.path, ignore_errors=True)
                pathlib.Path(candidate.path).unlink(missing_ok=True)
        values.add("memcpy of the state", "stall s", memcpy_seconds(target, state))
    args.made[Stoker].ckpt.close()
    args.made.clear()
    shutil.rmtree(place)
    return {"bytes": total, "values": values.rows}, values.text(), disk_goals(values)


def disk_goals(values):
    """What the issue asks for: (what, value, goal)."""
    def over(row, other, column):
        one, two = values.median(row, column), values.median(other, column)
        return one / two if one and two else None

    def best(column):
        return max((values.median(row, column) or 0, row)
                   for row in ("torch.save", "safetensors", "DCP, 2 threads"))[1]

    stall = over("stoker", "memcpy of the state", "stall s")
    return [
        ("save over the plain writer", over("stoker", "plain", "save GB/s"), ">= 0.85"),
        ("save over the best peer", over("stoker", best("save GB/s"), "save GB/s"), ">= 2"),
        ("stall over memcpy", stall, "<= 1.1"),
        ("load, cold, reused memory, over fio", over("stoker", "fio", "load reused GB/s"),
         ">= 0.9"),
        ("load, cold, reused memory, over the plain reader",
         over("stoker", "plain", "load reused GB/s"), ">= 0.9"),
        ("load, cold, new memory, over the best peer",
         over("stoker", best("load cold GB/s"), "load cold GB/s"), ">= 3"),
        ("verify, GB a CPU second", values.median("stoker", "verify GB/CPU s"), ">= 2.5"),
        ("verify over the plain reader", (values.median("stoker", "verify GB/s") or 0)
         / (values.median("plain", "load reused GB/s") or 1), ">= 0.9"),
    ]


def bench_sha(args, folder):
    program = folder / "bench-sha256"
    root = HERE.parent
    subprocess.run(["cc", "-O2", "-D_GNU_SOURCE", f"-I{root}/src", f"-I{root}/include",
                    HERE / "sha256.c", pathlib.Path(args.build) / "libstoker-all.a",
                    "-o", program, "-lcrypto", "-lm", "-lpthread"], check=True)
    rates = json.loads(subprocess.run([program], check=True, capture_output=True,
                                      text=True).stdout)
    goals = [(f"SHA-256 with {kernel}, GB/s", rates[kernel], f">= {goal}")
             for kernel, goal in (("SHA-NI", 3.0), ("AVX-512", 3.3), ("AVX2", 1.5))
             if kernel in rates]
    return rates, f"SHA-256 on one core, GB/s: {rates}", goals


PARTS = {"disk": bench_disk, "sha": bench_sha, **checkpoint_parts.PARTS}


def say(text):
    print(f"run_checkpoint: {text}", file=sys.stderr, flush=True)


def take_precedence():
    """Of this session over others: /proc/self/autogroup is that of the session."""
    try:
        os.setsid()
    except PermissionError:
        pass  # it leads one
    pathlib.Path("/proc/self/autogroup").write_text("-19")


def holds(value, goal):
    sign, number = goal.split()
    return value is not None and (value >= float(number) if sign == ">=" else
                                  value <= float(number))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--gb", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--precedence", action="store_true")
    parser.add_argument("--name", default="checkpoints")
    parser.add_argument("--out", type=pathlib.Path, help="instead of results/NAME.json")
    args = parser.parse_args()
    args.made = {}
    checkpoint_parts.COMMAND = str(args.build.resolve() / "stoker")
    if args.precedence:
        take_precedence()
    folder = args.folder.resolve() / "checkpoints"
    folder.mkdir(parents=True)
    results = {"gb": args.gb, "cores": os.cpu_count(), "load_average": os.getloadavg(),
               "precedence": args.precedence, "parts": {}, "goals": []}
    try:
        for name in args.only.split(","):
            begin = time.monotonic()
            try:
                found, text, goals = PARTS[name](args, folder)
            except checkpoint_parts.Absent as reason:
                print(f"{name}: left out: {reason}")
                continue
            results["parts"][name] = found
            results["goals"] += [{"what": what, "value": value, "goal": goal,
                                  "met": holds(value, goal)} for what, value, goal in goals]
            print(f"\n== {name} ({time.monotonic() - begin:.0f} s)\n{text}", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print()
    for row in results["goals"]:
        value = "-" if row["value"] is None else f"{row['value']:.3g}"
        print(f"{row['what']:60} {value:>10}  {row['goal']:8} {'' if row['met'] else 'MISSED'}")
    out = args.out or HERE / "results" / f"{args.name}.json"
    out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
