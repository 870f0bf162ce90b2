"""The conversation of a run of the OpenAI Agents SDK, from its raw JSON; needs no SDK."""

from __future__ import annotations

import copy
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from caravanserai.openai_agents import _items, _seed
from caravanserai.openai_agents._behind import WAITS, Behind
from caravanserai_core import codec
from caravanserai_core.handed import Handoff
from caravanserai_core.stepping import bare, same
from caravanserai_core.transcript import Message, ToolCall, Transcript, unanswered

if TYPE_CHECKING:
    from collections.abc import Iterator

    from caravanserai.openai_agents._items import Item
    from caravanserai_core.transcript import Role, Since

__all__ = ["transcript"]

_ROLES: Final[dict[str, Role]] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
}

_LOST: Final = {
    "reasoning": "reasoning of a model",
    "compaction": "a compacted part of the conversation, which only its provider can read",
    "item_reference": "an item that only the provider holds",
}

_FAILED: Final = (
    "An error occurred while running the tool.",
    "An error occurred while parsing tool arguments.",
    "Tool execution was not approved.",
)
"""How the texts begin that the SDK gives in the place of a result: no item says that it failed."""

_LATER: Final = "What came of this call is not known. An equal one was made later: see there."


def transcript(
    tree: Any,
    *,
    since: list[Since] | None = None,
    head: dict[str, Any] | None = None,  # noqa: ARG001 - see below
) -> Transcript:
    """Read the conversation of a run or of a session.

    Args:
        tree: the raw state of a waypoint, as `load(run_id, raw=True)` gives it; None: there is no
            waypoint yet.
        since: what was recorded behind it; None: that is not known, so a call that waits to be
            approved may have run meanwhile.
        head: of the waypoint's record, which tells nothing here.

    Returns:
        Its messages, calls and results; what an agent handed over to another one is told as a
        call and its result. First stands the conversation that the run goes on from, if it does.
        Empty where there is none.
    """
    tree = codec.displayed(tree)
    tree = _whole_texts(tree) if isinstance(tree, dict) else {}
    behind = Behind([one._replace(data=_shown(one.data)) for one in since or ()])
    if "items" in tree:
        return _read(_items.given_items(tree.get("items")))
    seed = tree.get(_seed.SEED)
    if seed is None and behind.handed is not None:
        seed = _seed.seed_of(Handoff.from_json(behind.handed))
    run = tree.get("run")
    run = run if isinstance(run, dict) else None
    before, items = _asked(tree.get("given"), run, seed, behind.history)
    items += _items.items_after(run)
    if since is not None:
        counts = tree.get("counts")
        answered = counts.get("", 0) if isinstance(counts, dict) else 0
        items += behind.items(run, answered)
    return _read(before, seed, items)


transcript.since = True  # type: ignore[attr-defined]
# A pause inside of a tool repeats the state: what the turn did before it counts too.
transcript.head = True  # type: ignore[attr-defined]


def _shown(data: Any) -> Any:
    return _whole_texts(codec.displayed(data))


def _read(
    before: list[Item], seed: dict[str, Any] | None = None, items: list[Item] | None = None
) -> Transcript:
    reader = _Reader()
    for item in before:
        reader.add(item)
    if seed is not None:
        reader.begin(_seed.conversation(seed))
    for item in items or ():
        reader.add(item)
    return reader.finish()


def _whole_texts(tree: Any) -> Any:
    """Return a tree with texts in the place of those that JSON cannot hold."""
    if isinstance(tree, list):
        return [_whole_texts(item) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if list(tree) == ["$str"]:
        return codec.decode_tree(copy.deepcopy(tree))
    return {key: _whole_texts(item) for key, item in tree.items()}


def _asked(
    given: Any, run: dict[str, Any] | None, seed: dict[str, Any] | None, history: list[Any]
) -> tuple[list[Item], list[Item]]:
    """Return what a run was asked, in front of the conversation that it goes on from and behind.

    What its session held comes first. A handoff may put a summary in the place of all that came
    before it, whose items follow anyway.
    """
    own = _items.given_items([] if seed is not None and given == "" else given)
    if run is None:
        return _items.given_items(history), own
    first = _items.given_items(run.get("original_input"))
    if seed is None:
        return [], first if not own or all(item in first for item in own) else own
    seeded = _items.given_items(_seed.items(seed))
    for place in range(len(first) - len(seeded) + 1):
        behind = place + len(seeded)
        if first[place:behind] == seeded:
            return first[:place], first[behind:]
    return [], own


def _call_of(call: ToolCall) -> tuple[str, str]:
    arguments = call.arguments
    return bare(call.name), same(arguments) if isinstance(arguments, dict) else f"text {arguments}"


class _Reader:
    """Puts items together to messages: an answer of a model is one, with all its calls."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.losses: Counter[str] = Counter()
        self._names: dict[str, str] = {}
        self._ids: dict[str, str] = {}
        self._hosted: list[Message] = []
        self._handed: Transcript | None = None
        self._begins = 0

    def begin(self, handed: Transcript) -> None:
        """Put the conversation that the run goes on from here."""
        self._flush()
        self.messages += handed.messages
        self._handed, self._begins = handed, len(self.messages)
        self._names |= {call.id: call.name for m in handed.messages for call in m.tool_calls}

    def add(self, item: Item) -> None:
        for extra in item.extras:
            self.losses[f"content of the type {extra!r}"] += 1
        if item.kind == "message":
            self._message(item)
        elif item.kind in ("call", "handoff call"):
            self._call(item.agent, ToolCall(item.call_id, item.name, item.arguments))
        elif item.kind == "result":
            self._result(item.call_id, item.text, failed=item.failed)
        elif item.kind == "handoff":
            self._result(item.call_id, f"Handed over to {item.name}.")
        elif item.kind == "hosted":
            self._ran_elsewhere(item)
        elif item.kind == "quiet" and item.type in _LOST:
            self.losses[_LOST[item.type]] += 1
        elif item.kind == "unknown" or item.type == "mcp_approval_request":
            self.losses[f"an item of the type {item.type or 'unknown'!r}"] += 1

    def finish(self) -> Transcript:
        self._flush()
        told = tuple(f"{count} × {what}" for what, count in self.losses.items())
        handed = self._handed
        if handed is None:
            found = tuple(self.messages)
            return Transcript(found, tuple(unanswered(found)), told)
        done = self._done(handed.uncertain)
        found = tuple(self._told_of(done))
        known = {call.id for message in found for call in message.tool_calls}
        unseen = [c for c in handed.uncertain if c.id not in known and c not in done]
        return Transcript(found, (*unseen, *unanswered(found)), (*handed.losses, *told))

    def _done(self, uncertain: tuple[ToolCall, ...]) -> list[ToolCall]:
        """Return the calls of the run before that an equal one of this run took the place of."""
        own = self.messages[self._begins :]
        results = [one for one in own if one.role == "tool" and not one.failed]
        answered = {one.tool_call_id for one in results if one.text != WAITS}
        ended = [c for message in own for c in message.tool_calls if c.id in answered]
        made = [_call_of(call) for call in ended]
        done = []
        for call in uncertain:
            if _call_of(call) in made:
                made.remove(_call_of(call))
                done.append(call)
        return done

    def _told_of(self, done: list[ToolCall]) -> Iterator[Message]:
        for message in self.messages:
            yield message
            for call in message.tool_calls:
                if call in done:
                    yield Message("tool", _LATER, (), call.id, call.name, True)

    def _flush(self) -> None:
        """Put the results of the provider's own tools behind the answer that they are of."""
        self.messages += self._hosted
        self._hosted.clear()

    def _message(self, item: Item) -> None:
        role = _ROLES.get(item.name)
        if role is None:
            self.losses[f"the role {item.name!r}, told as a user's"] += 1
            role = "user"
        name = (item.agent or None) if role == "assistant" else None
        last = self.messages[-1] if self.messages else None
        hosted = {message.tool_call_id for message in self._hosted}
        calls = {call.id for call in last.tool_calls} if last is not None else set()
        if last is not None and role == last.role == "assistant" and calls - hosted:
            # Nothing may stand between calls and their results.
            text = "\n\n".join(part for part in (last.text, item.text) if part)
            self.messages[-1] = last._replace(text=text)
            return
        self._flush()
        self.messages.append(Message(role, item.text, name=name))

    def _call(self, agent: str, call: ToolCall) -> None:
        id_, number = call.id, 1
        while call.id in self._names:  # some providers use an id in each answer anew
            number += 1
            call = call._replace(id=f"{id_}_{number}")
        self._ids[id_] = call.id
        self._names[call.id] = call.name
        last = self.messages[-1] if self.messages else None
        if last is not None and last.role == "assistant" and last.name == (agent or None):
            self.messages[-1] = last._replace(tool_calls=(*last.tool_calls, call))
            return
        self._flush()
        self.messages.append(Message("assistant", "", (call,), name=agent or None))

    def _result(self, call_id: str, text: str, *, failed: bool = False) -> None:
        self._flush()
        call_id = self._ids.get(call_id, call_id)
        name = self._names.get(call_id)
        failed = failed or text.startswith(_FAILED)
        self.messages.append(Message("tool", text, (), call_id, name, failed))

    def _ran_elsewhere(self, item: Item) -> None:
        """Tell a tool that the provider ran as a call with its result, if the state has that."""
        if not item.text:
            self.losses[f"what the provider's tool {item.name} gave"] += 1
            return
        id_ = f"hosted_{len(self.messages)}_{len(self._hosted)}"
        self._call(item.agent, ToolCall(id_, item.name, item.arguments))
        self._hosted.append(Message("tool", item.text, (), id_, item.name, item.failed))
