"""What never leaves the process: keys to the disk, anything to another machine."""

# ruff: noqa: E402

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from integration_tests.support import require

require("crewai")

from integration_tests.crewai.life import Life
from integration_tests.crewai.offline import ENVIRONMENT_KEY, KEY
from integration_tests.crewai.scripts import SCRIPTS
from integration_tests.openai_agents.scripted import Refused

Start = Callable[..., Life]

HEADER = "hdr-90aa12bb34cc"
SECRETS = {"key": KEY, "environment": ENVIRONMENT_KEY, "header": HEADER}
SHAPED = "sk-proj-7Qm2xT9vLr4Kd8Wn3Bz6Hy1Jc5Fs0Pg7Ua2Ee"
"""A key of the length that keys of OpenAI have, so that it is known as one wherever it stands."""

MODEL = {"api_key": KEY, "default_headers": {"X-Key": HEADER}}
FEW = ("report", "hierarchical", "judged", "planned")


def found_in(folder: Path, secrets: dict[str, str]) -> list[tuple[str, str]]:
    """Return which secrets stand in which files of a folder."""
    files = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    assert files, "there is no file at all"
    return [
        (name, path)
        for path, data in files.items()
        for name, secret in secrets.items()
        if secret.encode() in data
    ]


@pytest.mark.parametrize("app", SCRIPTS)
def test_nothing_of_a_client_reaches_the_disk_and_nothing_leaves_this_machine(
    life: Start, app: str, thorough: bool
) -> None:
    """Neither of a run that was killed nor of the one that went on; all files are looked at."""
    if app not in FEW and not thorough:
        pytest.skip("the other crews are part of --thorough")
    one = life(app, model=MODEL)
    one.killed("append 6 begins")
    one.ended()
    store = one.folder / ".caravanserai"
    assert found_in(store, {"topic": "bees"}), "what is looked for would be found"
    assert found_in(store, SECRETS) == []
    assert one.lines("network.txt") == []


def test_a_refused_key_that_the_server_repeats_stays_out_of_the_store(life: Start) -> None:
    """OpenAI names the key that it refuses, and the error is what the run ended with."""

    def refuses(asked: Any) -> Any:
        raise Refused(f"Incorrect API key provided: {SHAPED}.", 401)

    one = life("report", model={"api_key": SHAPED}, script=refuses)
    said = one.refused()
    assert SHAPED in said
    store = one.folder / ".caravanserai"
    assert found_in(store, {"error": "Incorrect API key provided"}), "the error is told"
    assert found_in(store, {"key": SHAPED}) == []


def test_what_would_leave_this_machine_is_seen(life: Start) -> None:
    """So that the test above can fail."""
    one = life("report")
    one.server.url = "http://nowhere.invalid/v1"
    one.refused()
    assert one.lines("network.txt")
    assert set(one.lines("network.txt")) == {"look up 'nowhere.invalid'"}
