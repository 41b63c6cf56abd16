"""Named fields, keys, and raw bytes without a copy: python examples/fields.py PATH

For tars, other fields are stoker.Int("cls"), stoker.Text("txt"), stoker.Bytes("json"), ...
"""

import sys

import stoker

fields = {
    "image": stoker.Image("jpg;jpeg;png;webp", [stoker.Resize((64, 64))], layout="NHWC"),
    "file": stoker.Bytes("jpg;jpeg;png;webp"),  # the bytes of the same member
    "label": stoker.Label(),
    "key": "__key__",
}
with stoker.Loader(sys.argv[1], batch_size=8, fields=fields, tail="keep", output="numpy") as loader:
    batch = next(iter(loader))

# The batch stays valid after the loader is closed.
for key, view, label in zip(batch["key"], batch["file"], batch["label"], strict=True):
    print(f"{key}: class {label}, {len(view)} bytes from {bytes(view[:2]).hex()}")
