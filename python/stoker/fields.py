"""Fields: what a loader takes of each sample, and as what.

================ =============================== ======================================
field            of a sample                     in a batch
================ =============================== ======================================
``Image(...)``   a picture                       tensor [B, 3, H, W] or [B, H, W, 3]
``Label()``      its class                       int64 tensor [B]
``Int("cls")``   a number as text, or in JSON    int64 tensor [B]
``Float("w")``   a number as text, or in JSON    float64 tensor [B]
``Bytes("pdf")`` a member as it is               :class:`stoker.Bytes`: B views, no copy
``Text("txt")``  UTF-8 text, or text in JSON     list of B str
``Json("json")`` JSON                            list of B Python objects
``MessagePack`` ``("mp")`` MessagePack           list of B Python objects (needs ``msgpack``)
``Array("npy")`` numbers of npy, npz, JSON ...   tensor [B, ...] or :class:`stoker.Ragged`
``Mask("png")``  a grey or palette PNG           uint8 or int64 tensor [B, H, W]
``Boxes("json")`` boxes                          :class:`stoker.Ragged` float32 [rows, 4]
``"__key__"``    the sample's key                list of B str
``"__id__"``     the sample's number             int64 tensor [B]
``"__mask__"``   padding or not (tail="pad")     bool tensor [B]
================ =============================== ======================================

A member of JSON, MessagePack or npz may be named with a path inside: ``Int("json:width")`` is
``Int("json", path="width")``, ``Array("npz:tokens")`` an array of an npz. Names and indexes stand
between dots, and ``*`` is each of a list: ``Boxes("json:objects.*.box")``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _stoker
from .errors import ArgumentError
from .transforms import Normalize, Transform

__all__ = [
    "Array",
    "Boxes",
    "Bytes",
    "Field",
    "Float",
    "Image",
    "Int",
    "Json",
    "Label",
    "Mask",
    "MessagePack",
    "Text",
]

DTYPES = {
    "uint8": _stoker.UINT8,
    "float32": _stoker.FLOAT32,
    "float16": _stoker.FLOAT16,
    "bfloat16": _stoker.BFLOAT16,
}
ARRAY_DTYPES = {
    **DTYPES,
    "int64": _stoker.INT64,
    "float64": _stoker.FLOAT64,
    "bool": _stoker.BOOL,
    "int8": _stoker.INT8,
    "int16": _stoker.INT16,
    "uint16": _stoker.UINT16,
    "int32": _stoker.INT32,
    "uint32": _stoker.UINT32,
    "uint64": _stoker.UINT64,
}
BOX_FORMATS = {"xyxy": _stoker.XYXY, "xywh": _stoker.XYWH, "cxcywh": _stoker.CXCYWH}
LAYOUTS = {"NCHW": _stoker.NCHW, "NHWC": _stoker.NHWC}

Extensions = str | Sequence[str]
Inside = tuple[str | None, tuple[int, ...], str | None, str | None, int, int, int, int]
Native = tuple[str, int, str | None, tuple[Any, ...], int, int, int, Inside]

_PLANAR = 2  # beside exif, 1

NOTHING_INSIDE: Inside = (None, (), None, None, 0, 0, 0, 0)


def dtype_name(dtype: Any, where: str, names: dict[str, int] = DTYPES) -> str | None:
    """The name of a dtype given as a word, or as torch's or NumPy's object."""
    if dtype is None:
        return None
    if isinstance(dtype, str):
        name = dtype
    else:
        name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
        name = name.removesuffix("_")
    name = name.removeprefix("torch.")
    name = {"half": "float16", "float": "float32"}.get(name, name)
    if name not in names:
        raise ArgumentError(f"dtype {dtype!r}", where, f"give one of {', '.join(names)}")
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


def _member(extensions: Extensions, path: str | None, where: str) -> tuple[str | None, str | None]:
    """Extensions and path of "json:width", or of "json" and a path."""
    if isinstance(extensions, str) and ":" in extensions:
        extensions, _, inner = extensions.partition(":")
        if path is not None or not inner:
            raise ArgumentError(
                f"path {path!r} beside {inner!r}", where, "give one path, as in 'json:width'"
            )
        path = inner
    if path is not None and (not isinstance(path, str) or not path or "\0" in path):
        raise ArgumentError(f"path {path!r}", where, "give text such as 'width' or 'a.0.b'")
    return _extensions(extensions, where), path


class Field:
    """Base of the fields."""

    _kind = 0
    _list = ""  # how a column of variable length is given: "text", "bytes", "ragged", "json", ...

    extensions: str | None = None
    path: str | None = None

    def _native(self, name: str, defaults: Image) -> Native:
        del defaults
        inside = (self.path, *NOTHING_INSIDE[1:])
        return name, self._kind, self.extensions, (), 0, 0, 0, inside

    def _extra(self, name: str) -> Native | None:
        """A second field of the library that belongs to this one."""
        del name
        return None

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
        exact: as of :class:`Loader`.
    """

    _kind = _stoker.FIELD_IMAGE

    def __init__(
        self,
        extensions: Extensions | None = None,
        transforms: Sequence[Transform] | Transform = (),
        dtype: Any = None,
        layout: str | None = None,
        exif: bool | None = None,
        exact: bool | None = None,
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
        self.exact = exact
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
        exact = self.exact if self.exact is not None else defaults.exact is not False
        return (
            name,
            self._kind,
            self.extensions,
            tuple(t._native() for t in self.transforms),
            DTYPES[dtype],
            LAYOUTS[layout],
            int(exif) | (0 if exact else _PLANAR),
            NOTHING_INSIDE,
        )


class Label(Field):
    """The class of a sample: its directory (a folder), or the number in its ``cls`` (tars)."""

    _kind = _stoker.FIELD_LABEL


class _Member(Field):
    def __init__(self, extensions: Extensions) -> None:
        self.extensions = _extensions(extensions, type(self).__name__)


class _Inner(Field):
    def __init__(self, extensions: Extensions, path: str | None = None) -> None:
        self.extensions, self.path = _member(extensions, path, type(self).__name__)


class Int(_Inner):
    """A whole number: the text of a member, ``Int("cls")``, or what is at a path of JSON or
    MessagePack, ``Int("json", path="width")`` or ``Int("json:width")``. int64 [B]."""

    _kind = _stoker.FIELD_INT


class Float(_Inner):
    """A number: the text of a member, ``Float("weight")``, or what is at a path of JSON or
    MessagePack, ``Float("json:score")``. float64 [B]."""

    _kind = _stoker.FIELD_FLOAT


class Bytes(_Member):
    """A member as it is: ``Bytes("json")``."""

    _kind = _stoker.FIELD_BYTES
    _list = "bytes"


class Text(_Inner):
    """UTF-8 text: a member, ``Text("txt")``, or what is at a path of JSON or MessagePack,
    ``Text("json:caption")``. A list of B str.

    Args:
        extensions: the member.
        errors: what to do with bytes that are not UTF-8, as in ``bytes.decode``. ``"strict"``:
            such a sample is damaged.
        path: where in the member the text is.
    """

    _kind = _stoker.FIELD_TEXT
    _list = "text"

    def __init__(
        self, extensions: Extensions, errors: str = "strict", path: str | None = None
    ) -> None:
        super().__init__(extensions, path)
        self.errors = errors
        if errors != "strict":
            if self.path is not None:
                raise ArgumentError(f"errors={errors!r} with a path", "Text", "leave errors out")
            self._kind = _stoker.FIELD_BYTES

    def __repr__(self) -> str:
        return f"Text(extensions={self.extensions!r}, errors={self.errors!r}, path={self.path!r})"


class _Document(_Member):
    def __init__(self, extensions: Extensions, check: bool = True) -> None:
        super().__init__(extensions)
        self.check = bool(check)
        if not self.check:
            self._kind = _stoker.FIELD_BYTES


class Json(_Document):
    """A member of JSON as Python objects, by ``json.loads`` in the loop's thread: a list of B.

    Args:
        extensions: the member.
        check: the library's threads check that it is JSON (RFC 8259: no NaN, integers of 64 bits),
            so that a damaged one is a damaged sample as any other: raised, or replaced. ``False``:
            all that ``json.loads`` takes; what it does not is raised by the loop, whatever
            ``on_error`` says.
    """

    _kind = _stoker.FIELD_JSON
    _list = "json"


class MessagePack(_Document):
    """A member of MessagePack as Python objects, by the ``msgpack`` package: a list of B.

    ``Int("mp:path")`` and its kin read MessagePack without that package.

    Args:
        extensions: the member.
        check: see :class:`Json`.
    """

    _kind = _stoker.FIELD_MSGPACK
    _list = "msgpack"


class Array(Field):
    """Numbers of an ``npy``, ``npz``, JSON or MessagePack member.

    Args:
        extensions: the member, ``"npy"``, ``"npz:tokens"``, ``"json:points"``.
        shape: sides of a sample's array, 3 at most; ``None`` for a side that varies. No side
            varies: a tensor [B, *shape]. Only the first varies: a :class:`stoker.Ragged` of rows.
            Others vary: a Ragged of elements, with the ``shapes`` of the samples. Default: one
            dimension that varies.
        dtype: of the batch: ``"float32"`` (default), any integer, ``"bool"``, ``"float16"``, ...
            Integers are converted if each fits, floats are rounded; a float never becomes an
            integer.
        path: where in the member the array is; the name of an array of an npz.

    A sample whose array has another shape is damaged: its error names the sample and both shapes.
    """

    _kind = _stoker.FIELD_ARRAY

    def __init__(
        self,
        extensions: Extensions,
        shape: Sequence[int | None] | int | None = None,
        dtype: Any = "float32",
        path: str | None = None,
    ) -> None:
        self.extensions, self.path = _member(extensions, path, "Array")
        sides = (None,) if shape is None else (shape,) if isinstance(shape, int) else tuple(shape)
        for side in sides:
            if side is not None and (isinstance(side, bool) or not 0 < side < 2**31):
                raise ArgumentError(f"shape {shape!r}", "Array", "give sides of 1 and more")
        if not 1 <= len(sides) <= 3:
            raise ArgumentError(
                f"shape {shape!r}", "Array", "give 1 to 3 sides; one number is an Int or a Float"
            )
        self.shape = sides
        self.dtype = dtype_name(dtype, "Array", ARRAY_DTYPES) or "float32"
        self._list = "ragged" if None in sides else ""

    def __repr__(self) -> str:
        return (
            f"Array(extensions={self.extensions!r}, shape={self.shape!r}, dtype={self.dtype!r}, "
            f"path={self.path!r})"
        )

    def _native(self, name: str, defaults: Image) -> Native:
        del defaults
        sides = tuple(-1 if side is None else side for side in self.shape)
        inside = (self.path, sides, *NOTHING_INSIDE[2:])
        return name, self._kind, self.extensions, (), ARRAY_DTYPES[self.dtype], 0, 0, inside


class Mask(Field):
    """A segmentation mask: a grey or palette PNG, its values as they are stored, never converted
    to colours; or ids that a PNG's colours stand for. It goes the way of its image (the same crop
    and flips), resized by nearest as torchvision resizes masks; where the image is padded it is 0.
    uint8 or int64 [B, H, W].

    Args:
        extensions: the member: ``"mask.png"``.
        follows: name of the image field; ``None``: the first.
        dtype: ``"uint8"`` or ``"int64"``; default uint8, with ``rgb_ids`` int64. A value above 255
            needs int64.
        rgb_ids: a value is R + 256 G + 65536 B of its pixel, as in COCO's panoptic masks.

    A mask of another size than its image is an error.
    """

    _kind = _stoker.FIELD_MASK

    def __init__(
        self,
        extensions: Extensions,
        follows: str | None = None,
        dtype: Any = None,
        rgb_ids: bool = False,
    ) -> None:
        self.extensions = _extensions(extensions, "Mask")
        self.follows = follows
        names = {"uint8": _stoker.UINT8, "int64": _stoker.INT64}
        self.rgb_ids = bool(rgb_ids)
        self.dtype = dtype_name(dtype, "Mask", names) or ("int64" if rgb_ids else "uint8")

    def _native(self, name: str, defaults: Image) -> Native:
        del defaults
        inside = (None, (), self.follows, None, 0, 0, 0, int(self.rgb_ids))
        return name, self._kind, self.extensions, (), ARRAY_DTYPES[self.dtype], 0, 0, inside


class Boxes(Field):
    """Boxes that follow their image: shifted and clipped by its crop, scaled, flipped, as
    torchvision moves ``BoundingBoxes``. A :class:`stoker.Ragged` of float32 rows x1, y1, x2, y2
    in pixels of the transformed image.

    Args:
        extensions: the member: ``"json"``, ``"json:objects.*.box"``.
        path: where in the member the list of boxes is.
        labels: where the list of their labels (whole numbers) is: ``.labels`` of the result, a
            Ragged of int64 of the boxes that are left.
        format: as they are written: ``"xyxy"``, ``"xywh"`` or ``"cxcywh"``.
        normalised: they are shares of the image's sides, not pixels.
        keep_empty: boxes of which nothing is left stay, without area; else they are dropped.
        follows: name of the image field; ``None``: the first.
    """

    _kind = _stoker.FIELD_BOXES
    _list = "ragged"

    def __init__(
        self,
        extensions: Extensions,
        path: str | None = None,
        labels: str | None = None,
        format: str = "xyxy",
        normalised: bool = False,
        keep_empty: bool = False,
        follows: str | None = None,
    ) -> None:
        self.extensions, self.path = _member(extensions, path, "Boxes")
        if format not in BOX_FORMATS:
            raise ArgumentError(
                f"format {format!r}", "Boxes", f"give one of {', '.join(BOX_FORMATS)}"
            )
        self.labels, self.format, self.follows = labels, format, follows
        self.normalised, self.keep_empty = bool(normalised), bool(keep_empty)

    def _of(self, name: str, kind: int, labels: str | None) -> Native:
        flags = BOX_FORMATS[self.format], int(self.normalised), int(self.keep_empty)
        inside = (self.path, (), self.follows, labels, *flags, 0)
        return name, kind, self.extensions, (), 0, 0, 0, inside

    def _native(self, name: str, defaults: Image) -> Native:
        del defaults
        return self._of(name, self._kind, None)

    def _extra(self, name: str) -> Native | None:
        if self.labels is None:
            return None
        return self._of(f"{name}.labels", _stoker.FIELD_BOX_LABELS, self.labels)


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
                "give Image, Label, Int, Float, Bytes, Text, Json, Array, Mask or Boxes",
            )
        resolved[name] = field
    if not any(field._kind for field in resolved.values()):
        raise ArgumentError("there is no field", "fields", "name at least one")
    return resolved


def all_exact(fields: dict[str, Any] | None, exact: bool) -> bool:
    """Whether all pictures of these fields are exact; exact: of those that do not say it."""
    images = [field for field in (fields or {}).values() if isinstance(field, Image)]
    said = [image.exact for image in images] or [None]
    return all(exact if each is None else each for each in said)
