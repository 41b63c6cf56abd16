"""Hugging Face's Trainer with a stoker.Loader:

    torchrun --nproc-per-node 2 examples/hf_trainer.py PATH CHECKPOINTS

The Trainer takes its batches from get_train_dataloader(). KeepState saves the loader's state in the
Trainer's checkpoints. The names of the fields are the arguments of the model's forward().
"""

import os
import pathlib
import sys
import tempfile

import stoker

try:
    import torch
    import transformers
    from stoker.huggingface import KeepState
    from transformers.trainer_utils import get_last_checkpoint
except ImportError as error:
    print(f"nothing to show without transformers and accelerate: {error}")
    sys.exit(0)

GLOBAL_BATCH, EPOCHS = 12, 2


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3 * 8 * 8, 10)

    def forward(self, image, labels):
        scores = self.layer(image.flatten(1))
        return {"loss": torch.nn.functional.cross_entropy(scores, labels), "logits": scores}


class Trainer(transformers.Trainer):
    def __init__(self, *arguments, loader, **options):
        super().__init__(*arguments, callbacks=[KeepState()], **options)
        self.loader = loader

    def get_train_dataloader(self):
        return self.loader

    def training_step(self, model, inputs, *arguments):
        rank, world = self.args.process_index, self.args.world_size
        ids = inputs.pop("id").tolist()
        print(
            f"step {self.state.global_step + 1} rank {rank} of {world}: samples {ids}", flush=True
        )
        return super().training_step(model, inputs, *arguments)


def main():
    folder = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else tempfile.mkdtemp())
    world = int(os.environ.get("WORLD_SIZE", "1"))
    loader = stoker.Loader(
        sys.argv[1],
        GLOBAL_BATCH // world,
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
        per_device_train_batch_size=loader.batch_size,
        use_cpu=True,
        save_steps=1,
        save_total_limit=2,
        report_to=[],
        disable_tqdm=True,
    )
    trainer = Trainer(Model(), arguments, loader=loader)
    trainer.train(resume_from_checkpoint=get_last_checkpoint(str(folder)) is not None)


if __name__ == "__main__":
    main()
