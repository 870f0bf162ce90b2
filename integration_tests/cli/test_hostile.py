"""Whatever a run holds, no terminal and no pipe gets it as an instruction."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from caravanserai_core import Note, checkpoint, open_run

HOSTILE = {
    "title": "\x1b]0;owned\x07",
    "clipboard": "\x1b]52;c;ZXZpbA==\x07",
    "link": "\x1b]8;;http://evil.example\x1b\\click\x1b]8;;\x1b\\",
    "clear": "\x1b[2J\x1b[H",
    "c1": "\x9b2J\x9d0;owned\x9c",
    "bell": "\x07",
    "bidi": "\u202egnp.exe\u2066",
    "zero-width": "a\u200bb\ufeffc",
    "return": "safe\rDANGER",
    "backspace": "abc\b\b\b",
    "tag": "x\U000e0041",
}
ALL = " | ".join(HOSTILE.values())

# C0 but tab and line feed, DEL, C1; zero-width, bidi and tag characters.
UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]"
)
# What the program itself sends to a terminal: colours, and nothing else.
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def make(run_id: str) -> None:
    """Make a run that is hostile wherever it can hold a text."""
    with open_run(run_id, goal=ALL, adapter=ALL) as run:
        run.checkpoint({"a": ALL, ALL: 1}, ALL)
        run.entry(ALL, ALL, say=ALL)
        run.remark(ALL)
        run.checkpoint({"a": ALL + "!", ALL: [ALL]}, Note(ALL, happened=[ALL], next=ALL, goal=ALL))
        run.checkpoint({}, ALL, lane=ALL)
        run.entry("x", say=ALL)
        run.ended({"outcome": "failed", "error": ALL})


def verbs(run_id: str) -> list[list[str]]:
    return [
        ["list"],
        ["show", run_id],
        ["show", f"{run_id}@1"],
        ["show", f"{run_id}@99"],
        ["show", "--state", run_id],
        ["log", run_id],
        ["diff", f"{run_id}@2"],
        ["diff", f"{run_id}@1", f"{run_id}@2"],
        ["verify"],
        ["verify", run_id],
        ["resume", run_id],
        ["resume", ALL],
        ["show", ALL],
        [ALL],
        ["list", f"--{ALL}"],
        ["list", "--store", f"/nowhere/{ALL}"],
        ["clean", ALL],
        *([verb, "--json", *rest] for verb, *rest in [
            ["list"], ["show", run_id], ["log", run_id], ["diff", run_id], ["verify"],
        ]),
    ]  # fmt: skip


HOSTILE_ID = "r-\x1b]0;x\x07\u202e\x9b2J\rz"


@pytest.mark.parametrize("run_id", ["plain", HOSTILE_ID])
def test_piped_output_is_harmless(cli: Callable[..., Any], run_id: str) -> None:
    """No control character from a run, its name or the command line comes out of any verb."""
    make(run_id)
    for args in verbs(run_id):
        result = cli(*args)
        for text in (result.stdout, result.stderr):
            found = UNSAFE.search(text)
            assert found is None, (args, found, text)
        reads_the_run = run_id in args and args[0] != "resume"
        assert result.exit_code in ((0,) if reads_the_run else (0, 2, 3)), (args, result.output)
        if "--json" in args and result.exit_code == 0:
            json.loads(result.stdout)


@pytest.mark.parametrize("colour", [True, False])
def test_a_terminal_gets_nothing_but_colours(terminal: Callable[..., Any], colour: bool) -> None:
    """On a terminal the same; with NO_COLOR not a single escape sequence."""
    make(HOSTILE_ID)
    for args in verbs(HOSTILE_ID):
        shown = terminal(*args, typed="n\n", **({} if colour else {"NO_COLOR": "1"})).text
        plain = COLOUR.sub("", shown) if colour else shown
        found = UNSAFE.search(plain)
        assert found is None, (args, found, shown)


def test_a_dumb_terminal_gets_no_escape_sequence(terminal: Callable[..., Any]) -> None:
    """TERM=dumb switches colours off."""
    make("demo")
    assert b"\x1b" not in terminal("list", TERM="dumb").output
    assert b"\x1b" in terminal("list").output


def test_json_is_exact_all_the_same(cli: Callable[..., Any]) -> None:
    """What is escaped in JSON is the same text again for a program."""
    make(HOSTILE_ID)
    tree = json.loads(cli("show", f"{HOSTILE_ID}@1", "--json").output)
    assert tree["state"] == {"a": ALL, ALL: 1}
    assert tree["run"] == HOSTILE_ID
    assert [info["run"] for info in json.loads(cli("list", "--json").output)["runs"]] == [
        HOSTILE_ID
    ]


def test_a_hostile_text_stays_readable(cli: Callable[..., Any]) -> None:
    """Control characters are spelled out, not dropped: a reader sees that they are there."""
    checkpoint("demo", {}, "before \x1b[2J after \u202e")
    assert "before \\x1b[2J after \\u202e" in cli("show", "demo").output


def test_a_line_of_the_list_cannot_be_forged(cli: Callable[..., Any]) -> None:
    """Tab and line feed in a name do not make a second column or line."""
    checkpoint("a\tb\nc", {}, "x\ty\nz")
    assert cli("list").output.count("\n") == 1
    assert cli("list").output.startswith("a\\tb\\nc\t1 waypoint(s)\t")
    assert cli("log", "@-").output.count("\n") == 1


def test_names_with_lone_surrogates(cli: Callable[..., Any]) -> None:
    """A name that no UTF-8 can hold is listed, shown and deleted."""
    checkpoint("bad \udcff name", {"k": 1}, "x")
    assert cli("list").exit_code == 0
    assert json.loads(cli("list", "--json").output)["runs"][0]["run"] == "bad \udcff name"
    assert cli("show", "bad \udcff name").exit_code == 0
    assert cli("clean", "bad \udcff name").exit_code == 0


def test_a_narrow_encoding_gets_escapes(process: Callable[..., Any]) -> None:
    """A terminal that knows only ASCII is no reason to fail, and JSON stays valid."""
    import os

    checkpoint("demo", {"k": "é \U0001f600"}, "— \U0001f600")
    env = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    shown = process("show", "demo", env=env)
    assert (shown.returncode, shown.stderr) == (0, "")
    tree = json.loads(process("show", "demo", "--json", env=env).stdout)
    assert tree["state"] == {"k": "é \U0001f600"}


def test_a_link_in_the_store_is_not_followed(cli: Callable[..., Any], tmp_path: Path) -> None:
    """A run's folder that is a link elsewhere is refused with a sentence."""
    checkpoint("real", {}, "x", store=tmp_path / "elsewhere")
    checkpoint("other", {}, "x")
    (tmp_path / ".caravanserai" / "demo").symlink_to(tmp_path / "elsewhere" / "real")
    result = cli("show", "demo")
    assert result.exit_code == 1
    assert "link" in result.stderr
