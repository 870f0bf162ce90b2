"""What of a run is not settled: steps that began and did not end, questions that nobody answered.

It is told by the heads of records alone. A waypoint's head repeats what was pending when it was
written, so its note can be rendered again from that one record, whatever came later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from caravanserai_core.quoting import code, fenced, one_line, prose, quoted, shell_word

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Head = Mapping[str, Any]

_LISTED = 10
"""Most steps that a note lists; the journal has them all."""
_ABOUT_EFFECT = (
    "`happened` goes on without running it again; `--result` is what it returned, as JSON: "
    "`'{\"id\": 5}'`, `'\"sent\"'` for a text, `null` for nothing. `rerun` runs it again with the "
    "same idempotency key. `stop` ends the run and keeps everything."
)


class Begun(NamedTuple):
    """A step under `once` that has no end yet.

    Attributes:
        label: its name.
        key: digest of its key, or "".
        attempt: which attempt this is, from 1.
        time: when it began, ISO 8601 in UTC.
        pid: the process it began in.
        host: the machine of that process.
        token: its idempotency key.
        state: "began"; "uncertain": nobody will hear of it any more; "unrecorded": it ended and
            its result could not be kept.
        why: for the last one, what was in the way.
        early: it began before the newest waypoint.
        of: its key as people read it, else its arguments; or "".
        carried: the run that it began in, where this one goes on from that; or "".
    """

    label: str
    key: str
    attempt: int
    time: str
    pid: int
    host: str
    token: str
    state: str = "began"
    why: str = ""
    early: bool = False
    of: str = ""
    carried: str = ""

    @property
    def called(self) -> str:
        """What notes call it."""
        return code(called(self.label, self.of))


class Asked(NamedTuple):
    """A question that nobody answered yet.

    Attributes:
        id: its name in this run, "q1".
        text: what people see of it.
        options: the answers it allows, plain JSON; empty: any.
        expires: until when it can wait, ISO 8601 in UTC, or "".
        about: (label, key) of the step that it is about, or None.
        examples: answers that are likely, where any is allowed; plain JSON.
        how: what to do with the answer, where that is not the core's own sentence.
        reason: why the answer before was not taken, or "".
    """

    id: str
    text: str
    options: tuple[Any, ...] = ()
    expires: str = ""
    about: tuple[str, str] | None = None
    how: str = ""
    reason: str = ""
    examples: tuple[Any, ...] = ()


class Pending(NamedTuple):
    """All that is pending in a run at one record.

    Attributes:
        effects: steps without an end, in the order in which they began.
        questions: open questions, in the order in which they were asked.
        repeated: attempts since the last waypoint that were uncertain, and were run again.
    """

    effects: tuple[Begun, ...] = ()
    questions: tuple[Asked, ...] = ()
    repeated: tuple[Begun, ...] = ()

    @property
    def open(self) -> bool:
        """Whether something is not settled, and not just worth telling."""
        return bool(self.effects or self.questions)

    @property
    def waits(self) -> list[str]:
        """Ids of the open questions."""
        return [question.id for question in self.questions]

    def after(self, head: Head) -> Pending:
        """Return what is pending behind a record, given its head."""
        kind = head["kind"]
        if kind == "effect":
            return self._after_effect(head)
        if kind == "question":
            return self._after_question(head)
        if kind in ("answer", "withdrawn"):
            return self._without(head.get("question"))
        if kind == "waypoint":
            return from_json(head.get("pending")).told() if "pending" in head else NOTHING
        if kind == "finish" and head.get("outcome") == "finished" and self.questions:
            return self._replace(questions=())
        return self

    def told(self) -> Pending:
        """Return it as it is behind a waypoint whose note told it."""
        return self._replace(repeated=()) if self.repeated else self

    def at_waypoint(self) -> Pending:
        """Return it as the note of a waypoint written now tells it."""
        if not self.effects:
            return self
        return self._replace(effects=tuple(e._replace(early=True) for e in self.effects))

    def _after_effect(self, head: Head) -> Pending:
        what = head.get("what")
        if what == "fresh":
            return NOTHING
        if "takes" in head:
            return self  # the step that it does is told
        name = named(head)
        found = next((e for e in self.effects if (e.label, e.key) == name), None)
        if what == "uncertain":
            return self._noted(name)
        effects = tuple(e for e in self.effects if (e.label, e.key) != name)
        questions = tuple(q for q in self.questions if q.about != name)
        repeated = self.repeated
        if what == "started":
            if found is not None:
                repeated = (*repeated, found)
            effects = (*effects, begun(head))
        elif what == "unrecorded" and found is not None:
            effects = (*effects, found._replace(state=what, why=_text(head.get("why"))))
        return Pending(effects, questions, repeated)

    def _after_question(self, head: Head) -> Pending:
        new = asked(head)
        cleared = self._without(head.get("instead_of"))
        if new.about is not None:
            cleared = cleared._noted(new.about)
        return cleared._replace(questions=(*cleared.questions, new))

    def _noted(self, name: tuple[str, str]) -> Pending:
        effects = tuple(
            e._replace(state="uncertain") if (e.label, e.key) == name and e.state == "began" else e
            for e in self.effects
        )
        return self._replace(effects=effects)

    def _without(self, question: object) -> Pending:
        left = tuple(q for q in self.questions if q.id != question)
        return self if len(left) == len(self.questions) else self._replace(questions=left)

    def to_json(self) -> dict[str, Any]:
        """Return what a waypoint's head holds."""
        tree = {
            "effects": [_plain(effect) for effect in self.effects],
            "questions": [_plain(question) for question in self.questions],
            "repeated": [_plain(effect) for effect in self.repeated],
        }
        return {name: items for name, items in tree.items() if items}


NOTHING = Pending()


def named(head: Head) -> tuple[str, str]:
    """Return (label, digest of the key) of the step that a record is about."""
    return _text(head.get("label")), _text(head.get("key"))


def begun(head: Head) -> Begun:
    """Read the head of the record of a step that began."""
    return Begun(
        *named(head),
        _int(head.get("attempt")),
        _text(head.get("time")),
        _int(head.get("pid")),
        _text(head.get("host")),
        _text(head.get("token")),
        of=_text(head.get("of")),
        carried=_text(head.get("carried")),
    )


def asked(head: Head) -> Asked:
    """Read the head of a question, or what a waypoint repeats of it."""
    options, about, likely = head.get("options"), head.get("about"), head.get("examples")
    pair = isinstance(about, list) and len(about) == 2
    return Asked(
        _text(head.get("question")),
        _text(head.get("text")),
        tuple(options) if isinstance(options, list) else (),
        _text(head.get("expires")),
        (_text(about[0]), _text(about[1])) if pair and isinstance(about, list) else None,
        _text(head.get("how")),
        _text(head.get("reason")),
        tuple(likely) if isinstance(likely, list) else (),
    )


def from_json(tree: object) -> Pending:
    """Read what a waypoint's head holds; what is not as it should be is left out."""
    if not isinstance(tree, dict):
        return NOTHING
    lists = [tree.get(name) for name in ("effects", "questions", "repeated")]
    effects, questions, repeated = (
        [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []
        for found in lists
    )
    return Pending(
        tuple(_begun_again(item) for item in effects),
        tuple(asked(item) for item in questions),
        tuple(_begun_again(item) for item in repeated),
    )


def _begun_again(tree: dict[str, Any]) -> Begun:
    state = tree.get("state", "began")
    return begun(tree)._replace(state=_text(state), why=_text(tree.get("why")), early=True)


def _plain(item: Begun | Asked) -> dict[str, Any]:
    if isinstance(item, Begun):
        tree = {**item._asdict(), "state": item.state if item.state != "began" else ""}
        del tree["early"]
        return {name: value for name, value in tree.items() if value}
    tree = item._asdict()
    tree["question"] = tree.pop("id")
    tree["options"], tree["about"] = list(item.options), list(item.about or ())
    tree["examples"] = list(item.examples)
    return {name: value for name, value in tree.items() if value}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _int(value: object) -> int:
    return value if type(value) is int else 0


# ---------------------------------------------------------------------- in a note


def lead(pending: Pending) -> str:
    """Return how the story of a note begins: who must act, and what a crash left open; or ""."""
    lost = [e for e in pending.effects if e.state == "uncertain"]
    if not pending.questions:
        if not lost:
            return ""
        if all(effect.carried for effect in lost):
            run = code(one_line(lost[0].carried, 100))
            return f"**Not certain since run {run}:** {_names(lost)} began and never reported back."
        return f"**Picked up after a crash.** {_names(lost)} began and never reported back."
    only, *others = pending.questions
    if others:
        ids = _listed(pending.waits)
        more = f" After a crash, {_names(lost)} never reported back." if lost else ""
        return f"**Waiting for a person:** {len(others) + 1} questions, {ids}.{more}"
    if only.about is None:
        return f"**Waiting for a person:** {first_line(only, 160)} ({only.id})."
    step = next((e for e in pending.effects if (e.label, e.key) == only.about), None)
    label = code(called(only.about[0], "")) if step is None else step.called
    if lost:
        return (
            f"**Picked up after a crash. One thing is not certain:** {label} began and never "
            f"reported back. A person has to say whether it happened ({only.id})."
        )
    return f"**Waiting for a person:** the result of {label} is lost ({only.id})."


def first_line(question: Asked, limit: int = 120) -> str:
    """Return how a question begins, quoted, on one line."""
    return quoted(question.text.strip("\n").partition("\n")[0], limit)


def decision(question: Asked, answer: Head) -> str:
    """Return the line of "Decided" for an answer, given its head."""
    said = _plainly(_text(answer.get("text")), 100)
    if list(question.options) == [True, False]:
        said = {"true": "approved", "false": "rejected"}.get(said.strip("`"), said)
    reason = _text(answer.get("reason"))
    why = f": {_plainly(reason, 200)}" if reason else ""
    return f"{first_line(question)}: {said}, by {_plainly(_text(answer.get('who')), 60)}{why}"


def _plainly(text: str, limit: int) -> str:
    """Quote foreign text, but for a few plain words: they can be nothing else."""
    short = one_line(text, limit)
    words = short and all(char.isalnum() or char in " ,.'-" for char in short)
    return short if words else quoted(short, limit)


def _names(effects: list[Begun]) -> str:
    return _listed([effect.called for effect in effects[:_LISTED]])


def called(label: str, of: str) -> str:
    """Return how a step was called, on one line."""
    return one_line(label, 100) + (f"({one_line(of, 100)})" if of else "")


def when(time: str) -> str:
    """Return a record's time for people, to the second."""
    return f"{time[:10]} {time[11:19]} UTC"


def _where(effect: Begun) -> str:
    on = f" on {prose(one_line(effect.host, 60), blocks=False)}" if effect.host else ""
    return f"process {effect.pid}{on}"


def _listed(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def not_certain(pending: Pending) -> list[str]:
    """Return the items of the section "Not certain"."""
    lost = [e for e in pending.effects if e.early or e.state != "began"]
    items = [_unsure(effect) for effect in lost[:_LISTED]]
    items += [_twice(effect) for effect in pending.repeated[:_LISTED]]
    hidden = max(0, len(lost) - _LISTED) + max(0, len(pending.repeated) - _LISTED)
    return [*items, f"and {hidden} more, see `caravanserai log`"] if hidden else items


def _unsure(effect: Begun) -> str:
    if effect.state == "began":
        return went(effect)
    label = effect.called
    which = f", attempt {effect.attempt}" if effect.attempt > 1 else ""
    if effect.state == "unrecorded":
        return (
            f"{label}{which} began {when(effect.time)} ({_where(effect)}) and ran to its end, and "
            "its result could not be kept: "
            f"{quoted(effect.why, 300)}. It does not run again unless somebody says so."
        )
    return (
        f"{label}{which} began {when(effect.time)} ({_where(effect)}) and never reported back. It "
        "may have happened or not. To find out, look where its effect would be seen; its "
        f"idempotency key is {code(one_line(effect.token, 200))}, if the step passes that on."
    )


def _twice(effect: Begun) -> str:
    return (
        f"{effect.called} was run again: attempt {effect.attempt} began "
        f"{when(effect.time)} ({_where(effect)}) and never reported back, so it may have "
        "happened twice."
    )


def went(effect: Begun) -> str:
    """Return the line of the live note for a step that began."""
    which = f", attempt {effect.attempt}" if effect.attempt > 1 else ""
    return f"{effect.called} began {when(effect.time)} ({_where(effect)}{which}), no result yet"


def to_decide(question: Asked, run_id: str) -> str:
    """Return the section of a question: what is asked, and the commands that answer it."""
    parts = [_quoted(question.text)]
    if question.reason:
        parts.append(f"The answer before was not taken: {quoted(question.reason, 300)}.")
    if question.expires:
        parts.append(f"Open until {question.expires[:19]}+00:00.")
    start = f"start the program again with {code(_named_run(run_id))}"
    many = "one of these" if len(question.options) > 1 else "this"
    parts.append(question.how or f"Answer with {many}, then {start}.")
    parts.append("```sh\n" + "\n".join(commands(question, run_id)) + "\n```")
    if question.about:
        parts.append(_ABOUT_EFFECT)
    return "\n\n".join(parts)


def _quoted(text: str) -> str:
    return fenced(text) if "\n" in text.strip("\n") else quoted(text.strip("\n"), 2000)


def _named_run(run_id: str) -> str:
    return f'run_id="{one_line(run_id, 100)}"'


def commands(question: Asked, run_id: str) -> list[str]:
    """Return the commands that answer a question, one for each option or likely answer."""

    def spoken(option: Any) -> str:
        return option if isinstance(option, str) else orjson.dumps(option).decode()

    values = [shell_word(spoken(option)) for option in question.options or question.examples]
    if not question.options:
        values.append("'YOUR ANSWER'")
    step = question.about is not None
    return [
        _command(run_id, question.id, value, with_result=step and value == "happened")
        for value in values
    ]


def _command(run_id: str, question: str, value: str, *, with_result: bool) -> str:
    words = [shell_word(run_id), question, value]
    begin = ["caravanserai answer"]
    result = ["--result '…'"] if with_result else []
    # A word that begins with a hyphen would be read as an option.
    if any(word.startswith("-") for word in words):
        return " ".join([*begin, *result, "--", *words])
    return " ".join([*begin, *words, *result])


def after_stop(run_id: str) -> str:
    """Return what can be done with a run that a person's answer ended."""
    name = shell_word(run_id)
    return (
        "To go on all the same: again(…) in the program begins a fresh pass, "
        f"`caravanserai fork {name} NEW` a run of its own from the last waypoint; "
        f"`caravanserai clean {name}` removes the run."
    )


def lines_after(since: Iterable[str], before: Pending, head: Head) -> list[str]:
    """Return the lines of "Since then" behind a record, without a line of its own.

    What began and has an end, or is told elsewhere now, is no longer "no result yet".
    """
    lines = list(since)
    if head["kind"] not in ("effect", "question"):
        return lines
    about = head.get("about")
    name = (about[0], about[1]) if isinstance(about, list) and len(about) == 2 else named(head)
    for effect in before.effects:
        if (effect.label, effect.key) == name and (line := went(effect)) in lines:
            lines.remove(line)
    return lines


def said_of(head: Head) -> str | None:
    """Return the line of the live note for a record about a step or an answer, or None."""
    at = when(_text(head.get("time")))
    if head["kind"] == "answer":
        by = quoted(_text(head.get("who")), 60)
        reason = f": {quoted(_text(head.get('reason')), 200)}" if head.get("reason") else ""
        told = _text(head.get("text"))
        name = _text(head.get("question"))
        return f"{name} was answered {quoted(told, 100)} by {by} at {at}{reason}."
    if head["kind"] == "withdrawn":
        return f"{_text(head.get('question'))} is no longer asked: the program went on without it."
    if head["kind"] != "effect" or "takes" in head:
        return None
    what, label = head.get("what"), begun(head).called
    attempt = _int(head.get("attempt"))
    which = f" (attempt {attempt})" if attempt > 1 else ""
    if what == "started":
        return went(begun(head))
    if what == "result":
        taken = _text(head.get("taken"))
        if taken:
            return f"{label} is taken to have happened, as {prose(one_line(taken, 20))} says."
        source = _text(head.get("replayed"))
        if source:
            run = code(one_line(source, 100))
            return f"{label} was not run: its result is the one that run {run} recorded."
        return f"{label} came to its end at {at}{which}."
    if what == "error":
        return f"{label} failed at {at}{which}: {_text(head.get('error'))}"
    if what == "paused":
        return f"{label} stopped at {at}{which} to wait for a person."
    return None
