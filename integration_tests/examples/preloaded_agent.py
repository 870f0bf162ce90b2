"""`examples/langgraph_agent.py` as a job of a preloaded process: started as from a terminal."""

from __future__ import annotations

import importlib.util
from typing import Any

from integration_tests.support import ROOT

EXAMPLE = ROOT / "examples" / "langgraph_agent.py"


def _loaded() -> Any:
    spec = importlib.util.spec_from_file_location("langgraph_agent", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


agent = _loaded()


def main(*argv: str) -> int:
    """Run the example with these arguments, in the folder where it is started."""
    return int(agent.main(list(argv)))
