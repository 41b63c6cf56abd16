"""Rank and world size from the environment: half a setting is an error, launchers are recognised,
and a loader that is alone under a launcher warns."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings

import pytest
import stoker
from stoker import distributed, notices

LAUNCHERS = [
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
]


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    """No launcher, and no warning was issued."""
    for name in list(os.environ):
        if name.startswith(("SLURM", "OMPI", "PMI", "MV2", "JSM", "FLUX", "LOCAL_")):
            monkeypatch.delenv(name)
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(notices, "_issued", set())
    monkeypatch.setitem(sys.modules, "torch", None)  # another test may have made a group


def found():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return distributed.ranks(None, None)


def test_no_launcher():
    assert found() == (0, 1)


@pytest.mark.parametrize(("rank", "size"), LAUNCHERS)
def test_launchers_are_recognised(monkeypatch, rank, size):
    monkeypatch.setenv(rank, "3")
    monkeypatch.setenv(size, "8")
    assert found() == (3, 8)
    monkeypatch.setenv(rank, "8")
    with pytest.raises(stoker.ArgumentError, match="8"):
        found()
    for bad in ("", "x", "-1", "1.0", "٣"):
        monkeypatch.setenv(rank, bad)
        with pytest.raises(stoker.ArgumentError, match=rank):
            found()


@pytest.mark.parametrize(("rank", "size"), LAUNCHERS)
def test_half_a_setting(monkeypatch, rank, size):
    monkeypatch.setenv(rank, "0")
    missing = size.replace("STEP_NUM_TASKS", "NTASKS")
    with pytest.raises(stoker.ArgumentError, match=f"{missing} is not"):
        found()
    assert distributed.ranks(1, 4) == (1, 4)  # arguments need no environment
    monkeypatch.delenv(rank)
    monkeypatch.setenv(size, "8")
    if size.startswith("SLURM"):  # the variables of salloc's shell
        with pytest.warns(stoker.StokerWarning, match=size):
            assert distributed.ranks(None, None) == (0, 1)
    else:
        with pytest.raises(stoker.ArgumentError, match=f"{rank} is not"):
            found()


def test_the_inner_launcher_comes_first(monkeypatch):
    outer, inner = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, {"RANK": "9", "WORLD_SIZE": "16"}
    for name, value in (outer | inner).items():
        monkeypatch.setenv(name, value)
    assert found() == (9, 16)


def test_the_script_of_sbatch_is_no_task(monkeypatch):
    """It runs once, with SLURM_PROCID=0 and the job's number of tasks."""
    for name, value in {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"}.items():
        monkeypatch.setenv(name, value)
    with pytest.warns(stoker.StokerWarning, match="SLURM_NTASKS='4'"):
        assert distributed.ranks(None, None) == (0, 1)
    assert found() == (0, 1)  # it warns once
    monkeypatch.setenv("SLURM_STEP_ID", "0")
    assert found() == (0, 4)


def test_one_process_of_a_launcher(monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert found() == (0, 1)
    monkeypatch.setenv("LOCAL_RANK", "0")  # torchrun --nproc-per-node 1
    assert found() == (0, 1)
    monkeypatch.setenv("SLURM_PROCID", "1")
    monkeypatch.setenv("SLURM_NTASKS", "2")  # two tasks, each with a torchrun of its own
    with pytest.warns(stoker.StokerWarning, match="SLURM_NTASKS='2'"):
        assert distributed.ranks(None, None) == (0, 1)


def test_a_local_rank_alone(monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "1")
    with pytest.warns(stoker.StokerWarning, match="LOCAL_RANK='1'"):
        assert distributed.ranks(None, None) == (0, 1)


def test_a_group_of_one_under_a_launcher(monkeypatch):
    """A group of torch.distributed decides; but one of one under a launcher is suspicious."""

    class Group:
        is_available = is_initialized = staticmethod(lambda: True)
        get_rank, get_world_size = staticmethod(lambda: 0), staticmethod(lambda: 1)

    class Torch:
        distributed = Group

    monkeypatch.setitem(sys.modules, "torch", Torch)
    assert found() == (0, 1)
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "4")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "2")
    with pytest.warns(stoker.StokerWarning, match="OMPI_COMM_WORLD_SIZE='4'"):
        assert distributed.ranks(None, None) == (0, 1)


def test_a_loader_uses_them(tars):
    """In a new process, as a launcher starts it: the warning names the user's line."""
    script = (
        "import stoker, sys\n"
        f"loader = stoker.Loader({str(tars)!r}, 4, fields={{'k': '__key__'}})\n"
        "print(loader.rank, loader.world_size)\n"
    )

    def run(**environment):
        base = {k: v for k, v in os.environ.items() if "RANK" not in k and k != "WORLD_SIZE"}
        return subprocess.run(
            [sys.executable, "-c", script],
            env={**base, **environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    assert run(SLURM_PROCID="2", SLURM_NTASKS="3").stdout.split() == ["2", "3"]
    done = run(WORLD_SIZE="8")
    assert "ArgumentError: RANK is not set, but WORLD_SIZE is '8'" in done.stderr
    done = run(RANK="7")
    assert "ArgumentError: WORLD_SIZE is not set, but RANK is '7'" in done.stderr
    done = run(LOCAL_RANK="1")
    assert done.stdout.split() == ["0", "1"] and "<string>:2: StokerWarning" in done.stderr
