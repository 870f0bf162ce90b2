"""References to secrets when they are read: here, elsewhere, after a rotation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from caravanserai_core import (
    SecretChanged,
    SecretMissing,
    UsageError,
    checkpoint,
    codec,
    declare_secret,
    get_waypoint,
    list_runs,
    load,
    load_command,
    open_run,
    secrets,
)
from integration_tests.secrets.planted import KEY, hits
from integration_tests.support import ROOT


def start(code: str, *args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in another process, with these variables and none of this one's secrets."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "adapters")])
    inherited = {k: v for k, v in os.environ.items() if not k.endswith(("KEY", "TOKEN"))}
    return subprocess.run(
        [sys.executable, "-c", code, *args],
        env={**inherited, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_secret_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says which, where in the state, and what to do; raw shows the reference."""
    monkeypatch.setenv("PLANTED_API_KEY", KEY)
    state = {"client": {"headers": [f"Bearer {KEY}"]}}
    checkpoint("run", state)
    monkeypatch.delenv("PLANTED_API_KEY")
    with pytest.raises(SecretMissing, match="set the variable PLANTED_API_KEY") as caught:
        load("run")
    assert caught.value.path == "$.client.headers[0]"
    assert caught.value.name == "env:PLANTED_API_KEY"
    assert "run run, waypoint 1" in str(caught.value)
    reference = {"$text": ["Bearer ", {"$secret": "env:PLANTED_API_KEY"}]}
    assert load("run", raw=True) == {"client": {"headers": [reference]}}
    assert [info.run_id for info in list_runs()] == ["run"]
    monkeypatch.setenv("PLANTED_API_KEY", KEY)
    assert load("run") == state


def test_a_declared_secret_that_is_missing_is_named(store_dir: Path) -> None:
    """The other process has to declare it."""
    done = start(
        "import caravanserai as c, sys; c.declare_secret('db.main', sys.stdin.readline().strip()"
        " or 'unusual-'+'value'); c.checkpoint('run', ['unusual-'+'value'])",
    )
    assert done.returncode == 0, done.stderr
    with pytest.raises(SecretMissing, match=r'declare_secret\("db.main", value\)'):
        load("run")
    declare_secret("db.main", "unusual-" + "value")
    assert load("run") == ["unusual-" + "value"]
    assert hits(store_dir, ["unusual-" + "value"]) == []


def test_a_rotated_secret_comes_as_its_new_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that goes on after a rotation has the key that works."""
    monkeypatch.setenv("PLANTED_API_KEY", KEY)
    checkpoint("run", {"key": KEY, "text": f"<{KEY}>"})
    monkeypatch.setenv("PLANTED_API_KEY", "rotated-" + KEY[::-1])
    new = "rotated-" + KEY[::-1]
    assert load("run") == {"key": new, "text": f"<{new}>"}
    checkpoint("run", load("run"))
    assert load("run", raw=True)["key"] == {"$secret": "env:PLANTED_API_KEY"}


def test_a_rotated_secret_in_json_in_a_text_stays_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reference knows how often its value was escaped."""
    declare_secret("pass", 'first"' + "value")
    checkpoint("run", {"call": json.dumps({"arg": json.dumps(['first"' + "value"])})})
    declare_secret("pass", "back\\slash" + '"quote')
    call = json.loads(load("run")["call"])
    assert json.loads(call["arg"]) == ["back\\slash" + '"quote']


def test_another_value_is_refused_where_that_was_asked_for() -> None:
    """A mark of 16 bits tells another value, and nobody what the value is."""
    declare_secret("pinned", "first-" + "value-1", changed="refuse")
    checkpoint("run", {"a": ["first-" + "value-1"]})
    reference = load("run", raw=True)["a"][0]["$secret"]
    assert reference["of"] == "name:pinned"
    assert len(reference["mark"]) == 4
    assert load("run") == {"a": ["first-" + "value-1"]}
    declare_secret("pinned", "second-" + "value-2", changed="refuse")
    with pytest.raises(SecretChanged, match="another value") as caught:
        load("run")
    assert (caught.value.path, caught.value.name) == ("$.a[0]", "name:pinned")
    declare_secret("pinned", "first-" + "value-1", changed="refuse")
    assert load("run") == {"a": ["first-" + "value-1"]}


def test_two_processes_and_only_one_has_the_secret(store_dir: Path) -> None:
    """The one without can list, show, and is told by name what it lacks; the third goes on."""
    write = (
        "import caravanserai as c, os; c.checkpoint('run', {'k': os.environ['PLANTED_API_KEY']})"
    )
    assert start(write, PLANTED_API_KEY=KEY).returncode == 0
    read = "import caravanserai as c; print(c.load('run')['k'])"
    without = start(read)
    assert without.returncode == 1
    assert "SecretMissing" in without.stderr
    assert "env:PLANTED_API_KEY" in without.stderr
    shown = start(
        "import sys; from caravanserai_core.cli import main; sys.argv[1:] = "
        "['show', 'run', '--state']; main()"
    )
    assert shown.returncode == 0, shown.stderr
    assert "env:PLANTED_API_KEY" in shown.stdout
    assert start(read, PLANTED_API_KEY=KEY).stdout.strip() == KEY
    assert hits(store_dir, [KEY]) == []


def test_the_command_of_a_run_is_resumed_with_the_secret(store_dir: Path, tmp_path: Path) -> None:
    """A key on the command line is a reference in the store, words on the screen, then a key."""
    (tmp_path / "job.py").write_text(
        "import sys, caravanserai as c\n"
        "c.checkpoint('run', {'n': 1})\n"
        "open('seen.txt', 'a').write(sys.argv[2] + '\\n')\n"
    )
    path = os.pathsep.join([str(ROOT), str(ROOT / "adapters")])
    plain = {k: v for k, v in os.environ.items() if not k.endswith(("KEY", "TOKEN"))}
    env = {**plain, "PYTHONPATH": path, "PLANTED_API_KEY": KEY}
    run = [sys.executable, "job.py", "--key", KEY]
    subprocess.run(run, env=env, check=True, timeout=60)
    assert hits(store_dir, [KEY]) == []

    resume = [sys.executable, "-m", "caravanserai_core.cli", "resume", "run", "--yes"]
    without = subprocess.run(
        resume,
        env={k: v for k, v in env.items() if k != "PLANTED_API_KEY"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert without.returncode == 1
    assert "PLANTED_API_KEY" in without.stderr
    done = subprocess.run(resume, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert KEY not in done.stdout + done.stderr
    assert "[secret env:PLANTED_API_KEY]" in done.stdout
    assert (tmp_path / "seen.txt").read_text() == f"{KEY}\n{KEY}\n"
    with pytest.raises(SecretMissing):
        load_command("run")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PLANTED_API_KEY", "sixteen-letters-0"),
        ("planted_token", "sixteen-letters-0"),
        ("TOKEN", "sixteen-letters-0"),
        ("APP-SECRET", "sixteen-letters-0"),
        ("SENTRY_DSN", "https://public@sentry.example/1"),
        ("ANYTHING", "amqp://user:hidden-word@broker/vhost"),
    ],
)
def test_the_environment_declares_by_name(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """Names that end in a whole word, and URLs with a password in them."""
    monkeypatch.setenv(name, value)
    assert json.loads(codec.encode([value]).data) == [{"$secret": f"env:{name}"}]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TOKENIZERS_PARALLELISM", "false-false-false"),
        ("GIT_AUTHOR_NAME", "Somebody-With-A-Name"),
        ("MONKEY", "sixteen-letters-0"),
        ("PLANTED_KEY", "short-value"),
        ("PLANTED_KEY", "a sentence with spaces"),
        ("PLANTED_CREDENTIALS", str(ROOT / "pyproject.toml")),
        ("HOMEPAGE", "https://example.com/user:name/page"),
        ("DATABASE_URL", "postgres://localhost:5432/database"),
    ],
)
def test_the_environment_declares_nothing_else(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """A rule that takes too much makes runs that no other machine can load."""
    monkeypatch.setenv(name, value)
    assert json.loads(codec.encode([value]).data) == [value]


def test_a_password_in_a_url_is_a_secret_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it stands in the URL, and as it is given to a client; a user's own name is none."""
    monkeypatch.setenv("DATABASE_URL", "postgres://app:p%40ss-word-1@db/app")
    state = ["postgres://app:p%40ss-word-1@db/app", "p%40ss-word-1", {"password": "p@ss-word-1"}]
    encoded = codec.encode(state)
    assert json.loads(encoded.data) == [
        {"$secret": "env:DATABASE_URL"},
        {"$secret": "env:DATABASE_URL#password"},
        {"password": {"$secret": "env:DATABASE_URL#decoded"}},
    ]
    assert codec.decode(encoded.data, encoded.tagged) == state
    monkeypatch.setenv("DATABASE_URL", "postgres://postgres:postgres@db/app")
    assert json.loads(codec.encode(["postgres"]).data) == ["postgres"]


def test_a_value_that_was_seen_once_stays_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program may take a key out of its environment, and still have it in its state."""
    monkeypatch.setenv("PLANTED_API_KEY", KEY)
    codec.encode([])
    monkeypatch.delenv("PLANTED_API_KEY")
    assert json.loads(codec.encode([KEY]).data) == [{"$secret": "env:PLANTED_API_KEY"}]


def test_a_variable_is_declared_by_its_name_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """For one whose name does not tell, or whose value is short."""
    monkeypatch.setenv("PLANTED_PIN", "90210773")
    declare_secret("PLANTED_PIN")
    assert json.loads(codec.encode(["90210773"]).data) == [{"$secret": "env:PLANTED_PIN"}]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("short", "1234567"), "8 characters"),
        (("bytes", b"12345678"), "no text"),
        (("half", "\ud800" * 8), "no text"),
        (("NOT_IN_THE_ENVIRONMENT",), "NOT_IN_THE_ENVIRONMENT"),
        (("white space", "12345678"), "name"),
        (("word", "Waypoint"), "word"),
        (("the-value-itself", "value-it"), "own name"),
    ],
)
def test_a_wrong_declaration_is_refused(arguments: Any, told: str) -> None:
    """What could not be kept out, or would keep everything out."""
    with pytest.raises(UsageError, match=told):
        declare_secret(*arguments)


SWAPPED = [
    ("ghp_" + "0aZ9" * 9, "github"),
    ("sk-ant-" + "a" * 30, None),
    ("hunter-2-hunter-2", "OPENAI_API_KEY"),
    ("hunter2hunter2", "openai-key"),
    ("pass word with blanks", "db-password"),
    ("hunter2hunter2", None),
    ("hunter2hunter2", "db"),
    ("hunter2hunter2", "Waypoint"),
    ("hunter2hunter2", "unter2hunter"),
    (KEY, "my-key"),
]


@pytest.mark.parametrize(("name", "value"), SWAPPED)
def test_swapped_arguments_are_refused_and_neither_is_printed(
    name: str, value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key in the place of the name would be written with each reference, and shown in errors."""
    monkeypatch.setenv("PLANTED_API_KEY", KEY)
    before = secrets.current().version

    with pytest.raises(UsageError) as caught:
        declare_secret(name, value)

    told = str(caught.value)
    assert name not in told
    assert value is None or value in ("db", "Waypoint") or value not in told
    assert secrets.current().version == before


@pytest.mark.parametrize(
    ("name", "value"),
    [("db", "local-dev-password"), ("db2_password", "local-dev-password"), ("a-key", "no-token")],
)
def test_a_weak_value_is_a_value(name: str, value: str) -> None:
    """Passwords of somebody's own machine are made of words, as names are."""
    declare_secret(name, value)
    assert json.loads(codec.encode([value]).data) == [{"$secret": f"name:{name}"}]


def test_a_state_that_looks_like_a_reference_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dict of the program in the shape of a tag is escaped, as for every tag."""
    monkeypatch.setenv("PLANTED_API_KEY", KEY)
    state = [{"$secret": "env:PLANTED_API_KEY"}, {"$text": ["a", {"$secret": "name:x"}]}]
    checkpoint("run", state)
    assert load("run") == state
    assert get_waypoint("run").state == state


def test_results_and_entries_hold_references(
    store_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written between waypoints and at the end goes the same way."""
    monkeypatch.setenv("PLANTED_API_KEY", KEY)
    with open_run("run") as run:
        run.checkpoint({"n": 1})
        run.entry("tool", {"answer": f"key={KEY}"}, say=f"called with {KEY}")
        run.remark(f"because {KEY} was given")
        assert run.entries()[0].data == {"answer": f"key={KEY}"}
        run.finish({"result": KEY}, call="c")
        assert run.finished("c") == (True, {"result": KEY})
    assert hits(store_dir, [KEY]) == []
