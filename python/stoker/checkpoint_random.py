"""The states of random number generators, as part of the state of a training."""

from __future__ import annotations

import hashlib
import random
import struct
import sys
from typing import Any

from .errors import ArgumentError, StateError

__all__ = ["RandomStates"]

_VERSION = 1
_WORDS = struct.Struct("<625I")  # of Python's generator: 624 words and a position


class RandomStates:
    """The states of the random number generators of this process.

    ::

        state = {"model": model, "optimizer": optimizer, "random": stoker.RandomStates()}
        ckpt.save(step, state)
        ckpt.restore(state)      # the next random numbers are those that followed the save

    Parameters:
        generators: generators with a state of their own: a ``random.Random``, a
            ``numpy.random.Generator`` or a ``torch.Generator``.

    The states are those of the module ``random``, of ``numpy.random``, and of torch on the CPU and
    on each CUDA device, as far as this process has imported NumPy and torch and uses CUDA when it
    saves. They are stored as bytes and numbers of each rank, without pickle. If another number of
    ranks restores them, each rank gets new states, which depend on the saved ones and on its rank
    only. The states of CUDA devices that this process does not have are left out.
    """

    def __init__(self, **generators: Any) -> None:
        for name, generator in generators.items():
            _kind_of(generator, name)
        self._generators = generators

    def state_dict(self) -> dict[str, Any]:
        """The states, as numbers, text and bytes."""
        rank, ranks = _place()
        state: dict[str, Any] = {
            "version": _VERSION,
            "rank": rank,
            "ranks": ranks,
            "python": _python_state(random),
        }
        numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
        if numpy is not None:
            state["numpy"] = _pack(numpy.random.get_state(legacy=False))
        if torch is not None:
            state["torch"] = _bytes(torch.get_rng_state())
            if torch.cuda.is_available() and torch.cuda.is_initialized():
                state["cuda"] = [_bytes(each) for each in torch.cuda.get_rng_state_all()]
        state["generators"] = {
            name: _generator_state(each, name) for name, each in self._generators.items()
        }
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the states."""
        if state.get("version") != _VERSION:
            raise StateError(
                f"random states of version {state.get('version')!r} are unknown",
                "RandomStates",
                "restore them with a later version of stoker",
            )
        saved = state["generators"]
        if saved.keys() != self._generators.keys():
            raise StateError(
                f"the checkpoint has states of {', '.join(saved) or 'no'} generators, not of "
                f"{', '.join(self._generators) or 'none'}",
                "RandomStates",
                "pass the generators that the save had, by the same names",
            )
        rank, ranks = _place()
        if (rank, ranks) != (state["rank"], state["ranks"]):
            self._seed(state, rank)
            return
        _set_python_state(random, state["python"])
        if "numpy" in state:
            import numpy

            numpy.random.set_state(_unpack(state["numpy"]))
        if "torch" in state:
            import torch

            torch.set_rng_state(_tensor(state["torch"]))
            if state.get("cuda") and torch.cuda.is_available():
                for device in range(min(len(state["cuda"]), torch.cuda.device_count())):
                    torch.cuda.set_rng_state(_tensor(state["cuda"][device]), device)
        for name, generator in self._generators.items():
            _set_generator_state(generator, name, saved[name])

    def _seed(self, state: dict[str, Any], rank: int) -> None:
        """Seeds all generators for a rank that did not save: streams of ranks must differ."""
        base = state["python"]["words"] + state.get("torch", b"")

        def seed(name: str, bits: int) -> int:
            data = hashlib.sha256(base + f"{rank} {name}".encode()).digest()
            return int.from_bytes(data, "little") % 2**bits

        random.seed(seed("python", 256))
        if "numpy" in state:
            import numpy

            numpy.random.seed(seed("numpy", 32))
        if "torch" in state:
            import torch

            torch.manual_seed(seed("torch", 63))  # also on all CUDA devices
        for name, generator in self._generators.items():
            kind = _kind_of(generator, name)
            if kind == "python":
                generator.seed(seed(f"generator {name}", 256))
            elif kind == "torch":
                generator.manual_seed(seed(f"generator {name}", 63))
            else:
                bits = generator.bit_generator
                bits.state = type(bits)(seed(f"generator {name}", 128)).state


def _place() -> tuple[int, int]:
    """This rank, and the number of ranks."""
    dist = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available() or not dist.is_initialized():
        return 0, 1
    return dist.get_rank(), dist.get_world_size()


def _kind_of(generator: Any, name: str) -> str:
    if isinstance(generator, random.Random) and not isinstance(generator, random.SystemRandom):
        return "python"
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(generator, torch.Generator):
        return "torch"
    if hasattr(getattr(generator, "bit_generator", None), "state"):
        return "numpy"
    raise ArgumentError(
        f"a {type(generator).__name__} is no random number generator",
        name,
        "pass a random.Random, a numpy.random.Generator or a torch.Generator",
    )


def _generator_state(generator: Any, name: str) -> Any:
    kind = _kind_of(generator, name)
    if kind == "python":
        return {kind: _python_state(generator)}
    if kind == "torch":
        return {kind: _bytes(generator.get_state())}
    return {kind: _pack(generator.bit_generator.state)}


def _set_generator_state(generator: Any, name: str, state: Any) -> None:
    kind = _kind_of(generator, name)
    if kind not in state:
        raise StateError(
            f"the checkpoint has a generator of {', '.join(state)}, not of {kind}",
            f"RandomStates '{name}'",
            "pass a generator of the same kind",
        )
    if kind == "python":
        _set_python_state(generator, state[kind])
    elif kind == "torch":
        generator.set_state(_tensor(state[kind]))
    else:
        generator.bit_generator.state = _unpack(state[kind])


def _python_state(generator: Any) -> dict[str, Any]:
    version, words, gauss = generator.getstate()
    return {"version": version, "words": _WORDS.pack(*words), "gauss": gauss}


def _set_python_state(generator: Any, state: dict[str, Any]) -> None:
    generator.setstate((state["version"], _WORDS.unpack(state["words"]), state["gauss"]))


def _pack(value: Any) -> Any:
    """A state of NumPy with bytes in the place of arrays: an array would be stored once only, as
    if all ranks had the same one."""
    if isinstance(value, dict):
        return {key: _pack(item) for key, item in value.items()}
    if hasattr(value, "tobytes") and hasattr(value, "dtype") and value.ndim > 0:
        little = value.astype(value.dtype.newbyteorder("<"))
        return {"dtype": value.dtype.name, "data": little.tobytes()}
    return value.item() if hasattr(value, "item") else value


def _unpack(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if value.keys() == {"dtype", "data"}:
        import numpy

        dtype = numpy.dtype(value["dtype"])
        return numpy.frombuffer(value["data"], dtype.newbyteorder("<")).astype(dtype)
    return {key: _unpack(item) for key, item in value.items()}


def _bytes(tensor: Any) -> bytes:
    return bytes(tensor.cpu().numpy())


def _tensor(data: bytes) -> Any:
    import torch

    return torch.frombuffer(bytearray(data), dtype=torch.uint8)
