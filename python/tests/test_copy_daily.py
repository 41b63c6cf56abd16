"""Daily work of cp, sync, mv and rm with stores and the command: comparison, filters, lists of
names, dry runs, moves, bandwidth, and the name of every file that failed. On Ceph's gateway; tests
that need no store are in copy_attributes_test.c and test_copy_safety.py."""

from __future__ import annotations

import json
import os
import time

import pytest
from make import random_bytes
from test_copy import below, bucket, run  # noqa: F401
from test_copy_safety import run as run_all
from test_copy_safety import write

import stoker

PART = 5 << 20


def copied(*words, **more):
    return json.loads(run(words[0], "--json", *words[1:], **more))


# ---- size and time are no identity ----


def test_a_change_at_once_is_synced_up_and_down(bucket, tmp_path):  # noqa: F811
    """Within the second that the store's clock shows, at the same size."""
    for number in range(6):
        text = f"{number:04}".encode()
        write(tmp_path / "d/f", text)
        copied("sync", tmp_path / "d", bucket.url)
        assert bucket.objects() == {"f": text}
        assert copied("sync", tmp_path / "d", bucket.url)["files_kept"] == 1
        bucket.put_object(Bucket=bucket.name, Key="f", Body=text[::-1])
        copied("sync", bucket.url, tmp_path / "e")
        assert below(tmp_path / "e") == {"f": text[::-1]}
        assert copied("sync", bucket.url, tmp_path / "e")["files_kept"] == 1


def test_downloaded_files_are_not_uploaded_again(bucket, tmp_path):  # noqa: F811
    for number in range(5):
        bucket.put_object(Bucket=bucket.name, Key=f"x/{number}", Body=b"%d" % number)
    copied("sync", bucket.url, tmp_path / "d")
    head = bucket.head_object(Bucket=bucket.name, Key="x/1")["LastModified"].timestamp()
    assert int(os.stat(tmp_path / "d/x/1").st_mtime) == int(head)
    up = copied("sync", tmp_path / "d", bucket.url)
    assert up["files_kept"] == 5 and up["bytes_done"] == up["bytes_kept"]


def test_checksums_find_a_change_with_an_old_time(bucket, tmp_path):  # noqa: F811
    write(tmp_path / "d/x", b"hello")
    write(tmp_path / "d/large", random_bytes(2 * PART + 3, 1))
    copied("sync", "--part-size", "5M", tmp_path / "d", bucket.url)
    write(tmp_path / "d/x", b"HELLO")
    for name in ("x", "large"):
        os.utime(tmp_path / "d" / name, (978307200, 978307200))
    assert copied("sync", tmp_path / "d", bucket.url)["files_kept"] == 2
    reported = copied("sync", "--compare", "checksum", tmp_path / "d", bucket.url)
    assert reported["files_kept"] == 1  # the large one, by the checksums of its parts
    assert bucket.objects()["x"] == b"HELLO"
    report = stoker.sync(f"{bucket.url}/", tmp_path / "d", compare="checksum")
    assert report.files_kept == 2
    write(tmp_path / "d/x", b"12345")
    assert copied("sync", "--compare", "size", tmp_path / "d", bucket.url)["files_kept"] == 2


def test_sync_between_prefixes(bucket):  # noqa: F811
    for number in range(3):
        bucket.put_object(Bucket=bucket.name, Key=f"a/{number}", Body=b"%d" % number)
    copied("sync", f"{bucket.url}/a", f"{bucket.url}/b")
    assert copied("sync", f"{bucket.url}/a", f"{bucket.url}/b")["files_kept"] == 3
    bucket.put_object(Bucket=bucket.name, Key="a/0", Body=b"x")
    assert copied("sync", f"{bucket.url}/a", f"{bucket.url}/b")["files_kept"] == 2
    assert bucket.objects("b/")["0"] == b"x"


# ---- names ----


@pytest.mark.parametrize("words", [
    ("cp", "-r", "URL/none", "OUT"), ("cp", "-r", "URL/none/", "OUT"), ("sync", "URL/none", "OUT"),
    ("sync", "URL/none/", "OUT"), ("rm", "-r", "--yes", "URL/none"), ("ls", "--files", "URL/none"),
    ("rm", "-r", "--yes", "URL/none/"), ("ls", "--files", "URL/none/"), ("stat", "URL/none"),
    ("mv", "-r", "URL/none/", "OUT"), ("ls", "--files", "-r", "URL/none/"),
])
def test_a_prefix_that_does_not_exist(bucket, tmp_path, words):  # noqa: F811
    bucket.put_object(Bucket=bucket.name, Key="nones", Body=b"")
    out = str(tmp_path / "out")
    named = [word.replace("URL", bucket.url).replace("OUT", out) for word in words]
    assert "none" in run_all(*named, ok=3).stderr


def test_an_object_that_is_also_a_prefix(bucket, tmp_path):  # noqa: F811
    def put():
        for key in ("both", "both/a", "both/b/c", "bother"):
            bucket.put_object(Bucket=bucket.name, Key=key, Body=key.encode())

    put()
    assert "also the prefix" in run("cp", "-r", f"{bucket.url}/both", tmp_path / "x", ok=2)
    copied("cp", "-r", f"{bucket.url}/both/", tmp_path / "x")
    assert below(tmp_path / "x") == {"a": b"both/a", "b/c": b"both/b/c"}
    copied("cp", f"{bucket.url}/both", tmp_path / "y")
    assert (tmp_path / "y").read_bytes() == b"both"
    assert copied("sync", f"{bucket.url}/both", tmp_path / "z")["files"] == 2
    assert copied("rm", "-r", "--yes", f"{bucket.url}/both")["files_removed"] == 3
    assert set(bucket.objects()) == {"bother"}


@pytest.mark.parametrize("scheme", ["S3", "s3"])
def test_delete_never_removes_its_source(bucket, scheme):  # noqa: F811
    for key in ("src/a", "src/b", "other"):
        bucket.put_object(Bucket=bucket.name, Key=key, Body=b"x")
    run("sync", "--delete", f"{bucket.url}/src", f"{scheme}://{bucket.name}", ok=2)
    run("sync", f"{bucket.url}/src", f"{scheme}://{bucket.name}/src/deep", ok=2)
    assert set(bucket.objects()) == {"src/a", "src/b", "other"}


def test_exact_names_of_fsspec_are_no_patterns(bucket, tmp_path):  # noqa: F811
    """A key or file that does not exist is an error, even if it matches as a prefix or pattern."""
    filesystem = pytest.importorskip("stoker.fsspec_filesystem").StokerFileSystem()
    bucket.put_object(Bucket=bucket.name, Key="k1", Body=b"1")
    write(tmp_path / "k1", b"1")
    root = f"s3/{bucket.name}"
    for call in (lambda: filesystem.get_file(f"{root}/k[1]", str(tmp_path / "out")),
                 lambda: filesystem.cp_file(f"{root}/k[12]", f"{root}/copy"),
                 lambda: filesystem.put_file(str(tmp_path / "k[1]"), f"{root}/put")):
        with pytest.raises(FileNotFoundError):
            call()
    assert set(bucket.objects()) == {"k1"} and not (tmp_path / "out").exists()


def test_get_of_fsspec_stays_in_its_folder(bucket, tmp_path):  # noqa: F811
    filesystem = pytest.importorskip("stoker.fsspec_filesystem").StokerFileSystem()
    (tmp_path / "a/b").mkdir(parents=True)
    for key in ("evil/../../../pwned", "evil/x/../../../../../pwned2", "evil/ok"):
        bucket.put_object(Bucket=bucket.name, Key=key, Body=b"x")
    root = f"s3/{bucket.name}/evil"
    for call in (lambda to: filesystem.get(root, to, recursive=True),
                 lambda to: filesystem.get([f"{root}/ok", f"{root}/../../../pwned"], to),
                 lambda to: filesystem.get(f"{root}/../../../pwn*", to)):
        with pytest.raises(stoker.ArgumentError, match="not a valid local path"):
            call(str(tmp_path / "a/b/dst") + "/")
    assert not list(tmp_path.rglob("pwned*"))
    filesystem.get(f"{root}/ok", str(tmp_path / "one"))
    assert (tmp_path / "one").read_bytes() == b"x"


def test_get_of_fsspec_and_a_link(bucket, tmp_path):  # noqa: F811
    """A folder of the destination is a link that leads out of it."""
    filesystem = pytest.importorskip("stoker.fsspec_filesystem").StokerFileSystem()
    for key in ("src/b", "src/in/c", "src/sub/a"):
        bucket.put_object(Bucket=bucket.name, Key=key, Body=b"new")
    write(tmp_path / "safe/a", b"data")
    (tmp_path / "out/other").mkdir(parents=True)
    (tmp_path / "out/in").symlink_to("other")
    (tmp_path / "out/sub").symlink_to("../safe")
    with pytest.raises(OSError, match="symbolic link"):
        filesystem.get(f"s3/{bucket.name}/src/", f"{tmp_path}/out/", recursive=True)
    assert (tmp_path / "safe/a").read_bytes() == b"data"
    (tmp_path / "out/sub").unlink()
    filesystem.get(f"s3/{bucket.name}/src/", f"{tmp_path}/out/", recursive=True)
    assert (tmp_path / "out/sub/a").read_bytes() == b"new"
    assert (tmp_path / "out/other/c").read_bytes() == b"new"


# ---- daily work ----


def test_filters_and_dry_runs(bucket, tmp_path):  # noqa: F811
    for name in ("a.jpg", "b.txt", "sub/c.jpg", "sub/d.txt"):
        write(tmp_path / "d" / name)
    only = ("--exclude", "*", "--include", "*.jpg")
    would = copied("cp", "-r", "--dry-run", *only, tmp_path / "d", bucket.url)
    assert [item["to"] for item in would["would_copy"]] and bucket.objects() == {}
    assert {item["to"] for item in would["would_copy"]} == {
        f"{bucket.url}/a.jpg", f"{bucket.url}/sub/c.jpg"}
    copied("cp", "-r", *only, tmp_path / "d", bucket.url)
    assert set(bucket.objects()) == {"a.jpg", "sub/c.jpg"}
    bucket.put_object(Bucket=bucket.name, Key="extra.txt", Body=b"")
    bucket.put_object(Bucket=bucket.name, Key="extra.jpg", Body=b"")
    would = copied("sync", "-n", "--delete", "--exclude", "*.txt", tmp_path / "d", bucket.url)
    assert would["would_remove"] == [f"{bucket.url}/extra.jpg"]
    assert would["files_kept"] == 2 and would["would_copy"] == []
    copied("sync", "--delete", "--exclude", "*.txt", tmp_path / "d", bucket.url)
    assert set(bucket.objects()) == {"a.jpg", "sub/c.jpg", "extra.txt"}
    assert copied("rm", "-r", "-n", bucket.url)["files_removed"] == 3 and bucket.objects()
    copied("rm", "-r", "--yes", "--include", "*.jpg", bucket.url)
    assert set(bucket.objects()) == {"extra.txt"}
    report = stoker.cp(tmp_path / "d", bucket.url, recursive=True, dry_run=True, include=["*.txt"],
                       exclude=["sub"])
    assert [(entry.kind, entry.to) for entry in report.entries] == [
        ("would copy", f"{bucket.url}/b.txt")]


def test_moves(bucket, tmp_path):  # noqa: F811
    data = {"a": b"1", "sub/b": random_bytes(2 * PART + 7, 2), "sub/c": b"3"}
    for name, text in data.items():
        write(tmp_path / "d" / name, text)
    copied("mv", "-r", "--part-size", "5M", tmp_path / "d", f"{bucket.url}/up")
    assert bucket.objects("up/") == data and not (tmp_path / "d").exists()
    copied("mv", "-r", f"{bucket.url}/up", f"{bucket.url}/over")
    assert bucket.objects("over/") == data and not bucket.objects("up/")
    run("mv", f"{bucket.url}/over/a", f"S3://{bucket.name}/over/a", ok=2)
    stoker.mv(f"{bucket.url}/over", tmp_path / "back", recursive=True, part_bytes="5MiB")
    assert below(tmp_path / "back") == data and not bucket.objects()


def test_names_from_a_file(bucket, tmp_path):  # noqa: F811
    for name in ("a", "x[1]", "x1", "sub/b", "sub/c"):
        write(tmp_path / "d" / name, name.encode())
    write(tmp_path / "list", b"x[1]\nsub/b\n")
    copied("cp", "--files-from", tmp_path / "list", tmp_path / "d", f"{bucket.url}/up")
    assert bucket.objects("up/") == {"x[1]": b"x[1]", "sub/b": b"sub/b"}
    stoker.cp(f"{bucket.url}/up", tmp_path / "e", files_from=tmp_path / "list")
    assert below(tmp_path / "e") == bucket.objects("up/")
    process = run_all("cp", "--files-from", "-", f"{bucket.url}/down/", env=None, ok=0,
                      text=f"{tmp_path}/d/a\n{tmp_path}/d/x1\n")
    assert process.stderr == "" and bucket.objects("down/") == {"a": b"a", "x1": b"x1"}
    run_all("rm", "--yes", "--files-from", "-", text=f"{bucket.url}/down/a\n")
    assert set(bucket.objects("down/")) == {"x1"}


def test_every_failure_is_named(bucket, tmp_path):  # noqa: F811
    for key in ("ok.txt", "a//1", "b//2", "c//3"):
        bucket.put_object(Bucket=bucket.name, Key=key, Body=b"x")
    process = run_all("sync", "--json", bucket.url, tmp_path / "d", ok=2)
    reported = json.loads(process.stdout)
    assert reported["files_failed"] == 3
    assert sorted(item["name"] for item in reported["failures"]) == [
        f"{bucket.url}/{key}" for key in ("a//1", "b//2", "c//3")]
    assert all(key in process.stderr for key in ("a//1", "b//2", "c//3"))
    with pytest.raises(stoker.ArgumentError) as failed:
        stoker.sync(bucket.url, tmp_path / "d")
    text = "\n".join([str(failed.value), *failed.value.__notes__])
    assert all(key in text for key in ("a//1", "b//2", "c//3"))
    assert below(tmp_path / "d") == {"ok.txt": b"x"}


def test_bandwidth(bucket, tmp_path):  # noqa: F811
    write(tmp_path / "f", random_bytes(2 << 20, 3))
    begun = time.monotonic()
    copied("cp", "--bandwidth", "4M", tmp_path / "f", f"{bucket.url}/f")
    copied("cp", "--bandwidth", "4M", f"{bucket.url}/f", tmp_path / "g")
    assert time.monotonic() - begun >= 0.99
