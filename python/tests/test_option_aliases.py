"""Spellings of options and commands of earlier versions: hidden aliases of the new ones.

Method: each command runs once with the old spelling and once with the new one; exit status and
output are the same, and the option is not "unknown". The help lists only the new spelling.
"""

import os
import re
import subprocess

import pytest

import make

COMMAND = os.environ.get("STOKER_COMMAND", "stoker")
PLANNED = ("--samples", "96", "--block-samples", "4", "--batch", "8")

# command, old words, new words, further words; {t}: a tar, {d}: a folder of the test
ALIASES = [
    ("info", ["--mount"], ["--filesystem"], ["--json", "{t}"]),
    ("prewarm", ["--piece", "1M"], ["--chunk-size", "1M"], ["--check", "{t}"]),
    ("cp", ["--fresh"], ["--no-clobber"], ["{t}", "{t}"]),
    ("sync", ["--fresh"], ["--no-clobber"], ["{d}/none", "{d}/to"]),
    ("rm", ["--uploads", "--older", "5"], ["--unfinished-uploads", "--older-than", "5"],
     ["-y", "{t}"]),
    ("bench store", ["--at-once", "0"], ["--concurrency", "0"], ["{t}"]),
    ("verify", ["--keep-unproven"], ["--keep-unverified"], ["{t}"]),
    ("pack", ["--stage", "{d}"], ["--staging-dir", "{d}"], ["{t}", "{d}/out"]),
    ("info", ["--window", "3", "--groups", "2"], ["--window-blocks", "3", "--home-groups", "2"],
     ["--json", "{t}"]),
    ("bench", ["--window", "0"], ["--window-blocks", "0"], ["{t}"]),
    ("bench", ["--groups", "0"], ["--home-groups", "0"], ["{t}"]),
    ("order", ["--window", "3", "--groups", "2", "--world", "2"],
     ["--window-blocks", "3", "--home-groups", "2", "--world-size", "2"],
     [*PLANNED, "--at", "1", "--json"]),
    ("order", ["--worlds", "1,2", "--histories", "2", "--run", "4x2:3-1,2x2"],
     ["--world-sizes", "1,2", "--random-runs", "2", "--scenario", "4x2:3-1,2x2"],
     [*PLANNED, "--verify", "--json"]),
    ("order", ["--diff", "window=2,groups=2,world=2,seed=1"],
     ["--diff", "window-blocks=2,home-groups=2,world-size=2,seed=1"], [*PLANNED, "--json"]),
    ("order", ["--repeats-apart", "3"], ["--repeat-distance", "3"],
     ["--repeats", "2", "--batch", "2", "--at", "0", "--json", "{t}"]),
    ("order", ["--single"], ["--single-source-steps"],
     ["--mix", "1,2", "--batch", "2", "--at", "0", "--json", "{t}", "{t}"]),
    *((command, ["--foreign", "never"], ["--foreign-index", "never"], [*more, "{t}"])
      for command, more in (("ls", ()), ("info", ("--json",)), ("sample", ()),
                            ("order", ("--batch", "2", "--at", "0", "--json")))),
    ("cat", ["--foreign", "never"], ["--foreign-index", "never"], ["{t}", "1.cls"]),
    ("index", ["--access=64K", "--jpeg-rows=2"], ["--seek-points=64K", "--jpeg-index=2"],
     ["--force", "--out", "{d}/i", "{t}"]),
    ("index", ["--access=1"], ["--seek-points=1"], ["{t}"]),
    ("pack", ["--jpeg-rows=1"], ["--jpeg-index=1"], ["{t}", "{d}/none"]),
    *((command, ["--far-threads", "2"], ["--network-fs-threads", "2"], ["--json", "{t}"])
      for command in ("ls", "info")),
    ("fault", ["--no-such"], ["--no-such"], []),
]


def run(*words):
    return subprocess.run([COMMAND, *map(str, words)], capture_output=True, text=True, timeout=60,
                          check=False)


def steady(text, root):
    """Without times, rates, random names and the folder of the run."""
    text = re.sub(r"stoker-[0-9a-f]{16}", "N", text.replace(str(root), ""))
    text = re.sub(r"\"[a-z_]*(identity|free|memory)[a-z_]*\": [^,}]*", "S", text)
    text = re.sub(r"\"[a-z_]*(seconds|_ns)\": ?[0-9.]+", "T", text)
    return re.sub(r" *[0-9.,]+ ?(µs|us|ms|s|[kKMG]?B/s)\b", "T", text)


@pytest.mark.parametrize("command, old, new, more", ALIASES,
                         ids=[f"{a[0]} {' '.join(a[1])}" for a in ALIASES])
def test_alias(tmp_path, command, old, new, more):
    seen = []
    for name, words in (("old", old), ("new", new)):
        root = tmp_path / name
        root.mkdir()
        make.tar(root / "t.tar", [(f"{i}.cls", str(i).encode()) for i in range(24)])
        fill = {"t": root / "t.tar", "d": root}
        called = "fault-proxy" if command == "fault" and name == "new" else command
        done = run(*called.split(), *(word.format(**fill) for word in [*words, *more]))
        assert "unknown option" not in done.stderr or command == "fault", done.stderr
        seen.append((done.returncode, steady(done.stdout, root), steady(done.stderr, root)))
    assert seen[0] == seen[1]


def test_help_has_only_new_names():
    for command, old, new, _ in ALIASES:
        text = run("help", *command.split()).stdout
        listed = set(re.findall(r"^  --([a-z-]+)", text, re.M))
        for words, is_listed in ((old, command == "fault"), (new, True)):
            for word in words:
                name = re.split("[=]", word)[0]
                if name.startswith("--") and name not in ("--diff", "--no-such"):
                    assert (name[2:] in listed) == is_listed, (command, name)
    overview = run("help").stdout
    assert "  fault-proxy " in overview and "  fault " not in overview
    assert run("help", "fault").stdout == run("help", "fault-proxy").stdout != ""


def test_creds_has_help():
    for words in (("creds", "--help"), ("creds", "explain", "-h"), ("help", "creds")):
        done = run(*words)
        assert done.returncode == 0 and "usage: stoker creds" in done.stdout, words
        assert "--json" in done.stdout and "--help" in done.stdout

