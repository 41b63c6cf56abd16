"""stoker cp, sync and rm with gs:// and az:// as destinations.

Method: test servers that check what the real ones check: each body against the checksum that it
carries, conditions, block lists, signatures; behind `stoker fault-proxy` where answers are lost and
bodies damaged on the way. A name holds the complete old object or the complete new one; objects
that must not be replaced are not."""

import json
import os

import make
import object_server
import pytest
from test_copy import LARGE, PART, below, random_bytes
from test_providers import CANARY, KEY, clean, run  # noqa: F401
from test_fault_proxy import Proxy

FILES = {"plain": 1000, "empty": 0, "sub/ü +%41&=?#\\.bin": 70_000, "sub/deep/large": LARGE}
WAYS = ["gs hmac", "gs anonymous", "az key", "az anonymous"]


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    root = make.tree(tmp_path_factory.mktemp("tree"), FILES)
    for name in FILES:
        os.utime(root / name, (1_600_000_000, 1_600_000_000))  # before all of the servers'
    return root


class Place:
    """A store behind a proxy; `rules` is passed to the proxy when it starts."""

    def __init__(self, way, clean, objects=None, rules=()):  # noqa: F811
        self.kind, _, who = way.partition(" ")
        if self.kind == "gs":
            self.server = object_server.google(
                objects or {}, {"GOOG1E": (CANARY, "", float("inf"))} if who == "hmac" else None)
            self.server.sums = ["crc32c"]
        else:
            self.server = object_server.azure(objects or {}, {"acc": KEY} if who == "key" else None)
        self.proxy = Proxy("--to", self.server.url, rules=rules)
        url = f"http://{self.proxy.host}:{self.proxy.port}"
        if self.kind == "gs":
            clean.setenv("STORAGE_EMULATOR_HOST", url)
            if who == "hmac":
                clean.setenv("GS_ACCESS_KEY_ID", "GOOG1E")
                clean.setenv("GS_SECRET_ACCESS_KEY", CANARY)
        else:
            clean.setenv("AZURE_STORAGE_ACCOUNT", "acc")
            clean.setenv("AZURE_STORAGE_ENDPOINT", f"{url}/acc")
            clean.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", "http://127.0.0.1:9")
            if who == "key":
                clean.setenv("AZURE_STORAGE_KEY", KEY)
        self.base = f"{self.kind}://data"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.proxy.__exit__()
        self.server.close()

    def objects(self):
        return {key: data for (_, key), data in self.server.objects.items()}


def copy(*words, ok=0):
    text = run(words[0], "--json", "--part-size", "5M", *map(str, words[1:]), ok=ok)
    return json.loads(text) if ok == 0 else text


@pytest.mark.parametrize("way", WAYS)
def test_there_and_back(clean, tree, tmp_path, way):  # noqa: F811
    want = below(tree)
    with Place(way, clean) as place:
        base = f"{place.base}/to"
        assert copy("cp", "--recursive", tree, base)["files"] == len(want)
        assert {name.removeprefix("to/"): data for name, data in place.objects().items()} == want
        copy("cp", "--recursive", base, tmp_path / "back")
        assert below(tmp_path / "back") == want
        assert copy("sync", tree, base)["files_kept"] == len(want)
        place.server.objects["data", "to/extra"] = b"x"
        copy("sync", "--delete", tree, base)
        assert len(place.objects()) == len(want)
        run("rm", f"{base}/plain")
        assert "to/plain" not in place.objects()
        run("rm", "--recursive", "--yes", base)
        assert place.objects() == {}


@pytest.mark.parametrize("size", [5000, LARGE], ids=["small", "by parts"])
@pytest.mark.parametrize("way", WAYS[::2])
def test_never_replaced(clean, tmp_path, way, size):  # noqa: F811
    """Also if the answer to the request that made it is lost: the upload is recognised as ours."""
    (tmp_path / "file").write_bytes(random_bytes(size, 9))
    with Place(way, clean) as place:
        copy("cp", "--no-clobber", tmp_path / "file", f"{place.base}/one")
        assert place.objects() == {"one": (tmp_path / "file").read_bytes()}
    with Place(way, clean, {("data", "one"): b"old"}) as place:
        assert "already" in copy("cp", "--no-clobber", tmp_path / "file", f"{place.base}/one", ok=3)
        assert place.objects() == {"one": b"old"}
    commit = {("gs", 5000): {"method": "PUT"}, ("az", 5000): {"method": "PUT"},
              ("gs", LARGE): {"method": "PUT", "path": "*/one"},
              ("az", LARGE): {"method": "PUT", "query": "*blocklist*"}}[way[:2], size]
    lost = {**commit, "count": 1, "fault": "reset", "at": -1}
    with Place(way, clean, rules=[lost]) as place:
        copy("cp", "--no-clobber", tmp_path / "file", f"{place.base}/one")
        assert place.objects() == {"one": (tmp_path / "file").read_bytes()}


@pytest.mark.parametrize("way", WAYS[::2])
def test_upload_faults_are_retried(clean, tmp_path, way):  # noqa: F811
    data = random_bytes(LARGE, 4)
    (tmp_path / "file").write_bytes(data)
    for fault in ({"fault": "reset"}, {"fault": "reset", "at": -1}, {"fault": "truncate", "at": -1},
                  {"fault": "status", "status": 503}, {"fault": "status", "status": 500}):
        rules = [{**fault, "method": method, "nth": nth} for method in ("PUT", "POST")
                 for nth in (1, 3)]
        with Place(way, clean, {("data", "one"): b"old"}, rules) as place:
            copy("cp", tmp_path / "file", f"{place.base}/one")
            assert place.objects() == {"one": data}
    with Place(way, clean, {("data", "one"): b"old"},
               [{"method": "PUT", "from": 2, "fault": "status", "status": 403}]) as place:
        assert f"{place.base}/one" in copy("cp", tmp_path / "file", f"{place.base}/one", ok=3)
        assert place.objects() == {"one": b"old"}


@pytest.mark.parametrize("way", WAYS[::2])
def test_remains_of_a_run(clean, tmp_path, way):  # noqa: F811
    """Parts that are there, and are these bytes, are not sent again; others are."""
    data = random_bytes(LARGE, 5)
    (tmp_path / "file").write_bytes(data)
    clean.setenv("STOKER_CACHE", str(tmp_path / "cache"))
    with Place(way, clean) as place:
        if place.kind == "gs":
            make.upload_record(tmp_path / "cache", "gs", "data", "one", "left")
            place.server.uploads["left"] = (("data", "one"), {1: data[:PART],
                                                              2: bytes(PART)})
        else:
            sums = [object_server.checksum("crc64nvme", data[i * PART:(i + 1) * PART])
                    for i in range(2)]
            names = [b"stoker-%05d-%016x" % (i, int.from_bytes(
                object_server.base64.b64decode(value), "big") + i) for i, value in enumerate(sums)]
            place.server.blocks["data", "one"] = {
                object_server.base64.b64encode(name).decode(): data[:PART] if i == 0
                else bytes(PART) for i, name in enumerate(names)}
        reported = copy("cp", tmp_path / "file", f"{place.base}/one")
        assert reported["bytes_kept"] == PART and place.objects() == {"one": data}


def test_a_move_keeps_an_object_that_changed(clean, tmp_path):  # noqa: F811
    """After its bytes were read, before it is removed: the new version is moved."""
    give = object_server.Google.give

    def give_and_replace(self, data, **more):
        if self.server.said[206] + self.server.said[200] == 1:  # it was opened; this reads it
            self.server.objects["data", "one"] = b"newer"
        give(self, data, **more)

    clean.setattr(object_server.Google, "give", give_and_replace)
    with Place("gs anonymous", clean, {("data", "one"): b"older"}) as place:
        copy("mv", f"{place.base}/one", tmp_path / "one")
        assert (tmp_path / "one").read_bytes() == b"newer" and place.objects() == {}


def test_another_answer_to_a_block(clean, tmp_path):  # noqa: F811
    """The server reports other bytes than were sent: they must not be stored under any name."""
    (tmp_path / "file").write_bytes(random_bytes(LARGE, 6))
    rules = [{"method": "PUT", "count": 1, "fault": "checksum"}]
    with Place("az key", clean, rules=rules) as place:
        reported = copy("cp", tmp_path / "file", f"{place.base}/one", ok=1)
        assert "answer is for other bytes than were sent" in reported and place.objects() == {}


def test_features_that_other_stores_lack(clean, tmp_path):  # noqa: F811
    (tmp_path / "file").write_bytes(b"x")
    with Place("gs anonymous", clean) as place:
        text = copy("cp", "--sse", "aws:kms", tmp_path / "file", f"{place.base}/x", ok=1)
        assert "encrypts" in text and place.objects() == {}
        assert "is read-only" in copy("cp", tmp_path / "file", "http://127.0.0.1:9/x", ok=1)
        assert "is read-only" in copy("cp", tmp_path / "file", "hf://datasets/a/b/x", ok=1)
