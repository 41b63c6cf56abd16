#!/usr/bin/env python3
"""List what a change in some floors or rooms can break, for ./check FLOOR...

usage: affected.py own|c|python FLOOR...

own: C tests and fuzz targets of these floors. c: also those of the rooms that include something of
them directly. python: files of Python tests, by scripts/floors.txt; of a room, those of its floor.
A floor is a folder of src/, a room a folder in that; `python` is the package, and has no C tests.
Exits with 2, and says what there is, if a name is neither floor nor room.
"""
import pathlib
import sys

import rooms
import sources

ROOT = pathlib.Path(__file__).resolve().parent.parent


def is_of(room, name):
    return room == name or room.startswith(name + "/")


def own_rooms(rows, names):
    return {row.room for row in rows if any(is_of(row.room, name) for name in names)}


def c_tests(wanted):
    for kind in ("test", "fuzz"):
        for path in sources.find(ROOT, kind):
            if rooms.room_of(ROOT, path) in wanted:
                yield path.stem


def python_tests(names):
    found = set()
    for _, floor, files in rooms.read_floors(ROOT):
        # The row of a room is for it alone; the row of a floor is also for each room of it.
        if any(is_of(name, floor) or is_of(floor, name) for name in names):
            found |= set(files)
    return sorted(f"python/tests/{name}" for name in found)


def main():
    kind, names = sys.argv[1], [name.rstrip("/") for name in sys.argv[2:]]
    rows = rooms.read_rows(ROOT)[0]
    floors = list(dict.fromkeys(rooms.floor_of(row.room) for row in rows))
    for name in names:
        if name != "python" and not own_rooms(rows, [name]):
            print(f"check: no floor or room '{name}'; floors: {' '.join(floors)} python",
                  file=sys.stderr)
            return 2
    own = own_rooms(rows, names)
    above = {row.room for row in rows if own & set(row.lower)}
    if kind == "python":
        print(*python_tests(names), sep="\n")
    else:
        print(*c_tests(own if kind == "own" else own | above), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
