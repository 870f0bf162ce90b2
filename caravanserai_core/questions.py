"""Questions to people: recorded, answered by anybody from anywhere, used once.

No process waits. `ask` records a question and raises; the answer is a record that some other
process appends; the next start of the program finds it. An adapter whose framework pauses in its
own way uses `put`, `find` and `value_of` alone.
"""

from __future__ import annotations

import getpass
import hashlib
import logging
import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from caravanserai_core import codec
from caravanserai_core.errors import (
    AlreadyAnswered,
    QuestionExpired,
    UnserialisableState,
    UsageError,
    WaitingForPerson,
)
from caravanserai_core.escaping import noted
from caravanserai_core.ledger import Asking, Ledger
from caravanserai_core.meta import check_text, plain_copy
from caravanserai_core.pending import asked, commands, decision, first_line
from caravanserai_core.quoting import error_text, one_line, quoted, visible
from caravanserai_core.reading import not_found, recent
from caravanserai_core.redact import beginning

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from caravanserai_core.journal import Journal
    from caravanserai_core.ledger import Question
    from caravanserai_core.records import Record

_SHOWN = 2000
"""Most characters of a question that notes repeat; the record has all of it."""

NOT_GIVEN: Any = object()

_log = logging.getLogger("caravanserai")


class Changed(Exception):
    """Somebody else recorded something that the decision rested on."""


class Wanted(NamedTuple):
    """A question as the program asks it; see `wanted`.

    Attributes:
        where: what tells it from others.
        fields: the head of its record, but for its id.
        body: the body of its record.
    """

    where: Asking
    fields: dict[str, Any]
    body: bytes

    @property
    def digest(self) -> str:
        """Digest of all that is asked."""
        return str(self.fields["digest"])


def wanted(
    text: str,
    *,
    options: Sequence[Any] | None = None,
    key: object = None,
    payload: object = None,
    expires: timedelta | datetime | None = None,
    lane: str = "",
    about: tuple[str, str] | None = None,
    how: str | None = None,
    shown: str | None = None,
    examples: Sequence[Any] = (),
    meta: dict[str, Any] | None = None,
) -> Wanted:
    """Put a question together; nothing is written.

    Args:
        text: what is asked.
        options: the answers that are allowed, plain JSON values; None: any.
        key: what tells it from others; None: its text and options.
        payload: a value that is shown with it, exactly kept.
        expires: how long, or until when, it can wait.
        lane: the lane whose next waypoint uses the answer up.
        about: label and digest of the key of the step that it is about.
        how: what stands in notes in front of the commands, in place of the core's sentence.
        shown: what people see of it, in place of its text and payload.
        examples: answers that notes suggest where any is allowed, plain JSON values.
        meta: what an adapter notes in its head, plain JSON.

    Raises:
        UsageError: the arguments do not fit together.
        UnserialisableState: the payload cannot be kept exactly.
    """
    check_text("a question", text, prose=True)
    if not text.strip():
        raise UsageError("a question is a text of at least one word")
    check_text("a lane", lane)
    allowed = list(options) if options is not None else []
    if options is not None and (isinstance(options, str) or not allowed):
        raise UsageError("options= takes a list of at least one answer")
    plain_copy({"options": allowed})
    kept = codec.encode({"text": text, "payload": payload})
    name = digest_of([text, allowed] if key is None else ["key", key], "key=")
    fields: dict[str, Any] = {
        "key": name,
        "digest": _digest(codec.encode([text, allowed, payload]).data),
        "text": _shown(text, payload) if shown is None else _cut(shown),
    }
    more = {
        "options": allowed,
        "expires": _until(expires),
        "about": list(about or ()),
        "how": how,
        "examples": list(examples),
        "meta": meta,
        "tagged": kept.tagged,
    }
    fields |= {name: value for name, value in more.items() if value}
    return Wanted(Asking(lane, name), fields, b'"data":' + kept.data)


def digest_of(value: object, what: str) -> str:
    """Return the digest of a value that is compared and not kept.

    Raises:
        UsageError: it cannot be kept exactly, so it cannot be compared.
    """
    try:
        return _digest(codec.encode(value).data)
    except UnserialisableState as error:
        raise UsageError(f"{what} takes a value that can be kept exactly: {error}") from None


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:24]


def _until(expires: object) -> str:
    if expires is None:
        return ""
    try:
        until = datetime.now(UTC) + expires if isinstance(expires, timedelta) else expires
        if not isinstance(until, datetime) or until.tzinfo is None:
            raise UsageError("expires= takes a timedelta, or a datetime with a time zone")
        return until.astimezone(UTC).isoformat(timespec="microseconds")
    except OverflowError:
        raise UsageError("expires= is beyond what a date can be") from None


def _shown(text: str, payload: object) -> str:
    """Return what people see of a question: its text, and what came with it."""
    if payload is None:
        more = ""
    elif isinstance(payload, str):
        more = f"\n\n{payload}"
    elif isinstance(payload, dict) and all(
        type(k) is str and type(v) in (str, int, float, bool) for k, v in payload.items()
    ):
        more = "\n\n" + "\n".join(f"{name}: {value}" for name, value in payload.items())
    else:
        tree = codec.parse(codec.encode(payload).data)
        more = "\n\n" + orjson.dumps(tree, option=orjson.OPT_INDENT_2).decode()
    return _cut(text + more)


def _cut(text: str) -> str:
    given = text.encode("utf-8", "replace").decode()
    shown = beginning(given, _SHOWN)  # no part of a secret that is cut there
    return shown if len(shown) <= _SHOWN else shown[: _SHOWN - 1] + "…"


# ---------------------------------------------------------------------- asking


def put(journal: Journal, question: Wanted, *, reason: str = "") -> str:
    """Record a question and return its id, "q1". Runs in its turn of the queue.

    One that is open or answered under the same key is taken back.

    Raises:
        Changed: somebody asked the same meanwhile.
    """
    before = journal.ledger.find(question.where)

    def make() -> tuple[dict[str, Any], bytes]:
        ledger = journal.ledger
        now = ledger.find(question.where)
        if _state(now) != _state(before):
            raise Changed
        fields = {"question": f"q{ledger.last + 1}", **question.fields}
        if now is not None:
            fields["instead_of"] = now.id
        if reason:
            fields["reason"] = reason
        return fields, question.body

    journal.add_made("question", make, lane=question.where.lane)
    return f"q{journal.ledger.last}"


def _state(question: Question | None) -> tuple[str, str]:
    return ("", "") if question is None else (question.id, question.state)


def find(journal: Journal, question: Wanted) -> Question | None:
    """Return the very same question, open or answered, or None. Runs in its turn of the queue.

    For an open one the store is asked whether somebody answered meanwhile.
    """
    found = journal.ledger.find(question.where)
    if found is not None and found.state == "open":
        found = fresh(journal).find(question.where) or found
    if found is None or found.record.head.get("digest") != question.digest:
        return None
    return found


def fresh(journal: Journal) -> Ledger:
    """Read the ledger as it stands in the store: somebody may have answered meanwhile."""
    end = recent(journal.store, journal.run_id)
    start = None if end is None else end.opening.place
    return Ledger.read(journal.store, journal.run_id, start)


def value_of(question: Question) -> tuple[Any, Any]:
    """Return the value of an answer, and the result it brought, or NOT_GIVEN."""
    assert question.answer is not None, "the question is not answered"
    record = question.answer
    data: Any = codec.decode(record.member("data"), bool(record.head.get("tagged")))
    return data["value"], data.get("result", NOT_GIVEN)


def ask(
    journal: Journal,
    question: Wanted,
    *,
    schema: Callable[[Any], Any] | None = None,
    default: object = None,
) -> tuple[str, Any]:
    """Return the id of a question and its answer, or record it and raise.

    Who gives the answer to the program says so with `give`.

    Args:
        journal: the run.
        question: what is asked.
        schema: called with the answer; what it returns is the answer. If it raises, the question
            is asked again with the reason.
        default: the answer if nobody gave one in time.

    Raises:
        WaitingForPerson: it waits for an answer.
        QuestionExpired: it waited too long and there is no default.
        UsageError: there is a default, and no time after which it is taken.
    """
    if default is not None and "expires" not in question.fields:
        raise UsageError("default= is the answer after expires=, which is not given")
    do = journal.turns.do
    while True:
        try:
            answered = do(lambda: _answered(journal, question, default))
        except Changed:
            continue
        value = value_of(answered)[0]
        if schema is None:
            return answered.id, value
        try:
            return answered.id, schema(value)
        except Exception as error:  # noqa: BLE001 - what the program's own check says
            reason = error_text(error)[:300]
        try:
            do(lambda: put(journal, question, reason=reason))  # noqa: B023 - done at once
        except Changed:
            continue
        raise do(lambda: waiting(journal))


def _answered(journal: Journal, question: Wanted, default: object) -> Question:
    found = find(journal, question)
    if found is None:
        put(journal, question)
    elif found.state == "answered":
        return found
    else:
        expires = asked(found.record.head).expires
        if expires and datetime.fromisoformat(expires) <= datetime.now(UTC):
            if default is None:
                raise QuestionExpired(
                    f"run {one_line(journal.run_id)}: nobody answered {found.id} until "
                    f"{expires[:19]}+00:00. An answer still counts; or ask with a default.",
                    question=found.id,
                )
            # It may be none of the options: no person gave it.
            record_answer(journal, default, question=found.id, by="default", checked=False)
            return journal.ledger.questions[found.id]
    raise waiting(journal)


def give(journal: Journal, name: str, lane: str = "") -> None:
    """Note that the program got the answer to a question: its next waypoint uses that up.

    A crash before that loses the note, and the answer is given out again.
    """
    journal.given.setdefault(lane, set()).add(name)


def waiting(journal: Journal) -> WaitingForPerson:
    """Build the error for a run that waits for the open questions that it has.

    Runs in its turn of the queue. A person is going to look at the live note now.
    """
    journal.renew_live()
    journal.waited.update(question.id for question in journal.ledger.open)
    questions = [asked(question.record.head) for question in journal.ledger.open]
    told = "; ".join(
        f"{q.id} {first_line(q)}, answered by "
        + " or ".join(f"`{command}`" for command in commands(q, journal.run_id))
        for q in questions[:5]
    )
    waits = WaitingForPerson(
        f"run {one_line(journal.run_id)} waits for a person: {told}. Then start it again.",
        run_id=journal.run_id,
        questions=tuple(q.id for q in questions),
    )
    return noted(waits)


def end(journal: Journal, fields: dict[str, Any], body: bytes = b"") -> None:
    """Record the end of the run, and warn where the program should have waited for a person.

    Runs in its turn of the queue.

    Args:
        journal: the run.
        fields: the head of the `finish` record.
        body: its body.
    """
    finished = fields["outcome"] == "finished"
    names = [name for name in journal.pending.waits if name in journal.waited and finished]
    journal.add("finish", {**fields, "unanswered": names} if names else fields, body=body)
    if names:
        _log.warning(
            "run %s: %s %s never answered, and the program went on to its end: do not catch "
            "WaitingForPerson (`except Exception` does, too)",
            one_line(journal.run_id),
            ", ".join(names),
            "was" if len(names) == 1 else "were",
        )


def refuse_waiting(journal: Journal) -> None:
    """Refuse to start a program that could do nothing but ask again what it asked.

    Raises:
        WaitingForPerson: questions are open, none of them too late, and no answer is unused.
    """
    now = datetime.now(UTC)
    late = [
        question
        for question in journal.ledger.open
        if (until := asked(question.record.head).expires) and datetime.fromisoformat(until) <= now
    ]
    unused = [q for q in journal.ledger.questions.values() if q.state == "answered"]
    if journal.ledger.open and not late and not unused:
        raise waiting(journal)


# ---------------------------------------------------------------------- answering


def record_answer(
    journal: Journal,
    value: object,
    *,
    question: str | None = None,
    by: str | None = None,
    reason: str | None = None,
    result: object = NOT_GIVEN,
    checked: bool = True,
    meta: dict[str, Any] | None = None,
) -> str:
    """Record the answer to a question and return its id. Runs in its turn of the queue.

    Args:
        journal: the run.
        value: the answer.
        question: id of the question; may be left out where one is open.
        by: who answers; by default the user of the operating system.
        reason: why.
        result: with "happened", what the step returned.
        checked: it has to be one of the question's options.
        meta: what an adapter notes in its head, plain JSON.

    Raises:
        UsageError: no question is open, several are and none is named, there is none of this
            id, it was taken back, or the answer is none of its options.
        AlreadyAnswered: somebody was first.
        RunNotFound: there is no such run.
    """
    who = user() if by is None else by
    check_text("who answers", who)
    fields: dict[str, Any] = {"who": who}
    if reason:
        check_text("a reason", reason, prose=True)
        fields["reason"] = reason
    data = {"value": value} if result is NOT_GIVEN else {"value": value, "result": result}
    encoded = codec.encode(data)
    if encoded.tagged:
        fields["tagged"] = True
    if meta:
        fields["meta"] = meta
    fields["text"] = one_line(value if isinstance(value, str) else _json(value), 200)
    name, lane = "", ""

    def make() -> tuple[dict[str, Any], bytes]:
        nonlocal name
        found = _pick(journal, question)
        if checked:
            _check(found, value, given=result is not NOT_GIVEN)
        name = found.id
        bound = {"question": found.id, "digest": found.record.head.get("digest")}
        if "meta" not in found.record.head:  # an adapter tells it in the words of its framework
            bound["remark"] = decision(asked(found.record.head), fields)
        return {**bound, **fields}, b'"data":' + encoded.data

    if not journal.ledger.questions and not journal.exists:
        raise not_found(journal.store, journal.run_id)
    for known in journal.ledger.open:
        if known.id == question or (question is None and "meta" not in known.record.head):
            lane = known.record.lane
    journal.add_made("answer", make, lane=lane)
    return name


def withdraw(journal: Journal, question: str) -> None:
    """Take a question back that the program went on without. Runs in its turn of the queue."""
    journal.add("withdrawn", {"question": question})


def _json(value: object) -> str:
    return codec.encode(value).data.decode()


def user() -> str:
    """Return the name of the operating system's user, or its number."""
    try:
        return visible(getpass.getuser())
    except (KeyError, OSError, ImportError):
        return f"user {os.getuid()}" if hasattr(os, "getuid") else "unknown"


def _pick(journal: Journal, name: str | None) -> Question:
    ledger, run_id = journal.ledger, one_line(journal.run_id)
    if name is None:
        if len(ledger.open) == 1:
            return ledger.open[0]
        if ledger.open:
            listed = "; ".join(_told(question.record) for question in ledger.open)
            raise UsageError(f"run {run_id} has several open questions: {listed}. Name one.")
        answered = [q for q in ledger.questions.values() if q.answer is not None]
        if not answered:
            raise UsageError(f"run {run_id} has no open question. Nothing was recorded.")
        name = max(answered, key=lambda q: q.answer.head["time"] if q.answer else "").id
    question = ledger.questions.get(name)
    if question is None:
        opened = ", ".join(q.id for q in ledger.open) or "none"
        raise UsageError(f"run {run_id} has no question {one_line(name, 40)!r}; open: {opened}.")
    if question.answer is not None:
        head = question.answer.head
        by, time = str(head.get("who", "")), str(head.get("time", ""))
        raise AlreadyAnswered(
            f"{question.id} of run {run_id} was answered {quoted(str(head.get('text', '')), 100)} "
            f"by {quoted(by, 60)} at {time[:19]}+00:00. The first answer counts; nothing was "
            "recorded.",
            question=question.id,
            by=by,
            time=time,
        )
    if question.state != "open":
        raise UsageError(
            f"{question.id} of run {run_id} is no longer asked: the program went on without it, "
            "or asks something else by now. Nothing was recorded."
        )
    return question


def _told(record: Record) -> str:
    question = asked(record.head)
    return f"{question.id} {first_line(question)}"


def _check(question: Question, value: object, *, given: bool) -> None:
    """Refuse an answer that does not fit the question."""
    shown = asked(question.record.head)
    if shown.options and not any(
        type(option) is type(value) and option == value for option in shown.options
    ):
        listed = ", ".join(o if isinstance(o, str) else _json(o) for o in shown.options)
        raise UsageError(
            f"{question.id} is answered by one of: {one_line(listed, 500)}. Nothing was recorded."
        )
    if value == "happened" and shown.about is not None and not given:
        raise UsageError(
            '"happened" needs what the step returned: result= (None for nothing), or --result with '
            f"JSON (null for nothing). {question.id} is still open; nothing was recorded."
        )
    if given and (shown.about is None or value != "happened"):
        raise UsageError('a result belongs to the answer "happened" about a step; see the question')
