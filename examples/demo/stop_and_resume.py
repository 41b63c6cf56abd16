"""Stops in the middle of an epoch, continues in a new process with another number of threads, and
compares every sample id and every pixel with a run that was never stopped.

usage: stop_and_resume.py                                 all of it
       stop_and_resume.py part THREADS FIRST LAST OUT     one process: steps FIRST..LAST
"""
from show import DATA, HOME, Line, save  # first: see there

import hashlib
import json
import os
import subprocess
import sys

import numpy
import stoker

BATCH, EPOCHS = 64, 2


def open_loader(threads):
    return stoker.Loader(DATA / "train", batch_size=BATCH, seed=7, threads=threads, fields={
        "image": stoker.Image(None, [stoker.RandomResizedCrop(96), stoker.RandomHorizontalFlip(),
                                     stoker.ColorJitter(0.4, 0.4, 0.4)]),
        "id": "__id__"})


def digest(array):
    return hashlib.sha256(numpy.ascontiguousarray(numpy.asarray(array)).tobytes()).hexdigest()


def steps(loader, left):
    """At most `left` steps from where the loader stands: [sample ids, hash of pixels] of each."""
    rows = []
    while len(rows) < left:
        for batch in loader:
            rows.append([[int(i) for i in batch["id"]], digest(batch["image"])])
            if len(rows) == left:
                break
    return rows


def part(threads, first, last, out):
    """One process of the stopped run; the state between the two is a JSON file."""
    loader, state_file = open_loader(threads), HOME / "state.json"
    if first:
        loader.load_state_dict(json.loads(state_file.read_text()))
    rows = steps(loader, last - first)
    state_file.write_text(json.dumps(loader.state_dict()))
    with open(out, "w", encoding="utf-8") as file:
        json.dump({"pid": os.getpid(), "rows": rows}, file)
        file.flush()
    os._exit(0)  # as a job that is killed: nothing is closed


def run_part(threads, first, last):
    out = HOME / "part.json"
    words = [sys.executable, __file__, "part", threads, first, last, out]
    subprocess.run([str(word) for word in words], check=True)
    return json.loads(out.read_text())


def main():
    if sys.argv[1:2] == ["part"]:
        part(int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
    line, loader = Line(), open_loader(2)
    a_epoch = len(loader)
    total, stop = EPOCHS * a_epoch, a_epoch + a_epoch // 2
    line.show(f"uninterrupted: {total} steps, 2 threads")
    uninterrupted = steps(loader, total)
    line.end(f"uninterrupted        {total} steps, 2 threads, process {os.getpid()}")
    before = run_part(1, 0, stop)
    line.end(f"stopped in epoch 1   {len(before['rows'])} steps, 1 thread, process {before['pid']}")
    state = (HOME / "state.json").read_text()
    line.end(f"the state            {len(state)} bytes of JSON")
    after = run_part(3, stop, total)
    line.end(f"resumed              {len(after['rows'])} steps, 3 threads, process {after['pid']}")
    joined = before["rows"] + after["rows"]
    ids = sum(a[0] == b[0] for a, b in zip(uninterrupted, joined))
    pixels = sum(a[1] == b[1] for a, b in zip(uninterrupted, joined))
    same = len(joined) == total and ids == total and pixels == total
    line.end(f"equal sample ids in {ids} of {total} steps, SHA-256 of pixels in {pixels}")
    save("resume", same=same, steps=total, stopped_at=stop, state_bytes=len(state),
         digest=hashlib.sha256("".join(row[1] for row in joined).encode()).hexdigest())
    return 0 if same else 4


if __name__ == "__main__":
    sys.exit(main())
