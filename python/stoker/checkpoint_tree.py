"""Trees of values as JSON and tensors, without pickle.

A tree is made of dicts, lists, tuples, numbers, text, bytes, None, and tensors of torch, NumPy and
JAX. :func:`encode` makes JSON of it and lists its tensors by name; :func:`decode` makes the values
of the parsed JSON.
An object with ``state_dict`` stands for its state.

In the JSON, lists, text, numbers and null stand for themselves; everything else is an object
with one key that names its type: ``{"dict": {...}}``, ``{"tuple": [...]}``, ``{"torch": NAME}``.
"""

from __future__ import annotations

import base64
import enum
import json
import math
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from .errors import ArgumentError, FormatError, StateError, UnsupportedError

__all__ = ["SaveTensors", "Tensor", "decode", "encode", "tensor_of"]

_DTYPES = {  # of torch and NumPy -> of safetensors
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "uint16": "U16",
    "int16": "I16",
    "uint32": "U32",
    "int32": "I32",
    "uint64": "U64",
    "int64": "I64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
    "complex64": "C64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "float8_e8m0fnu": "F8_E8M0",
}
_NAMES = {code: name for name, code in _DTYPES.items()}
_LIMIT = 200  # levels of a tree


class Tensor(NamedTuple):
    """A tensor of a tree, ready to be written."""

    name: str
    dtype: str
    """Of safetensors: ``"F32"``."""
    shape: tuple[int, ...]
    address: int
    """0: of an empty tensor, or of one of torch whose values are not in C order in CPU memory."""
    owner: Any
    """Keeps the memory alive."""


class SaveTensors(list):  # type: ignore[type-arg]
    """Tensors as CheckpointWriter.save() takes them; keeps their memory alive."""

    def __init__(self, tensors: list[Tensor]) -> None:
        super().__init__((t.name.encode(), t.dtype, t.shape, t.address) for t in tensors)
        self.owners = [tensor.owner for tensor in tensors]


def _refuse(path: str, value: Any, advice: str) -> ArgumentError:
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    return ArgumentError(f"a {kind} cannot be saved without pickle", f"'{path}'", advice)


def _torch() -> Any:
    return sys.modules.get("torch")


def _numpy_tensor(name: str, array: Any, path: str) -> Tensor:
    import numpy

    masked = sys.modules.get("numpy.ma")
    if masked is not None and isinstance(array, masked.MaskedArray):
        raise _refuse(path, array, "save its .data and its .mask")
    if not array.dtype.isnative and array.dtype.itemsize > 1:
        array = array.astype(array.dtype.newbyteorder("="))
    dtype = _DTYPES.get(array.dtype.name)
    if dtype is None:
        raise _refuse(path, array, f"convert the dtype {array.dtype.name} to one of safetensors")
    array = array if array.flags.c_contiguous else numpy.ascontiguousarray(array)
    return Tensor(name, dtype, tuple(array.shape), array.ctypes.data if array.size else 0, array)


def torch_dtype(tensor: Any) -> str | None:
    """The dtype of safetensors for that of a tensor of torch."""
    return _DTYPES.get(str(tensor.dtype).removeprefix("torch."))


def _instead(tensor: Any) -> str:
    """How a tensor is saved whose dtype safetensors does not have."""
    if tensor.is_complex():
        return ", or save torch.view_as_real(x)"
    if tensor.is_quantized:
        return ", or save x.int_repr() with its scale"
    return ", or save x.view(torch.uint8)" if tensor.element_size() == 1 else ""


def torch_tensor(name: str, tensor: Any, path: str) -> Tensor:
    torch = _torch()
    dtype = torch_dtype(tensor)
    if tensor.is_nested:
        raise _refuse(path, tensor, "it is nested: save its list of tensors, unbind()")
    if tensor.layout != torch.strided:
        raise _refuse(path, tensor, f"it is {tensor.layout}: save its values and indices")
    if dtype is None:
        raise _refuse(path, tensor, f"convert its dtype {tensor.dtype}{_instead(tensor)}")
    if tensor.device.type == "meta":
        raise _refuse(path, tensor, "a tensor on the device meta has no data")
    tensor = tensor.detach()
    address = tensor.data_ptr() if tensor.numel() and is_plain(tensor) else 0
    return Tensor(name, dtype, tuple(tensor.shape), address, tensor)


def tensor_of(name: str, value: Any, path: str) -> tuple[Tensor, str] | None:
    """The tensor behind a value, and its kind; None: the value is no tensor."""
    torch = _torch()
    if torch is not None and isinstance(value, torch.Tensor):
        return torch_tensor(name, value, path), "torch"
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.ndarray):
        return _numpy_tensor(name, value, path), "numpy"
    if numpy is not None and isinstance(value, numpy.generic):
        return _numpy_tensor(name, numpy.asarray(value), path), "scalar"
    if type(value).__module__.partition(".")[0] in ("jax", "jaxlib") and hasattr(value, "dtype"):
        import numpy as np

        if not getattr(value, "is_fully_addressable", True):
            raise _refuse(path, value, "save the parts of an array that other processes hold there")
        try:
            array = np.asarray(value)
        except TypeError:
            raise _refuse(path, value, "save jax.random.key_data(key)") from None
        return _numpy_tensor(name, array, path), "jax"
    return None


class _Encoder:
    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self.names: set[str] = set()
        self.known: dict[tuple[Any, ...], str] = {}
        self.alive: list[Any] = []
        self.local: set[str] = set()  # names of parts that only this rank has

    def name_of(self, path: str) -> str:
        name, number = path.replace("\0", "") or "tensor", 2
        while name in self.names:
            name, number = f"{path or 'tensor'}#{number}", number + 1
        return name

    def dtensor(self, value: Any, path: str) -> Any:
        """The part of a DTensor that this rank holds, named by its offsets."""
        from . import checkpoint_ranks

        if any(kind.is_partial() for kind in value.placements):
            raise _refuse(path, value, "reduce the partial sums first: redistribute() it")
        name = self.name_of(path)
        self.names.add(name)
        offsets, _ = checkpoint_ranks.box_of(value)
        part = torch_tensor(f"{name}@{','.join(map(str, offsets))}", value.to_local(), path)
        if checkpoint_ranks.is_writer(value) and 0 not in part.shape:
            self.tensors.append(part)
            self.local.add(part.name)
        return {"dtensor": [name, part.dtype, list(value.shape)]}

    def tensor(self, value: Any, path: str) -> Any:
        if type(value).__name__ == "DTensor" and hasattr(value, "placements"):
            return self.dtensor(value, path)
        key = None
        if hasattr(value, "data_ptr") and hasattr(value, "stride"):
            try:  # tied weights are stored once; views of torch may conjugate or negate on reading
                form = (value.is_conj(), value.is_neg()) if hasattr(value, "is_conj") else ()
                key = (
                    value.data_ptr(), value.dtype, tuple(value.shape), tuple(value.stride()), form
                )
            except (RuntimeError, NotImplementedError):
                key = None
            if key is not None and key[0] != 0 and key in self.known:
                return {"torch": self.known[key]}
        name = self.name_of(path)
        found = tensor_of(name, value, path)
        if found is None:
            return None
        tensor, kind = found
        self.names.add(name)
        self.tensors.append(tensor)
        if key is not None:
            self.known[key] = name
            self.alive.append(value)
        return {kind: name}

    def mapping(self, value: Mapping[Any, Any], path: str, level: int) -> Any:
        parts = [
            (key, self.value(item, f"{path}.{key}" if path else str(key), level + 1))
            for key, item in value.items()
        ]
        for key, _ in parts:
            if isinstance(key, str):
                _text(key, f"{path}.{key}")
        if all(type(key) is str for key, _ in parts):
            return {"dict": dict(parts)}
        for key, _ in parts:
            if key is not None and not isinstance(key, (str, int, float, bool, tuple)):
                raise _refuse(f"{path}.{key}", key, "use keys that are text, numbers or tuples")
        return {"pairs": [[self.value(key, path, level + 1), item] for key, item in parts]}

    def value(self, value: Any, path: str, level: int = 0) -> Any:
        if level > _LIMIT:
            raise ArgumentError(
                "the tree has too many levels", f"'{path[:200]}'", "look for a cycle"
            )
        if value is None or value is True or value is False or type(value) is str:
            return _text(value, path) if type(value) is str else value
        if type(value) is int:
            return value if abs(value) < 2**53 else {"int": _digits(value)}
        if type(value) is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if isinstance(value, str) and not isinstance(value, enum.Enum):  # as torch.__version__
            return _text(str(value), path)
        if isinstance(value, (bytes, bytearray)):
            return {"bytes": base64.b64encode(value).decode()}
        if isinstance(value, Mapping):
            return self.mapping(value, path, level)
        if isinstance(value, (list, tuple)):
            items = [
                self.value(item, f"{path}.{index}" if path else str(index), level + 1)
                for index, item in enumerate(value)
            ]
            return items if isinstance(value, list) else {"tuple": items}
        tensor = self.tensor(value, path)
        return tensor if tensor is not None else self.other(value, path, level)

    def other(self, value: Any, path: str, level: int) -> Any:
        torch = _torch()
        if torch is not None and isinstance(value, torch.dtype):
            return {"torch.dtype": str(value).removeprefix("torch.")}
        if torch is not None and isinstance(value, torch.device):
            return {"torch.device": str(value)}
        if callable(getattr(value, "state_dict", None)) and not isinstance(value, type):
            return self.value(value.state_dict(), path, level + 1)
        raise _refuse(path, value, "save its numbers, text and tensors, or give it a state_dict()")


def _text(value: str, path: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ArgumentError("a text is not valid Unicode", repr(path), "save bytes") from None
    return value


def _digits(value: int) -> str:
    return str(value) if value.bit_length() < 10_000 else hex(value)  # Python limits str()


def encode(value: Any) -> tuple[str, list[Tensor], set[str]]:
    """The JSON of a tree, its tensors, and the names of those that only this rank has."""
    encoder = _Encoder()
    tree = encoder.value(value, "")
    text = json.dumps(tree, ensure_ascii=False, separators=(",", ":"))
    return text, encoder.tensors, encoder.local


_Make = Callable[[Any, str, Any, str], Any]


class _Decoder:
    """Builds the values of a tree. make(name, kind, like, path) provides a tensor."""

    def __init__(self, make: _Make) -> None:
        self.make = make

    def value(self, node: Any, like: Any, path: str) -> Any:
        if node is None or isinstance(node, (str, bool, int, float)):
            return node
        if isinstance(node, list):
            return self.items(node, like, path)
        if not isinstance(node, dict) or len(node) != 1:
            raise FormatError("the tree has an unknown node", f"'{path}'", "use a later version")
        ((kind, content),) = node.items()
        if kind in ("torch", "numpy", "scalar", "jax", "dtensor"):
            return self.make(content, kind, like, path)
        if kind in ("dict", "pairs"):
            return self.mapping(content, like, path)
        if kind == "tuple":
            items = self.items(content, like, path)
            if isinstance(like, tuple) and hasattr(like, "_fields") and len(like) == len(items):
                return type(like)(*items)
            return tuple(items)
        return self.scalar(kind, content, path)

    def items(self, node: list[Any], like: Any, path: str) -> list[Any]:
        likes = like if isinstance(like, (list, tuple)) and len(like) == len(node) else None
        return [
            self.value(item, likes[i] if likes else None, f"{path}.{i}" if path else str(i))
            for i, item in enumerate(node)
        ]

    def mapping(self, content: Any, like: Any, path: str) -> dict[Any, Any]:
        pairs = content.items() if isinstance(content, dict) else content
        result = {}
        for key, item in pairs:
            name = key if isinstance(content, dict) else self.value(key, None, path)
            under = like.get(name) if isinstance(like, Mapping) else None
            result[name] = self.value(item, under, f"{path}.{name}" if path else str(name))
        return result

    @staticmethod
    def scalar(kind: str, content: Any, path: str) -> Any:
        if kind == "int":
            return int(content, 16 if "x" in content else 10)
        if kind == "float":
            return float(content)
        if kind == "bytes":
            return base64.b64decode(content, validate=True)
        if kind in ("torch.dtype", "torch.device"):
            import torch

            if kind == "torch.device":
                return torch.device(content)
            dtype = getattr(torch, content, None)
            if isinstance(dtype, torch.dtype):
                return dtype
        raise FormatError(
            f"the tree has an unknown type {kind!r}", f"'{path}'", "use a later version"
        )


def decode(tree: Any, make: _Make, like: Any = None) -> Any:
    """The value of a parsed tree. ``like``: a value of the same structure; its memory is reused."""
    return _Decoder(make).value(tree, like, "")


def _mismatch(path: str, expected: str, found: str) -> StateError:
    return StateError(
        f"the checkpoint has {found} where {expected} is expected",
        f"'{path}'",
        "restore into a model of the same shape and dtype",
    )


def check_form(like: Any, dtype: str, shape: tuple[int, ...], path: str) -> None:
    """Raises StateError if a tensor of torch has another dtype or shape."""
    if tuple(like.shape) != shape or torch_dtype(like) != dtype:
        found = str(like.dtype).removeprefix("torch.")
        raise _mismatch(path, f"{found} {tuple(like.shape)}", f"{dtype} {shape}")


def is_plain(tensor: Any) -> bool:
    """Whether the bytes of a tensor of torch are its values, in C order, in CPU memory."""
    return bool(
        type(tensor.data) is _torch().Tensor
        and tensor.device.type == "cpu"
        and tensor.is_contiguous()
        and not tensor.is_conj()
        and not tensor.is_neg()
    )


def is_elsewhere(tensor: Any) -> bool:
    """Whether it is a tensor of torch that a load fills by a copy, such as one of a GPU."""
    torch = _torch()
    return bool(
        torch is not None
        and isinstance(tensor, torch.Tensor)
        and type(tensor.data) is torch.Tensor
        and tensor.device.type != "meta"
        and tensor.layout == torch.strided
        and not is_plain(tensor)
    )


def dtype_name(dtype: str) -> str:
    """The dtype of torch and NumPy for one of safetensors."""
    return _NAMES[dtype]


def memory_for(kind: str, dtype: str, shape: tuple[int, ...], like: Any, path: str) -> Any:
    """Memory for a tensor: that of ``like`` if it can be written directly, else new."""
    torch = _torch()
    if torch is not None and isinstance(like, torch.Tensor):
        check_form(like, dtype, shape, path)
        if is_plain(like):
            return like.data
        return torch.empty(shape, dtype=like.dtype)
    if like is not None and type(like).__name__ == "ndarray":
        if tuple(like.shape) != shape or _DTYPES.get(like.dtype.name) != dtype:
            raise _mismatch(path, f"{like.dtype.name} {like.shape}", f"{dtype} {shape}")
        if like.flags.c_contiguous and like.flags.writeable and like.dtype.isnative:
            return like
    name = _NAMES.get(dtype)
    if name is None:
        raise UnsupportedError(
            f"tensors of dtype {dtype} cannot be read", f"'{path}'", "convert it to another dtype"
        )
    if kind == "torch":
        import torch as needed

        dtype_of_torch = getattr(needed, name, None)
        if dtype_of_torch is None:
            raise UnsupportedError(
                f"this version of torch has no {name}", f"'{path}'", "use a later version of torch"
            )
        return needed.empty(shape, dtype=dtype_of_torch)
    import numpy

    if name == "bfloat16" or name.startswith("float8"):
        import ml_dtypes

        return numpy.empty(shape, dtype=getattr(ml_dtypes, name))
    return numpy.empty(shape, dtype=name)


def address_of(memory: Any) -> int:
    if hasattr(memory, "data_ptr"):
        return int(memory.data_ptr())
    return int(memory.ctypes.data)
