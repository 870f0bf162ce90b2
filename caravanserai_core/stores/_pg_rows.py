"""From sealed lines to rows of a Postgres store, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from caravanserai_core.records import Malformed, Record, lengths, parse, parse_head
from caravanserai_core.stores.base import Bad, Tail

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from caravanserai_core.stores.base import Sealed, Shown


def params_of(sealed: Sealed) -> dict[str, Any]:
    """Return the parameters of an append: the end it leads to, and a column of each kind."""
    rows = [_row(line.text) for line in sealed.lines]
    columns = [list(column) for column in zip(*rows, strict=True)]
    names = "seqs sums kinds lanes waypoints bases fulls heads bodies lines".split()
    opened = [row[0] for row in rows if row[2] == "open"]
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
        **dict(zip(names, columns, strict=True)),
        **shows(shown),
        "names": list(notes),
        "texts": [storable(text) for text in notes.values()],
    }


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


def _row(text: bytes) -> tuple[Any, ...]:
    """Return the columns of one line."""
    found = lengths(text)
    assert found is not None, text[:80]
    at, head_size, body_size = found
    end = at + head_size
    head = orjson.loads(b"{%b}" % text[at:end])
    lane = head.get("lane", "").encode("utf-8", "surrogatepass")
    waypoint = head["kind"] == "waypoint"
    return (
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
        record.place = seq
        yield record
