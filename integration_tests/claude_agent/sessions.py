"""Sessions of the SDK itself, without waypoints: what its contract tests look at."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from claude_agent_sdk import (
    AgentDefinition,
    ClaudeAgentOptions,
    ClaudeSDKError,
    HookMatcher,
    Message,
    ResultMessage,
    create_sdk_mcp_server,
    query,
    tool,
)

from integration_tests.claude_agent import offline
from integration_tests.claude_agent.apps import MODEL
from integration_tests.claude_agent.scripted import ScriptedAnthropic
from integration_tests.claude_agent.scripts import CHARGE, COUNTER, ENVIRONMENTS, SUMMARY

EVENTS = (
    *("UserPromptSubmit", "PreToolUse", "PostToolUse", "PostToolUseFailure", "PostToolBatch"),
    *("TaskCreated", "SubagentStart", "SubagentStop", "PreCompact", "PostCompact", "Stop"),
)
"""Events that the adapter has hooks for, and PreCompact."""

Answer = dict[str, Any]


class Store:
    """The least that is a session store, in memory."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], list[dict[str, Any]]] = {}
        self.gives = True

    async def append(self, key: Any, entries: list[Any]) -> None:
        self.kept.setdefault((key["session_id"], key.get("subpath") or ""), []).extend(entries)

    async def load(self, key: Any) -> list[Any] | None:
        found = self.kept.get((key["session_id"], key.get("subpath") or ""))
        return found if self.gives else None

    async def list_subkeys(self, key: Any) -> list[str]:
        return [path for session, path in self.kept if session == key["session_id"] and path]

    def blocks(self, session: str, kind: str) -> list[dict[str, Any]]:
        """Return the blocks of a kind in the main transcript of a session."""
        found = []
        for entry in self.kept.get((session, ""), []):
            content = (entry.get("message") or {}).get("content")
            if isinstance(content, list):
                found += [block for block in content if block["type"] == kind]
        return found


class Sessions:
    """Sessions in one folder, with one scripted model; what happened is kept in its order.

    Args:
        folder: where they work.
        server: the model.

    Attributes:
        log: events with what their hooks got, and "tool" with the arguments where one begins.
        store: what the sessions are mirrored to.
        decides: what the hook in front of a tool answers, by the charge's number.
        stderr: what the CLI said.
    """

    def __init__(self, folder: Path, server: Any) -> None:
        self.folder = folder
        self.server = server
        self.log: list[tuple[str, Any]] = []
        self.store = Store()
        self.decides: dict[int, Callable[[], Answer]] = {}
        self.stderr: list[str] = []

    def of(self, event: str) -> list[Any]:
        """Return what was seen of an event."""
        return [given for name, given in self.log if name == event]

    def charges(self) -> list[int]:
        """Return the charges that were made."""
        return [given["n"] for given in self.of("tool")]

    def talk(self, *asks: str, **more: Any) -> list[Message]:
        """Ask one after the other in one session, and return all messages.

        Args:
            *asks: the prompts; without one the input is kept open all the same.
            **more: for `ClaudeAgentOptions`.
        """
        return asyncio.run(self._talk(asks, more))

    def fails(self, *asks: str, **more: Any) -> ClaudeSDKError:
        """Ask, and return what is raised."""
        try:
            self.talk(*asks, **more)
        except ClaudeSDKError as error:
            return error
        raise AssertionError("nothing is raised")

    async def _talk(self, asks: tuple[str, ...], more: dict[str, Any]) -> list[Message]:
        ends: asyncio.Queue[None] = asyncio.Queue()

        async def input_() -> AsyncIterator[dict[str, Any]]:
            for text in asks:
                message = {"role": "user", "content": text}
                told = {"type": "user", "message": message, "session_id": ""}
                yield {**told, "parent_tool_use_id": None}
                await ends.get()
            if not asks:
                await ends.get()

        found: list[Message] = []
        async for message in query(prompt=input_(), options=self._options(more)):
            found.append(message)
            if isinstance(message, ResultMessage):
                ends.put_nowait(None)
        return found

    def _options(self, more: dict[str, Any]) -> ClaudeAgentOptions:
        @tool("charge", "Charge a customer.", {"n": int})
        async def charge(given: dict[str, Any]) -> dict[str, Any]:
            self.log.append(("tool", given))
            if given["n"] == 9:
                raise ValueError("no such customer")
            return {"content": [{"type": "text", "text": f"charged {given['n']}"}]}

        agent = AgentDefinition(description="Charges.", prompt=COUNTER, tools=[CHARGE])
        given: dict[str, Any] = {
            "model": MODEL,
            "permission_mode": "acceptEdits",
            "allowed_tools": [CHARGE, "Agent", "TaskCreate"],
            "mcp_servers": {"pay": create_sdk_mcp_server("pay", "1", [charge])},
            "agents": {"counter": agent},
            "hooks": {name: [self._hook(name)] for name in EVENTS},
            "session_store": self.store,
            "session_store_flush": "eager",
            "setting_sources": [],
            "stderr": self.stderr.append,
            "cwd": str(self.folder),
        }
        return ClaudeAgentOptions(**{**given, **more})

    def _hook(self, event: str) -> HookMatcher:
        async def hook(given: Any, _id: str | None, _context: Any) -> Any:
            if event == "PreToolUse":
                await asyncio.sleep(0.05)  # a tool that did not wait for it would be seen first
            self.log.append((event, given))
            if event == "PreToolUse" and given["tool_name"] == CHARGE:
                decide = self.decides.get(given["tool_input"]["n"])
                return {} if decide is None else decide()
            return {}

        return HookMatcher(hooks=[hook], on_failure="block" if event == "PreToolUse" else None)


def decision(word: str) -> Callable[[], Answer]:
    """Return a hook's answer: "allow", "deny" or "defer"."""
    told = {"permissionDecision": word, "permissionDecisionReason": "so said"}
    return lambda: {"hookSpecificOutput": {"hookEventName": "PreToolUse", **told}}


@contextmanager
def sessions(folder: Path, script: Any) -> Iterator[Sessions]:
    """Give a folder and a model to sessions; the environment of this process is theirs."""
    before = dict(os.environ)
    with ScriptedAnthropic(script, summary=SUMMARY) as server:
        given = {**server.environment, **ENVIRONMENTS["shortened"]}
        offline.enter(offline.environment(folder, given))
        try:
            yield Sessions(folder, server)
        finally:
            offline.enter(before)
