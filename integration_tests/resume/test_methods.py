"""`@resumable` on methods and generators."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from typing import Any

import pytest

from caravanserai import acheckpoint, again, checkpoint, list_runs, resumable
from integration_tests.api.helpers import forget_everything

worked: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_worked() -> None:
    worked.clear()


class Agent:
    """A class with jobs."""

    def __init__(self, name: str) -> None:
        self.name = name

    @resumable
    def work(self, run_id: str, state: dict[str, Any], by: int = 1) -> Any:
        """A method."""
        worked.append((self.name, state["n"]))
        checkpoint(run_id, {"n": state["n"] + by}, f"{self.name} worked")
        return (self.name, state["n"] + by)

    @resumable
    async def awork(self, run_id: str, state: dict[str, Any]) -> Any:
        """An async method."""
        worked.append(self.name)
        await acheckpoint(run_id, {"n": 1})
        return self.name

    @classmethod
    @resumable
    def made(cls, run_id: str, state: dict[str, Any]) -> str:
        """A class method."""
        worked.append(cls.__name__)
        return cls.__name__

    @staticmethod
    @resumable
    def static(run_id: str, state: dict[str, Any]) -> str:
        """A static method."""
        worked.append("static")
        return "static"


def test_methods() -> None:
    """A method is a job as a function is; the object itself is no part of the call."""
    assert Agent("a").work("run", {"n": 0}) == ("a", 1)
    assert Agent("b").work("run", {"n": 0}) == ("a", 1)
    assert worked == [("a", 0)]
    assert Agent("b").work("run", {"n": 0}, by=5) == ("b", 6)
    assert again(Agent("c").work)("run", {"n": 10}) == ("c", 11)
    worked.clear()
    for _ in range(2):
        assert asyncio.run(Agent("x").awork("async", {})) == "x"
        assert Agent.made("made", {}) == "Agent"
        assert Agent.static("static", {}) == "static"
    assert worked == ["x", "Agent", "static"]
    assert inspect.iscoroutinefunction(Agent.awork)
    assert Agent.work.__doc__ == "A method."


def test_generator_gets_its_state() -> None:
    """A generator goes on from the last waypoint; each call runs it."""

    @resumable
    def numbers(run_id: str, state: dict[str, int]) -> Iterator[int]:
        while state["n"] < 4:
            state["n"] += 1
            checkpoint(run_id, state)
            yield state["n"]

    @resumable
    async def anumbers(run_id: str, state: dict[str, int]) -> AsyncIterator[int]:
        while state["n"] < 4:
            state["n"] += 1
            await acheckpoint(run_id, state)
            yield state["n"]

    async def collect() -> list[int]:
        return [n async for n in anumbers("async", {"n": 1})]

    it = numbers("run", {"n": 0})
    assert [next(it), next(it)] == [1, 2]
    it.close()
    forget_everything()
    assert list(numbers("run", {"n": 0})) == [3, 4]
    assert list(numbers("run", {"n": 0})) == []
    assert asyncio.run(collect()) == [2, 3, 4]


def test_a_generator_owns_its_run_until_it_ends_or_is_closed() -> None:
    """Others are told so meanwhile; what is sent and thrown reaches it."""

    @resumable
    def echo(run_id: str, state: int) -> Generator[object, object, str]:
        got: object = state
        while got != "end":
            try:
                got = yield got
            except KeyError as error:
                got = f"caught {error}"
        return "returned"

    @resumable
    async def aecho(run_id: str, state: int) -> AsyncGenerator[object, object]:
        got: object = state
        while got != "end":
            try:
                got = yield got
            except KeyError as error:
                got = f"caught {error}"

    def status() -> list[str]:
        return [run.status for run in list_runs()]

    for name in ("run", "other"):
        checkpoint(name, 1)
    it = echo("run", 0)
    assert "running" not in status()
    assert [next(it), it.send("two"), it.throw(KeyError("x"))] == [1, "two", "caught 'x'"]
    assert "running" in status()
    with pytest.raises(StopIteration) as ended:
        it.send("end")
    assert ended.value.value == "returned"
    assert "running" not in status()
    again = echo("run", 1)
    next(again)
    again.close()
    assert "running" not in status()

    async def main() -> None:
        it = aecho("other", 1)
        assert [await anext(it), await it.asend("two")] == [1, "two"]
        assert await it.athrow(KeyError("x")) == "caught 'x'"
        assert "running" in status()
        with pytest.raises(StopAsyncIteration):
            await it.asend("end")
        left = aecho("other", 1)
        await anext(left)
        await left.aclose()
        assert "running" not in status()

    asyncio.run(main())
