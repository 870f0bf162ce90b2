"""A session that takes a further turn with each message."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

from caravanserai.claude_agent import _sdk
from caravanserai.claude_agent._book import kept_result
from caravanserai.claude_agent._resuming import rebuilt_prompt, resume_note
from caravanserai.claude_agent._seed import ASKED, SHORT
from caravanserai.claude_agent._start import (
    begun,
    everything_said,
    known_state,
    make_ready,
    open_session,
    standing,
    waits,
)
from caravanserai_core import questions
from caravanserai_core.errors import InputChanged, UsageError
from caravanserai_core.quoting import one_line
from caravanserai_core.threads import in_thread, wait_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator

    from claude_agent_sdk import ClaudeAgentOptions, ResultMessage

    from caravanserai.claude_agent._facts import Tree
    from caravanserai.claude_agent._options import Options
    from caravanserai.claude_agent._recorder import Recorder
    from caravanserai.claude_agent._start import Ready
    from caravanserai_core.run import Run

OPEN: Final = "open"
"""It takes the next message."""
WAITS: Final = "waits"
"""A person has to decide about the call that it stopped at; a message now would drop that call."""
CONTINUES: Final = "continues"
"""A person has decided, and the CLI goes on with the call by itself."""

_TURNS: Final = 50
"""Most turns whose results are kept by the id of their message."""

_THEN: Final = (
    "The message that this stands beside may be the one that you were working on, sent again: "
    "then go on with it from where it stands, and do not repeat what is done."
)


class Conversation:
    """A conversation of this process.

    Args:
        options: how it is kept.
        given: the program's own options of the SDK.

    Attributes:
        standing: OPEN, WAITS or CONTINUES.
        run: the run, once it is open.
        recorder: writes down what the session does, once it is ready.
        turns: ids and texts of the messages that are worked on.
    """

    run: Run
    recorder: Recorder

    def __init__(self, options: Options, given: ClaudeAgentOptions) -> None:
        self._options = options
        self._given = given
        self.turns: list[tuple[str, str | None]] = []
        self.standing = OPEN
        self._leads = False

    def open(self) -> Run:
        """Open the run; it is to be entered.

        Raises:
            UsageError: it is a job, or of something else.
        """
        self.run = run = open_session(self._options, None)
        known = known_state(run, self._options)
        if known is not None and known["prompt"] is not None and known["run"] == run.run_id:
            raise UsageError(
                f"run {one_line(run.run_id)} is a job of resumable_query, which would not find "
                "its own state again. Use another run_id, or at= and new_run_id= to begin a "
                "conversation at a waypoint of it."
            )
        return run

    def make_ready(self, *, follows: bool, lost: bool = False) -> Ready:
        """Find out how the conversation goes on; see `_start.make_ready`."""
        run = self.run
        known = known_state(run, self._options)
        cut_off, deferred = False, None
        tree: Tree
        if known is None:
            tree = begun(run, None)
        else:
            tree = standing(run, known, run.waypoint)
            # A turn that came to its end leaves nothing behind it but what the CLI tidies up.
            cut_off = known["at"] not in ("turn", "pause", "end") or bool(tree["did"])
            cut_off = cut_off and bool(tree["turns"])
            deferred = (known["deferred"] or {}).get("id")
            if deferred is not None and known["at"] == "pause" and not tree["did"]:
                still = run._journal.turns.do(lambda: waits(run._journal, known))
                self.standing = WAITS if still else CONTINUES
                # The session goes on with them by itself.
                self.turns = [(turn, None) for turn in known.get("turn") or ()]
        tree["prompt"], tree["result"] = None, None
        ready = make_ready(
            run,
            self._options,
            self._given,
            tree,
            follows=follows,
            resumed=cut_off,
            deferred=deferred,
            lost=lost,
        )
        self.recorder = ready.recorder

        def tell() -> None:
            calls = ready.recorder.calls
            calls.refuse_stopped()
            calls.let_go()
            recorder, seed, told = ready.recorder, ready.seed, ""
            if ready.rebuilt:
                note = resume_note(tree, calls, run._journal, at_end=_THEN, rebuilt=True)
                told = rebuilt_prompt(
                    note,
                    everything_said(run),
                    tree["so_far"],
                    handed="" if seed is None else seed.prefix,
                    most=None if follows else SHORT - (0 if seed is None else len(seed.short)),
                )
            elif cut_off and ready.resumes:
                recorder.context = recorder.untold = told = resume_note(
                    tree, calls, run._journal, at_end=_THEN
                )
            if ready.resumes:
                return
            recorder.untold = told
            if follows:
                handed = "" if seed is None else seed.prefix
                recorder.lead = handed + (f"{told}{ASKED}" if told else "")
            else:
                # Of a prompt that somebody else sends a hook can only stand beside.
                recorder.context = "\n\n".join(filter(None, [seed and seed.short, told]))

        run._journal.turns.do(tell)
        self._leads = bool(ready.recorder.lead)
        return ready

    def led(self, prompt: str | AsyncIterable[dict[str, Any]]) -> Any:
        """Return a message as it is sent: the first one of a new session with what leads to it.

        One that begins with a slash is a command of the CLI's own, and leads to nothing.
        """
        if isinstance(prompt, str):
            self.recorder.asked.append(prompt)
            if not self._leads or prompt.startswith("/"):
                return prompt
            self._leads = False
            return self.recorder.lead + prompt
        if not self._leads:
            return prompt
        self._leads = False
        return _led(self.recorder.lead, prompt)

    async def turn_ended(self, message: ResultMessage) -> None:
        """Write the waypoint at the end of a turn."""
        heard, self.recorder.heard = self.recorder.heard, []
        # The CLI may take several messages up in one turn, which has one result.
        together = len(message.user_message_uuids or ()) >= len(self.turns)
        ended = [one for one in self.turns if together or one[1] is None or one[1] in heard]
        self.turns = [one for one in self.turns if one not in ended]
        paused = message if message.stop_reason == _sdk.DEFERRED else None
        self.standing = OPEN if paused is None else WAITS
        self.recorder.tree["turn"] = [turn for turn, _ in ended] if paused is not None else None
        if not message.is_error and paused is None:
            results = self.recorder.tree.setdefault("results", {})
            for turn, text in ended:
                results[turn] = {"of": known_by(text), "result": kept_result(message)}
            for oldest in list(results)[:-_TURNS]:
                del results[oldest]
        # One that asked no model is the CLI's own, about what it found cut off.
        over = message.duration_api_ms > 0
        await self.recorder.turn_ended(message, paused=paused, over=over)

    def result_of(self, turn: str, text: str | None) -> ResultMessage | None:
        """Return the result of a turn that came to its end before, None: it did not.

        Raises:
            InputChanged: its message was another one.
        """
        results: dict[str, Any] = self.recorder.tree.get("results") or {}
        known = results.get(turn)
        if known is None:
            return None
        if text is not None and known["of"] not in (None, known_by(text)):
            raise InputChanged(
                f"run {one_line(self.run.run_id)}: the message turn={turn!r} was another one. "
                "Nothing was sent. Give each message an id of its own."
            )
        return _sdk.result_of(known["result"])

    async def refuse_waiting(self) -> None:
        """Refuse a message that would drop a call which waits for a person.

        Raises:
            WaitingForPerson: nobody has decided yet.
            UsageError: somebody has, since the client was connected.
        """
        journal = self.run._journal

        def look() -> Exception:
            if questions.fresh(journal).open:
                return questions.waiting(journal)
            return UsageError(
                f"run {one_line(self.run.run_id)}: a person has decided about the call that the "
                "session stopped at. Connect again: it goes on with that by itself."
            )

        raise await wait_for(in_thread(lambda: journal.turns.do(look)))


async def _led(lead: str, messages: AsyncIterable[dict[str, Any]]) -> AsyncIterator[dict[str, Any]]:
    """Yield messages, the first one with a text in front of what it says."""
    async for message in messages:
        if lead:
            said = message.get("message") or {}
            content = said.get("content")
            if isinstance(content, str):
                message = {**message, "message": {**said, "content": lead + content}}
            elif isinstance(content, list):
                first = {"type": "text", "text": lead}
                message = {**message, "message": {**said, "content": [first, *content]}}
            lead = ""
        yield message


def known_by(text: str | None) -> str | None:
    """Return what a message is recognised by, None where that is not known."""
    return None if text is None else hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
