#!/usr/bin/env python3
"""Compare the speed of two builds of stoker, in turns, on the same data.

usage: compare_speed.py OLD NEW [--pairs 21] [--only ROW,...] [--out FILE]
  OLD, NEW   build folders, with the command 'stoker' and the package in 'python'

Makes about 350 MB of data in a temporary folder: tars of JPEGs, of samples of 200 and of 100 bytes,
and a token file. Rows of stores read from an nginx of this machine. Each pair runs both builds; the
one that begins alternates. The table has the median of OLD / NEW of CPU and of wall time with its
quartiles: above 1, NEW is faster. --out writes the table as JSON. The modules of both packages are
compiled first. Orders are named, because the defaults have changed; OLD always packs in order.
"""
import argparse
import compileall
import contextlib
import io
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time

import numpy as np
from PIL import Image

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "python" / "tests"))
import servers  # noqa: E402

LOADER = """import stoker
with stoker.Loader({source!r}, {batch}, output="numpy", shuffle="none", {options}) as loader:
    for epoch in range({epochs}):
        for batch in loader: pass
"""
FIRST = """import stoker
for turn in range(8):
    with stoker.Loader("train-{000..003}.tar", 64, output="numpy", seed=0,
                       image=[stoker.RandomResizedCrop(224)]) as loader: next(iter(loader))
"""
TOKENS = """import stoker
with stoker.TokenLoader("tokens.npy", batch_size=32, context=2048) as loader:
    for epoch in range(6):
        for batch in loader: pass
"""
SMALL = LOADER.format(source="tiny.tar", batch=128, epochs=20,
                      options='fields={"x": stoker.Bytes("bin")}, threads=1')
TARS = ["train-000.tar", "train-001.tar", "train-002.tar", "train-003.tar"]
DATA = ["stoker", "bench", "data", "--batch", "128", "--shuffle", "none"]
ROWS = {  # name: words ("python" runs the text with the build's package), runs in a turn
    "images": ([*DATA, "--epochs", "1", *TARS], 1),
    "uint8": ([*DATA, "--epochs", "1", "--dtype", "uint8", *TARS], 1),
    "raw images": ([*DATA, "--epochs", "20", "--raw", *TARS], 1),
    "raw samples of 100 bytes": (["python", SMALL], 1),
    "tokens": (["python", TOKENS], 1),
    "order": (["stoker", "order", "--samples", "3000000", "--simulate", "--batch", "64"], 4),
    "first batch": (["python", FIRST], 1),
    "index": (["stoker", "index", "--force", "--out", "index.out", "many.tar"], 5),
    "pack": (["stoker", "pack", "--keep-order", *TARS, "../packed"], 2),
    "store raw images": ([*DATA, "--raw", "--epochs", "4", "URL/train-000.tar",
                           "URL/train-001.tar"], 1),
    "store cp": (["stoker", "cp", "URL/many.tar", "copied.tar"], 8),
}


def tar(path, numbers, body):
    with tarfile.open(path, "w") as out:
        for number in numbers:
            for name, data in body(number):
                info = tarfile.TarInfo(name)
                info.size = len(data)
                out.addfile(info, io.BytesIO(data))


def make_data(folder):
    rng = np.random.default_rng(3)

    def image(number):
        rough, out = rng.integers(0, 255, (24, 32, 3), np.uint8), io.BytesIO()
        Image.fromarray(rough).resize((500, 375), Image.BICUBIC).save(out, "JPEG", quality=93)
        return ((f"{number:06}.jpg", out.getvalue()), (f"{number:06}.cls", b"%d" % (number % 10)),
                (f"{number:06}.json", json.dumps({"a": number}).encode()))

    for place, name in enumerate(TARS):
        tar(folder / name, range(750 * place, 750 * (place + 1)), image)
    tar(folder / "many.tar", range(60000), lambda i: [(f"{i:07}.bin", b"x" * 200)])
    tar(folder / "tiny.tar", range(100000), lambda i: [(f"{i:07}.bin", b"x" * 100)])
    np.save(folder / "tokens.npy", rng.integers(0, 50000, 40_000_000).astype(np.uint16))


def run(build, words, times, folder, url, keep_order):
    """Returns CPU and wall seconds."""
    program = [sys.executable, "-c"] if words[0] == "python" else [str(build / "stoker")]
    words = [word.replace("URL", url) for word in words[1:]
             if keep_order or word != "--keep-order"]
    env = {**os.environ, "PYTHONPATH": str(build / "python"), "STOKER_CACHE": str(folder / "cache")}
    cpu = wall = 0.0
    for _ in range(times):
        subprocess.run(["rm", "-rf", "../packed", "copied.tar"], cwd=folder, check=True)
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        subprocess.run([*program, *words], cwd=folder, env=env, stdout=subprocess.DEVNULL,
                       check=True, timeout=600)
        wall += time.monotonic() - start
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu += after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu, wall


def quartiles(values):
    return [round(value, 3) for value in statistics.quantiles(values, n=4)]


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("old", type=pathlib.Path)
    parser.add_argument("new", type=pathlib.Path)
    parser.add_argument("--pairs", type=int, default=21)
    parser.add_argument("--only", default=",".join(ROWS))
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    builds = {"old": args.old.resolve(), "new": args.new.resolve()}
    for build in builds.values():
        compileall.compile_dir(build / "python", quiet=1)
    results = {"pairs": args.pairs, "cores": os.cpu_count(), "rows": {}}
    with tempfile.TemporaryDirectory() as home:
        folder, server = pathlib.Path(home) / "data", pathlib.Path(home) / "nginx"
        folder.parent.chmod(0o755)  # nginx reads it as another user
        folder.mkdir()
        server.mkdir()
        make_data(folder)
        with contextlib.closing(servers.Nginx(server, folder)) as nginx:
            for name in args.only.split(","):
                words, times = ROWS[name]
                ratios = []
                for pair in range(-1, args.pairs):  # the first pair fills caches
                    order = sorted(builds, reverse=pair % 2 == 0)
                    took = {key: run(builds[key], words, times, folder, nginx.url, key == "new")
                            for key in order}
                    if pair >= 0:
                        ratios.append([old / new for old, new in
                                       zip(took["old"], took["new"], strict=True)])
                cpu, wall = (quartiles(column) for column in zip(*ratios, strict=True))
                results["rows"][name] = {"cpu": cpu, "wall": wall}
                print(f"{name:26} old/new CPU {cpu[1]:.3f} ({cpu[0]:.3f} to {cpu[2]:.3f})  "
                      f"wall {wall[1]:.3f} ({wall[0]:.3f} to {wall[2]:.3f})", flush=True)
    if args.out:
        args.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
