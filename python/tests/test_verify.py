"""stoker.verify and the command: real damage is found, named and repaired.

Goal: each kind of damage, made by Python in files, is a finding with its place; a good data set has
none; repaired shards are clean and otherwise unchanged byte for byte, whatever ends the repair.
Method: data sets by tarfile, PIL and `stoker pack`; tarfile reads the repaired shards.
"""

import gzip
import hashlib
import itertools
import json
import os
import pathlib
import pickle
import shutil
import subprocess
import sys
import tarfile
import time

import make
import pytest
import stoker
import test_cli

needs_command = pytest.mark.skipif(test_cli.COMMAND is None, reason="the command is not built")
SAMPLES = 12


def members(number):
    key = f"s{number:03}"
    picture = make.pixels(number, 64, 80)
    return [
        (f"{key}.jpg", make.encoded(picture)),
        (f"{key}.png", make.encoded(picture[:20, :20], "PNG")),
        (f"{key}.txt", f"text {number}".encode()),
    ]


@pytest.fixture
def tars(tmp_path):
    """Two tars of 6 samples."""
    root = tmp_path / "set"
    for shard in range(2):
        numbers = range(6 * shard, 6 * shard + 6)
        make.tar(root / f"{shard}.tar", list(itertools.chain(*map(members, numbers))))
    return root


@pytest.fixture(scope="module")
def packed_once(tmp_path_factory):
    root = tmp_path_factory.mktemp("packed")
    make.tar(root / "src" / "a.tar", list(itertools.chain(*map(members, range(SAMPLES)))))
    done = test_cli.stoker("pack", "--keep-order", "--shard-size", "60K", root / "src",
                           root / "dst")
    assert done.returncode == 0, done.stderr
    assert len(list((root / "dst").glob("*.tar"))) == 2
    return root / "dst"


@pytest.fixture
def packed(packed_once, tmp_path):
    """The same with manifest and index of checksums."""
    return pathlib.Path(shutil.copytree(packed_once, tmp_path / "packed"))


def find(source, engine=None, **options):
    with stoker.verify(source, engine=engine, **options) as check:
        found = list(check)
    assert check.progress()["findings"] == sum(not f.note for f in found)
    return found


def places(tar):
    """Offset of the data and size of each member, by name."""
    with tarfile.open(tar) as archive:
        return {m.name: (m.offset_data, m.size) for m in archive}


def contents(*tars):
    result = {}
    for tar in tars:
        with tarfile.open(tar) as archive:
            result.update({m.name: archive.extractfile(m).read() for m in archive})
    return result


def change(path, at, data):
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(data)


def flip(path, at):
    change(path, at, bytes([path.read_bytes()[at] ^ 1]))


def inside(picture):
    """An offset within the scan of a JPEG: the data after the scan's header."""
    start = picture.index(b"\xff\xda")
    return start + (len(picture) - start) // 2


def without_codes(tar, name):
    """Puts ones (0xff, stuffed) into a JPEG's scan: no Huffman code is all ones (T.81, C)."""
    offset, size = places(tar)[name]
    picture = tar.read_bytes()[offset : offset + size]
    at = inside(picture)
    change(tar, offset + at, b"\xff\0" * 32)


# ---- kinds of damage ------------------------------------------------------------------------


def test_undamaged(tars, packed, folder, engine):
    for source, samples, files in ((tars, 12, 2), (packed, SAMPLES, 2), (folder, 40, 40)):
        with stoker.verify(source, engine=engine, deep=True) as check:
            assert list(check) == []
        progress = check.progress()
        assert (progress["samples"], progress["shards"], progress["findings"]) == (
            samples,
            files,
            0,
        )
        assert progress["shards_total"] == files and progress["notes"] == 0
        assert progress["bytes"] > 10_000


def truncate(tar):
    os.truncate(tar, places(tar)["s004.jpg"][0] + 100)


def cut_end(tar):
    data = tar.read_bytes()
    os.truncate(tar, len(data.rstrip(b"\0")) // 512 * 512 + 512)


def break_checksum(tar):
    change(tar, places(tar)["s002.png"][0] - 512 + 148, b"0000000\0")


def break_size(tar):
    change(tar, places(tar)["s002.jpg"][0] - 512 + 124, b"x")


def break_jpeg_header(tar):
    change(tar, places(tar)["s003.jpg"][0], b"\0")


def break_png_data(tar):
    offset, size = places(tar)["s003.png"]
    flip(tar, offset + size // 2)


def cut_jpeg_short(tar):
    offset, size = places(tar)["s003.jpg"]
    change(tar, offset + size - 40, bytes(40))


def break_padding(tar):
    offset, size = places(tar)["s001.txt"]
    change(tar, offset + size + 9, b"!")


def climb(tar):
    name = b"../" + b"s001.txt"
    at = places(tar)["s001.txt"][0] - 512
    header = bytearray(tar.read_bytes()[at : at + 512])
    header[:100] = name.ljust(100, b"\0")
    change(tar, at, make.checksummed(bytes(header)))


# name, damage to 0.tar, kind, status, key, samples that repair keeps
DAMAGE = [
    ("truncated", truncate, "end", "TRUNCATED", "s004.jpg", 4),
    ("no end marker", cut_end, "end", "TRUNCATED", "", 6),
    ("header's checksum", break_checksum, "header", "CORRUPT", "", 5),
    ("header's size", break_size, "header", "CORRUPT", "", 5),
    ("jpeg's header", break_jpeg_header, "picture", "FORMAT", "s003", 5),
    ("png's data", break_png_data, "picture", "CORRUPT", "s003", 5),
    ("jpeg without end", cut_jpeg_short, "picture", "TRUNCATED", "s003", 5),
    ("padding", break_padding, "padding", "CORRUPT", "s001", 6),
    ("a name that climbs", climb, "name", "CORRUPT", "../s001.txt", 6),
]


@pytest.mark.parametrize(
    "name, damage, kind, status, key, left", DAMAGE, ids=[d[0] for d in DAMAGE]
)
def test_damage(tars, engine, name, damage, kind, status, key, left):
    path = tars / "0.tar"
    whole, other = contents(path), (tars / "1.tar").read_bytes()
    damage(path)
    damaged = path.read_bytes()
    (found,) = find(tars, engine)
    assert (found.kind, found.name, found.key) == (kind, f"STOKER_ERROR_{status}", key)
    assert found.shard == str(path) and found.what and found.advice and not found.note
    assert found.offset is None or 0 <= found.offset <= len(damaged)
    with stoker.verify(tars, engine=engine, repair=True) as check:
        assert list(check) == [found]
    assert check.progress()["repaired"] == 1
    assert (tars / "0.tar.original").read_bytes() == damaged
    assert (tars / "1.tar").read_bytes() == other
    assert sorted(p.name for p in tars.iterdir()) == ["0.tar", "0.tar.original", "1.tar"]
    assert find(tars, engine, deep=True) == []
    with stoker.Dataset(path, engine=engine) as data:
        assert len(data) == left
    kept = contents(path)
    assert kept.items() <= whole.items()


def test_repair_keeps_attributes(tars, engine):
    path = tars / "0.tar"
    DAMAGE[0][1](path)
    path.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(path, 1234, 4321)
    try:
        os.setxattr(path, "user.note", b"mine")
    except OSError:  # a file system without them
        pass
    before = path.stat()
    names = {name: os.getxattr(path, name) for name in os.listxattr(path)}
    with stoker.verify(tars, engine=engine, repair=True) as check:
        list(check)
    assert check.progress()["repaired"] == 1
    after = path.stat()
    assert after.st_ino != before.st_ino
    assert (after.st_mode, after.st_uid, after.st_gid) == (
        before.st_mode,
        before.st_uid,
        before.st_gid,
    )
    assert {name: os.getxattr(path, name) for name in os.listxattr(path)} == names


def test_damage_of_the_packing(tmp_path, engine):
    data = make.tar(tmp_path / "a.tar", members(1)).read_bytes()
    (tmp_path / "set").mkdir()
    whole = gzip.compress(data, mtime=0)
    (tmp_path / "set" / "a.tar.gz").write_bytes(whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:])
    (tmp_path / "set" / "b.tar.gz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "set" / "c.tar.gz").write_bytes(whole)
    found = find(tmp_path / "set", engine)
    assert [(f.kind, pathlib.Path(f.shard).name) for f in found] == [
        ("packing", "a.tar.gz"),
        ("packing", "b.tar.gz"),
    ]
    found = find(tmp_path / "set", engine, repair=True)
    # Only the size at its end is wrong, and the CRC verifies the bytes; of b nothing is left.
    assert [f.kind for f in found] == ["packing", "packing", "unrepaired"]
    assert gzip.decompress((tmp_path / "set" / "a.tar.gz").read_bytes()) == data
    assert (tmp_path / "set" / "c.tar.gz").read_bytes() == whole


def test_damage_everywhere(tars, engine):
    """One finding each, in the order of the file; the walk continues after each."""
    path = tars / "0.tar"
    for damage in (break_padding, break_jpeg_header, break_png_data):
        damage(path)
    header = places(path)["s005.txt"][0] - 512
    change(path, header + 148, b"9")
    found = find(tars, engine)
    assert [f.kind for f in found] == ["padding", "picture", "picture", "header"]
    offsets = [f.offset for f in found]
    assert offsets == sorted(offsets)
    assert header <= offsets[-1] < header + 512


@pytest.mark.parametrize("extensions", [["txt"], ["txt", "json"]], ids=["one", "pairs"])
@pytest.mark.parametrize("before", [512 * 3, 512 * 2], ids=["header", "name"])
@pytest.mark.parametrize("pack", [False, True], ids=["verify", "pack"])
def test_names_that_damage_takes(tmp_path, engine, pack, before, extensions):
    """If a PAX header is lost, its member still exists: under another name."""
    names = [f"bär{n}.{e}" for n in range(9) for e in extensions]
    path = make.tar(
        tmp_path / "set" / "0.tar", [(n, n.encode()) for n in names], format=tarfile.PAX_FORMAT
    )
    flip(path, places(path)["bär3.txt"][0] - before)
    if pack:
        stoker.pack(path.parent, tmp_path / "to", engine=engine, on_error="skip")
        path = tmp_path / "to" / "shard-000000.tar"
    else:
        assert [f.kind for f in find(path.parent, engine, repair=True)].count("header") == 1
    left = [n for n in names if not n.startswith("bär3.")]
    assert contents(path) == {n: n.encode() for n in left}


@pytest.mark.parametrize("pack", [False, True], ids=["verify", "pack"])
def test_no_shape_that_most_have(tmp_path, engine, pack):
    """A sample that lost members looks like some others, of which there are few."""
    shapes = dict(a="xy", b="xz", c="yz", d="yz", e="xyz", f="xy", g="xz", h="yz")
    names = [f"{key}.{extension}" for key, found in shapes.items() for extension in found]
    path = make.tar(tmp_path / "set" / "0.tar", [(n, n.encode()) for n in names])
    flip(path, places(path)["e.x"][0] - 512)
    if pack:
        stoker.pack(path.parent, tmp_path / "to", engine=engine, on_error="skip")
        path = tmp_path / "to" / "shard-000000.tar"
    else:
        find(path.parent, engine, repair=True)
    assert not [name for name in contents(path) if name.startswith("e.")]
    assert {name[0] for name in contents(path)} >= set("abch")


def test_deep_finds_more(tars, engine):
    """Codes that no Huffman table has: headers, segments and the end are all right."""
    without_codes(tars / "0.tar", "s002.jpg")
    assert find(tars, engine) == []
    (found,) = find(tars, engine, deep=True)
    assert (found.kind, found.key, found.extension) == ("pixels", "s002", "jpg")
    find(tars, engine, deep=True, repair=True)
    assert find(tars, engine, deep=True) == []
    assert "s002.jpg" not in contents(tars / "0.tar")


def test_every_byte_of_a_shard(tars, engine):
    """A sweep: a flipped byte is never a crash, and never a finding in the other shard."""
    path = tars / "0.tar"
    whole = path.read_bytes()
    for at in range(0, len(whole), 509):
        flip(path, at)
        for found in find(tars, engine, deep=True):
            assert found.shard == str(path)
        path.write_bytes(whole)
    assert find(tars, engine, deep=True) == []


# ---- manifest and index ---------------------------------------------------------------------


@needs_command
def test_flipped_byte_in_a_picture(packed, engine):
    """Only the index next to the data detects it: the checksum names the sample."""
    shard = min(packed.glob("*.tar"))
    offset, size = places(shard)["s002.jpg"]
    picture = shard.read_bytes()[offset : offset + size]
    flip(shard, offset + inside(picture))
    found = find(packed, engine)
    assert [(f.kind, f.key, f.extension) for f in found] == [
        ("checksum", "s002", "jpg"),
        ("digest", "", ""),
    ]
    assert found[0].offset == offset
    os.remove(packed / "stoker.index")
    assert [f.kind for f in find(packed, engine)] == ["digest"]
    os.remove(packed / "stoker.manifest.json")
    assert find(packed, engine) == []  # nothing can detect it


@needs_command
@pytest.mark.parametrize("kind", ["tars", "gzip", "folder"])
def test_index_with_checksums(tars, folder, tmp_path, engine, kind):
    """`stoker index --checksums` lets any flipped byte of a member be found, packed or not."""
    root = tars
    if kind == "folder":
        root = shutil.copytree(folder, tmp_path / "copy")
    if kind == "gzip":
        for tar in list(root.glob("*.tar")):
            (root / f"{tar.name}.gz").write_bytes(gzip.compress(tar.read_bytes(), 0))
            tar.unlink()
    done = test_cli.stoker("index", "--checksums", root)
    assert done.returncode == 0, done.stderr
    assert find(root, engine, deep=True) == []
    if kind == "folder":
        path, key = root / "class1" / "001.jpg", "class1/001.jpg"
        flip(path, inside(path.read_bytes()))
    elif kind == "tars":
        path, key = root / "0.tar", "s002"
        flip(path, places(path)["s002.txt"][0])
    else:
        path, key = root / "0.tar.gz", "s002"
        data = bytearray(gzip.decompress(path.read_bytes()))
        data[data.index(b"text 2")] ^= 1
        path.write_bytes(gzip.compress(bytes(data), 0))  # of the same size
    found = find(root, engine)
    assert (found[0].kind, found[0].key, found[0].shard) == ("checksum", key, str(path))
    if kind != "gzip":
        find(root, engine, repair=True)
        assert find(root, engine) == []


@needs_command
def test_index_with_sha256(tars, engine):
    """`stoker index --checksums` keeps the SHA-256 of shards: it detects a change that no header
    and no member shows, here another owner under a right checksum."""
    assert test_cli.stoker("index", "--checksums", tars).returncode == 0
    assert find(tars, engine) == []
    path = tars / "0.tar"
    data = bytearray(path.read_bytes())
    data[108:116] = b"0000777\0"
    data[148:156] = b" " * 8
    data[148:156] = b"%06o\0 " % sum(data[:512])
    path.write_bytes(data)
    with tarfile.open(path) as archive:
        assert archive.next().uid == 0o777
    assert [(f.kind, f.shard) for f in find(tars, engine)] == [("digest", str(path))]


@needs_command
@pytest.mark.parametrize("where", ["above", "cache"])
def test_index_that_lies_apart(tars, tmp_path, where):
    """In the folder above all shards, or in the cache: it is found as a data set finds it."""
    environment = {**os.environ, "STOKER_CACHE": str(tmp_path / "cache")}
    if where == "above":
        (tars / "x").mkdir()
        urls = [(tars / "0.tar").rename(tars / "x" / "0.tar"), tars / "1.tar"]
        assert test_cli.stoker("index", "--checksums", *urls).returncode == 0
    else:  # next to it is an index of more shards, and then it is removed
        urls = [tars / "0.tar"]
        assert test_cli.stoker("index", tars).returncode == 0
        done = test_cli.stoker("index", "--checksums", *urls, env=environment)
        assert done.returncode == 0, done.stderr
        os.remove(tars / "stoker.index")
    assert (tars / "stoker.index").exists() == (where == "above")
    assert test_cli.stoker("verify", *urls, env=environment).returncode == 0
    flip(urls[0], places(urls[0])["s002.txt"][0])
    done = test_cli.stoker("verify", "--json", "--repair", *urls, env=environment)
    kinds = [json.loads(line)["kind"] for line in done.stdout.splitlines()]
    assert kinds[0] == "checksum" and kinds[-1] == "summary"
    assert test_cli.stoker("verify", *urls, env=environment).returncode == 0
    assert not list(tmp_path.rglob("*.index"))  # of the old bytes


@needs_command
def test_repair_brings_the_manifest_along(packed, engine):
    shards = sorted(packed.glob("*.tar"))
    before = contents(*shards)
    offset, _ = places(shards[0])["s002.txt"]
    flip(shards[0], offset)
    kinds = [f.kind for f in find(packed, engine, repair=True)]
    assert kinds == ["checksum", "digest"]
    assert find(packed, engine) == []
    manifest = json.loads((packed / "stoker.manifest.json").read_text())
    for shard, entry in zip(shards, manifest["shards"], strict=True):
        data = shard.read_bytes()
        assert entry["sha256"] == hashlib.sha256(data).hexdigest()
        assert entry["bytes"] == len(data)
    assert sum(entry["samples"] for entry in manifest["shards"]) == SAMPLES - 1
    assert not (packed / "stoker.index").exists()
    after = contents(*shards)
    assert after == {name: data for name, data in before.items() if not name.startswith("s002")}


def in_manifest(*place, new):
    """Changes one value of the manifest: to another one, or a number by one."""
    def change(packed):
        path = packed / "stoker.manifest.json"
        manifest = inner = json.loads(path.read_text())
        for step in place[:-1]:
            inner = inner[step]
        inner[place[-1]] = inner[place[-1]] + new if isinstance(new, int) else new
        path.write_text(json.dumps(manifest))
    return change


def no_json(packed):
    (packed / "stoker.manifest.json").write_text("{")


def lose_shard(packed):
    os.remove(max(packed.glob("*.tar")))


def add_shard(packed):
    make.tar(packed / "zz.tar", members(99))


def damage_index(packed):
    path = packed / "stoker.index"
    flip(path, path.stat().st_size // 2)


def index_of_other_data(packed):
    """The index of the same names and sizes, with other bytes in the members."""
    for shard in sorted(packed.glob("*.tar")):
        for name, (offset, _) in places(shard).items():
            if name.endswith(".txt"):
                change(shard, offset, b"TEXT")
    os.remove(packed / "stoker.manifest.json")


def index_of_fewer(packed):
    shard = min(packed.glob("*.tar"))
    make.tar(shard, members(0))
    os.remove(packed / "stoker.manifest.json")


LIES = [
    ("sha256 of the manifest", in_manifest("shards", 0, "sha256", new="0" * 64), {"digest"}),
    ("size in the manifest", in_manifest("shards", 1, "bytes", new=1), {"digest"}),
    ("samples in the manifest", in_manifest("shards", 1, "samples", new=-1), {"manifest"}),
    ("sha256 of the index (a note)", in_manifest("index", "sha256", new="0" * 64),
     {"reindexed"}),
    ("manifest is no JSON", no_json, {"manifest"}),
    ("manifest names a file outside", in_manifest("shards", 0, "name", new="../../etc/passwd"),
     {"manifest"}),
    ("a shard is gone", lose_shard, {"missing", "index"}),
    ("a shard more", add_shard, {"extra"}),
    ("index is damaged", damage_index, {"index"}),
    ("index of other bytes", index_of_other_data, {"checksum", "digest"}),
    ("index of another shard", index_of_fewer, {"index"}),
]


@needs_command
@pytest.mark.parametrize("name, lie, kinds", LIES, ids=[row[0] for row in LIES])
def test_lies_beside_the_data(packed, engine, name, lie, kinds):
    lie(packed)
    found = find(packed, engine)
    assert {f.kind for f in found} == kinds
    assert all(f.what and f.advice and f.shard.startswith(str(packed)) for f in found)


# ---- folders --------------------------------------------------------------------------------


def test_folder(tmp_path, engine):
    root = tmp_path / "root"
    for number in range(6):
        make.jpeg(root / f"c{number % 2}" / f"{number}.jpg", number)
    before = {p: p.read_bytes() for p in root.rglob("*.jpg")}
    bad = {root / "c0/0.jpg": b"no picture", root / "c1/3.jpg": before[root / "c1/3.jpg"][:-60]}
    for path, data in bad.items():
        path.write_bytes(data)
    make.write(root / "c1/note.jpg", make.encoded(make.pixels(1, 9, 9), "PNG"))
    found = find(root, engine)
    assert [(f.kind, f.shard, f.note) for f in found] == [
        ("picture", str(root / "c0/0.jpg"), False),
        ("picture", str(root / "c1/3.jpg"), False),
        ("misnamed", str(root / "c1/note.jpg"), True),
    ]
    assert [f.key for f in found] == ["c0/0.jpg", "c1/3.jpg", "c1/note.jpg"]
    find(root, engine, repair=True)
    assert [f.kind for f in find(root, engine, deep=True)] == ["misnamed"]
    for path, data in bad.items():
        moved = tmp_path / "root.bad" / path.relative_to(root)
        assert moved.read_bytes() == data and not path.exists()
    for path in before.keys() - bad.keys():
        assert path.read_bytes() == before[path]


@needs_command
def test_pictures_alone(tmp_path, engine):
    """A folder of pictures without class folders, indexed."""
    root = tmp_path / "root"
    for number in range(4):
        make.jpeg(root / f"{number}.jpg", number)
    assert test_cli.stoker("index", "--checksums", root).returncode == 0
    assert find(root, engine, deep=True) == []
    bad = root / "2.jpg"
    flip(bad, inside(bad.read_bytes()))
    hurt = bad.read_bytes()
    (found,) = find(root, engine, repair=True)
    assert (found.kind, found.key, found.shard) == ("checksum", "2.jpg", str(bad))
    assert (tmp_path / "root.bad" / "2.jpg").read_bytes() == hurt
    assert find(root, engine) == []
    *gone, difference = stoker.diff(root, tmp_path / "root.bad", engine=engine)
    assert [d.kind for d in gone] == ["removed"] * 3
    assert (difference.kind, difference.key) == ("added", "2.jpg")


# ---- repair that is ended -------------------------------------------------------------------

REPAIR = "import sys, stoker\nfor _ in stoker.verify(sys.argv[1], repair=True): pass\n"


def big_and_hurt(root):
    """Four shards of 16 pictures; each has lost one."""
    for shard in range(4):
        path = root / f"{shard}.tar"
        make.tar(path, [(f"{shard}-{i:02}.jpg", BIG) for i in range(16)])
        change(path, places(path)[f"{shard}-07.jpg"][0], b"\0")
    return root


BIG = make.encoded(make.pixels(5, 900, 900), quality=97)


def test_killed_repair(tmp_path):
    """kill -9 at different instants: the old bytes are there, and the next repair ends it."""
    whole = big_and_hurt(tmp_path / "whole")
    hurt = {p.name: p.read_bytes() for p in whole.iterdir()}
    find(whole, repair=True)
    want = {p.name: p.read_bytes() for p in whole.iterdir()}
    assert len(want) == 8
    killed, root = 0, tmp_path / "set"
    for turn in range(6):
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir()
        for name, data in hurt.items():
            (root / name).write_bytes(data)
        process = subprocess.Popen([sys.executable, "-c", REPAIR, str(root)])
        until = time.monotonic() + 20
        while process.poll() is None and time.monotonic() < until:
            if turn and len(list(root.iterdir())) > 4:  # it has begun to write
                break
        time.sleep(0.004 * turn)
        process.kill()
        killed += process.wait() != 0
        for name, data in hurt.items():
            assert data in ((root / name).read_bytes(), read_if(root / f"{name}.original"))
        find(root, repair=True)
        assert find(root) == []
        names = {name for name in want if (root / name).exists()}
        assert {p.name for p in root.iterdir()} == names == want.keys()
        assert {name: (root / name).read_bytes() for name in names} == want
    assert killed >= 2


def read_if(path):
    return path.read_bytes() if path.exists() else b""


def test_full_disk(tmp_path, engine):
    """No room for the new shard: an OSError, the old one as it was, no half file."""
    disk = tmp_path / "disk"
    disk.mkdir()
    size = 37 * (len(BIG) + 1024) * 3 // 2
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("a small tmpfs cannot be mounted: " + mounted.stderr.decode().strip())
    try:
        path = make.tar(disk / "a.tar", [(f"{i:02}.jpg", BIG) for i in range(30)])
        change(path, places(path)["07.jpg"][0], b"\0")
        hurt = path.read_bytes()
        small = make.tar(disk / "b.tar", [(f"b{i}.jpg", BIG) for i in range(3)])
        change(small, places(small)["b1.jpg"][0], b"\0")  # there is room for this one
        with pytest.raises(OSError) as caught:
            find(disk, engine, repair=True)
        assert caught.value.errno == 28 and ".tar.repair" in str(caught.value)
        assert {p.name for p in disk.iterdir()} == {"a.tar", "b.tar"}
        assert path.read_bytes() == hurt
        subprocess.run(["mount", "-o", "remount,size=1G", str(disk)], check=True)
        find(disk, engine, repair=True)
        assert find(disk, engine) == []
        assert (disk / "a.tar.original").read_bytes() == hurt
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_original_is_never_written_over(tars, engine):
    break_padding(tars / "0.tar")
    find(tars, engine, repair=True)
    first = (tars / "0.tar.original").read_bytes()
    break_jpeg_header(tars / "0.tar")
    hurt = (tars / "0.tar").read_bytes()
    kinds = [f.kind for f in find(tars, engine, repair=True)]
    assert kinds == ["picture", "unrepaired"]
    assert (tars / "0.tar").read_bytes() == hurt
    assert (tars / "0.tar.original").read_bytes() == first


# ---- Python's manners -----------------------------------------------------------------------


def test_arguments(tars, engine):
    for options in (
        dict(findings_max=0),
        dict(pixels_max=-1),
        dict(header_bytes_max="much"),
        dict(engine="engine"),
    ):
        with pytest.raises(stoker.ArgumentError):
            stoker.verify(tars, **options)
    with pytest.raises(FileNotFoundError):
        stoker.verify(tars / "absent", engine=engine)
    with pytest.raises(stoker.ArgumentError):
        stoker.verify([], engine=engine)
    (tars / "none").mkdir()
    with pytest.raises(stoker.EmptyError):
        stoker.verify(tars / "none", engine=engine)
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(stoker.verify(tars, engine=engine))


def test_findings_max_and_close(tars, engine):
    for name, (offset, _) in places(tars / "0.tar").items():
        if name.endswith("jpg"):
            change(tars / "0.tar", offset, b"\0")
    check = stoker.verify(tars, engine=engine, findings_max=2)
    assert len(list(check)) == 2
    progress = check.progress()
    assert (progress["findings"], progress["findings_kept"]) == (6, 2)
    check.close()
    assert check.progress() == progress and list(check) == []
    with pytest.raises(stoker.ClosedError):
        check._native.next()
    stoker.verify(tars, engine=engine).close()  # at once


def test_pictures_beyond_the_limits(tars, engine):
    found = find(tars, engine, pixels_max=64 * 80 - 1)
    assert {(f.kind, f.name, f.extension) for f in found} == {
        ("picture", "STOKER_ERROR_LIMIT", "jpg")
    }
    assert len(found) == 12


# ---- the command ----------------------------------------------------------------------------


@needs_command
def test_command(tars, tmp_path):
    good = test_cli.stoker("verify", tars)
    assert good.returncode == 0 and good.stderr == b""
    assert good.stdout.startswith(b"clean: 12 samples in 2 shards, ")
    break_jpeg_header(tars / "0.tar")
    without_codes(tars / "1.tar", "s008.jpg")
    bad = test_cli.stoker("verify", tars)
    assert bad.returncode == 1
    lines = bad.stdout.decode().splitlines()
    offset = places(tars / "0.tar")["s003.jpg"][0]
    assert lines[0].startswith(f"picture     {tars}/0.tar @{offset}  s003.jpg  ")
    assert lines[1].startswith("1 finding: 12 samples in 2 shards, ") and len(lines) == 2
    deep = test_cli.stoker("verify", "--deep", "--json", tars)
    rows = [json.loads(line) for line in deep.stdout.splitlines()]
    assert deep.returncode == 1
    assert [row["kind"] for row in rows] == ["picture", "pixels", "summary"]
    assert rows[2]["findings"] == rows[2]["shown"] == 2 and rows[2]["samples"] == 12
    assert rows[0]["offset"] == offset and rows[0]["status"] == "STOKER_ERROR_FORMAT"
    few = test_cli.stoker("verify", "--deep", "--limit", 1, tars).stdout.decode().splitlines()
    assert len(few) == 2 and few[1].startswith("2 findings (1 shown): ")
    repaired = test_cli.stoker("verify", "--deep", "--repair", tars)
    assert repaired.returncode == 1
    assert repaired.stdout.decode().splitlines()[-1] == "repaired: 2 shards, 2 samples left out"
    assert test_cli.stoker("verify", "--deep", tars).returncode == 0
    assert test_cli.stoker("verify", tmp_path / "absent").returncode == 3
    assert test_cli.stoker("verify").returncode == 2


@needs_command
def test_progress_on_a_terminal(tmp_path):
    """A bar with rate and time left, and nothing of it left on the screen in the end."""
    # Slow to read: the remaining time is printed from half a second on, and 12 took 0.4 s on a fast
    # machine. And slow to write, so not many.
    members = [(f"{i:03}.jpg", BIG) for i in range(24)]
    path = make.tar(tmp_path / "a.tar.bz2", members, mode="w:bz2")
    screen, status, out, _ = test_cli.on_terminal(["verify", "--deep", "--threads", 1, path], 0, {})
    assert status == 0 and out.startswith("clean: 24 samples in 1 shard, ")
    assert b"%" in screen and b"/s" in screen and b" left " in screen
    assert b"0 findings" in screen


@needs_command
def test_ctrl_c(tmp_path):
    """Ends at once, with the findings so far; no partial output is left."""
    for shard in range(2):
        path = make.tar(tmp_path / f"{shard}.tar", [(f"{i:03}.jpg", BIG) for i in range(200)])
        change(path, places(path)["000.jpg"][0], b"\0")
    words = ["verify", "--deep", "--repair", "--threads", 1, tmp_path]
    _, status, out, answered = test_cli.on_terminal(words, 0.7, {})
    assert status == 130 and answered < 1.0
    assert " so far" in out or " finding" in out
    assert {p.name for p in tmp_path.iterdir()} == {"0.tar", "1.tar"}


@needs_command
def test_names_do_not_drive_the_terminal(tmp_path):
    path = make.tar(tmp_path / "a.tar", [("k\x1b[31m.jpg", b"no picture")])
    out = test_cli.stoker("verify", path).stdout
    assert b"\x1b" not in out and b"k\\x1b[31m" in out


def test_not_utf8(tmp_path, engine):
    name = os.fsdecode(b"caf\xe9.jpg")
    path = make.tar(tmp_path / "a.tar", [(name, b"no picture")])
    (found,) = find(path, engine)
    assert found.key == os.fsdecode(b"caf\xe9")


def test_pixels_of_the_remaining_samples(tars, engine):
    """The repaired file decodes to the same pixels as before."""
    break_png_data(tars / "0.tar")
    find(tars, engine, repair=True)
    for name, data in contents(tars / "0.tar").items():
        if name.endswith("png"):
            number = int(name[1:4])
            want = make.pixels(number, 64, 80)[:20, :20]
            assert (make.decoded(data) == want).all(), name
