"""Models of pydantic (version 2), where the program has imported it."""

from __future__ import annotations

import sys
from functools import cached_property
from types import MemberDescriptorType
from typing import TYPE_CHECKING

from caravanserai_core.codec._fault import Fault, clean, type_name
from caravanserai_core.codec._program import ABSENT, Plan, class_attribute, shown, slots, stray

if TYPE_CHECKING:
    from typing import Any

__all__ = ["Model"]

_NEEDED = {"fields", "set"}
_PARTS = {*_NEEDED, "extra", "private", "cached"}
_OWN_SLOTS = {"__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__"}


class Model(Plan):
    """A pydantic model: its fields, which of them were set, extra fields, private attributes.

    Validation is left out when it is read: it may change values, ask the network, or fail on
    what the program itself had put there.
    """

    kind = "pydantic"

    def __init__(self, cls: Any) -> None:
        super().__init__(cls)
        self._fields: dict[str, Any] = dict(cls.model_fields)
        self._names = tuple(self._fields)
        self._private: dict[str, Any] = dict(cls.__private_attributes__)
        self._keeps_extra = cls.model_config.get("extra") == "allow"
        # A RootModel has these two as constants of the class (pydantic 2.0 to 2.14): set on an
        # object they would land among its fields.
        self._is_root = not isinstance(
            class_attribute(cls, "__pydantic_extra__"), MemberDescriptorType
        )
        for slot in slots(cls):
            if slot.__name__ not in _OWN_SLOTS:
                raise Fault(
                    f"{type_name(cls)} has a slot {clean(slot.__name__)} that would be lost; make "
                    "it a private attribute"
                )

    def content(self, value: Any) -> object:
        get = object.__getattribute__
        try:
            fields = get(value, "__dict__").copy()
            names, extra, private = (
                get(value, f"__pydantic_{part}__") for part in ("fields_set", "extra", "private")
            )
        except AttributeError:
            raise Fault(
                f"{type_name(self.cls)} was never initialised; make it by its constructor, "
                "model_validate or model_construct"
            ) from None
        if type(names) is not set or not all(type(name) is str for name in names):
            raise Fault(f"{type_name(self.cls)} has a strange set of fields; make it anew")
        content = {"fields": fields, "set": sorted(names)}
        if tuple(fields) != self._names:
            self._split(fields, content)
        if extra is not None:
            content["extra"] = extra
        if private is not None:
            content["private"] = private
        return content

    def _split(self, attributes: dict[str, Any], content: dict[str, Any]) -> None:
        for name in self._names:
            if name not in attributes:
                raise Fault(
                    f"{type_name(self.cls)} has no value for its field {clean(name)}; set it "
                    "before saving"
                )
        cached = {name: item for name, item in attributes.items() if name not in self._fields}
        for name in cached:
            if not isinstance(class_attribute(self.cls, name), cached_property):
                raise stray(self.cls, name)
        if cached:
            content["fields"] = {key: item for key, item in attributes.items() if key not in cached}
            content["cached"] = cached

    def rebuild(self, content: Any) -> object:
        if type(content) is not dict or not content.keys() >= _NEEDED or content.keys() - _PARTS:
            raise self.mismatch("is not stored as a pydantic model")
        names, extra, private = content["set"], content.get("extra"), content.get("private")
        if type(names) is not list or not all(type(name) is str for name in names):
            raise self.mismatch("is stored with a wrong set of fields")
        stored = content["fields"]
        if type(stored) is dict and set(stored) != set(self._names):
            fields = self.completed(stored)
        elif type(stored) is dict:
            fields = stored
        else:
            raise self.mismatch("is stored without fields")
        if type(extra) not in (dict, type(None)) or (extra and not self._keeps_extra):
            raise self.mismatch(
                "keeps no extra fields any more; set extra='allow', or migrate the state"
            )
        cached = content.get("cached", {})
        if type(cached) is not dict or not all(
            type(name) is str and isinstance(class_attribute(self.cls, name), cached_property)
            for name in cached
        ):
            raise self.mismatch("has no such cached property any more; migrate the state")
        value: Any = object.__new__(self.cls)
        put = object.__setattr__
        put(value, "__dict__", {**fields, **cached})
        put(value, "__pydantic_fields_set__", set(names))
        if not self._is_root:
            put(value, "__pydantic_extra__", (extra or {}) if self._keeps_extra else None)
            put(value, "__pydantic_private__", self._privates(private))
        return value

    def _privates(self, stored: Any) -> dict[str, Any] | None:
        if type(stored) not in (dict, type(None)):
            raise self.mismatch("is stored with wrong private attributes")
        for name in stored or ():
            if name not in self._private:
                raise self.mismatch(
                    f"has no private attribute {shown(name)} any more; migrate the state"
                )
        if not self._private or stored is not None:
            return stored if self._private else None
        values = {name: private.get_default() for name, private in self._private.items()}
        undefined = sys.modules["pydantic_core"].PydanticUndefined
        return {name: value for name, value in values.items() if value is not undefined}

    def completed(self, stored: dict[str, Any]) -> dict[str, Any]:
        """The stored fields with the defaults of those that the class has got since.

        Raises:
            Fault: if one is stored that the class does not have, or one has no default.
        """
        return self.complete(stored, self._names, self._default(stored))

    def _default(self, stored: dict[str, Any]) -> Any:
        def default(name: str) -> object:
            field = self._fields[name]
            if field.is_required():
                return ABSENT
            if getattr(field, "default_factory_takes_validated_data", False):
                return field.get_default(call_default_factory=True, validated_data=stored)
            return field.get_default(call_default_factory=True)

        return default
