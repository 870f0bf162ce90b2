"""What jobs are forked from: the SDK is imported, which takes a second."""

from __future__ import annotations

import gc

import anyio._backends._asyncio  # imported where it is first used
import claude_agent_sdk._internal.transport.subprocess_cli

from caravanserai.claude_agent import _query
from integration_tests.claude_agent import jobs, talking

# Imported to be there.
assert all([anyio, claude_agent_sdk, _query, jobs, talking])
gc.collect()
gc.freeze()  # so that a child's collector leaves the pages alone that it shares
