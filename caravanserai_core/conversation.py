"""The conversation of a run, whatever framework it is of: what a different agent goes on from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from caravanserai_core import codec, points, reading, survey
from caravanserai_core.errors import UsageError
from caravanserai_core.homes import store_for
from caravanserai_core.journal import journal_for
from caravanserai_core.names import check_run_id
from caravanserai_core.origins import HANDED
from caravanserai_core.quoting import one_line
from caravanserai_core.transcript import GROUP, Since, Transcript, find

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from caravanserai_core.homes import StoreLike
    from caravanserai_core.records import Record
    from caravanserai_core.stores.base import Store

__all__ = ["PLAIN", "read", "read_from"]

PLAIN = "python"
"""The adapter of runs without a framework."""

_MESSAGES = "langchain"
"""Whose reader knows a list of messages in a program's own state: OpenAI's form and LangChain's."""


def read(run_id: str, *, at: int | None = None, store: StoreLike = None) -> Transcript:
    """Return the conversation of a run, without the framework that had it.

    An adapter whose states hold no copy of the conversation says so: its function has an attribute
    `entries`, the name of the journal's entries that hold it, and takes them as a second argument.
    Of a run without a framework it is what its state has under `messages`.

    Args:
        run_id: the run's name.
        at: a waypoint's number, or a negative one counted from the end: as the run was there.
            None: as it is now, with what was recorded behind its newest waypoint.
        store: as in `caravanserai.checkpoint`.

    Raises:
        RunNotFound: there is no such run in the store.
        WaypointNotFound: the run has no such waypoint.
        JournalDamaged, NewerFormat: the journal cannot be read.
        UsageError: nothing that is installed reads a conversation from such a run.
    """
    run_id = check_run_id(run_id)
    if at is not None and type(at) is not int:
        raise UsageError(f"at= takes a waypoint's number, an int, not {type(at).__name__}")
    found = store_for(run_id, store)
    # What this process has queued for the run is written first.
    turns = journal_for(found, run_id).turns
    return cast("Transcript", turns.do(lambda: _read(found, run_id, at)))


def _read(store: Store, run_id: str, at: int | None) -> Transcript:
    number = None if at is None else points.resolve(store, run_id, at)
    records = list(survey.records(store, run_id, bodies=True))
    if number is not None or not records:
        reading.load(store, run_id, number, raw=True)  # raises where there is no such waypoint
    return read_from(store, run_id, records, number)


def read_from(
    store: Store, run_id: str, records: Sequence[Record], number: int | None
) -> Transcript:
    """Return the conversation, given the records of the run; see `read`.

    Args:
        store: where it lives.
        run_id: its name.
        records: all of them, with their bodies; none of a run of release 0.2.0.
        number: the waypoint, None: as the run is now.
    """
    adapter = reading.written_by(store, run_id)
    told: Callable[..., Transcript] | None = find(_MESSAGES if adapter == PLAIN else adapter)
    if told is None:
        raise UsageError(
            f"no conversation can be read from run {one_line(run_id)}: it was written by "
            f"{one_line(adapter)!r}, and no installed package has an entry point of that name in "
            f"the group {GROUP}."
        )
    now = number is None
    if now:
        stops = [r.waypoint for r in records if r.kind == "waypoint" and not r.lane]
        number = stops[-1] if stops else 0
    tree = None
    if number or not records:
        tree = reading.load(store, run_id, number or None, raw=True)
    begin = next(
        (i for i, r in enumerate(records) if r.kind == "waypoint" and r.waypoint == number), -1
    )
    before, behind = records[: begin + 1], records[begin + 1 :] if now else []
    given: list[Any] = [tree]
    more: dict[str, Any] = {}
    if getattr(told, "head", False):
        more["head"] = records[begin].head if begin >= 0 else {}
        behind = records[_first_of(records, begin) + 1 : None if now else begin + 1]
    if getattr(told, "since", False):
        more["since"] = [since for r in behind if (since := _since(r)) is not None]
    name = getattr(told, "entries", None)
    if name is not None:
        given.append([codec.parse(r.member("data")) for r in before if _is_entry(r, name)])
    elif tree is None and not more:
        return Transcript(())
    said = told(*given, **more)
    if said.messages or adapter != PLAIN:
        return said
    # A program that keeps no messages, and goes on from a run that had some.
    return next((_handed(record) for record in records if _is_entry(record, HANDED)), said)


def _handed(record: Record) -> Transcript:
    data: Any = codec.decode_tree(codec.displayed(codec.parse(record.member("data"))))
    return Transcript.from_json(data["transcript"])


def _first_of(records: Sequence[Record], at: int) -> int:
    """Return the place of the waypoint that the one at a place repeats the state of, or its own."""
    while at > 0 and records[at].head.get("repeats"):
        before = (
            n
            for n in range(at - 1, -1, -1)
            if records[n].kind == "waypoint" and records[n].lane == records[at].lane
        )
        found = next(before, None)
        if found is None:
            break  # it was pruned
        at = found
    return at


def _is_entry(record: Record, name: str) -> bool:
    return record.kind == "entry" and record.head.get("name") == name


def _since(record: Record) -> Since | None:
    if record.lane or record.kind not in ("entry", "effect"):
        return None
    head = record.head
    name = head.get("name" if record.kind == "entry" else "label")
    if not isinstance(name, str):
        return None
    data = codec.parse(record.member("data")) if record.body else None
    return Since(record.kind, name, head, data)
