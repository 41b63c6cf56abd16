#!/usr/bin/env python3
"""Refuse documents that name files, functions or rooms which do not exist.

usage: check_docs.py [ROOT]

Checked are README.md, docs/*.md and bench/README.md: each relative link; each name in backticks
that looks like a file of this repository (`loader/loader.c`, `storage/vfs`, `sampling.py`); each
function, struct and constant of stoker (`stk_x()`, `struct stoker_x`, STOKER_X). The table of
floors in docs/ARCHITECTURE.md has the rooms of scripts/layers.txt. Decisions are history, so only
their links are checked. A name with capitals (NAME.c) or a star is a pattern.
"""
import pathlib
import re
import sys

import rooms

LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
NAME = re.compile(r"`([\w./-]+)`")
# What follows an underscore at the end is left to the reader: STOKER_ERROR_...
SYMBOL = re.compile(r"(?:`(?:struct |enum )?|\b)((?:stk|stoker)_\w*[a-z0-9])(?:\(\)|`)"
                    r"|`(_[a-z]\w+)\(\)|\b((?:STK|STOKER)_[A-Z0-9_]*[A-Z0-9])\b(?![*_])")
FLOOR_ROW = re.compile(r"\| `(\w+)` \|.*\| ([^|]*) \|")
CODE = (".c", ".h", ".py", ".pyi", ".build", ".in")
FLOORS = ("base", "io", "storage", "format", "index", "order", "decode", "engine", "dataset",
          "loader", "checkpoint", "tools", "programs")


def files_of(root):
    """Relative paths of all files that people write, and their folders."""
    found = set()
    for top in ("src", "include", "python", "scripts", "bench", "examples", "docs"):
        for path in (root / top).rglob("*"):
            if "corpus" not in path.parts and "__pycache__" not in path.parts:
                found.add(path.relative_to(root).as_posix())
    return found | {path.name for path in root.iterdir()}


def words_of(root, files):
    """Every identifier of the tree, and the environment variables of its scripts."""
    found = set()
    for name in files:
        path = root / name
        if path.is_file() and (path.suffix in CODE or path.suffix == "" and "/" not in name):
            text = path.read_text(encoding="utf-8", errors="replace")
            found |= set(re.findall(r"\w+", text))
    return found


def check_floors(root, document):
    """The rooms in the table of floors are those of the tree."""
    tree = {}
    for row in rooms.read_rows(root)[0]:
        floor, _, room = row.room.partition("/")
        tree.setdefault(floor, set()).update([room] if room else [])
    table = {}
    for number, line in enumerate(document.read_text(encoding="utf-8").splitlines(), 1):
        match = FLOOR_ROW.fullmatch(line)
        if match and match[1] in tree:
            table[match[1]] = number, set(re.findall(r"`(\w+)`", match[2]))
    for floor, names in tree.items():
        number, said = table.get(floor, (1, None))
        if said is None:
            yield number, "floor", f"the table of floors has no row '{floor}'"
        for name in sorted(names ^ (said or names)):
            yield number, "floor", (f"add the room '{name}' of '{floor}'" if name in names
                                    else f"'{floor}' has no room '{name}'")


def is_missing(name, files, names):
    """True if a name in backticks names a file of the tree, and there is none."""
    if name in files or f"src/{name.rstrip('/')}" in files or name.rstrip("/") in files:
        return False
    if re.search(r"[A-Z*]", name) or name.startswith(("/", ".", "-")):
        return False
    path = pathlib.PurePosixPath(name)
    if path.parts[0] in FLOORS and len(path.parts) > 1 and path.suffix in (".c", ".h", ""):
        return True
    return len(path.parts) == 1 and path.suffix in (".c", ".h", ".py") and path.name not in names


def check(document, files, names, words):
    text = document.read_text(encoding="utf-8")
    for number, line in enumerate(text.splitlines(), 1):
        for link in LINK.findall(line):
            if "://" not in link and not (document.parent / link).exists():
                yield number, "link", f"'{link}' does not exist"
        if document.parent.name == "decisions" or document.name == "glossary.md":
            continue
        for name in NAME.findall(line):
            if is_missing(name, files, names):
                yield number, "name", f"no file '{name}'"
        for found in SYMBOL.findall(line):
            if max(found) not in words:
                yield number, "symbol", f"the code has no '{max(found)}'"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1
                        else pathlib.Path(__file__).parent.parent).resolve()
    files = files_of(root)
    names = {path.rpartition("/")[2] for path in files}
    documents = [path for path in (root / "README.md", root / "bench/README.md",
                                   *sorted((root / "docs").rglob("*.md"))) if path.is_file()]
    words, count = words_of(root, files), 0
    for document in documents:
        findings = list(check(document, files, names, words))
        if document.name == "ARCHITECTURE.md":
            findings += check_floors(root, document)
        for number, rule, advice in findings:
            print(f"{document.relative_to(root)}:{number}: {rule}: {advice}")
            count += 1
    print(f"docs: {len(documents)} files, {count} findings")
    return bool(count)


if __name__ == "__main__":
    sys.exit(main())
