"""What a plain Python agent pays: `python -m benchmarks.plain`. See docs/benchmarks.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks import _checkpoint, _cpu, _growth, _peers, _report

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks._harness import Context, Row

FIGURES: dict[str, Callable[[Context], list[Row]]] = {
    "checkpoint": _checkpoint.checkpoint,
    "calls": _checkpoint.calls,
    "encoding": _cpu.encoding,
    "import": _cpu.imports,
    **{name: _growth.growth(name) for name in _growth.TITLES},
    "runs": _growth.runs,
}


def main() -> None:
    parser = _report.options_of("plain", __doc__, FIGURES)
    parser.add_argument(
        "--waypoints",
        type=int,
        metavar="N",
        help="length of the long runs, at least 100; 10,000, or 500 with --quick",
    )
    options = parser.parse_args()
    if options.waypoints is not None and options.waypoints < 100:
        parser.error("--waypoints is at least 100")
    peers = _peers.PLAIN if {"checkpoint", "calls"} & set(options.only) else {}
    waypoints = options.waypoints or (500 if options.quick else 10_000)
    _report.run(options, FIGURES, peers, waypoints=waypoints)


if __name__ == "__main__":
    main()
