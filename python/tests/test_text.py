"""TextLoader: lines of text and JSON, tokenised ahead by threads, beside a loop in this file.

Most tests tokenise with a function of their own, so that every id is known; those of Hugging Face's
tokenizers train a small one.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import threading

import pytest
import stoker

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
    loader = make(files, seed=3, tail="keep", eod=EOD, rows="documents")
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


def test_packed_rows(files, texts):
    loader = make(files, context=48, eod=EOD, pad=9, seed=2, tail="keep")
    seen = []
    for batch in loader:
        rows = batch["input_ids"]
        bounds = batch["cu_seqlens"].tolist()
        assert rows.shape[1] == 48 and bounds[0] == 0 and bounds[-1] == rows.size
        ids, labels = rows.reshape(-1), batch["labels"].reshape(-1)
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


def test_what_a_document_is(files, texts, tmp_path):
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


def test_no_more_is_made_than_asked_for(files):
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
        with pytest.raises(stoker.CorruptError, match="document 37"):
            next(iterator)
        assert loader.state_dict() == state
    for field in ("nothing", "a", "id"):
        with pytest.raises(stoker.CorruptError, match="document 0"):
            next(iter(make(files, field=field, shuffle="none")))
    (tmp_path / "x.txt").write_bytes(b"w1\n\xff\xfe\n")
    with pytest.raises(stoker.CorruptError, match="document 1"):
        flat(stoker.TextLoader(tmp_path / "x.txt", function, 2, shuffle="none", output="numpy"))


@pytest.mark.parametrize(
    "bad",
    [
        lambda texts: [[1]],
        lambda texts: [["x"]] * len(texts),
        lambda texts: [[2**40]] * len(texts),
    ],
)
def test_what_no_tokenizer_gives(files, bad):
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
        ({"eod": 2}, "rules"),
        ({"pad": 1}, "rules"),
        ({"fim": stoker.FIM(2, 3, 4)}, "rules"),
        ({"rows": "padded"}, "rules"),
        ({"seed": 1}, "seed"),
    ],
)
def test_another_stream_is_refused(files, options, part):
    state = make(files, context=30).state_dict()
    with pytest.raises(stoker.StateError, match=part):
        make(files, **{"context": 30, **options}).load_state_dict(state)


def test_refused(files, tmp_path):
    with pytest.raises(stoker.StateError, match="TextLoader"):
        state = {k: v for k, v in make(files).state_dict().items() if k != "text"}
        make(files).load_state_dict(state)
    for options in (
        {"rows": "windows"},
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

    class Fast:  # what transformers' fast tokenizers have
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
