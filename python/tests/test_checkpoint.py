"""Checkpoints: trees, in-place restore, damage, retention, background errors, kills."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections import OrderedDict, namedtuple

import numpy
import pytest
import stoker

torch = pytest.importorskip("torch")


def conjugated():
    value = torch.tensor([[1 + 2j, 3 - 4j]], dtype=torch.complex64)
    return {"plain": value, "conj": value.conj(), "imag": value.imag, "neg": value.conj().imag}


def tree():
    Pair = namedtuple("Pair", "a b")
    return {
        "torch": {
            "bf16": torch.arange(7, dtype=torch.bfloat16),
            "strided": torch.arange(12.0).reshape(3, 4).t(),
            "scalar": torch.tensor(3, dtype=torch.int64),
            "bool": torch.tensor([True, False]),
            "empty": torch.empty(0, 3),
            "complex": torch.tensor([1 + 2j], dtype=torch.complex64),
            **conjugated(),
            "dtype": torch.float16,
            "device": torch.device("cpu"),
        },
        "numpy": [numpy.arange(5, dtype=numpy.int16), numpy.float32(2.5), numpy.array("1", "i4")],
        "numbers": [1, -(2**70), 1.5, float("inf"), float("nan"), True, None],
        "text": "\u00e9 \" \\ \n",
        "keys": {0: {"step": 1}, 1.5: 2, (1, 2): 3, None: 4},
        "tuple": (1, (2, [3])),
        "named": Pair(1, 2),
        "bytes": b"\x00\xff",
        "ordered": OrderedDict(b=1, a=2),
        "empty": {},
    }


def same(a, b, path=""):
    if isinstance(a, torch.Tensor):
        assert a.dtype == b.dtype and a.shape == b.shape, path
        assert torch.equal(a, b), path
    elif isinstance(a, (numpy.ndarray, numpy.generic)):
        assert a.dtype == b.dtype and a.shape == b.shape and (a == b).all(), path
    elif isinstance(a, dict):
        assert list(a) == list(b), path
        for key in a:
            same(a[key], b[key], f"{path}.{key}")
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b) and isinstance(b, list) == isinstance(a, list), path
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            same(x, y, f"{path}.{i}")
    elif isinstance(a, float) and a != a:
        assert b != b, path
    else:
        assert a == b and type(a) is type(b), path


def test_tree_round_trip(tmp_path):
    path = tmp_path / "state.safetensors"
    stoker.save(tree(), path)
    same(tree(), stoker.load(path))
    first = path.read_bytes()
    stoker.save(tree(), path)
    assert path.read_bytes() == first
    assert os.listdir(tmp_path) == ["state.safetensors"]


def test_other_readers(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    path = tmp_path / "model.safetensors"
    state = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 3)).state_dict()
    stoker.save(dict(state), path)
    same(dict(state), {key: safetensors.load_file(path)[key] for key in state})
    safetensors.save_file(state, path)
    loaded = stoker.load(path)
    same(dict(state), {key: loaded[key] for key in state})


def test_dtypes_that_cannot_be_read(tmp_path):
    header = json.dumps({"a.b": {"dtype": "F6_E2M3", "shape": [4], "data_offsets": [0, 3]}})
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header.encode() + b"abc")
    with pytest.raises(stoker.UnsupportedError, match="F6_E2M3.*'a.b'"):
        stoker.load(path)


def test_floats_of_8_bits(tmp_path):
    """All of torch are saved and read; safetensors reads them, too."""
    safetensors = pytest.importorskip("safetensors")
    names = ("e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "e8m0fnu")
    bits = torch.arange(256, dtype=torch.uint8)
    state = {name: bits.view(getattr(torch, f"float8_{name}")) for name in names}
    path = tmp_path / "a.safetensors"
    stoker.save(state, path)
    loaded = stoker.load(path)
    for name, tensor in state.items():
        assert loaded[name].dtype == tensor.dtype and loaded[name].view(torch.uint8).equal(bits)
    with safetensors.safe_open(path, "pt") as other:
        found = other.get_tensor("e5m2fnuz")
        assert found.dtype == torch.float8_e5m2fnuz and found.view(torch.uint8).equal(bits)


def test_refused_values(tmp_path):
    class Thing:
        pass

    cases = [
        ({"a": [1, Thing()]}, "a.1"),
        ({"a": {"b": lambda: 0}}, "a.b"),
        ({"a": {1, 2}}, "a"),
        ({"a": torch.zeros(2, device="meta")}, "a"),
        ({"a": torch.zeros(2, 2).to_sparse()}, "a"),
        ({"a": numpy.array(["x"])}, "a"),
        ({"a": torch.zeros(1, dtype=torch.complex128)}, "a"),
        ({"x": [numpy.ma.masked_array([1, 2], [0, 1])]}, "'x.0'"),
    ]
    for value, path in cases:
        with pytest.raises(stoker.ArgumentError, match=path):
            stoker.save(value, tmp_path / "x.safetensors")
    cycle = []
    cycle.append(cycle)
    with pytest.raises(stoker.ArgumentError, match="levels"):
        stoker.save(cycle, tmp_path / "x.safetensors")
    assert not os.listdir(tmp_path)
    source = (os.path.dirname(stoker.__file__) + "/checkpoints.py", stoker.__path__[0])
    text = open(source[0]).read() + open(source[1] + "/checkpoint_tree.py").read()
    assert "import pickle" not in text


def test_training_resumes(tmp_path):
    def new():
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
        return {"model": model, "optimizer": optimizer, "scheduler": scheduler, "epoch": 0}

    def step(state, seed):
        torch.manual_seed(seed)
        state["model"](torch.randn(4, 8)).square().sum().backward()
        state["optimizer"].step()
        state["optimizer"].zero_grad()
        state["scheduler"].step()
        state["epoch"] += 1

    with stoker.Checkpointer(tmp_path / "run") as ckpt:
        state = new()
        assert ckpt.restore(state) is None
        for i in range(5):
            step(state, i)
            ckpt.save(i, state)  # the next step changes the tensors at once
        for i in range(5, 8):
            step(state, i)
        resumed = new()
        assert ckpt.restore(resumed, step=2) == 2 and resumed["epoch"] == 3
        resumed = new()
        assert ckpt.restore(resumed) == 4 and resumed["epoch"] == 5
        for i in range(5, 8):
            step(resumed, i)
        same(state["model"].state_dict(), resumed["model"].state_dict())
        same(state["optimizer"].state_dict(), resumed["optimizer"].state_dict())
        assert ckpt.latest() == 4


def test_restore_in_place(tmp_path):
    with stoker.Checkpointer(tmp_path) as ckpt:
        state = {
            "a": torch.arange(10.0),
            "b": numpy.arange(4),
            "c": {"d": torch.ones(2), "n": 5},
            "tied": torch.ones(3),
        }
        state["again"] = state["tied"]
        ckpt.save(1, state, wait=True)
        target = {
            "a": torch.zeros(10),
            "b": numpy.zeros(4, dtype=int),
            "c": {"d": torch.zeros(2), "n": 0},
        }
        tensors = target["a"], target["b"], target["c"]["d"]
        assert ckpt.restore(target) == 1
        assert target["a"] is tensors[0] and target["b"] is tensors[1]
        assert target["c"]["d"] is tensors[2]
        same(target, {key: state[key] for key in target})
        strided = torch.zeros(10, 2)[:, 0]
        ckpt.restore({"a": strided})
        assert torch.equal(strided, state["a"])
        loaded = ckpt.load(1)
        assert loaded["tied"].data_ptr() == loaded["again"].data_ptr()
        with pytest.raises(stoker.StateError, match="'a'"):
            ckpt.restore({"a": torch.zeros(11)})
        with pytest.raises(stoker.StateError, match="float64"):
            ckpt.restore({"a": torch.zeros(10, dtype=torch.float64)})
        with pytest.raises(stoker.MissingError, match="nothing"):
            ckpt.restore({"nothing": 1})


def flip(path, offset):
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 4]))


def test_damage(tmp_path):
    with stoker.Checkpointer(tmp_path) as ckpt:
        for step in (1, 2, 3):
            ckpt.save(step, {"a": torch.full((300_000,), float(step))})
        ckpt.wait()
        shard = tmp_path / "step-0000000003" / "shard-00000.safetensors"
        flip(shard, 900_000)
        flip(tmp_path / "step-0000000002" / "stoker.checkpoint.json", 100)
        target = {"a": torch.zeros(300_000)}
        assert ckpt.restore(target) == 1 and target["a"][-1] == 1
        with pytest.raises(stoker.CorruptError, match="shard-00000.*tensor 'a'") as caught:
            ckpt.restore(target, step=3)
        assert caught.value.key == "a" and caught.value.shard == str(shard)
        assert [found.status for found in ckpt.steps()] == ["committed", "damaged", "committed"]
        flip(tmp_path / "step-0000000001" / "shard-00000.safetensors", 70)
        with pytest.raises(stoker.CorruptError):
            ckpt.restore(target)


def test_nan_and_inf(tmp_path):
    """They are counted when they are written: the handle, the step and the command show them."""
    ckpt = stoker.Checkpointer(tmp_path)
    bad = torch.ones(5000, dtype=torch.bfloat16)
    bad[7], bad[4999], bad[11] = float("nan"), float("nan"), float("-inf")
    handle = ckpt.save(1, {"bad": bad, "good": torch.ones(3), "n": torch.tensor([1])}, wait=True)
    assert (handle.nan, handle.inf) == (2, 1)
    handle = ckpt.save(2, {"good": torch.ones(3)}, wait=True)
    assert (handle.nan, handle.inf) == (0, 0)
    assert [(step.nan, step.inf) for step in ckpt.steps()] == [(2, 1), (0, 0)]
    ckpt.close()
    command = os.environ.get("STOKER_COMMAND", "stoker")
    shown = subprocess.run([command, "ckpt", "ls", tmp_path], capture_output=True, text=True)
    assert "2 NaN, 1 Inf" in shown.stdout.splitlines()[0]
    assert "NaN" not in shown.stdout.splitlines()[1]
    shown = subprocess.run([command, "ckpt", "inspect", "--step", "1", "--json", tmp_path],
                           capture_output=True, text=True)
    found = {row["name"]: (row["nan"], row["inf"])
             for row in map(json.loads, shown.stdout.splitlines())}
    assert found == {"bad": (2, 1), "good": (0, 0), "n": (0, 0)}


def test_retention_and_pins(tmp_path):
    with stoker.Checkpointer(
        tmp_path, keep_last=2, keep_every=4, keep_best=("loss", 1)
    ) as ckpt:
        for step in range(1, 10):
            ckpt.save(step, {"a": step}, metrics={"loss": torch.tensor(abs(step - 3.0))}, wait=True)
            if step == 1:
                ckpt.pin(1)
        assert [found.step for found in ckpt.steps()] == [1, 3, 4, 8, 9]
        assert ckpt.steps()[1].metrics == {"loss": 0}
        with pytest.raises(OSError):
            ckpt.remove(1)
        ckpt.unpin(1)
        ckpt.remove(1)
        assert ckpt.latest() == 9
        with pytest.raises(stoker.ArgumentError, match="metrics"):
            ckpt.save(10, {"a": 1}, metrics={"loss": object()})


def test_background_errors(tmp_path):
    ckpt = stoker.Checkpointer(tmp_path)
    ckpt.save(1, {"a": 1}, wait=True)
    handle = ckpt.save(1, {"a": 2})
    while not handle.done:
        time.sleep(0.01)
    with pytest.raises(FileExistsError, match="step-0000000001"):
        ckpt.save(2, {"a": 3})
    ckpt.save(2, {"a": 3})  # the error is raised once
    handle = ckpt.save(2, {"a": 4})
    with pytest.raises(FileExistsError):
        handle.wait()
    assert isinstance(handle.error, FileExistsError)
    ckpt.close()
    with pytest.raises(stoker.ArgumentError, match="closed"):
        ckpt.save(3, {})
    blocked = tmp_path / "file"
    blocked.write_text("x")
    with pytest.raises(OSError, match="file"), stoker.Checkpointer(blocked / "run") as other:
        other.save(1, {"a": 1})


def test_small_memory_and_busy(tmp_path):
    """A state of five times the memory, at a limited rate; other saves skip or end it."""
    state = {"a": torch.arange(80 << 20, dtype=torch.uint8).reshape(80, -1) % 251}
    state["a"] = state["a"].repeat(1, 4)  # 320 MiB
    with stoker.Checkpointer(tmp_path, memory="64MiB", on_busy="skip") as ckpt:
        handle = ckpt.save(1, state)
        state["a"][3].zero_()
        handle.wait()
        assert handle.progress[0] == handle.progress[1] > 320 << 20
        state["a"][3] = ckpt.load()["a"][3]
        same(state, ckpt.load())
    small = {"a": torch.zeros(30 << 20, dtype=torch.uint8)}
    with stoker.Checkpointer(tmp_path, on_busy="skip", bandwidth="30MiB") as ckpt:
        ckpt.save(2, small)
        assert ckpt.save(3, small).skipped
    with stoker.Checkpointer(tmp_path, on_busy="supersede", bandwidth="30MiB") as ckpt:
        ckpt.save(4, small)
        ckpt.save(5, small)
    assert [found.step for found in ckpt.steps()] == [1, 2, 5]
    assert [name for name in os.listdir(tmp_path) if name.startswith(".")] == []


def test_full_disk(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small file system")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "none", disk], check=True)
    try:
        with stoker.Checkpointer(disk / "run") as ckpt:
            ckpt.save(1, {"a": torch.zeros(1 << 20)}, wait=True)
            with pytest.raises(OSError, match="No space left"):
                ckpt.save(2, {"a": torch.zeros(2 << 20)}, wait=True)
            assert os.listdir(disk / "run") == ["step-0000000001"]
            assert ckpt.latest() == 1
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


KILLED = """
import sys, numpy, stoker
ckpt = stoker.Checkpointer(sys.argv[1], keep_last=3)
step = ckpt.latest() or 0
print("ready", flush=True)
while True:
    step += 1
    ckpt.save(step, {"step": step, "a": numpy.full(400_000, step, "f4")})
"""


def test_kill(tmp_path):
    """kill -9 at random times: the newest step always loads, and its contents are its own."""
    newest = 0
    random = __import__("random").Random(1)
    for _ in range(12):
        child = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE
        )
        child.stdout.readline()
        time.sleep(random.random() * 0.2)
        child.send_signal(signal.SIGKILL)
        child.wait()
        ckpt = stoker.Checkpointer(tmp_path)
        state = {"step": 0, "a": numpy.zeros(400_000, "f4")}
        found = ckpt.restore(state)
        if found is not None:
            assert found >= newest and state["step"] == found
            assert bool((state["a"] == found).all())
            newest = found
        assert all(step.status == "committed" for step in ckpt.steps())
        ckpt.gc()
        left = [name for name in os.listdir(tmp_path) if name.startswith(".")]
        # A kill before the lock file names its process leaves it for a day.
        assert all(name.endswith(".lock") and not (tmp_path / name).stat().st_size for name in left)
        ckpt.close()
    assert newest > 0


def test_exit_completes_the_save(tmp_path):
    code = (
        "import sys, numpy, stoker\n"
        "ckpt = stoker.Checkpointer(sys.argv[1], bandwidth='200MiB')\n"
        "ckpt.save(7, {'a': numpy.ones(30 << 20, 'u1')})\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=60)
    assert stoker.load(tmp_path)["a"].sum() == 30 << 20


def test_exit_completes_the_save_of_a_dropped_checkpointer(tmp_path):
    code = (
        "import sys, numpy, stoker\n"
        "def save():\n"
        "    ckpt = stoker.Checkpointer(sys.argv[1], bandwidth='20MiB')\n"
        "    ckpt.save(7, {'a': numpy.ones(30 << 20, 'u1')})\n"
        "save()\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=60)
    assert stoker.load(tmp_path)["a"].sum() == 30 << 20


def test_exit_warns_of_a_failed_save(tmp_path):
    code = (
        "import os, sys, numpy, stoker\n"
        "def save():\n"
        "    ckpt = stoker.Checkpointer(sys.argv[1])\n"
        "    ckpt.save(7, {'a': numpy.ones(3)}, wait=True)\n"
        "    for _ in range(100):\n"
        "        try:\n"
        "            ckpt.save(7, {'a': numpy.ones(3)})\n"  # fails at its commit: the step exists
        "            break\n"
        "        except stoker.Error: pass\n"  # it failed before save() returned
        "save()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "file")],
        check=False,
        timeout=60,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, (done.returncode, done.stderr)
    assert "the save of step 7 failed" in done.stderr and "file" in done.stderr


def test_threads(tmp_path):
    """Saves from several threads, with the main thread in Python code meanwhile."""
    with stoker.Checkpointer(tmp_path) as ckpt:
        threads = [
            threading.Thread(target=ckpt.save, args=(i, {"a": torch.full((9,), i)}))
            for i in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [found.step for found in ckpt.steps()] == list(range(8))
    assert json.loads((tmp_path / "step-0000000003" / "stoker.checkpoint.json").read_text())[
        "step"
    ] == 3


def test_jax(tmp_path):
    jax = pytest.importorskip("jax")
    state = {"w": jax.numpy.arange(6.0).reshape(2, 3), "b": jax.numpy.ones(2, "bfloat16")}
    stoker.save(state, tmp_path / "x.safetensors")
    loaded = stoker.load(tmp_path / "x.safetensors")
    assert isinstance(loaded["w"], jax.Array) and loaded["b"].dtype == state["b"].dtype
    assert (loaded["w"] == state["w"]).all()


def test_metrics_that_are_not_finite(tmp_path):
    """A loss of NaN does not end the training; keep_best passes over it."""
    with stoker.Checkpointer(tmp_path, keep_best=("loss", 1), keep_last=1) as ckpt:
        for step, loss in enumerate((2.0, float("nan"), 1.0, float("-inf"), float("inf"), 3.0)):
            ckpt.save(step, {"a": 1}, metrics={"loss": loss}, wait=True)
            metrics = {found.step: found.metrics["loss"] for found in ckpt.steps()}
            assert repr(metrics[step]) == repr(loss)
        assert sorted(metrics) == [2, 5]
        ckpt.save(6, {"a": 1}, metrics={"loss": float("nan")}, wait=True)
        assert ckpt.restore({"a": 0}, check=lambda: {"loss": float("nan")}) == 6
        with pytest.raises(stoker.StateError, match="nan"):
            ckpt.restore({"a": 0}, check=lambda: {"loss": 1.0})
        for wrong in ([1], "loss", {"loss": numpy.ones(2)}):
            with pytest.raises(stoker.ArgumentError, match="metrics"):
                ckpt.save(7, {"a": 1}, metrics=wrong)


def test_a_step_below_the_newest(tmp_path):
    """A run that goes on at an earlier step hears that a restore takes the other one."""
    with stoker.Checkpointer(tmp_path, keep_last=2) as ckpt:
        for step in (10, 20):
            ckpt.save(step, {"a": step}, wait=True)
    with stoker.Checkpointer(tmp_path, keep_last=2) as ckpt:
        assert ckpt.restore({"a": 0}, 10) == 10
        with pytest.warns(stoker.StokerWarning, match="step 11 was saved while .* has step 20"):
            ckpt.save(11, {"a": 11}, wait=True)
    with stoker.Checkpointer(tmp_path, keep_last=2) as ckpt:
        ckpt.remove(20)
        ckpt.save(12, {"a": 12}, wait=True)
        assert ckpt.latest() == 12
        os.makedirs(tmp_path / "step-0000000030")  # no step that a restore takes
        assert [found.status for found in ckpt.steps()][-1] == "incomplete"
    with stoker.Checkpointer(tmp_path, keep_last=2) as ckpt:
        with warnings.catch_warnings():
            warnings.simplefilter("error", stoker.StokerWarning)
            ckpt.save(13, {"a": 13}, wait=True)
        for number in (numpy.int64(13), numpy.uint8(13)):
            assert ckpt.restore({"a": 0}, number) == 13
            assert ckpt.load(number) == {"a": 13}
            assert ckpt.verify(number) == 13
            ckpt.pin(number)
            assert [found.pinned for found in ckpt.steps()][-2]
            ckpt.unpin(number)
        ckpt.remove(numpy.int64(12))
        assert [found.step for found in ckpt.steps()] == [13, 30]
        for wrong in (None, -1, 2**53, 1.5, "3", True):
            with pytest.raises(stoker.ArgumentError, match="step"):
                ckpt.save(wrong, {"a": 1})
        with pytest.raises(stoker.ArgumentError, match="list"):
            ckpt.restore([1])


def test_unusual_values(tmp_path):
    path = tmp_path / "x.safetensors"
    big = 7**9000
    stoker.save({"version": numpy.str_("2.1"), "big": big, "a\0b": numpy.ones(1)}, path)
    found = stoker.load(path)
    assert found["version"] == "2.1" and type(found["version"]) is str
    assert found["big"] == big and found["a\0b"][0] == 1
    for value, word in (({"\ud800": 1}, "Unicode"), ({"a": {"\ud800": numpy.ones(1)}}, "Unicode")):
        with pytest.raises(stoker.ArgumentError, match=word):
            stoker.save(value, path)


def test_tensors_of_torch_that_are_refused(tmp_path):
    """Each error has the path in the tree, and says what can be saved instead."""
    torch = pytest.importorskip("torch")
    for value, advice in (
        (torch.eye(3).to_sparse(), "values and indices"),
        (torch.zeros(2, dtype=torch.complex128), "view_as_real"),
        (torch.empty(2, dtype=torch.float4_e2m1fn_x2), "uint8"),
        (torch.zeros(2, device="meta"), "no data"),
        (torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8), "int_repr"),
        (torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "unbind"),
    ):
        with pytest.raises(stoker.ArgumentError, match=rf"(?s)a\.b.*{advice}"):
            stoker.save({"a": {"b": value}}, tmp_path / "x.safetensors")
    stoker.save({"version": torch.__version__}, tmp_path / "x.safetensors")
    assert stoker.load(tmp_path / "x.safetensors")["version"] == str(torch.__version__)


FORKED = """
import os, sys, numpy, stoker
ckpt = stoker.Checkpointer(sys.argv[1], bandwidth="20MiB")
handle = ckpt.save(1, {"a": numpy.ones(10_000_000, "f4")})
child = os.fork()
if child == 0:
    for call in (lambda: ckpt.save(2, {"a": 1}), ckpt.wait, lambda: ckpt.restore({"a": 0}),
                 lambda: handle.wait(60)):
        try:
            call()
            os._exit(1)
        except stoker.ForkedError:
            pass
    ckpt.close()
    with stoker.Checkpointer(sys.argv[1] + "-child") as own:
        own.save(1, {"a": 1})
    sys.exit(0 if own.latest() == 1 else 2)
assert os.waitpid(child, 0)[1] == 0
ckpt.close()
assert ckpt.latest() == 1
"""


def test_fork_during_a_save(tmp_path):
    """The child gets errors instead of waits for threads that it does not have; the step of the
    parent is committed."""
    command = [sys.executable, "-c", FORKED, str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
