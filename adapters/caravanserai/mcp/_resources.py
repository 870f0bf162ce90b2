"""Notes as resources: `caravanserai://runs/RUN/latest`, `caravanserai://runs/RUN/waypoints/3`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

from caravanserai.mcp._text import clean, framed, page
from caravanserai.mcp._tools import about
from caravanserai_core import listing, lookup, reading, telling
from caravanserai_core.errors import UsageError
from caravanserai_core.quoting import one_line, quoted

if TYPE_CHECKING:
    from caravanserai_core.stores import Store

__all__ = ["listed", "read", "templates"]

MIME: Final = "text/markdown"
_ROOT: Final = "caravanserai://runs/"
_URI: Final = re.compile(r"caravanserai://runs/([^/?#]+)/(?:latest|waypoints/([1-9][0-9]{0,8}))")
_LISTED: Final = 50


def listed(store: Store) -> list[dict[str, Any]]:
    """Return the latest notes of the runs that were written last."""
    found = []
    # The path of a URI cannot hold the names . and .., whatever they are written as.
    runs = [i for i in listing.runs(store) if not i.error and i.run_id not in (".", "..")]
    for info in runs[:_LISTED]:
        told = f"{listing.spoken(info)}, waypoint {info.waypoints}, {listing.age(info.updated)}"
        name = clean(one_line(info.run_id, 200))
        found.append(
            {
                "uri": uri_of(info.run_id),
                "name": name,
                "title": f"Note of run {name}",
                "description": told,
                "mimeType": MIME,
            }
        )
    return found


def templates() -> list[dict[str, Any]]:
    """Return the forms of all resources."""
    latest = {
        "uriTemplate": f"{_ROOT}{{run}}/latest",
        "name": "live note",
        "title": "How a run stands now",
        "description": "The newest note of a run and what began since. `run`: its exact name, "
        "percent-encoded.",
        "mimeType": MIME,
    }
    waypoint = {
        "uriTemplate": f"{_ROOT}{{run}}/waypoints/{{n}}",
        "name": "note of a waypoint",
        "title": "How a run stood at a waypoint",
        "description": "The note of waypoint number `n` of a run.",
        "mimeType": MIME,
    }
    return [latest, waypoint]


def uri_of(run_id: str) -> str:
    """Return the address of a run's live note."""
    return f"{_ROOT}{quote(run_id, safe='', errors='surrogatepass')}/latest"


def read(store: Store, uri: str) -> str:
    """Return the text of a resource.

    Raises:
        UsageError: it is none of ours.
        CaravanseraiError: there is no such run or waypoint, or it cannot be read.
    """
    match = _URI.fullmatch(uri)
    try:
        run_id = unquote(match[1], errors="surrogatepass") if match else ""
    except UnicodeDecodeError:
        run_id = ""
    if match is None or not run_id:
        raise UsageError(
            f"no resource {quoted(uri)}: they are {_ROOT}RUN/latest and "
            f"{_ROOT}RUN/waypoints/N, RUN percent-encoded"
        )
    if not lookup.exists(store, run_id):
        raise reading.not_found(store, run_id)
    at = int(match[2]) if match[2] else None
    trail = lookup.trail(store, run_id)
    note = telling.note_text(store, run_id, at, trail)
    shown, more = page(note, 0, "the tool read_note gives what follows with offset={}.")
    which = "live note" if at is None else f"note of waypoint {at}"
    return framed(f"The {which} of {about(store, run_id, trail)}{more}", shown)
