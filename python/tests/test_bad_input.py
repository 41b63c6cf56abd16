"""Each kind of bad input gives a typed error that names shard, key, offset and remedy."""

import os
import struct
import subprocess
import sys
import tarfile
import zlib

import make
import pytest
import stoker
from stoker import (
    CorruptError,
    EmptyError,
    FormatError,
    LimitError,
    MissingError,
    TruncatedError,
    UnsupportedError,
)

GOOD = [member for number in range(4) for member in make.sample(number)]
IMAGE = {"image": stoker.Image("jpg;png", [stoker.Resize((8, 8))]), "label": stoker.Int("cls")}


def whole_tar(tmp_path):
    return make.tar(tmp_path / "bad.tar", GOOD)


def changed(tmp_path, change):
    """A good tar with its bytes changed."""
    path = whole_tar(tmp_path)
    data = bytearray(path.read_bytes())
    path.write_bytes(bytes(change(data)))
    return path


def header_of(tmp_path, number):
    """Offset of a member's header in the good tar."""
    with tarfile.open(whole_tar(tmp_path)) as archive:
        return archive.getmembers()[number].offset


def one_member(tmp_path, name, data, **options):
    others = [(f"{name.partition('.')[0]}.cls", b"1")]
    return make.tar(tmp_path / "bad.tar", [(name, data), *others], **options)


def truncated(tmp_path):
    at = header_of(tmp_path, 8)
    return changed(tmp_path, lambda data: data[: at + 512 + 100])


def truncated_header(tmp_path):
    at = header_of(tmp_path, 8)
    return changed(tmp_path, lambda data: data[: at + 200])


def lying_size(tmp_path):
    at = header_of(tmp_path, 4)

    def change(data):
        data[at + 124 : at + 136] = b"%011o\0" % (1 << 32)
        data[at : at + 512] = make.checksummed(data[at : at + 512])
        return data

    return changed(tmp_path, change)


def negative_size(tmp_path):
    at = header_of(tmp_path, 4)

    def change(data):
        data[at + 124 : at + 136] = b"\xff" * 12  # base-256: -1
        data[at : at + 512] = make.checksummed(data[at : at + 512])
        return data

    return changed(tmp_path, change)


def wrong_checksum(tmp_path):
    at = header_of(tmp_path, 4)

    def change(data):
        data[at + 3] ^= 1
        return data

    return changed(tmp_path, change)


def garbage(tmp_path):
    import random

    return make.write(tmp_path / "bad.tar", random.Random(1).randbytes(20_000))


def text_as_tar(tmp_path):
    return make.write(tmp_path / "bad.tar", b"<html>404 not found</html>\n" * 100)


def pax_block(payload):
    """A PAX header member with any payload."""
    info = tarfile.TarInfo("x")
    info.size, info.type = len(payload), tarfile.XHDTYPE
    padding = b"\0" * (-len(payload) % 512)
    return info.tobuf(tarfile.USTAR_FORMAT) + payload + padding


def pax_loop(tmp_path):
    """Extended headers without end, each for the next."""
    return make.write(tmp_path / "bad.tar", pax_block(b"12 path=a.b\n") * 1000)


def pax_lying_length(tmp_path):
    path = whole_tar(tmp_path)
    return make.write(path, pax_block(b"99999 path=a.b\n") + path.read_bytes())


def pax_huge(tmp_path):
    record = b"path=" + b"a" * (3 << 20) + b"\n"
    record = b"%d %s" % (len(record) + 8, record)
    path = whole_tar(tmp_path)
    return make.write(path, pax_block(record) + path.read_bytes())


def nul_in_name(tmp_path):
    payload = b"path=a\0b.txt\n"
    payload = b"%d %s" % (len(payload) + 3, payload)
    info = tarfile.TarInfo("y.txt")
    return make.write(tmp_path / "bad.tar", pax_block(payload) + info.tobuf() + b"\0" * 1024)


def huge_png(tmp_path):
    """A header of 60,000 x 60,000 pixels, and little else."""

    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    png = (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0))
        + chunk(b"IDAT", zlib.compress(b"\0" * 1000))
        + chunk(b"IEND", b"")
    )
    return one_member(tmp_path, "huge.png", png)


def huge_jpeg(tmp_path):
    data = bytearray(make.encoded(make.pixels(1, 16, 16)))
    at = data.index(b"\xff\xc0")
    data[at + 5 : at + 9] = struct.pack(">HH", 60_000, 60_000)
    return one_member(tmp_path, "huge.jpg", bytes(data))


def cut_jpeg(tmp_path):
    data = make.encoded(make.pixels(1, 200, 200))
    return one_member(tmp_path, "cut.jpg", data[: len(data) // 2])


def cut_png(tmp_path):
    data = make.encoded(make.pixels(1, 200, 200), "PNG")
    return one_member(tmp_path, "cut.png", data[: len(data) // 2])


def damaged_png(tmp_path):
    data = bytearray(make.encoded(make.pixels(1, 200, 200), "PNG"))
    data[len(data) // 2] ^= 0xFF
    return one_member(tmp_path, "damaged.png", bytes(data))


def ratio_bomb(tmp_path):
    """40 MB of zeros in 40 kB."""
    import gzip

    path = make.tar(tmp_path / "plain.tar", [("a.bin", b"\0" * (40 << 20))])
    return make.write(tmp_path / "bad.tar.gz", gzip.compress(path.read_bytes(), 9))


def cut_gzip(tmp_path):
    import gzip

    data = gzip.compress(whole_tar(tmp_path).read_bytes())
    return make.write(tmp_path / "bad.tar.gz", data[: len(data) // 2])


def folder_with(tmp_path, name, data):
    make.jpeg(tmp_path / "root" / "good" / "1.jpg", 1)
    make.write(tmp_path / "root" / "bad" / name, data)
    return tmp_path / "root"


def symlink_loop(tmp_path):
    make.jpeg(tmp_path / "root" / "a" / "1.jpg", 1)
    os.symlink("..", tmp_path / "root" / "a" / "up")
    return tmp_path / "root"


def dangling_link(tmp_path):
    make.jpeg(tmp_path / "root" / "a" / "1.jpg", 1)
    os.symlink("nowhere.jpg", tmp_path / "root" / "a" / "2.jpg")
    return tmp_path / "root"


def member(name, data):
    """A maker: a good tar but for one member."""
    return lambda tmp_path: one_member(tmp_path, name, data)


def only(*members):
    """A maker: a tar of these members."""
    return lambda tmp_path: make.tar(tmp_path / "bad.tar", list(members))


def empty_shard(tmp_path):
    return make.write(tmp_path / "bad.tar", b"")


PICTURE = make.encoded(make.pixels(1))
LABELLED = [("good.jpg", PICTURE), ("good.cls", b"1")]
NO_PICTURE = (TruncatedError, FormatError)

# name: maker, error, the shard's end, key, whether there is an offset; None: not looked at.
ROWS = {
    "truncated tar": (truncated, TruncatedError, "bad.tar", None, True),
    "truncated header": (truncated_header, TruncatedError, "bad.tar", None, True),
    "lying size": (lying_size, TruncatedError, "bad.tar", None, True),
    "negative size": (negative_size, CorruptError, "bad.tar", None, True),
    "wrong checksum": (wrong_checksum, CorruptError, "bad.tar", None, True),
    "garbage": (garbage, FormatError, "bad.tar", None, True),
    "a web page": (text_as_tar, FormatError, "bad.tar", None, True),
    "PAX loop": (pax_loop, CorruptError, "bad.tar", None, True),
    "PAX record's length": (pax_lying_length, CorruptError, "bad.tar", None, True),
    "PAX of 3 MB": (pax_huge, LimitError, "bad.tar", None, True),
    "NUL in a name": (nul_in_name, CorruptError, "bad.tar", None, True),
    "..": (member("../up.jpg", b"1"), CorruptError, "bad.tar", None, True),
    ".. inside": (member("a/../up.jpg", b"1"), CorruptError, "bad.tar", None, True),
    "absolute": (member("/etc/up.jpg", b"1"), CorruptError, "bad.tar", None, True),
    "5 kB long": (member("n" * 5000 + ".jpg", b"1"), LimitError, "bad.tar", None, True),
    "empty shard": (empty_shard, EmptyError, "bad.tar", None, None),
    "no samples": (only(), EmptyError, None, None, None),
    "zero-byte image": (member("z.jpg", b""), NO_PICTURE, "bad.tar", "z", True),
    "text named .jpg": (member("t.jpg", b"no picture"), FormatError, "bad.tar", "t", True),
    "60,000 x 60,000 PNG": (huge_png, LimitError, "bad.tar", "huge", True),
    "60,000 x 60,000 JPEG": (huge_jpeg, LimitError, "bad.tar", "huge", True),
    "cut JPEG": (cut_jpeg, TruncatedError, "bad.tar", "cut", True),
    "cut PNG": (cut_png, TruncatedError, "bad.tar", "cut", True),
    "damaged PNG": (damaged_png, CorruptError, "bad.tar", "damaged", True),
    "missing label": (only(*LABELLED, ("m.jpg", PICTURE)), MissingError, "bad.tar", "m", None),
    "missing image": (only(*LABELLED, ("m.cls", b"1")), MissingError, "bad.tar", "m", None),
    "no labels at all": (only(("m.jpg", PICTURE)), MissingError, None, None, None),
    "no images at all": (only(("m.cls", b"1")), MissingError, None, None, None),
    "ratio bomb": (ratio_bomb, LimitError, "bad.tar.gz", None, None),
    "cut gzip": (cut_gzip, TruncatedError, "bad.tar.gz", None, None),
}

OPTIONS = {"ratio bomb": {"decompression_ratio_max": 50}}


def read_all(source, engine, options=None, fields=IMAGE, **loader_options):
    dataset = stoker.Dataset(source, engine=engine, **(options or {}))
    loader = stoker.Loader(
        dataset, 1, fields=fields, output="numpy", tail="keep", shuffle="none", **loader_options
    )
    return list(loader)


@pytest.mark.parametrize("name", ROWS)
def test_tar(tmp_path, engine, name):
    maker, kind, shard, key, has_offset = ROWS[name]
    source = maker(tmp_path)
    with pytest.raises(kind) as caught:
        read_all(source, engine, OPTIONS.get(name))
    error = caught.value
    assert error.what and error.where and error.advice and error.status < 0
    if shard is not None:
        assert error.shard and error.shard.endswith(shard)
    if key is not None:
        assert error.key == key
    if has_offset:
        assert error.offset is not None and 0 <= error.offset <= os.path.getsize(source)
    assert str(error) == f"{error.what}: {error.where}\n  {error.advice}"


def file(name, data):
    """A maker: two classes, one of them with this file only."""
    return lambda tmp_path: folder_with(tmp_path, name, data)


def below(name):
    return lambda tmp_path: tmp_path / name


FOLDERS = {
    "zero-byte image": (file("2.jpg", b""), NO_PICTURE),
    "text named .jpg": (file("2.jpg", b"hello there"), FormatError),
    "cut JPEG": (file("2.jpg", PICTURE[: len(PICTURE) // 2]), TruncatedError),
    "GIF": (file("2.gif", b"GIF89a"), FormatError),
    "class without pictures": (file("readme.txt", b"x"), EmptyError),
    "empty folder": (below(""), EmptyError),
    "symlink loop": (symlink_loop, stoker.IOError),
    "dangling link": (dangling_link, stoker.IOError),
    "nothing there": (below("nowhere"), FileNotFoundError),
    "no match": (below("*.tar"), EmptyError),
    "no tar in braces": (below("{0..3}.tar"), FileNotFoundError),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_folder(tmp_path, engine, name):
    maker, kind = FOLDERS[name]
    source = maker(tmp_path)
    fields = {"image": stoker.Image(None, [stoker.Resize((8, 8))]), "label": stoker.Label()}
    with pytest.raises(kind) as caught:
        read_all(source, engine, fields=fields)
    error = caught.value
    assert isinstance(error, stoker.Error) and error.what and error.where and error.advice
    if name in ("zero-byte image", "text named .jpg", "cut JPEG"):
        assert error.shard == str(source / "bad" / "2.jpg") and error.key == "bad/2.jpg"


def test_unreadable_directory(tmp_path):
    """Runs as a user who is not root."""
    make.jpeg(tmp_path / "root" / "a" / "1.jpg", 1)
    make.jpeg(tmp_path / "root" / "b" / "1.jpg", 1)
    script = """
import os, sys
os.setgid(65534) if os.geteuid() == 0 else None
os.setuid(65534) if os.geteuid() == 0 else None
import stoker
try:
    stoker.Dataset(sys.argv[1])
except PermissionError as error:
    print(type(error).__mro__[1].__name__, error.shard or error.where)
"""
    for path in [tmp_path / "root", tmp_path, *tmp_path.parents]:
        if path.owner() == "root" or os.geteuid() == 0:
            os.chmod(path, path.stat().st_mode | 0o055) if str(path).startswith("/tmp/") else None
    os.chmod(tmp_path / "root" / "b", 0)
    try:
        done = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path / "root")],
            text=True,
            capture_output=True,
            timeout=60,
        )
    finally:
        os.chmod(tmp_path / "root" / "b", 0o755)
    if "No module named" in done.stderr or "Permission denied: '/" in done.stderr:
        pytest.skip("the package cannot be read by another user here")
    assert done.stdout.startswith("IOError") and "/root/b" in done.stdout, done


def test_skip(tmp_path, engine):
    """on_error="skip": damaged samples are replaced by good ones and counted; lengths stay."""
    members = []
    for number in range(20):
        data = make.encoded(make.pixels(number, 20, 20))
        if number in (3, 11):
            data = b"no picture"
        members += [(f"{number:03}.jpg", data), (f"{number:03}.cls", str(number).encode())]
    path = make.tar(tmp_path / "a.tar", members)

    def run(**options):
        loader = stoker.Loader(
            path,
            5,
            fields={**IMAGE, "id": "__id__", "key": "__key__"},
            engine=engine,
            output="numpy",
            seed=1,
            **options,
        )
        labels, ids = [], []
        for batch in loader:
            labels += batch["label"].tolist()
            ids += batch["id"].tolist()
            assert [int(key) for key in batch["key"]] == batch["label"].tolist()
            assert batch["image"].shape == (5, 3, 8, 8)
        return labels, ids, loader.stats()["substituted"]

    labels, ids, substituted = run(on_error="skip")
    assert len(labels) == 20 and substituted == 2
    assert 3 not in labels and 11 not in labels and labels == ids
    assert run(on_error="skip") == (labels, ids, 2)  # the same substitutes again
    with pytest.raises(stoker.FormatError) as caught:
        run()
    assert caught.value.key in ("003", "011")


def test_skip_does_not_hide_the_machine(tmp_path, engine):
    """A file that is missing is not a damaged sample."""
    for number in range(6):
        make.jpeg(tmp_path / "root" / "a" / f"{number}.jpg", number)
    dataset = stoker.Dataset(tmp_path / "root", engine=engine)
    os.unlink(tmp_path / "root" / "a" / "4.jpg")
    loader = stoker.Loader(
        dataset, 2, image=[stoker.Resize((8, 8))], on_error="skip", shuffle="none", tail="keep"
    )
    with pytest.raises(FileNotFoundError) as caught:
        list(loader)
    assert caught.value.shard.endswith("4.jpg") and caught.value.key == "a/4.jpg"


def test_all_damaged_under_skip(tmp_path, engine):
    """Nothing is left to take instead: an error, no hang."""
    path = make.tar(
        tmp_path / "a.tar",
        [m for n in range(8) for m in [(f"{n}.jpg", b"bad"), (f"{n}.cls", b"1")]],
    )
    loader = stoker.Loader(path, 2, fields=IMAGE, engine=engine, on_error="skip")
    with pytest.raises(stoker.Error):
        list(loader)


def test_an_error_keeps_its_place(tmp_path, engine):
    """The loader keeps its position before the batch that failed; the next call fails again;
    another epoch order continues."""
    members = [m for n in range(6) for m in [(f"{n}.txt", b"%d" % n if n != 3 else b"x")]]
    path = make.tar(tmp_path / "a.tar", members)
    loader = stoker.Loader(
        path, 1, fields={"n": stoker.Int("txt")}, shuffle="none", engine=engine, output="numpy"
    )
    iterator = iter(loader)
    assert [next(iterator)["n"].item() for _ in range(3)] == [0, 1, 2]
    for _ in range(2):
        with pytest.raises(stoker.Error) as caught:
            next(iterator)
        assert caught.value.key == "3"
    assert loader.state_dict()["position"] == 3
    loader.set_epoch(0)
    assert next(iter(loader))["n"].item() == 0


def test_changed_shard(tmp_path, engine):
    """A tar that is cut while it is in use: an error, no wrong data."""
    path = make.tar(tmp_path / "a.tar", [(f"{n:02}.bin", bytes([n]) * 60_000) for n in range(40)])
    loader = stoker.Loader(
        path, 4, fields={"b": stoker.Bytes("bin")}, shuffle="none", engine=engine, batches_ahead=1
    )
    iterator = iter(loader)
    next(iterator)
    os.truncate(path, 1_000_000)
    with pytest.raises((stoker.TruncatedError, stoker.ChangedError, stoker.IOError)):
        for batch in iterator:
            for view in batch["b"]:
                assert (
                    len(set(bytes(view))) == 1
                    and view[0] == bytes(view)[-1]
                    and len(view) == 60_000
                )
