"""Fields by name, keys and raw bytes without a copy: python examples/fields.py PATH

Of tars one would also take stoker.Int("cls"), stoker.Text("txt"), stoker.Bytes("json"), ...
"""

import sys

import stoker

fields = {
    "image": stoker.Image("jpg;jpeg;png;webp", [stoker.Resize((64, 64))], layout="NHWC"),
    "file": stoker.Bytes("jpg;jpeg;png;webp"),  # the same member, as it is
    "label": stoker.Label(),
    "key": "__key__",
}
with stoker.Loader(sys.argv[1], batch_size=8, fields=fields, tail="keep", output="numpy") as loader:
    batch = next(iter(loader))

# The batch is ours: it stays valid although the loader is closed.
for key, view, label in zip(batch["key"], batch["file"], batch["label"], strict=True):
    print(f"{key}: class {label}, {len(view)} bytes from {bytes(view[:2]).hex()}")
