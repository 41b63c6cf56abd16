"""stoker ckpt: its output for steps in folders and for damaged steps."""

import json
import math
import subprocess
import tarfile

import numpy
import pytest
import stoker
from test_cli import COMMAND


def command(*arguments):
    return subprocess.run([COMMAND, *arguments], capture_output=True, text=True, timeout=60)


def words(*arguments, status=0):
    done = command("ckpt", *map(str, arguments))
    assert done.returncode == status, done.stderr
    return done.stdout


def lines(*arguments, status=0):
    return [json.loads(line) for line in words(*arguments, "--json", status=status).splitlines()]


@pytest.fixture
def run(tmp_path):
    with stoker.Checkpointer(tmp_path / "run") as ckpt:
        for step in range(1, 6):
            weight = numpy.arange(600_000, dtype="f4")
            weight[7] += 10 * step
            state = {"weight": weight, "half": numpy.array([1, numpy.nan, -numpy.inf], "f2")}
            state["bias"] = numpy.array([step, -step], "i8")
            ckpt.save(step, state, metrics={"loss": 10.0 - step}, wait=True)
    return tmp_path / "run"


def test_ls_and_verify(run):
    found = lines("ls", run)
    assert [step["step"] for step in found] == [1, 2, 3, 4, 5]
    assert {step["status"] for step in found} == {"committed"}
    assert json.loads(found[0]["values"]) == {"loss": 9.0}
    assert "committed" in words("ls", run)
    assert "all hashes match" in words("verify", run)
    assert len(lines("verify", "--all", run)) == 5
    assert lines("verify", "--step", 2, run)[0]["path"].endswith("step-0000000002")
    shard = run / "step-0000000004" / "shard-00000.safetensors"
    with open(shard, "r+b") as file:
        file.seek(-5, 2)
        file.write(b"?")
    done = command("ckpt", "verify", "--step", "4", str(run))
    assert done.returncode == 1
    assert "does not match its hash" in done.stderr and "shard-00000" in done.stderr
    done = command("ckpt", "verify", "--all", str(run))
    assert done.returncode == 1 and done.stdout.count("all hashes match") == 4
    (run / "step-0000000005" / "shard-00000.safetensors").unlink()
    assert lines("ls", run)[4]["status"] == "damaged"
    assert "missing" in lines("ls", run)[4]["reason"]


def test_inspect(run):
    found = {tensor["name"]: tensor for tensor in lines("inspect", "--deep", run)}
    assert found["weight"]["dtype"] == "F32" and found["weight"]["shape"] == [600_000]
    assert found["weight"]["min"] == 0 and found["weight"]["max"] == 599_999
    assert math.isclose(found["weight"]["mean"], 299_999.5 + 50 / 600_000)
    assert found["half"]["nan"] == 1 and found["half"]["inf"] == 1 and found["half"]["mean"] == 1
    assert found["bias"]["min"] == -5 and found["bias"]["max"] == 5
    assert "1 NaN, 1 Inf" in words("inspect", "--deep", run)
    assert "min" not in lines("inspect", run)[0]
    file = run / "step-0000000001" / "shard-00000.safetensors"
    assert {tensor["name"] for tensor in lines("inspect", file)} == set(found)


def test_diff(run):
    a, b = run / "step-0000000001", run / "step-0000000004"
    assert words("diff", a, a) == ""
    found = lines("diff", a, b, status=1)
    assert [(row["name"], row["max_change"], row["changed"]) for row in found] == [
        ("weight", 30.0, 1),
        ("bias", 3.0, 2),
    ]
    stoker.save({"weight": numpy.zeros(3, "f4"), "new": numpy.zeros(1)}, run / "x.safetensors")
    found = {row["name"]: row["what"] for row in lines("diff", a, run / "x.safetensors", status=1)}
    assert found == {
        "weight": "other shape or dtype",
        "bias": "only in A",
        "half": "only in A",
        "new": "only in B",
    }


def test_pin_rm_gc(run):
    words("pin", "--step", 2, run)
    assert lines("ls", run)[1]["pinned"]
    assert "is pinned" in command("ckpt", "rm", "--step", "2", str(run)).stderr
    gone = ["--keep-last", 1, "--keep-every", 3, "--keep-best", "loss:1"]
    assert lines("gc", *gone, "--dry-run", run)[0]["steps_removed"] == 2
    assert len(lines("ls", run)) == 5
    assert lines("gc", *gone, run)[0]["steps_left"] == 3
    assert [step["step"] for step in lines("ls", run)] == [2, 3, 5]
    words("unpin", "--step", 2, run)
    words("rm", "--step", 2, run)
    words("rm", "--step", 9, run, status=3)


def test_usage(run, tmp_path):
    for arguments in (
        [],
        ["look", run],
        ["ls"],
        ["diff", run],
        ["rm", run],
        ["verify", "--step", "x", run],
        ["gc", "--keep-every", 2, run],
        ["gc", "--keep-last", 1, "--keep-best", "loss", run],
    ):
        words(*arguments, status=2)
    words("ls", tmp_path / "none", status=3)
    (tmp_path / "empty").mkdir()
    words("verify", tmp_path / "empty", status=1)


def failure(*arguments, status):
    done = command("ckpt", *map(str, arguments))
    assert done.returncode == status and not done.stdout, done
    return done.stderr


def test_places_without_steps(tmp_path):
    """The error names what the path is, and what to do."""
    (tmp_path / "empty").mkdir()
    for action in (["ls"], ["ls", "--json"], ["verify", "--all"]):
        said = failure(*action, tmp_path / "empty", status=1)
        assert "there are no steps" in said and "empty" in said
    member = tmp_path / "member.txt"
    member.write_text("x")
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        tar.add(member)
    (tmp_path / "a.gguf").write_bytes(b"GGUF" + bytes(100))
    (tmp_path / "a.pkl").write_bytes(b"\x80\x04N.")
    for name, text in (
        ("a.tar", "tar archive"),
        ("a.gguf", "GGUF"),
        ("a.pkl", "pickle"),
        ("member.txt", "no checkpoint"),
    ):
        for action in ("inspect", "verify"):
            said = failure(action, tmp_path / name, status=3)
            assert text in said and name in said and "Not a directory" not in said
    for action in (["ls"], ["gc", "--keep-last", 1]):
        assert "a file, not a folder" in failure(*action, tmp_path / "a.tar", status=3)
