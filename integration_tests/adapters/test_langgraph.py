"""The promises of all adapters, kept by a graph that is a job."""

# ruff: noqa: E402

from __future__ import annotations

import os
from typing import Any, TypedDict

from integration_tests.support import require

require("langgraph")

from langgraph.graph import START, StateGraph
from langgraph.types import interrupt

from caravanserai.langgraph import resumable_graph
from caravanserai.langgraph.migrations import rename_channel
from caravanserai_core import once
from caravanserai_core.testing import PAUSED, AdapterTests, Job


class First(TypedDict, total=False):
    """What the first version of the program keeps."""

    name: str
    sent: str
    sum: str
    authorisation: str


class Second(TypedDict, total=False):
    """The same in the second version."""

    title: str
    sent: str
    sum: str
    authorisation: str


class TestLangGraph(AdapterTests):
    """`resumable_graph` with a node for each step."""

    def start(self, job: Job) -> Any:
        """Begin the job or go on with it."""
        key = "name" if job.version == 1 else "title"
        steps = [rename_channel("name", "title")] if job.version == 2 and job.migrates else []

        def look(state: Any) -> Any:
            found = {key: job.do("look")}
            if job.secret:
                found["authorisation"] = f"Bearer {os.environ[job.secret]}"
            return found

        def send(state: Any) -> Any:
            asked = {"question": "Send it?", "options": ["yes", "no"]}
            if job.asks and interrupt(asked) == "no":
                return {}
            return {"sent": once("send", job.do, "send")}

        builder: Any = StateGraph(First if job.version == 1 else Second)
        builder.add_node("look", look)
        builder.add_node("send", send)
        builder.add_node("sum", lambda state: {"sum": job.do("sum")})
        for before, after in ((START, "look"), ("look", "send"), ("send", "sum")):
            builder.add_edge(before, after)
        graph = resumable_graph(
            builder.compile(),
            run_id=job.run_id,
            store=job.store,
            schema=job.version,
            migrations=steps,
            continues=job.continues,
            seed=lambda handoff, given: given,  # it takes no messages
        )
        result = graph.invoke({})
        if "__interrupt__" in result:
            return PAUSED
        return [result[name] for name in (key, "sent", "sum") if name in result]
