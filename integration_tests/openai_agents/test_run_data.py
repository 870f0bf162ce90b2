"""What an exception tells of its run (`run_data`): the same as from the SDK's own runner."""

# ruff: noqa: E402

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from integration_tests.support import require

require("agents")

from integration_tests.api.helpers import forget_everything
from integration_tests.openai_agents import failing
from integration_tests.openai_agents.failing import BUILDS, SCRIPTS
from integration_tests.openai_agents.jobs import TASK
from integration_tests.openai_agents.life import Life
from integration_tests.openai_agents.scripted import ScriptedOpenAI

Start = Callable[..., Life]
BESIDE = "an_input_refused_beside_the_model"


def raised(url: str, build: str, given: Any = TASK, **options: Any) -> dict[str, Any]:
    found: dict[str, Any] = asyncio.run(failing.raised(build, url, given=given, **options))
    if build == BESIDE:  # whether its model has answered by then is chance
        found.pop("requests")
    return found


def of_the_sdk(build: str, given: Any = TASK, *, streams: bool) -> dict[str, Any]:
    with ScriptedOpenAI(SCRIPTS[build]) as server:
        return raised(server.url, build, given, streams=streams, run_id=None)


@pytest.mark.parametrize("given", [TASK, [{"role": "user", "content": TASK}]])
@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("build", BUILDS)
def test_an_exception_tells_what_that_of_the_sdks_runner_tells(
    build: str, streams: bool, given: Any
) -> None:
    """So does that of a second start, which gets what is recorded."""
    wanted = of_the_sdk(build, given, streams=streams)
    with ScriptedOpenAI(SCRIPTS[build]) as server:
        for _ in range(2):
            found = raised(server.url, build, given, streams=streams, run_id="here")
            assert found == wanted
            forget_everything()


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("way", ["run", "stream"])
def test_killed_it_tells_the_same_at_the_end(
    life: Start, build: str, way: str, thorough: bool
) -> None:
    wanted = of_the_sdk(build, streams=way == "stream")
    undisturbed = start(life, build, way)
    undisturbed.ended()
    places = list(dict.fromkeys(undisturbed.appends()))
    for place in random.sample(places, min(len(places), 12 if thorough else 1)):
        one = start(life, build, way)
        one.killed(place)
        unheard = one.asked() - one.recorded()["model"]
        found = one.ended()
        if build == BESIDE:
            found.pop("requests")
        # An answer that was asked for again has other ids.
        alike = without_ids if unheard else lambda told: told
        assert alike(found) == alike(wanted), place
        one.check_store()


def start(life: Start, build: str, way: str) -> Life:
    one = life(build, script=SCRIPTS[build], way=way)
    one.call = f"{failing.__name__}:run"
    return one


def without_ids(told: Any) -> Any:
    if isinstance(told, list):
        return [without_ids(one) for one in told]
    if isinstance(told, dict):
        return {name: without_ids(one) for name, one in told.items() if "id" not in name}
    return None if isinstance(told, str) and told.startswith("resp_") else told
