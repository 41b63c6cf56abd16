"""DistributedDataParallel that can be killed and resized at any step:

    torchrun --nproc-per-node 2 examples/ddp.py PATH CHECKPOINTS

Kill it, and start it with 3 processes, or 1: each step has the same samples, and the final weights
of the model are the same. The global batch stays the same; the loader detects its rank.
"""

import os
import pathlib
import sys

import stoker

try:
    import torch
    import torch.distributed as dist
except ImportError as error:
    print(f"nothing to show without PyTorch: {error}")
    sys.exit(0)

GLOBAL_BATCH, EPOCHS = 12, 2


def train(folder):
    rank, world = dist.get_rank(), dist.get_world_size()

    loader = stoker.Loader(
        sys.argv[1],
        GLOBAL_BATCH // world,
        fields={
            "image": stoker.Image(None, [stoker.RandomResizedCrop(8), stoker.Normalize()]),
            "label": stoker.Label(),
            "id": "__id__",
        },
    )
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3 * 8 * 8, 10))
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    step = 0
    if folder and (folder / "last.pt").exists():
        saved = torch.load(folder / "last.pt")
        model.module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])  # the state is the same on all ranks
        step = saved["step"]

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
            if folder and rank == 0:
                state = {
                    "model": model.module.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "loader": loader.state_dict(),
                    "step": step,
                }
                torch.save(state, folder / "last.part")
                os.replace(folder / "last.part", folder / "last.pt")


def main():
    folder = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else None
    alone = {} if "RANK" in os.environ else {"rank": 0, "world_size": 1, "store": dist.HashStore()}
    dist.init_process_group("gloo", **alone)  # "nccl" on GPUs
    train(folder)  # a function, so that the model, which uses the group, is freed at its end
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
