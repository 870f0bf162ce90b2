"""What the adapter rests on and CrewAI documents nowhere: a CrewAI that differs is named here.

Seen in crewai 1.15.30. Each test is about CrewAI alone: crews here have no waypoints. Where one of
these fails, read the modules that the test names before anything is changed.
"""

# ruff: noqa: E402

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from integration_tests.support import require

require("crewai")

# In front of all that imports CrewAI.
from integration_tests.crewai import offline

# isort: split
import crewai.task as task_module
from crewai import LLM, Agent, Crew, CrewOutput, Task, TaskOutput
from crewai.agents.agent_builder.base_agent import BaseAgent
from crewai.core.providers import human_input
from crewai.events import crewai_event_bus
from crewai.hooks.dispatch import HookAborted
from crewai.llms.base_llm import BaseLLM
from crewai.tasks.conditional_task import ConditionalTask
from crewai.tools import BaseTool, tool
from crewai.tools.structured_tool import CrewStructuredTool
from crewai.utilities.agent_utils import extract_tool_call_info
from crewai.utilities.evaluators.crew_evaluator_handler import CrewEvaluator
from crewai.utilities.formatter import aggregate_raw_outputs_from_task_outputs
from crewai.utilities.guardrail import GuardrailResult

from caravanserai.crewai._sdk import contexts
from integration_tests.openai_agents.scripted import ScriptedOpenAI

# CrewAI reads its own deprecated fields.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:crewai")

CALLING: list[Any] = [{"call": [["lookup", {"key": "a"}]]}, {"say": "RESULT."}]

_kept: contextvars.ContextVar[str] = contextvars.ContextVar("kept", default="")


class TextLLM(BaseLLM):
    """A model in this process that calls tools by text."""

    def call(self, messages: Any, *args: Any, **kwargs: Any) -> str:
        """Look up, then tell."""
        if any(message["role"] == "assistant" for message in messages):
            return "Thought: I know.\nFinal Answer: RESULT."
        return 'Thought: I look.\nAction: lookup\nAction Input: {"key": "a"}'

    def supports_function_calling(self) -> bool:
        """Say no."""
        return False


@pytest.fixture
def server() -> Iterator[ScriptedOpenAI]:
    with ScriptedOpenAI(CALLING) as scripted:
        yield scripted
    crewai_event_bus.flush()


def llm_of(server: ScriptedOpenAI, **more: Any) -> LLM:
    given = {"api_key": offline.KEY, "max_retries": 0, **more}
    return LLM(model="openai/gpt-4o-mini", base_url=server.url, **given)


def looking(work: Callable[[str], Any] = lambda key: f"value of {key}") -> Any:
    """Return a tool, anew."""

    @tool
    def lookup(key: str) -> Any:
        """Look a key up."""
        return work(key)

    return lookup


def crew_of(llm: Any, *tasks: dict[str, Any], tools: Any = (), **more: Any) -> Crew:
    """Return a crew of one agent, with a task for each of the options."""
    agent = Agent(role="Worker", goal="Work.", backstory="Of age.", llm=llm, tools=list(tools))
    made = []
    for number, options in enumerate(tasks or ({},)):
        kind = options.pop("kind", Task)
        text = {"description": f"Do {number} of {{topic}}.", "expected_output": "A text."}
        made.append(kind(name=f"task-{number}", agent=agent, **text, **options))
    return Crew(name="small", agents=[agent], tasks=made, **more)


def spy(monkeypatch: pytest.MonkeyPatch, cls: Any, name: str) -> list[tuple[Any, Any, Any]]:
    """Return a list of the calls of a method from now on: its object, arguments, by name."""
    calls: list[tuple[Any, Any, Any]] = []
    method = cls.__dict__[name]

    def recorded(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append((self, args, kwargs))
        return method(self, *args, **kwargs)

    async def arecorded(self: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append((self, args, kwargs))
        return await method(self, *args, **kwargs)

    wrapped = arecorded if inspect.iscoroutinefunction(method) else recorded
    monkeypatch.setattr(cls, name, wrapped)
    return calls


GIVEN = {"topic": "bees"}

# ---------------------------------------------------------------------- models: _models, _sdk


@pytest.mark.parametrize("streamed", [False, True])
def test_a_client_counts_what_each_answer_used_once(
    server: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch, streamed: bool
) -> None:
    """And counts it again when it is told again, which is how recorded answers are counted."""
    counted = spy(monkeypatch, BaseLLM, "_track_token_usage_internal")
    llm = llm_of(server, stream=streamed)

    assert llm.call("Hello.") == "RESULT."

    ((self, (usage,), _),) = counted
    assert self is llm
    assert (usage["total_tokens"], usage["prompt_tokens"]) == (15, 10)
    BaseLLM._track_token_usage_internal(llm, usage)
    assert llm.get_token_usage_summary().total_tokens == 30
    assert llm.get_token_usage_summary().successful_requests == 2


def test_an_async_client_counts_likewise(
    server: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = spy(monkeypatch, BaseLLM, "_track_token_usage_internal")
    assert asyncio.run(llm_of(server).acall("Hello.")) == "RESULT."
    assert len(counted) == 1


def test_the_tokens_of_a_crew_are_those_that_its_models_counted(server: ScriptedOpenAI) -> None:
    llm = llm_of(server)
    result = crew_of(llm).kickoff(inputs=GIVEN)
    assert result.token_usage.total_tokens == llm.get_token_usage_summary().total_tokens == 15


@pytest.mark.parametrize("way", ["kickoff", "akickoff"])
def test_agents_ask_by_a_call_with_the_messages_first(
    server: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Also those of an async kickoff: the executor has no other way."""
    llm = llm_of(server)
    asked = spy(monkeypatch, type(llm), "call")
    _start(crew_of(llm, tools=[looking()]), way)
    assert len(asked) == 2
    for _, args, kwargs in asked:
        messages = args[0] if args else kwargs["messages"]
        assert [message["role"] for message in messages][:2] == ["system", "user"]


def _start(crew: Crew, way: str) -> CrewOutput:
    if way == "kickoff":
        return crew.kickoff(inputs=dict(GIVEN))

    async def started() -> Any:
        return await getattr(crew, way)(inputs=dict(GIVEN))

    return asyncio.run(started())


def test_a_call_of_a_tool_is_told_as_id_name_and_arguments(server: ScriptedOpenAI) -> None:
    """As a client's own object and as the dict that it may become."""
    schema = {"name": "lookup", "description": "Look.", "parameters": {"type": "object"}}
    offered = [{"type": "function", "function": schema}]
    (call,) = llm_of(server).call("Hello.", tools=offered)
    for item in (call, call.model_dump() if hasattr(call, "model_dump") else call):
        name, tool_name, arguments = extract_tool_call_info(item)
        assert (name, tool_name) == ("call_0001_0", "lookup")
        assert arguments in ('{"key": "a"}', {"key": "a"})
    assert extract_tool_call_info("no call") is None


# ---------------------------------------------------------------------- tools: _calls


def test_a_tool_that_a_model_calls_by_function_is_run(
    server: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By `run` with the arguments by name; its limit is counted inside of it."""
    lookup = looking()
    lookup.max_usage_count = 5
    ran = spy(monkeypatch, type(lookup), "run")
    crew_of(llm_of(server), tools=[lookup]).kickoff(inputs=GIVEN)
    assert [(args, kwargs) for _, args, kwargs in ran] == [((), {"key": "a"})]
    assert ran[0][0].current_usage_count == 1


def test_a_tool_that_a_model_calls_by_text_is_invoked(monkeypatch: pytest.MonkeyPatch) -> None:
    """By `invoke` of a copy in CrewAI's form, which knows the tool that it is of."""
    lookup = looking()
    invoked = spy(monkeypatch, CrewStructuredTool, "invoke")
    result = crew_of(TextLLM(model="text"), tools=[lookup]).kickoff(inputs=GIVEN)
    assert result.raw == "RESULT."
    ((self, args, kwargs),) = invoked
    assert self.name == lookup.name
    assert isinstance(self._original_tool, BaseTool)
    assert (kwargs.get("input") or args[0])["key"] == "a"
    assert self.current_usage_count == 2, "once inside of it, and once by who invokes it"
    crewai_event_bus.flush()


@pytest.mark.parametrize("calls", ["function", "text"])
@pytest.mark.parametrize("way", ["kickoff", "akickoff"])
def test_whatever_a_tool_raises_is_told_to_the_model(
    server: ScriptedOpenAI, calls: str, way: str
) -> None:
    """Also an abortion: so a start that has to end is ended where a model is asked next."""
    models = {"function": lambda: llm_of(server), "text": lambda: TextLLM(model="text")}
    for error in (HookAborted("stopped", "a test"), ConnectionError("no way")):

        def fails(key: str, error: Exception = error) -> str:
            raise error

        crew = crew_of(models[calls](), tools=[looking(fails)])
        assert _start(crew, way).raw == "RESULT."
    crewai_event_bus.flush()


@pytest.mark.parametrize("way", ["kickoff", "akickoff"])
def test_an_abortion_leaves_where_a_model_is_asked(
    server: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """At once, and any other error after the agent's retries: so errors of ours are both."""
    llm = llm_of(server)
    asked: list[Any] = []

    def aborts(self: Any, *args: Any, **kwargs: Any) -> str:
        asked.append(args)
        raise HookAborted("stopped", "a test")

    monkeypatch.setattr(type(llm), "call", aborts)
    with pytest.raises(HookAborted, match="stopped"):
        _start(crew_of(llm), way)
    assert len(asked) == 1


# ---------------------------------------------------------------------- agents: _instrument


def test_an_agent_begins_its_task_anew_from_inside_where_something_fails(
    server: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its own `execute_task`, for the same task."""
    llm = llm_of(server)
    executed = spy(monkeypatch, Agent, "execute_task")
    call = type(llm).call
    failures = [RuntimeError("down")]

    def failing(self: Any, *args: Any, **kwargs: Any) -> Any:
        if failures:
            raise failures.pop()
        return call(self, *args, **kwargs)

    monkeypatch.setattr(type(llm), "call", failing)
    crew = crew_of(llm)
    assert crew.kickoff(inputs=GIVEN).raw == "RESULT."
    assert [(self, (*args, *kwargs.values())[0]) for self, args, kwargs in executed] == [
        (crew.agents[0], crew.tasks[0])
    ] * 2


def test_agents_define_how_a_task_is_executed() -> None:
    assert issubclass(Agent, BaseAgent)
    for name in ("execute_task", "aexecute_task"):
        assert list(inspect.signature(getattr(Agent, name)).parameters)[:2] == ["self", "task"]


# ---------------------------------------------------------------------- tasks: _kickoff


@pytest.mark.parametrize(
    ("way", "name"),
    [
        ("kickoff", "execute_sync"),
        ("kickoff_async", "execute_sync"),
        ("akickoff", "aexecute_sync"),
    ],
)
def test_a_crew_executes_its_tasks_in_the_context_of_its_kickoff(
    server: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch, way: str, name: str
) -> None:
    """The very objects of the crew; also in a thread for an async task."""
    found: list[str] = []
    executed = spy(monkeypatch, Task, name)
    crew = crew_of(llm_of(server), {}, {"async_execution": True}, {})
    crew.task_callback = lambda output: found.append(f"{output.name} {_kept.get()}")
    token = _kept.set("here")
    try:
        _start(crew, way)
    finally:
        _kept.reset(token)
    assert sorted(found) == ["task-0 here", "task-1 here", "task-2 here"]
    tasks = [self for self, _, _ in executed]
    expected = [crew.tasks[0], crew.tasks[2]] if way != "akickoff" else crew.tasks
    assert all(any(one is task for one in tasks) for task in expected)


def test_kickoff_async_is_a_kickoff_in_a_thread(
    server: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = spy(monkeypatch, Crew, "kickoff")
    _start(crew_of(llm_of(server)), "kickoff_async")
    assert len(started) == 1


def test_where_tasks_and_agents_are_given_their_context() -> None:
    """`crewai.task`, `crewai.agent.core`, `crewai.utilities.formatter`: its place, and its form."""
    for name in ("execute_sync", "execute_async", "aexecute_sync"):
        assert list(inspect.signature(getattr(Task, name)).parameters)[2] == "context", name
    for cls in (BaseAgent, Agent):
        for name in ("execute_task", "aexecute_task"):
            given = list(inspect.signature(getattr(cls, name)).parameters)
            assert given[1:3] == ["task", "context"], (cls, name)
    made = [TaskOutput(description="d", agent="a", raw=raw) for raw in "xy"]
    assert aggregate_raw_outputs_from_task_outputs(made) == contexts("x", "y")


@pytest.mark.parametrize("way", ["kickoff_for_each", "kickoff_for_each_async"])
def test_a_kickoff_for_each_is_one_of_a_copy_with_the_same_callback(
    server: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    started = spy(monkeypatch, Crew, "kickoff")

    def callback(output: Any) -> None:
        pass

    crew = crew_of(llm_of(server), task_callback=callback)
    inputs = [{"topic": "bees"}, {"topic": "wasps"}]
    if way == "kickoff_for_each":
        crew.kickoff_for_each(inputs)
    else:
        asyncio.run(crew.kickoff_for_each_async(inputs))
    assert len(started) == 2
    for self, _, _ in started:
        assert self is not crew
        assert self.task_callback is callback


def test_the_order_in_which_a_task_ends(
    server: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its guardrail, its own callback, the crew's, its file; an error in a callback leaves."""
    order: list[str] = []

    # CrewAI refuses an annotation of what it returns that is text (`from __future__ …`).
    def guardrail(output: Any):  # type: ignore[no-untyped-def]
        order.append("guardrail")
        return True, output.raw

    save = Task._save_file

    def saved(self: Any, content: Any) -> None:
        order.append(f"file of {content}")
        save(self, content)

    monkeypatch.setattr(Task, "_save_file", saved)
    options = {
        "guardrail": guardrail,
        "callback": lambda output: order.append("own callback"),
        "output_file": "out-{topic}.txt",
    }
    crew = crew_of(llm_of(server), options, task_callback=lambda output: order.append("crew's"))
    crew.kickoff(inputs=GIVEN)
    assert order == ["guardrail", "own callback", "crew's", "file of RESULT."]
    assert Path("out-bees.txt").read_text() == "RESULT."

    def fails(output: Any) -> None:
        raise KeyError("from the callback")

    with pytest.raises(KeyError, match="from the callback"):
        crew_of(llm_of(server), task_callback=fails).kickoff(inputs=GIVEN)


def test_a_file_of_a_task_is_written_by_its_method() -> None:
    """JSON of a dict, anything else as its text (`_sdk.save_output`)."""
    task = Task(description="Do.", expected_output="A text.", output_file="deep/out-{topic}.txt")
    task.interpolate_inputs_and_add_conversation_history({"topic": "bees"})
    task._save_file("text")
    assert Path("deep/out-bees.txt").read_text() == "text"
    task._save_file({"a": 1})
    assert "".join(Path("deep/out-bees.txt").read_text().split()) == '{"a":1}'


def test_a_crew_gives_its_callback_to_its_tasks(server: ScriptedOpenAI) -> None:
    """So a task has it as its own after a kickoff, and then it is called once all the same."""
    called: list[str] = []

    def callback(output: Any) -> None:
        called.append(output.name)

    crew = crew_of(llm_of(server), task_callback=callback)
    crew.kickoff(inputs=GIVEN)
    assert called == ["task-0"]
    assert crew.tasks[0].callback is callback
    crew.kickoff(inputs=GIVEN)
    assert called == ["task-0"] * 2


@pytest.mark.parametrize("way", ["kickoff", "akickoff"])
def test_a_task_judges_by_a_name_of_its_module(
    server: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """With what it judges and the guardrail by name, and works on with what is returned."""
    judged: list[dict[str, Any]] = []

    def process(**given: Any) -> GuardrailResult:
        judged.append(given)
        return GuardrailResult(success=True, result="judged", error=None)

    # CrewAI refuses an annotation of what it returns that is text (`from __future__ …`).
    def guardrail(output: Any):  # type: ignore[no-untyped-def]
        return True, output.raw

    monkeypatch.setattr(task_module, "process_guardrail", process)
    result = _start(crew_of(llm_of(server), {"guardrail": guardrail}), way)
    assert result.raw == "judged"
    ((given),) = judged
    assert isinstance(given["output"], TaskOutput)
    assert given["guardrail"] is guardrail


def test_a_conditional_task_is_asked_with_the_output_before(server: ScriptedOpenAI) -> None:
    asked: list[str] = []

    def condition(output: TaskOutput) -> bool:
        asked.append(output.raw)
        return False

    crew = crew_of(llm_of(server), {}, {"kind": ConditionalTask, "condition": condition})
    result = crew.kickoff(inputs=GIVEN)
    assert asked == ["RESULT."]
    assert [output.raw for output in result.tasks_output] == ["RESULT.", ""]
    assert "should_execute" in ConditionalTask.__dict__


def test_outputs_have_these_fields_and_come_back_equal(server: ScriptedOpenAI) -> None:
    """`_outputs` keeps all but the objects, which it keeps as they are."""
    result = crew_of(llm_of(server)).kickoff(inputs=GIVEN)
    (output,) = result.tasks_output
    assert TaskOutput.model_validate(output.model_dump()) == output
    assert {"pydantic", "tasks_output", "token_usage", "raw", "json_dict"} == set(
        CrewOutput.model_fields
    )


# ---------------------------------------------------------------------- not a job: _sdk


def test_a_crew_that_is_trained_is_known(server: ScriptedOpenAI) -> None:
    crew = crew_of(llm_of(server))
    assert not crew._train
    crew._setup_for_training("trained.pkl")
    assert crew._train


def test_a_crew_that_is_tested_is_known(server: ScriptedOpenAI) -> None:
    llm = llm_of(server)
    crew = crew_of(llm)
    CrewEvaluator(crew, llm)
    assert [type(task.callback.__self__).__name__ for task in crew.tasks] == ["CrewEvaluator"]


# ---------------------------------------------------------------------- people: _people


def test_feedback_is_asked_for_by_a_provider_of_the_context(server: ScriptedOpenAI) -> None:
    """It is given the answer and the executor, whose messages it adds to and whose loop it runs."""
    seen: list[Any] = []

    class Provider(human_input.SyncHumanInputProvider):
        def handle_feedback(self, formatted_answer: Any, context: Any) -> Any:
            seen.append((context.ask_for_human_input, context.task.name, formatted_answer.output))
            context.messages.append(context._format_feedback_message("Better."))
            answer = context._invoke_loop()
            context.ask_for_human_input = False
            return answer

    assert type(human_input.get_provider()) is human_input.SyncHumanInputProvider
    token = human_input.set_provider(Provider())
    try:
        crew_of(llm_of(server), {"human_input": True}).kickoff(inputs=GIVEN)
    finally:
        human_input.reset_provider(token)
    assert seen == [(True, "task-0", "RESULT.")]
    last = server.bodies[max(server.bodies)]["messages"][-1]
    assert last["role"] == "user"
    assert "Better." in last["content"]
