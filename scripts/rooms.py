"""Read scripts/layers.txt: the rooms of src/, what each may include, and how it is marked.

A room is a folder of sources, named by its path in src/: `io`, `io/posix`. Its floor is the first
part of that path. A row of layers.txt is `room (mark, ...): rooms that it may include`, and marks
are optional:

    pure      it does no I/O, starts no thread, takes no lock and reads no clock
    threads   threads meet in it: its C tests also run with ThreadSanitizer
    test      only tests and fuzz targets may include and link it
"""
import re
from collections import namedtuple

LAYERS = "scripts/layers.txt"
FLOORS = "scripts/floors.txt"
MARKS = {"pure", "threads", "test"}
ROW = re.compile(r"(\S+)\s*(?:\(([^)]*)\))?\s*:(.*)")

Row = namedtuple("Row", "room marks lower line")


def room_of(root, path):
    """The room of a file; None outside src/, and directly in it."""
    parts = path.relative_to(root).parts
    return "/".join(parts[1:-1]) if parts[0] == "src" and len(parts) > 2 else None


def floor_of(room):
    return room.partition("/")[0]


def read_rows(root):
    """Every row in the order of the file, and the numbers of invalid lines."""
    rows, wrong = [], []
    for number, line in enumerate((root / LAYERS).read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = ROW.fullmatch(line)
        if match:
            marks = set(re.findall(r"\w+", match[2] or ""))
            rows.append(Row(match[1], marks, match[3].split(), number))
        else:
            wrong.append(number)
    return rows, wrong


def marked(root, mark):
    return {row.room for row in read_rows(root)[0] if mark in row.marks}


def read_floors(root):
    """Line, floor and names of Python tests, of each row of floors.txt."""
    for number, line in enumerate((root / FLOORS).read_text(encoding="utf-8").splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            floor, _, names = line.partition(":")
            yield number, floor.strip(), [f"test_{name}.py" for name in names.split()]
