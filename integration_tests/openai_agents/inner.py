"""Agents inside of tools that have more of their own: a session, a provider of models."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import agents
from agents import Agent, RunConfig, SQLiteSession
from agents.items import TResponseInputItem
from agents.models.openai_provider import OpenAIProvider
from agents.tool import function_tool

from integration_tests.openai_agents import apps

_DATABASE = "inner.db"


class Inner(SQLiteSession):
    """The session of an agent inside of a tool, on disk; its additions are places."""

    def __init__(self) -> None:
        super().__init__("inner", _DATABASE)
        self._count = itertools.count(1)

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        name = f"inner add {next(self._count)}"
        apps.reach(f"{name} begins")
        await super().add_items(items)
        apps.reach(f"{name} ends")


def there() -> bool:
    """Say whether there is such a session."""
    return Path(_DATABASE).exists()


async def told() -> list[Any]:
    """Return what the session holds, in a form that can be compared."""
    session = SQLiteSession("inner", _DATABASE)
    items = await session.get_items()
    session.close()
    return sorted(items, key=json.dumps)


async def _hear(event: Any) -> None:
    """Listen, and do nothing."""


def named(model: Any) -> RunConfig:
    """Return a configuration that names a model, which a provider of its own gives."""
    provider = OpenAIProvider(
        openai_client=model._client, use_responses=type(model).__name__ == "OpenAIResponsesModel"
    )
    return RunConfig(model="scripted", model_provider=provider, tracing_disabled=True)


def shop(
    model: Any, *, approval: bool = False, by_name: bool = False, **options: Any
) -> Agent[Any]:
    """Return the agent of `apps.nested`, whose inner agent has a session.

    Args:
        model: a model.
        approval: as there.
        by_name: the inner agent's model is named in a `run_config`.
        options: of `Agent.as_tool`.
    """
    if by_name:
        options["run_config"] = named(model)
    return apps.nested(model, approval=approval, options={"session": Inner(), **options})


def calling(model: Any) -> Agent[Any]:
    """Return an agent with a tool of the program that runs another agent itself."""
    outer = apps.nested(model)
    expert = outer.tools[0]._agent_instance  # type: ignore[union-attr]
    expert.model = None

    @function_tool
    async def ask_expert(input: str) -> str:  # noqa: A002 - the name that the script uses
        """Ask who knows the stock."""
        given = {"run_config": named(model), "session": Inner()}
        result = await agents.Runner.run(expert, input, **given)
        apps.reach("end ask_expert")
        return str(result.final_output)

    outer.tools[0] = ask_expert
    return outer


APPS: dict[str, Any] = {
    "inner": shop,
    "inner streaming": lambda model: shop(model, on_stream=_hear),
    "inner by name": lambda model: shop(model, by_name=True),
    "inner streaming by name": lambda model: shop(model, by_name=True, on_stream=_hear),
    "inner approving": lambda model: shop(model, approval=True, by_name=True),
    "inner both": lambda model: shop(model, by_name=True),
    "calling": calling,
    "calling both": calling,
}
SCRIPTS: dict[str, Any] = {name: apps.BOTH if "both" in name else apps.NESTED for name in APPS}
