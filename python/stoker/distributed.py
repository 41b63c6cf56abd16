"""Rank and world size of this process."""

from __future__ import annotations

import os
import sys
from typing import Any, NamedTuple

from ._options import count
from .errors import ArgumentError
from .notices import warn_once

_SHARERS = {
    "accelerate.data_loader": ("DataLoaderDispatcher", "IterableDatasetShard"),
    "transformers.trainer_pt_utils": ("IterableDatasetShard",),
}
"""Classes that divide the samples of an iterable data set among processes, by module."""


class Sharing(NamedTuple):
    """The way in which a framework divides the samples of an iterable data set."""

    processes: int
    """Number of processes among which it divides them; 0 or 1: it does not."""
    batches: int
    """Number of batches of a worker that are joined and cut into a slice for each process."""
    step: int
    """Number of batches of the DataLoader that make the batches of all processes."""


def sharing() -> Sharing:
    """Finds out if a framework divides the samples that its callers iterate, or count.

    Accelerate, and the Trainer with it, decide this when they prepare a DataLoader, and do not
    tell the data set. So the data set looks for their classes in its call stack. A forked worker
    has the callers of its parent, too.
    """
    frame = sys._getframe(1)
    while frame is not None:
        names = _SHARERS.get(frame.f_globals.get("__name__", ""), ())
        this: Any = frame.f_locals.get("self") if names else None
        if type(this).__name__ in names:
            is_dealt_out = type(this).__name__ == "DataLoaderDispatcher"
            processes = int(this.state.num_processes if is_dealt_out else this.num_processes)
            step = 1 if this.split_batches else processes
            return Sharing(processes, 1 if is_dealt_out else step, step)
        frame = frame.f_back  # type: ignore[assignment]
    return Sharing(0, 1, 1)


def ranks(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Rank and world size: the arguments, or torch.distributed's, or the environment's."""
    where = "Loader rank"
    if (rank is None) != (world_size is None):
        raise ArgumentError("only one of rank and world_size is set", where, "pass both, or none")
    if rank is None:
        rank, world_size = _found()
    assert world_size is not None
    world = count(world_size, "Loader world_size", low=1)
    return count(rank, where, high=world - 1), world


_LAUNCHERS = (
    ("RANK", "WORLD_SIZE"),  # torchrun, Accelerate, DeepSpeed, Ray Train
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),  # mpirun of Open MPI
    ("PMI_RANK", "PMI_SIZE"),  # mpiexec of MPICH and of Intel MPI, Hydra
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),  # MVAPICH2
    ("JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"),  # jsrun
    ("FLUX_TASK_RANK", "FLUX_JOB_SIZE"),
)
"""Variables of launchers: rank and number of processes. The first pair that is set applies: an
inner launcher (torchrun in a job of SLURM) comes before an outer one."""


def _found() -> tuple[int, int]:
    """Rank and world size of this process; warns once if it is one of one under a launcher."""
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        found = distributed.get_rank(), distributed.get_world_size()
    else:
        found = _from_environment()
    if found[1] == 1:
        _warn_if_launched()
    return found


def _from_environment() -> tuple[int, int]:
    for names in _LAUNCHERS:
        if names[0] in os.environ or names[1] in os.environ:
            return _pair(*names)
    if "SLURM_PROCID" in os.environ and not _is_batch_script():
        return _pair("SLURM_PROCID", _slurm_size())
    return 0, 1


def _slurm_size() -> str:
    """The variable with the number of processes of the srun step, or of the job."""
    step = "SLURM_STEP_NUM_TASKS"
    return step if step in os.environ else "SLURM_NTASKS"


def _is_batch_script() -> bool:
    """True in the script of sbatch, which runs once, although it has the variables of a task."""
    is_step = "SLURM_STEP_ID" in os.environ or "SLURM_STEPID" in os.environ
    return "SLURM_JOB_ID" in os.environ and not is_step


def _pair(rank: str, size: str) -> tuple[int, int]:
    """The numbers in two variables."""
    texts = os.environ.get(rank), os.environ.get(size)
    for name, text, other in ((rank, texts[0], size), (size, texts[1], rank)):
        if text is None:
            raise ArgumentError(
                f"{name} is not set, but {other} is {os.environ[other]!r}",
                "the environment",
                f"set {name} too, remove {other}, or pass rank= and world_size=",
            )
        if not (text.isascii() and text.isdigit()):
            raise ArgumentError(
                f"{name}={text!r} is not a number",
                "the environment",
                f"set {rank} and {size} to numbers, or pass rank= and world_size=",
            )
    return int(str(texts[0])), int(str(texts[1]))


def _warn_if_launched() -> None:
    """Warns if a launcher started several processes, of which each would read all data."""
    for name in (*(size for _, size in _LAUNCHERS), "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"):
        text = os.environ.get(name, "")
        if text.isascii() and text.isdigit() and int(text) > 1:
            break
    else:
        name = next((n for n in ("LOCAL_RANK", "PMIX_RANK") if n in os.environ), "")
        if not name or "RANK" in os.environ:
            return
    warn_once(
        f"the loader is rank 0 of 1, but {name}={os.environ[name]!r} is set by a launcher: each "
        "process reads all samples. Start one process for each rank by the launcher, call "
        "torch.distributed.init_process_group() before the loader, or pass rank= and world_size="
    )
