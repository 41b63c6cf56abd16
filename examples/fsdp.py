"""FSDP (fully_shard) with distributed checkpoints, for any number of processes at each start:

    torchrun --nproc-per-node 2 examples/fsdp.py PATH CHECKPOINTS

torch.distributed.checkpoint saves and loads all objects with state_dict() and load_state_dict(). So
checkpoints contain the loader, which continues at its step on any number of ranks.
"""

import os
import pathlib
import sys

import stoker

try:
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.fsdp import fully_shard
except ImportError as error:
    print(f"nothing to show without PyTorch 2.6 or newer: {error}")
    sys.exit(0)

GLOBAL_BATCH, EPOCHS = 12, 2


class Training:
    """Model and optimizer as one object with a state."""

    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    def state_dict(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    def load_state_dict(self, state):
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )


def train(folder):
    rank, world = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(3 * 8 * 8, 24), torch.nn.ReLU(), torch.nn.Linear(24, 10)
    )
    mesh = dist.init_device_mesh("cpu", (world,))
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    loader = stoker.Loader(
        sys.argv[1],
        GLOBAL_BATCH // world,
        fields={
            "image": stoker.Image(None, [stoker.RandomResizedCrop(8), stoker.Normalize()]),
            "label": stoker.Label(),
            "id": "__id__",
        },
    )
    saved = {"training": Training(model, optimizer), "loader": loader}
    step = 0
    done = sorted(folder.glob("step-*/.metadata")) if folder else []  # .metadata is written last
    if done:
        dcp.load(saved, checkpoint_id=done[-1].parent)
        step = int(done[-1].parent.name.removeprefix("step-"))

    for epoch in range(loader.epoch, EPOCHS):
        loader.set_epoch(epoch)
        for batch in loader:
            step += 1
            print(f"step {step} rank {rank} of {world}: samples {batch['id'].tolist()}", flush=True)
            loss = torch.nn.functional.cross_entropy(
                model(batch["image"].flatten(1)), batch["label"]
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if folder:
                dcp.save(saved, checkpoint_id=folder / f"step-{step:06}")


def main():
    folder = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else None
    alone = {} if "RANK" in os.environ else {"rank": 0, "world_size": 1, "store": dist.HashStore()}
    dist.init_process_group("gloo", **alone)  # "nccl" on GPUs
    train(folder)  # a function, so that the model, which uses the group, is freed at its end
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
