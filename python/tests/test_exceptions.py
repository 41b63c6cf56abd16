"""Exceptions of conversions, of the caller's functions and of read-ahead: each is raised unchanged,
at its batch, and loses no batch: the state is that of the last batch the loop received."""

from __future__ import annotations

import json
import subprocess
import sys

import make
import numpy as np
import pytest
import stoker


class Own(Exception):
    pass


@pytest.fixture
def tars(tmp_path):
    """60 samples; the JSON of sample 21 is not JSON."""
    members = []
    for number in range(60):
        text = json.dumps({"n": number}) if number != 21 else "{no"
        members += [(f"{number:04}.json", text.encode()), (f"{number:04}.cls", b"%d" % number)]
    make.tar(tmp_path / "a.tar", members)
    return tmp_path


def _loader(source, **options):
    fields = {"id": "__id__", "n": stoker.Json("json", check=False)}
    return stoker.Loader(source, 4, fields=fields, shuffle="none", threads=2, **options)


def test_conversion_fails(tars):
    """The batch that cannot be converted is returned again, in this loop and from the state."""
    with _loader(tars) as loader:
        batches = iter(loader)
        before = [next(batches)["id"].tolist() for _ in range(5)]
        assert before[-1] == [16, 17, 18, 19]
        for _ in range(3):
            with pytest.raises(ValueError):
                next(batches)
            state = loader.state_dict()
            assert state["position"] == 20
        with _loader(tars) as other:
            other.load_state_dict(state)
            with pytest.raises(ValueError):
                next(iter(other))
        fingerprint = state["fingerprint"]
    with _loader(tars) as loader:
        batches = iter(loader)
        for _ in range(5):
            next(batches)
        assert loader.state_dict()["fingerprint"] == fingerprint


def _tokens(tmp_path):
    np.arange(4000, dtype=np.uint16).tofile(tmp_path / "t.bin")
    return tmp_path / "t.bin"


def _text(tmp_path, rows=200):
    path = tmp_path / "text.jsonl"
    path.write_text("".join(json.dumps({"text": f"{n} " * 20}) + "\n" for n in range(rows)))
    return path


def _kinds(tmp_path, transform):
    (tmp_path / "d").mkdir(exist_ok=True)
    make.tar(tmp_path / "d" / "a.tar", [(f"{n:04}.cls", b"%d" % n) for n in range(60)])
    options = {"shuffle": "none", "transform": transform, "output": "numpy"}
    yield stoker.Loader(tmp_path / "d", 4, fields={"id": "__id__"}, threads=2, **options)
    yield stoker.TokenLoader(_tokens(tmp_path), 4, 16, stored="uint16", **options)
    yield stoker.TextLoader(_text(tmp_path), _encode, 4, 16, rows="padded", **options)


def _encode(texts):
    return [[int(word) for word in text.split()] for text in texts]


def _flat(batch):
    if isinstance(batch, dict):
        batch = batch["id"]
    return np.asarray(batch[0] if isinstance(batch, tuple) else batch).tolist()


@pytest.mark.parametrize("kind", [0, 1, 2])
@pytest.mark.parametrize("error", [Own, StopIteration, KeyboardInterrupt, MemoryError])
def test_transform(tmp_path, kind, error):
    """The third call fails once: every batch is returned, in order, and the iteration continues."""
    calls = []

    def transform(batch):
        calls.append(1)
        if len(calls) == 3:
            raise error("mine")
        return batch

    plain = list(map(_flat, list(_kinds(tmp_path, None))[kind]))
    loader = list(_kinds(tmp_path, transform))[kind]
    batches, got = iter(loader), []
    while True:
        try:
            got.append(_flat(next(batches)))
        except StopIteration:
            break
        except BaseException as raised:
            cause = raised.__cause__ if error is StopIteration else raised
            assert isinstance(cause, error) and cause.args == ("mine",)
            assert error is not StopIteration or isinstance(raised, RuntimeError)
            fingerprint = loader.state_dict()["fingerprint"]
            assert loader.state_dict()["position"] == 8
    assert got == plain and len(calls) == len(plain) + 1
    again = list(_kinds(tmp_path, None))[kind]
    iterator = iter(again)
    next(iterator), next(iterator)
    assert again.state_dict()["fingerprint"] == fingerprint


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_a_transform_without_a_return(tmp_path, kind):
    """None from transform is no end of the epoch: it is an error, and the batch comes again."""
    results = [None]

    def transform(batch):
        return results.pop() if results else batch

    plain = list(map(_flat, list(_kinds(tmp_path, None))[kind]))
    loader = list(_kinds(tmp_path, transform))[kind]
    with pytest.raises(stoker.ArgumentError, match="returned None"):
        next(iter(loader))
    assert loader.state_dict()["position"] == 0
    assert [_flat(batch) for batch in loader] == plain


@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("where", ["tokenizer", "field"])
@pytest.mark.parametrize("error", [Own, StopIteration])
def test_text_functions(tmp_path, threads, where, error):
    """A tokenizer or field= that fails at document 41: 10 good batches of 4 before, for any number
    of threads."""

    def field(document):
        if where == "field" and document["text"].startswith("41 "):
            raise error("mine")
        return document["text"]

    def tokenizer(texts):
        if where == "tokenizer" and any(text.startswith("41 ") for text in texts):
            raise error("mine")
        return _encode(texts)

    with stoker.TextLoader(
        _text(tmp_path), tokenizer, 4, field=field, shuffle="none", threads=threads
    ) as loader:
        batches, good = iter(loader), 0
        with pytest.raises((error, RuntimeError)) as raised:
            for _ in batches:
                good += 1
        cause = raised.value.__cause__ if error is StopIteration else raised.value
        assert isinstance(cause, error) and cause.args == ("mine",)
        assert good == 10 and loader.state_dict()["position"] == 40


class _Failing:
    """A native loader whose 31st batch cannot be read, twice."""

    def __init__(self, native):
        self._wrapped, self.left = native, 2

    def __getattr__(self, name):
        return getattr(self._wrapped, name)

    def next(self):
        if self._wrapped.position()[1] == 120 and self.left > 0:
            self.left -= 1
            raise stoker.CorruptError("damaged", "here", "no advice")
        return self._wrapped.next()


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_read_ahead_fails(tmp_path, threads):
    """Documents that cannot be read: the batches before them are returned first, for any number of
    threads, and none is lost when they can be read again."""
    options = {"shuffle": "none", "threads": threads, "ahead": 16}
    with stoker.TextLoader(_text(tmp_path), _encode, 4, **options) as loader:
        whole = [[list(row) for row in inputs] for inputs, _ in loader]
    with stoker.TextLoader(_text(tmp_path), _encode, 4, **options) as loader:
        loader._native._native = _Failing(loader._native._native)
        batches, got, places = iter(loader), [], []
        while True:
            try:
                got.append([list(row) for row in next(batches)[0]])
            except StopIteration:
                break
            except stoker.CorruptError:
                places.append(len(got))
                assert loader.state_dict()["position"] == 120
    assert got == whole and places == [30, 30]


SLOW = """
import hashlib, os, signal, sys, threading
import stoker
from stoker import _stoker

def slow(*words, **options):  # as a call of the library: Python sees no signal before its end
    hashlib.pbkdf2_hmac("sha256", b"", b"", 40_000_000)
    ended.append(True)

setattr(_stoker, sys.argv[2], slow)
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
ended = []
try:
    stoker.TokenLoader(sys.argv[1], 1, 4, stored="uint8")
except KeyboardInterrupt:
    print("interrupted", not ended, flush=True)
os._exit(0)
"""


@pytest.mark.parametrize("name", ["Tokens", "TokenLoader"])
def test_ctrl_c_while_tokens_are_opened(tmp_path, name):
    (tmp_path / "x.bin").write_bytes(bytes(1000))
    done = subprocess.run(
        [sys.executable, "-c", SLOW, tmp_path / "x.bin", name],
        capture_output=True, text=True, timeout=100, check=False,
    )
    assert done.stdout.strip() == "interrupted True", done.stderr
