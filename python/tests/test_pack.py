"""stoker.pack and ShardWriter on a real file system: kills, Ctrl-C, full and read-only disks.

Goal: pack is the command; whatever stops a run, the next one ends with the same bytes, and no final
name stands on half a data set.
Method: child processes that are killed at random instants (the seed is printed), a small tmpfs, and
comparison of every byte with a run that nothing stopped. STOKER_TEST_LONG=1: 250 kills each.
"""

import contextlib
import errno
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import time

import make
import pytest
import stoker
from test_cli import COMMAND, on_terminal

KILLS = 250 if os.environ.get("STOKER_TEST_LONG") else 12


def files(folder):
    return {path.name: path.read_bytes() for path in pathlib.Path(folder).iterdir()}


def is_done(destination):
    """A kill between the rename and the last sweep leaves the plan in it: the next run takes it."""
    return destination.exists() and not (destination / "stoker.plan.json").exists()


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """200 pictures of 4 classes with captions, and some with JSON: 2 MB."""
    root = tmp_path_factory.mktemp("source")
    for number in range(200):
        path = root / f"class {number % 4}" / f"p.{number:03}.jpeg"
        make.jpeg(path, number, height=90 + number % 50, width=120)
        path.with_suffix(".txt").write_text(f"Bild {number}: ü")
        if number % 5 == 0:
            path.with_suffix(".json").write_text(json.dumps({"number": number}))
    return root


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    """60 names of one large JPEG: to make them smaller takes one thread half a second or more."""
    folder = tmp_path_factory.mktemp("slow") / "class"
    first = make.write(folder / "000.jpg", make.encoded(make.pixels(1, 900, 1200)))
    for number in range(1, 60):
        os.link(first, folder / f"{number:03}.jpg")
    return folder.parent


# ---- pack ----


def test_pack(source, tmp_path):
    seen = []
    done = stoker.pack(source, tmp_path / "dst", shard_bytes="256 KiB", progress=seen.append)
    assert done == {**seen[-1], "bad": []} and done["phase"] == "done"
    assert done["samples"] == done["samples_done"] == 200 and done["samples_kept"] == 0
    assert done["shards"] == done["shards_done"] > 4
    got = files(tmp_path / "dst")
    assert done["bytes_done"] == sum(len(got[name]) for name in got if name.endswith(".tar"))
    with stoker.Dataset(tmp_path / "dst") as dataset:
        samples = [dataset[number] for number in range(200)]
    for sample in samples:
        label, number = int(sample["cls"]), int(sample["__key__"][-3:])
        path = source / f"class {label}" / f"p.{number:03}.jpeg"
        assert number % 4 == label and sample["__key__"] == f"class {label}/p_{number:03}"
        assert sample["jpg"] == path.read_bytes()
        assert sample["txt"].decode() == f"Bild {number}: ü"
        assert ("json" in sample) == (number % 5 == 0)
    manifest = json.loads(got["stoker.manifest.json"])
    assert manifest["classes"] == [f"class {n}" for n in range(4)]


P = make.encoded(make.pixels(1, 8, 8))
A = b'{"file_name": "a.jpg", "caption": "\xc3\xbc"}'
B = b'{"n": 1.1000000000000000000001, "file_name": "b.png"}'
IN_Y = b'{"file_name": "y/a.jpg"}'
# The files next to the images: {file: bytes}, and the expected members {key: {extension: bytes}}.
BESIDE = {
    "pictures alone": ({"a.jpg": P, "b.png": P}, {"a": {"jpg": P}, "b": {"png": P}}),
    "sidecars of pictures alone": (
        {"a.jpg": P, "a.json": b"{}", "a.txt": b"text", "b.jpg": P, "c.txt": b""},
        {"a": {"jpg": P, "json": b"{}", "txt": b"text"}, "b": {"jpg": P}},
    ),
    "sidecars in classes": (
        {"x/a.jpg": P, "x/a.json": b"{}", "y/a.jpg": P, "y/a.npy": b"npy"},
        {
            "x/a": {"jpg": P, "cls": b"0", "json": b"{}"},
            "y/a": {"jpg": P, "cls": b"1", "npy": b"npy"},
        },
    ),
    "metadata of pictures alone": (
        {"a.jpg": P, "b.png": P, "c.jpg": P, "metadata.jsonl": A + b"\n" + B},
        {"a": {"jpg": P, "json": A}, "b": {"png": P, "json": B}, "c": {"jpg": P}},
    ),
    "metadata of a class, and of the root": (
        {
            **{"x/a.jpg": P, "x/b.png": P, "x/metadata.jsonl": B + b"\r\n\n" + A + b"\n"},
            **{"y/a.jpg": P, "y/b.png": P, "metadata.jsonl": b"\xef\xbb\xbf" + IN_Y},
        },
        {
            "x/a": {"jpg": P, "cls": b"0", "json": A},
            "x/b": {"png": P, "cls": b"0", "json": B},
            "y/a": {"jpg": P, "cls": b"1", "json": IN_Y},
            "y/b": {"png": P, "cls": b"1"},
        },
    ),
}


@pytest.mark.parametrize("row", BESIDE)
def test_other_files_beside_images(row, tmp_path, monkeypatch):
    """The link is copied unchanged; from an absolute, a relative and the current path the same."""
    given, want = BESIDE[row]
    for name, data in given.items():
        make.write(tmp_path / "src" / name, data)
    monkeypatch.chdir(tmp_path)
    stoker.pack(tmp_path / "src", tmp_path / "dst", keep_order=True)
    stoker.pack("src", tmp_path / "relative", keep_order=True)
    monkeypatch.chdir("src")
    stoker.pack(".", tmp_path / "current", keep_order=True)
    assert files(tmp_path / "dst") == files(tmp_path / "relative") == files(tmp_path / "current")
    with stoker.Dataset(tmp_path / "dst") as dataset:
        samples = [dataset[number] for number in range(len(dataset))]
    assert samples == [{"__key__": key, **members} for key, members in want.items()]


def test_pictures_without_classes_have_no_label(tmp_path, engine):
    for name in ("a.jpg", "b.jpg"):
        make.write(tmp_path / "src" / name, P)
    with pytest.raises(stoker.MissingError, match="label=None"):
        stoker.Loader(tmp_path / "src", 2, fields={"y": stoker.Label()}, engine=engine)
    fields = {"image": stoker.Image(transforms=[stoker.Resize((8, 8))])}
    loader = stoker.Loader(tmp_path / "src", 2, fields=fields, engine=engine, output="numpy")
    assert [batch["image"].shape for batch in loader] == [(2, 3, 8, 8)]
    with stoker.Dataset(tmp_path / "src") as dataset:
        assert len(dataset) == 2 and dataset.classes == []


def test_packed_again(source, tmp_path):
    """Labels, class names and all members survive a second packing, and a third, shuffled."""
    stoker.pack(source, tmp_path / "a", keep_order=True)
    stoker.pack(tmp_path / "a", tmp_path / "b", shard_bytes="128KiB", keep_order=True)
    stoker.pack(tmp_path / "b", tmp_path / "c", shuffle=3)
    found = []
    for name in "abc":
        with stoker.Dataset(tmp_path / name) as dataset:
            assert dataset.classes == [f"class {n}" for n in range(4)]
            samples = [dataset[number] for number in range(200)]
            found.append({sample["__key__"]: sample for sample in samples})
        manifest = json.loads((tmp_path / name / "stoker.manifest.json").read_text())
        assert manifest["classes"] == [f"class {n}" for n in range(4)]
    assert found[0] == found[1] == found[2]
    # In the order of the list, and in that of a loader's first epoch, sample by sample.
    given, again, shuffled = (list(samples) for samples in found)
    loader = stoker.Loader(
        tmp_path / "b", 200, fields={"key": "__key__"}, shuffle="full", seed=3, output="numpy"
    )
    assert given == again != shuffled == list(next(iter(loader))["key"])


@pytest.mark.skipif(COMMAND is None, reason="the stoker command is not built")
def test_a_list_is_packed_in_its_order(tmp_path):
    """Tars by name, whatever their names and folders; the command takes the same list."""
    paths, keys = [], []
    for place in ("z/b.tar", "a/c.tar", "z/a.tar"):
        name = place.replace("/", "-").removesuffix(".tar")
        members = [(f"{name}-{number}.txt", b"%d" % number) for number in range(3)]
        paths.append(make.tar(tmp_path / place, members))
        keys += [member.removesuffix(".txt") for member, _ in members]
    stoker.pack(paths, tmp_path / "dst", keep_order=True)
    with stoker.Dataset(tmp_path / "dst") as dataset:
        assert [dataset[number]["__key__"] for number in range(9)] == keys
    words = [COMMAND, "pack", "--keep-order", *map(str, paths), str(tmp_path / "again")]
    assert subprocess.run(words, capture_output=True).returncode == 0
    assert files(tmp_path / "again") == files(tmp_path / "dst")


OPTIONS = {
    "plain": (dict(), []),
    "shuffled": (dict(shuffle=7), ["--shuffle", 7]),
    "smaller": (dict(short_side=32, quality=80), ["--short-side", 32, "--quality", 80]),
    "named": (dict(pattern="t-%03d.tar"), ["--pattern", "t-%03d.tar"]),
}


@pytest.mark.skipif(COMMAND is None, reason="the stoker command is not built")
@pytest.mark.parametrize("row", OPTIONS)
def test_pack_is_the_command(source, tmp_path, row):
    """The same bytes, and from any number of threads."""
    options, words = OPTIONS[row]
    command = [COMMAND, "pack", "--shard-size", "200000", *map(str, words), source, tmp_path / "a"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    for threads in (1, 3):
        with stoker.Engine(threads=threads) as engine:
            stoker.pack(source, tmp_path / "b", shard_bytes=200_000, engine=engine, **options)
        assert files(tmp_path / "b") == files(tmp_path / "a")
        shutil.rmtree(tmp_path / "b")


def test_pack_of_a_dataset_keeps_it_open(source, tmp_path, engine):
    with stoker.Dataset(source, engine=engine) as dataset:
        stoker.pack(dataset, tmp_path / "a")
        assert len(dataset) == 200 and dataset.sample(0)
        with pytest.raises(stoker.ArgumentError), stoker.Engine(threads=1) as other:
            stoker.pack(dataset, tmp_path / "b", engine=other)
    with pytest.raises(stoker.ClosedError):
        stoker.pack(dataset, tmp_path / "b")
    assert len(stoker.Dataset(tmp_path / "a")) == 200


@pytest.mark.parametrize(
    "options",
    [
        dict(shard_bytes=100),
        dict(shard_bytes="x"),
        dict(pattern="x"),
        dict(pattern=7),
        dict(shuffle=-1),
        dict(shuffle=True),
        dict(short_side=0),
        dict(quality=101),
    ],
    ids=str,
)
def test_refused(source, tmp_path, options):
    with pytest.raises(stoker.ArgumentError) as caught:
        stoker.pack(source, tmp_path / "dst", **options)
    assert caught.value.what and caught.value.advice
    assert not list(tmp_path.iterdir())


def test_other_errors(source, tmp_path):
    with pytest.raises(stoker.ArgumentError):
        stoker.pack(source, "")
    with pytest.raises(FileNotFoundError):
        stoker.pack(tmp_path / "absent", tmp_path / "dst")
    make.write(tmp_path / "taken" / "file", b"mine")
    with pytest.raises(FileExistsError):
        stoker.pack(source, tmp_path / "taken")
    assert files(tmp_path / "taken") == {"file": b"mine"}
    with pytest.raises(stoker.LimitError, match="pattern"):
        stoker.pack(source, tmp_path / "few", shard_bytes="64KiB", pattern="%d.tar")


def test_a_destination_inside_of_the_source(tmp_path, monkeypatch):
    """Files written there would be packed, too, when the work resumes."""
    make.tar(tmp_path / "set" / "a.tar", [("k.txt", b"text")])
    (tmp_path / "set" / "below").mkdir()
    (tmp_path / "link").symlink_to("set")
    for destination in ("set/dst", "set/below/dst", "link/dst", "set/below/../dst"):
        with pytest.raises(stoker.ArgumentError, match="inside the source"):
            stoker.pack([tmp_path / "link"], tmp_path / destination)
    monkeypatch.chdir(tmp_path / "set" / "below")
    for source in ("..", tmp_path / "set"):
        with pytest.raises(stoker.ArgumentError, match="inside the source"):
            stoker.pack(source, "dst")
    assert sorted(path.name for path in (tmp_path / "set").iterdir()) == ["a.tar", "below"]
    stoker.pack(tmp_path / "set" / "a.tar", tmp_path / "set" / "dst")  # a tar is no folder


@pytest.mark.skipif(COMMAND is None, reason="the stoker command is not built")
def test_progress_on_a_terminal(slow, tmp_path):
    """A bar with rate and time left, and nothing of it left on the screen in the end."""
    words = ["pack", slow, tmp_path / "dst", "--short-side", 300, "--threads", 1]
    screen, status, out, _ = on_terminal(words, 0, {})
    assert status == 0 and out.startswith("packed ")
    assert b"/s" in screen and b" left" in screen and b"shard 0 of" in screen
    assert screen.endswith(b"\r\x1b[K")


def test_an_exception_of_progress_stops_it(slow, tmp_path):
    """Then other settings are refused, and the same ones resume."""

    def stop(done):
        if done["shards_done"] >= 2:
            raise ZeroDivisionError

    options = dict(shard_bytes="64KiB", short_side=300)
    with stoker.Engine(threads=1) as engine, pytest.raises(ZeroDivisionError):
        stoker.pack(slow, tmp_path / "dst", progress=stop, engine=engine, **options)
    assert not (tmp_path / "dst").exists()
    with pytest.raises(stoker.StateError, match="short_side: 300 before, 301 now"):
        stoker.pack(slow, tmp_path / "dst", **options | {"short_side": 301})
    done = stoker.pack(slow, tmp_path / "dst", **options)
    assert done["shards_kept"] >= 2 and done["resized"] == 60 - done["samples_kept"]
    stoker.pack(slow, tmp_path / "want", **options)
    assert files(tmp_path / "dst") == files(tmp_path / "want")


# ---- kill -9 ----

WRITE = """
    import sys, stoker
    engine = stoker.default_engine()
    print("ready", flush=True)
    with stoker.ShardWriter(sys.argv[1], shard_bytes="16KiB", classes=["a", "b"]) as writer:
        print(writer.samples_done, flush=True)
        for n in range(writer.samples_done, 300):
            writer.write({"__key__": f"{n:05}", "cls": n % 2, "bin": bytes([n % 251]) * (9 * n)})
"""

PACK = """
    import sys, stoker
    engine = stoker.Engine(threads=2)
    print("ready", flush=True)
    done = {"samples_kept": 0}
    def tell(done):
        if done["samples_kept"]: print(done["samples_kept"], flush=True)
    stoker.pack(sys.argv[2], sys.argv[1], shard_bytes="32KiB", shuffle=1, engine=engine,
                progress=tell)
"""


def start(script, *words):
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, words)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdout.readline() == "ready\n", child.stderr.read()
    return child


@pytest.mark.parametrize("script", [WRITE, PACK], ids=["ShardWriter", "pack"])
def test_killed_at_any_instant(script, source, tmp_path):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    child, begin = start(script, tmp_path / "want", source), time.monotonic()
    assert child.communicate()[1] == "" and child.returncode == 0
    whole_s = time.monotonic() - begin
    want, destination, kills, went_on = files(tmp_path / "want"), tmp_path / "dst", 0, 0
    while kills < KILLS or (went_on < 2 and kills < 10 * KILLS):
        kills += 1
        child = start(script, destination, source)
        time.sleep(draw.uniform(0, whole_s))
        child.send_signal(signal.SIGKILL)
        output, complaint = child.communicate()
        assert complaint == ""
        went_on += any(int(line) > 0 for line in output.split())
        if destination.exists():
            if not is_done(destination):
                assert start(script, destination, source).communicate()[1] == ""
            assert files(destination) == want
            if (tmp_path / "dst.lock").exists():  # killed after the last rename: the next run,
                refused = start(script, destination, source).communicate()[1]  # refused, clears it
                assert "already exists" in refused
            assert {path.name for path in tmp_path.iterdir()} == {"want", "dst"}
            shutil.rmtree(destination)
    assert start(script, destination, source).communicate()[1] == ""
    assert files(destination) == want
    assert went_on >= 2, "else no run began where another was killed"


# ---- Ctrl-C ----

INTERRUPTED = """
    import sys, time, stoker
    print("ready", flush=True)
    try:
        stoker.pack(sys.argv[2], sys.argv[1], shard_bytes="64KiB", short_side=300,
                    engine=stoker.Engine(threads=1),
                    progress=lambda done: print(done["shards_done"], flush=True))
    except KeyboardInterrupt:
        print("interrupted", time.monotonic(), flush=True)
"""


def test_ctrl_c(slow, tmp_path):
    child = start(INTERRUPTED, tmp_path / "dst", slow)
    while int(child.stdout.readline()) < 2:
        pass
    sent = time.monotonic()
    child.send_signal(signal.SIGINT)
    output, complaint = child.communicate()
    word, caught = output.splitlines()[-1].split()
    assert (word, complaint, child.returncode) == ("interrupted", "", 0)
    assert float(caught) - sent < 2
    assert not (tmp_path / "dst").exists() and (tmp_path / "dst.part").exists()
    done = stoker.pack(slow, tmp_path / "dst", shard_bytes="64KiB", short_side=300)
    assert done["shards_kept"] >= 2
    stoker.pack(slow, tmp_path / "want", shard_bytes="64KiB", short_side=300)
    assert files(tmp_path / "dst") == files(tmp_path / "want")


# ---- full disks, and those that cannot be written ----


@contextlib.contextmanager
def disk(place, options):
    """A file system in memory for this test."""
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("cannot mount a tmpfs: needs root")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def by_pack(source, destination):
    return stoker.pack(source, destination, shard_bytes="128KiB")["samples_kept"]


def by_writer(source, destination):
    del source
    with stoker.ShardWriter(destination, shard_bytes="128KiB") as writer:
        kept = writer.samples_done
        for number in range(kept, 250):
            writer.write({"__key__": f"{number:03}", "bin": bytes([number]) * 10_000})
    return kept


@pytest.mark.parametrize("run", [by_pack, by_writer])
def test_full_disk(run, source, tmp_path):
    """It fails with the system's message, twice the same; with free space it resumes to the same
    bytes."""
    with disk(tmp_path / "disk", "size=1m") as place:
        for _ in range(2):
            with pytest.raises(stoker.IOError) as caught:
                run(source, place / "dst")
            assert caught.value.errno == errno.ENOSPC
            assert str(place) in str(caught.value) and caught.value.advice
            assert not (place / "dst").exists()
        subprocess.run(["mount", "-o", "remount,size=8m", place], check=True)
        assert run(source, place / "dst") > 0
        run(source, tmp_path / "want")
        assert files(place / "dst") == files(tmp_path / "want")


@pytest.mark.parametrize("run", [by_pack, by_writer])
def test_read_only(run, source, tmp_path):
    with disk(tmp_path / "disk", "ro") as place:
        with pytest.raises(stoker.IOError) as caught:
            run(source, place / "dst")
        assert caught.value.errno == errno.EROFS and str(place) in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
@pytest.mark.parametrize("run", [by_pack, by_writer])
def test_no_permission(run, source, tmp_path):
    tmp_path.chmod(0o555)
    with pytest.raises(PermissionError):
        run(source, tmp_path / "dst")
    tmp_path.chmod(0o755)


LINE = b'{"file_name": "%s", "n": 1}\n'


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("", "./x/a.jpg"),
        ("", "x\\\\a.jpg"),
        ("", "x/gone.jpg"),
        ("", "X/a.jpg"),
        ("", "x/e\u0301.jpg"),  # NFD; the image's name is NFC
        ("x/", "./a.jpg"),
        ("x/", "gone.jpg"),
        ("x/", "x/a.jpg"),
    ],
)
def test_a_line_of_metadata_that_matches_no_image(tmp_path, place, name):
    """Its fields would be missing in the shards silently."""
    for image in ("x/a.jpg", "x/b.jpg", "x/\u00e9.jpg", "y/a.jpg"):
        make.write(tmp_path / "src" / image, P)
    good = LINE % (b"b.jpg" if place else b"x/b.jpg")
    make.write(tmp_path / "src" / place / "metadata.jsonl", good + LINE % name.encode())
    with pytest.raises(stoker.FormatError, match="matches no image") as caught:
        stoker.pack(tmp_path / "src", tmp_path / "dst")
    text = str(caught.value)
    assert "1 of 2 lines" in text and f"{place}metadata.jsonl" in text
    assert name.replace("\\\\", "\\") in text
    make.write(tmp_path / "src" / place / "metadata.jsonl", good)
    assert stoker.pack(tmp_path / "src", tmp_path / "dst")["samples"] == 4


def test_metadata_csv(tmp_path):
    """With metadata.jsonl: in a class folder, and in the root; damage names its line."""
    for image in ("x/a.jpg", "x/b.jpg", "y/a.jpg"):
        make.write(tmp_path / "src" / image, P)
    make.write(tmp_path / "src/metadata.csv", b"file_name,n\r\ny/a.jpg,7\r\n")
    make.write(tmp_path / "src/x/metadata.csv", b'file_name,t\na.jpg,"one, ""two"""\nb.jpg,\n')
    stoker.pack(tmp_path / "src", tmp_path / "dst")
    with stoker.Dataset(tmp_path / "dst") as dataset:
        found = {dataset[i]["__key__"]: dataset[i]["json"] for i in range(len(dataset))}
    assert {key: json.loads(text) for key, text in found.items()} == {
        "x/a": {"file_name": "a.jpg", "t": 'one, "two"'},
        "x/b": {"file_name": "b.jpg", "t": None},
        "y/a": {"file_name": "y/a.jpg", "n": 7},
    }
    for data, part in ((b"file_name\n./a.jpg\n", "matches no image"), (b"a,b\n1,2\n", "file_name")):
        make.write(tmp_path / "src/x/metadata.csv", data)
        with pytest.raises(stoker.FormatError, match=part) as caught:
            stoker.pack(tmp_path / "src", tmp_path / "other")
        assert "x/metadata.csv" in str(caught.value)
