"""The notes of a session, told from the states of its waypoints alone; needs no SDK."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any, Final, TypeVar

from caravanserai.claude_agent import _facts, _telling
from caravanserai.claude_agent._telling import some
from caravanserai_core.handed import made_with
from caravanserai_core.notes import Note
from caravanserai_core.quoting import code, fenced, one_line, quoted
from caravanserai_core.words import counted, listed, quote, sentence, shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from caravanserai.claude_agent._facts import Tree
    from caravanserai.claude_agent._telling import Item

    T = TypeVar("T")

__all__ = ["line", "note", "so_far"]

_log = logging.getLogger("caravanserai")

_CRASHED: Final = "**Picked up after a crash.** "

_TOGETHER: Final = 300
"""Characters; what happened is the story itself up to here."""

_SO_FAR: Final = 9
"""Most lines of earlier waypoints: the core shows ten, and the last one tells of files."""

_FOLDED: Final = 400
"""Most characters of the line of the oldest waypoints."""

_ENDS: Final = 2
_GAP: Final = "…"

_PLANNED: Final = 14
_BEHIND: Final = 5
"""Most items of a plan, and how many of them lie behind the first open one."""

_FILES: Final = 8
_GOAL: Final = 300
_COMMIT: Final = 7
"""Characters of a commit's name, as git shortens it."""

_CENT: Final = 0.01

_LINE: Final = re.compile(r"waypoints? (?P<first>\d+)(?: (?:to|and) \d+)?: (?P<told>.*)", re.DOTALL)
"""A line of "So far", as `so_far` makes it."""
_CLAUSE: Final = re.compile(
    r"""(?:(?P<ticks>`+).+?(?P=ticks)(?!`)|"[^"]*"|(?!;[ ]).)+""", re.DOTALL
)
"""A clause of it: what is quoted in it may hold a semicolon."""


def note(tree: Tree, *, resumed: bool) -> Note:
    """Tell a waypoint.

    Args:
        tree: its state.
        resumed: it is the first one after a crash.
    """
    return _safely(lambda: _note(tree, resumed), Note("The session went on."))


def line(tree: Tree) -> str:
    """Tell a waypoint in one line of a later note; "" where there is nothing to tell."""
    return _safely(lambda: shortened(_line(tree)), "the session went on")


def so_far(lines: Sequence[str], number: int, line: str) -> list[str]:
    """Return the lines of "So far" with one more; the oldest are folded into one.

    Args:
        lines: as this function returned them for the waypoint before.
        number: the waypoint's number.
        line: what it tells.
    """
    told = sentence(line.replace(_telling.ITS_NOTE, f"`waypoint-{number}.md`"))
    found = [*lines, f"waypoint {number}: {told}"] if line else list(lines)
    while len(found) > _SO_FAR:
        found[:2] = [_folded(found[0], found[1])]
    return found


def _safely(tell: Callable[[], T], instead: T) -> T:
    """Tell something, or `instead`: what comes from outside must not stop a run by its form."""
    try:
        return tell()
    except Exception:  # noqa: BLE001 - whatever an odd fact leads to
        _log.warning("a note of the Claude Agent SDK could not be made", exc_info=True)
        return instead


def _note(tree: Tree, resumed: bool) -> Note:
    told = _telling.items(tree)
    story, happened = _story(tree, told)
    # Where a person has to decide, the core tells the crash with what is to be decided.
    if resumed and tree["at"] != "pause":
        story = f"{_CRASHED}{story}"
        happened = [item for item in happened if item != _telling.PICKED_UP]
    return Note(
        story,
        happened=_telling.lines(happened, tree["left_out"]),
        plan=_plan(tree),
        next=_next(tree),
        so_far=[*tree["so_far"], *_standing(tree)],
        goal=_goal(tree),
    )


# ---------------------------------------------------------------------- the story


def _story(tree: Tree, told: list[Item]) -> tuple[str, list[Item]]:
    """Return what a note tells first, and what is left to tell below it."""
    at = tree["at"]
    if at == "begin":
        return _begun(tree), []
    if at in ("turn", "end"):
        return _ended(tree, told)
    if at == "pause":
        return _paused(tree), told
    planned = _planned(tree)
    shortened_to = next((f for f in tree["did"] if f["what"] == "compacted"), None)
    if shortened_to is not None:
        story = sentence(_capital(_telling.shortened_to(shortened_to)))
        return f"{story} {planned}".rstrip(), told
    together = " ".join(item.text for item in told)
    if not told:
        # A waypoint tells all that is known when it is written; then nothing is new at the next.
        nothing = "What the waypoint before tells is now in the transcript."
        return planned or nothing, [_telling.Item(nothing)] if planned else []
    if planned:
        return planned, told
    if "\n" not in together and len(together) <= _TOGETHER:
        return together, []
    return sentence(_capital(_telling.brief(told, tree["left_out"]) or "Claude went on")), told


def _begun(tree: Tree) -> str:
    if tree["prompt"]:
        told = sentence(f"Claude was asked {quote(_first_line(tree['prompt']))}")
    else:
        told = "A conversation with Claude begins."
    source = tree.get("source")
    if not source:
        return told
    at = f"waypoint {source['waypoint']}" if source["waypoint"] else "its beginning"
    run = code(one_line(source["run"], 100))
    return f"{told} It goes on from run {run}{made_with(source['framework'])} at {at}."


def _paused(tree: Tree) -> str:
    deferred = tree["deferred"]
    before = ""
    if deferred is not None:
        before = f" before {_telling.called(deferred['tool'], deferred['arguments'])}"
    return (
        f"Claude stopped{before}. The session has ended until a person decides; no process has to "
        "stay alive."
    )


def _ended(tree: Tree, told: list[Item]) -> tuple[str, list[Item]]:
    """Tell the end of a turn, or of the run: what Claude answered, and what that cost."""
    parts, more = [], []
    said = _answer(tree)
    failed = [fact for fact in tree["did"] if fact["what"] == "failed"]
    rest = [item for item in told if item != _said(said)]
    if failed:
        parts.append(sentence(f"The turn **failed**: {quote(failed[-1]['error'])}"))
        rest = [item for item in rest if "the model's turn **failed**" not in item.brief]
    elif said:
        quoted_, whole = _telling.answer(said)
        parts.append(sentence(f"Claude answered {quoted_}"))
        more = [whole] if whole is not None else []
    else:
        parts.append("Claude's turn is over.")
    if tree["at"] == "end":
        parts.append("The job is done.")
    open_ = [item for item in tree["plan"] if not _facts.is_done(item)]
    if open_:
        left = "item of the task list is" if len(open_) == 1 else "items of the task list are"
        parts.append(f"{len(open_)} {left} not marked as done.")
    cost = _cost(tree)
    if cost:
        parts.append(cost)
    return " ".join(parts), [*rest, *more]


def _answer(tree: Tree) -> str:
    result = tree["result"]
    if tree["at"] == "end" and isinstance(result, dict) and isinstance(result.get("result"), str):
        return str(result["result"]).strip()
    return str(tree["said"] or "").strip()


def _said(text: str) -> Item | None:
    """Return the item of an answer that the story tells."""
    return _telling.said(text) if text else None


def _cost(tree: Tree) -> str:
    cost = tree["cost"]
    if not cost["turn"]:
        return ""
    turn, total = _dollars(cost["turn"]), _dollars(cost["total"])
    return f"This cost {turn}." if turn == total else f"This turn cost {turn} ({total} in all)."


def _dollars(amount: float) -> str:
    return f"${amount:,.2f}" if amount >= _CENT else "less than $0.01"


def _line(tree: Tree) -> str:
    at = tree["at"]
    told = _telling.items(tree)
    clauses = _telling.brief(told, tree["left_out"])
    if at == "begin":
        return "the session began"
    if at == "pause" and tree["deferred"] is not None:
        deferred = tree["deferred"]
        end = f"Claude stopped before {_telling.called(deferred['tool'], deferred['arguments'])}"
    elif at in ("turn", "end") and _answer(tree):
        end = f"Claude answered {quote(_first_line(_answer(tree)))}"
    else:
        end = ""
    if not clauses and not end:
        said = [fact for fact in tree["did"] if fact["what"] == "said"]
        return f"Claude said {quote(said[-1]['text'])}" if said else ""
    return "; ".join(part for part in (clauses, end) if part)


# ---------------------------------------------------------------------- the plan


def _planned(tree: Tree) -> str:
    """Tell how far the plan is, "" where there is none."""
    plan = tree["plan"]
    if not plan:
        return ""
    done = sum(_facts.is_done(item) for item in plan)
    if done == len(plan):
        many = f"All {len(plan)} tasks are" if len(plan) > 1 else "The only task is"
        return f"{many} done."
    if done:
        counted_ = f"{done} of {len(plan)} tasks {'is' if done == 1 else 'are'} done."
    else:
        none = f"None of {len(plan)} tasks is" if len(plan) > 1 else "The only task is not"
        counted_ = f"{none} done yet."
    now = _now(tree)
    if not now:
        return counted_
    if len(now) == 1:
        number, item = now[0]
        return f"{counted_} Claude is working on task {number}: {_ended_with(item['text'])}"
    return f"{counted_} Claude is working on tasks {listed([number for number, _ in now])}."


def _ended_with(text: str) -> str:
    return sentence(quote(text))


def _now(tree: Tree) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the items that are worked on, with their numbers."""
    return [
        (_number(item, n), item)
        for n, item in enumerate(tree["plan"], 1)
        if item["status"] == "in_progress"
    ]


def _number(item: Mapping[str, Any], position: int) -> str:
    return one_line(str(item.get("id") or position), 20)


def _plan(tree: Tree) -> list[tuple[str, bool]]:
    """Return the items of a plan; of many those around the first open one."""
    plan = tree["plan"]
    start, end = 0, len(plan)
    if end > _PLANNED:
        first = next((n for n, item in enumerate(plan) if not _facts.is_done(item)), end)
        start = max(0, min(first - _BEHIND, end - _PLANNED))
        end = start + _PLANNED
    items = []
    if start:
        before = plan[:start]
        items.append((some(start, "earlier task"), all(_facts.is_done(item) for item in before)))
    for position, item in enumerate(plan[start:end], start + 1):
        now = " **(now)**" if item["status"] == "in_progress" else ""
        text = f"{_number(item, position)}. {quote(item['text'])}{now}"
        items.append((text, _facts.is_done(item)))
    if end < len(plan):
        after = plan[end:]
        items.append((some(len(after), "more task"), all(_facts.is_done(item) for item in after)))
    return items


# ---------------------------------------------------------------------- what comes next


def _next(tree: Tree) -> list[str]:
    at = tree["at"]
    if at == "pause":
        return ["A person answers.", _after_answer(tree)]
    if at == "end":
        again = f"Started again, run {_run(tree)} gives this answer and asks no model."
        return [f"Nothing: the job is done. {again}"]
    busy = _busy(tree)
    if at == "begin":
        told = "Claude starts on it." if tree["prompt"] else "Waiting for the first message."
    elif at == "turn" and any(fact["what"] == "failed" for fact in tree["did"]):
        told = "The next start goes on from here."
    elif at == "turn":
        told = busy or _AFTER_TURN[tree["prompt"] is None]
    elif at == "compaction":
        told = f"{busy} Claude goes on{_with(tree)}." if busy else f"Claude goes on{_with(tree)}."
    else:
        told = f"{busy} {_reads(tree)}".strip()
    return [f"{told} {_costs(tree)}"]


_AFTER_TURN: Final = {True: "Waiting for the next message.", False: "Claude goes on."}


def _after_answer(tree: Tree) -> str:
    start = f"Start run {_run(tree)} again{_same(tree)}"
    return f"{start}: the session goes on at this call, with what was decided."


def _busy(tree: Tree) -> str:
    """Tell which calls and subagents are at work; the calls themselves stand above."""
    parts = [
        one_line(made["tool"], 80) for made in tree["running"].values() if made["tool"] != "Agent"
    ]
    told = [counted(parts)] if parts else []
    agents = [agent for agent in tree["agents"].values() if agent["state"] == "at work"]
    if agents:
        names = listed([_telling.agent_name(agent) for agent in agents])
        told.append(f"the subagent{'s' if len(agents) > 1 else ''} {names}")
    if not told:
        return ""
    alone = len(parts) + len(agents) == 1
    return f"{_capital(listed(told))} {'is' if alone else 'are'} at work."


def _reads(tree: Tree) -> str:
    if tree["running"]:
        return "Then Claude reads what came of it."
    results = [f for f in tree["did"] if f["what"] in ("tool", "refused") and not f.get("agent")]
    what = "the result" if len(results) == 1 else "the results"
    return f"Claude reads {what} and goes on{_with(tree)}."


def _with(tree: Tree) -> str:
    now = _now(tree)
    if not now:
        return ""
    numbers = listed([number for number, _ in now])
    return f" with task{'s' if len(now) > 1 else ''} {numbers}"


def _costs(tree: Tree) -> str:
    """Tell what is to be done after a crash."""
    if tree.get("alone"):
        return "It goes on where the SDK is given its id (`resume=`) and this store again."
    start = f"After a crash, start run {_run(tree)} again{_same(tree)}"
    if tree["at"] == "begin":
        return f"{start}."
    return f"{start}: the session goes on, and Claude is told what is done and what is not certain."


def _same(tree: Tree) -> str:
    return " with the same prompt" if tree["prompt"] else ""


def _run(tree: Tree) -> str:
    return code(one_line(tree["run"], 100))


# ---------------------------------------------------------------------- where things stand


def _standing(tree: Tree) -> list[str]:
    """Tell the files that were written, the commit, the session and its folder, in one item."""
    parts = []
    files = tree["files"]
    if files:
        names = [_telling.path(file, tree) for file in files[-_FILES:]]
        hidden = len(files) - len(names)
        if hidden:
            names.append(f"{hidden} earlier")
        parts.append(f"Files written by Write and Edit: {listed(names)}.")
    if files or tree.get("shell"):
        parts.append("What shell commands changed is not listed.")
    git = tree["git"]
    if git is not None:
        parts.append(_commit(git))
    session = tree["session"]
    if session["id"]:
        folder = f" in the folder {code(one_line(session['cwd'], 200))}" if session["cwd"] else ""
        parts.append(f"The session is {code(one_line(session['id'], 60))}{folder}.")
    return [" ".join(parts)] if parts else []


def _commit(git: Mapping[str, Any]) -> str:
    if not git["commit"]:
        return "The folder's repository has no commit yet."
    stand = f"Files stand at commit {code(one_line(git['commit'], 60)[:_COMMIT])}"
    if git["dirty"] is None:
        return f"{stand}; whether anything was changed since is not known."
    return f"{stand}, with changes that are not committed." if git["dirty"] else f"{stand}."


def _goal(tree: Tree) -> str | None:
    prompt = str(tree["prompt"] or "").strip()
    if not prompt or tree.get("source"):
        return None  # the goal of the run that it goes on from is that of this one, too
    return fenced(prompt, 2 * _GOAL) if "\n" in prompt else quoted(prompt, _GOAL)


# ---------------------------------------------------------------------- so far


def _folded(first: str, second: str) -> str:
    """Make one line of the two oldest: their first and their newest clauses."""
    one, two = _LINE.fullmatch(first), _LINE.fullmatch(second)
    if one is None or two is None:
        return first
    clauses = [*_clauses(one["told"]), *_clauses(two["told"])]
    left_out = _GAP in clauses
    clauses = [clause for clause in clauses if clause != _GAP]
    while len(clauses) > _ENDS and len("; ".join(clauses)) > _FOLDED:
        del clauses[1]
        left_out = True
    if left_out:
        clauses.insert(1, _GAP)
    start, end = int(one["first"]), int(two["first"])
    joint = "and" if end == start + 1 else "to"
    return f"waypoints {start} {joint} {end}: {sentence('; '.join(clauses))}"


def _clauses(told: str) -> list[str]:
    found = [match[0].lstrip("; ") for match in _CLAUSE.finditer(told.removesuffix("."))]
    return [clause for clause in found if clause]


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0]


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
