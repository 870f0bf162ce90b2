"""A state as a person reads it: in Python's notation, without the types of the program.

What is read is the JSON tree with its tags. No class of the program is looked for, so what is
printed does not depend on what this process happens to have imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from caravanserai_core import codec
from caravanserai_core.cli._out import cell
from caravanserai_core.errors import CaravanseraiError

if TYPE_CHECKING:
    from collections.abc import Callable

SHORT = 200
"""Characters up to which a value stays on one line, however narrow the terminal."""

_INDENT = 4
_NAME = 200
"""Characters of a type's name that are shown."""


class Group(NamedTuple):
    """Something with brackets around it.

    Attributes:
        begin: what stands before its items.
        items: each with what stands before it, such as `name=`.
        end: what stands behind them.
        size: its length on one line.
    """

    begin: str
    items: list[tuple[str, Node]]
    end: str
    size: int


Node = str | Group


def text(tree: Any, width: int, *, tagged: bool, column: int = 0) -> str:
    """Return a state in Python's notation, over several lines where it is long.

    A short state without tags is exactly as `repr` writes it.

    Args:
        tree: the state's JSON tree.
        width: characters of a line; no text is cut in two for it.
        tagged: whether objects of one key that begins with `$` are tags.
        column: characters that stand before the first line.
    """
    out: list[str] = []
    try:
        node = _node(tree, tagged)
        if _size(node) <= SHORT:
            _flat(node, out)
        else:
            _lines(node, 0, column, width, out)
    except RecursionError:
        return repr(tree)
    return "".join(out)


# ---------------------------------------------------------------------- from JSON


def _node(tree: Any, tagged: bool) -> Node:
    if type(tree) is list:
        return _group("[", [("", _node(item, tagged)) for item in tree], "]")
    if type(tree) is not dict:
        return repr(tree)
    if tagged and len(tree) == 1:
        ((tag, content),) = tree.items()
        read = _READERS.get(tag)
        found = None if read is None else read(tag, content)
        if found is not None:
            return found
    return _group("{", [(f"{key!r}: ", _node(item, tagged)) for key, item in tree.items()], "}")


def _group(begin: str, items: list[tuple[str, Node]], end: str) -> Group:
    size = len(begin) + len(end) + sum(len(before) + _size(item) + 2 for before, item in items)
    return Group(begin, items, end, size - 2 if items else size)


def _size(node: Node) -> int:
    return len(node) if isinstance(node, str) else node.size


# Each reader below returns None for content that its tag never has: then it is shown as it is.


def _scalar(tag: str, content: Any) -> Node | None:
    """A tag that holds nothing of the program's: the codec reads it, and Python writes it."""
    if tag == "$int" and isinstance(content, str):
        return cell(content)  # its digits; repr() may refuse to give as many
    try:
        # On a copy: what cannot be read is left half done.
        written = repr(codec.decode_tree({tag: _copy(content)}))
    except (CaravanseraiError, ValueError):  # ValueError: an int of more digits than repr() gives
        return None
    return " ".join(written.split()) if tag == "$ndarray" else written


def _copy(tree: Any) -> Any:
    if type(tree) is list:
        return [_copy(item) for item in tree]
    return {key: _copy(item) for key, item in tree.items()} if type(tree) is dict else tree


def _path(_tag: str, content: Any) -> Node | None:
    """A path, also one of the other operating system."""
    match content:
        case [str(kind), str(path)] if kind.isidentifier():
            return f"{kind}({path!r})"
    return None


def _items(content: Any) -> list[tuple[str, Node]] | None:
    return [("", _node(item, True)) for item in content] if type(content) is list else None


def _pairs(content: Any) -> list[tuple[str, Node]] | None:
    """The items of a dict with keys of any type."""
    if type(content) is not list:
        return None
    if not all(type(pair) is list and len(pair) == 2 for pair in content):
        return None
    return [(f"{_line(_node(key, True))}: ", _node(item, True)) for key, item in content]


def _between(
    begin: str, end: str, empty: str, read: Callable[[Any], list[tuple[str, Node]] | None] = _items
) -> Callable[[str, Any], Node | None]:
    """Make the reader of a container that is written between two brackets."""

    def reader(_tag: str, content: Any) -> Node | None:
        items = read(content)
        if items is None:
            return None
        return _group(begin, items, end) if items else empty

    return reader


def _tuple(_tag: str, content: Any) -> Node | None:
    items = _items(content)
    return None if items is None else _group("(", items, ",)" if len(items) == 1 else ")")


def _defaultdict(_tag: str, content: Any) -> Node | None:
    match content:
        case {"factory": str() | None as name, "items": pairs, **rest} if not rest:
            factory = f"<class '{cell(name, _NAME)}'>" if name else "None"
            items = _pairs(pairs)
            return None if items is None else _group(f"defaultdict({factory}, {{", items, "})")
    return None


def _deque(_tag: str, content: Any) -> Node | None:
    match content:
        case {"items": list() as items, "maxlen": int() | None as most, **rest} if not rest:
            end = "])" if most is None else f"], maxlen={most})"
            return _group("deque([", _items(items) or [], end)
    return None


def _object(_tag: str, content: Any) -> Node | None:
    """An object of one of the program's own types."""
    match content:
        case {"type": str(name), "kind": str(kind), "value": value}:
            # "module:Class", or a name that the program has registered.
            short = cell(name.rpartition(":")[2] or name, _NAME)
        case _:
            return None
    if kind == "enum" and type(value) is str:
        return f"{short}.{cell(value, _NAME)}"
    if kind in ("flag", "codec"):
        return _group(f"{short}(", [("", _node(value, True))], ")")
    fields = _model(value) if kind == "pydantic" else _fields(value)
    return None if fields is None else _group(f"{short}(", fields, ")")


def _fields(value: Any) -> list[tuple[str, Node]] | None:
    if type(value) is not dict:
        return None
    if len(value) == 1 and type(pairs := value.get("$dict")) is list:
        # One field, whose name looks like a tag.
        items = _pairs(pairs)
        return None if items is None else [(f"{key[:-2]}=", node) for key, node in items]
    return [(f"{cell(name, _NAME)}=", _node(item, True)) for name, item in value.items()]


def _model(value: Any) -> list[tuple[str, Node]] | None:
    """The fields of a pydantic model, then its extra ones and private attributes."""
    if type(value) is not dict or "fields" not in value:
        return None
    found: list[tuple[str, Node]] = []
    for part in ("fields", "extra", "private"):
        fields = _fields(value.get(part) or {})
        if fields is None:
            return None
        found += fields
    return found


_READERS: dict[str, Callable[[str, Any], Node | None]] = {
    **dict.fromkeys(
        (
            *("$str", "$int", "$float", "$bytes", "$bytearray", "$complex", "$range", "$decimal"),
            *("$uuid", "$datetime", "$date", "$time", "$timedelta", "$timezone", "$zoneinfo"),
            *("$ndarray", "$npscalar"),
        ),
        _scalar,
    ),
    "$path": _path,
    "$tuple": _tuple,
    "$set": _between("{", "}", "set()"),
    "$frozenset": _between("frozenset({", "})", "frozenset()"),
    "$dict": _between("{", "}", "{}", _pairs),
    "$ordereddict": _between("OrderedDict({", "})", "OrderedDict()", _pairs),
    "$counter": _between("Counter({", "})", "Counter()", _pairs),
    "$defaultdict": _defaultdict,
    "$deque": _deque,
    "$object": _object,
}


# ---------------------------------------------------------------------- to text


def _line(node: Node) -> str:
    out: list[str] = []
    _flat(node, out)
    return "".join(out)


def _flat(node: Node, out: list[str]) -> None:
    """Write a value on one line."""
    if isinstance(node, str):
        out.append(node)
        return
    out.append(node.begin)
    for number, (before, item) in enumerate(node.items):
        out.append(f", {before}" if number else before)
        _flat(item, out)
    out.append(node.end)


def _lines(node: Node, indent: int, column: int, width: int, out: list[str]) -> None:
    """Write a value on one line where that has room behind `column`, else an item per line."""
    # One more for the comma behind it. Beyond half of the width, folding would help nobody.
    if isinstance(node, str) or not node.items or column + node.size < width or indent > width // 2:
        _flat(node, out)
        return
    out.append(f"{node.begin}\n")
    inner = indent + _INDENT
    for before, item in node.items:
        out.append(f"{' ' * inner}{before}")
        _lines(item, inner, inner + len(before), width, out)
        out.append(",\n")
    out.append(f"{' ' * indent}{node.end.removeprefix(',')}")
