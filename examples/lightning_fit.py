"""Lightning with an unchanged stoker.Loader:

    python examples/lightning_fit.py PATH [CHECKPOINTS [RANKS]]

Lightning saves the loader's state in its checkpoints, so a killed run continues at its step, also
with another number of ranks. Lightning starts the ranks after the loader was made; the loader reads
its rank when the loop begins.
"""

import pathlib
import sys
import warnings

import stoker

try:
    import lightning
    import torch
    from lightning.pytorch.callbacks import ModelCheckpoint
except ImportError as error:
    print(f"nothing to show without Lightning: {error}")
    sys.exit(0)

GLOBAL_BATCH, EPOCHS = 12, 2
warnings.filterwarnings("ignore", module="lightning")  # advice on loggers and workers


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3 * 8 * 8, 10)

    def training_step(self, batch, index):
        print(
            f"step {self.global_step + 1} rank {self.global_rank} of {self.trainer.world_size}: "
            f"samples {batch['id'].tolist()}",
            flush=True,
        )
        return torch.nn.functional.cross_entropy(
            self.layer(batch["image"].flatten(1)), batch["label"]
        )

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01, momentum=0.9)


def main():
    folder = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else None
    ranks = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    loader = stoker.Loader(
        sys.argv[1],
        GLOBAL_BATCH // ranks,
        fields={
            "image": stoker.Image(None, [stoker.RandomResizedCrop(8), stoker.Normalize()]),
            "label": stoker.Label(),
            "id": "__id__",
        },
    )
    torch.manual_seed(0)
    keep = [ModelCheckpoint(folder, every_n_train_steps=1, save_last=True)] if folder else []
    trainer = lightning.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        devices=ranks,
        strategy="ddp" if ranks > 1 else "auto",
        callbacks=keep,
        enable_checkpointing=folder is not None,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    last = folder / "last.ckpt" if folder else None
    trainer.fit(Model(), loader, ckpt_path=last if last and last.exists() else None)


if __name__ == "__main__":
    main()
