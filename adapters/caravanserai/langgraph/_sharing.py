"""Lists that stand in a checkpoint more than once are written once.

A tool call is pushed as a `Send` that holds the whole state: the channel's own list of messages,
often with the newest message behind it (langgraph-prebuilt 1.1). Such a list is written as a
reference to the channel's and the rest. In one checkpoint, where both lists are encoded at the
same moment, the same objects are enough to go by. Pending writes refer to a checkpoint written
earlier; there the encoded bytes are compared, since a node may have changed an object in between.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Final

from caravanserai_core import codec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from caravanserai_core.lane import Prepared

_LEAST: Final = 4
"""Items; a shorter list is written again."""

_LEVELS: Final = 3

_TASKS: Final = "__pregel_tasks"
_VALUES: Final = "channel_values"


class Lists:
    """The lists among the channels of a stored checkpoint, as they were encoded."""

    def __init__(self, state: Mapping[str, Any], prepared: Prepared) -> None:
        self._lists: list[tuple[str, int, bytes]] = []
        for name, value in state[_VALUES].items():
            if type(value) is list and len(value) >= _LEAST:
                data = prepared.part(_VALUES, name)
                if data is not None and data[:1] == b"[":
                    self._lists.append((name, len(value), data))

    def __bool__(self) -> bool:
        return bool(self._lists)

    def share(self, value: list[Any]) -> Any:
        """Return a list as a reference, if it begins like one of these, or is the beginning."""
        data = codec.encode(value).data
        for name, count, known in self._lists:
            if data == known:
                return codec.Shared((_VALUES, name), count, [])
            if data.startswith(known[:-1]) and data[len(known) - 1 : len(known)] == b",":
                return codec.Shared((_VALUES, name), count, value[count:])
        return value


class _Channels:
    """The lists among the channels of a checkpoint about to be encoded."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._lists = [
            (name, value)
            for name, value in values.items()
            if type(value) is list and len(value) >= _LEAST and name != _TASKS
        ]

    def __bool__(self) -> bool:
        return bool(self._lists)

    def share(self, value: list[Any]) -> Any:
        """Return a list as a reference, if it holds the same objects as one of these."""
        for name, known in self._lists:
            if all(map(operator.is_, known, value)):
                first = min(len(known), len(value))
                return codec.Shared((_VALUES, name), first, value[first:])
        return value


def share_sends(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return channel values whose `Send`s refer to the lists of other channels."""
    tasks = values.get(_TASKS)
    if not isinstance(tasks, list) or not tasks:
        return values
    channels = _Channels(values)
    if not channels:
        return values
    return {**values, _TASKS: [_shared_send(task, channels) for task in tasks]}


def kept_value(channel: str, value: Any, lists: Lists | None) -> Any:
    """Return a pending write as it is kept."""
    if channel == _TASKS and lists:
        return _shared_send(value, lists)
    if channel == "__error__" and isinstance(value, BaseException):
        from caravanserai.langgraph._types import kept_error

        return kept_error(value)
    return value


def _shared_send(value: Any, lists: Lists | _Channels) -> Any:
    # Only this very class: what a subclass holds besides is not known here.
    from langgraph.types import Send

    if type(value) is not Send:
        return value
    arg = _shared(value.arg, lists, _LEVELS)
    if arg is value.arg:
        return value
    copy = Send.__new__(Send)
    for name in ("node", "arg", "timeout"):
        if hasattr(value, name):
            setattr(copy, name, arg if name == "arg" else getattr(value, name))
    return copy


def _shared(value: Any, lists: Lists | _Channels, levels: int) -> Any:
    if type(value) is list and len(value) >= _LEAST:
        return lists.share(value)
    if type(value) is dict and levels:
        found = {key: _shared(item, lists, levels - 1) for key, item in value.items()}
        if any(found[key] is not item for key, item in value.items()):
            return found
    return value
