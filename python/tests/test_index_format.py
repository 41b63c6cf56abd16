"""docs/formats.md is enough to read and to write an index.

Goal: the bytes that index_file.py writes for tars and folders, by the document alone, are the bytes
that stoker writes, and stoker opens them; what it reads from stoker's files is what tarfile lists.
Method: tars listed by Python's tarfile; data sets of every kind; a damaged byte anywhere.
"""

import hashlib
import os
import pathlib
import subprocess
import tarfile

import index_file
import make
import pytest
import stoker


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path / "cache"))


def list_tar(path, root, checksums=False, labels=False):
    """A shard as the document groups it, by tarfile."""
    shard = index_file.Shard(os.fsencode(path.relative_to(root)), path.stat().st_size, [])
    if path.suffix == ".gz":
        shard.packing = 1
    if checksums:
        shard.digest = hashlib.sha256(path.read_bytes()).digest()
    with tarfile.open(path) as archive:
        for member in archive:
            base = member.name.rpartition("/")[2]
            stem, _, extension = base.partition(".")
            key = (member.name[: len(member.name) - len(base)] + stem).encode()
            if not shard.samples or shard.samples[-1].key != key:
                shard.samples.append(index_file.Sample(key, []))
            data = archive.extractfile(member).read()
            shard.samples[-1].members.append(
                index_file.Member(
                    extension.lower(),
                    member.offset_data,
                    member.size,
                    index_file.xxh3(data) if checksums else None,
                )
            )
            if labels and extension == "cls":
                shard.samples[-1].label = int(data)
    return shard


def fill(root, kind):
    if kind == "folder":
        for i, name in enumerate(["cat/1.jpg", "cat/sub/2.JPG", "dog/3.png", "dog/4.webp"]):
            make.write(root / name, bytes([i]) * (100 + i))
        return
    root.mkdir()
    for number in range(5):
        samples = 3000 if kind == "many pages" else number * 3
        members = []
        for i in range(samples):
            key = f"d{number}/k{i:05}"
            members += [(f"{key}.Left.JPG", b"j" * (i % 700)), (f"{key}.cls", b"%d" % (i - 3))]
            if i % 2:
                members.append((f"{key}.txt", "ü".encode()))
        path = make.tar(root / f"s{number}" / f"x-{number}.tar", members)
        if kind == "packed":
            subprocess.run(["gzip", path], check=True)


def listed(root, kind, checksums=False, labels=False):
    index = index_file.Index()
    if kind == "folder":
        index.classes = [b"cat", b"dog"]
        for path in sorted(
            p for p in root.rglob("*") if p.suffix.lower() in (".jpg", ".png", ".webp")
        ):
            name = path.relative_to(root)
            index.files.append(
                index_file.File(
                    os.fsencode(name),
                    path.suffix[1:].lower(),
                    index.classes.index(name.parts[0].encode()),
                    index_file.xxh3(path.read_bytes()) if checksums else None,
                )
            )
    else:
        paths = sorted(p for p in root.rglob("*") if ".tar" in p.name)
        index.shards = [list_tar(path, root, checksums, labels) for path in paths]
    return index


KINDS = ["tars", "packed", "many pages", "folder"]


@pytest.mark.parametrize("rich", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_bytes(tmp_path, engine, kind, rich):
    root = tmp_path / "data"
    fill(root, kind)
    report = stoker.index(root, engine=engine, checksums=rich, labels=rich)
    content = pathlib.Path(report.path).read_bytes()
    want = listed(root, kind, rich, rich and kind != "folder")
    got = index_file.read(content)
    assert got.shards == want.shards and got.files == want.files
    assert got.classes == want.classes
    assert index_file.write(want) == content
    assert got.identity == index_file.identity(want)


@pytest.mark.parametrize("kind", KINDS)
def test_stoker_opens_it(tmp_path, engine, kind):
    root = tmp_path / "data"
    fill(root, kind)
    before = stoker.Dataset(root, engine=engine, index="never")
    (root / "stoker.index").write_bytes(index_file.write(listed(root, kind)))
    dataset = stoker.Dataset(root, engine=engine, index="require")
    assert dataset.identity == before.identity
    assert dataset.shards_indexed == dataset.shard_count == before.shard_count
    assert dataset.block_samples == before.block_samples
    for i in (0, len(before) // 2, -1):
        assert dataset.sample(i) == before.sample(i) and dataset[i] == before[i]


def test_blocks_of_the_order_are_the_writers(tmp_path, engine):
    fill(tmp_path / "data", "tars")
    index = listed(tmp_path / "data", "tars")
    index.block_samples = 17
    (tmp_path / "data" / "stoker.index").write_bytes(index_file.write(index))
    assert stoker.Dataset(tmp_path / "data", engine=engine).block_samples == 17


def test_wide(tmp_path, engine):
    """Members past 4 GiB and 2 TiB: in a sparse tar, which holds nothing but zeros and headers."""
    path = tmp_path / "data" / "x.tar"
    path.parent.mkdir()
    size = (5 << 30) + 3
    with open(path, "wb") as file:
        for name, length in (("a.bin", size), ("b.bin", 3)):
            info = tarfile.TarInfo(name)
            info.size = length
            file.write(info.tobuf(tarfile.GNU_FORMAT))
            file.seek(-(-length // 512) * 512, os.SEEK_CUR)
        file.write(bytes(1024))
    report = stoker.index(path.parent, engine=engine)
    assert report.bytes_read < 1 << 20
    (shard,) = index_file.read(pathlib.Path(report.path).read_bytes()).shards
    assert [(m.offset, m.bytes) for m in shard.members()] == [
        (512, size),
        (512 + (5 << 30) + 512 + 512, 3),
    ]
    index = index_file.Index([shard])
    assert index_file.write(index) == pathlib.Path(report.path).read_bytes()


def test_damage_is_found_by_both(tmp_path, engine):
    fill(tmp_path / "data", "many pages")
    path = pathlib.Path(stoker.index(tmp_path / "data", engine=engine).path)
    content = path.read_bytes()
    for at in (3, 500, 50_000, len(content) // 2, len(content) - 1000, len(content) - 50):
        damaged = bytearray(content)
        damaged[at] ^= 4
        with pytest.raises(ValueError):
            index_file.read(bytes(damaged))
        path.unlink()
        path.write_bytes(damaged)
        with pytest.raises(stoker.Error):
            dataset = stoker.Dataset(tmp_path / "data", engine=engine, index="require")
            for i in range(len(dataset)):
                dataset.sample(i)
