"""The parts of run_checkpoint.py that run in processes of their own: step time, memory, several
ranks, look-up, and Ceph. Each is called with (arguments, folder), and returns what it measured, its
text, and its goals: (what, value, goal)."""
import contextlib
import io
import json
import os
import pathlib
import pickle
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
COMMAND = "stoker"  # of the build that is measured; run_checkpoint.py sets it
RANK = HERE / "checkpoint_rank.py"


class Absent(Exception):
    """Why a part cannot run here."""


def run_ranks(folder, world, *arguments):
    """Runs checkpoint_rank.py on so many ranks. Returns the JSON of each."""
    with tempfile.TemporaryDirectory(dir=folder) as home:
        children = [
            subprocess.Popen(
                [sys.executable, RANK, f"{home}/init", str(rank), str(world), *map(str, arguments)],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"})
            for rank in range(world)
        ]
        found = []
        try:
            for child in children:
                output, errors = child.communicate(timeout=300)
                if child.returncode != 0:
                    raise SystemExit(f"{arguments}: {errors[-2000:]}")
                found.append(json.loads(output.splitlines()[-1]))
        finally:
            for child in children:
                child.kill()
    return found


def part_step(args, folder):
    """Steps of training without a save and with one, in turns."""
    gb = min(args.gb / 2, 1)
    ratios, text = {}, []
    for kind in ("stoker", "dcp"):
        turns = run_ranks(folder, 2, "step", folder / f"step-{kind}", kind, gb, args.rounds + 1)[0]
        ratios[kind] = turns
        for turn in turns:
            text.append(f"{kind}: {turn['quiet_ms']:.1f} ms without, {turn['saving_ms']:.1f} ms "
                        f"while {gb:.2f} GB are written ({turn['steps']} steps, "
                        f"{turn['seconds']:.1f} s)")
        shutil.rmtree(folder / f"step-{kind}", ignore_errors=True)

    def share(kind):
        return statistics.median(turn["saving_ms"] / turn["quiet_ms"] for turn in ratios[kind])

    return (ratios, "\n".join(text),
            [("step time while a save is written, over without", share("stoker"), "<= 1.05")])


def part_memory(args, folder):
    found, text = {}, []
    for kind in ("stoker", "dcp"):
        found[kind] = run_ranks(folder, 1, "memory", folder / f"memory-{kind}", kind, args.gb)[0]
        row = found[kind]
        text.append(f"{kind}: {row['above'] / 1e6:.0f} MB above the state of "
                    f"{row['state'] / 1e6:.0f} MB, {row['above'] / row['state']:.1%}"
                    + (f", budget {row['budget'] / 1e6:.0f} MB" if row.get("budget") else ""))
        shutil.rmtree(folder / f"memory-{kind}", ignore_errors=True)
    return (found, "\n".join(text),
            [("host memory of a save over its budget",
              found["stoker"]["above"] / found["stoker"]["budget"], "<= 1.05")])


def part_ranks(args, folder):
    """A step of FSDP-like shards by 4 ranks, read by 8, cold."""
    place, gb = folder / "ranks", args.gb / 2
    run_ranks(folder, 4, "save", place, gb)
    rows = run_ranks(folder, 8, "load", place, gb)
    state = rows[0]["state"]
    read = sum(row["read"] for row in rows)
    shutil.rmtree(place)
    return ({"state": state, "read": read}, f"{read / 1e6:.0f} MB read of {state / 1e6:.0f} MB",
            [("bytes that 8 ranks read over the state", read / state, "<= 1.05")])


def compile_program(args, name, folder):
    """A program of bench/ with the library; its other libraries are those of the command."""
    program = folder / name
    libraries = subprocess.run(["ldd", pathlib.Path(args.build) / "stoker"], check=True,
                               capture_output=True, text=True).stdout
    paths = [line.split("=>")[1].split()[0] for line in libraries.splitlines() if "=> /" in line]
    subprocess.run(["cc", "-O2", "-D_GNU_SOURCE", f"-I{HERE.parent}/include", HERE / f"{name}.c",
                    pathlib.Path(args.build) / "libstoker-all.a", "-o", program, *paths, "-lm",
                    "-lpthread"], check=True)
    return program


DCP_METADATA = """
import sys, time, resource
from torch.distributed.checkpoint import FileSystemReader
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
begin = time.perf_counter()
found = FileSystemReader(sys.argv[1]).read_metadata().state_dict_metadata["layers.5.exp_avg"]
print((time.perf_counter() - begin) * 1e3,
      (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


def write_dcp_metadata(folder, count):
    """The metadata of so many tensors, as DCP writes them."""
    import torch
    from torch.distributed.checkpoint import metadata
    from torch.distributed.checkpoint.filesystem import _StorageInfo

    chunk = [metadata.ChunkStorageMetadata(torch.Size([0]), torch.Size([1]))]
    properties = metadata.TensorProperties(dtype=torch.float32)
    names = [f"layers.{index}.exp_avg" for index in range(count)]
    found = metadata.Metadata(
        state_dict_metadata={name: metadata.TensorStorageMetadata(properties, torch.Size([1]),
                                                                  chunk) for name in names},
        storage_data={metadata.MetadataIndex(name, torch.Size([0]), 0):
                      _StorageInfo("__0_0.distcp", index, 4)
                      for index, name in enumerate(names)})
    folder.mkdir()
    (folder / ".metadata").write_bytes(pickle.dumps(found))


def part_lookup(args, folder):
    program = compile_program(args, "checkpoint_lookup", folder)
    output = subprocess.run([program, folder / "lookup"], check=True, capture_output=True,
                            text=True).stdout
    shutil.rmtree(folder / "lookup")
    rows = [{"open_ms": float(found[1]), "lookup_ms": float(found[2]), "MiB": float(found[3])}
            for found in re.finditer(r"^index +open ([\d.]+) ms, look up ([\d.]+) ms, .*, "
                                     r"([\d.]+) MiB", output, re.MULTILINE)]
    write_dcp_metadata(folder / "dcp-metadata", 100_000)
    done = subprocess.run([sys.executable, "-c", DCP_METADATA, folder / "dcp-metadata"],
                          check=True, capture_output=True, text=True)
    shutil.rmtree(folder / "dcp-metadata")
    dcp_ms, dcp_mib = map(float, done.stdout.split())
    ms = statistics.median(row["open_ms"] + row["lookup_ms"] for row in rows)
    mib = max(row["MiB"] for row in rows)
    return ({"stoker": rows, "dcp of 10^5": {"ms": dcp_ms, "MiB": dcp_mib}},
            f"{output}DCP's metadata of 10^5 tensors: {dcp_ms:.0f} ms, {dcp_mib:.0f} MiB",
            [("open and look up among 10^6 tensors, ms", ms, "<= 100"),
             ("the same, MB", mib * 1.048576, "<= 50")])


# ---- Ceph ----

BUCKET = "bench"
THREADS = 10


class StokerStore:
    name = "stoker"

    def __init__(self, ceph, total):
        import stoker

        self.stoker, self.url, self.step = stoker, f"s3://{BUCKET}/stoker", 0
        self.ckpt = stoker.Checkpointer(self.url, keep_last=1, memory=total // 4)

    def save(self, state):
        self.step += 1
        self.ckpt.save(self.step, state, wait=True)

    def load(self, target):
        self.ckpt.restore(target)


class Boto:
    """Parts of 16 MiB of the memory of the tensors, each one an object, by 10 threads."""

    name = "boto3, parallel"

    def __init__(self, ceph, total):
        from botocore.config import Config

        import boto3

        self.client = boto3.client("s3", endpoint_url=ceph.url, config=Config(
            s3={"addressing_style": "path"}, max_pool_connections=THREADS,
            request_checksum_calculation="when_required"))

    def _parts(self, state):
        for name, tensor in state.items():
            view = memoryview(tensor.view(-1).view(__import__("torch").uint8).numpy())
            for at in range(0, len(view), 16 << 20):
                yield f"boto/{name}-{at}", view[at:at + (16 << 20)]

    def _run(self, action, state):
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(action, self._parts(state)))

    def save(self, state):
        self._run(lambda part: self.client.put_object(Bucket=BUCKET, Key=part[0],
                                                      Body=io.BytesIO(part[1])), state)

    def load(self, target):
        def get(part):
            body = self.client.get_object(Bucket=BUCKET, Key=part[0])["Body"]
            part[1][:] = body.read()

        self._run(get, target)


class S3fs:
    name = "torch.save to s3fs"

    def __init__(self, ceph, total):
        import s3fs

        self.files = s3fs.S3FileSystem(endpoint_url=ceph.url, key=os.environ["AWS_ACCESS_KEY_ID"],
                                       secret=os.environ["AWS_SECRET_ACCESS_KEY"])

    def save(self, state):
        import torch

        with self.files.open(f"{BUCKET}/torch.pt", "wb") as file:
            torch.save(state, file)

    def load(self, target):
        import torch

        with self.files.open(f"{BUCKET}/torch.pt", "rb") as file:
            found = torch.load(file, weights_only=True)
        for name, tensor in target.items():
            tensor.copy_(found[name])


class Connector:
    name = "s3torchconnector, DCP"

    def __init__(self, ceph, total):
        from s3torchconnector import S3ClientConfig, dcp

        self.module, self.url = dcp, f"s3://{BUCKET}/connector/"
        self.options = {"region": "us-east-1", "path": self.url}
        os.environ["AWS_ENDPOINT_URL"] = ceph.url
        self.config = S3ClientConfig(force_path_style=True)

    def save(self, state):
        import torch.distributed.checkpoint as dcp

        dcp.save(state, no_dist=True, storage_writer=self.module.S3StorageWriter(
            **self.options, s3client_config=self.config, overwrite=True))

    def load(self, target):
        import torch.distributed.checkpoint as dcp

        dcp.load(target, no_dist=True, storage_reader=self.module.S3StorageReader(
            **self.options, s3client_config=self.config))


def ceph_call(candidate, way, state, total, add):
    """Returns whether it worked; the reason is printed."""
    from torch.distributed.checkpoint import CheckpointException  # no Exception

    cpu, begin = time.process_time(), time.perf_counter()
    try:
        getattr(candidate, way)(state)
    except (Exception, CheckpointException) as error:  # of any library
        reason = str(error).strip().splitlines() or [type(error).__name__]
        print(f"{candidate.name}: left out: {reason[-1][:200]}")
        return False
    add(candidate.name, f"{way} GB/s", total / 1e9 / (time.perf_counter() - begin))
    add(candidate.name, f"{way} CPU s", time.process_time() - cpu)
    return True


def ceph_round(candidates, state, target, total, add):
    for candidate in list(candidates):
        for tensor in target.values():
            tensor.zero_()
        if not (ceph_call(candidate, "save", state, total, add)
                and ceph_call(candidate, "load", target, total, add)):
            candidates.remove(candidate)


def part_ceph(args, folder):
    import run_checkpoint
    sys.path.insert(0, str(HERE.parent / "python" / "tests"))
    import servers

    state = run_checkpoint.make_state(min(args.gb, 1.0) * 1e9)
    total = sum(tensor.numel() * tensor.element_size() for tensor in state.values())
    target = {name: tensor.clone() for name, tensor in state.items()}
    values = run_checkpoint.Values()
    try:
        ceph = servers.Ceph(pathlib.Path(tempfile.mkdtemp(dir=folder)), memory=8 << 30)
    except servers.Absent as reason:
        raise Absent(str(reason)) from None
    try:
        os.environ.update(ceph.environment())
        ceph.client().create_bucket(Bucket=BUCKET)
        candidates = []
        for kind in (StokerStore, Boto, S3fs, Connector):
            with contextlib.suppress(ImportError):
                candidates.append(kind(ceph, total))
        for turn in range(args.rounds):
            run_checkpoint.change(state, turn)
            ceph_round(candidates, state, target, total, values.add)
            ceph.collect()
    finally:
        ceph.close()

    def over(other, column):
        one, two = values.median("stoker", column), values.median(other, column)
        return one / two if one and two else None

    goals = [(f"{way} in Ceph over {row}", over(row, f"{way} GB/s"), goal)
             for way in ("save", "load")
             for row, goal in (("boto3, parallel", ">= 0.85"), ("torch.save to s3fs", ">= 2"),
                               ("s3torchconnector, DCP", ">= 2"))]
    return {"bytes": total, "values": values.rows}, values.text(), goals


PARTS = {"step": part_step, "memory": part_memory, "ranks": part_ranks, "lookup": part_lookup,
         "ceph": part_ceph}
