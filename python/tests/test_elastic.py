"""Runs whose world and batch size change at any step, and that are killed: each sample exactly
once.

Goal: loaders of another world, with other batches, threads and engines continue from a state that
any rank saved, in the middle of an epoch; their samples are those of an uninterrupted run; a state
is a few hundred bytes of JSON, the same on every rank, and is refused elsewhere with every
difference named. Method: random histories of real loaders over tars made here, one loader per rank;
ids counted and fingerprints compared with a run of one rank. The same states for token loaders.
"""

import collections
import io
import json
import os
import random
import tarfile

import numpy as np
import pytest

import stoker

SAMPLES = 211
EPOCHS = 2
HISTORIES = 200 if os.environ.get("STOKER_TEST_LONG") else 10


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("elastic")
    for shard in range(3):
        with tarfile.open(folder / f"{shard}.tar", "w") as tar:
            for i in range(shard, SAMPLES, 3):
                info = tarfile.TarInfo(f"s{i:03}.bin")
                info.size = 50
                tar.addfile(info, io.BytesIO(bytes(50)))
    with stoker.Dataset(folder, block_bytes=300) as opened:
        assert len(opened) == SAMPLES and opened.block_samples == 6
        yield opened


def loader(source, batch_size, **options):
    options = {"window": 4, "groups": 3, "shuffle": "block", "seed": 5, **options}
    return stoker.Loader(source, batch_size, fields={"id": "__id__"}, output="numpy", **options)


class Rank:
    """A rank's loader that continues over the ends of epochs."""

    def __init__(self, dataset, batch_size, **options):
        self.loader = loader(dataset, batch_size, **options)
        self.batches = None

    def step(self, state=None):
        """(epoch, ids that are no padding), or None where all epochs are over."""
        if state is not None:
            self.loader.load_state_dict(state)
        while True:
            self.batches = self.batches or iter(self.loader)
            epoch = self.loader.state_dict()["epoch"]
            if epoch >= EPOCHS:
                return None
            batch = next(self.batches, None)
            if batch is not None:
                mask = self.loader.mask
                return epoch, (batch["id"] if mask is None else batch["id"][mask]).tolist()
            self.batches = None


def stretch(dataset, choose, tail, state, counts):
    """Some steps of a new world from `state` on; returns the state to continue from, None at the
    end."""
    world, batch_size = choose.randint(1, 4), choose.randint(1, 12)
    ranks = [Rank(dataset, batch_size, rank=rank, world_size=world, tail=tail)
             for rank in range(world)]
    steps = choose.randint(1, 12)
    kept = steps if choose.random() < 0.6 else choose.randint(0, steps)
    going, saved = True, state
    for step in range(steps):
        came = [rank.step(state if step == 0 else None) for rank in ranks]
        assert (None in came) == all(each is None for each in came)
        if None in came:
            going = kept < step  # killed after the end: the run continues all the same
            break
        for epoch, ids in came if step < kept else ():
            counts[epoch].update(ids)
        if step + 1 == kept:
            states = [json.dumps(rank.loader.state_dict()) for rank in ranks]
            assert len(set(states)) == 1 and len(states[0]) <= 1024
            saved = json.loads(choose.choice(states))
    for rank in ranks:
        rank.loader.close()
    return saved if going else None


@pytest.mark.parametrize("tail", ["keep", "pad", "drop", "wrap"])
def test_histories(dataset, tail):
    choose = random.Random(f"{tail} 7")
    with loader(dataset, 1, tail="keep") as whole:
        for _ in range(EPOCHS):
            for _ in whole:
                pass
        want = whole.stats()["fingerprint"]
    stretches = 0
    for _ in range(HISTORIES):
        with loader(dataset, 3, tail=tail) as fresh:
            state = last = fresh.state_dict()
        counts = collections.defaultdict(collections.Counter)
        while state is not None:
            last = state
            state = stretch(dataset, choose, tail, state, counts)
            stretches += 1
        if tail in ("keep", "pad"):
            for epoch in range(EPOCHS):
                assert counts[epoch] == dict.fromkeys(range(SAMPLES), 1)
        elif tail == "drop":
            for epoch in range(EPOCHS):
                assert set(counts[epoch].values()) == {1}
                assert len(counts[epoch]) > SAMPLES - 4 * 12
        else:  # a step may begin in one epoch and end in the next
            both = sum(counts.values(), collections.Counter())
            assert set(both) == set(range(SAMPLES))
            assert EPOCHS <= min(both.values()) and max(both.values()) <= EPOCHS + 1
            assert both.total() < EPOCHS * SAMPLES + 4 * 12
    assert stretches > 3 * HISTORIES
    if tail in ("keep", "pad"):  # the fingerprint is that of a run that nothing stopped
        one = Rank(dataset, 7, tail=tail)
        came = one.step(last)
        while came is not None:
            came = one.step()
        assert one.loader.stats()["fingerprint"] == want
        one.loader.close()


REFUSED = {
    "seed: 5 in the state, 6 here": {"seed": 6},
    "window: 4 in the state, 5 here": {"window": 5},
    "groups: 3 in the state, 2 here": {"groups": 2},
    "shuffle: block in the state, full here": {"shuffle": "full"},
    "tail: drop in the state, wrap here": {"tail": "wrap"},
    "groups: 3 in the state, 1 here; seed: 5 in the state, 9 here": {"groups": 1, "seed": 9},
}


@pytest.mark.parametrize("difference", REFUSED)
def test_differences_are_named(dataset, difference):
    with loader(dataset, 8) as stream:
        state = json.loads(json.dumps(stream.state_dict()))
    with loader(dataset, 8, **REFUSED[difference]) as other:
        with pytest.raises(stoker.StateError) as caught:
            other.load_state_dict(state)
        assert difference in str(caught.value) and caught.value.advice
        want = len(other)
        assert sum(1 for _ in other) == want  # it can still be used


@pytest.mark.parametrize("wrong", [
    None, [1], "x", {}, {"position": 1.5}, {"position": "7"}, {"position": -1}, {"seed": 2**64},
    {"groups": 2**32}, {"identity": "zz"}, {"identity": "ab"}, {"identity": None},
    {"position": 2**40},
], ids=str)
def test_invalid_states(dataset, wrong):
    with loader(dataset, 8) as stream:
        state = stream.state_dict()
        given = {**state, **wrong} if isinstance(wrong, dict) and wrong else wrong
        with pytest.raises(stoker.StateError):
            stream.load_state_dict(given)
        assert stream.state_dict() == state


def test_another_data_set_is_named(dataset, tmp_path):
    with loader(dataset, 8) as stream:
        state = stream.state_dict()
    for name, count in (("same", SAMPLES), ("more", SAMPLES + 1)):
        with tarfile.open(tmp_path / f"{name}.tar", "w") as tar:
            for i in range(count):
                info = tarfile.TarInfo(f"t{i:03}.bin")
                info.size = 50
                tar.addfile(info, io.BytesIO(bytes(50)))
        source = stoker.Dataset(tmp_path / f"{name}.tar", block_bytes=300)
        with source, loader(source, 8) as other:
            with pytest.raises(stoker.StateError) as caught:
                other.load_state_dict(state)
            text = str(caught.value)
            assert "identity of the data set" in text
            assert ("number of samples: 211 in the state, 212 here" in text) == (name == "more")


def test_substitutes_are_listed_apart(tmp_path):
    """The fingerprint covers what was scheduled, damaged or not; substitutes are listed."""
    streams = {}
    for name, bad in (("whole", ()), ("damaged", (7, 80, 81))):
        with tarfile.open(tmp_path / f"{name}.tar", "w") as tar:
            for i in range(100):
                value = b"x" if i in bad else b"%d" % (i % 10)
                info = tarfile.TarInfo(f"{i:02}.cls")
                info.size = len(value)
                tar.addfile(info, io.BytesIO(value))
        fields = {"id": "__id__", "label": stoker.Int("cls")}
        with stoker.Loader(tmp_path / f"{name}.tar", 10, fields=fields, seed=2, on_error="skip",
                           output="numpy") as stream:
            ids = [batch["id"].tolist() for batch in stream]
            reported = [[row.sample for row in stream.explain(step, epoch=0)] for step in range(10)]
            streams[name] = (stream.stats()["fingerprint"], ids, reported,
                             sorted(row.sample for row in stream.quarantine))
    whole, damaged = streams["whole"], streams["damaged"]
    assert whole[0] == damaged[0] and whole[2] == damaged[2] == whole[1]
    assert whole[3] == [] and damaged[3] == [7, 80, 81]
    differ = [(a, b) for x, y in zip(damaged[2], damaged[1], strict=True)
              for a, b in zip(x, y, strict=True) if a != b]
    assert sorted(a for a, _ in differ) == [7, 80, 81]
    assert not {7, 80, 81} & {b for _, b in differ}


def test_states_of_tokens(tmp_path):
    """Any rank's state, another world and batch; differences named."""
    path = tmp_path / "t.bin"
    np.arange(16 * 300 + 1, dtype=np.uint16).tofile(path)

    def tokens(batch_size, **options):
        return stoker.TokenLoader(path, batch_size, context=16, dtype="int64", output="numpy",
                                  stored="uint16", tail="keep", seed=3, **options)

    def firsts(batch):
        return (batch[0][:, 0] // 16).tolist()

    seen, states = [], []
    for rank in range(3):
        stream = tokens(5, rank=rank, world_size=3)
        batches = iter(stream)
        for _ in range(7):
            seen += firsts(next(batches))
        states.append(json.dumps(stream.state_dict()))
    assert len(set(states)) == 1 and len(states[0]) <= 1024
    stream = tokens(11)
    stream.load_state_dict(json.loads(states[2]))
    for batch in stream:
        seen += firsts(batch)
    assert sorted(seen) == list(range(300))
    with pytest.raises(stoker.StateError, match="seed: 3 in the state, 4 here"):
        stoker.TokenLoader(path, 5, context=16, stored="uint16", tail="keep", seed=4,
                           output="numpy").load_state_dict(json.loads(states[0]))
