"""`with_waypoints`: options for those who start the session themselves."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from claude_agent_sdk import ClaudeAgentOptions

from caravanserai.claude_agent._conversation import Conversation
from caravanserai.claude_agent._options import check_given, options_of
from caravanserai_core.names import check_run_id

if TYPE_CHECKING:
    from typing import Unpack

    from caravanserai.claude_agent._options import Keeping

_held: dict[str, Any] = {}
"""By run what lets go of it; a further call for the same run takes the place of the one before."""


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
        RunBusy: another process works on the run.
        UsageError: the options do not go together.
    """
    kept = options_of(run_id, keeping)
    given = options or ClaudeAgentOptions()
    check_given(given)
    check_run_id(kept.run_id)
    before = _held.pop(kept.run_id, None)
    if before is not None:
        before()
    talk = Conversation(kept, given)
    run = talk.open()
    owned = run.owning()
    owned.__enter__()
    try:
        ready = talk.make_ready(follows=False)
    except BaseException:
        owned.give_back()
        raise
    _held[kept.run_id] = weakref.finalize(ready.recorder, owned.give_back)
    return ready.given
