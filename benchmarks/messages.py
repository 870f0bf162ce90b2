"""LangChain messages beside LangGraph's own serialiser, in one process and by turns.

`messages` is a figure as those of `benchmarks.plain`; it needs langgraph and langchain-core.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from benchmarks._harness import Context, Row, Samples
from benchmarks._states import text

if TYPE_CHECKING:
    from collections.abc import Callable

COUNTS = {"1,000": 1_000, "10,000": 10_000}


def answer(number: int, size: int, *, calls: bool = False) -> Any:
    """Return an answer of a model with what OpenAI's API says about it."""
    from langchain_core.messages import AIMessage

    prompt, answered = 1_000 + number, 100 + number % 300
    usage = {
        "completion_tokens": answered,
        "prompt_tokens": prompt,
        "total_tokens": prompt + answered,
        "completion_tokens_details": {"audio_tokens": 0, "reasoning_tokens": 0},
        "prompt_tokens_details": {"audio_tokens": 0, "cached_tokens": 512},
    }
    call = {"name": "search", "args": {"query": text(number, 60), "most": 5}}
    return AIMessage(
        content=text(number, size),
        id=f"run--{number:032x}",
        response_metadata={
            "token_usage": usage,
            "model_provider": "openai",
            "model_name": "gpt-4.1-mini-2025-04-14",
            "system_fingerprint": "fp_0123456789",
            "id": f"chatcmpl-{number:024x}",
            "finish_reason": "tool_calls" if calls else "stop",
            "logprobs": None,
        },
        usage_metadata={
            "input_tokens": prompt,
            "output_tokens": answered,
            "total_tokens": prompt + answered,
            "input_token_details": {"audio": 0, "cache_read": 512},
            "output_token_details": {"audio": 0, "reasoning": 0},
        },
        tool_calls=[{**call, "id": f"call_{number}"}] if calls else [],
    )


def answers(count: int) -> list[Any]:
    """Return answers of about 1 kB each."""
    return [answer(number, 400) for number in range(count)]


def chat(count: int) -> list[Any]:
    """Return questions, answers that call a tool, and its results, of about 1 kB each."""
    from langchain_core.messages import HumanMessage, ToolMessage

    messages: list[Any] = []
    for number in range(0, count, 3):
        messages += [
            HumanMessage(content=text(number, 900), id=f"{number:032x}"),
            answer(number + 1, 300, calls=True),
            ToolMessage(
                content=text(number + 2, 850),
                name="search",
                id=f"{number + 2:032x}",
                tool_call_id=f"call_{number + 1}",
            ),
        ]
    return messages[:count]


def messages(context: Context) -> list[Row]:
    """Measure writing and reading lists of messages."""
    from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

    from caravanserai import langchain
    from caravanserai_core import codec

    langchain.register()
    serde = JsonPlusSerializer()
    rows = []
    for kind, make in (("answers", answers), ("chat", chat)):
        for label, count in COUNTS.items():
            given = make(count // 20 if context.quick else count)
            encoded, theirs = codec.encode(given), serde.dumps_typed(given)
            if codec.decode(*encoded) != given:
                raise RuntimeError("a message has changed")
            rounds = 3 if context.quick else max(11, 30_000 // count)
            write = _by_turns(
                rounds,
                lambda given=given: codec.encode(given),
                lambda given=given: serde.dumps_typed(given),
            )
            read = _by_turns(
                rounds,
                lambda encoded=encoded: codec.decode(*encoded),
                lambda theirs=theirs: serde.loads_typed(theirs),
            )
            key = f"{kind}_{count}"
            for name, (ours, base), target in (("write", write, 0.6), ("read", read, 0.7)):
                context.raw[f"{key}_{name}"] = {"ours": ours.raw(), "langgraph": base.raw()}
                rows.append(
                    Row(
                        f"{key}_{name}",
                        f"{name} {label} messages ({kind}) / JsonPlusSerializer",
                        ours.ratio(base),
                        "x",
                        target,
                        None,
                        f"{ours} / {base}",
                    )
                )
            size = len(encoded.data) / len(theirs[1])
            rows.append(Row(f"{key}_bytes", "  bytes / its msgpack", size, "x", 1.05))
    return rows


def _by_turns(rounds: int, *calls: Callable[[], object]) -> tuple[Samples, ...]:
    samples = tuple(Samples() for _ in calls)
    for _ in range(rounds):
        for one, call in zip(samples, calls, strict=True):
            start = time.perf_counter_ns()
            call()
            one.rounds.append([time.perf_counter_ns() - start])
    return samples
