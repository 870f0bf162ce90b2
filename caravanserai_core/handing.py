"""Making a handoff of a run: from its notes, its questions and steps, and its conversation.

Everything is read from the journal; neither the program nor its framework has to be installed.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, cast

from caravanserai_core import codec, conversation, listing, points, reading, survey
from caravanserai_core.errors import RunNotFound, UsageError
from caravanserai_core.handed import (
    MAX_CHARS,
    Handoff,
    OpenQuestion,
    Result,
    check,
    made_with,
    question_of,
)
from caravanserai_core.homes import store_for
from caravanserai_core.journal import journal_for
from caravanserai_core.known import said
from caravanserai_core.ledger import MARKS, Ledger
from caravanserai_core.names import check_run_id
from caravanserai_core.notes import Note
from caravanserai_core.origins import HANDED
from caravanserai_core.pending import (
    NOTHING,
    Pending,
    begun,
    from_json,
    lines_after,
    not_certain,
    went,
)
from caravanserai_core.questions import NOT_GIVEN, digest_of, value_of
from caravanserai_core.quoting import code, one_line, quoted
from caravanserai_core.records import Record
from caravanserai_core.redact import beginning, redact, redact_fields
from caravanserai_core.stepping import CALL, bare, does_call, same, token_of
from caravanserai_core.transcript import Message, Transcript, find
from caravanserai_core.words import arguments_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from caravanserai_core.homes import StoreLike
    from caravanserai_core.stores.base import Store
    from caravanserai_core.transcript import ToolCall

__all__ = ["handoff", "make", "named", "own_steps"]

_FILES: Final = frozenset(
    {"file", "file_name", "file_path", "filename", "notebook_path", "output_file", "path"}
)
"""Names of arguments that hold the path of a file."""

_MOST_FILES: Final = 30
_DIGITS: Final = 10
_MESSAGES: Final = "langchain"
_LEVELS: Final = 50
"""Most levels of arguments that are kept as such; deeper ones become a text."""
_HANDED_ON: Final = 30
"""Most items that are told of the runs before, over any number of handoffs."""
_NAME: Final = re.compile(r"\w+ `[^`]+`\.?")
"""A goal that only names what runs, such as a crew."""
_GOAL: Final = 500
_KEPT_RESULT: Final = 4_000
"""Most characters of a result that a handoff keeps beside the conversation."""


def handoff(
    run_id: str,
    at: int | None = None,
    *,
    store: StoreLike = None,
    max_chars: int = MAX_CHARS,
) -> Handoff:
    """Return what somebody needs who goes on with a run: a person, or an agent of any framework.

    Args:
        run_id: the run's name.
        at: a waypoint's number, or a negative one counted from the end: as the run was there.
            None: as it is now, with what was recorded behind its newest waypoint.
        store: as in `caravanserai.checkpoint`.
        max_chars: most characters of its `text`, 2,000 or more.

    Returns:
        The handoff: `.text` for people and models, `.messages` in the form of OpenAI's Chat
        Completions API, `.open_questions`, `.uncertain`, `.losses`; see `Handoff`.

    Raises:
        RunNotFound: there is no such run in the store.
        WaypointNotFound: the run has no such waypoint.
        JournalDamaged, NewerFormat: the journal cannot be read.
        UsageError: `at` or `max_chars` means nothing.
    """
    run_id = check_run_id(run_id)
    check("human", max_chars)
    if at is not None and type(at) is not int:
        raise UsageError(f"at= takes a waypoint's number, an int, not {type(at).__name__}")
    found = store_for(run_id, store)
    turns = journal_for(found, run_id).turns
    return cast("Handoff", turns.do(lambda: make(found, run_id, at, max_chars)))


def named(store: Store, source: str) -> tuple[str, int | None]:
    """Split `RUN` or `RUN@N`; an exact name of a run wins, for it may hold an @.

    Raises:
        UsageError: it is no name.
    """
    if type(source) is not str or not source:
        raise UsageError('a run to go on from is named by a text, "RUN" or "RUN@3"')
    if _exists(store, source):
        return source, None
    run_id, at, number = source.rpartition("@")
    digits = number.removeprefix("-")
    if at and run_id and digits.isascii() and digits.isdecimal() and len(digits) < _DIGITS:
        return run_id, int(number)
    return source, None


def _exists(store: Store, run_id: str) -> bool:
    try:
        return reading.recent(store, run_id) is not None or store.legacy(run_id) is not None
    except RunNotFound:
        return False


def make(store: Store, run_id: str, at: int | None, max_chars: int = MAX_CHARS) -> Handoff:
    """Make a handoff; see `handoff`."""
    number = None if at is None else points.resolve(store, run_id, at)
    records = list(survey.records(store, run_id, bodies=True))
    if not records and store.legacy(run_id) is None:
        raise reading.not_found(store, run_id)
    if number is not None and not _has(records, number):
        reading.load(store, run_id, number, raw=True)  # raises, but for release 0.2.0
    opening = reading.opening(records[0], run_id) if records else None
    point = _point(records, number)
    last = records[-1] if records else None
    if number is None:
        until = records
        status = listing.status_now(store, run_id, last) if records else listing.STOPPED
    else:
        until = records[: records.index(point) + 1] if point is not None else []
        status = listing.STOPPED
    note, goal = _noted(store, run_id, point, opening.goal if opening is not None else None)
    behind = records[records.index(point) + 1 :] if point is not None else list(records)
    if number is not None:
        behind = []
    since, pending, decided = _behind(point, behind)
    said_ = conversation.read_from(store, run_id, records, number)
    effects = list(_effects(until))
    said_ = _without_instructions(_shallow(said_))
    transcript = _answered(_settled(said_, effects), until, effects)
    earlier = _handed_before(records)
    steps = _with_answers(own_steps(until), until)
    calls = [call for message in transcript.messages for call in message.tool_calls]
    results = [*_steps_results(steps, calls), *_results(transcript)]
    return Handoff(
        run_id,
        point.waypoint if point is not None else (number or _newest(store, run_id)),
        opening.adapter if opening is not None else conversation.PLAIN,
        opening.framework if opening is not None else None,
        status,
        _goal(goal, transcript),
        note.summary,
        (*_done_before(earlier), *note.so_far, *note.happened),
        tuple((item.text, item.done) for item in note.plan),
        tuple(since),
        note.next,
        tuple(_questions(pending, run_id)),
        (*_unsure(pending, ended=status != listing.RUNNING), *_twice(effects)),
        _last((*(earlier.decided if earlier is not None else ()), *note.decided, *decided)),
        tuple(results),
        tuple(_files(transcript)),
        transcript,
        _before(earlier),
        tuple(_steps_of(run_id, steps, until, transcript)),
        max_chars,
    )


def _goal(goal: str | None, transcript: Transcript) -> str | None:
    """Return the goal, with what the first message of a person asks where it is only a name."""
    asked = next((m.text.strip() for m in transcript.messages if m.role == "user"), "")
    if not asked or (goal and not _NAME.fullmatch(goal.strip())):
        return goal
    return f"{goal} {quoted(asked, _GOAL)}" if goal else quoted(asked, _GOAL)


def _handed_before(records: Sequence[Record]) -> Handoff | None:
    """Return what the run was handed itself, or None."""
    for record in records:
        if record.kind == "entry" and record.head.get("name") == HANDED and not record.waypoint:
            tree: Any = codec.decode_tree(codec.displayed(codec.parse(record.member("data"))))
            return Handoff.from_json(tree)
        if record.kind == "waypoint":
            break
    return None


def _before(earlier: Handoff | None) -> str:
    if earlier is None:
        return ""
    made = made_with(earlier.framework)
    run = code(one_line(earlier.run_id, 100))
    return f"It went on from run {run}{made} at waypoint {earlier.waypoint}."


def _done_before(earlier: Handoff | None) -> tuple[str, ...]:
    """Return what was done in the runs before, each item with the run that it is of."""
    if earlier is None:
        return ()
    run = code(one_line(earlier.run_id, 100))
    own = [f"{result.called} in run {run}" for result in earlier.results if not result.failed]
    return _last((*(item for item in earlier.done if " in run " in item), *own))


def _last(items: tuple[str, ...]) -> tuple[str, ...]:
    """Return the newest of items that are handed on from run to run."""
    return tuple(dict.fromkeys(items))[-_HANDED_ON:]


def _twice(effects: Sequence[Record]) -> list[str]:
    """Return sentences about steps that may have happened twice: each handoff has to say so."""
    found: dict[tuple[str, str], str] = {}
    for record in effects:
        head = redact_fields(record.head)
        if head.get("what") == "fresh":
            found.clear()
        elif head.get("again"):
            step = begun(head)
            found[(step.label, step.key)] = (
                f"{step.called} was run again, attempt {step.attempt}, after an attempt that never "
                "reported back: it may have happened twice."
            )
    return list(found.values())


class _Inherited:
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


def _name_of(record: Record) -> tuple[str, str]:
    return str(record.head.get("label", "")), str(record.head.get("key", ""))


def _called(call: ToolCall) -> tuple[str, str]:
    given = call.arguments
    return bare(call.name), same(given) if isinstance(given, dict) else ""


def _settled(transcript: Transcript, effects: Sequence[Record]) -> Transcript:
    """Give calls that came along as uncertain the results that they have got since."""
    inherited = _Inherited(effects)
    calls = {call.id: call for m in transcript.messages for call in m.tool_calls}
    ids = [m.tool_call_id for m in transcript.messages if m.role == "tool" and not m.failed]
    answered = {_called(calls[id_]) for id_ in ids if id_ in calls}
    results: dict[tuple[str, str], list[Record]] = {}
    for name, record in inherited.last.items():
        open_ = inherited.takers[name]
        told = name in inherited.done and inherited.same(name) in answered
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


def _with_answers(
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


def _answered(
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


def _shallow(transcript: Transcript) -> Transcript:
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


def _result_of(call: ToolCall, record: Record) -> Message:
    if record.head.get("what") == "error":
        return Message("tool", str(record.head.get("error", "")), (), call.id, call.name, True)
    value = codec.displayed(codec.parse(record.member("data"))) if record.body else ""
    if isinstance(value, dict):
        # A tool of LangChain may give a message.
        read = find(_MESSAGES)
        told = read([value]).messages if read is not None else ()
        value = told[0].text if len(told) == 1 else value
    return Message("tool", _text(value), (), call.id, call.name)


def _has(records: Sequence[Record], number: int) -> bool:
    return any(r.kind == "waypoint" and r.waypoint == number for r in records)


def _point(records: Sequence[Record], number: int | None) -> Record | None:
    """Return the record of a waypoint, of the newest on the main lane where none is named."""
    found = [
        record
        for record in records
        if record.kind == "waypoint"
        and (not record.lane if number is None else record.waypoint == number)
    ]
    return found[-1] if found else None


def _newest(store: Store, run_id: str) -> int:
    old = store.legacy(run_id)
    return old.number if old is not None else 0


def _noted(
    store: Store, run_id: str, point: Record | None, goal: str | None
) -> tuple[Note, str | None]:
    if point is not None:
        note = Note.from_json(point.head.get("note", "")).with_goal(goal).redacted()
        return note, note.goal
    old = store.legacy(run_id)
    if old is not None:
        return Note(old.note(old.number) or "").redacted(), goal
    return Note(""), None if goal is None else redact(goal)


def _behind(point: Record | None, behind: Iterable[Record]) -> tuple[list[str], Pending, list[str]]:
    """Return what was said since a waypoint, what is not settled, and what was decided."""
    pending = from_json(point.head.get("pending")) if point is not None else NOTHING
    lines: list[str] = []
    decided: list[str] = []
    for record in behind:
        head = redact_fields(record.head)
        lines = lines_after(lines, pending, head)
        if record.kind in (*MARKS, "entry", "finish") and (line := said(head)):
            lines.append(line)
        if record.kind in ("entry", "answer") and isinstance(head.get("remark"), str):
            decided.append(head["remark"])
        pending = pending.after(head)
    return lines, pending, decided


def _questions(pending: Pending, run_id: str) -> list[OpenQuestion]:
    return [question_of(question, run_id) for question in pending.questions]


def _unsure(pending: Pending, *, ended: bool) -> list[str]:
    """Return the sentences about steps without an end; of a dead process's no end will be heard."""
    if ended:
        effects = (
            e._replace(state="uncertain") if e.state == "began" else e for e in pending.effects
        )
        return not_certain(pending._replace(effects=tuple(effects)))
    told = not_certain(pending)
    return [*told, *(went(e) for e in pending.effects if not e.early and e.state == "began")]


def _without_instructions(said_: Transcript) -> Transcript:
    """Leave out what the agent before was instructed: who goes on has instructions of its own."""
    kept = tuple(message for message in said_.messages if message.role != "system")
    gone = len(said_.messages) - len(kept)
    if not gone:
        return said_
    loss = f"{gone} × instructions (a system message) of the agent before"
    return said_._replace(messages=kept, losses=(*said_.losses, loss))


# ---------------------------------------------------------------------- what was given


def own_steps(records: Iterable[Record]) -> dict[tuple[str, str], list[Record]]:
    """Return what counts of the program's own steps under `once`, by label and key.

    Not the calls of tools that an adapter records: those are told by the conversation.

    Args:
        records: of a run, with their bodies, oldest first.
    """
    found: dict[tuple[str, str], list[Record]] = {}
    others: set[tuple[str, str]] = set()  # by its first record a step is the program's or not
    for record in _effects(records):
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


def _effects(records: Iterable[Record]) -> Iterable[Record]:
    for record in records:
        if record.kind == "effect":
            yield record
        elif record.kind == "snapshot" and record.seq == 2:  # of a copy, a fork, a compaction
            for item in (record.data() or {}).get("carried", []):
                if item.get("head", {}).get("kind") == "effect":
                    yield Record(item["head"], str(item.get("body", "")).encode(), "", None)


_COPIED: Final[tuple[str, ...]] = (
    *("label", "key", "of", "arguments", "attempt", "what", "pid", "host", "token", "why"),
    "tagged",
)


def _steps_of(
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
    effects = list(_effects(records))
    inherited = _Inherited(effects)
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


def _steps_results(
    steps: dict[tuple[str, str], list[Record]], calls: Sequence[ToolCall]
) -> list[Result]:
    """Return what steps gave that do none of the calls: the results of those are told anyway."""
    found = []
    for (label, _), records in steps.items():
        record = records[-1]
        told = any(does_call(record.head, call) for call in calls)
        if record.head.get("what") == "result" and not told:
            value = codec.displayed(codec.parse(record.member("data")))
            found.append(Result(label, redact(str(record.head.get("of", ""))), _text(value)))
    return found


def _results(transcript: Transcript) -> list[Result]:
    calls = {call.id: call for m in transcript.messages for call in m.tool_calls}
    found = []
    for message in transcript.messages:
        call = calls.get(message.tool_call_id or "")
        if message.role == "tool" and call is not None:
            text = beginning(message.text, _KEPT_RESULT)[:_KEPT_RESULT]
            found.append(Result(call.name, call.arguments, text, message.failed))
    return found


def _files(transcript: Transcript) -> list[str]:
    """Return the paths that calls of tools name, the newest last."""
    names: dict[str, None] = {}
    for message in transcript.messages:
        for call in message.tool_calls:
            given = call.arguments if isinstance(call.arguments, dict) else {}
            for key, value in given.items():
                if key in _FILES and isinstance(value, str) and value.strip():
                    names.pop(value, None)
                    names[one_line(value, 300)] = None
    return list(names)[-_MOST_FILES:]


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return beginning(text, _KEPT_RESULT)[:_KEPT_RESULT]
