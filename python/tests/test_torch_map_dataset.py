"""stoker.torch.MapDataset: positions as numbered items. The oracle is stoker.Loader with one rank:
the same batches, whatever samplers share out and skip, as long as they ask in the order's order."""

import pickle

import pytest
import stoker

torch = pytest.importorskip("torch")

import stoker.torch  # noqa: E402
from stoker.torch import IterableDataset, MapDataset  # noqa: E402
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler  # noqa: E402
from torch_tools import FIELDS, IDS, ids_of, plain_ids, short_shutdown  # noqa: E402, F401

COUNT, BATCH = 50, 4


def wanted(path, epochs=2, batch_size=BATCH, **options):
    return plain_ids(path, batch_size, epochs, tail="keep", seed=5, **options)


@pytest.mark.parametrize("workers, persistent", [(0, False), (2, True)])
def test_order(plain, workers, persistent):
    """Also the short batch at the end, and an epoch that is left in its middle."""
    path = plain(COUNT)
    dataset = MapDataset(path, seed=5, fields=IDS)
    batches = DataLoader(dataset, BATCH, num_workers=workers, persistent_workers=persistent)
    want = wanted(path, 3)
    assert len(dataset) == COUNT and len(batches) == 13
    for epoch in (0, 1, 2, 0):
        dataset.set_epoch(epoch)
        assert dataset.epoch == epoch
        first = next(iter(batches))["id"].tolist()
        assert first == want[epoch][0]
        assert ids_of(batches)[0] == want[epoch]
    dataset.close()


@pytest.mark.parametrize("world", [1, 2, 3])
def test_ranks_and_skipped_batches(plain, world, monkeypatch):
    """Each rank takes its batches of the sampler's, as Accelerate distributes them, from any one
    on. If the sequence differs from the expected steps, it follows the requested indices."""
    path, size = plain(COUNT), 12 // world
    want = wanted(path, batch_size=12)
    for reported in {1, world}:
        monkeypatch.setenv("RANK", "0")
        monkeypatch.setenv("WORLD_SIZE", str(reported))
        for begin in (0, 3):
            got = []
            for rank in range(world):
                numbers = list(BatchSampler(range(48), size, True))[rank::world][begin:]
                dataset = MapDataset(path, seed=5, fields=IDS)
                dataset.set_epoch(1)
                got.append(ids_of(DataLoader(dataset, batch_sampler=numbers))[0])
            assert [sum(step, []) for step in zip(*got, strict=True)] == want[1][begin:4]


def test_it_is_read_ahead(plain):
    """For its turns a worker's loader continues in order: it never seeks."""
    dataset = MapDataset(plain(COUNT), seed=5, fields=IDS)
    list(DataLoader(dataset, BATCH))
    loader = dataset._walk._loader
    assert loader.stats()["batches"] == 13
    numbers = list(BatchSampler(range(COUNT), BATCH, True))[1::3]
    list(DataLoader(dataset, batch_sampler=numbers))
    ahead = dataset._walk._loader
    assert ahead is not loader and ahead.stats()["batches"] == len(numbers) - 1


def test_single_items(tars):
    """Any position, from either end; with pixels, text, and the result of a user's function."""
    source = f"{tars}/train-*.tar"
    with stoker.Loader(source, 103, seed=3, fields=FIELDS) as loader:
        want = next(iter(loader))
    dataset = MapDataset(source, seed=3, fields={**FIELDS, "draw": "__seed__"}, transform=dict)
    for index in (0, 50, 102, -1):
        row = dataset[index]
        assert row["key"] == want["key"][index] and row["id"] == want["id"][index]
        assert torch.equal(row["image"], want["image"][index])
    for index in (103, -104):
        with pytest.raises(IndexError):
            dataset[index]
    # Numbers to seed one's own code with are those of the other data set.
    fields = {"id": "__id__", "draw": "__seed__"}
    other = [it["draw"] for it in IterableDataset(source, 8, seed=3, fields=fields, tail="keep")]
    assert [it["draw"] for it in dataset.__getitems__(list(range(103)))] == other


def test_evenly_spaced(plain):
    """The indices of torch's own DistributedSampler; and those that wrap around at the end of an
    epoch."""
    path = plain(COUNT)
    order = sum(wanted(path)[0], [])
    dataset = MapDataset(path, seed=5, fields=IDS)
    sampler = DistributedSampler(dataset, 2, 1, shuffle=False)
    assert sum(ids_of(DataLoader(dataset, BATCH, sampler=sampler))[0], []) == order[1::2]
    rows = dataset.__getitems__([48, 49, 0, 1])
    assert [row["id"] for row in rows] == [order[i] for i in (48, 49, 0, 1)]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_shuffled_sampler_is_refused(plain, workers):
    dataset = MapDataset(plain(COUNT), fields=IDS)
    with pytest.raises(stoker.StateError, match="shuffle=False"):
        list(DataLoader(dataset, BATCH, shuffle=True, num_workers=workers))


CHOSEN = [
    {"subset": "sample < 20", "tables": "never"},
    {"repeats": 2},
    {"replacement": True, "epoch": 24, "tables": "never"},
]


@pytest.mark.parametrize("options", CHOSEN, ids=lambda it: next(iter(it)))
@pytest.mark.parametrize("kind", [MapDataset, IterableDataset])
def test_chosen_samples(plain, kind, options):
    """An epoch is as long as its loader's, before and after it was opened."""
    path, options = plain(COUNT), {"fields": IDS, **options}
    want = wanted(path, **options)
    if kind is MapDataset:
        dataset = MapDataset(path, seed=5, **options)
    else:
        dataset = IterableDataset(path, BATCH, seed=5, tail="keep", **options)
    for epoch in range(2):
        dataset.set_epoch(epoch)
        assert len(dataset) == sum(map(len, want[epoch]))
        assert ids_of(DataLoader(dataset, BATCH))[0] == want[epoch]


def test_mix(plain):
    mix = stoker.Mix([plain(COUNT), plain(30)], [3, 1], epoch=60)
    want = wanted(mix)
    dataset = MapDataset(mix, seed=5, fields=IDS)
    dataset.set_epoch(1)
    assert len(dataset) == 60 and ids_of(DataLoader(dataset, BATCH))[0] == want[1]


def test_pickle(plain):
    dataset = MapDataset(plain(COUNT), seed=5, fields=IDS)
    dataset.set_epoch(1)
    assert dataset[0]["id"] == pickle.loads(pickle.dumps(dataset))[0]["id"]


@pytest.mark.parametrize(
    "options",
    [
        {"rank": 0, "world_size": 2},
        {"tail": "pad"},
        {"groups": 2},
        {"batches_ahead": 3},
        {"worker": 1},
        {"refresh": True},
        {"output": "array"},
        {"subset": 3.5, "curriculum": []},
    ],
)
def test_arguments(plain, options):
    with pytest.raises(stoker.ArgumentError):
        MapDataset(plain(COUNT), fields=IDS, **options)
    with pytest.raises(stoker.ArgumentError, match="of one source"):
        MapDataset(stoker.Mix([plain(COUNT)], [1], batches="single"), fields=IDS)
