"""list, show, log and diff: what they print, for people and for programs."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from caravanserai_core import Note, checkpoint, clean, open_run
from caravanserai_core.comparing import compare

Cli = Callable[..., Result]


def make(run_id: str = "demo", steps: int = 3) -> None:
    for step in range(1, steps + 1):
        checkpoint(run_id, {"step": step}, f"finished step {step}/{steps}")


# ---------------------------------------------------------------------- list


def test_list_says_that_there_are_no_runs(cli: Cli) -> None:
    """An empty store is no error; the error stream says where it was looked for."""
    result = cli("list")
    assert (result.exit_code, result.stdout) == (0, "no runs yet\n")
    assert result.stderr == f"there is no store at {Path.cwd()}/.caravanserai\n"
    assert not Path(".caravanserai").exists()
    Path(".caravanserai").mkdir()
    for verb in ("list", "verify"):
        empty = cli(verb)
        assert (empty.exit_code, empty.stdout) == (0, "no runs yet\n")
        assert empty.stderr == f"in {Path.cwd()}/.caravanserai\n"


def test_list_of_a_store_that_is_not_there_says_so(cli: Cli, tmp_path: Path) -> None:
    """A mistyped folder is no empty store; programs get the same document as always."""
    gone = tmp_path / "mistyped"
    for words in (("list",), ("list", "--json")):
        result = cli("--store", str(gone), *words)
        assert result.exit_code == 0
        assert result.stderr == f"there is no store at {gone}\n"
        assert not gone.exists()
    assert json.loads(result.stdout)["runs"] == []


def test_list_prints_a_line_per_run(cli: Cli) -> None:
    """RUN, waypoints, age, status and folder, with tabs between; the newest run first."""
    make("first", 1)
    with open_run("Second Run!") as run:
        run.checkpoint([1], "x")
        run.checkpoint([2], "x")
        run.finish(None)
    lines = [line.split("\t") for line in cli("list").output.splitlines()]
    assert [line[0] for line in lines] == ["Second Run!", "first"]
    assert lines[1][1] == "1 waypoint(s)"
    assert re.fullmatch(r"\d+s ago", lines[1][2])
    assert [line[3] for line in lines] == ["finished", "stopped"]
    assert all(Path(line[4]).is_dir() for line in lines)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(12, "12s ago"), (200, "3m ago"), (7300, "2h ago"), (5 * 86400 + 9, "5d ago"), (-5, "0s ago")],
)
def test_age_in_one_unit(seconds: int, text: str) -> None:
    """Seconds, minutes, hours or days; a clock that was set back gives no negative age."""
    from datetime import UTC, datetime, timedelta

    from caravanserai_core.listing import age

    assert age(datetime.now(UTC) - timedelta(seconds=seconds)) == text
    assert age(None) == "?"


def test_list_prints_all_of_260_runs(cli: Cli, terminal: Callable[..., Any]) -> None:
    """Nothing is cut off, piped or on a terminal; the oldest run is reachable."""
    for number in range(260):
        checkpoint(f"run-{number}", {}, "x")
    names = {f"run-{number}" for number in range(260)}
    assert {line.split("\t")[0] for line in cli("list").output.splitlines()} == names
    shown = terminal("list", NO_COLOR="1").text
    assert set(re.findall(r"^run-\d+", shown, re.MULTILINE)) == names
    assert "260 runs in " in shown
    assert cli("show", "run-0").exit_code == 0


def test_list_of_1000_runs_takes_less_than_a_second() -> None:
    """The time is that of the whole process, Python's start included; the best of five."""
    for number in range(1000):
        checkpoint(f"run-{number}", {"text": "x" * 2000}, "x")

    def seconds() -> float:
        begin = time.perf_counter()
        command = [sys.executable, "-m", "caravanserai_core.cli", "list"]
        done = subprocess.run(command, capture_output=True, check=True)
        assert len(done.stdout.splitlines()) == 1000
        return time.perf_counter() - begin

    assert any(seconds() < 1 for _ in range(20))  # other tests may be at work beside it


def test_list_does_not_read_states(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large state is not decoded for a list, nor for a log."""
    import orjson

    with open_run("big") as run:
        run.checkpoint({"text": "x" * 3_000_000}, "big")
    sizes: list[int] = []
    loads = orjson.loads
    monkeypatch.setattr(orjson, "loads", lambda data: sizes.append(len(data)) or loads(data))
    assert cli("list").exit_code == cli("log", "big").exit_code == 0
    assert sizes
    assert max(sizes) < 10_000


# ---------------------------------------------------------------------- show


def test_show_prints_number_note_and_state(cli: Cli) -> None:
    """The newest waypoint in three parts, the state as Python writes it."""
    make()
    assert cli("show", "demo").output == ("waypoint 3\n\nfinished step 3/3\n\nstate: {'step': 3}\n")


@pytest.mark.parametrize(
    ("text", "number"),
    [("demo@1", 1), ("demo@-1", 3), ("demo@-3", 1), ("@-", 3), ("@-@2", 2), ("de@2", 2), ("d", 3)],
)
def test_show_finds_what_is_named(cli: Cli, text: str, number: int) -> None:
    """RUN@N, counted from the end with -N, @- for the newest run, the beginning of a name."""
    make("older", 1)
    make()
    assert cli("show", text).output.startswith(f"waypoint {number}\n")


def test_an_exact_name_wins(cli: Cli) -> None:
    """A run may be called `demo@1`, and another one like its beginning."""
    make()
    checkpoint("demo@1", {"other": True}, "other")
    checkpoint("demo@12", {}, "longer")
    assert "other" in cli("show", "demo@1").output
    assert "finished step 2/3" in cli("show", "demo@2").output


def test_an_ambiguous_beginning_lists_the_candidates(cli: Cli) -> None:
    """Two runs begin like that: usage error, both named."""
    make("demo-a", 1)
    make("demo-b", 1)
    result = cli("show", "demo")
    assert result.exit_code == 2
    assert "demo-a, demo-b" in result.stderr


@pytest.mark.parametrize("verb", ["show", "log", "diff", "resume", "verify", "clean"])
def test_an_unknown_run_is_exit_code_3(cli: Cli, verb: str) -> None:
    """A sentence on the error stream that names the run; nothing on the output."""
    make()
    result = cli(verb, "nope")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "nope" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("verb", ["show", "log", "diff", "resume", "verify", "clean"])
def test_a_name_with_a_typing_error_is_answered_with_the_likely_ones(cli: Cli, verb: str) -> None:
    """At most three, safe to print, also where a waypoint was named."""
    make("research-2026", 1)
    make("research-\x1b2025", 1)
    make("other", 1)
    for typed in ("reserch-2026", "reserch-2026@1"):
        result = cli(verb, typed)
        assert result.exit_code == 3
        assert "Did you mean research-2026 or research-\\x1b2025? " in result.stderr
    assert "Did you mean" not in cli(verb, "zz").stderr


@pytest.mark.parametrize("text", ["demo@9", "demo@-9", "demo@0"])
def test_an_unknown_waypoint_is_exit_code_3(cli: Cli, text: str) -> None:
    """The run is there, the waypoint is not."""
    make()
    result = cli("show", text)
    assert result.exit_code == 3
    assert "waypoint" in result.stderr


def test_resume_and_clean_take_no_beginning_of_a_name(cli: Cli) -> None:
    """What starts or deletes something wants the exact name, and says which begin like that."""
    make()
    for args in (["resume", "dem", "--yes"], ["clean", "dem"]):
        result = cli(*args)
        assert result.exit_code == 3
        assert "Did you mean demo?" in result.stderr
    assert cli("show", "demo").exit_code == 0


def test_show_of_a_structured_note(cli: Cli) -> None:
    """The rendered note stands in place of the bare text."""
    checkpoint("demo", {}, Note("Sorted 3 of 5.", next="Sort the rest.", goal="All sorted."))
    text = cli("show", "demo").output
    assert text.startswith("waypoint 1\n\nSorted 3 of 5.\n\n## Next\n\nSort the rest.\n\n## Goal")


def test_show_tells_what_came_since(cli: Cli) -> None:
    """Steps after the newest waypoint are shown as in latest.md; older waypoints have none."""
    with open_run("demo") as run:
        run.checkpoint({}, "one")
        run.checkpoint({}, "two")
        run.entry("tool", {"k": 1}, say="`send()` began.")
        run.entry("silent")
        run.remark("Box 2 is wet.")
    text = cli("show", "demo").output
    assert "\n\nremarked since then: Box 2 is wet.\n\n" in text
    assert "two\n\nSince then: `send()` began.\n\nstate: {}" in text
    assert "1 recorded step without a text" in text
    assert "Since then" not in cli("show", "demo@1").output
    assert Path(".caravanserai/demo/latest.md").read_text().endswith("`send()` began.\n")


def test_show_of_a_finished_and_of_a_failed_run(cli: Cli) -> None:
    """A line after the state says how the run ended."""
    with open_run("good") as run:
        run.checkpoint({}, "x")
        run.finish(1)
    with open_run("bad") as run:
        run.checkpoint({}, "x")
        run.ended({"outcome": "failed", "error": "`ValueError: no`"})
    shown = cli("show", "good").output
    stamp = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00"
    assert re.search(rf"state: \{{\}}\n\nthe run finished at {stamp}\.\n$", shown)
    assert cli("show", "bad").output.endswith(": `ValueError: no`\n")


def test_show_of_a_run_without_a_waypoint(cli: Cli) -> None:
    """What began before the first waypoint is shown, too."""
    with open_run("new") as run:
        run.entry("tool", say="`send()` began.")
    assert cli("show", "new").output == "no waypoint yet\n\nSince then: `send()` began.\n"
    assert json.loads(cli("show", "new", "--json").output)["waypoint"] == 0
    assert cli("show", "new", "--state").exit_code == 3


def test_show_tells_the_goal(cli: Cli) -> None:
    """What the run is for, before the first waypoint, at each of them, and in --json."""
    with open_run("demo", goal="All letters\nanswered.") as run:
        run.entry("begin")
        assert "goal: All letters\\nanswered.\n" in cli("show", "demo").output
        run.checkpoint({}, "x")
    shown = cli("show", "demo").output
    assert shown.count("All letters") == 1
    assert json.loads(cli("show", "demo", "--json").output)["goal"] == "All letters\nanswered."
    make("other", 1)
    assert "goal" not in cli("show", "other").output.lower()
    assert json.loads(cli("show", "other", "--json").output)["goal"] is None


def test_folder_means_the_same_in_list_and_show(cli: Cli) -> None:
    """In --json the absolute path of the run's folder, also of one of release 0.2.0."""
    make("My Run", 1)
    old_run("Old Run")
    listed = json.loads(cli("list", "--json").output)["runs"]
    assert len(listed) == 2
    for info in listed:
        assert Path(info["folder"]).is_absolute()
        assert Path(info["folder"], "waypoint-1.md").is_file()
        shown = json.loads(cli("show", info["run"], "--json").output)
        assert shown["folder"] == info["folder"]


@dataclass
class Basket:
    """A type that the command line does not have."""

    items: tuple[str, ...]


def test_show_of_types_that_only_the_program_has() -> None:
    """A process without the type shows the fields, and the exact tags with --state."""
    checkpoint("demo", {"basket": Basket(("tea",))}, "x")

    def call(*args: str) -> str:
        command = [sys.executable, "-m", "caravanserai_core.cli", "show", "demo", *args]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert "state: {'basket': Basket(items=('tea',))}" in call()
    value = json.loads(call("--state"))["basket"]["$object"]["value"]
    assert value == {"items": {"$tuple": ["tea"]}}


def test_state_is_exact(cli: Cli) -> None:
    """--state is valid JSON equal to what was saved, in its order, with tags."""
    state = {"b": 1, "a": [1.0, True, None, "\x1b\x9b\u202e\U000e0001 é"], "t": (1,)}
    checkpoint("demo", state, "x")
    text = cli("show", "demo", "--state").output
    assert list(json.loads(text)) == ["b", "a", "t"]
    assert json.loads(text) == {**state, "t": {"$tuple": [1]}}
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\U000e0001]", text)


def test_a_long_state_is_shortened_on_a_terminal_only(
    cli: Cli, terminal: Callable[..., Any]
) -> None:
    """On a terminal the rest is left out and it is said how to see it; a pipe gets everything."""
    checkpoint("demo", {"text": "x" * 9000}, "x")
    assert "x" * 9000 in cli("show", "demo").output
    shown = terminal("show", "demo").text
    assert "x" * 9000 not in shown.replace("\n", "")
    assert "--state" in shown


def test_raw_is_refused_on_a_terminal(cli: Cli, terminal: Callable[..., Any]) -> None:
    """--raw prints control characters as they are, so only into a pipe."""
    checkpoint("demo", {}, "red: \x1b[31m")
    assert "\x1b[31m" in cli("show", "demo", "--raw").output
    result = terminal("show", "demo", "--raw")
    assert result.code == 2
    assert b"\x1b[31m" not in result.output


def test_a_missing_note_is_written_again(cli: Cli) -> None:
    """`show` renders what is missing beside the journal, byte by byte."""
    make()
    folder = Path(".caravanserai/demo")
    before = {path.name: path.read_bytes() for path in folder.glob("*.md")}
    (folder / "waypoint-2.md").unlink()
    (folder / "latest.md").unlink()
    assert cli("show", "demo").exit_code == 0
    assert {path.name: path.read_bytes() for path in folder.glob("*.md")} == before


# ---------------------------------------------------------------------- log


def test_log_lists_every_waypoint_and_step(cli: Cli) -> None:
    """Number, time, writer, parent, lane, text; steps carry the number they follow and a plus."""
    with open_run("demo") as run:
        run.entry("tool", say="began")
        run.checkpoint({}, "one\nline two")
        run.remark("because")
        run.checkpoint({}, "two", lane="side")
        run.checkpoint({}, "three")
        run.finish(None)
        run.entry("late")
    rows = [line.split("\t") for line in cli("log", "demo").output.splitlines()]
    assert [(row[0], row[3], row[4], row[5]) for row in rows] == [
        ("0+", "-", "-", "began"),
        ("1", "-", "-", "one\\nline two"),
        ("1+", "-", "-", "remark: because"),
        ("2", "-", "side", "two"),
        ("3", "1", "-", "three"),
        ("3+", "-", "-", "finished"),
        ("3+", "-", "-", "late"),
    ]
    assert len({row[2] for row in rows}) == 1
    assert all(re.match(r"\d{4}-\d\d-\d\dT", row[1]) for row in rows)


# ---------------------------------------------------------------------- diff


def test_diff_shows_what_changed(cli: Cli) -> None:
    """Added, removed and changed members by JSON pointer, and both notes."""
    checkpoint("demo", {"a": 1, "b/c": {"x": 1}, "gone": True, "list": [1, 2, 3]}, "first")
    checkpoint("demo", {"a": 1.0, "b/c": {"x": 2}, "list": [1, 3], "new": "n"}, "second")
    assert cli("diff", "demo").output.splitlines() == [
        "--- waypoint 1 of demo: first",
        "+++ waypoint 2 of demo: second",
        "- /gone: true",
        "~ /a: 1 → 1.0",
        "~ /b~1c/x: 1 → 2",
        "- /list/1: 2",
        '+ /new: "n"',
    ]


def test_diff_of_two_named_waypoints(cli: Cli) -> None:
    """RUN@N RUN@M compares these two; one of its own has to be told what to compare with."""
    make()
    make("other", 1)
    assert "~ /step: 1 → 3" in cli("diff", "demo@1", "demo@3").output
    assert "~ /step: 3 → 1" in cli("diff", "demo@3", "demo@1").output
    assert "~ /step: 1 → 2" in cli("diff", "demo@2").output
    assert "the states are equal" in cli("diff", "demo@1", "other").output
    assert cli("diff", "other").exit_code == 2


def test_diff_json_is_a_patch_that_leads_from_one_state_to_the_other(cli: Cli) -> None:
    """RFC 6902; applied by plain code it gives the second state."""
    old = {"l": [1, 2, 3, 4, {"k": [0]}], "t": "x", "d": {"a": {"b": [1]}, "~": 1}}
    new = {"l": [1, 9, 4, {"k": [0, 1, 2]}, 5], "d": {"a": [], "/": {"~": 2}}, "": None}
    checkpoint("demo", old, "x")
    checkpoint("demo", new, "x")
    assert patched(old, json.loads(cli("diff", "demo", "--json").output)) == new


def patched(tree: Any, patch: list[dict[str, Any]]) -> Any:
    """Apply a JSON Patch, from the text of RFC 6902 and 6901."""
    box: dict[str, Any] = {"": json.loads(json.dumps(tree))}
    for operation in patch:
        where: Any = box
        *way, last = ["", *operation["path"].split("/")[1:]]
        for token in [token.replace("~1", "/").replace("~0", "~") for token in way]:
            where = where[int(token)] if isinstance(where, list) else where[token]
        last = last.replace("~1", "/").replace("~0", "~")
        key: Any = int(last) if isinstance(where, list) else last
        if operation["op"] == "remove":
            del where[key]
        elif operation["op"] == "add" and isinstance(where, list):
            where.insert(key, operation["value"])
        else:
            where[key] = operation["value"]
    return box[""]


def test_random_trees_are_patched_exactly() -> None:
    """400 pairs of random trees: the patch gives the second one, types included."""
    import random

    chance = random.Random(7)

    def tree(depth: int) -> Any:
        kind = chance.randrange(6 if depth else 4)
        if kind == 4:
            return [tree(depth - 1) for _ in range(chance.randrange(4))]
        if kind == 5:
            return {chance.choice("abc/~"): tree(depth - 1) for _ in range(chance.randrange(4))}
        return chance.choice([0, 1, True, 1.0, -0.0, 0.0, None, "x"])

    for _ in range(400):
        old, new = tree(4), tree(4)
        patch = [{"op": c.op, "path": c.path, "value": c.new} for c in compare(old, new)]
        assert json.dumps(patched(old, patch), sort_keys=True) == json.dumps(new, sort_keys=True)


# ---------------------------------------------------------------------- --json


def test_the_keys_of_json_are_stable(cli: Cli) -> None:
    """One document on the output, nothing else; exactly the keys that --help lists."""
    with open_run("demo") as run:
        run.checkpoint({"a": 1}, "one")
        run.checkpoint({"a": 2}, "two")
        run.entry("tool", say="began")

    def keys(*args: str) -> Any:
        result = cli(*args, "--json")
        assert (result.exit_code, result.stderr) == (0, "")
        return json.loads(result.stdout)

    listed = keys("list")
    assert list(listed) == ["store", "runs"]
    assert list(listed["runs"][0]) == [
        "run", "status", "waypoints", "updated", "adapter", "folder", "error", "origin",
        "waits",
    ]  # fmt: skip
    shown = keys("show", "demo")
    assert list(shown) == [
        "run", "status", "goal", "origin", "folder", "waypoint", "time", "lane", "parent", "by",
        "adapter", "note", "state", "since",
    ]  # fmt: skip
    assert (shown["waypoint"], shown["note"], shown["state"]) == (2, "two", {"a": 2})
    assert list(shown["since"][0]) == ["time", "kind", "lane", "name", "text"]
    logged = keys("log", "demo")
    assert list(logged) == ["run", "status", "origin", "damage", "events"]
    assert list(logged["events"][0]) == [
        "time", "kind", "lane", "name", "text", "waypoint", "parent", "by",
    ]  # fmt: skip
    assert [event["kind"] for event in logged["events"]] == ["waypoint", "waypoint", "entry"]
    assert keys("diff", "demo") == [{"op": "replace", "path": "/a", "value": 2}]
    checked = keys("verify")
    assert list(checked) == ["store", "damaged", "runs"]
    assert list(checked["runs"][0]) == ["run", "damaged", "records", "waypoints", "findings"]


# ---------------------------------------------------------------------- release 0.2.0


def old_run(run_id: str) -> Path:
    """Write what release 0.2.0 left of a run with three waypoints."""
    folder = Path(".caravanserai", run_id)
    folder.mkdir(parents=True)
    (folder / "state.json").write_text('{"step": 3}')
    (folder / "latest").write_text("3")
    command = [sys.executable, "-c", "print('again')"]
    (folder / "meta.json").write_text(json.dumps({"command": command}))
    for step in (1, 2, 3):
        title = f"# Waypoint {step} - 2026-08-20T22:41:0{step}+00:00"
        (folder / f"waypoint-{step}.md").write_text(f"{title}\n\nfinished step {step}\n")
    return folder


def test_runs_of_release_0_2_0(cli: Cli, process: Callable[..., Any]) -> None:
    """They are listed, shown, logged and resumed; only the last waypoint has a state."""
    folder = old_run("Old Run")
    before = {path: path.read_bytes() for path in folder.iterdir()}
    assert cli("list").output.startswith("Old Run\t3 waypoint(s)\t")
    assert cli("show", "Old Run").output == (
        "waypoint 3\n\nfinished step 3\n\nstate: {'step': 3}\n"
    )
    assert [line.split("\t")[0] for line in cli("log", "Old Run").output.splitlines()] == list(
        "123"
    )
    for args in (["show", "Old Run@1"], ["diff", "Old Run"]):
        result = cli(*args)
        assert result.exit_code == 3
        assert "release 0.2.0 kept only" in result.stderr
    assert process("resume", "Old Run", "--yes").stdout.endswith("\nagain\n")
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_verify_of_a_run_of_release_0_2_0(cli: Cli) -> None:
    """It has nothing to verify; once it went on, the old waypoints are counted, too."""
    old_run("demo")
    said = "demo: written by release 0.2.0, 3 waypoint(s); nothing to verify\n"
    assert cli("verify", "demo").output == cli("verify").output == said
    assert json.loads(cli("verify", "--json").output)["runs"][0]["waypoints"] == 3
    checkpoint("demo", {"step": 4}, "four")
    text = cli("verify", "demo").output
    assert text.startswith("demo: ok, 4 waypoint(s), 2 of them by release 0.2.0, ")
    report = json.loads(cli("verify", "--json").output)["runs"][0]
    assert report["waypoints"] == 4
    assert report["findings"] == []


def test_times_of_release_0_2_0_are_shown_in_utc(
    cli: Cli, terminal: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever zone their notes have."""
    folder = old_run("demo")
    for note in folder.glob("*.md"):
        note.write_text(note.read_text().replace("T22:", "T23:").replace("+00:00", "+01:00"))
    assert "2026-08-20 22:41:01" in terminal("log", "demo").text
    assert "2026-08-20T22:41:01+00:00" in cli("log", "demo").output
    assert json.loads(cli("show", "demo", "--json").output)["time"].endswith("22:41:03+00:00")


# ---------------------------------------------------------------------- nothing is changed


def test_reading_changes_no_byte(cli: Cli) -> None:
    """The hash of every file is the same before and after show, log, list, diff and verify."""
    for step in range(52):
        checkpoint("demo", {"step": step, "text": "x" * 5000}, f"step {step}")
    with open_run("demo") as run:
        run.entry("tool", say="began")

    def hashes() -> dict[str, str]:
        found = {}
        for path in Path(".caravanserai").rglob("*"):
            what = path.read_bytes() if path.is_file() else b""
            link = str(path.readlink()) if path.is_symlink() else ""
            found[str(path)] = f"{hashlib.sha256(what).hexdigest()} {link}"
        return found

    before = hashes()
    for args in (["list"], ["show", "demo"], ["show", "demo@7"], ["log", "demo"], ["diff", "demo"],
                 ["verify"], ["verify", "demo"], ["show", "demo", "--json"]):  # fmt: skip
        assert cli(*args).exit_code == 0
    assert hashes() == before


# ---------------------------------------------------------------------- the rest


def test_clean_deletes_exactly_the_named_runs(cli: Cli) -> None:
    """It does not ask; the unknown one is exit code 3, the others are gone all the same."""
    for name in ("a", "b", "ab"):
        make(name, 1)
    result = cli("clean", "a", "nope", "b")
    assert result.exit_code == 3
    assert result.stdout == "".join(
        f"deleted checkpoints for '{name}': the whole run, with its notes\n" for name in "ab"
    )
    assert result.stderr == (
        f"no checkpoints for run 'nope' in the store {Path.cwd()}/.caravanserai. "
        "`caravanserai list` shows the runs there.\n"
    )
    assert [line.split("\t")[0] for line in cli("list").output.splitlines()] == ["ab"]
    assert not clean("a")


def test_clean_takes_no_waypoint(cli: Cli) -> None:
    """RUN@N and @- are wrong usage, and nothing is deleted; a run may be called so."""
    make("a@2", 1)
    make("a")
    for text in ("a@1", "@-"):
        result = cli("clean", text)
        assert result.exit_code == 2
        assert "whole run" in result.stderr
    assert cli("clean", "a@2").exit_code == 0
    assert cli("show", "a").exit_code == 0


def test_store_may_stand_before_and_behind_the_verb(cli: Cli, tmp_path: Path) -> None:
    """--store names another folder; the environment variable does, too."""
    checkpoint("there", {}, "x", store=tmp_path / "other")
    assert cli("--store", "other", "show", "there").exit_code == 0
    assert cli("show", "there", "--store", "other").exit_code == 0
    assert cli("show", "there").exit_code == 3
    assert cli("--store", "nosuch://x", "list").exit_code == 2


def test_the_help_of_completion_has_a_line_per_shell(cli: Cli) -> None:
    """Each as it is to be typed, in a line of its own."""
    text = cli("completion", "--help").output
    assert "\\b" not in text
    for shell in ("bash", "zsh", "fish"):
        assert re.search(rf"^ *{shell}: .*caravanserai completion {shell}", text, re.MULTILINE)


def test_the_help_names_no_exit_code_that_nothing_gives(cli: Cli) -> None:
    """0 to 6."""
    text = cli("--help").output
    assert "5 in use" in text
    assert not re.search(r"\b7\b", text)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(cli: Cli, shell: str) -> None:
    """The script for the shell, naming the variable that the program looks at."""
    result = cli("completion", shell)
    assert result.exit_code == 0
    assert "_CARAVANSERAI_COMPLETE" in result.output


def test_names_of_runs_are_completed(process: Callable[..., Any]) -> None:
    """The shell asks with its variables; a name that a terminal would act on is not offered."""
    import os

    make("demo-a", 1)
    make("demo-\x1b[31m", 1)
    env = {
        **os.environ,
        "_CARAVANSERAI_COMPLETE": "bash_complete",
        "COMP_WORDS": "caravanserai show demo",
        "COMP_CWORD": "2",
    }
    assert process(env=env).stdout == "plain,demo-a\n"


def test_a_closed_pipe_is_silent() -> None:
    """`caravanserai log RUN | head -1` prints its line and no traceback."""
    for step in range(300):
        checkpoint("demo", {"step": step}, "x" * 2000)
    done = subprocess.run(
        f"{sys.executable} -m caravanserai_core.cli log demo | head -1",
        shell=True,
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == ""


def test_verbs_start_without_rich() -> None:
    """Piped output needs no rich, which would double the time to start."""
    make()
    code = (
        "import sys\nfrom caravanserai_core.cli import app\n"
        "app(['show', 'demo'], standalone_mode=False)\n"
        "assert not {'rich', 'asyncio', 'pydantic'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_list_long_tells_the_bytes_on_disk(cli: Cli, store_dir: Path) -> None:
    """With --long each run's line holds what its folder takes, and --json the same number."""
    checkpoint("run", {"text": "x" * 50_000})
    taken = sum(path.lstat().st_size for path in (store_dir / "run").iterdir())

    columns = cli("list", "--long").stdout.rstrip("\n").split("\t")
    tree = json.loads(cli("list", "--long", "--json").stdout)

    assert columns[4] == str(taken)
    assert tree["runs"][0]["bytes"] == taken > 50_000
