"""Training by DistributedDataParallel and FSDP in real processes (gloo, on the CPU), which are
killed and resized in the middle of an epoch. The oracles are a loader of one rank that is read from
end to end, for the samples, and a run of one process, for the weights."""

import os
import pathlib
import signal
import subprocess
import sys

import processes
import pytest
import stoker
from processes import Job, check_lines, lines, wait_for

torch = pytest.importorskip("torch")
if not torch.distributed.is_available():
    pytest.skip("torch was built without torch.distributed", allow_module_level=True)

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
GLOBAL_BATCH, EPOCHS = 12, 2


@pytest.fixture(scope="module")
def want(tars):
    """The global batches of all steps."""
    batches = []
    with stoker.Loader(tars, GLOBAL_BATCH, fields={"id": "__id__"}, rank=0, world_size=1) as loader:
        for _ in range(EPOCHS):
            batches += [batch["id"].tolist() for batch in loader]
    assert len(batches) == 16 and batches[:8] != batches[8:]
    return batches


def weights_of(name, folder):
    """The model that a run ended with."""
    if name == "ddp.py":
        return torch.load(folder / "last.pt")["model"]
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    last = max(folder.glob("step-*"))
    dcp_to_torch_save(last, folder / "whole.pt")
    return torch.load(folder / "whole.pt", weights_only=False)["training"]["model"]


@pytest.mark.parametrize("name", ["ddp.py", "fsdp.py"])
def test_killed_and_resized(tmp_path, tars, want, name):
    """2 ranks, one killed in the middle of epoch 0; 3 ranks, one killed in epoch 1; 1 to the
    end. Whoever waits for the one that was killed is killed too."""
    script, text = EXAMPLES / name, ""
    alone, resized = tmp_path / "alone", tmp_path / "resized"
    alone.mkdir()
    resized.mkdir()
    with Job(tmp_path, 1, script, tars, alone) as job:
        job.wait()
    check_lines(job.text(), want)
    for world, stop_at in ((2, 4), (3, 11), (1, None)):
        with Job(tmp_path, world, script, tars, resized, stop_at=stop_at) as job:
            if stop_at is None:
                job.wait()
            else:
                job.kill_where_it_stopped()
        text += job.text()
    check_lines(text, want)
    steps = [{step for step, _, of, _ in lines(text) if of == world} for world in (2, 3, 1)]
    assert steps == [set(range(1, 5)), set(range(4, 12)), set(range(11, 17))]
    for one, other in zip(
        weights_of(name, alone).values(), weights_of(name, resized).values(), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def ranks_of(agent):
    """Rank -> process of the ranks that torchrun has started."""
    found = {}
    for child in pathlib.Path(f"/proc/{agent}/task/{agent}/children").read_text().split():
        for variable in pathlib.Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
            if variable.startswith(b"RANK="):
                found[int(variable[5:])] = int(child)
    return found


def test_torchrun_restarts_the_ranks(tmp_path, tars, want):
    """A rank is killed; torchrun starts all again by itself, and they go on from the state."""
    output = tmp_path / "output"
    words = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    words += ["--max-restarts", "1", "--standalone", str(pathlib.Path(processes.__file__))]
    words += [str(EXAMPLES / "ddp.py"), str(tars), str(tmp_path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", processes.STOP_AT: "5 1"}
    with open(output, "w") as file:
        agent = subprocess.Popen(
            words, stdout=file, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
    agent.is_alive = lambda: agent.poll() is None
    try:
        wait_for(lambda: "step 5 rank 1 of 2" in output.read_text(), agent, output.read_text)
        os.kill(ranks_of(agent.pid)[1], signal.SIGKILL)
        assert agent.wait(90) == 0, output.read_text()
    finally:
        if agent.poll() is None:
            os.killpg(agent.pid, signal.SIGKILL)
            agent.wait()
    text = output.read_text()
    check_lines(text, want)
    assert "exitcode: -9" in text and [step for step, *_ in lines(text)].count(5) == 4
