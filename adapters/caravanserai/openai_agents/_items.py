"""The JSON of a RunState, read without the SDK: who said, called, got and handed over what.

Seen in openai-agents 0.20 (schema 1.15) and 0.24 (1.21). `session_items` holds every item of a
run in order; `generated_items` only those that the next model is shown, which a handoff may cut.
Where the two are equal, a waypoint has them once, as the latter (`_folding`).
An item is a wrapper (`type`, `agent`) around what the API gave or is given (`raw_item`). A kind
that is not known here is told by its type, never an error: a note must not stop a run.
"""

from __future__ import annotations

import json
from typing import Any, Final, Literal, NamedTuple, TypeAlias

__all__ = [
    "Arguments",
    "Item",
    "agent_of",
    "arguments_of",
    "count_results",
    "decisions",
    "given_items",
    "items_after",
    "name_of",
    "raw_items",
    "read",
    "waiting",
]

Kind: TypeAlias = Literal[
    "message",  # somebody said something
    "call",  # a model asked for a tool that the program runs
    "hosted",  # a model had a tool run by its provider; the item holds what came of it
    "result",  # what a tool gave
    "handoff call",  # a model asked for another agent
    "handoff",  # another agent took over
    "wants",  # a call waits for an approval
    "quiet",  # nothing to tell: reasoning, lists of tools
    "unknown",
]

Arguments: TypeAlias = dict[str, Any] | str


class Item(NamedTuple):
    """One item of a run or an input.

    Attributes:
        kind: what it is.
        agent: the agent whose model it is of, or the one that handed over; "" in an input.
        type: the type that the API has for it.
        name: the tool, the agent that took over, or the role of who said something.
        arguments: by name, as JSON; a text where the model wrote no valid JSON.
        call_id: what ties a result to its call; "" where there is nothing to tie.
        text: what was said, or came back.
        extras: parts that are no text: "image", "file".
        failed: what came back is an error, and the item says so.
        inside: the agent that a call has work; "" for any other tool.
    """

    kind: Kind
    agent: str = ""
    type: str = ""
    name: str = ""
    arguments: Arguments = ""
    call_id: str = ""
    text: str = ""
    extras: tuple[str, ...] = ()
    failed: bool = False
    inside: str = ""


_TEXTS: Final = frozenset({"text", "input_text", "output_text", "summary_text"})

_QUIET: Final = frozenset(
    {
        "reasoning",
        "mcp_list_tools",
        "mcp_approval_response",
        "tool_search_output",
        "program_output",
        "additional_tools",
        "compaction",
        "item_reference",
    }
)

_RESULTS: Final = "_output"
"""How the types end of what a tool of the program gave."""


def read(raw: Any, agent: str = "") -> Item:
    """Read one item in the form that the Responses API gives or takes.

    Args:
        raw: its JSON.
        agent: the agent whose model it is of, where that is known.
    """
    if not isinstance(raw, dict):
        return Item("unknown", agent, type(raw).__name__)
    kind = name_of(raw.get("type"))
    if kind in ("message", "") and "role" in raw:
        text, extras = _content(raw.get("content"))
        return Item("message", agent, "message", name_of(raw["role"]), text=text, extras=extras)
    if kind in _QUIET:
        return Item("quiet", agent, kind)
    called = _call(kind, raw)
    if called is not None:
        name, arguments = called
        id_ = name_of(raw.get("call_id") or raw.get("id"))
        return Item("call", agent, kind, name, arguments, id_)
    hosted = _hosted(kind, raw)
    if hosted is not None:
        return hosted._replace(agent=agent)
    if kind.endswith(_RESULTS):
        text, extras = _content(raw.get("output"))
        id_ = name_of(raw.get("call_id") or raw.get("id"))
        failed = raw.get("status") == "failed"
        return Item("result", agent, kind, "", "", id_, text, extras, failed)
    return Item("unknown", agent, kind)


def _call(kind: str, raw: dict[str, Any]) -> tuple[str, Arguments] | None:
    """Return the tool that the program is to run, and its arguments; None: it is no such item."""
    if kind == "function_call":
        name, space = name_of(raw.get("name")), name_of(raw.get("namespace"))
        full = f"{space}.{name}" if space and space != name else name
        return full, arguments_of(raw.get("arguments"))
    if kind == "custom_tool_call":
        return name_of(raw.get("name")), {"input": raw.get("input", "")}
    action = raw.get("action")
    action = action if isinstance(action, dict) else {}
    if kind == "computer_call":
        acts = raw.get("actions")
        acts = acts if isinstance(acts, list) else [action]
        return "computer", {"do": [_named(one, "type") for one in acts]}
    if kind in ("local_shell_call", "shell_call"):
        command = action.get("commands") or action.get("command")
        return "shell", {"command": command}
    if kind == "apply_patch_call":
        operation = raw.get("operation")
        fields = operation if isinstance(operation, dict) else {}
        return "apply_patch", {key: fields[key] for key in ("type", "path") if key in fields}
    return None


def _named(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, dict) else value


def _hosted(kind: str, raw: dict[str, Any]) -> Item | None:
    """Return a call that the provider ran itself; None: it is no such item."""
    if kind in ("mcp_call", "mcp_approval_request"):
        name = f"{name_of(raw.get('server_label'))}.{name_of(raw.get('name'))}"
        arguments = arguments_of(raw.get("arguments"))
        if kind == "mcp_approval_request":
            return Item("wants", "", kind, name, arguments, name_of(raw.get("id")))
        error = raw.get("error")
        text = _spoken(error) if error else name_of(raw.get("output"))
        return Item("hosted", "", kind, name, arguments, "", text, failed=bool(error))
    if not kind.endswith("_call") and kind != "program":
        return None
    name = kind.removesuffix("_call")
    action = raw.get("action")
    fields = action if kind == "web_search_call" and isinstance(action, dict) else raw
    known = ("query", "queries", "url", "code", "arguments")
    arguments = {key: fields[key] for key in known if fields.get(key)}
    extras = ("image",) if kind == "image_generation_call" and raw.get("result") else ()
    failed = raw.get("status") == "failed"
    return Item("hosted", "", kind, name, arguments, extras=extras, failed=failed)


def _content(content: Any) -> tuple[str, tuple[str, ...]]:
    """Return the text of a message or a result, and the kinds of its other parts."""
    texts: list[str] = []
    extras: list[str] = []
    for part in content if isinstance(content, list) else [content]:
        if not isinstance(part, dict):
            texts += [part] if isinstance(part, str) and part else []
            continue
        kind = name_of(part.get("type"))
        if kind in _TEXTS or (not kind and "text" in part):
            texts.append(name_of(part.get("text")))
        elif kind == "refusal":
            texts.append(name_of(part.get("refusal")))
        elif "stdout" in part or "stderr" in part:  # of a shell
            texts += [text for key in ("stdout", "stderr") if (text := name_of(part.get(key)))]
        else:
            extras.append(kind.removeprefix("input_").removeprefix("output_") or "something else")
    return "\n".join(texts), tuple(extras)


def _spoken(value: Any) -> str:
    """Return an error of the API as a text."""
    if isinstance(value, dict):
        return name_of(value.get("message")) or _content(value.get("content"))[0] or "an error"
    return name_of(value) or "an error"


def name_of(value: Any) -> str:
    """Return a text, or "" for anything else."""
    return value if isinstance(value, str) else ""


def arguments_of(text: Any) -> Arguments:
    """Return the arguments of a call, which a model writes as a text that should be JSON."""
    if isinstance(text, dict):
        return text
    written = name_of(text)
    if not written.strip():
        return {}
    try:
        found = json.loads(written)
    except (ValueError, RecursionError):
        return written
    return found if isinstance(found, dict) else written


# ---------------------------------------------------------------------- a RunState


def agent_of(tree: Any) -> str:
    """Return the name of an agent, given the reference that stands for it."""
    return name_of(tree.get("name")) if isinstance(tree, dict) else ""


def agents_in(run: Any) -> list[str]:
    """Return the names of the agents that a run state refers to, each once, the current first."""
    found = [agent_of(run.get("current_agent"))] if isinstance(run, dict) else []
    for wrapper in raw_items(run):
        if isinstance(wrapper, dict):
            names = ("agent", "source_agent", "target_agent")
            found += [agent_of(wrapper.get(name)) for name in names]
    return list(dict.fromkeys(name for name in found if name))


def raw_items(run: Any) -> list[Any]:
    """Return all items of a run, oldest first, as they are in its JSON."""
    for name in ("session_items", "generated_items") if isinstance(run, dict) else ():
        found = run.get(name)
        if isinstance(found, list) and found:
            return found
    return []


def items_after(run: Any, start: int = 0) -> list[Item]:
    """Read the items of a run but for the first `start` ones."""
    return [_run_item(wrapper) for wrapper in raw_items(run)[start:]]


def _run_item(wrapper: Any) -> Item:
    if not isinstance(wrapper, dict):
        return Item("unknown")
    kind = name_of(wrapper.get("type"))
    item = read(wrapper.get("raw_item"), agent_of(wrapper.get("agent")))
    if kind == "tool_approval_item":
        name = item.name or name_of(wrapper.get("tool_name"))
        return item._replace(kind="wants", name=name)
    if kind == "handoff_call_item":
        return item._replace(kind="handoff call")
    if kind == "handoff_output_item":
        source = agent_of(wrapper.get("source_agent")) or item.agent
        target = agent_of(wrapper.get("target_agent"))
        return item._replace(kind="handoff", agent=source, name=target)
    if item.kind == "call":
        origin = wrapper.get("tool_origin")
        inside = origin.get("agent_name") if isinstance(origin, dict) else ""
        return item._replace(inside=name_of(inside))
    if item.kind == "result" and not item.text and not item.extras:
        output = wrapper.get("output")  # a kind whose raw form is not known here
        return item._replace(text=name_of(output))
    return item


def waiting(run: Any) -> list[Item]:
    """Return the calls that wait for an approval, of nested agents too."""
    step = run.get("current_step") if isinstance(run, dict) else None
    data = step.get("data") if isinstance(step, dict) else None
    found = data.get("interruptions") if isinstance(data, dict) else None
    return [_run_item(wrapper) for wrapper in found] if isinstance(found, list) else []


def decisions(run: Any) -> dict[str, bool]:
    """Return the calls that somebody decided on: by id, whether they were approved."""
    context = run.get("context") if isinstance(run, dict) else None
    if not isinstance(context, dict):
        return {}
    records: list[Any] = []
    by_tool = context.get("approvals")
    records += by_tool.values() if isinstance(by_tool, dict) else ()
    for name in ("function_tool_approvals", "hosted_mcp_approvals"):  # the first since 0.21
        entries = context.get(name)
        for entry in entries if isinstance(entries, list) else ():
            records.append(entry.get("decision") if isinstance(entry, dict) else None)
    found: dict[str, bool] = {}
    for record in records:
        for name, approved in (("approved", True), ("rejected", False)):
            ids = record.get(name) if isinstance(record, dict) else None
            for id_ in ids if isinstance(ids, list) else ():
                found[name_of(id_)] = approved
    return found


def count_results(run: Any) -> int:
    """Return how many calls of tools have run to their end."""
    kinds = [wrapper.get("type") for wrapper in raw_items(run) if isinstance(wrapper, dict)]
    refused = [approved for approved in decisions(run).values() if not approved]
    return max(0, kinds.count("tool_call_output_item") - len(refused))


def given_items(given: Any) -> list[Item]:
    """Read an input: a text, or a list of items."""
    if isinstance(given, str):
        return [Item("message", "", "message", "user", text=given)]
    return [read(raw) for raw in given] if isinstance(given, list) else []
