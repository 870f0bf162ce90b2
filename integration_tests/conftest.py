"""Options, fixtures and guards for all tests."""

from __future__ import annotations

import ipaddress
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

# For this process and all that tests start: frameworks must not phone home.
os.environ.update(
    {
        "ANONYMIZED_TELEMETRY": "false",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CREWAI_DISABLE_TELEMETRY": "true",
        "CREWAI_DISABLE_VERSION_CHECK": "true",
        "CREWAI_TRACING_ENABLED": "false",
        "DISABLE_TELEMETRY": "1",
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
        "LANGSMITH_TRACING": "false",
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
        "OTEL_SDK_DISABLED": "true",
    }
)
# Each test runs in a folder of its own: without this every one would start an empty example store.
os.environ.setdefault(
    "HYPOTHESIS_STORAGE_DIRECTORY", str(Path(__file__).resolve().parents[1] / ".hypothesis")
)

hypothesis.settings.register_profile("default", deadline=None, max_examples=50, print_blob=True)
hypothesis.settings.register_profile(
    "thorough", parent=hypothesis.settings.get_profile("default"), max_examples=1000
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--thorough",
        action="store_true",
        help="repeat what depends on chance (kills, races, generated values) many more times",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--hypothesis-profile", None) is None:
        thorough = config.getoption("--thorough")
        hypothesis.settings.load_profile("thorough" if thorough else "default")


@pytest.fixture(scope="session")
def thorough(request: pytest.FixtureRequest) -> bool:
    """Say whether to repeat as often as the promises ask for, and not only for a quick look."""
    return bool(request.config.getoption("--thorough"))


@pytest.fixture
def store_dir(tmp_path: Path) -> Path:
    """Name the folder that the default store uses in this test; it does not exist yet."""
    return tmp_path / ".caravanserai"


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test in its own folder, whatever store the person's environment names."""
    for name in [name for name in os.environ if name.startswith("CARAVANSERAI_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    # A process keeps each run's default store; here every test is a process of its own.
    monkeypatch.setattr("caravanserai_core.homes._homes", {})


# An audit hook cannot be removed, hence one for the process and a list of what it refused.
# It sees this process's Python sockets, not those of native clients or of child processes.
_refused: list[str] = []


class NetworkRefused(PermissionError):
    """A test tried to reach something outside this machine."""


def _is_local(host: object) -> bool:
    if host is None or host in ("", b"", "localhost", b"localhost"):
        return True
    text = host.decode("ascii", "replace") if isinstance(host, bytes) else str(host)
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _guard(event: str, args: tuple[object, ...]) -> None:
    if event == "socket.getaddrinfo":
        host = args[0]
    elif event in ("socket.connect", "socket.sendto"):
        address = args[1]
        if not isinstance(address, tuple):  # a path: a unix socket; None: one already connected
            return
        host = address[0]
    else:
        return
    if not _is_local(host):
        _refused.append(f"{event} {host!r}")
        raise NetworkRefused(f"tests reach this machine only, refused: {event} {host!r}")


sys.addaudithook(_guard)


@pytest.fixture(autouse=True)
def _no_network() -> Iterator[None]:
    """Fail a test that reached out, even where a framework swallowed the refusal."""
    _refused.clear()
    yield
    assert not _refused, f"reached outside this machine: {_refused}"
    _refused.clear()
