#!/usr/bin/env python3
"""Measure reading from object stores, and write a table and bench/results/store.json.

usage: run_store.py --data DIR [--runs N] [--only NAME,...] [--name NAME]

  tars     raw samples of DIR/tars/*.tar (6,000 of 96 kB in ten tars of 60 MB) from Ceph's S3
           gateway: stoker beside boto3 (whole objects, 10 threads: no samples), webdataset and
           s3torchconnector, where this Python has them
  far      the same by http from nginx, 30 to 50 ms away, 80 MB/s a connection
  objects  DIR/folder/*/*.jpg one by one, 46 ms away: one caller; boto3 with 10 threads takes 600
  ranges   random ranges of 128 kB of those tars, 46 ms away
  cpu      CPU seconds a GB, plain and by TLS: the first epoch without an index, the second by one
           (no walk over headers, and no memory that was never touched), and ranges of 8 MB into
           memory that is used again (stoker bench store: the client without a loader)

Beside objects and cpu stand their floors (bench/store_floor.c, compiled here): the same bytes to
memory that was touched before, by recv alone, and by libcurl alone.

The servers are started here, by python/tests/servers.py (nginx with Lua, Ceph; root), and share
the cores with the measured program. Every round runs each candidate once, in a process of its own;
the table has medians. A round's seconds begin when the imports are done.
"""
import argparse
import json
import os
import pathlib
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

from measure import build_folder

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "python" / "tests"))
import servers  # noqa: E402

BUCKET = "bench"
THREADS = 10  # of boto3
PART = 8 << 20
BATCH = 64
FLOOR_CONNECTIONS = {"objects": 256, "cpu": 64}


def say(text):
    print(f"run_store: {text}", file=sys.stderr)


# ---- candidates: each in a process of its own, given (source, limit) ----------------------------


def count_samples(batches, columns):
    samples = size = 0
    first = None
    for batch in batches:
        for name in columns:
            size += sum(len(value) for value in batch[name])
        samples += len(batch[columns[0]])
        first = first or time.perf_counter()
    return samples, size, first


def stoker_samples(source, limit):
    """All samples, headers included; limit: an endpoint of S3 without a signature."""
    import stoker

    if limit:
        os.environ |= {"AWS_ENDPOINT_URL": limit, "AWS_ACCESS_KEY_ID": "a",
                       "AWS_SECRET_ACCESS_KEY": "b"}
    with stoker.Loader(source, BATCH, fields={"jpg": stoker.Bytes("jpg")}, output="numpy",
                       tail="keep", index="never") as loader:
        found = count_samples(loader, ["jpg"])
        stats = loader.stats()
    return *found, {"reads": stats["io_requests"]}


def stoker_later(source, limit):
    """The second epoch by an index, limit."""
    import stoker

    with stoker.Loader(source, BATCH, fields={"jpg": stoker.Bytes("jpg")}, output="numpy",
                       tail="keep", index=limit) as loader:
        count_samples(loader, ["jpg"])
        loader.set_epoch(1)
        start, before = time.perf_counter(), os.times()
        samples, size, _ = count_samples(loader, ["jpg"])
        wall = time.perf_counter() - start
    return samples, size, None, {"wall": wall, "cpu": cpu_since(before)}


def stoker_client(source, limit):
    """Ranges of 8 MB by `stoker bench store`, 32 at once."""
    done = subprocess.run([build_folder("stoker") / "stoker", "bench", "store", "--json", "--sizes",
                           "8M", "--concurrency", "32", "--bytes", "2G", source],
                          capture_output=True, check=True)
    row = json.loads(done.stdout)["reads"][0]
    return 0, row["bytes"], None, {"wall": row["seconds"], "cpu": row["cpu_seconds"]}


def stoker_ranges(source, limit):
    """A tar whose samples are ranges of 128 kB, each alone and in no order; limit: its index, so
    that no walk over headers brings them."""
    import stoker

    with stoker.Loader(source, BATCH, fields={"bin": stoker.Bytes("bin")}, output="numpy",
                       shuffle="full", tail="keep", index=limit,
                       engine=stoker.Engine(io_gap_bytes=1)) as loader:
        return count_samples(loader, ["bin"])


def boto_whole(source, limit):
    from concurrent.futures import ThreadPoolExecutor

    import boto3
    from botocore.config import Config

    client = boto3.client("s3", config=Config(max_pool_connections=THREADS,
                                              s3={"addressing_style": "path"}))
    keys = client.list_objects_v2(Bucket=BUCKET, Prefix="tars/")["Contents"]
    parts = [(item["Key"], at, min(at + PART, item["Size"]) - 1)
             for item in keys for at in range(0, item["Size"], PART)]

    def get(part):
        key, begin, end = part
        body = client.get_object(Bucket=BUCKET, Key=key, Range=f"bytes={begin}-{end}")["Body"]
        return len(body.read())

    with ThreadPoolExecutor(THREADS) as pool:
        return 0, sum(pool.map(get, parts)), None


def boto_objects(source, limit):
    """Small objects, 10 threads; source: the endpoint; limit: keys of the bucket `slow`."""
    from concurrent.futures import ThreadPoolExecutor

    import boto3
    from botocore import UNSIGNED
    from botocore.config import Config

    client = boto3.client("s3", endpoint_url=source, region_name="us-east-1", config=Config(
        max_pool_connections=THREADS, signature_version=UNSIGNED, s3={"addressing_style": "path"}))
    keys = json.loads(limit)
    with ThreadPoolExecutor(THREADS) as pool:
        sizes = pool.map(lambda key: len(client.get_object(Bucket="slow", Key=key)["Body"].read()),
                         keys)
        return len(keys), sum(sizes), None


def web_samples(urls):
    import webdataset

    pipeline = webdataset.DataPipeline(
        webdataset.SimpleShardList(urls), webdataset.tarfile_to_samples())
    samples = size = 0
    first = None
    for sample in pipeline:
        size += len(sample["jpg"])
        samples += 1
        first = first or (time.perf_counter() if samples == BATCH else None)
    return samples, size, first


def webdataset_samples(source, limit):
    return web_samples([f"pipe:curl -sf {url}" for url in json.loads(limit)])


def connector_samples(source, limit):
    import tarfile

    from s3torchconnector import S3IterableDataset
    from s3torchconnector._s3client import S3ClientConfig

    samples = size = 0
    first = None
    data = S3IterableDataset.from_prefix(
        f"s3://{BUCKET}/tars/", region="us-east-1", endpoint=os.environ["AWS_ENDPOINT_URL"],
        s3client_config=S3ClientConfig(force_path_style=True))
    for reader in data:
        with tarfile.open(fileobj=reader, mode="r|") as archive:
            for member in archive:
                if member.name.endswith(".jpg"):
                    size += len(archive.extractfile(member).read())
                    samples += 1
                    first = first or (time.perf_counter() if samples == BATCH else None)
    return samples, size, first


def requests_one_by_one(source, limit):
    """http.client on one persistent connection: like a loop over objects."""
    import http.client
    import urllib.parse

    urls = json.loads(limit)[:40]
    host = urllib.parse.urlsplit(urls[0]).netloc
    connection = http.client.HTTPConnection(host)
    size = 0
    for url in urls:
        connection.request("GET", urllib.parse.urlsplit(url).path)
        size += len(connection.getresponse().read())
    return len(urls), size, None


def make_floor(home):
    program = home / "store_floor"
    subprocess.run(["cc", "-O2", "-D_GNU_SOURCE", str(HERE / "store_floor.c"), "-o", program,
                    "-lcurl"], check=True)
    return program


def floor_rows(program, what, url, paths, certificate=None):
    """Rows of recv (of plain HTTP) and libcurl alone; paths: complete objects, or (path, bytes)."""
    lines = []
    for path in paths:
        if isinstance(path, str):
            lines.append(f"{url}/{path}")
        else:
            lines += [f"{url}/{path[0]} {at}-{min(at + PART, path[1]) - 1}"
                      for at in range(0, path[1], PART)]
    listed = program.parent / f"floor-{len(list(program.parent.glob('floor-*')))}"
    listed.write_text("".join(f"{line}\n" for line in lines))
    words = [str(FLOOR_CONNECTIONS[what]), *([str(certificate)] if certificate else [])]
    title = "TLS" if certificate else "plain" if what == "cpu" else what
    return [(f"{title}: {way} alone", "floor", str(listed), json.dumps([str(program), way, *words]))
            for way in (["curl"] if certificate else ["recv", "curl"])]


def run_floor(listed, words):
    with open(listed, "rb") as lines:
        done = subprocess.run(json.loads(words), stdin=lines, capture_output=True, text=True,
                              check=False, timeout=600)
    return json.loads(done.stdout) if done.returncode == 0 else {"failed": done.stderr.strip()}


def cpu_since(before):
    after = os.times()
    return (after.user + after.system - before.user - before.system
            + after.children_user + after.children_system
            - before.children_user - before.children_system)


def child(name, source, limit):
    for module in {"boto": ["boto3"], "webd": ["webdataset"], "conn": ["s3torchconnector"],
                   "stok": ["stoker"]}.get(name[:4], []):
        __import__(module)
    start, before = time.perf_counter(), os.times()
    samples, size, first, *more = globals()[name](source, limit)
    print(json.dumps({"wall": time.perf_counter() - start, "samples": samples, "bytes": size,
                      "first": None if first is None else first - start,
                      "cpu": cpu_since(before), **(more[0] if more else {})}))


# ---- rounds -------------------------------------------------------------------------------------


def run_child(name, source, limit, environment):
    if name == "floor":
        return run_floor(source, limit)
    done = subprocess.run([sys.executable, __file__, "--child", name, source, limit], text=True,
                          capture_output=True, check=False, timeout=600,
                          env={**os.environ, **environment})
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return {"failed": last}
    return json.loads(done.stdout.splitlines()[-1])


def measure(rows, runs, environment):
    """Rows of (title, candidate, source, limit); each round takes each once."""
    results = {row[0]: [] for row in rows}
    for _ in range(runs):
        for title, name, source, limit in rows:
            if results[title] and "failed" in results[title][0]:
                continue
            results[title].append(run_child(name, source, limit, environment))
    return results


def median(rounds, of):
    values = [of(one) for one in rounds]
    return statistics.median(values)


def show(title, rounds):
    if "failed" in rounds[0]:
        print(f"| {title} | {rounds[0]['failed'][:70]} | | | | |")
        return
    first = rounds[0]["first"] is not None and median(rounds, lambda one: one["first"])
    print(f"| {title} | {median(rounds, lambda one: one['samples'] / one['wall']):,.0f} "
          f"| {median(rounds, lambda one: one['bytes'] / one['wall'] / 1e6):,.0f} "
          f"| {median(rounds, lambda one: one['cpu'] / one['bytes'] * 1e9):.2f} "
          f"| {'' if first is False else f'{first:.2f}'} "
          f"| {min(one['wall'] for one in rounds):.2f}-{max(one['wall'] for one in rounds):.2f} |")


def upload(ceph, data):
    client = ceph.client()
    client.create_bucket(Bucket=BUCKET)
    for path in sorted((data / "tars").glob("*.tar")):
        client.upload_file(str(path), BUCKET, f"tars/{path.name}")


def make_index(build, index, url, environment):
    subprocess.run([build / "stoker", "index", "--out", index, url], check=True,
                   capture_output=True, env={**os.environ, **environment})


def range_tar(home, count=2000, size=131072):
    """A tar of `count` members of 128 kB less their header."""
    sys.path.insert(0, str(HERE.parent / "python" / "tests"))
    import make

    rng = random.Random(1)
    make.tar(home / "ranges.tar", [(f"{i:05}.bin", rng.randbytes(size - 512))
                                   for i in range(count)])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", default="tars,far,objects,ranges,cpu")
    parser.add_argument("--name", default="store")
    args = parser.parse_args()
    only = args.only.split(",")
    build = build_folder("stoker")
    os.environ["PYTHONPATH"] = str(build / "python")
    tars = sorted(path.name for path in (args.data / "tars").glob("*.tar"))
    results = {}
    with tempfile.TemporaryDirectory(dir="/dev/shm") as temporary:
        home = pathlib.Path(temporary)
        (home / "nginx").mkdir()
        (home / "data").mkdir()
        for name in ("tars", "folder"):
            (home / "data" / name).symlink_to((args.data / name).resolve())
        range_tar(home / "data")
        nginx = servers.Nginx(home / "nginx", home / "data", tls=True)
        environment = {"AWS_CA_BUNDLE": str(nginx.certificate)}
        slow = f"{nginx.url}/slow"
        jpegs = sorted(str(path.relative_to(args.data))
                       for path in (args.data / "folder").glob("*/*.jpg"))[:6000]
        braces = f"/tars/{{{','.join(tars)}}}"
        try:
            if "tars" in only:
                (home / "ceph").mkdir()
                ceph = servers.Ceph(home / "ceph")
                say("uploading")
                upload(ceph, args.data)
                environment |= ceph.environment()
                urls = json.dumps([f"aws s3 cp s3://{BUCKET}/tars/{name} -" for name in tars])
                results |= measure([
                    ("Ceph: stoker", "stoker_samples", f"s3://{BUCKET}/tars", ""),
                    ("Ceph: boto3, bytes only", "boto_whole", "", ""),
                    ("Ceph: s3torchconnector", "connector_samples", "", urls),
                ], args.runs, environment)
                ceph.close()
            rows = []
            if "far" in only:
                rows += [("far: stoker", "stoker_samples", slow + braces, ""),
                         ("far: webdataset, curl", "webdataset_samples", "",
                          json.dumps([f"{slow}/tars/{name}" for name in tars]))]
            if "objects" in only:
                (home / "data" / "lists").mkdir()
                servers.list_folder(home / "data", home / "data" / "lists", "folder")
                listed = [f"{slow}/{name}" for name in jpegs[:40]]
                rows += [("objects: stoker", "stoker_samples", "s3://slow/folder/", nginx.url),
                         ("objects: boto3, 10 threads", "boto_objects", nginx.url,
                          json.dumps(jpegs[:600])),
                         ("objects: one by one", "requests_one_by_one", "", json.dumps(listed)),
                         *floor_rows(make_floor(home), "objects", slow, jpegs)]
            if "ranges" in only:
                url, index = f"{slow}/ranges.tar", str(home / "ranges.index")
                make_index(build, index, url, environment)
                rows += [("ranges of 128 kB: stoker", "stoker_ranges", url, index)]
            if "cpu" in only:
                for title, url in (("plain", nginx.url), ("TLS", nginx.tls_url)):
                    index = str(home / f"{title}.index")
                    make_index(build, index, url + braces, environment)
                    rows += [(f"{title}: stoker", "stoker_samples", url + braces, ""),
                             (f"{title}: stoker, later epochs", "stoker_later", url + braces,
                              index),
                             (f"{title}: stoker, ranges alone", "stoker_client",
                              f"{url}/tars/{tars[0]}", "")]
                sizes = [(f"tars/{name}", (args.data / "tars" / name).stat().st_size)
                         for name in tars]
                floor = make_floor(home)
                rows += [*floor_rows(floor, "cpu", nginx.url, sizes),
                         *floor_rows(floor, "cpu", nginx.tls_url, sizes, nginx.certificate)]
            results |= measure(rows, args.runs, environment)
        finally:
            nginx.close()
    print("| what | samples/s | MB/s | CPU s a GB | first batch s | wall s |\n"
          "| --- | --- | --- | --- | --- | --- |")
    for title, rounds in results.items():
        show(title, rounds)
    (HERE / "results").mkdir(exist_ok=True)
    (HERE / "results" / f"{args.name}.json").write_text(json.dumps({
        "machine": platform.platform(), "cores": os.cpu_count(), "runs": args.runs,
        "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
    else:
        main()
