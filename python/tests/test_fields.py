"""Fields inside members: NumPy, JSON and MessagePack."""

import importlib.util
import io
import json
import os
import shutil
import struct
import subprocess
import sys

import make
import numpy as np
import pytest
import stoker
from PIL import Image


@pytest.fixture(params=["here", "jailed"])
def engine(request):
    """Members are parsed by this process, or by helpers that can do nothing else: the same."""
    with stoker.Engine(threads=2, memory="256MiB", sandbox=request.param == "jailed") as made:
        yield made


@pytest.fixture(scope="module")
def reader():
    """For values that are parsed in any case."""
    with stoker.Engine(threads=2, memory="256MiB") as made:
        yield made


def npy(array, **options):
    stream = io.BytesIO()
    np.save(stream, array, **options)
    return stream.getvalue()


def packed(value):
    """MessagePack of a value, enough of it (spec.md of the format)."""
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        return bytes([value]) if 0 <= value < 128 else b"\xd3" + struct.pack(">q", value)
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    if isinstance(value, str):
        data = value.encode()
        return b"\xda" + struct.pack(">H", len(data)) + data
    if isinstance(value, dict):
        inner = b"".join(packed(key) + packed(item) for key, item in value.items())
        return b"\xde" + struct.pack(">H", len(value)) + inner
    return b"\xdc" + struct.pack(">H", len(value)) + b"".join(map(packed, value))


def batch_of(tmp_path, engine, samples, fields, **options):
    """One batch of samples [{extension: bytes}], in their order."""
    members = [(f"{i:03}.{e}", data) for i, s in enumerate(samples) for e, data in s.items()]
    make.tar(tmp_path / "a.tar", members)
    options = {"shuffle": "none", "output": "numpy", **options}
    loader = stoker.Loader(
        tmp_path / "a.tar", len(samples), fields=fields, engine=engine, **options
    )
    return next(iter(loader))


DTYPES = [
    *("?", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
]


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("fortran", [False, True])
@pytest.mark.parametrize("name", DTYPES)
def test_arrays_of_numpy(tmp_path, reader, name, fortran, order):
    """Every dtype, both byte orders, both orders of memory: NumPy's own numbers."""
    random = np.random.default_rng(1)
    arrays = [(random.normal(0, 30, (3, 4)) ** 2).astype(name) for _ in range(5)]
    samples = [
        {
            "npy": npy(
                (np.asfortranarray(a) if fortran else a).astype(np.dtype(name).newbyteorder(order))
            )
        }
        for a in arrays
    ]
    wanted = np.dtype(name).name
    fields = {"a": stoker.Array("npy", (3, 4), wanted), "d": stoker.Array("npy", (3, 4), "float64")}
    batch = batch_of(tmp_path, reader, samples, fields)
    assert batch["a"].dtype == np.dtype(name) and batch["a"].shape == (5, 3, 4)
    assert (batch["a"] == np.stack(arrays)).all()
    assert (batch["d"] == np.stack(arrays).astype(float)).all()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz(tmp_path, engine, save):
    samples, arrays = [], []
    for i in range(4):
        stream = io.BytesIO()
        arrays.append(np.arange(i * 100, dtype="uint16"))
        save(stream, tokens=arrays[-1], other=np.ones(3))
        samples.append({"npz": stream.getvalue()})
    fields = {
        "t": stoker.Array("npz:tokens", dtype="int32"),
        "o": stoker.Array("npz", 3, path="other"),
    }
    batch = batch_of(tmp_path, engine, samples, fields)
    assert batch["o"].tolist() == [[1, 1, 1]] * 4
    assert batch["t"].offsets.tolist() == [0, 0, 100, 300, 600]
    assert batch["t"].values.dtype == np.int32 and len(batch["t"]) == 4
    assert all((got == want).all() for got, want in zip(batch["t"], arrays, strict=True))
    with pytest.raises(IndexError):
        batch["t"][4]
    assert (batch["t"][-1] == arrays[-1]).all()


def test_ragged_rows_and_sides(tmp_path, engine):
    arrays = [np.arange(n * 6.0).reshape(n, 2, 3) for n in (2, 0, 3)]
    flat = [np.ones((n, n + 1)) * n for n in (2, 3, 1)]
    samples = [{"npy": npy(a), "f.npy": npy(b)} for a, b in zip(arrays, flat, strict=True)]
    fields = {"r": stoker.Array("npy", (None, 2, 3)), "f": stoker.Array("f.npy", (None, None))}
    for output in ("numpy", "torch", "array"):
        if output == "torch":
            pytest.importorskip("torch")
        batch = batch_of(tmp_path, engine, samples, fields, output=output)
        rows, free = batch["r"], batch["f"]
        assert [np.asarray(rows[i]).shape for i in range(3)] == [a.shape for a in arrays]
        if output != "array":
            assert tuple(rows.values.shape) == (5, 2, 3) and rows.shapes is None
            assert all((np.asarray(rows[i]) == a).all() for i, a in enumerate(arrays))
        assert free.shapes.tolist() == [[2, 3], [3, 4], [1, 2]]
        assert all((np.asarray(free[i]) == a).all() for i, a in enumerate(flat))


def test_nested(tmp_path, engine, torch):
    samples = [{"npy": npy(np.arange(n, dtype="int64"))} for n in (3, 1, 2)]
    fields = {"t": stoker.Array("npy", dtype="int64")}
    ragged = batch_of(tmp_path, engine, samples, fields, output="torch")["t"]
    nested = ragged.nested()
    assert nested.values().data_ptr() == ragged.values.data_ptr()
    assert [t.tolist() for t in nested.unbind()] == [[0, 1, 2], [0], [0, 1]]


@pytest.mark.parametrize("extension", ["json", "mp"])
def test_paths(tmp_path, engine, extension):
    encode = packed if extension == "mp" else lambda value: json.dumps(value).encode()
    values = [
        {
            "size": {"w": i, "h": 2.5},
            "text": f"ü{i}" * i,
            "p": [[i, 1]] * i,
            "o": [{"x": i}, {"x": 2}],
        }
        for i in range(4)
    ]
    fields = {
        "w": stoker.Int(f"{extension}:size.w"),
        "h": stoker.Float(extension, path="size.h"),
        "text": stoker.Text(f"{extension}:text"),
        "p": stoker.Array(f"{extension}:p", (None, 2), "int64"),
        "o": stoker.Array(f"{extension}:o.*.x", 2),
    }
    batch = batch_of(tmp_path, engine, [{extension: encode(v)} for v in values], fields)
    assert batch["w"].tolist() == [0, 1, 2, 3] and batch["h"].tolist() == [2.5] * 4
    assert batch["text"] == [v["text"] for v in values]
    assert [p.tolist() for p in batch["p"]] == [v["p"] for v in values]
    assert batch["o"].tolist() == [[i, 2] for i in range(4)]


def test_complete_objects(tmp_path, engine):
    values = [{"a": [1, None, "x"]}, [], "text"]
    samples = [{"json": json.dumps(v).encode()} for v in values]
    assert batch_of(tmp_path, engine, samples, {"j": stoker.Json("json")})["j"] == values
    samples[1]["json"] = b"{"
    with pytest.raises(stoker.TruncatedError) as caught:
        batch_of(tmp_path, engine, samples, {"j": stoker.Json("json")})
    assert caught.value.key == "001" and caught.value.shard.endswith("a.tar")
    msgpack = pytest.importorskip("msgpack")
    samples = [{"mp": msgpack.packb(v)} for v in values]
    assert batch_of(tmp_path, engine, samples, {"m": stoker.MessagePack("mp")})["m"] == values


def objects():
    stream = io.BytesIO()
    np.save(stream, np.array([{}], object), allow_pickle=True)
    return stream.getvalue()


BAD = [
    ({"npy": npy(np.ones((2, 4)))}, stoker.Array("npy", (2, 3)), stoker.FormatError, "(2, 3)"),
    ({"npy": npy(np.ones(3))}, stoker.Array("npy", (None, 3)), stoker.FormatError, "(None, 3)"),
    ({"npy": objects()}, stoker.Array("npy", 1), stoker.UnsupportedError, "pickle"),
    ({"npy": npy(np.ones(3))[:-1]}, stoker.Array("npy", 3), stoker.TruncatedError, "early"),
    ({"npy": npy(np.ones(3))}, stoker.Array("npy", 3, "int64"), stoker.FormatError, "dtype"),
    ({"npy": npy(np.array([300]))}, stoker.Array("npy", 1, "uint8"), stoker.FormatError, "uint8"),
    ({"json": b'{"a": 1}'}, stoker.Int("json:b"), stoker.MissingError, "'b'"),
    ({"json": b'{"a": "1"}'}, stoker.Int("json:a"), stoker.FormatError, "text found"),
    ({"json": b'{"a": 1'}, stoker.Float("json:a"), stoker.TruncatedError, "JSON"),
    ({"mp": b"\xdd\xff\xff\xff\xff"}, stoker.Int("mp:0"), stoker.TruncatedError, "MessagePack"),
    ({"bin": b"12345678"}, stoker.Array("bin"), stoker.FormatError, "is not json"),
    ({"txt": b"ab\xff"}, stoker.Text("txt"), stoker.FormatError, "UTF-8"),
    ({"cls": b"x"}, stoker.Int("cls"), stoker.CorruptError, "number"),
]


@pytest.mark.parametrize(("sample", "field", "kind", "text"), BAD)
def test_damage_is_named(tmp_path, engine, sample, field, kind, text):
    with pytest.raises(kind) as caught:
        batch_of(tmp_path, engine, [sample], {"f": field})
    assert caught.value.key == "000" and caught.value.shard.endswith("a.tar")
    assert text in str(caught.value) and caught.value.advice


@pytest.mark.parametrize(
    "make_field",
    [
        lambda: stoker.Array("npy", 0),
        lambda: stoker.Array("npy", (1, 2, 3, 4)),
        lambda: stoker.Array("npy", 3, "complex64"),
        lambda: stoker.Int("json:a", path="b"),
        lambda: stoker.Boxes("json", format="yxyx"),
        lambda: stoker.Mask("png", dtype="float32"),
    ],
)
def test_refused(make_field):
    with pytest.raises(stoker.ArgumentError):
        make_field()


@pytest.mark.filterwarnings("ignore")
def test_webdatasets_values(tmp_path, engine):
    """Members that webdataset's writer made are decoded as its own decoder decodes them."""
    webdataset = pytest.importorskip("webdataset")
    packer = importlib.util.find_spec("msgpack") is not None
    random = np.random.default_rng(3)
    with webdataset.ShardWriter(str(tmp_path / "s-%03d.tar"), maxcount=30, verbose=0) as writer:
        for i in range(30):
            document = {"n": i - 5, "x": i / 7, "t": "\u00fc" * i, "v": [[i, 2]] * (i % 4)}
            sample = {
                "__key__": f"k{i:03}",
                "cls": i * 3,
                "txt": f"text {i} \u00e9",
                "json": document,
                "npy": random.normal(size=(i % 5, 3)).astype("float32"),
                "npz": {"a": np.arange(i), "b": np.ones((i, 2))},
            }
            writer.write({**sample, "mp": document} if packer else sample)
    wanted = list(webdataset.WebDataset(str(tmp_path / "s-000.tar"), shardshuffle=False).decode())
    trees = ["json", "mp"] if packer else ["json"]
    fields = {
        "cls": stoker.Int("cls"),
        "txt": stoker.Text("txt"),
        "whole": stoker.Json("json"),
        "npy": stoker.Array("npy", (None, 3)),
        "a": stoker.Array("npz:a", dtype="int64"),
        **{f"{tree} n": stoker.Int(f"{tree}:n") for tree in trees},
        **{f"{tree} x": stoker.Float(f"{tree}:x") for tree in trees},
        **{f"{tree} t": stoker.Text(f"{tree}:t") for tree in trees},
        **{f"{tree} v": stoker.Array(f"{tree}:v", (None, 2), "int64") for tree in trees},
    }
    loader = stoker.Loader(
        tmp_path / "s-000.tar", 30, fields=fields, shuffle="none", engine=engine, output="numpy"
    )
    batch = next(iter(loader))
    for i, want in enumerate(wanted):
        assert batch["cls"][i] == want["cls"] and batch["txt"][i] == want["txt"]
        assert batch["whole"][i] == want["json"] and (batch["npy"][i] == want["npy"]).all()
        assert (batch["a"][i] == want["npz"]["a"]).all()
        for tree in trees:
            for name in "nxt":
                assert batch[f"{tree} {name}"][i] == want[tree][name]
            assert batch[f"{tree} v"][i].tolist() == want[tree]["v"]
    loader.close()


# ---- the policy for damage, and bounds ----

DAMAGED = {
    "an array cut off": {"npy": npy(np.ones((3, 2), np.float32))[:-1]},
    "another shape": {"npy": npy(np.ones(3, np.float32))},
    "a JSON cut off": {"json": b'{"n": 1'},
    "NaN": {"json": b'{"n": 1, "b": NaN}'},
    "a path that is not there": {"json": b'{"b": 1}'},
    "a MessagePack cut off": {"mp": b"\x92\x01"},
    "text of MessagePack that is none": {"mp": b"\x92\xa1\xff\x05"},
    "a mask of another size": {"mask.png": make.encoded(make.pixels(1, 9, 8)[..., 0], "PNG")},
    "no mask": {"mask.png": None},
    "text that is none": {"txt": b"\xff"},
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_in_a_member_makes_the_sample_bad(tmp_path, name):
    """One bad member under skip: all fields of its place are another sample's, and it is listed."""
    samples = []
    for i in range(20):
        sample = {
            "png": make.encoded(np.full((8, 8, 3), i, np.uint8), "PNG"),
            "mask.png": make.encoded(np.full((8, 8), i, np.uint8), "PNG"),
            "npy": npy(np.full((i % 4, 2), i, np.float32)),
            "json": json.dumps({"n": i, "b": [[0, 0, 1 + i % 5, 2]]}).encode(),
            "mp": packed(["x" * (i % 3), i]),
            "txt": f"{i}".encode(),
        }
        samples.append(
            {
                e: d
                for e, d in {**sample, **(DAMAGED[name] if i == 7 else {})}.items()
                if d is not None
            }
        )
    members = [(f"{i:03}.{e}", data) for i, s in enumerate(samples) for e, data in s.items()]
    make.tar(tmp_path / "a.tar", members)
    fields = {
        "id": "__id__",
        "i": stoker.Image("png", stoker.CenterCrop(8)),
        "m": stoker.Mask("mask.png"),
        "a": stoker.Array("npy", (None, 2)),
        "n": stoker.Int("json:n"),
        "b": stoker.Boxes("json:b"),
        "j": stoker.Json("json"),
        "p": stoker.Int("mp:1"),
        "t": stoker.Text("txt"),
    }
    if name == "text of MessagePack that is none":
        pytest.importorskip("msgpack")
        fields["p"] = stoker.MessagePack("mp")
    loader = stoker.Loader(
        tmp_path / "a.tar", 20, fields=fields, shuffle="none", output="numpy", on_error="skip"
    )
    batch = next(iter(loader))
    ids = batch["id"].tolist()
    assert ids[:7] + ids[8:] == [i for i in range(20) if i != 7] and ids[7] != 7
    for slot, i in enumerate(ids):
        assert (batch["i"][slot] == i).all() and (batch["m"][slot] == i).all()
        assert (batch["a"][slot] == np.full((i % 4, 2), i)).all()
        assert batch["n"][slot] == i and batch["j"][slot]["n"] == i and batch["t"][slot] == f"{i}"
        assert batch["b"][slot].tolist() == [[0, 0, 1 + i % 5, 2]]
    assert loader.stats()["substituted"] == 1
    assert [bad.key for bad in loader.quarantine] == ["007"]
    loader.close()


def test_unchecked_json(tmp_path, engine):
    """Values that Python writes and JSON lacks: refused by name, or accepted with check=False."""
    samples = [{"json": b'[NaN, Infinity, 123456789012345678901234567890, "\\ud800"]'}]
    with pytest.raises(stoker.CorruptError) as caught:
        batch_of(tmp_path, engine, samples, {"j": stoker.Json("json")})
    assert "check=False" in caught.value.advice
    value = batch_of(tmp_path, engine, samples, {"j": stoker.Json("json", check=False)})["j"][0]
    assert str(value[:3]) == "[nan, inf, 123456789012345678901234567890]"
    samples = [{"json": b"{"}]
    with pytest.raises(stoker.CorruptError, match="key '000'"):
        batch_of(
            tmp_path, engine, samples, {"j": stoker.Json("json", check=False)}, on_error="skip"
        )


def test_messagepack_by_its_package(tmp_path, engine):
    """The package reads all that the check accepts; numbers as keys too."""
    msgpack = pytest.importorskip("msgpack")
    values = [
        {1: {"a": b"\xff"}, None: [1.5, True]},
        msgpack.Timestamp(5, 7),
        msgpack.ExtType(3, b""),
    ]
    samples = [{"mp": msgpack.packb(value)} for value in values]
    assert batch_of(tmp_path, engine, samples, {"m": stoker.MessagePack("mp")})["m"] == values


@pytest.mark.parametrize("kind", ["npz", "json", "mp"])
def test_parsed_members_are_bounded(tmp_path, engine, kind):
    """decode_bytes_max: LIMIT above it, damage as any other; fine below."""
    stream = io.BytesIO()
    np.savez_compressed(stream, a=np.zeros(1_000_000))
    data = {
        "npz": stream.getvalue(),
        "json": json.dumps({"a": [0] * 20_000}).encode(),
        "mp": packed({"a": [0] * 20_000}),
    }[kind]
    fields = {"a": stoker.Array(f"{kind}:a", dtype="int8" if kind != "npz" else "float64")}
    size = 1_000_000 if kind == "npz" else 20_000
    batch = batch_of(tmp_path, engine, [{kind: data}], fields)
    assert len(batch["a"][0]) == size and not batch["a"][0].any()
    with pytest.raises(stoker.LimitError, match="decode_bytes_max") as caught:
        batch_of(tmp_path, engine, [{kind: data}], fields, decode_bytes_max="256KiB")
    assert caught.value.key == "000"


def test_an_npz_that_claims_too_much(tmp_path, engine):
    """The size in a zip's directory is not trusted: the limit is what deflate can expand to."""
    stream = io.BytesIO()
    np.savez_compressed(stream, a=np.zeros(1000))
    data = bytearray(stream.getvalue())
    at = data.rindex(b"PK\1\2") + 24
    data[at : at + 4] = struct.pack("<I", 1 << 31)
    with pytest.raises(stoker.LimitError, match="too large"):
        batch_of(tmp_path, engine, [{"npz": bytes(data)}], {"a": stoker.Array("npz:a")})


def test_the_same_whatever_the_threads(tmp_path):
    """All fields at once, from webdataset's writer where there is one: the same bytes for any
    number of threads, with a little memory, and with samples that are replaced."""
    webdataset = pytest.importorskip("webdataset")
    random = np.random.default_rng(5)
    with webdataset.ShardWriter(str(tmp_path / "s-%03d.tar"), maxcount=40, verbose=0) as writer:
        for i in range(120):
            sides = random.integers(20, 60, 2)
            pixels = make.pixels(i, *sides)
            writer.write(
                {
                    "__key__": f"k{i:03}",
                    "jpg": make.encoded(pixels),
                    "mask.png": make.encoded(pixels[..., 0], "PNG"),
                    "npy": npy(random.normal(size=int(random.integers(0, 50)))),
                    "json": {"b": [[1, 2, 15, 18]] * (i % 4), "n": i, "t": "x" * (i % 9)}
                    if i % 17
                    else {"b": 1},
                }
            )

    def epoch(threads):
        loader = stoker.Loader(
            str(tmp_path / "s-{000..002}.tar"),
            16,
            fields={
                "m": stoker.Mask("mask.png"),
                "i": stoker.Image(
                    "jpg", [stoker.RandomResizedCrop(16), stoker.RandomHorizontalFlip()]
                ),
                "a": stoker.Array("npy"),
                "b": stoker.Boxes("json:b"),
                "n": stoker.Int("json:n"),
                "t": stoker.Text("json:t"),
                "id": "__id__",
            },
            threads=threads,
            memory="32MiB",
            on_error="skip",
            seed=3,
            output="numpy",
        )
        parts = []
        for batch in loader:
            for name in "a", "b":
                parts += [batch[name].values.tobytes(), batch[name].offsets.tobytes()]
            parts += [batch[name].tobytes() for name in ("m", "i", "n", "id")] + batch["t"]
        assert loader.stats()["substituted"] > 0
        loader.close()
        return parts

    assert epoch(1) == epoch(2) == epoch(5)


def test_numbers_of_every_size_and_locale(tmp_path):
    """A decimal comma in the process's locale does not change the value of a number; tiny numbers
    are numbers; integers beyond 63 bits in another field are no damage."""
    make.tar(
        tmp_path / "a.tar",
        [
            ("0.x", b"0.5"),
            ("0.y", b"1e-310\n"),
            ("0.cls", b" -7\r\n"),
            ("0.json", b'{"w": 5, "v": 0.25, "phash": 12345678901234567890, "t": "\\ud800"}'),
        ],
    )
    script = (
        "import locale, sys, stoker\n"
        "if sys.argv[2] != 'C': locale.setlocale(locale.LC_ALL, sys.argv[2])\n"
        "fields = {'x': stoker.Float('x'), 'y': stoker.Float('y'), 'n': stoker.Int('cls'),\n"
        "          'w': stoker.Int('json:w'), 'v': stoker.Float('json:v')}\n"
        "loader = stoker.Loader(sys.argv[1], 1, fields=fields, output='array', tail='keep',\n"
        "                       subset='json.v < 0.5 and json.w == 5')\n"
        "print([batch[name].tolist()[0] for batch in loader for name in fields])\n"
    )
    environment, locales = dict(os.environ), ["C"]
    made = subprocess.run(
        ["localedef", "-i", "de_DE", "-f", "UTF-8", str(tmp_path / "de_DE.UTF-8")],
        capture_output=True,
        check=False,
    ) if shutil.which("localedef") else None
    if made and made.returncode == 0:
        environment["LOCPATH"] = str(tmp_path)
        locales.append("de_DE.UTF-8")
    for name in locales:
        done = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path / "a.tar"), name],
            env=environment, capture_output=True, text=True, timeout=60, check=False,
        )
        assert done.stdout.strip() == "[0.5, 1e-310, -7, 5, 0.25]", done.stderr
    fields = {"h": stoker.Int("json:phash")}
    with pytest.raises(stoker.FormatError, match="64 bits"):
        list(stoker.Loader(tmp_path / "a.tar", 1, fields=fields, tail="keep"))
    fields = {"t": stoker.Text("json:t")}
    with pytest.raises(stoker.FormatError):
        list(stoker.Loader(tmp_path / "a.tar", 1, fields=fields, tail="keep"))
    for text in (b"1e999", b"0,5", b"99999999999999999999"):
        make.tar(tmp_path / "b.tar", [("0.x", text)])
        kind = stoker.Int if b"99" in text[:2] else stoker.Float
        with pytest.raises(stoker.CorruptError, match="not a number"):
            list(stoker.Loader(tmp_path / "b.tar", 1, fields={"x": kind("x")}, tail="keep"))


@pytest.mark.parametrize("items, depth", [(256, 8), (2, 64), (65536, 4), (4096, 6)])
def test_a_product_of_lengths_beyond_64_bits(tmp_path, engine, items, depth):
    """An error of its sample, never the bytes that its slot had before: also of the next field."""
    text = "[" * depth + "7" + (",7" * (items - 1) + "]") * depth
    members = []
    for number in range(6):
        content = text if number in (1, 4) else f"[{number}, {number}]"
        members += [(f"{number}.json", content.encode()), (f"{number}.cls", b"%d" % (20 + number))]
    make.tar(tmp_path / "a.tar", members)
    fields = {"v": stoker.Array("json", dtype="int64"), "y": stoker.Int("cls"), "id": "__id__"}
    options = dict(fields=fields, shuffle="none", tail="keep", output="numpy", engine=engine)
    with pytest.raises(stoker.Error, match="key '1'"):
        list(stoker.Loader(tmp_path / "a.tar", 6, **options))
    with stoker.Loader(tmp_path / "a.tar", 1, on_error="skip", **options) as loader:
        for batch in loader:
            number = int(batch["id"][0])
            assert number not in (1, 4) and int(batch["y"][0]) == 20 + number
            assert list(batch["v"][0]) == [number, number]
        assert sorted(bad.key for bad in loader.quarantine) == ["1", "4"]


def test_an_error_names_what_is_there(tmp_path, engine):
    text = b'{"i": 1e999, "s": "a\\ud800", "n": null, "width": 5, "o": {"x": [1]}}'

    def fails(path, match, kind=stoker.Int):
        with pytest.raises(stoker.Error, match=match):
            batch_of(tmp_path, engine, [{"json": text}], {"x": kind(f"json:{path}")})

    for path, found in (("i", "a number beyond the largest double"),
                        ("s", "text with half a surrogate pair"), ("n", "null")):
        for kind in (stoker.Int, stoker.Float, stoker.Text):
            fails(path, f"{found} found", kind)
    fails("widht", "'widht' in an object, which has:.* width")
    fails("o.y", "'y' in an object, which has: x")
    fails("o.x.1", "'1' in a list, which has 1 items")


def test_integers_of_64_bits_without_a_sign(tmp_path, engine):
    """Hashes and ids above 2^63: as a field of uint64, and in predicates, balance and weights."""
    big = [2**64 - 1, 12345678901234567890, 12345678901234567891, 5]
    make.tar(
        tmp_path / "a.tar",
        [
            pair
            for i, n in enumerate(big)
            for pair in ((f"{i}.id", b" %d\n" % n), (f"{i}.json", b'{"h": %d}' % n))
        ],
    )
    options = dict(shuffle="none", tail="keep", output="numpy", engine=engine)

    def read(field, **more):
        with stoker.Loader(tmp_path / "a.tar", 1, fields={"h": field}, **options, **more) as loader:
            return [batch["h"] for batch in loader]

    for field in ("id", "json:h"):
        found = read(stoker.Int(field, dtype="uint64"))
        assert found[0].dtype == np.uint64 and [int(row[0]) for row in found] == big
        with pytest.raises(stoker.Error):
            read(stoker.Int(field))
    for text, wanted in [
        ("json.h == 12345678901234567890", 1),
        ("json.h in (5, 12345678901234567891)", 2),
        ("id > 12345678901234567890", 2),
        ("id % 10 == 5", 2),
        ("json.h < 1e19", 1),
    ]:
        assert len(read(stoker.Int("id", dtype="uint64"), subset=text)) == wanted, text
    assert len(read(stoker.Int("id", dtype="uint64"), balance="json.h")) == 4
    for bad in (b"-1", b"18446744073709551616"):
        make.tar(tmp_path / "a.tar", [("0.id", bad), ("0.json", b'{"h": %s}' % bad)])
        for field in ("id", "json:h"):
            with pytest.raises(stoker.Error):
                read(stoker.Int(field, dtype="uint64"))
    assert stoker.Int("id", default=2**64 - 1, dtype="uint64").default == 2**64 - 1
    for bad in ({"dtype": "int32"}, {"dtype": "uint64", "default": -1}, {"default": 2**63}):
        with pytest.raises(stoker.ArgumentError):
            stoker.Int("id", **bad)
