"""A job of ranks that read a mix, started in the way torchrun starts ranks: ``mix_job.py TARS KEPT
CASE CHANGE SOURCES``. After each step rank 0 saves the state; a job with another number of ranks
continues from it. The job changes the weights after step CHANGE. It has SOURCES sources: a source
that the state does not contain joins at the position of the state."""

import json
import os
import pathlib
import sys
from typing import Any

import stoker
import torch
import torch.distributed as dist

STEP = 240  # samples of a global batch
STEPS = 20
WEIGHTS, CHANGED, JOINED = [3, 2, 1, 0], [0, 1, 1, 0], [1, 1, 1, 3]
CASES: dict[str, dict[str, Any]] = {
    "repeat": {"mix": {"epoch": 2000}, "loader": {"tail": "wrap"}},
    "stop": {"mix": {"end": "stop"}, "loader": {"tail": "drop"}},
    "renormalise": {"mix": {"end": "renormalise"}, "loader": {"tail": "drop"}},
}


def open_loader(
    tars: list[str], case: str, world: int, weights: list[list[Any]]
) -> stoker.Loader:
    """weights: the history of a run."""
    width = len(tars)
    history = [(position, (own + [0] * width)[:width]) for position, own in weights]
    mix = stoker.Mix(tars, history[0][1], changes=history[1:], **CASES[case]["mix"])
    fields: dict[str, Any] = {"id": "__id__"}
    options = {"fields": fields, "seed": 3, "output": "numpy", **CASES[case]["loader"]}
    return stoker.Loader(mix, STEP // world, **options)


def main(folder: str, kept: pathlib.Path, case: str, change: int, sources: int) -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    tars = [str(path) for path in sorted(pathlib.Path(folder).glob("*.tar"))][:sources]
    step, state = 0, None
    if kept.exists():
        step, state = json.loads(kept.read_text())
    loader = open_loader(tars, case, world, state["weights"] if state else [[0, WEIGHTS]])
    if state:
        loader.load_state_dict(state)
        if len(state["weights"][0][1]) < sources:
            print(f"a source joins at {loader.set_weights(JOINED)}", flush=True)
    while step < STEPS:
        for batch in loader:
            step += 1
            print(f"step {step} rank {rank} of {world}: samples {batch['id'].tolist()}", flush=True)
            sum_of_ids = torch.tensor([int(batch["id"].sum())])
            dist.all_reduce(sum_of_ids)  # a step of training, which all wait for
            if step == change:
                weights = CHANGED[:sources]
                print(f"weights change at {loader.set_weights(weights)}", flush=True)
            if rank == 0:
                new = kept.with_suffix(".new")
                new.write_text(json.dumps([step, loader.state_dict()]))
                os.replace(new, kept)
            if step == STEPS:
                break
    loader.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
