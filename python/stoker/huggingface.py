"""Callbacks for Hugging Face's Trainer: checkpoints in the background, and a loader's state.

:class:`SaveSteps` saves steps with a :class:`stoker.Checkpointer`, instead of the Trainer's own
checkpoints::

    arguments = transformers.TrainingArguments(..., save_strategy="no")
    ckpt = stoker.Checkpointer("s3://bucket/run7", keep_last=3)    # after the arguments
    saver = stoker.huggingface.SaveSteps(ckpt, every=500)
    trainer = transformers.Trainer(model, arguments, train_dataset=..., callbacks=[saver])
    trainer.train(resume_from_checkpoint=saver.resume(trainer))    # None: there is no step yet

:class:`KeepState` saves the state of a stoker.Loader in the Trainer's own checkpoints. The Trainer
takes its batches from ``get_train_dataloader()``. On resume it would skip the first
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

import dataclasses
import json
import math
import os
import shutil
import tempfile
from typing import Any

from ._options import count, require
from .checkpoint_file import save
from .checkpoint_random import RandomStates
from .checkpoints import Checkpointer
from .errors import ArgumentError, EmptyError, UnsupportedError
from .loader_base import LoaderBase

require("transformers", "transformers", "stoker.huggingface")

from transformers import TrainerCallback  # noqa: E402
from transformers.trainer_callback import ExportableState  # noqa: E402

__all__ = ["KeepState", "SaveSteps"]


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


class SaveSteps(TrainerCallback):  # type: ignore[misc] # it has no types
    """Saves steps of a Trainer with a :class:`stoker.Checkpointer`, in the background.

    Parameters:
        checkpointer: made after the TrainingArguments, which start torch.distributed.
        every: save each step that is a multiple; None: when the Trainer would save
            (``save_strategy``, ``save_steps``), besides its own checkpoints.
        random: also the states of the random number generators.

    A step has the model, the optimizer, the scheduler, the Trainer's progress (its ``TrainerState``
    as JSON), the random numbers, and the loader if ``get_train_dataloader()`` returns a
    stoker.Loader. The last values that the Trainer logged are its metrics. A last step is saved at
    the end of the training, which waits until it is committed.

    To resume, pass :meth:`resume` to ``train(resume_from_checkpoint=)``. The Trainer then goes on
    at the epoch and the batch of the step. One process, DDP and FSDP2 are supported.
    """

    def __init__(
        self, checkpointer: Checkpointer, every: int | None = None, *, random: bool = True
    ) -> None:
        self._ckpt = checkpointer
        self._every = count(every, "every", low=1, high=2**53)
        self._random = random
        self._resumed: int | None = None
        self._folder: str | None = None
        self._saved: int | None = None
        self._states = RandomStates()
        self._begins = False  # the random numbers are not those of the step yet

    def resume(self, trainer: Any, step: int | None = None) -> str | None:
        """Finds the newest step that is complete and verified, or checks ``step``; the tensors are
        restored by ``train()``, when the optimizer exists.

        Returns the path of a folder for ``train(resume_from_checkpoint=)``, or None if there is no
        step. All ranks call it.
        """
        self._forget()
        try:
            found = self._ckpt.verify(step)
        except EmptyError:
            return None
        state: dict[str, Any] = {"trainer": None, "has_loader": False}
        self._ckpt.restore(state, found)
        self._resumed = found
        self._folder = tempfile.mkdtemp(prefix="stoker-resume-")
        with open(os.path.join(self._folder, "trainer_state.json"), "w") as file:
            file.write(state["trainer"])
        # The Trainer loads weights. It finds a file of none: on_train_begin() restores them.
        save({}, os.path.join(self._folder, "none.safetensors"))
        names = dict.fromkeys(trainer.model.state_dict(), "none.safetensors")
        with open(os.path.join(self._folder, "model.safetensors.index.json"), "w") as file:
            json.dump({"metadata": {}, "weight_map": names}, file)
        if state["has_loader"]:
            trainer.args.ignore_data_skip = True  # the loader continues at its own state
        return self._folder

    def _forget(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = self._resumed = None

    def _state(self, trainer_state: Any, others: dict[str, Any]) -> dict[str, Any]:
        loader = others.get("train_dataloader")
        state = {
            "model": others["model"],
            "optimizer": others["optimizer"],
            "scheduler": others["lr_scheduler"],
            "trainer": json.dumps(dataclasses.asdict(trainer_state)),
            "has_loader": isinstance(loader, LoaderBase),
        }
        if state["has_loader"]:
            state["loader"] = loader
        if self._random:
            state["random"] = self._states
        return state

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        if getattr(args, "deepspeed", None):
            raise UnsupportedError(
                "DeepSpeed divides the optimizer in a form of its own",
                "SaveSteps",
                "use the Trainer's own checkpoints, or FSDP2",
            )
        self._saved = self._resumed
        if self._resumed is not None:
            if state.global_step != self._resumed:
                raise ArgumentError(
                    f"the Trainer is at step {state.global_step} instead of {self._resumed}",
                    "SaveSteps",
                    "call train(resume_from_checkpoint=saver.resume(trainer))",
                )
            own = self._state(state, others)
            del own["trainer"], own["has_loader"]
            self._ckpt.restore(own, self._resumed)
            self._begins = self._random
        self._forget()

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Restores the random numbers again: the Trainer used some when it skipped batches."""
        if self._begins and self._saved is not None:
            self._begins = False
            self._ckpt.restore({"random": self._states}, self._saved)

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        if self._every and state.global_step % self._every == 0:
            self._save(state, others)

    def on_save(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        if not self._every:
            self._save(state, others)

    def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self._save(state, others)
        self._ckpt.wait()

    def _save(self, state: Any, others: dict[str, Any]) -> None:
        step = state.global_step
        if step == self._saved:
            return
        metrics = {
            name: value
            for entry in state.log_history
            for name, value in entry.items()
            if type(value) in (int, float) and math.isfinite(value) and name != "step"
        }
        self._ckpt.save(step, self._state(state, others), metrics=metrics)
        self._saved = step
