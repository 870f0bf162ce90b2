"""Other things that programs do with a crew; each function is one start of a program."""

from __future__ import annotations

import builtins
import threading
from typing import Any

from integration_tests.crewai import apps
from integration_tests.crewai.jobs import INPUTS, begin, crew_of, outcome, tell


def twice(url: str, options: dict[str, Any]) -> int:
    """Kick the very same crew off for each of some inputs, one after another."""
    begin(options)
    crew = crew_of(url, options)
    tell([outcome(crew.kickoff(inputs=inputs)) for inputs in options["each"]])
    return 0


def threads(url: str, options: dict[str, Any]) -> int:
    """Kick a crew off in each of some threads, at the same time."""
    begin(options)
    found: dict[int, Any] = {}

    def work(number: int, inputs: Any) -> None:
        found[number] = outcome(crew_of(url, options).kickoff(inputs=inputs))

    working = [
        threading.Thread(target=work, args=(number, inputs))
        for number, inputs in enumerate(options["each"])
    ]
    for one in working:
        one.start()
    for one in working:
        one.join()
    tell([found[number] for number in sorted(found)])
    return 0


def tested(url: str, options: dict[str, Any]) -> int:
    """Let CrewAI test the crew."""
    begin(options)
    crew_of(url, options).test(1, eval_llm=apps.model(url), inputs=INPUTS)
    return 0


def trained(url: str, options: dict[str, Any]) -> int:
    """Let CrewAI train the crew; a person finds all of it good."""
    begin(options)
    builtins.input = lambda *_: "good"
    crew_of(url, options).train(1, "trained.pkl", inputs=INPUTS)
    return 0


def replayed(url: str, options: dict[str, Any]) -> int:
    """Kick the crew off, then let CrewAI replay its last task."""
    begin(options)
    crew = crew_of(url, options)
    crew.kickoff(inputs=INPUTS)
    tell(outcome(crew.replay(str(crew.tasks[-1].id))))
    return 0


def beside(url: str, options: dict[str, Any]) -> int:
    """Kick the crew off, and then one without waypoints, twice, in the same process."""
    begin(options)
    crew_of(url, options).kickoff(inputs=INPUTS)
    without = crew_of(url, {**options, "plain": True})
    tell([outcome(without.kickoff(inputs=INPUTS)) for _ in range(2)])
    return 0
