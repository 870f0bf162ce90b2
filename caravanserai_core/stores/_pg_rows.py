"""From sealed lines to rows of a Postgres store, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from caravanserai_core.records import Malformed, Record, lengths, parse, parse_head
from caravanserai_core.stores.base import Bad, Tail

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from caravanserai_core.stores.base import Sealed, Shown


class Row(NamedTuple):
    """A record as the table `records` has it."""

    seq: int
    sum: str
    kind: str
    lane: bytes
    waypoint: int
    base: int | None
    full: int | None
    head: int
    body: int
    line: bytes


def params_of(sealed: Sealed) -> dict[str, Any]:
    """Return the parameters of an append: the end it leads to, its records and notes."""
    rows = rows_of(sealed)
    opened = [row.seq for row in rows if row.kind == "open"]
    notes = dict(sealed.notes)
    shown = sealed.shown
    if shown is not None and shown.name is not None:
        notes[shown.name] = shown.text
    return {
        "seq": sealed.seq,
        "sum": sealed.sum,
        "epoch": sealed.epoch,
        "rolled": sealed.rolled,
        "opened": opened[-1] if opened else None,
        **numbered(rows),
        **shows(shown),
        **notes_of(notes),
    }


def rows_of(sealed: Sealed) -> list[Row]:
    """Return the rows of an append."""
    return [_row(line.text) for line in sealed.lines]


class Attempt(NamedTuple):
    """An append whose answer did not come: what its last record is found by."""

    seq: int
    sum: str
    kind: str
    waypoint: int
    by: str
    time: str


def attempt_of(sealed: Sealed) -> Attempt:
    """Return what an append is found by."""
    text = sealed.lines[-1].text
    found = lengths(text)
    assert found is not None, text[:80]
    head = orjson.loads(b"{%b}" % text[found[0] : found[0] + found[1]])
    by, time = head.get("by", ""), head["time"]
    return Attempt(sealed.seq, sealed.sum, head["kind"], head["waypoint"], by, time)


def numbered(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the parameters of some rows: `seq0`, …, `line0`, `seq1`, …"""
    return {
        f"{name}{number}": value
        for number, row in enumerate(rows)
        for name, value in zip(Row._fields, row, strict=True)
    }


def notes_of(notes: Mapping[str, str]) -> dict[str, Any]:
    """Return the parameters of notes: `name0`, `text0`, …"""
    found: dict[str, Any] = {}
    for number, (name, text) in enumerate(notes.items()):
        found |= {f"name{number}": name, f"text{number}": storable(text)}
    return found


def shows(shown: Shown | None) -> dict[str, Any]:
    """Return the parameters of what the live note shows from now on."""
    if shown is None:
        return {"shows": False, "note": None, "live": None}
    live = shown.live
    if shown.name is None and live is None:
        live = shown.text
    return {"shows": True, "note": shown.name, "live": None if live is None else storable(live)}


def storable(text: str) -> str:
    """Return a note as Postgres can hold it: without NUL, and without halves of characters."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def _row(text: bytes) -> Row:
    """Return the columns of one line."""
    found = lengths(text)
    assert found is not None, text[:80]
    at, head_size, body_size = found
    end = at + head_size
    head = orjson.loads(b"{%b}" % text[at:end])
    lane = head.get("lane", "").encode("utf-8", "surrogatepass")
    waypoint = head["kind"] == "waypoint"
    return Row(
        head["seq"],
        text[-33:-1].decode(),
        head["kind"],
        lane,
        head["waypoint"],
        head.get("base") if waypoint else None,
        head.get("full") if waypoint else None,
        end,
        body_size,
        text + b"}",
    )


def tail_of(row: Sequence[Any]) -> Tail:
    """Return the end of a journal from (id, seq, sum, epoch, rolled) of its run."""
    run, seq, sum_, epoch, rolled = row
    return Tail(seq, sum_, epoch, rolled, run)


def records_of(rows: Iterable[Sequence[Any]], where: str) -> Iterator[Record | Bad]:
    """Read records from rows of (seq, size of the body, head or line, what follows the body).

    Args:
        rows: in order.
        where: the run, for messages.
    """
    for seq, body_size, start, rest in rows:
        try:
            if rest is None:
                record = parse(start)
            else:
                found = lengths(start)
                if found is None:
                    raise Malformed("does not begin like a record")
                record = parse_head(start[found[0] :], rest, body_size)
        except Malformed as error:
            yield Bad(where, seq, len(start), complete=True, why=f"record {seq} {error}")
            continue
        if record.seq != seq:
            why = f"the row of record {seq} holds record {record.seq}"
            yield Bad(where, seq, len(start), complete=True, why=why)
            continue
        record.place = seq
        yield record


def known_as(tail: Tail | None) -> dict[str, Any]:
    """Return the parameters of the end that a writer knows."""
    if tail is None:
        return {"run": None, "known_seq": None, "known_sum": None}
    return {"run": tail.token, "known_seq": tail.seq, "known_sum": tail.sum}
