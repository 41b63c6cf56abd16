"""Checkpoints of other tools: torch zip files, DCP folders, sharded models of Hugging Face."""

import argparse
import collections
import io
import json
import os
import pickle
import struct
import subprocess
import sys
import zipfile

import pytest
import stoker

torch = pytest.importorskip("torch")
dcp = pytest.importorskip("torch.distributed.checkpoint")

COMMAND = os.environ.get("STOKER_COMMAND", "stoker")


def same(a, b, path=""):
    if isinstance(a, torch.Tensor):
        assert (a.dtype, a.shape) == (b.dtype, b.shape), path
        assert torch.equal(
            a.detach().contiguous().reshape(-1).view(torch.uint8),
            b.detach().contiguous().reshape(-1).view(torch.uint8),
        ), path
    elif isinstance(a, dict):
        assert list(a) == list(b), path
        for key in a:
            same(a[key], b[key], f"{path}.{key}")
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b) and isinstance(b, type(a) if type(a) is not torch.Size else tuple)
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            same(x, y, f"{path}.{i}")
    else:
        assert type(a) is type(b) and (a == b or a != a), (path, a, b)


def state():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4))
    model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model(torch.randn(2, 3, 8, 8)).sum().backward()
    optimizer.step()
    base = torch.arange(24.0).reshape(4, 6)
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "views": [base, base[:, 1:4], base.t(), base[1:3], base[0], torch.ones(3).expand(2, 3)],
        "dtypes": {
            str(dtype): torch.arange(5).to(dtype)
            for dtype in (
                torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.bool,
                torch.int16, torch.int32, torch.complex64, torch.float8_e4m3fn, torch.float8_e5m2,
                torch.uint16, torch.uint32, torch.uint64,
            )
        },
        "scalar": torch.tensor(3.5),
        "empty": torch.empty(0, 3),
        "parameter": torch.nn.Parameter(torch.ones(2, 2)),
        "epoch": 3, "lr": 1e-3, "one": 1.0, "inf": float("inf"), "big": 2**62, "negative": -70000,
        "text": 'é "\\\n', "none": None, "yes": True, "bytes": b"\x00\xff" * 50,
        "tuple": (1, (2.5, "x")), "keys": {0: {"step": 1}, 1.5: 2, (1, 2): 3, None: 4},
        "size": torch.Size([2, 3]), "dtype": torch.bfloat16, "device": torch.device("cuda", 1),
        "ordered": collections.OrderedDict(b=1, a=2), "nothing": {},
    }  # fmt: skip


def run(*words, code=0):
    done = subprocess.run([COMMAND, "ckpt", *map(str, words)], capture_output=True, text=True,
                          timeout=60)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


def inspect(path, *words):
    return {line["name"]: line for line in map(json.loads, run(
        "inspect", path, "--json", *words).splitlines())}


def test_torch_file(tmp_path):
    expected = state()
    torch.save(expected, tmp_path / "a.pt")
    loaded = stoker.load(tmp_path / "a.pt")
    same(expected, loaded)
    found = inspect(tmp_path / "a.pt", "--deep")
    assert found["views.2"]["shape"] == [6, 4] and found["views.2"]["max"] == 23
    assert found["model.0.weight"]["dtype"] == "F32"
    head = run("inspect", tmp_path / "a.pt").splitlines()[0]
    assert '"epoch":3' in head and '"optimizer.param_groups.0.lr":0.001' in head
    run("diff", tmp_path / "a.pt", tmp_path / "a.pt")


def test_flat_files(tmp_path):
    """A state dict, one tensor, and the files of older versions and of a buffer."""
    weights = torch.nn.Linear(3, 2).state_dict()
    torch.save(weights, tmp_path / "model.bin")
    assert set(inspect(tmp_path / "model.bin")) == {"weight", "bias"}
    same(weights, stoker.load(tmp_path / "model.bin"))
    torch.save(torch.arange(3), tmp_path / "one")
    same(torch.arange(3), stoker.load(tmp_path / "one"))
    torch.save(weights, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    assert "before version 1.6" in run("inspect", tmp_path / "old.pt", code=1)


class Evil:
    def __reduce__(self):
        return os.system, ("touch /tmp/stoker-test-evil",)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (Evil(), "system"),
        (argparse.Namespace(a=1), "argparse.Namespace"),
        ({1, 2}, "EMPTY_SET"),
        (2**70, "more than 64 bits"),
        (torch.ones(2, dtype=torch.complex128), "ComplexDoubleStorage"),
        (torch.eye(2).to_sparse(), "_rebuild_sparse_tensor"),
        ({"a.b": torch.ones(1), "a": {"b": torch.ones(1)}}, "'a.b'"),
    ],
)
def test_refused_by_name(tmp_path, value, words):
    torch.save({"x": value} if words != "'a.b'" else value, tmp_path / "a.pt", pickle_protocol=4)
    with pytest.raises(stoker.UnsupportedError) as caught:
        stoker.load(tmp_path / "a.pt")
    assert words in str(caught.value) and "a.pt" in str(caught.value)
    assert not os.path.exists("/tmp/stoker-test-evil")


def members(path):
    with zipfile.ZipFile(path) as archive:
        return {entry.filename: archive.read(entry) for entry in archive.infolist()}


def rewrite(path, parts, method=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in parts.items():
            archive.writestr(name, data)


def test_hostile_archives(tmp_path):
    path = tmp_path / "a.pt"
    torch.save({"w": torch.arange(4.0), "v": torch.ones(2)}, path)
    good, parts = path.read_bytes(), members(path)
    rewrite(path, parts)
    same({"w": torch.arange(4.0), "v": torch.ones(2)}, stoker.load(path))
    rewrite(path, parts, zipfile.ZIP_DEFLATED)
    with pytest.raises(stoker.UnsupportedError, match="compressed"):
        stoker.load(path)
    for name in ("a/data.pkl", "a/data/0"):
        rewrite(path, {key: data for key, data in parts.items() if key != name})
        with pytest.raises((stoker.FormatError, stoker.MissingError)):
            stoker.load(path)
    rewrite(path, parts | {"a/data/0": b"short"})
    with pytest.raises(stoker.TruncatedError, match="a/data/0"):
        stoker.load(path)
    rewrite(path, parts | {"a/byteorder": b"big"})
    with pytest.raises(stoker.UnsupportedError, match="big-endian"):
        stoker.load(path)
    # The directory has two members at one offset.
    data = bytearray(good)
    at = data.rfind(b"PK\x01\x02")
    second = data.rfind(b"PK\x01\x02", 0, at)
    data[at + 42 : at + 46] = data[second + 42 : second + 46]
    path.write_bytes(data)
    with pytest.raises(stoker.FormatError):
        stoker.load(path)
    data = bytearray(good)
    data[good.find(b"storage")] ^= 1  # in data.pkl: its checksum
    path.write_bytes(data)
    with pytest.raises(stoker.CorruptError, match="data.pkl"):
        stoker.load(path)


def test_truncated_and_flipped(tmp_path):
    """Every prefix, and a flip of every byte outside of the storages: an error or a result."""
    path = tmp_path / "a.pt"
    torch.save({"w": torch.arange(4.0), "v": [1, "x", (2.5,)]}, path)
    good = path.read_bytes()
    for cut in range(0, len(good), 7):
        path.write_bytes(good[:cut])
        with pytest.raises(stoker.Error):
            stoker.load(path)
    for at in range(0, len(good), 3):
        data = bytearray(good)
        data[at] ^= 0x41
        path.write_bytes(data)
        try:
            stoker.load(path)
        except stoker.Error:
            pass


@pytest.mark.parametrize(
    "body",
    [
        b"(" * 100000 + b"t" * 100000,  # deep
        b"]" * 5000 + b"a" * 4999,
        # 2^60 empty tuples by 60 shared pairs
        b")" + b"".join(b"q%c" % i + b"h%ch%c\x86" % (i, i) for i in range(1, 61)),
        b"]q\x01h\x01a",  # contains itself
        b"r\xff\xff\xff\x7f",
        b"Nr\xff\xff\xff\x7f",
        b"X\xff\xff\xff\x7f",
        b"\x8e" + b"\xff" * 8,
        b"h\x05",
        b"t",
        b"N" * 3 + b"s",
        b"}(NNNu",
        b"ctorch\nSize\n(K\x01tb",
        b"",
    ],
)
def test_hostile_pickles(tmp_path, body):
    rewrite(tmp_path / "a.pt", {"a/data.pkl": b"\x80\x02" + body + b"."})
    with pytest.raises(stoker.Error):
        stoker.load(tmp_path / "a.pt")


def storage(key, count):
    """An object that pickles as a storage of torch."""
    return ("storage", torch.FloatStorage, key, "cpu", count)


def handmade(path, offset, size, stride, count=4):
    """A file with one tensor of a storage of 4 numbers."""
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, 2)
    marker = object()

    class Tensor:
        def __reduce__(self):
            arguments = (marker, offset, size, stride, False, collections.OrderedDict())
            return torch._utils._rebuild_tensor_v2, arguments

    class Own(pickle._Pickler):
        def persistent_id(self, value):
            return storage("0", count) if value is marker else None

    del pickler
    Own(buffer, 2).dump({"w": Tensor()})
    rewrite(path, {"a/data.pkl": buffer.getvalue(), "a/data/0": struct.pack("<4f", 1, 2, 3, 4)})


@pytest.mark.parametrize(
    ("offset", "size", "stride"),
    [
        (0, (5,), (1,)), (1, (4,), (1,)), (0, (2, 2), (3, 1)), (-1, (1,), (1,)), (0, (-1,), (1,)),
        (0, (2,), (-1,)), (2**62, (2,), (1,)), (0, (2**40, 2**40), (0, 0)), (0, (2,), (2**63 - 1,)),
        (0, (1,) * 33, (1,) * 33), (0, (2,), (1, 1)),
    ],
)  # fmt: skip
def test_tensor_outside_of_its_storage(tmp_path, offset, size, stride):
    handmade(tmp_path / "a.pt", 1, (3,), (1,))
    same({"w": torch.tensor([2.0, 3.0, 4.0])}, stoker.load(tmp_path / "a.pt"))
    handmade(tmp_path / "a.pt", offset, size, stride)
    with pytest.raises(stoker.FormatError, match="w"):
        stoker.load(tmp_path / "a.pt")


def dcp_state():
    torch.manual_seed(1)
    model = torch.nn.Linear(40, 30)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(2, 40)).sum().backward()
    optimizer.step()
    return {
        "model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3,
        "list": [1, torch.arange(3), "x"], "empty": torch.empty(0, 2),
    }  # fmt: skip


def test_dcp_folder(tmp_path):
    expected = dcp_state()
    dcp.save(expected, checkpoint_id=tmp_path / "dcp", no_dist=True)
    found = inspect(tmp_path / "dcp", "--deep")
    assert found["model.weight"]["shape"] == [30, 40]
    assert found["model.weight"]["max"] == pytest.approx(expected["model"]["weight"].max().item())
    loaded = stoker.load(tmp_path / "dcp")
    assert set(loaded) == set(expected) and set(loaded["model"]) == {"weight", "bias"}
    same(expected["model"]["weight"], loaded["model"]["weight"])
    same(expected["list"], loaded["list"])
    assert loaded["epoch"] == 3
    assert loaded["optimizer"]["param_groups"][0]["lr"] == 1e-3
    (data,) = (tmp_path / "dcp").glob("*.distcp")
    good = data.read_bytes()
    data.write_bytes(good[:-100])
    with pytest.raises(stoker.TruncatedError, match="distcp"):
        stoker.load(tmp_path / "dcp")
    data.unlink()
    with pytest.raises(stoker.MissingError, match="distcp"):
        stoker.load(tmp_path / "dcp")


def test_dcp_metadata_damage(tmp_path):
    dcp.save({"w": torch.arange(6), "e": 1}, checkpoint_id=tmp_path, no_dist=True)
    path = tmp_path / ".metadata"
    good = path.read_bytes()
    for at in range(0, len(good), 2):
        data = bytearray(good)
        data[at] ^= 0x15
        path.write_bytes(data)
        try:
            stoker.load(tmp_path)
        except stoker.Error:
            pass
    metadata = pickle.loads(good)
    for change in ("../x.distcp", "/etc/passwd", "gone.distcp"):
        other = pickle.loads(good)
        for info in other.storage_data.values():
            info.relative_path = change
        path.write_bytes(pickle.dumps(other))
        with pytest.raises(stoker.Error):
            stoker.load(tmp_path)
    chunk = metadata.state_dict_metadata["w"].chunks[0]
    metadata.state_dict_metadata["w"].size = torch.Size([7])
    path.write_bytes(pickle.dumps(metadata))
    with pytest.raises(stoker.CorruptError, match="w"):
        stoker.load(tmp_path)
    assert chunk.sizes == torch.Size([6])


RANKS = """
import os, sys, torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=int(sys.argv[3]),
                        world_size=2)
mesh = init_device_mesh("cpu", (2,))
full = torch.arange(35.0).reshape(5, 7)
state = {str(kind): distribute_tensor(full, mesh, [kind])
         for kind in (Shard(0), Shard(1), Replicate())}
dcp.save(state, checkpoint_id=sys.argv[1])
dist.destroy_process_group()
"""


def test_dcp_of_ranks(tmp_path):
    """Rows, columns and copies of a tensor on two ranks."""
    words = [sys.executable, "-c", RANKS, str(tmp_path / "dcp"), str(tmp_path / "meet")]
    jobs = [subprocess.Popen([*words, str(rank)], stderr=subprocess.DEVNULL) for rank in range(2)]
    assert [job.wait(timeout=100) for job in jobs] == [0, 0]
    loaded = stoker.load(tmp_path / "dcp")
    assert len(loaded) == 3
    for value in loaded.values():
        same(torch.arange(35.0).reshape(5, 7), value)


def test_huggingface(tmp_path):
    first, second = {"a": torch.arange(6.0)}, {"b.c": torch.ones(2, 3), "d": torch.zeros(1)}
    stoker.save(first, tmp_path / "model-00001-of-00002.safetensors")
    stoker.save(second, tmp_path / "model-00002-of-00002.safetensors")
    weights = {"a": "model-00001-of-00002.safetensors"}
    weights |= {name: "model-00002-of-00002.safetensors" for name in second}
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 52}, "weight_map": weights}))
    for path in (tmp_path, index):
        assert set(inspect(path)) == {"a", "b.c", "d"}
        assert '"total_size":52' in run("inspect", path)
    assert "all hashes match" in run("verify", tmp_path)
    more = weights | {"e": "model-00002-of-00002.safetensors"}
    index.write_text(json.dumps({"weight_map": more}))
    with pytest.raises(stoker.MissingError, match="'e'"):
        stoker.load(tmp_path)
    index.write_text(json.dumps({"weight_map": weights | {"e": "../x.safetensors"}}))
    with pytest.raises(stoker.FormatError):
        stoker.load(tmp_path)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    index.write_text(json.dumps({"weight_map": weights}))
    with pytest.raises((stoker.MissingError, FileNotFoundError, OSError)):
        stoker.load(tmp_path)


def test_nothing_known(tmp_path):
    (tmp_path / "x.pt").write_bytes(b"hello")
    assert "x.pt" in run("inspect", tmp_path / "x.pt", code=3)
    assert "no committed step" in run("inspect", tmp_path, code=1)
