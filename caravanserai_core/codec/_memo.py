"""Decode many states that have most of their elements in common, each element once.

A history rebuilt by patches shares what did not change: the raw messages of waypoint 999 are the
very objects of waypoint 1,000. So the decoded value of a list's element is remembered under the
raw element's identity, and a state costs what is new in it and the building of its lists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from caravanserai_core.codec import _share
from caravanserai_core.codec._decode import public, untag
from caravanserai_core.codec._fault import Fault, step
from caravanserai_core.errors import SchemaMismatch

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

__all__ = ["Decoder"]

_NEW = object()


class Decoder:
    """Decodes trees that share elements, and changes none of them.

    The values share their elements in turn: whoever changes one in one state changes it in all.
    For one thread.
    """

    def __init__(self) -> None:
        self._known: dict[int, Any] = {}
        # An identity is good for as long as its object lives.
        self._alive: list[Any] = []
        self._targets: Mapping[str, list[Any]] = {}
        self._lists: dict[int, list[Any]] = {}
        self._refers = False

    def decode(
        self,
        tree: object,
        shared: Collection[str] = (),
        targets: Mapping[str, list[Any]] | None = None,
    ) -> Any:
        """Turn the tags of a JSON tree into values.

        Args:
            tree: the tree; not to be changed as long as this decoder is used.
            shared: the lists that its references may mean, as its record's head names them.
            targets: these lists by path, decoded; None: they are in this tree.

        Raises:
            UnknownType: if it has a tag or a type that this program does not know.
            SchemaMismatch: if a tag's content is malformed or no longer fits its type.
        """
        try:
            self._targets, self._lists = targets or {}, {}
            if shared and targets is None:
                self._open_targets(tree, shared)
            return self._open(tree)
        except (Fault, RecursionError) as problem:
            error, cause = public(problem)
        finally:
            self._targets, self._lists = {}, {}
        raise error from cause

    def _open_targets(self, tree: object, shared: Collection[str]) -> None:
        found: dict[str, list[Any]] = {}
        lists: dict[int, list[Any]] = {}
        for path in shared:
            holder, key = _share.holder(tree, path)
            try:
                found[path] = lists[id(holder[key])] = self._open(holder[key])
            except Fault as fault:
                fault.steps.extend(map(step, reversed(_share.keys(path))))
                raise
        self._targets, self._lists = found, lists

    def _open(self, node: Any) -> Any:
        if type(node) is list:
            return self._lists.get(id(node)) or self._open_list(node)
        if type(node) is not dict:
            return node
        tag = next(iter(node)) if len(node) == 1 else ""
        tag = tag if tag[:1] == "$" else ""
        result: dict[str, Any] = {}
        key = ""
        try:
            for key, item in node.items():
                kind = type(item)
                result[key] = self._open(item) if kind is dict or kind is list else item
        except Fault as fault:
            if tag:
                fault.within(tag, node[tag])
            else:
                fault.steps.append(step(key))
            raise
        if not tag:
            return result
        if tag != _share.SAME:
            return untag(tag, result[tag])
        self._refers = True
        try:
            return _share.resolve(result[tag], self._targets)
        except ValueError as problem:
            raise Fault(f"malformed {tag}: {problem}", SchemaMismatch) from problem

    def _open_list(self, node: list[Any]) -> list[Any]:
        known = self._known
        result: list[Any] = []
        add = result.append
        try:
            for item in node:
                kind = type(item)
                if kind is dict:
                    value = known.get(id(item), _NEW)
                    add(self._element(item) if value is _NEW else value)
                else:
                    add(self._open(item) if kind is list else item)
        except Fault as fault:
            fault.steps.append(f"[{len(result)}]")
            raise
        return result

    def _element(self, item: dict[str, Any]) -> Any:
        """Decode an element, and remember it unless a reference in it depends on this tree."""
        outer, self._refers = self._refers, False
        value = self._open(item)
        if not self._refers:
            self._known[id(item)] = value
            self._alive.append(item)
        self._refers = self._refers or outer
        return value
