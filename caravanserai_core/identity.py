"""Names of runs that are made of parts: a tenant, a user, a session."""

from __future__ import annotations

from uuid import UUID

from caravanserai_core.errors import UsageError
from caravanserai_core.quoting import one_line

_SET_APART = "%/="


def run_key(**parts: str | int | UUID) -> str:
    """Make one run's name of several parts: `run_key(user=7, tenant="acme")`.

    The name reads `tenant=acme/user=7`. It is the same in every process and in whatever order
    the parts are given, and two different sets of parts never have the same name: `%`, `/`, `=`,
    white space and what cannot be printed are written as `%` and two hexadecimal digits for each
    byte of their UTF-8. An int or a UUID is its text, so `user=7` and `user="7"` are one user.

    Args:
        **parts: each a text that is not empty, an int or a UUID.

    Returns:
        The name.

    Raises:
        UsageError: there is no part, or one is empty, None or of another type: a run that belongs
            to nobody would be everybody's.
    """
    if not parts:
        raise UsageError("run_key() takes at least one part, such as user=7")
    return "/".join(f"{_part(name)}={_part(_text(name, parts[name]))}" for name in sorted(parts))


def _text(name: str, value: object) -> str:
    if type(value) is int or isinstance(value, UUID):
        return str(value)
    if type(value) is str and value:
        return value
    what = "an empty text" if value == "" else f"a value of the type {type(value).__name__}"
    raise UsageError(
        f"run_key(): {one_line(name, 40)} is {what}; a part is a text that is not empty, an int or "
        "a UUID"
    )


def _part(text: str) -> str:
    if text.isalnum():
        return text
    return "".join(
        char
        if char.isprintable() and not char.isspace() and char not in _SET_APART
        else "".join(f"%{byte:02X}" for byte in char.encode("utf-8", "surrogatepass"))
        for char in text
    )
