"""A run's name made of parts is the same everywhere and belongs to one set of parts."""

from __future__ import annotations

import uuid
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest

from caravanserai import UsageError, load, run_key, save

PARTS = st.dictionaries(
    st.text("abz/=%._", min_size=1, max_size=4),
    st.one_of(st.text(min_size=1, max_size=6), st.integers(), st.uuids()),
    min_size=1,
    max_size=3,
)


def test_it_reads_well_and_has_no_order() -> None:
    assert run_key(user=7, tenant="acme") == run_key(tenant="acme", user=7)
    assert run_key(user=7, tenant="acme") == "tenant=acme/user=7"
    assert run_key(user="Zoë", session="2026-08-20 a") == "session=2026-08-20%20a/user=Zoë"


def test_an_int_and_a_uuid_are_their_text() -> None:
    """A session id is the same as it comes from a database and from an address."""
    one = uuid.UUID(int=7)
    assert run_key(user=7, session=one) == run_key(user="7", session=str(one))


@hypothesis.given(PARTS, PARTS)
def test_two_sets_of_parts_have_two_names(one: dict[str, Any], other: dict[str, Any]) -> None:
    equal = {k: str(v) for k, v in one.items()} == {k: str(v) for k, v in other.items()}

    assert (run_key(**one) == run_key(**other)) is equal


@pytest.mark.parametrize(
    "parts",
    [
        {"a": "x/b=y"},
        {"a": "x", "b": "y"},
        {"a": "x%2Fb%3Dy"},
        {"a": "x", "b": "y/"},
        {"a": " x"},
        {"a": "x "},
        {"a": "x\n"},
        {"a": "X"},
        {"a": "\u00e9"},
        {"a": "e\u0301"},
        {"a": "../x"},
    ],
)
def test_names_that_are_alike_are_runs_of_their_own(parts: dict[str, Any]) -> None:
    key = run_key(**parts)
    save(key, parts)

    assert load(key) == parts
    assert key.isprintable()


@pytest.mark.parametrize(
    "parts", [{}, {"user": None}, {"user": ""}, {"user": True}, {"user": 1.5}, {"user": b"x"}]
)
def test_a_part_that_names_nobody_is_refused(parts: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"run_key\(\)"):
        run_key(**parts)
    with pytest.raises(UsageError, match=r"run_key\(\)"):
        run_key(tenant="acme", **(parts or {"user": []}))


def test_tenants_do_not_meet() -> None:
    for tenant in ("acme", "acme/chat", "other"):
        save(run_key(tenant=tenant, session="chat"), {"of": tenant})

    for tenant in ("acme", "acme/chat", "other"):
        assert load(run_key(tenant=tenant, session="chat")) == {"of": tenant}
