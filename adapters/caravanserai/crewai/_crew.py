"""One start of a crew: which tasks are done, what is recorded while it works, how it ends."""

from __future__ import annotations

import inspect
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from caravanserai.crewai import _notes, _outputs, _people, _sdk
from caravanserai.crewai._job import Job, Recorded, own_copy
from caravanserai.crewai._steps import CONDITION, GUARDRAIL, Place, Steps, at, below, digest, here
from caravanserai_core import effects
from caravanserai_core.errors import CaravanseraiError
from caravanserai_core.questions import digest_of
from caravanserai_core.quoting import one_line
from caravanserai_core.stepping import Step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from crewai import Crew, CrewOutput, Task, TaskOutput

    from caravanserai.crewai._options import Options
    from caravanserai_core.run import Run

_PLAN = "plan"
"""Path of what is done in front of the first task, and behind the last."""

_STEP = "step_callback"
"""What agents have of it; those of other frameworks have none."""

_IDENTITY = ("key", "made_by", "gives")
"""What makes a task the one that it was: its text, who does it, and the type that it gives."""


class CrewJob(Job):
    """One start of a crew.

    Args:
        crew: the crew.
        given: the inputs that its kickoff is given.
        options: how the run is kept.
    """

    def __init__(self, crew: Crew, given: dict[str, Any] | None, options: Options) -> None:
        super().__init__(options.name_for(given), options, options.continues_for(given))
        self._crew = crew
        self._given = None if given is None else own_copy(dict(given))
        self._tasks = list(crew.tasks)
        self._told = [self._told_task(task) for task in self._tasks]
        self._done: dict[int, dict[str, Any]] = {}
        self._outputs: dict[int, TaskOutput] = {}
        self._skipped: set[int] = set()
        self._changed: int | None = None
        self._lock = threading.Lock()

    def open(self) -> Run:
        """Open the run; it is to be entered."""
        goal = _notes.goal_of(self._crew.name or "crew", self._given)
        return self._open(goal, _sdk.process_of(self._crew))

    # ------------------------------------------------------------------ where it is

    def begin(self) -> Recorded | None:
        """Find out where the run stands; returns what it gave where it is finished.

        Raises:
            InputChanged: it was begun with other inputs.
            WaitingForPerson: it has to be said first whether a tool's call happened.
        """
        if not any(getattr(agent, "mcps", None) for agent in self._crew.agents):
            self._warn_of_policies({str(tool.name) for tool in self._tools()})
        before = self._known("crew")
        if before is None:
            self._begin_pass()
            tree = self._tree("begin")
            self.run.checkpoint(tree, _notes.begun(tree, self._run_id))
            self.steps = Steps(self.run, {})
            return None
        self._check_inputs(before["given"], self._given)
        same = self._unchanged(before)
        if before["at"] == "end" and same == len(self._told) == len(before["tasks"]):
            if not self.journal.turns.do(lambda: self.journal.outcome):
                self._record_end(before["result"])  # killed in front of this record
            outputs = {
                entry["task"]: _outputs.restored_task(entry["output"]) for entry in before["done"]
            }
            return Recorded(_outputs.restored_crew(before["result"], outputs))
        self._settle()
        self._take_up(before, same)
        return None

    def _unchanged(self, before: dict[str, Any]) -> int:
        """Return how many tasks, from the first one on, are as they were."""
        same = 0
        for now, then in zip(self._told, before["tasks"], strict=False):
            if any(now[name] != then.get(name) for name in _IDENTITY):
                break
            same += 1
        return same

    def _take_up(self, before: dict[str, Any], same: int) -> None:
        self._resumed = before["at"] != "end" and self._was_cut_off()
        for entry in before["done"]:
            if entry["task"] < same:
                self._done[entry["task"]] = entry
                self._outputs[entry["task"]] = _outputs.restored_task(entry["output"])
        self._skipped = {index for index in before["skipped"] if index < same}
        self.steps = Steps(self.run, before["carried"])
        if same < max(len(self._told), len(before["tasks"])):
            self._changed = same
            self.run.remark(_notes.changed(before, same))
            tree = self._tree("task" if self._done else "begin", self._carried())
            self.run.checkpoint(tree, _notes.begun(tree, self._run_id))
            self.steps = Steps(self.run, tree["carried"])
            self._changed = None
        self._count_what_was_used()
        self._count_calls()
        self._write_files()

    def _told_task(self, task: Task) -> dict[str, Any]:
        agent = None if _sdk.is_hierarchical(self._crew) else task.agent
        wanted = task.output_pydantic or task.output_json or task.response_model
        return {
            "key": task.key,
            "name": task.name,
            "description": _filled(task.description, self._given),
            "expected": _filled(task.expected_output, self._given),
            "agent": None if agent is None else _filled(agent.role, self._given),
            "made_by": None if agent is None else agent.key,
            "gives": None if wanted is None else wanted.__qualname__,
            "async": bool(task.async_execution),
        }

    def _path(self, index: int) -> str:
        """Return the path of a task: another one where it, or one before it, is another task."""
        of = digest([[told[name] for name in _IDENTITY] for told in self._told[: index + 1]])
        return f"task-{index + 1}.{of[:8]}"

    def _tree(self, at_: str, carried: dict[str, Any] | None = None) -> dict[str, Any]:
        tree: dict[str, Any] = {
            "at": at_,
            "crewai": _sdk.crewai_version(),
            "crew": {
                "name": self._crew.name or "crew",
                "process": _sdk.process_of(self._crew),
            },
            "given": self._given,
            "tasks": self._told,
            "done": list(self._done.values()),
            "skipped": sorted(self._skipped),
            "carried": carried or {},
        }
        if self.handed is not None:
            tree["handed"] = self.handed
        if self._changed is not None:
            tree["changed"] = self._changed
        return tree

    def _carried(self) -> dict[str, Any]:
        """Return what is recorded of work that is not at its end."""
        running = [self._path(i) for i in range(len(self._tasks)) if i not in self._done]
        return self.steps.below(_PLAN, *running)

    # ------------------------------------------------------------------ working

    @contextmanager
    def working(self) -> Iterator[None]:
        """Let the crew work; its callbacks are put back at the end."""
        crew = self._crew
        callbacks = [(task, task.callback) for task in self._tasks]
        # Without inputs nothing puts the text of a task back that the plan is added to.
        planned = bool(crew.planning) and self._given is None
        texts = [(task, task.description) for task in self._tasks if planned]
        before, after = crew.before_kickoff_callbacks, crew.after_kickoff_callbacks
        agents: list[Any] = list(crew.agents)
        stepping = [(agent, agent.step_callback) for agent in agents if hasattr(agent, _STEP)]
        crew_step = crew.step_callback
        for index, (task, callback) in enumerate(callbacks):
            if callback is not None and not hasattr(callback, OPTIONS):
                task.callback = self._once(f"callback of {_title(self._told[index])}", callback)
        crew.before_kickoff_callbacks = [
            self._once(f"before_kickoff {n}", one, keeps=True) for n, one in enumerate(before, 1)
        ]
        crew.after_kickoff_callbacks = [
            self._once(f"after_kickoff {n}", one, keeps=True) for n, one in enumerate(after, 1)
        ]
        for agent, callback in stepping:
            if callback is not None:
                agent.step_callback = self._once("step_callback", callback)
        if crew_step is not None:
            crew.step_callback = self._once("step_callback", crew_step)
        try:
            with at(Place(self, _PLAN)), _people.answering():
                yield
        finally:
            for task, callback in callbacks:
                task.callback = callback
            for task, text in texts:
                task.description = text
            crew.before_kickoff_callbacks, crew.after_kickoff_callbacks = before, after
            for agent, callback in stepping:
                agent.step_callback = callback
            crew.step_callback = crew_step

    def _once(
        self, label: str, callback: Callable[[Any], Any], *, keeps: bool = False
    ) -> Callable[[Any], Any]:
        """Return a callback of the program that is called once for each thing it is about.

        Args:
            label: what notes call it.
            callback: the program's; async or not.
            keeps: CrewAI uses what it returns.
        """

        def step_of(value: Any) -> Step:
            place = here.get() or Place(self, _PLAN)
            about = digest(_about(value))
            key = place.steps.key("callback", place.path, f"{label}({about})")
            return Step((label, digest_of(key, "a callback")), "", token=f"{self.token}/{about}")

        def called(value: Any) -> Any:
            given: list[Any] = []

            def run() -> Any:
                with at(None), self.programs_own():
                    given.append(callback(value))
                return _outputs.kept(given[0]) if keeps else None

            with self.escaping():
                kept = effects.once(self.journal, step_of(value), run, "rerun")
            return given[0] if given else kept and _outputs.restored(kept)

        async def acalled(value: Any) -> None:
            async def run() -> None:
                with at(None), self.programs_own():
                    await callback(value)

            with self.escaping():
                await effects.aonce(self.journal, step_of(value), run, "rerun")

        return acalled if inspect.iscoroutinefunction(callback) else called

    def index_of(self, task: Any) -> int | None:
        """Return which of the crew's tasks one is, None: none of them."""
        return next((i for i, one in enumerate(self._tasks) if one is task), None)

    def index_at(self, path: str) -> int | None:
        """Return which task a path is of, None: of none."""
        return next((i for i in range(len(self._tasks)) if below(path, self._path(i))), None)

    def place_of(self, index: int) -> Place:
        """Return the place of the work on a task."""
        return Place(self, self._path(index), self._told[index]["agent"] or "")

    def give_again(self, index: int) -> TaskOutput | None:
        """Give a task that is done its output, and return that; None: it is not done."""
        known = self._outputs.get(index)
        if known is not None:
            self._tasks[index].output = known
        return known

    def context_of(self, task: Any, context: str | None) -> str | None:
        """Return the context that a task of the crew is given, with what the run was handed.

        All of it where no earlier task gives context; else what was done and decided, without the
        conversation. Where CrewAI lets an agent try again it drops the context: then it is added
        there.
        """
        handed = self.handed
        if handed is None or self.index_of(task) is None:
            return context
        if not context:
            return str(handed["text"])
        if handed["text"] in context or handed["brief"] in context:
            return context
        return _sdk.contexts(handed["brief"], context)

    def decide(self, index: int, output: Any, decide: Callable[[Any], bool]) -> bool:
        """Say whether a conditional task is to be done: as it was decided before."""
        if index in self._outputs:
            return True
        if index in self._skipped:
            return False
        key = self.steps.key(CONDITION, self._path(index))
        known = self.steps.recorded(key)
        if known is None:
            with at(self.place_of(index)):
                known = {"do": bool(decide(output))}
            self.steps.record(key, known, durable=False)
        if not known["do"]:
            self._skipped.add(index)
        return bool(known["do"])

    def judge(self, place: Place, number: str, output: Any, judge: Callable[[], Any]) -> Any:
        """Return what a guardrail finds, now or before.

        Args:
            place: where it judges.
            number: which guardrail of the task it is.
            output: what it judges.
            judge: asks it; returns a `GuardrailResult`.
        """
        key = place.steps.key(GUARDRAIL, place.path, f"{number}({digest(_about(output))})")
        inside = place.inside(f"guardrail-{digest(key)}")
        known = place.steps.recorded(key)
        if known is not None:
            self.given_again(inside)
            gave = _outputs.restored(known["gave"])
            return _sdk.guardrail_result(known["success"], gave, known["error"])
        with at(inside), self.programs_own():
            found = judge()
        data = {
            "success": found.success,
            "gave": _outputs.kept(found.result),
            "error": found.error,
        }
        say = None if found.success else _notes.refused(place.agent, str(found.error))
        with self.escaping():
            place.steps.record(key, data, say=say, durable=False)
        return found

    def finished_task(self, index: int, output: TaskOutput) -> Any:
        """Write down that a task is done; called where CrewAI calls the task callback.

        Returns:
            None, or what CrewAI awaits where `then` is async.
        """
        then = self._options.then
        if then is None:
            self._write_task(index, output)
            return None
        told = self._once("task_callback", then)(output)
        if not inspect.isawaitable(told):
            self._write_task(index, output)
            return None

        async def ended() -> None:
            await told
            self._write_task(index, output)

        return ended()

    def _write_task(self, index: int, output: TaskOutput) -> None:
        with self._lock:
            if index in self._outputs:
                return
            task = self._tasks[index]
            did = self._did[self._path(index)]
            self._done[index] = {
                "task": index,
                "output": _outputs.kept_task(output),
                "did": {
                    "models": did.models,
                    "seconds": task.execution_duration or 0.0,
                    "agent": output.agent,
                    "tools": did.tools,
                    "guardrail_retries": task.retry_count,
                },
                "usage": did.usage,
            }
            counts = {str(tool.name): tool.current_usage_count for tool in self._limited()}
            if counts:
                self._done[index]["counts"] = counts
            self._outputs[index] = output
            self._note_counted(index)
            tree = self._tree("task", self._carried())
            resumed, self._resumed = self._resumed, False
            self.run.checkpoint(tree, _notes.task_done(tree, self._run_id, resumed=resumed))
            self.steps.forget(self._path(index))

    def failed_task(self, index: int, error: BaseException) -> None:
        """Let the next start ask again for what made a task fail."""
        ours = isinstance(error, CaravanseraiError) or self.reason is not None
        if isinstance(error, Exception) and not ours:
            self.failed_at(self._path(index), error)

    # ------------------------------------------------------------------ the end

    def end(self, result: CrewOutput) -> None:
        """Write down that the crew is done, with its result."""
        tree = self._tree("end", self._carried())
        tree["result"] = _outputs.kept_crew(result, self._outputs)
        resumed, self._resumed = self._resumed, False
        self.run.checkpoint(tree, _notes.finished(tree, self._run_id, resumed=resumed))
        self._record_end(tree["result"])

    def _record_end(self, result: dict[str, Any]) -> None:
        self.run.finish(result["raw"], call=digest(self._given))

    # ------------------------------------------------------------------ tokens, files

    def slot_of(self, model: Any) -> str:
        """Return by which name the tokens of a model are counted: the first agent that has it."""
        for number, agent in enumerate(self._crew.agents):
            if agent.llm is model:
                return f"agent {number}"
        manager = self._crew.manager_agent
        return "manager" if manager is not None and manager.llm is model else ""

    def models(self) -> dict[str, Any]:
        """Return the models whose tokens CrewAI counts, by name."""
        models = {f"agent {n}": agent.llm for n, agent in enumerate(self._crew.agents)}
        manager = self._crew.manager_agent
        models["manager"] = manager.llm if manager is not None else self._crew.manager_llm
        return models

    def _count_what_was_used(self) -> None:
        """Add what the finished tasks used to what the models of this process count."""
        for index, entry in self._done.items():
            models = self._note_counted(index)
            for slot, usage in entry["usage"]:
                if slot in models:
                    _sdk.add_usage(models[slot], usage)

    def _note_counted(self, index: int) -> dict[str, Any]:
        """Note that models of this process count what a task used; returns those that did not."""
        used = {slot for slot, _ in self._done[index]["usage"]}
        return {
            slot: model
            for slot, model in self.models().items()
            if slot in used and _sdk.first_time(model, (self._run_id, self._path(index)))
        }

    def _limited(self) -> list[Any]:
        """Return the tools whose calls `max_usage_count` limits."""
        return [tool for tool in self._tools() if tool.max_usage_count is not None]

    def _tools(self) -> list[Any]:
        """Return the tools of the crew's agents and tasks."""
        owners: list[Any] = [*self._crew.agents, *self._tasks]
        return list({id(tool): tool for owner in owners for tool in owner.tools or ()}.values())

    def _count_calls(self) -> None:
        """Count the calls of finished tasks with those that `max_usage_count` limits."""
        for entry in self._done.values():
            for tool in self._limited():
                counted = entry.get("counts", {}).get(tool.name, 0)
                tool.current_usage_count = max(tool.current_usage_count, counted)

    def _write_files(self) -> None:
        """Write the output files that a crash may have kept from being written.

        CrewAI writes the file of a task behind its callback, so behind the waypoint.
        """
        for index, output in self._outputs.items():
            task = self._tasks[index]
            newest = index == next(reversed(self._done), None)
            if task.output_file and (newest or task.async_execution):
                _sdk.save_output(task, self._given, output)


OPTIONS = "_caravanserai_options"
"""Attribute of the function that `waypoints` gives: its options."""


def _title(told: dict[str, Any]) -> str:
    return one_line(told["name"] or told["description"], 60)


_BY_PROCESS = {"messages", "token_usage", "tool_failures", "tasks_output"}
"""What an output says of the process it was made in: ids of its tasks, tokens of its models."""


def _about(value: Any) -> Any:
    """Return what tells a value that a callback is given from others."""
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json", exclude=_BY_PROCESS, fallback=repr)
    return (
        value if isinstance(value, (dict, list, str)) else getattr(value, "__dict__", repr(value))
    )


def _filled(text: str, given: dict[str, Any] | None) -> str:
    """Return a text of a task with the inputs in it, as CrewAI fills it at its kickoff."""
    for name, value in (given or {}).items():
        text = text.replace("{" + str(name) + "}", str(value))
    return text
