"""How a run of a crew is kept: what `waypoints` takes."""

from __future__ import annotations

from collections.abc import Mapping
from string import Formatter
from typing import TYPE_CHECKING, Any, NamedTuple

from caravanserai_core.errors import UsageError
from caravanserai_core.quoting import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from caravanserai_core.effects import OnUncertain
    from caravanserai_core.homes import StoreLike
    from caravanserai_core.schema import Migrations


class Options(NamedTuple):
    """How a run is kept.

    Attributes:
        run_id: its name, or a template of it that the inputs fill: "report-{topic}".
        then: the program's own task callback, or None.
        store: where it is kept.
        again: begin anew.
        takeover: take it from another living process.
        on_uncertain: what to do about a tool that began and never reported back, by its name.
        schema: schema of the states that the program writes.
        migrations: one function for each step from schema to schema.
    """

    run_id: str
    then: Callable[[Any], Any] | None = None
    store: StoreLike = None
    again: bool = False
    takeover: bool = False
    on_uncertain: OnUncertain | Mapping[str, OnUncertain] | None = None
    schema: int | None = None
    migrations: Migrations = ()

    @property
    def fields(self) -> list[str]:
        """The inputs that the name of the run is filled from."""
        return _fields(self.run_id)

    def policy(self, tool: str) -> OnUncertain:
        """Return what is done where a call of a tool began and never reported back."""
        chosen = self.on_uncertain
        if isinstance(chosen, Mapping):
            chosen = chosen.get(tool)
        return chosen or "rerun"

    def name_for(self, inputs: Mapping[str, Any] | None) -> str:
        """Return the name of the run that is started with some inputs.

        Raises:
            UsageError: an input is missing that the name is filled from.
        """
        fields = self.fields
        if not fields:
            return self.run_id
        given = inputs or {}
        missing = [name for name in fields if name not in given]
        if missing:
            raise UsageError(
                f"waypoints({one_line(self.run_id, 80)!r}) is filled from the inputs, and there is "
                f"no input {one_line(missing[0], 60)!r}: crew.kickoff(inputs={{"
                f"{one_line(missing[0], 60)!r}: …}})"
            )
        return self.run_id.format_map({name: given[name] for name in fields})


def check_options(options: Options) -> None:
    """Refuse options that mean nothing.

    Raises:
        UsageError: it says which.
    """
    run_id: Any = options.run_id
    if not isinstance(run_id, str) or not run_id:
        raise UsageError(
            "waypoints needs the name under which the run is kept and found again: "
            'Crew(…, task_callback=waypoints("report"))'
        )
    _fields(options.run_id)
    if options.then is not None and not callable(options.then):
        raise UsageError("then= is the program's own task callback, a function of a TaskOutput")
    chosen = options.on_uncertain
    policies = chosen.values() if isinstance(chosen, Mapping) else [chosen]
    if any(one not in (None, "ask", "rerun", "stop") for one in policies):
        raise UsageError('on_uncertain= is "ask", "rerun" or "stop", or a dict of tools to these')


def _fields(template: str) -> list[str]:
    try:
        parsed = [
            (name, spec, conversion) for _, name, spec, conversion in Formatter().parse(template)
        ]
    except ValueError as error:
        raise UsageError(
            f"{one_line(template, 80)!r} is no name of a run: {error}. A brace that is meant as "
            "such is written twice."
        ) from None
    names: list[str] = []
    for name, spec, conversion in parsed:
        if name is None:
            continue
        if not name.isidentifier() or spec or conversion:
            raise UsageError(
                f"{one_line(template, 80)!r}: only names of inputs stand in braces, as in "
                '"report-{topic}"'
            )
        names.append(name)
    return names
