#!/usr/bin/env python3
"""Make the data that compare_builds.py runs commands on, in ./data: the same bytes each time."""
import io
import json
import os
import pathlib
import tarfile

import numpy as np
from PIL import Image

MTIME = 1700000000
root = pathlib.Path("data")
rng = np.random.default_rng(7)


def image(width, height, kind):
    rough = rng.integers(0, 255, (height // 8 + 2, width // 8 + 2, 3), np.uint8)
    out = io.BytesIO()
    Image.fromarray(rough).resize((width, height), Image.BICUBIC).save(
        out, kind, **({"quality": 90} if kind == "JPEG" else {}))
    return out.getvalue()


def tar(name, items, mode="w"):
    with tarfile.open(root / name, mode, format=tarfile.USTAR_FORMAT) as out:
        for key, data in items:
            info = tarfile.TarInfo(key)
            info.size, info.mtime = len(data), MTIME
            out.addfile(info, io.BytesIO(data))


def members(number, data):
    name = f"{number:05}"
    document = {"label": number % 5, "w": number * 1.5, "t": f"text {number}"}
    return [(f"{name}.{'jpg' if number % 4 else 'png'}", data),
            (f"{name}.cls", b"%d" % (number % 5)),
            (f"{name}.json", json.dumps(document).encode())]


def images():
    pictures = [(i, image(40 + 3 * (i % 17), 36 + 5 * (i % 11), "JPEG" if i % 4 else "PNG"))
                for i in range(173)]
    for i, data in pictures:
        folder = root / "folder" / f"c{i % 5}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"p{i:03}.{'jpg' if i % 4 else 'png'}").write_bytes(data)
    for shard in range(4):
        tar(f"train-{shard:03}.tar", [item for i, data in pictures[shard::4]
                                      for item in members(i, data)])


def damaged():
    damage = bytearray((root / "train-001.tar").read_bytes())
    damage[3000:3040] = b"\xff" * 40
    damage[700:704] = b"\0\0\0\0"
    (root / "damaged.tar").write_bytes(damage)
    (root / "short.tar").write_bytes((root / "train-002.tar").read_bytes()[:-7000])


def main():
    root.mkdir()
    images()
    damaged()
    tar("packed.tar.gz", [(f"{i:04}.bin", rng.integers(0, 99, 5000, np.uint8).tobytes())
                          for i in range(60)], "w:gz")
    tar("packed.tar.xz", [(f"{i:04}.bin", rng.integers(0, 9, 3000, np.uint8).tobytes())
                          for i in range(30)], "w:xz")
    np.save(root / "tokens.npy", rng.integers(0, 5000, 100_003).astype(np.uint16))
    rng.integers(0, 5000, 50_001).astype(np.uint16).tofile(root / "tokens.bin")
    (root / "text.jsonl").write_text("".join(
        json.dumps({"text": f"document {i} " * (i % 7 + 1)}) + "\n" for i in range(200)))
    for path in sorted(root.rglob("*")):
        os.utime(path, (MTIME, MTIME))


if __name__ == "__main__":
    main()
