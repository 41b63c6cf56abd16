"""What frameworks expect of a loader, without the frameworks: iterators that have a state, loops
that never reach the end, a rank that is known late, and a sampler. The oracle is a loader of one
rank that is read from end to end."""

import copy
import json

import numpy as np
import pytest
import stoker

IDS = {"id": "__id__"}
COUNT, BATCH = 50, 4


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    """Tokens that count up: a window's first one, by the context, is its number."""
    path = tmp_path_factory.mktemp("tokens") / "a.bin"
    np.arange(8 * COUNT + 1, dtype=np.uint16).tofile(path)
    return path


@pytest.fixture(params=["Loader", "TokenLoader"])
def make(request, plain, tokens):
    """make(...): a loader, and ids(batch): the numbers of its samples."""

    def make_loader(batch_size=BATCH, **options):
        options = {"seed": 3, "output": "numpy", **options}
        if request.param == "Loader":
            loader = stoker.Loader(plain(COUNT), batch_size, fields=IDS, **options)
        else:
            options.update(stored="uint16", names=("id", "labels"))
            loader = stoker.TokenLoader(tokens, batch_size, 8, **options)
        request.addfinalizer(loader.close)
        return loader

    make_loader.ids = (
        (lambda batch: batch["id"].tolist())
        if request.param == "Loader"
        else (lambda batch: (batch["id"][:, 0] // 8).tolist())
    )
    return make_loader


def epochs(make, number, **options):
    loader = make(**options)
    return [[make.ids(batch) for batch in loader] for _ in range(number)]


def test_state_of_an_iterator(make):
    """Grain's names and torchdata's: a state is set on an iterator that is in use, has ended, or
    belongs to another loader; it continues to the end of the state's epoch."""
    want = epochs(make, 2)
    loader = make()
    iterator = iter(loader)
    states = []
    for batch in want[0]:
        states.append(json.loads(json.dumps(iterator.get_state())))
        assert make.ids(next(iterator)) == batch
    with pytest.raises(StopIteration):
        next(iterator)
    assert iterator.state_dict() == loader.state_dict() == loader.get_state()
    for at in (7, 0, len(want[0]) - 1):
        iterator.set_state(states[at])
        assert [make.ids(batch) for batch in iterator] == want[0][at:]
    assert [make.ids(batch) for batch in loader] == want[1]
    other = iter(make())
    next(other)
    other.load_state_dict(states[5])
    assert [make.ids(batch) for batch in other] == want[0][5:]


@pytest.mark.parametrize("tail", ["drop", "pad", "wrap", "keep"])
def test_no_next_call_after_the_end(make, tail):
    """A loop of len(loader) next() calls has had its epoch: the next one is another, and the state
    is what it would be."""
    want = epochs(make, 3, tail=tail)
    loader = make(tail=tail)
    for epoch in range(3):
        iterator = iter(loader)
        assert loader.epoch == epoch
        got = [make.ids(next(iterator)) for _ in range(len(loader))]
        assert got == want[epoch]
        state = loader.state_dict()
        if epoch == 1:
            loader.set_epoch(2)
    resumed = make(tail=tail)
    resumed.load_state_dict(state)
    assert list(resumed) == [] and resumed.epoch == 3
    loader.set_epoch(2)  # again, if set_epoch() says so
    assert [make.ids(batch) for batch in loader] == want[2]


def test_a_wrapped_run_that_was_resized(make):
    """set_epoch() after the last batch continues after it, as reaching the end of the loop does."""
    first = make(tail="wrap", batch_size=4)
    iterator = iter(first)
    for _ in range(7):
        next(iterator)
    state = first.state_dict()

    def rest(loop):
        loader = make(tail="wrap", batch_size=5)
        loader.load_state_dict(state)
        return loop(loader)

    def to_the_end(loader):
        return [[make.ids(batch) for batch in loader] for _ in range(3)]

    def by_length(loader):
        got = []
        for epoch in range(3):
            loader.set_epoch(epoch)
            iterator, batches = iter(loader), []
            left = len(loader) if epoch else 5  # 28 of the 50 samples were returned
            for _ in range(left):
                batches.append(make.ids(next(iterator)))
            got.append(batches)
        return got

    want = rest(to_the_end)
    assert len(want[0]) == 5
    assert rest(by_length) == want


def test_an_iterator_before_its_first_batch(make):
    """Lightning calls iter() and then sets the epoch, or loads a state."""
    want = epochs(make, 3)
    loader = make()
    iterator = iter(loader)
    loader.set_epoch(2)
    assert [make.ids(batch) for batch in iterator] == want[2]
    loader.set_epoch(1)
    iterator = iter(loader)
    state = loader.state_dict()
    loader.set_epoch(0)
    loader.load_state_dict(state)
    assert make.ids(next(iterator)) == want[1][0]
    loader.set_epoch(0)
    with pytest.raises(stoker.StateError, match="this iterator has ended"):
        next(iterator)
    unused = iter(loader)
    assert make.ids(next(iter(loader))) == want[0][0]
    with pytest.raises(stoker.StateError, match="this iterator has ended"):
        next(unused)


def test_the_rank_is_known_late(make, monkeypatch):
    """The loader is made before its process has a rank (Lightning starts the others then); explicit
    ranks are never changed, and a running loop keeps its rank."""
    want = epochs(make, 2)
    monkeypatch.delenv("RANK", raising=False)
    loaders = [make(batch_size=2) for _ in range(2)]
    reported = make(rank=0, world_size=1)
    assert len(loaders[0]) == COUNT // 2
    state = None
    for rank, loader in enumerate(loaders):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "2")
        assert len(loader) == len(want[0]) and (loader.rank, loader.world_size) == (rank, 2)
        iterator = iter(loader)
        got = [make.ids(next(iterator)) for _ in range(3)]
        assert got == [batch[2 * rank : 2 * rank + 2] for batch in want[0][:3]]
        monkeypatch.setenv("WORLD_SIZE", "4")
        assert len(loader) == len(want[0])  # in the middle of a loop
        assert make.ids(next(iterator)) == want[0][3][2 * rank : 2 * rank + 2]
        assert state in (None, loader.state_dict())
        state = loader.state_dict()
    assert [make.ids(batch) for batch in reported] == want[0]
    # Resized: another process, whose group has one rank, continues from a state of two.
    monkeypatch.delenv("RANK")
    monkeypatch.delenv("WORLD_SIZE")
    resumed = make()
    resumed.load_state_dict(state)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert [make.ids(batch) for batch in resumed] == want[0][4:]


def test_a_process_group_comes_before_the_environment(make, monkeypatch, torch, tmp_path):
    """Process groups can be made without the environment, too (init_method): their rank and size
    are used."""
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    late = make()
    assert (late.rank, late.world_size) == (3, 4)
    distributed = torch.distributed
    distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1
    )
    try:
        for loader in (late, make()):
            assert len(loader) == COUNT // loader.batch_size
            assert (loader.rank, loader.world_size) == (0, 1)
    finally:
        distributed.destroy_process_group()


def test_a_loader_that_follows_goes_on(plain, monkeypatch):
    """A state, and the counters, pass on to the rank that it becomes."""
    whole = stoker.Loader(plain(COUNT), 4, fields=IDS, output="numpy", rank=0, world_size=1)
    want = [batch["id"].tolist() for batch in whole]
    loader = stoker.Loader(plain(COUNT), 2, fields=IDS, output="numpy")
    iterator = iter(loader)
    got = [next(iterator)["id"].tolist() for _ in range(4)]
    assert [*got[0], *got[1]] == want[0] and [*got[2], *got[3]] == want[1]
    loader.load_state_dict(loader.state_dict())
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert [batch["id"].tolist() for batch in loader] == [batch[2:] for batch in want[2:]]
    assert loader.stats()["samples"] == 8 + 2 * len(want[2:])
    assert loader.explain(0, epoch=0)[0].sample == want[0][2]


def test_sampler(plain, torch):
    """A DistributedSampler in the eyes of frameworks; its ids are the loader's."""
    from torch.utils.data import BatchSampler, DistributedSampler

    loader = stoker.Loader(plain(COUNT), 3, fields=IDS, rank=1, world_size=2)
    loader.sampler.set_epoch(4)
    assert loader.epoch == 4 == loader.sampler.epoch
    sampler = loader.sampler
    assert isinstance(sampler, DistributedSampler)
    assert (sampler.rank, sampler.num_replicas) == (1, 2)
    ids = list(sampler)
    assert ids == [i for batch in loader for i in batch["id"].tolist()]
    assert len(ids) == len(sampler) == 3 * len(loader) == 24
    assert sampler.shuffle and sampler.drop_last and loader.drop_last
    batches = loader.batch_sampler
    assert isinstance(batches, BatchSampler) and len(batches) == len(loader)
    with pytest.raises(stoker.StateError, match="load_state_dict"):
        next(iter(batches))


def test_protocols(make, torch):
    nodes = pytest.importorskip("torchdata.nodes")
    from torch.distributed.checkpoint.stateful import Stateful as Saved
    from torchdata.stateful_dataloader import Stateful

    loader = make()
    assert isinstance(loader, Stateful) and isinstance(loader, Saved)
    assert isinstance(iter(loader), Stateful)
    want = epochs(make, 1)[0]
    node = nodes.Loader(nodes.IterableWrapper(loader), restart_on_stop_iteration=False)
    iterator = iter(node)
    got = [make.ids(next(iterator)) for _ in range(5)]
    state = copy.deepcopy(node.state_dict())
    again = nodes.Loader(nodes.IterableWrapper(make()), restart_on_stop_iteration=False)
    again.load_state_dict(state)
    assert got + [make.ids(batch) for batch in again] == want


def test_without_torch(make, monkeypatch):
    loader = make()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert loader.sampler is None and loader.batch_sampler is None
