"""Goal: the file system of a path is reported, on real mounts, and never by a call that hangs.

Method: file systems that root can mount here (tmpfs, overlay, ext4, xfs and btrfs on loop devices,
FUSE served by fuse_server.py), and `stoker info` run on them as a user does. NFS, Lustre and others
have no server here: filesystem_test.c tests their rows of the table of mounts.
"""

from __future__ import annotations

import contextlib
import functools
import http.server
import io
import json
import multiprocessing
import os
import pathlib
import shutil
import subprocess
import tarfile
import time

import object_server
import pytest
import servers
from fuse_server import Mount

COMMAND = os.environ.get("STOKER_COMMAND", "stoker")
root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting takes root")
fuse = pytest.mark.skipif(not Mount.is_possible(), reason="no root, or no /dev/fuse")


def stoker(*words, timeout=60):
    return subprocess.run(
        [COMMAND, *map(str, words)], capture_output=True, timeout=timeout, check=False
    )


def ground(path, status=0):
    info = stoker("info", "--filesystem", "--json", path)
    assert info.returncode == status, info.stderr
    return json.loads(info.stdout)["ground"][0]


@contextlib.contextmanager
def mounted(point, *words):
    point.mkdir(exist_ok=True)
    made = subprocess.run(["mount", *map(str, words), str(point)], capture_output=True, check=False)
    if made.returncode != 0:
        pytest.skip(f"cannot mount: {made.stderr.decode().strip()}")
    try:
        yield point
    finally:
        subprocess.run(["umount", "-l", str(point)], check=False)


@root
def test_tmpfs(tmp_path):
    with mounted(tmp_path / "m", "-t", "tmpfs", "-o", "size=1m,nr_inodes=100", "none") as point:
        info = ground(point)
        assert (info["kind"], info["group"], info["mount_point"]) == ("tmpfs", "memory", str(point))
        assert info["bytes_total"] == 1 << 20 and info["inodes_total"] == 100
        assert info["advice"] == [] and info["answers"]
        (point / "full").write_bytes(b"x" * ((1 << 20) - 4096))
        (advice,) = ground(point)["advice"]
        assert advice["level"] == "hint" and "nearly full" in advice["what"]


@root
def test_overlay(tmp_path):
    for name in ("low", "up", "work"):
        (tmp_path / name).mkdir()
    (tmp_path / "low" / "a").write_text("a")
    layers = ",".join(f"{k}dir={tmp_path / v}" for k, v in
                      (("lower", "low"), ("upper", "up"), ("work", "work")))  # fmt: skip
    with mounted(tmp_path / "m", "-t", "overlay", "-o", layers, "none") as point:
        info = ground(point / "a")
        assert (info["kind"], info["group"]) == ("overlay", "layered")
        assert "container" in info["advice"][0]["what"]


@root
@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs"])
def test_loop(tmp_path, kind):
    if not shutil.which(f"mkfs.{kind}"):
        pytest.skip(f"no mkfs.{kind}")
    image = tmp_path / "image"
    with open(image, "wb") as file:
        file.truncate(320 << 20)
    subprocess.run([f"mkfs.{kind}", "-q", str(image)], check=True)
    with mounted(tmp_path / "a b", "-o", "loop,ro", image) as point:
        info = ground(point)
        assert (info["kind"], info["group"]) == (kind, "disk")
        assert info["mount_point"] == str(point) and info["read_only"]
        assert info["device"].startswith("loop") and info["source"].startswith("/dev/loop")
        assert info["presence"] == "here"
        link = tmp_path / "link"
        link.symlink_to(point)
        # the target of the link, not the link's own folder
        assert ground(link)["mount_point"] == str(point)


@fuse
def test_fuse(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "a.bin").write_bytes(b"x" * 100_000)
    with Mount(folder, tmp_path / "m", max_read=65536) as mount:
        info = ground(mount.point / "a.bin", 1)
        assert (info["kind"], info["group"]) == ("fuse", "fuse")
        assert info["read_bytes"] == 65536 and info["presence"] == "here"
        assert [a["what"] for a in info["advice"]] == ["a request fetches 64 KiB at most"]
    with Mount(folder, tmp_path / "n", type="fuse.gcsfuse") as mount:
        info = ground(mount.point)
        assert info["kind"] == "gcsfuse"
        assert info["advice"][0]["command"] == "stoker info gs://BUCKET/PREFIX"


@fuse
def test_silence(tmp_path):
    """A server that does not answer: reported as such within the deadline, and nothing hangs."""
    folder = tmp_path / "data"
    folder.mkdir()
    with Mount(folder, tmp_path / "m") as mount:
        mount.silent(True)
        begun = time.monotonic()
        info = ground(mount.point / "below" / "it", 1)
        assert not info["answers"] and info["mount_point"] == str(mount.point)
        assert info["kind"] == "fuse" and "bytes_total" not in info
        assert "does not respond" in info["advice"][0]["what"]
        text = stoker("info", mount.point / "x.tar")  # not opened as a data set either
        assert text.returncode == 1 and b"DOES NOT RESPOND" in text.stdout
        assert time.monotonic() - begun < 30


def test_words(tmp_path):
    info = stoker("info", "--filesystem", tmp_path / "none")
    assert info.returncode == 3 and b"check the path" in info.stderr
    info = stoker("info", "--filesystem", "s3://bucket/x")
    assert info.returncode == 2 and b"needs a local path" in info.stderr
    (tmp_path / "cat").mkdir()
    shutil.copy(pathlib.Path(__file__), tmp_path / "cat" / "a.tar")
    info = stoker("info", "--filesystem", "--json", str(tmp_path / "cat" / "{a,b}*.tar"))
    assert json.loads(info.stdout)["ground"][0]["path"].endswith("cat/")
    assert b"at most 256" in stoker("ls", "--network-fs-threads", "257", tmp_path / "cat").stderr
    make_data(tmp_path / "data", "tars")
    assert stoker("ls", "--network-fs-threads", "3", tmp_path / "data").stdout.count(b"\n") >= 120


# ---- prewarm --------------------------------------------------------------------------------


def files_in(folder, count, size):
    folder.mkdir()
    for i in range(count):
        with open(folder / f"{i:03}.bin", "wb") as file:
            file.write(os.urandom(size))
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return count * size


def prewarm(*words, status=0):
    info = stoker("prewarm", "--json", *words)
    assert info.returncode == status, (info.returncode, info.stdout, info.stderr)
    return json.loads(info.stdout)


def tells_cold(info):
    if "bytes_cold" not in info:
        pytest.skip("this kernel does not tell what is cold")


def test_prewarm(tmp_path):
    size = files_in(tmp_path / "data", 5, 3 << 20)
    info = prewarm("--check", tmp_path / "data", status=1)
    tells_cold(info)
    cold = info["bytes_cold"]  # the kernel keeps some of the pages that it should drop
    assert 0 < cold <= size and (info["bytes_read"], info["files"]) == (0, 5)
    info = prewarm("--chunk-size", "1M", tmp_path / "data")
    assert 0 < info["bytes_read"] <= size <= info["bytes_read"] + info["bytes_warm"]
    assert info["bytes_done"] == size
    assert (info["bytes_cold"], info["files_done"]) == (0, 5)
    for _ in range(10):  # a kernel that is short of memory drops pages by itself
        again = prewarm(tmp_path / "data")
        if again["bytes_read"] == 0:
            break
    assert (again["bytes_read"], again["bytes_warm"]) == (0, size)
    missing = stoker("prewarm", "--json", tmp_path / "none")
    assert missing.returncode == 3 and b"none" in missing.stderr


@fuse
def test_archive(tmp_path):
    """Files whose bytes are archived: reported, also by --check, which restores none; prewarm
    restores them. If a file system reports no blocks at all, no file is reported as archived."""
    size = files_in(tmp_path / "data", 5, 1 << 20)
    with Mount(tmp_path / "data", tmp_path / "m") as mount:
        mount.send_away("001.bin", "003.bin")
        info = ground(mount.point, 1)
        assert (info["presence"], info["files"], info["files_away"]) == ("partly", 5, 2)
        assert info["bytes_away"] == 2 << 20
        (advice,) = [a for a in info["advice"] if a["level"] == "finding"]
        assert advice["what"] == "2 of 5 checked files are archived"
        assert advice["command"] == f"stoker prewarm {mount.point}"
        checked = prewarm("--check", mount.point, status=1)
        assert (checked["files_looked_at"], checked["files_away"]) == (5, 2)
        assert (checked["bytes_away"], checked["bytes_read"]) == (2 << 20, 0)
        text = stoker("prewarm", "--check", mount.point)
        assert b"archived   2 of 5 inspected files, 2.1 MB: in" in text.stdout
        assert mount.requests()["read"] == 0
        prewarmed = prewarm(mount.point)
        assert (prewarmed["files_away"], prewarmed["bytes_done"]) == (0, size)
        assert ground(mount.point)["presence"] == "here"
        mount.send_away(*(f"{i:03}.bin" for i in range(5)))
        assert ground(mount.point)["presence"] == "unknown"


@fuse
def test_prewarm_killed(tmp_path):
    """kill -9 in the middle of a slow mount: the next run reads the rest, no piece twice."""
    size = files_in(tmp_path / "data", 40, 1 << 20)
    with Mount(tmp_path / "data", tmp_path / "m", delay=8) as mount:
        words = [COMMAND, "prewarm", "--workers", "2", "--chunk-size", "1M", str(mount.point)]
        running = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 30
        while mount.requests()["read"] < 12 and time.monotonic() < deadline:
            time.sleep(0.01)
        running.kill()
        running.wait()
        info = prewarm("--chunk-size", "1M", mount.point)
        tells_cold(info)
        assert info["bytes_warm"] > 0 and info["bytes_read"] > 0 and info["bytes_cold"] == 0
        assert info["bytes_done"] == size and info["files_done"] == 40
        assert info["bytes_read"] + info["bytes_warm"] <= size + 2 * (1 << 20)  # in hand, then


@fuse
def test_prewarm_deadlines(tmp_path):
    """A slow server: not all in time, exit 1; a server that stops answering: a typed error."""
    files_in(tmp_path / "data", 200, 1 << 16)
    with Mount(tmp_path / "data", tmp_path / "m", delay=20) as mount:
        begun = time.monotonic()
        late = prewarm("--seconds", "1", "--workers", "2", mount.point, status=1)
        assert time.monotonic() - begun < 15 and 0 < late["files_done"] < 200
        touched = prewarm("--touch", mount.point / "000.bin")
        assert touched["bytes_read"] == 1
        mount.silent(True)
        begun = time.monotonic()
        running = subprocess.Popen(
            [COMMAND, "prewarm", "--read-timeout", "1", str(mount.point)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        line = running.stderr.readline()
        assert b"stoker:" in line and time.monotonic() - begun < 20
        mount.silent(False)  # a process that waits in FUSE cannot be killed
        running.communicate(timeout=30)
        assert running.returncode == 3


def test_prewarm_url(tmp_path):
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    files_in(tmp_path / "data", 1, 300_000)
    handler = functools.partial(Quiet, directory=str(tmp_path / "data"))
    with servers.serving(handler) as server:
        info = prewarm(f"{server.url}/000.bin")
    assert (info["bytes_read"], info["files_done"]) == (300_000, 1) and "bytes_cold" not in info


# ---- one lister a machine -------------------------------------------------------------------


def make_data(folder, kind):
    folder.mkdir()
    if kind == "folder":
        for i in range(40):
            name = folder / f"class{i % 4}" / f"{i:03}.jpg"
            name.parent.mkdir(exist_ok=True)
            name.write_bytes(b"x" * 100)
        return
    for shard in range(6):
        with tarfile.open(folder / f"{shard}.tar", "w") as tar:
            for i in range(20):
                info = tarfile.TarInfo(f"{shard}-{i:03}.jpg")
                info.size = 5000
                tar.addfile(info, io.BytesIO(b"x" * 5000))


def open_together(path, barrier, send):
    import stoker

    barrier.wait()
    begun = time.monotonic()
    dataset = stoker.Dataset(path)
    took = "another process" in dataset.index_note
    last = dataset.sample(len(dataset) - 1).key
    send.send((len(dataset), dataset.identity, took, last, time.monotonic() - begun))


def ranks_open(path, count):
    context = multiprocessing.get_context("spawn")
    barrier, ends = context.Barrier(count), [context.Pipe(duplex=False) for _ in range(count)]
    ranks = [
        context.Process(target=open_together, args=(str(path), barrier, send))
        for _, send in ends
    ]
    for process in ranks:
        process.start()
    for _, send in ends:
        send.close()
    got = []
    for receive, _ in ends:
        with contextlib.suppress(EOFError):
            got.append(receive.recv())
    for process in ranks:
        process.join(60)
    return got


@fuse
@pytest.mark.parametrize("kind", ["folder", "tars"])
def test_ranks_list_once(tmp_path, kind, monkeypatch):
    """Eight ranks open a mount together: as many requests as one of them makes, not eight times."""
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("STOKER_NODE_DIR", str(tmp_path))
    make_data(tmp_path / "data", kind)
    with Mount(tmp_path / "data", tmp_path / "m", delay=4) as mount:
        (alone,) = ranks_open(mount.point, 1)
        one = mount.requests()
        mount.forget()
        got = ranks_open(mount.point, 8)
        requested = mount.requests()
    assert {row[:2] + row[3:4] for row in got} == {alone[:2] + alone[3:4]} and len(got) == 8
    # a process that starts a moment too late lists, too
    assert [row[2] for row in got].count(True) >= 6
    work = "open" if kind == "tars" else "readdir"
    assert 0 < one[work] and requested[work] <= 3 * one[work], (one, requested)
    assert not list(tmp_path.glob("stoker-turns-*/*.result"))


@fuse
def test_index_reads_no_file(tmp_path):
    """With an index neither the files of a folder nor the headers of tars are read."""
    for kind in ("folder", "tars"):
        make_data(tmp_path / kind, kind)
        assert stoker("index", tmp_path / kind).returncode == 0
        with Mount(tmp_path / kind, tmp_path / f"m-{kind}") as mount:
            assert len(ranks_open(mount.point, 1)) == 1
            lines = mount.log.read_text().splitlines()
        about = [line for line in lines if line.split(" ", 1)[1].endswith((".jpg", ".tar"))]
        if kind == "folder":
            assert not [line for line in about if line.startswith(("getattr", "open", "read "))]
        assert not [line for line in about if line.startswith(("open", "read "))]


@fuse
def test_lister_killed(tmp_path, monkeypatch):
    """kill -9 of the process that lists: another takes over, and the rest get their data set."""
    monkeypatch.setenv("STOKER_NODE_DIR", str(tmp_path))
    make_data(tmp_path / "data", "tars")
    with Mount(tmp_path / "data", tmp_path / "m", delay=20) as mount:
        context = multiprocessing.get_context("spawn")
        barrier = context.Barrier(4)
        pairs = [context.Pipe(duplex=False) for _ in range(4)]
        ranks = [
            context.Process(target=open_together, args=(str(mount.point), barrier, send))
            for _, send in pairs
        ]
        for process in ranks:
            process.start()
        for _, send in pairs:
            send.close()
        holder, deadline = None, time.monotonic() + 30
        while holder is None and time.monotonic() < deadline:
            for lock in tmp_path.glob("stoker-turns-*/*.lock"):
                number = lock.stat().st_ino
                for line in pathlib.Path("/proc/locks").read_text().splitlines():
                    if f":{number} " in line and " WRITE " in line and "->" not in line:
                        holder = int(line.split()[4])
            time.sleep(0.005)
        assert holder in [process.pid for process in ranks]
        os.kill(holder, 9)
        got = []
        for receive, _ in pairs:
            with contextlib.suppress(EOFError):
                got.append(receive.recv())
        for process in ranks:
            process.join(60)
    assert len(got) == 3 and {row[0] for row in got} == {120}
    assert [row[2] for row in got].count(False) >= 1


def test_ranks_list_a_store_once(tmp_path, monkeypatch):
    """The same for a bucket: listing and headers are requested once for eight ranks."""
    make_data(tmp_path / "data", "tars")
    objects = {("data", f"t/{f.name}"): f.read_bytes() for f in (tmp_path / "data").iterdir()}
    server = object_server.s3(objects, {"id": ("secret", "", time.time() + 600)})
    answered = server.RequestHandlerClass.do_GET

    def slow(handler):
        time.sleep(0.05)
        answered(handler)

    monkeypatch.setattr(server.RequestHandlerClass, "do_GET", slow)
    for name, value in (
        ("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "secret"),
        ("AWS_ENDPOINT_URL", server.url), ("AWS_REGION", "here"),
        ("STOKER_CACHE", str(tmp_path / "cache")), ("STOKER_NODE_DIR", str(tmp_path)),
    ):  # fmt: skip
        monkeypatch.setenv(name, value)
    (alone,) = ranks_open("s3://data/t", 1)
    one, before = len(server.seen), len(server.seen)
    got = ranks_open("s3://data/t", 8)
    requested = len(server.seen) - before
    server.close()
    assert {row[:2] + row[3:4] for row in got} == {alone[:2] + alone[3:4]} and len(got) == 8
    assert [row[2] for row in got].count(True) >= 5
    assert requested <= 5 * one  # each rank resolves its URL before it waits
