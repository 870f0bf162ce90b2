"""An entry on its way into the journal together with other records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from caravanserai_core import referring
from caravanserai_core.opening import writer
from caravanserai_core.records import Draft, Record, body_digest, now
from caravanserai_core.redact import redact_fields

if TYPE_CHECKING:
    from collections.abc import Sequence

    from caravanserai_core.patching import Op

_DATA: Final = b'"data":'


class Piece:
    """An entry that is to be written with others, in one append.

    Attributes:
        fields: what goes into its head, JSON values.
        lane: the lane it belongs to.
        seq: number of its record, once it is written; else 0.
    """

    __slots__ = ("_body", "_digest", "_referring", "_time", "fields", "lane", "seq")

    def __init__(self, fields: dict[str, Any], lane: str, data: bytes) -> None:
        """Make an entry.

        Args:
            fields: what goes into its head.
            lane: the lane it belongs to.
            data: its data, encoded.
        """
        self.fields = redact_fields(fields)
        self.lane = lane
        self.seq = 0
        self._body = body = _DATA + data
        self._referring: tuple[bytes, str] | None = None
        self._time = now()
        # The large digest is made here, before any lock is taken.
        self._digest = body_digest(body)

    def quiet(self) -> None:
        """Leave out the line for the live note: a waypoint right behind it tells the same."""
        self.fields.pop("say", None)

    def refer(self, ops: Sequence[Op], lane: str) -> None:
        """Look for what a waypoint holds as well, before any lock is taken; see `draft`.

        Args:
            ops: the patch of the waypoint.
            lane: that waypoint's.
        """
        self._referring = None
        data = referring.refer(self._body[len(_DATA) :], ops) if lane == self.lane else None
        if data is not None:
            body = _DATA + data
            self._referring = (body, body_digest(body))

    def draft(self, point: int | None = None) -> Draft:
        """Return the record before its place is known.

        Args:
            point: number of the waypoint that `refer` was told of, if that follows in the same
                append with that patch.
        """
        fields, body, digest = self.fields, self._body, self._digest
        if point is not None and self._referring is not None:
            body, digest = self._referring
            # A reader that does not know of it refuses the tag.
            fields = {**fields, "in": point, "tagged": True}
        return Draft(
            "entry",
            fields,
            by=writer(),
            lane=self.lane,
            body=body,
            digest=digest,
            time=self._time,
        )

    def record(self, seq: int, newest: int) -> Record:
        """Return the head of its record, without a body."""
        head = {**self.fields, "kind": "entry", "lane": self.lane, "waypoint": newest}
        return Record({**head, "seq": seq, "time": self._time}, None, "", None)
