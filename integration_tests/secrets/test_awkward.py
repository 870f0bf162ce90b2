"""Values, places and files that a search for secrets stumbles over."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from caravanserai_core import (
    RunNotFound,
    SecretFound,
    UnserialisableState,
    checkpoint,
    clean,
    declare_secret,
    fork,
    load,
    open_run,
    run_key,
)
from caravanserai_core.cli import app
from integration_tests.secrets.planted import hits

QUOTED = "pa\"ss'w\\ord-of-the-crm"
DIGITS = "48151623"


@pytest.fixture(autouse=True)
def _declared() -> None:
    declare_secret("quoted", QUOTED)
    declare_secret("digits", DIGITS)


@pytest.mark.parametrize("written", [repr(QUOTED), QUOTED.replace("\\", "\\\\")])
def test_what_repr_makes_of_a_value_is_words_in_prose(store_dir: Path, written: str) -> None:
    """Backslashes and quotes of it are escaped otherwise than JSON escapes them."""
    checkpoint("run", {}, f"it was {written}")
    with pytest.raises(KeyError), open_run("failed"):
        raise KeyError(QUOTED)
    assert hits(store_dir, [QUOTED, written.strip("'"), repr(QUOTED)[1:-1]]) == []
    assert "[secret name:quoted]" in (store_dir / "run" / "waypoint-1.md").read_text()
    assert "[secret name:quoted]" in (store_dir / "failed" / "latest.md").read_text()


@pytest.mark.parametrize("written", [repr(QUOTED), QUOTED.replace("\\", "\\\\")])
@pytest.mark.parametrize("state", [lambda text: {"a": [text]}, lambda text: {"a": {text: 1}}])
def test_what_repr_makes_of_a_value_is_refused_in_a_state(
    written: str, state: Callable[[str], Any]
) -> None:
    """With its path: no reference brings it back."""
    with pytest.raises(SecretFound, match=r"\$\.a.*name:quoted") as caught:
        checkpoint("run", state(written))
    assert caught.value.name == "name:quoted"
    assert QUOTED not in str(caught.value)
    with pytest.raises(RunNotFound):
        load("run")


@pytest.mark.parametrize(
    "number", [int(DIGITS), int(f"9{DIGITS}9"), float(f"{DIGITS}.5"), range(int(DIGITS))]
)
def test_a_number_with_the_digits_of_a_value_is_refused(store_dir: Path, number: object) -> None:
    """A reference to its digits would come back as a text."""
    for state in ({"n": [number]}, {number: 1}):
        with pytest.raises(SecretFound, match="name:digits"):
            checkpoint("run", state)
    with open_run("run") as run:
        run.checkpoint({"n": 48151624, "text": f"it is {DIGITS}"})
        assert run.once("read", lambda: {"code": DIGITS}, key=1) == {"code": DIGITS}
    assert load("run") == {"n": 48151624, "text": f"it is {DIGITS}"}
    assert hits(store_dir, [DIGITS]) == []


def test_the_name_of_a_fork_holds_no_value(store_dir: Path) -> None:
    """Its folder and its journal would have it."""
    checkpoint("run", {"n": 1})
    for name in (f"run-{DIGITS}", run_key(user=DIGITS)):
        with pytest.raises(SecretFound, match="the run_id holds the secret name:digits"):
            fork("run", new_run_id=name)
    assert {path.name for path in store_dir.iterdir()} == {"run", ".gitignore"}


@pytest.mark.parametrize("key", [QUOTED, "sk_identifier_of_a_service", "x" * 200])
def test_the_path_of_an_error_holds_no_value(key: str) -> None:
    """Where a key of the state is one, or holds one that is too long to be shown."""
    declare_secret("key", key)
    for state in ({key: object()}, {"a": {f"<{key}>": [object()]}}):
        with pytest.raises(UnserialisableState, match=r"\[secret name:") as caught:
            checkpoint("run", state)
        for text in (str(caught.value), caught.value.path, repr(caught.value)):
            assert key not in text
            assert key[:60] not in text


def verify(*args: str) -> Any:
    """Run `verify --secrets`, no longer than some seconds."""
    before = signal.signal(signal.SIGALRM, lambda *_: pytest.fail("it waits"))
    signal.alarm(20)
    try:
        return CliRunner().invoke(app, ["verify", "--secrets", *args])
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_a_search_opens_nothing_but_files(store_dir: Path) -> None:
    """A pipe would be waited for."""
    checkpoint("run", {"n": 1})
    os.mkfifo(store_dir / "run" / "pipe")
    (store_dir / "run" / "link").symlink_to("nowhere")
    assert verify().stdout == "no secret found\n"


def test_a_search_goes_on_where_a_file_vanishes(
    store_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer replaces its notes, and a pruning begins a new segment, while others are read."""
    checkpoint("run", {"n": 1})
    vanishing, come = store_dir / "run" / "a-temporary", store_dir / "run" / "journal-2.jsonl"
    vanishing.write_text("soon gone")
    opening = Path.open

    def opened(path: Path, *args: Any, **options: Any) -> Any:
        if path == vanishing and vanishing.exists():
            vanishing.unlink()
            come.write_text(QUOTED)
        return opening(path, *args, **options)

    monkeypatch.setattr(Path, "open", opened)
    done = verify("--json")
    assert [leak["path"] for leak in json.loads(done.stdout)["found"]] == ["run/journal-2.jsonl"]


def test_a_search_where_there_is_no_store_says_so(tmp_path: Path) -> None:
    """As `verify` does; and a repair is not left out in silence."""
    done = CliRunner().invoke(app, ["--store", str(tmp_path / "no"), "verify", "--secrets"])
    assert (done.exit_code, "no store at" in done.output) == (3, True)
    assert verify("--repair").exit_code == 2


def test_a_copy_that_is_refused_says_what_to_do(tmp_path: Path) -> None:
    """The store holds what was written before it was declared."""
    checkpoint("run", {"key": "written-before-it-was-declared"})
    checkpoint("other", {"n": 1})
    declare_secret("late", "written-before-it-was-declared")
    done = CliRunner().invoke(app, ["copy", "--to", str(tmp_path / "to")])
    assert done.exit_code == 1
    assert "copied other" in done.output
    assert "it holds the secret name:late" in done.output
    assert "verify --secrets" in done.output
    clean("run")


def test_a_module_that_cannot_be_imported_tells_no_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a program raises is shown by `migrate`."""
    (tmp_path / "telling.py").write_text(f"raise ValueError({QUOTED!r}, {DIGITS!r})")
    monkeypatch.syspath_prepend(str(tmp_path))
    checkpoint("run", {"n": 1})
    done = CliRunner().invoke(app, ["migrate", "run", "--with", "telling:STEPS", "--yes"])
    assert done.exit_code == 3
    assert "[secret name:digits]" in done.output
    assert not any(text in done.output for text in (QUOTED, repr(QUOTED)[1:-1], DIGITS))


def test_a_thousand_declared_values_cost_no_seconds(store_dir: Path) -> None:
    """A server declares a token for each of its users, one after the other, and saves."""
    for number in range(1000):
        declare_secret(f"user-{number}", f"token-{number * 7919:012x}-of-a-user")
    checkpoint("run", {"n": 0})
    began = time.perf_counter()
    for number in range(1000, 1020):
        declare_secret(f"user-{number}", value := f"token-{number * 7919:012x}-of-a-user")
        checkpoint("run", {"token": value})
        assert load("run") == {"token": value}
    assert time.perf_counter() - began < 5
    assert hits(store_dir, [value]) == []
