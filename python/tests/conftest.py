"""Small data sets, made once a session: class folders of pictures, and tars."""

from __future__ import annotations

import gc
import os
import signal
import sys

import make
import numpy as np
import pytest
import servers
import stoker

LARGE = 20_000_000  # bytes of one member: three ranges

# If the tests run in the background, their starter ignores Ctrl-C for them and for the programs
# that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """40 JPEGs of different sizes in 4 classes: 10 each."""
    root = tmp_path_factory.mktemp("folder")
    for number in range(40):
        make.jpeg(root / f"class{number % 4}" / f"{number:03}.jpg", number)
    return root


@pytest.fixture(scope="session")
def tars(tmp_path_factory):
    """103 samples (jpg, cls, txt, bin) in 5 tars."""
    root = tmp_path_factory.mktemp("tars")
    number = 0
    for shard, samples in enumerate((20, 31, 1, 40, 11)):
        members = []
        for _ in range(samples):
            members += make.sample(number)
            number += 1
        make.tar(root / f"train-{shard:03}.tar", members)
    return root


@pytest.fixture(scope="session")
def want(tars):
    """The global batches of all steps that the examples for frameworks train on."""
    batches = []
    with stoker.Loader(tars, 12, fields={"id": "__id__"}, rank=0, world_size=1) as loader:
        for _ in range(2):
            batches += [batch["id"].tolist() for batch in loader]
    assert len(batches) == 16 and batches[:8] != batches[8:]
    return batches


@pytest.fixture(scope="session")
def plain(tmp_path_factory):
    """A function: a tar of n samples of one small member each, to follow the order."""
    root = tmp_path_factory.mktemp("plain")

    def get(count: int) -> str:
        path = root / f"plain{count}.tar"
        if not path.exists():
            make.tar(path, [(f"{i:06}.txt", f"text {i}".encode()) for i in range(count)])
        return str(path)

    return get


@pytest.fixture(scope="session")
def shelf(tmp_path_factory, tars):
    """The objects in the stores: the tars, class folders of images, and a tar with a large member;
    some names are not plain letters."""
    root = tmp_path_factory.mktemp("shelf")
    (root / "tars").mkdir()
    for path in sorted(tars.glob("*.tar")):
        (root / "tars" / path.name).write_bytes(path.read_bytes())
    for number in range(24):
        make.jpeg(root / "pictures" / f"class {number % 3}" / f"{number:02}+ü%41.jpg", number)
    random = np.random.default_rng(5)
    for shard in range(2):
        make.tar(root / "large" / f"{shard}.tar", [
            (f"{shard}{name}.bin", random.integers(0, 256, size, np.uint8).tobytes())
            for name, size in (("a", LARGE), ("b", 100), ("c", 1_000_000), ("d", 0))])
    return root


@pytest.fixture(scope="session")
def nginx(tmp_path_factory, shelf):
    try:
        server = servers.Nginx(tmp_path_factory.mktemp("nginx"), shelf)
    except servers.Absent as why:
        pytest.skip(str(why))
    yield server
    server.close()


@pytest.fixture(scope="session")
def ceph_server(tmp_path_factory, shelf):
    pytest.importorskip("boto3")
    try:
        server = servers.Ceph(tmp_path_factory.mktemp("ceph"))
    except servers.Absent as why:
        pytest.skip(str(why))
    client = server.client()
    client.create_bucket(Bucket="data")
    for path in sorted(shelf.rglob("*")):
        if path.is_file():
            client.put_object(Bucket="data", Key=str(path.relative_to(shelf)),
                              Body=path.read_bytes())
    yield server
    server.close()


@pytest.fixture(autouse=True)
def own_default_engine(monkeypatch):
    """An engine reads the environment at its first request to a store, so each test needs an engine
    of its own settings."""
    monkeypatch.setattr(sys.modules["stoker.engine"], "_default", None)


@pytest.fixture
def ceph(ceph_server, monkeypatch):
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in ceph_server.environment().items():
        monkeypatch.setenv(name, value)
    return ceph_server


modules_frozen = 0


def freeze_modules():
    """Freezes the objects that imports created, so that the garbage collector does not scan them
    each time: saves 0.1 s a test with torch."""
    global modules_frozen
    if len(sys.modules) > modules_frozen + 100:
        gc.collect()
        gc.freeze()
        modules_frozen = len(sys.modules)


@pytest.fixture
def engine():
    """An engine of the test's own, small."""
    freeze_modules()
    with stoker.Engine(threads=2, memory="256MiB") as made:
        yield made
    gc.collect()


@pytest.fixture(scope="session")
def torch():
    return pytest.importorskip("torch")


def declare_operators(torch):
    """The operators that torchvision's compiled part would declare: its build does not load with
    the CPU build of torch, but its transforms are Python and only need the names to exist."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            library.define(name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library


@pytest.fixture(scope="session")
def torchvision_v2(torch):
    library = declare_operators(torch)  # noqa: F841 (declarations live as long as it does)
    try:
        from torchvision.transforms import v2
    except (ImportError, RuntimeError) as error:  # a build for another torch: RuntimeError
        pytest.skip(f"torchvision cannot be imported: {error}")
    return v2
