"""The user's session during a run of our Runner: a crash loses no item and doubles none.

The SDK writes to a session where a checkpoint cannot be: between the session's database and our
journal no common transaction exists. So what is about to be added is written down first, with
marks of the session's end as it was; where a start finds that without "done", it looks at the
session and adds what is not there.

How sessions are used in `run_streamed` (0.20 and 0.24, read and watched). A new run reads the
history once, before its first turn, and adds the input after the first `on_llm_start`, before
the model is asked, or where an input guardrail trips; a resumed one does neither. At the end of
each turn, also of one that stops for an approval or goes on after it, the turn's items are added
in one call; before those of a handover and of an approved turn 0.24 reads the session's end.
Nothing is popped or cleared: the rewinds before a repeated request belong to conversations that
the server keeps, which the SDK refuses to use together with a session.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from caravanserai.openai_agents._items import arguments_of
from caravanserai.openai_agents._seed import plain_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agents.items import TResponseInputItem
    from agents.memory import Session
    from agents.run_context import RunContextWrapper

_CONTEXT: Final = 32
"""Items of a session's end that are marked beside as many as are to be added."""

_OTHERS: Final = 64
"""Items that others may have added meanwhile, and that are looked behind."""

_PAGE: Final = 100
"""Most items on a page of OpenAI's Conversations API; 0.20 asks for all it wants on one."""

_METHODS: Final = ("get_items", "add_items", "pop_item", "clear_session")


class Log(Protocol):
    """What a run remembers for its next start."""

    def recorded(self, key: str) -> Any | None:
        """Return the newest data under a key since the waypoint that the run goes on from."""

    async def record(self, key: str, data: Any, *, durable: bool = True) -> None:
        """Write data under a key; it outlives a kill, and if `durable` a crash of the machine."""


class Writers:
    """What the kept sessions of one start share that write to the same session of the user's.

    One adds at a time: between the intent of one and its end no other one's items come, so a
    start that is killed leaves one intent without an end, with nothing but its own items behind.

    Args:
        session: the user's session, which has to live as long.

    Attributes:
        lock: held by the one that adds.
        added: the marks of what they added in this start.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self.lock = asyncio.Lock()
        self.added: list[str] = []

    def without(self, marks: list[str]) -> list[str]:
        """Return the marks of a session's end, oldest first, but for those added in this start."""
        left, count = [], Counter(self.added)
        for mark in reversed(marks):
            if count[mark]:
                count[mark] -= 1
            else:
                left.append(mark)
        return left[::-1]


class KeptSession:
    """A session of the user's, for one run; all that is not told here passes through.

    Additions are numbered, since a run that starts again repeats them in the same order. What was
    read before the first of them is recorded, and read again by a run that begins anew: else the
    input that its killed start had added would come twice.

    An item is told from others by its type and `call_id`, a message by its role and text, what is
    neither by its `id`, else by all of it: sessions change items (`OpenAIConversationsSession`
    gives messages ids, `EncryptedSession` rewrites them). Where a start repeats an addition with
    other items (its model was asked again, since the prompt was changed), what has an id is added
    and what has none takes the place of what was there.

    What is not certain: where the last 32 items of a history all equal what was being added,
    whether that was added; it is added again. Where somebody else said the same words in the
    session meanwhile, whose they are; they are not added again. What a session loses that a crash
    stops in a rewrite of its own, such as a compaction, is not brought back.

    Args:
        session: the user's session.
        log: what the run remembers.
        first: number of the next addition, one more than the run has made up to the waypoint
            that it goes on from.
        others: what it shares with those that write to the same session.
        seed: items that the run's input begins with, where it goes on from another run. Where the
            session ends with the first of them, as that of the other run does, these are read as
            a part of the input and not added again.
    """

    _session: Session
    _log: Log

    def __new__(
        cls,
        session: Session,
        log: Log,  # noqa: ARG004
        first: int = 1,  # noqa: ARG004
        others: Writers | None = None,  # noqa: ARG004
        seed: Sequence[Any] = (),  # noqa: ARG004
    ) -> KeptSession:
        """Make a session whose methods take `wrapper` if all those of the user's do.

        The SDK looks at their signatures, and gives it to all of them or to none.
        """
        return object.__new__(_Wrapped if _takes_wrapper(session) else cls)

    def __init__(
        self,
        session: Session,
        log: Log,
        first: int = 1,
        others: Writers | None = None,
        seed: Sequence[Any] = (),
    ) -> None:
        self._session = session
        self._log = log
        self._seed = list(seed)
        self._held = 0
        self._writers = Writers(session) if others is None else others
        self._added = first - 1
        self._read = 0

    @property
    def adds(self) -> int:
        """How many additions the run has made so far."""
        return self._added

    # ------------------------------------------------------------------ what passes through

    # The SDK asks what kind of session it has with `isinstance` (for OpenAIConversationsSession).
    @property  # type: ignore[misc]
    def __class__(self) -> type[Any]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return type(self._session)

    def __getattr__(self, name: str) -> Any:
        if name in ("_session", "_log"):  # not there yet: while it is made, copied, or unpickled
            raise AttributeError(name)
        return getattr(self._session, name)

    @property
    def session_id(self) -> str:
        """The name of the user's session."""
        return self._session.session_id

    @session_id.setter
    def session_id(self, value: str) -> None:
        self._session.session_id = value

    @property
    def session_settings(self) -> Any:
        """The settings of the user's session; None where it has none."""
        return getattr(self._session, "session_settings", None)

    @session_settings.setter
    def session_settings(self, value: Any) -> None:
        self._session.session_settings = value

    def __repr__(self) -> str:
        return f"<KeptSession of {self._session!r}>"

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the newest item and return it: the user's session does, and nothing is kept."""
        return await self._session.pop_item()

    async def clear_session(self) -> None:
        """Remove all items: the user's session does, and nothing is kept."""
        await self._session.clear_session()

    # ------------------------------------------------------------------ what is kept

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the history; to a run that begins anew, what its first start was given."""
        return await self._get(limit)

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Add items, once however often the run is started."""
        await self._add(items)

    async def _get(self, limit: int | None, **context: Any) -> list[TResponseInputItem]:
        # The SDK calls with a limit or with nothing at all, and so may the session want it.
        given = {} if limit is None else {"limit": limit}
        if self._added:
            return await self._session.get_items(**given, **context)
        self._read += 1
        key = f"get-{self._read}"
        recorded = self._log.recorded(key)
        if recorded is not None:
            self._held = recorded.get("held", 0)
            return list(recorded["items"])
        items = await self._session.get_items(**given, **context)
        data: dict[str, Any] = {"items": list(items)}
        if self._seed:
            end = items
            if limit is not None:
                count = min(len(self._seed) + _CONTEXT, _PAGE)
                end = await self._session.get_items(limit=count, **context)
            self._held, places = overlap(end, self._seed)
            items = items[: max(0, len(items) - places)]
            data = {"items": list(items), "held": self._held}
        # The intent of the first addition is durable, and this before it.
        await self._log.record(key, data, durable=False)
        return items

    async def _add(self, items: list[TResponseInputItem], **context: Any) -> None:
        if not items:
            await self._session.add_items(items, **context)
            return
        async with self._writers.lock:
            await self._add_once(items, **context)

    async def _add_once(self, items: list[TResponseInputItem], **context: Any) -> None:
        number = self._added + 1
        key = f"add-{number}"
        if not self._added:
            held = self._seed[: self._held]
            same = [_mark(item) for item in items[: len(held)]] == [_mark(item) for item in held]
            items = items[len(held) :] if same else items
        marks = [_mark(item) for item in items]
        recorded = self._log.recorded(key)
        there: list[str] = []
        if recorded is not None and recorded.get("done"):
            there = recorded["items"]
        elif recorded is not None:
            before = recorded["before"]
            least = len(before) + len(recorded["items"])
            end = await self._end(max(least, min(least + _OTHERS, _PAGE)), **context)
            # A session that is not atomic may hold a part.
            behind = _behind(end, before, whole=recorded["whole"])
            there = [*recorded["there"], *self._writers.without(behind)]
        meant = marks if recorded is None else recorded["items"]
        left = _missing(items, marks, meant, there)
        if left and (recorded is None or recorded.get("done")):
            before = await self._end(len(items) + _CONTEXT, **context)
            whole = len(before) < len(items) + _CONTEXT
            intent = {"items": marks, "there": there, "before": before, "whole": whole}
            await self._log.record(key, intent)
        if left:
            await self._session.add_items(left, **context)
            self._writers.added += [_mark(item) for item in left]
        if left or recorded is None or not recorded.get("done"):
            # Who rewrites the end of a session, as a compaction does, leaves nothing to look at.
            durable = callable(getattr(self._session, "run_compaction", None))
            await self._log.record(key, {"items": marks, "done": True}, durable=durable)
        self._added = number

    async def _end(self, count: int, **context: Any) -> list[str]:
        """Return the marks of the session's last items."""
        items = await self._session.get_items(limit=count, **context)
        return [_mark(item) for item in items[-count:]]


class _Wrapped(KeptSession):
    """One for a session whose methods take the context of the run."""

    async def get_items(
        self, limit: int | None = None, *, wrapper: RunContextWrapper[Any] | None = None
    ) -> list[TResponseInputItem]:
        return await self._get(limit, wrapper=wrapper)

    async def add_items(
        self, items: list[TResponseInputItem], *, wrapper: RunContextWrapper[Any] | None = None
    ) -> None:
        await self._add(items, wrapper=wrapper)

    async def pop_item(
        self, *, wrapper: RunContextWrapper[Any] | None = None
    ) -> TResponseInputItem | None:
        session: Any = self._session
        popped: TResponseInputItem | None = await session.pop_item(wrapper=wrapper)
        return popped

    async def clear_session(self, *, wrapper: RunContextWrapper[Any] | None = None) -> None:
        session: Any = self._session
        await session.clear_session(wrapper=wrapper)


def _takes_wrapper(session: Any) -> bool:
    """Say whether all methods of a session take `wrapper`, as the SDK finds out (0.20, 0.24)."""
    try:
        methods = [inspect.signature(getattr(session, name)) for name in _METHODS]
    except (AttributeError, TypeError, ValueError):
        return False
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    found = [method.parameters.get("wrapper") for method in methods]
    return all(parameter is not None and parameter.kind in kinds for parameter in found)


# ---------------------------------------------------------------------- telling items apart


def _mark(item: Any) -> str:
    """Return what tells an item from others, whatever a session made of it; says nothing of it."""
    told = json.dumps(_identity(item), sort_keys=True, default=str)
    return hashlib.sha256(told.encode()).hexdigest()[:20]


def _identity(item: Any) -> Any:
    if hasattr(item, "model_dump"):
        item = item.model_dump(exclude_unset=True)
    if not isinstance(item, Mapping):
        return item
    kind, id_ = item.get("type"), item.get("call_id")
    if isinstance(id_, str) and id_:
        return [kind, id_]
    if kind in (None, "message") and item.get("role"):
        return [item["role"], _content(item.get("content"))]
    if isinstance(item.get("id"), str):
        return [kind, item["id"]]
    return item


def overlap(end: Sequence[Any], seed: Sequence[Any]) -> tuple[int, int]:
    """Return how many items a session ends with that a seed begins with.

    Calls are told from others by tool and arguments: a seed gives them ids of its own.

    Args:
        end: the newest items of the session.
        seed: the items of the seed.

    Returns:
        How many items of the seed that are, and of the session with what stands between them,
        such as reasoning.
    """
    known = [(place, told) for place, item in enumerate(end) if (told := _said(item)) is not None]
    wanted = [_said(item) for item in seed]
    for count in range(min(len(known), len(wanted)), 0, -1):
        if [told for _, told in known[-count:]] == wanted[:count]:
            return count, len(end) - known[-count][0]
    return 0, 0


def _said(item: Any) -> Any:
    """Return what an item says, whatever a session made of it; None for reasoning and the like."""
    if hasattr(item, "model_dump"):
        item = item.model_dump(exclude_unset=True)
    if not isinstance(item, Mapping):
        return item
    kind = item.get("type")
    if kind in (None, "message") and item.get("role"):
        return [item["role"], _content(item.get("content"))]
    if kind == "function_call":
        return [kind, plain_name(str(item.get("name"))), arguments_of(item.get("arguments"))]
    if kind == "function_call_output":
        return [kind]
    return None if kind == "reasoning" else dict(item)


def _content(content: Any) -> Any:
    """Return what was said: a text is the same as a list with one part, that text."""
    if not isinstance(content, (list, tuple)):
        return [content]
    texts = [part.get("text") if isinstance(part, Mapping) else part for part in content]
    return [part if text is None else text for part, text in zip(content, texts, strict=True)]


def _has_id(item: Any) -> bool:
    return isinstance(item, Mapping) and bool(item.get("call_id") or item.get("id"))


def _behind(end: Sequence[str], before: Sequence[str], *, whole: bool) -> list[str]:
    """Return the marks of what was added to a session since it was looked at.

    Args:
        end: marks of its last items now.
        before: marks of its last items then.
        whole: those were all of them.
    """
    if whole and list(end[: len(before)]) == list(before):
        return list(end[len(before) :])
    # Of several places the one nearest to the end; in front of the first nothing is known.
    for place in range(len(end), 0, -1):
        known = min(place, len(before))
        if list(end[place - known : place]) == list(before[len(before) - known :]):
            return list(end[place:])
    return list(end)


def _missing(
    items: Sequence[TResponseInputItem],
    marks: Sequence[str],
    meant: Sequence[str],
    there: Sequence[str],
) -> list[TResponseInputItem]:
    """Return the items that are not there yet.

    Args:
        items: what is to be added.
        marks: their marks.
        meant: the marks of what an earlier start was about to add in their place.
        there: the marks of what was added since.
    """
    missing: list[TResponseInputItem] = []
    start = 0
    for place, (item, mark) in enumerate(zip(items, marks, strict=True)):
        wanted = [mark]
        if place < len(meant) and meant[place] != mark and not _has_id(item):
            wanted.append(meant[place])  # the same thing, said in other words
        found = next((at for at in range(start, len(there)) if there[at] in wanted), None)
        if found is None:
            missing.append(item)
        else:
            start = found + 1
    return missing
