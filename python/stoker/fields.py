"""Fields: the parts of a sample that a loader returns, and their types in a batch.

================ =============================== ======================================
field            part of a sample                in a batch
================ =============================== ======================================
``Image(...)``   an image                        tensor [B, 3, H, W] or [B, H, W, 3]
``Label()``      the class                       int64 tensor [B]
``Int("cls")``   a number as text, or in JSON    int64 tensor [B]
``Float("w")``   a number as text, or in JSON    float64 tensor [B]
``Bytes("pdf")`` the bytes of a member           :class:`stoker.Bytes`: B views, no copy
``Text("txt")``  UTF-8 text, or text in JSON     list of B str
``Json("json")`` JSON                            list of B Python objects
``MessagePack`` ``("mp")`` MessagePack           list of B Python objects (needs ``msgpack``)
``Array("npy")`` numbers of npy, npz, JSON ...   tensor [B, ...] or :class:`stoker.Ragged`
``Mask("png")``  a grey or palette PNG           uint8 or int64 tensor [B, H, W]
``Boxes("json")`` boxes                          :class:`stoker.Ragged` float32 [rows, 4]
``"__key__"``    the sample's key                list of B str
``"__id__"``     the sample's number             int64 tensor [B]
``"__mask__"``   False for padding (tail="pad")  bool tensor [B]
================ =============================== ======================================

A JSON, MessagePack or npz member can be combined with a path inside it: ``Int("json:width")`` is
``Int("json", path="width")``, ``Array("npz:tokens")`` is an array of an npz. Dots separate names
and indexes of a path; ``*`` stands for each item of a list: ``Boxes("json:objects.*.box")``.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

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
ARRAY_CODES = {
    "uint8": "B",
    "float32": "f",
    "float16": "e",
    "int64": "q",
    "float64": "d",
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "uint64": "Q",
}
BOX_FORMATS = {"xyxy": _stoker.XYXY, "xywh": _stoker.XYWH, "cxcywh": _stoker.CXCYWH}
INT_DTYPES = {name: ARRAY_DTYPES[name] for name in ("int64", "uint64")}
LAYOUTS = {"NCHW": _stoker.NCHW, "NHWC": _stoker.NHWC}

Extensions = str | Sequence[str]


class Inside(NamedTuple):
    """The part of a native field that few kinds have, in the order of the extension."""

    path: str | None = None
    shape: tuple[int, ...] = ()
    follows: str | None = None
    labels: str | None = None
    box_format: int = 0
    normalised: int = 0
    keep_empty: int = 0
    rgb_ids: int = 0
    default: bytes | None = None
    label_from_path: int = 0


Native = tuple[str, int, str | None, tuple[Any, ...], int, int, int, Inside]

_PLANAR = 2  # a bit beside exif, which is 1


def dtype_name(dtype: Any, where: str, names: dict[str, int] = DTYPES) -> str | None:
    """The name of a dtype, which is a word or an object of torch or NumPy."""
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
        raise ArgumentError(f"unknown dtype {dtype!r}", where, f"pass one of {', '.join(names)}")
    return name


def layout_name(layout: Any, where: str) -> str | None:
    """Checks and returns the name of a layout."""
    if layout is not None and layout not in LAYOUTS:
        raise ArgumentError(f"unknown layout {layout!r}", where, "pass 'NCHW' or 'NHWC'")
    return None if layout is None else str(layout)


def _extensions(extensions: Extensions | None, where: str) -> str | None:
    """Extensions as "jpg;jpeg": lower case, without a leading dot."""
    if extensions is None:
        return None
    parts = extensions.split(";") if isinstance(extensions, str) else list(extensions)
    names = [part.strip().lower().removeprefix(".") for part in parts]
    if not names or any(not name or ";" in name or "\0" in name for name in names):
        raise ArgumentError(
            f"extensions {extensions!r} are not text", where, "pass 'jpg' or 'jpg;jpeg'"
        )
    return ";".join(names)


def _member(extensions: Extensions, path: str | None, where: str) -> tuple[str | None, str | None]:
    """Splits "json:width" into extensions and path."""
    if isinstance(extensions, str) and ":" in extensions:
        extensions, _, inner = extensions.partition(":")
        if path is not None or not inner:
            raise ArgumentError(
                f"both path {path!r} and {inner!r} are given",
                where,
                "pass one path, as in 'json:width'",
            )
        path = inner
    if path is not None and (not isinstance(path, str) or not path or "\0" in path):
        raise ArgumentError(
                f"path {path!r} is not a path", where, "pass text such as 'width' or 'a.0.b'"
            )
    return _extensions(extensions, where), path


class Field:
    """Base of the fields."""

    _kind = 0
    _list = ""  # type of a column of variable length: "text", "bytes", "ragged", "json", ...

    extensions: str | None = None
    path: str | None = None

    def _native(self, name: str, defaults: Image) -> Native:
        del defaults
        inside = Inside(self.path, default=self._default_bytes())
        return name, self._kind, self.extensions, (), 0, 0, 0, inside

    def _default_bytes(self) -> bytes | None:
        """The default as the library takes it; None: there is none."""
        return None

    def _extra(self, name: str) -> Native | None:
        """A second native field that belongs to this one."""
        del name
        return None

    def __repr__(self) -> str:
        inner = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({inner})"


class Image(Field):
    """An image, decoded to RGB and transformed.

    Args:
        extensions: the member, ``"jpg"`` or ``"jpg;jpeg;png"`` (the first that a sample has);
            ``None``: any image.
        transforms: transforms in order; the result must have one size for all images.
        dtype: ``"uint8"`` (0..255), ``"float32"``, ``"float16"`` or ``"bfloat16"`` (0..1 before
            :class:`Normalize`), or a dtype object of torch or NumPy. ``None``: float32 if
            normalised, else uint8.
        layout: ``"NCHW"`` (default) or ``"NHWC"``.
        exif: apply the EXIF orientation.
        exact: see :class:`Loader`.
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
                    "use the transforms of stoker; for other work use transform=",
                )
        self.dtype = dtype_name(dtype, "Image")
        self.layout = layout_name(layout, "Image")
        self.exif = exif
        self.exact = exact
        if self.dtype == "uint8" and any(isinstance(t, Normalize) for t in self.transforms):
            raise ArgumentError(
                "Normalize cannot return dtype uint8", "Image", "use a float dtype"
            )

    def _native(self, name: str, defaults: Image) -> Native:
        normalised = any(isinstance(transform, Normalize) for transform in self.transforms)
        dtype = self.dtype or defaults.dtype or ("float32" if normalised else "uint8")
        if dtype == "uint8" and normalised:
            raise ArgumentError(
                "Normalize cannot return dtype uint8", f"field {name!r}", "use a float dtype"
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
            Inside(),
        )


class Label(Field):
    """The class of a sample: its folder (class folders), or the number in its ``cls`` (tars).

    Args:
        source: ``"path"``: in tars, too, the folder of the sample is its class: ``n01`` for the key
            ``imagenet/n01/img_1``. The classes are sorted, or those of ``classes=``; see
            :attr:`Loader.classes`. Opening reads all keys. Default: as above.
    """

    _kind = _stoker.FIELD_LABEL

    def __init__(self, source: str | None = None) -> None:
        if source not in (None, "path"):
            raise ArgumentError(f"unknown source {source!r}", "Label", "pass 'path', or nothing")
        self.source = source

    def _native(self, name: str, defaults: Image) -> Native:
        return (*super()._native(name, defaults)[:-1], Inside(label_from_path=int(self.by_path)))

    @property
    def by_path(self) -> bool:
        return self.source == "path"


class _Member(Field):
    def __init__(self, extensions: Extensions) -> None:
        self.extensions = _extensions(extensions, type(self).__name__)


class _Inner(Field):
    def __init__(
        self, extensions: Extensions, path: str | None = None, default: Any = None
    ) -> None:
        self.extensions, self.path = _member(extensions, path, type(self).__name__)
        self.default = default
        self._default_bytes()


def _packed(value: Any, code: str, where: str) -> bytes:
    """A number as the library takes it."""
    try:
        return struct.pack("=" + code, bool(value) if code == "?" else value)
    except (struct.error, TypeError, OverflowError):
        raise ArgumentError(
            f"default {value!r} does not fit the field", where, "pass a number that does"
        ) from None


class Int(_Inner):
    """An integer: the text of a member, ``Int("cls")``, or the value at a path of JSON or
    MessagePack, ``Int("json", path="width")`` or ``Int("json:width")``. int64 [B], or uint64 [B]
    with ``dtype="uint64"``: for hashes and ids of 64 bits. Samples without it have ``default``, if
    one is passed."""

    _kind = _stoker.FIELD_INT

    def __init__(
        self,
        extensions: Extensions,
        path: str | None = None,
        default: Any = None,
        dtype: Any = "int64",
    ) -> None:
        self.dtype = dtype_name(dtype, "Int", INT_DTYPES) or "int64"
        super().__init__(extensions, path, default)

    def _native(self, name: str, defaults: Image) -> Native:
        inside = super()._native(name, defaults)[-1]
        return name, self._kind, self.extensions, (), INT_DTYPES[self.dtype], 0, 0, inside

    def _default_bytes(self) -> bytes | None:
        code = ARRAY_CODES[self.dtype]
        return None if self.default is None else _packed(self.default, code, "Int")


class Float(_Inner):
    """A number: the text of a member, ``Float("weight")``, or the value at a path of JSON or
    MessagePack, ``Float("json:score")``. float64 [B]. Samples without it have ``default``, if one
    is passed."""

    _kind = _stoker.FIELD_FLOAT

    def _default_bytes(self) -> bytes | None:
        return None if self.default is None else _packed(self.default, "d", "Float")


class Bytes(_Member):
    """The bytes of a member: ``Bytes("json")``. Samples without it have ``default``, if one is
    passed."""

    _kind = _stoker.FIELD_BYTES
    _list = "bytes"

    def __init__(self, extensions: Extensions, default: bytes | None = None) -> None:
        super().__init__(extensions)
        self.default = None if default is None else bytes(default)

    def _default_bytes(self) -> bytes | None:
        return self.default


class Text(_Inner):
    """UTF-8 text: a member, ``Text("txt")``, or the value at a path of JSON or MessagePack,
    ``Text("json:caption")``. A list of B str.

    Args:
        extensions: the member.
        errors: handling of bytes that are not UTF-8, as in ``bytes.decode``. ``"strict"``: such a
            sample is damaged.
        path: path of the text in the member.
        default: text of samples without the member; not together with a path.
    """

    _kind = _stoker.FIELD_TEXT
    _list = "text"

    def __init__(
        self,
        extensions: Extensions,
        errors: str = "strict",
        path: str | None = None,
        default: str | None = None,
    ) -> None:
        super().__init__(extensions, path, default)
        if default is not None and self.path is not None:
            raise ArgumentError(
                "default cannot be combined with path", "Text", "leave one of them out"
            )
        self.errors = errors
        if errors != "strict":
            if self.path is not None:
                raise ArgumentError(
                    f"errors={errors!r} cannot be combined with path", "Text", "leave errors out"
                )
            self._kind = _stoker.FIELD_BYTES

    def _default_bytes(self) -> bytes | None:
        return None if self.default is None else str(self.default).encode()

    def __repr__(self) -> str:
        return f"Text(extensions={self.extensions!r}, errors={self.errors!r}, path={self.path!r})"


class _Document(_Member):
    def __init__(self, extensions: Extensions, check: bool = True) -> None:
        super().__init__(extensions)
        self.check = bool(check)
        if not self.check:
            self._kind = _stoker.FIELD_BYTES


class Json(_Document):
    """A JSON member as Python objects, parsed by ``json.loads`` in the loop's thread: a list of B.

    Args:
        extensions: the member.
        check: the library's threads check that it is valid JSON (RFC 8259: no NaN, integers of 64
            bits), so that an invalid one is handled like any other damaged sample: raised, or
            replaced. ``False``: everything that ``json.loads`` accepts is allowed; its errors are
            raised by the loop, regardless of ``on_error``.
    """

    _kind = _stoker.FIELD_JSON
    _list = "json"


class MessagePack(_Document):
    """A MessagePack member as Python objects, parsed by the ``msgpack`` package: a list of B.

    ``Int("mp:path")``, ``Array("mp:path")`` and other fields read MessagePack without that package.

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
        shape: shape of a sample's array, at most 3 dimensions; ``None`` for a dimension that
            varies. If no dimension varies, the batch is a tensor [B, *shape]; if only the first
            varies, a :class:`stoker.Ragged` of rows; else a Ragged of elements, with the ``shapes``
            of the samples. Default: one dimension that varies.
        dtype: dtype in the batch: ``"float32"`` (default), any integer, ``"bool"``, ``"float16"``,
            ... Integers are converted if each fits, floats are rounded; a float is never converted
            to an integer.
        path: path of the array in the member; the name of an array of an npz.
        default: number in all places of samples without the array, of a fixed shape only.

    A sample whose array has another shape is damaged: its error names the sample and both shapes.
    """

    _kind = _stoker.FIELD_ARRAY

    def __init__(
        self,
        extensions: Extensions,
        shape: Sequence[int | None] | int | None = None,
        dtype: Any = "float32",
        path: str | None = None,
        default: Any = None,
    ) -> None:
        self.default = default
        self.extensions, self.path = _member(extensions, path, "Array")
        sides = (None,) if shape is None else (shape,) if isinstance(shape, int) else tuple(shape)
        for side in sides:
            if side is not None and (isinstance(side, bool) or not 0 < side < 2**31):
                raise ArgumentError(
                    f"shape {shape!r} is not valid", "Array", "pass dimensions of 1 or more"
                )
        if not 1 <= len(sides) <= 3:
            raise ArgumentError(
                f"shape {shape!r} has {len(sides)} dimensions",
                "Array",
                "pass 1 to 3 dimensions; for one number use Int or Float",
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
        inside = Inside(self.path, sides, default=self._default_bytes())
        return name, self._kind, self.extensions, (), ARRAY_DTYPES[self.dtype], 0, 0, inside

    def _default_bytes(self) -> bytes | None:
        if self.default is None:
            return None
        if self.dtype == "bfloat16":
            return _packed(self.default, "f", "Array")[2:]
        return _packed(self.default, ARRAY_CODES[self.dtype], "Array")


class Mask(Field):
    """A segmentation mask: a grey or palette PNG with its stored values, never converted to
    colours; or ids that the colours of a PNG encode. It follows its image (the same crop and
    flips), and is resized by nearest neighbour, as torchvision resizes masks; padding is 0. uint8
    or int64 [B, H, W].

    Args:
        extensions: the member: ``"mask.png"``.
        follows: name of the image field; ``None``: the first one.
        dtype: ``"uint8"`` or ``"int64"``; default uint8, with ``rgb_ids`` int64. A value above 255
            needs int64.
        rgb_ids: a value is R + 256 G + 65536 B of its pixel, as in COCO's panoptic masks.

    A mask with another size than its image is an error.
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
        inside = Inside(follows=self.follows, rgb_ids=int(self.rgb_ids))
        return name, self._kind, self.extensions, (), ARRAY_DTYPES[self.dtype], 0, 0, inside


class Boxes(Field):
    """Boxes that follow their image: shifted and clipped by its crop, scaled and flipped, as
    torchvision transforms ``BoundingBoxes``. A :class:`stoker.Ragged` of float32 rows x1, y1, x2,
    y2 in pixels of the transformed image.

    Args:
        extensions: the member: ``"json"``, ``"json:objects.*.box"``.
        path: path of the list of boxes in the member.
        labels: path of the list of their labels (integers): ``.labels`` of the result, a Ragged of
            int64 for the remaining boxes.
        format: format of the stored boxes: ``"xyxy"``, ``"xywh"`` or ``"cxcywh"``.
        normalised: stored values are fractions of the image's width and height, not pixels.
        keep_empty: keep boxes that the crop removes completely, with an area of 0; else drop them.
        follows: name of the image field; ``None``: the first one.
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
                f"unknown format {format!r}", "Boxes", f"pass one of {', '.join(BOX_FORMATS)}"
            )
        self.labels, self.format, self.follows = labels, format, follows
        self.normalised, self.keep_empty = bool(normalised), bool(keep_empty)

    def _of(self, name: str, kind: int, labels: str | None) -> Native:
        flags = BOX_FORMATS[self.format], int(self.normalised), int(self.keep_empty)
        inside = Inside(self.path, (), self.follows, labels, *flags)
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
    errors = "surrogateescape"  # a name in a tar may not be UTF-8; as in Python's tarfile


class _Id(Field):
    _kind = _stoker.FIELD_SAMPLE


class _Mask(Field):
    _kind = 0  # not a native field: every batch has it


WORDS: dict[str, Field] = {"__key__": _Key(), "__id__": _Id(), "__mask__": _Mask()}


def resolve(fields: dict[str, Field | str]) -> dict[str, Field]:
    """Checks the fields, and replaces words such as "__key__"."""
    resolved: dict[str, Field] = {}
    for name, field in fields.items():
        if not isinstance(name, str) or not name or "\0" in name:
            raise ArgumentError(
                f"{name!r} is not the name of a field", "fields", "pass text without NUL"
            )
        if isinstance(field, str):
            if field not in WORDS:
                raise ArgumentError(
                    f"field {name!r} has the unknown type {field!r}",
                    "fields",
                    f"pass a field such as Bytes({field!r}), or one of {', '.join(WORDS)}",
                )
            field = WORDS[field]
        if not isinstance(field, Field):
            raise ArgumentError(
                f"field {name!r} is not a field but {field!r}",
                "fields",
                "pass Image, Label, Int, Float, Bytes, Text, Json, Array, Mask or Boxes",
            )
        resolved[name] = field
    if not any(field._kind for field in resolved.values()):
        raise ArgumentError("there is no field", "fields", "pass at least one field")
    return resolved


def all_exact(fields: dict[str, Any] | None, exact: bool) -> bool:
    """True if all images of these fields are exact; exact: the default of images."""
    images = [field for field in (fields or {}).values() if isinstance(field, Image)]
    said = [image.exact for image in images] or [None]
    return all(exact if each is None else each for each in said)
