"""`caravanserai answer`: a person's answer to a question of a run."""

from __future__ import annotations

from typing import Any

import click
import orjson

from caravanserai_core import answering, codec, lookup, questions, steps
from caravanserai_core.cli import _out, _runs
from caravanserai_core.cli._app import Session, common_options, json_option
from caravanserai_core.cli._shell import quote
from caravanserai_core.errors import JournalDamaged, UsageError


@click.command(
    "answer",
    short_help="Answer a question that a run asks.",
    epilog="VALUE is compared with the question's options, then read as JSON, then taken as a "
    "text. A VALUE that begins with a hyphen stands behind `--`. Exit codes: 2 the answer does not "
    "fit, or the question has one; 3 no such run. Keys of --json: run, question, answer, by.",
)
@click.argument("run", shell_complete=_runs.complete)
@click.argument("words", nargs=-1, metavar="[QUESTION] VALUE")
@click.option("--approve", is_flag=True, help="Short for the VALUE true.")
@click.option("--reject", is_flag=True, help="Short for the VALUE false.")
@click.option("--reason", metavar="TEXT", help="Why; kept with the answer.")
@click.option(
    "--result", metavar="JSON", help="With `happened`: what the step is to have returned."
)
@click.option("--by", metavar="WHO", help="Who answers. Default: your user name here.")
@json_option
@common_options
@click.pass_obj
def answer_(
    session: Session,
    run: str,
    words: tuple[str, ...],
    approve: bool,
    reject: bool,
    reason: str | None,
    result: str | None,
    by: str | None,
    as_json: bool,
) -> None:
    """Answer a question of RUN; its next start goes on with the answer.

    QUESTION is its short name, q1. It may be left out where one question is open. The first
    answer counts.
    """
    store = session.store
    run_id = lookup.find(store, run, prefix=False).run_id
    if approve and reject:
        raise UsageError("--approve and --reject are two answers: give one. Nothing was recorded.")
    given = [*words, *(["true"] if approve else []), *(["false"] if reject else [])]
    if not 1 <= len(given) <= 2:
        raise UsageError("answer takes RUN, the QUESTION where several are open, and one VALUE")
    name = given[0] if len(given) == 2 else None
    value = answering.meant(given[-1], answering.question(store, run_id, name))
    more: dict[str, Any] = {} if result is None else {"result": _json(result)}
    who = questions.user() if by is None else by
    found = steps.answer(run_id, value, question=name, by=who, reason=reason, store=store, **more)
    if as_json:
        tree = orjson.loads(codec.encode(value).data)
        _out.print_json({"run": run_id, "question": found, "answer": tree, "by": who})
        return
    _out.line(f"answered {found} of {_out.cell(run_id)}: {_out.cell(answering.spoken(value), 200)}")
    _out.line(f"Start its program again to go on, or: {session.called} resume {quote(run_id)}")


def _json(text: str) -> Any:
    """Read a step's result: the first answer counts, so a slip must not become a text."""
    try:
        return codec.parse(text.encode("utf-8", "surrogateescape"))
    except (JournalDamaged, ValueError):
        raise UsageError(
            f"--result takes JSON, and {_out.cell(text, 60)!r} is none; a text is given as "
            "'\"done\"'. Nothing was recorded."
        ) from None
