"""A program whose questions change between its starts, each of which is a process of its own."""

from __future__ import annotations

from typing import Any

from langgraph.types import interrupt

from caravanserai.langgraph import resumable_graph
from caravanserai.langgraph._thread import _shared
from caravanserai_core import opening
from caravanserai_core.ledger import Ledger
from caravanserai_core.stores import Store
from integration_tests.api.helpers import forget_everything
from integration_tests.langgraph.graphs import State, builder_of

GIVEN: Any = {"log": ["given"]}


def new_process() -> None:
    """Make this process another one: it knows nothing, and its records have another writer."""
    forget_everything()
    _shared.clear()
    opening._nonce = ""


class Shop:
    """A program whose questions follow prices that change between its starts."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.price: Any = 40
        self.ran: list[str] = []

    def pay(self, state: State) -> State:
        self.ran.append(f"pay {self.price}")
        said = interrupt(f"Pay {self.price}?")
        self.ran.append(f"got {said}")
        return {"log": [f"{said} {self.price}"]}

    def start(self, value: Any = GIVEN, nodes: Any = None, *edges: Any, **options: Any) -> Any:
        """Start it in a process of its own."""
        new_process()
        graph = builder_of(nodes or {"pay": self.pay}, *edges).compile()
        return resumable_graph(graph, run_id="t", store=self.store).invoke(value, **options)

    def open(self, text: str) -> str:
        """Return the name of the open question of a text."""
        asked = Ledger.read(self.store, "t", None).open
        return next(q.id for q in asked if q.record.head["text"] == text)

    def states(self) -> dict[str, str]:
        return {q.id: q.state for q in Ledger.read(self.store, "t", None).questions.values()}


def asked(result: Any) -> list[Any]:
    return [one.value for one in result.get("__interrupt__", ())]
