"""What the hooks of the CLI are given and what they answer, in the words of the SDK."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from caravanserai.claude_agent import _entries, _facts
from caravanserai.claude_agent._facts import shown

if TYPE_CHECKING:
    from caravanserai.claude_agent._facts import Fact


def answer(event: str, **fields: Any) -> dict[str, Any]:
    """Return what a hook answers to an event."""
    return {"hookSpecificOutput": {"hookEventName": event, **fields}}


def deny(reason: str) -> dict[str, Any]:
    """Return what the hook in front of a tool answers so that it does not begin."""
    return answer("PreToolUse", permissionDecision="deny", permissionDecisionReason=reason)


def arguments_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call that an event is about."""
    found = given.get("tool_input")
    return dict(found) if isinstance(found, Mapping) else {"input": found}


def refused_fact(
    id_: str, tool: str, given: Mapping[str, Any], reason: str, agent: str | None
) -> Fact:
    """Return the fact that a call did not begin."""
    fact: Fact = {"what": "refused", "id": id_, "tool": tool, "arguments": shown(given)}
    return {**fact, "reason": _facts.text(reason, 300)} | ({"agent": agent} if agent else {})


def text_of(response: Any) -> str | None:
    """Return what a tool gave, as text; its form differs from tool to tool."""
    if isinstance(response, (str, list)):
        return _entries.text_of(response)
    if not isinstance(response, Mapping):
        return None
    if isinstance(response.get("stdout"), str):
        parts = [response["stdout"], str(response.get("stderr") or "")]
        return "\n".join(part.strip("\n") for part in parts if part.strip())
    if "content" in response and not response.get("filePath"):
        return _entries.text_of(response["content"])
    return None


def seen_in(response: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a built-in tool tells beside its text."""
    told: dict[str, Any] = {}
    patch = response.get("structuredPatch")
    if isinstance(patch, list):
        lines = [
            str(line)
            for hunk in patch
            if isinstance(hunk, Mapping)
            for line in hunk.get("lines") or ()
        ]
        told["added"] = sum(line.startswith("+") for line in lines)
        told["removed"] = sum(line.startswith("-") for line in lines)
    if response.get("type") in ("create", "update"):
        told["made"] = response["type"]
        if response["type"] == "create" and isinstance(response.get("content"), str):
            told["added"], told["removed"] = len(response["content"].splitlines()), 0
    if response.get("isAsync") or response.get("backgroundTaskId"):
        told["beside"] = True
    if response.get("agentId"):
        told["of"] = str(response["agentId"])
    return told


def planned(tool: str, given: Mapping[str, Any], response: Any) -> list[Fact]:
    """Return how a call of a planning tool changed the plan."""
    if tool == "TodoWrite":
        items = [
            {"text": _facts.text(one.get("content", ""), 300), "status": str(one.get("status"))}
            for one in given.get("todos") or ()
            if isinstance(one, Mapping)
        ]
        return [{"what": "plan", "items": items}]
    if tool == "TaskUpdate" and given.get("taskId"):
        fact: Fact = {"what": "plan", "id": str(given["taskId"])}
        if given.get("subject"):
            fact["text"] = _facts.text(given["subject"], 300)
        if given.get("status"):
            fact["status"] = str(given["status"])
        return [fact]
    made = response.get("task") if isinstance(response, Mapping) else None
    if tool == "TaskCreate" and isinstance(made, Mapping) and made.get("id"):
        told = {"what": "plan", "id": str(made["id"])}
        return [{**told, "text": _facts.text(made.get("subject", ""), 300)}]
    return []
