"""What an object has besides its bytes, after a copy: content type, encoding, cache control,
metadata, tags, and the time of the file that was uploaded. On Ceph's gateway, where boto3 says what
is there, and on test servers of Google's and Azure's stores."""

from __future__ import annotations

import json
import os

import make
import pytest
from test_copy import bucket, run  # noqa: F401
from test_copy_between_stores import World, reported, world  # noqa: F401
from test_providers import clean  # noqa: F401

PART = 5 << 20
SIZES = {"empty": 0, "small": 1000, "large": 2 * PART + 7}
REPORTED = {"ContentType": "text/csv", "ContentEncoding": "gzip", "ContentLanguage": "de",
        "ContentDisposition": 'attachment; filename="a b"', "CacheControl": "max-age=60"}
META = {"who": "me", "note": "a=b; c"}
TAGS = {"project": "x", "a+b c": "ä=1/2"}


def copied(*words, **more):
    return json.loads(run(words[0], "--json", "--part-size", "5M", *words[1:], **more))


def has_all(client, key, tags=True):
    head = client.head_object(Bucket=client.name, Key=key)
    assert {name: head.get(name) for name in REPORTED} == REPORTED, key
    assert META.items() <= head["Metadata"].items(), key
    if tags:
        found = client.get_object_tagging(Bucket=client.name, Key=key).get("TagSet", [])
        assert {tag["Key"]: tag["Value"] for tag in found} == TAGS, key


def test_copies_within_s3(bucket, tmp_path):  # noqa: F811
    """Files of every size, by cp, sync and mv, and by fsspec's cp and mv."""
    filesystem = pytest.importorskip("stoker.fsspec_filesystem").StokerFileSystem()
    for name, size in SIZES.items():
        bucket.put_object(Bucket=bucket.name, Key=f"a/{name}", Body=make.random_bytes(size, 1),
                          Metadata=META, Tagging="project=x&a%2Bb%20c=%C3%A4%3D1%2F2", **REPORTED)
    copied("cp", "-r", f"{bucket.url}/a", f"{bucket.url}/b")
    copied("sync", f"{bucket.url}/b", f"{bucket.url}/c")
    copied("mv", "-r", f"{bucket.url}/c", f"{bucket.url}/d")
    root = f"stoker://s3/{bucket.name}"
    filesystem.cp(f"{root}/d/large", f"{root}/e/large")
    filesystem.mv(f"{root}/e/large", f"{root}/f/large")
    for key in [f"{place}/{name}" for place in "bd" for name in SIZES] + ["f/large"]:
        has_all(bucket, key)
    assert bucket.objects("d/") == bucket.objects("a/") and not bucket.objects("c/")


def test_tags_that_cannot_be_read(bucket, monkeypatch):  # noqa: F811
    """Then a copy has none, and is made nevertheless."""
    bucket.put_object(Bucket=bucket.name, Key="a", Body=make.random_bytes(SIZES["large"], 1),
                      Metadata=META, Tagging="project=x", **REPORTED)
    policy = {"Version": "2012-10-17", "Statement": [
        {"Effect": "Deny", "Principal": "*", "Action": "s3:GetObjectTagging",
         "Resource": f"arn:aws:s3:::{bucket.name}/*"}]}
    bucket.put_bucket_policy(Bucket=bucket.name, Policy=json.dumps(policy))
    copied("cp", f"{bucket.url}/a", f"{bucket.url}/b")
    bucket.delete_bucket_policy(Bucket=bucket.name)
    has_all(bucket, "b", tags=False)


HEADERS = {"content-type": "text/csv", "content-encoding": "gzip", "content-language": "de",
           "content-disposition": 'attachment; filename="a b"', "cache-control": "max-age=60"}


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_copies_between_stores(world, size):  # noqa: F811
    """gs to az and back, through this machine."""
    data = make.random_bytes(size, 1)
    world.put("gs", "k", data)
    world.gs.attributes["/data/k"] = {**HEADERS, "x-goog-meta-who": "me", "x-goog-meta-A-b": "c"}
    reported("cp", "--part-size", "5M", "gs://data/k", "az://data/k")
    assert world.az.objects[("data", "k")] == data
    assert world.az.attributes["/acc/data/k"].items() >= {
        **HEADERS, "x-ms-meta-who": "me", "x-ms-meta-a_b": "c"}.items()
    reported("cp", "--part-size", "5M", "az://data/k", "gs://data/back")
    assert world.gs.objects[("data", "back")] == data
    assert world.gs.attributes["/data/back"].items() >= {
        **HEADERS, "x-goog-meta-who": "me", "x-goog-meta-a_b": "c"}.items()


def test_too_much_metadata(world):  # noqa: F811
    world.put("gs", "k", b"k")
    world.gs.attributes["/data/k"] = {f"x-goog-meta-{i}": "x" for i in range(50)}
    assert "metadata" in run("cp", "gs://data/k", "az://data/k", ok=1)
    assert ("data", "k") not in world.az.objects


# ---- times ----


TIME_NS = 1_600_000_000_123_456_789


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_an_upload_has_the_time_of_its_file(bucket, tmp_path, size):  # noqa: F811
    (tmp_path / "f").write_bytes(make.random_bytes(size, 1))
    os.utime(tmp_path / "f", ns=(TIME_NS, TIME_NS))
    copied("cp", tmp_path / "f", f"{bucket.url}/d/f")
    head = bucket.head_object(Bucket=bucket.name, Key="d/f")
    assert head["Metadata"] == {"mtime": "1600000000.123456789"}  # as rclone's
    copied("cp", f"{bucket.url}/d/f", f"{bucket.url}/e/f")
    assert bucket.head_object(Bucket=bucket.name, Key="e/f")["Metadata"] == head["Metadata"]
    copied("cp", f"{bucket.url}/e/f", tmp_path / "one")
    copied("cp", "-r", f"{bucket.url}/e", tmp_path / "all")
    for path in (tmp_path / "one", tmp_path / "all/f"):
        assert path.stat().st_mtime_ns == TIME_NS, path
        assert path.read_bytes() == (tmp_path / "f").read_bytes()


@pytest.mark.parametrize("data", [b"f", b""])
@pytest.mark.parametrize("kind", ["gs", "az"])
def test_times_of_other_stores(world, tmp_path, kind, data):  # noqa: F811
    (tmp_path / "f").write_bytes(data)
    os.utime(tmp_path / "f", ns=(TIME_NS, TIME_NS))
    reported("cp", tmp_path / "f", f"{kind}://data/f")
    (kept,) = getattr(world, kind).attributes.values()
    assert [value for name, value in kept.items() if name.endswith("meta-mtime")] == [
        "2020-09-13T12:26:40.123456789Z"]
    reported("cp", f"{kind}://data/f", tmp_path / "back")
    assert (tmp_path / "back").stat().st_mtime_ns == TIME_NS


def test_sync_knows_the_times_of_files(bucket, tmp_path):  # noqa: F811
    """Down after a cp, which gives the time of the file, nothing is fetched; what was replaced
    since is."""
    (tmp_path / "a").mkdir()
    for name in ("small", "large"):
        (tmp_path / "a" / name).write_bytes(make.random_bytes(SIZES[name], 1))
        os.utime(tmp_path / "a" / name, ns=(TIME_NS, TIME_NS))
    copied("cp", "-r", tmp_path / "a", bucket.url)
    copied("cp", "-r", f"{bucket.url}/", tmp_path / "b")
    assert copied("sync", f"{bucket.url}/", tmp_path / "b")["files_kept"] == 2
    assert copied("sync", tmp_path / "a", bucket.url)["files_kept"] == 2
    bucket.put_object(Bucket=bucket.name, Key="small", Body=b"y" * SIZES["small"])
    os.utime(tmp_path / "b/small", ns=(TIME_NS, TIME_NS))
    assert copied("sync", f"{bucket.url}/", tmp_path / "b")["files_kept"] == 1
    assert (tmp_path / "b/small").read_bytes() == b"y" * SIZES["small"]
    report = copied("sync", f"{bucket.url}/", tmp_path / "b")
    assert report["files_kept"] == 2
