"""Sources of a stoker.Mix: class folders together with tars, and subsets of a source.

Goal: each source returns what a loader of it alone returns, images and labels alike; subsets and
draws of a source follow its settings, in exact shares; ranks, resumes and processes change nothing;
states of other subsets, and classes that differ, are refused by name. Method: small folders and
tars of images; samples of loaders are compared and counted.
"""

import collections
import importlib
import json
import os
import shutil
import subprocess

import pytest
import stoker
from make import encoded, jpeg, pixels, sample, tar

CLASSES = ("bird", "cat", "dog")
STEP = 12


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Two class folders and a tar; samples of the tar have labels 0 to 6."""
    root = tmp_path_factory.mktemp("sources")
    for folder, each in (("photos", 13), ("drawings", 5)):
        for label, name in enumerate(CLASSES):
            for number in range(each + label):
                seed = 1000 * each + 100 * label + number
                jpeg(root / folder / name / f"{number:03}.jpg", seed, height=40, width=48)
    tar(root / "web.tar", [member for number in range(70) for member in sample(number)])
    return {"photos": root / "photos", "drawings": root / "drawings", "web": root / "web.tar"}


def loader(source, batch=STEP, **options):
    fields = {
        "image": stoker.Image("jpg", [stoker.Resize((8, 8))]),
        "label": stoker.Label(),
        "key": "__key__",
        "id": "__id__",
    }
    options = {"seed": 3, "output": "numpy", "fields": fields, **options}
    return stoker.Loader(source, batch, **options)


def samples(stream, epochs=1):
    """(key, label, image) of all samples."""
    found = []
    for _ in range(epochs):
        for batch in stream:
            for i, key in enumerate(batch["key"]):
                found.append((key, int(batch["label"][i]), batch["image"][i].tobytes()))
    return found


def ids(stream, batches):
    """The sample numbers of so many batches."""
    found, iterator = [], iter(stream)
    while len(found) < batches:
        batch = next(iterator, None)
        if batch is None:
            iterator = iter(stream)
        else:
            found.append(batch["id"].tolist())
    return found


def test_folders_beside_tars(sources):
    """The samples of one loader for each source, each once."""
    want = collections.Counter()
    for source in sources.values():
        with loader(source, tail="keep") as one:
            want += collections.Counter(samples(one))
    mix = stoker.Mix(list(sources.values()), repeats=[1, 1, 1])
    with loader(mix, tail="keep") as stream:
        assert stream.dataset.kind == "joined" and stream.classes == list(CLASSES)
        for _ in range(2):
            assert collections.Counter(samples(stream)) == want
    with loader(stoker.Mix([sources["photos"]]), tail="keep") as stream:
        assert len(samples(stream)) == 42


def test_bytes_and_default_image(sources):
    """The fields that a plain loader has without fields=."""
    mix = stoker.Mix([sources["web"], sources["drawings"]], [1, 1], epoch=1024)
    with stoker.Loader(mix, 10, image=stoker.Resize((8, 8)), output="numpy") as stream:
        for images, labels in stream:
            assert images.shape == (10, 3, 8, 8) and labels.shape == (10,)
    key = "bird/000.jpg"
    with stoker.Loader(
        sources["drawings"],
        1,
        fields={"raw": stoker.Bytes("jpg"), "key": "__key__"},
        shuffle="none",
    ) as one:
        want = next(batch["raw"][0] for batch in one if batch["key"][0] == key)
    fields = {"raw": stoker.Bytes("jpg"), "key": "__key__"}
    with stoker.Loader(mix, 1, fields=fields) as stream:
        got = next(batch["raw"][0] for batch in stream if batch["key"][0] == key)
    assert got == want == (sources["drawings"] / key).read_bytes()


def test_ranks_and_resumes_with_folders(sources):
    mix = stoker.Mix(list(sources.values()), [2, 1, 3], epoch=240)
    with loader(mix) as stream:
        want = ids(stream, 60)
    got, state = [], None
    for world, stretch in ((2, 13), (3, 22), (1, 25)):
        streams = [loader(mix, STEP // world, rank=r, world_size=world) for r in range(world)]
        if state is not None:
            for stream in streams:
                stream.load_state_dict(state)
        parts = [ids(stream, stretch) for stream in streams]
        got += [
            sorted(number for part in step for number in part) for step in zip(*parts, strict=True)
        ]
        states = [json.loads(json.dumps(stream.state_dict())) for stream in streams]
        assert all(each == states[0] for each in states)
        state = states[0]
        for stream in streams:
            stream.close()
    assert got == [sorted(step) for step in want]


def test_a_folder_joins_tars(sources):
    """A state of tars continues when a folder joins them."""
    tars = [sources["web"]]
    with loader(stoker.Mix(tars, [1], epoch=120), tail="wrap") as stream:
        ids(stream, 5)
        state = stream.state_dict()
        border = stream._native.mix_change_position(0)
    both = stoker.Mix([*tars, sources["photos"]], [1, 0], epoch=120)
    with loader(both, tail="wrap") as stream:
        stream.load_state_dict(state)
        assert stream.set_weights([1, 1]) == border
        found = ids(stream, border // STEP + 10)
    before = [number for step in found[: border // STEP - 5] for number in step]
    assert max(before) < 70 <= max(number for step in found for number in step)


def test_classes_must_agree(sources, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(sources["drawings"], other)
    (other / "dog").rename(other / "fish")
    mix = stoker.Mix([sources["photos"], other])
    with pytest.raises(stoker.ArgumentError, match=r"photos.*'dog'.*other|other.*'fish'.*photos"):
        loader(mix)
    with loader(mix, fields={"key": "__key__"}) as stream:  # without labels they may differ
        assert stream.dataset.kind == "joined"
    flat = tmp_path / "flat"
    jpeg(flat / "one.jpg", 1)
    with pytest.raises(stoker.ArgumentError, match=r"flat.*no class folders"):
        loader(stoker.Mix([sources["photos"], flat]))


def test_a_field_that_no_source_has(sources):
    with pytest.raises(stoker.MissingError, match="nothing"):
        loader(stoker.Mix(list(sources.values())), fields={"x": stoker.Bytes("nothing")})


def test_subsets_of_sources(sources):
    """Shares are exact, and only the subset is returned: all of it, once an epoch of the source."""
    web = stoker.Source(sources["web"], subset="sample % 7 == 3")
    photos = stoker.Source(sources["photos"], subset="label in (0, 2)")
    mix = stoker.Mix([web, photos, sources["drawings"]], [1, 2, 1], epoch=1024)
    with loader(mix, 8) as stream:
        assert [table["count"] for table in stream.tables] == [10, 13 + 15]
        got = samples(stream)
    assert len(got) == 1024
    counts = collections.Counter()
    for key, label, _ in got:
        counts["web" if key.startswith("part") else key[0] + str(len(key))] += 1
        assert not key.startswith("part") or int(key[-4:]) % 7 == 3
        assert key.startswith("part") or label in (0, 1, 2)
    assert counts["web"] == 256
    web_counts = collections.Counter(key for key, _, _ in got if key.startswith("part"))
    assert len(web_counts) == 10 and max(web_counts.values()) - min(web_counts.values()) <= 1


def test_default_weights_count_chosen_samples(sources):
    web = stoker.Source(sources["web"], subset=list(range(0, 70, 2)))
    with loader(stoker.Mix([web, sources["photos"]], repeats=[1, 1]), tail="keep") as stream:
        assert len(samples(stream)) == 35 + 42
    with loader(stoker.Mix([web, sources["photos"]])) as stream:
        assert stream.state_dict()["weights"] == [[0, [5, 6]]]


def test_draws_in_a_source(sources):
    """Balanced: each class as often; by weight: nothing of weight 0."""
    balanced = stoker.Source(sources["photos"], balance="label")
    weighted = stoker.Source(sources["web"], weights=[float(i == 5) for i in range(70)])
    with loader(stoker.Mix([balanced, weighted], [3, 1], epoch=1024), 8) as stream:
        got = samples(stream)
    labels = collections.Counter(label for key, label, _ in got if not key.startswith("part"))
    assert sum(labels.values()) == 768 and set(labels.values()) == {256}
    assert {key for key, _, _ in got if key.startswith("part")} == {"part0/s0005"}


def test_states_of_other_choices(sources):
    def open_with(subset, **options):
        web = stoker.Source(sources["web"], subset=subset, **options)
        return loader(stoker.Mix([web, sources["photos"]], [1, 1], epoch=480), tail="wrap")

    with open_with("sample < 40") as stream:
        want = ids(stream, 60)
    with open_with("sample < 40") as stream:
        assert ids(stream, 22) == want[:22]
        state = json.loads(json.dumps(stream.state_dict()))
    with open_with("sample < 40") as stream:
        stream.load_state_dict(state)
        assert ids(stream, 38) == want[22:]
        assert stream.set_weights([0, 1]) > 0
    for other, word in (
        (("sample < 41", {}), "subset"),
        (("sample >= 30", {}), "subset"),
        ((None, {}), "subset"),
        (("sample < 40", {"replacement": True}), "replacement"),
    ):
        with (
            open_with(other[0], **other[1]) as stream,
            pytest.raises(stoker.StateError, match=word),
        ):
            stream.load_state_dict(state)


def test_a_substitute_is_of_the_choice(sources, tmp_path):
    """Under on_error="skip" another sample of the same source's subset replaces it."""
    members = [
        (f"d{i}.jpg", b"no picture" if i % 4 == 0 else encoded(pixels(i, 40, 48)))
        for i in range(40)
    ]
    damaged = stoker.Source(tar(tmp_path / "damaged.tar", members), subset="sample < 20")
    fields = {"image": stoker.Image("jpg", [stoker.Resize((8, 8))]), "id": "__id__"}
    mix = stoker.Mix([damaged, sources["photos"]], [1, 1], epoch=400)
    with stoker.Loader(mix, 10, fields=fields, on_error="skip", output="numpy") as stream:
        for batch in stream:
            assert all(number < 20 or number >= 40 for number in batch["id"])
        assert stream.stats()["substituted"] > 20


def test_explain_knows_the_sources(sources):
    web = stoker.Source(sources["web"], subset="sample % 2 == 1")
    with loader(stoker.Mix([web, sources["photos"]], [1, 1], epoch=240)) as stream:
        steps = ids(stream, 5)
        for step, want in enumerate(steps):
            assert [slot.sample for slot in stream.explain(step, epoch=0)] == want


def test_command(sources):
    """stoker order of folders and tars: as a loader returns them; verified, measured and
    simulated."""
    paths = [str(source) for source in sources.values()]
    mix = stoker.Mix(paths, [3, 2, 1])
    with loader(mix, tail="drop") as stream:
        want = [batch["id"].tolist() for batch in stream]
    settings = ["--mix", "3,2,1", "--batch", str(STEP), "--seed", "3"]
    done = order(paths, *settings, "--at", "2", "--json")
    assert [json.loads(line)["sample"] for line in done.stdout.splitlines()] == want[2]
    done = order(paths, *settings, "--verify", "--world-sizes", "1,2,3", "--random-runs", "5")
    assert done.returncode == 0 and "each position occurs exactly once" in done.stdout
    for question in ([], ["--simulate"], ["--find", "bird/000.jpg"], ["--diff", "seed=4"]):
        done = order(paths, *settings, *question)
        assert done.returncode == (question[:1] == ["--diff"]), done.stderr
        assert done.stdout and not done.stderr


def order(paths, *arguments):
    command = [os.environ.get("STOKER_COMMAND", "stoker"), "order", *paths, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_under_a_dataloader(sources):
    """Workers open folders and choices for themselves."""
    data = pytest.importorskip("torch.utils.data")
    stoker_torch = importlib.import_module("stoker.torch")
    web = stoker.Source(sources["web"], subset="sample % 2 == 1")
    mix = stoker.Mix([web, sources["photos"]], [1, 1], epoch=120)
    fields = {"id": "__id__", "label": stoker.Label()}
    with stoker.Loader(mix, STEP, fields=fields, seed=3, output="torch") as stream:
        want = [batch["id"].tolist() for batch in stream]
    dataset = stoker_torch.IterableDataset(mix, batch_size=STEP, fields=fields, seed=3)
    got = data.DataLoader(dataset, batch_size=STEP, num_workers=2)
    assert [batch["id"].tolist() for batch in got] == want


def test_refused(sources):
    for make in (
        lambda: stoker.Source(stoker.Mix([sources["web"]])),
        lambda: stoker.Source(sources["web"], weights="label", balance="label"),
        lambda: loader(stoker.Mix([stoker.Source(sources["web"], subset="sample <")])),
        lambda: loader(stoker.Mix([sources["web"]]), subset="sample < 3"),
        lambda: stoker.TokenLoader(stoker.Mix([stoker.Source("a.bin", subset=[1])]), 1, 8),
    ):
        with pytest.raises(stoker.ArgumentError):
            make()
    with pytest.raises(stoker.EmptyError, match="no sample is chosen"):
        loader(stoker.Mix([sources["photos"], stoker.Source(sources["web"], subset="sample > 99")]))
