"""Conflicting writes: conditions, conflicts, uploads that vanish, answers that are lost.

Goal: the report is right: "exists" only if another writer's object exists, success only if ours
does, and temporary failures are tried again; an upload that the store lost is started again, once;
and no upload is left behind. Method: S3 as a test server, with a script of failures."""

from __future__ import annotations

import make
import pytest
import stoker
import write_server

PART = 5 << 20
LARGE = bytes(range(256)) * (6 << 12)  # two parts
SMALL = b"small" * 100
OTHER = b"of another server"
SPOT = ("b", "k")


@pytest.fixture
def store(monkeypatch):
    server = write_server.serve()
    write_server.lead_to(server, monkeypatch)
    yield server
    server.close()


@pytest.fixture
def files(tmp_path):
    (tmp_path / "small").write_bytes(SMALL)
    (tmp_path / "large").write_bytes(LARGE)
    return tmp_path


def copy(path, **more):
    with stoker.Engine(threads=1, process_sharing=False, read_timeout=20) as engine:
        return stoker.cp(path, "s3://b/k", part_bytes=PART, engine=engine, **more)


def what(request):
    """The request's name, as S3 calls it."""
    query = request.query
    if request.command == "PUT":
        return "part" if "uploadId" in query else "put"
    if request.command == "POST":
        return "begin" if "uploads" in query else "end" if "uploadId" in query else "delete"
    return request.command


class Script:
    """Does `act` with the first `count` requests of a name."""

    def __init__(self, name, act, count=1):
        self.name, self.act, self.left, self.met = name, act, count, 0

    def __call__(self, request):
        if what(request) != self.name:
            return None
        self.met += 1
        if self.left == 0:
            return None
        self.left -= 1
        return self.act(request)


def says(code, word):
    def act(request):
        request.refuse(code, word)
        return True
    return act


def lost(request):
    """The request is carried out, and the answer is lost."""
    return request.drop


def vanished(code=404):
    def act(request):
        """All uploads are removed first."""
        request.server.uploads.clear()
        request.refuse(code, "NoSuchUpload")
        return True
    return act


CONFLICT = says(409, "ConditionalRequestConflict")


@pytest.mark.parametrize("name", ["small", "large"])
def test_a_conflict_passes(store, files, name):
    """And does not mean that an object exists."""
    store.script = Script("put" if name == "small" else "end", CONFLICT, 2)
    copy(files / name, no_clobber=True)
    assert store.objects == {SPOT: (files / name).read_bytes()}
    assert store.script.met == 3 and not store.uploads


@pytest.mark.parametrize("name", ["small", "large"])
def test_a_conflict_that_does_not(store, files, name, monkeypatch):
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "3")
    store.script = Script("put" if name == "small" else "end", CONFLICT, -1)
    with pytest.raises(stoker.Error, match="ConditionalRequestConflict") as raised:
        copy(files / name, no_clobber=True)
    assert not isinstance(raised.value, FileExistsError)
    assert not store.objects and store.script.met == 3


@pytest.mark.parametrize("name, code", [("small", 412), ("large", 412), ("large", 200)])
def test_ours_or_anothers(store, files, name, code):
    """A try whose answer was lost made it; or another writer did meanwhile."""
    step = "put" if name == "small" else "end"
    store.script = Script(step, lost)
    copy(files / name, no_clobber=True)
    assert store.objects == {SPOT: (files / name).read_bytes()} and store.script.met == 2

    def meanwhile(request):
        store.objects[SPOT] = OTHER
        if code == 412:
            return None  # the server's own error text
        request.say(200, b"  <Error><Code>PreconditionFailed</Code></Error>")
        return True

    store.objects.clear()
    store.etags.clear()
    store.script = Script(step, meanwhile)
    with pytest.raises(FileExistsError, match="s3://b/k"):
        copy(files / name, no_clobber=True)
    assert store.objects == {SPOT: OTHER} and not store.uploads


def test_ours_by_its_checksum(store, files):
    """The ETag does not show it, as for objects that are encrypted by keys of KMS."""
    store.etag = "f" * 32 + "-2"
    store.script = Script("end", lost)
    copy(files / "large", check="crc64nvme")
    assert store.objects == {SPOT: LARGE} and store.script.met >= 2
    assert store.begun == 1


@pytest.mark.parametrize("step, code", [("part", 404), ("end", 404), ("end", 200)])
def test_an_upload_that_vanishes(store, files, step, code):
    reports = []
    store.script = Script(step, vanished(code))
    copy(files / "large", progress=reports.append)
    assert store.objects == {SPOT: LARGE}
    assert store.begun == 2 and not store.uploads
    assert reports[-1].bytes_done == reports[-1].bytes == len(LARGE)
    assert (reports[-1].files_done, reports[-1].files_failed) == (1, 0)


@pytest.mark.parametrize("step", ["part", "end"])
def test_uploads_that_always_vanish(store, files, step):
    reports = []
    store.script = Script(step, vanished(), -1)
    with pytest.raises(stoker.ChangedError, match="no longer has this upload.*s3://b/k"):
        copy(files / "large", progress=reports.append)
    assert store.begun == 2 and not store.uploads and not store.objects
    assert (reports[-1].files_done, reports[-1].files_failed) == (0, 1)


@pytest.mark.parametrize("others", [0, 1])
def test_an_upload_without_an_id_in_the_response(store, files, others):
    """It is looked for, and removed, if it can only be ours."""
    def garbled(request):
        for _ in range(1 + others):
            store.begun += 1
            store.uploads[f"id-{store.begun}"] = (SPOT, write_server.now(), {})
        store.uploads["before"] = (SPOT, "2026-01-01T00:00:00Z", {})
        store.uploads["at work"] = (SPOT, write_server.now(), {1: b"part"})
        request.say(200, b"<InitiateMulti")
        return True

    store.uploads["longer"] = (("b", "k2"), write_server.now(), {})
    store.script = Script("begin", garbled)
    with pytest.raises(stoker.CorruptError, match="rm --unfinished-uploads"):
        copy(files / "large")
    left = {"id-1", "id-2"} if others else set()
    assert set(store.uploads) == {"before", "at work", "longer"} | left


@pytest.mark.parametrize("page", [1, 3, 1000])
def test_leftovers_come_in_short_pages(store, page):
    store.upload_page = page
    for number in range(10):
        spot = ("b", f"set/k{number // 3}")  # several of a key
        store.uploads[f"id-{number}"] = (spot, "2026-01-01T00:00:00Z", {})
    store.uploads["other"] = (("b", "else"), "2026-01-01T00:00:00Z", {})
    store.uploads["young"] = (("b", "set/y"), write_server.now(), {})
    with stoker.Engine(threads=1, process_sharing=False) as engine:
        report = stoker.rm("s3://b/set", unfinished_uploads=True, engine=engine)
    assert set(store.uploads) == {"other", "young"}
    assert report.files_removed == 10


@pytest.mark.parametrize("kind", ["GLACIER", "DEEP_ARCHIVE", "forbidden"])
def test_unreadable_files_can_be_removed(store, kind):
    """By the request that removes it; its answer shows whether that is allowed."""
    store.objects[SPOT] = SMALL
    if kind == "forbidden":
        store.script = Script("GET", says(403, "AccessDenied"), -1)
    else:
        store.classes[SPOT] = (kind, "")
    with stoker.Engine(threads=1, process_sharing=False) as engine:
        with pytest.raises(PermissionError):
            stoker.cat("s3://b/k", engine=engine)
        assert stoker.rm("s3://b/k", engine=engine).files_removed == 1
        assert not store.objects
        store.objects[SPOT] = SMALL
        store.script = lambda request: says(403, "AccessDenied")(request)
        with pytest.raises(PermissionError, match="s3://b/k"):
            stoker.rm("s3://b/k", engine=engine)
    assert store.objects == {SPOT: SMALL}


def test_parts_come_in_short_pages(store, files, monkeypatch):
    """The parts that an earlier run left are listed to the end: here the second part."""
    monkeypatch.setenv("STOKER_CACHE", str(files / "cache"))
    make.upload_record(files / "cache", "s3", *SPOT, "left")
    store.part_page = 1
    store.uploads["left"] = (SPOT, "2026-01-01T00:00:00Z", {1: LARGE[:PART], 2: LARGE[PART:]})
    report = copy(files / "large")
    assert store.objects == {SPOT: LARGE} and store.begun == 0
    assert report.bytes_kept == len(LARGE)
