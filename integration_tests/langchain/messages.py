"""Messages of all kinds at random, and a comparison that sees all of a message."""

# ruff: noqa: E402

from __future__ import annotations

import decimal
import math
import struct
from typing import Any

import pydantic
from hypothesis import strategies as st

from integration_tests.support import require

require("langchain_core")

from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
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
from langchain_core.prompt_values import (
    ChatPromptValue,
    ChatPromptValueConcrete,
    ImagePromptValue,
    StringPromptValue,
)


def same(left: Any, right: Any) -> bool:
    """Whether two values are equal in types, order, and all that a message holds."""
    if type(left) is not type(right):
        return False
    if isinstance(left, pydantic.BaseModel):
        return all(
            same(getattr(left, name), getattr(right, name))
            for name in (
                "__dict__",
                "__pydantic_fields_set__",
                "__pydantic_extra__",
                "__pydantic_private__",
            )
        )
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float):
        return struct.pack(">d", left) == struct.pack(">d", right)
    return bool(left == right)


texts = st.text(st.characters(codec=None), max_size=8)
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | texts
    | st.binary(max_size=4)
    | st.just(decimal.Decimal("1.10"))
    | st.just(math.nan)
)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(texts | st.just("$tuple"), inner, max_size=3)
        | st.tuples(inner, inner)
    ),
    max_leaves=6,
)
metadata = st.dictionaries(texts, values, max_size=3)
blocks = st.lists(
    texts
    | st.fixed_dictionaries({"type": st.just("text"), "text": texts})
    | st.fixed_dictionaries(
        {
            "type": st.just("image_url"),
            "image_url": st.fixed_dictionaries({"url": texts}, optional={"detail": values}),
        }
    )
    | st.fixed_dictionaries({"type": st.just("reasoning"), "extras": metadata}),
    max_size=3,
)
contents = texts | blocks
calls = st.lists(
    st.fixed_dictionaries({"name": texts, "args": metadata, "id": st.none() | texts}), max_size=2
)
usage = st.none() | st.fixed_dictionaries(
    {"input_tokens": st.integers(0, 9), "output_tokens": st.just(2), "total_tokens": st.just(3)},
    optional={"input_token_details": st.dictionaries(st.just("cache_read"), st.integers(0, 9))},
)
common = {
    "content": contents,
    "id": texts,
    "name": texts,
    "additional_kwargs": metadata,
    "response_metadata": metadata,
    "extra_field": values,
}


def made(cls: Any, **more: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Objects of a class, with some of the fields set: as they are, for no validator sees them."""
    fields = {**common, **more}
    needed = {name for name in more if name in ("role", "tool_call_id")} | {"content"}
    if cls in (FunctionMessage, FunctionMessageChunk):
        needed.add("name")
    return st.fixed_dictionaries(
        {name: fields[name] for name in fields if name in needed},
        optional={name: fields[name] for name in fields if name not in needed},
    ).map(lambda given: cls.model_construct(**given))


invalid = st.lists(st.fixed_dictionaries({"name": texts, "args": texts, "error": texts}))
ai = {"tool_calls": calls, "invalid_tool_calls": invalid, "usage_metadata": usage}
chunk = {
    **ai,
    "tool_call_chunks": st.lists(st.fixed_dictionaries({"args": texts, "index": st.integers()})),
    "chunk_position": st.none() | st.just("last"),
}
tool = {"tool_call_id": texts, "artifact": values, "status": st.sampled_from(["success", "error"])}

messages = st.one_of(
    made(HumanMessage),
    made(HumanMessageChunk),
    made(SystemMessage),
    made(SystemMessageChunk),
    made(AIMessage, **ai),
    made(AIMessageChunk, **chunk),
    made(ToolMessage, **tool),
    made(ToolMessageChunk, **tool),
    made(ChatMessage, role=texts),
    made(ChatMessageChunk, role=texts),
    made(FunctionMessage),
    made(FunctionMessageChunk),
    texts.map(lambda text: RemoveMessage(id=text)),
    st.tuples(texts, metadata).map(lambda both: Document(both[0], metadata=both[1])),
)

CHAT: list[BaseMessage] = [
    SystemMessage("Be brief."),
    HumanMessage("How warm is it in Oslo?", id="h1"),
    AIMessage(
        "",
        id="a1",
        tool_calls=[{"name": "weather", "args": {"city": "Oslo"}, "id": "call_1"}],
        response_metadata={"model_name": "m", "finish_reason": "tool_calls"},
        usage_metadata={"input_tokens": 20, "output_tokens": 7, "total_tokens": 27},
    ),
    ToolMessage("7 degrees", tool_call_id="call_1", name="weather", artifact=(7, "C"), id="t1"),
    AIMessage("Seven degrees.", id="a2"),
]

OTHERS: list[Any] = [
    ChatPromptValue(messages=CHAT),
    ChatPromptValueConcrete(messages=CHAT[:2]),
    ImagePromptValue(image_url={"url": "https://example.org/x.png", "detail": "low"}),
    StringPromptValue(text="t"),
    Document("d", metadata={"at": (1, 2)}),
]
