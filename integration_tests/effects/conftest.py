"""Each test here begins like a new process."""

from __future__ import annotations

import pytest

from integration_tests.api.helpers import forget_everything


@pytest.fixture(autouse=True)
def _new_process(_own_folder: None) -> None:
    forget_everything()
