"""Crews that go on from another run: of any framework, killed anywhere, with its tools' results."""

# ruff: noqa: E402

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from integration_tests.support import require

require("crewai")

from integration_tests.crewai import offline  # noqa: F401 - in front of CrewAI

# isort: split
from crewai import Agent, Crew, Task
from crewai.llms.base_llm import BaseLLM
from crewai.tools import tool

from caravanserai import WaitingForPerson, answer, handoff, load, open_run
from caravanserai.crewai import waypoints
from caravanserai_core.errors import UsageError
from integration_tests.crewai import scripts
from integration_tests.crewai.life import Life
from integration_tests.openai_agents.scripted import by_rules

# CrewAI reads its own deprecated fields.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:crewai")

Start = Callable[..., Life]

TITLE = "# Handoff of run `before`"
CONTEXT = "This is the context you're working with:\n"
GIVEN = [
    {"role": "user", "content": "Find out about research, please."},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "a",
                "type": "function",
                "function": {"name": "lookup", "arguments": '{"key": "research"}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "a", "content": "value as recorded"},
]
ITEMS = [
    GIVEN[0],
    {"type": "function_call", "call_id": "a", "name": "lookup"}
    | {"arguments": '{"key": "research"}'},
    {"type": "function_call_output", "call_id": "a", "output": "value as recorded"},
]
MORE = {"continues": "before"}
DONE = "Result of {}, after kept {}."


class Heard:
    """A model that does each task as it is named; it keeps what it was told, once each."""

    def __init__(self) -> None:
        self.prompts: list[str] = []

    def __call__(self, asked: Any) -> Any:
        if asked.user not in self.prompts:
            self.prompts.append(asked.user)
        name = re.findall(r"(?:Current Task|Do): (?:TASK|PART)-(\w+)", asked.user)[-1]
        return by_rules(scripts.task(name, scripts.look(name), scripts.keep(name)), asked)


def leave(one: Life, kind: str = "python", run_id: str = "before") -> None:
    """Leave a run of another kind, by hand."""
    with open_run(run_id, store=one.store, adapter=kind, goal="Know all of it.") as run:
        run.checkpoint({"messages": GIVEN, "items": ITEMS}, "It was looked up.")


def begun(life: Start, app: str = "report", **options: Any) -> tuple[Life, Heard]:
    heard = Heard()
    return life(app, script=heard, more={**MORE, **options.pop("more", {})}, **options), heard


# ---------------------------------------------------------------------- what a crew is given


@pytest.mark.parametrize("kind", ["python", "openai-agents"])
@pytest.mark.parametrize("way", ["kickoff", "akickoff"])
def test_a_crew_is_given_what_another_run_hands_over(life: Start, kind: str, way: str) -> None:
    """All of it to the first task; to later ones, in front of their context, what was done."""
    one, heard = begun(life, way=way)
    leave(one, kind)

    found = one.ended()

    assert found["raw"] == DONE.format("review", "review")
    first, *later = heard.prompts
    assert f"{CONTEXT}{TITLE}" in first
    assert "value as recorded" in first
    assert "\n## Conversation\n" in first
    for prompt, before in zip(later, ("research", "draft"), strict=True):
        assert f"{CONTEXT}{TITLE}" in prompt
        assert "\n## Conversation\n" not in prompt
        assert f"----------\n\n{DONE.format(before, before)}" in prompt.replace("\n\n\n", "\n\n")
    note = (one.folder / ".caravanserai/job/waypoint-1.md").read_text()
    assert "Crew `report` goes on from run `before`" in note
    assert "at waypoint 1: 3 tasks are planned." in note
    assert "\n## Goal\n\nKnow all of it.\n" in note
    assert one.ended() == found
    assert one.asked() == 9


@pytest.mark.parametrize("app", ["hierarchical", "hole", "guarded", "planned", "left out"])
def test_every_kind_of_crew_is_given_it(life: Start, app: str) -> None:
    """A manager, tasks beside each other, another try after a guardrail, a plan, a skipped task."""
    one = life(app, more=MORE)
    leave(one)
    heard: list[str] = []
    rules = one.script

    def decide(asked: Any) -> Any:
        heard.append(asked.user)
        return by_rules(rules, asked)

    one.script = decide
    one.ended()

    own = [prompt for prompt in heard if "Current Task: TASK-" in prompt]
    assert own
    assert all(prompt.count(TITLE) == 1 for prompt in own)
    whole = {"hole": 2}.get(app, 1)
    assert len({p for p in own if "\n## Conversation\n" in p}) == whole
    if app == "guarded":
        assert any("it has to be GOOD" in prompt for prompt in own)


def test_a_name_may_hold_inputs(life: Start) -> None:
    """As that of the run does: each kickoff goes on from another run."""
    one, heard = begun(
        life,
        more={"continues": "about-{topic}@1"},
        way="kickoff_for_each",
        run_id="next-{topic}",
        inputs=[{"topic": "bees"}, {"topic": "wasps"}],
    )
    leave(one, run_id="about-bees")
    leave(one, run_id="about-wasps")

    one.ended()

    assert [
        topic
        for prompt in heard.prompts
        for topic in re.findall(
            r"TASK-research about (\w+).*# Handoff of run `about-\1`", prompt, re.S
        )
    ] == ["bees", "wasps"]
    assert "about-{other}" in one.refused(more={"continues": "about-{other}"}, run_id="x-{topic}")


# ---------------------------------------------------------------------- killed, changed, gone

SIDES = ("begins", "ends")
PLACES = [f"append {number} {side}" for number in (1, 2, 3) for side in SIDES]


@pytest.mark.parametrize("place", [*PLACES, "request 1", "begin lookup research", "then draft"])
def test_killed_anywhere_it_goes_on_from_what_it_was_handed(life: Start, place: str) -> None:
    """The other run is gone by then, unless nothing was written of this one."""
    one, heard = begun(life)
    leave(one)
    one.killed(place)
    if place != "append 1 begins":
        shutil.rmtree(one.folder / ".caravanserai/before")

    found = one.ended()

    assert found["raw"] == DONE.format("review", "review")
    assert len(heard.prompts) == 3, "a start gives the very prompts of the one before"
    lost = place == "append 3 begins"  # an answer that was not written down
    assert one.asked() == 9 + lost
    ends = {line: count for line, count in one.outside().items() if line.startswith("end ")}
    assert set(ends.values()) == {1}


def test_it_goes_on_from_what_the_other_run_was_then(life: Start) -> None:
    """With or without `continues`; another one is refused, and so is one for a run without."""
    one, heard = begun(life)
    leave(one)
    leave(one, run_id="other")
    one.killed("begin lookup draft")
    asked = one.requests()
    with open_run("before", store=one.store) as run:
        run.checkpoint({"messages": []}, "All is changed.")

    for other in ("other", "before@2"):
        assert "was begun from before@1" in one.refused(more={"continues": other})
    assert "was begun on its own" in one.refused(more=MORE, run_id="before")
    assert one.requests() == asked
    assert one.ended(more={})["raw"] == DONE.format("review", "review")
    assert len(heard.prompts) == 3

    one.ended(more={"continues": "before@1", "again": True})
    assert len(heard.prompts) == 3
    assert one.asked() == 18


def test_what_cannot_be_gone_on_from_leaves_no_run(life: Start) -> None:
    one, _ = begun(life)
    assert "no run" in one.refused()
    assert "replay= goes with continues=" in one.refused(more={"replay": ["lookup"]})
    leave(one)
    one.ended(more={**MORE, "replay": ["lookup"]})
    assert one.outside()["begin lookup research"] == 0


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"continues": 3}, "continues= is the run"),
        ({"continues": "a{0}"}, "only names of inputs"),
        ({"continues": "a", "replay": "lookup"}, "replay= is a list"),
        ({"continues": "a", "replay": [3]}, "replay= is a list"),
    ],
)
def test_options_that_mean_nothing_are_refused(more: Any, words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)):
        waypoints("job", **more)


# ---------------------------------------------------------------------- tools


def test_a_recorded_result_is_given_again(life: Start) -> None:
    """For equal arguments only, also after a kill; the tool is not run."""
    one, _ = begun(life, more={"replay": ["Lookup"]})
    leave(one)
    one.killed("begin write_down research")
    one.ended()

    assert one.outside()["begin lookup research"] == 0
    assert one.outside()["begin lookup draft"] == 1
    said = handoff("job", store=one.store).messages
    assert [m["content"] for m in said if m["role"] == "tool"][:2] == ["value as recorded"] * 2
    assert "value as recorded" in (one.folder / ".caravanserai/job/waypoint-2.md").read_text()


class Scripted(BaseLLM):
    """A model in this process that calls two tools by the names that models know."""

    def supports_function_calling(self) -> bool:
        return True

    def call(self, messages: Any, *_: Any, **__: Any) -> Any:
        told = sum(message["role"] == "tool" for message in messages)
        return "Done." if told == 2 else [named(("look_it_up", "pay_out")[told])]


def named(name: str) -> dict[str, Any]:
    return {"id": name, "type": "function", "function": {"name": name, "arguments": '{"key": "a"}'}}


def test_tools_are_known_by_the_names_that_models_know(tmp_path: Path) -> None:
    """Those of CrewAI have spaces and capitals; a fresh pass asks again."""
    ran: list[str] = []

    @tool("Look It Up")
    def look(key: str) -> str:
        """Look."""
        ran.append("look")
        return "own"

    @tool("Pay Out")
    def pay(key: str) -> str:
        """Pay."""
        ran.append("pay")
        return "paid"

    def start(**more: Any) -> Any:
        tools, llm = [look, pay], Scripted(model="scripted")
        agent = Agent(role="W", goal="W", backstory="W", llm=llm, tools=tools)
        task = Task(description="Do it.", expected_output="It", agent=agent)
        policies: Any = {"Pay Out": "ask"}
        options: Any = {"continues": "before", "replay": ["Look It Up"], "store": tmp_path, **more}
        kept = waypoints("job", on_uncertain=policies, **options)
        return Crew(agents=[agent], tasks=[task], task_callback=kept).kickoff()

    calls = [named("look_it_up"), named("pay_out")]
    said = [
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "look_it_up", "content": "as recorded"},
    ]
    with open_run("before", store=tmp_path) as run:
        run.checkpoint({"messages": said}, "Killed.")

    for _ in range(2):
        with pytest.raises(WaitingForPerson):
            start()
    answer("job", "happened", result="paid", store=tmp_path)
    assert start().raw == "Done."
    assert ran == []
    messages = handoff("job", store=tmp_path).messages
    assert [m["content"] for m in messages if m["role"] == "tool"][-2:] == ["as recorded", "paid"]

    with pytest.raises(WaitingForPerson):
        start(again=True)
    assert ran == []


@pytest.mark.parametrize("policy", ["ask", "rerun"])
def test_a_call_that_may_have_happened_is_handled_as_an_own_one(life: Start, policy: str) -> None:
    """By the policy for that tool; said to have happened, it has the result that was given."""
    one, _ = begun(life, more={"on_uncertain": {"write_down": policy}})
    one.killed("end write_down draft", run_id="before", more={})
    key = one.lines("kept.txt")[-1]
    shown = handoff("before", store=one.store)
    assert [call.name for call in shown.uncertain] == ["write_down"]

    if policy == "rerun":
        one.ended()
        assert one.outside()["end write_down draft"] == 2
        assert one.lines("kept.txt").count(key) == 2, "it has the key that it had"
    else:
        assert one.ended() == {"waits": ["q1"]}
        answer("job", "happened", result="kept draft", store=one.store)
        one.ended()
        assert one.outside()["end write_down draft"] == 1
        # The tasks that were done there were done here, too, as nothing was to be replayed.
        assert one.outside()["end write_down research"] == 2
    assert handoff("job", store=one.store).uncertain == ()
    assert "Not certain" not in one.latest() or policy == "rerun"


# ---------------------------------------------------------------------- handed on


def test_a_third_run_is_handed_both_conversations_once(life: Start) -> None:
    one, heard = begun(life)
    leave(one)
    one.killed("begin write_down draft")

    second = handoff("job", store=one.store)
    assert second.messages[:3] == handoff("before", store=one.store).messages
    assert [m["content"] for m in second.messages].count("value as recorded") == 1
    assert "# Handoff" not in "".join(str(message["content"]) for message in second.messages)
    assert [call.name for call in second.uncertain] == ["write_down"]

    one.ended(run_id="third", more={"continues": "job"})
    third = handoff("third", store=one.store)
    for before, now in zip(second.messages, third.messages, strict=False):
        settled = "equal call below settled it" in str(now["content"])
        assert now == before or (settled and before["tool_call_id"] == now["tool_call_id"])
    assert third.uncertain == (), "an equal call settled it"
    assert [m["content"] for m in third.messages].count("value as recorded") == 1
    assert "# Handoff" not in "".join(str(message["content"]) for message in third.messages)
    assert third.goal == "Know all of it."
    first = next(prompt for prompt in reversed(heard.prompts) if "TASK-research" in prompt)
    assert len(first) < 24_000


def test_a_handoff_may_be_given_and_be_short(life: Start) -> None:
    """What a caller cut is what the tasks are given."""
    one, _ = begun(life)
    leave(one)
    made = handoff("before", store=one.store, max_chars=2000)
    with open_run("job", store=one.store, adapter="crewai", continues=made):
        pass  # as a crew does whose process was killed here

    one.ended()

    kept = load("job", store=one.store)["handed"]
    assert len(kept["text"]) <= 2_000
    assert kept["text"].startswith(TITLE)


# ---------------------------------------------------------------------- a run as it is now

NOW: dict[str, tuple[str, str, list[str], list[Any]]] = {
    "a tool": (
        "report",
        "end write_down draft",
        ["write_down"],
        [("lookup", "value of draft"), ("write_down", None)],
    ),
    "a tool by text": (
        "react",
        "begin write_down draft",
        ["write_down"],
        [("lookup", "value of draft"), ("write_down", None)],
    ),
    "one of three": (
        "parallel",
        "begin lookup draft too",
        ["write_down", "lookup"],
        [("lookup", "value of draft"), ("write_down", "kept draft"), ("lookup", None)],
    ),
    "a tool that raised": (
        "raising",
        "request 5",
        [],
        [("visit", "ConnectionError: no way to draft")],
    ),
    "a coworker": (
        "hierarchical",
        "end lookup part of draft",
        ["lookup"],
        [
            (
                "delegate_work_to_coworker",
                "Its coworker was not at the end. What it did stands below.",
            ),
            ("lookup", None),
        ],
    ),
    "a coworker that is done": (
        "hierarchical",
        "request 8",
        [],
        [
            (
                "delegate_work_to_coworker",
                "Result of part of draft, after value of part of draft.",
            ),
            ("lookup", "value of part of draft"),
        ],
    ),
    "a task beside one that is done": ("hole", "end slow research", ["slow"], [("slow", None)]),
    "another try": (
        "guarded",
        "end lookup draft again",
        ["lookup"],
        [("lookup", "value of draft"), ("lookup", None)],
    ),
}


@pytest.mark.parametrize("case", NOW)
def test_a_killed_crew_tells_what_happened_since(life: Start, case: str) -> None:
    """Between two waypoints: answers, results, and calls of which nobody knows, by name."""
    app, place, uncertain, since = NOW[case]
    one = life(app)
    one.killed(place)

    found = handoff("job", store=one.store)

    # Of tools that run beside each other it is by chance which of them had ended.
    assert {call.name for call in found.uncertain} <= set(uncertain)
    assert bool(found.uncertain) == bool(uncertain)
    results = {m.tool_call_id: m.text for m in found.transcript.messages if m.role == "tool"}
    calls = [call for m in found.transcript.messages for call in m.tool_calls]
    told = [(call.name, results.get(call.id)) for call in calls][-len(since) :]
    assert [name for name, _ in told] == [name for name, _ in since]
    if app != "parallel":
        assert told == since
    assert load("job", store=one.store)["at"] != "end"
