"""What the tests of the adapter share: a process that forks jobs, and undisturbed runs."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from integration_tests.crewai.life import WARMED, Life
from integration_tests.crewai.offline import places_of
from integration_tests.crewai.scripts import SCRIPTS
from integration_tests.preloaded import Preloaded

Start = Callable[..., Life]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # CrewAI 1.15.30 never closes the clients of its models: each goes when it is collected, in
    # whatever code that happens.
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"))


@pytest.fixture(scope="module", autouse=True)
def _no_clients_left() -> Iterator[None]:
    """Leave no client to be collected in the tests of another folder."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(autouse=True)
def _own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what CrewAI keeps in the folder of the test."""
    for name, place in places_of(tmp_path).items():
        monkeypatch.setenv(name, place)


@pytest.fixture(scope="session")
def preloaded() -> Iterator[Preloaded]:
    with Preloaded(WARMED, "integration_tests.crewai.beside") as process:
        yield process


@pytest.fixture
def life(preloaded: Preloaded, tmp_path: Path) -> Iterator[Start]:
    """Return a function that makes a job of an app, with options of `jobs.run`."""
    made: list[Life] = []

    def make(app: str, **options: Any) -> Life:
        folder = tmp_path / f"life-{len(made)}"
        script = options.pop("script", None) or SCRIPTS[app]
        one = Life(preloaded, folder, {"app": app, **options}, script)
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

    That is its `result`, how many `answers` the model gave, what was done `outside`, the
    `appends` to its journal, and the `files` that its tasks wrote.
    """
    known: dict[str, dict[str, Any]] = {}

    def run(app: str, **options: Any) -> dict[str, Any]:
        name = repr((app, sorted(options.items())))
        if name not in known:
            folder = tmp_path_factory.mktemp("whole")
            with Life(preloaded, folder, {"app": app, **options}, SCRIPTS[app]) as one:
                found = one.ended()
                known[name] = {
                    "result": found,
                    "answers": one.asked(),
                    "outside": one.outside(),
                    "appends": one.lines("appends.txt"),
                    "files": one.files(),
                }
        return known[name]

    return run
