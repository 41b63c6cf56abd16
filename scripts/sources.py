#!/usr/bin/env python3
"""List the C sources of a kind, so that adding a file is all it takes to build it.

usage: sources.py lib|avx2|sim|test|fuzz|threaded|cli|helper|fault|header

sim are the rooms marked `test` in scripts/layers.txt, threaded the tests of those marked `threads`,
header the public headers.
"""
import pathlib
import sys

import rooms

# The program of each room that is no part of the library.
PROGRAMS = {
    "cli": "cli", "programs/cli": "cli",
    "helper": "helper", "programs/decode_helper": "helper",
    "fault": "fault", "programs/fault_proxy": "fault",
    "tls": "fault", "programs/tls_server": "fault",
}
# Tests of rules alone: one thread that simulates minutes, which ThreadSanitizer makes hours.
UNTHREADED = {"pace_test", "rules_test", "rate_limit_test", "throttle_test"}


def kind_of(path, room, simulated):
    if path.stem.endswith(("_test", "_fuzz")):
        return path.stem[-4:]
    if room in simulated:
        return "sim"
    if room in PROGRAMS:
        return PROGRAMS[room]
    return "avx2" if path.stem.endswith("_avx2") else "lib"


def find(root, kind):
    """The files of this kind, in the order of their paths."""
    if kind == "header":
        return sorted((root / "include/stoker").glob("*.h"))
    simulated, threaded = rooms.marked(root, "test"), rooms.marked(root, "threads")
    found = []
    for path in sorted((root / "src").rglob("*.c")):
        room = rooms.room_of(root, path)
        if room is None or rooms.floor_of(room) == "test":
            continue
        this = kind_of(path, room, simulated)
        if this == kind or (kind == "threaded" and this == "test" and room in threaded
                            and path.stem not in UNTHREADED):
            found.append(path)
    return found


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    for path in find(root, sys.argv[1]):
        print(path.relative_to(root))


if __name__ == "__main__":
    main()
