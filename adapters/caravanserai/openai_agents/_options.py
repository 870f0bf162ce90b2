"""What `Runner` takes beside the parameters of the SDK."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from caravanserai_core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from caravanserai_core.continuing import Continues
    from caravanserai_core.effects import OnUncertain
    from caravanserai_core.homes import StoreLike
    from caravanserai_core.schema import Migrations


class Options(NamedTuple):
    """How a run is kept; the parameters that `Runner` adds to those of the SDK.

    Attributes:
        run_id: its name.
        store: where it is kept.
        again: begin anew.
        takeover: take it from another living process.
        schema: schema of the states that the program writes.
        migrations: one function for each step from schema to schema.
        on_uncertain: what to do about a tool that began and never reported back, by its name.
        context_serializer: makes of the context what is kept of it.
        context_deserializer: makes the context of that.
        continues: the run that a new run goes on from.
        replay: names of tools whose recorded results of that run are given again.
    """

    run_id: str
    store: StoreLike = None
    again: bool = False
    takeover: bool = False
    schema: int | None = None
    migrations: Migrations = ()
    on_uncertain: OnUncertain | Mapping[str, OnUncertain] | None = None
    context_serializer: Callable[[Any], Any] | None = None
    context_deserializer: Callable[[Any], Any] | None = None
    continues: Continues = None
    replay: Sequence[str] = ()


def check_options(options: Options) -> None:
    """Refuse options that do not fit together.

    Raises:
        UsageError: it says which.
    """
    chosen = options.on_uncertain
    policies = chosen.values() if isinstance(chosen, Mapping) else [chosen]
    if any(one not in (None, "ask", "rerun", "stop") for one in policies):
        raise UsageError('on_uncertain= is "ask", "rerun" or "stop", or a dict of tools to these')
    if options.context_deserializer is not None and options.context_serializer is None:
        raise UsageError("context_deserializer= needs context_serializer=")
