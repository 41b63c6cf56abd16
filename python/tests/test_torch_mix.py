"""A stoker.Mix under torch's DataLoader and torchdata's StatefulDataLoader.

Goal: the workers return what one stoker.Loader of the mix returns, over the ends of epochs and
changes of weights; an interrupted run continues exactly. Method: three small sources; the oracle is
the plain loader, and the uninterrupted run.
"""

import copy
import json
import types

import pytest
import stoker

torch = pytest.importorskip("torch")

from make import tar  # noqa: E402
from stoker.torch import IterableDataset  # noqa: E402
from stoker.torch.workers import Turns  # noqa: E402
from torch_tools import IDS, batches, ids_of, plain_ids, short_shutdown  # noqa: E402, F401

try:
    from torchdata.stateful_dataloader import StatefulDataLoader
except ImportError:
    StatefulDataLoader = None

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),  # torchdata calls it
]
needs_torchdata = pytest.mark.skipif(StatefulDataLoader is None, reason="torchdata is missing")

WEIGHTS = [3, 2, 1]
CHANGES = [(350, [0, 1, 1])]  # in the second epoch of 200


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mix")
    return [
        str(tar(folder / f"{name}.tar", [(f"{name}{i:03}.txt", b"text") for i in range(size)]))
        for name, size in (("a", 150), ("b", 60), ("c", 21))
    ]


def mix_of(sources, **options):
    return stoker.Mix(sources, WEIGHTS, **{"changes": CHANGES, "epoch": 200, **options})


def test_later_workers_take_the_order_of_a_state(sources):
    order = {"shuffle": "block", "order_version": 1}
    want = plain_ids(mix_of(sources), 8, epochs=2, **order)
    assert want[1] != plain_ids(mix_of(sources), 8, epochs=2)[1]
    state = iter(IterableDataset(mix_of(sources), 8, fields=IDS, **order)).state_dict()
    dataset = IterableDataset(mix_of(sources), 8, fields=IDS)
    rest = iter(dataset)
    rest.load_state_dict(json.loads(json.dumps(state)))
    assert [row["id"] for row in rest] == sum(want[0], [])
    assert ids_of(batches(dataset, 2))[0] == want[1]


@pytest.mark.parametrize("tail", ["drop", "wrap", "keep", "pad"])
@pytest.mark.parametrize("workers", [0, 2])
def test_workers_give_the_mix(sources, workers, tail):
    mix = mix_of(sources)
    want = plain_ids(mix, 7, epochs=3, seed=5, tail=tail)
    if tail == "wrap":  # workers begin each epoch from its start
        want = [want[0]]
    dataset = IterableDataset(mix, 7, seed=5, tail=tail, fields=IDS)
    loader = batches(dataset, workers)
    assert len(loader) == len(want[0])
    assert ids_of(loader, len(want)) == want
    dataset.close()


def test_epochs_with_an_end(sources):
    mix = mix_of(sources, changes=(), epoch=None, end="stop")
    want = plain_ids(mix, 7, epochs=3, seed=5, tail="keep")
    dataset = IterableDataset(mix, 7, seed=5, tail="keep", fields=IDS)
    loader = batches(dataset, 2)
    assert len(loader) == len(want[0]) == 18  # of 126 samples: source c is through
    assert ids_of(loader, 3) == want
    for single in (stoker.Mix(sources, WEIGHTS, batches="single"),):
        want = plain_ids(single, 7, epochs=2, seed=5)
        assert ids_of(batches(IterableDataset(single, 7, seed=5, fields=IDS), 2), 2) == want
        bounds = (150, 210, 231)
        assert all(len({sum(i >= b for b in bounds) for i in ids}) == 1 for ids in want[0])


@needs_torchdata
@pytest.mark.parametrize("workers", [0, 2])
def test_resume(sources, workers):
    fields = {"seed": "__seed__", **IDS}

    def make():
        dataset = IterableDataset(mix_of(sources), 7, seed=5, tail="keep", fields=fields)
        dataset.set_epoch(1)
        return StatefulDataLoader(
            dataset,
            batch_size=7,
            num_workers=workers,
            multiprocessing_context="fork" if workers else None,
        )

    def rows(loader):
        return [(batch["id"].tolist(), batch["seed"].tolist()) for batch in loader]

    loader = make()
    whole = [rows(loader), rows(loader)]
    for stop in (1, 20, 23, 29):  # the weights change in the 22nd batch
        loader = make()
        iterator = iter(loader)
        got = [next(iterator) for _ in range(stop)]
        got = [(batch["id"].tolist(), batch["seed"].tolist()) for batch in got]
        state = json.loads(json.dumps(loader.state_dict()))
        del iterator, loader
        resumed = make()
        resumed.load_state_dict(state)
        assert [got + rows(resumed), rows(resumed)] == whole


def test_states_have_their_weights(sources):
    """The contents of a state apply to all workers, and to later epochs; a state that does not fit
    is refused."""
    fields = {"id": "__id__"}
    dataset = IterableDataset(mix_of(sources), 7, seed=5, fields=fields)
    samples = iter(dataset)
    next(samples)
    state = samples.state_dict()
    assert state["weights"] == [[0, WEIGHTS], *[list(change) for change in CHANGES]]
    for mix in (mix_of(sources, changes=[(351, WEIGHTS)]), stoker.Mix(sources[:2], WEIGHTS[:2])):
        other = iter(IterableDataset(mix, 7, seed=5, fields=fields))
        with pytest.raises(stoker.StateError):
            other.load_state_dict(state)
    samples.load_state_dict(state)
    dataset.close()
    unchanged = IterableDataset(mix_of(sources, changes=()), 7, seed=5, fields=fields)
    assert unchanged.changes == []
    samples = iter(unchanged)
    samples.load_state_dict(state)
    assert unchanged.changes == CHANGES
    rest = [[int(row["id"]) for row in samples]]
    rest += [sum(it, []) for it in ids_of(batches(unchanged, 2), 2)]
    want = [sum(it, []) for it in plain_ids(mix_of(sources), 7, epochs=3, seed=5)]
    assert rest == [want[0][1:], *want[1:]]
    unchanged.close()


def whole_run(sources, at, weights, epochs, **options):
    """A loader that had the change at its start."""
    mix = mix_of(sources, changes=[(at, weights)], **options)
    return plain_ids(mix, 7, epochs=epochs, seed=5, tail="keep")


@pytest.mark.parametrize("workers, persistent", [(0, False), (2, False), (2, True)])
def test_set_weights(sources, workers, persistent):
    """In the middle of a loop, for a position that no worker has begun; from the next epoch on; and
    never for a position that workers have begun."""
    dataset = IterableDataset(mix_of(sources, changes=()), 7, seed=5, tail="keep", fields=IDS)
    loader = batches(dataset, workers, persistent_workers=persistent)
    got = []
    for epoch in range(17):  # of 200 samples, as a frame
        batch = iter(loader)
        got.append([next(batch)["id"].tolist()])
        if epoch == 1:
            assert dataset.set_weights([0, 1, 1], at=1030) == 1200
            assert dataset.changes == [(1200, [0, 1, 1])]
        if epoch == 11:
            with pytest.raises(stoker.StateError, match="they can change at 2400"):
                dataset.set_weights([1, 0, 0], at=1500)
            assert dataset.set_weights([5, 0, 1]) == 2400
        got[-1] += [it["id"].tolist() for it in batch]
    assert dataset.changes == [(1200, [0, 1, 1]), (2400, [5, 0, 1])]
    changes = [(1200, [0, 1, 1]), (2400, [5, 0, 1])]
    assert got == plain_ids(mix_of(sources, changes=changes), 7, epochs=17, seed=5, tail="keep")
    assert min(sum(got[11], [])) >= 150 and max(sum(got[16], [])) >= 210  # of a: 150, b: 60
    dataset.close()


def test_set_weights_is_refused(sources):
    for source, error in (
        (sources, "not a Mix"),
        (mix_of(sources, changes=(), epoch=None, end="stop"), "end='stop'"),
    ):
        with pytest.raises(stoker.ArgumentError, match=error):
            IterableDataset(source, 7, fields=IDS).set_weights([1, 1, 1])
    dataset = IterableDataset(mix_of(sources), 7, fields=IDS)
    for weights in ([1, 1], [0, 0, 0], [1, -1, 1], "abc"):
        with pytest.raises(stoker.ArgumentError):
            dataset.set_weights(weights)
    # no batch was returned
    assert dataset.changes == CHANGES and dataset.set_weights([1, 1, 1]) == 0


@needs_torchdata
@pytest.mark.parametrize("workers", [0, 2])
def test_resume_after_set_weights(sources, workers):
    """With the changes next to the state, each state continues as the uninterrupted run did: also a
    state from before the workers had the change."""
    at, weights = 1000, [0, 1, 1]
    want = whole_run(sources, at, weights, 6)

    def make(**options):
        dataset = IterableDataset(mix_of(sources, **options), 7, seed=5, tail="keep", fields=IDS)
        context = "fork" if workers else None
        return dataset, StatefulDataLoader(
            dataset, batch_size=7, num_workers=workers, multiprocessing_context=context
        )

    dataset, loader = make(changes=())
    saved = []
    for epoch in range(5):
        for number, batch in enumerate(loader):
            assert batch["id"].tolist() == want[epoch][number]
            if (epoch, number) == (3, 5):
                assert dataset.set_weights(weights, at=at) == at
            if (epoch, number) in ((3, 4), (3, 5), (3, 28), (4, 27)):
                state = json.loads(json.dumps(loader.state_dict()))
                saved.append((epoch, number, state, json.loads(json.dumps(dataset.changes))))
    for epoch, number, state, changes in saved:
        assert changes == ([] if number == 4 else [[at, weights]])
        dataset, loader = make(changes=changes)
        loader.load_state_dict(state)
        if number == 4:
            assert dataset.set_weights(weights, at=at) == at
        rest = ids_of(loader)[0]
        assert rest == want[epoch][number + 1 :]
        later = range(epoch + 1, 6)
        assert [ids_of(loader)[0] for _ in later] == [want[number] for number in later]
        dataset.close()


@needs_torchdata
def test_sources_join(sources, tmp_path):
    """A run continues with one more source, whose samples are larger: blocks and epochs stay."""
    more = str(tar(tmp_path / "d.tar", [(f"d{i:03}.bin", bytes(40_000)) for i in range(40)]))

    def make(number, **options):
        mix = stoker.Mix([*sources, more][:number], [*WEIGHTS, 0][:number], **options)
        dataset = IterableDataset(mix, 7, seed=5, tail="keep", fields=IDS)
        return dataset, StatefulDataLoader(
            dataset, batch_size=7, num_workers=2, multiprocessing_context="fork"
        )

    dataset, loader = make(3)
    batch = iter(loader)
    got = [next(batch)["id"].tolist() for _ in range(9)]
    state = json.loads(json.dumps(loader.state_dict()))
    del batch, loader
    changes = [(1020, [1, 1, 1, 3])]
    dataset, loader = make(4, changes=changes)
    loader.load_state_dict(state)
    # of all four; the contents of the state are known with the first batch
    assert len(dataset) == 271
    got = [got + ids_of(loader)[0], *ids_of(loader, 6)]
    assert len(dataset) == 231
    mix = stoker.Mix([*sources, more], [*WEIGHTS, 0], changes=changes, epoch=231)
    want = plain_ids(mix, 7, epochs=7, seed=5, tail="keep")
    assert got == want and max(sum(got[3], [])) < 231 <= max(sum(got[4], []))


class Worker:
    """A worker of a DataLoader, in this process, that takes a step on request."""

    def __init__(self, dataset, number, monkeypatch):
        self.dataset = copy.copy(dataset)
        self.dataset._turns, self.dataset._here = dataset._turns, None  # as a child has them
        self.number, self.patch, self.samples = number, monkeypatch, None

    def open(self):
        info = types.SimpleNamespace(id=self.number, num_workers=2, seed=self.number)
        self.patch.setattr(torch.utils.data, "get_worker_info", lambda: info)
        self.samples = iter(self.dataset)

    def rest(self):
        return [row["id"] for row in self.samples]


def test_a_worker_opens_while_another_tells(sources, tmp_path, monkeypatch):
    """Two workers continue with one more source; one has announced it, and returned all it has,
    before the other begins, during its opening, or after it."""
    more = str(tar(tmp_path / "d.tar", [(f"d{i:03}.bin", bytes(40_000)) for i in range(40)]))

    def workers(number):
        mix = stoker.Mix([*sources, more][:number], [*WEIGHTS, 0][:number])
        dataset = IterableDataset(mix, 7, seed=5, tail="keep", fields=IDS)
        return [Worker(dataset, number, monkeypatch) for number in range(2)]

    states, want, take = [], [], Turns.take
    for worker in workers(3):
        worker.open()
        for _ in range(14):
            next(worker.samples)
        states.append(json.loads(json.dumps(worker.samples.state_dict())))
        want.append(worker.rest())
        worker.dataset.close()
    for place in ("before", "amid", "after"):
        first, second = workers(4)
        got = []

        def tell(*taken, first=first, got=got):
            monkeypatch.setattr(Turns, "take", take)
            first.samples.load_state_dict(states[0])
            got.append(first.rest())
            return take(*taken) if taken else None

        first.open()
        if place == "amid":
            monkeypatch.setattr(Turns, "take", tell)
        elif place == "before":
            tell()
        second.open()
        if place == "after":
            tell()
        second.samples.load_state_dict(states[1])
        assert [*got, second.rest()] == want, place
        first.dataset.close()
        second.dataset.close()
