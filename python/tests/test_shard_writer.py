"""ShardWriter: written samples are read back, mistakes are refused, and interrupted writers resume.

Goal: every kind of value as stoker and webdataset read it; each refusal typed, and without a trace
in the result; the same bytes after any interruption inside one process (kills: test_pack.py).
"""

import array
import datetime
import errno
import functools
import gc
import io
import itertools
import json
import math
import os
import pickle
import struct
import threading

import make
import numpy as np
import pytest
import stoker
from PIL import Image

PIXELS = make.pixels(5, 24, 30)
# extension: (value, the bytes that it becomes, or a check of them)
VALUES = {
    "bin": (b"\x00\xff bytes", b"\x00\xff bytes"),
    "bytearray": (bytearray(b"abc"), b"abc"),
    "view": (memoryview(b"abcdef")[::2], b"ace"),
    "numbers": (memoryview(array.array("h", [1, 2])), struct.pack("2h", 1, 2)),
    "none": (b"", b""),
    "txt": ("Über, 図", "Über, 図".encode()),
    "cls": (7, b"7"),
    "np.cls": (np.int32(-3), b"-3"),
    "flag": (True, b"1"),
    "float": (0.1, b"0.1"),
    "single": (np.float32(0.1), b"0.10000000149011612"),
    "double": (np.float64(1e300), b"1e+300"),
    "nan": (math.nan, b"nan"),
    "json": ({"b": [1, None, "ü"], "a": 0.5}, '{"b":[1,null,"ü"],"a":0.5}'.encode()),
    "date.json": ([datetime.date(2026, 11, 21)], b'["2026-11-21"]'),
    "np.json": ([np.int64(4), np.arange(3), {"x": np.float32(0.5)}], b'[4,[0,1,2],{"x":0.5}]'),
    "text.json": ('{"already": "JSON"}', b'{"already": "JSON"}'),
    "npy": (
        np.arange(6, dtype=">i2").reshape(2, 3),
        lambda d: same(np.load(d), [[0, 1, 2], [3, 4, 5]]),
    ),
    "list.npy": ([1.5, 2.5], lambda d: same(np.load(d), [1.5, 2.5])),
    "npz": (
        {"a": np.ones(2), "b": 7},
        lambda d: same(np.load(d)["a"], [1, 1]) and np.load(d)["b"] == 7,
    ),
    "png": (PIXELS, lambda d: same(Image.open(d), PIXELS)),
    "grey.png": (PIXELS[..., 0], lambda d: same(Image.open(d), PIXELS[..., 0])),
    "pil.png": (Image.fromarray(PIXELS), lambda d: same(Image.open(d), PIXELS)),
    "jpg": (PIXELS, lambda d: near(Image.open(d), PIXELS)),
    "PIL.JPEG": (Image.fromarray(PIXELS), lambda d: near(Image.open(d), PIXELS)),
    "webp": (PIXELS, lambda d: near(Image.open(d), PIXELS)),
}


def same(got, want):
    return np.array_equal(np.asarray(got), want)


def near(got, want):
    return np.abs(np.asarray(got).astype(int) - want).mean() < 20  # lossy


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def small(number):
    return {"__key__": f"k/{number:03}", "cls": number % 2, "bin": bytes([number]) * (number * 97)}


def write(destination, numbers, **options):
    with stoker.ShardWriter(destination, shard_bytes="8KiB", **options) as writer:
        for number in numbers:
            writer.write(small(number))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The files of 40 small samples, written without a stop."""
    path = tmp_path_factory.mktemp("whole") / "dst"
    write(path, range(40), classes=["cat", "dog"])
    return files(path)


def test_values(tmp_path):
    with stoker.ShardWriter(str(tmp_path / "dst")) as writer:
        for number in range(3):
            values = {name: value for name, (value, _) in VALUES.items()}
            writer.write(
                {"__key__": f"a b/ü{number}", "__url__": "x", "_hidden": object(), **values}
            )
    for given in stoker.Dataset(tmp_path / "dst"), theirs(tmp_path / "dst"):
        samples = list(given)
        assert [sample["__key__"] for sample in samples] == [f"a b/ü{n}" for n in range(3)]
        for sample in samples:
            assert {*sample} - {"__key__", "__url__"} == {name.lower() for name in VALUES}
            for name, (_, want) in VALUES.items():
                data = sample[name.lower()]
                assert want(io.BytesIO(data)) if callable(want) else data == want, name


def theirs(folder):
    """The samples as webdataset returns them; the keys that it adds are left out."""
    webdataset = pytest.importorskip("webdataset")
    shards = sorted(map(str, folder.glob("*.tar")))
    for sample in webdataset.WebDataset(shards, shardshuffle=False):
        yield {key: value for key, value in sample.items() if key != "__local_path__"}


def test_webdataset_decodes(tmp_path):
    webdataset = pytest.importorskip("webdataset")
    sample = {"png": PIXELS, "cls": 3, "json": {"a": [1]}, "npy": np.arange(4), "txt": "ü"}
    with stoker.ShardWriter(tmp_path / "dst") as writer:
        writer.write({"__key__": "one", **sample})
    url = str(tmp_path / "dst" / "shard-000000.tar")
    (got,) = webdataset.WebDataset(url, shardshuffle=False).decode("rgb8")
    assert got["cls"] == 3 and got["json"] == {"a": [1]} and got["txt"] == "ü"
    assert same(got["npy"], np.arange(4)) and same(got["png"], PIXELS)


def test_a_loader_reads_it(tmp_path, engine):
    write(tmp_path / "dst", range(40), classes=["cat", "dog"])
    loader = stoker.Loader(
        tmp_path / "dst", 40, fields={"y": stoker.Int("cls"), "b": stoker.Bytes("bin")},
        engine=engine, shuffle="none", output="numpy",
    )  # fmt: skip
    (batch,) = loader
    assert batch["y"].tolist() == [number % 2 for number in range(40)]
    assert [len(data) for data in batch["b"]] == [number * 97 for number in range(40)]


def test_manifest(tmp_path, whole):
    assert sorted(whole)[-2:] == ["stoker.index", "stoker.manifest.json"]
    manifest = json.loads(whole["stoker.manifest.json"])
    assert manifest["classes"] == ["cat", "dog"] and len(manifest["shards"]) > 5
    assert sum(shard["samples"] for shard in manifest["shards"]) == 40
    assert all(len(whole[name]) <= 8192 for name in whole if name.endswith(".tar"))


CIRCLE = []
CIRCLE.append(CIRCLE)
REFUSED = {
    "no dict": [("__key__", "a")],
    "no key": {"bin": b""},
    "key of bytes": {"__key__": b"a", "bin": b""},
    "empty key": {"__key__": "", "bin": b""},
    "key with a dot": {"__key__": "a.b", "bin": b""},
    "key with NUL": {"__key__": "a\0", "bin": b""},
    "key that climbs": {"__key__": "../a", "bin": b""},
    "absolute key": {"__key__": "/a", "bin": b""},
    "meta key": {"__key__": "__a__/b", "bin": b""},
    "long key": {"__key__": "a" * 5000, "bin": b""},
    "surrogate": {"__key__": "\ud800", "bin": b""},
    "key twice": {"__key__": "k/000", "bin": b""},
    "no members": {"__key__": "a", "_b": b""},
    "extension no text": {"__key__": "a", 7: b""},
    "extension empty": {"__key__": "a", "": b""},
    "extension with dot": {"__key__": "a", ".jpg": b""},
    "extension with slash": {"__key__": "a", "b/jpg": b""},
    "extension twice": {"__key__": "a", "jpg": b"", "JPG": b""},
    "too many": {"__key__": "a", **{f"e{number}": b"" for number in range(4097)}},
    "nothing": {"__key__": "a", "txt": None},
    "an object": {"__key__": "a", "txt": object()},
    "a dict, not json": {"__key__": "a", "txt": {}},
    "an array, not npy": {"__key__": "a", "bin": np.ones(2)},
    "complex": {"__key__": "a", "x": 1j},
    "json: an object": {"__key__": "a", "json": {"x": object()}},
    "json: nan": {"__key__": "a", "json": [math.nan]},
    "json: itself": {"__key__": "a", "json": CIRCLE},
    "json: deep": {"__key__": "a", "json": functools.reduce(lambda a, _: [a], range(10**5), [])},
    "json: text that is none": {"__key__": "a", "json": "a caption"},
    "json: surrogate": {"__key__": "a", "json": "\"\ud800\""},
    "text: surrogate": {"__key__": "a", "txt": "\ud800"},
    "npy: objects": {"__key__": "a", "npy": np.array([object()])},
    "npy: a path": {"__key__": "a", "npy": "x.npy"},
    "npz: objects": {"__key__": "a", "npz": {"x": np.array([object()])}},
    "npz: no names": {"__key__": "a", "npz": {7: np.ones(1)}},
    "picture: a path": {"__key__": "a", "jpg": "a.jpg"},
    "picture: floats": {"__key__": "a", "png": np.ones((2, 2, 3))},
    "picture: RGBA as JPEG": {"__key__": "a", "jpg": np.zeros((2, 2, 4), np.uint8)},
}  # fmt: skip


@pytest.mark.parametrize("row", REFUSED)
def test_refused_samples(tmp_path, whole, row):
    """Typed, with words; and nothing of it is in the result."""
    with stoker.ShardWriter(tmp_path / "dst", shard_bytes=8192, classes=["cat", "dog"]) as writer:
        for number in range(20):
            writer.write(small(number))
        with pytest.raises(stoker.ArgumentError) as caught:
            writer.write(REFUSED[row])
        assert caught.value.what and caught.value.where and caught.value.advice
        for number in range(20, 40):
            writer.write(small(number))
    assert files(tmp_path / "dst") == whole


@pytest.mark.parametrize(
    "destination, options",
    [
        (7, {}),
        ("", {}),
        ("a\0b", {}),
        (None, dict(pattern="no-number.tar")),
        (None, dict(pattern="%d-%d.tar")),
        (None, dict(pattern="%06d.zip")),
        (None, dict(pattern="a/%06d.tar")),
        (None, dict(pattern=b"%06d.tar")),
        (None, dict(pattern="%06d\0.tar")),
        (None, dict(shard_bytes=100)),
        (None, dict(shard_bytes="large")),
        (None, dict(classes="cat")),
        (None, dict(classes=[1])),
        (None, dict(classes=["a\0"])),
        (None, dict(source=1)),
        (None, dict(engine=7)),
    ],
    ids=str,
)
def test_refused_options(tmp_path, destination, options):
    with pytest.raises(stoker.ArgumentError) as caught:
        stoker.ShardWriter(tmp_path / "dst" if destination is None else destination, **options)
    assert caught.value.advice
    assert not list(tmp_path.iterdir())


def test_names_that_are_no_utf8(tmp_path):
    key = os.fsdecode(b"caf\xe9")
    with stoker.ShardWriter(tmp_path / "dst") as writer:
        writer.write({"__key__": key, "txt": ""})
    assert stoker.Dataset(tmp_path / "dst").sample(0).key == key
    with pytest.raises(stoker.UnsupportedError):
        stoker.ShardWriter(tmp_path / "other", classes=[key])


def test_destination_in_use(tmp_path):
    taken = make.write(tmp_path / "dst" / "file", b"mine").parent
    with pytest.raises(FileExistsError) as caught:
        stoker.ShardWriter(taken)
    assert isinstance(caught.value, stoker.IOError) and caught.value.errno == errno.EEXIST
    with pytest.raises(FileExistsError):
        stoker.ShardWriter(taken / "file")
    assert files(taken) == {"file": b"mine"} and not (tmp_path / "dst.part").exists()
    make.write(tmp_path / "b.part" / "file", b"mine")
    with pytest.raises(FileExistsError):
        stoker.ShardWriter(tmp_path / "b")
    (tmp_path / "empty").mkdir()
    write(tmp_path / "empty", range(3))
    assert len(stoker.Dataset(tmp_path / "empty")) == 3
    with pytest.raises(FileNotFoundError):
        stoker.ShardWriter(tmp_path / "absent" / "dst")


def test_an_exception_does_not_commit(tmp_path, whole):
    """The same arguments resume; others are refused by name."""
    destination, classes = tmp_path / "dst", ["cat", "dog"]
    for stop in (13, 14, 31, 39):
        with pytest.raises(ZeroDivisionError):
            with stoker.ShardWriter(destination, shard_bytes=8192, classes=classes) as writer:
                for number in range(writer.samples_done, 40):
                    writer.write(small(number))
                    1 / (number - stop)
        assert not destination.exists()
    for options, word in (
        (dict(shard_bytes=9000, classes=classes), "shard_bytes"),
        (dict(shard_bytes=8192, classes=["cat"]), "classes"),
        (dict(shard_bytes=8192, classes=classes, pattern="%03d.tar"), "pattern"),
        (dict(shard_bytes=8192, classes=classes, source="v2"), "source"),
    ):
        with pytest.raises(stoker.StateError, match=f"{word}: .* before, .* now"):
            stoker.ShardWriter(destination, **options)
    with stoker.ShardWriter(destination, shard_bytes=8192, classes=classes) as writer:
        assert 31 < writer.samples_done < 40
        assert writer.resume_key == f"k/{writer.samples_done - 1:03}"
        with pytest.raises(stoker.ArgumentError, match="was already added"):
            writer.write(small(0))  # without on_error="skip" it is an error
        for number in range(writer.samples_done, 40):
            writer.write(small(number))
    assert files(destination) == whole
    assert {path.name for path in tmp_path.iterdir()} == {"dst"}


def test_after_the_end(tmp_path):
    writer = stoker.ShardWriter(tmp_path / "dst")
    assert (writer.samples_done, writer.resume_key) == (0, "")
    with pytest.raises(stoker.EmptyError):
        writer.commit()
    writer.write(small(1))
    writer.commit()
    assert writer.samples_done == 1
    for call in (lambda: writer.write(small(2)), writer.commit):
        with pytest.raises(stoker.ClosedError):
            call()
    writer.close()
    writer.close()
    for call in (lambda: writer.write(small(2)), writer.commit, lambda: writer.samples_done):
        with pytest.raises(stoker.ClosedError):
            call()
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(writer)
    assert len(stoker.Dataset(tmp_path / "dst")) == 1


def test_commit_inside_the_block(tmp_path):
    with stoker.ShardWriter(tmp_path / "dst") as writer:
        writer.write(small(1))
        writer.commit()
    assert (tmp_path / "dst").exists()


def test_the_engine_may_be_closed_first(tmp_path):
    engine = stoker.Engine(threads=1)
    writer = stoker.ShardWriter(tmp_path / "dst", engine=engine)
    engine.close()
    writer.write(small(1))
    writer.commit()
    writer.close()
    with pytest.raises(stoker.ClosedError):
        stoker.ShardWriter(tmp_path / "other", engine=engine)


def test_forgotten_writers(tmp_path):
    """A writer that is released without close leaves a folder from which a new one resumes."""
    writer = stoker.ShardWriter(tmp_path / "dst")
    writer.write(small(1))
    del writer
    gc.collect()
    write_all = stoker.ShardWriter(tmp_path / "dst")
    assert write_all.samples_done == 0
    write_all.close()


def test_threads_with_a_lock(tmp_path):
    """From any thread, one at a time; two at once are refused or run one after the other."""
    lock, numbers = threading.Lock(), itertools.count()
    with stoker.ShardWriter(tmp_path / "dst", shard_bytes="64KiB") as writer:

        def work():
            for _ in range(100):
                with lock:
                    writer.write({"__key__": f"{next(numbers):04}", "bin": b"x" * 1000})

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    dataset = stoker.Dataset(tmp_path / "dst")
    assert [dataset.sample(n).key for n in range(400)] == [f"{n:04}" for n in range(400)]


def test_a_child_of_fork_is_refused(tmp_path):
    writer = stoker.ShardWriter(tmp_path / "dst")
    writer.write(small(1))
    child = os.fork()
    if child == 0:
        try:
            writer.write(small(2))
        except stoker.ForkedError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    writer.commit()
    writer.close()
