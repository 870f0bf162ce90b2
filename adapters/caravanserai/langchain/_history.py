"""A chat's history as a run: for chains under `RunnableWithMessageHistory`, which are no graphs.

Each addition and clearing is a waypoint: `load(run_id, at=3)["messages"]` is the history as it
was there, and `fork` makes a history of its own of it. Nobody owns the run: a web server has many
workers. So no lease is taken; each change is made of the newest state, in the run's turn, and made
again where another process wrote in between.
"""

from __future__ import annotations

import copy
import random
import time
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.messages import BaseMessage

from caravanserai.langchain import _telling
from caravanserai.langchain._handing import messages_from
from caravanserai.langchain._messages import register
from caravanserai_core import continuing, schema
from caravanserai_core.errors import Conflict, UsageError
from caravanserai_core.homes import store_for
from caravanserai_core.importing import refuse_work
from caravanserai_core.journal import journal_for
from caravanserai_core.names import check_run_id
from caravanserai_core.notes import Note
from caravanserai_core.quoting import code, one_line
from caravanserai_core.threads import in_thread, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from caravanserai_core.handed import Handoff
    from caravanserai_core.homes import StoreLike
    from caravanserai_core.schema import Migrations
    from caravanserai_core.stores.base import Tail

    Messages = list[BaseMessage]

__all__ = ["WaypointChatMessageHistory"]

_ADAPTER: Final = "langchain"

_PATIENCE: Final = 30.0
"""Seconds for which a change is made again where others write all the time."""

_PAUSE: Final = 0.004
"""Seconds at most between two tries; at random, so that two writers do not keep meeting."""


@cache
def _framework() -> str:
    return f"LangChain {version('langchain-core')}"


class _Change(NamedTuple):
    """What is to be written.

    Attributes:
        messages: the history behind it.
        note: what happened.
    """

    messages: Messages
    note: Note


class WaypointChatMessageHistory(BaseChatMessageHistory):
    """The messages of a chat, kept as a run.

        chain = RunnableWithMessageHistory(prompt | model, WaypointChatMessageHistory)

    Any number of threads, tasks and processes may use one history at once: nothing is lost or
    doubled, and what one call of `add_messages` adds stays together.

    Args:
        session_id: the chat's name, any string; it is also the run's.
        run_id: the same under the name that it has everywhere here; give one of them.
        store: a store, a folder or URL; by default CARAVANSERAI_STORE, else `.caravanserai` here.
        schema: the schema of the messages that this program writes, from 1; by default one more
            than there are migrations.
        migrations: one function for each step from schema to schema, of `{"messages": [...]}`; the
            last one leads to `schema`. See docs/guarantees/versions.md.
        continues: the run that a new run goes on from, of whatever framework: "RUN" or "RUN@3", in
            the same store; or what `handoff()` returned.

    Attributes:
        session_id: the name.
        run_id: the same.

    Raises:
        InvalidRunId: the name cannot be one.
        UsageError: no name is given, or two; `schema` and `migrations` do not fit together.
    """

    session_id: str
    run_id: str

    def __init__(
        self,
        session_id: str | None = None,
        *,
        run_id: str | None = None,
        store: StoreLike = None,
        schema: int | None = None,
        migrations: Migrations = (),
        continues: str | Handoff | None = None,
    ) -> None:
        if (session_id is None) == (run_id is None):
            raise UsageError("a chat has one name: give session_id=, or run_id=, which is the same")
        self.run_id = self.session_id = check_run_id(run_id if session_id is None else session_id)
        refuse_work(self.run_id)
        register()
        self._store = store_for(self.run_id, store)
        self._schema = _declared(schema, migrations)
        self._continues = continues
        self._opened = False
        # The end of the journal and the messages as they were there; used in the run's turns only.
        self._seen: tuple[Tail, Messages] | None = None

    def __repr__(self) -> str:
        where = self._store.where(self.run_id)
        return f"<WaypointChatMessageHistory {self.run_id!r} in {where}>"

    # ------------------------------------------------------------------ LangChain's methods

    @property
    def messages(self) -> Messages:  # type: ignore[override]
        """The messages, oldest first: copies, whoever wrote them.

        Raises:
            UsageError: the run is something else than a chat.
            InputChanged, RunNotFound, RunBusy: see `continues`.
            SchemaMismatch, JournalDamaged, SecretMissing, …: it cannot be read.
        """
        self._open()
        found: Messages = self._turn(self._read)
        return copy.deepcopy(found)

    async def aget_messages(self) -> Messages:
        """Return `messages`, from async code."""
        found: Messages = await wait_for(in_thread(lambda: self.messages))
        return found

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Add messages behind the others, all of them or none; durable when it returns.

        Args:
            messages: what to add; a later change of it does not matter.

        Raises:
            UnserialisableState: a message cannot be kept exactly; nothing was written.
            Conflict: other processes wrote to the chat all the time, for half a minute.
            UsageError, StoreFailed, StoreBusy, …: nothing was written.
        """
        added = _checked(messages)
        if added:
            self._open()
            goal = _telling.goal_of(added)
            self._turn(lambda: self._change(lambda before: _adding(before, added), goal))

    async def aadd_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Add messages from async code; see `add_messages`. Cancelling it does not undo it."""
        added = _checked(messages)
        await wait_for(in_thread(lambda: self.add_messages(added)))

    def clear(self) -> None:
        """Remove all messages. Earlier waypoints keep theirs until they are pruned.

        Raises:
            Conflict, UsageError, StoreFailed, …: as `add_messages`.
        """
        self._open()
        self._turn(lambda: self._change(_clearing))

    async def aclear(self) -> None:
        """Remove all messages, from async code; see `clear`."""
        await wait_for(in_thread(self.clear))

    # ------------------------------------------------------------------ what is recorded

    def _turn(self, work: Callable[[], Any]) -> Any:
        return journal_for(self._store, self.run_id).turns.do(work)

    def _open(self) -> None:
        """Let a new run begin with what it goes on from; once."""
        if self._opened:
            return
        journal = journal_for(self._store, self.run_id)
        chain = journal.turns.do(journal.look)
        if not journal.exists:
            self._turn(lambda: self._begin(None))
        handed = None
        if self._continues is not None:
            handed = continuing.begin(journal, self._continues)
        elif chain is not None and not chain:
            handed = continuing.handed_to(journal)  # killed before its first waypoint
        if handed is not None:
            found = handed
            self._turn(lambda: self._seed(found))
        self._opened = True

    def _seed(self, handed: Handoff) -> None:
        """Write the first waypoint of a run that goes on from another one, if it has none."""
        added = messages_from(handed)

        def make(before: Messages) -> _Change | None:
            if before or journal_for(self._store, self.run_id).number():
                return None
            count = len(added) - 1
            what = "one message" if count == 1 else f"{count} messages"
            source = code(one_line(handed.source, 100))
            note = Note(
                f"The chat begins with what {source} left: {what}, and one that tells the rest.",
                next=[_telling.upcoming(added)],
                so_far=_telling.so_far(added[:-1]),
            )
            return _Change(added, note)

        self._change(make)

    def _read(self) -> Messages:
        """Return the newest messages, to be read only; in a turn."""
        journal = journal_for(self._store, self.run_id)
        chain = journal.look()
        if journal.legacy is not None:
            raise self._no_chat()
        if not chain or journal.tail is None:
            self._seen = None
            return []
        if self._seen is not None and self._seen[0] == journal.tail:
            return self._seen[1]
        number = chain[-1].waypoint
        state = schema.decode(chain, number, self._store, self.run_id, self._schema)
        messages = state.get("messages") if type(state) is dict else None
        if type(messages) is not list or not all(isinstance(m, BaseMessage) for m in messages):
            raise self._no_chat()
        self._seen = (journal.tail, messages)
        return messages

    def _change(self, make: Callable[[Messages], _Change | None], goal: str | None = None) -> None:
        """Write what `make` makes of the newest messages; in a turn.

        Args:
            make: called with the messages, which it leaves as they are; None: nothing is written.
                Called again where another process wrote in between.
            goal: what the run is for, if this begins it.
        """
        journal = journal_for(self._store, self.run_id)
        until = time.monotonic() + _PATIENCE
        while True:
            change = make(self._read())
            if change is None:
                return
            if not journal.exists:
                self._begin(goal)
            journal.schema = self._schema
            try:
                journal.checkpoint(journal.prepare({"messages": change.messages}), change.note)
            except Conflict:
                if time.monotonic() > until:
                    raise
                time.sleep(random.uniform(0, _PAUSE))
                continue
            if journal.tail is not None:
                self._seen = (journal.tail, change.messages)
            return

    def _begin(self, goal: str | None) -> None:
        journal = journal_for(self._store, self.run_id)
        journal.adapter, journal.framework, journal.goal = _ADAPTER, _framework(), goal

    def _no_chat(self) -> UsageError:
        return UsageError(
            f"run {one_line(self.run_id)} in {self._store.where(self.run_id)} holds something else "
            "than a list of messages. Give the chat a name of its own."
        )


def _declared(number: int | None, migrations: Migrations) -> schema.Schema:
    return schema.declared(number, migrations) or schema.FIRST


def _checked(messages: Sequence[BaseMessage]) -> Messages:
    added = list(messages)
    for message in added:
        if not isinstance(message, BaseMessage):
            raise UsageError(
                f"a chat's history holds messages of LangChain, not {type(message).__name__}: "
                'HumanMessage("…")'
            )
    return copy.deepcopy(added)


def _adding(before: Messages, added: Messages) -> _Change:
    told = _telling.lines(added, before)
    instead = f"{len(added)} messages were added." if len(added) > 1 else "A message was added."
    summary, happened = _telling.story(told, instead)
    history = [*before, *added]
    note = Note(
        summary,
        happened=happened,
        next=[_telling.upcoming(history)],
        so_far=_telling.so_far(before),
    )
    return _Change(history, note)


def _clearing(before: Messages) -> _Change | None:
    if not before:
        return None
    what = "its one message was" if len(before) == 1 else f"its {len(before)} messages were"
    note = Note(
        f"The chat was cleared: {what} taken out. Earlier waypoints keep them.",
        next=[_telling.upcoming([])],
        so_far=_telling.so_far(before),
    )
    return _Change([], note)
