"""The head of a lane, and how its next state is written: whole, or as a patch.

Small states are always written whole. A larger one is compared with the newest (`delta`) and
written as a patch on the last full record where all that happened since are replacements, else
as a patch on its parent. When the patches since the last full record outweigh it, the next one
is full again, so any state is rebuilt from about twice its own size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from caravanserai_core import codec, delta, reading

if TYPE_CHECKING:
    from caravanserai_core.records import Record
    from caravanserai_core.stores.base import Store

SMALL: Final = 4 * 1024
"""Bytes; a state up to this size is always written whole."""

UNSEEN_SMALL: Final = 64 * 1024
"""Bytes; up to here a process writes its first waypoint whole instead of reading the base."""

PATCH_CHARGE: Final = 512
"""Bytes that a patch on a chain costs at least: many tiny ones make loading slow."""


class Full(NamedTuple):
    """The full record that a lane's patches build on.

    Attributes:
        seq: its seq.
        waypoint: its waypoint number.
        place: where the store holds it.
        size: bytes of its state.
    """

    seq: int
    waypoint: int
    place: Any
    size: int


class Patch(NamedTuple):
    """A patch about to be written.

    Attributes:
        data: its JSON.
        base: the waypoint it builds on.
        chain: records between the full one and this, itself counted.
        weight: bytes charged since the full record, its own counted.
        joined: all that was replaced since the full record, if it holds just that.
    """

    data: bytes
    base: int
    chain: int
    weight: int
    joined: dict[str, bytes] | None


class Prepared:
    """A state encoded for saving.

    Attributes:
        node: its shadow.
        tagged: whether it holds tags.
        size: its JSON bytes, to within punctuation.
    """

    __slots__ = ("node", "size", "tagged")

    def __init__(self, node: delta.Shadow, *, tagged: bool) -> None:
        self.node = node
        self.tagged = tagged
        self.size = delta.size(node)


class Lane:
    """What a process knows of the head of a lane.

    Attributes:
        number: number of its newest waypoint.
        seq: that record's seq; 0 where release 0.2.0 wrote it.
        place: where the store holds it.
    """

    __slots__ = ("_chain", "_full", "_joined", "_weight", "number", "place", "seq", "shadow")

    def __init__(self, number: int, seq: int, place: Any = None) -> None:
        self.number = number
        self.seq = seq
        self.place = place
        self.shadow: delta.Shadow | None = None
        self._full: Full | None = None
        self._chain = 0
        self._weight = 0
        # What was replaced since the full record; None: its patches form a chain.
        self._joined: dict[str, bytes] | None = {}

    @property
    def full(self) -> Full | None:
        """The full record its patches build on, where it is known."""
        return self._full

    @classmethod
    def written(
        cls,
        before: Lane | None,
        patch: Patch | None,
        number: int,
        seq: int,
        place: Any,
        state: tuple[delta.Shadow, int],
    ) -> Lane:
        """Return the head of a lane after a waypoint was written.

        Args:
            before: the head before it.
            patch: the patch that was written, or None for a full record.
            number: the waypoint.
            seq: its seq.
            place: its place.
            state: the shadow of its state, and that state's size.
        """
        lane = cls(number, seq, place)
        lane.shadow = state[0]
        if patch is None or before is None:
            lane._full = Full(seq, number, place, state[1])
        else:
            lane._full = before._full
            lane._chain, lane._weight, lane._joined = patch.chain, patch.weight, patch.joined
        return lane

    def read_shadow(self, store: Store, run_id: str, legacy: Any) -> delta.Shadow | None:
        """Return the shadow of the newest state, read again where it is not in memory.

        Raises:
            JournalDamaged: it cannot be rebuilt.
        """
        if self.shadow is None and self.seq:
            chain = store.chain(run_id, self.number)
            self.shadow = delta.of_tree(reading.tree_of(chain, self.number, store, run_id))
            self._take_up([r for r in chain if r.kind == "waypoint"])
        elif self.shadow is None and legacy is not None:
            self.shadow = delta.opened(codec.encode(legacy.state).data)
        return self.shadow

    def _take_up(self, chain: list[Record]) -> None:
        """Take up the patches since the full record where their writer left off."""
        first, steps = chain[0], chain[1:]
        self._full = Full(first.seq, first.waypoint, first.place, len(first.body or b""))
        self._chain = len(steps)
        self._weight = sum(max(len(r.body or b""), PATCH_CHARGE) for r in steps)
        if len(steps) == 1 and steps[0].head["base"] == first.waypoint:
            patch: Any = codec.parse(steps[0].member("patch"))
            # Earlier patches of this kind are not read; all were about as long as this one.
            self._weight = len(steps[0].body or b"") * (self.number - first.waypoint)
            joined = {op["path"]: orjson.dumps(op.get("value")) for op in patch}
            self._joined = joined if all(op["op"] == "replace" for op in patch) else None
        elif steps:
            self._joined = None

    def compare(
        self, prepared: Prepared, store: Store, run_id: str, legacy: Any
    ) -> tuple[Patch | None, delta.Shadow]:
        """Decide how a state is written.

        Returns:
            The patch, or None where it is written whole; the shadow to keep for the next time.
        """
        unseen = self.shadow is None and prepared.size <= UNSEEN_SMALL
        if prepared.size <= SMALL or unseen:
            return None, prepared.node
        before = self.read_shadow(store, run_id, legacy)
        if before is None or self._full is None:
            return None, prepared.node
        ops, kept = delta.diff(before, prepared.node)
        return self._choose(ops, self._full, store.max_chain), kept

    def _choose(self, ops: list[delta.Op], full: Full, limit: int | None) -> Patch | None:
        joined = delta.join(self._joined, ops) if self._joined is not None else None
        if joined is not None:
            data = delta.encode_ops([delta.Op("replace", p, v) for p, v in joined.items()])
            patch = Patch(data, full.waypoint, 1, self._weight + len(data), joined)
        else:
            data = delta.encode_ops(ops)
            weight = self._weight + max(len(data), PATCH_CHARGE)
            patch = Patch(data, self.number, self._chain + 1, weight, None)
        if patch.weight > full.size or (limit is not None and patch.chain >= limit):
            return None
        return patch
