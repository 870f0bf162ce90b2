"""Run an example and kill the process, without a warning, at one of its events.

    python killing_runner.py EXAMPLE EVENT_NUMBER EVENTS_FILE

An event is the beginning or the end of a model call, a tool, an entry, a checkpoint or `finish`.
Each is written to EVENTS_FILE before the kill; number 0 never comes.
"""

from __future__ import annotations

import functools
import os
import runpy
import signal
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from caravanserai import Run

number = int(sys.argv[2])
events = Path(sys.argv[3])
count = 0


def event(name: str) -> None:
    global count
    count += 1
    with events.open("a") as file:
        file.write(f"{name}\n")
    if count == number:
        os.kill(os.getpid(), signal.SIGKILL)


def watched(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        event(f"{name} begins")
        result = call(*args, **kwargs)
        event(f"{name} ends")
        return result

    return wrapper


for method in ("checkpoint", "entry", "finish"):
    setattr(Run, method, watched(method, getattr(Run, method)))
urllib.request.urlopen = watched("model", urllib.request.urlopen)
module = runpy.run_path(sys.argv[1], run_name="example")
for tool in module["TOOLS"]:
    module["TOOLS"][tool] = watched("tool", module["TOOLS"][tool])
module["main"]()
