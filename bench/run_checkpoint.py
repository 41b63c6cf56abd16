#!/usr/bin/env python3
"""Measure saves and loads of checkpoints beside torch.save, safetensors and DCP, in turns.

usage: run_checkpoint.py --folder DIR [--gb 2] [--rounds 3] [--out FILE]

The state is one of mixed precision: bf16 weights, fp32 master weights and two fp32 moments, in
tensors of 32 MiB. Each save ends with the data on disk (fsync). "stall" is the time until an
asynchronous save returns: then the tensors may change. Loads are of files that are in the page
cache (warm) and that are not (cold), into new memory; stoker verifies all hashes.

Every round runs each candidate once; the table has medians of GB/s (the stall: seconds), and the
lowest and highest.
"""
import argparse
import contextlib
import json
import os
import pathlib
import shutil
import statistics
import sys
import time

import measure
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


def timed(action):
    begin = time.perf_counter()
    result = action()
    return time.perf_counter() - begin, result


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--gb", type=float, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    folder = args.folder / "checkpoints"
    folder.mkdir(parents=True)
    state = make_state(args.gb * 1e9)
    total = sum(tensor.numel() * tensor.element_size() for tensor in state.values())
    candidates = [kind(folder, total)
                  for kind in (Stoker, TorchSave, Safetensors, Dcp, StokerDcp)]
    values = {}

    def add(name, column, value):
        values.setdefault(name, {}).setdefault(column, []).append(value)

    try:
        for turn in range(args.rounds):
            print(f"round {turn + 1} of {args.rounds}", file=sys.stderr, flush=True)
            for candidate in candidates:
                add(candidate.name, "save GB/s", total / 1e9 / timed(
                    lambda: candidate.save(state))[0])
                if hasattr(candidate, "stall"):
                    add(candidate.name, "stall s", candidate.stall(state))
                for column in ("load warm GB/s", "load cold GB/s"):
                    if "cold" in column:
                        with contextlib.suppress(PermissionError):
                            measure.drop_caches()
                    seconds, loaded = timed(candidate.load)
                    add(candidate.name, column, total / 1e9 / seconds)
                    assert loaded.keys() == state.keys()
                    del loaded
            target = torch.empty(TENSOR_BYTES, dtype=torch.uint8)
            source = next(iter(state.values())).view(torch.uint8).reshape(-1)
            target.copy_(source)
            seconds = timed(lambda: [target.copy_(source) for _ in range(20)])[0] / 20
            add("memcpy of the state", "stall s", seconds * total / TENSOR_BYTES)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    columns = ["save GB/s", "stall s", "load warm GB/s", "load cold GB/s"]
    print(f"{'':24}" + "".join(f"{column:>24}" for column in columns))
    for name, row in values.items():
        cells = [f"{statistics.median(row[column]):.2f} ({min(row[column]):.2f} - "
                 f"{max(row[column]):.2f})" if column in row else "-" for column in columns]
        print(f"{name:24}" + "".join(f"{cell:>24}" for cell in cells))
    if args.out:
        args.out.write_text(json.dumps({"bytes": total, "values": values}, indent=1) + "\n")


if __name__ == "__main__":
    main()
