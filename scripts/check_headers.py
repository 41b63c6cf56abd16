#!/usr/bin/env python3
"""Compile each public header by itself, as C17 and as C++11.

usage: check_headers.py [FOLDER]      default: include

Goal: a program may include any public header alone, in C and in C++. CC and CXX name the compilers.
"""
import os
import pathlib
import shutil
import subprocess
import sys

WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only"]
LANGUAGES = [("C", "CC", "cc", ["-std=c17", "-x", "c"]),
             ("C++", "CXX", "c++", ["-std=c++11", "-x", "c++"])]


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else
                          pathlib.Path(__file__).parent.parent / "include")
    headers = sorted(folder.glob("stoker/*.h"))
    findings = []
    for name, variable, default, words in LANGUAGES:
        compiler = os.environ.get(variable, default).split()
        if not shutil.which(compiler[0]):
            print(f"headers: there is no {name} compiler {compiler[0]}: skipped")
            continue
        for header in headers:
            done = subprocess.run([*compiler, *words, *WARNINGS, f"-I{folder}", "-"], text=True,
                                  input=f"#include <stoker/{header.name}>\nint unit(void);\n",
                                  capture_output=True)
            if done.returncode:
                lines = done.stderr.splitlines()
                reason = next((line for line in lines if "error:" in line), lines[:1])
                findings.append(f"{header}:0: alone: does not compile as {name}: {reason}")
    print(*findings, sep="\n", end="\n" if findings else "")
    print(f"headers: {len(headers)} headers, {len(findings)} findings")
    return bool(findings) or not headers


if __name__ == "__main__":
    sys.exit(main())
