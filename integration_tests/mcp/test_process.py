"""The process: what it prints, when it ends, and what it says where something is missing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from caravanserai import open_run
from integration_tests.mcp.talking import COMMAND, environment

VERSION = "2025-06-18"
ABOUT = {
    "protocolVersion": VERSION,
    "capabilities": {},
    "clientInfo": {"name": "x", "version": "1"},
}


def line(method: str, params: Any = None, id_: int | None = None) -> str:
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params or {}}
    return json.dumps(message if id_ is None else {**message, "id": id_}) + "\n"


NO_SDK = """
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name == "mcp":
            raise ModuleNotFoundError("no mcp", name=name)
sys.meta_path.insert(0, Missing())
"""

NOISY = """
import os
from caravanserai_core.transcript import Transcript
def read(state):
    print("printed", flush=True)
    os.write(1, b"written")
    return Transcript(())
"""

HELLO = line("initialize", ABOUT, 1) + line("notifications/initialized")


@pytest.fixture
def serve(tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """Start a server whose pipes are the test's own."""

    def start(*options: str, **more: str) -> subprocess.Popen[str]:
        env = {**environment(tmp_path / "late"), **more}
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [*COMMAND, *options], env=env, stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )

    return start


def test_it_survives_garbage_prints_the_protocol_alone_and_ends_with_stdin(
    serve: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    """The store is the default one: that of the folder in which it is started."""
    with open_run("here", adapter="noisy", store=tmp_path / ".caravanserai") as run:
        run.checkpoint(1, "a note")
    (tmp_path / "noisy.py").write_text(NOISY)
    meta = tmp_path / "noisy-0.dist-info"
    meta.mkdir()
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: noisy\nVersion: 0\n")
    (meta / "entry_points.txt").write_text("[caravanserai.transcripts]\nnoisy = noisy:read\n")
    call = {"name": "handoff", "arguments": {"run": "here"}}
    paths = [str(tmp_path), environment(tmp_path / "late")["PYTHONPATH"]]
    process = serve(PYTHONPATH=os.pathsep.join(paths))
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(HELLO + "garbage\n\n[1]\n" + line("no/such", {}, 2))
        process.stdin.write(line("tools/call", {"name": 3}, 4) + line("tools/call", call, 3))
        process.stdin.flush()
        answers = {}
        while 3 not in answers:
            found = json.loads(process.stdout.readline())
            assert found["jsonrpc"] == "2.0"
            answers[found.get("id")] = found
        process.stdin.close()
        rest, errors = process.stdout.read(), process.stderr.read() if process.stderr else ""
        assert process.wait(timeout=20) == 0, errors
    assert "printed\nwritten" in errors

    assert [json.loads(one)["jsonrpc"] for one in rest.splitlines()] == ["2.0"] * rest.count("\n")
    assert "a note" in answers[3]["result"]["content"][0]["text"]
    assert answers[1]["result"]["serverInfo"]["name"] == "caravanserai"


def test_it_ends_when_it_is_interrupted(serve: Callable[..., subprocess.Popen[str]]) -> None:
    process = serve("--store", "store")
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(HELLO)
        process.stdin.flush()
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) in (-signal.SIGINT, 130)
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


@pytest.mark.parametrize(
    ("before", "said"),
    [
        (
            NO_SDK,
            'Error: the MCP SDK is not installed: pip install "caravanserai[mcp]"\n',
        ),
        (
            "import importlib.metadata as m; m.entry_points = lambda **_: ()",
            'Error: no MCP server is installed here: pip install "caravanserai[mcp]"\n',
        ),
    ],
)
def test_what_is_missing_is_named_with_the_command_that_brings_it(
    before: str, said: str, tmp_path: Path
) -> None:
    code = f"import sys\n{before}\nfrom caravanserai_core.cli import main\nmain()"
    env = {**os.environ, **environment(tmp_path / "late")}

    done = subprocess.run(
        [sys.executable, "-c", code, "mcp"], env=env, capture_output=True, text=True
    )

    assert (done.returncode, done.stdout, done.stderr) == (1, "", said)


def test_the_core_and_the_adapter_import_no_sdk(tmp_path: Path) -> None:
    code = (
        "import sys, caravanserai.mcp, caravanserai.mcp._tools, caravanserai.mcp._resources;"
        "import caravanserai_core.cli;"
        "print([name for name in sys.modules if name.partition('.')[0] == 'mcp'])"
    )
    env = {**os.environ, **environment(tmp_path / "late")}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
