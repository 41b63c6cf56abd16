"""Checkpoints: random states, metrics that are computed again, the limit of CPU time."""

import os
import random
import subprocess
import sys
import time

import numpy
import pytest
import stoker

torch = pytest.importorskip("torch")


def draw(own, torch_own, numpy_own):
    return [
        random.random(),
        random.gauss(0, 1),
        float(numpy.random.rand()),
        float(numpy.random.randn()),
        *torch.rand(3).tolist(),
        own.random(),
        *torch.rand(2, generator=torch_own).tolist(),
        *numpy_own.normal(size=3).tolist(),
    ]


def generators(seed, bits=numpy.random.PCG64):
    return {
        "own": random.Random(seed),
        "torch_own": torch.Generator().manual_seed(seed),
        "numpy_own": numpy.random.Generator(bits(seed)),
    }


@pytest.mark.parametrize("bits", ["PCG64", "MT19937", "Philox", "SFC64"])
def test_random_states(tmp_path, bits):
    made = generators(3, getattr(numpy.random, bits))
    random.seed(1)
    numpy.random.seed(1)
    torch.manual_seed(1)
    draw(**made)
    random.gauss(0, 1)  # one of a pair is left
    with stoker.Checkpointer(tmp_path) as ckpt:
        state = {"random": stoker.RandomStates(**made), "epoch": 1}
        ckpt.save(1, state, wait=True)
        wanted = [draw(**made) for _ in range(3)]
        other = generators(4, getattr(numpy.random, bits))
        assert draw(**other) != wanted[0]
        assert ckpt.restore({"random": stoker.RandomStates(**other)}) == 1
        assert [draw(**other) for _ in range(3)] == wanted
        with pytest.raises(stoker.StateError, match="own"):
            ckpt.restore({"random": stoker.RandomStates()})
        swapped = {**other, "own": other["torch_own"]}
        with pytest.raises(stoker.StateError, match="'own'"):
            ckpt.restore({"random": stoker.RandomStates(**swapped)})
    for path in (tmp_path / "step-0000000001").iterdir():
        assert b"\x80\x04\x95" not in path.read_bytes()
    for wrong in (random.SystemRandom(), 5):
        with pytest.raises(stoker.ArgumentError, match="own"):
            stoker.RandomStates(own=wrong)


def test_random_states_of_other_ranks(monkeypatch):
    """Ranks that did not save have streams of their own, always the same ones."""
    saved = stoker.RandomStates(**generators(3)).state_dict()

    def numbers(rank, ranks):
        monkeypatch.setattr("stoker.checkpoint_random._place", lambda: (rank, ranks))
        made = generators(9)
        stoker.RandomStates(**made).load_state_dict(saved)
        return draw(**made)

    streams = [numbers(rank, 4) for rank in range(4)]
    assert streams == [numbers(rank, 4) for rank in range(4)]
    for column in zip(*streams, strict=True):
        assert len(set(column)) == 4


def test_check(tmp_path):
    weight = torch.tensor([1.0, 2.0])
    batch = torch.tensor([3.0, 4.0])

    def loss():
        return {"loss": (weight * batch).sum(), "norm": float(weight.norm())}

    with stoker.Checkpointer(tmp_path) as ckpt:
        ckpt.save(1, {"w": weight}, metrics={**loss(), "data": "v1"}, wait=True)
        state = {"w": weight}
        weight.zero_()
        assert ckpt.restore(state, check=loss, tolerance=0) == 1
        assert ckpt.restore(state, check=lambda: {"data": "v1"}) == 1
        batch[0] = 3.5  # the data of the run are others
        with pytest.raises(stoker.StateError, match=r"loss is 11\.5 .*11\.0 when .* 0\.01 of it"):
            ckpt.restore(state, check=loss, tolerance=0.01)
        assert ckpt.restore(state, check=loss, tolerance={"loss": 0.1, "norm": 0}) == 1
        with pytest.raises(stoker.StateError, match="nan"):
            ckpt.restore(state, check=lambda: {"loss": float("nan")}, tolerance=1)
        with pytest.raises(stoker.StateError, match="data is 'v2' .* 'v1'"):
            ckpt.restore(state, check=lambda: {"data": "v2"})
        with pytest.raises(stoker.ArgumentError, match="(?s)'speed'.*data, loss, norm"):
            ckpt.restore(state, check=lambda: {"speed": 1})
        with pytest.raises(stoker.ArgumentError, match="check"):
            ckpt.restore(state, check=lambda: None)


CPU = """
import os, sys, time, numpy, stoker
ckpt = stoker.Checkpointer(sys.argv[1], cpu_percent=int(sys.argv[2]) or None)
data = numpy.ones(128 << 20, "u1")
def cpu():  # of the threads of the library
    return time.process_time() - time.thread_time()
begun, wall = cpu(), time.monotonic()
ckpt.save(1, {"a": data}).wait()
print(cpu() - begun, time.monotonic() - wall)
"""


def test_cpu_share(tmp_path):
    def share(percent):
        done = subprocess.run(
            [sys.executable, "-c", CPU, str(tmp_path / str(percent)), str(percent)],
            check=True,
            capture_output=True,
            text=True,
        )
        cpu, wall = map(float, done.stdout.split())
        return cpu, wall, cpu / wall / len(os.sched_getaffinity(0))

    free = share(0)
    limited = share(1)
    assert limited[2] < 0.015, (free, limited)
    assert limited[1] > 60 * limited[0] / len(os.sched_getaffinity(0)), (free, limited)
    for wrong in (0, 101, 1.5):
        with pytest.raises(stoker.ArgumentError, match="cpu_percent"):
            stoker.Checkpointer(tmp_path, cpu_percent=wrong)


def test_limits_end_at_a_deadline(tmp_path):
    """Without its limits, a running save continues at full speed."""
    with stoker.Checkpointer(tmp_path, cpu_percent=1, bandwidth="1MiB") as ckpt:
        handle = ckpt.save(1, {"a": numpy.ones(64 << 20, "u1")})
        assert not handle.wait(0.3)
        begin = time.monotonic()
        ckpt._writer.set_limits(0, 0)
        handle.wait(20)
        assert handle.done and time.monotonic() - begin < 20


MEMORY = """
import gc, os, re, sys, numpy, torch, stoker
action, folder = sys.argv[1:]
torch.set_num_threads(1)
COUNT, SIDE = 8, 4096                     # tensors of 64 MiB that are not in C order
torch.manual_seed(0)
base = [torch.rand(SIDE, SIDE) for _ in range(COUNT)]
state = {"t": {str(i): tensor.t() for i, tensor in enumerate(base)}}
wanted = [tensor.clone() for tensor in base] if action == "load" else None
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read()).group(1)) << 10
if action == "load":
    for tensor in base:
        tensor.zero_()
ckpt = stoker.Checkpointer(folder, memory="64MiB", threads=2)
open("/proc/self/clear_refs", "w").write("5")
before = peak()
if action == "save":
    ckpt.save(1, state, wait=True)
else:
    assert ckpt.restore(state) == 1
print(peak() - before)
if action == "load":
    assert all(torch.equal(a, b) for a, b in zip(base, wanted))
ckpt.close()
"""


def test_memory_of_tensors_that_are_not_in_order(tmp_path):
    """As those of a GPU: they are copied in pieces and in waves, not all at once."""
    grown = [
        int(
            subprocess.run(
                [sys.executable, "-c", MEMORY, action, str(tmp_path)],
                check=True,
                capture_output=True,
                text=True,
            ).stdout
        )
        >> 20
        for action in ("save", "load")
    ]
    assert grown[0] < 64 + 64 + 64, grown  # the pool, one tensor, and what torch needs
    assert grown[1] < 256 + 64 + 100, grown
