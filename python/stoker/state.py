"""The state of a loader: the native tuple, and the dict for JSON."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from .errors import StateError

STATE_NAMES = (
    "order_version",
    "shuffle",
    "tail",
    "window",
    "groups",
    "seed",
    "epoch",
    "position",
    "sample_count",
    "block_samples",
    "mix",
    "subset",
    "draws",
    "repeats",
    "repeats_apart",
    "sampling_epoch",
    "fingerprint",
    "identity",
)

EPOCH, POSITION, MIX = (STATE_NAMES.index(name) for name in ("epoch", "position", "mix"))
ORDER_VERSION, SHUFFLE, WINDOW, BLOCK_SAMPLES, FINGERPRINT = (
    STATE_NAMES.index(name)
    for name in ("order_version", "shuffle", "window", "block_samples", "fingerprint")
)
"""Indexes into a native state."""

_HASHES = ("mix", "subset", "draws", "fingerprint")  # of 64 bits
_SMALL = (*STATE_NAMES[:5], "repeats", "repeats_apart")  # of 32 bits


def state_values(state: tuple[Any, ...]) -> dict[str, Any]:
    """A native state as a dict for JSON; hashes as hexadecimal digits."""
    values: dict[str, Any] = dict(zip(STATE_NAMES, state, strict=True))
    for name in _HASHES:
        values[name] = f"{values[name]:016x}"
    values["identity"] = state[-1].hex()
    return values


def parse_state(state: dict[str, Any]) -> tuple[Any, ...]:
    """The native state from the dict of :func:`state_values`; StateError if it is not valid."""
    is_one = isinstance(state, Mapping)
    missing = [name for name in STATE_NAMES if not is_one or name not in state]
    if missing:
        raise StateError(
            f"the state has no {missing[0]!r}", "load_state_dict", "pass what state_dict() returned"
        )
    try:
        values = []
        for name in STATE_NAMES[:-1]:
            if isinstance(state[name], bool):
                raise ValueError(f"{name} is {state[name]}")
            value = int(state[name], 16) if name in _HASHES else operator.index(state[name])
            if not 0 <= value < (2**32 if name in _SMALL else 2**64):
                raise ValueError(f"{name} is {value}")
            values.append(value)
        return (*values, bytes.fromhex(state["identity"]))
    except (TypeError, ValueError) as error:
        raise StateError(
            f"the state cannot be read: {error}",
            "load_state_dict",
            "pass what state_dict() returned",
        ) from error


def exactness(exact: bool) -> dict[str, Any]:
    """The setting of exact= in a state; left out if True, so that old states stay the same."""
    return {} if exact else {"exact": False}


def check_exactness(state: Mapping[str, Any], exact: bool) -> None:
    """Raises StateError if the run used another setting of exact=."""
    there = state.get("exact", True) if isinstance(state, Mapping) else True
    if there != exact:
        raise StateError(
            "the state belongs to a run with another setting of exact=",
            f"load_state_dict: exact={there!r} in the state, {exact!r} here",
            f"use Loader(exact={there!r}), as the saved run did",
        )
