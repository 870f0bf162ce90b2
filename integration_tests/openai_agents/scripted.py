"""The scripted model of `examples/`, loaded by its path: `examples` is no package."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

from integration_tests.support import ROOT


def load_example(name: str) -> ModuleType:
    """Import a module of `examples/` under its own name, once, as it is when it is run there."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        # Before it is executed: dataclasses look for their module.
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


_scripted = load_example("scripted_openai")

ScriptedOpenAI = _scripted.ScriptedOpenAI
Asked = _scripted.Asked
Refused = _scripted.Refused
REFUND = _scripted.REFUND
by_rules = _scripted.by_rules
