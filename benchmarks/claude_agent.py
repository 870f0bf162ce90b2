"""Sessions of the Claude Agent SDK: `python -m benchmarks.claude_agent`. See docs/benchmarks.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks import _report, _sessions

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks._harness import Context, Row

FIGURES: dict[str, Callable[[Context], list[Row]]] = {
    "sessions": _sessions.sessions,
    "calls": _sessions.calls,
}

PACKAGES = ("claude-agent-sdk", "psutil")


def main() -> None:
    parser = _report.options_of("claude_agent", __doc__, FIGURES)
    parser.add_argument(
        "--rounds", type=int, metavar="N", help="turns of each way; 5, or 1 with --quick"
    )
    options = parser.parse_args()
    rounds = options.rounds or (1 if options.quick else 5)
    _report.run(options, FIGURES, {}, PACKAGES, rounds=rounds)


if __name__ == "__main__":
    main()
