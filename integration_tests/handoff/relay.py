"""A job that goes from framework to framework, with its models, and what is known from outside."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import threading
import time
from pathlib import Path
from typing import Any, Self

from caravanserai_core.stores import FileStore
from caravanserai_core.verify import renew_notes
from integration_tests.claude_agent import offline
from integration_tests.claude_agent.scripted import ScriptedAnthropic
from integration_tests.openai_agents.scripted import ScriptedOpenAI
from integration_tests.preloaded import Ended, Preloaded

JOBS = "integration_tests.handoff.jobs"
WARMED = "integration_tests.handoff.warmed"
ACCOUNTS = (1, 2, 3)
ANSWER = "Charged: 1, 2, 3."
PATIENCE = 100.0


class Relay:
    """A folder in which programs take a job from each other; a context manager.

    Args:
        preloaded: what forks them.
        folder: where they work.
    """

    def __init__(self, preloaded: Preloaded, folder: Path) -> None:
        self.preloaded = preloaded
        self.folder = folder
        self.store = FileStore(folder / ".caravanserai")
        self.bodies: list[str] = []
        self._kill_at: int | None = None
        self._telling: Path | None = None
        self._lock = threading.Lock()
        self._openai = _OpenAI(self)
        self._anthropic = _Anthropic(self)

    def __enter__(self) -> Self:
        self._openai.__enter__()
        self._anthropic.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._anthropic.__exit__()
        self._openai.__exit__()

    def start(
        self,
        framework: str,
        run_id: str,
        *,
        kill_at: int | None = None,
        continues: str | None = None,
        hostile: str = "",
        told: bool = False,
    ) -> Ended:
        """Start a program once.

        Args:
            framework: its.
            run_id: of its run.
            kill_at: it is killed when its model is asked with so many accounts charged.
            continues: the run that it goes on from.
            hostile: what stands behind each result of its tool.
            told: it is not killed before its note tells the last charge. Claude Code asks its model
                before its transcript has come to the SDK; without this, a note may have it or not.
        """
        self._kill_at = kill_at
        self._telling = Path(self.store.where(run_id), "latest.md") if told else None
        self.bodies.clear()
        (self.folder / "result.json").unlink(missing_ok=True)
        (self.folder / "out.txt").touch()  # a child that is killed at once has not made it
        servers = {"openai": self._openai.url, "anthropic": self._anthropic.url}
        options: dict[str, Any] = {"run_id": run_id, "continues": continues, "hostile": hostile}
        options["environment"] = offline.environment(self.folder, self._anthropic.environment)
        ended = self.preloaded.run(
            f"{JOBS}:run", framework, servers, options, folder=self.folder, kill_after=PATIENCE
        )
        assert ended.seconds < PATIENCE, f"it hangs: {ended.out}"
        return ended

    def said(self, framework: str, run_id: str, **options: Any) -> str:
        """Start a program to its end, and return what it said."""
        ended = self.start(framework, run_id, **options)
        assert ended.code == 0, ended.out
        found: str = json.loads((self.folder / "result.json").read_text())
        return found

    def charged(self) -> list[int]:
        """Return the accounts that were really charged, in order."""
        path = self.folder / "outside.txt"
        lines = path.read_text().splitlines() if path.exists() else []
        return [int(line.removeprefix("charge ")) for line in lines]

    def note(self, run_id: str, name: str = "latest.md") -> str:
        """Return a note of a run; what a kill left unwritten is, by the next command that looks."""
        renew_notes(self.store, run_id)
        return Path(self.store.where(run_id), name).read_text(encoding="utf-8")

    def decide(self, body: dict[str, Any]) -> int | None:
        """Return the account that is to be charged next, None: all are. Kills who asks in time."""
        text = json.dumps(body)
        done = {int(n) for n in re.findall(r"account (\d) was charged", text)}
        with self._lock:
            self.bodies.append(text)
            kill = self._kill_at is not None and len(done) >= self._kill_at
            if kill:
                self._kill_at = None
        if kill:
            self._wait_for(f"account {max(done)} was charged")
            self._kill()
        return next((account for account in ACCOUNTS if account not in done), None)

    def _wait_for(self, words: str) -> None:
        until = time.monotonic() + PATIENCE
        while self._telling is not None and words not in self._telling.read_text(encoding="utf-8"):
            assert time.monotonic() < until, f"no note tells: {words}"
            time.sleep(0.01)

    def _kill(self) -> None:
        """Kill who asks, with all that it has started, and wait until it is gone."""
        pid = int((self.folder / "pid.txt").read_text())
        handle = os.pidfd_open(pid)
        try:
            os.killpg(pid, signal.SIGKILL)
            select.select([handle], [], [])
        finally:
            os.close(handle)


class _OpenAI(ScriptedOpenAI):  # type: ignore[misc]
    def __init__(self, relay: Relay) -> None:
        self._asked = threading.local()
        self._relay = relay
        super().__init__(self._say)

    def _decide(self, path: str, body: dict[str, Any]) -> Any:
        self._asked.body = body
        return super()._decide(path, body)

    def _say(self, _asked: Any) -> Any:
        account = self._relay.decide(self._asked.body)
        return ANSWER if account is None else [("charge", {"account": account})]


class _Anthropic(ScriptedAnthropic):  # type: ignore[misc]
    def __init__(self, relay: Relay) -> None:
        self._asked = threading.local()
        self._relay = relay
        super().__init__(self._say)

    def decide(self, body: dict[str, Any]) -> Any:
        self._asked.body = body
        return super().decide(body)

    def _say(self, _asked: Any) -> Any:
        account = self._relay.decide(self._asked.body)
        if account is None:
            return {"say": ANSWER, "call": []}
        # It takes its time, so that what was done is in the CLI's own transcript.
        return {"say": "Next.", "mid": 0.3, "call": [["mcp__pay__charge", {"account": account}]]}
