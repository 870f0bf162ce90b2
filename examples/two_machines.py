"""A machine dies in the middle of a job, and another one takes the job over.

python examples/two_machines.py --store postgresql://me@db.internal/agents
python examples/two_machines.py --store s3://bucket/agents

Six letters are to be sent, each once. Two workers are started with the same store, as two machines
would be; each is a process group of its own. The first one takes the job, the second one stands by.
After three letters the first is killed with all that it started (SIGKILL), and the second goes on
from the store alone: letter 4 is the next one. In your own set-up start `--worker NAME` on each
machine.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from caravanserai import open_run
from caravanserai_core import load
from caravanserai_core.errors import RunBusy, RunNotFound, WaypointNotFound

LETTERS = 6
PAUSE = float(os.environ.get("DEMO_PAUSE", "0.5"))  # seconds


def send(number, worker, log):
    """Do what must not be done twice: here it is a line in a file."""
    with Path(log).open("a", encoding="utf-8") as file:
        file.write(f"letter {number} sent by {worker}\n")


def work(worker, store, run_id, log):
    """Take the job as soon as nobody else works on it, and bring it to its end."""
    standing_by = False
    while True:
        try:
            with open_run(run_id, store=store, goal=f"Send {LETTERS} letters, each once.") as run:
                sent = run.state["sent"] if run.state else 0
                if sent < LETTERS:
                    print(f"{worker}: takes the job; {sent} of {LETTERS} are sent", flush=True)
                for number in range(sent + 1, LETTERS + 1):
                    run.once(f"letter {number}", send, number, worker, log)
                    run.checkpoint({"sent": number}, f"{worker} sent letter {number} of {LETTERS}")
                    print(f"{worker}: sent letter {number}", flush=True)
                    time.sleep(PAUSE)
                if not run.finished()[0]:
                    run.finish()
                return
        except RunBusy as busy:
            if not standing_by:
                print(f"{worker}: stands by, process {busy.pid} works on it", flush=True)
                standing_by = True
            time.sleep(0.2)


def start(worker, options, log):
    """Start a worker as another machine would: it shares nothing with us but the store."""
    command = [sys.executable, __file__, "--store", options.store, "--run", options.run]
    return subprocess.Popen([*command, "--worker", worker, "--log", log], start_new_session=True)


def sent_so_far(options):
    """Ask the store, as everybody may at any time."""
    try:
        return load(options.run, store=options.store)["sent"]
    except (RunNotFound, WaypointNotFound):
        return 0


def show(options):
    """Let one of two machines die."""
    with tempfile.TemporaryDirectory() as folder:
        if sent_so_far(options):
            print(f"{options.run} is begun already: --run NAME, or `caravanserai clean` it")
            return 1
        log = str(Path(folder, "sent.txt"))
        first = start("machine-1", options, log)
        while sent_so_far(options) < 1:
            time.sleep(0.05)
        second = start("machine-2", options, log)
        while sent_so_far(options) < LETTERS // 2:
            time.sleep(0.05)
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
        print("machine-1 is gone.", flush=True)
        second.wait()
        lines = Path(log).read_text(encoding="utf-8").splitlines()
        print(f"\n{len(lines)} letters were sent, {len(lines) - len(set(lines))} of them twice:")
        print("\n".join(f"  {line}" for line in lines))
        return second.returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--store", default=os.environ.get("CARAVANSERAI_STORE"), help="a URL")
    parser.add_argument("--run", default="letters")
    parser.add_argument("--worker", metavar="NAME", help="be one of the two")
    parser.add_argument("--log", default="sent.txt")
    options = parser.parse_args()
    if not options.store:
        parser.error("which store? --store postgresql://… or s3://…")
    if options.worker:
        return work(options.worker, options.store, options.run, options.log)
    return show(options)


if __name__ == "__main__":
    sys.exit(main())
