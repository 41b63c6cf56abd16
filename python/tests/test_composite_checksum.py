"""`cp` of a large object writes a file that matches the checksum of the whole object, or no file.

Method: test servers that flip a bit of the bytes that they send, or stop in the middle until the
command is killed; files that a run left are damaged on the disk. Then the file is exact, or there
is an error and no file; wrong bytes are not reused by the next run."""

import json
import os
import subprocess
import threading

import object_server
import pytest
from test_cli import COMMAND
from test_copy import PART, WAIT, await_true, random_bytes
from test_providers import clean  # noqa: F401
from test_checksums import reach, serve

SIZE = 2 * PART + 777  # three parts
DATA = random_bytes(SIZE, 7)


def faulty(server):
    """Flips a bit of byte `at`, `flips` times; a range that begins at `hold` is never sent."""
    class Faulty(server.RequestHandlerClass):
        def say(self, code, body=b"", **headers):
            span = headers.get("Content_Range", "bytes 0-").removeprefix("bytes ")
            begin, own = int(span.partition("-")[0]), self.server
            if self.command == "GET" and code in (200, 206) and len(body) > 1:
                if begin == own.hold:
                    own.go_on.wait(WAIT)
                with own.lock:
                    if begin <= own.at < begin + len(body) and own.flips:
                        own.flips -= 1
                        body = bytearray(body)
                        body[own.at - begin] ^= 4
            super().say(code, body, **headers)

    server.RequestHandlerClass = Faulty
    server.at, server.flips, server.hold, server.go_on = 5, 0, None, threading.Event()
    return server


def reached(clean, kind, server):  # noqa: F811
    server.host = "127.0.0.1"
    return f"{server.url}/data" if kind == "http" else reach(clean, kind, server)


def copy(*words, ok=0, part="5M", workers=1):
    done = subprocess.run([COMMAND, "cp", "--part-size", part, "--workers", str(workers), *words],
                          capture_output=True, text=True, timeout=WAIT, check=False)
    assert done.returncode == ok or (ok is None and done.returncode in (0, 1)), (
        done.returncode, done.stderr)
    return done.stderr


def left(target):
    """The partial files that killed or failed runs left, without their notes."""
    return [path for path in target.parent.glob(".stoker-*.part") if "-of" not in path.name]


def kill(server, source, target):
    """Two parts are written, the third never arrives, and then the command is killed."""
    server.hold = 2 * PART
    process = subprocess.Popen([COMMAND, "cp", "--part-size", "5M", "--workers", "1", source,
                                target])
    try:
        await_true(lambda: sum(path.stat().st_size for path in left(target)) == 2 * PART)
        # Behind its first line the note, where there is one, has the sum of each part.
        notes = list(target.parent.glob(".stoker-*-of.part"))
        await_true(lambda: all(note.stat().st_size == 3 * 17 for note in notes))
    finally:
        process.kill()
        process.wait()
        server.hold = None
        server.go_on.set()


@pytest.fixture
def target(tmp_path):
    (tmp_path / "to").mkdir()
    return tmp_path / "to/file"


MIB = 1 << 20
SMALL = 6 * MIB + 777
SHAPES = {  # checksum, sizes of the object's parts (0: written at once), part size of cp
    "sha256": ("sha256", 0, "5M"),
    "sha1": ("sha1", 0, "5M"),
    "sha256 of one part": ("sha256", 16 * MIB, "5M"),
    "sha1 of parts": ("sha1", 2 * MIB, "5M"),
    "crc32 of parts": ("crc32", 4 * MIB, "5M"),
    "crc32c of parts": ("crc32c", 4 * MIB, "5M"),
    "sha256, uneven": ("sha256", [MIB, 4 * MIB, SMALL - 5 * MIB], "5M"),
    "crc32, seems even": ("crc32", [5 * MIB // 2, 2 * MIB, SMALL - 9 * MIB // 2], "5M"),
    "crc32 of all, by ranges": ("crc32", 0, "5M"),
    "sha256 of parts, small": ("sha256", 5 * MIB, "8M"),
    "crc32, small, seems even": ("crc32", [5 * MIB // 2, 2 * MIB, SMALL - 9 * MIB // 2], "8M"),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes(clean, target, shape):  # noqa: F811
    """Damage is read again or an error, whatever the checksum is of; good bytes are no error."""
    name, parts, part = SHAPES[shape]
    data = DATA[:SMALL]
    server = faulty(serve("s3", {"large": data}, [name]))
    server.parts, server.at = parts, 11 * MIB // 4
    try:
        source = f"{reached(clean, 's3', server)}/large"
        server.flips = 100
        text = copy(source, target, ok=1, part=part, workers=8)
        assert source in text and text.count(f"{name} ") == 2, text
        if isinstance(parts, list) or 0 < parts < SMALL:
            ends = [end for _, end in object_server.S3.spans(data, parts)]
            assert f" part {1 + sum(end <= server.at for end in ends)}, bytes " in text, text
        assert not list(target.parent.iterdir())
        server.flips = int("small" in shape)  # of which the damaged part is read again
        copy(source, target, part=part, workers=8)
        assert target.read_bytes() == data and server.flips == 0
    finally:
        server.close()


@pytest.mark.parametrize("kind", ["crc32", "sha1"])
def test_in_one_part_of_cp(clean, target, kind):  # noqa: F811
    """A file that is small for cp, but needs more than one range."""
    server = faulty(serve("s3", {"large": DATA}, [kind]))
    try:
        source = f"{reached(clean, 's3', server)}/large"
        server.flips = 100
        text = copy(source, target, ok=1, part="16M")
        assert source in text and text.count(f"{kind} ") == 2, text
        server.flips = 0
        copy(source, target, part="16M")
        assert target.read_bytes() == DATA
    finally:
        server.close()


@pytest.mark.parametrize("shape", ["sha256", "crc32, seems even"])
def test_to_another_store(clean, shape):  # noqa: F811
    """An object whose bytes arrived damaged does not get its name in the other store."""
    name, parts, _ = SHAPES[shape]
    server = faulty(serve("s3", {"large": DATA[:SMALL]}, [name]))
    other = serve("gs", {}, ["crc32c"])
    server.parts = parts
    try:
        source = f"{reached(clean, 's3', server)}/large"
        clean.setenv("STORAGE_EMULATOR_HOST", other.url)
        server.flips = 1
        text = copy(source, "gs://data/copy", ok=1, workers=8)
        assert source in text and text.count(f"{name} ") == 2, text
        assert not other.objects and not other.uploads
        copy(source, "gs://data/copy", workers=8)
        assert other.objects == {("data", "copy"): DATA[:SMALL]}
    finally:
        server.close()
        other.close()


def test_busy_when_it_is_read_again(clean):  # noqa: F811
    """The error of the destination store is reported, and the uploaded parts are left for the next
    run: the same for each other read."""
    class Busy(object_server.S3):
        def give_part(self, data, number):
            self.server.busy = self.server.busy is not False  # once its parts are requested
            super().give_part(data, number)

        def give(self, data, **more):
            if self.server.busy:
                self.refuse(503, "SlowDown")
            else:
                super().give(data, **more)

    name, parts, _ = SHAPES["crc32, seems even"]
    server, other = serve("s3", {"large": DATA[:SMALL]}, [name]), serve("gs", {}, ["crc32c"])
    server.RequestHandlerClass, server.parts, server.busy = Busy, parts, None
    try:
        words = ["cp", "--json", "--part-size", "5M", "--read-timeout", "2",
                 f"{reached(clean, 's3', server)}/large", "gs://data/copy"]
        clean.setenv("STORAGE_EMULATOR_HOST", other.url)
        done = subprocess.run([COMMAND, *words], capture_output=True, text=True, timeout=WAIT,
                              check=False)
        assert done.returncode == 3 and "503" in done.stderr, done.stderr
        assert len(other.uploads) == 1 and not other.objects
        server.busy = False
        done = subprocess.run([COMMAND, *words], capture_output=True, text=True, timeout=WAIT,
                              check=True)
        assert json.loads(done.stdout)["bytes_kept"] == SMALL
        assert other.objects == {("data", "copy"): DATA[:SMALL]} and not other.uploads
    finally:
        server.close()
        other.close()


def test_of_the_web(clean, target):  # noqa: F811
    """A server that reports the SHA-256 of the whole object with each range."""
    class Web(object_server.S3):
        def seals(self, data, body, ranged=False):
            return {"Repr-Digest": f"sha-256=:{object_server.checksum('sha256', data)}:"}

    server = serve("s3", {"large": DATA}, [])
    server.keys, server.RequestHandlerClass = None, Web
    server = faulty(server)
    try:
        source = f"{reached(clean, 'http', server)}/large?Signature=canary0secret"
        server.flips = 1
        text = copy(source, target, ok=1)
        assert source.partition("?")[0] in text and text.count("sha256 ") == 2, text
        assert "canary" not in text
        assert not list(target.parent.iterdir())
        copy(source, target)
        assert target.read_bytes() == DATA
    finally:
        server.close()


HUB = "datasets/org/name"
FILES = {  # name, bytes, part size of cp; the names of small files, which git has, end in json
    "large": ("data.bin", DATA, "5M"),
    "small, by ranges": ("data.bin", DATA, "16M"),
    "small": ("data.bin", DATA[:MIB], "8M"),
    "git's": ("data.json", DATA[:MIB], "8M"),
    "git's, large": ("data.json", DATA, "5M"),
}


@pytest.mark.parametrize("shape", FILES)
def test_of_the_hub(clean, target, shape):  # noqa: F811
    """The hub reports the checksum of a file with the redirect to the host of the bytes: for one
    file, and for the files of a folder."""
    name, data, part = FILES[shape]
    hub = object_server.hub({(f"{HUB}@main", f"set/{name}"): data})
    for variable in [key for key in os.environ if key.startswith(("HF_", "HUGGING"))]:
        clean.delenv(variable)
    clean.setenv("HF_ENDPOINT", hub.url)
    kind = "sha256" if name.endswith("bin") else "git-sha1"
    server = faulty(hub.far if kind == "sha256" else hub)
    server.at = MIB - 1
    reported = object_server.Hub.reported(name, data)
    try:
        server.flips = 100
        text = copy(f"hf://{HUB}/set/{name}", target, ok=1, part=part)
        assert f"hf://{HUB}/set/{name}" in text and text.count(f"{kind} ") == 2, text
        assert f"{kind} {reported.get('lfs', reported)['oid']}" in text
        assert not list(target.parent.iterdir())
        text = copy("-r", f"hf://{HUB}/set", target, ok=1, part=part)
        assert f"hf://{HUB}/set/{name}" in text and not any(target.rglob("*")), text
        server.flips = int("large" not in shape)  # a small file is read again
        copy("-r", f"hf://{HUB}/set", target, part=part)
        assert (target / name).read_bytes() == data and server.flips == 0
    finally:
        hub.close()
        hub.far.close()


@pytest.mark.parametrize("lie", ["0 parts", "10^9 parts", "-1 parts", "no sizes", "overlap",
                                 "the whole", "no range", "other kinds"])
def test_lies(clean, target, lie):  # noqa: F811
    """The server changes the checksums of the parts, so no part can be verified. The copy has the
    bytes that were received, or it fails."""
    class Liar(object_server.S3):
        def seals(self, data, body, ranged=False):
            if ranged:
                return {}
            count = {"0 parts": 0, "10^9 parts": 10**9, "-1 parts": -1}.get(lie, 3)
            if lie == "other kinds":
                return {"x-amz-checksum-xxhash128": "AAAA", "x-amz-checksum-sha512": "AAAA==",
                        "x-amz-checksum-type": "ODD"}
            return {"x-amz-checksum-crc32": f"{object_server.checksum('crc32', data)}-{count}",
                    "x-amz-checksum-type": "COMPOSITE"}

        def give_part(self, data, number):
            begin, end = {"overlap": (number * MIB, number * MIB + 9 * MIB),
                          "no sizes": (0, 0)}.get(lie, (0, len(data)))
            headers = {"Content_Range": f"bytes {begin}-{end - 1}/{len(data)}"} if end else {}
            if lie == "no range":
                headers = {"Content_Range": "bytes -1-99999999999999999999/-5"}
            self.say(206, data[begin:end], ETag=f'"{self.etag(data)}"', **headers)

    server = serve("s3", {"large": DATA[:SMALL]}, [])
    server.RequestHandlerClass = Liar
    try:
        server.host = "127.0.0.1"
        assert copy(f"{reach(clean, 's3', server)}/large", target) == ""
        assert target.read_bytes() == DATA[:SMALL]
    finally:
        server.close()


@pytest.mark.parametrize(("kind", "sums"), [("s3", ["crc32"]), ("gs", ["crc32c"])])
def test_second_run(clean, target, kind, sums):  # noqa: F811
    """Wrong bytes are not reused: the same command fails again, or copies the right bytes."""
    server = faulty(serve(kind, {"large": DATA}, sums))
    try:
        source = f"{reached(clean, kind, server)}/large"
        for _ in range(2):
            server.flips = 1
            text = copy(source, target, ok=1)
            assert source in text and text.count(f"{sums[0]} ") == 2, text
            assert server.flips == 0 and not list(target.parent.iterdir())
        copy(source, target)
        assert target.read_bytes() == DATA and len(list(target.parent.iterdir())) == 1
    finally:
        server.close()


@pytest.mark.parametrize(("place", "sums"), [(PART - 1, []), (PART, []), (PART, ["crc32"]),
                                             (PART, ["sha256"])], ids=str)
def test_damage_of_the_disk(clean, target, sums, place):  # noqa: F811
    """Between a kill and the next run."""
    server = faulty(serve("s3", {"large": DATA}, sums))
    try:
        source = f"{reached(clean, 's3', server)}/large"
        kill(server, source, target)
        with open(left(target)[0], "r+b") as file:
            file.seek(place)
            file.write(bytes([DATA[place] ^ 1]))
        copy(source, target)
        assert target.read_bytes() == DATA and len(list(target.parent.iterdir())) == 1
    finally:
        server.close()


@pytest.mark.parametrize("kind", ["crc32", "sha256"])
def test_damage_before_a_kill(clean, target, kind):  # noqa: F811
    """Kept bytes that arrived damaged are included in the checksum of the whole object in the next
    run."""
    server = faulty(serve("s3", {"large": DATA}, [kind]))
    try:
        source = f"{reached(clean, 's3', server)}/large"
        server.flips = 1
        kill(server, source, target)
        assert server.flips == 0
        text = copy(source, target, ok=1)
        assert source in text and text.count(f"{kind} ") == 2, text
        assert not list(target.parent.iterdir())
        copy(source, target)
        assert target.read_bytes() == DATA
    finally:
        server.close()


class Plain(object_server.S3):
    """Reports neither ETag nor time."""

    def say(self, code, body=b"", **headers):
        headers.pop("ETag", None)
        headers.pop("Last-Modified", None)
        super().say(code, body, **headers)


def plain():
    server = serve("s3", {"large": DATA}, [])
    server.keys, server.RequestHandlerClass = None, Plain
    return faulty(server)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting takes root")
def test_no_version_and_a_full_disk(clean, tmp_path):  # noqa: F811
    """The output does not promise that the next run resumes, and there is no partial file."""
    server = plain()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={PART + 12288}", "none", tmp_path],
                   check=True)
    try:
        text = copy(f"{reached(clean, 'http', server)}/large", tmp_path / "file", ok=3)
        assert "No space left" in text and "goes on" not in text, text
        assert not list(tmp_path.iterdir())
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=False)
        server.close()


def test_no_version(clean, target):  # noqa: F811
    """If a server reports neither ETag nor time, no partial file is kept: the object may be another
    one."""
    server = plain()
    try:
        source = f"{reached(clean, 'http', server)}/large"
        kill(server, source, target)
        other = DATA[::-1]
        server.objects["data", "large"] = other
        copy(source, target)
        assert target.read_bytes() == other and len(list(target.parent.iterdir())) == 1
    finally:
        server.close()
