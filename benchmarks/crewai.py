"""Crews and flows of CrewAI: `python -m benchmarks.crewai`. See docs/benchmarks.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks import _crews, _report

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks._harness import Context, Row

FIGURES: dict[str, Callable[[Context], list[Row]]] = {
    "tasks": _crews.tasks,
    "flows": _crews.flows,
    "calls": _crews.calls,
    "beside": _crews.beside,
}

PACKAGES = ("crewai", "openai", "pydantic")


def main() -> None:
    parser = _report.options_of("crewai", __doc__, FIGURES)
    parser.add_argument(
        "--rounds", type=int, metavar="N", help="turns of each way; 3, or 1 with --quick"
    )
    options = parser.parse_args()
    rounds = options.rounds or (1 if options.quick else 3)
    _report.run(options, FIGURES, {}, PACKAGES, rounds=rounds)


if __name__ == "__main__":
    main()
