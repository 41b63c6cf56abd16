"""Shared by the demo's programs: a live line, places, results.

They import it before everything else: then Ctrl-C ends them at once and without a traceback, also
while they are still importing NumPy.
"""
import json
import os
import pathlib
import shutil
import signal
import sys
import time

signal.signal(signal.SIGINT, signal.SIG_DFL)
HOME = pathlib.Path(__file__).resolve().parents[2] / ".demo"
DATA = HOME / "data"


class Line:
    """One line that is rewritten in place; if stdout is no terminal, one every few seconds."""

    def __init__(self):
        self.live = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        self.shown = 0.0

    def show(self, text):
        now = time.monotonic()
        if now - self.shown < (0.1 if self.live else 5):
            return
        self.shown = now
        if self.live:  # cut: a wrapped line cannot be rewritten
            text = text[:shutil.get_terminal_size().columns - 3]
        print(f"\r\033[K  {text}" if self.live else f"  {text}",
              end="" if self.live else "\n", flush=True)

    def end(self, text):
        print(f"\r\033[K  {text}" if self.live else f"  {text}", flush=True)


def bar(share, width=12):
    full = round(max(0.0, min(1.0, share)) * width)
    return "#" * full + "." * (width - full)


def save(name, **facts):
    """Keeps the result of one part for the summary."""
    (HOME / f"result-{name}.json").write_text(json.dumps(facts, indent=1) + "\n")


def load(name):
    path = HOME / f"result-{name}.json"
    return json.loads(path.read_text()) if path.exists() else {}
