"""Tokens and TokenLoader: files written by NumPy and by code of this file, read back in order.

Every row of a loader is compared with a slice of the arrays that were written; stoker.order_at
returns which one it is.
"""

from __future__ import annotations

import collections
import json
import os
import shutil
import struct
import subprocess

import pytest
import stoker

numpy = pytest.importorskip("numpy")


def megatron(path, sequences, documents, code, dtype):
    """A set as megatron/core/datasets/indexed_dataset.py describes it."""
    dtype = numpy.dtype(dtype)
    lengths = [len(sequence) for sequence in sequences]
    pointers = [sum(lengths[:i]) * dtype.itemsize for i in range(len(lengths))]
    (path.parent / (path.name + ".idx")).write_bytes(
        b"MMIDIDX\0\0"
        + struct.pack("<QBQQ", 1, code, len(lengths), len(documents))
        + numpy.array(lengths, "<i4").tobytes()
        + numpy.array(pointers, "<i8").tobytes()
        + numpy.array(documents, "<i8").tobytes()
    )
    tokens = numpy.concatenate([numpy.array(s, dtype) for s in sequences])
    tokens.tofile(path.parent / (path.name + ".bin"))
    return tokens


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files of all kinds; (paths, arrays)."""
    root = tmp_path_factory.mktemp("tokens")
    random = numpy.random.default_rng(7)
    arrays = [
        megatron(
            root / "a_text_document",
            [random.integers(0, 65500, n) for n in (500, 1, 700, 333)],
            [0, 1, 3, 4],
            8,
            "uint16",
        ),
        random.integers(0, 128000, 2200).astype("uint32"),
        random.integers(0, 50257, 900).astype("uint16"),
        random.integers(0, 50257, 1101).astype("uint16"),
    ]
    numpy.save(root / "b.npy", arrays[1])
    header = numpy.zeros(256, "int32")
    header[:3] = 20240520, 1, len(arrays[2])
    (root / "c.bin").write_bytes(header.tobytes() + arrays[2].tobytes())
    arrays[3].tofile(root / "d.bin")
    paths = [root / name for name in ("a_text_document", "b.npy", "c.bin", "d.bin")]
    return paths, arrays


def cut(arrays, length, stride):
    """All windows, in storage order."""
    return [
        array[at : at + length].astype("int64")
        for array in arrays
        for at in range(0, len(array) - length + 1, stride)
    ]


def test_contents_of_files(files):
    paths, arrays = files
    with stoker.Tokens(paths, stored="uint16") as tokens:
        assert len(tokens) == sum(map(len, arrays))
        assert tokens.documents == 3
        assert tokens.bytes >= 2 * len(tokens)
        assert len(bytes.fromhex(tokens.identity)) == 32
    for name in ("a_text_document.bin", "a_text_document.idx"):
        assert len(stoker.Tokens(paths[0].parent / name)) == len(arrays[0])
    # A glob: the set once, though it has two files.
    assert len(stoker.Tokens(str(paths[0].parent / "a_*"))) == len(arrays[0])
    everything = stoker.Tokens(str(paths[0].parent / "*"), stored=numpy.uint16)
    assert len(everything) == sum(map(len, arrays))


@pytest.mark.parametrize("shuffle", ["block", "full", "none"])
@pytest.mark.parametrize("dtype", ["int64", "int32", numpy.int64])
def test_every_window_once_in_order(files, shuffle, dtype):
    paths, arrays = files
    windows = cut(arrays, 17, 16)
    with stoker.TokenLoader(
        paths,
        8,
        16,
        seed=3,
        shuffle=shuffle,
        tail="keep",
        stored="uint16",
        dtype=dtype,
        output="numpy",
    ) as loader:
        assert loader.rows == len(windows)
        for epoch in range(2):
            at = 0
            for inputs, labels in loader:
                assert inputs.dtype == labels.dtype == numpy.dtype(dtype)
                for i in range(len(inputs)):
                    block = (8 << 20) // (16 * 2)
                    want = windows[
                        stoker.order_at(
                            len(windows),
                            at,
                            block_samples=block,
                            shuffle=shuffle,
                            seed=3,
                            epoch=epoch,
                        )
                    ]
                    assert (inputs[i] == want[:-1]).all()
                    assert (labels[i] == want[1:]).all()
                    at += 1
            assert at == len(windows)
            assert loader.epoch == epoch + 1


def test_stride_and_no_labels(files):
    paths, arrays = files
    windows = cut(arrays, 40, 13)
    loader = stoker.TokenLoader(
        paths,
        5,
        40,
        stride=13,
        labels=False,
        shuffle="none",
        tail="keep",
        stored="uint16",
        output="numpy",
    )
    rows = numpy.concatenate([batch.copy() for batch in loader])
    assert (rows == numpy.stack(windows)).all()


def test_names(files):
    paths, _ = files
    loader = stoker.TokenLoader(
        paths,
        4,
        32,
        names=("input_ids", "shift_labels"),
        stored="uint16",
        output="numpy",
        transform=lambda batch: {**batch, "more": 1},
    )
    batch = next(iter(loader))
    assert set(batch) == {"input_ids", "shift_labels", "more"}
    assert (batch["input_ids"][:, 1:] == batch["shift_labels"][:, :-1]).all()


def test_tensors(files, torch):
    paths, _ = files
    inputs, labels = next(
        iter(stoker.TokenLoader(paths, 4, 32, stored="uint16", dtype=torch.int32))
    )
    assert inputs.dtype == torch.int32
    assert inputs.shape == labels.shape == (4, 32)
    assert inputs.is_contiguous() and labels.is_contiguous()


def rows_of(loader, batches=None):
    rows = []
    for inputs, _ in loader:
        rows.append([tuple(row) for row in inputs.tolist()])
        if len(rows) == batches:
            break
    return rows


def test_ranks_share_the_steps_of_one(files):
    paths, _ = files
    tokens = stoker.Tokens(paths, stored="uint16")
    one = rows_of(stoker.TokenLoader(tokens, 12, 16, seed=1, output="numpy"))
    ranks = [
        rows_of(stoker.TokenLoader(tokens, 4, 16, seed=1, rank=r, world_size=3, output="numpy"))
        for r in range(3)
    ]
    assert len(one) == len(ranks[0]) > 20
    for step, rows in enumerate(one):
        assert sorted(rows) == sorted(row for rank in ranks for row in rank[step])


def test_state(files):
    paths, _ = files

    def make(**options):
        return stoker.TokenLoader(
            paths, 8, 16, stored="uint16", output="numpy", **{"seed": 1, **options}
        )

    loader = make()
    whole = rows_of(loader) + rows_of(loader)
    loader = make()
    iterator = iter(loader)
    for _ in range(5):
        next(iterator)
    state = json.loads(json.dumps(loader.state_dict()))
    assert len(json.dumps(state)) < 1000
    other = make(world_size=2, rank=0)  # another world: the same state
    other.load_state_dict(state)
    assert other.state_dict() == state
    other = make()
    other.load_state_dict(state)
    other.set_epoch(0)  # stands there already
    assert rows_of(other) + rows_of(other) == whole[5:]
    for options in ({"seed": 2}, {"stride": 15}, {"labels": False}, {"tail": "pad"}):
        with pytest.raises(stoker.StateError):
            make(**options).load_state_dict(state)
    loader.load_state_dict(state)
    with pytest.raises(stoker.StateError):
        next(iterator)


def test_fingerprint(files):
    """In stats() and in the state, the same on every rank; another one for another order."""
    paths, _ = files

    def after(batches, **options):
        loader = stoker.TokenLoader(
            paths, **{"batch_size": 8, "context": 16, "stored": "uint16", **options}, output="numpy"
        )
        stats = loader.stats()
        assert (stats["epoch"], stats["position"], stats["fingerprint"]) == (0, 0, "0" * 16)
        assert (stats["batches"], stats["samples"], stats["wait_share"]) == (0, 0, 0)
        rows_of(loader, batches)
        stats = loader.stats()
        assert (stats["batches"], stats["samples"]) == (batches, batches * loader.batch_size)
        assert 0 < stats["wait_share"] <= 1 and stats["first_batch_seconds"] > 0
        assert stats["fingerprint"] == loader.state_dict()["fingerprint"] != "0" * 16
        assert stats["position"] == batches * loader.batch_size * loader.world_size
        return stats["fingerprint"]

    one = after(6)
    for rank in range(2):
        assert after(6, batch_size=4, rank=rank, world_size=2) == one
    assert len({one, after(6, seed=1), after(5), after(6, shuffle="block")}) == 4


def test_leaving_an_epoch(files):
    paths, _ = files
    loader = stoker.TokenLoader(paths, 8, 16, stored="uint16", output="numpy", seed=5)
    first = rows_of(loader, 3)
    assert rows_of(loader)[:3] == first
    loader.set_epoch(0)
    assert rows_of(loader)[:3] == first
    assert loader.epoch == 1
    assert len(loader) == loader.rows // 8


def test_pad_tells_by_the_mask(files):
    paths, _ = files
    loader = stoker.TokenLoader(paths, 64, 16, stored="uint16", output="numpy", tail="pad")
    real = 0
    for inputs, _ in loader:
        assert inputs.shape == (64, 16)
        real += int(loader.mask.sum())
    assert real == loader.rows


def test_batches_outlive_the_loader(files):
    paths, _ = files
    loader = stoker.TokenLoader(paths, 8, 16, stored="uint16", output="numpy", shuffle="none")
    kept = [inputs for inputs, _ in loader]
    copies = [inputs.copy() for inputs in kept]
    loader.close()
    assert all((a == b).all() for a, b in zip(kept, copies, strict=True))
    with pytest.raises(stoker.ClosedError):
        iter(loader)
    loader.close()


@pytest.mark.parametrize(
    ("options", "error", "part"),
    [
        ({"batch_size": 0}, stoker.ArgumentError, "batch_size"),
        ({"context": 0}, stoker.ArgumentError, "context"),
        ({"context": None}, stoker.ArgumentError, "context"),
        ({"context": 10**6}, stoker.EmptyError, "complete window"),
        ({"dtype": "float32"}, stoker.ArgumentError, "dtype"),
        ({"stored": "uint17"}, stoker.ArgumentError, "stored"),
        ({"stored": None}, stoker.ArgumentError, "dtype"),
        ({"stored": "uint64"}, stoker.TruncatedError, "d.bin"),
        ({"names": ("x",)}, stoker.ArgumentError, "names"),
        ({"shuffle": "some"}, stoker.ArgumentError, "shuffle"),
        ({"transform": 3}, stoker.ArgumentError, "transform"),
        ({"source": "/nowhere/*.bin"}, stoker.EmptyError, "nowhere"),
        ({"source": "/nowhere/a.bin"}, FileNotFoundError, "nowhere"),
        ({"source": "/"}, OSError, r"a folder is no token file(.|\n)*name its files"),
    ],
)
def test_refused(files, options, error, part):
    arguments = {
        "source": files[0],
        "batch_size": 4,
        "context": 16,
        "stored": "uint16",
        **options,
    }
    with pytest.raises(error, match=part):
        stoker.TokenLoader(**arguments)


def test_damage_is_named(tmp_path):
    megatron(tmp_path / "set", [[1, 2, 3]], [0, 1], 8, "uint16")
    idx = tmp_path / "set.idx"
    idx.write_bytes(idx.read_bytes()[:-4])
    with pytest.raises(stoker.TruncatedError, match="set.idx"):
        stoker.Tokens(tmp_path / "set")
    numpy.save(tmp_path / "floats.npy", numpy.zeros(9))
    with pytest.raises(stoker.UnsupportedError, match="floats.npy"):
        stoker.Tokens(tmp_path / "floats.npy")
    numpy.array([1, 2, 2**31, 4], "uint32").tofile(tmp_path / "wide.bin")
    loader = stoker.TokenLoader(tmp_path / "wide.bin", 1, 2, stored="uint32", dtype="int32")
    with pytest.raises(stoker.FormatError, match="wide.bin"):
        next(iter(loader))


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    """Two Megatron sets of documents of all lengths; (paths, the documents)."""
    root = tmp_path_factory.mktemp("documents")
    random = numpy.random.default_rng(3)
    everything = []
    for name in ("x", "y"):
        counts = [int(n) for n in random.integers(0, 90, 150)]
        sequences = [random.integers(1, 65000, n).tolist() for n in counts]
        megatron(root / name, sequences, list(range(len(sequences) + 1)), 8, "uint16")
        everything += sequences
    return [root / "x", root / "y"], everything


@pytest.mark.parametrize("output", ["numpy", "torch"])
def test_packed_documents(documents, output):
    if output == "torch":
        pytest.importorskip("torch")
    paths, everything = documents
    loader = stoker.TokenLoader(
        paths,
        4,
        64,
        rows="packed",
        chunk=40,
        pad=9,
        seed=2,
        tail="keep",
        labels="shifted",
        output=output,
    )
    pieces, rows = [], 0
    for batch in loader:
        ids, labels = batch["input_ids"].reshape(-1), batch["targets"].reshape(-1)
        positions, bounds = batch["position_ids"].reshape(-1), batch["cu_seqlens"].tolist()
        assert str(batch["cu_seqlens"].dtype).endswith("int32")
        assert bounds[0] == 0 and bounds[-1] == ids.shape[0] and bounds == sorted(set(bounds))
        rows += len(batch["input_ids"])
        for low, high in zip(bounds[:-1], bounds[1:], strict=True):
            assert positions[low:high].tolist() == list(range(high - low))
            piece, after = ids[low:high].tolist(), labels[low:high].tolist()
            if set(after) == {-100} and set(piece) == {9}:
                continue  # padding, or a document of one 9: none has one
            assert after[:-1] == piece[1:]
            pieces.append((piece, after[-1]))
    assert rows == loader.rows
    # Pieces of a cut document continue with its last label.
    want = [
        (document[at : at + 64], document[at + 64] if at + 64 < len(document) else -100)
        for document in everything
        for at in range(0, len(document), 64)
    ]
    assert sorted(pieces) == sorted(want)
    # Best fit leaves little padding, also of chunks this small.
    assert rows * 64 * 0.75 <= sum(map(len, everything))


@pytest.mark.parametrize("output", ["numpy", "torch", "array"])
def test_documents_one_a_row(documents, output):
    if output == "torch":
        pytest.importorskip("torch")
    paths, everything = documents
    loader = stoker.TokenLoader(
        paths, 7, rows="documents", shuffle="none", tail="keep", output=output
    )
    rows = []
    for inputs, labels in loader:
        for row, after in zip(inputs, labels, strict=True):
            row, after = row.tolist(), after.tolist()
            assert after == [*row[1:], -100][: len(row)]
            rows.append(row)
    assert rows == everything
    assert loader.rows == len(everything)
    one = stoker.TokenLoader(
        paths, 7, 10, rows="documents", labels=False, shuffle="none", dtype="int32", output=output
    )
    first = next(iter(one))
    assert [row.tolist() for row in first] == [document[:10] for document in everything[:7]]


def test_documents_that_end_with_eod(tmp_path):
    random = numpy.random.default_rng(1)
    stored = random.integers(0, 12, 5000).astype("uint16")
    stored[-1] = 3
    numpy.save(tmp_path / "a.npy", stored)
    ends = numpy.flatnonzero(stored == 5)
    want = [part.tolist() for part in numpy.split(stored, ends + 1)]
    loader = stoker.TokenLoader(
        tmp_path / "a.npy", 50, rows="documents", eod=5, shuffle="none", tail="keep", output="numpy"
    )
    assert [row.tolist() for inputs, _ in loader for row in inputs] == want


def test_ends_in_windows(tmp_path):
    """Megatron's get_ltor_masks_and_position_ids, reimplemented."""
    random = numpy.random.default_rng(2)
    stored = random.integers(0, 9, 3001).astype("uint16")
    stored.tofile(tmp_path / "a.bin")
    loader = stoker.TokenLoader(
        tmp_path / "a.bin",
        4,
        50,
        stored="uint16",
        eod=7,
        mask_ends=True,
        positions="reset",
        labels="shifted",
        shuffle="none",
        output="numpy",
    )
    at = 0
    for batch in loader:
        bounds = []
        for row in range(4):
            tokens = stored[at : at + 51].astype("int64")
            labels, positions, start = tokens[1:].copy(), numpy.arange(50), 0
            bounds.append(50 * row)
            for i in numpy.flatnonzero(tokens[:50] == 7):
                labels[i] = -100
                positions[i + 1 :] -= i + 1 - start
                start = i + 1
                if i < 49:
                    bounds.append(50 * row + start)
            assert (batch["input_ids"][row] == tokens[:50]).all()
            assert (batch["targets"][row] == labels).all()
            assert (batch["position_ids"][row] == positions).all()
            at += 50
        assert batch["cu_seqlens"].tolist() == [*bounds, 200]


def test_fill_in_the_middle(documents):
    paths, everything = documents
    fim = stoker.FIM(prefix=65001, suffix=65002, middle=65003, rate=0.5, spm_rate=0.5)

    def make(**options):
        return stoker.TokenLoader(
            paths, 300, rows="documents", shuffle="none", output="numpy", **{"fim": fim, **options}
        )

    rows = [row.tolist() for row in next(iter(make()))[0]]
    kinds = {"as it was": 0, "psm": 0, "spm": 0}
    for row, document in zip(rows, everything, strict=True):
        if row == document:
            kinds["as it was"] += 1
            continue
        suffix, middle = row.index(65002), row.index(65003)
        prefix, last = row[1:suffix], row[suffix + 1 : middle]
        assert row[0] == 65001 and sorted(row[1:]) == sorted([*document, 65002, 65003])
        if suffix == 1 and row[middle + 1 :] + last == document:
            kinds["spm"] += 1
        else:
            assert prefix + row[middle + 1 :] + last == document
            kinds["psm"] += 1
    assert min(kinds.values()) > 40
    assert [row.tolist() for row in next(iter(make()))[0]] == rows
    assert [row.tolist() for row in next(iter(make(seed=1)))[0]] != rows
    state = make().state_dict()
    with pytest.raises(stoker.StateError, match="fill in the middle"):
        make(fim=fim._replace(rate=0.4)).load_state_dict(state)
    with pytest.raises(stoker.ArgumentError, match="rate"):
        make(fim=fim._replace(rate=2))
    with pytest.raises(stoker.ArgumentError, match="FIM"):
        make(fim=0.5)


def test_fill_in_fragments(documents):
    """Megatron's further options; src/loader/rows/fim_test.c tests what they do to one document."""
    paths, everything = documents
    counts = collections.Counter(id for document in everything for id in document[1:-1])
    ((split, _),) = counts.most_common(1)
    fim = stoker.FIM(65001, 65002, 65003, rate=1.0, split_sample=split, fragment_rate=1.0)

    def rows(**options):
        given = {"rows": "documents", "shuffle": "none", "output": "numpy", "labels": False}
        loader = stoker.TokenLoader(paths, 300, **{**given, **options})
        return [row.tolist() for row in next(iter(loader))]

    most = 0
    for row, document in zip(rows(fim=fim), everything, strict=True):
        assert sorted(id for id in row if id < 65001) == sorted(document)
        count = row.count(65001)
        assert count == row.count(65002) == row.count(65003)
        parts = "".join("s" if id == split else "x" for id in document).split("s")
        assert count == min(sum(1 for part in parts if part), 4)
        most = max(most, count)
    assert most > 1
    one = rows(fim=fim._replace(fragments_max=1))
    assert {row.count(65001) for row in one} <= {0, 1} and one != rows(fim=fim)
    assert rows(fim=fim._replace(fragment_rate=0.0)) != rows(fim=fim)
    first = next(document for document in everything if len(document) > 3)
    kept = rows(fim=fim._replace(split_sample=None, no_prefix=first[:2]))
    for row, document in zip(kept, everything, strict=True):
        assert (row == document) == (not document or document[:2] == first[:2])
    whole = {"fim": fim._replace(split_sample=None, whole=True), "context": 20}
    for row, document in zip(rows(**whole), everything, strict=True):
        assert (65001 in row) == (0 < len(document) <= 17)  # with sentinels it has room
        assert 65001 in row or row == document[:17]
    state = stoker.TokenLoader(paths, 4, 64, fim=fim).state_dict()
    for other in (
        {"split_sample": 3},
        {"fragment_rate": 0.5},
        {"fragments_max": 3},
        {"no_prefix": (1,)},
        {"whole": True},
    ):
        changed = stoker.TokenLoader(paths, 4, 64, fim=fim._replace(**other))
        with pytest.raises(stoker.StateError, match="fill in the middle"):
            changed.load_state_dict(state)
    for bad in (
        {"prefix": "<pre>"},
        {"split_sample": "<file>"},
        {"no_prefix": "def"},
        {"no_prefix": range(65)},
        {"fragment_rate": 2},
        {"fragments_max": 0},
        {"level": "characters"},
        {"level": "words"},
    ):
        with pytest.raises(stoker.ArgumentError):
            stoker.TokenLoader(paths, 4, 64, fim=fim._replace(**bad))


@pytest.mark.parametrize("tool", ["zstd", "pzstd", "split"])
def test_files_that_zstd_packed(documents, tmp_path, tool):
    """The same batches as from the files, and a state of one continues in the other."""
    if shutil.which(tool) is None or shutil.which("zstd") is None:
        pytest.skip(f"no {tool} here")
    paths, _ = documents
    packed = tmp_path / "x.bin.zst"
    command = {
        "zstd": ["zstd", "-q", "-o", packed],
        "pzstd": ["pzstd", "-q", "-o", packed],
        "split": ["split", "--bytes=1000", "--filter=zstd -q -c >> $OUT"],
    }[tool]
    subprocess.run(
        [*command, f"{paths[0]}.bin"],
        check=True,
        cwd=tmp_path,
        env={**os.environ, "OUT": str(packed)},
    )
    shutil.copy(f"{paths[0]}.idx", tmp_path / "x.idx")
    with stoker.Tokens(packed) as tokens:
        assert tokens.identity == stoker.Tokens(paths[0]).identity
        assert tokens.frames >= (10 if tool == "split" else 1)
        assert tokens.documents == 150
    for options in ({"rows": "packed"}, {"context": 33}):
        loaders = [
            stoker.TokenLoader(
                path, 4, **{"context": 64, "shuffle": "block", **options}, seed=3, output="numpy"
            )
            for path in (paths[0], packed)
        ]
        for a, b in zip(*loaders, strict=True):
            pairs = zip(a.values(), b.values(), strict=True) if isinstance(a, dict) else zip(a, b)
            assert all((x == y).all() for x, y in pairs)
        loaders[1].load_state_dict(loaders[0].state_dict())
    packed.write_bytes(packed.read_bytes()[:-7])
    with pytest.raises(stoker.TruncatedError, match="x.bin.zst"):
        stoker.Tokens(packed)


def test_packed_state(documents):
    paths, _ = documents

    def make(**options):
        return stoker.TokenLoader(
            paths, 4, 64, rows="packed", output="numpy", **{"seed": 1, "chunk": 40, **options}
        )

    loader = make()
    iterator = iter(loader)
    for _ in range(3):
        next(iterator)
    state = loader.state_dict()
    rest = [batch["input_ids"].tolist() for batch in iterator]
    other = make()
    other.load_state_dict(state)
    assert [batch["input_ids"].tolist() for batch in other] == rest
    with pytest.raises(stoker.StateError, match="packing"):
        make(chunk=41).load_state_dict(state)


def test_packing_needs_documents(files, documents):
    with pytest.raises(stoker.ArgumentError, match="documents"):
        stoker.TokenLoader(files[0][1], 4, 64, rows="packed")
    with pytest.raises(stoker.ArgumentError, match="stride"):
        stoker.TokenLoader(documents[0], 4, 64, rows="packed", stride=3)


def test_a_truncated_bin_is_an_error_in_every_mode(tmp_path):
    """Also for windows, which use no entry of the index."""
    sequences = [numpy.arange(n) for n in (500, 1, 700, 333)]
    megatron(tmp_path / "set", sequences, [0, 1, 3, 4], 8, "uint16")
    file = tmp_path / "set.bin"
    size = file.stat().st_size
    for rows in ("windows", "packed", "documents", "padded"):
        stoker.TokenLoader(tmp_path / "set", 1, 16, rows=rows).close()
    for left in (size - 2, size // 4 * 2, 0):
        os.truncate(file, left)
        for rows in ("windows", "packed", "documents", "padded"):
            with pytest.raises(stoker.TruncatedError, match=f"{left} bytes in the .bin, {size}"):
                stoker.TokenLoader(tmp_path / "set", 1, 16, rows=rows)


@pytest.mark.parametrize("rows", ["windows", "packed", "documents", "padded"])
def test_ids_of_the_vocabulary(tmp_path, rows):
    """vocab= is a bound: for files of the wrong dtype, and for single tokens, compressed ones
    too."""
    tokens = numpy.arange(1, 1001, dtype="uint16") % 500
    tokens.tofile(tmp_path / "a.bin")
    options = {"rows": rows, "shuffle": "none", "tail": "keep", "output": "numpy", "eod": 0}

    def read(name="a.bin", stored="uint16", **more):
        path = tmp_path / name
        with stoker.TokenLoader(path, 4, 20, stored=stored, **options, **more) as loader:
            return sum(1 for _ in loader)

    assert read(vocab=500) == read()
    for dtype in ("int64", "int32"):
        with pytest.raises(stoker.FormatError, match="token 498 is 499, vocab is 499") as caught:
            read(vocab=499, dtype=dtype)
        assert "a.bin" in str(caught.value) and "stored=" in str(caught.value)
    with pytest.raises(stoker.FormatError, match="vocab is 500"):
        read(stored="int32", vocab=500)
    numpy.where(tokens == 77, -1, tokens.astype("int16")).tofile(tmp_path / "b.bin")
    with pytest.raises(stoker.FormatError, match="token 76 is -1"):
        read("b.bin", stored="int16", vocab=500)
    if shutil.which("zstd"):
        subprocess.run(["zstd", "-q", tmp_path / "a.bin"], check=True)
        assert read("a.bin.zst", vocab=500) > 0
        with pytest.raises(stoker.FormatError, match="token 498 is 499"):
            read("a.bin.zst", vocab=499)
    with pytest.raises(stoker.ArgumentError):
        read(vocab=0)


def test_files_that_are_no_raw_tokens(tmp_path):
    """stored= is refused if a file has the header of another format, which the error names."""
    import gzip
    import io
    import zipfile

    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("a", b"1" * 100)
    cases = {
        "gzip": gzip.compress(b"1234" * 100),
        "zip": archive.getvalue(),
        "Parquet": b"PAR1" + bytes(100) + b"PAR1",
        "HTML": b"<!DOCTYPE html><html>log in</html>\n",
        "Git LFS pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n",
        "text": json.dumps({"text": "a line of JSON " * 9}).encode(),
        "a Megatron index": b"MMIDIDX\0\0" + bytes(99),
        "safetensors": struct.pack("<Q", 64) + b'{"a":{"dtype":"F32"}}'.ljust(64) + bytes(8),
    }
    for name, data in cases.items():
        path = tmp_path / "x.bin"
        path.write_bytes(data + b" " * (len(data) % 2))
        with pytest.raises(stoker.FormatError, match=name) as caught:
            stoker.Tokens(path, stored="uint16")
        assert "x.bin" in str(caught.value)


def zstd_frame(folder, tokens):
    """A frame of the zstd command, which states its size."""
    tokens.tofile(folder / "part")
    return subprocess.run(
        ["zstd", "-q", "-c", folder / "part"], check=True, capture_output=True
    ).stdout


def test_rows_that_cannot_be_read(tmp_path):
    """on_error="skip": such rows are padding without labels, counted and listed; the others are
    delivered. Files that change are raised."""
    ids = numpy.arange(8000, dtype=numpy.uint16) % 500
    parts = [zstd_frame(tmp_path, ids[at : at + 1000]) for at in range(0, 8000, 1000)]
    begin = sum(map(len, parts[:3]))
    whole = b"".join(parts)
    middle = begin + len(parts[3]) // 2
    damage = bytes(byte ^ 255 for byte in whole[middle : middle + 8])
    data = whole[:middle] + damage + whole[middle + 8 :]
    path = tmp_path / "x.bin.zst"
    path.write_bytes(data)
    options = dict(stored="uint16", shuffle="none", tail="keep", output="numpy", labels=False)
    with pytest.raises(stoker.Error, match="x.bin.zst"):
        list(stoker.TokenLoader(path, 2, 100, **options))
    with stoker.TokenLoader(path, 2, 100, on_error="skip", pad=7, **options) as loader:
        rows = numpy.concatenate([numpy.asarray(batch) for batch in loader])
        stats, bad = loader.stats(), loader.quarantine
    good = ids.reshape(80, 100)
    assert (rows[:30] == good[:30]).all() and (rows[40:] == good[40:]).all()
    assert (rows[30:40] == 7).all()
    assert stats["bad_samples"] == 10
    assert [entry.sample for entry in bad] == list(range(30, 40))
    assert all(entry.shard == str(path) and entry.reason for entry in bad)
    # Documents of 500 tokens: the damaged frame has an end of one, and the begin of the next.
    by_eod = options | {"eod": 0, "on_error": "skip"}
    with stoker.TokenLoader(path, 1, rows="documents", **by_eod) as loader:
        lengths = [len(row) for batch in loader for row in batch]
        assert loader.stats()["bad_samples"] == 1
        assert loader.quarantine[0].shard == str(path) and loader.quarantine[0].offset == begin
    assert lengths.count(0) == 1 and lengths.count(500) == 12
    with stoker.TokenLoader(path, 1, 100, rows="packed", pad=7, **by_eod) as loader:
        for _ in range(2):
            assert len(list(loader)) == len(loader)
        assert loader.stats()["bad_samples"] >= 10
    # A pipe: the frame does not state its size.
    piped = subprocess.run(["zstd", "-q", "-c"], input=ids.tobytes(), capture_output=True).stdout
    piped = piped[:-40] + bytes(byte ^ 255 for byte in piped[-40:-20]) + piped[-20:]
    for damaged in (whole[:-20], piped):
        (tmp_path / "y.bin.zst").write_bytes(damaged)
        with pytest.raises((stoker.TruncatedError, stoker.CorruptError), match=r"y\.bin\.zst"):
            stoker.TokenLoader(tmp_path / "y.bin.zst", 2, 100, on_error="skip", **options)
    # Beside other files it is left out: the number of its tokens is unknown.
    ids.tofile(tmp_path / "a.bin")
    names = [tmp_path / "a.bin", tmp_path / "y.bin.zst", tmp_path / "a.bin"]
    for rows in ("windows", "documents"):
        more = {"rows": rows} | ({"eod": 0} if rows == "documents" else {"context": 100})
        with stoker.TokenLoader(names, 2, on_error="skip", **more, **options) as loader:
            with stoker.TokenLoader([names[0]] * 2, 2, **more, **options) as wanted:
                assert [[*map(list, x)] for x in loader] == [[*map(list, x)] for x in wanted]
            assert loader.stats()["bad_samples"] == 1
            assert [bad.shard for bad in loader.quarantine] == [str(names[1])]
            state = loader.state_dict()
        with stoker.TokenLoader(names, 2, on_error="skip", **more, **options) as loader:
            loader.load_state_dict(state)
    with pytest.raises(stoker.CorruptError, match=r"y\.bin\.zst"):
        stoker.TokenLoader(names, 2, 100, **options)
    (tmp_path / "z.bin.zst").write_bytes(piped)
    names.append(tmp_path / "z.bin.zst")
    with pytest.raises(stoker.LimitError, match=r"y\.bin\.zst"):
        stoker.TokenLoader(names, 2, 100, on_error="skip", bad_samples_max=1, **options)
    with stoker.TokenLoader(path, 2, 100, on_error="skip", bad_samples_max=3, **options) as loader:
        with pytest.raises(stoker.LimitError, match="x.bin.zst"):
            list(loader)
    for bad_option in ("ignore", None):
        with pytest.raises((stoker.ArgumentError, TypeError)):
            stoker.TokenLoader(path, 2, 100, on_error=bad_option, **options)
    # An id outside of the vocabulary; shifted labels of such a row are ignored, too.
    raw = ids.copy()
    raw[250] = 60000
    raw.tofile(tmp_path / "raw.bin")
    options |= {"labels": True, "vocab": 500, "on_error": "skip"}
    with stoker.TokenLoader(tmp_path / "raw.bin", 1, 100, **options) as loader:
        rows = list(loader)
        assert loader.stats()["bad_samples"] == 1 and loader.quarantine[0].sample == 2
    assert (rows[2][0] == 0).all() and (rows[2][1] == -100).all()
    assert (rows[3][0] == raw[300:400]).all() and (rows[3][1] == raw[301:401]).all()
    options |= {"rows": "documents", "eod": 0, "labels": False}
    with stoker.TokenLoader(tmp_path / "raw.bin", 16, **options) as loader:
        documents = [len(row) for batch in loader for row in batch]
        assert loader.stats()["bad_samples"] == 1 and documents.count(0) == 1
