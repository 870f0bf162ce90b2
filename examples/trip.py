"""What the programs in these folders share: a job, two tools, a model, and a death. Not run itself.

The job is to find the cheaper way from Oslo to Bergen, and to book it. The programs of all
frameworks do it, so that they differ in nothing but the framework, and each can go on where another
one stopped. `fare` and `book` print a line when they begin, and write one to outside.txt when
something was really done. The model is a script, reached over HTTP by each framework's real client
(`scripted_openai.py`, `scripted_anthropic.py`); with `--real` the real one is asked, with your key.
"""

import json
import os
import re
import signal
import sys
import urllib.request
from contextlib import contextmanager
from pathlib import Path

TASK = "Find out what train and bus from Oslo to Bergen cost, and book a seat on the cheaper one."
GO_ON = "Go on with it to the end."
OUTSIDE = Path("outside.txt")  # the outside world: a line for each thing that was really done
FARES = {"train": 62, "bus": 45}
REAL = "--real" in sys.argv


# --- the tools


def fare(way: str) -> str:
    """Look up what a seat costs, on the train or on the bus."""
    print(f"tool: fare {way}", flush=True)
    if way == "bus":
        die()
    return done(f"fare {way}", f"the {way} costs {FARES[way]} EUR")


def book(way: str) -> str:
    """Book a seat, on the train or on the bus."""
    print(f"tool: book {way}", flush=True)
    return done(f"book {way}", f"a seat on the {way} is booked")


def done(what, result):
    """Do something in the outside world."""
    with OUTSIDE.open("a") as outside:
        outside.write(f"{what}\n")
    return result


# --- the death


_killed = None


def dies_once(name):
    """Let this program be killed where `die` stands; there is a file when that has happened."""
    global _killed
    _killed = Path(f"{name}.killed")


def die():
    """Kill this process, as `kill -9` does, if it was to die and did not yet."""
    if _killed is not None and not _killed.exists():
        _killed.touch()
        print("kill -9. Start me again.", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)


# --- the model


def next_step(told):
    """Return the tool to call next, as who has read the conversation would; None: none."""
    if not all(f"costs {price} EUR" in told for price in FARES.values()):
        way = next(way for way, price in FARES.items() if f"costs {price} EUR" not in told)
        return ["fare", {"way": way}]
    return None if "seat on the bus is booked" in told else ["book", {"way": "bus"}]


def agent(asked):
    """Decide what the model says to OpenAI's clients."""
    step = next_step("\n".join([*asked.said, *asked.outputs]))
    return "A seat on the bus is booked, for 45 EUR." if step is None else [step]


def claude(asked):
    """Decide what the model says to Claude's CLI."""
    step = next_step("\n".join([*asked.said, *asked.results.values()]))
    if step is None:
        return {"say": "A seat on the bus is booked, for 45 EUR.", "call": []}
    return {"say": "Next.", "call": [[f"mcp__trip__{step[0]}", step[1]]]}


def talk(asked):
    """Answer in a chat, from what was said in it."""
    fares = dict(re.findall(r"[Tt]he (\w+) costs (\d+)", "\n".join(asked.said)))
    if "cheaper" not in asked.said[-1]:
        return "Noted."
    cheaper = min(fares, key=lambda way: int(fares[way]), default="one that you tell me of")
    return f"The {cheaper}."


@contextmanager
def openai(script=agent):
    """Let OpenAI's clients find the scripted model in place of the real one."""
    if not REAL:
        from scripted_openai import ScriptedOpenAI

        os.environ["OPENAI_API_KEY"] = "none"
        os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"
        # The log lets the ids of a later start go on where those of this one ended.
        with ScriptedOpenAI(script, log=Path("requests.jsonl")) as server:
            os.environ["OPENAI_BASE_URL"] = server.url
            yield
    else:
        yield


@contextmanager
def anthropic(script=claude):
    """Let Claude's CLI find the scripted model, and a configuration that is not yours."""
    if not REAL:
        from scripted_anthropic import ScriptedAnthropic

        for name in [name for name in os.environ if name.startswith(("ANTHROPIC_", "CLAUDE"))]:
            del os.environ[name]
        with ScriptedAnthropic(script) as server:
            os.environ |= server.environment
            os.environ["CLAUDE_CONFIG_DIR"] = str(Path("claude-config").resolve())
            yield
    else:
        yield


def chat(messages, tools=()):
    """Ask a model that speaks OpenAI's chat format; stands for the client that you use."""
    base = os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1")
    body = {"model": "gpt-4o-mini", "messages": messages}
    if tools:
        body["tools"] = [*tools]
    headers = {
        "Content-Type": "application/json",
        "Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}",
    }
    request = urllib.request.Request(f"{base}/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as reply:
        said = json.load(reply)["choices"][0]["message"]
    return {name: said[name] for name in ("role", "content", "tool_calls") if name in said}


SCHEMAS = [
    {
        "type": "function",
        "function": {
            "name": tool.__name__,
            "description": tool.__doc__,
            "parameters": {
                "type": "object",
                "properties": {"way": {"type": "string", "enum": ["train", "bus"]}},
                "required": ["way"],
            },
        },
    }
    for tool in (fare, book)
]
"""The tools, as OpenAI's chat format has them."""


def words(default):
    """Return what stands on the command line beside switches, or else `default`."""
    return " ".join(word for word in sys.argv[1:] if not word.startswith("--")) or default
