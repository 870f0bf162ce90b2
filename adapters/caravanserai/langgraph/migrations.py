"""Steps from one version of a graph to the next, for threads that are in flight.

    from caravanserai.langgraph.migrations import rename_channel, rename_node, step

    saver = WaypointSaver(schema=2, migrations=[
        step(rename_channel("topic", "subject"), rename_node("write", "draft")),
    ])

What a thread holds stays as it is. It goes through the steps whenever it is read.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from caravanserai.langgraph._notes import Write
from caravanserai.langgraph._renaming import Around, Renaming, renamed_send

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "Step",
    "ThreadState",
    "Write",
    "add_channel",
    "change_channel",
    "remove_channel",
    "rename_channel",
    "rename_node",
    "step",
]

_INPUT: Final = "__start__"
_TASKS: Final = "__pregel_tasks"
_INTERRUPT: Final = "__interrupt__"
_FAILED: Final = "__error_source_node__"


@dataclass
class ThreadState:
    """One checkpoint of a thread with its pending writes; a step changes it and returns it.

    The thread's first checkpoint holds the input alone, under `__start__`, and so does what a
    job was given: a step must not expect any channel.

    Attributes:
        ns: checkpoint namespace: `""`, or `node:id` for a subgraph of `node`, joined by `|`.
        channel_values: values by channel, LangGraph's own channels among them.
        channel_versions: versions by channel; a channel without one is lost.
        versions_seen: by node the versions of what triggered it.
        updated_channels: what the step before it changed, sorted; None where that is not known.
        writes: what tasks of the step behind it wrote, in LangGraph's order.
        since_snapshot: by `DeltaChannel` how long ago a checkpoint held its value.
    """

    ns: str
    channel_values: dict[str, Any]
    channel_versions: dict[str, Any] = field(default_factory=dict)
    versions_seen: dict[str, dict[str, Any]] = field(default_factory=dict)
    updated_channels: list[str] | None = None
    writes: list[Write] = field(default_factory=list)
    since_snapshot: dict[str, Any] = field(default_factory=dict)
    _around: Around = field(default_factory=Around, repr=False)

    @property
    def graph(self) -> str:
        """The graph: `""` for the outermost, else the nodes that hold it, as in `"a|b"`."""
        parts = (part.partition(":")[0] for part in self.ns.split("|"))
        return "|".join(part for part in parts if not part.isdecimal())

    # ------------------------------------------------------------------ channels

    def rename_channel(self, old: str, new: str) -> None:
        """Give a channel another name, with its versions, its pending writes and in the input.

        Raises:
            SchemaMismatch: the channel triggers a task that is not to be found again.
        """
        self._rename({}, {old: new}, {})
        given = self.channel_values.get(_INPUT)
        if isinstance(given, dict) and old in given:
            self.channel_values[_INPUT] = {new if k == old else k: v for k, v in given.items()}

    def remove_channel(self, name: str) -> None:
        """Take a channel away, with what was written to it."""
        for found in (self.channel_values, self.channel_versions, self.since_snapshot):
            found.pop(name, None)
        for seen in self.versions_seen.values():
            seen.pop(name, None)
        if self.updated_channels is not None:
            self.updated_channels = [c for c in self.updated_channels if c != name]
        self.writes = [write for write in self.writes if write.channel != name]
        given = self.channel_values.get(_INPUT)
        if isinstance(given, dict) and name in given:
            self.channel_values[_INPUT] = {k: v for k, v in given.items() if k != name}

    def add_channel(self, name: str, value: Any) -> None:
        """Give a new channel its value; one that is there already keeps its own.

        Where the thread has not gone beyond its input, it is as if that had held it. What a job
        was given is compared with what it is given today, and stays.
        """
        if self.channel_versions.keys() <= {_INPUT}:
            given = self.channel_values.get(_INPUT)
            if self.channel_versions and isinstance(given, dict) and name not in given:
                self.channel_values[_INPUT] = {**given, name: copy.deepcopy(value)}
            return
        if name in self.channel_versions:
            return
        # As old as the newest: nothing is triggered by it, and no node has missed it.
        version = max(self.channel_versions.values())
        self.channel_values[name] = copy.deepcopy(value)
        self.channel_versions[name] = version
        if _INTERRUPT in self.versions_seen:
            self.versions_seen[_INTERRUPT][name] = version

    def change_channel(
        self,
        name: str,
        change: Callable[[Any], Any],
        write: Callable[[Any], Any] | None = None,
    ) -> None:
        """Change the value of a channel, and what was written to it, here and in the input.

        Args:
            name: the channel.
            change: returns the new value for an old one.
            write: the same for what a node wrote; by default `change`.
        """
        wrote = write or change
        if name in self.channel_values:
            self.channel_values[name] = _inside(change, self.channel_values[name])
        self.writes = [
            w._replace(value=_inside(wrote, w.value)) if w.channel == name else w
            for w in self.writes
        ]
        given = self.channel_values.get(_INPUT)
        if isinstance(given, dict) and name in given:
            self.channel_values[_INPUT] = {**given, name: _inside(wrote, given[name])}

    # ------------------------------------------------------------------ nodes

    def rename_node(self, old: str, new: str) -> None:
        """Give a node another name wherever the thread stands, also in the midst of a step.

        Raises:
            SchemaMismatch: a subgraph is at work in it, or a task is not to be found again.
        """
        handler = "__error_handler__"
        nodes = {old: new, f"{handler}{old}": f"{handler}{new}"}
        channels = {c: named for c in self._channels() if (named := _leading(c, nodes)) != c}
        # A join that nothing was written to yet is unknown here, and stands in no checkpoint.
        self._rename(nodes, channels, {old: new})

    # ------------------------------------------------------------------ within

    def _channels(self) -> Iterator[str]:
        """Yield the channels that are known, some more than once."""
        yield from self.channel_values
        yield from self.channel_versions
        for seen in self.versions_seen.values():
            yield from seen
        yield from self.updated_channels or ()
        yield from (write.channel for write in self.writes)

    def _rename(
        self, nodes: Mapping[str, str], channels: Mapping[str, str], arrived: Mapping[str, str]
    ) -> None:
        """Rename nodes and channels.

        Args:
            nodes: new names of nodes by their old ones.
            channels: the same for channels.
            arrived: the same for what stands in a join: the nodes that it has seen.
        """
        sends = self.channel_values.get(_TASKS)
        self.writes = Renaming(self.ns, self._around, nodes, channels).tasks(
            self.writes, sends, self.versions_seen, set(self._channels())
        )
        values: dict[str, Any] = {}
        for name, value in self.channel_values.items():
            held = _arrived(value, arrived) if name.startswith("join:") else value
            values[channels.get(name, name)] = held
        if isinstance(sends, list):
            values[_TASKS] = [renamed_send(send, nodes) for send in sends]
        self.channel_values = values
        self.channel_versions = _keys(self.channel_versions, channels)
        self.since_snapshot = _keys(self.since_snapshot, channels)
        self.versions_seen = {
            nodes.get(node, node): _keys(seen, channels)
            for node, seen in self.versions_seen.items()
        }
        if self.updated_channels is not None:
            self.updated_channels = sorted(channels.get(c, c) for c in self.updated_channels)
        self.writes = [self._renamed(w, nodes, channels, arrived) for w in self.writes]

    @staticmethod
    def _renamed(
        write: Write,
        nodes: Mapping[str, str],
        channels: Mapping[str, str],
        arrived: Mapping[str, str],
    ) -> Write:
        value = write.value
        if write.channel == _TASKS:
            value = renamed_send(value, nodes)
        elif write.channel == _FAILED:
            value = nodes.get(value, value)
        elif write.channel.startswith("join:"):
            value = arrived.get(value, value)
        return write._replace(channel=channels.get(write.channel, write.channel), value=value)


Step = Callable[[ThreadState], ThreadState]
"""A step from one schema to the next: it is given each checkpoint of a thread and returns it."""


def rename_channel(old: str, new: str, *, inside: str | None = "") -> Step:
    """Make a step that gives a channel another name; see `ThreadState.rename_channel`.

    Args:
        old: its name.
        new: its new name.
        inside: the graph: the outermost, or that of a node, as in `"research"` and
            `"research|fetch"`; None: every graph of the thread.
    """
    return _made(
        f"rename_channel({old!r}, {new!r})", inside, lambda state: state.rename_channel(old, new)
    )


def remove_channel(name: str, *, inside: str | None = "") -> Step:
    """Make a step that takes a channel away.

    Args:
        name: the channel.
        inside: see `rename_channel`.
    """
    return _made(f"remove_channel({name!r})", inside, lambda state: state.remove_channel(name))


def add_channel(name: str, value: Any, *, inside: str | None = "") -> Step:
    """Make a step that gives a new channel its value; see `ThreadState.add_channel`.

    Args:
        name: the channel.
        value: copied for each checkpoint.
        inside: see `rename_channel`.
    """
    return _made(f"add_channel({name!r})", inside, lambda state: state.add_channel(name, value))


def change_channel(
    name: str,
    change: Callable[[Any], Any],
    *,
    write: Callable[[Any], Any] | None = None,
    inside: str | None = "",
) -> Step:
    """Make a step that changes the value of a channel; see `ThreadState.change_channel`.

    Args:
        name: the channel.
        change: returns the new value for an old one. An object that no longer fits its class
            comes as a `caravanserai_core.codec.Unfit`.
        write: the same for what a node wrote and for the input, where a channel gathers what is
            written; by default `change`.
        inside: see `rename_channel`.
    """
    return _made(
        f"change_channel({name!r})", inside, lambda state: state.change_channel(name, change, write)
    )


def rename_node(old: str, new: str, *, inside: str | None = "") -> Step:
    """Make a step that gives a node another name; see `ThreadState.rename_node`.

    Args:
        old: its name.
        new: its new name.
        inside: see `rename_channel`.
    """
    return _made(
        f"rename_node({old!r}, {new!r})", inside, lambda state: state.rename_node(old, new)
    )


def step(*steps: Step) -> Step:
    """Make one step of several, which come one after the other."""

    def together(state: ThreadState) -> ThreadState:
        for one in steps:
            state = one(state)
        return state

    together.__qualname__ = f"step({', '.join(_named(one) for one in steps)})"
    return together


def _named(one: Step) -> str:
    return str(getattr(one, "__qualname__", None) or type(one).__qualname__)


def _made(name: str, inside: str | None, change: Callable[[ThreadState], None]) -> Step:
    def made(state: ThreadState) -> ThreadState:
        if inside is None or state.graph == inside:
            change(state)
        return state

    made.__qualname__ = name
    return made


def _keys(found: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(name, name): value for name, value in found.items()}


def _leading(channel: str, nodes: Mapping[str, str]) -> str:
    """Return the name of a channel that leads to a node, or waits for some, under new names."""
    if channel.startswith("branch:to:"):
        node = channel[len("branch:to:") :]
        return f"branch:to:{nodes.get(node, node)}"
    if channel.startswith("join:"):
        starts, _, end = channel[len("join:") :].rpartition(":")
        before = "+".join(nodes.get(start, start) for start in starts.split("+"))
        return f"join:{before}:{nodes.get(end, end)}"
    return channel


def _arrived(value: Any, nodes: Mapping[str, str]) -> Any:
    """Return what a join holds: the nodes it has seen, with a flag where it is deferred."""
    if isinstance(value, tuple):
        return (_arrived(value[0], nodes), *value[1:])
    if isinstance(value, (set, frozenset, list)):
        return type(value)(nodes.get(node, node) for node in value)
    return value


def _inside(change: Callable[[Any], Any], value: Any) -> Any:
    """Change a value in what LangGraph wraps it in (1.2.24): `Overwrite`, a delta snapshot."""
    name = type(value).__name__
    if name == "Overwrite" and hasattr(value, "value"):
        return type(value)(change(value.value))
    if name == "_DeltaSnapshot" and hasattr(value, "_replace"):
        return value._replace(value=change(value.value))
    return change(value)
