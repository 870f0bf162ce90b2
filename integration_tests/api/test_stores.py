"""Where runs live: the forms that `store=` takes, and the default."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pytest

from caravanserai import (
    FileStore,
    MemoryStore,
    RunNotFound,
    UsageError,
    checkpoint,
    clean,
    list_runs,
    load,
    open_store,
)


def test_every_form_of_store_is_one_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store, a path, a text, a URL and the environment's name lead to the same runs."""
    folder = tmp_path / "with space"
    forms: list[Any] = [
        FileStore(folder),
        str(folder),
        folder,
        folder.as_uri(),
        "with space",
        open_store(folder),
    ]
    for number, form in enumerate(forms, 1):
        assert checkpoint("run", {"n": number}, store=form) == number
    monkeypatch.setenv("CARAVANSERAI_STORE", str(folder))
    assert checkpoint("run", {"n": 7}) == 7
    for form in forms:
        assert load("run", store=form) == {"n": 7}
        assert [info.run_id for info in list_runs(store=form)] == ["run"]
    assert not (tmp_path / ".caravanserai").exists()


def test_memory_store_keeps_runs_apart_from_others() -> None:
    """Two stores in memory share nothing, and nothing is written to the disk."""
    one, two = MemoryStore(), MemoryStore()
    checkpoint("run", {"n": 1}, store=one)
    assert load("run", store=one) == {"n": 1}
    with pytest.raises(RunNotFound):
        load("run", store=two)
    assert os.listdir() == []


def test_url_of_an_unknown_kind_is_refused() -> None:
    """A store that this version does not have is no folder of that name."""
    with pytest.raises(UsageError, match="redis"):
        checkpoint("run", {}, store="redis://localhost")
    assert os.listdir() == []


@pytest.mark.parametrize("store", [3, b"folder", {"path": "x"}, True])
def test_what_names_no_store_is_refused_in_words(store: Any) -> None:
    with pytest.raises(UsageError, match=f"a folder or a URL.*not {type(store).__name__}"):
        checkpoint("run", {}, store=store)
    assert os.listdir() == []


def test_default_store_is_kept_when_the_program_changes_its_folder(tmp_path: Path) -> None:
    """Agents change directory; a run that was touched once stays where it was."""
    checkpoint("run", {"n": 1})
    (tmp_path / "elsewhere").mkdir()
    os.chdir(tmp_path / "elsewhere")
    assert checkpoint("run", {"n": 2}) == 2
    assert load("run") == {"n": 2}
    assert os.listdir() == []
    assert checkpoint("later", {}) == 1, "a run that is touched here first lives here"
    assert (tmp_path / "elsewhere" / ".caravanserai" / "later").is_dir()


def test_default_store_is_resolved_again_for_a_deleted_run(tmp_path: Path) -> None:
    """After `clean` a run of that name is a new one, here and now."""
    checkpoint("run", {"n": 1})
    assert clean("run") is True
    (tmp_path / "elsewhere").mkdir()
    os.chdir(tmp_path / "elsewhere")
    assert checkpoint("run", {"n": 1}) == 1
    assert (tmp_path / "elsewhere" / ".caravanserai" / "run").is_dir()


def test_new_run_is_announced_once(caplog: pytest.LogCaptureFixture, store_dir: Path) -> None:
    """A mistyped id or another folder must not begin a job again in silence."""
    caplog.set_level(logging.INFO, "caravanserai")
    for step in range(3):
        checkpoint("my run", {"n": step})
    said = [r.getMessage() for r in caplog.records if r.levelno == logging.INFO]
    assert len(said) == 1
    assert said[0].startswith(f"run my run is new in {store_dir}/my-run~")
    checkpoint("other", {})
    assert f"run other is new in {store_dir}/other" in caplog.text
