"""`caravanserai log --graph`: a run with those that it comes from and that come from it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from caravanserai_core import listing, survey
from caravanserai_core.cli import _out
from caravanserai_core.errors import CaravanseraiError
from caravanserai_core.notes import Note
from caravanserai_core.origins import HANDED
from caravanserai_core.reading import opening
from caravanserai_core.redact import redact

if TYPE_CHECKING:
    from collections.abc import Iterator

    from caravanserai_core.listing import RunInfo
    from caravanserai_core.stores import Store

__all__ = ["Family", "family", "mermaid", "text"]

_SHOWN: Final = 12
"""Most waypoints of a run that are shown before those in between are left out."""

_WORDS: Final = 72


class Stop(NamedTuple):
    """A waypoint of the main lane.

    Attributes:
        number: its number.
        parent: that of the waypoint before it, or None.
        told: what its note says first, on one line.
    """

    number: int
    parent: int | None
    told: str


class Member(NamedTuple):
    """A run of a family.

    Attributes:
        run_id: its name.
        status: its status; "gone" if it is no longer there.
        made: what it is made with, or "".
        stops: its waypoints, oldest first.
        origin: where it comes from, or None.
    """

    run_id: str
    status: str
    made: str
    stops: list[Stop]
    origin: dict[str, Any] | None


class Family(NamedTuple):
    """Runs that come from each other.

    Attributes:
        root: the run that all others come from.
        members: by name; each behind the one that it comes from.
    """

    root: str
    members: dict[str, Member]

    def children(self, run_id: str) -> list[Member]:
        """Return the runs that come from one, in the order of its waypoints."""
        found = [
            member
            for member in self.members.values()
            if member.origin is not None
            and member.origin.get("run_id") == run_id
            and member.run_id != run_id
        ]
        return sorted(found, key=lambda member: (_at(member), member.run_id))


def family(store: Store, run_id: str) -> Family:
    """Return the family of a run."""
    infos = {info.run_id: info for info in listing.runs(store)}
    root, seen = run_id, {run_id}
    while (origin := _origin(infos.get(root))) and origin["run_id"] not in seen:
        root = str(origin["run_id"])
        seen.add(root)
    members: dict[str, Member] = {}
    waiting = [root]
    while waiting:
        name = waiting.pop(0)
        if name not in members:
            members[name] = _member(store, name, infos.get(name))
            waiting += [
                info.run_id
                for info in infos.values()
                if (_origin(info) or {}).get("run_id") == name
            ]
    return Family(root, members)


def _origin(info: RunInfo | None) -> dict[str, Any] | None:
    origin = None if info is None else info.origin
    return origin if isinstance(origin, dict) and isinstance(origin.get("run_id"), str) else None


def _member(store: Store, run_id: str, info: RunInfo | None) -> Member:
    if info is None:
        return Member(run_id, "gone", "", [], None)
    stops: list[Stop] = []
    made = "" if info.adapter == "python" else info.adapter
    try:
        for record in survey.records(store, run_id, bodies=False):
            if record.kind == "open" and not stops:
                made = _made(store, run_id) or made
            elif record.kind == "waypoint" and not record.lane:
                note = redact(str(Note.from_json(record.head.get("note", ""))))
                told = _out.cell(note.strip().partition("\n")[0], _WORDS)
                stops.append(Stop(record.waypoint, record.head.get("parent"), told))
    except CaravanseraiError:
        return Member(run_id, listing.DAMAGED, made, stops, _origin(info))
    return Member(run_id, info.status, made, stops, _origin(info))


def _made(store: Store, run_id: str) -> str:
    found = store.recent(run_id)
    return "" if found is None else opening(found.opening).framework or ""


def _at(member: Member) -> int:
    number = (member.origin or {}).get("waypoint", 0)
    return number if isinstance(number, int) else 0


def _word_for(member: Member) -> str:
    """Return how a run came from the other one."""
    origin = member.origin or {}
    if origin.get("how") == HANDED:
        return "handed over"
    return "fork" if "waypoint" in origin else "copy"


def _kept(stops: list[Stop], branched: set[int]) -> list[Stop | int]:
    """Return the waypoints that are shown, and in the place of others how many they are."""
    if len(stops) <= _SHOWN:
        return list(stops)
    last = len(stops)
    near = {*range(3), *range(last - 5, last)}
    shown = [place in near or stop.number in branched for place, stop in enumerate(stops)]
    kept: list[Stop | int] = []
    for place, stop in enumerate(stops):
        # One alone takes no more room than the line that would stand for it.
        if shown[place] or (shown[place - 1] and shown[place + 1]):
            kept.append(stop)
        elif kept and isinstance(kept[-1], int):
            kept[-1] += 1
        else:
            kept.append(1)
    return kept


# ---------------------------------------------------------------------- in the terminal


def text(found: Family, marked: str) -> str:
    """Draw a family as a tree; the run that was asked for is marked."""
    return "\n".join(_drawn(found, found.members[found.root], marked, "", {found.root}))


def _drawn(
    found: Family, member: Member, marked: str, indent: str, seen: set[str]
) -> Iterator[str]:
    made = f" ({_out.cell(member.made, 60)})" if member.made else ""
    mark = " ←" if member.run_id == marked else ""
    yield f"{_out.cell(member.run_id, 80)}{made}: {_word(member.status)}{mark}"
    # A run that has the name of one before it, which is gone, may come from itself.
    children = [child for child in found.children(member.run_id) if child.run_id not in seen]
    seen |= {child.run_id for child in children}
    branches: dict[int, list[Member]] = {}
    numbers = {stop.number for stop in member.stops}
    last = member.stops[-1].number if member.stops else 0
    for child in children:
        at = _at(child) if _at(child) in numbers else last
        branches.setdefault(at, []).append(child)
    items: list[tuple[str, Member | None]] = [(_told(c), c) for c in branches.get(0, [])]
    before: int | None = None
    for stop in _kept(member.stops, set(branches)):
        if isinstance(stop, int):
            items.append((f"… {stop} waypoints", None))
            before = None
            continue
        from_ = f" (after {stop.parent})" if before not in (None, stop.parent) else ""
        items.append((f"{stop.number}  {stop.told}{from_}", None))
        before = stop.number
        items += [(_told(other), other) for other in branches.get(stop.number, [])]
    for place, (line, branched) in enumerate(items):
        end = place == len(items) - 1
        branch, below = ("└─ ", "   ") if end else ("├─ ", "│  ")
        if branched is None:
            yield f"{indent}{branch}{line}"
            continue
        inner = _drawn(found, branched, marked, f"{indent}{below}   ", seen)
        yield f"{indent}{branch}{line} {next(inner)}"
        yield from inner


def _told(child: Member) -> str:
    at = f" at {_at(child)}" if _at(child) else ""
    return f"─▶ {_word_for(child)}{at}:"


def _word(status: str) -> str:
    return "waits for a person" if status == listing.WAITING else status


# ---------------------------------------------------------------------- Mermaid


def mermaid(found: Family, marked: str) -> str:
    """Return a family as the text of a Mermaid flow chart."""
    lines = ["flowchart TD"]
    names = {run_id: f"r{n}" for n, run_id in enumerate(found.members, 1)}
    ends: dict[tuple[str, int], str] = {}
    for run_id, member in found.members.items():
        lines += _boxes(found, member, names[run_id], ends)
    for run_id, member in found.members.items():
        if member.origin is None or member.origin["run_id"] not in names:
            continue
        source = str(member.origin["run_id"])
        begin = ends.get((source, _at(member))) or ends[(source, -1)]
        lines.append(f'  {begin} -. "{_label(_word_for(member))}" .-> {ends[(run_id, 0)]}')
    lines.append(f"  style {names[marked]} stroke-width:3px")
    return "\n".join(lines)


def _boxes(
    found: Family, member: Member, name: str, ends: dict[tuple[str, int], str]
) -> Iterator[str]:
    made = f" · {member.made}" if member.made else ""
    yield f'  subgraph {name}["{_label(f"{member.run_id}{made} · {_word(member.status)}")}"]'
    branched = {_at(child) for child in found.children(member.run_id)}
    before: str | None = None
    for place, stop in enumerate(_kept(member.stops, branched)):
        node = f"{name}w{stop.number}" if isinstance(stop, Stop) else f"{name}x{place}"
        told = f"{stop.number}: {stop.told}" if isinstance(stop, Stop) else f"… {stop} waypoints"
        parent = None
        if isinstance(stop, Stop):
            parent = ends.get((member.run_id, stop.parent or -1))
            ends[(member.run_id, stop.number)] = node
        yield f'    {node}["{_label(told)}"]'
        begin = parent if parent is not None else before
        if begin is not None:
            yield f"    {begin} --> {node}"
        ends.setdefault((member.run_id, 0), node)
        before = node
    if before is None:
        before = f"{name}w0"
        yield f'    {before}["no waypoint"]'
        ends[(member.run_id, 0)] = before
    ends[(member.run_id, -1)] = before
    yield "  end"


_SPECIAL: Final = re.compile(r'["#&;<>`\\\[\]{}()|]')


def _label(told: str) -> str:
    """Return a text for a label in quotation marks: Mermaid reads its own entities there."""
    return _SPECIAL.sub(lambda match: f"#{ord(match[0])};", _out.cell(told, 160))
