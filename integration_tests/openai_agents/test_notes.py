"""What a person reads of a run. The golden folders beside this are part of the review.

To write them anew after a change of wording: pytest integration_tests/openai_agents/test_notes.py
with WRITE_GOLDEN_NOTES=1; then read them.
"""

# ruff: noqa: E402

from __future__ import annotations

import copy
import logging
import os
import re
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from integration_tests.support import require

require("agents")

from caravanserai.openai_agents import _notes
from caravanserai.openai_agents._folding import folded
from caravanserai_core.notes import Note, render
from integration_tests.notes import hostile
from integration_tests.notes.linter import body, lint, sections
from integration_tests.openai_agents import states
from integration_tests.openai_agents.life import RUN, Life

GOLDEN = Path(__file__).parent / "golden"
CLOCK = "2026-08-20T22:41:03"


def told(runs: list[dict[str, Any]], output: Any = "done") -> list[Note]:
    """Tell the states of a run, each after the one before, the last one as its end."""
    given = runs[0]["original_input"]
    found = [_notes.begun(states.waypoint(runs[0], given))]
    before = states.waypoint(runs[0], given)
    for run in runs[1:]:
        state = states.waypoint(run, given)
        step = (run["current_step"] or {}).get("type")
        if step == "next_step_interruption":
            found.append(_notes.paused(before, state))
        elif step == "next_step_run_again":
            found.append(_notes.turned(before, state))
        else:
            found.append(_notes.ended(before, state, [], output))
        before = state
    return found


def text(note: Note) -> str:
    return render(1, CLOCK, note)


# ---------------------------------------------------------------------- from run states


@pytest.mark.parametrize("release", states.VERSIONS)
def test_each_turn_of_a_refund_is_told(release: str) -> None:
    """Who called what with which arguments, what came back, who took over, what waits."""
    notes = told(states.golden(release, "refund"), "Refund of 40 for order A17 is done.")

    assert [note.summary for note in notes] == [
        'triage agent was given "Refund order A17 please."',
        (
            'triage agent called `lookup_order(order_id="A17")` and got "order A17: 40 EUR, '
            'delivered".'
        ),
        (
            'triage agent called two tools at once: `get_policy(topic="refund")` gave "refunds up '
            'to 50 EUR need approval"; `shipping_quote(order_id="A17")` gave "5 EUR".'
        ),
        "triage agent handed over to refund agent.",
        (
            'refund agent stopped before `issue_refund(order_id="A17", amount=40)`, to have it '
            "approved. The run can wait as long as you like; no process has to stay alive."
        ),
        '`issue_refund(order_id="A17", amount=40)` was approved and gave "refunded 40".',
        (
            'refund agent answered "Refund of 40 for order A17 is done." The run is complete: '
            "5 model answers, 4 tool calls and 75 tokens."
        ),
    ]
    assert [note.next[0] for note in notes] == [
        "triage agent's model answers.",
        "triage agent's model reads the result and goes on.",
        "triage agent's model reads the results and goes on.",
        "refund agent's model answers.",
        "A person answers.",
        "refund agent's model reads the result and goes on.",
        "Nothing: the run is complete.",
    ]
    assert {note.goal for note in notes} == {'"Refund order A17 please."'}
    assert [lint(text(note)) for note in notes] == [[]] * 7


@pytest.mark.parametrize("case", states.CASES)
def test_the_sdk_that_is_installed_is_told_like_both_ends(case: str) -> None:
    here = told(states.record(case))

    for release in states.VERSIONS:
        assert told(states.golden(release, case)) == here


def test_states_without_their_repetitions_are_told_alike() -> None:
    runs = states.golden("0.24", "refund")

    assert told([folded(run) for run in runs]) == told(runs)


def test_what_a_refusal_led_to_is_told() -> None:
    notes = told(states.record("refund", approve=False))

    assert notes[5].summary == (
        '`issue_refund(order_id="A17", amount=40)` was not approved: refund agent was told '
        '"Not today."'
    )
    assert "4 tool calls" not in notes[6].summary
    assert notes[6].so_far[-1] == (
        'refund agent called `issue_refund(order_id="A17", amount=40)`, which was not approved, '
        'and was told "Not today."'
    )


@pytest.mark.parametrize("release", states.VERSIONS)
def test_tools_of_the_provider_images_and_errors_are_told(release: str) -> None:
    first, turn, inside, _ = told(states.golden(release, "rich"))

    assert first.summary == 'rich agent was given "Look at this." and an image.'
    assert turn.summary == (
        'rich agent said "Looking." and called five tools at once: `web_search(query="caravans")` '
        'ran at the provider; `files.read(path="a.txt")` gave "hello"; `image_generation()` gave '
        'an image; `photo()` gave an image; `boom()` gave "It is broken."'
    )
    assert inside.summary == (
        'rich agent called `ask_expert(input="how deep?")` and got "Very deep."'
    )


@pytest.mark.parametrize("release", states.VERSIONS)
def test_an_agent_inside_a_tool_waits_by_its_own_name(release: str) -> None:
    note = told(states.golden(release, "nested"))[1]

    assert note.summary.startswith('expert stopped before `reserve(item="chair")`')
    assert note.happened == ('shop called `ask_expert(input="a chair?")`, where expert works.',)


def _items(*items: tuple[str, dict[str, Any]], **more: Any) -> dict[str, Any]:
    """Return a waypoint's state with items of one agent."""
    agent = {"name": "clerk"}
    found = [{"type": kind, "raw_item": raw, "agent": agent} for kind, raw in items]
    return states.waypoint(
        {"session_items": found, "current_agent": agent, "model_responses": [], **more}, "Go."
    )


def _result(id_: str, output: Any) -> tuple[str, dict[str, Any]]:
    raw = {"type": "function_call_output", "call_id": id_, "output": output}
    return "tool_call_output_item", raw


def test_a_tool_of_the_provider_that_is_to_be_approved_is_told() -> None:
    asks = {
        "type": "mcp_approval_request",
        "id": "mcpr_1",
        "server_label": "bank",
        "name": "pay",
        "arguments": '{"amount": 40}',
    }
    step = {"data": {"interruptions": [{"type": "tool_approval_item", "raw_item": asks}]}}
    decision = {"identity": {}, "decision": {"approved": ["mcpr_1"], "rejected": []}}
    waits = _items(("mcp_approval_request_item", asks), current_step=step)
    goes_on = _items(
        ("mcp_approval_request_item", asks), context={"hosted_mcp_approvals": [decision]}
    )

    assert _notes.paused(None, waits).summary.startswith(
        "clerk stopped before `bank.pay(amount=40)`, to have it approved."
    )
    assert _notes.paused(None, waits).happened == ()
    assert _notes.turned(None, goes_on).summary == (
        "clerk asked to run `bank.pay(amount=40)`, which was approved."
    )


def test_an_approval_counts_for_its_own_answer_where_ids_come_again() -> None:
    """Some servers number the calls of each answer from 0."""
    call, approved = states.call("pay", "call_0", amount=1), {"approved": ["call_0"]}
    one = [
        ("tool_call_item", call),
        ("tool_approval_item", call),
        _result("call_0", "paid"),
        ("tool_call_item", states.call("look", "call_0")),
        _result("call_0", "found"),
    ]

    note = _notes.turned(None, _items(*one, context={"approvals": {"pay": approved}}))

    assert note.summary == (
        'clerk called `pay(amount=1)`, which was approved, and got "paid". '
        'clerk called `look()` and got "found".'
    )


def test_many_calls_at_once_are_told_one_by_one_below_the_story() -> None:
    calls = [
        ("tool_call_item", states.call("read", f"c{n}", path=f"file-{n}.txt")) for n in range(7)
    ]
    results = [_result(f"c{n}", f"what stands in file {n}, at some length") for n in range(7)]

    note = _notes.turned(None, _items(*calls, *results))

    assert note.summary == "clerk called seven tools at once: `read` (7 times)."
    assert len(note.happened) == 7
    assert note.happened[3] == (
        '`read(path="file-3.txt")` gave "what stands in file 3, at some length".'
    )


def test_what_a_shell_changed_is_said_not_to_be_listed() -> None:
    ran = {"type": "shell_call", "call_id": "s", "action": {"commands": ["ls", "rm x"]}}
    gave = {"type": "shell_call_output", "call_id": "s", "output": [{"stdout": "x", "stderr": ""}]}

    note = _notes.turned(None, _items(("tool_call_item", ran), ("tool_call_output_item", gave)))

    assert note.summary == (
        'clerk called `shell(command=["ls", "rm x"])` and got "x". '
        "What that changed on the machine is not listed."
    )


def test_what_is_kept_is_said_after_a_crash() -> None:
    runs = states.golden("0.24", "refund")
    before, state = (states.waypoint(run, "Refund it.") for run in runs[1:3])

    note = _notes.turned(before, state, resumed=True)

    assert note.summary.startswith("**Picked up after a crash.** triage agent called two tools")
    assert note.so_far[-1] == (
        "Both model answers and the 3 finished tool calls are kept and will not be repeated."
    )


def test_an_answer_is_told_as_soon_as_it_is_recorded() -> None:
    asked = [states.call("issue_refund", "c", order_id="A17", amount=40)]
    patch = [{"type": "apply_patch_call", "call_id": "p", "operation": {"path": "a.py"}}]
    shell = [{"type": "shell_call", "call_id": "s", "action": {"commands": ["ls"]}}]

    assert _notes.answered("refund agent", {"output": asked}) == (
        'refund agent\'s model asked for `issue_refund(order_id="A17", amount=40)`.'
    )
    assert _notes.answered("refund agent", {"output": [states.says("Done.")]}) == (
        'refund agent\'s model said "Done."'
    )
    assert _notes.answered("a", {"output": []}) == "a's model gave an empty answer."
    assert "`apply_patch` does is not recorded" in _notes.answered("a", {"output": patch})
    assert _notes.answered("a", {"output": shell}) == (
        'a\'s model asked for `shell(command=["ls"])`.'
    )


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ('{"order_id": "A17", "amount": 40}', 'order_id="A17", amount=40'),
        ("{}", ""),
        ("", ""),
        ("not json", 'arguments="not json"'),
        ("[1, 2]", 'arguments="[1, 2]"'),
        ('{"body": "' + "x" * 100 + '", "to": "ann"}', 'body=…, to="ann"'),
        (f'{{"n": {"9" * 5000}}}', "arguments=…"),
    ],
)
def test_arguments_are_shown_as_they_stand_in_a_call(arguments: str, shown: str) -> None:
    assert _notes.called_as("issue_refund", arguments) == shown


def test_arguments_nested_too_deep_for_a_parser_are_told_of_all_the_same() -> None:
    assert _notes.called_as("f", '{"a": ' * 9000 + "1" + "}" * 9000) in ("a=…", "arguments=…")


# ---------------------------------------------------------------------- bounds


def _long(turns: int) -> dict[str, Any]:
    """Return a run of many turns, of one call each."""
    items = []
    for n in range(turns):
        for kind, raw in (
            ("tool_call_item", states.call("look", f"c{n}", n=n)),
            (
                "tool_call_output_item",
                {"type": "function_call_output", "call_id": f"c{n}", "output": f"found {n}"},
            ),
        ):
            items.append({"type": kind, "raw_item": raw, "agent": {"name": "searcher"}})
    return {
        "session_items": items,
        "current_turn": turns,
        "current_agent": {"name": "searcher"},
        "model_responses": [{}] * turns,
        "current_step": {"type": "next_step_run_again"},
    }


def test_so_far_stays_short_in_a_long_run() -> None:
    before, state = (states.waypoint(_long(turns), "Search.") for turns in (300, 301))

    note = _notes.turned(before, state)

    assert note.summary == 'searcher called `look(n=300)` and got "found 300".'
    assert note.so_far[0] == "292 earlier turns, see the older notes"
    assert note.so_far[-1] == 'searcher called `look(n=299)` and got "found 299".'
    assert len(note.so_far) == 9


def test_a_note_costs_the_same_at_the_end_of_a_long_run() -> None:
    def cost(turns: int) -> float:
        before, state = (states.waypoint(_long(n), "Search.") for n in (turns - 1, turns))
        times = []
        for _ in range(5):
            start = time.perf_counter()
            _notes.turned(before, state)
            times.append(time.perf_counter() - start)
        return min(times)

    cost(100)
    assert cost(20_000) < 10 * cost(100)


# ---------------------------------------------------------------------- what may come


def _run_with(text_: str, who: str) -> dict[str, Any]:
    """Return a run in which everything that somebody else writes is one text."""
    agent = {"name": who}
    items = [
        {"type": "message_output_item", "raw_item": states.says(text_), "agent": agent},
        {
            "type": "tool_call_item",
            "raw_item": {**states.call(text_, "c1", note=text_), "arguments": text_},
            "agent": agent,
        },
        {"type": "tool_call_item", "raw_item": states.call("f", "c2", x=text_), "agent": agent},
        {"type": text_, "raw_item": {"type": text_}, "agent": agent},
        {
            "type": "tool_call_output_item",
            "raw_item": {"type": "function_call_output", "call_id": "c1", "output": text_},
            "agent": agent,
        },
        {
            "type": "handoff_output_item",
            "raw_item": {"type": "function_call_output", "call_id": "c3", "output": text_},
            "agent": agent,
            "source_agent": agent,
            "target_agent": agent,
        },
    ]
    waits = [{"type": "tool_approval_item", "raw_item": items[1]["raw_item"], "agent": agent}]
    return {
        "session_items": items,
        "current_agent": agent,
        "current_turn": 1,
        "current_step": {"type": "next_step_interruption", "data": {"interruptions": waits}},
    }


@pytest.mark.parametrize("agent", ["triage agent", None])
@pytest.mark.parametrize("name", hostile.ALL)
def test_no_text_from_outside_changes_what_a_note_says(name: str, agent: str | None) -> None:
    """Whatever stands in a name, a message, an argument or a result stays inside its quote."""
    text_ = hostile.ALL[name]
    who = agent or text_
    runs = [{"session_items": [], "current_agent": {"name": who}}, _run_with(text_, who)]
    before, state = (states.waypoint({"model_responses": [], **run}, text_) for run in runs)
    notes = [
        _notes.begun(before),
        _notes.turned(before, state, resumed=True),
        _notes.paused(before, state),
        _notes.ended(before, state, [], text_),
        _notes.turned(state, state),
        Note(_notes.answered(who, {"output": [states.says(text_), states.call(text_, "c")]})),
    ]

    for note in notes:
        written = text(note)
        assert lint(written, quotes_data=True) == [], written
        assert len(written) < 12_000
        assert set(sections(written)) <= {"Happened", "Next", "So far", "Goal"}
        if note.next and agent is not None:
            assert "Delete" not in body(written, "Next")


@pytest.mark.parametrize(
    "broken",
    [
        None,
        7,
        [],
        {},
        {"session_items": 3, "current_step": 4, "context": 5, "current_agent": 6},
        {"session_items": [None, 7, {}, {"type": 3, "raw_item": 4, "agent": 5}]},
        {"session_items": [{"type": "new_item", "raw_item": {"type": "new", "x": [1]}}]},
        {"current_step": {"data": {"interruptions": [None, {"raw_item": {}}]}}},
        {"context": {"approvals": {"a": 3}, "function_tool_approvals": [4], "usage": 5}},
        {"model_responses": {}, "current_turn": "x"},
    ],
)
def test_states_of_another_form_are_told_all_the_same(
    broken: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A note never stops a run, and what is not known is no reason to fall back on none."""
    state = {"given": broken, "run": broken, "counts": broken}
    with caplog.at_level(logging.WARNING, "caravanserai"):
        notes = [
            _notes.begun(state),
            _notes.turned(None, state),
            _notes.turned(state, state),
            _notes.paused(None, state, resumed=True),
            _notes.ended(None, state, [{}, {"output": 3}, {"output": [None]}], object()),
        ]

    assert caplog.records == []
    assert [lint(text(note)) for note in notes] == [[]] * 5


def test_an_unknown_item_is_told_by_its_type() -> None:
    run = copy.deepcopy(states.golden("0.24", "refund")[1])
    run["session_items"].append(
        {"type": "hologram_item", "raw_item": {"type": "hologram"}, "agent": {"name": "triage"}}
    )

    note = _notes.turned(None, states.waypoint(run, "Look."))

    assert 'Items of a kind that is not known here ("hologram")' in note.summary


# ---------------------------------------------------------------------- real runs


def undisturbed(life: Life) -> None:
    """A refund, approved."""
    life.finished()


def killed_in_a_tool(life: Life) -> None:
    """One of two tools was done when the process died."""
    life.killed("between")
    life.finished()


def killed_after_its_effect(life: Life) -> None:
    """The refund was paid when the process died, and a person says so."""
    life.killed("end issue_refund")
    life.ended()
    life.agree_that_it_happened("refunded 40 EUR")
    life.finished()


def uncertain(life: Life) -> None:
    """The refund was paid when the process died, and nobody has said so yet."""
    life.killed("end issue_refund")
    life.ended()


def killed_after_an_answer(life: Life) -> None:
    """The process died when the model had asked for the hand-over."""
    life.killed("hook model 3")


REAL = (
    undisturbed,
    killed_in_a_tool,
    killed_after_its_effect,
    uncertain,
    killed_after_an_answer,
)


def _notes_in(folder: Path) -> dict[str, str]:
    sdk = f"OpenAI Agents SDK {version('openai-agents')}"
    found = {}
    for path in sorted(folder.glob("*.md")):
        note = path.read_text(encoding="utf-8").replace(sdk, "OpenAI Agents SDK VERSION")
        note = re.sub(r"\d{4}-\d\d-\d\d(?=[T ])", "2026-08-20", note)
        note = re.sub(r"\d\d:\d\d:\d\d", "22:41:03", note)
        note = re.sub(r"process \d+ on [^),\s]+", "process 4121 on build-7", note)
        note = re.sub(r'(?<=by )("?)[\w.-]+("? at |$)', r"\1ana\2", note, flags=re.MULTILINE)
        found[path.name] = note
    return found


@pytest.mark.parametrize("case", REAL, ids=lambda case: case.__name__)
def test_a_run_tells_its_story(case: Callable[[Life], None], life: Callable[..., Life]) -> None:
    """Each waypoint says what was done and what is next, in the words of the golden file."""
    one = life("refund")

    case(one)

    written = _notes_in(one.folder / ".caravanserai" / RUN)
    folder = GOLDEN / case.__name__
    if os.environ.get("WRITE_GOLDEN_NOTES"):
        folder.mkdir(parents=True, exist_ok=True)
        for name, note in written.items():
            (folder / name).write_text(note, encoding="utf-8")
    expected = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.md")}
    assert written == expected
    for note in written.values():
        assert lint(note) == []
