"""What of a conversation is recorded beside its transcript; needs no SDK and no CLI.

The CLI writes its transcript some time after things happened. Hooks write down what is asked,
that a call begins and what it gave at once. Where a program died in between, that is all there is.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from caravanserai.claude_agent import _entries, _facts
from caravanserai.claude_agent._tools import HARMLESS, in_place_of, known_by
from caravanserai_core.transcript import Message, ToolCall, unanswered

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Tree = Mapping[str, Any]

__all__ = ["Recorded", "settled"]

_NOT_MADE: Final = "This call was not made: a person has to decide about it first."
_HARMLESS: Final = (
    "This call was cut off, and no result of it is recorded. It changes nothing, and can be made "
    "again."
)
_SETTLED: Final = (
    "It was not certain whether this call had happened. That was decided about later: see the same "
    "call below."
)


class Recorded:
    """What a state and the facts behind it tell of a conversation.

    Args:
        state: of the waypoint, plain.
        facts: what was recorded behind it, plain, oldest first.
        made: the calls that any transcript of the run has: their arguments, and whether a
            subagent made them, by id.
        said: texts that the entries behind the waypoint have, each with who said it.
    """

    def __init__(
        self,
        state: Tree,
        facts: Sequence[Tree],
        made: Mapping[str, tuple[Any, bool]],
        said: Iterable[tuple[str, str]],
    ) -> None:
        self._state = state
        self._facts = facts
        self._made = made
        self._said = Counter((role, _facts.text(text)) for role, text in said)
        self._messages: list[Message] = []
        # Calls that began and have no end, by id; the digests of all that began; those of an
        # earlier turn or start.
        self._open: dict[str, ToolCall] = {}
        self._digests: dict[str, tuple[Any, Any]] = {}
        self._cut: set[str] = set()
        # What the transcript has for a call that never reported back, the CLI made up.
        for id_, call in _dict(state.get("open")).items():
            self._open[id_] = self._call(id_, _dict(call))
            self._cut.add(id_)

    def complete(self, messages: Iterable[Message]) -> tuple[list[Message], list[ToolCall]]:
        """Return a conversation with what it lacks, and the calls that may have happened.

        Args:
            messages: what the transcript has.
        """
        self._messages = list(messages)
        self._from_state()
        for fact in self._facts:
            self._take(fact)
        self._drop_made_up()
        for call in unanswered(tuple(self._messages)):
            if call.name in HARMLESS:
                self._answer(call.id, _HARMLESS, failed=True)
        shown = list(unanswered(tuple(self._messages)))
        ids = {call.id for message in self._messages for call in message.tool_calls}
        inside = [call for id_, call in self._open.items() if id_ not in ids]
        return self._messages, [*shown, *(call for call in inside if call.name not in HARMLESS)]

    def _from_state(self) -> None:
        """Take what was known when the waypoint was written."""
        state = self._state
        for id_, made in _dict(state.get("running")).items():
            self._begin(id_, _dict(made))
        for name in ("fresh", "dropped"):
            for id_, fact in _dict(state.get(name)).items():
                self._end(id_, _text(_dict(fact).get("whole")), failed=False)
        deferred = _dict(state.get("deferred"))
        # A state without "open" does not tell whether an equal call may have happened.
        if deferred and "open" in state:
            self._end(_text(deferred.get("id")), _NOT_MADE, failed=True)

    def _take(self, fact: Tree) -> None:
        what, id_ = fact.get("what"), _text(fact.get("id"))
        if what in ("prompt", "resumed", "continued"):
            self._cut |= self._open.keys()
        if what == "prompt":
            self._prompt(_text(fact.get("text")))
        elif what == "said":
            self._say(_text(fact.get("text")))
        elif what == "begins":
            self._begin(id_, fact)
        elif what == "deferred":
            self._end(id_, _NOT_MADE, failed=True)
        elif what == "refused":
            reason = _text(fact.get("reason"))
            result = in_place_of(reason)
            self._end(id_, reason if result is None else result, failed=result is None)
            if fact.get("taken"):
                self._settle(fact)
        elif what == "tool":
            result = fact.get("whole", fact.get("result"))
            self._end(id_, _text(result), failed=bool(fact.get("failed") or fact.get("paused")))
            if not fact.get("paused"):
                self._settle(fact)

    # ------------------------------------------------------------------ what was said

    def _prompt(self, text: str) -> None:
        if self._said["user", text]:
            self._said["user", text] -= 1
            return
        whole = self._state.get("prompt")
        if isinstance(whole, str) and _facts.text(whole) == text:
            text = whole
        if text.strip():
            self._messages.append(Message("user", text))

    def _say(self, text: str) -> None:
        """Add what the model said, unless the transcript has it."""
        if self._said["assistant", text]:
            return
        for message in reversed(self._messages):
            if message.role == "user":
                break
            if message.role == "assistant" and text in map(
                _facts.text, [message.text, *message.text.split("\n\n")]
            ):
                return
        if text.strip():
            self._messages.append(Message("assistant", text))

    # ------------------------------------------------------------------ calls

    def _call(self, id_: str, made: Tree) -> ToolCall:
        self._digests[id_] = made.get("tool"), made.get("call")
        given = self._made[id_][0] if id_ in self._made else made.get("given", "")
        return ToolCall(id_, _text(made.get("tool")), given)

    def _begin(self, id_: str, made: Tree) -> None:
        call = self._call(id_, made)
        self._open[id_] = call
        self._cut.discard(id_)
        inside = made.get("agent") is not None or self._made.get(id_, (None, False))[1]
        # A call that had to wait for a person begins a second time.
        known = {one.id for message in self._messages for one in message.tool_calls}
        self._messages = [
            one
            for one in self._messages
            if one.tool_call_id != id_ or one.text != _NOT_MADE or one.role != "tool"
        ]
        if inside or id_ in known or id_ in self._made:
            return  # the transcript has it, if only in front of a summary
        if self._messages and self._messages[-1].role == "assistant":
            last = self._messages[-1]
            self._messages[-1] = last._replace(tool_calls=(*last.tool_calls, call))
        else:
            self._messages.append(Message("assistant", "", (call,)))

    def _end(self, id_: str, text: str, *, failed: bool) -> None:
        self._open.pop(id_, None)
        self._answer(id_, text, failed=failed)

    def _settle(self, fact: Tree) -> None:
        """Note that an equal call was decided about that may have happened before."""
        made = (fact.get("tool"), fact.get("call"))
        own = _text(fact.get("id"))
        for id_ in [] if own in self._cut else list(self._open):
            if id_ in self._cut and self._digests[id_] == made:
                del self._open[id_]
                self._answer(id_, _SETTLED, failed=True)
                return

    def _answer(self, id_: str, text: str, *, failed: bool) -> None:
        """Add the result of a call right behind it, unless there is one."""
        messages = self._messages
        if any(one.role == "tool" and one.tool_call_id == id_ for one in messages):
            return
        for at, message in enumerate(messages):
            call = next((one for one in message.tool_calls if one.id == id_), None)
            if call is None:
                continue
            at += 1
            while at < len(messages) and messages[at].role == "tool":
                at += 1
            messages.insert(at, Message("tool", text, (), id_, call.name or None, failed))
            return

    def _drop_made_up(self) -> None:
        """Leave out what the CLI put in the place of results of calls that never reported back."""

        def made_up(message: Message) -> bool:
            id_ = message.tool_call_id or ""
            if message.role != "tool" or id_ not in self._open:
                return False
            result = _entries.ToolResult(id_, "", message.text, message.failed)
            if _entries.is_told(result):
                del self._open[id_]  # of a process of the CLI that outlived its program
                return False
            return True

        self._messages = [one for one in self._messages if not made_up(one)]


def settled(
    messages: Sequence[Message], uncertain: Sequence[ToolCall], later: Sequence[Message]
) -> tuple[list[Message], list[ToolCall]]:
    """Return what was handed over, and what of its calls is not certain still.

    Args:
        messages: what was handed over.
        uncertain: the calls of it that may have happened.
        later: what was said since: an equal call with a result, or one that a person decided
            about, takes the place of one of those.
    """
    results = {one.tool_call_id: one for one in later if one.role == "tool"}
    decided: Counter[tuple[str, str]] = Counter()
    for message in later:
        for call in message.tool_calls:
            result = results.get(call.id)
            if result is not None and not result.failed:
                decided[known_by(call.name, call.arguments)] += 1
    left, done = [], set()
    for call in uncertain:
        key = known_by(call.name, call.arguments)
        if decided[key]:
            decided[key] -= 1
            done.add(call.id)
        else:
            left.append(call)
    found: list[Message] = []
    for message in messages:
        found.append(message)
        found += [
            Message("tool", _SETTLED, (), call.id, call.name, True)
            for call in message.tool_calls
            if call.id in done
        ]
    return found, left


def _dict(node: Any) -> dict[str, Any]:
    return node if isinstance(node, dict) else {}


def _text(node: Any) -> str:
    return node if isinstance(node, str) else ""
