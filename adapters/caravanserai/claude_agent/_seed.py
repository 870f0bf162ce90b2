"""What a session is begun with that goes on from another run, of whatever framework.

It is written down before the session begins, behind what the core keeps of the other run, and in
the same entries as the transcripts: each later session of the run begins with the very same text,
and `transcript` knows without the SDK what of a first prompt was handed over.

The text is part of the first prompt, and not of the system prompt. There it is in the CLI's own
transcript, so that it is there again when the session is resumed, on another machine too, and the
CLI's summary tells of it when the conversation is shortened. And what users and tools said in the
other run has no more weight than what a user says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from caravanserai.claude_agent.retention import ENTRIES, PATH
from caravanserai_core import reading, survey

if TYPE_CHECKING:
    from caravanserai_core.handed import Handoff
    from caravanserai_core.run import Run
    from caravanserai_core.work import Work

ASKED: Final = "\n\nWhat stands above was recorded. This is what you are asked now:\n\n"
"""Stands between that and a person's own prompt."""

SHORT: Final = 9_000
"""Most characters of a text that a hook gives: the CLI puts more than 10,000 into a file, and
shows the model the beginning (2.1.332)."""


class Seed(NamedTuple):
    """What was handed over.

    Attributes:
        prefix: stands in front of the first prompt of a session.
        short: the same, where a hook has to give it.
        source: `run`, `waypoint` and `framework` of the other run.
    """

    prefix: str
    short: str
    source: dict[str, Any]


def seed(run: Run) -> Seed | None:
    """Return what the sessions of a run begin with, None: it goes on from no other run.

    It is written down where it is not yet. A run that branches off one that goes on from another
    has it, too.
    """
    found = _written(run)
    if found is None and run.handoff is not None:
        run.entry(ENTRIES, _data(run.handoff))
        found = _written(run)
    return found


def _written(run: Work) -> Seed | None:
    for record in survey.records(run.store, run.run_id, bodies=True):
        if record.kind == "entry" and record.head.get("name") == ENTRIES:
            data = reading.data_of(record)
            if data["path"] == PATH:
                return Seed(data["prefix"], data["short"], data["source"])
    return None


def _data(handed: Handoff) -> dict[str, Any]:
    return {
        "session": "",
        "path": PATH,
        "entries": [],
        "prefix": handed.render("anthropic").rstrip() + ASKED,
        "short": handed.render("anthropic", max_chars=min(SHORT, handed.max_chars)),
        "source": {
            "run": handed.run_id,
            "waypoint": handed.waypoint,
            "framework": handed.framework,
        },
        "handed": handed.transcript.to_json(),
    }
