"""Lightning with stoker's checkpoints:

    python examples/lightning_checkpoints.py PATH CHECKPOINTS

Lightning chooses when to save, and which checkpoints stay; the plugin writes them: hashed, atomic,
in the background. A killed run continues at its newest checkpoint.
"""

import pathlib
import sys
import tempfile
import warnings

import stoker
import stoker.lightning

try:
    import lightning
    import torch
    from lightning.pytorch.callbacks import ModelCheckpoint
except ImportError as error:
    print(f"nothing to show without Lightning: {error}")
    sys.exit(0)

warnings.filterwarnings("ignore", module="lightning")  # advice on loggers and workers


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.save_hyperparameters({"classes": 10})
        self.layer = torch.nn.Linear(3 * 8 * 8, 10)

    def training_step(self, batch, index):
        loss = torch.nn.functional.cross_entropy(
            self.layer(batch["image"].flatten(1)), batch["label"]
        )
        print(f"step {self.global_step + 1} loss {loss.item():.7f}", flush=True)
        return loss

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), 0.01)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


def main():
    folder = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else tempfile.mkdtemp())
    loader = stoker.Loader(
        sys.argv[1],
        12,
        fields={
            "image": stoker.Image(None, [stoker.RandomResizedCrop(8), stoker.Normalize()]),
            "label": stoker.Label(),
        },
    )
    torch.manual_seed(0)
    trainer = lightning.Trainer(
        max_epochs=2,
        accelerator="cpu",
        plugins=[stoker.lightning.CheckpointIO()],
        callbacks=[ModelCheckpoint(folder, every_n_train_steps=1, save_last=True)],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    last = folder / "last.ckpt"
    trainer.fit(Model(), loader, ckpt_path=last if last.exists() else None)
    print(f"{last.name}: {len(stoker.load(last)['state_dict'])} tensors of the model")


if __name__ == "__main__":
    main()
