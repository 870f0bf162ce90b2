"""A session's conversation is read from its journal, in a program that has no SDK."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from caravanserai.claude_agent import _entries, _facts
from caravanserai.claude_agent.transcript import transcript
from caravanserai_core import codec
from caravanserai_core.conversation import read
from caravanserai_core.run import open_run
from caravanserai_core.transcript import Message, ToolCall, Transcript

SESSION = "6f0c2e0e-0b6b-5d0b-9f0e-3c1a2b7d4e55"
PROMPT = "Charge customers 1 and 2."

Entry = dict[str, Any]


def raw(value: object) -> Any:
    return orjson.loads(codec.encode(value).data)


def user(uuid: str, parent: str | None, content: Any, **more: Any) -> Entry:
    message = {"role": "user", "content": content}
    return {"type": "user", "uuid": uuid, "parentUuid": parent, "message": message, **more}


def says(uuid: str, parent: str | None, *content: Entry, of: str = "", **more: Any) -> Entry:
    message = {"role": "assistant", "id": of or f"msg_{uuid}", "content": list(content), **more}
    return {"type": "assistant", "uuid": uuid, "parentUuid": parent, "message": message}


def text(said: str) -> Entry:
    return {"type": "text", "text": said}


def call(id_: str, n: int) -> Entry:
    return {"type": "tool_use", "id": id_, "name": "charge", "input": {"n": n}}


def gave(uuid: str, parent: str, id_: str, result: Any, *, failed: bool = False) -> Entry:
    block = {"type": "tool_result", "tool_use_id": id_, "content": result, "is_error": failed}
    return user(uuid, parent, [block])


def piece(*entries: Entry, path: str = "", session: str = SESSION) -> Any:
    return raw({"session": session, "path": path, "entries": list(entries)})


def tree(last: str = "", **session: Any) -> Any:
    found = _facts.begun("bill", "0.2.189", PROMPT)
    found["session"] |= {"id": SESSION, "number": 1, "last": last, **session}
    return raw(found)


BATCH = (
    {"type": "queue-operation", "operation": "enqueue"},
    user("u1", None, PROMPT),
    {"type": "attachment", "uuid": "x1", "parentUuid": "u1", "attachment": {"type": "date"}},
    says("a1", "x1", text("Both at once."), of="m1"),
    says("a2", "a1", call("c1", 1), of="m1"),
    gave("r1", "a2", "c1", [text("charged 1")]),  # it came before the answer was whole
    says("a3", "a2", call("c2", 2), of="m1"),
    gave("r2", "a3", "c2", "no card", failed=True),
    {"type": "attachment", "uuid": "x2", "parentUuid": "r2", "attachment": {"type": "date"}},
    says("a4", "x2", text("One is charged.")),
)
CALLS = (ToolCall("c1", "charge", {"n": 1}), ToolCall("c2", "charge", {"n": 2}))
CHARGED = (
    Message("user", PROMPT),
    Message("assistant", "Both at once.", CALLS),
    Message("tool", "charged 1", (), "c1", "charge"),
    Message("tool", "no card", (), "c2", "charge", failed=True),
)
SAID = Message("assistant", "One is charged.")


def test_the_parts_of_an_answer_are_one_message_with_all_its_results() -> None:
    """The results lie beside the way from the newest entry to the first, all but one."""
    assert transcript(tree(), [piece(*BATCH)]) == Transcript((*CHARGED, SAID))


def test_it_ends_where_the_waypoint_stands() -> None:
    assert transcript(tree("r2"), [piece(*BATCH)]) == Transcript(CHARGED)


def test_a_part_of_an_answer_may_lie_beside_the_way_too() -> None:
    """Where the result of the first call came last, the conversation goes on from that one."""
    late = (
        *BATCH[1:5],
        BATCH[6],
        gave("r2", "a3", "c2", "no card", failed=True),
        gave("r1", "a2", "c1", [text("charged 1")]),
        says("a4", "r1", text("One is charged.")),
    )

    assert transcript(tree(), [piece(*late)]).messages == (
        *CHARGED[:2],
        CHARGED[3],
        CHARGED[2],
        SAID,
    )


def test_a_call_without_a_result_is_uncertain() -> None:
    found = transcript(tree("a3"), [piece(*BATCH)])

    assert found.messages == CHARGED[:3]
    assert found.uncertain == (CALLS[1],)


def test_entries_of_several_appends_are_one_transcript() -> None:
    assert transcript(tree(), [piece(*BATCH[:5]), piece(*BATCH[5:])]).messages == (*CHARGED, SAID)


def test_a_branch_that_was_left_is_left_out() -> None:
    """A session that is resumed after a crash goes on in front of what was cut off."""
    other = says("b1", "u1", text("Cut off."))

    assert transcript(tree(), [piece(*BATCH[:2], other, *BATCH[2:])]).messages[1:2] == CHARGED[1:2]
    assert transcript(tree("b1"), [piece(*BATCH[:2], other, *BATCH[2:])]).messages == (
        CHARGED[0],
        Message("assistant", "Cut off."),
    )


def shortened(**metadata: Any) -> list[Entry]:
    return [
        {
            "type": "system",
            "subtype": "compact_boundary",
            "uuid": "b1",
            "parentUuid": None,
            "logicalParentUuid": "a4",
            "compactMetadata": {"preTokens": 98_400, "postTokens": 14_200, **metadata},
        },
        user("s1", "b1", "The summary.", isCompactSummary=True),
        says("a5", "s1", text("On with it.")),
    ]


def test_a_summary_stands_for_what_was_shortened() -> None:
    found = transcript(tree(), [piece(*BATCH, *shortened())])

    assert found.messages == (Message("user", "The summary."), Message("assistant", "On with it."))
    assert found.losses == ("7 × earlier entry, for which Claude's own summary stands",)
    assert transcript(tree("a4"), [piece(*BATCH, *shortened())]).messages == (*CHARGED, SAID)


def test_what_was_preserved_stands_behind_the_summary() -> None:
    kept = {"headUuid": "a1", "anchorUuid": "s1", "tailUuid": "a4"}

    found = transcript(tree(), [piece(*BATCH, *shortened(preservedSegment=kept))])

    assert found.messages == (
        Message("user", "The summary."),
        *CHARGED[1:],
        SAID,
        Message("assistant", "On with it."),
    )
    assert found.losses == ("1 × earlier entry, for which Claude's own summary stands",)


def test_how_long_it_was_is_read_from_the_boundary() -> None:
    assert _entries.sizes(shortened()) == {"before": 98_400, "after": 14_200}
    assert _entries.sizes(BATCH) == {}


def test_what_the_cli_made_up_and_what_no_message_can_hold_is_left_out() -> None:
    image = {"type": "image", "source": {"data": "…"}}
    entries = (
        user("u1", None, [text("Look."), image]),
        user("u2", "u1", "Continue from where you left off.", isMeta=True),
        says("a1", "u2", {"type": "thinking", "thinking": "Hm."}, text("I see.")),
        says("a2", "a1", text("API Error"), model="<synthetic>"),
        says("a3", "a2", call("c1", 1)),
        gave("r1", "a3", "c1", [text("a"), image]),
    )

    found = transcript(tree(), [piece(*entries)])

    assert [message.text for message in found.messages] == ["Look.", "I see.", "", "a\n[image]"]
    assert found.losses == ("2 × content of the type 'image'", "1 × content of the type 'thinking'")


def test_of_subagents_and_other_sessions_it_is_said_that_they_are_left_out() -> None:
    inside = user("i1", None, "Charge them.", isSidechain=True)
    pieces = [
        piece(user("o1", None, "Before."), session="another"),
        piece(*BATCH),
        piece(inside, path="subagents/agent-1"),
        piece(inside, path="subagents/agent-1"),
    ]

    found = transcript(tree(number=2), pieces)

    assert found.messages == (*CHARGED, SAID)
    assert found.losses == (
        "1 × conversation of a subagent",
        "1 × earlier session of the run",
    )


def test_before_anything_was_said_it_is_what_was_asked() -> None:
    assert transcript(tree(id=None)) == Transcript((Message("user", PROMPT),))


def test_without_its_entries_it_says_what_is_missing() -> None:
    found = transcript(tree())

    assert found.messages == (Message("user", PROMPT),)
    assert found.losses == ("1 × conversation whose entries were not given",)


def test_text_and_arguments_that_need_tags_are_whole() -> None:
    given = {"$ref": "x", "n": 10**30}
    odd = {"type": "tool_use", "id": "c1", "name": "look", "input": {"$schema": given}}

    found = transcript(tree(), [piece(user("u1", None, "\ud800!"), says("a1", "u1", odd))])

    assert found.messages[0].text == "\ud800!"
    assert found.uncertain[0].arguments == {"$schema": given}


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"entries": None},
        {"session": SESSION, "path": "", "entries": [None, {}, {"type": "user"}, 3]},
        {"session": SESSION, "path": "", "entries": [user("u1", "u1", [None, 3, {}])]},
        {"session": SESSION, "path": "", "entries": [{**user("u1", None, "a"), "message": 3}]},
        None,
    ],
)
def test_entries_of_an_odd_form_are_passed_over(odd: Any) -> None:
    assert transcript(tree(), [raw(odd)]).messages == (Message("user", PROMPT),)


def test_a_state_of_an_odd_form_has_no_conversation() -> None:
    assert transcript([1]) == Transcript(())


# ---------------------------------------------------------------------- from the store


def written(store: Path) -> None:
    """Write a run as the adapter does, with two waypoints."""
    with open_run("bill", store=store, adapter="claude-agent") as run:
        run.entry("transcript", {"session": SESSION, "path": "", "entries": list(BATCH[:8])})
        run.entry("fact", {"what": "said", "text": "Both at once."})
        run.checkpoint(orjson.loads(orjson.dumps(tree("r2"))), "One batch.")
        run.entry("transcript", {"session": SESSION, "path": "", "entries": list(BATCH[8:])})
        run.checkpoint(orjson.loads(orjson.dumps(tree("a4"))), "The end.")


def test_the_conversation_of_a_run_is_read_up_to_a_waypoint(tmp_path: Path) -> None:
    written(tmp_path)

    assert read("bill", store=tmp_path).messages == (*CHARGED, SAID)
    assert read("bill", at=1, store=tmp_path).messages == CHARGED
    assert read("bill", at=-2, store=tmp_path).messages == CHARGED


READER = """
import sys
sys.modules["claude_agent_sdk"] = sys.modules["psutil"] = sys.modules["mcp"] = None  # imports fail
from caravanserai_core.conversation import read
found = read("bill", store=sys.argv[1])
for one in found.messages:
    print(one.role, one.name, repr(one.text), [call.name for call in one.tool_calls])
"""


def test_it_is_read_without_the_sdk(tmp_path: Path) -> None:
    written(tmp_path)

    command = [sys.executable, "-c", READER, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[1:3] == [
        "assistant None 'Both at once.' ['charge', 'charge']",
        "tool charge 'charged 1' []",
    ]
