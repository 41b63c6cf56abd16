"""Checkpoints in an object store: the commit is one conditional request, faults cost no step.

Method: an S3 server in this process, whose script answers chosen requests with errors."""

import time

import numpy
import object_server
import pytest
import stoker
import write_server

URL = "s3://b/run"
MANIFEST = "stoker.checkpoint.json"


@pytest.fixture
def store(monkeypatch):
    server = write_server.serve()
    write_server.lead_to(server, monkeypatch)
    yield server
    server.close()


def state(step, large=False):
    count = 11_000_000 if large else 1000  # 44 MB: three parts
    return {"a": numpy.arange(count, dtype="f4") + step, "step": step}


def same(a, b):
    return a["step"] == b["step"] and (a["a"] == b["a"]).all()


def keys(store):
    return sorted(key for _, key in store.objects)


@pytest.mark.parametrize("large", [False, True])
def test_save_and_load(store, large):
    with stoker.Checkpointer(URL, keep_last=2, memory="64MiB") as ckpt:
        for step in (1, 2, 3):
            ckpt.save(step, state(step, large), wait=True)
        assert [found.step for found in ckpt.steps()] == [2, 3]
        assert same(ckpt.load(), state(3, large))
        target = state(0, large)
        assert ckpt.restore(target, step=2) == 2 and same(target, state(2, large))
        ckpt.pin(2)
        ckpt.save(4, state(4, large), wait=True)
        assert [found.step for found in ckpt.steps()] == [2, 3, 4]
    assert not store.uploads
    puts = [key for method, key, _ in store.requested if method in ("PUT", "POST")]
    at = puts.index(f"run/step-0000000004/{MANIFEST}")
    assert not any("step-0000000004/shard" in key for key in puts[at:])  # the manifest is last
    assert same(stoker.load(URL), state(4, large))
    stoker.save(state(5, large), "s3://b/model.safetensors")
    assert same(stoker.load("s3://b/model.safetensors"), state(5, large))


def test_unchanged_tensors(store):
    """A store has no links: each step has all bytes, in one object of its own."""
    base = numpy.arange(4_500_000, dtype="f4")  # 18 MB: a folder would share it
    with stoker.Checkpointer(URL, memory="64MiB") as ckpt:
        for step in (1, 2, 3, 4):
            ckpt.save(step, {"base": base, "step": step}, wait=True)
    shards = [key for key in keys(store) if key.endswith(".safetensors")]
    assert len(shards) == 4 and all("/shard-" in key for key in shards)
    assert (stoker.load(f"{URL}/step-0000000003")["base"] == base).all()


def test_a_step_without_a_manifest_is_none(store):
    with stoker.Checkpointer(URL) as ckpt:
        ckpt.save(1, state(1), wait=True)
        store.script = lambda requested: (
            requested.refuse(403, "AccessDenied") or True
            if requested.command == "PUT" and requested.key.endswith(MANIFEST)
            else None
        )
        with pytest.raises(OSError, match=MANIFEST):
            ckpt.save(2, state(2), wait=True)
        store.script = None
        assert ckpt.latest() == 1 and same(ckpt.load(), state(1))
        ckpt.save(2, state(2), wait=True)
        assert same(ckpt.load(), state(2))


def test_two_jobs_save_the_same_step(store):
    """The second one fails, and the bytes of the first stay, whatever the order of requests."""
    other = stoker.Checkpointer(URL)

    def meanwhile(requested):
        if requested.command == "PUT" and requested.key.endswith(MANIFEST):
            store.script = None
            other.save(1, state(100), wait=True)

    with stoker.Checkpointer(URL) as ckpt:
        store.script = meanwhile
        with pytest.raises(FileExistsError, match="step-0000000001"):
            ckpt.save(1, state(1), wait=True)
        assert same(ckpt.load(1), state(100))
        with pytest.raises(FileExistsError, match="committed already"):
            ckpt.save(1, state(1), wait=True)
        assert same(ckpt.load(1), state(100))
    other.close()


@pytest.mark.parametrize("code", [503, 500])
def test_faults_are_retried(store, code):
    left = [3]

    def script(requested):
        if requested.command in ("PUT", "POST") and left[0] > 0:
            left[0] -= 1
            requested.refuse(code, "SlowDown")
            return True
        return None

    with stoker.Checkpointer(URL) as ckpt:
        store.script = script
        ckpt.save(1, state(1, True), wait=True)
        assert left[0] == 0 and same(ckpt.load(), state(1, True))


def test_lost_answers(store):
    """The manifest is written, but its answer is lost: the save succeeds."""
    lost = []

    def script(requested):
        if requested.command == "PUT" and requested.key.endswith(MANIFEST) and not lost:
            lost.append(requested.key)
            return requested.drop
        return None

    with stoker.Checkpointer(URL) as ckpt:
        store.script = script
        ckpt.save(1, state(1), wait=True)
        assert lost and ckpt.latest() == 1 and same(ckpt.load(), state(1))


@pytest.mark.parametrize("large", [False, True])
def test_a_conflict_is_retried(store, large):
    """409: another request of this key was running. It says nothing about the result."""
    left = [2]

    def script(requested):
        if requested.command == "PUT" and requested.key.endswith(MANIFEST) and left[0] > 0:
            left[0] -= 1
            requested.refuse(409, "ConditionalRequestConflict")
            return True
        return None

    with stoker.Checkpointer(URL) as ckpt:
        store.script = script
        ckpt.save(1, state(1, large), wait=True)
        assert left[0] == 0 and same(ckpt.load(), state(1, large))


@pytest.mark.parametrize("suffix", [".safetensors", MANIFEST])
def test_an_expired_token(store, suffix):
    """The save fails and names its object; older steps stay, and a later save succeeds."""

    def script(requested):
        if requested.command in ("PUT", "POST") and suffix in requested.key:
            requested.refuse(400, "ExpiredToken")
            return True
        return None

    with stoker.Checkpointer(URL) as ckpt:
        ckpt.save(1, state(1), wait=True)
        store.script = script
        with pytest.raises((OSError, stoker.Error), match=suffix):
            ckpt.save(2, state(2), wait=True)
        store.script = None
        assert ckpt.latest() == 1 and same(ckpt.load(), state(1))
        ckpt.save(3, state(3), wait=True)
        assert same(ckpt.load(), state(3))


@pytest.mark.parametrize("large, done", [(False, False), (False, True), (True, True)])
def test_death_at_every_request(store, large, done):
    """From the n-th request of a save on, nothing succeeds any more: as if its process were dead.
    done: the n-th one is carried out, but its answer is an error. A new process finds a complete
    step: the new one only if its manifest was carried out, and the old one for ever."""
    found = []
    with stoker.Checkpointer(URL) as ckpt:
        ckpt.save(1, state(1, large), wait=True)
    for n in range(1, 40):
        count = [0]

        def script(requested, n=n, count=count):
            count[0] += 1
            if count[0] < n:
                return None
            if count[0] == n and done:
                return lambda: requested.refuse(403, "AccessDenied") or True
            requested.refuse(403, "AccessDenied")
            return True

        failed = False
        with stoker.Checkpointer(URL) as ckpt:
            store.script = script
            try:
                ckpt.save(n + 1, state(n + 1, large), wait=True)
            except (OSError, stoker.Error):
                failed = True
            store.script = None
        with stoker.Engine() as engine, stoker.Checkpointer(URL, engine=engine) as ckpt:
            latest = ckpt.latest()
            committed = f"run/step-{n + 1:010}/{MANIFEST}" in keys(store)
            assert (latest == n + 1) == committed and (failed or committed)
            assert same(ckpt.load(), state(latest, large))
            assert same(ckpt.load(step=1), state(1, large))
            found.append(committed)
        if not failed:
            break
    assert found[-1] and found.count(False) >= (5 if large else 2)


def test_objects_of_a_failed_save(store, monkeypatch):
    """A later save commits the same step: gc removes the objects of the first one once they are
    old, and nothing else."""

    def refuse(requested):
        if requested.command == "PUT" and requested.key.endswith(MANIFEST):
            requested.refuse(403, "AccessDenied")
            return True
        return None

    with stoker.Checkpointer(URL) as ckpt:
        store.script = refuse
        with pytest.raises(OSError, match=MANIFEST):
            ckpt.save(1, state(1), wait=True)
        store.script = None
        (left,) = keys(store)
        ckpt.save(1, state(2), wait=True)
        store.objects["b", "run/step-0000000001/notes.txt"] = b"of the user"
        committed = set(keys(store)) - {left}
        with monkeypatch.context() as now:
            now.setattr(object_server, "MODIFIED", time.time())
            assert ckpt.gc()[2] == 0 and left in keys(store)
    with stoker.Engine() as engine, stoker.Checkpointer(URL, engine=engine) as ckpt:
        assert ckpt.gc(dry_run=True)[2] == 1 and left in keys(store)
        assert ckpt.gc()[2] == 1 and set(keys(store)) == committed
        assert same(ckpt.load(), state(2))


def test_every_answer_is_lost(store):
    """The manifest is written, and the save fails: the step has its objects."""

    lost = []

    def script(requested):
        if not requested.key.endswith(MANIFEST):
            return None
        if requested.command == "PUT":
            lost.append(requested.key)
            return requested.drop
        return lost and (requested.refuse(403, "AccessDenied") or True)

    with stoker.Checkpointer(URL) as ckpt:
        store.script = script
        with pytest.raises((OSError, stoker.Error)):
            ckpt.save(1, state(1), wait=True)
        store.script = None
        assert lost
        assert f"run/step-0000000001/{MANIFEST}" in keys(store)
        assert same(ckpt.load(), state(1))


def test_damage_and_removal(store):
    with stoker.Checkpointer(URL) as ckpt:
        for step in (1, 2):
            ckpt.save(step, state(step), wait=True)
        (spot,) = [spot for spot in store.objects if "0002/shard" in spot[1]]
        data = bytearray(store.objects[spot])
        data[-1] ^= 1
        store.objects[spot] = bytes(data)
    with stoker.Engine() as engine, stoker.Checkpointer(URL, engine=engine) as ckpt:
        assert same(ckpt.load(), state(1))
        with pytest.raises(stoker.CorruptError, match="tensor 'a'"):
            ckpt.load(2)
        del store.objects[spot]
        ckpt.save(2, state(20), wait=True)  # one without its files makes room
        assert same(ckpt.load(2), state(20))
        ckpt.remove(2)
        assert [found.step for found in ckpt.steps()] == [1]
        assert not [key for key in keys(store) if "0002" in key]
