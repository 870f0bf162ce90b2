"""`resumable_iterate`: a list that is worked off across crashes."""

from __future__ import annotations

from pathlib import Path

import pytest

from caravanserai import (
    MemoryStore,
    UsageError,
    checkpoint,
    get_waypoint,
    history,
    list_runs,
    load,
    resumable_iterate,
)
from integration_tests.api.helpers import forget_everything


def test_iterate_repeats_only_the_item_in_work() -> None:
    """At least once: after a crash the item in work comes again, never more than that one."""
    worked = []
    items = [f"item {n}" for n in range(6)]
    for n, item in enumerate(resumable_iterate(items, run_id="run")):
        worked.append(item)
        if n == 3:
            break  # as a crash in the middle of the loop's body
    assert worked == items[:4]
    forget_everything()
    assert list(resumable_iterate(items, run_id="run")) == items[3:]
    assert list(resumable_iterate(items, run_id="run")) == []
    longer = [*items, "item 6"]
    assert list(resumable_iterate(longer, run_id="run")) == ["item 6"]
    assert str(get_waypoint("run").note) == "processed item 7/7"
    assert load("run")["_i"] == 7


def test_iterate_with_a_note_of_the_item() -> None:
    """The note is made of the item that was done."""
    for _ in resumable_iterate("ab", "run", lambda item: f"converted {item}"):
        pass
    assert [str(w.note) for w in history("run")] == ["converted a", "converted b"]


def test_iterate_over_nothing_begins_no_run(store_dir: Path) -> None:
    """An empty list leaves nothing behind."""
    assert list(resumable_iterate([], run_id="run")) == []
    assert not store_dir.exists()


def test_iterate_in_a_given_store() -> None:
    """`store=` is used for reading and writing."""
    store = MemoryStore()
    assert list(resumable_iterate([1, 2], "run", store=store)) == [1, 2]
    assert list(resumable_iterate([1, 2], "run", store=store)) == []
    assert list_runs() == []


def test_iterate_refuses_a_list_whose_done_items_changed() -> None:
    """What was worked off must still be the beginning; nothing is skipped or repeated silently."""
    for item in resumable_iterate(["b", "c", "d"], run_id="run"):
        if item == "d":
            break  # b and c are done
    for changed in (["a", "b", "c", "d"], ["c", "b", "d"], ["b"]):
        with pytest.raises(UsageError, match=r"2 items .* no longer the first"):
            next(resumable_iterate(changed, run_id="run"))
    assert list(resumable_iterate(["b", "c", "x", "y"], run_id="run")) == ["x", "y"]


def test_iterate_refuses_a_run_that_something_else_wrote() -> None:
    """A state of another kind is not overwritten."""
    checkpoint("run", {"x": 1})
    with pytest.raises(UsageError, match="not written by resumable_iterate"):
        next(resumable_iterate([1], run_id="run"))
    assert load("run") == {"x": 1}
