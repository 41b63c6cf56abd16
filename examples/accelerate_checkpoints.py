"""Accelerate with stoker's checkpoints, in the place of save_state() and load_state():

    accelerate launch --cpu --num_processes 2 examples/accelerate_checkpoints.py PATH CHECKPOINTS

A killed run continues at its newest step, also with another number of ranks. Saves are written in
the background, while the training goes on.
"""

import sys
import tempfile

import stoker
import stoker.accelerate

try:
    import torch
    from accelerate import Accelerator
except ImportError as error:
    print(f"nothing to show without Accelerate: {error}")
    sys.exit(0)

GLOBAL_BATCH, EPOCHS = 12, 2


def main():
    folder = sys.argv[2] if len(sys.argv) > 2 else tempfile.mkdtemp()
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    loader = stoker.Loader(
        sys.argv[1],
        GLOBAL_BATCH // accelerator.num_processes,
        fields={
            "image": stoker.Image(None, [stoker.RandomResizedCrop(8), stoker.Normalize()]),
            "label": stoker.Label(),
        },
    )
    model = torch.nn.Sequential(torch.nn.Dropout(0.1), torch.nn.Linear(3 * 8 * 8, 10))
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    model, optimizer, scheduler, loader = accelerator.prepare(model, optimizer, scheduler, loader)
    accelerator.register_for_checkpointing(loader)

    ckpt = stoker.Checkpointer(folder, keep_last=2)
    state = stoker.accelerate.state_of(accelerator)  # after prepare()
    step = ckpt.restore(state) or 0
    for epoch in range(loader.epoch, EPOCHS):
        loader.set_epoch(epoch)
        for batch in loader:
            step += 1
            scores = model(batch["image"].to(accelerator.device).flatten(1))
            loss = torch.nn.functional.cross_entropy(scores, batch["label"])
            accelerator.backward(loss)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            value = accelerator.reduce(loss.detach(), "mean").item()
            accelerator.print(f"step {step} loss {value:.7f}", flush=True)
            ckpt.save(step, state, metrics={"loss": value})
    ckpt.close()
    accelerator.end_training()


if __name__ == "__main__":
    main()
