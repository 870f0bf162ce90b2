"""What each adapter promises, and what of it is installed here: the table of `caravanserai doctor`.

The promises are the tests of `caravanserai_core.testing.AdapterTests`, which every adapter passes;
a test compares the two.
"""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version
from typing import Final, NamedTuple

__all__ = ["ADAPTERS", "PROMISES", "Adapter", "Found", "found", "installed"]

PROMISES: Final[dict[str, str]] = {
    "test_a_finished_job_returns_its_result_and_does_nothing": "a finished job returns its "
    "recorded result and does no work",
    "test_a_killed_job_goes_on_and_repeats_no_finished_step": "a job killed at any moment goes "
    "on, and no finished step runs twice",
    "test_an_effect_that_did_not_report_is_named_and_not_repeated_unasked": "an effect that "
    "began and did not report is named, and never repeated unasked",
    "test_a_person_answers_from_elsewhere_after_three_restarts": "a question waits, and is "
    "answered from another process, once",
    "test_a_no_takes_the_other_branch_alone": "a no is a no: the other branch alone runs",
    "test_every_waypoint_stays_what_it_was": "every waypoint stays what it was",
    "test_a_fork_goes_on_and_leaves_its_parent": "any waypoint can be forked; its run is not "
    "touched",
    "test_old_state_goes_on_in_new_code": "old states load in new code, by migrations, or are "
    "refused",
    "test_a_declared_secret_reaches_no_file": "a declared secret reaches no file",
    "test_a_killed_job_is_handed_to_a_program_without_its_framework": "a killed job is handed "
    "over to a program without its framework",
    "test_a_job_goes_on_from_a_run_of_another_kind": "a job goes on from a run of another "
    "framework, and repeats none of its steps",
    "test_notes_have_the_sections_of_all_notes": "notes have the same sections in the same order",
}
"""By the name of its test each promise, as a clause."""


class Adapter(NamedTuple):
    """An adapter.

    Attributes:
        name: as journals have it.
        title: what people call its framework.
        distribution: the framework's, "" where there is none.
        extra: what is installed for it: `pip install "caravanserai[extra]"`.
        entry: the line that begins a job.
    """

    name: str
    title: str
    distribution: str
    extra: str
    entry: str


ADAPTERS: Final = (
    Adapter("python", "plain Python", "", "", "@resumable"),
    Adapter(
        "langgraph", "LangGraph", "langgraph", "langgraph", "caravanserai.langgraph.resumable_graph"
    ),
    Adapter(
        "openai-agents",
        "OpenAI Agents SDK",
        "openai-agents",
        "openai-agents",
        "caravanserai.openai_agents.Runner",
    ),
    Adapter("crewai", "CrewAI", "crewai", "crewai", "caravanserai.crewai.waypoints"),
    Adapter(
        "claude-agent",
        "Claude Agent SDK",
        "claude-agent-sdk",
        "claude-agent",
        "caravanserai.claude_agent.resumable_query",
    ),
)
"""Those that pass all of `AdapterTests`."""


class Found(NamedTuple):
    """An adapter as it is here.

    Attributes:
        adapter: which.
        version: that of its framework, None: it is not installed, or there is none.
        wanted: the versions that the adapter is made for, as in a requirement, or "".
        fits: whether the version is one of those; None: nobody can tell here.
    """

    adapter: Adapter
    version: str | None
    wanted: str
    fits: bool | None


def found() -> list[Found]:
    """Return what is installed; no framework is imported."""
    return [_found(adapter) for adapter in ADAPTERS]


_REQUIREMENT: Final = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?\s*([^;\s][^;]*)?")


def installed(distribution: str) -> str | None:
    """Return the version of a distribution, or None."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _found(adapter: Adapter) -> Found:
    if not adapter.distribution:
        return Found(adapter, None, "", None)
    wanted = _wanted(adapter.distribution)
    here = installed(adapter.distribution)
    return Found(adapter, here, wanted, None if here is None else _fits(here, wanted))


def _wanted(distribution: str) -> str:
    """Return the versions of a framework that this package is made for, by its own metadata."""
    from importlib.metadata import requires

    try:
        lines = requires("caravanserai") or []
    except PackageNotFoundError:
        return ""
    for line in lines:
        match = _REQUIREMENT.match(line)
        if match and match[1].lower().replace("_", "-") == distribution and match[2]:
            parts = sorted(part.strip() for part in match[2].split(","))
            return ",".join(reversed(parts))  # the lower end first
    return ""


def _fits(here: str, wanted: str) -> bool | None:
    """Say whether a version is in a range of the form `>=1.2,<2`; None: it has another form."""
    for part in wanted.split(",") if wanted else ():
        low = part.startswith(">=")
        bound = part.removeprefix(">=") if low else part.removeprefix("<")
        if not low and not part.startswith("<"):
            return None
        one, other = _numbers(here), _numbers(bound)
        if one is None or other is None:
            return None
        if (one < other) if low else (one >= other):
            return False
    return True if wanted else None


def _numbers(text: str) -> tuple[int, ...] | None:
    parts = []
    for part in text.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        parts.append(int(digits))
    return tuple(parts) or None
