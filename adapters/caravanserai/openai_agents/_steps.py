"""What a start of a run finds recorded since the waypoint that it goes on from, and what it adds.

The turn that a crash cut off is done again: from the same waypoint the SDK asks the same models
in the same order and calls the same tools, and each gets what is recorded here. A place in that
order is a path (of the run itself, "", or of the call of a tool that something runs inside of)
and a number.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections import Counter
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from caravanserai.openai_agents._kept_session import Writers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from caravanserai.openai_agents._kept_session import KeptSession
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
        sessions: those of runs inside of this one, by where their additions are counted.
    """

    def __init__(self, run: Run, counts: dict[str, int]) -> None:
        self._run = run
        self.counts = Counter(counts)
        self.sessions: dict[str, KeptSession] = {}
        self._writers: dict[tuple[int, int], Writers] = {}
        self._writing: dict[str, Writing] = {}
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

    def writers(self, session: Any) -> Writers:
        """Return what the runs share that write to a session of the user's in this thread."""
        return self._writers.setdefault((id(session), threading.get_ident()), Writers(session))

    def writing(self, path: str) -> Writing:
        """Return what the calls of tools at a path share."""
        return self._writing.setdefault(path, Writing())

    def told(self) -> dict[str, int]:
        """Return the counts as a waypoint keeps them."""
        return {**self.counts, **{path: one.adds for path, one in self.sessions.items()}}

    def turned(self) -> None:
        """Note that a turn ended: what ran inside of its tools has ended, too."""
        self.sessions.clear()
        self._writing.clear()
        for path in [path for path in self.counts if path]:
            del self.counts[path]


class Writing:
    """The calls of tools at one place that are being written down: that they begin, or ended.

    The SDK cancels what still works when another call of the turn fails. Without a run of ours a
    call that has nothing more to do has ended by then; so what ends here waits until the others
    are written down, and the SDK sees them end as it would.
    """

    def __init__(self) -> None:
        self._count = 0
        self._waiting: list[asyncio.Future[None]] = []

    def begins(self) -> None:
        """Note that one is about to be written down."""
        self._count += 1

    def ends(self) -> None:
        """Note that it is."""
        self._count -= 1
        if not self._count:
            waiting, self._waiting = self._waiting, []
            for future in waiting:
                if not future.done():
                    future.set_result(None)

    async def over(self) -> None:
        """Wait until none is being written down."""
        while self._count:
            future = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            await future


class SessionLog:
    """The steps of a session in a run; see `_kept_session`.

    Args:
        steps: those of the run's start.
        path: where they are counted; "" for the session of the run itself.
    """

    def __init__(self, steps: Steps, path: str = "") -> None:
        self._steps = steps
        self._path = f"{path}/" if path else ""
        self._fresh: dict[str, Any] = {}

    def recorded(self, key: str) -> Any | None:
        """Return what is recorded under a key, or None."""
        if key in self._fresh:
            return self._fresh[key]
        entry = self._steps.recorded(SESSION, self._path + key)
        return None if entry is None else entry.data

    async def record(self, key: str, data: Any, *, durable: bool = True) -> None:
        """Write down what was done, or is about to be."""
        await self._steps.record(SESSION, self._path + key, data, durable=durable)
        self._fresh[key] = data


class Place(NamedTuple):
    """Where in a run the code is that asks a model or calls a tool.

    Attributes:
        steps: those of the run's start.
        job: what the start does; see `_job.Job`.
        path: key of the call of a tool that it is inside of; "" for the run itself.
        ordered: models are asked here in the same order at each start; else two are told from
            each other by what they are asked.
        judges: it is inside of a guardrail.
    """

    steps: Steps
    job: Any
    path: str = ""
    ordered: bool = True
    judges: bool = False

    @property
    def asked(self) -> int:
        """How many answers models gave here so far."""
        return self.steps.counts[self.path]

    def call(self, call_id: str) -> str:
        """Return the key of the call of a tool: some providers use an id in each answer anew."""
        return call_key(self.path, self.asked, call_id)

    def inside(self, path: str, *, ordered: bool, judges: bool = False) -> Place:
        """Return the place inside of a call."""
        return Place(self.steps, self.job, path, ordered, judges or self.judges)


def call_key(path: str, answer: int, call_id: str) -> str:
    """Return the key of the call of a tool.

    Args:
        path: of what asked for it; "" for the run itself.
        answer: number of the answer that it is of.
        call_id: as the model gave it.
    """
    where = f"{path}/" if path else ""
    return f"{where}{answer}.{call_id}"


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
