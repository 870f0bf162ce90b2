"""The transcripts of a run's sessions: kept as entries of its journal, verbatim, each once."""

from __future__ import annotations

import logging
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from caravanserai.claude_agent import _entries
from caravanserai.claude_agent.retention import ENTRIES
from caravanserai_core import codec, reading, survey
from caravanserai_core.errors import UnserialisableState
from caravanserai_core.quoting import one_line
from caravanserai_core.threads import in_thread, wait_for

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from claude_agent_sdk import SessionKey

    from caravanserai.claude_agent._entries import Entry
    from caravanserai_core.records import Record
    from caravanserai_core.work import Work


_log = logging.getLogger("caravanserai")


class Key(NamedTuple):
    """A transcript of a run.

    Attributes:
        session: id of the session.
        path: "" for its own transcript, `subagents/agent-…` for that of a subagent.
    """

    session: str
    path: str = ""

    @classmethod
    def of(cls, key: SessionKey) -> Key:
        """Return the transcript that the SDK means, whatever folder it was begun in."""
        return cls(key["session_id"], key.get("subpath") or "")


class Transcripts:
    """The transcripts of a run.

    Args:
        run: the run, open.

    Attributes:
        counts: how many entries are kept, by transcript.
        answered: the calls whose results are kept; whether the tool itself gave them.
    """

    def __init__(self, run: Work) -> None:
        self._run = run
        self._known: dict[Key, set[str]] = defaultdict(set)
        self._cut: dict[Key, str] = {}
        self.counts: dict[Key, int] = {}
        self.answered: dict[str, bool] = {}
        for key, entries in self._stored():
            self._count(key, entries)

    def _stored(self) -> Iterator[tuple[Key, list[Entry]]]:
        run = self._run
        for record in survey.records(run.store, run.run_id, bodies=True):
            found = of_record(record)
            if found is not None:
                yield found

    def _count(self, key: Key, entries: list[Entry]) -> None:
        self.counts[key] = self.counts.get(key, 0) + len(entries)
        self._known[key] |= {uuid for entry in entries if (uuid := _entries.uuid_of(entry))}
        for result in _entries.results(entries):
            self.answered[result.id] = _entries.is_told(result)

    def begin_at(self, session: str, uuid: str) -> None:
        """Let a session be read up to one of its entries: what a fork begins with."""
        self._cut[Key(session)] = uuid

    def has(self, session: str) -> bool:
        """Say whether anything that was said in a session is kept."""
        return bool(self._known.get(Key(session)))

    def knows(self, key: Key) -> frozenset[str]:
        """Return the ids of the entries that are kept."""
        return frozenset(self._known.get(key, ()))

    def paths(self, session: str) -> list[str]:
        """Return the paths of the transcripts of a session's subagents."""
        return [key.path for key in self.counts if key.session == session and key.path]

    def read(self, key: Key) -> list[Entry]:
        """Return all entries of a transcript, in their order."""
        found = once_each(
            entry for one, entries in self._stored() if one == key for entry in entries
        )
        cut = self._cut.get(key)
        if cut is not None:
            ends = [n for n, entry in enumerate(found, 1) if _entries.uuid_of(entry) == cut]
            found = found[: ends[-1]] if ends else found
        return found

    def new(self, key: Key, entries: list[Entry]) -> list[Entry]:
        """Return the entries that are not kept yet.

        The SDK gives entries again when an append took too long; those without an id are lines
        that say the same twice.
        """
        known = self._known[key]
        return [entry for entry in entries if _entries.uuid_of(entry) not in known]

    def keep(self, key: Key, entries: list[Entry], *, durable: bool = False) -> None:
        """Write entries down; see `Work.entry`."""
        new = self.new(key, entries)
        if new:
            try:
                self._run.entry(ENTRIES, _data(key, new), durable=durable)
            except UnserialisableState as error:
                self._run.entry(ENTRIES, _data(key, self._without(new, error)), durable=durable)
            self._count(key, new)

    def _without(self, entries: list[Entry], error: UnserialisableState) -> list[Entry]:
        """Return entries with words in the place of those that cannot be kept exactly.

        To refuse them would leave the session without its further course.
        """
        _log.warning(
            "run %s: a part of the transcript is not kept: %s A session that is resumed from the "
            "CLI's own file has it, one from the run's copy is told that it is missing.",
            one_line(self._run.run_id),
            one_line(str(error), 300),
        )
        return [_entries.withheld(one) if _is_refused(one) else one for one in entries]

    async def akeep(self, key: Key, entries: list[Entry]) -> list[Entry]:
        """Write entries down from async code; returns those that were new.

        They survive the end of the process, and are durable with the next waypoint or intent.
        """
        new = self.new(key, entries)
        if new:
            try:
                await self._run.aentry(ENTRIES, _data(key, new), durable=False)
            except UnserialisableState as error:
                kept = _data(key, self._without(new, error))
                await self._run.aentry(ENTRIES, kept, durable=False)
            self._count(key, new)
        return new


def _is_refused(entry: Entry) -> bool:
    try:
        codec.encode(entry)
    except UnserialisableState:
        return True
    return False


def once_each(entries: Iterable[Entry]) -> list[Entry]:
    """Return entries without those that came again, from another process maybe."""
    found: list[Entry] = []
    seen: set[str] = set()
    for entry in entries:
        uuid = _entries.uuid_of(entry)
        if not uuid or uuid not in seen:
            seen.add(uuid)
            found.append(entry)
    return found


def of_record(record: Record) -> tuple[Key, list[Entry]] | None:
    """Return which transcript a record of the journal continues, and how; None: none."""
    if record.kind != "entry" or record.head.get("name") != ENTRIES:
        return None
    data = reading.data_of(record)
    return Key(data["session"], data["path"]), data["entries"]


def _data(key: Key, entries: list[Entry]) -> dict[str, Any]:
    return {"session": key.session, "path": key.path, "entries": entries}


class RunSessionStore:
    """The SDK's session store for one run: it knows the run's sessions, in whatever folder.

    Args:
        transcripts: those of the run.
        mirrored: called with the entries that were new.
        failed: called with what went wrong; the SDK itself drops a batch in silence.

    Attributes:
        local: the sessions that the CLI resumes from its own disk: they are the same there.
    """

    def __init__(
        self,
        transcripts: Transcripts,
        mirrored: Callable[[Key, list[Entry]], Awaitable[None]],
        failed: Callable[[Exception], None],
    ) -> None:
        self._transcripts = transcripts
        self._mirrored = mirrored
        self._failed = failed
        self.local: set[str] = set()

    async def append(self, key: SessionKey, entries: list[Any]) -> None:
        """Keep entries that the CLI wrote."""
        mine = Key.of(key)
        try:
            new = await self._transcripts.akeep(mine, entries)
        except Exception as error:
            self._failed(error)
            raise
        await self._mirrored(mine, new)

    async def load(self, key: SessionKey) -> list[Any] | None:
        """Return the entries of a transcript, None where there is none to be read from here."""
        mine = Key.of(key)
        if mine.session in self.local:
            return None
        return await wait_for(in_thread(lambda: self._transcripts.read(mine))) or None

    async def list_subkeys(self, key: Any) -> list[str]:
        """Return the paths of the transcripts of a session's subagents."""
        return self._transcripts.paths(key["session_id"])
