"""What jobs are forked from: CrewAI is imported, and a crew has been through it once.

CrewAI builds most of what it needs when it is first used, which takes most of a second.
"""

from __future__ import annotations

import contextvars
import gc
import os
import tempfile
import threading
import time
from typing import Any

from integration_tests.crewai import offline  # noqa: F401 - in front of CrewAI

# isort: split
from crewai.events import crewai_event_bus

from integration_tests.crewai import jobs, others, scripts  # noqa: F401 - some are only called
from integration_tests.openai_agents.scripted import ScriptedOpenAI


def _warm() -> None:
    before, home = os.getcwd(), dict(os.environ)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            with ScriptedOpenAI(scripts.SCRIPTS["report"]) as server:
                # CrewAI's state of a process is in variables of the context.
                contextvars.Context().run(
                    jobs.run, server.url, {"app": "report", "plain": True, "silent": True}
                )
        finally:
            os.chdir(before)
            os.environ.clear()
            os.environ.update(home)
    _end_threads()


def _end_threads() -> None:
    """End the threads of CrewAI's event bus; it starts new ones where it is used again."""
    bus: Any = crewai_event_bus
    handlers = dict(bus._sync_handlers), dict(bus._async_handlers)
    bus.shutdown()
    bus._sync_handlers, bus._async_handlers = handlers
    bus._execution_plan_cache.clear()
    bus._shutting_down = bus._executor_initialized = False
    gc.collect()  # a client that is held in a circle has a connection
    deadline = time.monotonic() + 30
    while threading.active_count() > 1:  # those of the server's connections; none outlives a fork
        assert time.monotonic() < deadline, threading.enumerate()
        time.sleep(0.005)


_warm()
gc.collect()
gc.freeze()  # so that a child's collector leaves the pages alone that it shares
