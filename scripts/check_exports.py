#!/usr/bin/env python3
"""Compare what libstoker.so exports with what the public headers declare.

And whether null_error_test.c names each public function with an error.

usage: check_exports.py LIBRARY [HEADER...]      default: every header in include/stoker
"""
import pathlib
import re
import subprocess
import sys


def declared(header):
    text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", header.read_text(), flags=re.S)
    text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", "", text, flags=re.M)
    return set(re.findall(r"\bSTOKER_API\b[^;(]*?(\w+)\s*\(", text))


def exported(library):
    table = subprocess.run(["nm", "-D", "--defined-only", library], check=True,
                           capture_output=True, text=True).stdout
    return {line.split()[-1].split("@")[0] for line in table.splitlines()}


def untested(headers):
    """Functions with an error that no null_error*_test.c calls: a call must return the same
    status without the error struct, and a state machine that failed must fail again."""
    root = pathlib.Path(__file__).parent.parent
    tests = "".join(path.read_text() for path in (root / "src").glob("**/null_error*_test.c"))
    for header in headers:
        text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.S)
        for call in re.findall(r"STOKER_API\s+([^;]*);", text):
            if "stoker_error *error" in call:
                name = re.search(r"(\w+)\(", call)[1]
                if not re.search(rf"ROW\({name}\)", tests):
                    yield f"{header}:0: null error: add '{name}' to null_error_test.c"
                if name.endswith("_next") and f"T_AGAIN({name}," not in tests:
                    yield (f"{header}:0: again: test in null_error_test.c that '{name}' fails "
                           "again after a failure (T_AGAIN)")


def main():
    library, *headers = sys.argv[1:]
    headers = [pathlib.Path(header) for header in headers] or sorted(
        (pathlib.Path(__file__).parent.parent / "include/stoker").glob("*.h"))
    have = exported(library)
    want = {name: header for header in headers for name in declared(header)}
    findings = []
    for name in sorted(have - want.keys()):
        reason = "declare it with STOKER_API" if name.startswith("stoker_") else "hide it"
        findings.append(f"{library}:0: exported: '{name}' is exported; {reason}")
    for name in sorted(want.keys() - have):
        findings.append(f"{want[name]}:0: missing: '{name}' is declared and not exported; "
                        "define it")
    findings += untested(headers)
    print(*findings, sep="\n", end="\n" if findings else "")
    print(f"exports: {len(have)} names, {len(findings)} findings")
    return bool(findings)


if __name__ == "__main__":
    sys.exit(main())
