"""A step that ended and whose result cannot be kept: it is known to have happened."""

from __future__ import annotations

from pathlib import Path

import pytest

from caravanserai import UnserialisableState, WaitingForPerson, answer, open_run
from caravanserai_core.effects import OnUncertain


@pytest.mark.parametrize("policy", ["ask", "rerun"])
def test_it_is_not_run_again_unless_somebody_says_so(tmp_path: Path, policy: OnUncertain) -> None:
    sent: list[str] = []

    def send() -> object:
        sent.append("sent")
        return object()

    def start() -> object:
        with open_run("job", store=tmp_path) as run:
            return run.once("send", send, on_uncertain=policy)

    with pytest.raises(UnserialisableState):
        start()
    for _ in range(2):
        with pytest.raises(WaitingForPerson, match="could not be kept"):
            start()
    assert sent == ["sent"]

    answer("job", "happened", result="by hand", store=tmp_path)
    assert start() == "by hand"
    assert sent == ["sent"]


def test_somebody_may_say_that_it_is_run_again(tmp_path: Path) -> None:
    given: list[object] = [object(), "kept"]

    def send() -> object:
        return given.pop(0)

    def start() -> object:
        with open_run("job", store=tmp_path) as run:
            return run.once("send", send, on_uncertain="rerun")

    with pytest.raises(UnserialisableState):
        start()
    with pytest.raises(WaitingForPerson):
        start()
    answer("job", "rerun", store=tmp_path)
    assert start() == "kept"
