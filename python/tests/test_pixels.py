"""Pixels against PIL (decoding), torch and torchvision (resizing), and plain arithmetic."""

import io

import make
import numpy as np
import pytest
import stoker
from PIL import Image, ImageEnhance, ImageOps

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def stream(tmp_path, engine, files, transforms, **options):
    """The pixels of files (bytes) through a loader: [N, 3, H, W], in their order."""
    for number, data in enumerate(files):
        suffix = {b"\xff\xd8": "jpg", b"\x89P": "png", b"RI": "webp"}[data[:2]]
        make.write(tmp_path / "class" / f"{number:04}.{suffix}", data)
    loader = stoker.Loader(
        tmp_path,
        len(files),
        image=transforms,
        shuffle="none",
        engine=engine,
        output=options.pop("output", "numpy"),
        **options,
    )
    images, labels = next(iter(loader))
    assert labels.tolist() == [0] * len(files)
    loader.close()
    return images


def interpolated(pixels, size, mode, torch):
    """torch's antialiased resize of uint8 [H, W, 3], rounded: [3, h, w]."""
    tensor = torch.from_numpy(pixels.transpose(2, 0, 1).copy())[None].float()
    result = torch.nn.functional.interpolate(
        tensor, size, mode=mode, antialias=True, align_corners=False
    )
    return result[0].round().clamp(0, 255).to(torch.uint8).numpy()


def distance(one, other):
    return np.abs(np.asarray(one).astype(int) - np.asarray(other).astype(int)).max()


# ---- decoding: the whole image, without a change of size ----

SIZE = (37, 53)


def rgb(**_):
    return make.pixels(1, *SIZE)


def in_mode(mode):
    return Image.fromarray(make.pixels(2, *SIZE)).convert(mode)


def with_alpha(mode):
    image = Image.fromarray(make.pixels(3, *SIZE, channels=4), "RGBA")
    return image if mode == "RGBA" else image.convert(mode)


PICTURES = {
    "jpeg 4:2:0": lambda: make.encoded(rgb(), quality=90, subsampling=2),
    "jpeg 4:2:2": lambda: make.encoded(rgb(), quality=95, subsampling=1),
    "jpeg 4:4:4": lambda: make.encoded(rgb(), quality=96, subsampling=0),
    "jpeg quality 20": lambda: make.encoded(rgb(), quality=20),
    "jpeg progressive": lambda: make.encoded(rgb(), progressive=True),
    "jpeg optimized": lambda: make.encoded(rgb(), optimize=True),
    "jpeg restart markers": lambda: make.encoded(rgb(), restart_marker_blocks=2),
    "jpeg grey": lambda: make.encoded(in_mode("L")),
    "jpeg cmyk": lambda: make.encoded(in_mode("CMYK")),
    "png rgb": lambda: make.encoded(rgb(), "PNG"),
    "png grey": lambda: make.encoded(in_mode("L"), "PNG"),
    "png 1 bit": lambda: make.encoded(in_mode("1"), "PNG"),
    "png palette": lambda: make.encoded(in_mode("P"), "PNG"),
    "png grey and alpha": lambda: make.encoded(with_alpha("LA"), "PNG"),
    "png alpha": lambda: make.encoded(with_alpha("RGBA"), "PNG"),
    "webp lossy": lambda: make.encoded(rgb(), "WEBP", quality=80),
    "webp lossless": lambda: make.encoded(rgb(), "WEBP", lossless=True),
    "webp alpha": lambda: make.encoded(with_alpha("RGBA"), "WEBP", lossless=True, exact=True),
}


@pytest.mark.parametrize("name", PICTURES)
def test_decoding_is_pils(tmp_path, engine, name):
    data = PICTURES[name]()
    images = stream(tmp_path, engine, [data], [stoker.Resize(SIZE)])
    want = make.decoded(data).transpose(2, 0, 1)
    # Pillow has its own libwebp and libjpeg-turbo; lossy WebP may round otherwise.
    assert distance(images[0], want) <= (2 if name == "webp lossy" else 0)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif(tmp_path, engine, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = make.encoded(make.pixels(4, *SIZE), exif=exif.tobytes(), subsampling=0)
    turned = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
    want = np.asarray(turned).transpose(2, 0, 1)
    images = stream(tmp_path, engine, [data], [stoker.Resize(want.shape[1:])], exif=True)
    assert distance(images[0], want) <= 0
    plain = stream(tmp_path, engine, [data], [stoker.Resize(SIZE)])
    assert distance(plain[0], make.decoded(data).transpose(2, 0, 1)) <= 0


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("subsampling", [0, 1, 2])
def test_a_crops_pixels_are_the_full_decodes(tmp_path, engine, progressive, subsampling):
    """Boxes at many places of a JPEG, whose decoder reads only their region."""
    files = [
        make.encoded(
            make.pixels(n, 61 + n, 83 - n), progressive=progressive, subsampling=subsampling
        )
        for n in range(24)
    ]
    images = stream(tmp_path, engine, files, [stoker.CenterCrop((17, 23))])
    for number, data in enumerate(files):
        full = make.decoded(data)
        top = int(round((full.shape[0] - 17) / 2.0))
        left = int(round((full.shape[1] - 23) / 2.0))
        want = full[top : top + 17, left : left + 23].transpose(2, 0, 1)
        assert distance(images[number], want) == 0, number


def test_random_crop_is_a_part(tmp_path, engine):
    """Each result is somewhere in the full decode; many results are at many places."""
    data = make.encoded(make.pixels(5, 20, 24), "PNG")
    images = stream(tmp_path, engine, [data] * 60, [stoker.RandomCrop((17, 19))])
    full, places = make.decoded(data).transpose(2, 0, 1), set()
    for image in images:
        hits = [
            (y, x)
            for y in range(4)
            for x in range(6)
            if np.array_equal(full[:, y : y + 17, x : x + 19], image)
        ]
        assert len(hits) == 1
        places.add(hits[0])
    assert {y for y, _ in places} == set(range(4)) and {x for _, x in places} == set(range(6))


# ---- resizing ----

SIZES = [
    ((64, 96), (32, 48)),
    ((64, 96), (17, 31)),
    ((30, 20), (64, 96)),
    ((97, 13), (20, 20)),
    ((1, 50), (8, 8)),
    ((50, 1), (8, 8)),
    ((40, 60), (1, 1)),
    ((5, 5), (5, 9)),
    ((200, 300), (7, 224)),
]


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize(("source", "target"), SIZES)
def test_resize_is_torchs(tmp_path, engine, torch, source, target, mode):
    pixels = make.pixels(6, *source)
    images = stream(
        tmp_path, engine, [make.encoded(pixels, "PNG")], [stoker.Resize(target, interpolation=mode)]
    )
    assert distance(images[0], interpolated(pixels, target, mode, torch)) <= 1


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize(
    ("source", "target"),
    [sizes for sizes in SIZES if sizes[1] != (1, 1)],  # torch 2.13 asserts on 1 x 1 of uint8
)
def test_resize_is_torchvisions(tmp_path, engine, torch, torchvision_v2, source, target, mode):
    pixels = make.pixels(7, *source)
    images = stream(
        tmp_path, engine, [make.encoded(pixels, "PNG")], [stoker.Resize(target, interpolation=mode)]
    )
    want = torchvision_v2.functional.resize(
        torch.from_numpy(pixels.transpose(2, 0, 1).copy()),
        list(target),
        interpolation={
            "bilinear": torchvision_v2.InterpolationMode.BILINEAR,
            "bicubic": torchvision_v2.InterpolationMode.BICUBIC,
        }[mode],
        antialias=True,
    )
    assert distance(images[0], want.numpy()) <= 1


@pytest.mark.parametrize(("source", "target"), SIZES)
def test_nearest_is_torchs(tmp_path, engine, torch, source, target):
    pixels = make.pixels(8, *source)
    images = stream(
        tmp_path,
        engine,
        [make.encoded(pixels, "PNG")],
        [stoker.Resize(target, interpolation="nearest")],
    )
    tensor = torch.from_numpy(pixels.transpose(2, 0, 1).copy())[None]
    want = torch.nn.functional.interpolate(tensor, target, mode="nearest")[0].numpy()
    assert distance(images[0], want) == 0


def short_side(height, width, size, max_size=None):
    """torchvision's size of a picture whose short side becomes `size`."""
    short, long = min(height, width), max(height, width)
    new_short, new_long = size, int(size * long / short)
    if max_size is not None and new_long > max_size:
        new_short, new_long = int(max_size * new_short / new_long), max_size
    return (new_short, new_long) if height <= width else (new_long, new_short)


@pytest.mark.parametrize("max_size", [None, 40])
@pytest.mark.parametrize("source", [(64, 96), (96, 64), (50, 50), (33, 97), (20, 27)])
def test_validation_transforms(tmp_path, engine, torch, source, max_size):
    """Resize(36), CenterCrop(32): the pair of every evaluation; also where padding is needed."""
    pixels = make.pixels(9, *source)
    images = stream(
        tmp_path,
        engine,
        [make.encoded(pixels, "PNG")],
        [stoker.Resize(36, max_size=max_size), stoker.CenterCrop(32)],
    )
    height, width = short_side(*source, 36, max_size)
    resized = interpolated(pixels, (height, width), "bilinear", torch)
    pad_y, pad_x = max(0, 32 - height), max(0, 32 - width)
    resized = np.pad(
        resized, ((0, 0), (pad_y // 2, (pad_y + 1) // 2), (pad_x // 2, (pad_x + 1) // 2))
    )
    top = int(round((resized.shape[1] - 32) / 2.0))
    left = int(round((resized.shape[2] - 32) / 2.0))
    assert distance(images[0], resized[:, top : top + 32, left : left + 32]) <= 1


@pytest.mark.parametrize("size", [(80, 90), (20, 90), (80, 30)])
def test_center_crop_pads(tmp_path, engine, size, torch):
    """A crop larger than the picture: zeros around it, as torchvision puts them."""
    pixels = make.pixels(10, 41, 52)
    images = stream(tmp_path, engine, [make.encoded(pixels, "PNG")], [stoker.CenterCrop(size)])
    want = pixels.transpose(2, 0, 1)
    pad_y, pad_x = max(0, size[0] - 41), max(0, size[1] - 52)
    want = np.pad(want, ((0, 0), (pad_y // 2, (pad_y + 1) // 2), (pad_x // 2, (pad_x + 1) // 2)))
    top = int(round((want.shape[1] - size[0]) / 2.0))
    left = int(round((want.shape[2] - size[1]) / 2.0))
    assert distance(images[0], want[:, top : top + size[0], left : left + size[1]]) == 0


def test_full_random_resized_crop(tmp_path, engine, torch):
    """scale and ratio that allow one box only: the whole image."""
    pixels = make.pixels(11, 60, 90)
    crop = stoker.RandomResizedCrop((24, 32), scale=(1.0, 1.0), ratio=(1.5, 1.5))
    images = stream(tmp_path, engine, [make.encoded(pixels, "PNG")], [crop])
    assert distance(images[0], interpolated(pixels, (24, 32), "bilinear", torch)) <= 1


def test_random_resized_crop_boxes(tmp_path, engine):
    """An image whose pixels are their own coordinates shows the box: its area and ratio are
    distributed as the options say."""
    y, x = np.mgrid[0:200, 0:240]
    pixels = np.stack([x, y, x * 0], -1).astype(np.uint8)
    crop = stoker.RandomResizedCrop(64, scale=(0.2, 0.6), ratio=(0.5, 2.0))
    images = stream(tmp_path, engine, [make.encoded(pixels, "PNG")] * 300, [crop])
    width = (images[:, 0, 32, -1].astype(float) - images[:, 0, 32, 0]) * 64 / 63
    height = (images[:, 1, -1, 32].astype(float) - images[:, 1, 0, 32]) * 64 / 63
    share = width * height / (200 * 240)
    assert 0.17 < share.min() < 0.25 and 0.53 < share.max() < 0.64
    assert abs(share.mean() - 0.4) < 0.03  # evenly drawn
    logs = np.log(width / height)
    assert abs(logs.mean()) < 0.12 and 0.55 < logs.max() < 0.75 and -0.75 < logs.min() < -0.55


# ---- flips, jitter, numbers ----


def test_flips(tmp_path, engine):
    pixels = make.pixels(12, 16, 20)
    data, want = make.encoded(pixels, "PNG"), pixels.transpose(2, 0, 1)
    resize = stoker.Resize((16, 20))
    across = stream(tmp_path / "a", engine, [data], [resize, stoker.RandomHorizontalFlip(1)])
    assert np.array_equal(across[0], want[:, :, ::-1])
    down = stream(tmp_path / "b", engine, [data], [resize, stoker.RandomVerticalFlip(1)])
    assert np.array_equal(down[0], want[:, ::-1])
    both = stream(
        tmp_path / "c",
        engine,
        [data] * 200,
        [resize, stoker.RandomHorizontalFlip(0.5), stoker.RandomVerticalFlip(0.25)],
    )
    turned = [
        sum(np.array_equal(image, want[:, ::v, ::h]) for image in both)
        for v in (1, -1)
        for h in (1, -1)
    ]
    assert sum(turned) == 200
    assert 70 < turned[1] + turned[3] < 130 and 25 < turned[2] + turned[3] < 75


@pytest.mark.parametrize("factor", [0.0, 0.5, 1.0, 1.7])
@pytest.mark.parametrize("kind", ["brightness", "contrast", "saturation"])
def test_jitter_is_pils(tmp_path, engine, kind, factor):
    pixels = make.pixels(13, 30, 40)
    images = stream(
        tmp_path,
        engine,
        [make.encoded(pixels, "PNG")],
        [stoker.Resize((30, 40)), stoker.ColorJitter(**{kind: (factor, factor)})],
    )
    enhancer = {
        "brightness": ImageEnhance.Brightness,
        "contrast": ImageEnhance.Contrast,
        "saturation": ImageEnhance.Color,
    }[kind]
    want = np.asarray(enhancer(Image.fromarray(pixels)).enhance(factor)).transpose(2, 0, 1)
    assert distance(images[0], want) <= 2


@pytest.mark.parametrize("shift", [-0.5, -0.2, 0.1, 0.3])
def test_hue_is_torchvisions(tmp_path, engine, torch, torchvision_v2, shift):
    pixels = make.pixels(14, 30, 40)
    images = stream(
        tmp_path,
        engine,
        [make.encoded(pixels, "PNG")],
        [stoker.Resize((30, 40)), stoker.ColorJitter(hue=(shift, shift))],
    )
    tensor = torch.from_numpy(pixels.transpose(2, 0, 1).copy())
    want = torchvision_v2.functional.adjust_hue(tensor, shift).numpy()
    assert distance(images[0], want) <= 3


def test_normalize(tmp_path, engine):
    files = [make.encoded(make.pixels(n, 20, 24), "PNG") for n in range(5)]
    resize = stoker.Resize((18, 22))
    plain = stream(tmp_path, engine, files, [resize])
    got = stream(tmp_path, engine, files, [resize, stoker.Normalize()])
    mean, std = np.reshape(MEAN, (1, 3, 1, 1)), np.reshape(STD, (1, 3, 1, 1))
    assert got.dtype == np.float32
    assert np.abs(got - (plain / 255.0 - mean) / std).max() < 2e-6
    other = stream(tmp_path, engine, files, [resize, stoker.Normalize((0, 0.5, 1), (1, 2, 0.25))])
    mean, std = np.reshape((0, 0.5, 1), (1, 3, 1, 1)), np.reshape((1, 2, 0.25), (1, 3, 1, 1))
    assert np.abs(other - (plain / 255.0 - mean) / std).max() < 2e-6


@pytest.mark.parametrize("normalised", [False, True])
def test_dtypes(tmp_path, engine, torch, normalised):
    """float16 and bfloat16 are the float32 result, rounded to nearest even; without Normalize
    floats are in [0, 1]."""
    files = [make.encoded(make.pixels(n, 20, 24), "PNG") for n in range(3)]
    transforms = [stoker.Resize((18, 22))] + [stoker.Normalize()] * normalised
    want = stream(tmp_path, engine, files, transforms, dtype="float32", output="torch")
    if not normalised:
        plain = stream(tmp_path, engine, files, transforms, output="torch")
        assert (want - plain / 255.0).abs().max() < 1e-6
    for dtype in (torch.float16, torch.bfloat16):
        got = stream(tmp_path, engine, files, transforms, dtype=dtype, output="torch")
        assert got.dtype == dtype and torch.equal(got, want.to(dtype))


@pytest.mark.parametrize("dtype", ["uint8", "float32", "float16", "bfloat16"])
def test_layout(tmp_path, engine, torch, dtype):
    files = [make.encoded(make.pixels(n, 20, 24), "PNG") for n in range(3)]
    flat, deep = (
        stream(
            tmp_path,
            engine,
            files,
            [stoker.Resize((18, 22))],
            dtype=dtype,
            layout=layout,
            output="torch",
        )
        for layout in ("NCHW", "NHWC")
    )
    assert flat.shape == (3, 3, 18, 22) and deep.shape == (3, 18, 22, 3)
    assert torch.equal(flat, deep.permute(0, 3, 1, 2))


def test_16_bit_grey_is_scaled(tmp_path):
    """PIL clips mode I;16; torchvision's to_dtype(scale=True) and 16-bit colours are scaled."""
    values = (np.arange(64 * 64).reshape(64, 64) * 16).astype(np.uint16)
    make.write(tmp_path / "c" / "1.png", make.encoded(Image.fromarray(values), "PNG"))
    with stoker.Loader(
        tmp_path, 1, image=[stoker.Resize((64, 64))], dtype="uint8", output="numpy", tail="keep"
    ) as loader:
        images, _ = next(iter(loader))
    assert (images[0] == (values >> 8).astype(np.uint8)).all()
