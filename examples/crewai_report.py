"""Three agents write a report, with CrewAI; and one kill -9.

python examples/crewai_report.py         dies in the middle of a tool of the second task
python examples/crewai_report.py         goes on there, to the end
caravanserai show report-bees            what the last waypoint says

`--calm` does without the kill. The model is a script (`scripted_openai.py`), reached over HTTP by
CrewAI's real client; `--real` asks OpenAI, with OPENAI_API_KEY. Each question to the model and
each tool prints a line when it really happens: none comes twice, but the tool that was killed.
"""

import argparse
import os
import signal
import sys
from pathlib import Path

# Before CrewAI is imported: it phones home otherwise.
os.environ.setdefault("CREWAI_DISABLE_TELEMETRY", "true")
os.environ.setdefault("CREWAI_DISABLE_VERSION_CHECK", "true")
os.environ.setdefault("CREWAI_TRACING_ENABLED", "false")
os.environ.setdefault("OTEL_SDK_DISABLED", "true")

from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool
from scripted_openai import ScriptedOpenAI, by_rules

from caravanserai.crewai import waypoints

KILLED = Path("killed-once.txt")  # that this example has killed itself, so that it does so once


# --- tools


@tool
def lookup(key: str) -> str:
    """Look something up in the statistics."""
    print(f"tool: lookup {key}", flush=True)
    if key == "honey yield" and not KILLED.exists():
        KILLED.touch()
        print("kill -9, in the middle of a tool. Start me again.", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return {"hives": "1,200 hives in the city", "honey yield": "29.6 kg per hive"}.get(key, "?")


# --- the crew


def build(llm):
    """Return the crew; the last line of it is all that Caravanserai needs."""
    researcher = Agent(
        role="Researcher", goal="Find facts", backstory="Exact.", llm=llm, tools=[lookup]
    )
    writer = Agent(role="Writer", goal="Write", backstory="Clear.", llm=llm, tools=[lookup])
    editor = Agent(role="Editor", goal="Shorten", backstory="Strict.", llm=llm)
    research = Task(
        name="research",
        description="Find out how many hives there are, about {topic}.",
        expected_output="Facts with numbers.",
        agent=researcher,
    )
    draft = Task(
        name="draft",
        description="Write a paragraph about {topic}, with the honey yield.",
        expected_output="A paragraph.",
        agent=writer,
    )
    review = Task(
        name="review",
        description="Shorten the paragraph about {topic} to a sentence.",
        expected_output="A sentence.",
        agent=editor,
    )
    return Crew(
        name="report",
        agents=[researcher, writer, editor],
        tasks=[research, draft, review],
        task_callback=waypoints("report-{topic}"),
    )


def scripted(asked):
    """Decide as the script says, and show that the model was asked."""
    print(f"model asked, with {len(asked.outputs)} results of tools", flush=True)
    return by_rules(REPORT, asked)


REPORT = [
    {"if_said": "how many hives", "call": [["lookup", {"key": "hives"}]]},
    {"if_said": "how many hives", "say": "There are {last}."},
    {"if_said": "Write a paragraph", "call": [["lookup", {"key": "honey yield"}]]},
    {"if_said": "Write a paragraph", "say": "Bees do well in the city: {last}."},
    {"say": "City bees give 29.6 kg of honey per hive."},
]


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--calm", action="store_true", help="do without the kill")
    parser.add_argument("--real", action="store_true", help="ask OpenAI in place of the script")
    given = parser.parse_args(argv)
    if given.calm:
        KILLED.touch()
    if given.real:
        print(build(LLM(model="openai/gpt-4o-mini")).kickoff(inputs={"topic": "bees"}).raw)
        return 0
    # The log lets the ids of a later start go on where those of this one ended.
    with ScriptedOpenAI(scripted, log=Path("requests.jsonl")) as server:
        llm = LLM(model="openai/gpt-4o-mini", base_url=server.url, api_key="none")
        # The same line starts the run, goes on after a crash, and returns what it came to.
        print(build(llm).kickoff(inputs={"topic": "bees"}).raw)
    return 0


if __name__ == "__main__":
    sys.exit(main())
