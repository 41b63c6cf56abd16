"""The node cache: blocks of objects on disks of this machine, for all processes of a user.

Goal: with a cache each block is downloaded once, whatever the number of epochs, loaders and
processes, also if they are killed; a changed object and damaged blocks are downloaded again; a
reader never gets a wrong byte, and no fault of the cache's disk reaches it. Method: a store of the
tests that writes down what it answers, and processes of their own."""

from __future__ import annotations

import collections
import json
import os
import random
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time

import fuse_server
import make
import numpy as np
import object_server
import pytest
import stoker

BLOCK = 256 << 10
SETTINGS = {"AWS_CONFIG_FILE": "/dev/null", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
            "AWS_EC2_METADATA_DISABLED": "true", "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}


class Counting(object_server.S3):
    """Counts how often each range of an object was sent, and may be slow."""

    def give(self, data, **more):
        bounds = self.headers.get("Range")
        if self.command == "GET" and bounds != "bytes=0-0":  # that one asks for size and ETag
            with self.server.lock:
                self.server.ranges[self.path, bounds] += 1
            time.sleep(self.server.pause)
        super().give(data, **more)


@pytest.fixture
def store(monkeypatch):
    """Serves `store.objects` at s3://bucket/, and counts ranges in `store.ranges`."""
    server = object_server.Store(Counting, {})
    server.keys, server.reported, server.again, server.count = None, {}, [], 0
    server.ranges, server.pause = collections.Counter(), 0.0
    server.keys = {"key": ("secret", "", time.time() + 1e6)}
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    for name in ("STOKER_CACHE_DIR", "STOKER_CACHE_BYTES"):
        monkeypatch.delenv(name, raising=False)
    yield server
    server.close()


def sent(store):
    """Bytes of bodies that the store sent, by the ranges."""
    total = 0
    for (path, bounds), count in store.ranges.items():
        key = path.partition("?")[0].rpartition("/")[2]
        data = store.objects["bucket", key]
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", bounds or "")
        total += count * (int(match[2]) - int(match[1]) + 1 if match else len(data))
    return total


def put_shards(store, folder, shards=2, samples=40):
    for number in range(shards):
        path = make.tar(folder / f"s{number}.tar", [
            member for i in range(samples) for member in make.sample(number * samples + i)])
        store.objects["bucket", path.name] = path.read_bytes()
    return f"s3://bucket/s{{0..{shards - 1}}}.tar"


def epoch(loader):
    """Everything that a loader delivers, in order."""
    return [np.asarray(batch["x"]).tobytes() for batch in loader]


def open_loader(url, **options):
    fields = {"x": stoker.Image("jpg", [stoker.Resize((8, 8))])}
    return make.loader(url, batch_size=8, fields=fields, **options)


def read(url, engine):
    return bytes(stoker.cat(url, engine=engine))


def test_second_epoch_downloads_nothing(store, tmp_path):
    url = put_shards(store, tmp_path)
    with open_loader(url) as plain:
        want = epoch(plain)
    store.ranges.clear()
    cache = stoker.Cache(tmp_path / "cache", bytes="64MiB", block=BLOCK)
    with open_loader(url, cache=cache) as loader:
        assert epoch(loader) == want
        first = sent(store)
        assert first <= sum(map(len, store.objects.values())) + 2 * BLOCK
    store.ranges.clear()
    with open_loader(url, cache=cache) as loader:
        assert epoch(loader) == want
        stats = loader.stats()["cache"]
    assert not store.ranges, store.ranges
    assert stats["hits"] > 0 and stats["bytes_from_cache"] > 0
    assert stats["bytes_from_origin"] == first
    assert stats["blocks_dropped"] == stats["bypasses"] == 0


def test_cache_outlives_its_process(store, tmp_path):
    data = make.random_bytes(5 * BLOCK + 1000, 1)
    store.objects["bucket", "o"] = data
    command = "import stoker, sys; sys.stdout.buffer.write(stoker.cat('s3://bucket/o'))"
    env = {**os.environ, "STOKER_CACHE_DIR": str(tmp_path / "cache"),
           "STOKER_CACHE_BYTES": "64MiB"}
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", command], env=env, capture_output=True,
                              check=True)
        assert done.stdout == data
    assert sent(store) == len(data)
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700


def test_changed_object_is_another_block(store, tmp_path):
    old, new = make.random_bytes(2 * BLOCK, 1), make.random_bytes(2 * BLOCK, 2)
    for data in (old, new, old):
        store.objects["bucket", "o"] = data
        with stoker.Engine(cache=tmp_path / "cache", cache_bytes="64MiB") as engine:
            assert read("s3://bucket/o", engine) == data
    assert sent(store) == 2 * len(old), "the first version was cached"


def test_many_processes_download_a_block_once(store, tmp_path):
    """Eight processes read the same objects at the same time, in different orders."""
    store.pause = 0.05
    for number in range(4):
        store.objects["bucket", f"o{number}"] = make.random_bytes(3 * BLOCK + number, number)
    stoker.Cache(tmp_path / "cache", bytes="64MiB", block=BLOCK).close()
    program = textwrap.dedent("""
        import hashlib, random, stoker, sys
        engine = stoker.Engine(threads=1, cache=sys.argv[1])
        names = [f"o{number}" for number in range(4)]
        random.Random(int(sys.argv[2])).shuffle(names)
        sums = {name: hashlib.md5(stoker.cat(f"s3://bucket/{name}", engine=engine)).hexdigest()
                for name in names}
        print(sorted(sums.items()))
        """)
    running = [subprocess.Popen([sys.executable, "-c", program, tmp_path / "cache", str(rank)],
                                stdout=subprocess.PIPE, text=True) for rank in range(8)]
    texts = {process.communicate(timeout=60)[0] for process in running}
    assert [process.returncode for process in running] == [0] * 8
    assert texts == {str(sorted((key, object_server.S3.etag(data))
                                for (_, key), data in store.objects.items())) + "\n"}
    assert set(store.ranges.values()) == {1}, store.ranges
    assert sent(store) == sum(map(len, store.objects.values()))


def test_damaged_blocks_are_downloaded_again(store, tmp_path):
    data = make.random_bytes(16 * BLOCK, 3)
    store.objects["bucket", "o"] = data
    with stoker.Engine(cache=stoker.Cache(tmp_path / "c", bytes="64MiB", block=BLOCK)) as engine:
        assert read("s3://bucket/o", engine) == data
    picks = random.Random(1)
    for path in (tmp_path / "c").glob("*data*"):
        raw = bytearray(path.read_bytes())
        for at in range(0, len(raw) - 40_000, BLOCK):
            raw[at + 4096 + picks.randrange(32_000)] ^= 1 << picks.randrange(8)
        path.write_bytes(raw)
    store.ranges.clear()
    with stoker.Engine(cache=tmp_path / "c") as engine:
        assert read("s3://bucket/o", engine) == data
        stats = engine.cache_stats()
    assert stats["blocks_dropped"] > 8 and sent(store) == BLOCK * stats["blocks_dropped"]


def test_full_cache_keeps_its_entries(store, tmp_path):
    """With space for half of the blocks, half of each later epoch is downloaded: a cache that
    evicts the least recently used block would find none."""
    data = make.random_bytes(32 * BLOCK, 4)
    store.objects["bucket", "o"] = data
    quota = 16 * (BLOCK + 16384) + 65536
    with stoker.Engine(cache=stoker.Cache(tmp_path / "c", bytes=quota, block=BLOCK)) as engine:
        for _ in range(3):
            store.ranges.clear()
            assert read("s3://bucket/o", engine) == data
        stats = engine.cache_stats()
    assert 0.4 < sent(store) / len(data) < 0.6
    assert stats["bypasses"] > 0 and stats["bytes_used"] <= quota
    on_disk = sum(path.stat().st_blocks * 512 for path in (tmp_path / "c").iterdir())
    assert on_disk <= quota


def test_several_folders_form_one_cache(store, tmp_path):
    data = make.random_bytes(32 * BLOCK, 5)
    store.objects["bucket", "o"] = data
    cache = stoker.Cache([tmp_path / "a", tmp_path / "b"], bytes="64MiB", block=BLOCK)
    for _ in range(2):
        with stoker.Engine(cache=cache) as engine:
            assert read("s3://bucket/o", engine) == data
    assert sent(store) == len(data)
    folders = cache.folders()
    assert sum(folder["blocks"] for folder in folders) == 32
    assert all(folder["blocks"] > 4 for folder in folders)
    (row,) = cache.ls("s3://bucket/")
    assert row["url"] == "s3://bucket/o" and row["bytes"] == len(data) and row["blocks"] == 32
    assert cache.ls("s3://other/") == []
    assert cache.pin("s3://bucket/o")[0]["blocks_pinned"] == 32
    assert [row["blocks_damaged"] for row in cache.verify()] == [0]
    cache.drop("s3://bucket/o")
    assert cache.ls() == [] and cache.folders()[0]["blocks"] == 0


def test_objects_without_a_strong_etag_are_not_cached(store, tmp_path, monkeypatch):
    monkeypatch.setattr(Counting, "say", lambda self, code, body=b"", **headers: (
        headers.update(ETag="W/" + headers["ETag"]) if "ETag" in headers else None,
        object_server.S3.say(self, code, body, **headers)))
    store.objects["bucket", "o"] = b"weak" * 1000
    with stoker.Engine(cache=tmp_path / "c", cache_bytes="64MiB") as engine:
        base = os.environ["AWS_ENDPOINT_URL"]
        store.keys = None
        for _ in range(2):
            assert read(f"{base}/bucket/o", engine) == b"weak" * 1000
        assert engine.cache_stats()["blocks_filled"] == 0


KILLED = textwrap.dedent("""
    import random, stoker, sys
    picks = random.Random(int(sys.argv[2]))
    engine = stoker.Engine(threads=1, cache=sys.argv[1])
    print("ready", flush=True)
    while True:
        name = f"o{picks.randrange(8)}"
        data = stoker.cat(f"s3://bucket/{name}", engine=engine)
        want = bytes([int(name[1:]) + 1]) * len(data)
        if data != want:
            print("wrong", flush=True)
    """)


def test_killed_processes_leave_a_good_cache(store, tmp_path):
    """Readers and fillers are killed at random moments while the cache is too small for the data,
    so that blocks are filled and dropped all the time."""
    for number in range(8):
        store.objects["bucket", f"o{number}"] = bytes([number + 1]) * (4 * BLOCK)
    quota = 20 * (BLOCK + 16384) + 65536
    folder = tmp_path / "c"
    cache = stoker.Cache(folder, bytes=quota, block=BLOCK)
    picks, kills, running = random.Random(7), 0, []
    while kills < 6:
        while len(running) < 3:
            running.append(subprocess.Popen([sys.executable, "-c", KILLED, folder, str(kills)],
                                            stdout=subprocess.PIPE, text=True))
            assert running[-1].stdout.readline() == "ready\n"
        time.sleep(picks.random() * 0.05)
        victim = running.pop(picks.randrange(len(running)))
        victim.send_signal(signal.SIGKILL)
        assert "wrong" not in victim.communicate()[0]
        kills += 1
        for number in (picks.randrange(8), picks.randrange(8)):
            cache.drop(f"s3://bucket/o{number}")
        used = sum(path.stat().st_blocks * 512 for path in folder.iterdir())
        assert used <= quota, (used, quota)
    for process in running:
        process.kill()
        process.communicate()
    cache.collect()
    assert cache.folders()[0]["blocks_filling"] == 0
    assert [row["blocks_damaged"] for row in cache.verify()] == [0] * len(cache.ls())
    start = time.monotonic()
    with stoker.Engine(cache=cache) as engine:
        for (_, key), data in store.objects.items():
            assert read(f"s3://bucket/{key}", engine) == data
    assert time.monotonic() - start < 5


def refused(make_cache, *words):
    with pytest.raises(stoker.Error) as caught:
        make_cache()
    assert all(word in str(caught.value) for word in words), caught.value


def test_bad_folders_are_refused(tmp_path):
    other = tmp_path / "other"
    other.mkdir(mode=0o700)
    (other / "thesis.tex").write_text("mine")
    refused(lambda: stoker.Cache(other), "other files", "thesis.tex")
    assert (other / "thesis.tex").read_text() == "mine"
    public = tmp_path / "public"
    public.mkdir()
    public.chmod(0o755)
    refused(lambda: stoker.Cache(public), "chmod 700")
    link = tmp_path / "link"
    link.symlink_to(public)
    refused(lambda: stoker.Cache(link), "link")
    refused(lambda: stoker.Cache(tmp_path / "a" / "b"), "cannot make")
    refused(lambda: stoker.Cache(tmp_path / "small", bytes=100_000), "quota")
    refused(lambda: stoker.Cache(tmp_path / "none", must_exist=True), "cannot open")
    good = tmp_path / "good"
    stoker.Cache(good, bytes="64MiB").close()
    index = good / "stoker-cache.index"
    raw = bytearray(index.read_bytes())
    raw[8] = 99
    index.write_bytes(raw)
    refused(lambda: stoker.Cache(good), "newer version")
    index.write_bytes(b"another program" * 1000)
    refused(lambda: stoker.Cache(good), "another program")


def test_folder_of_another_user_is_refused(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root to make a folder of another user")
    folder = tmp_path / "theirs"
    folder.mkdir(mode=0o700)
    os.chown(folder, 12345, 12345)
    refused(lambda: stoker.Cache(folder), "another user")


def test_full_disk_does_not_fail_a_run(store, tmp_path):
    """The floor of free space is above what the disk has: nothing is cached, all is read."""
    data = make.random_bytes(4 * BLOCK, 6)
    store.objects["bucket", "o"] = data
    cache = stoker.Cache(tmp_path / "c", bytes="64MiB", free=1 << 60, block=BLOCK)
    with stoker.Engine(cache=cache) as engine:
        assert read("s3://bucket/o", engine) == data
        stats = engine.cache_stats()
    assert stats["blocks_filled"] == 0 and stats["bypasses"] >= 4


def test_options_that_do_not_fit(tmp_path):
    with pytest.raises(stoker.ArgumentError, match="cache"):
        stoker.Engine(cache=5)
    with pytest.raises(stoker.ArgumentError, match="cache_bytes"):
        stoker.Engine(cache_bytes="1GB")
    with pytest.raises(stoker.ArgumentError, match="block"):
        stoker.Cache(tmp_path / "c", block=1000)


def command(*words, status=0):
    done = subprocess.run([os.environ["STOKER_COMMAND"], *map(str, words)], capture_output=True,
                          text=True, check=False)
    assert done.returncode == status, (words, done.stdout, done.stderr)
    return done.stdout


def test_command_fills_shows_and_changes_a_cache(store, tmp_path):
    data = make.random_bytes(3 << 20, 8)
    store.objects["bucket", "o"] = data
    folder = tmp_path / "c"
    copy = ["cp", "s3://bucket/o", tmp_path / "out", "--cache", folder]
    for _ in range(2):
        command(*copy, "--cache-bytes", "64M")
        assert (tmp_path / "out").read_bytes() == data
    assert sent(store) == len(data)
    row = json.loads(command("cache", "ls", "--cache", folder, "--json"))
    assert row["url"] == "s3://bucket/o" and row["bytes"] == row["object_bytes"] == len(data)
    stat = json.loads(command("cache", "stat", "--cache", folder, "--json"))
    assert stat["blocks"] == 1 and stat["bytes_max"] == 64 << 20
    assert "1 objects" in command("cache", "pin", "s3://bucket/", "--cache", folder)
    assert "pinned" in command("cache", "ls", "--cache", folder)
    command("cache", "unpin", "--cache", folder)
    assert "0 blocks freed" in command("cache", "gc", "--cache", folder)
    command("cache", "verify", "--cache", folder)
    for path in folder.glob("*data*"):
        if path.stat().st_size:
            with path.open("r+b") as file:
                file.seek(path.stat().st_size - 100_000)
                file.write(b"flip")
    assert "DAMAGED" in command("cache", "verify", "--cache", folder, status=1)
    (tmp_path / "out").unlink()
    command(*copy)
    command("cache", "drop", "--cache", folder, status=2)
    assert "dropped" in command("cache", "drop", "--all", "--cache", folder)
    assert command("cache", "ls", "--cache", folder, "--json") == ""
    command("cache", "ls", "--cache", tmp_path / "none", status=3)
    command("cache", "ls", status=2)
    command("cache", "sing", "--cache", folder, status=2)


def test_known_order_beats_keeping(store, tmp_path):
    """A loader that shuffles shards of 32 samples uses each block several times, within a shard.
    The cache has space for half of the data. If it keeps what it has, half of the reads are hits;
    with the order of the loader it evicts blocks of shards that are over."""
    block, samples = 32 << 10, 32
    for shard in range(8):
        path = make.tar(tmp_path / f"s{shard}.tar", [
            (f"{shard}-{i:03}.bin", make.random_bytes(7000, 1000 * shard + i))
            for i in range(samples)])
        store.objects["bucket", path.name] = path.read_bytes()
    quota = 4096 + 1024 * 32 + 34 * (block + 12288) + 8192
    cache = stoker.Cache(tmp_path / "c", bytes=quota, block=block)
    with stoker.Loader("s3://bucket/s{0..7}.tar", batch_size=8, seed=1,
                       fields={"x": stoker.Bytes("bin")}, memory="2MiB", threads=1,
                       shuffle="two-level", cache=cache) as loader:
        for _ in range(5):
            got = sorted(bytes(value) for batch in loader for value in batch["x"])
            assert len(got) == 8 * samples
            time.sleep(0.05)
        stats = loader.stats()["cache"]
    assert stats["blocks_evicted"] > 64, stats
    assert stats["hits"] > 1020, stats  # 940 if the cache keeps what it has
    assert stats["bytes_used"] <= quota
    assert got == sorted(make.random_bytes(7000, 1000 * shard + i)
                         for shard in range(8) for i in range(samples))
    on_disk = sum(path.stat().st_blocks * 512 for path in (tmp_path / "c").iterdir())
    assert on_disk <= quota


def share(folder, node, *more, status=0):
    return json.loads(command("prewarm", "--json", "--cache", folder, "--cache-bytes", "256M",
                              "--node", node, *more, status=status))


def test_prewarm_fills_the_share_of_a_node(store, tmp_path):
    """Two nodes fill their caches from the order with home groups; then each node's loader finds
    its blocks. The budget and the rate hold, and a second run downloads nothing."""
    block, samples, size = 256 << 10, 72, 1 << 20
    for shard in range(samples // 3):
        path = make.tar(tmp_path / f"s{shard:02}.tar", [
            (f"{i:03}.bin", make.random_bytes(size, i)) for i in range(3 * shard, 3 * shard + 3)])
        store.objects["bucket", path.name] = path.read_bytes()
    url, settings = "s3://bucket/s{00..23}.tar", ("--home-groups", 2, "--seed", 5)
    folders = [tmp_path / "node0", tmp_path / "node1"]
    for folder in folders:
        stoker.Cache(folder, bytes="64MiB", block=block).close()
    done = [share(folder, f"{i}/2", *settings, url) for i, folder in enumerate(folders)]
    for row, folder in zip(done, folders, strict=True):
        assert row["bytes_done"] <= row["bytes_read"] + block
        assert 0.4 * samples * size < row["bytes_done"] < 0.7 * samples * size
        number = folders.index(folder)
        again = share(folder, f"{number}/2", *settings, url)
        assert again["bytes_done"] == row["bytes_done"]
        assert again["bytes_read"] == 0, (row["bytes_read"], again["bytes_read"])
        with stoker.Loader(url, batch_size=4, fields={"x": stoker.Bytes("bin")}, seed=5, groups=2,
                           rank=number, world_size=2, cache=folder) as loader:
            before = loader.stats()["cache"]["bytes_from_origin"]
            delivered = sum(len(value) for batch in loader for value in batch["x"])
            missed = loader.stats()["cache"]["bytes_from_origin"] - before
        assert delivered == samples * size // 2
        assert missed <= delivered / 4, "only a block that belongs to no group"
    small = tmp_path / "small"
    stoker.Cache(small, bytes="64MiB", block=block).close()
    part = share(small, "0/1", "--budget", 10 * block, url)
    assert part["bytes_done"] <= 10 * block
    slow = tmp_path / "slow"
    stoker.Cache(slow, bytes="256MiB", block=block).close()
    late = share(slow, "0/1", "--rate", 1, url, "--seconds", 1, status=1)
    assert late["bytes_read"] <= block, "at a byte a second there is no time for a second block"
    rest = share(slow, "0/1", url)
    assert rest["bytes_done"] >= samples * size
    assert late["bytes_read"] + rest["bytes_read"] <= rest["bytes_done"] + block
    for words in (["--node", "2/2"], ["--node", "x"], ["--budget", "1M"],
                  ["--node", "0/2", "--home-groups", "3"], ["--node", "0/2", "--check"]):
        command("prewarm", "--cache", small, *words, url, status=2)


def test_killed_prewarm_reads_no_cached_block_again(store, tmp_path):
    """A prewarm that is killed after a random number of requests, and continued: each run requests
    only blocks that were not in the cache when it began."""
    block, shards = 64 << 10, 6
    for shard in range(shards):
        path = make.tar(tmp_path / f"s{shard}.tar", [
            (f"{i}.bin", make.random_bytes(200_000, 10 * shard + i)) for i in range(4)])
        store.objects["bucket", path.name] = path.read_bytes()
    folder, url = tmp_path / "c", f"s3://bucket/s{{0..{shards - 1}}}.tar"
    cache = stoker.Cache(folder, bytes="64MiB", block=block)
    blocks = sum(-(-len(data) // block) for data in store.objects.values())
    words = [os.environ["STOKER_COMMAND"], "prewarm", "--cache", folder, "--node", "0/1",
             "--workers", "2", url]
    picks, cached, requested, store.pause = random.Random(11), 0, 0, 0.005
    idle = threading.active_count()
    for _ in range(5):
        target = requested + picks.randrange(1, 20)
        with subprocess.Popen(words, stdout=subprocess.DEVNULL) as process:
            while sum(store.ranges.values()) < target and process.poll() is None:
                time.sleep(0.001)
            process.kill()
        while threading.active_count() > idle:  # the store reads the requests that the process sent
            time.sleep(0.001)
        before, requested = requested, sum(store.ranges.values())
        assert requested - before <= blocks - cached, store.ranges
        cached = cache.folders()[0]["blocks"]
    store.pause = 0
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, timeout=200)
    assert sum(store.ranges.values()) - requested == blocks - cached
    assert cache.folders()[0]["blocks"] == blocks
    with stoker.Engine(cache=cache) as engine:
        for (_, key), data in store.objects.items():
            assert read(f"s3://bucket/{key}", engine) == data
    assert sum(store.ranges.values()) - requested == blocks - cached, "all came from the cache"


def test_statistics_say_what_a_cache_saves(store, tmp_path):
    url = put_shards(store, tmp_path)
    folder = tmp_path / "c"
    for number in range(2):
        with stoker.Engine(cache=folder, cache_bytes="64MiB") as engine:
            for _ in range(3):
                read("s3://bucket/s0.tar", engine)
            stats = engine.cache_stats()
        assert stats["hit_ratio"] == stats["hits"] / (stats["hits"] + stats["misses"])
        assert (stats["hit_ratio"] == 1) == (number == 1)
        assert stats["saved"] == pytest.approx(
            stats["hits"] * stoker.engine.prices()["s3"]["get"])
    words = ["bench", "data", "--cache", folder, "--epochs", "1", "--raw", url]
    shown = command(*words, "--json")
    cache = json.loads(shown)["cache"]
    assert cache["hits"] > 0 and cache["bytes_from_cache"] > 0
    assert cache["hit_ratio"] == pytest.approx(cache["hits"] / (cache["hits"] + cache["misses"]))
    assert cache["dollars_saved"] == pytest.approx(
        cache["hits"] * stoker.engine.prices()["s3"]["get"])
    assert "node cache" in command(*words)
    plain = ["bench", "data", "--epochs", "1", "--raw", tmp_path / "s0.tar", "--json"]
    assert "cache" not in json.loads(command(*plain))


def test_info_says_what_a_cache_would_gain(store, tmp_path):
    url = put_shards(store, tmp_path)
    row = json.loads(command("info", "--json", url))
    size = row["bytes"]
    assert row["cache"]["bytes_max"] == row["cache"]["bytes_saved_per_epoch"] == 0
    assert size < row["cache"]["bytes_needed"] < 1.1 * size + (2 << 20)
    assert "each epoch downloads" in command("info", url)
    row = json.loads(command("info", "--json", "--cache", tmp_path / "c", "--cache-bytes", "64M",
                             url))
    assert row["cache"]["share_cached"] == 1 and row["cache"]["bytes_saved_per_epoch"] == size
    assert "later epochs download 0 B" in command("info", "--cache", tmp_path / "c", url)
    assert "cache" not in json.loads(command("info", "--json", tmp_path / "s0.tar"))


def test_folder_behind_fuse_is_refused(tmp_path):
    """Locks and shared memory of a file system behind FUSE are not those of the machine."""
    if not fuse_server.Mount.is_possible():
        pytest.skip("needs root and /dev/fuse")
    (tmp_path / "data" / "cache").mkdir(parents=True, mode=0o700)
    with fuse_server.Mount(tmp_path / "data", tmp_path / "point") as mount:
        refused(lambda: stoker.Cache(mount.point / "cache"), "disk of this machine")
