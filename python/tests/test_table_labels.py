"""pack_table: labels are never renumbered because one is missing or written otherwise; several
tables in one call; errors name the file, line and byte."""

from __future__ import annotations

import bz2
import csv
import gzip
import json
import lzma

import make
import pytest
import stoker


@pytest.fixture(scope="module")
def picture():
    return make.encoded(make.pixels(1, 20, 24), "JPEG")


def write_csv(path, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return path


def labels(folder):
    """(labels by key, classes)"""
    with stoker.Dataset(folder) as dataset:
        found = {dataset[i]["__key__"]: int(dataset[i]["cls"]) for i in range(len(dataset))}
    manifest = json.loads((folder / "stoker.manifest.json").read_text())
    return list(found.values()), manifest.get("classes") or []


def pack(values, picture, folder, **options):
    rows = [{"image": picture, "label": value} for value in values]
    done = stoker.pack_table(rows, folder, label="label", on_error="skip", **options)
    return (*labels(folder), [bad.row for bad in done["bad"]])


NUMBERS = {
    "numbers": ([7, 3, 10], [7, 3, 10], []),
    "text": (["7", "3", "10"], [7, 3, 10], []),
    "None": ([7, None, 10], [7, 10], [1]),
    "an empty cell": (["7", "", "10"], [7, 10], [1]),
    "spaces": (["7", " ", "10"], [7, 10], [1]),
    "NaN": ([7.0, float("nan"), 10.0], [7, 10], [1]),
    "negative": ([7, -1, 10], [7, -1, 10], []),
    "negative text": (["7", "-1", "10"], [7, -1, 10], []),
    "floats": ([7.0, 3.0, 10.0], [7, 3, 10], []),
    "text of floats": (["7.0", "3", "10."], [7, 3, 10], []),
    "a sign": (["+7", "3"], [7, 3], []),
    "zeros": (["007", "3"], [7, 3], []),
    "true": ([True, False, 5], [1, 0, 5], []),
    "no whole number": ([7, 1.5, 10], [7, 10], [1]),
    "large": ([2**62, 3], [2**62, 3], []),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_stay(picture, tmp_path, name):
    values, want, bad = NUMBERS[name]
    assert pack(values, picture, tmp_path / "dst") == (want, [], bad)


def test_a_csv_with_an_empty_cell(picture, tmp_path):
    (tmp_path / "1.jpg").write_bytes(picture)
    rows = [{"file_name": "1.jpg", "label": value} for value in ("12", "", "3")]
    table = write_csv(tmp_path / "t.csv", rows)
    done = stoker.pack_table(table, tmp_path / "dst", label="label", on_error="skip")
    assert labels(tmp_path / "dst") == ([12, 3], [])
    assert [bad.row for bad in done["bad"]] == [1]
    with pytest.raises(stoker.FormatError, match="no label.*row 1,"):
        stoker.pack_table(table, tmp_path / "other", label="label")


def test_names_become_classes(picture, tmp_path):
    values = ["dog", "cat", None, "emu", ""]
    assert pack(values, picture, tmp_path / "a") == ([1, 0, 2], ["cat", "dog", "emu"], [2, 4])
    classes = ["emu", "dog", "9"]
    found = pack([*values, "9"], picture, tmp_path / "b", classes=classes)
    assert found == ([1, 0, 2], classes, [1, 2, 4])


@pytest.mark.parametrize("values", [["7", "3", "n/a"], ["cat", 3], ["n/a", 1.5], ["1e3", "2"]])
def test_numbers_and_names_together_are_an_error(picture, tmp_path, values):
    with pytest.raises(stoker.FormatError, match="both numbers and names") as caught:
        pack(values, picture, tmp_path / "dst")
    assert "row" in str(caught.value) and "classes=" in str(caught.value)
    with pytest.raises(stoker.ArgumentError, match="twice"):
        pack(["a"], picture, tmp_path / "dst", classes=["a", "a"])


# ---- several tables ----


@pytest.fixture
def tables(tmp_path, picture):
    """Three tables in two folders, each next to its images."""
    found = []
    for name, ending in (("a", "csv"), ("b", "jsonl"), ("sub/c", "csv")):
        path = tmp_path / "in" / f"{name}.{ending}"
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = []
        for number in range(2):
            file = f"{path.stem}{number}.jpg"
            (path.parent / file).write_bytes(picture)
            rows.append({"file_name": file, "label": f"{path.stem}{number}"})
        if ending == "csv":
            write_csv(path, rows)
        else:
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        found.append(path)
    return found


def test_lists_folders_globs_and_braces(tables, tmp_path):
    folder = tmp_path / "in"
    want = ([0, 1, 2, 3, 4, 5], ["a0", "a1", "b0", "b1", "c0", "c1"])
    sources = {
        "list": tables,
        "folder": folder,
        "text": [str(path) for path in tables],
        "mixed": [f"{folder}/{{a,b}}.*[lv]", folder / "sub"],
        "glob": [f"{folder}/*.[cj]s*[vl]", f"{folder}/sub/*.csv"],
    }
    for name, source in sources.items():
        done = stoker.pack_table(source, tmp_path / name, label="label")
        assert done == {"samples": 6, "samples_kept": 0, "bad": []}
        assert labels(tmp_path / name) == want, name
    one = stoker.pack_table(f"{folder}/a.c*", tmp_path / "one", label="label")
    assert one["samples"] == 2


def test_parquet_shards(tmp_path, picture):
    """As Hugging Face publishes a data set of images."""
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    folder = tmp_path / "data"
    folder.mkdir()
    for shard in range(3):
        image = {"bytes": picture, "path": None}
        rows = [{"image": image, "label": 10 * shard + i} for i in (0, 1)]
        table = pyarrow.Table.from_pylist(rows)
        pyarrow.parquet.write_table(table, folder / f"train-{shard:05}-of-00003.parquet")
    for number, source in enumerate((folder, f"{folder}/train-*.parquet", [*folder.iterdir()])):
        stoker.pack_table(source, tmp_path / f"out{number}", label="label")
        assert sorted(labels(tmp_path / f"out{number}")[0]) == [0, 1, 10, 11, 20, 21]


def test_tables_that_do_not_fit_together(tables, tmp_path, picture):
    write_csv(tables[2], [{"file_name": "c0.jpg", "class": "x"}])
    with pytest.raises(stoker.FormatError, match=r"different columns.*c\.csv"):
        stoker.pack_table([tables[0], tables[2]], tmp_path / "dst", label="label")
    with pytest.raises(stoker.ArgumentError, match="has no table"):
        (tmp_path / "empty").mkdir()
        stoker.pack_table(tmp_path / "empty", tmp_path / "dst")
    with pytest.raises(stoker.EmptyError, match="none"):
        stoker.pack_table(f"{tmp_path}/none*.csv", tmp_path / "dst")
    with pytest.raises(stoker.ArgumentError, match="not a table"):
        stoker.pack_table([tables[0], tmp_path / "x.txt"], tmp_path / "dst")
    with pytest.raises(stoker.IOError, match=r"gone\.csv"):
        stoker.pack_table([tables[0], tmp_path / "gone.csv"], tmp_path / "dst")
    tables[1].write_text(json.dumps({"file_name": "b0.jpg", "label": None}) + "\n")
    with pytest.raises(stoker.FormatError, match=r"no label: row 2 \(.*b\.jsonl' row 0\), column"):
        stoker.pack_table(tables[:2], tmp_path / "dst", label="label")


def test_another_list_is_another_table(tables, tmp_path):
    """An interrupted run does not continue with other tables."""
    from stoker.table_packing import _Table

    digests = {_Table(list(part)).digest for part in (tables, tables[:2], tables[::-1], tables[:1])}
    assert len(digests) == 4


# ---- places of errors, and compressed tables ----


@pytest.mark.parametrize("packer", [bytes, gzip.compress, bz2.compress])
def test_a_damaged_line_is_named(tmp_path, picture, packer):
    (tmp_path / "1.jpg").write_bytes(picture)
    line = b'{"file_name": "1.jpg"}\n'
    ending = {bytes: "", gzip.compress: ".gz", bz2.compress: ".bz2"}[packer]
    table = tmp_path / f"t.jsonl{ending}"
    table.write_bytes(packer(b"\xef\xbb\xbf" + line + b"\n" + line + b"{bad\n"))
    with pytest.raises(stoker.FormatError, match=r"row 2, line 4, byte 50"):
        stoker.pack_table(table, tmp_path / "bad")
    table.write_bytes(packer(line * 3))
    assert stoker.pack_table(table, tmp_path / "dst")["samples"] == 3
    table = tmp_path / f"t.csv{ending}"
    table.write_bytes(packer(b'file_name,more\n1.jpg,"two\nlines"\n1.jpg\n'))
    with pytest.raises(stoker.FormatError, match=r"row 1, line 4"):
        stoker.pack_table(table, tmp_path / "other")


@pytest.mark.parametrize("packer", [gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_a_damaged_compressed_table(tmp_path, ending, packer):
    """Rows before the damage have no image here; they are skipped."""
    names = [str(number * 7919 % 9973) for number in range(5000)]
    if ending == "csv":
        lines = ["file_name", *names]
    else:
        lines = [json.dumps({"file_name": name}) for name in names]
    broken = bytearray(packer("\n".join(lines).encode()))
    for place in range(len(broken) // 2, len(broken) // 2 + 8):
        broken[place] ^= 0xFF
    (tmp_path / f"t.{ending}.gz").write_bytes(broken)
    with pytest.raises(stoker.FormatError, match="the table cannot be read"):
        stoker.pack_table(tmp_path / f"t.{ending}.gz", tmp_path / "dst", on_error="skip")


def test_compressed_lines_of_json_may_leave_out_fields(tmp_path, picture):
    (tmp_path / "1.jpg").write_bytes(picture)
    for name, more in (("a", ', "more": 1'), ("b", "")):
        text = f'{{"file_name": "1.jpg"{more}}}\n'.encode()
        (tmp_path / f"{name}.jsonl.gz").write_bytes(gzip.compress(text))
    assert stoker.pack_table(tmp_path / "*.jsonl.gz", tmp_path / "dst")["samples"] == 2


def test_a_lone_surrogate(tmp_path, picture):
    rows = [{"image": picture, "caption": "a"}, {"image": picture, "caption": "\ud800"}]
    with pytest.raises(stoker.FormatError, match="row 1.*column 'caption'"):
        stoker.pack_table(rows, tmp_path / "a", text="caption")
    done = stoker.pack_table(rows, tmp_path / "b", text="caption", on_error="skip")
    assert done["samples"] == 1 and [bad.row for bad in done["bad"]] == [1]
