"""References to declared secrets: put into JSON where the values stand, resolved when it is read.

The encoder knows nothing of secrets. What it has written is searched for them, which is cheap, and
only where one was found is that JSON read, rewritten and written again: `{"$secret": "env:NAME"}`
in the place of a text that is the value, `{"$text": ["Bearer ", {"$secret": "env:NAME"}]}` in that
of a text that holds it. Both are tags like any other, so patches and readers treat them as such.
A dict with such a key becomes a `$dict`. What could not be put back as it was, such as the base64
of a value, is refused with its path.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, Protocol

import orjson

from caravanserai_core import likely, secrets
from caravanserai_core.codec._fault import (
    PAIR_TAGS,
    Fault,
    earlier_refused,
    secret_refused,
    step,
    type_name,
)
from caravanserai_core.codec._strict import Malformed, read_items, read_text, strict
from caravanserai_core.codec._tags import READERS as READ
from caravanserai_core.codec._tags import escaped, whole
from caravanserai_core.errors import SecretChanged, SecretFound, SecretMissing, UnknownType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from caravanserai_core.secrets import Form, Found

__all__ = ["READERS", "Guard", "Refused", "displayed", "locate", "tell", "wrapper"]

SECRET = "$secret"
TEXT = "$text"

LONG: Final = 4 * 1024
"""Bytes; shorter parts are searched whole."""

_CHUNK: Final = 1 << 15
"""Bytes that are compared at once."""

_BEGINNING: Final = 40
"""Bytes by which a part is recognised that is much like one of the last state."""


class Dumps(Protocol):
    """Encodes a part of a state."""

    def __call__(self, part: object, like: bytes = b"", /) -> bytes:
        """Return the JSON of a part.

        Args:
            part: the part.
            like: what it was encoded to earlier, if it was; that is returned if nothing changed.
        """
        ...


class Refused(Exception):
    """A secret in a form that cannot be kept is somewhere in a part; `locate` says where."""


class Guard:
    """Keeps declared secrets out of what is written of one value.

    Attributes:
        rewrote: whether a reference was put in, which is a tag.
        suspect: whether something looks like a secret that was not declared; `tell` says where.
        likely: what is to be done then.
    """

    def __init__(self, searched: Iterable[bytes] | None = None, *, copied: bool = False) -> None:
        """Prepare for one value.

        Args:
            searched: the long encoded parts of an earlier value, in which these secrets were
                searched for: what is the same in them, and whatever is just like a part of it,
                is not searched again. None: there is no such value.
            copied: nothing is to be kept out.
        """
        self.rewrote = False
        self.suspect = False
        self.likely = "ignore" if copied else likely.action()
        # The longest part that was searched so far, and how far others were found in it.
        self._clean, self._at = b"", 0
        self._found = secrets.NOTHING if copied else secrets.current()
        self._trusts = searched is not None
        self._searched = {part[:_BEGINNING]: part for part in searched or ()}

    def over(self, dumps: Callable[[object], bytes]) -> Dumps:
        """Return `dumps` with references in what it writes.

        Raises (what it returns does):
            Refused: a secret stands there in a form that cannot be kept.
        """
        looks = bool(self._found.secrets) or self.likely != "ignore"

        def guarded(part: object, like: bytes = b"", /) -> bytes:
            data = dumps(part)
            if data == like and (self._trusts or not looks):
                return like
            if not looks:
                return data
            if len(data) >= LONG and self._is_part(data):
                return data
            new = self._new(data)
            if not self._found.among(new):
                self._look_at(new)
                if len(data) > len(self._clean):
                    self._clean, self._at = data, 0
                return data
            try:
                tree = _Rewriter(self._found).rewrite(orjson.loads(data))
            except Fault:
                raise Refused from None  # its path begins at the part
            self.rewrote = True
            data = orjson.dumps(tree)
            self._look_at(data)
            return data

        return guarded

    def _look_at(self, data: bytes) -> None:
        if self.likely != "ignore" and likely.suspects(data, self.likely):
            self.suspect = True

    def _is_part(self, data: bytes) -> bool:
        """Say whether it is the next part of what was written whole and searched a moment ago."""
        at = self._clean.find(data[:_BEGINNING], self._at)
        if at < 0 or not self._clean.startswith(data, at):
            return False
        self._at = at + len(data)
        return True

    def _new(self, data: bytes) -> bytes:
        """Return the bytes of a part that are not those of the last state, and some around."""
        before = self._searched.get(data[:_BEGINNING]) if len(data) >= LONG else None
        if before is None:
            return data
        if before == data:
            return b""
        most, around = min(len(before), len(data)), self._found.longest
        at = 0
        while at < most and before[at : at + _CHUNK] == data[at : at + _CHUNK]:
            at += _CHUNK
        same = min(at, most)
        tail = 0
        while (
            tail + _CHUNK <= most - same
            and before[len(before) - tail - _CHUNK : len(before) - tail]
            == data[len(data) - tail - _CHUNK : len(data) - tail]
        ):
            tail += _CHUNK
        return data[max(0, same - around) : len(data) - max(0, tail - around)]


def tell(data: bytes, wanted: str) -> None:
    """Tell what looks like a secret in a whole encoded value, or refuse it.

    Raises:
        SecretFound: it is to be refused.
    """
    tree = _Rewriter(secrets.current()).rewrite(orjson.loads(data))
    likely.check(_texts(tree, "$"), data, wanted)


def _texts(node: Any, path: str) -> Iterator[tuple[str, str]]:
    """Go through the texts of a JSON tree with tags, each with its path in the value."""
    if type(node) is str:
        yield path, node
    elif type(node) is list:
        for index, item in enumerate(node):
            yield from _texts(item, f"{path}[{index}]")
    elif type(node) is dict:
        tag = next(iter(node)) if len(node) == 1 else ""
        if tag in PAIR_TAGS and type(node[tag]) is list:
            for key, item in node[tag]:
                yield from _texts(key, path)
                yield from _texts(item, path + step(key))
        elif tag == "$object":
            content = node[tag]["value"]
            yield from _texts(content.get("fields", content), path)
        elif tag[:1] == "$":
            yield from _texts(node[tag], path)
        else:
            for key, item in node.items():
                yield path, key
                yield from _texts(item, path + step(key))


def locate(data: bytes) -> SecretFound:
    """Return the error that says where in a whole encoded value a secret stands that is refused."""
    try:
        _Rewriter(secrets.current()).rewrite(orjson.loads(data))
    except Fault as fault:
        error = fault.raised()
        if isinstance(error, SecretFound):
            return error
    return SecretFound("$: holds a secret in a form that cannot be kept; keep it elsewhere")


class _Rewriter:
    """Puts references into a JSON tree with tags."""

    def __init__(self, found: Found) -> None:
        self._found = found

    def rewrite(self, node: Any) -> Any:
        kind = type(node)
        if kind is str:
            return self._text(node)
        if kind is list:
            return self._list(node)
        if kind is dict:
            return self._object(node)
        if kind is int or kind is float:
            self._number(node)
        return node

    def _number(self, node: float) -> None:
        """Refuse a number with the digits of a value: a reference to them would be a text."""
        secret = self._found.in_text(orjson.dumps(node).decode())
        if secret is not None:
            raise secret_refused(secret.source)

    def _list(self, node: list[Any]) -> list[Any]:
        result: list[Any] = []
        try:
            result.extend(map(self.rewrite, node))
        except Fault as fault:
            fault.steps.append(f"[{len(result)}]")
            raise
        return result

    def _object(self, node: dict[str, Any]) -> Any:
        tag = next(iter(node)) if len(node) == 1 else ""
        tag = tag if tag[:1] == "$" else ""
        if tag == "$str":
            return self._text(read_text(READ[tag](node[tag])))
        pairs: list[list[Any]] = []
        key = ""
        try:
            for key, item in node.items():
                pairs.append([key, self.rewrite(item)])
        except Fault as fault:
            if tag:
                fault.within(tag, node[tag])
            else:
                fault.steps.append(step(key))
            raise
        if not tag and self._found.among(orjson.dumps(list(node))):
            try:
                keys = [self._text(key) for key in node]
            except Fault as fault:
                fault.problem = f"a key is refused: {fault.problem}"
                raise
            if any(type(key) is dict for key in keys):
                return {"$dict": [[key, pair[1]] for key, pair in zip(keys, pairs, strict=True)]}
        return dict(pairs)

    def _text(self, text: str) -> Any:
        parts: list[str | Form] = [text]
        for form in self._found.forms:
            if form.text in text:
                parts = [piece for part in parts for piece in _split(part, form)]
        for part in parts:
            if type(part) is str:
                for encoded, secret in self._found.encoded:
                    if encoded in part:
                        raise secret_refused(secret.source)
        written = [_plain(part) if type(part) is str else _reference(part) for part in parts]
        return {TEXT: written} if len(written) > 1 else written[0]


def _split(part: str | Form, form: Form) -> list[str | Form]:
    if type(part) is not str:
        return [part]
    pieces: list[str | Form] = []
    for text in part.split(form.text):
        pieces += [form, text] if pieces else [text]
    return [piece for piece in pieces if piece != ""]


def _plain(text: str) -> Any:
    return text if text.isascii() or whole(text) else {"$str": escaped(text)}


def _reference(form: Any) -> dict[str, Any]:
    """Return the reference for a value.

    Raises:
        Fault: its secret has another value by now.
    """
    secret = secrets.with_value(form.secret)
    if secret is None:
        raise earlier_refused(form.secret.source)
    content: dict[str, Any] = {"of": secret.source}
    if form.escapes:
        content["json"] = form.escapes
    if form.ascii:
        content["ascii"] = True
    if secret.marked:
        content["mark"] = secrets.mark(secret.source, secret.value)
    return {SECRET: content if len(content) > 1 else secret.source}


def wrapper(cls: type) -> Callable[[Any], dict[str, Any]]:
    """Return what makes the stored form of one of pydantic's wrappers for secrets.

    Raises (what it returns does):
        Fault: the secret is not declared, so nothing could bring it back.
    """

    def write(value: Any) -> dict[str, Any]:
        for tag, kind in _WRAPPERS.items():
            if cls is _pydantic(kind):
                inner = value.get_secret_value()
                text = inner.decode("utf-8", "replace") if type(inner) is bytes else inner
                if any(secret.value == text for secret in secrets.current().secrets):
                    return {tag: text}  # what is written of it is a reference
        raise Fault(
            f"the type {type_name(cls)} is a secret that is not declared, so it is not written and "
            "nothing could bring it back: declare_secret(name, value), or put it into the "
            "environment under a name that ends in KEY, TOKEN, SECRET or PASSWORD; or keep the "
            "name alone in the state",
            SecretFound,
            type_name(cls),
        )

    return write


def _pydantic(name: str) -> Any:
    return getattr(sys.modules.get("pydantic"), name, None)


# ---------------------------------------------------------------------- the way back


def _read_secret(content: Any) -> str:
    if type(content) is str:
        content = {"of": content}
    strict(type(content) is dict and "of" in content)
    strict(content.keys() <= {"of", "json", "ascii", "mark"})
    source, escapes = read_text(content["of"]), content.get("json", 0)
    strict(type(escapes) is int and 0 <= escapes <= 2 and content.get("ascii", True) is True)
    kind, _, name = source.partition(":")
    strict(kind in ("env", "name") and name)
    value = secrets.resolve(source)
    if value is None:
        raise Fault(_missing(kind, name.partition("#")[0]), SecretMissing, source)
    if "mark" in content and content["mark"] != secrets.mark(source, value):
        raise Fault(
            f"the secret {source} has another value than the one that was saved, and was declared "
            "not to change; give it its former value to load this, or load(raw=True)",
            SecretChanged,
            source,
        )
    return secrets.escaped(value, escapes, ascii_="ascii" in content)


def _missing(kind: str, name: str) -> str:
    if kind == "env":
        return (
            f"the secret env:{name} is not here; set the variable {name} in the environment before "
            "loading. load(raw=True) shows the state with references"
        )
    return (
        f'the secret name:{name} is not here; call declare_secret("{name}", value) before '
        "loading. load(raw=True) shows the state with references"
    )


def _read_joined(content: Any) -> str:
    parts = read_items(content)
    if not all(type(part) is str for part in parts):
        raise Malformed("it has a part that is no text")
    return "".join(parts)


def _read_wrapped(kind: str, value: object) -> object:
    cls = _pydantic(kind)
    if cls is None:
        raise Fault(f"a {kind} of pydantic: import pydantic before loading", UnknownType, kind)
    return cls(value)


_WRAPPERS = {"$secretstr": "SecretStr", "$secretbytes": "SecretBytes"}

READERS: dict[str, Callable[[Any], object]] = {
    SECRET: _read_secret,
    TEXT: _read_joined,
    "$secretstr": lambda content: _read_wrapped("SecretStr", read_text(content)),
    "$secretbytes": lambda content: _read_wrapped("SecretBytes", read_text(content).encode()),
}
"""Readers by tag."""


def displayed(node: Any) -> Any:
    """Return a JSON tree with words in the place of references, for a display."""
    if type(node) is list:
        return [displayed(item) for item in node]
    if type(node) is not dict:
        return node
    shown = {key: displayed(item) for key, item in node.items()}
    if len(shown) == 1 and SECRET in shown:
        content = node[SECRET]
        source = content.get("of") if type(content) is dict else content
        return f"[secret {source}]"
    if len(shown) == 1 and TEXT in shown and type(shown[TEXT]) is list:
        return "".join(map(str, shown[TEXT]))
    return shown
