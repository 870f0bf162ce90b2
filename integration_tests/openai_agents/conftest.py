"""What the tests of the adapter share: a process that forks jobs, and undisturbed runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from integration_tests.openai_agents.life import WARMED, Life
from integration_tests.preloaded import Preloaded

Start = Callable[..., Life]


def _script(app: str) -> Any:
    from integration_tests.openai_agents import apps, inner

    return {**apps.SCRIPTS, **inner.SCRIPTS}[app]


@pytest.fixture(scope="session")
def preloaded() -> Iterator[Preloaded]:
    with Preloaded(WARMED) as process:
        yield process


@pytest.fixture
def life(preloaded: Preloaded, tmp_path: Path) -> Iterator[Start]:
    """Return a function that makes a job of an app, with options of `jobs.run` and the server."""
    made: list[Life] = []

    def make(app: str, *, server: dict[str, Any] | None = None, **options: Any) -> Life:
        folder = tmp_path / f"life-{len(made)}"
        script = options.pop("script", None) or _script(app)
        one = Life(preloaded, folder, {"app": app, **options}, script, **(server or {}))
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

    That is its `result`, how many `answers` the model gave to which `bodies`, what was done
    `outside`, the `appends` to its journal, and the `events` of all its starts.
    """
    known: dict[str, dict[str, Any]] = {}

    def run(app: str, **options: Any) -> dict[str, Any]:
        name = repr((app, sorted(options.items())))
        if name not in known:
            folder = tmp_path_factory.mktemp("whole")
            with Life(preloaded, folder, {"app": app, **options}, _script(app)) as one:
                found = one.finished()
                known[name] = {
                    "result": found,
                    "answers": one.asked(),
                    "outside": one.outside(),
                    "appends": one.appends(),
                    "events": one.events(),
                    "bodies": list(one.server.bodies.values()),
                }
        return known[name]

    return run
