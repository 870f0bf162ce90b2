"""What the tests of the adapter share: a process that forks jobs, and undisturbed runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from integration_tests.claude_agent.life import WARMED, Life
from integration_tests.claude_agent.scripts import ENVIRONMENTS, SCRIPTS
from integration_tests.preloaded import Preloaded

Start = Callable[..., Life]


@pytest.fixture(scope="session")
def preloaded() -> Iterator[Preloaded]:
    with Preloaded(WARMED) as process:
        yield process


@pytest.fixture
def life(preloaded: Preloaded, tmp_path: Path) -> Iterator[Start]:
    """Return a function that makes a job of a script, with options of `jobs.run`."""
    made: list[Life] = []

    def make(name: str, **options: Any) -> Life:
        script = options.pop("script", None) or SCRIPTS[name]
        environment = {**ENVIRONMENTS.get(name, {}), **options.pop("environment", {})}
        one = Life(preloaded, tmp_path / f"life-{len(made)}", options, script, environment)
        made.append(one)
        return one.__enter__()

    yield make
    for one in made:
        one.__exit__()


@pytest.fixture(scope="session")
def whole(
    preloaded: Preloaded, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., dict[str, Any]]:
    """Return a function that says what an undisturbed run comes to; each kind runs once.

    That is its `text`, how often the model was `asked`, what was done `outside`, and the `appends`
    to its journal.
    """
    known: dict[str, dict[str, Any]] = {}

    def run(name: str, **options: Any) -> dict[str, Any]:
        key = repr((name, sorted(options.items())))
        if key not in known:
            folder = tmp_path_factory.mktemp("whole")
            environment = ENVIRONMENTS.get(name)
            with Life(preloaded, folder, options, SCRIPTS[name], environment) as one:
                found = one.finished()
                assert not one.uncertain
                one.check_store(torn=False)
                known[key] = {
                    "text": found["results"][-1]["result"],
                    "asked": one.asked(),
                    "outside": one.outside(),
                    "appends": one.lines("appends.txt"),
                }
        return known[key]

    return run
