"""`WaypointSessionStore` keeps the contract of the SDK's session stores."""

# ruff: noqa: E402

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from integration_tests.support import require

require("claude_agent_sdk")

from claude_agent_sdk.testing import run_session_store_conformance

from caravanserai.claude_agent import WaypointSessionStore
from caravanserai_core.stores import FileStore, MemoryStore
from integration_tests.claude_agent.life import Life
from integration_tests.claude_agent.scripts import DONE

Start = Callable[..., Life]


@pytest.mark.parametrize("kind", [FileStore, MemoryStore])
def test_it_keeps_the_sdks_contract(kind: type, tmp_path: Path) -> None:
    """All 14 points, the optional ones too."""
    numbers = itertools.count()

    def make() -> WaypointSessionStore:
        if kind is MemoryStore:
            return WaypointSessionStore(MemoryStore())
        return WaypointSessionStore(FileStore(tmp_path / str(next(numbers))))

    asyncio.run(run_session_store_conformance(make))


def test_another_process_reads_what_one_wrote(tmp_path: Path) -> None:
    key: Any = {"project_key": "shop", "session_id": str(uuid.uuid4())}
    entries: Any = [{"type": "user", "uuid": str(uuid.uuid4()), "message": {"content": "Hello."}}]

    async def write_and_read() -> None:
        await WaypointSessionStore(tmp_path / "store").append(key, entries)
        again = WaypointSessionStore(tmp_path / "store")
        assert await again.load(key) == entries
        await again.append(key, entries)  # the SDK gives a batch again after a failure
        assert await again.load(key) == entries

    asyncio.run(write_and_read())


def test_a_session_goes_on_from_it_alone(life: Start) -> None:
    """The program dies, and all that the CLI had on its disk is gone."""
    session = str(uuid.uuid4())
    one = life("charges", plain=True, session_store=True, pace=0.3)
    one.killed("end 3", sdk={"session_id": session})
    shutil.rmtree(one.folder / "config")
    found = one.ended(sdk={"resume": session}, prompt="Go on.")
    assert found["results"][-1]["result"] == DONE
    told = json.dumps(one.server.bodies[3]["messages"])
    assert "charged 2" in told
    assert one.outside()["begin 2"] == 1
