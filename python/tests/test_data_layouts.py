"""Other contents of folders and tars: other image kinds, files of operating systems, links, empty
classes, files of other programs. PIL is the oracle of pixels."""

import gzip
import io
import os
import struct
import subprocess
import tarfile
import time

import make
import numpy as np
import pytest
import stoker
from PIL import Image


def command(*words):
    run = subprocess.run(["stoker", *map(str, words)], capture_output=True, text=True, timeout=100)
    return run.returncode, run.stdout + run.stderr


def tar(path, members, fmt=tarfile.GNU_FORMAT):
    """Members: (name, bytes), or (name, target, type)."""
    with tarfile.open(path, "w", format=fmt) as out:
        for name, content, *kind in members:
            info = tarfile.TarInfo(name)
            if kind:
                info.type, info.linkname = kind[0], content
                out.addfile(info)
            else:
                info.size = len(content)
                out.addfile(info, io.BytesIO(content))
    return path


def values(source, **options):
    fields = {"key": "__key__", "y": stoker.Int("cls")}
    with stoker.Loader(
        source, 1, fields=fields, shuffle="none", tail="keep", output="numpy", **options
    ) as loader:
        return {batch["key"][0]: int(batch["y"][0]) for batch in loader}


# ---- image kinds ----


def test_bmp_and_pnm_are_decoded_as_pil_decodes_them(tmp_path):
    array = make.pixels(5, 40, 52)
    image = Image.fromarray(array)
    kinds = {
        "a.bmp": image,
        "b.bmp": image.convert("P"),
        "c.bmp": image.convert("L"),
        "d.bmp": image.convert("1"),
        "e.ppm": image,
        "f.pgm": image.convert("L"),
        "g.pbm": image.convert("1"),
        "h.bmp": image.convert("RGBA"),
    }
    want = []
    for name, made in kinds.items():
        path = tmp_path / "c" / name
        path.parent.mkdir(exist_ok=True)
        made.save(path)
        want.append(np.array(Image.open(path).convert("RGB")).transpose(2, 0, 1))
    with stoker.Loader(
        tmp_path, 8, image=[stoker.CenterCrop((40, 52))], shuffle="none", output="numpy"
    ) as loader:
        images, labels = next(iter(loader))
    assert (images == np.stack(want)).all()
    assert command("verify", "--deep", tmp_path)[0] == 0


def test_kinds_that_are_not_decoded_are_bad_samples(tmp_path):
    for number in range(6):
        make.jpeg(tmp_path / "c" / f"{number}.jpg", number)
    image = Image.fromarray(make.pixels(1, 30, 30))
    for kind in ("gif", "tiff", "avif"):
        image.save(tmp_path / "c" / f"x.{kind}")
    options = dict(image=[stoker.Resize((8, 8))], tail="keep", shuffle="none", output="numpy")
    with stoker.Loader(tmp_path, 9, on_error="skip", **options) as loader:
        assert len(list(loader)[0][1]) == 9
        assert {bad.key for bad in loader.quarantine} == {"c/x.gif", "c/x.tiff", "c/x.avif"}
    with pytest.raises(stoker.FormatError, match="looks like an AVIF"):
        list(stoker.Loader(tmp_path, 1, **options))
    code, text = command("verify", tmp_path)
    assert code == 1 and "x.tiff" in text and "x.avif" in text


# ---- folders ----


def test_verify_and_info_list_all_problems_of_a_folder(tmp_path):
    make.jpeg(tmp_path / "c" / "1.jpg", 1)
    make.write(tmp_path / "c" / "bad.jpg", make.encoded(make.pixels(1))[:500])
    make.write(tmp_path / "c" / "3.bmp", b"BM")
    os.symlink("gone", tmp_path / "c" / "2.jpg")
    (tmp_path / "empty").mkdir()
    make.jpeg(tmp_path / "c" / ".ipynb_checkpoints" / "1.jpg", 1)
    make.write(tmp_path / "c" / "._1.jpg", b"\0\5\x16\7")
    code, text = command("verify", tmp_path)
    found = {line.split()[0]: line for line in text.splitlines()}
    assert code == 1
    for name in ("c/2.jpg", "c/3.bmp", "empty", "c/bad.jpg", ".ipynb_checkpoints", "._1.jpg"):
        assert name in text, name
    assert found["empty"].split()[1].endswith("/empty")
    code, text = command("info", tmp_path)
    assert code == 0
    for part in ("2.jpg: a link to nothing", "empty: a class folder", "2 left by operating"):
        assert part in text, text
    assert command("ls", tmp_path)[0] == 0


def test_a_loader_skips_unreadable_samples(tmp_path):
    for number in range(4):
        make.jpeg(tmp_path / "c" / f"{number}.jpg", number)
    os.symlink("gone", tmp_path / "c" / "9.jpg")
    (tmp_path / "empty").mkdir()
    options = dict(image=[stoker.Resize((8, 8))], tail="keep", output="numpy")
    with pytest.raises(FileNotFoundError, match="9.jpg"):
        stoker.Loader(tmp_path, 1, **options)
    with stoker.Loader(tmp_path, 4, on_error="skip", **options) as loader:
        assert len(loader.dataset) == 4 and loader.dataset.classes == ["c", "empty"]


def test_classes_of_a_split(tmp_path):
    for name in ("a", "c"):
        make.jpeg(tmp_path / name / "1.jpg", 1)
    (tmp_path / "b").mkdir()
    with pytest.raises(stoker.EmptyError, match="allow_empty"):
        stoker.Dataset(tmp_path)
    assert stoker.Dataset(tmp_path, allow_empty=True).classes == ["a", "b", "c"]
    assert stoker.Dataset(tmp_path, classes=["a", "b", "c", "d"]).classes == ["a", "b", "c", "d"]
    (tmp_path / "b").rmdir()
    classes = ["a", "b", "c", "d"]
    with stoker.Loader(
        tmp_path,
        2,
        image=[stoker.Resize((8, 8))],
        classes=classes,
        shuffle="none",
        output="numpy",
    ) as loader:
        assert loader.dataset.classes == classes
        assert next(iter(loader))[1].tolist() == [0, 2]
    stoker.index(tmp_path)
    assert stoker.Dataset(tmp_path, classes=classes).classes == classes
    with pytest.raises(stoker.ArgumentError, match="not among the classes"):
        stoker.Dataset(tmp_path, classes=["a"])
    with pytest.raises(stoker.ArgumentError, match="named twice"):
        stoker.Dataset(tmp_path, classes=["a", "a"])


# ---- tars ----


@pytest.mark.parametrize("fmt", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("suffix", ["tar", "tar.gz"])
def test_a_hard_link_has_the_bytes_of_its_target(tmp_path, fmt, suffix):
    long = "x" * 130 + "/c.cls"
    members = [
        ("blob", b"77"),
        ("a.cls", b"5"),
        ("b.cls", "a.cls", tarfile.LNKTYPE),
        (long, b"9"),
        ("d.cls", long, tarfile.LNKTYPE),
        ("e.cls", "blob", tarfile.LNKTYPE),
        ("f.cls", "b.cls", tarfile.LNKTYPE),
        ("g.cls", "./a.cls", tarfile.LNKTYPE),
        ("h.cls", "f.cls", tarfile.LNKTYPE),
        ("i.cls", long, tarfile.LNKTYPE),
    ]
    path = tar(tmp_path / "a.tar", members, fmt)
    if suffix == "tar.gz":
        import gzip

        (tmp_path / "a.tar.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
        path = tmp_path / "a.tar.gz"
    want = {"a": 5, "b": 5, long[:-4]: 9, "d": 9, "e": 77, "f": 5, "g": 5, "h": 5, "i": 9}
    assert values(path) == want
    code, text = command("verify", path)
    assert code == 0 and "clean: 9 samples" in text
    stoker.index(path, checksums=True)
    assert values(path, index="require") == want
    assert command("verify", path)[0] == 0


def test_skipped_members_are_counted_and_named(tmp_path):
    path = tar(
        tmp_path / "a.tar",
        [
            ("1.cls", b"1"),
            ("._1.cls", b"\0\5\x16\7"),
            (".DS_Store", b"x"),
            ("__MACOSX/._1.cls", b"x"),
            ("README", b"x"),
            ("2.cls", "1.cls", tarfile.SYMTYPE),
            ("3.cls", "nothing.cls", tarfile.LNKTYPE),
            ("fifo", "", tarfile.FIFOTYPE),
        ],
    )
    assert values(path) == {"1": 1}
    want = {"system": 3, "links": 2, "special": 1, "unnamed": 1}
    assert stoker.Dataset(path, index="never").skipped == want
    code, text = command("verify", path)
    assert code == 0 and "clean: 1 sample" in text
    for name in ("._1.cls", ".DS_Store", "__MACOSX/._1.cls", "README", "2.cls", "3.cls", "fifo"):
        assert f" {name} " in text, name
    code, text = command("info", path)
    assert "3 left by operating systems, 2 links" in text
    stoker.pack(path, tmp_path / "out")
    assert values(tmp_path / "out") == {"1": 1}
    stoker.index(path)  # the counts are in the index, too
    dataset = stoker.Dataset(path, index="require")
    assert dataset.skipped == want
    make.jpeg(tmp_path / "folder" / "c" / "1.jpg", 1)
    make.write(tmp_path / "folder" / "c" / ".DS_Store", b"x")
    stoker.index(tmp_path / "folder")
    for index in ("never", "require"):
        assert stoker.Dataset(tmp_path / "folder", index=index).skipped["system"] == 1


# ---- files of other programs ----

FOREIGN = {
    "Parquet": (b"PAR1" + b"\0" * 600, "stoker.pack_table"),
    "TFRecord": (bytes.fromhex("0800000000000000ff86240f") + b"\0" * 600, "ShardWriter"),
    "HDF5": (b"\x89HDF\r\n\x1a\n" + b"\0" * 600, "h5py"),
    "zip": (b"PK\3\4" + b"x" * 600, "zip://"),
    "Arrow": (b"ARROW1\0\0" + b"\0" * 600, "stoker.pack_table"),
    "MDS": (b"\1\0\0\0\x20\0\0\0\x30\0\0\0{" + b" " * 600, "ShardWriter"),
    "LMDB": (b"0123456789abcdef\xde\xc0\xef\xbe" + b"\0" * 600, "lmdb"),
    "beton": (struct.pack("<HHIQQ", 2, 2, 1 << 23, 16, 1 << 24) + b"\0" * 600, "ffcv"),
    "HTML": (b"<!DOCTYPE html><html>log in</html>", "fetch again"),
    "Git LFS": (b"version https://git-lfs.github.com/spec/v1\noid x\n", "git lfs pull"),
    "CSV": (b"a,b\n1,2\n", "stoker.pack_table"),
    "7z": (b"7z\xbc\xaf\x27\x1c" + b"\0" * 30, "unpack"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_files_of_other_programs_are_named(tmp_path, name):
    data, advice = FOREIGN[name]
    path = make.write(tmp_path / "x.tar", data)
    with pytest.raises(stoker.FormatError) as caught:
        stoker.Dataset(path)
    assert name in str(caught.value) and advice in str(caught.value)
    assert "truncate" not in str(caught.value)
    assert name in command("ls", path)[1]


@pytest.mark.parametrize(
    "file, name",
    [
        ("part-0.parquet", "Parquet"),
        ("data-00000-of-00001.arrow", "Arrow"),
        ("shard.00000.mds", "MDS"),
        ("data.mdb", "LMDB"),
        ("train.tfrecord-00000-of-00002", "TFRecord"),
    ],
)
def test_folders_of_other_programs_are_named(tmp_path, file, name):
    make.write(tmp_path / "d" / file, b"x" * 100)
    with pytest.raises(stoker.EmptyError, match=name):
        stoker.Dataset(tmp_path / "d")


def test_no_advice_damages_a_tar_that_is_cut(tmp_path):
    path = tar(tmp_path / "a.tar", [("1.cls", b"1" * 2000)])
    data = path.read_bytes()
    for cut in (100, 600, 1024):
        path.write_bytes(data[:cut])
        with pytest.raises(stoker.TruncatedError) as caught:
            stoker.Dataset(path)
        assert "truncate --size" not in str(caught.value), cut


def test_an_empty_shard_beside_good_ones(tmp_path):
    """The advice names the way to continue without it."""
    good = tar(tmp_path / "a.tar", [("1.cls", b"1")])
    make.write(tmp_path / "b.tar", b"")
    with pytest.raises(stoker.EmptyError, match="b.tar.*has no bytes.*\n.*in a list or a glob"):
        values(tmp_path, on_error="skip")
    assert values([good]) == {"1": 1}


# ---- shards that change ----


def test_a_shard_of_the_same_size_and_time_is_recognised(tmp_path):
    path = tar(tmp_path / "a.tar", [("a.cls", b"1"), ("b.cls", b"2")])
    stoker.index(tmp_path)
    assert values(path) == {"a": 1, "b": 2}
    about = os.stat(path)
    tar(path, [("x.cls", b"7"), ("yyyy.cls", b"88")])
    assert path.stat().st_size == about.st_size
    assert values(path) == {"x": 7, "yyyy": 88}  # the time differs
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    for index in ("auto", "require"):
        with pytest.raises(stoker.ChangedError, match="headers of its members"):
            values(path, index=index)


def test_a_shard_that_is_overwritten_while_it_is_open(tmp_path):
    members = [(f"{n:05}.cls", b"%05d" % n) for n in range(20000)]
    path = tar(tmp_path / "a.tar", members)
    with stoker.Loader(
        path, 1, fields={"y": stoker.Int("cls")}, shuffle="none", output="numpy", threads=1
    ) as loader:
        batches = iter(loader)
        next(batches)
        other = tar(tmp_path / "b", [(name, b"xxxxx") for name, _ in members])
        path.write_bytes(other.read_bytes())
        with pytest.raises(stoker.ChangedError, match="size or its time"):
            list(batches)


def gzip_stored(data):
    """Not compressed, so that other values have the same size."""
    return gzip.compress(data, 0, mtime=0)


@pytest.mark.parametrize("words", [[], ["--seek-points"]], ids=["index", "points"])
def test_a_compressed_shard_of_the_same_size_and_time(tmp_path, words):
    """The stream passes all headers: that of each sample is compared."""
    path = tmp_path / "a.tar.gz"

    def write(names):
        tar(tmp_path / "plain", [(f"{name}.cls", b"1") for name in names])
        path.write_bytes(gzip_stored((tmp_path / "plain").read_bytes()))

    write(["a", "b", "c"])
    subprocess.run(["stoker", "index", *words, path], check=True, capture_output=True)
    assert values(path) == {"a": 1, "b": 1, "c": 1}
    about = os.stat(path)
    for names in (["a", "b", "x"], ["x", "y", "z"]):
        write(names)
        assert path.stat().st_size == about.st_size
        os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
        wanted = stoker.CorruptError if words else stoker.ChangedError
        with pytest.raises(wanted, match="headers of its members|not what was indexed"):
            values(path)
        with pytest.raises(wanted, match="headers of its members|not what was indexed"):
            stoker.pack(path, tmp_path / "packed")
    os.utime(path)
    assert values(path) == {"x": 1, "y": 1, "z": 1}


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("suffix", ["tar", "tar.gz"])
def test_a_shard_that_is_rewritten_between_opening_and_reading(tmp_path, suffix, indexed):
    """With the same names and sizes: before the first sample is delivered."""
    path = tmp_path / f"a.{suffix}"

    def write(value):
        tar(tmp_path / "plain", [(f"{i}.cls", value) for i in range(9)])
        data = (tmp_path / "plain").read_bytes()
        path.write_bytes(data if suffix == "tar" else gzip_stored(data))

    write(b"1")
    if indexed:
        stoker.index(path)
    dataset = stoker.Dataset(path)
    time.sleep(0.02)
    write(b"2")
    with pytest.raises(stoker.ChangedError, match="its time changed"):
        values(dataset)
    assert values(path)["3"] == 2


def test_a_compressed_shard_that_is_overwritten_while_it_is_open(tmp_path):
    members = [(f"{n:05}.cls", b"%05d" % n) for n in range(20000)]
    path = tmp_path / "a.tar.gz"
    path.write_bytes(gzip_stored(tar(tmp_path / "plain", members).read_bytes()))
    other = tar(tmp_path / "b", [(name, b"77777") for name, _ in members])
    with stoker.Loader(
        path, 1, fields={"y": stoker.Int("cls")}, shuffle="none", output="numpy", threads=1
    ) as loader:
        batches = iter(loader)
        found = [int(next(batches)["y"][0])]
        time.sleep(0.02)
        path.write_bytes(gzip_stored(other.read_bytes()))
        with pytest.raises(stoker.ChangedError, match="size or its time"):
            found += [int(batch["y"][0]) for batch in batches]
    assert found == list(range(len(found)))


# ---- optional members ----


def test_optional_members(tmp_path):
    vector = io.BytesIO()
    np.save(vector, np.array([1, 2, 3], np.float32))
    path = tar(
        tmp_path / "a.tar",
        [
            ("a.cls", b"1"),
            ("a.npy", vector.getvalue()),
            ("a.txt", b"one"),
            ("a.json", b'{"w": 5}'),
            ("b.cls", b"2"),
            ("b.json", b"{}"),
        ],
    )
    fields = {
        "v": stoker.Array("npy", shape=3, default=-1),
        "t": stoker.Text("txt", default="none"),
        "b": stoker.Bytes("txt", default=b"??"),
        "w": stoker.Int("json:w", default=-7),
        "f": stoker.Float("score", default=0.5),
    }
    with stoker.Loader(path, 2, fields=fields, shuffle="none", output="numpy") as loader:
        batch = next(iter(loader))
    assert batch["v"].tolist() == [[1, 2, 3], [-1, -1, -1]]
    assert batch["t"] == ["one", "none"] and list(batch["b"]) == [b"one", b"??"]
    assert batch["w"].tolist() == [5, -7] and batch["f"].tolist() == [0.5, 0.5]
    with pytest.raises(stoker.MissingError, match="the samples have: cls json npy txt"):
        stoker.Loader(path, 1, fields={"x": stoker.Int("jpeg")})
    with pytest.raises(stoker.MissingError, match="it has: cls json\n  give the field a default="):
        list(
            stoker.Loader(
                path, 1, fields={"x": stoker.Text("txt")}, shuffle="none", output="numpy"
            )
        )
    with pytest.raises(stoker.ArgumentError, match="does not fit the field"):
        stoker.Int("cls", default="many")
    with pytest.raises(stoker.ArgumentError, match="cannot have this default"):
        stoker.Loader(path, 1, fields={"x": stoker.Array("npy", default=0)})


def test_labels_from_the_folders_of_a_tar(tmp_path, engine):
    """label="path": the folder of a sample is its class; sorted, or in the order of classes=."""
    image = make.encoded(make.pixels(1))
    names = ["imagenet/n02/a.JPEG", "imagenet/n02/b.JPEG", "imagenet/n01/a.JPEG", "n10/x/n01/c.jpg"]
    tar(tmp_path / "a.tar", [(name, image) for name in names])
    options = dict(shuffle="none", tail="keep", output="numpy", engine=engine)
    crop = [stoker.RandomResizedCrop(8)]
    with stoker.Loader(tmp_path / "a.tar", 1, image=crop, label="path", **options) as loader:
        assert [int(label[0]) for _, label in loader] == [1, 1, 0, 0]
        assert loader.classes == ["n01", "n02"]
    fields = {"y": stoker.Label("path"), "key": "__key__"}
    given = ["n02", "n00", "n01"]
    with stoker.Loader(tmp_path / "a.tar", 4, fields=fields, classes=given, **options) as loader:
        (batch,) = loader
        assert batch["y"].tolist() == [0, 0, 2, 2] and loader.classes == given
    with pytest.raises(stoker.ArgumentError, match="n01"):
        stoker.Loader(tmp_path / "a.tar", 1, fields=fields, classes=["n02"], **options)
    with pytest.raises(stoker.MissingError, match="label='path'"):
        stoker.Loader(tmp_path / "a.tar", 1, image=crop, **options)
    with stoker.Loader(tmp_path / "a.tar", 2, image=crop, label=None, **options) as loader:
        assert [batch.shape for batch in loader] == [(2, 3, 8, 8)] * 2
    tar(tmp_path / "b.tar", [("a.jpg", image)])
    with pytest.raises(stoker.MissingError, match="'a'"):
        stoker.Loader(tmp_path / "b.tar", 1, image=crop, label="path", **options)
    # Class folders have these labels anyway.
    for name in "ca":
        make.write(tmp_path / "folder" / name / "1.jpg", image)
    with stoker.Loader(tmp_path / "folder", 1, image=crop, label="path", **options) as loader:
        assert [int(label[0]) for _, label in loader] == [0, 1] and loader.classes == ["a", "c"]
    for bad in ({"label": "name"}, {"label": None, "fields": fields}, {"label": True}):
        more = {} if "fields" in bad else {"image": crop}
        with pytest.raises(stoker.ArgumentError, match="label="):
            stoker.Loader(tmp_path / "a.tar", 1, **bad, **more, **options)


def test_images_without_class_folders(tmp_path, engine):
    """A flat folder has images and no labels: in a loader, and in 'stoker bench data'."""
    for name in "abc":
        make.jpeg(tmp_path / f"{name}.jpg", ord(name))
    options = dict(image=[stoker.CenterCrop(8)], tail="keep", output="numpy", engine=engine)
    with stoker.Loader(tmp_path, 2, **options) as loader:
        assert [batch.shape for batch in loader] == [(2, 3, 8, 8), (1, 3, 8, 8)]
        assert loader.classes == []
    with pytest.raises(stoker.MissingError, match="label=None"):
        stoker.Loader(tmp_path, 2, fields={"y": stoker.Label()}, engine=engine)
    code, text = command(
        "bench", "data", tmp_path, "--epochs", 1, "--batch", 1, "--image", 8, "--json"
    )
    assert code == 0 and '"samples":3' in text.replace(" ", ""), text


@pytest.mark.parametrize("size", [16384, 16385, 65535])
def test_one_limit_of_sizes(tmp_path, size):
    """The number that transforms check is that of the library, and of the command."""
    make.jpeg(tmp_path / "c" / "1.jpg", 1)
    if size == 16384:
        stoker.Resize(size)
        return
    code, text = command("bench", "data", tmp_path, "--image", size)
    assert code == 2 and "16384" in text
    for make_transform in (
        lambda: stoker.Resize(size),
        lambda: stoker.CenterCrop((8, size)),
        lambda: stoker.RandomResizedCrop(size),
        lambda: stoker.Resize(8, max_size=size),
    ):
        with pytest.raises(stoker.ArgumentError, match="16384"):
            make_transform()


def test_a_sample_that_is_larger_than_the_budget(tmp_path):
    """Fails at once, and names the sample and both sizes, whatever on_error is."""
    tar(tmp_path / "a.tar", [("0.bin", b"x"), ("large.bin", bytes(80 << 20)), ("2.bin", b"z")])
    for on_error in ("raise", "skip"):
        with stoker.Engine(memory="64MiB", threads=2) as engine:
            loader = stoker.Loader(
                tmp_path / "a.tar", 1, fields={"b": stoker.Bytes("bin")}, shuffle="none",
                tail="keep", engine=engine, on_error=on_error, timeout=20,
            )
            began = time.monotonic()
            with pytest.raises(stoker.BudgetError, match="larger than the memory budget") as caught:
                list(loader)
            assert time.monotonic() - began < 10
            for part in ("a.tar", "'large'", str(80 << 20), str(64 << 20)):
                assert part in str(caught.value), part
            loader.close()


def test_samples_of_many_members_and_lists_of_extensions(tmp_path, engine):
    """No silent limits: the 80th member of a sample is read, and compared by diff; a field that
    names too many extensions is an error."""
    for name, last in (("a", b"1"), ("b", b"2")):
        members = [(f"0.m{i:03}", b"%d" % i) for i in range(90)] + [("0.zz", last)]
        tar(tmp_path / f"{name}.tar", members)
    with stoker.Loader(tmp_path / "a.tar", 1, fields={"n": stoker.Int("m080")}, tail="keep",
                       engine=engine, output="numpy") as loader:
        assert next(iter(loader))["n"].tolist() == [80]
    code, text = command("diff", tmp_path / "a.tar", tmp_path / "b.tar")
    assert code == 1 and "zz" in text, text
    many = [f"m{i:03}" for i in range(17)]
    with pytest.raises(stoker.LimitError, match="too many extensions"):
        stoker.Loader(tmp_path / "a.tar", 1, fields={"n": stoker.Int(many)}, engine=engine)


def test_tables_of_shards_that_were_written_since(tmp_path, engine):
    """A shard of the same size and the same headers, but other values: a table of the old ones is
    not used."""
    def write(values):
        tar(tmp_path / "a.tar", [(f"{i}.cls", b"%d" % n) for i, n in enumerate(values)])

    def chosen():
        with stoker.Loader(tmp_path, 1, fields={"k": "__key__"}, subset="cls > 4", shuffle="none",
                           tail="keep", engine=engine) as loader:
            return [batch["k"][0] for batch in loader]

    write([1, 5, 2, 6])
    stoker.index(tmp_path / "a.tar", engine=engine)
    assert chosen() == ["1", "3"] and len(list(tmp_path.glob("*.table"))) == 1
    made = os.stat(next(tmp_path.glob("*.table"))).st_mtime_ns
    assert chosen() == ["1", "3"]
    assert os.stat(next(tmp_path.glob("*.table"))).st_mtime_ns == made  # it is used
    time.sleep(0.02)
    write([9, 1, 8, 2])
    assert chosen() == ["0", "2"]
    assert chosen() == ["0", "2"] and len(list(tmp_path.glob("*.table"))) == 1
    write([5, 1, 6, 7])
    os.utime(tmp_path / "a.tar", (1_600_000_000, 1_600_000_000))  # an older file is moved here
    assert chosen() == ["0", "2", "3"]


@pytest.mark.parametrize("words", [["index"], ["index", "--jpeg-index"], ["ls"]])
def test_tables_of_class_folders_that_changed(tmp_path, words):
    """A class that is renamed, added and removed in one step, or an image that moves: the number of
    classes and images is the same, and the table of the old classes is not used."""
    root = tmp_path / "set"
    for number, name in enumerate("abc"):
        for image in range(4):
            make.jpeg(root / name / f"{image}.jpg", number * 10 + image)
    assert command(*words, root)[0] == 0

    def chosen(**options):
        fields = {"key": "__key__", "y": stoker.Label()}
        with stoker.Engine(threads=2) as engine:
            dataset = stoker.Dataset(root, engine=engine)
            with stoker.Loader(dataset, 1, fields=fields, shuffle="none", tail="keep",
                               output="numpy", **options) as loader:
                return [(batch["key"][0], int(batch["y"][0])) for batch in loader]

    def images(name, numbers="0123", label=2):
        return [(f"{name}/{number}.jpg", label) for number in numbers]

    assert chosen(subset="label > 1") == images("c")
    assert {y for _, y in chosen(balance="label", seed=1)} == {0, 1, 2}
    os.rename(root / "b", root / "d")
    assert chosen(subset="label > 1") == images("d")
    os.rename(root / "d/0.jpg", root / "c/9.jpg")
    assert chosen(subset="label > 1") == images("d", "123")
    assert chosen(subset="label == 1") == images("c", "01239", 1)
    os.rename(root / "a", root / "e")
    assert chosen(subset="label > 1") == images("e")
    os.rename(root / "e/3.jpg", root / "e/5.jpg")
    assert chosen(subset="label > 1") == images("e", "0125")


@pytest.mark.parametrize("start", ["file://", "FILE://", "file://localhost", "File://LocalHost"])
def test_urls_of_this_machine(tmp_path, start):
    """RFC 8089: the scheme and the host localhost are written in any case. All commands and the
    package find the file; nothing is written to a folder called "localhost"."""
    here = tmp_path / "cwd"
    here.mkdir()
    name = tar(tmp_path / "d.tar", [(f"{i}.cls", b"%d" % i) for i in range(6)])
    url = f"{start}{name}"
    assert list(values(url).values()) == list(range(6))
    for words in (("ls", url), ("verify", url), ("info", url), ("order", url, "--epoch", "0"),
                  ("pack", url, f"{start}{tmp_path}/packed"),
                  ("verify", f"{start}{tmp_path}/packed"),
                  ("cp", url, f"{start}{tmp_path}/copy.tar"),
                  ("stat", f"{start}{tmp_path}/copy.tar")):
        run = subprocess.run(["stoker", *words], capture_output=True, text=True, timeout=100,
                             cwd=here)
        assert run.returncode == 0, (words, run.stderr)
    stoker.pack(url, f"{start}{tmp_path}/packed2")
    with stoker.ShardWriter(f"{start}{tmp_path}/written") as writer:
        writer.write({"__key__": "a", "cls": 1})
    stoker.save({"w": np.ones(3)}, f"{start}{tmp_path}/one.safetensors")
    with stoker.Checkpointer(f"{start}{tmp_path}/run") as ckpt:
        ckpt.save(1, {"w": np.ones(3)}, wait=True)
    assert subprocess.run(["stoker", "ckpt", "verify", f"{start}{tmp_path}/run"],
                          timeout=100).returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir() if ".lock" not in path.name) == [
        "copy.tar", "cwd", "d.tar", "one.safetensors", "packed", "packed2", "run", "written"]
    assert not list(here.iterdir())
