"""What a run hands on beside its words: steps that ended, and calls that may have happened.

The program's own steps under `once` go along as they are. A call of a tool goes along where no end
of it is known, as an open step that an equal call takes the place of. What became of such steps in
the run, and what a person said of them, is put behind the calls in its conversation.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from caravanserai_core import codec
from caravanserai_core.ledger import MARKS, Ledger
from caravanserai_core.questions import NOT_GIVEN, digest_of, value_of
from caravanserai_core.records import Record
from caravanserai_core.redact import beginning
from caravanserai_core.stepping import CALL, bare, does_call, same, token_of
from caravanserai_core.transcript import Message, Transcript, find
from caravanserai_core.words import arguments_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from caravanserai_core.transcript import ToolCall

__all__ = [
    "KEPT",
    "CameAlong",
    "answered",
    "effects_of",
    "kept_text",
    "own_steps",
    "settled",
    "shallow",
    "steps_of",
    "with_answers",
]

KEPT: Final = 4_000
"""Most characters of a result that are kept beside the conversation."""

_MESSAGES: Final = "langchain"
_LEVELS: Final = 50
"""Most levels of arguments that are kept as such; deeper ones become a text."""


def own_steps(records: Iterable[Record]) -> dict[tuple[str, str], list[Record]]:
    """Return what counts of the program's own steps under `once`, by label and key.

    Not the calls of tools that an adapter records: those are told by the conversation.

    Args:
        records: of a run, with their bodies, oldest first.
    """
    found: dict[tuple[str, str], list[Record]] = {}
    others: set[tuple[str, str]] = set()  # by its first record a step is the program's or not
    for record in effects_of(records):
        head, name = record.head, _name_of(record)
        if head.get("what") == "fresh":
            found.clear()
            others.clear()
        elif name in others or (name not in found and (head.get("tool") or head.get("same"))):
            others.add(name)
        else:
            before = found.get(name, [])
            after = head.get("what") in ("uncertain", "unrecorded")
            found[name] = [*before, record] if after else [record]
    return found


def effects_of(records: Iterable[Record]) -> Iterable[Record]:
    """Yield the records of steps, also those that a copy, fork or compaction carries."""
    for record in records:
        if record.kind == "effect":
            yield record
        elif record.kind == "snapshot" and record.seq == 2:  # of a copy, a fork, a compaction
            for item in (record.data() or {}).get("carried", []):
                if item.get("head", {}).get("kind") == "effect":
                    yield Record(item["head"], str(item.get("body", "")).encode(), "", None)


def _name_of(record: Record) -> tuple[str, str]:
    return str(record.head.get("label", "")), str(record.head.get("key", ""))


def _called(call: ToolCall) -> tuple[str, str]:
    given = call.arguments
    return bare(call.name), same(given) if isinstance(given, dict) else ""


class CameAlong:
    """The calls that a run took over as open steps, and the calls of its own that do them.

    Args:
        effects: records of steps of the run, oldest first.

    Attributes:
        first: by name of such a step the first record of it, which says when it began.
        last: the last one.
        takers: by name how many steps that do one have no end of their own.
        done: names of those that a step did which has one.
    """

    def __init__(self, effects: Sequence[Record]) -> None:
        self.first: dict[tuple[str, str], Record] = {}
        self.last: dict[tuple[str, str], Record] = {}
        self.takers: Counter[tuple[str, str]] = Counter()
        self.done: set[tuple[str, str]] = set()
        takes: dict[tuple[str, str], tuple[str, str]] = {}
        for record in effects:
            head, name = record.head, _name_of(record)
            if head.get("what") == "fresh":
                self.first.clear()
                self.last.clear()
                takes.clear()
            elif head.get("takes"):
                takes[name] = (str(head["takes"][0]), str(head["takes"][1]))
                if head.get("what") == "result":
                    self.done.add(takes.pop(name))
            elif head.get("same") or name in self.first:
                self.first.setdefault(name, record)
                self.last[name] = record
        self.takers.update(takes.values())

    def same(self, name: tuple[str, str]) -> tuple[str, str]:
        """Return by what an equal call is known."""
        return bare(name[0]), str(self.first[name].head.get("same", ""))

    def ended(self, name: tuple[str, str]) -> bool:
        """Whether it has a result; a failure tells nothing of the attempt before it."""
        return self.last[name].head.get("what") == "result"


def settled(transcript: Transcript, effects: Sequence[Record]) -> Transcript:
    """Give calls that came along as uncertain the results that they have got since."""
    inherited = CameAlong(effects)
    calls = {call.id: call for m in transcript.messages for call in m.tool_calls}
    ids = [m.tool_call_id for m in transcript.messages if m.role == "tool" and not m.failed]
    with_result = {_called(calls[id_]) for id_ in ids if id_ in calls}
    results: dict[tuple[str, str], list[Record]] = {}
    for name, record in inherited.last.items():
        open_ = inherited.takers[name]
        told = name in inherited.done and inherited.same(name) in with_result
        if inherited.ended(name) and (open_ or not told):
            # Of the call that came along, and of the one that did it, if that has no end. Where it
            # has one, the conversation tells.
            times = 1 + open_
            results.setdefault(inherited.same(name), []).extend([record] * times)
    found: dict[str, Message] = {}
    for call in transcript.uncertain:
        if results.get(_called(call)):
            found[call.id] = _result_of(call, results[_called(call)].pop(0))
    return _with_results(transcript, found)


def _result_of(call: ToolCall, record: Record) -> Message:
    if record.head.get("what") == "error":
        return Message("tool", str(record.head.get("error", "")), (), call.id, call.name, True)
    value = codec.displayed(codec.parse(record.member("data"))) if record.body else ""
    if isinstance(value, dict):
        # A tool of LangChain may give a message.
        read = find(_MESSAGES)
        told = read([value]).messages if read is not None else ()
        value = told[0].text if len(told) == 1 else value
    return Message("tool", kept_text(value), (), call.id, call.name)


def _with_results(transcript: Transcript, found: Mapping[str, Message]) -> Transcript:
    """Put results behind calls that had none."""
    if not found:
        return transcript
    messages: list[Message] = []
    for message in transcript.messages:
        messages.append(message)
        messages += [found[call.id] for call in message.tool_calls if call.id in found]
    left = tuple(call for call in transcript.uncertain if call.id not in found)
    return transcript._replace(messages=tuple(messages), uncertain=left)


def _happened(until: Sequence[Record]) -> dict[tuple[str, str], tuple[str, Any]]:
    """Return what a person said of steps, where no start has used it yet: said, and the result."""
    ledger = Ledger()
    for record in until:
        if record.kind in MARKS or record.kind in ("waypoint", "finish"):
            ledger.take(record)
    found: dict[tuple[str, str], tuple[str, Any]] = {}
    for question in ledger.questions.values():
        about = question.record.head.get("about")
        if question.state == "answered" and isinstance(about, list) and len(about) == 2:
            said_, result = value_of(question)
            given = None if result is NOT_GIVEN else result
            found[(str(about[0]), str(about[1]))] = (str(said_), given)
    return found


def with_answers(
    steps: dict[tuple[str, str], list[Record]], until: Sequence[Record]
) -> dict[tuple[str, str], list[Record]]:
    """Settle steps of the program of which a person has said whether they happened."""
    for name, (said_, result) in _happened(until).items():
        found = steps.get(name)
        if found and said_ == "happened":
            encoded = codec.encode(result)
            head = {**found[-1].head, "what": "result"}
            head |= {"tagged": True} if encoded.tagged else {}
            steps[name] = [Record(head, b'"data":' + encoded.data, "", None)]
        elif found and said_ == "rerun":
            steps[name] = []  # it may be done again, and is not asked about again
    return {name: found for name, found in steps.items() if found}


def answered(
    transcript: Transcript, until: Sequence[Record], effects: Sequence[Record]
) -> Transcript:
    """Settle calls of tools likewise, known by how they were called."""
    said_ = {name: told for name, told in _happened(until).items() if told[0] == "happened"}
    if not said_:
        return transcript
    begun_ = {_name_of(r): r.head for r in effects if r.head.get("what") == "started"}
    found: dict[str, Message] = {}
    for name, (_, result) in said_.items():
        of = begun_.get(name, {}).get("of", "")
        for call in transcript.uncertain:
            given = call.arguments if isinstance(call.arguments, dict) else {}
            like = bare(call.name) == bare(name[0]) and of in ("", arguments_text(given, CALL))
            if like and call.id not in found:
                text = result if isinstance(result, str) else json.dumps(result, default=str)
                found[call.id] = Message("tool", text, (), call.id, call.name)
                break
    return _with_results(transcript, found)


_COPIED: Final[tuple[str, ...]] = (
    *("label", "key", "of", "arguments", "attempt", "what", "pid", "host", "token", "why"),
    "tagged",
)


def steps_of(
    run_id: str,
    own: dict[tuple[str, str], list[Record]],
    records: Sequence[Record],
    transcript: Transcript,
) -> Iterator[dict[str, Any]]:
    """Yield what a run that goes on takes over: the program's own steps, and uncertain calls."""
    for (label, key), found in own.items():
        for record in found:
            if record.head.get("what") in ("started", "uncertain", "unrecorded", "result"):
                head = {name: record.head[name] for name in _COPIED if name in record.head}
                yield _step(head, record.head["time"], record.body or b"")
        last = found[-1].head
        if last.get("what") == "started":
            named_ = {"label": label, "attempt": last.get("attempt", 1), "what": "uncertain"}
            yield _step({**named_, **({"key": key} if key else {})}, last["time"])
    effects = list(effects_of(records))
    inherited = CameAlong(effects)
    left: Counter[tuple[str, str]] = Counter()
    for name, record in inherited.first.items():
        if not inherited.ended(name):
            # It is still what began there, whoever goes on, with the key that it was given there.
            kept = {field: record.head[field] for field in _COPIED if field in record.head}
            kept |= {"same": record.head.get("same", ""), "what": "started"}
            yield _step(kept, record.head["time"])
            yield _step({**_bare_head(kept), "what": "uncertain"}, record.head["time"])
            left[inherited.same(name)] += 1 + inherited.takers[name]
    started = [r.head for r in effects if r.head.get("what") == "started"]
    mine = [found[0].head for found in own.values() if found[0].head.get("what") == "started"]
    for number, call in enumerate(transcript.uncertain, 1):
        if left[_called(call)]:
            left[_called(call)] -= 1
            continue
        if any(does_call(head, call) for head in mine):
            continue  # it comes along as the program's own step
        arguments = call.arguments if isinstance(call.arguments, dict) else {}
        of = arguments_text(arguments, CALL)
        like = [head for head in started if head.get("tool") and head.get("label") == call.name]
        exact = [head for head in like if head.get("of", "") == of]
        first: dict[str, Any] = next(iter(exact or like[-1:]), {})
        key = digest_of(["handoff", run_id, call.id, number], "a call")
        step: dict[str, Any] = {"label": call.name, "key": key, "same": same(arguments)}
        step |= {"attempt": first.get("attempt", 1), **({"of": of} if of else {})}
        opened = records[0].data() if records else {}
        who = {
            "pid": first.get("pid", opened.get("pid", 0)),
            "host": first.get("host", opened.get("host", "")),
            "token": first.get("token") or token_of(run_id, (call.name, key), 0),
        }
        time = first.get("time") or records[-1].head["time"]
        yield _step({**step, "what": "started", **who}, time)
        yield _step({**step, "what": "uncertain"}, time)


def _bare_head(head: Mapping[str, Any]) -> dict[str, Any]:
    return {
        field: head[field] for field in ("label", "key", "same", "attempt", "of") if field in head
    }


def _step(head: dict[str, Any], time: str, body: bytes = b"") -> dict[str, Any]:
    return {"head": head, "time": time, "body": body.decode()}


def shallow(transcript: Transcript) -> Transcript:
    """Turn arguments that are nested too deep to be kept into texts."""
    messages = tuple(
        message._replace(tool_calls=tuple(map(_flat, message.tool_calls)))
        if message.tool_calls
        else message
        for message in transcript.messages
    )
    uncertain = tuple(map(_flat, transcript.uncertain))
    return transcript._replace(messages=messages, uncertain=uncertain)


def _flat(call: ToolCall) -> ToolCall:
    name = call.name.encode("utf-8", "replace").decode()  # it becomes the name of a step
    if isinstance(call.arguments, dict) and _deeper(call.arguments, _LEVELS):
        try:
            text = json.dumps(call.arguments, ensure_ascii=False)
        except (RecursionError, ValueError, TypeError):
            text = "{…}"
        return call._replace(name=name, arguments=text)
    return call if name == call.name else call._replace(name=name)


def _deeper(value: Any, levels: int) -> bool:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return bool(items) and (levels <= 0 or any(_deeper(item, levels - 1) for item in items))


def kept_text(value: Any) -> str:
    """Return a result as a text, as much of it as is kept."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return beginning(text, KEPT)[:KEPT]
