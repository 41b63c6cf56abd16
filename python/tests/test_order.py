"""The guarantees of the order: `stoker order`, Loader.explain() and the fingerprint.

Goal: the reported order is what a loader delivers, on every rank; two runs with the same
fingerprint had the same samples; the proof and the table are right. Method: a data set of tars made
here; loaders of several world sizes, threads and batch sizes, their ids compared with explain(),
with `stoker order` as a user runs it, and with each other through resumes.
"""

import io
import json
import os
import pathlib
import signal
import subprocess
import sys
import tarfile

import pytest

import stoker

ROOT = pathlib.Path(__file__).resolve().parents[2]
SAMPLES = 530


def command():
    beside = pathlib.Path(sys.executable).parent / "stoker"
    for path in [os.environ.get("STOKER_COMMAND"), beside, *sorted(ROOT.glob("build*/stoker"))]:
        if path and os.access(path, os.X_OK):
            return str(path)
    pytest.skip("the stoker command is not built")


def run(*words, status=0, stream=None):
    done = subprocess.run(
        [command(), "order", *map(os.fsencode, map(str, words))],
        capture_output=True,
        check=False,
        timeout=240,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == status, done.stderr.decode()
    stream = stream or ("stdout" if status < 2 else "stderr")
    return getattr(done, stream).decode()


def rows(*words, status=0):
    return [json.loads(line) for line in run("--json", *words, status=status).splitlines()]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("order")
    for shard in range(5):
        with tarfile.open(folder / f"o-{shard}.tar", "w") as tar:
            for i in range(SAMPLES // 5):
                info = tarfile.TarInfo(f"s{shard * (SAMPLES // 5) + i:04}.bin")
                info.size = 100
                tar.addfile(info, io.BytesIO(bytes(100)))
    with stoker.Dataset(folder, block_bytes=1000) as dataset:
        assert len(dataset) == SAMPLES and 2 <= dataset.block_samples <= 20
        yield folder, dataset


def loader(dataset, batch_size=8, **options):
    options = {"window": 4, "groups": 4, **options}
    return stoker.Loader(
        dataset, batch_size, fields={"id": "__id__", "key": "__key__"}, output="numpy", **options
    )


def settings(dataset, **options):
    """The options of loader(), in the command's spelling."""
    options = {"batch": 8, "window": 4, "groups": 4, **options}
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    return ["--block-samples", dataset.block_samples, *words]


@pytest.mark.parametrize("tail", ["drop", "pad", "wrap", "keep"])
@pytest.mark.parametrize("world", [1, 3])
def test_explain_equals_the_batches(data, tail, world):
    folder, dataset = data
    for rank in range(world):
        with loader(dataset, rank=rank, world_size=world, tail=tail, seed=3) as stream:
            for epoch in range(2):
                for step, batch in enumerate(stream):
                    reported = stream.explain(step, epoch=epoch)
                    assert [row.sample for row in reported] == batch["id"].tolist()
                    assert [row.key for row in reported] == list(batch["key"])
                    assert [row.slot for row in reported] == list(range(len(reported)))
                    assert {row.rank for row in reported} <= {rank}
                    if tail == "pad":
                        assert [row.real for row in reported] == stream.mask.tolist()
                    else:
                        assert all(row.real for row in reported)
                    assert all(pathlib.Path(row.shard).parent == folder for row in reported)
                    whole = stream.explain(step, epoch=epoch, rank="all")
                    assert [row for row in whole if row.rank == rank] == reported
                    printed = rows(folder, *settings(dataset, world=world, tail=tail, seed=3),
                                   "--epoch", epoch, "--at", step) if step in (0, 9) else []
                    for line, row in zip(printed, whole, strict=bool(printed)):
                        assert (line["rank"], line["slot"], line["sample"], line["key"]) == (
                            row.rank, row.slot, row.sample, row.key)


def test_explain_refuses(data):
    with loader(data[1]) as stream:
        assert len(stream.explain(len(stream) - 1)) == 8
        for wrong in [{"step": len(stream)}, {"step": 0, "rank": 1}, {"step": 0, "rank": "some"},
                      {"step": -1}, {"step": 0, "epoch": -1}]:
            with pytest.raises(stoker.ArgumentError):
                stream.explain(**wrong)
    with pytest.raises(stoker.ClosedError):
        stream.explain(0)


def fingerprints(stream, batches):
    """After each of so many batches, from the loader's place on."""
    found = []
    while len(found) < batches:
        for _ in stream:
            found.append(stream.state_dict()["fingerprint"])
            assert stream.stats()["fingerprint"] == found[-1]
            if len(found) == batches:
                break
    return found


def test_fingerprint_is_the_same_everywhere(data):
    """Every rank, world size, number of threads and resume has the fingerprint of one rank."""
    _, dataset = data
    with loader(dataset, 24, seed=1) as stream:
        assert stream.stats()["fingerprint"] == "0" * 16
        want = fingerprints(stream, 50)
    assert len(set(want)) == 50
    for world, threads in [(2, 1), (3, 2), (8, 1)]:
        for rank in range(world):
            with stoker.Engine(threads=threads) as engine:
                with stoker.Dataset(data[0], engine=engine, block_bytes=1000) as same:
                    with loader(same, 24 // world, rank=rank, world_size=world, seed=1) as stream:
                        assert fingerprints(stream, 30) == want[:30]
                        state = json.loads(json.dumps(stream.state_dict()))
            with loader(dataset, 12, rank=rank % 2, world_size=2, seed=1) as stream:
                stream.load_state_dict(state)
                assert fingerprints(stream, 20) == want[30:]


def test_fingerprint_tells(data):
    _, dataset = data
    found = set()
    for options in [{}, {"seed": 2}, {"window": 5}, {"groups": 2}, {"shuffle": "full"}]:
        with loader(dataset, **options) as stream:
            found.add(fingerprints(stream, 30)[-1])
    assert len(found) == 5


def test_fingerprint_in_states(data):
    with loader(data[1]) as stream:
        assert len(fingerprints(stream, 3)) == 3
        state = stream.state_dict()
        assert len(json.dumps(state)) <= 1024
        for wrong in ["x", "1" * 17, "-1", 3, None]:
            with pytest.raises(stoker.StateError):
                stream.load_state_dict({**state, "fingerprint": wrong})
        del state["fingerprint"]
        with pytest.raises(stoker.StateError, match="fingerprint"):
            stream.load_state_dict(state)


def test_fingerprint_of_workers_adds_up(data):
    _, dataset = data
    with loader(dataset) as stream:
        for _ in stream:
            pass
        want = stream.stats()["fingerprint"]
    total = 0
    for worker in range(3):
        with loader(dataset, worker=worker, worker_count=3) as stream:
            for _ in stream:
                pass
            total += int(stream.stats()["fingerprint"], 16)
    assert f"{total % 2**64:016x}" == want


def test_fingerprint_goes_on_over_new_shards(tmp_path):
    def shard(number):
        with tarfile.open(tmp_path / f"{number}.tar", "w") as tar:
            for i in range(20):
                info = tarfile.TarInfo(f"{number}-{i:02}.bin")
                tar.addfile(info, io.BytesIO())

    shard(0)
    with loader(tmp_path, window=None, groups=None, refresh=True) as stream:
        for _ in stream:
            pass
        before = int(stream.stats()["fingerprint"], 16)
        shard(1)
        added = []
        for _ in stream:
            added.append(int(stream.stats()["fingerprint"], 16))
        assert len(added) == 5 and before > 0
    with loader(tmp_path, window=None, groups=None) as stream:
        stream.set_epoch(1)
        whole = [int(f, 16) for f in fingerprints(stream, 5)]
    assert [(value - before) % 2**64 for value in added] == whole


FAR = """
import json, sys
import numpy
import stoker

def loader():
    return stoker.TokenLoader(sys.argv[1], 4, 1, stored="uint16", labels=False, seed=6,
                              output="numpy")

def peak():  # not ru_maxrss: that begins with what the parent had
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return int(status["VmHWM"].split()[0]) * 1024

with loader() as stream:
    state = {**stream.state_dict(), "position": int(sys.argv[2])}
before = peak()
with loader() as stream:
    stream.load_state_dict(state)
    batch = next(iter(stream))
    batch = batch[0] if isinstance(batch, tuple) else batch
    print(json.dumps([batch.ravel().tolist(), peak(), peak() - before, stream.state_dict()]))
"""


def test_resume_at_a_large_position(tmp_path):
    """Sample 10^9 of 10^10: no work and no memory per sample. The sparse file has numbers only
    where the command reports the samples."""
    path, samples, far = tmp_path / "t.bin", 10**10, 10**9
    path.touch()
    os.truncate(path, 2 * samples)
    block = (8 << 20) // 2  # tokens of two bytes in a block of 8 MiB
    reported = rows("--samples", samples, "--block-samples", block, "--seed", 6, "--batch", 4,
                "--shuffle", "full", "--at", far // 4)
    with open(path, "r+b") as file:
        for number, line in enumerate(reported, 1):
            file.seek(2 * line["sample"])
            file.write(number.to_bytes(2, "little"))
    out = subprocess.run([sys.executable, "-c", FAR, path, str(far)], capture_output=True,
                         check=True, timeout=60).stdout
    batch, peak, grown, state = json.loads(out)
    assert batch == [1, 2, 3, 4]
    assert state["sample_count"] == samples and state["position"] == far + 4
    assert peak < 100 << 20 and grown < 10 << 20


def test_find(data):
    folder, dataset = data
    words = settings(dataset, seed=5)
    for sample in (0, 77, SAMPLES - 1):
        key = dataset.sample(sample).key
        found = rows(folder, *words, "--find", key, "--epochs", 4, "--epoch", 1)
        assert [line.get("epoch") for line in found] == [1, 2, 3, 4]
        for line in found:
            if "dropped" in line:
                continue
            there = rows(folder, *words, "--epoch", line["epoch"], "--at", line["step"])
            assert line in there and line["key"] == key
    assert "no sample has this key" in subprocess.run(
        [command(), "order", folder, "--find", "absent"], capture_output=True, check=False
    ).stderr.decode()


def test_diff():
    words = ["--samples", 5000, "--block-samples", 10, "--batch", 16, "--world-size", 2]
    same = rows(*words, "--diff", "window-blocks=64,seed=0")[0]
    assert same == {"order_differs": False, "steps_differ": False, "ranks_differ": False}
    ranks = rows(*words, "--diff", "world-size=4,batch=8", status=1)[0]
    assert (ranks["order_differs"], ranks["steps_differ"], ranks["ranks_differ"]) == (
        False, False, True)
    steps = rows(*words, "--diff", "batch=17", status=1)[0]
    assert not steps["order_differs"] and steps["steps_differ"] and steps["step"] == 0
    seed = rows(*words, "--diff", "seed=1", status=1)[0]
    assert seed["order_differs"] and (seed["order_epoch"], seed["order_position"]) == (0, 0)
    tail = rows(*words, "--diff", "tail=keep", status=1)[0]
    assert not tail["order_differs"] and (tail["step_epoch"], tail["step"]) == (0, 5000 // 32)
    assert "order: the same" in run(*words, "--diff", "world-size=4,batch=8", status=1)
    for wrong in ["seed", "sed=1", "=1", "seed=x", "home-groups=100000"]:
        run(*words, "--diff", wrong, status=2)


def test_verify():
    words = ["--samples", 3001, "--block-samples", 7, "--home-groups", 6, "--batch", 12,
             "--world-size", 4]
    for tail in ("drop", "pad", "wrap", "keep"):
        proof = rows(*words, "--tail", tail, "--verify", "--random-runs", 5)[0]
        assert proof["exactly_once"] and proof["failures"] == 0
        assert proof["histories"] == 5 and proof["resizes"] > 0 and proof["kills"] > 0
        assert proof["slots"] > 2 * 8 * 2900
    assert "each sample occurs exactly once" in run(*words, "--verify", "--world-sizes", "1,48")
    assert "does not divide" in run(*words, "--verify", "--world-sizes", "5", status=2)


def test_verify_a_run():
    words = ["--samples", 3001, "--block-samples", 7, "--home-groups", 6, "--verify", "--epochs", 3]
    for tail in ("drop", "pad", "wrap", "keep"):
        proof = rows(*words, "--tail", tail, "--scenario", "8x16:10-3,3x5:200-200,5x1:7,2x32")[0]
        assert proof["exactly_once"] and proof["failures"] == 0
        assert (proof["stretches"], proof["resizes"], proof["kills"]) == (4, 3, 2)
        assert proof["histories"] == proof["worlds"] == 0
        assert proof["slots"] >= 9003 - 64 * 3 + 3 * 128 + 200 * 15
    text = run(*words, "--scenario", "8x16:10-3,2x32")
    assert "each sample occurs exactly once: in 3 epochs" in text and "1 kills" in text
    both = rows(*words, "--batch", 4, "--scenario", "8x16:10-3,2x32", "--world-sizes", "1,4")[0]
    assert (both["worlds"], both["histories"], both["stretches"]) == (2, 20, 2)
    # Counted by hand: 10 steps of 128, then steps of 64 from position 7 x 128 on.
    one = rows(*words[:-1], 1, "--scenario", "8x16:10-3,2x32")[0]
    assert one["steps"] == 10 + (3001 - 7 * 128) // 64
    assert one["slots"] == 10 * 128 + (3001 - 7 * 128) // 64 * 64


@pytest.mark.parametrize("reported", [
    "", ",", "8", "x", "8x", "x8", "0x8", "8x0", "8x8:", "8x8:0", "8x8:5-", "8x8:5-6", "8x8,8x8",
    "8x8:5,", "8x8:5 ,8x8", "-8x8", "8x8:5-1-1", "8x8:99999999999999999999", "4294967296x1",
    "1x4294967296", "8X8", "8x8:1e3", "\x1b[31m", "9" * 4000, ",".join(["1x1:1"] * 65),
])
def test_verify_refuses_a_run(reported):
    error = run("--samples", 100, "--verify", "--scenario", reported, status=2)
    assert "not a scenario" in error and "\x1b" not in error


@pytest.mark.parametrize("worlds", [
    "", ",", "1,", ",1", "1,,2", "0", "-1", "1;2", "1 2", "4294967296", "x", "1" * 30,
    ",".join(["1"] * 65),
])
def test_verify_refuses_worlds(worlds):
    error = run("--samples", 100, "--verify", "--world-sizes", worlds, status=2)
    assert "not a list of world sizes" in error


def test_verify_of_steps_with_large_factors():
    """A step whose smallest divisors are far apart; one that no single rank can have."""
    proof = rows("--samples", 10**4, "--batch", 1048573, "--verify", "--random-runs", 1)[0]
    assert proof["worlds"] == 2 and proof["exactly_once"]
    proof = rows("--samples", 10**4, "--batch", 1048573, "--world-size", 4294967291, "--verify",
                 "--random-runs", 1)[0]
    assert proof["worlds"] == 1 and proof["exactly_once"]


def test_too_large_to_verify():
    error = run("--samples", 2**56, "--verify", status=3)
    assert "cannot verify an order" in error and "fewer epochs" in error
    error = run("--samples", 100, "--verify", "--epochs", 65, status=2)
    assert "at most 64 epochs" in error


@pytest.mark.parametrize("words", [
    ["--verify", "--samples", 10**8, "--world-sizes", "1"],
    ["--simulate", "--samples", 10**9, "--block-samples", "8"],
    ["--diff", "world-size=2,batch=128", "--samples", 10**9],
])
def test_interrupt(words):
    """Ctrl-C ends a proof at once, and says so."""
    with subprocess.Popen([command(), "order", *map(str, words)], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.communicate(timeout=0.5)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=30) == (b"", b"stoker: interrupted\n")
        assert process.returncode == 130


def test_diff_takes_settings_of_an_order(data):
    folder, dataset = data
    assert rows("--samples", 500, "--diff", "samples=501", status=1)[0]["order_differs"]
    for wrong in ("", "samples=3", "nodes=2", "epochs=3", "threads=2", "at=3", "json", "epoch=1"):
        error = run(folder, *settings(dataset), "--diff", wrong, status=2)
        assert "not settings of an order" in error or "not a setting" in error


def test_hostile_keys(tmp_path):
    """Keys that drive a terminal, are no UTF-8, or are the same: found, and printed harmlessly."""
    names = [b"a\x1b[31mb", b"\xff\xfe", b"same", b"same", b"with space"]
    for shard, name in enumerate(names):
        with tarfile.open(tmp_path / f"{shard}.tar", "w", encoding="utf-8",
                          errors="surrogateescape") as tar:
            info = tarfile.TarInfo(name.decode("utf-8", "surrogateescape") + ".bin")
            tar.addfile(info, io.BytesIO())
    words = [tmp_path, "--batch", 1, "--tail", "keep", "--epochs", 2]
    for name, count in [("a\x1b[31mb", 2), ("\udcff\udcfe", 2), ("same", 4), ("with space", 2)]:
        found = rows(*words, "--find", name)
        assert len(found) == count and {line["key"] for line in found} == {name}
    text = run(*words, "--at", 0, "--epoch", 0) + run(*words, "--find", "a\x1b[31mb")
    assert "\x1b" not in text and "\\x1b" in text
    error = run(*words, "--find", "a\x1b[", status=1, stream="stderr")
    assert "no sample has this key" in error and "\x1b" not in error


def test_table(data):
    folder, dataset = data
    report = rows(folder, *settings(dataset, world=4, nodes=2))[0]
    assert report["samples"] == SAMPLES and report["steps"] == SAMPLES // 32
    order, full, buffer = report["order"], report["full"], report["buffer"]
    assert order["window_bytes"] == order["window_blocks"] * report["block_bytes"] > 0
    assert 0 < order["open_blocks"] and full["open_blocks"] == full["window_bytes"] == 0
    assert order["cache_share"] > 0.8 > full["cache_share"]
    assert order["requests_cached"] < order["requests"] < full["requests"]
    assert 0.3 < full["distance"] < 0.37 and 0.25 < order["distance"] < 0.37
    assert buffer["displacement"] < order["displacement"]
    assert full["same_block"] < order["same_block"]
    text = run(folder, *settings(dataset, world=4, nodes=2))
    assert "full permutation" in text and "requests an epoch" in text
    planned = rows("--samples", 10**9, "--block-samples", 80, "--home-groups", 64,
                   "--world-size", 64)[0]
    assert "open_blocks" not in planned["order"] and planned["order"]["window_samples"] == 5120


def test_simulate(data):
    folder, dataset = data
    words = ["--samples", 10**6, "--block-samples", 8, "--home-groups", 64, "--nodes", 64,
             "--world-size", 512, "--batch", 4, "--simulate"]
    got = rows(*words, "--tail", "pad", "--threads", 2)[0]
    assert (got["samples"], got["missing"], got["repeated"]) == (10**6, 0, 0)
    assert got["steps"] == -(-10**6 // 2048) and got["slots"] == got["steps"] * 2048
    assert 50 < got["open_blocks"] <= got["open_blocks_bound"] < 80  # a window of 64 and the pool
    assert 50 < got["step_blocks"] <= got["step_blocks_bound"] < 150
    small = ["--samples", 20000, "--block-samples", 8, "--home-groups", 8, "--nodes", 8,
             "--world-size", 8]
    planned = rows(*small)[0]["order"]["window_blocks"]
    assert planned == rows(*small, "--simulate")[0]["open_blocks_bound"]
    assert rows(*words)[0]["samples"] == 10**6 // 2048 * 2048
    text = run(folder, *settings(dataset, world=4, nodes=2), "--simulate")
    assert "0 missing, 0 repeated" in text and "bound" in text
    refused = run(folder, *settings(dataset, world=2, nodes=2, batch=7), "--simulate", status=2)
    assert "do not stay on one node" in refused and "global batch" in refused
    assert "use one of" in run("--samples", 9, "--simulate", "--verify", status=2)


@pytest.mark.parametrize("words", [
    [], ["--samples", "0"], ["--samples", "10", "--at", "x"], ["--samples", "10", "--rank", "1"],
    ["--samples", "10", "--batch", "1", "--at", "10"], ["--samples", "10", "--find", "k"],
    ["--samples", "10", "--find", "10"], ["--samples", "10", "--verify", "--at", "1"],
    ["--samples", "10", "--world-size", "3", "--nodes", "2"],
    ["--samples", "10", "--home-groups", "3"],
])
def test_usage(words):
    assert run(*words, status=2)
