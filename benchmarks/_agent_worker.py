"""Agents of the OpenAI SDK in a process: run, go on. Commands as in `benchmarks._worker`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
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
from benchmarks._agent_tasks import SAID, WARM, task
from benchmarks._states import text
from benchmarks._worker import mark

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

    Way = Callable[[Agent[Any], str, str, str], Coroutine[Any, Any, Any]]
    """Runs an agent on a task, under the name of a run, in a store."""

STORE = "store"
RUN_ID = "run"
RESULT = 1000
"""Characters that a tool returns."""


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

    async def get_response(self, *args: Any, **given: Any) -> Any:
        output, response_id = self._output(_input(args, given))
        usage = Usage(requests=1, input_tokens=10, output_tokens=5, total_tokens=15)
        return ModelResponse(output=output, usage=usage, response_id=response_id)

    async def stream_response(self, *args: Any, **given: Any) -> AsyncIterator[Any]:
        output, response_id = self._output(_input(args, given))
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


def _input(args: tuple[Any, ...], given: dict[str, Any]) -> Any:
    return given["input"] if "input" in given else args[1]


async def read(page: int) -> str:
    """Read a page."""
    return text(page, RESULT)


def agent_of(model: Model, tool: Any = read) -> Agent[Any]:
    """Return an agent with one tool."""
    tools = [agents.function_tool(tool)]
    return Agent(name="reader", instructions="Read page by page.", model=model, tools=tools)


QUIET = RunConfig(tracing_disabled=True)


async def plain(agent: Agent[Any], given: str, *_: str) -> Any:
    """Run as the SDK does."""
    return await agents.Runner.run(agent, given, max_turns=None, run_config=QUIET)


async def ours(agent: Agent[Any], given: str, run_id: str, store: str) -> Any:
    """Run with waypoints."""
    from caravanserai.openai_agents import Runner

    return await Runner.run(
        agent, given, max_turns=None, run_config=QUIET, run_id=run_id, store=store
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

    async def run(agent: Agent[Any], given: str, *_: str) -> Any:
        agent_now[:] = [agent]
        return await workflow(given)

    step = DBOS.step()(read)
    DBOS.launch()
    return run, step


class Agents:
    """Runs agents, one after another, in its working folder.

    Before anything is timed there is a short run of the same kind: what is imported late, and what
    is prepared for the first call, does not count.
    """

    def __init__(self) -> None:
        self._loop = asyncio.Runner()
        self._ways: dict[str, tuple[Way, Any]] = {"plain": (plain, read), "ours": (ours, read)}
        self._served: dict[str, Model] = {}
        self._warm: set[tuple[str, str | None]] = set()
        self._count = 0

    def _warm_up(self, way: str, url: str | None = None) -> None:
        if way == "dbos" and way not in self._ways:
            self._ways[way] = dbos()
        if url is not None and url not in self._served:
            client = AsyncOpenAI(base_url=url, api_key="none")
            self._served[url] = OpenAIResponsesModel("scripted", client)
        if (way, url) not in self._warm:
            self._warm.add((way, url))
            self._done(way, WARM, f"warm-{len(self._warm)}", url=url)

    def _done(
        self,
        way: str,
        turns: int,
        run_id: str,
        *,
        url: str | None = None,
        store: str = STORE,
        asked: Callable[[int], None] | None = None,
    ) -> None:
        run, tool = self._ways[way]
        model = Scripted(turns, asked) if url is None else self._served[url]
        result = self._loop.run(run(agent_of(model, tool), task(turns), run_id, store))
        said = getattr(result, "final_output", result)
        if said != SAID:
            raise RuntimeError(f"the run came to another end: {said!r}")

    def run(
        self, way: str, turns: int, times: int = 1, url: str | None = None, marked: bool = False
    ) -> Any:
        """Run anew, `times` times; returns time and CPU time of a turn, in nanoseconds.

        `url` is that of a scripted server; by default the model is in the process.
        """
        self._warm_up(way, url)
        spent, used = [], []
        for _ in range(times):
            self._count += 1
            if marked:
                mark("begin")
            cpu, start = time.process_time_ns(), time.perf_counter_ns()
            self._done(way, turns, f"run-{self._count}", url=url)
            spent.append((time.perf_counter_ns() - start) / turns)
            used.append((time.process_time_ns() - cpu) / turns)
            if marked:
                mark("end")
        return {"times": spent, "cpu": used}

    def growth(self, way: str, turns: int) -> Any:
        """Run once, looking at the disk and the clock before each answer."""
        self._warm_up(way)
        at: list[tuple[int, int]] = []
        folder = Path(STORE) / RUN_ID if way == "ours" else None

        def look(_: int) -> None:
            journal = 0 if folder is None else _worker.measure(folder)["journal"]
            at.append((time.perf_counter_ns(), journal))

        self._done(way, turns, RUN_ID, asked=look)
        found = {} if folder is None else _worker.measure(folder)
        return {"ns": [ns for ns, _ in at], "bytes": [size for _, size in at], **found}

    def states(self, turns: int, path: str) -> Any:
        """Run as the SDK does; returns the size of the run state at the end of each turn.

        The last one is written to a file.
        """
        self._warm_up("plain")
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
        """Run in a process that is killed when the model is about to give an answer."""
        self._warm_up("ours")
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(BaseException):
                self._loop = asyncio.Runner()
                self._done("ours", turns, RUN_ID, store="cut", asked=lambda n: _kill(n == at))
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
            raise RuntimeError("the run was not killed")
        return {}

    def resumed(self, turns: int, store: str) -> Any:
        """Go on with a run; returns the time until the model is asked first, and for what.

        Of a run that is finished: until its result is there, and 0.
        """
        self._warm_up("ours")
        asked: list[tuple[int, int]] = []
        start = time.perf_counter_ns()
        self._done(
            "ours",
            turns,
            RUN_ID,
            store=store,
            asked=lambda n: asked.append((n, time.perf_counter_ns())),
        )
        number, at = asked[0] if asked else (0, time.perf_counter_ns())
        return {"ns": at - start, "asked": number}

    def from_json(self, path: str) -> Any:
        """Read a run state with the SDK; returns the time, without that of the file."""
        self._warm_up("plain")
        data = Path(path).read_bytes()
        agent = agent_of(Scripted(1))
        start = time.perf_counter_ns()
        self._loop.run(RunState.from_json(agent, json.loads(data)))
        return {"ns": time.perf_counter_ns() - start}


def _kill(now: bool) -> None:
    if now:
        os.kill(os.getpid(), signal.SIGKILL)


def _state(result: Any) -> str:
    return json.dumps(result.to_state().to_json(), separators=(",", ":"))


if __name__ == "__main__":
    _worker.main({"agents": Agents})
