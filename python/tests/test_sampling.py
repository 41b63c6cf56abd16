"""Which samples a run has: subsets, weights, balance, repeats, curricula; `stoker sample`.

Goal: a predicate chooses what Python's own eval() says; the command makes tables that loaders find.
Method: tars made here whose values are functions of the sample's number; random predicates with a
fixed seed, evaluated by both.
"""

import io
import json
import os
import pathlib
import random
import subprocess
import sys
import tarfile
import types

import pytest

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
    """What is known of sample i, by the names of columns."""
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
    """A random one that Python reads, too."""
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


def test_the_command(data, tmp_path):
    text = run("--subset", "label in (3, 5)", data)
    assert "bits a sample" in text and "made in" in text
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
        ([], "nothing to choose by"),
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
