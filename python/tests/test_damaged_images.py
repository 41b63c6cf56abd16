"""Damaged images: verify --deep finds all that libjpeg-turbo warns about, a loader those in the
part that it decodes, and with check="whole" all. For damage that PIL refuses, PIL is the oracle."""

import io
import random
import shutil
import subprocess

import make
import pytest
import stoker
from PIL import Image

COUNT = 60


def damaged_jpegs(data=None, seed=1):
    """Copies of one photograph with 1 to 100 random bytes in the scan; the ninth is sound."""
    data = data or make.encoded(make.pixels(3, 240, 320), quality=85)
    start = data.index(b"\xff\xda") + 14
    draw = random.Random(seed)
    files = []
    for number in range(COUNT):
        changed = bytearray(data)
        for _ in range(draw.randint(1, 100) if number != 9 else 0):
            changed[draw.randrange(start, len(data) - 2)] = draw.randrange(256)
        files.append(bytes(changed))
    return files


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("damaged")
    for number, data in enumerate(damaged_jpegs()):
        make.write(root / "c" / f"{number:03}.jpg", data)
    for number in range(2 * COUNT):  # that can take the places of damaged ones
        make.write(root / "c" / f"good{number}.jpg", make.encoded(make.pixels(number, 64, 80)))
    return root


def deep(folder):
    """The names that verify --deep reports."""
    run = subprocess.run(
        ["stoker", "verify", "--deep", str(folder)], capture_output=True, text=True, timeout=100
    )
    return {line.split()[3] for line in run.stdout.splitlines() if "g @" in line}


def bad_keys(folder, transform, check):
    with stoker.Loader(
        folder,
        1,
        image=[transform],
        check=check,
        tail="keep",
        shuffle="none",
        on_error="skip",
        output="numpy",
    ) as loader:
        list(loader)
        return {bad.key for bad in loader.quarantine}


def test_most_random_bytes_are_found(folder):
    found = deep(folder)
    assert len(found) >= 45 and "c/009.jpg" not in found
    assert bad_keys(folder, stoker.Resize((64, 64)), "decoded") == found
    assert bad_keys(folder, stoker.CenterCrop(32), "whole") == found


KINDS = {
    "4:2:0": dict(quality=85),
    "4:4:4": dict(quality=90, subsampling=0),
    "progressive": dict(quality=85, progressive=True),
    "restart markers": dict(quality=85, restart_marker_blocks=8),
    "optimized": dict(quality=75, optimize=True),
    "grey": dict(quality=80),
}


@pytest.mark.skipif(not shutil.which("djpeg"), reason="needs djpeg (libjpeg-turbo-progs)")
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_as_djpeg(tmp_path, kind):
    """djpeg prints what libjpeg-turbo warns about: verify --deep reports the same files."""
    image = Image.fromarray(make.pixels(5, 15, 20)).resize((320, 240), Image.BICUBIC)
    image = image.convert("L") if kind == "grey" else image
    file = io.BytesIO()
    image.save(file, "JPEG", **KINDS[kind])
    warned = set()
    for number, data in enumerate(damaged_jpegs(file.getvalue())):
        path = make.write(tmp_path / "c" / f"{number:03}.jpg", data)
        run = subprocess.run(
            ["djpeg", "-outfile", "/dev/null", path], capture_output=True, text=True, timeout=60
        )
        warned |= {f"c/{path.name}"} if run.stderr else set()
    assert len(warned) >= 49 and deep(tmp_path) == warned


def test_a_crop_checks_the_decoded_part(folder):
    found = bad_keys(folder, stoker.CenterCrop(32), "decoded")
    assert 0 < len(found) < len(deep(folder))
    assert bad_keys(folder, stoker.Resize((64, 64)), "tolerant") < found


def test_the_error_names_the_decoder(folder):
    with pytest.raises(stoker.CorruptError, match="the decoder warns: Corrupt JPEG data"):
        list(stoker.Loader(folder, 1, image=[stoker.Resize((64, 64))], shuffle="none"))
    with pytest.raises(stoker.ArgumentError, match="pass one of decoded, whole, tolerant"):
        stoker.Loader(folder, 1, image=[stoker.Resize((64, 64))], check="deep")


def test_a_png_below_the_crop(tmp_path):
    data = make.encoded(make.pixels(4, 200, 200), "PNG")
    make.write(tmp_path / "c" / "good.png", data)
    make.write(tmp_path / "c" / "cut.png", data[:-12])
    flipped = bytearray(data)
    flipped[-40] ^= 0x55
    make.write(tmp_path / "c" / "flipped.png", bytes(flipped))
    crop = stoker.CenterCrop(8)
    assert bad_keys(tmp_path, crop, "decoded") == set()
    assert bad_keys(tmp_path, crop, "whole") == {"c/cut.png", "c/flipped.png"} == deep(tmp_path)
