"""Answers of models: looked up before one is asked, recorded before anybody works with them."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from caravanserai.crewai import _notes, _sdk
from caravanserai.crewai._steps import MODEL, Place, at, digest, without_chance
from caravanserai_core import codec
from caravanserai_core.errors import UnserialisableState
from caravanserai_core.quoting import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

_log = logging.getLogger("caravanserai")


class Known(NamedTuple):
    """An answer that is recorded."""

    value: Any


def question(
    place: Place | None, model: Any, messages: Any, given: dict[str, Any]
) -> Question | None:
    """Return what a call of a model asks, or None where it is part of no run.

    Args:
        place: where it is asked.
        model: a `BaseLLM`.
        messages: a text or a list of messages.
        given: the other arguments, by name.
    """
    if place is None:
        return None
    place.job.stop_if_leaving()
    wanted = getattr(given.get("response_model"), "__qualname__", "")
    asked = digest(_without_addresses(messages), wanted)
    return Question(place, model, place.steps.key(MODEL, place.path, asked))


class Question:
    """One call of a model at its place in a run."""

    def __init__(self, place: Place, model: Any, key: str) -> None:
        self._place, self._model, self._key = place, model, key
        self._usage: list[dict[str, Any]] = []

    def answer(self) -> Known | None:
        """Return the recorded answer."""
        data = self._place.steps.recorded(self._key)
        if data is None:
            return None
        for usage in data["usage"] if self._counts() else ():
            _sdk.add_usage(self._model, usage)
        self._place.job.answered(self._place, data)
        return Known(data["answer"])

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Let the model be asked: what that does itself is no part of the run."""
        self._place.job.asks(self._place.path, failed=True)
        with at(None), _sdk.usage_into(self._usage):
            yield
        self._place.job.asks(self._place.path, failed=False)

    def record(self, answer: Any) -> None:
        """Write an answer down."""
        if not answer:
            return  # CrewAI refuses it, and asks again
        role = self._place.agent
        slot = self._place.job.slot_of(self._model)
        data = {"answer": answer, "usage": self._usage, "model": slot, "agent": role}
        say = _notes.answered(role or "A model", told(answer))
        try:
            codec.encode(answer)
        except UnserialisableState as error:
            _log.warning(
                "an answer of model %s cannot be kept exactly (%s): after a crash it is asked "
                "again",
                one_line(str(getattr(self._model, "model", "")), 60),
                error,
            )
        else:
            with self._place.job.escaping():
                self._place.steps.record(self._key, data, say=say)
        self._counts()
        self._place.job.answered(self._place, data)

    def _counts(self) -> bool:
        """Say whether this model of this process has not counted the answer yet."""
        return _sdk.first_time(self._model, (self._place.job.token, self._key))


def told(answer: Any) -> str | list[dict[str, Any]]:
    """Return an answer as notes tell it: a text, or the calls of tools that it asks for."""
    if isinstance(answer, list):
        calls = [call for item in answer if (call := _sdk.tool_call(item)) is not None]
        if calls:
            return calls
    dump = getattr(answer, "model_dump_json", None)
    return str(dump()) if callable(dump) else str(answer)


def _without_addresses(messages: Any) -> Any:
    """Return messages without what differs in each process.

    CrewAI makes the id of a call of an object's address where a provider gives none, and a file
    with a name by chance of a tool's result that is too long for the model.
    """
    if not isinstance(messages, list):
        return messages
    names: dict[Any, str] = {}

    def named(given: Any) -> str:
        return names.setdefault(given, f"call {len(names) + 1}")

    found = []
    for message in messages:
        if isinstance(message, dict):
            message = {name: without_chance(value) for name, value in message.items()}
            if "tool_call_id" in message:
                message["tool_call_id"] = named(message["tool_call_id"])
            if isinstance(message.get("tool_calls"), list):
                message["tool_calls"] = [
                    {**without_chance(call), "id": named(call["id"])}
                    if isinstance(call, dict) and "id" in call
                    else call
                    for call in message["tool_calls"]
                ]
        found.append(message)
    return found
