"""The scripted model of `examples/`: `examples` is no package."""

from __future__ import annotations

from integration_tests.openai_agents.scripted import load_example

_scripted = load_example("scripted_anthropic")

ScriptedAnthropic = _scripted.ScriptedAnthropic
Asked = _scripted.Asked
