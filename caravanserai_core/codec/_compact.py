"""Models that a state holds by the thousand: a short tag, defaults left out, written fast.

An adapter registers the model classes of its framework, each with a tag of its own:
`{"$langchain.HumanMessage": {"content": "hi"}}`. Fields that were never set and have the value
of the adapter's table are left out. The table belongs to the format and not to the class: a
framework that changes a default later does not change what was written before.

Exactly which fields were set (`model_fields_set`) is kept as well: those that are written, and
the names of the extra fields. Where that would be wrong, `_set` says it in full. Names of fields
never begin with an underscore, so `_set`, `_extra`, `_private` and `_cached` are none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from caravanserai_core.codec._fault import Fault, type_name
from caravanserai_core.codec._pydantic import Model
from caravanserai_core.codec._strict import strict

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

__all__ = ["Compact"]

_ASIDE = ("_set", "_extra", "_private", "_cached")


class Compact:
    """How objects of one model class are written under a tag of their own.

    Attributes:
        cls: the class.
        tag: its tag, with the dollar sign.
    """

    def __init__(self, cls: Any, tag: str, defaults: Mapping[str, object]) -> None:
        """Prepare a class.

        Args:
            cls: the exact class, a model of pydantic 2.
            tag: the tag, with the dollar sign.
            defaults: the value of each field that is left out where it was never set and has
                it: None, a bool, int or str, or an empty list or dict.
        """
        self.cls = cls
        self.tag = tag
        self._model = Model(cls)
        self._known = frozenset(cls.model_fields)
        self._defaults = {name: defaults[name] for name in cls.model_fields if name in defaults}
        self._atoms = [
            (name, value)
            for name, value in self._defaults.items()
            if type(value) not in (list, dict)
        ]
        # Of these each object gets one of its own.
        self._fresh = [
            (name, type(value))
            for name, value in self._defaults.items()
            if type(value) in (list, dict)
        ]
        # In the order of the class, which is that of an object's attributes.
        self._blank = {name: self._defaults.get(name) for name in cls.model_fields}
        self._others = [name for name in cls.model_fields if name not in self._defaults]
        self._count = len(cls.model_fields)
        self._extra = dict if cls.model_config.get("extra") == "allow" else type(None)
        self._simple = not cls.__private_attributes__

    def form(self, value: Any) -> dict[str, Any]:
        """What is written of an object: its tag around its fields.

        Raises:
            Fault: if it is one that cannot be kept.
        """
        return {self.tag: self.content(value)}

    def content(self, value: Any) -> dict[str, Any]:
        """The fields to write of an object, in a new dict; they may hold any value.

        Raises:
            Fault: if it is one that cannot be kept.
        """
        try:
            fields: dict[str, Any] = value.__dict__.copy()
            names = value.__pydantic_fields_set__
            extra = value.__pydantic_extra__
            if (
                not extra
                and type(extra) is self._extra
                and value.__pydantic_private__ is None
                and len(fields) == self._count
            ):
                for name, default in self._atoms:
                    if name not in names and fields[name] is default:
                        del fields[name]
                for name, kind in self._fresh:
                    if name not in names:
                        item = fields[name]
                        if not item and type(item) is kind:
                            del fields[name]
                if fields.keys() == names and names <= self._known:
                    return fields
        except (AttributeError, KeyError, TypeError):
            pass
        return self._unusual(value)

    def _unusual(self, value: Any) -> dict[str, Any]:
        """The same for any object: extra fields, defaults that were set, and stranger things."""
        content: Any = self._model.content(value)
        names = set(content["set"])
        written = {
            name: item
            for name, item in content["fields"].items()
            if name in names or not self._is_default(name, item)
        }
        extra = content.get("extra")
        if extra is not None and self._extra is not dict:
            raise Fault(f"{type_name(self.cls)} holds extra fields, which it does not keep")
        if names != written.keys() | (extra or {}).keys():
            written["_set"] = content["set"]
        if extra:
            written["_extra"] = extra
        for part in ("private", "cached"):
            if part in content:
                written[f"_{part}"] = content[part]
        return written

    def _is_default(self, name: str, item: object) -> bool:
        if name not in self._defaults:
            return False
        default = self._defaults[name]
        return type(item) is type(default) and item == default

    def rebuild(self, content: Any) -> object:
        """The object, from what was written of it.

        Raises:
            Fault: if it no longer fits the class.
        """
        strict(type(content) is dict)
        if not self._simple or not content.keys() <= self._known:
            return self._rebuild_unusual(content)
        names = set(content)
        fields = self._complete(content)
        value: Any = object.__new__(self.cls)
        put = object.__setattr__
        put(value, "__dict__", fields)
        put(value, "__pydantic_fields_set__", names)
        put(value, "__pydantic_extra__", {} if self._extra is dict else None)
        put(value, "__pydantic_private__", None)
        return value

    def _rebuild_unusual(self, content: dict[str, Any]) -> object:
        written = {name: item for name, item in content.items() if name not in _ASIDE}
        extra = content.get("_extra")
        strict("_extra" not in content or (type(extra) is dict and extra))
        names = content.get("_set", [*written, *(extra or ())])
        if written.keys() <= self._known:
            written = self._complete(written)
        parts = {"fields": written, "set": names, "extra": extra}
        for part in ("private", "cached"):
            if f"_{part}" in content:
                parts[part] = content[f"_{part}"]
        return self._model.rebuild(parts)

    def _complete(self, written: dict[str, Any]) -> dict[str, Any]:
        """All fields of the class, in its order."""
        fields = {**self._blank, **written}
        for name, kind in self._fresh:
            if name not in written:
                fields[name] = kind()
        for name in self._others:
            if name not in written:
                # It has to be there, or the class has got it since.
                del fields[name]
        return fields if len(fields) == self._count else self._model.completed(fields)
