"""What a saver can know of the invocations that use it, and when it has to wait for the disk.

By default (`durability="async"`) LangGraph hands a checkpoint to a worker thread and goes on:
`put` then sees channels that the next step has changed meanwhile, and stores a checkpoint that
never was (langgraph 1.2.24; joins of two nodes lose one of them for good). A saver is asked for
the next version on the loop's own thread, once per step, before the channels change. Waiting
there until the `put` that carries the current version is written makes the default mode right,
at the price of `durability="sync"`.

Not every version is followed by a `put`, and a saver is not told which. So it waits only for
versions that it minted itself, that no finished `put` has carried, in a synchronous graph that
was invoked and is not in exit mode; and in the places where no `put` may come, shortly or not at
all. `integration_tests/langgraph/test_contract.py` fails when a LangGraph behaves otherwise.
"""

from __future__ import annotations

import random
import sys
import threading
import warnings
from collections import OrderedDict
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata

    from caravanserai.langgraph._refusing import Late

NULL_TASK: Final = "00000000-0000-0000-0000-000000000000"
"""The task of writes that no node made: answers and updates of a `Command`."""

_LONGEST_WAIT: Final = 5.0
"""Seconds; then LangGraph's own behaviour, and a warning: better than a graph that stands still."""

_EXPLICIT_WAIT: Final = 0.02
_AMBIGUOUS_WAIT: Final = 0.05
"""Seconds to wait where the `put` may have been left out."""

_MOST_VERSIONS: Final = 1_000

_MOST_BEHIND: Final = 8
"""Checkpoints of an asynchronous graph that may be on their way to the disk."""

_LONGEST_HOLD: Final = 1.0
"""Seconds that the event loop is held back for it: a slow disk slows a graph, and stops none."""


class Answer:
    """The answer of a `Command`, from when LangGraph has it to when it is recorded, or refused.

    Until then what tasks write is kept back: they may have done it with this answer.
    """

    def __init__(self) -> None:
        self._settled = threading.Event()
        self._error: BaseException | None = None

    @property
    def settled(self) -> bool:
        """Whether it is recorded, or refused."""
        return self._settled.is_set()

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record it in this block."""
        try:
            with self.refusing():
                yield
        finally:
            self._settled.set()

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Note at once that it was not recorded: what is next in the queue may come of it."""
        try:
            yield
        except BaseException as error:
            self._error = error
            raise

    def settle(self) -> None:
        """Wait until it is recorded, then see to it that it was not refused."""
        if not self._settled.wait(_LONGEST_WAIT):
            self._settled.set()  # it does not come, and nothing waits for it a second time
        self.check()

    def check(self) -> None:
        """Raise what it was refused with: nothing is kept that came of it."""
        if self._error is not None:
            raise self._error


class Invocation:
    """One call of a graph: from its first `get_tuple` to its end, which nobody tells.

    Attributes:
        is_async: it uses the async methods.
        mode: its durability: "sync", "async" or "exit".
        passive: it only looks (`get_state`) or updates: no step follows by itself.
        runtime: what tells two invocations apart; None once it has a version of its own.
        base: the highest channel version that it loaded, or None.
        replays: it is a subgraph's that is replayed from before its own first checkpoint, or not.
        explicit: it asked for a checkpoint by its id.
        looks_on: it is no call of its own if one by an id came before it.
        start: namespace and id of the checkpoint that it was to go on from, if that was said.
        null_writes: the checkpoint it loaded has writes that no node made.
        linger: a finished task may wait for the checkpoint that its writes lead to. Not with
            `max_concurrency`: asynchronous tasks and `put`s share its slots, so that the `put`
            would come after the next step, with what that has changed.
        error: the first `put` that failed; nothing is written after it.
        late: what its `Command`, if it has one, is refused for.
        answer: the answer that it, or what it is inside of, came with; None: none that is known.
    """

    def __init__(
        self, configurable: Mapping[str, Any], *, is_async: bool, limited: bool = False
    ) -> None:
        self.is_async = is_async
        self.mode = configurable.get("__pregel_durability") or "async"
        self.passive = "__pregel_runtime" not in configurable
        self.explicit = bool(configurable.get("checkpoint_id"))
        self.linger = is_async and self.mode == "async" and not limited
        self.start: tuple[str, str | None] | None = None
        self.looks_on = self.passive and configurable.get("checkpoint_id", "") is None
        self.replays = False
        self.runtime = configurable.get("__pregel_runtime")
        self.base: Any = None
        self.first: str | None = None
        self.null_writes = False
        self.ambiguous = False
        self.error: BaseException | None = None
        self.late: Late | None = None
        self.answer: Answer | None = None
        self._behind = 0
        self._caught_up = threading.Condition()

    def handed_over(self) -> None:
        """Take note of an asynchronous `put` that is on its way to the disk."""
        with self._caught_up:
            self._behind += 1

    def arrived(self) -> None:
        """Take note that one is written, or failed."""
        with self._caught_up:
            self._behind -= 1
            self._caught_up.notify_all()

    def hold_back(self) -> None:
        """Wait while the disk is far behind: LangGraph never does, and would fill the memory."""
        with self._caught_up:
            self._caught_up.wait_for(lambda: self._behind < _MOST_BEHIND, _LONGEST_HOLD)

    def expect_answer(self) -> None:
        """Take note that an answer is on its way, before any task could have it."""
        if self.answer is None and self.mode != "exit":  # there it comes at the end, if at all
            self.answer = Answer()

    def fail(self, error: BaseException) -> None:
        """Keep the first error of a `put`: LangGraph may swallow it."""
        if self.error is None:
            self.error = error

    def check(self) -> None:
        """Raise what an earlier `put` failed with."""
        if self.error is not None:
            raise self.error


class _Version:
    """A version that was handed out, until a `put` that carries it is written."""

    __slots__ = ("_event", "invocation", "written")

    def __init__(self, invocation: Invocation | None) -> None:
        self.invocation = invocation
        self.written = False
        self._event: threading.Event | None = None

    def done(self) -> None:
        self.written = True
        if self._event is not None:
            self._event.set()

    def wait(self, seconds: float) -> bool:
        event = self._event = self._event or threading.Event()
        return self.written or event.wait(seconds)


# Who loaded a checkpoint last in this context: (the saver's own object, invocation).
_opened: ContextVar[tuple[object, Invocation] | None] = ContextVar(
    "caravanserai_langgraph_invocation", default=None
)


class Invocations:
    """All invocations of one saver."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._minted: OrderedDict[str, _Version] = OrderedDict()
        self._thread = threading.local()
        self._warned = False

    def begin(self, invocation: Invocation, versions: Mapping[str, Any]) -> None:
        """Take note of a `get_tuple`; `versions` are the channel versions that it found."""
        self.look()
        invocation.base = max(versions.values(), default=None)
        before = self.opened()
        runtime = before.runtime if before is not None else None
        # Asked for one checkpoint, a graph or an update looks at the newest too (langgraph 1.2.24).
        if runtime is not None and runtime is invocation.runtime:
            return
        if before is not None and before.start is not None and invocation.looks_on:
            return
        looks = before is not None and invocation.passive and not before.passive
        if before is not None and looks and before.first is None:
            # `get_state` between two steps of a stream: the next version is the stream's.
            before.ambiguous = True
            return
        _opened.set((self, invocation))

    def look(self) -> None:
        """Take note that what is minted on this thread is not waited for by whoever looks."""
        self._thread.last = None

    def opened(self) -> Invocation | None:
        """Return the invocation that loaded a checkpoint last in this context."""
        found = _opened.get()
        return found[1] if found is not None and found[0] is self else None

    def of(self, checkpoint: Checkpoint, metadata: CheckpointMetadata) -> Invocation | None:
        """Return the invocation that stores a checkpoint."""
        if metadata.get("source") == "fork":
            return self.opened()  # its versions are those of an earlier one
        version = self._minted.get(_highest(checkpoint["channel_versions"]))
        return version.invocation if version is not None else self.opened()

    def next_version(self, current: Any) -> str:
        """Wait as the module's docstring says, then mint the version after `current`."""
        version = self._minted.get(current) if isinstance(current, str) else None
        opened = self.opened()
        invocation = None
        if (
            opened is not None
            and opened.base == current
            # What a `Command` brings makes a version that no channel may have got.
            and (opened.first is None or not opened.passive)
        ):
            invocation = opened
        elif version is not None:
            invocation = version.invocation
            self._settle(str(current), version)
        if invocation is not None and invocation.is_async:
            invocation.hold_back()
        number = int(str(current).partition(".")[0]) if current is not None else 0
        # Unique in all processes: two branches of a thread never share one.
        minted = f"{number + 1:010}.{random.getrandbits(48):012x}"
        if invocation is not None and invocation.first is None:
            invocation.first = minted
            invocation.runtime = None
        with self._lock:
            self._minted[minted] = _Version(invocation)
            while len(self._minted) > _MOST_VERSIONS:
                self._minted.popitem(last=False)
        self._thread.last = minted
        return minted

    def settle_last(self) -> None:
        """Wait for the `put` that carries the last version minted on this thread."""
        last: str = getattr(self._thread, "last", None) or ""
        version = self._minted.get(last)
        if version is not None:
            self._settle(last, version)

    def _settle(self, current: str, version: _Version) -> None:
        invocation = version.invocation
        if invocation is None:
            return
        invocation.check()
        if version.written or invocation.is_async or invocation.mode == "exit":
            return
        if invocation.passive:
            return
        limit = _LONGEST_WAIT
        if invocation.ambiguous:
            limit = _AMBIGUOUS_WAIT
        elif current == invocation.first and invocation.null_writes:
            limit = _EXPLICIT_WAIT if invocation.explicit else 0.0
        if limit and not version.wait(limit) and limit == _LONGEST_WAIT and not self._warned:
            self._warned = True
            warnings.warn(
                f"a checkpoint did not reach its saver within {limit:.0f} s, so the graph goes on "
                'without it. Invoke the graph with durability="sync".',
                RuntimeWarning,
                stacklevel=4,
            )
        invocation.check()

    def null_written(self) -> None:
        """Take note that an answer or an update is written: the first version may have no `put`."""
        invocation = self.opened()
        if invocation is None or invocation.null_writes:
            return
        invocation.null_writes = True
        version = self._minted.get(invocation.first or "")
        if version is not None and not invocation.explicit:
            version.done()

    def written(self, versions: Mapping[str, Any]) -> None:
        """Take note that a `put` with these channel versions is written."""
        version = self._minted.get(_highest(versions))
        if version is not None:
            version.done()

    def failed(
        self, versions: Mapping[str, Any], invocation: Invocation | None, error: BaseException
    ) -> None:
        """Take note that a `put` failed: the next version of its invocation raises it."""
        if invocation is not None:
            invocation.fail(error)
        self.written(versions)


class kept_by:  # noqa: N801 - used like a function; a generator would take three times as long
    """Let an invocation keep the error of its pending writes, as it keeps that of a `put`."""

    __slots__ = ("_invocation",)

    def __init__(self, invocation: Invocation | None) -> None:
        self._invocation = invocation

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None and self._invocation is not None:
            self._invocation.fail(error)


def _highest(versions: Mapping[str, Any]) -> Any:
    return max(versions.values(), default=None)


def called_before_tasks() -> bool:
    """Say whether the caller's caller prepares the tasks of a step.

    LangGraph evaluates the truth of a saver there, on the loop's thread, after the checkpoint was
    handed over and before its tasks start (0.6.0 to 1.2.24; documented nowhere).
    """
    return sys._getframe(2).f_code.co_name.startswith("prepare_")


def goes_on(checkpoint: Checkpoint) -> bool:
    """Say whether a task follows a checkpoint, as far as it tells; else say yes.

    `Send`s and joins keep their channels when their tasks have run: empty (langgraph 1.2.24). A
    join is a set of the nodes it has seen; with a flag where the node behind it is deferred.
    """
    if "__start__" not in checkpoint["channel_versions"]:
        return True  # neither a StateGraph nor an entrypoint: its channels may mean anything
    for channel, value in checkpoint["channel_values"].items():
        if channel.startswith(("branch:to:", "__start__")):
            return True
        if channel.startswith(("join:", "__pregel_tasks")):
            waits = value[0] if type(value) is tuple else value
            if waits:
                return True
    return False
