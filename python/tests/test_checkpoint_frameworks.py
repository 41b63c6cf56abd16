"""Checkpoints of Accelerate, Lightning and Hugging Face's Trainer: the examples, killed in the
middle of a training and started again, train the same steps with the same losses.

./check tests Accelerate; ./check --long installs the others.
"""

import importlib.util
import os
import pathlib
import pickle
import re
import signal
import subprocess
import sys

import pytest
import stoker

torch = pytest.importorskip("torch")

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
STEP = re.compile(r"step (\d+) loss (\S+)")

# Runs an example, and kills it when it prints the line of a step.
RUN = """
import os, runpy, signal, sys

class Output:
    def __init__(self, output, line):
        self.output, self.line = output, line

    def write(self, text):
        count = self.output.write(text)
        if text.startswith(self.line):
            self.output.write("\\n")
            self.output.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        return count

    def __getattr__(self, name):
        return getattr(self.output, name)

stop = int(sys.argv.pop(1))
del sys.argv[0]
sys.stdout = Output(sys.stdout, f"step {stop} ")
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def needs(name):
    missing = importlib.util.find_spec(name) is None
    reason = f"{name} is not installed (./check --long does it)"
    return pytest.mark.skipif(missing, reason=reason)


def train(script, data, folder, ranks=1, until=None):
    """The losses by step; killed after a step, as by a failing machine."""
    command = [sys.executable]
    if ranks > 1:
        command += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    wrapper = folder.with_name(folder.name + ".run.py")
    wrapper.write_text(RUN)
    run = subprocess.Popen(
        [*command, wrapper, str(until or 0), EXAMPLES / script, str(data), str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )
    found, text = {}, []
    try:
        for line in run.stdout:
            text.append(line)
            match = STEP.search(line)
            if match:
                found[int(match[1])] = match[2]
                if int(match[1]) == until:
                    os.killpg(run.pid, signal.SIGKILL)
        status = run.wait(120)
    finally:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
            run.wait()
    assert status == 0 or until is not None, "".join(text)
    return found


def check_resumed(script, data, tmp_path, steps, kills=(5,), ranks=1):
    """An uninterrupted run, and one that is killed and continued."""
    want = train(script, data, tmp_path / "plain", ranks)
    assert list(want) == list(range(1, steps + 1))
    found = {}
    for until in (*kills, None):
        part = train(script, data, tmp_path / "killed", ranks, until)
        assert min(part) > 1 or not found  # it continued
        found.update(part)
    assert found == want


@needs("accelerate")
def test_accelerate(tmp_path, tars):
    check_resumed("accelerate_checkpoints.py", tars, tmp_path, 16)
    assert stoker.load(tmp_path / "killed")["optimizer"][0]["state"]


@needs("accelerate")
def test_accelerate_two_ranks_then_one(tmp_path, tars):
    """The steps of two ranks are continued by one."""
    train("accelerate_checkpoints.py", tars, tmp_path / "run", 2, until=6)
    rest = train("accelerate_checkpoints.py", tars, tmp_path / "run")
    assert 2 <= min(rest) <= 7 and max(rest) == 16


@needs("accelerate")
def test_accelerate_refuses_what_it_does_not_know(monkeypatch):
    import stoker.accelerate
    from accelerate import Accelerator, DistributedType

    with pytest.raises(stoker.ArgumentError, match="Accelerator"):
        stoker.accelerate.state_of(torch.nn.Linear(1, 1))
    accelerator = Accelerator(cpu=True)
    monkeypatch.setattr(accelerator, "_models", [])
    with pytest.raises(stoker.ArgumentError, match="prepare"):
        stoker.accelerate.state_of(accelerator)
    for kind in (DistributedType.DEEPSPEED, DistributedType.FSDP):
        monkeypatch.setattr(type(accelerator), "distributed_type", kind)
        with pytest.raises(stoker.UnsupportedError, match="FSDP 1|DEEPSPEED"):
            stoker.accelerate.state_of(accelerator)


@pytest.mark.parametrize(
    "package, code",
    [
        ("accelerate", "import stoker.accelerate; stoker.accelerate.state_of(None)"),
        ("lightning", "import stoker.lightning; stoker.lightning.CheckpointIO()"),
        ("transformers", "import stoker.huggingface"),
    ],
)
def test_a_missing_framework_is_named(package, code):
    """import of stoker's module needs no framework where that is possible."""
    program = f"import sys; sys.modules[{package!r}] = None\n{code}"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 1
    last = run.stderr.strip().splitlines()[-2:]
    assert "UnsupportedError" in last[0] and f"pip install {package}" in last[1], run.stderr


@needs("lightning")
def test_lightning(tmp_path, tars):
    check_resumed("lightning_checkpoints.py", tars, tmp_path, 16, kills=(5, 12))
    found = stoker.load(tmp_path / "killed" / "last.ckpt")
    assert found["global_step"] == 16 and found["hyper_parameters"] == {"classes": 10}


@needs("lightning")
def test_lightning_plugin(tmp_path):
    """Saves and removals in their order, errors of the background, devices, pickles of torch."""
    import lightning
    from lightning.pytorch.plugins import AsyncCheckpointIO
    from stoker.lightning import CheckpointIO

    plugin = pickle.loads(pickle.dumps(CheckpointIO(memory="64MiB")))
    assert isinstance(plugin, lightning.fabric.plugins.CheckpointIO)
    weights = torch.rand(20_000_000)
    wanted = weights.clone()
    for number in range(3):
        plugin.save_checkpoint({"w": weights, "step": number}, tmp_path / f"{number}.ckpt")
        weights.add_(1)  # the snapshot does not change
        if number:
            plugin.remove_checkpoint(tmp_path / f"{number - 1}.ckpt")
    found = plugin.load_checkpoint(tmp_path / "2.ckpt", map_location="cpu")
    assert found["step"] == 2 and torch.equal(found["w"], wanted + 1 + 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2.ckpt"]
    for location in (torch.device("cpu"), {"cpu": "meta"}, lambda storage, place: storage):
        moved = plugin.load_checkpoint(tmp_path / "2.ckpt", map_location=location)["w"]
        assert moved.device.type == ("meta" if isinstance(location, dict) else "cpu")
    with pytest.raises(stoker.ArgumentError, match=r"hyper_parameters\.where"):
        plugin.save_checkpoint({"hyper_parameters": {"where": tmp_path}}, tmp_path / "3.ckpt")
    with pytest.raises(FileNotFoundError):
        plugin.load_checkpoint(tmp_path / "absent.ckpt")
    torch.save({"w": wanted}, tmp_path / "torch.ckpt")
    assert torch.equal(plugin.load_checkpoint(tmp_path / "torch.ckpt")["w"], wanted)
    plugin.teardown()
    wrapped = AsyncCheckpointIO(CheckpointIO(wait=True))
    wrapped.save_checkpoint({"w": wanted}, tmp_path / "last.ckpt")
    wrapped.teardown()
    assert torch.equal(stoker.load(tmp_path / "last.ckpt")["w"], wanted)


@needs("lightning")
def test_lightning_plugin_reports_a_failed_save(tmp_path):
    """The next call raises it, and the file that the failed one should replace stays."""
    from stoker.lightning import CheckpointIO

    plugin = CheckpointIO()
    plugin.save_checkpoint({"w": torch.ones(4)}, tmp_path / "a.ckpt")
    plugin._complete()
    (tmp_path / "b.ckpt").mkdir()
    (tmp_path / "b.ckpt" / "in the way").touch()
    plugin.save_checkpoint({"w": torch.ones(4)}, tmp_path / "b.ckpt")
    plugin.remove_checkpoint(tmp_path / "a.ckpt")
    with pytest.raises(OSError, match=r"b\.ckpt"):
        plugin.save_checkpoint({"w": torch.ones(4)}, tmp_path / "c.ckpt")
    assert (tmp_path / "a.ckpt").exists() and not (tmp_path / "c.ckpt").exists()
    plugin.teardown()


@needs("transformers")
@needs("accelerate")
def test_trainer(tmp_path, tars):
    check_resumed("hf_trainer_checkpoints.py", tars, tmp_path, 36, kills=(5, 25))


@needs("transformers")
@needs("accelerate")
def test_trainer_of_two_ranks(tmp_path, tars):
    check_resumed("hf_trainer_checkpoints.py", tars, tmp_path, 18, ranks=2)


@needs("transformers")
@needs("accelerate")
def test_trainer_with_a_loader(tmp_path, tars):
    """get_train_dataloader() returns a stoker.Loader: its state is part of the steps. A resume that
    is not passed to train() is refused."""
    import transformers
    from stoker.huggingface import SaveSteps

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def forward(self, id):
            seen.append(id.tolist())
            return {"loss": self.layer(id.float()[:, None] / 100).square().mean()}

    class Trainer(transformers.Trainer):
        def get_train_dataloader(self):
            return stoker.Loader(tars, 10, fields={"id": "__id__"}, seed=3)

    class Stop(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            if state.global_step == 13:
                control.should_training_stop = True

    def make(ckpt, *callbacks, **options):
        transformers.set_seed(0)
        arguments = transformers.TrainingArguments(
            str(tmp_path / "output"), num_train_epochs=2, per_device_train_batch_size=10,
            use_cpu=True, report_to=[], disable_tqdm=True, logging_steps=1, **options,
        )
        saver = SaveSteps(ckpt, every=options.get("save_strategy") == "no" and 4 or None)
        return saver, Trainer(Model(), arguments, callbacks=[saver, *callbacks])

    seen = []
    with stoker.Checkpointer(tmp_path / "a") as ckpt:
        saver, trainer = make(ckpt, save_strategy="no")
        assert saver.resume(trainer) is None
        trainer.train()
        want, weights = list(seen), trainer.model.layer.weight.item()
        assert [found.step for found in ckpt.steps()] == [4, 8, 12, 16, 20]
        assert ckpt.steps()[-1].metrics["loss"] > 0
    seen.clear()
    with stoker.Checkpointer(tmp_path / "b") as ckpt:
        make(ckpt, Stop(), save_strategy="no")[1].train()
    with stoker.Checkpointer(tmp_path / "b") as ckpt:
        saver, trainer = make(ckpt, save_strategy="no")
        trainer.train(resume_from_checkpoint=saver.resume(trainer))
        assert trainer.state.global_step == 20
        saver.resume(trainer)
        with pytest.raises(stoker.ArgumentError, match="resume_from_checkpoint"):
            trainer.train()
    assert seen == want and trainer.model.layer.weight.item() == weights
    with stoker.Checkpointer(tmp_path / "c") as ckpt:  # when the Trainer saves
        make(ckpt, save_steps=7)[1].train()
        assert [found.step for found in ckpt.steps()] == [7, 14, 20]
