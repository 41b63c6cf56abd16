"""stoker.torch: samples inside a DataLoader's workers. The oracle is stoker.Loader: the same
batches in the same order, however many processes share the work, however they are started."""

import contextlib
import copy
import gc
import io
import json
import os
import pickle
import subprocess
import sys
import time
import warnings

import make
import numpy as np
import pytest
import stoker
from processes import thread_names

torch = pytest.importorskip("torch")

import stoker.torch  # noqa: E402
from stoker.torch import IterableDataset  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402
from torch_tools import (  # noqa: E402
    FIELDS,
    IDS,
    TAILS,
    batches,
    ids_of,
    plain_ids,
    short_shutdown,  # noqa: F401
)

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

# Classes and functions that run in spawned workers have to be importable.


def prepare(sample):
    """A user's function: it adds, changes, and records where it ran."""
    sample["bytes"] = len(sample.pop("blob"))
    sample["text"] = sample["text"].upper()
    sample["process"] = os.getpid()
    return sample


def tell_process(sample):
    return {**sample, "process": os.getpid(), "threads": json.dumps(thread_names())}


class OddError(Exception):
    """As users write them: not to be made of one text."""

    def __init__(self, number, reason):
        super().__init__(f"{number}: {reason}")


def fail_at_30(sample):
    if sample["id"] == 30:
        raise OddError(30, "no such thing")
    return sample


def stop_at_30(sample):
    return next(iter([])) if sample["id"] == 30 else sample


def start_slowly(worker):
    time.sleep(0.6 * worker)


# ---- the order ----


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("tail", TAILS)
def test_order(plain, workers, tail):
    """In turns, workers return the rank's batches as one Loader does; all ranks once."""
    path, world = plain(103), 2
    for epoch in range(2):
        seen = []
        for rank in range(world):
            options = dict(seed=5, tail=tail, rank=rank, world_size=world, fields=IDS)
            dataset = IterableDataset(path, 8, **options)
            dataset.set_epoch(epoch)
            got = ids_of(batches(dataset, workers))[0]
            with stoker.Loader(path, 8, output="numpy", **options) as loader:
                loader.set_epoch(epoch)
                assert got == [b["id"].tolist() for b in loader if len(b["id"])]
            seen += sum(got, [])
        if tail == "drop":
            assert len(set(seen)) == len(seen) == 96
        elif tail == "keep":
            assert sorted(seen) == list(range(103))
        elif epoch == 0:
            assert set(seen) == set(range(103))


@pytest.mark.parametrize("workers", [0, 3])
def test_samples_come_once_without_padding(plain, workers):
    seen = []
    for rank in range(3):
        dataset = IterableDataset(
            plain(103), 5, tail="pad", rank=rank, world_size=3, fields={**IDS, "real": "__mask__"}
        )
        for batch in batches(dataset, workers):
            assert batch["real"].dtype == torch.bool and len(batch["id"]) == 5
            seen += batch["id"][batch["real"]].tolist()
    assert sorted(seen) == list(range(103))


@pytest.mark.parametrize("workers", [1, 3])
def test_batches_are_the_loaders(tars, workers):
    """Pixels, text and numbers too."""
    path = f"{tars}/train-*.tar"
    dataset = IterableDataset(path, 7, seed=3, fields=FIELDS, tail="keep")
    with stoker.Loader(path, 7, seed=3, fields=FIELDS, tail="keep") as loader:
        for got, want in zip(batches(dataset, workers), loader, strict=True):
            assert torch.equal(got["image"], want["image"]) and got["image"].dtype == torch.uint8
            assert torch.equal(got["label"], want["label"]) and got["label"].dtype == torch.int64
            assert got["text"] == want["text"] and got["key"] == want["key"]
            assert got["blob"] == want["blob"].tolist()


def test_sandbox(folder):
    """Workers may start decode helpers of their own."""
    options = {"image": [stoker.RandomResizedCrop(16)], "sandbox": True}
    with stoker.Loader(folder, 8, **options) as loader:
        if loader.engine.info()["sandbox"] == "off":
            pytest.skip("no sandbox")
        want = [(images.clone(), labels) for images, labels in loader]
    dataset = IterableDataset(folder, 8, **options)
    for (images, labels), (want_images, want_labels) in zip(batches(dataset, 2), want, strict=True):
        assert torch.equal(images, want_images) and torch.equal(labels, want_labels)


@pytest.mark.parametrize("workers", [0, 3])
def test_packed_shards(tmp_path, workers):
    """Read front to back: each worker skips the other workers' batches."""
    for shard in range(3):
        members = [(f"{shard}{n:03}.txt", b"x" * 3000) for n in range(40)]
        make.tar(tmp_path / f"{shard}.tar.gz", members, mode="w:gz")
    dataset = IterableDataset(f"{tmp_path}/*.tar.gz", 7, fields=IDS, tail="keep")
    assert sum(ids_of(batches(dataset, workers))[0], []) == list(range(120))


def test_more_workers_than_batches(plain):
    dataset = IterableDataset(plain(10), 4, fields=IDS, tail="keep")
    want = plain_ids(plain(10), 4, 2, tail="keep")
    assert ids_of(batches(dataset, 5), 2) == want


def test_workers_share_the_memory(plain):
    dataset = IterableDataset(plain(10), 4, fields=IDS)
    alone, one_of_4 = (stoker.torch.workers.Here(dataset, workers) for workers in (1, 4))
    budgets = [here.engine.info()["memory_bytes_max"] for here in (alone, one_of_4)]
    assert budgets[1] == budgets[0] // 4
    alone.close(), one_of_4.close()


def test_another_batch_size_than_the_dataloaders(plain):
    """The order is another one, but each sample is returned once."""
    dataset = IterableDataset(plain(103), 1, fields=IDS)
    seen = sum(ids_of(DataLoader(dataset, batch_size=8, num_workers=3))[0], [])
    assert sorted(seen) == list(range(103))


def test_another_batch_size_is_reported(plain, monkeypatch):
    monkeypatch.setattr(stoker.notices, "_issued", set())
    for own, loaders, wanted in ((8, 8, False), (1, 8, False), (8, 16, True)):
        dataset = IterableDataset(plain(64), own, fields=IDS)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            list(DataLoader(dataset, batch_size=loaders))
        text = "".join(str(entry.message) for entry in found)
        assert (f"batches of {loaders} samples" in text) == wanted, text
        assert not wanted or "batch_size=8" in text


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_other_ways_to_start_workers(tars, method):
    """A transform of the user's own; persistent workers, and the epochs that are set for them."""
    path = f"{tars}/train-*.tar"
    dataset = IterableDataset(path, 7, seed=3, fields=FIELDS, tail="keep", transform=prepare)
    loader = batches(dataset, 2, multiprocessing_context=method, persistent_workers=True)
    want = plain_ids(path, 7, 5, seed=3, tail="keep")
    processes = set()
    for epoch in (0, 4, 1, 2):
        if epoch in (4, 1):
            dataset.set_epoch(epoch)
        got = list(loader)
        assert [b["id"].tolist() for b in got] == want[epoch]
        processes |= set(sum((b["process"].tolist() for b in got), []))
    assert len(processes) == 2 and os.getpid() not in processes
    assert got[0]["text"][0].startswith("TEXT OF ") and "blob" not in got[0]


# ---- samples ----


def test_a_sample(tars):
    dataset = IterableDataset(f"{tars}/*.tar", 4, shuffle="none", fields=FIELDS)
    sample = next(iter(dataset))
    assert sample["image"].shape == (3, 16, 16) and sample["image"].dtype == torch.uint8
    assert sample["text"] == "Text of 0: ü" and type(sample["blob"]) is bytes
    assert [type(sample[name]) for name in ("label", "id", "key")] == [int, int, str]
    assert list(sample) == list(FIELDS)


def ragged(batch):
    """A user's collate_fn for values of different lengths: it keeps them apart."""
    return {name: [sample[name] for sample in batch] for name in batch[0]}


@pytest.mark.parametrize("output", ["torch", "numpy"])
@pytest.mark.parametrize("workers", [0, 2])
def test_other_fields(tmp_path, workers, output):
    """Arrays, JSON, masks and boxes: each sample's own, as a batch of the Loader has them."""
    members = []
    for number in range(20):
        stream = io.BytesIO()
        np.save(stream, np.arange(number, dtype="int32"))
        boxes = [[1.0 * i, 2.0, 30.0 + i, 31.0] for i in range(number % 3)]
        facts = {"n": number, "boxes": boxes, "labels": list(range(len(boxes)))}
        members += [
            (f"{number:02}.jpg", make.encoded(make.pixels(number, 40, 48))),
            (f"{number:02}.png", make.encoded(make.pixels(number, 40, 48)[..., 0], "PNG")),
            (f"{number:02}.npy", stream.getvalue()),
            (f"{number:02}.json", json.dumps(facts).encode()),
        ]
    path = make.tar(tmp_path / "a.tar", members)
    fields = {
        "image": stoker.Image("jpg", [stoker.RandomResizedCrop(16)]),
        "mask": stoker.Mask("png"),
        "tokens": stoker.Array("npy", dtype="int32"),
        "number": stoker.Int("json:n"),
        "facts": stoker.Json("json"),
        "boxes": stoker.Boxes("json:boxes", labels="labels"),
    }
    options = {"fields": fields, "output": output, "tail": "keep"}
    loader = batches(IterableDataset(path, 6, **options), workers, collate_fn=ragged)
    with stoker.Loader(path, 6, **options) as wanted:
        for got, want in zip(loader, wanted, strict=True):
            for i in range(len(want["facts"])):
                assert got["facts"][i] == want["facts"][i] and got["number"][i] == want["number"][i]
                for name in ("image", "mask", "tokens"):
                    assert type(got[name][i]) is type(want[name][i])
                    assert got[name][i].tolist() == want[name][i].tolist()
                boxes, labels = got["boxes"][i]
                assert boxes.tolist() == want["boxes"][i].tolist()
                assert labels.tolist() == want["boxes"].labels[i].tolist()


def test_pairs_and_numpy(folder):
    dataset = IterableDataset(folder, 8, image=[stoker.Resize((8, 8))], output="numpy")
    image, label = next(iter(dataset))
    assert isinstance(image, np.ndarray) and image.shape == (3, 8, 8) and type(label) is int
    images, labels = next(iter(batches(dataset, 2)))
    assert images.shape == (8, 3, 8, 8) and labels.dtype == torch.int64


def test_random_code_of_the_user(plain):
    """ "__seed__" is a sample's own: whatever the workers and ranks, another in another epoch."""

    def seeds(workers, epoch, world=1, batch=8):
        found = {}
        for rank in range(world):
            dataset = IterableDataset(
                plain(103),
                batch,
                tail="keep",
                seed=9,
                rank=rank,
                world_size=world,
                fields={"seed": "__seed__", **IDS},
            )
            dataset.set_epoch(epoch)
            for batch_got in batches(dataset, workers):
                rows = zip(batch_got["id"].tolist(), batch_got["seed"].tolist(), strict=True)
                found.update(rows)
        return found

    first = seeds(0, 0)
    assert len(set(first.values())) == 103 and min(first.values()) >= 0
    assert seeds(3, 0) == first == seeds(2, 0, world=2, batch=4) == seeds(0, 0, world=3)
    assert not set(seeds(0, 1).values()) & set(first.values())


def test_seeds_of_a_tail(plain):
    """Padding repeats them; a wrapped tail has those of the next epoch."""
    fields = {"seed": "__seed__", **IDS}
    padded = IterableDataset(plain(10), 8, tail="pad", shuffle="none", fields=fields)
    rows = [(row["id"], row["seed"]) for row in padded]
    assert len(rows) == 16 and len(set(rows)) == 10
    wrapped = [row["seed"] for row in IterableDataset(plain(10), 8, tail="wrap", fields=fields)]
    following = IterableDataset(plain(10), 6, fields=fields)
    following.set_epoch(1)
    assert len(set(wrapped)) == 16
    assert wrapped[10:] == [row["seed"] for row in following]


# ---- epochs ----


def test_each_loop_is_the_next_epoch(plain):
    path = plain(64)
    want = plain_ids(path, 4, 9)
    for options in ({}, {"persistent_workers": True}):
        dataset = IterableDataset(path, 4, fields=IDS)
        loader = batches(dataset, 3, **options)
        assert ids_of(loader, 2) == want[:2] and dataset.epoch == 2
        dataset.set_epoch(6)
        assert ids_of(loader, 2) == want[6:8]
        dataset.set_epoch(6)
        for _ in loader:  # left in its middle
            break
        assert ids_of(loader)[0] == want[7]
        for _ in range(2):  # workers with equal seeds
            torch.manual_seed(3)
            ids_of(loader)
        assert dataset.epoch == 10
    dataset = IterableDataset(path, 4, fields=IDS)
    assert ids_of(batches(dataset, 0), 2) == want[:2]
    dataset.set_epoch(0)
    assert ids_of(batches(dataset, 1), 3) == want[:3]
    assert ids_of(batches(dataset, 2), 3) == want[3:6]


def test_a_worker_that_starts_late(plain):
    """It begins the first loop when that is over, and must not take the second one's epoch."""
    dataset = IterableDataset(plain(64), 4, fields=IDS)
    loader = batches(dataset, 2, persistent_workers=True, worker_init_fn=start_slowly)
    iterator = iter(loader)
    next(iterator)
    dataset.set_epoch(5)
    assert ids_of(loader)[0] == plain_ids(plain(64), 4, 6)[5]


def test_two_dataloaders_of_one_dataset(plain):
    dataset = IterableDataset(plain(64), 4, fields=IDS)
    pairs = zip(batches(dataset, 2), batches(dataset, 3), strict=True)
    rows = [(a["id"].tolist(), b["id"].tolist()) for a, b in pairs]
    want = plain_ids(plain(64), 4, 2)
    assert sorted([[a for a, _ in rows], [b for _, b in rows]]) == sorted(want)


@pytest.mark.parametrize("tail", TAILS)
def test_length(plain, tail):
    for world in (1, 2, 3):
        for rank in range(world):
            dataset = IterableDataset(
                plain(103), 5, tail=tail, rank=rank, world_size=world, fields=IDS
            )
            for epoch in range(3):
                dataset.set_epoch(epoch)
                loader = batches(dataset, 0)
                lengths = len(dataset), len(loader)
                got = ids_of(loader)[0]
                assert lengths == (sum(map(len, got)), len(got))


def threads():
    return len(os.listdir("/proc/self/task"))


def test_nothing_is_open_before_it_is_needed(plain, tmp_path):
    """Not at construction, and not after len()."""
    gc.collect()
    before = threads()
    path = tmp_path / "later.tar"
    dataset = IterableDataset(path, 4, fields=IDS)
    pickle.dumps(dataset)
    assert threads() <= before and dataset.epoch == 0
    with pytest.raises(FileNotFoundError):
        len(dataset)
    os.link(plain(64), path)
    assert len(dataset) == 64
    deadline = time.monotonic() + 10
    while threads() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threads() <= before
    path.unlink()
    assert len(dataset) == 64, "computed once"


def test_import_needs_no_torch():
    code = "import stoker, sys; assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# ---- processes ----


def test_pickle(tars):
    """Pickles paths and options; a copy continues independently."""
    dataset = IterableDataset(f"{tars}/*.tar", 7, fields=FIELDS, transform=prepare)
    next(iter(dataset))
    dataset.set_epoch(3)
    data = pickle.dumps(dataset)
    assert len(data) < 2000
    copies = pickle.loads(data), copy.deepcopy(dataset)
    dataset.set_epoch(9)
    for each in copies:
        assert each.epoch == 3 and each._here is None
        assert ids_of(batches(each, 2))[0] == plain_ids(f"{tars}/*.tar", 7, 4)[3]


def test_a_worker_is_small(tars):
    """One thread that decodes and one that reads, whatever its parent had."""
    dataset = IterableDataset(f"{tars}/*.tar", 7, fields=IDS, transform=tell_process)
    parent = stoker.Loader(f"{tars}/*.tar", 7, fields=IDS, threads=4)
    next(iter(parent))
    seen = {}
    for batch in batches(dataset, 2):
        seen.update(zip(batch["process"].tolist(), map(json.loads, batch["threads"]), strict=True))
    assert len(seen) == 2 and os.getpid() not in seen
    for names in seen.values():
        assert names.count("stoker-worker") == 1 and names.count("stoker-fetch") <= 1, names
    parent.close()


def test_opened_before_the_fork(plain):
    """The child inherits its parent's objects, and must open its own; the parent's continue."""
    want = plain_ids(plain(64), 4, 2)
    dataset = IterableDataset(plain(64), 4, fields=IDS)
    mine = iter(dataset)
    first = [next(mine)["id"] for _ in range(6)]
    here = dataset._here
    assert ids_of(batches(dataset, 2))[0] == want[1]
    assert first + [row["id"] for row in mine] == sum(want[0], [])
    assert dataset._here is here
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            try:
                here.take(4, {**dataset._options, "worker": 0})
            except stoker.ForkedError:
                dataset.set_epoch(0)
                os._exit(0 if [row["id"] for row in dataset] == sum(want[0], []) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    dataset.close()


def test_ranks_are_found(plain, monkeypatch):
    """The environment's; torch.distributed's before it, also in a spawned worker."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    dataset = IterableDataset(plain(64), 4, fields=IDS)
    want = plain_ids(plain(64), 4, 1, rank=1, world_size=2)[0]
    assert ids_of(batches(dataset, 2))[0] == want and len(dataset) == 32
    import torch.distributed

    torch.distributed.init_process_group(
        "gloo", rank=0, world_size=1, store=torch.distributed.HashStore()
    )
    try:
        whole = plain_ids(plain(64), 4, 3, rank=0, world_size=1)
        assert ids_of(batches(dataset, 2))[0] == whole[1]
        assert ids_of(batches(dataset, 1, multiprocessing_context="spawn"))[0] == whole[2]
    finally:
        torch.distributed.destroy_process_group()


# ---- failures ----


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    """60 samples; three pictures are cut."""
    members = []
    for number in range(60):
        data = make.encoded(make.pixels(number, 60, 60))
        data = data[: len(data) // 2] if number in (7, 31, 32) else data
        members += [(f"{number:03}.jpg", data), (f"{number:03}.cls", str(number).encode())]
    return make.tar(tmp_path_factory.mktemp("damaged") / "a.tar", members)


WHOLE = {"image": stoker.Image("jpg", [stoker.Resize((8, 8))]), "id": "__id__"}


@pytest.mark.parametrize("workers", [0, 2])
def test_damage_is_raised(damaged, workers):
    dataset = IterableDataset(damaged, 4, fields=WHOLE, shuffle="none")
    iterator = iter(batches(dataset, workers))
    next(iterator)
    for _ in range(2):  # it does not go away, and is not taken for the end
        with pytest.raises(stoker.TruncatedError) as caught:
            for _ in range(3):
                next(iterator)
        assert "key '007'" in str(caught.value) and str(damaged) in str(caught.value)


@pytest.mark.parametrize("workers", [0, 3])
def test_damage_is_skipped(damaged, workers, tmp_path):
    """The same substitutes as the Loader; each worker lists the bad samples that it found."""
    options = dict(fields=WHOLE, on_error="skip", seed=2)
    path = tmp_path / "bad"
    dataset = IterableDataset(damaged, 4, quarantine=path, **options)
    with stoker.Loader(damaged, 4, **options) as loader:
        for got, want in zip(batches(dataset, workers), loader, strict=True):
            assert got["id"].tolist() == want["id"].tolist()
            assert torch.equal(got["image"], want["image"])
    files = [path] if workers == 0 else [tmp_path / f"bad.worker{i}" for i in range(workers)]
    dataset.close()
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert {line["sample"] for line in lines} == {7, 31, 32} and path.exists() == (workers == 0)


def test_limits_hold_in_a_worker(damaged):
    dataset = IterableDataset(damaged, 4, fields=WHOLE, on_error="skip", bad_samples_max=1)
    with pytest.raises(stoker.LimitError, match="bad_samples_max"):
        list(batches(dataset, 1))


BAD_VALUES = {
    "text": (b"\xff", b"x", stoker.Text("txt")),
    # Too deep for Python's parser alone: detected after the loader has returned the batch.
    "JSON": (b"[" * 1500 + b"]" * 1500, b"1", stoker.Json("txt")),
}


@pytest.mark.parametrize("name", BAD_VALUES)
def test_an_error_repeats(tmp_path, name):
    bad, good, field = BAD_VALUES[name]
    path = make.tar(tmp_path / "a.tar", [(f"{n}.txt", bad if n == 5 else good) for n in range(9)])
    iterator = iter(IterableDataset(path, 4, shuffle="none", fields={"value": field}))
    assert len([next(iterator) for _ in range(4)]) == 4
    for _ in range(2):
        with pytest.raises(stoker.Error, match="key '5'"):
            next(iterator)
    assert iterator.state_dict()["position"] == 4


ABSENT = {
    "a file": ("absent.tar", dict(fields=IDS), FileNotFoundError, "absent.tar"),
    "a member": (None, dict(fields={"x": stoker.Bytes("nope")}), stoker.MissingError, "nope"),
}


@pytest.mark.parametrize("name", ABSENT)
def test_files_that_a_worker_cannot_open(plain, tmp_path, name):
    path, options, kind, text = ABSENT[name]
    path = tmp_path / path if path else plain(64)
    for workers in (0, 1):
        with pytest.raises(kind) as caught:
            list(batches(IterableDataset(path, 4, **options), workers))
        assert text in str(caught.value)


def test_errors_of_the_user(plain):
    for workers in (0, 2):
        dataset = IterableDataset(plain(64), 4, fields=IDS, transform=fail_at_30)
        with pytest.raises((OddError, RuntimeError), match="30: no such thing"):
            ids_of(batches(dataset, workers))
        dataset = IterableDataset(plain(64), 4, fields=IDS, transform=stop_at_30)
        with pytest.raises(RuntimeError, match="StopIteration"):
            ids_of(batches(dataset, workers))


def test_errors_keep_their_text(damaged):
    """How torch transfers an exception from a worker: its type, constructed from one text."""
    for kind in vars(stoker).values():
        if isinstance(kind, type) and issubclass(kind, stoker.Error):
            error = kind("Caught it in DataLoader worker process 0.\nOriginal: offset 7 key 'a'")
            assert "offset 7 key 'a'" in str(error)
            assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_workers_see_one_data_set(plain):
    """If the data set grew while a loop started, samples would be returned twice, or not at all."""
    turns = stoker.torch.workers.Turns()
    with stoker.Dataset(plain(64)) as small, stoker.Dataset(plain(65)) as large:
        assert turns.take(11, 0, len(small), small.identity) == (0, 0)
        with pytest.raises(stoker.ChangedError):
            turns.take(11, 1, len(large), large.identity)
        assert turns.samples == 64
        assert turns.take(11, 1, len(small), small.identity) == (0, 0)
        assert turns.take(12, 0, len(large), large.identity) == (1, 0)
        assert turns.samples == 65


def test_a_warning_names_the_line_of_the_caller(plain, monkeypatch):
    monkeypatch.setattr(stoker.notices, "_issued", set())
    with pytest.warns(stoker.StokerWarning, match="leaves out 14 of 64") as caught:
        next(iter(IterableDataset(plain(64), 25, fields=IDS)))
    assert caught[0].filename == __file__


REFUSED = {
    "pin_memory": dict(pin_memory=True),
    "worker": dict(worker=1),
    "refresh": dict(refresh=True),
    "output": dict(output="array"),
    "transform": dict(transform=3),
    "engine": dict(engine=3),
    "tail": dict(tail="some"),
    "seed": dict(seed=-1),
    "rank alone": dict(rank=1),
    "no field": dict(fields={"seed": "__seed__"}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(plain, name):
    with pytest.raises(stoker.ArgumentError):
        IterableDataset(plain(64), 4, **{"fields": IDS, **REFUSED[name]})


def test_refused_source(plain):
    with stoker.Dataset(plain(64)) as opened, pytest.raises(stoker.ArgumentError):
        IterableDataset(opened, 4, fields=IDS)
    with pytest.raises(TypeError):
        IterableDataset(plain(64), 4, fields=IDS, sed=1)
