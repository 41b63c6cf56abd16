"""Training by DistributedDataParallel and FSDP in real processes (gloo, on the CPU), which are
killed and resized in the middle of an epoch. The oracles are a loader of one rank that is read from
end to end, for the samples, and a run of one process, for the weights."""

import os
import pathlib
import random
import signal
import subprocess
import sys

import processes
import pytest
from processes import Job, check_lines, kill_and_resize, lines, wait_for

torch = pytest.importorskip("torch")
if not torch.distributed.is_available():
    pytest.skip("torch was built without torch.distributed", allow_module_level=True)

SEED = int(os.environ.get("STOKER_SEED", "1"))
EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"


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
    """The samples are those of a run that was never stopped, and so are the weights."""
    alone, resized = tmp_path / "alone", tmp_path / "resized"
    alone.mkdir()
    resized.mkdir()
    with Job(tmp_path, 1, EXAMPLES / name, tars, alone) as job:
        job.wait()
    check_lines(job.text(), want)
    kill_and_resize(tmp_path, want, EXAMPLES / name, tars, resized)
    for one, other in zip(
        weights_of(name, alone).values(), weights_of(name, resized).values(), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(not os.environ.get("STOKER_TEST_LONG"), reason="for ./check --long")
@pytest.mark.parametrize("number", range(12))
def test_random_histories(tmp_path, tars, want, number):
    """Of numbers of ranks that divide the global batch, killed at any step, also at its first."""
    r = random.Random(f"{SEED}/{number}")
    history, step = [], 1
    while step < len(want):
        history.append((r.choice((1, 2, 3, 4)), step := r.randint(step, len(want))))
    history.append((r.choice((1, 2, 3, 4)), None))
    print(f"STOKER_SEED={SEED}: {history}")
    name = r.choice(("ddp.py", "fsdp.py"))
    kept = tmp_path / "kept"
    kept.mkdir()
    kill_and_resize(tmp_path, want, EXAMPLES / name, tars, kept, history=history)


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
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        processes.STOP_AT: f"5 1 {tmp_path}/stopped",
        # A store for each start: in one that they share gloo finds the addresses of dead ranks.
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }
    with open(output, "w") as file:
        agent = subprocess.Popen(
            words, stdout=file, stderr=subprocess.STDOUT, env=environment, start_new_session=True
        )
    agent.is_alive = lambda: agent.poll() is None
    try:
        both = [f"step 5 rank {rank} of 2" for rank in range(2)]  # rank 0 has kept step 4 then
        wait_for(lambda: all(it in output.read_text() for it in both), agent, output.read_text)
        os.kill(ranks_of(agent.pid)[1], signal.SIGKILL)
        assert agent.wait(300) == 0, output.read_text()
    finally:
        if agent.poll() is None:
            os.killpg(agent.pid, signal.SIGKILL)
            agent.wait()
    text = output.read_text()
    check_lines(text, want)
    assert "exitcode: -9" in text and [step for step, *_ in lines(text)].count(5) == 4
