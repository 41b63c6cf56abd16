"""The process around the loader: signals, forks, threads, exits, budgets, one engine for two."""

import gc
import os
import pathlib
import select
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time

import make
import pytest
import stoker


def run(script, *arguments, **options):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        **options,
    )


def test_import_is_small():
    """Modules that most programs do not use are imported with the first use of their names."""
    done = run("""
        import sys, stoker
        late = {"ssl", "urllib.request", "stoker.checkpoints", "stoker.text_loader",
                "stoker.table_packing", "stoker.fsspec_copy", "numpy", "torch"} & set(sys.modules)
        assert not late, late
        missing = [name for name in stoker.__all__ if name not in dir(stoker)]
        assert not missing, missing
        values = [getattr(stoker, name) for name in stoker.__all__]
        assert "stoker.checkpoints" in sys.modules and stoker.Checkpointer in values
        try:
            stoker.no_such_name
        except AttributeError as error:
            assert "no_such_name" in str(error)
        else:
            raise AssertionError
        """)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def heavy(tmp_path_factory):
    """600 names of one big JPEG: a batch of them takes many seconds to decode."""
    root = tmp_path_factory.mktemp("heavy") / "class"
    first = make.write(root / "000.jpg", make.encoded(make.pixels(1, 2400, 3200)))
    for number in range(1, 600):
        os.link(first, root / f"{number:03}.jpg")
    return root.parent


@pytest.fixture(scope="module")
def hanging(tmp_path_factory):
    """A class folder whose files can be opened, and are never read to the end: links into the
    silent FUSE server of src/io/posix/hang_test.c."""
    program = pathlib.Path(stoker.__file__).resolve().parents[2] / "hang_test"
    if not program.exists():
        pytest.skip("the C tests are not built beside the package")
    root = tmp_path_factory.mktemp("hanging")
    # Not below root: the server keeps 63 bytes of a path.
    place = pathlib.Path(tempfile.mkdtemp(prefix="stoker-hang-"))
    server = subprocess.Popen([program, "serve", place], stdout=subprocess.PIPE)
    try:
        if server.stdout.read(1) != b"x":
            pytest.skip("no FUSE mount: needs root and /dev/fuse")
        (root / "folder/class").mkdir(parents=True)
        for number in range(600):
            (root / "folder/class" / f"{number:03}.jpg").symlink_to(place / "hang-read")
        (root / "tars").mkdir()
        (root / "tars/a.tar").symlink_to(place / "hang-read")
        yield root
    finally:
        server.kill()
        server.communicate()
        subprocess.run(["umount", "-l", place], capture_output=True)
        place.rmdir()


INTERRUPTED = """
    import sys, time, stoker
    engine = stoker.Engine(threads=1, io_backend=sys.argv[2])
    loader = stoker.Loader(sys.argv[1], 600, image=[stoker.Resize((8, 8))], output="array",
                           engine=engine)
    print("ready", flush=True)
    try:
        next(iter(loader))
        print("no signal came")
    except KeyboardInterrupt:
        caught = time.monotonic()
        loader.close()
        engine.close()
        print(caught, time.monotonic(), flush=True)
"""


INTERRUPTED_OPENING = """
    import sys, time, stoker
    engine = stoker.Engine(threads=1, io_backend=sys.argv[2])
    print("ready", flush=True)
    try:
        stoker.Loader(sys.argv[1] + "/*.tar", 600, fields={"a": stoker.Bytes("a")}, engine=engine)
        print("no signal came")
    except KeyboardInterrupt:
        caught = time.monotonic()
        engine.close()
        print(caught, time.monotonic(), flush=True)
"""


def has_ended(child):
    """True if only threads that the kernel does not release are left of the process: a thread that
    waits for a FUSE server that does not answer outlives even SIGKILL."""
    if child.poll() is not None:
        return True
    states = []
    for stat in pathlib.Path(f"/proc/{child.pid}/task").glob("*/stat"):
        try:
            states.append(stat.read_text().rpartition(")")[2].split()[0])
        except OSError:  # ended just now
            pass
    return set(states) <= {"Z", "X", "D"}


def interrupt(script, folder, backend):
    """The child, and the seconds from SIGINT to the exception, of closing the loader and its
    engine, and from SIGINT to the end of the process."""
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), str(folder), backend],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout.readline() == "ready\n"
    time.sleep(0.4)
    sent = time.monotonic()
    child.send_signal(signal.SIGINT)
    assert select.select([child.stdout], [], [], 60)[0], "no answer to SIGINT"
    output = child.stdout.readline().split()
    while not has_ended(child) and time.monotonic() < sent + 60:
        time.sleep(0.01)
    ended = time.monotonic()
    assert len(output) == 2, output
    caught, closed = map(float, output)
    return child, (caught - sent, closed - caught, ended - sent)


@pytest.mark.parametrize("backend", ["threads", "auto"])
@pytest.mark.parametrize("busy", ["heavy", "hanging", "opening"])
def test_ctrl_c(busy, backend, request):
    """SIGINT while pictures are decoded, while reads hang in a dead mount, and while a data set
    there is opened: answered and closed in 0.2 s each. The best of three, for the machine may be
    busy."""
    if busy == "heavy":
        folder = request.getfixturevalue("heavy")
    else:
        folder = request.getfixturevalue("hanging") / ("tars" if busy == "opening" else "folder")
    answers = []
    for _ in range(3):
        script = INTERRUPTED_OPENING if busy == "opening" else INTERRUPTED
        child, answer = interrupt(script, folder, backend)
        answers.append(answer)
        if busy == "heavy":
            assert child.wait(timeout=60) == 0
        if max(answer[:2]) < 0.2:
            break
    assert min(answer[0] for answer in answers) < 0.2, answers
    assert min(answer[1] for answer in answers) < 0.2, answers
    assert min(answer[2] for answer in answers) < 1.0, answers


def test_other_signals_are_handled_while_waiting(heavy):
    """A handler runs while next() waits, and its exception is raised from next()."""

    class Alarm(Exception):
        pass

    def handler(number, frame):
        raise Alarm

    old = signal.signal(signal.SIGALRM, handler)
    try:
        loader = stoker.Loader(heavy, 600, image=[stoker.Resize((8, 8))], threads=1, output="array")
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        started = time.monotonic()
        with pytest.raises(Alarm):
            next(iter(loader))
        assert time.monotonic() - started < 2
        loader.close()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


def test_timeout(heavy):
    with stoker.Loader(
        heavy, 600, image=[stoker.Resize((8, 8))], threads=1, output="array", timeout=0.2
    ) as loader:
        started = time.monotonic()
        with pytest.raises(stoker.TimeoutError) as caught:
            next(iter(loader))
        assert 0.15 < time.monotonic() - started < 2
    assert isinstance(caught.value, TimeoutError)


def test_gil_is_released(heavy):
    """Another thread of Python runs while next() waits."""
    turns = 0
    stop = threading.Event()

    def count():
        nonlocal turns
        while not stop.is_set():
            turns += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    with stoker.Loader(
        heavy, 600, image=[stoker.Resize((8, 8))], threads=1, output="array", timeout=0.5
    ) as loader:
        thread.start()
        before = turns
        with pytest.raises(stoker.TimeoutError):
            next(iter(loader))
        during = turns - before
        stop.set()
        thread.join()
    assert during > 50


def test_close_from_another_thread(heavy):
    """close() does not wait for the batch, and a thread that waits for it gets an error."""
    loader = stoker.Loader(heavy, 600, image=[stoker.Resize((8, 8))], threads=1, output="array")
    failures = []

    def wait():
        try:
            next(iter(loader))
        except stoker.Error as error:
            failures.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.2)
    started = time.monotonic()
    loader.close()
    assert time.monotonic() - started < 1
    thread.join(timeout=5)
    assert [type(failure) for failure in failures] == [stoker.ClosedError]


def test_two_threads_share_a_loader(plain, engine):
    """Both get complete batches; together the epoch once."""
    loader = stoker.Loader(plain(128), 4, fields={"id": "__id__"}, output="array", engine=engine)
    iterator = iter(loader)
    seen, lock = [], threading.Lock()

    def work():
        while True:
            try:
                ids = next(iterator)["id"].tolist()
            except (StopIteration, stoker.StateError):
                return
            with lock:
                seen.extend(ids)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
    assert sorted(seen) == list(range(128))


FORKED = """
    import os, sys, time, stoker
    import faulthandler; faulthandler.dump_traceback_later(20, exit=True)
    loader = stoker.Loader(sys.argv[1], 4, fields={"id": "__id__"}, output="array", shuffle="none")
    iterator = iter(loader)
    batch = next(iterator)
    pid = os.fork()
    if pid == 0:
        faults = 0
        for call in (lambda: next(iterator), loader.state_dict, loader.stats,
                     lambda: len(loader.dataset.classes) + 1 / 0 if False else loader.engine.info(),
                     lambda: loader.dataset.read(0), lambda: loader.set_epoch(3)):
            try:
                call()
            except stoker.ForkedError as error:
                faults += "after the fork" in error.advice
        ids = batch["id"].tolist()      # memory in hand can still be read
        del batch, iterator
        loader.close()
        del loader
        # A loader of the child's own works, on an engine of its own.
        fresh = stoker.Loader(sys.argv[1], 4, fields={"id": "__id__"}, output="array",
                              shuffle="none")
        again = next(iter(fresh))["id"].tolist()
        fresh.close()
        print(faults, ids == again, flush=True)
        os._exit(7)
    status = os.waitpid(pid, 0)[1]
    rest = sum(1 for _ in iterator)
    print(os.waitstatus_to_exitcode(status), rest)
"""


def test_fork(folder):
    done = run(FORKED, folder)
    assert done.stdout.split() == ["6", "True", "7", "9"], done


def test_multiprocessing_fork(folder):
    """A child that ends normally (exit handlers, finalizers) does not hang on its parent's."""
    done = run(
        """
        import multiprocessing, sys, stoker
        loader = stoker.Loader(sys.argv[1], 4, fields={"id": "__id__"}, output="array")
        iterator = iter(loader)
        keep = next(iterator)
        def child():
            try:
                next(iterator)
            except stoker.ForkedError:
                sys.exit(5)
        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
        process.join(15)
        print(process.exitcode, len(list(iterator)))
        """,
        folder,
    )
    assert done.stdout.split() == ["5", "9"], done


def test_exit_in_the_middle(heavy):
    """The interpreter ends while threads decode: at once, with the right status; the 590 pictures
    that are left would take half a minute of CPU."""
    before = os.times()
    done = run(
        """
        import sys, time, stoker
        loader = stoker.Loader(sys.argv[1], 1, image=[stoker.Resize((8, 8))])
        iterator = iter(loader)
        next(iterator)
        sys.exit(9)
        """,
        heavy,
    )
    assert done.returncode == 9 and done.stderr == "", done
    after = os.times()
    assert after.children_user - before.children_user < 20


def test_nothing_is_printed(folder):
    done = run(
        """
        import sys, stoker
        loader = stoker.Loader(sys.argv[1], 8, image=[stoker.Resize((8, 8))], output="array")
        sum(1 for _ in loader)
        """,
        folder,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# ---- memory ----


def test_held_batches_reach_the_budget(folder):
    """list(loader) under a small budget is a typed error; letting go makes it work again."""
    with stoker.Loader(
        folder,
        10,
        image=[stoker.Resize((1000, 1000))],
        dtype="float32",
        threads=1,
        memory="400MiB",
        output="numpy",
    ) as loader:
        kept = []
        with pytest.raises(stoker.BudgetError) as caught:
            for _ in range(10):
                kept += list(loader)  # 120 MB a batch
        assert isinstance(caught.value, MemoryError) and caught.value.advice
        kept.clear()
        gc.collect()
        assert loader.engine.info()["memory_bytes_peak"] <= 400 << 20
        loader.set_epoch(7)
        assert sum(len(labels) for _, labels in loader) == 40


def test_held_batches_are_never_overwritten(folder, engine):
    """Batches that the caller keeps do not change while the loader starts new epochs."""
    loader = stoker.Loader(
        folder, 4, image=[stoker.RandomResizedCrop(32)], output="numpy", engine=engine
    )
    kept = []
    for _ in range(4):
        for images, _ in loader:
            kept.append((images, images.copy()))
    assert all((images == copy).all() for images, copy in kept)
    assert len({images.ctypes.data for images, _ in kept}) == len(kept) == 40


def test_memory_in_cycles_is_found(folder):
    """Batches in cycles of garbage count as held: they are collected before the error."""
    with stoker.Loader(
        folder,
        10,
        image=[stoker.Resize((1000, 1000))],
        dtype="float32",
        threads=1,
        memory="400MiB",
        output="numpy",
    ) as loader:
        gc.disable()
        try:
            seen = 0
            for _ in range(3):
                for images, _ in loader:
                    cycle = [images]
                    cycle.append(cycle)
                    del cycle, images
                    seen += 1
        finally:
            gc.enable()
    assert seen == 12


def test_two_loaders_on_one_engine(folder, tars):
    """Training and validation in turns, under one budget."""
    with stoker.Engine(threads=2, memory="128MiB", cores_reserved=0) as engine:
        train = stoker.Loader(tars, 8, image=[stoker.RandomResizedCrop(16)], engine=engine, seed=1)
        check = stoker.Loader(
            folder, 16, image=[stoker.Resize((16, 16))], engine=engine, tail="keep", shuffle="none"
        )
        for _ in range(2):
            counts = 0
            for number, _ in enumerate(train):
                if number % 4 == 3:
                    counts += sum(len(labels) for _, labels in check)
            assert number == 11 and counts == 3 * 40
        info = engine.info()
        assert info["memory_bytes_peak"] <= info["memory_bytes_max"] == 128 << 20
        assert info["io_backend"] in ("io_uring", "threads") and info["io_reason"]
        train.close()
        assert sum(len(labels) for _, labels in check) == 40


def test_the_engine_is_shared_by_default(folder):
    first = stoker.Loader(folder, 4, fields={"id": "__id__"})
    second = stoker.Loader(folder, 4, fields={"id": "__id__"})
    third = stoker.Loader(folder, 4, fields={"id": "__id__"}, threads=1)
    assert first.engine is second.engine is stoker.default_engine() is not third.engine


def test_engine_closed_before_its_loader(folder):
    engine = stoker.Engine(threads=1)
    loader = stoker.Loader(folder, 8, fields={"id": "__id__"}, engine=engine, output="array")
    engine.close()
    assert sum(1 for _ in loader) == 5
    with pytest.raises(stoker.ClosedError):
        engine.info()
    with pytest.raises(stoker.ClosedError):
        stoker.Dataset(folder, engine=engine)


def test_loaders_are_collected(folder):
    """A loader without a reference is closed, its memory freed: 30 do not add up."""
    for _ in range(30):
        loader = stoker.Loader(
            folder, 8, image=[stoker.Resize((64, 64))], threads=1, memory="64MiB"
        )
        next(iter(loader))
    del loader
    gc.collect()
    assert len(os.listdir("/proc/self/task")) < 60
