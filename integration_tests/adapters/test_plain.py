"""The promises of all adapters, kept by a plain function."""

from __future__ import annotations

import os
from typing import Any

from caravanserai_core import ask, checkpoint, once, resumable
from caravanserai_core.testing import AdapterTests, Job


def _renamed(state: dict[str, Any]) -> dict[str, Any]:
    state["title"] = state.pop("name")
    return state


class TestPlain(AdapterTests):
    """`@resumable` with a checkpoint after each step."""

    def start(self, job: Job) -> Any:
        """Begin the job or go on with it."""
        key = "name" if job.version == 1 else "title"
        steps = [_renamed] if job.version == 2 and job.migrates else []

        @resumable(store=job.store, schema=job.version, migrations=steps, continues=job.continues)
        def work(run_id: str, state: dict[str, Any] | None = None) -> list[str]:
            if state is None:
                state = {key: job.do("look"), "done": []}
                if job.secret:
                    state["authorisation"] = f"Bearer {os.environ[job.secret]}"
                checkpoint(run_id, state, "looked", store=job.store)
            if "send" not in state["done"]:
                if not job.asks or ask("Send it?", options=["yes", "no"]) == "yes":
                    state["sent"] = once("send", job.do, "send")
                state["done"].append("send")
                checkpoint(run_id, state, store=job.store)
            if "sum" not in state["done"]:
                state["sum"] = job.do("sum")
                state["done"].append("sum")
                checkpoint(run_id, state, store=job.store)
            return [state[name] for name in (key, "sent", "sum") if name in state]

        return work(job.run_id)
