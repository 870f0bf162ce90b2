"""Jobs that are killed at one place; each function is one start of a program.

A place is one of `apps`, the n-th append to the journal ("append 3 begins", "append 3 ends"), a
call of the session ("session add 1 begins"), the n-th event that a consumer got ("event 7"), or
of its kind ("event response.completed 2"), or "paused": the run waits for a person, and its
program has not looked.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import agents
from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    SQLiteSession,
)
from agents.items import RunItem, TResponseInputItem
from openai import AsyncOpenAI

from caravanserai import WaitingForPerson
from caravanserai.openai_agents import Runner
from integration_tests.appends import watch_appends
from integration_tests.openai_agents import apps, inner

TASK = "Refund order A17 please."
RUN = "job"
OFF = RunConfig(tracing_disabled=True)


class Session(SQLiteSession):
    """A session on disk whose calls are places."""

    def __init__(self) -> None:
        super().__init__("talk", "session.db")
        self._count = itertools.count(1)

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        name = f"session add {next(self._count)}"
        apps.reach(f"{name} begins")
        await super().add_items(items)
        apps.reach(f"{name} ends")


def _die_at(place: str) -> None:
    if place == apps._place:
        os.kill(os.getpid(), signal.SIGKILL)


def client_of(url: str) -> AsyncOpenAI:
    """Return the real client, which never asks twice by itself."""
    return AsyncOpenAI(base_url=url, api_key="test", max_retries=0)


def model_of(client: AsyncOpenAI, api: str = "responses") -> Any:
    """Return a model of the SDK that speaks one of the two APIs."""
    if api == "chat":
        return OpenAIChatCompletionsModel("scripted", client)
    return OpenAIResponsesModel("scripted", client)


def talk(
    server: Any, work: Callable[[Any], Coroutine[Any, Any, Any]], api: str = "responses"
) -> Any:
    """Return what work in this process returns, which is given a model of a scripted server."""

    async def opened() -> Any:
        async with client_of(server.url) as client:
            return await work(model_of(client, api))

    return asyncio.run(opened())


async def run_nested(model: Any, given: Any = TASK, **options: Any) -> Any:
    """Start the nested run in this process, once."""
    own = {"run_id": "here", "run_config": OFF, **options}
    return await Runner.run(apps.nested(model), given, **own)


def shown(item: RunItem) -> list[str]:
    """Return an item in a form that can be compared: its type, whose it is, its call."""
    raw = item.raw_item if isinstance(item.raw_item, dict) else item.raw_item.model_dump()
    name = str(raw.get("call_id") or raw.get("id"))
    return [item.type, item.agent.name, name]


def event_shown(event: Any) -> list[str]:
    """Return an event of a stream likewise."""
    if event.type == "raw_response_event":
        return ["raw", event.data.type]
    if event.type == "agent_updated_stream_event":
        return ["agent", event.new_agent.name]
    return ["item", event.name, *shown(event.item)]


@asynccontextmanager
async def opened(agent: Agent[Any]) -> AsyncIterator[Agent[Any]]:
    """Start the agent's MCP servers, and end them."""
    for server in agent.mcp_servers:
        await server.connect()
    try:
        yield agent
    finally:
        for server in agent.mcp_servers:
            await server.cleanup()


def outcome(result: Any) -> dict[str, Any]:
    """Return what a result says, as JSON."""
    output = result.final_output
    return {
        "final": output.model_dump() if hasattr(output, "model_dump") else output,
        "agent": result.last_agent.name,
        "items": [shown(item) for item in result.new_items],
        "input": result.to_input_list(),
        "asked": [[item.agent.name, item.tool_name, item.call_id] for item in result.interruptions],
        "answers": len(result.raw_responses),
        "tokens": result.context_wrapper.usage.total_tokens,
        "requests": result.context_wrapper.usage.requests,
        "turns": result._current_turn if hasattr(result, "_current_turn") else None,
    }


def begin(options: dict[str, Any]) -> None:
    """Let this process die at the `place` of its options."""
    apps.die_at(options.get("place"))
    watch_appends(_die_at)


def run(url: str, options: dict[str, Any]) -> int:
    """Run an app once; what came of it goes to result.json, each event to events.jsonl.

    Args:
        url: of the scripted model.
        options: `app`; `place`; `api`, "responses" or "chat"; `way`, "run", "stream" or "sync";
            `session`, whether there is one; `input`; `plain`, with the SDK's own runner; `hooks`,
            whether there are some; `more`, for the runner. Where the run waits for a person in
            another way than the SDK's, the result has only "waits".
    """
    begin(options)
    start = _Start(url, options)
    try:
        result = start.sync() if options.get("way") == "sync" else asyncio.run(start.start())
    except WaitingForPerson as waits:
        result = {"waits": list(waits.questions)}
    Path("result.json").write_text(json.dumps(result))
    return 0


class _Start:
    def __init__(self, url: str, options: dict[str, Any]) -> None:
        self.options = options
        self.plain = options.get("plain", False)
        self.client = client_of(url)
        model = model_of(self.client, options.get("api", "responses"))
        self.agent = inner.APPS.get(options["app"], functools.partial(apps.build, options["app"]))(
            model
        )
        self.session = Session() if options.get("session") else None
        self.given: dict[str, Any] = {
            "session": self.session,
            "run_config": OFF,
            **options.get("more", {}),
        }
        if options.get("hooks", True):
            self.given["hooks"] = apps.Places()
        if not self.plain:
            self.given.setdefault("run_id", RUN)
        self.events: list[list[str]] = []

    @property
    def runner(self) -> Any:
        return agents.Runner if self.plain else Runner

    def sync(self) -> dict[str, Any]:
        result = self.runner.run_sync(self.agent, self.options.get("input", TASK), **self.given)
        return asyncio.run(self._told(result))

    async def start(self) -> dict[str, Any]:
        async with opened(self.agent), self.client:
            given: Any = self.options.get("input", TASK)
            while True:
                result = await self._once(given)
                if not self.plain or not result.interruptions:
                    return await self._told(result)
                given = result.to_state()
                for item in result.interruptions:
                    given.approve(item)

    async def _once(self, given: Any) -> Any:
        if self.options.get("way") != "stream":
            return await self.runner.run(self.agent, given, **self.given)
        result = self.runner.run_streamed(self.agent, given, **self.given)
        async for event in result.stream_events():
            self._heard(event_shown(event))
        return result

    def _heard(self, event: list[str]) -> None:
        self.events.append(event)
        with Path("events.jsonl").open("a") as file:  # what a consumer had before it was killed
            file.write(json.dumps(event) + "\n")
        often = sum(one[:2] == event[:2] for one in self.events)
        _die_at(f"event {len(self.events)}")
        _die_at(f"event {event[1]} {often}")

    async def _told(self, result: Any) -> dict[str, Any]:
        if result.interruptions:
            apps.reach("paused")
        told = outcome(result)
        told["events"] = self.events
        if inner.there():
            told["inner"] = await inner.told()
        if self.session is not None:
            told["session"] = await self.session.get_items()
        return told
