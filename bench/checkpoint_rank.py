"""One rank of a part of run_checkpoint.py: prints a line of JSON.

usage: checkpoint_rank.py INIT RANK WORLD step|memory FOLDER stoker|dcp GB [TURNS]
       checkpoint_rank.py INIT RANK WORLD save|load FOLDER GB
"""
import json
import os
import pathlib
import statistics
import sys
import time

import run_checkpoint
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

import stoker

QUIET_STEPS = 20


class Saver:
    """Asynchronous saves by stoker, or by DCP with threads."""

    def __init__(self, kind, folder, **options):
        self.kind, self.folder, self.step = kind, folder, 0
        if kind == "stoker":
            self.ckpt = stoker.Checkpointer(folder, keep_last=1, **options)
        else:
            self.group = dist.new_group(backend="gloo")  # the training uses the other one

    def begin(self, state):
        self.step += 1
        if self.kind == "stoker":
            self.handle = self.ckpt.save(self.step, state)
        else:
            self.handle = dcp.async_save(
                state, process_group=self.group,
                storage_writer=dcp.FileSystemWriter(self.folder, thread_count=2))

    def is_done(self):
        return self.handle.done() if callable(self.handle.done) else self.handle.done

    def end(self):
        self.handle.wait() if self.kind == "stoker" else self.handle.result()


def run_step(folder, kind, gb, turns):
    """A model whose step takes some 50 ms, and a state of gb beside it."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(
        *(torch.nn.Linear(512, 512) for _ in range(8))))
    optimizer = torch.optim.AdamW(model.parameters())
    batch = torch.randn(256, 512)
    state = run_checkpoint.make_state(gb * 1e9)
    share = 10 // dist.get_world_size()  # of the machine: 10 percent over all ranks
    saver = Saver(kind, folder, **({"cpu_percent": share, "memory": int(gb * 1.2e9) + (64 << 20)}
                                   if kind == "stoker" else {}))

    def step():
        begin = time.perf_counter()
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        return (time.perf_counter() - begin) * 1e3

    found = []
    for turn in range(turns):
        run_checkpoint.change(state, turn)
        quiet = [step() for _ in range(QUIET_STEPS)]
        dist.barrier()
        saver.begin(state)
        begin, saving, running = time.perf_counter(), [], torch.ones(1)
        while running.item():  # all ranks take the same number of steps
            saving.append(step())
            running.fill_(not saver.is_done())
            dist.all_reduce(running, dist.ReduceOp.MAX)
        seconds = time.perf_counter() - begin
        saver.end()
        quiet += [step() for _ in range(QUIET_STEPS)]
        found.append({"quiet_ms": statistics.mean(quiet), "saving_ms": statistics.mean(saving),
                      "steps": len(saving), "seconds": seconds})
    return found[1:]  # the first one allocates memory


def run_memory(folder, kind, gb):
    state = run_checkpoint.make_state(gb * 1e9)
    total = sum(tensor.numel() * tensor.element_size() for tensor in state.values())
    budget = max(total // 4, 64 << 20)
    saver = Saver(kind, folder, **({"memory": budget} if kind == "stoker" else {}))
    small = {"x": torch.zeros(1000)}
    saver.begin(small)  # what a first save imports and allocates
    saver.end()
    before = resident("VmRSS")
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins again
    saver.begin(state)
    saver.end()
    return {"state": total, "above": max(0, resident("VmHWM") - before),
            "budget": budget if kind == "stoker" else None}


def resident(key):
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(key)


def sharded(gb, fill):
    """Rows over all ranks, of 32 MiB tensors."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    rows, columns = 8192, 1024
    count = max(1, round(gb * 1e9 / (rows * columns * 4)))
    state = {}
    for index in range(count):
        local = torch.full((rows // dist.get_world_size(), columns), float(index) * fill)
        state[f"layers.{index}"] = DTensor.from_local(local, mesh, [Shard(0)])
    return state, count * rows * columns * 4


def bytes_read():
    text = pathlib.Path("/proc/self/io").read_text()
    return int(dict(line.split(": ") for line in text.splitlines())["read_bytes"])


def run_ranks(action, folder, gb):
    state, total = sharded(gb, action == "save")
    ckpt = stoker.Checkpointer(folder)
    if action == "save":
        ckpt.save(1, state, wait=True)
        ckpt.close()
        return {"state": total}
    ckpt.restore(state)  # what a first one imports from the disk does not count
    for tensor in state.values():
        tensor.to_local().zero_()
    dist.barrier()
    if dist.get_rank() == 0:
        run_checkpoint.drop_pages(folder)
    dist.barrier()
    before = bytes_read()
    ckpt.restore(state)
    read = bytes_read() - before
    for index, tensor in enumerate(state.values()):
        assert (tensor.to_local() == index).all()
    ckpt.close()
    return {"state": total, "read": read}


def main():
    init, rank, world, action, folder, *rest = sys.argv[1:]
    dist.init_process_group("gloo", init_method="file://" + init, rank=int(rank),
                            world_size=int(world))
    folder = pathlib.Path(folder)
    if action == "step":
        found = run_step(folder, rest[0], float(rest[1]), int(rest[2]))
    elif action == "memory":
        found = run_memory(folder, rest[0], float(rest[1]))
    else:
        found = run_ranks(action, folder, float(rest[0]))
    dist.barrier()
    dist.destroy_process_group()
    print(json.dumps(found), flush=True)
    os._exit(0)  # threads of torch sometimes abort the process at its end


if __name__ == "__main__":
    main()
