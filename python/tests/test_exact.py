"""Loader(exact=False): pixels differ a little, reproducibly, and the state records the setting.

Goal: the mean difference that the documentation states; the same bytes for any number of threads,
with a JPEG index, in the sandbox and on resume; a state of one setting is refused under the other.
Method: loaders over a tar of JPEGs of all samplings on a real disk.
"""

import subprocess

import make
import numpy as np
import pytest
import stoker
from test_cli import COMMAND, find_command

COUNT = 24
CROP = [stoker.RandomResizedCrop(64), stoker.RandomHorizontalFlip()]


def smooth(number, height, width):
    """Waves and edges with a little noise, as photographs have them."""
    y, x = np.mgrid[0:height, 0:width] / 25.0
    waves = [np.sin(x * (1 + c % 2) + number) * np.cos(y + c) * 55 + 110 for c in range(3)]
    edges = (np.floor(x / 2) + np.floor(y / 3)) % 3 * 18
    noise = np.random.default_rng(number).normal(0, 4, (height, width, 3))
    return np.clip(np.stack(waves, -1) + edges[..., None] + noise, 0, 255).astype(np.uint8)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    members = []
    for number in range(COUNT):
        image = smooth(number, 180 + 9 * number, 300 - 7 * number)
        options = {"subsampling": number % 3, "quality": 60 + number}
        members.append((f"{number:03}.jpg", make.encoded(image, **options)))
    return make.tar(tmp_path_factory.mktemp("exact") / "a.tar", members)


def epoch(path, **options):
    """An epoch's pixels, and the statistics."""
    options = {"threads": 2, "image": CROP, **options}
    if "fields" in options:
        del options["image"]
    if "sandbox" not in options:  # counters belong to the engine, so the test uses its own
        engine = {"engine": stoker.Engine(threads=options.pop("threads"))}
    else:
        engine = {}
    with stoker.Loader(path, 8, seed=5, output="numpy", **engine, **options) as loader:
        batches = [batch["image"] if "fields" in options else batch[0] for batch in loader]
        return np.concatenate(batches), loader.stats()




FIELDS = {"image": stoker.Image("jpg", CROP)}


def test_the_difference_is_small_and_reported(data):
    exact, reported = epoch(data, fields=FIELDS)
    assert reported["exact"] is True and reported["jpegs"].get("planar", 0) == 0
    planar, reported = epoch(data, fields=FIELDS, exact=False)
    assert reported["exact"] is False
    assert reported["jpegs"]["planar"] == reported["jpegs"]["stoker"] >= COUNT
    difference = np.abs(planar.astype(int) - exact).mean()
    assert 0 < difference < 0.5, difference


def test_a_field_says_it_too(data):
    wanted, _ = epoch(data, fields=FIELDS, exact=False)
    fields = {"image": stoker.Image("jpg", CROP, exact=False)}
    planar, reported = epoch(data, fields=fields)
    assert np.array_equal(wanted, planar) and reported["exact"] is False
    fields = {"image": stoker.Image("jpg", CROP, exact=True)}
    exact, reported = epoch(data, fields=fields, exact=False)
    assert not np.array_equal(exact, planar) and reported["exact"] is True


def test_the_same_bytes_each_time(data):
    wanted, _ = epoch(data, fields=FIELDS, exact=False, threads=1)
    for more in ({"threads": 3}, {"sandbox": True, "threads": 1}):
        planar, reported = epoch(data, fields=FIELDS, exact=False, **more)
        assert np.array_equal(wanted, planar)
        assert reported["jpegs"]["planar"] == reported["jpegs"]["stoker"] >= COUNT


@pytest.mark.skipif(find_command() is None, reason="the stoker command is not built")
def test_with_marks(data, tmp_path):
    path = tmp_path / "a.tar"
    path.write_bytes(data.read_bytes())
    wanted, _ = epoch(path, fields=FIELDS, exact=False)
    subprocess.run([COMMAND, "index", "--jpeg-index", path], check=True, timeout=60)
    planar, reported = epoch(path, fields=FIELDS, exact=False)
    assert np.array_equal(wanted, planar)
    assert reported["jpegs"]["marked"] >= COUNT and reported["jpegs"]["planar"] >= COUNT


def test_a_state_knows(data):
    options = {"fields": FIELDS, "seed": 5, "output": "numpy"}
    with stoker.Loader(data, 8, exact=False, **options) as loader:
        batches = [batch["image"] for batch in loader]
    with stoker.Loader(data, 8, exact=False, **options) as loader:
        assert np.array_equal(next(iter(loader))["image"], batches[0])
        state = loader.state_dict()
    assert state["exact"] is False
    with stoker.Loader(data, 8, exact=False, **options) as loader:
        loader.load_state_dict(state)
        assert np.array_equal(next(iter(loader))["image"], batches[1])
    with stoker.Loader(data, 8, **options) as loader:
        assert "exact" not in loader.state_dict()
        with pytest.raises(stoker.StateError, match=r"exact=False in the state, True here"):
            loader.load_state_dict(state)
        own = loader.state_dict()
    with stoker.Loader(data, 8, exact=False, **options) as loader:
        with pytest.raises(stoker.StateError, match=r"exact=True in the state, False here"):
            loader.load_state_dict(own)


def test_a_state_of_torch_knows(data):
    torch = pytest.importorskip("stoker.torch")
    for exact in (True, False):
        samples = torch.IterableDataset(data, 8, fields=FIELDS, seed=5, exact=exact)
        stream = iter(samples)
        next(stream)
        assert stream.state_dict().get("exact", True) is exact
        other = iter(torch.IterableDataset(data, 8, fields=FIELDS, seed=5, exact=not exact))
        with pytest.raises(stoker.StateError, match="another setting of exact="):
            other.load_state_dict(stream.state_dict())
