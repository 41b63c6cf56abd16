#!/usr/bin/env python3
"""Hold each JPEG of this machine against libjpeg-turbo; count those that are left to it, and why.

usage: found.py [--program build/found_test] [--keep FOLDER] [ROOT ...]

ROOTs (default: what Debian and pip packages install into) are walked without leaving their file
systems: files that begin as a JPEG does, whatever their names, and JPEGs inside of zips (jars,
wheels, office documents), tars and PDFs. Each content counts once. The program
(src/decode/jpeg/jpeg_found_test.c) decodes each whole and in boxes at its corners. Exits with 1
where a sample
differs.
"""
import argparse
import gzip
import hashlib
import io
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib

ROOTS = ("/usr", "/opt", "/root", "/home", "/var", "/srv", "/etc")
MAGIC = b"\xff\xd8\xff"
ARCHIVE_BYTES_MAX = 1 << 30
MEMBER_BYTES_MAX = 64 << 20
TARS = (".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz", ".gem", ".crate")
PDF_STREAM = re.compile(rb"stream\r?\n(\xff\xd8\xff.*?)\r?\n?endstream", re.DOTALL)


class Finder:
    """JPEGs by their content, each written once."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.seen = set()
        self.counts = {"file": 0, "archive": 0, "pdf": 0}
        self.unread = 0

    def keep(self, kind, name, content):
        key = hashlib.sha256(content).hexdigest()
        if content[:3] == MAGIC and key not in self.seen:
            self.seen.add(key)
            self.counts[kind] += 1
            plain = re.sub(r"[^A-Za-z0-9._-]+", "_", name)[-150:]
            (self.folder / f"{kind}-{key[:8]}-{plain}").write_bytes(content)

    def look_into(self, name, content, depth=0):
        """An archive or PDF, its members too."""
        lower = name.lower()
        if content[:2] == b"\x1f\x8b" and not lower.endswith((".tgz", ".tar.gz")):
            content = gzip.decompress(content[:ARCHIVE_BYTES_MAX])
        if content[:4] == b"PK\3\4":
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                members = [m for m in archive.infolist() if m.file_size <= MEMBER_BYTES_MAX]
                for member in members:
                    self.member(f"{name}!{member.filename}", archive.read(member), depth)
        elif lower.endswith(TARS):
            with tarfile.open(fileobj=io.BytesIO(content)) as archive:
                for member in archive:
                    if member.isfile() and member.size <= MEMBER_BYTES_MAX:
                        self.member(f"{name}!{member.name}", archive.extractfile(member).read(),
                                    depth)
        elif content[:5] == b"%PDF-":
            for match in PDF_STREAM.finditer(content):
                self.keep("pdf", name, match[1])

    def member(self, name, content, depth):
        if content[:3] == MAGIC:
            self.keep("archive", name, content)
        elif depth < 3 and (content[:4] in (b"PK\3\4", b"%PDF") or name.lower().endswith(TARS)):
            self.look_into(name, content, depth + 1)

    def file(self, path):
        try:
            size = os.path.getsize(path)
            with open(path, "rb") as file:
                head = file.read(5)
                if head[:3] == MAGIC and size <= MEMBER_BYTES_MAX:
                    self.keep("file", path, head + file.read())
                elif size <= ARCHIVE_BYTES_MAX and (
                        head[:4] == b"PK\3\4" or head == b"%PDF-" or
                        path.lower().endswith(TARS + (".pdf.gz",))):
                    self.look_into(path, head + file.read())
        except (OSError, EOFError, RuntimeError, NotImplementedError, zipfile.BadZipFile,
                tarfile.TarError, ValueError, zlib.error):
            self.unread += 1




def walk(finder, root):
    device = os.lstat(root).st_dev
    for folder, names, files in os.walk(root):
        names[:] = [n for n in names if not os.path.islink(f"{folder}/{n}") and
                    os.lstat(f"{folder}/{n}").st_dev == device]
        for name in files:
            path = f"{folder}/{name}"
            if not os.path.islink(path) and os.path.isfile(path):
                finder.file(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("roots", nargs="*", metavar="ROOT")
    parser.add_argument("--program", default="build/found_test")
    parser.add_argument("--keep", help="a folder for the pictures found in archives")
    args = parser.parse_args()
    if not os.access(args.program, os.X_OK):
        sys.exit(f"found: no program {args.program}: build it (ninja -C build), or give --program")
    with tempfile.TemporaryDirectory(prefix="found-") as scratch:
        finder = Finder(args.keep or scratch)
        finder.folder.mkdir(exist_ok=True)
        for root in args.roots or [root for root in ROOTS if os.path.isdir(root)]:
            print(f"found: {root}", file=sys.stderr, flush=True)
            walk(finder, root)
        counts = ", ".join(f"{count} in {kind}s" if kind != "file" else f"{count} files"
                           for kind, count in finder.counts.items())
        print(f"{len(finder.seen)} JPEGs: {counts}; {finder.unread} files could not be read")
        sys.stdout.flush()
        if finder.seen:
            sys.exit(subprocess.run([args.program, str(finder.folder)], check=False).returncode)


if __name__ == "__main__":
    main()
