"""What jobs are forked from: imported, and gone through once.

The SDK and the client build most of what they need when it is first used, which takes a second.
"""

from __future__ import annotations

import gc
import os
import tempfile
import threading
import time

from integration_tests.openai_agents import apps, failing, jobs
from integration_tests.openai_agents.scripted import ScriptedOpenAI


def _warm() -> None:
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for api in ("responses", "chat"):
                for way in ("run", "stream"):
                    with ScriptedOpenAI(apps.SCRIPTS["refund"]) as server:
                        jobs.run(
                            server.url, {"app": "refund", "api": api, "way": way, "plain": True}
                        )
        finally:
            os.chdir(before)
    deadline = time.monotonic() + 30
    while threading.active_count() > 1:  # those of the server's connections; none outlives a fork
        assert time.monotonic() < deadline, threading.enumerate()
        time.sleep(0.005)


_warm()
assert failing  # imported to be called
gc.collect()
gc.freeze()  # so that a child's collector leaves the pages alone that it shares
