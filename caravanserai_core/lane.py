"""The head of a lane, and how its next state is written: whole, or as a patch.

Small states are always written whole. A larger one is compared with the newest (`delta`) and
written as a patch: on the last full record, where little was replaced since and nothing else
happened; else on its parent. So that a chain of parents stays short, each 32nd patch repeats
what was replaced in the 31 before it and builds on the waypoint before those. When the patches
since the last full record outweigh it, the next one is full again, so any state is rebuilt from
a few dozen records and about twice its own size. What a state grew by is in its patches, and a
full record would only say it again: up to `GROWN` records it counts for as much as it adds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import orjson

from caravanserai_core import codec, delta, patching, reading

if TYPE_CHECKING:
    from caravanserai_core.records import Record
    from caravanserai_core.stores.base import Store

SMALL: Final = 4 * 1024
"""Bytes; a state up to this size is always written whole."""

UNSEEN_SMALL: Final = 64 * 1024
"""Bytes; up to here a process writes its first waypoint whole instead of reading the base."""

PATCH_CHARGE: Final = 512
"""Bytes that a patch on a chain costs at least: many tiny ones make loading slow."""

GROWN: Final = 512
"""Records of a chain; up to here patches may outweigh the full one by what the state grew."""

SKIP: Final = 32
"""Patches; one in so many builds on the waypoint that many before it."""


Texts: TypeAlias = "dict[int, tuple[str, bytes]]"
"""Long texts of a state by identity, with their JSON."""

_LONG: Final = 4 * 1024
"""Characters; encoding a shorter text again costs less than looking for it."""


def remembering(dumps: codec.Dumps, before: Texts, now: Texts) -> codec.Dumps:
    """Return `dumps` for parts of a state that does not encode a long text twice.

    A document that stays is the same object in each state, and a str never changes.

    Args:
        dumps: encodes a part.
        before: the long texts of the state before.
        now: takes those of this one.
    """
    now.clear()

    def encode(part: object, like: bytes = b"", /) -> bytes:
        if type(part) is not str or len(part) < _LONG:
            return dumps(part, like)
        found = before.get(id(part))
        data = found[1] if found is not None and found[0] is part else dumps(part, like)
        now[id(part)] = (part, data)
        return data

    return encode


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
        ops: its operations.
        base: the waypoint it builds on.
        chain: records between the full one and this, itself counted.
        weight: bytes charged since the full record, its own counted.
        joined: all that was replaced since the full record, if it holds just that.
        since: all that was replaced since the lane's anchor, if it only holds the last step;
            None: this waypoint becomes the anchor.
    """

    data: bytes
    ops: list[patching.Op]
    base: int
    chain: int
    weight: int
    joined: dict[str, bytes] | None
    since: dict[str, bytes] | None


class Prepared:
    """A state encoded for saving.

    Attributes:
        node: its shadow.
        tagged: whether it holds tags.
        shared: paths of the lists that references in it mean.
        texts: its long texts.
        size: its JSON bytes, to within punctuation.
        searched: version of the secrets that it was searched for; None: it was not.
        looked: what was to be done about likely secrets then; see `likely.policy`.
    """

    __slots__ = ("looked", "node", "searched", "shared", "size", "tagged", "texts")

    def __init__(self, node: delta.Shadow, *, tagged: bool, shared: tuple[str, ...] = ()) -> None:
        self.node = node
        self.tagged = tagged
        self.shared = shared
        self.size = delta.size(node)
        self.texts: Texts = {}
        self.searched: int | None = None
        self.looked: object = None

    def part(self, *keys: str) -> bytes | None:
        """Return the JSON of a member, where the state is kept by its members down to there."""
        node: delta.Shadow | None = self.node
        for key in keys:
            node = node.get(key) if isinstance(node, dict) else None
        return node if isinstance(node, bytes) else None


class Lane:
    """What a process knows of the head of a lane.

    Attributes:
        number: number of its newest waypoint.
        seq: that record's seq; 0 where release 0.2.0 wrote it.
        place: where the store holds it.
        sum: its sum, which no other record has.
        tagged: whether its state holds tags, once its shadow is known.
        time: when it was written, as its record says.
        schema: the schema of its state, likewise.
        shared: paths of the lists that references in its state mean, likewise.
        searched: version of the secrets that this state was searched for; None: it was not.
        looked: what was to be done about likely secrets then; see `likely.policy`.
    """

    __slots__ = (
        "_anchor",
        "_chain",
        "_full",
        "_joined",
        "_since",
        "_steps",
        "_weight",
        "looked",
        "number",
        "place",
        "schema",
        "searched",
        "seq",
        "shadow",
        "shared",
        "sum",
        "tagged",
        "texts",
        "time",
    )

    def __init__(self, number: int, seq: int, place: Any = None, sum_: str = "") -> None:
        self.number = number
        self.seq = seq
        self.place = place
        self.sum = sum_
        self.shadow: delta.Shadow | None = None
        self.texts: Texts = {}
        self.tagged = False
        self.time = ""
        self.schema = 1
        self.shared: tuple[str, ...] = ()
        self.searched: int | None = None
        self.looked: object = None
        self._full: Full | None = None
        self._chain = 0
        self._weight = 0
        # What was replaced since the full record; None: its patches form a chain.
        self._joined: dict[str, bytes] | None = {}
        # The waypoint that the next skipping patch builds on: (number, its chain); what was
        # replaced since, and in how many patches.
        self._anchor = (number, 0)
        self._since: dict[str, bytes] = {}
        self._steps = 0

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
        at: tuple[int, Any, str],
        state: tuple[delta.Shadow, int],
    ) -> Lane:
        """Return the head of a lane after a waypoint was written.

        Args:
            before: the head before it.
            patch: the patch that was written, or None for a full record.
            number: the waypoint.
            at: its seq, place and sum.
            state: the shadow of its state, and that state's size.
        """
        seq, place, _ = at
        lane = cls(number, *at)
        lane.shadow = state[0]
        if patch is None or before is None:
            lane._full = Full(seq, number, place, state[1])
        else:
            lane._full = before._full
            lane._chain, lane._weight, lane._joined = patch.chain, patch.weight, patch.joined
            lane._anchor = (number, patch.chain)
            if patch.since is not None:
                lane._anchor, lane._since = before._anchor, patch.since
                lane._steps = before._steps + 1
        return lane

    def cool(self) -> None:
        """Let go of the state; it is read again when it is needed."""
        if self._full is not None:
            self.shadow = None
            self.texts = {}

    def read_shadow(self, store: Store, run_id: str, legacy: Any) -> delta.Shadow | None:
        """Return the shadow of the newest state, read again where it is not in memory.

        Raises:
            JournalDamaged: it cannot be rebuilt.
        """
        if self.shadow is None and self.seq:
            chain = store.chain(run_id, self.number)
            self.shadow = delta.of_tree(reading.tree_of(chain, self.number, store, run_id))
            steps = reading.path(chain, self.number)
            self.tagged = any(record.head.get("tagged") for record in steps)
            self.shared = tuple(steps[-1].head.get("shared", ()))
            self._take_up(steps)
        elif self.shadow is None and legacy is not None:
            encoded = codec.encode(legacy.state)
            self.shadow, self.tagged = delta.opened(encoded.data), encoded.tagged
        return self.shadow

    def _take_up(self, path: list[Record]) -> None:
        """Take up the patches since the full record where their writer left off."""
        first, steps = path[0], path[1:]
        self._full = Full(first.seq, first.waypoint, first.place, len(first.body or b""))
        self._chain = len(steps)
        self._anchor = (self.number, self._chain)
        self._joined = {} if not steps else None
        if not steps:
            return
        # Patches that are not on the way are not read; all were about as long as these.
        sizes = [len(step.body or b"") for step in steps]
        most = max(sizes)
        aside = max(0, (self.number - first.waypoint) // 2 - len(steps))
        self._weight = sum(max(size, PATCH_CHARGE) for size in sizes)
        self._weight += aside * max(most, PATCH_CHARGE)
        if steps[0].head["base"] == first.waypoint and len(steps) == 1:
            patch: Any = codec.parse(steps[0].member("patch"))
            if all(op["op"] == "replace" for op in patch):
                self._joined = {op["path"]: orjson.dumps(op.get("value")) for op in patch}
                self._weight = most * (self.number - first.waypoint)

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
        return self._choose(ops, self._full, prepared.size, store.max_chain), kept

    def repeat(self, limit: int | None) -> Patch | None:
        """Make the patch of a waypoint whose state is the head's: empty, however small that is.

        Args:
            limit: most records that a reader may need for one state, or None.

        Returns:
            The patch; None where it is time for a full record, or none is known.
        """
        if self._full is None:
            return None
        patch = self._link([])
        # Whole states that are smaller than this many patches come at once or never.
        most = max(self._full.size, SKIP * PATCH_CHARGE)
        if patch.weight > most or (limit is not None and patch.chain >= limit):
            return None
        return patch

    def _choose(
        self, ops: list[patching.Op], full: Full, size: int, limit: int | None
    ) -> Patch | None:
        joined = patching.join(self._joined, ops) if self._joined is not None else None
        if joined is not None and patching.worth_joining(joined, ops):
            ops = patching.replacing(joined)
            data = patching.encode_ops(ops)
            patch = Patch(data, ops, full.waypoint, 1, self._weight + len(data), joined, None)
        else:
            patch = self._link(ops)
        most = full.size
        if patch.chain <= GROWN and len(patch.data) < size > full.size:
            # The full record and its patches are then at most twice the state.
            most = 2 * size - full.size
        if patch.weight > most or (limit is not None and patch.chain >= limit):
            return None
        return patch

    def _link(self, ops: list[patching.Op]) -> Patch:
        """Make the next patch of a chain: on the parent, or one that skips the last ones."""
        since = patching.join(self._since, ops)
        if since is not None and self._steps + 1 >= SKIP:
            ops = patching.replacing(since)
            base, chain, since = self._anchor[0], self._anchor[1] + 1, None
        else:
            base, chain = self.number, self._chain + 1
        data = patching.encode_ops(ops)
        weight = self._weight + max(len(data), PATCH_CHARGE)
        return Patch(data, ops, base, chain, weight, None, since)
