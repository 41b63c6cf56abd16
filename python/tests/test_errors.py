"""Exceptions: their kinds, text and attributes."""

import builtins
import errno
import pickle

import pytest
import stoker
from stoker._stoker import STATUSES
from stoker.errors import from_native

KINDS = {
    "CORRUPT": (stoker.CorruptError, ValueError),
    "TRUNCATED": (stoker.TruncatedError, ValueError),
    "FORMAT": (stoker.FormatError, ValueError),
    "UNSUPPORTED": (stoker.UnsupportedError, ValueError),
    "LIMIT": (stoker.LimitError, ValueError),
    "MISSING": (stoker.MissingError, KeyError),
    "SCATTERED": (stoker.ScatteredError, ValueError),
    "ARGUMENT": (stoker.ArgumentError, ValueError),
    "STATE": (stoker.StateError, ValueError),
    "BUDGET": (stoker.BudgetError, MemoryError),
    "TIMEOUT": (stoker.TimeoutError, builtins.TimeoutError),
    "FORKED": (stoker.ForkedError, RuntimeError),
    "CLOSED": (stoker.ClosedError, RuntimeError),
    "EMPTY": (stoker.EmptyError, ValueError),
    "CHANGED": (stoker.ChangedError, RuntimeError),
}


def test_every_status_has_a_kind():
    assert set(KINDS) == set(STATUSES) - {"AGAIN"}  # which never reaches a user


@pytest.mark.parametrize("name", KINDS)
def test_kind(name):
    status = STATUSES[name]
    error = from_native(status, f"STOKER_ERROR_{name}", "what", "where", "advice", "s", "k", 5)
    kind, builtin = KINDS[name]
    assert type(error) is kind
    assert isinstance(error, stoker.Error) and isinstance(error, builtin)
    assert str(error) == "what: where\n  advice"
    assert (error.status, error.name) == (status, f"STOKER_ERROR_{name}")
    assert (error.shard, error.key, error.offset) == ("s", "k", 5)


@pytest.mark.parametrize(
    ("number", "builtin"),
    [
        (errno.ENOENT, FileNotFoundError),
        (errno.EACCES, PermissionError),
        (errno.ENOTDIR, NotADirectoryError),
        (errno.EIO, OSError),
        (errno.ELOOP, OSError),
    ],
)
def test_errno(number, builtin):
    error = from_native(
        -number, errno.errorcode[number], "cannot open", "'x'", "look", "x", "", None
    )
    assert isinstance(error, stoker.IOError) and isinstance(error, builtin)
    assert error.errno == number and error.filename == "x"
    assert str(error) == "cannot open: 'x'\n  look"
    assert error.key is None and error.offset is None


def test_no_memory():
    assert isinstance(from_native(-errno.ENOMEM, "ENOMEM", "w", "", "", "", "", None), MemoryError)


@pytest.mark.parametrize("status", [STATUSES["CORRUPT"], -errno.ENOENT, STATUSES["TIMEOUT"]])
def test_pickle(status):
    error = from_native(status, "N", "what", "where", "advice", "shard", "key", 7)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error)
    assert (again.shard, again.key, again.offset) == ("shard", "key", 7)


def test_status_of_an_error_made_here():
    assert stoker.ArgumentError("w").status == STATUSES["ARGUMENT"]
    assert stoker.ArgumentError("w").name == "STOKER_ERROR_ARGUMENT"
