"""Tars by webdataset's rules; the makers are webdataset, tarfile and GNU tar."""

import bz2
import gzip
import io
import lzma
import shutil
import subprocess
import tarfile

import make
import pytest
import stoker

NAMES = [
    "a.jpg",
    "a.cls",
    "b/c.d/e.left.jpg",
    "b/c.d/e.right.JPG",
    "x/.hid",
    "UP.TXT",
    "n..jpg",
    "dots.a.b.c",
    "sp ace.txt",
    "ünïcode.txt",
    "f.",
    "./dot/g.txt",
    "y/z.tar.gz",
]
SKIPPED = ["no_dot", "d/also_no_dot", ".hidden.jpg", "./.hid.jpg", "__meta__.json", "__top__"]


def ours(source, engine, **options):
    """[{"__key__": ..., extension: bytes}] in storage order."""
    dataset = stoker.Dataset(source, engine=engine, **options)
    return [dataset[i] for i in range(len(dataset))]


def theirs(path):
    """The samples that webdataset makes of a tar."""
    tariterators = pytest.importorskip("webdataset.tariterators")
    with open(path, "rb") as stream:
        files = tariterators.tar_file_expander([{"url": str(path), "stream": stream}])
        samples = list(tariterators.group_by_keys(files))
    return [
        {k: v for k, v in sample.items() if k not in ("__url__", "__local_path__")}
        for sample in samples
    ]


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_keys_are_webdatasets(tmp_path, engine, format):
    names = NAMES + SKIPPED
    members = [(name, f"data of {name}".encode()) for name in names]
    path = make.tar(tmp_path / "a.tar", members, format=format)
    got = ours(path, engine)
    assert got == theirs(path)
    assert len(got) > 8


def test_members_that_are_not_files(tmp_path, engine):
    """Directories, links and devices are passed over."""
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        for name, kind in (
            ("d.x", tarfile.DIRTYPE),
            ("l.txt", tarfile.SYMTYPE),
            ("h.txt", tarfile.LNKTYPE),
            ("f.txt", tarfile.FIFOTYPE),
        ):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "a.txt"
            archive.addfile(info)
        info = tarfile.TarInfo("a.txt")
        info.size = 5
        archive.addfile(info, io.BytesIO(b"hello"))
    assert ours(path, engine) == theirs(path) == [{"__key__": "a", "txt": b"hello"}]


def test_webdatasets_writer(tmp_path, engine):
    webdataset = pytest.importorskip("webdataset")
    with webdataset.ShardWriter(str(tmp_path / "s-%06d.tar"), maxcount=7, verbose=0) as writer:
        for i in range(30):
            writer.write({"__key__": f"k{i:03}", "txt": f"t{i}", "cls": i, "json": {"i": i}})
    got = ours(tmp_path / "s-{000000..000004}.tar", engine)
    assert [sample["__key__"] for sample in got] == [f"k{i:03}" for i in range(30)]
    assert all(sample["cls"] == str(i).encode() for i, sample in enumerate(got))
    assert got == [sample for n in range(5) for sample in theirs(tmp_path / f"s-{n:06}.tar")]


@pytest.mark.parametrize("format", ["v7", "oldgnu", "gnu", "ustar", "posix"])
def test_gnu_tar(tmp_path, engine, format):
    """GNU tar's own files; long names where the format has them."""
    if not shutil.which("tar"):
        pytest.skip("there is no tar")
    root = tmp_path / "in"
    names = ["a.txt", "sub/b.txt", "sub/" + "n" * 60 + ".txt"]
    if format != "v7":
        names.append("/".join(["d" * 50] * 3) + "/" + "f" * 60 + ".txt")
    if format in ("gnu", "oldgnu", "posix"):
        names.append("/".join(["e" * 90] * 5) + "/" + "g" * 200 + ".txt")
    for name in names:
        make.write(root / name, name.encode() * 3)
    path = tmp_path / "out.tar"
    done = subprocess.run(
        ["tar", f"--format={format}", "--sort=name", "-cf", path, "-C", root, "."],
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    got = ours(path, engine)
    assert got == theirs(path)
    assert sorted(s["__key__"] for s in got) == sorted("./" + n.removesuffix(".txt") for n in names)


def test_gnu_tar_sparse_is_refused(tmp_path, engine):
    if not shutil.which("tar"):
        pytest.skip("there is no tar")
    hole = tmp_path / "hole.bin"
    with open(hole, "wb") as file:
        file.truncate(10 << 20)
        file.seek(5 << 20)
        file.write(b"x" * 5000)
    for format in ("gnu", "posix"):
        path = tmp_path / f"{format}.tar"
        subprocess.run(
            ["tar", "-S", f"--format={format}", "-cf", path, "-C", tmp_path, "hole.bin"], check=True
        )
        with pytest.raises(stoker.UnsupportedError) as caught:
            ours(path, engine)
        assert caught.value.shard == str(path) and "sparse" in str(caught.value)


def test_pax_records(tmp_path, engine):
    """A path by PAX, one that is not ASCII, and records of other programs."""
    path = tmp_path / "a.tar"
    name = "long/" + "p" * 300 + "/ä.txt"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        info = tarfile.TarInfo(name)
        info.size, info.mtime = 4, 1.5
        info.pax_headers = {"SCHILY.xattr.user.x": "y", "comment": "words"}
        archive.addfile(info, io.BytesIO(b"text"))
    assert (
        ours(path, engine)
        == theirs(path)
        == [{"__key__": name.removesuffix(".txt"), "txt": b"text"}]
    )


def test_concatenated_tars(tmp_path, engine):
    """Tars put one after the other are one shard."""
    parts = [make.tar(tmp_path / f"{n}.tar", [(f"{n}.txt", bytes([n]) * 700)]) for n in range(3)]
    both = make.write(tmp_path / "all.tar", b"".join(part.read_bytes() for part in parts))
    assert [sample["__key__"] for sample in ours(both, engine)] == ["0", "1", "2"]


COMPRESS = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress}


@pytest.mark.parametrize("suffix", ["gz", "bz2", "xz", "zst"])
def test_compressed(tmp_path, engine, suffix):
    """Read front to back, except zstd of so few bytes; the same samples, and the data set reports
    it."""
    plain = []
    for shard in range(3):
        path = make.tar(
            tmp_path / "plain" / f"{shard}.tar",
            [m for n in range(10) for m in make.sample(shard * 10 + n)],
        )
        plain.append(path)
        data = path.read_bytes()
        if suffix == "zst":
            if not shutil.which("zstd"):
                pytest.skip("there is no zstd")
            packed = subprocess.run(["zstd", "-c"], input=data, capture_output=True).stdout
        else:
            packed = COMPRESS[suffix](data)
        make.write(tmp_path / "packed" / f"{shard}.tar.{suffix}", packed)

    def epoch(source):
        loader = stoker.Loader(
            source,
            6,
            fields={
                "k": "__key__",
                "t": stoker.Text("txt"),
                "i": stoker.Image("jpg", [stoker.Resize((8, 8))]),
            },
            engine=engine,
            output="numpy",
            seed=1,
        )
        return loader, {
            k: (t, i.tobytes())
            for batch in loader
            for k, t, i in zip(batch["k"], batch["t"], batch["i"], strict=True)
        }

    first, want = epoch(tmp_path / "plain")
    second, got = epoch(tmp_path / "packed")
    assert got == want and len(got) == 30
    assert second.dataset.sequential == (suffix != "zst") and not first.dataset.sequential
    again = epoch(tmp_path / "packed")[1]
    assert list(again) == list(got)


SCATTERED = ["a.jpg", "b.jpg", "b.cls", "a.cls", "c.jpg", "c.cls"]


def test_scattered(tmp_path, engine):
    """webdataset would silently return two halves."""
    path = make.tar(tmp_path / "a.tar", [(name, name.encode()) for name in SCATTERED])
    with pytest.raises(stoker.ScatteredError) as caught:
        ours(path, engine)
    assert caught.value.key == "a" and caught.value.shard == str(path)
    joined = ours(path, engine, member_gap_max=2)
    assert [(s["__key__"], sorted(s)) for s in joined] == [
        (key, ["__key__", "cls", "jpg"]) for key in "abc"
    ]


def test_an_extension_twice(tmp_path, engine):
    path = make.tar(tmp_path / "a.tar", [("a.jpg", b"1"), ("a.JPG", b"2")])
    with pytest.raises(stoker.CorruptError) as caught:
        ours(path, engine)
    assert caught.value.key == "a"


@pytest.mark.parametrize(
    "source",
    [
        "{root}",
        "{root}/train-*.tar",
        "{root}/train-{{000..004}}.tar",
        ["{root}/train-{{000..002}}.tar", "{root}/train-003.tar", "{root}/train-004.tar"],
    ],
)
def test_sources(tars, engine, source):
    """A directory, a glob, braces, a list: the same data set."""
    many = [source] if isinstance(source, str) else source
    urls = [text.format(root=tars) for text in many]
    dataset = stoker.Dataset(urls[0] if isinstance(source, str) else urls, engine=engine)
    assert (len(dataset), dataset.shard_count, dataset.member_count) == (103, 5, 412)
    assert dataset.kind == "webdataset" and dataset.classes == []
    assert dataset.identity == stoker.Dataset(tars, engine=engine).identity
    assert dataset.bytes == sum(len(data) for n in range(103) for _, data in make.sample(n))


def test_first_extension_that_a_sample_has(tmp_path, engine):
    picture = make.encoded(make.pixels(1, 8, 8), "PNG")
    make.tar(
        tmp_path / "a.tar",
        [
            ("a.jpg", make.encoded(make.pixels(2, 8, 8))),
            ("b.png", picture),
            ("c.png", picture),
            ("c.mask.png", picture),
        ],
    )
    for extensions in ("jpg;png", ["png", "jpg"], None):
        loader = stoker.Loader(
            tmp_path / "a.tar",
            3,
            shuffle="none",
            engine=engine,
            output="numpy",
            fields={"i": stoker.Image(extensions, [stoker.Resize((8, 8))])},
        )
        images = next(iter(loader))["i"]
        assert (images[1] == make.pixels(1, 8, 8).transpose(2, 0, 1)).all()


@pytest.mark.parametrize(
    ("text", "want"),
    [("3", 3), (" 12\n", 12), ("-7", -7), ("+4", 4), ("9223372036854775807", 2**63 - 1)],
)
def test_numbers(tmp_path, engine, text, want):
    make.tar(tmp_path / "a.tar", [("a.cls", text.encode())])
    loader = stoker.Loader(tmp_path / "a.tar", 1, fields={"n": stoker.Int("cls")}, engine=engine)
    assert next(iter(loader))["n"].tolist() == [want]


@pytest.mark.parametrize("text", ["", "one", "1.5", "1 2", "9223372036854775808", "0x10", "1\0"])
def test_numbers_that_are_none(tmp_path, engine, text):
    make.tar(tmp_path / "a.tar", [("a.cls", text.encode())])
    loader = stoker.Loader(tmp_path / "a.tar", 1, fields={"n": stoker.Int("cls")}, engine=engine)
    with pytest.raises(stoker.Error) as caught:
        next(iter(loader))
    assert caught.value.key == "a" and caught.value.shard.endswith("a.tar")


@pytest.mark.parametrize(("text", "want"), [("0.5", 0.5), ("-1e-3\n", -0.001), ("7", 7.0)])
def test_floats(tmp_path, engine, text, want):
    make.tar(tmp_path / "a.tar", [("a.w", text.encode())])
    loader = stoker.Loader(tmp_path / "a.tar", 1, fields={"n": stoker.Float("w")}, engine=engine)
    assert next(iter(loader))["n"].tolist() == [want]
