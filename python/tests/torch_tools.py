"""Shared by the tests of stoker.torch: data loaders, and the batches of a plain stoker.Loader."""

import pytest
import stoker

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader  # noqa: E402


@pytest.fixture(autouse=True, scope="module")
def short_shutdown():
    """After an exception torch waits 5 s for each worker that has missed the request to end, as it
    does with any data set."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 1.0)
        yield


IDS = {"id": "__id__"}
FIELDS = {
    "image": stoker.Image("jpg", [stoker.RandomResizedCrop((16, 16))]),
    "label": stoker.Int("cls"),
    "text": stoker.Text("txt"),
    "blob": stoker.Bytes("bin"),
    "key": "__key__",
    "id": "__id__",
}
TAILS = ("drop", "pad", "wrap", "keep")


def ids_of(loader, epochs=1):
    """The ids of each batch, epoch after epoch."""
    return [[batch["id"].tolist() for batch in loader] for _ in range(epochs)]


def plain_ids(source, batch_size, epochs=1, **options):
    options = {"fields": IDS, "output": "numpy", **options}
    with stoker.Loader(source, batch_size, **options) as loader:
        return [[b["id"].tolist() for b in loader if len(b["id"])] for _ in range(epochs)]


def batches(dataset, workers, **options):
    options.setdefault("multiprocessing_context", "fork" if workers else None)
    return DataLoader(dataset, batch_size=dataset.batch_size, num_workers=workers, **options)
