"""stoker.Mix under a TokenLoader: several sources of tokens in one stream.

Goal: shares are exact at every frame end, each source returns each of its rows once an epoch of its
own, ranks and resumes change nothing, changes of weights keep the rows that were returned, sources
join, and states of another run are refused by name. Method: small sources of all kinds of files,
whose tokens identify their source; rows are counted and compared with those of loaders of one
source.
"""

import collections
import json
import pickle

import pytest
import stoker

numpy = pytest.importorskip("numpy")

CONTEXT = 8
ROWS = {"a": 300, "b": 120, "c": 41}  # windows of each source
FRAME = 1020  # an epoch of so many samples is one frame, and a multiple of the sum of weights
STEP = 20
EOD = 7


def first_token(number):
    """Tokens of source `number` count up from here."""
    return 1000 + 10000 * number


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Two files of raw tokens; an .npy; one file. Every window begins at another token."""
    folder = tmp_path_factory.mktemp("tokens")
    paths = []
    for number, (name, rows) in enumerate(ROWS.items()):
        tokens = numpy.arange(rows * CONTEXT + 1) + first_token(number)
        if name == "a":
            # No window crosses a file's end: the halves share a token.
            half = rows // 2 * CONTEXT
            tokens[: half + 1].astype("uint16").tofile(folder / "a0.bin")
            tokens[half:].astype("uint16").tofile(folder / "a1.bin")
            paths.append(str(folder / "a*.bin"))
        else:
            numpy.save(folder / f"{name}.npy", tokens.astype("uint16"))
            paths.append(str(folder / f"{name}.npy"))
    return paths


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    """Sources of documents that end with EOD."""
    folder = tmp_path_factory.mktemp("documents")
    random = numpy.random.default_rng(3)
    paths = []
    for number in range(3):
        tokens = []
        for _ in range((90, 40, 17)[number]):
            tokens += [*(first_token(number) + random.integers(0, 5000, random.integers(1, 30)))]
            tokens += [EOD]
        numpy.array(tokens, "uint16").tofile(folder / f"{number}.bin")
        paths.append(str(folder / f"{number}.bin"))
    return paths


def loader(mix, batch=STEP, context=CONTEXT, **options):
    options = {"seed": 1, "tail": "wrap", "output": "numpy", "stored": "uint16", **options}
    return stoker.TokenLoader(mix, batch, context, **options)


class Run:
    """A loop over epochs, batch by batch, that stops and continues."""

    def __init__(self, stream):
        self.stream, self.iterator = stream, iter(stream)

    def __call__(self, batches):
        """The first tokens of the rows of so many batches."""
        found = []
        while len(found) < batches:
            batch = next(self.iterator, None)
            if batch is None:
                self.iterator = iter(self.stream)
            else:
                rows = batch["input_ids"] if isinstance(batch, dict) else batch[0]
                found.append([int(row[0]) for row in rows])
        return found


def flat(batches):
    return [first for batch in batches for first in batch]


def saved(stream):
    return json.loads(json.dumps(stream.state_dict()))


def shares(firsts):
    counts = collections.Counter(first // 10000 for first in firsts)
    return [counts[number] for number in range(len(ROWS))]


def test_shares_are_exact(sources):
    with loader(stoker.Mix(sources, [3, 2, 1], epoch=FRAME)) as stream:
        assert stream.rows == FRAME
        batches = flat(Run(stream)(3 * FRAME // STEP))
    for frame in range(3):
        assert shares(batches[frame * FRAME : (frame + 1) * FRAME]) == [510, 340, 170]
    # Each window as often as any other of its source, or once more.
    for number, rows in enumerate(ROWS.values()):
        seen = collections.Counter(first for first in batches if first // 10000 == number)
        windows = {first_token(number) + CONTEXT * i for i in range(rows)}
        assert set(seen) == windows and max(seen.values()) - min(seen.values()) <= 1


def test_rows_are_those_of_the_source(sources):
    """Inputs and labels, int64, shifted by one."""
    with loader(stoker.Mix(sources)) as stream:
        for inputs, labels in stream:
            assert inputs.dtype == labels.dtype == numpy.int64
            assert (inputs[:, 1:] == labels[:, :-1]).all()
            assert (labels - inputs == 1).all()


@pytest.mark.parametrize("options", [{}, {"groups": 4, "window": 2, "block_bytes": 64}])
def test_ranks_and_resumes_change_nothing(sources, options):
    mix = stoker.Mix(sources, [3, 2, 1], epoch=600)
    with loader(mix, **options) as stream:
        want = Run(stream)(90)
    for world in (2, 4):
        state, got = None, []
        for stretch in (20, 33, 37):
            streams = [
                loader(mix, STEP // world, rank=rank, world_size=world, **options)
                for rank in range(world)
            ]
            if state is not None:
                for stream in streams:
                    stream.load_state_dict(state)
            ranks = [Run(stream)(stretch) for stream in streams]
            got += [sorted(flat(parts)) for parts in zip(*ranks, strict=True)]
            states = [saved(stream) for stream in streams]
            assert all(each == states[0] for each in states)
            state = states[0]
            for stream in streams:
                stream.close()
        assert got == [sorted(batch) for batch in want]


@pytest.mark.parametrize("rows", ["packed", "documents", "padded"])
def test_documents_of_all_sources(documents, rows):
    """An epoch that has each source once returns what loaders of each source return."""

    def tokens_of(stream):
        found = collections.Counter()
        for batch in stream:
            parts = batch["input_ids"] if isinstance(batch, dict) else batch[0]
            for row in parts:
                found[tuple(int(token) for token in row)] += 1
        return found

    options = {"rows": rows, "eod": EOD, "chunk": 8, "tail": "keep"}
    want = collections.Counter()
    for path in documents:
        with loader([path], 4, 32, **options) as one:
            want += tokens_of(one)
    with loader(stoker.Mix(documents, repeats=[1, 1, 1]), 4, 32, **options) as stream:
        assert stream.rows == sum(want.values())
        for _ in range(2):
            assert tokens_of(stream) == want


def test_each_window_of_a_small_source_once(sources):
    """In an epoch that has as many rows of a source as it has."""
    rows = list(ROWS.values())
    with loader(stoker.Mix(sources[:1], epoch=rows[0]), 1, tail="drop") as stream:
        for _ in range(3):
            firsts = [int(batch[0][0, 0]) for batch in stream]
            assert len(firsts) == len(set(firsts)) == rows[0]


def test_new_weights_keep_delivered_samples(sources):
    mix = stoker.Mix(sources, [3, 2, 1], epoch=FRAME)
    with loader(mix) as stream:
        run = Run(stream)
        before = run(10)
        assert stream.set_weights([0, 1, 1]) == FRAME
        rest = flat(before) + flat(run(2 * FRAME // STEP))
        state = saved(stream)
    assert state["weights"] == [[0, [3, 2, 1]], [FRAME, [0, 1, 1]]]
    assert shares(rest[:FRAME]) == [510, 340, 170]
    assert shares(rest[FRAME : 2 * FRAME])[0] == 0
    # A run that had the change from the start is the same; and so is one that continues from the
    # state.
    changed = stoker.Mix(sources, [3, 2, 1], epoch=FRAME, changes=[(FRAME, [0, 1, 1])])
    with loader(changed) as stream:
        run = Run(stream)
        assert flat(run(10 + 2 * FRAME // STEP)) == rest
        assert saved(stream) == state
        after = run(30)
    with loader(mix) as stream:
        stream.load_state_dict(state)
        assert Run(stream)(30) == after


def test_weights_of_packed_rows_change(documents):
    """The packing plans are kept: the loader is opened again, its rows are not planned again."""
    options = {"rows": "packed", "eod": EOD, "chunk": 8, "context": 32}
    with loader(stoker.Mix(documents, [1, 1, 1]), **options) as stream:
        run = Run(stream)
        run(3)
        border = stream.set_weights([0, 0, 1])
        rest = flat(run(border // STEP + 20))
    assert {first // 10000 for first in rest[border:] if first != EOD} == {2}


def test_a_source_joins_later(sources):
    with loader(stoker.Mix(sources[:2], [3, 2], epoch=500)) as stream:
        run = Run(stream)
        before = run(30)
        state = saved(stream)
        border = stream._native.mix_change_position(0)
    with loader(stoker.Mix(sources, [3, 2, 0], changes=[(border, [1, 1, 1])], epoch=500)) as stream:
        stream.load_state_dict(state)
        after = Run(stream)(60)
    rest = flat(before) + flat(after)
    assert shares(rest[:border])[2] == 0 and shares(rest[border : border + 300])[2] > 50
    with loader(stoker.Mix(sources, [3, 2, 0], epoch=500)) as stream:
        stream.load_state_dict(state)
        assert stream.set_weights([1, 1, 1]) == border
        assert Run(stream)(60) == after


@pytest.mark.parametrize(
    "mix, options, word",
    [
        ({"weights": [3, 2, 2]}, {}, "other weights"),
        ({"epoch": 300}, {}, "epoch_samples"),
        ({"batches": "single"}, {}, "unit_samples"),
        ({"end": "stop"}, {}, "mix_end"),
        ({}, {"stride": 4}, "rows"),
        ({}, {"seed": 2}, "seed"),
        (None, {}, "mix"),
    ],
)
def test_states_of_other_settings(sources, mix, options, word):
    with loader(stoker.Mix(sources, [3, 2, 1])) as stream:
        Run(stream)(3)
        state = saved(stream)
    source = sources if mix is None else stoker.Mix(sources, **{"weights": [3, 2, 1], **mix})
    with loader(source, **options) as stream:
        first = Run(stream)(2)
        with pytest.raises(stoker.StateError, match=word):
            stream.load_state_dict(state)
    with loader(source, **options) as stream:
        assert Run(stream)(2) == first


def test_other_tokens_are_refused(sources, tmp_path):
    with loader(stoker.Mix(sources, [3, 2, 1])) as stream:
        state = saved(stream)
    numpy.save(tmp_path / "c.npy", (numpy.arange(ROWS["c"] * CONTEXT + 1) + 9).astype("uint16"))
    other = stoker.Mix([*sources[:2], tmp_path / "c.npy"], [3, 2, 1])
    with (
        loader(other) as stream,
        pytest.raises(stoker.StateError, match="identity of tokens"),
    ):
        stream.load_state_dict(state)


@pytest.mark.parametrize("end", ["stop", "renormalise"])
def test_ends(sources, end):
    with loader(stoker.Mix(sources, [1, 1, 1], end=end), 1, tail="drop") as stream:
        counts = shares(flat(Run(stream)(len(stream))))
    assert counts[2] == 41
    assert counts == [300, 120, 41] if end == "renormalise" else max(counts) <= 42


def test_batches_of_one_source(sources):
    mix = stoker.Mix(sources, [3, 2, 1], batches="single")
    with loader(mix) as stream:
        for batch in Run(stream)(60):
            assert len({first // 10000 for first in batch}) == 1
    # At an epoch's start the ranks may be others.
    with loader(mix) as stream:
        state = saved(stream)
    with loader(mix, rank=0, world_size=2) as stream:
        assert stream.rows % (2 * STEP) == 0
        with pytest.raises(stoker.StateError, match="unit_samples"):
            stream.load_state_dict(state)


def test_equal_rows_are_filled_differently(documents):
    """A row that is used several times an epoch is cut in other places each time."""
    fim = stoker.FIM(60001, 60002, 60003, rate=1.0, spm_rate=0.0)
    options = {"rows": "padded", "eod": EOD, "fim": fim, "labels": False, "context": 40}
    seen = collections.defaultdict(set)
    with loader(stoker.Mix(documents, [1, 0, 9]), 20, **options) as stream:
        for batch in stream:
            for row in batch:
                tokens = [int(token) for token in row]
                seen[tuple(sorted(tokens))].add(tuple(tokens))
    assert max(map(len, seen.values())) > 2
    with loader(stoker.Mix(documents, [1, 0, 9]), 10, rank=1, world_size=2, **options) as half:
        for batch in half:
            for row in batch:
                tokens = [int(token) for token in row]
                assert tuple(tokens) in seen[tuple(sorted(tokens))]


def test_refused(sources, tmp_path):
    numpy.array([1, 2], "uint16").tofile(tmp_path / "short.bin")
    with pytest.raises(stoker.ArgumentError, match=r"short\.bin.*no samples"):
        loader(stoker.Mix([sources[0], tmp_path / "short.bin"]))
    with pytest.raises(stoker.EmptyError, match="nothing"):
        loader(stoker.Mix([sources[0], tmp_path / "nothing*"]))
    with loader(sources) as stream, pytest.raises(stoker.ArgumentError, match="not a Mix"):
        stream.set_weights([1])
    with pytest.raises(stoker.ArgumentError, match="a Mix of text"):
        stoker.TextLoader(stoker.Mix(sources), len, 1)


def test_sent_to_another_process(sources):
    """A loader that changed its weights continues from its position."""
    with loader(stoker.Mix(sources, [3, 2, 1])) as stream:
        run = Run(stream)
        run(5)
        stream.set_weights([1, 1, 1])
        with pickle.loads(pickle.dumps(stream)) as other:
            got = Run(other)(FRAME // STEP)
        assert run(15) == got[:15]
