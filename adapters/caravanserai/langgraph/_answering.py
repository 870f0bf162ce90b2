"""What a job is answered by a `Command`: recorded before a node sees it, or refused."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from caravanserai.langgraph._asked import known, meta_of
from caravanserai.langgraph._words import value_text
from caravanserai_core import codec
from caravanserai_core import questions as core
from caravanserai_core.errors import InputChanged, UsageError
from caravanserai_core.pending import asked as as_asked
from caravanserai_core.pending import first_line
from caravanserai_core.questions import value_of
from caravanserai_core.quoting import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from langgraph.types import Interrupt

    from caravanserai.langgraph._thread import Thread
    from caravanserai_core.ledger import Ledger, Question
    from caravanserai_core.schema import Schema

_NAME: Final = re.compile("[0-9a-f]{32}")


class Answering:
    """The answers of a job's call.

    Args:
        thread: the job's thread.
        schema: what the program declares of its states.
    """

    def __init__(self, thread: Thread, schema: Schema) -> None:
        self._thread = thread
        self._people = thread.people
        self._run_id = thread.run.run_id
        self._schema = schema

    def take(self, asked: Sequence[Interrupt], said: Any) -> bool | None:
        """Record an answer; say whether anything that is asked has one now.

        Args:
            asked: what the graph waits for.
            said: the answer, or answers by the ids of interrupts; None: there is none.

        Returns:
            None where it cannot be told which question is answered.

        Raises:
            InputChanged: it is another answer than the one that is recorded.
            UsageError: it names what was never asked.
        """
        found = self._people.of(asked)
        if len(found) < len(asked):
            self._people.ask_again(asked, self._schema)
            found = self._people.of(asked)
        given = [name for name, question in found.items() if question.answer is not None]
        opened = [name for name in found if name not in given]
        if said is None:
            return bool(given)
        if names_questions(said):
            self._check_named(said, found, opened)
            for name in opened:
                if name in said:
                    self._people.answer(found[name].id, said[name])
            return bool(given) or any(name in opened for name in said)
        if len(opened) > 1:
            return None
        if opened:
            self._people.answer(found[opened[0]].id, said)
        elif len(given) == 1:
            self._refuse_other(found[given[0]], said)
        return True

    def check_used(self, said: Any) -> None:
        """Refuse an answer where nothing is asked, unless it was given before a crash, and used.

        Raises:
            InputChanged: it is another one than the one that is recorded.
            UsageError: it names what was never asked.
        """
        if said is None:
            return
        if names_questions(said):
            self._check_named(said, {}, ())
            return
        last = self._last(self._thread.run.turn(core.fresh))
        if last is not None:
            self._refuse_other(last, said)

    def _check_named(
        self, said: Mapping[str, Any], asked: Mapping[str, Question], opened: Iterable[str]
    ) -> None:
        """Refuse answers before any of them is recorded."""
        others = [name for name in said if name not in asked]
        ledger = self._thread.run.turn(core.fresh) if others else None
        for name, answer in said.items():
            question = asked.get(name)
            if question is None and ledger is not None:
                question = known(ledger, self._people.first_id(name))
            if question is None or (question.answer is None and name not in asked):
                listed = "; ".join(
                    f"{name} ({asked[name].id} {first_line(as_asked(asked[name].record.head))})"
                    for name in opened
                )
                raise UsageError(
                    f"run {one_line(self._run_id)} does not ask {name}; open: {listed or 'none'}. "
                    "Nothing was recorded."
                )
            if question.answer is not None:
                self._refuse_other(question, answer)

    def _last(self, ledger: Ledger) -> Question | None:
        """Return the question of this pass that was answered last."""
        answered = [
            (str(question.answer.head.get("time")), question)
            for question in ledger.questions.values()
            if question.answer is not None
            and meta_of(question)
            and question.record.waypoint > self._thread.fresh_after
        ]
        return max(answered, key=lambda item: item[0])[1] if answered else None

    def _refuse_other(self, question: Question, said: Any) -> None:
        before = value_of(question)[0]
        if codec.encode(said) != codec.encode(before):
            raise InputChanged(
                f"run {one_line(self._run_id)} was answered already, with {value_text(before)}, "
                f"and is now answered {value_text(said)}. The first answer stands: start the job "
                "as before."
            )


def names_questions(answer: Any) -> TypeGuard[dict[str, Any]]:
    """Say whether an answer is a dict by the ids of interrupts, as LangGraph sees it."""
    return isinstance(answer, dict) and all(_NAME.fullmatch(str(key)) for key in answer)
