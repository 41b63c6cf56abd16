"""The values of a state: their text for the manifest, and how they are filled in place."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

from ._options import count
from .checkpoint_reader import ParameterState
from .errors import ArgumentError, StateError

__all__ = ["check_metrics", "like_of", "metrics_of", "metrics_text", "put", "retention"]


def plain(value: Any) -> Any:
    """A number of a tensor or array with one element; else the value."""
    if hasattr(value, "item") and not isinstance(value, (str, int, float, bool)):
        try:
            return value.item()
        except (ValueError, RuntimeError) as error:
            raise ArgumentError(
                f"a metric is no number: {error}", "metrics", "pass numbers and texts"
            ) from None
    return value


_SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def metrics_of(text: str | None) -> dict[str, Any]:
    """The metrics of a manifest. JSON has no NaN and infinity: they are stored as texts."""
    values = json.loads(text) if text else {}
    return {
        name: _SPECIAL.get(value, value) if isinstance(value, str) else value
        for name, value in values.items()
    }


def _special(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def metrics_text(metrics: Mapping[str, Any] | None) -> str | None:
    """The JSON of metrics for a manifest."""
    if metrics is None:
        return None
    if not isinstance(metrics, Mapping):
        raise ArgumentError(
            f"a {type(metrics).__name__} is no dict", "metrics", "pass {'loss': 1.5}"
        )
    values = {name: _special(plain(value)) for name, value in metrics.items()}
    try:
        return json.dumps(values, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"the metrics are not JSON: {error}", "metrics", "pass numbers and texts"
        ) from None


def put(target: Any, value: Any) -> bool:
    """Puts a value into an object in place. Returns False if the object cannot change."""
    if callable(getattr(target, "load_state_dict", None)):
        target.load_state_dict(value)
        return True
    if target is value:
        return True
    if hasattr(target, "data_ptr") and hasattr(target, "copy_"):
        import torch

        with torch.no_grad():
            target.copy_(value)
        return True
    if type(target).__name__ == "ndarray" and target.flags.writeable:
        target[...] = value
        return True
    if isinstance(target, MutableMapping) and isinstance(value, dict):
        for key, item in value.items():
            under = target.get(key)
            if key not in target or not put(under, item):
                target[key] = item
        return True
    if isinstance(target, list) and isinstance(value, list):
        if len(target) != len(value):
            target[:] = value
            return True
        for index, item in enumerate(value):
            if not put(target[index], item):
                target[index] = item
        return True
    return False


def like_of(value: Any) -> Any:
    """The value whose memory is reused: the state of an object."""
    if callable(getattr(value, "state_dict", None)):
        state = value.state_dict()
        if hasattr(value, "param_groups") and isinstance(state, Mapping):
            return _optimizer_like(value, state)
        return state
    if isinstance(value, Mapping):
        return {key: like_of(item) for key, item in value.items()}
    if isinstance(value, list):
        return [like_of(item) for item in value]
    return value


def _optimizer_like(optimizer: Any, state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Before its first step an optimizer has no state: that of a DTensor is like the parameter."""
    groups = state.get("param_groups")
    if not isinstance(groups, list) or not isinstance(state.get("state"), Mapping):
        return state
    parts = dict(state["state"])
    for group, names in zip(optimizer.param_groups, groups, strict=True):
        for parameter, name in zip(group["params"], names["params"], strict=True):
            if name not in parts and type(parameter.data).__name__ == "DTensor":
                parts[name] = ParameterState(parameter)
    return {**state, "state": parts}


def retention(
    keep_last: int | None, keep_every: int | None, keep_best: Any
) -> tuple[int, int, str | None, int, bool]:
    last = count(keep_last, "keep_last", low=1)
    every = count(keep_every, "keep_every", low=1, high=2**53)
    if keep_best is None:
        return last, every, None, 0, False
    if (
        not isinstance(keep_best, tuple)
        or len(keep_best) not in (2, 3)
        or not isinstance(keep_best[0], str)
        or (len(keep_best) == 3 and keep_best[2] not in ("min", "max"))
    ):
        raise ArgumentError(
            f"{keep_best!r} is not valid", "keep_best", "pass ('loss', 2) or ('accuracy', 2, 'max')"
        )
    best = count(keep_best[1], "keep_best", low=1)
    return last, every, keep_best[0], best, keep_best[2:] == ("max",)


def check_metrics(
    check: Callable[[], Mapping[str, Any]],
    tolerance: float | Mapping[str, float],
    saved: Mapping[str, Any],
    where: str,
) -> None:
    """Computes metrics again, and raises StateError if one differs from what a save stored."""
    found = check()
    if not isinstance(found, Mapping) or not found:
        raise ArgumentError(
            f"check returned {found!r}, not a dict of metrics",
            "check",
            "return one such as {'loss': 1.5}",
        )
    for name, value in found.items():
        if name not in saved:
            raise ArgumentError(
                f"the save stored no metric {name!r}",
                where,
                "pass it as metrics= of save(); it has " + (", ".join(saved) or "none"),
            )
        limit = tolerance.get(name, 0.0) if isinstance(tolerance, Mapping) else tolerance
        _check_metric(name, plain(value), saved[name], limit, where)


def _check_metric(name: str, value: Any, saved: Any, limit: float, where: str) -> None:
    numbers = all(type(each) in (int, float) for each in (value, saved))
    if numbers and math.isfinite(value):
        same = abs(value - saved) <= limit * max(abs(saved), abs(value))
    else:
        same = type(value) is type(saved) and (value == saved or (value != value != saved != saved))
    if not same:
        raise StateError(
            f"{name} is {value!r} after the restore, and {saved!r} when the step was saved; the "
            f"tolerance is {limit:g} of it",
            where,
            "check that model, data and settings are those of the save, or restore another step",
        )
