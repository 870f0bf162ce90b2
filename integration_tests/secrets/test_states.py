"""Declared secrets in states: never in a file, and always back."""

from __future__ import annotations

import base64
import json
import random
import re
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

from caravanserai_core import SecretFound, checkpoint, codec, declare_secret, load, open_run
from caravanserai_core.homes import store_for
from caravanserai_core.journal import journal_for
from integration_tests.api.helpers import forget_everything
from integration_tests.secrets import planted
from integration_tests.secrets.planted import KEY, hits

pytestmark = pytest.mark.usefixtures("all_planted")


def test_no_random_state_leaves_a_byte_of_a_secret(store_dir: Path, thorough: bool) -> None:
    """Whatever a state is made of, all of it comes back, and no file holds a secret in any form."""
    count = 20_000 if thorough else 300
    rng = random.Random(20260820)
    holding = 0
    for index in range(count):
        value = planted.state(rng)
        encoded = codec.encode(value)
        holding += b'"$secret"' in encoded.data
        run_id = f"run-{index % 97}"
        checkpoint(run_id, value, planted.text(rng) if index % 3 else None)
        assert load(run_id) == value
        assert type(load(run_id)) is type(value)
    assert holding > count / 2, "the generator plants too little to prove anything"
    assert hits(store_dir) == []


def test_the_search_of_these_tests_finds_what_is_there(store_dir: Path) -> None:
    """A search that finds nothing proves nothing, unless it would."""
    store_dir.mkdir()
    for index, form in enumerate({f for v in planted.VALUES for f in planted.forms(v)}):
        (store_dir / "file").write_bytes(b"xx" + form + b"yy")
        assert hits(store_dir), index


def test_a_growing_state_brings_secrets_into_patches(store_dir: Path) -> None:
    """A secret in a later item, in a new key, in a text that changes: patches hold references."""
    state: dict[str, Any] = {
        "messages": [{"text": "x" * 200} for _ in range(60)],
        "doc": "y" * 9000,
    }
    with open_run("grows") as run:
        for step in range(50):
            state["messages"].append({"text": f"{step} {planted.VALUES[step % 9]} {'z' * 300}"})
            state["step"] = step
            if step % 7 == 3:
                state[f"key {planted.VALUES[step % 9]}"] = step
            if step % 11 == 5:
                state["doc"] = f"{'y' * 9000}{KEY}{step}"
                state["messages"][3] = {"text": [KEY] * step}
            run.checkpoint(state)
    text = (store_dir / "grows" / "journal-1.jsonl").read_text()
    assert text.count('"patch":') > 20
    assert hits(store_dir) == []
    assert load("grows") == state
    forget_everything()
    assert load("grows") == state
    state["messages"].append({"text": KEY})
    checkpoint("grows", state)
    assert load("grows") == state
    assert hits(store_dir) == []


def test_what_was_searched_once_is_searched_again_for_a_new_secret(store_dir: Path) -> None:
    """A value that is declared later is taken out of parts that did not change since."""
    late = "declared-" + "later-4711"
    state = {"doc": f"{'d' * 9000} {late}", "list": ["e" * 300] * 50 + [late], "n": 0}
    checkpoint("late", state)
    before = (store_dir / "late" / "journal-1.jsonl").stat().st_size
    planted_before = hits(store_dir, [late])
    assert planted_before, "it was not declared, so it is there"
    declare_secret("late", late)
    for n in range(1, 4):
        state["n"] = n
        checkpoint("late", state)
        assert load("late") == state
        assert late not in json.dumps(load("late", raw=True))
    with (store_dir / "late" / "journal-1.jsonl").open("rb") as file:
        file.seek(before)
        assert late.encode() not in file.read()
    assert not [line for line in hits(store_dir, [late]) if line not in planted_before]


def test_a_secret_that_begins_in_what_stayed_the_same_is_found(store_dir: Path) -> None:
    """What is not searched again ends before the place where a secret could begin."""
    chunk = 1 << 15
    for cut in range(1, len(KEY)):
        head = "d" * (chunk - 1 - cut)  # one byte is the quote in front
        with open_run(f"cut-{cut}") as run:
            run.checkpoint({"doc": f"{head}{KEY[:cut]}{'e' * 9000}", "n": 1})
            run.checkpoint({"doc": f"{head}{KEY}{'e' * 9000}", "n": 2})
            run.checkpoint({"doc": f"{head}{KEY}{'e' * 9000}{KEY}", "n": 3})
    assert hits(store_dir) == []


def test_a_key_that_was_written_before_its_value_was_declared(store_dir: Path) -> None:
    """The patch that removes such a key would name it: a full record takes its place."""
    late = "declared-" + "later-key"
    state: dict[str, Any] = {"doc": "d" * 9000, "n": 0, late: 1}
    checkpoint("late", state)
    before = (store_dir / "late" / "journal-1.jsonl").stat().st_size
    declare_secret("late", late)
    del state[late]
    checkpoint("late", state)
    assert load("late") == state
    with (store_dir / "late" / "journal-1.jsonl").open("rb") as file:
        file.seek(before)
        assert late.encode() not in file.read()


ENCODED = {
    "base64": lambda v: base64.b64encode(v.encode()).decode(),
    "base64, shifted by one": lambda v: base64.b64encode(b"u" + v.encode()).decode(),
    "base64, shifted by two": lambda v: base64.b64encode(b"u:" + v.encode() + b"  ").decode(),
    "base64 for URLs": lambda v: base64.urlsafe_b64encode(b"?>" + v.encode()).decode(),
    "in bytes": lambda v: b"\x00\xff" + v.encode(),
    "in a bytearray": lambda v: bytearray(v.encode() + b"\x00"),
    "base64 in bytes": lambda v: base64.b64encode(v.encode()),
    "percent-encoded in bytes": lambda v: urllib.parse.quote(v, safe="").encode(),
    "percent-encoded": lambda v: f"https://example.com/?key={urllib.parse.quote(v, safe='')}",
    "percent-encoded, small letters": lambda v: re.sub(
        "%..", lambda match: match[0].lower(), urllib.parse.quote(v, safe="")
    ),
}


@pytest.mark.parametrize("how", ENCODED)
@pytest.mark.parametrize("value", [planted.ENVIRONMENT["PLANTED_TOKEN"], planted.DECLARED["odd"]])
def test_an_encoded_secret_is_refused_with_its_path(store_dir: Path, how: str, value: str) -> None:
    """What no reference could bring back is refused: where and which, and never the value."""
    checkpoint("run", {"fine": 1})
    state = {"calls": [{"args": ("a", ENCODED[how](value))}]}
    with pytest.raises(SecretFound) as caught:
        checkpoint("run", state)
    assert caught.value.path == "$.calls[0].args[1]"
    assert caught.value.name in ("env:PLANTED_TOKEN", "name:odd")
    assert value not in str(caught.value)
    assert load("run") == {"fine": 1}
    assert hits(store_dir) == []


FOREIGN: dict[str, Callable[[str], Any]] = {
    "PHP": lambda v: json.dumps(f"a/{v}").replace("/", "\\/"),
    "PHP in JSON": lambda v: json.dumps(json.dumps(v).replace("/", "\\/")),
    ".NET": lambda v: json.dumps(v).replace("+", "\\u002B"),
    ".NET, the slash too": lambda v: json.dumps(v).replace("+", "\\u002b").replace("/", "\\/"),
    "an array of numpy": lambda v: numpy.array([["before", v, v]]),
    "a text of numpy": lambda v: numpy.str_(f"a {v}"),
}


@pytest.mark.parametrize("how", FOREIGN)
def test_a_secret_as_others_write_it_is_refused_too(store_dir: Path, how: str) -> None:
    """A tool's answer is JSON of whatever language it is written in."""
    value = FOREIGN[how](planted.ENVIRONMENT["PLANTED_TOKEN"])
    with pytest.raises(SecretFound) as caught:
        checkpoint("run", {"answer": value})
    assert caught.value.path.startswith("$.answer")
    checkpoint("run", {}, f"The tool said {value}.")
    assert hits(store_dir) == []
    if isinstance(value, str):
        note = (store_dir / "run" / "latest.md").read_text()
        assert "[secret env:PLANTED_TOKEN]" in note


def test_a_refused_secret_in_a_key_is_told(store_dir: Path) -> None:
    """A path cannot name such a key, and must not."""
    coded = base64.b64encode(KEY.encode()).decode()
    with pytest.raises(SecretFound, match=r"\$\.a: a key is refused") as caught:
        checkpoint("run", {"a": {coded: 1}})
    assert coded not in str(caught.value)
    assert hits(store_dir) == []


def test_a_list_that_others_refer_to_stays_where_it_is(store_dir: Path) -> None:
    """A reference leads through plain dicts; one with a secret in a key would be none."""
    chat = [{"text": f"{n} {KEY}"} for n in range(20)]
    state: dict[str, Any] = {"values": {"chat": chat}}
    state["call"] = codec.Shared(("values", "chat"), 20, [{"text": KEY}])
    checkpoint("run", state)
    assert load("run") == {"values": {"chat": chat}, "call": [*chat, {"text": KEY}]}
    state["values"][KEY] = 1
    with pytest.raises(SecretFound, match="/values/chat"):
        checkpoint("run", state)
    assert hits(store_dir) == []


def test_of_values_that_overlap_the_longest_is_meant() -> None:
    """The same text gives the same references, the longest value first."""
    raw = json.loads(codec.encode([KEY, f"{KEY}-suffix", f"{KEY}-suffiy"]).data)
    assert raw == [
        {"$secret": "env:PLANTED_API_KEY"},
        {"$secret": "name:longer"},
        {"$text": [{"$secret": "env:PLANTED_API_KEY"}, "-suffiy"]},
    ]


def test_a_wrapped_secret_that_is_not_declared_is_refused(store_dir: Path) -> None:
    """Nothing could bring it back."""
    hidden = "undeclared-" + "0815"
    with pytest.raises(SecretFound, match="declare_secret") as caught:
        checkpoint("run", {"model": planted.Model(token="t", wrapped=hidden)})
    assert caught.value.path == "$.model.wrapped"
    assert hidden not in str(caught.value)
    assert not store_dir.exists() or hits(store_dir, [hidden]) == []


def test_states_of_other_threads_keep_their_secrets_too(store_dir: Path) -> None:
    """What several threads save at once holds references all the same."""
    from concurrent.futures import ThreadPoolExecutor

    def work(n: int) -> None:
        rng = random.Random(n)
        for _ in range(20):
            checkpoint(f"thread-{n}", planted.state(rng))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert hits(store_dir) == []
    assert journal_for(store_for("thread-1", None), "thread-1").exists
