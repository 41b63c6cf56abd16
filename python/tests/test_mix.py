"""stoker.Mix: several sources in one stream.

Goal: shares are exact at every frame end, no sample of a source is left out or repeated in an epoch
of it, ranks and resumes change nothing, changes of weights keep the samples that were returned, the
mix ends where the options say. Method: three small sources of tars; the ids of loaders are counted
and compared.
"""

import collections
import io
import json
import os
import subprocess
import tarfile
import time

import make
import pytest

import stoker
from stoker.mix import to_integers

SIZES = {"a": 300, "b": 120, "c": 41}
TOTAL = sum(SIZES.values())
FRAME = 1020  # an epoch of so many samples is one frame, and a multiple of the sum of weights
STEP = 20  # divides 1020 * k often enough, and by 1, 2, 4 ranks


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mix")
    for name, size in SIZES.items():
        with tarfile.open(folder / f"{name}.tar", "w") as tar:
            for i in range(size):
                info = tarfile.TarInfo(f"{name}{i:04}.bin")
                info.size = 4
                tar.addfile(info, io.BytesIO(bytes(4)))
    return [str(folder / f"{name}.tar") for name in SIZES]


def loader(mix, batch=STEP, **options):
    options = {"seed": 1, "tail": "wrap", "output": "numpy", **options}
    return stoker.Loader(mix, batch, fields={"id": "__id__", "key": "__key__"}, **options)


class Run:
    """A loop over epochs, batch by batch, that stops and continues."""

    def __init__(self, stream):
        self.stream, self.iterator = stream, iter(stream)

    def __call__(self, batches):
        """The keys of so many batches."""
        found = []
        while len(found) < batches:
            batch = next(self.iterator, None)
            if batch is None:
                self.iterator = iter(self.stream)
            else:
                found.append(list(batch["key"]))
        return found


def keys(stream, batches):
    return Run(stream)(batches)


def saved(stream):
    return json.loads(json.dumps(stream.state_dict()))


def flat(batches):
    return [key for batch in batches for key in batch]


def shares(names):
    return [collections.Counter(name[0] for name in names)[letter] for letter in SIZES]


def test_shares_are_exact(sources):
    with loader(stoker.Mix(sources, [3, 2, 1], epoch=FRAME)) as stream:
        names = flat(keys(stream, 3 * FRAME // STEP))
    for frame in range(3):
        assert shares(names[frame * FRAME : (frame + 1) * FRAME]) == [510, 340, 170]
    # Not all of one source, nor by turns: every batch differs.
    assert len({tuple(n[0] for n in names[i : i + STEP]) for i in range(0, len(names), STEP)}) > 140
    for letter, size in SIZES.items():
        own = collections.Counter(name for name in names if name[0] == letter)
        given = sum(own.values())
        assert set(own.values()) <= {given // size, given // size + 1}
        assert len(own) == min(size, given)


def test_each_sample_of_a_small_source_once(sources):
    """An epoch of the length of a source has each of its samples once; so has one in which a source
    has that part."""
    for mix, letter in (
        (stoker.Mix(sources[1:2], epoch=SIZES["b"]), "b"),
        (stoker.Mix(sources, [5, 1, 2], epoch=8 * SIZES["b"]), "b"),
        (stoker.Mix(sources, [3, 1, 1], epoch=5 * SIZES["c"]), "c"),
    ):
        with loader(mix, 1, tail="drop") as stream:
            for _ in range(4):
                own = [key[0] for (key,) in ((b["key"],) for b in stream) if key[0][0] == letter]
                assert len(own) == len(set(own)) == SIZES[letter]


def test_without_a_shuffle_sources_keep_their_sequence(sources):
    with loader(stoker.Mix(sources, [3, 2, 1], epoch=600), shuffle="none") as stream:
        names = flat(keys(stream, 60))
    for letter, size in SIZES.items():
        own = [name for name in names if name[0] == letter]
        assert own == [f"{letter}{i % size:04}" for i in range(len(own))]
    assert shares(names[:60]) == [30, 20, 10]


def test_weights_are_numbers_as_written(sources):
    with loader(stoker.Mix(sources, [0.5, "1/3", "1/6"])) as stream:
        want = keys(stream, 60)
    with loader(stoker.Mix(sources, [3, 2, 1])) as stream:
        assert keys(stream, 60) == want
    with loader(stoker.Mix(sources)) as stream:  # by the number of samples
        counts = shares(flat(keys(stream, 461)))
    assert all(abs(count / STEP - size) <= 1 for count, size in zip(counts, SIZES.values()))


def test_groups_of_sources(sources):
    a, b, c = sources
    with loader(stoker.Mix([a, stoker.Mix([b, c], [2, 1])], [1, 1])) as stream:
        want = keys(stream, 60)
    with loader(stoker.Mix([a, b, c], [3, 2, 1])) as stream:
        assert keys(stream, 60) == want


def test_ranks_and_resumes_change_nothing(sources):
    mix = stoker.Mix(sources, [3, 2, 1], epoch=FRAME)
    with loader(mix) as stream:
        want = keys(stream, 80)
    for world in (2, 4):
        states, parts = [], []
        for rank in range(world):
            with loader(mix, STEP // world, rank=rank, world_size=world) as stream:
                parts.append(keys(stream, 50))
                states.append(saved(stream))
        assert [sorted(flat(p[step] for p in parts)) for step in range(50)] == [
            sorted(batch) for batch in want[:50]
        ]
        assert all(state == states[0] for state in states)
        with loader(mix) as stream:
            stream.load_state_dict(states[-1])
            assert keys(stream, 30) == want[50:]


def test_home_groups(tmp_path):
    """Ranks have mostly the same blocks every epoch, of each source; worlds and resumes as ever."""
    megabyte, sizes = 1 << 20, {"a": 64, "b": 128, "c": 5}  # 8 and 16 blocks; c has no groups
    for name, size in sizes.items():
        with open(tmp_path / f"{name}.tar", "wb") as file:  # a sparse file
            for i in range(size):
                info = tarfile.TarInfo(f"{name}{i:03}.bin")
                info.size = megabyte
                file.write(info.tobuf())
                file.seek(megabyte, 1)
            file.truncate(file.tell() + 1024)
    mix = stoker.Mix([str(tmp_path / f"{name}.tar") for name in sizes], [64, 128, 5], epoch=399)
    options = {"groups": 2, "window": 2, "tail": "drop"}
    with loader(mix, STEP, **options) as stream:
        assert len(stream) * STEP == 400  # a multiple of the groups
        want = keys(stream, 80)
    for world in (2, 4):
        parts, states = [], []
        for rank in range(world):
            with loader(mix, STEP // world, rank=rank, world_size=world, **options) as stream:
                parts.append(keys(stream, 50))
                states.append(saved(stream))
        assert all(state == states[0] for state in states) and states[0]["groups"] == 2
        for step in range(50):
            assert sorted(flat(p[step] for p in parts)) == sorted(want[step])
        with loader(mix, STEP, **options) as stream:
            stream.load_state_dict(states[-1])
            assert keys(stream, 30) == want[50:]
        if world == 2:  # four epochs of the run are eight of each source
            met = [collections.Counter(key for key in flat(p) if key[0] != "c") for p in parts]
            assert all(len(part) < 160 for part in met)
            assert sum((met[0] & met[1]).values()) < 100  # of 975
    for refused in ({"groups": 5}, {"groups": 3}):
        with (
            pytest.raises(stoker.ArgumentError if refused["groups"] == 5 else stoker.StateError),
            loader(mix, STEP, **{**options, **refused}) as stream,
        ):
            stream.load_state_dict(states[0])


def test_new_weights_keep_delivered_samples(sources):
    mix = stoker.Mix(sources, [3, 2, 1], epoch=FRAME)
    with loader(mix) as stream:
        plain = flat(keys(stream, 200))
    with loader(mix) as stream:
        run = Run(stream)
        first = run(7)
        assert stream.set_weights([0, 1, 1]) == FRAME
        first += run(7)
        state = saved(stream)
        rest = run(186)
    names = flat(first + rest)
    assert names[:FRAME] == plain[:FRAME] and names[FRAME:] != plain[FRAME : len(names)]
    assert shares(names[FRAME : 2 * FRAME]) == [0, 510, 510]
    assert state["weights"] == [[0, [3, 2, 1]], [FRAME, [0, 1, 1]]]
    # A loader of the first weights accepts the history, and so does one that was opened with it.
    for same in (mix, stoker.Mix(sources, [3, 2, 1], epoch=FRAME, changes=[(FRAME, [0, 1, 1])])):
        with loader(same) as stream:
            stream.load_state_dict(state)
            assert keys(stream, 186) == rest
            assert stream.state_dict()["weights"] == state["weights"]


def test_weights_change_again(sources):
    """A second change keeps the effect of the first, and both are part of the state."""
    mix, second = stoker.Mix(sources, [3, 2, 1], epoch=FRAME), 2 * FRAME
    with loader(mix) as stream:
        run = Run(stream)
        names = run(7)
        assert stream.set_weights([0, 1, 1]) == FRAME
        names += run(53)
        assert stream.set_weights([1, 0, 0]) == second  # 1,200 are returned
        names += run(60)
        state = saved(stream)
        rest = run(20)
    assert shares(flat(names)[FRAME:second]) == [0, 510, 510]
    assert shares(flat(names)[second:]) == [2400 - second, 0, 0]
    assert state["weights"] == [[0, [3, 2, 1]], [FRAME, [0, 1, 1]], [second, [1, 0, 0]]]
    changes = [(FRAME, [0, 1, 1]), (second, [1, 0, 0])]
    with loader(stoker.Mix(sources, [3, 2, 1], epoch=FRAME, changes=changes)) as stream:
        assert keys(stream, 140) == names + rest
    with loader(mix) as stream:
        stream.load_state_dict(state)
        assert keys(stream, 20) == rest


def test_changes_given_before(sources):
    changes = [(FRAME, [0, 1, 1]), (FRAME + 100, [1, 0, 0])]
    with loader(stoker.Mix(sources, [3, 2, 1], epoch=FRAME)) as stream:
        plain = flat(keys(stream, 100))
    with loader(stoker.Mix(sources, [3, 2, 1], epoch=FRAME, changes=changes)) as stream:
        names = flat(keys(stream, 100))
        assert names[:FRAME] == plain[:FRAME]
        assert shares(names[FRAME : FRAME + 100]) == [0, 50, 50]
        assert shares(names[FRAME + 100 :]) == [2000 - FRAME - 100, 0, 0]
    # A future change: applied at the end of the frame that contains its position.
    with loader(stoker.Mix(sources, [3, 2, 1], epoch=FRAME)) as stream:
        run = Run(stream)
        assert run(3)
        assert stream.set_weights([0, 0, 1], at=2 * FRAME - 5) == 2 * FRAME
        assert stream.set_weights([0, 1, 0], at=2 * FRAME) == 2 * FRAME
        assert stream.state_dict()["weights"][1:] == [[2 * FRAME, [0, 1, 0]]]
        with pytest.raises(stoker.ArgumentError, match=str(FRAME)):
            stream.set_weights([0, 1, 0], at=FRAME - 1)
        assert flat(run(97)) == plain[60:]  # 2,000 are before 2,040


def test_histories_that_do_not_fit(sources):
    with loader(stoker.Mix(sources, [3, 2, 1], epoch=FRAME)) as stream:
        run = Run(stream)
        run(60)  # 1,200 samples: the frame ends at 2,040
        state = saved(stream)
        want = run(60)
    other = stoker.Mix(sources, [1, 1, 1])
    with loader(other) as stream:
        with pytest.raises(stoker.StateError, match=r"(?s)\[3, 2, 1\] from 0 on .*2040"):
            stream.load_state_dict(state)
        assert stream.state_dict()["weights"] == [[0, [1, 1, 1]]]
        fresh = keys(stream, 5)
    with loader(other) as stream:
        assert keys(stream, 5) == fresh  # the refused call changed nothing
    late = stoker.Mix(sources, [3, 2, 1], epoch=FRAME, changes=[(2 * FRAME, [1, 1, 1])])
    with loader(late) as stream:
        stream.load_state_dict(state)
        names = flat(keys(stream, 60))
        assert names[:840] == flat(want)[:840] and names != flat(want)
    early = stoker.Mix(sources, [3, 2, 1], epoch=FRAME, changes=[(2 * FRAME - 1, [1, 1, 1])])
    with loader(early) as stream, pytest.raises(stoker.StateError, match="2040"):
        stream.load_state_dict(state)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"batches": "single"}, "unit_samples"),
        ({"end": "stop"}, "mix_end"),
        ({"epoch": 1000}, "epoch_samples"),
    ],
    ids=str,
)
def test_states_of_other_settings(sources, change, word):
    with loader(stoker.Mix(sources, [3, 2, 1], epoch=FRAME)) as stream:
        state = saved(stream)
    with (
        loader(stoker.Mix(sources, [3, 2, 1], **change)) as stream,
        pytest.raises(stoker.StateError, match=word),
    ):
        stream.load_state_dict(state)


def test_states_that_cannot_be_read(sources):
    with loader(stoker.Mix(sources, [3, 2, 1], epoch=FRAME)) as stream:
        keys(stream, 3)
        good = saved(stream)
        for change in (
            {"weights": None},
            {"weights": []},
            {"weights": [[1, [3, 2, 1]]]},
            {"weights": [[0, [3, 2, 1]], [0, [1, 2, 3]]]},
            {"weights": [[0, [3, 2]], [5, [1, 2, 3]]]},
            {"weights": [[0, [3, 2, 1, 1]]]},
            {"weights": [[0, [3, -2, 1]]]},
            {"weights": [[0, [3, 2, 2]]]},
            {"weights": [[0, [0, 0, 0]]]},
            {"epoch_samples": "x"},
            {"epoch_samples": 0},
            {"epoch_samples": 460},
            {"mix": "0" * 16},
            {"seed": 2},
        ):
            with pytest.raises(stoker.Error):
                stream.load_state_dict({**good, **change})
        stream.load_state_dict(good)
        assert len(json.dumps({**good, "weights": 0})) <= 1024
    with loader(stoker.Mix(sources[:2])) as stream, pytest.raises(stoker.StateError, match="3 sou"):
        stream.load_state_dict(good)
    with loader(sources) as stream:
        with pytest.raises(stoker.StateError, match="mix"):
            stream.load_state_dict(good)
        with pytest.raises(stoker.ArgumentError):
            stream.set_weights([1, 1, 1])
        plain = saved(stream)
    with loader(stoker.Mix(sources)) as stream, pytest.raises(stoker.StateError, match="mix"):
        stream.load_state_dict(plain)


def test_a_source_joins_later(sources):
    """A run of two sources continues with three: returned samples and epochs are unchanged."""
    with loader(stoker.Mix(sources[:2], [2, 1])) as stream:
        run = Run(stream)
        first = flat(run(20))
        state = saved(stream)
        plain = flat(run(100))
    frame = 3 * 420  # an epoch is a frame
    three = stoker.Mix(sources, [2, 1, 0], changes=[(frame, [2, 1, 1])])
    with loader(three) as stream:
        stream.load_state_dict(state)
        run = Run(stream)
        names = flat(run(100))
        assert names[: frame - 400] == plain[: frame - 400]
        assert shares(names[frame - 400 : frame + 20]) == [210, 105, 105]
        again = saved(stream)
        rest = run(30)
    assert again["epoch_samples"] == 420 and again["block_samples"] == state["block_samples"]
    with loader(three) as stream:  # its states are states as others are
        stream.load_state_dict(again)
        assert keys(stream, 30) == rest
    # All of a and b were returned equally often, before and after the change, at a frame's end.
    every = collections.Counter((first + names)[: frame + 420])
    for letter in "ab":
        own = [count for name, count in every.items() if name[0] == letter]
        assert max(own) - min(own) <= 1 and len(own) == SIZES[letter]
    with loader(stoker.Mix(sources, [2, 1, 1])) as stream:
        with pytest.raises(stoker.StateError, match="420"):
            stream.load_state_dict(state)
    for other in ([sources[1], sources[0], sources[2]], [sources[0], *sources[1:][::-1]]):
        with loader(stoker.Mix(other, [2, 1, 0])) as stream, pytest.raises(stoker.StateError):
            stream.load_state_dict(state)


def test_a_source_of_large_samples_joins(sources, tmp_path):
    """Blocks would hold fewer samples with it: they stay as they were when the run began."""
    large = tmp_path / "d.tar"
    with tarfile.open(large, "w") as tar:
        for i in range(40):
            info = tarfile.TarInfo(f"d{i:04}.bin")
            info.size = 600_000
            tar.addfile(info, io.BytesIO(bytes(info.size)))
    with loader(stoker.Mix(sources[:2], [2, 1])) as stream:
        run = Run(stream)
        run(20)
        state = saved(stream)
        plain = flat(run(22))  # up to 840, two epochs
    joined = [*sources[:2], str(large)]
    with loader(stoker.Mix(joined, [2, 1, 0], changes=[(840, [0, 0, 1])])) as stream:
        assert stream.state_dict()["block_samples"] < state["block_samples"]
        stream.load_state_dict(state)
        assert stream.state_dict()["block_samples"] == state["block_samples"]
        names = flat(keys(stream, 33))
    assert names[:440] == plain
    assert {name[0] for name in names[440:]} == {"d"}


def test_explain_and_find(sources):
    mix = stoker.Mix(sources, [3, 2, 1], epoch=FRAME, changes=[(FRAME, [1, 1, 1])])
    with loader(mix) as stream:
        for epoch in range(4):
            stream.set_epoch(epoch)
            for step, batch in enumerate(stream):
                slots = stream.explain(step, epoch=epoch)
                assert [slot.key for slot in slots] == list(batch["key"])
                assert [slot.sample for slot in slots] == batch["id"].tolist()


def test_ends(sources):
    with loader(stoker.Mix(sources, [1, 1, 1], end="stop"), 1, tail="keep") as stream:
        assert len(stream) == 123
        names = flat(keys(stream, 3 * 123))
        for i in range(3):
            assert shares(names[123 * i : 123 * (i + 1)]) == [41, 41, 41]
        assert len({name for name in names if name[0] == "a"}) == 123  # it continues where it was
    with loader(stoker.Mix(sources, [1, 1, 1], end="renormalise"), 1, tail="keep") as stream:
        names = flat(keys(stream, TOTAL))
        assert len(stream) == len(set(names)) == TOTAL
        assert shares(names[:123]) == [41, 41, 41]
        assert shares(names[123 : 123 + 158]) == [79, 79, 0]
    with loader(stoker.Mix(sources, repeats=[1, 2, 0.5]), 1, tail="keep") as stream:
        assert len(stream) == 300 + 240 + 20
        assert shares(flat(keys(stream, len(stream)))) == [300, 240, 20]
    with loader(stoker.Mix(sources, counts=[30, 12, 41]), 1, tail="keep") as stream:
        names = flat(keys(stream, 10 * 83))
        assert len(set(names)) == TOTAL  # epochs continue where the one before ended
    with loader(stoker.Mix(sources, [1, 1, 1], epoch=100), tail="drop") as stream:
        assert len(stream) == 5


def test_batches_of_one_source(sources):
    with loader(stoker.Mix(sources, [3, 2, 1], batches="single", epoch=600)) as stream:
        batches = keys(stream, 60)
    assert all(len({key[0] for key in batch}) == 1 for batch in batches)
    assert shares(flat(batches)) == [600, 400, 200]


def test_counts_of_complete_batches(sources):
    """A remainder that makes no batch stays for the next epoch, and nothing else does."""
    mix = stoker.Mix(sources, counts=[109, 200, 41], batches="single")
    with loader(mix, tail="keep") as stream:
        batches = keys(stream, 2 * len(stream))
        assert len(stream) == 5 + 10 + 2
    assert all(len({key[0] for key in batch}) == 1 for batch in batches)
    assert shares(flat(batches)) == [200, 400, 80]
    own = collections.Counter(key for key in flat(batches) if key[0] == "c")
    assert len(own) == 41 and max(own.values()) == 2  # 80 are two epochs of 41, less two


def test_weights_of_an_end_change_in_its_first_epoch(sources):
    with loader(stoker.Mix(sources, [1, 1, 1], end="stop"), 1, tail="keep") as stream:
        run = Run(stream)
        first = flat(run(60))
        assert stream.set_weights([2, 1, 0]) == 123  # the frame ends with the mix
        rest = flat(run(len(stream) - 60))
        # c was exhausted at 123, so a and b continue without it: b is exhausted first.
        assert shares((first + rest)[:123]) == [41, 41, 41]
        assert shares((first + rest)[123:]) == [158, 79, 0]
        state = saved(stream)
        run(1)
        with pytest.raises(stoker.StateError):
            stream.set_weights([1, 1, 1])
    with loader(stoker.Mix(sources, [1, 1, 1], end="stop"), 1, tail="keep") as stream:
        stream.load_state_dict(state)
        assert len(stream) == 123 + 158 + 79
    for counted in ({"repeats": [1, 1, 1]}, {"counts": [1, 1, 1]}):
        with loader(stoker.Mix(sources, **counted), 1) as stream, pytest.raises(stoker.StateError):
            stream.set_weights([1, 1, 1])


def test_ranks_change_weights_together(sources):
    """After the same batch, on all ranks; and the fingerprint is that of a run that had the change
    at its start."""
    mix = stoker.Mix(sources, [3, 2, 1], epoch=FRAME)
    changed = stoker.Mix(sources, [3, 2, 1], epoch=FRAME, changes=[(FRAME, [0, 1, 1])])
    with loader(changed) as stream:
        want, print_ = keys(stream, 120), stream.stats()["fingerprint"]
    parts = []
    for rank in range(4):
        with loader(mix, STEP // 4, rank=rank, world_size=4) as stream:
            run = Run(stream)
            got = run(10)
            assert stream.set_weights([0, 1, 1]) == FRAME
            parts.append(got + run(110))
            assert stream.stats()["fingerprint"] == print_
    assert [[key for part in parts for key in part[step]] for step in range(120)] == want


@pytest.mark.parametrize("batches", ["mixed", "single"])
def test_ranks_that_are_known_late(sources, monkeypatch, batches):
    """The process's rank is set after the loader was made; steps are other ones then."""
    mix = stoker.Mix(sources, [3, 2, 1], batches=batches)
    with loader(mix, 10, rank=1, world_size=2) as stream:
        want = keys(stream, 40)
    with loader(mix, 10) as stream:
        monkeypatch.setenv("RANK", "1")
        monkeypatch.setenv("WORLD_SIZE", "2")
        assert keys(stream, 40) == want


def test_weights_change_beside_pinned_batches(sources, monkeypatch, torch):
    """A thread that pins has taken one more batch: it is returned again, with the new weights."""
    monkeypatch.setattr("stoker.loader_base.pin", lambda value: value)
    changes = [(FRAME, [0, 1, 1])]
    with loader(stoker.Mix(sources, [3, 2, 1], epoch=FRAME, changes=changes)) as stream:
        want = keys(stream, 80)
    mix = stoker.Mix(sources, [3, 2, 1], epoch=FRAME)
    with loader(mix, output="torch", pin_memory=True) as stream:
        monkeypatch.setattr(stream, "_uses_pinning", lambda: True)
        run = Run(stream)
        got = run(23)
        time.sleep(0.1)
        assert stream.set_weights([0, 1, 1]) == FRAME
        assert got + run(57) == want


def test_weights_in_any_unit(sources):
    """Weights from softmax have no small common divisor: they are rounded, by far less than a
    sample."""
    odd = [0.09003057317038046, 0.24472847105479764, 0.6652409557748219]
    with loader(stoker.Mix(sources, odd, epoch=1024)) as stream:
        names = flat(keys(stream, 60))
    for count, weight in zip(shares(names[:1024]), odd, strict=True):
        assert abs(count - 1024 * weight) < 1
    mix = stoker.Mix(sources, [0.1, 0.2, 0.7])
    assert to_integers(mix.weights) == [1, 2, 7]
    with pytest.raises(stoker.ArgumentError, match="small"):
        loader(stoker.Mix(sources, [1e-300, 1, 1])).close()


def test_one_source_twice(sources):
    """The same tar as two sources: each has its own epochs."""
    with loader(stoker.Mix([sources[2], sources[2]], [1, 1])) as stream:
        names = collections.Counter(flat(keys(stream, 52))[:1024])
    assert len(names) == 41  # each 12 or 13 times by either
    assert set(names.values()) == {24, 25, 26}


def test_many_changes(sources):
    changes = [(20 * i, [1 + i % 2, 1, 1 + i % 3]) for i in range(1, 1000)]
    with loader(stoker.Mix(sources, [3, 2, 1], changes=changes)) as stream:
        for _ in range(60):  # epochs of 461
            names = flat(keys(stream, 23))
        assert sum(shares(names)) == 460
        state = saved(stream)
        stream.load_state_dict(state)
        assert len(state["weights"]) == 1000


@pytest.mark.parametrize(
    "options",
    [
        {"sources": []},
        {"sources": "a.tar"},
        {"weights": [1, 2]},
        {"weights": [1, 2, -1]},
        {"weights": [0, 0, 0]},
        {"weights": [1, 2, float("nan")]},
        {"weights": [1, 2, 3], "repeats": [1, 1, 1]},
        {"repeats": [1, 1, 1], "end": "repeat"},
        {"end": "never"},
        {"batches": "pure"},
        {"epoch": 0},
        {"epoch": 5, "end": "stop"},
        {"counts": [1, 2, 0.5]},
        {"weights": [1, 2**60, 3]},
        {"repeats": [1, 1, 0.001]},
        {"counts": [100, 100, 19], "batches": "single"},
        {"changes": [(0, [1, 1, 1])]},
        {"changes": [(5, [1, 1, 1]), (5, [1, 1, 2])]},
        {"changes": [(5, [1, 1])]},
        {"changes": [5]},
        {"changes": [(5, [1, 1, 1])], "repeats": [1, 1, 1]},
        {"changes": [(5, [1, 1, 1])], "batches": "single"},
    ],
    ids=str,
)
def test_refused(sources, options):
    with pytest.raises(stoker.ArgumentError):
        loader(stoker.Mix(**{"sources": sources, **options})).close()


def test_refused_together(sources):
    inner = stoker.Mix(sources[1:], [1, 1], end="stop")
    with pytest.raises(stoker.ArgumentError):
        stoker.Mix([sources[0], inner], [1, 1])
    with pytest.raises(stoker.ArgumentError):
        stoker.Mix([sources[0], stoker.Mix(sources[1:], [1, 1])], repeats=[1, 1])
    with loader(stoker.Mix(sources, end="stop")) as stream:
        stream.set_epoch(1)
        with pytest.raises(stoker.StateError):
            stream.set_weights([1, 1, 1])
        with pytest.raises(stoker.ArgumentError):
            stream.set_epoch(2**63)


# ---- the command ----


def order(paths, *arguments):
    command = [os.environ.get("STOKER_COMMAND", "stoker"), "order", *paths, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def rows_of(paths, *arguments):
    done = order(paths, "--json", *arguments)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


MIXES = [
    ({}, ()),
    ({"changes": [(FRAME, [0, 1, 1])]}, ("--mix", f"3,2,1/{FRAME}:0,1,1")),
    ({"epoch": 100}, ("--mix-epoch", "100")),
    ({"end": "stop"}, ("--mix-end", "stop")),
    ({"end": "renormalise"}, ("--mix-end", "renormalise")),
    ({"batches": "single"}, ("--single-source-steps",)),
]


@pytest.mark.parametrize(("options", "arguments"), MIXES, ids=str)
def test_command(sources, options, arguments):
    """The command prints the samples of a step, and the position of a sample, as a loader returns
    them."""
    arguments = ["--mix", "3,2,1", "--batch", "20", "--seed", "1", "--tail", "wrap", *arguments]
    with loader(stoker.Mix(sources, [3, 2, 1], **options)) as stream:
        epochs = [[batch["id"].tolist() for batch in stream] for _ in range(2)]
    for epoch, step in ((0, 0), (0, 2), (1, 0), (1, len(epochs[1]) - 1)):
        found = rows_of(sources, *arguments, "--epoch", str(epoch), "--at", str(step))
        assert [row["sample"] for row in found] == epochs[epoch][step]
    for sample, key in ((0, "a0000"), (450, "c0030")):
        found = rows_of(sources, *arguments, "--epochs", "2", "--find", key)
        places = {(row["step_epoch"], row["step"], row["slot"]) for row in found}
        want = {
            (epoch, step, slot)
            for epoch in range(2)
            for step, batch in enumerate(epochs[epoch])
            for slot, it in enumerate(batch)
            if it == sample
        }
        late = {place for place in places if place[0] < 2}
        assert len(places) == len(found) and late <= want
        # A step that began in epoch 1 may hold places of epoch 2, which --find did not look at.
        assert all(place[1] == len(epochs[1]) - 1 for place in want - late)


def test_command_proves(sources):
    for _, arguments in MIXES:
        world = () if "--single-source-steps" in arguments else ("--world-sizes", "1,2,4,5")
        histories = ("--random-runs", "1" if "--single-source-steps" in arguments else "10")
        done = order(
            sources, "--mix", "3,2,1", "--batch", "20", "--verify", *world, *histories, *arguments
        )
        assert done.returncode == 0 and "each position occurs exactly once" in done.stdout
    other = order(sources, "--mix", "3,2,1", "--batch", "20", "--diff", "seed=1")
    assert other.returncode == 1 and "order: epoch 0 position 0" in other.stdout
    same = order(sources, "--mix", "3,2,1", "--batch", "20", "--diff", "batch=10,world=2")
    assert same.returncode == 0 or "order: the same" in same.stdout


def test_command_tells_mixes_apart(sources):
    """Weights that change at a position differ from there on, and nothing before."""
    words = ["--mix", "3,2,1", "--batch", "20", "--mix-epoch", str(3 * FRAME), "--json", "--diff"]

    def diff(*settings, more=()):
        done = order(sources, *more, *words, *settings)
        assert done.returncode in (0, 1), done.stderr
        return json.loads(done.stdout)

    assert not diff("mix=6,4,2")["order_differs"]  # the same shares
    assert diff("mix=3,2,2")["order_position"] < 10
    later = diff(f"mix=3,2,1/{2 * FRAME}:1,1,1")
    assert later["order_epoch"] == 0 and 2 * FRAME <= later["order_position"] < 2 * FRAME + 20
    assert later["step"] == 2 * FRAME // STEP
    assert diff("mix-epoch=2000")["order_position"] < 20  # frames end with epochs
    # Batches of one source are of the other set-up's batch size.
    single = diff("batch=30", more=["--single-source-steps"])
    assert single["order_differs"] and single["order_position"] <= 20
    for wrong in ("mix=3,2", "mix=", "mix-end=never", "mix", "single"):
        assert order(sources, *words, wrong).returncode == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("--mix", "3,2"),
        ("--mix", "3,2,1,1"),
        ("--mix", "3,2,x"),
        ("--mix", "3,2,1/"),
        ("--mix", "3,2,1/5"),
        ("--mix", "3,2,1/5:1,2"),
        ("--mix", "0,0,0"),
        ("--mix-end", "stop"),
        ("--mix", "3,2,1", "--home-groups", "4"),
        ("--mix", "3,2,1", "--simulate", "--tail", "wrap"),
    ],
    ids=str,
)
def test_command_refuses(sources, arguments):
    done = order(sources, *arguments)
    assert done.returncode in (1, 2, 3) and not done.stdout
    assert done.stderr.count("\n") <= 3


def test_epochs_at_the_bounds(plain, engine):
    """A typed error of explain() and of the loop; never a wrong order."""
    fields = {"id": "__id__"}
    with make.loader(plain(50), 4, fields=fields, engine=engine, tail="keep") as one:
        for epoch in (2**55, 2**63 - 1):
            assert one.explain(0, epoch=epoch)[0].epoch == epoch
            one.set_epoch(epoch)
            assert len(list(one)) == 13
            one.set_epoch(0)
        for epoch in (2**63, 2**64 - 1, -1):
            for call in (one.set_epoch, lambda number: one.explain(0, epoch=number)):
                with pytest.raises(stoker.ArgumentError, match="out of bounds"):
                    call(epoch)
    mix = stoker.Mix([plain(50), plain(40)], [1, 2])
    with make.loader(mix, 4, fields=fields, engine=engine, tail="keep") as mixed:
        for epoch in (2**55, 2**62, 2**63 - 1):
            with pytest.raises(stoker.ArgumentError, match="no such epoch"):
                mixed.explain(0, epoch=epoch)
            with pytest.raises(stoker.ArgumentError, match="no such epoch"):
                mixed.set_epoch(epoch)
                next(iter(mixed))
