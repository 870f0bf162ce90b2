"""LangGraph's savers side by side: `python -m benchmarks.langgraph`. See docs/benchmarks.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks import _peers, _report, _savers
from benchmarks.messages import messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks._harness import Context, Row

FIGURES: dict[str, Callable[[Context], list[Row]]] = {
    **{name: _savers.figure(name) for name in _savers.TASKS},
    "messages": messages,
    "calls": _savers.calls,
}

PACKAGES = ("langgraph", "langgraph-checkpoint", "langgraph-checkpoint-sqlite", "langchain-core")


def main() -> None:
    parser = _report.options_of("langgraph", __doc__, FIGURES)
    parser.add_argument(
        "--rounds", type=int, metavar="N", help="turns of each saver; 3, or 1 with --quick"
    )
    options = parser.parse_args()
    peers = {} if set(options.only) == {"messages"} else _peers.LANGGRAPH
    rounds = options.rounds or (1 if options.quick else 3)
    _report.run(options, FIGURES, peers, PACKAGES, rounds=rounds)


if __name__ == "__main__":
    main()
