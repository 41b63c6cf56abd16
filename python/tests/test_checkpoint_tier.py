"""A local tier: commit in a local folder, upload in the background, restore over both places."""

import contextlib
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time

import fuse_server
import numpy
import pytest
import stoker
import write_server


def state(step, count=100_000):
    return {"step": step, "a": numpy.full(count, step, "f4")}


def same(value, step):
    return value["step"] == step and bool((value["a"] == step).all())


def steps_of(place):
    with stoker.Checkpointer(place) as ckpt:
        return [found.step for found in ckpt.steps() if found.status == "committed"]


def flip(folder, step):
    flip_last(pathlib.Path(folder, f"step-{step:010}", "shard-00000.safetensors"))


def flip_last(path):
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)


def verify(place):
    command = [os.environ["STOKER_COMMAND"], "ckpt", "verify", str(place)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(params=["folder", "store"])
def main(request, tmp_path, monkeypatch):
    if request.param == "folder":
        yield str(tmp_path / "main")
        return
    server = write_server.serve()
    write_server.lead_to(server, monkeypatch)
    yield "s3://b/run"
    server.close()


def test_commit_and_upload(main, tmp_path):
    local = tmp_path / "local"
    with stoker.Checkpointer(main, local=local, keep_last=3, local_keep_last=1) as ckpt:
        assert ckpt.restore(state(0)) is None
        for step in range(1, 6):
            ckpt.save(step, state(step), metrics={"loss": 1.5}, wait=True)
            assert steps_of(local)[-1] == step  # committed when save() returns
            ckpt.wait()
        assert steps_of(main) == [3, 4, 5] and steps_of(local) == [5]
        assert [found.step for found in ckpt.steps()] == [3, 4, 5]
        assert ckpt.steps()[0].metrics == {"loss": 1.5}
        target = state(0)
        assert ckpt.restore(target) == 5 and same(target, 5)
        assert ckpt.restore(target, step=3) == 3 and same(target, 3)
        assert ckpt._tier.places(5)[0][0] == os.fsencode(local)
        flip(local, 5)  # the other place has it
        with pytest.warns(stoker.StokerWarning, match=r"1 tensors \(a\) are damaged in .*local"):
            assert ckpt.restore(target) == 5 and same(target, 5)
        ckpt.pin(4)
        for step in (6, 7, 8):
            ckpt.save(step, state(step))
        ckpt.wait()
        assert 4 in steps_of(main) and 8 in steps_of(main)
    if "://" not in main:
        verify(main)
        assert not [name for name in os.listdir(main) if name.startswith(".")]
        a, b = (pathlib.Path(place, "step-0000000008") for place in (main, local))
        for name in os.listdir(a):
            if name.startswith("shard"):
                assert (a / name).read_bytes() == (b / name).read_bytes()
    assert same(stoker.load(main), 8)


def test_files_of_several_steps(main, tmp_path):
    """Steps of the local folder share a file; each step of the main place is complete."""
    local = tmp_path / "local"
    value = {"base": numpy.arange(4_500_000, dtype="f4"), "a": numpy.zeros(3, "f4")}
    with stoker.Checkpointer(main, local=local, memory="64MiB") as ckpt:
        for step in range(1, 5):
            value["a"][:] = step
            ckpt.save(step, value, wait=True)
            ckpt.wait()
        a, b = (local / f"step-{step:010}" / "shared-00000.safetensors" for step in (3, 4))
        assert a.stat().st_ino == b.stat().st_ino
        found = stoker.load(f"{main}/step-0000000004")
        assert (found["base"] == value["base"]).all() and (found["a"] == 4).all()
        reader = stoker._stoker.Checkpoint(ckpt._engine._native, os.fsencode(main), 4)
        assert reader.info()[4] == 1 and len(reader.files()) == 2  # ranks
        reader.close()
        flip_last(a)  # of both steps; the main place has its own copies
        target = {"base": numpy.zeros(4_500_000, "f4"), "a": numpy.zeros(3, "f4")}
        with pytest.warns(stoker.StokerWarning, match="base"):
            assert ckpt.restore(target) == 4 and (target["base"] == value["base"]).all()


def damage_remove(path):
    path.unlink()


def damage_truncate(path):
    os.truncate(path, path.stat().st_size - 5000)


DAMAGES = {"flip": flip_last, "remove": damage_remove, "truncate": damage_truncate}


@pytest.mark.parametrize("kind", DAMAGES)
def test_files_of_both_places(main, tmp_path, kind):
    """One file is damaged in each place; the step is restored from the good ones, and reported."""
    local = tmp_path / "local"
    value = {"base": numpy.arange(4_500_000, dtype="f4"), "a": numpy.zeros(3, "f4")}
    with stoker.Checkpointer(main, local=local, memory="64MiB") as ckpt:
        for step in (1, 2, 3, 4):  # unchanged tensors are in a file of their own
            value["a"][:] = step
            ckpt.save(step, value, wait=True)
            ckpt.wait()
        DAMAGES[kind](local / "step-0000000004" / "shared-00000.safetensors")
        if "://" not in main:
            flip_last(pathlib.Path(main, "step-0000000004", "shard-00000.safetensors"))
        target = {"base": numpy.zeros(4_500_000, "f4"), "a": numpy.zeros(3, "f4")}
        word = "are damaged in" if kind == "flip" else "copied shared-00000.safetensors of step 4"
        with pytest.warns(stoker.StokerWarning, match=word):
            assert ckpt.verify() == 4
        if kind != "flip":  # the local folder is complete again
            verify(local / "step-0000000004")
        with pytest.warns(stoker.StokerWarning) if kind == "flip" else contextlib.nullcontext():
            assert ckpt.restore(target, 4) == 4
        assert (target["base"] == value["base"]).all() and (target["a"] == 4).all()
        if "://" in main:
            return
        # A file that is damaged in both places is an error, and the step before is restored.
        flip_last(pathlib.Path(main, "step-0000000004", "shared-00000.safetensors"))
        if kind != "flip":
            flip_last(local / "step-0000000004" / "shared-00000.safetensors")
        with pytest.raises(stoker.CorruptError):
            ckpt.verify(4)


def test_a_step_that_only_one_place_can_open(main, tmp_path):
    """The manifest of the local step is lost: the main place has it."""
    local = tmp_path / "local"
    with stoker.Checkpointer(main, local=local) as ckpt:
        ckpt.save(1, state(1), wait=True)
        ckpt.wait()
        (local / "step-0000000001" / "stoker.checkpoint.json").write_bytes(b"{")
        target = state(0)
        with pytest.warns(stoker.StokerWarning, match="step 1 .* was not completed"):
            assert ckpt.restore(target) == 1 and same(target, 1)


@pytest.mark.parametrize("name", ["stoker.checkpoint.json", "shard-00000.safetensors"])
def test_a_local_disk_that_fails(tmp_path, name):
    """EIO on a local manifest or file: the main place has the step."""
    if not fuse_server.Mount.is_possible():
        pytest.skip("needs root and /dev/fuse")
    disk = tmp_path / "disk"
    with stoker.Checkpointer(tmp_path / "main", local=disk) as ckpt:
        ckpt.save(1, state(1), wait=True)
        ckpt.save(2, state(2), wait=True)
    with fuse_server.Mount(disk, tmp_path / "local") as mount:
        with stoker.Checkpointer(tmp_path / "main", local=mount.point) as ckpt:
            mount.break_file(name)
            with open(mount.point / "step-0000000002" / name, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            target = state(0)
            is_manifest = name.endswith(".json")
            with pytest.warns(stoker.StokerWarning, match="Input/output error") if is_manifest \
                    else contextlib.nullcontext():
                assert ckpt.restore(target, 2) == 2 and same(target, 2)


class TestAMainPlaceThatFails:
    """A save ends when it is committed locally, whatever the main place answers."""

    def fail(self, monkeypatch, answer):
        server = write_server.serve()
        write_server.lead_to(server, monkeypatch)
        server.script = lambda request: (
            request.command == "GET" and "list-type" in request.query and answer(request)
        )
        return server

    def test_refused_listings(self, tmp_path, monkeypatch):
        refuse = []
        server = self.fail(monkeypatch, lambda request: bool(refuse) and (
            request.refuse(403, "AccessDenied") or True))
        with stoker.Checkpointer("s3://b/run", local=tmp_path / "local", local_keep_last=1) as ckpt:
            refuse.append(True)
            for step in (1, 2):
                ckpt.save(step, state(step), wait=True)
                ckpt.wait()
            assert steps_of(tmp_path / "local") == [2]  # retention ran
            refuse.clear()
            ckpt.remove(1)  # after it the next save lists the main place again
            refuse.append(True)
            ckpt.save(3, state(3), wait=True)
            ckpt.wait()
            refuse.clear()
            assert steps_of("s3://b/run") == [2, 3]
        refuse.append(True)
        with stoker.Checkpointer("s3://b/run") as ckpt:  # without a tier
            ckpt.save(4, state(4), wait=True)
            refuse.clear()
            assert ckpt.latest() == 4
        server.close()

    def test_slow_listings(self, tmp_path, monkeypatch):
        slow, end = threading.Event(), threading.Event()
        server = self.fail(monkeypatch, lambda _: slow.is_set() and end.wait(20) and False)
        with stoker.Checkpointer("s3://b/run", local=tmp_path / "local") as ckpt:
            slow.set()
            assert ckpt.save(1, state(1)).wait(10)
            end.set()
        server.close()


def test_a_lost_local_folder(main, tmp_path):
    """Another machine continues with the main place."""
    with stoker.Checkpointer(main, local=tmp_path / "one") as ckpt:
        ckpt.save(1, state(1))
    with stoker.Checkpointer(main, local=tmp_path / "two") as ckpt:
        target = state(0)
        assert ckpt.restore(target) == 1 and same(target, 1)
        ckpt.save(2, state(2))
    with stoker.Checkpointer(main, local=tmp_path / "one") as ckpt:  # with an old local step
        assert ckpt.restore(target) == 2 and same(target, 2)


def test_frequency_and_backlog(tmp_path):
    """Uploads that are slower than saves leave steps out, and never the newest one."""
    main, local = tmp_path / "main", tmp_path / "local"
    with stoker.Checkpointer(main, local=local, upload_every=10, local_keep_last=3) as ckpt:
        for step in (5, 10, 15, 20, 25):
            ckpt.save(step, state(step), wait=True)
            ckpt.wait()
    assert steps_of(main) == [10, 20] and steps_of(local) == [15, 20, 25]
    with stoker.Checkpointer(
        tmp_path / "m", local=tmp_path / "l", bandwidth="1MiB", keep_every=3, keep_last=9
    ) as ckpt:
        begin = time.monotonic()
        for step in range(1, 8):
            ckpt.save(step, state(step), wait=True)
        assert time.monotonic() - begin < 5  # the limit is that of uploads
        ckpt.wait()
    uploaded = steps_of(tmp_path / "m")
    assert uploaded[-1] == 7 and 3 in uploaded and 6 in uploaded and len(uploaded) < 7


def test_two_saves_of_one_step(tmp_path):
    """A step that the main place has with other contents is an error, and main is read."""
    with stoker.Checkpointer(tmp_path / "main") as ckpt:
        ckpt.save(1, state(1))
    ckpt = stoker.Checkpointer(tmp_path / "main", local=tmp_path / "local")
    ckpt.save(1, state(2), wait=True)
    with pytest.raises(FileExistsError) as caught:
        ckpt.wait()
    assert "step 1 was not uploaded" in "".join(caught.value.__notes__)
    target = state(0)
    assert ckpt.restore(target) == 1 and same(target, 1)
    ckpt.close()


def test_damage_is_not_uploaded(tmp_path):
    main, local = tmp_path / "main", tmp_path / "local"
    with stoker.Checkpointer(local) as ckpt:
        ckpt.save(1, state(1))
        ckpt.save(2, state(2))
    flip(local, 2)
    ckpt = stoker.Checkpointer(main, local=local)  # resumes the upload of step 2
    with pytest.raises(stoker.CorruptError):
        ckpt.wait()
    assert steps_of(main) == []
    assert ckpt.restore(state(0)) == 1
    ckpt.close()


def test_close_has_a_deadline(tmp_path):
    main, local = tmp_path / "main", tmp_path / "local"
    ckpt = stoker.Checkpointer(main, local=local, bandwidth="1MiB", timeout=1)
    ckpt.save(1, state(1, 8_000_000), wait=True)
    begin = time.monotonic()
    with pytest.raises(stoker.TimeoutError, match="upload of step 1"):
        ckpt.close()
    assert time.monotonic() - begin < 10
    assert steps_of(main) == [] and steps_of(local) == [1]
    with stoker.Checkpointer(main, local=local):
        pass
    assert steps_of(main) == [1]
    verify(main)


def test_emergency(tmp_path):
    """The limit of bandwidth does not hold before a deadline."""
    main, local = tmp_path / "main", tmp_path / "local"
    with stoker.Checkpointer(main, local=local, bandwidth="1MiB") as ckpt:
        ckpt.save_on_signal(deadline=20)
        ckpt.save(1, state(1, 8_000_000), wait=True)
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGTERM)
        assert ckpt.stopping(2, state(2, 8_000_000))
        assert 2 in steps_of(main)
        ckpt._tier.stop()


KILLED = """
import sys, numpy, stoker
ckpt = stoker.Checkpointer(sys.argv[1], local=sys.argv[2], keep_last=3, bandwidth=sys.argv[3])
state = {"step": 0, "a": numpy.zeros(300_000, "f4")}
step = ckpt.restore(state) or 0
assert state["step"] == step and (state["a"] == step).all()
print("ready", flush=True)
while True:
    step += 1
    ckpt.save(step, {"step": step, "a": numpy.full(300_000, step, "f4")}, wait=True)
    print(step, flush=True)
"""


def test_kill(tmp_path, rounds=6):
    """kill -9 between commit and upload: no committed step is lost, and both places verify."""
    main, local = tmp_path / "main", tmp_path / "local"
    rng, newest, uploaded = random.Random(2), 0, 0
    for number in range(rounds):
        rate = ("100MiB", "2MiB")[number % 2]
        child = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(main), str(local), rate],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout.readline() == "ready\n"
        time.sleep(rng.random() * 0.5)
        child.send_signal(signal.SIGKILL)
        said = [int(line) for line in child.stdout.read().split("\n")[:-1] if line.isdigit()]
        child.wait()
        newest = max(said, default=newest)
        for place in (main, local):
            if place.exists():
                for step in steps_of(place):
                    assert same(stoker.load(place, step=step), step)
        assert steps_of(local)[-1:] >= [newest][:newest]
    with stoker.Checkpointer(main, local=local) as ckpt:
        ckpt.wait()
        assert ckpt.latest() >= newest > 0
        ckpt.gc()
    uploaded = steps_of(main)
    assert uploaded[-1] == steps_of(local)[-1] >= newest
    verify(main)
    verify(local)
