"""Hugging Face's Trainer with stoker's checkpoints, instead of its own:

    torchrun --nproc-per-node 2 examples/hf_trainer_checkpoints.py PATH CHECKPOINTS

Each step is saved in the background. A killed run continues at its newest step, at the same batch.
"""

import pathlib
import sys
import tempfile

import stoker

try:
    import torch
    import transformers
    import stoker.torch
    from stoker.huggingface import SaveSteps
except (ImportError, stoker.UnsupportedError) as error:
    print(f"nothing to show without transformers and accelerate: {error}")
    sys.exit(0)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Dropout(0.1), torch.nn.Linear(3 * 8 * 8, 10))

    def forward(self, image, labels):
        scores = self.layers(image.flatten(1))
        return {"loss": torch.nn.functional.cross_entropy(scores, labels), "logits": scores}


class Show(transformers.TrainerCallback):
    def on_log(self, args, state, control, logs=None, **others):
        if state.is_world_process_zero and "loss" in logs:
            print(f"step {state.global_step} loss {logs['loss']:.7f}", flush=True)


def main():
    folder = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else tempfile.mkdtemp())
    transformers.set_seed(0)
    arguments = transformers.TrainingArguments(
        str(folder / "output"),
        num_train_epochs=2,
        per_device_train_batch_size=6,
        use_cpu=True,
        train_sampling_strategy="sequential",  # the data set has its own order
        save_strategy="no",  # SaveSteps saves
        logging_steps=1,
        report_to=[],
        disable_tqdm=True,
    )
    world = arguments.world_size
    dataset = stoker.torch.MapDataset(
        sys.argv[1],
        fields={
            "image": stoker.Image(None, [stoker.Resize((8, 8)), stoker.Normalize()]),
            "labels": stoker.Label(),
        },
    )
    ckpt = stoker.Checkpointer(folder / "steps", keep_last=2)  # after TrainingArguments
    saver = SaveSteps(ckpt, every=1)
    trainer = transformers.Trainer(
        Model(), arguments, train_dataset=dataset, callbacks=[saver, Show()]
    )
    trainer.train(resume_from_checkpoint=saver.resume(trainer))
    ckpt.close()
    print(f"trained {trainer.state.global_step} steps on {world} ranks", flush=True)


if __name__ == "__main__":
    main()
