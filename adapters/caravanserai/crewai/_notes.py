"""The notes of crews and flows, told from the states of their waypoints alone; needs no CrewAI.

Here are those of a crew, and the lines that are told as it works; `_flow_notes` has the flow's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from caravanserai.crewai._flow_notes import (
    flow_begun,
    flow_finished,
    flow_goal_of,
    method_done,
    paused,
)
from caravanserai.crewai._wording import (
    before,
    brief,
    call_lines,
    duration,
    goal,
    inputs,
    name,
    result,
    safely,
    some,
    who,
)
from caravanserai_core.notes import Note
from caravanserai_core.quoting import code, one_line, quoted
from caravanserai_core.words import call_text, listed, quote, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "answered",
    "begun",
    "changed",
    "finished",
    "flow_begun",
    "flow_finished",
    "flow_goal_of",
    "goal_of",
    "method_done",
    "paused",
    "refused",
    "task_done",
]

_CRASHED: Final = "**Picked up after a crash.** "

_PLANNED: Final = 14
_BEHIND: Final = 5
"""Most tasks that a plan shows one by one, and how many of them lie behind the first open one."""

_NO_AGENT: Final = "A model"
"""Who answers where no agent does."""

_ENDS: Final = "The crew puts its result together."

_MOST: Final = 12
"""Calls of one answer that are told one by one."""


def goal_of(crew: str, given: Mapping[str, Any] | None) -> str:
    """Return what a run is for.

    Args:
        crew: the crew's name.
        given: the inputs of its kickoff, or None.
    """
    title = f"Crew {code(one_line(crew, 60))}"
    return safely(lambda: sentence(f"{title}{inputs(given)}"), f"{title}.")


def begun(tree: Mapping[str, Any], run_id: str) -> Note:
    """Tell the waypoint at which a crew begins, or goes on with other tasks than before.

    Args:
        tree: its state; "changed" is the first task that is not as it was recorded.
        run_id: the run.
    """
    return safely(lambda: _begun(tree, run_id), Note("The crew begins."))


def _begun(tree: Mapping[str, Any], run_id: str) -> Note:
    planned = len(tree["tasks"])
    if "changed" in tree:
        story = f"{_differs(tree['changed'], planned)} {_kept(_done(tree))}"
    else:
        are = "is" if planned == 1 else "are"
        begins = f"goes on from {before(tree['handed'])}" if "handed" in tree else "begins"
        story = f"Crew {code(one_line(tree['crew']['name'], 60))} {begins}: "
        story += f"{some(planned, 'task')} {are} planned."
        if _managed(tree):
            story += " A manager gives them to its agents."
    return Note(
        f"{story}{_then(tree)}",
        happened=_handed(tree),
        plan=_plan(tree),
        next=_next(tree, run_id),
        goal=goal(tree, goal_of(tree["crew"]["name"], tree["given"])),
    )


def _handed(tree: Mapping[str, Any]) -> list[str]:
    """Tell what tasks are given of the run before."""
    if "handed" not in tree:
        return []
    given = inputs(tree["given"]).removeprefix(", ")
    size = some(len(tree["handed"]["text"]), "character")
    told = (
        f"What that run hands over, {size}, is given as context to each task without an earlier "
        "one; to later tasks what was done, decided and is open."
    )
    return [sentence(f"The crew was {given}"), told] if given else [told]


def changed(recorded: Mapping[str, Any], same: int) -> str:
    """Return the remark that a crew has other tasks than the run was recorded with.

    Args:
        recorded: the state that the run goes on from.
        same: how many tasks, from the first one on, are as they were.
    """
    return safely(lambda: _changed(recorded, same), "The crew is not as it was recorded.")


def _changed(recorded: Mapping[str, Any], same: int) -> str:
    if same < len(recorded["tasks"]):
        what = (
            f"Task {same + 1}, {_title(recorded['tasks'][same])}, is not as it is recorded: what "
            "is recorded of it and of later tasks is not used."
        )
    else:
        what = "The crew has more tasks than were recorded."
    return f"{what} {_kept([index for index in _done(recorded) if index < same])}"


def task_done(tree: Mapping[str, Any], run_id: str, *, resumed: bool) -> Note:
    """Tell the waypoint at the end of a task: the newest that is done.

    Args:
        tree: its state.
        run_id: the run.
        resumed: the start before was cut off by a crash.
    """
    return safely(lambda: _task_done(tree, run_id, resumed), Note("A task is done."))


def _task_done(tree: Mapping[str, Any], run_id: str, resumed: bool) -> Note:
    newest = tree["done"][-1]
    index = newest["task"]
    task, did, agent = tree["tasks"][index], newest["did"], _doer(tree, newest)
    story = f"Task {index + 1} of {len(tree['tasks'])} is done: {_title(task)}{_by(agent)}."
    calls = f"{some(did['models'], 'model call')}, {some(len(did['tools']), 'tool call')}"
    took = duration(did["seconds"])
    worked = f"{_capital(who(agent))} worked on {_title(task)}"
    # Recorded answers and results count; the time is that of the start that ended the task.
    if resumed:
        worked += f": {calls}, with those before the crash, and {took} since."
    else:
        worked += f" for {took}: {calls}."
    happened = [worked, *call_lines(did["tools"], agent)]
    retries = did["guardrail_retries"]
    if retries:
        happened.append(f"A guardrail refused {some(retries, 'earlier result')}.")
    happened.append(result(newest["output"]["raw"]))
    return Note(
        f"{_CRASHED if resumed else ''}{story}{_then(tree)}",
        happened=happened,
        plan=_plan(tree, told=index),
        next=_next(tree, run_id),
        goal=goal(tree, goal_of(tree["crew"]["name"], tree["given"])),
    )


def finished(tree: Mapping[str, Any], run_id: str, *, resumed: bool) -> Note:
    """Tell the waypoint at which a crew is done.

    Args:
        tree: its state.
        run_id: the run.
        resumed: the start before was cut off by a crash.
    """
    return safely(lambda: _finished(tree, run_id, resumed), Note("The crew is done."))


def _finished(tree: Mapping[str, Any], run_id: str, resumed: bool) -> Note:
    gave = tree["result"]
    last = tree["done"][-1] if tree["done"] else None
    same = last is not None and last["output"]["raw"] == gave["raw"]
    failed = sum(call["failed"] for entry in tree["done"] for call in entry["did"]["tools"])
    happened = [f"{some(failed, 'tool call')} failed."] if failed else []
    return Note(
        f"{_CRASHED if resumed else ''}The crew is done: {_totals(tree)}.",
        happened=[*happened, result(gave["raw"])],
        plan=_plan(tree, told=last["task"] if last is not None and same else None),
        next=f"Nothing: the crew is done. Started again, run {_run(run_id)} gives this result and "
        "asks no model.",
        goal=goal(tree, goal_of(tree["crew"]["name"], tree["given"])),
    )


def _totals(tree: Mapping[str, Any]) -> str:
    done, skipped, planned = tree["done"], tree["skipped"], len(tree["tasks"])
    tasks = f"{len(done)} of {some(planned, 'task')}" if skipped else some(planned, "task")
    did = [entry["did"] for entry in done]
    parts = [
        some(sum(one["models"] for one in did), "model call"),
        some(sum(len(one["tools"]) for one in did), "tool call"),
    ]
    tokens = tree["result"]["token_usage"].get("total_tokens")
    if tokens:
        parts.append(some(tokens, "token"))
    left_out = f" ({len(skipped)} left out)" if skipped else ""
    return f"{tasks}{left_out}, {listed(parts)}, {duration(sum(one['seconds'] for one in did))}"


def refused(agent: str, error: str) -> str:
    """Return the line of the live note for a result that a guardrail refused.

    Args:
        agent: the agent whose result it is, or "".
        error: why.
    """
    whose = f"a result of {who(agent)}" if agent.strip() else "a result"
    return sentence(f"A guardrail refused {whose}: {quote(error)}")


def answered(agent: str, answer: str | Iterable[Mapping[str, Any]]) -> str:
    """Return the line of the live note for an answer of a model.

    Args:
        agent: the agent whose model it is, or "A model".
        answer: a text, or the calls that it asks for: `name` and `arguments` of each.
    """
    whose = _NO_AGENT if agent == _NO_AGENT else f"{who(agent)}'s model"
    if isinstance(answer, str):
        told = f"said {quote(answer)}" if answer.strip() else "gave an empty answer"
        return sentence(f"{whose} {told}")
    calls = [call_text(call["name"], call["arguments"]) for call in answer]
    if len(calls) > _MOST:
        calls = [*calls[:_MOST], f"{len(calls) - _MOST} more"]
    return sentence(f"{whose} asked for {listed(calls)}")


# ---------------------------------------------------------------------- tasks


def _title(task: Mapping[str, Any]) -> str:
    """Return what notes call a task: its name, or how its description begins."""
    if task["name"]:
        return name(task["name"])
    return quoted(task["description"].strip(), 60)


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _by(agent: str | None) -> str:
    return f", by {who(agent)}" if agent else ""


def _doer(tree: Mapping[str, Any], entry: Mapping[str, Any]) -> str:
    """Return who did a task."""
    return entry["did"]["agent"] or tree["tasks"][entry["task"]]["agent"] or ""


def _managed(tree: Mapping[str, Any]) -> bool:
    return bool(tree["crew"]["process"] == "hierarchical")


def _done(tree: Mapping[str, Any]) -> list[int]:
    return sorted(entry["task"] for entry in tree["done"])


def _open(tree: Mapping[str, Any]) -> list[int]:
    over = {*_done(tree), *tree["skipped"]}
    return [index for index in range(len(tree["tasks"])) if index not in over]


def _differs(same: int, planned: int) -> str:
    """Tell that a crew is another one than it was."""
    if same < planned:
        return f"The crew is not as it was recorded: it goes on anew from task {same + 1}."
    return "The crew is not as it was recorded: it has fewer tasks."


def _kept(done: list[int]) -> str:
    """Tell which of the tasks that are done stay."""
    if not done:
        return "No task that is done is kept."
    verb = "is" if len(done) == 1 else "are"
    return f"{_capital(_numbers(done))} {verb} kept."


def _numbers(indexes: list[int]) -> str:
    """Name tasks by their numbers: `tasks 1 and 3`, `tasks 1 to 5`."""
    if len(indexes) == 1:
        return f"task {indexes[0] + 1}"
    if len(indexes) > 2 and indexes[-1] - indexes[0] == len(indexes) - 1:
        return f"tasks {indexes[0] + 1} to {indexes[-1] + 1}"
    if len(indexes) > _PLANNED:
        return f"{len(indexes)} tasks"
    return f"tasks {listed([str(index + 1) for index in indexes])}"


# ---------------------------------------------------------------------- what comes next


def _beside(tree: Mapping[str, Any]) -> list[int]:
    """Return the open tasks that CrewAI starts without waiting for the newest that is done."""
    if not tree["done"]:
        return []
    newest, tasks = tree["done"][-1]["task"], tree["tasks"]
    return [
        index
        for index in _open(tree)
        if all(task["async"] for task in tasks[min(index, newest) : max(index, newest) + 1])
    ]


def _then(tree: Mapping[str, Any]) -> str:
    """Tell at the end of the story which task is next."""
    open_, beside = _open(tree), _beside(tree)
    if not open_:
        return "" if "changed" in tree else " No task is left."
    if beside:
        told = [f"task {index + 1} ({_title(tree['tasks'][index])})" for index in beside[:3]]
        if len(beside) > len(told):
            told.append(f"{len(beside) - len(told)} more")
        verb = "does" if len(beside) == 1 else "do"
        return f" {_capital(listed(told))} {verb} not wait for it."
    task = tree["tasks"][open_[0]]
    return f" Next is task {open_[0] + 1}: {_title(task)}{_by(task['agent'])}."


def _next(tree: Mapping[str, Any], run_id: str) -> str:
    """Tell what comes next, and what a crash costs."""
    beside = _beside(tree)
    waits = [index for index in _open(tree) if index not in beside]
    if not waits:
        start = _ENDS
    else:
        task = tree["tasks"][waits[0]]
        title = f"task {waits[0] + 1}, {_title(task)}"
        if _managed(tree):
            start = f"The manager works on {title}."
        elif task["agent"]:
            start = f"{_capital(who(task['agent']))} starts {title}."
        else:
            start = f"Then comes {title}."
        if task["async"]:
            start = f"{start[:-1]}, and later tasks may run beside it."
    if beside:
        # CrewAI starts what is not async, and makes the result, when all of these are done.
        ends = "is done" if len(beside) == 1 else "are done"
        start = f"When {_numbers(beside)} {ends}: {start}"
    again = f"After a crash, start run {_run(run_id)} again with the same inputs"
    done = _done(tree)
    if not done:
        return f"{start} {again}."
    verb = "is" if len(done) == 1 else "are"
    return f"{start} {again}: {_numbers(done)} {verb} taken from here, without a model call."


def _run(run_id: str) -> str:
    return code(one_line(run_id, 100))


# ---------------------------------------------------------------------- the plan


def _plan(tree: Mapping[str, Any], told: int | None = None) -> list[tuple[str, bool]]:
    """Return the tasks of a crew, done and open; of many those around the first open one.

    Args:
        tree: the state.
        told: the task whose result the note tells elsewhere, or None.
    """
    open_ = set(_open(tree))
    count = len(tree["tasks"])
    start, end = 0, count
    if count > _PLANNED:
        first = min(open_, default=count)
        start = max(0, min(first - _BEHIND, count - _PLANNED))
        end = start + _PLANNED
    done = {entry["task"]: entry for entry in tree["done"]}
    items = [_planned(tree, index, done.get(index), told) for index in range(start, end)]
    if start:
        items.insert(0, (_numbers(list(range(start))), True))
    if end < count:
        items.append((f"{some(count - end, 'more task')}", not open_ & set(range(end, count))))
    return items


def _planned(
    tree: Mapping[str, Any], index: int, entry: Mapping[str, Any] | None, told: int | None
) -> tuple[str, bool]:
    task = tree["tasks"][index]
    text = f"{index + 1}. {_title(task)}"
    if index in tree["skipped"]:
        return f"{text}: left out, its condition did not hold", True
    if entry is not None:
        text += _by(_doer(tree, entry))
        return (text if index == told else f"{text}: {brief(entry['output']['raw'])}"), True
    text += _by(task["agent"])
    if task["async"]:
        text += ", beside others"
    return (f"{text}: {quote(task['description'])}" if task["name"] else text), False
