"""The notes of a run of the OpenAI Agents SDK, told from the states of its waypoints alone.

A state is what `_job` saves: `given` (the input), `run` (the SDK's RunState as JSON), `counts`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from caravanserai.openai_agents import _items
from caravanserai.openai_agents._seed import SEED
from caravanserai.openai_agents._telling import (
    Round,
    agent_name,
    called,
    number,
    rounds,
    speaker,
    tell,
)
from caravanserai_core.notes import Note
from caravanserai_core.quoting import code, one_line, quoted
from caravanserai_core.words import (
    arguments_text,
    counted,
    listed,
    quote,
    sentence,
    shortened,
    value_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from caravanserai.openai_agents._items import Item

__all__ = [
    "answered",
    "begun",
    "called_as",
    "ended",
    "goal_of",
    "paused",
    "text_of",
    "turned",
]

_log = logging.getLogger("caravanserai")

_SO_FAR: Final = 8
"""Most lines of "So far"."""

_LOOKED_AT: Final = 60
"""Most items of earlier turns that a note is told from: it costs the same in a long run."""

_TOGETHER: Final = 400
"""Characters; what happened is told in the story itself up to here."""

_GOAL: Final = 300

_CRASHED: Final = "**Picked up after a crash.** "
_BARE: Final = frozenset({"computer_call", "apply_patch_call"})
"""Calls of tools that hold an object with many functions; of these no single call is recorded."""

_PATIENT: Final = "The run can wait as long as you like; no process has to stay alive."
_NOT_AGAIN: Final = "and will not be repeated."


def begun(state: Mapping[str, Any], agent: str = "") -> Note:
    """Tell the waypoint at which a run begins.

    Args:
        state: its state.
        agent: the agent that it begins with, where the state has no RunState yet.
    """
    return _safely(lambda: _begun(state, agent or _agent(state)), "The run begins.")


def _begun(state: Mapping[str, Any], agent: str) -> Note:
    who = agent_name(agent) if agent else "The run"
    asked = [item for item in _items.given_items(state.get("given")) if item.kind == "message"]
    if len(asked) == 1 and asked[0].name == "user":
        story = sentence(f"{who} was given {_told(asked[0])}")
    elif asked:
        told = f", the last one of {speaker(asked[-1].name)}: {_told(asked[-1])}"
        story = sentence(f"{who} was given {number(len(asked))} messages{told}")
    else:
        story = f"{who} was started without a message."
    asks = f"{agent_name(agent)}'s model answers." if agent else "The model answers."
    seed = state.get(SEED)
    if seed is not None:
        asked = [item for item in asked if item.text.strip() or item.extras]
        count = len(seed["conversation"]["messages"])
        what = f"its conversation ({_some(count, 'message')})" if count else "what it was told"
        from_ = f"This run goes on from {code(one_line(seed['source'], 100))}, with {what}."
        asked_ = story if asked else f"{who} was given nothing else."
        story = f"{from_} {asked_}"
    return Note(story, next=asks, goal=_goal(state))


def turned(
    before: Mapping[str, Any] | None, state: Mapping[str, Any], *, resumed: bool = False
) -> Note:
    """Tell the waypoint at the end of a turn.

    Args:
        before: the state of the waypoint before it, or None.
        state: its state.
        resumed: the turn was cut off by a crash, and ended by the process that took over.
    """
    return _safely(lambda: _turned(before, state, resumed), "A turn ended.")


def _turned(before: Mapping[str, Any] | None, state: Mapping[str, Any], resumed: bool) -> Note:
    new = _new(before, state)
    happened = _told_rounds(new, state, before)
    story, lines = _story(happened, "A turn ended.")
    return Note(
        f"{_CRASHED if resumed else ''}{story}",
        happened=lines,
        next=_goes_on(new, state),
        so_far=_so_far(before, kept=state if resumed else None),
        goal=_goal(state),
    )


def paused(
    before: Mapping[str, Any] | None, state: Mapping[str, Any], *, resumed: bool = False
) -> Note:
    """Tell the waypoint at which a run waits for a person.

    Args:
        before: the state of the waypoint before it, or None.
        state: its state.
        resumed: it comes after a crash.
    """
    return _safely(lambda: _paused(before, state, resumed), "The run waits for a person.")


def _paused(before: Mapping[str, Any] | None, state: Mapping[str, Any], resumed: bool) -> Note:
    wanted = _items.waiting(_run(state))
    ids = {item.call_id for item in wanted}
    new = [item for item in _new(before, state) if item.kind != "wants"]
    # What waits is told by the story itself, so not a second time by the round that it is of.
    told = _told_rounds([i for i in new if i.call_id not in ids], state, before)
    lines = [line for one in told for line in one.lines]
    if not wanted:
        return Note(
            f"{_CRASHED if resumed else ''}"
            + (" ".join(lines) if lines else "The run stopped in the midst of a turn."),
            next=["A person answers.", "The turn goes on with the answer."],
            so_far=_so_far(before, kept=state),
            goal=_goal(state),
        )
    # What began since is told beside this, so it does not say what has not run.
    who = agent_name(wanted[0].agent or _agent(state))
    calls = listed([called(item) for item in wanted])
    if len(wanted) == 1:
        stopped = f"{who} stopped before {calls}, to have it approved."
        then = f"If approved, it runs; if not, {who}'s model is told so. Then it goes on."
    else:
        stopped = (
            f"{who} stopped before {number(len(wanted))} calls, none of which has run: {calls}."
        )
        then = f"What is approved runs, {who}'s model is told of the rest. Then it goes on."
    return Note(
        f"{_CRASHED if resumed else ''}{stopped} {_PATIENT}",
        happened=lines,
        next=["A person answers.", then],
        so_far=_so_far(before, kept=state),
        goal=_goal(state),
    )


def ended(
    before: Mapping[str, Any] | None,
    state: Mapping[str, Any],
    answers: Iterable[Mapping[str, Any]],
    output: Any,
    *,
    resumed: bool = False,
) -> Note:
    """Tell the waypoint at which a run is complete.

    Args:
        before: the state of the waypoint before it, or None.
        state: its state.
        answers: the answers of models since the waypoint before, as their entries hold them.
        output: the final output, of any type.
        resumed: its last turn was cut off by a crash.
    """
    return _safely(
        lambda: _ended(before, state, list(answers), output, resumed), "The run is complete."
    )


def _ended(
    before: Mapping[str, Any] | None,
    state: Mapping[str, Any],
    answers: list[Mapping[str, Any]],
    output: Any,
    resumed: bool,
) -> Note:
    who = agent_name(_agent(state))
    new = _new(before, state)
    if not any(item.kind in ("message", "call") for item in new):
        new += [item for one in answers for item in _answer_items(_agent(state), one)]
    last = new.pop() if new and new[-1].kind == "message" else None  # it is the output
    lines = [line for one in _told_rounds(new, state, before) for line in one.lines]
    if last is None or not isinstance(output, str):
        end = f"{who} ended with {value_text(_plain(output))}"
    else:
        end = f"{who} answered {quote(output)}"
    return Note(
        f"{_CRASHED if resumed else ''}{sentence(end)} The run is complete: {_totals(state)}.",
        happened=lines,
        next="Nothing: the run is complete.",
        so_far=_so_far(before),
        goal=_goal(state),
    )


def answered(agent: str, data: Mapping[str, Any]) -> str:
    """Return the line of the live note for an answer of a model.

    Args:
        agent: the agent whose model it is.
        data: the answer, as its entry holds it.
    """
    items = _answer_items(agent, data)
    told = [f"said {quote(i.text)}" for i in items if i.kind == "message" and i.text.strip()]
    calls = [called(item) for item in items if item.kind in ("call", "wants")]
    hosted = [called(item) for item in items if item.kind == "hosted"]
    if hosted:
        told.append(f"had {listed(hosted)} run by its provider")
    if calls:
        told.append(f"asked for {listed(calls)}")
    line = sentence(f"{agent_name(agent)}'s model {listed(told) or 'gave an empty answer'}")
    bare = [item.name for item in items if item.kind == "call" and item.type in _BARE]
    if not bare:
        return line
    names = counted(bare)
    return (
        f"{line} What {names} does is not recorded: killed before the turn ends, it is done again."
    )


def called_as(tool: str, arguments: str) -> str:
    """Return the arguments of a call for people: `order_id="A17", amount=40`.

    Args:
        tool: its name, which leaves them the less room.
        arguments: as the model wrote them, JSON.
    """
    read = _items.arguments_of(arguments)
    room = max(40, 130 - len(tool)) if len(tool) > 30 else 100
    if isinstance(read, dict):
        return arguments_text(read, room)
    return arguments_text({"arguments": read}, room)


def text_of(item: Any) -> str:
    """Return what an item of an input says, or its type where it says nothing.

    Args:
        item: in the form that the Responses API takes, or a text.
    """
    read = _items.given_items(item if isinstance(item, str) else [item])[0]
    return read.text or f"({read.type or 'an item'})"


def goal_of(given: Any) -> str | None:
    """Return what a run is for: the first thing that the user says in its input, quoted.

    Args:
        given: the input, a text or a list of items.
    """
    for item in _items.given_items(given):
        if item.kind == "message" and item.name == "user" and item.text.strip():
            return quoted(item.text.strip(), _GOAL)
    return None


def _goal(state: Mapping[str, Any]) -> str | None:
    """Return what a run is for; of one that goes on from another the journal says that."""
    return None if state.get(SEED) is not None else goal_of(state.get("given"))


# ---------------------------------------------------------------------- what notes are made of


def _safely(tell_it: Callable[[], Note], instead: str) -> Note:
    """Tell something, or `instead`: what comes from outside must not stop a run by its form."""
    try:
        return tell_it()
    except Exception:  # noqa: BLE001 - whatever an odd item leads to
        _log.warning("a note of the OpenAI Agents SDK could not be made", exc_info=True)
        return Note(instead)


def _run(state: Mapping[str, Any] | None) -> Any:
    return {} if state is None else state.get("run")


def _agent(state: Mapping[str, Any]) -> str:
    run = _run(state)
    return _items.agent_of(run.get("current_agent")) if isinstance(run, dict) else ""


def _new(before: Mapping[str, Any] | None, state: Mapping[str, Any]) -> list[Item]:
    """Return the items that a state has and the one before it has not."""
    return _items.items_after(_run(state), len(_items.raw_items(_run(before))))


def _answer_items(agent: str, data: Mapping[str, Any]) -> list[Item]:
    output = data.get("output")
    return [_items.read(raw, agent) for raw in output] if isinstance(output, list) else []


def _told_rounds(
    items: list[Item], state: Mapping[str, Any], before: Mapping[str, Any] | None
) -> list[Round]:
    """Tell items round by round."""
    run = _run(state)
    earlier: dict[str, Item] = {}
    if any(item.kind == "result" for item in items):
        start = max(0, len(_items.raw_items(_run(before))) - _LOOKED_AT)
        known = _items.items_after(_run(before), start) if before is not None else []
        earlier = {item.call_id: item for item in known if item.kind == "call"}
    decided = _items.decisions(run)
    told = (tell(one, decided, earlier) for one in rounds(items))
    return [one for one in told if one is not None]


def _story(told: list[Round], instead: str) -> tuple[str, list[str]]:
    """Return what happened as a story, and as items where it is too long for one."""
    lines = [line for one in told for line in one.lines]
    together = " ".join(lines)
    if not lines:
        return instead, []
    if len(lines) == 1 or len(together) <= _TOGETHER:
        return together, []
    if len(told) == 1:
        return told[0].brief, lines[1:]
    return f"{number(len(told)).capitalize()} answers of models and what came of them.", lines


def _goes_on(new: list[Item], state: Mapping[str, Any]) -> str:
    who = agent_name(_agent(state))
    came = [item for item in new if item.kind == "result"]
    if new and new[-1].kind == "handoff":
        return f"{who}'s model answers."
    if came:
        return f"{who}'s model reads the {'result' if len(came) == 1 else 'results'} and goes on."
    return f"{who}'s model goes on."


def _so_far(before: Mapping[str, Any] | None, kept: Mapping[str, Any] | None = None) -> list[str]:
    """Return what the waypoints before told, bounded; `kept`: say what is not repeated."""
    run = _run(before)
    start = max(0, len(_items.raw_items(run)) - _LOOKED_AT)
    found = list(rounds(_items.items_after(run, start)))
    if start:
        found = found[1:]  # the first one may have lost its beginning
    shown = found[-_SO_FAR:]
    decided = _items.decisions(run)
    calls = {item.call_id: item for one in found for item in one if item.kind == "call"}
    told = (tell(one, decided, calls) for one in shown)
    lines = [shortened(one.brief) for one in told if one is not None]
    earlier = _turns(run) - len(shown)
    if earlier > 0 and (start or len(found) > len(shown)):
        lines = [f"{earlier} earlier turns, see the older notes", *lines]
    if kept is not None:
        lines += _kept(kept)
    return lines


def _turns(run: Any) -> int:
    turns = run.get("current_turn") if isinstance(run, dict) else None
    return turns if type(turns) is int else 0


def _kept(state: Mapping[str, Any]) -> list[str]:
    answers, results = _answers(state), _items.count_results(_run(state))
    if not answers:
        return []
    models = {1: "The model answer", 2: "Both model answers"}.get(
        answers, f"All {answers:,} model answers"
    )
    if results:
        tools = "one finished tool call" if results == 1 else f"the {results:,} finished tool calls"
        return [f"{models} and {tools} are kept {_NOT_AGAIN}"]
    return [f"{models} {'is' if answers == 1 else 'are'} kept {_NOT_AGAIN}"]


def _answers(state: Mapping[str, Any]) -> int:
    counts, run = state.get("counts"), _run(state)
    counted = counts.get("") if isinstance(counts, dict) else None
    found = run.get("model_responses") if isinstance(run, dict) else None
    known = len(found) if isinstance(found, list) else 0
    return max(counted if type(counted) is int else 0, known)


def _totals(state: Mapping[str, Any]) -> str:
    run = _run(state)
    parts = [_some(_answers(state), "model answer"), _some(_items.count_results(run), "tool call")]
    context = run.get("context") if isinstance(run, dict) else None
    usage = context.get("usage") if isinstance(context, dict) else None
    tokens = usage.get("total_tokens") if isinstance(usage, dict) else None
    if type(tokens) is int and tokens:
        parts.append(_some(tokens, "token"))
    return listed(parts)


def _some(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _plain(output: Any) -> Any:
    """Return an output of a type of the program as its fields, which say more than its name."""
    dump = getattr(output, "model_dump", None)
    return dump() if callable(dump) else output


def _told(item: Item) -> str:
    extras = [f"{'an' if extra[:1] in 'aeiou' else 'a'} {extra}" for extra in item.extras]
    parts = [quote(item.text)] if item.text.strip() or not extras else []
    return listed([*parts, *(one_line(extra, 30) for extra in extras)])
