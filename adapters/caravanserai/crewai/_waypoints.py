"""What a program gives its crew: `waypoints`, and `resumable_crew` for a crew that it has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from caravanserai.crewai._crew import OPTIONS
from caravanserai.crewai._kickoff import install, task_ended
from caravanserai.crewai._options import Options, check_options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeVar

    from crewai import Crew, TaskOutput

    from caravanserai_core.continuing import Continues
    from caravanserai_core.effects import OnUncertain
    from caravanserai_core.homes import StoreLike
    from caravanserai_core.schema import Migrations

    C = TypeVar("C", bound=Crew)


def waypoints(
    run_id: str,
    *,
    then: Callable[[TaskOutput], Any] | None = None,
    store: StoreLike = None,
    again: bool = False,
    takeover: bool = False,
    on_uncertain: OnUncertain | Mapping[str, OnUncertain] | None = None,
    schema: int | None = None,
    migrations: Migrations = (),
    continues: Continues = None,
    replay: Sequence[str] = (),
) -> Callable[[TaskOutput], Any]:
    """Return the task callback that makes the kickoffs of a crew survive.

    `Crew(agents=[…], tasks=[…], task_callback=waypoints("report-{topic}"))`, then `kickoff`,
    `kickoff_async`, `akickoff` or one of the `…_for_each` as usual. Each task that ends leaves a
    waypoint, and inside of a task each answer of a model and each result of a tool is recorded.
    The same line starts, goes on after a crash, and returns the recorded result when finished.

    Args:
        run_id: the name of the run, or a template that the inputs fill.
        then: the program's own task callback; called once for each task, async or not.
        store: a store, a folder or URL; by default CARAVANSERAI_STORE, else `.caravanserai` here.
        again: begin anew, whatever is recorded.
        takeover: take the run from another living process, if one works on it.
        on_uncertain: what to do about a tool that began and never reported back: "rerun" (by
            default; every note says so), "ask" a person or "stop"; or that by the tool's name.
        schema: the schema of the states that the program writes; see `open_run`.
        migrations: one function for each step from schema to schema.
        continues: the run that a new run goes on from, of whatever framework: "RUN" or "RUN@3", in
            the same store; or what `handoff()` returned. A name may hold inputs, as that of the
            run: "research-{topic}". Its tasks are given what that run hands over as context.
        replay: names of tools whose recorded results of that run are given again where they are
            called with equal arguments.

    Returns:
        A plain function, which CrewAI takes without a warning.

    Raises:
        UsageError: the options mean nothing.

    A kickoff raises, beside what CrewAI raises:
        InputChanged: the run was begun with other inputs, or goes on from another run.
        RunNotFound: there is no run to go on from.
        RunBusy: another living process works on it.
        WaitingForPerson: a person is asked; `caravanserai answer`, then the same kickoff again.
        UsageError: an input that names the run is missing, or several inputs would be one run.
    """
    options = Options(
        run_id, then, store, again, takeover, on_uncertain, schema, migrations, continues, replay
    )
    check_options(options)
    install()

    def waypoint(output: TaskOutput) -> Any:
        in_run, told = task_ended(output)
        if in_run:
            return told
        return None if then is None else then(output)

    # CrewAI's checkpoints name functions by their place in a module, and warn of all others.
    waypoint.__qualname__ = "waypoints"
    setattr(waypoint, OPTIONS, options)
    return waypoint


def resumable_crew(crew: C, *, run_id: str, **options: Any) -> C:
    """Make the kickoffs of a crew survive that the program did not build.

    Args:
        crew: the crew; its own task callback is called as before.
        run_id: the name of the run, or a template that the inputs fill.
        **options: those of `waypoints`, without `then`, which is the crew's own.

    Returns:
        The very crew.

    Raises:
        UsageError: the options mean nothing.
    """
    known = crew.task_callback
    before = getattr(known, OPTIONS, None)
    then = before.then if before is not None else known
    crew.task_callback = waypoints(run_id, then=then, **options)
    for task in crew.tasks:
        if getattr(task.callback, OPTIONS, None) is before and before is not None:
            task.callback = None  # the crew gave it to its tasks at a kickoff before
    return crew
