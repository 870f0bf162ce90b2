"""The explicit encoder: put tags in place of what orjson would change, or say why not.

It walks as `_scan` does and copies only the containers in which it changes something, so one
tuple in a large state costs one more walk and not a copy of the state. Its first run looks at
neither texts nor cycles; only where that was not enough does a second, checked one. It accepts
exact types only: whatever is not listed is refused, with its path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from caravanserai_core.codec._fault import Fault, step
from caravanserai_core.codec._refuse import refusal
from caravanserai_core.codec._scan import DEEPEST, trap_among
from caravanserai_core.codec._tags import EXACT, FAST, escaped, float_text, long_int, pairs, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from caravanserai_core.codec._types import Session

__all__ = ["Plain"]

_CHUNK = 64

_TOO_DEEP = (
    f"nested too deep, limit {DEEPEST} levels of JSON; keep a flatter structure, "
    "for example a list of parts that refer to each other by an id"
)
_CHANGED = "changed by another thread while it was being saved; hold a lock, or save a copy"


def _place(container: Any, index: int) -> str:
    """The step of a path to an element of a list or to the value at a place of a dict."""
    if type(container) is list:
        return f"[{index}]"
    keys = list(container)
    # A dict that another thread changes meanwhile may be shorter than it was.
    return step(keys[index]) if index < len(keys) else "[?]"


class Plain:
    """One run of the explicit encoder.

    Attributes:
        tagged: whether any tag was written so far.
    """

    def __init__(
        self, session: Session, dumps: Callable[[object], bytes], *, checked: bool
    ) -> None:
        """Prepare a run.

        Args:
            session: gets the stored form of each object that may stay as it is.
            dumps: writes any part of the tree, to sort the elements of sets.
            checked: whether to look for lone surrogates and for cycles.
        """
        self.tagged = False
        self._session = session
        self._dumps = dumps
        self._checked = checked
        self._open: set[int] = set()

    def encode(self, value: object) -> object:
        """The value with tags in it, or the value itself where none is needed.

        Raises:
            UnserialisableState: if it cannot be kept exactly.
        """
        try:
            return self._walk([value], DEEPEST)[0]
        except Fault as fault:
            del fault.steps[-1:]  # that of the list around the value
            error = fault.raised()
            cause = fault.__cause__
        except RecursionError:
            error = Fault(_TOO_DEEP).raised()
            cause = None
        except RuntimeError:
            # "dictionary changed size during iteration" and its kin.
            error = Fault(_CHANGED).raised()
            cause = None
        raise error from cause

    def _walk(self, container: Any, depth: int) -> Any:
        """An exact list or plain dict with tags in it; `depth` is left for each element.

        One call per level, and no function between: Python's own limit of 1,000 calls has to
        suffice for all levels and for the program that calls.
        """
        is_list = type(container) is list
        values = container if is_list else list(container.values())
        checked = self._checked
        changes: dict[int, Any] = {}
        index = 0
        try:
            for index in self._suspects(values, depth):
                item = values[index]
                kind = type(item)
                if kind is bool or item is None:
                    continue
                if kind is str and (not checked or item.isascii()):
                    continue
                if kind is list or kind is dict:
                    if not depth:
                        raise Fault(_TOO_DEEP)
                    if checked:
                        self._enter(item)
                    if kind is list or self._is_plain(item):
                        new = self._walk(item, depth - 1)
                    else:
                        new = self._tag("$dict", pairs(item), depth)[0]
                    self._open.discard(id(item))
                else:
                    new = self._leaf(item, kind, depth)
                if new is not item:
                    changes[index] = new
        except Fault as fault:
            fault.steps.append(_place(container, index))
            raise
        if len(container) != len(values):
            raise Fault(_CHANGED)
        if not changes:
            return container
        out: Any = container.copy()
        keys = range(len(values)) if is_list else list(container)
        for index, new in changes.items():
            out[keys[index]] = new
        return out

    def _suspects(self, values: list[Any], depth: int) -> Iterable[int]:
        """Which elements to look at: of a long list not those that the scan finds in order."""
        if self._checked or len(values) <= _CHUNK:
            return range(len(values))
        return [
            index
            for start in range(0, len(values), _CHUNK)
            if trap_among(values[start : start + _CHUNK], depth, self._session)
            for index in range(start, min(start + _CHUNK, len(values)))
        ]

    def _leaf(self, item: Any, kind: type, depth: int) -> Any:
        """A value that is neither list nor dict."""
        if kind is int:
            if -0x8000000000000000 <= item <= 0xFFFFFFFFFFFFFFFF:
                return item
            tag, text = "$int", long_int(item)
        elif kind is float:
            if item - item == 0.0:
                return item
            tag, text = "$float", float_text(item)
        elif kind is str:
            if whole(item):
                return item
            tag, text = "$str", escaped(item)
        else:
            return self._object(item, kind, depth)
        return self._tag(tag, text, depth)[0]

    def _enter(self, item: object) -> None:
        if id(item) in self._open:
            raise Fault("circular reference: the value contains itself; keep an id instead")
        self._open.add(id(item))

    def _is_plain(self, item: dict[Any, Any]) -> bool:
        """Whether a dict can be a JSON object that is no tag."""
        for key in item:
            if type(key) is not str:
                return False
            if self._checked and not (key.isascii() or whole(key)):
                return False
        return len(item) != 1 or next(iter(item))[:1] != "$"

    def _object(self, item: Any, kind: type, depth: int) -> Any:
        session = self._session
        try:
            fast = FAST.get(kind) or session.fast(kind)
            convert = fast or EXACT.get(kind) or session.converter(kind)
        except TypeError:  # a class whose metaclass has no __hash__
            fast = convert = None
        if convert is None:
            raise refusal(item, kind)
        name = id(item)
        if fast is not None and session.depths.get(name, depth + 1) <= depth:
            return item
        if self._checked:
            self._enter(item)
        form = convert(item)
        ((tag, content),) = form.items()
        tagged, changed = self._tag(tag, content, depth)
        self._open.discard(name)
        if fast is None or changed:
            return tagged
        session.depths[name] = depth
        session.forms[name] = form
        return item

    def _tag(self, tag: str, content: Any, depth: int) -> tuple[dict[str, Any], bool]:
        """A tag around its encoded content, and whether that differs from the content."""
        if not depth:
            raise Fault(_TOO_DEEP)
        self.tagged = True
        try:
            new = self._walk([content], depth - 1)[0]
        except Fault as fault:
            del fault.steps[-1:]
            fault.within(tag, content)
            raise
        if tag == "$set" or tag == "$frozenset":
            # A set has no order of its own: sort by the written bytes, so that equal sets of
            # two processes give equal files.
            new = sorted(new, key=self._dumps)
        return {tag: new}, new is not content
