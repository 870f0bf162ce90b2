"""The user's own session in a run of our Runner: killed anywhere, no item is lost or doubled."""

# ruff: noqa: E402

from __future__ import annotations

import asyncio
import copy
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from integration_tests.preloaded import Preloaded
from integration_tests.support import require

require("agents")

from agents import (
    Agent,
    GuardrailFunctionOutput,
    InputGuardrailTripwireTriggered,
    OpenAIConversationsSession,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    RunState,
    SQLiteSession,
    input_guardrail,
)
from agents.extensions.memory import EncryptedSession
from agents.memory import (
    OpenAIResponsesCompactionSession,
    Session,
    SessionSettings,
    is_openai_responses_compaction_aware_session,
)
from openai import APIConnectionError, AsyncOpenAI

from caravanserai.openai_agents import WaypointSession
from caravanserai.openai_agents._kept_session import KeptSession, Writers
from caravanserai_core.stores import MemoryStore
from integration_tests.openai_agents import apps
from integration_tests.openai_agents.conversations import Conversations
from integration_tests.openai_agents.scripted import ScriptedOpenAI
from integration_tests.openai_agents.talking import TURNS, call, model, output, user

TALKING = "integration_tests.openai_agents.talking"
OLD = [user("Hello."), model("How can I help?")]
ALL = [item for items in TURNS for item in items]


class Killed(BaseException):
    """The process was killed here."""


class Places:
    """Counts what is done, and dies at one place, or at some in turn."""

    def __init__(self) -> None:
        self.count = 0
        self.dies_at: int | None = None

    def reach(self) -> None:
        self.count += 1
        if self.count == self.dies_at:
            raise Killed


class Log:
    """What a run remembers, in memory; each record is two places."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self.data: dict[str, Any] = {}
        self.durable: list[bool] = []

    def recorded(self, key: str) -> Any | None:
        return copy.deepcopy(self.data.get(key))

    async def record(self, key: str, data: Any, *, durable: bool = True) -> None:
        self.places.reach()
        self.data[key] = json.loads(json.dumps(data))
        self.durable.append(durable)
        self.places.reach()


class Listed:
    """A session that is a list and not atomic: each item is added by itself."""

    session_id = "talk"
    session_settings = None
    most = 1000

    def __init__(self, places: Places) -> None:
        self.places = places
        self.items: list[Any] = copy.deepcopy(OLD)

    async def get_items(self, limit: int | None = None) -> list[Any]:
        self.places.reach()
        found = self.items if limit is None else self.items[-limit:] if limit else []
        return copy.deepcopy(found)

    async def add_items(self, items: list[Any]) -> None:
        for item in items:
            self.places.reach()
            self.items.append(self.stored(item))
            del self.items[: -self.most]
        self.places.reach()

    def stored(self, item: Any) -> Any:
        return copy.deepcopy(item)

    async def pop_item(self) -> Any:
        return self.items.pop() if self.items else None

    async def clear_session(self) -> None:
        self.items.clear()


class Changed(Listed):
    """A session that keeps items in a form of its own, as OpenAI's Conversations API does."""

    def stored(self, item: Any) -> Any:
        kept = {key: value for key, value in item.items() if key != "id" or "role" not in item}
        if "role" in kept:
            text = kept["content"]
            part = {"type": "input_text", "text": text, "annotations": []}
            content = [part] if isinstance(text, str) else text
            id_ = f"msg_{len(self.items)}"
            kept |= {"id": id_, "type": "message", "status": "completed", "content": content}
        elif kept["type"] == "function_call":
            kept |= {"status": "completed", "id": f"fc_{len(self.items)}"}
        return kept


class Short(Listed):
    """A session that keeps its last items only."""

    most = 9


class OnDisk(SQLiteSession):
    """The SDK's session on disk; each call is two places."""

    def __init__(self, places: Places) -> None:
        super().__init__("talk", "session.db")
        self.places = places

    async def get_items(self, limit: int | None = None) -> Any:
        self.places.reach()
        return await super().get_items(limit)

    async def add_items(self, items: list[Any]) -> None:
        self.places.reach()
        await super().add_items(items)
        self.places.reach()


def encrypted(places: Places) -> Any:
    return EncryptedSession("talk", OnDisk(places), "a key of many characters, not a secret")


class AsRun(WaypointSession):
    """Ours, kept as a run; it takes the context of the run that uses it."""

    def __init__(self, places: Places) -> None:
        super().__init__("talk", store=MemoryStore())
        self.places = places

    async def add_items(self, items: list[Any], *, wrapper: Any = None) -> None:
        self.places.reach()
        await super().add_items(items, wrapper=wrapper)
        self.places.reach()


KINDS: dict[str, Callable[[Places], Any]] = {
    "listed": Listed,
    "changed": Changed,
    "short": Short,
    "sqlite": OnDisk,
    "encrypted": encrypted,
    "waypoints": AsRun,
}


def told(items: list[Any]) -> list[Any]:
    """Return items in a form in which it does not matter how a session keeps them."""
    found = []
    for item in items:
        content = item.get("content")
        text = content if isinstance(content, str) or not content else content[0]["text"]
        found.append((item.get("role"), text, item.get("type"), item.get("call_id")))
    return [(role, text) if role else (kind, id_) for role, text, kind, id_ in found]


def until_done(places: Places, session: Any, log: Log, deaths: list[int], **options: Any) -> Any:
    """Start a run until it is done, to die at the given places, counted in each start."""
    for death in [*deaths, None]:
        places.count, places.dies_at = 0, death
        try:
            return asyncio.run(one_start(session, log, **options))
        except Killed:
            continue
        finally:
            places.dies_at = None
    raise AssertionError("it did not come to its end")


async def one_start(session: Any, log: Log, waypoints: dict[str, int] | None = None) -> Any:
    """Do what a start of a run does: read, and add turn by turn from its newest waypoint."""
    done = 0 if waypoints is None else waypoints.setdefault("turns", 0)
    kept = KeptSession(session, log, first=done + 1)
    history = None if done else await kept.get_items()
    for number, items in enumerate(TURNS, 1):
        if number > done:
            await kept.add_items(copy.deepcopy(items))
            assert kept.adds == number
            if waypoints is not None and number > 1:  # the first is the input, before any turn
                waypoints["turns"] = number
                log.data.clear()  # what was recorded belongs to the waypoint before
    return history


def places_of(make: Callable[[Places], Any]) -> int:
    places = Places()
    asyncio.run(one_start(make(places), Log(places)))
    Path("session.db").unlink(missing_ok=True)
    return places.count


def remove_disk() -> None:
    for path in Path().glob("session.db*"):
        path.unlink()


@pytest.mark.parametrize("waypoints", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_killed_once_anywhere_nothing_is_lost_or_doubled(kind: str, waypoints: bool) -> None:
    make = KINDS[kind]
    count = places_of(make)
    assert count > 20
    for death in range(1, count + 1):
        remove_disk()
        places = Places()
        session, log = make(places), Log(places)
        before = asyncio.run(session.get_items())
        marks: dict[str, int] | None = {} if waypoints else None
        history = until_done(places, session, log, [death], waypoints=marks)
        after = asyncio.run(session.get_items())
        wanted = told([*before, *ALL])
        assert told(after) == wanted[-len(after) :], f"killed at {death} of {count}"
        assert len(after) == (9 if kind == "short" else len(wanted))
        assert history is None or told(history) == told(before)


@pytest.mark.parametrize("kind", ["listed", "changed"])
def test_killed_twice_anywhere_nothing_is_lost_or_doubled(kind: str, thorough: bool) -> None:
    make = KINDS[kind]
    count = places_of(make)
    pairs = itertools.product(range(1, count + 1), range(1, count + 1, 1 if thorough else 3))
    for first, second in pairs:
        places = Places()
        session, log = make(places), Log(places)
        history = until_done(places, session, log, [first, second])
        after = asyncio.run(session.get_items())
        assert told(after) == told([*OLD, *ALL]), f"killed at {first} and {second} of {count}"
        assert told(history) == told(OLD)


def test_the_history_that_a_killed_start_read_is_read_again() -> None:
    places = Places()
    session, log = Listed(places), Log(places)

    async def first() -> None:
        kept = KeptSession(session, log)
        assert await kept.get_items() == OLD
        await kept.add_items(TURNS[0])

    async def second() -> None:
        kept = KeptSession(session, log)
        assert await kept.get_items() == OLD
        assert await kept.get_items(1) == [*OLD, *TURNS[0]][-1:]  # the second was not read before
        await kept.add_items(TURNS[0])
        # What is read now is what is there now.
        assert await kept.get_items() == [*OLD, *TURNS[0]]

    asyncio.run(first())
    asyncio.run(second())


def test_without_the_session_kept_the_input_comes_twice() -> None:
    """The premise: what these tests see, they would see."""
    session = Listed(Places())

    async def start() -> None:
        for items in TURNS:
            await session.add_items(items)

    asyncio.run(start())
    asyncio.run(start())
    assert len(session.items) == len(OLD) + 2 * len(ALL)


@pytest.mark.parametrize("kind", ["listed", "changed", "sqlite"])
def test_what_others_add_while_a_run_is_down_stays_and_is_no_part_of_it(kind: str) -> None:
    count = places_of(KINDS[kind])
    others = [user("Me too."), model("Of course."), call("x1"), output("x1")]
    for death in range(1, count + 1):
        remove_disk()
        places = Places()
        session, log = KINDS[kind](places), Log(places)
        places.dies_at = death
        with pytest.raises(Killed):
            asyncio.run(one_start(session, log))
        places.dies_at = None
        asyncio.run(session.add_items(others))
        asyncio.run(one_start(session, log))
        after = told(asyncio.run(session.get_items()))
        assert sorted(after, key=repr) == sorted(
            [*told(OLD if kind != "sqlite" else []), *told(ALL), *told(others)], key=repr
        )
        # What each of them added stays in its order.
        assert [item for item in after if item in told(ALL)] == told(ALL)
        assert [item for item in after if item in told(others)] == told(others)


def test_a_conversation_that_openai_keeps_gets_each_item_once() -> None:
    """Its API gives items ids, and messages another form; a connection ends behind the work."""

    async def start(server: Conversations, log: Log) -> None:
        async with AsyncOpenAI(base_url=server.url, api_key="x", max_retries=0) as client:
            session = OpenAIConversationsSession(conversation_id="c", openai_client=client)
            await one_start(session, log)

    with Conversations() as server:
        asyncio.run(start(server, Log(Places())))
        count, whole = server.requests, told(server.items)
        assert whole == told(ALL)
    for broken in range(1, count + 1):
        with Conversations() as server:
            server.add([user(f"before {number}") for number in range(19)])
            server.break_at = broken
            log = Log(Places())
            with pytest.raises(APIConnectionError):
                asyncio.run(start(server, log))
            asyncio.run(start(server, log))
            assert told(server.items[19:]) == whole, f"ended behind request {broken} of {count}"


def test_words_that_were_said_before_are_added_again() -> None:
    """A message is told from an equal one by where it stands."""
    for died in (False, True):
        places = Places()
        session, log = Listed(places), Log(places)
        session.items = [user("yes"), model("ok")] * 30

        async def start(session: Any = session, log: Log = log) -> None:
            await KeptSession(session, log).add_items([user("yes"), model("ok")])

        if died:
            # Places: the read, the record, then the first item; the second is not added.
            places.dies_at = 5
            with pytest.raises(Killed):
                asyncio.run(start())
            assert len(session.items) == 61
            places.dies_at = None
        asyncio.run(start())
        assert len(session.items) == 62
        assert told(session.items[-2:]) == told([user("yes"), model("ok")])


def test_another_answer_than_the_killed_starts_is_added_and_a_reworded_input_is_not() -> None:
    places = Places()
    session, log = Listed(places), Log(places)

    async def start(*turns: list[Any]) -> None:
        kept = KeptSession(session, log)
        for items in turns:
            await kept.add_items(items)

    first = [[user("It is 10:00. Go.")], [call("c1"), output("c1")]]
    second = [[user("It is 10:05. Go.")], [call("c2"), output("c2")]]
    asyncio.run(start(*first))
    for _ in range(3):
        asyncio.run(start(*second))
        added = [user("It is 10:00. Go."), call("c1"), output("c1"), call("c2"), output("c2")]
        assert session.items == [*OLD, *added]


def test_another_answer_is_added_once_wherever_its_start_is_killed() -> None:
    def fresh() -> tuple[Places, Any, Log]:
        places = Places()
        session, log = Listed(places), Log(places)
        asyncio.run(KeptSession(session, log).add_items([call("c1"), output("c1")]))
        places.count = 0
        return places, session, log

    async def again(session: Any, log: Log) -> None:
        await KeptSession(session, log).add_items([call("c2"), output("c2")])

    places, session, log = fresh()
    asyncio.run(again(session, log))
    for death in range(1, places.count + 1):
        places, session, log = fresh()
        places.dies_at = death
        with pytest.raises(Killed):
            asyncio.run(again(session, log))
        places.dies_at = None
        asyncio.run(again(session, log))
        ids = [item["call_id"] for item in session.items[len(OLD) :]]
        assert ids == ["c1", "c1", "c2", "c2"]


# ---------------------------------------------------------------------- real kills


@pytest.fixture(scope="module")
def talk() -> Iterator[Preloaded]:
    with Preloaded(TALKING) as process:
        yield process


def test_real_processes_killed_at_each_place_of_a_run(
    talk: Preloaded, tmp_path: Path, thorough: bool
) -> None:
    def folder(name: str) -> Path:
        made = tmp_path / name
        made.mkdir()
        session = SQLiteSession("talk", made / "session.db")
        asyncio.run(session.add_items(OLD))
        session.close()
        return made

    whole = folder("whole")
    assert talk.run(f"{TALKING}:run", None, folder=whole).code == 0
    _, count = json.loads((whole / "done.json").read_text())
    assert count > 20
    for place in range(1, count + 1, 1 if thorough else 2):
        made = folder(str(place))
        assert talk.run(f"{TALKING}:run", place, folder=made).killed
        ended = talk.run(f"{TALKING}:run", None, folder=made)
        assert ended.code == 0, ended.out
        history, _ = json.loads((made / "done.json").read_text())
        assert history == OLD
        session = SQLiteSession("talk", made / "session.db")
        assert asyncio.run(session.get_items()) == [*OLD, *ALL], f"killed at {place} of {count}"
        session.close()


# ---------------------------------------------------------------------- what passes through


def kept(session: Any) -> KeptSession:
    return KeptSession(session, Log(Places()))


def test_the_sdk_finds_the_users_session_behind_it() -> None:
    inner = SQLiteSession("talk", session_settings=SessionSettings(limit=2))
    session: Any = kept(inner)
    assert isinstance(session, Session)
    assert isinstance(session, SQLiteSession)
    assert isinstance(session, KeptSession)
    assert session.session_id == "talk"
    assert session.session_settings == SessionSettings(limit=2)
    session.session_settings = None
    assert inner.session_settings is None
    assert session.db_path == ":memory:"
    assert repr(session).startswith("<KeptSession of <")
    assert not is_openai_responses_compaction_aware_session(session)
    assert not hasattr(session, "nonsense")
    conversations = OpenAIConversationsSession(openai_client=AsyncOpenAI(api_key="x"))
    assert isinstance(kept(conversations), OpenAIConversationsSession)
    compacting: Any = OpenAIResponsesCompactionSession("talk", inner)
    assert is_openai_responses_compaction_aware_session(kept(compacting))
    asyncio.run(conversations._openai_client.close())


def test_removals_pass_through() -> None:
    inner = Listed(Places())
    session = kept(inner)
    assert asyncio.run(session.pop_item()) == OLD[-1]
    asyncio.run(session.clear_session())
    assert inner.items == []


def test_a_compacting_session_does_not_have_to_be_looked_at() -> None:
    """A compaction rewrites the end, so "done" has to outlive a crash of the machine too."""

    class Compacting(Listed):
        async def run_compaction(self, args: Any = None) -> None:
            self.items = [user("in short")]

    for kind, wanted in ((Listed, [True, False]), (Compacting, [True, True])):
        log = Log(Places())
        asyncio.run(KeptSession(kind(Places()), log).add_items([user("x")]))
        assert log.durable == wanted


def test_a_session_that_compacts_is_told_to() -> None:
    class Compacting(Listed):
        compacted = 0

        async def run_compaction(self, args: Any = None) -> None:
            self.compacted += 1

    inner = Compacting(Places())
    run_with(kept(inner))
    assert inner.compacted == 1


class Wrapped(Listed):
    """A session whose methods take the context of the run."""

    def __init__(self) -> None:
        super().__init__(Places())
        self.seen: list[Any] = []

    async def get_items(self, limit: int | None = None, *, wrapper: Any = None) -> Any:
        self.seen.append(wrapper.context)
        return await super().get_items(limit)

    async def add_items(self, items: Any, *, wrapper: Any = None) -> None:
        self.seen.append(wrapper.context)
        await super().add_items(items)

    async def pop_item(self, *, wrapper: Any = None) -> Any:
        self.seen.append(wrapper)
        return await super().pop_item()

    async def clear_session(self, *, wrapper: Any = None) -> None:
        self.seen.append(wrapper)
        await super().clear_session()


def test_the_context_of_the_run_is_given_where_the_users_session_takes_it() -> None:
    inner = Wrapped()
    run_with(kept(inner), context="mine")
    assert inner.seen
    assert set(inner.seen) == {"mine"}
    session: Any = kept(inner)
    asyncio.run(session.pop_item(wrapper="w"))
    asyncio.run(session.clear_session(wrapper="w"))
    assert inner.seen[-2:] == ["w", "w"]
    plain = Listed(Places())
    run_with(kept(plain), context="mine")  # it would fail where the SDK gave it
    assert len(plain.items) == len(OLD) + 3


# ---------------------------------------------------------------------- contract with the SDK


class Watched(SQLiteSession):
    """The SDK's session; tells which of its methods were called."""

    def __init__(self) -> None:
        super().__init__("watched")
        self.calls: list[str] = []

    async def get_items(self, limit: int | None = None) -> Any:
        self.calls.append("get" if limit is None else "tail")
        return await super().get_items(limit)

    async def add_items(self, items: list[Any]) -> None:
        kinds = [item.get("type") or item["role"] for item in items]
        self.calls.append(f"add {' '.join(kind for kind in kinds if kind != 'reasoning')}")
        await super().add_items(items)

    async def pop_item(self) -> Any:
        self.calls.append("pop")
        return await super().pop_item()

    async def clear_session(self) -> None:
        self.calls.append("clear")
        await super().clear_session()


def run_with(
    session: Any,
    build: Callable[[Any], Agent[Any]] | None = None,
    *,
    script: Any = None,
    given: Any = "Hello.",
    hooks: Any = None,
    context: Any = None,
    approve: bool = False,
) -> None:
    """Run an agent, streamed, with the real client; approve what it asks for if so told."""

    async def work() -> None:
        async with AsyncOpenAI(base_url=server.url, api_key="test", max_retries=0) as client:
            model = OpenAIResponsesModel("scripted", client)
            agent = build(model) if build else Agent[Any](name="clerk", model=model)
            options: Any = {"session": session, "hooks": hooks, "context": context}
            options["run_config"] = RunConfig(tracing_disabled=True)
            result = Runner.run_streamed(agent, given, **options)
            async for _ in result.stream_events():
                pass
            if approve:
                # As it is in another process.
                tree = result.to_state().to_json()
                state = await RunState.from_json(agent, tree)
                for item in state.get_interruptions():
                    state.approve(item)
                result = Runner.run_streamed(agent, state, **options)
                async for _ in result.stream_events():
                    pass

    with ScriptedOpenAI(script or [{"say": "Good."}]) as server:
        asyncio.run(work())
        assert not server.errors


def test_when_the_sdk_reads_and_writes_a_session() -> None:
    """Contract with 0.20 and 0.24; what `KeptSession` rests on."""
    session = Watched()

    class Hooks(apps.Places):
        async def on_llm_start(self, *args: Any) -> None:
            session.calls.append("model")

    run_with(session, apps.refund, script=apps.REFUND, hooks=Hooks(), approve=True)
    calls = [call for call in session.calls if call != "tail"]
    assert calls == [
        "get",
        "model",
        "add user",  # after the hook, before the model is asked
        "add function_call function_call_output",
        "model",
        "add function_call function_call function_call_output function_call_output",
        "model",
        "add function_call function_call_output",  # the hand-over
        "model",
        "add function_call",  # it waits for an approval
        "add function_call_output",  # a resumed run reads no history
        "model",
        "add message",
    ]
    # What 0.24 reads besides is the end, right before it adds what must not be added twice.
    ends = [place for place, call in enumerate(session.calls) if call == "tail"]
    assert all(session.calls[place + 1].startswith("add function_call") for place in ends)


def test_when_the_sdk_writes_a_session_where_a_guardrail_trips() -> None:
    @input_guardrail(run_in_parallel=False)
    async def never(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(None, tripwire_triggered=True)

    session = Watched()
    with pytest.raises(InputGuardrailTripwireTriggered):
        run_with(session, lambda m: Agent(name="a", model=m, input_guardrails=[never]))
    assert session.calls == ["get", "add user"]


# ---------------------------------------------------------------------- two that write to one


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_two_that_add_the_same_words_at_once_lose_none_of_them(order: tuple[int, int]) -> None:
    """Killed anywhere, and started again in either order: each adds its own."""
    said = [user("the same"), model("words")]

    async def start(session: Any, logs: list[Log], order: tuple[int, int]) -> None:
        shared = Writers(session)

        async def one(log: Log) -> None:
            kept = KeptSession(session, log, others=shared)
            for item in said:
                await kept.add_items([item])

        await asyncio.gather(*(one(logs[number]) for number in order))

    def fresh() -> tuple[Places, Any, list[Log]]:
        places = ForAll()
        return places, Yielding(places), [Log(places), Log(places)]

    places, session, logs = fresh()
    asyncio.run(start(session, logs, (0, 1)))
    wanted = sorted(told([*OLD, *said, *said]), key=repr)
    assert sorted(told(session.items), key=repr) == wanted
    for death in range(1, places.count + 1):
        places, session, logs = fresh()
        places.dies_at = death
        with pytest.raises(Killed):
            asyncio.run(start(session, logs, (0, 1)))
        places.dies_at = None
        asyncio.run(start(session, logs, order))
        assert sorted(told(session.items), key=repr) == wanted, f"killed at {death}"


class ForAll(Places):
    """Whoever comes to a place after the process was killed is dead, too."""

    def reach(self) -> None:
        self.count += 1
        if self.dies_at is not None and self.count >= self.dies_at:
            raise Killed


class Yielding(Listed):
    """A session that lets others work while it does."""

    async def get_items(self, limit: int | None = None) -> list[Any]:
        await asyncio.sleep(0)
        return await super().get_items(limit)

    async def add_items(self, items: list[Any]) -> None:
        await asyncio.sleep(0)
        await super().add_items(items)
