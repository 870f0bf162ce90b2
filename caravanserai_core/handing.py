"""Making a handoff of a run: from its notes, its questions and steps, and its conversation.

Everything is read from the journal; neither the program nor its framework has to be installed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, cast

from caravanserai_core import codec, conversation, listing, points, reading, survey
from caravanserai_core.carried import (
    KEPT,
    answered,
    effects_of,
    kept_text,
    own_steps,
    settled,
    shallow,
    steps_of,
    with_answers,
)
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
from caravanserai_core.ledger import MARKS
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
from caravanserai_core.quoting import code, one_line, quoted
from caravanserai_core.records import Record
from caravanserai_core.redact import beginning, redact, redact_fields
from caravanserai_core.stepping import does_call
from caravanserai_core.transcript import Transcript

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from caravanserai_core.homes import StoreLike
    from caravanserai_core.stores.base import Store
    from caravanserai_core.transcript import ToolCall

__all__ = ["handoff", "make", "named"]

_FILES: Final = frozenset(
    {"file", "file_name", "file_path", "filename", "notebook_path", "output_file", "path"}
)
"""Names of arguments that hold the path of a file."""

_MOST_FILES: Final = 30
_DIGITS: Final = 10
_HANDED_ON: Final = 30
"""Most items that are told of the runs before, over any number of handoffs."""
_NAME: Final = re.compile(r"\w+ `[^`]+`\.?")
"""A goal that only names what runs, such as a crew."""
_GOAL: Final = 500


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
    effects = list(effects_of(until))
    said_ = _without_instructions(shallow(said_))
    transcript = answered(settled(said_, effects), until, effects)
    earlier = _handed_before(records)
    steps = with_answers(own_steps(until), until)
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
        tuple(steps_of(run_id, steps, until, transcript)),
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
        elif head.get("again") and "takes" not in head:
            step = begun(head)
            found[(step.label, step.key)] = (
                f"{step.called} was run again, attempt {step.attempt}, after an attempt that never "
                "reported back: it may have happened twice."
            )
    return list(found.values())


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
            found.append(Result(label, redact(str(record.head.get("of", ""))), kept_text(value)))
    return found


def _results(transcript: Transcript) -> list[Result]:
    calls = {call.id: call for m in transcript.messages for call in m.tool_calls}
    found = []
    for message in transcript.messages:
        call = calls.get(message.tool_call_id or "")
        if message.role == "tool" and call is not None:
            text = beginning(message.text, KEPT)[:KEPT]
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
