"""`stoker info`, `ls` and `bench data` of token files and of text."""

from __future__ import annotations

import json
import subprocess

import pytest
from test_cli import COMMAND

numpy = pytest.importorskip("numpy")
pytestmark = pytest.mark.skipif(COMMAND is None, reason="the stoker command is not built")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("command")
    numpy.save(root / "a.npy", numpy.arange(5000, dtype="uint16"))
    numpy.arange(3000, dtype="uint32").tofile(root / "raw.bin")
    (root / "b.jsonl").write_text('{"text": "a"}\n' * 30)
    (root / "c.jsonl").write_text('{"text": "a"}\n' * 12)
    return root


def run(*words, code=0):
    done = subprocess.run([COMMAND, *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


def test_info(folder):
    reported = json.loads(run("info", "--json", folder / "a.npy"))
    assert (reported["kind"], reported["files"], reported["tokens"]) == ("tokens", 1, 5000)
    reported = json.loads(run("info", "--json", "--stored", "uint32", folder / "raw.bin"))
    assert reported["tokens"] == 3000
    reported = json.loads(run("info", "--json", folder / "b.jsonl", folder / "c.jsonl"))
    assert (reported["kind"], reported["files"], reported["lines"]) == ("text", 2, 42)
    assert json.loads(run("info", "--json", f"{folder}/{{b,c}}.jsonl"))["lines"] == 42
    assert "tokens      5,000" in run("info", folder / "a.npy")
    assert "lines       30" in run("info", folder / "b.jsonl")
    assert "dtype" in run("info", folder / "raw.bin", code=2)


def test_ls(folder):
    rows = [json.loads(line) for line in run("ls", "--json", f"{folder}/*.jsonl").splitlines()]
    assert [row["lines"] for row in rows] == [30, 12]
    assert "a.npy  5,000 tokens" in run("ls", folder / "a.npy")


def test_bench(folder):
    reported = json.loads(run("bench", "data", "--json", "--seconds", "0.2", folder / "a.npy"))
    assert reported["windows"] > 0 and reported["tokens_per_second"] > 0
    reported = json.loads(run("bench", "data", "--json", "--epochs", "2", folder / "b.jsonl"))
    assert reported["lines"] == 60 and reported["bytes_per_second"] > 0


def test_errors_name_the_file(folder, tmp_path):
    (tmp_path / "x.npy").write_bytes(b"PAR1" + bytes(100))
    reported = run("info", "--stored", "uint16", tmp_path / "x.npy", code=1)
    assert "Parquet" in reported and "x.npy" in reported
    assert "gone.npy" in run("ls", tmp_path / "gone.npy", code=3)
