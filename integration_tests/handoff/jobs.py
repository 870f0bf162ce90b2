"""The same job in every framework: charge three accounts, and say so; each start may be killed.

`run` is one start of a program. Whatever the framework, the model is asked over HTTP, and its tool
leaves a line outside of the store.
"""

from __future__ import annotations

import asyncio
import json
import os
import urllib.request
from pathlib import Path
from typing import Any

from integration_tests.crewai import offline

# isort: split
from agents import Agent as OpenAIAgent
from agents import OpenAIResponsesModel, function_tool
from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, create_sdk_mcp_server
from claude_agent_sdk import tool as claude_tool
from crewai import LLM, Agent, Crew, Task
from crewai.tools import tool as crew_tool
from langchain_core.messages import AIMessage, convert_to_openai_messages
from langchain_core.tools import tool as langchain_tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from openai import AsyncOpenAI

from caravanserai import open_run
from caravanserai.claude_agent import resumable_query
from caravanserai.crewai import waypoints
from caravanserai.langgraph import resumable_graph
from caravanserai.openai_agents import Runner
from integration_tests.claude_agent import offline as claude_offline

TASK = "Charge accounts 1 to 3, each once, then say which ones were charged."
GO_ON = "Go on with the job until all three accounts are charged."
INSTRUCTIONS = "You are the cashier. Charge one account at a time."
SCHEMA = {
    "type": "function",
    "function": {
        "name": "charge",
        "description": "Charge an account.",
        "parameters": {
            "type": "object",
            "properties": {"account": {"type": "integer"}},
            "required": ["account"],
        },
    },
}


def charge_once(account: int) -> str:
    """Charge an account: a line outside of the store."""
    with Path("outside.txt").open("a") as outside:
        outside.write(f"charge {account}\n")
    return f"account {account} was charged{os.environ.get('HOSTILE', '')}"


def run(framework: str, servers: dict[str, str], options: dict[str, Any]) -> int:
    """Start the job once; what it said goes to result.json.

    Args:
        framework: of this program.
        servers: the URLs of the scripted models, `openai` and `anthropic`.
        options: `run_id`; `continues`, the run that it goes on from; `environment` of Claude's CLI;
            `hostile`, what stands behind each result of the tool.
    """
    os.setpgid(0, 0)  # so that it dies with all that it has started
    Path("pid.txt").write_text(str(os.getpid()))
    os.environ |= {**offline.places_of(Path.cwd()), "HOSTILE": options.get("hostile", "")}
    task = GO_ON if options.get("continues") else TASK
    said = _FRAMEWORKS[framework](servers, options, task)
    Path("result.json").write_text(json.dumps(said))
    return 0


def _ask(url: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
    body = json.dumps({"model": "scripted", "messages": messages, "tools": [SCHEMA]}).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/chat/completions", body, headers)
    with urllib.request.urlopen(request, timeout=60) as reply:
        found: dict[str, Any] = json.load(reply)["choices"][0]["message"]
    return found


def _plain(servers: dict[str, str], options: dict[str, Any], task: str) -> Any:
    with open_run(options["run_id"], goal=TASK, continues=options.get("continues")) as run_:
        done, said = run_.finished()
        if done:
            return said
        messages = run_.state or _seeded(run_.handoff, task)
        while True:
            answer = _ask(servers["openai"], messages)
            messages.append(answer)
            for call in answer.get("tool_calls") or ():
                account = json.loads(call["function"]["arguments"])["account"]
                result = run_.once("charge", charge_once, account, key=account)
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
            run_.checkpoint(messages, f"The model was asked {len(messages)} messages.")
            if not answer.get("tool_calls"):
                run_.finish(answer["content"])
                return answer["content"]


def _seeded(handed: Any, task: str) -> list[dict[str, Any]]:
    if handed is None:
        return [{"role": "user", "content": task}]
    brief = {"role": "user", "content": handed.brief("openai")}
    return [*handed.messages, brief, {"role": "user", "content": task}]


def _langgraph(servers: dict[str, str], options: dict[str, Any], task: str) -> Any:
    @langchain_tool
    def charge(account: int) -> str:
        """Charge an account."""
        return charge_once(account)

    def agent(state: Any) -> Any:
        said = _ask(servers["openai"], convert_to_openai_messages(state["messages"]))
        calls: list[Any] = [
            {
                "name": call["function"]["name"],
                "args": json.loads(call["function"]["arguments"]),
                "id": call["id"],
            }
            for call in said.get("tool_calls") or ()
        ]
        return {"messages": [AIMessage(said.get("content") or "", tool_calls=calls)]}

    builder = StateGraph(MessagesState)
    builder.add_node("agent", agent)
    builder.add_node("tools", ToolNode([charge]))
    builder.add_edge(START, "agent")
    builder.add_conditional_edges(
        "agent", lambda state: "tools" if state["messages"][-1].tool_calls else END
    )
    builder.add_edge("tools", "agent")
    job = resumable_graph(
        builder.compile(), run_id=options["run_id"], continues=options.get("continues")
    )
    return job.invoke({"messages": [("user", task)]})["messages"][-1].content


def _openai_agents(servers: dict[str, str], options: dict[str, Any], task: str) -> Any:
    @function_tool
    def charge(account: int) -> str:
        """Charge an account."""
        return charge_once(account)

    client = AsyncOpenAI(base_url=servers["openai"], api_key="none", max_retries=0)
    agent = OpenAIAgent(
        name="cashier",
        instructions=INSTRUCTIONS,
        model=OpenAIResponsesModel("scripted", client),
        tools=[charge],
    )
    result = Runner.run_sync(
        agent, task, run_id=options["run_id"], continues=options.get("continues")
    )
    return result.final_output


def _crewai(servers: dict[str, str], options: dict[str, Any], task: str) -> Any:
    @crew_tool
    def charge(account: int) -> str:
        """Charge an account."""
        return charge_once(account)

    model = LLM(
        model="openai/gpt-4o-mini", base_url=servers["openai"], api_key="none", max_retries=0
    )
    cashier = Agent(
        role="Cashier", goal=INSTRUCTIONS, backstory="Careful.", llm=model, tools=[charge]
    )
    work = Task(
        name="charge", description=task, expected_output="Which were charged.", agent=cashier
    )
    keep = waypoints(options["run_id"], continues=options.get("continues"))
    crew = Crew(name="cash", agents=[cashier], tasks=[work], task_callback=keep)
    return crew.kickoff().raw


def _claude_agent(servers: dict[str, str], options: dict[str, Any], task: str) -> Any:
    claude_offline.enter({**options["environment"], "HOSTILE": os.environ["HOSTILE"]})

    @claude_tool("charge", "Charge an account.", {"account": int})
    async def charge(given: Any) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": charge_once(int(given["account"]))}]}

    settings = ClaudeAgentOptions(
        model="claude-sonnet-4-5",
        permission_mode="acceptEdits",
        allowed_tools=["mcp__pay__charge"],
        mcp_servers={"pay": create_sdk_mcp_server("pay", "1", [charge])},
        setting_sources=[],
    )

    async def work() -> Any:
        said = None
        async for message in resumable_query(
            prompt=task,
            run_id=options["run_id"],
            options=settings,
            continues=options.get("continues"),
        ):
            if isinstance(message, ResultMessage):
                said = message.result
        return said

    return asyncio.run(work())


_FRAMEWORKS = {
    "plain": _plain,
    "langgraph": _langgraph,
    "openai-agents": _openai_agents,
    "crewai": _crewai,
    "claude-agent": _claude_agent,
}
