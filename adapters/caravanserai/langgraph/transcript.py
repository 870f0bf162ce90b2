"""The conversation in a checkpoint of LangGraph, from its raw JSON; needs no LangGraph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from caravanserai.langchain.transcript import fields_of, handed_in, messages_of
from caravanserai.langgraph._tasks import is_update
from caravanserai_core.transcript import Transcript

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from caravanserai_core.transcript import Since

    Writes = list[tuple[str, Any]]

__all__ = ["transcript"]

_VALUES: Final = "channel_values"
_MESSAGES: Final = "messages"
_START: Final = "__start__"
_STARTED: Final = "~__pregel_pull, __start__"
_ALL: Final = "__remove_all__"
"""The id of a `RemoveMessage` that removes all: langgraph.graph.message.REMOVE_ALL_MESSAGES."""


def transcript(
    tree: Any, *, since: Sequence[Since] = (), head: Mapping[str, Any] | None = None
) -> Transcript:
    """Read the conversation of a checkpoint.

    What tasks wrote that lead to no checkpoint yet belongs to it, as `add_messages` would add it:
    a message whose id is there takes the place of that one, and a `RemoveMessage` removes it.

    Args:
        tree: the raw state of its waypoint, as `load(run_id, raw=True)` gives it; None: there is
            none yet.
        since: what was recorded behind it.
        head: head of the record of its waypoint, which names the checkpoint that writes belong to.

    Returns:
        What stands in the channel `messages`; where there is none, in the channel that holds the
        longest conversation. Empty where no channel holds one. A call without a result is
        uncertain: nothing tells whether its tool began.
    """
    given = next((item.data for item in since if _is(item, "input")), None)
    if given is not None or tree is None:
        # A job begins; what stands in the thread is history.
        return _begun(given, since)
    values = tree.get(_VALUES) if isinstance(tree, dict) else None
    if not isinstance(values, dict):
        return Transcript(())
    writes, started = _pending(since, head or {})
    if not started and _START in values:
        writes = [*_fields(values[_START]), *writes]
    channels = {name: value for name, value in values.items() if isinstance(value, list)}
    for channel, value in writes:
        if not channel.startswith("__") and (channel in channels or channel not in values):
            before = channels.get(channel, [])
            channels[channel] = _added(channel, before, _unshared(value, values))
    if _MESSAGES in values or _MESSAGES in channels:
        return messages_of(channels.get(_MESSAGES, []))
    return _longest(channels.values())


transcript.since = True  # type: ignore[attr-defined]
transcript.head = True  # type: ignore[attr-defined]


def _is(item: Since, name: str) -> bool:
    return item.kind == "entry" and item.name == name


def _begun(given: Any, since: Sequence[Since]) -> Transcript:
    """Return the conversation of a job before its first checkpoint."""
    handed = handed_in(since)
    channels: dict[str, list[Any]] = {}
    for channel, value in _fields(given):
        channels[channel] = _added(channel, [], value)
    found = _longest(channels.values())
    if _MESSAGES in channels:
        found = messages_of(channels[_MESSAGES])
    return Transcript(
        (*handed.messages, *found.messages),
        (*handed.uncertain, *found.uncertain),
        (*handed.losses, *found.losses),
    )


def _longest(channels: Iterable[list[Any]]) -> Transcript:
    found = [messages_of(value) for value in channels]
    whole = [item for item in found if item.messages and not item.losses]
    return max(whole, key=lambda item: len(item.messages), default=Transcript(()))


def _fields(given: Any) -> Writes:
    """Return what an input writes to its channels."""
    return list(given.items()) if isinstance(given, dict) and len(given) else []


# ---------------------------------------------------------------------- pending writes


def _pending(since: Sequence[Since], head: Mapping[str, Any]) -> tuple[Writes, bool]:
    """Return what tasks of a checkpoint wrote, in the order in which LangGraph applies it.

    Returns:
        The writes, and whether the input is among them.
    """
    checkpoint = (head.get("meta") or {}).get("checkpoint")
    found: dict[str, tuple[str, Writes]] = {}
    for item in since:
        meta = item.head.get("meta") or {}
        if not _is(item, "writes") or checkpoint not in (None, meta.get("checkpoint")):
            continue
        task, path = str(meta.get("task", "")), str(meta.get("path", ""))
        if _is_update(task, path, str(meta.get("checkpoint", ""))):
            continue
        writes = [(str(channel), value) for channel, value in item.data or ()]
        # A task that failed or asked writes again; what it wrote first stands.
        if all(name.startswith("__") for name, _ in writes) or task in found:
            continue
        found[task] = (path, writes)
    ordered = sorted(found.values(), key=lambda one: one[0])
    writes = [write for _, own in ordered for write in own]
    return writes, any(path == _STARTED for path, _ in ordered)


def _is_update(task: str, path: str, checkpoint: str) -> bool:
    try:
        return is_update(task, path, checkpoint)
    except ValueError:
        return False  # no id of LangGraph's own


def _unshared(value: Any, values: Mapping[str, Any]) -> Any:
    """Return a value whose list is written as the beginning of a list of the checkpoint."""
    if not isinstance(value, dict) or list(value) != ["$same"]:
        return value
    same = value["$same"]
    name = str(same.get("path", "")).removeprefix(f"/{_VALUES}/")
    known = values.get(name.replace("~1", "/").replace("~0", "~"))
    return [*(known if isinstance(known, list) else [])[: same["first"]], *same["then"]]


def _added(channel: str, before: list[Any], value: Any) -> list[Any]:
    """Return a channel's list with what is written to it."""
    whole = _overwriting(value)
    if whole is not None:
        return whole
    items = value if isinstance(value, list) else [value]
    if before and items[: len(before)] == before:
        return items  # a channel without a reducer is written whole
    # Texts alone are some list of the program's; beside messages each is what a user said.
    talks = channel == _MESSAGES or any(isinstance(item, dict) for item in (*before, *items))
    kept: list[Any] = list(before)
    places = {id_: place for place, item in enumerate(kept) if (id_ := _id(item))}
    gone: set[int] = set()
    for item in items:
        kind, id_ = fields_of(item)[0], _id(item)
        if kind == "remove" and id_ == _ALL:
            kept, places, gone = [], {}, set()
        elif kind == "remove":
            gone |= {places[id_]} if id_ in places else set()
        elif id_ in places:
            kept[places[id_]] = item
            gone.discard(places[id_])
        else:
            if id_:
                places[id_] = len(kept)
            kept.append(_said(item) if talks else item)
    return [item for place, item in enumerate(kept) if place not in gone]


def _id(item: Any) -> str:
    found = fields_of(item)[1].get("id")
    return found if isinstance(found, str) else ""


def _said(item: Any) -> Any:
    """Return a message; a text alone is a user's."""
    return {"role": "user", "content": item} if isinstance(item, str) else item


def _overwriting(value: Any) -> list[Any] | None:
    """Return the list that replaces a channel's, or None: it is added to that."""
    if not isinstance(value, dict):
        return None
    if list(value) == ["__overwrite__"]:
        content = value["__overwrite__"]
    else:
        tagged = value.get("$object") if list(value) == ["$object"] else None
        if not isinstance(tagged, dict) or tagged.get("type") != "langgraph.Overwrite":
            return None
        content = tagged["value"].get("value")
    return content if isinstance(content, list) else [content]
