"""Stores that are slow or fail: nothing is acknowledged too early, and no error is lost."""

# ruff: noqa: E402

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from integration_tests.support import require

require("langgraph")

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphRecursionError
from langgraph.graph import START
from langgraph.types import Command, Send, interrupt

from caravanserai.langgraph import WaypointSaver
from caravanserai_core import codec
from caravanserai_core.errors import StoreFailed, UnserialisableState
from caravanserai_core.stores import FileStore
from integration_tests.langgraph.graphs import (
    builder_of,
    config,
    graph_of,
    join_of,
    says,
    stored,
)
from integration_tests.stores.seams import Failing, Wrapped

pytestmark = pytest.mark.usefixtures("watchdog")


class Slow(Wrapped):
    """Takes its time for each sync, and notes which files are synced how far."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def call(self, name: str, real: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        if name == "sync_data":
            time.sleep(self.seconds)
        return real(*args)


class SlowToEncode:
    """A value that takes 200 ms to encode."""

    def __eq__(self, other: object) -> bool:
        return type(other) is SlowToEncode

    __hash__ = None  # type: ignore[assignment]


def _encode(value: object) -> None:
    time.sleep(0.2)


codec.register_codec(
    SlowToEncode, name="tests.SlowToEncode", encode=_encode, decode=lambda _: SlowToEncode()
)


# ---------------------------------------------------------------------- slow


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_a_slow_disk_slows_a_graph_down_and_changes_nothing(is_async: bool, tmp_path: Path) -> None:
    saver = WaypointSaver(FileStore(tmp_path / "store", files=Slow(0.2)))
    reference = InMemorySaver()
    join_of(reference).invoke({"log": []}, config(), durability="sync")

    begun = time.monotonic()
    if is_async:
        asyncio.run(join_of(saver).ainvoke({"log": []}, config()))
    else:
        join_of(saver).invoke({"log": []}, config())
    took = time.monotonic() - begun

    assert stored(saver) == stored(reference)
    assert took < 3, f"{took:.1f} s for five puts of 0.2 s"


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_a_state_that_is_slow_to_encode_is_kept_as_it_was(is_async: bool, tmp_path: Path) -> None:
    saver = WaypointSaver(tmp_path / "store")
    graph = join_of(saver)

    if is_async:
        asyncio.run(graph.ainvoke({"log": [], "box": SlowToEncode()}, config()))
    else:
        graph.invoke({"log": [], "box": SlowToEncode()}, config())

    [after] = [one for one in saver.list(config()) if one.metadata["step"] == 1]
    assert after.checkpoint["channel_values"]["join:p+r:z"] == {"p"}
    assert after.checkpoint["channel_values"]["box"] == SlowToEncode()


def fan(saver: Any) -> Any:
    nodes = {
        "fan": lambda state: Command(goto=[Send("work", {"n": n}) for n in range(3)]),
        "work": lambda state: {"log": [state["n"]]},
    }
    return graph_of(saver, nodes, (START, "fan"))


def fails(state: Any) -> Any:
    raise ValueError("no good")


def endless(saver: Any) -> Any:
    return graph_of(saver, {"a": says("a")}, (START, "a"), ("a", "a"))


ENDINGS: dict[str, Callable[[Any], Any]] = {
    "finish": lambda saver: graph_of(saver, {"a": says("a"), "b": says("b")}),
    "finish of a join": join_of,
    "finish of parallel tasks": fan,
    "question": lambda saver: graph_of(
        saver, {"a": says("a"), "ask": lambda state: {"log": [interrupt("?")]}}
    ),
    "error": lambda saver: graph_of(saver, {"a": says("a"), "fails": fails}),
    "pause before a node": lambda saver: graph_of(
        saver, {"a": says("a"), "b": says("b")}, interrupt_before=["b"]
    ),
    "pause after a node": lambda saver: graph_of(
        saver, {"a": says("a"), "b": says("b")}, interrupt_after=["a"]
    ),
    "recursion limit": endless,
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_when_an_asynchronous_invocation_is_over_its_last_checkpoint_is_on_the_disk(
    ending: str, tmp_path: Path, thorough: bool
) -> None:
    build = ENDINGS[ending]
    reference = InMemorySaver()

    async def go(saver: Any, thread_id: str, **options: Any) -> None:
        limited = {**config(thread_id), "recursion_limit": 5}
        try:
            await build(saver).ainvoke({"log": ["in"]}, limited, **options)
        except (ValueError, GraphRecursionError):
            pass

    asyncio.run(go(reference, "t", durability="sync"))
    last = reference.get_tuple(config())
    assert last is not None

    for number in range(50 if thorough else 5):
        store = FileStore(tmp_path / "store", files=Slow(0.003))
        seen: list[Any] = []

        async def main() -> None:
            await go(WaypointSaver(store), f"t{number}")  # noqa: B023
            # Another saver and another store: what it sees stands in the files now.
            other = WaypointSaver(FileStore(tmp_path / "copy"))
            _copy(tmp_path / "store", tmp_path / "copy")
            seen.append(other.get_tuple(config(f"t{number}")))  # noqa: B023

        asyncio.run(main())
        found = seen[0]
        assert found is not None
        assert found.metadata["step"] == last.metadata["step"]
        assert len(found.pending_writes) == len(last.pending_writes or ())


def _copy(source: Path, target: Path) -> None:
    """Copy the journals as they stand at this moment, as a kill would leave them."""
    for path in source.rglob("journal-*.jsonl"):
        place = target / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        place.write_bytes(path.read_bytes())
        place.chmod(0o600)


# ---------------------------------------------------------------------- failing


class FailingJournal(Failing):
    """Counts what is written to journals; notes are written in the background."""

    def call(self, name: str, real: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        if name == "write" and bytes(args[1][:1]) != b"{":
            return real(*args)
        return super().call(name, real, args)


def full() -> OSError:
    return OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("call", ["write", "sync_data"])
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_an_error_of_the_disk_reaches_the_caller_and_the_thread_goes_on_from_before(
    is_async: bool, call: str, tmp_path: Path
) -> None:
    count = FailingJournal()
    count.arm(1000, full(), only=call)
    join_of(WaypointSaver(FileStore(tmp_path / "count", files=count))).invoke({"log": []}, config())
    assert len(count.calls) > 4

    for at in range(2, len(count.calls) + 1):
        seam = FailingJournal()
        saver = WaypointSaver(FileStore(tmp_path / f"store {at}", files=seam))
        graph = join_of(saver)

        def go(value: Any) -> Any:
            if is_async:
                return asyncio.run(graph.ainvoke(value, config()))  # noqa: B023
            return graph.invoke(value, config())  # noqa: B023

        seam.arm(at, full(), only=call)
        begun = time.monotonic()
        try:
            found = go({"log": ["in"]})
        except StoreFailed:
            assert seam.fired
            seam.arm(0, full())
            if saver.get_tuple(config()) is None:
                found = go({"log": ["in"]})
            else:
                found = go(None)
        else:
            assert not seam.fired, f"the error of {call} {at} was lost"
            seam.arm(0, full())
        assert time.monotonic() - begun < 4, "it waited for a put that never comes"
        assert found["log"] == ["in", "p", "q", "r", "z"]
        assert graph.invoke({"log": ["2"]}, config())["log"][5:] == ["2", "p", "q", "r", "z"]


def asks_inside(saver: Any, box: Any) -> Any:
    """Build a graph whose subgraph has a state that cannot be stored, and then pauses."""

    def ask(state: Any) -> Any:
        return {"log": [interrupt("?")]}

    inner = builder_of({"fill": lambda state: {"box": box}, "ask": ask}).compile()
    return graph_of(saver, {"inner": inner, "z": says("z")})


def test_an_error_of_a_put_is_raised_where_langgraph_would_swallow_it(tmp_path: Path) -> None:
    graph = asks_inside(WaypointSaver(tmp_path / "store"), {"key": lambda: None})

    with pytest.raises(UnserialisableState, match=r"^\$\.box\.key: the type function"):
        graph.invoke({"log": []}, config())


def test_in_an_asynchronous_graph_that_error_is_raised_when_the_question_is_answered(
    tmp_path: Path,
) -> None:
    # There LangGraph calls nothing of a saver between the error and the pause.
    graph = asks_inside(WaypointSaver(tmp_path / "store"), {"key": lambda: None})

    async def main() -> None:
        await graph.ainvoke({"log": []}, config())
        await graph.ainvoke(Command(resume="yes"), config())

    with pytest.raises(UnserialisableState, match=r"^\$\.box\.key: the type function"):
        asyncio.run(main())


def test_after_an_error_an_older_checkpoint_may_be_gone_on_from(tmp_path: Path) -> None:
    seam = Failing()
    graph = join_of(WaypointSaver(FileStore(tmp_path / "store", files=seam)))
    seam.arm(5, full(), only="sync_data", lasting=True)
    with pytest.raises(StoreFailed):
        graph.invoke({"log": ["in"]}, config())
    seam.arm(0, full())

    for old in list(graph.get_state_history(config())):
        assert graph.invoke(None, old.config)["log"] == ["in", "p", "q", "r", "z"]


def test_values_that_cannot_be_kept_reach_the_caller_at_once_and_the_thread_stays_whole(
    tmp_path: Path,
) -> None:
    saver = WaypointSaver(tmp_path / "store")
    ran: list[str] = []

    def late(state: Any) -> Any:
        ran.append("late")
        return {}

    bad = {"bad": lambda state: {"box": [1, {"deep": lambda: None}]}, "late": late}
    graph = graph_of(saver, {"a": says("a"), **bad})

    with pytest.raises(UnserialisableState, match=r"^\$\.box\[1\]\.deep: "):
        graph.invoke({"log": []}, config())

    assert ran == []
    assert graph.get_state(config()).values == {"log": ["a"]}
    assert graph.get_state(config()).next == ("bad",)
