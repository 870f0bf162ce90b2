"""What a session did, folded into the state of its next waypoint.

A fact is a small dict with a member `what`. Each is an entry of the journal when it is known, so
a process that takes over after a crash has the same state as the one that died.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from caravanserai.claude_agent._tools import HARMLESS
from caravanserai_core.redact import beginning, redact
from caravanserai_core.words import arguments_text

if TYPE_CHECKING:
    from collections.abc import Mapping

_log = logging.getLogger("caravanserai")

__all__ = ["Fact", "Tree", "begun", "new", "take", "tool_fact"]

Tree = dict[str, Any]
"""The state of a waypoint; see `begun`."""

Fact = dict[str, Any]

LONG: Final = 55
"""Characters of a long argument that are shown in a line."""

_TEXT: Final = 2000
"""Most characters of a text that a state keeps; the transcript has all of it."""
_RESULT: Final = 600
_MOST: Final = 200
"""Most facts between two waypoints that a state keeps."""
_FILES: Final = 100

_DONE: Final = frozenset({"completed", "done"})
_WRITERS: Final = {"Write": "file_path", "Edit": "file_path", "NotebookEdit": "notebook_path"}


def begun(
    run_id: str, sdk: str, prompt: str | None, source: Mapping[str, Any] | None = None
) -> Tree:
    """Return the state that a run begins with.

    Args:
        run_id: the run.
        sdk: version of the SDK.
        prompt: what it was asked, None: a conversation.
        source: the run and waypoint that it goes on from, as `_seed.Seed.source` has it, or None.
    """
    return {
        "at": "begin",
        "source": source,
        "claude": {"sdk": sdk, "cli": None, "model": None},
        "run": run_id,
        "prompt": prompt,
        # `last`: the entry of the transcript that this waypoint stands at; a fork begins there.
        # `parent`: the session of the run that this one branches off, and where in it.
        "session": {
            "id": None,
            "number": 0,
            "cwd": None,
            "entries": 0,
            "last": "",
            "parent": None,
        },
        "turns": 0,
        "asked": None,
        "said": None,
        "plan": [],
        "agents": {},
        "running": {},
        # Calls that began before a crash and never reported back, and were not settled since.
        "open": {},
        "fresh": {},
        "dropped": {},
        "files": [],
        "shell": False,
        "cost": {"counted": 0.0, "total": 0.0, "turn": 0.0},
        "git": None,
        "deferred": None,
        "compacted": None,
        "did": [],
        "left_out": 0,
        "so_far": [],
        "result": None,
    }


def filled(tree: Tree) -> Tree:
    """Return a state of another version of this adapter, with what it lacks."""
    whole = begun(tree["run"], "", tree["prompt"])
    for name, value in tree.items():
        parts = whole.get(name)
        if isinstance(parts, dict) and isinstance(value, dict):
            whole[name] = {**parts, **value}
        else:
            whole[name] = value
    return whole


def branch(tree: Tree, run_id: str) -> None:
    """Let a state be that of a run which begins where another one was."""
    session = tree["session"]
    tree["run"] = run_id
    parent = {"id": session["id"], "last": session["last"]} if session["id"] else None
    tree["session"] |= {"id": None, "number": 0, "last": "", "parent": parent}


def new(tree: Tree) -> None:
    """Begin with what follows a waypoint."""
    tree["did"], tree["left_out"] = [], 0


def text(value: Any, most: int = _TEXT) -> str:
    """Return a foreign text as a state keeps it: cut, without secrets."""
    given = value if isinstance(value, str) else str(value)
    short = beginning(given, most)
    return redact(short if len(short) <= most else f"{short[:most]}…")


def shown(given: Mapping[str, Any], room: int | None = None) -> str:
    """Show the arguments of a call in one line: of long ones how they begin."""
    begun_ = {
        name: text(value, LONG) if isinstance(value, str) else value
        for name, value in given.items()
    }
    return redact(arguments_text(begun_, room))


def tool_fact(
    tool: str,
    given: Mapping[str, Any],
    *,
    result: str | None = None,
    failed: bool = False,
    ms: int | None = None,
    agent: str | None = None,
    **more: Any,
) -> Fact:
    """Return the fact that a call ended.

    Args:
        tool: what was called.
        given: its arguments.
        result: what it gave, as text; None: it is not told.
        failed: the result is an error.
        ms: how long it took.
        agent: id of the subagent that called it, None: the main agent.
        **more: what is known beyond that.
    """
    fact: Fact = {"what": "tool", "tool": tool, "arguments": shown(given)}
    for name in ("file_path", "notebook_path", "command", "pattern", "path", "url", "query"):
        if isinstance(given.get(name), str):
            fact[name] = text(given[name], 300)
    if result is not None:
        fact["result"] = text(result, _RESULT) if len(result) <= _RESULT else _ends(result)
    told = {"failed": failed or None, "ms": ms, "agent": agent, **more}
    return fact | {name: value for name, value in told.items() if value is not None}


def _ends(result: str) -> str:
    """Return the beginning and the end of a long result: a command's last lines count most."""
    half = _RESULT // 2
    return f"{text(result, half)}\n{redact(result)[-half:]}"


def take(tree: Tree, fact: Mapping[str, Any]) -> None:
    """Fold a fact into a state."""
    what = fact.get("what")
    change = _CHANGES.get(str(what))
    if change is not None:
        try:
            change(tree, fact)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            # Of a later version maybe: the notes tell less, and nothing else rests on it.
            _log.warning("a fact %r cannot be read: %r", what, error)
            return
    if what in _SILENT:
        return
    if len(tree["did"]) < _MOST:
        # What is there for the next start alone is no part of the state.
        tree["did"].append({name: fact[name] for name in fact if name not in _ASIDE})
    else:
        tree["left_out"] += 1


def _session(tree: Tree, fact: Mapping[str, Any]) -> None:
    known = tree["session"]
    for name in ("id", "number", "cwd"):
        if fact.get(name) is not None:
            known[name] = fact[name]
    if "run" in fact:
        tree["run"] = fact["run"]
        known |= {"last": "", "parent": fact["parent"]}
    for name in ("cli", "model"):
        if fact.get(name) is not None:
            tree["claude"][name] = fact[name]


def _prompt(tree: Tree, fact: Mapping[str, Any]) -> None:
    tree["turns"] += 1
    tree["asked"], tree["said"] = fact["text"], None
    _goes_on(tree, fact)


def _goes_on(tree: Tree, _fact: Mapping[str, Any]) -> None:
    tree["deferred"] = None


def _said(tree: Tree, fact: Mapping[str, Any]) -> None:
    tree["said"] = fact["text"]


def _begins(tree: Tree, fact: Mapping[str, Any]) -> None:
    names = ("tool", "call", "given", "agent")
    tree["running"][fact["id"]] = {name: fact[name] for name in names if name in fact}


def _not_made(tree: Tree, fact: Mapping[str, Any]) -> None:
    tree["running"].pop(fact.get("id"), None)
    if fact.get("taken"):
        _settle(tree, fact)


def _settle(tree: Tree, fact: Mapping[str, Any]) -> None:
    """Note that a call of which it was not known whether it happened was decided about."""
    open_ = tree["open"]
    made = (fact.get("tool"), fact.get("call"))
    equal = [id_ for id_, one in open_.items() if (one["tool"], one["call"]) == made]
    for id_ in [fact["id"]] if fact.get("id") in open_ else equal[:1]:
        del open_[id_]


def _tool(tree: Tree, fact: Mapping[str, Any]) -> None:
    tree["running"].pop(fact.get("id"), None)
    if not fact.get("paused"):
        _settle(tree, fact)
    if "whole" in fact and not fact.get("beside"):
        # Until the transcript has it.
        names = ("tool", "arguments", "call", "whole", "agent")
        told = {name: fact[name] for name in names if name in fact}
        tree["dropped" if fact.get("dropped") else "fresh"][fact["id"]] = told
    agent = tree["agents"].get(fact.get("agent"))
    if agent is not None:
        agent["tools"] += 1
        agent["newest"] = {name: fact[name] for name in ("tool", "arguments") if name in fact}
    sent = tree["agents"].get(fact.get("of"))
    if sent is not None and not fact.get("beside"):
        sent["told"] = True
    if fact.get("tool") == "Bash":
        tree["shell"] = True
    if fact.get("failed"):
        return
    field = _WRITERS.get(str(fact.get("tool")))
    file = fact.get(field) if field else None
    if isinstance(file, str) and file not in tree["files"]:
        tree["files"] = [*tree["files"], file][-_FILES:]


def _plan(tree: Tree, fact: Mapping[str, Any]) -> None:
    """Take a list as it is (TodoWrite), or one item of it (the Task tools)."""
    done = {_name(item) for item in tree["plan"] if is_done(item)}
    _plan_anew(tree, fact)
    for number, item in enumerate(tree["plan"], 1):
        if is_done(item) and _name(item) not in done and len(tree["did"]) < _MOST:
            ticked = {"what": "ticked", "id": str(item.get("id", number)), "text": item["text"]}
            tree["did"].append(ticked)


def _name(item: Mapping[str, Any]) -> str:
    return str(item.get("id") or item["text"])


def _plan_anew(tree: Tree, fact: Mapping[str, Any]) -> None:
    if "items" in fact:
        tree["plan"] = [dict(item) for item in fact["items"]]
        return
    item = next((one for one in tree["plan"] if one.get("id") == fact["id"]), None)
    if fact.get("status") == "deleted":
        tree["plan"] = [one for one in tree["plan"] if one is not item]
    elif item is None:
        told = {"id": fact["id"], "text": fact.get("text", ""), "status": "pending"}
        tree["plan"].append({**told, **_given(fact)})
    else:
        item.update(_given(fact))


def _given(fact: Mapping[str, Any]) -> dict[str, Any]:
    return {name: fact[name] for name in ("text", "status") if fact.get(name)}


def is_done(item: Mapping[str, Any]) -> bool:
    """Say whether an item of a plan is done."""
    return item.get("status") in _DONE


def _agent(tree: Tree, fact: Mapping[str, Any]) -> None:
    known = tree["agents"].setdefault(
        fact["id"], {"type": "", "task": "", "tools": 0, "newest": None, "said": None}
    )
    for name in ("type", "task", "said", "beside"):
        if fact.get(name):
            known[name] = fact[name]
    known["state"] = "ended" if fact["what"] == "agent ended" else "at work"


def cut_off(tree: Tree) -> None:
    """Note that what was at work was cut off."""
    cut = {id_: made for id_, made in tree["running"].items() if made["tool"] not in HARMLESS}
    tree["open"] = {**tree["open"], **cut}
    tree["running"] = {}
    for agent in tree["agents"].values():
        if agent["state"] == "at work":
            agent["state"] = "cut off"


def turn_over(tree: Tree) -> None:
    """Note that a turn came to its end: what was cut off before it is of no account any more."""
    agents = tree["agents"]
    at_work = {id_ for id_, agent in agents.items() if agent["state"] == "at work"}
    tree["fresh"] = {
        id_: told for id_, told in tree["fresh"].items() if told.get("agent") in at_work
    }
    tree["dropped"] = {}
    for agent in agents.values():
        if agent["state"] == "cut off":
            agent["state"] = "lost"
        if agent["state"] == "ended":
            agent["told"] = True


def unknown_agents(tree: Tree) -> list[str]:
    """Return the subagents of which the model may not know what they did.

    Those that were cut off, and those that ended and whose end may not have been told: their own
    call has no result yet, or they worked in the background.
    """
    return [
        id_
        for id_, agent in tree["agents"].items()
        if agent["state"] == "cut off" or (agent["state"] == "ended" and not agent.get("told"))
    ]


def _compacted(tree: Tree, fact: Mapping[str, Any]) -> None:
    tree["compacted"] = {**(tree["compacted"] or {}), **fact}


def _sizes(tree: Tree, fact: Mapping[str, Any]) -> None:
    told = {name: fact[name] for name in ("before", "after") if name in fact}
    if tree["compacted"] is not None:
        tree["compacted"] = {**tree["compacted"], **told}
    for known in tree["did"]:
        if known["what"] == "compacted":
            known.update(told)


def _cost(tree: Tree, fact: Mapping[str, Any]) -> None:
    # The CLI counts over the whole session, also when it is resumed or forked (2.1.332).
    # One that was killed did not write down what it had counted, and begins from 0 again.
    now, known = float(fact["total"]), tree["cost"]
    turn = now - known["counted"] if now >= known["counted"] else now
    total = round(known["total"] + turn, 6)
    tree["cost"] = {"counted": now, "total": total, "turn": round(turn, 6)}


def _deferred(tree: Tree, fact: Mapping[str, Any]) -> None:
    names = ("id", "tool", "arguments", "question")
    tree["deferred"] = {name: fact[name] for name in names if name in fact}
    tree["running"].pop(fact["id"], None)  # it has not begun


_CHANGES: Final = {
    "session": _session,
    "prompt": _prompt,
    "resumed": _goes_on,
    "continued": _goes_on,
    "woken": _goes_on,
    "said": _said,
    "begins": _begins,
    "tool": _tool,
    "refused": _not_made,
    "plan": _plan,
    "agent begun": _agent,
    "agent ended": _agent,
    "compacted": _compacted,
    "sizes": _sizes,
    "cost": _cost,
    "deferred": _deferred,
}
_ASIDE: Final = frozenset({"call", "dropped", "whole"})
_SILENT: Final = frozenset({"begins", "session", "cost", "deferred", "plan", "woken", "sizes"})
"""Facts that are told by what they change alone."""
