"""What was recorded of a run's steps and questions: results to return, answers to give.

It is read from the last segment the first time it is asked for; a segment's snapshot holds what
is still alive of the earlier ones. `pending` is the small part of it that notes need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from caravanserai_core import survey
from caravanserai_core.pending import named
from caravanserai_core.records import Record

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Self

    from caravanserai_core.stores.base import Store

MARKS = {"effect", "question", "answer", "withdrawn"}
"""The kinds of records that it is made from."""

_CLOSED = 50
"""Closed questions that a new segment still knows, to say who answered them."""
_COST = 96
"""Bytes that a carried record costs beside its head and body, roughly."""

Name = tuple[str, str]


class Effect:
    """A step under `once`.

    Attributes:
        records: what counts of it: its end, or its beginning and what is known since.
    """

    __slots__ = ("records",)

    def __init__(self, record: Record) -> None:
        self.records = [record]

    @property
    def head(self) -> dict[str, Any]:
        """The head of the newest record."""
        return self.records[-1].head

    @property
    def what(self) -> str:
        """What that says: started, uncertain, unrecorded, result, error or paused."""
        return str(self.head.get("what"))

    @property
    def attempt(self) -> int:
        """Number of the newest attempt, from 1."""
        found = self.head.get("attempt")
        return found if type(found) is int else 0


class Question:
    """A question, and what became of it.

    Attributes:
        record: what was asked.
        state: open, answered, spent (a waypoint used the answer) or withdrawn.
        answer: the record of its answer, or None.
    """

    __slots__ = ("answer", "record", "state")

    def __init__(self, record: Record) -> None:
        self.record = record
        self.state = "open"
        self.answer: Record | None = None

    @property
    def id(self) -> str:
        """Its name in the run."""
        return str(self.record.head.get("question"))


class Asking(NamedTuple):
    """What tells a question from others: where it is asked, and its key or text."""

    lane: str
    key: str


class Ledger:
    """The steps and questions of a run.

    Attributes:
        seq: number of the last record taken in.
        passes: how often the run was begun afresh.
        effects: the steps of this pass, by label and digest of the key.
        questions: those that are known, by their id.
        asked: id of the newest question of each kind that may still be answered or used.
        last: number of the newest question.
        size: bytes that a new segment has to carry, roughly.
        whole: nothing that belongs to it is without its body.
    """

    def __init__(self) -> None:
        self.seq = 0
        self.passes = 0
        self.effects: dict[Name, Effect] = {}
        self.questions: dict[str, Question] = {}
        self.asked: dict[Asking, str] = {}
        self.last = 0
        self.size = 0
        self.whole = True
        self._fresh: Record | None = None

    @classmethod
    def read(cls, store: Store, run_id: str, start: Any) -> Self:
        """Read it.

        Args:
            store: where the run lives.
            run_id: its name.
            start: place of the `open` record of its last segment; None: from the beginning.
        """
        made = cls()
        for record in survey.records(store, run_id, bodies=True, start=start):
            if record.kind == "snapshot":
                made = cls()  # what stands before is in it
                made._restore(record)
            elif record.kind in MARKS or record.kind in ("waypoint", "finish"):
                made.take(record)
        made.whole = True
        return made

    def _restore(self, snapshot: Record) -> None:
        """Begin with what a segment carries."""
        for item in (snapshot.data() or {}).get("carried", []):
            head = item.get("head", {})
            if head.get("kind") in MARKS:
                self._take(Record(head, str(item.get("body", "")).encode(), "", None))
        self.seq = snapshot.seq

    def take(self, record: Record) -> None:
        """Note what a record means, once."""
        if record.seq <= self.seq:
            return
        self.seq = record.seq
        self._take(record)

    def _take(self, record: Record) -> None:
        kind = record.kind
        if kind == "effect":
            self._take_effect(record)
        elif kind == "question":
            self._take_question(record)
        elif kind == "answer":
            self._take_answer(record)
        elif kind == "withdrawn":
            question = self.questions.get(str(record.head.get("question")))
            if question is not None:
                self._close(question)
        elif kind == "waypoint" and record.head.get("used"):
            self._spend(record.head["used"])
        elif kind == "finish" and record.head.get("outcome") == "finished":
            for question in self.questions.values():
                self._close(question)

    def _take_effect(self, record: Record) -> None:
        what = record.head.get("what")
        if what == "fresh":
            self._begin_afresh(record)
            return
        name = named(record.head)
        known = self.effects.get(name)
        if record.body is None and what == "result":
            self.whole = False
        self.size += _cost(record)
        if known is not None and what in ("uncertain", "unrecorded"):
            known.records.append(record)
        elif known is not None:
            self.size -= sum(map(_cost, known.records))
            known.records[:] = [record]
        else:
            self.effects[name] = Effect(record)
        if what not in ("uncertain", "unrecorded"):
            for question in self.questions.values():
                if question.record.head.get("about") == list(name):
                    self._close(question)

    def _begin_afresh(self, record: Record) -> None:
        passes = record.head.get("pass")
        self.passes = passes if type(passes) is int else self.passes + 1
        self.effects.clear()
        for question in self.questions.values():
            self._close(question)
        self.asked.clear()
        self.size = sum(_cost(q.record) for q in self.questions.values())
        self._fresh = record

    def _take_question(self, record: Record) -> None:
        if record.body is None:
            self.whole = False
        before = self.questions.get(str(record.head.get("instead_of")))
        if before is not None:
            self._close(before)
        question = Question(record)
        number = question.id.removeprefix("q")
        self.last = max(self.last, int(number) if number.isdecimal() else 0)
        self.questions[question.id] = question
        self.size += _cost(record)
        closed = record.head.get("closed")
        if closed in ("spent", "withdrawn"):
            question.state = closed
        else:
            self.asked[asking(record)] = question.id

    def _take_answer(self, record: Record) -> None:
        if record.body is None:
            self.whole = False
        question = self.questions.get(str(record.head.get("question")))
        if question is None or question.answer is not None:
            return
        question.answer = record
        self.size += _cost(record)
        if question.state == "open":
            question.state = "answered"

    def _spend(self, used: object) -> None:
        """Answers that were given out before a waypoint are used: the same is a new question."""
        for name in used if isinstance(used, list) else ():
            question = self.questions.get(str(name))
            if question is not None and question.state == "answered":
                self._close(question)

    def _close(self, question: Question) -> None:
        """Take a question back; an answer that it had stays known."""
        if question.state in ("open", "answered"):
            question.state = "withdrawn" if question.answer is None else "spent"
        where = asking(question.record)
        if self.asked.get(where) == question.id:
            del self.asked[where]

    @property
    def open(self) -> list[Question]:
        """The questions that wait for an answer, oldest first."""
        return [question for question in self.questions.values() if question.state == "open"]

    def find(self, where: Asking) -> Question | None:
        """Return the question that may still be answered, or whose answer may be used."""
        found = self.asked.get(where)
        return None if found is None else self.questions[found]

    def unused(self, names: Iterable[str]) -> list[str]:
        """Return those of some questions whose answers no waypoint has used yet, sorted."""
        known = self.questions
        return sorted(n for n in list(names) if n in known and known[n].state == "answered")

    @property
    def empty(self) -> bool:
        """Whether there is nothing in it that a fresh pass would have to leave behind."""
        return not self.effects and not self.asked

    def carried(self) -> list[dict[str, Any]]:
        """Return what a new segment has to know, for its snapshot."""
        closed = [q for q in self.questions.values() if q.state in ("spent", "withdrawn")]
        for question in closed[:-_CLOSED]:
            del self.questions[question.id]
        first = [self._fresh] if self._fresh is not None else []
        effects = [record for effect in self.effects.values() for record in effect.records]
        items = [_item(record) for record in (*first, *effects)]
        for question in self.questions.values():
            items.append(_item(question.record, closed=question.state))
            if question.answer is not None:
                items.append(_item(question.answer))
        return items


def asking(record: Record) -> Asking:
    """Return what tells a question from others, given its record."""
    return Asking(record.lane, str(record.head.get("key", "")))


def _cost(record: Record) -> int:
    return _COST + 200 + len(record.body or b"")


def _item(record: Record, closed: str = "") -> dict[str, Any]:
    head = record.head
    if closed in ("spent", "withdrawn"):
        head = {**head, "closed": closed}
    return {"head": head, "body": (record.body or b"").decode()}
