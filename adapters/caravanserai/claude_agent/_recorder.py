"""What a session does, written down as it happens: hooks, mirrored transcript, messages.

The hook in front of a tool is a barrier: the tool does not begin before the intent is durable, and
not at all where it cannot be written, or where nobody is there to answer the hook any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from claude_agent_sdk import AssistantMessage, ResultMessage, SystemMessage, TextBlock, ToolUseBlock

from caravanserai.claude_agent import _entries, _facts, _git, _notes, _processes, _sdk, _telling
from caravanserai.claude_agent._calls import Calls, Deferred, Ended, Given, Refused, digest_of
from caravanserai.claude_agent._events import (
    answer,
    arguments_of,
    deny,
    planned,
    refused_fact,
    seen_in,
    text_of,
)
from caravanserai.claude_agent._facts import shown
from caravanserai.claude_agent._options import HARMLESS
from caravanserai.claude_agent._transcripts import Key, RunSessionStore
from caravanserai_core import codec, questions
from caravanserai_core.errors import (
    CaravanseraiError,
    UnserialisableState,
    UsageError,
    WaitingForPerson,
)
from caravanserai_core.quoting import one_line
from caravanserai_core.redact import beginning, redact
from caravanserai_core.threads import in_thread, wait_for

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from claude_agent_sdk import Message

    from caravanserai.claude_agent._entries import Entry
    from caravanserai.claude_agent._facts import Fact, Tree
    from caravanserai.claude_agent._options import Options
    from caravanserai.claude_agent._transcripts import Transcripts
    from caravanserai_core.journal import Journal
    from caravanserai_core.run import Run

    Hook = Callable[[Any, str | None, Any], Awaitable[dict[str, Any]]]

_log = logging.getLogger("caravanserai")

FACT: Final = "fact"
"""Name of the journal's entries that hold a fact; see `_facts`."""

_WHOLE: Final = 50_000
"""Most characters of a result that are kept beside the transcript."""

_WORDS: Final = frozenset(
    {
        *("arguments", "command", "error", "query", "reason"),
        *("result", "said", "summary", "task", "text"),
    }
)
"""Members of facts that hold foreign words."""

_PLANNING: Final = frozenset({"TodoWrite", "TaskCreate", "TaskUpdate"})


def tell_who_waits(journal: Journal) -> None:
    """Say that the run waits for a person, and how it is answered. Runs in the run's turn."""
    if journal.ledger.open:
        _log.warning("%s", questions.waiting(journal))


def _is_of_a_model(message: Message) -> bool:
    """Say whether a message tells that a model was asked; the CLI has messages of its own."""
    if isinstance(message, AssistantMessage):
        return any(isinstance(block, ToolUseBlock) for block in message.content)
    return isinstance(message, ResultMessage) and message.duration_api_ms > 0


def _kept(message: ResultMessage) -> dict[str, Any]:
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


class Recorder:
    """Writes down what a session does.

    Args:
        run: the run.
        options: how it is kept.
        tree: the state of its next waypoint, as far as it is known.
        transcripts: its transcripts.
        follows: the messages of the session are shown to `see`.
        resumed: the start before was cut off.

    Attributes:
        calls: the calls of tools.
        store: the session store to be given to the SDK.
        escaping: errors of ours that were raised inside of the program's own tools.
        sent: what is asked in the name of the run: no person's prompt.
        asked: what the program asks, as far as that is known here.
        heard: what of that was taken up since the last result.
        context: what the model is told beside the next prompt, once.
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
        self._pauses = False
        self._hooked = False
        self._changed = True  # files may have, since the newest waypoint
        self.calls = Calls(run._journal, options)
        self.store = RunSessionStore(transcripts, self._mirrored, self.leave)
        self.escaping: list[CaravanseraiError] = []
        self.sent = ""
        self.asked: list[str] = []
        self.heard: list[str] = []
        self.submitted = False
        self.context = ""
        self.reason: Exception | None = None
        self.left = asyncio.Event()
        self.replayed: str | None = None

    # ------------------------------------------------------------------ what ends the start

    def leave(self, error: Exception) -> None:
        """Note what ends the start, whatever the CLI makes of it."""
        if self.reason is None:
            self.reason = error
            self.left.set()
            _log.warning("run %s stops: %s", one_line(self._run.run_id), one_line(str(error), 500))

    def _stopping(self) -> dict[str, Any]:
        """Return what a hook answers where the session is to end."""
        return {
            "continue_": False,
            "stopReason": f"Stopped: {one_line(redact(str(self.reason)), 300)}",
        }

    # ------------------------------------------------------------------ hooks

    @property
    def hooks(self) -> dict[str, Hook]:
        """What is called at which event of the CLI."""
        events = {
            "UserPromptSubmit": self._prompt,
            "PreToolUse": self._before_tool,
            "PostToolUse": self._after_tool,
            "PostToolUseFailure": self._after_failure,
            # Not in the SDK's list of names; it passes all through (0.2.189).
            "PostToolBatch": self._after_batch,
            "TaskCreated": self._task_created,
            "SubagentStart": self._agent_begins,
            "SubagentStop": self._agent_ends,
            "PostCompact": self._after_compaction,
            "Stop": self._turn_ends,
            "StopFailure": self._turn_fails,
        }
        return {name: self._guarded(name, hook) for name, hook in events.items()}

    def _guarded(self, name: str, hook: Callable[[Any], Awaitable[dict[str, Any] | None]]) -> Hook:
        """Return a hook after which nothing more begins where something could not be written."""

        async def guarded(given: Any, _id: str | None, _context: Any) -> dict[str, Any]:
            self._hooked = True
            try:
                if self.reason is None:
                    await self._in_session(given)
                    said = await hook(given)
                    if self.escaping:
                        self.leave(self.escaping[0])
                    if self.reason is None:
                        return said or {}
            except CaravanseraiError as error:
                self.leave(error)
            told = self._stopping()
            return {**told, **deny(told["stopReason"])} if name == "PreToolUse" else told

        return guarded

    async def _in_session(self, given: Mapping[str, Any]) -> None:
        """Note which session this is: the CLI may begin another one by itself."""
        known = self.tree["session"]
        session, folder = given.get("session_id"), given.get("cwd")
        if session and (session != known["id"] or folder != known["cwd"]):
            if session != known["id"] and not given.get("agent_id"):
                known["last"] = ""
            await self._note({"what": "session", "id": session, "cwd": folder})

    async def _note(self, fact: Fact) -> None:
        try:
            codec.encode(fact)
        except UnserialisableState:
            fact = {
                name: _entries.WITHHELD if isinstance(value, str) and name in _WORDS else value
                for name, value in fact.items()
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

    async def _prompt(self, given: Mapping[str, Any]) -> dict[str, Any] | None:
        said = str(given.get("prompt", ""))
        self._ends_with = None
        # Whatever it begins with: it is not the CLI that asks this.
        asked = self._hear(said)
        if self.sent and said == self.sent:
            self.submitted = True
            await self._note({"what": "resumed", "text": _facts.text(said)})
        elif said == _sdk.CONTINUES and not asked:
            await self._note({"what": "continued"})
        elif said.startswith(_sdk.NOTIFIED) and not asked:
            # A call that waited for a person is dropped with it (2.1.332).
            await self._note({"what": "woken"})
            for id_ in _sdk.NOTIFIED_OF.findall(said):
                if self.calls.is_open(id_):
                    await self._turn(lambda: self.calls.end(id_, None))  # noqa: B023
        else:
            self.submitted = True
            await self._note({"what": "prompt", "text": _facts.text(said)})
        self.calls.waits = None
        if not self._follows and len(_processes.of_session(self.tree["session"]["id"] or "")) > 1:
            raise UsageError(
                f"run {one_line(self._run.run_id)}: two sessions were begun with the options of "
                "one with_waypoints. They are for one: ask for new ones."
            )
        context, self.context = self.context, ""
        return answer("UserPromptSubmit", additionalContext=context) if context else None

    def _hear(self, said: str) -> bool:
        """Note that something was taken up which the program asks; says whether it was that.

        The CLI takes up at once what was sent while it was at work, a message a line (2.1.332).
        """
        heard: list[str] = []
        rest = said
        for one in self.asked:
            if rest.startswith(one):
                heard.append(one)
                rest = rest.removeprefix(one).removeprefix("\n")
        if rest or not heard:
            return False
        for one in heard:
            self.asked.remove(one)
        self.heard += heard
        return True

    async def _before_tool(self, given: Mapping[str, Any]) -> dict[str, Any] | None:
        id_, tool = str(given["tool_use_id"]), str(given["tool_name"])
        arguments, agent = arguments_of(given), given.get("agent_id")
        self._begun[id_] = (tool, arguments, agent)
        self._told.add(id_)
        self._changed = self._changed or tool not in HARMLESS
        if tool == "Agent":
            task = arguments.get("description") or arguments.get("prompt") or ""
            self._sent.append((str(arguments.get("subagent_type") or ""), _facts.text(task, 300)))
        try:
            digest = digest_of(tool, arguments)
        except UsageError as error:
            reason = f"Not run: its arguments cannot be written down. {one_line(str(error), 300)}"
            await self._note(refused_fact(id_, tool, {}, reason, agent))
            return deny(reason)
        # It is durable with the record of the core that follows, and not without it.
        fact = {"what": "begins", "id": id_, "tool": tool, "call": digest}
        await self._note(fact)
        decision = await self._turn(
            lambda: self.calls.begin(id_, tool, arguments, inside=agent is not None)
        )
        if isinstance(decision, Deferred):
            deferred = {"what": "deferred", "id": id_, "tool": tool}
            deferred["question"] = decision.question
            await self._note({**deferred, "arguments": shown(arguments)})
            # Else the result tells of it; who starts the session themselves does not show us that.
            self._pauses = not self._follows
            return answer(
                "PreToolUse",
                permissionDecision="defer",
                permissionDecisionReason=f"waits for a person, as {decision.question}",
            )
        if isinstance(decision, (Refused, Given)):
            self._begun.pop(id_, None)
            refused = refused_fact(id_, tool, arguments, decision.reason, agent)
            if isinstance(decision, Given):
                refused["known"] = True
            elif decision.taken:
                refused["taken"] = decision.taken
            await self._note(refused)
            if id_ == self.replayed:
                self._tell_dropped(tool, arguments, decision.reason)
            return deny(decision.reason)
        return answer("PreToolUse", permissionDecision="allow") if decision.approved else None

    async def _after_tool(self, given: Mapping[str, Any]) -> None:
        id_, tool = str(given["tool_use_id"]), str(given["tool_name"])
        arguments, response = arguments_of(given), given.get("tool_response")
        more = seen_in(response) if isinstance(response, Mapping) else {}
        text = text_of(response)
        # All of it, for a start that finds no trace of it in the transcript.
        whole = text or ""
        if len(whole) > _WHOLE:
            whole = beginning(whole, _WHOLE)  # no part of a secret that is cut there
        # As the model made it: a hook or a permission of the program may have changed it since.
        running = self.tree["running"].get(id_)
        digest = running["call"] if running else digest_of(tool, arguments)
        await self._note_end(
            _facts.tool_fact(
                tool,
                arguments,
                result=text,
                ms=given.get("duration_ms"),
                agent=given.get("agent_id"),
                id=id_,
                whole=whole,
                call=digest,
                **({"dropped": True} if id_ == self.replayed else {}),
                **more,
            ),
            # A command in the background has only begun.
            lambda: None if more.get("beside") and tool == "Bash" else self.calls.end(id_, None),
        )
        self._begun.pop(id_, None)
        if id_ == self.replayed:
            self.calls.finished[id_] = Ended(tool, digest, shown(arguments), whole)
            self._tell_dropped(tool, arguments, whole)
        if tool in _PLANNING:
            for fact in planned(tool, arguments, response):
                await self._note(fact)
        if tool == "Agent" and isinstance(response, Mapping) and response.get("agentId"):
            told = {"id": response["agentId"], "type": str(arguments.get("subagent_type") or "")}
            task = _facts.text(arguments.get("description") or arguments.get("prompt") or "", 300)
            known = self.tree["agents"].get(told["id"], {})
            what = "agent ended" if known.get("state") == "ended" else "agent begun"
            beside = bool(response.get("isAsync"))
            await self._note({"what": what, **told, "task": task, "beside": beside})

    def _tell_dropped(self, tool: str, given: Mapping[str, Any], result: str) -> None:
        """Let the model know what became of a call whose result it is not going to see.

        Of a deferred call that was not alone in its answer the CLI drops the result (2.1.332).
        """
        self.context = (
            f"The call {tool}({shown(given)}) had to wait for a person, and was decided "
            f"now, though the conversation shows no result of it. Its result: {result}"
        )

    async def _after_failure(self, given: Mapping[str, Any]) -> None:
        id_, tool = str(given["tool_use_id"]), str(given["tool_name"])
        error = str(given.get("error", "it failed"))
        paused = any(isinstance(one, WaitingForPerson) for one in self.escaping)
        await self._note_end(
            _facts.tool_fact(
                tool,
                arguments_of(given),
                result=error,
                failed=not paused,
                ms=given.get("duration_ms"),
                agent=given.get("agent_id"),
                id=id_,
                **({"paused": True} if paused else {}),
                **({"interrupted": True} if given.get("is_interrupt") else {}),
            ),
            lambda: self.calls.end(id_, error, paused=paused),
        )
        self._begun.pop(id_, None)

    async def _after_batch(self, given: Mapping[str, Any]) -> None:
        if given.get("agent_id"):
            return  # what a subagent did is part of the batch of its own call
        calls = {str(call["tool_use_id"]): call for call in given.get("tool_calls") or ()}
        for id_, call in calls.items():
            if id_ in self._told:
                continue
            # One that the tool did not accept: no other event tells of it (2.1.332).
            text = text_of(call.get("tool_response")) or ""
            tool, arguments = str(call.get("tool_name")), arguments_of(call)
            await self._note(_facts.tool_fact(tool, arguments, result=text, failed=True, id=id_))
        self._told -= calls.keys()
        ids = set(calls)
        if ids:
            self._batches.append(ids)
            await self._write_batches()

    async def _task_created(self, given: Mapping[str, Any]) -> None:
        fact = {"what": "plan", "id": str(given["task_id"]), "status": "pending"}
        await self._note({**fact, "text": _facts.text(given.get("task_subject", ""), 300)})

    async def _agent_begins(self, given: Mapping[str, Any]) -> None:
        type_ = str(given.get("agent_type") or "")
        fact = {"what": "agent begun", "id": str(given["agent_id"]), "type": type_}
        sent = next((one for one in self._sent if one[0] in ("", type_)), None)
        if sent is not None:
            self._sent.remove(sent)
            fact["task"] = sent[1]
        await self._note(fact)

    async def _agent_ends(self, given: Mapping[str, Any]) -> None:
        # A compaction ends with an event of this kind, too, of an agent without a type (2.1.332).
        if given.get("agent_type"):
            said = _facts.text(given.get("last_assistant_message") or "")
            fact = {"what": "agent ended", "id": str(given["agent_id"]), "said": said}
            await self._note({**fact, "type": str(given["agent_type"])})

    async def _after_compaction(self, given: Mapping[str, Any]) -> None:
        summary = _facts.text(_entries.summary_of(given.get("compact_summary") or ""))
        fact = {"what": "compacted", "trigger": str(given.get("trigger") or ""), "summary": summary}
        await self._note(fact)
        self._shortened = True

    async def _turn_ends(self, given: Mapping[str, Any]) -> None:
        said = str(given.get("last_assistant_message") or "")
        if said and not self._follows:
            await self._note({"what": "said", "text": _facts.text(said)})
        if not self._follows and not given.get("stop_hook_active"):
            self._ends_with = said

    async def _turn_fails(self, given: Mapping[str, Any]) -> None:
        await self._note({"what": "failed", "error": _facts.text(given.get("error") or "", 300)})

    # ------------------------------------------------------------------ the transcript

    async def _mirrored(self, key: Key, entries: list[Entry]) -> None:
        """Take notice of what the CLI wrote into a transcript."""
        if self.reason is not None:
            return
        try:
            await self._close(entries)
            if key.path or not entries:
                return
            known = self.tree["session"]
            if key.session == known["id"]:
                known["last"] = _entries.last_said(entries) or known["last"]
            await self._write_batches()
            if self._shortened:
                self._shortened = False
                if sizes := _entries.sizes(entries):
                    await self._note({"what": "sizes", **sizes})
                await self.waypoint("compaction")
            if self._pauses and self.calls.waits in {
                call.get("id") for call in _entries.calls(entries)
            }:
                self._pauses = False
                await self.waypoint("pause")
            if self._ends_with is not None:
                anchor = _entries.says(entries, self._ends_with)
                if anchor or not self._ends_with:
                    self._ends_with = None
                    await self.waypoint("turn", anchor)
        except CaravanseraiError as error:
            self.leave(error)

    async def _close(self, entries: list[Entry]) -> None:
        """Note the ends of calls that no hook told: a rule of the session did not allow them."""
        for result in _entries.results(entries):
            self._seen[result.id] = result.uuid
            self.tree["fresh"].pop(result.id, None)
            begun = self._begun.pop(result.id, None)
            if begun is None or not await self._turn(
                lambda: self.calls.end(result.id, result.text if result.failed else None)  # noqa: B023
            ):
                continue
            tool, arguments, agent = begun
            if result.failed:
                fact = refused_fact(result.id, tool, arguments, result.text, agent)
            else:
                fact = _facts.tool_fact(
                    tool, arguments, result=result.text, agent=agent, id=result.id
                )
            await self._note(fact)

    async def _write_batches(self) -> None:
        """Write a waypoint where the transcript has all results of a batch."""
        whole = [batch for batch in self._batches if batch <= self._seen.keys()]
        if not whole:
            return
        self._batches = [batch for batch in self._batches if batch not in whole]
        # Dicts keep their order: the result that came last.
        newest = [uuid for id_, uuid in self._seen.items() if id_ in whole[-1]][-1]
        await self.waypoint("batch", newest)

    # ------------------------------------------------------------------ messages

    async def see(self, message: Message) -> None:
        """Take notice of a message of the session.

        Raises:
            CaravanseraiError: what it says could not be written down.
        """
        if not self._hooked and _is_of_a_model(message):
            # Nothing would be written down before a tool begins.
            raise UsageError(
                f"run {one_line(self._run.run_id)}: the CLI calls no hooks, which a run rests on. "
                "Is it in its bare mode (CLAUDE_CODE_SIMPLE, --bare)? The session was ended."
            )
        if isinstance(message, AssistantMessage) and message.parent_tool_use_id is None:
            texts = [block.text for block in message.content if isinstance(block, TextBlock)]
            if said := "\n".join(texts).strip():
                await self._note({"what": "said", "text": _facts.text(said)})
        elif isinstance(message, SystemMessage):
            await self._seen_by_system(message)

    async def _seen_by_system(self, message: SystemMessage) -> None:
        data = message.data
        if message.subtype == "init":
            known = self.tree["claude"]
            cli, model = data.get("claude_code_version"), data.get("model")
            if (cli, model) != (known["cli"], known["model"]):
                await self._note({"what": "session", "cli": cli, "model": model})

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
            self.tree["result"] = _kept(paused)
            await self.waypoint("pause")
            await self._turn(lambda: tell_who_waits(self._run._journal))
        elif last:
            self.tree["result"] = _kept(message)
            await self.waypoint("end")
        else:
            self.tree["result"] = None
            await self.waypoint("turn")

    # ------------------------------------------------------------------ waypoints

    async def waypoint(self, at: str, anchor: str = "") -> None:
        """Write a waypoint.

        Args:
            at: where the session stands: begin, batch, compaction, pause, turn or end.
            anchor: the entry of the transcript that it stands at; "" for the newest.
        """
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
            self._batches.clear()
            self._seen.clear()
            self._told.clear()
            self._sent.clear()
        number = self._run.waypoint = await saving
        tree["so_far"] = _notes.so_far(tree["so_far"], number, line)
