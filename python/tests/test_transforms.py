"""Transforms: torchvision's names, signatures, defaults and refusals."""

import enum
import inspect

import pytest
import stoker

# The signatures of torchvision 0.28, transforms.v2; the ImageNet numbers of Normalize are ours.
SIGNATURES = {
    "RandomResizedCrop": {
        "size": ...,
        "scale": (0.08, 1.0),
        "ratio": (3 / 4, 4 / 3),
        "interpolation": "bilinear",
        "antialias": True,
    },
    "Resize": {"size": ..., "interpolation": "bilinear", "max_size": None, "antialias": True},
    "CenterCrop": {"size": ...},
    "RandomCrop": {
        "size": ...,
        "padding": None,
        "pad_if_needed": False,
        "fill": 0,
        "padding_mode": "constant",
    },
    "RandomHorizontalFlip": {"p": 0.5},
    "RandomVerticalFlip": {"p": 0.5},
    "ColorJitter": {"brightness": None, "contrast": None, "saturation": None, "hue": None},
    "Normalize": {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225), "inplace": False},
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_signature(name):
    parameters = inspect.signature(getattr(stoker, name)).parameters
    found = {
        p.name: ... if p.default is inspect.Parameter.empty else p.default
        for p in parameters.values()
    }
    assert found == SIGNATURES[name]


@pytest.mark.parametrize("name", SIGNATURES)
def test_signature_is_torchvisions(name, torchvision_v2):
    def shape(kind):
        return [
            (p.name, None if p.default is inspect.Parameter.empty else p.default)
            for p in inspect.signature(kind).parameters.values()
        ]

    ours, theirs = shape(getattr(stoker, name)), shape(getattr(torchvision_v2, name))
    if name == "Normalize":  # mean and std have defaults here
        ours = [(n, None if n in ("mean", "std") else d) for n, d in ours]
    assert ours == theirs


@pytest.mark.parametrize(
    ("transform", "size"),
    [
        (stoker.RandomResizedCrop(224), (224, 224)),
        (stoker.RandomResizedCrop([224]), (224, 224)),
        (stoker.CenterCrop((10, 20)), (10, 20)),
        (stoker.RandomCrop([7, 9]), (7, 9)),
        (stoker.Resize(50), 50),
        (stoker.Resize([50]), 50),
        (stoker.Resize((50, 60)), (50, 60)),
    ],
)
def test_size(transform, size):
    assert transform.size == size


class InterpolationMode(enum.Enum):
    """As torchvision's."""

    NEAREST = "nearest"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    LANCZOS = "lanczos"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("bilinear", "bilinear"),
        ("bicubic", "bicubic"),
        ("nearest", "nearest"),
        (InterpolationMode.BICUBIC, "bicubic"),
        (2, "bilinear"),
        (3, "bicubic"),
        (0, "nearest"),
    ],
)
def test_interpolation(given, kept):
    assert stoker.Resize(8, interpolation=given).interpolation == kept


@pytest.mark.parametrize(
    ("given", "name", "bounds"),
    [
        ({"brightness": 0.4}, "brightness", (0.6, 1.4)),
        ({"contrast": 1.5}, "contrast", (0.0, 2.5)),
        ({"saturation": (0.5, 1.5)}, "saturation", (0.5, 1.5)),
        ({"hue": 0.1}, "hue", (-0.1, 0.1)),
        ({"hue": (-0.2, 0.3)}, "hue", (-0.2, 0.3)),
        ({}, "brightness", (1.0, 1.0)),
        ({}, "hue", (0.0, 0.0)),
    ],
)
def test_jitter_bounds(given, name, bounds):
    assert getattr(stoker.ColorJitter(**given), name) == pytest.approx(bounds)


REFUSED = {
    "size 0": lambda: stoker.CenterCrop(0),
    "negative size": lambda: stoker.CenterCrop(-3),
    "three sizes": lambda: stoker.CenterCrop((1, 2, 3)),
    "size as text": lambda: stoker.CenterCrop("224"),
    "size as float": lambda: stoker.RandomResizedCrop(224.0),
    "size as bool": lambda: stoker.RandomResizedCrop(True),
    "huge size": lambda: stoker.Resize(1 << 20),
    "size None": lambda: stoker.Resize(None, max_size=10),
    "max_size beside two": lambda: stoker.Resize((8, 8), max_size=10),
    "max_size too small": lambda: stoker.Resize(8, max_size=8),
    "one scale": lambda: stoker.RandomResizedCrop(8, scale=0.5),
    "scale of 0": lambda: stoker.RandomResizedCrop(8, scale=(0.0, 1.0)),
    "scale not finite": lambda: stoker.RandomResizedCrop(8, scale=(0.1, float("nan"))),
    "ratio of text": lambda: stoker.RandomResizedCrop(8, ratio="ab"),
    "lanczos": lambda: stoker.Resize(8, interpolation=InterpolationMode.LANCZOS),
    "unhashable filter": lambda: stoker.Resize(8, interpolation=["bilinear"]),
    "no antialias": lambda: stoker.Resize(8, antialias=False),
    "antialias None": lambda: stoker.RandomResizedCrop(8, antialias=None),
    "probability": lambda: stoker.RandomHorizontalFlip(1.5),
    "probability nan": lambda: stoker.RandomVerticalFlip(float("nan")),
    "brightness below 0": lambda: stoker.ColorJitter(brightness=-1),
    "hue above a half": lambda: stoker.ColorJitter(hue=0.6),
    "hue bounds": lambda: stoker.ColorJitter(hue=(-0.6, 0.0)),
    "contrast exchanged": lambda: stoker.ColorJitter(contrast=(1.5, 0.5)),
    "two means": lambda: stoker.Normalize(mean=(0.5, 0.5)),
    "std of 0": lambda: stoker.Normalize(std=(1.0, 0.0, 1.0)),
    "padding": lambda: stoker.RandomCrop(8, padding=2),
    "pad_if_needed": lambda: stoker.RandomCrop(8, pad_if_needed=True),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    with pytest.raises(stoker.ArgumentError) as caught:
        REFUSED[name]()
    assert isinstance(caught.value, ValueError)
    assert caught.value.what and caught.value.where and caught.value.advice


def test_exchanged_bounds_warn():
    with pytest.warns(UserWarning):
        crop = stoker.RandomResizedCrop(8, scale=(1.0, 0.5))
    assert crop.scale == (0.5, 1.0)


def test_repr_and_equality():
    assert repr(stoker.RandomHorizontalFlip(0.25)) == "RandomHorizontalFlip(p=0.25)"
    assert stoker.CenterCrop(8) == stoker.CenterCrop((8, 8)) != stoker.CenterCrop(9)
    assert len({stoker.CenterCrop(8), stoker.CenterCrop((8, 8))}) == 1
