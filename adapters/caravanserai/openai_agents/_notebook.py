"""A run that is written by whoever comes: a session, or hooks beside a run of the SDK.

Neither owns its run: a web server has many workers. So no lease is taken; each change is made of
the newest state, in the run's turn, and made again where another process wrote in between.
"""

from __future__ import annotations

import random
import time
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from caravanserai.openai_agents import _seed
from caravanserai_core import continuing, questions, reading
from caravanserai_core.errors import Conflict, UsageError
from caravanserai_core.homes import store_for
from caravanserai_core.importing import refuse_work
from caravanserai_core.journal import journal_for
from caravanserai_core.names import check_run_id
from caravanserai_core.notes import Note
from caravanserai_core.origins import handed_origin
from caravanserai_core.quoting import code, one_line
from caravanserai_core.threads import in_thread, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import TypeVar

    from caravanserai_core.handed import Handoff
    from caravanserai_core.homes import StoreLike
    from caravanserai_core.stores.base import Tail

    T = TypeVar("T")

ADAPTER: Final = "openai-agents"

_PATIENCE: Final = 30.0
"""Seconds for which a change is made again where others write all the time."""

_PAUSE: Final = 0.004
"""Seconds at most between two tries; at random, so that two writers do not keep meeting."""


@cache
def framework() -> str:
    """Return name and version of the SDK, as the last line of a note shows it."""
    return f"OpenAI Agents SDK {version('openai-agents')}"


class Change(NamedTuple):
    """What is to be written.

    Attributes:
        items: the conversation behind it.
        note: what happened.
        result: what the caller gets.
        more: what else stands in the state.
    """

    items: list[Any]
    note: Note
    result: Any = None
    more: dict[str, Any] = {}  # noqa: RUF012 - never written to


class _Unbegun(Exception):
    """The run goes on from another one, and its process was killed before its first waypoint."""


class Notebook:
    """A run whose states hold a conversation, `{"items": [...]}`.

    Attributes:
        run_id: its name.
        store: where it lives.
    """

    def __init__(
        self, run_id: str, store: StoreLike, continues: str | Handoff | None = None
    ) -> None:
        self.run_id = check_run_id(run_id)
        refuse_work(self.run_id)
        self.store = store_for(self.run_id, store)
        self._continues = continues
        self._started = continues is None
        self._seeds = False
        # The end of the journal and the items as they were there; used in the run's turns only.
        self._seen: tuple[Tail, list[Any]] | None = None

    def later(self, work: Callable[[], T]) -> Coroutine[Any, Any, T]:
        """Give `work` its place in the run's queue now, do it in a thread; return what waits.

        Cancelling the wait does not undo the work. The first one of a run that goes on from
        another has its place behind what begins that.
        """
        if not self._started:
            return self._after_start(work)
        return self._begun(work, self._take(work))

    def _take(self, work: Callable[[], T]) -> Coroutine[Any, Any, T]:
        turns = journal_for(self.store, self.run_id).turns
        turn = turns.take(work)
        return wait_for(in_thread(lambda: turns.finish(turn)))

    async def _begun(self, work: Callable[[], T], waits: Coroutine[Any, Any, T]) -> T:
        try:
            return await waits
        except _Unbegun:
            return await self._after_start(work)

    async def _after_start(self, work: Callable[[], T]) -> T:
        await wait_for(in_thread(self._start))
        return await self._take(work)

    def _start(self) -> None:
        """Begin a run that goes on from another one with what it was handed; in no turn."""
        journal = journal_for(self.store, self.run_id)
        journal.turns.do(lambda: self._begin(None) if journal.look() is None else None)
        handed = continuing.begin(journal, self._continues)
        if handed is not None:
            seed = handed
            journal.turns.do(lambda: self._write_seed(seed))
        self._started = True

    def _write_seed(self, handed: Handoff) -> None:
        def make(_items: list[Any]) -> Change | None:
            return None if journal_for(self.store, self.run_id).number() else change

        seeded = _seed.items(_seed.seed_of(handed))
        source = code(one_line(handed.source, 100))
        count = len(handed.transcript.messages)
        told = f"its {count} messages and" if count > 1 else "" if not count else "its message and"
        note = Note(
            f"This conversation goes on from run {source}, with {f'{told} ' if told else ''}what "
            "is told of it.",
            next=["The user's next message."],
        )
        change = Change(seeded, note)
        self._seeds = True
        try:
            self.change(make)
        finally:
            self._seeds = False

    def items(self) -> list[Any]:
        """Return the newest conversation, whoever wrote it; runs in a turn.

        Returns:
            The items, to be read only; empty where nothing was written yet.

        Raises:
            UsageError: the run is something else than a conversation.
            JournalDamaged, UnknownType, SecretMissing, …: it cannot be read.
        """
        journal = journal_for(self.store, self.run_id)
        chain = journal.look()
        if journal.legacy is not None:
            raise self._no_conversation()
        if not chain or journal.tail is None:
            if journal.exists and handed_origin(journal.origin) is not None and not self._seeds:
                raise _Unbegun
            self._seen = None
            return []
        if self._seen is not None and self._seen[0] == journal.tail:
            return self._seen[1]
        state = reading.decode(chain, chain[-1].waypoint, self.store, self.run_id)
        items = state.get("items") if type(state) is dict else None
        if type(items) is not list:
            raise self._no_conversation()
        self._seen = (journal.tail, items)
        return items

    def change(self, make: Callable[[list[Any]], Change | None], goal: str | None = None) -> Any:
        """Write what `make` makes of the newest conversation; runs in a turn.

        Args:
            make: called with the items, which it leaves as they are; None: nothing is written.
                Called again where another process wrote in between.
            goal: what the run is for, if this begins it.

        Returns:
            The result of the change, or None.

        Raises:
            Conflict: others wrote all the time.
            UsageError, UnserialisableState, StoreFailed, …: nothing was written.
        """
        journal = journal_for(self.store, self.run_id)
        until = time.monotonic() + _PATIENCE
        # What this process knows will do: who wrote in between is found out by the append.
        known = self._seen is not None and self._seen[0] == journal.tail
        items = self._seen[1] if known and self._seen is not None else self.items()
        while True:
            change = make(items)
            if change is None and known:
                known, items = False, self.items()
                continue
            if change is None:
                return None
            self._begin(goal)
            state = {"items": change.items, **change.more}
            try:
                journal.checkpoint(journal.prepare(state), change.note)
            except Conflict:
                if time.monotonic() > until:
                    raise
                time.sleep(random.uniform(0, _PAUSE))
                known, items = False, self.items()
                continue
            if journal.tail is not None:
                self._seen = (journal.tail, change.items)
            return change.result

    def say(self, line: str) -> None:
        """Write a line for the live note; runs in a turn. It outlives a kill at once."""
        self._begin(None)
        fields = {"name": "said", "say": Note(line).to_json()}
        journal_for(self.store, self.run_id).add("entry", fields, sync=False)

    def finish(self) -> None:
        """Write that the run came to its end; runs in a turn."""
        questions.end(journal_for(self.store, self.run_id), {"outcome": "finished"})

    def _begin(self, goal: str | None) -> None:
        journal = journal_for(self.store, self.run_id)
        if not journal.exists:
            journal.adapter, journal.framework, journal.goal = ADAPTER, framework(), goal

    def _no_conversation(self) -> UsageError:
        return UsageError(
            f"run {one_line(self.run_id)} in {self.store.where(self.run_id)} holds something else "
            "than a conversation. Give the session, or the hooks, a run_id of their own."
        )
