"""How a run of a crew is kept: what `waypoints` takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import Formatter
from typing import TYPE_CHECKING, Any, NamedTuple

from caravanserai.crewai._steps import simple_name
from caravanserai_core.errors import UsageError
from caravanserai_core.handed import Handoff
from caravanserai_core.quoting import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from caravanserai_core.continuing import Continues
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
        continues: the run that a new run goes on from, or a template of its name; or a handoff.
        replay: names of tools whose recorded results of that run are given again.
    """

    run_id: str
    then: Callable[[Any], Any] | None = None
    store: StoreLike = None
    again: bool = False
    takeover: bool = False
    on_uncertain: OnUncertain | Mapping[str, OnUncertain] | None = None
    schema: int | None = None
    migrations: Migrations = ()
    continues: Continues = None
    replay: Sequence[str] = ()

    @property
    def fields(self) -> list[str]:
        """The inputs that the name of the run is filled from."""
        return _fields(self.run_id)

    def policy(self, tool: str) -> OnUncertain:
        """Return what is done where a call of a tool began and never reported back."""
        chosen = self.on_uncertain
        if chosen is None or isinstance(chosen, str):
            return chosen or "rerun"
        rules: dict[str, OnUncertain] = dict(chosen)
        for name in (tool, *rules):
            if name in rules and simple_name(name) == simple_name(tool):
                return rules[name]
        return "rerun"

    def name_for(self, inputs: Mapping[str, Any] | None) -> str:
        """Return the name of the run that is started with some inputs.

        Raises:
            UsageError: an input is missing that the name is filled from.
        """
        return _filled(self.run_id, inputs, f"waypoints({one_line(self.run_id, 80)!r})")

    def continues_for(self, inputs: Mapping[str, Any] | None) -> Continues:
        """Return what the run that is started with some inputs goes on from.

        Raises:
            UsageError: an input is missing that its name is filled from.
        """
        if not isinstance(self.continues, str):
            return self.continues
        told = f"continues={one_line(self.continues, 80)!r}"
        return _filled(self.continues, inputs, told)


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
    if isinstance(options.continues, str):
        _fields(options.continues)
    elif options.continues is not None and not isinstance(options.continues, Handoff):
        raise UsageError(
            'continues= is the run to go on from, "RUN" or "RUN@3", or what handoff() returned'
        )
    replay: Any = options.replay
    if isinstance(replay, str) or not all(isinstance(name, str) for name in replay):
        raise UsageError('replay= is a list of names of tools: replay=["lookup"]')
    if options.then is not None and not callable(options.then):
        raise UsageError("then= is the program's own task callback, a function of a TaskOutput")
    chosen = options.on_uncertain
    policies = chosen.values() if isinstance(chosen, Mapping) else [chosen]
    if any(one not in (None, "ask", "rerun", "stop") for one in policies):
        raise UsageError('on_uncertain= is "ask", "rerun" or "stop", or a dict of tools to these')


def _filled(template: str, inputs: Mapping[str, Any] | None, told: str) -> str:
    fields = _fields(template)
    if not fields:
        return template
    given = inputs or {}
    missing = [one_line(name, 60) for name in fields if name not in given]
    if missing:
        raise UsageError(
            f"{told} is filled from the inputs, and there is no input {missing[0]!r}: "
            f"crew.kickoff(inputs={{{missing[0]!r}: …}})"
        )
    return template.format_map({name: given[name] for name in fields})


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
