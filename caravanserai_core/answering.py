"""What an answer means that was given as a text: compared with what the question allows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from caravanserai_core import codec
from caravanserai_core.errors import JournalDamaged
from caravanserai_core.journal import Journal
from caravanserai_core.pending import Asked, asked

if TYPE_CHECKING:
    from caravanserai_core.stores.base import Store

__all__ = ["meant", "question", "spoken"]


def question(store: Store, run_id: str, name: str | None) -> Asked | None:
    """Return the question that is meant; None where that is for the answer itself to refuse."""
    journal = Journal(store, run_id)
    ledger = journal.turns.do(lambda: journal.ledger)
    if name is None:
        return asked(ledger.open[0].record.head) if len(ledger.open) == 1 else None
    found = ledger.questions.get(name)
    return None if found is None else asked(found.record.head)


def meant(text: str, question: Asked | None) -> Any:
    """Read a value as the question means it."""
    for option in question.options if question is not None else ():
        if spoken(option) == text:
            return option
    return _read(text)


def _read(text: str) -> Any:
    """Read JSON; what is none is a text."""
    try:
        return codec.parse(text.encode("utf-8", "surrogateescape"))
    except (JournalDamaged, ValueError):
        return text


def spoken(value: object) -> str:
    """Return an answer as a text that `meant` reads as the same answer."""
    return value if isinstance(value, str) else codec.encode(value).data.decode()
