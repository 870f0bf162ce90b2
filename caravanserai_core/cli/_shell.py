"""Words quoted for a shell, so that a printed command can be pasted."""

from __future__ import annotations

from caravanserai_core.quoting import shell_word as quote

__all__ = ["quote"]
