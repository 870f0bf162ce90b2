"""What the nodes of a thread ask of people, as questions of its run, and the answers to them.

LangGraph (1.2.24) keeps an interrupt as the pending write `__interrupt__` of the task that raised
it, and of each task around that one; what a task was answered so far is its write `__resume__`, a
list. Here each interrupt is one question, whoever stored it, and an answer that somebody recorded
joins that list when the checkpoint is read: so the node gets it, whatever line starts the graph.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Final

from caravanserai.langgraph._invocations import NULL_TASK
from caravanserai.langgraph._notes import PLACES, Write, node_of, questions
from caravanserai.langgraph._tasks import question_ids
from caravanserai.langgraph._wording import shown, worded
from caravanserai.langgraph._words import quote, sentence, value_text
from caravanserai_core import codec
from caravanserai_core import questions as core
from caravanserai_core.errors import AlreadyAnswered
from caravanserai_core.quoting import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from caravanserai.langgraph._stored import Loaded
    from caravanserai.langgraph._thread import Thread
    from caravanserai_core.journal import Journal
    from caravanserai_core.ledger import Ledger, Question
    from caravanserai_core.pipeline import Queued
    from caravanserai_core.schema import Schema

ASKED: Final = "__interrupt__"
ANSWERED: Final = "__resume__"

PROGRAM: Final = "the program"
"""Who answered, where a `Command` did."""

_CALL: Final = "~__pregel_push, ~"
"""How the path of a function that a task called begins."""


class People:
    """The questions of a thread.

    Args:
        thread: the thread.
    """

    def __init__(self, thread: Thread) -> None:
        self._run = thread.run
        # Not the thread itself: it is let go of where nobody works on it any more.
        self._thread = weakref.ref(thread)
        # Ids that interrupts were asked under, by those they have since their tasks were renamed.
        self._old_ids: dict[str, str] = {}

    def learn(self, loaded: Loaded) -> None:
        """Note which interrupts have other ids than they were asked under."""
        self._old_ids.update({new: old for old, new in loaded.questions.items()})

    def _id(self, interrupt: Any) -> str:
        found = str(getattr(interrupt, "id", ""))
        return self._old_ids.get(found, found)

    # ------------------------------------------------------------------ asking

    def heed(self, ns: str, checkpoint_id: str, told: list[Write], tasks: Any) -> Queued | None:
        """Queue what records a task's questions and answers: before the checkpoint behind them.

        Args:
            ns: the namespace of the task.
            checkpoint_id: the checkpoint that it started from.
            told: what it wrote.
            tasks: the pushed tasks of the checkpoint.

        Returns:
            None where it neither asks nor was answered.
        """
        given = [write.value for write in told if write.channel == ANSWERED]
        if not given and not any(write.channel == ASKED for write in told):
            return None

        def work(journal: Journal) -> None:
            if told[0].task == NULL_TASK:
                self._told(journal, given[-1])
                return
            self._used(journal, ns, checkpoint_id, told)
            self._ask(journal, ns, checkpoint_id, told, tasks)

        return self._run.behind_entries(work)

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
    ) -> None:
        """Record what a task asks, unless that is known: asked before, or by a task inside it.

        Runs in a turn of the run's queue, as all that is given a journal.
        """
        answers = answers_in(writes)
        for write in writes:
            if write.channel != ASKED:
                continue
            node = node_of(write.path, tasks)
            for interrupt in listed(write.value):
                own = _is_own(interrupt, ns, node, write.task)
                name = [self._id(interrupt), len(answers)]
                meta = {"checkpoint": checkpoint_id, "task": write.task, "interrupt": name[0]}
                meta["answers"] = len(answers)
                question = worded(interrupt.value, ns, name, meta)
                _put(journal, question, own=own)

    def of(self, interrupts: Iterable[Any]) -> dict[str, Question]:
        """Return the questions of interrupts by the interrupts' ids, where they are recorded."""
        ledger = self._run.turn(core.fresh)
        found = {}
        for interrupt in interrupts:
            asked = _known(ledger, self._id(interrupt))
            if asked is not None:
                found[interrupt.id] = asked
        return found

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
        ledger = core.fresh(journal)
        asked = [q for q in ledger.questions.values() if _meta(q)]
        opened = [q for q in asked if q.state == "open"]
        if len(opened) == 1:
            _record(journal, opened[0].id, value, {"null": True})
            return
        given = [q for q in asked if q.state == "answered"]
        if opened or len(given) != 1:
            return  # LangGraph asks for ids where several are open
        if _is_null(given[0]) and codec.encode(core.value_of(given[0])[0]) == codec.encode(value):
            return  # the same line again, after a crash
        head = given[0].answer.head if given[0].answer is not None else {}
        raise AlreadyAnswered(
            f"{given[0].id} of run {one_line(self._run.run_id)} was answered by "
            f"{one_line(str(head.get('who', '')), 60)} at {str(head.get('time', ''))[:19]}+00:00. "
            "The first answer counts and this one was not recorded: go on with invoke(None).",
            question=given[0].id,
            by=str(head.get("who", "")),
            time=str(head.get("time", "")),
        )

    def _used(self, journal: Journal, ns: str, checkpoint_id: str, writes: Sequence[Write]) -> None:
        """Record what a task was answered in ways that a saver is not told of: by a dict of ids."""
        answers = answers_in(writes)
        if not answers or not journal.pending.questions:
            return
        for question in list(journal.ledger.open):
            meta = _meta(question)
            at = _place(question)
            if (
                question.record.lane == ns
                and meta.get("checkpoint") == checkpoint_id
                and meta.get("task") == writes[0].task
                and at < len(answers)
            ):
                _record(journal, question.id, answers[at])

    def delivered(
        self, ns: str, loaded: Loaded, wanted: Schema
    ) -> tuple[list[Write], dict[str, tuple[str, str]]]:
        """Return the writes of a checkpoint with the answers that its tasks have not used yet.

        Returns:
            The writes; and of each such answer the task that gets it, "" where that is not
            known, and a line for notes, by the question's id.
        """
        told: dict[str, tuple[str, str]] = {}
        if not any(write.channel in (ASKED, ANSWERED) for write in loaded.writes):
            return loaded.writes, told
        ledger = self._run.turn(core.fresh)
        writes = self._without_used(ns, list(loaded.writes), ledger, wanted)
        tasks = loaded.state["channel_values"].get("__pregel_tasks")
        for question in ledger.questions.values():
            meta = _meta(question)
            if (question.record.lane, meta.get("checkpoint")) != (ns, loaded.stored.id):
                continue
            if question.state == "answered":
                core.give(self._run.journal, question.id, ns)  # LangGraph has it from now on
            if question.state != "answered" or _is_null(question):
                continue
            holder = self._holder(writes, str(meta["interrupt"]))
            told[question.id] = ("" if holder is None else holder.task, _said(question))
            if holder is None:
                continue
            value = core.value_of(question)[0]
            if self._passes_on(holder, ns, tasks, str(meta["interrupt"])):
                writes = _with_null(writes, value)
            else:
                writes = _with_answer(writes, holder, _place(question), value)
        return writes, told

    def _without_used(
        self, ns: str, writes: list[Write], ledger: Ledger, wanted: Schema
    ) -> list[Write]:
        """Return writes without an answer of no task that was used.

        Of all savers, LangGraph 1.2.24 gives it to the next `interrupt` of the checkpoint as well.
        """
        if not any(write.task == NULL_TASK and write.channel == ANSWERED for write in writes):
            return writes
        given = [question for question in ledger.questions.values() if _is_null(question)]
        if not given:
            return writes
        question = given[-1]
        used = question.state != "answered"
        if not used:
            lane, meta = question.record.lane, _meta(question)
            if lane != ns:
                thread = self._thread()
                inner = None if thread is None else thread.newest(lane, wanted)
                used = inner is None or inner.stored.id != meta.get("checkpoint")
                own = [] if inner is None else inner.writes
            else:
                own = writes
            holder = self._holder(own, str(meta["interrupt"]))
            task = meta.get("task") if holder is None else holder.task
            used = used or len(answers_in(w for w in own if w.task == task)) > _place(question)
        if not used:
            return writes
        return [w for w in writes if w.task != NULL_TASK or w.channel != ANSWERED]

    def _passes_on(self, holder: Write, ns: str, tasks: Any, name: str) -> bool:
        """Say whether a task holds what something inside it asks that stores nothing itself."""
        node = node_of(holder.path, tasks)
        asked = [i for i in listed(holder.value) if self._id(i) == name]
        return bool(node) and not any(_is_own(i, ns, node, holder.task) for i in asked)

    def _holder(self, writes: Sequence[Write], name: str) -> Write | None:
        """Return the interrupt's write of the innermost task that holds it."""
        held = [
            write
            for write in questions(writes)
            if any(self._id(interrupt) == name for interrupt in listed(write.value))
        ]
        # The path of a function that a task called holds that of the task.
        return max(
            held, key=lambda write: (write.path.startswith(_CALL), len(write.path)), default=None
        )

    # ------------------------------------------------------------------ going on without

    def withdraw(self, journal: Journal, ns: str) -> None:
        """Take back what is asked in a namespace, or inside it: a checkpoint follows there."""
        if not journal.pending.questions:
            return
        for question in list(journal.ledger.open):
            lane = question.record.lane
            inside = not ns or lane == ns or lane.startswith(f"{ns}|")
            if inside and _meta(question):
                core.withdraw(journal, question.id)

    def forget(self, going: set[tuple[str, str]]) -> None:
        """Take back what is asked behind checkpoints that were removed."""
        if not self._run.pending.questions:
            return

        def work(journal: Journal) -> None:
            for question in list(journal.ledger.open):
                if (question.record.lane, _meta(question).get("checkpoint")) in going:
                    core.withdraw(journal, question.id)

        self._run.turn(work)


def _record(
    journal: Journal, question: str, value: Any, meta: dict[str, Any] | None = None
) -> None:
    core.record_answer(journal, value, question=question, by=PROGRAM, checked=False, meta=meta)
    core.give(journal, question, journal.ledger.questions[question].record.lane)


def _put(journal: Journal, question: core.Wanted, *, own: bool) -> None:
    while True:
        interrupt = question.fields["meta"]["interrupt"]
        if not own and _known(core.fresh(journal), interrupt) is not None:
            return
        if core.find(journal, question) is not None:
            return
        try:
            core.put(journal, question)
        except core.Changed:
            continue
        return


def _known(ledger: Ledger, interrupt: str) -> Question | None:
    """Return the newest question for an interrupt that is open or answered."""
    found = [
        question
        for question in ledger.questions.values()
        if question.state != "withdrawn" and _meta(question).get("interrupt") == interrupt
    ]
    return found[-1] if found else None


def _meta(question: Question) -> dict[str, Any]:
    """Return what the adapter noted of an interrupt; empty for a question of another kind."""
    meta = question.record.head.get("meta")
    return meta if isinstance(meta, dict) and "interrupt" in meta else {}


def _said(question: Question) -> str:
    """Tell an answer in a line for notes."""
    who = "" if question.answer is None else str(question.answer.head.get("who", ""))
    by = "A person" if who == PROGRAM else quote(who)
    return sentence(f"{by} answered {question.id}: {value_text(core.value_of(question)[0])}")


def _place(question: Question) -> int:
    """Return how many answers its task had before."""
    found = _meta(question).get("answers", 0)
    return found if type(found) is int else 0


def _is_null(question: Question) -> bool:
    """Say whether LangGraph itself keeps the answer, as a write of no task."""
    meta = question.answer.head.get("meta") if question.answer is not None else None
    return isinstance(meta, dict) and bool(meta.get("null"))


def _is_own(interrupt: Any, ns: str, node: str, task: str) -> bool:
    """Say whether a task asks itself, and passes on nothing from inside; else it is not known."""
    inner = f"{ns}|{node}:{task}" if ns else f"{node}:{task}"
    return bool(node) and interrupt.id in question_ids(inner)


def asked_in(writes: Sequence[Write]) -> list[str]:
    """Return what people see of the interrupts that wait, each once."""
    found = {i.id: shown(i.value) for write in questions(writes) for i in listed(write.value)}
    return list(found.values())


def listed(value: Any) -> list[Any]:
    """Return the interrupts of a write."""
    found = value if isinstance(value, (list, tuple)) else [value]
    return [item for item in found if hasattr(item, "id") and hasattr(item, "value")]


def answers_in(writes: Iterable[Write]) -> list[Any]:
    """Return what a task was answered so far."""
    found = [write.value for write in writes if write.channel == ANSWERED]
    if not found:
        return []
    return list(found[-1]) if isinstance(found[-1], list) else [found[-1]]


def _with_answer(writes: list[Write], holder: Write, place: int, value: Any) -> list[Write]:
    """Return writes in which a task has one answer more, if that is its next one."""
    had = answers_in(write for write in writes if write.task == holder.task)
    if len(had) != place:
        return writes
    told = Write(holder.task, holder.path, PLACES[ANSWERED], ANSWERED, [*had, value])
    others = [w for w in writes if w.task != holder.task or w.channel != ANSWERED]
    return [*others, told]


def _with_null(writes: list[Write], value: Any) -> list[Write]:
    """Return writes with an answer of no task, which what asks inside of a task finds."""
    if any(write.task == NULL_TASK and write.channel == ANSWERED for write in writes):
        return writes
    return [*writes, Write(NULL_TASK, "", PLACES[ANSWERED], ANSWERED, value)]
