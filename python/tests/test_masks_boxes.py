"""Masks and boxes that follow their image, against torchvision, PIL and the places of pixels."""

from __future__ import annotations

import io
import json
import struct
import zlib

import make
import numpy as np
import pytest
import stoker
from PIL import Image
from test_fields import batch_of, engine  # noqa: F401 (engine: a fixture)


def test_a_mask_needs_an_image(tmp_path, engine):
    data = make.encoded(make.pixels(1, 8, 8)[..., 0], "PNG")
    with pytest.raises(stoker.ArgumentError, match="no image"):
        batch_of(tmp_path, engine, [{"png": data}], {"m": stoker.Mask("png")})


TRANSFORMS = {
    "resize": [stoker.Resize((20, 30), interpolation="nearest")],
    "short side": [stoker.Resize(24, interpolation="nearest"), stoker.CenterCrop(20)],
    "crop": [stoker.RandomCrop((17, 13))],
    "random": [
        stoker.RandomResizedCrop((24, 20), interpolation="nearest"),
        stoker.RandomHorizontalFlip(),
        stoker.RandomVerticalFlip(),
    ],
    "pad": [stoker.CenterCrop((80, 90)), stoker.RandomHorizontalFlip()],
    "colours": [
        stoker.RandomResizedCrop((24, 20), interpolation="nearest"),
        stoker.ColorJitter(0.4),
        stoker.Normalize(),
    ],
}


def marked(number, height=37, width=53):
    """A picture and a mask that name each pixel's own place."""
    y, x = np.mgrid[0:height, 0:width]
    return np.stack([y, x, np.full_like(y, number)], -1).astype(np.uint8)


@pytest.mark.parametrize("dtype", ["uint8", "int64"])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_masks_follow(tmp_path, engine, name, dtype):
    """Each pixel of a mask shows the place that its image's pixel shows (both by nearest)."""
    samples = []
    for i in range(12):
        pixels = marked(i)
        mask = (pixels[..., 0].astype(int) * 4 + pixels[..., 1] + 7) % 256
        image = Image.fromarray(mask.astype(np.uint8))
        if i % 2:
            image = Image.fromarray(mask.astype(np.uint8), "P")
            image.putpalette([(i * 7) % 256 for i in range(768)])
        samples.append({"png": make.encoded(pixels, "PNG"), "mask.png": make.encoded(image, "PNG")})
    fields = {
        "m": stoker.Mask("mask.png", dtype=dtype),
        "i": stoker.Image("png", TRANSFORMS[name]),
    }
    batch = batch_of(tmp_path, engine, samples, fields)
    assert batch["m"].dtype == np.dtype(dtype)
    if name == "colours":
        fields["i"] = stoker.Image("png", TRANSFORMS["colours"][:1])
        batch["i"] = batch_of(tmp_path, engine, samples, fields)["i"]
    y, x = batch["i"][:, 0].astype(int), batch["i"][:, 1].astype(int)
    want = (y * 4 + x + 7) % 256
    padding = (y == 0) & (x == 0) & (batch["m"] == 0)
    assert ((batch["m"] == want) | (padding if name == "pad" else False)).all()
    assert (
        name == "pad"
        or not (batch["i"][0] == batch["i"][1])[:2].all()
        or name in ("resize", "short side")
    )


def test_whom_they_follow(tmp_path, engine):
    """Two images with different crops: each mask and box uses the crop of the image that it
    names."""
    rows, columns = np.mgrid[0:37, 0:53]
    place = make.encoded((rows * 4 + columns).astype(np.uint8), "PNG")
    document = json.dumps([[c, r, c + 1, r + 1] for r in range(37) for c in range(53)]).encode()
    samples = [
        {"png": make.encoded(marked(i), "PNG"), "mask.png": place, "json": document}
        for i in range(6)
    ]
    fields = {
        "m2": stoker.Mask("mask.png", follows="two"),
        "one": stoker.Image("png", [stoker.RandomCrop((7, 9))]),
        "two": stoker.Image("png", [stoker.RandomCrop((6, 5)), stoker.RandomHorizontalFlip()]),
        "m1": stoker.Mask("mask.png"),
        "b2": stoker.Boxes("json", follows="two"),
    }
    batch = batch_of(tmp_path, engine, samples, fields)
    differ = 0
    for image, mask in (("one", "m1"), ("two", "m2")):
        y, x = batch[image][:, 0].astype(int), batch[image][:, 1].astype(int)
        assert (batch[mask] == (y * 4 + x) % 256).all()
    for i in range(6):
        assert len(batch["b2"][i]) == 30  # a box for each pixel that is left
        differ += (batch["one"][i][:, 0, 0] != batch["two"][i][:, 0, 0]).any()
    assert differ
    with pytest.raises(stoker.ArgumentError, match="no image"):
        batch_of(tmp_path, engine, samples, {**fields, "m3": stoker.Mask("png", follows="three")})


@pytest.mark.parametrize("orientation", range(1, 9))
def test_turned_pictures(tmp_path, engine, orientation):
    """EXIF turns the picture; its mask and boxes are of the turned one, as PIL shows it."""
    from PIL import ImageOps

    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = marked(3, 24, 40)
    data = make.encoded(stored, "PNG", exif=exif)
    turned = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))))
    mask = (turned[..., 0].astype(int) * 5 + turned[..., 1]).astype(np.uint8)
    sample = {"png": data, "mask.png": make.encoded(mask, "PNG"), "json": b"[[3, 2, 9, 12]]"}
    crop = [stoker.RandomCrop((20, 18)), stoker.RandomVerticalFlip()]
    fields = {
        "i": stoker.Image("png", crop, exif=True),
        "m": stoker.Mask("mask.png"),
        "b": stoker.Boxes("json", keep_empty=True),
    }
    batch = batch_of(tmp_path, engine, [sample] * 5, fields)
    pixels = [tuple(p) for p in turned.reshape(-1, 3)]
    for i in range(5):
        image = batch["i"][i].transpose(1, 2, 0)
        want = image[..., 0].astype(int) * 5 + image[..., 1]
        assert (batch["m"][i] == want.astype(np.uint8)).all()
        first, last = (
            divmod(pixels.index(tuple(p)), turned.shape[1]) for p in (image[0, 0], image[-1, 0])
        )
        down = first[0] > last[0]
        top, left = (last if down else first)[0], first[1]
        want, _ = moved([[3, 2, 9, 12]], (top, left, top + 20, left + 18), (20, 18), False, down)
        assert np.abs(batch["b"][i] - want).max() < 1e-4


def grey(depth):
    values = np.arange(64).reshape(8, 8) % (1 << depth) * (800 if depth == 16 else 1)
    if depth == 16:
        return values, make.encoded(Image.fromarray(values.astype("uint16")), "PNG")
    image = Image.fromarray(values.astype(np.uint8), "P")
    image.putpalette(list(range(256)) * 3)
    return values, make.encoded(image, "PNG", bits=depth)


@pytest.mark.parametrize("depth", [1, 2, 4, 8, 16])
def test_mask_depths(tmp_path, engine, depth):
    values, data = grey(depth)
    sample = {"jpg": make.encoded(make.pixels(1, 8, 8)), "png": data}
    fields = {
        "i": stoker.Image("jpg", [stoker.CenterCrop(8)]),
        "m": stoker.Mask("png", dtype="int64"),
    }
    assert (batch_of(tmp_path, engine, [sample], fields)["m"][0] == values).all()
    if depth == 16:
        fields["m"] = stoker.Mask("png")
        with pytest.raises(stoker.FormatError, match="above 255"):
            batch_of(tmp_path, engine, [sample], fields)


@pytest.mark.parametrize(
    ("mask", "kind", "text"),
    [
        (make.encoded(make.pixels(1, 8, 9)[..., 0], "PNG"), stoker.FormatError, "9x8"),
        (make.encoded(make.pixels(1, 8, 8), "PNG"), stoker.UnsupportedError, "colours"),
        (make.encoded(make.pixels(1, 8, 8)), stoker.FormatError, "not a PNG"),
    ],
)
def test_masks_refused(tmp_path, engine, mask, kind, text):
    sample = {"jpg": make.encoded(make.pixels(1, 8, 8)), "mask.png": mask}
    fields = {"i": stoker.Image("jpg", [stoker.CenterCrop(8)]), "m": stoker.Mask("mask.png")}
    with pytest.raises(kind) as caught:
        batch_of(tmp_path, engine, [sample], fields)
    assert text in str(caught.value) and caught.value.key == "000"


def rgb_of(ids):
    """COCO's way (panopticapi, id2rgb): the low byte is red."""
    return np.stack([ids % 256, ids // 256 % 256, ids // 65536], -1).astype(np.uint8)


RGB_MODES = ["RGB", "RGBA", "P", "L", "1"]


@pytest.mark.parametrize("mode", RGB_MODES)
def test_ids_of_colours(tmp_path, engine, mode):
    """An id for each colour that PIL finds there, whichever way it is written."""
    ids = np.arange(63).reshape(7, 9) * 266_000 % (1 << 24)
    image = Image.fromarray(rgb_of(ids))
    if mode == "RGBA":
        image.putalpha(7)
    elif mode != "RGB":
        image = image.quantize(16) if mode == "P" else image.convert(mode)
    rgb = np.asarray(image.convert("RGB")).astype(int)
    sample = {"jpg": make.encoded(make.pixels(1, 7, 9)), "png": make.encoded(image, "PNG")}
    fields = {
        "i": stoker.Image("jpg", [stoker.CenterCrop((7, 9))]),
        "m": stoker.Mask("png", rgb_ids=True),
    }
    got = batch_of(tmp_path, engine, [sample], fields)["m"][0]
    assert got.dtype == np.int64
    assert (got == rgb[..., 0] + 256 * rgb[..., 1] + 65536 * rgb[..., 2]).all()
    if mode in ("RGB", "RGBA"):
        assert (got == ids).all()


@pytest.mark.parametrize("name", TRANSFORMS)
def test_ids_of_colours_follow(tmp_path, engine, name):
    y, x = np.mgrid[0:37, 0:53]
    ids = (y * 53 + x + 1) * 8000
    samples = [
        {"png": make.encoded(marked(i), "PNG"), "mask.png": make.encoded(rgb_of(ids), "PNG")}
        for i in range(6)
    ]
    chain = [t for t in TRANSFORMS[name] if not isinstance(t, stoker.Normalize)]
    fields = {"m": stoker.Mask("mask.png", rgb_ids=True), "i": stoker.Image("png", chain)}
    batch = batch_of(tmp_path, engine, samples, fields)
    if name == "colours":
        fields["i"] = stoker.Image("png", TRANSFORMS[name][:1])
        batch["i"] = batch_of(tmp_path, engine, samples, fields)["i"]
    y, x = batch["i"][:, 0].astype(int), batch["i"][:, 1].astype(int)
    padding = (batch["m"] == 0) & (batch["i"] == 0).all(1)
    assert ((batch["m"] == (y * 53 + x + 1) * 8000) | padding).all()
    assert padding.any() == (name == "pad")


def test_ids_of_colours_refused(tmp_path, engine):
    """16 bits a channel are no such colours; and an id that does not fit is not cut."""
    deep = png_16_rgb(8, 8)
    sample = {"jpg": make.encoded(make.pixels(1, 8, 8)), "png": deep}
    fields = {
        "i": stoker.Image("jpg", [stoker.CenterCrop(8)]),
        "m": stoker.Mask("png", rgb_ids=True),
    }
    with pytest.raises(stoker.UnsupportedError, match="16 bits"):
        batch_of(tmp_path, engine, [sample], fields)
    for blue in (0, 1):
        ids = np.full((8, 8), 200 + 65536 * blue)
        sample["png"] = make.encoded(rgb_of(ids), "PNG")
        fields["m"] = stoker.Mask("png", dtype="uint8", rgb_ids=True)
        if blue:
            with pytest.raises(stoker.FormatError, match="above 255"):
                batch_of(tmp_path, engine, [sample], fields)
        else:
            assert (batch_of(tmp_path, engine, [sample], fields)["m"] == 200).all()


def png_16_rgb(width, height):
    """PIL writes none of them."""

    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    head = struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0)
    rows = (b"\0" + b"\0\1" * 3 * width) * height
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def test_masks_are_torchvisions(tmp_path, engine, torch, torchvision_v2):
    from torchvision import tv_tensors

    mask = make.pixels(3, 37, 53)[..., 0]
    sample = {"jpg": make.encoded(make.pixels(1, 37, 53)), "png": make.encoded(mask, "PNG")}
    for size in ((20, 30), (64, 90), (7, 200)):
        fields = {"i": stoker.Image("jpg", [stoker.Resize(size)]), "m": stoker.Mask("png")}
        want = torchvision_v2.Resize(size)(tv_tensors.Mask(torch.from_numpy(mask.copy())[None]))
        assert (batch_of(tmp_path, engine, [sample], fields)["m"][0] == want[0].numpy()).all()


BOXES = [[0, 0, 53, 37], [3.5, 4.25, 20, 30], [40, 1, 52, 5], [10, 10, 10.5, 11], [0, 0, 1, 1]]


def written(boxes, form, normalised, width=53, height=37):
    boxes = np.array(boxes, float)
    if normalised:
        boxes = boxes / [width, height, width, height]
    if form != "xyxy":
        boxes[:, 2:] -= boxes[:, :2]
    if form == "cxcywh":
        boxes[:, :2] += boxes[:, 2:] / 2
    return boxes.tolist()


def places(image):
    """The box that an image of `marked` shows, after flips, from the positions of its pixels."""
    y, x = image[0].astype(int), image[1].astype(int)
    return y.min(), x.min(), y.max() + 1, x.max() + 1, x[0, 0] > x[0, -1], y[0, 0] > y[-1, 0]


@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize("form", ["xyxy", "xywh", "cxcywh"])
def test_boxes_are_torchvisions(tmp_path, engine, torch, torchvision_v2, form, normalised):
    """Random crop, resize and flips: torchvision's functions with the box and flips that the
    picture shows; and the labels of the boxes that are left."""
    from torchvision import tv_tensors

    F = torchvision_v2.functional
    crop = [stoker.RandomCrop((21, 33)), stoker.RandomHorizontalFlip(), stoker.RandomVerticalFlip()]
    document = {"o": [{"b": b, "l": i} for i, b in enumerate(written(BOXES, form, normalised))]}
    samples = [
        {"png": make.encoded(marked(i), "PNG"), "json": json.dumps(document).encode()}
        for i in range(20)
    ]
    boxes = stoker.Boxes("json:o.*.b", labels="o.*.l", format=form, normalised=normalised)
    fields = {"i": stoker.Image("png", crop), "b": boxes}
    batch = batch_of(tmp_path, engine, samples, fields)
    assert batch["b"].values.dtype == np.float32
    dropped = 0
    for i in range(20):
        top, left, bottom, right, across, down = places(batch["i"][i])
        assert (bottom - top, right - left) == (21, 33)
        want = tv_tensors.BoundingBoxes(
            torch.tensor(BOXES, dtype=torch.float64), format="XYXY", canvas_size=(37, 53)
        )
        want = F.crop(want, top, left, 21, 33)
        want = F.horizontal_flip(want) if across else want
        want = F.vertical_flip(want) if down else want
        want = want.numpy()
        left_over = (want[:, 2] > want[:, 0]) & (want[:, 3] > want[:, 1])
        dropped += int((~left_over).sum())
        assert np.abs(batch["b"][i] - want[left_over]).max() < 1e-4
        assert batch["b"].labels[i].tolist() == np.flatnonzero(left_over).tolist()
    assert 10 < dropped < 90


def moved(boxes, crop, size, across, down):
    """Boxes through a crop (top, left, bottom, right), a resize to (height, width) and flips:
    torchvision's documented formula, in NumPy."""
    top, left, bottom, right = crop
    height, width = size
    boxes = np.array(boxes, float) - [left, top, left, top]
    boxes = boxes.clip(0, [right - left, bottom - top] * 2)
    boxes *= [width / (right - left), height / (bottom - top)] * 2
    if across:
        boxes[:, [0, 2]] = width - boxes[:, [2, 0]]
    if down:
        boxes[:, [1, 3]] = height - boxes[:, [3, 1]]
    kept = (boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1])
    return boxes, kept


@pytest.mark.parametrize("sandbox", [False, True])
@pytest.mark.parametrize("keep_empty", [False, True])
def test_boxes_through_crop_resize_and_flips(tmp_path, sandbox, keep_empty):
    """RandomResizedCrop to more pixels than the crop has, by nearest: each pixel of the crop is
    visible, so the image shows its crop and flips exactly. The mask shows the same."""
    size = 90, 130
    rows, columns = np.mgrid[0:37, 0:53]
    place = make.encoded((rows * 4 + columns).astype(np.uint8), "PNG")
    random = np.random.default_rng(9)
    corners = np.sort(random.uniform(-4, [57, 41], (40, 6, 2, 2)), 2).reshape(40, 6, 4)
    samples = [
        {
            "png": make.encoded(marked(i), "PNG"),
            "mask.png": place,
            "json": json.dumps({"b": corners[i].tolist(), "l": [9, 8, 7, 6, 5, 4]}).encode(),
        }
        for i in range(40)
    ]
    transforms = [
        stoker.RandomResizedCrop(size, scale=(0.05, 1), interpolation="nearest"),
        stoker.RandomHorizontalFlip(),
        stoker.RandomVerticalFlip(),
    ]
    fields = {
        "b": stoker.Boxes("json:b", labels="l", keep_empty=keep_empty),
        "i": stoker.Image("png", transforms),
        "m": stoker.Mask("mask.png"),
    }
    crops, dropped = set(), 0
    with stoker.Engine(threads=2, memory="256MiB", sandbox=sandbox) as engine:
        batch = batch_of(tmp_path, engine, samples, fields)
    for i in range(40):
        *crop, across, down = places(batch["i"][i])
        want, kept = moved(corners[i], crop, size, across, down)
        kept = kept | keep_empty
        dropped += int((~kept).sum())
        assert np.abs(batch["b"][i] - want[kept]).max(initial=0) < 1e-4
        assert batch["b"].labels[i].tolist() == np.arange(9, 3, -1)[kept].tolist()
        y, x = batch["i"][i][:2].astype(int)
        assert (batch["m"][i] == (y * 4 + x) % 256).all()
        crops.add((*crop, across, down))
    assert len(crops) > 35 and (keep_empty or dropped > 20)


def test_boxes_are_scaled(tmp_path, engine, torch, torchvision_v2):
    """If the padding is odd, torchvision moves boxes one pixel off the image; stoker does not."""
    from torchvision import tv_tensors

    sample = {"png": make.encoded(marked(1), "PNG"), "json": json.dumps(BOXES).encode()}
    fields = {
        "i": stoker.Image("png", [stoker.Resize(50), stoker.CenterCrop((40, 91))]),
        "b": stoker.Boxes("json", keep_empty=True),
    }
    want = tv_tensors.BoundingBoxes(
        torch.tensor(BOXES, dtype=torch.float64), format="XYXY", canvas_size=(37, 53)
    )
    want = torchvision_v2.CenterCrop((40, 91))(torchvision_v2.Resize(50)(want))
    got = batch_of(tmp_path, engine, [sample], fields)["b"]
    assert len(got[0]) == 5 and np.abs(got[0] - want.numpy()).max() < 1e-4
    sample["json"] = b"[]"
    assert batch_of(tmp_path, engine, [sample], fields)["b"].values.shape == (0, 4)
    for bad in (b"[[1, 2, 3]]", b"[[5, 5, 1, 9]]", b"[1, 2, 3, 4]"):
        sample["json"] = bad
        with pytest.raises(stoker.Error) as caught:
            batch_of(tmp_path, engine, [sample], fields)
        assert caught.value.key == "000"
