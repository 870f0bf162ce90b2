"""A server as a client starts it: a process of its own, spoken to by the SDK's own client."""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, NamedTuple

from anyio.from_thread import start_blocking_portal
from mcp import ClientSession, StdioServerParameters, types
from mcp.client.stdio import stdio_client

from caravanserai_core.cli._mcp import GROUP
from integration_tests.support import ROOT

COMMAND = [sys.executable, "-m", "caravanserai_core.cli", "mcp"]
NAME = "tester"
"""What the client calls itself."""


def environment(folder: Path) -> dict[str, str]:
    """Return what a server needs in its environment.

    Args:
        folder: gets the entry point of the server where the package was installed before it had
            one.
    """
    paths = [str(ROOT), str(ROOT / "adapters")]
    if not entry_points(group=GROUP):
        project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
        meta = folder / "late-0.dist-info"
        meta.mkdir(parents=True, exist_ok=True)
        (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: late\nVersion: 0\n")
        lines = [f"{name} = {value}\n" for name, value in project["entry-points"][GROUP].items()]
        (meta / "entry_points.txt").write_text(f"[{GROUP}]\n{''.join(lines)}")
        paths.append(str(folder))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {"PATH": path, "PYTHONPATH": os.pathsep.join(paths)}


class Said(NamedTuple):
    """What a call of a tool came to.

    Attributes:
        text: of the result.
        failed: it is an error.
    """

    text: str
    failed: bool


class Client:
    """A client and its server; see `started`.

    Attributes:
        instructions: what the server says about itself.
    """

    def __init__(self, portal: Any, session: ClientSession, instructions: str) -> None:
        self._portal = portal
        self._session = session
        self.instructions = instructions

    def _ask(self, name: str, *args: Any) -> dict[str, Any]:
        found = self._portal.call(getattr(self._session, name), *args)
        return dict(found.model_dump(by_alias=True, mode="json"))

    def tools(self) -> dict[str, dict[str, Any]]:
        return {tool["name"]: tool for tool in self._ask("list_tools")["tools"]}

    def call(self, name: str, arguments: dict[str, Any] | None = None, /, **more: Any) -> Said:
        found = self._ask("call_tool", name, {**(arguments or {}), **more})
        assert [block["type"] for block in found["content"]] == ["text"]
        return Said(found["content"][0]["text"], found["isError"])

    def told(self, name: str, arguments: dict[str, Any] | None = None, /, **more: Any) -> str:
        """Call a tool that has a result."""
        said = self.call(name, arguments, **more)
        assert not said.failed, said.text
        return said.text

    def refused(self, name: str, arguments: dict[str, Any] | None = None, /, **more: Any) -> str:
        """Call a tool that has none."""
        said = self.call(name, arguments, **more)
        assert said.failed, said.text
        return said.text

    def resources(self) -> list[dict[str, Any]]:
        return list(self._ask("list_resources")["resources"])

    def templates(self) -> list[dict[str, Any]]:
        return list(self._ask("list_resource_templates")["resourceTemplates"])

    def read(self, uri: str) -> dict[str, Any]:
        kind: Any = types.Resource.model_fields["uri"].annotation
        given = uri if kind is str else kind(uri)  # mcp 1 wants pydantic's own type
        (content,) = self._ask("read_resource", given)["contents"]
        return dict(content)


@asynccontextmanager
async def _session(
    store: Path | str, options: tuple[str, ...], env: dict[str, str]
) -> AsyncIterator[tuple[ClientSession, str]]:
    command, *args = [*COMMAND, "--store", str(store), *options]
    given = StdioServerParameters(command=command, args=args, env=env)
    about = types.Implementation(name=NAME, version="1")
    async with (
        stdio_client(given) as (incoming, outgoing),
        ClientSession(incoming, outgoing, client_info=about) as session,
    ):
        found = await session.initialize()
        yield session, found.instructions or ""


@contextmanager
def started(store: Path | str, folder: Path, *options: str, **env: str) -> Iterator[Client]:
    """Start a server and speak to it.

    Args:
        store: that it serves.
        folder: of the test.
        *options: of `caravanserai mcp`.
        **env: what is different in its environment.
    """
    with start_blocking_portal() as portal:
        session = _session(store, options, {**environment(folder / "late"), **env})
        with portal.wrap_async_context_manager(session) as (found, instructions):
            yield Client(portal, found, instructions)
