#!/usr/bin/env python3
"""Refuse documents that name files which do not exist.

usage: check_docs.py [ROOT]

Checked are README.md, docs/*.md and bench/README.md: each relative link, and each name in backticks
that looks like a file of this repository (`loader/loader.c`, `storage/vfs`). Decisions are history,
so only their links are checked. A name with capitals (NAME.c) or a star is a pattern.
"""
import pathlib
import re
import sys

LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
NAME = re.compile(r"`([\w./-]+)`")
FLOORS = ("base", "io", "storage", "format", "index", "order", "decode", "engine", "dataset",
          "loader", "tools", "programs")


def files_of(root):
    """Relative paths of all files that people write, and their folders."""
    found = set()
    for top in ("src", "include", "python", "scripts", "bench", "examples", "docs"):
        for path in (root / top).rglob("*"):
            if "corpus" not in path.parts and "__pycache__" not in path.parts:
                found.add(path.relative_to(root).as_posix())
    return found | {path.name for path in root.iterdir()}


def is_missing(name, files, names):
    """True if a name in backticks names a file of the tree, and there is none."""
    if name in files or f"src/{name.rstrip('/')}" in files or name.rstrip("/") in files:
        return False
    if re.search(r"[A-Z*]", name) or name.startswith(("/", ".", "-")):
        return False
    path = pathlib.PurePosixPath(name)
    if path.parts[0] in FLOORS and len(path.parts) > 1 and path.suffix in (".c", ".h", ""):
        return True
    return len(path.parts) == 1 and path.suffix in (".c", ".h") and path.name not in names


def check(root, document, files, names):
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


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1
                        else pathlib.Path(__file__).parent.parent).resolve()
    files = files_of(root)
    names = {path.rpartition("/")[2] for path in files}
    documents = [path for path in (root / "README.md", root / "bench/README.md",
                                   *sorted((root / "docs").rglob("*.md"))) if path.is_file()]
    count = 0
    for document in documents:
        for number, rule, advice in check(root, document, files, names):
            print(f"{document.relative_to(root)}:{number}: {rule}: {advice}")
            count += 1
    print(f"docs: {len(documents)} files, {count} findings")
    return bool(count)


if __name__ == "__main__":
    sys.exit(main())
