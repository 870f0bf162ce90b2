"""Runs of the OpenAI Agents SDK: `python -m benchmarks.openai_agents`. See docs/benchmarks.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks import _agents, _peers, _report

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks._harness import Context, Row

FIGURES: dict[str, Callable[[Context], list[Row]]] = {
    "runs": _agents.runs,
    "http": _agents.served,
    "growth": _agents.growth,
    "cold": _agents.cold,
    "calls": _agents.calls,
}

PACKAGES = ("openai-agents", "openai", "dbos-openai-agents", "dbos")


def main() -> None:
    parser = _report.options_of("openai_agents", __doc__, FIGURES)
    parser.add_argument(
        "--rounds", type=int, metavar="N", help="turns of each runner; 3, or 1 with --quick"
    )
    options = parser.parse_args()
    peers = _peers.OPENAI_AGENTS if {"runs", "calls"} & set(options.only) else {}
    rounds = options.rounds or (1 if options.quick else 3)
    _report.run(options, FIGURES, peers, PACKAGES, rounds=rounds)


if __name__ == "__main__":
    main()
