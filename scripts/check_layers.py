#!/usr/bin/env python3
"""Refuse an #include that scripts/layers.txt does not permit.

usage: check_layers.py [ROOT]

A room includes itself, the public headers and the rooms that its row names, which are listed above
it. The rooms of a floor are listed together, so that neither rooms nor floors can form a circle. A
row names no room that it does not need. A pure room includes pure rooms and the floor `base` only,
and no system header for I/O, waiting or sharing. Python and examples include the public headers
only. Tests and fuzz targets may also include the rooms marked `test`, which the product may not,
and src/test, which may include everything, as benchmarks may.
scripts/floors.txt names Python tests for each floor: each that exists, and none else.
"""
import pathlib
import re
import sys
from collections import defaultdict

import rooms
import tidy

INCLUDE = re.compile(r'\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')
PUBLIC = re.compile(r"stoker/\w+\.h")
# Headers of the system that a pure room has no use for, and one of base; and calls for which the
# headers that it has would do.
IMPURE_HEADERS = re.compile(
    r"pthread|threads|semaphore|sched|time|unistd|fcntl|poll|signal|dirent|dlfcn|netdb|liburing"
    r"|(sys|netinet|arpa|linux|curl)/.*")
IMPURE_ROOM_HEADERS = {"base/thread.h"}
IMPURE_CALLS = re.compile(
    r"(?<![\w.>])(pthread_\w+|thrd_\w+|mtx_\w+|cnd_\w+|f?open|fdopen|f?read|f?write|fclose|mmap"
    r"|socket|clock_gettime|gettimeofday|time|nanosleep|usleep|sleep|(secure_)?getenv|system|popen"
    r"|fork|stk_thread_\w+|stk_clock_\w+|stk_io_\w+)\s*\(")


def check_rows(root):
    """Room -> its row; and findings of the list itself."""
    rows, wrong = rooms.read_rows(root)
    findings = [(number, "row", "write `room (mark): rooms`") for number in wrong]
    listed, floors = {}, []
    for row in rows:
        floor = rooms.floor_of(row.room)
        if floor not in floors:
            floors.append(floor)
        elif floor != floors[-1]:
            findings.append((row.line, "floor", f"move '{row.room}' to the rooms of its floor: "
                             f"'{floors[-1]}' stands between"))
        if row.room in listed:
            findings.append((row.line, "row", f"'{row.room}' has a row above"))
        unknown = row.marks - rooms.MARKS
        if unknown:
            findings.append((row.line, "row", f"no such mark: {', '.join(sorted(unknown))}"))
        for lower in row.lower:
            advice = check_lower(row, lower, listed)
            if advice:
                findings.append((row.line, *advice))
        listed[row.room] = row
    return listed, [(f"{rooms.LAYERS}:{line}", rule, advice) for line, rule, advice in findings]


def check_lower(row, lower, listed):
    if lower not in listed:
        return "order", f"'{row.room}' names {lower}, not listed above it"
    if "test" in listed[lower].marks and "test" not in row.marks:
        return "layer", f"'{lower}' is for tests only; take it from '{row.room}'"
    if "pure" in row.marks and "pure" not in listed[lower].marks and \
            rooms.floor_of(lower) != "base":
        return "pure", f"'{row.room}' is pure, '{lower}' is not"
    return None


def includes(path):
    """Line, and what is included by its name in the tree or, in <>, of the system."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match[1] or match[2], match[1] is not None


def check_room(root, path, listed, used):
    room = rooms.room_of(root, path)
    if room is None or room.count("/") > 1:
        yield 1, "room", "put it into src/FLOOR or src/FLOOR/ROOM"
        return
    if room not in listed:
        yield 1, "room", f"list '{room}' in {rooms.LAYERS}"
        return
    is_test = path.stem.endswith(("_test", "_fuzz"))
    may = {room, *listed[room].lower}
    if is_test:
        may |= {"test"} | {row.room for row in listed.values() if "test" in row.marks}
    for number, target, own in includes(path):
        lower = target.rpartition("/")[0]
        if not own or PUBLIC.fullmatch(target):
            continue
        if not lower or ".." in target:
            yield number, "path", f'write "room/file.h", not "{target}"'
        elif lower not in may:
            yield number, "layer", f"'{room}' may not include '{target}'; see {rooms.LAYERS}"
        used[room].add(lower)
    if "pure" in listed[room].marks and not is_test:
        yield from check_pure(path, room)


def check_pure(path, room):
    for number, target, own in includes(path):
        system = not own and IMPURE_HEADERS.fullmatch(target.removesuffix(".h"))
        if system or target in IMPURE_ROOM_HEADERS:
            yield number, "pure", f"'{room}' is pure: it may not include '{target}'"
    code = tidy.blank(path.read_text(encoding="utf-8"))
    for match in IMPURE_CALLS.finditer(code):
        yield (code.count("\n", 0, match.start()) + 1, "pure",
               f"'{room}' is pure: it may not call '{match[1]}'")


def check_used(listed, used):
    """Rows without files, and permissions that nothing needs."""
    for row in listed.values():
        if row.room not in used:
            yield row.line, "room", f"'{row.room}' has no files; take the row out"
        for lower in row.lower:
            if lower in listed and row.room in used and lower not in used[row.room]:
                yield row.line, "unused", f"'{row.room}' includes nothing of '{lower}'; take it out"


def check_user(path):
    """Code outside of the library: the public headers, and files of its own folder."""
    for number, target, own in includes(path):
        public = PUBLIC.fullmatch(target)
        if (own and not public and not (path.parent / target).is_file()
                or not own and target.startswith("stoker/") and not public):
            yield number, "layer", f"only <stoker/....h> may be seen from here, not '{target}'"


def check_floors(root, listed):
    """Each Python test stands in scripts/floors.txt, each name there is one, and each floor has a
    row."""
    path = root / rooms.FLOORS
    if not path.exists():
        return
    tests = {path.name for path in (root / "python/tests").glob("test_*.py")}
    named, tested, nested = set(), set(), any("/" in room for room in listed)
    for line, floor, names in rooms.read_floors(root):
        known = {"python"} | {part for room in listed for part in (room, rooms.floor_of(room))}
        if nested and floor not in known:
            yield line, "floor", f"no floor '{floor}' in {rooms.LAYERS}"
        for name in names:
            if name not in tests:
                yield line, "floor", f"no python/tests/{name}"
        named |= set(names)
        tested.add(rooms.floor_of(floor))
    for floor in dict.fromkeys(map(rooms.floor_of, listed)) if nested else ():
        if floor not in tested and (root / "src" / floor).is_dir():
            yield 1, "floor", f"say which Python tests a change in '{floor}' can break"
    for name in sorted(tests - named):
        yield 1, "floor", f"say which floor python/tests/{name} tests"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1
                        else pathlib.Path(__file__).parent.parent).resolve()
    listed, findings = check_rows(root)
    used = defaultdict(set)
    files = [path for path in sorted((root / "src").rglob("*.[ch]"))
             if path.relative_to(root / "src").parts[0] != "test"]
    users = [path for folder in ("include", "python", "examples")
             for path in sorted((root / folder).rglob("*.[ch]"))]
    for path in files:
        used[rooms.room_of(root, path)]
        for number, rule, advice in check_room(root, path, listed, used):
            findings.append((f"{path.relative_to(root)}:{number}", rule, advice))
    for path in users:
        for number, rule, advice in check_user(path):
            findings.append((f"{path.relative_to(root)}:{number}", rule, advice))
    findings += [(f"{rooms.LAYERS}:{line}", rule, advice)
                 for line, rule, advice in check_used(listed, used)]
    findings += [(f"{rooms.FLOORS}:{line}", rule, advice)
                 for line, rule, advice in check_floors(root, listed)]
    for place, rule, advice in findings:
        print(f"{place}: {rule}: {advice}")
    print(f"layers: {len(files) + len(users)} files, {len(findings)} findings")
    return bool(findings)


if __name__ == "__main__":
    sys.exit(main())
