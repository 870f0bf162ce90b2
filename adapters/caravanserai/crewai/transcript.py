"""The conversation of a run of CrewAI, from its raw JSON; needs no CrewAI."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from caravanserai.crewai._behind import Answer, Asked, Gave, Work
from caravanserai.crewai._forms import (
    calls_of,
    dict_of,
    is_call,
    list_of,
    observed,
    plain,
    shown,
    text_of,
)
from caravanserai.crewai._steps import simple_name
from caravanserai_core.origins import HANDED
from caravanserai_core.stepping import same
from caravanserai_core.transcript import Message, ToolCall, Transcript, unanswered

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from caravanserai.crewai._forms import Call
    from caravanserai_core.transcript import Role, Since

__all__ = ["transcript"]

_ROLES: Final[dict[str, Role]] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
    "tool": "tool",
}

_UNKNOWN: Final = "a call of a tool in a form that is not known here"
_PLAN: Final = "plan"
_IN_FRONT: Final = "(What was handed over by the run before: it stands in front.)"
_FAILED: Final = (
    "Error executing tool",
    "Error: Failed to parse tool arguments",
    "Error: the Action Input is not a valid",
    "I encountered an error",
    "I tried reusing the same input, I must stop",
    "Tool execution blocked by hook.",
    "You tried to use the tool",
)
"""How the texts begin that CrewAI gives in the place of a result: messages do not say it else."""

_SETTLED: Final = "Whether this happened was not certain. The equal call below settled it."


def transcript(tree: Any, handed: Sequence[Any] = (), *, since: Iterable[Since] = ()) -> Transcript:
    """Read the conversation of a crew, task by task, or of a flow, method by method.

    Args:
        tree: the raw state of a waypoint, as `load(run_id, raw=True)` gives it; None: there is
            no waypoint yet.
        handed: the raw data of the journal's entry `handoff`, of a run that goes on from another.
        since: what was recorded behind the waypoint.

    Returns:
        What the run was handed; what was said for each task that is done, in the order in which
        they ended, and for those that are not, as far as they came; of a flow, what its methods
        gave, and what people said of it. Empty where there is none.
    """
    tree = dict_of(plain(tree))
    since = list(since)
    begun = [item.data for item in since if item.kind == "entry" and item.name == HANDED]
    reader = _Reader(dict_of(tree.get("handed")))
    for entry in (*handed, *begun)[:1]:
        reader.seed(plain(entry))
    work = Work(dict_of(tree.get("carried")), since)
    if "flow" in tree:
        reader.flow(tree, work)
    else:
        reader.crew(tree, work)
    return reader.made()


transcript.entries = HANDED  # type: ignore[attr-defined]
transcript.since = True  # type: ignore[attr-defined]


class _Reader:
    """Puts the parts of a state together to one conversation.

    Args:
        handed: what a state says of what the run was handed.
    """

    def __init__(self, handed: dict[str, Any]) -> None:
        self.messages: list[Message] = []
        self.losses: Counter[str] = Counter()
        self._ids: set[str] = set()
        self._handed = handed
        self._seed: Transcript | None = None

    def seed(self, entry: Any) -> None:
        """Begin with the conversation that the run was handed."""
        self._seed = Transcript.from_json(entry["transcript"])
        self.messages += self._seed.messages
        self._ids |= {call.id for message in self.messages for call in message.tool_calls}

    def made(self) -> Transcript:
        """Return what was read."""
        if self._handed and self._seed is None:
            self.losses["the conversation that the run was handed, which its journal has"] += 1
        found = tuple(self._settled())
        told = tuple(f"{count} × {what}" for what, count in self.losses.items())
        before = () if self._seed is None else self._seed.losses
        return Transcript(found, tuple(unanswered(found)), (*before, *told))

    def _settled(self) -> Iterator[Message]:
        """Yield the messages, with a result for calls that were not certain and are since."""
        seeded = 0 if self._seed is None else len(self._seed.messages)
        results = [message for message in self.messages if message.role == "tool"]
        answered = {message.tool_call_id for message in results}
        told = {message.tool_call_id for message in results if not message.failed}
        # One equal call that did not fail settles one that may have happened, the first one.
        later = Counter(
            _what(call)
            for message in self.messages[seeded:]
            for call in message.tool_calls
            if call.id in told
        )
        for number, message in enumerate(self.messages):
            yield message
            for call in message.tool_calls if number < seeded else ():
                if call.id not in answered and later[_what(call)]:
                    later[_what(call)] -= 1
                    yield Message("tool", _SETTLED, (), call.id, call.name, True)

    # ------------------------------------------------------------------ crews

    def crew(self, tree: dict[str, Any], work: Work) -> None:
        done = [dict_of(entry) for entry in list_of(tree.get("done"))]
        for entry in done:
            self._task(dict_of(entry.get("output")), dict_of(entry.get("did")))
        if tree.get("at") == "end":
            return
        over = [entry.get("task") for entry in done] + list_of(tree.get("skipped"))
        open_ = {n: task for n, task in enumerate(list_of(tree.get("tasks"))) if n not in over}
        roots = {n: [r for r in work.roots if r.startswith(f"task-{n + 1}.")] for n in open_}
        for index in sorted(open_, key=lambda n: not roots[n]):  # those that began come first
            self._say("user", _asked(dict_of(open_[index]), "expected"))
            for root in roots[index]:
                self._work(work, root)
        if work.answered(_PLAN):
            self.losses["a plan of the tasks, which is made anew"] += 1
        self._left(work)

    def _work(self, work: Work, root: str) -> None:
        """Tell work that is not at its end."""
        for said in work.of(root):
            if isinstance(said, Answer):
                self._answer(said)
            elif said.by_method:
                self._say("assistant", said.text, said.by_method)
            else:
                self._say("user", said.text)

    def _answer(self, answer: Answer) -> None:
        if answer.unknown:
            self.losses[_UNKNOWN] += answer.unknown
        calls = tuple(self._call(one.call, {}) for one in answer.calls)
        if calls or answer.text.strip():
            who = answer.agent.strip() or None
            self.messages.append(Message("assistant", answer.text, calls, name=who))
        self._results(calls, answer.calls)

    def _results(self, calls: Sequence[ToolCall], asked: Iterable[Asked]) -> None:
        for call, one in zip(calls, asked, strict=True):
            if one.gave is not None:
                text, failed = one.gave
                self._result(text, call.id, call.name, failed=failed)

    def _result(self, text: str, call: str, tool: str | None, *, failed: bool = False) -> None:
        failed = failed or text.lstrip().startswith(_FAILED)
        self.messages.append(Message("tool", text, (), call, tool, failed))

    def _left(self, work: Work) -> None:
        """Tell the calls that no answer of a model asked for."""
        for one in work.left():
            calls = (self._call(one.call, {}),)
            self.messages.append(Message("assistant", "", calls))
            self._results(calls, [one])

    def _task(self, output: dict[str, Any], did: dict[str, Any]) -> None:
        """Tell a task: what its agent was told and said, and at the end what it gave."""
        agent = text_of(did.get("agent")) or text_of(output.get("agent"))
        before = len(self.messages)
        ids: dict[str, str] = {}
        for item in list_of(output.get("messages")):
            self._message(item, agent, ids)
        if len(self.messages) == before:
            self._say("user", _asked(output, "expected_output"))
        raw = text_of(output.get("raw"))
        last = self.messages[-1] if self.messages else None
        if last is None or last.role != "assistant" or last.text.strip() != raw.strip():
            # Agents that call tools by text leave their answer out of their messages.
            self._say("assistant", raw, agent)
        others = [
            call
            for call in map(dict_of, list_of(did.get("tools")))
            if agent and text_of(call.get("agent")) not in ("", agent)
        ]
        if others:
            self.losses["a call that another agent made for a task"] += len(others)

    # ------------------------------------------------------------------ flows

    def flow(self, tree: dict[str, Any], work: Work) -> None:
        if tree.get("given"):
            self._say("user", shown(tree["given"]))
        ended: Counter[str] = Counter()
        for entry in map(dict_of, list_of(tree.get("methods"))):
            self._method(entry)
            ended[text_of(entry.get("name"))] += 1
        if tree.get("at") == "end":
            return
        waits = dict_of(tree.get("waits"))
        if waits:
            name = text_of(waits.get("method"))
            self._say("assistant", shown(waits.get("output")), name)
            self._say("assistant", text_of(waits.get("message")), name)
        for root in work.roots:
            name, _, number = root.rpartition(".")
            if name and number.isdecimal() and int(number) > ended[name]:
                before = len(self.messages)
                self._work(work, root)
                if any(message.role == "assistant" for message in self.messages[before:]):
                    self.losses["what a method that was not at its end asked its models"] += 1
        self._left(work)

    def _method(self, entry: dict[str, Any]) -> None:
        name, feedback = text_of(entry.get("name")), dict_of(entry.get("feedback"))
        kept = dict_of(feedback.get("output") if feedback else entry.get("output"))
        if "crew_output" in kept:
            for output in list_of(dict_of(kept["crew_output"]).get("tasks_output")):
                self._task(dict_of(output), {})
        elif "task_output" in kept:
            self._task(dict_of(kept["task_output"]), {})
        else:
            self._say("assistant", shown(kept.get("value")), name)
        if feedback:
            self._say("assistant", text_of(feedback.get("message")), name)
            said = text_of(feedback.get("feedback")) or text_of(feedback.get("outcome"))
            self._say("user", said)

    # ------------------------------------------------------------------ messages

    def _say(self, role: Role, text: str, name: str = "") -> None:
        if text.strip():
            self.messages.append(Message(role, text, name=name.strip() or None))

    def _message(self, item: Any, agent: str, ids: dict[str, str]) -> None:
        fields = dict_of(item)
        said = text_of(fields.get("role"))
        if not said:
            self.losses["something that is no message"] += 1
            return
        role = _ROLES.get(said)
        if role is None:
            self.losses[f"the role {said!r}, told as a user's"] += 1
            role = "user"
        text = self._content(fields.get("content"))
        if role == "user":
            text = self._without_handed(text)
        if role == "tool":
            call = ids.get(text_of(fields.get("tool_call_id")), text_of(fields.get("tool_call_id")))
            tool = text_of(fields.get("name")) or None
            self._result(text, call, tool)
            return
        calls = tuple(self._calls(fields, ids)) if role == "assistant" else ()
        by_text = observed(text) if role == "assistant" and not calls else None
        if by_text is not None:
            asked, call_, result = by_text
            self._answer(Answer(agent, asked, (Asked(call_, Gave(result)),)))
            return
        if calls or text.strip():
            name = agent.strip() if role == "assistant" else ""
            self.messages.append(Message(role, text, calls, name=name or None))

    def _without_handed(self, text: str) -> str:
        """Return what a task was given without what the run was handed: that is told already."""
        for name in ("text", "brief") if self._seed is not None else ():
            told = text_of(self._handed.get(name)).strip()
            if told:
                text = text.replace(told, _IN_FRONT)
        return text

    def _content(self, node: Any) -> str:
        texts = []
        for block in node if isinstance(node, list) else [node]:
            text = text_of(block) or text_of(dict_of(block).get("text"))
            kind = text_of(dict_of(block).get("type"))
            if text:
                texts.append(text)
            elif isinstance(block, dict) and kind != "text" and not is_call(block):
                self.losses[f"content of the type {kind or 'unknown'!r}"] += 1
        return "\n\n".join(texts)

    def _calls(self, fields: dict[str, Any], ids: dict[str, str]) -> Iterator[ToolCall]:
        blocks = [block for block in map(dict_of, list_of(fields.get("content"))) if is_call(block)]
        for call in calls_of(list_of(fields.get("tool_calls")) or blocks):
            if call is None:
                self.losses[_UNKNOWN] += 1
            else:
                yield self._call(call, ids)

    def _call(self, call: Call, ids: dict[str, str]) -> ToolCall:
        """Return a call under an id of its own; that is noted for its result."""
        id_ = ids[call.id] = self._new_id(call.id or f"call_{len(self._ids)}")
        return ToolCall(id_, call.name, call.arguments)

    def _new_id(self, known: str) -> str:
        """Return an id that no earlier call has: some servers number those of each task anew."""
        id_, number = known, 1
        while id_ in self._ids:
            number += 1
            id_ = f"{known}_{number}"
        self._ids.add(id_)
        return id_


def _asked(task: dict[str, Any], expected: str) -> str:
    """Return the text of a task, for who is to do it."""
    text, wanted = text_of(task.get("description")).strip(), text_of(task.get(expected)).strip()
    return f"{text}\n\nExpected: {wanted}" if text and wanted else text or wanted


def _what(call: ToolCall) -> tuple[str, str]:
    """Return by which equal calls are known."""
    arguments = call.arguments if isinstance(call.arguments, dict) else {"": call.arguments}
    return simple_name(call.name), same(arguments)
