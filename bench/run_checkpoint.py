#!/usr/bin/env python3
"""Measure saves and loads of checkpoints beside torch.save, safetensors and DCP, in turns.

usage: run_checkpoint.py --folder DIR [--gb 4] [--rounds 3] [--build DIR] [--out FILE]

The state is one of mixed precision: bf16 weights, fp32 master weights and two fp32 moments, in
tensors of 32 MiB. Each save ends with the data on disk (fsync). "stall" is the time until an
asynchronous save returns: then the tensors may change. Loads are of files that are in the page
cache (warm) and that are not (cold), into new memory, and into memory that was used before
(reused); stoker verifies all hashes. "CPU s" is the CPU time of a cold load into new memory.

"plain" is the floor: it writes (2 threads, 16 MiB at once, then fdatasync) and reads (4 threads,
O_DIRECT) bytes without hashes and without tensors. With fio on the path, "fio" does the same. With
--build, the rate of SHA-256 on one core is measured, too.

Every round runs each candidate once; the table has medians of GB/s (the stall: seconds), and the
lowest and highest.
"""
import argparse
import concurrent.futures
import json
import mmap
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

import torch
import torch.distributed.checkpoint as dcp

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
        self.ckpt = stoker.Checkpointer(self.folder, keep_last=1, memory=2 * state_bytes)
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

    def reuse(self, state):
        target = {name: torch.empty_like(tensor) for name, tensor in state.items()}
        for tensor in target.values():
            tensor.zero_()
        self.drop()
        return timed(lambda: self.ckpt.restore(target))[0]

    def verify(self):
        self.drop()
        command = os.environ.get("STOKER_COMMAND", shutil.which("stoker"))
        return command and timed(lambda: subprocess.run(
            [command, "ckpt", "verify", self.folder], check=True, stdout=subprocess.DEVNULL))[0]


class Plain:
    """Bytes without hashes and tensors."""

    name = "plain"
    block, threads = 16 << 20, (2, 4)

    def __init__(self, folder, state_bytes):
        self.path = folder / "plain"
        self.blocks = max(1, state_bytes // self.block)
        self.total = self.blocks * self.block
        self.memory = mmap.mmap(-1, self.total)
        self.memory[:] = os.urandom(1 << 20) * (self.total >> 20)

    def _each(self, action, threads):
        with concurrent.futures.ThreadPoolExecutor(threads) as pool:
            list(pool.map(action, range(self.blocks)))

    def save(self, _):
        view = memoryview(self.memory)
        handle = os.open(self.path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
        os.posix_fallocate(handle, 0, self.total)

        def write(index):
            at = index * self.block
            os.pwrite(handle, view[at:at + self.block], at)

        self._each(write, self.threads[0])
        os.fdatasync(handle)
        os.close(handle)

    def reuse(self, _):
        drop_pages(self.path)
        view = memoryview(self.memory)
        handle = os.open(self.path, os.O_RDONLY | os.O_DIRECT)

        def read(index):
            at = index * self.block
            assert os.preadv(handle, [view[at:at + self.block]], at) == self.block

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

    def load(self):
        metadata = dcp.FileSystemReader(self.path).read_metadata().state_dict_metadata
        state = {name: torch.empty(entry.size, dtype=entry.properties.dtype)
                 for name, entry in metadata.items()}
        dcp.load(state, storage_reader=dcp.FileSystemReader(self.path))
        return state


class StokerDcp(Dcp):
    name = "DCP, stoker's storage"

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


def sha256_rates(build):
    """Kernel, GB/s of stoker and of libcrypto on one core; None without a build."""
    program = pathlib.Path(build) / "bench-sha256"
    root = pathlib.Path(__file__).resolve().parent.parent
    subprocess.run(["cc", "-O2", "-D_GNU_SOURCE", f"-I{root}/src", f"-I{root}/include",
                    root / "bench" / "sha256.c", pathlib.Path(build) / "libstoker-all.a",
                    "-o", program, "-lcrypto", "-lm", "-lpthread"], check=True)
    kernel, own, libcrypto = subprocess.run([program], check=True, capture_output=True,
                                            text=True).stdout.split()
    return {"kernel": int(kernel), "stoker": float(own), "libcrypto": float(libcrypto)}


def timed(action):
    begin = time.perf_counter()
    result = action()
    return time.perf_counter() - begin, result


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--gb", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--build", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    folder = args.folder / "checkpoints"
    folder.mkdir(parents=True)
    state = make_state(args.gb * 1e9)
    total = sum(tensor.numel() * tensor.element_size() for tensor in state.values())
    candidates = [kind(folder, total)
                  for kind in (Plain, *([Fio] if shutil.which("fio") else []), Stoker, TorchSave,
                               Safetensors, Dcp, StokerDcp)]
    values = {}
    rates = sha256_rates(args.build) if args.build else None
    load_before = os.getloadavg()

    def add(name, column, value):
        values.setdefault(name, {}).setdefault(column, []).append(value)

    try:
        for turn in range(args.rounds):
            print(f"round {turn + 1} of {args.rounds}", file=sys.stderr, flush=True)
            for candidate in candidates:
                seconds = timed(lambda: candidate.save(state))[0]
                add(candidate.name, "save GB/s", total / 1e9 / getattr(candidate, "took", seconds))
                if hasattr(candidate, "reuse"):
                    add(candidate.name, "load reused GB/s", total / 1e9 / candidate.reuse(state))
                if hasattr(candidate, "verify") and (seconds := candidate.verify()):
                    add(candidate.name, "verify GB/s", total / 1e9 / seconds)
                if not hasattr(candidate, "load"):
                    continue
                if hasattr(candidate, "stall"):
                    add(candidate.name, "stall s", candidate.stall(state))
                for column in ("load warm GB/s", "load cold GB/s"):
                    if "cold" in column:
                        drop_pages(folder)
                    cpu = time.process_time()
                    seconds, loaded = timed(candidate.load)
                    add(candidate.name, column, total / 1e9 / seconds)
                    if "cold" in column:
                        add(candidate.name, "CPU s", time.process_time() - cpu)
                    assert loaded.keys() == state.keys()
                    del loaded
            target = torch.empty(TENSOR_BYTES, dtype=torch.uint8)
            source = next(iter(state.values())).view(torch.uint8).reshape(-1)
            target.copy_(source)
            seconds = timed(lambda: [target.copy_(source) for _ in range(20)])[0] / 20
            add("memcpy of the state", "stall s", seconds * total / TENSOR_BYTES)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    columns = ["save GB/s", "stall s", "load warm GB/s", "load cold GB/s", "CPU s",
               "load reused GB/s", "verify GB/s"]
    print(f"{total / 1e9:.2f} GB, load average {load_before[0]:.1f} on {os.cpu_count()} cores")
    if rates:
        print(f"SHA-256 on one core: {rates['stoker']:.2f} GB/s, libcrypto "
              f"{rates['libcrypto']:.2f} (kernel {rates['kernel']})")
    print(f"{'':24}" + "".join(f"{column:>24}" for column in columns))
    for name, row in values.items():
        cells = [f"{statistics.median(row[column]):.2f} ({min(row[column]):.2f} - "
                 f"{max(row[column]):.2f})" if column in row else "-" for column in columns]
        print(f"{name:24}" + "".join(f"{cell:>24}" for cell in cells))
    if args.out:
        args.out.write_text(json.dumps(
            {"bytes": total, "cores": os.cpu_count(), "load_average": load_before,
             "sha256_gb_s": rates, "values": values}, indent=1) + "\n")


if __name__ == "__main__":
    main()
