"""Servers for tests, on this machine only: small ones of a test's own handler, and real ones:
nginx, OpenSSH, and Ceph's S3 gateway on one node.

Each ends with the process that started it, also when that is killed."""

from __future__ import annotations

import contextlib
import http.server
import os
import pathlib
import random
import shutil
import socket
import subprocess
import sys
import threading
import time
import uuid

START_SECONDS = 60
ACCESS, SECRET = "testaccess", "testsecret"


class Absent(Exception):
    """Why a server cannot run here."""


class Small(http.server.ThreadingHTTPServer):
    """Serves from threads of this process until it is closed. `seen` holds the notes of the
    handler; the test passes other settings as fields."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, handler, **fields: object) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.port = self.server_address[1]
        self.host = f"127.0.0.1:{self.port}"
        self.url = f"http://{self.host}"
        self.seen: list = []
        vars(self).update(fields)
        self.thread = threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def handle_error(self, request, client_address) -> None:
        """Ignores disconnected clients; prints other exceptions of a handler."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    def close(self) -> None:
        self.shutdown()
        self.server_close()
        self.thread.join(START_SECONDS)


class Handler(http.server.BaseHTTPRequestHandler):
    """A handler that sends complete answers and logs nothing."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def say(self, code, body=b"", **headers):
        """A '_' in a header's name is '-', unless it has one."""
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name if "-" in name else name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@contextlib.contextmanager
def serving(handler, **fields: object):
    server = Small(handler, **fields)
    try:
        yield server
    finally:
        server.close()


# Below the ports that the kernel assigns to clients (from 32,768 on): a connection of another test
# cannot take a server's port between this check and the server's bind.
PORTS = range(12_000, 32_000)


def free_port() -> int:
    """Chosen at random per process, so that parallel test processes do not choose the same
    ports."""
    while True:
        port = random.SystemRandom().choice(PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


def need(*programs: str) -> None:
    missing = [name for name in programs if not shutil.which(name, path=PATH)]
    if missing:
        raise Absent(f"no {', '.join(missing)}: scripts/setup --test installs them")


PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def spawn(log: pathlib.Path, *command: object) -> subprocess.Popen:
    """A server that ends with this process; its output goes to the file."""
    with log.open("wb") as out:
        return subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *map(str, command)], stdout=out,
                                stderr=out, stdin=subprocess.DEVNULL,
                                env={**os.environ, "PATH": PATH})


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def await_port(port: int, process: subprocess.Popen, log: pathlib.Path) -> None:
    until = time.monotonic() + START_SECONDS
    while not answers(port):
        if process.poll() is not None or time.monotonic() > until:
            raise RuntimeError(f"a server did not start: {log.read_text()[-2000:]}")
        time.sleep(0.02)


NGINX = """
{modules}
worker_processes 1;
daemon off;
master_process off;
pid nginx.pid;
error_log error.log;
events {{ worker_connections 2048; }}
http {{
    access_log access.log;
    client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fcgi;
    uwsgi_temp_path uwsgi; scgi_temp_path scgi;
    sendfile on;
    keepalive_requests 1000000;
    server {{
        listen 127.0.0.1:{port};
        {tls}
        root {data};
        location /noranges/ {{ alias {data}/; max_ranges 0; }}
        location /moved/ {{ rewrite ^/moved/(.*)$ /$1 redirect; }}
        location /secret/ {{ return 403; }}
        {slow}
    }}
    {gate}
}}
"""
# 30 to 50 ms to the first byte, 80 MB/s per connection: a distant object store.
SLOW = """
        location /slow/ {{
            alias {data}/;
            limit_rate 80m;
            access_by_lua_block {{ ngx.sleep(0.030 + math.random() * 0.02) }}
        }}
        location ~ ^/slow/folder(/[^/.]+)?$ {{ return 404; }}
        location = /slow/ {{
            access_by_lua_block {{
                ngx.sleep(0.040)
                ngx.exec("/lists/" .. ngx.unescape_uri(ngx.var.arg_prefix or ""):gsub("/", "_"))
            }}
        }}"""
# The same before another server, whose signatures hold: Host stays as the client wrote it.
GATE = """
    server {{
        listen 127.0.0.1:{port};
        client_max_body_size 0;
        location / {{
            proxy_pass {url};
            proxy_http_version 1.1;
            proxy_set_header Host $http_host;
            proxy_set_header Connection "";
            limit_rate 80m;
            access_by_lua_block {{ ngx.sleep(0.030 + math.random() * 0.02) }}
        }}
    }}"""
LUA = [pathlib.Path("/usr/lib/nginx/modules") / name
       for name in ("ndk_http_module.so", "ngx_http_lua_module.so")]


class Nginx:
    """The files below `data`: at / normally, at /noranges/ from a server without ranges, at /moved/
    behind a redirect, at /slow/ with latency and a limited rate (where nginx has Lua). /slow is
    also a bucket in path style whose listings are files: lists/a_b_ is the listing of prefix a/b/
    (see list_folder). before: the URL of a server; far_url is that server with the same latency."""

    def __init__(self, home: pathlib.Path, data: pathlib.Path, tls: bool = False,
                 before: str | None = None) -> None:
        need("nginx", "setpriv")
        self.has_slow = all(path.exists() for path in LUA)
        self.port = free_port()
        self.certificate = home / "certificate.pem"
        if tls:
            tls_port = free_port()
            self.tls_url = f"https://localhost:{tls_port}"
            subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days",
                            "2", "-subj", "/CN=localhost", "-addext",
                            "subjectAltName=DNS:localhost", "-keyout", home / "key.pem", "-out",
                            self.certificate], check=True, capture_output=True)
        self.url = f"http://127.0.0.1:{self.port}"
        if before and not self.has_slow:
            raise Absent("no Lua in nginx: scripts/setup --test installs it")
        far_port = free_port()
        self.far_url = f"http://127.0.0.1:{far_port}"
        self.log = home / "access.log"
        (home / "nginx.conf").write_text(NGINX.format(
            modules="\n".join(f"load_module {path};" for path in LUA) if self.has_slow else "",
            port=self.port, data=data,
            tls=f"listen 127.0.0.1:{tls_port} ssl; ssl_certificate certificate.pem; "
                "ssl_certificate_key key.pem;" if tls else "",
            slow=SLOW.format(data=data) if self.has_slow else "",
            gate=GATE.format(port=far_port, url=before) if before else ""))
        self.process = spawn(home / "out.log", "nginx", "-p", home, "-c", "nginx.conf",
                             *(("-g", "user root;") if os.geteuid() == 0 else ()))
        await_port(self.port, self.process, home / "out.log")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def list_folder(data: pathlib.Path, lists: pathlib.Path, name: str) -> None:
    """S3's lists of data/name and its folders, each of one page, with nginx's ETags."""
    root = data / name
    for folder in [root, *sorted(path for path in root.iterdir() if path.is_dir())]:
        prefix = f"{folder.relative_to(data)}/"
        items = []
        for path in sorted(folder.iterdir()):
            about = path.stat()
            items.append(
                f"<CommonPrefixes><Prefix>{prefix}{path.name}/</Prefix></CommonPrefixes>"
                if path.is_dir() else
                f"<Contents><Key>{prefix}{path.name}</Key><Size>{about.st_size}</Size><ETag>&quot;"
                f"{int(about.st_mtime):x}-{about.st_size:x}&quot;</ETag></Contents>")
        (lists / prefix.replace("/", "_")).write_text(
            "<ListBucketResult><IsTruncated>false</IsTruncated>" + "".join(items)
            + "</ListBucketResult>")


CEPH = """
[global]
fsid = {fsid}
mon host = [v2:127.0.0.1:{mon_port}]
run dir = {home}/run
admin socket = {home}/run/$name.asok
log file = {home}/log/$name.log
keyring = {home}/keyring
public addr = 127.0.0.1
cluster addr = 127.0.0.1
osd pool default size = 1
osd pool default min size = 1
osd crush chooseleaf type = 0
mon allow pool size one = true
mon max pg per osd = 1000
osd pool default pg num = 4
osd pool default pg autoscale mode = off
osd objectstore = memstore
memstore device bytes = {bytes}
osd data = {home}/osd
mon data = {home}/mon
[client.rgw]
rgw frontends = beast endpoint=127.0.0.1:{port}
rgw thread pool size = 64
rgw crypt require ssl = false
rgw gc obj min wait = 30
rgw gc processor period = 30
"""
CAPS = {
    "mon.": ("mon", "allow *"),
    "client.admin": ("mon", "allow *", "osd", "allow *", "mgr", "allow *"),
    "osd.0": ("mon", "allow profile osd", "osd", "allow *"),
    "client.rgw": ("mon", "allow rw", "osd", "allow rwx"),
}


class Ceph:
    """An S3 gateway with its monitor and one object daemon in memory: some 5 s to start."""

    def __init__(self, home: pathlib.Path, memory: int = 4 << 30) -> None:
        need("ceph-mon", "ceph-osd", "radosgw", "radosgw-admin", "ceph", "setpriv")
        if os.geteuid() != 0:
            raise Absent("Ceph's daemons want to be started as root")
        self.home, self.conf = home, home / "ceph.conf"
        self.port, fsid = free_port(), uuid.uuid4()
        mon_port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        for name in ("run", "log", "osd"):
            (home / name).mkdir()
        self.conf.write_text(CEPH.format(fsid=fsid, mon_port=mon_port, home=home, port=self.port,
                                         bytes=memory))
        self.processes: list[subprocess.Popen] = []
        try:
            self._start(fsid, mon_port)
        except BaseException:
            self.close()
            raise

    def _run(self, *command: object) -> str:
        return subprocess.run([*map(str, command)], check=True, capture_output=True, text=True,
                              timeout=START_SECONDS,
                              env={**os.environ, "CEPH_CONF": str(self.conf)}).stdout

    def _serve(self, name: str, *command: object) -> subprocess.Popen:
        self.processes.append(spawn(self.home / "log" / f"{name}.out", *command, "-c", self.conf,
                                    "-f"))
        return self.processes[-1]

    def _start(self, fsid: uuid.UUID, mon_port: int) -> None:
        home, keyring, name = self.home, self.home / "keyring", uuid.uuid4()
        for number, (who, caps) in enumerate(CAPS.items()):
            pairs = [("--cap", *caps[i:i + 2]) for i in range(0, len(caps), 2)]
            self._run("ceph-authtool", keyring, *(["--create-keyring"] if number == 0 else []),
                      "--gen-key", "-n", who, *sum(pairs, ()))
        self._run("monmaptool", "--create", "--fsid", fsid, "--addv", "a",
                  f"[v2:127.0.0.1:{mon_port}]", home / "monmap")
        self._run("ceph-mon", "-c", self.conf, "--mkfs", "-i", "a", "--monmap", home / "monmap",
                  "--keyring", keyring)
        mon = self._serve("mon", "ceph-mon", "-i", "a")
        await_port(mon_port, mon, home / "log/mon.out")
        self._run("ceph", "--connect-timeout", START_SECONDS, "auth", "import", "-i", keyring)
        self._run("ceph", "osd", "new", name)
        self._run("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", name, "--keyring", keyring)
        self._serve("osd", "ceph-osd", "-i", "0")
        gate = self._serve("rgw", "radosgw", "-n", "client.rgw")
        self._run("radosgw-admin", "user", "create", "--uid=test", "--display-name=test",
                  f"--access-key={ACCESS}", f"--secret={SECRET}")
        await_port(self.port, gate, home / "log/rgw.out")

    def environment(self) -> dict[str, str]:
        """The environment that a client needs, without any configuration of this machine."""
        return {"AWS_ENDPOINT_URL": self.url, "AWS_ACCESS_KEY_ID": ACCESS,
                "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1",
                "AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
                "AWS_EC2_METADATA_DISABLED": "true"}

    def client(self):
        """boto3's."""
        import boto3
        from botocore.config import Config

        return boto3.client("s3", endpoint_url=self.url, aws_access_key_id=ACCESS,
                            aws_secret_access_key=SECRET, region_name="us-east-1",
                            config=Config(s3={"addressing_style": "path"}))

    def collect(self) -> None:
        """Frees the memory of removed objects at once; otherwise Ceph does it within a minute."""
        self._run("radosgw-admin", "gc", "process", "--include-all")

    def close(self) -> None:
        for process in reversed(self.processes):
            process.kill()
            process.wait()


SSHD = """
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
PidFile none
AuthorizedKeysFile {folder}/key.pub
StrictModes no
UsePAM no
PermitRootLogin yes
PasswordAuthentication no
MaxStartups 100
MaxSessions 100
Subsystem sftp internal-sftp
"""


class Sftp:
    """OpenSSH, for this user's key alone."""

    def __init__(self, folder: pathlib.Path) -> None:
        need("sshd", "ssh-keygen")
        self.folder, self.port = folder, free_port()
        for name in ("host", "key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name],
                           check=True)
        (folder / "sshd.conf").write_text(SSHD.format(port=self.port, folder=folder))
        if os.geteuid() == 0:
            os.makedirs("/run/sshd", mode=0o755, exist_ok=True)  # which sshd locks itself in
        log = folder / "sshd.log"
        self.process = spawn(log, shutil.which("sshd", path=PATH), "-D", "-e", "-f",
                             folder / "sshd.conf")
        await_port(self.port, self.process, log)

    @property
    def url(self) -> str:
        import getpass

        return f"sftp://{getpass.getuser()}@127.0.0.1:{self.port}"

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
