"""How the value that a node passes to `interrupt` is shown, and how it is likely to be answered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import orjson

from caravanserai_core import codec, questions
from caravanserai_core.errors import JournalDamaged

if TYPE_CHECKING:
    from collections.abc import Sequence

_HOW: Final = (
    "Answer, then start the program again: a job as before, a graph with `invoke(None, config)`. "
    "The node gets the answer as it is and decides what it means."
)

_DECISIONS: Final = ("approve", "reject")
"""Decisions of LangChain's `HumanInTheLoopMiddleware` (1.0) that need nothing but their name."""


def worded(value: Any, lane: str, name: Sequence[Any], meta: dict[str, Any]) -> questions.Wanted:
    """Return the question that an interrupt is.

    Args:
        value: what the node passed to `interrupt`, kept exactly.
        lane: the namespace of the node.
        name: what tells it from other interrupts.
        meta: what is noted of it.
    """
    options = _options(value)
    return questions.wanted(
        "A node of the graph asks.",
        options=options or None,
        key=list(name),
        payload=value,
        lane=lane,
        how=_HOW,
        shown=shown(value),
        examples=() if options else _examples(value),
        meta=meta,
    )


def shown(value: Any) -> str:
    """Return what people see of the value of an interrupt."""
    requests = _requests(value)
    if requests:
        text = "\n\n".join(_request(request) for request in requests)
    elif isinstance(value, Mapping):
        text = "\n".join(f"{key}: {_told(item)}" for key, item in value.items())
    else:
        text = _told(value)
    return text if text.strip() else "(The node asks without a word.)"


def _options(value: Any) -> list[str]:
    """Return the answers that a question lists itself."""
    for name in ("options", "choices") if isinstance(value, Mapping) else ():
        found = value.get(name)
        if isinstance(found, (list, tuple)) and found and all(type(one) is str for one in found):
            return list(dict.fromkeys(found))
    return []


def _examples(value: Any) -> list[Any]:
    if not isinstance(value, Mapping):
        return []
    requests = _requests(value)
    if not requests:
        return [True, False]
    configs = value.get("review_configs")
    listed = [
        config.get("allowed_decisions", ())
        for config in (configs if isinstance(configs, list) else ())
        if isinstance(config, Mapping)
    ]
    allowed = [one for one in _DECISIONS if all(one in decisions for decisions in listed)]
    return [{"decisions": [{"type": one}] * len(requests)} for one in allowed]


def _requests(value: Any) -> list[Mapping[str, Any]]:
    """Return the tool calls that LangChain's middleware wants to have approved."""
    found = value.get("action_requests") if isinstance(value, Mapping) else None
    if isinstance(found, list) and all(isinstance(one, Mapping) and "name" in one for one in found):
        return found
    return []


def _request(request: Mapping[str, Any]) -> str:
    arguments = request.get("args", request.get("arguments"))
    lines = [f"tool: {_told(request['name'])}"]
    if isinstance(arguments, Mapping):
        lines += [f"{key}: {_told(item)}" for key, item in arguments.items()]
    return "\n".join(lines)


def _told(value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        pass
    try:
        return codec.encode(value).data.decode()
    except (JournalDamaged, ValueError):
        return type(value).__name__
