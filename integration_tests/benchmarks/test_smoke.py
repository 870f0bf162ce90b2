"""The benchmarks run and yield every figure; what the figures are is no matter here."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from integration_tests.support import require

ROOT = Path(__file__).resolve().parents[2]

KEYS = {
    "checkpoint": {"checkpoint_raw", "checkpoint_raw_p99", "checkpoint_without_sync"}
    | {"bytes_journal", "bytes_notes"},
    "calls": {"syncs_ours"},
    "encoding": {"encode_100kB", "encode_1MB", "encode_10MB"},
    "import": {"import", "import_net"},
    "small": {"small_last_first", "small_bytes", "small_newest", "small_arbitrary"}
    | {"small_history"},
    "document": {"document_last_first", "document_bytes", "document_newest", "document_history"},
    "dict": {"dict_last_first", "dict_bytes", "dict_newest", "dict_history"},
    "list": {"list_last_encode", "list_bytes", "list_newest", "list_history"},
    "runs": {"runs_listed"},
}


_MESSAGES = {
    f"{kind}_{count}_{what}"
    for kind in ("answers", "chat")
    for count in (1_000, 10_000)
    for what in ("write", "read", "bytes")
}


def _task(name: str, *, sqlite: bool) -> set[str]:
    """Return the keys of a graph's rows, with those that compare with the SQLite saver or not."""
    steps = {f"{name}_step_inmemorysaver_{mode}" for mode in ("sync", "async")}
    if not sqlite:
        return {*steps, f"{name}_disk"}
    steps |= {
        f"{name}_step_{saver}_{mode}"
        for saver in ("sqlitesaver", "asyncsqlitesaver")
        for mode in ("sync", "async")
    }
    rest = ("disk", "peak", "peak_ainvoke", "get_state", "history")
    return steps | {f"{name}_{what}" for what in rest}


@pytest.mark.timeout(120)
def test_quick_benchmark_yields_every_figure(tmp_path: Path) -> None:
    """A quick run, without other packages, prints one document with all figures and cleans up."""
    result = _quick("plain", tmp_path / "data", "--waypoints", "100")

    found = _keys(result)
    if not isinstance(result["figures"]["calls"]["raw"].get("ours"), dict):
        found["calls"] |= KEYS["calls"]  # strace is missing, or may not trace here
    assert found == KEYS
    assert set(result["missing"]) == {"release", "dbos"}
    assert {"python", "orjson", "file_system"} <= set(result["machine"])


@pytest.mark.timeout(120)
def test_quick_benchmark_of_langgraph_yields_every_figure(tmp_path: Path) -> None:
    """Every graph runs with every saver that is installed, and what they store is the same."""
    require("langgraph")
    result = _quick("langgraph", tmp_path / "data")

    sqlite = importlib.util.find_spec("langgraph.checkpoint.sqlite") is not None
    tasks = ("nodes", "chat", "document", "react")
    savers = ["waypointsaver", *(["sqlitesaver"] if sqlite else [])]
    calls = {f"syncs_{saver}_invoke_sync" for saver in savers}
    found = _keys(result)
    if not all(isinstance(one, dict) for one in result["figures"]["calls"]["raw"].values()):
        found["calls"] = calls  # strace is missing, or may not trace here
    expected = {name: _task(name, sqlite=sqlite) for name in tasks}
    assert found == {**expected, "messages": _MESSAGES, "calls": calls}
    assert set(result["missing"]) == ({"sqlite"} if not sqlite else set())
    assert {"langgraph", "langgraph-checkpoint", "file_system"} <= set(result["machine"])


@pytest.mark.timeout(120)
def test_quick_benchmark_of_openai_agents_yields_every_figure(tmp_path: Path) -> None:
    """Every runner that is installed runs, one is killed and goes on where it was."""
    require("agents")
    result = _quick("openai_agents", tmp_path / "data")

    dbos = importlib.util.find_spec("dbos_openai_agents") is not None
    each = ["", *(["_dbos"] if dbos else [])]
    calls = {"syncs_ours", *(["syncs_dbos"] if dbos else [])}
    found = _keys(result)
    if not all(isinstance(one, dict) for one in result["figures"]["calls"]["raw"].values()):
        found["calls"] = calls  # strace is missing, or may not trace here
    assert found == {
        "runs": {f"run_{turns}{what}" for turns in (4, 6) for what in each},
        "http": {"http_4"},
        "growth": {f"growth_{what}" for what in ("bytes", "linear", "state", "states", "time")},
        "cold": {"cold_finished", "cold_killed"},
        "calls": calls,
    }
    assert set(result["missing"]) == (set() if dbos else {"dbos"})
    assert {"openai-agents", "openai", "file_system"} <= set(result["machine"])


@pytest.mark.timeout(240)
def test_quick_benchmark_of_crewai_yields_every_figure(tmp_path: Path) -> None:
    """Crews and flows run in every way, each is killed, and goes on as far as its way can."""
    require("crewai")
    result = _quick("crewai", tmp_path / "data", seconds=220)  # its imports take most of it

    calls = {"syncs_ours"}
    found = _keys(result)
    if not all(isinstance(one, dict) for one in result["figures"]["calls"]["raw"].values()):
        found["calls"] = calls  # strace is missing, or may not trace here
    ways = ("none", "replay", "checkpoint", "ours", "flow_sqlite", "flow_ours")
    assert found == {
        "tasks": {
            f"task_{tasks}{what}" for tasks in (3, 4) for what in ("", "_checkpoint", "_bytes")
        }
        | {"growth_ours", "growth_checkpoint", "growth_bytes"},
        "flows": {"method", "method_bytes"},
        "calls": calls,
        "beside": {f"beside_{way}" for way in ways},
    }
    assert {"crewai", "openai", "file_system"} <= set(result["machine"])


def _quick(name: str, data: Path, *more: str, seconds: float = 110) -> Any:
    """Run a benchmark; what holds for all of them is looked at here."""
    command = [sys.executable, "-m", f"benchmarks.{name}", "--quick", "--json", "--no-install"]
    done = subprocess.run(
        [*command, *more, "--dir", str(data)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert all(row["value"] > 0 for figure in result["figures"].values() for row in figure["rows"])
    assert len(result["disk"]) == 2
    assert list(data.iterdir()) == []
    return result


def _keys(result: Any) -> dict[str, set[str]]:
    return {
        name: {row["key"] for row in figure["rows"]} for name, figure in result["figures"].items()
    }
