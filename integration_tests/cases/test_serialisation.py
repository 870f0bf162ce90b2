"""States that cannot be kept: refused with their place, and the run is as it was."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from caravanserai import UnserialisableState, acheckpoint, checkpoint, load, open_run
from integration_tests.api.helpers import process

VALUE = "hunter2-" + "of-the-client"


class Credentials:
    """A client's credentials, as a framework hands them over."""

    def __init__(self, value: str) -> None:
        self.value = value
        self.lock = threading.RLock()

    def __repr__(self) -> str:
        return f"Credentials({self.value!r})"


def deep() -> Any:
    value: Any = 1
    for _ in range(100_000):
        value = [value]
    return value


def circular() -> Any:
    value: dict[str, Any] = {}
    value["self"] = value
    return value


UNFIT: dict[str, tuple[Any, str, str]] = {
    "object in a list in a list": ({"a": [{"b": object()}]}, "$.a[0].b", "object"),
    "very deep": (deep(), "$" + "[0]" * 200, "limit 200"),
    "contains itself": (circular(), "$.self", "circular"),
    "lock in an object": ({"client": Credentials(VALUE)}, "$.client", "Credentials"),
    "class as a key": ({int: 1}, "$", "type"),
    "module": ({"namespace": {"json": json}}, "$.namespace.json", "module"),
}


def content(folder: Path) -> dict[str, bytes]:
    """All files below a folder."""
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", UNFIT)
def test_a_refused_state_changes_no_byte_and_the_process_goes_on(
    name: str, store_dir: Path
) -> None:
    """The path and the type are told, no file differs, and the state before is what loads."""
    value, path, told = UNFIT[name]
    checkpoint("run", {"n": 1}, "first")
    before = content(store_dir)

    for save in (
        lambda: checkpoint("run", value, "second"),
        lambda: acheckpoint("run", value, "second"),
        lambda: open_run("run").entry("tool", value),
    ):
        with pytest.raises(UnserialisableState) as caught:
            save()
        assert caught.value.path == path
        assert str(caught.value).startswith(f"{path}: ")
        assert told in str(caught.value)
        assert VALUE not in str(caught.value)

    after = content(store_dir)
    assert {name: after[name] for name in before} == before
    assert {Path(name).name for name in set(after) - set(before)} <= {"lease"}
    assert not any(VALUE.encode() in data for data in after.values())
    assert process("import caravanserai; print(caravanserai.load('run'))") == "{'n': 1}\n"
    assert checkpoint("run", {"n": 2}, "third") == 2
    assert load("run") == {"n": 2}
