"""The notes of a flow, told from the states of its waypoints alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from caravanserai.crewai._wording import (
    before,
    brief,
    call_lines,
    duration,
    goal,
    inputs,
    result,
    safely,
    some,
    value,
)
from caravanserai_core.notes import Note
from caravanserai_core.quoting import code, one_line, quoted
from caravanserai_core.words import listed, quote, sentence, shortened

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["flow_begun", "flow_finished", "flow_goal_of", "method_done", "paused"]

_CRASHED: Final = "**Picked up after a crash.** "
_PATIENT: Final = "The run can wait as long as you like; no process has to stay alive."

_SO_FAR: Final = 8
"""Most methods that "So far" tells."""

_FIELDS: Final = 6
"""Most fields of a flow's state that a note shows."""


def flow_goal_of(flow: str, given: Mapping[str, Any] | None) -> str:
    """Return what a run is for.

    Args:
        flow: the flow's name.
        given: the inputs of its kickoff, without the id.
    """
    title = f"Flow {code(one_line(flow, 60))}"
    return safely(lambda: sentence(f"{title}{inputs(given)}"), f"{title}.")


def flow_begun(tree: Mapping[str, Any], run_id: str) -> Note:
    """Tell the waypoint at which a flow begins.

    Args:
        tree: its state; "state" is that of the turn before, or None.
        run_id: the run.
    """
    return safely(lambda: _begun(tree, run_id), Note("The flow begins."))


def _begun(tree: Mapping[str, Any], run_id: str) -> Note:
    title = f"Flow {code(one_line(tree['flow']['name'], 60))}"
    if tree["state"] is None and "handed" in tree:
        story = f"{title} goes on from {before(tree['handed'])}."
    elif tree["state"] is None:
        story = f"{title} begins."
    else:
        story = f"{title} begins a turn with the state of the one before."
    return Note(
        story,
        happened=_state(tree),
        next=f"Its first methods run. {_again(tree, run_id)}",
        goal=goal(tree, flow_goal_of(tree["flow"]["name"], tree["given"])),
    )


def method_done(tree: Mapping[str, Any], run_id: str, *, resumed: bool) -> Note:
    """Tell the waypoint at the end of a method: the newest that is done.

    Args:
        tree: its state.
        run_id: the run.
        resumed: the start before was cut off by a crash.
    """
    return safely(lambda: _method_done(tree, run_id, resumed), Note("A method is done."))


def _method_done(tree: Mapping[str, Any], run_id: str, resumed: bool) -> Note:
    *earlier, newest = tree["methods"]
    title = _title(newest["name"])
    did = newest["did"]
    ran = f"{title} ran for {duration(newest['seconds'])}{' since the crash' if resumed else ''}"
    if did["models"] or did["tools"]:
        ran += f": {some(did['models'], 'model call')}, {some(len(did['tools']), 'tool call')}"
    return Note(
        f"{_CRASHED if resumed else ''}{_told(newest)}",
        happened=[f"{ran}.", *call_lines(did["tools"], ""), *_state(tree)],
        next=f"What waits for {title} runs, if anything does. {_again(tree, run_id)}",
        so_far=_so_far(earlier),
        goal=goal(tree, flow_goal_of(tree["flow"]["name"], tree["given"])),
    )


def paused(tree: Mapping[str, Any], run_id: str) -> Note:  # noqa: ARG001 - as the others
    """Tell the waypoint at which a flow waits for a person.

    Args:
        tree: its state, with what it waits for.
        run_id: the run.
    """
    return safely(lambda: _paused(tree), Note("The flow waits for a person."))


def _paused(tree: Mapping[str, Any]) -> Note:
    waits = tree["waits"]
    title = _title(waits["method"])
    goes_on = "The same kickoff goes on with the answer"
    if waits.get("emit"):
        ways = listed([quoted(str(way), 40) for way in waits["emit"]])
        goes_on += f", which leads to one of {ways}"
    return Note(
        f"A person is asked about what {title} gave. {_PATIENT}",
        happened=[sentence(f"{title} gave {_shown(waits['output'])}"), *_state(tree)],
        next=["A person answers.", f"{goes_on}. {title} is not run again."],
        so_far=_so_far(tree["methods"]),
        goal=goal(tree, flow_goal_of(tree["flow"]["name"], tree["given"])),
    )


def flow_finished(tree: Mapping[str, Any], run_id: str, *, resumed: bool) -> Note:
    """Tell the waypoint at which a flow is done.

    Args:
        tree: its state.
        run_id: the run.
        resumed: the start before was cut off by a crash.
    """
    return safely(lambda: _finished(tree, run_id, resumed), Note("The flow is done."))


def _finished(tree: Mapping[str, Any], run_id: str, resumed: bool) -> Note:
    methods = tree["methods"]
    did = [entry["did"] for entry in methods]
    models, tools = sum(one["models"] for one in did), sum(len(one["tools"]) for one in did)
    parts = [some(len(methods), "method call")]
    if models or tools:
        parts += [some(models, "model call"), some(tools, "tool call")]
    took = duration(sum(entry["seconds"] for entry in methods))
    text = _text(tree["result"])
    gave = sentence(f"It gave {_gave(tree['result'])}") if text is None else result(text)
    return Note(
        f"{_CRASHED if resumed else ''}The flow is done: {listed(parts)}, {took}.",
        happened=[gave, *_state(tree)],
        next=f"Nothing: the flow is done. Started again, run {_run(run_id)} gives this result.",
        so_far=_so_far(methods),
        goal=goal(tree, flow_goal_of(tree["flow"]["name"], tree["given"])),
    )


# ---------------------------------------------------------------------- what methods gave


def _title(method: str) -> str:
    return code(one_line(method, 60))


def _told(entry: Mapping[str, Any]) -> str:
    """Tell what a method gave, and what a person said of it."""
    title, feedback = _title(entry["name"]), entry.get("feedback")
    if not feedback:
        return sentence(f"{title} gave {_gave(entry['output'])}")
    said = str(feedback["feedback"])
    told = f"said {quote(said)}" if said.strip() else "agreed without a word"
    outcome = feedback.get("outcome")
    means = f", which means {quoted(str(outcome), 40)}" if outcome else ""
    return sentence(f"{title} gave {_gave(feedback['output'])}; a person {told}{means}")


def _gave(kept: Mapping[str, Any]) -> str:
    """Tell a value that a state keeps, to follow a verb."""
    text = _text(kept)
    if text is None:
        return _shown(kept.get("value"))
    if "value" in kept:
        return brief(text)
    return f"the output of a {'crew' if 'crew_output' in kept else 'task'}, {brief(text)}"


def _text(kept: Mapping[str, Any]) -> str | None:
    """Return the text of a value that a state keeps, None where it is none."""
    for kind in ("crew_output", "task_output"):
        if kind in kept:
            return str(kept[kind]["raw"])
    found = kept.get("value")
    return found if isinstance(found, str) else None


def _shown(item: Any) -> str:
    if isinstance(item, str):
        return brief(item)
    return "nothing" if item is None else value(item)


def _state(tree: Mapping[str, Any]) -> list[str]:
    """Tell the state of a flow, a line at most."""
    fields = {key: item for key, item in (tree["state"] or {}).items() if key != "id"}
    told = [
        f"{code(one_line(str(key), 40))} = {value(item)}"
        for key, item in list(fields.items())[:_FIELDS]
    ]
    if len(fields) > _FIELDS:
        told.append(some(len(fields) - _FIELDS, "more field"))
    return [sentence(f"The state has {listed(told)}")] if told else []


def _so_far(methods: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = [shortened(_told(entry)) for entry in methods[-_SO_FAR:]]
    earlier = len(methods) - len(lines)
    return [f"{some(earlier, 'earlier method')}, see the older notes", *lines] if earlier else lines


def _again(tree: Mapping[str, Any], run_id: str) -> str:
    """Tell what a crash costs."""
    again = f"After a crash, start run {_run(run_id)} again"
    ended = len(tree["methods"])
    if not ended:
        return f"{again}."
    what = "the method that ended is" if ended == 1 else f"the {ended:,} methods that ended are"
    return f"{again}: {what} not run a second time."


def _run(run_id: str) -> str:
    return code(one_line(run_id, 100))
