"""stoker ckpt convert, cp, repair, seal, probe and advise."""

import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import time

import pytest
import stoker

torch = pytest.importorskip("torch")
dcp = pytest.importorskip("torch.distributed.checkpoint")
safetensors = pytest.importorskip("safetensors.torch")

COMMAND = os.environ.get("STOKER_COMMAND", "stoker")


def run(*words, code=0):
    done = subprocess.run([COMMAND, "ckpt", *map(str, words)], capture_output=True, text=True,
                          timeout=100)  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stdout + done.stderr


def tree():
    generator = torch.Generator().manual_seed(3)
    return {
        "model": {
            "w": torch.randn(30, 70, generator=generator),
            "b": torch.randn(7, generator=generator).bfloat16(),
            "t": torch.arange(12.0).reshape(3, 4).t(),
            "f8": torch.arange(6).to(torch.float8_e4m3fn), "u": torch.arange(5).to(torch.uint16),
            "flag": torch.tensor([True, False]), "empty": torch.empty(0, 3),
        },
        "epoch": 3, "lr": 1e-3, "name": "é", "none": None, "list": [1, (2, 2.5), True],
        "bytes": b"\x00\x80\xff", "big": -(2**70), "keys": {0: {"step": 1}, (1, 2): -3},
        "dtype": torch.bfloat16, "device": torch.device("cuda", 1), "inf": float("-inf"),
    }  # fmt: skip


def same(a, b, path=""):
    if isinstance(a, torch.Tensor):
        assert (a.dtype, a.shape) == (b.dtype, b.shape), path
        assert a.contiguous().view(-1).view(torch.uint8).equal(b.view(-1).view(torch.uint8)), path
    elif isinstance(a, dict):
        assert set(a) == set(b), path
        for key in a:
            same(a[key], b[key], f"{path}.{key}")
    elif isinstance(a, (list, tuple)):
        assert type(a) is type(b) and len(a) == len(b), path
        for i, value in enumerate(a):
            same(value, b[i], f"{path}.{i}")
    else:
        assert type(a) is type(b) and a == b, path


def save_steps(path, value, steps=(7,)):
    with stoker.Checkpointer(path) as checkpointer:
        for step in steps:
            checkpointer.save(step, value, metrics={"loss": 1.5})


def test_every_kind(tmp_path):
    """A step to torch, to safetensors and back, to Hugging Face: the same values."""
    value = tree()
    save_steps(tmp_path / "run", value)
    run("convert", tmp_path / "run", tmp_path / "a.pt")
    same(value, torch.load(tmp_path / "a.pt", weights_only=True))
    same(value, torch.load(tmp_path / "a.pt", weights_only=True, mmap=True))
    same(value | {"big": 0}, stoker_without_big(tmp_path, value))
    run("convert", tmp_path / "run", tmp_path / "a.safetensors")
    same(value, stoker.load(tmp_path / "a.safetensors"))
    flat = safetensors.load_file(tmp_path / "a.safetensors")
    same(value["model"]["w"], flat["model.w"])
    run("convert", tmp_path / "a.safetensors", tmp_path / "again", "--to", "stoker")
    same(value, stoker.load(tmp_path / "again"))
    run("convert", tmp_path / "run", tmp_path / "hf", "--to", "hf", "--shard-size", "4096")
    index = json.loads((tmp_path / "hf/model.safetensors.index.json").read_text())
    assert len(set(index["weight_map"].values())) > 1
    same(value["model"]["w"], stoker.load(tmp_path / "hf")["model.w"])
    merged = {}
    for name in set(index["weight_map"].values()):
        merged |= safetensors.load_file(tmp_path / "hf" / name)
    same({f"model.{key}": item for key, item in value["model"].items()}, merged)
    run("diff", tmp_path / "hf", tmp_path / "a.safetensors")


@pytest.mark.skipif(not shutil.which("localedef"), reason="needs localedef")
def test_numbers_under_another_locale(tmp_path):
    """A decimal comma in the process's locale changes no number of a torch file."""
    value = {"lr": 0.5, "eps": 1e-08, "n": 3.0, "w": torch.ones(2)}
    torch.save(value, tmp_path / "a.pt")
    made = subprocess.run(
        ["localedef", "-i", "de_DE", "-f", "UTF-8", tmp_path / "de_DE.UTF-8"], capture_output=True
    )
    if made.returncode != 0:
        pytest.skip("de_DE cannot be made")
    script = (
        "import locale, sys, stoker\n"
        "locale.setlocale(locale.LC_ALL, 'de_DE.UTF-8')\n"
        "value = stoker.load(sys.argv[1] + '/a.pt')\n"
        "print([value[name] for name in ('lr', 'eps', 'n')])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path], env={**os.environ, "LOCPATH": str(tmp_path)},
        capture_output=True, text=True, timeout=100,
    )
    assert done.stdout.strip() == "[0.5, 1e-08, 3.0]", done.stderr


def stoker_without_big(tmp_path, value):
    """What stoker reads of its own torch file; it refuses integers of more than 64 bits."""
    save_steps(tmp_path / "small", value | {"big": 0})
    run("convert", tmp_path / "small", tmp_path / "small.pt", "--json")
    return stoker.load(tmp_path / "small.pt")


def test_foreign_sources(tmp_path):
    value = {"model": torch.nn.Linear(5, 3).state_dict(), "epoch": 4}
    torch.save(value, tmp_path / "a.pt")
    run("convert", tmp_path / "a.pt", tmp_path / "run", "--to", "stoker")
    same(value, stoker.load(tmp_path / "run"))
    dcp.save(value, checkpoint_id=tmp_path / "dcp", no_dist=True)
    run("convert", tmp_path / "dcp", tmp_path / "b.pt")
    loaded = torch.load(tmp_path / "b.pt", weights_only=True)
    same(value, loaded)
    run("convert", tmp_path / "dcp", tmp_path / "hf", "--to", "hf")
    same(value["model"]["bias"], stoker.load(tmp_path / "hf")["model.bias"])
    stoker.save({"x": torch.arange(3)}, tmp_path / "plain.safetensors")
    run("convert", tmp_path / "plain.safetensors", tmp_path / "c.pth")
    same({"x": torch.arange(3)}, torch.load(tmp_path / "c.pth", weights_only=True))


def test_parts_of_ranks_are_joined(tmp_path):
    """A tensor in rows and columns of four ranks, as a Checkpointer of several ranks writes it."""
    full = torch.arange(63.0).reshape(7, 9)
    node = json.dumps({"dict": {"w": {"dtensor": ["w", "F32", [7, 9]]}, "e": 1}})
    native = stoker.Engine()._native
    writer = stoker._stoker.CheckpointWriter(native, os.fsencode(tmp_path / "run"))
    saves = []
    for rank, (row, column) in enumerate([(0, 0), (0, 5), (4, 0), (4, 5)]):
        part = full[row : row + 4 if row == 0 else 7, column : 5 if column == 0 else 9].contiguous()
        item = (f"w@{row},{column}".encode(), "F32", tuple(part.shape), part.data_ptr())
        saves.append((writer.save(3, [item], node, None, rank, 4, "abc", None), part))
    parts = []
    for save, _ in saves:
        while not save.copy(100):
            pass
        while save.next(100)[0]:
            pass
        parts.append(save.part())
    writer.commit(3, "{}", 4, "abc", b"".join(parts))
    for save, _ in saves:
        save.close()
    writer.close()
    run("convert", tmp_path / "run", tmp_path / "a.pt")
    same({"w": full, "e": 1}, torch.load(tmp_path / "a.pt", weights_only=True))
    run("convert", tmp_path / "run", tmp_path / "a.safetensors")
    same({"w": full, "e": 1}, stoker.load(tmp_path / "a.safetensors"))
    run("cp", tmp_path / "run", tmp_path / "other")
    assert len(list((tmp_path / "other/step-0000000003").iterdir())) == 5
    assert "all hashes match" in run("verify", tmp_path / "other")


def test_bounded_memory(tmp_path):
    """400 MB are converted with less memory than that."""
    stoker.save({"w": torch.zeros(50_000_000, dtype=torch.float64)}, tmp_path / "a.safetensors")
    script = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True);"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    for target in ("b.pt", "c.safetensors"):
        words = ["ckpt", "convert", tmp_path / "a.safetensors", tmp_path / target, "--json"]
        done = subprocess.run([sys.executable, "-c", script, COMMAND, *words], capture_output=True,
                              timeout=100, check=True)  # fmt: skip
        assert (tmp_path / target).stat().st_size > 400_000_000
        (tmp_path / target).unlink()
        assert int(done.stdout.splitlines()[-1]) < 330_000


def test_bad_conversions(tmp_path):
    save_steps(tmp_path / "run", {"w": torch.ones(3)})
    assert "--to is not valid" in run("convert", tmp_path, tmp_path / "x", "--to", "gguf", code=2)
    assert "read-only" in run("convert", tmp_path / "run", "http://host/a.pt", code=1)
    file = next((tmp_path / "run/step-0000000007").glob("*.safetensors"))
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    for target in ("a.pt", "a.safetensors"):
        assert "does not match" in run("convert", tmp_path / "run", tmp_path / target, code=1)
        assert not (tmp_path / target).exists()
    assert "does not match" in run("cp", tmp_path / "run", tmp_path / "copy", code=1)
    assert not list(tmp_path.glob("copy/step-*")) and not list(tmp_path.glob("copy/.*.part"))


def test_copy_and_repair(tmp_path):
    value = {"w": torch.arange(5_000_000), "e": 1}
    save_steps(tmp_path / "fast", value, (7, 9))
    run("cp", tmp_path / "fast", tmp_path / "slow", "--step", "7")
    run("cp", tmp_path / "fast", tmp_path / "slow")
    step = pathlib.Path("step-0000000009")
    for name in ("stoker.checkpoint.json", "shard-00000.safetensors"):
        copied = (tmp_path / "slow" / step / name).read_bytes()
        assert copied == (tmp_path / "fast" / step / name).read_bytes()
    assert "committed already" in run("cp", tmp_path / "fast", tmp_path / "slow", code=3)
    file = tmp_path / "slow" / step / "shard-00000.safetensors"
    good = file.read_bytes()
    damages = [
        lambda: file.unlink(),
        lambda: file.write_bytes(good[:-5]),
        lambda: file.write_bytes(good[:30_000_000] + b"x" + good[30_000_001:]),
        lambda: (tmp_path / "slow" / step / "stoker.checkpoint.json").unlink(),
        lambda: shutil.rmtree(tmp_path / "slow" / step),
    ]
    for damage in damages:
        damage()
        report = json.loads(run("repair", tmp_path / "slow", "--from", tmp_path / "fast", "--json"))
        assert report["files"] >= 1
        assert "all hashes match" in run("verify", tmp_path / "slow", "--step", "9")
        same(value, stoker.load(tmp_path / "slow"))
    report = json.loads(run("repair", tmp_path / "slow", "--from", tmp_path / "fast", "--json"))
    assert report["files"] == 0
    assert "--from" in run("repair", tmp_path / "slow", code=2)


def test_seal(tmp_path):
    dcp.save({"w": torch.arange(400_000), "e": 1}, checkpoint_id=tmp_path / "dcp", no_dist=True)
    run("seal", tmp_path / "dcp")
    assert "match the seal" in run("verify", tmp_path / "dcp")
    (data,) = (tmp_path / "dcp").glob("*.distcp")
    good = data.read_bytes()
    data.write_bytes(good[:2_000_000] + b"\x7f" + good[2_000_001:])
    text = run("verify", tmp_path / "dcp", code=1)
    assert "do not match the seal" in text and data.name in text and "1048576" in text
    data.write_bytes(good[:-1])
    assert "another length" in run("verify", tmp_path / "dcp", code=1)
    data.unlink()
    assert "missing" in run("verify", tmp_path / "dcp", code=1)
    data.write_bytes(good)
    seal = tmp_path / "dcp/stoker.seal"
    text = seal.read_bytes()
    for at in range(0, len(text), 5):
        seal.write_bytes(text[:at] + bytes([text[at] ^ 1]) + text[at + 1 :])
        if at % 100 == 0:
            run("verify", tmp_path / "dcp", code=1)
    torch.save(torch.arange(9), tmp_path / "a.pt")
    run("seal", tmp_path / "a.pt")
    assert "match the seal" in run("verify", tmp_path / "a.pt", "--bandwidth", "100M")


def test_probe(tmp_path):
    run("probe", tmp_path / "x", code=3)  # a wrong path is not made: it may be on another mount
    assert not list(tmp_path.iterdir())
    (tmp_path / "x").mkdir()
    lines = [json.loads(line) for line in run("probe", tmp_path / "x", "--json").splitlines()]
    assert len(lines) >= 9 and all(line["passed"] for line in lines)
    assert list((tmp_path / "x").iterdir()) == []


def test_advise():
    """Young (1974) and Daly (2006) for a save of 60 s on 1,000 nodes that fail once in 5 years."""
    year = 365 * 86400
    report = json.loads(run("advise", "--save-seconds", 60, "--mtbf", 5 * year, "--nodes", 1000,
                            "--json"))  # fmt: skip
    mtbf = 5 * year / 1000
    ratio = 60 / (2 * mtbf)
    assert report["young_seconds"] == pytest.approx(math.sqrt(2 * 60 * mtbf))
    assert report["interval_seconds"] == pytest.approx(
        math.sqrt(2 * 60 * mtbf) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - 60
    )
    assert "--mtbf" in run("advise", "--save-seconds", 60, code=2)


def test_statistics_and_page(tmp_path):
    """The histogram has all finite numbers; the page has a row for each tensor, escaped."""
    values = torch.cat([torch.linspace(0, 16, 160), torch.tensor([float("nan"), float("inf")])])
    save_steps(tmp_path / "run", {"x<b>": values, "same": torch.ones(3)})
    lines = run("inspect", tmp_path / "run", "--stats", "--json").splitlines()
    found = {line["name"]: line for line in map(json.loads, lines)}
    assert found["x<b>"]["histogram"] == [10] * 16
    assert (found["x<b>"]["nan"], found["x<b>"]["inf"]) == (1, 1)
    assert found["same"]["histogram"] == [3] + [0] * 15
    text = run("inspect", tmp_path / "run", "--stats")
    assert "\u2588" * 16 in text
    run("inspect", tmp_path / "run", "--stats", "--html", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert page.count("<tr>") == 3 and "x&lt;b&gt;" in page and "<svg" in page
    assert "cannot write" in run("inspect", tmp_path / "run", "--html", tmp_path / "no/x", code=3)


def test_verify_slowly(tmp_path):
    save_steps(tmp_path / "run", {"w": torch.ones(10_000_000), "v": torch.ones(3)})
    start = time.monotonic()
    assert "all hashes match" in run("verify", tmp_path / "run", "--bandwidth", "20M")
    assert time.monotonic() - start > 1.5


@pytest.fixture
def store(monkeypatch):
    write_server = pytest.importorskip("write_server")
    server = write_server.serve()
    write_server.lead_to(server, monkeypatch)
    yield server
    server.close()


def test_object_stores(tmp_path, store):
    """Checkpoints of other tools are read from a store; conversions and copies go to one."""
    value = {"w": torch.arange(2_000_000.0), "e": 1}
    torch.save(value, tmp_path / "a.pt")
    dcp.save(value, checkpoint_id=tmp_path / "dcp", no_dist=True)
    for path in (tmp_path / "a.pt", *(tmp_path / "dcp").iterdir()):
        key = path.name if path.name == "a.pt" else f"dcp/{path.name}"
        store.objects["b", key] = path.read_bytes()
    same(value, stoker.load("s3://b/a.pt"))
    same(value, stoker.load("s3://b/dcp"))
    run("convert", "s3://b/dcp", "s3://b/hf", "--to", "hf", "--shard-size", "5M")
    same({"w": value["w"]}, stoker.load("s3://b/hf"))
    run("convert", "s3://b/a.pt", "s3://b/one.safetensors")
    same(value, stoker.load("s3://b/one.safetensors"))
    run("convert", "s3://b/a.pt", "s3://b/run", "--to", "stoker")
    run("cp", "s3://b/run", tmp_path / "local")
    run("cp", tmp_path / "local", "s3://b/other/run")
    same(value, stoker.load("s3://b/other/run"))
    (key,) = [key for _, key in store.objects if key.startswith("other/") and "shard" in key]
    del store.objects["b", key]
    run("repair", "s3://b/other/run", "--from", tmp_path / "local")
    assert "all hashes match" in run("verify", "s3://b/other/run")
    run("seal", "s3://b/dcp")
    assert "match the seal" in run("verify", "s3://b/dcp")
    large = {f"w{i}": torch.arange(i * 1_700_000, dtype=torch.int32) for i in range(1, 6)}
    for name, tree in (("large", large), ("small", value)):  # 102 MB: seven parts; one request
        save_steps(tmp_path / name, tree)
        run("convert", tmp_path / name, tmp_path / f"{name}.pt")
        run("convert", tmp_path / name, f"s3://b/{name}.pt")
        assert store.objects["b", f"{name}.pt"] == (tmp_path / f"{name}.pt").read_bytes()
        same(tree, torch.load(tmp_path / f"{name}.pt", weights_only=True))
    assert not store.uploads
    lines = run("probe", "s3://b/probed").splitlines()
    assert len(lines) == 5 and all(line.startswith("passed") for line in lines)
    assert not [key for _, key in store.objects if key.startswith("probed")]
