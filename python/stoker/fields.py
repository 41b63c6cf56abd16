"""Fields: what a loader takes of each sample, and as what.

================ =============================== ======================================
field            of a sample                     in a batch
================ =============================== ======================================
``Image(...)``   a picture                       tensor [B, 3, H, W] or [B, H, W, 3]
``Label()``      its class                       int64 tensor [B]
``Int("cls")``   a number as text                int64 tensor [B]
``Float("w")``   a number as text                float64 tensor [B]
``Bytes("pdf")`` a member as it is               :class:`stoker.Bytes`: B views, no copy
``Text("txt")``  UTF-8 text                      list of B str
``"__key__"``    the sample's key                list of B str
``"__id__"``     the sample's number             int64 tensor [B]
``"__mask__"``   padding or not (tail="pad")     bool tensor [B]
================ =============================== ======================================
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Union

from . import _stoker
from .errors import ArgumentError
from .transforms import Normalize, Transform

__all__ = ["Bytes", "Field", "Float", "Image", "Int", "Label", "Text"]

DTYPES = {
    "uint8": _stoker.UINT8,
    "float32": _stoker.FLOAT32,
    "float16": _stoker.FLOAT16,
    "bfloat16": _stoker.BFLOAT16,
}
LAYOUTS = {"NCHW": _stoker.NCHW, "NHWC": _stoker.NHWC}

Extensions = Union[str, Sequence[str]]
Native = tuple[str, int, Union[str, None], tuple[Any, ...], int, int, int]


def dtype_name(dtype: Any, where: str) -> str | None:
    """The name of a dtype given as a word, or as torch's or NumPy's object."""
    if dtype is None:
        return None
    if isinstance(dtype, str):
        name = dtype
    else:
        name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    name = name.removeprefix("torch.")
    name = {"half": "float16", "float": "float32"}.get(name, name)
    if name not in DTYPES:
        raise ArgumentError(f"dtype {dtype!r}", where, f"give one of {', '.join(DTYPES)}")
    return name


def layout_name(layout: Any, where: str) -> str | None:
    """The name of a layout, checked."""
    if layout is not None and layout not in LAYOUTS:
        raise ArgumentError(f"layout {layout!r}", where, "give 'NCHW' or 'NHWC'")
    return None if layout is None else str(layout)


def _extensions(extensions: Extensions | None, where: str) -> str | None:
    """ "jpg;jpeg": lower case, without a first dot."""
    if extensions is None:
        return None
    parts = extensions.split(";") if isinstance(extensions, str) else list(extensions)
    names = [part.strip().lower().removeprefix(".") for part in parts]
    if not names or any(not name or ";" in name or "\0" in name for name in names):
        raise ArgumentError(f"extensions {extensions!r}", where, "give 'jpg' or 'jpg;jpeg'")
    return ";".join(names)


class Field:
    """Base of the fields."""

    _kind = 0
    _list = ""  # how a column of variable length is given: "", "text", "bytes"

    extensions: str | None = None

    def _native(self, name: str, defaults: Image) -> Native:
        del defaults
        return name, self._kind, self.extensions, (), 0, 0, 0

    def __repr__(self) -> str:
        inner = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({inner})"


class Image(Field):
    """A picture, decoded to RGB and transformed.

    Args:
        extensions: the member, ``"jpg"`` or ``"jpg;jpeg;png"`` (the first that a sample has);
            ``None``: any picture.
        transforms: what is done to it; they must end in one size for all pictures.
        dtype: ``"uint8"`` (0..255), ``"float32"``, ``"float16"`` or ``"bfloat16"`` (0..1 before
            :class:`Normalize`); ``None``: float32 if normalised, else uint8. torch's and
            NumPy's dtype objects are taken too.
        layout: ``"NCHW"`` (default) or ``"NHWC"``.
        exif: turn the picture by its EXIF orientation.
    """

    _kind = _stoker.FIELD_IMAGE

    def __init__(
        self,
        extensions: Extensions | None = None,
        transforms: Sequence[Transform] | Transform = (),
        dtype: Any = None,
        layout: str | None = None,
        exif: bool | None = None,
    ) -> None:
        self.extensions = _extensions(extensions, "Image")
        self.transforms = [transforms] if isinstance(transforms, Transform) else list(transforms)
        for transform in self.transforms:
            if not isinstance(transform, Transform):
                raise ArgumentError(
                    f"{transform!r} is not one of stoker's transforms",
                    "Image",
                    "use stoker.RandomResizedCrop and its kin; other work fits transform=",
                )
        self.dtype = dtype_name(dtype, "Image")
        self.layout = layout_name(layout, "Image")
        self.exif = exif
        if self.dtype == "uint8" and any(isinstance(t, Normalize) for t in self.transforms):
            raise ArgumentError("Normalize with dtype uint8", "Image", "take a float dtype")

    def _native(self, name: str, defaults: Image) -> Native:
        normalised = any(isinstance(transform, Normalize) for transform in self.transforms)
        dtype = self.dtype or defaults.dtype or ("float32" if normalised else "uint8")
        if dtype == "uint8" and normalised:
            raise ArgumentError(
                "Normalize with dtype uint8", f"field {name!r}", "take a float dtype"
            )
        layout = self.layout or defaults.layout or "NCHW"
        exif = self.exif if self.exif is not None else bool(defaults.exif)
        return (
            name,
            self._kind,
            self.extensions,
            tuple(t._native() for t in self.transforms),
            DTYPES[dtype],
            LAYOUTS[layout],
            int(exif),
        )


class Label(Field):
    """The class of a sample: its directory (a folder), or the number in its ``cls`` (tars)."""

    _kind = _stoker.FIELD_LABEL


class _Member(Field):
    def __init__(self, extensions: Extensions) -> None:
        self.extensions = _extensions(extensions, type(self).__name__)


class Int(_Member):
    """A whole number, written as text in a member: ``Int("cls")``."""

    _kind = _stoker.FIELD_LABEL


class Float(_Member):
    """A number, written as text in a member: ``Float("weight")``."""

    _kind = _stoker.FIELD_FLOAT


class Bytes(_Member):
    """A member as it is: ``Bytes("json")``."""

    _kind = _stoker.FIELD_BYTES
    _list = "bytes"


class Text(_Member):
    """A member of UTF-8 text: ``Text("txt")``.

    Args:
        extensions: the member.
        errors: what to do with bytes that are not UTF-8, as in ``bytes.decode``.
    """

    _kind = _stoker.FIELD_BYTES
    _list = "text"

    def __init__(self, extensions: Extensions, errors: str = "strict") -> None:
        super().__init__(extensions)
        self.errors = errors


class _Key(Field):
    _kind = _stoker.FIELD_KEY
    _list = "text"
    errors = "surrogateescape"  # a name in a tar need not be UTF-8; as Python's tarfile


class _Id(Field):
    _kind = _stoker.FIELD_SAMPLE


class _Mask(Field):
    _kind = 0  # not a field of the library: every batch has it


WORDS: dict[str, Field] = {"__key__": _Key(), "__id__": _Id(), "__mask__": _Mask()}


def resolve(fields: dict[str, Field | str]) -> dict[str, Field]:
    """The fields with their words replaced, checked."""
    resolved: dict[str, Field] = {}
    for name, field in fields.items():
        if not isinstance(name, str) or not name or "\0" in name:
            raise ArgumentError(f"a field is named {name!r}", "fields", "give each a name")
        if isinstance(field, str):
            if field not in WORDS:
                raise ArgumentError(
                    f"field {name!r} is {field!r}",
                    "fields",
                    f"give a field, as Bytes({field!r}), or one of {', '.join(WORDS)}",
                )
            field = WORDS[field]
        if not isinstance(field, Field):
            raise ArgumentError(
                f"field {name!r} is {field!r}",
                "fields",
                "give Image, Label, Int, Float, Bytes or Text",
            )
        resolved[name] = field
    if not any(field._kind for field in resolved.values()):
        raise ArgumentError("there is no field", "fields", "name at least one")
    return resolved
