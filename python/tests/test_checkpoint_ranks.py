"""Checkpointer on several ranks (gloo): parts of DTensors, other numbers of ranks, failures."""

import os
import pathlib

import processes
import pytest
import stoker

torch = pytest.importorskip("torch")

HEAD = """
import os, sys, signal, time, torch, torch.distributed as dist
import stoker
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

folder, rank, world, init = sys.argv[1:]
rank, world = int(rank), int(world)
dist.init_process_group("gloo", init_method="file://" + init, rank=rank, world_size=world)
mesh = init_device_mesh("cpu", (world,))
full = {
    "rows": torch.arange(37 * 6, dtype=torch.float32).reshape(37, 6),
    "columns": torch.arange(10 * 12, dtype=torch.bfloat16).reshape(10, 12),
    "replicated": torch.arange(9, dtype=torch.int64),
    "few": torch.ones(1, 3),
}
places = {"rows": Shard(0), "columns": Shard(1), "replicated": Replicate(), "few": Shard(0)}

def state(fill):
    parts = {n: distribute_tensor(t if fill else torch.zeros_like(t), mesh, [places[n]])
             for n, t in full.items()}
    torch.manual_seed(7 if fill else 8)
    model = torch.nn.Linear(40, 30)
    return {"parts": parts, "model": model, "rank": rank if fill else -1, "epoch": 3 * fill,
            "buffers": [torch.full((50,), 2.0 * fill), torch.full((7,), 3 * fill)]}

ckpt = stoker.Checkpointer(folder, keep_last=2, timeout=60)
"""
TAIL = """
ckpt.close()
dist.barrier()
dist.destroy_process_group()
print("fine")
"""
SAVE = """
for step in (1, 2, 3):
    ckpt.save(step, state(True), metrics={"loss": step})
ckpt.wait()
dist.barrier()
assert [found.step for found in ckpt.steps()] == [2, 3], ckpt.steps()
"""
RESTORE = """
target = state(False)
assert ckpt.restore(target) == 3
for name, tensor in full.items():
    assert torch.equal(target["parts"][name].full_tensor(), tensor), name
wanted = state(True)
for a, b in zip(target["model"].parameters(), wanted["model"].parameters()):
    assert torch.equal(a, b)
for a, b in zip(target["buffers"], wanted["buffers"]):
    assert torch.equal(a, b)
assert target["epoch"] == 3 and target["rank"] == (rank if world == 2 else 0)
"""
REFUSED = """
ckpt.save(1, state(True), wait=True)
bad = state(True)
if rank == 1:
    bad["rank"] = object()
try:
    ckpt.save(2, bad, wait=True)
    raise SystemExit("no error")
except stoker.Error as error:
    assert ("without pickle" in str(error)), error
other = state(True)
other["model"] = torch.nn.Linear(40, 30 + rank)
try:
    ckpt.save(3, other, wait=True)
    raise SystemExit("no error")
except stoker.Error as error:
    assert "rank 1 has other tensors" in str(error), error
ckpt.save(4, state(True), wait=True)
dist.barrier()
assert [found.step for found in ckpt.steps()] == [1, 4]
assert not [name for name in os.listdir(folder) if name.startswith(".")], os.listdir(folder)
"""
UNEQUAL = """
state = lambda fill: {"rows": torch.full((5,), fill), "epoch": fill}
def fails(call, text):
    try:
        call()
    except stoker.Error as error:
        assert text in str(error), error
    else:
        raise SystemExit("no error: " + text)
# Rank 0 fails before the tensors: rank 1 has saved, and must not meet the next save of rank 0.
one = state(1)
if rank == 0:
    fails(lambda: ckpt.save(1, one, metrics={"loss": object()}), "not JSON")
else:
    handle = ckpt.save(1, one)
    fails(handle.wait, "rank 0 failed: ArgumentError: the metrics")
ckpt.save(2, state(2), wait=True)
begin = time.monotonic()
fails(lambda: ckpt.save(3 + rank, state(3), wait=True), "rank 1 saves step 4 while rank 0 saves")
if rank == 1:  # one rank saves once less
    ckpt._ranks.next_id()
fails(lambda: ckpt.save(5, state(5), wait=True), "rank 1 is at another save of step 5")
ckpt._ranks.saves = 100
# An old error of one rank.
if rank == 1:
    ckpt._failed.append(stoker.checkpoints.Save(0))
    ckpt._failed[-1]._end(stoker.ArgumentError("old", "save", "look"))
    fails(lambda: ckpt.save(6, state(6), wait=True), "old")
else:
    fails(lambda: ckpt.save(6, state(6), wait=True), "rank 1 failed: ArgumentError: old")
ckpt.save(7, state(7), wait=True)
dist.barrier()
assert [found.step for found in ckpt.steps()] == [2, 7]
for step in (2, 7):
    assert [found.status for found in ckpt.steps()] == ["committed"] * 2
    assert ckpt.load(step)["epoch"] == step
# A restore that fails on one rank only.
target = {"rows": torch.zeros(5 + rank, dtype=torch.int64), "epoch": 0}
fails(lambda: ckpt.restore(target), "expected" if rank else "rank 1 failed: StateError")
if rank == 0:
    ckpt._failed.append(stoker.checkpoints.Save(0))
    ckpt._failed[-1]._end(stoker.ArgumentError("old", "save", "look"))
fails(lambda: ckpt.restore(state(0)), "old" if rank == 0 else "rank 0 failed: ArgumentError: old")
assert ckpt.restore(state(0)) == 7
assert time.monotonic() - begin < 40
dist.barrier()
"""
COPY_FAILS = """
from stoker import checkpoint_tier
ckpt = stoker.Checkpointer(folder + "-main", local=folder + "-local", timeout=60)
ckpt.save(1, {"epoch": 1, "rows": torch.zeros(50)}, wait=True)
ckpt.wait()
dist.barrier()
if rank == 0:  # the copy of the file that the local folder lacks
    os.unlink(folder + "-local/step-0000000001/shard-00000.safetensors")
    def fail(*_, **__):
        raise stoker.ChangedError("the file changed", "'main'", "try again")
    checkpoint_tier.files.run = fail
dist.barrier()
begin = time.monotonic()
for call in (ckpt.load, lambda: ckpt.load(1), lambda: ckpt.verify(1)):
    try:
        call()
        raise SystemExit("no error")
    except stoker.Error as error:
        wanted = "the file changed" if rank == 0 else "rank 0 failed: ChangedError: the file"
        assert wanted in str(error), error
# An old error of one rank, before a restore of a number.
if rank == 1:
    ckpt._failed.append(stoker.checkpoints.Save(0))
    ckpt._failed[-1]._end(stoker.ArgumentError("old", "save", "look"))
else:
    checkpoint_tier.files.run = lambda *_: None
try:
    ckpt.load(1)
    raise SystemExit("no error")
except stoker.Error as error:
    assert ("old" if rank else "rank 1 failed: ArgumentError: old") in str(error), error
assert time.monotonic() - begin < 30
dist.barrier()
"""
KILLED = """
ckpt.save(1, state(True), wait=True)
again = state(True)  # collectives of the training
dist.barrier()
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
begin = time.monotonic()
try:
    ckpt.save(2, again, wait=True)
    raise SystemExit("no error")
except stoker.TimeoutError as error:
    assert "rank 1 did not answer" in str(error), error
assert time.monotonic() - begin < 65
assert ckpt.latest() == 1
print("fine", flush=True)
os._exit(0)
"""
HANGS = """
ckpt = stoker.Checkpointer(folder + "-2", timeout=4)
ckpt.save(1, state(True), wait=True)
again = state(True)
dist.barrier()
if rank == 1:
    os.kill(os.getpid(), signal.SIGSTOP)
    os._exit(0)
begin = time.monotonic()
try:
    ckpt.save(2, again, wait=True)
    raise SystemExit("no error")
except stoker.TimeoutError as error:
    assert "rank 1 did not answer" in str(error), error
assert time.monotonic() - begin < 30
assert ckpt.latest() == 1
print("fine", flush=True)
os._exit(0)
"""


def ranks(body, folder, world, init, died=(), stopped=()):
    children = processes.start_ranks(HEAD + body + TAIL, world, init, folder)
    for rank, child in reversed(list(enumerate(children))):
        if rank in stopped:
            continue
        output = child.communicate(timeout=220)[0]
        assert child.returncode == (-9 if rank in died else 0), output
    for rank in stopped:
        children[rank].kill()
        children[rank].wait()


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    ranks(SAVE, folder / "run", 2, folder / "init")
    return folder / "run"


def test_each_tensor_is_written_once(saved):
    step = pathlib.Path(saved, "step-0000000003")
    assert sorted(os.listdir(step)) == [
        "shard-00000.safetensors",
        "shard-00001.safetensors",
        "stoker.checkpoint.json",
    ]
    sizes = [path.stat().st_size for path in sorted(step.glob("shard*"))]
    assert all(size > 4096 for size in sizes)
    loaded = stoker.load(saved)
    assert torch.equal(
        loaded["parts"]["rows"], torch.arange(37 * 6, dtype=torch.float32).reshape(37, 6)
    )
    assert torch.equal(
        loaded["parts"]["columns"], torch.arange(120, dtype=torch.bfloat16).reshape(10, 12)
    )
    assert loaded["buffers"][0].sum() == 100 and loaded["rank"] == 0
    with stoker.Checkpointer(saved) as ckpt:
        assert ckpt.steps()[-1].ranks == 2 and ckpt.steps()[-1].metrics == {"loss": 3}


@pytest.mark.parametrize("world", [2, 3])
def test_restore(saved, tmp_path, world):
    ranks(RESTORE, saved, world, tmp_path / "init")


def test_a_rank_that_fails(tmp_path):
    ranks(REFUSED, tmp_path / "run", 2, tmp_path / "init")


def test_ranks_that_save_or_restore_differently(tmp_path):
    ranks(UNEQUAL, tmp_path / "run", 2, tmp_path / "init")


def test_a_copy_of_rank_0_that_fails(tmp_path):
    ranks(COPY_FAILS, tmp_path / "run", 2, tmp_path / "init")


def test_a_rank_that_dies(tmp_path):
    ranks(KILLED, tmp_path / "run", 2, tmp_path / "init", died={1})
    assert stoker.load(tmp_path / "run")["epoch"] == 3


def test_a_rank_that_hangs(tmp_path):
    ranks(HANGS, tmp_path / "run", 3, tmp_path / "init", stopped={1})
    assert stoker.load(tmp_path / "run-2")["epoch"] == 3
