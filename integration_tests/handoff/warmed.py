"""What jobs are forked from: all frameworks are imported, and CrewAI has been used once."""

from __future__ import annotations

import gc

from integration_tests.crewai import warmed  # noqa: F401 - in front of all that imports CrewAI

# isort: split
import anyio._backends._asyncio  # imported where it is first used
import claude_agent_sdk._internal.transport.subprocess_cli

from caravanserai.claude_agent import _query
from integration_tests.handoff import jobs

# Imported to be there.
assert all([anyio, claude_agent_sdk, _query, jobs])
gc.collect()
gc.freeze()  # so that a child's collector leaves the pages alone that it shares
