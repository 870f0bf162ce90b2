"""Turn a state into JSON and back without changing it, or refuse it with the path.

JSON has six types and Python has many; every library that writes JSON silently turns tuples
into lists, keys into texts, or nan into null. A state that comes back changed makes an agent go
on from something that never was. So `decode(encode(v)) == v`, types included, at every level,
in the same order - or `UnserialisableState` before anything is written.

What JSON cannot hold is tagged, readably: `{"$tuple": [1, 2]}`. `_scan` finds out whether orjson
may write a value as it is; if not, `_plain` puts the tags in. `_tags`, `_values`, `_numpy`,
`_program`, `_pydantic` and `_compact` know the types, `_types` the names, `_decode` the way back
(`_written`: whether JSON may be trusted; `_unfit`: what no longer fits), `_memo` for many states
at once. `_share` writes a list that stands in a state twice only once. `_secret` puts references in
the place of declared secrets.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

import orjson

from caravanserai_core.codec import _scan, _secret, _share, _types
from caravanserai_core.codec._decode import decode_tree, parse
from caravanserai_core.codec._fault import Fault
from caravanserai_core.codec._memo import Decoder
from caravanserai_core.codec._plain import Plain
from caravanserai_core.codec._secret import LONG, Dumps, displayed
from caravanserai_core.codec._share import Shared, at, unshare
from caravanserai_core.codec._types import register_codec, register_model, register_type
from caravanserai_core.codec._unfit import Unfit
from caravanserai_core.errors import UnserialisableState

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from typing import Any, TypeVar

    T = TypeVar("T")

__all__ = [
    "LONG",
    "Decoder",
    "Dumps",
    "Encoded",
    "Shared",
    "Unfit",
    "at",
    "decode",
    "decode_tree",
    "displayed",
    "encode",
    "expand",
    "parse",
    "pieces",
    "register_codec",
    "register_model",
    "register_type",
    "unshare",
]

_OPTIONS = (
    orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)


_running = threading.local()


class _Trap(Exception):
    """Something that only the explicit encoder can keep, found while writing."""


# All that may end one try at encoding; the last one finds the same again, and says where.
# RuntimeError: a dict that changed meanwhile, or too many calls.
_FOUND = (_Trap, Fault, RuntimeError, UnserialisableState)


class Encoded(NamedTuple):
    """A value as JSON.

    Attributes:
        data: the JSON text as UTF-8.
        tagged: whether it holds any tag; if not, it is read without looking for one.
        shared: paths of the lists that references in it mean.
    """

    data: bytes
    tagged: bool
    shared: tuple[str, ...] = ()


def encode(value: object, *, copied: bool = False) -> Encoded:
    """Write a value as JSON.

    Args:
        value: any value of the kinds that the package's documentation lists.
        copied: it stands on the same disk already; secrets in it stay as they are.

    A state that other threads change while it is saved is not a consistent snapshot: each
    container may be of another moment, and a tuple that takes the place of a list between two
    looks at it may be written as a list. Hold a lock, or save a copy. Where a change is noticed
    the state is refused.

    Returns:
        The JSON text, and whether it holds tags.

    Raises:
        UnserialisableState: if the value cannot be kept exactly; the message says where and why.
            `SecretFound` where it holds a declared secret in a form that cannot be kept.
    """
    guard = _secret.Guard(copied=copied)
    return Encoded(*_encode(value, lambda tree, dumps: dumps(tree), guard, whole=False))


def decode(
    data: bytes,
    tagged: bool,
    shared: Collection[str] = (),
    targets: Mapping[str, list[Any]] | None = None,
) -> object:
    """Read a value back.

    Args:
        data: what `encode` has written.
        tagged: what `encode` has said about it.
        shared: the same.
        targets: the lists that its references mean, by path; None: they are in it.

    Returns:
        A value equal to the one written, types included.

    Raises:
        JournalDamaged: if the text is no strict JSON.
        UnknownType: if it has a type that this program does not have.
        SchemaMismatch: if a value no longer fits its type.
    """
    tree = parse(data)
    return decode_tree(tree, shared, targets) if tagged else tree


def pieces(
    value: object,
    build: Callable[[object, Dumps], T],
    searched: Iterable[bytes] | None = None,
) -> tuple[T, bool, tuple[str, ...]]:
    """Encode a value container by container.

    For a writer that compares the bytes of each part with those of last time. `build` gets the
    value itself, or a plain JSON tree in its place where it holds anything that needs a tag; in
    that a long list of messages is opaque. It may be called again, if a try met something that
    only the explicit encoder can keep.

    orjson is never given a `default`: it borrows what it reads, and while it calls back into
    Python another thread may free just that. One gap is left: it asks an Enum for its value by
    Python code, so an Enum that another thread puts into plain data after the scan can still
    crash the interpreter if the data is changed at that very moment.

    Args:
        value: the value.
        build: called with a tree and a function that encodes any part of it to JSON. The
            bytes of a list, and of a dict whose keys are all exact str, are those of its parts,
            joined in the way of JSON; any other part must be encoded as a whole. So must a dict
            with a key that is `secret_key`.
        searched: the parts of `LONG` bytes or more of what was encoded earlier, when the same
            secrets were declared; None: nothing was. If it is given, whatever `build` gives as
            `like` must be of that too.

    Returns:
        What `build` has returned, whether the JSON holds tags, and the paths of the lists that
        references (`Shared`) in it mean; these are in the value itself.

    Raises:
        UnserialisableState: if the value cannot be kept exactly.
    """
    return _encode(value, build, _secret.Guard(searched), whole=True)


def _encode(
    value: object,
    build: Callable[[object, Dumps], T],
    guard: _secret.Guard,
    *,
    whole: bool,
) -> tuple[T, bool, tuple[str, ...]]:
    """Encode a value and say what looks like a secret; `whole`: see `_built`."""
    done = _built(value, build, guard, whole=whole)
    if guard.suspect:
        plain = Plain(_types.Session(), _dumps, checked=True)
        _secret.tell(plain.dumps(plain.encode(value)), guard.likely)
    return done


def _built(
    value: object,
    build: Callable[[object, Dumps], T],
    guard: _secret.Guard,
    *,
    whole: bool,
) -> tuple[T, bool, tuple[str, ...]]:
    """Encode a value; `whole`: what its references mean must be in it."""
    session = _types.Session()
    outer = getattr(_running, "session", None)
    _running.session = session
    try:
        try:
            if not _scan.trapped(value):
                return build(value, guard.over(_dumps)), guard.rewrote, ()
        except _FOUND:
            pass
        try:
            return _explicitly(value, build, Plain(session, _dumps, checked=False), guard, whole)
        except _FOUND:
            pass
        # Now with all checks: this run either succeeds or knows the path of what is in the way.
        return _explicitly(value, build, Plain(session, _dumps, checked=True), guard, whole)
    except _secret.Refused:
        plain = Plain(session, _dumps, checked=True)
        raise _secret.locate(plain.dumps(plain.encode(value))) from None
    except _Trap as trap:
        raise UnserialisableState(f"$: cannot be written as JSON: {trap.__cause__}") from None
    finally:
        _running.session = outer


def _explicitly(
    value: object,
    build: Callable[[object, Dumps], T],
    plain: Plain,
    guard: _secret.Guard,
    whole: bool,
) -> tuple[T, bool, tuple[str, ...]]:
    tree = plain.encode(value)
    if whole and plain.shared:
        _share.verify(value, plain.shared)
    built = build(tree, guard.over(plain.dumps))
    return built, plain.tagged or guard.rewrote, tuple(sorted(plain.shared))


def _dumps(part: object) -> bytes:
    try:
        return orjson.dumps(part, None, _OPTIONS)
    except TypeError as error:
        raise _Trap from error


def expand(part: object) -> object:
    """Open an object of the program's own types by one level.

    Args:
        part: a part of the tree that `pieces` has given.

    Returns:
        For a dataclass, pydantic model, named tuple or type with a codec the tagged object that
        is written for it, with its fields as they are; any other value as it is.

    Raises:
        UnserialisableState: if the object cannot be kept.
    """
    try:
        opened = _types.form(part)
    except Fault as fault:
        error = fault.raised()
    else:
        if opened is not part and getattr(_running, "session", None) is not None:
            # In the trees of `pieces` there are none: another thread has just put it there.
            raise _Trap
        return opened
    raise error
