"""What the nodes of a thread ask of people, as questions of its run, and the answers to them.

LangGraph (1.2.24) keeps an interrupt as the pending write `__interrupt__` of the task that raised
it, and of each task around that one; what a task was answered so far is its write `__resume__`, a
list. Here each interrupt is one question, whoever stored it, and an answer that somebody recorded
joins that list when the checkpoint is read: so the node gets it, whatever line starts the graph.
"""

from __future__ import annotations

import weakref
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from caravanserai.langgraph._asked import (
    ANSWERED,
    ASKED,
    answers_in,
    is_own,
    known,
    listed,
    meta_of,
    place_of,
    task_of,
)
from caravanserai.langgraph._checking import Checks, is_inside
from caravanserai.langgraph._delivering import PROGRAM, Delivery
from caravanserai.langgraph._invocations import NULL_TASK
from caravanserai.langgraph._notes import Write, node_of, questions
from caravanserai.langgraph._refusing import Late, Standing, null_answers
from caravanserai.langgraph._wording import worded
from caravanserai_core import questions as core

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from caravanserai.langgraph._invocations import Answer
    from caravanserai.langgraph._stored import Loaded
    from caravanserai.langgraph._thread import Thread
    from caravanserai_core.journal import Journal
    from caravanserai_core.ledger import Question
    from caravanserai_core.pipeline import Queued
    from caravanserai_core.schema import Schema


class People:
    """The questions of a thread.

    Args:
        thread: the thread.

    Attributes:
        checks: which answers a job may deliver.
    """

    def __init__(self, thread: Thread) -> None:
        self._run = thread.run
        self.checks = Checks(thread.run.store.key, thread.run.run_id)
        # Not the thread itself: it is let go of where nobody works on it any more.
        self._thread = weakref.ref(thread)
        # Ids that interrupts were asked under, by those they have since their tasks were renamed.
        self._old_ids: dict[str, str] = {}

    def learn(self, loaded: Loaded) -> None:
        """Note which interrupts have other ids than they were asked under."""
        self._old_ids.update({new: old for old, new in loaded.questions.items()})

    def _id(self, interrupt: Any) -> str:
        return self.first_id(str(getattr(interrupt, "id", "")))

    def first_id(self, name: str) -> str:
        """Return the id that an interrupt was asked under, by the one it has now."""
        return self._old_ids.get(name, name)

    # ------------------------------------------------------------------ asking

    def heed(
        self,
        ns: str,
        checkpoint_id: str,
        told: list[Write],
        tasks: Any,
        answer: Answer | None = None,
    ) -> Queued | None:
        """Queue what records a task's questions and answers: before the checkpoint behind them.

        Args:
            ns: the namespace of the task.
            checkpoint_id: the checkpoint that it started from.
            told: what it wrote.
            tasks: the pushed tasks of the checkpoint.
            answer: where it is that of a `Command`: it notes that it was refused.

        Returns:
            None where it neither asks nor was answered.
        """
        given = [write.value for write in told if write.channel == ANSWERED]
        if not given and not any(write.channel == ASKED for write in told):
            return None

        def work(journal: Journal) -> None:
            if told[0].task == NULL_TASK:
                with answer.refusing() if answer is not None else nullcontext():
                    self._told(journal, given[-1])
                return
            self._used(journal, ns, checkpoint_id, told)
            for question in self.checks.replaced(ns, told[0].task):
                core.withdraw(journal, question.id)
            for question in self._ask(journal, ns, checkpoint_id, told, tasks):
                self.checks.hear(question, node_of(told[0].path, tasks))

        def first(journal: Journal) -> None:
            if answer is None:
                return
            if told[0].task != NULL_TASK:
                answer.check()
            elif given:
                with answer.refusing():
                    Standing.of(self._run.run_id, core.fresh(journal)).refuse(given[-1])

        return self._run.behind_entries(work, first)

    def repeats(self, ns: str, told: list[Write], tasks: Any) -> bool:
        """Say whether all that a task asks was answered before, so that nothing is to be stored."""
        return self.checks.repeats(ns, node_of(told[0].path, tasks), told, self._id)

    def ask_again(self, asked: Iterable[Any], wanted: Schema) -> None:
        """Record interrupts that came with a fork, or a copy, as questions."""
        thread = self._thread()
        assert thread is not None, "somebody asks in a thread that nobody works on"
        names = {interrupt.id for interrupt in asked}
        with thread.lock:
            thread.index.catch_up()
            # What a subgraph asks is its own: it comes before what passes it on.
            lanes = sorted(thread.index.checkpoints, key=lambda ns: -ns.count("|") - bool(ns))
        found: list[tuple[str, str, list[Write], Any]] = []
        for ns in lanes:
            loaded = thread.newest(ns, wanted)
            for write in questions(loaded.writes) if loaded is not None else ():
                if loaded is not None and names & {i.id for i in listed(write.value)}:
                    own = [other for other in loaded.writes if other.task == write.task]
                    tasks = loaded.state["channel_values"].get("__pregel_tasks")
                    found.append((ns, loaded.stored.id, own, tasks))

        def work(journal: Journal) -> None:
            for one in found:
                self._ask(journal, *one)

        self._run.turn(work)

    def _ask(
        self, journal: Journal, ns: str, checkpoint_id: str, writes: Sequence[Write], tasks: Any
    ) -> list[Question]:
        """Record what a task asks, unless that is known: asked before, or by a task inside it.

        Runs in a turn of the run's queue, as all that is given a journal.

        Returns:
            The questions.
        """
        found: list[Question] = []
        answers = answers_in(writes)
        for write in writes:
            if write.channel != ASKED:
                continue
            node = node_of(write.path, tasks)
            for interrupt in listed(write.value):
                own = is_own(interrupt, ns, node, write.task)
                name = [self._id(interrupt), len(answers)]
                meta = {"checkpoint": checkpoint_id, "task": write.task, "interrupt": name[0]}
                meta["answers"] = len(answers)
                found.append(_put(journal, worded(interrupt.value, ns, name, meta), own=own))
        return found

    def of(self, interrupts: Iterable[Any]) -> dict[str, Question]:
        """Return the questions of interrupts by the interrupts' ids, where they are recorded."""
        ledger = self._run.turn(core.fresh)
        found = {}
        for interrupt in interrupts:
            asked = known(ledger, self._id(interrupt))
            if asked is not None:
                found[interrupt.id] = asked
        return found

    def expect(self, interrupts: Iterable[Any]) -> None:
        """Note what the tasks behind interrupts were answered, and this process has not heard."""
        ledger = self._run.turn(core.fresh)
        asked = [known(ledger, self._id(interrupt)) for interrupt in interrupts]
        tasks = {task_of(question) for question in asked if question is not None}
        answered = [q for q in ledger.questions.values() if q.answer is not None]
        self.checks.expect(
            q
            for q in answered
            if q.state != "withdrawn" and task_of(q) in tasks and not self.checks.trusts(q)
        )

    # ------------------------------------------------------------------ answers

    def answer(self, question: str, value: Any) -> None:
        """Record the answer that the program was started with; the node gets it when it runs.

        Raises:
            AlreadyAnswered: somebody was first.
        """
        self._run.turn(lambda journal: _record(journal, question, value))

    def _told(self, journal: Journal, value: Any) -> None:
        """Record the answer of a `Command` that LangGraph has given to the graph already.

        It is kept by LangGraph's own pending write; see `delivered`.

        Raises:
            AlreadyAnswered: somebody was first, with another answer or from elsewhere.
        """
        standing = Standing.of(self._run.run_id, core.fresh(journal))
        if len(standing.opened) == 1:
            _record(journal, standing.opened[0].id, value, {"null": True})
            return
        standing.refuse(value)  # LangGraph asks for ids where several are open

    def _used(self, journal: Journal, ns: str, checkpoint_id: str, writes: Sequence[Write]) -> None:
        """Record what a task was answered in ways that a saver is not told of: by a dict of ids."""
        answers = answers_in(writes)
        if not answers or not journal.pending.questions:
            return
        for question in list(journal.ledger.open):
            meta = meta_of(question)
            at = place_of(question)
            if (
                question.record.lane == ns
                and meta.get("checkpoint") == checkpoint_id
                and meta.get("task") == writes[0].task
                and at < len(answers)
            ):
                _record(journal, question.id, answers[at])

    def delivered(
        self, ns: str, loaded: Loaded, wanted: Schema
    ) -> tuple[list[Write], dict[str, tuple[str, str]], Late | None]:
        """Return the writes of a checkpoint with the answers that its tasks have not used yet.

        During a job's call an answer is held back where this process has not heard its question;
        see `Checks`.

        Returns:
            The writes; of each such answer the task that gets it, "" where that is not known, and
            a line for notes, by the question's id; and what a `Command` is refused for now.
        """
        if not any(write.channel in (ASKED, ANSWERED) for write in loaded.writes):
            return loaded.writes, {}, None
        ledger = self._run.turn(core.fresh)
        delivery = Delivery(self._run.journal, ledger, self.checks, self._id, ns, loaded)
        null = delivery.null
        if null is not None:
            thread, lane = self._thread(), null.record.lane
            elsewhere = thread is not None and lane != ns and null.state == "answered"
            inner = thread.newest(lane, wanted) if thread is not None and elsewhere else None
            delivery.drop_used(null, inner)
        else:
            delivery.drop_unknown()
        delivery.deliver()
        standing = Standing.of(self._run.run_id, ledger)
        if ns:
            return delivery.writes, delivery.told, None
        handed = null_answers((w.task, w.channel, w.value) for w in delivery.writes)
        return delivery.writes, delivery.told, Late(standing, handed, self._old_ids)

    # ------------------------------------------------------------------ going on without

    def withdraw(self, journal: Journal, ns: str) -> None:
        """Take back what is asked in a namespace, or inside it: a checkpoint follows there.

        So is what was answered and not asked again: its node went on without the answer.
        """
        for question in self.checks.left(ns):
            core.withdraw(journal, question.id)
        if not journal.pending.questions:
            return
        for question in list(journal.ledger.open):
            if is_inside(question.record.lane, ns) and meta_of(question):
                core.withdraw(journal, question.id)

    def forget(self, going: set[tuple[str, str]]) -> None:
        """Take back what is asked behind checkpoints that were removed."""
        if not self._run.pending.questions:
            return

        def work(journal: Journal) -> None:
            for question in list(journal.ledger.open):
                if (question.record.lane, meta_of(question).get("checkpoint")) in going:
                    core.withdraw(journal, question.id)

        self._run.turn(work)


def _record(
    journal: Journal, question: str, value: Any, meta: dict[str, Any] | None = None
) -> None:
    core.record_answer(journal, value, question=question, by=PROGRAM, checked=False, meta=meta)
    core.give(journal, question, journal.ledger.questions[question].record.lane)


def _put(journal: Journal, question: core.Wanted, *, own: bool) -> Question:
    while True:
        interrupt = question.fields["meta"]["interrupt"]
        before = None if own else known(core.fresh(journal), interrupt)
        if before is not None and before.record.head.get("digest") == question.digest:
            return before
        found = core.find(journal, question)
        if found is not None:
            return found
        try:
            _drop_later(journal, question)
            name = core.put(journal, question, reason=_reason(journal, question))
        except core.Changed:
            continue
        return journal.ledger.questions[name]


def _reason(journal: Journal, question: core.Wanted) -> str:
    """Say why the answer in a question's place was not taken, where there was one."""
    before = journal.ledger.find(question.where)
    answered = before is not None and before.state == "answered"
    return "the node asks something else by now" if answered else ""


def _drop_later(journal: Journal, question: core.Wanted) -> None:
    """Take back what a task asked behind the place in which it asks something else now."""
    meta = question.fields["meta"]
    task = (question.where.lane, meta["checkpoint"], meta["task"])
    for other in list(journal.ledger.questions.values()):
        if other.state not in ("open", "answered") or task_of(other) != task:
            continue
        if place_of(other) > meta["answers"]:
            core.withdraw(journal, other.id)
