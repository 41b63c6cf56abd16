"""The order that loaders, packs and commands choose, its part of a state, and reports of mixing."""

import collections
import json
import os
import pathlib
import subprocess

import make
import pytest
from fuse_server import Mount

import stoker

COMMAND = os.environ.get("STOKER_COMMAND", "stoker")
CLASSES, EACH = 20, 25


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("classes")
    for number in range(CLASSES):
        for image in range(EACH):
            make.write(root / f"c{number:02}" / f"{image:03}.jpg", b"%d %d" % (number, image))
    return root


@pytest.fixture(scope="module")
def class_tars(folder, tmp_path_factory):
    packed = tmp_path_factory.mktemp("packed") / "set"
    stoker.pack(folder, packed, keep_order=True, shard_bytes="64KiB")
    return packed


FIELDS = {"id": "__id__"}


def open_loader(source, batch=32, **options):
    return stoker.Loader(source, batch, fields=FIELDS, output="numpy", **options)


def ids(loader):
    return [list(batch["id"]) for batch in loader]


def command(*words, code=0):
    done = subprocess.run([COMMAND, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return done.stdout


def check_window(memory, *words):
    """The default order of a place where reads are not free."""
    facts = json.loads(command("info", "--json", "--memory", memory, *words))
    block_bytes = facts["bytes"] // facts["samples"] * facts["block_samples"]
    assert facts["shuffle"] == "block"
    assert facts["window_blocks"] <= memory / 2 / block_bytes < 2 * facts["window_blocks"]
    return facts["window_blocks"]


def test_the_default_window_of_a_store_fills_half_of_the_memory(nginx, shelf):
    url = f"{nginx.url}/tars/{min(path.name for path in (shelf / 'tars').glob('*.tar'))}"
    small, large = (check_window(memory, url) for memory in (2 << 30, 16 << 30))
    assert 64 < small < large
    with stoker.Engine(memory="2GiB") as engine, open_loader(url, 1, engine=engine) as loader:
        assert (loader.shuffle, loader.window) == ("block", small)


@pytest.mark.skipif(not Mount.is_possible(), reason="no root, or no /dev/fuse")
def test_the_default_window_of_a_slow_mount_fills_half_of_the_memory(class_tars, tmp_path):
    with Mount(class_tars, tmp_path / "m"):
        check_window(2 << 30, tmp_path / "m")


def test_the_default_is_a_full_permutation(folder, class_tars):
    for source in (folder, class_tars):
        with open_loader(source, seed=3) as loader, open_loader(
            source, seed=3, shuffle="full"
        ) as full:
            assert loader.shuffle == "full" and loader.order_version == stoker.ORDER_VERSION
            assert ids(loader) == ids(full)
    with open_loader(folder, window=7) as loader:  # it has a meaning for blocks only
        assert (loader.shuffle, loader.window) == ("block", 7)
    with open_loader(folder, shuffle="block") as loader:
        assert (loader.shuffle, loader.window) == ("block", 64)


def test_no_batch_of_one_class(folder, class_tars):
    """As in a full permutation: no batch has most of its samples from one class."""
    for source in (folder, class_tars):
        with open_loader(source) as loader:
            for _ in range(5):
                for batch in ids(loader):
                    most = collections.Counter(i // EACH for i in batch).most_common(1)[0][1]
                    assert most <= 10


@pytest.mark.parametrize(
    "options",
    [
        {"shuffle": "block", "window": 3},
        {"shuffle": "block", "order_version": 1},
        {"shuffle": "full", "order_version": 1},
    ],
)
def test_a_state_continues_in_its_order(class_tars, options):
    with open_loader(class_tars, seed=1, **options) as run:
        iterator = iter(run)
        for _ in range(5):
            next(iterator)
        state = json.loads(json.dumps(run.state_dict()))
        want = [list(batch["id"]) for batch in iterator] + ids(run)
        print_ = run.stats()["fingerprint"]
    with open_loader(class_tars, seed=1) as loader:
        next(iter(loader))
        loader.load_state_dict(state)
        assert loader.shuffle == options["shuffle"]
        assert loader.order_version == options.get("order_version", stoker.ORDER_VERSION)
        assert loader.state_dict() == state
        assert ids(loader) + ids(loader) == want
        assert loader.stats()["fingerprint"] == print_
    other = {"shuffle": "none"} if options["shuffle"] == "full" else {"shuffle": "full"}
    with open_loader(class_tars, seed=1, **other) as loader, pytest.raises(
        stoker.StateError, match="shuffle"
    ):
        loader.load_state_dict(state)


def test_explain_follows_the_state(class_tars):
    with open_loader(class_tars, shuffle="block", window=2, order_version=1) as run:
        want = [row.sample for row in run.explain(3)]
        state = run.state_dict()
    with open_loader(class_tars) as loader:
        assert [row.sample for row in loader.explain(3)] != want
        loader.load_state_dict(state)
        assert [row.sample for row in loader.explain(3)] == want
        assert want == ids(loader)[3]


@pytest.mark.parametrize("rows", ["windows", "documents"])
def test_tokens(tmp_path, rows):
    path = tmp_path / "t.bin"
    path.write_bytes(bytes(range(1, 251)) * 400)
    more = {"eod": 250} if rows == "documents" else {}
    options = {"stored": "uint8", "rows": rows, "output": "numpy", "tail": "keep", **more}

    def open_tokens(**extra):
        return stoker.TokenLoader(path, 16, 25, **options, **extra)

    def walk(batches):
        return [[list(map(int, row)) for row in batch[0]] for batch in batches]

    with open_tokens() as loader, open_tokens(shuffle="full") as full:
        assert loader.shuffle == "full"
        assert walk(loader) == walk(full)
    with open_tokens(shuffle="block", window=2, order_version=1) as run:
        iterator = iter(run)
        next(iterator)
        state = run.state_dict()
        want = walk(iterator)
    with open_tokens() as loader:
        loader.load_state_dict(state)
        assert walk(loader) == want and loader.order_version == 1


def test_a_mix_continues_in_version_1(class_tars, folder):
    mix = stoker.Mix([class_tars, folder], [1, 2], epoch=300)
    with open_loader(mix, 20, order_version=1, shuffle="block", tail="wrap") as run:
        iterator = iter(run)
        for _ in range(4):
            next(iterator)
        state = json.loads(json.dumps(run.state_dict()))
        want = [list(batch["id"]) for batch in iterator]
    with open_loader(mix, 20, tail="wrap") as loader:
        loader.load_state_dict(state)
        assert ids(loader) == want and loader.order_version == 1
        border = loader.set_weights([1, 1])
        again = loader.state_dict()
        assert again["order_version"] == 1 and again["weights"][-1] == [border, [1, 1]]


def test_refresh_keeps_the_order(folder, tmp_path):
    root = tmp_path / "grows"
    stoker.pack(folder, root, keep_order=True, shard_bytes="64KiB")
    os.remove(root / "stoker.index")
    os.remove(root / "stoker.manifest.json")
    last = sorted(root.glob("*.tar"))[-1]
    later = tmp_path / last.name
    os.rename(last, later)
    pattern = str(root / "*.tar")
    with open_loader(pattern, shuffle="block", window=2, order_version=1, refresh="call") as run:
        state = run.state_dict()
    with open_loader(pattern, refresh="call") as loader:
        loader.load_state_dict(state)
        os.rename(later, last)
        loader.refresh()
        again = loader.state_dict()
    assert (again["order_version"], again["shuffle"], again["window"]) == (1, 1, 2)


def test_info_and_order_report_mixing(folder, class_tars, tmp_path):
    for source in (folder, class_tars):
        info = json.loads(command("info", "--json", source))
        assert info["shuffle"] == "full" and info["random_reads_free"]
        full = info["mixing"]["full_batch_classes"]  # of another seed
        assert info["mixing"]["batch_classes"] == pytest.approx(full, rel=0.1)
        words = ("--batch", 32, "--shuffle", "block", "--block-samples", 25, "--window-blocks", 2)
        info = json.loads(command("order", "--json", *words, source))["mixing"]
        assert info["classes"] == CLASSES
        assert info["batch_classes"] < 6 < 12 < info["full_batch_classes"]
        assert info["run_max"] >= 5 and info["chi_square"] > 3 > 1.5 > info["full_chi_square"]
        assert info["better_window_blocks"] > 2
        text = command("order", *words, source)
        assert info["note"] in text and "chi-square by position" in text
        assert f"window={info['better_window_blocks']} gives" in info["note"]


def test_order_reports_labels_of_a_file(tmp_path):
    path = tmp_path / "labels.txt"
    path.write_text("".join(f"name {i // 100}\n" for i in range(1000)))
    words = ("--samples", 1000, "--block-samples", 100, "--window-blocks", 1, "--batch", 50)
    info = json.loads(command("order", "--json", *words, "--labels", path))["mixing"]
    assert (info["classes"], info["batch_classes"], info["run_max"]) == (10, 1.0, 100)
    assert info["batch_share_max"] == 1.0
    path.write_text("one\n")
    assert "order" in subprocess.run(
        [COMMAND, "order", *map(str, words), "--labels", path], capture_output=True, text=True
    ).stderr
    command("order", *words, "--labels", path, code=2)
    command("order", *words, "--labels", tmp_path / "none", code=3)
    command("order", *words, "--labels", tmp_path, code=3)


@pytest.mark.parametrize("path", ["/dev/zero", "more", "long"])
def test_files_of_labels_have_a_bound(tmp_path, path):
    """A line that is too long, and a line too many, end the read."""
    (tmp_path / "more").write_text("1\n" * 101)
    (tmp_path / "long").write_text("1\n" * 98 + "x" * 5000 + "\n")
    run = subprocess.run(
        [COMMAND, "order", "--samples", "100", "--labels", tmp_path / path],
        capture_output=True, text=True, timeout=60)
    assert run.returncode == 2 and "not a label for each sample" in run.stderr


def test_mixing_of_a_loader(folder):
    with open_loader(folder, 32) as loader:
        assert "as a full shuffle" in loader.note or "a full shuffle gives" in loader.note
        info = loader.mixing()
        assert info["classes"] == CLASSES
        assert info["batch_classes"] == pytest.approx(info["full_batch_classes"], rel=0.1)
    with open_loader(folder, 32, shuffle="block", window=1) as loader:
        info = loader.mixing(labels=[i // EACH for i in range(CLASSES * EACH)])
        assert info["note"].startswith(f"{info['batch_classes']:.0f} classes per batch")


def order_of(packed):
    with stoker.Dataset(packed) as dataset:
        keys = [dataset[number]["__key__"] for number in range(len(dataset))]
    return keys, (packed / "stoker.manifest.json").read_text()


def test_pack_shuffles(folder, tmp_path):
    done = stoker.pack(folder, tmp_path / "a", shard_bytes="64KiB")
    assert done["shuffled"] and done["seed"] == 0
    stoker.pack(folder, tmp_path / "b", shard_bytes="64KiB", shuffle=0)
    stoker.pack(folder, tmp_path / "c", shard_bytes="64KiB", shuffle=1)
    done = stoker.pack(folder, tmp_path / "d", shard_bytes="64KiB", keep_order=True)
    assert not done["shuffled"]
    (a, of_a), (b, _), (c, _), (d, of_d) = (order_of(tmp_path / name) for name in "abcd")
    assert a == b != c and sorted(a) == sorted(c) == sorted(d) and d == sorted(d)
    assert '"order": "shuffled"' in of_a and '"order": "source"' in of_d
    info = json.loads(command("pack", "--json", "--shard-size", "64K", folder, tmp_path / "e"))
    assert info["order"] == "shuffled" and order_of(tmp_path / "e")[0] == a
    text = command("pack", "--shard-size", "64K", "--keep-order", folder, tmp_path / "f")
    assert "of the source" in text and order_of(tmp_path / "f")[0] == d
    with pytest.raises(stoker.ArgumentError, match="exclude"):
        stoker.pack(folder, tmp_path / "g", shuffle=1, keep_order=True)
    command("pack", "--shuffle", 1, "--keep-order", folder, tmp_path / "g", code=2)


def test_an_unfinished_pack_continues_in_its_order_only(folder, tmp_path):
    """A pack without options never continues one with keep_order."""

    def stop(progress):
        if progress["shards_done"] > 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stoker.pack(folder, tmp_path / "a", shard_bytes="4KiB", keep_order=True, progress=stop)
    assert pathlib.Path(tmp_path / "a.part").exists()
    with pytest.raises(stoker.StateError, match='order: "source" before, "shuffled" now'):
        stoker.pack(folder, tmp_path / "a", shard_bytes="4KiB")
    done = stoker.pack(folder, tmp_path / "a", shard_bytes="4KiB", keep_order=True)
    assert not done["shuffled"] and done["samples_kept"] > 0
    assert order_of(tmp_path / "a")[0] == sorted(order_of(tmp_path / "a")[0])


@pytest.mark.parametrize("shuffle", ["none", "two-level", "full", "block"])
def test_a_loader_without_settings_adopts_each_shuffle(tmp_path, shuffle):
    members = [part for i in range(60) for part in make.sample(i)]
    tar = make.tar(tmp_path / "a.tar", members)
    with open_loader(tar, 8, shuffle=shuffle) as loader:
        batches = iter(loader)
        next(batches)
        state = loader.state_dict()
        want = ids(batches)
    with open_loader(tar, 8) as loader:
        loader.load_state_dict(state)
        assert loader.shuffle == shuffle
        assert ids(loader) == want
        assert loader.state_dict()["shuffle"] == state["shuffle"]
    other = "full" if shuffle != "full" else "block"
    with (
        open_loader(tar, 8, shuffle=other) as loader,
        pytest.raises(stoker.StateError, match=f"shuffle: {shuffle} in the state, {other} here"),
    ):
        loader.load_state_dict(state)


def test_a_folder_refuses_a_two_level_state_by_name(tmp_path):
    for i in range(16):
        make.jpeg(tmp_path / "f" / "c" / f"{i:02}.jpg", i)
    with open_loader(tmp_path / "f", 8) as loader:
        state = loader.state_dict()
        state["shuffle"] = 4
        with pytest.raises(stoker.StateError, match="shuffle: two-level in the state, full here"):
            loader.load_state_dict(state)


@pytest.mark.parametrize("tail", ["drop", "pad", "wrap", "keep"])
def test_a_position_past_the_epoch_is_refused(tmp_path, tail):
    members = [part for i in range(30) for part in make.sample(i)]
    tar = make.tar(tmp_path / "a.tar", members)
    with open_loader(tar, 8, tail=tail) as loader:
        for _ in loader:
            loader.load_state_dict(loader.state_dict())  # each state of a run, its end included
            break
        for _ in range(3):
            for _ in loader:
                state = loader.state_dict()
            loader.load_state_dict(state)
        state = loader.state_dict()
        for position, text in ((1000032, "position past the end"), (True, "position is True")):
            with pytest.raises(stoker.StateError, match=text):
                loader.load_state_dict({**state, "position": position})


def test_a_long_label_does_not_stop_the_mixing(tmp_path):
    members = []
    for i in range(64):
        label = b"x" * 100_000 if i == 5 else b"%d" % (i // 16)
        members += [(f"{i:03}.jpg", make.encoded(make.pixels(i))), (f"{i:03}.cls", label)]
    tar = make.tar(tmp_path / "a.tar", members)
    want = "1 sample has no usable label (cls too long)"
    with open_loader(tar, 16) as loader:
        assert want in loader.note
        assert loader.mixing()["classes"] == 5
    for name in ("info", "order"):
        run = subprocess.run(
            [COMMAND, name, "--batch", "16", tar],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert run.returncode == 0, run.stderr
        assert want in run.stdout
        if name == "info":
            assert "classes     5 among the labels" in run.stdout
            assert "memory of a loader" in run.stdout


def test_commands_name_how_compressed_shards_are_shuffled(tmp_path):
    members = [part for i in range(20) for part in make.sample(i)]
    tar = make.tar(tmp_path / "a.tar.gz", members, mode="w:gz")

    def run(*words):
        line = [COMMAND, *map(str, words)]
        return subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)

    info = run("info", tar).stdout
    assert "--seek-points" in info and "mixing      not measured: storage order" in info
    mixing = json.loads(run("info", "--json", tar).stdout)["mixing"]
    assert mixing["steps"] == 0 and mixing["note"].startswith("not measured: storage order")
    assert "--seek-points" in run("pack", tar, tmp_path / "kept").stdout
    refused = run("pack", "--shuffle", 5, tar, tmp_path / "none")
    assert refused.returncode != 0 and "stoker index --seek-points" in refused.stderr
    assert run("index", "--seek-points", tar).returncode == 0
    packed = run("pack", "--shuffle", 5, tar, tmp_path / "mixed")
    assert packed.returncode == 0 and "shuffled with seed 5" in packed.stdout
