"""The `stoker` command as a shell user runs it.

Goal: output, exit status, and behaviour with pipes, signals and colour, for every sub-command.
Method: the built command in a subprocess, over tars and folders made here; rows in tables. The
command is STOKER_COMMAND, else the one next to this Python, else one in build*/.
"""

import io
import json
import os
import pathlib
import pty
import shutil
import signal
import subprocess
import sys
import tarfile
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def find_command():
    beside = pathlib.Path(sys.executable).parent / "stoker"
    built = sorted(ROOT.glob("build*/stoker"), key=lambda path: -path.stat().st_mtime)
    for path in [os.environ.get("STOKER_COMMAND"), beside, *built, shutil.which("stoker")]:
        if path and os.access(path, os.X_OK):
            return str(path)
    return None


COMMAND = find_command()
pytestmark = pytest.mark.skipif(COMMAND is None, reason="the stoker command is not built")


def stoker(*words, **options):
    options.setdefault("timeout", 60)
    options.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.run(
        [COMMAND, *map(str, words)], capture_output=True, check=False, **options
    )


def add(tar, name, data):
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def jpeg(seed):
    image = pytest.importorskip("PIL.Image")
    out = io.BytesIO()
    pixels = bytes((seed * 7 + x * 3 + y * 5) % 256 for y in range(48) for x in range(64 * 3))
    image.frombytes("RGB", (64, 48), pixels).save(out, "JPEG", quality=90)
    return out.getvalue()


@pytest.fixture(scope="module")
def tars(tmp_path_factory):
    """Three shards of four samples; no pictures."""
    folder = tmp_path_factory.mktemp("tars")
    for shard in range(3):
        with tarfile.open(folder / f"t-{shard:03}.tar", "w") as tar:
            for i in range(4):
                add(tar, f"a/{shard * 4 + i:04}.bin", bytes([shard, i]) * 100)
                add(tar, f"a/{shard * 4 + i:04}.cls", str(i).encode())
    return folder


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """One shard of 64 pictures with labels."""
    path = tmp_path_factory.mktemp("pictures") / "p.tar"
    with tarfile.open(path, "w") as tar:
        for i in range(64):
            add(tar, f"{i:03}.jpg", jpeg(i))
            add(tar, f"{i:03}.cls", str(i % 4).encode())
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two classes of three pictures."""
    root = tmp_path_factory.mktemp("folder")
    for name in ("cat", "dog"):
        (root / name).mkdir()
        for i in range(3):
            (root / name / f"{i}.jpg").write_bytes(jpeg(i))
    return root


# ---- words ----------------------------------------------------------------------------------

# name, words, exit status, in stdout, in stderr
WORDS = [
    ("version", ["--version"], 0, "stoker 0.", ""),
    ("help", ["help"], 0, "usage: stoker COMMAND", ""),
    ("help of one", ["help", "bench"], 0, "--seconds", ""),
    ("--help after a command", ["ls", "--help"], 0, "--shards", ""),
    ("-h", ["info", "-h"], 0, "--batch", ""),
    ("nothing", [], 2, "", "usage: stoker COMMAND"),
    ("unknown command", ["lss"], 2, "", "did you mean 'stoker ls'?"),
    ("far from any command", ["feed-the-fire"], 2, "", "'stoker help' lists"),
    ("help of nothing", ["help", "nosuchthing"], 2, "", "unknown command: 'nosuchthing'"),
    ("unknown option, near", ["ls", "--limt", "3", "x"], 2, "", "did you mean '--limit'?"),
    ("unknown option, far", ["ls", "--quux", "x"], 2, "", "'stoker help ls' lists"),
    ("option of another command", ["cat", "--epochs", "3", "x"], 2, "", "unknown option"),
    ("short option", ["ls", "-n", "x"], 2, "", "unknown option: '-n'"),
    ("three dashes", ["ls", "---json", "x"], 2, "", "unknown option: '---json'"),
    ("value missing", ["ls", "x", "--limit"], 2, "", "needs a value"),
    ("value for a flag", ["ls", "--json=1", "x"], 2, "", "takes no value"),
    ("not a number", ["ls", "--limit", "x1", "x"], 2, "", "not a number in range: 'x1'"),
    ("negative", ["ls", "--limit", "-1", "x"], 2, "", "not a number"),
    ("zero where 1 is least", ["ls", "--limit=0", "x"], 2, "", "at least 1"),
    ("too large", ["bench", "data", "--image", "99999", "x"], 2, "", "at most 16384"),
    ("past 64 bits", ["ls", "--limit", "99999999999999999999", "x"], 2, "", "not a number"),
    ("unit", ["ls", "--memory", "1Q", "x"], 2, "", "K, M, G or T"),
    ("choice", ["bench", "data", "--dtype", "int8", "x"], 2, "", "uint8|float32"),
    ("seconds", ["bench", "data", "--seconds", "nan", "x"], 2, "", "seconds above 0"),
    ("ls without path", ["ls"], 2, "", "no path given"),
    ("cat without anything", ["cat"], 2, "", "no path given"),
    ("cat of no file", ["cat", "x"], 3, "", "cannot open the file"),
    ("ls of no store", ["ls", "ftp://h/x"], 2, "", "no store is known for this URL: 'ftp://h/x'"),
    ("verify of no store", ["verify", "ftp://h/x.tar"], 2, "", "no store is known"),
    ("a folder of the web", ["verify", "http://h/x/"], 2, "", "a web server cannot be listed"),
    ("a glob of the web", ["ls", "http://127.0.0.1:9/*.tar"], 2, "", "cannot be listed"),
    ("the root of the web", ["index", "https://h"], 2, "", "a web server cannot be listed"),
    ("info without path", ["info"], 2, "", "no path given"),
    ("bench without what", ["bench"], 2, "", "stoker bench data PATH"),
    ("bench of another thing", ["bench", "disk", "x"], 2, "", "say what to measure: 'disk'"),
    ("bench without path", ["bench", "data"], 2, "", "no path given"),
    ("fields without raw", ["bench", "data", "--fields", "jpg", "x"], 2, "", "needs --raw"),
]


@pytest.mark.parametrize("name, words, status, out, err", WORDS, ids=[row[0] for row in WORDS])
def test_words(name, words, status, out, err):
    result = stoker(*words)
    assert result.returncode == status, result
    assert out in result.stdout.decode()
    assert err in result.stderr.decode()
    if status:
        lines = result.stderr.decode().splitlines()
        assert result.stdout == b""
        if words:
            assert lines[0].startswith("stoker: ") and lines[1].startswith("  ")


@pytest.mark.parametrize("words", [["cp"], ["cp", "-r"], ["sync"], ["pack"]], ids=" ".join)
@pytest.mark.parametrize("kind", ["s3", "gs", "az"])
def test_no_bucket(tars, tmp_path, monkeypatch, words, kind):
    """The beginning of all URLs is not a place, though names would make one of it."""
    monkeypatch.chdir(tmp_path)
    source = next(tars.iterdir()) if words == ["cp"] else tars
    result = stoker(*words, str(source), f"{kind}://")
    assert result.returncode == 2 and b"names no bucket" in result.stderr, result
    assert not list(tmp_path.iterdir())


# name, how to make the path, exit status, in stderr
def text_named_tar(path):
    path.write_bytes(b"this is no tar\n" * 100)


def truncated(path):
    with tarfile.open(path, "w") as tar:
        add(tar, "a.bin", b"x" * 9000)
    path.write_bytes(path.read_bytes()[:4000])


BAD = [
    ("not there", lambda path: None, 3),
    ("text named .tar", text_named_tar, 1),
    ("truncated", truncated, 1),
    ("empty folder", lambda path: path.mkdir(), 1),
]


@pytest.mark.parametrize("name, make, status", BAD, ids=[row[0] for row in BAD])
@pytest.mark.parametrize("command", [["ls"], ["info"], ["bench", "data", "--raw"]], ids=str)
def test_bad_data(name, make, status, command, tmp_path):
    path = tmp_path / "bad.tar"
    make(path)
    result = stoker(*command, path)
    assert result.returncode == status, result
    lines = result.stderr.decode().splitlines()
    assert lines[0].startswith("stoker: ") and "bad.tar" in lines[0]
    assert lines[1].startswith("  ") and len(lines[1]) > 4


# ---- ls -------------------------------------------------------------------------------------


def test_ls(tars):
    lines = stoker("ls", tars / "t-{000..002}.tar").stdout.decode().splitlines()
    assert len(lines) == 12
    assert lines[0] == f"a/0000  bin 200@512  cls 1@1536  {tars}/t-000.tar"
    assert stoker("ls", tars).stdout.decode().splitlines() == lines
    assert len(stoker("ls", "--limit", 5, tars).stdout.splitlines()) == 5
    assert stoker("ls", "--", tars).stdout.decode().splitlines() == lines


def test_ls_json_tells_where_the_bytes_are(tars):
    rows = [json.loads(line) for line in stoker("ls", "--json", tars).stdout.splitlines()]
    assert [row["sample"] for row in rows] == list(range(12))
    for row in rows:
        data = pathlib.Path(row["shard"]).read_bytes()
        members = {member["extension"]: member for member in row["members"]}
        start = members["cls"]["offset"]
        assert data[start : start + 1] == str(row["sample"] % 4).encode()
        assert members["bin"]["bytes"] == 200


def test_ls_shards(tars, folder):
    lines = stoker("ls", "--shards", "--json", tars).stdout.splitlines()
    rows = [json.loads(line) for line in lines]
    assert [(row["samples"], row["members"], row["bytes"]) for row in rows] == [(4, 8, 804)] * 3
    lines = stoker("ls", "--shards", folder).stdout.decode().splitlines()
    assert len(lines) == 2 and "3 samples" in lines[0] and lines[1].endswith("dog")
    assert len(stoker("ls", "--shards", "--limit", 1, tars).stdout.splitlines()) == 1


def is_plain(text):
    """Nothing in it moves a cursor, sets a title or ends a line too early; and it is UTF-8."""
    return all(ch == "\n" or ch.isprintable() for ch in text.decode("utf-8"))


# A name in a tar, and how `stoker ls` shows it.
NAMES = [
    (b"esc\x1b[31m", rb"esc\x1b[31m"),
    (b"bad\xff", rb"bad\xff"),
    (b'quote"\\', rb'quote"\\'),
    ("größe".encode(), "größe".encode()),
    ("c1\x9b2J".encode(), rb"c1\xc2\x9b2J"),
    (b"line\nof its own\r", rb"line\x0aof its own\x0d"),
    (b"del\x7f\x08", rb"del\x7f\x08"),
]


def test_names_cannot_drive_the_terminal(tmp_path):
    path = tmp_path / "odd.tar"
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
        for name, _ in NAMES:
            add(tar, name.decode("utf-8", "surrogateescape") + ".bin", b"1")
    lines = stoker("ls", path).stdout.splitlines()
    assert [line.split(b"  bin ")[0] for line in lines] == [shown for _, shown in NAMES]
    out = stoker("ls", "--json", path).stdout
    assert is_plain(out)
    keys = [json.loads(line)["key"] for line in out.splitlines()]
    assert [key.encode("utf-8", "surrogateescape") for key in keys] == [name for name, _ in NAMES]


EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\n"


def damaged_name(folder):
    with tarfile.open(folder / "odd.tar", "w", format=tarfile.GNU_FORMAT) as tar:
        add(tar, f"../{EVIL}.bin", b"1")
    return ["ls", folder / "odd.tar"], 1


def damaged_data(folder):
    with tarfile.open(folder / f"odd{EVIL}.tar", "w", format=tarfile.GNU_FORMAT) as tar:
        add(tar, f"{EVIL}.jpg", b"no picture")
        add(tar, f"{EVIL}.cls", b"1")
    return ["bench", "data", "--seconds", "0.2", folder / f"odd{EVIL}.tar"], 1


def nothing_there(folder):
    return ["ls", folder / EVIL], 1


def no_such_key(folder):
    with tarfile.open(folder / "odd.tar", "w", format=tarfile.GNU_FORMAT) as tar:
        add(tar, f"a.{EVIL}", b"1")
        add(tar, f"a.b{EVIL}", b"1")
    return ["cat", folder / "odd.tar", "a"], 2


def in_a_folder(folder):
    (folder / EVIL.replace("\n", "")).mkdir()
    (folder / EVIL.replace("\n", "") / "1.jpg").write_bytes(b"no picture")
    return ["bench", "data", "--seconds", "0.2", folder], 1


def unknown_words(_):
    return [EVIL], 2


def evil_tar(folder):
    with tarfile.open(folder / f"odd{EVIL}.tar", "w", format=tarfile.GNU_FORMAT) as tar:
        add(tar, f"{EVIL}a.jpg", b"no picture")
        add(tar, f"{EVIL}a.cls", b"1")
        add(tar, f"{EVIL}b.{EVIL}", b"1")
    return folder / f"odd{EVIL}.tar"


def verified(folder):
    return ["verify", evil_tar(folder)], 1


def different(folder):
    with tarfile.open(folder / "other.tar", "w") as tar:
        add(tar, "a.jpg", b"1")
    return ["diff", evil_tar(folder), folder / "other.tar"], 1


def packed(folder):
    return ["pack", evil_tar(folder), folder / f"to{EVIL}"], 0


def packed_twice(folder):
    (folder / f"to{EVIL}").mkdir()
    (folder / f"to{EVIL}" / EVIL).write_bytes(b"")
    return ["pack", evil_tar(folder), folder / f"to{EVIL}"], 3


def packed_odd_pattern(folder):
    return ["pack", "--pattern", f"{EVIL}%d.tar", evil_tar(folder), folder / "to"], None


def indexed(folder):
    return ["index", "--labels", "--out", folder / f"to{EVIL}", evil_tar(folder)], 0


def listed(folder):
    return ["ls", "--shards", evil_tar(folder)], 0


@pytest.mark.parametrize(
    "make_it",
    [damaged_name, damaged_data, nothing_there, no_such_key, in_a_folder, unknown_words]
    + [verified, different, packed, packed_twice, packed_odd_pattern, indexed, listed],
    ids=lambda make_it: make_it.__name__,
)
def test_nothing_drives_the_terminal(tmp_path, make_it):
    words, status = make_it(tmp_path)
    result = stoker(*words, env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)})
    if status is not None:
        assert result.returncode == status, result
    assert b"owned" in result.stdout + result.stderr
    assert is_plain(result.stderr) and is_plain(result.stdout), result
    result = stoker(*words, "--json", env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)})
    assert is_plain(result.stderr) and is_plain(result.stdout), result
    for line in result.stdout.splitlines():
        json.loads(line)


def test_a_finding_is_one_line(tmp_path):
    """Whatever is in a name: a table of findings is read line by line."""
    lines = stoker("verify", evil_tar(tmp_path)).stdout.splitlines()
    rows = stoker("verify", "--json", evil_tar(tmp_path)).stdout.splitlines()
    assert len([line for line in lines if line.startswith(b"picture")]) == 1
    assert [json.loads(row)["key"] for row in rows if b'"picture"' in row] == [f"{EVIL}a"]


# ---- cat ------------------------------------------------------------------------------------


def test_cat(tars):
    assert stoker("cat", tars, "a/0005.bin").stdout == bytes([1, 1]) * 100
    assert stoker("cat", tars, "a/0005.cls").stdout == b"1"
    assert stoker("cat", tars, "a/0005.CLS").stdout == b"1"
    several = stoker("cat", tars, "a/0005")
    assert several.returncode == 2 and b"bin cls" in several.stderr
    missing = stoker("cat", tars, "a/0005.jpg")
    assert missing.returncode == 1 and b"bin cls" in missing.stderr
    nothing = stoker("cat", tars, "a/9999")
    assert nothing.returncode == 1 and b"a/9999" in nothing.stderr


def test_cat_of_a_folder(folder):
    key = json.loads(stoker("ls", "--json", "--limit", 1, folder).stdout)["key"]
    assert stoker("cat", folder, key).stdout == (folder / "cat" / "0.jpg").read_bytes()


def test_cat_of_more_than_a_first_guess(tmp_path):
    """The command does not read the sizes of a folder's files: the first buffer is too small
    here."""
    (tmp_path / "c").mkdir()
    data = jpeg(1) + bytes(3 << 20)
    (tmp_path / "c" / "big.jpg").write_bytes(data)
    key = json.loads(stoker("ls", "--json", tmp_path).stdout)["key"]
    assert stoker("cat", tmp_path, key).stdout == data


# ---- info -----------------------------------------------------------------------------------


def test_info(tars, folder):
    facts = json.loads(stoker("info", "--json", "--batch", 8, "--dtype", "uint8", tars).stdout)
    assert (facts["kind"], facts["samples"], facts["shards"]) == ("webdataset", 12, 3)
    assert facts["members"] == 24 and facts["batch_bytes"] == 8 * 3 * 224 * 224
    assert facts["io_backend"] in ("io_uring", "threads") and facts["io_reason"]
    assert facts["cores"] >= 1 and facts["block_samples"] >= 1
    text = stoker("info", folder).stdout.decode()
    assert "imagefolder" in text and "classes     2" in text
    threads = json.loads(stoker("info", "--json", "--io", "threads", tars).stdout)
    assert threads["io_backend"] == "threads"
    assert threads["identity"] == facts["identity"] != json.loads(
        stoker("info", "--json", folder).stdout
    )["identity"]


def test_info_of_packed_shards_tells_their_order(tmp_path):
    with tarfile.open(tmp_path / "p.tar.gz", "w:gz") as tar:
        add(tar, "a.bin", b"1")
    facts = json.loads(stoker("info", "--json", tmp_path / "p.tar.gz").stdout)
    assert facts["sequential"] and facts["shuffle"] == "none"
    done = stoker("info", "--json", "--shuffle", "full", tmp_path / "p.tar.gz")
    assert done.returncode == 1 and not done.stdout and b"p.tar.gz" in done.stderr


# ---- bench ----------------------------------------------------------------------------------


def test_bench_raw_counts_every_sample(tars):
    words = ["bench", "data", "--raw", "--epochs", 3, "--batch", 5, "--json"]
    facts = json.loads(stoker(*words, tars).stdout)
    assert facts["samples"] == 36 and facts["epochs"] == 3 and not facts["interrupted"]
    assert facts["samples_per_second"] > 0 and facts["first_batch_seconds"] > 0


@pytest.mark.parametrize(
    "more", [[], ["--cold"], ["--shuffle", "full"], ["--threads", "1"]], ids=str
)
def test_bench_pictures(pictures, more):
    words = ["bench", "data", "--epochs", 1, "--image", 32, "--batch", 16, "--json", *more]
    facts = json.loads(stoker(*words, pictures).stdout)
    assert facts["samples"] == 64
    assert facts["batch_bytes"] == 16 * (3 * 32 * 32 * 4 + 8)
    foretold = stoker("info", "--json", "--image", 32, "--batch", 16, pictures)
    assert facts["batches_ahead"] == json.loads(foretold.stdout)["batches_ahead"]
    shares = facts["shares"]
    whole = sum(shares[name] for name in ("decode", "read", "idle", "lock", "other"))
    assert whole == pytest.approx(1, abs=0.01)
    assert shares["ahead"] + shares["storage"] == pytest.approx(shares["idle"])


def test_bench_table(pictures):
    result = stoker("bench", "data", "--seconds", 0.3, "--image", 32, "--dtype", "uint8", pictures)
    text = result.stdout.decode()
    for word in ("samples/s", "MB/s", "CPU ms", "first batch", "memory peak", "decode", "waited"):
        assert word in text
    assert result.returncode == 0 and result.stderr == b""  # no live line: stderr is no terminal


def test_bench_stops_at_a_damaged_picture(tmp_path):
    path = tmp_path / "d.tar"
    with tarfile.open(path, "w") as tar:
        for i in range(8):
            add(tar, f"{i}.jpg", b"no picture" if i == 5 else jpeg(i))
    words = ["bench", "data", "--epochs", 1, "--image", 16, "--batch", 2]
    result = stoker(*words, path)
    assert result.returncode == 1, result
    assert b"d.tar" in result.stderr and b"'5'" in result.stderr
    skipping = [*words, "--on-error", "skip", "--quarantine", tmp_path / "bad", path]
    result = stoker(*skipping)
    assert result.returncode == 1 and result.stderr == b"", result
    table = result.stdout.decode().split("1 damaged sample\n")[1].splitlines()
    assert table[0].split() == ["shard", "key", "offset", "reason"]
    shard, key, offset, reason = table[1].split(maxsplit=3)
    assert (shard, key) == (str(path), "5") and int(offset) > 0 and reason and len(table) == 2
    bad = json.loads(stoker(*skipping, "--json").stdout)["bad"]
    lines = [json.loads(line) for line in (tmp_path / "bad").read_text().splitlines()]
    assert bad == lines[:1] and len(lines) == 2  # a line of each run
    assert bad[0]["reason"] == reason and bad[0]["offset"] == int(offset)
    assert stoker(*words, "--on-error", "skip", "--seed", 3, path).returncode == 1


# ---- manners --------------------------------------------------------------------------------


def test_closed_pipe_is_quiet(tmp_path):
    path = tmp_path / "many.tar"
    with tarfile.open(path, "w") as tar:
        for i in range(5000):
            add(tar, f"{i:08}.cls", b"1")
    process = subprocess.Popen(
        [COMMAND, "ls", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout.readline().startswith(b"00000000")
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(30) == 0


def test_full_disk_is_said(tars):
    with open("/dev/full", "wb") as full:
        result = subprocess.run(
            [COMMAND, "ls", tars], stdout=full, stderr=subprocess.PIPE, check=False, timeout=30
        )
    assert result.returncode == 3 and b"No space left" in result.stderr


def on_terminal(words, seconds, environment):
    """The bytes that the command writes to a terminal on stderr until Ctrl-C stops it; its status
    and stdout."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [COMMAND, *map(str, words)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=slave,
        env={**os.environ, "TERM": "xterm", **environment},
    )
    os.close(slave)
    if seconds:
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
    sent = time.monotonic()
    out = process.communicate(timeout=120)[0]
    answered = time.monotonic() - sent
    screen = b""
    try:
        while chunk := os.read(master, 65536):
            screen += chunk
    except OSError:  # EIO: the other side is closed
        pass
    os.close(master)
    return screen, process.returncode, out.decode(), answered


def test_ctrl_c_prints_the_measurements(pictures):
    words = ["bench", "data", "--seconds", 60, "--image", 32, "--batch", 8, pictures]
    screen, status, out, answered = on_terminal(words, 1.0, {})
    assert status == 130
    assert "interrupted" in out and "samples/s" in out
    assert answered < 1.0  # 0.2 s on an idle machine
    assert b"samples" in screen and b"\r" in screen  # the live line
    assert screen.endswith(b"\r\x1b[K")  # and the line is cleared


def test_colour(tmp_path):
    words = ["ls", tmp_path / "nothing"]
    assert b"\x1b[1;31m" in on_terminal(words, 0, {"NO_COLOR": ""})[0]
    for environment in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert b"\x1b" not in on_terminal(words, 0, environment)[0]
    assert b"\x1b" not in stoker(*words).stderr
