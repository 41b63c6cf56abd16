"""What cp, sync, mv and rm must never do: remove or write through a symbolic link, confuse one file
with another, lose attributes, or ignore a failure silently. Each test fails without the code that
it names."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import time

import pytest
from test_cli import COMMAND

import stoker

WAIT = 120


def run(*words, ok=0, env=None, text=None):
    process = subprocess.run([COMMAND, *map(str, words)], capture_output=True, text=True,
                             timeout=WAIT, env={**os.environ, **(env or {})}, input=text)
    assert ok is None or process.returncode == ok, (words, process.returncode, process.stderr)
    return process


def write(path, data=b"x"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def below(root):
    return {str(path.relative_to(root)): path.read_bytes()
            for path in sorted(pathlib.Path(root).rglob("*")) if path.is_file()}


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A working directory with precious/a and links to it."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "precious/a", b"data")
    (tmp_path / "link").symlink_to("precious")
    (tmp_path / "tmp/sub").mkdir(parents=True)
    (tmp_path / "tmp/link").symlink_to("../precious")
    (tmp_path / "tmp/gone").symlink_to("nothing")
    write(tmp_path / "tmp/sub/1.txt")
    return tmp_path


# ---- symbolic links ----


@pytest.mark.parametrize("words", [
    ("-r", "--yes", "link"), ("--yes", "link"), ("-r", "--yes", "tmp/*"), ("-r", "--yes", "tmp"),
    ("--yes", "tmp/**"), ("--yes", "tmp/**/*.txt"), ("--yes", "tmp/**/a"), ("--yes", "tmp/*/a"),
    ("-r", "--yes", "link/"), ("-r", "--yes", "tmp/*/"), ("--yes", "tmp/[!x]*/a"),
])
def test_rm_never_removes_through_a_link(place, words):
    run("rm", *words, ok=None)
    assert (place / "precious/a").read_bytes() == b"data"


def test_rm_removes_a_link_and_a_link_to_nothing(place):
    run("rm", "link")
    run("rm", "tmp/gone")
    assert not os.path.lexists(place / "link") and not os.path.lexists(place / "tmp/gone")
    process = run("rm", "-r", "--yes", "tmp/link/", ok=3)
    assert "symbolic link" in process.stderr


@pytest.mark.parametrize("recursive", [False, True])
def test_rm_of_python_never_removes_through_a_link(place, recursive):
    stoker.rm("link", recursive=recursive)
    assert not os.path.lexists(place / "link")
    stoker.rm("tmp/**", recursive=True)
    assert (place / "precious/a").read_bytes() == b"data"


def test_a_link_to_nothing_is_no_pattern(place):
    """Its name has a bracket, and another file would match."""
    write(place / "k1")
    (place / "k[1]").symlink_to("nothing")
    run("rm", "k[1]")
    assert (place / "k1").exists() and not os.path.lexists(place / "k[1]")


@pytest.mark.parametrize("name", [".", "..", "tmp/..", "tmp/.", "/"])
def test_rm_refuses_folders_without_a_name(place, name):
    run("rm", "-r", "--yes", name, ok=2)
    assert (place / "precious/a").exists() and (place / "tmp/sub/1.txt").exists()


def test_patterns_of_cp_do_not_leave_the_tree(place):
    run("cp", "tmp/**/*", "out/", ok=None)
    assert "a" not in below(place / "out")
    run("cp", "tmp/**/*.txt", "out2/")
    assert below(place / "out2") == {"1.txt": b"x"}


def test_cp_names_left_out_files(place):
    write(place / "src/cat/1.jpg")
    (place / "src/emu").symlink_to("../precious")
    process = run("cp", "-r", "src", "out", ok=1)
    assert "src/emu" in process.stderr and below(place / "out") == {"cat/1.jpg": b"x"}
    reported = json.loads(run("sync", "--json", "src", "out", ok=1).stdout)
    assert reported["left_out"] == ["src/emu"] and reported["links_left_out"] == 1
    report = stoker.cp("src", "out", recursive=True)
    assert [(entry.kind, entry.name) for entry in report.entries] == [("left out", "src/emu")]


# ---- a destination that another process changes ----


def swap(folder, link):
    """Replaces a folder by a link, as another user of a shared folder may do."""
    folder.rename(folder.with_name("moved"))
    folder.symlink_to(link)


@pytest.mark.parametrize("command", ["cp", "sync"])
def test_a_folder_of_the_destination_becomes_a_link(place, command):
    for number in range(12):
        write(place / f"src/sub/{number:02}", bytes(60_000))
    words = [command, *(["-r"] if command == "cp" else []), "--bandwidth", "400K", "src", "out"]
    with subprocess.Popen([COMMAND, *words], stderr=subprocess.PIPE, text=True) as process:
        until = time.monotonic() + WAIT
        while not (place / "out/sub/00").exists() and time.monotonic() < until:
            time.sleep(0.005)
        swap(place / "out/sub", place / "precious")
        text = process.communicate(timeout=WAIT)[1]
    assert process.returncode == 3 and "symbolic link" in text, text
    assert os.listdir(place / "precious") == ["a"]
    assert len(os.listdir(place / "out/moved")) < 12


SWAPPER = """
import ctypes
exchange = ctypes.CDLL(None).renameat2
while True:
    for folder in b"now/out/sub", b"now/src/sub":
        exchange(-100, folder, -100, folder + b"-link", 2)
"""


@pytest.mark.parametrize("call", [
    lambda turn: stoker.cp(f"{turn}/src", f"{turn}/out", recursive=True),
    lambda turn: stoker.sync(f"{turn}/src", f"{turn}/out", compare="checksum", delete=True),
    lambda turn: stoker.mv(f"{turn}/src", f"{turn}/out", recursive=True),
])
def test_folders_and_links_change_places_all_the_time(place, call):
    """A file that is written, renamed or removed through a link is one of `safe`."""
    names = [str(number) for number in range(8)]
    for name in names:
        write(place / "safe" / name, b"safe")
    process = subprocess.Popen([sys.executable, "-c", SWAPPER])
    try:
        for turn in range(40):
            for name in names:
                write(place / f"{turn}/src/sub" / name, b"data")
            (place / f"{turn}/out/sub").mkdir(parents=True)
            for folder in ("src", "out"):
                (place / f"{turn}/{folder}/sub-link").symlink_to(place / "safe")
            (place / "next").symlink_to(str(turn))
            (place / "next").rename(place / "now")
            with contextlib.suppress(stoker.Error, OSError):
                call(turn)
            assert below(place / "safe") == dict.fromkeys(names, b"safe"), turn
    finally:
        process.kill()
        process.wait()


# ---- one file for another ----


@pytest.mark.parametrize("words", [("sync", "--delete", "src", "new"), ("cp", "-r", "src", "new"),
                                   ("sync", "--delete", "src", "a/b/new"),
                                   ("sync", "--delete", "./src/", "./new/")])
def test_a_destination_that_is_not_there(place, words):
    write(place / "src/a")
    run(*words)
    assert below(place / words[-1]) == {"a": b"x"}


def test_permissions_and_time_are_copied(place):
    write(place / "key").chmod(0o600)
    write(place / "script").chmod(0o755)
    os.utime("key", ns=(10**18 + 1, 10**18 + 123456789))
    run("cp", "key", "copy")
    run("cp", "script", "copied")
    assert os.stat("copy").st_mode & 0o777 == 0o600 and os.stat("copied").st_mode & 0o777 == 0o755
    assert os.stat("copy").st_mtime_ns == 10**18 + 123456789
    write(place / "private").chmod(0o600)
    run("cp", "script", "private")
    assert os.stat("private").st_mode & 0o777 == 0o600


def test_a_dry_run_with_json_needs_little_memory_for_each_name(place):
    """copy_report.c: a note of the library has 18 KiB."""
    for number in range(10000):
        (place / f"tmp/{number}").touch()
    meter = ("import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, "
             "stdout=subprocess.DEVNULL); "
             "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
    words = [COMMAND, "cp", "-r", "-n", "--json", "--exclude", "link", "--exclude", "gone", "tmp",
             "new"]
    reported = subprocess.run([sys.executable, "-c", meter, *map(str, words)], capture_output=True,
                          timeout=WAIT, check=True)
    assert int(reported.stdout) < 120 << 10


def test_system_files_are_left_out_and_counted(tmp_path):
    """cp and sync leave out what operating systems leave in folders, name it, and do not delete
    it; system_files copies it; mv moves and rm removes it."""
    names = ["a/1.jpg", "a/._1.jpg", ".DS_Store", "__MACOSX/a/._1.jpg", "b/Thumbs.db",
             "b/.ipynb_checkpoints/x.ipynb", "b/_x", "b/.hidden", "b/._"]
    for name in names:
        write(tmp_path / "src" / name, name.encode())
    wanted = ["a/1.jpg", "b/._", "b/.hidden", "b/_x"]

    def below(root):
        return sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file())

    report = stoker.cp(tmp_path / "src", tmp_path / "python", recursive=True)
    assert below(tmp_path / "python") == wanted and report.system_files_left_out == 5
    assert report.files == 4 and report.links_left_out == 0
    left = sorted(entry.name for entry in report.entries if entry.kind == "system file")
    assert left == sorted(f"{tmp_path}/src/{name}" for name in set(names) - set(wanted))
    for words in (["cp", "-r"], ["sync"]):
        write(tmp_path / words[0] / ".DS_Store", b"of the destination")
        done = subprocess.run(
            ["stoker", *words, "--json", tmp_path / "src", tmp_path / words[0]],
            capture_output=True, text=True, timeout=60, check=True,
        )
        reported = json.loads(done.stdout)
        assert reported["system_files_left_out"] == 5 and len(reported["system_files"]) == 5
        assert below(tmp_path / words[0]) == sorted([*wanted, ".DS_Store"])
    stoker.sync(tmp_path / "src", tmp_path / "sync", delete=True)
    assert (tmp_path / "sync" / ".DS_Store").read_bytes() == b"of the destination"
    subprocess.run(
        ["stoker", "cp", "-r", "--system-files", tmp_path / "src", tmp_path / "all"],
        capture_output=True, timeout=60, check=True,
    )
    assert below(tmp_path / "all") == sorted(names)
    stoker.cp(tmp_path / "src" / ".DS_Store", tmp_path / "one")  # named by the caller
    assert (tmp_path / "one").exists()
    stoker.mv(tmp_path / "all", tmp_path / "moved", recursive=True)
    assert below(tmp_path / "moved") == sorted(names)
    stoker.rm(tmp_path / "moved", recursive=True)
    assert not (tmp_path / "moved").exists()


@pytest.mark.parametrize("path", ["/proc/filesystems", "/proc/cpuinfo", "/proc/kallsyms",
                                  "/sys/devices/system/cpu/online", "/sys/class/net/lo/mtu",
                                  "/sys/kernel/uevent_helper"])
def test_files_without_a_size_are_read_to_the_end(tmp_path, path):
    """Their st_size is 0, or a page; the largest has some megabytes, the last one 1 byte."""
    if not os.path.exists(path):
        pytest.skip(f"no {path} here")
    want = pathlib.Path(path).read_bytes()
    assert want and os.stat(path).st_size in (0, os.sysconf("SC_PAGESIZE"))
    assert stoker.cat(path) == want or path == "/proc/cpuinfo"
    report = json.loads(run("cp", "--json", path, f"{tmp_path}/d/").stdout)
    found = (tmp_path / "d" / os.path.basename(path)).read_bytes()
    assert len(found) == report["bytes"]
    if path != "/proc/cpuinfo":  # its frequencies change
        assert found == want
    assert abs(len(found) - len(want)) < 1000
