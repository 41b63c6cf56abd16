"""Emergency steps: real processes that get SIGTERM, and notices of spot instances."""

import http.server
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import processes
import pytest
import stoker
from stoker.checkpoint_signal import notice_of

HEAD = """
import os, signal, sys, time, numpy, stoker
folder = sys.argv[1]
a = numpy.zeros(1_000_000, "f4")
"""
LOOP = """
ckpt = stoker.Checkpointer(folder, bandwidth="100KiB", cpu_percent=1)
ckpt.save_on_signal(deadline=20)
print("ready", flush=True)
step = 0
while True:
    step += 1
    for i in range(0, len(a), 100_000):     # a step is not one instruction
        a[i : i + 100_000] = step
        time.sleep(0.001)
    if ckpt.stopping(step, {"a": a, "step": step}):
        break
assert ckpt.latest() == step
assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
print("stopped", step, flush=True)
"""
FUNCTION = """
ckpt = stoker.Checkpointer(folder)
def made():
    return step, {"a": a, "step": step}, {"loss": 1.5}
ckpt.save_on_signal(made)
step = 7
print("ready", flush=True)
while True:
    time.sleep(0.01)
"""
CHAINED = """
def old(number, frame):
    print("old handler", number, ckpt.latest(), flush=True)
    sys.exit(5)
signal.signal(signal.SIGUSR1, old)
ckpt = stoker.Checkpointer(folder)
ckpt.save_on_signal(lambda: (3, {"a": a}), signals=[signal.SIGUSR1, signal.SIGTERM])
print("ready", flush=True)
while True:
    time.sleep(0.01)
"""
IN_SAVE = """
class Slow:
    def state_dict(self):
        print("ready", flush=True)
        time.sleep(1)
        return {"x": 1}
ckpt = stoker.Checkpointer(folder)
ckpt.save_on_signal(lambda: (8, {"a": a}))
ckpt.save(7, {"slow": Slow()})
time.sleep(20)
"""
NOTHING = """
ckpt = stoker.Checkpointer(folder)
ckpt.save_on_signal(deadline=0.5)
print("ready", flush=True)
time.sleep(30)
"""
TOO_SLOW = """
import threading
class Stuck:
    def state_dict(self):
        time.sleep(1)
        return {"x": 1}
ckpt = stoker.Checkpointer(folder)
ckpt.save_on_signal(deadline=0.5)
os.kill(os.getpid(), signal.SIGTERM)
try:
    ckpt.stopping(1, {"s": Stuck()})
except stoker.TimeoutError as error:
    print("late:", error, flush=True)
"""


def start(body, folder):
    child = subprocess.Popen(
        [sys.executable, "-c", HEAD + body, str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    if '"ready"' in body:
        assert child.stdout.readline() == "ready\n", child.stderr.read()
    return child


def end(child, number=signal.SIGTERM, delay=0.05):
    time.sleep(delay)
    if number:
        child.send_signal(number)
    out, err = child.communicate(timeout=60)
    return child.returncode, out, err


@pytest.mark.parametrize("delay", [0.02, 0.2, 0.31])
def test_a_loop_that_calls_stopping(tmp_path, delay):
    code, out, err = end(start(LOOP, tmp_path), delay=delay)
    assert code == 0, err
    step = int(out.split()[1])
    loaded = stoker.load(tmp_path)
    assert loaded["step"] == step and (loaded["a"] == step).all()


def test_a_function(tmp_path):
    code, _, err = end(start(FUNCTION, tmp_path))
    assert code == -signal.SIGTERM, err  # the default action comes after the commit
    with stoker.Checkpointer(tmp_path) as ckpt:
        assert [(found.step, found.status) for found in ckpt.steps()] == [(7, "committed")]
        assert ckpt.steps()[0].metrics == {"loss": 1.5} and ckpt.load()["step"] == 7


def test_the_old_handler_follows(tmp_path):
    code, out, err = end(start(CHAINED, tmp_path), signal.SIGUSR1)
    assert code == 5 and out == f"old handler {int(signal.SIGUSR1)} 3\n", err


def test_a_signal_during_a_save(tmp_path):
    code, _, err = end(start(IN_SAVE, tmp_path), delay=0.2)
    assert code == -signal.SIGTERM, err
    with stoker.Checkpointer(tmp_path) as ckpt:
        assert [(found.step, found.status) for found in ckpt.steps()] == [
            (7, "committed"), (8, "committed"),
        ]


def test_deadlines(tmp_path):
    begin = time.monotonic()
    code, _, err = end(start(NOTHING, tmp_path))
    assert code == -signal.SIGTERM and "did not call stopping() within 0.5 s" in err
    assert time.monotonic() - begin < 15
    code, out, err = end(start(TOO_SLOW, tmp_path), None)
    assert code == 0 and "late:" in out and "within its deadline" in out, err
    with stoker.Checkpointer(tmp_path) as ckpt:
        assert all(found.status == "committed" for found in ckpt.steps())


def test_refusals(tmp_path):
    with stoker.Checkpointer(tmp_path) as ckpt:
        with pytest.raises(stoker.ArgumentError, match="save_on_signal"):
            ckpt.stopping(1, {})
        with pytest.raises(stoker.ArgumentError, match="deadline"):
            ckpt.save_on_signal(deadline=0)
        with pytest.raises(stoker.ArgumentError, match="notice"):
            ckpt.save_on_signal(notice="moon")
        caught = []

        def elsewhere():
            try:
                ckpt.save_on_signal()
            except stoker.ArgumentError as error:
                caught.append(str(error))

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert "main thread" in caught[0]
        before = signal.getsignal(signal.SIGTERM)
        ckpt.save_on_signal()
        assert signal.getsignal(signal.SIGTERM) != before
        assert not ckpt.stopping(1, {"a": 1})
    assert signal.getsignal(signal.SIGTERM) == before


class Metadata(http.server.BaseHTTPRequestHandler):
    notice = False

    def do_PUT(self):
        self.answer(b"token" if self.path == "/latest/api/token" else None)

    def do_GET(self):
        notice = type(self).notice
        if self.path == "/latest/meta-data/spot/instance-action":
            ok = notice and self.headers["X-aws-ec2-metadata-token"] == "token"
            self.answer(b'{"action": "terminate"}' if ok else None)
        elif self.path == "/computeMetadata/v1/instance/preempted":
            ok = self.headers["Metadata-Flavor"] == "Google"
            self.answer((b"TRUE" if notice else b"FALSE") if ok else None)
        elif self.path.startswith("/metadata/scheduledevents?") and self.headers["Metadata"]:
            kind = b"Preempt" if notice else b"Freeze"
            self.answer(b'{"Events": [{"EventType": "' + kind + b'"}]}')
        else:
            self.answer(None)

    def answer(self, body):
        self.send_response(200 if body is not None else 404)
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, *_):
        pass


@pytest.fixture
def metadata(monkeypatch):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Metadata)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    place = f"127.0.0.1:{server.server_port}"
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"http://{place}/")
    monkeypatch.setenv("GCE_METADATA_HOST", place)
    monkeypatch.setenv("AZURE_METADATA_HOST", place)
    Metadata.notice = False
    yield place
    server.shutdown()
    thread.join()
    server.server_close()


def test_notices(metadata, tmp_path):
    for name in ("ec2", "gce", "azure"):
        Metadata.notice = False
        assert not notice_of(name)(), name
        Metadata.notice = True
        assert notice_of(name)(), name
    with stoker.Checkpointer(tmp_path) as ckpt:
        ckpt.save_on_signal(notice="ec2")
        until = time.monotonic() + 20
        step = 1
        while not ckpt.stopping(step, {"step": step}) and time.monotonic() < until:
            step += 1
            time.sleep(0.01)
        assert ckpt.latest() == step and stoker.load(tmp_path) == {"step": step}


def test_a_notice_that_cannot_be_read(tmp_path):
    requested = []

    def notice():
        requested.append(1)
        raise OSError("no metadata service")

    ckpt = stoker.Checkpointer(tmp_path)
    with pytest.warns(RuntimeWarning, match="no metadata service"):
        ckpt.save_on_signal(notice=notice)
        until = time.monotonic() + 10
        while not requested and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(0.1)
    assert not ckpt.stopping(1, {"a": 1})
    ckpt.close()


RANKS = """
import os, signal, sys, time, torch, torch.distributed as dist, stoker
folder, rank, world, init = sys.argv[1:]
rank, world = int(rank), int(world)
dist.init_process_group("gloo", init_method="file://" + init, rank=rank, world_size=world)
ckpt = stoker.Checkpointer(folder, timeout=60)
ckpt.save_on_signal(deadline=30)
print("ready", flush=True)
step = 0
while True:
    step += 1
    time.sleep(0.002 * (rank + 1))
    x = torch.ones(1)
    dist.all_reduce(x)
    if ckpt.stopping(step, {"step": step, "a": torch.full((1000,), step)}):
        break
print("stopped", step, flush=True)
ckpt.close()
dist.barrier()
dist.destroy_process_group()
"""


def test_a_signal_to_one_rank(tmp_path):
    """All ranks save the same step."""
    folder = tmp_path / "run"
    children = processes.start_ranks(RANKS, 2, tmp_path / "init", folder)
    for child in children:
        assert child.stdout.readline() == "ready\n"
    time.sleep(0.3)
    children[1].send_signal(signal.SIGTERM)
    steps = set()
    for child in children:
        output = child.communicate(timeout=60)[0]
        assert child.returncode == 0, output
        steps.add(int(output.split()[1]))
    (step,) = steps
    assert stoker.load(folder)["step"] == step
    assert pathlib.Path(folder, f"step-{step:010}", "shard-00001.safetensors").exists()
