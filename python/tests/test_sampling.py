"""Subsets, weights, balance, repeats, curricula of a run; `stoker sample`.

Goal: a predicate chooses what Python's own eval() chooses; the command makes tables that loaders
find. Method: tars made here whose values are functions of the sample's number; random predicates
with a fixed seed, evaluated by both.
"""

import io
import itertools
import json
import multiprocessing
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tarfile
import types

import pytest

import stoker

ROOT = pathlib.Path(__file__).resolve().parents[2]
SAMPLES = 600
SHARDS = 4


def command():
    beside = pathlib.Path(sys.executable).parent / "stoker"
    for path in [os.environ.get("STOKER_COMMAND"), beside, *sorted(ROOT.glob("build*/stoker"))]:
        if path and os.access(path, os.X_OK):
            return str(path)
    pytest.skip("the stoker command is not built")


def run(*words, status=0, cache=None):
    done = subprocess.run(
        [command(), "sample", *map(str, words)],
        capture_output=True,
        check=False,
        timeout=60,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "STOKER_CACHE": str(cache)} if cache else None,
    )
    assert done.returncode == status, done.stderr.decode()
    return done.stdout.decode() if status == 0 else done.stderr.decode()


def values(i):
    """The values of sample i, by the names of columns."""
    meta = {"score": (i * 37 % 100) / 8, "lang": "de" if i % 3 == 0 else "en", "n": [i % 5, 7]}
    text = f"text {i}" * (i % 9)
    return {
        "label": i % 7,
        "sample": i,
        "key": f"s{i:04}",
        "shard": f"o-{i * SHARDS // SAMPLES}.tar",
        "json": types.SimpleNamespace(score=meta["score"], lang=meta["lang"]),
        "size": len(json.dumps(meta)) + len(text) + 1,
        "meta": meta,
        "text": text,
    }


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sampling")
    tars = [tarfile.open(folder / f"o-{shard}.tar", "w") for shard in range(SHARDS)]
    for i in range(SAMPLES):
        known = values(i)
        members = {"json": json.dumps(known["meta"]), "txt": known["text"], "cls": known["label"]}
        for extension, content in members.items():
            info = tarfile.TarInfo(f"s{i:04}.{extension}")
            raw = str(content).encode()
            info.size = len(raw)
            tars[i * SHARDS // SAMPLES].addfile(info, io.BytesIO(raw))
    for tar in tars:
        tar.close()
    return folder


def predicate(rng, depth=0):
    """A random predicate that Python can evaluate, too."""
    kind = rng.randrange(8 if depth < 3 else 5)
    number = rng.choice(["label", "size", "sample", "json.score", "sample % 5", "label % 2"])
    if kind == 0:
        return f"{number} {rng.choice(['==', '!=', '<', '<=', '>', '>='])} {rng.choice(NUMBERS)}"
    if kind == 1:
        listed = ", ".join(rng.choice(NUMBERS) for _ in range(rng.randrange(1, 4)))
        return f"{number} {rng.choice(['in', 'not in'])} ({listed},)"
    if kind == 2:
        return f"{rng.choice(NUMBERS)} <= {number} < {rng.choice(NUMBERS)}"
    if kind == 3:
        text = rng.choice(["key", "shard", "json.lang"])
        return f"{text} {rng.choice(['==', '!=', '<', '>='])} {rng.choice(TEXTS)}"
    if kind == 4:
        return f"json.lang in ({rng.choice(TEXTS)}, {rng.choice(TEXTS)})"
    if kind == 5:
        return f"not {predicate(rng, depth + 1)}"
    word = " and " if kind == 6 else " or "
    return "(" + word.join(predicate(rng, depth + 1) for _ in range(rng.randrange(2, 4))) + ")"


NUMBERS = ["0", "1", "3", "5.5", "12", "-2", "60", "1_00", "4e1", "300"]
TEXTS = ["'de'", "'en'", "'s0100'", '"o-2.tar"', "''", "'s0477'"]


def test_predicates_are_pythons(data, tmp_path):
    rng = random.Random(7)
    known = [values(i) for i in range(SAMPLES)]
    shares = []
    for _ in range(60):
        text = predicate(rng)
        want = sum(bool(eval(text, {"__builtins__": {}}, one)) for one in known)
        if want == 0:
            assert "no sample is chosen" in run("--subset", text, data, status=1)
            continue
        got = json.loads(run("--json", "--subset", text, data))
        assert (got["chosen"], got["samples"]) == (want, SAMPLES), text
        shares.append(want / SAMPLES)
    assert len(shares) > 30 and 10 < sum(0.05 < share < 0.95 for share in shares)
    for table in data.glob("stoker.index.*"):
        table.unlink()


NUMBER_TEXTS = {
    "5": 5, "0005": 5, " +5\n": 5, "-05": -5, "00": 0, "18446744073709551615": 2**64 - 1,
    "5.": 5.0, ".5": 0.5, "1e1": 10.0, "05.50": 5.5,
    "inf": None, "nan": None, "0x5": None, "5 dogs": None, "5-": None, "1_0": None, "": None,
}  # fmt: skip


@pytest.mark.parametrize("index", [None, "labels", "no labels"])
def test_texts_that_are_numbers(tmp_path, engine, index):
    """A predicate reads a number where Int and Float do, and also compares its text. An index of
    labels changes nothing."""
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for i, text in enumerate(NUMBER_TEXTS):
            for ending in ("cls", "x"):
                info = tarfile.TarInfo(f"{i:02}.{ending}")
                info.size = len(text)
                tar.addfile(info, io.BytesIO(text.encode()))
    if index:
        command = [os.environ.get("STOKER_COMMAND", "stoker"), "index", str(tmp_path)]
        subprocess.run(command + ["--labels"] * (index == "labels"), check=True)

    def chosen(query):
        try:
            with stoker.Loader(tmp_path, 1, fields={"id": "__id__"}, subset=query, shuffle="none",
                               tail="keep", output="numpy", engine=engine) as loader:
                return [int(batch["id"][0]) for batch in loader]
        except stoker.EmptyError:
            return []

    def field(kind, i):
        try:
            with stoker.Loader(tmp_path, 1, fields={"x": kind("x")}, subset=[i], tail="keep",
                               output="numpy", engine=engine) as loader:
                return next(iter(loader))["x"].item()
        except stoker.CorruptError:
            return None

    for i, (text, number) in enumerate(NUMBER_TEXTS.items()):
        if number is not None:
            same = [k for k, value in enumerate(NUMBER_TEXTS.values()) if value == number]
            for column in ("x", "cls", "label"):
                assert chosen(f"{column} == {number}") == same, (column, text)
            if number < 2**63:
                kind = stoker.Float if "." in text or "e" in text else stoker.Int
                assert field(kind, i) == number
        else:
            assert field(stoker.Int, i) is None
        if text:
            assert chosen(f"x == '{text.strip()}'") == [i]
    assert chosen("label == '5 dogs'") == chosen("cls in ('5 dogs', 'x')") == [13]
    assert chosen("label == '0005'") == []  # a label is a number


def test_the_command(data, tmp_path):
    text = run("--subset", "label in (3, 5)", data)
    assert "bits a sample" in text and "built in" in text
    tables = list(data.glob("stoker.index.*.table"))
    assert len(tables) == 1 and not list(data.glob("*.new")) and not list(data.glob("*.lock"))
    before = tables[0].read_bytes()
    got = json.loads(run("--json", "--subset", "label in (3, 5)", data))
    assert got["scanned"] == 0 and got["table"] == str(tables[0])  # it was there
    tables[0].unlink()
    run("--subset", "label in (3, 5)", "--threads", 3, data)
    assert tables[0].read_bytes() == before
    got = json.loads(run("--json", "--balance", "json.lang", data))
    assert got["classes"] == 2 and got["chosen"] == SAMPLES
    assert json.loads(run("--json", "--weights", "json.score", data))["chosen"] == SAMPLES
    for table in data.glob("stoker.index.*"):
        table.unlink()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no selection given"),
        (["--subset", "label = 3"], "at 6: '= 3'"),
        (["--subset", "__import__('os').system('true')"], "a comparison is missing"),
        (["--subset", "jpg == 3"], "no such column"),
        (["--weights", "json.lang"], "no weight"),
    ],
)
def test_refusals(data, words, message):
    status = 2 if not words else None
    done = subprocess.run([command(), "sample", *words, data], capture_output=True, check=False)
    assert done.returncode == (status or done.returncode) and done.returncode > 0
    assert message in done.stderr.decode(), done.stderr.decode()


# ---- loaders ----


def loader(data, batch_size=10, **options):
    options = {"window": 4, "tail": "keep", "seed": 3, "rank": 0, "world_size": 1, **options}
    return stoker.Loader(
        data, batch_size, fields={"id": "__id__", "key": "__key__"}, output="numpy", **options
    )


def ids_of(run, batches=None):
    some = zip(range(batches or 10**9), run, strict=False)
    return [int(i) for _, batch in some for i in batch["id"]]


SUBSET = "label in (3, 5) and json.score > 2"


def wanted(i):
    return i % 7 in (3, 5) and (i * 37 % 100) / 8 > 2


CHOSEN = [i for i in range(SAMPLES) if wanted(i)]


@pytest.fixture(scope="module")
def dataset(data):
    with stoker.Dataset(data, block_bytes=2000) as opened:
        assert len(opened) == SAMPLES and opened.block_samples < 40
        yield opened


@pytest.mark.parametrize("shuffle", ["block", "full", "none", "two-level"])
def test_a_subset_comes_once(dataset, shuffle):
    with loader(dataset, shuffle=shuffle, subset=SUBSET) as run:
        assert run.tables[0]["count"] == len(CHOSEN) == run._native.samples()
        epochs = [ids_of(run) for _ in range(3)]
        assert all(sorted(epoch) == CHOSEN for epoch in epochs)
        assert (epochs[0] == epochs[1]) == (shuffle == "none")
        if shuffle == "none":
            assert epochs[0] == CHOSEN
        if shuffle == "two-level":
            shards = [i * SHARDS // SAMPLES for i in epochs[0]]
            assert sum(a != b for a, b in itertools.pairwise(shards)) == SHARDS - 1


def test_ways_to_name_a_subset(dataset):
    import numpy

    flags = [wanted(i) for i in range(SAMPLES)]
    ways = [
        CHOSEN,
        CHOSEN[::-1] + CHOSEN[:3],
        numpy.array(CHOSEN),
        numpy.array(flags),
        flags,
        [f"s{i:04}" for i in CHOSEN],
    ]
    for way in ways:
        with loader(dataset, shuffle="none", subset=way) as run:
            assert ids_of(run) == CHOSEN


def test_worlds_and_resumes(dataset):
    """Random histories of worlds, batches and kills: each of the subset exactly once an epoch."""
    rng = random.Random(5)
    for _ in range(4):
        seen = {0: [], 1: []}
        state = None
        shuffle = rng.choice(["block", "two-level", "full"])
        while True:
            world, batch = rng.choice([1, 2, 4]), rng.randrange(1, 9)
            steps = rng.randrange(1, 9)
            got, states = [], []
            for rank in range(world):
                options = {"rank": rank, "world_size": world, "shuffle": shuffle}
                with loader(dataset, batch, subset=SUBSET, **options) as run:
                    if state:
                        run.load_state_dict(state)
                    got.append(ids_of(run, steps))
                    states.append(run.state_dict())
            assert all(s == states[0] for s in states)
            epoch = state["epoch"] if state else 0
            seen[epoch] += [i for ids in got for i in ids]
            state = states[0]
            if len(seen[epoch]) >= len(CHOSEN):
                if epoch == 1:
                    break
                if state["epoch"] == epoch:  # stopped after the last batch, before the end
                    with loader(dataset, batch, subset=SUBSET, shuffle=shuffle) as run:
                        run.load_state_dict(state)
                        assert ids_of(run) == []
                        state = run.state_dict()
                assert state["epoch"] == 1
        assert sorted(seen[0]) == sorted(seen[1]) == CHOSEN
        assert seen[0] != seen[1]


def chi_square(seen, want):
    return sum((seen.get(i, 0) - count) ** 2 / count for i, count in want.items() if count > 0)


def fair(chi, freedom):
    return abs(chi - freedom) < 6 * (2 * freedom) ** 0.5


def count_up(ids):
    seen = {}
    for i in ids:
        seen[i] = seen.get(i, 0) + 1
    return seen


def test_weights(dataset):
    score = {i: (i * 37 % 100) / 8 for i in range(SAMPLES)}
    total = sum(score.values())
    for weights in ("json.score", [score[i] for i in range(SAMPLES)]):
        with loader(dataset, 500, weights=weights, epoch=60_000, seed=11) as run:
            seen = count_up(ids_of(run))
        want = {i: 60_000 * value / total for i, value in score.items()}
        assert all(score[i] > 0 for i in seen)
        assert fair(chi_square(seen, want), sum(value > 0 for value in want.values()) - 1)
    with loader(dataset, 500, replacement=True, subset=CHOSEN, epoch=20_000) as run:
        seen = count_up(ids_of(run))
    assert set(seen) <= set(CHOSEN)
    want = dict.fromkeys(CHOSEN, 20_000 / len(CHOSEN))
    assert fair(chi_square(seen, want), len(CHOSEN) - 1)


def test_balance(dataset):
    with loader(dataset, 7, balance="label", subset="sample < 100 or label == 2") as run:
        for batch in run:
            if len(batch["id"]) == 7:
                assert sorted(int(i) % 7 for i in batch["id"]) == list(range(7))
        with pytest.raises(stoker.ArgumentError, match="no value to balance by"):
            loader(dataset, balance="json.nothing")


def test_repeats_are_augmented_anew(tars):
    image = [stoker.RandomResizedCrop(32, scale=(0.2, 1)), stoker.RandomHorizontalFlip()]
    fields = {"image": stoker.Image(None, image), "id": "__id__"}
    options = {"fields": fields, "output": "numpy", "tail": "keep", "seed": 1, "repeats": 3}
    with stoker.Loader(tars, 12, **options) as run:
        copies = {}
        for batch in run:
            ids = [int(i) for i in batch["id"]]
            assert all(ids[i : i + 3] == [ids[i]] * 3 for i in range(0, len(ids), 3))
            for i, picture in zip(ids, batch["image"], strict=True):
                copies.setdefault(i, []).append(picture.tobytes())
        assert len(copies) == 103 and all(len(group) == 3 for group in copies.values())
        assert sum(len(set(group)) == 3 for group in copies.values()) > 95
    with stoker.Loader(tars, 12, **options, repeat_distance=4) as run:
        ids = [int(i) for i in next(iter(run))["id"]]
        assert ids[:4] == ids[4:8] == ids[8:] and len(set(ids)) == 4


def test_curriculum(dataset):
    easy = [i for i in range(SAMPLES) if (i * 37 % 100) / 8 < 3]
    curriculum = [(0, "json.score < 3"), (300, "json.score < 6"), (700, None)]
    with loader(dataset, 10, curriculum=curriculum) as run:
        ids = [i for _ in range(4) for i in ids_of(run)]
        assert len(ids) == 4 * SAMPLES
        assert set(ids[:300]) == set(easy)
        assert sorted(ids[: len(easy)]) == easy
        assert all((i * 37 % 100) / 8 < 6 for i in ids[300:700])
        assert sorted(ids[700 : 700 + SAMPLES]) == list(range(SAMPLES))
        assert len(run.tables) == 2
    with loader(dataset, 10, curriculum=curriculum) as run:  # a resume in another world
        state = {**run.state_dict(), "epoch": 0, "position": 290}
        run.load_state_dict(state)
        assert ids_of(run) == ids[290:SAMPLES]


def test_explain(dataset):
    for options in (
        {"subset": SUBSET},
        {"weights": "json.score"},
        {"repeats": 2, "shuffle": "two-level"},
        {"curriculum": [(0, SUBSET), (55, "label == 1")]},
    ):
        with loader(dataset, 8, **options) as run:
            for step, batch in enumerate(run):
                rows = run.explain(step, epoch=0)
                assert [row.sample for row in rows] == batch["id"].tolist()
                assert [row.key for row in rows] == [f"s{i:04}" for i in batch["id"]]


FAR = [
    {"subset": SUBSET},
    {"weights": "json.score"},
    {"balance": "label"},
    {"replacement": True},
    {"repeats": 3, "repeat_distance": 4},
    {"shuffle": "two-level"},
    {"curriculum": [(0, SUBSET), (10**12, None)]},
]


@pytest.mark.parametrize("options", FAR, ids=str)
def test_a_resume_at_a_large_position_reads_nothing_before_it(dataset, options):
    """The sample is a function of the position: a run that iterated to it would not end."""
    far = 10**12
    with loader(dataset, 8, tail="drop", **options) as run:
        state = {**run.state_dict(), "epoch": far, "position": 16}
        run.load_state_dict(state)
        ids = ids_of(run, 1)
        assert ids == [row.sample for row in run.explain(2, epoch=far)]
        assert run.state_dict()["epoch"] == far and run.state_dict()["position"] == 24
    with loader(dataset, 4, tail="drop", rank=1, world_size=2, **options) as other:
        other.load_state_dict(state)
        assert ids_of(other, 1) == ids[4:]


DIFFERENT = [
    ({}, "subset or curriculum"),
    ({"subset": "label == 3"}, "subset or curriculum"),
    ({"subset": SUBSET, "weights": "json.score"}, "weights, balance or replacement"),
    ({"subset": SUBSET, "balance": "label"}, "weights, balance or replacement"),
    ({"subset": SUBSET, "replacement": True}, "weights, balance or replacement"),
    ({"subset": SUBSET, "repeats": 2}, "repeats"),
    ({"subset": SUBSET, "repeat_distance": 9, "repeats": 2}, "distance of repeats"),
    ({"subset": SUBSET, "epoch": 50}, "samples of an epoch"),
    ({"curriculum": [(0, SUBSET), (40, None)]}, "subset or curriculum"),
    ({"subset": SUBSET, "shuffle": "two-level"}, "shuffle"),
]


@pytest.mark.parametrize(("options", "message"), DIFFERENT)
def test_a_state_of_other_settings_is_refused(dataset, options, message):
    with loader(dataset, subset=SUBSET) as run:
        ids_of(run, 2)
        state = json.loads(json.dumps(run.state_dict()))
        assert len(json.dumps(state)) < 1000
    with loader(dataset, **options) as other:
        with pytest.raises(stoker.StateError, match=message):
            other.load_state_dict(state)
        own = other.state_dict()
        with loader(dataset, subset=SUBSET) as run, pytest.raises(stoker.StateError, match=message):
            run.load_state_dict(own)


def test_fingerprints(dataset):
    """The same settings, the same fingerprint, whatever the world; other settings, another."""
    prints = set()
    for options in ({"subset": SUBSET}, {"weights": "json.score"}, {"repeats": 3}):
        ends = []
        for world in (1, 2):
            with loader(dataset, 12 // world, tail="drop", world_size=world, **options) as run:
                ids_of(run)
                ends.append(run.stats()["fingerprint"])
        assert ends[0] == ends[1]
        prints.add(ends[0])
    assert len(prints) == 3


def test_tables(data, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(data, folder)
    for table in folder.glob("*.table"):
        table.unlink()
    with pytest.raises(stoker.ChangedError, match="no fresh table"):
        loader(str(folder), subset=SUBSET, tables="require")
    with loader(str(folder), subset=SUBSET, tables="never") as run:
        assert run.tables[0]["table_path"] is None and not list(folder.glob("*.table"))
    with loader(str(folder), subset=SUBSET) as run:
        path = pathlib.Path(run.tables[0]["table_path"])
        assert path.parent == folder and run.tables[0]["scanned"] == SAMPLES
        first = ids_of(run)
    with loader(str(folder), subset=SUBSET, tables="require") as run:
        assert run.tables[0]["scanned"] == 0 and ids_of(run) == first
    raw = bytearray(path.read_bytes())
    raw[20] ^= 1  # damage in the bitmap: found at the first look
    path.write_bytes(raw)
    with loader(str(folder), subset=SUBSET) as run:
        with pytest.raises(stoker.CorruptError, match="page"):
            ids_of(run)
    path.write_bytes(raw[:-1])
    with loader(str(folder), subset=SUBSET) as run:
        assert ids_of(run) == first and "ends too early" in run.tables[0]["table_note"]


def test_damage_is_replaced_from_the_subset(tmp_path):
    with tarfile.open(tmp_path / "d.tar", "w") as tar:
        for i in range(200):
            raw = f'{{"n": {i}}}'.encode() if i % 10 != 4 else b"{"
            info = tarfile.TarInfo(f"k{i:03}.json")
            info.size = len(raw)
            tar.addfile(info, io.BytesIO(raw))
    options = {"fields": {"n": stoker.Int("json", path="n"), "id": "__id__"}, "output": "numpy"}
    with stoker.Loader(
        tmp_path, 10, subset="sample % 2 == 0", on_error="skip", tail="keep", **options
    ) as run:
        ids = [int(i) for batch in run for i in batch["id"]]
        assert run.stats()["substituted"] == 20
        assert len(ids) == 100 and all(i % 2 == 0 and i % 10 != 4 for i in ids)


REFUSED = [
    ({"subset": "label = 3"}, "comparison is missing"),
    ({"subset": "jpg.size > 3"}, "no such column"),
    ({"subset": []}, "no sample is chosen"),
    ({"subset": [SAMPLES]}, "no such sample"),
    ({"subset": ["s0001", "no"]}, "no sample has this key"),
    ({"subset": [True]}, "flags"),
    ({"subset": [1.5]}, "pass a predicate"),
    ({"subset": 5}, "pass a predicate"),
    ({"weights": "label", "balance": "label"}, "more than one of"),
    ({"weights": [1.0]}, "as many weights"),
    ({"balance": 3}, "name of a column"),
    ({"repeats": 0}, "repeats"),
    ({"repeat_distance": 2}, "needs repeats"),
    ({"curriculum": [(5, None)]}, "first at 0"),
    ({"curriculum": [(0, None), (0, "label == 3")]}, "out of sequence"),
    ({"curriculum": [(0, None)], "subset": "label == 3"}, "pass a subset for each stage"),
    ({"tables": "yes", "subset": "label == 3"}, "tables"),
    ({"subset": "label == 3", "refresh": True}, "refresh"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_options_that_are_refused(dataset, options, message):
    with pytest.raises(stoker.Error, match=message):
        loader(dataset, **options)


def test_the_two_level_order(data, dataset):
    """`stoker order` prints what a loader returns, and measures it with the other orders."""

    def order(*words):
        done = subprocess.run(
            [command(), "order", "--json", "--shuffle", "two-level", "--batch", "10", *words, data],
            capture_output=True,
            check=True,
        )
        return [json.loads(line) for line in done.stdout.splitlines()]

    with loader(dataset, shuffle="two-level", tail="drop", seed=5) as run:
        for step, batch in zip(range(4), run, strict=False):
            rows = order("--seed", "5", "--at", str(step))
            assert [row["sample"] for row in rows] == batch["id"].tolist()
    assert order("--verify", "--random-runs", "3")[0]["exactly_once"] is True
    table = order("--block-samples", "10")[0]
    assert table["shuffle"] == "two-level"
    assert table["order"]["window_samples"] == SAMPLES // SHARDS
    assert table["order"]["open_blocks"] <= table["order"]["window_blocks"]
    # It mixes a shard at a time: batch mates are neighbours more often than in a permutation.
    assert table["order"]["neighbours"] > 2 * table["full"]["neighbours"]
    assert table["order"]["distance"] < table["full"]["distance"] / 2 and "block" in table


def test_torchs_workers(data, torch):
    import stoker.torch

    def given(workers, **options):
        source = stoker.torch.IterableDataset(
            str(data), 10, fields={"id": "__id__", "seed": "__seed__"}, tail="keep", **options
        )
        batches = torch.utils.data.DataLoader(source, batch_size=10, num_workers=workers)
        rows = [(int(i), int(s)) for b in batches for i, s in zip(b["id"], b["seed"], strict=True)]
        return rows

    rows = given(2, subset=SUBSET, seed=3, window=4, repeats=2)
    assert sorted(i for i, _ in rows) == sorted(CHOSEN * 2)
    assert len({seed for _, seed in rows}) == len(rows)  # copies too have seeds of their own
    assert rows == given(0, subset=SUBSET, seed=3, window=4, repeats=2)


def test_folders(folder):
    with loader(folder, 5, subset="class in ('class1', 'class3') and size > 0") as run:
        ids = ids_of(run)
        assert len(ids) == 20 and {run.dataset.sample(i).key.split("/")[0] for i in ids} == {
            "class1",
            "class3",
        }
    with pytest.raises(stoker.UnsupportedError, match="no shards"):
        loader(folder, shuffle="two-level")
    for table in folder.glob("*.table"):
        table.unlink()


def scan_together(path, barrier, pipe, tables):
    options = {"fields": {"id": "__id__"}, "subset": "sample > 999", "tables": tables}
    with stoker.Dataset(path) as dataset:
        barrier.wait()
        with stoker.Loader(dataset, 4, **options) as loader:
            pipe.send([loader.tables[0][name] for name in ("scanned", "count", "table_path")])


@pytest.mark.parametrize("tables", ["auto", "never"])
def test_ranks_scan_once(plain, tmp_path, monkeypatch, tables):
    """They begin at once; one scans, and the others use its table. If no table may be kept, each
    scans for itself."""
    path = tmp_path / "data" / "a.tar"
    path.parent.mkdir()
    shutil.copy(plain(3000), path)
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path / "cache"))
    context = multiprocessing.get_context("fork")
    barrier, ends = context.Barrier(3), [context.Pipe(duplex=False) for _ in range(3)]
    ranks = [
        context.Process(target=scan_together, args=(path, barrier, send, tables))
        for _, send in ends
    ]
    for process in ranks:
        process.start()
    for _, send in ends:
        send.close()
    got = [receive.recv() for receive, _ in ends]
    for process in ranks:
        process.join()
    assert [count for _, count, _ in got] == [2000] * 3
    scanned = sorted(scanned for scanned, _, _ in got)
    assert scanned == ([0, 0, 3000] if tables == "auto" else [3000] * 3)
    assert len({table for _, _, table in got}) == 1
