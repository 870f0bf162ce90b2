"""Keys planted wherever a graph has room for them: none in the store, many in LangGraph's own."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pydantic
import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command, interrupt

from caravanserai.langgraph import WaypointSaver
from caravanserai_core import SecretFound, secrets
from integration_tests.langgraph.graphs import graph_of
from integration_tests.secrets.planted import KEY, hits


@pytest.fixture(autouse=True)
def _planted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_registry", secrets._Registry())
    monkeypatch.setenv("PLANTED_API_KEY", KEY)


def work(saver: Any) -> list[Any]:
    """Run a graph whose messages, tools, question, error and configuration hold the key."""
    failed: list[bool] = []

    def call(state: Any) -> Any:
        tool = {"name": "fetch", "args": {"header": f"Bearer {KEY}"}, "id": "c1"}
        return {"log": [AIMessage(f"I use {KEY}", tool_calls=[tool])], "box": {KEY: (KEY,)}}

    def fetch(state: Any) -> Any:
        if not failed:
            failed.append(True)
            raise ValueError(f"401 for {KEY}")
        return {"log": [ToolMessage(f"the answer to {KEY}", tool_call_id="c1")]}

    def ask(state: Any) -> Any:
        said = interrupt({"question": f"Use {KEY}?"})
        return {"log": [HumanMessage(f"{said} {KEY}")]}

    graph = graph_of(saver, {"call": call, "fetch": fetch, "ask": ask})
    config: Any = {
        "configurable": {"thread_id": "t", "api_key": KEY, "headers": {"authorization": KEY}},
        "metadata": {"note": f"with {KEY}", "topic": "weather"},
    }
    with pytest.raises(ValueError, match="401"):
        graph.invoke({"log": [HumanMessage(KEY)]}, config, durability="sync")
    graph.invoke(None, config, durability="sync")
    graph.invoke(Command(resume=f"yes, {KEY}"), config, durability="sync")
    return list(graph.get_state(config).values["log"])


def test_a_graph_full_of_keys_leaves_none(tmp_path: Path) -> None:
    """Messages, tool calls, an error, a question, an answer, metadata, configuration, notes."""
    own = tmp_path / "sqlite"
    own.mkdir()
    with sqlite3.connect(own / "own.db", check_same_thread=False) as connection:
        theirs = work(SqliteSaver(connection))
    ours = work(WaypointSaver(tmp_path / "store"))

    assert [message.content for message in ours] == [message.content for message in theirs]
    found = {name: hits(tmp_path / name, [KEY]) for name in ("store", "sqlite")}
    print({name: len(where) for name, where in found.items()})
    assert found["store"] == []
    assert found["sqlite"], "the key was planted where it is not stored"
    saver = WaypointSaver(tmp_path / "store")
    kept = list(saver.list({"configurable": {"thread_id": "t"}}, filter={"topic": "weather"}))
    assert kept
    assert kept[0].metadata["note"] == f"with {KEY}"


def test_a_wrapped_key_in_the_state_is_kept_or_refused(tmp_path: Path) -> None:
    """A `SecretStr` comes back where its value is declared; else the path is told."""

    def keeps(state: Any) -> Any:
        return {"box": {"key": pydantic.SecretStr(KEY)}}

    graph = graph_of(WaypointSaver(tmp_path / "store"), {"a": keeps})
    config: Any = {"configurable": {"thread_id": "t"}}
    graph.invoke({"log": []}, config)
    assert graph.get_state(config).values["box"] == {"key": pydantic.SecretStr(KEY)}

    def hides(state: Any) -> Any:
        return {"box": {"key": pydantic.SecretStr("undeclared-" + "0815")}}

    graph = graph_of(WaypointSaver(tmp_path / "store"), {"a": hides})
    with pytest.raises(SecretFound, match="key"):
        graph.invoke({"log": []}, {"configurable": {"thread_id": "u"}})
    assert hits(tmp_path / "store", [KEY, "undeclared-" + "0815"]) == []
