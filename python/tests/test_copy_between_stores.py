"""stoker cp and sync: from every kind of store to every other, and the files that sync must not
remove.

Method: test servers for S3, Google's and Azure's stores, the hub and the web, all at once; after a
command the objects of a store equal the source, byte for byte, and all objects that were not named
for removal still exist."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.parse

import object_server
import pytest
import stoker
import write_server
from test_cli import COMMAND
from test_copy import below, random_bytes
from test_providers import clean, run  # noqa: F401

MIDDLE = (1 << 20) + 300_001  # more than a worker's own buffer, less than a part
PARTS = (5 << 20) + 70_003  # two parts
HUB = "datasets/org/name"
WAIT = 120


class Bucket(write_server.Writing):
    """The stores whose requests are signed, with the header that carries the signature."""

    who = object_server.S3.who

    def fits(self):
        if len(self.headers.get("x-amz-content-sha256", "")) == 64:
            return super().fits()
        self.refuse(400, "XAmzContentSHA256Mismatch")
        return False


class Web(object_server.Handler):
    """Files by their paths; a path that ends in '/' is a page that lists, as web servers do."""

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        path = urllib.parse.unquote(self.path)[1:]
        if path in self.server.objects:
            self.give(self.server.objects[path])
        elif any(name.startswith(path.rstrip("/") + "/") for name in self.server.objects):
            self.say(200, b"<html>Index of /</html>", Content_Type="text/html; charset=utf-8")
        else:
            self.refuse(404, "NotFound")


class World:
    """One server of each kind; `put` and `get` go around the command."""

    def __init__(self, monkeypatch):
        self.s3 = write_server.serve(handler=Bucket)
        self.s3.keys = {"a": ("b", "", float("inf"))}
        self.gs, self.az = object_server.google({}), object_server.azure({})
        self.gs.sums = ["crc32c"]
        self.hf, self.web = object_server.hub({}), object_server.Store(Web, {})
        self.web.base, self.hf.base = self.web.url, f"hf://{HUB}"
        for name in ("s3", "gs", "az"):
            getattr(self, name).base = f"{name}://data"
        for name in [name for name in os.environ if name.startswith(("HF_", "HUGGING"))]:
            monkeypatch.delenv(name)
        for name, value in {
            "AWS_ENDPOINT_URL": self.s3.url, "AWS_ACCESS_KEY_ID": "a", "AWS_REGION": "us-east-1",
            "AWS_SECRET_ACCESS_KEY": "b", "AWS_EC2_METADATA_DISABLED": "true",
            "STORAGE_EMULATOR_HOST": self.gs.url, "AZURE_STORAGE_ACCOUNT": "acc",
            "AZURE_STORAGE_ENDPOINT": f"{self.az.url}/acc", "HF_ENDPOINT": self.hf.url,
            "AZURE_POD_IDENTITY_AUTHORITY_HOST": "http://127.0.0.1:9",
            "HF_TOKEN_PATH": "/nonexistent",
        }.items():
            monkeypatch.setenv(name, value)

    def put(self, kind, name, data):
        place = {"hf": (f"{HUB}@main", name), "web": name}.get(kind, ("data", name))
        getattr(self, kind).objects[place] = data

    def below(self, kind, prefix=""):
        return {key[len(prefix):]: data for (_, key), data in getattr(self, kind).objects.items()
                if key.startswith(prefix)}

    def close(self):
        for server in (self.s3, self.gs, self.az, self.hf, self.hf.far, self.web):
            server.close()


@pytest.fixture
def world(clean):  # noqa: F811
    world = World(clean)
    yield world
    world.close()


def reported(*words, ok=0):
    return run(*map(str, words), ok=ok)


@pytest.mark.parametrize("to", ["local", "s3", "gs", "az"])
def test_from_anywhere_to_anywhere(world, tmp_path, to):
    """One command with sources of every kind: folders where they can be listed."""
    data = {"middle": random_bytes(MIDDLE, 1), "parts": random_bytes(PARTS, 2), "empty": b""}
    want, sources = {}, [tmp_path / "source", "s3://data/s3", "gs://data/gs/", "az://data/az",
                         f"hf://{HUB}/hf"]
    (tmp_path / "source").mkdir()
    for name, body in data.items():
        (tmp_path / "source" / f"local-{name}").write_bytes(body)
        want[f"local-{name}"] = body
        for kind in ("s3", "gs", "az", "hf", "web"):
            world.put(kind, f"{kind}/{kind}-{name}", body)
            want[f"{kind}-{name}"] = body
        sources.append(f"{world.web.base}/web/web-{name}")
    there = tmp_path / "to" if to == "local" else f"{to}://data/to"
    reported("cp", "-r", "--part-size", "5M", *sources, f"{there}/")
    found = below(there) if to == "local" else world.below(to, "to/")
    assert found.keys() == want.keys()
    assert [name for name in want if found[name] != want[name]] == []


@pytest.fixture
def full(tmp_path):
    """A folder with something to lose."""
    (tmp_path / "full/sub").mkdir(parents=True)
    (tmp_path / "full/one").write_bytes(b"1")
    (tmp_path / "full/sub/two").write_bytes(b"2")
    return tmp_path / "full"


def fails(*words, codes=(2, 3)):
    done = subprocess.run([COMMAND, *map(str, words)], capture_output=True, text=True,
                          timeout=WAIT, check=False)
    assert done.returncode in codes, (words, done.returncode, done.stderr)
    return done.stderr


def refused(source, destination, what):
    """By the command and in Python."""
    assert what in fails("sync", "--delete", source, destination)
    with pytest.raises((stoker.Error, OSError), match=what), stoker.Engine(threads=2) as engine:
        stoker.sync(source, destination, delete=True, engine=engine)


def test_a_page_is_no_folder(world, full):
    world.put("web", "dir/a.tar", b"a")
    want = below(full)
    for name in ("dir", "dir/", "dir/a.tar"):
        refused(f"{world.web.base}/{name}", full, "cannot be listed")
    assert below(full) == want


def test_a_file_is_no_folder(world, full, tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    want = below(full)
    for kind in ("s3", "gs", "az"):
        world.put(kind, "to/kept", b"k")
        world.put(kind, "file", b"x")
        refused(tmp_path / "file", f"{kind}://data/to", "the source is a file")
        refused(f"{kind}://data/file", full, "the source is a file")
        assert world.below(kind, "to/") == {"kept": b"k"}
    refused(tmp_path / "file", full, "the source is a file")
    refused(f"{tmp_path}/file", f"{full}/", "the source is a file")
    assert below(full) == want


def test_a_source_within_the_destination(world, full):
    want = below(full)
    refused(full / "sub", full, "would be removed")
    world.put("s3", "a/b/c", b"c")
    world.put("s3", "a/d", b"d")
    refused("s3://data/a/b", "s3://data/a/", "would be removed")
    refused("s3://data/a/b/", "s3://data", "would be removed")
    refused("s3://data/a", "s3://data/a/b", "is inside the source")
    assert below(full) == want and len(world.below("s3")) == 2
    assert json.loads(reported("sync", "--delete", "--json", "s3://data/a", "s3://data/a"))[
        "files_removed"] == 0


class Short(object_server.Handler):
    """A store whose listings end before their end."""

    def do_GET(self):
        bucket, key, query = self.split()
        if "list-type" not in query:
            self.give(self.server.objects[bucket, key])
            return
        name, _ = next(iter(self.names(bucket, query["prefix"], "")))
        self.say(200, {
            "cut": f"<ListBucketResult><Contents><Key>{name}</Key><Size>1</Size></Contents>",
            "no token": "<ListBucketResult><IsTruncated>true</IsTruncated><Contents><Key>"
                        f"{name}</Key><Size>1</Size></Contents></ListBucketResult>",
            "refused": "",
        }[self.server.way].encode()) if self.server.way != "refused" else self.refuse(
            403, "AccessDenied")


@pytest.mark.parametrize("way", ["cut", "no token", "refused"])
def test_a_listing_that_ends_early(world, clean, full, way):  # noqa: F811
    server = object_server.Store(Short, {("data", f"x/{name}"): b"1" for name in "abc"})
    server.way = way
    clean.setenv("AWS_ENDPOINT_URL", server.url)
    want = below(full)
    try:
        text = fails("sync", "--delete", "s3://data/x", full, codes=(1, 3))
    finally:
        server.close()
    assert "s3://data/x" in text and want.items() <= below(full).items()


def test_the_hub_tells_hashes(world, tmp_path):
    """A file of the same size with other bytes is copied: the hub reports no time. A file with the
    same hash is not read from the hub again."""
    data = {"a/small.json": b"{1}", "a/other.json": b"{2}", "a/empty.json": b"",
            "a/large.bin": random_bytes(MIDDLE, 4), "b.bin": random_bytes(PARTS, 5)}
    for name, body in data.items():
        world.put("hf", name, body)
    for there in (str(tmp_path / "to"), "s3://data/to"):
        first = json.loads(reported("sync", "--json", f"hf://{HUB}", there))
        assert (first["files_done"], first["files_kept"]) == (5, 0)
        if "://" in there:
            places = {name: ("data", f"to/{name}") for name in data}
            world.s3.objects[places["a/small.json"]] = b"{x}"
            world.s3.objects[places["b.bin"]] = bytes(PARTS)
        else:
            (tmp_path / "to/a/small.json").write_bytes(b"{x}")
            (tmp_path / "to/b.bin").write_bytes(bytes(PARTS))
        requested = len(world.hf.far.seen)
        world.s3.lines.clear()
        second = json.loads(reported("sync", "--json", "--part-size", "5M", f"hf://{HUB}", there))
        assert (second["files_done"], second["files_kept"]) == (5, 3)
        assert second["bytes_kept"] == MIDDLE + 3 and second["bytes_done"] == second["bytes"]
        found = below(tmp_path / "to") if there.startswith("/") else world.below("s3", "to/")
        assert found == data
        assert world.hf.far.seen[requested:] and all(
            "b.bin" in path for path, _ in world.hf.far.seen[requested:])
        if "://" in there:  # by parts, not by less: each is a round trip
            read = [path for method, path in world.s3.lines if method == "GET" and "?" not in path]
            assert [sum(name in path for path in read) for name in ("large.bin", "b.bin")] == [1, 2]


@pytest.mark.parametrize("kind", ["type", "metadata"])
def test_folders_of_azure_are_no_files(world, tmp_path, kind):
    """Empty blobs that represent folders: of Data Lake Gen2, and as Hadoop writes them."""
    want = {"a/b/one": b"1", "a/b-c": b"2", "a/empty": b"", "d": b"3"}
    for name, body in want.items():
        world.put("az", f"x/{name}", body)
    for name in ("x", "x/a", "x/a/b", "x/void"):
        world.put("az", name, b"")
        world.az.folders["data", name] = kind
    world.az.page = 2
    for verb in (("cp", "-r"), ("sync", "--delete")):
        reported(*verb, "az://data/x", tmp_path / "to")
        assert below(tmp_path / "to") == want
        assert (tmp_path / "to/a/b").is_dir() and not (tmp_path / "to/void").exists()
    assert "folder" in fails("cp", "az://data/x/a/b", tmp_path / "no")
    assert "folder" in fails("cat", "az://data/x/a/b")
    assert "folder" in reported("stat", "az://data/x/a/b")
    assert json.loads(reported("sync", "--json", "--delete", tmp_path / "to", "az://data/x"))[
        "files_removed"] == 0
    assert json.loads(reported("rm", "-r", "--yes", "--json", "az://data/x"))["files_failed"] == 0
    assert world.az.objects.keys() == world.az.folders.keys()
