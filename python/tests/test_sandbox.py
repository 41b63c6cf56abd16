"""Loaders whose pictures are decoded in helper processes."""

from __future__ import annotations

import os
import pathlib
import signal
import time

import numpy as np
import pytest
import stoker

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


def test_info_says_what_holds(engine):
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
    with stoker.Loader(
        folder, 8, seed=5, image=CHAIN, threads=1, output="numpy", sandbox=True, batches_ahead=1
    ) as loader:
        for wanted, (images, _) in zip(plain, loader, strict=True):
            assert np.array_equal(wanted[0], images)
            for process in helpers():
                os.kill(process, signal.SIGKILL)


def test_a_missing_helper_is_said_at_once():
    with pytest.raises(OSError, match="decode helper") as failure:
        stoker.Engine(sandbox=True, sandbox_helper="/no/such/helper")
    assert "/no/such/helper" in str(failure.value)


def test_the_engine_decides(folder, engine):
    with pytest.raises(stoker.ArgumentError, match="sandbox"):
        stoker.Loader(folder, 8, image=CHAIN, engine=engine, sandbox=True)
