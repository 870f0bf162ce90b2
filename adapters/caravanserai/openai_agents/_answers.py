"""Answers of models: as they are recorded, and given again without asking the model.

The items are kept as the provider sent them, with fields that this version of the `openai`
package does not know; each under the name of its class, which is looked up among the SDK's own
and nowhere else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, get_args

from agents.items import ModelResponse
from agents.usage import Usage, deserialize_usage, serialize_usage
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseContentPartAddedEvent,
    ResponseContentPartDoneEvent,
    ResponseCreatedEvent,
    ResponseFunctionCallArgumentsDeltaEvent,
    ResponseFunctionCallArgumentsDoneEvent,
    ResponseOutputItem,
    ResponseOutputItemAddedEvent,
    ResponseOutputItemDoneEvent,
    ResponseTextDeltaEvent,
    ResponseTextDoneEvent,
    ResponseUsage,
)
from pydantic import BaseModel, TypeAdapter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agents.items import TResponseStreamEvent


def _classes() -> dict[str, type[BaseModel]]:
    union = get_args(ResponseOutputItem)
    found = get_args(union[0]) if len(union) and get_args(union[0]) else union
    return {cls.__name__: cls for cls in found}


_CLASSES: Final = _classes()
_ANY: TypeAdapter[Any] = TypeAdapter(ResponseOutputItem)


_WITHOUT_USAGE: Final = "_agents_sdk_request_completed_without_usage"
"""Set by the SDK on a response whose provider says nothing of tokens: how many requests it was
(0.24), or True (0.20, where it counts as one)."""


def to_data(response: ModelResponse) -> dict[str, Any]:
    """Return what is recorded of an answer, plain JSON."""
    data: dict[str, Any] = {"output": [_item(item) for item in response.output]}
    kinds = [type(item).__name__ for item in response.output]
    if any(isinstance(item, BaseModel) for item in response.output):
        data["classes"] = kinds
    data["usage"] = serialize_usage(response.usage)
    data["response_id"] = response.response_id
    data["request_id"] = response.request_id
    raw = getattr(response, "raw_usage", None)  # since openai-agents 0.21
    if raw is not None:
        data["raw_usage"] = raw
    return data


def _item(item: Any) -> dict[str, Any]:
    if isinstance(item, BaseModel):
        return item.model_dump(mode="json", exclude_unset=True, warnings=False)
    return dict(item)


def from_data(data: dict[str, Any]) -> ModelResponse:
    """Return an answer as the model gave it."""
    classes = data.get("classes")
    output = [
        item if classes is None else _rebuilt(item, str(classes[place]))
        for place, item in enumerate(data["output"])
    ]
    response = ModelResponse(
        output=output,
        usage=deserialize_usage(data["usage"]),
        response_id=data.get("response_id"),
        request_id=data.get("request_id"),
    )
    if data.get("raw_usage") is not None and hasattr(response, "raw_usage"):
        response.raw_usage = data["raw_usage"]
    return response


def _rebuilt(item: dict[str, Any], name: str) -> Any:
    if name == "dict":
        return item
    cls = _CLASSES.get(name)
    return _ANY.validate_python(item) if cls is None else cls.model_validate(item)


def of_event(response: Response, items: list[Any]) -> ModelResponse:
    """Return the answer in the event that ends a stream.

    Args:
        response: that of the event.
        items: those of the events before it: some providers leave the last one empty.
    """
    used = response.usage
    usage = Usage(requests=getattr(response, _WITHOUT_USAGE, 0) or 0)
    if used is not None:
        usage = Usage(
            requests=1,
            input_tokens=used.input_tokens,
            output_tokens=used.output_tokens,
            total_tokens=used.total_tokens,
            input_tokens_details=used.input_tokens_details,
            output_tokens_details=used.output_tokens_details,
        )
    return ModelResponse(
        output=list(response.output or items),
        usage=usage,
        response_id=response.id,
        request_id=getattr(response, "_request_id", None),
    )


def completed(answer: ModelResponse, number: int = 0) -> ResponseCompletedEvent:
    """Return the event that ends a stream with an answer."""
    response = _response(answer, list(answer.output))
    return ResponseCompletedEvent.model_construct(
        response=response, sequence_number=number, type="response.completed"
    )


def _response(answer: ModelResponse, output: list[Any]) -> Response:
    # Not validated: an answer of Chat Completions has no id, and the items are validated.
    response = Response.model_construct(
        id=answer.response_id,
        created_at=0.0,
        model="",
        object="response",
        output=output,
        parallel_tool_calls=True,
        tool_choice="auto",
        tools=[],
        usage=_usage(answer.usage),
    )
    if answer.request_id is not None:
        response._request_id = answer.request_id
    if response.usage is None and answer.usage.requests:
        object.__setattr__(response, _WITHOUT_USAGE, answer.usage.requests)
    return response


def _usage(usage: Usage) -> ResponseUsage | None:
    if not usage.requests or not (usage.total_tokens or usage.input_tokens or usage.output_tokens):
        return None  # the provider did not say
    return ResponseUsage.model_construct(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        total_tokens=usage.total_tokens,
        input_tokens_details=usage.input_tokens_details,
        output_tokens_details=usage.output_tokens_details,
    )


def events(answer: ModelResponse) -> Iterator[TResponseStreamEvent]:
    """Yield the events of a stream that gives a recorded answer, each text in one piece."""
    number = 0

    def event(cls: Any, **fields: Any) -> Any:
        nonlocal number
        number += 1
        return cls.model_construct(sequence_number=number - 1, **fields)

    begun = _response(answer, [])
    yield event(ResponseCreatedEvent, response=begun, type="response.created")
    items: list[Any] = list(answer.output)
    for place, item in enumerate(items):
        at = {"output_index": place, "item_id": getattr(item, "id", None) or ""}
        yield event(
            ResponseOutputItemAddedEvent,
            item=item,
            output_index=place,
            type="response.output_item.added",
        )
        kind = getattr(item, "type", None)
        if kind == "message":
            for index, part in enumerate(item.content):
                yield from _part(event, part, {**at, "content_index": index})
        elif kind == "function_call":
            yield event(
                ResponseFunctionCallArgumentsDeltaEvent,
                **at,
                delta=item.arguments,
                type="response.function_call_arguments.delta",
            )
            yield event(
                ResponseFunctionCallArgumentsDoneEvent,
                **at,
                arguments=item.arguments,
                name=item.name,
                type="response.function_call_arguments.done",
            )
        yield event(
            ResponseOutputItemDoneEvent,
            item=item,
            output_index=place,
            type="response.output_item.done",
        )
    yield completed(answer, number)


def _part(event: Any, part: Any, at: dict[str, Any]) -> Iterator[Any]:
    yield event(ResponseContentPartAddedEvent, **at, part=part, type="response.content_part.added")
    if getattr(part, "type", None) == "output_text":
        yield event(
            ResponseTextDeltaEvent,
            **at,
            delta=part.text,
            logprobs=[],
            type="response.output_text.delta",
        )
        yield event(
            ResponseTextDoneEvent,
            **at,
            text=part.text,
            logprobs=[],
            type="response.output_text.done",
        )
    yield event(ResponseContentPartDoneEvent, **at, part=part, type="response.content_part.done")
