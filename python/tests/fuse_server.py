"""A read-only folder behind FUSE: logs each request, and can stop answering.

usage: fuse_server.py FOLDER POINT LOG [--type NAME] [--max-read BYTES] [--delay MS] [--threads N]
           [--block BYTES]

Implements the kernel's protocol itself (linux/fuse.h), so it needs root and /dev/fuse, and no
library. The log has a line "OPERATION path" for each request; LOG.reads has a line "OFFSET BYTES
path" for each read. While the file LOG.silent exists, the server answers nothing; while
LOG.broken.NAME exists, reads of files with this name fail with EIO. N threads answer (default 1);
--block is the st_blksize of files. The process ends with the mount, and unmounts when
it ends. :class:`Mount` runs it for a test.
"""

from __future__ import annotations

import argparse
import collections
import ctypes
import errno
import os
import pathlib
import stat
import struct
import subprocess
import sys
import threading
import time

HEADER, REPLY = struct.Struct("<IIQQIIII"), struct.Struct("<IiQ")
ATTR, BUFFER_BYTES, PAGES_MAX = struct.Struct("<6Q10I"), 1 << 21, 256
NAMES = {
    1: "lookup", 2: "forget", 3: "getattr", 5: "readlink", 14: "open", 15: "read", 17: "statfs",
    18: "release", 22: "getxattr", 23: "listxattr", 25: "flush", 26: "init", 27: "opendir",
    28: "readdir", 29: "releasedir", 34: "access", 36: "interrupt", 42: "forgets", 46: "lseek",
    52: "statx",
}  # fmt: skip
UNANSWERED = {"forget", "forgets", "interrupt"}
ASYNC_READ, ALLOW_PAGES, DETACH, KEEP_CACHE = 1, 1 << 22, 2, 2


class Server:
    def __init__(self, options):
        self.options = options
        self.paths = {1: options.folder}
        self.nodes = {options.folder: 1}
        self.log, self.reads = (
            os.open(options.log + end, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            for end in ("", ".reads")
        )
        self.fuse = os.open("/dev/fuse", os.O_RDWR)
        words = f"fd={self.fuse},rootmode=40000,user_id=0,group_id=0,allow_other"
        words += f",max_read={options.max_read}" if options.max_read else ""
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mount(b"counted", options.point.encode(), options.type.encode(), 1, words.encode()):
            raise OSError(ctypes.get_errno(), "mount")

    def run(self):
        others = [threading.Thread(target=self.loop) for _ in range(self.options.threads - 1)]
        for other in others:
            other.start()
        self.loop()

    def loop(self):
        while True:
            try:
                data = os.read(self.fuse, BUFFER_BYTES)
            except OSError as error:
                if error.errno == errno.ENODEV:  # no mount any more
                    return
                continue
            self.serve(data)

    def serve(self, data):
        _, code, unique, node, *_ = HEADER.unpack_from(data)
        name = NAMES.get(code, str(code))
        path, body = self.paths.get(node, ""), data[HEADER.size :]
        reported = body.split(b"\0")[0].decode() if name == "lookup" else ""
        full = f"{path}/{reported}" if reported else path or self.options.folder
        os.write(self.log, f"{name} {os.path.relpath(full, self.options.folder)}\n".encode())
        while os.path.exists(self.options.log + ".silent"):
            time.sleep(0.05)
        if self.options.delay:
            time.sleep(self.options.delay / 1000)
        if name in UNANSWERED:
            return
        try:
            answer, error = getattr(self, name, self.unknown)(full, body), 0
        except OSError as failure:
            answer, error = b"", failure.errno
        reply = REPLY.pack(REPLY.size + len(answer), -error, unique) + answer
        try:
            os.write(self.fuse, reply)
        except OSError as failure:
            if failure.errno != errno.ENOENT:  # the request was interrupted
                raise

    def unknown(self, path, body):
        raise OSError(errno.ENOSYS, path)

    def init(self, path, body):
        flags = struct.unpack_from("<4I", body)[3] & (ASYNC_READ | ALLOW_PAGES)
        return struct.pack(
            "<4I2H2I2H8I", 7, 31, 1 << 20, flags, 64, 48, 1 << 20, 1, PAGES_MAX, 0, *[0] * 8
        )

    def node(self, path):
        if path not in self.nodes:
            self.nodes[path] = len(self.nodes) + 1
            self.paths[self.nodes[path]] = path
        return self.nodes[path]

    def is_away(self, path):
        """True if the file's bytes are "in an archive": Mount.send_away names the files; a read
        restores the bytes."""
        mark = f"{self.options.log}.away.{os.path.basename(path)}"
        return os.path.exists(mark) and not os.path.isdir(path)

    def attributes(self, path):
        about = os.stat(path)
        blocks = 0 if self.is_away(path) else (about.st_size + 511) // 512
        times = about.st_atime_ns, about.st_mtime_ns, about.st_ctime_ns
        return ATTR.pack(
            self.node(path), about.st_size, blocks, *(t // 10**9 for t in times),
            *(t % 10**9 for t in times), about.st_mode, about.st_nlink, about.st_uid, about.st_gid,
            0, self.options.block, 0,
        )  # fmt: skip

    def lookup(self, path, body):
        attributes = self.attributes(path)
        return struct.pack("<QQQQII", self.node(path), 0, 0, 0, 0, 0) + attributes

    def getattr(self, path, body):
        return struct.pack("<QII", 0, 0, 0) + self.attributes(path)

    def open(self, path, body):
        return struct.pack("<QII", os.open(path, os.O_RDONLY), KEEP_CACHE, 0)

    def opendir(self, path, body):
        return struct.pack("<QII", 0, 0, 0)

    def readdir(self, path, body):
        offset, most = struct.unpack_from("<QQI", body)[1:]
        out = b""
        for at, name in enumerate(sorted(os.listdir(path))[offset:], offset + 1):
            raw = name.encode()
            kind = stat.S_IFMT(os.stat(f"{path}/{name}").st_mode) >> 12
            entry = struct.pack("<QQII", self.node(f"{path}/{name}"), at, len(raw), kind) + raw
            entry += b"\0" * (-len(entry) % 8)
            if len(out) + len(entry) > most:
                break
            out += entry
        return out

    def read(self, path, body):
        handle, offset, most = struct.unpack_from("<QQI", body)
        name = os.path.relpath(path, self.options.folder)
        os.write(self.reads, f"{offset} {most} {name}\n".encode())
        if os.path.exists(f"{self.options.log}.broken.{os.path.basename(path)}"):
            raise OSError(errno.EIO, path)
        if self.is_away(path):
            os.unlink(f"{self.options.log}.away.{os.path.basename(path)}")
        return os.pread(handle, most, offset)

    def release(self, path, body):
        os.close(struct.unpack_from("<Q", body)[0])
        return b""

    def releasedir(self, path, body):
        return b""

    flush = access = releasedir

    def statfs(self, path, body):
        about = os.statvfs(path)
        sizes = about.f_blocks, about.f_bfree, about.f_bavail, about.f_files, about.f_ffree
        return struct.pack("<5Q10I", *sizes, about.f_bsize, 255, about.f_frsize, *[0] * 7)


class Mount:
    """A mount for a test: a context manager that returns itself."""

    def __init__(self, folder, point, type="fuse", max_read=0, delay=0, threads=1, block=4096):
        self.point, self.log = pathlib.Path(point), pathlib.Path(str(point) + ".log")
        self.point.mkdir()
        words = [sys.executable, __file__, folder, point, self.log, "--type", type]
        words += ["--max-read", max_read, "--delay", delay, "--threads", threads, "--block", block]
        self.server = subprocess.Popen([str(word) for word in words])

    @staticmethod
    def is_possible():
        return os.geteuid() == 0 and os.access("/dev/fuse", os.R_OK | os.W_OK)

    def __enter__(self):
        deadline = time.monotonic() + 10
        while not self.requests()["init"]:
            assert self.server.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        return self

    def __exit__(self, *_):
        self.server.kill()  # waiting requests fail with ENOTCONN
        self.server.wait()
        ctypes.CDLL(None).umount2(str(self.point).encode(), DETACH)

    def send_away(self, *names):
        for name in names:
            pathlib.Path(f"{self.log}.away.{name}").touch()

    def break_file(self, name):
        pathlib.Path(f"{self.log}.broken.{name}").touch()

    def requests(self):
        """How many of each operation there were."""
        try:
            lines = self.log.read_text().splitlines()
        except FileNotFoundError:
            lines = []
        return collections.Counter(line.split(" ", 1)[0] for line in lines)

    def reads(self, end=""):
        """Offset and bytes of each read of files whose names end so."""
        lines = pathlib.Path(f"{self.log}.reads").read_text().splitlines()
        return [tuple(map(int, line.split(" ")[:2])) for line in lines if line.endswith(end)]

    def forget(self):
        os.truncate(self.log, 0)
        os.truncate(f"{self.log}.reads", 0)

    def silent(self, on):
        mark = pathlib.Path(str(self.log) + ".silent")
        mark.touch() if on else mark.unlink(missing_ok=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for word in ("folder", "point", "log"):
        parser.add_argument(word)
    parser.add_argument("--type", default="fuse")
    parser.add_argument("--max-read", type=int, default=0)
    parser.add_argument("--delay", type=float, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--block", type=int, default=4096)
    Server(parser.parse_args()).run()
