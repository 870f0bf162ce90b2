"""Which types of the program may be kept, and under which name.

The registry is closed: reading never imports a module that a file names. A class is found among
the modules that the program has imported anyway, or under a stable name that the program has
given with `register_type`. A class that could not be found again under its own name is refused
when it is written, not when it is read.
"""

from __future__ import annotations

import re
import sys
import threading
import weakref
from types import ModuleType
from typing import TYPE_CHECKING

from caravanserai_core.codec import _program, _secret, _tags, _values
from caravanserai_core.codec._fault import Fault, clean, type_name
from caravanserai_core.codec._refuse import is_secret
from caravanserai_core.codec._strict import strict
from caravanserai_core.errors import UnknownType, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, TypeVar

    from caravanserai_core.codec._compact import Compact

    T = TypeVar("T")

__all__ = [
    "COMPACT",
    "TAGS",
    "Session",
    "form",
    "read_object",
    "register_codec",
    "register_model",
    "register_type",
]

_JSON_TYPES = frozenset({str, int, float, bool, type(None), list, dict})

_FINALIZER = (
    "has a __del__, which would run for a copy too; if that is harmless, "
    'register_type(cls, name="...")'
)

_lock = threading.RLock()
_names: dict[type, str] = {}
_classes: dict[str, type] = {}
_codecs: dict[type, _Codec] = {}
_plans: weakref.WeakKeyDictionary[type, _program.Plan] = weakref.WeakKeyDictionary()

COMPACT: dict[type, Compact] = {}
"""The model classes that have a tag of their own."""

TAGS: dict[str, Compact] = {}
"""The same by tag."""


def register_type(
    cls: type[T] | None = None, *, name: str | None = None, aliases: Iterable[str] = ()
) -> Any:
    """Give a type of the program a name that stays when the class moves or is renamed.

    Works as a call, `register_type(Order, name="order")`, and as a decorator,
    `@register_type(name="order")`.

    Args:
        cls: a dataclass, pydantic model, named tuple or Enum.
        name: what is written into files in place of `module:Class`; by default that.
        aliases: other names to find it by, such as its former `module:Class`.

    Returns:
        The class itself (or, without a class, a decorator).

    Raises:
        UsageError: if it is no class, or another class has one of these names.
    """
    if cls is None:
        return lambda decorated: _register(decorated, name, aliases, decorates=True)
    return _register(cls, name, aliases, decorates=False)


def _register(cls: Any, name: str | None, aliases: Iterable[str], *, decorates: bool) -> Any:
    if not isinstance(cls, type):
        raise UsageError("register_type: the first argument must be a class")
    others = [aliases] if isinstance(aliases, str) else list(aliases)
    if name is None and "<locals>" in _own_name(cls)[1]:
        raise UsageError(
            f"register_type: {type_name(cls)} is made inside a function and has no name to be "
            'found by; give it one: register_type(cls, name="...")'
        )
    with _lock:
        _claim(cls, others if name is None else [name, *others], decorates=decorates)
        if name is not None:
            _names[cls] = name
    return cls


def register_codec(
    cls: type[T],
    *,
    name: str,
    encode: Callable[[T], object],
    decode: Callable[[object], T],
) -> None:
    """Say how a class of a framework is kept that is none of the kinds known here.

    Args:
        cls: the exact class; subclasses need their own.
        name: what is written into files as its type.
        encode: gives a value of simpler types, which is encoded in turn.
        decode: makes the object from that value again.

    Raises:
        UsageError: if it is no class, is kept already, or another class has this name.
    """
    if not isinstance(cls, type):
        raise UsageError("register_codec: the first argument must be a class")
    if cls in _tags.EXACT or cls in _JSON_TYPES or _late(cls) is not None:
        raise UsageError(f"register_codec: {type_name(cls)} is kept exactly as it is")
    if is_secret(cls):
        raise UsageError(f"register_codec: {type_name(cls)} is a secret, which no file may hold")
    with _lock:
        _claim(cls, [name], decorates=False)
        _names[cls] = name
        _codecs[cls] = _Codec(cls, encode, decode)
        _plans.pop(cls, None)


def register_model(cls: type, *, tag: str, defaults: Mapping[str, object]) -> None:
    """Give a model class of a framework a short tag of its own.

    A subclass does not share it; it is kept as any other model. What was written of this class
    before it had the tag is still read.

    Args:
        cls: the exact class, a model of pydantic 2.
        tag: the name of the adapter, a dot, and a name that stays: `langchain.HumanMessage`.
        defaults: the value of each field that is left out where it was never set and has it:
            None, a bool, int or str, or an empty list or dict. Part of the format: a value
            must never change.

    Raises:
        UsageError: if the tag has another form or belongs to another class.
    """
    from caravanserai_core.codec._compact import Compact

    if not re.fullmatch(r"[a-z][a-z0-9_]*\.[A-Za-z][A-Za-z0-9_]*", tag):
        raise UsageError(f"register_model: {clean(tag)!r} is not of the form adapter.Name")
    with _lock:
        known = TAGS.get(f"${tag}")
        if (
            known is not None
            and known.cls is not cls
            and not _replaces(cls, known.cls, decorates=False)
        ):
            raise UsageError(
                f"register_model: the tag {tag} already belongs to {type_name(known.cls)}"
            )
        if known is not None:
            COMPACT.pop(known.cls, None)
        COMPACT[cls] = TAGS[f"${tag}"] = Compact(cls, f"${tag}", defaults)


def _claim(cls: type, names: list[Any], *, decorates: bool) -> None:
    for name in names:
        if not isinstance(name, str) or not name:
            raise UsageError("register_type: a name must be a non-empty string")
        other = _classes.get(name, cls)
        if other is not cls and not _replaces(cls, other, decorates=decorates):
            which = "another class " if _own_name(other) == _own_name(cls) else ""
            raise UsageError(
                f"register_type: the name {clean(name)!r} already belongs to "
                f"{which}{type_name(other)}; choose another"
            )
    for name in names:
        other = _classes.get(name, cls)
        if other is not cls:
            # The same class again, after a reload or a second run of a notebook's cell.
            _names.pop(other, None)
            _codecs.pop(other, None)
            _plans.pop(other, None)
        _classes[name] = cls


def _replaces(cls: type, other: type, *, decorates: bool) -> bool:
    """Whether a class is `other` defined again, by a reload or a second run of a notebook's cell.

    Two classes that a function or `namedtuple` has made under one name are not. A decorator runs
    before its class gets the name, so what stands there now says nothing about it.
    """
    module, qualname = _own_name(cls)
    if _own_name(other) != (module, qualname) or "<locals>" in qualname:
        return False
    return decorates or _locate(module, qualname) is cls


class _Codec(_program.Plan):
    """A class that an adapter has registered with its own two functions."""

    kind = "codec"

    def __init__(
        self, cls: type, encode: Callable[[Any], object], decode: Callable[[object], Any]
    ) -> None:
        super().__init__(cls)
        self._encode = encode
        self._decode = decode

    def content(self, value: Any) -> object:
        try:
            return self._encode(value)
        except Exception as error:
            raise Fault(
                f"the codec of {type_name(self.cls)} failed with {type(error).__name__}"
            ) from error

    def rebuild(self, content: Any) -> object:
        value = self._decode(content)
        if type(value) is not self.cls:
            raise self.mismatch(f"came out of its codec as {type_name(type(value))}")
        return value


def _own_name(cls: type) -> tuple[str, str]:
    module = type.__getattribute__(cls, "__module__")
    name = type.__getattribute__(cls, "__qualname__")
    # What multiprocessing calls the main module in a child that it has spawned.
    return "__main__" if module == "__mp_main__" else str(module), name


def _script() -> str | None:
    """What tells one `__main__` from another: the module's or the file's name."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name)
    file = getattr(main, "__file__", None)
    # Not pathlib, which nothing else here imports: it takes longer than all of this package.
    return re.split(r"[\\/]", file)[-1] if isinstance(file, str) else None


def _locate(module: str, qualname: str) -> object:
    """The object of this name in an imported module, or None; runs no code of the module."""
    found: Any = sys.modules.get(module)
    if not isinstance(found, ModuleType):
        return None
    # Not getattr: a module's own __getattr__ may import others.
    space = ModuleType.__getattribute__(found, "__dict__")
    if qualname in space:  # the name of a generic model, such as Model[a.B], holds dots
        return space[qualname]
    for part in qualname.split("."):
        found = space.get(part)
        if not isinstance(found, type):
            return None
        space = type.__getattribute__(found, "__dict__")
    return found


class Session:
    """The types met while one value is encoded, each looked up once."""

    __slots__ = ("_converters",)

    def __init__(self) -> None:
        self._converters: dict[type, Callable[[Any], dict[str, Any]] | None] = {}

    def converter(self, cls: type) -> Callable[[Any], dict[str, Any]] | None:
        """What makes the stored form of an object of this exact class; None if nothing does.

        Raises:
            Fault: if the class is one that could be kept and has no name to be found under.
        """
        try:
            return self._converters[cls]
        except KeyError:
            convert = _late(cls)
            if convert is None:
                convert = _program_form(cls)
            self._converters[cls] = convert
            return convert


def _late(cls: type) -> Callable[[Any], dict[str, Any]] | None:
    name = type.__getattribute__(cls, "__name__")
    module, write = _values.LATE.get(name, ("", None))
    if write is not None and getattr(sys.modules.get(module), name, None) is cls:
        return write
    if is_secret(cls):
        return _secret.wrapper(cls)
    if "numpy" in sys.modules:
        from caravanserai_core.codec import _numpy

        return _numpy.writer(cls)
    return None


def _plan(cls: type) -> _program.Plan | None:
    plan = _plans.get(cls)
    if plan is None:
        plan = _codecs.get(cls) or _program.plan(cls)
        if plan is not None:
            _plans[cls] = plan
    return plan


def _program_form(cls: type) -> Callable[[Any], dict[str, Any]] | None:
    compact = COMPACT.get(cls)
    if compact is not None:
        return compact.form
    plan = _plan(cls)
    if plan is None:
        return None
    name = _names.get(cls)
    head: dict[str, Any] = {"type": name, "kind": plan.kind}
    if name is None:
        if hasattr(cls, "__del__"):
            raise Fault(f"the type {type_name(cls)} {_FINALIZER}")
        module, qualname = _own_name(cls)
        if "<locals>" in qualname or _locate(module, qualname) is not cls:
            raise Fault(
                f"the {plan.kind} {clean(f'{module}.{qualname}')} would not be found again under "
                "its own name; define it at the top of a module, or give it a name: "
                'register_type(cls, name="...")'
            )
        name = head["type"] = f"{module}:{qualname}"
        if _classes.get(name, cls) is not cls:
            raise Fault(
                f"the name of the {plan.kind} {clean(name)} is an alias of another class, "
                'which it would come back as; give it a name: register_type(cls, name="...")'
            )
        script = _script() if module == "__main__" else None
        if script is not None:
            head["script"] = script
    content = plan.content
    return lambda value: {"$object": {**head, "value": content(value)}}


def form(value: object) -> object:
    """The stored form of an object of the program, one level deep; other values as they are."""
    cls = type(value)
    known = cls in COMPACT or _plan(cls) is not None
    convert = _program_form(cls) if known else None
    return value if convert is None else convert(value)


def read_object(content: Any) -> object:
    """Rebuild an object of the program from the content of `$object`.

    Raises:
        Fault: if the program has no such class, or its fields no longer fit.
    """
    strict(type(content) is dict)
    strict(content.keys() - {"script"} == {"type", "kind", "value"})
    name, kind = content["type"], content["kind"]
    strict(type(name) is str and type(kind) is str)
    cls = _find(name, content.get("script"))
    plan = _plan(cls)
    if name not in _classes and hasattr(cls, "__del__"):
        raise Fault(f"the type {clean(name)} {_FINALIZER}", UnknownType, name)
    if plan is None or plan.kind != kind:
        raise Fault(
            f"stored as a {clean(kind)} named {clean(name)}, which is something else in this "
            'program; give the name to the right class: register_type(cls, name="...")',
            UnknownType,
            name,
        )
    return plan.rebuild(content["value"])


def _find(name: str, script: object) -> type:
    cls: object = _classes.get(name)
    if cls is None:
        module, _, qualname = name.partition(":")
        if module != "__main__" or script == _script():
            cls = _locate(module, qualname)
    if isinstance(cls, type):
        return cls
    if isinstance(script, str) and script != _script():
        advice = (
            f"belongs to the program {clean(script)}, which this is not: give the class a name "
            "that also stands for the old one, "
            f'register_type(cls, name="...", aliases=["{clean(name)}"])'
        )
    else:
        advice = (
            "is unknown here: import the module that defines it before loading; if it was moved "
            'or renamed, register_type(cls, name="...", aliases=["its old name"])'
        )
    raise Fault(
        f"the type {clean(name)} {advice}",
        UnknownType,
        name,
    )
