"""Start a peer's script, read its JSON line, and watch the memory of its process tree.

Memory is PSS (/proc/PID/smaps_rollup): a page that n processes share counts 1/n in each, so the
sum over a tree counts every page once. The memory of an idle process with the
same imports is subtracted: it belongs to Python and the libraries, not to the loader.
"""
import glob
import json
import os
import pathlib
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent / "peers"))
from common import process_tree  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
SAMPLE_S = 0.02

# Name on the command line: script, environment under the peers' folder.
PEERS = {
    "stoker": ("stoker_loader.py", "torch"),
    "dali": ("dali_wds.py", "dali"),
    "ffcv": ("ffcv_beton.py", "ffcv"),
    "torchvision": ("torchvision_decode.py", "torchvision"),
    "imagefolder": ("imagefolder_pil.py", "torch"),
    "spdl": ("spdl_pipeline.py", "torch"),
    "webdataset": ("webdataset_loader.py", "torch"),
    "stoker-torch": ("stoker_torch.py", "torch"),
    "raw-stoker": ("raw_stoker.py", "torch"),
    "tokens-stoker": ("tokens_stoker.py", "torch"),
    "tokens-memmap": ("tokens_memmap.py", "torch"),
    "tokens-streaming": ("tokens_streaming.py", "streaming"),
    "sampling-torch": ("sampling_torch.py", "torch"),
    "raw-webdataset": ("raw_webdataset.py", "torch"),
    "write-shards": ("write_shards.py", "torch"),
    "resume-stoker": ("resume_stoker.py", "torch"),
    "shuffle-quality": ("shuffle_quality.py", "streaming"),
    "mixing": ("mixing.py", "torch"),
    "accuracy": ("accuracy.py", "torch"),
    "streaming-order": ("streaming_order.py", "streaming"),
}


class PeerFailed(Exception):
    """A peer that is not installed, or that ended without its line."""


def peers_folder():
    return pathlib.Path(os.environ.get("STOKER_PEERS", ROOT / ".cache" / "peers"))


def command_of(peer, arguments):
    """The command line of a peer's script in its own environment."""
    script, environment = PEERS[peer]
    python = peers_folder() / environment / "bin" / "python"
    if not python.exists():
        raise PeerFailed(f"{python} is missing: run bench/setup_peers")
    return [str(python), str(HERE / "peers" / script), *map(str, arguments)]


def build_folder(holds):
    """$STOKER_BUILD, or build/; ends the program if the wanted file is missing there."""
    build = pathlib.Path(os.environ.get("STOKER_BUILD", ROOT / "build"))
    if not (build / holds).exists():
        sys.exit(f"bench: no {build / holds}: build stoker there (meson setup build && "
                 "ninja -C build), or set STOKER_BUILD")
    return build


def start(command):
    environment = os.environ | {"PYTHONPATH": str(build_folder("python") / "python")}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=environment)


def result_of(process, peer):
    """Wait for the script; return its line as a dict."""
    out, err = process.communicate()
    for line in reversed(out.splitlines()):
        if line.startswith("{"):
            return json.loads(line)
    last = (err.strip().splitlines() or ["no message"])[-1]
    raise PeerFailed(f"{peer} ended with {process.returncode}: {last}")


def run_peer(peer, arguments):
    return result_of(start(command_of(peer, arguments)), peer)


def pss_mb(pid):
    """PSS of a process tree in MB: (all, without the pages of files)."""
    total = own = 0
    for each in process_tree(pid):
        try:
            text = pathlib.Path(f"/proc/{each}/smaps_rollup").read_text()
        except OSError:
            continue
        for line in text.splitlines():
            name, _, rest = line.partition(":")
            if name == "Pss":
                total += int(rest.split()[0])
            elif name in ("Pss_Anon", "Pss_Shmem"):
                own += int(rest.split()[0])
    return total * 1024 / 1e6, own * 1024 / 1e6


def idle_pss_mb(peer, arguments):
    """PSS of a process that has the peer's imports and does nothing."""
    process = start(command_of(peer, [*arguments, "--idle"]))
    try:
        if process.stdout.readline().strip() != "idle":
            raise PeerFailed(f"{peer} does not import")
        time.sleep(0.2)
        return pss_mb(process.pid)
    finally:
        process.kill()
        process.communicate()


def peak_memory_mb(peer, arguments):
    """{"peak", "own_peak", "idle"}: the first two above an idle process, sampled while the peer
    runs. Sampling walks page tables under the lock that page faults take, so timed runs and
    sampled runs are not the same runs."""
    idle, own_idle = idle_pss_mb(peer, arguments)
    peak = own_peak = 0
    process = start(command_of(peer, arguments))
    next_at = time.monotonic()
    while process.poll() is None:
        total, own = pss_mb(process.pid)
        peak, own_peak = max(peak, total), max(own_peak, own)
        next_at = max(next_at + SAMPLE_S, time.monotonic())
        time.sleep(next_at - time.monotonic() if next_at > time.monotonic() else 0)
    result_of(process, peer)
    return {"peak": round(peak - idle, 1), "own_peak": round(own_peak - own_idle, 1),
            "idle": round(idle, 1)}


def drop_caches():
    """Drop every clean page of files, so that the next read is from the disk."""
    os.sync()
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3\n")


def warm_up(paths):
    """Read files once, so that their pages are in memory."""
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            while file.read(1 << 22):
                pass


def data_files(folder, pattern):
    paths = sorted(glob.glob(str(folder / pattern)))
    if not paths:
        sys.exit(f"run: no {folder / pattern}: see bench/README.md on how to make the data")
    return paths


def machine():
    """One line that names the machine: numbers are comparable on it only."""
    cpu = next((line.partition(":")[2].strip() for line in open("/proc/cpuinfo")
                if line.startswith("model name")), "?")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    commit = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty"],
                            capture_output=True, text=True, check=False).stdout.strip()
    return (f"{cpu}, {len(os.sched_getaffinity(0))} cores, {memory:.0f} GiB, "
            f"Linux {os.uname().release}, commit {commit or '?'}")
