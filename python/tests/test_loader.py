"""The loader's stream: exactly once, in order, for ranks and tails; epochs and states."""

import json

import numpy as np
import pytest
import stoker

IDS = {"id": "__id__", "mask": "__mask__"}


def ids_of(loader):
    """Sample ids of one epoch, and which are padding: a list for each batch."""
    ids, masks = [], []
    for batch in loader:
        ids.append(np.asarray(batch["id"]).tolist())
        masks.append(np.asarray(batch["mask"]).tolist())
    return ids, masks


def flat(lists):
    return [item for one in lists for item in one]


def open_plain(plain, count, engine=None, **options):
    """A loader of `count` tiny samples in blocks of about 8, so that there are windows."""
    options = {"batch_size": 4, "fields": IDS, "output": "numpy", **options}
    threads = options.pop("threads", None)
    if engine is None:
        engine = stoker.Engine(threads=threads, memory="64MiB")
    return stoker.Loader(stoker.Dataset(plain(count), engine=engine, block_bytes=60), **options)


# ---- exactly once ----


@pytest.mark.parametrize("shuffle", ["block", "full", "none"])
@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 9, 64, 65, 127, 128, 129])
def test_each_sample_once_an_epoch(plain, engine, count, shuffle):
    loader = open_plain(plain, count, shuffle=shuffle, tail="keep", seed=count, engine=engine)
    for epoch in range(3):
        loader.set_epoch(epoch)
        ids, masks = ids_of(loader)
        assert sorted(flat(ids)) == list(range(count))
        assert all(flat(masks)) and len(ids) == len(loader) == -(-count // 4)
    loader.close()


@pytest.mark.parametrize("shuffle", ["block", "full", "none"])
def test_order_is_order_at(plain, engine, shuffle):
    """The ids are those of the pure function, epoch by epoch: tools may rely on it."""
    loader = open_plain(plain, 129, shuffle=shuffle, tail="keep", seed=11, window=3, engine=engine)
    for epoch in (0, 1, 5):
        loader.set_epoch(epoch)
        want = [
            stoker.order_at(
                129,
                position,
                seed=11,
                epoch=epoch,
                shuffle=shuffle,
                window=3,
                block_samples=loader.dataset.block_samples,
            )
            for position in range(129)
        ]
        assert flat(ids_of(loader)[0]) == want
    if shuffle == "none":
        assert want == list(range(129))


def test_orders_differ(plain, engine):
    def order(**options):
        loader = open_plain(plain, 128, engine=engine, **options)
        first, second = flat(ids_of(loader)[0]), flat(ids_of(loader)[0])
        loader.close()
        return tuple(first), tuple(second)

    seed_0, seed_1 = order(shuffle="full", seed=0), order(shuffle="full", seed=1)
    assert len({*seed_0, *seed_1}) == 4  # by seed and by epoch
    assert order(shuffle="full", seed=0) == seed_0
    none = order(shuffle="none")
    assert none[0] == none[1] == tuple(range(128))


@pytest.mark.parametrize("world", [1, 2, 3, 5])
@pytest.mark.parametrize("count", [5, 64, 65, 129])
@pytest.mark.parametrize("tail", ["drop", "pad", "wrap", "keep"])
def test_ranks(plain, engine, tail, count, world):
    """Ranks get equal numbers of batches, and together what the tail option promises."""
    if tail == "drop" and count < 3 * world:
        with pytest.raises(stoker.EmptyError, match=f"{count} samples, batch_size 3"):
            open_plain(plain, count, tail=tail, rank=0, world_size=world, batch_size=3)
        return
    batches, real, every = [], [], []
    for rank in range(world):
        loader = open_plain(
            plain,
            count,
            tail=tail,
            rank=rank,
            world_size=world,
            seed=5,
            engine=engine,
            batch_size=3,
        )
        ids, masks = ids_of(loader)
        batches.append(len(ids))
        assert len(ids) == stoker_len(loader)
        every.append([len(batch) for batch in ids])
        real += [i for i, keep in zip(flat(ids), flat(masks), strict=True) if keep]
        loader.close()
    assert len(set(batches)) == 1
    step = 3 * world
    assert len(set(real)) == len(real) or tail == "wrap"
    if tail == "drop":
        assert len(real) == count // step * step
    elif tail in ("pad", "keep"):
        assert sorted(real) == list(range(count))
    if tail in ("drop", "pad", "wrap"):
        assert set(flat(every)) <= {3}


def stoker_len(loader):
    """len() of the epoch that was just read."""
    return loader._native.batches(loader.epoch - 1)


@pytest.mark.parametrize("tail", ["drop", "pad", "wrap", "keep"])
def test_workers_share_a_rank(plain, engine, tail):
    """In turns the workers return one loader's batches, epoch after epoch, with read-ahead and
    without; and a worker's state is where its own next batch begins."""

    def make_loader(**options):
        options |= {"tail": tail, "output": "numpy", "engine": engine, "seed": 3}
        return stoker.Loader(plain(103), 5, fields={"id": "__id__"}, **options)

    whole, workers = make_loader(), [make_loader(worker=w, worker_count=3) for w in range(3)]
    for _ in range(3):
        want = [batch["id"].tolist() for batch in whole]
        got = [[batch["id"].tolist() for batch in loader] for loader in workers]
        assert [got[i % 3][i // 3] for i in range(len(want))] == want
        assert sum(map(len, got)) == len(want)
    assert [len(make_loader(worker=w, worker_count=8)) for w in range(8)].count(3) == len(whole) % 8
    stopped = make_loader(worker=1, worker_count=3)
    next(iter(stopped))
    assert stopped.state_dict()["position"] == 20
    with pytest.raises(stoker.ArgumentError):
        make_loader(worker=3, worker_count=3)


def test_workers_share_read_ahead(folder, engine):
    options = {"image": [stoker.Resize((1000, 1000))], "engine": engine}  # 3 MB a picture
    for batch_size, workers, want in ((8, 1, 2), (8, 2, 1), (2, 1, 11), (2, 2, 5)):
        with stoker.Loader(folder, batch_size, worker_count=workers, **options) as loader:
            assert loader.stats()["batches_ahead"] == want


def test_wrap_loses_nothing(plain, engine):
    """Wrapped epochs put one after the other: each sample once a data set's length."""
    loader = open_plain(plain, 10, tail="wrap", engine=engine, batch_size=4)
    ids = flat(flat(ids_of(loader)[0] for _ in range(5)))
    for start in range(0, len(ids) - 9, 10):
        assert sorted(ids[start : start + 10]) == list(range(10))


def test_pad(plain, engine):
    loader = open_plain(plain, 10, tail="pad", engine=engine)
    ids, masks = ids_of(loader)
    assert [sum(mask) for mask in masks] == [4, 4, 2] and masks[2] == [True, True, False, False]
    assert set(ids[2]) <= set(range(10))


def test_mask_of_pairs(folder, engine, torch):
    """tail="pad": the loop still gets pairs; the mask is an attribute."""
    loader = stoker.Loader(folder, 16, image=[stoker.Resize((8, 8))], tail="pad", engine=engine)
    masks = []
    for images, labels in loader:
        assert images.shape == (16, 3, 8, 8) and labels.shape == (16,)
        assert loader.mask.dtype == torch.bool
        masks.append(int(loader.mask.sum()))
    assert masks == [16, 16, 8]
    other = stoker.Loader(folder, 16, image=[stoker.Resize((8, 8))], engine=engine)
    next(iter(other))
    assert other.mask is None


# ---- epochs ----


def test_epochs_follow_each_other(plain, engine):
    loader = open_plain(plain, 20, engine=engine, seed=2)
    one_after_the_other = [ids_of(loader)[0] for _ in range(3)]
    assert loader.epoch == 3
    again = open_plain(plain, 20, engine=engine, seed=2)
    for epoch in (2, 0, 1):
        again.set_epoch(epoch)
        assert ids_of(again)[0] == one_after_the_other[epoch]


def test_a_loop_that_was_left_begins_again(plain, engine):
    loader = open_plain(plain, 20, engine=engine)
    whole = ids_of(loader)[0]
    loader.set_epoch(0)
    for batch in loader:
        assert batch["id"].tolist() == whole[0]
        break
    assert ids_of(loader)[0] == whole


def test_stale_iterators(plain, engine):
    loader = open_plain(plain, 20, engine=engine)
    first = iter(loader)
    next(first)
    second = iter(loader)
    with pytest.raises(stoker.StateError):
        next(first)
    next(second)
    loader.set_epoch(4)
    with pytest.raises(stoker.StateError):
        next(second)
    done = iter(loader)
    assert len(list(done)) == 5 and list(done) == []


def test_set_epoch_to_where_it_stands_keeps_the_work(plain, engine):
    loader = open_plain(plain, 20, engine=engine)
    iterator = iter(loader)
    loader.set_epoch(0)  # nothing was taken yet
    next(iterator)


# ---- states ----


@pytest.mark.parametrize("shuffle", ["block", "full", "none"])
@pytest.mark.parametrize("tail", ["drop", "pad", "wrap", "keep"])
@pytest.mark.parametrize("stop", [0, 1, 3, 6])
def test_resume(plain, shuffle, tail, stop):
    """Stopped after some batches and resumed with other threads: as if never stopped."""
    options = {"shuffle": shuffle, "tail": tail, "seed": 9, "batch_size": 5}
    with open_plain(plain, 31, threads=1, **options) as loader:
        loader.set_epoch(2)
        whole = ids_of(loader)[0]
        after = ids_of(loader)[0]
    with open_plain(plain, 31, threads=2, **options) as loader:
        loader.set_epoch(2)
        iterator = iter(loader)
        for _ in range(stop):
            next(iterator)
        state = json.loads(json.dumps(loader.state_dict()))
    with open_plain(plain, 31, threads=3, **options) as loader:
        loader.load_state_dict(state)
        assert loader.epoch == 2
        loader.set_epoch(2)  # as a training script does at the top of its loop
        assert ids_of(loader)[0] == whole[stop:]
        assert ids_of(loader)[0] == after and loader.epoch == 4


def test_state_after_the_last_batch(plain, engine):
    """A state at the end of an epoch starts the next epoch, whether the loop saw the end or not."""
    loader = open_plain(plain, 20, engine=engine)
    whole = [ids_of(loader)[0], ids_of(loader)[0]]
    after = loader.state_dict()
    loader.set_epoch(1)
    iterator = iter(loader)
    for _ in range(5):
        next(iterator)
    last = loader.state_dict()
    again = open_plain(plain, 20, engine=engine)
    again.load_state_dict(after)
    assert again.epoch == 2
    third = ids_of(again)[0]
    assert third not in whole
    again.load_state_dict(last)
    left = ids_of(again)[0]
    assert left == [] or left == third  # the rest of epoch 1 is nothing
    if not left:
        assert ids_of(again)[0] == third


def test_state_is_small_and_plain(plain, engine):
    state = open_plain(plain, 20, engine=engine, seed=7).state_dict()
    assert state["seed"] == 7 and state["epoch"] == 0 and state["position"] == 0
    assert state["order_version"] == stoker.ORDER_VERSION and state["sample_count"] == 20
    assert len(state["identity"]) == 64 and len(json.dumps(state)) < 500


def test_state_in_another_world(plain, engine):
    """Two ranks of 2 stop; one rank continues with 4 per batch: the rest of the epoch, once."""
    states, seen = [], []
    for rank in range(2):
        loader = open_plain(
            plain, 64, rank=rank, world_size=2, batch_size=2, engine=engine, shuffle="full"
        )
        iterator = iter(loader)
        seen += flat(next(iterator)["id"].tolist() for _ in range(5))
        states.append(loader.state_dict())
    assert states[0] == states[1]
    loader = open_plain(plain, 64, batch_size=4, engine=engine, shuffle="full")
    loader.load_state_dict(states[0])
    assert sorted(seen + flat(ids_of(loader)[0])) == list(range(64))


REFUSED_STATES = {
    "another seed": {"seed": 1},
    "another data set": {"identity": "00" * 32},
    "another version": {"order_version": stoker.ORDER_VERSION + 1},
    "an unknown shuffle": {"shuffle": 5},
    "another length": {"sample_count": 21},
    "position past the end": {"position": 1 << 60},
    "negative": {"position": -1},
    "short identity": {"identity": "00"},
    "identity of nothing": {"identity": "xyz"},
    "text": {"epoch": "one"},
    "missing": {"seed": None},
}


@pytest.mark.parametrize("name", REFUSED_STATES)
def test_refused_state(plain, engine, name):
    loader = open_plain(plain, 20, engine=engine)
    state = {**loader.state_dict(), **REFUSED_STATES[name]}
    if name == "missing":
        del state["seed"]
    with pytest.raises(stoker.StateError) as caught:
        loader.load_state_dict(state)
    assert caught.value.advice
    assert len(ids_of(loader)[0]) == 5  # usable after


# ---- samples themselves ----


def test_values_belong_to_their_sample(tars, engine):
    """Every field of every sample, against how the tars were made."""
    import make

    loader = stoker.Loader(
        tars,
        8,
        tail="keep",
        seed=1,
        engine=engine,
        output="numpy",
        fields={
            "label": stoker.Int("cls"),
            "text": stoker.Text("txt"),
            "key": "__key__",
            "bin": stoker.Bytes("bin"),
            "jpg": stoker.Bytes("jpg"),
            "id": "__id__",
        },
    )
    seen = []
    for batch in loader:
        for i, number in enumerate(batch["id"].tolist()):
            made = {name.partition(".")[2]: data for name, data in make.sample(number)}
            assert batch["key"][i] == f"part{number // 50}/s{number:04}"
            assert batch["label"][i] == number % 7 and batch["text"][i] == f"Text of {number}: ü"
            assert bytes(batch["bin"][i]) == made["bin"] and bytes(batch["jpg"][i]) == made["jpg"]
            seen.append(number)
    assert sorted(seen) == list(range(103))


def image_hashes(source, batches=None, **options):
    loader = stoker.Loader(
        source,
        10,
        image=[
            stoker.RandomResizedCrop(24),
            stoker.RandomHorizontalFlip(),
            stoker.ColorJitter(0.4, 0.4, 0.4, 0.1),
            stoker.Normalize(),
        ],
        output="numpy",
        seed=4,
        **options,
    )
    result = [(images.tobytes(), labels.tolist()) for images, labels in loader]
    loader.close()
    return result


def test_same_bytes_whatever_the_threads(folder):
    want = image_hashes(folder, threads=1)
    assert image_hashes(folder, threads=2) == want
    assert image_hashes(folder, threads=3, batches_ahead=1) == want
    assert len(want) == 4 and len({images for images, _ in want}) == 4


def test_same_bytes_on_every_vector_path(folder):
    want = image_hashes(folder, engine=stoker.Engine(simd="none"))
    assert image_hashes(folder, engine=stoker.Engine(simd="auto")) == want
    try:
        engine = stoker.Engine(simd="avx2")
    except stoker.Error as error:
        pytest.skip(str(error))
    assert engine.info()["vector"] == "avx2"
    assert image_hashes(folder, engine=engine) == want


@pytest.mark.parametrize("backend", ["io_uring", "threads"])
@pytest.mark.parametrize("direct", ["never", "always"])
def test_same_bytes_however_read(tars, backend, direct):
    try:
        engine = stoker.Engine(io_backend=backend, direct=direct)
    except stoker.Error as error:
        pytest.skip(str(error))
    assert image_hashes(tars, engine=engine) == image_hashes(tars, threads=1)


def test_pictures_resume(folder):
    """Random boxes, flips and colours after a resume are those of the uninterrupted run."""

    def loader(threads):
        return stoker.Loader(
            folder,
            8,
            image=[stoker.RandomResizedCrop(16), stoker.RandomHorizontalFlip()],
            threads=threads,
            seed=3,
            output="numpy",
        )

    with loader(2) as whole:
        want = [images.tobytes() for images, _ in whole]
    with loader(1) as first:
        iterator = iter(first)
        got = [next(iterator)[0].tobytes() for _ in range(2)]
        state = first.state_dict()
    with loader(3) as second:
        second.load_state_dict(state)
        got += [images.tobytes() for images, _ in second]
    assert got == want


def test_random_pictures_differ_by_epoch_and_seed(folder, engine):
    def images(seed, epoch):
        loader = stoker.Loader(
            folder,
            40,
            image=[stoker.RandomResizedCrop(16)],
            seed=seed,
            shuffle="none",
            output="numpy",
            engine=engine,
        )
        loader.set_epoch(epoch)
        return next(iter(loader))[0].tobytes()

    assert len({images(0, 0), images(0, 1), images(1, 0)}) == 3
    assert images(0, 1) == images(0, 1)


# ---- around the stream ----


def test_len_stats_and_attributes(folder):
    with stoker.Loader(
        folder, 16, image=[stoker.Resize((8, 8))], threads=1, output="numpy"
    ) as loader:
        assert len(loader) == 2 and loader.batch_size == 16 and loader.drop_last
        assert loader.classes == ["class0", "class1", "class2", "class3"]
        assert loader.dataset.kind == "imagefolder" and len(loader.dataset) == 40
        for _ in loader:
            pass
        stats = loader.stats()
        assert stats["batches"] == 2 and stats["samples"] == 32 and stats["substituted"] == 0
        assert 0 <= stats["wait_share"] <= 1 and stats["run_seconds"] >= stats["wait_seconds"] > 0
        assert stats["bytes"] > 0 and stats["decode_seconds"] > 0
        assert stats["first_batch_seconds"] > 0 and stats["threads"] >= 1
        assert "Loader" in repr(loader) and "imagefolder" in repr(loader.dataset)


def test_close(folder):
    loader = stoker.Loader(folder, 16, image=[stoker.Resize((8, 8))], output="numpy")
    iterator = iter(loader)
    images, _ = next(iterator)
    copy = images.copy()
    loader.close()
    loader.close()
    assert np.array_equal(images, copy)
    for call in (
        lambda: next(iterator),
        lambda: iter(loader),
        loader.stats,
        loader.state_dict,
        lambda: len(loader),
        lambda: loader.set_epoch(1),
    ):
        with pytest.raises(stoker.ClosedError):
            call()


def test_transform_of_a_batch(folder, engine):
    loader = stoker.Loader(
        folder,
        10,
        image=[stoker.Resize((8, 8))],
        engine=engine,
        output="numpy",
        transform=lambda batch: {"x": batch[0].mean(), "y": batch[1]},
    )
    for batch in loader:
        assert set(batch) == {"x", "y"} and len(batch["y"]) == 10


def test_transform_that_fails(folder, engine):
    def fail(batch):
        raise LookupError("mine")

    loader = stoker.Loader(folder, 10, image=[stoker.Resize((8, 8))], engine=engine, transform=fail)
    with pytest.raises(LookupError, match="mine"):
        next(iter(loader))


def test_dataset_is_shared(tars, engine):
    dataset = stoker.Dataset(tars, engine=engine)
    loaders = [stoker.Loader(dataset, 8, fields=IDS, output="numpy", seed=s) for s in range(2)]
    dataset.close()
    for loader in loaders:
        assert loader.engine is engine
        assert len(set(flat(ids_of(loader)[0]))) == 96


def test_limits_are_named(folder, engine):
    loader = stoker.Loader(folder, 4, image=[stoker.Resize((8, 8))], engine=engine, pixels_max=100)
    with pytest.raises(stoker.LimitError):
        next(iter(loader))
