#!/usr/bin/env python3
"""What an option of the loader costs: the same epoch with and without it, in turns.

usage: pairs.py sandbox|documents|skip --data TARS [--pairs 20] [--out bench/results/NAME.json]

sandbox: decoding in helper processes. documents: the same, each picture (of the first 3,000) with
20 boxes, their labels and a caption in JSON, which are parsed there, too. skip: the policy for
damaged samples, with limits and a quarantine file, over data in which nothing is damaged.

Every pair is one epoch of each (which comes first changes from pair to pair), each with a new
loader; CPU is that of this process and of its helpers, from open to close. Ratios are taken
within a pair; the table shows medians, and the lowest and highest.
"""
import argparse
import glob
import io
import json
import os
import pathlib
import random
import resource
import statistics
import tarfile
import tempfile
import time

import stoker

CHAIN = [stoker.RandomResizedCrop(224), stoker.RandomHorizontalFlip(), stoker.Normalize()]


def options_of(what, folder):
    """The Loader's options whose cost is measured."""
    if what in ("sandbox", "documents"):
        return {"sandbox": True}
    return {"on_error": "skip", "quarantine": f"{folder}/bad.jsonl", "bad_samples_max": 100,
            "bad_share_max": 0.01}


def cpu_seconds():
    total = 0.0
    for who in resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN:
        used = resource.getrusage(who)
        total += used.ru_utime + used.ru_stime
    return total


def await_idle():
    """Wait until the last threads of an engine, and its helpers, have ended and are counted."""
    for _ in range(1000):
        try:
            tasks = list(pathlib.Path("/proc/self/task").iterdir())
            children = [task for task in tasks if (task / "children").read_text()]
        except OSError:
            continue  # a thread that ended meanwhile
        if len(tasks) == 1 and not children:
            return
        time.sleep(0.005)
    raise SystemExit("pairs: the engine does not end")


def with_documents(data, folder, count=3000):
    """A tar of the data's first pictures, each with a document about it, as detectors have it."""
    numbers = random.Random(1)
    made = pathlib.Path(folder) / "documents.tar"
    with tarfile.open(made, "w") as out:
        left = count
        for path in sorted(glob.glob(data)):
            with tarfile.open(path) as tar:
                for member in tar:
                    if left == 0 or not member.name.endswith((".jpg", ".jpeg")):
                        continue
                    left -= 1
                    objects = [{"box": [x := numbers.uniform(0, 200), y := numbers.uniform(0, 200),
                                        x + numbers.uniform(5, 100), y + numbers.uniform(5, 100)],
                                "label": numbers.randrange(80)} for _ in range(20)]
                    text = json.dumps({"caption": "a picture of some things " * 3,
                                       "objects": objects}).encode()
                    for name, bytes_ in ((f"{left:06}.jpg", tar.extractfile(member).read()),
                                         (f"{left:06}.json", text)):
                        about = tarfile.TarInfo(name)
                        about.size = len(bytes_)
                        out.addfile(about, io.BytesIO(bytes_))
    return str(made)


def fields_of(what):
    if what != "documents":
        return {"image": CHAIN}
    return {"fields": {"image": stoker.Image("jpg", CHAIN),
                       "boxes": stoker.Boxes("json:objects.*.box", labels="objects.*.label"),
                       "caption": stoker.Text("json:caption")}}


def run(data, batch_size, options):
    cpu, wall = cpu_seconds(), time.monotonic()
    images = 0
    with stoker.Loader(data, batch_size, seed=1, tail="keep", output="array",
                       threads=os.cpu_count(), no_direct_io=True, **options) as loader:
        for batch in loader:
            images += len(next(iter(batch.values())) if isinstance(batch, dict) else batch[0])
            del batch
    wall = time.monotonic() - wall
    await_idle()
    return {"images_per_s": images / wall, "cpu_ms": (cpu_seconds() - cpu) * 1000 / images}


def spread(values):
    return f"{statistics.median(values):8.3f} ({min(values):.3f} - {max(values):.3f})"


def take_turns(arguments, options):
    """[{"without": ..., "with": ...}] of all pairs."""
    always = fields_of(arguments.what)
    for each in ({}, options):  # page cache and first touch
        run(arguments.data, arguments.batch_size, {**always, **each})
    pairs = []
    for turn in range(arguments.pairs):
        pair = {}
        for name in ("without", "with") if turn % 2 == 0 else ("with", "without"):
            pair[name] = run(arguments.data, arguments.batch_size,
                             {**always, **(options if name == "with" else {})})
        pairs.append(pair)
    return pairs


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["sandbox", "documents", "skip"])
    parser.add_argument("--data", required=True, help="tars of pictures, as for Loader")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--out", help="also write the numbers as JSON")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.what == "documents":
            arguments.data = with_documents(arguments.data, folder)
        pairs = take_turns(arguments, options_of(arguments.what, folder))
    ratios = {}
    for name in "images_per_s", "cpu_ms":
        for kind in "without", "with":
            print(f"{name:14} {kind:8} {spread([pair[kind][name] for pair in pairs])}")
        ratios[name] = [pair["with"][name] / pair["without"][name] for pair in pairs]
        print(f"{name:14} {'ratio':8} {spread(ratios[name])}")
    if arguments.out:
        medians = {name: statistics.median(values) for name, values in ratios.items()}
        out = pathlib.Path(arguments.out)
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps({"pairs": pairs, "median": medians}, indent=1) + "\n")


if __name__ == "__main__":
    main()
