"""`WaypointClient`: the SDK's client of a conversation that survives the process."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final

from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ResultError,
    ResultMessage,
)

from caravanserai.claude_agent import _sdk, _working
from caravanserai.claude_agent._conversation import CONTINUES, OPEN, WAITS, Conversation
from caravanserai.claude_agent._options import check_given, options_of
from caravanserai_core.errors import UsageError
from caravanserai_core.escaping import collected
from caravanserai_core.homes import store_for
from caravanserai_core.journal import journal_for
from caravanserai_core.names import check_run_id
from caravanserai_core.quoting import one_line
from caravanserai_core.threads import in_thread, wait_for

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator
    from typing import Unpack

    from claude_agent_sdk import Message, Transport

    from caravanserai.claude_agent._options import Keeping


_LAST_WORDS: Final = 2.0
"""Seconds that the CLI has to say what it makes of an end that a hook asked for."""


class WaypointClient(ClaudeSDKClient):
    """A `ClaudeSDKClient` whose conversation is a run.

    Whoever connects under the same run_id goes on with the conversation; where it was cut off,
    the model is told so beside the next prompt. What a conversation goes on from that is begun
    with `continues` stands in front of its first message.

    Args:
        options: those of the SDK; see `resumable_query`.
        transport: as in the SDK. A session is not resumed through a transport of one's own.
        run_id: the name of the run.
        **keeping: how the run is kept; see `resumable_query`.
    """

    def __init__(
        self,
        options: ClaudeAgentOptions | None = None,
        transport: Transport | None = None,
        *,
        run_id: str,
        **keeping: Unpack[Keeping],
    ) -> None:
        self._kept = options_of(run_id, keeping)
        self._given = options or ClaudeAgentOptions()
        check_given(self._given)
        check_run_id(self._kept.run_id)
        super().__init__(self._given, transport)
        self._talk: Conversation | None = None
        self._leaving: AsyncExitStack | None = None
        self._replayed: list[Message] = []
        # Messages that are sent when the call has ended that the session goes on with by itself.
        self._later: list[tuple[str | AsyncIterable[dict[str, Any]], str]] = []
        self._more = False

    @property
    def run_id(self) -> str:
        """The name of the run."""
        return self._kept.run_id

    @property
    def cut_off(self) -> str | None:
        """What the model will be told beside the next prompt, None: nothing was cut off."""
        return (self._talk.recorder.untold or None) if self._talk is not None else None

    @property
    def waits(self) -> bool:
        """Whether the session stopped at a call that a person has to decide about.

        No message can be sent then; `receive_response` gives the result that tells the call.
        """
        return self._talk is not None and self._talk.standing == WAITS

    async def connect(self, prompt: str | AsyncIterable[dict[str, Any]] | None = None) -> None:
        """Connect to Claude; the session begins, or goes on where it was.

        Raises:
            RunBusy: somebody else is connected under this run_id.
            UsageError, RunNotFound, SchemaMismatch, …: see `resumable_query`.
        """
        if self._leaving is not None:
            await self.disconnect()
        async with AsyncExitStack() as entering:
            journal = journal_for(store_for(self.run_id, self._kept.store), self.run_id)
            _working.enter(journal, _working.CLIENT)
            entering.callback(_working.leave, journal)
            talk = Conversation(self._kept, self._given)
            run = await wait_for(in_thread(talk.open))
            await entering.enter_async_context(run)
            escaping = entering.enter_context(collected())
            await self._connect(talk, prompt, escaping)
            self._leaving = entering.pop_all()

    async def _connect(self, talk: Conversation, prompt: Any, escaping: list[Any]) -> None:
        for lost in (False, True):
            ready = await wait_for(in_thread(lambda: talk.make_ready(follows=True, lost=lost)))  # noqa: B023
            ready.recorder.escaping = escaping
            self.options = ready.given
            first = prompt
            if prompt is not None and talk.standing == WAITS:
                await talk.refuse_waiting()
            if prompt is not None and talk.standing == CONTINUES:
                first, self._later = None, [(prompt, "default")]
            if first is not None:
                first = talk.led(first)
            try:
                await super().connect(first)
            except ResultError as error:
                if lost or _sdk.LOST not in str(error):
                    raise
            else:
                self._talk = talk  # where it fails, the SDK disconnects
                return

    async def query(
        self,
        prompt: str | AsyncIterable[dict[str, Any]],
        session_id: str = "default",
        *,
        turn: str | None = None,
    ) -> None:
        """Send a message.

        Args:
            prompt: as in the SDK.
            session_id: likewise.
            turn: an id of the message. One whose turn came to its end before is not sent again,
                its result is received again; nor is one that a person's answer lets go on.

        Raises:
            WaitingForPerson: a call waits for a person, and a further message would drop it.
            InputChanged: the message of this id was another one.
        """
        talk = self._connected()
        if turn is not None:
            if type(turn) is not str or not turn:
                raise UsageError("turn= is the id of a message, a string")
            if any(turn == one for one, _ in talk.turns):
                return  # it is worked on: a call of it had waited for a person
            known = talk.result_of(turn, prompt if isinstance(prompt, str) else None)
            if known is not None:
                self._replayed.append(known)
                return
        if talk.standing == WAITS:
            await talk.refuse_waiting()
        if turn is not None:
            talk.turns.append((turn, prompt if isinstance(prompt, str) else None))
        if talk.standing == CONTINUES:
            self._later.append((prompt, session_id))
            return
        await self._send(talk, prompt, session_id)

    async def _send(self, talk: Conversation, prompt: Any, session_id: str) -> None:
        await super().query(talk.led(prompt), session_id)

    async def receive_response(self) -> AsyncIterator[Message]:
        """Yield the messages up to the next result.

        Where the session went on by itself with a call that a person decided about, its result
        comes first, and that of the message that was sent meanwhile behind it.
        """
        async for message in self.receive_messages():
            yield message
            if isinstance(message, ResultMessage) and not self._more:
                return

    async def receive_messages(self) -> AsyncIterator[Message]:
        """Yield the messages of the session; each turn's waypoint is written before its result.

        Raises:
            CaravanseraiError: the session cannot go on: something could not be written down, or
                a question or an answer of a person ends it.
        """
        talk = self._connected()
        while self._replayed:
            yield self._replayed.pop(0)
        async for message in self._until_left(talk, super().receive_messages()):
            await talk.recorder.see(message)
            if isinstance(message, ResultMessage):
                await talk.turn_ended(message)
            if talk.recorder.reason is not None:
                raise talk.recorder.reason
            later, self._more = [], False
            if isinstance(message, ResultMessage) and talk.standing == OPEN:
                later, self._later = self._later, []
                self._more = bool(later)
            yield message
            for prompt, session_id in later:
                await self._send(talk, prompt, session_id)
            if isinstance(message, ResultMessage) and self._later:
                await talk.refuse_waiting()  # it stopped at a further call

    async def _until_left(
        self, talk: Conversation, messages: AsyncIterator[Message]
    ) -> AsyncIterator[Message]:
        """Yield messages, as long as nothing ends the session: the CLI may say nothing then.

        Raises:
            CaravanseraiError: what ends it.
        """
        recorder = talk.recorder
        while True:
            following = asyncio.ensure_future(anext(messages))
            left = asyncio.ensure_future(recorder.left.wait())
            try:
                await asyncio.wait({following, left}, return_when=asyncio.FIRST_COMPLETED)
                if not following.done():
                    await asyncio.wait({following}, timeout=_LAST_WORDS)
                if not following.done() and recorder.reason is not None:
                    raise recorder.reason
                try:
                    message = following.result()
                except StopAsyncIteration:
                    return
            finally:
                following.cancel()
                left.cancel()
            yield message

    async def disconnect(self) -> None:
        """Disconnect from Claude, and let the run go."""
        leaving, self._leaving = self._leaving, None
        try:
            await super().disconnect()
        finally:
            self._talk, self._later, self._more = None, [], False
            if leaving is not None:
                await leaving.aclose()

    def _connected(self) -> Conversation:
        if self._talk is None:
            raise UsageError(
                f"WaypointClient({one_line(self.run_id, 60)!r}) is not connected: "
                "`async with WaypointClient(…) as client`, or `await client.connect()` first"
            )
        return self._talk
