"""What a session does, written down as it happens: hooks, mirrored transcript, messages.

The hook in front of a tool is a barrier: the tool does not begin before the intent is durable, and
not at all where it cannot be written, or where nobody is there to answer the hook any more.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from claude_agent_sdk import AssistantMessage, ResultMessage, SystemMessage, TextBlock, ToolUseBlock

from caravanserai.claude_agent import _entries, _facts, _processes, _sdk
from caravanserai.claude_agent._book import Book
from caravanserai.claude_agent._calls import (
    Deferred,
    Ended,
    Given,
    Refused,
    Replayed,
    digest_of,
)
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
from caravanserai.claude_agent._tools import HARMLESS
from caravanserai.claude_agent._transcripts import Key, RunSessionStore
from caravanserai_core.errors import (
    CaravanseraiError,
    UsageError,
    WaitingForPerson,
)
from caravanserai_core.quoting import one_line, quoted
from caravanserai_core.redact import beginning, redact

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from claude_agent_sdk import Message

    from caravanserai.claude_agent._entries import Entry
    from caravanserai.claude_agent._facts import Fact, Tree
    from caravanserai.claude_agent._options import Options
    from caravanserai.claude_agent._transcripts import Transcripts
    from caravanserai_core.run import Run

    Hook = Callable[[Any, str | None, Any], Awaitable[dict[str, Any]]]

_log = logging.getLogger("caravanserai")

_WHOLE: Final = 50_000
"""Most characters of arguments, and of a result, that are kept beside the transcript."""

_PLANNING: Final = frozenset({"TodoWrite", "TaskCreate", "TaskUpdate"})


def _is_of_a_model(message: Message) -> bool:
    """Say whether a message tells that a model was asked; the CLI has messages of its own."""
    if isinstance(message, AssistantMessage):
        return any(isinstance(block, ToolUseBlock) for block in message.content)
    return isinstance(message, ResultMessage) and message.duration_api_ms > 0


class Recorder(Book):
    """Writes down what a session does: hooks, the mirrored transcript, messages.

    Args:
        run: the run.
        options: how it is kept.
        tree: the state of its next waypoint, as far as it is known.
        transcripts: its transcripts.
        follows: the messages of the session are shown to `see`.
        resumed: the start before was cut off.

    Attributes:
        store: the session store to be given to the SDK.
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
        super().__init__(run, options, tree, transcripts, follows=follows, resumed=resumed)
        self.store = RunSessionStore(transcripts, self._mirrored, self.leave)
        self._unchecked = options.patterns

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

    def _stopping(self) -> dict[str, Any]:
        """Return what a hook answers where the session is to end."""
        return {
            "continue_": False,
            "stopReason": f"Stopped: {one_line(redact(str(self.reason)), 300)}",
        }

    async def _in_session(self, given: Mapping[str, Any]) -> None:
        """Note which session this is: the CLI may begin another one by itself."""
        known = self.tree["session"]
        session, folder = given.get("session_id"), given.get("cwd")
        if session and (session != known["id"] or folder != known["cwd"]):
            if session != known["id"] and not given.get("agent_id"):
                known["last"] = ""
            await self._note({"what": "session", "id": session, "cwd": folder})

    async def _prompt(self, given: Mapping[str, Any]) -> dict[str, Any] | None:
        said = str(given.get("prompt", ""))
        if self.lead and said.startswith(self.lead):
            said = said.removeprefix(self.lead)
            if not any(said.startswith(one) for one in self.asked):
                said = said.lstrip("\n")  # it was a block of its own
            self.lead = self.untold = ""
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
        if context:
            self.untold = ""
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
        fact: Fact = {"what": "begins", "id": id_, "tool": tool, "call": digest}
        if len(json.dumps(arguments)) <= _WHOLE:
            fact["given"] = arguments  # until the transcript has them
        await self._note(fact | ({"agent": agent} if agent is not None else {}))
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
        if isinstance(decision, (Refused, Given, Replayed)):
            self._begun.pop(id_, None)
            refused = refused_fact(id_, tool, arguments, decision.reason, agent)
            if isinstance(decision, Given):
                refused["known"] = True
            elif isinstance(decision, Replayed):
                refused["replayed"] = decision.source
            elif decision.taken:
                refused |= {"taken": decision.taken, "call": digest}
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
        running = self.tree["running"].get(id_)
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
                **({"call": running["call"]} if running else {}),
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
        await self._write_compaction()

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
            if any(map(_entries.is_boundary, entries)):
                self._sizes = _entries.sizes(entries)
            await self._write_compaction()
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

    async def _write_compaction(self) -> None:
        """Write a waypoint where the conversation was shortened, and the transcript has that."""
        if self._shortened and self._sizes is not None:
            sizes, self._shortened, self._sizes = self._sizes, False, None
            if sizes:
                await self._note({"what": "sizes", **sizes})
            await self.waypoint("compaction")

    async def _close(self, entries: list[Entry]) -> None:
        """Note the ends of calls that no hook told: a rule of the session did not allow them."""
        for id_ in _entries.notified(entries):
            if self.calls.is_open(id_):
                await self._turn(lambda: self.calls.end(id_, None))  # noqa: B023
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

    def _check_patterns(self, tools: list[str]) -> None:
        """Say which patterns mean no tool that the session has: a mistyped one protects nothing."""
        patterns, self._unchecked = self._unchecked, ()
        known = {*tools, *HARMLESS, "Agent"}
        for pattern in patterns if tools else ():
            if not any(fnmatchcase(name, pattern) for name in known):
                _log.warning(
                    "run %s: no tool of the session is meant by %s, which is to be watched",
                    one_line(self._run.run_id),
                    quoted(pattern, 100),
                )

    async def _seen_by_system(self, message: SystemMessage) -> None:
        data = message.data
        if message.subtype == "init":
            known = self.tree["claude"]
            cli, model = data.get("claude_code_version"), data.get("model")
            self._check_patterns([str(name) for name in data.get("tools") or ()])
            if (cli, model) != (known["cli"], known["model"]):
                await self._note({"what": "session", "cli": cli, "model": model})
