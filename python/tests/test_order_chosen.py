"""`stoker order` of subsets and of mixes.

Goal: every question of `stoker order` is answered for subset, weights, balance, repeats, curriculum
and mixes as for plain orders, and the answers are what a Loader of the same options returns.
Method: tars with labels and scores made here; the command's lines compared with Loader.explain(),
counts with Python's own.
"""

import io
import json
import os
import pathlib
import subprocess
import sys
import tarfile
from collections import Counter

import pytest

import stoker

ROOT = pathlib.Path(__file__).resolve().parents[2]
SAMPLES, BATCH = 400, 20
SUBSET = "label in (3, 7) or json.score > 6"


def command():
    beside = pathlib.Path(sys.executable).parent / "stoker"
    for path in [os.environ.get("STOKER_COMMAND"), beside, *sorted(ROOT.glob("build*/stoker"))]:
        if path and os.access(path, os.X_OK):
            return str(path)
    pytest.skip("the stoker command is not built")


def run(*words, status=0, stream=None):
    done = subprocess.run([command(), "order", *map(str, words)], capture_output=True, check=False,
                          timeout=60, stdin=subprocess.DEVNULL)
    assert done.returncode == status, done.stderr.decode()
    return getattr(done, stream or ("stdout" if status < 2 else "stderr")).decode()


def rows(*words, status=0):
    return [json.loads(line) for line in run("--json", *words, status=status).splitlines()]


def label(sample):
    return sample * 7 % 10


def score(sample):
    return sample * 31 % 9


def is_in(sample):
    return label(sample) in (3, 7) or score(sample) > 6


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("chosen")
    for shard in range(4):
        with tarfile.open(folder / f"c-{shard}.tar", "w") as tar:
            for sample in range(shard * 100, shard * 100 + 100):
                for end, data in (("bin", bytes(100)), ("cls", b"%d" % label(sample)),
                                  ("json", b'{"score": %d}' % score(sample))):
                    info = tarfile.TarInfo(f"s{sample:04}.{end}")
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
    with stoker.Dataset(folder, block_bytes=2000) as dataset:
        assert len(dataset) == SAMPLES and 2 <= dataset.block_samples <= 40
        yield folder, dataset


CHOICES = {
    "subset": ({"subset": SUBSET}, ["--subset", SUBSET]),
    "weights": ({"weights": "json.score"}, ["--weights", "json.score"]),
    "balance": ({"subset": SUBSET, "balance": "label"}, ["--subset", SUBSET, "--balance", "label"]),
    "replacement": ({"replacement": True}, ["--replacement"]),
    "repeats": ({"repeats": 3, "repeat_distance": 10}, ["--repeats", 3, "--repeat-distance", 10]),
    "curriculum": (
        {"curriculum": [(0, "label < 5"), (150, SUBSET), (500, None)], "epoch": 300},
        ["--curriculum", f"0:label < 5;150:{SUBSET};500:", "--epoch-samples", 300],
    ),
}


def settings(dataset, **options):
    options = {"batch": BATCH, "window": 3, "seed": 4, "tail": "keep", **options}
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    return ["--block-samples", dataset.block_samples, *words]


def loader(dataset, options):
    return stoker.Loader(dataset, BATCH, window=3, seed=4, tail="keep", output="numpy",
                         fields={"id": "__id__", "key": "__key__"}, **options)


@pytest.mark.parametrize("choice", CHOICES)
def test_answers_are_the_loaders(data, choice):
    folder, dataset = data
    options, words = CHOICES[choice]
    words = [folder, *settings(dataset), *words]
    with loader(dataset, options) as stream:
        for epoch in (0, 1):
            stream.set_epoch(epoch)
            got = [batch["id"].tolist() for batch in stream]
            for step in (0, len(got) - 1):
                reported = rows(*words, "--at", step, "--epoch", epoch)
                assert [line["sample"] for line in reported] == got[step]
        given = [sample for batch in got for sample in batch]  # of epoch 1
    sample, count = Counter(given).most_common(1)[0]
    key = dataset.sample(sample).key
    found = rows(*words, "--find", key, "--epoch", 1, "--epochs", 1)
    places = {(line["step"], line["slot"]) for line in found}
    assert len(places) == len(found) == count
    assert all(got[step][slot] == sample for step, slot in places)
    report = rows(*words)[0]
    assert sum(part["epoch_samples"] for part in report["parts"]) == len(given)
    assert sum(part["requests"] for part in report["parts"]) == report["order"]["requests"] > 0
    assert 0 < report["order"]["open_blocks"] <= report["order"]["window_blocks"]
    proof = rows(*words, "--verify", "--random-runs", 2, "--world-sizes", "1,4")[0]
    assert proof["exactly_once"] and proof["histories"] == 2
    simulated = rows(*words, "--simulate", "--epoch", 1)[0]
    assert (simulated["samples"], simulated["missing"], simulated["repeated"]) == (len(given), 0, 0)
    assert simulated["open_blocks"] == report["order"]["open_blocks"]
    same = rows(*words, "--diff", "world-size=2,batch=10", status=1)[0]
    assert (same["order_differs"], same["steps_differ"]) == (False, False)


def test_report(data):
    """A subset that is a third of the data costs a third; draws mix all and keep all open."""
    folder, dataset = data
    words = [folder, *settings(dataset, window=2)]
    chosen = sum(map(is_in, range(SAMPLES)))
    part = rows(*words, "--subset", SUBSET)[0]["parts"][0]
    assert part["samples"] == part["epoch_samples"] == chosen < SAMPLES
    assert part["name"] == SUBSET
    blocks = -(-chosen // dataset.block_samples)
    assert part["blocks"] == part["requests"] == blocks
    drawn = rows(*words, "--weights", "json.score")[0]
    assert "full" not in drawn and drawn["order"]["window_samples"] == SAMPLES
    assert drawn["order"]["open_blocks"] > blocks
    text = run(*words, "--curriculum", f"0:{SUBSET};9:")
    assert "full permutation" in text and "two levels" in text and "memory of windows" in text
    assert text.count("\nall samples ") == 1 and text.count(f"\n{SUBSET} ") == 1
    assert "shuffle buffer" not in text


def test_mix(data):
    folder, dataset = data
    sources = [folder / "c-0.tar", folder / "c-1.tar", folder / "c-2.tar"]
    words = [*sources, *settings(dataset, world=2, nodes=2, tail="drop"), "--mix", "6,3,1"]
    report = rows(*words)[0]
    shares = [part["epoch_samples"] for part in report["parts"]]
    total = sum(shares)
    assert total == 300 // 40 * 40
    assert all(abs(part - total * w / 10) < 24 for part, w in zip(shares, (6, 3, 1), strict=True))
    assert [part["name"] for part in report["parts"]] == [str(source) for source in sources]
    order, full = report["order"], report["full"]
    assert sum(part["window_blocks"] for part in report["parts"]) == order["window_blocks"]
    assert 0 < order["open_blocks"] <= order["window_blocks"] <= full["blocks"] + 3
    assert full["requests"] == full["epoch_samples"] == total
    assert all(0.2 < part["distance"] < 0.45 for part in report["parts"])
    got = rows(*words, "--simulate")[0]
    assert (got["missing"], got["repeated"]) == (0, 0)
    assert got["open_blocks"] <= got["open_blocks_bound"]
    text = run(*words)
    assert "c-2.tar" in text and "mates of one block" in text
    assert "0 missing, 0 repeated" in run(*words, "--simulate")


def test_diff_of_choices(data):
    folder, dataset = data
    words = [folder, *settings(dataset), "--subset", SUBSET]
    assert not rows(*words, "--diff", f"subset={SUBSET}")[0]["order_differs"]
    other = rows(*words, "--diff", "seed=4,subset=label in (3, 7)", status=1)[0]
    assert other["order_differs"] and other["sample_a"] != other["sample_b"]
    assert rows(*words, "--diff", "repeats=2", status=1)[0]["order_differs"]
    assert "columns are" in run(*words, "--diff", "subset=nothing == 3", status=2)


@pytest.mark.parametrize(("words", "says"), [
    (["--mix", "1", "--subset", "label == 3"], "a mix uses all samples of its sources"),
    (["--subset", "label == 3", "--curriculum", "0:"], "each stage"),
    (["--repeat-distance", "3"], "goes with --repeats"),
    (["--weights", "json.score", "--balance", "label"], "use one of"),
    (["--curriculum", "3:label == 3"], "out of sequence"),
    (["--curriculum", "label == 3"], "POSITION:PREDICATE"),
    (["--subset", "label == 30"], "no sample is chosen"),
    (["--subset", "label =="], "a value is missing"),
])
def test_refused(data, words, says):
    folder, _ = data
    done = subprocess.run([command(), "order", str(folder), *words], capture_output=True,
                          check=False, timeout=60)
    assert done.returncode in (1, 2, 3) and says in done.stderr.decode()


def test_planned_samples_cannot_be_chosen():
    assert "a PATH is needed" in run("--samples", 100, "--subset", "label == 3", status=2)
    reported = rows("--samples", 1000, "--repeats", 2, "--block-samples", 10)[0]
    assert reported["parts"][0]["samples"] == 1000 and reported["steps"] == 2000 // 256
