"""OpenAI's Conversations API on 127.0.0.1, as far as a session of the SDK uses it."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlparse


class Conversations:
    """A server with one conversation, on a thread; a context manager.

    Attributes:
        items: what the conversation holds: each with an id, as the API keeps them.
        break_at: number of the request behind whose work the connection ends, from 1; None.
    """

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []
        self.requests = 0
        self.break_at: int | None = None
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> Conversations:
        serve = self._server.serve_forever
        threading.Thread(target=serve, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def add(self, items: list[dict[str, Any]]) -> dict[str, Any]:
        assert len(items) <= 20
        for item in items:
            kept = {**item, "status": "completed"}
            kind = kept.setdefault("type", "message")
            kept.setdefault("id", f"{kind}_{len(self.items):04}")
            if isinstance(kept.get("content"), str):
                kept["content"] = [{"type": "input_text", "text": kept["content"]}]
            self.items.append(kept)
        return self.page(self.items[-len(items) :], more=False)

    def list(self, query: dict[str, list[str]]) -> dict[str, Any]:
        limit = int(query.get("limit", ["20"])[0])
        assert 1 <= limit <= 100
        items = self.items if query["order"] == ["asc"] else self.items[::-1]
        after = query.get("after", [""])[0]
        start = next((i + 1 for i, item in enumerate(items) if item["id"] == after), 0)
        return self.page(items[start : start + limit], more=len(items) > start + limit)

    def page(self, items: Any, *, more: bool) -> dict[str, Any]:
        ends = {"first_id": items[0]["id"], "last_id": items[-1]["id"]} if items else {}
        return {"object": "list", "data": items, "has_more": more, **ends}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        conversations = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._answer(conversations.list(parse_qs(urlparse(self.path).query)))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self._answer(conversations.add(json.loads(body)["items"]))

            def _answer(self, answer: dict[str, Any]) -> None:
                conversations.requests += 1
                if conversations.requests == conversations.break_at:
                    self.close_connection = True
                    return
                data = json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args: Any) -> None:
                pass

        return Handler
