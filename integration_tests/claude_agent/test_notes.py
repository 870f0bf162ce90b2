"""What notes say of each kind of fact; the states are folded from facts, as in a session."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from caravanserai.claude_agent import _facts, _notes, _telling
from caravanserai_core.notes import Note, foot, render
from integration_tests.notes import hostile
from integration_tests.notes.linter import lint, sections

RUN = "issue-412"
CLOCK = "2026-08-20T22:41:03"
PROMPT = "Fix issue 412."
FOLDER = "/srv/orders"
SESSION = "6f0c2e0e-0b6b-5d0b-9f0e-3c1a2b7d4e55"

AGAIN = "Start run `issue-412` again with the same prompt"
KNOWN = "it had ended, and Claude was given its recorded result."
SHORTENED = "the conversation was shortened from 98,400 to 14,200 tokens"

Fact = dict[str, Any]


def tool(name: str, given: Mapping[str, Any], result: str | None = None, **more: Any) -> Fact:
    return _facts.tool_fact(name, given, result=result, **{"id": "t", **more})


def said(text: str) -> Fact:
    return {"what": "said", "text": text}


def planned(*items: tuple[str, str]) -> list[Fact]:
    return [
        {"what": "plan", "id": str(n), "text": text, "status": status}
        for n, (text, status) in enumerate(items, 1)
    ]


def state(*facts: Fact, at: str = "batch", prompt: str | None = PROMPT, **more: Any) -> Any:
    tree = _facts.begun(RUN, "0.2.189", prompt)
    session = {"what": "session", "id": SESSION, "cwd": FOLDER}
    for fact in (session, *facts):
        _facts.take(tree, fact)
    tree["at"] = at
    return tree | more


def told(*facts: Fact, resumed: bool = False, **more: Any) -> Note:
    return _notes.note(state(*facts, **more), resumed=resumed)


def text(note: Note) -> str:
    found = render(7, CLOCK, note, foot=foot(RUN, "Claude Agent SDK 0.2.189", 7, open_=False))
    assert lint(found) == []
    return found


def happened(*facts: Fact, **more: Any) -> list[str]:
    """Return what is told of some facts, beside a plan, so that they are no part of the story."""
    return list(told(*planned(("Work", "in_progress")), *facts, **more).happened)


# ---------------------------------------------------------------------- where a session stands


def test_a_job_that_begins_says_what_was_asked_and_how_to_go_on() -> None:
    note = _notes.note(_facts.begun(RUN, "0.2.189", PROMPT), resumed=False)

    assert note.summary == 'Claude was asked "Fix issue 412."'
    assert note.next == (
        "Claude starts on it. After a crash, start run `issue-412` again with the same prompt.",
    )
    assert note.goal == '"Fix issue 412."'
    assert sections(text(note)) == ["Next", "Goal"]


def test_a_conversation_that_begins_waits() -> None:
    note = told(at="begin", prompt=None)

    assert note.summary == "A conversation with Claude begins."
    assert note.next[0].startswith("Waiting for the first message.")
    assert note.goal is None


def test_little_that_happened_is_the_story_itself() -> None:
    note = told(said("Looking."), tool("mcp__inv__count", {"item": "crates"}, "crates: 42"))

    assert note.summary == (
        'Claude said "Looking." `mcp__inv__count(item="crates")` gave "crates: 42".'
    )
    assert note.happened == ()
    assert note.next[0].startswith("Claude reads the result and goes on.")


def test_with_a_plan_the_story_is_how_far_it_is() -> None:
    items = planned(("Read", "completed"), ("Test", "completed"), ("Fix", "in_progress"), ("E", ""))

    note = told(*items, tool("Bash", {"command": "ls"}, "a", ms=4100))

    assert note.summary == '2 of 4 tasks are done. Claude is working on task 3: "Fix".'
    assert note.plan[0] == ('1. "Read"', True)
    assert note.plan[2] == ('3. "Fix" **(now)**', False)
    assert note.next[0].startswith("Claude reads the result and goes on with task 3.")


@pytest.mark.parametrize(
    ("items", "story"),
    [
        ([("A", "completed"), ("B", "completed")], "All 2 tasks are done."),
        ([("A", "pending")], "The only task is not done yet."),
        ([("A", "pending"), ("B", "pending")], "None of 2 tasks is done yet."),
        (
            [("A", "in_progress"), ("B", "in_progress"), ("C", "completed")],
            "1 of 3 tasks is done. Claude is working on tasks 1 and 2.",
        ),
    ],
)
def test_how_far_a_plan_is(items: list[tuple[str, str]], story: str) -> None:
    assert told(*planned(*items), said("On.")).summary == story


def test_of_a_long_plan_the_part_that_is_worked_on_is_shown() -> None:
    done = [(f"Task {n}", "completed") for n in range(1, 31)]
    open_ = [(f"Task {n}", "pending") for n in range(31, 61)]

    plan = told(*planned(*done, *open_)).plan

    assert plan[0] == ("25 earlier tasks", True)
    assert plan[1] == ('26. "Task 26"', True)
    assert plan[-2] == ('39. "Task 39"', False)
    assert plan[-1] == ("21 more tasks", False)


def test_a_list_of_todos_is_numbered_by_its_order() -> None:
    def listed(*statuses: str) -> Fact:
        items = [{"text": f"Do {n}", "status": one} for n, one in enumerate(statuses)]
        return {"what": "plan", "items": items}

    note = told(
        tool("TodoWrite", {}), listed("completed", "pending"), listed("completed", "completed")
    )

    assert note.plan == (('1. "Do 0"', True), ('2. "Do 1"', True))
    assert note.happened == ("Claude wrote the task list and marked tasks 1 and 2 as done.",)


def test_an_item_that_is_done_is_told_once() -> None:
    tree = state(*planned(("A", "pending")), {"what": "plan", "id": "1", "status": "completed"})
    assert _notes.line(tree) == "Claude marked task 1 as done"

    _facts.new(tree)
    _facts.take(tree, {"what": "plan", "id": "1", "text": "A, in other words"})
    assert _notes.line(tree) == ""


def test_a_waypoint_with_nothing_new_says_so() -> None:
    note = told()

    assert note.summary == "What the waypoint before tells is now in the transcript."
    assert _notes.line(state()) == ""


def test_after_a_crash_the_story_says_so_first_and_once() -> None:
    facts = ({"what": "resumed", "text": "[Caravanserai] …"}, tool("Bash", {"command": "ls"}, "a"))

    found = text(told(*planned(("A", "pending")), *facts, resumed=True))

    assert found.split("\n")[2].startswith("**Picked up after a crash.** The only task")
    assert len(re.findall("after a crash", found)) == 1


def test_where_a_person_decides_the_crash_is_no_part_of_the_story() -> None:
    """The core tells it, with what is to be decided."""
    deferred = {"what": "deferred", "id": "t", "tool": "Bash", "arguments": 'command="rm x"'}

    note = told({"what": "resumed", "text": "…"}, deferred, at="pause", resumed=True)

    assert note.summary == (
        'Claude stopped before `Bash(command="rm x")`. The session has ended until a person '
        "decides; no process has to stay alive."
    )
    assert note.happened == (_telling.PICKED_UP.text,)
    assert note.next == (
        "A person answers.",
        f"{AGAIN}: the session goes on at this call, with what was decided.",
    )


def test_the_end_says_the_answer_and_what_it_cost() -> None:
    facts = ({"what": "cost", "total": 0.085}, {"what": "cost", "total": 0.172}, said("Fixed."))

    note = told(*facts, at="end", result={"result": "Fixed."})

    assert note.summary == (
        'Claude answered "Fixed." The job is done. This turn cost $0.09 ($0.17 in all).'
    )
    assert note.happened == ()
    assert note.next[0].startswith("Nothing: the job is done. Started again, run `issue-412` ")


def test_a_long_answer_is_shown_below() -> None:
    answer = "# Done\n\n" + "A line.\n" * 400

    note = told(said(answer), at="end", result={"result": answer})

    assert note.summary.startswith("Claude answered `# Done`. The job is done.")
    assert note.happened[-1].startswith("The answer:\n\n```text\n# Done\n")
    assert len(note.happened[-1]) < 1200
    text(note)


def test_open_items_at_the_end_are_told() -> None:
    note = told(*planned(("A", "completed"), ("B", "pending")), at="end", result={"result": "So."})

    assert "The job is done. 1 item of the task list is not marked as done." in note.summary


def test_a_turn_of_a_conversation_waits_for_the_next_message() -> None:
    facts = ({"what": "prompt", "text": "Count the crates."}, said("There are 42."))

    note = told(*facts, at="turn", prompt=None)

    assert note.summary == 'Claude answered "There are 42."'
    assert note.happened == ('You asked "Count the crates."',)
    assert note.next[0].startswith("Waiting for the next message.")
    assert _notes.line(state(*facts, at="turn", prompt=None)) == (
        'you asked "Count the crates."; Claude answered "There are 42."'
    )


def test_the_answer_of_an_earlier_turn_is_not_told_again() -> None:
    facts = (said("There are 42."), {"what": "prompt", "text": "And the barrels?"})

    assert told(*facts, at="turn", prompt=None).summary == "Claude's turn is over."


def test_a_turn_that_failed_says_why() -> None:
    note = told({"what": "failed", "error": "API Error: 500"}, at="turn")

    assert note.summary == 'The turn **failed**: "API Error: 500".'
    assert note.happened == ()
    assert note.next[0].startswith("The next start goes on from here.")


def test_a_session_that_was_built_anew_is_told_as_one() -> None:
    note = told({"what": "rebuilt"}, said("On with it."), resumed=True)

    assert note.summary == (
        "**Picked up after a crash.** The old session could not be opened: a new one was built "
        'from what is recorded. Claude said "On with it."'
    )


def test_a_store_alone_does_not_promise_what_a_run_does() -> None:
    assert "After a crash" not in told(said("On."), alone=True).next[0]


# ---------------------------------------------------------------------- what happened


@pytest.mark.parametrize(
    ("fact", "line"),
    [
        (tool("Bash", {"command": "pytest -q"}, "ok", ms=4120), 'Ran `pytest -q` for 4.1 s: "ok".'),
        (tool("Bash", {"command": "touch x"}, ""), "Ran `touch x`, without output."),
        (
            tool("Bash", {"command": "make"}, "Exit code 2", failed=True, ms=125_000),
            'Ran `make` for 2 min 5 s, which **failed**: "Exit code 2".',
        ),
        (
            tool("Bash", {"command": "make"}, "", failed=True, interrupted=True),
            "Ran `make`, which was **interrupted**.",
        ),
        (
            tool("Write", {"file_path": f"{FOLDER}/a.py"}, made="create", added=64, removed=0),
            "Created `a.py`, 64 lines.",
        ),
        (
            tool("Write", {"file_path": f"{FOLDER}/a.py"}, made="update", added=1, removed=0),
            "Rewrote `a.py`: 1 line added, 0 removed.",
        ),
        (
            tool("Edit", {"file_path": f"{FOLDER}/src/a.py"}, added=6, removed=2),
            "Edited `src/a.py`: 6 lines added, 2 removed.",
        ),
        (tool("NotebookEdit", {"notebook_path": "/other/a.ipynb"}), "Edited `/other/a.ipynb`."),
        (
            tool("Edit", {"file_path": f"{FOLDER}/a.py"}, "no such text", failed=True),
            '`Edit(file_path="/srv/orders/a.py")` **failed**: "no such text".',
        ),
        (
            tool("mcp__pay__charge", {"n": 3}, "charged 3", ms=2500),
            '`mcp__pay__charge(n=3)` gave "charged 3" after 2.5 s.',
        ),
        (tool("mcp__pay__charge", {"n": 3}), "`mcp__pay__charge(n=3)` came to its end."),
        (
            tool("mcp__pay__charge", {"n": 3}, "no card", failed=True),
            '`mcp__pay__charge(n=3)` **failed**: "no card".',
        ),
        (
            tool("mcp__pay__charge", {"n": 3}, "waits", paused=True),
            "`mcp__pay__charge(n=3)` stopped to wait for a person.",
        ),
        (
            {"what": "refused", "tool": "Bash", "arguments": 'command="rm"', "reason": "Not now."},
            '`Bash(command="rm")` was **not run**: "Not now."',
        ),
        (
            {"what": "refused", "tool": "pay", "arguments": "n=3", "reason": "…", "known": True},
            f"`pay(n=3)` was not made again: {KNOWN}",
        ),
        (tool("Read", {"file_path": f"{FOLDER}/a.py"}, "…"), "Read `a.py`."),
        (tool("Grep", {"pattern": "parse_date"}, "…"), "Searched for `parse_date`."),
        (tool("TaskCreate", {"subject": "A"}), "Claude put 1 item on the task list."),
    ],
)
def test_what_a_call_did(fact: Fact, line: str) -> None:
    assert happened(fact) == [line]


def test_of_a_long_output_the_end_is_shown_as_it_is() -> None:
    output = "Exit code 1\n" + "\n".join(f"line {n}" for n in range(2000)) + "\n## 3 failed"

    [line] = happened(tool("Bash", {"command": "pytest"}, output, failed=True))

    assert line.startswith('Ran `pytest`, which **failed**: "Exit code 1". The end of its output:')
    assert line.endswith("line 1999\n## 3 failed\n```")
    assert len(line) < 300


def test_what_only_looks_is_told_together() -> None:
    facts = [tool("Read", {"file_path": f"{FOLDER}/{n}.py"}, "…") for n in "abcdea"]
    facts.insert(2, tool("Grep", {"pattern": "x"}, "…"))
    facts.insert(3, tool("Glob", {"pattern": "*.py"}, "…"))

    assert happened(*facts) == ["Read 5 files: `a.py`, `b.py` and 3 more and searched twice."]
    assert _notes.line(state(*facts)) == "read 5 files and searched twice"


def test_of_many_calls_the_first_are_told_and_the_rest_counted() -> None:
    facts = [tool("mcp__pay__charge", {"n": n}, "charged") for n in range(300)]

    found = happened(*facts)

    assert len(found) == 15
    assert found[-1] == "And 286 more things."
    assert _notes.line(state(*facts)).endswith("and 296 more")


def test_a_conversation_that_was_shortened_goes_on_from_a_summary() -> None:
    compacted = {
        "what": "compacted",
        "trigger": "auto",
        "summary": "<analysis>\nHm.\n</analysis>\n\n<summary>\n1. Goal: fix it.\n</summary>",
    }
    facts = (*planned(("A", "in_progress")), compacted)
    sizes = {"what": "sizes", "before": 98_400, "after": 14_200}

    tree = state(*facts, sizes, at="compaction")
    note = _notes.note(tree, resumed=False)

    assert note.summary.startswith(
        "The conversation was shortened from 98,400 to 14,200 tokens. The only task"
    )
    assert note.happened == (
        "Claude goes on from this summary of its own:\n\n```text\n1. Goal: fix it.\n```",
    )
    assert _notes.so_far([], 5, _notes.line(tree)) == [
        f"waypoint 5: {SHORTENED}; Claude's own summary is in `waypoint-5.md`."
    ]


# ---------------------------------------------------------------------- subagents

BEGUN: Fact = {"what": "agent begun", "id": "a1", "type": "finder", "task": "Find it"}
CALLS = [tool("Grep", {"pattern": str(n)}, "…", agent="a1") for n in range(2)]
ENDED: Fact = {"what": "agent ended", "id": "a1", "type": "finder", "said": "4 places"}


def test_a_subagent_is_told_with_what_it_reported() -> None:
    facts = (BEGUN, *CALLS, ENDED, tool("Agent", {"description": "Find it"}, "4 places", of="a1"))

    assert happened(*facts) == [
        'The subagent `finder`, sent to "Find it", made 2 calls and reported "4 places".'
    ]
    assert _notes.line(state(*facts)) == 'the subagent `finder` reported "4 places"'


def test_a_subagent_at_work_is_told_with_what_it_did_until_now() -> None:
    note = told(BEGUN, *CALLS, {**BEGUN, "what": "agent begun"})

    assert note.summary == (
        'The subagent `finder`, sent to "Find it", is at work: it made 2 calls until now, the last '
        'one `Grep(pattern="1")`.'
    )
    assert note.next[0].startswith("The subagent `finder` is at work.")


def test_a_subagent_that_was_cut_off_is_told_with_what_it_did() -> None:
    tree = state(BEGUN, *CALLS)
    _facts.cut_off(tree)

    note = _notes.note(tree, resumed=True)

    assert note.summary == (
        '**Picked up after a crash.** The subagent `finder`, sent to "Find it", was **cut off**: '
        'it made 2 calls before, the last one `Grep(pattern="1")`.'
    )


def test_what_failed_inside_of_a_subagent_is_told() -> None:
    failed = tool("mcp__pay__charge", {"n": 1}, "no card", failed=True, agent="a1")

    [line] = happened(BEGUN, failed, ENDED)

    assert line.endswith('`mcp__pay__charge(n=1)` **failed**: "no card".')


def test_calls_at_work_are_named() -> None:
    running: list[Fact] = [
        {"what": "begins", "id": str(n), "tool": name, "call": ""}
        for n, name in enumerate(("Bash", "Bash", "mcp__pay__charge", "Agent"))
    ]

    note = told(said("All at once."), *running, BEGUN)

    assert note.next[0].startswith(
        "`Bash` (2 times) and `mcp__pay__charge` and the subagent `finder` are at work. "
        "Then Claude reads what came of it."
    )


# ---------------------------------------------------------------------- where things stand


@pytest.mark.parametrize(
    ("git", "line"),
    [
        ({"commit": "abc1234def", "dirty": False}, "Files stand at commit `abc1234`."),
        (
            {"commit": "abc1234def", "dirty": True},
            "Files stand at commit `abc1234`, with changes that are not committed.",
        ),
        (
            {"commit": "abc1234def", "dirty": None},
            "Files stand at commit `abc1234`; whether anything was changed since is not known.",
        ),
        ({"commit": None, "dirty": True}, "The folder's repository has no commit yet."),
    ],
)
def test_where_the_files_stand(git: dict[str, Any], line: str) -> None:
    assert told(git=git).so_far == (f"{line} The session is `{SESSION}` in the folder `{FOLDER}`.",)


def test_written_files_are_named_and_it_is_said_what_is_not() -> None:
    facts = [tool("Write", {"file_path": f"{FOLDER}/{n}.py"}) for n in range(12)]

    [line] = told(*facts).so_far

    assert line.startswith("Files written by Write and Edit: `4.py`, `5.py`,")
    assert "`11.py` and 4 earlier. What shell commands changed is not listed." in line


def test_a_shell_command_alone_is_reason_to_say_what_is_not_listed() -> None:
    assert told(tool("Bash", {"command": "ls"}, "a")).so_far[0].startswith("What shell commands")
    assert told(tool("Read", {"file_path": "a"}, "a")).so_far[0].startswith("The session is")


# ---------------------------------------------------------------------- so far


def test_so_far_stays_short_and_keeps_both_ends() -> None:
    lines: list[str] = []
    for number in range(2, 400):
        line = f'ran `make; step {number}` and said "x; y {number}"' if number % 7 else ""
        lines = _notes.so_far(lines, number, line)

    assert len(lines) == 9
    assert lines[-1] == 'waypoint 398: ran `make; step 398` and said "x; y 398".'
    assert lines[0].startswith('waypoints 2 to 389: ran `make; step 2` and said "x; y 2"; …; ran ')
    assert lines[0].endswith('; ran `make; step 389` and said "x; y 389".')
    assert len(lines[0]) < 500
    text(Note("x", so_far=lines))


def test_so_far_of_two_waypoints_loses_nothing() -> None:
    lines: list[str] = []
    for number in range(1, 11):
        lines = _notes.so_far(lines, number, f"read {number} files")

    assert lines[0] == "waypoints 1 and 2: read 1 files; read 2 files."


# ---------------------------------------------------------------------- whatever comes


def facts_with(found: str) -> list[Fact]:
    """Return every kind of fact, with a foreign text wherever there can be one."""
    given = {"command": found, "file_path": found, "n": found}
    return [
        {"what": "prompt", "text": found},
        said(found),
        *planned((found, "in_progress"), ("B", "pending")),
        {"what": "plan", "id": found, "text": found, "status": "completed"},
        tool("Bash", given, found),
        tool("Bash", given, f"{found}\n{found}", failed=True),
        tool("Edit", given, added=1, removed=1),
        tool("Read", given),
        tool("Grep", {"pattern": found}, found),
        tool(found, given, found),
        tool(found, given, found, failed=True),
        {"what": "refused", "id": "r", "tool": found, "arguments": found, "reason": found},
        {"what": "agent begun", "id": "a1", "type": found, "task": found},
        tool(found, given, found, agent="a1"),
        {"what": "begins", "id": "b", "tool": found, "call": ""},
        {"what": "compacted", "trigger": found, "summary": found},
        {"what": "failed", "error": found},
        {"what": "deferred", "id": "d", "tool": found, "arguments": found},
    ]


@pytest.mark.parametrize("name", hostile.ALL)
def test_no_text_gets_out_of_its_quotes(name: str) -> None:
    """Whatever a model, a tool or a person says, it adds no heading, no markup and no section."""
    foreign = hostile.ALL[name]
    facts = [
        {key: _facts.text(value) if isinstance(value, str) else value for key, value in one.items()}
        for one in facts_with(foreign)
    ]
    facts[-1]["arguments"] = facts[-7]["arguments"] = "n=1"  # told by the core's own helpers
    lines: list[str] = []
    for at in ("begin", "batch", "compaction", "pause", "turn", "end"):
        tree = state(*facts, at=at, prompt=foreign, result={"result": foreign})
        tree["session"] |= {"cwd": foreign, "id": SESSION}
        tree["git"] = {"commit": foreign, "dirty": True}
        for number in range(9):
            lines = _notes.so_far(lines, number, _notes.line(tree))
        tree["so_far"] = lines
        found = render(7, CLOCK, _notes.note(tree, resumed=at == "turn"))
        assert lint(found, quotes_data=True) == [], at
        assert set(sections(found)) <= {"Happened", "Plan", "Next", "So far", "Goal"}


def test_a_state_of_an_odd_form_still_has_a_note(caplog: pytest.LogCaptureFixture) -> None:
    tree = state() | {"did": [{"what": "tool"}]}

    assert _notes.note(tree, resumed=False) == Note("The session went on.")
    assert _notes.line(tree) == "the session went on"
    assert "could not be made" in caplog.text


def test_a_prompt_of_several_lines_is_shown_as_it_is() -> None:
    note = told(prompt="# Do this\n\n1. and that", at="begin")

    assert note.summary == "Claude was asked `# Do this`."
    assert note.goal == "```text\n# Do this\n\n1. and that\n```"
    assert sections(text(note)) == ["Next", "So far", "Goal"]
