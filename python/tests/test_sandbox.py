"""Loaders whose pictures are decoded in helper processes."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pathlib
import signal
import time

import make
import numpy as np
import pytest
import stoker
from PIL import Image
from test_cli import COMMAND

CHAIN = [stoker.RandomResizedCrop(32), stoker.RandomHorizontalFlip(), stoker.Normalize()]


def helpers():
    """Process ids of this process's decode helpers."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, tail = path.read_text().rpartition(")")
        except OSError:
            continue  # it ended
        state, parent = tail.split()[:2]
        if int(parent) == os.getpid() and head.endswith("(stoker-decode") and state != "Z":
            found.append(int(path.parent.name))
    return found


def batches(source, **options):
    with stoker.Loader(
        source, 8, seed=5, image=CHAIN, threads=2, output="numpy", **options
    ) as loader:
        return [(images.copy(), labels.copy()) for images, labels in loader], helpers()


def test_the_same_batches(folder):
    plain, none = batches(folder)
    jailed, running = batches(folder, sandbox=True)
    assert not none and 1 <= len(running) <= 2
    assert len(plain) == len(jailed) == 5
    for (images, labels), (other_images, other_labels) in zip(plain, jailed, strict=True):
        assert np.array_equal(images, other_images) and np.array_equal(labels, other_labels)


def test_it_reports_which_decoder_ran(tmp_path):
    cmyk = Image.fromarray(make.pixels(9, 40, 50)).convert("CMYK")
    files = [make.encoded(make.pixels(n, 40, 50)) for n in range(6)]
    files += [make.encoded(make.pixels(n, 40, 50), progressive=True) for n in range(2)]
    pngs = [make.encoded(make.pixels(n, 40, 50), "PNG") for n in range(3)]
    pngs[0] = pngs[0][:33] + b"\0\0\0\0tEXt\0\0\0\0" + pngs[0][33:]  # a checksum of no chunk
    files += [make.encoded(cmyk), *pngs]
    for number, data in enumerate(files):
        make.write(tmp_path / "a" / f"{number}.jpg", data)
    for sandbox in (False, True):
        with stoker.Loader(tmp_path, 12, image=CHAIN, sandbox=sandbox, output="numpy") as loader:
            assert len(list(loader)) == 1
            want = {"stoker": 6, "progressive": 2, "not grey or three colours": 1}
            want |= {"png stoker": 2, "png libpng": 1}
            deadline = time.monotonic() + 10
            epochs = 0  # the next ones are decoded ahead, each completely
            while time.monotonic() < deadline and not epochs:
                stats = loader.stats()
                found = stats["jpegs"] | {f"png {who}": n for who, n in stats["pngs"].items()}
                epochs = found["stoker"] // 6
                epochs *= found == {name: n * epochs for name, n in want.items()}
                time.sleep(0.01)
            assert epochs, found


def test_masks_are_decoded_there_too(tmp_path):
    members = []
    for number in range(8):
        mask = make.pixels(number, 40, 50, channels=1)[..., 0] // 16
        members += [(f"{number}.jpg", make.encoded(make.pixels(number, 40, 50)))]
        members += [(f"{number}.png", make.encoded(mask, "PNG"))]
    path = make.tar(tmp_path / "a.tar", members)
    fields = {"image": stoker.Image("jpg", CHAIN[:2]), "mask": stoker.Mask("png")}
    seen = []
    for sandbox in (False, True):
        with stoker.Loader(
            path, 8, fields=fields, seed=2, threads=1, output="numpy", sandbox=sandbox
        ) as loader:
            batch = next(iter(loader))
            seen.append((batch["image"].copy(), batch["mask"].copy()))
            assert len(helpers()) == sandbox
    (images, masks), (jailed_images, jailed_masks) = seen
    assert masks.max() == 15 and np.array_equal(masks, jailed_masks)
    assert np.array_equal(images, jailed_images)


def test_info_names_the_sandbox(engine):
    assert engine.info()["sandbox"] == "off"
    with stoker.Engine(threads=1, sandbox=True) as jailed:
        assert "seccomp" in jailed.info()["sandbox"]


def test_the_helper_is_gone_after_close(folder):
    batches(folder, sandbox=True)
    end = time.monotonic() + 2
    while helpers() and time.monotonic() < end:
        time.sleep(0.01)
    assert helpers() == []


def test_a_killed_helper_costs_nothing(folder):
    plain, _ = batches(folder)
    killed = 0
    with stoker.Loader(
        folder, 8, seed=5, image=CHAIN, threads=1, output="numpy", sandbox=True, batches_ahead=1
    ) as loader:
        for wanted, (images, _) in zip(plain, loader, strict=True):
            assert np.array_equal(wanted[0], images)
            for process in helpers():
                with contextlib.suppress(ProcessLookupError):  # its engine may wait for it by now
                    os.kill(process, signal.SIGKILL)
                    killed += 1
    assert killed > 0


def test_a_missing_helper_is_said_at_once():
    with pytest.raises(OSError, match="decode helper") as failure:
        stoker.Engine(sandbox=True, sandbox_helper="/no/such/helper")
    assert "/no/such/helper" in str(failure.value)


def test_the_engine_decides(folder, engine):
    with pytest.raises(stoker.ArgumentError, match="sandbox"):
        stoker.Loader(folder, 8, image=CHAIN, engine=engine, sandbox=True)


# The actions of a decoder that an image has compromised (src/test/rogue_main.c), and the reason
# that is reported for each.
ROGUES = {
    "crash": "crashed",
    "abort": "crashed",
    "exit": "ended",
    "loop": "did not end",
    "open": "tried what it may not do",
    "socket": "tried what it may not do",
    "exec": "tried what it may not do",
    "answer kind": "nonsense",
    "answer status": "nonsense",
}
ROGUE_HELPER = pathlib.Path(COMMAND or ".").parent / "stoker-decode-test"


@pytest.fixture
def rogues(tmp_path):
    """18 good pictures, and one of each kind of the others."""
    members = []
    for number in range(18):
        members += [(f"{number:02}.jpg", make.encoded(make.pixels(number)))]
        members += [(f"{number:02}.cls", b"%d" % number)]
    for number, what in enumerate(ROGUES):
        at = 3 * 2 * number  # between the good ones
        key = what.replace(" ", "-")
        members[at:at] = [(f"{key}.jpg", b"ROGUE " + what.encode()), (f"{key}.cls", b"99")]
    return make.tar(tmp_path / "rogues.tar", members)


@pytest.fixture
def rogue_engine():
    if not ROGUE_HELPER.exists():
        pytest.skip("stoker-decode-test is not built")
    with stoker.Engine(
        sandbox=True, sandbox_helper=ROGUE_HELPER, decode_timeout=0.5, threads=2
    ) as engine:
        yield engine


def test_a_rogue_picture_costs_one_sample(rogues, rogue_engine):
    """Crashes, loops, forbidden calls and wrong replies: the run continues; the list names each."""
    loader = stoker.Loader(
        rogues, 9, seed=5, image=CHAIN, engine=rogue_engine, output="numpy", on_error="skip"
    )
    images = [images.copy() for images, labels in loader if 99 not in labels]
    assert len(images) == 3 and all(batch.shape == (9, 3, 32, 32) for batch in images)
    found = {row.key.replace("-", " "): row.reason for row in loader.quarantine}
    assert set(found) == set(ROGUES)
    for what, reason in ROGUES.items():
        assert reason in found[what], (what, found[what])


MEMBERS = {"json": stoker.Json, "mp": stoker.MessagePack, "npz": lambda name: stoker.Array(name, 2)}


@pytest.mark.parametrize("kind", MEMBERS)
def test_a_rogue_member_costs_one_sample(tmp_path, rogue_engine, kind):
    """A parser in hostile hands is in the helper: the same for JSON, MessagePack and npz."""
    stream = io.BytesIO()
    np.savez(stream, a=np.ones(2))
    good = {"json": b"[1, 2]", "mp": b"\x92\x01\x02", "npz": stream.getvalue()}[kind]
    members = [(f"{number:02}.{kind}", good) for number in range(9)]
    members += [(f"{what.replace(' ', '-')}.{kind}", b"ROGUE " + what.encode()) for what in ROGUES]
    loader = stoker.Loader(
        make.tar(tmp_path / "a.tar", members), 18, fields={"field": MEMBERS[kind](kind)},
        engine=rogue_engine, output="numpy", on_error="skip",
    )  # fmt: skip
    batch = next(iter(loader))["field"]
    assert len(batch) == 18 and all(np.array_equal(value, batch[0]) for value in batch)
    found = {row.key.replace("-", " "): row.reason for row in loader.quarantine}
    assert set(found) == set(ROGUES)
    for what, reason in ROGUES.items():
        assert reason in found[what] and "parser" in found[what], (what, found[what])


def test_large_members_are_parsed_there_too(tmp_path):
    """A result that does not fit a small answer: the helper reports the needed size, and that is
    reserved."""
    numbers = np.arange(300_000, dtype="float32")
    stream = io.BytesIO()
    np.savez_compressed(stream, a=numbers, b=numbers[::2])
    document = json.dumps({"a": [{"b": [i, i + 0.5]} for i in range(20_000)]}).encode()
    path = make.tar(tmp_path / "a.tar", [("0.json", document), ("0.npz", stream.getvalue())])
    fields = {
        "list": stoker.Array("json:a.*.b", (None, 2)),
        "one": stoker.Int("json:a.7.b.0"),
        "whole": stoker.Array("npz:a"),
        "half": stoker.Array("npz:b"),
        "json": stoker.Json("json"),
    }
    with stoker.Loader(
        path, 1, fields=fields, output="numpy", sandbox=True, memory="256MiB"
    ) as loader:
        batch = next(iter(loader))
        assert batch["list"][0].tolist() == [[i, i + 0.5] for i in range(20_000)]
        assert batch["one"].tolist() == [7] and batch["json"][0] == json.loads(document)
        assert (batch["whole"][0] == numbers).all() and (batch["half"][0] == numbers[::2]).all()
        assert loader.stats()["memory_bytes_peak"] < 256 << 20


def test_a_rogue_picture_is_raised(rogues, rogue_engine):
    loader = stoker.Loader(
        rogues, 1, image=CHAIN, engine=rogue_engine, output="numpy", shuffle="none"
    )
    with pytest.raises(stoker.CorruptError, match="decoder") as caught:
        list(loader)
    assert caught.value.key in {what.replace(" ", "-") for what in ROGUES}


@pytest.mark.parametrize("kind", MEMBERS)
def test_a_scan_is_parsed_there_too(tmp_path, rogue_engine, kind):
    """subset=, weights= and balance= look into sidecars: in the helper, with the same answers."""
    paths = {"json": "json.a", "mp": "mp.a", "npz": "npz.a"}

    def member(number):
        stream = io.BytesIO()
        np.savez(stream, a=np.int64(number))
        return {"json": b'{"a": %d, "b": [1]}' % number, "mp": b"\x81\xa1a" + bytes([number]),
                "npz": stream.getvalue()}[kind]  # fmt: skip

    members = []
    for number in range(20):
        members += [(f"{number:02}.{kind}", member(number)), (f"{number:02}.cls", b"%d.5" % number)]
    good = make.tar(tmp_path / "good.tar", members)
    options = {"fields": {"id": "__id__"}, "output": "numpy", "shuffle": "none", "tables": "never"}
    chosen = {}
    for sandbox in (False, True):
        before = {*helpers()}  # another test's may be about to end
        with stoker.Loader(good, 4, subset=f"{paths[kind]} > 3 and cls < 16", balance=paths[kind],
                           sandbox=sandbox, threads=2, **options) as loader:
            assert bool({*helpers()} - before) == sandbox
            chosen[sandbox] = [batch["id"].tolist() for batch in loader]
    assert chosen[True] == chosen[False]
    assert sorted(id for batch in chosen[True] for id in batch) == list(range(4, 16))
    bad = make.tar(tmp_path / "bad.tar", [*members, (f"99.{kind}", b"ROGUE crash")])
    with pytest.raises(stoker.CorruptError, match="the parser crashed"):
        stoker.Loader(bad, 4, subset=f"{paths[kind]} > 3", engine=rogue_engine, **options)
