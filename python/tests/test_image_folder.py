"""Class folders by torchvision's ImageFolder rules."""

import os

import make
import numpy as np
import pytest
import stoker


def labels_of(loader):
    """{key: label} of one epoch."""
    return {
        key: int(label)
        for batch in loader
        for key, label in zip(batch["key"], np.asarray(batch["label"]), strict=True)
    }


def open_folder(root, engine, **options):
    return stoker.Loader(
        root,
        1,
        fields={"key": "__key__", "label": stoker.Label()},
        tail="keep",
        engine=engine,
        output="numpy",
        **options,
    )


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """Names in no alphabetical order, deep and hidden ones, other files, links."""
    root = tmp_path_factory.mktemp("odd")
    for name in (
        "b/2.jpg",
        "B/1.jpg",
        "a/x/y/3.JPEG",
        "a/4.png",
        "ä/5.webp",
        "c d/6.jpg",
        "10/7.jpg",
        "9/8.jpg",
        ".hidden/9.jpg",
        "a/.jpg.jpg",
    ):
        kind = {"g": "JPEG", "G": "JPEG", "p": "WEBP"}.get(name[-1], "JPEG")
        data = make.encoded(make.pixels(len(name), 12, 12), "PNG" if "png" in name else kind)
        make.write(root / name, data)
    make.write(root / "a/readme.txt", b"not a picture")
    make.write(root / "Thumbs.db", b"beside the classes")
    os.symlink(root / "b", root / "link")
    return root


def image_folder(root):
    """torchvision.datasets.folder in a few lines: sorted classes; files by os.walk with links."""
    extensions = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
    classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
    found = {}
    for label, name in enumerate(classes):
        for folder, _, files in os.walk(root / name, followlinks=True):
            for file in files:
                if file.lower().endswith(extensions):
                    found[os.path.relpath(os.path.join(folder, file), root)] = label
    return classes, found


def test_labels(odd, engine):
    classes, want = image_folder(odd)
    loader = open_folder(odd, engine)
    assert sorted(loader.classes) == sorted(classes)
    assert loader.classes == sorted(classes, key=os.fsencode)
    by_name = {name: loader.classes.index(name) for name in classes}
    got = labels_of(loader)
    assert got == {key: by_name[classes[label]] for key, label in want.items()}
    assert loader.dataset.class_to_idx == by_name


def test_labels_are_torchvisions(odd, engine, torchvision_v2):
    from torchvision.datasets import ImageFolder

    theirs = ImageFolder(str(odd))
    assert open_folder(odd, engine).classes == theirs.classes
    want = {os.path.relpath(path, odd): label for path, label in theirs.samples}
    assert labels_of(open_folder(odd, engine)) == want


def test_pair(folder, engine):
    """The default pair, the label of each picture its directory's index."""
    loader = stoker.Loader(
        folder, 10, image=[stoker.Resize((8, 8))], shuffle="none", output="numpy", engine=engine
    )
    labels = np.concatenate([labels for _, labels in loader])
    assert labels.dtype == np.int64 and labels.tolist() == sorted(list(range(4)) * 10)


def test_bytes_and_members(folder, engine):
    """Fields of a folder other than pictures; and the data set by itself."""
    dataset = stoker.Dataset(folder, engine=engine)
    assert (dataset.kind, len(dataset), dataset.sequential) == ("imagefolder", 40, False)
    sample = dataset.sample(0)
    assert sample.key == "class0/000.jpg"
    data = (folder / "class0" / "000.jpg").read_bytes()
    assert dataset.read(0) == data == dataset.read(-40, "jpg")
    assert sample.members[0].shard.endswith("class0/000.jpg")
    assert dataset[0] == {"__key__": "class0/000.jpg", "jpg": data}
    with pytest.raises(IndexError):
        dataset.read(40)
    with pytest.raises(stoker.MissingError):
        dataset.read(0, "cls")
    loader = stoker.Loader(dataset, 1, fields={"b": stoker.Bytes("jpg")}, shuffle="none")
    assert bytes(next(iter(loader))["b"][0]) == data


def test_identity(folder, engine, tmp_path):
    """Computed from names, not from paths: a copy elsewhere has the same one, another file changes
    it."""
    import shutil

    copy = tmp_path / "elsewhere"
    shutil.copytree(folder, copy)
    first, second = (stoker.Dataset(path, engine=engine) for path in (folder, copy))
    assert first.identity == second.identity and len(first.identity) == 64
    (copy / "class0" / "000.jpg").rename(copy / "class0" / "zzz.jpg")
    assert stoker.Dataset(copy, engine=engine).identity != first.identity


def test_three_nested_folders(tmp_path, engine):
    """The order is by whole paths: "b-1" comes before "b/x", though "b/x" is found first."""
    for name in ("c/b/1.jpg", "c/b/x/1.jpg", "c/b-1/1.jpg"):
        make.jpeg(tmp_path / name, 1)
    loader = stoker.Loader(
        tmp_path, 3, fields={"k": "__key__"}, shuffle="none", tail="keep", engine=engine
    )
    assert next(iter(loader))["k"] == [
        "c/b/1.jpg", "c/b-1/1.jpg", "c/b/x/1.jpg"
    ]
