"""An answer of a `Command` that comes too late: it is refused before any node could get it.

LangGraph (1.2.24) keeps the answer of a `Command` in its memory, and gives it to the next
`interrupt` that lacks one: where the question has an answer from elsewhere, to one that nobody was
asked. A saver is not told of a `Command`. But it is looked at while the first tasks are prepared,
and what their graph has in hand stands there.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from caravanserai.langgraph._asked import ANSWERED, is_null, meta_of
from caravanserai.langgraph._invocations import NULL_TASK
from caravanserai_core import codec
from caravanserai_core.errors import AlreadyAnswered
from caravanserai_core.questions import value_of
from caravanserai_core.quoting import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from caravanserai_core.ledger import Ledger, Question


class Standing(NamedTuple):
    """What a thread was answered when its graph was loaded, or since.

    Attributes:
        run_id: its run.
        opened: its open questions.
        given: those that are answered, and the answer is not used up.
    """

    run_id: str
    opened: tuple[Question, ...]
    given: tuple[Question, ...]

    @classmethod
    def of(cls, run_id: str, ledger: Ledger) -> Standing:
        """Return what stands in a ledger; questions of other kinds than interrupts do not count."""
        asked = [question for question in ledger.questions.values() if meta_of(question)]
        opened = tuple(q for q in asked if q.state == "open")
        return cls(run_id, opened, tuple(q for q in asked if q.state == "answered"))

    def refuse(self, value: Any) -> None:
        """Refuse an answer that names no question, where none is open.

        Raises:
            AlreadyAnswered: somebody was first, with another answer or from elsewhere.
        """
        if self.opened or not self.given:
            return
        last = max(self.given, key=_answered_at)
        if is_null(last) and _same(last, value):
            return  # the same line again, after a crash
        raise self._late(last)

    def refuse_named(self, answers: Mapping[str, Any]) -> None:
        """Refuse answers by the ids of interrupts, where one has another answer.

        Raises:
            AlreadyAnswered: it has.
        """
        for question in self.given:
            name = meta_of(question)["interrupt"]
            if name in answers and not _same(question, answers[name]):
                raise self._late(question)

    def _late(self, question: Question) -> AlreadyAnswered:
        head = question.answer.head if question.answer is not None else {}
        who, time = str(head.get("who", "")), str(head.get("time", ""))
        return AlreadyAnswered(
            f"{question.id} of run {one_line(self.run_id)} was answered by {one_line(who, 60)} at "
            f"{time[:19]}+00:00. The first answer counts and this one was not recorded: go on with "
            "invoke(None).",
            question=question.id,
            by=who,
            time=time,
        )


class Late:
    """What an invocation refuses.

    Args:
        standing: what was answered when it loaded its checkpoint.
        handed: the answers of no task that it was given with it.
        names: the ids that interrupts were asked under, by those they have now.
    """

    def __init__(self, standing: Standing, handed: Iterable[Any], names: Mapping[str, str]) -> None:
        self._standing = standing
        self._handed = [codec.encode(value) for value in handed]
        self._names = names

    def check(self, answers: Iterable[Any], by_id: Mapping[str, Any] | None = None) -> None:
        """Refuse what its `Command` answers too late.

        Args:
            answers: answers of no task.
            by_id: answers by ids of interrupts.

        Raises:
            AlreadyAnswered: somebody was first.
        """
        for value in self._news(answers):
            self._standing.refuse(value)
        if by_id:
            self._standing.refuse_named({self._names.get(k, k): v for k, v in by_id.items()})

    def check_prepared(self) -> bool:
        """Look for answers where the caller's caller prepares tasks; see `called_before_tasks`.

        Returns:
            Whether there is one of no task, which LangGraph is about to store.

        Raises:
            AlreadyAnswered: somebody was first.
        """
        frame = sys._getframe(2).f_locals
        configurable = frame.get("configurable") or {}
        answers = self._news(null_answers(frame.get("pending_writes") or ()))
        self.check(answers, configurable.get(_BY_ID))
        return bool(answers)

    def _news(self, answers: Iterable[Any]) -> list[Any]:
        return [v for v in answers if v is not None and codec.encode(v) not in self._handed]


_BY_ID = "__pregel_resume_map"
"""Where LangGraph keeps the answers of a `Command` that names interrupts."""


def null_answers(writes: Iterable[tuple[str, str, Any]]) -> list[Any]:
    """Return the answers among writes that are no task's."""
    return [value for task, channel, value in writes if (task, channel) == (NULL_TASK, ANSWERED)]


def _same(question: Question, value: Any) -> bool:
    return codec.encode(value_of(question)[0]) == codec.encode(value)


def _answered_at(question: Question) -> str:
    return "" if question.answer is None else str(question.answer.head.get("time", ""))
