#!/usr/bin/env python3
"""Compare two builds of stoker: the same commands on the same data give the same files and values.

usage: compare_builds.py OLD NEW [--verbose]
  OLD, NEW   build folders, with the command 'stoker' and the package in 'python'

Each line of commands.txt runs with each build, on fresh copies of the same data at the same path.
Compared are the exit code, the keys and values of JSON lines (but for times, rates and sentences),
samples and bytes that are printed, and every byte of every file that the command leaves. OLD gets
options in their old spelling; NEW gets both spellings. python_cases.py compares batches and states
of loaders. Commands name an order, because the defaults have changed. known.txt has the differences
that CHANGELOG.md announces since OLD = 101d48b, each with its reason; it must match a difference
each time. Exits with 1 if anything else differs.
"""
import hashlib
import itertools
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
# Options by their new name, as the build before decision 52 spells them.
RENAMED = {"--filesystem": "--mount", "--foreign-index": "--foreign", "--seek-points": "--access",
           "--jpeg-index": "--jpeg-rows", "--network-fs-threads": "--far-threads",
           "--keep-unverified": "--keep-unproven", "--no-clobber": "--fresh",
           "--unfinished-uploads": "--uploads", "--older-than": "--older", "--scenario": "--run",
           "--random-runs": "--histories", "--world-size": "--world", "--world-sizes": "--worlds",
           "--single-source-steps": "--single", "--window-blocks": "--window",
           "--home-groups": "--groups", "--staging-dir": "--stage", "--chunk-size": "--piece",
           "--repeat-distance": "--repeats-apart"}
# Options that the old build does not have: it always does what they say.
ADDED = {"--keep-order"}
# Keys of JSON that later changes added.
ADDED_KEYS = {"random_reads_free", "mixing", "system_files", "system_files_left_out",
              "skipped_system", "skipped_links", "skipped_special", "skipped_unnamed", "left_out",
              "failures", "not_deleted", "order", "seed"}
# Values that differ from run to run, and sentences.
VOLATILE = re.compile(
    r"(_ms|_us|_ns|_s|seconds|time|per_second|rate|mb_s|memory\w*|cpu\w*|peak\w*|\w*_peak|wait\w*"
    r"|notes?|message|what|advice|error|version|findings?|text|why|resident\w*|cached\w*"
    r"|cold\w*|shares|\w*_reads|io_\w*s|device|inode|pid|start\w*|elapsed\w*|threads|\w*_free)$")

# Counters that `bench` prints include what workers decode ahead of the last batch: of 150 runs of
# one build, some 5 count images of the next epoch, and the others none.
READ_AHEAD = {"jpegs", "pngs"}


def clean(value):
    """A JSON value without what differs from run to run."""
    if isinstance(value, dict):
        return {key: "-" if VOLATILE.search(key) and (key == "shares" or
                                                      not isinstance(item, (dict, list)))
                else clean(item) for key, item in value.items()}
    return [clean(item) for item in value] if isinstance(value, list) else value


def compared_output(out, words):
    """The part of the output that is data: JSON by keys, samples and bytes by their digest."""
    if "--json" in words:
        lines = []
        for line in out.decode(errors="replace").splitlines():
            try:
                values = clean(json.loads(line))
                if words[0] == "bench":
                    values |= {key: sorted(values[key]) for key in READ_AHEAD if key in values}
                lines.append(values)
            except ValueError:
                lines.append(line)
        return lines
    if words[0] in ("ls", "cat") or "--at" in words or "--find" in words:
        return hashlib.sha256(out).hexdigest()
    return None


def files_below(folder):
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = os.readlink(path)
        elif not path.is_file():
            found[name] = "folder"
        else:  # a stamp holds times and numbers of inodes
            found[name] = ("stamp" if name.endswith(".stamp") else
                           hashlib.sha256(path.read_bytes()).hexdigest())
    return found


def without_added(new, old):
    """A JSON value of the new build without the keys that the old one does not have yet."""
    if isinstance(new, dict) and isinstance(old, dict):
        if "shuffle" in new and "kind" in new:  # info: the default order has changed
            new = new | {"shuffle": old.get("shuffle")}
        return {key: without_added(value, old.get(key)) for key, value in new.items()
                if key in old or key not in ADDED_KEYS}
    if isinstance(new, list) and isinstance(old, list) and len(new) == len(old):
        return [without_added(a, b) for a, b in zip(new, old, strict=True)]
    return new


def differences(old, new, path=""):
    """(path, old, new) of each value of two JSON documents that differs."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in {**old, **new}:
            yield from differences(old.get(key), new.get(key), f"{path}.{key}")
    elif isinstance(old, list) and isinstance(new, list):
        for at, (one, other) in enumerate(itertools.zip_longest(old, new)):
            yield from differences(one, other, f"{path}[{at}]")
    elif old != new:
        yield path, old, new


def old_spelling(words):
    def one(word):
        name, equals, value = word.partition("=")
        return RENAMED.get(name, name) + equals + value if word.startswith("--") else word
    return [one(word) for word in words]


class Comparison:
    """Runs commands in fresh copies of the data, and counts differences."""

    def __init__(self, home, verbose):
        self.home, self.verbose = home, verbose
        self.made, self.folder = home / "made", home / "work"
        self.differences = self.runs = 0
        rows = [line.split("\t") for line in (HERE / "known.txt").read_text().splitlines()
                if line and not line.startswith("#")]
        self.known = {(re.compile(name), re.compile(path)): reason for name, path, reason in rows}
        self.met = set()
        self.environment = {
            "PATH": os.environ["PATH"], "HOME": str(home / "home"), "LC_ALL": "C.UTF-8",
            "XDG_CACHE_HOME": str(home / "cache"), "AWS_EC2_METADATA_DISABLED": "true",
            "NO_COLOR": "1"}
        self.made.mkdir()
        subprocess.run([sys.executable, str(HERE / "make_data.py")], cwd=self.made, check=True)

    def run(self, command, more=None):
        self.runs += 1
        shutil.rmtree(self.home / "cache", ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.made, self.folder, symlinks=True)
        return subprocess.run(command, cwd=self.folder, env=self.environment | (more or {}),
                              timeout=300, stdin=subprocess.DEVNULL, capture_output=True)

    def look(self, name, first, second):
        if first == second:
            if self.verbose:
                print("same", name)
            return
        found = list(differences(first, second)) or [("", first, second)]
        for path, old, new in list(found):
            for pattern in self.known:
                if pattern[0].fullmatch(name) and pattern[1].fullmatch(path):
                    self.met.add(pattern)
                    found.remove((path, old, new))
                    break
        if not found:
            print("known", name)
            return
        self.differences += 1
        print("DIFFERENT", name)
        for path, old, new in found:
            print("   -", path, str(old)[:1000], "\n   +", path, str(new)[:1000])

    def command(self, old, new, line):
        words = shlex.split(line.replace("DATA", "data").replace("OUT", "out"))
        variants = [(old, [word for word in old_spelling(words) if word not in ADDED]),
                    (new, words)]
        if old_spelling(words) != words:
            variants.append((new, old_spelling(words)))
        results = []
        for build, these in variants:
            done = self.run([str(build / "stoker"), *these])
            results.append({"exit": done.returncode, "files": files_below(self.folder),
                            "output": compared_output(done.stdout, these)})
        for number, result in enumerate(results[1:]):
            for part, value in result.items():
                value = without_added(value, results[0][part]) if part == "output" else value
                self.look(f"{line}: {part}" + (" (old spelling)" if number else ""),
                          results[0][part], value)

    def python(self, old, new):
        lines = []
        for build in (old, new):
            done = self.run([sys.executable, str(HERE / "python_cases.py")],
                            {"PYTHONPATH": str(build / "python")})
            lines.append(done.stdout.decode().splitlines())
            self.look(f"python in {build}: exit", 0, done.returncode)
            if done.returncode or self.verbose:
                print(done.stderr.decode()[-3000:])
        self.look("python", *lines)


def main():
    old, new = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
    lines = [line for line in (HERE / "commands.txt").read_text().splitlines()
             if line and not line.startswith("#")]
    with tempfile.TemporaryDirectory(prefix="compare") as home:
        comparison = Comparison(pathlib.Path(home), "--verbose" in sys.argv)
        for line in lines:
            comparison.command(old, new, line)
        comparison.python(old, new)
    for pattern, reason in comparison.known.items():
        if pattern not in comparison.met:
            print(f"known.txt: '{pattern[0].pattern}' no longer differs: {reason}")
            comparison.differences += 1
    print(f"compared: {len(lines) + 1} cases, {comparison.runs} runs, "
          f"{comparison.differences} differences")
    return bool(comparison.differences)


if __name__ == "__main__":
    sys.exit(main())
