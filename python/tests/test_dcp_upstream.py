"""The scenarios of PyTorch's own tests of torch.distributed.checkpoint, with stoker's storage.

Written anew after test/distributed/checkpoint of PyTorch; the comment of each test names the file
there. ./check runs two ranks; ./check --long four, with meshes of two dimensions. What PyTorch
tests only of its own files (names, extensions such as ZStandard, thread counts, the metadata file,
consolidated files of Hugging Face) and what needs GPUs has no counterpart here."""

import io
import os

import processes
import pytest
import stoker

torch = pytest.importorskip("torch")
pytest.importorskip("torch.distributed.checkpoint")

import stoker.torch  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
LONG = pytest.mark.skipif(not os.environ.get("STOKER_TEST_LONG"), reason="for ./check --long")


class Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(5, 5)
        self.second = torch.nn.Linear(5, 1)
        self.embedding = torch.nn.EmbeddingBag(5, 10)


class Blob:
    """A stateful object whose state is bytes."""

    def __init__(self, value):
        self.state = {"blob": value}

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = state


def save(state, folder, **options):
    dcp.save(state, storage_writer=stoker.torch.StorageWriter(folder), **options)


def load(state, folder, **options):
    dcp.load(state, storage_reader=stoker.torch.StorageReader(folder), **options)


def test_modules_and_blobs(tmp_path):
    """test_file_system_checkpoint_cpu.py: tensors by the older calls, too; a stateful blob."""
    state = {**Module().state_dict(), "blob": Blob(b"some bytes")}
    save(state, tmp_path / "a", no_dist=True)
    target = {**Module().state_dict(), "blob": Blob(b"")}
    assert not torch.equal(target["first.weight"], state["first.weight"])
    load(target, tmp_path / "a", no_dist=True)
    assert target["blob"].state == {"blob": b"some bytes"}
    dcp.save_state_dict(Module().state_dict(), stoker.torch.StorageWriter(tmp_path / "b"),
                        no_dist=True)
    plain = Module().state_dict()
    dcp.load_state_dict(plain, stoker.torch.StorageReader(tmp_path / "a"), no_dist=True)
    for name, tensor in plain.items():
        assert torch.equal(tensor, state[name]) and torch.equal(target[name], state[name])


def test_other_dtypes(tmp_path):
    """The same file: a tensor of another dtype is cast, unless the planner forbids it."""
    wide = torch.rand(4, 3)
    save({"w": wide}, tmp_path / "wide")
    target = {"w": torch.zeros(4, 3, dtype=torch.bfloat16)}
    load(target, tmp_path / "wide")
    assert torch.equal(target["w"], wide.bfloat16())
    save({"w": wide.bfloat16()}, tmp_path / "narrow")
    target = {"w": torch.zeros(4, 3)}
    load(target, tmp_path / "narrow")
    assert torch.equal(target["w"], wide.bfloat16().float())
    with pytest.raises(dcp.CheckpointException, match="(?i)size mismatch"):
        load({"w": torch.zeros(4, 4)}, tmp_path / "wide")


def test_stateful_and_other_values(tmp_path):
    """e2e/test_e2e_save_and_load.py: stateful objects are filled, other values are replaced; an
    empty state; bytes in a stream."""
    class State(dict):
        replaced = False

        def __setitem__(self, key, value):
            self.replaced = True
            super().__setitem__(key, value)

    class Empty:
        loaded = False

        def state_dict(self):
            return {}

        def load_state_dict(self, state):
            self.loaded = True

    state = State(empty=Empty())
    save(state, tmp_path / "a")
    load(state, tmp_path / "a")
    assert state["empty"].loaded and not state.replaced
    state = State(values={"tensor": torch.rand(10, 10), "bytes": [1, 2, 3, 4]})
    save(state, tmp_path / "b")
    load(state, tmp_path / "b")
    assert state.replaced and state["values"]["bytes"] == [1, 2, 3, 4]
    save({}, tmp_path / "c")
    load({}, tmp_path / "c")
    stream = io.BytesIO()
    torch.save([0.5, 0.25], stream)
    save({"train": {"losses": stream, "step": torch.tensor(3, dtype=torch.int32)}}, tmp_path / "d")
    target = {"train": {"losses": io.BytesIO(), "step": torch.tensor(0, dtype=torch.int32)}}
    load(target, tmp_path / "d")
    target["train"]["losses"].seek(0)
    assert torch.load(target["train"]["losses"]) == [0.5, 0.25] and target["train"]["step"] == 3


def test_parts_of_a_checkpoint(tmp_path):
    """The same file, and test_planner.py: a part of the keys; missing keys; other planners."""
    from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
    from torch.distributed.checkpoint.state_dict_loader import _load_state_dict_from_keys

    model = Module()
    optimizer = torch.optim.Adam(model.parameters())
    model.first(torch.ones(2, 5)).sum().backward()
    optimizer.step()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    save(state, tmp_path / "a")
    target = {"model": Module().state_dict()}
    load(target, tmp_path / "a")
    assert torch.equal(target["model"]["first.weight"], state["model"]["first.weight"])
    for keys, inside in ((None, {"model", "optimizer"}), ("optimizer.state", {"optimizer"})):
        found = _load_state_dict_from_keys(
            keys, storage_reader=stoker.torch.StorageReader(tmp_path / "a"))
        assert found.keys() == inside
        wanted = state["optimizer"]["state"][0]["exp_avg"]
        assert torch.equal(found["optimizer"]["state"]["0"]["exp_avg"], wanted)
    missing = {"model": {**Module().state_dict(), "other": torch.zeros(3)}}
    with pytest.raises(dcp.CheckpointException, match="(?i)missing key"):
        load(missing, tmp_path / "a")
    load(missing, tmp_path / "a", planner=DefaultLoadPlanner(allow_partial_load=True))
    assert torch.equal(missing["model"]["first.bias"], state["model"]["first.bias"])
    save(state, tmp_path / "flat", planner=DefaultSavePlanner(flatten_state_dict=False))


RANKS = """
import os, sys, torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
import stoker.torch
from torch.distributed._shard import sharded_tensor
from torch.distributed._shard.sharding_spec import (
    ChunkShardingSpec, EnumerableShardingSpec, ShardMetadata)
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

folder, rank, world, init = sys.argv[1:]
rank, world = int(rank), int(world)
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="file://" + init, rank=rank, world_size=world)

def save(name, state, **options):
    dcp.save(state, storage_writer=stoker.torch.StorageWriter(f"{folder}/{name}"), **options)

def load(name, state, **options):
    dcp.load(state, storage_reader=stoker.torch.StorageReader(f"{folder}/{name}"), **options)

# test_dtensor_resharding.py: all placements of meshes, read with all others.
full = torch.arange(80.0).reshape(8, 10)
flat = init_device_mesh("cpu", (world,))
meshes = [(flat, [p]) for p in (Shard(0), Shard(1), Replicate())]
if world == 4:
    square = init_device_mesh("cpu", (2, 2))
    meshes += [(square, [a, b]) for a in (Replicate(), Shard(0)) for b in (Replicate(), Shard(0))]
for number, (mesh, placements) in enumerate(meshes):
    save(f"reshard-{number}", {"d": distribute_tensor(full, mesh, placements)})
    for other, others in meshes:
        target = {"d": distribute_tensor(torch.zeros_like(full), other, others)}
        load(f"reshard-{number}", target)
        assert torch.equal(target["d"].full_tensor(), full), (placements, others)

# test_file_system_checkpoint_cpu.py: sharded tensors with other plans, also several shards a rank.
def shards(rows, ranks):
    at, found = 0, []
    for count, owner in zip(rows, ranks):
        found.append(ShardMetadata(shard_offsets=[at, 0], shard_sizes=[count, 20],
                                   placement=f"rank:{owner}/cpu"))
        at += count
    return EnumerableShardingSpec(found)

def columns():
    return ChunkShardingSpec(dim=1, placements=[f"rank:{r}/cpu" for r in range(world)])

plans = [ChunkShardingSpec(dim=0, placements=[f"rank:{r}/cpu" for r in range(world)]),
         shards([2, 1, 3, 3, 1], [0, 1, 0, 1, 0]), shards([8, 2], [1, 0]), columns()]

def whole(tensor):
    result = torch.zeros(10, 20) if rank == 0 else None
    tensor.gather(out=result)
    return result

for number, plan in enumerate(plans):
    tensor = sharded_tensor.rand(plan, 10, 20)
    save(f"shards-{number}", {"t": tensor})
    wanted = whole(tensor)
    for other in plans:
        target = {"t": sharded_tensor.zeros(other, 10, 20)}
        load(f"shards-{number}", target)
        found = whole(target["t"])
        assert rank != 0 or torch.equal(found, wanted), (number, other)

# e2e/test_e2e_save_and_load.py: training goes on; async_save by thread and process; the same place
# again; keys in another order on each rank. FSDP of CPU tensors is fully_shard.
def build(seed):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8))
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=flat)
    fully_shard(model, mesh=flat)
    return model, torch.optim.Adam(model.parameters(), lr=0.1)

def train(model, optimizer):
    torch.manual_seed(3)
    loss = model(torch.rand(8, 8)).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()

def state_of(model, optimizer):
    parts = get_state_dict(model, optimizer)
    return dict(zip(("model", "optimizer"), parts))

model, optimizer = build(1)
train(model, optimizer)
for kind in (None, AsyncCheckpointerType.THREAD, AsyncCheckpointerType.PROCESS):
    if kind is None:
        save("train", state_of(model, optimizer))
    else:
        future = dcp.async_save(state_of(model, optimizer), async_checkpointer_type=kind,
                                storage_writer=stoker.torch.StorageWriter(f"{folder}/train"))
        getattr(future, "upload_completion", future).result()
    dist.barrier()
    other, other_optimizer = build(2)
    target = state_of(other, other_optimizer)
    load("train", target)
    set_state_dict(other, other_optimizer, model_state_dict=target["model"],
                   optim_state_dict=target["optimizer"])
    assert train(other, other_optimizer) == train(model, optimizer), kind
names = [f"k{i}" for i in range(5)]
state = {name: torch.full((3,), float(i)) for i, name in enumerate(names)}
turned = names[rank:] + names[:rank]
save("order", {name: state[name] for name in turned})
target = {name: torch.zeros(3) for name in reversed(turned)}
load("order", target)
assert all(torch.equal(target[name], state[name]) for name in names)

# test_checkpoint.py: an error of one rank reaches all of them, and names it.
class Failing(stoker.torch.StorageWriter):
    def write_data(self, plan, planner):
        if rank == 1:
            raise RuntimeError("this disk is full")
        return super().write_data(plan, planner)
try:
    dcp.save(state, storage_writer=Failing(f"{folder}/failing"))
    raise SystemExit("no error")
except dcp.CheckpointException as error:
    assert list(error.failures) == [1] and "this disk is full" in str(error), error
dist.barrier()
steps = [n for n in os.listdir(f"{folder}/failing") if not n.startswith(".")]
assert not steps, steps
save("failing", state)  # the place can be used
load("failing", {"k1": torch.zeros(3)})
dist.barrier()
print("fine", flush=True)
os._exit(0)  # threads of torch sometimes abort the process at its end
"""


@pytest.mark.parametrize("world", [2, pytest.param(4, marks=LONG)])
def test_ranks(tmp_path, world):
    processes.run_ranks(RANKS, world, tmp_path / "init", tmp_path)
