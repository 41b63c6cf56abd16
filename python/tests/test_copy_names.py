"""Names of objects and files in copies: versions in URLs, keys that are not XML or UTF-8, percent
signs in URLs. On Ceph's gateway, and small servers of Python."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess

import make
import pytest
import servers
from test_copy import below, bucket, run  # noqa: F401
from test_copy_safety import run as run_all

import stoker

PART = 5 << 20


# ---- versions ----


@pytest.fixture
def versions(bucket):  # noqa: F811
    """A bucket with two versions of a key, the second of them current, and their ids."""
    bucket.put_bucket_versioning(Bucket=bucket.name,
                                 VersioningConfiguration={"Status": "Enabled"})
    bodies = [make.random_bytes(3 * PART + 5, 1), b"new"]
    return [(bucket.put_object(Bucket=bucket.name, Key="sub/k.bin", Body=body)["VersionId"], body)
            for body in bodies]


def test_versions(bucket, versions, tmp_path):  # noqa: F811
    url = f"{bucket.url}/sub/k.bin"
    (old, first), (new, second) = versions
    assert run("cat", f"{url}?versionId={new}") == "new"
    assert stoker.cat(f"{url}?versionId={old}") == first
    assert stoker.cat(f"{url}?versionId={old}", 5, 9) == first[5:9]
    assert stoker.stat(f"{url}?versionId={old}").bytes == len(first)
    assert stoker.stat(url).bytes == 3
    run("cp", "--part-size", "5M", f"{url}?versionId={old}", f"{tmp_path}/down/")
    assert below(tmp_path / "down") == {"k.bin": first}
    for name, limits in (("small", []), ("large", ["--part-size", "5M"])):  # on the server
        run("cp", *limits, f"{url}?versionId={old}", f"{bucket.url}/copied/{name}")
        assert bucket.objects("copied/")[name] == first
    listed = run("ls", "--files", f"{url}?versionId={old}")
    assert "k.bin" in listed
    signed = run("presign", f"{url}?versionId={old}").strip()
    assert "versionId=" in signed and stoker.cat(signed) == first


def test_versions_by_fsspec(bucket, versions):  # noqa: F811
    filesystem = pytest.importorskip("stoker.fsspec_filesystem").StokerFileSystem()
    (old, first), _ = versions
    url = f"stoker://s3/{bucket.name}/sub/k.bin?versionId={old}"
    assert filesystem.cat(url) == first and filesystem.info(url)["size"] == len(first)
    with filesystem.open(url) as file:
        assert file.read(7) == first[:7]
    assert not filesystem.exists(url + "0")


def test_versions_are_not_changed(bucket, versions, tmp_path):  # noqa: F811
    """No command writes or removes a version, or takes another object for one that is not there."""
    (old, first), (new, _) = versions
    url = f"{bucket.url}/sub/k.bin?versionId={old}"
    (tmp_path / "f").write_bytes(b"f")
    for words in (["cp", tmp_path / "f", url], ["rm", url], ["rm", "-r", "--yes", url],
                  ["mv", url, tmp_path / "moved"], ["presign", "--put", url]):
        assert run_all(*map(str, words), ok=None).returncode in (1, 2, 3), words
    assert not (tmp_path / "moved").exists()
    kept = bucket.list_object_versions(Bucket=bucket.name)["Versions"]
    assert {item["VersionId"] for item in kept} == {old, new}
    bucket.put_object(Bucket=bucket.name, Key="sub/kXversionId=1", Body=b"other")
    for name in ("sub/k?versionId=1", "sub/k.bin?versionId=nonsense", "none?versionId=1"):
        error = run_all("cat", f"{bucket.url}/{name}", ok=3).stderr
        assert name in error and "glob" not in error


def test_versions_of_shards(bucket, engine, tmp_path):  # noqa: F811
    """A loader reads the version that it is given."""
    bucket.put_bucket_versioning(Bucket=bucket.name,
                                 VersioningConfiguration={"Status": "Enabled"})
    ids = []
    for body in (b"1", b"2"):
        make.tar(tmp_path / "a.tar", [("x.cls", body)])
        ids.append(bucket.put_object(Bucket=bucket.name, Key="a.tar",
                                     Body=(tmp_path / "a.tar").read_bytes())["VersionId"])
    for version, want in zip(ids, (1, 2)):
        with stoker.Loader(f"{bucket.url}/a.tar?versionId={version}", 1, engine=engine,
                           fields={"y": stoker.Int("cls")}, output="numpy") as loader:
            assert [batch["y"].tolist() for batch in loader] == [[want]]


# ---- names that XML, UTF-8 or a URL cannot have as they are ----


ODD = ["a\ufffe", "b\uffff", "c\x01d", "e\n", "f&<>\"'", "g h+%20%"]


def test_odd_keys_are_removed_and_copied(bucket, tmp_path):  # noqa: F811
    keys = ODD + [f"plain{i}" for i in range(20)]
    for key in keys:
        bucket.put_object(Bucket=bucket.name, Key=f"p/{key}", Body=key.encode())
    run("cp", "-r", f"{bucket.url}/p", tmp_path / "down")
    assert below(tmp_path / "down") == {key: key.encode() for key in keys}
    run("cp", "-r", tmp_path / "down", f"{bucket.url}/q")
    assert bucket.objects("q/") == {key: key.encode() for key in keys}
    for key in ODD:
        os.unlink(tmp_path / "down" / key)
    run("sync", "--delete", tmp_path / "down", f"{bucket.url}/q")
    assert set(bucket.objects("q/")) == set(keys) - set(ODD)
    report = json.loads(run("rm", "-r", "--yes", "--json", f"{bucket.url}/p"))
    assert report["files_removed"] == len(keys) and not bucket.objects("p/")


def test_names_that_a_store_cannot_have(bucket, tmp_path):  # noqa: F811
    """Not UTF-8: refused here, each by its name, before a server makes one key of two."""
    folder = tmp_path / "d"
    folder.mkdir()
    for name in (b"caf\xe9.txt", b"caf\xe8.txt", b"fine.txt"):
        (folder / os.fsdecode(name)).write_bytes(name)
    done = run_all("sync", str(folder), f"{bucket.url}/d", ok=2)
    assert done.stderr.count("UTF-8") >= 2 and "region" not in done.stderr
    assert set(bucket.objects("d/")) == {"fine.txt"}
    with pytest.raises(stoker.ArgumentError, match="UTF-8"):
        stoker.cp(folder / os.fsdecode(b"caf\xe9.txt"), f"{bucket.url}/x/")
    assert not bucket.objects("x/")


class Paths(servers.Handler):
    """Answers each request with its path."""

    def do_GET(self):
        self.say(200, self.path.encode(), ETag='"1"')

    do_HEAD = do_GET


def test_percent_signs_of_urls_are_decoded_once(tmp_path):
    names = {"with%20space.txt": "with space.txt", "a%2520b": "a%20b", "%C3%BC.txt": "ü.txt",
             "plain+x": "plain+x", "bad%zz": "bad%zz", "%2e%2e": "%2e%2e",
             "a%2Fb": "a%2Fb", "line%0Aend": "line%0Aend"}
    with servers.serving(Paths) as server:
        for name, local in names.items():
            to = tmp_path / "d"
            run("cp", f"{server.url}/{name}", f"{to}/")
            assert (to / local).read_bytes() == f"/{name}".encode()
        assert set(below(tmp_path / "d")) == set(names.values())


def test_percent_signs_of_web_addresses_for_fsspec(tmp_path):
    """To a place of fsspec, and from a chain of fsspec; the names of other systems are literal."""
    fsspec = pytest.importorskip("fsspec")
    pytest.importorskip("aiohttp")
    system = fsspec.filesystem("memory")
    system.pipe("/f34/a%20b", b"literal")
    with servers.serving(Paths) as server:
        stoker.cp(f"{server.url}/with%20space.txt", "memory://f34/")
        stoker.cp(f"{server.url}/a%2Fb?x=1", "memory://f34/")
        stoker.cp(f"simplecache::{server.url}/to%20here.txt", f"{tmp_path}/d/")
        stoker.cp("memory://f34/a%20b", f"{tmp_path}/d/")
    assert system.cat("/f34/with space.txt") == b"/with%20space.txt"
    assert set(below(tmp_path / "d")) == {"to here.txt", "a%20b"}
    assert {name.rpartition("/")[2] for name in system.find("/f34")} == {
        "a%20b", "with space.txt", "a%2Fb"}
    system.rm("/f34", recursive=True)


def test_file_urls(tmp_path, engine):
    """pathlib's as_uri() encodes; a file with that very name is taken first."""
    make.tar(tmp_path / "a b.tar", [("x.cls", b"1")])
    (tmp_path / "a b").mkdir()
    (tmp_path / "a b/f").write_bytes(b"f")
    uri = (tmp_path / "a b.tar").as_uri()
    assert "%20" in uri
    with stoker.Loader(uri, 1, engine=engine, fields={"y": stoker.Int("cls")},
                       output="numpy") as loader:
        assert [batch["y"].tolist() for batch in loader] == [[1]]
    assert run("cat", (tmp_path / "a b/f").as_uri()) == "f"
    run("cp", "-r", (tmp_path / "a b").as_uri(), tmp_path / "out")
    assert below(tmp_path / "out") == {"f": b"f"}


# ---- destinations that ignore case ----


@pytest.fixture(scope="module")
def folding(tmp_path_factory):
    """The environment in which folders called FOLD ignore case."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    library = tmp_path_factory.mktemp("folding") / "folding.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-std=gnu2x", "-O1", "-w", "-o", library,
                    pathlib.Path(__file__).with_name("folding.c")], check=True)
    return {"LD_PRELOAD": str(library)}


def folded(tmp_path, folding, *words, ok=0):
    return run_all(*words, ok=ok, env=folding)


def test_the_folder_folds(tmp_path, folding):
    (tmp_path / "FOLD").mkdir()
    (tmp_path / "FOLD/a").write_bytes(b"a")
    assert folded(tmp_path, folding, "cat", tmp_path / "FOLD/A").stdout == "a"


@pytest.mark.parametrize("way", ["cp -r", "sync", "sync --delete"])
def test_names_that_are_one_file(tmp_path, folding, way):
    """None replaces another one of the same run, none is lost without a word."""
    (tmp_path / "FOLD").mkdir()
    for name in ("Data", "DATA", "data", "Other", "Sub/x", "sub/X"):
        path = tmp_path / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    for _ in range(2):
        done = folded(tmp_path, folding, *way.split(), tmp_path / "src", tmp_path / "FOLD",
                      ok=None)
        assert done.returncode != 0 and "one file at the destination" in done.stderr
        found = below(tmp_path / "FOLD")
        assert found["other"] == b"Other" and set(found) == {"data", "other", "sub/x"}
        assert found["data"] in (b"Data", b"DATA", b"data")
        assert found["sub/x"] in (b"Sub/x", b"sub/X")


def test_delete_keeps_copied_files(tmp_path, folding):
    """Of names that differ from the destination's by case alone; others are removed."""
    for name in ("README", "Sub/Y", "kept"):
        path = tmp_path / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    (tmp_path / "FOLD/sub").mkdir(parents=True)
    for name in ("readme", "extra", "sub/y", "sub/extra"):
        (tmp_path / "FOLD" / name).write_bytes(b"old")
    for _ in range(2):
        folded(tmp_path, folding, "sync", "--delete", tmp_path / "src", tmp_path / "FOLD")
        assert below(tmp_path / "FOLD") == {"readme": b"README", "sub/y": b"Sub/Y",
                                            "kept": b"kept"}


def test_moves_to_a_folder_that_folds(tmp_path, folding):
    (tmp_path / "FOLD").mkdir()
    for name in ("a", "A", "b"):
        (tmp_path / "src").mkdir(exist_ok=True)
        (tmp_path / "src" / name).write_bytes(name.encode())
    done = folded(tmp_path, folding, "mv", "-r", tmp_path / "src", f"{tmp_path}/FOLD/", ok=None)
    assert done.returncode != 0
    left = {**below(tmp_path / "src"), **{f"moved {name}": data for name, data
                                          in below(tmp_path / "FOLD").items()}}
    assert sorted(left.values()) == [b"A", b"a", b"b"], left
