"""What never reaches the disk: the context, keys and headers of clients, declared secrets."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import agents
import pytest
from agents import Agent, ModelSettings, RunConfig, RunContextWrapper, function_tool
from openai import AsyncOpenAI

from caravanserai import answer, declare_secret, load
from caravanserai.openai_agents import Runner
from caravanserai_core.verify import verify
from examples.scripted_openai import ScriptedOpenAI
from integration_tests.openai_agents.jobs import model_of
from integration_tests.openai_agents.paused import QUIET, RUN, Scripted, agent_of, start

KEYS = {
    "context": "ctx-7f3a9c51e2",
    "api key": "sk-client-55d1c0ffee",
    "header": "hdr-90aa12bb34cc",
    "tracing key": "trc-1122334455aa",
    "token": "tok-99887766ffee",
}


def files(store: Path) -> dict[str, bytes]:
    """Return all files of a store."""
    return {str(p): p.read_bytes() for p in store.rglob("*") if p.is_file()}


@dataclasses.dataclass
class Desk:
    """A context as programs have one: data, a key, a live client."""

    visits: int
    key: str
    client: Any


SCRIPT: list[Any] = [{"call": [["count", {}]]}, {"say": "Counted."}]


@pytest.mark.parametrize("kind", ["mapping", "object"])
@pytest.mark.parametrize("way", ["run", "stream"])
def test_neither_context_nor_client_reaches_the_disk(tmp_path: Path, kind: str, way: str) -> None:
    """The SDK itself would write a mapping in clear, and warn of an object."""

    @function_tool
    def count(ctx: RunContextWrapper[Any]) -> str:
        """Count the visit."""
        found = ctx.context
        visits = found["visits"] if isinstance(found, dict) else found.visits
        return f"visit {visits}"

    async def work(server: ScriptedOpenAI) -> Any:
        client = AsyncOpenAI(
            base_url=server.url,
            api_key=KEYS["api key"],
            default_headers={"X-Key": KEYS["header"]},
            max_retries=0,
        )
        async with client:
            return await talk(client)

    async def talk(client: AsyncOpenAI) -> Any:
        settings = ModelSettings(extra_headers={"X-Token": KEYS["token"]})
        context: Any = {"visits": 3, "key": KEYS["context"], "client": client}
        if kind == "object":
            context = Desk(3, KEYS["context"], client)
        agent = Agent(
            name="desk",
            instructions="Count.",
            model=model_of(client),
            tools=[count],
            model_settings=settings,
        )
        config = RunConfig(tracing_disabled=True, tracing={"api_key": KEYS["tracing key"]})
        given: dict[str, Any] = {"context": context, "run_config": config}
        given |= {"run_id": "desk", "store": tmp_path}
        if way == "run":
            return await Runner.run(agent, "Count me.", **given)
        result = Runner.run_streamed(agent, "Count me.", **given)
        async for _ in result.stream_events():
            pass
        return result

    with ScriptedOpenAI(SCRIPT) as server:
        result = asyncio.run(work(server))

    assert result.final_output == "Counted."
    assert result.context_wrapper.context is not None
    found = files(tmp_path)
    assert found
    for name, key in KEYS.items():
        assert not [path for path, data in found.items() if key.encode() in data], name


def test_a_declared_secret_is_a_reference_in_calls_and_results(tmp_path: Path) -> None:
    """The model passes it to a tool, the tool gives it back; a new process has it again."""
    secret = "pin-5f0c2a77d1e9"
    declare_secret("TERMINAL_PIN", secret)

    @function_tool
    def unlock(pin: str) -> str:
        """Unlock the terminal."""
        done.append(pin)
        return f"unlocked with {pin}"

    @function_tool(needs_approval=True)
    def pay(pin: str) -> str:
        """Pay."""
        done.append(pin)
        return "paid"

    done: list[str] = []

    def agent() -> Agent[Any]:
        model = Scripted(("unlock", {"pin": secret}), ("pay", {"pin": secret}))
        return Agent(name="clerk", instructions="Pay.", model=model, tools=[unlock, pay])

    start(agent(), tmp_path)
    answer(RUN, True, store=tmp_path)
    result = start(agent(), tmp_path)

    assert done == [secret, secret]
    assert f"unlocked with {secret}" in str(result.to_input_list())
    assert not [path for path, data in files(tmp_path).items() if secret.encode() in data]
    assert verify(load_store(tmp_path), RUN).findings == []


def load_store(path: Path) -> Any:
    """Return the store in a folder."""
    from caravanserai_core.stores import FileStore

    return FileStore(path)


def test_a_context_is_kept_by_a_serialiser_of_the_program(tmp_path: Path) -> None:
    """What it returns is kept at each waypoint, and makes the context of the next start."""

    @function_tool
    def visit(ctx: RunContextWrapper[Desk]) -> str:
        """Come in."""
        ctx.context.visits += 1
        return f"visit {ctx.context.visits}"

    @function_tool(needs_approval=True)
    def leave(ctx: RunContextWrapper[Desk]) -> str:
        """Go."""
        return f"left after {ctx.context.visits}"

    def run() -> Any:
        model = Scripted(("visit", {}), ("visit", {}), ("leave", {}))
        agent = Agent(name="desk", instructions="Go.", model=model, tools=[visit, leave])
        return Runner.run_sync(
            agent,
            "Visit.",
            run_id="desk",
            store=tmp_path,
            run_config=QUIET,
            context=Desk(0, KEYS["context"], object()),
            context_serializer=lambda desk: {"visits": desk.visits},
            context_deserializer=lambda kept: Desk(kept["visits"], KEYS["context"], object()),
        )

    assert len(run().interruptions) == 1
    assert load("desk", store=tmp_path)["context"] == {"visits": 2}
    answer("desk", True, store=tmp_path)
    result = run()

    assert "left after 2" in str(result.to_input_list())
    assert not [p for p, data in files(tmp_path).items() if KEYS["context"].encode() in data]


def test_an_approval_holds_where_a_context_is_given_at_the_next_start(tmp_path: Path) -> None:
    done: list[str] = []

    def run() -> Any:
        model = Scripted(("look_up", {"bill": 7}), ("pay", {"bill": 7, "amount": 40}))
        return start(agent_of(model, done.append), tmp_path, context={"who": "ana"})

    assert len(run().interruptions) == 1
    answer(RUN, True, store=tmp_path)

    assert run().final_output == "Done."
    assert done == ["look_up 7", "pay 7 40"]


def test_a_context_counts_for_a_new_run_that_goes_on_from_a_run_state(tmp_path: Path) -> None:
    """One that the SDK's own runner paused, as a program has it that moves to ours."""

    @function_tool(needs_approval=True)
    def greet(ctx: RunContextWrapper[Any]) -> str:
        """Greet who is there."""
        return f"hello {ctx.context['who']}"

    agent = Agent(name="desk", instructions="Go.", model=Scripted(("greet", {})), tools=[greet])
    paused = agents.Runner.run_sync(agent, "Greet.", run_config=QUIET, context={"who": "ana"})
    state = paused.to_state()
    state.approve(paused.interruptions[0])
    given: dict[str, Any] = {"run_id": "desk", "store": tmp_path, "run_config": QUIET}
    result = Runner.run_sync(agent, state, context={"who": "ines"}, **given)

    assert "hello ines" in str(result.to_input_list())
