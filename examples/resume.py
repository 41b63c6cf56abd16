"""Stops in mid-epoch, and continues with other threads: python examples/resume.py PATH

The ids and pixels after the resume equal those of a run without a stop.
"""

import json
import sys
import zlib

import stoker


def open_loader(threads):
    return stoker.Loader(
        sys.argv[1],
        batch_size=8,
        seed=7,
        threads=threads,
        output="numpy",
        fields={
            "image": stoker.Image(None, [stoker.RandomResizedCrop(64), stoker.ColorJitter(0.4)]),
            "id": "__id__",
        },
    )


def seen(batch):
    return batch["id"].tolist(), zlib.crc32(batch["image"].tobytes())


with open_loader(threads=2) as loader:
    uninterrupted = [seen(batch) for batch in loader]

with open_loader(threads=1) as loader:
    batches = iter(loader)
    parts = [seen(next(batches)), seen(next(batches))]
    state = json.dumps(loader.state_dict())  # as in a checkpoint

with open_loader(threads=3) as loader:
    loader.load_state_dict(json.loads(state))
    for epoch in range(loader.epoch, 1):  # the loop of any training script
        loader.set_epoch(epoch)
        parts += [seen(batch) for batch in loader]

assert parts == uninterrupted
print(f"{len(parts)} batches, the same with and without the stop; the state: {len(state)} bytes")
