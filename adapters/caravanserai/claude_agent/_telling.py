"""What a session did since a waypoint, fact by fact, in the words of a note; needs no SDK."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from caravanserai.claude_agent import _entries
from caravanserai_core.quoting import code, fenced, one_line
from caravanserai_core.words import listed, quote, sentence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from caravanserai.claude_agent._facts import Fact, Tree

__all__ = [
    "ITS_NOTE",
    "PICKED_UP",
    "PLANNING",
    "Item",
    "agent_name",
    "answer",
    "brief",
    "called",
    "items",
    "lines",
    "live",
    "path",
    "said",
    "shortened_to",
    "some",
    "tasks",
]

ITS_NOTE: Final = "\0"
"""Stands in a clause for the name of the note that it is about; no quoted text can hold it."""

PLANNING: Final = frozenset({"TodoWrite", "TaskCreate", "TaskUpdate", "TaskGet", "TaskList"})
"""Tools whose doings the plan of a note shows."""

_READING: Final = {
    "Read": ("read", "file"),
    "NotebookRead": ("read", "file"),
    "Grep": ("searched", ""),
    "Glob": ("searched", ""),
    "LS": ("searched", ""),
    "ToolSearch": ("", ""),
}
"""Tools that only look at something, and how that is told together."""

_MOST: Final = 14
"""Most items that are told one by one."""

_BRIEF: Final = 4
"""Most clauses of a line of "So far"."""

_NAMED: Final = 3

_SHOWN: Final = 500
_LINES: Final = 8
"""Characters and lines that are shown of a longer text."""

_SHORT: Final = 120

_LONG: Final = 950
"""Milliseconds; what took less is told without the time."""

_MINUTE: Final = 60


class Item(NamedTuple):
    """One thing that happened.

    Attributes:
        text: whole sentences.
        brief: a clause of a line of "So far"; "" where it is not worth one.
    """

    text: str
    brief: str = ""


PICKED_UP: Final = Item(
    "The session was picked up after a crash, and Claude was told what is certain and what is not.",
    "the session was picked up after a crash",
)


def items(tree: Tree) -> list[Item]:
    """Return what a state tells of the time since the waypoint before, in order.

    What only looks at something, the plan's own tools, and what one subagent did are one item
    each, at the place of the first.
    """
    found: list[Item | None] = []
    together: dict[str, tuple[int, list[Fact]]] = {}
    for fact in tree["did"]:
        kind = _kind(fact)
        if not kind:
            found.append(_told(fact, tree))
        elif kind in together:
            together[kind][1].append(fact)
        else:
            together[kind] = (len(found), [fact])
            found.append(None)
    for kind, (at, facts) in together.items():
        found[at] = _folded(kind, facts, tree)
    return [item for item in found if item is not None]


def lines(told: Sequence[Item], left_out: int) -> list[str]:
    """Return what happened, an item each; of many the first, and how many more there are.

    Args:
        told: what is known of it.
        left_out: how many facts more there were.
    """
    hidden = max(0, len(told) - _MOST) + left_out
    shown = [item.text for item in told[:_MOST]]
    return [*shown, f"And {some(hidden, 'more thing')}."] if hidden else shown


def brief(told: Sequence[Item], left_out: int) -> str:
    """Tell what happened in one clause, "" where nothing did; see `lines`."""
    clauses = [item.brief for item in told if item.brief]
    hidden = max(0, len(clauses) - _BRIEF) + left_out
    shown = clauses[:_BRIEF]
    return listed([*shown, f"{hidden} more"] if hidden else shown)


def _kind(fact: Fact) -> str:
    """Return what a fact is told together with, "" for one that stands alone."""
    what, tool = fact["what"], fact.get("tool")
    if what in ("agent begun", "agent ended"):
        return f"agent {fact['id']}"
    if fact.get("agent"):
        return f"agent {fact['agent']}"
    if what == "ticked":
        return "planning"
    if what != "tool" or fact.get("failed"):
        return ""
    if tool == "Agent" and fact.get("of"):
        return f"agent {fact['of']}"
    if tool in PLANNING:
        return "planning"
    return "reading" if tool in _READING else ""


def _folded(kind: str, facts: Sequence[Fact], tree: Tree) -> Item | None:
    if kind == "planning":
        return _planned(facts)
    if kind == "reading":
        return _read(facts, tree)
    return _agent(kind.partition(" ")[2], facts, tree)


def _told(fact: Fact, tree: Tree) -> Item | None:
    what = fact["what"]
    if what == "said":
        return said(fact["text"])
    if what == "prompt":
        same = fact["text"].strip() == str(tree["prompt"] or "").strip()
        if same and not tree.get("source"):
            return None  # it is the goal
        asked = f"you asked {quote(fact['text'])}"
        return Item(_sentence(asked), asked)
    if what == "resumed":
        return PICKED_UP
    if what == "rebuilt":
        told = "The old session could not be opened: a new one was built from what is recorded"
        return Item(f"{told}.", "a new session took the place of one that could not be opened")
    if what == "refused":
        return _refused(fact)
    if what == "compacted":
        return _compacted(fact)
    if what == "failed":
        clause = f"the model's turn **failed**: {quote(fact['error'])}"
        return Item(_sentence(clause), clause)
    return _tool(fact, tree) if what == "tool" else None


def live(fact: Fact, tree: Tree) -> str | None:
    """Return the line that a fact adds to the live note, None: it adds none.

    Calls of tools have lines of the core's own.
    """
    what = fact["what"]
    item = None
    if what in ("agent begun", "agent ended"):
        item = _agent(fact["id"], [fact], tree)
    elif what != "tool":
        item = _told(fact, tree)
    return None if item is None else item.text


def said(text: str) -> Item:
    """Tell what Claude said."""
    return Item(sentence(f"Claude said {quote(text)}"))


# ---------------------------------------------------------------------- tools


def _tool(fact: Fact, tree: Tree) -> Item:
    tool = fact["tool"]
    file = fact.get("file_path") or fact.get("notebook_path")
    if tool in ("Write", "Edit", "NotebookEdit") and file and not fact.get("failed"):
        clause = _written(fact, path(file, tree))
        return Item(_sentence(clause), clause)
    if tool == "Bash" and fact.get("command"):
        return _ran(fact)
    name = called(tool, fact["arguments"])
    result = str(fact.get("result") or "")
    took = _took(fact)
    if fact.get("paused"):
        clause = f"{name} stopped to wait for a person"
    elif fact.get("failed"):
        verb = "was **interrupted**" if fact.get("interrupted") else "**failed**"
        clause = f"{name} {verb}{took}: {quote(result)}" if result.strip() else f"{name} {verb}"
    elif result.strip():
        clause = f"{name} gave {quote(result)}{took}"
    else:
        clause = f"{name} came to its end{took}"
    return Item(_sentence(clause), clause)


def _written(fact: Fact, file: str) -> str:
    added, removed = fact.get("added"), fact.get("removed")
    if fact.get("made") == "create":
        return f"created {file}" + (f", {some(added, 'line')}" if added is not None else "")
    verb = "rewrote" if fact["tool"] == "Write" else "edited"
    if added is None:
        return f"{verb} {file}"
    return f"{verb} {file}: {some(added, 'line')} added, {removed or 0:,} removed"


def _ran(fact: Fact) -> Item:
    """Tell a command; the end of its output says most."""
    command = code(one_line(fact["command"], 160))
    output = str(fact.get("result") or "").strip("\n")
    did = f"ran {command}{_took(fact)}"
    if fact.get("failed"):
        did += ", which was **interrupted**" if fact.get("interrupted") else ", which **failed**"
    if not output.strip():
        end = "" if fact.get("failed") else ", without output"
        return Item(_sentence(f"{did}{end}"), did)
    if "\n" not in output and len(output) <= _SHORT:
        return Item(_sentence(f"{did}: {quote(output)}"), did)
    first, _, rest = output.partition("\n")
    if fact.get("failed"):  # the CLI begins such an output with the exit code
        did_, output = f"{did}: {quote(first)}", rest
    else:
        did_ = did
    return Item(f"{_sentence(did_)} The end of its output:\n\n{fenced(_end(output))}", did)


def _end(text: str) -> str:
    lines = text.split("\n")
    shown = "\n".join(lines[-_LINES:])
    return shown if len(shown) <= _SHOWN else f"… {shown[-_SHOWN:]}"


def _took(fact: Fact) -> str:
    ms = fact.get("ms")
    if not isinstance(ms, (int, float)) or ms < _LONG:
        return ""
    seconds = ms / 1000
    if seconds < _MINUTE:
        return f" for {seconds:.1f} s" if fact["tool"] == "Bash" else f" after {seconds:.1f} s"
    minutes, rest = divmod(round(seconds), _MINUTE)
    return f" {'for' if fact['tool'] == 'Bash' else 'after'} {minutes} min {rest} s"


def _refused(fact: Fact) -> Item:
    name = called(fact["tool"], fact["arguments"])
    if fact.get("known"):
        given = "it had ended, and Claude was given its recorded result"
        text = f"{name} was not made again: {given}."
        return Item(text, f"{name} was not made again")
    if fact.get("replayed"):
        run = code(one_line(str(fact["replayed"]), 100))
        text = f"{name} was not run: Claude was given the result that run {run} recorded."
        return Item(text, f"{name} was given the result of run {run}")
    if fact.get("taken"):
        text = f"{name} is taken to have happened, as {one_line(str(fact['taken']), 20)} says."
        return Item(text, f"{name} was taken to have happened")
    reason = str(fact.get("reason") or "").strip()
    clause = f"{name} was **not run**"
    return Item(_sentence(f"{clause}: {quote(reason)}" if reason else clause), clause)


def _read(facts: Sequence[Fact], tree: Tree) -> Item | None:
    files = [fact.get("file_path") for fact in facts if _READING[fact["tool"]][0] == "read"]
    names = list(dict.fromkeys(path(file, tree) for file in files if file))
    searches = [fact for fact in facts if _READING[fact["tool"]][0] == "searched"]
    parts = []
    if names:
        parts.append(f"read {listed(names)}" if len(names) <= _NAMED else _read_many(names))
    if searches:
        wanted = list(dict.fromkeys(one["pattern"] for one in searches if one.get("pattern")))
        if len(wanted) == 1:
            parts.append(f"searched for {code(one_line(wanted[0], 80))}")
        else:
            parts.append(f"searched {_times(len(searches))}")
    if not parts:
        return None
    short = [f"read {some(len(names), 'file')}"] if names else []
    if searches:
        short.append(f"searched {_times(len(searches))}")
    return Item(_sentence(listed(parts)), listed(short))


def _read_many(names: list[str]) -> str:
    shown = [*names[: _NAMED - 1], f"{len(names) - _NAMED + 1} more"]
    return f"read {some(len(names), 'file')}: {listed(shown)}"


# ---------------------------------------------------------------------- the plan's own tools


def _planned(facts: Sequence[Fact]) -> Item | None:
    made = sum(fact.get("tool") == "TaskCreate" for fact in facts)
    wrote = any(fact.get("tool") == "TodoWrite" for fact in facts)
    done = [fact for fact in facts if fact["what"] == "ticked"]
    if made:
        clauses = [f"put {some(made, 'item')} on the task list"]
    elif wrote:
        clauses = ["wrote the task list"]
    else:
        clauses = []
    if done:
        clauses.append(f"marked {tasks(done)} as done")
    if not clauses:
        return None  # which item is worked on is in the plan
    clause = f"Claude {listed(clauses)}"
    return Item(f"{clause}.", clause)


def tasks(of: Sequence[Mapping[str, Any]]) -> str:
    """Name items of a plan by their numbers: `task 1`, `tasks 1 and 3`."""
    numbers = [one_line(str(one["id"]), 20) for one in of]
    if len(numbers) > _BRIEF:
        return some(len(numbers), "task")
    return f"task{'s' if len(numbers) > 1 else ''} {listed(numbers)}"


# ---------------------------------------------------------------------- subagents


def _agent(id_: str, facts: Sequence[Fact], tree: Tree) -> Item | None:
    agent = tree["agents"].get(id_)
    if agent is None:
        return None
    name = f"the subagent {agent_name(agent)}"
    task = f", sent to {quote(agent['task'])}," if agent["task"] else ""
    used = f"made {some(agent['tools'], 'call')}" if agent["tools"] else "made no call"
    if agent["state"] == "ended":
        said = f" and reported {quote(agent['said'])}" if agent["said"] else " and ended"
        text = f"{name}{task} {used}{said}"
        short = f"{name} {said.removeprefix(' and ')}"
    elif agent["state"] == "at work":
        text = f"{name}{task} is at work: it {used} until now{_newest(agent)}"
        short = f"{name} began" if any(f["what"] == "agent begun" for f in facts) else ""
    else:
        text = f"{name}{task} was **cut off**: it {used} before{_newest(agent)}"
        short = f"{name} was cut off"
    parts = [_sentence(text)]
    for fact in facts:
        if fact["what"] == "refused":
            parts.append(_refused(fact).text)
        elif fact.get("failed"):
            parts.append(_tool(fact, tree).text)
    if any(fact.get("beside") for fact in facts):
        parts.append("It works in the background, beside Claude.")
    return Item(" ".join(parts[:_BRIEF]), short)


def agent_name(agent: Mapping[str, Any]) -> str:
    """Return what notes call a subagent: its kind."""
    return code(one_line(agent["type"], 60)) if agent["type"] else "without a name"


def _newest(agent: Mapping[str, Any]) -> str:
    newest = agent.get("newest")
    return f", the last one {called(newest['tool'], newest['arguments'])}" if newest else ""


# ---------------------------------------------------------------------- words


def _compacted(fact: Fact) -> Item:
    summary = _entries.summary_of(str(fact.get("summary") or ""))
    short = f"{shortened_to(fact)}; Claude's own summary is in {ITS_NOTE}"
    if not summary:
        return Item(f"{_capital(shortened_to(fact))}.", shortened_to(fact))
    return Item(f"Claude goes on from this summary of its own:\n\n{fenced(summary, 2100)}", short)


def shortened_to(fact: Mapping[str, Any]) -> str:
    """Tell a compaction in a clause, with the sizes where they are known."""
    before, after = fact.get("before"), fact.get("after")
    asked = ", as you asked" if fact.get("trigger") == "manual" else ""
    if type(before) is int and type(after) is int:
        return f"the conversation was shortened from {before:,} to {after:,} tokens{asked}"
    return f"the conversation was shortened{asked}"


def answer(text: str) -> tuple[str, Item | None]:
    """Tell an answer: how it is quoted, and as an item of its own where that is not all of it."""
    whole = text.strip()
    if len(whole) <= _SHORT and "\n" not in whole:
        return quote(whole), None
    first = whole.split("\n", 1)[0]
    shown = "\n".join(whole.split("\n")[: 2 * _LINES])
    more = " …" if len(shown) < len(whole) or len(shown) > 2 * _SHOWN else ""
    block = fenced(f"{shown[: 2 * _SHOWN].rstrip()}{more}", 3 * _SHOWN)
    return quote(first), Item(f"The answer:\n\n{block}")


def called(tool: str, arguments: str) -> str:
    """Show a call as code."""
    return code(f"{one_line(str(tool), 80)}({arguments})")


def path(file: str, tree: Tree) -> str:
    """Show the path of a file as code, as seen from the working folder."""
    folder = tree["session"]["cwd"]
    shown = PurePath(file)
    if folder and shown.is_relative_to(folder):
        shown = shown.relative_to(folder)
    return code(one_line(str(shown), 120))


def some(count: int, what: str) -> str:
    """Return a number of things."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _sentence(clause: str) -> str:
    return sentence(_capital(clause))
