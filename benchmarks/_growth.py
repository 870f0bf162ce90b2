"""10,000 waypoints: what the last ones cost, take on disk, and how fast they are read."""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks._harness import (
    MS,
    WARM_UP,
    Context,
    Row,
    Samples,
    Worker,
    cold,
    milliseconds,
    running,
)

if TYPE_CHECKING:
    from collections.abc import Callable

TITLES = {
    "small": "state of 160 B",
    "document": "document of 1 MB and a counter",
    "dict": "edits in a dict of 1 MB",
    "list": "list growing to 10 MB",
}
ROUNDS = 10
_OLD, _YOUNG = "old", "young"


@dataclass
class Measured:
    """A run that has grown.

    Attributes:
        last: its last tenth.
        first: the first tenth of a second run, taken in turns with the last one of it.
        encode: the encoding of its state, in the same turns.
        built: times before that, in tenths.
        end: what its worker says about it.
    """

    last: Samples
    first: Samples
    encode: Samples
    built: Samples
    end: dict[str, Any]


def growth(name: str) -> Callable[[Context], list[Row]]:
    """Return the figure for one of the workloads."""

    def figure(context: Context) -> list[Row]:
        folder = context.fresh(name)
        count = context.waypoints
        found = _grow(folder, name, count)
        context.raw = {
            "waypoints": found.end["count"],
            "last_tenth": found.last.raw(),
            "first_tenth": found.first.raw(),
            "encode": found.encode.raw(),
            "tenths_p50_ms": [p / MS for p in [*found.built.p50s, found.last.p50]],
            "disk": {k: v for k, v in found.end.items() if k != "plain"},
        }
        rows = [*_cost(name, found), *_bytes(name, found)]
        return [*rows, *_reads(context, folder, name, found)]

    return figure


def _grow(folder: Path, name: str, count: int) -> Measured:
    """Build a run up to nine tenths, then let its last tenth take turns with a second run's first.

    The two tenths of one run lie minutes apart, and the machine is not the same then.
    """
    tenth = count // 10
    turns = min(ROUNDS, tenth // 5)
    last, first, encode, built = Samples(), Samples(), Samples(), Samples()
    with (
        Worker("growth", folder, name=name, run_id=_OLD) as old,
        Worker("growth", folder, name=name, run_id=_YOUNG) as young,
    ):
        for _ in range(9):
            built.rounds.append(old("block", n=tenth - WARM_UP)["times"])
        old.stop()
        young.stop()
        for _ in range(turns):
            with running(old):
                last.rounds.append(old("block", n=tenth // turns - WARM_UP)["times"])
                encode.rounds.append(old("encode", n=3)["times"])
            with running(young):
                first.rounds.append(young("block", n=tenth // turns - WARM_UP)["times"])
        old.go_on()
        return Measured(last, first, encode, built, old("end"))


def _cost(name: str, found: Measured) -> list[Row]:
    title = TITLES[name]
    detail = f"{found.last} / {found.first}"
    if name != "list":
        ratio = found.last.ratio(found.first)
        return [
            Row(f"{name}_last_first", f"{title}: last / first tenth", ratio, "x", 1.3, None, detail)
        ]
    detail = f"{found.last} / {milliseconds(found.encode.p50)}; first tenth {found.first}"
    ratio = found.last.ratio(found.encode)
    return [Row("list_last_encode", f"{title}: last tenth / encoding", ratio, "x", 2, None, detail)]


def _bytes(name: str, found: Measured) -> list[Row]:
    end = found.end
    base, of = end["state_bytes"], "final state"
    if name == "document":
        base, of = end["document_bytes"], "document"
    target = 3 if name in ("document", "list") else None
    detail = (
        f"{_mb(end['journal'])} / {_mb(base)}; notes {_mb(end['notes'])}, "
        f"on disk {_mb(end['note_blocks'])}"
    )
    ratio = end["journal"] / base
    return [
        Row(f"{name}_bytes", f"{TITLES[name]}: journal / {of}", ratio, "x", target, None, detail)
    ]


def _mb(size: float) -> str:
    return f"{size / 1e6:.3g} MB"


# ---------------------------------------------------------------------- reading


def _reads(context: Context, folder: Path, name: str, found: Measured) -> list[Row]:
    rounds = 3 if context.quick else 11
    count, plain = found.end["count"], found.end["plain"]
    expected = hashlib.sha256(Path(plain).read_bytes()).hexdigest()
    # An arbitrary waypoint: of the small run only, others have nothing to compare with.
    chosen = random.Random(5).sample(range(1, count + 1), rounds) if name == "small" else []
    newest, tree, history, others = (Samples() for _ in range(4))
    for turn in range(rounds):
        for samples, answer in (
            (newest, cold(folder, "load", run_id=_OLD)),
            (tree, cold(folder, "plain", path=plain)),
        ):
            if answer["sha256"] != expected:
                raise RuntimeError(f"{name}: another state was loaded than the one saved last")
            samples.rounds.append([answer["ns"]])
        if turn < 5:
            answer = cold(folder, "history", run_id=_OLD)
            if answer["count"] != count:
                raise RuntimeError(f"{name}: {answer['count']} waypoints listed, not {count}")
            history.rounds.append([answer["ns"]])
        if chosen:
            others.rounds.append([cold(folder, "load", run_id=_OLD, at=chosen[turn])["ns"]])
    reads = {"newest": newest, "plain": tree, "history": history, "arbitrary": others}
    context.raw["cold"] = {key: value.raw() for key, value in reads.items() if value.rounds}
    title, detail = TITLES[name], f"{newest} / {milliseconds(tree.p50)}"
    if name == "small":
        loaded = Row("small_newest", f"{title}: newest loads cold", newest.p50 / MS, "ms", 1)
        loaded.detail = detail
    else:
        loaded = Row(f"{name}_newest", f"{title}: newest loads cold / orjson.loads", 0, "x", 3)
        loaded.value, loaded.detail = newest.p50 / tree.p50, detail
    rows = [loaded]
    if chosen:
        detail = f"most {milliseconds(others.most)}; {json.dumps(sorted(chosen))[1:-1]}"
        value = others.p50 / MS
        rows.append(
            Row(
                "small_arbitrary", f"{title}: an arbitrary one, cold", value, "ms", 40, None, detail
            )
        )
    rows.append(
        Row(
            f"{name}_history",
            f"{title}: {count:,} notes listed",
            history.p50 / MS / 1000,
            "s",
            0.1,
            None,
            f"most {milliseconds(history.most)}",
        )
    )
    return rows


def runs(context: Context) -> list[Row]:
    """Measure how long a list of 1,000 runs takes."""
    folder = context.fresh("runs")
    count = 50 if context.quick else 1000
    with Worker("runs", folder) as worker:
        worker("make", n=count)
    times = Samples()
    for _ in range(3 if context.quick else 5):
        answer = cold(folder, "runs")
        if answer["count"] != count:
            raise RuntimeError(f"{answer['count']} runs listed, not {count}")
        times.rounds.append([answer["ns"]])
    context.raw = times.raw()
    return [
        Row(
            "runs_listed",
            f"{count:,} runs listed",
            times.p50 / MS / 1000,
            "s",
            1,
            None,
            f"most {milliseconds(times.most)}",
        )
    ]
