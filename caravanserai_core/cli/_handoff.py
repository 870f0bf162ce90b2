"""`caravanserai handoff`: what somebody needs who goes on with a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import click

from caravanserai_core import handing, lookup
from caravanserai_core.cli import _out, _runs
from caravanserai_core.cli._app import Session, common_options, json_option
from caravanserai_core.cli._shell import quote
from caravanserai_core.handed import FORMS, MAX_CHARS
from caravanserai_core.redact import redact_tree

if TYPE_CHECKING:
    from caravanserai_core.handed import For, Handoff


@click.command(
    "handoff",
    short_help="What somebody needs who goes on with a run.",
    epilog="Keys of --json: run, waypoint, status, adapter, framework, goal, summary, done, plan "
    "[text, done], since, next, waiting [id, text, options, commands], unsure, decided, results "
    "[name, arguments, text, failed], files, uncertain [id, name, arguments], losses, resume (a "
    "command), text, and messages, the conversation: in the form of Anthropic's Messages API for "
    "anthropic, else of OpenAI's Chat Completions API.",
)
@click.argument("run", shell_complete=_runs.complete)
@click.option(
    "--for",
    "who",
    type=click.Choice(FORMS),
    default="human",
    show_default=True,
    help="Who goes on: words the text, and the form of the messages in --json.",
)
@click.option(
    "--max-chars",
    type=click.IntRange(min=2000),
    default=MAX_CHARS,
    show_default=True,
    help="Most characters of the text.",
)
@json_option
@common_options
@click.pass_obj
def handoff_(session: Session, run: str, who: str, max_chars: int, as_json: bool) -> None:
    """Print RUN as a handoff: goal, done, next, what waits, what is not certain, the conversation.

    It is as the run is now; RUN@N as it was at that waypoint. Nothing of its framework has to be
    installed. What users, models and tools said is quoted, and cannot end its quotation.
    """
    store = session.store
    named = lookup.find(store, run)
    handed = handing.handoff(named.run_id, named.at, store=store, max_chars=max_chars)
    form = cast("For", who)
    if as_json:
        _out.print_json(_tree(handed, form))
    else:
        _out.line(handed.render(form).rstrip("\n"))


def _tree(handed: Handoff, who: For) -> dict[str, Any]:
    told = handed.to_json()
    for name in ("run_id", "before", "transcript", "steps", "max_chars", "open_questions"):
        del told[name]
    waiting = [
        {
            "id": question.id,
            "text": question.text,
            "options": list(question.options),
            "commands": list(question.commands),
        }
        for question in handed.open_questions
    ]
    tree = {
        "run": handed.run_id,
        **told,
        "waiting": waiting,
        "uncertain": [call._asdict() for call in handed.uncertain],
        "losses": list(handed.losses),
        "resume": f"caravanserai resume {quote(handed.run_id)}",
        "messages": handed.messages_for(who),
        "text": handed.render(who),
    }
    shown: dict[str, Any] = redact_tree(tree)
    return shown
