"""A run that goes on from another one, of any framework; killed anywhere, it does so once."""

# ruff: noqa: E402

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from integration_tests.support import require

require("agents")

from agents import Agent, RunConfig, SQLiteSession, function_tool
from agents import Runner as Plain

from caravanserai import (
    InputChanged,
    UsageError,
    WaitingForPerson,
    answer,
    fork,
    handoff,
    load,
    open_run,
    prune,
)
from caravanserai.openai_agents import Runner, WaypointSession
from caravanserai.openai_agents._kept_session import KeptSession
from caravanserai_core.transcript import Message
from integration_tests.api.helpers import forget_everything
from integration_tests.openai_agents import apps
from integration_tests.openai_agents.jobs import TASK, talk
from integration_tests.openai_agents.life import RUN, Life, comparable
from integration_tests.openai_agents.scripted import ScriptedOpenAI
from integration_tests.openai_agents.talking import call, model, output, reasoning, user

Start = Callable[..., Life]
OFF = RunConfig(tracing_disabled=True)
GOAL = "Refund order A17."
LOOKED = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {
            "id": "c1",
            "type": "function",
            "function": {"name": "lookup_order", "arguments": '{"order_id": "A17"}'},
        }
    ],
}
SENT = {
    "role": "assistant",
    "content": "Now I write to them.",
    "tool_calls": [
        {"id": "c2", "type": "function", "function": {"name": "send", "arguments": '{"to": "ann"}'}}
    ],
}
GIVEN: list[dict[str, Any]] = [
    {"role": "user", "content": "Order A17 came broken."},
    LOOKED,
    {"role": "tool", "tool_call_id": "c1", "content": "order A17: 41 EUR, seen before"},
]


def source(store: Any = None, *more: dict[str, Any], name: str = "before") -> None:
    """Write the run of a program without a framework."""
    with open_run(name, store=store, goal=GOAL) as run:
        run.checkpoint({"messages": [*GIVEN, *more]}, "The order was looked up.")


def texts(run_id: str, store: Any = None) -> list[str]:
    return [m.text or str([c.name for c in m.tool_calls]) for m in said(run_id, store)]


def said(run_id: str, store: Any = None) -> tuple[Message, ...]:
    return handoff(run_id, store=store).transcript.messages


# ---------------------------------------------------------------------- killed

PLACES = [
    *(f"append {number} {side}" for number in (1, 2) for side in ("begins", "ends")),
    "append 3 ends",
    "hook model 1",
    "begin get_policy",
    "end get_policy",
    "paused",
    "end issue_refund",
]


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that gives a store with a run "before" of a kind."""
    made: dict[str, Path] = {}

    def of(kind: str) -> Path:
        if kind not in made:
            store = made[kind] = tmp_path_factory.mktemp("source") / ".caravanserai"
            if kind == "plain":
                source(store)
            else:
                with open_run("before", store=store, adapter=kind, goal=GOAL) as run:
                    state = {"given": GIVEN[0]["content"], "items": ITEMS, "messages": GIVEN}
                    run.checkpoint(state, "The order was looked up.")
        return made[kind]

    return of


ITEMS = [
    GIVEN[0],
    {"type": "function_call", "call_id": "c1", "name": "lookup_order"}
    | {"arguments": '{"order_id": "A17"}'},
    {"type": "function_call_output", "call_id": "c1", "output": GIVEN[2]["content"]},
]
MORE = {"continues": "before", "replay": ["lookup_order"]}


def begun(life: Start, store: Path, **options: Any) -> Life:
    one = life("refund", more=MORE, **options)
    shutil.copytree(store, one.folder / ".caravanserai")
    return one


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, Any]:
    return {}


def whole(life: Start, kinds: Callable[[str], Path], known: dict[str, Any], kind: str) -> Any:
    """Return what a run that goes on comes to, and what its model was asked."""
    if kind not in known:
        one = begun(life, kinds(kind))
        known[kind] = one.finished(), list(one.server.bodies.values()), one.outside()
    return known[kind]


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        *(("plain", place) for place in PLACES),
        *(("openai-agents", place) for place in ("append 1 ends", "begin get_policy")),
        *(("langchain", place) for place in ("append 2 begins", "hook model 1")),
    ],
)
def test_killed_it_goes_on_from_the_same(
    life: Start,
    kinds: Callable[[str], Path],
    undisturbed: dict[str, Any],
    kind: str,
    place: str,
) -> None:
    """The other run goes on or is gone meanwhile: what was handed over is recorded."""
    found, bodies, outside = whole(life, kinds, undisturbed, kind)
    one = begun(life, kinds(kind))
    one.killed(place)
    if place != "append 1 begins":
        shutil.rmtree(one.folder / ".caravanserai" / "before")
        if place.endswith("ends"):
            source(one.store, {"role": "user", "content": "Something else."})

    assert comparable(one.finished()) == comparable(found)

    assert list(one.server.bodies.values()) == bodies
    done = {line: n for line, n in one.outside().items() if line.startswith("end ")}
    again = {place: 2} if place.startswith("end ") else {}
    assert done == {k: n for k, n in outside.items() if k.startswith("end ")} | again
    assert "end lookup_order" not in done, "its recorded result was given again"
    told = texts(RUN, one.store)
    assert told[:3] == ["Order A17 came broken.", "['lookup_order']", GIVEN[2]["content"]]
    assert told[3].startswith("# Handoff of run `before`")
    assert told[4] == TASK
    assert [told.count(text) for text in told[:5]] == [1, 2, 2, 1, 1]
    assert handoff(RUN, store=one.store).goal == GOAL
    one.check_store()


def test_the_first_note_says_where_it_goes_on_from(life: Start, kinds: Any) -> None:
    one = begun(life, kinds("plain"))
    one.start("hook model 1")
    note = (one.folder / ".caravanserai" / RUN / "waypoint-1.md").read_text(encoding="utf-8")

    assert "This run goes on from `before@1`, with its conversation (3 messages)." in note
    assert f'triage agent was given "{TASK}"' in note
    assert f"## Goal\n\n{GOAL}\n" in note
    assert "goes on from run `before` at waypoint 1: The order was looked up." in note


def test_from_a_killed_run_of_its_own_kind_and_on_to_a_third(life: Start) -> None:
    """Each time with all that was said before, once."""
    one = life("refund", more={"run_id": "before"})
    one.killed("between")
    uncertain = handoff("before", store=one.store).uncertain
    assert [call.name for call in uncertain] == ["get_policy"]
    one.options["more"] = {"continues": "before", "replay": ["lookup_order", "shipping_quote"]}
    one.killed("paused")

    two = handoff(RUN, store=one.store)
    assert two.uncertain == (), "an equal call took its place"
    told = texts(RUN, one.store)
    assert told.count(TASK) == 2
    assert told.count("order A17: 40 EUR, delivered") == 2
    assert told.count(
        "What came of this call is not known. An equal one was made later: see there."
    )
    assert one.outside()["end lookup_order"] == one.outside()["end shipping_quote"] == 1
    assert one.outside()["end get_policy"] == 1

    one.options["more"] = {"continues": RUN, "run_id": "third"}
    one.start("hook model 1")
    third = texts("third", one.store)
    assert third[: len(told)] == told
    assert third[len(told)].startswith(f"# Handoff of run `{RUN}`")
    assert third[len(told) + 1] == TASK
    assert handoff("third", store=one.store).goal == handoff("before", store=one.store).goal


# ---------------------------------------------------------------------- here


def clerk(model: Any, done: list[str], **options: Any) -> Agent[Any]:
    @function_tool(**options)
    def send(to: str) -> str:
        """Send a letter."""
        done.append(to)
        return f"sent to {to}"

    return Agent(name="clerk", instructions="Send it.", model=model, tools=[send])


SEND: list[Any] = [{"call": [["send", {"to": "ann"}]]}, {"say": "Done: {last}."}]


def start(
    server: ScriptedOpenAI, run_id: str, done: list[str], given: Any = "Go on.", **options: Any
) -> Any:
    api = options.pop("api", "responses")
    tool = options.pop("tool", {})

    async def work(model: Any) -> Any:
        agent = clerk(model, done, **tool)
        return await Runner.run(agent, given, run_id=run_id, run_config=OFF, **options)

    return talk(server, work, api)


def asked(server: ScriptedOpenAI, number: int = 0) -> list[Any]:
    body = list(server.bodies.values())[number]
    return list(body.get("input") or body["messages"])


def test_an_uncertain_call_is_asked_about_when_it_is_made_again() -> None:
    source(None, SENT)
    done: list[str] = []
    with ScriptedOpenAI(SEND) as server:
        line = {"continues": "before", "on_uncertain": {"send": "ask"}}
        with pytest.raises(WaitingForPerson):
            start(server, "next", done, **line)
        assert done == []
        assert '`send(to="ann")`' in Path(".caravanserai/next/latest.md").read_text()

        answer("next", "happened", result="sent before")
        assert start(server, "next", done, **line).final_output == "Done: sent before."

        assert done == []
        assert server.errors == []
        assert handoff("next").uncertain == ()


def test_an_uncertain_call_is_made_again_and_the_notes_say_so() -> None:
    source(None, SENT)
    done: list[str] = []
    with ScriptedOpenAI(SEND) as server:
        found = start(server, "next", done, continues="before")

    assert (found.final_output, done) == ("Done: sent to ann.", ["ann"])
    notes = [path.read_text() for path in sorted(Path(".caravanserai/next").glob("waypoint-*.md"))]
    assert '`send(to="ann")`' in notes[0].partition("## Not certain")[2]
    assert "again" in notes[1].partition("## Not certain")[2]


@pytest.mark.parametrize("api", ["responses", "chat"])
def test_both_apis_take_the_conversation(api: str) -> None:
    """A call without a result, an id that comes twice, names that providers refuse."""
    odd = {"id": "c1", "type": "function", "function": {"name": "files.read", "arguments": "{no"}}
    more = [
        {"role": "assistant", "content": "", "tool_calls": [odd]},
        {"role": "tool", "tool_call_id": "c1", "content": ""},
        {"role": "tool", "tool_call_id": "lost", "content": "of no call"},
        {"role": "assistant", "content": "Read."},
    ]
    source(None, SENT, *more)
    with ScriptedOpenAI(SEND) as server:
        start(server, "next", [], continues="before", api=api)
        assert server.errors == []
        calls = [
            item.get("name") or call["function"]["name"]
            for item in asked(server)
            for call in item.get("tool_calls", [item])
            if item.get("type") == "function_call" or "tool_calls" in item
        ]

    assert calls == ["lookup_order", "send", "files_read", "tool"]


@pytest.mark.parametrize("given", ["", []])
def test_an_empty_input_adds_nothing(given: Any) -> None:
    source()
    with ScriptedOpenAI(SEND) as server:
        found = start(server, "next", [], given, continues="before")
        assert asked(server)[-1]["content"].startswith("# Handoff of run `before`")
        assert start(server, "next", [], given).final_output == found.final_output
        assert "was given nothing else" in Path(".caravanserai/next/waypoint-1.md").read_text()


def test_the_line_may_leave_it_out_and_may_not_change_it() -> None:
    source()
    source(name="other")
    with ScriptedOpenAI(SEND) as server:
        found = start(server, "next", [], continues="before").final_output
        count = len(server.bodies)
        for continues in (None, "before", "before@1", handoff("before")):
            assert start(server, "next", [], continues=continues).final_output == found
        with pytest.raises(InputChanged, match="other"):
            start(server, "next", [], continues="other")
        assert start(server, "alone", []).final_output == found
        with pytest.raises(InputChanged, match="on its own"):
            start(server, "alone", [], continues="before")
        assert len(server.bodies) == count + 2


def test_again_begins_from_the_same_also_in_a_fork_and_when_it_was_pruned() -> None:
    source()
    with ScriptedOpenAI(SEND) as server:
        start(server, "next", [], continues="before")
        shutil.rmtree(".caravanserai/before")
        forget_everything()
        first = asked(server)
        start(server, "next", [], continues="before", again=True)
        assert asked(server, 2) == first
        prune("next", keep=1)
        fork("next", new_run_id="forked")
        forget_everything()
        for number, run_id in ((4, "next"), (6, "forked")):
            line = {"continues": "before", "replay": ["lookup_order"], "again": True}
            start(server, run_id, [], "Once more.", **line)
            assert asked(server, number)[:-1] == first[:-1]
            assert asked(server, number)[-1]["content"] == "Once more."


def test_what_does_not_go_with_it_is_refused_and_nothing_is_written() -> None:
    source()
    with ScriptedOpenAI(SEND) as server:
        state = start(server, "alone", []).to_state()
        for options, told in (
            ({"conversation_id": "conv_1"}, "conversation_id="),
            ({"previous_response_id": "resp_1"}, "previous_response_id="),
            ({"given": state}, "RunState"),
        ):
            with pytest.raises(UsageError, match=told):
                start(server, "next", [], continues="before", **options)
        assert not Path(".caravanserai/next").exists()
        with pytest.raises(UsageError, match="replay= goes with continues="):
            start(server, "next", [], replay=["send"])
    assert not Path(".caravanserai/next/journal-1.jsonl").exists()


def test_a_streamed_run_goes_on_too() -> None:
    source()
    with ScriptedOpenAI(SEND) as server:

        async def work(model: Any) -> Any:
            agent = clerk(model, [])
            result = Runner.run_streamed(
                agent, "Go on.", run_id="next", run_config=OFF, continues="before"
            )
            async for _ in result.stream_events():
                pass
            return result

        result = talk(server, work)
        assert result.final_output == "Done: sent to ann."
        assert result.to_input_list()[: len(asked(server))] == asked(server)


def test_the_recorded_result_of_an_agent_that_is_a_tool_is_given_again() -> None:
    call = {"id": "c1", "type": "function"}
    call["function"] = {  # type: ignore[assignment]
        "name": "ask_expert",
        "arguments": '{"input": "chairs and tables: chair"}',
    }
    source(
        None,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "there are 5"},
    )
    with ScriptedOpenAI(apps.NESTED) as server:

        async def work(model: Any) -> Any:
            given = {"run_id": "next", "run_config": OFF, "continues": "before"}
            return await Runner.run(apps.nested(model), TASK, replay=["ask_expert"], **given)

        talk(server, work)
        assert apps.outside("end check_stock chair") == 0
        assert len(server.bodies) == 3


# ---------------------------------------------------------------------- sessions


SESSION_PLACES = [
    *(f"session add {number} {side}" for number in (1, 2) for side in ("begins", "ends")),
    "hook model 1",
]


@pytest.mark.parametrize("place", random.Random(3).sample(SESSION_PLACES, 3))
def test_a_session_gets_the_conversation_once(
    life: Start, kinds: Callable[[str], Path], place: str
) -> None:
    one = begun(life, kinds("plain"), session=True)
    one.killed(place)

    items = one.finished()["session"]

    inputs = [item["content"] for item in items if item.get("role") == "user"]
    assert inputs[0] == "Order A17 came broken."
    assert inputs[1].startswith("# Handoff of run `before`")
    assert inputs[2:] == [TASK]
    seen = [item for item in items if item.get("output") == GIVEN[2]["content"]]
    assert len(seen) == 2, "of the other run, and given again"


def test_a_session_that_has_it_already_does_not_get_it_again() -> None:
    """The run that stopped used the same session, maybe with a limit."""
    session: Any = SQLiteSession("talk", "talk.db")
    with ScriptedOpenAI(SEND) as server:
        start(server, "before", [], "First.", session=session)
        start(server, "next", [], "Second.", session=session, continues="before")
        kept = asyncio.run(session.get_items())
        inputs = [item["content"] for item in kept if item.get("role") == "user"]
        assert [text.partition("\n")[0][:9] for text in inputs] == [
            "First.",
            "# Handoff",
            "Second.",
        ]
        users = [item for item in asked(server, 2) if item.get("role") == "user"]
        assert [item["content"] for item in users] == inputs
        told = texts("next")
        assert [told.count(text) for text in ("First.", "Second.")] == [1, 1]

        session.session_settings.limit = 3
        start(server, "third", [], "Third.", session=session, continues="next")
        kept = asyncio.run(session.get_items(limit=100))
        inputs = [item["content"] for item in kept if item.get("role") == "user"]
        assert [text.partition("\n")[0][:9] for text in inputs] == [
            *("First.", "# Handoff", "Second.", "# Handoff", "Third.")
        ]
        assert server.errors == []


class Noted:
    """What a run remembers of its session."""

    def __init__(self) -> None:
        self.data: dict[str, Any] = {}

    def recorded(self, key: str) -> Any | None:
        return self.data.get(key)

    async def record(self, key: str, data: Any, *, durable: bool = True) -> None:
        self.data[key] = data


def test_what_a_session_had_already_is_known_to_the_next_start() -> None:
    """It read the session, and was killed before it added to it. Reasoning stands in between."""
    session: Any = SQLiteSession("talk")
    held = [user("First."), reasoning("r"), call("c"), output("c"), model("Seen.")]
    seed = [user("First."), call("d"), output("d"), model("Seen."), user("The brief.")]

    async def work() -> Any:
        await session.add_items([user("Older."), *held])
        log = Noted()
        read = [await KeptSession(session, log, seed=seed).get_items() for _ in range(2)]
        kept = KeptSession(session, log, seed=seed)
        await kept.get_items()
        await kept.add_items([*seed, user("Go on.")])
        return read, await session.get_items()

    read, items = asyncio.run(work())

    assert read == [[user("Older.")], [user("Older.")]]
    assert items == [user("Older."), *held, user("The brief."), user("Go on.")]


def ask(server: ScriptedOpenAI, session: Any, text: str) -> Any:
    async def work(model: Any) -> Any:
        return await Plain.run(clerk(model, []), text, session=session, run_config=OFF)

    return talk(server, work).final_output


def test_a_waypoint_session_begins_with_the_conversation() -> None:
    source(None, SENT)
    with ScriptedOpenAI(SEND) as server:
        for number in (1, 2):
            session = WaypointSession("talk", continues="before")
            assert ask(server, session, f"Go on {number}.") == "Done: sent to ann."
        assert server.errors == []
    told = texts("talk")
    assert told[:2] == ["Order A17 came broken.", "['lookup_order']"]
    assert [told.count(text) for text in ("Order A17 came broken.", "Go on 1.")] == [1, 1]
    note = Path(".caravanserai/talk/waypoint-1.md").read_text()
    assert "This conversation goes on from run `before@1`, with its 4 messages and" in note
    assert f"## Goal\n\n{GOAL}\n" in note
    assert load("talk", at=1)["items"][0] == {"role": "user", "content": "Order A17 came broken."}
    source(name="other")
    with pytest.raises(InputChanged):
        asyncio.run(WaypointSession("talk", continues="other").get_items())


@pytest.mark.parametrize("continues", [None, "before"])
def test_a_waypoint_session_that_was_killed_as_it_began(continues: str | None) -> None:
    """In front of its first waypoint; the line that goes on may leave it out."""
    source()
    with open_run("talk", adapter="openai-agents", continues="before"):
        pass
    shutil.rmtree(".caravanserai/before")
    forget_everything()
    session = WaypointSession("talk", continues=continues)

    async def both() -> Any:
        item: Any = {"role": "user", "content": "Go on."}
        await asyncio.gather(session.add_items([item]), session.get_items())
        return await session.get_items()

    items = asyncio.run(both())

    assert [item.get("content", "")[:9] for item in items if "role" in item] == [
        *("Order A17", "# Handoff", "Go on.")
    ]


def test_a_run_in_a_session_that_goes_on_from_the_same_run_has_it_once() -> None:
    source()
    session = WaypointSession("talk", continues="before")
    asyncio.run(session.get_items())
    with ScriptedOpenAI(SEND) as server:
        start(server, "next", [], session=session, continues="before")
        items = asyncio.run(session.get_items())
        assert [str(i["content"])[:9] for i in items if i.get("role") == "user"] == [
            *("Order A17", "# Handoff", "Go on.")
        ]
        assert len([i for i in asked(server) if i.get("role") == "user"]) == 3
