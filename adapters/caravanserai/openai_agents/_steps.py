"""What a start of a run finds recorded since the waypoint that it goes on from, and what it adds.

The turn that a crash cut off is done again: from the same waypoint the SDK asks the same models
in the same order and calls the same tools, and each gets what is recorded here. A place in that
order is a path (of the run itself, "", or of the call of a tool that something runs inside of)
and a number.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterator

    from caravanserai_core.run import Run
    from caravanserai_core.work import Entry

MODEL = "model"
GUARDRAIL = "guardrail"
HANDOFF = "handoff"
SESSION = "session"


class Steps:
    """The entries of a run behind its newest waypoint, by name and key.

    Args:
        run: the run, opened.
        counts: by path how many answers of models came before that waypoint.

    Attributes:
        counts: the same, with those since.
    """

    def __init__(self, run: Run, counts: dict[str, int]) -> None:
        self._run = run
        self.counts = Counter(counts)
        self._seen: Counter[str] = Counter()
        self._found: dict[tuple[str, str], Entry] = {}
        for entry in run.entries():
            if "key" in entry.meta:
                self._found[(entry.name, entry.meta["key"])] = entry

    def recorded(self, name: str, key: str) -> Entry | None:
        """Return the newest entry under a key."""
        return self._found.get((name, key))

    def of(self, name: str) -> list[Entry]:
        """Return the entries of a name, oldest first."""
        return [entry for (kind, _), entry in self._found.items() if kind == name]

    async def record(
        self,
        name: str,
        key: str,
        data: Any,
        *,
        say: str | None = None,
        meta: dict[str, Any] | None = None,
        durable: bool = True,
    ) -> None:
        """Write down a step that ended; see `Run.entry`."""
        await self._run.aentry(
            name, data, say=say, meta={"key": key, **(meta or {})}, durable=durable
        )

    def next_seen(self, what: str) -> int:
        """Count how often something was seen in this start; returns 1 at first."""
        self._seen[what] += 1
        return self._seen[what]

    def turned(self) -> None:
        """Note that a turn ended: what ran inside of its tools has ended, too."""
        for path in [path for path in self.counts if path]:
            del self.counts[path]


class SessionLog:
    """The steps of a session in a run; see `_kept_session`."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._fresh: dict[str, Any] = {}

    def recorded(self, key: str) -> Any | None:
        """Return what is recorded under a key, or None."""
        if key in self._fresh:
            return self._fresh[key]
        entry = self._steps.recorded(SESSION, key)
        return None if entry is None else entry.data

    async def record(self, key: str, data: Any, *, durable: bool = True) -> None:
        """Write down what was done, or is about to be."""
        await self._steps.record(SESSION, key, data, durable=durable)
        self._fresh[key] = data


class Place(NamedTuple):
    """Where in a run the code is that asks a model or calls a tool.

    Attributes:
        steps: those of the run's start.
        job: what the start does; see `_job.Job`.
        path: key of the call of a tool that it is inside of; "" for the run itself.
        ordered: models are asked here in the same order at each start; else two are told from
            each other by what they are asked.
    """

    steps: Steps
    job: Any
    path: str = ""
    ordered: bool = True

    @property
    def asked(self) -> int:
        """How many answers models gave here so far."""
        return self.steps.counts[self.path]

    def call(self, call_id: str) -> str:
        """Return the key of the call of a tool: some providers use an id in each answer anew."""
        where = f"{self.path}/" if self.path else ""
        return f"{where}{self.asked}.{call_id}"

    def inside(self, path: str, *, ordered: bool) -> Place:
        """Return the place inside of a call."""
        return Place(self.steps, self.job, path, ordered)


here: ContextVar[Place | None] = ContextVar("caravanserai_openai_agents", default=None)
"""The place of the code that runs; None: in no run of ours."""


@contextmanager
def outside() -> Iterator[None]:
    """Let code run that is no part of the run: hooks; a model, which may ask another one."""
    token = here.set(None)
    try:
        yield
    finally:
        here.reset(token)


def digest(*values: Any) -> str:
    """Return a digest of plain values, to compare them."""
    try:
        data = orjson.dumps(values, default=_plainly, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # half of a surrogate pair, an int of more than 64 bits, keys of two types
        data = repr(values).encode("utf-8", "surrogatepass")
    return hashlib.sha256(data).hexdigest()[:16]


def _plainly(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    return dump(mode="json", exclude_unset=True) if callable(dump) else repr(type(value))
