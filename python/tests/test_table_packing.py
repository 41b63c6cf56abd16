"""pack_table: tables of images, in every form; rows that fail; kills.

Goal: the same tars from each kind of table; labels, captions and other columns kept; rows that
cannot be packed follow one policy and are listed once, also over kills; the function downloads
nothing by itself.
"""

import csv
import functools
import http.server
import io
import json
import pathlib
import random
import shutil
import signal
import time
import urllib.request

import make
import pytest
import servers
import stoker
from test_pack import files, is_done, start

NAMES = ["cat", "ähre", "dog"]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """24 pictures: JPEG, PNG and WebP, some in a folder."""
    root = tmp_path_factory.mktemp("pictures")
    for number in range(24):
        kind = ("JPEG", "PNG", "WEBP")[number % 3]
        data = make.encoded(make.pixels(number, 20, 24), kind)
        make.write(root / ("sub dir/" if number % 4 == 0 else "") / f"ü{number}.{kind}", data)
    return root


@pytest.fixture(scope="module")
def rows(pictures):
    paths = sorted(pictures.rglob("ü*"), key=lambda path: int(path.stem[1:]))
    return [
        {
            "file_name": str(path.relative_to(pictures)),
            "name": NAMES[number % 3],
            "number": number % 5,
            "caption": f'Bild, "{number}"\nzwei',
            "score": number / 2,
        }
        for number, path in enumerate(paths)
    ]


def write_table(path, rows):
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n\n" for row in rows))
    elif path.suffix == ".parquet":
        pyarrow = pytest.importorskip("pyarrow")
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path, row_group_size=7)
    else:
        with open(path, "w", newline="", encoding="utf-8") as file:
            dialect = "excel-tab" if path.suffix == ".tsv" else "excel"
            writer = csv.DictWriter(file, rows[0], dialect=dialect)
            writer.writeheader()
            writer.writerows(rows)
    return path


def tars(folder):
    return {name: data for name, data in files(folder).items() if name.endswith(".tar")}


def samples(folder):
    with stoker.Dataset(folder) as dataset:
        return [dataset[number] for number in range(len(dataset))]


@pytest.fixture(scope="module")
def from_rows(tmp_path_factory, rows, pictures):
    path = tmp_path_factory.mktemp("from_rows") / "dst"
    stoker.pack_table(rows, path, base=pictures, label="name", text="caption", shard_bytes=9000)
    return path


def test_packed_samples(from_rows, rows, pictures):
    got = samples(from_rows)
    assert len(tars(from_rows)) > 1
    assert json.loads(files(from_rows)["stoker.manifest.json"])["classes"] == sorted(NAMES)
    for number, (sample, row) in enumerate(zip(got, rows, strict=True)):
        data = (pictures / row["file_name"]).read_bytes()
        kind = ("jpg", "png", "webp")[number % 3]
        assert sample == {
            "__key__": f"{number:09d}",
            kind: data,
            "cls": str(sorted(NAMES).index(row["name"])).encode(),
            "txt": row["caption"].encode(),
        }


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet"])
def test_kinds_of_tables(ending, from_rows, rows, pictures, tmp_path):
    """The same tars; relative paths begin at the table's folder, or at base."""
    for place, options in ((pictures, {}), (tmp_path, {"base": pictures})):
        table = write_table(place / f"t.{ending}", rows)
        done = stoker.pack_table(
            table, tmp_path / "dst", label="name", text="caption", shard_bytes=9000, **options
        )
        assert done == {"samples": 24, "samples_kept": 0, "bad": []}
        assert tars(tmp_path / "dst") == tars(from_rows)
        table.unlink()
        (tmp_path / "dst").rename(tmp_path / f"done {place.name}")


def test_columns(rows, pictures, tmp_path):
    """Numbers stay labels, other columns become JSON, one column is the keys."""
    keyed = [{**row, "k": f"b/{n}", "none": None} for n, row in enumerate(rows)]
    pack = functools.partial(stoker.pack_table, keyed, base=pictures, key="k", label="number")
    pack(tmp_path / "a", extra=["score", "none"], text="none")
    pack(tmp_path / "b", extra="rest")
    for name, columns in (
        ("a", ["score", "none"]),
        ("b", ["name", "caption", "score", "none"]),
    ):
        for number, sample in enumerate(samples(tmp_path / name)):
            assert sample["__key__"] == f"b/{number}" and "txt" not in sample
            assert int(sample["cls"]) == number % 5
            assert json.loads(sample["json"]) == {c: keyed[number][c] for c in columns}
        assert json.loads(files(tmp_path / name)["stoker.manifest.json"])["classes"] == []


def test_an_imagefolder_of_hugging_face(rows, pictures, tmp_path):
    table = write_table(pictures / "metadata.jsonl", rows)
    stoker.pack_table(table, tmp_path / "dst", extra="rest")
    table.unlink()
    for sample, row in zip(samples(tmp_path / "dst"), rows, strict=True):
        assert json.loads(sample["json"]) == {k: row[k] for k in row if k != "file_name"}


def test_names_of_pictures(rows, pictures, tmp_path):
    """file:// URLs, absolute paths, the bytes themselves, and Hugging Face's pairs of both."""
    paths = [pictures / row["file_name"] for row in rows]
    data = [path.read_bytes() for path in paths]
    for name, values in {
        "uri": [path.as_uri() for path in paths],
        "absolute": [str(path) for path in paths],
        "bytes": data,
        "pair": [{"bytes": part, "path": "x"} for part in data],
        "pair of a path": [{"bytes": None, "path": str(path)} for path in paths],
    }.items():
        stoker.pack_table([{"image": value} for value in values], tmp_path / name)
        got = [next(v for k, v in s.items() if k != "__key__") for s in samples(tmp_path / name)]
        assert got == data, name


# ---- URLs ----


@pytest.fixture
def server(pictures):
    """An http server; its list records the requests."""
    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self):
            requested = self.server.seen
            requested.append(self.path)
            if self.path.startswith("/flaky") and requested.count(self.path) < 3:
                self.send_error(503)
            else:
                self.path = self.path.removeprefix("/flaky")
                super().do_GET()

        def log_message(self, *_):
            pass

    handler = functools.partial(Handler, directory=str(pictures))
    with servers.serving(handler) as made:
        yield made.url, made.seen


def get(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read()


def test_nothing_is_fetched_by_itself(server, tmp_path):
    url, requested = server
    for number, place in enumerate(
        (f"{url}/%C3%BC1.PNG", "HTTPS://example.invalid/a", "s3://bucket/a")
    ):
        for on_error in ("raise", "skip"):
            with pytest.raises(stoker.UnsupportedError, match="pass fetch="):
                stoker.pack_table([{"url": place}], tmp_path / f"{number}", on_error=on_error)
        assert not (tmp_path / f"{number}").exists()
    assert not requested


def test_fetch(server, rows, pictures, tmp_path):
    url, requested = server
    table = [{"url": f"{url}/{urllib.request.pathname2url(row['file_name'])}"} for row in rows]
    table.insert(3, {"url": f"{url}/flaky/%C3%BC1.PNG"})
    table.insert(4, {"url": f"{url}/absent.jpg"})
    done = stoker.pack_table(
        table, tmp_path / "dst", fetch=get, on_error="skip", io_retries=2, threads=3
    )
    assert (done["samples"], [bad.row for bad in done["bad"]]) == (25, [4])
    assert "404" in done["bad"][0].reason and done["bad"][0].place == f"'{url}/absent.jpg'"
    assert requested.count("/flaky/%C3%BC1.PNG") == 3 and requested.count("/absent.jpg") == 3
    assert [int(sample["__key__"]) for sample in samples(tmp_path / "dst")] == [
        number for number in range(26) if number != 4
    ]
    with pytest.raises(stoker.IOError, match="row 4, .*absent.jpg"):
        stoker.pack_table(table, tmp_path / "b", fetch=get, io_retries=0)


# ---- rows that fail ----


@pytest.fixture
def mixed(rows, pictures, tmp_path):
    """Rows of which some fail: (table, {number: error text})."""
    make.write(tmp_path / "page.jpg", b"<html>sorry</html>")
    make.write(tmp_path / "empty.jpg", b"")
    make.write(tmp_path / "large.jpg", b"\xff\xd8\xff" + bytes(70_000))
    (tmp_path / "folder.jpg").mkdir()
    good = [
        {"path": str(pictures / row["file_name"]), "n": row["number"], "k": f"k{number}"}
        for number, row in enumerate(rows)
    ]
    bad = [
        ({"path": str(tmp_path / "absent.jpg")}, "No such file"),
        ({"path": str(tmp_path / "page.jpg")}, "not a JPEG"),
        ({"path": str(tmp_path / "empty.jpg")}, "not a JPEG"),
        ({"path": str(tmp_path / "large.jpg")}, "more than 65536 bytes"),
        ({"path": str(tmp_path / "folder.jpg")}, "directory"),
        ({"path": str(tmp_path / "page.jpg") + "/x"}, "Not a directory"),
        ({"path": "x" * 5000}, "too long"),
        ({"path": None}, "the row has no image"),
        ({"path": ""}, "the row has no image"),
        ({"path": "a\0b"}, "the row has no image"),
        ({"path": 7}, "the row has no image"),
        ({"n": None}, "no label"),
        ({"k": None}, "no key"),
        ({"k": "a.b"}, "not a valid WebDataset key"),
        ({"k": "k0"}, "was already added"),
    ]
    table, expected = [], {}
    for number in range(24):
        table.append(good[number])
        if number < len(bad):
            change, words = bad[number]
            expected[len(table)] = words
            table.append({**good[number], "k": f"b{number}", **change})
    return table, expected


def test_skipped(mixed, tmp_path):
    table, expected = mixed
    options = dict(label="n", key="k", bytes_max="64KiB", on_error="skip")
    file = tmp_path / "bad.jsonl"
    done = stoker.pack_table(table, tmp_path / "dst", quarantine=file, **options)
    assert done["samples"] == 24 and [bad.row for bad in done["bad"]] == [*expected]
    for bad, words in zip(done["bad"], expected.values(), strict=True):
        assert words in bad.reason and f"row {bad.row}" in bad.reason and bad.status
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert lines == [bad._asdict() for bad in done["bad"]]
    assert [sample["__key__"] for sample in samples(tmp_path / "dst")] == [
        row["k"] for number, row in enumerate(table) if number not in expected
    ]
    with pytest.raises(stoker.LimitError, match="bad_samples_max=3") as caught:
        stoker.pack_table(table, tmp_path / "b", bad_samples_max=3, **options)
    assert "row 7" in str(caught.value) and not (tmp_path / "b").exists()
    stoker.pack_table(table, tmp_path / "b", bad_samples_max=len(expected), **options)
    assert files(tmp_path / "b") == files(tmp_path / "dst")


def test_raised(mixed, tmp_path):
    table, expected = mixed
    for number, words in expected.items():
        with pytest.raises(stoker.Error, match=words) as caught:
            stoker.pack_table(
                [table[0], table[number]], tmp_path / f"{number}",
                label="n", key="k", bytes_max="64KiB",
            )  # fmt: skip
        assert "row 1, " in caught.value.where and caught.value.advice
        assert not (tmp_path / f"{number}").exists()


def test_a_disk_that_fails_is_no_bad_row(monkeypatch, rows, pictures, tmp_path):
    """EIO is tried again, and then raised under skip too."""
    path = str(pictures / rows[5]["file_name"])
    left = 2

    def broken_open(name, *arguments, **options):
        nonlocal left
        if name == path and left > 0:
            left -= 1
            raise OSError(5, "Input/output error")
        return io.open(name, *arguments, **options)

    monkeypatch.setattr("stoker.table_packing.open", broken_open, raising=False)
    options = dict(base=pictures, on_error="skip", io_retries=2)
    assert stoker.pack_table(rows, tmp_path / "dst", **options)["bad"] == [] and left == 0
    left = 3
    with pytest.raises(stoker.IOError) as caught:
        stoker.pack_table(rows, tmp_path / "b", **options)
    assert caught.value.errno == 5 and path in str(caught.value)


# ---- mistakes ----


REFUSED = {
    "no rows": ([], {}),
    "no dicts": ([1], {}),
    "no table": (7, {}),
    "no ending": ("table.txt", {}),
    "absent": ("absent.csv", {}),
    "no picture": ([{"x": 1}], {}),
    "two pictures": ([{"path": "a", "url": "b"}], {}),
    "no such column": ([{"path": "a"}], {"label": "x"}),
    "no such extra": ([{"path": "a"}], {"extra": ["x"]}),
    "extra text": ([{"path": "a"}], {"extra": "x"}),
    "on_error": ([{"path": "a"}], {"on_error": "ignore"}),
    "fetch": ([{"path": "a"}], {"fetch": "http"}),
    "threads": ([{"path": "a"}], {"threads": 0}),
    "limit": ([{"path": "a"}], {"bad_samples_max": 0}),
    "pattern": ([{"path": "a"}], {"pattern": "x"}),
}


@pytest.mark.parametrize("row", REFUSED)
def test_refused(row, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table, options = REFUSED[row]
    with pytest.raises((stoker.ArgumentError, FileNotFoundError)) as caught:
        stoker.pack_table(table, tmp_path / "dst", **options)
    assert caught.value.what and caught.value.where and caught.value.advice
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "name, data",
    [
        ("a.csv", b"path,n\nx,1\ny\n"),
        ("a.csv", b"path,n\nx,1\ny,1,2\n"),
        ("a.csv", b"path,n\nx,1\n\xff\xff,2\n"),
        ("a.csv", b'path,n\nx,1\n"y,2\n'),
        ("a.jsonl", b'{"path": "x"}\n{"path"\n'),
        ("a.jsonl", b'{"path": "x"}\n[1]\n'),
        ("a.jsonl", b'{"path": "x"}\n\xff\n'),
        ("a.jsonl", b'{"path": ' + b"[" * 100_000 + b"\n"),
    ],
)
def test_damaged_tables(name, data, tmp_path):
    """Never skipped: the packed rows of a table of another shape would be unknown."""
    make.write(tmp_path / "x", make.encoded(make.pixels(1, 8, 8)))
    with pytest.raises(stoker.FormatError, match="cannot be read") as caught:
        stoker.pack_table(make.write(tmp_path / name, data), tmp_path / "dst", on_error="skip")
    assert name in caught.value.where and not (tmp_path / "dst").exists()


def test_damaged_parquet(tmp_path):
    pytest.importorskip("pyarrow")
    with pytest.raises(stoker.FormatError, match="cannot be read"):
        stoker.pack_table(make.write(tmp_path / "a.parquet", b"no" * 99), tmp_path / "dst")


def test_parquet_needs_pyarrow(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)  # so that importing it fails
    with pytest.raises(stoker.UnsupportedError, match="pip install pyarrow"):
        stoker.pack_table(make.write(tmp_path / "a.parquet", b"PAR1"), tmp_path / "dst")


def test_a_file_that_is_no_quarantine_is_left_alone(rows, pictures, tmp_path):
    path = make.write(tmp_path / "notes.txt", b"my notes\n")
    with pytest.raises(stoker.ArgumentError, match="pack_table did not write it"):
        stoker.pack_table(rows, tmp_path / "dst", base=pictures, quarantine=path)
    assert path.read_bytes() == b"my notes\n"
    with pytest.raises(FileNotFoundError):
        stoker.pack_table(rows, tmp_path / "b", base=pictures, quarantine=tmp_path / "no" / "file")


def test_a_quarantine_covers_all_kept_shards(tmp_path, monkeypatch):
    """Killed between its opening and its first line; the resumed run has lost none of them."""
    lines = [stoker.BadRow(row, f"p{row}", "MISSING", "no")._asdict() for row in range(9)]
    path = tmp_path / "bad"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"row": 9, "to')
    quarantine = stoker.table_quarantine.Quarantine
    monkeypatch.setattr(quarantine, "_line", lambda *_: pytest.fail("written again"))
    opened = quarantine(path, 0, 6)
    assert [row.row for row in opened.rows] == list(range(6))
    assert [json.loads(line) for line in path.read_text().splitlines()] == lines
    opened.close()


@pytest.mark.parametrize(
    "text", [b'{"a": 1}', b"my notes", b"one\ntwo", b'{"shard": "a"}\n', b'{"row": 1}\n']
)
def test_a_file_of_the_user_is_not_cut(rows, pictures, tmp_path, text):
    path = make.write(tmp_path / "config.json", text)
    with pytest.raises(stoker.ArgumentError):
        stoker.pack_table(rows, tmp_path / "dst", base=pictures, quarantine=path)
    assert path.read_bytes() == text


def test_the_list_of_another_table_stays(rows, pictures, tmp_path):
    path = tmp_path / "bad"
    line = json.dumps(stoker.BadRow(3, "x", "ENOENT", "of another table")._asdict()) + "\n"
    path.write_text(line)
    table = [*rows[:4], {"file_name": "absent.png"}, *rows[4:]]
    stoker.pack_table(
        table, tmp_path / "dst", base=pictures, quarantine=path, on_error="skip", image="file_name"
    )
    assert path.read_text().startswith(line)
    assert [json.loads(line)["row"] for line in path.read_text().splitlines()] == [3, 4]


@pytest.mark.parametrize("listed", [True, False])
def test_a_key_that_comes_twice(pictures, rows, tmp_path, listed):
    """Row 4 has the key of row 40 and no image: after a kill the run resumes after row 40."""
    names = [row["file_name"] for row in rows]
    table = [{"file_name": names[n % len(names)], "k": f"k{n}"} for n in range(80)]
    table[4] = {"file_name": "absent.png", "k": "k40"}
    maker = stoker.table_packing._Maker
    columns = {"image": "file_name", "label": None, "text": None, "extra": [], "key": "k"}
    columns["classes"] = None
    source = stoker.table_packing._Table(table)
    reader = stoker.table_packing._Reader(str(pictures), None, 0, 1 << 20)
    made = maker(source, reader, **columns)
    left = made.rows_after(source, "k40", 3, {4} if listed else None)
    assert [number for number, _ in left] == list(range(41, 80))
    left = made.rows_after(source, "k40", 40, None)
    assert [number for number, _ in left] == list(range(41, 80))
    with pytest.raises(stoker.StateError):
        next(made.rows_after(source, "none", 3, None))


# ---- stops ----

TABLE = """
    import sys, stoker
    stoker.default_engine()
    print("ready", flush=True)
    done = stoker.pack_table(sys.argv[1], sys.argv[2], shard_bytes="16KiB", on_error="skip",
                             quarantine=sys.argv[3], threads=2)
    print(done["samples_kept"], len(done["bad"]))
"""


def test_killed_at_any_instant(rows, pictures, tmp_path):
    """The same bytes, and each failed row once in the file."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    absent = [{"path": f"absent{number}"} for number in range(40)]
    good = [{"path": str(pictures / rows[number % 24]["file_name"])} for number in range(600)]
    table = write_table(tmp_path / "t.csv", [(absent + good)[n * 97 % 640] for n in range(640)])
    words = [table, tmp_path / "want", tmp_path / "want bad"]
    child, begin = start(TABLE, *words), time.monotonic()
    assert child.communicate() == ("0 40\n", "")
    whole_s = time.monotonic() - begin
    words = [table, tmp_path / "dst", tmp_path / "bad"]
    for _ in range(8):
        child = start(TABLE, *words)
        time.sleep(draw.uniform(0, whole_s / 2))
        child.send_signal(signal.SIGKILL)
        child.communicate()
        if is_done(tmp_path / "dst"):
            assert files(tmp_path / "dst") == files(tmp_path / "want")
            assert (tmp_path / "bad").read_bytes() == (tmp_path / "want bad").read_bytes()
            shutil.rmtree(tmp_path / "dst")
    child = start(TABLE, *words)  # and a run that certainly leaves work to resume
    while not (some := [*tmp_path.glob("dst.part/*.done")]) and not is_done(tmp_path / "dst"):
        time.sleep(0.001)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    output, complaint = start(TABLE, *words).communicate()
    assert complaint == "" or is_done(tmp_path / "dst")
    assert not some or output == "" or int(output.split()[0]) > 0
    assert files(tmp_path / "dst") == files(tmp_path / "want")
    assert (tmp_path / "bad").read_bytes() == (tmp_path / "want bad").read_bytes()


def test_another_table_is_refused(mixed, tmp_path):
    """Also other columns, or one cell that changed; the policy may change."""
    table, expected = mixed
    options = dict(label="n", key="k", shard_bytes=4096, bytes_max="64KiB")
    with pytest.raises(stoker.LimitError):
        stoker.pack_table(
            table, tmp_path / "dst", on_error="skip", bad_samples_max=8, **options
        )  # fmt: skip
    changed = [dict(row) for row in table]
    changed[-1]["n"] = 4
    for other, columns in ((changed, {}), (table[:-1], {}), (table, {"extra": ["n"]})):
        with pytest.raises(stoker.StateError, match="source: "):
            stoker.pack_table(other, tmp_path / "dst", on_error="skip", **options, **columns)
    seen = []
    done = stoker.pack_table(
        table, tmp_path / "dst", on_error="skip", progress=seen.append, **options
    )
    assert 0 < done["samples_kept"] < done["samples"] == 24
    assert seen and seen[0]["samples_kept"] == done["samples_kept"]
    stoker.pack_table(table, tmp_path / "want", on_error="skip", **options)
    assert files(tmp_path / "dst") == files(tmp_path / "want")
    assert pathlib.Path(tmp_path / "dst.part").exists() is False
