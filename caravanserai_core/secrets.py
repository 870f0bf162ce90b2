"""Which values are secret: declared by the program, or by the names in its environment.

A declared value is never written. Where it stands in a state, a reference to it is written
(`codec`); where it stands in prose, `[secret env:NAME]` (`redact`); in a name, the save is refused.
This module knows the values and finds them in bytes, in each form in which they usually travel:
as they are, escaped for JSON once or twice, as base64, percent-encoded.

The environment is looked at again at each save. A value that was seen once stays declared as long
as the process lives: a program may take a key out of its environment, and still have it in a state.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from copy import copy
from functools import cache, cached_property
from itertools import product
from typing import TYPE_CHECKING, Final, Literal, NamedTuple
from urllib.parse import quote, quote_plus, unquote

from caravanserai_core import signals
from caravanserai_core.errors import SecretFound, UsageError
from caravanserai_core.shapes import shapes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["NOTHING", "Found", "Secret", "current", "declare_secret", "mark", "refuse", "resolve"]

SHORTEST: Final = 8
"""Characters that a declared value has at least: shorter ones stand in any text by chance."""

_SHORTEST_OF_ENVIRONMENT: Final = 16

_NAME = re.compile(
    r"(?:.*[^A-Za-z0-9])?(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS|DSN)", re.IGNORECASE
)
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*)://([^\s/?#:@]*):([^\s/?#]+)@(\S+)")
_WORDED = re.compile(r"[A-Za-z]{1,30}(?:[_.\-][A-Za-z]{1,30})+")
"""Several words, as a name of a secret has them, and hardly any secret."""

_SAFE_NAME = re.compile(r"[A-Za-z0-9_.\-]{1,100}")

# Words that every journal is full of. As a password of a database on somebody's own machine they
# are no secret, and as a declared value they would keep everything from being written.
_WORDS = frozenset({
    "arguments", "bytearray", "caravanserai", "checkpoint", "dataclass", "datetime", "defaultdict",
    "finished", "framework", "frozenset", "generation", "imported", "interrupt", "langchain",
    "langgraph", "messages", "metadata", "namedtuple", "ordereddict", "password", "postgres",
    "postgresql", "pydantic", "question", "snapshot", "timedelta", "timezone", "waypoint",
    "zoneinfo",
})  # fmt: skip


class Secret(NamedTuple):
    """A declared value.

    Attributes:
        value: the value.
        source: where it comes from, as references say it: `env:NAME` or `name:NAME`; the password
            in a URL is `env:NAME#password`, or `env:NAME#decoded` without its percent-encoding.
        marked: whether references to it hold a mark, by which another value is noticed.
    """

    value: str
    source: str
    marked: bool = False


class Form(NamedTuple):
    """One form in which a text may hold a value.

    Attributes:
        text: the form.
        secret: the value.
        escapes: how often it is escaped for JSON.
        ascii: whether that left nothing but ASCII.
    """

    text: str
    secret: Secret
    escapes: int
    ascii: bool


class Found:
    """The values that are declared at one moment, ready to be searched for.

    Attributes:
        version: a number that is another one for each further value.
        secrets: the values, the longest first.
    """

    def __init__(self, version: int, secrets: list[Secret]) -> None:
        self.version = version
        # Of two names for one value that which the program gave is meant, else the first.
        order = sorted(secrets, key=lambda s: (-len(s.value), not s.source.startswith("n"), s))
        unique: dict[str, Secret] = {}
        for secret in order:
            unique.setdefault(secret.value, secret)
        self.secrets = list(unique.values())

    @cached_property
    def forms(self) -> list[Form]:
        """The forms of all values in a text that are replaced, the longest first."""
        forms = [form for secret in self.secrets for form in _forms(secret)]
        return sorted(forms, key=lambda form: (-len(form.text), form.escapes, form.secret.source))

    @cached_property
    def encoded(self) -> list[tuple[str, Secret]]:
        """The forms of all values in a text that are refused, each with its value."""
        known = {form.text for form in self.forms}
        return [
            (text, secret)
            for secret in self.secrets
            for text in _encodings(secret.value)
            if text not in known
        ]

    @cached_property
    def _needles(self) -> tuple[list[bytes], list[bytes]]:
        """What to look for in bytes, and what to look for only where there is a `%`."""
        each = [_needles_of(secret) for secret in self.secrets]
        plain = dict.fromkeys(needle for needles, _ in each for needle in needles)
        percent = dict.fromkeys(needle for _, needles in each for needle in needles)
        return list(plain), list(percent)

    @cached_property
    def longest(self) -> int:
        """Bytes of the longest form."""
        return max((len(needle) for group in self._needles for needle in group), default=0)

    def among(self, data: bytes) -> bool:
        """Say whether a declared value is in some bytes, in any form."""
        if not self.secrets:
            return False
        needles, percent = self._needles
        find = data.find  # `in` first tries to take a needle for a number, which takes longer
        for needle in needles:
            if find(needle) >= 0:
                return True
        return bool(percent) and find(b"%") >= 0 and any(find(needle) >= 0 for needle in percent)

    def in_keys(self, keys: Iterable[str]) -> bool:
        """Say whether a declared value is in one of some keys."""
        return bool(self.secrets) and self.among("\n".join(keys).encode("utf-8", "replace"))

    def in_text(self, text: str) -> Secret | None:
        """Return a value that is in a text, in any form, or None."""
        for form in self.forms:
            if form.text in text:
                return form.secret
        for encoded, secret in self.encoded:
            if encoded in text:
                return secret
        return None

    def places(self, data: bytes) -> Iterator[tuple[int, Secret]]:
        """Yield where values are in some bytes, in any form: offset and value, sorted by offset."""
        found: set[tuple[int, str]] = set()
        for text, secret in [
            *((form.text, form.secret) for form in self.forms),
            *self.encoded,
        ]:
            for needle in {text.encode(), json.dumps(text, ensure_ascii=False)[1:-1].encode()}:
                at = data.find(needle)
                while at >= 0:
                    found.add((at, secret.source))
                    at = data.find(needle, at + 1)
        by_source = {secret.source: secret for secret in self.secrets}
        for at, source in sorted(found):
            yield at, by_source[source]


NOTHING: Final = Found(0, [])
"""No value at all."""


# Kept by value: a process may declare a token for each of its users, one after the other.
@cache
def _forms(secret: Secret) -> tuple[Form, ...]:
    forms: dict[str, Form] = {}
    for escapes in range(3):
        for ascii_ in (False, True):
            text = escaped(secret.value, escapes, ascii_=ascii_)
            forms.setdefault(text, Form(text, secret, escapes, ascii_))
    return tuple(forms.values())


def escaped(text: str, times: int, *, ascii_: bool) -> str:
    """Return a text as it stands in JSON, in JSON in a string of JSON, and so on.

    Args:
        text: the text.
        times: how often it is escaped.
        ascii_: whether characters beyond ASCII are escaped too.
    """
    for _ in range(times):
        text = json.dumps(text, ensure_ascii=ascii_)[1:-1]
    return text


@cache
def _encodings(value: str) -> tuple[str, ...]:
    """The forms in which a value could not be put back: in base64, percent-encoded, and others."""
    # The first is also how it is written in a text that holds half a surrogate pair (`$str`).
    found = [value.replace("\\", "\\\\"), repr(value)[1:-1]]
    for text in dict.fromkeys(_foreign_json(value)):
        if "\\" in text:
            found += [text, json.dumps(text)[1:-1]]
    data = value.encode()
    for before in range(3):
        core = _core_of(data, before)
        found += [core, core.translate(str.maketrans("+/", "-_"))]
        found.append(_core_of(value.encode("utf-32-le"), before))  # a text in an array of numpy
    for coded in (quote(value, safe=""), quote(value), quote_plus(value)):
        if coded != value:
            found += [coded, re.sub("%[0-9A-F]{2}", lambda match: match[0].lower(), coded)]
    return tuple(dict.fromkeys(found))


def _core_of(data: bytes, before: int) -> str:
    """Return what is in a longer base64 text of some bytes, whatever stands around them there.

    Args:
        data: the bytes.
        before: how many others are before them, modulo 3.
    """
    text = base64.b64encode(bytes(before) + data).decode()
    return text[-(-before * 8 // 6) : (before + len(data)) * 8 // 6]


def _foreign_json(value: str) -> Iterator[str]:
    """Yield a text as other libraries escape it: PHP the slash, Go and .NET what HTML uses too."""
    specials = ("", "&<>", "&<>+'\"`")
    for special, (upper, slash, ascii_) in product(specials, product((False, True), repeat=3)):
        parts = []
        for char in value:
            if char in special or (ascii_ and not char.isascii()):
                units = char.encode("utf-16-be", "surrogatepass")
                codes = [units[at : at + 2].hex() for at in range(0, len(units), 2)]
                parts += ["\\u" + (code.upper() if upper else code) for code in codes]
            elif char == "/" and slash:
                parts.append("\\/")
            else:
                parts.append(json.dumps(char, ensure_ascii=False)[1:-1])
        yield "".join(parts)


@cache
def _needles_of(secret: Secret) -> tuple[list[bytes], list[bytes]]:
    encoded = _encodings(secret.value)
    texts = [form.text for form in _forms(secret)] + list(encoded)
    # In a JSON text as well as in plain text.
    needles = {text.encode() for text in texts}
    needles |= {json.dumps(text, ensure_ascii=False)[1:-1].encode() for text in texts}
    least = [n for n in needles if not any(o in n for o in needles if o != n)]
    percent = {text.encode() for text in encoded if "%" in text}
    return [n for n in least if n not in percent], [n for n in least if n in percent]


def mark(source: str, value: str) -> str:
    """Return the mark of a value: four hex digits, by which another value is noticed.

    It has 16 bits and no more, so that it tells nobody what the value is: of all guesses that
    somebody could try, one in 65,536 fits.
    """
    return hashlib.sha256(f"caravanserai\n{source}\n{value}".encode()).hexdigest()[:4]


# ---------------------------------------------------------------------- the registry


class _Registry:
    """What this process has seen so far."""

    def __init__(self) -> None:
        self.lock = signals.Lock()
        self.named: dict[str, str] = {}
        self.marked: set[str] = set()
        self.seen: dict[tuple[str, str], Secret] = {}
        self.values: dict[str, str | None] = {}
        self.environment: object = None
        self.found = NOTHING

    def add(self, secrets: list[Secret]) -> None:
        """Declare values; the caller holds the lock."""
        news = {(s.source, s.value): s for s in secrets}
        values = {source: resolve(source) for source, _ in (*self.seen, *news)}
        if news.items() <= self.seen.items() and values == self.values:
            return
        self.seen |= news
        self.values = values  # one that comes back makes a version too: the other is an old one
        self.found = Found(self.found.version + 1, list(self.seen.values()))


_registry = _Registry()


def _environment() -> object:
    # The dict beneath os.environ: comparing it takes 0.3 µs, copying os.environ itself 30.
    return getattr(os.environ, "_data", None) or dict(os.environ)


def current() -> Found:
    """Return the values that are declared now, those of the environment among them."""
    registry = _registry
    if registry.environment != _environment():
        with registry.lock:
            seen = copy(_environment())
            registry.add(list(_of_environment(registry.marked)))
            registry.environment = seen  # last: other threads go by it
    return registry.found


def _of_environment(marked: set[str]) -> Iterator[Secret]:
    for name, value in list(os.environ.items()):
        source = f"env:{name}"
        if len(value) < SHORTEST or not _is_text(value) or not _SAFE_NAME.fullmatch(name):
            continue
        url = _URL.fullmatch(value)
        if url is not None:
            yield Secret(value, source, source in marked)
            yield from _passwords(source, url)
        elif source in marked or (
            len(value) >= _SHORTEST_OF_ENVIRONMENT
            and _NAME.fullmatch(name)
            and not re.search(r"\s", value)
            and not _is_place(value)
        ):
            yield Secret(value, source, source in marked)


def _is_place(value: str) -> bool:
    """Say whether a value names a file: `GOOGLE_APPLICATION_CREDENTIALS` does."""
    return value[:1] in "/~" and os.path.exists(os.path.expanduser(value))  # noqa: PTH110, PTH111


def _passwords(source: str, url: re.Match[str]) -> Iterator[Secret]:
    scheme, user, password, rest = url.groups()
    for text, part in ((password, "password"), (unquote(password), "decoded")):
        known = {scheme.lower(), user.lower(), *re.split(r"[/?:&=#]", rest.lower())} | _WORDS
        if len(text) >= SHORTEST and text.lower() not in known and _is_text(text):
            yield Secret(text, f"{source}#{part}")
        if "%" not in password:
            return


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def declare_secret(
    name: str, value: str | None = None, *, changed: Literal["accept", "refuse"] = "accept"
) -> None:
    """Declare a value that must never be written into a store.

    In states a reference by this name takes its place, and loading puts the value back that is
    declared under the name then.

    Args:
        name: letters, digits, `_`, `.` and `-`. Without `value`, that of a variable of the
            environment, whose value is declared, whatever it is called.
        value: the value, of 8 characters or more.
        changed: what a load does that finds another value under this name than the one that was
            saved: "accept" it (a key that was rotated), or "refuse" (`SecretChanged`). For
            "refuse" a mark of 16 bits of the value is stored with each reference.

    Raises:
        UsageError: the value is too short, no text, or a word of the format; the variable is not
            set; the name has other characters, holds the value, or looks like a secret itself.
            No message has the value in it, nor what could be one.
    """
    if type(name) is not str or not _SAFE_NAME.fullmatch(name):
        raise UsageError(
            "a secret's name has letters, digits, _ . and - only, and 100 at most. The name comes "
            "first: declare_secret(name, value)"
        )
    if _looks_swapped(name, value):
        raise UsageError(
            "declare_secret(name, value): the name looks like a secret itself, or the value like "
            "the name of one. The name comes first; nothing was declared"
        )
    shown = f"the secret {name}" if _WORDED.fullmatch(name) else "the secret"
    if changed not in ("accept", "refuse"):
        raise UsageError('declare_secret: changed= is "accept" or "refuse"')
    source = f"env:{name}" if value is None else f"name:{name}"
    text = os.environ.get(name) if value is None else value
    if text is None:
        raise UsageError(
            f"{shown} was declared without a value, and the environment has no variable of this "
            "name"
        )
    if type(text) is not str or len(text) < SHORTEST or not _is_text(text):
        raise UsageError(
            f"{shown} is no text of {SHORTEST} characters or more: shorter ones stand in "
            "other texts by chance"
        )
    if text.lower() in _WORDS or text in source:
        raise UsageError(f"{shown} is a word that every journal holds, or its own name")
    registry = _registry
    with registry.lock:
        if changed == "refuse":
            registry.marked.add(source)
        else:
            registry.marked.discard(source)
        if value is not None:
            registry.named[name] = text
        marked = [s._replace(marked=s.source in registry.marked) for s in registry.seen.values()]
        registry.add([*marked, Secret(text, source, source in registry.marked)])


def declare_password(name: str, url: str) -> None:
    """Declare the password in an address, as one in the environment would be.

    One that is too short, or that is the user's or the database's name too, is left alone.

    Args:
        name: as in `declare_secret`.
        url: the address.
    """
    found = _URL.fullmatch(url)
    if found is None or not _SAFE_NAME.fullmatch(name):
        return
    registry = _registry
    with registry.lock:
        given = [
            (f"{name}.{secret.source.rpartition('#')[2]}", secret.value)
            for secret in _passwords(f"name:{name}", found)
        ]
        registry.named.update(given)
        registry.add([Secret(value, f"name:{full}") for full, value in given])


def _looks_swapped(name: str, value: object) -> bool:
    """Say whether a name may be a value, or a value a name: then neither may be shown."""
    if any(shapes(name)) or current().in_text(name) is not None:
        return True
    if type(value) is not str or not (_WORDED.fullmatch(value) and _NAME.fullmatch(value)):
        return False
    # A password of somebody's own machine is a few small words too: `local-dev-password`.
    random = len(name) >= SHORTEST and not name.isalpha() and not _WORDED.fullmatch(name)
    return value.isupper() or (random and not _NAME.fullmatch(name))


def resolve(source: str) -> str | None:
    """Return the value that a reference means now, or None where there is none.

    Args:
        source: as `Secret.source`. A variable is looked up in the environment as it is now.
    """
    kind, _, rest = source.partition(":")
    if kind == "name":
        return _registry.named.get(rest)
    name, _, part = rest.partition("#")
    value = os.environ.get(name) if kind == "env" else None
    if not part or value is None:
        return value
    url = _URL.fullmatch(value)
    if url is None or part not in ("password", "decoded"):
        return None
    return url[3] if part == "password" else unquote(url[3])


def with_value(secret: Secret) -> Secret | None:
    """Return the secret under the name by which its value is found again, or None.

    None: it has another value now, so a reference to it would be another text. One that has none
    now stays what it is: loading it raises, and changes nothing.
    """
    now = resolve(secret.source)
    if now == secret.value:
        return secret
    others = [s for s in list(_registry.seen.values()) if s.value == secret.value]
    found = next((s for s in others if resolve(s.source) == s.value), None)
    return secret if found is None and now is None else found


def refuse(what: str, text: str) -> None:
    """Refuse a name that holds a declared value: a name has to stay what it is.

    Args:
        what: what it names, "the run_id".
        text: the name.

    Raises:
        SecretFound: it does.
    """
    found = current()
    secret = found.in_text(text) if found.secrets else None
    if secret is not None:
        raise SecretFound(
            f"{what} holds the secret {secret.source}. Nothing was written: names are written as "
            "they are. Name it by something else.",
            path=what,
            name=secret.source,
        )


def _after_fork() -> None:
    _registry.lock = signals.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
