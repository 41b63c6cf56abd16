#!/usr/bin/env python3
"""Open loaders of many kinds on the data of make_data.py; print digests of batches, and states.

compare_builds.py runs it with the package of each build: keywords are those that both have.
"""
import functools
import hashlib
import inspect
import json
import sys

import stoker

TRAIN = "data/train-{000..003}.tar"
CROP = [stoker.CenterCrop(32)]
RANDOM = [stoker.RandomResizedCrop(32), stoker.RandomHorizontalFlip()]
# The old build has version 1 of the order only.
VERSION = {name: 1 for name in inspect.signature(stoker.Loader).parameters
           if name == "order_version"}
# It shifts the labels of packed rows; newer builds do so on request.
SHIFTED = {"labels": "shifted"} if VERSION else {}
Images = functools.partial(stoker.Loader, batch_size=8, output="numpy", shuffle="block", **VERSION)
Tokens = functools.partial(stoker.TokenLoader, batch_size=4, shuffle="block", **VERSION)
FIELDS = {"label": stoker.Int("json", "label"), "w": stoker.Float("json", "w"),
          "text": stoker.Text("json", "t"), "raw": stoker.Bytes("cls"), "all": stoker.Json("json")}


def feed(digest, value):
    if isinstance(value, dict):
        for key, item in value.items():
            # Shifted labels are called targets now.
            digest.update(str("labels" if key == "targets" else key).encode())
            feed(digest, item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            feed(digest, item)
    elif hasattr(value, "numpy"):
        feed(digest, value.numpy())
    elif hasattr(value, "tobytes"):
        digest.update(str((value.dtype, value.shape)).encode() + value.tobytes())
    else:
        digest.update(repr(value).encode())


def run(name, make):
    try:
        loader, digests = make(), []
        for number, batch in enumerate(loader):
            digest = hashlib.sha256()
            feed(digest, batch if isinstance(batch, (dict, tuple, list)) else vars(batch))
            digests.append(digest.hexdigest()[:16])
            if number == 5:
                break
        print(name, digests, json.dumps(loader.state_dict(), sort_keys=True, default=str))
        loader.close()
    except Exception as error:
        print(name, type(error).__name__, getattr(error, "status", None))
        print(name, error, file=sys.stderr)


def lengths(texts):
    return [[len(word) for word in text.split()] for text in texts]


def main():
    for shuffle in ("block", "full", "none"):
        for dtype in ("uint8", "float32"):
            run(f"image {shuffle} {dtype}", lambda shuffle=shuffle, dtype=dtype: Images(
                TRAIN, image=RANDOM, dtype=dtype, shuffle=shuffle, seed=3))
    run("folder", lambda: Images("data/folder", image=RANDOM, seed=1))
    run("fields", lambda: Images(TRAIN, fields=FIELDS))
    run("bytes", lambda: Images("data/packed.tar.gz", fields={"bin": stoker.Bytes("bin")},
                                 shuffle="none"))
    run("ranks", lambda: Images(TRAIN, image=CROP, rank=1, world_size=3))
    run("subset", lambda: Images(TRAIN, image=CROP, subset="label in (1, 2)"))
    run("balance", lambda: Images(TRAIN, image=CROP, balance="label"))
    run("damaged", lambda: Images("data/damaged.tar", image=CROP, on_error="skip"))
    run("mix", lambda: Images(stoker.Mix(["data/train-000.tar", "data/train-001.tar"],
                                         weights=[3, 1]), image=CROP))
    run("tokens", lambda: Tokens("data/tokens.npy", context=128))
    run("raw tokens", lambda: Tokens("data/tokens.bin", context=128, stored="uint16"))
    run("packed", lambda: Tokens("data/tokens.npy", context=64, eod=0, rows="packed", **SHIFTED))
    run("text", lambda: stoker.TextLoader("data/text.jsonl", batch_size=4, context=64,
                                          tokenizer=lengths, shuffle="block", **VERSION,
                                          **SHIFTED))


if __name__ == "__main__":
    main()
