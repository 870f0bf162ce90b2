"""What every adapter promises, as tests; each job runs in a process of its own and is killed."""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from multiprocessing import forkserver
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from caravanserai_core import api
from caravanserai_core.api import handoff
from caravanserai_core.errors import CaravanseraiError, WaitingForPerson
from caravanserai_core.listing import runs
from caravanserai_core.notes import SECTIONS
from caravanserai_core.run import open_run
from caravanserai_core.stores import open_store
from caravanserai_core.upkeep import fork
from caravanserai_core.verify import verify

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext

PAUSED = "paused"
"""What a job's `start` returns where its framework pauses by returning."""

_STEPS = ("look", "send", "sum")
_ALL = [f"{step} done" for step in _STEPS]
_SECRET = "CARAVANSERAI_TEST_API_KEY"
_TITLE = re.compile(
    r"# (Waypoint [1-9]\d* — \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00|No waypoint yet)"
)
_SECTION = re.compile(r"^## ([A-Z][a-z ]+?)(?: \(.*\))?$", re.MULTILINE)


class Job(NamedTuple):
    """What one process is to do.

    Attributes:
        run_id: the run.
        store: a folder or a URL.
        log: a file outside of it that counts what really happened.
        kill: `"begin send"` or `"end send"`: the process kills itself at the beginning or end of
            what that step does to the world; None: it lives.
        asks: whether a person is asked between the first step and the second.
        version: 1 or 2: of the program. The first keeps the text of the first step under the name
            `name`, the second under `title`.
        migrates: the second version knows how the first one kept it.
        secret: name of an environment variable; its value belongs into the state; None: none.
        continues: the run that this one goes on from, as every entry point takes it; None: none.
    """

    run_id: str
    store: str
    log: str
    kill: str | None = None
    asks: bool = False
    version: int = 1
    migrates: bool = True
    secret: str | None = None
    continues: str | None = None

    def do(self, name: str) -> str:
        """Do to the world what step `name` does: one line in the log; may end the process."""
        self._say(f"begin {name}")
        self._say(f"end {name}")
        return f"{name} done"

    def _say(self, line: str) -> None:
        with open(self.log, "a", encoding="utf-8") as log:  # noqa: PTH123 - also where Path is slow
            log.write(line + "\n")
        if self.kill == line:
            os.kill(os.getpid(), signal.SIGKILL)


class Ended(NamedTuple):
    """How a process with a job ended.

    Attributes:
        code: its exit code; -9: it was killed.
        result: what its `start` returned, or None.
        error: name of the class of what it raised and its text, or None.
        waits: it waits for a person.
    """

    code: int
    result: Any = None
    error: str | None = None
    waits: bool = False


def _child(module: str, name: str, job: Job, out: str, environment: dict[str, str]) -> None:
    """Run in the new process."""
    # That of the process which asked, and not of the one that this was forked from.
    os.environ.clear()
    os.environ.update(environment)
    ended: dict[str, Any] = {}
    try:
        result = getattr(importlib.import_module(module), name)().start(job)
        ended = {"waits": True} if result == PAUSED else {"result": result}
    except WaitingForPerson:
        ended = {"waits": True}
    except CaravanseraiError as error:
        ended = {"error": f"{type(error).__name__}: {error}"}
    Path(out).write_text(json.dumps(ended), encoding="utf-8")


_preloaded: list[str] = []


def _preload(context: ForkServerContext, module: str) -> None:
    """Import the framework once, in the process that all others are forked from."""
    if _preloaded != [module]:
        # One that runs has another framework, and would leave the import to each child.
        getattr(forkserver._forkserver, "_stop", bool)()
        _preloaded[:] = [module]
        context.set_forkserver_preload([__name__, module])


class AdapterTests:
    """Promises of an adapter. A subclass stands at the top of a module and has a method `start`.

    `start` is the line that a user of the framework writes: it begins the job, goes on with it, or
    returns its recorded result, and it returns `PAUSED` or raises `WaitingForPerson` where a person
    is asked. The job has three steps, each in the framework's own form and each followed by a
    waypoint: `look`, `send`, `sum`. Each calls `job.do(name)`; `send` does so as an effect that
    must not be repeated: through `once("send", job.do, "send")`. The line gives `continues` of the
    job to the entry point. If `job.asks`, a person is asked
    before it (`Send it?`, yes or no); at `no` it is left out. `start` returns the list of what
    `do` gave, without what was left out.
    """

    def start(self, job: Job) -> Any:
        """Begin the job or go on with it."""
        raise NotImplementedError

    # ------------------------------------------------------------------ running

    @pytest.fixture
    def job(self, tmp_path: Path) -> Job:
        """Return a job that is not begun."""
        return Job("job", str(tmp_path / "store"), str(tmp_path / "log.txt"))

    def run(self, job: Job, **environment: str) -> Ended:
        """Start a job in a new process and wait for its end."""
        context = multiprocessing.get_context("forkserver")
        _preload(context, type(self).__module__)
        out = Path(job.log).with_suffix(".json")
        out.unlink(missing_ok=True)
        given = {**os.environ, **environment}
        work = (type(self).__module__, type(self).__qualname__, job, str(out), given)
        process = context.Process(target=_child, args=work)
        process.start()
        process.join(60)
        assert process.exitcode is not None, "the job does not end"
        if not out.exists():
            return Ended(process.exitcode)
        return Ended(process.exitcode, **json.loads(out.read_text(encoding="utf-8")))

    def done(self, job: Job) -> Counter[str]:
        """Return how often each thing happened outside of the store."""
        log = Path(job.log)
        return Counter(log.read_text(encoding="utf-8").splitlines() if log.exists() else ())

    def answer(self, job: Job, *words: str) -> subprocess.CompletedProcess[str]:
        """Answer from the command line, in a process of its own."""
        command = [sys.executable, "-m", "caravanserai_core.cli", "answer", "--store", job.store]
        return subprocess.run(
            [*command, job.run_id, *words], capture_output=True, text=True, check=False
        )

    def status(self, job: Job) -> str:
        """Return the run's status as lists have it."""
        store = open_store(job.store)
        status = next(info.status for info in runs(store))
        store.close()
        return status

    def notes(self, job: Job) -> dict[str, str]:
        """Return the notes beside the journal by name."""
        store = open_store(job.store)
        numbers = [point.number for point in api.history(job.run_id, store=store)]
        names = [*(f"waypoint-{number}.md" for number in numbers), "latest.md"]
        found = {name: store.get_note(job.run_id, name) for name in names}
        store.close()
        return {name: text for name, text in found.items() if text is not None}

    # ------------------------------------------------------------------ the promises

    def test_a_finished_job_returns_its_result_and_does_nothing(self, job: Job) -> None:
        assert self.run(job) == Ended(0, _ALL)
        before = self.done(job)

        assert self.run(job) == Ended(0, _ALL)

        assert self.done(job) == before
        assert set(before.values()) == {1}
        assert self.status(job) == "finished"

    @pytest.mark.parametrize("at", ["begin look", "end look", "begin sum", "end sum"])
    def test_a_killed_job_goes_on_and_repeats_no_finished_step(self, job: Job, at: str) -> None:
        assert self.run(job._replace(kill=at)).code == -signal.SIGKILL

        assert self.run(job) == Ended(0, _ALL)

        step = at.partition(" ")[2]
        done = self.done(job)
        assert done[f"begin {step}"] == 2  # it was not finished
        assert all(done[f"begin {other}"] == 1 for other in _STEPS if other != step)
        assert not verify(open_store(job.store), job.run_id).damaged

    @pytest.mark.parametrize(("at", "times"), [("begin send", 2), ("end send", 1)])
    def test_an_effect_that_did_not_report_is_named_and_not_repeated_unasked(
        self, job: Job, at: str, times: int
    ) -> None:
        assert self.run(job._replace(kill=at)).code == -signal.SIGKILL
        assert "no result yet" in self.notes(job)["latest.md"]

        assert self.run(job).waits
        assert self.run(job).waits
        note = self.notes(job)["latest.md"]
        assert "## Not certain" in note
        assert "send" in note.partition("## Not certain")[2]
        assert self.status(job) == "waiting"
        words = ("rerun",) if times == 2 else ("happened", "--result", '"send done"')
        assert self.answer(job, *words).returncode == 0

        assert self.run(job) == Ended(0, _ALL)
        assert self.done(job)["begin send"] == times
        assert self.done(job)["begin look"] == 1

    def test_a_person_answers_from_elsewhere_after_three_restarts(self, job: Job) -> None:
        job = job._replace(asks=True)
        for _ in range(3):
            assert self.run(job).waits
        assert self.status(job) == "waiting"
        note = self.notes(job)["latest.md"]
        assert note.splitlines()[2].startswith("**Waiting for a person")
        assert f"caravanserai answer {job.run_id} q1" in note

        assert self.answer(job, "yes").returncode == 0
        second = self.answer(job, "q1", "no")
        assert self.run(job) == Ended(0, _ALL)

        assert second.returncode != 0
        assert self.done(job) == Counter(
            f"{at} {step}" for step in _STEPS for at in ("begin", "end")
        )
        assert "**Waiting" not in self.notes(job)["latest.md"]

    def test_a_no_takes_the_other_branch_alone(self, job: Job) -> None:
        job = job._replace(asks=True)
        assert self.run(job).waits
        assert self.answer(job, "q1", "no").returncode == 0

        assert self.run(job) == Ended(0, ["look done", "sum done"])

        assert self.done(job)["begin send"] == 0

    def test_every_waypoint_stays_what_it_was(self, job: Job) -> None:
        self.run(job._replace(kill="begin sum"))
        before = self._states(job)
        assert self.run(job) == Ended(0, _ALL)

        after = self._states(job)

        assert len(before) >= 2
        assert {number: after[number] for number in before} == before
        assert len(after) > len(before)

    def _states(self, job: Job) -> dict[int, Any]:
        points = api.history(job.run_id, store=job.store)
        return {
            point.number: api.load(job.run_id, point.number, store=job.store, raw=True)
            for point in points
        }

    def test_a_fork_goes_on_and_leaves_its_parent(self, job: Job) -> None:
        assert self.run(job) == Ended(0, _ALL)
        folder = Path(open_store(job.store).where(job.run_id))
        before = {path.name: path.read_bytes() for path in folder.glob("*.jsonl")}
        states = self._states(job)

        for number, state in states.items():
            name = f"fork-{number}"
            first = fork(job.run_id, at=number, new_run_id=name, store=job.store)
            assert api.load(name, first, store=job.store, raw=True) == state
            assert self.run(job._replace(run_id=name)) == Ended(0, _ALL)

        assert {path.name: path.read_bytes() for path in folder.glob("*.jsonl")} == before
        assert self.done(job)["begin send"] <= len(states)

    def test_old_state_goes_on_in_new_code(self, job: Job) -> None:
        self.run(job._replace(kill="begin sum"))
        old = job._replace(version=2, migrates=False)

        refused = self.run(old)
        assert (refused.error or "").startswith("SchemaMismatch"), refused
        assert self.run(job._replace(version=2)) == Ended(0, _ALL)

        assert self.done(job)["begin look"] == 1
        backwards = self.run(job)
        assert backwards.result == _ALL or "SchemaMismatch" in (backwards.error or "")

    def test_a_declared_secret_reaches_no_file(self, job: Job) -> None:
        secret = "s3cr3t-" + os.urandom(12).hex()
        job = job._replace(secret=_SECRET)
        assert self.run(job._replace(kill="begin sum"), **{_SECRET: secret}).code == -9
        assert self.run(job, **{_SECRET: secret}) == Ended(0, _ALL)

        files = [path for path in Path(job.store).rglob("*") if path.is_file()]
        assert files
        assert not [path for path in files if secret.encode() in path.read_bytes()]
        assert any(f"env:{_SECRET}".encode() in path.read_bytes() for path in files)

    def test_a_killed_job_is_handed_to_a_program_without_its_framework(self, job: Job) -> None:
        assert self.run(job._replace(kill="begin sum")).code == -signal.SIGKILL

        handed = handoff(job.run_id, store=job.store)
        with open_run("next", store=job.store, continues=job.run_id) as run:
            assert run.handoff == handed
            sent = run.once("send", job.do, "send")
            run.checkpoint({"sent": sent}, "sent")

        assert sent == "send done"
        assert self.done(job)["begin send"] == 1
        assert any("send" in result.name for result in handed.results)
        assert "\n## Next" in handed.text
        assert f"caravanserai resume {job.run_id}" in handed.text
        assert len(handed.text) <= handed.max_chars
        first = Path(open_store(job.store).where("next"), "waypoint-1.md")
        assert f"goes on from run `{job.run_id}`" in first.read_text(encoding="utf-8")

    @pytest.mark.parametrize("at", [None, "begin look", "end send"])
    def test_a_job_goes_on_from_a_run_of_another_kind(self, job: Job, at: str | None) -> None:
        with open_run("before", store=job.store, goal="Send it once.") as run:
            run.once("send", job.do, "send")
            run.checkpoint({"messages": [{"role": "user", "content": "Send it once."}]}, "Sent it.")
        job = job._replace(continues="before")
        if at is not None:
            died = self.run(job._replace(kill=at))
            assert died.code == (0 if at == "end send" else -signal.SIGKILL)

        assert self.run(job) == Ended(0, _ALL)

        assert self.done(job)["begin send"] == 1
        assert handoff("before", store=job.store).goal == handoff(job.run_id, store=job.store).goal
        first = self.notes(job)["waypoint-1.md"]
        assert "goes on from run `before`" in first, first
        other = self.run(job._replace(continues="before@-1"))
        assert other == Ended(0, _ALL)
        wrong = self.run(job._replace(continues="other"))
        assert (wrong.error or "").startswith("InputChanged"), wrong

    def test_notes_have_the_sections_of_all_notes(self, job: Job) -> None:
        self.run(job._replace(asks=True))
        self.answer(job, "yes")
        self.run(job._replace(asks=True, kill="begin sum"))
        self.run(job._replace(asks=True))

        for name, note in self.notes(job).items():
            lines = note.splitlines()
            assert _TITLE.fullmatch(lines[0]), (name, lines[0])
            assert not lines[1], name
            assert lines[2], name
            order = [SECTIONS.index(section) for section in _SECTION.findall(note)]
            assert order == sorted(set(order)), (name, note)
