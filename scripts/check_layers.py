#!/usr/bin/env python3
"""Refuse an #include that climbs: scripts/layers.txt says, read downwards, who may see whom.

usage: check_layers.py [ROOT]

Rooms see themselves, the public header and the rooms that their line names, all listed above it:
so no cycle can exist. The command, Python and examples see the public header only. Tests and fuzz
targets also see src/world, the simulated one, and src/test, which itself may see everything, as
benchmarks may.
"""
import pathlib
import re
import sys

PUBLIC = "stoker/stoker.h"
INCLUDE = re.compile(r'\s*#\s*include\s*(?:"([^"]+)"|<(stoker/[^>]+)>)')


def read_layers(root):
    """Room -> rooms it may include; and findings of the list itself."""
    layers, findings = {}, []
    for number, line in enumerate((root / "scripts/layers.txt").read_text().splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        room, _, lower = line.partition(":")
        unknown = set(lower.split()) - set(layers)
        if unknown:
            findings.append((f"scripts/layers.txt:{number}", "order", f"'{room}' names "
                             f"{', '.join(sorted(unknown))}, not listed above it"))
        layers[room] = set(lower.split())
    return layers, findings


def includes(path):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match[1] or match[2]


def check_room(root, path, layers):
    room = path.relative_to(root / "src").parts[0]
    if room not in layers:
        yield 1, "room", f"list '{room}' in scripts/layers.txt"
        return
    may = layers[room] | {room}
    if path.stem.endswith(("_test", "_fuzz")):
        may = may | {"test", "world"}
    for number, target in includes(path):
        if target == PUBLIC:
            continue
        if "/" not in target or ".." in target:
            yield number, "path", f'write "room/file.h", not "{target}"'
        elif target.split("/")[0] not in may:
            yield number, "layer", f"'{room}' may not include '{target}'; see scripts/layers.txt"


def check_user(path):
    """Code outside the library: the public header, and files of its own folder."""
    for number, target in includes(path):
        if target != PUBLIC and not (path.parent / target).is_file():
            yield number, "layer", f"only <{PUBLIC}> may be seen from here, not '{target}'"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1
                        else pathlib.Path(__file__).parent.parent).resolve()
    layers, findings = read_layers(root)
    files = [path for path in sorted((root / "src").rglob("*.[ch]"))
             if path.relative_to(root / "src").parts[0] != "test"]
    users = [path for folder in ("include", "python", "examples")
             for path in sorted((root / folder).rglob("*.[ch]"))]
    for path in files + users:
        found = check_user(path) if path in users else check_room(root, path, layers)
        for number, rule, advice in found:
            findings.append((f"{path.relative_to(root)}:{number}", rule, advice))
    for place, rule, advice in findings:
        print(f"{place}: {rule}: {advice}")
    print(f"layers: {len(files) + len(users)} files, {len(findings)} findings")
    return bool(findings)


if __name__ == "__main__":
    sys.exit(main())
