"""Tools that are no functions and that this process runs: a shell, a custom tool, a computer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from agents import (
    Agent,
    ApplyPatchTool,
    CustomTool,
    Model,
    ModelResponse,
    RunHooks,
    ShellTool,
    Usage,
)
from agents.tool import ShellCommandOutput, ShellResult
from openai.types.responses import ResponseCustomToolCall, ResponseFunctionShellToolCall

from caravanserai.openai_agents import Runner
from integration_tests.openai_agents.paused import QUIET, says

RUN = "local"


class Calling(Model):
    """Asks for one shell command and one custom call at once, then ends.

    Attributes:
        asked: how often it was asked.
        outputs: types of what it was given back.
    """

    def __init__(self) -> None:
        self.asked = 0
        self.outputs: list[str] = []

    async def get_response(self, *args: Any, **_: Any) -> Any:
        self.asked += 1
        items = args[1] if isinstance(args[1], list) else []
        self.outputs = [i["type"] for i in items if str(i.get("type", "")).endswith("_output")]
        output: list[Any] = [says("Done.")]
        if not self.outputs:
            action = {"commands": ["make", "make install"], "timeout_ms": None}
            shell = {"id": "sh", "call_id": "call_sh", "type": "shell_call", "action": action}
            shell |= {"status": "completed", "environment": None}
            custom = {"call_id": "call_cu", "type": "custom_tool_call", "name": "note"}
            output = [
                ResponseFunctionShellToolCall.model_validate(
                    {**shell, "action": {**action, "max_output_length": None}}
                ),
                ResponseCustomToolCall.model_validate({**custom, "input": "it is built"}),
            ]
        return ModelResponse(output=output, usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **options: Any) -> Any:
        raise NotImplementedError


class Watching(RunHooks[Any]):
    """Tells when a tool has ended."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    async def on_tool_end(self, *_: Any, **__: Any) -> None:
        self.ended.set()


def agent_of(model: Model, done: list[str], *, hangs: bool = False) -> Agent[Any]:
    """Return an agent; where it `hangs`, its custom tool never returns."""

    def shell(request: Any) -> ShellResult:
        done.append(" && ".join(request.data.action.commands))
        return ShellResult(output=[ShellCommandOutput(stdout="ok", command="make")])

    async def note(ctx: Any, text: str) -> str:
        if hangs:
            await asyncio.Event().wait()
        done.append(text)
        return "noted"

    tools: list[Any] = [
        ShellTool(executor=shell),
        CustomTool(name="note", description="Note it.", on_invoke_tool=note),
    ]
    return Agent(name="builder", instructions="Build.", model=model, tools=tools)


def start(agent: Agent[Any], store: Path) -> Any:
    """Start the run, or go on with it."""
    return Runner.run_sync(agent, "Build it.", run_id=RUN, store=store, run_config=QUIET)


def test_a_shell_command_that_ended_is_not_run_again(tmp_path: Path) -> None:
    done: list[str] = []

    async def cut_off() -> None:
        watching = Watching()
        given: dict[str, Any] = {"run_id": RUN, "store": tmp_path, "run_config": QUIET}
        agent = agent_of(Calling(), done, hangs=True)
        work = Runner.run(agent, "Build it.", hooks=watching, **given)
        task = asyncio.ensure_future(work)
        await watching.ended.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cut_off())
    assert done == ["make && make install"]

    model = Calling()
    result = start(agent_of(model, done), tmp_path)

    assert result.final_output == "Done."
    assert done == ["make && make install", "it is built"]
    assert model.asked == 1
    assert sorted(model.outputs) == ["custom_tool_call_output", "shell_call_output"]


def test_what_is_not_recorded_is_named_in_the_first_note(tmp_path: Path) -> None:
    class Editor:
        def create_file(self, operation: Any) -> Any: ...
        def update_file(self, operation: Any) -> Any: ...
        def delete_file(self, operation: Any) -> Any: ...

    agent = agent_of(Calling(), [])
    agent.tools.append(ApplyPatchTool(editor=Editor()))
    start(agent, tmp_path)

    note = (tmp_path / RUN / "waypoint-1.md").read_text(encoding="utf-8")
    told = note.partition("## Decided")[2]
    assert "`apply_patch` does is not recorded call by call" in told
