"""A program changes while its run is stopped: it goes on, or says what is in the way."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from integration_tests.versions.conftest import Started

HEAD = "import json\nfrom dataclasses import dataclass, field\nfrom caravanserai import *\n"

FIRST = f"""{HEAD}
@dataclass
class Order:
    item: str
    count: int

@resumable
def work(run_id, state):
    state["orders"].append(Order("tea", 2))
    checkpoint(run_id, state, "one order is noted")
    raise KeyboardInterrupt
"""

STEPS = """
def split_names(state):
    first, _, last = state.pop("name").partition(" ")
    return {**state, "first": first, "last": last}

def count_as_text(state):
    # Order has no `count` any more: what was recorded of each one comes as a dict.
    assert all(order.type_name == "agent:Order" for order in state["orders"])
    state["orders"] = [Order(o["item"], f"{o['count']} pcs") for o in state["orders"]]
    return state
"""

THIRD = f"""{HEAD}
@dataclass
class Order:
    item: str
    amount: str
{STEPS}
@resumable(schema=3, migrations=[split_names, count_as_text])
def work(run_id, state):
    print(json.dumps([state["first"], state["last"], [o.amount for o in state["orders"]]]))
    checkpoint(run_id, state, "the new program went on")
    return "done"
"""

BEGIN = 'import agent; agent.work("job", {"name": "Ada Lovelace", "orders": []})'
GO_ON = 'import agent; agent.work("job", None)'


def journal(folder: Path) -> bytes:
    """Return the run's journal as it lies on the disk."""
    return (folder / ".caravanserai/job/journal-1.jsonl").read_bytes()


def test_a_state_of_the_first_version_is_led_to_the_third(
    start: Callable[..., Started], tmp_path: Path
) -> None:
    """Two migrations apply; what was recorded stays, the next waypoint has the new schema."""
    assert "KeyboardInterrupt" in start(FIRST, BEGIN).stderr
    before = journal(tmp_path)

    done = start(THIRD, GO_ON)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["Ada", "Lovelace", ["2 pcs"]]
    after = journal(tmp_path)
    assert after.startswith(before)
    line = 'from caravanserai import *; print([w.schema for w in history("job")])'
    assert start(THIRD, line).stdout == "[1, 3]\n"


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ("migrations=[count_as_text], schema=3", "the step from schema 1 to 2 is missing"),
        ("schema=3", "the step from schema 1 to 2 is missing"),
    ],
)
def test_without_a_step_the_error_names_it(
    start: Callable[..., Started], tmp_path: Path, declared: str, said: str
) -> None:
    start(FIRST, BEGIN)
    before = journal(tmp_path)
    source = THIRD.replace("schema=3, migrations=[split_names, count_as_text]", declared)

    done = start(source, GO_ON)

    assert "SchemaMismatch: run job, waypoint 1: $: the state has schema 1" in done.stderr
    assert said in done.stderr
    assert journal(tmp_path) == before


def test_an_old_program_refuses_a_newer_state(
    start: Callable[..., Started], tmp_path: Path
) -> None:
    start(FIRST, BEGIN)
    start(THIRD.replace('return "done"', "raise KeyboardInterrupt"), GO_ON)
    before = journal(tmp_path)

    for line in (BEGIN, 'from caravanserai import *; load("job")'):
        done = start(FIRST, line)
        assert "SchemaMismatch: run job, waypoint 2" in done.stderr
        assert "the state was saved with schema 3; this program declares none" in done.stderr
    assert journal(tmp_path) == before


def test_a_changed_comment_changes_nothing(start: Callable[..., Started], tmp_path: Path) -> None:
    start(FIRST, BEGIN)
    source = FIRST.replace("raise KeyboardInterrupt", "# the work is done\n    return 'done'")
    source = source.replace("@resumable\n", "# a comment\n\n\n@resumable\n")

    first = start(source, 'import agent; print(agent.work("job", None))')
    again = start(source + "\n# another comment\n", 'import agent; print(agent.work("job", None))')

    assert (first.stdout, again.stdout) == ("done\n", "done\n"), first.stderr + again.stderr
    assert journal(tmp_path).count(b'"kind":"waypoint"') == 2


def test_a_field_with_a_default_may_be_added(start: Callable[..., Started]) -> None:
    start(FIRST, BEGIN)
    source = FIRST.replace("    count: int\n", "    count: int\n    paid: bool = False\n")

    done = start(source, 'import agent; print(agent.load("job")["orders"])')

    assert done.stdout == "[Order(item='tea', count=2, paid=False)]\n", done.stderr


def test_a_removed_field_is_named_with_its_path(start: Callable[..., Started]) -> None:
    start(FIRST, BEGIN)

    done = start(FIRST.replace("    count: int\n", ""), 'import agent; agent.load("job")')

    assert "SchemaMismatch: run job, waypoint 1: $.orders[0]" in done.stderr
    assert "no field count any more" in done.stderr


def test_what_a_migration_left_unfit_is_named_with_its_path(
    start: Callable[..., Started], tmp_path: Path
) -> None:
    """A step that overlooks an object of a class that is gone is found before a write."""
    start(FIRST, BEGIN)
    before = journal(tmp_path)
    source = f"{HEAD}@resumable(migrations=[lambda s: s])\ndef work(run_id, state): pass\n"

    done = start(source, GO_ON)

    assert "SchemaMismatch: run job, waypoint 1: $.orders[0]" in done.stderr
    assert "agent:Order that no longer fits" in done.stderr
    assert journal(tmp_path) == before


def test_a_migration_that_fails_is_named(start: Callable[..., Started], tmp_path: Path) -> None:
    start(FIRST, BEGIN)
    before = journal(tmp_path)
    source = THIRD.replace('state.pop("name")', 'state.pop("nom")')

    done = start(source, GO_ON)

    assert "the migration from schema 1 to 2, split_names, failed with KeyError" in done.stderr
    assert journal(tmp_path) == before


MOVED = f"""{HEAD}
@dataclass
class Purchase:
    item: str
    count: int
register_type(Purchase, name="order", aliases=["agent:Order"])
"""


def test_a_renamed_class_is_found_by_its_alias(start: Callable[..., Started]) -> None:
    start(FIRST, BEGIN)

    done = start(MOVED, 'import agent; print(agent.load("job")["orders"])')
    without = start(
        MOVED.replace("register_type", "# register_type"), 'import agent; agent.load("job")'
    )

    assert done.stdout == "[Purchase(item='tea', count=2)]\n", done.stderr
    assert "UnknownType: run job, waypoint 1: $.orders[0]" in without.stderr
    assert "aliases=" in without.stderr
