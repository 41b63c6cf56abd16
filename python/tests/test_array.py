"""Array and BytesColumn: buffers and DLPack without a copy, and how long memory lives."""

import ctypes
import gc
import threading

import numpy as np
import pytest
import stoker

FIELDS = {
    "image": stoker.Image("jpg", [stoker.Resize((8, 12))]),
    "label": stoker.Int("cls"),
    "text": stoker.Bytes("txt"),
    "bin": stoker.Bytes("bin"),
    "id": "__id__",
    "key": "__key__",
}


@pytest.fixture
def batch(tars, engine):
    loader = stoker.Loader(tars, 10, fields=FIELDS, output="array", engine=engine, shuffle="none")
    return next(iter(loader))


@pytest.mark.parametrize(
    ("dtype", "format", "bytes"),
    [("uint8", "B", 1), ("float32", "f", 4), ("float16", "e", 2), ("bfloat16", "H", 2)],
)
def test_buffer(tars, engine, dtype, format, bytes):
    image = stoker.Image("jpg", [stoker.Resize((8, 12))], dtype=dtype)
    loader = stoker.Loader(tars, 10, fields={"image": image}, output="array", engine=engine)
    array = next(iter(loader))["image"]
    view = memoryview(array)
    assert array.dtype == dtype and array.shape == view.shape == (10, 3, 8, 12)
    assert view.format == format and view.itemsize == bytes
    assert array.strides == view.strides and array.strides[3] == bytes
    assert not view.readonly and len(array) == 10 and array.nbytes == view.nbytes == 2880 * bytes
    assert repr(array) == f"<stoker.Array {dtype} (10, 3, 8, 12)>"


def test_buffer_is_refused_where_it_cannot_be(batch):
    with pytest.raises(BufferError):
        batch["image"].__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError):
        batch["image"].__dlpack__(stream=1)
    with pytest.raises(TypeError):
        batch["image"].__dlpack__(max_version=1)
    with pytest.raises(BufferError):
        batch["text"].offsets.__dlpack__()  # read-only, and no flag to show it
    with pytest.raises(TypeError):
        memoryview(batch["text"].offsets)[0] = 1
    with pytest.raises(TypeError):
        memoryview(batch["text"].values)[0] = 1


def test_numpy_shares_memory(batch):
    array = np.asarray(batch["image"])
    assert array.ctypes.data == batch["image"].address and array.flags.writeable
    assert np.from_dlpack(batch["image"]).ctypes.data == batch["image"].address
    assert not np.from_dlpack(batch["text"].offsets).flags.writeable
    assert np.array_equal(np.asarray(batch["label"]), np.arange(10) % 7)


def test_torch_shares_memory(batch, torch):
    tensor = torch.from_dlpack(batch["image"])
    assert tensor.data_ptr() == batch["image"].address
    assert tensor.shape == (10, 3, 8, 12) and tensor.dtype == torch.uint8
    copy = torch.from_dlpack(batch["image"], copy=True)
    assert copy.data_ptr() != tensor.data_ptr() and torch.equal(copy, tensor)
    tensor[0] = 7  # a batch is the loop's own
    assert np.asarray(batch["image"])[0].min() == np.asarray(batch["image"])[0].max() == 7


def test_torch_bfloat16(tars, engine, torch):
    image = stoker.Image("jpg", [stoker.Resize((8, 12))], dtype=torch.bfloat16)
    batch = next(iter(stoker.Loader(tars, 4, fields={"image": image}, engine=engine)))
    assert batch["image"].dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({}, b"dltensor"),
        ({"max_version": (0, 8)}, b"dltensor"),
        ({"max_version": (1, 0)}, b"dltensor_versioned"),
        ({"max_version": (2, 1), "dl_device": (1, 0)}, b"dltensor_versioned"),
        ({"copy": True}, b"dltensor"),
    ],
)
def test_capsule(batch, arguments, name):
    get_name = ctypes.pythonapi.PyCapsule_GetName
    get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    capsule = batch["image"].__dlpack__(**arguments)
    assert get_name(capsule) == name
    assert batch["image"].__dlpack_device__() == (1, 0)


def test_memory_outlives_everything(tars, torch):
    """A tensor, a view and a NumPy array made from a batch stay valid after all other objects are
    released."""
    with stoker.Engine(threads=2, memory="64MiB") as engine:
        loader = stoker.Loader(
            tars, 10, fields=FIELDS, output="array", engine=engine, shuffle="none"
        )
        kept, copies = [], []
        for batch in loader:
            kept.append(
                (
                    torch.from_dlpack(batch["image"]),
                    np.asarray(batch["label"]),
                    batch["text"][3],
                    batch["text"],
                )
            )
            copies.append((kept[-1][0].clone(), kept[-1][1].copy(), bytes(kept[-1][2])))
        loader.close()
    del loader, engine, batch
    gc.collect()
    assert len(kept) == 10
    for (image, label, text, column), (image_copy, label_copy, text_copy) in zip(
        kept, copies, strict=True
    ):
        assert torch.equal(image, image_copy) and np.array_equal(label, label_copy)
        assert bytes(text) == text_copy == column.tolist()[3]


def test_memory_comes_back(tars, engine):
    """The engine gets the memory back after the last release, in whatever order the objects are
    released."""
    loader = stoker.Loader(tars, 10, fields=FIELDS, output="array", engine=engine, seed=3)
    before = None
    for round in range(4):
        for batch in loader:
            image, views = batch["image"], list(batch["text"])
            capsule = image.__dlpack__()
            del batch, image
            del capsule
            del views
        used = engine.info()["memory_bytes"]
        before = used if before is None else before
        assert used <= before * 1.5 + (1 << 20), round
    loader.close()


def test_last_holder_in_another_thread(batch, torch):
    """The deleter runs in a thread that never used the loader."""
    tensors = [torch.from_dlpack(batch["image"]) for _ in range(4)]
    sums = []

    def work(tensor):
        sums.append(int(tensor.sum()))

    batch.clear()
    threads = [threading.Thread(target=work, args=(tensors.pop(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(sums)) == 1


def test_bytes_column(batch):
    column = batch["text"]
    want = [f"Text of {i}: ü".encode() for i in range(10)]
    assert column.tolist() == want and [bytes(view) for view in column] == want
    assert bytes(column[-1]) == want[-1] and [bytes(v) for v in column[2:8:3]] == want[2:8:3]
    assert column[0].readonly and len(column) == 10
    offsets = np.asarray(column.offsets)
    assert bytes(np.asarray(column.values)[offsets[4] : offsets[5]]) == want[4]
    with pytest.raises(IndexError):
        column[10]
    with pytest.raises(IndexError):
        column[-11]
    with pytest.raises(TypeError):
        column["a"]
    from collections.abc import Sequence

    assert isinstance(column, Sequence) and isinstance(column, stoker.BytesColumn)


def test_bytes_of_no_bytes(batch):
    assert [len(value) for value in batch["bin"]] == [i % 13 for i in range(10)]
    assert batch["bin"].tolist()[0] == b""


def test_no_instances_from_nothing():
    for kind in (stoker.ArrayColumn, stoker.BytesColumn):
        with pytest.raises(TypeError):
            kind()
