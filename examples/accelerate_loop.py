"""Accelerate with an unchanged stoker.Loader:

    accelerate launch --cpu --num_processes 2 examples/accelerate_loop.py PATH CHECKPOINTS

prepare() returns the loader unchanged, since its samples are already divided among the ranks. After
register_for_checkpointing() checkpoints contain its state, for any number of ranks.
"""

import pathlib
import sys

import stoker

try:
    import torch
    from accelerate import Accelerator
except ImportError as error:
    print(f"nothing to show without Accelerate: {error}")
    sys.exit(0)

GLOBAL_BATCH, EPOCHS = 12, 2


class Step:
    """A number that checkpoints contain."""

    number = 0

    def state_dict(self):
        return {"number": self.number}

    def load_state_dict(self, state):
        self.number = state["number"]


def main():
    folder = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else None
    accelerator = Accelerator(cpu=True)
    rank, world = accelerator.process_index, accelerator.num_processes
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
    model = torch.nn.Linear(3 * 8 * 8, 10)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    step = Step()
    accelerator.register_for_checkpointing(loader, step)
    done = sorted(folder.glob("step-*")) if folder else []
    if done:
        accelerator.load_state(str(done[-1]))

    for epoch in range(loader.epoch, EPOCHS):
        loader.set_epoch(epoch)
        for batch in loader:
            step.number += 1
            print(
                f"step {step.number} rank {rank} of {world}: samples {batch['id'].tolist()}",
                flush=True,
            )
            images = batch["image"].to(accelerator.device)
            labels = batch["label"].to(accelerator.device)
            loss = torch.nn.functional.cross_entropy(model(images.flatten(1)), labels)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            if folder:
                part = folder / f"part-{step.number}-of-{world}"
                accelerator.save_state(str(part))
                accelerator.wait_for_everyone()
                if accelerator.is_main_process:
                    part.rename(folder / f"step-{step.number:06}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
