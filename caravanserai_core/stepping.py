"""What a step under `once` is, and the records of it.

`effects` decides when which is written.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import re
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from caravanserai_core import codec, questions
from caravanserai_core.calls import briefly
from caravanserai_core.errors import UsageError
from caravanserai_core.meta import check_text
from caravanserai_core.pending import called
from caravanserai_core.quoting import one_line
from caravanserai_core.stores.owners import host_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Future

    from caravanserai_core.journal import Journal
    from caravanserai_core.ledger import Effect
    from caravanserai_core.transcript import ToolCall

CALL = 80
"""Most characters that are kept of how a step was called, with its label."""
_UNSLUGGED = re.compile(r"[^A-Za-z0-9._]+")


class Step(NamedTuple):
    """A step under `once`, as the program calls it.

    Attributes:
        name: its label, and the digest of its key or "".
        arguments: digest of its arguments, or "" where they cannot be compared.
        of: its key as people read it, else its arguments; or "".
        token: its idempotency key, where an adapter gives one; ASCII. "": see `token_of`.
        same: digest of the arguments of a tool's call that a run took over, else "".
        takes: name of the step that was taken over and is done in this one, or None.
    """

    name: tuple[str, str]
    arguments: str
    of: str = ""
    token: str = ""
    same: str = ""
    takes: tuple[str, str] | None = None

    @property
    def told(self) -> str:
        """What errors call it."""
        return repr(one_line(self.name[0], 60)) if not self.of else f"'{self.call}'"

    @property
    def call(self) -> str:
        """How it is called."""
        return called(self.name[0], self.of)


class Flight:
    """A step that runs in this process.

    Attributes:
        step: which.
        token: its idempotency key, once it began.
        attempt: its number.
        thread: where it runs.
        landed: a future that ends with it: with the error that it raised, or None.
    """

    def __init__(self, step: Step) -> None:
        from concurrent.futures import Future

        self.step = step
        self.token = ""
        self.attempt = 0
        self.thread = threading.get_ident()
        self.landed: Future[None] = Future()


def step_of(
    label: str, fn: Callable[..., Any], args: tuple[Any, ...], key: object, *, awaits: bool = False
) -> Step:
    """Tell a step from all others.

    Args:
        label: its name.
        fn: what it does.
        args: its arguments.
        key: what it is about, or None.
        awaits: whether what `fn` returns is awaited.

    Raises:
        UsageError: `fn` is no function, or one that would have to be awaited; or the step cannot
            be told without a key: a lambda, or arguments that cannot be kept.
    """
    check_text("a step", label)
    if not label.strip():
        raise UsageError("a step is named by a text of at least one word")
    _check_function(label, fn, awaits=awaits)
    digest = "" if key is None else questions.digest_of(key, "key=")
    if not digest and getattr(fn, "__name__", "") == "<lambda>":
        raise UsageError(
            f"once({one_line(label, 60)!r}) is given a lambda: what it does is not seen from "
            "outside. Give key=, which names what this step is about."
        )
    try:
        arguments = questions.digest_of(list(args), "once()")
    except UsageError as error:
        if not digest:
            raise UsageError(f"once({one_line(label, 60)!r}): {error}. Give key=.") from None
        arguments = ""
    room = max(CALL // 4, CALL - len(label) - 2)
    return Step((label, digest), arguments, briefly(args if key is None else [key], room))


def _check_function(label: str, fn: object, *, awaits: bool) -> None:
    name = one_line(label, 60)
    if inspect.isawaitable(fn):
        if inspect.iscoroutine(fn):
            fn.close()  # nothing of it ran
        raise UsageError(
            f"a step takes a function and its arguments, not the coroutine that a call of it "
            f"returns: `await aonce({name!r}, fn, …)`. Nothing was run or recorded."
        )
    if not callable(fn):
        raise UsageError(
            f"once({name!r}) takes a function and its arguments, not what a call of it returned"
        )
    calls = getattr(type(fn), "__call__", None)  # noqa: B004 - of an object that can be called
    if not awaits and (inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(calls)):
        raise UsageError(
            f"once({name!r}) is given an async function, and does not wait for it. Use "
            f"`await aonce({name!r}, …)`. Nothing was run or recorded."
        )


def start(journal: Journal, mine: Flight, known: Effect | None, *, again: bool) -> None:
    """Record that a step begins; runs in the run's turn.

    Args:
        journal: the run.
        mine: the step.
        known: what is recorded of it.
        again: an attempt before may have happened.

    Raises:
        Changed: somebody else recorded something of it.
    """
    name = mine.step.name
    before = _mark(known)
    mine.attempt = 1 if known is None else known.attempt + 1
    # What was begun in another run is known elsewhere by the key that it was given there.
    first = {} if known is None else known.records[0].head
    kept = first.get("token", "") if "carried" in first else ""
    mine.token = mine.step.token or kept or token_of(journal.run_id, name, journal.ledger.passes)
    told = {**_head(mine), "what": "started", "token": mine.token, **_here()}
    if again:
        told["again"] = True
    if "carried" in first:
        told["carried"] = first["carried"]

    def make() -> tuple[dict[str, Any], bytes]:
        if _mark(journal.ledger.effects.get(name)) != before:
            raise questions.Changed
        return told, b""

    journal.add_made("effect", make)


def _here() -> dict[str, Any]:
    """Return which process a step runs in."""
    return {"pid": os.getpid(), "host": host_name()}


def _mark(known: Effect | None) -> tuple[str, int]:
    return ("", 0) if known is None else (known.what, known.attempt)


def _head(mine: Flight) -> dict[str, Any]:
    label, key = mine.step.name
    fields: dict[str, Any] = {"label": label, "attempt": mine.attempt}
    if key:
        fields["key"] = key
    if mine.step.of:
        fields["of"] = mine.step.of
    if mine.step.arguments:
        fields["arguments"] = mine.step.arguments
    if mine.step.token:
        fields["tool"] = True
    if mine.step.same:
        fields["same"] = mine.step.same
    if mine.step.takes is not None:
        fields["takes"] = list(mine.step.takes)
    return fields


def token_of(run_id: str, name: tuple[str, str], passes: int) -> str:
    """Return the idempotency key of a step: the same in every attempt of a pass, ASCII."""
    told = _joined([run_id, *name, str(passes)])
    digest = hashlib.sha256(told).hexdigest()[:12]
    return f"{token_slug(run_id)}/{token_slug(name[0])}-{digest}"


def same(arguments: Mapping[str, Any]) -> str:
    """Return the digest by which equal calls of a tool are known in any framework.

    Args:
        arguments: by name, as JSON.
    """
    try:
        return questions.digest_of(_sorted(dict(arguments)), "arguments")
    except (UsageError, RecursionError):  # nested deeper than anything that can be kept
        return hashlib.sha256(repr(arguments).encode("utf-8", "replace")).hexdigest()[:24]


def _sorted(value: Any) -> Any:
    """Return JSON with its keys in order."""
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value, key=str)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def does_call(head: Mapping[str, Any], call: ToolCall) -> bool:
    """Say whether a step under `once` is what a program's loop does for a call of a tool.

    By its label and key, `once(call.name, tool, …, key=call.id)`, or by its label and arguments.

    Args:
        head: of a record of the step.
        call: the call.
    """
    if head.get("label") != call.name:
        return False
    if head.get("key") == questions.digest_of(call.id, "key="):
        return True
    given = call.arguments
    return isinstance(given, dict) and does_arguments(head, call.name, given)


def does_arguments(head: Mapping[str, Any], tool: str, arguments: Mapping[str, Any]) -> bool:
    """Say whether a step under `once` has the name of a tool and the arguments of a call of it.

    Args:
        head: of a record of the step.
        tool: the tool's name.
        arguments: of the call, by name: the step has their values, in order, or all as one.
    """
    if head.get("label") != tool or not head.get("arguments"):
        return False
    likely = ([*arguments.values()], [dict(arguments)])
    try:
        return head["arguments"] in [questions.digest_of(one, "once()") for one in likely]
    except UsageError:  # what cannot be kept is not that of a step
        return False


def bare(tool: str) -> str:
    """Return the name of a tool without the server that it is of: the SDK of Claude adds that."""
    parts = tool.split("__", 2)
    return parts[2] if tool.startswith("mcp__") and len(parts) == 3 else tool


def token_slug(text: str) -> str:
    """Return a text as a part of an idempotency key: at most 48 ASCII letters, digits, . _ -."""
    return _UNSLUGGED.sub("-", text).strip("-.")[:48] or "x"


def _joined(parts: list[str]) -> bytes:
    """Join texts so that no two lists give the same bytes."""
    data = [part.encode("utf-8", "surrogatepass") for part in parts]
    return b"".join(b"%d:%b," % (len(text), text) for text in data)


def add(journal: Journal, mine: Flight, fields: dict[str, Any], body: bytes = b"") -> None:
    """Write a record of a step; runs in the run's turn."""
    journal.add("effect", {**_head(mine), **fields}, body=body)


def record_result(journal: Journal, mine: Flight, value: object, more: dict[str, Any]) -> None:
    """Record what a step returned; runs in the run's turn.

    Raises:
        UnserialisableState: it cannot be kept; nothing was written.
    """
    encoded = codec.encode(value)
    fields: dict[str, Any] = {"what": "result", **more}
    if encoded.tagged:
        fields["tagged"] = True
    add(journal, mine, fields, b'"data":' + encoded.data)
