"""Messages of the command for wrong input: what failed, where, and what to do."""

import os
import subprocess

import make
import pytest

COMMAND = os.environ.get("STOKER_COMMAND", "stoker")


@pytest.fixture(scope="module", name="folder")
def make_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wrong")
    make.tar(folder / "s.tar", [("0001.jpg", b"\xff\xd8"), ("0001.cls", b"1")])
    (folder / "empty").mkdir()
    (folder / "x.bin").write_bytes(bytes(101))
    (folder / "x.json").write_text('{"a":')
    (folder / "labels.txt").write_text("1\n2\n")
    return folder


# words, exit status, the line of the error, the line of the advice
ROWS = [
    ("cat s.tar 9999", 1, "no sample has this key: 's.tar' key '9999'", "'stoker ls PATH'"),
    ("cat s.tar 0001", 2, "the sample has several members: '0001'",
     "add one of its extensions to the key: jpg cls"),
    ("cat s.tar 0001.png", 1, "the sample has no such member: '0001.png'", ": jpg cls"),
    ("cat empty", 3, "cannot read a folder as a file: Is a directory: 'empty'",
     "name a file in the folder"),
    ("order s.tar --find zz", 1, "no sample has this key: 's.tar' key 'zz'", "'stoker ls PATH'"),
    ("order s.tar --at 9 --batch 1", 2, "order: there is no such step: '9'",
     "epoch 0 has 1 steps; --at counts from 0"),
    ("order s.tar --at 0 --rank 5 --batch 1", 2, "order: there is no such rank: '5'",
     "--world-size is 1; --rank counts from 0"),
    ("order s.tar --at x", 2, "order: not a number in range: 'x'", "--at takes a step"),
    ("order s.tar --labels none", 3,
     "order: cannot read the labels: No such file or directory: 'none'",
     "--labels takes a file with one label a line"),
    ("order s.tar --labels empty", 3, "order: cannot read the labels: Is a directory: 'empty'",
     "--labels takes a file"),
    ("order s.tar --labels labels.txt", 2, "order: not a label for each sample: 'labels.txt'",
     "there are 1 samples, and more lines"),
    ("order s.tar --verify --scenario x", 2, "order: not a scenario: 'x'", "--scenario takes"),
    ("order s.tar --curriculum x", 2, "order: not a curriculum: 'x'", "--curriculum takes"),
    ("order s.tar --diff foo=1", 2, "order: not a setting: 'foo=1'", "--diff takes options"),
    ("order s.tar --samples 5", 2, "order: PATH and --samples exclude each other", "use one"),
    ("order s.tar --mix-end stop", 2,
     "order: --mix-end, --mix-epoch and --single-source-steps need --mix", "add --mix with"),
    ("sample s.tar --subset label>9", 1, "no sample is chosen: 0 of 1 samples",
     "change the subset"),
    ("sample s.tar --subset label_in>1", 2, "the data set has no such column: 'label_in'",
     "columns are label, class"),
    ("sample s.tar --subset label", 2,
     "a comparison is missing in a subset: 'label' at 5: its end",
     "write it like: label in (3, 7)"),
    ("verify --keep-unverified s.tar", 2, "verify: --keep-unverified needs --repair",
     "add --repair"),
    ("prewarm s.tar --budget 1G", 2, "prewarm: --budget, --rate and --home-groups need --node",
     "--node 0/1 for one node"),
    ("index --seek-points=x s.tar", 2, "not a number in range: 'x'",
     "--seek-points takes bytes, at least 65536, with K, M, G or T"),
    ("ls https://:443/x.tar", 2, "the URL names no host: 'https://:443/x.tar'", "http://host/"),
    ("info x.bin", 2, "a raw token file does not say its dtype: 'x.bin': dtype", "--stored"),
    ("creds", 2, "creds: one URL is needed", "usage: stoker creds explain"),
    ("creds show s3://b", 2, "creds: unknown action: 'show'", "usage: stoker creds explain"),
    ("creds explain x", 2, "no store is known for this URL: 'x'", "use a URL of s3, gs"),
    ("ckpt", 2, "ckpt: no action given", "usage: stoker ckpt ls|verify"),
    ("cache", 2, "cache: no action given", "usage: stoker cache ls|stat"),
    ("ckpt ls empty", 1, "there are no steps: 'empty'", "the folder or prefix of the Checkpointer"),
    ("ckpt ls s3://", 2, "the URL names no bucket: 's3://'", "write s3://bucket"),
    ("ckpt rm empty --step 5", 3, "there is no such step: step 5 of 'empty'", "'stoker ckpt ls'"),
    ("ckpt inspect s.tar", 3, "the file is a tar archive, not a checkpoint: 's.tar'", "extract"),
    ("cp --files-from none . out", 3,
     "cannot read the list of names: No such file or directory: 'none'", "--files-from takes"),
    ("cp --files-from empty . out", 3, "cannot read the list of names: Is a directory: 'empty'",
     "--files-from takes"),
    ("clean s.tar", 3, "cannot list a folder: Not a directory: 's.tar'",
     "name a folder that exists"),
    ("fault-proxy --script empty", 3, "cannot read the script: Is a directory: 'empty'",
     "check the path"),
    ("fault-proxy --script x.json", 3, "the script is not JSON: 'x.json': line 1: ",
     "fault-proxy --help"),
    ("fault-proxy --rules {", 3, "the script is not JSON: '--rules': line 1: ",
     "fault-proxy --help"),
]  # fmt: skip


def run(words, folder, **options):
    return subprocess.run(
        [COMMAND, *words.split()], cwd=folder, capture_output=True, text=True, timeout=60,
        check=False, stdin=subprocess.DEVNULL, **options,
    )  # fmt: skip


@pytest.mark.parametrize("words, status, error, advice", ROWS, ids=[row[0] for row in ROWS])
def test_words(folder, words, status, error, advice):
    result = run(words, folder)
    assert result.returncode == status, result
    lines = result.stderr.splitlines()
    assert error in lines[0] and advice in lines[1], result.stderr


def test_help_of_help():
    texts = {
        (result.returncode, result.stdout)
        for result in (run(words, None) for words in ("help", "help help", "help --help", "--help"))
    }
    assert len(texts) == 1
    status, text = texts.pop()
    assert status == 0 and "usage: stoker COMMAND" in text


@pytest.mark.parametrize("words", ["ls PATH", "ckpt verify PATH", "ckpt inspect PATH", "cp PATH ."])
def test_a_file_without_permission(tmp_path, words):
    path = make.tar(tmp_path / "s.tar", [("0001.jpg", b"\xff\xd8")])
    path.chmod(0)
    options = {}
    if os.geteuid() == 0:
        for parent in path.parents:
            if str(parent).startswith("/tmp/"):
                parent.chmod(parent.stat().st_mode | 0o011)
        options["user"] = 65534
    try:
        result = run(words.replace("PATH", str(path)), "/tmp", **options)
    except PermissionError:
        pytest.skip("another user cannot run the command here")
    assert result.returncode == 3, result
    error, advice, *_ = result.stderr.splitlines()
    assert f"Permission denied: '{path}'" in error and "let this user read it" in advice
