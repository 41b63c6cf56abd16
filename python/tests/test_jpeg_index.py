"""JPEG indexes: made by index and pack, used by loaders, checked by verify --deep.

Goal: crops with the index are the same pixels; an image that was replaced by one of its size is
decoded without it; damage is found and changes no pixel. Method: the command and loaders over a tar
of images on a real disk.
"""

import json
import shutil
import subprocess

import make
import numpy as np
import pytest
import stoker
from test_cli import COMMAND, find_command

pytestmark = pytest.mark.skipif(find_command() is None, reason="the stoker command is not built")

COUNT = 24
CROP = [stoker.RandomResizedCrop(48)]


def run(*words, want=0):
    ended = subprocess.run(
        [COMMAND, *map(str, words)], capture_output=True, check=False, timeout=60, text=True
    )
    assert ended.returncode == want, ended
    return ended.stdout


def pictures(path, first=0):
    """Two of them progressive, which have no marks."""
    members = []
    for number in range(COUNT):
        image = make.pixels(first + number, 200, 150 + 10 * number)
        members.append((f"{number:03}.jpg", make.encoded(image, progressive=number > 21)))
    return make.tar(path, members)


def epoch(path):
    """An epoch's pixels, and whether any picture was decoded by marks."""
    fields = {"image": stoker.Image("jpg", CROP)}
    options = {"fields": fields, "seed": 5, "output": "numpy"}
    # Counters belong to the engine, so the test uses its own.
    with stoker.Engine(threads=2) as own, stoker.Loader(path, 8, engine=own, **options) as loader:
        images = np.concatenate([batch["image"] for batch in loader])
        return images, loader.stats()["jpegs"].get("marked", 0) > 0


def replace(path, content):
    """Writes a new file and renames it, as a careful tool does: mappings of the old file stay
    valid."""
    part = path.with_name("part")
    part.write_bytes(content)
    part.rename(path)


@pytest.fixture
def data(tmp_path):
    return pictures(tmp_path / "data" / "a.tar")


@pytest.mark.parametrize("option", ["--jpeg-index", "--jpeg-index=4"])
def test_the_same_pixels(data, option):
    run("index", data)
    without, marked = epoch(data)
    assert not marked
    assert stoker.Dataset(data).jpeg_index_mcus is None and "marks " not in run("info", data)
    info = json.loads(run("index", option, "--json", data))["marks"]
    assert (info["jpegs"], info["marked"]) == (COUNT, COUNT - 2)
    mcus = 4 if "=" in option else 0
    dataset = stoker.Dataset(data)
    assert (dataset.jpeg_index_mcus, dataset.jpeg_index_note) == (mcus, "")
    assert json.loads(run("info", "--json", data))["marks_mcus"] == mcus
    assert ("every 4 MCUs" if mcus else "every row of MCUs") in run("info", data)
    images, marked = epoch(data)
    assert marked and np.array_equal(images, without)
    assert "22 of 24 JPEGs are right" in run("verify", "--deep", data)


def test_a_replaced_picture_is_decoded_without(data, tmp_path):
    run("index", "--jpeg-index", data)
    image = make.pixels(3, 200, 180)
    want = make.encoded(image)
    tar = bytearray(data.read_bytes())
    at = tar.find(want)
    assert at > 0
    tar[at + len(want) // 2] ^= 4  # the same size, and perhaps still a JPEG
    replace(data, tar)
    index = data.parent / "stoker.index"
    shutil.copy(str(index) + ".marks", tmp_path / "marks")
    run("index", "--force", data)
    replace(data.parent / "stoker.index.marks", (tmp_path / "marks").read_bytes())
    images, marked = epoch(data)
    assert marked  # the others
    (data.parent / "stoker.index.marks").unlink()
    without, marked = epoch(data)
    assert not marked and np.array_equal(images, without)


def test_damage_and_other_data(data, tmp_path):
    run("index", "--jpeg-index=2", data)
    without, _ = epoch(data)
    marks = data.parent / "stoker.index.marks"
    whole = marks.read_bytes()
    for at in (20, len(whole) // 2, len(whole) - 9):
        replace(marks, whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        images, _ = epoch(data)
        assert np.array_equal(images, without)
        run("verify", "--deep", data, want=1)
    assert_unused(data, "damaged")
    replace(marks, whole[:-100])
    assert not epoch(data)[1]
    assert_unused(data, "no foot")
    replace(marks, whole[:100])
    assert_unused(data, "ends too early")
    other = pictures(tmp_path / "other" / "a.tar", first=100)
    run("index", "--jpeg-index=2", other)
    replace(marks, (other.parent / "stoker.index.marks").read_bytes())
    images, marked = epoch(data)
    assert not marked and np.array_equal(images, without)
    assert_unused(data, "of other data")


def assert_unused(path, why):
    dataset = stoker.Dataset(path)
    assert dataset.jpeg_index_mcus is None and why in dataset.jpeg_index_note
    info = json.loads(run("info", "--json", path))
    assert "marks_mcus" not in info and why in info["marks_note"]
    assert why in run("info", path)


def test_refreshed(data):
    """Shards that were appended, and marked since, are decoded by marks as well."""
    run("index", "--jpeg-index", data.parent)
    dataset = stoker.Dataset(data.parent)
    pictures(data.with_name("b.tar"), first=50)
    assert dataset.refresh().jpeg_index_mcus is None
    run("index", "--jpeg-index", data.parent)
    assert dataset.refresh().jpeg_index_mcus == 0


def test_pack_writes_them(data, tmp_path):
    info = json.loads(run("pack", "--jpeg-index", "--json", data, tmp_path / "packed"))
    assert info["marks"]["marked"] == COUNT - 2
    assert epoch(tmp_path / "packed")[1]
    assert "are right" in run("verify", "--deep", tmp_path / "packed")


def test_jpeg_index_of_no_jpegs(tmp_path):
    members = [(f"{n}.txt", b"text") for n in range(3)]
    info = json.loads(run("index", "--jpeg-index", "--json", make.tar(tmp_path / "t.tar", members)))
    assert info["marks"]["jpegs"] == 0


@pytest.mark.parametrize("count", ["0", "1", "1K", "65537"])
def test_numbers_that_are_none_of_mcus(tmp_path, count):
    words = [COMMAND, "index", f"--jpeg-index={count}", pictures(tmp_path / "t.tar")]
    ended = subprocess.run(words, capture_output=True, check=False, timeout=60, text=True)
    assert ended.returncode == 2
    assert "--jpeg-index takes a whole number, at least 2, at most 65536\n" in ended.stderr
