"""Run states as plain JSON, without what they say twice: the SDK writes most items several times.

`RunState.to_json` leaves values of the program in its tree (an Enum that a tool returned, a tuple
in an input), which `to_string` would turn into JSON and `from_json` refuses.
"""

from __future__ import annotations

import json
from typing import Any, Final

from caravanserai_core import codec
from caravanserai_core.errors import UnserialisableState

_SAME: Final = "same_as"


def plain(value: Any) -> Any:
    """Return a value as JSON has it; where it is plain JSON already, itself."""
    try:
        if not codec.encode(value).tagged:
            return value
    except UnserialisableState:
        pass
    return json.loads(json.dumps(value, default=str))


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
