"""PNGs of four kinds for run.py png: the photographs of photos.py, as PIL writes them."""
import os
import pathlib

from PIL import Image

KINDS = {"RGB": "rgb", "RGBA": "rgba", "palette": "palette", "grey": "grey"}


def convert(image, kind):
    if kind == "RGBA":
        image.putalpha(image.convert("L").point(lambda value: 255 - value // 3))
        return image
    if kind == "palette":
        return image.quantize(256)
    return image.convert("L") if kind == "grey" else image


def make(data, count):
    """Write the sets once; the folder of each kind."""
    folder = pathlib.Path(data, f"png-{count}")
    if not folder.exists():
        part = folder.with_name(f"png-{count}.part{os.getpid()}")
        files = sorted(pathlib.Path(data, "folder").glob("*/*.jpg"), key=lambda path: path.name)
        for number, path in enumerate(files[:count]):
            for kind, name in KINDS.items():
                to = part / name / f"{number:04d}.png"
                to.parent.mkdir(parents=True, exist_ok=True)
                convert(Image.open(path).convert("RGB"), kind).save(to)
        part.rename(folder)
    return {kind: str(folder / name) for kind, name in KINDS.items()}
