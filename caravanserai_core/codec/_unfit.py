"""What a migration gets in the place of an object that no longer fits its type.

A step from one schema of a state to the next has to read what the program can no longer hold: an
object whose class is gone, has lost a field, or has lost an enum's member. It comes as a dict of
what was recorded of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from caravanserai_core.codec._fault import clean

if TYPE_CHECKING:
    from typing import Any

__all__ = ["Unfit", "of_object", "of_tag"]


class Unfit(dict[str, "Any"]):
    """The recorded fields of an object that the program's type no longer fits.

    Of a member of an Enum that is `{"name": "MEMBER"}`, of a Flag, and of a type with a codec of
    its own, `{"value": …}`. It cannot be saved: a migration puts something else in its place.

    Attributes:
        type_name: the recorded name of its type, `module:Qualified.Name` or a registered one.
    """

    def __init__(self, fields: dict[str, Any], type_name: str) -> None:
        super().__init__(fields)
        self.type_name = type_name

    def __repr__(self) -> str:
        return f"<Unfit {clean(self.type_name)}: {dict(self)!r}>"

    # An enum's member may have stood in a set, or been a key: it has to be hashable here too.
    def __hash__(self) -> int:  # type: ignore[override]
        return hash(self.type_name)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Unfit) and other.type_name != self.type_name:
            return False
        return dict.__eq__(self, other) is True

    def __ne__(self, other: object) -> bool:
        return not self == other


def of_object(content: Any) -> Unfit | None:
    """Return what stands for an `$object` with decoded content; None where that is malformed."""
    if type(content) is not dict or type(content.get("type")) is not str:
        return None
    name, kind, value = content["type"], content.get("kind"), content.get("value")
    if kind == "enum":
        return Unfit({"name": value}, name)
    if kind in ("dataclass", "namedtuple") and type(value) is dict:
        return Unfit(value, name)
    if kind == "pydantic" and type(value) is dict and type(value.get("fields")) is dict:
        extra = value.get("extra")
        return Unfit({**value["fields"], **(extra if type(extra) is dict else {})}, name)
    return Unfit({"value": value}, name)


def of_tag(tag: str, content: Any) -> Unfit | None:
    """Return the same for a tag that an adapter gave to a model of its framework."""
    if type(content) is not dict:
        return None
    fields = {name: item for name, item in content.items() if name[:1] != "_"}
    extra = content.get("_extra")
    return Unfit({**fields, **(extra if type(extra) is dict else {})}, tag[1:])
