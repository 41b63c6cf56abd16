"""An epoch without a batch is an error when a loader is opened; an epoch that leaves out much, or
that is repeated by mistake, is a warning."""

from __future__ import annotations

import json
import warnings

import make
import pytest
import stoker
from stoker import notices

numpy = pytest.importorskip("numpy")


@pytest.fixture(autouse=True)
def no_warning_was_issued(monkeypatch):
    monkeypatch.setattr(notices, "_issued", set())


@pytest.fixture
def seven(tmp_path):
    make.tar(tmp_path / "a.tar", [(f"{i}.cls", str(i % 7).encode()) for i in range(7)])
    return tmp_path / "a.tar"


FIELDS = {"y": stoker.Int("cls")}


def fails(make_loader, *parts):
    with pytest.raises(stoker.EmptyError) as caught:
        make_loader()
    text = str(caught.value)
    for part in (*parts, "tail=", "keep"):
        assert part in text, text


def test_a_batch_larger_than_the_data(seven):
    where = "7 samples", "batch_size 8", "world_size 1"
    fails(lambda: stoker.Loader(seven, 8, fields=FIELDS), *where)
    for tail in ("keep", "pad", "wrap"):
        with stoker.Loader(seven, 8, fields=FIELDS, tail=tail) as loader:
            assert len(loader) == 1 and len(list(loader)) == 1


def test_too_few_samples_for_the_ranks(seven):
    fails(
        lambda: stoker.Loader(seven, 6, fields=FIELDS, rank=1, world_size=2),
        "7 samples",
        "batch_size 6",
        "world_size 2",
        "12",
    )


def test_a_small_subset(seven):
    fails(lambda: stoker.Loader(seven, 4, subset="cls > 3", fields=FIELDS), "3 samples")


def test_ranks_that_are_found_later(seven, monkeypatch):
    """The process group is created after the loader: the error is raised when the loop begins."""
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    with stoker.Loader(seven, 6, fields=FIELDS) as loader:
        monkeypatch.setenv("RANK", "0")
        monkeypatch.setenv("WORLD_SIZE", "2")
        with pytest.raises(stoker.EmptyError, match="world_size 2"):
            iter(loader)


def test_tokens_and_text(tmp_path):
    numpy.save(tmp_path / "a.npy", numpy.arange(100, dtype="uint16"))
    fails(lambda: stoker.TokenLoader(tmp_path / "a.npy", 100, 10), "9 samples", "batch_size 100")
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "a b"}) + "\n")

    def tokens(texts):
        return [[1, 2] for _ in texts]

    for rows in ("packed", "padded", "documents"):
        fails(
            lambda rows=rows: stoker.TextLoader(tmp_path / "a.jsonl", tokens, 4, 8, rows=rows),
            "1 samples",
            "batch_size 4",
        )
    fails(
        lambda: stoker.TextLoader(tmp_path / "a.jsonl", tokens, 4, 1, rows="windows"),
        "batch_size 4",
    )


def test_workers_without_a_batch_are_no_error(seven):
    """An epoch of one batch has one for the first of two workers."""
    counts = [
        len(stoker.Loader(seven, 4, fields=FIELDS, worker=worker, worker_count=2))
        for worker in (0, 1)
    ]
    assert counts == [1, 0]


def test_a_mix_of_small_sources(tmp_path):
    """Sources smaller than a batch may still make batches together."""
    for name in "ab":
        numpy.save(tmp_path / f"{name}.npy", numpy.arange(100, dtype="uint16"))
    mix = stoker.Mix([tmp_path / "a.npy", tmp_path / "b.npy"], [1, 1], epoch=24)
    with stoker.TokenLoader(mix, 12, 10) as loader:
        assert len(loader) == 2 and len(list(loader)) == 2


def test_much_is_dropped(seven):
    with pytest.warns(stoker.StokerWarning, match="leaves out 3 of 7 samples"):
        stoker.Loader(seven, 4, fields=FIELDS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stoker.Loader(seven, 4, fields=FIELDS)  # it warns once
        stoker.Loader(seven, 4, fields=FIELDS, tail="keep")
        stoker.Loader(seven, 7, fields=FIELDS)


def test_a_loop_that_was_broken_off(seven):
    with stoker.Loader(seven, 1, fields=FIELDS, shuffle="full") as loader:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for epoch in range(3):
                loader.set_epoch(epoch)
                next(iter(loader))
            state = loader.state_dict()
            loader.load_state_dict(state)
            assert len(list(loader)) == 6
            assert len(list(loader)) == 7
            next(iter(loader))
        with pytest.warns(stoker.StokerWarning, match="epoch 4 again") as caught:
            next(iter(loader))
        assert caught[0].filename == __file__
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            next(iter(loader))  # it warns once


def test_validation_may_be_broken_off(seven):
    with stoker.Loader(seven, 1, fields=FIELDS, shuffle="none") as loader:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for _ in range(2):
                next(iter(loader))

