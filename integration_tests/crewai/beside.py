"""A crew of four tasks under each of the ways to go on that CrewAI itself has, and under ours."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from integration_tests.crewai import apps, offline, places

# isort: split
from crewai import Agent, Crew, Task
from crewai.state.checkpoint_config import CheckpointConfig
from crewai.tools import BaseTool

from caravanserai.crewai import waypoints

NAMES = ("collect", "sort", "write", "check")
CHECKPOINTS = "checkpoints"


class Lookup(BaseTool):
    """A tool as a class: CrewAI's checkpoints cannot be written where it is a function."""

    name: str = "lookup"
    description: str = "Look a key up."

    def _run(self, key: str) -> str:
        places.reach(f"begin lookup {key}")
        places.reach(f"end lookup {key}")
        return f"value of {key}"


def rules() -> list[dict[str, Any]]:
    """Return what the model says: in each task two look-ups, one after the other, then a text."""
    return [
        rule
        for name in NAMES
        for about in [{"if_said": f"TASK-{name}"}]
        for rule in [
            {**about, "call": [["lookup", {"key": f"{name} 1"}]]},
            {**about, "call": [["lookup", {"key": f"{name} 2"}]], "times": 2},
            {**about, "say": f"Result of {name}."},
        ]
    ]


def four(url: str, tool: Any = None, **more: Any) -> Crew:
    """Return the crew."""
    llm = apps.model(url, api_key=offline.KEY)
    given = {"goal": "Do it well.", "backstory": "Of age.", "llm": llm, "tools": [tool or Lookup()]}
    agents = [Agent(role=f"Worker of {name}", **given) for name in NAMES]
    tasks = [
        Task(
            name=name,
            description=f"TASK-{name} about {{topic}}.",
            expected_output="A text.",
            agent=agent,
        )
        for name, agent in zip(NAMES, agents, strict=True)
    ]
    return Crew(name="four", agents=agents, tasks=tasks, **more)


def run(url: str, options: dict[str, Any]) -> int:
    """Start the crew, or go on with it; its result goes to result.txt.

    Args:
        url: of the scripted model.
        options: `way`, "nothing", "checkpoint", "function" (a checkpoint with such a tool),
            "replay", "waypoints" or "both", a replay of a crew that has them; `place`; `again`,
            whether this is the start behind a crash.
    """
    places.die_at(options.get("place"))
    os.environ.update(offline.places_of(Path.cwd()))
    result = _WAYS[options["way"]](url, options.get("again", False))
    Path("result.txt").write_text(result.raw)
    return 0


INPUTS = {"topic": "bees"}


def _nothing(url: str, again: bool) -> Any:
    return four(url).kickoff(inputs=INPUTS)


def _waypoints(url: str, again: bool) -> Any:
    return four(url, task_callback=waypoints("four")).kickoff(inputs=INPUTS)


def _replay(url: str, again: bool, **more: Any) -> Any:
    crew = four(url, **more)
    if not again:
        return crew.kickoff(inputs=INPUTS)
    # The task that ran has no id yet, so the newest that can be named is the last finished one.
    newest = crew._task_output_handler.load()[-1]["task_id"]
    return crew.replay(newest)


def _both(url: str, again: bool) -> Any:
    return _replay(url, again, task_callback=waypoints("four"))


def _checkpoint(url: str, again: bool) -> Any:
    if not again:
        kept = CheckpointConfig(location=CHECKPOINTS, on_events=["task_completed"])
        return four(url, checkpoint=kept).kickoff(inputs=INPUTS)
    files = sorted(Path(CHECKPOINTS).rglob("*.json"), key=lambda path: path.stat().st_mtime_ns)
    newest = CheckpointConfig(location=CHECKPOINTS, restore_from=files[-1])
    return four(url).kickoff(inputs=INPUTS, from_checkpoint=newest)


def _function(url: str, again: bool) -> Any:
    kept = CheckpointConfig(location=CHECKPOINTS, on_events=["task_completed"])
    return four(url, apps.lookup, checkpoint=kept).kickoff(inputs=INPUTS)


_WAYS = {
    "both": _both,
    "function": _function,
    "nothing": _nothing,
    "checkpoint": _checkpoint,
    "replay": _replay,
    "waypoints": _waypoints,
}
