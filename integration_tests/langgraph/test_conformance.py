"""LangGraph's conformance kit: every capability, every check, asynchronous and synchronous."""

# ruff: noqa: E402

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest

from integration_tests.support import require

require("langgraph")
require("langgraph.checkpoint.conformance")

from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.report import ProgressCallbacks

from caravanserai.langgraph import WaypointSaver
from caravanserai_core.stores import Store

CHECKS = {
    "put": 17,
    "put_writes": 10,
    "get_tuple": 10,
    "list": 16,
    "delete_thread": 5,
    "delete_for_runs": 7,
    "copy_thread": 8,
    "prune": 8,
}
"""Checks of the kit (0.0.2) by capability: 81."""


class Synchronous(WaypointSaver):
    """A saver whose asynchronous methods, which alone the kit calls, are the synchronous ones."""

    async def aput(self, *args: Any, **kwargs: Any) -> Any:
        return self.put(*args, **kwargs)

    async def aput_writes(  # the graph looks for `task_path` among the parameters
        self, config: Any, writes: Any, task_id: str, task_path: str = ""
    ) -> None:
        self.put_writes(config, writes, task_id, task_path)

    async def aget_tuple(self, config: Any) -> Any:
        return self.get_tuple(config)

    async def alist(self, config: Any, **kwargs: Any) -> AsyncIterator[Any]:
        for found in self.list(config, **kwargs):
            yield found

    async def adelete_thread(self, thread_id: str) -> None:
        self.delete_thread(thread_id)

    async def adelete_for_runs(self, run_ids: Any) -> None:
        self.delete_for_runs(run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        self.copy_thread(source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Any, **kwargs: Any) -> None:
        self.prune(thread_ids, **kwargs)


@pytest.mark.parametrize("capability", CHECKS)
@pytest.mark.parametrize("kind", [WaypointSaver, Synchronous], ids=["async", "sync"])
def test_every_check_of_the_conformance_kit_passes(
    kind: type[WaypointSaver], capability: str, store: Store
) -> None:
    failed: dict[str, str | None] = {}

    @checkpointer_test(name=f"{kind.__name__} {capability}")
    async def savers() -> AsyncGenerator[Any, None]:
        yield kind(store)

    def note(capability: str, name: str, passed: bool, error: str | None) -> None:
        if not passed:
            failed[name] = error

    progress = ProgressCallbacks(on_test_result=note)
    report = asyncio.run(validate(savers, capabilities={capability}, progress=progress))

    result = report.results[capability]
    assert result.detected
    assert not failed, "\n".join(f"{name}:\n{error}" for name, error in failed.items())
    assert result.tests_passed == CHECKS[capability]


def test_all_eight_capabilities_are_detected() -> None:
    from langgraph.checkpoint.conformance.capabilities import Capability, DetectedCapabilities

    found = DetectedCapabilities.from_instance(WaypointSaver("store"))

    assert found.detected == set(Capability)
    assert {capability.value for capability in Capability} == set(CHECKS), "the kit has grown"
