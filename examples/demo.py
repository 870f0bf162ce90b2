"""Five steps of work that survive ^C and kill -9.

python examples/demo.py        press ^C after some steps, then start it again
caravanserai show demo         what the last waypoint says
"""

import os
import sys
import time

from caravanserai import checkpoint, resumable

STEPS = 5
PAUSE = float(os.environ.get("DEMO_PAUSE", "1"))  # seconds


@resumable
def do_the_task(run_id, state):
    for step in range(state["step"] + 1, STEPS + 1):
        print(f"[{step}/{STEPS}] doing work...", flush=True)
        # ... here a real agent would call its model and its tools ...
        state = {"step": step}
        checkpoint(run_id, state, f"finished step {step}/{STEPS}")
        time.sleep(PAUSE)


if __name__ == "__main__":
    try:
        do_the_task("demo", {"step": 0})
    except KeyboardInterrupt:
        print("\ncrashed/killed mid-task. run me again — I'll resume, not restart.")
        sys.exit(130)
    print("done.")
