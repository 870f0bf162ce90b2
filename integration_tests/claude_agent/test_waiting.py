"""A person is waited for while something else is still at work."""

# ruff: noqa: E402

from __future__ import annotations

from collections.abc import Callable

from caravanserai import list_runs
from integration_tests.support import require

require("claude_agent_sdk")

from integration_tests.claude_agent.life import Life, waits
from integration_tests.claude_agent.scripts import DONE

Start = Callable[..., Life]


def test_a_subagent_that_ends_behind_the_question_ends_no_run(life: Start) -> None:
    """Its end wakes the model for one more turn, whose end is not that of the run."""
    one = life("waiting", pace=0.3, more={"needs_approval": ["Bash"]})
    one.ended()
    assert one.outside() == {"begin 1": 1, "end 1": 1, "begin 2": 1, "end 2": 1}
    assert [run.status for run in list_runs(store=one.store)] == ["waiting"]
    assert waits(one.ended()), "it waits on"
    assert one.agree(True) == 1
    assert one.ended()["results"][-1]["result"] == DONE
    assert one.outside()["end three"] == 1
    assert one.outside()["end 2"] == 1
