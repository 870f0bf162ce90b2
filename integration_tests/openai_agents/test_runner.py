"""`Runner`: the SDK's signatures, and what run_id adds; inputs, results, what is written."""

# ruff: noqa: E402

from __future__ import annotations

import asyncio
import inspect
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import agents
import pytest

from integration_tests.support import require

require("agents")

from agents import (
    Agent,
    OpenAIProvider,
    RunConfig,
    StopAtTools,
    function_tool,
)
from agents.tool_context import ToolContext
from openai import AsyncOpenAI

from caravanserai import InputChanged, answer, list_runs
from caravanserai.openai_agents import Runner
from integration_tests.api.helpers import forget_everything
from integration_tests.openai_agents import apps
from integration_tests.openai_agents.apps import (
    KINDS,
    NESTED,
    REFUND,
    STRUCTURED,
    THREE,
    Verdict,
    outside,
)
from integration_tests.openai_agents.jobs import OFF, TASK, client_of, run_nested, talk
from integration_tests.openai_agents.life import Life
from integration_tests.openai_agents.scripted import ScriptedOpenAI

Start = Callable[..., Life]


# ---------------------------------------------------------------------- the line


@pytest.mark.parametrize("name", ["run", "run_sync", "run_streamed"])
def test_the_signatures_are_the_sdks(name: str) -> None:
    """Each parameter of the SDK is there, under its name, with its default; ours are added."""
    theirs = inspect.signature(getattr(agents.Runner, name)).parameters
    ours = inspect.signature(getattr(Runner, name)).parameters
    assert {p: theirs[p].default for p in theirs} == {p: ours[p].default for p in theirs}
    added = set(ours) - set(theirs)
    assert {"run_id", "store", "again", "takeover", "on_uncertain"} <= added


def test_without_a_run_id_it_says_what_to_write() -> None:
    agent = Agent(name="a")
    with pytest.raises(TypeError, match=r'run_id="order-a17"'):
        Runner.run_sync(agent, TASK)
    with pytest.raises(TypeError, match="run_id="):
        asyncio.run(Runner.run(agent, TASK))
    with pytest.raises(TypeError, match="run_id="):
        Runner.run_streamed(agent, TASK)
    assert list_runs() == []


def test_a_finished_run_returns_what_it_came_to() -> None:
    """The SDK's own type, with all that it has; nobody is asked, nothing runs."""
    with ScriptedOpenAI(NESTED) as server:

        async def work(model: Any) -> None:
            first = await run_nested(model)
            forget_everything()
            again = await run_nested(model)
            assert type(again) is type(first) is agents.RunResult
            assert again.final_output == first.final_output == "Done, kept."
            assert again.to_input_list() == first.to_input_list()
            assert [i.type for i in again.new_items] == [i.type for i in first.new_items]
            assert [r.response_id for r in again.raw_responses] == [
                r.response_id for r in first.raw_responses
            ]
            assert again.last_agent.name == "shop"
            assert again.last_response_id == first.last_response_id
            assert again.context_wrapper.usage.total_tokens == 75
            assert again.interruptions == []
            assert again.final_output_as(str) == "Done, kept."
            assert str(again)

        talk(server, work)
        assert len(server.answered) == 5


def test_a_structured_output_comes_back_as_its_type() -> None:
    with ScriptedOpenAI(STRUCTURED) as server:

        async def work(model: Any) -> None:
            async def once() -> Any:
                agent = apps.refund(model, structured=True)
                return await Runner.run(agent, TASK, run_id="here", run_config=OFF)

            await once()
            answer("here", True)
            first = await once()
            forget_everything()
            again = await once()
            expected = Verdict(order_id="A17", amount=40)
            assert first.final_output == again.final_output == expected

        talk(server, work)
        assert len(server.answered) == 5


@pytest.mark.parametrize("tool", ["a_model", "a_dict", "a_dataclass", "a_number", "parts"])
def test_an_output_that_is_what_a_tool_returned(tool: str) -> None:
    """`tool_use_behavior` makes a tool's result the output; it comes back as it was."""
    with ScriptedOpenAI([{"call": [[tool, {}]]}]) as server:

        async def work(model: Any) -> None:
            async def once() -> Any:
                agent = apps.kinds(model, {tool: apps.RESULTS[tool]})
                agent.tool_use_behavior = StopAtTools(stop_at_tool_names=[tool])
                return await Runner.run(agent, TASK, run_id="here", run_config=OFF)

            first = (await once()).final_output
            forget_everything()
            again = (await once()).final_output
            assert (type(again), again) == (type(first), first)

        talk(server, work)
        assert len(server.answered) == 1
        assert outside(f"end {tool}") == 1


def test_another_input_is_refused_and_both_are_shown() -> None:
    """Of a run that is finished and of one that waits; again=True begins anew."""
    with ScriptedOpenAI(NESTED) as server:

        async def work(model: Any) -> None:
            await run_nested(model)
            other = "Refund order B18 please."
            for given in (other, [{"role": "user", "content": TASK}]):
                with pytest.raises(InputChanged) as refused:
                    await run_nested(model, given)
                assert TASK in str(refused.value)
            assert other in str(await _refusal(model, other))
            before = len(server.answered)
            result = await run_nested(model, other, again=True)
            assert result.final_output == "Done, kept."
            assert len(server.answered) == before + 5
            with pytest.raises(InputChanged):
                await run_nested(model)

        talk(server, work)


async def _refusal(model: Any, given: Any) -> Exception:
    with pytest.raises(InputChanged) as refused:
        await run_nested(model, given)
    return refused.value


def test_an_input_of_items() -> None:
    """Also the list that another run left: the SDK's way to go on with a conversation."""
    with ScriptedOpenAI(NESTED) as server:

        async def work(model: Any) -> None:
            first = await run_nested(model)
            given = [*first.to_input_list(), {"role": "user", "content": "And now?"}]
            for _ in range(2):
                second = await run_nested(model, given, run_id="second")
            assert second.final_output == "Done, kept."
            assert second.to_input_list()[: len(given)] == given

        talk(server, work)
        assert len(server.answered) == 10


def test_from_code_that_is_not_async() -> None:
    """In the thread's own loop, which stays open, as the SDK has it: clients live in it."""
    with ScriptedOpenAI(NESTED) as server:
        client = client_of(server.url)
        model = agents.OpenAIResponsesModel("scripted", client)
        for _ in range(2):
            agent = apps.nested(model)
            result = Runner.run_sync(agent, TASK, run_id="here", run_config=OFF)
            assert result.final_output == "Done, kept."
        assert len(server.answered) == 5

        async def inside() -> None:
            with pytest.raises(RuntimeError, match="event loop"):
                Runner.run_sync(agent, TASK, run_id="other")
            await client.close()

        loop = asyncio.get_event_loop_policy().get_event_loop()
        loop.run_until_complete(inside())
        loop.close()


def test_a_model_by_its_name_and_a_provider() -> None:
    """The model that a `model_provider` gives is recorded like one that is handed over."""
    with ScriptedOpenAI(NESTED) as server:

        async def work(_: Any) -> None:
            async with client_of(server.url) as client:
                for name in ("one", None):
                    config = RunConfig(
                        tracing_disabled=True,
                        model_provider=OpenAIProvider(openai_client=client),
                        model=name,
                    )
                    for _ in range(2):
                        given = {"run_id": f"by {name}", "run_config": config}
                        result = await Runner.run(apps.nested("scripted"), TASK, **given)
                    assert result.final_output == "Done, kept."

        talk(server, work)
        assert len(server.answered) == 10


# ---------------------------------------------------------------------- what is written


def everything(folder: Path) -> str:
    return "\n".join(p.read_text() for p in folder.rglob("*") if p.is_file())


def test_no_context_key_header_or_client_reaches_the_disk(store_dir: Path) -> None:
    """They are the program's; with a serialiser it says itself what is kept of the context."""

    @function_tool
    async def write_down(context: ToolContext[Any], text: str) -> str:
        """Keep a text."""
        context.context["count"] = context.context.get("count", 0) + 1
        return "kept"

    with ScriptedOpenAI(NESTED) as server:

        async def work(_: Any) -> None:
            async with AsyncOpenAI(
                base_url=server.url,
                api_key="key-of-the-client-3141",
                default_headers={"X-Header": "header-of-the-client-2718"},
                max_retries=0,
            ) as client:
                agent = apps.nested(agents.OpenAIResponsesModel("scripted", client))
                agent.tools[1] = write_down
                context = {"password": "value-of-the-context-1618", "client": client}
                given = {"context": context, "run_config": OFF}
                result = await Runner.run(agent, TASK, run_id="bare", **given)
                assert result.context_wrapper.context is context
                assert context["count"] == 1
                told = {"context_serializer": lambda context: {"count": context.get("count")}}
                await Runner.run(agent, TASK, run_id="told", **given, **told)

        talk(server, work)
    written = everything(store_dir)
    for secret in ("key-of-the-client", "header-of-the-client", "value-of-the-context"):
        assert secret not in written
    assert '"context":{"count":2}' in written
    assert '"context":{"count"' not in everything(store_dir / "bare")


def test_a_context_is_given_back_by_the_programs_own_function() -> None:
    """What was kept of it counts, and not what the next start is given."""
    seen: list[Any] = []
    users = itertools.count(1)

    @function_tool(needs_approval=True)
    async def issue_refund(context: ToolContext[Any], order_id: str, amount: int) -> str:
        """Pay money back."""
        seen.append(context.context)
        return "refunded"

    with ScriptedOpenAI(REFUND) as server:

        async def once(model: Any) -> Any:
            agent = Agent(name="refund agent", model=model, tools=[issue_refund])
            return await Runner.run(
                agent,
                TASK,
                run_id="here",
                run_config=OFF,
                context={"user": next(users)},
                context_serializer=lambda context: {"kept": context["user"]},
                context_deserializer=lambda kept: {"user": kept["kept"] + 41},
            )

        talk(server, once)
        answer("here", True)
        forget_everything()
        talk(server, once)
    assert seen == [{"user": 42}]


# ---------------------------------------------------------------------- kept by the provider


@pytest.mark.parametrize("place", ["begin lookup_order", "between", "paused", "hook model 2"])
def test_a_conversation_that_the_provider_keeps(life: Start, place: str) -> None:
    """`auto_previous_response_id`: each answer names the one before, also after a crash."""
    one = life("refund", more={"auto_previous_response_id": True})
    one.killed(place)
    assert one.finished()["final"] == "Refund for order A17: refunded 40 EUR."
    assert one.asked() == 5
    sent = [body.get("previous_response_id") for body in one.server.bodies.values()]
    assert sent == [None, "resp_0001", "resp_0002", "resp_0003", "resp_0004"]


@pytest.mark.parametrize("app", ["kinds", "three"])
def test_the_model_is_told_what_the_sdk_tells_it(life: Start, app: str) -> None:
    """Request by request the same as without us, whatever the tools return."""
    script = {"kinds": KINDS, "three": THREE}[app]
    ours, theirs = life(app, script=script), life(app, script=script, plain=True)
    ours.finished(), theirs.finished()
    assert _requests(ours) == _requests(theirs)


def _requests(one: Life) -> list[Any]:
    return [json.loads(json.dumps(body)) for body in one.server.bodies.values()]
