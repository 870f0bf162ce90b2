"""Answers as LangGraph takes them: among the pending writes of the checkpoint whose task asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from caravanserai.langgraph._asked import (
    ANSWERED,
    answers_in,
    innermost,
    is_null,
    is_own,
    listed,
    meta_of,
    place_of,
    task_of,
)
from caravanserai.langgraph._invocations import NULL_TASK
from caravanserai.langgraph._notes import PLACES, Write, node_of, questions
from caravanserai.langgraph._words import value_text
from caravanserai_core import codec
from caravanserai_core import questions as core
from caravanserai_core.words import quote, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from caravanserai.langgraph._checking import Checks
    from caravanserai.langgraph._stored import Loaded
    from caravanserai_core.journal import Journal
    from caravanserai_core.ledger import Ledger, Question

PROGRAM: Final = "the program"
"""Who answered, where a `Command` did."""


class Delivery:
    """The pending writes of one checkpoint, to which the answers are added that its tasks lack.

    Args:
        journal: the run.
        ledger: its questions.
        checks: which answers may be delivered.
        name_of: returns the id that an interrupt was first asked under.
        ns: the namespace of the checkpoint.
        loaded: the checkpoint.

    Attributes:
        writes: the writes.
        told: of each answer that is not used yet the task that gets it, "" where that is not
            known, and a line for notes, by the question's id.
    """

    def __init__(
        self,
        journal: Journal,
        ledger: Ledger,
        checks: Checks,
        name_of: Callable[[Any], str],
        ns: str,
        loaded: Loaded,
    ) -> None:
        self.writes = list(loaded.writes)
        self.told: dict[str, tuple[str, str]] = {}
        self._journal = journal
        self._ledger = ledger
        self._checks = checks
        self._name_of = name_of
        self._ns = ns
        self._checkpoint = loaded.stored.id
        self._tasks = loaded.state["channel_values"].get("__pregel_tasks")

    def deliver(self) -> None:
        """Add what was answered and may be delivered; hold the rest back."""
        asked: dict[Any, list[Question]] = {}
        for question in self._ledger.questions.values():
            ns, checkpoint, task = task_of(question)
            if (ns, checkpoint) == (self._ns, self._checkpoint) and question.state != "withdrawn":
                asked.setdefault(task, []).append(question)
        for found in asked.values():
            self._deliver_to_task(found)

    def _deliver_to_task(self, asked: list[Question]) -> None:
        """Deliver what one task asked, in the order in which it was asked."""
        places: dict[int, Question] = {}
        task: Write | None = None
        for question in asked:
            name = str(meta_of(question)["interrupt"])
            holder = self.holder(self.writes, name)
            if holder is not None and self._passes_on(holder, name):
                self._deliver_inside(question, holder)
                continue
            place = place_of(question)
            # What came behind another question in this place is asked anew.
            places = {at: one for at, one in places.items() if at < place}
            places[place] = question
            task = holder or task
        if task is not None:
            self._deliver_in_order(places, task)
            return
        for question in places.values():
            if question.state == "answered" and not self._gives(question):
                continue
            if question.state == "answered" and not is_null(question):
                self.told[question.id] = ("", _said(question))

    def _deliver_in_order(self, places: dict[int, Question], task: Write) -> None:
        """Deliver the answers of a task, up to the first that it lacks.

        Args:
            places: the newest question in each place of their order.
            task: a write of the task.
        """
        had = answers_in(write for write in self.writes if write.task == task.task)
        answers = had[: min(places)]  # asked where nobody recorded it: in another saver
        while (question := places.get(len(answers))) is not None and question.answer is not None:
            place = len(answers)
            fresh = question.state == "answered"
            if place >= len(had) and not fresh:
                break
            if not self._gives(question):
                for later, behind in places.items():
                    if later > place and behind.answer is not None:
                        self._checks.hold(behind)
                break
            if place >= len(had) and is_null(question):
                break  # LangGraph adds it
            answers.append(core.value_of(question)[0])
            if fresh and not is_null(question):
                self.told[question.id] = (task.task, _said(question))
        others = [w for w in self.writes if w.task != task.task or w.channel != ANSWERED]
        if answers:
            others.append(Write(task.task, task.path, PLACES[ANSWERED], ANSWERED, answers))
        self.writes = others

    def _deliver_inside(self, question: Question, holder: Write) -> None:
        """Deliver what is asked inside of a task, by what stores nothing itself."""
        if question.state != "answered" or not self._gives(question, passed=True):
            return
        if is_null(question):
            return
        self.told[question.id] = (holder.task, _said(question))
        if not any(write.task == NULL_TASK and write.channel == ANSWERED for write in self.writes):
            value = core.value_of(question)[0]
            self.writes.append(Write(NULL_TASK, "", PLACES[ANSWERED], ANSWERED, value))

    def _gives(self, question: Question, *, passed: bool = False) -> bool:
        """Note that LangGraph has an answer from now on, or hold it back; say which."""
        if not self._checks.trusts(question):
            self._checks.hold(question, passed=passed)
            return False
        if question.state == "answered":
            core.give(self._journal, question.id, self._ns)
        return True

    # ------------------------------------------------------------------ an answer of no task

    @property
    def null(self) -> Question | None:
        """The question whose answer these writes hold as one of no task, or None."""
        if not any(w.task == NULL_TASK and w.channel == ANSWERED for w in self.writes):
            return None
        given = [question for question in self._ledger.questions.values() if is_null(question)]
        return given[-1] if given else None

    def drop_used(self, question: Question, inner: Loaded | None) -> None:
        """Drop an answer of no task that was used, or has to wait until its node has asked again.

        Of all savers, LangGraph 1.2.24 gives it to the next `interrupt` of the checkpoint as well.

        Args:
            question: the question.
            inner: the newest checkpoint of its namespace, where that is another one.
        """
        value = core.value_of(question)[0]
        # Another one that came later was refused.
        self.writes = [
            w._replace(value=value) if w.task == NULL_TASK and w.channel == ANSWERED else w
            for w in self.writes
        ]
        used = question.state != "answered"
        if not used:
            meta = meta_of(question)
            own = self.writes
            if question.record.lane != self._ns:
                used = inner is None or inner.stored.id != meta.get("checkpoint")
                own = [] if inner is None else inner.writes
            holder = self.holder(own, str(meta["interrupt"]))
            task = meta.get("task") if holder is None else holder.task
            used = used or len(answers_in(w for w in own if w.task == task)) > place_of(question)
        if not used and not self._checks.trusts(question):
            self._checks.hold(question)
            used = True
        if used:
            self._drop_null()

    def drop_unknown(self) -> None:
        """Drop an answer of no task of which nobody recorded what it answers, if it was used.

        It came with a copy, or its process was killed at that moment: the question is open then,
        and a job gives the answer to nothing else.
        """
        given = [w.value for w in self.writes if w.task == NULL_TASK and w.channel == ANSWERED]
        if not given:
            return
        tasks = {write.task for write in self.writes if write.task != NULL_TASK}
        had = [answers_in(w for w in self.writes if w.task == task)[-1:] for task in tasks]
        used = any(codec.encode(last) == codec.encode(given[-1:]) for last in had)
        if used or self._checks.on:
            self._drop_null()

    def _drop_null(self) -> None:
        self.writes = [w for w in self.writes if w.task != NULL_TASK or w.channel != ANSWERED]

    # ------------------------------------------------------------------ who asks

    def holder(self, writes: Sequence[Write], name: str) -> Write | None:
        """Return the interrupt's write of the innermost task that holds it."""
        return innermost(
            write
            for write in questions(writes)
            if any(self._name_of(interrupt) == name for interrupt in listed(write.value))
        )

    def _passes_on(self, holder: Write, name: str) -> bool:
        """Say whether a task holds what something inside it asks that stores nothing itself."""
        node = node_of(holder.path, self._tasks)
        asked = [i for i in listed(holder.value) if self._name_of(i) == name]
        return bool(node) and not any(is_own(i, self._ns, node, holder.task) for i in asked)


def _said(question: Question) -> str:
    """Tell an answer in a line for notes."""
    who = "" if question.answer is None else str(question.answer.head.get("who", ""))
    by = "A person" if who == PROGRAM else quote(who)
    return sentence(f"{by} answered {question.id}: {value_text(core.value_of(question)[0])}")
