"""A list that begins like another one of the same state is written as a reference and the rest.

Frameworks repeat themselves: LangGraph hands each tool call the whole state, OpenAI's SDK keeps
each item two or three times. Whoever knows where puts a `Shared` in the list's place. It is
written as `{"$same": {"path": "/values/messages", "first": 5, "then": [...]}}`: the first five
items of the list at that place, and then these. `path` is a JSON Pointer (RFC 6901) through plain
objects to a plain list, the target, in the same state, or in the state that a reader is given.

The record's head lists all targets. They are decoded first and hold no reference themselves, so
each reference is resolved where it stands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from caravanserai_core import secrets
from caravanserai_core.codec._fault import Fault, clean
from caravanserai_core.codec._strict import Malformed, read_text, strict
from caravanserai_core.errors import SchemaMismatch, SecretFound, UnserialisableState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

__all__ = [
    "SAME",
    "Shared",
    "at",
    "content",
    "holder",
    "keys",
    "pointer",
    "resolve",
    "unshare",
    "verify",
]

SAME = "$same"


class Shared(NamedTuple):
    """In the place of a list: the beginning of another one, and further items.

    Attributes:
        path: the keys that lead from the root of the state through plain dicts to that list.
        first: number of its items that this list begins with.
        rest: the items after these.
    """

    path: tuple[str, ...]
    first: int
    rest: list[Any]


def pointer(path: Iterable[str]) -> str:
    """Keys as a JSON Pointer."""
    return "".join("/" + key.replace("~", "~0").replace("/", "~1") for key in path)


def keys(path: str) -> list[str]:
    """The keys of a JSON Pointer."""
    return [key.replace("~1", "/").replace("~0", "~") for key in path.split("/")[1:]]


def content(value: Shared) -> dict[str, Any]:
    """What is written of a reference.

    Raises:
        Fault: if it is none.
    """
    path, first, rest = value
    if (
        type(path) is not tuple
        or not path
        or not all(type(key) is str for key in path)
        or type(first) is not int
        or first < 0
        or type(rest) is not list
    ):
        raise Fault("a Shared needs a path of str keys, a number of items, and a list")
    written: dict[str, Any] = {"path": pointer(path), "first": first}
    if rest:
        written["then"] = rest
    return written


def verify(state: object, shared: Mapping[str, int]) -> None:
    """Refuse references that would not be resolved again.

    Args:
        state: the state that is about to be written.
        shared: by path of a target the most items that a reference takes of it.

    Raises:
        UnserialisableState: if there is no such list in the state, or it is too short.
        SecretFound: if the path leads through a dict that is not written as one, for a secret
            in one of its keys.
    """
    for path, most in shared.items():
        node: Any = state
        for key in keys(path):
            if type(node) is dict and secrets.current().in_keys(k for k in node if type(k) is str):
                raise SecretFound(
                    f"$: beside the list at {clean(path)}, which other lists refer to, a key holds "
                    "a declared secret; keep the secret in a value"
                )
            node = node.get(key) if type(node) is dict else None
        try:
            found = len(_target(state, path))
        except Fault:
            found = -1
        if found < most:
            raise UnserialisableState(
                f"$: {most} items of the list at {clean(path)} are to be shared, which has "
                + ("not so many" if found >= 0 else "not been found in the state")
            )


def holder(tree: object, path: str) -> tuple[dict[str, Any], str]:
    """The object of a JSON tree that holds a target, and the target's key in it.

    Raises:
        Fault: if the path does not lead through plain objects to a list.
    """
    node: Any = tree
    *steps, last = keys(path) or [""]
    for key in steps:
        node = node.get(key) if _is_object(node) else None
    if not _is_object(node) or type(node.get(last)) is not list or not path.startswith("/"):
        raise Fault(f"malformed {SAME}: there is no list at {clean(path)}", SchemaMismatch)
    return node, last


def _is_object(node: Any) -> bool:
    """Whether a dict is, or is written as, an object that is no tag."""
    if type(node) is not dict or not all(type(key) is str for key in node):
        return False
    return len(node) != 1 or next(iter(node))[:1] != "$"


def _target(tree: object, path: str) -> list[Any]:
    node, key = holder(tree, path)
    found: list[Any] = node[key]
    return found


def at(state: object, path: str) -> list[Any]:
    """The list of a state that a reference means.

    Args:
        state: the state, decoded.
        path: the JSON Pointer.

    Raises:
        SchemaMismatch: if there is no list.
    """
    try:
        node: Any = state
        for key in keys(path):
            node = node[key] if type(node) is dict else None
        if type(node) is list and path.startswith("/"):
            return node
    except KeyError:
        pass
    raise SchemaMismatch(f"$: malformed {SAME}: there is no list at {clean(path)}", path="$")


def resolve(written: Any, targets: Mapping[str, list[Any]] | None) -> list[Any]:
    """The list that a reference stands for; the items are the target's own.

    Raises:
        Malformed: if it is no reference to one of the targets.
    """
    strict(type(written) is dict and written.keys() - {"then"} == {"path", "first"})
    target = (targets or {}).get(read_text(written["path"]))
    if target is None:
        raise Malformed("it refers to no list that the record's head names")
    first: Any = written["first"]
    then: Any = written.get("then")
    strict(type(first) is int and 0 <= first <= len(target), "the list it refers to is shorter")
    strict("then" not in written or (type(then) is list and then))
    return [*target[:first], *(then or ())]


def unshare(
    tree: Any, shared: Collection[str], targets: Mapping[str, list[Any]] | None = None
) -> Any:
    """Put lists in the place of the references in a raw JSON tree.

    Args:
        tree: as `parse` gives it; it is changed in place.
        shared: the targets that the record's head names.
        targets: the raw lists by path, if they are not in this tree.

    Returns:
        The tree, whose lists may have items in common.

    Raises:
        SchemaMismatch: if a reference is malformed.
    """
    if not shared:
        return tree
    try:
        lists = {path: targets[path] if targets else _target(tree, path) for path in shared}
        own = {id(item) for item in lists.values()}
        return _replaced(tree, lists, own)
    except Fault as fault:
        error = fault.raised()
    except (KeyError, ValueError, RecursionError) as problem:
        error = SchemaMismatch(f"$: malformed {SAME}: {problem}", path="$")
    raise error


def _replaced(node: Any, lists: Mapping[str, list[Any]], own: set[int]) -> Any:
    if type(node) is list:
        if id(node) not in own:
            for index, item in enumerate(node):
                if type(item) is dict or type(item) is list:
                    node[index] = _replaced(item, lists, own)
    elif type(node) is dict:
        for key, item in node.items():
            if type(item) is dict or type(item) is list:
                node[key] = _replaced(item, lists, own)
        if len(node) == 1 and SAME in node:
            return resolve(node[SAME], lists)
    return node
