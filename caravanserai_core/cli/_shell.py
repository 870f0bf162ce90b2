"""Words quoted for a shell, so that a printed command can be pasted."""

from __future__ import annotations

import shlex

from caravanserai_core.quoting import visible


def quote(text: str) -> str:
    """Quote one word for a shell; control characters become visible in a `$'…'` word.

    That form is known to bash, zsh, ksh and POSIX.1-2024.
    """
    if visible(text) == text and "\n" not in text and "\t" not in text:
        return shlex.quote(text)
    parts: list[str] = []
    for char in text:
        if char in "\\'":
            parts.append("\\" + char)
        elif visible(char) == char and char not in "\n\t":
            parts.append(char)
        else:
            # Bytes in octal, three digits each: no digit that follows can be taken for one.
            data = char.encode(
                "utf-8", "surrogateescape" if "\udc80" <= char <= "\udcff" else "replace"
            )
            parts.append("".join(f"\\{byte:03o}" for byte in data))
    return f"$'{''.join(parts)}'"
