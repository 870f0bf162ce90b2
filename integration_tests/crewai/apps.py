"""Crews for the tests, each built anew by a function; `scripts` has what their models say."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from crewai import LLM, Agent, Crew, Process, Task
from crewai.llms.providers.openai.completion import OpenAICompletion
from crewai.project import CrewBase, after_kickoff, agent, before_kickoff, crew, task
from crewai.tasks.conditional_task import ConditionalTask
from crewai.tools import tool
from pydantic import BaseModel

from caravanserai import NoRun, idempotency_key
from integration_tests.crewai.offline import KEY
from integration_tests.crewai.places import reach

ROLES = ("Researcher", "Writer", "Editor")
NAMES = ("research", "draft", "review")


def model(url: str, **more: Any) -> LLM:
    """Return CrewAI's own client of a scripted server, which never asks twice by itself."""
    given = {"api_key": KEY, "max_retries": 0, **more}
    return LLM(model="openai/gpt-4o-mini", base_url=url, **given)


class TextModel(OpenAICompletion):
    """A model that calls tools in plain text (ReAct)."""

    def supports_function_calling(self) -> bool:
        """Say no, as models do that have no such API."""
        return False


# ---------------------------------------------------------------------- tools


@tool
def lookup(key: str) -> str:
    """Look a key up."""
    reach(f"begin lookup {key}")
    reach(f"end lookup {key}")
    return f"value of {key}"


@tool
def write_down(text: str) -> str:
    """Keep a text."""
    reach(f"begin write_down {text}")
    try:
        key = idempotency_key()
    except NoRun:
        key = "none"
    with Path("kept.txt").open("a") as kept:
        kept.write(f"{text} {key}\n")
    reach(f"end write_down {text}")
    return f"kept {text}"


@tool
def visit(key: str) -> str:
    """Visit a place that is not there."""
    reach(f"begin visit {key}")
    reach(f"end visit {key}")
    raise ConnectionError(f"no way to {key}")


@tool
def slow(key: str) -> str:
    """Look a key up, and take some time."""
    reach(f"begin slow {key}")
    time.sleep(0.3)
    reach(f"end slow {key}")
    return f"slow value of {key}"


class Verdict(BaseModel):
    title: str
    score: int


# ---------------------------------------------------------------------- crews


def members(llm: Any, tools: list[Any] | None = None, **more: Any) -> list[Agent]:
    """Return the three agents."""
    own = [lookup, write_down] if tools is None else tools
    return [
        Agent(role=role, goal="Do it well.", backstory="Of age.", llm=llm, tools=own, **more)
        for role in ROLES
    ]


def works(agents: list[Any], *more: dict[str, Any]) -> list[Task]:
    """Return the three tasks, each with more options."""
    tasks = []
    for name, by, options in zip(NAMES, agents, more or ({}, {}, {}), strict=True):
        own = dict(options)
        kind = own.pop("kind", Task)
        given = {
            "name": name,
            "description": f"TASK-{name} about {{topic}}.",
            "expected_output": "A text.",
            "agent": by,
        }
        tasks.append(kind(**{**given, **own}))
    return tasks


def report(llm: Any, *more: dict[str, Any], tools: list[Any] | None = None, **own: Any) -> Crew:
    """Return a crew of three agents with a task each, one after another."""
    agents = members(llm, tools)
    return Crew(name="report", agents=agents, tasks=works(agents, *more), **own)


def hierarchical(llm: Any) -> Crew:
    """Return a crew whose manager delegates."""
    agents = members(llm)
    tasks = works([None, None, None])[:2]
    return Crew(
        name="managed", agents=agents, tasks=tasks, process=Process.hierarchical, manager_llm=llm
    )


def hole(llm: Any) -> Crew:
    """Return a crew whose second task ends before its first."""
    agents = members(llm, [lookup, slow])
    asynchronous = {"async_execution": True}
    tasks = works(agents, asynchronous, asynchronous, {})
    tasks[2].context = tasks[:2]
    return Crew(name="hole", agents=agents, tasks=tasks)


def conditional(llm: Any, wanted: bool) -> Crew:
    """Return a crew whose second task is done, or is left out."""

    def decide(output: Any) -> bool:
        reach("decide")
        return wanted

    return report(llm, {}, {"kind": ConditionalTask, "condition": decide}, {})


def guarded(llm: Any, guardrail: Any = None) -> Crew:
    """Return a crew whose second task is refused once."""

    # CrewAI refuses an annotation of what it returns that is a text, as it is in this module.
    def good(output: Any):
        reach(f"guard {output.raw}")
        fine = "GOOD" in output.raw
        return fine, f"{output.raw}, checked" if fine else "it has to be GOOD"

    return report(llm, {}, {"guardrail": guardrail or good}, {})


def structured(llm: Any) -> Crew:
    """Return a crew whose tasks give a model and JSON, and write files."""
    return report(
        llm,
        {"output_pydantic": Verdict, "output_file": "output-research-{topic}.json"},
        {"output_json": Verdict},
        {"output_pydantic": Verdict, "output_file": "output-review.json"},
    )


def heard(llm: Any) -> Crew:
    """Return a crew with every kind of callback; each is a place."""

    def before(inputs: dict[str, Any]) -> dict[str, Any]:
        reach("before kickoff")
        return {**inputs, "topic": f"{inputs['topic']} and more"}

    def after(result: Any) -> Any:
        reach("after kickoff")
        result.raw += " (closed)"
        return result

    agents = members(llm)
    for one in agents:
        one.step_callback = lambda step: reach(f"step {type(step).__name__} of agent")
    return Crew(
        name="heard",
        agents=agents,
        tasks=works(agents, {}, {"callback": lambda output: reach(f"own {output.name}")}, {}),
        before_kickoff_callbacks=[before],
        after_kickoff_callbacks=[after],
    )


def of_class(llm: Any) -> Crew:
    """Return a crew that is described as a class."""

    @CrewBase
    class Described:
        """A crew of two."""

        agents_config: ClassVar[dict[str, Any]] = {}
        tasks_config: ClassVar[dict[str, Any]] = {}

        @before_kickoff
        def begin(self, inputs: dict[str, Any]) -> dict[str, Any]:
            reach("before kickoff")
            return {**inputs, "topic": f"{inputs['topic']} and more"}

        @after_kickoff
        def close(self, result: Any) -> Any:
            reach("after kickoff")
            return result

        @agent
        def researcher(self) -> Agent:
            return members(llm)[0]

        @agent
        def writer(self) -> Agent:
            return members(llm)[1]

        @task
        def research(self) -> Task:
            return works([self.researcher(), None, None])[0]

        @task
        def draft(self) -> Task:
            return works([None, self.writer(), None])[1]

        @crew
        def crew(self) -> Crew:
            return Crew(name="described", agents=self.agents, tasks=self.tasks)

    made: Crew = Described().crew()
    return made


def inserted(llm: Any) -> Crew:
    """Return the first crew, with a task more in front of the second."""
    agents = members(llm)
    check = Task(
        name="check", description="TASK-check.", expected_output="A text.", agent=agents[1]
    )
    first, *others = works(agents)
    return Crew(name="report", agents=agents, tasks=[first, check, *others])


def other_agent(llm: Any) -> Crew:
    """Return the first crew, whose second task another agent does."""
    agents = members(llm)
    tasks = works([agents[0], agents[2], agents[2]])
    return Crew(name="report", agents=agents, tasks=tasks)


def shortened(llm: Any) -> Crew:
    """Return the first crew without its last task."""
    agents = members(llm)
    return Crew(name="report", agents=agents, tasks=works(agents)[:2])


BUILDERS: dict[str, Callable[[Any], Crew]] = {
    "report": report,
    "react": report,
    "parallel": report,
    "hierarchical": hierarchical,
    "hole": hole,
    "done": lambda llm: conditional(llm, True),
    "left out": lambda llm: conditional(llm, False),
    "guarded": guarded,
    "judged": lambda llm: guarded(llm, "The result has to be GOOD."),
    "structured": structured,
    "planned": lambda llm: report(llm, planning=True, planning_llm=llm),
    "heard": heard,
    "class": of_class,
    "raising": lambda llm: report(llm, tools=[lookup, visit]),
    "asking": lambda llm: report(llm, {}, {"human_input": True}, {}),
    # What a program made of the first one, since it was started.
    "changed": lambda llm: report(llm, {}, {"description": "TASK-draft, anew, on {topic}."}, {}),
    "renamed": lambda llm: report(llm, {"expected_output": "A long text."}, {}, {}),
    "inserted": inserted,
    "shortened": shortened,
    "other agent": other_agent,
    "other type": lambda llm: report(llm, {}, {}, {"output_json": Verdict}),
}


def build(app: str, url: str, **more: Any) -> Crew:
    """Return the crew of an app, anew.

    Args:
        app: its name.
        url: of the scripted model.
        more: options of the model's client.
    """
    llm: Any = model(url, **more)
    if app == "react":
        given = {"api_key": KEY, "max_retries": 0, **more}
        llm = TextModel(model="gpt-4o-mini", base_url=url, **given)
    return BUILDERS[app](llm)
