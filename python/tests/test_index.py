"""The index file of a data set: written, used, refused, grown, and written again after a kill.

Goal: a data set is the same with and without its index; changes are named; a killed run resumes to
the same bytes; appended shards are included between epochs, and states stay exact. Method: the
command and the package over small tars on a real disk; kill -9 at random moments; loaders before
and after shards were appended.
"""

import json
import os
import pathlib
import pty
import random
import shutil
import signal
import subprocess
import tarfile
import time

import make
import pytest
import stoker
from test_cli import COMMAND, find_command

pytestmark = pytest.mark.skipif(find_command() is None, reason="the stoker command is not built")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache of the test's own."""
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def run(*words, **options):
    return subprocess.run(
        [COMMAND, *map(str, words)], capture_output=True, check=False, timeout=60, **options
    )


def shard(root: pathlib.Path, number: int, samples: int = 5, extra: int = 0) -> pathlib.Path:
    members = []
    for i in range(samples):
        key = f"{number:03}/{i:04}"
        members += [(f"{key}.txt", f"{key}".encode()), (f"{key}.cls", str(i).encode())]
        if extra:
            members.append((f"{key}.bin", bytes([number]) * extra))
    return make.tar(root / f"s-{number:03}.tar", members)


@pytest.fixture
def data(tmp_path):
    root = tmp_path / "data"
    for number in range(6):
        shard(root, number)
    return root


def reported(dataset):
    return [(dataset.sample(i), dataset[i]) for i in range(len(dataset))]


# ---- the command ----------------------------------------------------------------------------


def test_command(tmp_path):
    data = tmp_path / "data"
    for number in range(6):
        shard(data, number, extra=100_000)
    done = run("index", data)
    assert done.returncode == 0, done.stderr
    assert b"30 samples, 90 members" in done.stdout
    assert (data / "stoker.index").stat().st_size > 1000
    assert sorted(p.name for p in data.iterdir() if p.suffix != ".tar") == [
        "stoker.index",
        "stoker.index.stamp",
    ]
    first = (data / "stoker.index").read_bytes()
    again = json.loads(run("index", "--json", data).stdout)
    assert (again["shards"], again["shards_kept"], again["bytes_read"]) == (6, 6, 0)
    forced = json.loads(run("index", "--force", "--json", "--threads", 1, data).stdout)
    assert forced["shards_kept"] == 0 and forced["bytes_read"] > 0
    assert (data / "stoker.index").read_bytes() == first
    rich = json.loads(run("index", "--checksums", "--labels", "--json", data).stdout)
    assert forced["bytes_read"] < 0.1 * rich["bytes_read"]
    assert rich["index_bytes"] > len(first)


def test_info_tells_of_the_index(data):
    reported = json.loads(run("info", "--json", data).stdout)
    assert "index_path" not in reported and "there is none" in reported["index_note"]
    run("index", data)
    reported = json.loads(run("info", "--json", data).stdout)
    assert reported["index_path"] == str(data / "stoker.index")
    assert (reported["shards_indexed"], reported["index_note"]) == (6, "")
    assert b"6 of 6 shards from " in run("info", data).stdout
    shard(data, 6)
    text = run("info", data).stdout
    assert b"6 of 7 shards" in text and b"s-006.tar' is new" in text


def test_require_names_the_difference(data):
    assert run("ls", "--index", "require", data).returncode == 3
    run("index", data)
    assert run("ls", "--index", "require", data).returncode == 0
    shard(data, 2, samples=9)
    done = run("ls", "--index", "require", data)
    assert done.returncode == 1
    assert b"s-002.tar" in done.stderr and b"stoker index" in done.stderr
    assert run("ls", "--index", "auto", data).stdout == run("ls", "--index", "never", data).stdout


def test_wrong_words(data, tmp_path):
    assert run("index").returncode == 2
    assert run("index", tmp_path / "nothing").returncode == 3
    done = run("index", "--out", tmp_path / "no" / "folder" / "x", data)
    assert done.returncode == 3 and b"no/folder" in done.stderr


def test_out_and_cache(data, tmp_path, cache):
    out = tmp_path / "named.index"
    assert run("index", "--out", out, data).returncode == 0
    assert stoker.Dataset(data, index=out).shards_indexed == 6
    assert stoker.Dataset(data).shards_indexed == 0
    if os.geteuid() == 0:
        pytest.skip("root may write anywhere: the cache is tried in indexer_test.c")
    data.chmod(0o555)
    assert run("index", data).returncode == 0
    data.chmod(0o755)
    assert list(cache.glob("*.index"))
    assert stoker.Dataset(data).shards_indexed == 6


def test_kill(data, tmp_path):
    """500 kills in the long run, a few here; the last run ends with the same bytes."""
    for number in range(6, 40):
        shard(data, number, samples=40)
    run("index", "--out", tmp_path / "want", data)
    want = (tmp_path / "want").read_bytes()
    kills = 0
    rounds = 500 if os.environ.get("STOKER_TEST_LONG") else 12
    dice = random.Random(7)
    start = time.monotonic()
    run("index", "--threads", 1, data)
    whole = time.monotonic() - start
    for _ in range(rounds):
        for path in data.glob("stoker.index*"):
            if dice.random() < 0.7:
                path.unlink()
        child = subprocess.Popen(
            [COMMAND, "index", "--threads", "1", str(data)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        time.sleep(dice.random() * whole)
        child.send_signal(signal.SIGKILL)
        child.communicate()
        kills += child.returncode == -signal.SIGKILL
        final = data / "stoker.index"
        assert not final.exists() or final.read_bytes() == want
        if dice.random() < 0.5:
            done = run("index", data)
            assert done.returncode == 0, done.stderr
            assert final.read_bytes() == want
    assert run("index", data).returncode == 0
    assert (data / "stoker.index").read_bytes() == want
    assert not list(data.glob("stoker.index.part*"))
    assert kills > rounds // 4


def test_ctrl_c(data):
    for number in range(6, 200):
        shard(data, number, samples=1)
    child = subprocess.Popen([COMMAND, "index", "--threads", "1", str(data)])
    time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    assert child.wait(10) in (0, -signal.SIGINT, 128 + signal.SIGINT)
    assert run("index", data).returncode == 0


def test_bar(tmp_path):
    """On a terminal there is a bar with rate and time left; elsewhere there is not."""
    path = tmp_path / "x.tar"
    with open(path, "wb") as file:  # a hole: long to read, quick to make
        info = tarfile.TarInfo("a.bin")
        info.size = 1 << 30
        file.write(info.tobuf())
        file.seek(info.size, os.SEEK_CUR)
        file.write(bytes(1024))
    leader, follower = pty.openpty()
    words = [COMMAND, "index", "--checksums", str(path)]
    environment = {**os.environ, "TERM": "xterm"}
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=follower, env=environment) as child:
        os.close(follower)
        shown = b""
        try:
            while piece := os.read(leader, 65536):
                shown += piece
        except OSError:  # EIO: the last writer has closed
            pass
        assert b"1 members" in child.stdout.read()
    os.close(leader)
    assert child.returncode == 0
    assert b"MB/s" in shown and b"left" in shown, shown
    again = run("index", "--force", path)
    assert again.stderr == b""


# ---- the package ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["tars", "packed", "folder"])
def test_the_same_with_and_without(kind, tmp_path, engine, folder):
    root = tmp_path / "data"
    if kind == "folder":
        shutil.copytree(folder, root)
    else:
        for number in range(3):
            path = shard(root, number)
            if kind == "packed":
                subprocess.run(["gzip", path], check=True)
    before = stoker.Dataset(root, engine=engine)
    assert before.index_path is None and before.shards_indexed == 0
    reports = []
    report = stoker.index(root, engine=engine, progress=reports.append)
    assert report.path == str(root / "stoker.index") and report.samples == len(before)
    assert report.index_bytes == os.path.getsize(report.path) and report.shards_kept == 0
    for use in ("auto", "never", "require", report.path):
        dataset = stoker.Dataset(root, engine=engine, index=use)
        assert reported(dataset) == reported(before)
        assert dataset.identity == before.identity
        assert dataset.classes == before.classes
        assert dataset.block_samples == before.block_samples
        assert dataset.shards_indexed == (0 if use == "never" else dataset.shard_count)


def test_index_words(data, engine):
    for wrong in ("", None, 3, b""):
        with pytest.raises(stoker.ArgumentError):
            stoker.Dataset(data, engine=engine, index=wrong)
    with pytest.raises(stoker.ArgumentError):
        stoker.Loader(stoker.Dataset(data, engine=engine), index="never")
    with pytest.raises(stoker.ArgumentError):
        stoker.index(data, engine="fast")
    with pytest.raises(FileNotFoundError):
        stoker.Dataset(data, engine=engine, index="require")
    stoker.index(data, engine=engine)
    shard(data, 6)
    with pytest.raises(stoker.ChangedError, match="s-006.tar"):
        stoker.Dataset(data, engine=engine, index="require")
    assert stoker.Dataset(data, engine=engine).index_note.endswith("s-006.tar' is new")


def test_a_damaged_index_is_no_damaged_sample(tmp_path, engine):
    """on_error="skip" skips damage in the data, not a damaged index."""
    shard(tmp_path, 0, samples=3000)
    path = pathlib.Path(stoker.index(tmp_path, engine=engine).path)
    content = bytearray(path.read_bytes())
    content[20000] ^= 1
    path.unlink()
    path.write_bytes(content)
    loader = stoker.Loader(
        tmp_path,
        64,
        engine=engine,
        fields={"text": stoker.Text("txt")},
        on_error="skip",
        shuffle="none",
    )
    with pytest.raises(stoker.ChangedError, match="index is damaged"):
        list(loader)
    assert loader.quarantine == []
    loader.close()


# ---- growing --------------------------------------------------------------------------------


def keys(batches):
    return [key for batch in batches for key in batch["__key__"]]


def make_loader(data, engine, **options):
    options = {"fields": {"__key__": "__key__"}, "seed": 3, "tail": "keep"} | options
    return stoker.Loader(data, 4, engine=engine, **options)


@pytest.mark.parametrize("indexed", [False, True])
def test_refresh_between_epochs(data, engine, indexed):
    if indexed:
        stoker.index(data, engine=engine)
    loader = make_loader(data, engine, refresh=True)
    first = keys(loader)
    assert len(first) == 30 and loader.epoch == 1
    shard(data, 6, samples=7)
    shard(data, 7, samples=4)
    second = keys(loader)
    assert len(second) == 41 and set(second) > set(first)
    assert loader.dataset.shard_count == 8
    # The loader's batches are a function of the data set, the seed and the epoch.
    other = make_loader(data, engine)
    other.set_epoch(1)
    if other.dataset.block_samples == loader.dataset.block_samples:
        assert keys(other) == second
    assert loader.stats()["samples"] == 71
    other.close()
    loader.close()


def test_refresh_keeps_the_epoch(data, engine):
    """Shards that appear during an epoch are used from its end on."""
    loader = make_loader(data, engine, refresh=True)
    epoch = iter(loader)
    part = [next(epoch) for _ in range(3)]
    shard(data, 6)
    assert len(keys(part + list(epoch))) == 30
    assert len(keys(loader)) == 35
    loader.close()


def test_refresh_off_by_default(data, engine):
    loader = make_loader(data, engine)
    assert len(keys(loader)) == 30
    shard(data, 6)
    assert len(keys(loader)) == 30
    loader.close()


def test_states_of_before(data, engine):
    """A run that was stopped in an epoch continues in it, exactly, though the data set has
    grown."""
    loader = make_loader(data, engine, refresh=True)
    keys(loader)
    epoch = iter(loader)
    given = keys([next(epoch) for _ in range(3)])
    state = json.loads(json.dumps(loader.state_dict()))
    rest = keys(epoch)
    shard(data, 6)
    shard(data, 7)
    third = keys(loader)
    loader.close()

    again = make_loader(data, engine, refresh=True)
    assert len(again.dataset) == 40
    again.load_state_dict(state)
    assert len(again.dataset) == 30
    assert keys(again) == rest and len(given) + len(rest) == 30
    assert keys(again) == third and len(third) == 40
    again.close()

    strict = make_loader(data, engine)
    with pytest.raises(stoker.StateError):
        strict.load_state_dict(state)
    strict.close()


def test_states_of_another_data_set(data, engine, tmp_path):
    loader = make_loader(data, engine, refresh=True)
    state = loader.state_dict()
    other = tmp_path / "other"
    for number in range(8):
        shard(other, number + 20)
    foreign = make_loader(other, engine, refresh="call")
    with pytest.raises(stoker.StateError, match="another data set"):
        foreign.load_state_dict(state)
    foreign.close()
    loader.close()


def test_ranks_take_the_same(data, engine):
    loaders = [
        make_loader(data, engine, rank=rank, world_size=2, refresh="call") for rank in range(2)
    ]
    shard(data, 6)
    number = loaders[0].refresh()
    shard(data, 7)  # sorts between the two
    assert loaders[1].refresh(shard_count=number) == number == 7
    assert loaders[0].dataset.identity == loaders[1].dataset.identity
    both = [keys(loader) for loader in loaders]
    assert len(both[0]) + len(both[1]) == len({*both[0], *both[1]}) == 35
    with pytest.raises(stoker.ChangedError, match="fewer shards"):
        loaders[0].refresh(shard_count=9)
    for loader in loaders:
        loader.close()


def test_refresh_refuses(data, engine, folder):
    for words in (
        {"refresh": True, "rank": 0, "world_size": 2},
        {"refresh": True, "tail": "wrap"},
        {"refresh": "often"},
    ):
        with pytest.raises(stoker.ArgumentError):
            make_loader(data, engine, **words)
    loader = make_loader(data, engine, refresh="call")
    epoch = iter(loader)
    next(epoch)
    with pytest.raises(stoker.StateError):
        loader.refresh()
    list(epoch)
    assert loader.refresh() == 6
    shard(data, 0, samples=9)
    with pytest.raises(stoker.ChangedError, match="s-000.tar"):
        loader.refresh()
    assert len(keys([next(iter(loader))])) == 4  # the loader continues with what it has
    loader.close()
    with pytest.raises(stoker.UnsupportedError):
        stoker.Dataset(folder, engine=engine).refresh()


def test_dataset_refresh(data, engine):
    dataset = stoker.Dataset(data, engine=engine)
    assert dataset.refresh() is dataset
    shard(data, 6)
    newer = dataset.refresh()
    assert (len(dataset), len(newer)) == (30, 35)
    assert newer.identity == stoker.Dataset(data, engine=engine, index="never").identity
