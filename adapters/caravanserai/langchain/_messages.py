"""How LangChain's messages and documents are written: `{"$langchain.HumanMessage": {…}}`.

Of some ten fields a message usually has set two to five; the others have the values of the
tables here and are left out. The tables are part of the format: a field that LangChain adds
later is written as it is, and one whose default it changes comes back as it was.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    BaseMessageChunk,
    ChatMessage,
    ChatMessageChunk,
    FunctionMessage,
    FunctionMessageChunk,
    HumanMessage,
    HumanMessageChunk,
    RemoveMessage,
    SystemMessage,
    SystemMessageChunk,
    ToolMessage,
    ToolMessageChunk,
)
from langchain_core.messages.base import TextAccessor
from langchain_core.prompt_values import (
    ChatPromptValue,
    ChatPromptValueConcrete,
    ImagePromptValue,
    StringPromptValue,
)

from caravanserai_core import codec

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["TABLES", "register"]

_BASE: Final[dict[str, object]] = {
    "additional_kwargs": {},
    "response_metadata": {},
    "name": None,
    "id": None,
}
_AI: Final = {**_BASE, "tool_calls": [], "invalid_tool_calls": [], "usage_metadata": None}
_AI_CHUNK: Final = {**_AI, "tool_call_chunks": [], "chunk_position": None}
_TOOL: Final = {**_BASE, "artifact": None, "status": "success"}
_FUNCTION: Final = {name: value for name, value in _BASE.items() if name != "name"}

TABLES: Final[dict[type, Mapping[str, object]]] = {
    AIMessage: {**_AI, "type": "ai"},
    AIMessageChunk: {**_AI_CHUNK, "type": "AIMessageChunk"},
    BaseMessage: _BASE,
    BaseMessageChunk: _BASE,
    ChatMessage: {**_BASE, "type": "chat"},
    ChatMessageChunk: {**_BASE, "type": "ChatMessageChunk"},
    FunctionMessage: {**_FUNCTION, "type": "function"},
    FunctionMessageChunk: {**_FUNCTION, "type": "FunctionMessageChunk"},
    HumanMessage: {**_BASE, "type": "human"},
    HumanMessageChunk: {**_BASE, "type": "HumanMessageChunk"},
    RemoveMessage: {**_BASE, "type": "remove"},
    SystemMessage: {**_BASE, "type": "system"},
    SystemMessageChunk: {**_BASE, "type": "SystemMessageChunk"},
    ToolMessage: {**_TOOL, "type": "tool"},
    ToolMessageChunk: {**_TOOL, "type": "ToolMessageChunk"},
    Document: {"id": None, "metadata": {}, "type": "Document"},
    ChatPromptValue: {},
    ChatPromptValueConcrete: {"type": "ChatPromptValueConcrete"},
    ImagePromptValue: {"type": "ImagePromptValue"},
    StringPromptValue: {"type": "StringPromptValue"},
}
"""By class the fields that are left out where they were not set and have this value."""

_lock = threading.Lock()
_registered = False


def register() -> None:
    """Teach the codec LangChain's messages, documents and prompt values.

    To be called once before a state with messages is saved or loaded; a second call does
    nothing. Subclasses of a program's own are kept as pydantic models are.
    """
    global _registered
    with _lock:
        if _registered:
            return
        for cls, table in TABLES.items():
            codec.register_model(_any(cls), tag=f"langchain.{cls.__name__}", defaults=table)
        # The `text` of a message, which is easily kept by itself: a str that is also called.
        codec.register_codec(
            TextAccessor, name="langchain.Text", encode=str.__str__, decode=_text_accessor
        )
        _registered = True


def _text_accessor(text: object) -> TextAccessor:
    return TextAccessor(str(text))


def _any(cls: Any) -> Any:
    return cls
