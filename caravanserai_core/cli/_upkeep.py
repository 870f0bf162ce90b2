"""`fork`, `pin` and `prune`: branch off a run, keep some of its waypoints, let the others go."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import click

from caravanserai_core import listing, lookup, retention, upkeep
from caravanserai_core.cli import _out, _runs
from caravanserai_core.cli._app import Session, common_options
from caravanserai_core.cli._list import human
from caravanserai_core.errors import CaravanseraiError, UsageError
from caravanserai_core.names import folder_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from caravanserai_core.stores import Store

F = TypeVar("F", bound="Callable[..., Any]")

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_AGE = re.compile(r"([0-9]{1,6})([smhdw])")


@click.command("fork", short_help="Begin a new run where another one was.")
@click.argument("run", metavar="RUN[@N]", shell_complete=_runs.complete)
@click.argument("new", metavar="NEW")
@common_options
@click.pass_obj
def fork_(session: Session, run: str, new: str) -> None:
    """Begin a run called NEW with the exact state of a waypoint of RUN, by default the newest.

    Both go on by themselves. To go on with the new one, start its program with that name.
    """
    run_id, at = lookup.find(session.store, run, prefix=False)
    number = upkeep.fork(run_id, at=at, new_run_id=new, store=session.store)
    _out.line(f"forked waypoint {number} of {_out.cell(run_id)} as {_out.cell(new)}")


@click.command("pin", short_help="Keep a waypoint, whatever is pruned.")
@click.argument("run", metavar="RUN[@N]", shell_complete=_runs.complete)
@click.option("--remove", is_flag=True, help="Let go of it again.")
@common_options
@click.pass_obj
def pin_(session: Session, run: str, remove: bool) -> None:
    """Keep a waypoint of RUN, by default the newest, whatever is pruned later."""
    run_id, at = lookup.find(session.store, run, prefix=False)
    number = upkeep.pin(run_id, -1 if at is None else at, unpin=remove, store=session.store)
    done = "no longer pinned" if remove else "pinned"
    _out.line(f"waypoint {number} of {_out.cell(run_id)} is {done}")


def age_option(help_: str) -> Callable[[F], F]:
    """Add `--older-than AGE`, which gives a timedelta or None."""
    return click.option("--older-than", callback=_age, metavar="AGE", help=help_)


def _age(_context: click.Context, _parameter: click.Parameter, text: str | None) -> Any:
    if text is None:
        return None
    found = _AGE.fullmatch(text)
    if found is None:
        raise click.BadParameter("an age is a number and s, m, h, d or w, such as 30d")
    return timedelta(seconds=int(found[1]) * _UNITS[found[2]])


@click.command("prune", short_help="Remove old waypoints, and give their space back.")
@click.argument("run", required=False, shell_complete=_runs.complete)
@click.option("--all", "every", is_flag=True, help="Prune all runs of the store.")
@click.option("--keep", type=click.IntRange(min=1), metavar="N", help="The newest N stay.")
@age_option("What is younger stays: 45m, 12h, 30d, 8w.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@common_options
@click.pass_obj
def prune_(
    session: Session,
    run: str | None,
    every: bool,
    keep: int | None,
    older_than: timedelta | None,
    dry_run: bool,
) -> None:
    """Remove old waypoints of RUN for good, with their notes, and give their space back.

    A waypoint goes if neither --keep nor --older-than keeps it. In any case these stay: the
    newest of each lane, pinned ones, those at which a question is open, and what the run's
    framework needs to go on.
    """
    if every is (run is not None):
        raise UsageError("prune takes a RUN, or --all for all runs of the store")
    if keep is None and older_than is None:
        raise UsageError("prune takes --keep, --older-than or both: what is to stay?")
    wanted = retention.rules(keep, older_than)
    store = session.store
    code = 0
    for run_id in [info.run_id for info in listing.runs(store)] if run is None else [run]:
        try:
            named = lookup.find(store, run_id, prefix=False)
            if named.at is not None:
                raise UsageError(f"prune takes a whole run, not {_out.cell(run_id)}")
            _out.line(_pruned(store, named.run_id, wanted, dry_run=dry_run))
        except CaravanseraiError as error:
            if not every:
                raise
            _out.fail(str(error))
            code = code or error.exit_code
    if code:
        click.get_current_context().exit(code)


def _pruned(store: Store, run_id: str, wanted: retention.Rules, *, dry_run: bool) -> str:
    """Prune a run, or look what that would do; returns what to say."""
    name = _out.cell(run_id)
    if dry_run:
        plan = retention.plan(store, run_id, wanted)
        which = f": {_ranges(plan.going)}" if plan.going else ""
        return f"{name}: {len(plan.going)} waypoints would go, {plan.staying} stay{which}"
    before = store.size(folder_name(run_id))
    removed = upkeep.prune(run_id, keep=wanted.keep, older_than=wanted.older_than, store=store)
    after = store.size(folder_name(run_id))
    space = "" if before == after else f"; {human(before)} before, {human(after)} now"
    return f"{name}: {removed} waypoints removed{space}"


def _ranges(numbers: list[int]) -> str:
    """Write numbers in short: `1-7, 9, 12-40`."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][-1] == number - 1:
            parts[-1] = [parts[-1][0], number]
        else:
            parts.append([number])
    return ", ".join("-".join(map(str, part)) for part in parts)
