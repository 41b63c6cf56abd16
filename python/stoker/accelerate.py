"""Checkpoints of a training with Hugging Face's Accelerate.

::

    model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
    ckpt = stoker.Checkpointer("s3://bucket/run7", keep_last=3)
    state = stoker.accelerate.state_of(accelerator)       # after all prepare()
    state["epoch"] = 0
    step = ckpt.restore(state) or 0
    ...
    ckpt.save(step, state, metrics={"loss": loss})

It takes the place of ``accelerator.save_state`` and ``load_state``: the tensors are written in the
background, hashed, by all ranks, and a step exists completely or not at all. Nothing is pickled.

This module imports Accelerate when :func:`state_of` is called, not before.
"""

from __future__ import annotations

from typing import Any

from ._options import require
from .checkpoint_random import RandomStates
from .errors import ArgumentError, UnsupportedError

__all__ = ["state_of"]

_REFUSED = {
    "DEEPSPEED": "DeepSpeed divides the optimizer in a form of its own: use its save_checkpoint()",
    "MEGATRON_LM": "Megatron has checkpoints of its own: use accelerator.save_state()",
    "XLA": "tensors of XLA are not supported: use accelerator.save_state()",
}


def state_of(accelerator: Any, *, random: bool = True) -> dict[str, Any]:
    """The state of an ``Accelerator``, for :meth:`stoker.Checkpointer.save` and ``restore``.

    Parameters:
        accelerator: all objects of the training are prepared, and those of one's own (a
            stoker.Loader, an average of the weights) are in ``register_for_checkpointing``.
        random: also the states of the random number generators of each rank.

    The dict has the keys ``model``, ``optimizer`` and ``scheduler`` (lists of all that were
    prepared), ``custom`` (the registered objects), ``dataloader`` (those with a state:
    ``use_stateful_dataloader``), ``scaler`` and ``random``, as far as there are any. It refers to
    the objects: it stays valid during the training. Add numbers and objects of your own.

    One process, DDP and FSDP2 are supported; a step can be restored with another number of ranks.
    """
    accelerate = require("accelerate", "accelerate", "stoker.accelerate.state_of")
    if not isinstance(accelerator, accelerate.Accelerator):
        raise ArgumentError(
            f"{type(accelerator).__name__} is no accelerate.Accelerator",
            "state_of",
            "pass the Accelerator, after its prepare()",
        )
    kind = accelerator.distributed_type.name
    plugin = getattr(accelerator.state, "fsdp_plugin", None)
    if kind == "FSDP" and getattr(plugin, "fsdp_version", 1) != 2:
        raise UnsupportedError(
            "FSDP 1 has flat parameters", "state_of", "set fsdp_version=2 in the FSDP plugin"
        )
    if kind in _REFUSED:
        raise UnsupportedError(f"the training uses {kind}", "state_of", _REFUSED[kind])
    if not accelerator._models:
        raise ArgumentError("no model is prepared", "state_of", "call prepare() first")
    state: dict[str, Any] = {
        "model": [accelerator.unwrap_model(model) for model in accelerator._models]
    }
    loaders = [loader for loader in accelerator._dataloaders if _has_state(loader)]
    for name, objects in (
        ("optimizer", accelerator._optimizers),
        ("scheduler", accelerator._schedulers),
        ("dataloader", loaders),
        ("custom", accelerator._custom_objects),
    ):
        if objects:
            state[name] = list(objects)
    if accelerator.scaler is not None:
        state["scaler"] = accelerator.scaler
    if random:
        state["random"] = RandomStates()
    return state


def _has_state(loader: Any) -> bool:
    return bool(getattr(loader, "use_stateful_dataloader", False))
