"""A run that goes on from another one, of whatever framework: `continues="other-run"`.

The new run's first records say where it comes from and hold all that it was handed, so that each
of its starts goes on from the same, whatever becomes of the other run. Steps of the program under
`once` come along as they are. Calls of tools that may have happened come along as open steps: an
equal call takes its place and is handled as any step that began and never reported back.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from caravanserai_core import codec, conversation, effects, handing, reading, survey
from caravanserai_core.errors import Conflict, InputChanged, RunBusy, SecretFound, UsageError
from caravanserai_core.handed import Handoff, made_with
from caravanserai_core.journal import journal_for
from caravanserai_core.names import check_run_id
from caravanserai_core.origins import HANDED, handed_origin
from caravanserai_core.ownership import refuse_busy
from caravanserai_core.pending import called
from caravanserai_core.questions import Changed
from caravanserai_core.quoting import code, one_line
from caravanserai_core.redact import redact
from caravanserai_core.stepping import Step, bare, does_arguments, same
from caravanserai_core.words import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from caravanserai_core.effects import OnUncertain
    from caravanserai_core.journal import Journal
    from caravanserai_core.transcript import Message, ToolCall

    Continues = str | Handoff | None

__all__ = ["ENTRY", "Inherited", "afresh", "begin", "handed_to", "recorded"]

_log = logging.getLogger("caravanserai")

ENTRY: Final = "handoff"
"""Name of the entry that holds what a run was handed."""

_SUMMARY: Final = 300
_DONE: Final = 6
"""Most calls that the first note names as done."""


def begin(journal: Journal, continues: Continues) -> Handoff | None:
    """Let a run that is new go on from another one; of one that is not, check that it does.

    Args:
        journal: that of the run. Its adapter, framework and goal are set if it is new.
        continues: the other run, `RUN` or `RUN@N`, in the same store; or a handoff of it.

    Returns:
        What the run was handed, as recorded; None where it goes on from none.

    Raises:
        RunNotFound, WaypointNotFound: there is no such run to go on from.
        RunBusy: another living process works on it.
        InputChanged: the run was begun without it, or goes on from another one.
        UsageError: it would go on from itself.
    """
    if continues is not None and not isinstance(continues, (str, Handoff)):
        raise UsageError(
            'continues= takes the run to go on from, "RUN" or "RUN@3", or what handoff() returned'
        )
    exists: bool = journal.turns.do(lambda: journal.look() is not None or journal.exists)
    if exists and continues is not None:
        _check(journal, continues, handed_origin(journal.origin))
    elif continues is not None:
        given = _given(journal, continues)
        journal.turns.do(lambda: _write(journal, given))
    return handed_to(journal, continues)


def _given(journal: Journal, continues: str | Handoff) -> Handoff:
    """Make the handoff, unless it is given."""
    store = journal.store
    at: int | None
    if isinstance(continues, Handoff):
        run_id, at = continues.run_id, continues.waypoint
    else:
        run_id, at = handing.named(store, continues)
        run_id = check_run_id(run_id)
    if run_id == journal.run_id:
        raise UsageError(
            f"run {one_line(run_id)} would go on from itself: a run that goes on from another one "
            "has a name of its own"
        )
    other = journal_for(store, run_id)
    try:
        refuse_busy(other)
    except RunBusy as busy:
        busy.add_note(f"caravanserai: run {one_line(journal.run_id)} was to go on from it.")
        raise
    if isinstance(continues, Handoff):
        return continues
    made: Handoff = other.turns.do(lambda: handing.make(store, run_id, at))
    return made


def _write(journal: Journal, handed: Handoff) -> None:
    """Write the first records of the new run; runs in its turn."""
    if journal.goal is None or (journal.adapter != conversation.PLAIN and handed.goal):
        journal.goal = handed.goal  # what an adapter makes of a prompt says less
    journal.origin = {
        "run_id": handed.run_id,
        "waypoint": handed.waypoint,
        "how": HANDED,
        "adapter": handed.adapter,
    }
    encoded = codec.encode(handed.to_json())
    story = _story(handed)
    fields: dict[str, Any] = {"name": ENTRY, "remark": story, "say": story}
    if encoded.tagged:
        fields["tagged"] = True
    body = b'"data":' + encoded.data

    def make() -> tuple[dict[str, Any], bytes]:
        if journal.tail is not None:
            raise Changed  # another process began it meanwhile
        return fields, body

    try:
        journal.add_made("entry", make)
    except (Changed, Conflict):
        if journal.look() is None:
            raise
        return
    _log.info("run %s goes on from %s", one_line(journal.run_id), one_line(handed.source))


def _story(handed: Handoff) -> str:
    made = made_with(handed.framework)
    at = f"waypoint {handed.waypoint}" if handed.waypoint else "its beginning"
    told = one_line(handed.summary.strip(), _SUMMARY)
    story = f"This run goes on from run {code(one_line(handed.run_id, 100))}{made} at {at}"
    story = f"{story}: {told}" if told else f"{story}."
    done = [result.called for result in handed.results if not result.failed]
    if not done:
        return story
    more = [f"{len(done) - _DONE} before"] if len(done) > _DONE else []
    return f"{story} Done there: {listed([*more, *done[-_DONE:]])}."


def handed_to(journal: Journal, continues: Continues = None) -> Handoff | None:
    """Return what a run was handed, as its journal has it; None: nothing.

    Steps that come along are written as well, where a crash came in between.

    Raises:
        InputChanged: `continues` is given, and the run was begun without it or with another one.
    """
    found: Handoff | None = journal.turns.do(lambda: _read(journal))
    if continues is not None:
        _check(journal, continues, handed_origin(journal.origin))
    if found is not None:
        journal.turns.do(lambda: _carry(journal, found))
    return found


def afresh(journal: Journal) -> None:
    """Begin a fresh pass of a run, in which what it was handed counts. Runs in its turn."""
    effects.afresh(journal)
    handed = recorded(journal)
    if handed is not None:
        _carry(journal, handed)


def _read(journal: Journal) -> Handoff | None:
    return None if journal.look() is None else recorded(journal)


def recorded(journal: Journal) -> Handoff | None:
    """Return what a run was handed, given its journal as it is known; in the run's turn."""
    if handed_origin(journal.origin) is None:
        return None
    for record in survey.records(journal.store, journal.run_id, bodies=True):
        if record.kind == "entry" and record.head.get("name") == ENTRY:
            return Handoff.from_json(reading.data_of(record))
        if record.kind == "waypoint":
            break
    return None


def _check(journal: Journal, continues: str | Handoff, origin: dict[str, Any] | None) -> None:
    named = continues.source if isinstance(continues, Handoff) else continues
    if origin is not None:
        run_id, at = origin["run_id"], origin["waypoint"]
        # Neither may the other run be there any more, nor is `RUN@-1` what it was then.
        back = named.removeprefix(f"{run_id}@-")
        if named in (run_id, f"{run_id}@{at}") or (back != named and back.isdecimal()):
            return
    was = "on its own" if origin is None else f"from {origin['run_id']}@{origin['waypoint']}"
    raise InputChanged(
        f"run {one_line(journal.run_id)} was begun {one_line(was)} and is now to go on from "
        f"{one_line(named)}. Nothing was run. Use another run_id."
    )


# ---------------------------------------------------------------------- steps that come along


def _carry(journal: Journal, handed: Handoff) -> None:
    """Write the steps that come along and are not there yet; runs in the run's turn."""
    for step in handed.steps:
        head = {**step["head"], "carried": handed.run_id}
        # A secret may have been declared since. The name of a program's own step stays.
        head |= {name: redact(head[name]) for name in ("of", "why") if name in head}
        if "same" in head:
            head["label"] = redact(head["label"])
        if not _is_new(journal, head):
            continue

        def make(head: dict[str, Any] = head, step: Any = step) -> tuple[dict[str, Any], bytes]:
            if not _is_new(journal, head):
                raise Changed  # another process that begins it was quicker
            return head, step["body"].encode()

        try:
            with suppress(Changed):
                journal.add_made("effect", make, time=step["time"])
        except SecretFound:
            # What it gave holds what was declared a secret since.
            step["body"] = ""
            head |= {"what": "unrecorded", "why": "its result holds a declared secret"}
            journal.add_made("effect", make, time=step["time"])


def _is_new(journal: Journal, head: Mapping[str, Any]) -> bool:
    """Say whether a record of a step that comes along is not there yet."""
    had = journal.ledger.effects.get((head["label"], head.get("key", "")))
    if had is None:
        return True
    carried = had.what == "started" and had.head.get("carried") and had.attempt == head["attempt"]
    return head["what"] != "started" and bool(carried)


class Inherited:
    """What a run took over, for the calls of its tools.

    Args:
        handed: what the run was handed, or None: then steps are those of any run.
        replay: names of tools whose recorded results are given again for equal arguments.

    Raises:
        UsageError: `replay` is no list of names, or there is nothing to be replayed from.
    """

    def __init__(self, handed: Handoff | None, replay: Iterable[str] = ()) -> None:
        self.handed = handed
        if isinstance(replay, str) or not all(isinstance(name, str) for name in replay):
            raise UsageError('replay= is a list of names of tools: replay=["lookup"]')
        self._replay = frozenset(map(bare, replay))
        if self._replay and handed is None:
            raise UsageError("replay= goes with continues=: there is nothing to replay from")
        self._given: dict[tuple[str, str], str] = {}
        for call, result in _ended(handed) if handed is not None else ():
            name_ = bare(call.name)
            if name_ in self._replay and isinstance(call.arguments, dict) and not result.failed:
                self._given[(name_, same(call.arguments))] = result.text
        self._open: dict[tuple[str, str], int] = {}
        for call in handed.uncertain if handed is not None else ():
            name = (bare(call.name), same(_arguments(call)))
            self._open[name] = self._open.get(name, 0) + 1

        # Steps of the program that may have happened: a tool of their name may do what they did.
        self._begun = [
            step["head"]
            for step in (handed.steps if handed is not None else ())
            if step["head"]["what"] == "started" and "same" not in step["head"]
        ]

    def once(
        self,
        journal: Journal,
        step: Step,
        arguments: Mapping[str, Any],
        call: Callable[[], Any],
        policy: OnUncertain,
    ) -> Any:
        """Run the call of a tool as `effects.once` does, or what it was handed in its place.

        A call that does a step which came along is two steps, and that one alone is asked about:
        its own begins again until it has what the other one gave.
        """
        given, step, inner = self._found(journal, step, arguments)
        if given is not None:
            return given[0]
        if inner is None:
            return effects.once(journal, step, call, policy)
        other = inner
        return effects.once(
            journal, step, lambda: effects.once(journal, other, call, policy), "rerun"
        )

    async def aonce(
        self,
        journal: Journal,
        step: Step,
        arguments: Mapping[str, Any],
        call: Callable[[], Any],
        policy: OnUncertain,
    ) -> Any:
        """Do the same from async code; what `call` returns is awaited, if it can be."""
        given, step, inner = self._found(journal, step, arguments)
        if given is not None:
            return given[0]
        if inner is None:
            return await effects.aonce(journal, step, call, policy)
        other = inner
        return await effects.aonce(
            journal, step, lambda: effects.aonce(journal, other, call, policy), "rerun"
        )

    def arguments(self, label: str, args: tuple[Any, ...]) -> dict[str, Any]:
        """Return the arguments of an open call that a step of the program does, or none.

        Args:
            label: of the step.
            args: what its function is given: the values of the call's arguments in their order, or
                the arguments as one dict.
        """
        for call in self.handed.uncertain if self.handed is not None else ():
            given = call.arguments
            if bare(call.name) == label and isinstance(given, dict):
                values = list(given.values())
                if list(args) in (values, [given]) and same({"": list(args)}) in (
                    same({"": values}),
                    same({"": [given]}),
                ):
                    return given
        return {}

    def recorded(self, tool: str, arguments: Mapping[str, Any]) -> str | None:
        """Return the recorded result that is to be given again for a call, or None."""
        return self._given.get((bare(tool), same(arguments))) if self._given else None

    def _found(
        self, journal: Journal, step: Step, arguments: Mapping[str, Any]
    ) -> tuple[tuple[Any] | None, Step, Step | None]:
        """Return (a result to give), the step, and the step taken over that it does, or None."""
        if not self._given and not self._open and not self._begun:
            return None, step, None
        tool = bare(step.name[0])
        text = self.recorded(tool, arguments)
        if text is not None and self.handed is not None:
            why = {"replayed": self.handed.run_id}
            return (effects.give(journal, step, text, why),), step, None
        mine = {
            (head["label"], head.get("key", ""))
            for head in self._begun
            if step.token and does_arguments(head, tool, arguments)
        }
        if not mine and (tool, same(arguments)) not in self._open:
            return None, step, None
        other = journal.turns.do(lambda: _taken(journal, step.name, tool, same(arguments), mine))
        if other is None:
            return None, step, None
        return None, step._replace(takes=other.name), other


def _taken(
    journal: Journal,
    name: tuple[str, str],
    tool: str,
    digest: str,
    mine: Collection[tuple[str, str]],
) -> Step | None:
    """Return the open step that a call takes over, and no other call has; in the run's turn.

    Args:
        journal: that of the run.
        name: of the call's own step.
        tool: what is called.
        digest: of its arguments.
        mine: names of steps of the program that are like the call.
    """
    known = journal.ledger.effects
    owners = {
        tuple(effect.head["takes"]): owner
        for owner, effect in known.items()
        if effect.head.get("takes")
    }
    for other, effect in known.items():
        first = effect.records[0].head
        like = bare(other[0]) == tool and first.get("same") == digest
        if not (like or other in mine) or owners.get(other, name) != name:
            continue
        of, token = str(first.get("of", "")), str(first.get("token", ""))
        return Step(other, "", of, token or called(tool, of), digest if like else "")
    return None


def _arguments(call: ToolCall) -> dict[str, Any]:
    return call.arguments if isinstance(call.arguments, dict) else {}


def _ended(handed: Handoff) -> Iterator[tuple[ToolCall, Message]]:
    """Yield the calls that have a result, with the whole of it."""
    messages = handed.transcript.messages
    calls = {call.id: call for message in messages for call in message.tool_calls}
    for message in messages:
        if message.role == "tool" and message.tool_call_id in calls:
            yield calls[message.tool_call_id], message
