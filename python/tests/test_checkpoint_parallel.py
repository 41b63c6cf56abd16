"""Checkpoints of training with several ranks (gloo): DDP, FSDP2 and tensor parallelism, restored
on other numbers of ranks and with another parallelism.

./check runs FSDP2 on two ranks; ./check --long 1, 2, 4 and 8 ranks of each kind.
"""

import os

import processes
import pytest

torch = pytest.importorskip("torch")

LONG = pytest.mark.skipif(not os.environ.get("STOKER_TEST_LONG"), reason="for ./check --long")

TRAIN = """
import os, sys, torch, torch.distributed as dist, stoker
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor

kind, action, folder, rank, world, init = sys.argv[1:]
rank, world = int(rank), int(world)
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="file://" + init, rank=rank, world_size=world)

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(12, 48), torch.nn.Linear(48, 5)
        self.norm = torch.nn.LayerNorm(5)
    def forward(self, x):
        return self.norm(self.down(torch.relu(self.up(x))))

def build(seed):
    torch.manual_seed(seed)
    model = plain = Model()
    if kind == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(model)
    elif kind == "fsdp2":
        from torch.distributed.fsdp import fully_shard
        mesh = init_device_mesh("cpu", (world,))
        for layer in (model.up, model.down):
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    elif kind == "tensor":
        from torch.distributed.tensor.parallel import (
            ColwiseParallel, RowwiseParallel, parallelize_module)
        mesh = init_device_mesh("cpu", (world,))
        parallelize_module(model, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    else:
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.tensor.parallel import (
            ColwiseParallel, RowwiseParallel, parallelize_module)
        mesh = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("data", "tensor"))
        parallelize_module(
            model, mesh["tensor"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        fully_shard(model, mesh=mesh["data"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    return model, plain, optimizer

def step(model, optimizer, number):
    torch.manual_seed(1000 + number)
    x = torch.randn(8, 12)   # the same batch on all ranks, so that all parallelisms agree
    optimizer.zero_grad()
    loss = model(x).square().sum() / 8
    loss.backward()
    optimizer.step()
    value = loss.detach()
    return float(value.full_tensor() if isinstance(value, DTensor) else value)

def full(value):
    return value.full_tensor() if isinstance(value, DTensor) else value

def numbers(plain, optimizer):
    tensors = {"m." + name: full(p.detach()) for name, p in plain.named_parameters()}
    for i, (name, p) in enumerate(plain.named_parameters()):
        for key, value in optimizer.state[p].items():
            tensors[f"o.{name}.{key}"] = full(value)
    return tensors

model, plain, optimizer = build(1 if action == "save" else 2)
state = {"model": plain, "optimizer": optimizer, "step": 0}
ckpt = stoker.Checkpointer(folder, timeout=60)
if action == "save":
    for number in range(1, 4):
        loss = step(model, optimizer, number)
        state["step"] = number
        ckpt.save(number, state, metrics={"loss": loss})
    ckpt.wait()
    wanted = numbers(plain, optimizer)
    if rank == 0:
        torch.save(wanted, folder + ".wanted.pt")
else:
    if folder.endswith("stepped"):
        step(model, optimizer, 0)  # the optimizer has a state, which is filled in place
    assert ckpt.restore(state) == 3 and state["step"] == 3
    wanted = torch.load(folder + ".wanted.pt")
    found = numbers(plain, optimizer)
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert torch.equal(found[name], tensor), name
    assert torch.isfinite(torch.tensor(step(model, optimizer, 4)))
ckpt.close()
dist.barrier()
dist.destroy_process_group()
print("fine", flush=True)
os._exit(0)  # threads of torch sometimes abort the process at its end: std::terminate
"""


def run(kind, action, folder, world, number):
    processes.run_ranks(TRAIN, world, f"{folder}.init{number}", kind, action, folder)


def test_fsdp2(tmp_path):
    """Saved by two ranks, restored by one and with tensor parallelism."""
    run("fsdp2", "save", tmp_path / "run", 2, 1)
    run("fsdp2", "restore", tmp_path / "run", 2, 2)
    run("tensor", "restore", tmp_path / "run", 1, 3)


@LONG
@pytest.mark.parametrize("kind", ["ddp", "fsdp2", "tensor"])
@pytest.mark.parametrize("world", [1, 2, 4, 8])
@pytest.mark.parametrize("name", ["new", "stepped"])
def test_all_numbers_of_ranks(tmp_path, kind, world, name):
    """Into an optimizer that has no state yet, and into one that has."""
    run(kind, "save", tmp_path / name, world, 0)
    for number, other in enumerate((1, 2, 4, 8), 1):
        run(kind, "restore", tmp_path / name, other, number)


@LONG
@pytest.mark.parametrize("world", [4, 8])
def test_two_dimensions(tmp_path, world):
    """FSDP2 over tensor parallelism, restored without and with it."""
    run("both", "save", tmp_path / "run", world, 0)
    for number, (kind, other) in enumerate([("both", 4), ("fsdp2", 2), ("tensor", 4)], 1):
        run(kind, "restore", tmp_path / "run", other, number)
