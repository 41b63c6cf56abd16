"""Tars that were changed after they were written: stoker lists the same as Python's tarfile or GNU
tar, or refuses and says where. It never lists something else silently.

Goal: names, sizes, offsets and order of regular members. Method: small tars in every format, with
one to three changes that respect the format (fields under a right checksum, extended headers,
blocks moved, cut and doubled, names, plain bit flips), listed by all three. Every tar is a function
of (seed, number): set STOKER_SEED and the number that a failure prints to make it again.
STOKER_TEST_LONG: many more.
"""

from __future__ import annotations

import collections
import os
import random
import re
import shutil
import subprocess
import tarfile

import make
import pytest
import stoker

SEED = int(os.environ.get("STOKER_SEED", "1"))
COUNT = 8000 if os.environ.get("STOKER_TEST_LONG") else 400
BLOCK = 512
END = b"\0" * 2 * BLOCK

# Fields of a header: where, how long.
NAME, MODE, OWNER, SIZE, TIME = (0, 100), (100, 8), (108, 8), (124, 12), (136, 12)
CHECKSUM, TYPE, LINK, MAGIC, PREFIX = (148, 8), (156, 1), (157, 100), (257, 8), (345, 155)
FORMATS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]


# ---- making -----------------------------------------------------------------------------------


def member_name(r, number):
    """Unique, with a dot, so that each regular member is a sample of its own."""
    stem = r.choice(["a", "dir/a", "é", "a b", "x" * 120, "d/" * 40 + "e", "long/" + "y" * 200])
    return f"{stem}{number}.{r.choice(['bin', 'jpg', 'left.png', 'J'])}"


def blocks_of(r):
    """A complete tar without its end, as a list of blocks."""
    data = b""
    form = r.choice(FORMATS)
    kinds = [tarfile.REGTYPE] * 12 + [tarfile.AREGTYPE, tarfile.CONTTYPE, tarfile.DIRTYPE]
    kinds += [tarfile.SYMTYPE, tarfile.LNKTYPE]
    for number in range(r.randint(1, 6)):
        info = tarfile.TarInfo(member_name(r, number))
        info.type = r.choice(kinds)
        if info.type in (tarfile.SYMTYPE, tarfile.LNKTYPE):
            info.linkname = member_name(r, number + 100)
        if form == tarfile.PAX_FORMAT and r.random() < 0.5:
            info.pax_headers = {r.choice(["comment", "SCHILY.xattr.user.x", "size.x"]): "value"}
            info.mtime = r.choice([0, 1.25])
        info.size = r.choice([0, 1, 100, 512, 513, 1500]) if info.isreg() else 0
        try:
            data += info.tobuf(form, "utf-8", "surrogateescape")
        except ValueError:  # too long for ustar
            continue
        payload = bytes([r.randrange(1, 256)]) * info.size
        data += payload + b"\0" * (-info.size % BLOCK)
    return [data[at : at + BLOCK] for at in range(0, len(data), BLOCK)]


def is_header(block):
    return len(block) == BLOCK and block != b"\0" * BLOCK and make.checksummed(block) == block


def put(block, field, value):
    start, room = field
    value = value[:room]
    return block[:start] + value + b"\0" * (room - len(value)) + block[start + room :]


SIZES = [b"00000000000", b"00000000001", b"00000001000", b"       1000", b"1000 ", b"", b"0 1"]
SIZES += [b"77777777777", b"0000000100x", b"-0000000001", b"+0000000001", b" 7\0 7", b"00000000008"]
SIZES += [b"\x80" + b"\0" * 10, b"\x80" + b"\0" * 9 + b"\2\0", b"\xff" * 12, b"\x80" + b"\xff" * 11]
SIZES += [b"\0" * 12]
TYPES = [bytes([byte]) for byte in b"01234567xXgLKSMDVNAZ\0 \xff"]
NAMES = [b"/etc/x.bin", b"../x.bin", b"a/../../x.bin", b"a.bin\0hidden.jpg", b"\n.bin", b""]
NAMES += [b"dir.x/", b"\xff\xfe.bin", b"./a.bin", b"a//b.bin", b"x" * 100, b"x" * 99 + b"."]
NAMES += [b"..bin", b"a\\b.c"]
MAGICS = [b"ustar\x0000", b"ustar  \0", b"\0" * 8, b"ustar\0\0\0", b"ustar 00", b"USTAR\x0000"]
FIELDS = [(SIZE, SIZES), (TYPE, TYPES)] * 2 + [(NAME, NAMES), (PREFIX, NAMES), (LINK, NAMES)]
FIELDS += [(MAGIC, MAGICS), (MODE, SIZES), (TIME, SIZES), (OWNER, SIZES)]
# Changes to extended headers.
KEYS = [b"path", b"size"] * 2 + [b"linkpath", b"comment", b"GNU.sparse.name"]
VALUES = [b"p/q.bin", b"", b"100", b"1", b"0", b"-1", b"9" * 20, b"1.5", b"a\0b.bin"]


def change_field(r, blocks):
    """One field of a header, whose checksum is made right again."""
    headers = [at for at, block in enumerate(blocks) if is_header(block)]
    if not headers:
        return
    at = r.choice(headers)
    field, values = r.choice(FIELDS)
    blocks[at] = make.checksummed(put(blocks[at], field, r.choice(values)))


def change_checksum(r, blocks):
    headers = [at for at, block in enumerate(blocks) if is_header(block)]
    if headers:
        at = r.choice(headers)
        block = bytearray(blocks[at])
        signed = sum(byte - 256 if byte > 127 else byte for byte in put(block, CHECKSUM, b" " * 8))
        values = [b"%06o\0 " % (signed & 0o777777), b"%07o\0" % sum(put(block, CHECKSUM, b" " * 8))]
        values += [b"%6o\0 " % sum(put(block, CHECKSUM, b" " * 8)), b"\0" * 8, b" " * 8, b"0" * 8]
        blocks[at] = put(bytes(block), CHECKSUM, r.choice(values))


def pax(records, kind=tarfile.XHDTYPE):
    info = tarfile.TarInfo("PaxHeaders/x")
    info.type, info.size = kind, len(records)
    data = info.tobuf(tarfile.USTAR_FORMAT) + records + b"\0" * (-len(records) % BLOCK)
    return [data[at : at + BLOCK] for at in range(0, len(data), BLOCK)]


def record(key, value):
    length = len(key) + len(value) + 3
    while len(b"%d" % length) + len(key) + len(value) + 3 != length:
        length = len(b"%d" % length) + len(key) + len(value) + 3
    return b"%d %s=%s\n" % (length, key, value)


def insert_extended(r, blocks):
    """An extended header before some block, right or wrong."""
    records = b"".join(record(r.choice(KEYS), r.choice(VALUES)) for _ in range(r.randint(1, 3)))
    if r.random() < 0.4:
        at = r.randrange(len(records))
        records = r.choice(
            [
                records[:at] + bytes([r.randrange(256)]) + records[at + 1 :],
                records[:at],
                records + b"\0" * r.randint(1, 20),
                b"0" + records,
                records.replace(b"\n", b""),
            ]
        )
    kind = r.choice([tarfile.XHDTYPE] * 3 + [tarfile.XGLTYPE, b"X"])
    new = pax(records, kind)
    if r.random() < 0.3:
        long = r.choice([b"long.bin\0", b"l" * 300 + b".bin\0", b"no-end.bin", b"\0", b""])
        new = pax(long, r.choice([b"L", b"L", b"K"]))
    at = r.randrange(len(blocks) + 1)
    blocks[at:at] = new


def move_blocks(r, blocks):
    if not blocks:
        return
    a, b = sorted(r.randrange(len(blocks) + 1) for _ in range(2))
    b = min(b, a + 4)
    what = r.randrange(5)
    if what == 0:
        del blocks[a:b]
    elif what == 1:
        blocks[b:b] = blocks[a:b]
    elif what == 2:
        blocks[a:b] = reversed(blocks[a:b])
    elif what == 3:
        blocks[a:a] = [b"\0" * BLOCK] * r.randint(1, 3)
    else:
        blocks.extend([b"\0" * BLOCK] * r.randint(1, 3) + blocks_of(r))  # as cat does it


def flip(r, blocks):
    if blocks:
        at = r.randrange(len(blocks))
        block = bytearray(blocks[at])
        block[r.randrange(len(block))] ^= 1 << r.randrange(8)
        blocks[at] = bytes(block)


CHANGES = [change_field] * 5 + [insert_extended] * 3 + [move_blocks] * 3 + [flip, change_checksum]


def make_one(number):
    r = random.Random(f"{SEED}/{number}")
    blocks = blocks_of(r)
    for _ in range(r.randint(0, 3)):
        r.choice(CHANGES)(r, blocks)
    data = b"".join(blocks)
    end = r.random()
    if end < 0.85:
        data += END
    elif end < 0.95:
        data = (data + END)[: r.randrange(len(data) + len(END))]
    return data


# ---- listing ----------------------------------------------------------------------------------

# A listing: (name, size, offset or None) of each regular member; None: refused.


def by_stoker(path, engine):
    """The listing, or the error."""
    try:
        with stoker.Dataset(path, engine=engine) as dataset:
            rows = []
            for number in range(len(dataset)):
                sample = dataset.sample(number)
                for member in sample.members:
                    name = f"{sample.key}.{member.extension}"
                    rows.append((name, member.bytes, member.offset))
            return sorted(rows, key=lambda row: row[2])
    except stoker.Error as error:
        return error


def by_tarfile(path, **options):
    rows = []
    try:
        with tarfile.open(path, "r:", encoding="utf-8", errors="surrogateescape", **options) as tar:
            for info in tar:
                if info.isreg() and not info.issparse():
                    rows.append((info.name, info.size, info.offset_data))
    except (tarfile.TarError, ValueError, OSError, OverflowError):
        return None
    return rows


# GNU tar complains of these and lists the member; stoker does not look at owner, mode and time.
NOT_NEEDED = re.compile(
    r"where numeric (uid_t|gid_t|mode_t|time_t) value expected|out of (uid|gid|mode|time)_t range|"
    r"Ignoring unknown extended header keyword|implausibly old time stamp"
)


def by_gnu_tar(path, *options):
    words = ["tar", "--list", "--verbose", "--numeric-owner", "--utc", "--full-time"]
    words += ["--quoting-style=escape", "--absolute-names", *options, "--file", path]
    done = subprocess.run(words, capture_output=True, env={**os.environ, "LC_ALL": "C.UTF-8"})
    complaints = done.stderr.decode("utf-8", "replace").splitlines()[:-1]  # the last: "Exiting"
    if done.returncode and not all(NOT_NEEDED.search(line) for line in complaints):
        return None
    rows = []
    for line in done.stdout.split(b"\n"):
        parts = line.split(None, 5)
        if line[:1] in (b"-", b"C") and len(parts) == 6:
            name = parts[5].decode("unicode-escape").encode("latin-1")
            rows.append((name.decode("utf-8", "surrogateescape"), int(parts[2]), None))
    return rows


def as_samples(rows):
    """A listing after webdataset's own expressions, with names in the form that stoker returns."""
    kept = []
    for name, size, offset in rows:
        found = re.match(r"^((?:.*/|)[^.]+)[.]([^/]*)$", name)
        if found and not re.match(r"__[^/]*__($|/)", name):
            kept.append((f"{found[1]}.{found[2].lower()}", size, offset))
    return kept


def agrees(ours, theirs):
    theirs = None if theirs is None else as_samples(theirs)
    return theirs is not None and len(ours) == len(theirs) and all(
        a[:2] == b[:2] and b[2] in (None, a[2]) for a, b in zip(ours, theirs, strict=True)
    )


# ---- comparing --------------------------------------------------------------------------------


def has_a_place(error, path):
    """A refusal names the file, and the place in it or the sample."""
    if isinstance(error, stoker.EmptyError):
        return True
    return error.shard == str(path) and error.offset is not None and error.what and error.advice


def verdict(path, engine):
    """How the three stand to each other; a word that begins with "!" is a failure."""
    ours = by_stoker(path, engine)
    views = {
        "tarfile": lambda: by_tarfile(path),
        "GNU tar": lambda: by_gnu_tar(path),
        "tarfile, all archives": lambda: by_tarfile(path, ignore_zeros=True),
        "GNU tar, all archives": lambda: by_gnu_tar(path, "--ignore-zeros"),
    }
    if isinstance(ours, stoker.Error):
        return "refused" if has_a_place(ours, path) else f"!refused without a place: {ours}"
    for name, look in views.items():
        if agrees(ours, look()):
            return name
    seen = {name: look() for name, look in views.items()}
    return f"!stoker {ours}, but {seen}"


@pytest.mark.skipif(shutil.which("tar") is None, reason="no GNU tar")
def test_changed_tars(tmp_path, engine):
    outcomes, failures = collections.Counter(), []
    path = tmp_path / "changed.tar"
    for number in range(COUNT):
        path.write_bytes(make_one(number))
        outcome = verdict(path, engine)
        if outcome.startswith("!"):
            failures.append(f"STOKER_SEED={SEED}, number {number}: {outcome[1:]}")
        else:
            outcomes[outcome] += 1
    print(dict(outcomes))
    assert not failures, "\n".join(failures[:20])
    # Neither refusing all nor believing all would be a test.
    assert outcomes["refused"] > COUNT / 10 and outcomes["tarfile"] > COUNT / 4, outcomes


def test_the_tars_differ():
    """The generator makes what it promises: good tars and damaged ones, the same for the same
    number."""
    tars = [make_one(number) for number in range(50)]
    assert tars == [make_one(number) for number in range(50)]
    assert len(set(tars)) == 50
