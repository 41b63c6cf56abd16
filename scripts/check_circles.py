#!/usr/bin/env python3
"""Refuse circles between source files, except inside a state machine that a comment names.

usage: check_circles.py [OBJECTS]
  OBJECTS   the folder of the library's objects (default: build/check/libstoker-all.a.p)

A file calls another if its object needs a symbol that the other defines (nm). Files that call
other in a circle must lie in one room, and the header of one of them must say so in its first
comment: "State machine in several files: a.c, b.c". Exits with 1 for any other circle.
"""
import pathlib
import re
import subprocess
import sys
from collections import defaultdict


def symbols_of(folder):
    """Object -> (symbols that it defines, symbols that it needs)."""
    found = {}
    for path in sorted(pathlib.Path(folder).glob("*.o")):
        lines = subprocess.run(["nm", "-P", str(path)], capture_output=True, text=True,
                               check=True).stdout.splitlines()
        defined, needed = set(), set()
        for line in lines:
            name, kind = line.split()[:2]
            (needed if kind in "Uw" else defined if kind in "TDBRVWC" else set()).add(name)
        found[path.name.removesuffix(".o")] = (defined, needed)
    return found


def circles_of(edges):
    """Strongly connected parts of more than one file (Tarjan, without recursion)."""
    index, low, on, stack, parts = {}, {}, set(), [], []
    for root in sorted(edges):
        if root in index:
            continue
        work = [(root, iter(sorted(edges[root])))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on.add(root)
        while work:
            node, others = work[-1]
            for other in others:
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    on.add(other)
                    work.append((other, iter(sorted(edges[other]))))
                    break
                if other in on:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    part = []
                    while True:
                        part.append(stack.pop())
                        on.discard(part[-1])
                        if part[-1] == node:
                            break
                    if len(part) > 1:
                        parts.append(sorted(part))
    return parts


def named_machines(root):
    """Room -> sets of files of which a header says that they call each other."""
    found = defaultdict(list)
    for path in sorted((root / "src").rglob("*.h")):
        comment = re.match(r"/\*.*?\*/", path.read_text(encoding="utf-8"), re.S)
        if comment and "call each other" in re.sub(r"\n \* ?", " ", comment[0]):
            room = path.parent.relative_to(root / "src").as_posix()
            found[room].append(set(re.findall(r"\w+\.c\b", comment[0])))
    return found


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    sources = {path.relative_to(root).as_posix().replace("/", "_"): path.relative_to(root / "src")
               for path in (root / "src").rglob("*.c")}
    objects = sys.argv[1] if len(sys.argv) > 1 else root / "build/check/libstoker-all.a.p"
    symbols = {sources[name]: both for name, both in symbols_of(objects).items()
               if name in sources}
    home = {symbol: path for path, (defined, _) in symbols.items() for symbol in defined}
    edges = {path: {home[symbol] for symbol in needed if home.get(symbol, path) != path}
             for path, (_, needed) in symbols.items()}
    machines, findings = named_machines(root), 0
    for part in circles_of(edges):
        rooms = {path.parent.as_posix() for path in part}
        names = {path.name for path in part}
        if len(rooms) == 1 and any(names <= machine for machine in machines[min(rooms)]):
            continue
        findings += 1
        print(f"circle: {' '.join(path.as_posix() for path in part)}: cut it, or name the state "
              "machine in a header of the room")
    print(f"circles: {len(symbols)} files, {findings} findings")
    return bool(findings) or not symbols


if __name__ == "__main__":
    sys.exit(main())
