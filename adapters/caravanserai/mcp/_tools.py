"""The tools: what each takes, and what it returns. The SDK is not needed here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from caravanserai.mcp._arguments import checked
from caravanserai.mcp._text import MOST, framed, listed, page
from caravanserai_core import answering, comparing, handing, listing, lookup, steps, telling
from caravanserai_core.errors import UsageError
from caravanserai_core.handed import FORMS, MAX_CHARS
from caravanserai_core.quoting import code, one_line, quoted, visible
from caravanserai_core.stores import FileStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from caravanserai_core.lookup import Named, Trail
    from caravanserai_core.records import Record
    from caravanserai_core.stores import Store

__all__ = ["Tools", "about"]

_FAR: Final = 10**9
_LINE: Final = 500
"""Most characters of a line of a log or a comparison."""


def _number(text: str, least: int = -_FAR, most: int = _FAR) -> dict[str, Any]:
    return {"type": "integer", "minimum": least, "maximum": most, "description": text}


_RUN: Final = {
    "type": "string",
    "maxLength": 10_000,
    "description": "The run: its name, an unambiguous beginning of it, or @- for the run written "
    "last. RUN@3 is its third waypoint, RUN@-1 its newest one.",
}
_WAYPOINT: Final = _number(
    "Number of a waypoint, -1 for the newest, -2 for the one before. Left out: how the run is now."
)


class _Tool(NamedTuple):
    """A tool.

    Attributes:
        title: for people.
        text: for the model.
        takes: its arguments, by name.
        needs: those that may not be left out.
        call: what it does.
    """

    title: str
    text: str
    takes: dict[str, Any]
    needs: list[str]
    call: Callable[..., str]


class Tools:
    """The tools of a server.

    Args:
        store: whose runs they read.
        allow_answers: whether there is one that answers the questions of runs.
    """

    def __init__(self, store: Store, *, allow_answers: bool = False) -> None:
        self.store = store
        self.allow_answers = allow_answers
        self._tools: dict[str, _Tool] = {
            "list_runs": _Tool(
                "List runs",
                "List the runs of the store, the one written last first: name, status, waypoints, "
                "open questions, age, what wrote it, where it comes from.",
                {
                    "limit": _number("Most runs to list. Default: 50.", 1, 500),
                    "skip": _number("Runs to leave out at the beginning. Default: 0.", 0),
                },
                [],
                self._list_runs,
            ),
            "read_note": _Tool(
                "Read a note",
                "Read the note of a run: what happened, what is next, what waits for a person, "
                "what is not certain. Without a waypoint the live one.",
                {
                    "run": _RUN,
                    "waypoint": _WAYPOINT,
                    "offset": _number("Of a very long note, characters to leave out.", 0),
                },
                ["run"],
                self._read_note,
            ),
            "log": _Tool(
                "Read a log",
                "List what happened in a run, every waypoint and every recorded step between, the "
                "newest last.",
                {
                    "run": _RUN,
                    "limit": _number("Most events to list. Default: 100.", 1, 500),
                    "before": _number("List the events before the one of this number.", 1),
                },
                ["run"],
                self._log,
            ),
            "diff": _Tool(
                "Compare waypoints",
                "Show what changed between the states of two waypoints of a run.",
                {
                    "run": _RUN,
                    "from": _number("The first waypoint. Default: the one before `to`."),
                    "to": _number("The second waypoint. Default: the newest, or N of RUN@N."),
                    "skip": _number("Changes to leave out at the beginning. Default: 0.", 0),
                },
                ["run"],
                self._diff,
            ),
            "handoff": _Tool(
                "Hand a run over",
                "Get all that somebody needs who goes on with a run, in one text: goal, done, "
                "next, what waits, what is not certain, results, the conversation.",
                {
                    "run": _RUN,
                    "waypoint": _WAYPOINT,
                    "for_": {
                        "type": "string",
                        "enum": list(FORMS),
                        "description": "Who goes on with it; words the text. Default: human.",
                    },
                    "max_chars": _number(
                        f"Most characters of the text. Default: {MAX_CHARS}.", 2_000, MOST
                    ),
                },
                ["run"],
                self._handoff,
            ),
        }
        if allow_answers:
            self._tools["answer"] = _Tool(
                "Answer a question of a run",
                "Record a person's answer to a question that a run asks; the run goes on with it. "
                "Ask your user first, and pass on what they decided: never decide by yourself. "
                "The first answer counts and cannot be taken back.",
                {
                    "run": {**_RUN, "description": "The run's exact name."},
                    "value": {
                        "description": "The answer: one of the question's options where it has "
                        "any; true approves and false rejects a call."
                    },
                    "question": {
                        "type": "string",
                        "maxLength": 100,
                        "description": "Id of the question, q1. Needed where several are open.",
                    },
                    "reason": {
                        "type": "string",
                        "maxLength": 10_000,
                        "description": "Why; kept with the answer.",
                    },
                },
                ["run", "value"],
                self._answer,
            )

    def described(self) -> list[dict[str, Any]]:
        """Return the tools as the protocol lists them."""
        return [
            {
                "name": name,
                "title": tool.title,
                "description": tool.text,
                "inputSchema": {
                    "type": "object",
                    "properties": tool.takes,
                    "required": tool.needs,
                    "additionalProperties": False,
                },
                "annotations": _annotated(writes=name == "answer"),
            }
            for name, tool in self._tools.items()
        ]

    def call(self, name: str, given: Any, client: str) -> str:
        """Call a tool.

        Args:
            name: of the tool.
            given: its arguments, by name.
            client: name of the client that asks.

        Returns:
            The text of its result.

        Raises:
            CaravanseraiError: a sentence about what is wrong.
        """
        tool = self._tools.get(name)
        if tool is None:
            if name == "answer":
                raise UsageError(
                    "this server only reads. Tell your user to answer with `caravanserai answer`; "
                    "they may also start the server with --allow-answers."
                )
            names = ", ".join(self._tools)
            raise UsageError(f"there is no tool {quoted(name, 60)}, only {names}")
        schema = {"properties": tool.takes, "required": tool.needs}
        found = checked(name, schema, given)
        if name == "answer":
            found["client"] = client
        return tool.call(**{key.strip("_"): value for key, value in found.items()})

    # ------------------------------------------------------------------ each of them

    def _list_runs(self, *, limit: int = 50, skip: int = 0) -> str:
        store = self.store
        runs = listing.runs(store)
        where = code(one_line(store.name, 500))
        if isinstance(store, FileStore) and not Path(store.root).exists():
            return f"There is no store at {where}: no run was recorded there yet."
        if not runs:
            return f"No runs yet in the store {where}."
        shown = runs[skip : skip + limit]
        rows = [
            (
                info.run_id,
                listing.spoken(info),
                str(info.waypoints),
                ", ".join(info.waits) or "-",
                listing.age(info.updated),
                info.adapter,
                lookup.origin_text(info.origin) or "-",
                info.error or "-",
            )
            for info in shown
        ]
        header = ("run", "status", "waypoints", "waits", "age", "by", "comes from", "damage")
        lines = ["\t".join(one_line(cell, _LINE) for cell in row) for row in (header, *rows)]
        number = f"{len(runs)} run{'s' if len(runs) != 1 else ''}"
        about = f"{number} in the store {where}, the one written last first."
        kept = _room(lines)
        end = skip + kept - 1
        if end < len(runs):
            about += f" These are {skip + 1} to {end}; for more call list_runs with skip={end}."
        return framed(about, listed(lines[:kept]))

    def _read_note(self, *, run: str, waypoint: int | None = None, offset: int = 0) -> str:
        run_id, at, trail = self._found(run, waypoint)
        if at is not None:
            at = lookup.number_at(self.store, lookup.Named(run_id, at), trail)
        text = telling.note_text(self.store, run_id, at, trail)
        shown, more = page(text, offset, "for what follows call read_note with offset={}.")
        which = "live note" if at is None else f"note of waypoint {at}"
        return framed(f"The {which} of {about(self.store, run_id, trail)}{more}", shown)

    def _log(self, *, run: str, limit: int = 100, before: int | None = None) -> str:
        run_id, _, trail = self._found(run, None)
        records = telling.events(self.store, run_id, trail)
        end = len(records) if before is None else min(before - 1, len(records))
        lines = [_event(n, records[n - 1]) for n in range(end, max(0, end - limit), -1)]
        kept = _room(lines)
        begin = end - kept
        what = f"The log of {about(self.store, run_id, trail)}"
        if not kept:
            return f"{what} There is no event before that." if records else f"{what} It is empty."
        what += f" These are events {begin + 1} to {end} of {len(records)}, the newest last."
        if begin:
            what += f" For those before call log with before={begin + 1}."
        header = "event\twaypoint (+: after it)\ttime\tlane\twhat"
        return framed(what, listed([header, *reversed(lines[:kept])]))

    def _diff(self, *, run: str, to: int | None = None, skip: int = 0, **more: int) -> str:
        store = self.store
        run_id, at, _ = self._found(run, to)
        second = comparing.point(store, lookup.Named(run_id, at))
        if "from" in more:
            first = comparing.point(store, lookup.Named(run_id, more["from"]))
        else:
            first = comparing.parent_of(store, second)
        old, new = (
            lookup.raw_state(store, run_id, point.waypoint.number) for point in (first, second)
        )
        changes = list(comparing.compare(old, new))
        lines = [one_line(comparing.text_of(change), _LINE) for change in changes[skip:]]
        kept = _room(lines)
        left, right = first.waypoint.number, second.waypoint.number
        what = (
            f"What leads from the state of waypoint {left} to that of waypoint {right} of "
            f"{about(store, run_id, second.trail)}"
        )
        if not changes:
            return f"{what} There is no change: {comparing.unchanged(old, new)}."
        end = skip + kept
        what += f" {len(changes)} change{'s' if len(changes) != 1 else ''}"
        if skip or end < len(changes):
            what += f", of which these are {skip + 1} to {end}"
        what += f"; for more call diff with skip={end}." if end < len(changes) else "."
        head = [
            f"{sign} waypoint {point.waypoint.number}: {one_line(str(point.waypoint.note), 300)}"
            for sign, point in (("---", first), ("+++", second))
        ]
        return framed(what, listed([*head, *lines[:kept]]))

    def _handoff(
        self,
        *,
        run: str,
        waypoint: int | None = None,
        max_chars: int = MAX_CHARS,
        **more: Any,
    ) -> str:
        named = self._named(run, waypoint)
        handed = handing.handoff(named.run_id, named.at, store=self.store, max_chars=max_chars)
        text, _ = page(handed.render(more.get("for", "human")), 0, "")
        return framed(f"A handoff of run {code(one_line(named.run_id, 300))}.", text)

    def _answer(
        self,
        *,
        run: str,
        value: Any,
        client: str,
        question: str | None = None,
        reason: str | None = None,
    ) -> str:
        run_id = lookup.find(self.store, run, prefix=False).run_id
        if isinstance(value, str):
            # A client may have made a text of what is none.
            value = answering.meant(value, answering.question(self.store, run_id, question))
        by = f"{one_line(client, 60)} via MCP"
        name = steps.answer(
            run_id, value, question=question, by=by, reason=reason, store=self.store
        )
        told = code(one_line(answering.spoken(value), 200))
        return (
            f"Recorded as the answer of {code(by)} to {code(one_line(name, 60))} of run "
            f"{code(one_line(run_id, 300))}: {told}. The run goes on with it when its program is "
            "started again."
        )

    # ------------------------------------------------------------------ what they share

    def _named(self, run: str, waypoint: int | None) -> Named:
        """Find what is named, by `RUN@N` or by two arguments."""
        named = lookup.find(self.store, run)
        if waypoint is None:
            return named
        if named.at is not None and named.at != waypoint:
            raise UsageError(
                f"two waypoints are named, {named.at} in the run's name and {waypoint} beside it"
            )
        return named._replace(at=waypoint)

    def _found(self, run: str, waypoint: int | None) -> tuple[str, int | None, Trail]:
        run_id, at = self._named(run, waypoint)
        return run_id, at, lookup.trail(self.store, run_id)


def about(store: Store, run_id: str, trail: Trail) -> str:
    """Say in a sentence or two which run it is, how it stands, and what is wrong with it."""
    last = trail.records[-1].head.get("time") if trail.records else None
    told = [f"run {code(one_line(run_id, 300))}", trail.status]
    if isinstance(last, str):
        told.append(f"written {telling.utc(last)}")
    origin = None if trail.damage else lookup.origin_text(lookup.origin(store, run_id))
    if origin:
        told.append(code(one_line(origin, 300)))
    damage = f" It is damaged: {code(one_line(trail.damage[0], _LINE))}." if trail.damage else ""
    return f"{', '.join(told)}.{damage}"


def _annotated(*, writes: bool) -> dict[str, Any]:
    if writes:
        return {
            "readOnlyHint": False,
            "destructiveHint": True,  # what is answered cannot be taken back
            "idempotentHint": False,
            "openWorldHint": False,
        }
    return {"readOnlyHint": True, "openWorldHint": False}


def _room(lines: list[str]) -> int:
    """Return how many of the first lines there is room for; one at least, if there is one."""
    size = 0
    for number, line in enumerate(lines):
        size += len(visible(line)) + 1
        if size > MOST and number:
            return number
    return len(lines)


def _event(number: int, record: Record) -> str:
    at = f"{record.waypoint}{'' if record.kind == 'waypoint' else '+'}"
    lane, what = one_line(record.lane, 60) or "-", one_line(telling.happened(record), _LINE)
    return "\t".join((str(number), at, telling.utc(record.head["time"]), lane, what))
