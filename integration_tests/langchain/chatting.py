"""Programs that chat, in processes of their own; each function is one start of one."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import Runnable, RunnableLambda
from langchain_core.runnables.history import RunnableWithMessageHistory

from caravanserai.langchain import WaypointChatMessageHistory

_place: str | None = None


def reach(place: str) -> None:
    """Note that a place is reached; die there if that was asked for."""
    with Path("outside.txt").open("a") as outside:
        outside.write(f"{place}\n")
    if place == _place:
        os.kill(os.getpid(), signal.SIGKILL)


def _answer(prompt: Any) -> AIMessage:
    messages: list[BaseMessage] = prompt.to_messages()
    reach("model")
    return AIMessage(f"Answer to {messages[-1].text!r}, after {len(messages) - 2} messages.")


def chain(**options: Any) -> Runnable[Any, Any]:
    """Build a chain of a prompt, a scripted model and a step behind it, with a history."""
    prompt = ChatPromptTemplate.from_messages(
        [("system", "Be brief."), MessagesPlaceholder("history"), ("human", "{question}")]
    )

    def behind(message: AIMessage) -> AIMessage:
        reach("behind the model")
        return message

    return RunnableWithMessageHistory(
        prompt | RunnableLambda(_answer) | RunnableLambda(behind),
        lambda session_id: WaypointChatMessageHistory(session_id, **options),
        input_messages_key="question",
        history_messages_key="history",
    )


def ask(question: str, place: str | None = None, awaited: bool = False) -> int:
    """Ask the chain one question; the answer goes to result.json."""
    global _place
    _place = place
    config: Any = {"configurable": {"session_id": "chat"}}
    real = WaypointChatMessageHistory.add_messages

    def added(self: WaypointChatMessageHistory, messages: Any) -> None:
        reach("before it is added")
        real(self, messages)
        reach("behind it")

    WaypointChatMessageHistory.add_messages = added  # type: ignore[method-assign]
    given = {"question": question}
    answer = (
        asyncio.run(chain().ainvoke(given, config)) if awaited else chain().invoke(given, config)
    )
    Path("result.json").write_text(json.dumps(answer.text))
    return 0


def crowd(processes: int, threads: int, turns: int, options: dict[str, Any] | None = None) -> int:
    """Let so many threads of so many processes add turns of two messages to one chat."""
    children = []
    for number in range(processes):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                _add(number, threads, turns, options or {})
                code = 0
            finally:
                os._exit(code)
        children.append(pid)
    return max(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children)


def _add(process: int, threads: int, turns: int, options: dict[str, Any]) -> None:
    failed: list[BaseException] = []

    def work(thread: int) -> None:
        try:
            history = WaypointChatMessageHistory("chat", **options)
            for turn in range(turns):
                name = f"{process}-{thread}-{turn}"
                history.add_messages([HumanMessage(f"Q {name}"), AIMessage(f"A {name}")])
        except BaseException as error:
            failed.append(error)
            raise

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failed, failed
