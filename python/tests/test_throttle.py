"""Throttling and hedging, as the store sees them: connections, rate, hedges and retries of ranks
that share state by a file in shared memory only.

The store is a scripted one in this process; it counts requests, and how many connections are
established whenever one more is accepted. STOKER_TEST_LONG: 30 % refused for a minute."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter

import make
import pytest
import servers
import stoker
from stoker import _stoker
from test_fault_proxy import Proxy

LONG = bool(os.environ.get("STOKER_TEST_LONG"))
WAIT = 60  # seconds: a bound for work that ends much sooner
SAMPLES = 1500
ETAG = '"one"'


class Store:
    """`/bucket/key` for every key of `objects`: HEAD and ranges. `script(number, path)` returns
    (status, seconds) for each request."""

    def __init__(self, objects, script=lambda number, path: (206, 0.0)):
        self.objects, self.script = objects, script
        self.requested = []  # (time, path, range, status)
        self.peak = 0
        # ranges without an answer yet; ranges requested meanwhile
        self.flying, self.hedges = Counter(), 0
        # ranges in flight that another answer contained: an epoch may request them again
        self.served = set()
        self.open = {}
        self.ready = threading.Event()
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.run)

    def __enter__(self):
        self.thread.start()
        assert self.ready.wait(WAIT)
        return self

    def __exit__(self, *_):
        self.loop.call_soon_threadsafe(self.stopped.set)
        self.thread.join(WAIT)

    def run(self):
        self.loop.run_until_complete(self.serve())
        self.loop.close()

    async def serve(self):
        self.stopped = asyncio.Event()
        server = await asyncio.start_server(self.speak, "127.0.0.1", 0, backlog=1024)
        self.port = server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.ready.set()
        await self.stopped.wait()
        server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def established(self):
        """Counts the open connections that the client has not closed: no FIN has arrived."""
        return sum(own.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1) == b"\x01"
                   for own in list(self.open.values()))

    async def speak(self, reader, writer):
        own = writer.get_extra_info("socket")
        self.open[id(writer)] = own
        self.peak = max(self.peak, self.established())
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                await self.answer(head.decode().split("\r\n"), writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            del self.open[id(writer)]
            writer.close()

    async def answer(self, lines, writer):
        method, path, _ = lines[0].split()
        span = next((line[13:] for line in lines if line.lower().startswith("range: bytes=")), None)
        status, seconds = self.script(len(self.requested), path)
        self.requested.append((time.monotonic(), path, span, status))
        if self.flying[path, span] == 0:
            self.served.discard((path, span))
        elif span != "0-0" and (path, span) not in self.served:
            self.hedges += 1
        self.flying[path, span] += 1
        try:
            await asyncio.sleep(seconds)
        finally:
            self.flying[path, span] -= 1
        body = self.objects.get(path)
        if status >= 400 or body is None:
            status = 404 if body is None else status
            writer.write(b"HTTP/1.1 %d No\r\nContent-Length: 2\r\n\r\nno" % status)
            await writer.drain()
            return
        first, last = (int(part) for part in span.split("-")) if span else (0, len(body) - 1)
        last = min(last, len(body) - 1)
        writer.write((f"HTTP/1.1 {206 if span else 200} OK\r\nETag: {ETAG}\r\n"
                      f"Content-Range: bytes {first}-{last}/{len(body)}\r\n"
                      f"Content-Length: {last + 1 - first}\r\n\r\n").encode())
        if method == "GET":
            writer.write(body[first:last + 1])
        if self.flying[path, span] > 0:
            self.served.add((path, span))
        await writer.drain()


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    """A tar with an index, of small samples, each of which is read alone."""
    root = tmp_path_factory.mktemp("shelf")
    members = [(f"s{i:05}.bin", (b"%05d" % i) * 500) for i in range(SAMPLES)]
    make.tar(root / "a.tar", members)
    stoker.index(root / "a.tar", out=root / "stoker.index")
    objects = {f"/bucket/{path.name}": path.read_bytes() for path in root.iterdir()}
    return root, objects, [data for _, data in members]


@pytest.fixture(autouse=True)
def node(tmp_path, monkeypatch):
    """A node of this test's own."""
    monkeypatch.setenv("STOKER_NODE_DIR", str(tmp_path))


RANK = """
import json, sys, time, stoker
url, rank, ranks, options = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])
seconds, seen, epochs, begin = options.pop("seconds", 0), [], 0, time.monotonic()
with stoker.Engine(threads=1, memory="256MiB", io_gap_bytes=1, **options) as engine:
    print("open", flush=True)
    with stoker.Loader(stoker.Dataset(url, engine=engine), 64, seed=3,
                       fields={"bin": stoker.Bytes("bin")}, shuffle="full", tail="keep",
                       rank=rank, world_size=ranks, output="numpy") as loader:
        while epochs == 0 or time.monotonic() < begin + seconds:
            seen = [bytes(value)[:5].decode() for batch in loader for value in batch["bin"]]
            epochs += 1
    print(json.dumps({"seen": seen, "rate": epochs * len(seen) / (time.monotonic() - begin),
                      **engine.store_stats()}), flush=True)
"""


def start(url, rank=0, ranks=1, **options):
    return subprocess.Popen([sys.executable, "-c", RANK, url, str(rank), str(ranks),
                             json.dumps(options)], stdout=subprocess.PIPE, text=True)


def finish(*processes):
    reported = []
    for process in processes:
        out, _ = process.communicate(timeout=3 * WAIT)
        assert process.returncode == 0
        reported.append(json.loads(out.splitlines()[-1]))
    return reported


def check(reported, repeated=False):
    seen = Counter(key for one in reported for key in one["seen"])
    assert set(seen) == {f"{i:05}" for i in range(SAMPLES)}
    assert repeated or set(seen.values()) == {1}


def test_ranks_share_connections(shelf):
    """Three ranks, 12 connections: the store never has one more, and each rank has some."""
    _, objects, _ = shelf
    with Store(objects, lambda number, path: (206, 0.02)) as store:
        ranks = [start(f"{store.url}/bucket/a.tar", rank, 3, node_connections_max=12)
                 for rank in range(3)]
        reported = finish(*ranks)
    check(reported)
    assert 10 <= store.peak <= 12
    for one in reported:
        manners = one["manners"]
        assert manners["waits_connections"] > 0 and manners["alone"] == ""
        assert 1 <= manners["connections_peak"] <= 12 and manners["node_connections_max"] == 12
        assert manners["node_connections"] <= 12


def test_no_thread_a_request(shelf):
    """Slow answers of a store need no threads: 200 requests use those of 8."""
    _, objects, _ = shelf
    threads = {}
    for held in (8, 200):
        requested = Counter()

        def script(number, path, requested=requested):
            requested[path] += 1
            return 206, 3600 if requested["/bucket/a.tar"] > 40 else 0

        with Store(objects, script) as store:
            rank = start(f"{store.url}/bucket/a.tar", io_depth=held, connections_max=held)
            until = time.monotonic() + WAIT
            while store.flying.total() < held and time.monotonic() < until:
                time.sleep(0.01)
            assert store.flying.total() == held
            threads[held] = len(os.listdir(f"/proc/{rank.pid}/task"))
            rank.kill()
            rank.communicate(timeout=WAIT)
    assert threads[200] <= threads[8] + 8


def test_killed_rank_frees_its_connections(shelf):
    """One rank holds all connections with requests that are never answered; it is killed, and the
    waiting ranks continue."""
    _, objects, _ = shelf
    objects = {**objects, **{path.replace("bucket", "hang"): data
                             for path, data in objects.items()}}
    hanging = Counter()

    def script(number, path):
        hanging[path] += 1
        return 206, 60 if path.startswith("/hang") and hanging[path] > 40 else 0

    with Store(objects, script) as store:
        holder = start(f"{store.url}/hang/a.tar", node_connections_max=6)
        until = time.monotonic() + WAIT
        while hanging["/hang/a.tar"] < 46 and time.monotonic() < until:
            time.sleep(0.01)
        assert store.established() == 6
        waiter = start(f"{store.url}/bucket/a.tar", node_connections_max=6)
        assert waiter.stdout.readline() == "open\n"
        time.sleep(1)  # longer than any round of taking and giving
        assert not any(path.startswith("/bucket") for _, path, _, _ in store.requested)
        holder.send_signal(signal.SIGKILL)
        holder.communicate(timeout=WAIT)
        reported = finish(waiter)
        check(reported)
        assert reported[0]["manners"]["node_engines"] == 1
    assert store.peak <= 12  # while it died, its connections and those that took their place


def test_hedges(shelf):
    """One of a hundred is slow: it is requested once more, and no more than 3 of 100 are."""
    _, objects, _ = shelf
    with Store(objects, lambda number, path: (206, 1.5 if number % 100 == 50 else 0.01)) as store:
        reported = finish(start(f"{store.url}/bucket/a.tar"))
    check(reported)
    manners = reported[0]["manners"]
    assert reported[0]["retries"] == dict.fromkeys(("throttled", "transient", "other"), 0)
    assert 0 < store.hedges == manners["hedges"] <= 0.03 * len(store.requested)
    assert 0 < manners["hedges_won"] <= manners["hedges"]


@pytest.mark.parametrize("why", ["disabled", "throttled", "all are slow"])
def test_no_hedges(shelf, why):
    _, objects, _ = shelf

    def script(number, path):
        late = 0.3 if number % (5 if why == "all are slow" else 100) == 3 else 0.01
        return (503 if why == "throttled" and number % 10 == 5 else 206), late

    with Store(objects, script) as store:
        options = {"hedge_percent_max": 0} if why == "disabled" else {}
        reported = finish(start(f"{store.url}/bucket/a.tar", **options))
    check(reported)
    if why == "all are slow":  # one of five is no exception; some are late even so
        # A hedge may cross the answer to its original: then the store never has two such requests
        # at once.
        assert store.hedges <= reported[0]["manners"]["hedges"] <= 0.03 * len(store.requested)
    else:
        assert store.hedges == reported[0]["manners"]["hedges"] == 0
    assert (reported[0]["manners"]["throttles"] > 0) == (why == "throttled")


@pytest.mark.parametrize(("percent", "throttled"), [(3, False), (1, False), (3, True)])
def test_hedges_are_paid_for(shelf, percent, throttled):
    """Sixty requests are slow at a time, with free connections: earlier requests have filled the
    budget of a few hedges, and the others wait; all of them wait if one was answered with "slow
    down"."""
    _, objects, _ = shelf
    data = objects["/bucket/a.tar"]
    slow = threading.Event()

    def script(number, path):
        return 503 if throttled and number == 450 else 206, 3 if slow.is_set() else 0.01

    with (Store(objects, script) as store,
          stoker.Engine(threads=1, memory="64MiB", hedge_percent_max=percent) as engine):
        file = _stoker.File(engine._native, f"{store.url}/bucket/a.tar".encode())
        requested = [(file, begin, 100) for begin in range(0, 250 * 4096, 4096)]
        want = [data[begin:begin + 100] for _, begin, _ in requested]
        assert [_stoker.read_ranges(requested, 1) for _ in range(2)] == [want] * 2
        # On a busy machine some are late already, and their hedges cross the answers.
        until = time.monotonic() + WAIT
        while store.flying.total() and time.monotonic() < until:
            time.sleep(0.01)
        before, seen = engine.store_stats()["manners"]["hedges"], store.hedges
        slow.set()
        assert _stoker.read_ranges(requested[:60], 1) == want[:60]
        hedges = engine.store_stats()["manners"]["hedges"]
    assert store.hedges - seen == hedges - before and hedges <= percent / 100 * len(store.requested)
    assert hedges == before if throttled else hedges > 0


def test_one_rate_for_all(shelf):
    """A store that takes 300 requests a second: three ranks find that together, not each alone."""
    _, objects, _ = shelf
    seconds = Counter()

    def script(number, path):
        seconds[now := int(time.monotonic() * 10)] += 1
        return (503 if seconds[now] > 30 else 206), 0.01

    with Store(objects, script) as store:
        reported = finish(*(start(f"{store.url}/bucket/a.tar", rank, 3) for rank in range(3)))
    check(reported)
    refused = sum(status == 503 for _, _, _, status in store.requested)
    assert refused >= sum(one["manners"]["throttles"] for one in reported) > 0
    # rate_limit_test.c checks in simulated time how many requests such a store refuses. A rank that
    # began after the others had ended, or ended before there was a limit, had no wait.
    assert any(one["manners"]["waits_rate"] > 0 for one in reported)
    print(f"{len(store.requested)} requests, {refused} refused")


def test_three_of_ten_refused(shelf, tmp_path):
    """At most 1.5 requests for each needed one; chance alone makes 1.43."""
    _, objects, _ = shelf
    (tmp_path / "stores" / "bucket").mkdir(parents=True)
    for path, data in objects.items():
        (tmp_path / "stores" / path[1:]).write_bytes(data)
    reported = {}
    for share in (0, 0.3):
        rules = [{"probability": share, "fault": "status", "status": 503, "code": "SlowDown"}]
        rules = rules * (share > 0) + [{"fault": "pass", "delay_ms": 20}]
        log = tmp_path / f"log{share}"
        with Proxy("--folder", tmp_path / "stores", "--connections", 1024, "--log", log,
                   rules=rules, seed=5) as proxy:
            url = f"http://{proxy.host}:{proxy.port}/bucket/a.tar"
            reported[share], = finish(start(url, seconds=60 if LONG else 0))
            proxy.stop()
        check([reported[share]])
        statuses = Counter(json.loads(line)["status"] for line in log.read_text().splitlines())
        reported[share]["amplification"] = statuses.total() / (statuses.total() - statuses[503])
        assert reported[share]["manners"]["throttles"] <= statuses[503]
        # At the end of an epoch up to 256 reads of the next one are in flight, and continue until
        # they are answered: each counts once, however often it is refused meanwhile.
        heard = reported[share]["http"]["requests"] - reported[share]["retries"]["throttled"]
        assert abs(heard - (statuses.total() - statuses[503])) <= 256
    assert reported[0]["amplification"] == 1 < 1.3 < reported[0.3]["amplification"] <= 1.5
    print(f"amplification {reported[0.3]['amplification']:.3f}, "
          f"{reported[0.3]['rate'] / reported[0]['rate']:.2f} of the clean rate")
    if LONG:
        assert reported[0.3]["rate"] >= 0.6 * reported[0]["rate"]


def test_a_store_that_is_started_anew(shelf, tmp_path, monkeypatch):
    """Training waits for it, however few tries each request has, and misses nothing."""
    _, objects, samples = shelf
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "2")
    (tmp_path / "stores" / "bucket").mkdir(parents=True)
    for path, data in objects.items():
        (tmp_path / "stores" / path[1:]).write_bytes(data)
    words = ("--folder", tmp_path / "stores", "--listen", f"127.0.0.1:{servers.free_port()}")
    found = []
    with Proxy(*words) as proxy:
        url = f"http://{proxy.host}:{proxy.port}/bucket/a.tar"
        engine = stoker.Engine(threads=1, memory="256MiB", io_gap_bytes=1)
        loader = stoker.Loader(stoker.Dataset(url, engine=engine), 64, shuffle="none", tail="keep",
                               fields={"bin": stoker.Bytes("bin")}, output="numpy", io_retries=0)
        batches = iter(loader)
        found += [bytes(value) for value in next(batches)["bin"]]
        proxy.stop()
        gone = time.monotonic()
        # Hundreds of reads are on their way.
        while (engine.store_stats()["retries"]["transient"] < 300
               or time.monotonic() < gone + 1):
            assert time.monotonic() < gone + WAIT
            time.sleep(0.02)
    with Proxy(*words):
        found += [bytes(value) for batch in batches for value in batch["bin"]]
        loader.close()
        engine.close()
    assert found == samples


def test_alone(shelf, tmp_path, monkeypatch):
    """Without a place for the shared file it works, and says so."""
    _, objects, _ = shelf
    (tmp_path / f"stoker-4-{os.geteuid()}").symlink_to("/etc/passwd")
    with Store(objects) as store:
        reported = finish(start(f"{store.url}/bucket/a.tar", node_connections_max=5))
        assert "link" in reported[0]["manners"]["alone"]
        assert reported[0]["manners"]["node_connections_max"] == 5 and store.peak <= 5
        reported += finish(start(f"{store.url}/bucket/a.tar", process_sharing=False))
    assert reported[1]["manners"]["alone"] and reported[1]["manners"]["node_engines"] == 1
    with pytest.raises(stoker.ArgumentError):
        stoker.Engine(hedge_percent_max=11)
    with pytest.raises(stoker.ArgumentError):
        stoker.Engine(connections_max=1025)
