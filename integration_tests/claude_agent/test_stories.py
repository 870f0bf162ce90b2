"""What real sessions tell. The golden folders beside this are part of the review.

To write them anew after a change of wording: pytest integration_tests/claude_agent/test_stories.py
with WRITE_GOLDEN_NOTES=1; then read them.
"""

# ruff: noqa: E402

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from integration_tests.support import require

require("claude_agent_sdk")

from caravanserai_core.conversation import read
from integration_tests.claude_agent.golden_notes import check, notes_in
from integration_tests.claude_agent.life import Life, Server
from integration_tests.claude_agent.scripts import CHARGE, COUNTER, DONE, SUMMARY, Rule
from integration_tests.openai_agents.scripted import load_example

scripted = load_example("scripted_anthropic")

GOLDEN = Path(__file__).parent / "golden"

Start = Callable[..., Life]

PATIENCE = 20.0


class Model:
    """A model that takes its time, as a real one does.

    It answers when the waypoint of the batch before is written: the CLI hands over what it wrote
    within a tenth of a second or later, and a waypoint tells all that is known by then.

    Args:
        rules: of `ScriptedAnthropic`.

    Attributes:
        life: what it answers in.
    """

    life: Life

    def __init__(self, rules: list[Rule]) -> None:
        self._rules = rules
        self._known = 0
        self._shortened = False

    def __call__(self, asked: Any) -> Rule:
        if not any(COUNTER in text for text in (asked.system, *asked.said)):
            shortened = not self._shortened and any(SUMMARY in text for text in asked.said)
            self._shortened |= shortened
            if asked.tried:
                self._wait(self._known + 1 + shortened)
            self._known = self._waypoints()
        answer: Rule = scripted.by_rules(self._rules, asked)
        return answer

    def decide(self, body: dict[str, Any]) -> Rule:
        """Answer a request: that for a summary, too, comes behind a batch."""
        if scripted.is_summary(body):
            self._wait(self._known + 1)
        told: Rule = Server.decide(self.life.server, body)
        return told

    def _waypoints(self) -> int:
        found = self.life.folder / ".caravanserai" / self.life.run_id
        return len(list(found.glob("waypoint-*.md")))

    def _wait(self, waypoints: int) -> None:
        end = time.monotonic() + PATIENCE
        while self._waypoints() < waypoints and time.monotonic() < end:
            time.sleep(0.01)


def job(life: Start, rules: list[Rule], name: str = "charges", **options: Any) -> Life:
    """Return a job whose model takes its time."""
    model = Model(rules)
    one = model.life = life(name, script=model, **options)
    one.server.decide = model.decide  # type: ignore[method-assign]
    return one


def says(text: str, *calls: tuple[str, dict[str, Any]], **more: Any) -> Rule:
    """Return an answer of the model that asks for calls."""
    return {"say": text, "call": [list(call) for call in calls], **more}


def ends(text: str, **more: Any) -> Rule:
    """Return an answer without a call."""
    return {"say": text, **more}


def charge(n: int) -> tuple[str, dict[str, Any]]:
    return CHARGE, {"n": n}


def task(subject: str) -> tuple[str, dict[str, Any]]:
    return "TaskCreate", {"subject": subject, "description": "As you were told."}


def update(number: int, status: str) -> tuple[str, dict[str, Any]]:
    return "TaskUpdate", {"taskId": str(number), "status": status}


def command(line: str) -> tuple[str, dict[str, Any]]:
    return "Bash", {"command": line, "description": "Look"}


SEND = (
    "Agent",
    {
        "description": "Charge customers 1 and 2",
        "prompt": "Charge customers one and two.",
        "subagent_type": "counter",
        "run_in_background": False,
    },
)
AS_COUNTER = [
    says("One.", charge(1), if_said=COUNTER),
    says("Two.", charge(2), if_said=COUNTER),
    ends("Both are charged.", if_said=COUNTER),
]
ALLOWED = [CHARGE, "Bash", "Agent", "Read", "Write", "Edit"]
ANSWER = "All are charged.\n\n- 1, 2: by the counter\n- 3, 4: here\n\nSee `charged.txt`."


def planned(folder: Path) -> list[Rule]:
    """A model that plans, has a subagent work, fails twice, forgets, and comes to its end."""
    file = str(folder / "charged.txt")
    edit = {"file_path": file, "old_string": "3\n", "new_string": "3\n4\n", "replace_all": False}
    return [
        *AS_COUNTER,
        says("I look at the list again.", ("Read", {"file_path": file}), if_said=SUMMARY),
        says("One line is missing.", charge(4), ("Edit", edit), if_said=SUMMARY),
        says("I check that.", command("wc -l < charged.txt; seq 20; exit 3"), if_said=SUMMARY),
        says("It is whole.", update(3, "completed"), if_said=SUMMARY),
        ends(ANSWER, if_said=SUMMARY),
        says(
            "I make a plan first.",
            task("Have customers 1 and 2 charged"),
            task("Charge customers 3 and 4"),
            task("Write charged.txt"),
        ),
        says("The counter begins.", update(1, "in_progress")),
        says("It charges one and two.", SEND),
        says("Now the others.", update(1, "completed"), update(2, "in_progress")),
        says("Three, and one that is not there.", charge(3), (CHARGE, {"customer": 5})),
        says("On with the list.", update(2, "completed"), update(3, "in_progress")),
        says(
            "I write it down.",
            ("Write", {"file_path": file, "content": "1\n2\n3\n"}),
            tokens=95_000,
        ),
    ]


def a_whole_job(life: Start, tmp_path: Path) -> Life:
    """A plan, a subagent, calls that fail, a conversation that is shortened, and the end."""
    one = job(
        life,
        planned(tmp_path / "life-0"),
        "shortened",
        prompt="Charge customers 1 to 4, and keep a list of them in charged.txt.",
        sdk={"allowed_tools": ALLOWED},
    )
    one.finished()
    return one


CHARGES = [
    says("One.", charge(1)),
    says("Two.", charge(2)),
    says("Three.", charge(3)),
    says("The last one.", charge(4)),
    ends(DONE),
]


def asked_after_a_kill(life: Start, _tmp_path: Path) -> Life:
    """A call may have happened, and a person has to say whether it has."""
    one = job(life, CHARGES)
    one.killed("begin 3")
    one.ended()
    return one


def went_on_after_a_kill(life: Start, _tmp_path: Path) -> Life:
    """The same, and the person has said so."""
    one = job(life, CHARGES)
    one.killed("begin 3")
    one.finished("rerun")
    return one


def waiting(life: Start, _tmp_path: Path) -> Life:
    """Each charge is to be approved, and the first one waits."""
    one = job(life, CHARGES, more={"needs_approval": [CHARGE]})
    one.ended()
    return one


def todo(status: str, *texts: str) -> list[dict[str, str]]:
    return [{"content": text, "status": status, "activeForm": f"{text} now"} for text in texts]


def with_todos(life: Start, _tmp_path: Path) -> Life:
    """The older way of the CLI to keep a task list."""
    texts = ("Charge one", "Charge two")
    lists = (
        [*todo("in_progress", texts[0]), *todo("pending", texts[1])],
        [*todo("completed", texts[0]), *todo("in_progress", texts[1])],
        todo("completed", *texts),
    )
    one = job(
        life,
        [
            says("A plan.", ("TodoWrite", {"todos": lists[0]})),
            says("One.", charge(1)),
            says("Next.", ("TodoWrite", {"todos": lists[1]})),
            says("Two.", charge(2)),
            says("That was it.", ("TodoWrite", {"todos": lists[2]})),
            ends(DONE),
        ],
        environment={"CLAUDE_CODE_ENABLE_TASKS": "0"},
    )
    one.finished()
    return one


def killed_in_a_subagent(life: Start, _tmp_path: Path) -> Life:
    """The subagent had charged one customer, and nobody has started the program again yet."""
    one = job(
        life,
        [
            *AS_COUNTER,
            says("One thing to do.", task("Have customers 1 and 2 charged")),
            says("The counter begins.", update(1, "in_progress")),
            says("It charges one and two.", SEND),
            ends(DONE),
        ],
    )
    one.killed("begin 2")
    return one


STORIES = (
    a_whole_job,
    asked_after_a_kill,
    went_on_after_a_kill,
    waiting,
    with_todos,
    killed_in_a_subagent,
)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_a_session_tells_its_story(
    story: Callable[[Start, Path], Life], life: Start, tmp_path: Path
) -> None:
    """Each waypoint says what was done and what is next, in the words of the golden file."""
    check(GOLDEN / story.__name__, notes_in(story(life, tmp_path)))


def test_the_conversation_is_what_the_model_was_shown(life: Start, tmp_path: Path) -> None:
    """Also behind a summary: the calls, their results, their order, and the answer."""
    one = a_whole_job(life, tmp_path)

    found = read(one.run_id, store=one.store)

    asked = one.server.bodies[-1]["messages"]
    blocks = [block for message in asked for block in _blocks(message)]
    calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
    assert [call.id for message in found.messages for call in message.tool_calls] == calls
    results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    assert [m.tool_call_id for m in found.messages if m.role == "tool"] == results
    assert [m.failed for m in found.messages if m.role == "tool"] == [
        bool(block.get("is_error")) for block in blocks if block["type"] == "tool_result"
    ]
    assert SUMMARY in found.messages[0].text
    assert found.messages[-1].text == ANSWER
    assert found.uncertain == ()


def test_the_conversation_of_an_earlier_waypoint_is_what_was_said_until_then(
    life: Start, tmp_path: Path
) -> None:
    one = a_whole_job(life, tmp_path)

    found = read(one.run_id, at=6, store=one.store)

    assert found.messages[0].text == one.options["prompt"]
    names = [call.name for message in found.messages for call in message.tool_calls]
    assert names == [
        *["TaskCreate"] * 3,
        *["TaskUpdate", "Agent", "TaskUpdate", "TaskUpdate", CHARGE, CHARGE],
    ]
    assert found.uncertain == ()
    assert found.losses == ("1 × conversation of a subagent",)


def _blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content
