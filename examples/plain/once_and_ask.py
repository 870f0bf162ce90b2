"""A step that never repeats, and a question that waits, in plain Python; and one kill -9.

python examples/plain/once_and_ask.py                  looks the order up, and asks you
caravanserai answer order-b4 q1 yes
python examples/plain/once_and_ask.py                  pays, and is killed before it could tell
python examples/plain/once_and_ask.py                  asks you: did that happen? Look:
cat outside.txt                                        it did
caravanserai answer order-b4 q2 happened --result '"paid back 40 EUR"'
python examples/plain/once_and_ask.py                  goes on with that; nobody is paid twice
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))  # where trip.py is, which these examples share

from trip import die, dies_once, done

from caravanserai import WaitingForPerson, ask, checkpoint, once, resumable


def look_up(order):
    print(f"looks up {order}", flush=True)
    return done(f"looked up {order}", 40)


def pay_back(order, amount):
    print(f"pays {amount} EUR", flush=True)
    paid = done(f"paid {amount} EUR for {order}", f"paid back {amount} EUR")
    die()  # it happened, and nobody was told
    return paid


@resumable
def refund(run_id, state):
    amount = once("look up", look_up, "B4")
    if ask(f"Pay {amount} EUR back for order B4?", options=["yes", "no"]) != "yes":
        return "not paid back"
    result = once("pay back", pay_back, "B4", amount)
    checkpoint(run_id, {**state, "result": result}, f"Order B4: {result}.")
    return result


dies_once("order-b4")
try:
    # The same line starts the job, goes on after a crash or an answer, and returns its result.
    print(refund("order-b4", {}))
except WaitingForPerson as waits:
    print(waits)
    sys.exit(waits.exit_code)
