"""States of crews and flows, written by hand, in the form in which the adapter saves them."""

from __future__ import annotations

from typing import Any

NAMES = ("research", "draft", "review")
ROLES = ("Researcher", "Writer", "Editor")


def task(name: str | None, agent: str | None, **more: Any) -> dict[str, Any]:
    """Return a task."""
    return {
        "key": "0" * 32,
        "name": name,
        "description": f"Work on the {name or 'report'}, with care.",
        "expected": "A text.",
        "agent": agent,
        "made_by": "1" * 32,
        "gives": None,
        "async": False,
        **more,
    }


def call(tool: str, arguments: str, result: str, **more: Any) -> dict[str, Any]:
    """Return a call of a tool as a state keeps it for notes."""
    known = {"agent": "", "tool": tool, "arguments": arguments, "result": result, "failed": False}
    return {**known, **more}


def messages(raw: str) -> list[dict[str, Any]]:
    """Return what was said for a task with one call."""
    asked = {"name": "lookup", "arguments": '{"key": "honey"}'}
    return [
        {"role": "system", "content": "You are of use."},
        {"role": "user", "content": "Current Task: work."},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "call_1", "type": "function", "function": asked}],
        },
        {"role": "tool", "content": "29.6 kg", "tool_call_id": "call_1", "name": "lookup"},
        {"role": "assistant", "content": raw},
    ]


def done(index: int, raw: str, agent: str, **did: Any) -> dict[str, Any]:
    """Return a task that is done."""
    known = {"models": 2, "seconds": 41.2, "agent": agent, "tools": [], "guardrail_retries": 0}
    output = {
        "name": None,
        "description": "Work.",
        "expected_output": "A text.",
        "raw": raw,
        "agent": agent,
        "messages": messages(raw),
        "tool_failures": [],
    }
    return {"task": index, "output": output, "did": {**known, **did}, "usage": []}


def crew(*entries: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a state of a crew of three tasks."""
    return {
        "at": "task" if entries else "begin",
        "crewai": "1.15.30",
        "crew": {"name": "report", "process": "sequential"},
        "given": {"topic": "bees in the city"},
        "tasks": [task(name, role) for name, role in zip(NAMES, ROLES, strict=True)],
        "done": list(entries),
        "skipped": [],
        "carried": {},
        **more,
    }


def ended(*entries: dict[str, Any], raw: str, tokens: int = 310, **more: Any) -> dict[str, Any]:
    """Return the last state of a crew."""
    result = {"raw": raw, "json_dict": None, "token_usage": {"total_tokens": tokens}}
    return crew(*entries, at="end", result=result, **more)


def method(name: str, gave: Any, **more: Any) -> dict[str, Any]:
    """Return a method that ended."""
    did = {"models": 0, "tools": []}
    return {"name": name, "output": {"value": gave}, "seconds": 1.25, "did": did, **more}


def flow(*methods: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a state of a flow."""
    return {
        "at": "method" if methods else "begin",
        "crewai": "1.15.30",
        "flow": {"name": "ReportFlow"},
        "given": {"topic": "bees"},
        "methods": list(methods),
        "state": {"id": "flow-1", "n": 3} if methods else None,
        "carried": {},
        **more,
    }
