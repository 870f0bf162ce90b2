"""`caravanserai demo`: a small agent is killed in the middle of its work, and goes on.

The agent is a process of its own (`python -m caravanserai_core.demo RUN FILE`). Each letter that
it "sends" is a line in a file outside the store, which counts what really ran, how often.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from caravanserai_core.api import checkpoint
from caravanserai_core.errors import CaravanseraiError
from caravanserai_core.listing import status_of
from caravanserai_core.notes import Note, PlanItem
from caravanserai_core.quoting import visible
from caravanserai_core.resumable import resumable
from caravanserai_core.run import current_run

if TYPE_CHECKING:
    from caravanserai_core.stores import Store

LETTERS = ("Ada", "Bela", "Chen", "Dora", "Emil")
KILLED_AT = 4
"""The step during which the agent is killed."""

_WORK = 0.3
"""Seconds that a letter takes after it was sent."""
_PATIENCE = 20.0
"""Seconds to wait for the agent, on a machine that is very busy."""

_NOTHING = "the demo did not work here"


# ---------------------------------------------------------------------- the agent


@resumable
def answer_letters(run_id: str, state: Any, outbox: str) -> int:
    """Answer the letters one by one, with a waypoint after each."""
    for step in range(len(state["answered"]) + 1, len(LETTERS) + 1):
        name = LETTERS[step - 1]
        print(f"[{step}/{len(LETTERS)}] answering {name}'s letter...", flush=True)
        current_run().entry("send", {"to": name}, say=f"the answer to {name} is being sent.")
        with Path(outbox).open("a", encoding="utf-8") as file:
            file.write(f"{name}\n")
        time.sleep(_WORK)
        state = {"answered": [*state["answered"], name]}
        checkpoint(run_id, state, _note(step))
    return len(LETTERS)


def _note(step: int) -> Note:
    done, total = LETTERS[:step], len(LETTERS)
    plan = [PlanItem(f"{name}'s letter", name in done) for name in LETTERS]
    return Note(f"Answered {step} of {total} letters, {done[-1]}'s last.", plan=plan)


# ---------------------------------------------------------------------- the performance


def perform(store: Store, called: str = "caravanserai") -> int:
    """Run the agent, kill it, run it again, and count. Returns the exit code.

    Args:
        store: where its run is to be.
        called: what stands before the verb in a command line that finds that store.

    Raises:
        CaravanseraiError: the agent did not do its part.
    """
    run_id = _new_name(store)
    shown = _relative(store.where(run_id))
    with tempfile.TemporaryDirectory(prefix="caravanserai-demo-") as folder:
        outbox = Path(folder, "outbox.txt")
        outbox.touch()
        command = [sys.executable, "-m", "caravanserai_core.demo", run_id, str(outbox)]
        env = {**os.environ, "CARAVANSERAI_STORE": store.url}

        _say(
            "A small agent answers five letters and leaves a waypoint after each. What it sends is",
            "counted outside of the store. In the middle of the fourth letter it is killed.",
            "",
        )
        killed = _start_and_kill(command, env, outbox)
        _say(f"      ✗ process {killed} killed with SIGKILL: sent, and no waypoint yet", "")
        _say(f"What the dead process left, {shown}/latest.md:", "")
        _say(*(f"    {line}".rstrip() for line in _latest(store, run_id).splitlines()), "")
        _say("The same command again:", "")
        code = subprocess.call(command, env=env)
        sent = outbox.read_text(encoding="utf-8").split()
    _count(store, run_id, sent, code)
    _say("", f"The notes are in {shown}", "", *_follow_ups(called, run_id))
    return 0


def _start_and_kill(command: list[str], env: dict[str, str], outbox: Path) -> int:
    """Start the agent and kill it while it works on letter `KILLED_AT`; returns its pid."""
    with subprocess.Popen(command, env=env) as agent:
        deadline = time.monotonic() + _PATIENCE
        while len(outbox.read_text(encoding="utf-8").split()) < KILLED_AT:
            if agent.poll() is not None:
                raise CaravanseraiError(
                    f"{_NOTHING}: the agent ended with code {agent.returncode}."
                )
            if time.monotonic() > deadline:
                agent.kill()
                raise CaravanseraiError(
                    f"{_NOTHING}: the agent was not at work in {_PATIENCE:g} s."
                )
            time.sleep(0.01)
        agent.send_signal(getattr(signal, "SIGKILL", signal.SIGTERM))
        agent.wait()
        return agent.pid


def _latest(store: Store, run_id: str) -> str:
    text = store.get_note(run_id, "latest.md")
    if text is None:
        raise CaravanseraiError(f"{_NOTHING}: there is no latest.md in {store.where(run_id)}.")
    return visible(text)


def _count(store: Store, run_id: str, sent: list[str], code: int) -> None:
    """Say how often each letter was sent and what that means."""
    finished, flight = LETTERS[: KILLED_AT - 1], LETTERS[KILLED_AT - 1]
    repeated = sum(sent.count(name) - 1 for name in finished)
    times = ", ".join(f"{name} {sent.count(name)}" for name in LETTERS)
    recent = store.recent(run_id)
    last = (recent.since or recent.chain)[-1] if recent is not None else None
    missing = [name for name in LETTERS if name not in sent]
    if code or repeated or missing or status_of(last) != "finished":
        raise CaravanseraiError(f"{_NOTHING}: it ended with code {code}; letters sent: {times}.")
    _say(
        "",
        f"Letters sent: {times}.",
        f"Finished steps that ran again: {repeated}.",
        "",
        f"{flight}'s letter was in flight: sent, but not yet at its waypoint. From outside nobody",
        "can know whether such a step did its work, so it ran again. That is the promise: a step",
        "that is finished never runs again; only the one in flight at the kill may.",
    )


def _follow_ups(called: str, run_id: str) -> list[str]:
    """Return what to type next, with what it does in a column of its own."""
    verbs = {
        "show": "the newest note, and the exact state",
        "log": "every step, and which process wrote it",
        "clean": "remove it",
    }
    commands = [f"{called} {verb} {run_id}" for verb in verbs]
    width = max(map(len, commands))
    return [
        f"    {command:{width}}     {what}"
        for command, what in zip(commands, verbs.values(), strict=True)
    ]


def _new_name(store: Store) -> str:
    while True:
        run_id = f"demo-{secrets.token_hex(2)}"
        if store.recent(run_id) is None and store.legacy(run_id) is None:
            return run_id


def _relative(path: str) -> str:
    """Shorten a path below the working folder, for reading."""
    here = f"{Path.cwd()}{os.sep}"
    return visible(path.removeprefix(here))


def _say(*lines: str) -> None:
    print("\n".join(lines), flush=True)


if __name__ == "__main__":
    answer_letters(sys.argv[1], {"answered": []}, sys.argv[2])
    print("done.", flush=True)
