"""Faults that users of the SDK reported, each as what is right instead."""

# ruff: noqa: E402

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from integration_tests.support import require

require("claude_agent_sdk")

from caravanserai import history, load
from integration_tests.claude_agent.life import Life
from integration_tests.claude_agent.scripts import charge

Start = Callable[..., Life]

THREE = [charge(1, 2, 3), {"say": "It is done."}]
ALL = [f"{side} {n}" for n in (1, 2, 3) for side in ("begin", "end")]


def job(life: Start, script: list[object], **options: object) -> Life:
    one = life("four", script=script, **options)
    one.call = "integration_tests.claude_agent.talking:run"
    one.options = {"way": "query", "says": ["Charge them."], **one.options}
    return one


@pytest.mark.parametrize("damage", ["cut", "torn", "empty"])
def test_calls_without_results_do_not_make_a_session_unusable(life: Start, damage: str) -> None:
    """anthropics/claude-code#45286: three calls were recorded and none of their results."""
    one = job(life, THREE)
    one.killed("end 3")
    for file in (one.folder / "config").glob("projects/*/*.jsonl"):
        lines = file.read_bytes().splitlines(keepends=True)
        results = [n for n, line in enumerate(lines) if b'"tool_result"' in line]
        kept = lines[: results[0]] if results else lines
        if damage == "torn":
            kept[-1] = kept[-1][: len(kept[-1]) // 2]
        file.write_bytes(b"" if damage == "empty" else b"".join(kept))

    last = one.finished()

    assert last["results"][-1]["result"] == "It is done."
    one.asked()  # the model never refused a conversation with an open call
    outside = one.outside()
    assert all(outside[line] <= 1 + one.uncertain for line in ALL)
    assert outside["begin 1"] == outside["begin 2"] == 1, "what had ended is not done again"


def test_after_changing_to_another_run_the_first_gets_no_entries(life: Start) -> None:
    """anthropics/claude-code#30802: after a switch, entries went to the session before."""
    one = job(life, [{"say": "It is done."}], way="client")
    one.ended(says=["This is for A."])
    first = one.run_id
    before = (one.folder / ".caravanserai" / first / "journal-1.jsonl").read_bytes()
    one.run_id = "b"
    one.ended(says=["This is for B."])
    other = load("b", store=one.store)["session"]["id"]

    assert (one.folder / ".caravanserai" / first / "journal-1.jsonl").read_bytes() == before
    assert load(first, store=one.store)["session"]["id"] != other
    journal = (one.folder / ".caravanserai" / "b" / "journal-1.jsonl").read_text()
    assert "This is for B." in journal
    assert "This is for A." not in journal


def test_a_session_is_found_by_its_run_whatever_its_file_begins_with(life: Start) -> None:
    """anthropics/claude-code#62851: a first line of another type hid the conversation."""
    one = job(life, [{"say": "It is done."}], way="client")
    first = one.ended(says=["Remember the word HEDGEHOG."])
    for file in (one.folder / "config").glob("projects/*/*.jsonl"):
        title = json.dumps({"type": "summary", "summary": "A note", "leafUuid": "x"}) + "\n"
        file.write_text(title + file.read_text())
        file.parent.rename(file.parent.with_name("-renamed"))

    second = one.ended(says=["Which word?"])

    assert second["results"][0]["session_id"] == first["results"][0]["session_id"]
    assert "HEDGEHOG" in str(one.server.bodies[-1]["messages"])


def test_a_session_that_gets_another_id_is_still_the_run(life: Start) -> None:
    """anthropics/claude-code#5012: the run stays, and the new id is in the next waypoint."""
    one = job(life, [{"say": "It is done."}], way="client")
    found = one.ended(says=["Remember the word HEDGEHOG.", "/clear", "Remember the word OTTER."])
    ids = [result["session_id"] for result in found["results"]]
    assert ids[0] != ids[-1], "the CLI began another session"
    last = history(one.run_id, store=one.store)[-1]
    assert last.meta["session"] == ids[-1]
    assert load(one.run_id, store=one.store)["session"]["id"] == ids[-1]

    again = one.ended(says=["Which word?"])

    assert again["results"][0]["session_id"] == ids[-1]
    assert "OTTER" in str(one.server.bodies[-1]["messages"])
    assert "HEDGEHOG" not in str(one.server.bodies[-1]["messages"])


@pytest.mark.parametrize("way", ["query", "client"])
def test_a_session_that_the_cli_has_lost_is_built_anew(life: Start, way: str) -> None:
    """anthropics/claude-code#12730: "No conversation found", and all of it was gone."""
    one = job(life, THREE, way=way)
    one.killed("begin 3")
    first = load(one.run_id, store=one.store)["session"]["id"]

    lost = one.ended(lost=True)
    last = one.finished() if way == "query" else None

    assert lost["error"] is None
    session = load(one.run_id, store=one.store)["session"]["id"]
    assert session != first
    assert "is built from what is recorded" in (one.folder / "out.txt").read_text() or last
    told = [text for body in one.server.bodies for text in said(body) if "<earlier-conv" in text]
    assert "Charge them." in told[0]
    assert one.outside()["begin 1"] == 1, "what had ended is not done again"
    notes = "".join(path.read_text() for path in one.folder.rglob("waypoint-*.md"))
    assert "could not be opened" in notes


def said(body: dict[str, object]) -> list[str]:
    messages: list[dict[str, object]] = body["messages"]  # type: ignore[assignment]
    contents = [message["content"] for message in messages]
    blocks = [block for content in contents if isinstance(content, list) for block in content]
    return [str(block.get("text", "")) for block in blocks]


def test_the_program_has_one_id_of_its_own(life: Start) -> None:
    """anthropics/claude-agent-sdk-python#338: no second id has to be kept beside one's own."""
    one = job(life, [{"say": "It is done."}], way="client")
    one.run_id = "ticket 42 (ünïcode)"
    first = one.ended(says=["Hello."])
    second = one.ended(says=["Hello again."])

    session = first["results"][0]["session_id"]
    assert second["results"][0]["session_id"] == session
    assert history(one.run_id, store=one.store)[-1].meta["session"] == session
