"""Loaders that are sent to other processes: by pickle as spawned processes, Ray and launchers do
it, and by copy. The oracle is a loader of one rank that is read from end to end."""

import copy
import multiprocessing
import os
import pickle
import sys
import threading

import make as files
import numpy as np
import pytest
import stoker

IDS = {"id": "__id__"}
COUNT, BATCH = 50, 4


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """A tar of small samples, tokens that count up, and lines of text."""
    root = tmp_path_factory.mktemp("portable")
    files.tar(root / "a.tar", [(f"{i:06}.txt", f"text {i}".encode()) for i in range(COUNT)])
    np.arange(8 * COUNT + 1, dtype=np.uint16).tofile(root / "a.bin")
    (root / "a.txt").write_text("".join(f"{i}\n" for i in range(COUNT)))
    return root


def by_number(texts):
    return [[int(text)] for text in texts]


KINDS = {
    "Loader": lambda root, n, **options: stoker.Loader(root / "a.tar", n, fields=IDS, **options),
    "Dataset": lambda root, n, **options: stoker.Loader(
        stoker.Dataset(root / "a.tar"), n, fields=IDS, **options
    ),
    "Mix": lambda root, n, **options: stoker.Loader(
        stoker.Mix([root / "a.tar"] * 2, [2, 1]), n, fields=IDS, **options
    ),
    "subset": lambda root, n, **options: stoker.Loader(
        root / "a.tar", batch_size=n, fields=IDS, subset="sample > 6", tables="never", **options
    ),
    "TokenLoader": lambda root, n, **options: stoker.TokenLoader(
        root / "a.bin", n, 8, stored="uint16", names=("id", "labels"), **options
    ),
    "Tokens": lambda root, n, **options: stoker.TokenLoader(
        stoker.Tokens(root / "a.bin", stored="uint16"), n, 8, names=("id", "labels"), **options
    ),
    "TextLoader": lambda root, n, **options: stoker.TextLoader(
        root / "a.txt", by_number, n, 8, rows="padded", names=("id", "labels"), **options
    ),
}


@pytest.fixture(params=KINDS)
def make(request, places):
    def make_loader(batch_size=BATCH, **options):
        options = {"seed": 3, "output": "numpy", **options}
        return KINDS[request.param](places, batch_size, **options)

    return make_loader


def ids(batch):
    first = batch["id"]
    return (first if first.ndim == 1 else first[:, 0]).tolist()


def epoch(loader):
    return [ids(batch) for batch in loader]


def through_pickle(loader):
    return pickle.loads(pickle.dumps(loader))


@pytest.mark.parametrize("send", [copy.copy, copy.deepcopy, through_pickle])
def test_it_goes_on_where_it_was_sent(make, send):
    """Before its first batch, in an epoch, after its last batch, and after its end; the copy
    continues independently."""
    whole = make()
    want = [epoch(whole) for _ in range(3)]
    loader = make()
    assert epoch(send(loader)) == want[0]
    iterator = iter(loader)
    for number in range(len(loader)):
        other = send(send(loader))
        assert isinstance(other, type(loader)) and "not open" in repr(other)
        assert epoch(other) == want[0][number:]
        assert epoch(other) == want[1] and other.epoch == 2
        assert ids(next(iterator)) == want[0][number]
    other = send(loader)
    assert len(other) == len(want[1]) and epoch(other) == want[1]
    other = send(loader)
    other.set_epoch(1)
    assert epoch(other) == want[1]
    assert next(iterator, None) is None
    other = send(loader)
    assert other.state_dict() == loader.state_dict()
    assert type(other) is type(loader) and "not open" not in repr(other)
    assert epoch(other) == want[1] == epoch(loader)


def give(loader, rank, pipe):
    os.environ.update(RANK=str(rank), WORLD_SIZE="2")
    pipe.send((loader.rank, epoch(loader)))


def test_spawned_ranks(make):
    """Each has its own rank's share of the rest, in native threads of its own."""
    want = epoch(make())
    loader = make(batch_size=BATCH // 2)
    iterator = iter(loader)
    given = [ids(next(iterator)) for _ in range(4)]
    assert given[0] + given[1] == want[0]
    context = multiprocessing.get_context("spawn")
    ends = [context.Pipe(duplex=False) for _ in range(2)]
    ranks = [
        context.Process(target=give, args=(loader, rank, ends[rank][1])) for rank in range(2)
    ]
    for process in ranks:
        process.start()
    for _, send in ends:
        send.close()
    got = [receive.recv() for receive, _ in ends]
    for process in ranks:
        process.join()
        assert process.exitcode == 0
    assert [rank for rank, _ in got] == [0, 1]
    assert [one + other for one, other in zip(got[0][1], got[1][1], strict=True)] == want[2:]


def test_shared_engines_stay_shared(places):
    """An engine and a data set of two loaders are sent once; the default engine becomes that of the
    receiving process."""
    engine = stoker.Engine(threads=1, memory="64MiB")
    dataset = stoker.Dataset(places / "a.tar", engine=engine)
    loaders = [stoker.Loader(dataset, n, fields=IDS) for n in (2, 3)]
    one, other = pickle.loads(pickle.dumps(loaders))
    assert (one.batch_size, other.batch_size) == (2, 3)
    assert one.dataset is other.dataset and one.engine is other.engine is not engine
    assert one.engine.info()["memory_bytes_max"] == 64 << 20
    assert pickle.loads(pickle.dumps(stoker.default_engine())) is stoker.default_engine()


def test_unopened_it_may_be_forked(places):
    """An unopened loader is pickled; the error of an open one says what to do instead."""
    loader = stoker.Loader(places / "a.tar", BATCH, fields=IDS, output="numpy")
    want = epoch(loader)
    loader.set_epoch(0)
    unopened = copy.deepcopy(loader)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with pytest.raises(stoker.ForkedError, match=r"copy\.deepcopy"):
                next(iter(loader))
            got = epoch(unopened)
            os.write(write, str(got == want).encode())
        finally:
            os._exit(0)
    os.close(write)
    with open(read) as file:
        assert file.read() == "True"
    os.waitpid(child, 0)


def test_files_changed_after_pickling(tmp_path):
    """Appended shards are left out; anything else is refused when it is opened, and again."""

    def shard(number, *names):
        files.tar(tmp_path / f"{number}.tar", [(f"{it}.txt", b"x") for it in names])

    shard(0, "a", "b")
    dataset = stoker.Dataset(tmp_path)
    loader = stoker.Loader(dataset, 1, fields={"key": "__key__"}, shuffle="none", refresh="call")
    data = pickle.dumps((dataset, loader))
    shard(1, "c")
    same, other = pickle.loads(data)
    assert len(same) == 2 and [batch["key"] for batch in other] == [["a"], ["b"]]
    assert loader.refresh() == 2 and len(loader.dataset) == 3
    shard(2, "d")
    assert len(pickle.loads(pickle.dumps(loader))) == 3
    assert len(pickle.loads(pickle.dumps(loader.dataset))) == 3
    shard(0, "a", "b", "e")
    same, other = pickle.loads(data)
    for _ in range(2):
        with pytest.raises(stoker.StateError, match="another data set"):
            len(same)
        with pytest.raises(stoker.StateError, match="another data set"):
            next(iter(other))


def test_other_tokens(tmp_path):
    np.arange(100, dtype=np.uint16).tofile(tmp_path / "a.bin")
    data = pickle.dumps(stoker.Tokens(tmp_path / "a.bin", stored="uint16"))
    assert len(pickle.loads(data)) == 100
    np.arange(99, dtype=np.uint16).tofile(tmp_path / "a.bin")
    with pytest.raises(stoker.ChangedError, match="pickle the object again"):
        len(pickle.loads(data))


def test_a_closed_one_is_not_sent(make):
    loader = make()
    loader.close()
    with pytest.raises(stoker.ClosedError):
        pickle.dumps(loader)


def test_threads_open_it_once(places):
    """All that use it first at once."""
    loader = copy.copy(stoker.Loader(places / "a.tar", 1, fields=IDS))
    found, barrier = [], threading.Barrier(8)

    def use():
        barrier.wait()
        found.append((len(loader), id(loader.dataset), type(loader)))

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and len(set(found)) == 1 and found[0][2] is stoker.Loader


class Named(stoker.Loader):
    """A subclass with a different constructor."""

    def __init__(self, path, name):
        super().__init__(path, 4, fields=IDS, output="numpy")
        self.name = name


def test_subclass_and_setting(places):
    loader = pickle.loads(pickle.dumps(Named(places / "a.tar", "x")))
    assert isinstance(loader, Named) and loader.name == "x" and len(epoch(loader)) == 12
    other = copy.copy(loader)
    other.transform = ids
    assert next(iter(other)) == ids(next(iter(loader)))
    with pytest.raises(AttributeError):
        copy.copy(loader).nothing  # noqa: B018


def same(batch):
    return batch


class InWorkers:
    """A data set of the user's own, around a loader."""

    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        return iter(self.loader)


def test_workers_of_a_dataloader_are_refused(make, torch):
    """Each would return the entire stream. One worker alone may have it."""
    from torch.utils.data import DataLoader, IterableDataset

    class Dataset(InWorkers, IterableDataset):
        pass

    loader = make()
    want = epoch(loader)
    loader.set_epoch(0)
    for workers in (1, 2):
        batches = DataLoader(
            Dataset(copy.deepcopy(loader)), None, num_workers=workers, collate_fn=same
        )
        if workers == 1:
            assert epoch(batches) == want
        else:
            reader = iter(batches)
            with pytest.raises(stoker.StateError, match=r"stoker\.torch\.IterableDataset"):
                next(reader)
            # Else it ends when it is collected: in the midst of any later test, for 5 s a worker.
            reader._shutdown_workers()


def test_it_stays_small(make):
    """Settings and a position; no data, and nothing that must be trusted but this module."""
    assert len(pickle.dumps(make())) < 4096
    assert sys.getsizeof(copy.copy(make())) < 1024
