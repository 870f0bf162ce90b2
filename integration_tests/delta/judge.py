"""RFC 6902 and RFC 6901 once more, written from their text and without a look at the package."""

from __future__ import annotations

import copy
import re
from typing import Any


class Refused(Exception):
    """The patch is an error by the RFC."""


def patched(document: Any, patch: list[dict[str, Any]]) -> Any:
    """Return `document` after `patch`; `document` stays as it is."""
    root = [copy.deepcopy(document)]
    for operation in patch:
        tokens = _tokens(operation["path"])
        if operation["op"] == "remove":
            _remove(root, tokens)
        elif operation["op"] == "add":
            _add(root, tokens, copy.deepcopy(operation["value"]))
        elif operation["op"] == "replace":
            # 4.3: identical to a removal, followed by an addition at the same place; the member
            # of an object keeps its place here, which the RFC leaves open.
            parent, last = _parent(root, tokens)
            parent[_existing(parent, last)] = copy.deepcopy(operation["value"])
        else:
            raise Refused(operation["op"])
    return root[0]


def _tokens(pointer: str) -> list[str]:
    if pointer and not pointer.startswith("/"):
        raise Refused(pointer)
    # RFC 6901, 4: first ~1, then ~0, so that ~01 is ~1 and not /.
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def _parent(root: list[Any], tokens: list[str]) -> tuple[Any, Any]:
    node: Any = root
    path: list[Any] = [0, *tokens]
    for token in path[:-1]:
        node = node[_existing(node, token)]
    return node, path[-1]


def _existing(node: Any, token: Any) -> Any:
    if isinstance(node, dict):
        if token not in node:
            raise Refused(token)
        return token
    if not isinstance(node, list):
        raise Refused(token)
    index = token if isinstance(token, int) else _index(token)
    if index >= len(node):
        raise Refused(token)
    return index


def _index(token: str) -> int:
    if not re.fullmatch("0|[1-9][0-9]*", token):
        raise Refused(token)
    return int(token)


def _remove(root: list[Any], tokens: list[str]) -> None:
    parent, last = _parent(root, tokens)
    del parent[_existing(parent, last)]


def _add(root: list[Any], tokens: list[str], value: Any) -> None:
    parent, last = _parent(root, tokens)
    if not tokens:
        root[0] = value
    elif isinstance(parent, dict):
        parent[last] = value
    elif isinstance(parent, list):
        index = len(parent) if last == "-" else _index(last)
        if index > len(parent):
            raise Refused(last)
        parent.insert(index, value)
    else:
        raise Refused(last)
