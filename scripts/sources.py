#!/usr/bin/env python3
"""List the C sources of a kind, so that adding a file is all it takes to build it.

usage: sources.py lib|avx2|test|fuzz|cli|helper|fault
"""
import pathlib
import sys

root = pathlib.Path(__file__).resolve().parent.parent
kind = sys.argv[1]
for path in sorted((root / "src").glob("*/*.c")):
    name, room = path.stem, path.parent.name
    if room == "test":
        continue
    if name.endswith("_test"):
        this = "test"
    elif name.endswith("_fuzz"):
        this = "fuzz"
    elif room in ("cli", "helper", "fault", "tls"):
        this = "fault" if room == "tls" else room
    elif name.endswith("_avx2"):
        this = "avx2"
    else:
        this = "lib"
    if this == kind:
        print(path.relative_to(root))
