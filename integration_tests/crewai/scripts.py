"""What the models of the crews say, by app: rules of the scripted server, or a function."""

from __future__ import annotations

import json
import re
from typing import Any

Rules = list[dict[str, Any]]

NAMES = ("research", "draft", "review")


def task(name: str, *calls: list[Any], say: Any = None, said: str | None = None) -> Rules:
    """Return the rules of a task: calls of tools, each list in one answer, then the result.

    Args:
        name: of the task.
        calls: what each answer calls.
        say: the result; by default a text that holds what the last tool gave.
        said: by which text the task is known, other than its own.
    """
    about = {"if_said": said or f"TASK-{name}"}
    rules: Rules = [{**about, "call": one} for one in calls]
    return [*rules, {**about, "say": say or f"Result of {name}, after {{last}}."}]


def look(name: str) -> list[Any]:
    """Return a look-up."""
    return [["lookup", {"key": name}]]


def keep(name: str) -> list[Any]:
    """Return a note."""
    return [["write_down", {"text": name}]]


REPORT: Rules = [rule for name in NAMES for rule in task(name, look(name), keep(name))]


def react(asked: Any) -> str:
    """Do the same in plain text."""
    (name,) = re.findall(r"TASK-(\w+)", asked.said[0])
    turn = sum(text.count("Observation:") for text in asked.said)
    if turn == 2:
        return f"Thought: I know.\nFinal Answer: Result of {name}."
    call, given = (("lookup", {"key": name}), ("write_down", {"text": name}))[turn]
    return f"Thought: I look.\nAction: {call}\nAction Input: {json.dumps(given)}"


def _delegate(name: str) -> list[Any]:
    given = {"task": f"PART-{name}", "context": "All of it.", "coworker": "Writer"}
    return [["delegate_work_to_coworker", given]]


DELEGATED: Rules = [
    rule
    for name in NAMES[:2]
    for rule in [
        *task(f"part of {name}", look(f"part of {name}"), said=f"PART-{name}"),
        *task(name, _delegate(name)),
    ]
]

GUARDED: Rules = [
    *task("research", look("research")),
    *task("draft", look("draft again"), said="it has to be GOOD", say="GOOD draft"),
    *task("draft", look("draft"), say="BAD draft"),
    *task("review", look("review")),
]

_JUDGED = "Task result:\n        "  # as CrewAI tells it to the model that judges

JUDGED: Rules = [
    {"if_said": f"{_JUDGED}BAD", "say": {"valid": False, "feedback": "it has to be GOOD enough"}},
    {"if_said": f"{_JUDGED}GOOD", "say": {"valid": True, "feedback": None}},
    *GUARDED,
]

PLAN = {
    "list_of_plans_per_task": [
        {"task_number": number, "task": name, "plan": f" PLAN of {name}: step by step."}
        for number, name in enumerate(NAMES, 1)
    ]
}

EDITED: Rules = [*task("check", look("check"), keep("check")), *REPORT]
"""For what a program made of the first crew."""

ASKING: Rules = [{"if_said": "make it shorter", "say": "Short draft."}, *REPORT]
"""For a crew whose second task a person looks at."""

RATED = task("review", look("review"), keep("review"), say={"title": "review", "score": 7})
"""For a last task whose result has a type."""

_LESSONS = {"suggestions": ["Be brief."], "quality": 8.5, "final_summary": "Good."}

EVALUATED: Rules = [
    {"if_said": "Task Execution Evaluator", "say": {"quality": 8.5}},
    *REPORT,
    {"say": _LESSONS},
]
"""For a crew that is tested or trained."""

SCRIPTS: dict[str, Any] = {
    "report": REPORT,
    "react": react,
    "parallel": [
        rule
        for name in NAMES
        for rule in task(name, [*look(name), *keep(name), *look(f"{name} too")])
    ],
    "hierarchical": DELEGATED,
    "hole": [
        *task("research", [["slow", {"key": "research"}]]),
        *task("draft", look("draft")),
        *task("review", look("review")),
    ],
    "done": REPORT,
    "left out": REPORT,
    "guarded": GUARDED,
    "judged": JUDGED,
    "structured": [
        rule
        for number, name in enumerate(NAMES)
        for rule in task(name, look(name), say={"title": name, "score": number})
    ],
    "planned": [{"if_said": "Based on these tasks summary", "say": PLAN}, *REPORT],
    "heard": REPORT,
    "class": REPORT,
    "raising": [
        rule for name in NAMES for rule in task(name, [["visit", {"key": name}]], look(name))
    ],
}
