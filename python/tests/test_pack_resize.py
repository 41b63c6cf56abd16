"""`stoker pack --short-side`: images are made smaller on their way into shards.

Goal: larger images get the requested short side and keep their orientation tag; all else keeps its
bytes; the shards are the same bytes whatever the threads. Method: a folder made with PIL, packed by
the command, read with tarfile and PIL.
"""

import io
import subprocess
import tarfile

import make
import pytest
from PIL import Image
from test_cli import COMMAND

pytestmark = pytest.mark.skipif(COMMAND is None, reason="the stoker command is not built")


def pack(source, target, threads):
    done = subprocess.run(
        [COMMAND, "pack", str(source), str(target), "--short-side", "40", "--quality", "90",
         "--threads", str(threads)],
        capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return {path.name: path.read_bytes() for path in sorted(target.iterdir())}


def members(shards):
    found = {}
    for name, data in shards.items():
        if name.endswith(".tar"):
            with tarfile.open(fileobj=io.BytesIO(data)) as tar:
                found |= {each.name: tar.extractfile(each).read() for each in tar}
    return found


def test_short_side(tmp_path):
    root = tmp_path / "photos" / "a"
    turned = Image.Exif()
    turned[0x0112] = 6
    source = {
        "large.jpg": make.encoded(make.pixels(1, 120, 90)),
        "turned.jpg": make.encoded(make.pixels(2, 80, 160), exif=turned.tobytes()),
        "fits.jpg": make.encoded(make.pixels(3, 40, 70)),
        "mask.png": make.encoded(make.pixels(4, 200, 200), "PNG"),
        "broken.jpg": make.encoded(make.pixels(5, 100, 100))[:100],
    }
    for name, data in source.items():
        make.write(root / name, data)
    shards = pack(root.parent, tmp_path / "one", 1)
    assert pack(root.parent, tmp_path / "three", 3) == shards
    got = members(shards)

    def found(name):
        return next(data for key, data in got.items() if key.endswith(name))

    large = Image.open(io.BytesIO(found("large.jpg")))
    assert (large.size, large.mode) == ((40, 53), "RGB")
    small = Image.open(io.BytesIO(found("turned.jpg")))
    assert small.size == (80, 40)
    assert small.getexif()[0x0112] == 6
    for name in ("fits.jpg", "mask.png", "broken.jpg"):
        assert found(name) == source[name], name
