"""`stoker order`, `stoker info` and Loader at the limits of orders.

Goal: an order that a data set cannot have is refused by name, the same everywhere; no epoch, number
of samples or batch gives a wrong answer, or none for a long time. Method: the command and the
package on small data sets, and planned ones of up to 10^14 samples.
"""

import gzip
import json
import re
import signal
import subprocess
import tarfile

import make
import pytest
import stoker
from test_cli import COMMAND, on_terminal

HUGE = 2**64 - 1


def run(*words, status=0):
    done = subprocess.run([COMMAND, *map(str, words)], capture_output=True, text=True, timeout=100)
    assert done.returncode == status, (done.stdout, done.stderr)
    return done.stdout if status == 0 else done.stdout + done.stderr


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Names of a folder of 7 classes, of tars, of the same tars compressed, and of an empty one."""
    root = tmp_path_factory.mktemp("data")
    for number in range(105):
        make.jpeg(root / f"folder/{number // 15}/{number}.jpg", number, height=20, width=20)
    for shard in range(3):
        members = [(f"{n:03}.cls", str(n // 30).encode())
                   for n in range(100 * shard, 100 * (shard + 1))]
        tar = make.tar(root / f"tars/{shard}.tar", members)
        make.write(root / f"gz/{shard}.tar.gz", gzip.compress(tar.read_bytes()))
    tarfile.open(root / "empty.tar", "w").close()
    (root / "labels.txt").write_text("".join(f"{n // 30}\n" for n in range(300)))
    return root


@pytest.mark.parametrize("words", [["--shuffle", "full"], ["--shuffle", "two-level"],
                                   ["--shuffle", "block"], ["--window-blocks", 4]], ids=str)
def test_one_order_of_compressed_shards(data, words):
    for command in ("order", "info"):
        text = run(command, data / "gz", *words, status=1)
        assert "cannot be shuffled" in text and "stoker index --seek-points" in text
    text = run("order", data / "gz", "--diff", "shuffle=full", status=1)
    assert "cannot be shuffled" in text
    text = run("order", data / "gz", data / "folder", "--mix", "1,1", status=1)
    assert "cannot be mixed" in text


@pytest.mark.parametrize("options", [{"shuffle": "full"}, {"shuffle": "two-level"},
                                     {"shuffle": "block"}, {"window": 4}], ids=str)
def test_one_order_of_a_loader(data, engine, options):
    fields = {"label": stoker.Int("cls")}
    with pytest.raises(stoker.Error, match="cannot be shuffled"):
        stoker.Loader(data / "gz", 10, fields=fields, engine=engine, **options)
    for allowed in ({}, {"shuffle": "none"}):
        with stoker.Loader(data / "gz", 10, fields=fields, engine=engine, output="numpy",
                           **allowed) as loader:
            assert next(iter(loader))["label"].tolist() == [0] * 10


def test_the_reference_is_a_full_permutation(data):
    """Also where the order is that of the storage."""
    words = ["order", data / "gz", "--batch", 20, "--labels", data / "labels.txt", "--json"]
    for more in ([], ["--shuffle", "none"]):
        table = json.loads(run(*words, *more))
        assert table["shuffle"] == "none" and table["order"]["distance"] < 0.01
        assert 0.25 < table["full"]["distance"] < 0.42
        assert table["mixing"]["batch_classes"] < 2 < 7 < table["mixing"]["full_batch_classes"]


def test_two_levels_of_a_folder(data):
    for command in ("order", "info"):
        text = run(command, data / "folder", "--shuffle", "two-level", status=2)
        assert f"stoker: {command}: a folder" in text and "--shuffle full or block" in text
    assert "two-level" in run("info", data / "tars", "--shuffle", "two-level")


@pytest.mark.parametrize("words", [["info"], ["info", "--json"], ["order"], ["order", "--verify"],
                                   ["order", "--at", 0], ["order", "--find", "x"]], ids=str)
def test_no_samples(data, words):
    text = run(*words, data / "empty.tar", status=1)
    assert "the data set has no samples" in text and "label_of" not in text
    assert "has no samples" in run("pack", data / "empty.tar", data / "packed", status=1)


def test_a_batch_larger_than_the_data(data):
    """No full step, or a batch of the samples that are delivered: 15 of 105 are of one class."""
    text = run("order", data / "folder", "--batch", 256)
    assert "0 full steps of 256 samples" in text and "largest share" not in text
    assert "0 full steps" in run("info", data / "folder", "--batch", 256)
    for tail in ("keep", "pad", "wrap"):
        words = ["order", data / "folder", "--batch", 256, "--tail", tail, "--json"]
        mixing = json.loads(run(*words))["mixing"]
        assert mixing["batch_share_max"] == pytest.approx(1 / 7), tail
        assert mixing["batch_classes"] == 7


@pytest.mark.parametrize("words, reason", [
    (["--find", 5, "--epoch", HUGE], "too many epochs|no such epoch: '18446744073709551615'"),
    (["--find", 5, "--epoch", 2**63], "no such epoch: '9223372036854775808'"),
    (["--find", 5, "--epochs", HUGE], "too many epochs"),
    (["--find", 5, "--epoch", 2**63 - 1], "no such epoch: '9223372036854775808'"),
    (["--at", 0, "--epoch", 2**63], "no such epoch: '9223372036854775808'"),
    (["--diff", "seed=1", "--epochs", HUGE], "too many epochs"),
    (["--verify", "--epochs", 2**32 + 1], "too many epochs"),
    (["--simulate", "--epoch", 2**63], "no such epoch: epoch 9223372036854775808"),
    (["--find", 100], "no such sample"),
    (["--at", 10], "no such step"),
])
def test_epochs_and_numbers(words, reason):
    assert re.search(reason, run("order", "--samples", 100, "--batch", 10, *words, status=2))


def test_the_last_epoch():
    for words in (["--at", 3], ["--find", 5, "--epochs", 1]):
        run("order", "--samples", 100, "--batch", 10, "--epoch", 2**63 - 1, *words)


def test_a_mix_has_fewer_epochs(data):
    words = ["order", data / "folder", data / "tars", "--mix", "1,1", "--batch", 10]
    assert "no such epoch" in run(*words, "--at", 0, "--epoch", 2**62, status=2)


def test_a_proof_that_needs_too_much_memory():
    text = run("order", "--samples", 10**14, "--verify", status=3)
    assert "it needs 600.0 TB" in text and "verify at most" in text and "--simulate" in text
    assert "exactly once" in run("order", "--samples", 10**4, "--verify", "--memory", "64M")


def test_large_steps_take_no_longer():
    """A step of 262,144 samples: fewer are measured, and the output says so. Progress, and
    Ctrl-C."""
    words = ["order", "--samples", 10**9, "--world-size", 1024]
    text = run(*words)
    assert "measured in 16 steps of 262,144 samples" in text
    table = json.loads(run(*words, "--json"))
    assert table["full"]["distance"] == pytest.approx(1 / 3, abs=0.01)
    assert table["full"]["displacement"] == pytest.approx(1 / 3, abs=0.01)
    screen, status, _, answered = on_terminal(words, 0, {})
    assert status == 0 and b"measuring: this order" in screen
    screen, status, out, answered = on_terminal(words, 0.4, {})
    if status != 0:  # else it was faster
        assert (status, out) == (128 + signal.SIGINT, "") and answered < 2
        assert b"stoker: interrupted" in screen


def test_words_of_pack(data, tmp_path):
    """Errors name the file; an order of the source has no seed."""
    assert str(data / "empty.tar") in run("pack", data / "empty.tar", tmp_path / "x", status=1)
    text = run("pack", data / "gz", tmp_path / "x", "--shuffle", 3, status=1)
    assert str(data / "gz") in text and "--keep-order" in text
    for source, words, seed in (("gz", [], None), ("tars", ["--keep-order"], None),
                                ("tars", [], "0"), ("tars", ["--shuffle", 7], "7")):
        out = tmp_path / f"{source}{len(words)}{seed}"
        report = json.loads(run("pack", "--json", *words, data / source, out))
        settings = json.loads((out / "stoker.manifest.json").read_text())["pack"]
        assert settings["seed"] == seed and (settings["order"] == "source") == (seed is None)
        assert report["seed"] == (None if seed is None else int(seed))


def test_words_of_groups(data):
    text = run("order", data / "folder", "--home-groups", 2, "--shuffle", "block", status=2)
    assert "0 complete blocks: 1 groups at most" in text
    assert "1 groups at most" in run("info", data / "folder", "--home-groups", 2, status=2)


SELECTIONS = [["--balance", "label"], ["--weights", "size"], ["--subset", "label<2"],
              ["--replacement"], ["--repeats", 2], ["--curriculum", "0:label<2;30:"]]
INVALID = ["seed=x", "foo=1", "batch=0", "=", "", "shuffle=x", "mix=1,1", "threads=0",
           "subset=nothing<", "shuffle=two-level"]


@pytest.mark.parametrize("words", SELECTIONS, ids=str)
def test_an_invalid_difference_of_selected_samples(data, words):
    """The command freed the selection twice, and aborted."""
    for wrong in INVALID:
        text = run("order", data / "folder", "--batch", 10, *words, "--diff", wrong, status=2)
        assert text.startswith("stoker: ") and text.count("\n") == 2, wrong
    run("order", data / "folder", "--batch", 10, *words, "--diff", "seed=0")


def test_a_scenario_that_does_not_fit_into_the_epochs():
    """3,017 samples have 11 steps of 256 an epoch. The example of the help works."""
    words = ["order", "--samples", 3017, "--verify", "--scenario"]
    text = run(*words, "8x32:500-20,4x64", status=2)
    assert "segment 1 of 2 needs 500 steps; 2 epochs end after 22" in text
    assert "verify more epochs (at most 64)" in text
    assert "1 resizes and 1 kills" in run(*words, "8x32:500-20,4x64", "--epochs", 46)
    assert "1 resizes and 1 kills" in run(*words, "8x32:5-2,3x50")
    assert "0 resizes and 1 kills" in run(*words, "8x32:5-2,8x32")
    example = re.search(r"RANKSxBATCH:STEPS-LOST:\s+(\S+)", run("order", "--help"))[1]
    assert "1 resizes and 1 kills" in run(*words, example)


def test_the_limit_of_epochs():
    text = run("order", "--samples", 100, "--verify", "--epochs", 65, status=2)
    assert "too many epochs: 65 epochs" in text and "histories" not in text
    assert "(at most 64)" in " ".join(run("order", "--help").split())


@pytest.mark.parametrize("query", [["--verify"], ["--at", 0], ["--find", 1], ["--diff", "seed=1"],
                                   ["--simulate"]], ids=str)
def test_options_without_effect(query):
    words = ["order", "--samples", 100, "--batch", 10]
    assert "--labels applies to" in run(*words, *query, "--labels", "/no/such", status=2)
    for more in (["--scenario", "8x2"], ["--world-sizes", "1"], ["--random-runs", 1]):
        if query != ["--verify"]:
            assert "need --verify" in run(*words, *query, *more, status=2)
            assert "need --verify" in run(*words, *more, status=2)


def test_costs_of_a_full_order(data):
    """A loader of a full order reads samples, not blocks; the reference is another permutation."""
    words = ["order", data / "folder", "--batch", 10]
    table = json.loads(run(*words, "--shuffle", "full", "--json"))
    for column in (table["order"], table["full"]):
        assert column["window_blocks"] == column["window_bytes"] == column["open_blocks"] == 0
        assert column["requests"] == column["epoch_samples"] == 100
    assert table["order"]["distance"] != table["full"]["distance"]
    assert table["mixing"]["chi_square"] != table["mixing"]["full_chi_square"]
    assert table["buffer"]["window_samples"] == 105 and table["buffer"]["window_blocks"] > 0
    text = run(*words, "--shuffle", "full")
    assert re.search(r"memory of windows, a node +none ", text)
    assert re.search(r"requests an epoch +100 +- +100\n", text)
    assert "each sample is a request" in text and "has the next seed" in text
    block = json.loads(run(*words, "--shuffle", "block", "--json"))
    assert block["order"]["window_blocks"] > 0 and block["full"]["requests"] == 100
    assert block["full"]["distance"] == table["order"]["distance"]  # of the same seed


def test_stdout_that_is_closed(data):
    done = subprocess.run(["sh", "-c", '"$0" order --samples 100 >&-', COMMAND],
                          capture_output=True, text=True, timeout=100)
    assert done.returncode == 3 and "Bad file descriptor" in done.stderr
    assert "stdout is closed" in done.stderr and "free space" not in done.stderr
