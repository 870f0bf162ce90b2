"""What the journal knows behind a waypoint, as items: answers of models, results of tools.

Read without the SDK. Inside of a turn only entries and steps tell how far it has come.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from caravanserai.openai_agents import _items
from caravanserai.openai_agents._items import Item
from caravanserai.openai_agents._steps import HANDOFF, MODEL, SESSION, call_key, digest
from caravanserai_core.continuing import ENTRY
from caravanserai_core.questions import digest_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from caravanserai_core.transcript import Since

__all__ = ["WAITS", "Behind"]

WAITS: Final = "This call did not run: it waits for a person to approve it."
"""Told in the place of a result."""


class Behind:
    """What was recorded behind a waypoint.

    Args:
        since: the records, with data as people are shown it.

    Attributes:
        handed: what the run was handed by the one that it goes on from, as JSON, or None.
        history: items that its session held when the run read them, or none.
    """

    def __init__(self, since: Iterable[Since]) -> None:
        self.handed: dict[str, Any] | None = None
        self.history: list[Any] = []
        self._answers: dict[str, Since] = {}
        self._handoffs: dict[str, str] = {}
        self._calls: dict[str, Since] = {}
        for one in since:
            meta = one.head.get("meta")
            key = _items.name_of(meta.get("key") if isinstance(meta, dict) else None)
            if one.kind == "effect":
                self._calls[_items.name_of(one.head.get("key"))] = one
            elif one.name == MODEL:
                self._answer(key, one)
            elif one.name == ENTRY and isinstance(one.data, dict):
                self.handed = one.data  # an agent's handoff, of the same name, has a text
            elif one.name == HANDOFF:
                self._handoffs[key] = _items.name_of(one.data)
            elif one.name == SESSION and key == "get-1" and isinstance(one.data, dict):
                self.history = one.data.get("items") or []

    def _answer(self, key: str, one: Since) -> None:
        if not isinstance(one.data, dict) or one.data.get("void"):
            self._answers.pop(key, None)
        elif one.head["meta"].get("path") == "":
            self._answers[key] = one

    def items(self, run: Any, answered: int) -> list[Item]:
        """Return what came behind a state, oldest first.

        Args:
            run: the SDK's run state in it, or None.
            answered: how many answers of models the run had there.
        """
        told = _items.items_after(run) if run is not None else []
        done = {item.call_id for item in told if item.kind in ("result", "handoff")}
        waits = {item.call_id for item in _items.waiting(run)}
        found: list[Item] = []
        for item in told:
            if item.kind == "call" and item.call_id not in done:
                found += self._ended(answered, item, waits=item.call_id in waits)
        for one in sorted(self._answers.values(), key=_number):
            agent = _items.name_of(one.head["meta"].get("agent"))
            output = one.data.get("output")
            raw = output if isinstance(output, list) else []
            read = [_items.read(item, agent) for item in raw]
            found += read
            for item, given in zip(read, raw, strict=True):
                if item.kind == "call":
                    found += self._ended(_number(one), item, given)
        return found

    def _ended(
        self, number: int, call: Item, raw: Any = None, *, waits: bool = False
    ) -> Iterator[Item]:
        """Yield what came of a call, if it ended.

        Args:
            number: of the answer that it is of.
            call: the call.
            raw: its JSON.
            waits: it waited for an approval.
        """
        if isinstance(raw, dict):
            # As the SDK hands them over: see `_instrument`.
            asked = digest(_items.name_of(raw.get("arguments")))
            target = self._handoffs.get(call_key("", number, f"{call.name}:{asked}"))
            if target is not None:
                yield Item("handoff", call.agent, name=target, call_id=call.call_id)
                return
        key = digest_of(call_key("", number, call.call_id), "a call")
        step = self._calls.get(key)
        what = None if step is None else step.head.get("what")
        if step is not None and what == "result":
            text, extras = _given(step.data)
            yield _result(call, text)._replace(extras=extras)
        elif step is not None and what == "error":
            yield _result(call, _items.name_of(step.head.get("error")))._replace(failed=True)
        elif step is None and waits:
            yield _result(call, WAITS)


def _number(one: Since) -> int:
    number = one.head["meta"].get("n")
    return number if type(number) is int else 0


def _result(call: Item, text: str) -> Item:
    return Item("result", call.agent, "function_call_output", call_id=call.call_id, text=text)


def _given(value: Any) -> tuple[str, tuple[str, ...]]:
    """Return what a tool gave as its text and the kinds of its other parts."""
    if isinstance(value, str):
        return value, ()
    plain = _plain(value)
    parts = plain if isinstance(plain, list) else [plain]
    if parts and all(isinstance(part, dict) and "type" in part for part in parts):
        output = {"type": "function_call_output", "output": parts}
        read = _items.read(output)
        return read.text, read.extras
    return json.dumps(plain, ensure_ascii=False), ()


def _plain(value: Any) -> Any:
    """Return a value without the tags that tell its types."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((tag, content),) = value.items()
        if tag == "$object" and isinstance(content, dict):
            inner = _plain(content.get("value"))
            return inner.get("fields", inner) if isinstance(inner, dict) else inner
        if tag.startswith("$") and isinstance(content, (list, str)):
            return _plain(content)
    return {key: _plain(item) for key, item in value.items()}
