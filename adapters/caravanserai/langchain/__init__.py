"""LangChain: messages kept exactly, histories of chats as runs, and runs handed to LangChain.

    from caravanserai import checkpoint, langchain

    langchain.register()
    checkpoint("my-run", {"messages": messages}, "asked the model")

Importing this module imports no part of LangChain: `transcript` reads conversations without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from caravanserai.langchain._handing import messages_from
    from caravanserai.langchain._history import WaypointChatMessageHistory
    from caravanserai.langchain._messages import register

__all__ = ["WaypointChatMessageHistory", "messages_from", "register"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        if name == "WaypointChatMessageHistory":
            from caravanserai.langchain._history import WaypointChatMessageHistory

            return WaypointChatMessageHistory
        from caravanserai.langchain import _handing, _messages
    except ModuleNotFoundError as error:
        # A module that is missing inside of it is another fault, and says so itself.
        if error.name != "langchain_core":
            raise
        raise ImportError(
            'langchain-core is not installed: pip install "caravanserai[langchain]"',
            name=error.name,
        ) from None
    return getattr(_messages if name == "register" else _handing, name)
