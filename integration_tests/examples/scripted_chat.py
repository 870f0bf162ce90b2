"""A model on 127.0.0.1 that speaks OpenAI's chat format and decides from the conversation alone.

Each answer has new ids, as a real one has, so that a call that is made twice can be seen.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def _call(number: int, index: int, name: str, item: str) -> dict[str, Any]:
    arguments = json.dumps({"item": item})
    return {
        "id": f"call_{number}_{index}",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def decide(number: int, messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Answer a conversation: first look up two prices, then order the cheaper thing, then stop."""
    results = [message["content"] for message in messages if message["role"] == "tool"]
    if not results:
        calls = [_call(number, 1, "price", "tea"), _call(number, 2, "price", "honey")]
    elif len(results) == 2:
        costs = {text.split()[0]: int(text.split()[-1]) for text in results}
        calls = [_call(number, 1, "order", min(costs, key=lambda item: costs[item]))]
    else:
        return {"role": "assistant", "content": f"Done: {results[-1]}."}
    return {"role": "assistant", "content": None, "tool_calls": calls}


class ScriptedChat:
    """The server; a context manager.

    Args:
        answer: given the request's number and its conversation, returns the model's message.

    Attributes:
        requests: how many messages each conversation had that was sent, in order.
        on_request: called with the request's number before it is answered.
    """

    def __init__(
        self, answer: Callable[[int, list[dict[str, Any]]], dict[str, Any]] = decide
    ) -> None:
        self.requests: list[int] = []
        self.on_request: Callable[[int], None] | None = None
        self._lock = threading.Lock()
        chat = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *args: Any) -> None:
                pass

            def do_POST(self) -> None:
                size = int(self.headers["Content-Length"])
                messages = json.loads(self.rfile.read(size))["messages"]
                _check(messages)
                with chat._lock:
                    chat.requests.append(len(messages))
                    number = len(chat.requests)
                if chat.on_request is not None:
                    chat.on_request(number)
                choice = {"index": 0, "message": answer(number, messages)}
                data = json.dumps({"choices": [choice]}).encode()
                try:
                    self.send_response(200)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)
                except OSError:
                    pass  # the client was killed meanwhile

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1/chat/completions"

    def __enter__(self) -> ScriptedChat:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _check(messages: list[dict[str, Any]]) -> None:
    """Refuse, as the real service does, a conversation with calls and results that do not match."""
    asked = [call["id"] for message in messages for call in message.get("tool_calls") or []]
    given = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    assert asked == given, f"calls {asked} and results {given} do not match"
