"""Saves a loader's state in the checkpoints of Hugging Face's Trainer.

The Trainer takes its batches from ``get_train_dataloader()``. On resume it would skip the first
batches with its own DataLoader. A loader does not need this, because it continues at its state::

    class Trainer(transformers.Trainer):
        def get_train_dataloader(self):
            return loader                   # a stoker.Loader or stoker.TokenLoader

    trainer = Trainer(model, arguments, callbacks=[stoker.huggingface.KeepState()])
    trainer.train(resume_from_checkpoint=True)

To use an unchanged Trainer, with samples that workers of a DataLoader make, pass a
:class:`stoker.torch.MapDataset` as ``train_dataset``: it needs no state besides the Trainer's.

This module imports transformers; ``import stoker`` does not.
"""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback
from transformers.trainer_callback import ExportableState

from .errors import ArgumentError
from .loader_base import LoaderBase

__all__ = ["KeepState"]


class KeepState(TrainerCallback, ExportableState):  # type: ignore[misc] # they have no types
    """Stores the loader's state in ``trainer_state.json``, and restores it on resume.

    It sets ``ignore_data_skip``, since no batches must be skipped. A checkpoint can be resumed with
    any number of ranks, if ``per_device_train_batch_size`` times ranks, which is the loader's
    global batch, stays the same. In a resumed epoch the Trainer counts batches from the resume on:
    the ``epoch`` that it logs is too small, and an incomplete last accumulation of gradients is
    dropped. So ``gradient_accumulation_steps`` should divide ``len(loader)``.
    """

    def __init__(self) -> None:
        self._loader: LoaderBase | None = None

    def on_init_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        args.ignore_data_skip = True

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        loader = others.get("train_dataloader")
        if not isinstance(loader, LoaderBase):
            raise ArgumentError(
                f"the Trainer's batches come from a {type(loader).__name__}",
                "KeepState",
                "let get_train_dataloader() return the stoker.Loader itself",
            )
        self._loader = loader
        saved = state.stateful_callbacks.get(type(self).__name__) or {}
        if state.global_step > 0:
            if not saved.get("loader"):
                raise ArgumentError(
                    "the checkpoint contains no loader state",
                    "KeepState",
                    "it was saved without KeepState: start again, or train without KeepState",
                )
            loader.load_state_dict(saved["loader"])

    def state(self) -> dict[str, Any]:
        """The state that the Trainer stores in a checkpoint."""
        state = None if self._loader is None else self._loader.state_dict()
        return {"args": {}, "attributes": {}, "loader": state}
