"""A loader's quarantine= file: it appends to its own lists, and changes no other file."""

from __future__ import annotations

import json

import make
import pytest
import stoker


@pytest.fixture
def tars(tmp_path):
    members = [(f"{n:04}.cls", b"%d" % n if n != 7 else b"x") for n in range(20)]
    (tmp_path / "data").mkdir()
    make.tar(tmp_path / "data" / "a.tar", members)
    return tmp_path / "data"


def _run(source, path):
    fields = {"cls": stoker.Label()}
    with stoker.Loader(source, 4, fields=fields, on_error="skip", quarantine=path) as loader:
        for _ in loader:
            pass


@pytest.mark.parametrize(
    "text",
    [
        b'{"a": 1}',
        b"my notes",
        b"one\ntwo",
        b"one\n",
        b'{"row": 1}\n',
        b'{"shard": "a"}\nnotes',
        b"x" * 100_000,
        b'{"shard": "a"}' + b"x" * 100_000,
    ],
)
def test_another_file(tars, tmp_path, text):
    path = make.write(tmp_path / "config.json", text)
    with pytest.raises(stoker.ArgumentError, match="config.json"):
        _run(tars, path)
    assert path.read_bytes() == text


@pytest.mark.parametrize("rest", ["", "{", '{"shard": "b'])
def test_own_list(tars, tmp_path, rest):
    """Lines of an earlier run are kept; the partial line that a kill left is removed."""
    path = tmp_path / "bad.jsonl"
    _run(tars, path)
    once = path.read_text()
    assert json.loads(once)["key"] == "0007"
    path.write_text(once + rest)
    _run(tars, path)
    assert path.read_text() == once + once
    path.write_text(rest)
    _run(tars, path)
    assert path.read_text() == once
