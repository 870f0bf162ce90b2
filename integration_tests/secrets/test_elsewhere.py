"""Secrets outside of states: notes, errors, names, copies, files that are no records."""

from __future__ import annotations

import base64
import logging
from pathlib import Path

import pytest

from caravanserai_core import (
    FileStore,
    Note,
    SecretFound,
    WaitingForPerson,
    answer,
    checkpoint,
    clean,
    declare_secret,
    fenced,
    history,
    load,
    open_run,
    quoted,
    resumable,
)
from caravanserai_core.compaction import copy_run
from caravanserai_core.records import Draft
from caravanserai_core.redact import redact
from caravanserai_core.verify import renew_notes, verify
from integration_tests.api.helpers import forget_everything
from integration_tests.secrets.planted import KEY, hits


@pytest.fixture(autouse=True)
def _planted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTED_API_KEY", KEY)


def test_every_part_of_a_note_is_redacted(store_dir: Path) -> None:
    """In the journal, beside it, in the live note, and for who reads it."""
    note = Note(
        f"used {KEY}",
        happened=[f"a {KEY}"],
        plan=[f"b {KEY}"],
        next=[f"c {KEY}"],
        decided=[f"d {KEY}"],
        so_far=[f"e {KEY}"],
    )
    with open_run("run", goal=f"with {KEY}") as run:
        run.checkpoint({}, note)
        run.remark(f"remark {KEY}")
        run.checkpoint({}, lambda _: f"from a function {KEY}")
        run.entry("e", say=f"said {KEY}")
        run.repeat(f"again {KEY}")
    assert hits(store_dir, [KEY]) == []
    told = (store_dir / "run" / "waypoint-1.md").read_text()
    assert told.count("[secret env:PLANTED_API_KEY]") == 7
    assert str(history("run")[0].note) == "used [secret env:PLANTED_API_KEY]"


def test_the_error_of_a_failed_job_is_redacted(store_dir: Path) -> None:
    """Also where the text is cut, quoted or escaped."""

    @resumable
    def job(run_id: str, state: dict[str, int]) -> None:
        checkpoint(run_id, state, "about to call")
        raise RuntimeError("x" * (300 - len("RuntimeError: ") - 8) + f"{KEY} `{KEY}` {KEY}")

    with pytest.raises(RuntimeError):
        job("run", {"n": 1})
    assert hits(store_dir, [KEY]) == []
    live = (store_dir / "run" / "latest.md").read_text()
    assert KEY[:6] not in live
    assert "the run failed" in live


def test_a_cut_leaves_no_part_of_a_secret() -> None:
    """Wherever a quote ends, what is left is no piece of a key."""
    for before in range(150, 210):
        assert KEY[:5] not in quoted("y " * (before // 2) + KEY, 200)
    declare_secret("long", long := "Long-" * 60)
    assert "Long-" not in quoted(f"{long} " * 60, 1000)
    text = "y" * 4900 + KEY
    assert KEY[:5] not in quoted(text, 201)
    assert KEY[:5] not in fenced("z\n" * 1995 + KEY, 4000)


def test_what_looks_like_a_secret_is_redacted_in_notes(store_dir: Path) -> None:
    """Nobody declared it, and nobody goes on from a note."""
    token = "ghp_" + "0aZ9" * 9
    checkpoint("run", {"n": 1}, f"cloned with {token}.")
    assert str(history("run")[0].note) == "cloned with [possible secret: github]."
    assert token not in (store_dir / "run" / "journal-1.jsonl").read_text()


def test_names_with_a_secret_are_refused(store_dir: Path) -> None:
    """A name has to stay what it is, so it may be none; no folder of that name is made."""
    for run_id in (KEY, f"job {KEY}", base64.b64encode(KEY.encode()).decode()):
        with pytest.raises(SecretFound, match="the run_id") as caught:
            checkpoint(run_id, {})
        assert KEY not in str(caught.value)
        with pytest.raises(SecretFound, match="the run_id"):
            open_run(run_id)
        assert not [path for path in store_dir.glob("*") if path.is_dir()], "a name on the disk"
    with open_run("run") as run:
        run.checkpoint({})
        for refused in (
            lambda: run.checkpoint({}, lane=KEY),
            lambda: run.checkpoint({}, meta={"a": [KEY]}),
            lambda: run.checkpoint({}, meta={KEY: 1}),
            lambda: run.entry(KEY),
            lambda: run.entry("e", meta={"a": KEY}),
            lambda: run.finish(call=KEY),
        ):
            with pytest.raises(SecretFound) as caught:
                refused()
            assert KEY not in str(caught.value)
        assert run.checkpoint({"fine": 1}) == 2
    assert hits(store_dir, [KEY]) == []


def test_steps_and_questions_hold_references_and_words(store_dir: Path) -> None:
    """Results come back; what people read has words; a label is a name."""
    ran: list[str] = []

    def fetch(key: str) -> dict[str, str]:
        ran.append(key)
        return {"echo": f"<{key}>"}

    def fails(key: str) -> None:
        raise ValueError(f"401 for {key}")

    for _ in range(2):
        with open_run("run") as run:
            assert run.once("fetch", fetch, KEY) == {"echo": f"<{KEY}>"}
            with pytest.raises(ValueError, match="401"):
                run.once("fails", fails, KEY, on_uncertain="rerun")
            with pytest.raises(SecretFound):
                run.once(f"label {KEY}", fetch, KEY)
    assert ran == [KEY]
    checkpoint("run", {"n": 1})
    with pytest.raises(WaitingForPerson), open_run("run") as run:
        run.ask(f"Send {KEY}?", payload={"key": KEY})
    told = (store_dir / "run" / "latest.md").read_text()
    assert "Send [secret env:PLANTED_API_KEY]?" in told
    answer("run", f"yes, with {KEY}", reason=f"since {KEY}")
    with open_run("run") as run:
        assert run.ask(f"Send {KEY}?", payload={"key": KEY}) == f"yes, with {KEY}"
    assert hits(store_dir, [KEY]) == []


def test_a_record_with_a_secret_is_never_drafted() -> None:
    """Whoever made it and forgot all else: what holds one does not become a record."""
    coded = base64.b64encode(KEY.encode())
    for fields, body in (
        ({"any": {"deep": [f"x{KEY}"]}}, b""),
        ({}, b'"data":"%b"' % KEY.encode()),
        ({}, b'"data":"%b"' % coded),
    ):
        with pytest.raises(SecretFound, match="Nothing was written") as caught:
            Draft("entry", fields, by="me", body=body)
        assert KEY not in str(caught.value)
    Draft("entry", {"any": "fine"}, by="me", body=b'"data":1')


def test_a_leak_from_before_can_be_removed_and_is_not_carried_elsewhere(
    store_dir: Path, tmp_path: Path
) -> None:
    """Pruning and deleting go on; a copy into another store would be a new leak."""
    late = "declared-" + "later-0815"
    with open_run("run") as run:
        for n in range(3):
            run.checkpoint({"n": n, "key": late})
        declare_secret("late", late)
        with pytest.raises(SecretFound):
            copy_run(run.store, "run", FileStore(tmp_path / "other"), "copy")
        assert run.compact(lambda record: record.waypoint != 1) == 1
        assert load("run") == {"n": 2, "key": late}
        run.checkpoint({"n": 3, "key": late})
        run.compact(lambda record: record.waypoint == 4)
    assert hits(store_dir, [late]) == []
    assert clean("run")


def test_notes_from_before_are_written_again_with_words(store_dir: Path) -> None:
    """A remark that waited for the next note, the live note, and a note that is renewed."""
    late = "declared-" + "later-4711"
    with open_run("run") as run:
        run.checkpoint({}, f"first {late}")
        run.entry("e", say=f"said {late}")
        run.remark(f"because of {late}")
        before = (store_dir / "run" / "journal-1.jsonl").stat().st_size
    declare_secret("late", late)
    forget_everything()
    assert verify(FileStore(store_dir), "run").findings == []
    for note in (store_dir / "run").glob("*.md"):
        note.unlink()
    renew_notes(FileStore(store_dir), "run")
    with open_run("run") as run:
        run.entry("e", say="more")
        assert "said [secret name:late]" in (store_dir / "run" / "latest.md").read_text()
        run.checkpoint({"n": 2})
    assert "because of [secret name:late]" in (store_dir / "run" / "waypoint-2.md").read_text()
    assert late.encode() not in (store_dir / "run" / "journal-1.jsonl").read_bytes()[before:]
    assert [hit for hit in hits(store_dir, [late]) if not hit.startswith("run/journal-1")] == []
    assert verify(FileStore(store_dir), "run").findings == []


def test_copies_hold_the_same_references(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the secret is not known: nothing is resolved on the way."""
    checkpoint("run", {"key": KEY})
    monkeypatch.setattr("sys.orig_argv", ["python", KEY])
    checkpoint("argv", {"key": KEY})
    monkeypatch.delenv("PLANTED_API_KEY")
    store = FileStore(tmp_path / ".caravanserai")
    other = FileStore(tmp_path / "other")
    copy_run(store, "argv", other, "copy")
    assert load("copy", store=other, raw=True) == {"key": {"$secret": "env:PLANTED_API_KEY"}}
    assert hits(tmp_path, [KEY]) == []


def test_a_folder_of_release_0_2_0_is_taken_over(store_dir: Path) -> None:
    """Its old files stay as they are; what is written anew holds references."""
    folder = store_dir / "old"
    folder.mkdir(parents=True)
    (folder / "state.json").write_text(f'{{"key": "{KEY}"}}')
    (folder / "latest").write_text("1")
    (folder / "meta.json").write_text('{"command": []}')
    (folder / "waypoint-1.md").write_text(f"# Waypoint 1\n\nused {KEY}\n")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    checkpoint("old", {"key": KEY, "n": 2})
    assert load("old") == {"key": KEY, "n": 2}
    assert {name: (folder / name).read_bytes() for name in before} == before
    assert KEY not in (folder / "journal-1.jsonl").read_text()


def test_logs_hold_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    """What is told of a refusal names it and nothing more."""

    @resumable
    def job(run_id: str, state: object) -> str:
        return base64.b64encode(KEY.encode()).decode()

    with caplog.at_level(logging.DEBUG):
        job("run", {})
    assert "its result cannot be recorded" in caplog.text
    assert KEY not in caplog.text


@pytest.mark.parametrize(
    "text",
    [
        "os.getenv('GITHUB_TOKEN')",
        'api_key = os.environ["OPENAI_API_KEY"]  # sk-... goes there',
        "${env:OPENAI_API_KEY}",
        "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "toolu_01A09q90qw90lq917835lq9 call_abcdefghijklmnopqrstuvwx",
        "task-0123456789abcdef0123456789abcdef0123",
        "6f1ed002-ab5d-4c5b-9f5e-0c1a2b3c4d5e",
        "https://example.com/desk-chairs-and-other-furniture-for-offices-2026",
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAUAAAAFCAYAAACNbyblAAAAHElEQVQI12P4",
        "MAX_TOKENS=4096 and the token count is 12345678",
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    """In notes as in states: ids, hashes, code, images."""
    assert redact(text) == text
    checkpoint("run", {"text": text, text: [text]})
    assert load("run", raw=True) == {"text": text, text: [text]}
