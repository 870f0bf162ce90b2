"""How objects of the program's own types are taken apart and rebuilt.

Each plan knows one class. `content` gives the fields of an object as they are, never through
the class's own methods; `rebuild` sets them the same way, so no constructor, validator or
post-init hook of the program runs when a state is read.
"""

from __future__ import annotations

import dataclasses
import enum
import sys
from types import BuiltinFunctionType, MemberDescriptorType
from typing import TYPE_CHECKING

from caravanserai_core.codec._fault import Fault, clean, step, type_name
from caravanserai_core.codec._refuse import is_secret
from caravanserai_core.errors import SchemaMismatch

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["ABSENT", "Plan", "class_attribute", "own_attributes", "plan", "shown", "slots", "stray"]

ABSENT = object()
"""In place of a value that is not there."""

_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE, Include/object.h


class Plan:
    """How objects of one class are kept.

    Attributes:
        kind: what is written next to the name of the class.
        cls: the class.
    """

    kind = ""

    def __init__(self, cls: type) -> None:
        self.cls = cls

    def content(self, value: Any) -> object:
        """What is written of an object; may hold any value."""
        raise NotImplementedError

    def rebuild(self, content: Any) -> object:
        """The object, from what was written of it."""
        raise NotImplementedError

    def mismatch(self, problem: str) -> Fault:
        """The fault of stored content that no longer fits the class."""
        return Fault(f"{type_name(self.cls)} {problem}", SchemaMismatch)

    def complete(
        self, stored: Any, names: tuple[str, ...], default: Callable[[str], object]
    ) -> dict[str, Any]:
        """The stored fields with the defaults of those that the class has got since."""
        if type(stored) is not dict:
            raise self.mismatch("is stored without fields")
        if tuple(stored) == names:
            return stored
        for name in stored:
            if name not in names:
                raise self.mismatch(
                    f"has no field {shown(name)} any more; give the class the field again, or "
                    "migrate the state"
                )
        fields: dict[str, Any] = {}
        for name in names:
            value = stored[name] if name in stored else default(name)
            if value is ABSENT:
                raise self.mismatch(
                    f"has a field {shown(name)} that is not stored and has no default; "
                    "give it a default, or migrate the state"
                )
            fields[name] = value
        return fields


class Dataclass(Plan):
    """A dataclass, frozen or not, with or without slots."""

    kind = "dataclass"

    def __init__(self, cls: type) -> None:
        super().__init__(cls)
        self._fields = {field.name: field for field in dataclasses.fields(cls)}
        self._names = tuple(self._fields)
        members = slots(cls)
        self._plain = not members
        self._stray = [slot for slot in members if slot.__name__ not in self._fields]
        for name in self._names:
            found = class_attribute(cls, name)
            if not isinstance(found, MemberDescriptorType) and hasattr(type(found), "__set__"):
                raise Fault(
                    f"{type_name(cls)} computes its field {clean(name)}; store it as a plain "
                    "field, or register_codec(cls, name=...)"
                )

    def content(self, value: Any) -> object:
        own = own_attributes(value).copy()  # another thread may change it after this look at it
        if self._plain and tuple(own) == self._names:
            return own
        for name in own:
            if name not in self._fields:
                raise stray(self.cls, name)
        for slot in self._stray:
            if _slot_value(value, slot) is not ABSENT:
                raise stray(self.cls, slot.__name__)
        fields = {}
        for name in self._names:
            try:
                fields[name] = object.__getattribute__(value, name)
            except AttributeError:
                raise Fault(
                    f"{type_name(self.cls)} has no value for its field {clean(name)} yet; set it "
                    "before saving"
                ) from None
        return fields

    def rebuild(self, content: Any) -> object:
        fields = self.complete(content, self._names, self._default)
        value: Any = object.__new__(self.cls)
        if self._plain:
            own_attributes(value).update(fields)
        else:
            for name, item in fields.items():
                object.__setattr__(value, name, item)
        return value

    def _default(self, name: str) -> object:
        field = self._fields[name]
        if field.default is not dataclasses.MISSING:
            return field.default
        if field.default_factory is not dataclasses.MISSING:
            return field.default_factory()
        return ABSENT


class NamedTuple(Plan):
    """A class made by `collections.namedtuple` or `typing.NamedTuple`."""

    kind = "namedtuple"

    def __init__(self, cls: Any) -> None:
        super().__init__(cls)
        self._names: tuple[str, ...] = cls._fields
        self._defaults: dict[str, object] = dict(class_attribute(cls, "_field_defaults") or {})

    def content(self, value: Any) -> object:
        items = tuple.__getitem__(value, slice(None))
        if own_attributes(value) or len(items) != len(self._names):
            raise Fault(
                f"{type_name(self.cls)} holds more or less than its fields; make it a dataclass"
            )
        return dict(zip(self._names, items, strict=True))

    def rebuild(self, content: Any) -> object:
        fields = self.complete(content, self._names, lambda name: self._defaults.get(name, ABSENT))
        return tuple.__new__(self.cls, fields.values())


class EnumMember(Plan):
    """A member of an Enum that is no Flag, by its name."""

    kind = "enum"

    def content(self, value: Any) -> object:
        name: object = value._name_
        if self._members().get(name) is not value:
            raise Fault(f"no member of {type_name(self.cls)}; keep a declared member")
        return name

    def rebuild(self, content: Any) -> object:
        member = self._members().get(content) if type(content) is str else None
        if member is None:
            raise self.mismatch(
                f"has no member {shown(content)} any more; give it that name as an alias, or "
                "migrate the state"
            )
        return member

    def _members(self) -> dict[object, object]:
        members: dict[object, object] = self.cls._member_map_  # type: ignore[attr-defined]
        return members


class FlagMember(Plan):
    """A member of a Flag or a combination of some, by its int."""

    kind = "flag"

    def content(self, value: Any) -> object:
        number: object = value._value_
        if type(number) is not int or self._member(number) is not value:
            raise Fault(f"no value of {type_name(self.cls)}; keep a combination of its members")
        return number

    def rebuild(self, content: Any) -> object:
        member = self._member(content) if type(content) is int else None
        if member is None:
            raise self.mismatch(
                "no longer has all the bits that are stored; add the members again, or migrate "
                "the state"
            )
        return member

    def _member(self, number: int) -> object:
        cls: Any = self.cls
        member = cls._value2member_map_.get(number)
        if member is None:
            try:
                # Flag's own, not the program's: makes the one object of this combination.
                member = enum.Flag._missing_.__func__(cls, number)  # type: ignore[attr-defined]
            except ValueError:
                return None
        exact = type(member) is cls and member._value_ == number
        return member if exact else None


def plan(cls: type) -> Plan | None:
    """The plan for a class of a kind that is known; None for any other.

    Raises:
        Fault: if the class is of a known kind and yet cannot be kept.
    """
    if is_secret(cls):
        return None
    if issubclass(cls, enum.Flag):
        return FlagMember(cls)
    if issubclass(cls, enum.Enum):
        return EnumMember(cls)
    if issubclass(cls, tuple):
        names = class_attribute(cls, "_fields")
        known = type(names) is tuple and all(type(name) is str for name in names)
        return NamedTuple(cls) if known else None
    if not _is_bare(cls):
        return None
    # Not pydantic.BaseModel, which pydantic imports only when it is asked for.
    pydantic: Any = sys.modules.get("pydantic.main")
    if pydantic is not None and issubclass(cls, pydantic.BaseModel):
        from caravanserai_core.codec import _pydantic

        return _pydantic.Model(cls)
    return Dataclass(cls) if dataclasses.is_dataclass(cls) else None


def _is_bare(cls: type) -> bool:
    """Whether an object has no other content than its attributes: no builtin is its base.

    The first base that is no Python class, or that brings its own `__new__` in C, is what
    decides about the layout (`copyreg` looks for it the same way).
    """
    for base in cls.__mro__:
        if not base.__flags__ & _HEAP_TYPE:
            return base is object
        new = vars(base).get("__new__")
        if isinstance(new, BuiltinFunctionType) and new.__self__ is base:
            return False
    return False


def slots(cls: type) -> list[MemberDescriptorType]:
    """All slots of a class and its bases."""
    return [
        item
        for base in cls.__mro__
        for item in vars(base).values()
        if isinstance(item, MemberDescriptorType)
    ]


def own_attributes(value: object) -> dict[str, Any]:
    """An object's `__dict__`; empty if it has none."""
    try:
        own: dict[str, Any] = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return own


def class_attribute(cls: type, name: str) -> Any:
    """What a class has under a name, itself or by its bases, without any descriptor's help."""
    for base in cls.__mro__:
        if name in vars(base):
            return vars(base)[name]
    return None


def _slot_value(value: object, slot: MemberDescriptorType) -> object:
    try:
        return slot.__get__(value)
    except AttributeError:
        return ABSENT


def stray(cls: type, name: object) -> Fault:
    """The fault of an attribute that is no field."""
    if name == "__orig_class__":  # set by typing on what is made as Box[int](…)
        return Fault(
            f"{type_name(cls)} was made with a type in brackets, which would be lost; make it "
            "without"
        )
    return Fault(
        f"{type_name(cls)} holds an attribute {shown(name)} that is no field and would be lost; "
        "make it a field, or remove it before saving"
    )


def shown(name: object) -> str:
    """The name of a field for a message."""
    return clean(name) if isinstance(name, str) else step(name)
