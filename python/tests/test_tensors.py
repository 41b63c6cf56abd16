"""Batches as torch, NumPy or plain arrays; nothing is imported before it is needed."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest
import stoker


def run(script, *arguments):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=100,
    )


def test_nothing_is_imported_early(folder):
    done = run(
        """
        import sys, stoker
        loader = stoker.Loader(sys.argv[1], 4, image=[stoker.Resize((8, 8))], output="array")
        images, labels = next(iter(loader))
        print(images, labels, "torch" in sys.modules, "numpy" in sys.modules)
        """,
        folder,
    )
    assert done.stdout == (
        "<stoker.Array uint8 (4, 3, 8, 8)> <stoker.Array int64 (4,)> False False\n"
    ), done


def test_auto_is_torch(folder, torch):
    done = run(
        """
        import sys, stoker
        loader = stoker.Loader(sys.argv[1], 4, image=[stoker.Resize((8, 8))])
        before = "torch" in sys.modules
        images, labels = next(iter(loader))
        print(before, type(images).__module__, images.dtype, labels.dtype)
        """,
        folder,
    )
    assert done.stdout == "False torch torch.uint8 torch.int64\n", done


HIDE = """
    import importlib.util, sys, stoker
    find = importlib.util.find_spec
    hidden = sys.argv[2].split(",")
    importlib.util.find_spec = lambda name, *rest: None if name in hidden else find(name, *rest)
    loader = stoker.Loader(sys.argv[1], 4, image=[stoker.Resize((8, 8))])
    print(type(next(iter(loader))[0]).__name__)
"""


@pytest.mark.parametrize(("hidden", "want"), [("torch", "ndarray"), ("torch,numpy", "Array")])
def test_auto_without_torch(folder, hidden, want):
    done = run(HIDE, folder, hidden)
    assert done.stdout == want + "\n", done


def test_missing_output(folder, engine, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    loader = stoker.Loader(folder, 4, image=[stoker.Resize((8, 8))], engine=engine, output="torch")
    with pytest.raises(stoker.ArgumentError, match="torch"):
        next(iter(loader))


@pytest.mark.parametrize("output", ["torch", "numpy", "array"])
def test_kinds_of_fields(tars, engine, output, request):
    torch = request.getfixturevalue("torch") if output == "torch" else None
    fields = {
        "image": stoker.Image("jpg", [stoker.Resize((8, 8))]),
        "label": stoker.Int("cls"),
        "weight": stoker.Float("cls"),
        "bin": stoker.Bytes("bin"),
        "text": stoker.Text("txt"),
        "key": "__key__",
        "id": "__id__",
        "mask": "__mask__",
    }
    batch = next(iter(stoker.Loader(tars, 4, fields=fields, engine=engine, output=output)))
    assert list(batch) == list(fields)
    kinds = {"torch": torch and torch.Tensor, "numpy": np.ndarray, "array": stoker.ArrayColumn}
    kind = kinds[output]
    for name in ("image", "label", "weight", "id"):
        assert isinstance(batch[name], kind), name
    assert batch["weight"].tolist() == [float(label) for label in batch["label"].tolist()]
    assert isinstance(batch["bin"], stoker.BytesColumn)
    assert all(isinstance(text, str) for text in batch["text"] + batch["key"])
    assert list(map(bool, batch["mask"])) == [True] * 4
    if output == "torch":
        assert batch["weight"].dtype == torch.float64 and batch["mask"].dtype == torch.bool
    if output == "numpy":
        assert batch["weight"].dtype == np.float64 and batch["mask"].dtype == np.bool_


def test_text_that_is_not_utf8(tmp_path, engine):
    import make

    make.tar(tmp_path / "a.tar", [("a.txt", b"fine"), ("b.txt", b"caf\xe9")])
    source = tmp_path / "a.tar"

    def texts(field):
        loader = stoker.Loader(source, 2, fields={"t": field}, shuffle="none", engine=engine)
        return next(iter(loader))["t"]

    with pytest.raises(stoker.FormatError, match="UTF-8"):
        texts(stoker.Text("txt"))
    assert texts(stoker.Text("txt", errors="replace")) == ["fine", "caf\ufffd"]
    assert texts(stoker.Bytes("txt")).tolist() == [b"fine", b"caf\xe9"]


# ---- pinned memory, with a fake CUDA ----


@pytest.fixture
def pinned(torch, monkeypatch):
    """torch.cuda is there, and pin_memory() is a copy that is marked."""
    pins = []

    def pin_memory(tensor):
        copy = tensor.clone()
        pins.append(copy.data_ptr())
        return copy

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.Tensor, "pin_memory", pin_memory)
    return pins


def test_pin_memory(plain, engine, pinned):
    options = {"fields": {"id": "__id__", "key": "__key__"}, "engine": engine, "seed": 3}
    plain_ids = [b["id"].tolist() for b in stoker.Loader(plain(64), 4, **options)]
    loader = stoker.Loader(plain(64), 4, pin_memory=True, **options)
    for _ in range(2):
        loader.set_epoch(0)
        got = []
        for batch in loader:
            assert batch["id"].data_ptr() in pinned
            got.append(batch["id"].tolist())
        assert got == plain_ids


def test_pin_memory_state(plain, engine, pinned):
    """The batch that was made ahead does not count as delivered."""
    options = {"fields": {"id": "__id__"}, "engine": engine, "seed": 3}
    want = [b["id"].tolist() for b in stoker.Loader(plain(64), 4, **options)]
    loader = stoker.Loader(plain(64), 4, pin_memory=True, **options)
    iterator = iter(loader)
    got = [next(iterator)["id"].tolist() for _ in range(5)]
    state = loader.state_dict()
    loader.close()
    again = stoker.Loader(plain(64), 4, pin_memory=True, **options)
    again.load_state_dict(state)
    again.set_epoch(0)
    got += [batch["id"].tolist() for batch in again]
    assert got == want
    first = iter(again)
    next(first)
    assert [b["id"].tolist() for b in again] != want and again.epoch == 2


def test_pin_memory_errors(tmp_path, engine, pinned):
    import make

    make.tar(tmp_path / "a.tar", [("a.txt", b"1"), ("b.txt", b"x")])
    loader = stoker.Loader(
        tmp_path / "a.tar",
        1,
        fields={"n": stoker.Int("txt")},
        shuffle="none",
        pin_memory=True,
        engine=engine,
    )
    iterator = iter(loader)
    assert next(iterator)["n"].tolist() == [1]
    for _ in range(2):
        with pytest.raises(stoker.Error):
            next(iterator)
    loader.close()


def test_pin_memory_without_cuda(folder, engine, torch, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    loader = stoker.Loader(folder, 4, image=[stoker.Resize((8, 8))], pin_memory=True, engine=engine)
    images, _ = next(iter(loader))
    assert images.shape == (4, 3, 8, 8)
