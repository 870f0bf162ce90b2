"""One crash under CrewAI's own ways to go on, and under ours: what each does again.

Four tasks, each with two look-ups, so twelve requests to the model. The process is killed inside
the second look-up of the third task, behind its effect, when eight are answered. CrewAI's own
ways are measured so that what the documentation says of them is known to hold; where a newer
CrewAI does better, this file says so first.
"""

# ruff: noqa: E402

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from integration_tests.support import require

require("crewai")

from integration_tests.crewai.beside import NAMES, rules
from integration_tests.crewai.offline import ENVIRONMENT_KEY, KEY
from integration_tests.openai_agents.scripted import ScriptedOpenAI
from integration_tests.preloaded import Preloaded

CALL = "integration_tests.crewai.beside:run"
DIES = "end lookup write 2"
"""Where the process is killed."""


class Crash(NamedTuple):
    """What came of a start that was killed and of the one that went on.

    Attributes:
        asked: requests of the second start.
        repeated: look-ups that happened twice.
        keys: files below the folder that hold a key.
    """

    asked: int
    repeated: list[str]
    keys: list[str]


def crash(preloaded: Preloaded, folder: Path, way: str) -> Crash:
    """Kill a start of the crew, go on in that way, and return what that did."""
    with ScriptedOpenAI(rules()) as server:
        options = {"way": way, "place": DIES}
        ended = preloaded.run(CALL, server.url, options, folder=folder, kill_after=60)
        assert ended.killed, ended.out
        assert len(server.asked) == 8
        again = {"way": way, "again": True}
        ended = preloaded.run(CALL, server.url, again, folder=folder, kill_after=60)
        assert ended.code == 0, ended.out
        assert server.errors == []
        asked = len(server.asked) - 8
    assert (folder / "result.txt").read_text() == f"Result of {NAMES[-1]}."
    happened = Counter(
        line.removeprefix("end lookup ")
        for line in (folder / "outside.txt").read_text().splitlines()
        if line.startswith("end lookup ")
    )
    assert set(happened) == {f"{name} {n}" for name in NAMES for n in (1, 2)}
    repeated = sorted(name for name, count in happened.items() if count > 1)
    return Crash(asked, repeated, keys_in(folder))


def keys_in(folder: Path) -> list[str]:
    """Return the files that hold a key in clear."""
    return sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file()
        and any(key.encode() in path.read_bytes() for key in (KEY, ENVIRONMENT_KEY))
    )


def test_with_nothing_all_is_done_again(preloaded: Preloaded, tmp_path: Path) -> None:
    found = crash(preloaded, tmp_path, "nothing")
    assert found.asked == 12
    assert found.repeated == [
        "collect 1",
        "collect 2",
        "sort 1",
        "sort 2",
        "write 1",
        "write 2",
    ]


def test_with_waypoints_only_what_was_cut_off_is_done_again(
    preloaded: Preloaded, tmp_path: Path
) -> None:
    """One answer of the third task and three of the fourth are missing, and are asked for."""
    assert crash(preloaded, tmp_path, "waypoints") == Crash(4, ["write 2"], [])


def test_crewais_replay_does_a_finished_task_again(preloaded: Preloaded, tmp_path: Path) -> None:
    """The task that was cut off cannot be named, so it begins at the one before."""
    found = crash(preloaded, tmp_path, "replay")
    assert found.asked == 9
    assert found.repeated == ["sort 1", "sort 2", "write 1", "write 2"]


def test_crewais_checkpoint_holds_the_key(preloaded: Preloaded, tmp_path: Path) -> None:
    with ScriptedOpenAI(rules()) as server:
        given = {"way": "checkpoint"}
        ended = preloaded.run(CALL, server.url, given, folder=tmp_path, kill_after=60)
        assert ended.code == 0, ended.out
    assert [path for path in keys_in(tmp_path) if path.startswith("checkpoints/")]


def test_crewais_checkpoint_does_the_whole_task_again(
    preloaded: Preloaded, tmp_path: Path, thorough: bool
) -> None:
    """At best: a checkpoint that it fails to write costs another task, hence no exact counts."""
    if not thorough:
        pytest.skip("to go on from a checkpoint takes CrewAI ten seconds")
    found = crash(preloaded, tmp_path, "checkpoint")
    assert found.asked >= 6
    assert {"write 1", "write 2"} <= set(found.repeated)


def test_crewai_writes_no_checkpoint_of_a_tool_that_is_a_function(
    preloaded: Preloaded, tmp_path: Path
) -> None:
    """As `@tool` makes one: the crew goes on, and a line of the log says that nothing is kept."""
    found = crash(preloaded, tmp_path, "function")
    assert found.asked == 12
    assert not list(tmp_path.glob("checkpoints/**/*.json"))


def test_crewais_replay_of_a_crew_with_waypoints_is_crewais(
    preloaded: Preloaded, tmp_path: Path
) -> None:
    """It does its last task again, as without them, and no file of the run is touched."""
    kept: list[dict[str, bytes]] = []
    with ScriptedOpenAI(rules()) as server:
        for again in (False, True):
            options = {"way": "both", "again": again}
            ended = preloaded.run(CALL, server.url, options, folder=tmp_path, kill_after=60)
            assert ended.code == 0, ended.out
            files = (tmp_path / ".caravanserai").rglob("*")
            kept.append({str(path): path.read_bytes() for path in files if path.is_file()})
        assert len(server.asked) == 12 + 3
    assert kept[0]
    assert kept[0] == kept[1]
