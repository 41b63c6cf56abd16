"""Bad data: substitutes, the list, the file, the limits."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import make
import numpy as np
import pytest
import stoker

FIELDS = {
    "image": stoker.Image("jpg", [stoker.RandomResizedCrop((16, 16), scale=(0.05, 0.3))]),
    "label": stoker.Int("cls"),
    "id": "__id__",
}
CUT, NO_NUMBER = (2, 9, 16, 23), (5, 12)


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    """30 samples: some pictures end in their middle, some labels are no number."""
    members = []
    for number in range(30):
        data = make.encoded(make.pixels(number, 120, 120), quality=90)
        if number in CUT:
            data = data[: len(data) // 2]
        label = b"cat" if number in NO_NUMBER else str(number).encode()
        members += [(f"{number:03}.jpg", data), (f"{number:03}.cls", label)]
    return make.tar(tmp_path_factory.mktemp("damaged") / "a.tar", members)


def stream(loader):
    return [(b["id"].tolist(), np.array(b["image"])) for b in loader]


def test_damage_outside_the_crop(damaged, engine):
    """A truncated image is good if the crop ends before the damage. Knowledge from
    earlier epochs must not change the result: each epoch equals that of a loader that begins
    there."""

    def make_loader():
        return stoker.Loader(
            damaged, 5, fields=FIELDS, engine=engine, output="numpy", seed=3, on_error="skip"
        )

    going_on, met = make_loader(), set()
    replaced = []
    for epoch in range(6):
        fresh = make_loader()
        going_on.set_epoch(epoch)
        fresh.set_epoch(epoch)
        for (ids, images), (want_ids, want) in zip(stream(going_on), stream(fresh), strict=True):
            assert ids == want_ids
            assert (images == want).all()
            met.update(ids)
        replaced.append(fresh.stats()["substituted"])
    assert len(set(replaced)) > 1, "some crops meet the damage and some do not"
    assert met & set(CUT) and not met & set(NO_NUMBER)
    assert {bad.sample for bad in going_on.quarantine} <= {*CUT, *NO_NUMBER}


def test_quarantine(damaged, engine, tmp_path):
    path = tmp_path / "bad.jsonl"
    loader = stoker.Loader(
        damaged,
        5,
        fields={**FIELDS, "image": stoker.Image("jpg", [stoker.Resize((8, 8))])},
        engine=engine,
        output="numpy",
        on_error="skip",
        quarantine=path,
    )
    assert loader.quarantine == []
    for _ in range(2):
        stream(loader)
    bad = loader.quarantine
    assert {entry.sample for entry in bad} == {*CUT, *NO_NUMBER} and len(bad) == 6
    for entry in bad:
        assert isinstance(entry, stoker.BadSample)
        assert entry.shard == str(damaged) and entry.key == f"{entry.sample:03}"
        assert entry.reason and 0 < entry.offset < os.path.getsize(damaged)
        kind = "TRUNCATED" if entry.sample in CUT else "CORRUPT"
        assert entry.name == f"STOKER_ERROR_{kind}" and entry.status < 0
    stats = loader.stats()
    assert (stats["bad_samples"], stats["substituted"], stats["retries"]) == (6, 12, 0)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    names = ("shard", "key", "offset", "name", "reason", "sample")
    assert [tuple(line.values()) for line in lines] == [
        tuple(getattr(entry, name) for name in names) for entry in bad
    ]
    assert list(lines[0]) == ["shard", "key", "offset", "status", "reason", "sample"]


def test_ranks_have_their_own_file(damaged, engine, tmp_path):
    for rank in range(2):
        loader = stoker.Loader(
            damaged,
            3,
            fields={"label": stoker.Int("cls"), "id": "__id__"},
            engine=engine,
            output="numpy",
            on_error="skip",
            quarantine=tmp_path / "bad",
            rank=rank,
            world_size=2,
        )
        list(loader)
        loader.close()
    lines = [(tmp_path / f"bad.rank{rank}").read_text().splitlines() for rank in range(2)]
    assert sorted({json.loads(line)["sample"] for line in sum(lines, [])}) == list(NO_NUMBER)
    assert not (tmp_path / "bad").exists()


def test_names_that_are_no_utf8(engine, tmp_path):
    name = os.fsdecode(b'caf\xe9 "\xc3\xa9\\')
    path = make.tar(tmp_path / "a.tar", [(f"{name}.cls", b"cat"), ("ok.cls", b"1")])
    loader = stoker.Loader(
        path,
        2,
        fields={"label": stoker.Int("cls")},
        engine=engine,
        output="numpy",
        on_error="skip",
        quarantine=tmp_path / "bad",
    )
    list(loader)
    assert loader.quarantine[0].key == name
    assert json.loads((tmp_path / "bad").read_bytes().decode())["key"] == name


LIMITS = {
    "count": (dict(bad_samples_max=1), True),
    "count, not reached": (dict(bad_samples_max=2), False),
    "share": (dict(bad_share_max=0.05), True),
    "share, not reached": (dict(bad_share_max=0.08), False),
}


@pytest.mark.parametrize("name", LIMITS)
def test_limits(damaged, engine, name):
    """2 of 30 samples have no label: a share of 0.067, looked at from 1,000 on."""
    options, passed = LIMITS[name]
    loader = stoker.Loader(
        damaged,
        5,
        fields={"label": stoker.Int("cls")},
        engine=engine,
        output="numpy",
        on_error="skip",
        tail="drop",
        **options,
    )

    def run():
        return sum(len(batch["label"]) for _ in range(40) for batch in loader)

    if not passed:
        assert run() == 1200
        return
    with pytest.raises(stoker.LimitError) as caught:
        run()
    first = loader.quarantine[0]
    assert f"key '{first.key}'" in caught.value.where and next(iter(options)) in str(caught.value)
    if "bad_share_max" in options:
        assert loader.stats()["samples"] == 995
    with pytest.raises(stoker.LimitError):  # it stays there
        loader._native.next(0)


def test_limits_hold_over_a_refresh(tmp_path, engine):
    """Each shard has 2 bad samples of 10; shards are added between the epochs."""

    def add(number):
        members = [
            (f"{number}{i}.cls", b"cat" if i in (3, 7) else b"%d" % i) for i in range(10)
        ]
        make.tar(tmp_path / "data" / f"s-{number}.tar", members)

    add(0)
    loader = stoker.Loader(
        tmp_path / "data",
        5,
        fields={"label": stoker.Int("cls")},
        engine=engine,
        output="numpy",
        on_error="skip",
        tail="keep",
        refresh=True,
        bad_samples_max=5,
        quarantine=tmp_path / "bad",
    )
    for number in (1, 2):
        assert sum(len(batch["label"]) for batch in loader) == 10 * number
        assert loader.stats()["bad_samples"] == len(loader.quarantine) == 2 * number
        add(number)
    with pytest.raises(stoker.LimitError, match="6 damaged, 5 allowed"):
        list(loader)
    assert [entry.sample for entry in loader.quarantine] == [
        json.loads(line)["sample"] for line in (tmp_path / "bad").read_text().splitlines()
    ]
    assert len(loader.quarantine) == 6
    loader.close()


@pytest.mark.parametrize(
    "options",
    [
        dict(bad_share_max=0),
        dict(bad_share_max=1.5),
        dict(bad_share_max="x"),
        dict(bad_samples_max=0),
        dict(io_retries=-1),
        dict(quarantine=7),
        dict(on_error="ignore"),
    ],
    ids=str,
)
def test_refused(damaged, engine, options):
    with pytest.raises(stoker.ArgumentError):
        stoker.Loader(damaged, 5, fields=FIELDS, engine=engine, **options)


def test_quarantine_nowhere(damaged, engine, tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        stoker.Loader(
            damaged, 5, fields=FIELDS, engine=engine, quarantine=tmp_path / "absent" / "bad"
        )
    assert "absent" in str(caught.value)


def test_killed_while_writing(tmp_path):
    """kill -9 at any time leaves complete lines; the next run starts a new line."""
    members = [(f"{n:05}.cls", b"cat" if n % 3 else b"1") for n in range(6000)]
    path = make.tar(tmp_path / "a.tar", members)
    file = tmp_path / "bad"
    script = textwrap.dedent(
        """
        import sys, stoker
        loader = stoker.Loader(sys.argv[1], 1, fields={"label": stoker.Int("cls")},
                               on_error="skip", output="array", quarantine=sys.argv[2], threads=1)
        print("open", flush=True)
        for _ in loader: pass
        """
    )
    for run in range(6):
        process = subprocess.Popen(
            [sys.executable, "-c", script, str(path), str(file)], stdout=subprocess.PIPE
        )
        process.stdout.readline()
        time.sleep(0.002 * run)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        text = file.read_bytes()
        for line in text.split(b"\n")[:-1]:
            assert json.loads(line)["shard"] == str(path)
        assert b"/torn" not in text
        file.write_bytes(text + b'{"shard": "/torn')  # as a kill in the midst of a write leaves it
    assert text
