"""A scripted model that speaks Anthropic's Messages API on 127.0.0.1: no key and no network.

python examples/scripted_anthropic.py PORTFILE LOG [SCRIPT]     serve until ended

It is what the CLI that the Claude Agent SDK bundles talks to with ANTHROPIC_BASE_URL. What it says
is decided by the conversation alone, so it needs no memory of who was killed and asks again:

    [{"call": [["mcp__pay__charge", {"n": 1}], ["mcp__pay__charge", {"n": 2}]]},
     {"say": "Charging the last one.", "call": [["mcp__pay__charge", {"n": 3}]]},
     {"say": "Done."}]

The first rule that fits decides. `call`: one of these calls was not made yet; those that were not
are made, in one answer. A call whose result says that it was cut off, that nobody was there, or
that it has to wait counts as not made, unless the rule has `"once": true`. `say` alone: always.
`if_said`: only where the system prompt or a message of a person contains this text; `if_tool`: only
where this tool is offered. A Python function from `Asked` to a rule will do in place of the list.
`mid`: seconds to wait in the middle of the text; `status`: answer with this HTTP error.

Like Anthropic it answers 400 where a call has no result. LOG has a JSON line for each request, with
what was decided.
"""

from __future__ import annotations

import hashlib
import json
import select
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Item = dict[str, Any]

BILLING: list[Item] = [
    {"call": [["mcp__pay__charge", {"customer": 1}]]},
    {"call": [["mcp__pay__charge", {"customer": 2}]]},
    {"call": [["mcp__pay__charge", {"customer": 3}]]},
    {"call": [["mcp__pay__charge", {"customer": 4}]]},
    {"say": "All four customers are charged."},
]
"""An agent that charges four customers, one after the other."""

NOT_MADE = (
    "interrupted",
    "Tool result missing",
    "doesn't want to take this action",
    "Make this very call again",
    "make this very call itself",
    "waits for a person",
    "Stream closed",
    "Stopped:",
    "hook error: Error",
    "hook did not",
)
"""What the result of a call contains that was not made, or of which that is not known."""

RESUMED = "[Caravanserai]"
"""What stands in front of what a session is told that goes on after a crash."""

PATIENCE = 4
"""How often a call is tried that is not made."""


@dataclass
class Asked:
    """A request: what a decision is made from."""

    system: str = ""
    said: list[str] = field(default_factory=list)  # by persons, from the start
    calls: dict[str, tuple[str, Item]] = field(default_factory=dict)  # by id
    results: dict[str, str] = field(default_factory=dict)  # likewise
    tools: list[str] = field(default_factory=list)  # offered now
    tried: list[str] = field(default_factory=list)  # calls since the session was last resumed
    answers: int = 0  # of the model

    def made(self, name: str, given: Item, *, once: bool = False) -> bool:
        """Say whether a call was made, or was tried too often since the session was resumed."""
        equal = [id_ for id_, call in self.calls.items() if call == (name, given)]
        if sum(id_ in self.tried for id_ in equal) >= PATIENCE or (once and equal):
            return True
        results = [self.results.get(id_, "") for id_ in equal]
        return any(not any(text in result for text in NOT_MADE) for result in results)


Script = list[Item] | Callable[[Asked], Item]


def by_rules(rules: list[Item], asked: Asked) -> Item:
    """Return what the first rule that fits says: its text, and the calls that were not made yet."""
    told = "\n".join([asked.system, *asked.said])
    for rule in rules:
        if rule.get("if_said", "") not in told:
            continue
        if "if_tool" in rule and rule["if_tool"] not in asked.tools:
            continue
        wanted = [(name, given) for name, given in rule.get("call", ())]
        once = bool(rule.get("once"))
        calls = [call for call in wanted if not asked.made(*call, once=once)]
        if wanted and not calls:
            continue
        return {**rule, "call": calls}
    return {"say": "There is nothing left to do.", "call": []}


def asked_by(body: Item) -> Asked:
    """Read a request."""
    system = body.get("system") or ""
    asked = Asked(system if isinstance(system, str) else _text(system))
    asked.tools = [tool["name"] for tool in body.get("tools") or [] if "name" in tool]
    for message in body["messages"]:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        asked.answers += message["role"] == "assistant"
        for block in blocks:
            if block["type"] == "tool_use":
                asked.calls[block["id"]] = (block["name"], block["input"])
                asked.tried.append(block["id"])
            elif block["type"] == "tool_result":
                asked.results[block["tool_use_id"]] = _text(block.get("content"))
            elif block["type"] == "text" and message["role"] != "assistant":
                asked.said.append(block["text"])
                if RESUMED in block["text"]:
                    asked.tried.clear()
    return asked


def open_calls(body: Item) -> list[str]:
    """Return the ids of calls without a result in the next message; Anthropic answers 400."""
    found: list[str] = []
    messages = body["messages"]
    for message, following in zip(messages, [*messages[1:], {"content": []}], strict=True):
        if message["role"] != "assistant" or isinstance(message["content"], str):
            continue
        ids = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
        content = following["content"]
        blocks = [] if isinstance(content, str) else content
        told = {block.get("tool_use_id") for block in blocks}
        found += [id_ for id_ in ids if id_ not in told]
    return found


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(part.get("text") or f"[{part.get('type')}]" for part in content)
    return content or ""


def is_summary(body: Item) -> bool:
    """Say whether the CLI asks for the summary of a conversation that is to be shortened."""
    last = body["messages"][-1]
    return "detailed summary of" in _text(last["content"]) and "<summary>" in _text(last["content"])


SUMMARY = "<analysis>Short.</analysis>\n<summary>{}</summary>"


class ScriptedAnthropic:
    """The server; a context manager.

    Args:
        script: rules, or a function.
        log: a file that gets a line for each request.
        summary: the summary of a conversation that is shortened.

    Attributes:
        url: for ANTHROPIC_BASE_URL.
        lines: of the log.
        bodies: the requests.
    """

    def __init__(
        self,
        script: Script,
        *,
        log: Path | None = None,
        summary: str = "What was done stands here.",
    ) -> None:
        self.script = script
        self.log = log
        self.summary = summary
        self.lines: list[Item] = []
        self.bodies: list[Item] = []
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> ScriptedAnthropic:
        serve = self._server.serve_forever
        threading.Thread(target=serve, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def environment(self) -> dict[str, str]:
        """What the CLI is started with so that it talks to this server, and to nobody else."""
        quiet = (
            *("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_TELEMETRY"),
            *("DISABLE_ERROR_REPORTING", "DISABLE_AUTOUPDATER", "DISABLE_BUG_COMMAND"),
            *("DISABLE_COST_WARNINGS", "CLAUDE_CODE_DISABLE_TERMINAL_TITLE"),
        )
        return {
            "ANTHROPIC_BASE_URL": self.url,
            "ANTHROPIC_API_KEY": "test",
            "CLAUDE_CODE_MAX_RETRIES": "1",
            "NO_PROXY": "127.0.0.1",
            **dict.fromkeys(quiet, "1"),
        }

    def decide(self, body: Item) -> Item:
        """Return what is answered to a request."""
        asked = asked_by(body)
        line: Item = {"answers": asked.answers, "said": asked.said[-1:], "summary": False}
        dangling = open_calls(body)
        if dangling:
            told: Item = {"status": 400, "say": f"`tool_use` without `tool_result`: {dangling}"}
        elif is_summary(body):
            told = {"say": SUMMARY.format(self.summary), "summary": True}
            line["summary"] = True
        elif isinstance(self.script, list):
            told = by_rules(self.script, asked)
        else:
            told = self.script(asked)
        line["decided"] = told
        with self._lock:
            self.bodies.append(body)
            self.lines.append(line)
            if self.log is not None:
                with self.log.open("a") as file:
                    file.write(json.dumps(line) + "\n")
        return told

    def middle(self, told: Item, gone: Callable[[], bool]) -> None:
        """Wait in the middle of a text.

        Args:
            told: what is said.
            gone: says whether nobody listens any more.
        """
        wait = time.monotonic() + told.get("mid", 0)
        while time.monotonic() < wait and not gone():
            time.sleep(0.01)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers["Content-Length"]))
                body = json.loads(raw)
                if self.path.partition("?")[0].endswith("/count_tokens"):
                    self._json(200, {"input_tokens": len(raw) // 4})
                elif self.path.partition("?")[0] != "/v1/messages":
                    self._json(404, {"type": "error", "error": {"type": "not_found_error"}})
                else:
                    self._answer(body, raw, outer.decide(body))

            def do_HEAD(self) -> None:
                self._json(200, {})

            def do_GET(self) -> None:
                self._json(404, {"type": "error", "error": {"type": "not_found_error"}})

            def _json(self, status: int, tree: Item) -> None:
                data = json.dumps(tree).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

            def _answer(self, body: Item, raw: bytes, told: Item) -> None:
                if told.get("status"):
                    kind = "invalid_request_error" if told["status"] == 400 else "api_error"
                    error = {"type": kind, "message": told.get("say", "scripted")}
                    self._json(told["status"], {"type": "error", "error": error})
                    return
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Connection", "close")
                self.end_headers()
                self.close_connection = True
                for event in events(body, raw, told):
                    if event is None:
                        outer.middle(told, self._gone)
                        continue
                    if self._gone():
                        return
                    name = event["type"]
                    self.wfile.write(f"event: {name}\ndata: {json.dumps(event)}\n\n".encode())

            def _gone(self) -> bool:
                if not select.select([self.connection], [], [], 0)[0]:
                    return False
                try:
                    return not self.connection.recv(1, socket.MSG_PEEK)
                except ConnectionError:
                    return True

            def log_message(self, *args: Any) -> None:
                pass

        return Handler


def events(body: Item, raw: bytes, told: Item) -> Iterator[Item | None]:
    """Yield the events of an answer; None: in the middle of its text."""
    name = hashlib.sha256(raw).hexdigest()[:20]
    usage = {"input_tokens": told.get("tokens", len(raw) // 4), "output_tokens": 20}
    message = {"id": f"msg_{name}", "type": "message", "role": "assistant", "content": []}
    message |= {"model": body.get("model"), "stop_reason": None, "stop_sequence": None}
    yield {"type": "message_start", "message": {**message, "usage": usage}}
    index = 0
    text = told.get("say")
    if text:
        block: Item = {"type": "text", "text": ""}
        yield {"type": "content_block_start", "index": index, "content_block": block}
        half = len(text) // 2
        for number, part in enumerate((text[:half], text[half:])):
            delta = {"type": "text_delta", "text": part}
            yield {"type": "content_block_delta", "index": index, "delta": delta}
            if number == 0:
                yield None
        yield {"type": "content_block_stop", "index": index}
        index += 1
    calls = told.get("call") or []
    for number, (tool, given) in enumerate(calls):
        block = {"type": "tool_use", "id": f"toolu_{name}{number:02d}", "name": tool, "input": {}}
        yield {"type": "content_block_start", "index": index, "content_block": block}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(given)}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
        index += 1
    stop = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
    yield {"type": "message_delta", "delta": stop, "usage": usage}
    yield {"type": "message_stop"}


class _Server(ThreadingHTTPServer):
    request_queue_size = 64
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # a killed client is no news
            super().handle_error(request, client_address)


def main(argv: list[str]) -> int:
    if len(argv) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    port_file, log = Path(argv[0]), Path(argv[1])
    script = json.loads(Path(argv[2]).read_text()) if len(argv) == 3 else BILLING
    with ScriptedAnthropic(script, log=log) as server:
        # Renamed, so that whoever waits for the file never reads half of it.
        written = port_file.with_name(f"{port_file.name}.new")
        written.write_text(str(server.port))
        written.replace(port_file)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            pass
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
