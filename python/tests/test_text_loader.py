"""TextLoader: lines of text and JSON, tokenised ahead by threads, compared with a loop in this
file.

Most tests tokenise with a function of their own, so that every id is known; those of Hugging Face's
tokenizers train a small one.
"""

from __future__ import annotations

import concurrent.futures
import fcntl
import itertools
import json
import random
import shutil
import subprocess
import threading
from array import array

import pytest
import stoker
import stoker.token_counts

numpy = pytest.importorskip("numpy")

EOD = 1


def ids_of(text):
    """An id for each word, 10 and up."""
    return [10 + int(word[1:]) for word in text.split()]


def function(texts):
    return [ids_of(text) for text in texts]


@pytest.fixture(scope="module")
def texts():
    draw = random.Random(5)
    return [
        " ".join(f"w{draw.randrange(500)}" for _ in range(draw.randrange(40))) for _ in range(233)
    ]


@pytest.fixture(scope="module")
def files(texts, tmp_path_factory):
    """Two JSONL files; the first ends without a newline, the second with \\r\\n lines."""
    root = tmp_path_factory.mktemp("texts")
    lines = [json.dumps({"id": i, "text": text, "a": {"b": text}}) for i, text in enumerate(texts)]
    (root / "a.jsonl").write_text("\n".join(lines[:120]))
    (root / "b.jsonl").write_bytes("\r\n".join(lines[120:]).encode() + b"\r\n")
    return root


def make(files, **options):
    given = {"source": str(files / "*.jsonl"), "tokenizer": function, "batch_size": 16, **options}
    return stoker.TextLoader(**{"output": "numpy", "threads": 2, **given})


def block(files, texts):
    """Documents of a block of the order: 8 MiB of bytes, by their mean."""
    total = sum(path.stat().st_size for path in files.iterdir())
    return (8 << 20) // (total // len(texts))


def flat(loader, batches=None):
    """Rows of "documents": lists of inputs, batch by batch."""
    found = []
    for inputs, labels in loader:
        for row, after in zip(inputs, labels, strict=True):
            assert after.tolist() == [*row.tolist()[1:], -100][: len(row)]
        found.append([row.tolist() for row in inputs])
        if len(found) == batches:
            break
    return found


def test_each_document_once_in_order(files, texts):
    loader = make(files, shuffle="none", tail="keep")
    assert loader.rows == len(texts)
    assert len(loader) == 15
    assert [row for batch in flat(loader) for row in batch] == [ids_of(text) for text in texts]
    loader = make(files, seed=3, tail="keep", eod=EOD, rows="documents", shuffle="block")
    for epoch in range(2):
        order = [
            stoker.order_at(len(texts), i, block_samples=block(files, texts), seed=3, epoch=epoch)
            for i in range(len(texts))
        ]
        want = [[*ids_of(texts[i]), EOD] for i in order]
        assert [row for batch in flat(loader) for row in batch] == want


@pytest.mark.parametrize("options", [{"threads": 1, "ahead": 1}, {"threads": 4, "ahead": 9}])
def test_threads_do_not_matter(files, options):
    assert flat(make(files, seed=1, **options)) == flat(make(files, seed=1))


def test_state(files):
    whole = make(files, seed=1)
    want = flat(whole) + flat(whole)
    loader = make(files, seed=1, ahead=5)
    iterator = iter(loader)
    for _ in range(4):
        next(iterator)
    state = json.loads(json.dumps(loader.state_dict()))
    assert len(json.dumps(state)) < 1000
    other = make(files, seed=1, threads=3, world_size=2, rank=1, batch_size=8)
    other.load_state_dict(state)  # another world: the same state
    assert other.state_dict() == state
    other = make(files, seed=1)
    other.load_state_dict(state)
    assert flat(other) + flat(other) == want[4:]
    assert [[row.tolist() for row in inputs] for inputs, _ in iterator] == want[4:14]
    loader.load_state_dict(state)
    loader.set_epoch(1)
    assert flat(loader) == want[14:]


def test_a_loop_left_early_begins_again(files):
    loader = make(files, seed=1, ahead=6)
    first = flat(loader, 3)
    assert flat(loader)[:3] == first
    assert loader.epoch == 1


def test_ranks_share_the_steps_of_one(files):
    one = flat(make(files, seed=1, batch_size=12))
    ranks = [flat(make(files, seed=1, batch_size=4, rank=r, world_size=3)) for r in range(3)]
    assert len(one) == 19
    for step, rows in enumerate(one):
        assert sorted(rows) == sorted(row for rank in ranks for row in rank[step])


def test_fill_in_the_middle_follows_the_document(files):
    """Not the batch: another number of ranks changes the same documents the same way."""
    fim = stoker.FIM(prefix=2, suffix=3, middle=4, rate=0.5)
    options = {"seed": 1, "fim": fim, "eod": EOD}
    one = [row for batch in flat(make(files, batch_size=12, **options)) for row in batch]
    two = [
        row
        for rank in range(2)
        for batch in flat(make(files, batch_size=6, rank=rank, world_size=2, **options))
        for row in batch
    ]
    assert sorted(one) == sorted(two)
    changed = [row for row in one if row[0] == 2]
    assert 0.3 < len(changed) / len(one) < 0.65
    assert all(row[-1] == EOD and {3, 4} <= set(row) for row in changed)


PRE, SUF, MID, SEP = 1 << 21, (1 << 21) + 1, (1 << 21) + 2, (1 << 21) + 3


class Characters:
    """Each character is a token; but if a text is in a batch with others, its first token is
    another one, which shows what was tokenised at once."""

    def to_str(self):
        return "characters"

    def encode_batch(self, texts, add_special_tokens):
        class Encoding:
            def __init__(self, text):
                self.ids = [ord(c) + (0 if i else 1 << 20) for i, c in enumerate(text)]

        return [Encoding(text) for text in texts]

    def token_to_id(self, token):
        return {"<pre>": PRE, "<suf>": SUF, "<mid>": MID, "<sep>": SEP}.get(token)


def reported(ids):
    """The text of a fragment, and its kind: "", "psm" or "spm"; each part was tokenised alone."""
    parts, kinds = [[]], []
    for id in ids:
        if id >= PRE:
            kinds.append(id)
            parts.append([])
        else:
            parts[-1].append(id)
    for part in parts:
        assert not part or part[0] >= 1 << 20
    plain = ["".join(chr(id & 0xFFFFF) for id in part) for part in parts]
    if not kinds:
        assert sum(id >= 1 << 20 for id in ids) <= 1
        return plain[0], ""
    assert kinds == [PRE, SUF, MID] and plain[0] == ""
    # SPM has an empty prefix before the suffix; PSM may have one too.
    starts = sum(id >= 1 << 20 for id in parts[3])
    if plain[1] == "" and starts > 1:
        return plain[3] + plain[2], "spm"
    return plain[1] + plain[3] + plain[2], "psm" if plain[1] else "either"


def characters(files, **options):
    fim = stoker.FIM("<pre>", "<suf>", "<mid>", level="characters", **options.pop("fim", {}))
    given = {"tokenizer": Characters(), "fim": fim, "seed": 1, "tail": "keep", **options}
    return make(files, **given)


def test_fill_in_the_middle_by_characters(files, texts):
    rows = [row for batch in flat(characters(files, shuffle="none")) for row in batch]
    kinds = []
    for row, text in zip(rows, texts, strict=True):
        found, kind = reported(row)
        assert found == text
        kinds.append(kind)
    changed = [kind for kind in kinds if kind]
    assert 0.4 < len(changed) / len(kinds) < 0.6
    assert changed.count("psm") > 0.3 * len(changed) and changed.count("spm") > 0.3 * len(changed)
    lows = [row.index(SUF) - 1 for row, kind in zip(rows, kinds, strict=True) if kind == "psm"]
    assert len({low % 7 for low in lows}) > 4  # anywhere, not at words
    by_text = {reported(row)[0]: row for row in rows}
    for options in ({"batch_size": 5, "threads": 1}, {"shuffle": "full", "tail": "drop"}):
        for batch in flat(characters(files, **options)):
            assert all(by_text[reported(row)[0]] == row for row in batch)
    second = characters(files, shuffle="none")
    second.set_epoch(1)
    assert [row for batch in flat(second) for row in batch] != rows
    assert [
        row for batch in flat(characters(files, shuffle="none", seed=2)) for row in batch
    ] != rows
    state = second.state_dict()
    with pytest.raises(stoker.StateError, match="fim: "):
        characters(files, shuffle="none", fim={"rate": 0.4}).load_state_dict(state)


def test_fill_in_fragments_by_characters(tmp_path):
    lines = ["abc<sep>defgh<sep><sep>ijkl", "def<sep>mn", "", "opq"] * 100
    (tmp_path / "x.txt").write_text("\n".join(lines))
    fim = {"rate": 0.5, "split_sample": "<sep>", "fragment_rate": 0.75, "no_prefix": "def"}
    options = {"source": tmp_path / "x.txt", "shuffle": "none", "batch_size": 400}
    (rows,) = flat(characters(tmp_path, fim=fim, **options))
    counts = []
    for row, line in zip(rows, lines, strict=True):
        parts = [[]]
        for id in row:
            parts.append([]) if id == SEP else parts[-1].append(id)
        found = [reported(part) for part in parts] if SEP in row else [reported(row)]
        if SEP in row:  # some fragment is changed
            assert [text for text, _ in found] == line.split("<sep>")
            assert all(not kind for text, kind in found if text[:3] == "def" or not text)
            counts.append(sum(bool(kind) for _, kind in found))
        else:
            assert found[0][0] == line
    assert 0.35 < len(counts) / 200 < 0.6 and set(counts) == {1, 2}
    fim = {**fim, "rate": 1, "fragment_rate": 1, "fragments_max": 1}
    (rows,) = flat(characters(tmp_path, fim=fim, **options))
    assert {row.count(PRE) for row in rows[::4]} == {1}
    firsts = [row.index(PRE) == 0 for row in rows[::4]]
    assert 25 < sum(firsts) < 75  # either of two
    whole = {"rate": 1, "whole": True}
    loader = characters(tmp_path, fim=whole, rows="padded", context=16, labels=False, **options)
    for row, line in zip(next(iter(loader)).tolist(), lines, strict=True):
        assert (PRE in row) == (0 < len(line) <= 13)


def test_fill_in_the_middle_by_name(files):
    """Names of tokens are their ids; texts of no_prefix are tokenised."""
    fim = stoker.FIM("<pre>", "<suf>", "<mid>", rate=1, split_sample="<sep>", no_prefix="w1")
    ids = stoker.FIM(PRE, SUF, MID, rate=1, split_sample=SEP, no_prefix=((1 << 20) + 119, 49))
    one, other = (make(files, tokenizer=Characters(), fim=each, seed=1) for each in (fim, ids))
    other.load_state_dict(one.state_dict())
    rows = flat(one)
    assert rows == flat(other)
    for row in (row for batch in rows for row in batch if row):
        assert (row[0] == PRE) == (row[:2] != [(1 << 20) + 119, 49])
    for bad in (
        {"prefix": "<no>"},
        {"level": "characters", "split_sample": 7},
        {"level": "characters", "no_prefix": (1, 2)},
        {"level": "characters", "split_sample": ""},
        {"level": "characters", "fragment_rate": 3, "split_sample": "<sep>"},
        {"level": "characters", "rate": "all"},
        {"level": "lines"},
    ):
        given = stoker.FIM(PRE, SUF, MID)._replace(**bad)
        with pytest.raises(stoker.ArgumentError):
            make(files, tokenizer=Characters(), fim=given)
    with pytest.raises(stoker.ArgumentError, match="windows"):
        characters(files, rows="windows", context=9)


def test_packed_rows(files, texts):
    loader = make(files, context=48, eod=EOD, pad=9, seed=2, tail="keep", labels="shifted")
    seen = []
    for batch in loader:
        rows = batch["input_ids"]
        bounds = batch["cu_seqlens"].tolist()
        assert rows.shape[1] == 48 and bounds[0] == 0 and bounds[-1] == rows.size
        ids, labels = rows.reshape(-1), batch["targets"].reshape(-1)
        positions = batch["position_ids"].reshape(-1)
        for low, high in zip(bounds[:-1], bounds[1:], strict=True):
            assert positions[low:high].tolist() == list(range(high - low))
            if ids[low] == 9:
                assert (labels[low:high] == -100).all()
            else:
                assert labels[low : high - 1].tolist() == ids[low + 1 : high].tolist()
                seen.append(ids[low:high].tolist())
    # An empty document has no piece, and none of these is longer than a row.
    assert sorted(seen) == sorted([*ids_of(text), EOD] for text in texts if text)


def test_packed_rows_have_no_repeats(files, texts):
    """Padding of the last batch are documents again: their rows are left out."""
    got = []
    for batch in make(files, context=64, seed=2, tail="pad", eod=EOD, pad=9):
        ids, bounds = batch["input_ids"].reshape(-1), batch["cu_seqlens"].tolist()
        parts = [ids[low:high].tolist() for low, high in itertools.pairwise(bounds)]
        got += [part for part in parts if part[0] != 9]
    assert sorted(got) == sorted([*ids_of(text), EOD] for text in texts if text)


def test_padded_rows(files, texts):
    loader = make(files, context=20, rows="padded", shuffle="none", tail="pad", pad=9, eod=EOD)
    got, real = [], 0
    for inputs, labels in loader:
        assert inputs.shape == labels.shape == (16, 20)
        got += inputs.tolist()
        real += int(loader.mask.sum())
    assert real == len(texts) and len(got) == 240
    for row, text in zip(got, texts, strict=False):
        ids = ids_of(text)
        want = [*ids, EOD] if len(ids) < 20 else ids[:19]  # cut: the room of the EOD stays free
        assert row == [*want, *[9] * (20 - len(want))]


def test_documents(files, texts, tmp_path):
    want = [ids_of(text) for text in texts]
    for field in ("a.b", lambda line: line["a"]["b"]):
        loader = make(files, field=field, shuffle="none", tail="keep")
        assert [row for batch in flat(loader) for row in batch] == want
    (tmp_path / "x.txt").write_text("w1 w2\n\nw3\n")
    (tmp_path / "y.txt").write_text("w4\nw5")
    for documents, rows in (
        (None, [[11, 12], [], [13], [14], [15]]),
        ("files", [[11, 12, 13], [14, 15]]),
    ):
        loader = stoker.TextLoader(
            str(tmp_path / "*.txt"),
            function,
            9,
            documents=documents,
            shuffle="none",
            tail="keep",
            output="numpy",
        )
        assert flat(loader) == [rows]


def test_packed_by_zstd(files, tmp_path):
    if shutil.which("zstd") is None:
        pytest.skip("no zstd here")
    for name in ("a", "b"):
        command = ["zstd", "-q", "-o", tmp_path / f"{name}.jsonl.zst", files / f"{name}.jsonl"]
        subprocess.run(command, check=True)
    packed = make(tmp_path, source=str(tmp_path / "*.zst"), seed=4)
    plain = make(files, seed=4)
    packed.load_state_dict(plain.state_dict())
    assert flat(packed) == flat(plain)


def test_a_batch_of_empty_documents(tmp_path):
    (tmp_path / "x.txt").write_text("\n\n\n\n")
    fim = stoker.FIM(2, 3, 4, rate=1)
    loader = stoker.TextLoader(
        tmp_path / "x.txt", function, 2, 8, pad=9, eod=EOD, fim=fim, output="numpy"
    )
    for batch in loader:
        assert (batch["input_ids"] == 9).all() and (batch["labels"] == -100).all()


def test_no_more_rows_than_requested(files):
    calls, lock = [], threading.Lock()

    def counted(texts):
        with lock:
            calls.append(len(texts))
        return function(texts)

    iterator = iter(make(files, tokenizer=counted, ahead=3, threads=2))
    for given in range(1, 6):
        next(iterator)
        with lock:
            assert given <= len(calls) <= given + 2  # itself, and two that wait


def test_damage_is_named_and_the_loader_stays(files, tmp_path):
    lines = (files / "a.jsonl").read_text().split("\n")
    lines[37] = lines[37][:-5]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    loader = make(tmp_path, shuffle="none")
    iterator = iter(loader)
    next(iterator)
    next(iterator)
    state = loader.state_dict()
    for _ in range(2):
        with pytest.raises(stoker.CorruptError, match="a.jsonl' line 38, byte"):
            next(iterator)
        assert loader.state_dict() == state
    for field in ("nothing", "a", "id"):
        with pytest.raises(stoker.CorruptError, match="line 1, byte 0"):
            next(iter(make(files, field=field, shuffle="none")))
    (tmp_path / "x.txt").write_bytes(b"w1\n\xff\xfe\n")
    with pytest.raises(stoker.CorruptError, match="x.txt' line 2, byte 3"):
        flat(stoker.TextLoader(tmp_path / "x.txt", function, 2, shuffle="none", output="numpy"))


@pytest.mark.parametrize(
    "bad",
    [
        lambda texts: [[1]],
        lambda texts: [["x"]] * len(texts),
        lambda texts: [[2**40]] * len(texts),
    ],
)
def test_invalid_tokenizer_output(files, bad):
    with pytest.raises(stoker.FormatError):
        next(iter(make(files, tokenizer=bad)))


def other_function(texts):
    return function(texts)


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"tokenizer": other_function}, "tokenizer"),
        ({"field": "a.b"}, "field"),
        ({"documents": "lines"}, "documents"),
        ({"context": 31}, "context"),
        ({"eod": 2}, "eod: None in the state, 2 here"),
        ({"pad": 1}, "pad: 0 in the state, 1 here"),
        ({"fim": stoker.FIM(2, 3, 4)}, "fim: None in the state, '.{16}' here"),
        ({"rows": "padded"}, "rows: '.*' in the state, 'padded' here"),
        ({"labels": False}, "labels: 'model' in the state, False here"),
        ({"labels": "shifted"}, "labels: 'model' in the state, True here"),
        ({"positions": "row"}, "positions: '.*' in the state, 'row' here"),
        ({"mask_ends": False}, "mask_ends: True in the state, False here"),
        ({"seed": 1}, "seed"),
    ],
)
def test_another_stream_is_refused(files, options, part):
    state = make(files, context=30).state_dict()
    with pytest.raises(stoker.StateError, match=part):
        make(files, **{"context": 30, **options}).load_state_dict(state)


def test_each_setting_of_a_row_is_reported(files):
    """Compared with another option; duplicates and other storage of the same text make no
    difference."""
    fim = {"prefix": 2, "suffix": 3, "middle": 4}
    base = {"context": 30, "rows": "packed", "eod": 5, "fim": stoker.FIM(**fim)}
    state = make(files, **base).state_dict()
    for part, options in (
        ("append_eod", {"append_eod": False}),
        ("eod", {"eod": 6}),
        ("fim", {"fim": stoker.FIM(**{**fim, "middle": 9})}),
        ("fim", {"fim": stoker.FIM(**fim, rate=0.25)}),
        ("fim", {"fim": stoker.FIM(**fim, spm_rate=0.25)}),
        ("fim", {"fim": stoker.FIM(**fim, whole=True)}),
        ("fim", {"fim": stoker.FIM(**fim, split_sample=7)}),
        ("fim", {"fim": stoker.FIM(**fim, no_prefix=(7,))}),
    ):
        with pytest.raises(stoker.StateError) as caught:
            make(files, **{**base, **options}).load_state_dict(state)
        assert f"{part}: " in str(caught.value) and str(caught.value).count("in the state") == 1
    for same in ({"append_eod": True}, {"mask_ends": True}, {"dtype": "int32"}):
        make(files, **{**base, **same}).load_state_dict(state)
    with pytest.raises(stoker.StateError, match="TextLoader"):
        make(files, **base).load_state_dict(None)


def test_refused(files, tmp_path):
    with pytest.raises(stoker.StateError, match="TextLoader"):
        state = {k: v for k, v in make(files).state_dict().items() if k != "text"}
        make(files).load_state_dict(state)
    for options in (
        {"rows": "windows"},
        {"rows": "windows", "context": 8, "append_eod": True},
        {"context": 8, "stride": 4},
        {"context": 8, "counts": tmp_path},
        {"rows": "some"},
        {"documents": "pages"},
        {"field": 3},
        {"tokenizer": 3},
        {"eod": "<eod>"},
        {"threads": 0},
        {"rows": "packed"},
        {"context": 8, "fim": stoker.FIM(2, 3, 4, rate=7)},
    ):
        with pytest.raises(stoker.ArgumentError):
            next(iter(make(files, **options)))
    with pytest.raises(FileNotFoundError):
        make(files, tokenizer=tmp_path / "nowhere.json")
    loader = make(files)
    loader.close()
    with pytest.raises(stoker.ClosedError):
        iter(loader)


# ---- windows ----


@pytest.fixture(scope="module")
def words(texts, tmp_path_factory):
    """All tokens of the texts in one raw file, each document with EOD, as one would store them."""
    path = tmp_path_factory.mktemp("words") / "x.bin"
    ids = [id for text in texts if text for id in (*ids_of(text), EOD)]
    numpy.array(ids, "uint32").tofile(path)
    return path


def windows(files, **options):
    """A loader of windows; and one of the tokens, which were stored."""
    given = {"batch_size": 6, "context": 50, "eod": EOD, "seed": 3, "block_bytes": 2000}
    given = {"rows": "windows", "window": 3, "output": "numpy", "threads": 2, **given, **options}
    return stoker.TextLoader(str(files / "*.jsonl"), function, **given)


def stored(words, **options):
    given = {"batch_size": 6, "context": 50, "eod": EOD, "seed": 3, "block_bytes": 2000}
    return stoker.TokenLoader(
        words, stored="uint32", window=3, output="numpy", **{**given, **options}
    )


def plain(batch):
    values = batch.values() if isinstance(batch, dict) else batch
    return [value.tolist() for value in (values if isinstance(values, tuple) else [*values])]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"shuffle": "none", "tail": "keep", "stride": 7},
        {"shuffle": "full", "tail": "pad", "labels": False, "dtype": "int32"},
        {"tail": "wrap", "mask_ends": True, "positions": "reset"},
        {"fim": stoker.FIM(2, 3, 4), "rank": 1, "world_size": 3, "batch_size": 2},
    ],
)
def test_windows_are_those_of_stored_tokens(files, words, options):
    ours, theirs = windows(files, **options), stored(words, **options)
    assert ours.rows == theirs.rows and len(ours) == len(theirs) > 3
    for _ in range(2):
        for one, other in zip(ours, theirs, strict=True):
            assert plain(one) == plain(other)
            assert (ours.mask is None) == (theirs.mask is None)
            assert ours.mask is None or (ours.mask == theirs.mask).all()


def test_windows_without_eod(files, texts):
    loader = windows(files, eod=None, shuffle="none", stride=50, labels=False)
    ids = [id for text in texts for id in ids_of(text)]
    rows = [row for batch in loader for row in batch.tolist()]
    assert rows == [ids[50 * i : 50 * i + 50] for i in range(len(rows))] and len(rows) > 60


def test_windows_go_on_in_another_world(files, words):
    one = [row for batch in windows(files, batch_size=6) for row in plain(batch)[0]]
    state = None
    got = []
    for step, world in enumerate((3, 2, 1, 6)):
        ranks = [
            windows(files, batch_size=6 // world, rank=r, world_size=world, threads=1 + r)
            for r in range(world)
        ]
        rows = []
        for loader in ranks:
            if state is not None:
                loader.load_state_dict(state)
            rows += plain(next(iter(loader)))[0]
        assert len({json.dumps(loader.state_dict()) for loader in ranks}) == 1
        state = json.loads(json.dumps(ranks[step % world].state_dict()))
        got += rows
    assert got == one[: len(got)]
    for options in ({"stride": 9}, {"context": 51}, {"block_bytes": 1000}, {"append_eod": False}):
        with pytest.raises(stoker.StateError):
            windows(files, **options).load_state_dict(state)


class Counting:
    """A tokenizer that is identified by its behaviour, as Hugging Face's are."""

    def __init__(self, shift=0, fails_at=None):
        self.shift, self.fails_at, self.calls = shift, fails_at, 0
        self.lock = threading.Lock()

    def to_str(self):
        return "words"

    def encode_batch(self, texts, add_special_tokens):
        with self.lock:
            self.calls += len(texts)
            if self.fails_at is not None and self.calls >= self.fails_at:
                raise KeyboardInterrupt

        class Encoding:
            def __init__(self, ids):
                self.ids = ids

        return [Encoding(ids_of(text) + [7] * self.shift) for text in texts]


def test_counted_once(files, texts, tmp_path, monkeypatch):
    """The table is kept, shared, resumed, refused when it is damaged, and checked in use."""
    monkeypatch.setattr(stoker.token_counts, "GROUP_DOCUMENTS", 10)

    def make(tokenizer, **options):
        return stoker.TextLoader(
            str(files / "*.jsonl"),
            tokenizer,
            4,
            50,
            rows="windows",
            threads=1,
            output="numpy",
            **{"counts": tmp_path, **options},
        )

    killed = Counting(fails_at=100)
    with pytest.raises(KeyboardInterrupt):
        make(killed)
    assert [path.suffix for path in tmp_path.iterdir()] == [".part"]
    first, second = Counting(), Counting()
    loader = make(first)
    # the lines that the killed process counted are not counted again
    assert first.calls <= len(texts) - 60
    assert loader.rows == make(second).rows and second.calls == 0
    (table,) = tmp_path.iterdir()
    assert loader.counts == str(table) and table.stat().st_size == 64 + 8 * len(texts)
    want = [plain(batch) for batch in loader]
    assert [plain(batch) for batch in make(second)] == want
    with pytest.raises(stoker.CorruptError, match="delete the table"):
        next(iter(make(Counting(shift=1))))
    partial, whole = tmp_path / f"{table.name}.part", table.read_bytes()
    for damaged in (
        b"x" * 64 + whole[64:1000],  # of another text
        whole[:63],
        whole[:64] + whole[72:80] + bytes(800),  # numbers that fall
    ):
        table.unlink()
        partial.write_bytes(damaged)
        assert [plain(batch) for batch in make(second)] == want and not partial.exists()
        assert table.read_bytes() == whole
    table.unlink()
    partial.write_bytes(whole[:644])  # in the middle of a number
    assert [plain(batch) for batch in make(second)] == want and table.read_bytes() == whole
    make(Counting(), eod=EOD)
    make(Counting(), field="a.b")
    assert len([*tmp_path.iterdir()]) == 3  # other counts, another table
    for damaged in (whole[:-8], b"x" + whole[1:]):
        table.write_bytes(damaged)
        with pytest.raises(stoker.CorruptError, match="delete it"):
            make(Counting())
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path / "home"))
    assert make(Counting(), counts=None).counts.startswith(str(tmp_path / "home"))
    assert not make(function, counts=None).counts.startswith(str(tmp_path))


def test_two_that_count_at_once(files, tmp_path, monkeypatch):
    """One counts, the other waits for it; a table that makes no progress is no longer waited
    for."""
    monkeypatch.setattr(stoker._cache_dir, "POLL_S", 0.001)
    made = [Counting(), Counting()]

    def run(tokenizer):
        stoker.TextLoader(
            str(files / "*.jsonl"), tokenizer, 4, 50, rows="windows", counts=tmp_path
        ).close()

    with concurrent.futures.ThreadPoolExecutor() as pool:
        for future in [pool.submit(run, each) for each in made]:
            future.result(timeout=60)
    assert min(each.calls for each in made) == 0
    (table,) = tmp_path.iterdir()
    table.rename(f"{table}.part")
    monkeypatch.setattr(stoker._cache_dir, "STALLED_S", 0.01)
    with open(f"{table}.part") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(stoker.TimeoutError, match="makes no progress"):
            run(Counting())


def test_long_documents_are_tokenised_about_once(files, texts, tmp_path):
    tokenizer = Counting()
    loader = stoker.TextLoader(
        str(files / "*.jsonl"), tokenizer, 4, 10, rows="windows", counts=tmp_path, threads=1
    )
    before = tokenizer.calls
    for _ in loader:
        pass
    assert tokenizer.calls - before <= len(texts)


def test_cached_documents_have_a_bound():
    kept = stoker.token_counts.TokenCache(12)
    for number in range(3):
        kept.add(number, array("i", [number]))
    kept.add(0, array("i", [7]))  # it is there
    assert kept.find((0,))[0].tolist() == [0]
    kept.add(3, array("i", [3]))  # the least recently used one is removed
    assert sorted(kept.find(range(9))) == [0, 2, 3]
    kept.add(4, array("i", range(9)))
    assert kept.find(range(9)) == {}


def test_no_token_at_all(tmp_path):
    (tmp_path / "x.txt").write_text("\n\n")
    with pytest.raises(stoker.EmptyError, match="no document has a token"):
        stoker.TextLoader(tmp_path / "x.txt", function, 2, 8, rows="windows", eod=EOD)
    (tmp_path / "x.txt").write_text("w1\n")
    with pytest.raises(stoker.EmptyError, match="window"):
        stoker.TextLoader(tmp_path / "x.txt", function, 2, 8, rows="windows")


# ---- Hugging Face's ----


@pytest.fixture(scope="module")
def tokenizer():
    tokenizers = pytest.importorskip("tokenizers")
    made = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<unk>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<unk>", "<eod>"], show_progress=False
    )
    made.train_from_iterator([f"w{i}" for i in range(500)], trainer)
    return made


@pytest.mark.parametrize("threads", [1, 3])
def test_tokenizers(files, texts, tokenizer, tmp_path, threads):
    want = [[*tokenizer.encode(text).ids, tokenizer.token_to_id("<eod>")] for text in texts]
    tokenizer.save(str(tmp_path / "tokenizer.json"))

    class Fast:  # the attributes of transformers' fast tokenizers
        backend_tokenizer = tokenizer

    states = []
    for given in (tokenizer, tmp_path / "tokenizer.json", Fast()):
        loader = make(
            files, tokenizer=given, eod="<eod>", threads=threads, shuffle="none", tail="keep"
        )
        states.append(loader.state_dict())
        assert [row for batch in flat(loader) for row in batch] == want
    assert states[0] == states[1] == states[2]
    other = make(files, tokenizer=tokenizer, eod="<eod>", special=True, shuffle="none", tail="keep")
    with pytest.raises(stoker.StateError, match="tokenizer"):
        other.load_state_dict(states[0])
    with pytest.raises(stoker.ArgumentError, match="<no>"):
        make(files, tokenizer=tokenizer, eod="<no>")
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(stoker.FormatError, match=r"bad\.json"):
        make(files, tokenizer=tmp_path / "bad.json")
