"""How a crew that was killed is compared with one that was not."""

from __future__ import annotations

from collections import Counter
from typing import Any

from caravanserai import list_runs
from integration_tests.crewai.life import Life, comparable

AT_ONCE = {"parallel": 3, "hole": 2}
"""How many things an app does at the same time, where it is not one."""

ASKED_AT_ONCE = {"hole": 2}
"""How many requests an app makes at the same time, where it is not one."""


def places_of(whole: dict[str, Any]) -> list[str]:
    """Return every place at which a crew can be killed."""
    requests = [f"request {number}" for number in range(1, whole["answers"] + 1)]
    return [*whole["outside"], *requests, *dict.fromkeys(whole["appends"])]


def check_killed(one: Life, whole: dict[str, Any], place: str) -> None:
    """Kill a crew at a place, start it again to its end, and compare it with an undisturbed one.

    Args:
        one: the crew, not yet started.
        whole: see the fixture.
        place: one of those that the undisturbed one came to.
    """
    one.killed(place)
    one.check_store()
    cut_off = one.outside()
    found = one.ended()
    said = f"killed at {place!r}"
    assert comparable(found) == comparable(whole["result"]), said
    assert one.files() == whole["files"], said
    _check_model(one, whole, place)
    _check_world(one, whole, place, cut_off)
    one.check_store()
    assert [run.status for run in list_runs(store=one.store)] == ["finished"], said
    before = one.requests(), one.outside()
    assert one.ended() == found, "the same line returns what it came to"
    assert (one.requests(), one.outside()) == before, "and does nothing"


def _check_model(one: Life, whole: dict[str, Any], place: str) -> None:
    """Only what was in flight is asked again, or had no record yet."""
    at_once = ASKED_AT_ONCE.get(one.options["app"], 1)
    asked, requests = one.asked() - whole["answers"], one.requests() - whole["answers"]
    if place.startswith("request "):
        assert 1 <= requests <= at_once, place
        assert asked <= at_once - 1, place
    elif place.startswith("append ") and place.endswith(" begins"):
        assert 0 <= requests <= at_once, place
    else:
        assert 0 <= requests <= at_once - 1, place


def _check_world(one: Life, whole: dict[str, Any], place: str, cut_off: Counter[str]) -> None:
    """Nothing is missing, and only what was in flight happens again, once."""
    app = one.options["app"]
    outside = one.outside()
    assert not whole["outside"] - outside, f"killed at {place!r}: something was left out"
    again = outside - whole["outside"]
    assert set(again) <= set(cut_off), place
    assert max(again.values(), default=0) <= 1, (place, again)
    things = {line.removeprefix("begin ").removeprefix("end ") for line in again}
    thing = place.removeprefix("begin ").removeprefix("end ")
    at_once = AT_ONCE.get(app, 1)
    if place.startswith(("append ", "file ", "request ")):
        # Behind a record nothing of one thread is in flight but what it asked for.
        unrecorded = place.startswith("append ") and place.endswith(" begins")
        lost = at_once if unrecorded else at_once - 1
        assert len(things) <= lost, (place, again)
    else:
        assert thing in things, (place, again)
        assert len(things) <= at_once, (place, again)
    _check_keys(one)


def _check_keys(one: Life) -> None:
    """A call that is made again has the key of the call that was cut off; no other has it."""
    kept = [line.rpartition(" ")[::2] for line in one.lines("kept.txt")]
    assert len(set(kept)) == len({text for text, _ in kept}) == len({key for _, key in kept})
