"""Make an agent stop at waypoints, so that a crash costs a step and not the run.

    from caravanserai import checkpoint, resumable

    @resumable
    def do_the_task(run_id, state):
        step = state.get("step", 0)
        while step < 5:
            step += 1
            ...
            checkpoint(run_id, {"step": step}, f"finished step {step}, next is step {step + 1}")

    do_the_task("my-run", {"step": 0})

Adapters of frameworks are submodules of this package, one each, and need their framework.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from caravanserai_core import *  # noqa: F403
from caravanserai_core import __all__ as __all__
from caravanserai_core import __version__ as __version__

if TYPE_CHECKING:
    from caravanserai_core.handed import Handoff as Handoff


def __getattr__(name: str) -> object:
    if name == "Handoff":  # a type for annotations: few programs hand a run over
        from caravanserai_core.handed import Handoff

        return Handoff
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
