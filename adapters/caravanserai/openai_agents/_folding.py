"""Run states without what they say twice: the SDK writes most items two or three times."""

from __future__ import annotations

from typing import Any, Final

_SAME: Final = "same_as"


def folded(run: dict[str, Any]) -> dict[str, Any]:
    """Return a run state whose repetitions are references: `{"same_as": "generated_items"}`.

    Args:
        run: as `RunState.to_json` gives it; it is not changed.
    """
    result = dict(run)
    items = run.get("generated_items")
    if isinstance(items, list) and items and run.get("session_items") == items:
        result["session_items"] = {_SAME: "generated_items"}
    answers = run.get("model_responses")
    if isinstance(answers, list) and answers and run.get("last_model_response") == answers[-1]:
        result["last_model_response"] = {_SAME: "model_responses"}
    return result


def unfolded(run: dict[str, Any]) -> dict[str, Any]:
    """Return what `RunState.from_json` takes; the inverse of `folded`."""
    result = dict(run)
    if run.get("session_items") == {_SAME: "generated_items"}:
        result["session_items"] = list(run["generated_items"])
    if run.get("last_model_response") == {_SAME: "model_responses"}:
        result["last_model_response"] = run["model_responses"][-1]
    return result
