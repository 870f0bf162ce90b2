"""Object stores on this machine, for tests: real servers, and a proxy that loses answers."""

from __future__ import annotations

import base64
import ctypes
import hashlib
import hmac
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import obstore
import pytest
from obstore.exceptions import BaseError

from caravanserai_core.stores._objects_address import connect, parse_address

BUCKET = "runs"
KEYS = {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": "tests-secret"}
_ACCOUNT = "tests"
_ACCOUNT_KEY = base64.b64encode(b"k" * 64).decode()


class Server(NamedTuple):
    """A server that runs.

    Attributes:
        scheme: how its addresses begin.
        endpoint: its URL.
    """

    scheme: str
    endpoint: str

    def url(self, prefix: str, endpoint: str | None = None, **options: object) -> str:
        """Return the address of a store below a prefix; `endpoint` is that of a proxy."""
        given = {"endpoint": endpoint or self.endpoint, **options}
        if self.scheme == "s3":
            given["region"] = "us-east-1"
        query = "&".join(f"{name}={quote(str(value), safe=':/')}" for name, value in given.items())
        return f"{self.scheme}://{BUCKET}/{quote(prefix)}?{query}"


def program(name: str, variable: str | None = None, *, needed: bool = True) -> str:
    """Return the path of a server's program; skip the test where it is not installed."""
    found = os.environ.get(variable or "") or shutil.which(name)
    beside = Path(sys.executable).with_name(name)
    if not found and beside.exists():
        found = str(beside)
    if found:
        return found
    if needed and os.environ.get("CI") == "true":
        pytest.fail(f"{name} is not installed, and has to be here")
    pytest.skip(f"{name} is not installed")


def free_ports(count: int) -> list[int]:
    """Return ports that nothing listens on."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


@contextmanager
def running(
    command: list[str], folder: Path, ready: Callable[[], bool], **environment: str
) -> Iterator[None]:
    """Run a server until the block ends."""
    process = _started(command, folder, ready, **environment)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _started(
    command: list[str], folder: Path, ready: Callable[[], bool], **environment: str
) -> subprocess.Popen[bytes]:
    """Start a server and wait until it is ready."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "log.txt").open("ab") as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdout=log,
            stderr=log,
            env={**os.environ, **environment},
            preexec_fn=_ends_with_its_parent if sys.platform == "linux" else None,
        )
    end = time.monotonic() + 60
    while not ready():
        if process.poll() is not None or time.monotonic() > end:
            process.kill()
            process.wait()
            text = (folder / "log.txt").read_text(errors="replace")[-2000:]
            pytest.fail(f"{command[0]} did not start:\n{text}")
        time.sleep(0.1)
    return process


def _ends_with_its_parent() -> None:
    """Let the kernel end the server where the tests are killed: they cannot do it then."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def answers(url: str) -> Callable[[], bool]:
    """Return what says whether a server answers there at all."""

    def ready() -> bool:
        try:
            urllib.request.urlopen(url, timeout=2).close()
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False
        return True

    return ready


def makes_bucket(endpoint: str) -> Callable[[], bool]:
    """Return what makes the bucket on a server that asks for no signature."""

    def ready() -> bool:
        request = urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT")
        try:
            urllib.request.urlopen(request, timeout=5).close()
        except urllib.error.HTTPError as error:
            return error.code == 409
        except OSError:
            return False
        return True

    return ready


@contextmanager
def seaweedfs(folder: Path) -> Iterator[Server]:
    """Run SeaweedFS: a real object store, which makes a bucket with its first object."""
    server, command = _seaweedfs(folder)
    with running(command, folder, lambda: _serves(server)):
        yield server


@contextmanager
def crashing_seaweedfs(folder: Path) -> Iterator[tuple[Server, Callable[[], None]]]:
    """Run SeaweedFS; the second that this gives kills it, and starts it again on its data."""
    server, command = _seaweedfs(folder)
    running = [_started(command, folder, lambda: _serves(server))]

    def crash() -> None:
        running[0].kill()
        running[0].wait()
        running[0] = _started(command, folder, lambda: _serves(server))

    try:
        yield server, crash
    finally:
        running[0].kill()
        running[0].wait()


def _seaweedfs(folder: Path) -> tuple[Server, list[str]]:
    """Prepare a folder; return the server that will be there, and what starts it."""
    weed = program("weed")
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "s3.json"
    key = {"accessKey": KEYS["AWS_ACCESS_KEY_ID"], "secretKey": KEYS["AWS_SECRET_ACCESS_KEY"]}
    actions = ["Admin", "Read", "Write", "List", "Tagging"]
    identity = {"name": "tests", "credentials": [key], "actions": actions}
    config.write_text(json.dumps({"identities": [identity]}))
    (folder / "data").mkdir()
    master, volume, filer, s3, *grpc = free_ports(8)
    command = [weed, f"-logdir={folder}", "server", f"-dir={folder / 'data'}", "-ip=127.0.0.1"]
    command += ["-ip.bind=127.0.0.1", "-volume.max=50", "-master.volumeSizeLimitMB=64"]
    command += [f"-master.port={master}", f"-master.port.grpc={grpc[0]}"]
    command += [f"-volume.port={volume}", f"-volume.port.grpc={grpc[1]}"]
    command += ["-filer", f"-filer.port={filer}", f"-filer.port.grpc={grpc[2]}"]
    command += ["-s3", f"-s3.port={s3}", f"-s3.port.grpc={grpc[3]}", f"-s3.config={config}"]
    command += ["-s3.port.iceberg=0", "-s3.port.lance=0"]
    return Server("s3", f"http://127.0.0.1:{s3}"), command


def _serves(server: Server) -> bool:
    return answers(server.endpoint)() and _takes_an_object(server)


def _takes_an_object(server: Server) -> bool:
    address = parse_address(server.url("ready"))
    try:
        obstore.put(connect(address, 10), "ready", b"yes")
    except BaseError:
        return False
    return True


@contextmanager
def moto(folder: Path) -> Iterator[Server]:
    """Run moto's server: S3 as a Python program."""
    (port,) = free_ports(1)
    endpoint = f"http://127.0.0.1:{port}"
    command = [program("moto_server"), "-H", "127.0.0.1", "-p", str(port)]
    with running(command, folder, makes_bucket(endpoint)):
        yield Server("s3", endpoint)


@contextmanager
def rclone(folder: Path) -> Iterator[Server]:
    """Run `rclone serve s3`, which ignores conditions: it must be refused."""
    (port,) = free_ports(1)
    endpoint = f"http://127.0.0.1:{port}"
    (folder / "data" / BUCKET).mkdir(parents=True)
    command = [program("rclone"), "serve", "s3", "--addr", f"127.0.0.1:{port}"]
    command += ["--config", str(folder / "none.conf"), "--cache-dir", str(folder / "cache")]
    command += ["--auth-key", ",".join(KEYS.values()), str(folder / "data")]
    with running(command, folder, answers(endpoint)):
        yield Server("s3", endpoint)


@contextmanager
def azurite(folder: Path) -> Iterator[Server]:
    """Run Azurite, Microsoft's own emulator of Azure Blob Storage."""
    node = shutil.which("node")
    azurite = program("azurite", "AZURITE_BIN", needed=node is not None)
    (port,) = free_ports(1)
    folder.mkdir(parents=True, exist_ok=True)
    command = [azurite.replace("azurite-blob", "azurite") + "-blob"]
    if not Path(command[0]).exists():
        command = [azurite]
    command += ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--silent"]
    command += ["--skipApiVersionCheck", "--disableTelemetry", "--location", str(folder)]
    endpoint = f"http://127.0.0.1:{port}/{_ACCOUNT}"
    server = Server("az", endpoint)
    accounts = f"{_ACCOUNT}:{_ACCOUNT_KEY}"
    with running(command, folder, lambda: _makes_container(port), AZURITE_ACCOUNTS=accounts):
        yield server


AZURE_KEYS = {
    "AZURE_STORAGE_ACCOUNT_NAME": _ACCOUNT,
    "AZURE_STORAGE_ACCOUNT_KEY": _ACCOUNT_KEY,
}


def _makes_container(port: int) -> bool:
    """Make the container, signed with the account's key."""
    path = f"/{_ACCOUNT}/{BUCKET}"
    date = formatdate(usegmt=True)
    headers = f"x-ms-date:{date}\nx-ms-version:2023-11-03\n"
    text = "PUT" + "\n" * 12 + headers + f"/{_ACCOUNT}{path}\nrestype:container"
    digest = hmac.digest(base64.b64decode(_ACCOUNT_KEY), text.encode(), hashlib.sha256)
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}?restype=container",
        method="PUT",
        headers={
            "x-ms-date": date,
            "x-ms-version": "2023-11-03",
            "Authorization": f"SharedKey {_ACCOUNT}:{base64.b64encode(digest).decode()}",
        },
    )
    try:
        urllib.request.urlopen(request, timeout=5).close()
    except urllib.error.HTTPError as error:
        if error.code == 409:
            return True
        raise
    except OSError:
        return False
    return True


class Seen(NamedTuple):
    """A request that went through the proxy.

    Attributes:
        method: GET, HEAD, PUT, …
        path: of the object, without a query.
        size: bytes of the answer's body.
    """

    method: str
    path: str
    size: int


class Proxy:
    """Stands before a server: counts requests, and loses or falsifies answers.

    Attributes:
        seen: the requests.
        fault: asked for each request; returns None, or what goes wrong with it: `drop` (it is
            done, and the answer is lost), `500 after` (done, and answered by 500), `500` and
            `409` (answered so, and not done).
    """

    def __init__(self, server: Server) -> None:
        self.seen: list[Seen] = []
        self.fault: Callable[[str, str], str | None] = lambda _method, _path: None
        target = server.endpoint.removeprefix("http://").partition("/")[0]
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # an answer in two parts waits 40 ms for the first one's confirmation

            def log_message(self, *args: object) -> None:
                pass

            def handle_any(self) -> None:
                proxy._handle(self, target)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_any  # noqa: N815

        class Listener(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: object, client_address: object) -> None:
                pass  # a client that went away

        self._server = Listener(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        self.endpoint += server.endpoint.partition("//")[2].partition("/")[2]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def count(self, *methods: str) -> int:
        """Return how many requests there were, of these methods."""
        return sum(seen.method in methods for seen in self.seen)

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()

    def _handle(self, handler: BaseHTTPRequestHandler, target: str) -> None:
        path = handler.path.partition("?")[0]
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        fault = self.fault(handler.command, path)
        if fault in ("500", "409"):
            self._answer(handler, int(fault), {}, b"<Error><Code>Conflict</Code></Error>")
            return
        connection = http.client.HTTPConnection(target, timeout=30)
        try:
            connection.putrequest(
                handler.command, handler.path, skip_host=True, skip_accept_encoding=True
            )
            for name, value in handler.headers.items():
                connection.putheader(name, value)
            connection.endheaders(body or None)
            answer = connection.getresponse()
            data = answer.read()
        finally:
            connection.close()
        self.seen.append(Seen(handler.command, path, len(data)))
        if fault == "drop":
            handler.close_connection = True
            return
        if fault == "500 after":
            self._answer(handler, 500, {}, b"<Error><Code>InternalError</Code></Error>")
            return
        self._answer(handler, answer.status, dict(answer.getheaders()), data)

    def _answer(
        self, handler: BaseHTTPRequestHandler, status: int, headers: dict[str, str], data: bytes
    ) -> None:
        handler.send_response_only(status)
        kept = {name.title(): value for name, value in headers.items()}
        length = kept.pop("Content-Length", str(len(data)))
        for name, value in kept.items():
            if name not in ("Transfer-Encoding", "Connection"):
                handler.send_header(name, value)
        handler.send_header(
            "Content-Length", length if handler.command == "HEAD" else str(len(data))
        )
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(data)
