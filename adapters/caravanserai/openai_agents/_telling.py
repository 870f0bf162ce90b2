"""What models, tools and people did in a run, told in sentences: an item of a list each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from caravanserai.openai_agents._items import Item
from caravanserai_core.quoting import one_line, quoted
from caravanserai_core.words import call_text, counted, listed, quote, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = ["Round", "agent_name", "called", "came", "number", "rounds", "speaker", "tell"]

_NUMBERS: Final = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")

_SPEAKERS: Final = {
    "user": "the user",
    "assistant": "the model",
    "system": "the system message",
    "developer": "the developer",
}

_MOST: Final = 12
"""Calls of one answer that are told one by one."""

_ASKS: Final = "mcp_approval_request"
"""A tool of the provider that is to be approved; the item is all that there is of the call."""

_MACHINE: Final = frozenset({"local_shell_call", "shell_call", "apply_patch_call", "computer_call"})

_TOGETHER: Final = 400
"""Characters; what calls gave is told in one sentence up to here."""

_BRIEF: Final = 250

_KINDS: Final = ("message", "call", "hosted", "handoff call", "wants")
"""What a model gives."""


class Round(NamedTuple):
    """An answer of a model and what came of it.

    Attributes:
        brief: told in a few words.
        lines: told in full, a sentence each.
    """

    brief: str
    lines: tuple[str, ...]


def agent_name(name: str) -> str:
    """Return what notes call an agent: its name as it is, if that is made of plain words."""
    short = one_line(name, 60)
    plain = short.strip() == short and all(char.isalnum() or char in " ,.'-" for char in short)
    if not short:
        return "an agent"
    return short if plain else quoted(short, 60)


def speaker(role: str) -> str:
    """Return who speaks in a message of an input."""
    return _SPEAKERS.get(role, f"the role {quoted(role, 30)}")


def number(count: int) -> str:
    """Return a small number as a word."""
    return _NUMBERS[count] if count < len(_NUMBERS) else str(count)


def called(item: Item) -> str:
    """Show a call as code."""
    arguments = item.arguments
    if isinstance(arguments, str):
        arguments = {"arguments": arguments}
    return call_text(item.name or "a tool without a name", arguments)


def came(item: Item) -> str:
    """Tell what came back, to follow a verb: "5 EUR", an image, nothing."""
    parts = [quote(item.text)] if item.text.strip() else []
    counts = {extra: item.extras.count(extra) for extra in item.extras}
    for extra, count in counts.items():
        what = one_line(extra.replace("_", " "), 30)
        what = what if all(char.isalnum() or char == " " for char in what) else "something else"
        one = f"an {what}" if what[:1] in "aeiou" else f"a {what}"
        parts.append(one if count == 1 else f"{count} × {what}")
    return listed(parts) or "nothing"


def rounds(items: Sequence[Item]) -> Iterator[list[Item]]:
    """Split the items of a run where a model begins a new answer."""
    current: list[Item] = []
    for item in items:
        over = current and current[-1].kind in ("result", "handoff")
        if current and item.kind != "quiet" and item.agent != current[-1].agent:
            over = True
        if over and item.kind not in ("result", "handoff", "wants"):
            yield current
            current = []
        current.append(item)
    if current:
        yield current


def tell(
    items: Sequence[Item], decided: Mapping[str, bool], calls: Mapping[str, Item]
) -> Round | None:
    """Tell a round.

    Args:
        items: its items.
        decided: by id of a call, whether somebody approved it.
        calls: by id the calls of earlier rounds: a result may come after a long wait.

    Returns:
        The round in words; None where nothing of it is worth a word.
    """
    own = {item.call_id for item in items if item.kind in ("call", "handoff call")}
    results = {item.call_id: item for item in items if item.kind == "result"}
    asked = {item.call_id for item in items if item.kind == "wants"}
    waits = asked - decided.keys()
    brief: list[str] = []
    lines: list[str] = []
    late = [item for item in items if item.kind == "result" and item.call_id not in own]
    for item in late:
        line = _late(item, calls.get(item.call_id), decided)
        brief.append(line)
        lines.append(line)
    # Some providers use an id in each answer anew, so not every decision is on a call of this one.
    here = {id_: approved for id_, approved in decided.items() if id_ in asked}
    acts = [item for item in items if item.kind in ("call", "hosted") or item.type == _ASKS]
    words = [item for item in items if item.kind == "message" and item.text.strip()]
    said = [quote(item.text) for item in words if item.name == "assistant"]
    who = next((item.agent for item in items if item.kind in _KINDS), "")
    for item in words:
        if item.name != "assistant":  # added to the run while it was under way
            lines.append(sentence(f"{speaker(item.name).capitalize()} added {quote(item.text)}"))
            brief.append(lines[-1])
    if said or acts:
        short, full = _acted(agent_name(who), said, acts, results, waits, here)
        brief.append(short)
        lines += full
    if any(item.type in _MACHINE for item in acts):
        lines.append("What that changed on the machine is not listed.")
    for item in items:
        if item.kind == "handoff":
            lines.append(f"{agent_name(item.agent)} handed over to {agent_name(item.name)}.")
            brief.append(lines[-1])
    unknown = [item.type for item in items if item.kind == "unknown"]
    if unknown:
        lines.append(f"{_strange(unknown)} came too, told only in the state.")
        brief.append(lines[-1])
    return Round(" ".join(brief), tuple(lines)) if lines else None


def _acted(
    who: str,
    said: list[str],
    acts: list[Item],
    results: Mapping[str, Item],
    waits: set[str],
    decided: Mapping[str, bool],
) -> tuple[str, list[str]]:
    """Tell what a model said and asked for: in a few words, and in full."""
    told = [f"said {listed(said)}"] if said else []
    if not acts:
        line = sentence(f"{who} {listed(told)}")
        return line, [line]
    if len(acts) == 1:
        told.append(_alone(acts[0], results, waits, decided))
        line = sentence(f"{who} {' and '.join(told)}")
        return line, [line]
    asked = {item.call_id for item in acts} <= waits
    verb = "asked to run" if asked else "called"
    many = f"{verb} {number(len(acts))} tools at once"
    if asked:
        line = f"{who} {' and '.join([*told, many])}: {listed([called(a) for a in acts[:_MOST]])}."
        return line, [line]
    ends = [_among(item, results, waits, decided) for item in acts[:_MOST]]
    if len(acts) > _MOST:
        ends.append(f"and {len(acts) - _MOST} more")
    line = sentence(f"{who} {' and '.join([*told, many])}: {'; '.join(ends)}")
    names = counted(one_line(item.name, 40) for item in acts)
    short = f"{who} {' and '.join([*told, many])}: {names}."
    if len(line) <= _TOGETHER:
        return (line if len(line) <= _BRIEF else short), [line]
    return short, [short, *(sentence(end) for end in ends)]


def _alone(
    item: Item, results: Mapping[str, Item], waits: set[str], decided: Mapping[str, bool]
) -> str:
    call = called(item)
    result = item if item.kind == "hosted" else results.get(item.call_id)
    if item.kind == "hosted" and not item.text and not item.extras:
        return f"had {call} run by its provider"
    if result is None:
        if item.call_id in waits:
            return f"asked to run {call}"
        if item.kind == "wants":
            how = "approved" if decided.get(item.call_id) else "not approved"
            return f"asked to run {call}, which was {how}"
        return f"called {call}{f', where {agent_name(item.inside)} works' if item.inside else ''}"
    verb = "failed with" if result.failed else "got"
    approved = decided.get(item.call_id)
    if approved is False:
        return f"called {call}, which was not approved, and was told {came(result)}"
    how = ", which was approved," if approved else ""
    return f"called {call}{how} and {verb} {came(result)}"


def _among(
    item: Item, results: Mapping[str, Item], waits: set[str], decided: Mapping[str, bool]
) -> str:
    call = called(item)
    result = item if item.kind == "hosted" else results.get(item.call_id)
    if item.kind == "hosted" and not item.text and not item.extras:
        return f"{call} ran at the provider"
    if result is None and item.kind == "wants" and item.call_id in decided:
        return f"{call} was {'' if decided[item.call_id] else 'not '}approved"
    if result is None:
        return f"{call} waits to be approved" if item.call_id in waits else f"{call} gave no result"
    approved = decided.get(item.call_id)
    if approved is False:
        return f"{call} was not approved: {came(result)}"
    how = " was approved and" if approved else ""
    return f"{call}{how} {'failed with' if result.failed else 'gave'} {came(result)}"


def _late(result: Item, call: Item | None, decided: Mapping[str, bool]) -> str:
    """Tell a result whose call was told in an earlier round."""
    name = called(call) if call is not None else "a call"
    approved = decided.get(result.call_id)
    who = agent_name(result.agent)
    if approved is False:
        return sentence(f"{name} was not approved: {who} was told {came(result)}")
    verb = "failed with" if result.failed else "gave"
    how = "was approved and " if approved else ""
    return sentence(f"{name} {how}{verb} {came(result)}")


def _strange(kinds: Iterable[str]) -> str:
    names = dict.fromkeys(quoted(kind or "without a type", 40) for kind in kinds)
    return f"Items of a kind that is not known here ({', '.join(names)})"
