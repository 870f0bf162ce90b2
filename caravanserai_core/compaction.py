"""Writing a journal anew with less in it: the only way in which anything is removed from one.

What stays is sealed again, in its order, behind the end of the journal that it replaces: numbers
of records go on, those of waypoints stay. A waypoint that builds on what went is written by the
rule of its lane (`lane`), as if the kept states had been saved one after the other, so a thousand
of them take no more room than their content.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from caravanserai_core import codec, delta, patching, reading, survey
from caravanserai_core.errors import JournalDamaged, UsageError
from caravanserai_core.lane import Lane, Patch, Prepared
from caravanserai_core.notes import recorded
from caravanserai_core.opening import legacy_draft, writer
from caravanserai_core.origins import handed_origin
from caravanserai_core.quoting import one_line
from caravanserai_core.records import FORMAT, Draft, Malformed, Record
from caravanserai_core.secrets import refuse
from caravanserai_core.stores.base import SELF, Line, Sealed, Shown, Within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TypeVar

    from caravanserai_core.stores.base import Store, Tail

    T = TypeVar("T")

    Keep = Callable[[Record], bool | None]
    """Says of a waypoint or an entry whether it stays; None for an entry: as its waypoint does."""

    Chain = Callable[[int], list[Record]]
    """Gives the records that a waypoint is rebuilt from, the full one first."""

    Heads = dict[str, tuple[int, str]]
    """Number and time of the newest waypoint of each lane."""

_MOST_TRIES = 8

ANEW = {"open", "snapshot", "roll", "removed"}
"""Kinds that the new journal gets of its own."""

_PLACED = ("seq", "app", "kind", "waypoint", "lane", "time", "by", "prev", "body_sha256")
"""Members of a head that say where a record stands, or that a `Draft` makes."""


class Rewritten(NamedTuple):
    """A journal to be put in the place of another.

    Attributes:
        sealed: its lines.
        removed: how many waypoints it has no more.
        heads: the newest waypoint of each lane.
    """

    sealed: Sealed
    removed: int
    heads: Heads


class Opened(NamedTuple):
    """What the first record of the new journal says.

    Attributes:
        generation: how often the journal was replaced, counted from 1.
        run: sum of the first record that the run ever had, which tells it from any other; None
            where this is going to be the first.
        body: the body of the record, or None for that of the first one found.
    """

    generation: int
    run: str | None
    body: bytes | None = None


def identity(opening: Record) -> str:
    """Return what tells a run from another of its name, given any `open` record of it."""
    run = opening.head.get("run")
    return run if isinstance(run, str) else opening.sum


def generation(opening: Record) -> int:
    """Return how often the journal was replaced, counted from 1, given an `open` record of it."""
    found = opening.head.get("generation")
    return found if type(found) is int else 1


def rewrite(
    source: Store,
    run_id: str,
    keep: Keep,
    tail: Tail | None,
    opened: Opened,
    *,
    target: Store | None = None,
    items: Iterable[Record] | None = None,
    newest: int = 0,
    chain: Chain | None = None,
) -> Rewritten:
    """Seal what is to stay of a run as a journal of its own.

    Args:
        source: where the run lives.
        run_id: its name.
        keep: says what stays, in the order of the journal.
        tail: the end of the journal that is replaced; None for a new run.
        opened: what its first record says.
        target: where it will live, if elsewhere.
        items: the records of the run with their bodies; None: all of the journal.
        newest: the highest number of a waypoint that is known to have been given.
        chain: gives the records that a waypoint is rebuilt from; None: the store does.

    Raises:
        JournalDamaged: the journal is damaged somewhere.
    """
    first = tail.seq + 1 if tail is not None else 1
    work = _Rewrite(source, run_id, keep, first, target or source)
    work.newest = newest
    work.chain = chain or work.chain
    for record in survey.records(source, run_id, bodies=True) if items is None else items:
        work.take(record)
    return work.seal(tail, opened)


class Branch(NamedTuple):
    """What a copy is made of that is not all of a run.

    Attributes:
        items: the records it is made of, with their bodies.
        origin: what its first record says of where it comes from.
        carries: says of the head of a record that is no waypoint and no entry whether the copy
            gets it.
    """

    items: list[Record]
    origin: dict[str, Any]
    carries: Callable[[dict[str, Any]], bool]


_NOTES_AT_ONCE = 200


def unmoved(work: Callable[[], T]) -> T:
    """Do work that reads a journal more than once; again where it was rewritten in between.

    Raises:
        JournalDamaged: it does not fit together however often it is read.
    """
    for left in reversed(range(_MOST_TRIES)):
        try:
            return work()
        except Malformed as error:
            if not left:
                raise JournalDamaged(f"the journal does not fit together: {error}") from error
    raise AssertionError("not reached")


def copy_run(
    source: Store,
    run_id: str,
    target: Store,
    new_run_id: str,
    keep: Keep | None = None,
    *,
    branch: Branch | None = None,
) -> int:
    """Copy a run under another name, or into another store, all of it or nothing.

    Numbers, lanes, notes, times and metadata of its waypoints and entries stay as they are. Its
    first record says where it comes from (`origin`).

    Args:
        source: where the run lives.
        run_id: its name.
        target: where the copy will live.
        new_run_id: its name there.
        keep: says of each waypoint and entry whether it is copied; None: all.
        branch: makes it a run of its own, and no copy: it is made of these records, and the
            command that began the other one is not its own.

    Returns:
        How many waypoints were copied.

    Raises:
        RunNotFound: there is no such run.
        SecretFound: the new name holds a declared secret, or what another store would get does.
        UsageError: the target exists.
        JournalDamaged: the run is damaged somewhere; nothing was written.
    """
    refuse("the run_id", new_run_id)
    items = list(survey.records(source, run_id, bodies=True)) if branch is None else branch.items
    old = source.legacy(run_id)
    if not items and old is None:
        raise reading.not_found(source, run_id)
    first = reading.opening(items[0]) if items else None
    framework, goal = (first.framework, first.goal) if first is not None else (None, None)
    for record in items:
        if "note_sha256" in record.head:  # its note may name the run it belongs to
            text = recorded(record.head, new_run_id, framework, goal)
            record.head["note_sha256"] = hashlib.sha256(text.encode()).hexdigest()

    def seal(tail: Tail | None, _news: list[Record] | None) -> Sealed:
        if tail is not None or target.legacy(new_run_id) is not None:
            raise UsageError(
                f"the run {one_line(new_run_id)} exists already in {target.where(new_run_id)}. "
                "Nothing was copied."
            )
        origin = {"run_id": run_id} if branch is None else branch.origin
        body = _copied_opening(items, new_run_id, origin)
        work = _Rewrite(source, run_id, keep or _all, 1, target)
        work.carries = work.carries if branch is None else branch.carries
        for record in items:
            work.take(record)
        if not items and old is not None:
            work.add(legacy_draft(old), SELF, old.number)
        return work.seal(None, Opened(1, None, body)).sealed

    appended = target.replace(new_run_id, None, 1, seal)
    heads = survey.records(target, new_run_id, bodies=False)
    points = [record for record in heads if record.kind == "waypoint"]
    # The live note follows the main lane: its notes come last.
    points.sort(key=lambda point: (point.lane == "", point.waypoint))
    for begin in range(0, len(points), _NOTES_AT_ONCE):
        notes = {
            f"waypoint-{record.waypoint}.md": recorded(record.head, new_run_id, framework, goal)
            for record in points[begin : begin + _NOTES_AT_ONCE]
        }
        name, text = list(notes.items())[-1]
        target.put_notes(new_run_id, appended.tail, notes, Shown(name, text, None))
    return len(points)


def _all(_record: Record) -> bool | None:
    return None


def _copied_opening(items: list[Record], new_run_id: str, origin: dict[str, Any]) -> bytes:
    data: Any = next((record.data() for record in items if record.kind == "open"), {})
    # Not decoded: the command may hold references to secrets that this process does not have.
    news = codec.encode({"run_id": new_run_id, "origin": origin}).data
    before = handed_origin(data.get("origin"))
    data = {**data, **orjson.loads(news)}
    if before is not None:
        # What it was handed comes along, so the line that begins it is still the same.
        data["origin"]["before"] = before
    if "waypoint" in origin:
        data.pop("argv", None)  # that command goes on with the other run
    return b'"data":' + orjson.dumps(data)


class _Item(NamedTuple):
    """A record of the new journal, before it is sealed."""

    draft: Draft
    loc: Any
    waypoint: int


class _Copied:
    """A lane on its way from the old journal to the new one.

    Attributes:
        whole: its newest full record and all since are kept, so patches are copied as they are.
        full: line and size of the newest full record in the new journal.
        rule: the head of the lane as a writer of the new journal knows it; None: a full one comes.
        newest: line of its newest waypoint in the new journal, or None.
        head: number and time of that waypoint.
        stays: the newest waypoint of the old journal stays; so do its entries.
        used: questions whose answers were used by the waypoints since the newest that stays.
    """

    def __init__(self) -> None:
        self.whole = False
        self.full = 0
        self.rule: Lane | None = None
        self.newest: int | None = None
        self.head: tuple[int, str] = (0, "")
        self.stays = True
        self.used: list[str] = []
        # By number, since the last full record: whether the state holds tags, and the records
        # that the copy is rebuilt from.
        self.tagged: dict[int, bool] = {}
        self.chain: dict[int, int] = {}
        # The state of a waypoint of the old journal, while states are written anew.
        self._tree: tuple[int, Any] | None = None

    def tree(self, number: int, chain: Chain) -> Any:
        """Return the state of the waypoint at hand as its JSON tree; the next one changes it."""
        if self._tree is None or self._tree[0] != number:
            self._tree = (number, reading.rebuild(chain(number), number))
        return self._tree[1]

    def step(self, record: Record) -> None:
        """Follow the state of the old journal to its next waypoint, where that is cheap."""
        if self._tree is None or record.full:
            self._tree = None
            return
        number, tree = self._tree
        patch: Any = codec.parse(record.member("patch"))
        # Replacements on an older base repeat what was replaced since; see `verify`.
        on_it = record.head["base"] == number or all(op["op"] == "replace" for op in patch)
        self._tree = (record.waypoint, patching.apply(tree, patch)) if on_it else None


class _Rewrite:
    """One pass over a journal.

    Attributes:
        newest: highest number of a waypoint that was ever given.
        removed: how many waypoints went.
        chain: gives the records that a waypoint is rebuilt from.
        carries: says of the head of a record of another kind whether the new journal gets it.
    """

    def __init__(self, source: Store, run_id: str, keep: Keep, first: int, target: Store) -> None:
        self.newest = 0
        self.removed = 0
        self.chain: Chain = lambda number: source.chain(run_id, number)
        self.carries: Callable[[dict[str, Any]], bool] = lambda _head: True
        self._run_id = run_id
        self._keep = keep
        self._target = target
        # What stands in this store already may be written in it again.
        self._here = target is source
        # The first two lines are `open` and `snapshot`.
        self._first = first
        self._items: list[_Item] = []
        self._last = 0
        self._lanes: dict[str, _Copied] = {}
        self._carried: list[Any] = []
        self._opening: bytes | None = None
        self._seen = 0

    def take(self, record: Record) -> None:
        """Take the next record of the old journal over, or leave it."""
        self._seen += 1
        self.newest = max(self.newest, record.waypoint)
        if record.kind == "open" and self._opening is None:
            self._opening = record.body
        elif record.kind == "snapshot" and self._seen == 2:
            # What it carries stands nowhere else; later ones repeat what stands before them.
            carried = (record.data() or {}).get("carried", [])
            self._carried = [item for item in carried if self.carries(item["head"])]
        if record.kind in ANEW:
            return
        lane = self._lanes.setdefault(record.lane, _Copied())
        if record.kind == "waypoint":
            self._waypoint(record, lane)
            return
        if record.kind == "entry":
            wanted = self._keep(record)
            if wanted is False or (wanted is None and not lane.stays):
                return
        elif not self.carries(record.head):
            return
        loc = None if lane.newest is None else Within(lane.newest)
        self.add(_draft(record, {}, here=self._here), loc, self._last)

    def add(self, draft: Draft, loc: Any, waypoint: int) -> int:
        """Add a record to the new journal; returns its line."""
        self._items.append(_Item(draft, loc, waypoint))
        return len(self._items) + 1

    def _waypoint(self, record: Record, lane: _Copied) -> None:
        number, base = record.waypoint, record.head.get("base")
        lane.step(record)
        if record.full:
            lane.tagged.clear()
            lane.chain.clear()
        tagged = bool(record.head.get("tagged")) or lane.tagged.get(base or 0, False)
        lane.tagged[number] = tagged
        lane.chain[number] = 0 if record.full else lane.chain.get(base or 0, 0) + 1
        lane.stays = self._keep(record) is not False
        lane.whole = lane.stays and (record.full or lane.whole)
        # An answer that a waypoint used stays used where that waypoint goes.
        lane.used += record.head.get("used", ())
        if not lane.stays:
            self.removed += 1
            return
        if lane.used:
            record.head["used"], lane.used = lane.used, []
        self._last = number
        limit = self._target.max_chain
        if limit is not None and lane.chain[number] > limit:
            lane.whole = False
        lane.newest = self._copy(record, lane) if lane.whole else self._anew(record, lane, tagged)
        lane.head = (number, record.head["time"])

    def _copy(self, record: Record, lane: _Copied) -> int:
        """Take a waypoint over as it is: all that it builds on is there."""
        lane.rule = None
        if record.full:
            lane.full = self.add(_draft(record, {}, here=self._here), SELF, record.waypoint)
            return lane.full
        fields = {"base": record.head["base"], "full": self._first + lane.full}
        return self.add(_draft(record, fields, here=self._here), Within(lane.full), record.waypoint)

    def _anew(self, record: Record, lane: _Copied, tagged: bool) -> int:
        """Write a waypoint by the rule of its lane: what it was built on is not there."""
        number = record.waypoint
        tree = lane.tree(number, self.chain)
        prepared = Prepared(delta.of_tree(tree), tagged=tagged)
        patch: Patch | None = None
        kept = prepared.node
        if lane.rule is None and lane.newest is not None and self._target.max_chain is None:
            lane.rule = self._taken_up(lane, lane.newest)
        if lane.rule is not None:
            patch, kept = lane.rule.compare(prepared, self._target, self._run_id, None)
        fields: dict[str, Any] = {"tagged": True} if tagged else {}
        if patch is None:
            body = b'"state":' + delta.joined(prepared.node)
            line = lane.full = self.add(_draft(record, fields, body, here=self._here), SELF, number)
        else:
            fields |= {"base": patch.base, "full": self._first + lane.full}
            body = b'"patch":' + patch.data
            draft = _draft(record, fields, body, here=self._here)
            line = self.add(draft, Within(lane.full), number)
        at = (self._first + line, Within(line), "")
        lane.rule = Lane.written(lane.rule, patch, number, at, (kept, prepared.size))
        return line

    def _taken_up(self, lane: _Copied, line: int) -> Lane:
        """Return the head of a lane whose newest waypoint was copied as it is."""
        number = lane.head[0]
        state = delta.of_tree(reading.rebuild(self.chain(number), number))
        at = (self._first + line, Within(line), "")
        return Lane.written(None, None, number, at, (state, delta.size(state)))

    def seal(self, tail: Tail | None, opened: Opened) -> Rewritten:
        """Seal all that was taken over."""
        if self.newest > self._last:
            # Numbers are not given twice, also where the newest ones are gone.
            main = self._lanes.get("")
            loc = Within(main.newest) if main is not None and main.newest is not None else None
            self.add(Draft("removed", {}, by=writer()), loc, self.newest)
        epoch = tail.epoch if tail is not None else 1
        head: dict[str, Any] = {"format": FORMAT, "generation": opened.generation, "epoch": epoch}
        if opened.run is not None:
            head["run"] = opened.run
        prev = ""
        if tail is not None:
            prev = tail.sum
            head["anchor"] = {"seq": tail.seq, "sum": tail.sum, "removed": self.removed}
        body = opened.body or self._opening or b""
        heads = {name: lane for name, lane in self._lanes.items() if lane.newest is not None}
        places = {
            name: [lane.head[0], self._first + (lane.newest or 0)] for name, lane in heads.items()
        }
        data = codec.encode({"lanes": places, "carried": self._carried}, copied=True).data
        carried = Draft("snapshot", {}, by=writer(), body=b'"data":' + data, copied=self._here)
        opening = Draft("open", head, by=writer(), body=body, copied=self._here)
        items = [
            _Item(opening, None, 0),
            _Item(carried, None, 0),
            *self._items,
        ]
        self._items.clear()
        lines: list[Line] = []
        for line, (draft, loc, waypoint) in enumerate(items):
            # The two first are one append. All others stand alone: the file comes as a whole.
            first, count = (self._first, 2) if line < 2 else (self._first + line, 1)
            text, prev = draft.seal(
                seq=self._first + line, first=first, count=count, waypoint=waypoint, prev=prev
            )
            lines.append(Line(text, loc))
            items[line] = _DONE
        sealed = Sealed(
            lines,
            self._first + len(lines) - 1,
            prev,
            epoch,
            rolled=False,
            shown=None,
        )
        return Rewritten(sealed, self.removed, {name: lane.head for name, lane in heads.items()})


def _draft(
    record: Record, fields: dict[str, Any], body: bytes | None = None, *, here: bool
) -> Draft:
    """Draft a record of the old journal for the new one.

    Args:
        record: the record, with its body.
        fields: members of its head that are others now; of `base` and `full` these alone stand.
        body: another body, or None for its own.
        here: it stays in the same store; in another one it may hold no declared secret.
    """
    head = {
        key: value
        for key, value in record.head.items()
        if key not in _PLACED and key not in ("base", "full")
    }
    return Draft(
        record.kind,
        {**head, **fields},
        by=record.by,
        lane=record.lane,
        body=record.body or b"" if body is None else body,
        time=record.head["time"],
        copied=here,
    )


_DONE = _Item(Draft("roll", {}, by=""), None, 0)
"""Stands in for a record that is sealed, so that its body is let go."""
