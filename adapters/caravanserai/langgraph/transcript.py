"""The conversation in a checkpoint of LangGraph, from its raw JSON; needs no LangGraph."""

from __future__ import annotations

from typing import Any

from caravanserai.langchain.transcript import messages_of
from caravanserai_core.transcript import Transcript

__all__ = ["transcript"]


def transcript(tree: Any) -> Transcript:
    """Read the conversation of a checkpoint.

    Args:
        tree: the raw state of its waypoint, as `load(run_id, raw=True)` gives it.

    Returns:
        What stands in the channel `messages`; where there is none, in the channel that holds the
        longest conversation. Empty where no channel holds one.
    """
    values = tree.get("channel_values") if isinstance(tree, dict) else None
    if not isinstance(values, dict):
        return Transcript(())
    if "messages" in values:
        return messages_of(values["messages"])
    found = [messages_of(value) for value in values.values() if isinstance(value, list)]
    whole = [item for item in found if item.messages and not item.losses]
    return max(whole, key=lambda item: len(item.messages), default=Transcript(()))
