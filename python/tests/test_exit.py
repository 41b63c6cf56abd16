"""A script ends without output on stderr, whatever object of stoker is still in a global."""

import os
import subprocess
import sys

import make
import pytest

HEAD = """
import os, numpy as np, stoker, stoker.torch
tar, tokens, text, folder = {tar!r}, {tokens!r}, {text!r}, {folder!r}
Y = dict(fields=dict(y=stoker.Int("cls")))
"""

SCRIPTS = {
    "engine": "e = stoker.Engine(threads=1)",
    "dataset": "d = stoker.Dataset(tar)",
    "loader": "l = stoker.Loader(tar, 2, **Y)",
    "loader in use": "l = stoker.Loader(tar, 2, **Y); i = iter(l); b = next(i)",
    "pinned loader": "l = stoker.Loader(tar, 2, pin_memory=False, **Y); i = iter(l); b = next(i)",
    "mix": "l = stoker.Loader(stoker.Mix([tar, tar], [1, 1]), 2, **Y); i = iter(l); next(i)",
    "token loader": "l = stoker.TokenLoader(tokens, 2, 8); i = iter(l); b = next(i)",
    "text loader": "l = stoker.TextLoader(text, lambda ts: [[1, 2] for t in ts], 1, 4, eod=0)\n"
    "i = iter(l); b = next(i)",
    "shard writer": "w = stoker.ShardWriter(folder + '/out')",
    "verify": "v = stoker.verify(tar)",
    "diff": "d = stoker.diff(tar, tar)",
    "iterable": "d = stoker.torch.IterableDataset(tar, 2, **Y)",
    "iterable in use": "d = stoker.torch.IterableDataset(tar, 2, **Y); i = iter(d); b = next(i)",
    "map": "d = stoker.torch.MapDataset(tar, **Y); x = d[0]",
    "data loader": "from torch.utils.data import DataLoader\n"
    "d = stoker.torch.IterableDataset(tar, 2, **Y)\n"
    "l = DataLoader(d, batch_size=None, num_workers=1); i = iter(l); b = next(i)",
    "fsspec": "from stoker.fsspec_filesystem import *\nimport stoker.fsspec_filesystem as m\n"
    "f = m.FileSystem() if hasattr(m, 'FileSystem') else m",
    "an exception": "l = stoker.Loader(tar, 2, **Y); i = iter(l); next(i); raise SystemExit(0)",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    import numpy as np

    root = tmp_path_factory.mktemp("exit")
    make.tar(root / "a.tar", [(f"{i}.cls", b"1") for i in range(8)])
    np.save(root / "t.npy", np.arange(1000, dtype=np.uint16))
    (root / "t.txt").write_text("one\ntwo\nthree\n" * 20)
    return {
        "tar": str(root / "a.tar"),
        "tokens": str(root / "t.npy"),
        "text": str(root / "t.txt"),
        "folder": str(root),
    }


@pytest.mark.parametrize("name", SCRIPTS)
def test_nothing_on_stderr(files, name):
    script = HEAD.format(**files) + SCRIPTS[name]
    run = subprocess.run(
        [os.environ.get("STOKER_PYTHON", sys.executable), "-W", "ignore", "-c", script],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (run.returncode, run.stderr) == (0, ""), run.stderr
