"""What a checkpoint of LangGraph tells: which nodes ran, what they added, what comes next.

A saver is given no graph and no node names. What ran stands in the paths of the tasks whose
writes lead to the checkpoint, what comes in its channels (langgraph 1.2.24):

* `branch:to:X` holds a value: node X runs next.
* `join:A+B:X` holds the names of A and B: node X runs next.
* `__pregel_tasks` holds one `Send` for each task that is pushed.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from caravanserai.langchain.transcript import HANDED
from caravanserai.langgraph._invocations import NULL_TASK
from caravanserai.langgraph._words import (
    given_text,
    message_text,
    messages_given,
    messages_in,
    text_of,
    value_text,
)
from caravanserai_core.errors import WaitingForPerson
from caravanserai_core.notes import Note
from caravanserai_core.quoting import code, code_name, quoted
from caravanserai_core.words import call_text, counted, listed, quote, sentence, shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TypeVar

    T = TypeVar("T")

_log = logging.getLogger("caravanserai")

_SO_FAR: Final = 6

_TOGETHER: Final = 300
"""Characters; what tasks did is told in one paragraph up to here."""

_BEGAN: Final = "The graph began."

_MOST_NODES: Final = 12
"""Tasks of one step that are told one by one."""

_PULL: Final = re.compile(r"~?__pregel_pull, (.+)", re.DOTALL)
_PUSH: Final = re.compile(r"~?__pregel_push, (\d{10})(?:, |$)")
_CALL: Final = re.compile(r"~?__pregel_push, ~?")

_QUESTION: Final = re.compile(r"q\d+")
"""The name of an answer's line: its question."""

# Channels of LangGraph itself; what is written there is no news of the run.
_OWN: Final = ("branch:to:", "join:", "__")


PLACES: Final = {"__error__": -1, "__scheduled__": -2, "__interrupt__": -3, "__resume__": -4}
"""Channels with places of their own: langgraph.checkpoint.base.WRITES_IDX_MAP (4.3)."""


class Write(NamedTuple):
    """One pending write of a task.

    Attributes:
        task: id of the task.
        path: where the task stands in its step; names the node.
        place: its number among the writes of the task; below 0 for LangGraph's own.
        channel: the channel it goes to.
        value: what is written.
        schema: the schema of the program that wrote it.
    """

    task: str
    path: str
    place: int
    channel: str
    value: Any
    schema: int = 1


class Step(NamedTuple):
    """What a note is made of.

    Attributes:
        source: input, loop, update or fork.
        values: channel values.
        versions: channel versions.
        seen: versions that each node has seen.
        seen_before: versions that they had seen before, where that is known.
        done: what the tasks that led here did, a line each.
        ns: checkpoint namespace; "" where it is not of a subgraph.
        taken_up: the checkpoint before was written by another process, and its nodes run now.
        branch: number of the waypoint that it goes on from, where that is not the newest; else 0.
        ran: how many tasks led here; the other lines tell what people answered.
    """

    source: str
    values: Mapping[str, Any]
    versions: Mapping[str, Any]
    seen: Mapping[str, Mapping[str, Any]]
    seen_before: Mapping[str, Mapping[str, Any]]
    done: list[str]
    ns: str = ""
    taken_up: bool = False
    branch: int = 0
    ran: int = 0


def untold(tell: Callable[[], T], instead: T) -> T:
    """Tell something, or `instead`: values are of any kind, and a note must not stop a graph."""
    try:
        return tell()
    except Exception:  # noqa: BLE001 - whatever a value's own code raises
        _log.debug("a note of LangGraph could not be made", exc_info=True)
        return instead


# ---------------------------------------------------------------------- what comes next


def upcoming(values: Mapping[str, Any], versions: Mapping[str, Any], seen: Any) -> list[str]:
    """Return the nodes that run next, in the order of their channels; a Send counts each time."""
    found: list[str] = []
    for channel, value in values.items():
        if channel.startswith("branch:to:"):
            node = channel[len("branch:to:") :]
        elif channel.startswith("join:"):
            node = channel.rpartition(":")[2]
            names, node = _barrier(channel), node
            done = value[0] if isinstance(value, tuple) and len(value) == 2 else value
            if not isinstance(done, (set, frozenset, list)) or "+".join(sorted(done)) != names:
                continue
        else:
            continue
        version = versions.get(channel)
        if version is not None and _newer(version, seen.get(node, {}).get(channel)):
            found.append(node)
    tasks = values.get("__pregel_tasks")
    if isinstance(tasks, Sequence):
        found.extend(str(task.node) for task in tasks if hasattr(task, "node"))
    return found


def pushed_calls(tasks: Any) -> list[str]:
    """Show the tool calls among pushed tasks as code."""
    found: list[str] = []
    for task in tasks if isinstance(tasks, Sequence) else ():
        call = getattr(task, "arg", None)
        if isinstance(call, Mapping) and isinstance(call.get("tool_call"), Mapping):
            call = call["tool_call"]  # with the state beside it
        if isinstance(call, Mapping) and {"name", "args", "id"} <= call.keys():
            found.append(call_text(call["name"], call["args"] or {}))
    return found


def _barrier(channel: str) -> str:
    names = channel[len("join:") :].rpartition(":")[0]
    return "+".join(sorted(names.split("+")))


def _newer(version: Any, seen: Any) -> bool:
    try:
        return seen is None or version > seen
    except TypeError:  # versions of two kinds: a thread that another saver began
        return True


# ---------------------------------------------------------------------- what ran


def node_of(write_path: str, tasks: Any) -> str:
    """Return the node of a task from its path; "" where it does not tell."""
    pull = _PULL.fullmatch(write_path)
    if pull:
        return pull[1]
    push = _PUSH.match(write_path)
    if push and isinstance(tasks, Sequence):
        index = int(push[1])
        if index < len(tasks) and hasattr(tasks[index], "node"):
            return str(tasks[index].node)
    return ""


def task_lines(writes: Iterable[Write], tasks: Any) -> dict[str, tuple[str, str]]:
    """Tell what tasks did: the path and the line of each by its id; "" where it is not over."""
    found: dict[str, list[Write]] = {}
    for write in writes:
        found.setdefault(write.task, []).append(write)
    return {
        task: (own[0].path, _task_line(node_of(own[0].path, tasks), own))
        for task, own in found.items()
    }


def in_order(lines: Iterable[tuple[str, str]]) -> list[str]:
    """Return the lines of tasks in the order in which LangGraph applies what they wrote."""
    # An answer, which has no path, comes first; the tasks of a flow come before the flow itself.
    ordered = sorted(lines, key=lambda item: (bool(item[0]) and not _CALL.match(item[0]), item[0]))
    told = [line for _, line in ordered if line]
    if len(told) > _MOST_NODES:
        more = len(told) - _MOST_NODES
        told = [*told[:_MOST_NODES], f"and {more} more tasks of the same step."]
    return told


def tasks_in(lines: Mapping[str, tuple[str, str]]) -> int:
    """Return how many of the lines that `in_order` takes tell a task, and no answer."""
    tasks = (name for name, (_, line) in lines.items() if line and name != NULL_TASK)
    return sum(not _QUESTION.fullmatch(name) for name in tasks)


def _task_line(node: str, writes: list[Write]) -> str:
    if writes[0].task == NULL_TASK:
        # None takes an answer back: nothing that a person said.
        given = (write.value for write in writes if write.channel == "__resume__")
        answers = [value for value in given if value is not None]
        return sentence(f"A person answered: {value_text(answers[-1])}") if answers else ""
    if node == "__start__":
        return _BEGAN
    if all(write.channel in ("__interrupt__", "__resume__") for write in writes):
        return ""
    who = f"Node {code_name(node)}" if node else _called(writes[0].path)
    told: list[str] = []
    values: list[str] = []
    for write in writes:
        if write.place < 0 or write.channel.startswith(_OWN):
            continue
        messages = messages_in(write.value) or (
            messages_given(write.value) if write.channel == "messages" else []
        )
        if messages:
            told.append(listed([message_text(message) for message in messages]))
        else:
            value = write.value.value if _is_overwrite(write.value) else write.value
            values.append(f"{code_name(write.channel)} = {value_text(value)}")
    if values:
        told.append(f"wrote {listed(values)}")
    ends = ("__return__", "__end__")
    told.extend(f"returned {value_text(w.value)}" for w in writes if w.channel in ends)
    sends = [w.value for w in writes if w.channel == "__pregel_tasks" and hasattr(w.value, "node")]
    if sends and not any("called" in part for part in told):
        told.append(f"started {counted(str(send.node) for send in sends)}")
    went_on = any(write.place >= 0 for write in writes)
    if not went_on and any(write.channel == "__error__" for write in writes):
        told.append(f"failed: {_error_text(writes)}")
    return sentence(f"{who} {listed(told)}") if told else f"{who} ran and changed nothing."


def _called(path: str) -> str:
    return "A task" if _CALL.match(path) else "A step"


def _is_overwrite(value: object) -> bool:
    return type(value).__name__ == "Overwrite" and hasattr(value, "value")


def _error_text(writes: Iterable[Write]) -> str:
    for write in writes:
        if write.channel == "__error__":
            value = write.value
            told = f"{type(value).__name__}: {value}" if isinstance(value, BaseException) else value
            return quoted(str(told))
    return "an error"


# ---------------------------------------------------------------------- the note


def note_of(step: Step, so_far: Iterable[str], goal: str | None) -> tuple[Note, list[str]]:
    """Tell a checkpoint.

    Args:
        step: what is known of it.
        so_far: what earlier checkpoints of the lane told.
        goal: what the run is for.

    Returns:
        The note, and the lines that it adds to "so far".
    """
    nodes = upcoming(step.values, step.versions, step.seen)
    done = step.done
    if step.source == "input":
        lines = [_input_line(step)]
    elif step.source == "update":
        changed = [line for line in done if "changed nothing" not in line]
        lines = [
            "The state was changed by hand (`update_state`)."
            if not changed
            else "The state was changed by hand (`update_state`): " + " ".join(changed)
        ]
    elif step.source == "fork":
        origin = f"waypoint {step.branch}" if step.branch else "an earlier checkpoint"
        lines = [f"The run branches off here, from {origin}."]
    else:
        lines = done or [_ran_line(step)]
    begins = "**Resumed by another process.** " if step.taken_up else ""
    if step.branch and step.source != "fork":
        begins = f"**Branched off from waypoint {step.branch}.** "
    together = " ".join(lines)
    short = len(lines) == 1 or (len(lines) == 2 and len(together) <= _TOGETHER)
    story = together if short else f"{step.ran} tasks ran in one step."
    if not short and step.ran < 2:
        story = lines[-1]  # the answers that it got come first
    note = Note(
        f"{begins}{inside(step.ns, story)}",
        happened=() if short else lines,
        next=_next_lines(step, nodes),
        so_far=list(so_far)[-_SO_FAR:],
        goal=goal,
    )
    return note, [shortened(line) for line in lines if line != _BEGAN]


def inside(ns: str, story: str) -> str:
    """Say first which subgraph a story is about, if it is about one."""
    nodes = [part.partition(":")[0] for part in ns.split("|") if part]
    if not nodes:
        return story
    return f"Inside {' → '.join(code(node) for node in nodes)}, {story[:1].lower()}{story[1:]}"


def _next_lines(step: Step, nodes: list[str]) -> list[str]:
    if nodes:
        who = f"{'Node' if len(set(nodes)) == 1 else 'Nodes'} {counted(nodes)}"
        calls = pushed_calls(step.values.get("__pregel_tasks"))
        return [f"{who}: {listed(calls)}." if calls else f"{who}."]
    if step.source == "input" or "__start__" in step.values:
        return [f"The {'subgraph' if step.ns else 'graph'} begins."]
    if step.source != "loop":
        return []
    return [f"Nothing: the {'subgraph' if step.ns else 'graph'} has come to its end."]


def _input_line(step: Step) -> str:
    value = step.values.get("__start__")
    parts: list[str] = []
    if isinstance(value, Mapping):
        for key, item in value.items():
            told = messages_given(item)
            said = listed(_given(told))
            parts.append(said or f"{code(str(key))} = {value_text(item)}")
    who = "subgraph" if step.ns else "run"
    return sentence(f"The {who} was given its input: {listed(parts) or value_text(value)}")


def _given(messages: list[Any]) -> list[str]:
    """Tell the messages of an input; those of another run, which is told elsewhere, by number."""
    kwargs = [getattr(message, "additional_kwargs", None) for message in messages]
    if HANDED not in kwargs:
        return [given_text(message) for message in messages]
    count = kwargs.index(HANDED)
    what = "one message" if count == 1 else f"{count} messages"
    own = [given_text(message) for message in messages[count + 1 :]]
    return [f"{what} of the run that it goes on from", "one that tells the rest of it", *own]


def _ran_line(step: Step) -> str:
    """Tell which nodes ran from the versions they have seen: what they wrote is not known."""
    ran = [
        node
        for node, versions in step.seen.items()
        if not node.startswith("__") and versions != step.seen_before.get(node)
    ]
    return f"Node {counted(ran)} ran." if ran else "A step of the graph ran."


def goal_of(value: Any) -> str | None:
    """Return what a thread is for: the first text that the user gave it, quoted."""
    if isinstance(value, str):
        return quoted(value, 300)
    for item in value.values() if isinstance(value, Mapping) else ():
        for message in messages_given(item):
            if message.type == "human":
                return quoted(text_of(message.content), 300)
    return None


def questions(writes: Iterable[Write]) -> list[Write]:
    """Return the interrupts that wait for an answer: the last of each task."""
    found: dict[str, Write] = {}
    for write in writes:
        if write.channel == "__interrupt__":
            found[write.task] = write
        elif write.place >= 0:
            found.pop(write.task, None)  # it went on, and finished
    return list(found.values())


class Stop(NamedTuple):
    """Where a step of the graph stopped, for a question or an error.

    Attributes:
        writes: what the tasks of the step wrote.
        lines: what those that are over did, a line each; nothing of those that stopped.
        tasks: the pushed tasks of the checkpoint, to name their nodes.
        so_far: what earlier checkpoints of the lane told.
        ns: checkpoint namespace.
        goal: what the run is for.
    """

    writes: Sequence[Write]
    lines: list[str]
    tasks: Any
    so_far: Iterable[str]
    ns: str
    goal: str | None

    def note(self, summary: str, next_: Iterable[str]) -> Note:
        """Build the note."""
        return Note(
            summary,
            happened=self.lines,
            next=next_,
            so_far=list(self.so_far)[-_SO_FAR:],
            goal=self.goal,
        )


def stopped_line(record_note: Any, asked: Iterable[str] = ()) -> str:
    """Return the line of a pause or an error for "so far".

    Args:
        record_note: its note as JSON.
        asked: what is asked, the text of each question.
    """
    summary = record_note.get("summary", "") if isinstance(record_note, dict) else str(record_note)
    told = summary.partition(". The run can wait")[0].replace("**", "").rstrip(":.")
    texts = [quote(text.strip("\n").partition("\n")[0]) for text in asked]
    return shortened(sentence(f"{told}: {listed(texts)}" if texts else told))


_BOLD: Final = re.compile(r"^\*\*[^*]+\*\* ")


def lines_of(record_note: Any) -> list[str]:
    """Return what a waypoint's note says of what ran, as lines for "so far"."""
    if not isinstance(record_note, dict):
        return [str(record_note)] if record_note else []
    before = [str(line) for line in record_note.get("so_far", ())]
    own = record_note.get("happened") or [_BOLD.sub("", record_note.get("summary", ""))]
    return [*before, *(shortened(str(line)) for line in own)]


def pause_note(stop: Stop) -> Note:
    """Tell where a graph waits; what it asks stands in the sections of all notes."""
    waiting = questions(stop.writes)
    nodes = [node for write in waiting if (node := node_of(write.path, stop.tasks))]
    who = (
        f"{'Node' if len(set(nodes)) == 1 else 'Nodes'} {counted(nodes)}" if nodes else "The graph"
    )
    one = len(waiting) < 2
    story = (
        f"{who} {'stopped and asks before it goes' if one else 'stopped and ask before they go'}"
    )
    does = "it does" if one else "they do"
    again = (
        f"{who} {'starts' if one else 'start'} again **from the first line**: what {does} before "
        f"the question, {does} twice."
    )
    return stop.note(
        f"{inside(stop.ns, story)} on. The run can wait as long as you like; no process has to "
        "stay alive.",
        ["A person answers.", again],
    )


def error_note(stop: Stop) -> Note:
    """Tell that a node raised, and how to go on."""
    failed = [write for write in stop.writes if write.channel == "__error__"][-1:]
    node = node_of(failed[0].path, stop.tasks) if failed else ""
    who = f"Node {code_name(node)}" if node else "A task"
    if failed and isinstance(failed[0].value, WaitingForPerson):
        return stop.note(
            f"{inside(stop.ns, who)} stopped and waits for a person. No process has to stay alive.",
            ["A person answers.", f"{who} runs again; steps under `once` return what they did."],
        )
    # Of a node that was sent several tasks the others are over.
    only = ", for that task alone" if any(t.startswith(f"{who} ") for t in stop.lines) else ""
    return stop.note(
        f"**{inside(stop.ns, who)} failed:** {_error_text(failed)}.",
        [f"{who} runs again{only}: invoke the graph with `None`, or start the job as before."],
    )
