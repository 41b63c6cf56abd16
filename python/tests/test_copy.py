"""stoker cp, sync, rm, stat, ls --files and cat of objects, on Ceph's S3 gateway and nginx.

boto3 reads the objects of a store after a copy; whatever fails on the way, a name holds the
complete old object or the complete new one."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import time

import make
import pytest
import stoker
from make import random_bytes
from test_cli import COMMAND, on_terminal
from test_fault_proxy import Proxy

WAIT = 120  # seconds: a bound for work that ends much sooner
PART = 5 << 20
LARGE = 2 * PART + 12_345  # three parts


def run(*words, ok=0, env=None):
    process = subprocess.run([COMMAND, *map(str, words)], capture_output=True, text=True,
                             timeout=WAIT, env={**os.environ, **(env or {})})
    assert process.returncode == ok or (ok is None), (words, process.returncode, process.stderr)
    return process.stdout if process.returncode == 0 else process.stderr


def copy(*words, **more):
    return json.loads(run(words[0], "--json", "--part-size", "5M", *words[1:], **more))


FILES = {"plain": 1000, "empty": 0, "sub/ü +%41&=?#\\.bin": 70_000, "sub/deep/large": LARGE,
         "sub/deep/part": PART, "a'b\"c<d>": 1}


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    return make.tree(tmp_path_factory.mktemp("tree"), FILES)


def below(root):
    return {str(path.relative_to(root)): path.read_bytes()
            for path in sorted(pathlib.Path(root).rglob("*")) if path.is_file()}


@pytest.fixture
def bucket(ceph, request):
    """A bucket of the test's own."""
    client, name = ceph.client(), request.node.name.lower().replace("_", "-").split("[")[0]
    client.create_bucket(Bucket=name)

    def objects(prefix=""):
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=name, Prefix=prefix)
        keys = [item["Key"] for page in pages for item in page.get("Contents", [])]
        return {key[len(prefix):]: client.get_object(Bucket=name, Key=key)["Body"].read()
                for key in keys}

    client.objects, client.name, client.url = objects, name, f"s3://{name}"
    return client


def test_there_and_back(bucket, tree, tmp_path):
    reported = copy("cp", "-r", tree, f"{bucket.url}/a")
    assert reported["files_done"] == len(FILES) and reported["bytes_done"] == sum(FILES.values())
    assert bucket.objects("a/") == below(tree)
    for name, data in below(tree).items():  # objects that other programs wrote are read as well
        bucket.put_object(Bucket=bucket.name, Key=f"b/{name}", Body=data)
    for prefix in "ab":
        copy("cp", "-r", f"{bucket.url}/{prefix}/", tmp_path / prefix)
        assert below(tmp_path / prefix) == below(tree)
    copy("cp", "-r", f"{bucket.url}/a", f"{bucket.url}/c/d")  # within the store
    assert bucket.objects("c/d/") == below(tree)
    copy("cp", tree / "plain", tree / "empty", f"{bucket.url}/e")
    assert bucket.objects("e/") == {"plain": (tree / "plain").read_bytes(), "empty": b""}
    copy("cp", f"{bucket.url}/a/plain", tmp_path / "named")
    assert (tmp_path / "named").read_bytes() == (tree / "plain").read_bytes()
    for check in ("md5", "sha256", "crc32c", "crc64nvme"):  # those unknown to the server do no harm
        copy("cp", "--check", check, tree / "sub/deep/large", f"{bucket.url}/f/{check}")
    assert set(bucket.objects("f/").values()) == {(tree / "sub/deep/large").read_bytes()}


def test_others_read_it(bucket, tree):
    s3fs = pytest.importorskip("s3fs")
    copy("cp", "-r", tree, f"{bucket.url}/a")
    files = s3fs.S3FileSystem(endpoint_url=bucket.meta.endpoint_url)
    assert {name.split("/", 2)[2]: files.cat(name)
            for name in files.find(f"{bucket.name}/a")} == below(tree)
    files.pipe(f"{bucket.name}/by/s3fs", b"12345")
    assert run("cat", f"{bucket.url}/by/s3fs") == "12345"


def test_sync(bucket, tmp_path):
    source, back = tmp_path / "source", tmp_path / "back"
    source.mkdir()
    for number in range(20):
        (source / f"{number}").write_bytes(random_bytes(number * 100, number))
    url = f"{bucket.url}/x"
    assert copy("sync", source, url)["files_kept"] == 0
    assert copy("sync", source, url)["files_kept"] == 20
    (source / "3").write_bytes(b"another")
    (source / "new").write_bytes(b"new")
    (source / "7").unlink()
    reported = copy("sync", source, url)
    assert reported["files_done"] - reported["files_kept"] == 2 and reported["files_removed"] == 0
    assert "7" in bucket.objects("x/")
    assert copy("sync", "--delete", source, url)["files_removed"] == 1
    assert bucket.objects("x/") == below(source)
    back.mkdir()
    (back / "old").write_bytes(b"old")
    assert copy("sync", "--delete", url, back)["files_removed"] == 1
    assert below(back) == below(source)
    assert copy("sync", url, back)["files_kept"] == 20
    (tmp_path / "void").mkdir()
    assert "nothing is removed" in run("sync", "--delete", tmp_path / "void", url, ok=1)
    assert "nothing" in run("sync", "--delete", f"{bucket.url}/none/", back, ok=None)
    assert bucket.objects("x/") == below(source) == below(back)


def await_true(condition):
    until = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def kill(command, ceph_url, rules, ready):
    """Starts the command with a proxy, and kills it once ready() is true."""
    with Proxy("--to", ceph_url, rules=rules) as proxy:
        env = {**os.environ, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}"}
        process = subprocess.Popen([COMMAND, *map(str, command)], env=env)
        await_true(ready)
        process.kill()
        process.wait()


def test_killed_upload_goes_on(ceph, bucket, tmp_path):
    source, size = tmp_path / "large", 6 * PART
    source.write_bytes(random_bytes(size, 1))
    command = ("cp", "--part-size", "5M", source, f"{bucket.url}/large")

    def parts():
        uploads = bucket.list_multipart_uploads(Bucket=bucket.name).get("Uploads", [])
        return len(bucket.list_parts(Bucket=bucket.name, Key="large", UploadId=uploads[0][
            "UploadId"]).get("Parts", [])) if uploads else 0

    rules = [{"method": "PUT", "query": "*partNumber=3*", "fault": "stall"}]
    for _ in range(2):
        kill(command, ceph.url, rules, lambda: parts() == 5)
    assert bucket.objects() == {}
    reported = copy("cp", source, f"{bucket.url}/large")
    assert reported["bytes_kept"] == 5 * PART
    assert bucket.objects() == {"large": source.read_bytes()}
    assert "Uploads" not in bucket.list_multipart_uploads(Bucket=bucket.name)


def test_two_processes_and_one_file(ceph, bucket, tmp_path):
    """The second process gets an error and changes nothing; when a process dies, the file is free
    again."""
    data, target = random_bytes(6 * PART, 2), tmp_path / "to/large"
    bucket.put_object(Bucket=bucket.name, Key="large", Body=data)
    target.parent.mkdir()
    command = ("cp", "--part-size", "5M", f"{bucket.url}/large", target)
    reported = []

    def written():
        return sum(path.stat().st_size for path in target.parent.glob(".stoker-*.part"))

    def second():
        before = written()
        if not list(target.parent.iterdir()):
            return False
        reported.append(run(*command, ok=3))
        return written() >= before

    rules = [{"method": "GET", "range": True, "path": "*large", "nth": 2, "fault": "stall"}]
    kill(command, ceph.url, rules, second)
    assert len(reported) == 1 and "another process writes this file" in reported[0]
    assert copy("cp", f"{bucket.url}/large", target)["files_done"] == 1
    assert target.read_bytes() == data and len(list(target.parent.iterdir())) == 1


def test_killed_download_goes_on(ceph, bucket, tmp_path):
    data, target = random_bytes(6 * PART, 2), tmp_path / "to/large"
    bucket.put_object(Bucket=bucket.name, Key="large", Body=data)
    target.parent.mkdir()
    target.write_bytes(b"the old one")
    command = ("cp", "--workers", 1, "--part-size", "5M", f"{bucket.url}/large", target)

    def summed():  # parts whose sums are noted, too: a line each after the first
        notes = target.parent.glob(".stoker-*-of.part")
        return sum(note.stat().st_size // 17 - 1 for note in notes)

    rules = [{"method": "GET", "range": True, "path": "*large", "nth": 5, "fault": "stall"}]
    kill(command, ceph.url, rules, lambda: summed() >= 2)
    assert target.read_bytes() == b"the old one"
    assert copy("cp", f"{bucket.url}/large", target)["bytes_kept"] >= 2 * PART
    assert target.read_bytes() == data and len(list(target.parent.iterdir())) == 1
    # Bytes of another version are not reused.
    target.unlink()
    kill(command, ceph.url, rules, lambda: summed() >= 2)
    bucket.put_object(Bucket=bucket.name, Key="large", Body=data[::-1])
    assert copy("cp", f"{bucket.url}/large", target)["bytes_kept"] == 0
    assert target.read_bytes() == data[::-1] and len(list(target.parent.iterdir())) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting takes root")
def test_full_disk(tmp_path):
    """The complete parts of a large file are kept, and the error says so; of a smaller file nothing
    is left."""
    source, disk = tmp_path / "large", tmp_path / "disk"
    source.write_bytes(random_bytes(4 * PART, 1))
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={PART - 8192}", "none", disk], check=True)
    try:
        words = ("cp", "--part-size", "5M", source, f"{disk}/")
        assert "free space" in run(*words, ok=3) and list(disk.iterdir()) == []
        (disk / "all").write_bytes(bytes(PART - 8192))
        assert "No space left" in run(*words, ok=3)
        assert [path.name for path in disk.iterdir()] == ["all"]
        (disk / "all").unlink()
        subprocess.run(["mount", "-o", f"remount,size={2 * PART + 12288}", disk], check=True)
        text = run(*words, ok=3)
        assert f"continues after {2 * PART} bytes" in text, text
        left, note = sorted(disk.iterdir(), key=lambda path: -path.stat().st_size)
        assert left.name in text and note.stat().st_size == 3 * 17
        subprocess.run(["mount", "-o", f"remount,size={8 * PART}", disk], check=True)
        assert copy("cp", source, f"{disk}/")["bytes_kept"] == 2 * PART
        assert below(disk) == {"large": source.read_bytes()}
    finally:
        subprocess.run(["umount", "-l", disk], check=False)


def test_fresh(bucket, tree, tmp_path):
    for name in ("plain", "sub/deep/large"):
        copy("cp", "--no-clobber", tree / name, f"{bucket.url}/key")
        assert "exists already" in run("cp", "--no-clobber", "--part-size", "5M", tree / "empty",
                                         f"{bucket.url}/key", ok=3)
        (tmp_path / "other").write_bytes(random_bytes(LARGE, 9))
        assert "exists already" in run("cp", "--no-clobber", "--part-size", "5M",
                                         tmp_path / "other", f"{bucket.url}/key", ok=3)
        assert bucket.objects() == {"key": (tree / name).read_bytes()}
        run("rm", f"{bucket.url}/key")
    assert bucket.objects() == {}


def test_keys_that_are_no_paths(bucket, tmp_path):
    keys = ["good", "../out", "a/../../out", "/abs", "a//b", "a/./b", "x" * 300, "dir/", "ok/ok"]
    for key in keys:
        bucket.put_object(Bucket=bucket.name, Key=f"p/{key}", Body=b"data")
    target = tmp_path / "in/here"
    assert "not a valid local path" in run("cp", "-r", f"{bucket.url}/p/", target, ok=2)
    assert below(tmp_path) == {"in/here/good": b"data", "in/here/ok/ok": b"data"}
    # Within stores any key is a key.
    copy("cp", "-r", f"{bucket.url}/p/", f"{bucket.url}/q/")
    assert bucket.objects("q/") == dict.fromkeys(keys, b"data")


def test_marks_of_folders(bucket, tmp_path):
    """Objects that represent folders, as consoles create them: they are not copied as files, but
    removed with their folder; such an object that has bytes is never skipped silently."""
    def put(data, *keys):
        for key in keys:
            bucket.put_object(Bucket=bucket.name, Key=key, Body=data)

    put(b"", "a/", "a/b/", "a/b/c/", "a//", "void/", "d/e/", "d/f", "x//y")
    put(b"data", "a/b/one")
    for folder in ("void", "void/", "a/b/c", "x"):
        assert json.loads(run("stat", "--json", f"{bucket.url}/{folder}"))["kind"] == "folder"
    assert run("ls", "--files", f"{bucket.url}/void") == ""
    assert copy("cp", "-r", f"{bucket.url}/a", tmp_path / "a")["files"] == 1
    assert below(tmp_path) == {"a/b/one": b"data"}
    assert "not a valid local path" in run("cp", "-r", f"{bucket.url}/x", tmp_path / "x", ok=2)
    put(b"data", "a/b/full/")
    assert "key 'b/full/'" in run("cp", "-r", f"{bucket.url}/a", tmp_path / "a", ok=2)
    copy("sync", "--delete", f"{bucket.url}/a", f"{bucket.url}/to")
    assert bucket.objects("to/") == {"b/one": b"data", "b/full/": b"data"}
    assert "folder" in run("rm", f"{bucket.url}/void/", ok=3)
    for folder, count in (("void", 1), ("d", 2), ("a/b/", 4), ("a", 2), ("x", 1), ("to", 2)):
        reported = json.loads(run("rm", "-r", "-y", "--json", f"{bucket.url}/{folder}"))
        assert reported["files_removed"] == count, folder
    assert bucket.objects() == {}


def test_by_http(nginx, shelf, bucket, tmp_path):
    name = "tars/train-000.tar"
    data = (shelf / name).read_bytes()
    for way in ("", "/noranges", "/moved"):
        copy("cp", f"{nginx.url}{way}/{name}", tmp_path / "to")
        assert (tmp_path / "to").read_bytes() == data
    copy("cp", f"{nginx.url}/large/0.tar", f"{bucket.url}/x/")
    assert bucket.objects("x/") == {"0.tar": (shelf / "large/0.tar").read_bytes()}
    assert "is read-only" in run("cp", shelf / name, f"{nginx.url}/x", ok=1)
    assert "no such object" in run("cp", f"{nginx.url}/none", tmp_path / "x", ok=3)


def test_look_and_remove(bucket, tree):
    copy("cp", "-r", tree, f"{bucket.url}/a")
    lines = [json.loads(line) for line in run("ls", "--files", "-r", "--json", f"{bucket.url}/a")
             .splitlines()]
    assert {line["path"]: line["bytes"] for line in lines} == FILES
    lines = [json.loads(line) for line in run("ls", "--files", "--json", f"{bucket.url}/a")
             .splitlines()]
    assert {line["path"] for line in lines} == {"plain", "empty", "sub", "a'b\"c<d>"}
    reported = json.loads(run("stat", "--json", f"{bucket.url}/a/plain"))
    assert reported["bytes"] == 1000 and reported["kind"] == "file" and len(reported["etag"]) == 34
    assert json.loads(run("stat", "--json", f"{bucket.url}/a"))["kind"] == "folder"
    assert "no such object" in run("stat", f"{bucket.url}/none", ok=3)
    process = subprocess.run([COMMAND, "cat", f"{bucket.url}/a/sub/deep/large"],
                             capture_output=True, timeout=WAIT, check=True)
    assert process.stdout == (tree / "sub/deep/large").read_bytes()
    assert "folder" in run("rm", f"{bucket.url}/a", ok=3)
    assert "no terminal for a prompt" in run("rm", "-r", f"{bucket.url}/a", ok=2)
    run("rm", f"{bucket.url}/a/plain")
    assert len(bucket.objects()) == len(FILES) - 1
    for key in ("b\x01c", "b&<c>"):
        bucket.put_object(Bucket=bucket.name, Key=f"a/{key}", Body=b"")
    assert json.loads(run("rm", "-r", "-y", "--json", f"{bucket.url}/a"))["files_removed"] == \
        len(FILES) + 1
    assert bucket.objects() == {}
    upload = bucket.create_multipart_upload(Bucket=bucket.name, Key="left")["UploadId"]
    bucket.upload_part(Bucket=bucket.name, Key="left", UploadId=upload, PartNumber=1, Body=b"x")
    run("rm", "--unfinished-uploads", "-y", bucket.url)  # a young one may be at work
    assert len(bucket.list_multipart_uploads(Bucket=bucket.name)["Uploads"]) == 1
    time.sleep(2.1)  # Ceph reports whole seconds
    reported = json.loads(run("rm", "--unfinished-uploads", "-y", "--older-than", "1", "--json",
                          bucket.url))
    assert reported["files_removed"] == 1
    assert "Uploads" not in bucket.list_multipart_uploads(Bucket=bucket.name)


def curl(*words):
    return subprocess.run(["curl", "-sS", "-o", "-", "-w", "%{http_code}", *map(str, words)],
                          capture_output=True, timeout=WAIT, check=True).stdout


def test_presign(bucket, tmp_path):
    """A signed URL reads, or writes, one object without credentials, and then no more."""
    for key in ("plain", "a b/ü +%41&=?#\\'.bin", "x//y"):
        bucket.put_object(Bucket=bucket.name, Key=key, Body=key.encode())
        url = run("presign", f"{bucket.url}/{key}").strip()
        assert curl(url) == key.encode() + b"200"
        assert curl("-X", "PUT", "--data-binary", "no", "-H", "Content-Type:", url)[-3:] == b"403"
        assert curl(url.replace("Signature=", "Signature=0"))[-3:] == b"403"
        assert run("cat", url) == key  # as any URL; and it is shown without its signature
        assert "Signature" not in run("ls", "--files", url)
    url = stoker.presign(f"{bucket.url}/new", method="PUT")
    (tmp_path / "data").write_bytes(random_bytes(1000, 6))
    assert curl("-T", tmp_path / "data", url)[-3:] == b"200"
    assert curl(url)[-3:] == b"403"
    assert bucket.objects()["new"] == (tmp_path / "data").read_bytes()
    reported = json.loads(run("presign", "--json", "--expires", "1", f"{bucket.url}/plain"))
    assert reported["path"] == f"{bucket.url}/plain" and reported["expires"].endswith("Z")
    time.sleep(2.1)
    assert curl(reported["url"])[-3:] == b"403"
    assert stoker.presign(f"{bucket.url}/none")  # whether it is there shows when it is used
    for words in (["--expires", "604801", f"{bucket.url}/x"], [bucket.url], []):
        run("presign", *words, ok=2)
    for url in ("gs://b/x", "az://c/x", "http://h/x", "hf://datasets/a/b/x"):
        assert url in run("presign", url, ok=1)
    anonymous = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "HOME": str(tmp_path),
              "AWS_EC2_METADATA_DISABLED": "true"}
    assert "no credentials" in run("presign", f"{bucket.url}/x", ok=3, env=anonymous)
    with pytest.raises(stoker.ArgumentError):
        stoker.presign(f"{bucket.url}/x", expires=0)
    with pytest.raises(stoker.ArgumentError):
        stoker.presign(f"{bucket.url}/x", method="DELETE")


def test_buckets(bucket):
    names = {item["Name"] for item in bucket.list_buckets()["Buckets"]}
    assert bucket.name in names
    for words in (["ls", "s3://"], ["ls", "--files", "S3://"]):
        assert {line[5:] for line in run(*words).split()} == names
    lines = [json.loads(line) for line in run("ls", "--json", "s3://").splitlines()]
    assert {line["path"] for line in lines} == {f"s3://{name}" for name in names}
    assert {info.name for info in stoker.ls("s3://")} == names
    assert "s3://" in run("ls", "s3://", ok=3, env={"AWS_SECRET_ACCESS_KEY": "wrong"})
    assert run("ls", "gs://", ok=2)


def test_foreign_upload(bucket, tmp_path):
    """An unfinished upload of another program, and public, is not continued nor ended."""
    source = tmp_path / "private"
    source.write_bytes(random_bytes(LARGE, 3))
    upload = bucket.create_multipart_upload(Bucket=bucket.name, Key="key", ACL="public-read",
                                            ContentType="text/csv")["UploadId"]
    bucket.upload_part(Bucket=bucket.name, Key="key", UploadId=upload, PartNumber=1,
                       Body=source.read_bytes()[:PART])
    assert copy("cp", source, f"{bucket.url}/key")["bytes_kept"] == 0
    grants = bucket.get_object_acl(Bucket=bucket.name, Key="key")["Grants"]
    assert all("AllUsers" not in grant["Grantee"].get("URI", "") for grant in grants)
    assert bucket.head_object(Bucket=bucket.name, Key="key")["ContentType"] != "text/csv"
    left = bucket.list_multipart_uploads(Bucket=bucket.name)["Uploads"]
    assert [item["UploadId"] for item in left] == [upload]


def test_unfinished_below_prefix(bucket):
    """Only the given prefix, and only uploads that are old enough; half a second is not the
    default."""
    for key in ("up", "up/x", "up2/y"):
        bucket.create_multipart_upload(Bucket=bucket.name, Key=key)
    time.sleep(2.1)
    assert json.loads(run("rm", "--unfinished-uploads", "-y", "--older-than", "3600", "--json",
                          f"{bucket.url}/up"))["files_removed"] == 0
    assert json.loads(run("rm", "--unfinished-uploads", "-y", "--older-than", "0.5", "--json",
                          f"{bucket.url}/up"))["files_removed"] == 2
    left = bucket.list_multipart_uploads(Bucket=bucket.name)["Uploads"]
    assert [item["Key"] for item in left] == ["up2/y"]


def test_exclusive_equal_bytes(bucket, tmp_path):
    """Create-only fails for equal bytes: a lock file locks. In one request, in parts, within S3."""
    for name, size in (("small", 5), ("large", LARGE)):
        source = tmp_path / name
        source.write_bytes(random_bytes(size, 4))
        copy("cp", "--no-clobber", source, f"{bucket.url}/{name}")
        assert "already" in run("cp", "--part-size", "5M", "--no-clobber", source,
                                f"{bucket.url}/{name}", ok=3)
        assert "already" in run("cp", "--no-clobber", f"{bucket.url}/{name}",
                                f"{bucket.url}/{name}", ok=3)


def test_many(bucket, tmp_path):
    """More keys than a page: listed by stretches, each key once."""
    source = tmp_path / "many"
    for number in range(2600):
        path = source / f"{number % 7}" / f"file-{number:06}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"%d" % number)
    copy("cp", "-r", source, f"{bucket.url}/many")
    names = run("ls", "--files", "-r", f"{bucket.url}/many").splitlines()
    assert len(names) == 2600 == len({line.split()[2] for line in names})
    copy("cp", "-r", f"{bucket.url}/many", tmp_path / "back")
    assert below(tmp_path / "back") == below(source)
    reported = json.loads(run("rm", "-r", "-y", "--json", f"{bucket.url}/many"))
    assert reported["files_removed"] == 2600
    assert bucket.objects() == {}


@pytest.mark.parametrize("fault", ["endless-list", "stuck-list", "xml-bomb", "deep-xml", "garbage"])
def test_lists_that_lie(fault, monkeypatch, tmp_path):
    with Proxy("--log", os.devnull, rules=[
            {"fault": fault, "query": "*list-type*"},
            {"fault": "status", "status": 404, "code": "NoSuchKey"}]) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        assert run("cp", "-r", "s3://bucket/x/", tmp_path / "to", ok=None).startswith("stoker: ")
        process = subprocess.run([COMMAND, "ls", "--files", "-r", "--limit", "5000",
                                  "s3://bucket/x/"], capture_output=True, text=True, timeout=WAIT)
        assert process.returncode != 0 and process.stderr.startswith("stoker: ")
    assert below(tmp_path) == {}


def test_progress_on_a_terminal(tmp_path):
    """A bar with rate and time left, and nothing of it left on the screen in the end."""
    (tmp_path / "stores" / "bucket").mkdir(parents=True)
    for number in range(8):
        (tmp_path / "stores" / "bucket" / f"{number}.bin").write_bytes(bytes(100_000))
    rules = [{"method": "GET", "fault": "delay", "delay_ms": 250}]
    with Proxy("--folder", tmp_path / "stores", rules=rules) as server:
        words = ["cp", "--workers", 1, f"http://{server.host}:{server.port}/bucket/{{0..7}}.bin",
                 tmp_path / "here"]
        screen, status, out, _ = on_terminal(words, 0, {})
    assert status == 0 and out.startswith("copied     8 files, 800.0 kB in ")
    assert "█".encode() in screen and b" of 8 files, " in screen and b" left" in screen
    assert screen.endswith(b"\x1b[K"), screen[-80:]
