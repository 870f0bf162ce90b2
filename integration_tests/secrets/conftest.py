"""Each test of secrets begins as a process does that knows none."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from caravanserai_core import declare_secret, secrets
from integration_tests.secrets import planted


@pytest.fixture(autouse=True)
def _no_secrets(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hide the secrets of whoever runs the tests, and forget those of earlier tests."""
    for secret in secrets.current().secrets:
        monkeypatch.delenv(secret.source.removeprefix("env:").partition("#")[0], raising=False)
    monkeypatch.setattr(secrets, "_registry", secrets._Registry())
    yield
    monkeypatch.setattr(secrets, "_registry", secrets._Registry())


@pytest.fixture
def all_planted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the made-up secrets where a program would have them."""
    for name, value in planted.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    for name, value in planted.DECLARED.items():
        declare_secret(name, value)
    assert "PLANTED_API_KEY" in os.environ
