"""A loader's state in the checkpoints of Hugging Face's Trainer.

The Trainer takes its batches from ``get_train_dataloader()``, and at a resume would leave out the
first ones by a DataLoader of its own. A loader needs no such thing: it goes to its place::

    class Trainer(transformers.Trainer):
        def get_train_dataloader(self):
            return loader                   # a stoker.Loader or stoker.TokenLoader

    trainer = Trainer(model, arguments, callbacks=[stoker.huggingface.KeepState()])
    trainer.train(resume_from_checkpoint=True)

Samples that workers of a DataLoader make, and a Trainer as it is, go with
:class:`stoker.torch.MapDataset` as ``train_dataset``: then a resume needs no state but the
Trainer's.

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
    """Keeps the loader's state in ``trainer_state.json``, and goes there when training resumes.

    It sets ``ignore_data_skip``: there is nothing to leave out. A checkpoint of any number of ranks
    is good for any other, as long as ``per_device_train_batch_size`` times ranks, which is the
    loader's batch, stays what it was. In the epoch that was resumed the Trainer counts batches from
    where it began: the ``epoch`` that it logs is behind, and a last accumulation of gradients that
    is not full is left out, so let ``gradient_accumulation_steps`` divide ``len(loader)``.
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
        kept = state.stateful_callbacks.get(type(self).__name__) or {}
        if state.global_step > 0:
            if not kept.get("loader"):
                raise ArgumentError(
                    "the checkpoint has no state of the loader",
                    "KeepState",
                    "it was made without KeepState: begin anew, or go on without it",
                )
            loader.load_state_dict(kept["loader"])

    def state(self) -> dict[str, Any]:
        """What the Trainer puts into a checkpoint."""
        state = None if self._loader is None else self._loader.state_dict()
        return {"args": {}, "attributes": {}, "loader": state}
