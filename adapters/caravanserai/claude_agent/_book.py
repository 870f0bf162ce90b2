"""The run of a session, as it is written: facts, ends of calls, waypoints."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from claude_agent_sdk import ResultMessage

from caravanserai.claude_agent import _entries, _facts, _git, _notes, _sdk, _telling
from caravanserai.claude_agent._calls import Calls
from caravanserai.claude_agent._facts import shown
from caravanserai.claude_agent._transcripts import Key
from caravanserai_core import codec, questions
from caravanserai_core.errors import (
    CaravanseraiError,
    UnserialisableState,
)
from caravanserai_core.quoting import one_line
from caravanserai_core.threads import in_thread, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from caravanserai.claude_agent._facts import Fact, Tree
    from caravanserai.claude_agent._options import Options
    from caravanserai.claude_agent._transcripts import Transcripts
    from caravanserai_core.journal import Journal
    from caravanserai_core.run import Run

_log = logging.getLogger("caravanserai")

FACT: Final = "fact"
"""Name of the journal's entries that hold a fact; see `_facts`."""

_WORDS: Final = frozenset(
    {
        *("arguments", "command", "error", "query", "reason"),
        *("result", "said", "summary", "task", "text"),
    }
)
"""Members of facts that hold foreign words."""


def tell_who_waits(journal: Journal) -> None:
    """Say that the run waits for a person, and how it is answered. Runs in the run's turn."""
    if journal.ledger.open:
        _log.warning("%s", questions.waiting(journal))


def kept_result(message: ResultMessage) -> dict[str, Any]:
    """Return a result as it is kept: without what cannot be written down."""
    tree = _sdk.result_tree(message)
    texts: dict[str, Any] = dict.fromkeys(("permission_denials", "errors", "structured_output"))
    for less in ({}, texts, {"result": _entries.WITHHELD}):
        tree |= less
        try:
            codec.encode(tree)
        except UnserialisableState:
            continue
        break
    return tree


class Book:
    """What is known of a session, and how it is written down.

    Args:
        run: the run.
        options: how it is kept.
        tree: the state of its next waypoint, as far as it is known.
        transcripts: its transcripts.
        follows: the messages of the session are shown to `see`.
        resumed: the start before was cut off.

    Attributes:
        calls: the calls of tools.
        escaping: errors of ours that were raised inside of the program's own tools.
        sent: what is asked in the name of the run: no person's prompt.
        asked: what the program asks, as far as that is known here.
        heard: what of that was taken up since the last result.
        lead: what stands in front of the first prompt of a session that is new, until the CLI has
            taken it up: it is no part of what is asked.
        context: what the model is told beside the next prompt, once.
        untold: what it is going to be told of a session that was cut off, in one of the two.
        reason: what ends the start, None: nothing does.
        left: set once something does; the CLI may say nothing more then.
        replayed: a call that waited for a person, and whose result the CLI is going to drop.
    """

    def __init__(
        self,
        run: Run,
        options: Options,
        tree: Tree,
        transcripts: Transcripts,
        *,
        follows: bool,
        resumed: bool,
    ) -> None:
        self._run = run
        self._options = options
        self.tree = tree
        self._transcripts = transcripts
        self._follows = follows
        self._resumed = resumed
        self._told: set[str] = set()  # ids of calls that an event told of
        self._sent: list[tuple[str, str]] = []  # subagents that are about to begin: type and task
        self._begun: dict[str, tuple[str, Mapping[str, Any], str | None]] = {}
        # Ids of the calls of a batch whose results the transcript does not have yet.
        self._batches: list[set[str]] = []
        self._seen: dict[str, str] = {}
        self._ends_with: str | None = None
        self._shortened = False
        self._sizes: dict[str, int] | None = None  # of a conversation that was shortened
        self._pauses = False
        self._hooked = False
        self._changed = True  # files may have, since the newest waypoint
        self.calls = Calls(run._journal, options, run.handoff)
        self.escaping: list[CaravanseraiError] = []
        self.sent = ""
        self.asked: list[str] = []
        self.heard: list[str] = []
        self.submitted = False
        self.lead = ""
        self.context = ""
        self.untold = ""
        self.reason: Exception | None = None
        self.left = asyncio.Event()
        self._writing = asyncio.Lock()
        self.replayed: str | None = None

    # ------------------------------------------------------------------ what ends the start

    def leave(self, error: Exception) -> None:
        """Note what ends the start, whatever the CLI makes of it."""
        if self.reason is None:
            self.reason = error
            self.left.set()
            _log.warning("run %s stops: %s", one_line(self._run.run_id), one_line(str(error), 500))

    # ------------------------------------------------------------------ facts

    async def _note(self, fact: Fact) -> None:
        try:
            codec.encode(fact)
        except UnserialisableState:
            fact = {
                name: _entries.WITHHELD if isinstance(value, str) and name in _WORDS else value
                for name, value in fact.items()
                if name != "given"
            }
        _facts.take(self.tree, fact)
        say = _telling.live(fact, self.tree)
        await self._run.aentry(FACT, fact, say=say, durable=False)

    async def _note_end(self, fact: Fact, end: Callable[[], Any]) -> Any:
        """Note that a call ended, and write down its end: no waypoint comes in between.

        The fact is first, since it has the result: a call that has ended is never made again.
        """
        try:
            note = self._run._entry(FACT, fact, None, "", None, False)
        except UnserialisableState:
            # It can be written in no form, and what was done has to be.
            fact |= dict.fromkeys(("result", "whole"), _entries.WITHHELD)
            note = self._run._entry(FACT, fact, None, "", None, False)
        _facts.take(self.tree, fact)
        return await self._run._later(lambda: (note(), end())[1])

    async def _turn(self, work: Callable[[], Any]) -> Any:
        """Do something in its turn of the run's queue."""
        return await wait_for(in_thread(lambda: self._run._journal.turns.do(work)))

    # ------------------------------------------------------------------ waypoints

    async def turn_ended(
        self,
        message: ResultMessage,
        *,
        last: bool = False,
        paused: ResultMessage | None = None,
        over: bool = True,
    ) -> None:
        """Write the waypoint at the end of a turn.

        Args:
            message: its result.
            last: the run ends with it.
            paused: the result that told that the session waits for a person, this or an earlier
                one; None: it does not.
            over: the turn is what was asked, and none that the CLI tidied up with.

        Raises:
            CaravanseraiError: it could not be written.
        """
        if message.total_cost_usd is not None:
            await self._note({"what": "cost", "total": message.total_cost_usd})
        if message.is_error:
            told = message.result or "; ".join(message.errors or []) or message.subtype
            await self._note({"what": "failed", "error": _facts.text(told, 300)})
        deferred = message.deferred_tool_use
        if deferred is not None and self.calls.is_open(deferred.id):
            # By a hook of the program's own: it has not begun.
            await self._turn(lambda: self.calls.end(deferred.id, None, paused=True))
            fact = {"what": "deferred", "id": deferred.id, "tool": deferred.name}
            await self._note({**fact, "arguments": shown(deferred.input)})
        if paused is None:
            # Of a command such as /clear there is none.
            self.tree["said"] = _facts.text(message.result) if message.result else None
        if over and paused is None and not message.is_error:
            _facts.turn_over(self.tree)
        if paused is not None:
            self.tree["result"] = kept_result(paused)
            await self.waypoint("pause")
            await self._turn(lambda: tell_who_waits(self._run._journal))
        elif last:
            self.tree["result"] = kept_result(message)
            await self.waypoint("end")
        else:
            self.tree["result"] = None
            await self.waypoint("turn")

    async def waypoint(self, at: str, anchor: str = "") -> None:
        """Write a waypoint.

        Args:
            at: where the session stands: begin, batch, compaction, pause, turn or end.
            anchor: the entry of the transcript that it stands at; "" for the newest.
        """
        async with self._writing:  # one after the other: each stands behind the one before
            await self._write_waypoint(at, anchor)

    async def _write_waypoint(self, at: str, anchor: str) -> None:
        tree = self.tree
        git = tree["git"]
        if self._changed:
            self._changed = False
            git = await wait_for(in_thread(lambda: _git.anchor(tree["session"]["cwd"])))
        session = tree["session"]
        newest = session["last"]
        tree["at"], tree["git"] = at, git
        session["last"] = anchor or newest
        session["entries"] = self._transcripts.counts.get(Key(session["id"] or ""), 0)
        note = _notes.note(tree, resumed=self._resumed)
        meta = {"at": at, "session": session["id"], "entry": session["last"]}
        # It is encoded here, before anything else happens.
        saving = self._run.acheckpoint(tree, note, meta=meta)
        line = _notes.line(tree)
        session["last"] = newest
        _facts.new(tree)
        self._resumed = False
        if at in ("pause", "turn", "end"):
            self._shortened, self._sizes = False, None
            self._batches.clear()
            self._seen.clear()
            self._told.clear()
            self._sent.clear()
        number = self._run.waypoint = await saving
        tree["so_far"] = _notes.so_far(tree["so_far"], number, line)
