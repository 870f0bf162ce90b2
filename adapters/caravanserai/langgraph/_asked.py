"""How a task asks and is answered: by writes, and by questions that note its interrupt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from caravanserai.langgraph._notes import Write, questions
from caravanserai.langgraph._tasks import question_ids
from caravanserai.langgraph._wording import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from caravanserai_core.ledger import Ledger, Question

ASKED: Final = "__interrupt__"
ANSWERED: Final = "__resume__"

_CALL: Final = "~__pregel_push, ~"
"""How the path of a function that a task called begins."""

# ---------------------------------------------------------------------- writes


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


def innermost(held: Iterable[Write]) -> Write | None:
    """Return the interrupt's write of the innermost task, of those that hold the same one."""
    # The path of a function that a task called holds that of the task.
    return max(
        held, key=lambda write: (write.path.startswith(_CALL), len(write.path)), default=None
    )


def is_own(interrupt: Any, ns: str, node: str, task: str) -> bool:
    """Say whether a task asks itself, and passes on nothing from inside; else it is not known."""
    inner = f"{ns}|{node}:{task}" if ns else f"{node}:{task}"
    return bool(node) and interrupt.id in question_ids(inner)


# ---------------------------------------------------------------------- questions


def meta_of(question: Question) -> dict[str, Any]:
    """Return what the adapter noted of an interrupt; empty for a question of another kind."""
    meta = question.record.head.get("meta")
    return meta if isinstance(meta, dict) and "interrupt" in meta else {}


def place_of(question: Question) -> int:
    """Return how many answers its task had before."""
    found = meta_of(question).get("answers", 0)
    return found if type(found) is int else 0


def task_of(question: Question) -> tuple[str, Any, Any]:
    """Return the task that asks: its namespace, checkpoint and id."""
    meta = meta_of(question)
    return question.record.lane, meta.get("checkpoint"), meta.get("task")


def is_null(question: Question) -> bool:
    """Say whether LangGraph itself keeps the answer, as a write of no task."""
    meta = question.answer.head.get("meta") if question.answer is not None else None
    return isinstance(meta, dict) and bool(meta.get("null"))


def known(ledger: Ledger, interrupt: str) -> Question | None:
    """Return the newest question for an interrupt that was not taken back."""
    found = [
        question
        for question in ledger.questions.values()
        if question.state != "withdrawn" and meta_of(question).get("interrupt") == interrupt
    ]
    return found[-1] if found else None
