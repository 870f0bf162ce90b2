"""The explicit encoder: put tags in place of what orjson would change, or say why not.

It walks as `_scan` does and copies only the containers in which it changes something, so one
tuple in a large state costs one more walk and not a copy of the state. Its first run looks at
neither texts nor cycles; only where that was not enough does a second, checked one, which copies
all containers. It accepts exact types only: whatever is not listed is refused, with its path.

Another thread may change the value meanwhile. So each container is copied, which no thread can
interrupt, before anything is asked about it, and what is put into the result is what was asked.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import orjson

from caravanserai_core.codec._fault import Fault, step
from caravanserai_core.codec._refuse import refusal
from caravanserai_core.codec._scan import DEEPEST, rows_trapped, trap_among
from caravanserai_core.codec._share import SAME, Shared, content
from caravanserai_core.codec._tags import EXACT, escaped, float_text, long_int, pairs, whole
from caravanserai_core.codec._types import COMPACT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from caravanserai_core.codec._compact import Compact
    from caravanserai_core.codec._types import Session

__all__ = ["Plain"]

_CHUNK = 64
_FEW = 8
_MODEL = 2
"""Levels of JSON that a model without containers in it takes: its tag, its fields."""

_OWN = frozenset({"$object", "$set", "$frozenset", SAME})

_TOO_DEEP = (
    f"nested too deep, limit {DEEPEST} levels of JSON; keep a flatter structure, "
    "for example a list of parts that refer to each other by an id"
)
_CHANGED = "was changed by another thread while it was saved; hold a lock, or save a copy"


def _place(container: Any, index: int) -> str:
    """The step of a path to an element of a list or to the value at a place of a dict."""
    if type(container) is list:
        return f"[{index}]"
    return step(list(container)[index])


class Plain:
    """One run of the explicit encoder.

    Attributes:
        tagged: whether any tag was written so far.
        shared: by path of a list that references mean the most items that one takes of it.
    """

    def __init__(
        self, session: Session, dumps: Callable[[object], bytes], *, checked: bool
    ) -> None:
        """Prepare a run.

        Args:
            session: knows the types.
            dumps: writes what holds no other than JSON's own types.
            checked: whether to look for lone surrogates and for cycles, and to copy all.
        """
        self.tagged = False
        self.shared: dict[str, int] = {}
        self._session = session
        self._dumps = dumps
        self._checked = checked
        self._open: set[int] = set()
        # What was written of long lists of models, by the identity of what stands for it.
        self._written: dict[int, tuple[orjson.Fragment, bytes]] = {}

    def dumps(self, part: object) -> bytes:
        """The JSON of any part of the tree."""
        written = self._written.get(id(part))
        return self._dumps(part) if written is None else written[1]

    def encode(self, value: object) -> object:
        """The value with tags in it, or the value itself where none is needed.

        Raises:
            UnserialisableState: if it cannot be kept exactly.
        """
        try:
            own = [value]
            return self._walk(own, own, DEEPEST)[0]
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

    def _walk(self, container: Any, own: Any, depth: int) -> Any:
        """An exact list or plain dict with tags in it; `depth` is left for each element.

        `own` is a copy of it that nobody else has: tags are put there, and if none is, the
        container itself is the result. They may be the same one.

        One call per level, and no function between: Python's own limit of 1,000 calls has to
        suffice for all levels and for the program that calls.
        """
        values = own if type(own) is list else list(own.values())
        checked = self._checked
        changes: dict[int, Any] = {}
        new: Any
        index = 0
        try:
            # Of a long list not the elements that the scan finds in order.
            few = checked or len(values) <= _CHUNK
            for index in range(len(values)) if few else self._suspects(values, depth):
                item = values[index]
                kind = type(item)
                if kind is str:
                    if not checked or item.isascii():
                        continue
                elif item is None or kind is bool:
                    continue
                if kind is list or kind is dict:
                    if not depth:
                        raise Fault(_TOO_DEEP)
                    if checked:
                        self._enter(item)
                    copy = item.copy()
                    if kind is list or self._is_plain(copy):
                        long = kind is list and len(copy) > _FEW and not checked
                        new = self._models(copy, depth - 1) if long else None
                        if new is None:
                            new = self._walk(item, copy, depth - 1)
                    else:
                        new = self._tag("$dict", pairs(copy), depth)
                    if checked:
                        self._open.discard(id(item))
                    if len(item) != len(copy):
                        raise Fault(_CHANGED)
                else:
                    new = self._leaf(item, kind, depth)
                if new is not item:
                    changes[index] = new
        except Fault as fault:
            fault.steps.append(_place(own, index))
            raise
        if not changes:
            return own if checked else container
        if values is own:
            for index, new in changes.items():
                own[index] = new
        else:
            keys = list(own)
            for index, new in changes.items():
                own[keys[index]] = new
        return own

    def _suspects(self, values: list[Any], depth: int) -> Iterable[int]:
        """Which elements of a long list are not all in order with their neighbours."""
        return [
            index
            for start in range(0, len(values), _CHUNK)
            if trap_among(values[start : start + _CHUNK], depth)
            for index in range(start, min(start + _CHUNK, len(values)))
        ]

    def _models(self, values: list[Any], depth: int) -> orjson.Fragment | None:
        """A list that holds only models with tags of their own, as JSON; None for another list.

        Such a list, a chat, may be most of a state. A part of it is written as soon as it was
        looked at, while it is in the processor's cache, and what was made for that is let go.
        """
        try:
            if type(values[0]) not in COMPACT or depth < _MODEL:
                return None
            plans = {kind: COMPACT[kind] for kind in set(map(type, values))}
        except (KeyError, TypeError):  # TypeError: a class whose metaclass has no __hash__
            return None
        out = io.BytesIO(b"[")
        out.seek(1)
        for start in range(0, len(values), _CHUNK):
            part = values[start : start + _CHUNK]
            tagged = self._tagged(part, plans, depth)
            if tagged is None:
                tagged = [self._object(item, type(item), depth) for item in part]
            out.write(b"," if start else b"")
            out.write(memoryview(self._dumps(tagged))[1:-1])
        out.write(b"]")
        data = out.getvalue()
        fragment = orjson.Fragment(data)
        self._written[id(fragment)] = fragment, data
        self.tagged = True
        return fragment

    def _tagged(
        self, values: list[Any], plans: dict[type, Compact], depth: int
    ) -> list[dict[str, Any]] | None:
        """Some models in their tags; None if one of them holds what needs a tag itself."""
        kinds = set(map(type, values))
        if len(kinds) == 1:
            one = plans[kinds.pop()]
            tag, content_of = one.tag, one.content
            contents = [content_of(item) for item in values]
            tagged = [{tag: content} for content in contents]
        else:
            chosen = [plans[type(item)] for item in values]
            contents = [plan.content(item) for plan, item in zip(chosen, values, strict=True)]
            tagged = [{plan.tag: content} for plan, content in zip(chosen, contents, strict=True)]
        return None if rows_trapped(contents, depth - 1) else tagged

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
        return self._tag(tag, text, depth)

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
        if kind is Shared:
            return self._reference(item, depth)
        session = self._session
        try:
            compact = COMPACT.get(kind)
            if compact is not None and depth >= _MODEL and not self._checked:
                content = compact.content(item)
                if not trap_among(content.values(), depth - 2):
                    self.tagged = True
                    return {compact.tag: content}
            convert = EXACT.get(kind) or session.converter(kind)
        except TypeError:  # a class whose metaclass has no __hash__
            convert = None
        if convert is None:
            raise refusal(item, kind)
        if self._checked:
            self._enter(item)
        ((tag, content),) = convert(item).items()
        tagged = self._tag(tag, content, depth)
        self._open.discard(id(item))
        return tagged

    def _reference(self, item: Shared, depth: int) -> dict[str, Any]:
        written = content(item)
        path = written["path"]
        self.shared[path] = max(self.shared.get(path, 0), item.first)
        return self._tag(SAME, written, depth)

    def _tag(self, tag: str, content: Any, depth: int) -> dict[str, Any]:
        """A tag around its encoded content."""
        if not depth:
            raise Fault(_TOO_DEEP)
        self.tagged = True
        if type(content) is str and content.isascii():
            return {tag: content}
        own = [content]
        steps = 1
        try:
            if (tag in _OWN or "." in tag) and depth > 1:
                # Made for this. The same without the list around it: most tags are these.
                steps = 0
                new = self._walk(content, content, depth - 2)
            else:
                new = self._walk(own, own, depth - 1)[0]
        except Fault as fault:
            if steps:
                del fault.steps[-1:]
            fault.within(tag, content)
            raise
        if tag == "$set" or tag == "$frozenset":
            # A set has no order of its own: sort by the written bytes, so that equal sets of
            # two processes give equal files.
            new = sorted(new, key=self._dumps)
        return {tag: new}
