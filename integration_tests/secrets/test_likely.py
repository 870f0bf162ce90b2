"""What looks like a secret in a state: told once, or refused, and never changed."""

from __future__ import annotations

import json
import logging
import secrets as randomness
from pathlib import Path
from typing import Any

import pytest

from caravanserai_core import (
    SecretFound,
    UsageError,
    checkpoint,
    declare_secret,
    likely,
    likely_secrets,
    load,
    open_run,
)
from caravanserai_core.likely import suspects
from caravanserai_core.shapes import SHAPES
from integration_tests.secrets.planted import Held, hits

TOKEN = "ghp_" + "0aZ9" * 9


@pytest.fixture(autouse=True)
def _no_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(likely, "_policy", likely._Policy())


@pytest.mark.parametrize("begin", [begin for _, begins, _ in SHAPES for begin in begins])
def test_each_form_is_noticed_wherever_it_stands(begin: str) -> None:
    """A quick look comes before the forms; it must not miss one."""
    rest = {
        "xox": "b-" + "aB" * 20,
        "-----BEGIN": " PRIVATE KEY-----" + "aB" * 60 + "-----END PRIVATE KEY-----",
        "SG.": "a" * 22 + "." + "b" * 43,
        "AKIA": "Z" * 16,
        "ASIA": "Z" * 16,
    }.get(begin, "aB" * 60)
    secret = ("s" if begin.startswith("k_") else "") + begin + rest
    for text in (secret, f"_-_{secret}", f"task-1 {secret} and-more_of it", f"{begin} {secret}"):
        assert suspects(json.dumps({"it": text}).encode(), "refuse"), text


def test_a_warning_for_each_place_once(caplog: pytest.LogCaptureFixture) -> None:
    """It says where and of which kind; the state is kept as it is."""
    state = {"step": 0, "tool": [{"text": f"cloned\nwith\n{TOKEN}"}], "held": Held("x", TOKEN)}
    with open_run("run") as run:
        for step in range(5):
            state["step"] = step
            run.checkpoint(state)
    warned = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(warned) == 2
    assert warned[0].startswith("$.tool[0].text looks like a secret (github)")
    assert warned[1].startswith("$.held.inside looks like a secret (github)")
    assert TOKEN not in caplog.text
    assert load("run") == state


def test_refused_where_that_is_asked_for(store_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a call or by the environment; a declared one is a reference and passes."""
    monkeypatch.setenv("CARAVANSERAI_SECRETS", "refuse")
    state = {"messages": [{"n": n} for n in range(2000)], "args": {"token": TOKEN}}
    with pytest.raises(SecretFound) as caught:
        checkpoint("run", state)
    assert (caught.value.path, caught.value.name) == ("$.args.token", "github")
    assert TOKEN not in str(caught.value)
    assert hits(store_dir, [TOKEN]) == []
    likely_secrets("ignore")
    checkpoint("ignored", state)
    likely_secrets("refuse")
    declare_secret("token", TOKEN)
    checkpoint("run", state)
    assert load("run") == state


@pytest.mark.parametrize("allow", ["github", "$.fixtures", "$.fixtures[0].token"])
def test_what_is_allowed_passes(allow: str) -> None:
    """By kind, by place, by a place above; and nothing beside it."""
    likely_secrets("refuse", allow=[allow])
    checkpoint("run", {"fixtures": [{"token": TOKEN}]})
    with pytest.raises(SecretFound):
        checkpoint("run", {"other": "xoxb-" + "123456789012-abcdefghijkl"})


def test_what_stays_is_not_looked_through_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a large state only what is new is, unless the program wants something else since."""
    looked: list[bytes] = []

    def looking(data: bytes, wanted: str) -> bool:
        looked.append(data)
        return suspects(data, wanted)

    state = {f"page {n}": "x" * 100 for n in range(300)} | {"old": "y" * 9000, "seen": TOKEN}
    with open_run("run") as run:
        run.checkpoint(state)
        monkeypatch.setattr(likely, "suspects", looking)
        for n in range(5):
            state[f"page {n}"] = "z" * 100
            run.checkpoint(state)
        assert looked == [b'"%b"' % (b"z" * 100)] * 5
        likely_secrets("refuse")
        with pytest.raises(SecretFound, match=r"\$.seen"):
            run.checkpoint(state)
        likely_secrets("refuse", allow=["$.seen"])
        run.checkpoint(state)
    assert load("run") == state


def test_ids_hashes_and_images_are_never_refused(thorough: bool) -> None:
    """What agents' states are full of has no such form, not even by chance."""
    likely_secrets("refuse")
    for _ in range(2000 if thorough else 50):
        checkpoint(
            "run",
            {
                "ids": [
                    f"call_{randomness.token_hex(12)}",
                    f"toolu_{randomness.token_urlsafe(18)}",
                ],
                "hash": randomness.token_hex(32),
                "image": randomness.token_urlsafe(3000).replace("-", "+").replace("_", "/"),
                "signed": randomness.token_urlsafe(64),
                "code": "key = os.getenv('OPENAI_API_KEY', 'sk-...')",
            },
        )


def test_another_word_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wish that nobody understands is not taken for none."""
    with pytest.raises(UsageError, match="warn, refuse, ignore"):
        likely_secrets("redact")  # type: ignore[arg-type]
    monkeypatch.setenv("CARAVANSERAI_SECRETS", "yes")
    with pytest.raises(UsageError, match="CARAVANSERAI_SECRETS"):
        checkpoint("run", {})


@pytest.mark.parametrize("allow", ["$.a", "github", ["no kind"], ["fixtures"], [3]])
def test_what_is_let_through_is_a_list_of_places_and_kinds(allow: Any) -> None:
    """A text alone would be the list of its letters, and its `$` the whole state."""
    likely_secrets("refuse")
    with pytest.raises(UsageError, match=r"allow=.*\$\.fixtures.*github"):
        likely_secrets("refuse", allow=allow)
    with pytest.raises(SecretFound):
        checkpoint("run", {"a": TOKEN})
