"""Arguments: errors for invalid ones name them; words for byte counts; ranks found
automatically."""

import os
import subprocess
import sys

import numpy as np
import pytest
import stoker
from stoker._options import parse_bytes

I = stoker.Image("jpg", [stoker.Resize((8, 8))])

REFUSED = {
    "batch_size 0": {"batch_size": 0},
    "batch_size negative": {"batch_size": -1},
    "batch_size float": {"batch_size": 2.5},
    "batch_size huge": {"batch_size": 1 << 40},
    "seed negative": {"seed": -1},
    "seed of 65 bits": {"seed": 1 << 64},
    "shuffle": {"shuffle": "blok"},
    "shuffle bool": {"shuffle": True},
    "tail": {"tail": "dorp"},
    "rank alone": {"rank": 0},
    "world_size alone": {"world_size": 2},
    "rank beyond": {"rank": 2, "world_size": 2},
    "world of none": {"rank": 0, "world_size": 0},
    "dtype": {"dtype": "int8"},
    "uint8 normalised": {"dtype": "uint8", "image": [stoker.Normalize()]},
    "layout": {"layout": "CHWN"},
    "threads 0": {"threads": 0},
    "memory 0": {"memory": 0},
    "memory words": {"memory": "2 gallons"},
    "engine and threads": {"threads": 1, "engine": "ENGINE"},
    "engine of another kind": {"engine": 5},
    "on_error": {"on_error": "ignore"},
    "window 0": {"window": 0},
    "groups 0": {"groups": 0},
    "more groups than blocks": {"groups": 1 << 20},
    "transform": {"transform": 5},
    "output": {"output": "jax"},
    "timeout": {"timeout": -1},
    "image beside fields": {"image": [], "fields": {"a": I}},
    "no fields": {"fields": {}},
    "only a mask": {"fields": {"m": "__mask__"}},
    "field of a word": {"fields": {"a": "jpg"}},
    "field of another kind": {"fields": {"a": 5}},
    "fields as a list": {"fields": [I]},
    "transform of another kind": {"image": ["flip"]},
    "no fixed size": {"image": []},
    "short side only": {"image": [stoker.Resize(8)]},
    "normalize first": {"image": [stoker.Normalize(), stoker.Resize((8, 8))]},
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(folder, engine, name):
    options = {"batch_size": 4, "image": [stoker.Resize((8, 8))], **REFUSED[name]}
    if "fields" in options and "image" not in REFUSED[name]:
        del options["image"]
    if options.get("engine") == "ENGINE":
        options["engine"] = engine
    with pytest.raises((stoker.ArgumentError, stoker.BudgetError)) as caught:
        stoker.Loader(folder, **options)
    assert caught.value.what and caught.value.advice


def test_memory_that_holds_no_batch(folder):
    """A budget below one batch is an error, not a wait without end."""
    resize = [stoker.Resize((200, 200))]
    with pytest.raises(stoker.BudgetError) as caught:
        list(stoker.Loader(folder, 40, image=resize, memory="1MiB", timeout=20))
    assert caught.value.advice


@pytest.mark.parametrize("source", [[], "", ["a", ""], "a\0b", 5, None, [5]])
def test_refused_source(source):
    with pytest.raises(stoker.ArgumentError):
        stoker.Dataset(source)


@pytest.mark.parametrize("extensions", ["", ";", "jpg;", ["a;b"], []])
def test_refused_extensions(extensions):
    with pytest.raises(stoker.ArgumentError):
        stoker.Bytes(extensions)


def test_extensions():
    assert stoker.Bytes(".JPG").extensions == "jpg"
    assert stoker.Image(["jpg", ".jpeg"]).extensions == "jpg;jpeg"
    assert stoker.Image("jpg;jpeg").extensions == "jpg;jpeg"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("2GiB", 2 << 30),
        ("512 MB", 512 * 10**6),
        ("1.5 kib", 1536),
        ("100", 100),
        (77, 77),
        ("3b", 3),
        (None, 0),
    ],
)
def test_bytes(text, number):
    assert parse_bytes(text, "memory") == number


@pytest.mark.parametrize("text", ["", "GiB", "-1GiB", "1 GiBs", "0", 0, -5, 1.5, "1e3"])
def test_refused_bytes(text):
    with pytest.raises(stoker.ArgumentError):
        parse_bytes(text, "memory")


def test_dtypes(folder, engine, torch):
    def dtype_of(dtype, image, output="torch"):
        loader = stoker.Loader(folder, 4, image=image, dtype=dtype, engine=engine, output=output)
        return next(iter(loader))[0].dtype

    resize = stoker.Resize((8, 8))
    assert dtype_of(None, [resize]) == torch.uint8
    assert dtype_of(None, [resize, stoker.Normalize()]) == torch.float32
    assert dtype_of(torch.float16, [resize, stoker.Normalize()]) == torch.float16
    assert dtype_of("bfloat16", [resize]) == torch.bfloat16
    assert dtype_of(np.float32, [resize], "numpy") == np.float32
    assert dtype_of(np.dtype("float16"), [resize], "numpy") == np.float16
    assert dtype_of("bfloat16", [resize], "numpy") == np.uint16  # its bits


SCRIPT = """
import sys, stoker
loader = stoker.Loader(sys.argv[1], 4, fields={"id": "__id__"}, output="array")
print(loader.rank, loader.world_size)
"""


@pytest.mark.parametrize(
    ("variables", "want"),
    [({}, "0 1"), ({"RANK": "2", "WORLD_SIZE": "4"}, "2 4")],
)
def test_ranks_of_the_environment(folder, variables, want):
    environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")}
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder)],
        capture_output=True,
        text=True,
        env={**environment, **variables},
        timeout=60,
    )
    assert run.stdout.strip() == want, run.stderr


def test_bad_environment(folder, monkeypatch):
    monkeypatch.setenv("RANK", "two")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(stoker.ArgumentError, match="RANK"):
        stoker.Loader(folder, 4, fields={"id": "__id__"})
    assert stoker.Loader(folder, 4, fields={"id": "__id__"}, rank=1, world_size=2).rank == 1


def test_ranks_of_torch_distributed(folder, torch, monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 3)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 8)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    loader = stoker.Loader(folder, 4, fields={"id": "__id__"})
    assert (loader.rank, loader.world_size) == (3, 8)
