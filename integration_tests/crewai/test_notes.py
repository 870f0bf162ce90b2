"""What a person reads of a crew and of a flow. The golden folders beside this are in the review.

To write them anew after a change of wording: pytest integration_tests/crewai/test_notes.py with
WRITE_GOLDEN_NOTES=1; then read them.
"""

from __future__ import annotations

import logging
import time
from typing import Any

import pytest

from caravanserai import declare_secret
from caravanserai.crewai import _notes
from caravanserai_core.notes import Note, render
from integration_tests.crewai import trees
from integration_tests.notes import hostile
from integration_tests.notes.linter import body, lint, sections

RUN = "bees-report"
CLOCK = "2026-08-20T22:41:03"
DRAFT = "# Bees in the city\n\n" + "City hives now give more honey than country hives.\n" * 20

RESEARCHED = trees.done(0, "Three causes.", "Researcher")
DRAFTED = trees.done(
    1,
    DRAFT,
    "Writer",
    tools=[
        trees.call("lookup", 'key="honey yield"', "29.6 kg per hive", agent="Writer"),
        trees.call("visit", "", "ConnectionError: no way", agent="Writer", failed=True),
        trees.call("ask", 'who="Ann"', "", agent="Researcher"),
    ],
    guardrail_retries=1,
)
REVIEWED = trees.done(2, "One page.", "Editor")


def text(note: Note) -> str:
    return render(1, CLOCK, note)


# ---------------------------------------------------------------------- crews


def test_a_crew_that_begins_tells_its_plan() -> None:
    note = _notes.begun(trees.crew(), RUN)

    assert note.summary == (
        "Crew `report` begins: 3 tasks are planned. Next is task 1: *research*, by Researcher."
    )
    assert note.plan[0] == ('1. *research*, by Researcher: "Work on the research, with care."', 0)
    assert note.next == (
        (
            "Researcher starts task 1, *research*. After a crash, start run `bees-report` again "
            "with the same inputs."
        ),
    )
    assert note.goal == 'Crew `report`, started with topic = "bees in the city".'


def test_a_task_that_is_done_tells_who_did_what_and_what_is_next() -> None:
    note = _notes.task_done(trees.crew(RESEARCHED, DRAFTED), RUN, resumed=False)

    assert note.summary == (
        "Task 2 of 3 is done: *draft*, by Writer. Next is task 3: *review*, by Editor."
    )
    assert note.happened[:5] == (
        "Writer worked on *draft* for 41 s: 2 model calls, 3 tool calls.",
        '`lookup(key="honey yield")` gave "29.6 kg per hive".',
        '`visit()` failed: "ConnectionError: no way".',
        'Researcher called `ask(who="Ann")`, which gave nothing.',
        "A guardrail refused 1 earlier result.",
    )
    assert note.happened[5].startswith(
        "The result has 1,040 characters and begins:\n\n```text\n# Bees in the city\n"
    )
    assert note.happened[5].endswith("country hives. …\n```")
    assert list(note.plan) == [
        ('1. *research*, by Researcher: "Three causes."', True),
        ("2. *draft*, by Writer", True),
        ('3. *review*, by Editor: "Work on the review, with care."', False),
    ]
    assert note.next == (
        (
            "Editor starts task 3, *review*. After a crash, start run `bees-report` again with "
            "the same inputs: tasks 1 and 2 are taken from here, without a model call."
        ),
    )
    assert lint(text(note)) == []


def test_after_a_crash_the_time_is_not_said_to_be_all_of_it() -> None:
    note = _notes.task_done(trees.crew(RESEARCHED), RUN, resumed=True)

    assert note.summary.startswith("**Picked up after a crash.** Task 1 of 3 is done")
    assert note.happened[0] == (
        "Researcher worked on *research*: 2 model calls, 0 tool calls, with those before the "
        "crash, and 41 s since."
    )


def test_the_end_tells_totals_and_the_result() -> None:
    tree = trees.ended(RESEARCHED, DRAFTED, REVIEWED, raw="One page.")
    note = _notes.finished(tree, RUN, resumed=False)

    assert note.summary == (
        "The crew is done: 3 tasks, 6 model calls, 3 tool calls and 310 tokens, 2 min 4 s."
    )
    assert note.happened == ("1 tool call failed.", 'The result is "One page."')
    assert note.plan[1].text.startswith("2. *draft*, by Writer: `# Bees in the city")
    assert note.plan[1].text.endswith("1,040 characters")
    assert note.plan[2] == ("3. *review*, by Editor", True)
    assert note.next[0].startswith("Nothing: the crew is done.")


def test_a_task_that_was_left_out_is_neither_open_nor_done() -> None:
    tree = trees.ended(RESEARCHED, REVIEWED, raw="One page.", skipped=[1])
    note = _notes.finished(tree, RUN, resumed=True)

    assert note.summary == (
        "**Picked up after a crash.** The crew is done: 2 of 3 tasks (1 left out), 4 model calls, "
        "0 tool calls and 310 tokens, 1 min 22 s."
    )
    assert note.plan[1] == ("2. *draft*: left out, its condition did not hold", True)


def test_tasks_without_a_name_are_told_by_their_text() -> None:
    unnamed = [trees.task(None, "Writer"), trees.task(None, None)]
    note = _notes.task_done(
        trees.crew(trees.done(0, "Yes.", "Writer"), tasks=unnamed), RUN, resumed=False
    )

    assert note.summary == (
        'Task 1 of 2 is done: "Work on the report, with care.", by Writer. Next is task 2: '
        '"Work on the report, with care.".'
    )
    assert note.plan[1] == ('2. "Work on the report, with care."', False)


def test_a_manager_gives_tasks_out() -> None:
    tasks = [trees.task(name, None) for name in trees.NAMES]
    process = {"name": "managed", "process": "hierarchical"}
    first = _notes.begun(trees.crew(tasks=tasks, crew=process), RUN)
    entry = trees.done(
        0,
        "Done.",
        "Crew Manager",
        tools=[trees.call("lookup", "", "9", agent="Writer")],
    )
    second = _notes.task_done(trees.crew(entry, tasks=tasks, crew=process), RUN, resumed=False)

    assert "A manager gives them to its agents. Next is task 1: *research*." in first.summary
    assert second.summary.startswith("Task 1 of 3 is done: *research*, by Crew Manager.")
    assert second.happened[1] == 'Writer called `lookup()`, which gave "9".'
    assert second.next[0].startswith("The manager works on task 2, *draft*.")


def test_tasks_that_run_beside_each_other_are_not_said_to_wait() -> None:
    tasks = [
        trees.task("research", "Researcher", **{"async": True}),
        trees.task("draft", "Writer", **{"async": True}),
        trees.task("review", "Editor"),
    ]
    drafted = trees.done(1, "Draft.", "Writer")
    note = _notes.task_done(trees.crew(drafted, tasks=tasks), RUN, resumed=False)
    both = _notes.task_done(trees.crew(drafted, RESEARCHED, tasks=tasks), RUN, resumed=False)

    assert note.summary.endswith("by Writer. Task 1 (*research*) does not wait for it.")
    assert note.next[0].startswith("When task 1 is done: Editor starts task 3, *review*.")
    assert "task 2 is taken from here" in note.next[0]
    assert both.summary.endswith("Next is task 3: *review*, by Editor.")


def test_a_changed_crew_says_what_is_kept() -> None:
    before = trees.crew(RESEARCHED, DRAFTED)
    after = trees.crew(RESEARCHED, changed=1)

    assert _notes.changed(before, 1) == (
        "Task 2, *draft*, is not as it is recorded: what is recorded of it and of later tasks is "
        "not used. Task 1 is kept."
    )
    assert _notes.changed(before, 0).endswith("No task that is done is kept.")
    assert _notes.changed(before, 3) == (
        "The crew has more tasks than were recorded. Tasks 1 and 2 are kept."
    )
    assert _notes.begun(after, RUN).summary == (
        "The crew is not as it was recorded: it goes on anew from task 2. Task 1 is kept. Next is "
        "task 2: *draft*, by Writer."
    )
    assert _notes.begun(trees.crew(RESEARCHED, DRAFTED, REVIEWED, changed=3), RUN).summary == (
        "The crew is not as it was recorded: it has fewer tasks. Tasks 1 to 3 are kept."
    )


def test_what_happens_between_waypoints_is_told_in_lines() -> None:
    asked = [{"name": "lookup", "arguments": {"key": "honey"}}]

    assert _notes.answered("Writer", asked) == ('Writer\'s model asked for `lookup(key="honey")`.')
    assert _notes.answered("A model", "GOOD.") == 'A model said "GOOD."'
    assert _notes.answered("Senior Writer\n", " ") == (
        "Senior Writer's model gave an empty answer."
    )
    assert "and 3 more" in _notes.answered("Writer", asked * 15)
    assert _notes.refused("Writer", "Too long.") == (
        'A guardrail refused a result of Writer: "Too long."'
    )
    assert _notes.refused("", "no") == 'A guardrail refused a result: "no".'


def test_long_plans_and_many_calls_stay_short() -> None:
    tasks = [trees.task(f"step {n}", "Writer") for n in range(1, 61)]
    tools = [trees.call("lookup", f"n={n}", f"found {n}", agent="Writer") for n in range(500)]
    entries = [trees.done(n, "x" * 5000, "Writer", tools=tools) for n in range(30)]
    note = _notes.task_done(trees.crew(*entries, tasks=tasks), RUN, resumed=False)

    assert note.plan[0] == ("tasks 1 to 25", True)
    assert note.plan[-1] == ("21 more tasks", False)
    assert len(note.plan) == 16
    assert note.happened[11] == "And 490 more calls: `lookup` (490 times)."
    assert "tasks 1 to 30 are taken from here" in note.next[0]
    assert len(text(note)) < 6_000


# ---------------------------------------------------------------------- flows


def test_a_flow_tells_its_methods() -> None:
    first = trees.method("gather", ["a", "b"])
    second = trees.method(
        "draft",
        "DRAFT",
        did={"models": 2, "tools": [trees.call("lookup", 'key="x"', "9", agent="Writer")]},
    )
    begun = _notes.flow_begun(trees.flow(), RUN)
    note = _notes.method_done(trees.flow(first, second), RUN, resumed=True)

    assert begun.summary == "Flow `ReportFlow` begins."
    assert begun.goal == 'Flow `ReportFlow`, started with topic = "bees".'
    assert note.summary == '**Picked up after a crash.** `draft` gave "DRAFT".'
    assert note.happened == (
        "`draft` ran for 1.2 s since the crash: 2 model calls, 1 tool call.",
        'Writer called `lookup(key="x")`, which gave "9".',
        "The state has `n` = 3.",
    )
    assert note.so_far == ('`gather` gave `["a", "b"]`.',)
    assert "the 2 methods that ended are not run a second time" in note.next[0]
    assert lint(text(note)) == []


def test_a_turn_on_a_state_says_so() -> None:
    note = _notes.flow_begun(trees.flow(state={"id": "x", "n": 4}), RUN)

    assert note.summary == "Flow `ReportFlow` begins a turn with the state of the one before."
    assert note.happened == ("The state has `n` = 4.",)


def test_a_flow_tells_crews_and_people() -> None:
    report = {"crew_output": {"raw": "Three causes.", "tasks_output": []}}
    feedback = {
        "output": {"value": "DRAFT"},
        "feedback": "make it shorter",
        "outcome": "rejected",
        "method_name": "draft",
    }
    crew = trees.method("gather", None) | {"output": report}
    draft = trees.method("draft", "rejected", feedback=feedback)
    end = _notes.flow_finished(
        trees.flow(crew, draft, trees.method("close", None), at="end", result=report),
        RUN,
        resumed=False,
    )

    assert end.summary == "The flow is done: 3 method calls, 3.8 s."
    assert end.happened[0] == 'The result is "Three causes."'
    assert end.so_far == (
        '`gather` gave the output of a crew, "Three causes."',
        '`draft` gave "DRAFT"; a person said "make it shorter", which means "rejected".',
        "`close` gave nothing.",
    )


def test_a_pause_says_what_a_person_is_asked_about() -> None:
    waits = {
        "method": "review",
        "message": "Approve?",
        "output": {"title": "Bees"},
        "emit": ["approved", "rejected"],
    }
    tree = trees.flow(trees.method("draft", "DRAFT"), at="pause", waits=waits)
    note = _notes.paused(tree, RUN)

    assert note.summary.startswith("A person is asked about what `review` gave. The run can wait")
    assert note.happened[0] == '`review` gave `{"title": "Bees"}`.'
    assert note.next == (
        "A person answers.",
        (
            'The same kickoff goes on with the answer, which leads to one of "approved" and '
            '"rejected". `review` is not run again.'
        ),
    )


def test_a_note_costs_the_same_at_the_end_of_a_long_flow() -> None:
    def cost(methods: int) -> float:
        tree = trees.flow(*[trees.method("count", f"B{n}") for n in range(methods)])
        times = []
        for _ in range(5):
            start = time.perf_counter()
            note = _notes.method_done(tree, RUN, resumed=False)
            times.append(time.perf_counter() - start)
        assert len(note.so_far) == 9
        return min(times)

    cost(100)
    assert cost(20_000) < 10 * cost(100)


# ---------------------------------------------------------------------- what may come


def told(text_: str) -> list[Note]:
    """Tell states in which everything that somebody else writes is one text."""
    entry = trees.done(
        0, text_, text_, tools=[trees.call(text_, "", text_), trees.call("f", "", text_, agent="a")]
    )
    tasks = [trees.task(text_, text_, description=text_), trees.task(None, text_)]
    tasks[1]["description"] = text_
    more = {
        "tasks": tasks,
        "given": {text_: text_},
        "crew": {"name": text_, "process": "sequential"},
    }
    feedback = {"output": {"value": text_}, "feedback": text_, "outcome": text_}
    methods = [trees.method(text_, text_), trees.method(text_, text_, feedback=feedback)]
    flow = {"given": {text_: text_}, "flow": {"name": text_}, "state": {text_: text_, "x": text_}}
    waits = {"method": text_, "message": text_, "output": text_, "emit": [text_]}
    return [
        _notes.begun(trees.crew(**more), RUN),
        _notes.begun(trees.crew(entry, changed=1, **more), RUN),
        _notes.task_done(trees.crew(entry, **more), RUN, resumed=True),
        _notes.finished(trees.ended(entry, raw=text_ + "x", **more), RUN, resumed=False),
        Note(_notes.changed(trees.crew(entry, **more), 0)),
        Note(_notes.answered(text_, text_)),
        Note(_notes.answered(text_, [{"name": text_, "arguments": {text_: text_}}])),
        Note(_notes.refused(text_, text_)),
        _notes.flow_begun(trees.flow(**flow), RUN),
        _notes.method_done(trees.flow(*methods, **flow), RUN, resumed=True),
        _notes.paused(trees.flow(*methods, waits=waits, **flow), RUN),
        _notes.flow_finished(
            trees.flow(*methods, result={"value": text_}, **flow), RUN, resumed=False
        ),
    ]


@pytest.mark.parametrize("name", hostile.ALL)
def test_no_text_from_outside_changes_what_a_note_says(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever stands in a name, a result or an argument stays inside its quote."""
    notes = told(hostile.ALL[name])

    assert caplog.records == []
    for note in notes:
        written = text(note)
        assert lint(written, quotes_data=True) == [], written
        assert len(written) < 12_000
        assert set(sections(written)) <= {"Happened", "Plan", "Next", "So far", "Goal"}
        if note.next:
            assert "Delete" not in body(written, "Next").partition("After a crash")[2]


def test_no_secret_is_told_nor_a_part_of_one() -> None:
    secret = "".join(f"k{n:03d}q7" for n in range(40))
    declare_secret("CREW_NOTE_KEY", secret)

    for filler in ("", "x" * 110, "x" * 380, "line\n" * 7):
        for note in told(f"{filler}{secret} and more"):
            written = text(note.redacted())
            assert not any(secret[at : at + 12] in written for at in range(0, 200, 6)), written


@pytest.mark.parametrize("broken", [{}, {"crew": 3, "tasks": 4, "done": [5], "flow": 6}])
def test_states_of_another_form_stop_no_run(
    broken: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "caravanserai"):
        notes = [
            _notes.begun(broken, RUN),
            _notes.task_done(broken, RUN, resumed=False),
            _notes.finished(broken, RUN, resumed=False),
            _notes.flow_begun(broken, RUN),
            _notes.method_done(broken, RUN, resumed=False),
            _notes.paused(broken, RUN),
            _notes.flow_finished(broken, RUN, resumed=False),
        ]

    assert len(caplog.records) == 7
    assert [lint(text(note)) for note in notes] == [[]] * 7
