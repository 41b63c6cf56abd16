"""stoker.torch.StorageWriter and StorageReader under torch.distributed.checkpoint."""

import os
import pickle
import subprocess

import numpy
import processes
import pytest
import stoker

torch = pytest.importorskip("torch")
pytest.importorskip("torch.distributed.checkpoint")

import stoker.torch  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def state(seed):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(33, 65), torch.nn.Linear(65, 3).bfloat16())
    return {
        "model": dict(model.state_dict()),
        "optimizer": {"state": {"0": {"step": torch.tensor(3.0)}}, "groups": [{"lr": 0.5 + seed}]},
        "scalar": torch.tensor(seed),
        "strided": torch.arange(20.0).reshape(4, 5).t() + seed,
        "epoch": seed,
        "rate": numpy.float32(seed + 0.5),
        "array": numpy.arange(3) + seed,
        "name": f"run {seed}",
    }


def same(a, b):
    if isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype and torch.equal(a, b)
    elif isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            same(a[key], b[key])
    elif isinstance(a, numpy.ndarray):
        assert a.dtype == b.dtype and (a == b).all()
    elif isinstance(a, list):
        for x, y in zip(a, b, strict=True):
            same(x, y)
    else:
        assert a == b and type(a) is type(b)


def save(folder, value, **options):
    dcp.save(value, storage_writer=stoker.torch.StorageWriter(folder), **options)


def load(folder, value):
    dcp.load(value, storage_reader=stoker.torch.StorageReader(folder))


def test_one_process(tmp_path):
    folder = tmp_path / "step-1"
    save(folder, state(1))
    target = state(2)
    load(folder, target)
    same(target, state(1))
    save(folder, state(3))  # again: the old step is removed when the new one is committed
    load(folder, target)
    same(target, state(3))
    assert len(os.listdir(folder)) == 1
    (step,) = os.listdir(folder)
    names = ["shard-00000.safetensors", "stoker.checkpoint.json"]
    assert sorted(os.listdir(folder / step)) == names
    text = b"".join(path.read_bytes() for path in (folder / step).iterdir())
    assert b"ctorch" not in text and b".data.pkl" not in text  # no pickle
    command = [os.environ["STOKER_COMMAND"], "ckpt", "verify", str(folder)]
    assert subprocess.run(command, capture_output=True).returncode == 0


def test_steps_of_others_stay(tmp_path):
    with stoker.Checkpointer(tmp_path) as ckpt:
        for step in (1, 2, 3):
            ckpt.save(step, {"step": step}, wait=True)
        save(tmp_path, state(1))
        save(tmp_path, state(2))
        (tmp_path / "step-0000000002" / "stoker.checkpoint.json").unlink()  # is being written
        save(tmp_path, state(3))
        assert [found.step for found in ckpt.steps()] == [1, 2, 3, 6]
        ckpt.pin(6)
        save(tmp_path, state(4))  # a pinned step stays, and is no error
        assert [found.step for found in ckpt.steps()] == [1, 2, 3, 6, 7]
        assert ckpt.load(3) == {"step": 3}
    target = state(1)
    load(tmp_path, target)
    same(target, state(4))


def test_async_and_pickled(tmp_path):
    writer = pickle.loads(pickle.dumps(stoker.torch.StorageWriter(tmp_path / "a")))
    reader = pickle.loads(pickle.dumps(stoker.torch.StorageReader(tmp_path / "a")))
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/init", rank=0, world_size=1
    )
    try:
        future = dcp.async_save(state(1), storage_writer=writer)
        future.result()
    finally:
        torch.distributed.destroy_process_group()
    target = state(2)
    dcp.load(target, storage_reader=reader)
    same(target, state(1))


def test_damage_and_refusals(tmp_path):
    save(tmp_path / "a", state(1))
    (shard,) = (tmp_path / "a").glob("*/shard-00000.safetensors")
    data = bytearray(shard.read_bytes())
    data[-3] ^= 1
    shard.write_bytes(data)
    with pytest.raises(dcp.CheckpointException, match="does not match its hash"):
        load(tmp_path / "a", state(2))

    class Thing:
        pass

    with pytest.raises(dcp.CheckpointException, match="without pickle"):
        save(tmp_path / "b", {"a": torch.ones(3), "x": Thing()})
    assert not (tmp_path / "b").exists() or not os.listdir(tmp_path / "b")
    with pytest.raises(dcp.CheckpointException, match="b"):
        load(tmp_path / "b", state(1))
    stoker.save({"a": torch.ones(2)}, tmp_path / "c.safetensors")
    with pytest.raises(dcp.CheckpointException, match="torch.distributed.checkpoint"):
        load(tmp_path / "c.safetensors", state(1))


RANKS = """
import os, sys, torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
import stoker.torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

action, folder, rank, world, init = sys.argv[1:]
rank, world = int(rank), int(world)
dist.init_process_group("gloo", init_method="file://" + init, rank=rank, world_size=world)
mesh = init_device_mesh("cpu", (world,))
full = {
    "rows": torch.arange(37 * 6, dtype=torch.float32).reshape(37, 6),
    "columns": torch.arange(10 * 12, dtype=torch.bfloat16).reshape(10, 12),
    "replicated": torch.arange(9, dtype=torch.int64),
}
places = {"rows": Shard(0), "columns": Shard(1), "replicated": Replicate()}
state = {}
for name, tensor in full.items():
    start = tensor if action == "save" else torch.zeros_like(tensor)
    state[name] = distribute_tensor(start, mesh, [places[name]])
state["plain"] = torch.full((5,), 7.0 if action == "save" else 0.0)
state["epoch"] = 3 if action == "save" else 0
if action == "save":
    dcp.save(state, storage_writer=stoker.torch.StorageWriter(folder))
else:
    dcp.load(state, storage_reader=stoker.torch.StorageReader(folder))
    for name, tensor in full.items():
        assert torch.equal(state[name].full_tensor(), tensor), name
    assert torch.equal(state["plain"], torch.full((5,), 7.0)) and state["epoch"] == 3
dist.barrier()
dist.destroy_process_group()
print("fine")
"""


def ranks(action, folder, world, init):
    processes.run_ranks(RANKS, world, init, action, folder)


def test_ranks_and_resharding(tmp_path, before=2, after=3):
    ranks("save", tmp_path / "a", before, tmp_path / "init-1")
    (step,) = os.listdir(tmp_path / "a")
    names = sorted(os.listdir(tmp_path / "a" / step))
    assert names == [f"shard-{rank:05}.safetensors" for rank in range(before)] + [
        "stoker.checkpoint.json"
    ]
    ranks("load", tmp_path / "a", after, tmp_path / "init-2")
