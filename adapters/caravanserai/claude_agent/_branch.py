"""Which entries of a transcript are the conversation: the CLI only adds, and links them.

A transcript is a tree: an entry names the one before it. Each result of a batch hangs on its own
call, so that all but one lie beside the way from the newest entry back to the first (2.1.332).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from caravanserai.claude_agent import _entries

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from caravanserai.claude_agent._entries import Entry


class Branch(NamedTuple):
    """A conversation.

    Attributes:
        entries: oldest first.
        left_out: messages before it, for which a summary stands.
    """

    entries: list[Entry]
    left_out: int


def read(entries: Sequence[Entry], last: str) -> Branch:
    """Return the conversation that ends at an entry.

    Args:
        entries: all of a transcript, in the order in which they were written.
        last: id of the entry; "" or one that is not there: the newest that was said.
    """
    mine = [entry for entry in entries if not entry.get("isSidechain")]
    known = {_entries.uuid_of(entry): entry for entry in mine if _entries.uuid_of(entry)}
    last = last if last in known else _entries.last_said(mine)
    if not last:
        return Branch([], 0)
    # What came behind it is of later waypoints.
    end = next(n for n, entry in enumerate(mine, 1) if _entries.uuid_of(entry) == last)
    mine = mine[:end]
    way = _way(known, last)
    kept = _beside(mine, way)
    first = known[way[-1]]
    if not _entries.is_boundary(first):
        return Branch([entry for entry in mine if _entries.uuid_of(entry) in kept], 0)
    segment, anchor = _preserved(known, first)
    before = _beside(mine, segment)
    found: list[Entry] = []
    for entry in mine:
        uuid = _entries.uuid_of(entry)
        if uuid in kept and uuid not in before:
            found.append(entry)
            if uuid == anchor:
                found += [one for one in mine if _entries.uuid_of(one) in before]
    shown = {_entries.uuid_of(entry) for entry in found}
    earlier = _beside(mine, _way(known, _text(first.get("logicalParentUuid"))))
    gone = [known[uuid] for uuid in earlier - shown]
    return Branch(found, sum(_entries.is_said(one) and not one.get("isMeta") for one in gone))


def _way(known: Mapping[str, Entry], last: str) -> list[str]:
    """Return the ids from an entry back to the first one, or to where it was shortened."""
    found: dict[str, None] = {}
    uuid = last
    while uuid in known and uuid not in found:
        found[uuid] = None
        if _entries.is_boundary(known[uuid]):
            break
        uuid = _text(known[uuid].get("parentUuid"))
    return list(found)


def _beside(entries: Sequence[Entry], way: Sequence[str]) -> set[str]:
    """Return the ids of a way, and of what belongs to it: parts of its answers, their results."""
    kept = set(way)
    answers = {
        _answer_of(entry)
        for entry in entries
        if entry.get("type") == "assistant" and _entries.uuid_of(entry) in kept
    } - {""}
    for entry in entries:
        uuid = _entries.uuid_of(entry)
        said = entry.get("type") == "assistant" and _answer_of(entry) in answers
        if said or (_text(entry.get("parentUuid")) in kept and _is_result(entry)):
            kept.add(uuid)
    return kept


def _is_result(entry: Entry) -> bool:
    if entry.get("type") != "user":
        return False
    return any(block.get("type") == "tool_result" for block in _entries.blocks(entry))


def _answer_of(entry: Entry) -> str:
    message = entry.get("message")
    return _text(message.get("id")) if isinstance(message, dict) else ""


def _preserved(known: Mapping[str, Entry], boundary: Entry) -> tuple[list[str], str]:
    """Return the ids of the messages that a shortened conversation kept as they were.

    Returns:
        The ids, and that of the entry which they stand behind now: the summary.
    """
    told: Any = boundary.get("compactMetadata")
    segment = told.get("preservedSegment") if isinstance(told, dict) else None
    if not isinstance(segment, dict):
        return [], ""
    head, tail = _text(segment.get("headUuid")), _text(segment.get("tailUuid"))
    way = _way(known, tail)
    if head not in way:
        return [], ""
    return way[: way.index(head) + 1], _text(segment.get("anchorUuid"))


def _text(node: Any) -> str:
    return node if isinstance(node, str) else ""
