"""`WaypointSession`: a conversation of the SDK as a run, readable at each step.

Each addition, removal and clearing is a waypoint: `load(run_id, at=3)["items"]` is the history
as it was there, and `fork` makes a session of its own of it.
"""

from __future__ import annotations

import copy
import logging
from typing import TYPE_CHECKING, Any

from agents.memory import SessionSettings

from caravanserai.openai_agents import _conversation
from caravanserai.openai_agents._notebook import Change, Notebook
from caravanserai_core.errors import CaravanseraiError
from caravanserai_core.notes import Note
from caravanserai_core.quoting import code, one_line
from caravanserai_core.words import listed

if TYPE_CHECKING:
    from agents.items import TResponseInputItem
    from agents.run_context import RunContextWrapper

    from caravanserai_core.continuing import Continues
    from caravanserai_core.homes import StoreLike

_log = logging.getLogger("caravanserai")


class WaypointSession:
    """A session of the OpenAI Agents SDK that is kept as a run.

    Any number of threads, tasks and processes may use one session at once: nothing is lost or
    doubled, and what one of them adds stays in its order. It means the same as the SDK's
    `SQLiteSession` (0.20, 0.24), with one exception: the result of a call that is not in the
    history, as an interrupted turn may leave behind, is taken out when the history is next read,
    and a note tells so. Providers refuse a conversation that holds one, so every later turn
    would fail.

    Args:
        run_id: the session's name, any string; it is also the run's.
        store: a store, a folder or URL; by default CARAVANSERAI_STORE, else `.caravanserai` here.
        session_settings: `limit`, the most items that a turn reads; or a dict of that.
        continues: the run that a new session goes on from, of whatever framework: "RUN" or "RUN@3",
            in the same store; or what `handoff()` returned. It begins with that conversation, at
            its first use; what is raised then about that run is raised there.

    Attributes:
        session_id: the name.
        session_settings: the settings.

    Raises:
        InvalidRunId: the name cannot be one.
    """

    session_id: str
    session_settings: SessionSettings | None

    def __init__(
        self,
        run_id: str,
        *,
        store: StoreLike = None,
        session_settings: SessionSettings | dict[str, Any] | None = None,
        continues: Continues = None,
    ) -> None:
        self._notebook = Notebook(run_id, store, continues)
        self.session_id = self._notebook.run_id
        if session_settings is None:
            session_settings = SessionSettings()
        elif isinstance(session_settings, dict):
            session_settings = SessionSettings(**session_settings)
        self.session_settings = session_settings

    def __repr__(self) -> str:
        where = self._notebook.store.where(self.session_id)
        return f"<WaypointSession {self.session_id!r} in {where}>"

    async def get_items(
        self, limit: int | None = None, *, wrapper: RunContextWrapper[Any] | None = None
    ) -> list[TResponseInputItem]:
        """Return the history, oldest first.

        Args:
            limit: the newest so many items; None: as the settings say, else all; a negative one
                is none, as in SQLite.
            wrapper: the context of the run, which is not used.

        Raises:
            UsageError: the run is something else than a conversation.
            JournalDamaged, NewerFormat, SecretMissing, …: it cannot be read.
        """
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        return await self._notebook.later(lambda: self._get(limit))

    async def add_items(
        self, items: list[TResponseInputItem], *, wrapper: RunContextWrapper[Any] | None = None
    ) -> None:
        """Add items behind the others, all of them or none; durable when it returns.

        Args:
            items: what to add; a later change of it does not matter.
            wrapper: the context of the run, which is not used.

        Raises:
            UnserialisableState: an item cannot be kept exactly; nothing was written.
            Conflict: other processes wrote to the session all the time, for half a minute.
            UsageError, StoreFailed, StoreBusy, …: nothing was written.
        """
        added = copy.deepcopy(list(items))
        if added:
            goal = _conversation.goal_of(added)
            await self._notebook.later(lambda: self._notebook.change(_adding(added), goal))

    async def pop_item(
        self, *, wrapper: RunContextWrapper[Any] | None = None
    ) -> TResponseInputItem | None:
        """Remove the newest item and return it; None where there is none.

        Raises:
            Conflict, UsageError, StoreFailed, …: as `add_items`.
        """
        popped = await self._notebook.later(lambda: self._notebook.change(_popping))
        return copy.deepcopy(popped)  # type: ignore[no-any-return]

    async def clear_session(self, *, wrapper: RunContextWrapper[Any] | None = None) -> None:
        """Remove all items. Earlier waypoints keep theirs until they are pruned.

        Raises:
            Conflict, UsageError, StoreFailed, …: as `add_items`.
        """
        await self._notebook.later(lambda: self._notebook.change(_clearing))

    def _get(self, limit: int | None) -> list[Any]:
        items = self._notebook.items()
        if _conversation.orphans(items):
            try:
                self._notebook.change(_mending)
                items = self._notebook.items()
            except CaravanseraiError as problem:
                # The turn that reads it can go on all the same.
                _log.warning(
                    "session %s could not be mended: %s", one_line(self.session_id), problem
                )
            lost = set(_conversation.orphans(items))
            items = [item for place, item in enumerate(items) if place not in lost]
        if limit is not None and limit >= 0:
            items = items[-limit:] if limit else []
        return copy.deepcopy(items)


def _adding(added: list[Any]) -> Any:
    def make(items: list[Any]) -> Change:
        told = _conversation.lines(added, items)
        count = len(added)
        instead = "An item was added." if count == 1 else f"{count} items were added."
        summary, happened = _conversation.story(told, instead)
        history = [*items, *added]
        note = Note(
            summary,
            happened=happened,
            next=[_conversation.upcoming(history)],
            so_far=_conversation.so_far(items),
        )
        return Change(history, note)

    return make


def _popping(items: list[Any]) -> Change | None:
    if not items:
        return None
    rest = items[:-1]
    told = "".join(f" It was: {line}" for line in _conversation.lines(items[-1:], rest))
    note = Note(
        f"The newest item was taken out of the conversation.{told}",
        next=[_conversation.upcoming(rest)],
        so_far=_conversation.so_far(rest),
    )
    return Change(rest, note, items[-1])


def _clearing(items: list[Any]) -> Change | None:
    if not items:
        return None
    count = len(items)
    what = "its one item was" if count == 1 else f"its {count} items were"
    note = Note(
        f"The conversation was cleared: {what} taken out. Earlier waypoints keep them.",
        next=[_conversation.upcoming([])],
        so_far=_conversation.so_far(items),
    )
    return Change([], note)


def _mending(items: list[Any]) -> Change | None:
    lost = _conversation.orphans(items)
    if not lost:
        return None
    one = len(lost) == 1
    results = [items[place] for place in lost]
    ids = listed([code(one_line(str(_conversation.call_id(item)), 60)) for item in results])
    rest = [item for place, item in enumerate(items) if place not in set(lost)]
    note = Note(
        f"The conversation was mended: {'a result' if one else f'{len(lost)} results'} of "
        f"{'a call that is' if one else 'calls that are'} not in it ({ids}) "
        f"{'was' if one else 'were'} taken out. An interrupted turn leaves such results, and a "
        "model provider refuses each later turn because of them. The waypoint before this one "
        "still holds what was taken out.",
        happened=_conversation.lines(results),
        next=[_conversation.upcoming(rest)],
        so_far=_conversation.so_far(rest),
    )
    return Change(rest, note)
