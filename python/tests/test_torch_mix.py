"""A stoker.Mix under torch's DataLoader and torchdata's StatefulDataLoader.

Goal: what the workers give is what one stoker.Loader of the mix gives, over the ends of epochs and
changes of weights; a run that was interrupted goes on as if it had not been.
Method: three small sources; the oracle is the plain loader, and the whole run.
"""

import json

import pytest
import stoker

torch = pytest.importorskip("torch")

from make import tar  # noqa: E402
from stoker.torch import IterableDataset  # noqa: E402
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


@pytest.mark.parametrize("tail", ["drop", "wrap", "keep", "pad"])
@pytest.mark.parametrize("workers", [0, 2])
def test_workers_give_the_mix(sources, workers, tail):
    mix = mix_of(sources)
    want = plain_ids(mix, 7, epochs=3, seed=5, tail=tail)
    if tail == "wrap":  # workers begin each epoch anew
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


def test_other_weights_are_refused(sources):
    """A worker that begins a later epoch would not know the changes of a state."""
    fields = {"id": "__id__"}
    dataset = IterableDataset(mix_of(sources), 7, seed=5, fields=fields)
    samples = iter(dataset)
    next(samples)
    state = samples.state_dict()
    assert state["weights"] == [[0, WEIGHTS], *[list(change) for change in CHANGES]]
    for mix in (mix_of(sources, changes=()), stoker.Mix([*sources[:2]], WEIGHTS[:2])):
        other = iter(IterableDataset(mix, 7, seed=5, fields=fields))
        with pytest.raises(stoker.StateError):
            other.load_state_dict(state)
    samples.load_state_dict(state)
    dataset.close()
