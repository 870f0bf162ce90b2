"""One job, three frameworks, two crashes: CrewAI begins it, OpenAI Agents goes on, Claude finishes.

python examples/relay.py                 runs all of it, in about half a minute; no key, no network
caravanserai log bees-3 --graph              who did what
caravanserai handoff bees-2 --for anthropic  what the third program was told
cat .caravanserai/bees-*/waypoint-*.md       the notes, as one story

A CrewAI agent looks things up and is killed with SIGKILL. A program of the OpenAI Agents SDK says
`continues="bees-1"`, looks up the rest, writes, and is killed, too. A session of the Claude Agent
SDK says `continues="bees-2"`, and publishes. Each tool prints a line when it really runs: none runs
twice. The frameworks and their clients are real, and so is the CLI that Claude's SDK brings along;
the models are scripts (`scripted_openai.py`, `scripted_anthropic.py`), reached over HTTP.
"""

import asyncio
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

from scripted_anthropic import ScriptedAnthropic
from scripted_openai import ScriptedOpenAI

from caravanserai import clean, history

TASK = "Write a guide to keeping bees on a roof: look up the facts, write two sections, publish it."
GO_ON = "Go on with the guide until it is published."
FACTS = {
    "law": "Hives are registered with the city.",
    "neighbours": "Hives stand three metres from the next roof.",
    "yield": "A hive on a roof gives 29 kg of honey a year.",
}
SECTIONS = ("Rules", "Honey")
ANSWER = "The guide is published: two sections, three facts."
OUTSIDE = Path("outside.txt")  # the outside world: a line for each thing that was really done
STEPS = (
    *((("search", {"topic": topic}), fact) for topic, fact in FACTS.items()),
    *((("write", {"section": name}), f"section {name} is written") for name in SECTIONS),
    (("publish", {"name": "roof-bees"}), "roof-bees is published"),
)


# --- the tools, in no framework's form


def search(topic):
    """Look a topic up."""
    return _done(f"search {topic}", FACTS[topic])


def write(section):
    """Write a section of the guide."""
    return _done(f"write {section}", f"section {section} is written")


def publish(name):
    """Publish the guide."""
    return _done(f"publish {name}", f"{name} is published")


def _done(what, result):
    with OUTSIDE.open("a") as outside:
        outside.write(f"{what}\n")
    print(f"    tool: {what}", flush=True)
    return result


# --- the three programs: each is one start of one framework


def begin_with_crewai(url, _cli):
    # Before CrewAI is imported: it phones home otherwise.
    for name in ("CREWAI_DISABLE_TELEMETRY", "CREWAI_DISABLE_VERSION_CHECK", "OTEL_SDK_DISABLED"):
        os.environ.setdefault(name, "true")
    os.environ.setdefault("CREWAI_TRACING_ENABLED", "false")
    logging.disable(logging.WARNING)  # it does not know the script's way to count tokens
    from crewai import LLM, Agent, Crew, Task
    from crewai.tools import tool

    from caravanserai.crewai import waypoints

    llm = LLM(model="openai/gpt-4o-mini", base_url=url, api_key="none", max_retries=0)
    tools = [tool(search), tool(write), tool(publish)]
    author = Agent(role="Author", goal="Write guides", backstory="Exact.", llm=llm, tools=tools)
    guide = Task(name="guide", description=TASK, expected_output="What was done.", agent=author)
    crew = Crew(name="guide", agents=[author], tasks=[guide], task_callback=waypoints("bees-1"))
    return crew.kickoff().raw


def go_on_with_openai_agents(url, _cli):
    os.environ.setdefault("OPENAI_AGENTS_DISABLE_TRACING", "1")
    from agents import Agent, OpenAIResponsesModel, function_tool
    from openai import AsyncOpenAI

    from caravanserai.openai_agents import Runner

    def typed(function, name):
        """Give a tool the type that the SDK makes its schema of."""
        function.__annotations__ = {name: str, "return": str}
        return function_tool(function)

    client = AsyncOpenAI(base_url=url, api_key="none", max_retries=0)
    tools = [typed(search, "topic"), typed(write, "section"), typed(publish, "name")]
    model = OpenAIResponsesModel("scripted", client)
    agent = Agent(name="editor", instructions="Write guides.", model=model, tools=tools)
    return Runner.run_sync(agent, GO_ON, run_id="bees-2", continues="bees-1").final_output


def finish_with_claude(_url, cli):
    from claude_agent_sdk import (
        ClaudeAgentOptions,
        ResultMessage,
        create_sdk_mcp_server,
    )
    from claude_agent_sdk import (
        tool as claude_tool,
    )

    from caravanserai.claude_agent import resumable_query

    def wrapped(function, name):
        async def call(given):
            return {"content": [{"type": "text", "text": function(given[name])}]}

        return claude_tool(function.__name__, function.__doc__, {name: str})(call)

    tools = [wrapped(search, "topic"), wrapped(write, "section"), wrapped(publish, "name")]
    options = ClaudeAgentOptions(
        model="claude-sonnet-4-5",
        mcp_servers={"guide": create_sdk_mcp_server("guide", tools=tools)},
        allowed_tools=["mcp__guide__*"],
        setting_sources=[],
        env=cli,
    )

    async def work():
        said = None
        async for message in resumable_query(
            prompt=GO_ON, run_id="bees-3", options=options, continues="bees-2"
        ):
            if isinstance(message, ResultMessage):
                said = message.result
        return said

    return asyncio.run(work())


PROGRAMS = {
    "CrewAI": begin_with_crewai,
    "OpenAI Agents SDK": go_on_with_openai_agents,
    "Claude Agent SDK": finish_with_claude,
}


# --- the scripted models: what they say depends on what the conversation says is done


class Models:
    """The servers; they kill the program that asks when as much is done as `kill_at` says."""

    def __init__(self):
        self.kill_at = None
        self.child = None
        self.started = threading.Event()
        self.openai = ScriptedOpenAI(self._openai)
        self.anthropic = ScriptedAnthropic(self._anthropic)

    def _next(self, text):
        done = sum(result in text for _, result in STEPS)
        if done == self.kill_at:
            self.kill_at = None
            self.started.wait()
            self.child.kill()
            self.child.wait()
        return next((call for call, result in STEPS if result not in text), None)

    def _openai(self, asked):
        call = self._next("\n".join([*asked.said, *asked.outputs]))
        return ANSWER if call is None else [call]

    def _anthropic(self, asked):
        call = self._next("\n".join([*asked.said, *asked.results.values()]))
        if call is None:
            return {"say": ANSWER, "call": []}
        return {"say": "Next.", "call": [[f"mcp__guide__{call[0]}", call[1]]]}

    def run(self, framework, cli, kill_at=None):
        """Start a program of a framework, and wait for its end; returns its exit code."""
        self.kill_at = kill_at
        self.started.clear()
        command = [sys.executable, __file__, framework, self.openai.url]
        self.child = subprocess.Popen(command, env={**os.environ, **cli})
        self.started.set()
        return self.child.wait()


def relay():
    for run_id in ("bees-1", "bees-2", "bees-3"):
        clean(run_id)
    OUTSIDE.unlink(missing_ok=True)
    models = Models()
    folder = str(Path("claude-config").resolve())
    with models.openai, models.anthropic:
        # Claude's CLI gets all of its program's environment: nothing for the real API is in it.
        for name in [name for name in os.environ if name.startswith(("ANTHROPIC_", "CLAUDE"))]:
            del os.environ[name]
        cli = {**models.anthropic.environment, "CLAUDE_CONFIG_DIR": folder}
        for framework, run_id, kill_at in (
            ("CrewAI", "bees-1", 2),
            ("OpenAI Agents SDK", "bees-2", 4),
            ("Claude Agent SDK", "bees-3", None),
        ):
            print(f"{run_id}, {framework}:", flush=True)
            code = models.run(framework, cli, kill_at)
            if kill_at is not None:
                print(f"    killed with SIGKILL (exit code {code})", flush=True)
            elif code:
                return code
    done = OUTSIDE.read_text().splitlines()
    print(f"\n{len(done)} things were done, {len(done) - len(set(done))} of them twice.")
    print("What the first notes of the second and the third program say:\n")
    for run_id in ("bees-2", "bees-3"):
        print(history(run_id)[0].note.decided[0])
    print("\ncaravanserai log bees-3 --graph     who did what")
    return 0


def main(argv):
    if not argv:
        return relay()
    framework, url = argv
    cli = {
        name: os.environ[name] for name in os.environ if name.startswith(("ANTHROPIC_", "CLAUDE"))
    }
    print(f"    said: {PROGRAMS[framework](url, cli)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
