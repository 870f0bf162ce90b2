"""log: who wrote what, where several programs worked on a run in turn."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from integration_tests.api.helpers import process

AGENT = """
import sys
import caravanserai
name = sys.argv[1]
with caravanserai.open_run("demo", adapter=name) as run:
    steps = [*(run.state or {"steps": []})["steps"], name]
    run.checkpoint({"steps": steps}, f"{name} summed up and went on")
"""


def test_a_run_that_is_passed_to_and_fro_says_who_wrote_each_waypoint(
    cli: Callable[..., Any],
) -> None:
    """Writer, parent and time of each; the states are those of one unbroken line."""
    order = ["planner", "writer", "planner", "writer"]
    for name in order:
        process(AGENT, name)

    events = json.loads(cli("log", "demo", "--json").output)["events"]

    points = [event for event in events if event["kind"] == "waypoint"]
    assert [event["parent"] for event in points] == [None, 1, 2, 3]
    assert [event["text"] for event in points] == [f"{n} summed up and went on" for n in order]
    assert len({event["by"] for event in points}) == 4, "each process is a writer of its own"
    times = [event["time"] for event in points]
    assert times == sorted(times)
    assert len(set(times)) == 4
    rows = [line.split("\t") for line in cli("log", "demo").output.splitlines()]
    assert [row[2] for row in rows] == [event["by"] for event in points]
    assert json.loads(cli("show", "demo", "--json").output)["state"] == {"steps": order}
