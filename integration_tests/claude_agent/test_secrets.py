"""Declared secrets in what a session says and does: never on disk, and never in its way."""

# ruff: noqa: E402

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from integration_tests.support import require

require("claude_agent_sdk")

from claude_agent_sdk import ResultMessage

from caravanserai import declare_secret, open_run
from caravanserai.claude_agent import _entries, _facts
from caravanserai.claude_agent._book import kept_result
from caravanserai.claude_agent._transcripts import Key, Transcripts
from integration_tests.claude_agent.life import Life
from integration_tests.claude_agent.scripts import charge

Start = Callable[..., Life]

SECRET = "Zq7-Pxw9-Kd3m-Vn2b-Lh8t-Rc5y"
NAME = "PARTNER_API_KEY"


def bash(command: str) -> dict[str, Any]:
    return {"call": [["Bash", {"command": command}]]}


def test_a_session_with_a_secret_in_it_leaves_none_in_its_run(life: Start) -> None:
    """In the prompt, in arguments and results, in answers, in a question; cut at any place."""
    script = [
        {**bash(f"echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa {SECRET}"), "say": f"With {SECRET}."},
        charge(1),
        {"say": f"Done with {SECRET}."},
    ]
    one = life("four", script=script, environment={NAME: SECRET}, more={"needs_approval": ["Bash"]})
    one.call = "integration_tests.claude_agent.talking:run"
    one.options |= {"way": "query", "says": [f"Use the key {SECRET} for it."]}
    asked = one.ended()
    assert asked["results"][-1]["stop_reason"] == "tool_deferred"
    from caravanserai import answer

    answer(one.run_id, True, store=one.store)
    one.killed("begin 1")
    found = one.finished()

    assert found["results"][-1]["result"] == f"Done with {SECRET}."
    assert f"Use the key {SECRET} for it." in json.dumps(one.server.bodies[-1])
    for file in (one.folder / ".caravanserai").rglob("*"):
        data = file.read_bytes() if file.is_file() else b""
        for start in range(len(SECRET) - 8):
            assert SECRET[start : start + 9].encode() not in data, (file, start)


@pytest.fixture
def _declared() -> None:
    declare_secret("partner", SECRET)


@pytest.mark.usefixtures("_declared")
def test_nothing_is_cut_in_the_middle_of_a_secret() -> None:
    for before in range(80):
        given = {"command": "a" * before + SECRET + "b" * 50}
        told = [_facts.shown(given), json.dumps(_facts.tool_fact("Bash", given, result=SECRET))]
        for text in told:
            assert SECRET[:6] not in text, (before, text)


@pytest.mark.usefixtures("_declared")
def test_an_entry_that_holds_a_secret_in_another_form_is_kept_without_its_words(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hidden = base64.b64encode(f"user:{SECRET}".encode()).decode()
    entries: list[dict[str, Any]] = [
        {"type": "user", "uuid": "1", "message": {"role": "user", "content": "Hello."}},
        {
            "type": "assistant",
            "uuid": "2",
            "parentUuid": "1",
            "message": {
                "role": "assistant",
                "content": [
                    {"type": "tool_use", "id": "x", "name": "Bash", "input": {"command": hidden}}
                ],
            },
        },
        {
            "type": "user",
            "uuid": "3",
            "parentUuid": "2",
            "message": {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "x", "content": hidden}],
            },
        },
    ]
    with open_run("r", store=tmp_path) as run:
        run.checkpoint({})
        Transcripts(run).keep(Key("s"), entries)
        found = Transcripts(run).read(Key("s"))

    assert found[0] == entries[0]
    assert [entry["uuid"] for entry in found] == ["1", "2", "3"]
    assert [entry.get("parentUuid") for entry in found] == [None, "1", "2"]
    assert next(_entries.calls(found))["id"] == "x"
    assert next(_entries.results(found)).text == _entries.WITHHELD
    assert "a part of the transcript is not kept" in caplog.text
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert hidden.encode() not in written


@pytest.mark.usefixtures("_declared")
def test_a_result_that_holds_a_secret_in_another_form_stops_no_waypoint(tmp_path: Path) -> None:
    message = ResultMessage(
        subtype="success",
        duration_ms=1,
        duration_api_ms=1,
        is_error=False,
        num_turns=1,
        session_id="s",
        result=base64.b64encode(f"user:{SECRET}".encode()).decode(),
    )
    kept = kept_result(message)

    assert kept["result"] == _entries.WITHHELD
    assert kept["num_turns"] == 1
    with open_run("r", store=tmp_path) as run:
        run.checkpoint({"results": {"m1": kept}})
