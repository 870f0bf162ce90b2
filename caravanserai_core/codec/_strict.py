"""What readers of tags ask of the content that they are given."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from caravanserai_core import secrets
from caravanserai_core.codec._fault import secret_refused

if TYPE_CHECKING:
    from typing import Any

__all__ = ["Malformed", "base64_bytes", "base64_text", "read_items", "read_text", "strict"]


class Malformed(ValueError):
    """The content of a tag is not what its writer writes; the text holds no value."""


def strict(condition: object, problem: str = "its content has the wrong form") -> None:
    """Refuse what a writer of this module would not have written."""
    if not condition:
        raise Malformed(problem)


def read_text(content: object) -> str:
    """The content, if it is a text."""
    if type(content) is not str:
        raise Malformed("a text is expected")
    return content


def read_items(content: object) -> list[Any]:
    """The content, if it is a list."""
    if type(content) is not list:
        raise Malformed("a list is expected")
    return content


def base64_text(data: bytes) -> str:
    """Bytes as base64 with padding (RFC 4648 section 4).

    Raises:
        Fault: they hold a declared secret. Once they are base64, one that is encoded in them
            could not be found.
    """
    found = secrets.current()
    if found.among(data):
        raise secret_refused(next(found.places(data))[1].source)
    return _base64(data)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def base64_bytes(content: object) -> bytes:
    """The reverse of `base64_text`; any other spelling of the same bytes is refused."""
    text = read_text(content)
    data = base64.b64decode(text, validate=True)
    strict(_base64(data) == text, "not base64 as it is written here")
    return data
