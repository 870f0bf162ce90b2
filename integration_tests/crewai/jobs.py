"""Jobs that are killed at one place; each function is one start of a program.

A place is one of `places`, the n-th append to the journal ("append 3 begins", "append 3 ends"),
the n-th file that a task writes ("file 1 begins"), or the n-th request that reaches the model's
server ("request 4"), which kills who asks.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
import os
import socket
from pathlib import Path
from typing import Any

from crewai import Crew, CrewOutput, Task
from crewai.hooks.dispatch import InterceptionPoint, on

from caravanserai import WaitingForPerson
from caravanserai.crewai import resumable_crew, waypoints
from integration_tests.appends import watch_appends
from integration_tests.crewai import apps, places
from integration_tests.crewai.offline import places_of

RUN = "job"
INPUTS = {"topic": "bees"}

_files = itertools.count(1)


@functools.cache
def watch_files() -> None:
    """Make each file that a task writes (`output_file`) a place, once in this process."""
    real = Task._save_file

    def save_file(self: Task, result: Any) -> None:
        name = f"file {next(_files)}"
        places.pass_by(f"{name} begins")
        real(self, result)
        places.pass_by(f"{name} ends")

    Task._save_file = save_file  # type: ignore[method-assign]


@functools.cache
def watch_network() -> None:
    """Write down what this process looks up or connects to that is not this machine."""
    look_up, connect = socket.getaddrinfo, socket.socket.connect

    def told(what: str, host: Any) -> None:
        if host not in ("127.0.0.1", "localhost", b"127.0.0.1", None):
            with Path("network.txt").open("a") as file:
                file.write(f"{what} {host!r}\n")
            raise OSError(f"{what} {host!r} is refused")

    def getaddrinfo(host: Any, *args: Any, **options: Any) -> Any:
        told("look up", host)
        return look_up(host, *args, **options)

    def connects(self: socket.socket, address: Any) -> None:
        if isinstance(address, tuple):
            told("connect", address[0])
        connect(self, address)

    socket.getaddrinfo = getaddrinfo
    socket.socket.connect = connects  # type: ignore[method-assign]


@functools.cache
def watch_hooks() -> None:
    """Have hooks of the program itself, each a place."""

    @on(InterceptionPoint.PRE_TOOL_CALL)
    def before(context: Any) -> None:
        places.reach(f"hook before {context.tool_name}")

    @on(InterceptionPoint.POST_TOOL_CALL)
    def after(context: Any) -> None:
        places.reach(f"hook after {context.tool_name}")


def outcome(result: CrewOutput) -> dict[str, Any]:
    """Return what came of a kickoff, as JSON."""

    def shown(value: Any) -> Any:
        return None if value is None else [type(value).__qualname__, value.model_dump()]

    return {
        "raw": result.raw,
        "pydantic": shown(result.pydantic),
        "json": result.json_dict,
        "usage": result.token_usage.model_dump(),
        "tasks": [
            {
                **output.model_dump(mode="json", exclude={"pydantic"}),
                "pydantic": shown(output.pydantic),
            }
            for output in result.tasks_output
        ],
    }


def begin(options: dict[str, Any]) -> None:
    """Settle what a start needs: where it is killed, and what is watched."""
    global _files
    places.die_at(options.get("place"))
    os.environ.update(places_of(Path.cwd()))
    Path("pid.txt").write_text(str(os.getpid()))
    _files = itertools.count(1)
    watch_appends(places.pass_by)
    watch_files()
    watch_network()
    if options.get("hooks"):
        watch_hooks()


def crew_of(url: str, options: dict[str, Any]) -> Crew:
    """Return the crew of an app with the program's own task callback, and with waypoints."""
    crew = apps.build(options["app"], url, **options.get("model", {}))
    crew.task_callback = then = None if options.get("silent") else told
    run_id = options.get("run_id", RUN)
    if options.get("resumable"):
        return resumable_crew(crew, run_id=run_id, **options.get("more", {}))
    if not options.get("plain"):
        crew.task_callback = waypoints(run_id, then=then, **options.get("more", {}))
    return crew


def tell(found: Any) -> None:
    """Write down what came of a start."""
    Path("result.json").write_text(json.dumps(found))


def run(url: str, options: dict[str, Any]) -> int:
    """Run an app once; what came of it goes to result.json.

    Args:
        url: of the scripted model.
        options: `app`; `place`; `way`, "kickoff", "kickoff_async" or "akickoff", or one of the
            three for each of the `inputs`; `plain`, without waypoints; `resumable`, made so by
            `resumable_crew`; `silent`, without a task callback of the program; `hooks`, whether
            the program has some; `run_id`; `model`, for the model's client; `more`, for
            `waypoints`. Where the run waits for a person the result has only "waits".
    """
    begin(options)
    crew = crew_of(url, options)
    try:
        found = kick_off(crew, options.get("way", "kickoff"), options.get("inputs", INPUTS))
    except WaitingForPerson as waits:
        tell({"waits": list(waits.questions)})
    else:
        tell([outcome(one) for one in found] if isinstance(found, list) else outcome(found))
    return 0


def told(output: Any) -> None:
    """Be the program's own task callback."""
    places.reach(f"then {output.name}")


def kick_off(crew: Crew, way: str, inputs: Any) -> Any:
    """Start a crew in one of its ways."""
    start = getattr(crew, way)
    if way in ("kickoff", "kickoff_for_each"):
        return start(inputs=inputs)

    async def started() -> Any:
        return await start(inputs=inputs)

    return asyncio.run(started())
