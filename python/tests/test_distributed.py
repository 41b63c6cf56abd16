"""Training by DistributedDataParallel and FSDP in real processes (gloo, on the CPU), which are
killed and resized in the middle of an epoch. The oracles are a loader of one rank that is read from
end to end, for the samples, and a run of one process, for the weights."""

import os
import pathlib
import random

import pytest
from processes import Job, Torchrun, check_lines, kill_and_resize, lines

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
    """Numbers of ranks that divide the global batch, killed at any step, also at the first."""
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


def test_torchrun_restarts_the_ranks(tmp_path, tars, want):
    """A rank is killed; torchrun starts all ranks again, and they continue from the state."""
    output = tmp_path / "output"
    # Rank 0 has saved step 4 when both have reached step 5.
    with Torchrun(2, output, EXAMPLES / "ddp.py", tars, tmp_path, stop_at=5, restarts=1) as agent:
        agent.kill_where_it_stopped()
        assert agent.wait() == 0, output.read_text()
    text = output.read_text()
    check_lines(text, want)
    assert "exitcode: -9" in text and [step for step, *_ in lines(text)].count(5) == 4
