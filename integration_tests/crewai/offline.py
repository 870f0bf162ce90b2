"""CrewAI as the tests use it: it asks nobody anything, and writes below a folder of its own.

To be imported before `crewai` is: some of it is read where that is imported.
"""

from __future__ import annotations

import os
from pathlib import Path

KEY = "sk-client-55d1c0ffee"
"""The key of the model's client."""

ENVIRONMENT_KEY = "sk-environment-7f3a9c51e2"
"""OPENAI_API_KEY."""

SETTINGS = {
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_DISABLE_TRACKING": "true",
    "CREWAI_DISABLE_VERSION_CHECK": "true",
    "CREWAI_TESTING": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "OPENAI_API_KEY": ENVIRONMENT_KEY,
    "OTEL_SDK_DISABLED": "true",
}

os.environ.update(SETTINGS)


def places_of(folder: Path) -> dict[str, str]:
    """Return where CrewAI keeps what it keeps, so that no two jobs meet and no home is touched."""
    return {
        "CREWAI_STORAGE_DIR": str(folder / "crewai-storage"),
        "HOME": str(folder / "home"),
        "XDG_CONFIG_HOME": str(folder / "home/.config"),
        "XDG_DATA_HOME": str(folder / "home/.local/share"),
    }
