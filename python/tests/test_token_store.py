"""Token files behind URLs, which are read by ranges.

Goal: a token loader over a store returns the rows that it returns over the same files on a disk, of
any kind, in any order, resumed anywhere; the parts of files in memory stay within the bound, and it
requests each byte about once an epoch; changed objects and failing stores are errors.
Method: a store of the tests that writes down the ranges that it sends."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import stoker
from object_server import S3
from test_node_cache import sent, store  # noqa: F401

BYTES = 1 << 20
CACHE = BYTES // 4
BLOCK = 32 << 10
EOD = 7


@pytest.fixture(autouse=True)
def fast_store(monkeypatch):
    """Objects are hashed once, not at each request."""
    etags = {}

    def etag(data):
        if id(data) not in etags:
            etags[id(data)] = data, hashlib.md5(data).hexdigest()
        return etags[id(data)][1]

    monkeypatch.setattr(S3, "etag", staticmethod(etag))
    monkeypatch.setattr(S3, "seals", lambda *_: {})


def ids(count=BYTES // 2, seed=1):
    values = np.random.default_rng(seed).integers(0, 50000, count).astype("uint16")
    values[::97] = EOD
    return values


def put_raw(folder, store):
    paths = [folder / f"{name}.bin" for name in "ab"]
    for number, path in enumerate(paths):
        ids(seed=number).tofile(path)
    return put(store, paths), [str(path) for path in paths]


def put_npy(folder, store):
    path = folder / "a.npy"
    np.save(path, ids())
    return put(store, [path]), [str(path)]


def put_megatron(folder, store):
    values = ids()
    lengths = np.full(64, len(values) // 64, np.int32)
    pointers = (np.cumsum(lengths, dtype=np.int64) - lengths) * 2
    head = b"MMIDIDX\0\0" + np.array(1, "<u8").tobytes() + bytes([8])
    head += np.array([64, 65], "<u8").tobytes()
    (folder / "m.idx").write_bytes(head + lengths.tobytes() + pointers.tobytes() +
                                   np.arange(65, dtype=np.int64).tobytes())
    values.tofile(folder / "m.bin")
    put(store, [folder / "m.idx", folder / "m.bin"])
    return ["s3://bucket/m"], [str(folder / "m")]


KINDS = {"raw": put_raw, "npy": put_npy, "megatron": put_megatron}


def put(store, paths):
    for path in paths:
        store.objects["bucket", path.name] = path.read_bytes()
    return [f"s3://bucket/{path.name}" for path in paths]


def open_loader(files, engine=None, cache=CACHE, **options):
    """A loader whose window has two blocks of 32 KiB, of the cache's 256 KiB."""
    npy = str(files[0]).endswith((".npy", "/m"))
    tokens = stoker.Tokens(files, stored=None if npy else "uint16", cache=cache, engine=engine)
    settings = {"seed": 3, "shuffle": "block", "window": 2, "block_bytes": BLOCK,
                "output": "numpy", **options}
    return stoker.TokenLoader(tokens, **{"batch_size": 8, "context": 1024, **settings})


def rows(loader):
    """The arrays of all batches of an epoch, as bytes."""
    return [values(batch) for batch in loader]


def values(value):
    if isinstance(value, dict):
        return {name: values(part) for name, part in value.items()}
    if isinstance(value, (list, tuple, stoker.Ragged)):
        return [values(part) for part in value]
    return value.tobytes() if isinstance(value, np.ndarray) else value


def size_of(store):
    return sum(map(len, store.objects.values()))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [
    {},
    {"rows": "packed", "eod": EOD, "chunk": 16},
    {"rows": "documents", "context": None, "eod": EOD, "batch_size": 8},
    {"shuffle": "none", "batch_size": 64},
], ids=["windows", "packed", "documents", "in order"])
def test_rows_are_those_of_local_files(kind, options, store, tmp_path):  # noqa: F811
    urls, paths = KINDS[kind](tmp_path, store)
    if kind == "megatron":
        options = {name: value for name, value in options.items() if name != "eod"}
    want = rows(open_loader(paths, **options))
    assert len(want) > 5
    assert rows(open_loader(urls, **options)) == want


def test_open_reads_only_the_ends(store, tmp_path):  # noqa: F811
    """A file of any size can be opened: at first its head and its end are read, then the first
    batches."""
    urls, paths = put_raw(tmp_path, store)
    loader = open_loader(urls)
    assert sent(store) < 0.3 * size_of(store)
    assert loader.tokens.identity == stoker.Tokens(paths, stored="uint16").identity
    next(iter(loader))
    assert sent(store) < 0.6 * size_of(store)


def test_an_epoch_requests_each_byte_about_once(store, tmp_path):  # noqa: F811
    """The window of the order fits into the cache, which is an eighth of the files."""
    urls, _ = put_raw(tmp_path, store)
    rows(open_loader(urls))
    heads = 2 * (128 << 10)  # one a file, read at open
    assert sent(store) < size_of(store) + heads + CACHE  # the next epoch is prefetched


def test_a_full_shuffle_requests_samples(store, tmp_path):  # noqa: F811
    """Blocks would be requested again for each of their samples."""
    urls, paths = put_npy(tmp_path, store)
    options = {"shuffle": "full", "batch_size": 32}
    assert rows(open_loader(urls, **options)) == rows(open_loader(paths, **options))
    assert sent(store) < 1.1 * size_of(store) + (128 << 10) + CACHE


def test_memory_is_within_the_budget(store, tmp_path):  # noqa: F811
    """The cache takes half of the budget by default, and frees memory that others need."""
    urls, paths = put_raw(tmp_path, store)
    with stoker.Engine(memory=BYTES, threads=1) as engine:
        loader = open_loader(urls, engine, cache=None)
        got = rows(loader)
        peak = engine.info()["memory_bytes_peak"]
    assert got == rows(open_loader(paths))
    assert peak <= BYTES


@pytest.mark.parametrize("shuffle", ["block", "full"])
def test_resume(shuffle, store, tmp_path):  # noqa: F811
    urls, paths = put_raw(tmp_path, store)
    want = rows(open_loader(paths, shuffle=shuffle))
    loader = open_loader(urls, shuffle=shuffle)
    batches = iter(loader)
    head = [values(next(batches)) for _ in range(5)]
    state = loader.state_dict()
    resumed = open_loader(urls, shuffle=shuffle)
    resumed.load_state_dict(state)
    assert head + rows(resumed) == want
    loader.load_state_dict(state)  # the ranges that were prefetched for other positions are freed
    assert rows(loader) == want[5:]


def test_a_changed_object_is_an_error(store, tmp_path):  # noqa: F811
    urls, _ = put_raw(tmp_path, store)
    loader = open_loader(urls, on_error="skip")
    batches = iter(loader)
    next(batches)
    store.objects["bucket", "a.bin"] = ids(seed=11).tobytes()
    store.objects["bucket", "b.bin"] = ids(seed=12).tobytes()
    with pytest.raises(stoker.ChangedError, match=r"s3://bucket/[ab]\.bin"):
        list(batches)


def test_a_shorter_file_than_its_index_is_found_at_open(store, tmp_path):  # noqa: F811
    put_megatron(tmp_path, store)
    store.objects["bucket", "m.bin"] = store.objects["bucket", "m.bin"][:-2]
    with pytest.raises(stoker.TruncatedError, match=r"m\.idx"):
        stoker.Tokens(["s3://bucket/m"])


def test_rows_with_foreign_ids_are_skipped(store, tmp_path):  # noqa: F811
    urls, paths = put_npy(tmp_path, store)
    found = []
    for files in (paths, urls):
        tokens = stoker.Tokens(files, vocab=49990, cache=CACHE)
        loader = stoker.TokenLoader(tokens, 8, 64, shuffle="block", window=2, seed=1,
                                    block_bytes=BLOCK, on_error="skip", output="numpy")
        found.append((rows(loader), loader.stats()["bad_samples"]))
    assert found[0] == found[1]
    assert found[0][1] > 5


def test_ranks_request_their_own_samples(store, tmp_path):  # noqa: F811
    """Without groups each rank has samples of all blocks."""
    urls, paths = put_npy(tmp_path, store)
    seen = []
    for rank in range(4):
        store.ranges.clear()
        options = {"rank": rank, "world_size": 4, "batch_size": 4}
        got = rows(open_loader(urls, **options))
        assert got == rows(open_loader(paths, **options))
        assert sent(store) < size_of(store) / 2 + CACHE
        seen += got
    assert len(seen) == 4 * len(got)


def test_second_epoch_comes_from_the_node_cache(store, tmp_path):  # noqa: F811
    urls, paths = put_raw(tmp_path, store)
    cache = stoker.Cache(tmp_path / "cache", bytes="64MiB", block=256 << 10)
    with stoker.Engine(cache=cache) as engine:
        loader = open_loader(urls, engine)
        want = open_loader(paths)
        assert rows(loader) == rows(want)
        assert sent(store) == size_of(store)
        store.ranges.clear()
        assert rows(loader) == rows(want)
        assert not store.ranges
        loader.close()


def test_the_order_decides_what_a_node_cache_evicts(store, tmp_path):  # noqa: F811
    """The cache has space for half of the blocks. Readers whose order is not known evict
    nothing; a token loader publishes its order, so blocks that are used later are evicted."""
    urls, paths = put_npy(tmp_path, store)
    block = 32 << 10
    quota = 4096 + 1024 * 32 + 18 * (block + 12288) + 8192
    cache = stoker.Cache(tmp_path / "cache", bytes=quota, block=block)
    options = {"batch_size": 4, "block_bytes": 128 << 10}
    with stoker.Engine(cache=cache) as engine:
        with open_loader(urls, engine, cache=64 << 10, **options) as loader:
            want = open_loader(paths, **options)
            for _ in range(4):
                assert rows(loader) == rows(want)
            assert list((tmp_path / "cache").glob("stoker-cache.future-*"))
        stats = engine.cache_stats()
    assert stats["blocks_evicted"] > 16, stats
    assert stats["bytes_used"] <= quota
