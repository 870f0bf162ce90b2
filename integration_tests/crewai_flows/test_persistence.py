"""`WaypointFlowPersistence` used by itself, as anybody may use a `FlowPersistence`."""

# ruff: noqa: E402

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from integration_tests.support import require

require("crewai")

from integration_tests.crewai import offline  # noqa: F401 - before CrewAI is imported

# isort: split
from crewai.flow.async_feedback.types import PendingFeedbackContext
from crewai.flow.persistence.base import FlowPersistence
from pydantic import BaseModel, ValidationError

from caravanserai import UnserialisableState, load
from caravanserai.crewai import WaypointFlowPersistence


class Counting(BaseModel):
    id: str
    price: Decimal


@pytest.fixture
def kept(tmp_path: Path) -> WaypointFlowPersistence:
    return WaypointFlowPersistence(store=tmp_path / "store")


def _context(**more: Any) -> PendingFeedbackContext:
    given = {"method_name": "review", "method_output": {"n": 1}, "message": "Good?"} | more
    return PendingFeedbackContext(flow_id="f", flow_class="a.B", **given)


def test_the_newest_state_comes_back_in_another_object(kept: WaypointFlowPersistence) -> None:
    kept.init_db()
    assert kept.load_state("f") is None
    kept.save_state("f", "first", {"id": "f", "when": datetime(2026, 1, 2, tzinfo=UTC)})
    kept.save_state("f", "second", {"id": "f", "tags": {"a"}})
    kept.save_state("g", "first", Counting(id="g", price=Decimal("1.10")))
    other: FlowPersistence = WaypointFlowPersistence(store=kept.store)
    assert other.load_state("f") == {"id": "f", "tags": {"a"}}
    assert other.load_state("g") == {"id": "g", "price": Decimal("1.10")}
    assert load("f", at=1, store=kept.store)["state"]["when"] == datetime(2026, 1, 2, tzinfo=UTC)


def test_a_pause_comes_back_until_it_is_over(kept: WaypointFlowPersistence) -> None:
    assert kept.load_pending_feedback("f") is None
    kept.save_state("f", "draft", {"id": "f"})
    assert kept.load_pending_feedback("f") is None
    context = _context(emit=["yes", "no"], llm={"model": "gpt-4o-mini", "api_key": "sk-secret"})
    kept.save_pending_feedback("f", context, {"id": "f", "n": 1})
    found = kept.load_pending_feedback("f")
    assert found is not None
    state, pending = found
    assert state == {"id": "f", "n": 1}
    assert (pending.method_name, pending.message, pending.emit) == (
        "review",
        "Good?",
        ["yes", "no"],
    )
    assert pending.method_output == {"n": 1}
    assert pending.llm == "gpt-4o-mini"
    files = [path for path in kept.store.rglob("*") if path.is_file()]
    assert not [path for path in files if b"sk-secret" in path.read_bytes()]

    kept.clear_pending_feedback("f")
    kept.clear_pending_feedback("f")
    assert kept.load_pending_feedback("f") is None
    assert kept.load_state("f") == {"id": "f", "n": 1}


def test_a_state_that_cannot_be_kept_leaves_the_one_before(kept: WaypointFlowPersistence) -> None:
    kept.save_state("f", "first", {"id": "f"})
    with pytest.raises(UnserialisableState, match="lock"):
        kept.save_state("f", "second", {"id": "f", "lock": object()})
    assert kept.load_state("f") == {"id": "f"}


def test_options_that_mean_nothing_are_refused() -> None:
    with pytest.raises(ValidationError, match="on_uncertain"):
        WaypointFlowPersistence(on_uncertain="maybe")
