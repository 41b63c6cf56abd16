"""Hugging Face's Trainer trains a small GPT-2 on token files:

    torchrun --nproc-per-node 2 examples/hf_trainer_text.py TOKENS CHECKPOINTS [STEPS]

TOKENS: a token file with token ids below 50 (see stoker.Tokens), for example

    numpy.save("cycle.npy", (numpy.arange(100_000) % 50).astype("uint16"))

The fields have the names of the arguments of the model. A field `labels` has Transformers' meaning:
it equals `input_ids`, and the model shifts it. KeepState saves the loader's state in the Trainer's
checkpoints. Text that is tokenised while training works alike, with
stoker.TextLoader(..., rows="windows", names=["input_ids", "labels"]).
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
    from transformers import GPT2Config, GPT2LMHeadModel
    from transformers.trainer_utils import get_last_checkpoint
except Exception as error:  # transformers imports its models lazily, and fails with any exception
    print(f"nothing to show without transformers and accelerate: {error}")
    sys.exit(0)

GLOBAL_BATCH, CONTEXT, IDS = 16, 32, 50


class Trainer(transformers.Trainer):
    def __init__(self, *arguments, loader, **options):
        super().__init__(*arguments, callbacks=[KeepState()], **options)
        self.loader = loader

    def get_train_dataloader(self):
        return self.loader


def main():
    folder = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else tempfile.mkdtemp())
    steps = int(sys.argv[3]) if len(sys.argv) > 3 else 150
    world = int(os.environ.get("WORLD_SIZE", "1"))
    loader = stoker.TokenLoader(
        sys.argv[1],
        GLOBAL_BATCH // world,
        CONTEXT,
        stored="uint16",
        vocab=IDS,  # a token that the model has no embedding for is an error
        names=["input_ids", "labels"],
    )
    transformers.set_seed(0)
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=IDS, n_positions=CONTEXT, n_embd=32, n_layer=1, n_head=2)
    )
    arguments = transformers.TrainingArguments(
        str(folder),
        max_steps=steps,
        per_device_train_batch_size=loader.batch_size,
        learning_rate=1e-2,
        use_cpu=True,
        save_steps=50,
        save_total_limit=2,
        report_to=[],
        disable_tqdm=True,
    )
    trainer = Trainer(model, arguments, loader=loader)
    trainer.train(resume_from_checkpoint=get_last_checkpoint(str(folder)) is not None)
    with torch.no_grad():
        scores = model(torch.tensor([[5, 6, 7, 8, 9]])).logits
    print(f"after 5 6 7 8 9: {int(scores[0, -1].argmax())}")


if __name__ == "__main__":
    main()
