"""An entry on its way into the journal together with other records."""

from __future__ import annotations

from typing import Any

from caravanserai_core.opening import writer
from caravanserai_core.records import Draft, Record, body_digest, now
from caravanserai_core.redact import redact_fields


class Piece:
    """An entry that is to be written with others, in one append.

    Attributes:
        fields: what goes into its head, JSON values.
        lane: the lane it belongs to.
        seq: number of its record, once it is written; else 0.
    """

    __slots__ = ("_body", "_digest", "_time", "fields", "lane", "seq")

    def __init__(self, fields: dict[str, Any], lane: str, body: bytes) -> None:
        self.fields = redact_fields(fields)
        self.lane = lane
        self.seq = 0
        self._body = body
        self._time = now()
        # The large digest is made here, before any lock is taken.
        self._digest = body_digest(body)

    def quiet(self) -> None:
        """Leave out the line for the live note: a waypoint right behind it tells the same."""
        self.fields.pop("say", None)

    def draft(self) -> Draft:
        """Return the record before its place is known."""
        return Draft(
            "entry",
            self.fields,
            by=writer(),
            lane=self.lane,
            body=self._body,
            digest=self._digest,
            time=self._time,
        )

    def record(self, seq: int, newest: int) -> Record:
        """Return the head of its record, without a body."""
        head = {**self.fields, "kind": "entry", "lane": self.lane, "waypoint": newest}
        return Record({**head, "seq": seq, "time": self._time}, None, "", None)
