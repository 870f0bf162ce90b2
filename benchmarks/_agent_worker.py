"""Agents of the OpenAI SDK in a process: run, go on. Commands as in `benchmarks._worker`."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import agents
from agents import Agent, Model, ModelResponse, RunConfig, RunHooks, RunState, Usage
from agents.models.openai_responses import OpenAIResponsesModel
from openai import AsyncOpenAI
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from benchmarks import _worker
from benchmarks._states import text
from benchmarks._worker import mark

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    Way = Callable[[Agent[Any], str, str], Coroutine[Any, Any, Any]]
    """Runs an agent on a task, under the name of a run."""

STORE = "store"
RUN_ID = "run"
SAID = "All is read."
WARM = 3
"""Turns of the run before all others."""
RESULT = 1000
"""Characters that a tool returns."""


def task(turns: int) -> str:
    """Return what an agent is asked to do in so many turns; a scripted server goes by it."""
    return f"Read all {turns} pages."


class Scripted(Model):
    """A model that answers at once: it calls the tool in every turn, and has the last word.

    Args:
        turns: how many answers make a run.
        asked: called with the number of each answer before it is given.
    """

    def __init__(self, turns: int, asked: Callable[[int], None] | None = None) -> None:
        self.turns = turns
        self.asked = asked

    def _output(self, given: Any) -> tuple[list[Any], str]:
        items = [] if isinstance(given, str) else given
        number = 1 + sum(item.get("type") == "function_call_output" for item in items)
        if self.asked is not None:
            self.asked(number)
        if number < self.turns:
            call = ResponseFunctionToolCall(
                type="function_call",
                id=f"fc_{number}",
                call_id=f"call_{number}",
                name="read",
                arguments=json.dumps({"page": number}),
                status="completed",
            )
            return [call], f"resp_{number}"
        said = ResponseOutputText(type="output_text", text=SAID, annotations=[])
        message = ResponseOutputMessage(
            type="message", id="msg", role="assistant", status="completed", content=[said]
        )
        return [message], f"resp_{number}"

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> Any:
        output, response_id = self._output(input)
        usage = Usage(requests=1, input_tokens=10, output_tokens=5, total_tokens=15)
        return ModelResponse(output=output, usage=usage, response_id=response_id)

    async def stream_response(
        self, system_instructions: Any, input: Any, *_: Any, **__: Any
    ) -> AsyncIterator[Any]:
        output, response_id = self._output(input)
        yield ResponseCompletedEvent(
            type="response.completed",
            sequence_number=0,
            response=Response(
                id=response_id,
                created_at=0,
                model="scripted",
                object="response",
                output=output,
                parallel_tool_calls=True,
                tool_choice="auto",
                tools=[],
            ),
        )


async def read(page: int) -> str:
    """Read a page."""
    return text(page, RESULT)


def agent_of(model: Model, tool: Any = read) -> Agent[Any]:
    """Return an agent with one tool."""
    tools = [agents.function_tool(tool)]
    return Agent(name="reader", instructions="Read page by page.", model=model, tools=tools)


QUIET = RunConfig(tracing_disabled=True)


async def plain(agent: Agent[Any], given: str, _: str) -> Any:
    """Run as the SDK does."""
    return await agents.Runner.run(agent, given, max_turns=None, run_config=QUIET)


async def ours(agent: Agent[Any], given: str, run_id: str) -> Any:
    """Run with waypoints."""
    from caravanserai.openai_agents import Runner

    return await Runner.run(
        agent, given, max_turns=None, run_config=QUIET, run_id=run_id, store=STORE
    )


def dbos() -> tuple[Way, Any]:
    """Start DBOS; returns what runs an agent as one of its workflows, and the tool as a step."""
    from dbos import DBOS  # type: ignore[import-not-found, unused-ignore]
    from dbos_openai_agents import (  # type: ignore[import-not-found, unused-ignore]
        DBOSRunner,
    )

    DBOS(
        config={
            "name": "benchmark",
            "system_database_url": f"sqlite:///{Path.cwd()}/dbos.sqlite",
            "run_admin_server": False,
            "log_level": "WARNING",
        }
    )
    agent_now: list[Agent[Any]] = []  # a workflow takes only what can be pickled

    @DBOS.workflow()  # type: ignore[untyped-decorator, unused-ignore]
    async def workflow(given: str) -> Any:
        found = await DBOSRunner.run(agent_now[0], given, max_turns=None, run_config=QUIET)
        return found.final_output

    async def run(agent: Agent[Any], given: str, _: str) -> Any:
        agent_now[:] = [agent]
        return await workflow(given)

    step = DBOS.step()(read)
    DBOS.launch()
    return run, step


class Agents:
    """Runs agents in one way, one after another, in its working folder.

    Before anything is timed there is a short run: what is imported late, and what is prepared for
    the first call, does not count.

    Args:
        way: "plain", "ours" or "dbos".
        url: of a scripted server that is asked; by default the model is in the process.
    """

    def __init__(self, way: str, url: str | None = None) -> None:
        self._loop = asyncio.Runner()
        self._way, self._tool = {"plain": (plain, read), "ours": (ours, read)}.get(way) or dbos()
        self._served = None
        if url is not None:
            client = AsyncOpenAI(base_url=url, api_key="none")
            self._served = OpenAIResponsesModel("scripted", client)
        self._count = 0
        self.run(WARM)

    def _done(self, turns: int, run_id: str, asked: Callable[[int], None] | None = None) -> Any:
        agent = agent_of(self._served or Scripted(turns, asked), self._tool)
        result = self._loop.run(self._way(agent, task(turns), run_id))
        said = getattr(result, "final_output", result)
        if said != SAID:
            raise RuntimeError(f"the run came to another end: {said!r}")
        return result

    def run(self, turns: int, times: int = 1, marked: bool = False) -> Any:
        """Run anew, `times` times; returns time and CPU time of a turn, in nanoseconds."""
        spent, used = [], []
        for _ in range(times):
            self._count += 1
            if marked:
                mark("begin")
            cpu, start = time.process_time_ns(), time.perf_counter_ns()
            self._done(turns, f"run-{self._count}")
            spent.append((time.perf_counter_ns() - start) / turns)
            used.append((time.process_time_ns() - cpu) / turns)
            if marked:
                mark("end")
        return {"times": spent, "cpu": used}

    def growth(self, turns: int) -> Any:
        """Run once, looking at the disk and the clock before each answer."""
        at: list[tuple[int, int]] = []
        folder = Path(STORE) / RUN_ID

        def look(_: int) -> None:
            journal = _worker.measure(folder)["journal"] if folder.exists() else 0
            at.append((time.perf_counter_ns(), journal))

        self._done(turns, RUN_ID, look)
        found = _worker.measure(folder) if folder.exists() else {}
        return {"ns": [ns for ns, _ in at], "bytes": [size for _, size in at], **found}

    def states(self, turns: int, path: str) -> Any:
        """Run as the SDK does; returns the size of the run state at the end of each turn.

        The last one is written to a file.
        """
        sizes: list[int] = []
        streamed: list[Any] = []

        class Hooks(RunHooks[Any]):
            async def on_llm_start(self, *_: Any, **__: Any) -> None:
                sizes.append(len(_state(streamed[0])))

        async def run() -> None:
            begun = agents.Runner.run_streamed(
                agent_of(Scripted(turns)),
                task(turns),
                max_turns=None,
                run_config=QUIET,
                hooks=Hooks(),
            )
            streamed.append(begun)
            async for _ in begun.stream_events():
                pass

        self._loop.run(run())
        last = _state(streamed[0])
        Path(path).write_text(last)
        # Before the first answer no turn has ended.
        return {"sizes": [*sizes[1:], len(last)]}

    def killed(self, turns: int, at: int) -> Any:
        """Run until the model is about to give an answer, and be killed there."""

        def kill(number: int) -> None:
            if number == at:
                os.kill(os.getpid(), signal.SIGKILL)

        self._done(turns, RUN_ID, kill)
        return {}

    def resumed(self, turns: int) -> Any:
        """Go on with a run; returns the time until the model is asked first, and for what.

        Of a run that is finished: until its result is there, and 0.
        """
        asked: list[tuple[int, int]] = []
        start = time.perf_counter_ns()
        self._done(turns, RUN_ID, lambda n: asked.append((n, time.perf_counter_ns())))
        number, at = asked[0] if asked else (0, time.perf_counter_ns())
        return {"ns": at - start, "asked": number}

    def from_json(self, path: str) -> Any:
        """Read a run state with the SDK; returns the time, without that of the file."""
        data = Path(path).read_bytes()
        agent = agent_of(Scripted(1))
        start = time.perf_counter_ns()
        self._loop.run(RunState.from_json(agent, json.loads(data)))
        return {"ns": time.perf_counter_ns() - start}


def _state(result: Any) -> str:
    return json.dumps(result.to_state().to_json(), separators=(",", ":"))


class Server:
    """The scripted server, for as long as this process lives."""

    def __init__(self, turns: list[int]) -> None:
        from examples.scripted_openai import ScriptedOpenAI

        self._server = ScriptedOpenAI(
            [
                *(
                    {"if_said": task(n), "call": [["read", {"page": 1}]], "times": n - 1}
                    for n in [WARM, *turns]
                ),
                {"say": SAID},
            ]
        )
        self._server.__enter__()

    def where(self) -> Any:
        return {"url": self._server.url}


if __name__ == "__main__":
    _worker.main({"agents": Agents, "server": Server})
