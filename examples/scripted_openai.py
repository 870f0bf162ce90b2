"""A scripted model that speaks OpenAI's two APIs on 127.0.0.1: no key, no network, no chance.

python examples/scripted_openai.py PORTFILE LOG [SCRIPT]     serve until ended

It speaks Responses and Chat Completions, each as JSON or as a stream of events. What it says is
decided by the conversation alone, so it needs no memory of who was killed and asks again:

    [{"call": [["price", {"item": "tea"}], ["price", {"item": "honey"}]]},
     {"call": [["order", {"item": "tea"}]]},
     {"say": "Done: {last}."}]

The first rule that fits decides. `call`: these tools are offered, and the first of them was not
called yet since the last message of a person (`times`: not so often). `say`: always; {last} is the
last result of a tool. `if_tool`: only where this tool is offered; `if_said`: only where the
instructions or the person's message contain this text. In place of a list a Python function
from `Asked` to calls or a text will do.

Like OpenAI it answers 400 where a tool call has no result, a result no call, an item comes twice,
or a reasoning item is alone or missing. Ids are new in every answer, so that a call made twice is
seen. LOG has a JSON line for each request, with what was decided, and one when it was answered
in full.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Item = dict[str, Any]
Call = tuple[str, dict[str, Any]]
Decision = str | list[Call]

REFUND: list[Item] = [
    {"call": [["issue_refund", {"order_id": "A17", "amount": 40}]]},
    {"if_tool": "issue_refund", "say": "Refund for order A17: {last}."},
    {"call": [["lookup_order", {"order_id": "A17"}]]},
    {"call": [["get_policy", {"topic": "refund"}], ["shipping_quote", {"order_id": "A17"}]]},
    {"call": [["transfer_to_refund_agent", {}]]},
    {"say": "There is nobody who can refund order A17."},
]
"""A triage agent that looks things up and hands over, and a refund agent that pays."""


class Refused(Exception):
    """The request is answered with an error."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


@dataclass
class Asked:
    """A request, in whichever API it came: what a decision is made from."""

    instructions: str = ""
    user: str = ""  # the last message of a person, and what came after it:
    calls: list[Call] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    tools: list[str] = field(default_factory=list)  # offered now
    # By persons and by the model, from the start.
    said: list[str] = field(default_factory=list, compare=False)

    def hears(self, user: str) -> None:
        self.said.append(user)
        self.user, self.calls, self.outputs = user, [], []


Script = list[Item] | Callable[[Asked], Decision]


def by_rules(rules: list[Item], asked: Asked) -> Decision:
    """Let the first rule that fits decide."""
    called = Counter(name for name, _ in asked.calls)
    for rule in rules:
        if "if_tool" in rule and rule["if_tool"] not in asked.tools:
            continue
        if rule.get("if_said", "") not in f"{asked.instructions}\n{asked.user}":
            continue
        if "say" in rule:
            text = rule["say"] if isinstance(rule["say"], str) else json.dumps(rule["say"])
            return text.replace("{last}", asked.outputs[-1] if asked.outputs else "nothing")
        calls = [(name, arguments) for name, arguments in rule["call"]]
        offered = all(name in asked.tools for name, _ in calls)
        if offered and called[calls[0][0]] < rule.get("times", 1):
            return calls
    raise Refused("no rule of the script fits", 500)


def text_of(content: Any) -> str:
    """Return the text of a message or of a tool's result."""
    if isinstance(content, list):
        return " ".join(part.get("text") or f"[{part['type']}]" for part in content)
    return content or ""


class Ids:
    """The ids of one answer: new ones, unless calls are numbered anew in every answer."""

    def __init__(self, number: int, reuse: bool) -> None:
        self.number = number
        self.reuse = reuse

    def call(self, index: int) -> str:
        return f"call_{index}" if self.reuse else f"call_{self.number:04d}_{index}"

    def of(self, kind: str, index: int | None = None) -> str:
        return f"{kind}_{self.number:04d}" + ("" if index is None else f"_{index}")


# ---------------------------------------------------------------------- the Responses API


class Responses:
    """Requests to /v1/responses."""

    def __init__(self) -> None:
        self.kept: dict[str, list[Item]] = {}  # for `previous_response_id`

    def items(self, body: Item) -> list[Item]:
        """Return the whole conversation, refused where OpenAI would refuse it."""
        given = body["input"]
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given
        previous = body.get("previous_response_id")
        if previous and previous not in self.kept:
            raise Refused(f"Previous response with id '{previous}' not found.")
        items = [*self.kept.get(previous, ()), *items]
        self._check_calls(items)
        self._check_reasoning(items)
        for name, count in Counter(i["id"] for i in items if i.get("id")).items():
            if count > 1:
                raise Refused(
                    f"Duplicate item found with id {name}. "
                    "Remove duplicate items from your input and try again."
                )
        return items

    def _check_calls(self, items: list[Item]) -> None:
        waiting: Counter[str] = Counter()
        for item in items:
            if item.get("type") == "function_call":
                waiting[item["call_id"]] += 1
            elif item.get("type") == "function_call_output":
                call = item["call_id"]
                if not waiting[call]:
                    raise Refused(
                        f"No tool call found for function call output with call_id {call}."
                    )
                waiting[call] -= 1
        for call, count in waiting.items():
            if count:
                raise Refused(f"No tool output found for function call {call}.")

    def _check_reasoning(self, items: list[Item]) -> None:
        seen = {item.get("id") for item in items if item.get("type") == "reasoning"}
        for item, follows in zip(items, [*items[1:], {}], strict=True):
            name, kind = item.get("id"), item.get("type")
            if kind == "reasoning" and not follows.get("id"):
                raise Refused(
                    f"Item '{name}' of type 'reasoning' was provided "
                    "without its required following item."
                )
            need = "rs_" + str(name).split("_")[1] if str(name).count("_") else None
            if kind in ("function_call", "message") and need and need not in seen:
                raise Refused(
                    f"Item '{name}' of type '{kind}' was provided "
                    f"without its required 'reasoning' item: '{need}'."
                )

    def asked(self, body: Item) -> Asked:
        asked = Asked(instructions=body.get("instructions") or "")
        for item in self.items(body):
            if item.get("role") in ("system", "developer"):
                asked.instructions += text_of(item["content"])
            elif item.get("role") == "user":
                asked.hears(text_of(item["content"]))
            elif item.get("role") == "assistant":
                asked.said.append(text_of(item["content"]))
            elif item.get("type") == "function_call":
                asked.calls.append((item["name"], json.loads(item["arguments"])))
            elif item.get("type") == "function_call_output":
                asked.outputs.append(text_of(item["output"]))
        asked.tools = [tool["name"] for tool in body.get("tools") or [] if "name" in tool]
        return asked

    def answer(self, body: Item, said: Decision, ids: Ids) -> Item:
        output: list[Item] = [{"type": "reasoning", "id": ids.of("rs"), "summary": []}]
        if isinstance(said, str):
            part = {"type": "output_text", "text": said, "annotations": []}
            item = {"type": "message", "id": ids.of("msg"), "role": "assistant", "content": [part]}
            output.append({**item, "status": "completed"})
        for index, (name, arguments) in enumerate(() if isinstance(said, str) else said):
            item = {"type": "function_call", "id": ids.of("fc", index), "call_id": ids.call(index)}
            item |= {"name": name, "arguments": json.dumps(arguments), "status": "completed"}
            output.append(item)
        self.kept[ids.of("resp")] = [*self.items(body), *output]
        return {
            "id": ids.of("resp"),
            "object": "response",
            "created_at": 1_700_000_000 + ids.number,
            "status": "completed",
            "model": body.get("model", "scripted"),
            "output": output,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": {
                "input_tokens": 10,
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens": 5,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": 15,
            },
        }

    def events(self, body: Item, answer: Item) -> Iterator[bytes]:
        """Yield the answer as server-sent events; the last one holds it whole."""
        empty = {**answer, "status": "in_progress", "output": [], "usage": None}
        found: list[Item] = [
            {"type": "response.created", "response": empty},
            {"type": "response.in_progress", "response": empty},
        ]
        for index, item in enumerate(answer["output"]):
            found += self._item_events(index, item)
        found.append({"type": "response.completed", "response": answer})
        for number, event in enumerate(found):
            data = json.dumps({**event, "sequence_number": number})
            yield f"event: {event['type']}\ndata: {data}\n\n".encode()

    def _item_events(self, index: int, item: Item) -> Iterator[Item]:
        place = {"item_id": item["id"], "output_index": index}
        begun = {**item, "status": "in_progress"} if "status" in item else item
        added: Item = {"type": "response.output_item.added", "output_index": index}
        if item["type"] == "function_call":
            yield {**added, "item": {**begun, "arguments": ""}}
            kind = "response.function_call_arguments"
            for piece in pieces(item["arguments"]):
                yield {"type": f"{kind}.delta", **place, "delta": piece}
            whole = {"arguments": item["arguments"], "name": item["name"]}
            yield {"type": f"{kind}.done", **place, **whole}
        elif item["type"] == "message":
            yield {**added, "item": {**begun, "content": []}}
            (part,) = item["content"]
            place["content_index"] = 0
            yield {"type": "response.content_part.added", **place, "part": {**part, "text": ""}}
            kind = "response.output_text"
            for piece in pieces(part["text"]):
                yield {"type": f"{kind}.delta", **place, "delta": piece, "logprobs": []}
            yield {"type": f"{kind}.done", **place, "text": part["text"], "logprobs": []}
            yield {"type": "response.content_part.done", **place, "part": part}
        else:
            yield {**added, "item": item}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}


# ---------------------------------------------------------------------- Chat Completions


class Chat:
    """Requests to /v1/chat/completions."""

    def asked(self, body: Item) -> Asked:
        asked = Asked()
        waiting: list[str] = []
        for message in body["messages"]:
            if message["role"] == "tool":
                if message["tool_call_id"] not in waiting:
                    raise Refused(
                        "Invalid parameter: messages with role 'tool' must be a response to a "
                        "preceeding message with 'tool_calls'."
                    )
                waiting.remove(message["tool_call_id"])
                asked.outputs.append(text_of(message["content"]))
                continue
            self._check_answered(waiting)
            if message["role"] in ("system", "developer"):
                asked.instructions += text_of(message["content"])
            elif message["role"] == "user":
                asked.hears(text_of(message["content"]))
            elif message.get("content"):
                asked.said.append(text_of(message["content"]))
            for call in message.get("tool_calls") or ():
                waiting.append(call["id"])
                function = call["function"]
                asked.calls.append((function["name"], json.loads(function["arguments"])))
        self._check_answered(waiting)
        asked.tools = [tool["function"]["name"] for tool in body.get("tools") or ()]
        return asked

    def _check_answered(self, waiting: list[str]) -> None:
        if waiting:
            raise Refused(
                "An assistant message with 'tool_calls' must be followed by tool messages "
                "responding to each 'tool_call_id'. The following tool_call_ids did not have "
                f"response messages: {', '.join(waiting)}"
            )

    def answer(self, body: Item, said: Decision, ids: Ids) -> Item:
        message: Item = {"role": "assistant", "content": said if isinstance(said, str) else None}
        if not isinstance(said, str):
            message["tool_calls"] = [
                {
                    "id": ids.call(index),
                    "type": "function",
                    "function": {"name": name, "arguments": json.dumps(arguments)},
                }
                for index, (name, arguments) in enumerate(said)
            ]
        finish = "stop" if isinstance(said, str) else "tool_calls"
        return {
            "id": ids.of("chatcmpl"),
            "object": "chat.completion",
            "created": 1_700_000_000 + ids.number,
            "model": body.get("model", "scripted"),
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
        }

    def events(self, body: Item, answer: Item) -> Iterator[bytes]:
        """Yield the answer as server-sent events, ended by [DONE]."""
        (choice,) = answer["choices"]
        message = choice["message"]
        deltas: list[Item] = [{"role": "assistant", "content": ""}]
        deltas += [{"content": piece} for piece in pieces(message["content"] or "")]
        for index, call in enumerate(message.get("tool_calls", ())):
            begun = {**call, "function": {**call["function"], "arguments": ""}}
            deltas.append({"tool_calls": [{"index": index, **begun}]})
            for piece in pieces(call["function"]["arguments"]):
                deltas.append({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        head = {**answer, "object": "chat.completion.chunk", "usage": None}
        chunks = [
            {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
            for delta in deltas
        ]
        last = {"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}
        chunks.append({**head, "choices": [last]})
        if (body.get("stream_options") or {}).get("include_usage"):
            chunks.append({**head, "choices": [], "usage": answer["usage"]})
        yield from (f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks)
        yield b"data: [DONE]\n\n"


def pieces(text: str, length: int = 12) -> Iterator[str]:
    """Cut a text as a model that streams does."""
    return (text[at : at + length] for at in range(0, len(text), length))


# ---------------------------------------------------------------------- the server


class ScriptedOpenAI:
    """The server, on a thread of this process; a context manager.

    Arguments: `script`, see above; `log`, a file that is appended to; `reuse_ids`, for calls
    numbered anew in every answer, as some servers do; `delay`, seconds before each event of a
    stream; `hold`, (n, k): answer n waits after k events until its client is gone or `release`d.
    """

    def __init__(
        self,
        script: Script = REFUND,
        *,
        log: Path | None = None,
        reuse_ids: bool = False,
        delay: float = 0,
        hold: tuple[int, int] | None = None,
    ) -> None:
        self.script = script
        self.log = log
        self.reuse_ids = reuse_ids
        self.delay = delay
        self.hold = hold
        self.lines: list[Item] = []  # of the log
        self.bodies: dict[int, Item] = {}  # by the request's number
        self._released = threading.Event()
        self._lock = threading.Lock()
        # Ids stay new where a server takes over the log of one that ended.
        told = log.read_text().splitlines() if log is not None and log.exists() else []
        self._number = sum("decided" in line for line in map(json.loads, told))
        self._apis = {"/v1/responses": Responses(), "/v1/chat/completions": Chat()}
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}/v1"

    def __enter__(self) -> ScriptedOpenAI:
        # A short poll: who leaves waits until it is over.
        serve = self._server.serve_forever
        threading.Thread(target=serve, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._released.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def asked(self) -> list[Item]:
        """The requests, in order, also those whose client was gone before it had the answer."""
        return [line for line in self.lines if "decided" in line]

    @property
    def answered(self) -> list[Item]:
        """The requests that were answered in full, without those that were refused."""
        whole = {line["n"] for line in self.lines if line.get("answered")}
        return [line for line in self.asked if line["n"] in whole and line["error"] is None]

    @property
    def errors(self) -> list[str]:
        """Why requests were refused."""
        return [line["error"] for line in self.asked if line["error"] is not None]

    def release(self) -> None:
        """Let the answer that is held go on."""
        self._released.set()

    def _note(self, line: Item) -> None:
        with self._lock:
            self.lines.append(line)
            if self.log is not None:
                with self.log.open("a") as file:
                    file.write(json.dumps(line) + "\n")

    def _decide(self, path: str, body: Item) -> tuple[int, Item, str | None]:
        """Return the request's number, its answer, and why it is refused, if it is."""
        with self._lock:
            self._number += 1
            number = self._number
            self.bodies[number] = body
        line: Item = {"n": number, "path": path, "stream": bool(body.get("stream"))}
        line |= {"tools": [], "decided": None, "error": None}
        try:
            api = self._apis[path]
            asked = api.asked(body)
            line["tools"] = asked.tools
            script = self.script
            said = by_rules(script, asked) if isinstance(script, list) else script(asked)
            line["decided"] = said
            return number, api.answer(body, said, Ids(number, self.reuse_ids)), None
        except Refused as refused:
            line["error"] = str(refused)
            line["status"] = refused.status
            error = {"message": str(refused), "type": "invalid_request_error"}
            return number, {"error": {**error, "param": None, "code": None}}, str(refused.status)
        finally:
            self._note(line)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if self.path not in outer._apis:
                    self.send_error(404)
                    return
                number, answer, refused = outer._decide(self.path, body)
                streamed = not refused and body.get("stream")
                self.send_response(int(refused or 200))
                if streamed:
                    self.send_header("Content-Type", "text/event-stream")
                    self.send_header("Transfer-Encoding", "chunked")
                    self.end_headers()
                    self._stream(number, list(outer._apis[self.path].events(body, answer)))
                    return
                data = json.dumps(answer).encode()
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                outer._note({"n": number, "answered": not self._gone()})
                self.wfile.write(data)

            def _stream(self, number: int, events: list[bytes]) -> None:
                for sent, event in enumerate(events):
                    time.sleep(outer.delay)
                    if (number, sent) == outer.hold:
                        while not outer._released.wait(0.01) and not self._gone():
                            pass
                    if self._gone():
                        outer._note({"n": number, "answered": False})
                        self.close_connection = True
                        return
                    if sent == len(events) - 1:  # before it is sent: its reader may look at once
                        outer._note({"n": number, "answered": True})
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
                self.wfile.write(b"0\r\n\r\n")

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


class _Server(ThreadingHTTPServer):
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # a killed client is no news
            super().handle_error(request, client_address)


def main(argv: list[str]) -> int:
    if len(argv) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    port_file, log = Path(argv[0]), Path(argv[1])
    script = json.loads(Path(argv[2]).read_text()) if len(argv) == 3 else REFUND
    with ScriptedOpenAI(script, log=log) as server:
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
