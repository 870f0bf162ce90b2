"""Notes as a person reads them. The golden files beside this are part of the review."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from caravanserai import (
    EffectStopped,
    Note,
    PlanItem,
    UnserialisableState,
    UsageError,
    WaitingForPerson,
    answer,
    checkpoint,
    open_run,
    resumable,
)
from caravanserai_core import stepping
from integration_tests.api.helpers import forget_everything, set_clock
from integration_tests.notes.linter import body, lint, sections

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(autouse=True)
def _still(monkeypatch: pytest.MonkeyPatch) -> None:
    set_clock(monkeypatch, "2026-08-20T22:41:03")
    monkeypatch.setattr(stepping, "_here", lambda: {"pid": 4121, "host": "build-7"})


def plain() -> None:
    """The example of the README, waypoint 3."""
    for step in (1, 2, 3):
        checkpoint("run", {"step": step}, f"finished step {step}, next is step {step + 1}")


def structured() -> None:
    """A plan, what is next, and a decision."""
    checkpoint("run", {}, "Sorted 100 of 500 letters.")
    checkpoint("run", {}, "Sorted 200 of 500 letters.")
    checkpoint(
        "run",
        {"sorted": 300},
        Note(
            "Sorted 300 of 500 letters; 2 could not be read.",
            plan=[
                ("letters 1 to 300", True),
                "letters 301 to 500",
                PlanItem("letters 117 and 248, by hand: they could not be read"),
            ],
            next="Sort letters 301 to 400.",
            decided='Letters without a postcode go to "by hand": the address service guesses wrong '
            "for villages.",
        ),
    )


def everything() -> None:
    """All that the plain API can put into a note."""
    checkpoint(
        "run",
        {},
        Note(
            "Wrote chapter 3 of 5.",
            happened=['Asked for the sources and got "12 found".', "Wrote 1,400 words."],
            plan=[("outline", True), ("chapters 1 to 3", True), "chapters 4 and 5"],
            next=["Write chapter 4.", "Check the quotes in it:\neach one against its source."],
            decided=["British spelling: the publisher asks for it."],
            so_far=[f"wrote section {n}" for n in range(1, 14)],
            goal="A short book on caravanserais.",
        ),
    )


def derived() -> None:
    """What changed, in one line."""
    checkpoint("run", {"step": "plan", "attempts": 1, "messages": ["a"], "open": True, "x": 1})
    checkpoint(
        "run",
        {
            "step": "retrieve",
            "attempts": 2,
            "messages": ["a", "b", "c"],
            "open": False,
            "found": {"by": "name", "n": 3},
            "when": dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
        },
    )


def derived_first() -> None:
    """The first one says what there is."""
    checkpoint("run", {"step": 0, "todo": ["a", "b"], "title": "On *caravans*", "done": {}})


def remarks() -> None:
    """What was said in between joins the note."""
    with open_run("run") as run:
        run.remark("Letters without a postcode go to 'by hand'")
        run.checkpoint({"n": 1}, "Sorted 10 letters.")


def live_entry() -> None:
    """One thing began after the waypoint."""
    run = open_run("run")
    run.checkpoint({"n": 1}, Note("Checked the order.", next="Refund it."))
    run.entry("tool", say="`issue_refund(order=17)` began 22:41:09, no result yet")


def live_entries() -> None:
    """Several things happened after it."""
    run = open_run("run")
    run.checkpoint({"n": 1}, "Checked the order.")
    run.entry("tool", say="`issue_refund(order=17)` began 22:41:09")
    run.entry("internal")
    run.entry("tool", say='`issue_refund(order=17)` returned "refund 5"')


def before_the_first() -> None:
    """Something happened and no waypoint was reached."""
    open_run("run").entry("tool", say="`search()` began 22:41:01, no result yet")


def failed() -> None:
    """The run failed after its first waypoint."""

    @resumable
    def work(run_id: str, state: Any) -> None:
        checkpoint(run_id, {"n": 1}, "finished step 1, next is step 2")
        raise RuntimeError("rate limit: try *again* later")

    try:
        work("run", {})
    except RuntimeError:
        pass


def finished() -> None:
    """The run came to its end."""

    @resumable
    def work(run_id: str, state: Any) -> str:
        checkpoint(run_id, {"n": 2}, "finished step 2/2")
        return "done"

    work("run", {})


def ten_of_eleven() -> None:
    """Ten steps are done and the eleventh is next: nobody may read it as eleven done."""
    items = [f"step {n}" for n in range(1, 13)]
    for done in range(1, 11):
        checkpoint(
            "run",
            {"done": done},
            Note(
                f"{done} of 12 steps done, step {done + 1} next.",
                plan=[(item, n < done) for n, item in enumerate(items)],
                next=f"Step {done + 1}.",
            ),
        )


def all_done() -> None:
    """A plan whose items are all done shows them so."""
    checkpoint("run", {}, Note("All 3 chapters are written.", plan=[(c, True) for c in "123"]))


class Killed(BaseException):
    """Ends a step as the end of its process does: nothing is recorded."""


def issue_refund(order: str, amount: int) -> str:
    """A step in which its process dies."""
    raise Killed(order, amount)


def step_in_flight() -> None:
    """The process was killed in a step: what it left tells which one."""
    with suppress(Killed), open_run("order-a17") as run:
        run.checkpoint({"n": 1}, Note("Checked the order.", next="Refund it."))
        run.once("issue refund", issue_refund, "A17", 40)


def step_not_certain() -> None:
    """The next start asks about the step in flight."""
    step_in_flight()
    forget_everything()
    with suppress(WaitingForPerson), open_run("order-a17") as run:
        run.once("issue refund", issue_refund, "A17", 40)


def step_run_again() -> None:
    """A person said that it did not happen: the next note says what that may mean."""
    with suppress(Killed), open_run("order-a17") as run:
        run.checkpoint({"n": 1}, "Checked the order.")
        run.once("issue refund", killed_at, "refund 5")
    forget_everything()
    with suppress(WaitingForPerson), open_run("order-a17") as run:
        run.once("issue refund", str, "refund 5")
    answer("order-a17", "rerun", by="ines", reason="no refund in the ledger")
    forget_everything()
    with open_run("order-a17") as run:
        run.once("issue refund", str, "refund 5")
        run.checkpoint({"n": 2}, "Refunded the order.")


def step_not_kept() -> None:
    """A step happened and what it returned is lost."""
    with suppress(UnserialisableState), open_run("order-a17") as run:
        run.checkpoint({"n": 1}, "Checked the order.")
        run.once("issue refund", lambda: {"refund": object()}, key="A17")
    forget_everything()
    with suppress(WaitingForPerson), open_run("order-a17") as run:
        run.once("issue refund", str, key="A17")


def step_failed_twice() -> None:
    """A step failed two times and is run a third time."""

    def fetch() -> None:
        raise TimeoutError("the *bank* does not answer")

    with open_run("order-a17") as run:
        run.checkpoint({"n": 1}, "Checked the order.")
        for _ in range(2):
            with suppress(TimeoutError):
                run.once("fetch balance", fetch)
        with suppress(Killed):
            run.once("fetch balance", killed)


def killed() -> None:
    """Die in a step."""
    raise Killed


def killed_at(_what: str) -> None:
    """Die in a step that is about something."""
    raise Killed


def question() -> None:
    """A question with options and what it is about."""
    with suppress(WaitingForPerson), open_run("offer-118") as run:
        run.checkpoint({"n": 1}, Note("Wrote the offer.", next="Send it.", goal="An offer."))
        run.ask(
            "Send this mail?",
            options=["yes", "no"],
            payload={"to": "office@example.com", "subject": "Offer 118"},
        )


def two_questions() -> None:
    """Two questions at once, one of them for any answer."""
    with open_run("offer 118") as run:
        run.checkpoint({"n": 1}, "Wrote the offer.")
        for text, options in (("Which discount, in percent?", None), ("Send it?", [True, False])):
            with suppress(WaitingForPerson):
                run.ask(text, options=options)


def answered() -> None:
    """Nobody is waited for any more."""
    question()
    answer("offer-118", "no", by="ines", reason="the price is `wrong`")


def decided() -> None:
    """What a person decided stands in the next note, with who and why."""
    answered()
    open_run("offer-118").checkpoint({"n": 2}, Note("Put the offer aside.", decided="No discount."))


def step_stopped() -> None:
    """A person ended the run: a further start would end there again."""
    step_not_certain()
    answer("order-a17", "stop", by="ines")
    forget_everything()
    with suppress(EffectStopped), open_run("order-a17") as run:
        run.once("issue refund", issue_refund, "A17", 40)


def waypoint_while_asked() -> None:
    """A waypoint of another branch, while the question is open."""
    two_questions()
    open_run("offer 118").checkpoint({"n": 2}, "Filed the draft.")


CASES: dict[str, Callable[[], None]] = {
    case.__name__: case
    for case in (
        plain,
        structured,
        everything,
        derived,
        derived_first,
        remarks,
        live_entry,
        live_entries,
        before_the_first,
        failed,
        finished,
        ten_of_eleven,
        all_done,
        step_in_flight,
        step_not_certain,
        step_run_again,
        step_not_kept,
        step_failed_twice,
        question,
        two_questions,
        answered,
        decided,
        step_stopped,
        waypoint_while_asked,
    )
}


def latest() -> str:
    """The live note as it lies on the disk."""
    (path,) = Path(".caravanserai").glob("*/latest.md")
    return path.read_bytes().decode()


@pytest.mark.parametrize("name", CASES)
def test_note_reads_as_the_golden_file(name: str) -> None:
    """To the byte what was read and found good."""
    CASES[name]()
    assert latest() == (GOLDEN / f"{name}.md").read_bytes().decode()


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.md")), ids=lambda path: path.stem)
def test_golden_file_keeps_the_rules(path: Path) -> None:
    """Title, story, sections in their order, nothing for machines."""
    assert path.stem in CASES, "a file that no case writes"
    assert lint(path.read_text()) == []


BROKEN = {
    "no title": "Waypoint 1\n\nstory\n",
    "no story": "# Waypoint 1 — 2026-01-01T00:00:00+00:00\n\n## Next\n\nx\n",
    "order": "{}## Next\n\nx\n\n## Plan\n\n- [ ] a\n",
    "twice": "{}## Next\n\nx\n\n## Next\n\ny\n",
    "unknown": "{}## Summary\n\nx\n",
    "empty": "{}## Next\n\n## Goal\n\nx\n",
    "deeper": "{}### Next\n\nx\n",
    "title again": "{}# Waypoint 2\n",
    "underlined": "{}Next\n====\n\nx\n",
    "html": "{}<h2>Next</h2>\n",
    "comment": "{}<!-- sum: 1 -->\n",
    "hash": "{}sum d41d8cd98f00b204e9800998ecf8427e\n",
    "open code block": "{}```\n## Next\n",
    "escape": "{}a\x1b[2J\n",
    "end": "{}x\n\n",
}


@pytest.mark.parametrize("name", BROKEN)
def test_linter_finds(name: str) -> None:
    """The linter itself sees each thing that it is there for."""
    head = "# Waypoint 1 — 2026-01-01T00:00:00+00:00\n\nstory\n\n"
    assert lint(BROKEN[name].format(head) if "{}" in BROKEN[name] else BROKEN[name]) != []
    assert lint(head.rstrip("\n") + "\n") == []


def test_plain_text_is_exactly_title_and_text() -> None:
    """A title line, an empty line, the text, a line end: nothing else."""
    plain()
    for step in (1, 2, 3):
        text = Path(f".caravanserai/run/waypoint-{step}.md").read_bytes()
        expected = (
            f"# Waypoint {step} — 2026-08-20T22:41:03+00:00\n\n"
            f"finished step {step}, next is step {step + 1}\n"
        )
        assert text == expected.encode()


@pytest.mark.parametrize("empty", [None, "", [], ()])
def test_a_part_that_is_empty_is_none(empty: Any) -> None:
    """None counts as no items, beside parts that have some and beside none."""
    names = ("happened", "plan", "next", "decided", "so_far")
    assert Note("x", **dict.fromkeys(names, empty)) == Note("x")
    for name in names:
        parts: dict[str, Any] = {**dict.fromkeys(names, empty), name: ["something"]}
        assert Note("x", **parts) == Note("x", **{name: ["something"]})


def test_a_plan_may_be_one_text() -> None:
    """It is one open item, not one for each letter."""
    assert Note("x", plan="do it").plan == (PlanItem("do it"),)
    assert Note("x", plan=["a", ("b", True), ("c",)]).plan == (
        PlanItem("a"),
        PlanItem("b", True),
        PlanItem("c"),
    )


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"plan": [{"text": "do it"}]}, r"\(text, done\) pairs"),
        ({"plan": [("a", True, "more")]}, r"\(text, done\) pairs"),
        ({"plan": [()]}, r"\(text, done\) pairs"),
        ({"plan": [7]}, r"\(text, done\) pairs"),
        ({"plan": [(7, True)]}, r"\(text, done\) pairs"),
        ({"plan": {"do it": True}}, "plan of a note is a list or one text, not dict"),
        ({"plan": 7}, "plan of a note is a list or one text, not int"),
        ({"happened": 7}, "happened of a note is a list or one text, not int"),
        ({"next": ["a", None]}, "next of a note holds strings"),
    ],
)
def test_a_part_of_another_form_is_refused_in_words(parts: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Note("x", **parts)


def test_ten_steps_done_and_the_eleventh_next() -> None:
    """The plan, the story and what is next say the same."""
    ten_of_eleven()
    text = latest()
    assert text.split("\n")[2] == "10 of 12 steps done, step 11 next."
    assert body(text, "Next") == "Step 11."
    plan = body(text, "Plan").split("\n")
    assert [line[:5] for line in plan] == ["- [x]"] * 10 + ["- [ ]"] * 2


def test_sections_stand_in_one_order() -> None:
    """Whatever the order of the arguments: what to do before what was, the goal last."""
    everything()
    assert sections(latest()) == ["Happened", "Plan", "Next", "Decided", "So far", "Goal"]
    assert body(latest(), "So far").startswith("- 3 earlier steps, see the older notes\n")
    assert len(body(latest(), "So far").split("\n")) == 11


def test_latest_is_the_newest_note_and_what_followed() -> None:
    """The newest note, "Since then" behind it after an entry, and the next note again."""
    folder = Path(".caravanserai/run")
    path = folder / "latest.md"
    run = open_run("run")
    run.checkpoint({"n": 1}, "one")
    note = folder / "waypoint-1.md"
    assert path.read_text() == note.read_text()
    run.entry("quiet")
    assert path.read_text() == note.read_text(), "an entry that says nothing changes nothing"
    run.entry("tool", say="the tool began")
    assert path.read_text().split("\n")[2:5] == ["one", "", "Since then: the tool began"]
    assert Path(".caravanserai/run/waypoint-1.md").read_text().endswith("\n\none\n")
    run.checkpoint({"n": 2}, "two")
    assert path.read_text() == (folder / "waypoint-2.md").read_text()
    run.finish("done")
    assert "Since then: the run finished at 22:41:03 UTC." in path.read_text()
    forget_everything()
    open_run("run").entry("tool", say="a later process began something")
    assert path.read_text().split("\n")[4:] == [
        "Since then:",
        "",
        "- the run finished at 22:41:03 UTC.",
        "- a later process began something",
        "",
    ]
    leftovers = [name for name in os.listdir(path.parent) if name.startswith(".")]
    assert leftovers == []


def test_latest_follows_the_main_lane() -> None:
    """A waypoint on another lane has its own note and leaves the live one where it was."""
    run = open_run("run")
    run.checkpoint({"n": 1}, "main one")
    run.checkpoint({"s": 1}, "side one", lane="side")
    assert latest().startswith("# Waypoint 1 ")
    assert "side one" in Path(".caravanserai/run/waypoint-2.md").read_text()
    run.checkpoint({"n": 2}, "main two")
    assert latest() == Path(".caravanserai/run/waypoint-3.md").read_text()
