"""stoker.torch under torchdata's StatefulDataLoader: an interrupted run continues exactly. The
oracle is the uninterrupted run."""

import json
import os
import pickle
import signal
import subprocess
import sys
import textwrap

import pytest
import stoker

torch = pytest.importorskip("torch")

from stoker.torch import IterableDataset  # noqa: E402
from torch_tools import (  # noqa: E402
    FIELDS,
    IDS,
    TAILS,
    batches,
    ids_of,
    plain_ids,
    short_shutdown,  # noqa: F401
)

try:
    from torchdata.stateful_dataloader import StatefulDataLoader
except ImportError:
    StatefulDataLoader = None

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),  # torchdata calls it
]
needs_torchdata = pytest.mark.skipif(StatefulDataLoader is None, reason="torchdata is missing")

STATEFUL = {"seed": "__seed__", **FIELDS}


def stateful(dataset, workers, batch_size=None, **options):
    options.setdefault("multiprocessing_context", "fork" if workers else None)
    return StatefulDataLoader(
        dataset, batch_size=batch_size or dataset.batch_size, num_workers=workers, **options
    )


def rows(batch):
    """All of a batch that can be compared."""
    return batch["id"].tolist(), batch["seed"].tolist(), batch["image"].flatten(1).tolist()


def through_json(state):
    return json.loads(json.dumps(state))


@needs_torchdata
@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("every", [1, 3])
def test_resume(tars, workers, every):
    """From each third batch, and from both ends: the rest of the epoch, and the next one, are those
    of the uninterrupted run. Prefetched batches are returned again, none twice."""
    path = f"{tars}/train-*.tar"

    def make_loader():
        dataset = IterableDataset(path, 7, seed=4, tail="keep", fields=STATEFUL)
        dataset.set_epoch(2)
        return stateful(dataset, workers, snapshot_every_n_steps=every)

    loader = make_loader()
    whole = [[rows(batch) for batch in loader] for _ in range(2)]
    steps = len(whole[0])
    assert steps == 15 and sorted(sum((r[0] for r in whole[0]), [])) == list(range(103))
    for stop in (0, 1, 4, 8, steps - 1, steps):
        loader = make_loader()
        iterator = iter(loader)
        got = [rows(next(iterator)) for _ in range(stop)]
        state = through_json(loader.state_dict())
        del iterator, loader
        resumed = make_loader()
        resumed.load_state_dict(state)
        got += [rows(batch) for batch in resumed]
        assert got == whole[0], stop
        assert [rows(batch) for batch in resumed] == whole[1], stop


@pytest.mark.parametrize("tail", TAILS)
def test_resume_without_torchdata(plain, tail):
    """By the number of batches that the loop got; another number of workers may continue."""
    options = dict(fields=IDS, tail=tail, rank=0, world_size=2)
    want = plain_ids(plain(103), 5, 3, tail=tail, rank=0, world_size=2)
    for done in (1, 7, len(want[1]), 1000):
        dataset = IterableDataset(plain(103), 5, **options)
        for workers in (0, 3):
            dataset.set_epoch(1, batches_done=done)
            assert len(dataset) == sum(map(len, want[1][done:]))
            loader = batches(dataset, workers)
            assert ids_of(loader)[0] == want[1][done:], (done, workers)
            assert ids_of(loader)[0] == want[2]


@needs_torchdata
@pytest.mark.parametrize("workers", [0, 2])
def test_resume_behind_the_end(plain, workers):
    want = plain_ids(plain(64), 4, 2)
    loader = stateful(IterableDataset(plain(64), 4, fields=IDS), workers)
    assert ids_of(loader)[0] == want[0]
    state = loader.state_dict()
    loader = stateful(IterableDataset(plain(64), 4, fields=IDS), workers)
    loader.load_state_dict(state)
    assert ids_of(loader)[0] == want[1]


@needs_torchdata
@pytest.mark.parametrize("workers", [0, 2])
def test_resume_within_a_batch_of_ours(plain, workers):
    """The DataLoader's batches are others: a state may stand between two samples of a batch."""

    def make_loader():
        return stateful(IterableDataset(plain(64), 6, fields=IDS, tail="keep"), workers, 4)

    whole = ids_of(make_loader())[0]
    assert sorted(sum(whole, [])) == list(range(64))
    for stop in range(0, len(whole), 2):
        loader = make_loader()
        iterator = iter(loader)
        got = [next(iterator)["id"].tolist() for _ in range(stop)]
        resumed = make_loader()
        resumed.load_state_dict(loader.state_dict())
        assert got + ids_of(resumed)[0] == whole


@pytest.mark.parametrize("order", [{"shuffle": "block", "window": 2}, {"order_version": 1}])
def test_workers_of_later_epochs_take_the_order_of_the_state(tars, order):
    """A state of another order than the default: workers that start later have it, too."""
    path, options = f"{tars}/train-*.tar", dict(fields=IDS, tail="keep")
    order = {"shuffle": "block", **order}
    want = plain_ids(path, 7, 4, tail="keep", **order)
    assert want[1] != plain_ids(path, 7, 2, tail="keep")[1]
    run = iter(IterableDataset(path, 7, **options, **order))
    got = [next(run)["id"] for _ in range(14)]
    state = through_json(run.state_dict())
    dataset = IterableDataset(path, 7, **options)
    rest = iter(dataset)
    next(rest)
    rest.load_state_dict(state)
    assert got + [row["id"] for row in rest] == sum(want[0], [])
    assert ids_of(batches(dataset, 2))[0] == want[1]
    assert ids_of(batches(pickle.loads(pickle.dumps(dataset)), 0))[0] == want[2]
    assert ids_of(batches(dataset, 0))[0] == want[2]
    dataset.set_epoch(3, batches_done=4)
    assert ids_of(batches(dataset, 3))[0] == want[3][4:]


@needs_torchdata
def test_resume_with_workers_that_persist(plain):
    want = plain_ids(plain(64), 4, 4)
    options = dict(persistent_workers=True, prefetch_factor=4)
    loader = stateful(IterableDataset(plain(64), 4, fields=IDS), 2, **options)
    assert ids_of(loader)[0] == want[0]
    iterator = iter(loader)
    first = [next(iterator)["id"].tolist() for _ in range(5)]
    state = loader.state_dict()
    loader = stateful(IterableDataset(plain(64), 4, fields=IDS), 2, **options)
    loader.load_state_dict(state)
    assert first + ids_of(loader)[0] == want[1]
    assert ids_of(loader, 2) == want[2:]


@needs_torchdata
def test_resume_of_ranks(plain):
    """One rank's state works for all: with the batches of all ranks after it, every sample was
    returned once."""

    def make_loader(rank):
        options = dict(rank=rank, world_size=2, tail="keep", fields=IDS)
        return stateful(IterableDataset(plain(103), 4, **options), 2)

    iterators = [iter(make_loader(rank)) for rank in range(2)]
    seen = [next(iterators[rank])["id"].tolist() for _ in range(5) for rank in range(2)]
    state = iterators[0].state_dict()
    for rank in range(2):
        resumed = make_loader(rank)
        resumed.load_state_dict(state)
        seen += ids_of(resumed)[0]
    assert sorted(sum(seen, [])) == list(range(103))


OTHERS = {
    "seed": dict(seed=5),
    "number of samples": dict(count=63),
    "tail": dict(tail="keep"),
    "shuffle": dict(shuffle="block"),
    "world_size": dict(rank=0, world_size=2),
    "batch_size": dict(batch_size=8),
}


@needs_torchdata
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", OTHERS)
def test_states_of_others_are_refused(plain, workers, name):
    def make_loader(count=64, batch_size=4, **options):
        return stateful(IterableDataset(plain(count), batch_size, fields=IDS, **options), workers)

    loader = make_loader()
    next(iter(loader))
    other = make_loader(**OTHERS[name])
    other.load_state_dict(loader.state_dict())
    with pytest.raises(stoker.StateError, match=name):
        list(other)


def test_states_that_are_none(plain):
    iterator = iter(IterableDataset(plain(64), 4, fields=IDS))
    next(iterator)
    state = iterator.state_dict()
    assert state["slot"] == 1 and state["position"] == 0 and len(json.dumps(state)) < 500
    for name in state:
        for wrong in (None, "x", -1, 2**70):
            with pytest.raises(stoker.StateError):
                iterator.load_state_dict({**state, name: wrong})
        with pytest.raises(stoker.StateError):
            iterator.load_state_dict({k: v for k, v in state.items() if k != name})
    rest = [row["id"] for row in iterator]
    iterator.load_state_dict(state)
    assert [row["id"] for row in iterator] == rest and len(rest) == 63


KILLED = """
    import json, os, signal, sys, torch
    from torchdata.stateful_dataloader import StatefulDataLoader
    from stoker.torch import IterableDataset

    def tell_process(sample):
        return {**sample, "process": os.getpid()}

    torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL = 0.5
    fields = {"id": "__id__"}
    dataset = IterableDataset(sys.argv[1], 4, fields=fields, transform=tell_process)
    loader = StatefulDataLoader(dataset, batch_size=4, num_workers=3)
    got, state = [], None
    try:
        for batch in loader:
            got.append(batch["id"].tolist())
            state = loader.state_dict()
            if len(got) == 20:
                # torch's handler would raise at any place, time and again.
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.kill(batch["process"][0], signal.SIGKILL)
    except (RuntimeError, OSError) as error:
        dataset.set_epoch(3)  # no worker holds its lock
        print(json.dumps([got, state, str(error), dataset.epoch]), flush=True)
    os._exit(0)
"""


@needs_torchdata
def test_a_worker_is_killed(plain, tmp_path):
    """The warning says so, and the last state returns the rest."""
    whole = plain_ids(plain(2048), 4)[0]
    # The other workers may outlive the process: if a worker was killed while it held the lock of
    # torch's queue, they wait for it, with all pipes open. So the end is reported by a file.
    with open(tmp_path / "output", "w+") as reported:
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", textwrap.dedent(KILLED), plain(2048)],
            stdout=reported,
            start_new_session=True,
        )
        try:
            process.wait(timeout=60)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
        reported.seek(0)
        got, state, error, epoch = json.load(reported)
    assert "exited unexpectedly" in error or "reset by peer" in error
    assert 20 <= len(got) < len(whole) and epoch == 3
    resumed = stateful(IterableDataset(plain(2048), 4, fields=IDS), 3)
    resumed.load_state_dict(state)
    assert got + ids_of(resumed)[0] == whole
