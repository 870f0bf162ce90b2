"""A run's conversation is read from its JSON, in a program that has no CrewAI."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from caravanserai import checkpoint, declare_secret
from caravanserai.crewai._steps import digest
from caravanserai.crewai.transcript import transcript
from caravanserai_core import codec
from caravanserai_core.questions import digest_of
from caravanserai_core.transcript import Message, Since, ToolCall, Transcript, find
from integration_tests.crewai import trees

READER = """
import sys
sys.modules["crewai"] = sys.modules["openai"] = sys.modules["pydantic"] = None  # imports fail
from caravanserai import load
from caravanserai_core.transcript import find
found = find("crewai")(load("job", raw=True, store=sys.argv[1]))
for one in found.messages:
    print(one.role, one.name, repr(one.text), [call.name for call in one.tool_calls])
print([call.id for call in found.uncertain], found.losses)
"""


SETTLED = "Whether this happened was not certain. The equal call below settled it."


def raw(value: object) -> Any:
    return orjson.loads(codec.encode(value).data)


def of_task(raw_: str, agent: str, call: str = "call_1") -> tuple[Message, ...]:
    """Return what `trees.messages` is read as."""
    return (
        Message("system", "You are of use."),
        Message("user", "Current Task: work."),
        Message("assistant", "", (ToolCall(call, "lookup", {"key": "honey"}),), name=agent),
        Message("tool", "29.6 kg", (), call, "lookup"),
        Message("assistant", raw_, name=agent),
    )


def test_a_crew_is_read_task_by_task_with_what_is_left_to_do() -> None:
    tree = trees.crew(
        trees.done(0, "Three causes.", "Researcher\n"), trees.done(2, "One page.", "Editor")
    )

    assert transcript(raw(tree)) == Transcript(
        (
            *of_task("Three causes.", "Researcher"),
            *of_task("One page.", "Editor", "call_1_2"),  # the same id, by another server's count
            Message("user", "Work on the draft, with care.\n\nExpected: A text."),
        )
    )


def test_a_finished_crew_has_nothing_to_do_and_every_call_its_result() -> None:
    tree = trees.ended(trees.done(0, "Yes.", "Researcher"), raw="Yes.", skipped=[1, 2])
    found = transcript(raw(tree))

    assert found == Transcript(of_task("Yes.", "Researcher"))
    assert [one["role"] for one in found.to_openai()] == [
        *("system", "user", "assistant", "tool", "assistant")
    ]


def test_the_answer_of_an_agent_that_calls_tools_by_text_is_told() -> None:
    entry = trees.done(0, "RESULT", "Writer")
    said = [{"role": "user", "content": "Work."}, {"role": "assistant", "content": "Thought: look"}]
    entry["output"]["messages"] = said

    found = transcript(raw(trees.ended(entry, raw="RESULT"))).messages

    assert found[-2:] == (
        Message("assistant", "Thought: look", name="Writer"),
        Message("assistant", "RESULT", name="Writer"),
    )


def test_a_task_whose_messages_are_not_kept_is_told_by_its_text() -> None:
    entry = trees.done(0, "RESULT", "Writer")
    del entry["output"]["messages"]

    assert transcript(raw(trees.ended(entry, raw="RESULT"))).messages == (
        Message("user", "Work.\n\nExpected: A text."),
        Message("assistant", "RESULT", name="Writer"),
    )


def test_what_is_not_in_the_conversation_is_said() -> None:
    entry = trees.done(
        0, "R", "Crew Manager", tools=[trees.call("lookup", "", "9", agent="Writer")]
    )
    image = [{"type": "image_url", "image_url": {"url": "x"}}, {"type": "text", "text": "Look."}]
    strange = {"role": "oracle", "content": "Hm."}
    entry["output"]["messages"] = [{"role": "user", "content": image}, strange, 7, {"content": "?"}]
    tree = trees.crew(entry, carried={"plan|model|#1": {"answer": "1."}})

    found = transcript(raw(tree))

    assert found.messages[:2] == (Message("user", "Look."), Message("user", "Hm."))
    assert found.losses == (
        "1 × content of the type 'image_url'",
        "1 × the role 'oracle', told as a user's",
        "2 × something that is no message",
        "1 × a call that another agent made for a task",
        "1 × a plan of the tasks, which is made anew",
    )


def test_calls_in_the_forms_of_other_providers_are_read() -> None:
    entry = trees.done(0, "R", "Writer")
    entry["output"]["messages"] = [
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "t1", "name": "lookup", "input": {"key": "a"}},
            ],
        },
        {"role": "assistant", "content": None, "tool_calls": [{"name": "f", "args": "not json"}]},
        {"role": "assistant", "content": None, "tool_calls": [{"odd": 1}]},
    ]

    found = transcript(raw(trees.ended(entry, raw="R")))

    assert found.messages[:2] == (
        Message("assistant", "I look.", (ToolCall("t1", "lookup", {"key": "a"}),), name="Writer"),
        Message("assistant", "", (ToolCall("call_1", "f", "not json"),), name="Writer"),
    )
    assert [one.id for one in found.uncertain] == ["t1", "call_1"]
    assert found.losses == ("1 × a call of a tool in a form that is not known here",)


def test_a_flow_is_read_method_by_method() -> None:
    crew = {
        "crew_output": {
            "raw": "Yes.",
            "tasks_output": [trees.done(0, "Yes.", "Writer")["output"]],
        }
    }
    feedback = {
        "message": "Approve?",
        "output": {"value": "DRAFT"},
        "feedback": "shorter",
        "outcome": "rejected",
    }
    tree = trees.flow(
        trees.method("begin", None),
        trees.method("count", {"n": 1}),
        trees.method("gather", None) | {"output": crew},
        trees.method("draft", "rejected", feedback=feedback),
    )

    assert transcript(raw(tree)) == Transcript(
        (
            Message("user", '{"topic": "bees"}'),
            Message("assistant", '{"n": 1}', name="count"),
            *of_task("Yes.", "Writer"),
            Message("assistant", "DRAFT", name="draft"),
            Message("assistant", "Approve?", name="draft"),
            Message("user", "shorter"),
        )
    )


def test_a_flow_that_waits_ends_with_what_it_asks() -> None:
    waits = {"method": "draft", "message": "Approve?", "output": "DRAFT"}
    found = transcript(raw(trees.flow(at="pause", waits=waits, carried={"a": 1})))

    assert found.messages[1:] == (
        Message("assistant", "DRAFT", name="draft"),
        Message("assistant", "Approve?", name="draft"),
    )
    assert found.losses == ()


def test_secrets_are_words_and_odd_texts_are_whole() -> None:
    declare_secret("CREW_TRANSCRIPT_KEY", "crew-transcript-5f0c2a77")
    entry = trees.done(0, "half \ud800 of a pair", "Writer")
    entry["output"]["messages"][3]["content"] = "the key is crew-transcript-5f0c2a77"

    found = transcript(raw(trees.ended(entry, raw="x"))).messages

    assert found[3].text == "the key is [secret name:CREW_TRANSCRIPT_KEY]"
    assert found[4].text == "half \ud800 of a pair"


def test_what_is_recorded_of_work_that_is_not_at_its_end_is_told() -> None:
    """What the state carries, and what was written since; the task that began comes first."""
    path = "task-2.0a/1"
    look = f"{path}|tool|Look it up({digest({'key': 'a'})})#1"
    slow = f"{path}|tool|slow({digest({'n': 1})})#1"
    tree = trees.crew(
        carried={
            f"{path}|model|x#1": said(
                [called("c1", "look_it_up", key="a"), called("c2", "slow", n=1)]
            ),
            look: {"gave": "9"},
            "task-2.0a|guardrail|g#1": {"success": True},
        }
    )
    since = [
        effect("task_callback", "k", "started"),
        effect("slow", digest_of(slow, "a call"), "result", data=[1]),
        step(f"{path}|model|x#2", said("I was wrong.")),
        step(f"{path}|model|x#2", None),
        step(f"{path}|model|y#1", said([called("c3", "pay", n=2)])),
        effect("Pay", "other", "started", of="n=2, by=3"),
        step("task-2.0a|person|#1", "Shorter."),
        effect("gone", "key", "started", of="a=1"),
        effect("gone", "key", "result", data="no"),
    ]

    found = transcript(raw(tree), since=since)

    calls = (ToolCall("c1", "look_it_up", {"key": "a"}), ToolCall("c2", "slow", {"n": 1}))
    assert found.messages[:8] == (
        Message("user", "Work on the draft, with care.\n\nExpected: A text."),
        Message("assistant", "", calls, name="Writer"),
        Message("tool", "9", (), "c1", "look_it_up"),
        Message("tool", "[1]", (), "c2", "slow"),
        Message("assistant", "", (ToolCall("c3", "pay", {"n": 2}),), name="Writer"),
        Message("user", "Shorter."),
        Message("user", "Work on the research, with care.\n\nExpected: A text."),
        Message("user", "Work on the review, with care.\n\nExpected: A text."),
    )
    assert found.messages[8:] == (
        Message("assistant", "", (ToolCall("call_3", "gone", "a=1"),)),
        Message("tool", "no", (), "call_3", "gone"),
    )
    assert [call.name for call in found.uncertain] == ["pay"]


@pytest.mark.parametrize(
    ("last", "told", "failed"),
    [
        ({"what": "error", "error": "no way"}, "no way", True),
        ({"what": "unrecorded"}, "It ended, and its result could not be kept.", False),
        ({"what": "result", "taken": "q1"}, "A person said that it happened.", False),
        ({"what": "uncertain"}, None, False),
        ({"what": "paused"}, None, False),
    ],
)
def test_what_is_known_of_a_call_is_told(
    last: dict[str, Any], told: str | None, failed: bool
) -> None:
    since = [
        step("task-1.0a/1|model|x#1", said([called("c", "pay", n=2)])),
        effect("pay", "k", "started", of="n=2"),
        effect("pay", "k", **last),
    ]
    found = transcript(raw(trees.crew()), since=since)
    results = [message for message in found.messages if message.role == "tool"]
    assert [message.failed for message in results] == ([] if told is None else [failed])
    assert all(message.text.startswith(str(told)) for message in results)
    assert len(found.uncertain) == (told is None)


def test_a_run_without_a_waypoint_tells_what_it_was_handed() -> None:
    handed = {"transcript": Transcript((Message("user", "Go."),), (), ("a loss",)).to_json()}
    item = Since("entry", "handoff", {"name": "handoff"}, handed)
    assert transcript(None, since=[item]) == Transcript((Message("user", "Go."),), (), ("a loss",))


def test_what_was_handed_stands_in_front_once_and_says_what_was_settled() -> None:
    open_ = (ToolCall("call_1", "lookup", {"key": "honey"}), ToolCall("p", "pay", {"n": 1}))
    before = Transcript((Message("user", "Go."), Message("assistant", "", open_)), open_)
    entry = trees.done(0, "Yes.", "Researcher")
    prompt = "Current Task: work.\n\nThis is the context you're working with:\n# Handoff\n"
    entry["output"]["messages"][1]["content"] = prompt
    tree = trees.ended(entry, raw="Yes.", handed={"text": "# Handoff\n", "brief": "# Brief"})

    found = transcript(raw(tree), [{"transcript": before.to_json()}])

    assert found.messages[:2] == before.messages
    assert found.messages[2][:4] == ("tool", SETTLED, (), "call_1")
    assert "# Handoff" not in found.messages[4].text
    assert found.messages[5].tool_calls[0].id == "call_1_2"
    assert [call.name for call in found.uncertain] == ["pay"]
    alone = transcript(raw(tree))
    assert alone.losses == ("1 × the conversation that the run was handed, which its journal has",)
    assert "# Handoff" in alone.messages[1].text


ERROR = "Error executing tool: unreachable"


@pytest.mark.parametrize(
    ("later", "left"),
    [
        ([({"key": "honey"}, "29.6 kg")], ["c2"]),
        ([({"key": "honey"}, "29.6 kg"), ({"key": "honey"}, "30 kg")], []),
        ([({"key": "honey"}, ERROR)], ["c1", "c2"]),
        ([({"key": "honey"}, ERROR), ({"key": "honey"}, "29.6 kg")], ["c2"]),
        ([({"key": True}, "1"), ({"key": 1.0}, "1")], ["c1", "c2"]),
    ],
)
def test_an_equal_call_that_did_not_fail_settles_one_that_was_not_certain(
    later: list[tuple[dict[str, Any], str]], left: list[str]
) -> None:
    key: Any = 1 if later[0][0] == {"key": True} else "honey"
    open_ = tuple(ToolCall(id_, "lookup", {"key": key}) for id_ in ("c1", "c2"))
    before = Transcript((Message("user", "Go."), Message("assistant", "", open_)), open_)
    entry = trees.done(0, "Yes.", "Researcher")
    messages = entry["output"]["messages"] = [{"role": "user", "content": "Work."}]
    for number, (arguments, result) in enumerate(later):
        calls = [called(f"d{number}", "lookup", **arguments)]
        messages.append({"role": "assistant", "content": "", "tool_calls": calls})
        messages.append({"role": "tool", "tool_call_id": f"d{number}", "content": result})

    found = transcript(raw(trees.ended(entry, raw="Yes.")), [{"transcript": before.to_json()}])

    assert [call.id for call in found.uncertain] == left
    told = [m for m in found.messages if m.role == "tool"]
    settled = [id_ for id_ in ("c1", "c2") if id_ not in left]
    assert [m.tool_call_id for m in told if m.text == SETTLED and m.failed] == settled
    assert [m.failed for m in told[len(settled) :]] == [result == ERROR for _, result in later]


@pytest.mark.parametrize("ended", [False, True])
def test_a_step_that_came_along_is_no_call_of_its_own(ended: bool) -> None:
    """The call that takes its place is told, also where only the step knows what came of it."""
    came = {"same": "5a4e", "carried": "a", "of": "n=2"}
    since = [
        effect("pay", "old", "started", **came),
        effect("pay", "old", "uncertain", **came),
        step("task-1.0a/1|model|x#1", said([called("c", "pay", n=2)])),
        effect("pay", "new", "started", of="n=2", takes=["pay", "old"]),
        effect("pay", "old", "started", **came),
    ]
    if ended:
        since.append(effect("pay", "old", "result", data="paid", same="5a4e", of="n=2"))

    found = transcript(raw(trees.crew()), since=since)

    assert [call.id for m in found.messages for call in m.tool_calls] == ["c"]
    assert [m.text for m in found.messages if m.role == "tool"] == ["paid"] * ended
    assert len(found.uncertain) == (not ended)


def said(answer: Any) -> dict[str, Any]:
    return {"answer": answer, "agent": "Writer", "usage": [], "model": ""}


def called(id_: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {"id": id_, "function": {"name": name, "arguments": orjson.dumps(arguments).decode()}}


def step(key: str, data: Any) -> Since:
    return Since("entry", "step", {"meta": {"key": key}}, data)


def effect(label: str, key: str, what: str, data: Any = None, **head: Any) -> Since:
    return Since("effect", label, {"key": key, "what": what, "tool": True, **head}, data)


@pytest.mark.parametrize(
    "tree",
    [
        None,
        7,
        [],
        {},
        {"done": 3, "tasks": {}, "skipped": None, "carried": 4},
        {"done": [None, {}, {"output": 5, "did": []}, {"task": {}}], "tasks": [None]},
        {"done": [{"output": {"messages": [None, {"role": 3}, {"role": "tool"}]}}]},
        {"done": [{"output": {"messages": [{"role": "assistant", "tool_calls": [None, 4]}]}}]},
        {"flow": {}, "methods": [None, {"name": 3, "output": 4}, {"feedback": 5}], "waits": 6},
        {"flow": {}, "methods": [{"name": "a", "output": {"crew_output": {"tasks_output": [1]}}}]},
    ],
)
def test_states_of_another_form_are_read_as_far_as_they_go(tree: Any) -> None:
    found = transcript(tree)

    assert all(isinstance(message, Message) for message in found.messages)


def test_another_agent_reads_a_run_without_crewai(tmp_path: Path) -> None:
    tree = trees.crew(trees.done(0, "Three causes.", "Researcher"))
    checkpoint("job", tree, "One task is done.", store=tmp_path)

    done = subprocess.run(
        [sys.executable, "-c", READER, str(tmp_path)], capture_output=True, text=True
    )

    assert find("crewai") is transcript
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "system None 'You are of use.' []",
        "user None 'Current Task: work.' []",
        "assistant Researcher '' ['lookup']",
        "tool lookup '29.6 kg' []",
        "assistant Researcher 'Three causes.' []",
        "user None 'Work on the draft, with care.\\n\\nExpected: A text.' []",
        "user None 'Work on the review, with care.\\n\\nExpected: A text.' []",
        "[] ()",
    ]
