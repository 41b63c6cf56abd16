"""Makes pictures, tars and damage for the tests; PIL and tarfile are the makers."""

from __future__ import annotations

import hashlib
import io
import pathlib
import tarfile

import numpy as np
from PIL import Image


def pixels(number: int, height: int = 0, width: int = 0, channels: int = 3) -> np.ndarray:
    """A picture of smooth waves and some noise, another for each number: uint8 [H, W, C]."""
    random = np.random.default_rng(number)
    height = height or int(random.integers(33, 90))
    width = width or int(random.integers(33, 90))
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    waves = [
        127 + 100 * np.sin(x * random.uniform(0.02, 0.4) + y * random.uniform(0.02, 0.4) + c)
        for c in range(channels)
    ]
    noise = random.normal(0, 12, (height, width, channels))
    return np.clip(np.stack(waves, -1) + noise, 0, 255).astype(np.uint8)


def encoded(array: np.ndarray, kind: str = "JPEG", **options) -> bytes:
    """The pixels as a file; a PIL image is taken too."""
    image = array if isinstance(array, Image.Image) else Image.fromarray(array)
    stream = io.BytesIO()
    if kind == "JPEG":
        options = {"quality": 92, **options}
    image.save(stream, kind, **options)
    return stream.getvalue()


def jpeg(path: pathlib.Path, number: int, **size: int) -> pathlib.Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encoded(pixels(number, **size)))
    return path


def write(path: pathlib.Path, data: bytes) -> pathlib.Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def random_bytes(size: int, seed: int) -> bytes:
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8).tobytes()


def tree(root: pathlib.Path, sizes: dict[str, int]) -> pathlib.Path:
    """Files of these sizes, each with different bytes."""
    for seed, (name, size) in enumerate(sizes.items()):
        write(root / name, random_bytes(size, seed))
    return root


def sample(number: int) -> list[tuple[str, bytes]]:
    """Members of one sample."""
    key = f"part{number // 50}/s{number:04}"
    return [
        (f"{key}.jpg", encoded(pixels(number, 40, 48))),
        (f"{key}.cls", str(number % 7).encode()),
        (f"{key}.txt", f"Text of {number}: ü".encode()),
        (f"{key}.bin", bytes([number % 256]) * (number % 13)),
    ]


def tar(path: pathlib.Path, members: list[tuple[str, bytes]], **options) -> pathlib.Path:
    """A tar by Python's tarfile; options as of tarfile.open."""
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = options.pop("mode", "w")
    with tarfile.open(path, mode, **options) as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def checksummed(header: bytes) -> bytes:
    """A tar header block with its checksum made right."""
    block = bytearray(header)
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def decoded(data: bytes) -> np.ndarray:
    """PIL's RGB pixels: uint8 [H, W, 3]."""
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def upload_record(cache, service, bucket, key, upload, checksum=""):
    """As a stoker that was killed leaves it: this user began that upload."""
    texts = (service, bucket, key, checksum, "STANDARD", "")
    target = b"".join(text.encode() + b"\0" for text in texts)
    value = upload.encode() + b"\0\0\0"
    folder = pathlib.Path(cache) / "uploads"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = "-".join(hashlib.sha256(part).hexdigest()[:16] for part in (target, value))
    (folder / name).write_bytes(
        b"stoker upload 1\n" + len(target).to_bytes(4, "little") + target + value)


def loader(*data, **options):
    """A stoker.Loader whose order does not depend on where its data are, as the default does."""
    import stoker

    if "shuffle" not in options:
        options = {"shuffle": "block", "window": 64, **options}
    return stoker.Loader(*data, **options)
