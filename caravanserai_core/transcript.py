"""A conversation in no framework's own form: what a different agent needs to go on.

Each adapter gives a function that reads one from the JSON tree of its states, tags and all, as
`load(run_id, raw=True)` gives it. It works without the framework: whoever takes a run over need
not have installed what began it. The core finds it by the entry point group
`caravanserai.transcripts`, under the adapter's name.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = [
    "GROUP",
    "NO_RESULT",
    "Message",
    "Role",
    "Since",
    "ToolCall",
    "Transcript",
    "find",
    "matched",
    "unanswered",
]

GROUP = "caravanserai.transcripts"
"""The group of entry points; each is a function of a raw state that returns a Transcript.

One whose states hold no copy of the conversation has an attribute `entries`, the name of the
journal's entries that do, and takes the raw data of these as a second argument. One that can tell
what was recorded behind a waypoint has an attribute `since`, true, and takes a list of `Since` as
the keyword argument of that name; the state is None then where there is no waypoint yet.
One with an attribute `head`, true, takes the head of the waypoint's record under that name, and
its `Since` begin behind the waypoint that was the first with this state: a pause repeats it.
`conversation.read` hands each what it needs.
"""

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]

NO_RESULT = (
    "No result of this call is recorded: it may have run or not. Check before it is done again."
)
"""What a model is told in the place of a result that is not known."""


class ToolCall(NamedTuple):
    """A call of a tool that a model asked for.

    Attributes:
        id: what its result refers to.
        name: the tool.
        arguments: by name, as JSON; a text where the model wrote no valid JSON.
    """

    id: str
    name: str
    arguments: dict[str, Any] | str


class Message(NamedTuple):
    """One message.

    Attributes:
        role: who speaks; "tool" for the result of a call.
        text: what was said, without images and the like; may be empty.
        tool_calls: calls that an assistant asked for.
        tool_call_id: the call that this is the result of.
        name: the name of the speaker or the tool, where one was given.
        failed: the result is an error.
    """

    role: Role
    text: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    failed: bool = False


class Since(NamedTuple):
    """What was recorded behind a waypoint, on its lane: an entry, or news of a step.

    Attributes:
        kind: "entry" or "effect".
        name: the entry's name; the label of the step.
        head: of the record, as docs/format.md has it.
        data: its raw JSON, tags and all; None where it has none.
    """

    kind: str
    name: str
    head: dict[str, Any]
    data: Any


class Transcript(NamedTuple):
    """A conversation.

    Attributes:
        messages: oldest first.
        uncertain: calls of tools without a result: they may have run.
        losses: sentences about what could not be carried over, such as images.
    """

    messages: tuple[Message, ...]
    uncertain: tuple[ToolCall, ...] = ()
    losses: tuple[str, ...] = ()

    def to_openai(self, *, complete: bool = True) -> list[dict[str, Any]]:
        """Return the messages as OpenAI's Chat Completions API takes them.

        Args:
            complete: answer calls that have no result with a sentence that says so; model
                providers refuse a conversation with an open call.
        """
        result: list[dict[str, Any]] = []
        open_ = {call.id for call in self.uncertain} if complete else set()
        for message in self.messages:
            result.append(_to_openai(message))
            result += [
                {"role": "tool", "tool_call_id": call.id, "content": NO_RESULT}
                for call in message.tool_calls
                if call.id in open_
            ]
        return result

    def to_anthropic(self) -> list[dict[str, Any]]:
        """Return the messages as Anthropic's Messages API takes them, without system messages.

        Results of tools are blocks of a user's message, and messages of one role in a row are one.
        A call without a result has one that says so.
        """
        open_ = {call.id for call in self.uncertain}
        result: list[dict[str, Any]] = []
        for message in self.messages:
            if message.role == "system":
                continue
            role = "assistant" if message.role == "assistant" else "user"
            _put(result, role, _blocks(message))
            missing = [call for call in message.tool_calls if call.id in open_]
            blocks = [_result_block(call.id, NO_RESULT, failed=True) for call in missing]
            _put(result, "user", blocks)
        return result

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON; see docs/format.md."""
        return {
            "messages": [_plain(message) for message in self.messages],
            "uncertain": [call._asdict() for call in self.uncertain],
            "losses": list(self.losses),
        }

    @classmethod
    def from_json(cls, tree: dict[str, Any]) -> Transcript:
        """Read what `to_json` gave."""
        messages = []
        for fields in tree["messages"]:
            calls = tuple(ToolCall(**call) for call in fields.get("tool_calls", ()))
            messages.append(Message(**{**fields, "tool_calls": calls}))
        uncertain = tuple(ToolCall(**call) for call in tree["uncertain"])
        return cls(tuple(messages), uncertain, tuple(tree["losses"]))


def _plain(message: Message) -> dict[str, Any]:
    fields: dict[str, Any] = {"role": message.role, "text": message.text}
    if message.tool_calls:
        fields["tool_calls"] = [call._asdict() for call in message.tool_calls]
    for name in ("tool_call_id", "name", "failed"):
        if getattr(message, name):
            fields[name] = getattr(message, name)
    return fields


def _put(result: list[dict[str, Any]], role: str, blocks: list[dict[str, Any]]) -> None:
    if not blocks:
        return
    if result and result[-1]["role"] == role:
        result[-1]["content"] += blocks
    else:
        result.append({"role": role, "content": blocks})


def _blocks(message: Message) -> list[dict[str, Any]]:
    if message.role == "tool":
        return [_result_block(message.tool_call_id or "", message.text, failed=message.failed)]
    # The API refuses a text that is empty.
    texts = [{"type": "text", "text": message.text}] if message.text.strip() else []
    calls = [
        {
            "type": "tool_use",
            "id": call.id,
            "name": call.name,
            "input": call.arguments if isinstance(call.arguments, dict) else {"": call.arguments},
        }
        for call in message.tool_calls
    ]
    return [*texts, *calls]


def _result_block(id_: str, text: str, *, failed: bool) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": id_, "content": text}
    return {**block, "is_error": True} if failed else block


def _to_openai(message: Message) -> dict[str, Any]:
    result: dict[str, Any] = {"role": message.role, "content": message.text}
    if message.role == "tool":
        return {**result, "tool_call_id": message.tool_call_id or ""}
    if message.name:
        result["name"] = message.name
    if message.tool_calls:
        result["content"] = message.text or None
        result["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": _arguments(call)},
            }
            for call in message.tool_calls
        ]
    return result


def _arguments(call: ToolCall) -> str:
    if type(call.arguments) is str:
        return call.arguments
    return json.dumps(call.arguments, ensure_ascii=False)


def unanswered(messages: tuple[Message, ...]) -> Iterator[ToolCall]:
    """Yield the calls that no message is the result of, in their order."""
    answered = {message.tool_call_id for message in messages if message.role == "tool"}
    for message in messages:
        for call in message.tool_calls:
            if call.id not in answered:
                yield call


def matched(
    calls: Iterable[tuple[ToolCall, str]], since: Iterable[Since]
) -> dict[str, tuple[Any, bool]]:
    """Find the results of calls among the steps that are recorded behind a waypoint.

    Args:
        calls: each with its arguments as `words.arguments_text` shows them, in the order in which
            they were asked for.
        since: what is recorded, in its order.

    Returns:
        By the id of a call the raw data of its result, and whether it failed. A step belongs to
        the first call of its name and arguments, else to the first of its name.
    """
    ended: dict[tuple[str, str], list[Since]] = {}
    begun: list[tuple[str, str]] = []
    for item in since:
        if item.kind == "effect":
            name = (item.name, str(item.head.get("key", "")))
            if item.head.get("what") == "started" and name not in ended:
                begun.append(name)
                ended[name] = []
            ended.setdefault(name, []).append(item)
    left = [(call, text) for call, text in calls]
    found: dict[str, tuple[Any, bool]] = {}
    for name in begun:
        first, last = ended[name][0], ended[name][-1]
        same = [pair for pair in left if pair[0].name == name[0]]
        exact = [pair for pair in same if pair[1] == first.head.get("of", "")]
        taken = next(iter(exact or same), None)
        if taken is None:
            continue
        left.remove(taken)
        if last.head.get("what") == "result":
            found[taken[0].id] = (last.data, False)
        elif last.head.get("what") == "error":
            found[taken[0].id] = (str(last.head.get("error", "")), True)
    return found


def find(adapter: str) -> Callable[[Any], Transcript] | None:
    """Return the function that reads a conversation from the raw states of an adapter.

    Args:
        adapter: its name, as a run's `open` record has it.

    Returns:
        The function, or None if no installed package has one.
    """
    # Costs more than all of this package, and few programs hand a run over.
    from importlib.metadata import entry_points

    for point in entry_points(group=GROUP, name=adapter):
        found: Callable[[Any], Transcript] = point.load()
        return found
    return None
