"""Hugging Face's unchanged Trainer with a stoker.torch.MapDataset as its train_dataset:

    torchrun --nproc-per-node 2 examples/hf_trainer_dataset.py PATH CHECKPOINTS

A resume only needs the step in the Trainer's checkpoint: a position is a number, and skipping to it
reads nothing. hf_trainer.py uses the Trainer with a stoker.Loader.
"""

import os
import pathlib
import sys
import tempfile

import stoker

try:
    import stoker.torch
    import torch
    import transformers
    from transformers.trainer_utils import get_last_checkpoint
except ImportError as error:
    print(f"nothing to show without transformers and accelerate: {error}")
    sys.exit(0)

GLOBAL_BATCH, EPOCHS = 12, 2


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3 * 8 * 8, 10)
        self.label = ""

    def forward(self, image, labels, id):
        print(f"{self.label}: samples {id.tolist()}", flush=True)
        scores = self.layer(image.flatten(1))
        return {"loss": torch.nn.functional.cross_entropy(scores, labels), "logits": scores}


class Tell(transformers.TrainerCallback):
    def on_step_begin(self, args, state, control, model=None, **others):
        rank, world = args.process_index, args.world_size
        model.label = f"step {state.global_step + 1} rank {rank} of {world}"


def main():
    folder = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else tempfile.mkdtemp())
    workers = int(sys.argv[3]) if len(sys.argv) > 3 else 2
    dataset = stoker.torch.MapDataset(
        sys.argv[1],
        fields={
            "image": stoker.Image(None, [stoker.RandomResizedCrop(8), stoker.Normalize()]),
            "labels": stoker.Label(),
            "id": "__id__",
        },
    )
    transformers.set_seed(0)
    arguments = transformers.TrainingArguments(
        str(folder),
        num_train_epochs=EPOCHS,
        per_device_train_batch_size=GLOBAL_BATCH // int(os.environ.get("WORLD_SIZE", "1")),
        train_sampling_strategy="sequential",  # the order is already shuffled
        dataloader_num_workers=workers,
        dataloader_drop_last=True,
        use_cpu=True,
        save_steps=1,
        save_total_limit=2,
        report_to=[],
        disable_tqdm=True,
    )
    trainer = transformers.Trainer(Model(), arguments, train_dataset=dataset, callbacks=[Tell()])
    trainer.train(resume_from_checkpoint=get_last_checkpoint(str(folder)) is not None)


if __name__ == "__main__":
    main()
