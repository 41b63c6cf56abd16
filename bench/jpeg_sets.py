"""JPEGs of four kinds for run.py jpeg: those of photos.py, and the same in other qualities."""
import io
import os
import pathlib

from PIL import Image

import photos

LARGE_EACH = 3  # of 1-2 megapixels, a photograph

KINDS = {"q 93-96 4:2:0": "a", "q 75-80 4:2:0": "b", "q 90 4:4:4": "c", "1-2 MP 4:2:0": "d"}


def encode(image, **how):
    data = io.BytesIO()
    image.save(data, "JPEG", **how)
    return data.getvalue()


def large_pictures():
    """1 to 2 megapixels of each photograph, of the qualities that the web has."""
    for number, (_, path) in enumerate(photos.find_photos("bench")):
        image = Image.open(path).convert("RGB")
        for i in range(LARGE_EACH):
            width = 1200 + 150 * ((number + i) % 4)
            size = (width, width * 3 // 4)
            yield encode(image.resize(size, Image.LANCZOS), quality=78 + (7 * number + 5 * i) % 15,
                         subsampling="4:2:0")


def pictures_of(data, count):
    """(kind, bytes) of all sets, in order."""
    files = sorted(pathlib.Path(data, "folder").glob("*/*.jpg"), key=lambda path: path.name)
    for i, path in enumerate(files[:count]):
        original = path.read_bytes()
        image = Image.open(io.BytesIO(original)).convert("RGB")
        yield "q 93-96 4:2:0", original
        yield "q 75-80 4:2:0", encode(image, quality=75 + i % 6, subsampling="4:2:0")
        yield "q 90 4:4:4", encode(image, quality=90, subsampling="4:4:4")
    for large in large_pictures():
        yield "1-2 MP 4:2:0", large


def make(data, count):
    """Write the sets once; the folder of each kind."""
    folder = pathlib.Path(data, f"jpeg-{count}")
    if not folder.exists():
        part = folder.with_name(f"jpeg-{count}.part{os.getpid()}")
        numbers = dict.fromkeys(KINDS, 0)
        for kind, content in pictures_of(data, count):
            path = part / KINDS[kind] / f"{numbers[kind]:04d}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            numbers[kind] += 1
        part.rename(folder)
    return {kind: str(folder / name) for kind, name in KINDS.items()}
