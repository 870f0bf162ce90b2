"""Flows that jobs run, each method with a line in `outside.txt`; functions for `Preloaded`."""

from __future__ import annotations

import asyncio
import enum
import importlib
import json
import logging
import os
import uuid
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

from integration_tests.crewai import offline
from integration_tests.crewai.places import die_at, reach

# isort: split
from crewai.flow.async_feedback.types import HumanFeedbackPending
from crewai.flow.flow import Flow, and_, listen, or_, router, start
from crewai.flow.human_feedback import human_feedback
from crewai.flow.persistence import persist
from pydantic import BaseModel, Field

from caravanserai import current_run, once
from caravanserai.crewai import WaypointFlowPersistence
from integration_tests.crewai.apps import lookup, write_down

with suppress(ImportError):
    # Each flow has a memory, which imports this: better once here than in each process.
    importlib.import_module("lance_namespace")

RUN = "flow-1"
KEPT = WaypointFlowPersistence()


class Counting(BaseModel):
    id: str = ""
    n: int = 0
    log: list[str] = Field(default_factory=list)


@persist(KEPT)
class Looping(Flow[Counting]):
    """A router, a loop, two methods at once, and one that waits for both."""

    @start()
    def begin(self) -> str:
        self.state.log.append("begin")
        reach("begin")
        return "A"

    @listen(or_(begin, "again"))
    def count(self, given: str) -> str:
        self.state.n += 1
        self.state.log.append(f"count {self.state.n} of {given}")
        reach(f"count {self.state.n}")
        return f"B{self.state.n}"

    @router(count)
    def decide(self, given: str) -> str:
        reach(f"decide {given}")
        return "again" if self.state.n < 3 else "enough"

    @listen("enough")
    def left(self) -> str:
        reach("left")
        return "L"

    @listen("enough")
    async def right(self) -> str:
        await asyncio.sleep(0)
        reach("right")
        return "R"

    @listen(and_(left, right))
    def end(self) -> str:
        reach("end")
        return f"{self.state.n} rounds"


class Colour(enum.Enum):
    RED = "red"


class Inner(BaseModel):
    amount: Decimal
    colour: Colour


class Typed(BaseModel):
    id: str = ""
    when: datetime | None = None
    name: uuid.UUID | None = None
    tags: set[str] = Field(default_factory=set)
    price: Decimal = Decimal(0)
    path: Path | None = None
    inner: Inner | None = None
    anything: Any = None


VALUES: dict[str, Any] = {
    "when": datetime(2026, 3, 1, 12, 0, tzinfo=timezone(timedelta(hours=2))),
    "name": uuid.UUID(int=7),
    "tags": {"a", "b"},
    "price": Decimal("1.10"),
    "path": Path("a/b"),
    "inner": Inner(amount=Decimal("2.50"), colour=Colour.RED),
    "anything": Inner(amount=Decimal("3.00"), colour=Colour.RED),
}


@persist(KEPT)
class Keeping(Flow[Typed]):
    """A state of many types, in a model."""

    @start()
    def fill(self) -> None:
        for name, value in VALUES.items():
            setattr(self.state, name, value)
        reach("fill")

    @listen(fill)
    def look(self) -> str:
        reach("look")
        return repr({name: getattr(self.state, name) == value for name, value in VALUES.items()})


@persist(KEPT)
class KeepingDict(Flow):  # type: ignore[type-arg]
    """The same in a dict."""

    @start()
    def fill(self) -> None:
        self.state.update(VALUES)
        reach("fill")

    @listen(fill)
    def look(self) -> str:
        reach("look")
        same = {
            name: self.state[name] == value and type(self.state[name]) is type(value)
            for name, value in VALUES.items()
        }
        return repr(same)


@persist(KEPT)
class Asking(Flow):  # type: ignore[type-arg]
    """A person says yes or no; beside that, work that is done once."""

    @start()
    def prepare(self) -> str:
        reach("prepare")
        return "P"

    @listen(prepare)
    @human_feedback("Approve?", emit=["approved", "rejected"], llm=None, default_outcome="rejected")
    def draft(self) -> str:
        reach("draft")
        return "DRAFT"

    @listen("approved")
    def publish(self) -> str:
        reach("publish")
        return f"published after {self.last_human_feedback.feedback!r}"

    @listen("rejected")
    def drop(self) -> str:
        reach("drop")
        return f"dropped {self.last_human_feedback.output}"


@persist(KEPT)
class Reviewing(Flow):  # type: ignore[type-arg]
    """A person's words, without a choice; asked twice."""

    @start()
    @human_feedback("What do you think?")
    def draft(self) -> str:
        reach("draft")
        return "DRAFT"

    @listen(draft)
    @human_feedback("And now?")
    def better(self, result: Any) -> str:
        reach("better")
        return f"{result.output} with {result.feedback}"

    @listen(better)
    def end(self, result: Any) -> str:
        reach("end")
        return f"{result.output}, {result.feedback}"


@persist(KEPT)
class Prompting(Flow):  # type: ignore[type-arg]
    """A method that asks in the middle."""

    @start()
    def begin(self) -> str:
        reach("begin")
        return "B"

    @listen(begin)
    def talk(self) -> str:
        reach("talk")
        name = self.ask("Who are you?")
        once("greet", reach, "greet")
        return f"hello {name}"


@persist(KEPT)
class Failing(Flow[Counting]):
    """Ten steps; the last one raises until a file is there."""

    @start()
    def begin(self) -> None:
        reach("begin")

    @listen(or_(begin, "more"))
    def step(self) -> None:
        reach(f"step {self.state.n + 1}")
        if self.state.n == 9 and not Path("mended").exists():
            raise ConnectionError("no network")
        self.state.n += 1

    @router(step)
    def go_on(self) -> str:
        return "more" if self.state.n < 10 else "enough"

    @listen("enough")
    def end(self) -> int:
        return self.state.n


class ByMethod(Flow[Counting]):
    """Only one method is persisted."""

    @start()
    def begin(self) -> str:
        reach("begin")
        return "b"

    @listen(begin)
    @persist(KEPT)
    def middle(self, given: str) -> str:
        self.state.n += 1
        reach("middle")
        return f"{given}m"

    @listen(middle)
    def end(self, given: str) -> str:
        reach("end")
        return f"{given}e{self.state.n}"


class Unkept:
    """What no codec keeps."""


@persist(KEPT)
class Giving(Flow):  # type: ignore[type-arg]
    """A method that gives what cannot be kept."""

    @start()
    def begin(self) -> str:
        reach("begin")
        return "b"

    @listen(begin)
    def make(self) -> Any:
        reach("make")
        return Unkept()

    @listen(make)
    def end(self, given: Any) -> str:
        reach("end")
        return type(given).__name__


@persist(KEPT)
class Handed(Flow):  # type: ignore[type-arg]
    """Goes on from another run: what it is handed is there, and its tools' results are."""

    @start()
    def begin(self) -> str:
        handed = current_run().handoff  # type: ignore[attr-defined]
        reach("begin")
        return "nothing" if handed is None else f"{handed.source}: {handed.goal}"

    @listen(begin)
    def look(self, before: str) -> str:
        found = lookup.run(key="research")
        kept = write_down.run(text="draft")
        return f"{before} {found}, {kept}"

    @listen(look)
    def end(self, given: str) -> str:
        reach("end")
        return given


FLOWS: dict[str, Any] = {
    "looping": Looping,
    "keeping": Keeping,
    "keeping dict": KeepingDict,
    "asking": Asking,
    "reviewing": Reviewing,
    "prompting": Prompting,
    "failing": Failing,
    "by method": ByMethod,
    "giving": Giving,
    "handed": Handed,
}


def run(options: dict[str, Any]) -> int:
    """Kick a flow off and write what comes of it to `result.json`.

    Args:
        options: `flow`, `place` (where it dies), `inputs`, `way` ("sync" or "async"), `resume`
            (feedback: go on by `from_pending`), `persistence` (options of another one),
            `forks` (the id of the flow that it begins from).
    """
    os.environ.update(offline.places_of(Path.cwd()))
    log = logging.getLogger("caravanserai")
    log.setLevel(logging.INFO)
    log.addHandler(logging.FileHandler("log.txt"))
    die_at(options.get("place"))
    made = FLOWS[options["flow"]]
    inputs = options.get("inputs", {"id": RUN})
    found: dict[str, Any] = {}
    try:
        if "resume" in options:
            flow = made.from_pending(RUN, KEPT)
            result = flow.resume(options["resume"])
        else:
            own = options.get("persistence")
            flow = made() if own is None else made(persistence=WaypointFlowPersistence(**own))
            more = {"restore_from_state_id": options["forks"]} if "forks" in options else {}
            if options.get("way") == "async":
                result = asyncio.run(flow.kickoff_async(inputs=inputs, **more))
            else:
                result = flow.kickoff(inputs=inputs, **more)
    except Exception as error:  # noqa: BLE001 - told to the test
        found["raised"] = [type(error).__name__, str(error)]
    else:
        pending = isinstance(result, HumanFeedbackPending)
        found["pending" if pending else "result"] = str(
            result.context.message if pending else result
        )
        found["outputs"] = [str(output) for output in flow.method_outputs]
        state = flow.state
        found["state"] = json.loads(
            json.dumps(
                dict(state) if not isinstance(state, BaseModel) else state.model_dump(), default=str
            )
        )
        found["id"] = flow.flow_id
    Path("result.json").write_text(json.dumps(found, default=str))
    return 0
