"""A secret that gets another value while the process lives."""

from __future__ import annotations

from typing import Any

import pytest

from caravanserai_core import SecretFound, checkpoint, declare_secret, load, open_run

OLD, NEW = "the-first-value-of-it", "the-second-value-of-it"


def refused(state: Any, name: str) -> SecretFound:
    with pytest.raises(SecretFound, match="an earlier value of") as caught:
        checkpoint("run", state)
    assert caught.value.name == name
    assert OLD not in str(caught.value)
    assert NEW not in str(caught.value)
    return caught.value


def test_an_earlier_value_is_refused_and_never_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would come back as the value of today."""
    monkeypatch.setenv("PLANTED_API_KEY", OLD)
    checkpoint("run", {"key": OLD})
    monkeypatch.setenv("PLANTED_API_KEY", NEW)
    error = refused({"before": OLD, "after": NEW}, "env:PLANTED_API_KEY")
    assert error.path == "$.before"
    assert refused({"x": [f"Bearer {OLD}"]}, "env:PLANTED_API_KEY").path == "$.x[0]"
    assert refused({OLD: 1}, "env:PLANTED_API_KEY").path == "$"
    checkpoint("run", {"after": NEW})
    assert load("run") == {"after": NEW}
    assert load("run", raw=True) == {"after": {"$secret": "env:PLANTED_API_KEY"}}


def test_a_value_that_comes_back_is_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what stood in for the other one until then is looked at again."""
    state = {"long": "x" * 9000, "key": OLD, "n": 0}
    with open_run("run") as run:
        monkeypatch.setenv("PLANTED_API_KEY", OLD)
        run.checkpoint(state)
        monkeypatch.setenv("PLANTED_API_KEY", NEW)
        run.checkpoint({**state, "key": NEW, "n": 1})
        with pytest.raises(SecretFound, match="an earlier value"):
            run.checkpoint(state)
        monkeypatch.setenv("PLANTED_API_KEY", OLD)
        with pytest.raises(SecretFound, match="an earlier value"):
            run.checkpoint({**state, "key": NEW, "n": 2})
        run.checkpoint({**state, "n": 3})
    assert load("run") == {**state, "n": 3}


def test_a_name_that_is_declared_twice() -> None:
    declare_secret("crm", OLD)
    declare_secret("crm", NEW)
    assert refused({"before": OLD}, "name:crm").path == "$.before"
    checkpoint("run", {"after": NEW})
    assert load("run") == {"after": NEW}


def test_another_name_that_still_has_the_value_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    declare_secret("crm", OLD)
    monkeypatch.setenv("PLANTED_API_KEY", OLD)
    declare_secret("crm", NEW)
    checkpoint("run", {"key": OLD})
    assert load("run", raw=True) == {"key": {"$secret": "env:PLANTED_API_KEY"}}
    assert load("run") == {"key": OLD}


def test_a_variable_that_is_gone_is_missed_and_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be back at the next start: a reference to it changes nothing."""
    monkeypatch.setenv("PLANTED_API_KEY", OLD)
    checkpoint("run", {"key": OLD, "n": 1})
    monkeypatch.delenv("PLANTED_API_KEY")
    checkpoint("run", {"key": OLD, "n": 2})
    monkeypatch.setenv("PLANTED_API_KEY", OLD)
    assert load("run") == {"key": OLD, "n": 2}
