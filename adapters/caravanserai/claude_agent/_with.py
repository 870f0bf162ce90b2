"""`with_waypoints`: options for those who start the session themselves."""

from __future__ import annotations

import weakref
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

from claude_agent_sdk import ClaudeAgentOptions

from caravanserai.claude_agent import _processes, _working
from caravanserai.claude_agent._conversation import WAITS, Conversation
from caravanserai.claude_agent._options import check_given, options_of
from caravanserai_core import questions
from caravanserai_core.homes import store_for
from caravanserai_core.journal import journal_for
from caravanserai_core.names import check_run_id

if TYPE_CHECKING:
    from typing import Unpack

    from caravanserai.claude_agent._options import Keeping


class _Held(NamedTuple):
    """Options that were handed out.

    Attributes:
        session: the session that they are for.
        release: lets go of the run.
    """

    session: str
    release: weakref.finalize[..., Any]


_held: dict[int, _Held] = {}
"""By journal; a further call for the same run takes the place of one whose session has ended."""


def with_waypoints(
    options: ClaudeAgentOptions | None = None, *, run_id: str, **keeping: Unpack[Keeping]
) -> ClaudeAgentOptions:
    """Return options with which the SDK's `query` or `ClaudeSDKClient` keeps a conversation.

    They are for one session: for the next `query`, ask for options again. This process holds the
    run until it ends, or until nothing uses the options any more. What the session does is known
    here from hooks and from the transcript alone, so the notes do not tell what a turn cost.

    Args:
        options: the program's own options. Hooks, `can_use_tool`, MCP servers and agents in them
            work as before.
        run_id: the name of the run.
        **keeping: how the run is kept; see `resumable_query`.

    Returns:
        A copy of the options with hooks, a session store, and the session that goes on.

    Raises:
        RunBusy: another process works on the run, or a session of this one.
        WaitingForPerson: the session stopped at a call that a person has to decide about.
        UsageError: the options do not go together.
    """
    kept = options_of(run_id, keeping)
    given = options or ClaudeAgentOptions()
    check_given(given)
    check_run_id(kept.run_id)
    journal = journal_for(store_for(kept.run_id, kept.store), kept.run_id)
    before = _held.get(id(journal))
    if before is not None and not _is_used(before.session):
        before.release()
    with ExitStack() as entering:
        _working.enter(journal, _working.OPTIONS)
        entering.callback(_working.leave, journal)
        talk = Conversation(kept, given)
        run = talk.open()
        owned = run.owning()
        owned.__enter__()
        entering.callback(owned.give_back)
        ready = talk.make_ready(follows=False)
        if talk.standing == WAITS:
            # A prompt would drop the call.
            raise run._journal.turns.do(lambda: questions.waiting(run._journal))
        entering.callback(_held.pop, id(journal), None)
        release = weakref.finalize(ready.recorder, entering.pop_all().close)
        _held[id(journal)] = _Held(ready.recorder.tree["session"]["id"], release)
    return ready.given


def _is_used(session: str) -> bool:
    """Say whether a session of this process works."""
    return bool(_processes.of_session(session))
