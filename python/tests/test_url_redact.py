"""URLs that contain secrets, wherever the command and the package print or write them.

Goal: no output, exception or file contains the password, the token or the signature of a URL; an
index fits a URL that was signed again; two objects that differ only by a parameter stay two.
Method: a web server of this test that serves its files only to requests with the password, or with
a signature that is valid at the time; all output, and each file that was written, is searched for
the secrets.
"""

import base64
import io
import json
import os
import re
import subprocess
import tarfile
import urllib.parse
import zipfile

import pytest
import servers
from test_order import command

import stoker

SIGNATURE = "c4n4ry0signature"
PASSWORD = "p@ss:c4n4ry0!word"
TOKEN = "c4n4ry0token"
SECRETS = ("c4n4ry0", urllib.parse.quote(PASSWORD, safe=""), PASSWORD)


def tar(names):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as file:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = 2
            file.addfile(member, io.BytesIO(b"7\n"))
    return data.getvalue()


class Handler(servers.Handler):
    def do_HEAD(self):
        url = urllib.parse.urlsplit(self.path)
        query = urllib.parse.parse_qs(url.query)
        login = base64.b64decode(self.headers.get("Authorization", "").partition(" ")[2]).decode()
        good = login in (f"me:{PASSWORD}", f"{TOKEN}:") or query.get("X-Amz-Signature") == [
            self.server.signature]
        body = self.server.files.get(url.path + "".join(query.get("id", [])))
        body = body if good or body is None else b"no"
        first, code = 0, 200 if good else 403
        if body is None:
            code, body = 404, b""
        elif good and (match := re.match(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))):
            first, last = int(match[1]), min(int(match[2]), len(body) - 1)
            code = 206
        more = {}
        if code == 206:
            more = {"Content-Range": f"bytes {first}-{last}/{len(body)}"}
            body = body[first : last + 1]
        self.say(code, body, ETag='"e"', **more)

    do_GET = do_HEAD


@pytest.fixture
def web():
    files = {"/d/0.tar": tar(["a.cls", "b.cls"]), "/d/1.tar": tar(["c.cls"]),
             "/one1": tar(["x.cls"]), "/one2": tar(["y.cls", "z.cls"])}
    with servers.serving(Handler, signature=SIGNATURE, files=files) as server:
        yield server


def signed(web, path, signature=SIGNATURE, more=""):
    return (f"http://{web.host}{path}?{more}X-Amz-Credential={TOKEN}%2Fx&X-Amz-Signature="
            f"{signature}&X-Amz-Expires=600")


def ways(web, path):
    return {
        "signed": signed(web, path),
        "password": f"http://me:{urllib.parse.quote(PASSWORD, safe='')}@{web.host}{path}",
        "raw password": f"http://me:{PASSWORD}@{web.host}{path}",
        "token": f"http://{TOKEN}@{web.host}{path}",
    }


def clean(*texts):
    for text in texts:
        data = text if isinstance(text, bytes) else str(text).encode()
        for secret in SECRETS:
            assert secret.encode() not in data, data[:4000]


def run(folder, *words, status=0, **variables):
    done = subprocess.run(
        [command(), *words], capture_output=True, timeout=120, cwd=folder, check=False,
        env={**os.environ, "HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache"),
             **variables})
    clean(done.stdout, done.stderr)
    assert done.returncode == status, done
    return done.stdout.decode()


def written(folder):
    for root, _, names in os.walk(folder):
        for name in names:
            clean(name)
            with open(os.path.join(root, name), "rb") as file:
                clean(file.read())


WAYS = ["signed", "password", "raw password", "token"]


@pytest.mark.parametrize("way", WAYS)
def test_no_command_shows_it(web, tmp_path, way):
    url = ways(web, "/d/{0,1}.tar")[way]
    one = ways(web, "/d/0.tar")[way]
    assert len(run(tmp_path, "ls", "--json", url).splitlines()) >= 3
    assert web.host in run(tmp_path, "ls", "--shards", "--json", url)
    run(tmp_path, "index", "--json", url, "--out", "x.index")
    run(tmp_path, "info", "--json", url)
    run(tmp_path, "verify", "--json", url)
    run(tmp_path, "diff", "--json", url, url)
    run(tmp_path, "sample", "--json", url, "--subset", "size > 0")
    run(tmp_path, "stat", "--json", one)
    run(tmp_path, "cp", "--json", one, "here.tar")
    assert (tmp_path / "here.tar").read_bytes() == web.files["/d/0.tar"]
    (tmp_path / "all").mkdir()
    run(tmp_path, "cp", "--json", url, "all/")
    assert (tmp_path / "all" / "1.tar").read_bytes() == web.files["/d/1.tar"]
    run(tmp_path, "creds", "explain", "--json", one)
    run(tmp_path, "bench", "store", "--json", one, "--seconds", "0.1", "--sizes", "1K",
        "--concurrency", "1", "--plot", "page.html")
    run(tmp_path, "pack", url, "packed")
    written(tmp_path)


@pytest.mark.parametrize("way", WAYS)
def test_no_refusal_shows_it(web, tmp_path, way):
    gone = ways(web, "/gone.tar")[way]
    for words in (["ls", gone], ["ls", "--files", gone], ["cp", gone, "x"], ["stat", gone],
                  ["verify", gone], ["prewarm", gone], ["index", gone, "--out", "x"],
                  ["cat", gone], ["ls", f"--index={gone}", gone], ["cp", "x", gone],
                  ["rm", "--yes", gone], ["sync", gone, gone], ["bench", gone],
                  ["ls", ways(web, "/gone")["password"].replace("http", "ftp", 1)],
                  ["ls", gone.replace("/gone", "/{gone")]):
        done = subprocess.run([command(), *words], capture_output=True, timeout=120, cwd=tmp_path,
                              check=False, env={**os.environ, "HOME": str(tmp_path)})
        assert done.returncode in (1, 2, 3), done
        clean(done.stdout, done.stderr)
    with pytest.raises(Exception) as caught:
        stoker.Loader(gone, batch_size=1)
    clean(caught.value, repr(caught.value), vars(caught.value))
    written(tmp_path)


def test_signed_anew(web, tmp_path):
    """The index fits, and no header is read again; a request with the old signature is refused."""
    out = str(tmp_path / "x.index")
    run(tmp_path, "index", signed(web, "/d/{0,1}.tar"), "--out", out)
    old, web.signature = web.signature, "another"
    with pytest.raises(Exception) as caught:
        stoker.Dataset(signed(web, "/d/{0,1}.tar", old), index=out)
    clean(caught.value)
    anew = signed(web, "/d/{0,1}.tar", "another")
    with stoker.Dataset(anew, index=out) as dataset:
        assert len(dataset) == 3 and dataset.shards_indexed == 2, dataset.index_note


def test_objects_of_one_path(web, tmp_path):
    urls = [signed(web, "/one", more=f"id={number}&") for number in (1, 2)]
    with stoker.Dataset(urls) as dataset:
        assert len(dataset) == 3
    listed = [json.loads(line) for line in run(tmp_path, "ls", "--json", *urls).splitlines()]
    assert [row["key"] for row in listed if "key" in row] == ["x", "y", "z"]


def test_unclear_logins(web, tmp_path):
    """A password with a raw '/' could be a host with a path: no request is sent."""
    for raw in "/?#":
        url = f"http://me:c4n4ry0{raw}c4n4ry0@{web.host}/d/0.tar"
        done = subprocess.run([command(), "ls", url], capture_output=True, check=False, timeout=60)
        assert done.returncode == 2, done
        assert b"%2F" in done.stderr
        clean(done.stdout, done.stderr)


def test_a_sas_behind_az(tmp_path):
    """It is not part of the blob's name, and not dropped silently: it is refused, with what to
    do."""
    sas = f"sv=2024-11-04&se=2030-01-01T00%3A00%3A00Z&sr=c&sp=rl&sig={SIGNATURE}%3D"
    refused = "AZURE_STORAGE_SAS_TOKEN"
    account = {**os.environ, "AZURE_STORAGE_ACCOUNT": "me", "HOME": str(tmp_path),
               "AZURE_STORAGE_BLOB_ENDPOINT": "http://127.0.0.1:1/me", "AZURE_STORAGE_KEY": "a2V5"}
    for url in (f"az://c/a.tar?{sas}", f"az://c?{sas}", f"az://c/*.tar?{sas}",
                f"az://c/{{0..3}}.tar?{sas}"):
        for words in (["ls", url], ["ls", "--files", url], ["cp", url, "x"], ["cp", "-r", url, "x"],
                      ["cp", command(), url], ["cat", url], ["stat", url], ["rm", "--yes", url],
                      ["verify", url]):
            done = subprocess.run([command(), *words], capture_output=True, timeout=60, text=True,
                                  cwd=tmp_path, check=False, env=account)
            assert done.returncode in (1, 2, 3), done
            assert refused in done.stderr + done.stdout, (words, done)
            clean(done.stdout, done.stderr)
    with pytest.raises(stoker.Error, match=refused) as caught:
        stoker.Loader(f"az://c/a.tar?{sas}", batch_size=1)
    clean(caught.value, repr(caught.value))
    written(tmp_path)


def test_fault_proxy(web):
    """Parameters that it does not use are not shown either."""
    done = subprocess.run([command(), "fault-proxy", "--to", ways(web, "")["password"]],
                          capture_output=True, timeout=60, check=False)
    assert done.returncode == 3 and b"not http://HOST:PORT" in done.stderr
    clean(done.stderr, done.stdout)


def zipped(files):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, body in files.items():
            archive.writestr(name, body)
    return data.getvalue()


def test_chains(web):
    """fsspec gets the real URL, and its error is shown without the secret."""
    pytest.importorskip("aiohttp")
    web.files["/a.zip"] = zipped({"d/0#1.tar": tar(["u.cls"]), "d/1.tar": tar(["v.cls"])})
    more = "v=" + 20 * "1" + "&"
    for url, keys in ((f"simplecache::{signed(web, '/d/0.tar', more=more)}", 2),
                      (f"simplecache::{signed(web, '/d/{0,1}.tar')}", 3),
                      (f"simplecache::{ways(web, '/d/1.tar')['password']}", 1),
                      (f"zip://d/1.tar::{signed(web, '/a.zip', more=more)}", 1),
                      (f"zip://d/0#1.tar::{signed(web, '/a.zip')}", 1),
                      (f"zip://d::{signed(web, '/a.zip')}", 2)):
        with stoker.Dataset(url) as dataset:
            assert len(dataset) == keys, url
        # Another URL: fsspec may have cached the directory of this one.
        refused = url.replace(SIGNATURE, f"{SIGNATURE}0").replace("me:", "you:x")
        with pytest.raises(Exception) as caught:
            stoker.Dataset(refused.replace("simplecache", "filecache"))
        clean(caught.value, repr(caught.value), vars(caught.value))


def test_tokens_and_mixes(web):
    web.files["/t.bin"] = bytes(range(64))
    for url in ways(web, "/t.bin").values():
        tokens = stoker.Tokens(url, stored="uint16")
        assert len(tokens) == 32
        clean(repr(tokens), repr(stoker.Source(url)))
        with pytest.raises(stoker.ArgumentError) as caught:
            stoker.Mix(url)
        clean(caught.value)


def test_fsspec(web):
    pytest.importorskip("fsspec")
    from stoker.fsspec_filesystem import StokerFileSystem

    system = StokerFileSystem(skip_instance_cache=True)
    for url in ways(web, "/d/0.tar").values():
        path = url.replace("://", "/", 1)
        info = system.info(path)
        clean(json.dumps(info))
        assert system.cat_file(path) == system.cat_file(info["name"]) == web.files["/d/0.tar"]
        with system.open(path) as file:
            clean(repr(file), str(file))
        with pytest.raises(FileNotFoundError) as caught:
            system.info(path.replace("0.tar", "gone"))
        clean(caught.value)
    assert stoker.stat(url).bytes == len(web.files["/d/0.tar"])


PROXIES = {  # libcurl cannot parse the first ones, and prints a URL that it cannot parse
    "raw #": "http://user:c4n4ry0#proxy@127.0.0.1:1", "raw /": "http://user:c4n4ry0/x@127.0.0.1:1",
    "raw ?": "http://user:c4n4ry0?x@127.0.0.1:1", "port": "http://user:c4n4ry0@127.0.0.1:99999",
    "scheme": "ftp://user:c4n4ry0@127.0.0.1:1", "no scheme": "user:c4n4ry0#x@127.0.0.1:1",
    "no port": "http://user:c4n4ry0@nowhere.invalid", "refused": "http://user:c4n4ry0@127.0.0.1:1",
    "encoded": "http://user:c4n4ry0%23@nowhere.invalid:1", "socks": "socks5h://user:c4n4ry0@h:0x",
    "spaces": "http://user:c4n4ry0 x@127.0.0.1:1", "brackets": "http://user:c4n4ry0@[::1",
    "name": "http://c4n4ry0@127.0.0.1:99999"}


@pytest.mark.parametrize("form", PROXIES)
@pytest.mark.parametrize("name", ["HTTPS_PROXY", "ALL_PROXY", "http_proxy"])
def test_proxies(tmp_path, monkeypatch, name, form):
    """A proxy's login is in no output, whatever libcurl prints; and the proxy is named."""
    for variable in [*os.environ]:
        if variable.lower().endswith("_proxy"):
            monkeypatch.delenv(variable)
    scheme = "http" if name == "http_proxy" else "https"
    for variable, value in {name: PROXIES[form], "AWS_ACCESS_KEY_ID": "a", "AWS_REGION": "x",
                            "AWS_SECRET_ACCESS_KEY": "b", "NO_COLOR": "1",
                            "AWS_ENDPOINT_URL": f"{scheme}://storage.invalid"}.items():
        monkeypatch.setenv(variable, value)
    for words in (["ls", "s3://bucket/x"], ["cp", f"{scheme}://h.invalid/x", tmp_path / "x"],
                  ["creds", "explain", "s3://bucket/x", "--json"]):
        done = subprocess.run([command(), *map(str, words), *(
            ["--read-timeout", "1"] if words[0] != "creds" else [])], capture_output=True,
            text=True, timeout=60)
        text = done.stdout + done.stderr
        assert "c4n4ry0" not in text, text
        if words[0] != "creds":
            assert done.returncode != 0, text
    with stoker.Engine(threads=1, read_timeout=1, process_sharing=False) as engine:
        with pytest.raises(Exception) as why:
            stoker.cat(f"{scheme}://h.invalid/x", engine=engine)
    assert "c4n4ry0" not in str(why.value) + repr(why.value)
