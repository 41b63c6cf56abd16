"""Lightning, Accelerate, Hugging Face's Trainer and Ray Train, unchanged, with a stoker.Loader:
processes killed and resized in the middle of an epoch. The oracle is a loader of one rank that is
read from end to end. The tests run the examples.

./check installs Accelerate; ./check --long installs the others, which are large.
"""

import importlib.util
import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import processes
import pytest
import stoker
from processes import Job, check_lines, kill_and_resize, lines, wait_for

torch = pytest.importorskip("torch")

import stoker.torch  # noqa: E402

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
IDS = {"id": "__id__"}


LONG = pytest.mark.skipif(not os.environ.get("STOKER_TEST_LONG"), reason="for ./check --long")
SHORT = (("shard", "fork"), ("dispatch", "none"))


def needs(name):
    missing = importlib.util.find_spec(name) is None
    reason = f"{name} is not installed (./check --long does it)"
    return pytest.mark.skipif(missing, reason=reason)


def checkpoints(folder):
    (folder / "checkpoints").mkdir()
    return folder / "checkpoints"


def world(number):
    return number


@needs("accelerate")
def test_accelerate(tmp_path, tars, want):
    kill_and_resize(tmp_path, want, EXAMPLES / "accelerate_loop.py", tars, checkpoints(tmp_path))


@needs("accelerate")
def test_accelerate_leaves_the_loader_alone(plain, monkeypatch):
    """Though its own method to resume, which takes a DataLoader to pieces, is refused."""
    from accelerate import Accelerator, skip_first_batches

    loader = stoker.Loader(plain(64), 4, fields=IDS, rank=1, world_size=2)
    accelerator = Accelerator(cpu=True)
    assert accelerator.prepare(loader) is loader
    with pytest.raises(stoker.StateError, match="load_state_dict"):
        list(skip_first_batches(loader, 3))
    assert len(list(loader)) == 8


LAUNCHED = """
import copy, sys
import stoker
from accelerate import Accelerator, debug_launcher

def train(loader):
    accelerator = Accelerator(cpu=True)
    loader = accelerator.prepare(loader)
    for step, batch in enumerate(loader, 1):
        rank, world = accelerator.process_index, accelerator.num_processes
        print(f"step {step} rank {rank} of {world}: samples {batch['id'].tolist()}", flush=True)

if __name__ == "__main__":
    loader = stoker.Loader(sys.argv[1], 4, seed=1, fields={"id": "__id__"})
    next(iter(loader))  # it has threads, and a fork has none of them
    loader.set_epoch(0)
    debug_launcher(train, (copy.deepcopy(loader),), num_processes=2)
"""


@needs("accelerate")
def test_accelerate_launches_with_a_loader(plain, tmp_path):
    """With fork, as in a notebook: each rank opens the loader that it gets, with its share."""
    with stoker.Loader(plain(64), 8, fields=IDS, seed=1, rank=0, world_size=1) as loader:
        want = [batch["id"].tolist() for batch in loader]
    (tmp_path / "script.py").write_text(LAUNCHED)
    launched = run(tmp_path / "output", [tmp_path / "script.py", plain(64)])
    text = (tmp_path / "output").read_text
    assert launched.wait(120) == 0, text()
    check_lines(text(), want)
    assert {(rank, of) for _, rank, of, _ in lines(text())} == {(0, 2), (1, 2)}


@needs("ray")
def test_ray_pickles_a_loader(plain):
    """With its own pickle, and in a function that closes over it."""
    from ray import cloudpickle

    loader = stoker.Loader(plain(64), 8, fields=IDS, seed=1)
    want = [batch["id"].tolist() for batch in loader]
    loader.set_epoch(0)
    again = cloudpickle.loads(cloudpickle.dumps(lambda: [it["id"].tolist() for it in loader]))
    assert again() == want


@needs("lightning")
def test_lightning(tmp_path, tars, want):
    kill_and_resize(
        tmp_path, want, EXAMPLES / "lightning_fit.py", tars, checkpoints(tmp_path), world
    )


def run(output, words, **variables):
    """A program on its own, as a user starts it."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        environment.pop(name, None)
    with open(output, "w") as file:
        process = subprocess.Popen(
            [sys.executable, *map(str, words)],
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
        )
    process.is_alive = lambda: process.poll() is None
    return process


@needs("lightning")
def test_lightning_starts_the_ranks(tmp_path, tars, want):
    """After the loader was made, and without RANK in the environment of the first: both ranks
    have their own share."""
    output = tmp_path / "output"
    fit = run(output, [EXAMPLES / "lightning_fit.py", tars, checkpoints(tmp_path), 2])
    assert fit.wait(120) == 0, output.read_text()
    text = output.read_text()
    check_lines(text, want)
    assert {(rank, of) for _, rank, of, _ in lines(text)} == {(0, 2), (1, 2)}


@needs("lightning")
@pytest.mark.filterwarnings("ignore")
def test_lightning_leaves_an_epoch_and_goes_on_behind_one(plain, tmp_path):
    """Epochs that are cut short are different ones; and of a checkpoint that stands at the end of
    an epoch the next one follows."""
    import lightning
    from lightning.pytorch.callbacks import ModelCheckpoint

    seen = []

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def training_step(self, batch, index):
            seen.append(batch["id"].tolist())
            return self.layer(batch["id"].float()[:, None]).mean() * 0

        def validation_step(self, batch, index):
            seen.append(batch["id"].tolist())

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.01)

    def make(**options):
        return stoker.Loader(plain(32), 8, fields=IDS, **options)

    def fit(epochs, resume=None, check=None, **options):
        seen.clear()
        trainer = lightning.Trainer(
            max_epochs=epochs,
            accelerator="cpu",
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            callbacks=[ModelCheckpoint(tmp_path, every_n_train_steps=1, save_last=True)],
            **options,
        )
        trainer.fit(Model(), make(), check, ckpt_path=resume)
        return list(seen)

    loader = make()
    whole = [[batch["id"].tolist() for batch in loader] for _ in range(3)]
    assert fit(3, limit_train_batches=3) == [*whole[0][:3], *whole[1][:3], *whole[2][:3]]
    (tmp_path / "last.ckpt").unlink()
    assert fit(2) == [*whole[0], *whole[1]]
    assert fit(3, resume=tmp_path / "last.ckpt") == whole[2]
    order = [list(range(8 * i, 8 * i + 8)) for i in range(4)]
    check = make(shuffle="none", tail="keep")
    assert fit(2, check=check) == [*whole[0], *order, *whole[1], *order]


@needs("transformers")
@needs("accelerate")
def test_trainer(tmp_path, tars, want):
    kill_and_resize(tmp_path, want, EXAMPLES / "hf_trainer.py", tars, checkpoints(tmp_path))


@needs("transformers")
@needs("accelerate")
@pytest.mark.parametrize("workers", [0, 2])
def test_trainer_with_a_data_set(tmp_path, tars, want, workers):
    """The Trainer without changes: no class of our own, no callback that saves a state."""
    script = EXAMPLES / "hf_trainer_dataset.py"
    kill_and_resize(tmp_path, want, script, tars, checkpoints(tmp_path), workers)


SHARED_OUT = """
import json, os, sys
import stoker.torch, torch
from accelerate import Accelerator, skip_first_batches
from accelerate.utils import DataLoaderConfiguration

def ids(batches):
    return [batch["id"].tolist() for batch in batches]

def loader(accelerator, path, context, **options):
    dataset = stoker.torch.IterableDataset(path, 4, seed=1, fields={"id": "__id__"}, **options)
    workers = 0 if context == "none" else 2
    return torch.utils.data.DataLoader(
        dataset, 4, num_workers=workers, multiprocessing_context=context if workers else None
    )

def main(path, way, context):
    accelerator = Accelerator(
        cpu=True, dataloader_config=DataLoaderConfiguration(dispatch_batches=way == "dispatch")
    )
    rank = accelerator.process_index
    batches = accelerator.prepare(loader(accelerator, path, context))
    got = [rank, len(batches), ids(skip_first_batches(batches, 3))]
    batches.set_epoch(1)
    got.append(ids(batches))
    try:
        ids(accelerator.prepare(loader(accelerator, path, "none", rank=rank, world_size=2)))
    except stoker.ArgumentError as error:
        got.append("again" in str(error))
    got.append(ids(loader(accelerator, path, context)))  # not prepared: not shared out
    print("got", json.dumps(got), flush=True)

if __name__ == "__main__":
    main(*sys.argv[1:])
"""


@needs("accelerate")
@pytest.mark.parametrize(
    "way, context",
    [
        pytest.param(way, context, marks=() if (way, context) in SHORT else LONG)
        for way in ("shard", "dispatch")
        for context in ("none", "fork", "forkserver")
    ],
)
def test_accelerate_shares_out_an_iterable_data_set(plain, tmp_path, way, context):
    """prepare() would divide each rank's share again; the data set returns all of it. A resumed
    epoch begins after the returned batches, and explicit ranks are refused."""
    (tmp_path / "script.py").write_text(SHARED_OUT)
    with stoker.Loader(plain(64), 8, fields=IDS, seed=1, rank=0, world_size=1) as loader:
        want = [[batch["id"].tolist() for batch in loader] for _ in range(2)]
    with Job(tmp_path, 2, tmp_path / "script.py", plain(64), way, context) as job:
        job.wait()
    for rank, output in enumerate(job.outputs):
        line = next(it for it in output.read_text().splitlines() if it.startswith("got "))
        half = [[batch[4 * rank : 4 * rank + 4] for batch in epoch] for epoch in want]
        assert json.loads(line[4:]) == [rank, 8, half[0][3:], half[1], True, half[0]]


@needs("accelerate")
def test_accelerate_with_a_map_data_set(plain, tmp_path):
    """In this process: it is prepared like any other, skips nothing for no reason, and continues
    exactly."""
    from accelerate import Accelerator, skip_first_batches

    dataset = stoker.torch.MapDataset(plain(64), seed=1, fields=IDS)
    with stoker.Loader(plain(64), 8, fields=IDS, seed=1) as loader:
        want = [[batch["id"].tolist() for batch in loader] for _ in range(2)]
    batches = Accelerator(cpu=True).prepare(torch.utils.data.DataLoader(dataset, 8, num_workers=2))
    for epoch in range(2):
        batches.set_epoch(epoch)
        assert [batch["id"].tolist() for batch in batches] == want[epoch]
    part = skip_first_batches(batches, 5)
    part.set_epoch(1)
    assert [batch["id"].tolist() for batch in part] == want[1][5:]


@needs("transformers")
@needs("accelerate")
def test_trainer_without_its_state(plain, tmp_path):
    """A checkpoint without the loader's state, and batches of others, are refused in words."""
    import transformers
    from stoker.huggingface import KeepState

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def forward(self, id):
            return {"loss": self.layer(id.float()[:, None]).mean() * 0}

    class Trainer(transformers.Trainer):
        def get_train_dataloader(self):
            return batches

    def make(callbacks, **options):
        arguments = transformers.TrainingArguments(
            str(tmp_path), use_cpu=True, save_steps=3, report_to=[], disable_tqdm=True, **options
        )
        return Trainer(Model(), arguments, callbacks=callbacks)

    batches = stoker.Loader(plain(32), 8, fields=IDS)
    make([], num_train_epochs=1, ignore_data_skip=True).train()
    with pytest.raises(stoker.ArgumentError, match="no state of the loader"):
        make([KeepState()], num_train_epochs=2).train(resume_from_checkpoint=True)
    with pytest.raises(stoker.StateError, match="KeepState"):
        make([], num_train_epochs=2).train(resume_from_checkpoint=f"{tmp_path}/checkpoint-3")
    batches = [{"id": torch.tensor([1])}]
    with pytest.raises(stoker.ArgumentError, match="list"):
        make([KeepState()], num_train_epochs=1).train()


RAY = """
import os, pathlib, sys
import processes
import ray.train.torch
import ray_train
import stoker

def ids(batches):
    return [batch["id"].tolist() for batch in batches]

def stopping(config):
    # Ray's own way to prepare a DataLoader puts a sampler where there is none.
    loader = stoker.Loader(config["path"], 4, fields={"id": "__id__"})
    want = ids(loader)
    loader.set_epoch(0)
    assert ids(ray.train.torch.prepare_data_loader(loader)) == want
    # Each time that workers are started the last one takes the next of the steps to stop at.
    context = ray.train.get_context()
    last = context.get_world_size() - 1
    if context.get_world_rank() == last:
        stops = sorted(pathlib.Path(os.environ["STOPS"]).iterdir())
        if stops:
            stops[0].unlink()
            begin = f"step {int(stops[0].name)} rank {last} of "
            sys.stdout = processes.Output(sys.stdout, begin)
    ray_train.train(config)

ray_train.main(stopping)
"""


@needs("ray")
def test_ray_train(tmp_path, tars, want):
    """A worker is killed, and Ray starts both again; then the driver is killed, and all others end
    with it; a run of the same name continues with 3 workers, is killed, and continues with 1.
    prepare_data_loader() does not divide the shares again."""
    (tmp_path / "stops").mkdir()
    (tmp_path / "drive.py").write_text(RAY)
    paths = [EXAMPLES, pathlib.Path(processes.__file__).parent, os.environ.get("PYTHONPATH", "")]
    variables = {
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "STOPS": str(tmp_path / "stops"),
        "RAY_DEDUP_LOGS": "0",
        "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.1",
    }
    text, kept = "", checkpoints(tmp_path)
    for workers, stops in ((2, (5, 9)), (3, (12,)), (1, ())):
        for step in stops:
            (tmp_path / "stops" / f"{step:02}").touch()
        path = tmp_path / f"output{workers}"
        driver = run(path, [tmp_path / "drive.py", tars, kept, workers], **variables)
        output = path.read_text
        try:
            for number, step in enumerate(stops):
                line = re.compile(rf"pid=(\d+)\)\S* step {step} rank {workers - 1} of {workers}")
                wait_for(lambda line=line: line.search(output()), driver, output, 600)
                if number + 1 < len(stops):
                    os.kill(int(line.search(output())[1]), signal.SIGKILL)
            if not stops:
                assert driver.wait(600) == 0, output()
        finally:
            driver.kill()
            driver.wait()
        text += output()
    check_lines(text, want)
    worlds = {of: {step for step, _, world, _ in lines(text) if world == of} for of in (2, 3, 1)}
    assert min(worlds[3]) > 5 and max(worlds[3]) == 12 and min(worlds[1]) > 9, worlds
