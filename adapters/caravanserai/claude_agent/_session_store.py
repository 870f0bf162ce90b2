"""`WaypointSessionStore`: the SDK's own session store, for those who want no more than that.

Each session is a run, with the notes that all runs have. What a tool did before a crash that left
no trace in the transcript is not known here: the other entry points write that down.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

from claude_agent_sdk import SessionStore, fold_session_summary

from caravanserai.claude_agent import _entries, _facts, _notes, _sdk
from caravanserai.claude_agent._start import ADAPTER, goal_of, standing
from caravanserai.claude_agent._transcripts import Key, Transcripts, of_record, once_each
from caravanserai_core import survey
from caravanserai_core.api import clean
from caravanserai_core.errors import Conflict
from caravanserai_core.homes import store_for
from caravanserai_core.journal import journal_for
from caravanserai_core.listing import runs
from caravanserai_core.names import check_run_id
from caravanserai_core.run import Run, open_run
from caravanserai_core.threads import in_thread, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from claude_agent_sdk import (
        SessionKey,
        SessionListSubkeysKey,
        SessionStoreEntry,
        SessionStoreListEntry,
        SessionSummaryEntry,
    )

    from caravanserai.claude_agent._entries import Entry
    from caravanserai.claude_agent._facts import Fact
    from caravanserai_core.homes import StoreLike
    from caravanserai_core.records import Record
    from caravanserai_core.stores.base import Store

_MOST: Final = 64
"""Sessions that are kept in memory."""


class WaypointSessionStore(SessionStore):
    """A session store of the SDK that keeps each session as a run.

    The run's name is `claude/`, the project's key, a slash, and the session's id.

    Args:
        store: a store, a folder or URL; by default CARAVANSERAI_STORE, else `.caravanserai` here.
    """

    def __init__(self, store: StoreLike = None) -> None:
        self._store = store
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._locks: weakref.WeakKeyDictionary[Any, dict[str, asyncio.Lock]] = (
            weakref.WeakKeyDictionary()
        )

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Keep entries of a transcript, durable; those that are kept already are left out.

        Raises:
            UnserialisableState, StoreFailed, StoreBusy, JournalDamaged: nothing was written. The
                SDK tries again, and then drops them.
        """
        if entries:
            given: list[Any] = list(entries)
            await self._in_order(key, lambda: self._append(key, given))

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Return the entries of a transcript, None where none was ever written."""
        found: list[Any] = await self._in_order(key, lambda: self._read(key))
        return found or None

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """Return the sessions of a project; no transcript is read."""
        return await wait_for(in_thread(lambda: self._listed(project_key)))  # type: ignore[no-any-return]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """Return what the SDK's lists show of the sessions of a project."""
        return await wait_for(in_thread(lambda: self._summaries(project_key)))  # type: ignore[no-any-return]

    async def delete(self, key: SessionKey) -> None:
        """Remove a session for good, or the transcript of one of its subagents."""
        await self._in_order(key, lambda: self._delete(key))

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """Return the paths of the transcripts of a session's subagents."""
        name = _name(key["project_key"], key["session_id"])
        found = await wait_for(in_thread(lambda: self._entries_of(name)))
        return list(dict.fromkeys(one.path for one, _ in found if one.path))

    # ------------------------------------------------------------------ in a thread

    async def _in_order(self, key: SessionKey, work: Callable[[], Any]) -> Any:
        """Do something after all that was begun before it for the same session."""
        locks = self._locks.setdefault(asyncio.get_running_loop(), {})
        name = _name(key["project_key"], key["session_id"])
        async with locks.setdefault(name, asyncio.Lock()):
            return await wait_for(in_thread(work))

    def _append(self, key: SessionKey, entries: list[Entry]) -> None:
        name = _name(key["project_key"], key["session_id"])
        session = self._sessions.get(name)
        if session is None:
            session = self._sessions[name] = _Session(name, key, self._store)
        self._sessions.move_to_end(name)
        try:
            session.take(Key.of(key), entries)
        except Conflict:
            # The entries are kept. Another process writes to the session, and has told of it.
            self._sessions.pop(name, None)
        except BaseException:
            self._sessions.pop(name, None)
            raise
        while len(self._sessions) > _MOST:
            self._sessions.popitem(last=False)

    def _home(self, name: str) -> Store:
        return store_for(check_run_id(name), self._store)

    def _records(self, name: str) -> list[Record]:
        home = self._home(name)
        # What this process has queued is written first.
        journal_for(home, name).turns.do(lambda: None)
        return list(survey.records(home, name, bodies=True))

    def _entries_of(self, name: str) -> list[tuple[Key, list[Entry]]]:
        return [found for record in self._records(name) if (found := of_record(record))]

    def _read(self, key: SessionKey) -> list[Entry]:
        mine = Key.of(key)
        found = self._entries_of(_name(key["project_key"], key["session_id"]))
        return once_each(entry for one, entries in found if one == mine for entry in entries)

    def _listed(self, project_key: str) -> list[SessionStoreListEntry]:
        begins = _name(project_key, "")
        return [
            {
                "session_id": info.run_id.removeprefix(begins),
                "mtime": int(info.updated.timestamp() * 1000),
            }
            for info in runs(self._home(begins + "-"))
            if info.run_id.startswith(begins)
            and "/" not in info.run_id.removeprefix(begins)
            and info.adapter == ADAPTER
            and info.updated is not None
        ]

    def _summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        summaries: list[SessionSummaryEntry] = []
        for listed in self._listed(project_key):
            id_ = listed["session_id"]
            key: SessionKey = {"project_key": project_key, "session_id": id_}
            summary: SessionSummaryEntry | None = None
            for one, entries in self._entries_of(_name(project_key, id_)):
                if not one.path:
                    given: list[Any] = list(entries)
                    summary = fold_session_summary(summary, key, given)
            if summary is not None:
                summaries.append({**summary, "mtime": listed["mtime"]})
        return summaries

    def _delete(self, key: SessionKey) -> None:
        mine, name = Key.of(key), _name(key["project_key"], key["session_id"])
        self._sessions.pop(name, None)
        if not mine.path:
            clean(name, store=self._store)
        elif any(one == mine for one, _ in self._entries_of(name)):
            run = open_run(name, store=self._store, adapter=ADAPTER)
            run.compact(lambda record: _stays(record, mine))


class _Session:
    """A session while this process writes to it."""

    def __init__(self, name: str, key: SessionKey, store: StoreLike) -> None:
        self._id = key["session_id"]
        home = store_for(check_run_id(name), store)
        journal_for(home, name).framework = _sdk.framework()
        self._run: Run = open_run(name, store=store, adapter=ADAPTER)
        self._kept = Transcripts(self._run)
        self._calls: dict[str, tuple[str, dict[str, Any]]] = {}
        known = self._run.state
        if known is None:
            self._tree = _facts.begun(name, _sdk.sdk_version(), None)
            self._tree["session"] |= {"id": self._id, "number": 1}
            self._tree["alone"] = True  # it is no run that a program starts
        else:
            self._tree = standing(self._run, known, self._run.waypoint)
        # What came since the newest waypoint.
        new: list[Entry] = []
        for entry in self._run.entries():
            if entry.name == "transcript" and not entry.data["path"]:
                new += entry.data["entries"]
        self._fold(new)

    def take(self, key: Key, entries: list[Entry]) -> None:
        """Keep entries, and write a waypoint where a turn ends with them."""
        new = self._kept.new(key, entries)
        if not new:
            return
        journal = self._run._journal
        if not journal.exists:
            asked = next((said for entry in new if (said := _entries.asks(entry))), None)
            journal.goal = goal_of(asked) if asked else None
        self._kept.keep(key, new, durable=True)
        if key.path:
            return
        self._fold(new)
        if _entries.ends_turn(new):
            self._waypoint()

    def _fold(self, entries: list[Entry]) -> None:
        for entry in entries:
            for fact in self._facts_of(entry):
                _facts.take(self._tree, fact)
        self._tree["session"]["last"] = _entries.last_said(entries) or self._tree["session"]["last"]

    def _facts_of(self, entry: Entry) -> list[Fact]:
        folder = entry.get("cwd")
        found: list[Fact] = [{"what": "session", "cwd": folder}] if folder else []
        if asked := _entries.asks(entry):
            found.append({"what": "prompt", "text": _facts.text(asked)})
        for call in _entries.calls([entry]):
            self._calls[str(call.get("id"))] = (
                str(call.get("name")),
                dict(call.get("input") or {}),
            )
        if entry.get("type") == "assistant":
            texts = [b.get("text") for b in _entries.blocks(entry) if b.get("type") == "text"]
            if said := "\n".join(text for text in texts if isinstance(text, str)).strip():
                found.append({"what": "said", "text": _facts.text(said)})
        for result in _entries.results([entry]):
            tool, given = self._calls.pop(result.id, ("a tool", {}))
            fact = _facts.tool_fact(tool, given, result=result.text, failed=result.failed)
            found.append(fact)
        return found

    def _waypoint(self) -> None:
        tree = self._tree
        tree["at"] = "turn"
        tree["session"]["entries"] = self._kept.counts.get(Key(self._id), 0)
        note = _notes.note(tree, resumed=False)
        number = self._run.checkpoint(tree, note, meta={"at": "turn", "session": self._id})
        self._run.waypoint = number
        tree["so_far"] = _notes.so_far(tree["so_far"], number, _notes.line(tree))
        _facts.new(tree)


def _name(project_key: str, session_id: str) -> str:
    # In front of it, since the key of a project begins with a hyphen.
    return f"claude/{project_key}/{session_id}"


def _stays(record: Record, gone: Key) -> bool | None:
    found = of_record(record) if record.kind == "entry" else None
    if found is None:
        return None if record.kind == "entry" else True
    return found[0] != gone
