"""`caravanserai verify`: check runs from their first byte to their last, and mend one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from caravanserai_core import listing, lookup, survey
from caravanserai_core import repair as repairing
from caravanserai_core.cli import _out, _runs
from caravanserai_core.cli._app import Session, common_options, json_option
from caravanserai_core.errors import CaravanseraiError, RunNotFound, StoreRefused, UsageError
from caravanserai_core.leaks import leaks
from caravanserai_core.quoting import visible
from caravanserai_core.records import Record
from caravanserai_core.secrets import current
from caravanserai_core.shapes import SHAPES
from caravanserai_core.stores import FileStore
from caravanserai_core.verify import Finding, Report, verify

if TYPE_CHECKING:
    from collections.abc import Iterator

    from caravanserai_core.stores import Store


@click.command(
    "verify",
    short_help="Check one run or all, every byte.",
    epilog="Keys of --json: store, damaged, runs [run, damaged, records, waypoints, findings "
    "[level, where, offset, waypoint, what]]. The level is damage, torn (an append that was never "
    "acknowledged), edited or note. Exit code 4 if anything is damaged. With --repair: store, run, "
    "repaired, kept, lost, others, aside; exit code 0. With --secrets: store, "
    "looked_for [values, shapes], found [path, offset, what, declared]; exit code 1 if anything is "
    "found.",
)
@click.argument("run", required=False, shell_complete=_runs.complete)
@click.option(
    "--repair",
    is_flag=True,
    help="Keep what still loads of RUN, set the rest aside, and let it go on. Asks first.",
)
@click.option("--yes", "-y", is_flag=True, help="Repair without asking.")
@click.option(
    "--secrets",
    is_flag=True,
    help="Look for secrets in every file instead: values of this environment, and likely ones.",
)
@json_option
@common_options
@click.pass_obj
def verify_(
    session: Session, run: str | None, repair: bool, yes: bool, secrets: bool, as_json: bool
) -> None:
    """Check RUN, or all runs, completely: every byte, sum, patch and note. Nothing is changed.

    A note that somebody edited is reported and is no damage: the journal has it as it was.

    With --repair, a damaged RUN is written anew with every waypoint that still loads. The damaged
    segments stay beside it, and so do the notes of lost waypoints.

    With --secrets, every byte of every file is searched for the secrets that this environment
    names, as they are, escaped, as base64 or percent-encoded, and for what looks like one. Said is
    where, and never what.
    """
    store = session.store
    if secrets and repair:
        raise UsageError("--secrets only looks, and --repair writes: one at a time.")
    if secrets:
        _secrets(store, run, as_json)
        return
    if repair:
        _repair(store, run, yes, as_json)
        return
    reports: list[Report] = []
    for report in _reports(store, run):
        reports.append(report)
        if not as_json:
            _print(report, _earlier(store, report))
    damaged = any(report.damaged for report in reports)
    if as_json:
        runs = [_tree(report, _earlier(store, report)) for report in reports]
        _out.print_json({"store": store.name, "damaged": damaged, "runs": runs})
    elif not reports:
        _out.no_runs(store.name)
    if damaged:
        click.get_current_context().exit(4)


def _repair(store: Store, run: str | None, yes: bool, as_json: bool) -> None:
    if run is None:
        raise UsageError("--repair takes the exact name of one run. Nothing was changed.")
    run_id = lookup.find(store, run, prefix=False).run_id
    report = verify(store, run_id)
    if report.damaged and not yes:
        _print_to_person(report)
        _ask(run_id)
    done = repairing.repair(store, run_id)
    aside = [Path(path).name for path in done.aside]
    if as_json:
        tree = {"run": run_id, "repaired": done.damaged, "kept": done.kept, "lost": done.lost}
        tree |= {"others": done.others, "aside": aside}
        _out.print_json({"store": store.name, **tree})
    elif not done.damaged:
        _out.line(f"{_out.cell(run_id)}: ok, nothing to repair; nothing was changed")
    else:
        lost = f"lost: {_ranges(done.lost)}" if done.lost else "none is lost"
        if done.others:
            lost += (
                f". {done.others} further record(s) could not be read: an entry, the result of a "
                "step, a question or an answer may be among them, and is gone"
            )
        beside = f" The damaged part stays beside it: {', '.join(aside)}." if aside else ""
        name = _out.cell(run_id)
        _out.line(f"{name}: repaired. {len(done.kept)} waypoint(s) kept, {lost}.{beside}")


def _secrets(store: Store, run: str | None, as_json: bool) -> None:
    _there(store)
    run_id = None if run is None else lookup.find(store, run, prefix=False).run_id
    found = list(leaks(store, run_id))
    values = len(current().secrets)
    if as_json:
        looked = {"values": values, "shapes": len(SHAPES)}
        leaks_found = [leak._asdict() for leak in found]
        _out.print_json({"store": store.name, "looked_for": looked, "found": leaks_found})
    for leak in () if as_json else found:
        at = "in its name" if leak.offset is None else f"byte {leak.offset}"
        what = f"the secret {leak.what}" if leak.declared else f"possibly a secret: {leak.what}"
        _out.line(f"{_out.cell(leak.path)}, {at}: {what}")
    if not found and not as_json:
        _out.line("no secret found")
    _out.note(
        f"looked for {values} value(s) known in this environment and {len(SHAPES)} shapes; what "
        "only your program declares is not known here"
    )
    if found:
        click.get_current_context().exit(1)


def _print_to_person(report: Report) -> None:
    for finding in report.findings:
        if finding.level == "damage":
            _out.note(f"  damage: {finding.what} ({finding.where})")


def _ask(run_id: str) -> None:
    """Ask whether to write a damaged run anew.

    Raises:
        UsageError: there is nobody to ask.
        Abort: the answer is no.
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            f"run {_out.cell(run_id)} is damaged, and there is no terminal to ask whether to write "
            "it anew with what still loads. Look at what `verify` says, then add --yes. Nothing "
            "was changed."
        )
    click.confirm(
        f"Write run {_out.cell(run_id)} anew with what still loads?", abort=True, err=True
    )


def _ranges(numbers: list[int]) -> str:
    """Return numbers in a few words: `2, 4-7`."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][-1] == number - 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ", ".join("-".join(str(number) for number in part) for part in parts)


def _reports(store: Store, run: str | None) -> Iterator[Report]:
    if run is not None:
        yield verify(store, lookup.find(store, run).run_id)
        return
    _there(store)
    for info in listing.runs(store):
        try:
            report = verify(store, info.run_id)
        except (RunNotFound, StoreRefused) as error:
            if not info.error:
                if isinstance(error, StoreRefused):
                    raise
                continue  # deleted since it was listed
            report = Report(info.run_id, 0, 0, [])  # so damaged that its name cannot be read
        if info.error and not report.damaged:
            report.findings.append(Finding("damage", info.folder, None, 0, info.error))
        yield report


def _there(store: Store) -> None:
    if isinstance(store, FileStore) and not Path(store.root).exists():
        raise RunNotFound(
            f"no store at {visible(store.name)}; --store or CARAVANSERAI_STORE names another one."
        )


def _earlier(store: Store, report: Report) -> int:
    """Return how many waypoints release 0.2.0 wrote that are not in the journal."""
    try:
        old = store.legacy(report.run_id)
    except CaravanseraiError:
        return 0
    if old is None:
        return 0
    number: int = old.number
    for record in survey.survey(store, report.run_id, bodies=False):
        if isinstance(record, Record) and record.kind == "waypoint":
            return max(0, min(record.waypoint - 1, number))
    return number


def _print(report: Report, earlier: int) -> None:
    name, count = _out.cell(report.run_id), f"{report.waypoints + earlier} waypoint(s)"
    if earlier and not report.records and not report.damaged:
        _out.line(f"{name}: written by release 0.2.0, {count}; nothing to verify")
    else:
        state = "damaged" if report.damaged else "ok"
        count += f", {earlier} of them by release 0.2.0" if earlier else ""
        _out.line(f"{name}: {state}, {count}, {report.records} record(s)")
    for finding in report.findings:
        at = f", byte {finding.offset}" if finding.offset is not None else ""
        after = f", waypoint {finding.waypoint}" if finding.waypoint else ""
        where = f"{_out.cell(finding.where)}{at}{after}"
        _out.line(f"  {_out.cell(finding.level)}: {_out.cell(finding.what)} ({where})")


def _tree(report: Report, earlier: int) -> dict[str, Any]:
    return {
        "run": report.run_id,
        "damaged": report.damaged,
        "records": report.records,
        "waypoints": report.waypoints + earlier,
        "findings": [finding._asdict() for finding in report.findings],
    }
