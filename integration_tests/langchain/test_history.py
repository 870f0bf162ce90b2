"""A chat's history as a run: what LangChain's own chains keep in it, killed and crowded."""

# ruff: noqa: E402

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from integration_tests.support import require

require("langchain_core")

from langchain_core.chat_history import InMemoryChatMessageHistory
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables.history import RunnableWithMessageHistory

from caravanserai import clean, fork, get_waypoint, handoff, history, load, open_run
from caravanserai.langchain import WaypointChatMessageHistory, messages_from
from caravanserai_core import (
    InputChanged,
    InvalidRunId,
    SchemaMismatch,
    UnserialisableState,
    UsageError,
)
from caravanserai_core.stores import open_store
from caravanserai_core.transcript import NO_RESULT
from caravanserai_core.verify import verify
from integration_tests.langchain.messages import CHAT
from integration_tests.preloaded import Preloaded

CHATS = "integration_tests.langchain.chatting"
STORE = Path(".caravanserai")
CALL = {"name": "weather", "args": {"city": "Oslo"}, "id": "c"}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def preloaded() -> Iterator[Preloaded]:
    with Preloaded(CHATS) as process:
        yield process


@pytest.fixture
def run(preloaded: Preloaded, tmp_path: Path) -> Callable[..., Any]:
    """Return what runs a function of `chatting` in a process of its own."""

    def started(name: str, *args: Any) -> Any:
        return preloaded.run(f"{CHATS}:{name}", *args, folder=tmp_path)

    return started


def texts(run_id: str = "chat", **options: Any) -> list[str]:
    return [message.text for message in WaypointChatMessageHistory(run_id, **options).messages]


def turn(question: str, answer: str) -> list[BaseMessage]:
    return [HumanMessage(question), AIMessage(answer)]


# ---------------------------------------------------------------------- LangChain's interface


def test_it_means_the_same_as_a_history_in_memory() -> None:
    """Each method, sync and async: the same messages, of the same types, in the same order."""

    async def used(chat: Any) -> list[Any]:
        seen = [list(chat.messages), str(chat)]
        chat.add_messages(CHAT)
        chat.add_user_message("And in Rome?")
        chat.add_ai_message("Warmer.")
        chat.add_messages([])
        seen += [list(chat.messages), str(chat)]
        await chat.aadd_messages(turn("And in Bonn?", "Cold."))
        seen.append(list(await chat.aget_messages()))
        await chat.aclear()
        await chat.aadd_messages([SystemMessage("Be brief.")])
        seen.append(list(await chat.aget_messages()))
        chat.clear()
        return [*seen, list(chat.messages)]

    mine = asyncio.run(used(WaypointChatMessageHistory("chat")))

    assert mine == asyncio.run(used(InMemoryChatMessageHistory()))


def test_what_is_returned_or_was_given_may_be_changed() -> None:
    chat, given = WaypointChatMessageHistory("chat"), turn("Hello.", "Hi.")
    chat.add_messages(given)
    given[0].content = "changed"
    chat.messages[1].content = "changed"
    chat.messages.clear()
    assert texts() == ["Hello.", "Hi."]


def test_a_name_is_given_once() -> None:
    assert WaypointChatMessageHistory(run_id="a/b").session_id == "a/b"
    with pytest.raises(UsageError, match="one name"):
        WaypointChatMessageHistory()
    with pytest.raises(UsageError, match="one name"):
        WaypointChatMessageHistory("a", run_id="a")
    with pytest.raises(InvalidRunId):
        WaypointChatMessageHistory("")


def test_what_is_no_message_is_refused() -> None:
    with pytest.raises(UsageError, match="not str"):
        WaypointChatMessageHistory("chat").add_messages(["Hello."])  # type: ignore[list-item]
    with pytest.raises(UnserialisableState, match=r"messages\[0\]"):
        WaypointChatMessageHistory("chat").add_messages(
            [HumanMessage("Hello.", additional_kwargs={"raw": object()})]
        )
    assert not STORE.exists()


def test_a_run_of_another_kind_is_refused() -> None:
    with open_run("job") as run:
        run.checkpoint({"n": 1}, "one")
    with pytest.raises(UsageError, match="holds something else"):
        WaypointChatMessageHistory("job").add_user_message("Hello.")
    assert load("job") == {"n": 1}


def test_a_cleared_chat_keeps_its_earlier_waypoints() -> None:
    chat = WaypointChatMessageHistory("chat")
    chat.clear()
    assert not STORE.exists()
    chat.add_messages(turn("Hello.", "Hi."))
    chat.clear()
    chat.clear()

    assert texts() == []
    assert [message.text for message in load("chat", at=1)["messages"]] == ["Hello.", "Hi."]
    assert len(history("chat")) == 2
    fork("chat", at=1, new_run_id="again")
    assert texts("again") == ["Hello.", "Hi."]


# ---------------------------------------------------------------------- in a chain


def test_a_chain_reads_it_and_adds_each_turn(run: Callable[..., Any]) -> None:
    for awaited in (False, True):
        ended = run("ask", "How warm is it?", None, awaited)
        assert ended.code == 0, ended.out
    assert json.loads(Path("result.json").read_text()).endswith("after 2 messages.")
    assert [m.type for m in WaypointChatMessageHistory("chat").messages] == ["human", "ai"] * 2


PLACES = ["model", "behind the model", "before it is added", "behind it"]


@pytest.mark.parametrize("place", PLACES)
def test_killed_in_a_chain_a_turn_is_there_whole_or_not_at_all(
    run: Callable[..., Any], place: str
) -> None:
    assert run("ask", "One?").code == 0
    assert run("ask", "Two?", place).killed

    assert verify(open_store(None), "chat").findings == []
    there = texts()
    assert [text for text in there if "?" in text and not text.startswith("Answer")] == (
        ["One?", "Two?"] if place == "behind it" else ["One?"]
    )
    assert len(there) == (4 if place == "behind it" else 2)
    assert run("ask", "Three?").code == 0
    assert texts()[:-2] == there


# ---------------------------------------------------------------------- many writers


def test_nothing_is_lost_or_torn_apart_where_many_add(run: Callable[..., Any]) -> None:
    ended = run("crowd", 3, 2, 5)
    assert ended.code == 0, ended.out

    messages = texts()
    turns = list(zip(messages[::2], messages[1::2], strict=True))

    assert all(q.removeprefix("Q ") == a.removeprefix("A ") for q, a in turns)
    assert {q for q, _ in turns} == {
        f"Q {p}-{t}-{n}" for p in range(3) for t in range(2) for n in range(5)
    }
    for process in range(3):
        for thread in range(2):
            own = [q for q, _ in turns if q.startswith(f"Q {process}-{thread}-")]
            assert own == sorted(own)
    assert len(history("chat")) == 30


def test_two_that_begin_a_chat_from_the_same_run_seed_it_once(run: Callable[..., Any]) -> None:
    WaypointChatMessageHistory("before").add_messages(turn("Hello.", "Hi."))
    ended = run("crowd", 4, 1, 2, {"continues": "before"})
    assert ended.code == 0, ended.out
    messages = texts()
    assert messages[:2] == ["Hello.", "Hi."]
    assert messages.count("Hello.") == 1
    assert len(messages) == 2 + 1 + 4 * 2 * 2


def test_a_reader_sees_what_another_process_added(run: Callable[..., Any]) -> None:
    chat = WaypointChatMessageHistory("chat")
    assert chat.messages == []
    run("crowd", 1, 1, 2)
    assert len(chat.messages) == 4
    chat.add_user_message("Mine.")
    assert len(chat.messages) == 5


# ---------------------------------------------------------------------- secrets and versions


def test_a_secret_stays_out_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_API_KEY", "s3cr3t-0123456789abcdef")
    chat = WaypointChatMessageHistory("chat")
    chat.add_messages(turn("The key is s3cr3t-0123456789abcdef.", "Thanks."))
    chat.clear()
    assert b"s3cr3t" not in b"".join(p.read_bytes() for p in STORE.rglob("*") if p.is_file())
    fork("chat", at=1, new_run_id="again")
    assert texts("again")[0] == "The key is s3cr3t-0123456789abcdef."
    told = handoff("again").transcript.messages[0].text
    assert told == "The key is [secret env:SHOP_API_KEY]."


def test_messages_of_an_older_program_go_through_its_migrations() -> None:
    WaypointChatMessageHistory("chat").add_messages(turn("Hello.", "Hi."))

    def named(state: Any) -> Any:
        for message in state["messages"]:
            message.name = message.name or "someone"
        return state

    newer = WaypointChatMessageHistory("chat", migrations=[named])
    assert [message.name for message in newer.messages] == ["someone", "someone"]
    newer.add_user_message("Again.")
    assert [m.name for m in load("chat", schema=2)["messages"]] == ["someone", "someone", None]
    with pytest.raises(SchemaMismatch):
        _ = WaypointChatMessageHistory("chat").messages


# ---------------------------------------------------------------------- going on from another run


def _before() -> None:
    messages: list[BaseMessage] = [
        HumanMessage("How warm is it in Oslo?"),
        AIMessage("", tool_calls=[CALL]),
        ToolMessage("7 degrees", tool_call_id="c", name="weather"),
        AIMessage("", tool_calls=[{**CALL, "id": "d"}]),
    ]
    WaypointChatMessageHistory("before").add_messages(messages)


def test_a_chat_goes_on_from_another_run() -> None:
    _before()
    chat = WaypointChatMessageHistory("chat", continues="before")
    first = chat.messages
    assert [m.type for m in first] == ["human", "ai", "tool", "ai", "tool", "human"]
    assert first == messages_from(handoff("before"))
    assert first[4].text == NO_RESULT
    clean("before")
    WaypointChatMessageHistory("chat", continues="before").add_ai_message("Seven degrees.")
    assert texts()[-1] == "Seven degrees."
    note = (STORE / "chat" / "waypoint-1.md").read_text()
    assert "The chat begins with what `before@1` left: 5 messages, and one that tells" in note
    assert "This run goes on from run `before` (LangChain" in note
    with pytest.raises(InputChanged):
        _ = WaypointChatMessageHistory("chat", continues="other").messages


def test_killed_before_its_first_waypoint_it_begins_with_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _before()
    with monkeypatch.context() as patched:
        patched.setattr(WaypointChatMessageHistory, "_seed", lambda *_: None)
        _ = WaypointChatMessageHistory("chat", continues="before").messages
    assert [m.role for m in handoff("chat").transcript.messages] == [
        m.role for m in handoff("before").transcript.messages
    ]
    clean("before")
    assert len(texts()) == 6


def test_a_chat_is_handed_on_a_third_time_without_a_loss() -> None:
    _before()
    WaypointChatMessageHistory("second", continues="before").add_ai_message("Wait.")
    third = WaypointChatMessageHistory("third", continues="second").messages
    said = [message.text for message in third]
    assert said.count("How warm is it in Oslo?") == said.count("Wait.") == 1
    assert [call.id for call in handoff("second").uncertain] == ["d"]
    assert said.count(NO_RESULT) == 1


def test_messages_are_made_of_a_conversation_too() -> None:
    _before()
    found = handoff("before")
    assert messages_from(found.transcript) == [
        message.model_copy(update={"id": None}) for message in messages_from(found, brief=False)
    ]
    with pytest.raises(UsageError, match="not str"):
        messages_from("before")  # type: ignore[arg-type]


# ---------------------------------------------------------------------- notes


def test_notes_tell_what_was_said_and_what_comes_next() -> None:
    chat = WaypointChatMessageHistory("chat")
    chat.add_messages(turn("How warm is it?", "Where?"))
    chat.add_messages([HumanMessage("In Oslo."), AIMessage("", tool_calls=[CALL])])
    chat.add_messages([ToolMessage("7 degrees", tool_call_id="c"), AIMessage("Seven degrees.")])
    for number in range(4):
        chat.add_messages(turn(f"And on day {number}?", "\x1b[31m# Next\n" + "x" * 1000))
    chat.clear()

    notes = [
        (STORE / "chat" / f"waypoint-{number}.md").read_text().partition("\n\n")[2]
        for number in range(1, 9)
    ]

    assert notes[0].startswith('The user asked "How warm is it?" The model answered "Where?"')
    assert '## Goal\n\n"How warm is it?"' in notes[0]
    assert "## Next\n\nThe user's next message." in notes[0]
    assert 'The model called `weather(city="Oslo")`.' in notes[1]
    assert '## Next\n\nThe result of `weather(city="Oslo")`.' in notes[1]
    assert notes[2].startswith('`weather(city="Oslo")` gave "7 degrees". The model answered "Seven')
    assert "The chat was cleared: its 14 messages were taken out." in notes[7]
    assert "## Next\n\nThe user's first message." in notes[7]
    assert all(len(note) < 2_000 for note in notes)
    assert all("\x1b" not in note and note.count("\n## Next\n") == 1 for note in notes)


def test_an_image_is_told_by_its_kind() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    chat = WaypointChatMessageHistory("chat")
    chat.add_messages([HumanMessage([{"type": "text", "text": "What is it?"}, image])])
    chat.add_messages([HumanMessage([image])])
    assert 'asked "What is it?", with content of the type `image_url`.' in str(
        get_waypoint("chat", at=1).note
    )
    assert "asked with content of the type `image_url` and no text." in str(
        get_waypoint("chat", at=2).note
    )
    assert handoff("chat").losses == ("2 × content of the type 'image_url'",)


def test_a_class_is_what_langchain_takes_for_a_function() -> None:
    """As the docstring has it: the class itself makes a history for each session."""
    chain = RunnableWithMessageHistory(_Echo(), WaypointChatMessageHistory)
    config: Any = {"configurable": {"session_id": "chat"}}
    chain.invoke([HumanMessage("Hello.")], config)
    assert texts() == ["Hello.", "Hello."]


def _Echo() -> Any:  # noqa: N802 - stands where a model would
    from langchain_core.runnables import RunnableLambda

    return RunnableLambda(lambda messages: AIMessage(messages[-1].text))
