"""Pending writes under the new ids of their tasks, where nodes have other names."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from caravanserai.langgraph import _tasks
from caravanserai.langgraph._invocations import NULL_TASK
from caravanserai.langgraph._tasks import Place, Task
from caravanserai_core.errors import SchemaMismatch
from caravanserai_core.quoting import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from caravanserai.langgraph._notes import Write

_AGO: Final = ("start:", "branch:")
"""How channels that lead to a node began before langgraph 0.4."""


class Around:
    """What surrounds one checkpoint that is migrated.

    Attributes:
        checkpoint_id: its id; "" where it is none, but what a job was given.
        step: number of the step behind it.
        inner: node and task of each subgraph that is at work in that step.
        lasting: nodes whose subgraph keeps its state from one call to the next.
        questions: new ids of questions by the ones they were asked under.
        superseded: the thread has gone on from it, so that its tasks are history.
    """

    def __init__(
        self,
        checkpoint_id: str = "",
        step: int = 0,
        inner: Sequence[tuple[str, str]] = (),
        lasting: frozenset[str] = frozenset(),
        questions: Mapping[str, str] | None = None,
        *,
        superseded: bool = False,
    ) -> None:
        self.checkpoint_id = checkpoint_id
        self.step = step
        self.inner = list(inner)
        self.lasting = lasting
        self.questions = dict(questions or {})
        self.superseded = superseded

    def asked(self, old: str, new: str) -> None:
        """Note the new id of a question."""
        first = next((key for key, value in self.questions.items() if value == old), old)
        self.questions[first] = new


class Found(NamedTuple):
    """A task under both names.

    Attributes:
        old: what its id was made of.
        before: its place then.
        new: what its id is made of.
        after: its place, which names the failed task where it is a handler.
    """

    old: Task
    before: Place
    new: Task
    after: Place

    @property
    def id(self) -> str:
        """Its id now."""
        return self.new.id(self.after)

    @property
    def moves(self) -> bool:
        """Whether it is another one than before."""
        return (self.old, self.before) != (self.new, self.after)


class Renaming:
    """New names of nodes and channels, as they change the tasks of one step.

    Args:
        ns: checkpoint namespace.
        around: what surrounds the checkpoint.
        nodes: new names of nodes.
        channels: new names of channels.
    """

    def __init__(
        self, ns: str, around: Around, nodes: Mapping[str, str], channels: Mapping[str, str]
    ) -> None:
        self._around = around
        self._place = Place(around.checkpoint_id, ns, around.step)
        self._nodes = nodes
        self._channels = channels

    def tasks(
        self,
        writes: list[Write],
        sends: Any,
        seen: Mapping[str, Mapping[str, Any]],
        known: set[str],
    ) -> list[Write]:
        """Return pending writes with the new ids and paths of their tasks.

        Args:
            writes: the writes.
            sends: the `Send`s that the step begins with.
            seen: by node the versions of what triggered it.
            known: channels of the thread.

        Raises:
            SchemaMismatch: a task is not to be found again, or a subgraph would be lost.
        """
        named = [send.node for send in sends if hasattr(send, "node")] if sends else []
        if self._nodes:
            self._check_nodes(known)
        finished = {write.task for write in writes if write.place >= 0}
        paths = {write.task: write.path for write in writes if write.task != NULL_TASK}
        found: dict[str, Found | None] = {}
        # A handler's id is made from that of the task that failed.
        for task, path in sorted(paths.items(), key=lambda item: _tasks.path_of(item[1]).handled):
            found[task] = self._found(task, path, named, seen, known, paths, found)
            if found[task] is None:
                self._unfound(task, path, finished, paths)
        self._check_inner(found, finished, named, seen, known)
        return [self._moved(write, found.get(write.task)) for write in writes]

    # ------------------------------------------------------------------ finding

    def _found(
        self,
        task: str,
        path: str,
        sends: Sequence[str],
        seen: Mapping[str, Mapping[str, Any]],
        known: set[str],
        paths: Mapping[str, str],
        found: Mapping[str, Found | None],
    ) -> Found | None:
        told = _tasks.path_of(path)
        if told.handled:
            return self._handler(task, told.handled, sends, paths, found)
        if told.node:
            return self._pulled(task, told.node, seen, known)
        if 0 <= told.send < len(sends):
            return self._pushed(task, sends[told.send], told.send)
        return None if told.call else self._anywhere(task, sends, seen, known)

    def _anywhere(
        self,
        task: str,
        sends: Sequence[str],
        seen: Mapping[str, Mapping[str, Any]],
        known: set[str],
    ) -> Found | None:
        """Find a task of which nothing but its id is known."""
        leading = {c.rpartition(":")[2] for c in known if c.startswith(("branch:to:", "join:"))}
        for node in sorted({*leading, *seen, *self._nodes}):
            if (result := self._pulled(task, node, seen, known)) is not None:
                return result
        for number, node in enumerate(sends):
            if (result := self._pushed(task, node, number)) is not None:
                return result
        return None

    def _pulled(
        self, task: str, node: str, seen: Mapping[str, Mapping[str, Any]], known: set[str]
    ) -> Found | None:
        old = _tasks.pulled(node, task, self._place, known, seen.get(node, ()))
        if old is None:
            return None
        triggers = sorted(self._channels.get(name, self._led(name)) for name in old.parts)
        new = Task(self._node(node), _tasks.PULL, tuple(triggers))
        return Found(old, self._place, new, self._place)

    def _led(self, channel: str) -> str:
        """Return a node's own channel under its new name: it need not stand in the thread."""
        lead, node = channel[: len("branch:to:")], channel[len("branch:to:") :]
        return f"{lead}{self._node(node)}" if lead == "branch:to:" else channel

    def _pushed(self, task: str, node: str, number: int) -> Found | None:
        old = _tasks.pushed(node, number)
        if old.id(self._place) != task:
            return None
        new = _tasks.pushed(self._node(node), number)
        return Found(old, self._place, new, self._place)

    def _handler(
        self,
        task: str,
        handled: str,
        sends: Sequence[str],
        paths: Mapping[str, str],
        found: Mapping[str, Found | None],
    ) -> Found | None:
        told = _tasks.path_of(handled)
        node = told.node or (sends[told.send] if 0 <= told.send < len(sends) else "")
        for failed, before in found.items():
            if before is None or paths[failed] != handled:
                continue
            inside = self._place._replace(ns=before.old.ns(before.before))
            for name in _tasks.handlers(node):
                old = _tasks.handler(name, failed)
                if old.id(inside) == task:
                    new = _tasks.handler(self._node(name), before.id)
                    after = self._place._replace(ns=before.new.ns(before.after))
                    return Found(old, inside, new, after)
        return None

    def _node(self, node: str) -> str:
        return self._nodes.get(node, node)

    # ------------------------------------------------------------------ moving

    def _moved(self, write: Write, found: Found | None) -> Write:
        if found is None or not found.moves:
            return write
        path = write.path
        for old, new in self._nodes.items():
            if path.startswith(_tasks.path_text(old)) and _named_in(path) == old:
                path = _tasks.path_text(new) + path[len(_tasks.path_text(old)) :]
                break
        value = write.value
        if write.channel == "__interrupt__":
            value = self._asked(value, found)
        return write._replace(task=found.id, path=path, value=value)

    def _asked(self, value: Any, found: Found) -> Any:
        """Return questions under the ids that they have inside the task's new namespace."""
        ids = dict(
            zip(
                _tasks.question_ids(found.old.ns(found.before)),
                _tasks.question_ids(found.new.ns(found.after)),
                strict=True,
            )
        )
        for old, new in ids.items():
            if any(getattr(item, "id", None) == old for item in _items(value)):
                self._around.asked(old, new)
        return with_ids(value, ids)

    # ------------------------------------------------------------------ refusing

    def _check_nodes(self, known: set[str]) -> None:
        ago = [c for c in known if c.startswith(_AGO) and not c.startswith("branch:to:")]
        if ago:
            raise SchemaMismatch(
                f"it was written by a langgraph before 0.4 (channel {one_line(ago[0], 60)}), "
                "where no node can be renamed; let the program's version that wrote it go on with "
                "it for one step first"
            )
        for node in self._nodes:
            if node in self._around.lasting:
                raise SchemaMismatch(
                    f"node {one_line(node, 60)} holds a subgraph with a memory of its own "
                    "(checkpointer=True), which would be lost under another name; keep its name"
                )

    def _unfound(self, task: str, path: str, finished: set[str], paths: Mapping[str, str]) -> None:
        told = _tasks.path_of(path)
        if self._around.superseded or _tasks.is_update(task, path, self._around.checkpoint_id):
            return  # no task of the step behind the checkpoint is looked for under this id
        if told.call:
            callers = [node for node in self._nodes if _tasks.calls_of(node) in path]
            done = {other for other, p in paths.items() if p in map(_tasks.path_text, callers)}
            if not callers or done & finished:
                return  # its id stays; or nobody asks for its result again
            self._refuse(callers[0], "has called tasks whose results would be lost")
        node = told.node or "(unknown)"
        self._refuse(node, "has a task that is not to be found under a new name")

    def _check_inner(
        self,
        found: Mapping[str, Found | None],
        finished: set[str],
        sends: Sequence[str],
        seen: Mapping[str, Mapping[str, Any]],
        known: set[str],
    ) -> None:
        """Refuse to lose a subgraph that is at work: it is found by the id of its task."""
        for node, task in () if self._around.superseded else self._around.inner:
            if task in finished:
                continue
            moved = found.get(task) or self._pulled(task, node, seen, known)
            for number, name in enumerate(sends):
                moved = moved or (self._pushed(task, name, number) if name == node else None)
            if moved is None or moved.moves:
                self._refuse(node, "holds a subgraph that is at work")

    def _refuse(self, node: str, why: str) -> NoReturn:
        raise SchemaMismatch(
            f"the node {one_line(node, 60)} {why}; let the program's version that wrote the state "
            "finish this step first, or keep the names of the nodes"
        )


def renamed_send(value: Any, nodes: Mapping[str, str]) -> Any:
    """Return a `Send` to a node under its new name."""
    if not hasattr(value, "node") or value.node not in nodes:
        return value
    renamed = copy.copy(value)
    renamed.node = nodes[value.node]
    return renamed


def with_ids(value: Any, ids: Mapping[str, str]) -> Any:
    """Return questions under new ids, where they have one."""
    if isinstance(value, (list, tuple)):
        return type(value)(_with_id(item, ids) for item in value)
    return _with_id(value, ids)


def _with_id(item: Any, ids: Mapping[str, str]) -> Any:
    if getattr(item, "id", None) not in ids:
        return item
    renamed = copy.copy(item)
    renamed.id = ids[item.id]
    return renamed


def _items(value: Any) -> Iterator[Any]:
    yield from value if isinstance(value, (list, tuple)) else (value,)


def _named_in(path: str) -> str:
    told = _tasks.path_of(path)
    return _tasks.path_of(told.handled).node if told.handled else told.node
