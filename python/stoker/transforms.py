"""Transforms with the names, signatures, defaults and meaning of ``torchvision.transforms.v2``.

The objects only describe the work. Decoder threads run it, and decode only the required region of
an image. Random values (crop, flip, jitter) depend on (seed, epoch, position), never on threads.
Resampling always uses antialiasing.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, Union

from . import _stoker
from .errors import ArgumentError

__all__ = [
    "CenterCrop",
    "ColorJitter",
    "Normalize",
    "RandomCrop",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RandomVerticalFlip",
    "Resize",
    "Transform",
]

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

SIDE_MAX = _stoker.TRANSFORM_SIDE_MAX
"""Longest side of a result, in pixels."""

Size = Union[int, Sequence[int]]
Range = Union[float, Sequence[float]]

_FILTERS = {
    "bilinear": _stoker.BILINEAR,
    "bicubic": _stoker.BICUBIC,
    "nearest": _stoker.NEAREST,
    # Pillow's numbers, which torchvision accepts, too.
    0: _stoker.NEAREST,
    2: _stoker.BILINEAR,
    3: _stoker.BICUBIC,
}

Native = tuple[Any, ...]


class Transform:
    """Base of the transforms: a kind and its parameters."""

    def _native(self) -> Native:
        raise NotImplementedError

    def _fields(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def __repr__(self) -> str:
        inner = ", ".join(f"{name}={value!r}" for name, value in self._fields().items())
        return f"{type(self).__name__}({inner})"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    def __hash__(self) -> int:
        return hash((type(self), repr(self)))


def _native(
    kind: int,
    *,
    height: int = 0,
    width: int = 0,
    filter: int = 0,
    max_size: int = 0,
    scale: Sequence[float] = (0.0, 0.0),
    ratio: Sequence[float] = (0.0, 0.0),
    probability: float = 0.0,
    brightness: Sequence[float] = (1.0, 1.0),
    contrast: Sequence[float] = (1.0, 1.0),
    saturation: Sequence[float] = (1.0, 1.0),
    hue: Sequence[float] = (0.0, 0.0),
    mean: Sequence[float] = (0.0, 0.0, 0.0),
    std: Sequence[float] = (1.0, 1.0, 1.0),
) -> Native:
    """struct stoker_transform as the tuple that _stoker.Loader parses."""
    return (
        kind,
        height,
        width,
        filter,
        max_size,
        tuple(scale),
        tuple(ratio),
        probability,
        tuple(brightness),
        tuple(contrast),
        tuple(saturation),
        tuple(hue),
        tuple(mean),
        tuple(std),
    )


def _refuse(what: str, where: str, advice: str) -> ArgumentError:
    return ArgumentError(what, where, advice)


def _side(value: Any, where: str) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise _refuse(f"size {value!r} is not an integer", where, "pass an int")
    number = value.__index__()
    if not 1 <= number <= SIDE_MAX:
        raise _refuse(f"a size of {number} pixels is out of bounds", where, f"pass 1 to {SIDE_MAX}")
    return int(number)


def _pair(size: Any, where: str) -> tuple[int, int]:
    """(height, width) of an int, a sequence of one, or a sequence of two."""
    if isinstance(size, Sequence) and not isinstance(size, str):
        if len(size) == 1:
            return _side(size[0], where), _side(size[0], where)
        if len(size) == 2:
            return _side(size[0], where), _side(size[1], where)
        raise _refuse(f"size has {len(size)} numbers", where, "pass an int, or (height, width)")
    return _side(size, where), _side(size, where)


def _filter(interpolation: Any, where: str) -> str:
    """The name of a filter, which is a word, an InterpolationMode or Pillow's number."""
    value = getattr(interpolation, "value", interpolation)
    try:
        number = _FILTERS[value]
    except (KeyError, TypeError):
        raise _refuse(
            f"unknown interpolation {value!r}", where, "pass 'bilinear', 'bicubic' or 'nearest'"
        ) from None
    return next(name for name, of in _FILTERS.items() if of == number and isinstance(name, str))


def _antialias(antialias: Any, interpolation: str, where: str) -> None:
    if antialias is not True and interpolation != "nearest":
        raise _refuse(
            f"antialias={antialias!r} is not supported",
            where,
            "leave it True, or use interpolation='nearest'",
        )


def _range(value: Any, where: str) -> tuple[float, float]:
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 2:
        raise _refuse(f"{value!r} is not a pair of numbers", where, "pass (low, high)")
    low, high = float(value[0]), float(value[1])
    if not (math.isfinite(low) and math.isfinite(high)):
        raise _refuse(f"{value!r} is not finite", where, "pass (low, high)")
    return low, high


def _probability(value: Any, where: str) -> float:
    number = float(value)
    if not 0.0 <= number <= 1.0:
        raise _refuse(f"{number} is not a probability", where, "pass 0 to 1")
    return number


class RandomResizedCrop(Transform):
    """A random crop of the image, resized to ``size``.

    Args:
        size: height and width of the result in pixels; an int for a square.
        scale: lower and upper bound of the crop's share of the area.
        ratio: lower and upper bound of the crop's width / height (uniform in its logarithm).
        interpolation: ``"bilinear"``, ``"bicubic"``, ``"nearest"`` or torchvision's
            ``InterpolationMode``.
        antialias: only ``True``.
    """

    def __init__(
        self,
        size: Size,
        scale: tuple[float, float] = (0.08, 1.0),
        ratio: tuple[float, float] = (3.0 / 4.0, 4.0 / 3.0),
        interpolation: Any = "bilinear",
        antialias: bool | None = True,
    ) -> None:
        where = "RandomResizedCrop"
        self.size = _pair(size, where)
        self.scale = _range(scale, f"{where} scale")
        self.ratio = _range(ratio, f"{where} ratio")
        if self.scale[0] > self.scale[1] or self.ratio[0] > self.ratio[1]:
            warnings.warn("scale and ratio are (low, high); they are exchanged", stacklevel=2)
            self.scale = (min(self.scale), max(self.scale))
            self.ratio = (min(self.ratio), max(self.ratio))
        if self.scale[0] <= 0.0 or self.ratio[0] <= 0.0:
            raise _refuse("a bound is not above 0", where, "pass positive bounds")
        self.interpolation = _filter(interpolation, where)
        _antialias(antialias, self.interpolation, where)

    def _native(self) -> Native:
        return _native(
            _stoker.RANDOM_RESIZED_CROP,
            height=self.size[0],
            width=self.size[1],
            scale=self.scale,
            ratio=self.ratio,
            filter=_FILTERS[self.interpolation],
        )


class Resize(Transform):
    """The resized image.

    Args:
        size: an int (or a sequence of one): pixels of the shorter side, with the same aspect ratio;
            a sequence of two: (height, width).
        interpolation: as in :class:`RandomResizedCrop`.
        max_size: upper bound of the longer side in pixels; only with an int.
        antialias: only ``True``.
    """

    def __init__(
        self,
        size: Size,
        interpolation: Any = "bilinear",
        max_size: int | None = None,
        antialias: bool | None = True,
    ) -> None:
        where = "Resize"
        if size is None:
            raise _refuse("size=None is not supported", where, "pass the shorter side and max_size")
        if isinstance(size, Sequence) and not isinstance(size, str) and len(size) == 2:
            self.size: int | tuple[int, int] = _pair(size, where)
            if max_size is not None:
                raise _refuse(
                    "max_size cannot be combined with (height, width)",
                    where,
                    "pass a size of one number, or no max_size",
                )
        else:
            self.size = _pair(size, where)[0]
        self.max_size = None if max_size is None else _side(max_size, f"{where} max_size")
        if self.max_size is not None and isinstance(self.size, int) and self.max_size <= self.size:
            raise _refuse(
                f"max_size {self.max_size} is not above the size {self.size}",
                where,
                "pass a larger max_size",
            )
        self.interpolation = _filter(interpolation, where)
        _antialias(antialias, self.interpolation, where)

    def _native(self) -> Native:
        height, width = (self.size, 0) if isinstance(self.size, int) else self.size
        return _native(
            _stoker.RESIZE,
            height=height,
            width=width,
            max_size=self.max_size or 0,
            filter=_FILTERS[self.interpolation],
        )


class CenterCrop(Transform):
    """The centre of the image; smaller images are padded with 0.

    Args:
        size: height and width of the result in pixels; an int for a square.
    """

    def __init__(self, size: Size) -> None:
        self.size = _pair(size, "CenterCrop")

    def _native(self) -> Native:
        return _native(_stoker.CENTER_CROP, height=self.size[0], width=self.size[1])


class RandomCrop(Transform):
    """A random crop of the given size.

    Args:
        size: height and width of the result in pixels; an int for a square.
        padding, pad_if_needed, fill, padding_mode: torchvision's parameters; only their defaults
            (no padding) are supported.
    """

    def __init__(
        self,
        size: Size,
        padding: Any = None,
        pad_if_needed: bool = False,
        fill: Any = 0,
        padding_mode: str = "constant",
    ) -> None:
        where = "RandomCrop"
        self.size = _pair(size, where)
        if padding not in (None, 0) or pad_if_needed or fill != 0 or padding_mode != "constant":
            raise _refuse("padding is not supported", where, "leave it out, or pad in transform=")

    def _native(self) -> Native:
        return _native(_stoker.RANDOM_CROP, height=self.size[0], width=self.size[1])


class RandomHorizontalFlip(Transform):
    """Flips the image horizontally with probability ``p``."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = _probability(p, "RandomHorizontalFlip")

    def _native(self) -> Native:
        return _native(_stoker.RANDOM_HORIZONTAL_FLIP, probability=self.p)


class RandomVerticalFlip(Transform):
    """Flips the image vertically with probability ``p``."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = _probability(p, "RandomVerticalFlip")

    def _native(self) -> Native:
        return _native(_stoker.RANDOM_VERTICAL_FLIP, probability=self.p)


class ColorJitter(Transform):
    """Random changes of brightness, contrast, saturation and hue.

    Args:
        brightness, contrast, saturation: a number b >= 0 for a factor in [max(0, 1 - b), 1 + b],
            or the bounds of the factor.
        hue: a number h in [0, 0.5] for a shift in [-h, h] turns, or the bounds in [-0.5, 0.5].
    """

    def __init__(
        self,
        brightness: Range | None = None,
        contrast: Range | None = None,
        saturation: Range | None = None,
        hue: Range | None = None,
    ) -> None:
        self.brightness = self._bounds(brightness, "brightness")
        self.contrast = self._bounds(contrast, "contrast")
        self.saturation = self._bounds(saturation, "saturation")
        self.hue = self._bounds(hue, "hue", center=0.0, low=-0.5, high=0.5)

    @staticmethod
    def _bounds(
        value: Range | None,
        name: str,
        center: float = 1.0,
        low: float = 0.0,
        high: float = math.inf,
    ) -> tuple[float, float]:
        where = f"ColorJitter {name}"
        if value is None:
            return center, center
        if isinstance(value, (int, float)):
            if not value >= 0:
                raise _refuse(f"{value!r} is below 0", where, "pass 0 or more, or (low, high)")
            bounds = (center - value, center + value)
            if center == 1.0:
                bounds = (max(bounds[0], 0.0), bounds[1])
        else:
            bounds = _range(value, where)
        if not low <= bounds[0] <= bounds[1] <= high or math.isinf(bounds[1]):
            raise _refuse(
                f"bounds {bounds} are out of range", where, f"stay within ({low}, {high})"
            )
        return float(bounds[0]), float(bounds[1])

    def _native(self) -> Native:
        return _native(
            _stoker.COLOR_JITTER,
            brightness=self.brightness,
            contrast=self.contrast,
            saturation=self.saturation,
            hue=self.hue,
        )


class Normalize(Transform):
    """(value - mean) / std for each of the three channels, of values in [0, 1].

    The result is float32, unless ``dtype=`` sets another dtype. The defaults are ImageNet's.
    """

    def __init__(
        self,
        mean: Sequence[float] = IMAGENET_MEAN,
        std: Sequence[float] = IMAGENET_STD,
        inplace: bool = False,
    ) -> None:
        del inplace  # torchvision's parameter has no meaning here
        self.mean = self._three(mean, "Normalize mean")
        self.std = self._three(std, "Normalize std")
        if min(self.std) <= 0.0:
            raise _refuse(f"std {self.std} is not above 0", "Normalize", "pass positive numbers")

    @staticmethod
    def _three(values: Any, where: str) -> tuple[float, float, float]:
        numbers = [float(value) for value in values]
        if len(numbers) != 3 or not all(math.isfinite(number) for number in numbers):
            raise _refuse(
                f"{values!r} is not three numbers", where, "pass one number for each channel"
            )
        return numbers[0], numbers[1], numbers[2]

    def _native(self) -> Native:
        return _native(_stoker.NORMALIZE, mean=self.mean, std=self.std)
